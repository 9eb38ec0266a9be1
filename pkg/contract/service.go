package contract

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Service is a storage service as the use cases see it: one [Provider], with
// everything around it that is the same for all of them. What the provider
// cannot do is refused here before it is asked, optional interfaces have their
// fallback here, and every error names the contract.
type Service struct {
	name, owner string
	journals    Journals
	provider    Provider
	can         Capabilities
}

// Journals returns the identities of the journals whose contracts are the driver's,
// its own first.
type Journals func(context.Context) ([]string, error)

// NewService returns the service that a backend of this name reaches, for the
// driver with an owner mark. What has no journal, journals nil, signs with that
// mark alone and asks for no other. No call is made.
func NewService(name, owner string, journals Journals, p Provider) *Service {
	return &Service{name: name, owner: owner, journals: journals, provider: p, can: p.Capabilities()}
}

// Name is the backend's name.
func (s *Service) Name() string { return s.name }

// Capabilities implements Provider.
func (s *Service) Capabilities() Capabilities { return s.can }

// Mark is what the buckets of a contract are marked with.
func (s *Service) Mark(contract string) string {
	if s.can.SharedBuckets {
		return cosi.SharedMark(s.owner, contract)
	}
	return s.owner
}

// CheckSpec reports terms that the service cannot meet. It makes no call.
func (s *Service) CheckSpec(spec Spec) error {
	if unmet := s.can.Unmet(spec); len(unmet) > 0 {
		return fault.New(fault.Unsupported, "contract %s: backend %s has no %s; leave it out of the contract's terms", spec.Name, s.name, strings.Join(unmet, ", "))
	}
	return nil
}

// Regions implements Provider.
func (s *Service) Regions(ctx context.Context) ([]cosi.Endpoint, error) {
	return s.provider.Regions(ctx)
}

// Check implements Provider.
func (s *Service) Check(ctx context.Context) error {
	return fault.In(s.provider.Check(ctx), "backend %s", s.name)
}

// EnsureContract implements Provider. The spec's marks are the service's.
func (s *Service) EnsureContract(ctx context.Context, spec Spec) (Contract, error) {
	spec.Owner = s.owner
	if err := s.CheckSpec(spec); err != nil {
		return Contract{}, err
	}
	if spec.Region != "" {
		regions, err := s.Regions(ctx)
		if err != nil {
			return Contract{}, inContract(err, spec.Name)
		}
		if !slices.ContainsFunc(regions, func(e cosi.Endpoint) bool { return e.Region == spec.Region }) {
			return Contract{}, fault.New(fault.InvalidArgument, "contract %s: backend %s has no region %s; correct the contract's terms", spec.Name, s.name, spec.Region)
		}
	}
	if s.journals != nil {
		var err error
		if spec.Journals, err = s.journals(ctx); err != nil {
			return Contract{}, err
		}
	}
	have, err := s.provider.EnsureContract(ctx, spec)
	return have, inContract(err, spec.Name)
}

// GetContract implements Provider.
func (s *Service) GetContract(ctx context.Context, name string) (Contract, error) {
	have, err := s.provider.GetContract(ctx, name)
	return have, inContract(err, name)
}

// Signed is GetContract for a contract of this driver's: NotFound also if it is
// another owner's, under which this driver has made nothing, and [ErrOtherJournal]
// if it is of another driver with the same owner.
func (s *Service) Signed(ctx context.Context, name string) (Contract, error) {
	have, err := s.GetContract(ctx, name)
	return have, s.own(ctx, have, name, err)
}

func (s *Service) own(ctx context.Context, have Contract, name string, err error) error {
	if err != nil {
		return err
	}
	if have.Owner != s.owner {
		return inContract(fault.New(fault.NotFound, "it belongs to another owner"), name)
	}
	if s.journals == nil || have.Journal == "" {
		return nil
	}
	spec := Spec{Owner: s.owner}
	if spec.Journals, err = s.journals(ctx); err == nil {
		err = spec.Found(have.Owner, have.Journal)
	}
	return inContract(err, name)
}

// Usable says why a contract takes no buckets and keys of this driver's now.
func (s *Service) Usable(c Contract) error {
	if c.Owner != s.owner {
		return inContract(OtherOwner(), c.Name)
	}
	why := ""
	if c.Message != "" {
		why = " (" + c.Message + ")"
	}
	switch c.State {
	case StateActive:
		return nil
	case StatePending:
		f := fault.New(fault.Pending, "contract %s is pending%s; the call is retried until it is active", c.Name, why)
		f.RetryAfter = c.RetryAfter
		return f
	case StateSuspended:
		return fault.New(fault.FailedPrecondition, "contract %s is suspended%s; ask the platform's operator to resume it", c.Name, why)
	case StateCancelling:
		return fault.New(fault.Pending, "contract %s is being cancelled%s; the call is retried until it is gone", c.Name, why)
	}
	return fault.New(fault.FailedPrecondition, "contract %s has failed%s; ask the storage service's operator", c.Name, why)
}

// OtherOwner is what a provider answers of a contract with another owner's mark.
func OtherOwner() error {
	return fault.New(fault.Conflict, "it belongs to another owner; choose another contract name, or set driver.owner to the mark it was signed with")
}

// ErrOtherJournal is the cause where a contract has the driver's owner mark, and was
// signed with a journal that is not the driver's: by another cluster's, or by this
// one's before it lost its journal.
var ErrOtherJournal = errors.New("signed with another journal")

