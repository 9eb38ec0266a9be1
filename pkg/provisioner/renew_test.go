package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
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

// applications are the Secrets of a world, by access. A process reads and writes them
// in steps.
type applications struct {
	mu   sync.Mutex
	keys map[string]secret.KeyPair
}

func (a *applications) get(name string) secret.KeyPair {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keys[name]
}

// set writes a Secret; the zero key deletes it.
func (a *applications) set(name string, key secret.KeyPair) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.keys[name] = key; key == (secret.KeyPair{}) {
		delete(a.keys, name)
	}
}

func (a *applications) all() map[string]secret.KeyPair {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.keys)
}

type appLine struct {
	*applications
	p *process
}

func (a appLine) Deliver(ctx context.Context, d Delivery) (written bool, err error) {
	var names []string
	if !d.First {
		names = append(names, d.Access.Account)
	}
	for _, f := range d.Formats {
		names = append(names, d.Access.Account+"-"+f)
	}
	d.Repair = d.Repair || d.First
	for _, name := range names {
		wrote, one := a.put(ctx, name, d)
		written = written || wrote
		if err == nil || fault.Passing(one) {
			err = one
		}
	}
	return written, err
}

func (a appLine) put(ctx context.Context, name string, d Delivery) (written bool, err error) {
	var have secret.KeyPair
	err = a.p.step(ctx, "read Secret", func() error {
		have = a.applications.get(name)
		return nil
	})
	switch {
	case err != nil:
		return false, err
	case have == d.Key:
		return false, nil
	case have == (secret.KeyPair{}) && !d.Repair:
		return false, fault.New(fault.NotFound, "there is no Secret")
	case !d.Repair && (d.Replaces == "" || have.AccessKeyID != d.Replaces):
		return false, fault.New(fault.Mismatch, "the Secret holds another key")
	}
	err = a.p.step(ctx, "write Secret", func() error {
		if a.applications.get(name) != have {
			return fault.New(fault.Unavailable, "the Secret has changed")
		}
		a.applications.set(name, d.Key)
		return nil
	})
	return err == nil, err
}

func (a appLine) Withdraw(ctx context.Context, of cosi.AccountID, formats []string) error {
	return a.p.step(ctx, "delete Secrets", func() error {
		for _, f := range formats {
			a.applications.set(of.Account+"-"+f, secret.KeyPair{})
		}
		return nil
	})
}

func (appLine) Soon(cosi.AccountID) {}

// renewing is a world whose accesses are renewed.
type renewing struct {
	*world
	apps   *applications
	line   func(appLine) Deliverer // what a process has in its place
	broken error                   // the first rule that did not hold
}

const (
	every  = 10 * time.Hour
	grace1 = 2 * time.Hour
	turns1 = time.Hour // between two looks
)

func newRenewing(t testing.TB, secrets memory.Secrets, seed uint64) *renewing {
	r := &renewing{world: newWorld(t, secrets, false, seed), apps: &applications{keys: map[string]secret.KeyPair{}}, line: func(a appLine) Deliverer { return a }}
	terms := config.Terms{Listed: team, Backend: backend, OnLastBucket: config.Cancel}
	terms.Defaults.BucketAccessClass = map[string]string{"keyRotation": "10h", "keyGrace": "2h", "secretFormat": "env"}
	r.terms[team] = terms
	return r
}

func (r *renewing) start() *process {
	p := r.world.start()
	p.deliverer = r.line(appLine{r.apps, p})
	return p
}

// grant is what a sidecar of v1alpha1 does: it writes the Secret if there is none.
func (r *renewing) grant(p *process, name string) error {
	id := GrantRequest{Name: name, Auth: cosi.Key, Buckets: []BucketRequest{{ID: bucketID("data")}}}
	a, err := p.GrantAccess(r.ctx(), id)
	if err == nil && r.apps.get(name) == (secret.KeyPair{}) {
		r.apps.set(name, a.Key)
	}
	return err
}

// check holds the rules that no moment may break.
func (r *renewing) check() {
	slots := map[string]int{}
	for _, k := range r.service.Keys() {
		slots[k.Slot]++
	}
	for name, key := range r.apps.all() {
		if !r.works(key, "data") && r.broken == nil {
			r.broken = fmt.Errorf("the key in the Secret of %s is refused", name)
		}
		if name = strings.TrimSuffix(name, "-env"); slots[name] > 2 && r.broken == nil {
			r.broken = fmt.Errorf("%s has %d keys", name, slots[name])
		}
	}
}

