package provisioner

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// Between two calls of a sidecar, which may be months apart, a driver can look
// by itself whether what it made is still as the journal says. What it finds,
// it brings back as a repeated call would, with the keys that were stopped or
// may do something else, and nothing more: objects are not read, and what was
// adopted, has lost its mark or was suspended as a contract is reported and left
// alone.

// Finding is one thing that is not as the journal says.
type Finding struct {
	// What names it: an option of a bucket, or "bucket", "mark", "key",
	// "key-inactive", "key-policy", "contract", "suspended" or "contract-" and a
	// term.
	What string
	// Repaired says that it was brought back.
	Repaired bool
	// Why says why it was left as it is, though repair was asked for.
	Why string
}

// Reasons to leave a finding as it is.
const (
	adoptedIsLeft   = "the bucket was not made by this driver"
	unclassedIsLeft = "what its class asks for is not known again yet; it is when its create call is repeated"
	markIsLeft      = "without the driver's tag " + cosi.OwnerTag + " it may be another bucket; restore the tag, or delete the bucket"
	keyIsLeft       = "a new key reaches the application by its access only, and is issued when that is asked for again"
	inactiveIsLeft  = "somebody may have stopped the key on purpose; activate it at the service, or revoke the access"
	goneIsLeft      = "what it held is lost; delete the objects that were made under it, and make new ones"
	suspendedIsLeft = "somebody has suspended it; it is resumed at the service, or at the driver's next start"
)

// InspectBucket compares a bucket with its record, and with repair brings back
// what differs. A bucket that the journal does not know has no findings.
func (p *Provisioner) InspectBucket(ctx context.Context, id cosi.BucketID, repair bool) ([]Finding, error) {
	unlock, err := p.locks.acquire(ctx, shared("contract", id.ContractID), exclusive("bucket", id))
	if err != nil {
		return nil, err
	}
	defer unlock()
	record, err := p.Journal.Bucket(ctx, id)
	if err != nil {
		return nil, absentIsNil(err)
	}
	why := ""
	switch {
	case record.Adopted:
		why = adoptedIsLeft
	case record.Unclassed:
		why = unclassedIsLeft
	}
	var x bucket.Examination
	err = p.lookAt(ctx, record, func(ctx context.Context, engine *bucket.Engine) (err error) {
		x, err = engine.Examine(ctx, id.Bucket, record.Applied, repair && why == "")
		return err
	})
	var found []Finding
	switch {
	case errors.Is(err, errGone):
		return []Finding{{What: "contract", Why: goneIsLeft}}, nil
	case fault.Is(err, fault.NotFound):
		return p.inspectLostBucket(ctx, record, repair, why)
	case err == nil && !p.stillOurs(record, x.Mark):
		return []Finding{{What: "mark", Why: markIsLeft}}, nil
	}
	for _, what := range x.Differing {
		f := Finding{What: what, Repaired: slices.Contains(x.Written, what), Why: why}
		if f.Repaired {
			p.Repaired(what)
		}
		found = append(found, f)
	}
	return found, err
}

// deleting is how long another process has, once it has deleted a bucket, to
// delete the record too, before the bucket counts as lost.
const deleting = 2 * time.Second

// inspectLostBucket makes a bucket that is gone anew, as a repeat of its create
// call would.
func (p *Provisioner) inspectLostBucket(ctx context.Context, record *journal.Bucket, repair bool, why string) ([]Finding, error) {
	select {
	case <-time.After(deleting):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := p.stillRecorded(ctx, record); err != nil {
		return nil, err
	}
	if !repair || why != "" {
		return []Finding{{What: "bucket", Why: why}}, nil
	}
	if err := p.remake(ctx, record, record.Applied); err != nil {
		return []Finding{{What: "bucket"}}, err
	}
	return []Finding{{What: "bucket", Repaired: true}}, nil
}

// InspectAccount compares the key of an access with its record. A service that
// takes the keys it is given gets one that is gone again, with its limits. At
// any other nothing is repaired: a new key is of use to nobody until the access
// is asked for again. A key that was stopped, or may do something else than its
// record says, is brought back where the service allows that.
func (p *Provisioner) InspectAccount(ctx context.Context, id cosi.AccountID, repair bool) ([]Finding, error) {
	unlock, err := p.locks.acquire(ctx, shared("contract", id.ContractID), exclusive("account", id))
	if err != nil {
		return nil, err
	}
	defer unlock()
	record, err := p.Journal.Account(ctx, id)
	if err != nil {
		return nil, absentIsNil(err)
	}
	if record.Phase != journal.Done || ended(record) { // a grant is under way, or the key is gone as its class says
		return nil, nil
	}
	backend, known := p.Backends[id.Backend]
	if !known {
		return nil, noBackend(id.ContractID)
	}
	if restorer, ok := backend.Provider.(contract.Restorer); ok {
		found, err := p.inspectKey(ctx, restorer, record, repair)
		if !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Unsupported) {
			return found, err
		}
	}
	var keys []contract.KeyInfo
	err = p.ask(ctx, id.Backend, func(ctx context.Context) (err error) {
		keys, err = backend.Provider.ListKeys(ctx, id.Contract, id.Account)
		return err
	})
	if fault.Is(err, fault.NotFound) { // the contract
		return []Finding{{What: "key", Why: goneIsLeft}}, nil
	}
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(keys, func(k contract.KeyInfo) bool { return k.AccessKeyID == record.Issued.AccessKeyID })
	switch {
	case i < 0:
		if err := p.readAgain(ctx, record); err != nil || record.Phase != journal.Done {
			return nil, err
		}
		return p.inspectLostKey(ctx, backend, record, repair)
	case !keys[i].Active:
		return []Finding{{What: "key-inactive", Why: inactiveIsLeft}}, nil
	}
	return nil, nil
}

