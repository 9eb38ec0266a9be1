package integration

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contract-cosi/contract-cosi-driver/test/kubefake"
)

// The number of calls of each RPC at the Kubernetes API server, when the
// journal is in Secrets. A change that adds one has to change this table.
func TestAPICallsPerRPC(t *testing.T) {
	t.Parallel()
	kube := kubefake.Start(t)
	e, l := newEnvInSecrets(t, kube, onDemand), newLife()
	l.class = map[string]string{"contract": l.contract}
	must(t, newLifeUnder(l.contract).create(t, e.conn)) // signs the contract
	e.until(func() bool { code, _ := e.web("/readyz"); return code == 200 })
	kube.Calls()
	for _, step := range []struct {
		name string
		call func() error
		want map[string]int
	}{
		{"create", func() error { return l.create(t, e.conn) }, map[string]int{"create": 1}},
		{"create again", func() error { return l.create(t, e.conn) }, map[string]int{}},
		{"grant", func() error { return l.grant(t, e.conn) }, map[string]int{"create": 1, "update": 1}},
		{"grant again", func() error { return l.grant(t, e.conn) }, map[string]int{}},
		{"revoke", func() error { return l.revoke(t, e.conn) }, map[string]int{"delete": 1}},
		{"revoke again", func() error { return l.revoke(t, e.conn) }, map[string]int{}},
		{"delete", func() error { return l.delete(t, e.conn) }, map[string]int{"delete": 1}},
		{"delete again", func() error { return l.delete(t, e.conn) }, map[string]int{}},
	} {
		must(t, step.call())
		if calls := kube.Calls(); fmt.Sprint(calls) != fmt.Sprint(step.want) {
			t.Errorf("%s makes the API calls %v, want %v", step.name, calls, step.want)
		}
	}
	if e.metric("contract_cosi_journal_calls_total") == 0 {
		t.Error("no metric counts the API calls")
	}
}

// transient are the codes with which a sidecar comes back.
func transient(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Aborted, codes.NotFound, codes.FailedPrecondition, codes.DeadlineExceeded:
		return true
	}
	return false
}

// untilDone repeats a call as the sidecars do.
func untilDone(t testing.TB, call func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) { //nolint:forbidigo // as a sidecar pauses
		if err = call(); !transient(err) {
			break
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// Two sidecars with a driver each are live at once and make the same calls at
// the same time: one driver after the other has the right to change things, there
// is one contract, bucket and key, and both answer it.
func TestTwoLiveDrivers(t *testing.T) {
	t.Parallel()
	kube := kubefake.Start(t)
	drivers := []*env{newEnvInSecrets(t, kube, onDemand), newEnvInSecrets(t, kube, onDemand)}
	both := func(call func(i int, e *env) error) {
		t.Helper()
		var group sync.WaitGroup
		for i, e := range drivers {
			group.Go(func() {
				if err := call(i, e); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
	contract := newContract()
	id := "main." + contract + "." + contract + "-1"
	both(func(_ int, e *env) error {
		_, err := e.create(contract+"-1", map[string]string{"contract": contract})
		return err
	})
	var got [2]granted
	both(func(i int, e *env) (err error) {
		got[i], err = e.grant(id, "ba-1", nil)
		return err
	})
	if got[0].key != got[1].key || got[0].secret != got[1].secret {
		t.Fatal("the two drivers gave different keys")
	}
	if n := len(drivers[0].keys(contract)); n != 1 {
		t.Fatalf("%d keys at the service", n)
	}
	allowed(t, "put", put(t, got[0].client(), contract+"-1", "object"))
	allowed(t, "remove", remove(t, got[0].client(), contract+"-1", "object"))
	both(func(_ int, e *env) error { return e.revoke(id, got[0].account) })
	refused(t, "a revoked key", list(t, got[0].client(), contract+"-1", ""))
	both(func(_ int, e *env) error { return e.delete(id) })
	if n := len(kube.Secrets()); n != 2 { // the contract's, and the journal's identity
		t.Errorf("%d records are left", n)
	}
	if n := len(drivers[0].keys(contract)); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	if changes := drivers[0].metric("contract_cosi_lease_changes_total"); changes < 2 {
		t.Errorf("the Lease was handed over %v times", changes)
	}
}

// One driver grants while the other deletes the bucket. Whichever comes first, no
// key is left to a bucket that is gone.
func TestGrantedWhileDeletedElsewhere(t *testing.T) {
	t.Parallel()
	kube := kubefake.Start(t)
	granter, deleter := newEnvInSecrets(t, kube, onDemand), newEnvInSecrets(t, kube, onDemand)
	contract := newContract()
	for round := range 3 {
		bucket := fmt.Sprintf("%s-%d", contract, round)
		id := granter.mustCreate(bucket, map[string]string{"contract": contract})
		var group sync.WaitGroup
		group.Go(func() {
			switch _, err := granter.grant(id, fmt.Sprintf("ba-%d", round), nil); status.Code(err) {
			case codes.OK, codes.NotFound, codes.FailedPrecondition:
			default:
				t.Error(err)
			}
		})
		group.Go(func() {
			if err := deleter.delete(id); err != nil {
				t.Error(err)
			}
		})
		group.Wait()
	}
	if left := deleter.keys(contract); len(left) != 0 {
		t.Errorf("%d keys are left to buckets that are gone", len(left))
	}
	if n := len(kube.Secrets()); n != 2 {
		t.Errorf("%d records are left", n)
	}
}

// The API server is away for a while: calls that need no write are answered,
// others are refused with a reason and carried on later.
func TestAPIServerDown(t *testing.T) {
	t.Parallel()
	kube := kubefake.Start(t)
	e := newEnvInSecrets(t, kube, onDemand)
	contract := newContract()
	class := map[string]string{"contract": contract}
	id := e.mustCreate(contract+"-a", class)
	first := e.mustGrant(id, "ba-1", nil)
	kube.Down()
	if again, err := e.grant(id, "ba-1", nil); err != nil || again != first {
		t.Errorf("a repeated grant in an outage: %v", err)
	}
	_, err := e.grant(id, "ba-2", nil)
	expectCode(t, err, codes.Unavailable, "the Kubernetes API server cannot be reached")
	e.until(func() bool { code, _ := e.web("/readyz"); return code != 200 }) // it looks once a second
	kube.Inject(nil)
	second := e.mustGrant(id, "ba-2", nil)
	if again := e.mustGrant(id, "ba-2", nil); again != second {
		t.Error("a repeated grant gave something else")
	}
	if n := len(e.keys(contract)); n != 2 {
		t.Errorf("%d keys at the service", n)
	}
	// A driver that starts in an outage does not take it for an empty journal.
	e.stop()
	kube.Down()
	e.start()
	_, err = e.grant(id, "ba-1", nil)
	expectCode(t, err, codes.Unavailable, "the journal has not been read yet")
	kube.Inject(nil)
	untilDone(t, func() error {
		again, err := e.grant(id, "ba-1", nil)
		if err == nil && again != first {
			t.Error("after a restart the grant gave something else")
		}
		return err
	})
}
