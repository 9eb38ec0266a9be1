// Package contract is the seam between the driver and whatever sells object
// storage by contract.
//
// A [Provider] knows how contracts and keys work at one kind of service and
// nothing of COSI: no BucketClaim, no id, no gRPC. The driver's use cases are
// written once, above the seam; what differs between services is said by
// [Capabilities], which is known before the first call.
//
// Every method may be called again with the same arguments after a crash or a
// lost answer. Errors are faults of pkg/fault; the comments below say which
// kinds a caller relies on. Unavailable means that the outcome is unknown.
package contract

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Provider is one storage service.
type Provider interface {
	// Capabilities is fixed for a configured provider; no call is made.
	Capabilities() Capabilities

	// Regions lists where buckets can be made, the default one first.
	Regions(ctx context.Context) ([]cosi.Endpoint, error)

	// Check reports why the service could not serve a call now: it does not
	// answer, its storage does not, or the credentials are refused. It changes
	// nothing.
	Check(ctx context.Context) error

	// EnsureContract signs the contract, or brings it to spec (quota, labels,
	// desired state). A contract with other marks, as [Spec.Found] says, is left
	// alone; one that is there keeps its marks. What the service cannot do is Unsupported, and nothing is changed.
	// A service that takes its time answers StatePending and no error; the
	// caller calls again.
	EnsureContract(ctx context.Context, spec Spec) (Contract, error)

	// GetContract reads a contract by name. NotFound if there is none.
	GetContract(ctx context.Context, name string) (Contract, error)

	// DeleteContract cancels a contract. nil means it is gone, or never was;
	// Pending that cancelling takes time; FailedPrecondition that it still has
	// buckets, and then nothing was changed.
	DeleteContract(ctx context.Context, name string) error

	// IssueKey makes the slot hold exactly the keys in Keep and the one it
	// returns. Whatever else it held is an orphan of an attempt whose answer
	// was lost, and is revoked. The storage accepts the key that is returned.
	// Objects belong to the contract whichever of its keys wrote them: its own
	// key can read and delete them. LimitExceeded if the service has no room
	// for the key, FailedPrecondition if the contract is not active, Mismatch
	// if the proposed key was issued before and its secret is not told again.
	IssueKey(ctx context.Context, req IssueKeyRequest) (secret.KeyPair, error)

	// ListKeys lists keys without their secrets; slot "" lists those of all slots
	// of the contract, its own among them. NotFound if there is no such contract.
	// A key that IssueKey has returned is in the list until it is revoked: it is
	// replaced if it is not, so the provider of a service whose lists lag
	// behind looks again before it leaves one out.
	ListKeys(ctx context.Context, contract, slot string) ([]KeyInfo, error)

	// RevokeKey revokes one key, or every key of the slot and its principal.
	// When it returns nil the storage refuses them, or does so when the service
	// has settled. What is not there is nil too.
	RevokeKey(ctx context.Context, req RevokeKeyRequest) error
}

// Acknowledger is implemented by a provider whose service hands a secret out
// again until it is told that the caller has it safe.
type Acknowledger interface {
	// AcknowledgeKey says that the key answered to proposed is held durably.
	AcknowledgeKey(ctx context.Context, contract string, proposed secret.KeyPair) error
}

// Comparer is implemented by a provider whose service tells what a contract is
// signed for.
type Comparer interface {
	// CompareContract reads the contract that spec names, and returns the terms
	// in which it is not as spec says, in the words of the driver's
	// configuration: displayName, plan, quota, labels, suspend. What spec leaves
	// to the service is not compared. Nothing is changed. NotFound if there is
	// no such contract.
	CompareContract(ctx context.Context, spec Spec) (have Contract, differing []string, err error)
}

// Meter is implemented by a provider whose service tells what is used of a
// contract.
type Meter interface {
	// Usage reads it. NotFound if there is no such contract.
	Usage(ctx context.Context, name string) (Usage, error)
}

// Bounder is implemented by a provider whose service bounds what single buckets
// hold, and tells what that is. What it does not have of this is Unsupported.
type Bounder interface {
	// BucketUse reads one bucket of a contract. NotFound if there is none.
	BucketUse(ctx context.Context, contract, bucket string) (BucketUse, error)
	// BucketUses reads all buckets of a contract, with one call for the whole list or
	// for a page of it; a bucket can be on two pages. NotFound if there is no such
	// contract, where the service tells.
	BucketUses(ctx context.Context, contract string) ([]BucketUse, error)
	// BoundBucket gives a bucket of a contract these bounds and no others; what it
	// holds beyond them stays. NotFound if there is no such bucket.
	BoundBucket(ctx context.Context, contract, bucket string, to Bounds) error
}

// Bounds are what one bucket may hold; 0 is no bound. MaxBytes is a multiple of
// 1024.
type Bounds struct{ MaxBytes, MaxObjects int64 }