// tend does what is due.
func (r *renewing) tend(p *process) (err error) {
	for _, name := range []string{"ba-1", "ba-2"} {
		id, _ := cosi.ParseAccountID(accessID(name))
		err = errors.Join(err, p.Tend(r.ctx(), accountKey(id)))
	}
	return err
}

// live lets a process renew for a time, with a look at each turn and a fault at one step, and returns
// how many steps there were.
func (r *renewing) live(f fate, at int, length time.Duration, between func(hours int)) int {
	p := r.granted()
	first := map[string]secret.KeyPair{"ba-1": r.apps.get("ba-1"), "ba-2": r.apps.get("ba-2")}
	r.sched.follow(func(step int, _ string) fate {
		r.check()
		if step == at {
			return f
		}
		return carried
	})
	born := map[string]time.Time{}
	for begin := time.Now(); time.Since(begin) < length; time.Sleep(turns1) {
		if between != nil {
			between(int(time.Since(begin) / time.Hour))
		}
		err := r.tend(p)
		if errors.Is(err, errKilled) || p.killed() {
			p.Wait()
			p = r.start()
			r.sched.catchUp()
		}
		r.check()
		for _, k := range r.service.Keys() {
			if _, known := born[k.AccessKeyID]; !known {
				born[k.AccessKeyID] = time.Now()
			}
			// A fault costs a turn or two, and a restarted process watches the grace again.
			if most := every + grace1 + 3*turns1; k.Slot != cosi.ContractSlot && time.Since(born[k.AccessKeyID]) > most && r.broken == nil {
				r.broken = fmt.Errorf("a key of %s is older than %s", k.Slot, most)
			}
		}
	}
	for name, key := range first {
		if r.apps.get(name) == key && r.broken == nil {
			r.broken = fmt.Errorf("the key of %s is never replaced", name)
		}
		if r.apps.get(name+"-env") != r.apps.get(name) && r.broken == nil {
			r.broken = fmt.Errorf("the environment of %s has another key than its Secret", name)
		}
		if r.works(key, "data") && r.broken == nil {
			r.broken = fmt.Errorf("the first key of %s is never revoked", name)
		}
	}
	r.sched.follow(nil)
	return r.sched.steps
}

