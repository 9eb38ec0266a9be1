package provisioner

import (
	"context"
	"slices"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// RevokeAccess takes a key and its principal away. When it returns nil the
// storage refuses the key. What is gone is success.
func (p *Provisioner) RevokeAccess(ctx context.Context, accountID string, bucketIDs ...string) error {
	id, err := cosi.ParseAccountID(accountID)
	backend, known := p.Backends[id.Backend]
	if err == nil && !known {
		err = fault.New(fault.InvalidArgument, "account id %q names backend %q, which is not this driver's", accountID, id.Backend)
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
	unlock, err := p.locks.acquire(ctx, shared("contract", id.ContractID), exclusive("account", id))
	if err != nil {
		return err
	}
	defer unlock()

	record, err := sure(ctx, p.Journal, (*journal.Journal).Account, id)
	switch {
	case fault.Is(err, fault.NotFound):
		// If the journal has lost the record, the slot still tells the key.
		if _, err := p.signed(ctx, id.ContractID); fault.Is(err, fault.NotFound) {
			return nil
		} else if err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		for _, bucketID := range bucketIDs {
			if !slices.ContainsFunc(record.Grant.Buckets, func(b journal.BucketAccess) bool { return bucketIDOf(id, b).String() == bucketID }) {
				return fault.New(fault.InvalidArgument, "account %s has no access to bucket %s", id, bucketID)
			}
		}
	}
	if err := backend.Provider.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: id.Contract, Slot: id.Account}); err != nil {
		return fault.In(err, "access %s", id)
	}
	if record == nil {
		return nil
	}
	return fasterElsewhere(p.Journal.Delete(ctx, record))
}
