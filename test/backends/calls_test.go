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
		first := r.life()
		must(t, first.create()) // signs the contract
		alone := r.calls(first.contract)
		const others = 30
		for range others {
			l := r.life()
			l.contract = first.contract
			must(t, l.create())
			r.api.Heal()
			must(t, l.grant())
			r.acknowledged()
		}
		if among := r.calls(first.contract); among != alone {
			t.Errorf("%s: among %d others the calls are %s, and alone %s", kind, others, among, alone)
		}
		table += "| " + kind + " |" + alone + "\n"
	}
	text, err := os.ReadFile(path)
	must(t, err)
	harness.HoldTable(t, path, string(text), "calls", table, *update)
}

// calls are those of one life under a contract, as a row of the table. Now and then
// the driver looks at its backends by itself, so a row counts that comes out twice.
func (r *running) calls(contract string) string {
	r.Helper()
	for last := ""; ; {
		row := r.counted(contract)
		if row == last {
			return row
		}
		last = row
	}
}

func (r *running) counted(contract string) (row string) {
	r.Helper()
	l := r.life()
	l.contract = contract
	for i, do := range []func() error{l.create, l.create, l.grant, l.grant, l.revoke, l.delete} {
		r.api.Heal()
		r.s3.Heal()
		must(r, do())
		if i == 2 {
			r.acknowledged()
		}
		row += fmt.Sprintf(" %d + %d |", len(r.api.Calls()), len(r.s3.Calls()))
	}
	return row
}

// acknowledged waits for what the driver tells a service that asks for it after a
// grant was answered.
func (r *running) acknowledged() {
	r.Helper()
	if r.storage.Type != "contractapi" {
		return
	}
	poll.Until(r, "an acknowledged key", func() bool {
		return slices.ContainsFunc(r.api.Calls(), func(call string) bool { return strings.HasSuffix(call, "/acknowledgement") })
	})
}