// A fault at each step of two renewals: no moment at which the Secret's key is
// refused, never three keys, and none that lives too long.
func TestRenewalWithAFaultAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, secrets := range []memory.Secrets{memory.Chosen, memory.Repeated, memory.Once} {
		for _, f := range []fate{lost, refused, unanswered, killed, killedThen, late} {
			t.Run(fmt.Sprintf("%s/%s", secrets, f), func(t *testing.T) {
				t.Parallel()
				for at := 0; ; at++ {
					steps := 0
					synctest.Test(t, func(t *testing.T) {
						r := newRenewing(t, secrets, 1)
						steps = r.live(f, at, 17*time.Hour, nil)
						r.consistent()
						if r.broken != nil {
							r.fail("%v", r.broken)
						}
					})
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

// liar does its work as a fault in the driver would have it done.
type liar struct {
	appLine
	do func(appLine, context.Context, Delivery) (bool, error)
}

func (l liar) Deliver(ctx context.Context, d Delivery) (bool, error) {
	return l.do(l.appLine, ctx, d)
}

// Faults that are planted break the rules that the test above holds.
func TestRenewalRulesCatch(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(appLine, context.Context, Delivery) (bool, error){
		"an update that is lost": func(a appLine, _ context.Context, d Delivery) (bool, error) {
			return a.applications.get(d.Access.Account) != d.Key, nil
		},
		"a revocation before the update": func(appLine, context.Context, Delivery) (bool, error) { return false, nil },
		"an update with another key": func(a appLine, ctx context.Context, d Delivery) (bool, error) {
			d.Key.AccessKeyID += "x"
			return a.Deliver(ctx, d)
		},
		"an update of whatever is there, with another access's key": func(a appLine, ctx context.Context, d Delivery) (bool, error) {
			d.Repair, d.Key = true, a.applications.get("ba-2")
			return a.Deliver(ctx, d)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRenewing(t, memory.Chosen, 1)
			r.line = func(a appLine) Deliverer { return liar{a, do} }
			r.live(carried, -1, 17*time.Hour, nil)
			if r.broken == nil {
				t.Errorf("%s breaks no rule", name)
			}
		})
	}
}

// jump sets the time of day forward, by what the records say.
func (r *renewing) jump(by time.Duration) {
	for _, name := range []string{"ba-1", "ba-2"} {
		id, _ := cosi.ParseAccountID(accessID(name))
		j := journal.New(&memoryLine{r.store, &process{w: &world{sched: &scheduler{}}}})
		record, err := j.Account(r.Context(), id)
		if err != nil {
			continue
		}
		for _, at := range []*time.Time{&record.CreatedAt, &record.IssuedAt, &record.Since} {
			if !at.IsZero() {
				*at = at.Add(-by)
			}
		}
		if rotation := record.Rotation; rotation != nil && !rotation.HandedOut.IsZero() {
			rotation.HandedOut = rotation.HandedOut.Add(-by)
		}
		if err := j.SaveAccount(r.Context(), record); err != nil {
			r.Fatal(err)
		}
	}
}

// A clock that jumps an hour either way, at any time, takes no key from an
// application.
func TestRenewalWithAClockThatJumps(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		for at := range 15 {
			synctest.Test(t, func(t *testing.T) {
				r := newRenewing(t, memory.Chosen, 1)
				jumped := false
				r.live(carried, -1, 18*time.Hour, func(hours int) {
					if hours == at && !jumped {
						jumped = true
						r.jump(by)
					}
				})
				if r.broken != nil {
					r.fail("%s at hour %d: %v", by, at, r.broken)
				}
			})
		}
	}
}

// A jump over the whole of a grace leaves the kubelet the time that it needs.
func TestGraceIsWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRenewing(t, memory.Chosen, 1)
		r.terms[team].Defaults.BucketAccessClass["keyGrace"] = "1h"
		p := r.granted()
		old := r.apps.get("ba-1")
		time.Sleep(every)
		r.must("renew", func() error { return r.tend(p) })
		r.jump(2 * time.Hour)
		_ = r.tend(p)
		time.Sleep(settle - time.Second)
		_ = r.tend(p)
		if !r.works(old, "data") {
			r.fail("the old key is revoked before a pod has the new one")
		}
		time.Sleep(time.Second)
		r.must("tend", func() error { return r.tend(p) })
		if r.works(old, "data") || !r.works(r.apps.get("ba-1"), "data") {
			r.fail("the old key is not revoked, or the new one does not work")
		}
	})
}

// A process that starts in the course of a grace watches it, and is asked again until it has:
// one that is restarted more often than it looks would never revoke the old key.
func TestGraceAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRenewing(t, memory.Chosen, 1)
		p := r.granted()
		old := r.apps.get("ba-1")
		time.Sleep(every)
		r.must("renew", func() error { return r.tend(p) })
		time.Sleep(grace1)
		p.kill()
		p = r.start()
		for _, wait := range []time.Duration{0, settle - time.Second} {
			time.Sleep(wait)
			if err := r.tend(p); !fault.Is(err, fault.Pending) || !r.works(old, "data") {
				r.fail("the old key is revoked at once, or its revocation waits for the next turn: %v", err)
			}
		}
		time.Sleep(time.Second)
		r.must("tend", func() error { return r.tend(p) })
		if r.works(old, "data") {
			r.fail("the old key is not revoked")
		}
	})
}

// granted starts a driver with two accesses.
func (r *renewing) granted() *process {
	p := r.start()
	r.must("create", func() error { return r.create(p, "data", map[string]string{"onDelete": "empty"}) })
	r.must("grant", func() error { return r.grant(p, "ba-1") })
	r.must("grant", func() error { return r.grant(p, "ba-2") })
	return p
}

