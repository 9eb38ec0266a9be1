package provisioner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/memory"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/keys"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

var teamID = cosi.ContractID{Backend: backend, Contract: team}

// in runs a test in a world of its own, in a bubble.
func in(t *testing.T, secrets memory.Secrets, shared bool, test func(w *world, p *process)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, secrets, shared, 1)
		test(w, w.start())
	})
}

func (w *world) kind(what string, err error, want fault.Kind, says ...string) {
	w.Helper()
	if !fault.Is(err, want) {
		w.fail("%s: got %q (%v), want %q", what, fault.KindOf(err), err, want)
		return
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			w.fail("%s: %q does not say %q", what, err, text)
		}
	}
}

// at lets f decide on every step of a name.
func (w *world) at(name string, f func(n int) fate) {
	var mu sync.Mutex
	n := 0
	w.sched.follow(func(_ int, step string) fate {
		mu.Lock()
		defer mu.Unlock()
		if step != name {
			return carried
		}
		n++
		return f(n)
	})
}

func always(f fate) func(int) fate { return func(int) fate { return f } }

// A call that was killed has taken something away, and not written that down. No
// inspection and no other call brings it back before the call is repeated, neither
// by the next process nor by one that has seen it alive before.
func TestWhatIsWantedGoneIsNotBroughtBack(t *testing.T) {
	t.Parallel()
	for _, secrets := range []memory.Secrets{memory.Chosen, memory.Repeated, memory.Once} {
		for _, step := range []string{"RevokeKey", "DELETE", "journal delete"} {
			for _, takes := range []string{"revoke", "delete", "revoke, beside another driver", "delete, beside another driver"} {
				in(t, secrets, false, func(w *world, p *process) {
					next := w.start
					w.must("create", func() error { return w.create(p, "data", nil) })
					var key secret.KeyPair
					w.must("grant", func() (err error) { key, err = w.grant(p, "ba-1", "data"); return err })
					w.must("inspect", func() error { return w.inspect(p) })
					takes, beside := strings.CutSuffix(takes, ", beside another driver")
					if beside {
						other := p
						next = func() *process { return other }
						p = w.start()
					}
					w.at(step, func(n int) fate {
						if n == 1 {
							return killedThen
						}
						return carried
					})
					call := func() error { return w.revoke(p, "ba-1") }
					if takes == "delete" {
						call = func() error { return w.delete(p, "data") }
					}
					err := call()
					p.Wait()
					dead, gone := !w.works(key, "data") && len(w.service.Keys()) < 2, w.service.Buckets()["data"] == ""
					p = next()
					for range 2 {
						_ = w.inspect(p)
					}
					if _, err := w.grant(p, "ba-2", "data"); gone && err == nil {
						w.fail("a key was given to a bucket that is gone")
					}
					if dead && slices.ContainsFunc(w.service.Keys(), func(k memory.Key) bool { return k.Slot == "ba-1" }) {
						w.fail("%s, killed at %s (%v): the key was brought back", takes, step, err)
					}
					if gone && w.service.Buckets()["data"] != "" {
						w.fail("%s, killed at %s (%v): the bucket was brought back", takes, step, err)
					}
					w.sched.follow(nil)
					w.end(p)
				})
			}
		}
	}
}

// While a bucket is emptied for its deletion nothing of it is repaired.
func TestNothingIsRepairedInABucketThatIsEmptied(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		public := `{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::data/*"}]}`
		w.must("create", func() error {
			return w.create(p, "data", map[string]string{"onDelete": "empty", "policy": public})
		})
		w.must("inspect", func() error { return w.inspect(p) })
		w.at("POST ?delete", always(lost))
		w.at("DELETE", always(lost))
		w.kind("delete", w.delete(p, "data"), fault.Unavailable)
		if w.service.Document("data", "policy") != "" {
			w.fail("the policy is there while the bucket is emptied")
		}
		w.must("inspect", func() error { return w.inspect(p) })
		if w.service.Document("data", "policy") != "" {
			w.fail("the policy was brought back")
		}
		w.sched.follow(nil)
		w.end(p)
	})
}

// A contract that another driver has cancelled is opened again, not remembered.
func TestContractCancelledElsewhere(t *testing.T) {
	t.Parallel()
	in(t, memory.Repeated, false, func(w *world, p *process) {
		w.terms[team] = config.Terms{Listed: team, Backend: backend, OnLastBucket: config.Cancel}
		other := w.start()
		for range 3 {
			for _, one := range []*process{p, other} {
				w.must("create", func() error { return w.create(one, "data", nil) })
				w.must("delete", func() error { return w.delete(other, "data") })
				if n := w.service.Contracts(); len(n) > 0 {
					w.fail("contracts %v are left", n)
				}
			}
		}
	})
}

// What is lost at the service behind the driver's back is opened again: the
// contract, its key, or its record.
func TestForgetAndOpenAgain(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(w *world){
		"contract": func(w *world) { w.service.DropContract(team) },
		"key":      func(w *world) { w.service.DropKeys(team, cosi.ContractSlot) },
		"record":   func(w *world) { w.store.lose(journal.Key{Kind: journal.Contracts, ID: teamID.String()}) },
	} {
		for _, restart := range []bool{false, true} {
			in(t, memory.Once, false, func(w *world, p *process) {
				w.must("create", func() error { return w.create(p, "first", nil) })
				lose(w)
				if restart {
					p = w.start()
				}
				if err := w.create(p, "second", nil); err != nil {
					w.fail("%s lost, restart %v: create: %v", what, restart, err)
				}
				if err := w.delete(p, "first"); err != nil || w.service.Buckets()["first"] != "" {
					w.fail("%s lost, restart %v: delete: %v, and the service has %v", what, restart, err, w.service.Buckets())
				}
			})
		}
	}
}

