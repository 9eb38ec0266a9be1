package provisioner

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// ContractChange is a step in a contract's life that the driver took.
type ContractChange string

// The steps.
const (
	// Signed: there was no such contract, or the journal knew of none.
	Signed ContractChange = "signed"
	// Converged: it was brought to terms that had changed.
	Converged ContractChange = "converged"
	// Cancelled: it went with its last bucket.
	Cancelled ContractChange = "cancelled"
	// Kept: it was to go with its last bucket, and the service refused, because
	// something is left in it that the driver did not make.
	Kept ContractChange = "kept"
)

// openContract returns where the contract's buckets can be. The first call of
// a process signs the contract or brings it to its terms, and gets the
// contract's own key if the journal has none; later ones ask nobody.
func (p *Provisioner) openContract(ctx context.Context, id cosi.ContractID, terms config.Terms, region string) ([]cosi.Endpoint, error) {
	if endpoints, ok := p.opened(id); ok {
		return endpoints, nil
	}
	unlock, err := p.locks.acquire(ctx, exclusive("opening", id))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if endpoints, ok := p.opened(id); ok {
		return endpoints, nil
	}

	provider := p.Backends[id.Backend].Provider
	if region != "" && region != terms.Region {
		// A class with a wrong region must not cost a contract.
		regions, err := provider.Regions(ctx)
		if err != nil {
			return nil, fault.In(err, "contract %s", id)
		}
		if _, err := regionOf(regions, region, id); err != nil {
			return nil, err
		}
	}
	record, err := p.Journal.Contract(ctx, id)
	fresh := fault.Is(err, fault.NotFound)
	if fresh {
		record = &journal.Contract{ID: id, Phase: journal.Intent, Proposed: propose()}
		err = fasterElsewhere(p.Journal.SaveContract(ctx, record))
	}
	if err != nil {
		return nil, err
	}
	have, err := p.ensure(ctx, id, terms)
	if err != nil {
		return nil, err
	}
	if fresh {
		p.Changed(Signed)
		klog.FromContext(ctx).Info("Contract signed", "contract", id)
	}
	if err := p.usable(have); err != nil {
		return nil, err
	}
	if err := p.issueContractKey(ctx, record); err != nil {
		return nil, err
	}
	if len(have.Endpoints) > 0 {
		p.mu.Lock()
		p.contracts[id] = have.Endpoints
		p.mu.Unlock()
	}
	return have.Endpoints, nil
}

// ensure signs the contract, or brings it to its terms: once a process. After
// that it is only looked at, so that what somebody has suspended by hand stays
// suspended until the driver is started again.
func (p *Provisioner) ensure(ctx context.Context, id cosi.ContractID, terms config.Terms) (contract.Contract, error) {
	provider := p.Backends[id.Backend].Provider
	p.mu.Lock()
	ensured := p.ensured[id]
	p.mu.Unlock()
	if ensured {
		have, err := provider.GetContract(ctx, id.Contract)
		if !fault.Is(err, fault.NotFound) {
			return have, err
		}
	}
	have, err := provider.EnsureContract(ctx, p.specOf(id, terms))
	if fault.Is(err, fault.InvalidArgument) || fault.Is(err, fault.Unsupported) {
		err = fault.As(fault.FailedPrecondition, err) // the terms are at fault, not the request
	}
	if err == nil {
		p.mu.Lock()
		p.ensured[id] = true
		p.mu.Unlock()
	}
	return have, err
}

// Known are the contracts that this process has brought to their terms.
func (p *Provisioner) Known() []cosi.ContractID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.ensured))
}

// Converge brings those contracts to their terms, again if this process has
// done so before, that the driver has signed and that are still there. What
// cannot be done now is done when the contract is next used.
func (p *Provisioner) Converge(ctx context.Context, contracts map[cosi.ContractID]config.Terms) {
	for id, terms := range contracts {
		if err := p.converge(ctx, id, terms); err != nil && !fault.Is(err, fault.NotFound) {
			klog.FromContext(ctx).Info("Contract cannot be used now", "contract", id, "reason", err)
		}
	}
}

