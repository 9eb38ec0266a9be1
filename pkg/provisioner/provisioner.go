// Package provisioner holds the driver's use cases: make a bucket under a
// contract, give an application a key to it, take the key back, delete the
// bucket. They are written once, for every storage service and every version
// of the COSI API.
//
// Each call is safe to repeat, at any time, from any process. That rests on
// three things: ids are pure functions of the request; the journal is written
// before a service is asked and again before the caller is answered; and what
// a service does is either repeatable itself or undone. The locks of this
// package are not among them. They only keep two calls of one process from
// doing the same work twice.
package provisioner

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Backend is one storage service.
type Backend struct {
	// Provider makes contracts and keys there.
	Provider contract.Provider
	// Engine returns what makes buckets there with a contract's own key.
	Engine func(cosi.Endpoint, secret.KeyPair) *bucket.Engine
}

// Config makes a Provisioner.
type Config struct {
	// Owner is the driver's mark on everything it makes.
	Owner string
	// Backends are the storage services by name.
	Backends map[string]Backend
	// Terms returns what a contract is signed for; false if no class may name it.
	Terms func(contract string) (config.Terms, bool)
	// Journal remembers.
	Journal *journal.Journal
	// Repaired hears of what was lost behind the driver's back and made anew.
	Repaired func(what string)
}

// Provisioner carries out the use cases.
type Provisioner struct {
	Config
	locks      locks
	background sync.WaitGroup // what is done after a call was answered

	mu        sync.Mutex
	contracts map[cosi.ContractID][]cosi.Endpoint // those known to be active, with their regions
	ensured   map[cosi.ContractID]bool            // those brought to their terms by this process
	engines   map[engineKey]*bucket.Engine
}

// engineKey tells engines apart; a new key of a contract makes a new engine.
type engineKey struct {
	contract    cosi.ContractID
	endpoint    cosi.Endpoint
	accessKeyID string
}

// New returns a Provisioner; no call is made.
func New(c Config) *Provisioner {
	return &Provisioner{
		Config:    c,
		contracts: map[cosi.ContractID][]cosi.Endpoint{},
		ensured:   map[cosi.ContractID]bool{},
		engines:   map[engineKey]*bucket.Engine{},
	}
}

// Wait waits for what is still done after calls were answered. It is bounded,
// and no call may come any more.
func (p *Provisioner) Wait() { p.background.Wait() }

// undoTimeout bounds what is done after a call has failed or been given up.
const undoTimeout = 5 * time.Second

// Bucket is a bucket that an application can be given access to.
type Bucket struct {
	ID       cosi.BucketID
	Endpoint cosi.Endpoint
}

// CreateBucket makes a bucket as its class says, under the contract that the
// class names, which is signed if need be. It makes all of it or nothing.
// Repeated, it returns the same bucket; with other parameters, Mismatch.
func (p *Provisioner) CreateBucket(ctx context.Context, name string, parameters map[string]string) (Bucket, error) {
	spec, id, terms, err := p.checkCreate(name, parameters)
	if err != nil {
		return Bucket{}, err
	}
	unlock, err := p.locks.acquire(ctx, shared("contract", id.ContractID), exclusive("bucket", id))
	if err != nil {
		return Bucket{}, err
	}
	defer unlock()

	made, err := p.recorded(ctx, id, spec)
	if !fault.Is(err, fault.NotFound) {
		return made, err
	}
	endpoints, err := p.openContract(ctx, id.ContractID, terms, spec.Region)
	if err != nil {
		return Bucket{}, err
	}
	endpoint, err := regionOf(endpoints, spec.Region, id.ContractID)
	if err != nil {
		return Bucket{}, err
	}
	engine, err := p.engine(ctx, id.ContractID, endpoint)
	if err != nil {
		return Bucket{}, err
	}
	if err := engine.Create(ctx, id.Bucket, spec); err != nil {
		p.undoCreate(ctx, engine, id, err)
		return Bucket{}, p.explain(ctx, id.ContractID, engine, fault.In(err, "bucket %s", id))
	}
	err = p.Journal.SaveBucket(ctx, &journal.Bucket{ID: id, Spec: spec, Endpoint: endpoint, CreatedAt: time.Now().UTC()})
	switch {
	case fault.Is(err, fault.Mismatch): // another process has just recorded it
		return p.recorded(ctx, id, spec)
	case err != nil: // whether it is recorded is not known; the bucket's mark lets a repeat carry on
		return Bucket{}, err
	}
	klog.FromContext(ctx).V(4).Info("Bucket made", "bucket", id)
	return Bucket{ID: id, Endpoint: endpoint}, nil
}