// As long as a Secret cannot take a key there is no other, and its people are told why.
// What was edited or deleted is drift, and is put right if that is asked for.
func TestSecretThatWasChanged(t *testing.T) {
	t.Parallel()
	edited := secret.KeyPair{AccessKeyID: "by-hand", SecretAccessKey: secret.New("by-hand")}
	for name, now := range map[string]secret.KeyPair{"edited": edited, "deleted": {}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRenewing(t, memory.Chosen, 1)
			p := r.granted()
			var told []error
			p.told = func(_ string, _ cosi.AccountID, _ cosi.BucketID, why error) { told = append(told, why) }
			key := r.apps.get("ba-1")
			r.apps.set("ba-1", now)
			id, _ := cosi.ParseAccountID(accessID("ba-1"))

			time.Sleep(every)
			if _ = r.tend(p); len(told) != 1 {
				r.fail("%s: told %v", name, told)
			}
			record, err := r.records().Account(t.Context(), id)
			if err != nil || record.Rotation != nil || r.apps.get("ba-1") != now || !r.works(key, "data") || len(r.service.Keys()) != 4 {
				r.fail("%s: record %+v, %v, Secret %v, keys %v", name, record, err, r.apps.get("ba-1"), r.service.Keys())
			}
			found, err := p.InspectAccount(r.ctx(), id, false)
			if err != nil || len(found) != 1 || found[0] != (Finding{What: "secret"}) || r.apps.get("ba-1") != now {
				r.fail("%s: found %+v, %v", name, found, err)
			}
			found, err = p.InspectAccount(r.ctx(), id, true)
			if err != nil || len(found) != 1 || found[0] != (Finding{What: "secret", Repaired: true}) || r.apps.get("ba-1") != key {
				r.fail("%s: found %+v, %v", name, found, err)
			}
			r.must("renew", func() error { return r.tend(p) })
			if r.apps.get("ba-1") == key || !r.works(r.apps.get("ba-1"), "data") {
				r.fail("%s: it is not renewed after the repair", name)
			}
			// An edit while the old key is in its grace does not keep that alive.
			r.apps.set("ba-1", now)
			time.Sleep(2*grace1 + 2*settle)
			_ = r.tend(p)
			time.Sleep(2 * settle)
			_ = r.tend(p)
			if r.works(key, "data") {
				r.fail("%s: the old key is not revoked", name)
			}
		})
	}
}

// A Secret that is edited or deleted after the next key was issued and before that is
// delivered is put right too; else the rotation would never end.
func TestSecretThatWasChangedBeforeDelivery(t *testing.T) {
	t.Parallel()
	edited := secret.KeyPair{AccessKeyID: "by-hand", SecretAccessKey: secret.New("by-hand")}
	for name, now := range map[string]secret.KeyPair{"edited": edited, "deleted": {}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRenewing(t, memory.Chosen, 1)
			refusing := true
			r.line = func(a appLine) Deliverer { return unwritable{a, &refusing, fault.Unavailable} }
			p := r.granted()
			old := r.apps.get("ba-1")
			time.Sleep(every)
			_ = r.tend(p)
			refusing = false
			r.apps.set("ba-1", now)
			_ = r.tend(p)
			id, _ := cosi.ParseAccountID(accessID("ba-1"))
			found, err := p.InspectAccount(r.ctx(), id, true)
			if err != nil || len(found) != 1 || found[0] != (Finding{What: "secret", Repaired: true}) || !r.works(r.apps.get("ba-1"), "data") || r.apps.get("ba-1") == old {
				r.fail("%s: found %+v, %v", name, found, err)
			}
			r.must("deliver", func() error { return r.tend(p) })
			time.Sleep(grace1 + settle)
			r.must("end", func() error { return r.tend(p) })
			if r.works(old, "data") {
				r.fail("%s: the old key is not revoked", name)
			}
		})
	}
}

// gone is a line on which the BucketAccess is being deleted.
type gone struct{ appLine }

func (gone) Deliver(context.Context, Delivery) (bool, error) {
	return false, fault.New(fault.FailedPrecondition, "BucketAccess blue/web is being deleted")
}

