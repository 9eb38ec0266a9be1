package provisioner

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/keys"
)

// RevokeAccess takes a key and its principal away. When it returns nil the
// storage refuses the key. What is gone is success.
func (p *Provisioner) RevokeAccess(ctx context.Context, accountID string, bucketIDs ...string) error {
	id, err := cosi.ParseAccountID(accountID)
	backend, known := p.backends[id.Backend]
	if err == nil && !known {
		err = fault.New(fault.InvalidArgument, "account id %q names backend %q, which is not this driver's; restore the backend's entry in the configuration if it was", accountID, id.Backend)
	}
	for _, bucketID := range bucketIDs {
		b, _, bucketErr := p.parseBucket(bucketID)
		err = join(err, bucketErr)
		if err == nil && b.ContractID != id.ContractID {
			err = fault.New(fault.InvalidArgument, "account %s and bucket %s are of different contracts", id, b)
		}
	}
	if err != nil {
		return err
	}
	ctx, call, record, err := p.beginAccess(ctx, id, p.begin)
	if err != nil {
		return err
	}
	defer call.end()
	if record == nil { // if the journal has lost the record, the slot still tells the key
		if _, err := backend.Signed(ctx, id.Contract); err != nil {
			return fault.IgnoreNotFound(err)
		}
		if err := backend.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: id.Contract, Slot: id.Account}); err != nil {
			return fault.In(err, "access %s", id)
		}
		keys.Audit(ctx, "Key revoked, if there was one", id.ContractID, id.Account)
		return nil
	}
	for _, bucketID := range bucketIDs {
		if !slices.ContainsFunc(record.Effective.Buckets, func(b journal.BucketAccess) bool { return bucketIDOf(id, b).String() == bucketID }) {
			return fault.New(fault.InvalidArgument, "account %s has no access to bucket %s", id, bucketID)
		}
	}
	p.alive.remove(accountKey(id))
	p.graces.forget(id)
	if err := p.slotOf(backend, record).Revoke(ctx); err != nil {
		return fault.In(err, "access %s", id)
	}
	if formats := record.Effective.SecretFormat; p.deliverer != nil && len(formats) > 0 {
		withdrawing, cancel := context.WithTimeout(ctx, undoTimeout) // the record has to go, too
		err := p.deliverer.Withdraw(withdrawing, id, formats)
		cancel()
		if err != nil { // its owner reference deletes it too
			klog.FromContext(ctx).Info("The Secrets of secretFormat were not deleted; Kubernetes deletes them with their BucketAccess", "account", id, "reason", err)
		}
	}
	return p.journal.Delete(ctx, record)
}

// CutAccess takes the key of an access away and gives it no other, until
// [Provisioner.LiftAccess]. When it returns nil the storage refuses the key. It is
// for a key that has leaked: the access itself stays, with its Secret.
func (p *Provisioner) CutAccess(ctx context.Context, id cosi.AccountID) error {
	return p.later(id, p.onKey(ctx, id, p.begin, func(ctx context.Context, slot *keys.Slot, record *journal.Account) error {
		return p.cut(ctx, slot, record)
	}))
}

func (p *Provisioner) cut(ctx context.Context, slot *keys.Slot, record *journal.Account) error {
	p.alive.remove(accountKey(record.ID))
	if record.Cut == "" {
		record.Cut = journal.Intent
		if err := slot.Save(ctx); err != nil {
			return err
		}
	}
	if err := slot.Revoke(ctx); err != nil {
		return fault.In(err, "it gets no other key, but the service may still accept the one that it has; run the command again until it succeeds")
	}
	if record.Cut == journal.Done {
		return nil
	}
	record.Cut, record.Rotation = journal.Done, nil
	return slot.Save(ctx)
}

// LiftAccess lets an access that was cut be granted again, with another key.
func (p *Provisioner) LiftAccess(ctx context.Context, id cosi.AccountID) error {
	return p.onKey(ctx, id, p.begin, func(ctx context.Context, slot *keys.Slot, record *journal.Account) error {
		if record.Cut == "" {
			return nil
		}
		if err := p.cut(ctx, slot, record); err != nil {
			return err
		}
		record.Cut, record.KeyState = "", journal.KeyState{Phase: journal.Intent, Proposed: keys.Propose()}
		if record.Effective.KeyRotation > 0 {
			record.Since = time.Now().UTC()
		}
		return slot.Save(ctx)
	})
}

// isCut is the answer to a request for a key of an access that was cut.
func isCut(id cosi.AccountID) error {
	return fault.New(fault.FailedPrecondition, "its key was revoked by hand, and it gets no other until the operator of the driver lifts that: contract-cosi-driver revoke --access %s --lift", id)
}

// beginAccess admits a call on an access, with the locks on its buckets that a
// grant takes too. The record is nil if there is none.
func (p *Provisioner) beginAccess(ctx context.Context, id cosi.AccountID, begin beginner) (context.Context, *call, *journal.Account, error) {
	for {
		before, err := p.journal.Account(ctx, id)
		if fault.IgnoreNotFound(err) != nil {
			return ctx, nil, nil, err
		}
		var grant journal.Grant
		if before != nil {
			grant = before.Effective
		}
		inside, call, err := begin(ctx, accessLocks(id, grant)...)
		if err != nil {
			return ctx, nil, nil, err
		}
		record, err := p.journal.Account(inside, id)
		if err == nil && (before == nil || !slices.EqualFunc(before.Effective.Buckets, record.Effective.Buckets, func(a, b journal.BucketAccess) bool { return a.Bucket == b.Bucket })) {
			call.end() // it was granted meanwhile: its buckets have to be locked too
			continue
		}
		if fault.IgnoreNotFound(err) != nil {
			call.end()
			return ctx, nil, nil, err
		}
		return inside, call, record, nil
	}
}
