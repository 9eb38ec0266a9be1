package admission_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/params/admission"
)

var update = flag.Bool("update", false, "write the template instead of comparing it")

// The chart's template is the table; `make generate` writes it. What it means
// is tested in test/deploy.
func TestTemplate(t *testing.T) {
	path := filepath.Join("..", "..", "..", "deploy", "chart", "templates", "admission-parameters.yaml")
	if *update {
		if err := os.WriteFile(path, []byte(admission.Template()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != admission.Template() {
		t.Errorf("%s is stale; run make generate", path)
	}
}
