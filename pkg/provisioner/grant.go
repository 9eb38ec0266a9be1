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

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
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
	terms, _ := p.Terms(id.Contract) // a contract that is listed no more guards nothing
	wanted := []request{shared("contract", id.ContractID)}
	for _, b := range grant.Buckets {
		wanted = append(wanted, shared("bucket", bucketIDOf(id, b)))
	}
	wanted = append(wanted, exclusive("account", id))
	unlock, err := p.locks.acquire(ctx, append(wanted, room("keys", id.ContractID, terms.Guard.MaxKeys)...)...)
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
	record, fresh, err := p.intendGrant(ctx, id, grant, func() (journal.Grant, error) {
		return p.guardedGrant(ctx, terms, name, auth, parameters, buckets)
	})
	if err != nil {
		return Access{}, err
	}
	if end := record.ExpiresAt(); !end.IsZero() && !time.Now().Before(end) {
		return Access{}, fault.New(fault.FailedPrecondition, "the key of access %s has ended at %s, as its class says (keyLife); delete the BucketAccess and make a new one", id, end.UTC().Format(time.RFC3339))
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
	grant := journal.Grant{Prefixes: class.Prefixes, SourceIP: class.SourceIP, KeyLife: class.KeyLife}
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
		actions := class.ActionsIn(mode)
		if len(actions) == 0 && len(class.Actions) > 0 {
			err = join(err, fault.New(fault.InvalidArgument, "bucket %s: %s allows none of the actions of the BucketAccessClass", bucketID, mode))
		}
		grant.Buckets = append(grant.Buckets, journal.BucketAccess{Bucket: bucketID.Bucket, Mode: mode, Actions: actions})
	}
	if err != nil {
		return id, grant, backend, err
	}
	capabilities := backend.Provider.Capabilities()
	if capabilities.ScopeBy == contract.ScopeByNone {
		err = join(err, p.checkUnlimited(id, grant))
	}
	if len(grant.Buckets) > 1 && !capabilities.SeveralBuckets {
		err = join(fault.New(fault.OutOfRange, "backend %s cannot give one key several buckets; use an access for each", id.Backend), err)
	}
	for _, lack := range []struct {
		asked, can bool
		what       string
	}{
		{len(class.SourceIP) > 0, capabilities.SourceAddresses, "sourceIP: backend %s cannot limit a key to addresses"},
		{len(class.Prefixes) > 0, !capabilities.WholeBuckets, "prefix: backend %s cannot limit a key to a part of a bucket"},
		{len(class.Prefixes) > 1, capabilities.SeveralPrefixes, "prefixes: backend %s cannot give one key several prefixes"},
		{len(class.Actions) > 0, capabilities.Actions, "actions: backend %s cannot limit a key to actions"},
		{class.KeyLife > 0, capabilities.KeyExpiry, "keyLife: backend %s cannot end a key"},
	} {
		if lack.asked && !lack.can {
			err = join(err, fault.New(fault.InvalidArgument, "BucketAccessClass parameters: "+lack.what, id.Backend))
		}
	}
	slices.SortFunc(grant.Buckets, func(a, b journal.BucketAccess) int { return strings.Compare(a.Bucket, b.Bucket) })
	for i := range grant.Buckets[1:] {
		if grant.Buckets[i].Bucket == grant.Buckets[i+1].Bucket {
			err = join(err, fault.New(fault.InvalidArgument, "bucket %s is named twice", bucketIDOf(id, grant.Buckets[i])))
		}
	}
	return id, grant, backend, err
}

// guardedGrant is what a new key gets: what was asked for, with the contract's
// defaults under it, if its guard allows that.
func (p *Provisioner) guardedGrant(ctx context.Context, terms config.Terms, name string, auth cosi.AuthType, parameters map[string]string, buckets []BucketRequest) (journal.Grant, error) {
	effective := params.BucketAccessClass.Under(terms.Defaults.BucketAccessClass, parameters)
	id, grant, _, err := p.checkGrant(name, auth, effective, buckets)
	if err != nil {
		return grant, fault.Wrap(fault.FailedPrecondition, err, "with the defaults of contract %s: %s", terms.Listed, err)
	}
	class, err := params.ParseAccess(effective)
	if err != nil {
		return grant, err
	}
	var modes []cosi.AccessMode
	for _, b := range grant.Buckets {
		if !slices.Contains(modes, b.Mode) {
			modes = append(modes, b.Mode)
		}
	}
	err = p.guardKey(ctx, id.ContractID, terms, terms.Guard.Access(parameters, effective, class, modes))
	return grant, fault.In(err, "access %s", id)
}