// inspectKey compares a key with its record. NotFound if it is not there.
func (p *Provisioner) inspectKey(ctx context.Context, restorer contract.Restorer, record *journal.Account, repair bool) ([]Finding, error) {
	restore := func(write bool) (differing []string, err error) {
		err = p.ask(ctx, record.ID.Backend, func(ctx context.Context) error {
			differing, err = restorer.RestoreKey(ctx, record.ID.Contract, record.ID.Account, record.Issued.AccessKeyID, scopeOf(record), write)
			return err
		})
		return differing, err
	}
	differing, err := restore(false)
	if err != nil || len(differing) == 0 {
		return nil, err
	}
	// Another process may have changed the access, and the key with it.
	looked := *record
	if err := p.readAgain(ctx, record); err != nil || record.Phase != journal.Done || !reflect.DeepEqual(looked.Grant, record.Grant) || looked.Issued != record.Issued {
		return nil, err
	}
	var found []Finding
	for _, what := range differing {
		found = append(found, Finding{What: what})
	}
	if !repair {
		return found, nil
	}
	if _, err := restore(true); err != nil {
		return found, err
	}
	for i := range found {
		found[i].Repaired = true
		p.Repaired(found[i].What)
	}
	return found, nil
}

// inspectLostKey gives the service the key that it has lost.
func (p *Provisioner) inspectLostKey(ctx context.Context, backend Backend, record *journal.Account, repair bool) ([]Finding, error) {
	if !backend.Provider.Capabilities().ChosenKeys {
		return []Finding{{What: "key", Why: keyIsLeft}}, nil
	}
	if !repair {
		return []Finding{{What: "key"}}, nil
	}
	pair, err := backend.Provider.IssueKey(ctx, contract.IssueKeyRequest{
		Contract: record.ID.Contract, Slot: record.ID.Account, Scope: scopeOf(record), Proposed: record.Proposed, Keep: keptBeside(record),
	})
	if err != nil {
		return []Finding{{What: "key"}}, fault.In(err, "access %s", record.ID)
	}
	if pair != record.Issued { // the next grant call finds that out, and replaces it
		return []Finding{{What: "key", Why: keyIsLeft}}, nil
	}
	p.Repaired("key")
	return []Finding{{What: "key", Repaired: true}}, nil
}

// InspectContract compares a contract with its terms, as far as its service
// tells them. One that somebody has suspended stays so.
func (p *Provisioner) InspectContract(ctx context.Context, id cosi.ContractID, repair bool) ([]Finding, error) {
	unlock, err := p.locks.acquire(ctx, shared("contract", id))
	if err != nil {
		return nil, err
	}
	defer unlock()
	record, err := p.Journal.Contract(ctx, id)
	if err != nil {
		return nil, absentIsNil(err)
	}
	backend, known := p.Backends[id.Backend]
	if !known {
		return nil, noBackend(id)
	}
	terms, known := p.Terms(id.Contract)
	if !known || terms.Backend != id.Backend { // nobody says what it should be
		return nil, nil
	}
	var have contract.Contract
	var differing []string
	err = p.ask(ctx, id.Backend, func(ctx context.Context) (err error) {
		have, differing, err = p.compare(ctx, id, terms)
		return err
	})
	if fault.Is(err, fault.NotFound) && record.Phase != journal.Done { // it is just being signed
		return nil, nil
	}
	if fault.Is(err, fault.NotFound) {
		// It is gone, or was just cancelled with its last bucket by another process.
		if _, err := p.Journal.Fresh().Contract(ctx, id); err != nil {
			return nil, absentIsNil(err)
		}
		return []Finding{{What: "contract", Why: goneIsLeft}}, nil
	}
	if err != nil {
		return nil, err
	}
	var found []Finding
	stopped := have.State == contract.StateSuspended && !terms.Suspend
	if stopped {
		found = append(found, Finding{What: "suspended", Why: suspendedIsLeft})
	}
	for _, term := range differing {
		if term == "suspend" && stopped {
			continue
		}
		f := Finding{What: "contract-" + term}
		if stopped { // to be brought to its terms it would have to be resumed
			f.Why = suspendedIsLeft
		}
		found = append(found, f)
	}
	if !repair || stopped || len(found) == 0 {
		return found, nil
	}
	if _, err := backend.Provider.EnsureContract(ctx, p.specOf(id, terms)); err != nil {
		return found, err
	}
	for i := range found {
		found[i].Repaired = true
		p.Repaired(found[i].What)
	}
	p.Changed(Converged)
	p.forget(id)
	return found, nil
}

// remake makes a bucket that is gone anew, empty, as spec says.
func (p *Provisioner) remake(ctx context.Context, record *journal.Bucket, spec params.Bucket) error {
	klog.FromContext(ctx).Info("A bucket was deleted behind the driver's back, with all that it held; making it anew", "bucket", record.ID, "what", "bucket")
	engine, err := p.engine(ctx, record.ID.ContractID, p.current(record.ID.ContractID, record.Endpoint))
	if err != nil {
		return err
	}
	if err := engine.Create(ctx, record.ID.Bucket, spec); err != nil {
		return p.explain(ctx, record.ID.ContractID, engine, fault.In(err, "bucket %s", record.ID))
	}
	p.Repaired("bucket")
	return p.stillRecorded(ctx, record)
}

// absentIsNil is for records that were deleted since their keys were read.
func absentIsNil(err error) error {
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

func noBackend(id cosi.ContractID) error {
	return fault.New(fault.FailedPrecondition, "contract %s is at a backend that the driver's configuration does not have", id)
}