// A service that refuses the next key is told of, whatever its reason: a contract that is
// suspended is for its people to resume. Of an access on its way out nothing is told.
func TestRefusedKeyIsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line func(appLine) Deliverer
		want string
	}{
		{func(a appLine) Deliverer { return a }, "[KeyNotRenewed]"},
		{func(a appLine) Deliverer { return gone{a} }, "[]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRenewing(t, memory.Chosen, 1)
			p := r.granted()
			r.formats(p)
			var told []string
			p.deliverer, p.told = c.line(appLine{r.apps, p}), func(reason string, _ cosi.AccountID, _ cosi.BucketID, _ error) { told = append(told, reason) }
			r.service.Suspend(team, true)
			time.Sleep(every)
			id, _ := cosi.ParseAccountID(accessID("ba-1"))
			if err := p.Tend(r.ctx(), accountKey(id)); !fault.Is(err, fault.FailedPrecondition) || fmt.Sprint(told) != c.want {
				r.fail("told %v, want %s: %v", told, c.want, err)
			}
		})
	}
}

// hurried is a line on which BucketAccesses were listed a moment ago.
type hurried struct{ appLine }

func (hurried) Deliver(context.Context, Delivery) (bool, error) {
	return false, fault.New(fault.RateLimited, "listed a moment ago")
}

// An access whose BucketAccess is not known yet, or is in a namespace that the driver
// does not see, is no failed look at its key.
func TestAccessThatIsNotSeenIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRenewing(t, memory.Chosen, 1)
		r.line = func(appLine) Deliverer { return hurried{} }
		p := r.granted()
		id, _ := cosi.ParseAccountID(accessID("ba-1"))
		if found, err := p.InspectAccount(r.ctx(), id, true); err != nil || len(found) != 0 {
			r.fail("found %+v, %v", found, err)
		}
	})
}

// unwritable is a line on which Secrets can be read only, for a time.
type unwritable struct {
	appLine
	refusing *bool
	kind     fault.Kind
}

func (u unwritable) Deliver(ctx context.Context, d Delivery) (bool, error) {
	if *u.refusing && d.Replaces != "" && d.Replaces != d.Key.AccessKeyID {
		return false, fault.New(u.kind, "the API server is away, or refuses it")
	}
	return u.appLine.Deliver(ctx, d)
}

// A Secret that a backup or a late sidecar gives the old key again, in its grace, gets
// the new one, and the grace begins again.
func TestOldKeyPutBackIntoTheSecret(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRenewing(t, memory.Chosen, 1)
		p := r.granted()
		old := r.apps.get("ba-1")
		time.Sleep(every)
		r.must("renew", func() error { return r.tend(p) })
		next := r.apps.get("ba-1")
		r.apps.set("ba-1", old)
		time.Sleep(grace1)
		r.must("tend", func() error { return r.tend(p) })
		if r.apps.get("ba-1") != next || !r.works(old, "data") {
			r.fail("the Secret has not got the new key, or the old one is revoked at once")
		}
		time.Sleep(grace1)
		r.must("tend", func() error { return r.tend(p) })
		if r.works(old, "data") || !r.works(next, "data") {
			r.fail("the old key works, or the new one does not")
		}
	})
}

// Who says when keys are replaced: the class, and where it says nothing the contract's
// defaults as they are now. Each key has a life of its own.
func TestScheduleOfRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRenewing(t, memory.Chosen, 1)
		defaults := r.terms[team].Defaults.BucketAccessClass
		clear(defaults)
		p := r.granted()
		of := func(name string, class map[string]string) error {
			_, err := p.GrantAccess(r.ctx(), GrantRequest{Name: name, Auth: cosi.Key, Parameters: class, Buckets: []BucketRequest{{ID: bucketID("data")}}})
			return err
		}
		record := func(name string) *journal.Account {
			id, _ := cosi.ParseAccountID(accessID(name))
			r.must("tend", func() error { return p.Tend(r.ctx(), accountKey(id)) })
			record, err := r.records().Account(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return record
		}
		if e := record("ba-1").Effective; e.KeyRotation != 0 {
			t.Errorf("without a word: %+v", e)
		}
		defaults["keyRotation"] = "10h"
		if e := record("ba-1").Effective; e.KeyRotation != 10*time.Hour || e.KeyGrace != 5*time.Hour {
			t.Errorf("with new defaults: %+v", e)
		}
		clear(defaults)
		if e := record("ba-1").Effective; e.KeyRotation != 0 || e.KeyGrace != 0 {
			t.Errorf("without defaults again: %+v", e)
		}
		if err := of("ba-3", map[string]string{"keyRotation": "20h", "keyLife": "30h"}); !fault.Is(err, fault.InvalidArgument) {
			t.Errorf("with a life that ends in the grace: %v", err)
		}
		r.must("grant", func() error {
			return of("ba-3", map[string]string{"keyRotation": "20h", "keyGrace": "2h"})
		})
		defaults["keyRotation"] = "10h"
		first := record("ba-3")
		if first.Effective.KeyRotation != 20*time.Hour {
			t.Errorf("the class's own word: %+v", first.Effective)
		}
		r.apps.set("ba-3", first.Issued)
		time.Sleep(20 * time.Hour)
		next := record("ba-3")
		if next.Issued == first.Issued || !next.Since.Equal(first.CreatedAt.Add(20*time.Hour)) {
			t.Errorf("the life of the next key begins at %s, that of the first at %s", next.Since, first.CreatedAt)
		}
		next.Effective.KeyLife = 30 * time.Hour
		if end := next.ExpiresAt(); !end.Equal(next.Since.Add(30 * time.Hour).Truncate(time.Second)) {
			t.Errorf("the next key ends at %s", end)
		}
		p.deliverer = nil
		if err := of("ba-4", nil); !fault.Is(err, fault.FailedPrecondition) {
			t.Errorf("without the right to write Secrets: %v", err)
		}
	})
}