// A delete without the contract's record deletes the bucket, not only its record.
func TestDeleteWithoutTheContractsRecord(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.must("create", func() error { return w.create(p, "data", nil) })
		w.store.lose(journal.Key{Kind: journal.Contracts, ID: teamID.String()})
		p = w.start()
		w.kind("delete", w.delete(p, "data"), "")
		if len(w.service.Buckets()) > 0 {
			w.fail("the bucket is left: %v", w.service.Buckets())
		}
	})
}

// A region that the service gets later is found without a restart; until then the
// class may become right, so its refusal is not final.
func TestRegionAddedLater(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.must("create", func() error { return w.create(p, "first", nil) })
		class := map[string]string{"region": "eu-1"}
		w.kind("create", w.create(p, "second", class), fault.FailedPrecondition, `"eu-1" is not a region`, "us-east-1")
		w.service.AddRegion("eu-1")
		w.kind("create", w.create(p, "second", class), "")
	})
}

// A bucket that is found again without its record is in one region only.
func TestFoundInAnotherRegion(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.service.AddRegion("eu-1")
		w.must("create", func() error { return w.create(p, "data", map[string]string{"region": "eu-1"}) })
		w.takesOver = w.identities()
		w.store.lose()
		p = w.start()
		w.kind("create elsewhere", w.create(p, "data", map[string]string{"region": "us-east-1"}), fault.Mismatch, "eu-1")
		w.kind("create again", w.create(p, "data", map[string]string{"region": "eu-1"}), "")
	})
}

// identities are those of the world's journal.
func (w *world) identities() []string {
	have, err := w.records().Identities(w.ctx())
	if err != nil {
		w.fail("%v", err)
	}
	return have
}

// Two clusters with one owner at one service: the second is refused whatever it
// wants of the first one's contract, and nothing of that changes, until it is told
// to take over from a journal that is lost.
func TestTwoClustersWithOneOwner(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		for _, last := range []config.OnLastBucket{config.Keep, config.Cancel} {
			in(t, memory.Repeated, shared, func(w *world, p *process) {
				w.must("create", func() error { return w.create(p, "data", nil) })
				var key secret.KeyPair
				w.must("grant", func() (err error) { key, err = w.grant(p, "ba-1", "data"); return err })
				mine := w.identities()
				if len(mine) != 1 {
					w.fail("the journal has the identities %q, want one", mine)
				}

				second := newWorld(w.TB, memory.Repeated, shared, 2)
				second.service = w.service
				second.terms[team] = config.Terms{Listed: team, Backend: backend, OnLastBucket: last}
				q := second.start()
				says := []string{"contract team", "same driver.owner", mine[0], "driver.takesOver"}
				audit := func() error {
					_, err := q.AuditContract(w.ctx(), teamID, Audit{Fix: true, Buckets: []cosi.BucketID{{ContractID: teamID, Bucket: "data"}}})
					return err
				}
				for range 2 { // a repeat is refused too
					w.kind("create by the second", second.create(q, "other", nil), fault.FailedPrecondition, says...)
					w.kind("create of the same by the second", second.create(q, "data", nil), fault.FailedPrecondition, says...)
					_, err := second.grant(q, "ba-2", "data")
					w.kind("grant by the second", err, fault.FailedPrecondition, says...)
					w.kind("revoke by the second", second.revoke(q, "ba-1"), fault.FailedPrecondition, says...)
					w.kind("delete by the second", second.delete(q, "data"), fault.FailedPrecondition, says...)
					w.kind("audit by the second", audit(), fault.FailedPrecondition, says...)
					_, _, err = q.DescribeContract(w.ctx(), teamID)
					w.kind("description by the second", err, fault.FailedPrecondition, says...)
					_ = second.inspect(q)
					q.Converge(w.ctx(), map[cosi.ContractID]config.Terms{teamID: second.terms[team]}, time.Minute)
				}
				if !w.works(key, "data") || w.service.Buckets()["other"] != "" {
					w.fail("the second cluster has changed something of the first one's")
				}
				w.kind("create again", w.create(p, "data", nil), "")
				w.kind("create another", w.create(w.start(), "more", nil), "")

				second.takesOver = mine
				w.must("create after the take-over", func() error { return second.create(q, "other", nil) })
				w.must("create of the same after it", func() error { return second.create(q, "data", nil) })
				q = second.start() // the setting is there after a restart too
				w.must("grant after it", func() (err error) { key, err = second.grant(q, "ba-2", "data"); return err })
				if have, err := q.sites.Find(w.ctx(), teamID); err != nil || !w.works(key, "data") {
					w.fail("after the take-over: %v, %v", have, err)
				}
				w.kind("revoke of the first one's access", second.revoke(q, "ba-1"), "")
				w.kind("the first goes on", w.create(w.start(), "more", nil), "") // it was not marked again
			})
		}
	}
}

// A contract from before there were marks is its owner's, and stays without one.
func TestContractWithoutAJournalsMark(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		provider := (&memory.Line{Service: w.service, Step: p.step}).Provider()
		old := contract.NewService(backend, "cluster", nil, provider)
		if _, err := old.EnsureContract(w.ctx(), contract.Spec{Name: team}); err != nil {
			w.fail("%v", err)
		}
		w.must("create", func() error { return w.create(p, "data", nil) })
		second := newWorld(w.TB, memory.Chosen, false, 2)
		second.service = w.service
		w.must("create", func() error { return second.create(second.start(), "other", nil) })
		if have, err := provider.GetContract(w.ctx(), team); err != nil || have.Journal != "" {
			w.fail("it has the mark %q, %v", have.Journal, err)
		}
	})
}

