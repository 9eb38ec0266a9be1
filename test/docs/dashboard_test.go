package docs

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// The series that a driver exposes when everything that the dashboard shows has
// happened once. test/alerts runs the dashboard's queries on it, and is a module of its own.
func TestExposition(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	m.Build("v1")
	m.JournalUp(true)
	m.BackendUp("main", true)
	m.Writer(func() bool { return true })
	const method = "/cosi.v1alpha1.Provisioner/DriverCreateBucket"
	m.RPC(method, "OK", 100*time.Millisecond)
	m.RPC(method, "Unavailable", time.Second)
	m.Backend("main")("PutKey", errors.New("no answer"))
	m.JournalWrite("save", nil)
	m.ContractChanged("signed")
	m.Found("policy", false)
	m.Rotated("issued")

	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	var want strings.Builder
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "contract_cosi_") {
			want.WriteString(line[:strings.LastIndexByte(line, ' ')] + "\n") // without the value
		}
	}
	root, err := harness.Root()
	must(t, err)
	file := filepath.Join(root, "test", "alerts", "testdata", "series.txt")
	if *update {
		must(t, os.WriteFile(file, []byte(want.String()), 0o644))
	}
	got, err := os.ReadFile(file)
	must(t, err)
	if string(got) != want.String() {
		t.Error("test/alerts/testdata/series.txt is stale; run make generate")
	}
}
