// Package site is a contract as it stands at its service: signed, with the key
// that reaches its buckets, and where they can be. All that a process remembers
// of contracts is here, so it is forgotten here too: what turns out to be gone is
// looked at again.
package site

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/keys"
	"github.com/contract-cosi/contract-cosi-driver/pkg/lock"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Backend is one storage service.
type Backend struct {
	// Service makes contracts and keys there.
	*contract.Service
	// Engine returns what makes buckets of a contract there with its own key.
	Engine func(at cosi.Endpoint, key secret.KeyPair, contract string) *bucket.Engine
}

// Site is an open contract.
type Site struct {
	ID cosi.ContractID
	Backend
	// Endpoints are where its buckets can be, the default one first.
	Endpoints []cosi.Endpoint

	key secret.KeyPair

	mu      sync.Mutex
	engines map[cosi.Endpoint]*bucket.Engine
}

// In returns what acts on buckets in the region of an endpoint, at the address
// that the service names now: an endpoint that was recorded may have moved.
func (s *Site) In(at cosi.Endpoint) *bucket.Engine {
	at = s.Current(at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.engines[at] == nil {
		s.engines[at] = s.Engine(at, s.key, s.ID.Contract)
	}
	return s.engines[at]
}

// Current is the endpoint that the service names now for the region of another.
func (s *Site) Current(at cosi.Endpoint) cosi.Endpoint {
	if now, ok := s.Region(at.Region); ok {
		return now
	}
	return at
}

// Region returns the endpoint of a region; the default one for "".
func (s *Site) Region(region string) (cosi.Endpoint, bool) {
	if region == "" {
		return s.Endpoints[0], true
	}
	i := slices.IndexFunc(s.Endpoints, func(e cosi.Endpoint) bool { return e.Region == region })
	if i < 0 {
		return cosi.Endpoint{}, false
	}
	return s.Endpoints[i], true
}

// Change is a step in a contract's life that the driver took.
type Change string

// The steps.
const (
	// Signed: there was no such contract, or the journal knew of none.
	Signed Change = "signed"
	// Converged: it was brought to terms that had changed.
	Converged Change = "converged"
	// Cancelled: it went with its last bucket.
	Cancelled Change = "cancelled"
	// Kept: it was to go with its last bucket, and the service refused, because
	// something is left in it that the driver did not make.
	Kept Change = "kept"
)

// Recorder hears what became of contracts and keys.
type Recorder interface {
	keys.Recorder
	// ContractChanged is told of each [Change].
	ContractChanged(change string)
}

// Config makes Sites.
type Config struct {
	// Backends are the storage services by name.
	Backends map[string]Backend
	// Journal has the records of contracts.
	Journal *journal.Journal
	// Recorder hears what happens.
	Recorder Recorder
}

// Sites are the contracts that this process has opened.
type Sites struct {
	Config
	opening lock.Names

	mu      sync.Mutex
	open    map[cosi.ContractID]*Site
	ensured map[cosi.ContractID]bool // brought to their terms by this process
	quiet   quiet
}

// New returns Sites; no call is made.
func New(c Config) *Sites {
	return &Sites{Config: c, open: map[cosi.ContractID]*Site{}, ensured: map[cosi.ContractID]bool{}}
}

// ErrGone is the cause where the service no longer has a contract that
// something was under. It is not signed again for that: what it held is lost.
var ErrGone = errors.New("the contract is gone")

func gone(id cosi.ContractID) error {
	return fault.Wrap(fault.FailedPrecondition, ErrGone, "contract %s is gone at the storage service, with its buckets and keys; delete the BucketAccess or BucketClaim, and make a new one", id)
}

// At returns the backend that an id names. InvalidArgument if it is none of the
// driver's: then the id is another driver's, or from another configuration.
func (s *Sites) At(id cosi.ContractID) (Backend, error) {
	b, ok := s.Backends[id.Backend]
	if !ok {
		return b, fault.New(fault.FailedPrecondition, "contract %s is at a backend that the driver's configuration does not have; restore the backend's entry", id)
	}
	return b, nil
}

// Open returns a contract for something that is to be made under it in a region,
// and signs it if need be. The first call of a process brings it to its terms;
// later ones leave it as it is, so that what someone has suspended by hand stays
// suspended until the driver is restarted.
func (s *Sites) Open(ctx context.Context, id cosi.ContractID, terms config.Terms, region string) (*Site, error) {
	return s.through(ctx, id, func() (*Site, error) { return s.sign(ctx, id, terms, region) })
}

// sign opens a contract that is to be as its terms say. The caller has the lock of
// those that open it.
func (s *Sites) sign(ctx context.Context, id cosi.ContractID, terms config.Terms, region string) (*Site, error) {
	backend, err := s.At(id)
	if err != nil {
		return nil, err
	}
	record, err := s.Journal.Contract(ctx, id)
	unsigned := fault.Is(err, fault.NotFound)
	if err != nil && !unsigned {
		return nil, err
	}
	if terms.Suspend { // it may have a record and not be signed, after a fault
		if _, err := backend.Signed(ctx, id.Contract); fault.Is(err, fault.NotFound) {
			return nil, fault.New(fault.FailedPrecondition, "contract %s is suspended by its terms, and not signed; ask the operator of the driver to remove suspend from them", id.Contract)
		} else if err != nil {
			return nil, err
		}
	}
	if unsigned {
		if err := worthSigning(ctx, backend.Service, id, terms, region); err != nil {
			return nil, err
		}
		if record, err = s.intend(ctx, id); err != nil {
			return nil, err
		}
	}
	have, err := s.ensure(ctx, backend.Service, id, terms)
	if err != nil {
		return nil, err
	}
	if unsigned {
		s.changed(ctx, id, Signed, "Contract signed")
	}
	return s.enter(ctx, backend, record, have)
}

// worthSigning refuses what would cost a contract and then fail.
func worthSigning(ctx context.Context, service *contract.Service, id cosi.ContractID, terms config.Terms, region string) error {
	if region == "" || region == terms.Region {
		return nil
	}
	regions, err := service.Regions(ctx)
	if err == nil && !slices.ContainsFunc(regions, func(e cosi.Endpoint) bool { return e.Region == region }) {
		err = NoRegion(id, region, regions)
	}
	return err
}

// NoRegion says which regions a contract has. The service may get another.
func NoRegion(id cosi.ContractID, region string, have []cosi.Endpoint) error {
	names := ""
	for i, e := range have {
		if i > 0 {
			names += ", "
		}
		names += e.Region
	}
	return fault.New(fault.FailedPrecondition, "BucketClass parameters: region: %q is not a region of contract %s, which has %s; use a BucketClass with one of these, or with none", region, id, names)
}

// Find returns a contract for something that is under it. It is never signed:
// NotFound if there is none of this driver's. A record that the journal has lost
// is re-created.
func (s *Sites) Find(ctx context.Context, id cosi.ContractID) (*Site, error) {
	return s.through(ctx, id, func() (*Site, error) {
		backend, err := s.At(id)
		if err != nil {
			return nil, err
		}
		have, err := backend.Signed(ctx, id.Contract)
		if err != nil {
			return nil, err
		}
		record, err := s.Journal.Contract(ctx, id)
		if fault.Is(err, fault.NotFound) {
			record, err = s.intend(ctx, id)
		}
		if err != nil {
			return nil, err
		}
		return s.enter(ctx, backend, record, have)
	})
}

// through returns what is remembered, or lets one caller at a time open it.
func (s *Sites) through(ctx context.Context, id cosi.ContractID, open func() (*Site, error)) (*Site, error) {
	if site := s.remembered(id); site != nil {
		return site, nil
	}
	unlock, err := s.opening.Acquire(ctx, lock.Exclusive("contract", id))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if site := s.remembered(id); site != nil {
		return site, nil
	}
	return open()
}

// Record sees to it that a contract of this driver's has a record, so that it can be
// cancelled: NotFound if there is no such contract.
func (s *Sites) Record(ctx context.Context, id cosi.ContractID) error {
	backend, err := s.At(id)
	if err != nil {
		return err
	}
	if _, err := s.Journal.Contract(ctx, id); !fault.Is(err, fault.NotFound) {
		return err
	}
	if _, err := backend.Signed(ctx, id.Contract); err != nil {
		return err
	}
	_, err = s.intend(ctx, id)
	return err
}

// intend writes a contract's record, with the proposal for its own key.
func (s *Sites) intend(ctx context.Context, id cosi.ContractID) (*journal.Contract, error) {
	record := &journal.Contract{ID: id, KeyState: journal.KeyState{Phase: journal.Intent, Proposed: keys.Propose()}}
	return record, s.Journal.SaveContract(ctx, record)
}

// ensure signs the contract, or brings it to its terms: once a process.
func (s *Sites) ensure(ctx context.Context, service *contract.Service, id cosi.ContractID, terms config.Terms) (contract.Contract, error) {
	s.mu.Lock()
	ensured := s.ensured[id]
	s.mu.Unlock()
	if ensured {
		have, err := service.Signed(ctx, id.Contract)
		if !fault.Is(err, fault.NotFound) {
			return have, err
		}
	}
	if err := s.Journal.Begin(ctx); err != nil {
		return contract.Contract{}, err
	}
	have, err := service.EnsureContract(ctx, Spec(id, terms))
	if fault.Is(err, fault.InvalidArgument) || fault.Is(err, fault.Unsupported) {
		err = fault.As(fault.FailedPrecondition, err) // the terms are at fault, not the request
	}
	if err == nil {
		s.mu.Lock()
		s.ensured[id] = true
		s.mu.Unlock()
	}
	return have, err
}

// enter issues the contract's own key, if its record has none yet, and remembers
// the contract.
func (s *Sites) enter(ctx context.Context, backend Backend, record *journal.Contract, have contract.Contract) (*Site, error) {
	if err := backend.Usable(have); err != nil {
		return nil, err
	}
	acknowledge, err := s.ownSlot(backend, record).Issue(ctx)
	if err != nil {
		return nil, err
	}
	acknowledge(ctx)
	if len(have.Endpoints) == 0 {
		return nil, fault.New(fault.Unavailable, "contract %s has no S3 endpoint yet; the call is retried until it has", record.ID)
	}
	site := &Site{ID: record.ID, Backend: backend, Endpoints: have.Endpoints, key: record.Issued, engines: map[cosi.Endpoint]*bucket.Engine{}}
	s.mu.Lock()
	s.open[record.ID] = site
	s.mu.Unlock()
	return site, nil
}

// ownSlot is the place of the contract's own key.
func (s *Sites) ownSlot(backend Backend, record *journal.Contract) *keys.Slot {
	return &keys.Slot{
		Service: backend.Service, Contract: record.ID.Contract, Name: cosi.ContractSlot, State: &record.KeyState,
		Save: func(ctx context.Context) error { return s.Journal.SaveContract(ctx, record) }, What: "contract-key", Recorder: s.Recorder,
	}
}

func (s *Sites) remembered(id cosi.ContractID) *Site {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open[id]
}

// Forget makes the next call look at a contract again.
func (s *Sites) Forget(id cosi.ContractID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}

// ForgetAll is for a process that was not the one to change things for a while.
func (s *Sites) ForgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.open)
}