// Two drivers of one journal that sign their first contracts at once have one
// identity.
func TestIdentityIsGivenOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, memory.Chosen, false, seed)
			w.terms["other"] = config.Terms{Listed: "other", Backend: backend, OnLastBucket: config.Keep}
			p := w.start()
			for _, err := range w.together(
				func() error { return w.create(p, "data", nil) },
				func() error { return w.create(p, "more", map[string]string{"contract": "other"}) },
			) {
				if err != nil {
					w.fail("%v", err)
				}
			}
			w.must("create", func() error { return w.create(p, "data", nil) })
			w.must("create", func() error { return w.create(p, "more", map[string]string{"contract": "other"}) })
			if have := w.identities(); len(have) != 1 {
				w.fail("the journal has the identities %q", have)
			}
		})
	}
}

// After the loss of a journal an access to a bucket of the driver's is granted,
// whatever the terms say of other people's buckets.
func TestGrantAfterALostJournal(t *testing.T) {
	t.Parallel()
	in(t, memory.Once, false, func(w *world, p *process) {
		w.must("create", func() error { return w.create(p, "data", nil) })
		w.service.MakeBucket("by-hand", team, "us-east-1")
		w.takesOver = w.identities()
		w.store.lose()
		p = w.start()
		key, err := w.grant(p, "ba-1", "data")
		w.kind("grant", err, "")
		if !w.works(key, "data") {
			w.fail("the key does not work")
		}
		_, err = w.grant(p, "ba-2", "by-hand")
		w.kind("grant on another's bucket", err, fault.NotFound, "adoptBuckets")
		_, err = w.grant(p, "ba-3", "none")
		w.kind("grant on none", err, fault.NotFound, "does not exist")
	})
}

// Where contracts share an account, a bucket that was re-created by another
// contract is not deleted, and one that has no mark is adopted once.
func TestSharedAccounts(t *testing.T) {
	t.Parallel()
	in(t, memory.Once, true, func(w *world, p *process) {
		const other = "other"
		for _, name := range []string{team, other} {
			w.terms[name] = config.Terms{Listed: name, Backend: backend, AdoptBuckets: true}
		}
		w.must("create", func() error { return w.create(p, "data", nil) })
		w.must("create", func() error { return w.create(p, "theirs", map[string]string{"contract": other}) })
		w.service.DropBucket("data")
		w.must("create", func() error { return w.create(p, "data", map[string]string{"contract": other}) })
		w.kind("delete of a bucket that is another's now", w.delete(p, "data"), fault.Conflict, "left alone")
		if w.service.Buckets()["data"] == "" {
			w.fail("another contract's bucket is gone")
		}

		w.service.MakeBucket("found", team, "us-east-1")
		_, err := p.AdoptBucket(w.ctx(), bucketID("found"), nil)
		w.kind("adopt", err, "")
		_, err = p.AdoptBucket(w.ctx(), backend+"."+other+".found", nil)
		w.kind("adopt under another contract", err, fault.Conflict, "adopted under contract main.team already")
	})
}

// A contract that cannot be cancelled keeps no bucket from being deleted, and is
// cancelled when it can be.
func TestCancellingThatFails(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.terms[team] = config.Terms{Listed: team, Backend: backend, OnLastBucket: config.Cancel}
		w.must("create", func() error { return w.create(p, "data", nil) })
		w.at("DeleteContract", always(lost))
		w.kind("delete", w.delete(p, "data"), "")
		if len(w.service.Contracts()) != 1 {
			w.fail("contracts: %v", w.service.Contracts())
		}
		found, err := p.AuditContract(w.ctx(), teamID, Audit{})
		if err != nil || len(found) != 1 || found[0].Kind != OrphanContract {
			w.fail("audit: %+v, %v", found, err)
		}
		w.sched.follow(nil)
		w.must("inspect", func() error { return w.inspect(p) })
		if len(w.service.Contracts())+len(w.store.keys()) > 0 {
			w.fail("contracts %v, records %v are left", w.service.Contracts(), w.store.keys())
		}
	})
}

// A create that fails leaves nothing behind: no bucket, and no contract that was
// signed for it alone.
func TestFailedCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.terms[team] = config.Terms{Listed: team, Backend: backend, OnLastBucket: config.Cancel}
		w.kind("create", w.create(p, "data", map[string]string{"websiteIndex": "index.html"}), fault.Unsupported, "website")
		if len(w.service.Contracts())+len(w.service.Buckets())+len(w.store.keys()) > 0 {
			w.fail("contracts %v, buckets %v, records %v are left", w.service.Contracts(), w.service.Buckets(), w.store.keys())
		}
	})
}

// A grant that is refused leaves nothing, also if the key was made before.
func TestRefusedGrantLeavesNothing(t *testing.T) {
	t.Parallel()
	in(t, memory.Once, false, func(w *world, p *process) {
		w.must("create", func() error { return w.create(p, "data", nil) })
		before := len(w.store.keys())
		p.refuse = "IssueKey"
		_, err := w.grant(p, "ba-1", "data")
		w.kind("grant", err, fault.LimitExceeded)
		p.refuse = ""
		if len(w.service.Keys()) != 1 || len(w.store.keys()) != before {
			w.fail("keys %v, records %v", w.service.Keys(), w.store.keys())
		}
	})
}

// The first calls under a contract come at once, one of them for a bucket that is
// not there: none is told of another process.
func TestFirstCallsUnderAContract(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, memory.Once, false, seed)
			p := w.start()
			errs := w.together(
				func() error { return w.create(p, "one", nil) },
				func() error { return w.create(p, "two", nil) },
				func() error { return w.delete(p, "none") },
				func() error { return w.revoke(p, "ba-none") },
			)
			if err := errors.Join(errs...); err != nil {
				w.fail("seed %d: %v", seed, err)
			}
			w.consistent()
		})
	}
}

