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
	"github.com/contract-cosi/contract-cosi-driver/pkg/keys"
	"github.com/contract-cosi/contract-cosi-driver/pkg/lock"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/site"
)

// GrantRequest asks for access to buckets.
type GrantRequest struct {
	// Name is the name of the access.
	Name string
	// Under is the contract in the id that was generated for the access; zero if the
	// request has no id.
	Under cosi.ContractID
	// Auth is how the application proves who it is.
	Auth cosi.AuthType
	// Parameters are those of the BucketAccessClass.
	Parameters map[string]string
	// Buckets are what it reaches.
	Buckets []BucketRequest
	// Delivers says that the answer is written to the application's Secret, also
	// over another key. Where it is not, an answer says nothing of what the
	// application has.
	Delivers bool
}

// BucketRequest is one bucket of a grant.
type BucketRequest struct {
	// ID is the bucket's id as a COSI object holds it.
	ID string
	// Mode is what the key may do there; "" leaves it to the class.
	Mode cosi.AccessMode
	cosi.Metadata
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
func (p *Provisioner) GrantAccess(ctx context.Context, req GrantRequest) (Access, error) {
	id, requested, backend, err := p.checkGrant(req, req.Parameters)
	if err != nil {
		return Access{}, err
	}
	if err := p.takeOnAll(ctx, id, requested); err != nil {
		return Access{}, err
	}
	ctx, call, err := p.begin(ctx, accessLocks(id, requested)...)
	if err != nil {
		return Access{}, err
	}
	defer call.end()
	buckets, err := p.grantable(ctx, id, requested)
	if err != nil {
		return Access{}, err
	}
	record, err := p.journal.Account(ctx, id)
	fresh := fault.Is(err, fault.NotFound)
	switch {
	case fresh:
		if record, err = p.intendGrant(ctx, id, requested, req); err != nil {
			return Access{}, err
		}
	case err != nil:
		return Access{}, err
	case record.Cut != "":
		return Access{}, fault.In(isCut(id), "access %s", id)
	case !reflect.DeepEqual(record.Requested, requested):
		return Access{}, fault.New(fault.Mismatch, "access %s exists and was granted otherwise (%s differ); delete the BucketAccess and make a new one", id, strings.Join(grantDifferences(record.Requested, requested), ", "))
	case ended(record):
		return Access{}, fault.New(fault.FailedPrecondition, "the key of access %s has ended at %s, as its class says (keyLife); delete the BucketAccess and make a new one", id, record.ExpiresAt().UTC().Format(time.RFC3339))
	}
	slot := p.slotOf(backend, record)
	slot.Fresh = fresh
	if record.Phase == journal.Done {
		if err := p.replaceLostKey(ctx, slot, id); err != nil {
			return Access{}, err
		}
	}
	if record.Phase != journal.Done {
		if err := p.issueKey(ctx, call, slot, record, fresh); err != nil {
			return Access{}, fault.In(err, "access %s", id)
		}
	}
	if p.unformatted(record) {
		p.deliverer.Soon(id)
	}
	if req.Delivers {
		if err := slot.Deliver(ctx); err != nil { // the old key lives longer
			klog.FromContext(ctx).V(2).Info("The delivery of a rotated key was not recorded", "account", id, "err", err)
		}
	}
	return Access{ID: id, Key: record.Issued, Buckets: buckets}, nil
}

// GenerateAccessID returns the id that [Provisioner.GrantAccess] gives an access.
// Nothing is made or written, and no service is asked.
func (p *Provisioner) GenerateAccessID(req GrantRequest) (cosi.AccountID, error) {
	id, _, _, err := p.checkGrant(req, req.Parameters)
	return id, err
}

// accessLocks are what a call on an access holds.
func accessLocks(id cosi.AccountID, grant journal.Grant) []lock.Request {
	out := []lock.Request{lock.Shared("contract", id.ContractID)}
	for _, b := range grant.Buckets {
		out = append(out, lock.Shared("bucket", bucketIDOf(id, b)))
	}
	return append(out, lock.Exclusive("access", id))
}

// slotOf is the place of an access's key.
func (p *Provisioner) slotOf(backend site.Backend, record *journal.Account) *keys.Slot {
	return &keys.Slot{
		Service: backend.Service, Contract: record.ID.Contract, Name: record.ID.Account, State: &record.KeyState,
		Scope: func(since time.Time) *contract.Scope { return scopeOf(record, since) },
		Save:  func(ctx context.Context) error { return p.journal.SaveAccount(ctx, record) }, What: "key", Recorder: p.recorder,
	}
}

// issueKey carries an intent on until its key can be answered.
func (p *Provisioner) issueKey(ctx context.Context, call *call, slot *keys.Slot, record *journal.Account, fresh bool) error {
	if err := p.allThere(ctx, record); err != nil {
		return p.undoGrant(ctx, slot, record, fresh, err)
	}
	acknowledge, err := slot.Issue(ctx)
	switch fault.KindOf(err) {
	case "":
		call.after(func() { acknowledge(ctx) })
		p.alive.add(accountKey(record.ID))
		return nil
	case fault.FailedPrecondition:
		// A service that refuses a contract's key says of the contract what it likes.
		if have, lookup := slot.Service.Signed(ctx, slot.Contract); lookup == nil {
			if state := slot.Service.Usable(have); fault.Is(state, fault.FailedPrecondition) {
				err = state
			}
		}
	case fault.InvalidArgument:
		// The request was checked before. What the service finds wrong is the state
		// of things, such as a bucket that is gone.
		err = fault.As(fault.FailedPrecondition, err)
	case fault.NotFound:
		p.sites.Forget(record.ID.ContractID)
		if _, lookup := p.sites.MustFind(record.ID.ContractID)(ctx); errors.Is(lookup, site.ErrGone) {
			err = lookup
		}
	}
	return p.undoGrant(ctx, slot, record, fresh, err)
}

// allThere makes sure of the buckets of a grant: of one that this process has not
// seen, a deletion that a crash has cut short may have left nothing but the record.
func (p *Provisioner) allThere(ctx context.Context, record *journal.Account) error {
	for _, b := range record.Effective.Buckets {
		id := bucketIDOf(record.ID, b)
		if p.alive.has(bucketKey(id)) {
			continue
		}
		has, err := p.journal.Bucket(ctx, id)
		if err != nil {
			return err
		}
		err = p.sites.Do(ctx, p.sites.MustFind(id.ContractID), func(s *site.Site) error {
			_, err := s.In(has.Endpoint).Mark(ctx, id.Bucket)
			return err
		})
		if fault.Is(err, fault.NotFound) {
			return fault.New(fault.NotFound, "bucket %s is gone at the storage service; delete its BucketClaim and make a new one", id)
		}
		if err != nil {
			return fault.In(err, "bucket %s", id)
		}
		p.alive.add(bucketKey(id))
	}
	return nil
}

// undoGrant removes the record of a key that is refused, if this call has written
// it. Where the outcome is open the record stays: it is what the next attempt, or
// the bucket's deletion, finds the key by. An earlier try within the call may have
// been done before its answer was lost, so the slot is cleared as well.
func (p *Provisioner) undoGrant(ctx context.Context, slot *keys.Slot, record *journal.Account, fresh bool, cause error) error {
	if !fresh || !keys.Refused(cause) {
		return cause
	}
	undo, cancel := undoing(ctx)
	defer cancel()
	err := slot.Revoke(undo)
	if err == nil {
		err = p.journal.Delete(undo, record)
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("The record of a refused grant could not be removed", "account", record.ID, "err", err)
	}
	return cause
}

// replaceLostKey turns the record of a key that the service no longer knows
// into an intent for another one.
func (p *Provisioner) replaceLostKey(ctx context.Context, slot *keys.Slot, id cosi.AccountID) error {
	held := false
	err := p.sites.Look(ctx, "backend "+id.Backend, func(ctx context.Context) (err error) {
		held, err = slot.Held(ctx)
		return err
	})
	if err == nil && held {
		p.alive.add(accountKey(id))
		return nil
	}
	if err == nil || fault.Is(err, fault.NotFound) { // it may be that someone else has the contract now
		p.sites.Forget(id.ContractID)
		if _, err = p.sites.MustFind(id.ContractID)(ctx); err == nil {
			return slot.Lose(ctx)
		}
		return err
	}
	klog.FromContext(ctx).Info("A key could not be checked; answering from the journal", "account", id, "reason", err)
	return nil
}

// checkGrant reports all that can be wrong with a request before anything is made.
func (p *Provisioner) checkGrant(req GrantRequest, parameters map[string]string) (cosi.AccountID, journal.Grant, site.Backend, error) {
	class, err := params.ParseAccess(parameters)
	err = join(cosi.CheckAccountName(req.Name), err)
	switch req.Auth {
	case cosi.Key:
	case cosi.ServiceAccount:
		// Were it served, a v1alpha2 sidecar would still ask for all that a grant with a
		// key is answered: the buckets, and credentials with a message of the requested
		// protocol, which may be empty. Its Secret has empty values for the key then.
		err = join(err, fault.New(fault.InvalidArgument, "authentication by service account (IAM) is not supported: the request names no namespace, so any account of that name would have the access; use a BucketAccessClass with authenticationType: Key"))
	default:
		err = join(err, fault.New(fault.InvalidArgument, "the authentication type is missing or unknown; use a BucketAccessClass with authenticationType: Key"))
	}
	if len(req.Buckets) == 0 {
		err = join(err, fault.New(fault.InvalidArgument, "the access names no bucket"))
	}
	grant := journal.Grant{Prefixes: class.Prefixes, SourceIP: class.SourceIP, KeyLife: class.KeyLife, KeyRotation: class.KeyRotation, KeyGrace: class.KeyGrace, SecretFormat: class.SecretFormat}
	id := cosi.AccountID{Account: req.Name}
	var backend site.Backend
	for i, b := range req.Buckets {
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
		for _, m := range []cosi.AccessMode{mode, b.ObjectMetadata, b.BucketMetadata} {
			if class.Mode != cosi.ReadWrite && m != class.Mode && m != "" {
				err = join(err, fault.New(fault.InvalidArgument, "bucket %s: %s is asked for, and the BucketAccessClass allows %s only; use another BucketAccessClass", bucketID, m, class.Mode))
			}
		}
		if writes(b.Metadata) && len(class.Prefixes) > 0 {
			err = join(err, fault.New(fault.InvalidArgument, "bucket %s: bucketMetadata: %s is asked for, and the BucketAccessClass limits keys to a part of the bucket; use another BucketAccessClass, or ReadOnly", bucketID, b.BucketMetadata))
		}
		actions := class.ActionsIn(mode, b.Metadata)
		if len(actions) == 0 && len(class.Actions) > 0 {
			err = join(err, fault.New(fault.InvalidArgument, "bucket %s: %s allows none of the actions of the BucketAccessClass; use another BucketAccessClass, or another mode", bucketID, mode))
		}
		grant.Buckets = append(grant.Buckets, journal.BucketAccess{Bucket: bucketID.Bucket, Mode: mode, Metadata: b.Metadata, Actions: actions})
	}
	if req.Under != (cosi.ContractID{}) && len(grant.Buckets) > 0 && req.Under != id.ContractID {
		err = join(err, fault.New(fault.InvalidArgument, "account %s is of another contract than its buckets (%s); make a new BucketAccess", cosi.AccountID{ContractID: req.Under, Account: req.Name}, id.ContractID))
	}
	if err != nil {
		return id, grant, backend, err
	}
	capabilities := backend.Capabilities()
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
		{class.KeyRotation > 0, capabilities.MaxKeysPerSlot != 1, "keyRotation: backend %s holds one key for each access, so none can be replaced while it is in use"},
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

// intendGrant writes the record of a new access: what was asked for, with the
// contract's defaults, if its guard allows that.
func (p *Provisioner) intendGrant(ctx context.Context, id cosi.AccountID, requested journal.Grant, req GrantRequest) (*journal.Account, error) {
	terms, known := p.termsOf(id.ContractID)
	if !known { // and so says what its keys may do
		return nil, noContract(id.Contract)
	}
	effective, broken, err := p.guardedGrant(terms, req)
	if err != nil {
		return nil, err
	}
	release, err := p.guardKey(ctx, id, terms, broken)
	if err != nil {
		return nil, fault.In(err, "access %s", id)
	}
	defer release()
	record := &journal.Account{
		ID: id, Requested: requested, Effective: effective, CreatedAt: time.Now().UTC(),
		KeyState: journal.KeyState{Phase: journal.Intent, Proposed: keys.Propose()},
	}
	if err := p.journal.SaveAccount(ctx, record); err != nil {
		return nil, err
	}
	return record, nil
}

// guardedGrant is what a new key gets, and the rules of the guard that it breaks.
func (p *Provisioner) guardedGrant(terms config.Terms, req GrantRequest) (grant journal.Grant, broken []string, err error) {
	effective := params.BucketAccessClass.Under(terms.Defaults.BucketAccessClass, req.Parameters)
	_, grant, _, err = p.checkGrant(req, effective)
	if err != nil {
		return grant, nil, fault.Wrap(fault.FailedPrecondition, err, "with the defaults of contract %s: %s", terms.Listed, err)
	}
	class, err := params.ParseAccess(effective)
	for _, needs := range []struct {
		name  string
		asked bool
	}{{"keyRotation", class.KeyRotation > 0}, {"secretFormat", len(class.SecretFormat) > 0}} {
		if needs.asked && p.deliverer == nil {
			return grant, nil, fault.New(fault.FailedPrecondition, "%[1]s: the driver may not write applications' Secrets; ask the platform's operator for applicationSecrets in its configuration, or use a class without %[1]s", needs.name)
		}
	}
	var modes []cosi.AccessMode
	change := false
	for _, b := range grant.Buckets {
		for _, m := range []cosi.AccessMode{b.Mode, b.ObjectMetadata, b.BucketMetadata} {
			if m != "" && !slices.Contains(modes, m) {
				modes = append(modes, m)
			}
		}
		change = change || writes(b.Metadata)
	}
	return grant, terms.Guard.Access(req.Parameters, effective, class, modes, change), err
}

// writes reports whether a key changes the bucket itself.
func writes(m cosi.Metadata) bool {
	return m.BucketMetadata != "" && m.BucketMetadata != cosi.ReadOnly
}

// checkUnlimited is for a backend whose keys reach all of their contract: the
// contract has to be the bucket's own, and nothing less may be asked for.
func (p *Provisioner) checkUnlimited(id cosi.AccountID, grant journal.Grant) error {
	var err error
	for _, b := range grant.Buckets {
		if terms, known := p.terms(id.Contract); !known || !terms.PerBucket || terms.ContractFor(b.Bucket) != id.Contract {
			err = join(err, fault.New(fault.InvalidArgument, "backend %s cannot limit a key to a bucket, and bucket %s shares its contract; make the bucket by a BucketClass whose contract's terms say perBucket", id.Backend, bucketIDOf(id, b)))
		}
		for _, m := range []cosi.AccessMode{b.Mode, b.ObjectMetadata, b.BucketMetadata} {
			if m != cosi.ReadWrite && m != "" {
				err = join(err, fault.New(fault.InvalidArgument, "bucket %s: %s is asked for, and backend %s gives keys that may do everything; ask for %s", bucketIDOf(id, b), m, id.Backend, cosi.ReadWrite))
			}
		}
	}
	if len(grant.Prefixes) > 0 {
		err = join(err, fault.New(fault.InvalidArgument, "BucketAccessClass parameters: prefix: backend %s cannot limit a key to a part of a bucket", id.Backend))
	}
	return err
}

// grantable looks every bucket of a grant up in the journal.
func (p *Provisioner) grantable(ctx context.Context, id cosi.AccountID, grant journal.Grant) ([]Bucket, error) {
	out := make([]Bucket, len(grant.Buckets))
	for i, b := range grant.Buckets {
		bucketID := bucketIDOf(id, b)
		record, err := p.journal.Bucket(ctx, bucketID)
		if fault.Is(err, fault.NotFound) {
			return nil, notThere(bucketID)
		}
		if err != nil {
			return nil, err
		}
		if record.Emptying != nil {
			return nil, fault.New(fault.FailedPrecondition, "bucket %s is being emptied for its deletion, and no key is given to it; use another bucket", bucketID)
		}
		out[i] = p.bucketOf(record)
		if err := complete(out[i].Endpoint, id.ContractID); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func notThere(id cosi.BucketID) error {
	return fault.New(fault.NotFound, "bucket %s does not exist, or was not made by this driver and its contract's terms do not say adoptBuckets", id)
}

func scopeOf(record *journal.Account, since time.Time) *contract.Scope {
	grant, scope := record.Effective, &contract.Scope{ExpiresAt: record.EndOf(since)}
	prefixes := grant.Prefixes
	if len(prefixes) == 0 {
		prefixes = []string{""}
	}
	for _, b := range grant.Buckets {
		for _, prefix := range prefixes {
			scope.Buckets = append(scope.Buckets, contract.BucketScope{Bucket: b.Bucket, Prefix: prefix, Mode: b.Mode, Metadata: b.Metadata, Actions: b.Actions})
		}
	}
	for _, block := range grant.SourceIP {
		scope.SourceAddresses = append(scope.SourceAddresses, netip.MustParsePrefix(block)) // params has parsed it
	}
	return scope
}

// grantDifferences names the parameters in which two grants differ.
func grantDifferences(a, b journal.Grant) []string {
	parts := func(g journal.Grant) (buckets, modes, metadata, actions any) {
		var names []string
		var m []cosi.AccessMode
		var md []cosi.Metadata
		var act [][]string
		for _, b := range g.Buckets {
			names, m, md, act = append(names, b.Bucket), append(m, b.Mode), append(md, b.Metadata), append(act, b.Actions)
		}
		return names, m, md, act
	}
	bucketsA, modesA, metadataA, actionsA := parts(a)
	bucketsB, modesB, metadataB, actionsB := parts(b)
	var out []string
	for _, field := range []struct {
		name string
		a, b any
	}{
		{"buckets", bucketsA, bucketsB}, {"access", modesA, modesB}, {"metadata modes", metadataA, metadataB}, {"actions", actionsA, actionsB},
		{"prefix", a.Prefixes, b.Prefixes}, {"sourceIP", a.SourceIP, b.SourceIP}, {"keyLife", a.KeyLife, b.KeyLife},
		{"keyRotation", a.KeyRotation, b.KeyRotation}, {"keyGrace", a.KeyGrace, b.KeyGrace},
		{"secretFormat", a.SecretFormat, b.SecretFormat},
	} {
		if !reflect.DeepEqual(field.a, field.b) {
			out = append(out, field.name)
		}
	}
	return out
}