// Keys that have to go are replaced with a grace of minutes, also in the middle of a
// rotation with a longer one; what cannot be delivered is refused and stays as it is.
func TestReplaceKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRenewing(t, memory.Chosen, 1)
		p := r.granted()
		id, _ := cosi.ParseAccountID(accessID("ba-1"))
		first := r.apps.get("ba-1")
		r.must("rotate", func() error { return r.rotate(p, "ba-1", 24*time.Hour) })
		leaked := r.apps.get("ba-1")
		if leaked == first {
			r.fail("a rotation by hand is not delivered")
		}
		time.Sleep(time.Second)
		before := time.Now()
		looks := 0
		for {
			more, err := p.ReplaceKey(r.ctx(), id, before, 2*time.Minute)
			if err != nil {
				r.fail("replace: %v", err)
			}
			if !r.works(r.apps.get("ba-1"), "data") {
				r.fail("the Secret's key is refused")
			}
			if looks++; !more || looks > 100 {
				break
			}
			time.Sleep(10 * time.Second)
		}
		if r.works(first, "data") || r.works(leaked, "data") || looks < 24 {
			r.fail("after %d looks the old keys still work, or the grace was none", looks)
		}
		if more, err := p.ReplaceKey(r.ctx(), id, before, 2*time.Minute); more || err != nil {
			r.fail("resumed when all is done: %v, %v", more, err)
		}
		other, _ := cosi.ParseAccountID(accessID("ba-2"))
		key := r.apps.get("ba-2")
		r.apps.set("ba-2", secret.KeyPair{AccessKeyID: "by-hand"})
		if _, err := p.ReplaceKey(r.ctx(), other, time.Now(), time.Minute); !fault.Is(err, fault.Mismatch) || !r.works(key, "data") {
			r.fail("with an edited Secret: %v", err)
		}
	})
}

// hearing is a line that notes for whom something is to be done soon, and on which
// Secrets cannot be deleted.
type hearing struct {
	appLine
	soon *[]string
}

func (h hearing) Soon(id cosi.AccountID) { *h.soon = append(*h.soon, id.Account) }

func (h hearing) Withdraw(ctx context.Context, _ cosi.AccountID, _ []string) error {
	<-ctx.Done() // the API server, or the command deliver, takes the request and never answers
	return ctx.Err()
}

// deaf is such a line on which no Secret can be written for now.
type deaf struct{ hearing }

func (deaf) Deliver(context.Context, Delivery) (bool, error) {
	return false, fault.New(fault.Unavailable, "the API server is away")
}

// A key that is rotated by hand while the API server is away is delivered when it is back,
// and does not wait for its turn.
func TestRotatedInAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRenewing(t, memory.Chosen, 1)
		var soon []string
		r.line = func(a appLine) Deliverer { return deaf{hearing{a, &soon}} }
		p := r.granted()
		soon = nil
		if r.must("rotate", func() error { return r.rotate(p, "ba-1", time.Hour) }); fmt.Sprint(soon) != "[ba-1]" {
			r.fail("soon are %v", soon)
		}
	})
}

