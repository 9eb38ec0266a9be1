package backends

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// What the document on Ceph shows works: the command makes a user who may do
// what the driver needs, and the configuration reaches the gateway.
func TestRGWDocument(t *testing.T) {
	t.Parallel()
	root, err := harness.Root()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "pkg", "contract", "rgw", "README.md"))
	must(t, err)
	block := func(language string) string {
		_, rest, _ := strings.Cut(string(text), "\n```"+language+"\n")
		body, _, ok := strings.Cut(rest, "\n```\n")
		if !ok {
			t.Fatalf("there is no block of %q", language)
		}
		return body
	}
	command, ok := strings.CutPrefix(block("sh"), "radosgw-admin ")
	if !ok {
		t.Fatalf("the command is %q", block("sh"))
	}
	out, err := ceph.Admin(t.Context(), strings.Fields(strings.ReplaceAll(command, "'", ""))...)
	must(t, err)
	var user struct {
		Keys []struct {
			Access string `json:"access_key"`
			Secret string `json:"secret_key"`
		}
	}
	must(t, json.Unmarshal([]byte(out), &user))
	credentials := filepath.Join(t.TempDir(), "rgw")
	shown, err := settings.ParseKeyPair([]byte(block("ini")))
	must(t, err)
	must(t, os.WriteFile(credentials, fmt.Appendf(nil, "aws_access_key_id = %s\naws_secret_access_key = %s\n", user.Keys[0].Access, user.Keys[0].Secret), 0o600))
	if len(shown.AccessKeyID) != len(user.Keys[0].Access) {
		t.Errorf("the document shows a key of %d characters, and the gateway makes one of %d", len(shown.AccessKeyID), len(user.Keys[0].Access))
	}

	r := run(t, storages["rgw"], func(string) string {
		return strings.NewReplacer(
			"https://rgw.example.com", ceph.URL, "https://rgw-admin.example.com", ceph.URL,
			"/etc/contract-cosi-driver/rgw", credentials,
		).Replace("driver: {name: contract.cosi.example.com, owner: example-cluster}\njournal: {file: "+filepath.Join(t.TempDir(), "journal")+"}\n"+block("yaml")) + "\n" + onDemand
	})
	l := r.life()
	must(t, l.create())
	must(t, l.grant())
	must(t, l.use())
	must(t, l.delete())
}
