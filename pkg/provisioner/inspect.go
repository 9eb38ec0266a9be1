package provisioner

import (
	"context"
	"slices"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/keys"
	"github.com/contract-cosi/contract-cosi-driver/pkg/lock"
	"github.com/contract-cosi/contract-cosi-driver/pkg/site"
)

// Between two calls of a sidecar, which may be months apart, a driver can look
// by itself whether what it made is still as the journal says. What differs is
// brought back as a repeated call would bring it back, and nothing more: objects
// are not read, and what was adopted, has lost its mark or was suspended as a
// contract is reported and left alone. What may be wanted gone is never brought
// back: a bucket or a key that this process has not seen alive may have been
// taken away by a call that a crash has cut short.

// Finding is one thing that is not as the journal says.
type Finding struct {
	// What names it: an option of a bucket, or "bucket", "mark", "key",
	// "key-inactive", "key-policy", "secret", "contract", "suspended" or "contract-" and a
	// term.
	What string
	// Repaired says that it was brought back.
	Repaired bool
	// Why says why it was left as it is, though repair was asked for.
	Why string
}

// Findings names all that can be found, but for the terms of a contract that only
// some services tell.
func Findings() []string {
	return append(bucket.Options(), "bucket", "mark", "key", contract.KeyInactive, contract.KeyPolicy, secretFinding, "contract", "contract-key", "suspended",
		"contract-displayName", "contract-plan", "contract-quota", "contract-labels", "contract-suspend")
}

// secretFinding is a Secret that was edited or deleted.
const secretFinding = "secret"

// Reasons to leave a finding as it is.
const (
	foreignIsLeft   = "the application's Secret is being deleted, or was not written for this access; remove it, with its finalizers, and drift repair re-creates it"
	adoptedIsLeft   = "the bucket was not made by this driver"
	unclassedIsLeft = "its class is not known until its create call is repeated"
	markIsLeft      = "without the driver's tag " + cosi.OwnerTag + " it may be another bucket; restore the tag, or delete the bucket"
	lostIsLeft      = "it was gone before this driver looked; it is re-created, empty, when its create call is repeated"
	changedIsLeft   = "it was so before this driver looked, and may be a revocation that was cut short; repeat the grant or the revoke call"
	keyIsLeft       = "a new key reaches the application by its access only, and is issued when the grant call is repeated"
	inactiveIsLeft  = "it may have been stopped on purpose; activate it at the service, or revoke the access"
	goneIsLeft      = "what it held is lost; delete the objects that were made under it, and make new ones"
	suspendedIsLeft = "it was suspended at the service; resume it there, or restart the driver"
)

// InspectBucket compares a bucket with its record, and with repair brings back
// what differs. A bucket that the journal does not know has no findings, nor has
// one that is being deleted.
func (p *Provisioner) InspectBucket(ctx context.Context, id cosi.BucketID, repair bool) ([]Finding, error) {
	ctx, call, err := p.beginIdle(ctx, lock.Shared("contract", id.ContractID), lock.Exclusive("bucket", id))
	if err != nil {
		return nil, err
	}
	defer call.end()
	record, err := p.journal.Bucket(ctx, id)
	if err != nil || record.Emptying != nil {
		return nil, fault.IgnoreNotFound(err)
	}
	if _, err := p.sites.At(id.ContractID); err != nil {
		return nil, err
	}
	why := ""
	switch {
	case record.Adopted:
		why = adoptedIsLeft
	case record.Unclassed:
		why = unclassedIsLeft
	}
	var x bucket.Examination
	err = p.withBucket(ctx, record, func(ctx context.Context, engine *bucket.Engine) (err error) {
		x, err = engine.Examine(ctx, id.Bucket, record.Effective, repair && why == "")
		return err
	})
	switch {
	case isGone(err):
		return []Finding{{What: "contract", Why: goneIsLeft}}, nil
	case fault.Is(err, fault.NotFound):
		return p.inspectLostBucket(ctx, record, repair, why)
	case err == nil && !p.stillOurs(record, x.Mark):
		return []Finding{{What: "mark", Why: markIsLeft}}, nil
	case err == nil:
		p.alive.add(bucketKey(id))
	}
	var found []Finding
	for _, what := range x.Differing {
		f := Finding{What: what, Repaired: slices.Contains(x.Written, what), Why: why}
		if f.Repaired {
			p.recorder.Repaired(what)
		}
		found = append(found, f)
	}
	return found, err
}

// inspectLostBucket re-creates a bucket that is gone, if it was there before.
func (p *Provisioner) inspectLostBucket(ctx context.Context, record *journal.Bucket, repair bool, why string) ([]Finding, error) {
	if why == "" && !p.alive.has(bucketKey(record.ID)) {
		why = lostIsLeft
	}
	if !repair || why != "" {
		return []Finding{{What: "bucket", Why: why}}, nil
	}
	err := p.recreate(ctx, record, record.Effective)
	return []Finding{{What: "bucket", Repaired: err == nil}}, err
}

