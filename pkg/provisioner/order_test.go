package provisioner

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/memory"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// A contract that is ordered, changed and withdrawn, with a fault of each kind at
// each step: repeats end in one contract, and in none.
func TestAnOrderWithAFaultAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, secrets := range []memory.Secrets{memory.Chosen, memory.Repeated, memory.Once} {
		for _, f := range []fate{lost, refused, unanswered, killed, killedThen, late} {
			t.Run(fmt.Sprintf("%s/%s", secrets, f), func(t *testing.T) {
				t.Parallel()
				for at := 0; ; at++ {
					steps := 0
					synctest.Test(t, func(t *testing.T) { steps = orderWithFault(t, secrets, f, at) })
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

func orderWithFault(t *testing.T, secrets memory.Secrets, f fate, at int) int {
	w := newWorld(t, secrets, false, 1)
	w.sched.follow(func(step int, _ string) fate {
		if step == at {
			return f
		}
		return carried
	})
	p := w.start()
	id := cosi.ContractID{Backend: backend, Contract: team}
	again := func(call func() error) func() error {
		return func() error {
			err := call()
			if errors.Is(err, errKilled) || p.killed() {
				p.Wait()
				p = w.start()
				w.sched.catchUp()
			}
			return err
		}
	}
	sign := func() error { _, err := p.Sign(w.ctx(), id, w.terms[team]); return err }
	w.must("sign", again(sign))
	w.must("sign again", again(sign))
	if n := len(w.service.Contracts()); n != 1 {
		w.fail("%d contracts are signed", n)
	}
	if n := len(w.service.Keys()); n != 1 {
		w.fail("the contract has %d keys of its own", n)
	}
	most := int64(3)
	w.terms[team] = config.Terms{Listed: team, Backend: backend, OnLastBucket: config.Keep, Quota: config.Quota{MaxBuckets: &most}}
	w.must("sign for other terms", again(sign))
	w.must("create", again(func() error { return w.create(p, "data", nil) }))
	if err := p.Cancel(w.ctx(), id); err == nil {
		w.fail("a contract with a bucket was cancelled")
	}
	if p.killed() {
		p.Wait()
		p = w.start()
		w.sched.catchUp()
	}
	w.must("delete", again(func() error { return w.delete(p, "data") }))
	w.must("cancel", again(func() error { return p.Cancel(w.ctx(), id) }))
	w.must("cancel again", again(func() error { return p.Cancel(w.ctx(), id) }))
	p.Wait()
	w.sched.catchUp()
	if n := w.store.keys(); len(n) > 0 || len(w.service.Keys()) > 0 || len(w.service.Contracts()) > 0 {
		w.fail("left: records %v, keys %v, contracts %v", n, w.service.Keys(), w.service.Contracts())
	}
	return w.sched.steps
}

// claims are the namespaces of buckets' claims.
type claims map[string]string

func (c claims) Namespace(_ context.Context, bucket string) (string, error) {
	if c[bucket] == "" {
		return "", fault.New(fault.Unavailable, "not known")
	}
	return c[bucket], nil
}

// A contract that is for one namespace has buckets of its claims only; what was made
// before is answered without a question.
func TestAContractForOneNamespace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memory.Chosen, false, 1)
		w.terms[team] = config.Terms{Listed: team, Backend: backend, OnLastBucket: config.Keep, Namespace: "blue"}
		p := w.start()
		known := claims{"own": "blue", "strange": "red"}
		p.claims = known
		for bucket, kind := range map[string]fault.Kind{"own": "", "strange": fault.FailedPrecondition, "new": fault.Unavailable} {
			if err := w.create(p, bucket, nil); fault.KindOf(err) != kind {
				t.Errorf("%s: %v, want %q", bucket, err, kind)
			}
		}
		if have := w.service.Buckets(); len(have) != 1 {
			t.Errorf("there are %v", have)
		}
		delete(known, "own")
		if err := w.create(p, "own", nil); err != nil {
			t.Errorf("repeated: %v", err)
		}
	})
}

// A contract that is suspended by its terms is as ordered, unless the service could not
// be brought to the rest of them.
func TestAnOrderThatIsSuspended(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.must("sign", func() error { _, err := p.Sign(w.ctx(), teamID, w.terms[team]); return err })
		terms := w.terms[team]
		terms.Suspend = true
		for _, driver := range []*process{p, w.start()} {
			_, leave, err := driver.writer.Enter(w.ctx())
			if err != nil {
				t.Fatal(err)
			}
			leave()
			have, err := driver.Sign(w.ctx(), teamID, terms)
			if err != nil || have.State != contract.StateSuspended {
				w.fail("it is %s, %v", have.State, err)
			}
		}
		w.at("EnsureContract", always(lost))
		terms.DisplayName = "other"
		if have, err := w.drivers[1].Sign(w.ctx(), teamID, terms); err == nil {
			w.fail("a change that was lost leaves it %s", have.State)
		}
	})
}

// A backend that does not answer takes little of the time of those who bring contracts to
// their orders: after a while one of them asks, and the others hear it from that one.
func TestOrdersAtABackendThatIsAway(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.must("create", func() error { return w.create(p, "data", nil) })
		w.at("GetContract", always(lost))
		asked := func() (n int) {
			before := p.count.Load()
			for _, err := range w.together(
				func() error { _, _, err := p.DescribeContract(w.ctx(), teamID); return err },
				func() error { _, err := p.Sign(w.ctx(), teamID, w.terms[team]); return err },
			) {
				w.kind("away", err, fault.Unavailable)
			}
			return int(p.count.Load() - before)
		}
		asked()
		if n := asked(); n != 0 {
			w.fail("it is asked %d times a moment later", n)
		}
		time.Sleep(time.Minute)
		if n := asked(); n != 2 { // a read is tried twice
			w.fail("it is asked %d times a minute later", n)
		}
		w.sched.follow(nil)
		time.Sleep(time.Minute)
		w.must("sign", func() error { _, err := p.Sign(w.ctx(), teamID, w.terms[team]); return err })
	})
}