// recorded returns a bucket that the journal knows, if it was made as spec
// says: NotFound if there is no record, Mismatch if it was made otherwise.
func (p *Provisioner) recorded(ctx context.Context, id cosi.BucketID, spec params.Bucket) (Bucket, error) {
	record, err := p.Journal.Bucket(ctx, id)
	if err != nil {
		return Bucket{}, err
	}
	if differing := differences(record.Spec, spec); len(differing) > 0 {
		return Bucket{}, fault.New(fault.Mismatch, "bucket %s exists and was made with other parameters: %s differ; delete the bucket or restore its class", id, strings.Join(differing, ", "))
	}
	return Bucket{ID: id, Endpoint: p.current(id.ContractID, record.Endpoint)}, nil
}

// checkCreate reports all that can be wrong with a request before anything is made.
func (p *Provisioner) checkCreate(name string, parameters map[string]string) (params.Bucket, cosi.BucketID, config.Terms, error) {
	spec, err := params.ParseBucket(parameters)
	err = join(cosi.CheckBucketName(name), err)
	terms, known := p.Terms(spec.Contract)
	if !known && spec.Contract != "" {
		err = join(err, fault.New(fault.InvalidArgument, "contract %q is not in the driver's configuration; ask the platform's operator to add it, or correct the class", spec.Contract))
	}
	id := cosi.BucketID{ContractID: cosi.ContractID{Backend: terms.Backend, Contract: spec.Contract}, Bucket: name}
	return spec, id, terms, err
}

// join makes one fault of several of the same kind.
func join(faults ...error) error {
	faults = slices.DeleteFunc(faults, func(err error) bool { return err == nil })
	if len(faults) < 2 {
		return errors.Join(faults...)
	}
	texts := make([]string, len(faults))
	for i, err := range faults {
		texts[i] = err.Error()
	}
	return fault.Wrap(fault.KindOf(faults[0]), faults[0], "%s", strings.Join(texts, "; "))
}

// differences names the parameters in which two classes differ.
func differences(a, b params.Bucket) []string {
	fields := func(v params.Bucket) map[string]json.RawMessage {
		text, _ := json.Marshal(v) // plain data
		var out map[string]json.RawMessage
		_ = json.Unmarshal(text, &out)
		return out
	}
	x, y := fields(a), fields(b)
	all := maps.Clone(x)
	maps.Copy(all, y)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if string(x[name]) != string(y[name]) {
			out = append(out, name)
		}
	}
	return out
}

func regionOf(endpoints []cosi.Endpoint, region string, id cosi.ContractID) (cosi.Endpoint, error) {
	names := make([]string, len(endpoints))
	for i, e := range endpoints {
		if region == "" || e.Region == region {
			return e, nil
		}
		names[i] = e.Region
	}
	if len(endpoints) == 0 {
		return cosi.Endpoint{}, fault.New(fault.Unavailable, "contract %s has no S3 endpoint yet", id)
	}
	return cosi.Endpoint{}, fault.New(fault.InvalidArgument, "BucketClass parameters: region: %q is not a region of contract %s, which has %s", region, id, strings.Join(names, ", "))
}