// What is written while a bucket is emptied is no reason to name a cure that the
// class has already.
func TestWrittenWhileEmptied(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.must("create", func() error { return w.create(p, "data", emptied) })
		w.at("DELETE", func(int) fate {
			w.service.PutObject("data", "late")
			return carried
		})
		w.kind("delete", w.delete(p, "data"), fault.Unavailable, "while it was emptied", "retried")
		w.sched.follow(nil)
		w.end(p)
	})
}

// A contract that the configuration has no more gives no new keys, since nothing
// bounds them; what was given before is answered.
func TestContractTakenOutOfTheConfiguration(t *testing.T) {
	t.Parallel()
	in(t, memory.Repeated, false, func(w *world, p *process) {
		w.must("create", func() error { return w.create(p, "data", nil) })
		key, err := w.grant(p, "ba-1", "data")
		w.kind("grant", err, "")
		delete(w.terms, team)
		again, err := w.grant(p, "ba-1", "data")
		w.kind("repeated grant", err, "")
		if again != key {
			w.fail("the key has changed")
		}
		_, err = w.grant(p, "ba-2", "data")
		w.kind("new grant", err, fault.FailedPrecondition, "not in the driver's configuration")
		w.kind("revoke", w.revoke(p, "ba-1"), "")
		w.kind("delete", w.delete(p, "data"), "")
	})
}

// A contract suspended by its terms is not signed to be refused.
func TestSuspendedByItsTerms(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.terms[team] = config.Terms{Listed: team, Backend: backend, Suspend: true}
		w.kind("create", w.create(p, "data", nil), fault.FailedPrecondition, "suspended by its terms")
		if len(w.service.Contracts())+len(w.store.keys()) > 0 {
			w.fail("contracts %v, records %v", w.service.Contracts(), w.store.keys())
		}
		// Nor is one whose signing has failed before, or one that is gone.
		w.terms[team] = config.Terms{Listed: team, Backend: backend}
		w.at("EnsureContract", always(lost))
		w.kind("create", w.create(p, "data", nil), fault.Unavailable)
		w.sched.follow(nil)
		suspended := config.Terms{Listed: team, Backend: backend, Suspend: true}
		w.terms[team] = suspended
		w.kind("create after a fault", w.create(p, "data", nil), fault.FailedPrecondition, "suspended by its terms")
		w.terms[team] = config.Terms{Listed: team, Backend: backend}
		w.must("create", func() error { return w.create(p, "data", nil) })
		w.service.DropContract(team)
		p.TakenOver()
		w.terms[team] = suspended
		for _, driver := range []*process{p, w.start()} {
			w.kind("create of what is gone", w.create(driver, "data", nil), fault.FailedPrecondition)
		}
		if len(w.service.Contracts()) > 0 {
			w.fail("contracts %v", w.service.Contracts())
		}
	})
}

// guard.maxKeys is exact with many callers at once, and holds none of them up.
func TestGuardCountsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, memory.Repeated, false, seed)
			p := w.start()
			most := int64(3)
			w.terms[team] = config.Terms{Listed: team, Backend: backend, Guard: params.Guard{MaxKeys: &most, MaxBuckets: &most}}
			var calls []func() error
			var granted, made atomic.Int64
			w.must("create", func() error { return w.create(p, "data", nil) })
			w.must("grant", func() error { _, err := w.grant(p, "ba-first", "data"); return err })
			for n := range 8 {
				calls = append(calls, func() error {
					if _, err := w.grant(p, fmt.Sprintf("ba-%d", n), "data"); err == nil {
						granted.Add(1)
					} else {
						w.kind("one key too many", err, fault.LimitExceeded, "guard.maxKeys")
					}
					return nil
				}, func() error { _, err := w.grant(p, "ba-first", "data"); return err }, func() error {
					if err := w.create(p, fmt.Sprintf("data-%d", n), nil); err == nil {
						made.Add(1)
					} else {
						w.kind("one bucket too many", err, fault.LimitExceeded, "guard.maxBuckets")
					}
					return nil
				})
			}
			if err := errors.Join(w.together(calls...)...); err != nil {
				w.fail("a repeated grant: %v", err)
			}
			if granted.Load() != 2 || made.Load() != 2 {
				w.fail("seed %d: %d keys and %d buckets were made, want 2 and 2", seed, granted.Load(), made.Load())
			}
		})
	}
}

// guard.regions is about where a bucket comes to be, not about what its class
// says.
func TestGuardOfRegions(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.service.AddRegion("eu-1")
		for name, c := range map[string]struct {
			terms, class string
			kind         fault.Kind
		}{
			"default of the service":  {"", "", fault.FailedPrecondition},
			"default of the contract": {"eu-1", "", ""},
			"of the class":            {"", "eu-1", ""},
			"another of the class":    {"eu-1", "us-east-1", fault.FailedPrecondition},
		} {
			w.terms[team] = config.Terms{Listed: team, Backend: backend, Region: c.terms, Guard: params.Guard{Regions: []string{"eu-1"}}}
			class := map[string]string{}
			if c.class != "" {
				class["region"] = c.class
			}
			w.kind(name, w.create(w.start(), "data-"+strings.ReplaceAll(name, " ", "-"), class), c.kind)
		}
	})
}

