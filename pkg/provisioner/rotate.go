package provisioner

import (
	"context"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/keys"
)

// RotateAccess issues a new key for an access; see [keys.Slot.Rotate]. What is due
// of a rotation before is done first.
func (p *Provisioner) RotateAccess(ctx context.Context, id cosi.AccountID, grace time.Duration) error {
	return p.later(id, p.onKey(ctx, id, p.begin, func(ctx context.Context, slot *keys.Slot, record *journal.Account) error {
		if record.Cut != "" {
			return isCut(id)
		}
		if ended(record) {
			return fault.New(fault.FailedPrecondition, "its key has ended, as its class says (keyLife); delete the BucketAccess and make a new one")
		}
		begun := record.Rotation != nil && record.Rotation.Phase != journal.Done
		if err := p.finish(ctx, slot, record); err != nil || begun {
			return err
		}
		since := time.Time{}
		if record.Effective.KeyRotation > 0 {
			since = time.Now().UTC()
		}
		if err := slot.Rotate(ctx, grace, since); err != nil {
			return err
		}
		_ = p.later(id, p.renew(ctx, slot, record)) // what is not away is told
		return nil
	}))
}

// later has what is due of an access done soon, if it could not be done because something
// is away.
func (p *Provisioner) later(id cosi.AccountID, err error) error {
	if fault.Passing(err) && p.deliverer != nil {
		p.deliverer.Soon(id)
	}
	return err
}

// ReplaceKey replaces the key of an access if it was issued before a time, with the
// grace of whatever rotation it is in cut to that which is given. It takes several
// calls, and reports whether there is more to do: the key waits for its grace.
func (p *Provisioner) ReplaceKey(ctx context.Context, id cosi.AccountID, before time.Time, grace time.Duration) (more bool, err error) {
	if p.deliverer == nil {
		return false, fault.New(fault.FailedPrecondition, "the driver may not write applications' Secrets (applicationSecrets in its configuration); use rotate --older-than, and deliver the keys by hand")
	}
	err = p.onKey(ctx, id, p.begin, func(ctx context.Context, slot *keys.Slot, record *journal.Account) error {
		if record.Cut != "" || ended(record) { // no one can use it
			return nil
		}
		if r := record.Rotation; r != nil && r.Grace > grace {
			r.Grace = grace
			if err := slot.Save(ctx); err != nil {
				return err
			}
		}
		err := p.finish(ctx, slot, record)
		if err == nil && record.Rotation == nil && record.KeyIssuedAt().Before(before) {
			if _, err := p.deliver(ctx, record, Delivery{Replaces: record.Issued.AccessKeyID}); err != nil {
				return undelivered(err)
			}
			since := time.Time{}
			if record.Effective.KeyRotation > 0 {
				since = time.Now().UTC()
			}
			if err = slot.Rotate(ctx, grace, since); err == nil {
				err = p.finish(ctx, slot, record)
			}
		}
		more = record.Rotation != nil || record.KeyIssuedAt().Before(before)
		return err
	})
	return more, fault.IgnoreNotFound(err)
}

// Delivered records that the application's Secret has the key of a rotation; see
// [keys.Slot.Deliver].
func (p *Provisioner) Delivered(ctx context.Context, id cosi.AccountID) error {
	return p.onKey(ctx, id, p.begin, func(ctx context.Context, slot *keys.Slot, record *journal.Account) error {
		if record.Cut != "" {
			return isCut(id)
		}
		if r := record.Rotation; r == nil || r.Phase != journal.Done {
			return fault.New(fault.FailedPrecondition, "it has no key before a rotation; rotate --access %s issues a new one", id)
		}
		return slot.Deliver(ctx)
	})
}

// Tend does what is due of a record without anyone asking: it rotates a key that is
// old enough, carries on a rotation or a cut that was interrupted, ends a rotation
// whose grace is over, and cancels a contract that has lost its last bucket. In most cases there is nothing, and no
// call is made.
func (p *Provisioner) Tend(ctx context.Context, key journal.Key) error {
	switch key.Kind {
	case journal.Contracts:
		id, err := cosi.ParseContractID(key.ID)
		if err == nil {
			p.cancelUnused(ctx, id, p.beginIdle)
		}
		return err
	case journal.Accounts:
		id, err := cosi.ParseAccountID(key.ID)
		if err != nil {
			return err
		}
		record, err := p.journal.Account(ctx, id)
		if err != nil || !p.tending(record) {
			return fault.IgnoreNotFound(err)
		}
		return fault.IgnoreNotFound(p.onKey(ctx, id, p.beginIdle, func(ctx context.Context, slot *keys.Slot, record *journal.Account) error {
			if record.Cut != "" {
				return p.cut(ctx, slot, record)
			}
			err := p.renew(ctx, slot, record)
			if r := record.Rotation; err == nil && r != nil && keys.Due(r) {
				err = fault.New(fault.Pending, "its old key is revoked when this process has watched its grace, or %s of it", settle)
			}
			return err
		}))
	}
	return nil
}

// onKey admits a call on the key of an access. NotFound if there is no record.
func (p *Provisioner) onKey(ctx context.Context, id cosi.AccountID, begin beginner, do func(context.Context, *keys.Slot, *journal.Account) error) error {
	backend, err := p.sites.At(id.ContractID)
	if err != nil {
		return err
	}
	ctx, call, record, err := p.beginAccess(ctx, id, begin)
	if err != nil {
		return err
	}
	defer call.end()
	if record == nil {
		return fault.New(fault.NotFound, "access %s is not in the journal; the command keys lists them", id)
	}
	return fault.In(do(ctx, p.slotOf(backend, record), record), "access %s", id)
}

// ended reports whether a key's life is over, which its class has bounded.
func ended(record *journal.Account) bool {
	end := record.ExpiresAt()
	return !end.IsZero() && !time.Now().Before(end)
}