func otherJournal(identity string) error {
	identity = fault.Said(identity)
	return fault.Wrap(fault.FailedPrecondition, ErrOtherJournal, "a driver with the same driver.owner and another journal, %s, has signed it; "+
		"if that is another cluster's, set another driver.owner for one of the two; if this cluster takes over from one whose journal is lost, add %s to driver.takesOver", identity, identity)
}

// CompareContract is [Comparer]'s; where the service does not tell, no term
// differs. NotFound also for another owner's contract.
func (s *Service) CompareContract(ctx context.Context, spec Spec) (have Contract, differing []string, err error) {
	spec.Owner = s.owner
	comparer, ok := s.provider.(Comparer)
	if !ok {
		have, err = s.Signed(ctx, spec.Name)
		return have, nil, err
	}
	have, differing, err = comparer.CompareContract(ctx, spec)
	return have, differing, s.own(ctx, have, spec.Name, inContract(err, spec.Name))
}

// Compares reports whether the service tells what a contract is signed for.
func (s *Service) Compares() bool {
	_, ok := s.provider.(Comparer)
	return ok
}

// Usage is [Meter]'s; where the service does not tell, it is empty.
func (s *Service) Usage(ctx context.Context, name string) (Usage, error) {
	meter, ok := s.provider.(Meter)
	if !ok {
		return Usage{}, nil
	}
	used, err := meter.Usage(ctx, name)
	return used, inContract(err, name)
}

// BucketUse implements Bounder.
func (s *Service) BucketUse(ctx context.Context, name, bucket string) (BucketUse, error) {
	b, err := s.bounder()
	if err != nil {
		return BucketUse{}, err
	}
	use, err := b.BucketUse(ctx, name, bucket)
	return use, inContract(err, name)
}

// BucketUses implements Bounder.
func (s *Service) BucketUses(ctx context.Context, name string) ([]BucketUse, error) {
	b, err := s.bounder()
	if err != nil {
		return nil, err
	}
	all, err := b.BucketUses(ctx, name)
	return all, inContract(err, name)
}

// BoundBucket implements Bounder.
func (s *Service) BoundBucket(ctx context.Context, name, bucket string, to Bounds) error {
	b, err := s.bounder()
	if err != nil {
		return err
	}
	return inContract(b.BoundBucket(ctx, name, bucket, to), name)
}

func (s *Service) bounder() (Bounder, error) {
	if b, ok := s.provider.(Bounder); ok {
		return b, nil
	}
	return nil, fault.New(fault.Unsupported, "backend %s does not bound single buckets", s.name)
}

// DeleteContract implements Provider.
func (s *Service) DeleteContract(ctx context.Context, name string) error {
	return inContract(s.provider.DeleteContract(ctx, name), name)
}

// IssueKey implements Provider.
func (s *Service) IssueKey(ctx context.Context, req IssueKeyRequest) (secret.KeyPair, error) {
	pair, err := s.provider.IssueKey(ctx, req)
	return pair, inKey(err, req.Contract, req.Slot)
}

// AcknowledgeKey is [Acknowledger]'s; most services need not be told.
func (s *Service) AcknowledgeKey(ctx context.Context, contract string, proposed secret.KeyPair) error {
	if a, ok := s.provider.(Acknowledger); ok {
		return inContract(a.AcknowledgeKey(ctx, contract, proposed), contract)
	}
	return nil
}

// ListKeys implements Provider.
func (s *Service) ListKeys(ctx context.Context, contract, slot string) ([]KeyInfo, error) {
	keys, err := s.provider.ListKeys(ctx, contract, slot)
	return keys, inContract(err, contract)
}

// HoldsKey is [Holder]'s; elsewhere the keys of the slot are listed. NotFound if
// there is no such contract, where the service tells.
func (s *Service) HoldsKey(ctx context.Context, contract, slot string, scope *Scope, pair secret.KeyPair) (bool, error) {
	if h, ok := s.provider.(Holder); ok && scope != nil {
		held, err := h.HoldsKey(ctx, *scope, pair)
		return held, inKey(err, contract, slot)
	}
	keys, err := s.ListKeys(ctx, contract, slot)
	return slices.ContainsFunc(keys, func(k KeyInfo) bool { return k.AccessKeyID == pair.AccessKeyID }), err
}

// RevokeKey implements Provider.
func (s *Service) RevokeKey(ctx context.Context, req RevokeKeyRequest) error {
	return inKey(s.provider.RevokeKey(ctx, req), req.Contract, req.Slot)
}

// RestoreKey is [Restorer]'s; Unsupported where the service does not tell.
func (s *Service) RestoreKey(ctx context.Context, contract, slot string, key secret.KeyPair, scope *Scope, write bool) ([]string, error) {
	restorer, ok := s.provider.(Restorer)
	if !ok {
		return nil, fault.New(fault.Unsupported, "backend %s does not tell what a key may do", s.name)
	}
	differing, err := restorer.RestoreKey(ctx, contract, slot, key, scope, write)
	return differing, inKey(err, contract, slot)
}

func inContract(err error, name string) error { return fault.In(err, "contract %s", name) }

// inKey names the contract of a key; the caller knows the access.
func inKey(err error, contract, slot string) error {
	return fault.In(err, "key %s of contract %s", slot, contract)
}
