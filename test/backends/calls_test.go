package backends

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
	"github.com/contract-cosi/contract-cosi-driver/test/poll"
)

var update = flag.Bool("update", false, "write the table of calls")

// The calls of each RPC, at a contract that is signed. One that grows is seen.
func TestCalls(t *testing.T) {
	root, err := harness.Root()
	must(t, err)
	path := filepath.Join(root, "deploy", "storage-services.md")
	table := "| administration + S3 | create | create again | grant | grant again | revoke | delete |\n|---|---|---|---|---|---|---|\n"
	for _, kind := range harness.StorageTypes {
		r := run(t, storages[kind], nil)
		first, l := r.life(), r.life()
		l.contract = first.contract
		must(t, first.create()) // signs the contract
		table += "| " + kind + " |"
		for i, do := range []func() error{l.create, l.create, l.grant, l.grant, l.revoke, l.delete} {
			r.api.Heal()
			r.s3.Heal()
			must(t, do())
			if kind == "contractapi" && i == 2 {
				r.acknowledged()
			}
			table += fmt.Sprintf(" %d + %d |", len(r.api.Calls()), len(r.s3.Calls()))
		}
		table += "\n"
		must(t, first.delete())
	}
	text, err := os.ReadFile(path)
	must(t, err)
	harness.HoldTable(t, path, string(text), "calls", table, *update)
}

// acknowledged waits for what the driver tells the service after a grant was
// answered.
func (r *running) acknowledged() {
	r.Helper()
	poll.Until(r, "an acknowledged key", func() bool {
		return slices.ContainsFunc(r.api.Calls(), func(call string) bool { return strings.HasSuffix(call, "/acknowledgement") })
	})
}