func (p *Provisioner) converge(ctx context.Context, id cosi.ContractID, terms config.Terms) error {
	unlock, err := p.locks.acquire(ctx, shared("contract", id)) // it may be just being cancelled
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := p.Journal.Contract(ctx, id); err != nil {
		return err
	}
	_, differing, err := p.compare(ctx, id, terms) // one that is gone is not signed for nobody
	if err != nil {
		return err
	}
	p.mu.Lock()
	delete(p.ensured, id)
	delete(p.contracts, id)
	p.mu.Unlock()
	_, err = p.openContract(ctx, id, terms, "")
	p.mu.Lock()
	ensured := p.ensured[id]
	p.mu.Unlock()
	if ensured && len(differing) > 0 { // also where it cannot be used, because it is suspended now
		p.Changed(Converged)
		klog.FromContext(ctx).Info("Contract brought to its terms", "contract", id, "changed", differing)
	}
	return err
}

// compare is signed, with the terms in which the contract is not as it should
// be, as far as its service tells.
func (p *Provisioner) compare(ctx context.Context, id cosi.ContractID, terms config.Terms) (contract.Contract, []string, error) {
	comparer, ok := p.Backends[id.Backend].Provider.(contract.Comparer)
	if !ok {
		have, err := p.signed(ctx, id)
		return have, nil, err
	}
	have, differing, err := comparer.CompareContract(ctx, p.specOf(id, terms))
	return have, differing, p.ownContract(id, have, err)
}

// issueContractKey gets the contract's own key, if the record has none yet.
// NotFound if the service has no such contract.
func (p *Provisioner) issueContractKey(ctx context.Context, record *journal.Contract) error {
	if record.Phase == journal.Done {
		return nil
	}
	backend := p.Backends[record.ID.Backend]
	if !repeatsKeys(backend.Provider) { // see intendGrant
		record.Proposed = propose()
		if err := p.Journal.SaveContract(ctx, record); err != nil {
			return fasterElsewhere(err)
		}
	}
	pair, err := backend.Provider.IssueKey(ctx, contract.IssueKeyRequest{Contract: record.ID.Contract, Slot: cosi.ContractSlot, Proposed: record.Proposed})
	if fault.Is(err, fault.Mismatch) {
		return p.proposeAgain(ctx, record.ID, record.Proposed.AccessKeyID)
	}
	if err != nil {
		return err
	}
	record.Phase, record.Issued = journal.Done, pair
	if err := p.Journal.SaveContract(ctx, record); err != nil {
		return fasterElsewhere(err)
	}
	p.acknowledge(ctx, record.ID, backend, record.Proposed)
	klog.FromContext(ctx).Info("Contract in use", "contract", record.ID)
	return nil
}

// proposeAgain is for a contract's own key that the service has told for the
// last time: if it is not in the journal by now, the next call asks for
// another.
func (p *Provisioner) proposeAgain(ctx context.Context, id cosi.ContractID, proposed string) error {
	record, err := p.Journal.Fresh().Contract(ctx, id)
	if err != nil {
		return err
	}
	if record.Phase != journal.Done && record.Proposed.AccessKeyID == proposed {
		record.Proposed = propose()
		if err := p.Journal.SaveContract(ctx, record); err != nil {
			return fasterElsewhere(err)
		}
		p.Repaired("contract-key")
		klog.FromContext(ctx).Info("The secret of the contract's own key was told and is not in the journal; the next call gets a new one", "contract", id)
	}
	return fault.New(fault.Unavailable, "the key of contract %s is being issued anew; repeat the call", id)
}

func (p *Provisioner) specOf(id cosi.ContractID, t config.Terms) contract.Spec {
	return contract.Spec{
		Name: id.Contract, Owner: p.Owner, Display: t.DisplayName, Region: t.Region, Plan: t.Plan, Labels: t.Labels, Suspend: t.Suspend,
		Quota: contract.Quota{MaxBuckets: t.Quota.MaxBuckets, MaxKeys: t.Quota.MaxKeys, MaxBytes: t.Quota.MaxBytes, MaxObjects: t.Quota.MaxObjects},
	}
}

