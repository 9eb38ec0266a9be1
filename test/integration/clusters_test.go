package integration

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/contract-cosi/contract-cosi-driver/pkg/admin"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
)

// withJournal opens the journal of a driver that is stopped.
func (e *env) withJournal(do func(journal.Store)) {
	e.Helper()
	store, err := filestore.Open(e.Context(), e.dir+"/journal.log", nil)
	must(e, err)
	do(store)
	must(e, store.Close())
}

func (e *env) identities() (have []string) {
	e.Helper()
	e.stop()
	e.withJournal(func(s journal.Store) {
		var err error
		have, err = journal.New(s).Identities(e.Context())
		must(e, err)
	})
	e.start()
	return have
}

// takeOver restarts the driver with the setting for journals that are lost.
func (e *env) takeOver(identities []string) {
	e.Helper()
	e.stop()
	writeFile(e, e.configFile, strings.Replace(readFile(e, e.configFile), "driver:\n", "driver:\n  takesOver: ["+strings.Join(identities, ", ")+"]\n", 1))
	e.start()
}

// loseJournal restarts the driver without its journal, as one that takes over from
// the driver that it was.
func (e *env) loseJournal() {
	e.Helper()
	lost := e.identities()
	e.stop()
	must(e, os.Remove(e.dir+"/journal.log"))
	e.takeOver(lost)
}

// Two clusters whose drivers have one owner: the second is refused at the contract
// that the first has signed, by every call and by the commands, until it takes over
// or has the first one's journal.
func TestTwoClustersWithOneOwner(t *testing.T) {
	t.Parallel()
	contract := newContract()
	bucket, class := contract+"-x", map[string]string{"contract": contract}
	first, second := newEnv(t, onDemand), newEnv(t, onDemand)
	id := first.mustCreate(bucket, class)
	g := first.mustGrant(id, "ba-1", nil)
	mine := first.identities()
	says := slices.Concat([]string{"contract " + contract, "same driver.owner", "another journal", "driver.takesOver"}, mine)
	refusedTo := func(e *env) {
		t.Helper()
		_, err := e.create(contract+"-y", class)
		expectCode(t, err, codes.FailedPrecondition, says...)
		_, err = e.create(bucket, class)
		expectCode(t, err, codes.FailedPrecondition, says...)
		_, err = e.grant(id, "ba-2", nil)
		expectCode(t, err, codes.FailedPrecondition, says...)
		expectCode(t, e.revoke(id, g.account), codes.FailedPrecondition, says...)
		expectCode(t, e.delete(id), codes.FailedPrecondition, says...)
	}
	refusedTo(second)
	for command, status := range map[string]int{"contracts": 2, "audit": 2} {
		stdout, stderr, got := second.tool(command, "--contract", contract)
		if got != status || !strings.Contains(stderr, "driver.takesOver") {
			t.Errorf("%s ends with %d: %s%s", command, got, stdout, stderr)
		}
	}
	allowed(t, "put of the first", put(t, g.client(), bucket, "x"))
	if again := first.mustGrant(id, "ba-1", nil); again != g {
		t.Error("the first one's key has changed")
	}
	if have := report[admin.Contract](first, 0, "contracts", "--contract", contract); len(have) != 1 || len(have[0].Differing) != 0 {
		t.Errorf("the first one's contract: %+v", have)
	}

	second.takeOver(mine)
	second.mustCreate(bucket, class)
	allowed(t, "put after the take-over", put(t, second.mustGrant(id, "ba-2", nil).client(), bucket, "x"))
	var have struct {
		Spec struct{ Labels map[string]string }
	}
	if code := first.api(http.MethodGet, "/v1/contracts/"+contract, nil, &have); code != http.StatusOK || have.Spec.Labels[cosi.JournalTag] != mine[0] {
		t.Errorf("HTTP %d, labels %q, want the first one's mark", code, have.Spec.Labels)
	}

	third := newEnv(t, onDemand)
	refusedTo(third)
	first.stop()
	third.stop()
	must(t, os.Remove(third.dir+"/journal.log")) // a refused create is recorded as an intent
	var export strings.Builder
	first.withJournal(func(s journal.Store) {
		_, err := journal.Export(t.Context(), s, "example-cluster", &export)
		must(t, err)
	})
	third.withJournal(func(s journal.Store) {
		_, _, err := journal.Import(t.Context(), s, "example-cluster", strings.NewReader(export.String()))
		must(t, err)
	})
	third.start()
	if again := third.mustGrant(id, "ba-1", nil); again != g {
		t.Error("a journal that was moved does not answer the key that it has")
	}
	third.mustCreate(contract+"-z", class)
}

// The contracts that are signed for each bucket have one mark, so one line takes all
// of them over.
func TestTwoClustersWithAContractPerBucket(t *testing.T) {
	t.Parallel()
	template := newContract()
	class := map[string]string{"contract": template}
	open := func() *env {
		return newEnvWith(t, contractd, "contracts:\n  - {name: "+template+", backend: main, perBucket: true}\n", keysReachAll)
	}
	first, second := open(), open()
	ids := []string{first.mustCreate(template+"-one", class), first.mustCreate(template+"-two", class)}
	for i, name := range []string{"-one", "-two"} {
		_, err := second.create(template+name, class)
		expectCode(t, err, codes.FailedPrecondition, "same driver.owner", "driver.takesOver")
		expectCode(t, second.delete(ids[i]), codes.FailedPrecondition, "same driver.owner", "driver.takesOver")
	}
	second.mustCreate(template+"-three", class) // it signs contracts of its own
	second.takeOver(first.identities())
	for i, name := range []string{"-one", "-two"} {
		second.mustCreate(template+name, class)
		must(t, second.delete(ids[i]))
	}
}

// A contract from before there were such marks is its owner's, and gets none.
func TestContractWithoutAJournalsMark(t *testing.T) {
	t.Parallel()
	contract := newContract()
	first, second := newEnv(t, onDemand), newEnv(t, onDemand)
	if code := first.api(http.MethodPut, "/v1/contracts/"+contract, map[string]any{"owner": "example-cluster"}, nil); code != http.StatusCreated {
		t.Fatalf("HTTP %d", code)
	}
	class := map[string]string{"contract": contract}
	first.mustCreate(contract+"-1", class)
	second.mustCreate(contract+"-2", class)
	var have struct {
		Spec struct{ Labels map[string]string }
	}
	if code := first.api(http.MethodGet, "/v1/contracts/"+contract, nil, &have); code != http.StatusOK || len(have.Spec.Labels) != 0 {
		t.Errorf("HTTP %d, labels %q, want none", code, have.Spec.Labels)
	}
}