// Refresh looks again where a contract's buckets can be.
func (s *Sites) Refresh(ctx context.Context, site *Site) (*Site, error) {
	s.mu.Lock()
	if s.open[site.ID] == site {
		delete(s.open, site.ID)
	}
	s.mu.Unlock()
	return s.Find(ctx, site.ID)
}

// Known are the contracts that this process has brought to their terms.
func (s *Sites) Known() []cosi.ContractID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.ensured))
}

// Do lets do act on the buckets of a contract that open returns. Where the
// service refuses the contract's own key, the cause is looked for: a key that it
// has lost is issued again, a contract that is gone is opened again, and do is
// then tried again.
func (s *Sites) Do(ctx context.Context, open func(context.Context) (*Site, error), do func(*Site) error) error {
	const tries = 3 // a contract that was gone has lost its key too
	for try := 1; ; try++ {
		site, err := open(ctx)
		if err != nil {
			return err
		}
		if err = do(site); !fault.Is(err, fault.PermissionDenied) {
			return err
		}
		again, why := s.explain(ctx, site, err)
		if !again || try == tries {
			return why
		}
	}
}

// explain looks behind a refusal of the contract's own key.
func (s *Sites) explain(ctx context.Context, site *Site, refusal error) (again bool, why error) {
	have, err := site.Signed(ctx, site.ID.Contract)
	if fault.Is(err, fault.NotFound) {
		s.Forget(site.ID)
		return true, gone(site.ID)
	}
	if errors.Is(err, contract.ErrOtherJournal) {
		s.Forget(site.ID)
		return false, err
	}
	if err != nil {
		return false, refusal
	}
	if state := site.Usable(have); state != nil {
		s.Forget(site.ID)
		return false, state
	}
	if !bucket.KeyRefused(refusal) {
		return false, refusal
	}
	unlock, err := s.opening.Acquire(ctx, lock.Exclusive("contract", site.ID))
	if err != nil {
		return false, refusal
	}
	defer unlock()
	record, err := s.Journal.Contract(ctx, site.ID)
	if err != nil || record.Phase != journal.Done || record.Issued != site.key { // another call was here before
		s.Forget(site.ID)
		return err == nil, refusal
	}
	// A key that the service still lists is refused for another reason, and a new
	// one would be refused too.
	slot := s.ownSlot(site.Backend, record)
	if held, err := slot.Held(ctx); held || err != nil {
		return false, refusal
	}
	if err := slot.Lose(ctx); err != nil {
		return false, err
	}
	s.Forget(site.ID)
	return true, fault.Wrap(fault.Unavailable, refusal, "the storage no longer knows the key of contract %s; the call is retried with a new one", site.ID)
}

