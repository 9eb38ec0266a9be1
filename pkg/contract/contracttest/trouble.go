package contracttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aws/smithy-go"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// limitReached makes a limit look as a refusal of the storage does.
var limitReached error = &smithy.GenericAPIError{Code: "QuotaExceeded"}

// repeated makes a call again until it succeeds, as the sidecars do.
func repeated(do func() error) error {
	var err error
	for range 6 {
		if err = do(); err == nil || !heals(err) {
			return err
		}
	}
	return fmt.Errorf("after 6 calls: %w", err)
}

// heals reports whether a call may succeed later.
func heals(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Unavailable || kind == fault.Pending || kind == fault.RateLimited
}

// testLostAnswers runs the life of a contract again and again, and loses the
// answer to one call more each time: whatever is lost, repeating ends with one
// contract, one key that works, and nothing at all.
func testLostAnswers(e *env) {
	const tooMany = 200
	for n := 1; ; n++ {
		if n == tooMany {
			e.Fatal("there is no end of calls")
		}
		// The bucket is made beforehand, with a line that loses nothing.
		e.Lose(0)
		t := e.sign()
		b := t.bucket()
		slot := label("s")
		name := label("t")
		spec := contract.Spec{Name: name, Owner: Owner}
		proposed := propose()
		scope := &contract.Scope{Buckets: []contract.BucketScope{scoped(b)}}

		e.Lose(n)
		step := func(what string, do func() error) {
			e.Helper()
			if err := repeated(do); err != nil {
				e.told.failed(err)
				e.Fatalf("answer %d is lost: %s: %v", n, what, err)
			}
		}
		step("sign", func() error {
			c, err := e.Provider.EnsureContract(e.Context(), spec)
			if err == nil && c.State != contract.StateActive {
				err = fault.New(fault.Pending, "contract %s is %s", name, c.State)
			}
			return err
		})
		step("the contract's key", func() error {
			_, err := e.Provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: name, Slot: cosi.ContractSlot, Proposed: propose()})
			return err
		})
		var pair secret.KeyPair
		step("a key", func() (err error) {
			pair, err = e.Provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: t.Name, Slot: slot, Scope: scope, Proposed: proposed})
			return err
		})
		e.told.issued(pair)
		step("list", func() error {
			_, err := e.Provider.ListKeys(e.Context(), t.Name, slot)
			return err
		})
		app := t.client(pair)
		if ids := t.ids(slot); len(ids) != 1 || ids[0] != pair.AccessKeyID {
			e.Errorf("answer %d is lost: the slot holds %q, want %s", n, ids, pair.AccessKeyID)
		}
		e.allowed(fmt.Sprintf("answer %d is lost: put", n), e.put(app, b, "o"))
		step("revoke", func() error {
			return e.Provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: t.Name, Slot: slot})
		})
		e.dead(fmt.Sprintf("answer %d is lost: put after revoke", n), func() error { return e.put(app, b, "o") })
		step("cancel", func() error { return e.Provider.DeleteContract(e.Context(), name) })
		calls := e.Calls()
		e.Lose(0)
		if _, err := e.Provider.GetContract(e.Context(), name); !fault.Is(err, fault.NotFound) {
			e.Errorf("answer %d is lost: the contract is not gone: %v", n, err)
		}
		if e.Failed() || n > calls {
			return
		}
	}
}