// A key that is rotated or revoked by hand while its service is away does not wait for its
// turn either.
func TestChangedByHandInAnOutage(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*renewing, *process) error{
		"rotate": func(r *renewing, p *process) error { return r.rotate(p, "ba-1", time.Hour) },
		"revoke": func(r *renewing, p *process) error { return r.cut(p, "ba-1") },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRenewing(t, memory.Chosen, 1)
			var soon []string
			r.line = func(a appLine) Deliverer { return hearing{a, &soon} }
			p := r.granted()
			soon = nil
			r.sched.follow(func(_ int, step string) fate {
				if strings.HasPrefix(step, "journal") {
					return carried
				}
				return lost
			})
			if err := do(r, p); !fault.Passing(err) || fmt.Sprint(soon) != "[ba-1]" {
				r.fail("%s: soon are %v, %v", name, soon, err)
			}
			r.sched.follow(nil)
		})
	}
}

// formats is what the Secrets of an access in formats hold beside its key: nothing else
// is to be done for it.
func (r *renewing) formats(p *process) {
	r.Helper()
	r.must("tend", func() error { return r.tend(p) })
	if key := r.apps.get("ba-1-env"); !r.works(key, "data") {
		r.fail("the environment has %v, which is refused", key)
	}
	if left, err := p.Unformatted(r.ctx()); err != nil || len(left) > 0 {
		r.fail("%v are not written, %v", left, err)
	}
}

// A key reaches the forms of its class soon after its grant, in the process that has
// granted it and in the next one, however the key came about. A repeated grant has nothing
// written again, and a revoked key takes them with it.
func TestFormatsOfAKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRenewing(t, memory.Chosen, 1)
		var soon []string
		r.line = func(a appLine) Deliverer { return hearing{a, &soon} }
		p := r.granted()
		if fmt.Sprint(soon) != "[ba-1 ba-2]" {
			r.fail("soon are %v", soon)
		}
		p.kill() // between the key and the Secret
		p = r.start()
		if left, err := p.Unformatted(r.ctx()); err != nil || len(left) != 2 {
			r.fail("%v are not written, %v", left, err)
		}
		r.formats(p)
		soon = nil
		r.must("repeat", func() error { return r.grant(p, "ba-1") })
		r.apps.set("ba-1-env", secret.KeyPair{})
		if r.must("tend", func() error { return r.tend(p) }); len(soon) > 0 || r.apps.get("ba-1-env") != (secret.KeyPair{}) {
			r.fail("soon are %v, and a Secret that was deleted is there again: that is for drift", soon)
		}
		id, _ := cosi.ParseAccountID(accessID("ba-1"))
		found, err := p.InspectAccount(r.ctx(), id, true)
		if err != nil || len(found) != 1 || found[0] != (Finding{What: "secret", Repaired: true}) {
			r.fail("found %+v, %v", found, err)
		}
		r.formats(p)

		// A key that no rotation has led to.
		r.must("cut", func() error { return p.CutAccess(r.ctx(), id) })
		r.must("lift", func() error { return p.LiftAccess(r.ctx(), id) })
		r.must("grant", func() error { return r.grant(p, "ba-1") })
		if fmt.Sprint(soon) != "[ba-1]" {
			r.fail("soon are %v", soon)
		}
		r.formats(p)

		// A revocation waits for no Secret.
		ctx, cancel := context.WithTimeout(r.ctx(), 30*time.Second)
		defer cancel()
		r.must("revoke", func() error { return p.RevokeAccess(ctx, id.String()) })
		if ctx.Err() != nil || r.works(r.apps.get("ba-1-env"), "data") {
			r.fail("the key is not revoked, or no time is left to delete its record")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRenewing(t, memory.Chosen, 1)
		p := r.granted()
		r.formats(p)
		r.must("revoke", func() error { return p.RevokeAccess(r.ctx(), accessID("ba-1")) })
		if r.apps.get("ba-1-env") != (secret.KeyPair{}) {
			r.fail("the environment is left")
		}
	})
}

