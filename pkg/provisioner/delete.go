package provisioner

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// DeleteBucket deletes a bucket with every key the driver gave on it, and
// cancels the contract if that was its last one and its terms say so. A bucket
// that holds objects is refused, unless empties is true and the class that it
// was made or adopted by says so too. What is gone is success.
func (p *Provisioner) DeleteBucket(ctx context.Context, bucketID string, empties bool) error {
	id, backend, err := p.parseBucket(bucketID)
	if err != nil {
		return err
	}
	if err := p.deleteBucket(ctx, id, backend, empties); err != nil {
		return err
	}
	terms, known := p.Terms(id.Contract)
	if known && terms.Backend == id.Backend && terms.OnLastBucket == config.Cancel {
		return p.cancelUnused(ctx, id.ContractID, backend)
	}
	return nil
}

func (p *Provisioner) deleteBucket(ctx context.Context, id cosi.BucketID, backend Backend, empties bool) error {
	unlock, err := p.locks.acquire(ctx, shared("contract", id.ContractID), exclusive("bucket", id))
	if err != nil {
		return err
	}
	defer unlock()

	record, err := sure(ctx, p.Journal, (*journal.Journal).Bucket, id)
	if fault.Is(err, fault.NotFound) {
		// The process that dropped the record may have died before it looked for
		// keys once more.
		if err := p.revokeLate(ctx, &journal.Bucket{ID: id}, backend); err != nil {
			return err
		}
		return p.deleteUnrecorded(ctx, id)
	}
	if err != nil {
		return err
	}
	accounts, err := p.Journal.AccountsOn(ctx, id)
	if err != nil {
		return err
	}
	revoke := func() ([]journal.Record, error) {
		var revoked []journal.Record
		for _, a := range accounts {
			if err := backend.Provider.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: id.Contract, Slot: a.ID.Account}); err != nil {
				return nil, fault.In(err, "bucket %s: key %s", id, a.ID)
			}
			revoked = append(revoked, a)
		}
		accounts = nil
		return revoked, nil
	}
	if !empties {
		record.Applied.OnDelete = params.Refuse
	}
	if err := p.deleteFromStorage(ctx, id, record, revoke); err != nil {
		return err
	}
	revoked, err := revoke()
	if err != nil {
		return err
	}
	if err := p.Journal.Delete(ctx, append(revoked, record)...); err != nil {
		return fasterElsewhere(err)
	}
	return p.revokeLate(ctx, record, backend)
}

// revokeLate revokes the keys to a bucket that another process gave while this
// one was deleting it. It is called when the bucket's record is gone; an intent
// that is written after that finds it gone.
func (p *Provisioner) revokeLate(ctx context.Context, record *journal.Bucket, backend Backend) error {
	if err := p.Journal.Sync(ctx, record); err != nil {
		return err
	}
	accounts, err := p.Journal.AccountsOn(ctx, record.ID)
	if err != nil {
		return err
	}
	for _, a := range accounts {
		if err := backend.Provider.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: record.ID.Contract, Slot: a.ID.Account}); err != nil {
			return fault.In(err, "bucket %s: key %s", record.ID, a.ID)
		}
		if err := p.Journal.Delete(ctx, a); err != nil {
			return fasterElsewhere(err)
		}
	}
	return nil
}

// deleteFromStorage deletes the bucket at the service. Keys go first where
// objects are deleted too, so that nobody writes while the bucket is emptied;
// elsewhere they outlive a refusal, because the application still needs them.
func (p *Provisioner) deleteFromStorage(ctx context.Context, id cosi.BucketID, record *journal.Bucket, revoke func() ([]journal.Record, error)) error {
	engine, err := p.engine(ctx, id.ContractID, p.current(id.ContractID, record.Endpoint))
	if fault.Is(err, fault.NotFound) {
		return nil // no contract, so nothing can have been made
	}
	if err != nil {
		return err
	}
	if record.Applied.OnDelete == params.Empty {
		// The record says that the bucket was ours. Before its objects are
		// deleted, so does the bucket.
		mark, err := engine.Mark(ctx, id.Bucket)
		switch {
		case fault.Is(err, fault.NotFound):
			return nil
		case err != nil:
			return p.explainDelete(ctx, id, engine, err)
		case !p.stillOurs(record, mark):
			return fault.New(fault.Conflict, "bucket %s no longer has the tag %s that it had; it is not emptied: restore the tag, or empty and delete it by hand", id, cosi.OwnerTag)
		}
		revoked, err := revoke()
		if err == nil && len(revoked) > 0 {
			err = fasterElsewhere(p.Journal.Delete(ctx, revoked...)) // a dead key must not be given again
		}
		if err != nil {
			return err
		}
		if err := p.empty(ctx, record, engine); err != nil {
			return p.explainDelete(ctx, id, engine, err)
		}
	}
	if err := engine.Delete(ctx, id.Bucket); err != nil {
		return p.explainDelete(ctx, id, engine, err)
	}
	return nil
}