// BucketUse is what one bucket holds and may hold, as of the service's last count;
// nil is what it does not count. Old versions count too.
type BucketUse struct {
	Bucket         string
	Bytes, Objects *int64
	Bounds
}

// Restorer is implemented by a provider whose service lets others stop a key, or
// change what it may do.
type Restorer interface {
	// RestoreKey compares a key, which was issued with scope, and returns what is
	// not as IssueKey leaves it: [KeyInactive], [KeyPolicy]. With write that is
	// put right; the key and its secret stay the same. It makes no more than one
	// read beyond those of ListKeys, or one for each bucket of the scope where
	// their policies hold the limits. While the contract is suspended there is
	// nothing to put right. NotFound if the key is not there, Unsupported if the
	// service does not tell.
	RestoreKey(ctx context.Context, contract, slot string, key secret.KeyPair, scope *Scope, write bool) (differing []string, err error)
}

// What RestoreKey finds.
const (
	KeyInactive = "key-inactive" // the key is stopped
	KeyPolicy   = "key-policy"   // what it may do is not its scope
)

// Holder is implemented by a provider whose service lists the keys of all slots
// or none, and can be asked about one.
type Holder interface {
	// HoldsKey reports whether the service has a key that IssueKey has returned
	// for a scope.
	HoldsKey(ctx context.Context, scope Scope, pair secret.KeyPair) (bool, error)
}

// Usage is what is used of a contract; nil is what the service does not count.
type Usage struct {
	Buckets, Keys, Bytes, Objects *int64
}

// Capabilities say what a service can do. What is not said is not asked of it:
// the terms, classes and requests that need it are refused with a text that
// names it, before anything is made.
type Capabilities struct {
	// ScopeBy: where the limits of a key are kept.
	ScopeBy ScopeBy
	// SourceAddresses: a key can be limited to addresses.
	SourceAddresses bool
	// WholeBuckets: a key cannot be limited to a part of a bucket.
	WholeBuckets bool
	// SeveralBuckets: one key can reach several buckets.
	SeveralBuckets bool
	// SeveralPrefixes: one key can reach several parts of a bucket.
	SeveralPrefixes bool
	// Actions: a key can be limited to some S3 actions.
	Actions bool
	// KeyExpiry: a key can be given an end.
	KeyExpiry bool
	// ChosenKeys: the key that IssueKey returns has the proposed secret, so a
	// repeated request returns the same key. A service that is told when a
	// secret is safe (see [Acknowledger]) repeats it too; any other one gives a
	// new key each time.
	ChosenKeys bool
	// MaxKeysPerSlot is how many keys a slot can hold at once; 0 is no limit.
	MaxKeysPerSlot int
	// SharedBuckets: the contracts of the service are parts of one account, so
	// each contract's own key reaches all of their buckets. The driver then
	// keeps them apart by the mark that it puts on its buckets.
	SharedBuckets bool
	// OwnerNeedsPolicy: once a bucket has a policy, its contract may do with it
	// what the policy says and no more.
	OwnerNeedsPolicy bool
	// TagsLater: a bucket takes tags when it is there, and none with the request
	// that makes it.
	TagsLater bool
	// Placements: a bucket's place can be named with its region.
	Placements bool
	// Suspend: a contract can be suspended.
	Suspend bool
	// BucketBounds: single buckets can be bounded too, by a [Bounder].
	BucketBounds bool
	// Quota: the bounds that a contract can have.
	Quota QuotaKinds
	// Plans: a contract is signed for a plan that can be chosen.
	Plans bool
	// Labels: the service keeps labels with a contract.
	Labels bool
	// Settles is how long the service needs at most until everything it has
	// accepted holds everywhere: so long may a revoked key still be accepted.
	Settles time.Duration
}

// QuotaKinds are the bounds that the contracts of a service can have.
type QuotaKinds struct{ Buckets, Keys, Bytes, Objects bool }

// Unmet names what spec asks for and the service cannot do; none if it can
// take all of it.
func (c Capabilities) Unmet(spec Spec) []string {
	var out []string
	for _, asked := range []struct {
		what string
		is   bool
		can  bool
	}{
		{"plan", spec.Plan != "", c.Plans},
		{"labels", len(spec.Labels) > 0, c.Labels},
		{"suspend", spec.Suspend, c.Suspend},
		{"quota.maxBuckets", spec.Quota.MaxBuckets != nil, c.Quota.Buckets},
		{"quota.maxKeys", spec.Quota.MaxKeys != nil, c.Quota.Keys},
		{"quota.maxBytes", spec.Quota.MaxBytes != nil, c.Quota.Bytes},
		{"quota.maxObjects", spec.Quota.MaxObjects != nil, c.Quota.Objects},
	} {
		if asked.is && !asked.can {
			out = append(out, asked.what)
		}
	}
	return out
}

// ScopeBy says where a service keeps the limits of a key. A provider carries
// them out wherever they are; the driver asks whether there are any.
type ScopeBy string