// A contract that takes forever to be brought to its terms holds up neither the
// others nor its own calls.
func TestConvergeIsBounded(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		terms := map[cosi.ContractID]config.Terms{}
		for n := range 20 {
			name := fmt.Sprintf("t-%d", n)
			w.terms[name] = config.Terms{Listed: name, Backend: backend}
			terms[cosi.ContractID{Backend: backend, Contract: name}] = w.terms[name]
			w.must("create", func() error { return w.create(p, "data-"+name, map[string]string{"contract": name}) })
		}
		var begun atomic.Int64
		p.hang = func(ctx context.Context, step string) bool {
			return step == "EnsureContract" && begun.Add(1) <= 3
		}
		start := time.Now()
		left := p.Converge(w.ctx(), terms, 10*time.Second)
		if took := time.Since(start); len(left) != 3 || took > 15*time.Second {
			w.fail("%d contracts are left after %s, want 3 after 10 s", len(left), took)
		}
		if left = p.Converge(w.ctx(), left, 10*time.Second); len(left) > 0 {
			w.fail("%d contracts are left when the service answers", len(left))
		}
	})
}

// One slow look says nothing of the next; an address that cannot be reached is
// left alone for a while.
func TestSilence(t *testing.T) {
	t.Parallel()
	in(t, memory.Chosen, false, func(w *world, p *process) {
		w.must("create", func() error { return w.create(p, "data", nil) })
		looks := func() (n int) {
			before := p.count.Load()
			w.must("create", func() error { return w.create(p, "data", nil) })
			return int(p.count.Load() - before)
		}
		usual := looks()
		p.hang = func(_ context.Context, step string) bool { return step == "GET ?tagging" }
		looks()
		p.hang = nil
		if n := looks(); n != usual {
			w.fail("after one slow look there are %d calls, want %d", n, usual)
		}
		w.at("GET ?tagging", always(lost))
		looks()
		w.sched.follow(nil)
		if n := looks(); n != 0 {
			w.fail("after a broken connection there are %d calls, want none", n)
		}
		time.Sleep(time.Minute)
		if n := looks(); n != usual {
			w.fail("a minute later there are %d calls, want %d", n, usual)
		}
	})
}

// An application whose Secret has the first answer keeps its key through a
// rotation that comes between two attempts of one grant, until someone says that
// the Secret has the new one.
func TestRotationBetweenTwoAttempts(t *testing.T) {
	t.Parallel()
	in(t, memory.Repeated, false, func(w *world, p *process) {
		w.must("create", func() error { return w.create(p, "data", nil) })
		req := GrantRequest{Name: "ba-1", Auth: cosi.Key, Buckets: []BucketRequest{{ID: bucketID("data")}}}
		first, err := p.GrantAccess(w.ctx(), req)
		w.kind("grant", err, "")
		w.kind("rotate", w.rotate(p, "ba-1", time.Hour), "")
		second, err := p.GrantAccess(w.ctx(), req) // the sidecar's next attempt, which does not overwrite the Secret
		w.kind("grant", err, "")
		if first.Key == second.Key {
			w.fail("the rotated key is not answered")
		}
		time.Sleep(48 * time.Hour)
		w.must("inspect", func() error { return w.inspect(p) })
		if !w.works(first.Key, "data") {
			w.fail("the key that the Secret holds was revoked")
		}
		w.kind("rotate again", w.rotate(p, "ba-1", time.Hour), fault.FailedPrecondition, "not delivered")
		id, _ := cosi.ParseAccountID(accessID("ba-1"))
		w.kind("delivered", p.Delivered(w.ctx(), id), "")
		time.Sleep(30 * time.Minute)
		w.must("inspect", func() error { return w.inspect(p) })
		if !w.works(first.Key, "data") {
			w.fail("the grace was not kept to")
		}
		time.Sleep(time.Hour)
		w.must("inspect", func() error { return w.inspect(p) })
		if w.works(first.Key, "data") || !w.works(second.Key, "data") {
			w.fail("the old key works: %v, the new one: %v", w.works(first.Key, "data"), w.works(second.Key, "data"))
		}
	})
}

