package provisioner

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/memory"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

var (
	seeds = flag.Int("seeds", 10, "how many orders of steps are tried for each pair of calls")
	seed  = flag.Uint64("seed", 0, "try this order only")
)

// call is one thing that someone asks of a driver, with what is true when it has
// been asked until it was done.
type action struct {
	do func(w *world, p *process, key *secret.KeyPair) error
	// takes names what is gone afterwards.
	takesKey, takesBucket bool
	// repeats: a sidecar repeats it until it is done.
	repeats bool
}

var emptied = map[string]string{"onDelete": "empty"}

// actions are on one bucket, with one access that was granted before.
var actions = map[string]action{
	"create": {do: func(w *world, p *process, _ *secret.KeyPair) error { return w.create(p, "data", emptied) }, repeats: true},
	"grant": {do: func(w *world, p *process, key *secret.KeyPair) (err error) {
		*key, err = w.grant(p, "ba-1", "data")
		return err
	}, repeats: true},
	"grant another": {do: func(w *world, p *process, _ *secret.KeyPair) error {
		_, err := w.grant(p, "ba-2", "data")
		return err
	}},
	"revoke": {do: func(w *world, p *process, _ *secret.KeyPair) error { return w.revoke(p, "ba-1") }, takesKey: true, repeats: true},
	"cut":    {do: func(w *world, p *process, _ *secret.KeyPair) error { return fault.IgnoreNotFound(w.cut(p, "ba-1")) }, takesKey: true, repeats: true},
	"delete": {do: func(w *world, p *process, _ *secret.KeyPair) error { return w.delete(p, "data") }, takesKey: true, takesBucket: true, repeats: true},
	"adopt": {do: func(w *world, p *process, _ *secret.KeyPair) error {
		_, err := p.AdoptBucket(w.ctx(), bucketID("data"), nil)
		return err
	}},
	"inspect": {do: func(w *world, p *process, _ *secret.KeyPair) error { return w.inspect(p) }},
	"rotate":  {do: func(w *world, p *process, _ *secret.KeyPair) error { return w.rotate(p, "ba-1", time.Hour) }},
	"converge": {do: func(w *world, p *process, _ *secret.KeyPair) error {
		p.Converge(w.ctx(), map[cosi.ContractID]config.Terms{{Backend: backend, Contract: team}: w.terms[team]}, time.Minute)
		return nil
	}},
}

// In every order of the steps of two calls, by one driver or by two, nothing is
// left behind, what was answered holds, and what was taken away stays away.
func TestAnyTwoCalls(t *testing.T) {
	t.Parallel()
	for _, secrets := range []memory.Secrets{memory.Chosen, memory.Repeated, memory.Once} {
		for a := range actions {
			for b := range actions {
				if a > b {
					continue
				}
				for _, drivers := range []int{1, 2} {
					t.Run(fmt.Sprintf("%s/%s+%s/%d", secrets, a, b, drivers), func(t *testing.T) {
						t.Parallel()
						for n := range *seeds {
							s := uint64(n) + 1
							if *seed != 0 {
								s = *seed
							}
							synctest.Test(t, func(t *testing.T) { twoCalls(t, secrets, a, b, drivers, s) })
							if t.Failed() {
								t.Fatalf("with -seed %d", s)
							}
						}
					})
				}
			}
		}
	}
}

