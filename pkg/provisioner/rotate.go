package provisioner

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// A key is rotated in two slots: beside the old one a new one is issued, which
// the access is answered from then on, and the old one is revoked some time
// after that. Only a sidecar writes Secrets, and only when it asks for the
// access again: v1alpha2's does when it starts, v1alpha1's never does once a
// BucketAccess is granted. So the old key's time does not begin to run when the
// new one is issued, but when it is first handed out. No application loses a
// key whose successor it was never given.

// RotationStep is a step of a rotation that was taken.
type RotationStep string

// The steps.
const (
	// RotationIssued: there is a new key, and the old one is valid beside it.
	RotationIssued RotationStep = "issued"
	// RotationHandedOut: the new key was the answer to a grant call.
	RotationHandedOut RotationStep = "handed-out"
	// RotationEnded: the old key is revoked.
	RotationEnded RotationStep = "ended"
)

// RotateAccess issues a new key for an access. The one before is revoked, by
// [Provisioner.Tend], when the grace has passed since the new one was handed
// out. FailedPrecondition if the access has no key yet, or still has the one
// before its last rotation.
func (p *Provisioner) RotateAccess(ctx context.Context, id cosi.AccountID, grace time.Duration) error {
	return p.withAccount(ctx, id, func(backend Backend, record *journal.Account) error {
		switch {
		case record.Phase != journal.Done:
			return fault.New(fault.FailedPrecondition, "access %s has no key yet", id)
		case ended(record):
			return fault.New(fault.FailedPrecondition, "the key of access %s has ended, as its class says (keyLife); delete the BucketAccess and make a new one", id)
		case backend.Provider.Capabilities().MaxKeysPerSlot == 1:
			return fault.New(fault.FailedPrecondition, "backend %s holds one key for each access, so there is no second beside it; make a second BucketAccess instead", id.Backend)
		}
		if err := p.endRotation(ctx, backend, record); err != nil {
			return err
		}
		if r := record.Rotation; r != nil && r.Phase == journal.Done {
			return fault.New(fault.FailedPrecondition, "access %s still has the key before its last rotation; %s", id, waits(r))
		}
		if record.Rotation == nil {
			record.Rotation = &journal.Rotation{Phase: journal.Intent, Proposed: propose(), Grace: grace}
			if err := p.Journal.SaveAccount(ctx, record); err != nil {
				return fasterElsewhere(err)
			}
		}
		return p.issueNext(ctx, backend, record)
	})
}

// Tend carries on a rotation that was interrupted, and ends one whose grace is
// over. Where neither is the case it asks nobody.
func (p *Provisioner) Tend(ctx context.Context, id cosi.AccountID) error {
	record, err := p.Journal.Account(ctx, id)
	if err != nil || record.Rotation == nil {
		return absentIsNil(err)
	}
	return absentIsNil(p.withAccount(ctx, id, func(backend Backend, record *journal.Account) error {
		switch {
		case record.Rotation == nil || record.Phase != journal.Done:
			return nil
		case record.Rotation.Phase == journal.Intent:
			return p.issueNext(ctx, backend, record)
		}
		return p.endRotation(ctx, backend, record)
	}))
}

// withAccount locks an access and its buckets, as a grant does.
func (p *Provisioner) withAccount(ctx context.Context, id cosi.AccountID, do func(Backend, *journal.Account) error) error {
	backend, known := p.Backends[id.Backend]
	if !known {
		return noBackend(id.ContractID)
	}
	record, err := p.Journal.Account(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound, "access %s is not in the journal", id)
	} else if err != nil {
		return err
	}
	wanted := []request{shared("contract", id.ContractID)}
	for _, b := range record.Grant.Buckets {
		wanted = append(wanted, shared("bucket", bucketIDOf(id, b)))
	}
	unlock, err := p.locks.acquire(ctx, append(wanted, exclusive("account", id))...)
	if err != nil {
		return err
	}
	defer unlock()
	if record, err = p.Journal.Fresh().Account(ctx, id); err != nil { // as it is now
		return err
	}
	return do(backend, record)
}