// empty empties a bucket that is to be deleted, as far as the call's time goes.
// What it has done is in the journal and in the message, and a repeat carries
// on: what is deleted is listed no more.
func (p *Provisioner) empty(ctx context.Context, record *journal.Bucket, engine *bucket.Engine) error {
	if record.Emptying == nil {
		record.Emptying = &journal.Emptying{Since: time.Now().UTC()}
		if err := p.Journal.SaveBucket(ctx, record); err != nil {
			return fasterElsewhere(err)
		}
	}
	deleted, err := engine.Empty(ctx, record.ID.Bucket, record.Applied)
	record.Emptying.Deleted += deleted
	log := klog.FromContext(ctx).WithValues("bucket", record.ID, "deleted", record.Emptying.Deleted, "since", record.Emptying.Since)
	if err == nil {
		log.Info("A bucket was emptied for its deletion")
		return nil
	}
	over := errors.Is(err, context.DeadlineExceeded) // and the engine leaves off before the call does
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if saveErr := p.Journal.SaveBucket(ctx, record); saveErr != nil {
		log.V(2).Info("The progress of an emptying was not written", "err", saveErr)
	}
	log.Info("A bucket is not empty yet", "reason", err)
	if over {
		return fault.Wrap(fault.KindOf(err), err, "it is being emptied: %d versions, delete markers and uploads are deleted so far; the call is repeated for the rest", record.Emptying.Deleted)
	}
	return fault.In(err, "emptying it has stopped after %d versions, delete markers and uploads", record.Emptying.Deleted)
}

// explainDelete is explain, where a contract that is gone took its buckets with it.
func (p *Provisioner) explainDelete(ctx context.Context, id cosi.BucketID, engine *bucket.Engine, err error) error {
	if fault.Is(err, fault.PermissionDenied) {
		if _, lookup := p.Backends[id.Backend].Provider.GetContract(ctx, id.Contract); fault.Is(lookup, fault.NotFound) {
			return nil
		}
	}
	return p.explain(ctx, id.ContractID, engine, fault.In(err, "bucket %s", id))
}

// deleteUnrecorded deletes a bucket that the journal does not know, if its
// mark proves that it is the driver's.
func (p *Provisioner) deleteUnrecorded(ctx context.Context, id cosi.BucketID) error {
	have, err := p.signed(ctx, id.ContractID)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, endpoint := range have.Endpoints {
		engine, err := p.engine(ctx, id.ContractID, endpoint)
		if fault.Is(err, fault.NotFound) {
			return fault.New(fault.FailedPrecondition, "contract %s was signed by this driver, and the journal has no record of it; restore the journal, or delete bucket %s by hand", id.ContractID, id.Bucket)
		}
		if err != nil {
			return err
		}
		ours, err := engine.Ours(ctx, id.Bucket)
		switch {
		case fault.Is(err, fault.NotFound):
			continue
		case err != nil:
			return p.explainDelete(ctx, id, engine, err)
		case !ours:
			return fault.New(fault.Conflict, "bucket %s was not made by this driver; it is left alone: delete it with the contract's own key", id)
		}
		klog.FromContext(ctx).Info("A bucket with the driver's mark has no journal record; deleting it", "bucket", id)
		if err := engine.Delete(ctx, id.Bucket); err != nil {
			return p.explainDelete(ctx, id, engine, err)
		}
	}
	return nil
}

// cancelUnused cancels a contract under which the journal knows no bucket. The
// bucket's deletion was synced, so of two processes that delete the last two
// buckets one sees that there is none left. What is being made meanwhile the
// journal cannot know of: the service is the referee. It refuses while a bucket
// remains, whoever made it, and then the contract stays.
func (p *Provisioner) cancelUnused(ctx context.Context, id cosi.ContractID, backend Backend) error {
	if used, err := p.Journal.InUse(ctx, id); err != nil || used {
		return err
	}
	unlock, err := p.locks.acquire(ctx, exclusive("contract", id)) // nothing may be made meanwhile
	if err != nil {
		return err
	}
	defer unlock()
	if used, err := p.Journal.InUse(ctx, id); err != nil || used {
		return err
	}
	record, err := p.Journal.Contract(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = p.signed(ctx, id)
	if err == nil {
		err = backend.Provider.DeleteContract(ctx, id.Contract)
	}
	switch {
	case fault.Is(err, fault.NotFound):
	case fault.Is(err, fault.FailedPrecondition):
		p.Changed(Kept)
		klog.FromContext(ctx).Info("The contract's last bucket of this driver is gone, but the service keeps the contract", "contract", id, "reason", err)
		return nil
	case err != nil:
		return err
	}
	p.forget(id)
	p.Changed(Cancelled)
	klog.FromContext(ctx).Info("Contract cancelled with its last bucket", "contract", id)
	return fasterElsewhere(p.Journal.Delete(ctx, record))
}