// checkUnlimited is for a backend whose keys reach all of their contract: the
// contract has to be the bucket's own, and nothing less may be asked for.
func (p *Provisioner) checkUnlimited(id cosi.AccountID, grant journal.Grant) error {
	var err error
	for _, b := range grant.Buckets {
		if terms, known := p.Terms(id.Contract); !known || !terms.PerBucket || terms.ContractFor(b.Bucket) != id.Contract {
			err = join(err, fault.New(fault.InvalidArgument, "backend %s cannot limit a key to a bucket, and bucket %s shares its contract; let its BucketClass name a contract whose terms say perBucket", id.Backend, bucketIDOf(id, b)))
		}
		if b.Mode != cosi.ReadWrite {
			err = join(err, fault.New(fault.InvalidArgument, "bucket %s: %s is asked for, and backend %s gives keys that may do everything; ask for %s", bucketIDOf(id, b), b.Mode, id.Backend, cosi.ReadWrite))
		}
	}
	if len(grant.Prefixes) > 0 {
		err = join(err, fault.New(fault.InvalidArgument, "BucketAccessClass parameters: prefix: backend %s cannot limit a key to a part of a bucket", id.Backend))
	}
	return err
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
		if record.Emptying != nil {
			return nil, fault.New(fault.FailedPrecondition, "bucket %s is being emptied for its deletion; no key is given to it", bucketID)
		}
		out[i] = p.bucketOf(record)
		if err := complete(out[i].Endpoint, id.ContractID); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// intendGrant returns the record of the access: the one there is, if it is for
// the same grant, or a fresh intent for what grant returns.
func (p *Provisioner) intendGrant(ctx context.Context, id cosi.AccountID, asked journal.Grant, grant func() (journal.Grant, error)) (record *journal.Account, fresh bool, err error) {
	record, err = p.Journal.Account(ctx, id)
	if fault.Is(err, fault.NotFound) {
		fresh = true
		var given journal.Grant
		if given, err = grant(); err != nil {
			return nil, false, err
		}
		record = &journal.Account{ID: id, Phase: journal.Intent, Grant: given, Asked: asked, Proposed: propose(), CreatedAt: time.Now().UTC()}
		err = p.Journal.SaveAccount(ctx, record)
		if fault.Is(err, fault.Mismatch) { // another process has just written it
			fresh = false
			record, err = p.Journal.Account(ctx, id)
		}
	}
	if err != nil {
		return nil, false, err
	}
	if !reflect.DeepEqual(record.Asked, asked) {
		return nil, false, fault.New(fault.Mismatch, "access %s exists and was granted otherwise (%s differ); delete the BucketAccess and make a new one", id, strings.Join(grantDifferences(record.Asked, asked), ", "))
	}
	if !fresh && record.Phase != journal.Done && !repeatsKeys(p.Backends[id.Backend].Provider) {
		// What is issued now takes the place of what another process is being
		// given. By this write that process sees that its key is dead.
		record.Proposed = propose()
		err = fasterElsewhere(p.Journal.SaveAccount(ctx, record))
	}
	return record, fresh, err
}

// repeatsKeys reports whether a provider gives the same key again for the same
// proposal, be it asked by two processes.
func repeatsKeys(p contract.Provider) bool {
	_, ok := p.(contract.Acknowledger)
	return ok || p.Capabilities().ChosenKeys
}

// issueKey asks for the key of an intent. If the service has told its secret
// for the last time, another process was given it and has written it down by
// now; if not, it is lost, and nobody can use that key: a new one is proposed.
func (p *Provisioner) issueKey(ctx context.Context, backend Backend, record *journal.Account) (secret.KeyPair, error) {
	ask := func() (secret.KeyPair, error) {
		pair, err := backend.Provider.IssueKey(ctx, contract.IssueKeyRequest{
			Contract: record.ID.Contract, Slot: record.ID.Account, Scope: scopeOf(record), Proposed: record.Proposed, Keep: keptBeside(record),
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
// read the same intent, so it was answered the same key, or its key is the one
// that lives.
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
		err = backend.Provider.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: access.ID.Contract, Slot: access.ID.Account})
	}
	return Access{}, errors.Join(fault.New(fault.Unavailable, "access %s was changed by another process meanwhile; repeat the call", access.ID), err)
}

// takeBack revokes what an access holds and drops its record.
func (p *Provisioner) takeBack(ctx context.Context, backend Backend, record *journal.Account) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := backend.Provider.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: record.ID.Contract, Slot: record.ID.Account}); err != nil {
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

func scopeOf(record *journal.Account) *contract.Scope {
	grant, scope := record.Grant, &contract.Scope{ExpiresAt: record.ExpiresAt()}
	prefixes := grant.Prefixes
	if len(prefixes) == 0 {
		prefixes = []string{""}
	}
	for _, b := range grant.Buckets {
		for _, prefix := range prefixes {
			scope.Buckets = append(scope.Buckets, contract.BucketScope{Bucket: b.Bucket, Prefix: prefix, Mode: b.Mode, Actions: b.Actions})
		}
	}
	for _, block := range grant.SourceIP {
		scope.SourceAddresses = append(scope.SourceAddresses, netip.MustParsePrefix(block)) // params has parsed it
	}
	return scope
}

// grantDifferences names the parameters in which two grants differ.
func grantDifferences(a, b journal.Grant) []string {
	modes := func(g journal.Grant) (buckets, modes, actions any) {
		var names []string
		var m []cosi.AccessMode
		var act [][]string
		for _, b := range g.Buckets {
			names, m, act = append(names, b.Bucket), append(m, b.Mode), append(act, b.Actions)
		}
		return names, m, act
	}
	bucketsA, modesA, actionsA := modes(a)
	bucketsB, modesB, actionsB := modes(b)
	var out []string
	for _, field := range []struct {
		name string
		a, b any
	}{
		{"buckets", bucketsA, bucketsB}, {"access", modesA, modesB}, {"actions", actionsA, actionsB},
		{"prefix", a.Prefixes, b.Prefixes}, {"sourceIP", a.SourceIP, b.SourceIP}, {"keyLife", a.KeyLife, b.KeyLife},
	} {
		if !reflect.DeepEqual(field.a, field.b) {
			out = append(out, field.name)
		}
	}
	return out
}