func twoCalls(t *testing.T, secrets memory.Secrets, a, b string, drivers int, seed uint64) {
	w := newWorld(t, secrets, seed%2 == 1, seed)
	first := w.start()
	second := first
	granted := seed%3 != 0 // else both are the first of their kind
	w.must("create", func() error { return w.create(first, "data", emptied) })
	var before secret.KeyPair
	if granted {
		w.must("grant", func() (err error) { before, err = w.grant(first, "ba-1", "data"); return err })
	}
	if drivers == 2 {
		second = w.start()
	}
	var keys [2]secret.KeyPair
	errs := w.together(
		func() error { return actions[a].do(w, first, &keys[0]) },
		func() error { return actions[b].do(w, second, &keys[1]) },
	)
	w.trace = append(w.trace, fmt.Sprintf("%s: %v", a, errs[0]), fmt.Sprintf("%s: %v", b, errs[1]))
	takesKey := actions[a].takesKey || actions[b].takesKey
	takesBucket := actions[a].takesBucket || actions[b].takesBucket

	// Whatever was answered and not taken away works, before anything is repeated.
	for i, name := range []string{a, b} {
		if name == "grant" && errs[i] == nil && !takesKey && !w.works(keys[i], "data") {
			w.fail("%s answered a key that does not work", name)
		}
	}
	if granted && !takesKey && a != "rotate" && b != "rotate" {
		if !w.works(before, "data") {
			w.fail("the key from before does not work")
		}
		for i, key := range keys {
			if key != (secret.KeyPair{}) && key != before {
				w.fail("call %d answered another key than the one before", i)
			}
		}
	}
	// The sidecars repeat what was not done; what is taken away comes last.
	for _, last := range []bool{false, true} {
		for _, name := range []string{a, b} {
			one := actions[name]
			if taking := one.takesKey || one.takesBucket; one.repeats && taking == last && (last || !takesBucket && !takesKey) {
				var key secret.KeyPair
				w.must(name, func() error { return one.do(w, second, &key) })
				if name == "grant" && !w.works(key, "data") {
					w.fail("the repeated grant answers a key that does not work")
				}
			}
		}
	}
	if takesBucket {
		w.must("delete", func() error { return w.delete(first, "data") })
	} else if takesKey {
		w.must("revoke", func() error { return w.revoke(first, "ba-1") })
	}
	for i, key := range append(keys[:], before) {
		if takesKey && key != (secret.KeyPair{}) && w.works(key, "data") {
			w.fail("key %d still works", i)
		}
	}
	w.consistent()
	w.end(first)
}

// end takes all away, and looks for what is left.
func (w *world) end(p *process) {
	w.Helper()
	for _, name := range []string{"ba-1", "ba-2"} {
		w.must("revoke", func() error { return w.revoke(p, name) })
	}
	w.must("delete", func() error { return w.delete(p, "data") })
	w.drain()
	if len(w.service.Buckets()) > 0 {
		w.fail("buckets are left: %v", w.service.Buckets())
	}
	for _, k := range w.service.Keys() {
		if k.Slot != cosi.ContractSlot {
			w.fail("a key is left: %+v", k)
		}
	}
	w.consistent()
}

// A fault of each kind at each step of each call: the repeats end in one key that
// works, and in nothing when all is taken away.
func TestAFaultAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, secrets := range []memory.Secrets{memory.Chosen, memory.Repeated, memory.Once} {
		for _, f := range []fate{lost, refused, unanswered, killed, killedThen, late} {
			for _, shared := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%v", secrets, f, shared), func(t *testing.T) {
					t.Parallel()
					for at := 0; ; at++ {
						steps := 0
						synctest.Test(t, func(t *testing.T) { steps = lifeWithFault(t, secrets, shared, f, at) })
						if t.Failed() {
							t.Fatalf("at step %d", at)
						}
						if at >= steps {
							return
						}
					}
				})
			}
		}
	}
}