// A key that was cut stays so, no matter who asks for it, until that is lifted.
func TestCut(t *testing.T) {
	t.Parallel()
	for _, secrets := range []memory.Secrets{memory.Chosen, memory.Repeated, memory.Once} {
		in(t, secrets, false, func(w *world, p *process) {
			keysOf := func() (n int) {
				for _, k := range w.service.Keys() {
					if k.Slot == "ba-1" {
						n++
					}
				}
				return n
			}
			id, _ := cosi.ParseAccountID(accessID("ba-1"))
			w.kind("cut of what is not there", w.cut(p, "ba-1"), fault.NotFound)
			w.must("create", func() error { return w.create(p, "data", emptied) })
			key, err := w.grant(p, "ba-1", "data")
			w.kind("grant", err, "")
			w.kind("lift of what is not cut", w.lift(p, "ba-1"), "")
			w.kind("rotate", w.rotate(p, "ba-1", time.Hour), "")
			w.must("inspect", func() error { return w.inspect(p) })

			w.at("RevokeKey", always(lost)) // the service is away
			w.kind("cut", w.cut(p, "ba-1"), fault.Unavailable, "gets no other key", "run the command again")
			_, err = w.grant(p, "ba-1", "data")
			w.kind("grant", err, fault.FailedPrecondition, "--access "+accessID("ba-1")+" --lift")
			found, err := p.AuditContract(w.ctx(), teamID, Audit{Accounts: []cosi.AccountID{id}})
			if err != nil || len(found) != 1 || !strings.Contains(found[0].Text, "not carried that out") {
				w.fail("audit of a cut that is under way: %+v, %v", found, err)
			}
			w.sched.follow(nil)
			w.must("inspect", func() error { return w.inspect(p) })
			if n := keysOf(); n != 0 {
				w.fail("%d keys are left after a cut that was interrupted", n)
			}

			for range 2 {
				for _, driver := range []*process{p, w.start()} { // the other has the journal only
					_, err = w.grant(driver, "ba-1", "data")
					w.kind("grant", err, fault.FailedPrecondition)
					w.kind("rotate", w.rotate(driver, "ba-1", time.Hour), fault.FailedPrecondition, "--lift")
					w.kind("delivered", driver.Delivered(w.ctx(), id), fault.FailedPrecondition, "--lift")
					w.must("inspect", func() error { return w.inspect(driver) })
					if found, err := driver.AuditContract(w.ctx(), teamID, Audit{Accounts: []cosi.AccountID{id}}); err != nil || len(found) > 0 {
						w.fail("audit: %+v, %v", found, err)
					}
				}
				if n := keysOf(); n != 0 || w.works(key, "data") {
					w.fail("%d keys, and the key works: %v", n, w.works(key, "data"))
				}
				w.kind("cut again", w.cut(p, "ba-1"), "")
			}

			// A key that comes to the access all the same is an orphan.
			_, err = p.backends[backend].IssueKey(w.ctx(), contract.IssueKeyRequest{Contract: team, Slot: "ba-1", Proposed: keys.Propose(),
				Scope: &contract.Scope{Buckets: []contract.BucketScope{{Bucket: "data", Mode: cosi.ReadWrite}}}})
			w.kind("issue", err, "")
			found, err = p.AuditContract(w.ctx(), teamID, Audit{Fix: true, Accounts: []cosi.AccountID{id}})
			if err != nil || len(found) != 1 || found[0].Kind != OrphanKey || !found[0].Fixed || keysOf() != 0 {
				w.fail("audit of a key after the cut: %+v, %v", found, err)
			}

			w.kind("lift", w.lift(p, "ba-1"), "")
			next, err := w.grant(p, "ba-1", "data")
			w.kind("grant", err, "")
			if next == key || !w.works(next, "data") || w.works(key, "data") {
				w.fail("after the cut the key is the same, or does not work")
			}
			again, err := w.grant(p, "ba-1", "data")
			w.kind("grant", err, "")
			if again != next {
				w.fail("a repeated grant answers another key")
			}
			w.kind("cut", w.cut(p, "ba-1"), "")
			w.kind("revoke", w.revoke(p, "ba-1"), "")
			if _, err := w.grant(p, "ba-1", "data"); err != nil { // another access of that name
				w.fail("after a revoke: %v", err)
			}
			w.kind("cut", w.cut(p, "ba-1"), "")
			w.end(p)
		})
	}
}

// A driver that knows of no cut reads in its place a key that has ended; the real
// life of the key is kept.
func TestCutBesideAnOlderDriver(t *testing.T) {
	t.Parallel()
	in(t, memory.Once, false, func(w *world, p *process) {
		w.must("create", func() error { return w.create(p, "data", nil) })
		w.must("grant", func() error { _, err := w.grant(p, "ba-1", "data"); return err })
		id, _ := cosi.ParseAccountID(accessID("ba-1"))
		record, err := p.journal.Account(w.ctx(), id)
		w.kind("read", err, "")
		const life = 90 * 24 * time.Hour
		record.Requested.KeyLife, record.Effective.KeyLife = life, life
		w.kind("write", p.journal.SaveAccount(w.ctx(), record), "")
		w.kind("cut", w.cut(p, "ba-1"), "")
		entry, err := w.store.index.Get(accountKey(id))
		w.kind("read", err, "")
		var older struct {
			Phase     journal.Phase
			Grant     journal.Grant
			Asked     journal.Grant
			CreatedAt time.Time
		}
		if err := json.Unmarshal(entry.Value, &older); err != nil {
			t.Fatal(err)
		}
		read := &journal.Account{Effective: older.Grant, CreatedAt: older.CreatedAt}
		if !ended(read) || older.Phase != journal.Done || older.Asked.KeyLife != life {
			w.fail("an older driver reads %+v", older)
		}
		w.kind("lift", w.lift(p, "ba-1"), "")
		if record, err := w.records().Account(w.ctx(), id); err != nil || record.Effective.KeyLife != life || record.Requested.KeyLife != life {
			w.fail("the key's life is %v (%v)", record.Effective.KeyLife, err)
		}
	})
}