// CheckTerms reports terms that their backend cannot meet. It asks nobody, so
// it can be told when the configuration is loaded.
func (p *Provisioner) CheckTerms(name string, t config.Terms) error {
	capabilities := p.Backends[t.Backend].Provider.Capabilities()
	var faults []error
	if unmet := capabilities.Unmet(p.specOf(cosi.ContractID{Contract: name}, t)); len(unmet) > 0 {
		faults = append(faults, fault.New(fault.FailedPrecondition, "contract %s: backend %s has no %s; leave it out of the contract's terms", name, t.Backend, strings.Join(unmet, ", ")))
	}
	if capabilities.ScopeBy == contract.ScopeByNone && !t.PerBucket {
		faults = append(faults, fault.New(fault.FailedPrecondition, "contract %s: backend %s cannot limit a key to a bucket, so its buckets cannot share a contract; set perBucket in the contract's terms", name, t.Backend))
	}
	return join(faults...)
}

// usable says why a contract takes no buckets and keys of this driver now.
func (p *Provisioner) usable(c contract.Contract) error {
	if c.Owner != p.Owner {
		return fault.New(fault.FailedPrecondition, "contract %s belongs to another owner; choose another contract name, or set driver.owner to the mark it was signed with", c.Name)
	}
	why := ""
	if c.Message != "" {
		why = " (" + c.Message + ")"
	}
	switch c.State {
	case contract.StateActive:
		return nil
	case contract.StatePending:
		f := fault.New(fault.Pending, "contract %s is pending%s; the call is repeated until it is active", c.Name, why)
		f.RetryAfter = c.RetryAfter
		return f
	case contract.StateSuspended:
		return fault.New(fault.FailedPrecondition, "contract %s is suspended%s; resume it first", c.Name, why)
	case contract.StateCancelling:
		return fault.New(fault.Pending, "contract %s is being cancelled%s; wait until it is gone", c.Name, why)
	}
	return fault.New(fault.FailedPrecondition, "contract %s has failed%s; ask the storage service's operator", c.Name, why)
}

// markOf is what the buckets of a contract are marked with.
func (p *Provisioner) markOf(id cosi.ContractID) string {
	if p.Backends[id.Backend].Provider.Capabilities().SharedBuckets {
		return cosi.SharedMark(p.Owner, id.Contract)
	}
	return p.Owner
}

func (p *Provisioner) opened(id cosi.ContractID) ([]cosi.Endpoint, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	endpoints, ok := p.contracts[id]
	return endpoints, ok
}

// current is an endpoint as the service names it now, if that is known, and as
// the journal has it otherwise.
func (p *Provisioner) current(id cosi.ContractID, recorded cosi.Endpoint) cosi.Endpoint {
	endpoints, _ := p.opened(id)
	for _, e := range endpoints {
		if e.Region == recorded.Region {
			return e
		}
	}
	return recorded
}

// signed looks a contract up that must not be signed for the sake of the call:
// NotFound if there is none, or if it is somebody else's, under which this
// driver has made nothing.
func (p *Provisioner) signed(ctx context.Context, id cosi.ContractID) (contract.Contract, error) {
	have, err := p.Backends[id.Backend].Provider.GetContract(ctx, id.Contract)
	return have, p.ownContract(id, have, err)
}

// LookAtContract reads a contract, with the terms in which it is not as the
// configuration says. NotFound if there is none of this driver's.
func (p *Provisioner) LookAtContract(ctx context.Context, id cosi.ContractID) (contract.Contract, []string, error) {
	if _, known := p.Backends[id.Backend]; !known {
		return contract.Contract{}, nil, noBackend(id)
	}
	if terms, known := p.Terms(id.Contract); known && terms.Backend == id.Backend {
		return p.compare(ctx, id, terms)
	}
	have, err := p.signed(ctx, id)
	return have, nil, err
}