// lifeWithFault goes through the life of a bucket and its access, with a fault at
// one step, and returns how many steps there were.
func lifeWithFault(t *testing.T, secrets memory.Secrets, shared bool, f fate, at int) int {
	w := newWorld(t, secrets, shared, 1)
	w.terms[team] = config.Terms{Listed: team, Backend: backend, OnLastBucket: config.Cancel}
	w.sched.follow(func(step int, _ string) fate {
		if step == at {
			return f
		}
		return carried
	})
	p := w.start()
	again := func(call func() error) func() error {
		return func() error {
			err := call()
			if errors.Is(err, errKilled) || p.killed() {
				p.Wait()
				p = w.start() // a restarted driver
				w.sched.catchUp()
			}
			return err
		}
	}
	var key, second secret.KeyPair
	w.must("create", again(func() error {
		return w.create(p, "data", map[string]string{"versioning": "Enabled", "onDelete": "empty", "maxBytes": "2Mi"})
	}))
	w.must("grant", again(func() (err error) { key, err = w.grant(p, "ba-1", "data"); return err }))
	if !w.works(key, "data") {
		w.fail("the key does not work")
	}
	w.must("inspect", again(func() error { return w.inspect(p) }))
	if !w.works(key, "data") {
		w.fail("the key does not work after an inspection")
	}
	w.must("grant again", again(func() (err error) { second, err = w.grant(p, "ba-1", "data"); return err }))
	if second != key {
		w.fail("a repeated grant answers another key")
	}
	w.must("rotate", again(func() error {
		err := w.rotate(p, "ba-1", 0)
		id, _ := cosi.ParseAccountID(accessID("ba-1"))
		if record, _ := w.records().Account(t.Context(), id); record != nil && record.Rotation != nil && record.Rotation.Phase == journal.Done {
			return nil // also if the answer was lost
		}
		return err
	}))
	if !w.works(key, "data") {
		w.fail("the old key does not work before the new one is delivered")
	}
	w.must("grant after the rotation", again(func() (err error) { second, err = w.grant(p, "ba-1", "data"); return err }))
	if second == key || !w.works(second, "data") {
		w.fail("the rotated key is not answered, or does not work")
	}
	// Should its delivery not have been recorded, the next grant does that.
	w.must("grant again", again(func() error { _, err := w.grant(p, "ba-1", "data"); return err }))
	w.must("end the rotation", again(func() error { return w.inspect(p) }))
	w.must("end the rotation", again(func() error { return w.inspect(p) }))
	if w.works(key, "data") {
		w.fail("the old key works after the end of its rotation")
	}
	w.must("second access", again(func() (err error) { key, err = w.grant(p, "ba-2", "data"); return err }))
	w.must("cut", again(func() error { return w.cut(p, "ba-2") }))
	w.must("inspect", again(func() error { return w.inspect(p) }))
	if w.works(key, "data") || !w.works(second, "data") {
		w.fail("the key that was cut works, or another does not")
	}
	w.must("refuse a grant after the cut", again(func() error {
		if _, err := w.grant(p, "ba-2", "data"); !fault.Is(err, fault.FailedPrecondition) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	}))
	w.must("lift", again(func() error { return w.lift(p, "ba-2") }))
	var third secret.KeyPair
	w.must("grant after the cut", again(func() (err error) { third, err = w.grant(p, "ba-2", "data"); return err }))
	if third == key || !w.works(third, "data") || w.works(key, "data") {
		w.fail("after the cut: the same key, or one that does not work, or the old one does")
	}
	w.must("revoke", again(func() error { return w.revoke(p, "ba-1") }))
	if w.works(second, "data") {
		w.fail("the key works after its revocation")
	}
	w.must("inspect", again(func() error { return w.inspect(p) }))
	w.must("delete", again(func() error { return w.delete(p, "data") }))
	p.Wait()
	w.sched.catchUp()
	// Whatever a call could not do is done in time.
	w.must("inspect", again(func() error { return w.inspect(p) }))
	w.must("delete", again(func() error { return w.delete(p, "data") }))
	w.must("inspect", again(func() error { return w.inspect(p) }))
	if n := w.store.keys(); len(n) > 0 || len(w.service.Keys()) > 0 || len(w.service.Buckets()) > 0 || len(w.service.Contracts()) > 0 {
		w.fail("left: records %v, keys %v, buckets %v, contracts %v", n, w.service.Keys(), w.service.Buckets(), w.service.Contracts())
	}
	return w.sched.steps
}
