package contracttest

import (
	"slices"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Key is a key of an access, as the operator of the service finds it.
type Key struct{ Contract, Slot, AccessKeyID, Bucket string }

// Operator does, with the service's own means, what a driver does not expect.
type Operator struct {
	// Stop are the ways to stop a key, by name; none if the service has none.
	Stop map[string]func(t *testing.T, k Key)
	// Widen lets a key, which may only read, write too.
	Widen func(t *testing.T, k Key)
	// Drop takes from a key all that it may do.
	Drop func(t *testing.T, k Key)
}

func testRestoreKey(e *env) {
	restorer, ok := e.bare.(contract.Restorer)
	if ok != (e.h.Operator != nil) {
		e.Fatalf("the provider restores keys: %v, and there is an operator to change them: %v", ok, e.h.Operator != nil)
	}
	if !ok {
		return
	}
	t := e.sign()
	b := t.bucket()
	e.must(e.put(t.client(t.key), b, "o"))
	req := t.request(b)
	req.Scope.Buckets[0].Mode = cosi.ReadOnly
	pair := e.issue(req)
	app := t.client(pair)
	restore := func(write bool) []string {
		e.Helper()
		differing, err := restorer.RestoreKey(e.Context(), t.Name, req.Slot, pair, req.Scope, write)
		e.must(err)
		return differing
	}
	asIssued := func(when string) {
		e.Helper()
		e.settles(when+": get", func() bool { return e.get(app, b, "o") == nil })
		e.settles(when+": put is refused", func() bool { return isRefused(e.put(app, b, "of-a-reader")) })
		if differing := restore(false); len(differing) > 0 {
			e.Errorf("%s: %q differ", when, differing)
		}
	}
	asIssued("issued")
	e.Lose(0)
	t.ids(req.Slot)
	most := e.Calls() + 1
	e.Lose(0)
	restore(true)
	if n := e.Calls(); n > most {
		e.Errorf("%d calls for a key that is as it was issued, want at most %d", n, most)
	}

	refused := func() bool { return isRefused(e.get(app, b, "o")) }
	wide := func() bool { return e.put(app, b, "of-a-reader") == nil }
	type change struct {
		do     func(*testing.T, Key)
		want   string
		effect func() bool
	}
	changes := map[string]change{
		"widened": {e.h.Operator.Widen, contract.KeyPolicy, wide},
		"dropped": {e.h.Operator.Drop, contract.KeyPolicy, refused},
	}
	for name, stop := range e.h.Operator.Stop {
		changes["stopped "+name] = change{stop, contract.KeyInactive, refused}
	}
	for name, c := range changes {
		c.do(e.T, Key{t.Name, req.Slot, pair.AccessKeyID, b})
		e.settles(name, c.effect)
		for _, write := range []bool{false, false, true} { // what is only read stays
			if differing := restore(write); !slices.Contains(differing, c.want) {
				e.Errorf("%s: %q differ, want %q among them", name, differing, c.want)
			}
			if !write && !c.effect() {
				e.Errorf("%s: it was put right though that was not asked for", name)
			}
		}
		asIssued(name + " and restored")
		t.holds(req.Slot, pair.AccessKeyID)
	}

	for what, k := range map[string]Key{
		"a key that is not there":  {t.Name, req.Slot, "AKNOTTHERE", b},
		"a slot that is not there": {t.Name, label("none"), pair.AccessKeyID, b},
		"a contract that is none":  {label("none"), req.Slot, pair.AccessKeyID, b},
	} {
		_, err := restorer.RestoreKey(e.Context(), k.Contract, k.Slot, secret.KeyPair{AccessKeyID: k.AccessKeyID, SecretAccessKey: pair.SecretAccessKey}, req.Scope, true)
		e.kind(what, err, fault.NotFound)
	}
	if !e.Provider.Capabilities().Suspend {
		return
	}
	_, err := e.ensure(contract.Spec{Name: t.Name, Owner: Owner, Suspend: true})
	e.must(err)
	if differing := restore(true); len(differing) > 0 {
		e.Errorf("%q differ under a contract that is suspended", differing)
	}
	e.dead("get under a contract that is suspended", func() error { return e.get(app, b, "o") })
	_, err = e.ensure(contract.Spec{Name: t.Name, Owner: Owner})
	e.must(err)
	asIssued("resumed")
}

// settles waits until the service shows that something is so.
func (e *env) settles(what string, so func() bool) {
	e.Helper()
	deadline := time.Now().Add(e.Provider.Capabilities().Settles)
	for !so() {
		if time.Now().After(deadline) {
			e.Errorf("%s: that is not so within %s", what, e.Provider.Capabilities().Settles)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