// testSideBySide signs one contract and issues many keys to one bucket at once.
func testSideBySide(e *env) {
	const callers = 8
	spec := contract.Spec{Name: label("t"), Owner: Owner}
	all := func(do func(i int) error) {
		e.Helper()
		var group sync.WaitGroup
		errs := make([]error, callers)
		for i := range callers {
			group.Go(func() { errs[i] = repeated(func() error { return do(i) }) })
		}
		group.Wait()
		e.must(errors.Join(errs...))
	}
	all(func(int) error {
		_, err := e.Provider.EnsureContract(e.Context(), spec)
		return err
	})
	c, err := e.ensure(spec)
	e.must(err)
	(&tenant{env: e, Contract: c}).cancel(spec.Name)

	t := e.sign()
	b := t.bucket()
	pairs := make([]secret.KeyPair, callers)
	reqs := make([]contract.IssueKeyRequest, callers)
	for i := range reqs {
		reqs[i] = t.request(b)
	}
	all(func(i int) (err error) {
		pairs[i], err = e.Provider.IssueKey(e.Context(), reqs[i])
		return err
	})
	for i, pair := range pairs {
		e.told.issued(pair)
		e.allowed(fmt.Sprintf("put with key %d of %d", i, callers), e.put(t.client(pair), b, "o"))
	}
	// Every other one goes, at once; the rest still work.
	all(func(i int) error {
		if i%2 == 0 {
			return nil
		}
		return e.Provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: t.Name, Slot: reqs[i].Slot})
	})
	for i, pair := range pairs {
		if i%2 == 0 {
			e.allowed(fmt.Sprintf("put with key %d, which was not revoked", i), e.put(t.client(pair), b, "o"))
		} else {
			e.dead(fmt.Sprintf("put with key %d, which was revoked", i), func() error { return e.put(t.client(pair), b, "o") })
		}
	}
}

// every method that asks the service.
func methods(p contract.Provider, name string) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Check": p.Check,
		"EnsureContract": func(ctx context.Context) error {
			_, err := p.EnsureContract(ctx, contract.Spec{Name: name, Owner: Owner})
			return err
		},
		"GetContract": func(ctx context.Context) error {
			_, err := p.GetContract(ctx, name)
			return err
		},
		"DeleteContract": func(ctx context.Context) error { return p.DeleteContract(ctx, name) },
		"IssueKey": func(ctx context.Context) error {
			_, err := p.IssueKey(ctx, contract.IssueKeyRequest{Contract: name, Slot: cosi.ContractSlot, Proposed: propose()})
			return err
		},
		"ListKeys": func(ctx context.Context) error {
			_, err := p.ListKeys(ctx, name, "")
			return err
		},
		"RevokeKey": func(ctx context.Context) error {
			return p.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: name, Slot: "s"})
		},
	}
}

// mostCalls is how often a call that cannot succeed is made before it fails.
const mostCalls = 5

func testNoAnswer(e *env) {
	name := label("t")
	for what, do := range methods(e.Provider, name) {
		e.Lose(-1)
		err := do(e.Context())
		e.kind(what+" at a service that does not answer", err, fault.Unavailable)
		if n := e.Calls(); n == 0 || n > mostCalls {
			e.Errorf("%s: %d calls", what, n)
		}
		if again := do(e.Context()); err != nil && again != nil && again.Error() != err.Error() {
			e.Errorf("%s: the text changes from %q to %q", what, err, again)
		}
	}
	// A deadline is kept to, and giving up is not called a fault of the service.
	e.Lose(-1)
	ctx, cancel := context.WithTimeout(e.Context(), time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := e.Provider.GetContract(ctx, name)
	e.kind("a deadline", err, fault.Unavailable)
	if took := time.Since(began); took > 2*time.Second {
		e.Errorf("a deadline of a millisecond was kept to after %s", took)
	}
	given, give := context.WithCancel(e.Context())
	give()
	_, err = e.Provider.GetContract(given, name)
	e.kind("a call given up", err, fault.Canceled)
}

func testWrongCredentials(e *env) {
	e.open(e.h.Refused)
	for what, do := range methods(e.Provider, label("t")) {
		e.Lose(0)
		err := do(e.Context())
		e.kind(what+" with wrong credentials", err, fault.PermissionDenied)
		if err != nil && !strings.Contains(err.Error(), "check") {
			e.Errorf("%s: %q does not say what to check", what, err)
		}
		if n := e.Calls(); n == 0 || n > 2 {
			e.Errorf("%s: %d calls, where each is refused", what, n)
		}
	}
}
