package contracttest

import (
	"context"
	"errors"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

func testCapabilitiesStand(e *env) {
	a, b := e.Provider.Capabilities(), e.h.Open(e.T).Provider.Capabilities()
	if a != b {
		e.Errorf("capabilities differ from one provider to the next:\n%+v\n%+v", a, b)
	}
	switch a.ScopeBy {
	case contract.ScopeByNone, contract.ScopeByKey, contract.ScopeByIdentityPolicy, contract.ScopeByBucketPolicy:
	default:
		e.Errorf("ScopeBy is %q", a.ScopeBy)
	}
	e.Lose(-1)
	_ = e.Provider.Capabilities()
	if n := e.Calls(); n != 0 {
		e.Errorf("Capabilities made %d calls", n)
	}
}

func testRegionsAndCheck(e *env) {
	regions, err := e.Provider.Regions(e.Context())
	e.must(err)
	if len(regions) == 0 {
		e.Error("no region")
	}
	for _, r := range regions {
		if r.Region == "" || r.URL == "" {
			e.Errorf("region %+v", r)
		}
	}
	e.must(e.Provider.Check(e.Context()))
}

func testEnsureTwice(e *env) {
	t := e.sign()
	if t.Owner != Owner {
		e.Errorf("owner is %q, want %q", t.Owner, Owner)
	}
	again, err := e.ensure(contract.Spec{Name: t.Name, Owner: Owner})
	e.must(err)
	got, err := e.Provider.GetContract(e.Context(), t.Name)
	e.must(err)
	for _, c := range []contract.Contract{again, got} {
		if c.Name != t.Name || c.Owner != Owner || c.State != contract.StateActive || len(c.Endpoints) == 0 {
			e.Errorf("contract %+v, want %+v", c, t.Contract)
		}
	}
	// Nothing of what it held is lost.
	b := t.bucket()
	_, err = e.ensure(contract.Spec{Name: t.Name, Owner: Owner, Display: "another name"})
	e.must(err)
	e.allowed("the contract's key", e.put(t.client(t.key), b, "o"))
}

func testOtherOwner(e *env) {
	t := e.sign()
	_, err := contract.NewService("test", "another-driver", nil, e.bare).EnsureContract(e.Context(), contract.Spec{Name: t.Name})
	e.kind("ensure with another owner", err, fault.Conflict)
	got, err := e.Provider.GetContract(e.Context(), t.Name)
	e.must(err)
	if got.Owner != Owner || got.State != contract.StateActive {
		e.Errorf("contract %+v has changed", got)
	}
	e.allowed("the contract's key", t.engine.Create(e.Context(), t.bucketName(), params.Bucket{Contract: t.Name}))
}

// A contract keeps the mark of the journal that signed it, or stays without one, and
// another journal's driver is refused unless it has taken over from that one.
func testOtherJournal(e *env) {
	t := e.sign()
	as := func(identities ...string) *contract.Service {
		return contract.NewService("test", Owner, journals(identities...), e.bare)
	}
	for range 2 {
		_, err := as(otherJournal).EnsureContract(e.Context(), contract.Spec{Name: t.Name, Display: "another name"})
		e.kind("ensure with another journal", err, fault.FailedPrecondition)
		_, err = as(otherJournal).Signed(e.Context(), t.Name)
		if e.kind("look with another journal", err, fault.FailedPrecondition); !errors.Is(err, contract.ErrOtherJournal) {
			e.Errorf("look with another journal: %v", err)
		}
	}
	for _, s := range []*contract.Service{as(otherJournal, ownJournal), as(ownJournal)} {
		got, err := s.EnsureContract(e.Context(), contract.Spec{Name: t.Name, Display: "another name"})
		e.must(err)
		read, err := s.Signed(e.Context(), t.Name)
		e.must(err)
		if got.Journal != ownJournal || read.Journal != ownJournal {
			e.Errorf("the journal's mark is %q and %q, want %q", got.Journal, read.Journal, ownJournal)
		}
		_, differing, err := s.CompareContract(e.Context(), contract.Spec{Name: t.Name, Display: "another name"})
		if e.must(err); len(differing) > 0 {
			e.Errorf("it differs in %q", differing)
		}
	}
	e.allowed("the contract's key", t.engine.Create(e.Context(), t.bucketName(), params.Bucket{Contract: t.Name}))

	name := label("t")
	e.Cleanup(func() { t.cancel(name) })
	for _, s := range []*contract.Service{contract.NewService("test", Owner, nil, e.bare), as(ownJournal), as(otherJournal)} {
		_, err := s.EnsureContract(e.Context(), contract.Spec{Name: name})
		e.must(err)
		if got, err := s.Signed(e.Context(), name); err != nil || got.Journal != "" {
			e.Errorf("a contract of before has the journal's mark %q, %v", got.Journal, err)
		}
	}
}

// bucketName is one that is deleted with the test.
func (t *tenant) bucketName() string {
	name := label("b")
	t.Cleanup(func() {
		if err := t.engine.Delete(context.WithoutCancel(t.Context()), name); err != nil {
			t.Errorf("bucket %s: %v", name, err)
		}
	})
	return name
}

func testUnknown(e *env) {
	name := label("none")
	_, err := e.Provider.GetContract(e.Context(), name)
	e.kind("GetContract", err, fault.NotFound)
	_, err = e.Provider.ListKeys(e.Context(), name, "")
	e.kind("ListKeys", err, fault.NotFound)
	_, err = e.Provider.ListKeys(e.Context(), name, cosi.ContractSlot)
	e.kind("ListKeys of a slot", err, fault.NotFound)
	_, err = e.Provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: name, Slot: cosi.ContractSlot, Proposed: propose()})
	e.kind("IssueKey", err, fault.NotFound)
	scope := &contract.Scope{Buckets: []contract.BucketScope{scoped(label("b"))}}
	_, err = e.Provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: name, Slot: "s", Scope: scope, Proposed: propose()})
	e.kind("IssueKey to a bucket", err, fault.NotFound)
	e.must(e.Provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: name, Slot: "s"}))
	e.must(e.Provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: name, Slot: "s", AccessKeyID: "AK"}))
	e.must(e.Provider.DeleteContract(e.Context(), name))
}

