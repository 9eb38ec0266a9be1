package provisioner

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// BucketRequest is one bucket of a grant.
type BucketRequest struct {
	// ID is the bucket's id as a COSI object holds it.
	ID string
	// Mode is what the key may do there; "" leaves it to the class.
	Mode cosi.AccessMode
}

// Access is what an application is given.
type Access struct {
	ID  cosi.AccountID
	Key secret.KeyPair
	// Buckets are those of the request, in the journal's order.
	Buckets []Bucket
}

// GrantAccess gives an access its own principal and key, limited to the
// buckets of the request. Repeated, it returns the same key; for anything
// else under the same name, Mismatch.
func (p *Provisioner) GrantAccess(ctx context.Context, name string, auth cosi.AuthType, parameters map[string]string, buckets ...BucketRequest) (Access, error) {
	id, grant, backend, err := p.checkGrant(name, auth, parameters, buckets)
	if err != nil {
		return Access{}, err
	}
	wanted := []request{shared("contract", id.ContractID)}
	for _, b := range grant.Buckets {
		wanted = append(wanted, shared("bucket", bucketIDOf(id, b)))
	}
	unlock, err := p.locks.acquire(ctx, append(wanted, exclusive("account", id))...)
	if err != nil {
		return Access{}, err
	}
	defer unlock()

	access := Access{ID: id}
	if access.Buckets, err = p.readyBuckets(ctx, id, grant); fault.Is(err, fault.NotFound) {
		if err = p.adoptAll(ctx, id, grant, err); err == nil {
			access.Buckets, err = p.readyBuckets(ctx, id, grant)
		}
	}
	if err != nil {
		return Access{}, err
	}
	record, fresh, err := p.intendGrant(ctx, id, grant)
	if err != nil {
		return Access{}, err
	}
	if record.Phase == journal.Done {
		if err := p.replaceLostKey(ctx, backend, record); err != nil {
			return Access{}, err
		}
	}
	if record.Phase == journal.Done {
		p.handOut(ctx, record)
		access.Key = record.Issued
		return access, nil
	}

	pair, err := p.issueKey(ctx, backend, record)
	if err != nil {
		if fresh {
			p.undoIntent(ctx, backend, record, err)
		}
		return Access{}, fault.In(err, "access %s", id)
	}
	if record.Phase == journal.Done { // by another process
		access.Key = pair
		return access, nil
	}
	// Another process may have deleted a bucket meanwhile. It looks for keys
	// once more after it has dropped the bucket's record: either it has seen
	// this call's intent then, or this call sees now that the record is gone.
	if err := p.Journal.Sync(ctx, record); err != nil {
		return Access{}, err
	}
	if _, err := p.readyBuckets(ctx, id, grant); fault.Is(err, fault.NotFound) {
		return Access{}, errors.Join(err, p.takeBack(ctx, backend, record))
	} else if err != nil {
		return Access{}, err
	}
	record.Phase, record.Issued, record.IssuedAt = journal.Done, pair, time.Now().UTC()
	if record.Rotation != nil {
		record.Rotation.HandedOut = record.IssuedAt
	}
	if err := p.Journal.SaveAccount(ctx, record); err != nil {
		return p.grantedElsewhere(ctx, access, backend, err)
	}
	p.background.Go(func() { p.acknowledge(context.WithoutCancel(ctx), id.ContractID, backend, record.Proposed) })
	access.Key = pair
	return access, nil
}