// The ways to limit a key to buckets.
const (
	// ScopeByNone: a key reaches all of its contract, so a contract is signed
	// for each bucket.
	ScopeByNone ScopeBy = "None"
	// ScopeByKey: the limits are part of the key.
	ScopeByKey ScopeBy = "Key"
	// ScopeByIdentityPolicy: they are a policy of the principal that has the key.
	ScopeByIdentityPolicy ScopeBy = "IdentityPolicy"
	// ScopeByBucketPolicy: they are statements in the policies of the buckets,
	// beside those of the class and of others.
	ScopeByBucketPolicy ScopeBy = "BucketPolicy"
)

// Spec is what a contract should be.
type Spec struct {
	// Name is chosen by the caller and never changes: it is what makes
	// EnsureContract repeatable. A DNS label.
	Name string
	// Owner is the driver's mark, kept with the contract.
	Owner string
	// Journals are the identities of the driver's journal. A contract is signed with
	// the first as a mark beside the owner's; one that has another than these is
	// another driver's.
	Journals []string
	// Display, Region and Plan are left to the service where empty.
	Display, Region, Plan string
	Quota                 Quota
	Suspend               bool
	Labels                map[string]string
}

// Journal is the mark beside the owner's, "" for none.
func (s Spec) Journal() string {
	if len(s.Journals) == 0 {
		return ""
	}
	return s.Journals[0]
}

// Found lets the spec keep the marks of a contract that is there: Conflict if the
// owner is another one, [ErrOtherJournal] if the journal is. One without a
// journal's mark is the owner's, whichever of its journals signed it.
func (s *Spec) Found(owner, journal string) error {
	if owner != s.Owner {
		return OtherOwner()
	}
	if journal != "" && !slices.Contains(s.Journals, journal) {
		return otherJournal(journal)
	}
	s.Journals = []string{journal}
	return nil
}

// Quota bounds a contract; nil leaves a bound to the plan.
type Quota struct {
	MaxBuckets, MaxKeys, MaxBytes, MaxObjects *int64
}

// State is where a contract is in its life.
type State string

// The states of a contract. Only an active one takes buckets and keys.
const (
	StatePending    State = "Pending"
	StateActive     State = "Active"
	StateSuspended  State = "Suspended"
	StateCancelling State = "Cancelling"
	StateFailed     State = "Failed"
)

// Contract is what the service says of a contract.
type Contract struct {
	Name  string
	Owner string
	// Journal is the mark beside the owner's; "" if there is none.
	Journal string
	State   State
	// Message is the service's sentence for the state; it may be empty.
	Message string
	// Endpoints are where the contract's buckets can be, the default one first.
	Endpoints []cosi.Endpoint
	// RetryAfter is when to ask again while the contract is pending.
	RetryAfter time.Duration
}

// Scope limits a key. Nil is the contract's own key, which reaches all of it.
type Scope struct {
	Buckets []BucketScope
	// SourceAddresses are where the key may be used from; none is anywhere.
	SourceAddresses []netip.Prefix
	// ExpiresAt is when the key ends by itself; zero is never.
	ExpiresAt time.Time
}

// BucketScope is what a key may do with one bucket.
type BucketScope = cosi.BucketScope

// IssueKeyRequest asks for a key.
type IssueKeyRequest struct {
	// Contract is the contract's name.
	Contract string
	// Slot is the purpose of the key, one for each access: a DNS label.
	Slot string
	// Scope limits the key; nil asks for the contract's own.
	Scope *Scope
	// Keep are the access key ids of the slot that stay.
	Keep []string
	// Exact says that the slot holds those in Keep and no other, and that nothing
	// was asked for it whose outcome is open: nothing has to be looked for.
	Exact bool
	// Proposed is a random pair that the caller has written down before. A
	// service that lets the caller choose takes it as the key; elsewhere its
	// id, which is a DNS label, is how a repeated request can be known.
	Proposed secret.KeyPair
}

// RevokeKeyRequest says what is revoked, with what the caller knows of it, so that
// no provider has to search for what the journal has.
type RevokeKeyRequest struct {
	// Contract is the contract's name, and Slot the purpose of the key.
	Contract, Slot string
	// AccessKeyID is the key that is revoked; "" is all of the slot.
	AccessKeyID string
	// Scope is what the slot's keys are limited to; nil if the caller does not
	// know, or for the contract's own.
	Scope *Scope
	// Known are the access key ids that the slot is known to hold or to have been
	// asked for.
	Known []string
	// Exact says that the slot holds those in Known and no other: nothing has to be
	// looked for. It does not after a crash, or without a record.
	Exact bool
}

// KeyInfo is what a service tells of a key it has issued.
type KeyInfo struct {
	AccessKeyID string
	Slot        string
	Active      bool
	CreatedAt   time.Time
	// Name is the id of the pair that the key was proposed as, where the service
	// keeps it.
	Name string
	// LastUsed is zero if the key was not used, or the service does not tell.
	LastUsed time.Time
}