func testPending(e *env) {
	if e.h.Slow == nil {
		return // a service that is always at once
	}
	e.open(e.h.Slow)
	spec := contract.Spec{Name: label("t"), Owner: Owner}
	c, err := e.Provider.EnsureContract(e.Context(), spec)
	e.must(err)
	if c.State != contract.StatePending || c.RetryAfter <= 0 {
		e.Errorf("contract %+v, want a pending one and when to ask again", c)
	}
	_, err = e.Provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: spec.Name, Slot: cosi.ContractSlot, Proposed: propose()})
	e.kind("a key of a pending contract", err, fault.FailedPrecondition)
	c, err = e.ensure(spec)
	e.must(err)
	if c.State != contract.StateActive {
		e.Errorf("contract %+v, want an active one", c)
	}
	(&tenant{env: e}).cancel(spec.Name)
}

func testSuspend(e *env) {
	if !e.Provider.Capabilities().Suspend {
		return // testUnsupported has the rest
	}
	t := e.sign()
	b := t.bucket()
	app := t.client(t.key)
	if e.limited() {
		_, pair := t.grant(scoped(b))
		app = t.client(pair)
	}
	e.allowed("put", e.put(app, b, "o"))
	c, err := e.ensure(contract.Spec{Name: t.Name, Owner: Owner, Suspend: true})
	e.must(err)
	if c.State != contract.StateSuspended {
		e.Errorf("contract %+v, want a suspended one", c)
	}
	// What it held comes back when the test ends, or it could not be deleted.
	resume := func() {
		c, err := e.ensure(contract.Spec{Name: t.Name, Owner: Owner})
		e.must(err)
		if c.State != contract.StateActive {
			e.Errorf("contract %+v, want an active one", c)
		}
	}
	func() {
		defer resume()
		e.dead("put under a suspended contract", func() error { return e.put(app, b, "o") })
		e.dead("the suspended contract's own key", func() error { return e.put(t.client(t.key), b, "o") })
		_, err := e.Provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: t.Name, Slot: "s", Scope: &contract.Scope{Buckets: []contract.BucketScope{scoped(b)}}, Proposed: propose()})
		e.kind("a key of a suspended contract", err, fault.FailedPrecondition)
	}()
	e.eventually("put under the resumed contract", func() error { return e.put(app, b, "o") })
}

