package backends

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// check is what contract-cosi-driver check --config finds.
func check(t *testing.T, text string, try bool) []driver.Finding {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	c, err := config.Load(file, driver.Types())
	must(t, err)
	var out []driver.Finding
	must(t, driver.Check(context.WithoutCancel(t.Context()), c, try, func(f driver.Finding) { out = append(out, f) }))
	return out
}

func TestCheck(t *testing.T) {
	t.Parallel()
	eachStorage(t, func(t *testing.T, s *harness.Storage) {
		found := check(t, s.Config(t.TempDir(), s.API, s.S3, onDemand), true)
		for _, f := range found {
			if f.Err != nil || f.Skipped {
				t.Errorf("%s: %v, skipped %v", f.What, f.Err, f.Skipped)
			}
		}
		if len(found) < 10 || found[len(found)-1].What != "trial: cancel the contract" {
			t.Errorf("found %+v", found)
		}

		// A service that is not there.
		const nobody = "http://127.0.0.1:1"
		found = check(t, s.Config(t.TempDir(), nobody, nobody, onDemand), true)
		if !fault.Is(found[0].Err, fault.Unavailable) || !found[1].Skipped || !found[len(found)-1].Skipped {
			t.Errorf("nobody answers: %+v", found)
		}

		// Credentials that are refused.
		wrong := filepath.Join(t.TempDir(), "wrong")
		must(t, os.WriteFile(wrong, []byte("aws_access_key_id = AKIAWRONGWRONGWRONG0\naws_secret_access_key = wrong\n"), 0o600))
		text := s.Config(t.TempDir(), s.API, s.S3, onDemand)
		for key, file := range map[string]string{"credentialsFile: \"": wrong, "tokenFile: \"": oneLine(t, wrong)} {
			if before, rest, ok := strings.Cut(text, key); ok {
				_, after, _ := strings.Cut(rest, "\"")
				text = before + key + file + "\"" + after
			}
		}
		found = check(t, text, false)
		if found[0].Err != nil || !fault.Is(found[1].Err, fault.PermissionDenied) || !strings.Contains(found[1].Err.Error(), "check") {
			t.Errorf("wrong credentials: %+v", found)
		}
	})
}