// issueNext asks for the key of a rotation's intent, beside the one there is.
func (p *Provisioner) issueNext(ctx context.Context, backend Backend, record *journal.Account) error {
	proposed := record.Rotation.Proposed
	pair, err := backend.Provider.IssueKey(ctx, contract.IssueKeyRequest{
		Contract: record.ID.Contract, Slot: record.ID.Account, Scope: scopeOf(record), Proposed: proposed,
		Keep: []string{record.Issued.AccessKeyID},
	})
	switch fault.KindOf(err) {
	case "":
	case fault.Mismatch: // its secret was told, and the answer lost: another is proposed
		record.Rotation.Proposed = propose()
		if err := p.Journal.SaveAccount(ctx, record); err != nil {
			return fasterElsewhere(err)
		}
		return fault.Wrap(fault.Unavailable, err, "access %s: the new key is issued once more; repeat the command", record.ID)
	case fault.Unavailable, fault.RateLimited, fault.Pending, fault.Canceled, fault.Internal: // the outcome is open
		return fault.In(err, "access %s", record.ID)
	default:
		record.Rotation = nil
		return errors.Join(fault.In(err, "access %s", record.ID), p.Journal.SaveAccount(ctx, record))
	}
	record.Rotation = &journal.Rotation{Phase: journal.Done, Old: record.Issued.AccessKeyID, Grace: record.Rotation.Grace}
	record.Proposed, record.Issued, record.IssuedAt = proposed, pair, time.Now().UTC()
	if err := p.Journal.SaveAccount(ctx, record); err != nil {
		return p.rotatedElsewhere(ctx, backend, record.ID, err)
	}
	p.acknowledge(ctx, record.ID.ContractID, backend, proposed)
	p.Rotated(RotationIssued)
	klog.FromContext(ctx).Info("Key rotated; the one before is valid until the new one has been handed out", "account", record.ID, "grace", record.Rotation.Grace)
	return nil
}

// rotatedElsewhere ends a rotation whose record another process has changed: it
// was answered the same key, or has revoked the access.
func (p *Provisioner) rotatedElsewhere(ctx context.Context, backend Backend, id cosi.AccountID, cause error) error {
	if !fault.Is(cause, fault.Mismatch) {
		return cause
	}
	_, err := p.Journal.Fresh().Account(ctx, id)
	if fault.Is(err, fault.NotFound) {
		err = backend.Provider.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: id.Contract, Slot: id.Account})
	}
	return errors.Join(fasterElsewhere(cause), err)
}

// handOut writes down that a rotated key is about to be answered. If it cannot
// be written the old key lives longer, which harms nobody.
func (p *Provisioner) handOut(ctx context.Context, record *journal.Account) {
	if r := record.Rotation; r == nil || r.Phase != journal.Done || !r.HandedOut.IsZero() {
		return
	}
	record.Rotation.HandedOut = time.Now().UTC()
	log := klog.FromContext(ctx)
	if err := p.Journal.SaveAccount(ctx, record); err != nil {
		log.V(2).Info("It could not be written down that a rotated key is handed out", "account", record.ID, "err", err)
		return
	}
	p.Rotated(RotationHandedOut)
	log.Info("A rotated key is handed out", "account", record.ID, "before-revoked-after", record.Rotation.Grace)
}

// endRotation revokes the key before the rotation, if its time has come.
func (p *Provisioner) endRotation(ctx context.Context, backend Backend, record *journal.Account) error {
	if r := record.Rotation; r == nil || r.Phase != journal.Done || r.HandedOut.IsZero() || time.Since(r.HandedOut) < r.Grace {
		return nil
	}
	if err := backend.Provider.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: record.ID.Contract, Slot: record.ID.Account, AccessKeyID: record.Rotation.Old}); err != nil {
		return fault.In(err, "access %s", record.ID)
	}
	record.Rotation = nil
	if err := p.Journal.SaveAccount(ctx, record); err != nil {
		return fasterElsewhere(err)
	}
	p.Rotated(RotationEnded)
	klog.FromContext(ctx).Info("The key before a rotation is revoked", "account", record.ID)
	return nil
}

// keptBeside are the keys of an access that a newly issued one leaves alone.
func keptBeside(record *journal.Account) []string {
	if r := record.Rotation; r != nil && r.Phase == journal.Done {
		return []string{r.Old}
	}
	return nil
}

// loseIssued turns the record of a key that is lost into an intent for another.
// The one before a rotation stays: an application may still hold it.
func loseIssued(record *journal.Account) {
	record.Phase, record.Proposed, record.Issued = journal.Intent, propose(), secret.KeyPair{}
	if r := record.Rotation; r != nil && r.Phase == journal.Intent {
		record.Rotation = nil
	} else if r != nil {
		r.HandedOut = time.Time{}
	}
}

// waits says what the key before a rotation waits for.
func waits(r *journal.Rotation) string {
	if r.HandedOut.IsZero() {
		return "the new one was not yet handed out, which the sidecar's next grant call does"
	}
	return "it is revoked when its grace is over"
}

// ended reports whether a key's life is over, which its class has bounded.
func ended(record *journal.Account) bool {
	end := record.ExpiresAt()
	return !end.IsZero() && !time.Now().Before(end)
}
