package driver

import (
	"os"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// What applications get is the backend's CA file as it is now, and nothing where the
// system's CAs are trusted.
func TestAuthorities(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/ca.crt"
	ca := authorities([]config.Backend{{Name: "own", Connection: transport.Config{CAFile: file}}, {Name: "public"}})
	if _, err := ca("own"); err == nil {
		t.Error("a file that is missing is read")
	}
	for _, want := range []string{"one", "two"} {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if have, err := ca("own"); err != nil || string(have) != want {
			t.Errorf("the CA is %q, %v; want %q", have, err, want)
		}
	}
	if have, err := ca("public"); err != nil || have != nil {
		t.Errorf("the CA is %q, %v", have, err)
	}
}