// A rotated key that v1alpha2's sidecar has written into its Secret is not yet in the forms:
// the key before stays until a grace after it is.
func TestFormatsAfterAnAnsweredRotation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wait time.Duration
		kind fault.Kind
	}{{time.Minute, fault.Unavailable}, {grace1, fault.Unavailable}, {grace1, fault.PermissionDenied}, {grace1, fault.Internal}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRenewing(t, memory.Chosen, 1)
			refusing := true
			r.line = func(a appLine) Deliverer { return unwritable{a, &refusing, c.kind} }
			p := r.granted()
			r.formats(p)
			old := r.apps.get("ba-1-env")
			id, _ := cosi.ParseAccountID(accessID("ba-1"))
			r.must("rotate", func() error { return p.RotateAccess(r.ctx(), id, grace1) })
			answer, err := p.GrantAccess(r.ctx(), GrantRequest{Name: "ba-1", Auth: cosi.Key, Buckets: []BucketRequest{{ID: bucketID("data")}}, Delivers: true})
			if err != nil {
				r.fail("%v", err)
			}
			r.apps.set("ba-1", answer.Key)
			for range 3 {
				time.Sleep(c.wait)
				_ = r.tend(p)
			}
			if !r.works(old, "data") || r.apps.get("ba-1-env") != old {
				r.fail("the key before is revoked, or not in the environment")
			}
			refusing = false
			r.must("tend", func() error { return r.tend(p) })
			if !r.works(old, "data") || r.apps.get("ba-1-env") != answer.Key {
				r.fail("the key before is revoked at once, or still in the environment")
			}
			time.Sleep(grace1)
			r.must("tend", func() error { return r.tend(p) })
			if r.works(old, "data") || !r.works(r.apps.get("ba-1-env"), "data") {
				r.fail("the key before is not revoked, or the key is")
			}
		})
	}
}

// An old key that is in the Secret again, which the API server does not let the driver
// change, is not revoked, whatever the reason.
func TestOldKeyInASecretThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, kind := range []fault.Kind{fault.Unavailable, fault.PermissionDenied, fault.LimitExceeded, fault.Internal} {
		synctest.Test(t, func(t *testing.T) {
			r := newRenewing(t, memory.Chosen, 1)
			refusing := false
			r.line = func(a appLine) Deliverer { return unwritable{a, &refusing, kind} }
			p := r.granted()
			old := r.apps.get("ba-1")
			time.Sleep(every)
			r.must("renew", func() error { return r.tend(p) })
			r.apps.set("ba-1", old)
			refusing = true
			for range 3 {
				time.Sleep(grace1)
				_ = r.tend(p)
			}
			if !r.works(old, "data") {
				r.fail("%s: the key in the Secret is revoked", kind)
			}
		})
	}
}

// Without the right to write Secrets, a class that needs it is refused, and says which
// setting it needs.
func TestFormatsWithoutTheRight(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"secretFormat": "env", "keyRotation": "10h"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRenewing(t, memory.Chosen, 1)
			clear(r.terms[team].Defaults.BucketAccessClass)
			p := r.world.start()
			r.must("create", func() error { return r.create(p, "data", nil) })
			_, err := p.GrantAccess(r.ctx(), GrantRequest{Name: "ba-1", Auth: cosi.Key, Parameters: map[string]string{name: value}, Buckets: []BucketRequest{{ID: bucketID("data")}}})
			r.kind("grant", err, fault.FailedPrecondition, name+": the driver may not write applications' Secrets", "applicationSecrets in its configuration")
			if n := len(r.service.Keys()); n != 1 {
				r.fail("%d keys", n)
			}
		})
	}
}

// Nothing is remembered of an access that goes in the middle of a grace, or that
// another driver looks after.
func TestGracesAreForgotten(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(*renewing, *process) error{
		"deleted":    func(r *renewing, p *process) error { return r.delete(p, "data") },
		"taken over": func(_ *renewing, p *process) error { p.TakenOver(); return nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRenewing(t, memory.Chosen, 1)
			p := r.granted()
			time.Sleep(every)
			r.must("renew", func() error { return r.tend(p) })
			if len(p.graces.since) != 2 {
				r.fail("%s: %d graces are watched", name, len(p.graces.since))
			}
			r.must(name, func() error { return ends(r, p) })
			if len(p.graces.since) != 0 {
				r.fail("%s: %d graces are watched", name, len(p.graces.since))
			}
		})
	}
}
