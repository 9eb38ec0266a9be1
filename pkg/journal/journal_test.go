package journal_test

import (
	"context"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// failing is a store of which every call ends in an error.
type failing struct {
	journal.Store
	with error
}

func (f failing) Get(context.Context, journal.Key) (journal.Entry, error) {
	return journal.Entry{}, f.with
}
func (f failing) Index(context.Context) (*journal.Index, error)                { return nil, f.with }
func (f failing) Put(context.Context, journal.Entry) (version uint64, _ error) { return 0, f.with }
func (f failing) Delete(context.Context, ...journal.Entry) error               { return f.with }

// Only the absence of a record is the store's word on a request. What it refuses must
// not be taken for a refusal by a storage service, which ends a key's rotation.
func TestRefusalsOfTheStore(t *testing.T) {
	for kind, want := range map[fault.Kind]fault.Kind{
		fault.NotFound: fault.NotFound, fault.PermissionDenied: fault.Unavailable, fault.FailedPrecondition: fault.Unavailable,
		fault.LimitExceeded: fault.Unavailable, fault.RateLimited: fault.RateLimited, fault.Internal: fault.Internal,
	} {
		j, ctx := journal.New(failing{with: fault.New(kind, "said")}), t.Context()
		calls := map[string]error{}
		_, calls["Account"] = j.Account(ctx, cosi.AccountID{})
		_, calls["Bucket"] = j.Bucket(ctx, cosi.BucketID{})
		_, calls["Walk"] = j.Walk(ctx, journal.Place{}, 1)
		_, calls["Unformatted"] = j.Unformatted(ctx)
		calls["SaveAccount"] = j.SaveAccount(ctx, &journal.Account{})
		calls["Delete"] = j.Delete(ctx, &journal.Account{})
		for name, err := range calls {
			if fault.KindOf(err) != want || err.Error() != "said" {
				t.Errorf("%s: %s %v for %s", name, fault.KindOf(err), err, kind)
			}
		}
	}
}