// checkGrant reports all that can be wrong with a request before anything is made.
func (p *Provisioner) checkGrant(name string, auth cosi.AuthType, parameters map[string]string, buckets []BucketRequest) (cosi.AccountID, journal.Grant, Backend, error) {
	class, err := params.ParseAccess(parameters)
	err = join(cosi.CheckAccountName(name), err)
	switch auth {
	case cosi.Key:
	case cosi.ServiceAccount:
		err = join(err, fault.New(fault.InvalidArgument, "authentication by service account (IAM) is not supported by this driver; set authenticationType: Key in the BucketAccessClass"))
	default:
		err = join(err, fault.New(fault.InvalidArgument, "the authentication type is missing or unknown; set authenticationType: Key in the BucketAccessClass"))
	}
	if len(buckets) == 0 {
		err = join(err, fault.New(fault.InvalidArgument, "the access names no bucket"))
	}
	grant := journal.Grant{Prefix: class.Prefix, SourceIP: class.SourceIP}
	id := cosi.AccountID{Account: name}
	var backend Backend
	for i, b := range buckets {
		bucketID, at, parseErr := p.parseBucket(b.ID)
		if parseErr != nil {
			err = join(err, parseErr)
			continue
		}
		if i > 0 && id.ContractID != bucketID.ContractID {
			err = join(err, fault.New(fault.InvalidArgument, "buckets of two contracts (%s and %s) cannot share a key; use an access for each", id.ContractID, bucketID.ContractID))
		}
		id.ContractID, backend = bucketID.ContractID, at
		mode := b.Mode
		if mode == "" {
			mode = class.Mode
		}
		if class.Mode != cosi.ReadWrite && mode != class.Mode {
			err = join(err, fault.New(fault.InvalidArgument, "bucket %s: %s is asked for, and the BucketAccessClass allows %s only", bucketID, mode, class.Mode))
		}
		grant.Buckets = append(grant.Buckets, journal.BucketAccess{Bucket: bucketID.Bucket, Mode: mode})
	}
	if err != nil {
		return id, grant, backend, err
	}
	capabilities := backend.Provider.Capabilities()
	if capabilities.ScopeBy == contract.ScopeByNone {
		err = join(err, fault.New(fault.InvalidArgument, "backend %s cannot limit a key to a bucket", id.Backend))
	}
	if len(grant.Buckets) > 1 && !capabilities.SeveralBuckets {
		err = join(fault.New(fault.OutOfRange, "backend %s cannot give one key several buckets; use an access for each", id.Backend), err)
	}
	if len(class.SourceIP) > 0 && !capabilities.SourceAddresses {
		err = join(err, fault.New(fault.InvalidArgument, "BucketAccessClass parameters: sourceIP: backend %s cannot limit a key to addresses", id.Backend))
	}
	slices.SortFunc(grant.Buckets, func(a, b journal.BucketAccess) int { return strings.Compare(a.Bucket, b.Bucket) })
	for i := range grant.Buckets[1:] {
		if grant.Buckets[i].Bucket == grant.Buckets[i+1].Bucket {
			err = join(err, fault.New(fault.InvalidArgument, "bucket %s is named twice", bucketIDOf(id, grant.Buckets[i])))
		}
	}
	return id, grant, backend, err
}