// What was changed at the service behind the driver's back, and what an
// inspection makes of it.
func TestInspect(t *testing.T) {
	t.Parallel()
	keyID := func(w *world) string { return w.service.Keys()[0].AccessKeyID } // "ba-1" sorts first
	for name, c := range map[string]struct {
		secrets memory.Secrets
		change  func(w *world)
		want    string
		left    string // why it is left as it is; "" if it is repaired
	}{
		"nothing":          {memory.Chosen, func(*world) {}, "", ""},
		"bucket":           {memory.Chosen, func(w *world) { w.service.DropBucket("data") }, "bucket", ""},
		"key":              {memory.Chosen, func(w *world) { w.service.DropKeys(team, "ba-1") }, "key", ""},
		"key told once":    {memory.Once, func(w *world) { w.service.DropKeys(team, "ba-1") }, "key", keyIsLeft},
		"key stopped":      {memory.Once, func(w *world) { w.service.StopKey(keyID(w)) }, "key-inactive", ""},
		"key limited":      {memory.Repeated, func(w *world) { w.service.LimitKey(keyID(w), contract.Scope{}) }, "key-policy", ""},
		"mark":             {memory.Chosen, func(w *world) { w.service.SetDocument("data", "tagging", "") }, "mark", markIsLeft},
		"versioning":       {memory.Chosen, func(w *world) { w.service.SetDocument("data", "versioning", "<VersioningConfiguration/>") }, "versioning", ""},
		"quota":            {memory.Chosen, func(w *world) { w.service.SetBounds("data", contract.Bounds{MaxObjects: 9, MaxBytes: 1024}) }, "quota", ""},
		"quota gone":       {memory.Chosen, func(w *world) { w.service.SetBounds("data", contract.Bounds{}) }, "quota", ""},
		"contract":         {memory.Chosen, func(w *world) { w.service.DropContract(team) }, "contract", goneIsLeft},
		"contract stopped": {memory.Chosen, func(w *world) { w.service.Suspend(team, true) }, "suspended", suspendedIsLeft},
	} {
		in(t, c.secrets, false, func(w *world, p *process) {
			w.must("create", func() error {
				return w.create(p, "data", map[string]string{"versioning": "Enabled", "maxObjects": "9"})
			})
			w.must("grant", func() error { _, err := w.grant(p, "ba-1", "data"); return err })
			w.must("inspect", func() error { return w.inspect(p) })
			c.change(w)
			for _, repair := range []bool{false, true} {
				bucketID, accountID := cosi.BucketID{ContractID: teamID, Bucket: "data"}, cosi.AccountID{ContractID: teamID, Account: "ba-1"}
				inContract, _ := p.InspectContract(w.ctx(), teamID, repair)
				inBucket, _ := p.InspectBucket(w.ctx(), bucketID, repair)
				inAccount, _ := p.InspectAccount(w.ctx(), accountID, repair)
				found := slices.Concat(inContract, inBucket, inAccount)
				i := slices.IndexFunc(found, func(f Finding) bool { return f.What == c.want })
				switch {
				case c.want == "" && len(found) > 0:
					w.fail("%s: found %+v", name, found)
				case c.want == "":
				case i < 0:
					w.fail("%s: found %+v, want %s", name, found, c.want)
				case found[i].Why != c.left || found[i].Repaired != (repair && c.left == ""):
					w.fail("%s, repair %v: found %+v, left %q", name, repair, found[i], c.left)
				}
			}
			if c.left == "" {
				w.consistent()
			}
		})
	}
}

// What is on one side only, and what an audit says of it.
func TestAudit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *world)
		want   OrphanKind
		fixed  bool
	}{
		"nothing":   {func(*world) {}, "", false},
		"principal": {func(w *world) { w.forget(journal.Accounts, "ba-1") }, OrphanPrincipal, true},
		"key":       {func(w *world) { w.service.DropKeys(team, "ba-1") }, OrphanRecord, false},
		"bucket": {func(w *world) {
			w.forget(journal.Buckets, "data")
			w.forget(journal.Accounts, "ba-1")
			w.service.DropKeys(team, "ba-1")
		}, OrphanBucket, false},
		"its bucket": {func(w *world) { w.service.DropBucket("data") }, OrphanRecord, false},
		"contract":   {func(w *world) { w.service.DropContract(team) }, OrphanRecord, false},
	} {
		for _, fix := range []bool{false, true} {
			in(t, memory.Repeated, false, func(w *world, p *process) {
				w.must("create", func() error { return w.create(p, "data", nil) })
				w.must("grant", func() error { _, err := w.grant(p, "ba-1", "data"); return err })
				a := Audit{Fix: fix, Buckets: []cosi.BucketID{{ContractID: teamID, Bucket: "data"}}, Accounts: []cosi.AccountID{{ContractID: teamID, Account: "ba-1"}}}
				c.change(w)
				found, err := p.AuditContract(w.ctx(), teamID, a)
				switch {
				case err != nil:
					w.fail("%s: %v", name, err)
				case c.want == "" && len(found) == 0:
				case c.want == "" || !slices.ContainsFunc(found, func(o Orphan) bool { return o.Kind == c.want && o.Fixed == (fix && c.fixed) }):
					w.fail("%s, fix %v: found %+v, want %q", name, fix, found, c.want)
				}
				if n := len(w.service.Keys()); c.fixed && fix && n != 1 {
					w.fail("%s: %d keys are left, want the contract's own", name, n)
				}
			})
		}
	}
}

func (w *world) forget(kind journal.RecordKind, name string) {
	w.store.lose(journal.Key{Kind: kind, ID: teamID.String() + "." + name})
}

// Random calls on a few buckets and accesses by two drivers, with faults at
// random steps, end in what was wanted last, and in nothing when all is deleted.
func TestRandomWalks(t *testing.T) {
	t.Parallel()
	for n := range *seeds * 5 {
		s := uint64(n) + 1
		if *seed != 0 {
			s = *seed
		}
		synctest.Test(t, func(t *testing.T) { randomWalk(t, s) })
		if t.Failed() {
			t.Fatalf("with -seed %d", s)
		}
	}
}