// undoCreate takes back what a failed create has made, so that no bucket is
// left that nobody will ever ask to delete: the v0.2.2 sidecar deletes only
// what was made without an error. What cannot be undone carries the driver's
// mark, and the next attempt carries on from it.
func (p *Provisioner) undoCreate(ctx context.Context, engine *bucket.Engine, id cosi.BucketID, cause error) {
	if fault.Is(cause, fault.Conflict) { // it is somebody else's
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	_, err := p.Journal.Bucket(ctx, id)
	if err == nil {
		return // another process has made and recorded it meanwhile
	}
	ours, err := engine.Ours(ctx, id.Bucket)
	if err == nil && ours {
		err = engine.Delete(ctx, id.Bucket)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		klog.FromContext(ctx).V(2).Info("A failed create could not be undone; the next attempt carries on", "bucket", id, "cause", cause, "err", err)
	}
}

// DeleteBucket deletes a bucket with every key the driver gave on it, and
// cancels the contract if that was its last one and its terms say so. A bucket
// that holds objects is refused, unless its class lets it be emptied. What is
// gone is success.
func (p *Provisioner) DeleteBucket(ctx context.Context, bucketID string) error {
	id, backend, err := p.parseBucket(bucketID)
	if err != nil {
		return err
	}
	if err := p.deleteBucket(ctx, id, backend); err != nil {
		return err
	}
	terms, known := p.Terms(id.Contract)
	if known && terms.Backend == id.Backend && terms.OnLastBucket == config.Cancel {
		return p.cancelUnused(ctx, id.ContractID, backend)
	}
	return nil
}

func (p *Provisioner) deleteBucket(ctx context.Context, id cosi.BucketID, backend Backend) error {
	unlock, err := p.locks.acquire(ctx, shared("contract", id.ContractID), exclusive("bucket", id))
	if err != nil {
		return err
	}
	defer unlock()

	record, err := p.Journal.Bucket(ctx, id)
	if fault.Is(err, fault.NotFound) {
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
			if err := backend.Provider.RevokeKey(ctx, id.Contract, a.ID.Account, ""); err != nil {
				return nil, fault.In(err, "bucket %s: key %s", id, a.ID)
			}
			revoked = append(revoked, a)
		}
		accounts = nil
		return revoked, nil
	}
	if err := p.deleteFromStorage(ctx, id, record, revoke); err != nil {
		return err
	}
	revoked, err := revoke()
	if err != nil {
		return err
	}
	return fasterElsewhere(p.Journal.Delete(ctx, append(revoked, record)...))
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
	if record.Spec.OnDelete == params.Empty {
		// The record says that the bucket was ours. Before its objects are
		// deleted, so does the bucket.
		ours, err := engine.Ours(ctx, id.Bucket)
		switch {
		case fault.Is(err, fault.NotFound):
			return nil
		case err != nil:
			return p.explainDelete(ctx, id, engine, err)
		case !ours:
			return fault.New(fault.Conflict, "bucket %s has lost the driver's tag %s; it is not emptied: restore the tag, or empty and delete it by hand", id, cosi.OwnerTag)
		}
		revoked, err := revoke()
		if err == nil && len(revoked) > 0 {
			err = fasterElsewhere(p.Journal.Delete(ctx, revoked...)) // a dead key must not be given again
		}
		if err != nil {
			return err
		}
		if err := engine.Empty(ctx, id.Bucket); err != nil {
			return p.explainDelete(ctx, id, engine, err)
		}
	}
	if err := engine.Delete(ctx, id.Bucket); err != nil {
		return p.explainDelete(ctx, id, engine, err)
	}
	return nil
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
// service is the referee: it refuses while a bucket remains, whoever made it,
// and then the contract stays.
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
		klog.FromContext(ctx).Info("The contract's last bucket of this driver is gone, but the service keeps the contract", "contract", id, "reason", err)
		return nil
	case err != nil:
		return err
	}
	p.forget(id)
	klog.FromContext(ctx).Info("Contract cancelled with its last bucket", "contract", id)
	return fasterElsewhere(p.Journal.Delete(ctx, record))
}

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
		wanted = append(wanted, shared("bucket", bucketOf(id, b)))
	}
	unlock, err := p.locks.acquire(ctx, append(wanted, exclusive("account", id))...)
	if err != nil {
		return Access{}, err
	}
	defer unlock()

	access := Access{ID: id}
	if access.Buckets, err = p.readyBuckets(ctx, id, grant); err != nil {
		return Access{}, err
	}
	record, fresh, err := p.intendGrant(ctx, id, grant)
	if err != nil {
		return Access{}, err
	}
	if record.Phase == journal.Done {
		access.Key = record.Issued
		return access, nil
	}

	pair, err := backend.Provider.IssueKey(ctx, contract.IssueKeyRequest{
		Contract: id.Contract, Slot: id.Account, Scope: scopeOf(grant), Proposed: record.Proposed,
	})
	if err != nil {
		if fresh {
			p.undoIntent(ctx, backend, record, err)
		}
		return Access{}, fault.In(err, "access %s", id)
	}
	record.Phase, record.Issued = journal.Done, pair
	if err := p.Journal.SaveAccount(ctx, record); err != nil {
		return p.grantedElsewhere(ctx, access, backend, err)
	}
	// Another process may have deleted a bucket meanwhile; it has not seen this key.
	if _, err := p.readyBuckets(ctx, id, grant); err != nil {
		return Access{}, errors.Join(err, p.takeBack(ctx, backend, record))
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
		grant.Buckets = append(grant.Buckets, journal.BucketAccess{Bucket: bucketID.Bucket, Mode: mode})
	}
	if err != nil {
		return id, grant, backend, err
	}
	capabilities := backend.Provider.Capabilities()
	if capabilities.ScopeBy == contract.ScopeByNone {
		err = join(err, fault.New(fault.InvalidArgument, "backend %s cannot limit a key to a bucket", id.Backend))
	}
	if len(class.SourceIP) > 0 && !capabilities.SourceAddresses {
		err = join(err, fault.New(fault.InvalidArgument, "BucketAccessClass parameters: sourceIP: backend %s cannot limit a key to addresses", id.Backend))
	}
	slices.SortFunc(grant.Buckets, func(a, b journal.BucketAccess) int { return strings.Compare(a.Bucket, b.Bucket) })
	for i := range grant.Buckets[1:] {
		if grant.Buckets[i].Bucket == grant.Buckets[i+1].Bucket {
			err = join(err, fault.New(fault.InvalidArgument, "bucket %s is named twice", bucketOf(id, grant.Buckets[i])))
		}
	}
	return id, grant, backend, err
}