// Converge is [Sites.Sign] for a contract that the driver has signed before and that
// is still there: NotFound otherwise.
func (s *Sites) Converge(ctx context.Context, id cosi.ContractID, terms config.Terms) error {
	backend, err := s.At(id)
	if err != nil {
		return err
	}
	if _, err := s.Journal.Contract(ctx, id); err != nil {
		return err
	}
	have, differing, err := backend.CompareContract(ctx, Spec(id, terms))
	if err != nil {
		return err
	}
	_, err = s.bring(ctx, backend, id, terms, have, differing)
	return err
}

// Sign brings a contract to its terms, also if this process has done so before, and
// signs it if there is none. It returns what the service says of the contract, as
// far as it has answered, also where the contract is not as ordered or cannot be used:
// one that is suspended against its terms is FailedPrecondition, one that is not active
// yet Pending.
func (s *Sites) Sign(ctx context.Context, id cosi.ContractID, terms config.Terms) (contract.Contract, error) {
	backend, err := s.At(id)
	if err != nil {
		return contract.Contract{}, err
	}
	var have contract.Contract
	var differing []string
	err = s.Ask(ctx, "the contracts of backend "+id.Backend, func(ctx context.Context) error {
		have, differing, err = backend.CompareContract(ctx, Spec(id, terms))
		return err
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return have, err
	}
	if fault.Is(err, fault.NotFound) {
		if used, err := s.Journal.InUse(ctx, id); err != nil || used {
			return contract.Contract{}, cmp.Or(err, gone(id))
		}
		have = contract.Contract{}
	}
	return s.bring(ctx, backend, id, terms, have, differing)
}

// bring brings a contract to its terms that was found as the service has it, the zero
// Contract if it has none. Nothing is asked of a service that says it is as it should
// be.
func (s *Sites) bring(ctx context.Context, backend Backend, id cosi.ContractID, terms config.Terms, have contract.Contract, differing []string) (contract.Contract, error) {
	// A call that is opening the contract now asks for it as it is.
	unlock, err := s.opening.Acquire(ctx, lock.Exclusive("contract", id))
	if err != nil {
		return have, err
	}
	defer unlock()
	record, err := s.Journal.Contract(ctx, id)
	if err == nil && record.Phase == journal.Done && have.Name != "" && len(differing) == 0 && backend.Compares() && terms.Suspend == (have.State == contract.StateSuspended) {
		s.mu.Lock()
		s.ensured[id] = true
		s.mu.Unlock()
		if !terms.Suspend {
			_, err = s.enter(ctx, backend, record, have)
		}
		return have, err
	}
	s.mu.Lock()
	delete(s.ensured, id)
	delete(s.open, id)
	s.mu.Unlock()
	_, err = s.sign(ctx, id, terms, "")
	s.mu.Lock()
	ensured := s.ensured[id]
	s.mu.Unlock()
	if !ensured {
		return have, err
	}
	if len(differing) > 0 { // also where it cannot be used, because it is suspended now
		s.changed(ctx, id, Converged, "Contract brought to its terms", "changed", differing)
	}
	now, lookErr := backend.Signed(ctx, id.Contract)
	if err == nil || terms.Suspend && now.State == contract.StateSuspended { // which it is to be
		err = lookErr
	}
	return now, err
}

// Cancel cancels a contract under which the driver has nothing left. The
// service is the referee: it refuses while any bucket remains, and
// then the contract stays.
func (s *Sites) Cancel(ctx context.Context, id cosi.ContractID) error {
	backend, err := s.At(id)
	if err != nil {
		return err
	}
	record, err := s.Journal.Contract(ctx, id)
	if err != nil {
		return fault.IgnoreNotFound(err)
	}
	s.Forget(id)
	if _, err = backend.Signed(ctx, id.Contract); errors.Is(err, contract.ErrOtherJournal) {
		return s.Journal.Delete(ctx, record) // it was never this driver's
	}
	if err == nil {
		err = backend.DeleteContract(ctx, id.Contract)
	}
	if err = fault.IgnoreNotFound(err); err != nil {
		if keys.Refused(err) {
			s.changed(ctx, id, Kept, "The contract's last bucket of this driver is gone, but the service keeps the contract", "reason", err)
		}
		return err
	}
	s.mu.Lock()
	delete(s.ensured, id)
	s.mu.Unlock()
	s.changed(ctx, id, Cancelled, "Contract cancelled with its last bucket")
	return s.Journal.Delete(ctx, record)
}

func (s *Sites) changed(ctx context.Context, id cosi.ContractID, c Change, text string, values ...any) {
	s.Recorder.ContractChanged(string(c))
	klog.FromContext(ctx).Info(text, append([]any{"contract", id}, values...)...)
}

// Spec is what a contract is signed for.
func Spec(id cosi.ContractID, t config.Terms) contract.Spec {
	return contract.Spec{
		Name: id.Contract, Display: t.DisplayName, Region: t.Region, Plan: t.Plan, Labels: t.Labels, Suspend: t.Suspend,
		Quota: contract.Quota{MaxBuckets: t.Quota.MaxBuckets, MaxKeys: t.Quota.MaxKeys, MaxBytes: t.Quota.MaxBytes, MaxObjects: t.Quota.MaxObjects},
	}
}

// MustFind is Find for what is recorded under a contract: one that the service
// does not have is [ErrGone].
func (s *Sites) MustFind(id cosi.ContractID) func(context.Context) (*Site, error) {
	return func(ctx context.Context) (*Site, error) {
		site, err := s.Find(ctx, id)
		if fault.Is(err, fault.NotFound) {
			err = gone(id)
		}
		return site, err
	}
}

// Current is [Site.Current] for a contract that may not be open.
func (s *Sites) Current(id cosi.ContractID, at cosi.Endpoint) cosi.Endpoint {
	if site := s.remembered(id); site != nil {
		return site.Current(at)
	}
	return at
}