func randomWalk(t *testing.T, seed uint64) {
	secrets := []memory.Secrets{memory.Chosen, memory.Repeated, memory.Once}[seed%3]
	w := newWorld(t, secrets, seed%2 == 1, seed)
	w.terms[team] = config.Terms{Listed: team, Backend: backend, OnLastBucket: []config.OnLastBucket{config.Keep, config.Cancel}[seed/2%2]}
	fates := []fate{lost, refused, unanswered, killed, killedThen}
	faults := rand.New(rand.NewPCG(seed, 1)) // not w.rand: what is done after an answer takes steps beside the walk
	w.sched.follow(func(int, string) fate {
		if faults.IntN(40) == 0 {
			return fates[faults.IntN(len(fates))]
		}
		return carried
	})
	drivers := []*process{w.start(), w.start()}
	buckets, accesses := []string{"b-1", "b-2"}, []string{"ba-1", "ba-2", "ba-3"}
	wanted := map[string]bool{}         // buckets
	on := map[string]string{}           // the bucket of an access that is wanted
	keys := map[string]secret.KeyPair{} // the last answer to a grant
	for range 40 {
		synctest.Wait()
		i := w.rand.IntN(2)
		if drivers[i].killed() {
			drivers[i].Wait()
			drivers[i] = w.start()
		}
		p, b, a := drivers[i], buckets[w.rand.IntN(2)], accesses[w.rand.IntN(3)]
		switch w.rand.IntN(6) {
		case 0, 1:
			if w.create(p, b, emptied) == nil {
				wanted[b] = true
			}
		case 2, 3:
			if on[a] == "" || on[a] == b {
				if key, err := w.grant(p, a, b); err == nil {
					if had, ok := keys[a]; ok && on[a] == b && had != key {
						w.fail("a repeated grant of %s answers another key", a)
					}
					if !w.works(key, b) {
						w.fail("the key of %s does not work", a)
					}
					keys[a] = key
				}
				on[a] = b
			}
		case 4:
			if w.inspect(p) == nil && w.rand.IntN(2) == 0 {
				if key, ok := keys[a]; ok && wanted[on[a]] && !w.works(key, on[a]) {
					w.fail("the key of %s does not work after an inspection", a)
				}
			}
		case 5:
			if w.rand.IntN(2) == 0 {
				w.must("revoke", func() error { return w.revoke(w.alive(drivers), a) })
				if key, ok := keys[a]; ok && on[a] != "" && w.service.Buckets()[on[a]] != "" && w.works(key, on[a]) {
					w.fail("the key of %s works after it was revoked", a)
				}
				delete(on, a)
				delete(keys, a)
				continue
			}
			w.must("delete", func() error { return w.delete(w.alive(drivers), b) })
			wanted[b] = false
			for a, at := range on {
				if at == b {
					delete(on, a)
					delete(keys, a)
				}
			}
		}
	}
	synctest.Wait()
	w.sched.follow(nil)
	p := w.start()
	for a, b := range on {
		if wanted[b] {
			var key secret.KeyPair
			w.must("grant", func() (err error) { key, err = w.grant(p, a, b); return err })
			if had, ok := keys[a]; ok && had != key || !w.works(key, b) {
				w.fail("at the end the key of %s is another, or does not work", a)
			}
		}
	}
	for _, a := range accesses {
		w.must("revoke", func() error { return w.revoke(p, a) })
	}
	for _, b := range buckets {
		w.must("delete", func() error { return w.delete(p, b) })
	}
	w.must("inspect", func() error { return w.inspect(p) })
	if len(w.service.Buckets()) > 0 || slices.ContainsFunc(w.service.Keys(), func(k memory.Key) bool { return k.Slot != cosi.ContractSlot }) {
		w.fail("left: buckets %v, keys %v", w.service.Buckets(), w.service.Keys())
	}
	w.consistent()
}

// alive is the first of some drivers, restarted if it was killed.
func (w *world) alive(drivers []*process) *process {
	if drivers[0].killed() {
		drivers[0].Wait()
		drivers[0] = w.start()
	}
	return drivers[0]
}

// Of more calls at once than a guard has room for, as many succeed as there is
// room, whatever order their steps take.
func TestGuardIsExact(t *testing.T) {
	t.Parallel()
	for s := range *seeds * 5 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, memory.Chosen, false, uint64(s)+1)
			three, four := int64(3), int64(4)
			w.terms[team] = config.Terms{Listed: team, Backend: backend, Guard: params.Guard{MaxBuckets: &three, MaxKeys: &four}}
			p := w.start()
			made := func(what string, room int64, call func(name string) error) (n int64) {
				var calls []func() error
				for i := range room + 1 {
					calls = append(calls, func() error {
						for range i { // they do not all begin at once
							_ = p.step(w.ctx(), "begin", func() error { return nil })
						}
						return call(fmt.Sprintf("%s-%d", what, i))
					})
				}
				for _, err := range w.together(calls...) {
					if err == nil {
						n++
						continue
					}
					w.kind(what, err, fault.LimitExceeded, "guard.max")
				}
				return n
			}
			if n := made("b", three, func(name string) error { return w.create(p, name, nil) }); n != three {
				w.fail("%d buckets were made, not %d", n, three)
			}
			bucket := slices.Sorted(maps.Keys(w.service.Buckets()))[0]
			if n := made("ba", four, func(name string) error { _, err := w.grant(p, name, bucket); return err }); n != four {
				w.fail("%d keys were issued, not %d", n, four)
			}
		})
		if t.Failed() {
			t.Fatalf("with seed %d", s+1)
		}
	}
}

// Changed terms reach the service also while another call opens the contract.
func TestConvergeBesideACall(t *testing.T) {
	t.Parallel()
	for s := range *seeds {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, memory.Chosen, false, uint64(s)+1)
			p := w.start()
			w.must("create", func() error { return w.create(p, "data", nil) })
			p.Wait()
			p.kill()
			p = w.start() // which has not opened the contract
			terms := w.terms[team]
			terms.Suspend = true
			w.terms[team] = terms
			w.together(
				func() error {
					_, err := p.InspectBucket(w.ctx(), cosi.BucketID{ContractID: teamID, Bucket: "data"}, false)
					return err
				},
				func() error {
					p.Converge(w.ctx(), map[cosi.ContractID]config.Terms{teamID: terms}, time.Minute)
					return nil
				},
			)
			if !w.service.Suspended(team) {
				w.fail("the contract is not suspended")
			}
		})
		if t.Failed() {
			t.Fatalf("with seed %d", s+1)
		}
	}
}
