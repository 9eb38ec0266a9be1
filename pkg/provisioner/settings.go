package provisioner

import (
	"context"
	"errors"
	"maps"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/lock"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
)

// Settings stand over a bucket's class. The record keeps those that were accepted
// last, with what they come to: so a repeated create compares the class alone
// ([journal.Bucket].Requested), and brings back, as drift does, the whole
// (Effective). Settings that are not accepted change nothing. They are for buckets
// that the driver has made: an adopted one is left as it is.

// ErrNotAccepted is the cause where settings themselves are at fault, or the contract
// does not allow them. The bucket is as it was.
var ErrNotAccepted = errors.New("the settings are not accepted")

func notAccepted(err error) error {
	return fault.Wrap(fault.KindOf(err), errors.Join(ErrNotAccepted, err), "%s", err)
}

// Configured is a bucket with settings.
type Configured struct {
	// Effective is what it is to be: its class, the contract's defaults and the settings
	// together.
	Effective params.Bucket
	// Accepted says that the contract's guard was asked, and allows the settings. What
	// fails before that does not tell whether it does.
	Accepted bool
	// State is what it has; nil if it was not looked at.
	State *bucket.State
	// Use is what it holds, as far as its service tells; it is looked at with State.
	Use contract.BucketUse
}

// Settled are the buckets that have settings, by the claims that these are for.
func (p *Provisioner) Settled(ctx context.Context) (map[string][]cosi.BucketID, error) {
	return p.journal.Settled(ctx)
}

// Configure brings a bucket to its class with settings over it; without any, nil, to
// its class. If it is so already, the service is asked only if look is true. See
// [ErrNotAccepted]. NotFound if the driver has no such bucket. Pending if its class is
// not known yet. FailedPrecondition if the service refuses a setting: the bucket is
// then as it was before.
func (p *Provisioner) Configure(ctx context.Context, id cosi.BucketID, s *journal.Settings, look bool) (Configured, error) {
	if _, err := p.sites.At(id.ContractID); err != nil {
		return Configured{}, err
	}
	ctx, call, err := p.beginIdle(ctx, lock.Shared("contract", id.ContractID), lock.Exclusive("bucket", id))
	if err != nil {
		return Configured{}, err
	}
	defer call.end()
	record, err := p.journal.Bucket(ctx, id)
	if err != nil {
		return Configured{}, err
	}
	out := Configured{Effective: record.Effective}
	switch {
	case s == nil && (record.Settings == nil || record.Emptying != nil):
		return out, nil
	case record.Emptying != nil:
		return out, fault.New(fault.FailedPrecondition, "bucket %s is being deleted; nothing is changed in it", id)
	case record.Adopted:
		return out, fault.New(fault.FailedPrecondition, "bucket %s was not made by this driver, which changes nothing in it; change it where it was made", id)
	case record.Unclassed:
		return out, fault.New(fault.Pending, "the class of bucket %s is not known until its create call is repeated; restart the sidecar if it is not", id)
	}
	terms, known := p.termsOf(id.ContractID)
	if !known {
		return out, noContract(id.Contract)
	}
	if s != nil && terms.Namespace != "" && !strings.HasPrefix(s.Claim, terms.Namespace+"/") {
		return out, notAccepted(fault.New(fault.FailedPrecondition, "contract %s is not for this namespace; claim a bucket under a Contract of this namespace, and name that claim", terms.Listed))
	}
	spec, err := specWith(terms, record, s)
	if err == nil && s != nil && s.Parameters["policy"] != "" {
		err = p.keepsOut(ctx, id, spec.PolicyFor(id.Bucket))
	}
	if err != nil {
		return out, err
	}
	out.Accepted = true
	if same := len(record.Effective.Differences(spec)) == 0 && sameSettings(record.Settings, s); !same || record.Leaving != nil {
		if err := p.settle(ctx, record, spec, s); err != nil {
			return out, err
		}
		look = true
	}
	out.Effective = spec
	if !look {
		return out, nil
	}
	err = p.withBucket(ctx, record, func(ctx context.Context, engine *bucket.Engine) error {
		state, err := engine.State(ctx, id.Bucket, spec)
		out.State = &state
		return err
	})
	if err != nil {
		out.State = nil
		return out, err
	}
	if use, err := p.BucketUse(ctx, id); err == nil { // one that does not tell leaves it out
		out.Use = use
	}
	return out, nil
}

// keepsOut refuses a policy that could lock the driver out of a bucket.
func (p *Provisioner) keepsOut(ctx context.Context, id cosi.BucketID, document string) error {
	own := []string{id.Contract}
	if record, err := p.journal.Contract(ctx, id.ContractID); err == nil {
		own = append(own, record.Issued.AccessKeyID)
	} else if !fault.Is(err, fault.NotFound) {
		return err
	}
	locks, err := policy.LocksOut(document, own...)
	if err == nil && locks {
		err = notAccepted(fault.New(fault.InvalidArgument, "BucketSettings parameters: policy: a Deny in it may lock the driver out of the bucket; name the users that it is for, or list actions without those that read the bucket's configuration or change its policy (a Condition does not help)"))
	}
	return err
}

// settle brings a bucket to settings, or to none. Whose they were stays known until the
// bucket has none of them.
func (p *Provisioner) settle(ctx context.Context, record *journal.Bucket, spec params.Bucket, s *journal.Settings) error {
	if s != nil {
		return p.bring(ctx, record, spec, s)
	}
	if err := p.bring(ctx, record, spec, &journal.Settings{Claim: record.Settings.Claim}); err != nil {
		return err
	}
	record.Settings = nil
	return p.journal.SaveBucket(ctx, record)
}

func sameSettings(a, b *journal.Settings) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Claim == b.Claim && maps.Equal(a.Parameters, b.Parameters)
}

// specWith is what a bucket is to be by its class, the contract's defaults of today and
// settings, which its guard has to allow.
func specWith(terms config.Terms, record *journal.Bucket, s *journal.Settings) (params.Bucket, error) {
	spec, err := params.ParseBucket(params.BucketClass.Under(terms.Defaults.BucketClass, params.Given(record.Requested)))
	if err != nil { // the class and the defaults, which a new bucket is refused for
		spec = record.Requested
	}
	if s == nil {
		return spec, nil
	}
	if spec, err = spec.With(s.Parameters); err != nil {
		return spec, notAccepted(err)
	}
	if broken := terms.Guard.Settings(s.Parameters, spec); len(broken) > 0 {
		return spec, notAccepted(fault.New(fault.FailedPrecondition, "contract %s does not allow it: %s; change the settings, or ask the platform's operator", terms.Listed, strings.Join(broken, "; ")))
	}
	return spec, nil
}