// eventually checks that something works when the service has settled.
func (e *env) eventually(what string, do func() error) {
	e.Helper()
	deadline := time.Now().Add(e.Provider.Capabilities().Settles)
	for {
		err := do()
		if err == nil || time.Now().After(deadline) {
			e.allowed(what, err)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// bounds are the bounds that a contract can have, each with whether the
// provider says so and whether the server under test has it.
func (e *env) bounds() map[string]struct {
	quota    func(n int64) contract.Quota
	can, has bool
} {
	can, lacks := e.Provider.Capabilities().Quota, e.h.Lacks
	return map[string]struct {
		quota    func(n int64) contract.Quota
		can, has bool
	}{
		"buckets": {func(n int64) contract.Quota { return contract.Quota{MaxBuckets: &n} }, can.Buckets, can.Buckets && !lacks.Buckets},
		"keys":    {func(n int64) contract.Quota { return contract.Quota{MaxKeys: &n} }, can.Keys, can.Keys && !lacks.Keys},
		"bytes":   {func(n int64) contract.Quota { return contract.Quota{MaxBytes: &n} }, can.Bytes, can.Bytes && !lacks.Bytes},
		"objects": {func(n int64) contract.Quota { return contract.Quota{MaxObjects: &n} }, can.Objects, can.Objects && !lacks.Objects},
	}
}

func testQuota(e *env) {
	for name, bound := range e.bounds() {
		t := e.sign()
		_, err := e.ensure(contract.Spec{Name: t.Name, Owner: Owner, Quota: bound.quota(1)})
		if !bound.has {
			e.kind("a bound on "+name, err, fault.Unsupported)
			continue
		}
		e.must(err)
		var over func() error // goes over a bound of one
		switch name {
		case "buckets":
			t.bucket()
			second := t.bucketName()
			over = func() error { return t.engine.Create(e.Context(), second, params.Bucket{Contract: t.Name}) }
		case "keys": // the contract's own is one
			b := t.bucket()
			proposed := propose()
			over = func() error {
				scope := &contract.Scope{Buckets: []contract.BucketScope{scoped(b)}}
				_, err := e.Provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: t.Name, Slot: "s", Scope: scope, Proposed: proposed})
				return err
			}
		case "bytes", "objects":
			b := t.bucket()
			n := 0
			over = func() error {
				n++
				return e.put(t.client(t.key), b, "object-"+string(rune('a'+n%26)))
			}
			_ = over() // what is there first is not counted against the next
		}
		e.dead("more than one of "+name, func() error {
			err := over()
			if fault.Is(err, fault.LimitExceeded) || fault.Is(err, fault.PermissionDenied) {
				e.told.failed(err)
				return limitReached
			}
			return err
		})
		_, err = e.ensure(contract.Spec{Name: t.Name, Owner: Owner, Quota: bound.quota(1 << 20)})
		e.must(err)
		e.eventually("one more of "+name, over)
	}
}

func testUnsupported(e *env) {
	can := e.Provider.Capabilities()
	n := int64(10)
	for what, c := range map[string]struct {
		can  bool
		spec contract.Spec
	}{
		"a plan":           {can.Plans, contract.Spec{Plan: "gold"}},
		"labels":           {can.Labels, contract.Spec{Labels: map[string]string{"team": "a"}}},
		"suspension":       {can.Suspend, contract.Spec{Suspend: true}},
		"a bound on bytes": {can.Quota.Bytes, contract.Spec{Quota: contract.Quota{MaxBytes: &n}}},
	} {
		if c.can {
			continue
		}
		c.spec.Name, c.spec.Owner = label("t"), Owner
		_, err := e.Provider.EnsureContract(e.Context(), c.spec)
		e.kind(what, err, fault.Unsupported)
		_, err = e.Provider.GetContract(e.Context(), c.spec.Name)
		e.kind("the contract that was asked for with "+what, err, fault.NotFound)
	}
	if can.Labels {
		t := e.sign()
		_, err := e.ensure(contract.Spec{Name: t.Name, Owner: Owner, Labels: map[string]string{"team": "a"}})
		e.must(err)
		_, err = e.ensure(contract.Spec{Name: t.Name, Owner: Owner, Labels: map[string]string{"team": "b", "stage": "test"}})
		e.must(err)
	}
}

func testDeleteContract(e *env) {
	t := e.sign()
	b := t.bucketName()
	e.must(t.engine.Create(e.Context(), b, params.Bucket{Contract: t.Name}))
	scope := &contract.Scope{Buckets: []contract.BucketScope{scoped(b)}}
	pair := t.key
	if e.limited() {
		pair = e.issue(contract.IssueKeyRequest{Contract: t.Name, Slot: "s", Scope: scope, Proposed: propose()})
	}
	e.kind("cancelling a contract with a bucket", e.Provider.DeleteContract(e.Context(), t.Name), fault.FailedPrecondition)
	app := t.client(pair)
	e.allowed("put under the contract that was not cancelled", e.put(app, b, "o"))
	e.allowed("delete", e.remove(app, b, "o"))
	got, err := e.Provider.GetContract(e.Context(), t.Name)
	e.must(err)
	if got.State != contract.StateActive {
		e.Errorf("contract %+v, want an active one", got)
	}

	e.must(t.engine.Delete(e.Context(), b))
	_, err = settle(e, func() (struct{}, bool, error) {
		err := e.Provider.DeleteContract(e.Context(), t.Name)
		return struct{}{}, fault.Is(err, fault.Pending), err
	})
	e.must(err)
	e.must(e.Provider.DeleteContract(e.Context(), t.Name))
	_, err = e.Provider.GetContract(e.Context(), t.Name)
	e.kind("GetContract of the cancelled", err, fault.NotFound)
	_, err = e.Provider.ListKeys(e.Context(), t.Name, "")
	e.kind("ListKeys of the cancelled", err, fault.NotFound)
	e.dead("a key of the cancelled contract", func() error { return e.list(app, b, "") })
	e.dead("the cancelled contract's own key", func() error { return e.list(t.client(t.key), b, "") })

	// The name is free again, and what comes under it is empty.
	_, err = e.ensure(contract.Spec{Name: t.Name, Owner: Owner})
	e.must(err)
	if keys := t.ids(""); len(keys) != 0 {
		e.Errorf("the new contract has keys %q", keys)
	}
	t.use(e.issue(contract.IssueKeyRequest{Contract: t.Name, Slot: cosi.ContractSlot, Proposed: propose()}))
}
