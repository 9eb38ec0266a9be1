package provisioner

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/lock"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/site"
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
	p.cancelUnused(ctx, id.ContractID, p.begin)
	return nil
}

func (p *Provisioner) deleteBucket(ctx context.Context, id cosi.BucketID, backend site.Backend, empties bool) error {
	ctx, call, err := p.begin(ctx, lock.Shared("contract", id.ContractID), lock.Exclusive("bucket", id))
	if err != nil {
		return err
	}
	defer call.end()
	record, err := p.journal.Bucket(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return p.deleteUnrecorded(ctx, id)
	}
	if err != nil {
		return err
	}
	empties = empties && record.Effective.OnDelete == params.Empty
	// Keys go first where objects are deleted too, so that no application writes
	// while the bucket is emptied. Elsewhere they outlive a refusal, because the
	// application still needs them.
	err = p.sites.Do(ctx, p.finder(id.ContractID), func(s *site.Site) error {
		engine := s.In(record.Endpoint)
		if empties || s.Capabilities().SharedBuckets {
			// The record says that the bucket was ours. Before anything of it is
			// deleted, so does the bucket, unless the service keeps contracts apart.
			mark, err := engine.Mark(ctx, id.Bucket)
			switch {
			case fault.Is(err, fault.NotFound):
				return nil
			case err != nil:
				return fault.In(err, "bucket %s", id)
			case !p.stillOurs(record, mark):
				return fault.New(fault.Conflict, "bucket %s no longer has the tag %s that it had; it is left alone: restore the tag, or delete the bucket by hand", id, cosi.OwnerTag)
			}
		}
		if empties {
			revoked, err := p.revokeOn(ctx, id, backend)
			if err == nil && len(revoked) > 0 {
				err = p.journal.Delete(ctx, revoked...)
			}
			if err != nil {
				return err
			}
			if err := p.empty(ctx, record, engine); err != nil {
				return fault.In(err, "bucket %s", id)
			}
		}
		p.alive.remove(bucketKey(id))
		return fault.In(deleteOnce(ctx, engine, id.Bucket, empties), "bucket %s", id)
	})
	if err != nil && !fault.Is(err, fault.NotFound) && !isGone(err) { // what was under a contract that is gone is gone with it
		return err
	}
	revoked, err := p.revokeOn(ctx, id, backend)
	if err != nil {
		return err
	}
	return p.journal.Delete(ctx, append(revoked, record)...)
}

// deleteOnce deletes a bucket, and knows of one that was just emptied what it
// means if it is not empty.
func deleteOnce(ctx context.Context, engine *bucket.Engine, name string, emptied bool) error {
	err := engine.Delete(ctx, name)
	if emptied && bucket.NotEmpty(err) {
		return fault.Wrap(fault.Unavailable, err, "something was written to it while it was emptied; the call is retried until it is empty")
	}
	return err
}

// revokeOn revokes every key that reaches a bucket, and returns their records.
func (p *Provisioner) revokeOn(ctx context.Context, id cosi.BucketID, backend site.Backend) ([]journal.Record, error) {
	accounts, err := p.journal.AccountsOn(ctx, id)
	if err != nil {
		return nil, err
	}
	records := make([]journal.Record, len(accounts))
	for i, a := range accounts {
		p.alive.remove(accountKey(a.ID))
		p.graces.forget(a.ID)
		if err := p.slotOf(backend, a).Revoke(ctx); err != nil {
			return nil, fault.In(err, "bucket %s", id)
		}
		records[i] = a
	}
	return records, nil
}

// empty empties a bucket that is to be deleted, as far as the call's time goes.
// What it has done is in the journal and in the message, and a repeat carries
// on: what is deleted is listed no more.
func (p *Provisioner) empty(ctx context.Context, record *journal.Bucket, engine *bucket.Engine) error {
	if record.Emptying == nil {
		record.Emptying = &journal.Emptying{Since: time.Now().UTC()}
		if err := p.journal.SaveBucket(ctx, record); err != nil {
			return err
		}
	}
	deleted, err := engine.Empty(ctx, record.ID.Bucket, record.Effective)
	record.Emptying.Deleted += deleted
	log := klog.FromContext(ctx).WithValues("bucket", record.ID, "deleted", record.Emptying.Deleted, "since", record.Emptying.Since)
	if err == nil {
		log.Info("A bucket was emptied for its deletion")
		return nil
	}
	over := errors.Is(err, context.DeadlineExceeded) // and the engine stops before the call does
	ctx, cancel := undoing(ctx)
	defer cancel()
	if saveErr := p.journal.SaveBucket(ctx, record); saveErr != nil {
		log.V(2).Info("The progress of an emptying was not written", "err", saveErr)
	}
	log.Info("A bucket is not empty yet", "reason", err)
	if over {
		return fault.Wrap(fault.KindOf(err), err, "it is being emptied: %d versions, delete markers and uploads are deleted so far; the call is retried for the rest", record.Emptying.Deleted)
	}
	return fault.In(err, "emptying it has stopped after %d versions, delete markers and uploads", record.Emptying.Deleted)
}

// deleteUnrecorded deletes a bucket that the journal does not know, if its
// mark proves that it is the driver's.
func (p *Provisioner) deleteUnrecorded(ctx context.Context, id cosi.BucketID) error {
	err := p.sites.Do(ctx, p.finder(id.ContractID), func(s *site.Site) error {
		for _, at := range s.Endpoints {
			engine := s.In(at)
			ours, err := engine.Ours(ctx, id.Bucket)
			switch {
			case fault.Is(err, fault.NotFound):
				continue
			case err != nil:
				return fault.In(err, "bucket %s", id)
			case !ours:
				return fault.New(fault.Conflict, "bucket %s was not made by this driver; it is left alone: delete it with the contract's own key", id)
			}
			klog.FromContext(ctx).Info("A bucket with the driver's mark has no journal record; deleting it", "bucket", id)
			if err := engine.Delete(ctx, id.Bucket); err != nil {
				return fault.In(err, "bucket %s", id)
			}
		}
		return nil
	})
	if isGone(err) {
		return nil
	}
	return fault.IgnoreNotFound(err)
}

func isGone(err error) bool { return errors.Is(err, site.ErrGone) }

// cancelUnused cancels a contract under which the journal knows no bucket, if its
// terms say so. No call fails by that: what cannot be done now is done by
// [Provisioner.Tend].
func (p *Provisioner) cancelUnused(ctx context.Context, id cosi.ContractID, begin beginner) {
	terms, known := p.termsOf(id)
	if !known || terms.OnLastBucket != config.Cancel {
		return
	}
	if !p.unused(ctx, id) {
		return
	}
	ctx, call, err := begin(ctx, lock.Exclusive("contract", id)) // nothing may be made meanwhile
	if err == nil {
		defer call.end()
		if !p.unused(ctx, id) {
			return
		}
		err = p.sites.Cancel(ctx, id)
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("A contract without buckets could not be cancelled; it is tried again later", "contract", id, "reason", err)
	}
}

// beginner is [Provisioner.begin] or [Provisioner.beginIdle].
type beginner func(context.Context, ...lock.Request) (context.Context, *call, error)

// unused reports whether the journal has a contract, and no bucket under it.
func (p *Provisioner) unused(ctx context.Context, id cosi.ContractID) bool {
	if _, err := p.journal.Contract(ctx, id); err != nil {
		return false
	}
	used, err := p.journal.InUse(ctx, id)
	return err == nil && !used
}