// Usage reads what is used of a contract, as far as its service tells.
func (p *Provisioner) Usage(ctx context.Context, id cosi.ContractID) (contract.Usage, error) {
	meter, ok := p.Backends[id.Backend].Provider.(contract.Meter)
	if !ok {
		return contract.Usage{}, nil
	}
	return meter.Usage(ctx, id.Contract)
}

// Keys lists the keys of a contract at its service.
func (p *Provisioner) Keys(ctx context.Context, id cosi.ContractID) ([]contract.KeyInfo, error) {
	backend, known := p.Backends[id.Backend]
	if !known {
		return nil, noBackend(id)
	}
	return backend.Provider.ListKeys(ctx, id.Contract, "")
}

func (p *Provisioner) ownContract(id cosi.ContractID, have contract.Contract, err error) error {
	if err == nil && have.Owner != p.Owner {
		return fault.New(fault.NotFound, "contract %s belongs to another owner", id)
	}
	return err
}

// forget drops what the process remembers of a contract.
func (p *Provisioner) forget(id cosi.ContractID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.contracts, id)
	for key := range p.engines {
		if key.contract == id {
			delete(p.engines, key)
		}
	}
}

// engine returns what acts on buckets with the contract's own key, which is
// issued if it was lost; NotFound if there is no such contract, in the journal
// or at the service.
func (p *Provisioner) engine(ctx context.Context, id cosi.ContractID, endpoint cosi.Endpoint) (*bucket.Engine, error) {
	record, err := sure(ctx, p.Journal, (*journal.Journal).Contract, id)
	if err == nil {
		err = p.issueContractKey(ctx, record)
	}
	if err != nil {
		return nil, err
	}
	key := engineKey{contract: id, endpoint: endpoint, accessKeyID: record.Issued.AccessKeyID}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.engines[key] == nil {
		p.engines[key] = p.Backends[id.Backend].Engine(endpoint, record.Issued, p.markOf(id))
	}
	return p.engines[key], nil
}

// keyLives reports whether the service still lists a contract's own key. If it
// does, a refusal has another cause, and a new key would be refused too.
func (p *Provisioner) keyLives(ctx context.Context, id cosi.ContractID, accessKeyID string) bool {
	keys, err := p.Backends[id.Backend].Provider.ListKeys(ctx, id.Contract, cosi.ContractSlot)
	return err != nil || slices.ContainsFunc(keys, func(k contract.KeyInfo) bool { return k.AccessKeyID == accessKeyID })
}

// explain looks behind a refusal of the contract's own key: the contract may
// be suspended or gone, or the key was taken away behind the driver's back and
// is then issued anew by the next call.
func (p *Provisioner) explain(ctx context.Context, id cosi.ContractID, engine *bucket.Engine, err error) error {
	if !fault.Is(err, fault.PermissionDenied) {
		return err
	}
	have, lookup := p.Backends[id.Backend].Provider.GetContract(ctx, id.Contract)
	if lookup == nil {
		if state := p.usable(have); state != nil {
			p.forget(id)
			return state
		}
		if !bucket.KeyRefused(err) || p.keyLives(ctx, id, engine.AccessKeyID()) {
			return err
		}
	} else if !fault.Is(lookup, fault.NotFound) {
		return err
	}
	p.forget(id)
	record, read := p.Journal.Contract(ctx, id)
	if read != nil {
		return err
	}
	if record.Phase == journal.Done && record.Issued.AccessKeyID == engine.AccessKeyID() { // else somebody was faster
		record.Phase, record.Proposed = journal.Intent, propose()
		if write := p.Journal.SaveContract(ctx, record); write != nil && !fault.Is(write, fault.Mismatch) {
			return err
		}
		p.Repaired("contract-key")
		klog.FromContext(ctx).Info("The storage no longer knows the contract's own key; the next call gets a new one", "contract", id)
	}
	return fault.Wrap(fault.Unavailable, err, "the storage no longer knows the key of contract %s; a new one is issued: repeat the call", id)
}