// readyBuckets looks every bucket of a grant up in the journal.
func (p *Provisioner) readyBuckets(ctx context.Context, id cosi.AccountID, grant journal.Grant) ([]Bucket, error) {
	out := make([]Bucket, len(grant.Buckets))
	for i, b := range grant.Buckets {
		bucketID := bucketIDOf(id, b)
		record, err := sure(ctx, p.Journal, (*journal.Journal).Bucket, bucketID)
		if fault.Is(err, fault.NotFound) {
			return nil, fault.New(fault.NotFound, "bucket %s does not exist, or was not made by this driver and its contract's terms do not say adoptBuckets", bucketID)
		}
		if err != nil {
			return nil, err
		}
		out[i] = p.bucketOf(record)
		if err := complete(out[i].Endpoint, id.ContractID); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// intendGrant returns the record of the access: the one there is, if it is for
// the same grant, or a fresh intent.
func (p *Provisioner) intendGrant(ctx context.Context, id cosi.AccountID, grant journal.Grant) (record *journal.Account, fresh bool, err error) {
	record, err = p.Journal.Account(ctx, id)
	if fault.Is(err, fault.NotFound) {
		fresh = true
		record = &journal.Account{ID: id, Phase: journal.Intent, Grant: grant, Proposed: propose(), CreatedAt: time.Now().UTC()}
		err = p.Journal.SaveAccount(ctx, record)
		if fault.Is(err, fault.Mismatch) { // another process has just written it
			fresh = false
			record, err = p.Journal.Account(ctx, id)
		}
	}
	if err != nil {
		return nil, false, err
	}
	if !reflect.DeepEqual(record.Grant, grant) {
		return nil, false, fault.New(fault.Mismatch, "access %s exists and was granted otherwise (buckets, access, prefix or sourceIP differ); delete the BucketAccess and make a new one", id)
	}
	return record, fresh, nil
}

// issueKey asks for the key of an intent. If the service has told its secret
// for the last time, another process was given it and has written it down by
// now; if not, it is lost, and nobody can use that key: a new one is proposed.
func (p *Provisioner) issueKey(ctx context.Context, backend Backend, record *journal.Account) (secret.KeyPair, error) {
	ask := func() (secret.KeyPair, error) {
		pair, err := backend.Provider.IssueKey(ctx, contract.IssueKeyRequest{
			Contract: record.ID.Contract, Slot: record.ID.Account, Scope: scopeOf(record.Grant), Proposed: record.Proposed, Keep: keptBeside(record),
		})
		if fault.Is(err, fault.InvalidArgument) {
			// The request was checked before. What the service finds wrong is the
			// state of things, such as a bucket that is gone and is made anew.
			err = fault.As(fault.FailedPrecondition, err)
		}
		return pair, err
	}
	pair, err := ask()
	if !fault.Is(err, fault.Mismatch) {
		return pair, err
	}
	now, err := p.Journal.Fresh().Account(ctx, record.ID)
	if err != nil {
		return pair, err
	}
	*record = *now
	if record.Phase == journal.Done {
		return record.Issued, nil
	}
	record.Proposed = propose()
	if err := p.Journal.SaveAccount(ctx, record); err != nil {
		return pair, fasterElsewhere(err)
	}
	p.Repaired("key")
	klog.FromContext(ctx).Info("The secret of a key was told and is not in the journal; issuing a new key", "account", record.ID)
	if pair, err = ask(); fault.Is(err, fault.Mismatch) {
		err = fault.As(fault.Unavailable, err) // told once more, and lost again: the next call has another go
	}
	return pair, err
}

// undoIntent removes the record of a key that the service has refused. Where
// the outcome is open the record stays: it is what the next attempt, or the
// bucket's deletion, finds the key by. An earlier try within the call may have
// been done before its answer was lost, so the slot is cleared as well.
func (p *Provisioner) undoIntent(ctx context.Context, backend Backend, record *journal.Account, cause error) {
	switch fault.KindOf(cause) {
	case fault.Unavailable, fault.RateLimited, fault.Pending, fault.Canceled, fault.Internal:
		return
	}
	if err := p.takeBack(ctx, backend, record); err != nil {
		klog.FromContext(ctx).V(2).Info("The record of a refused grant could not be removed", "account", record.ID, "err", err)
	}
}

// grantedElsewhere ends a grant whose record another process has changed. It
// read the same intent, so it was answered the same key.
func (p *Provisioner) grantedElsewhere(ctx context.Context, access Access, backend Backend, cause error) (Access, error) {
	if !fault.Is(cause, fault.Mismatch) {
		return Access{}, cause
	}
	record, err := p.Journal.Account(ctx, access.ID)
	switch {
	case err == nil && record.Phase == journal.Done:
		access.Key = record.Issued
		return access, nil
	case fault.Is(err, fault.NotFound): // revoked, or its bucket deleted
		err = backend.Provider.RevokeKey(ctx, access.ID.Contract, access.ID.Account, "")
	}
	return Access{}, errors.Join(fault.New(fault.Unavailable, "access %s was changed by another process meanwhile; repeat the call", access.ID), err)
}

// takeBack revokes what an access holds and drops its record.
func (p *Provisioner) takeBack(ctx context.Context, backend Backend, record *journal.Account) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := backend.Provider.RevokeKey(ctx, record.ID.Contract, record.ID.Account, ""); err != nil {
		return err
	}
	return p.Journal.Delete(ctx, record)
}

// acknowledge tells the service that the key is safe in the journal. The
// application need not wait for that: if the service does not hear, it keeps
// the secret for a repeat that never comes.
func (p *Provisioner) acknowledge(ctx context.Context, id cosi.ContractID, backend Backend, proposed secret.KeyPair) {
	a, ok := backend.Provider.(contract.Acknowledger)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, undoTimeout)
	defer cancel()
	if err := a.AcknowledgeKey(ctx, id.Contract, proposed); err != nil {
		klog.FromContext(ctx).V(2).Info("The service was not told that a key is safe", "contract", id, "err", err)
	}
}

func scopeOf(grant journal.Grant) *contract.Scope {
	scope := &contract.Scope{}
	for _, b := range grant.Buckets {
		scope.Buckets = append(scope.Buckets, contract.BucketScope{Bucket: b.Bucket, Prefix: grant.Prefix, Mode: b.Mode})
	}
	for _, block := range grant.SourceIP {
		scope.SourceAddresses = append(scope.SourceAddresses, netip.MustParsePrefix(block)) // params has parsed it
	}
	return scope
}
