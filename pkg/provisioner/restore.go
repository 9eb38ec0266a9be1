package provisioner

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// A sidecar that starts repeats the calls for all that is live. The driver
// takes each as the question whether the thing is still there, and makes anew
// what somebody took away at the service. What cannot be looked at now is
// answered from the journal: a running application has its Secret, and a
// service that is down is no reason to report it broken.

// A call that can be answered without a look at the service waits so long for
// it, and for so long after that no call looks again.
const (
	lookTimeout = 5 * time.Second
	silence     = 10 * time.Second
)

// restoreBucket writes what a bucket has lost of what it was made with.
func (p *Provisioner) restoreBucket(ctx context.Context, record *journal.Bucket) error {
	return p.look(ctx, record, func(ctx context.Context, engine *bucket.Engine) error {
		written, err := engine.Restore(ctx, record.ID.Bucket, record.Spec)
		for _, what := range written {
			p.Repaired(what)
			klog.FromContext(ctx).Info("Something was taken from a bucket behind the driver's back; made anew", "bucket", record.ID, "what", what)
		}
		return err
	})
}

// stillThere reports, as NotFound, that a bucket is gone, and as Mismatch that
// it is not as spec says. It is not made anew or changed: whoever refers to an
// existing bucket wants it as it is.
func (p *Provisioner) stillThere(ctx context.Context, record *journal.Bucket, spec params.Bucket) error {
	return p.look(ctx, record, func(ctx context.Context, engine *bucket.Engine) error {
		mark, err := engine.Mark(ctx, record.ID.Bucket)
		if err != nil {
			return err
		}
		if mark != p.Owner && !record.Adopted {
			return fault.New(fault.Conflict, "it has lost the driver's tag %s; restore the tag, or delete the bucket", cosi.OwnerTag)
		}
		return asItsParametersSay(ctx, engine, record.ID.Bucket, spec)
	})
}

// look lets do look at a recorded bucket. Only what is certain comes back as an
// error: the bucket or its contract is gone, or the bucket is not what it is
// taken for.
func (p *Provisioner) look(ctx context.Context, record *journal.Bucket, do func(context.Context, *bucket.Engine) error) error {
	id := record.ID
	err := p.ask(ctx, id.Backend, func(ctx context.Context) error {
		engine, err := p.engine(ctx, id.ContractID, p.current(id.ContractID, record.Endpoint))
		if fault.Is(err, fault.NotFound) {
			return gone(id.ContractID)
		}
		if err != nil {
			return err
		}
		if err := do(ctx, engine); err != nil {
			return p.explain(ctx, id.ContractID, engine, fault.In(err, "bucket %s", id))
		}
		return nil
	})
	switch fault.KindOf(err) {
	case fault.NotFound, fault.Conflict, fault.Mismatch, fault.FailedPrecondition:
		return err
	}
	if err != nil {
		klog.FromContext(ctx).Info("A bucket could not be looked at; answering from the journal", "bucket", id, "reason", err)
	}
	return nil
}

// ask lets do ask a backend, if it has answered of late. A sidecar that starts
// while a service is down repeats a call for everything there is, one after the
// other, and no two of them should wait for the same silence.
func (p *Provisioner) ask(ctx context.Context, backend string, do func(context.Context) error) error {
	p.mu.Lock()
	silent := time.Now().Before(p.silent[backend])
	p.mu.Unlock()
	if silent {
		return fault.New(fault.Unavailable, "backend %s did not answer a moment ago", backend)
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err := do(ctx)
	if fault.Is(err, fault.Unavailable) {
		p.mu.Lock()
		p.silent[backend] = time.Now().Add(silence)
		p.mu.Unlock()
	}
	return err
}

// replaceLostKey turns the record of a key that the service no longer knows
// into an intent for another one.
func (p *Provisioner) replaceLostKey(ctx context.Context, backend Backend, record *journal.Account) error {
	log := klog.FromContext(ctx)
	var keys []contract.KeyInfo
	err := p.ask(ctx, record.ID.Backend, func(ctx context.Context) (err error) {
		keys, err = backend.Provider.ListKeys(ctx, record.ID.Contract, record.ID.Account)
		return err
	})
	switch {
	case fault.Is(err, fault.NotFound):
		return gone(record.ID.ContractID)
	case err != nil:
		log.Info("A key could not be looked at; answering from the journal", "account", record.ID, "reason", err)
		return nil
	case slices.ContainsFunc(keys, func(k contract.KeyInfo) bool { return k.AccessKeyID == record.Issued.AccessKeyID }):
		return nil
	}
	record.Phase, record.Proposed, record.Issued = journal.Intent, propose(), secret.KeyPair{}
	if err := p.Journal.SaveAccount(ctx, record); err != nil {
		return fasterElsewhere(err)
	}
	p.Repaired("key")
	log.Info("A key was taken away behind the driver's back; issuing another", "account", record.ID)
	return nil
}

// gone is for what was under a contract that the service does not have any
// more. It is not signed again for it: what it held is lost.
func gone(id cosi.ContractID) error {
	return fault.New(fault.FailedPrecondition, "contract %s is gone at the storage service, with its buckets and keys; delete the BucketAccess or BucketClaim, and make a new one", id)
}
