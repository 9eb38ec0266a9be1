package provisioner

import (
	"cmp"
	"context"
	"strings"
	"sync"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// A contract's guard is asked when something new is to be made under it. What
// was made before stays, and its repeats are answered, however the guard has
// changed since: to tighten it is no reason to report a running application
// broken.

// bucketClass is a BucketClass under a contract: its parameters, what they ask
// for, and what they come to with the contract's defaults.
type bucketClass struct {
	given                map[string]string
	requested, effective params.Bucket
}

// classUnder reads a BucketClass. A class that only the defaults make wrong is
// the platform's fault and the class's, and can be put right at either.
func classUnder(terms config.Terms, given map[string]string) (bucketClass, error) {
	requested, err := params.ParseBucket(given)
	if err != nil {
		return bucketClass{given: given, requested: requested}, err
	}
	effective, err := params.ParseBucket(params.BucketClass.Under(terms.Defaults.BucketClass, given))
	if err != nil {
		err = fault.Wrap(fault.FailedPrecondition, err, "with the defaults of contract %s: %s", terms.Listed, err)
	}
	return bucketClass{given: given, requested: requested, effective: effective}, err
}

// guardBucket reports why a contract takes no new bucket of a class in a region,
// which is asked for if it is not known. Otherwise the bucket counts until release
// is called, when it is in the journal or was not made.
func (p *Provisioner) guardBucket(ctx context.Context, id cosi.BucketID, terms config.Terms, class bucketClass, region string) (release func(), err error) {
	if len(terms.Guard.Regions) > 0 {
		if region, err = p.effectiveRegion(ctx, terms, region); err != nil {
			return nil, err
		}
	}
	if err := refusal(terms, terms.Guard.Bucket(class.given, class.effective, region)); err != nil {
		return nil, err
	}
	return p.rooms.take(ctx, room{id.ContractID, journal.Buckets}, terms.Guard.MaxBuckets, func() (int, error) {
		buckets, _, err := p.journal.Usage(ctx, id.ContractID)
		return buckets, err
	}, func(most int64, have int) error {
		return fault.New(fault.LimitExceeded, "contract %s: guard.maxBuckets: it has %d buckets, of at most %d; delete one, or ask the platform's operator", terms.Listed, have, most)
	})
}

// effectiveRegion is where a bucket comes to be whose class names a region, or
// none.
func (p *Provisioner) effectiveRegion(ctx context.Context, terms config.Terms, region string) (string, error) {
	if region = cmp.Or(region, terms.Region); region != "" {
		return region, nil
	}
	regions, err := p.backends[terms.Backend].Regions(ctx)
	if err == nil && len(regions) == 0 {
		err = fault.New(fault.Unavailable, "backend %s has no region yet", terms.Backend)
	}
	if err != nil {
		return "", err
	}
	return regions[0].Region, nil
}

// guardKey reports why a contract gives no new key; see guardBucket.
func (p *Provisioner) guardKey(ctx context.Context, id cosi.AccountID, terms config.Terms, broken []string) (release func(), err error) {
	if err := refusal(terms, broken); err != nil {
		return nil, err
	}
	return p.rooms.take(ctx, room{id.ContractID, journal.Accounts}, terms.Guard.MaxKeys, func() (int, error) {
		_, accounts, err := p.journal.Usage(ctx, id.ContractID)
		return accounts, err
	}, func(most int64, have int) error {
		return fault.New(fault.LimitExceeded, "contract %s: guard.maxKeys: it has %d keys, of at most %d; delete a BucketAccess, or ask the platform's operator", terms.Listed, have, most)
	})
}

// refusal names the rules that a class breaks. The configuration may change, so
// the call may succeed later.
func refusal(terms config.Terms, broken []string) error {
	if len(broken) == 0 {
		return nil
	}
	return fault.New(fault.FailedPrecondition, "contract %s does not allow it: %s; use another class, or ask the platform's operator", terms.Listed, strings.Join(broken, "; "))
}

// rooms counts what calls under way are making, beside what the journal has.
type rooms struct {
	mu     sync.Mutex
	making map[room]*making
}

type room struct {
	contract cosi.ContractID
	kind     journal.RecordKind
}

type making struct {
	n      int
	change chan struct{} // closed when n falls
}

// take counts one more of a kind, if there is room for it below most. What a call
// makes may be in the journal already, so only the journal says that there is no
// room: near the limit a call waits for those under way.
func (r *rooms) take(ctx context.Context, of room, most *int64, have func() (int, error), full func(most int64, have int) error) (release func(), err error) {
	if most == nil {
		return func() {}, nil
	}
	for {
		r.mu.Lock()
		n, err := have()
		if err == nil && int64(n) >= *most {
			err = full(*most, n)
		}
		if err != nil {
			r.mu.Unlock()
			return nil, err
		}
		m := r.making[of]
		if m == nil {
			m = &making{change: make(chan struct{})}
		}
		if int64(n+m.n) < *most {
			m.n++
			if r.making == nil {
				r.making = map[room]*making{}
			}
			r.making[of] = m
			r.mu.Unlock()
			return func() { r.release(of) }, nil
		}
		change := m.change
		r.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return nil, fault.In(ctx.Err(), "waiting for other calls under contract %s, near its guard's limit", of.contract)
		}
	}
}

func (r *rooms) release(of room) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.making[of]
	close(m.change)
	m.change = make(chan struct{})
	if m.n--; m.n == 0 {
		delete(r.making, of)
	}
}
