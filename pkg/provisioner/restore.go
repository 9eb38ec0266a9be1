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

// restoreBucket writes what a bucket has lost of what it was made with, brings
// it to what its class means with the contract's defaults of today, and makes
// one that is gone anew.
func (p *Provisioner) restoreBucket(ctx context.Context, record *journal.Bucket, spec params.Bucket) error {
	log := klog.FromContext(ctx).WithValues("bucket", record.ID)
	looked, err := p.look(ctx, record, func(ctx context.Context, engine *bucket.Engine) error {
		written, err := engine.Restore(ctx, record.ID.Bucket, spec, record.Applied)
		asBefore := len(record.Applied.Differences(spec)) == 0
		for _, what := range written {
			if !asBefore {
				log.Info("A bucket was brought to its contract's defaults", "what", what)
				continue
			}
			p.Repaired(what)
			log.Info("Something was taken from a bucket behind the driver's back; made anew", "what", what)
		}
		return err
	})
	if err == nil && looked {
		return p.applied(ctx, record, spec)
	}
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	if err := p.stillRecorded(ctx, record); err != nil {
		return err
	}
	if err := p.remake(ctx, record, spec); err != nil {
		return err
	}
	return p.applied(ctx, record, spec)
}

// applied records what a bucket was brought to.
func (p *Provisioner) applied(ctx context.Context, record *journal.Bucket, spec params.Bucket) error {
	if len(record.Applied.Differences(spec)) == 0 {
		return nil
	}
	record.Applied = spec
	return fasterElsewhere(p.Journal.SaveBucket(ctx, record))
}

// stillRecorded tells a bucket that was lost from one that another process has
// deleted, with its record.
func (p *Provisioner) stillRecorded(ctx context.Context, record *journal.Bucket) error {
	_, err := p.Journal.Fresh().Bucket(ctx, record.ID)
	if fault.Is(err, fault.NotFound) {
		return fault.Wrap(fault.Unavailable, err, "bucket %s was deleted by another process meanwhile; repeat the call", record.ID)
	}
	return err
}

// stillThere reports, as NotFound, that a bucket is gone, and as Mismatch that
// it is not as spec says; looked tells whether it could be looked at. Nothing is
// made anew or changed: whoever refers to an existing bucket wants it as it is.
func (p *Provisioner) stillThere(ctx context.Context, record *journal.Bucket, spec params.Bucket) (looked bool, err error) {
	looked, err = p.look(ctx, record, func(ctx context.Context, engine *bucket.Engine) error {
		mark, err := engine.Mark(ctx, record.ID.Bucket)
		if err != nil {
			return err
		}
		if !p.stillOurs(record, mark) {
			return fault.New(fault.Conflict, "it no longer has the tag %s that it had; restore the tag, or delete the bucket", cosi.OwnerTag)
		}
		return asItsParametersSay(ctx, engine, record.ID.Bucket, spec)
	})
	if errors.Is(err, errGone) {
		err = fault.As(fault.NotFound, err)
	}
	return looked, err
}

// stillOurs reports whether a recorded bucket has the mark that it had: the
// driver's, or none if it was adopted. Another one's is never ours.
func (p *Provisioner) stillOurs(record *journal.Bucket, mark string) bool {
	return mark == p.markOf(record.ID.ContractID) || mark == "" && record.Adopted
}

// look lets do look at a recorded bucket. A service that does not answer is no
// error: looked is false then.
func (p *Provisioner) look(ctx context.Context, record *journal.Bucket, do func(context.Context, *bucket.Engine) error) (looked bool, err error) {
	err = p.lookAt(ctx, record, do)
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.RateLimited, fault.Pending, fault.Canceled:
		klog.FromContext(ctx).Info("A bucket could not be looked at; answering from the journal", "bucket", record.ID, "reason", err)
		return false, nil
	case fault.InvalidArgument, fault.Unsupported: // the service has taken it before
		err = fault.As(fault.FailedPrecondition, err)
	}
	return true, err
}

// lookAt lets do look at a recorded bucket, with another key if the service has
// lost the contract's. If the contract is gone the error is errGone.
func (p *Provisioner) lookAt(ctx context.Context, record *journal.Bucket, do func(context.Context, *bucket.Engine) error) error {
	id := record.ID
	if _, known := p.Backends[id.Backend]; !known {
		return noBackend(id.ContractID)
	}
	once := func(ctx context.Context) (keyRefused bool, err error) {
		engine, err := p.engine(ctx, id.ContractID, p.current(id.ContractID, record.Endpoint))
		if fault.Is(err, fault.NotFound) {
			return false, gone(id.ContractID)
		}
		if err != nil {
			return false, err
		}
		err = fault.In(do(ctx, engine), "bucket %s", id)
		return bucket.KeyRefused(err), p.explain(ctx, id.ContractID, engine, err)
	}
	return p.ask(ctx, id.Backend, func(ctx context.Context) error {
		keyRefused, err := once(ctx)
		if keyRefused { // by now there is another, or it is known why not
			_, err = once(ctx)
		}
		return err
	})
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
	looking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err := do(looking)
	// An answer that asks for patience is about one thing; silence is about all.
	if fault.Unanswered(err) && ctx.Err() == nil {
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
		return p.readAgain(ctx, record)
	case slices.ContainsFunc(keys, func(k contract.KeyInfo) bool { return k.AccessKeyID == record.Issued.AccessKeyID }):
		return nil
	}
	if _, err := p.signed(ctx, record.ID.ContractID); fault.Is(err, fault.NotFound) {
		return gone(record.ID.ContractID) // somebody else has it now
	} else if err != nil {
		return err
	}
	loseIssued(record)
	if err := p.Journal.SaveAccount(ctx, record); err != nil {
		return fasterElsewhere(err)
	}
	p.Repaired("key")
	log.Info("A key was taken away behind the driver's back; issuing another", "account", record.ID)
	return nil
}

// readAgain takes what the journal says of an access for certain. The service,
// which would refuse a key that another process has revoked, cannot be asked.
func (p *Provisioner) readAgain(ctx context.Context, record *journal.Account) error {
	now, err := p.Journal.Fresh().Account(ctx, record.ID)
	if fault.Is(err, fault.NotFound) || err == nil && !reflect.DeepEqual(now.Asked, record.Asked) {
		return fault.New(fault.Unavailable, "access %s was changed by another process meanwhile; repeat the call", record.ID)
	}
	if err == nil {
		*record = *now
	}
	return err
}

var errGone = errors.New("the contract is gone")

// gone is for what was under a contract that the service does not have any
// more. It is not signed again for it: what it held is lost.
func gone(id cosi.ContractID) error {
	return fault.Wrap(fault.FailedPrecondition, errGone, "contract %s is gone at the storage service, with its buckets and keys; delete the BucketAccess or BucketClaim, and make a new one", id)
}