// InspectAccount compares the key of an access with its record. A service that
// takes the keys it is given gets one that is gone again, with its limits. At
// any other nothing is repaired: a new key is of no use until the access is
// granted again. A key that was stopped, or may do something else than its
// record says, is brought back where the service allows that.
func (p *Provisioner) InspectAccount(ctx context.Context, id cosi.AccountID, repair bool) ([]Finding, error) {
	backend, err := p.sites.At(id.ContractID)
	if err != nil {
		return nil, err
	}
	ctx, call, record, err := p.beginAccess(ctx, id, p.beginIdle)
	if err != nil {
		return nil, err
	}
	defer call.end()
	if record == nil || record.Phase != journal.Done || record.Cut != "" || ended(record) || record.Rotation != nil && record.Rotation.Phase != journal.Done {
		// A grant or a rotation is under way, or the key is wanted gone.
		return nil, nil
	}
	found, err := p.inspectKey(ctx, p.slotOf(backend, record), record, repair)
	if err != nil || slices.ContainsFunc(found, func(f Finding) bool { return f.What == "key" && !f.Repaired }) {
		return found, err
	}
	inSecret, err := p.inspectSecret(ctx, record, repair)
	return append(found, inSecret...), err
}

func (p *Provisioner) inspectKey(ctx context.Context, slot *keys.Slot, record *journal.Account, repair bool) ([]Finding, error) {
	id, backend := record.ID, slot.Service
	found, err := p.inspectLimits(ctx, slot, record, repair)
	if !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Unsupported) {
		return found, err
	}
	var keys []contract.KeyInfo
	err = p.sites.Look(ctx, "backend "+id.Backend, func(ctx context.Context) (err error) {
		keys, err = backend.ListKeys(ctx, id.Contract, id.Account)
		return err
	})
	if fault.Is(err, fault.NotFound) { // the contract
		p.sites.Forget(id.ContractID)
		return []Finding{{What: "key", Why: goneIsLeft}}, nil
	}
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(keys, func(k contract.KeyInfo) bool { return k.AccessKeyID == record.Issued.AccessKeyID })
	if i < 0 {
		return p.inspectLostKey(ctx, slot, record, repair)
	}
	p.alive.add(accountKey(id))
	if !keys[i].Active {
		return []Finding{{What: contract.KeyInactive, Why: inactiveIsLeft}}, nil
	}
	return nil, nil
}

// inspectLimits compares what a key may do with its record. NotFound if it is not
// there.
func (p *Provisioner) inspectLimits(ctx context.Context, slot *keys.Slot, record *journal.Account, repair bool) (found []Finding, err error) {
	var differing []string
	repair = repair && p.alive.has(accountKey(record.ID))
	err = p.sites.Look(ctx, "backend "+record.ID.Backend, func(ctx context.Context) (err error) {
		differing, err = slot.Service.RestoreKey(ctx, slot.Contract, slot.Name, record.Issued, scopeOf(record, record.Since), repair)
		return err
	})
	if err == nil && len(differing) == 0 {
		p.alive.add(accountKey(record.ID))
	}
	for _, what := range differing {
		f := Finding{What: what, Repaired: repair && err == nil}
		if f.Repaired {
			p.recorder.Repaired(what)
		} else if !p.alive.has(accountKey(record.ID)) {
			f.Why = changedIsLeft
		}
		found = append(found, f)
	}
	return found, err
}

// inspectLostKey gives the service the key that it has lost.
func (p *Provisioner) inspectLostKey(ctx context.Context, slot *keys.Slot, record *journal.Account, repair bool) ([]Finding, error) {
	if !slot.Service.Capabilities().ChosenKeys || !p.alive.has(accountKey(record.ID)) {
		return []Finding{{What: "key", Why: keyIsLeft}}, nil
	}
	if !repair {
		return []Finding{{What: "key"}}, nil
	}
	same, err := slot.PutBack(ctx)
	if err != nil {
		return []Finding{{What: "key"}}, fault.In(err, "access %s", record.ID)
	}
	if !same { // the next grant call finds that out, and replaces it
		return []Finding{{What: "key", Why: keyIsLeft}}, nil
	}
	p.recorder.Repaired("key")
	return []Finding{{What: "key", Repaired: true}}, nil
}

// InspectContract compares a contract with its terms, as far as its service
// tells them. One that was suspended at the service stays so.
func (p *Provisioner) InspectContract(ctx context.Context, id cosi.ContractID, repair bool) ([]Finding, error) {
	backend, err := p.sites.At(id)
	if err != nil {
		return nil, err
	}
	ctx, call, err := p.beginIdle(ctx, lock.Shared("contract", id))
	if err != nil {
		return nil, err
	}
	defer call.end()
	record, err := p.journal.Contract(ctx, id)
	if err != nil {
		return nil, fault.IgnoreNotFound(err)
	}
	terms, known := p.termsOf(id)
	if !known { // nothing says what it should be
		return nil, nil
	}
	var have contract.Contract
	var differing []string
	err = p.sites.Look(ctx, "backend "+id.Backend, func(ctx context.Context) (err error) {
		have, differing, err = backend.CompareContract(ctx, site.Spec(id, terms))
		return err
	})
	if fault.Is(err, fault.NotFound) {
		p.sites.Forget(id)
		if record.Phase != journal.Done { // it is just being signed
			return nil, nil
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
	if err := p.sites.Converge(ctx, id, terms); err != nil {
		return found, err
	}
	for i := range found {
		found[i].Repaired = true
		p.recorder.Repaired(found[i].What)
	}
	return found, nil
}