// readyBuckets looks every bucket of a grant up in the journal.
func (p *Provisioner) readyBuckets(ctx context.Context, id cosi.AccountID, grant journal.Grant) ([]Bucket, error) {
	out := make([]Bucket, len(grant.Buckets))
	for i, b := range grant.Buckets {
		bucketID := bucketOf(id, b)
		record, err := p.Journal.Bucket(ctx, bucketID)
		if fault.Is(err, fault.NotFound) {
			return nil, fault.New(fault.NotFound, "bucket %s does not exist, or was not made by this driver", bucketID)
		}
		if err != nil {
			return nil, err
		}
		out[i] = Bucket{ID: bucketID, Endpoint: p.current(id.ContractID, record.Endpoint)}
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

	record, err := p.Journal.Account(ctx, id)
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
			if !slices.ContainsFunc(record.Grant.Buckets, func(b journal.BucketAccess) bool { return bucketOf(id, b).String() == bucketID }) {
				return fault.New(fault.InvalidArgument, "account %s has no access to bucket %s", id, bucketID)
			}
		}
	}
	if err := backend.Provider.RevokeKey(ctx, id.Contract, id.Account, ""); err != nil {
		return fault.In(err, "access %s", id)
	}
	if record == nil {
		return nil
	}
	if err := p.Journal.Delete(ctx, record); err != nil {
		return fasterElsewhere(err)
	}
	return nil
}

func (p *Provisioner) parseBucket(s string) (cosi.BucketID, Backend, error) {
	id, err := cosi.ParseBucketID(s)
	if err != nil {
		return id, Backend{}, err
	}
	backend, ok := p.Backends[id.Backend]
	if !ok {
		return id, backend, fault.New(fault.InvalidArgument, "bucket id %q names backend %q, which is not this driver's", s, id.Backend)
	}
	return id, backend, nil
}

// Check reports why the driver could not serve a call now: the journal or a
// backend that cannot be reached. It names each that is away.
func (p *Provisioner) Check(ctx context.Context) error {
	errs := []error{p.Journal.Check(ctx)}
	for _, name := range slices.Sorted(maps.Keys(p.Backends)) {
		err := p.Backends[name].Provider.Check(ctx)
		errs = append(errs, fault.In(err, "backend %s", name))
	}
	return join(errs...)
}

func bucketOf(id cosi.AccountID, b journal.BucketAccess) cosi.BucketID {
	return cosi.BucketID{ContractID: id.ContractID, Bucket: b.Bucket}
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

// propose returns a random pair. Its id is a DNS label that no other will have.
func propose() secret.KeyPair {
	return secret.KeyPair{
		AccessKeyID:     "ck" + strings.ToLower(rand.Text()),
		SecretAccessKey: secret.New(rand.Text() + rand.Text()),
	}
}

// fasterElsewhere turns a lost race into a fault that heals by repeating.
func fasterElsewhere(err error) error {
	if fault.Is(err, fault.Mismatch) {
		return fault.Wrap(fault.Unavailable, err, "%s by another process; repeat the call", err)
	}
	return err
}
