// Package journal is the driver's memory: one record for each contract it has
// signed, each bucket it has made and each key it has given away.
//
// It exists because of two facts. The sidecars repeat every call, at conflicts
// and restarts, and a repeated grant has to answer the same key: a new one
// leaks, a changed one kills the application that holds the first. And a
// storage service often shows a secret once only. So the driver writes ahead:
// an intent before it asks for a key, the key before it answers. What was in
// flight when a process died is found as an intent and carried on.
//
// The journal also proves ownership. A bucket without a record and without the
// driver's tag belongs to another owner. It is left alone, unless the contract's
// terms let it be adopted.
//
// One process at a time writes a journal. Should that fail, there is a second
// line: a record is created only if it is absent and changed only if it is still
// the one that was read ([ErrOvertaken]).
package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Store keeps entries durably: when a method that writes returns nil, the
// change survives a crash of the process and of the machine. Mismatch means
// that another writer was faster; after Unavailable, Canceled and Internal the
// outcome is unknown.
//
// Several processes can share a store, of which one writes at a time. Each reads
// its own writes; what others write it may see later.
type Store interface {
	// Get returns the entry of a key; NotFound if there is none.
	Get(ctx context.Context, key Key) (Entry, error)
	// Index returns what the store knows of all entries. Only the store changes
	// it. If the store is still being read, Index waits as long as that goes on, and
	// is Unavailable if nothing comes for some seconds.
	Index(ctx context.Context) (*Index, error)
	// Put writes an entry in place of the one whose Version it carries, or as a
	// new one if that is 0, and returns its version from now on; [LostRace] if
	// something else is there, or nothing is left.
	Put(ctx context.Context, e Entry) (version uint64, err error)
	// Delete removes entries: in one durable write, or one after the other in
	// the given order, so that after a fault those at the front may be gone.
	// One that is gone already is passed over; [LostRace] if one has changed.
	Delete(ctx context.Context, entries ...Entry) error
	// Check reports whether the store can be read and written now.
	Check(ctx context.Context) error
	// Close ends all writing.
	Close() error
}

// RecordKind is what an entry is about.
type RecordKind string

// The kinds of records.
const (
	Contracts RecordKind = "contract"
	Buckets   RecordKind = "bucket"
	Accounts  RecordKind = "account"
	// Identity is the journal's own; see [Journal.Identities]. A walk passes over it.
	Identity RecordKind = "identity"
	// Probe is not a record: stores write it to see whether they can. An index
	// and an import pass over one that was left behind.
	Probe RecordKind = "probe"
)

// Key names an entry: its kind and the id of the thing.
type Key struct {
	Kind RecordKind `json:"kind"`
	ID   string     `json:"id"`
}

// String returns "kind/id".
func (k Key) String() string { return string(k.Kind) + "/" + k.ID }

// Entry is a record as stores keep it. Its JSON is the one stored form of a
// record: in a file, in a Secret and in an export.
type Entry struct {
	Key Key `json:"key"`
	// Refs are the entries that this one hangs on: a bucket on its contract,
	// an account on its buckets. They never change.
	Refs []Key `json:"refs,omitempty"`
	// Value is the record in JSON. It holds secrets. It is shared, so it
	// is never changed in place.
	Value json.RawMessage `json:"value"`
	// Version is the store's and grows with every write of the key. 0 is an entry
	// that was not read from a store. In an export and in a Secret it is left out.
	Version uint64 `json:"version,omitempty,string"`
	// Damage says why what is stored cannot be used; nil if it can.
	Damage error `json:"-"`
}

// Phase says how far a record's thing has come.
type Phase string

// The phases.
const (
	// Intent: the service may or may not have done it.
	Intent Phase = "Intent"
	// Done: the service has done it, and the answer is in the record.
	Done Phase = "Done"
)

// KeyState is how far a key has come: a contract's own, or that of an access.
// Package keys is what moves it.
type KeyState struct {
	Phase Phase
	// Proposed is the pair that was written before the key was asked for. Services
	// that let the caller choose use it as it is, others use its id to know a
	// repeated request.
	Proposed secret.KeyPair
	// Issued is the key, once Done.
	Issued secret.KeyPair
	// IssuedAt is when Issued was written; zero in a record from before it was kept.
	IssuedAt time.Time
	// Since is when the life of Issued began; zero is the record's CreatedAt.
	Since time.Time
	// Rotation is the replacement of a key by Issued that has not ended; nil if
	// there is none.
	Rotation *Rotation
}

// Contract is the record of a contract the driver has signed.
type Contract struct {
	ID cosi.ContractID
	// KeyState is of the contract's own key.
	KeyState

	version uint64 // the stored entry's; 0 if there is none
}

// Bucket is the record of a bucket the driver has made or adopted. It has no
// phase: a bucket that is made carries the driver's mark from its first moment, so one that was made
// and not yet recorded is known for the driver's own.
type Bucket struct {
	ID cosi.BucketID `json:"-"`
	// Requested is what its class asked for. A repeated request is compared with it.
	Requested params.Bucket `json:"spec"`
	// Effective is what it was configured to: Requested with the contract's
	// defaults of that time, and with Settings over both. It is not stored if that is
	// the same.
	Effective params.Bucket `json:"applied,omitzero"`
	// Settings are what a BucketSettings says of it, as far as that was accepted; nil
	// if there is none.
	Settings *Settings `json:"settings,omitempty"`
	// Leaving is what the service may still have beside Effective, from before a
	// change is begun until it has arrived; nil otherwise.
	Leaving *params.Bucket `json:"leaving,omitempty"`
	// Adopted says that it was not made by the driver, but left to it. It
	// carries no mark of any driver's.
	Adopted bool `json:"adopted,omitempty"`
	// Unclassed says that the driver made it, and that Requested is not its class's
	// but what was said when it was found again without a record.
	Unclassed bool `json:"unclassed,omitempty"`
	// Endpoint is where it is reached.
	Endpoint cosi.Endpoint `json:"endpoint"`
	// CreatedAt is when it was made or adopted.
	CreatedAt time.Time `json:"createdAt"`
	// Emptying is how far its emptying has come, once it is to be deleted with
	// what it holds; nil before. From then on no key is given to it.
	Emptying *Emptying `json:"emptying,omitempty"`

	version uint64 // the stored entry's; 0 if there is none
}

// Settings are parameters that stand over those of a bucket's class.
type Settings struct {
	// Claim is the BucketClaim that they are for, as namespace/name.
	Claim string `json:"claim"`
	// Parameters are called as those of a class.
	Parameters map[string]string `json:"parameters,omitempty"`
}

// Emptying is the progress of a deletion that takes longer than a call.
type Emptying struct {
	Since time.Time `json:"since"`
	// Deleted counts versions, delete markers and unfinished uploads. What the
	// call that a crash has ended had deleted is not in it.
	Deleted int64 `json:"deleted"`
}

// BucketAccess is what an account may do with one bucket.
type BucketAccess struct {
	Bucket string          `json:"bucket"`
	Mode   cosi.AccessMode `json:"mode"`
	cosi.Metadata
	// Actions limit it to some of what the modes allow; none is all of it.
	Actions []string `json:"actions,omitempty"`
}

// Grant is what a key was asked for. A repeated request is compared with it.
type Grant struct {
	Buckets  []BucketAccess `json:"buckets"` // sorted by name
	Prefixes []string       `json:"prefixes,omitempty"`
	SourceIP []string       `json:"sourceIP,omitempty"`
	// KeyLife is how long a key lives; 0 is until it is revoked.
	KeyLife time.Duration `json:"keyLife,omitempty"`
	// KeyRotation is the age at which a key is replaced; 0 is never. KeyGrace is how
	// long the one before stays valid then.
	KeyRotation time.Duration `json:"keyRotation,omitempty"`
	KeyGrace    time.Duration `json:"keyGrace,omitempty"`
	// SecretFormat are the forms of the key that the driver writes; sorted.
	SecretFormat []string `json:"secretFormat,omitempty"`
}

// Rotation is how far a key's replacement has come.
type Rotation struct {
	// Phase is Intent as long as the new key may or may not have been issued,
	// and Done once it is the access's.
	Phase Phase
	// Proposed is what the new key was asked for with, while Intent.
	Proposed secret.KeyPair
	// Old is the access key id of the key before, once Done. It is valid.
	Old string
	// Grace is how long it stays so after the new key was first handed out.
	Grace time.Duration
	// HandedOut is when that was; zero if it was not.
	HandedOut time.Time
	// Since is when the life of the new key begins, while Intent.
	Since time.Time
}

// Account is the record of one access: a principal and its key.
type Account struct {
	ID cosi.AccountID
	KeyState
	// Requested is what was asked for. A repeated request is compared with it.
	Requested Grant
	// Effective is what the key is limited to: Requested with the contract's
	// defaults of the time when it was first asked for.
	Effective Grant
	// CreatedAt is when the intent was written.
	CreatedAt time.Time
	// Cut is how far the revocation of the key by a person has come, "" if there was
	// none: Intent as long as the service may have the key, and Done after that. An
	// access that is cut is given no key.
	Cut Phase
	// Formatted is the access key id that was last written in the forms of
	// SecretFormat; "" if there are none, or not yet.
	Formatted string

	version uint64 // the stored entry's; 0 if there is none
}

// Unformatted reports whether the forms of SecretFormat do not have the access's key yet.
func (a *Account) Unformatted() bool {
	return len(a.Effective.SecretFormat) > 0 && a.Phase == Done && a.Cut == "" && a.Formatted != a.Issued.AccessKeyID
}

// KeyIssuedAt is when the key was issued, or asked for if that was not kept.
func (a *Account) KeyIssuedAt() time.Time {
	if a.IssuedAt.IsZero() {
		return a.CreatedAt
	}
	return a.IssuedAt
}

// ExpiresAt is when the key ends by itself; zero is never. It is the same each
// time the key is asked for.
func (a *Account) ExpiresAt() time.Time { return a.EndOf(a.Since) }

// EndOf is when a key ends whose life began at a time, the zero one of which is
// CreatedAt.
func (a *Account) EndOf(since time.Time) time.Time {
	if a.Effective.KeyLife == 0 {
		return time.Time{}
	}
	if since.IsZero() {
		since = a.CreatedAt
	}
	return since.Add(a.Effective.KeyLife).Truncate(time.Second)
}

// Journal reads and writes records in a Store.
type Journal struct{ store Store }

// New returns the journal in store.
func New(store Store) *Journal { return &Journal{store} }

func (j *Journal) get(ctx context.Context, key Key) (Entry, error) {
	e, err := j.store.Get(ctx, key)
	return e, fromStore(err)
}

func (j *Journal) index(ctx context.Context) (*Index, error) {
	index, err := j.store.Index(ctx)
	return index, fromStore(err)
}

// read reads the value of an entry into v.
func (j *Journal) read(ctx context.Context, key Key, v any) (version uint64, err error) {
	e, err := j.get(ctx, key)
	if err == nil {
		err = decode(e, v)
	}
	return e.Version, err
}

// Check reports whether the journal can be read and written now.
func (j *Journal) Check(ctx context.Context) error { return j.store.Check(ctx) }

// Count returns how many records of a kind there are. It does not wait for a
// store that is being read for the first time.
func (j *Journal) Count(ctx context.Context, kind RecordKind) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	index, err := j.index(ctx)
	if err != nil {
		return 0, err
	}
	return index.Count(kind, ""), nil
}

// Contract returns the record of a contract; NotFound if there is none.
func (j *Journal) Contract(ctx context.Context, id cosi.ContractID) (*Contract, error) {
	var v storedContract
	version, err := j.read(ctx, contractKey(id), &v)
	if err != nil {
		return nil, err
	}
	return &Contract{ID: id, KeyState: KeyState{Phase: v.Phase, Proposed: v.Proposed.pair(), Issued: v.Issued.pair()}, version: version}, nil
}

// Bucket returns the record of a bucket; NotFound if there is none.
func (j *Journal) Bucket(ctx context.Context, id cosi.BucketID) (*Bucket, error) {
	b := Bucket{ID: id}
	version, err := j.read(ctx, bucketKey(id), &b)
	if err != nil {
		return nil, err
	}
	if b.version = version; reflect.ValueOf(b.Effective).IsZero() {
		b.Effective = b.Requested
	}
	return &b, nil
}

// Account returns the record of an access; NotFound if there is none.
func (j *Journal) Account(ctx context.Context, id cosi.AccountID) (*Account, error) {
	e, err := j.get(ctx, accountKey(id))
	if err != nil {
		return nil, err
	}
	return accountOf(e)
}

// AccountsOn returns the records of every access that reaches a bucket.
func (j *Journal) AccountsOn(ctx context.Context, id cosi.BucketID) ([]*Account, error) {
	index, err := j.index(ctx)
	if err != nil {
		return nil, err
	}
	entries := index.Dependents(bucketKey(id))
	accounts := make([]*Account, len(entries))
	for i, e := range entries {
		if accounts[i], err = accountOf(e); err != nil {
			return nil, err
		}
	}
	return accounts, nil
}

// InUse reports whether a contract has buckets.
func (j *Journal) InUse(ctx context.Context, id cosi.ContractID) (bool, error) {
	buckets, _, err := j.Usage(ctx, id)
	return buckets > 0, err
}

// Usage returns how many buckets and keys of a contract there are.
func (j *Journal) Usage(ctx context.Context, id cosi.ContractID) (buckets, keys int, err error) {
	index, err := j.index(ctx)
	if err != nil {
		return 0, 0, err
	}
	return index.Count(Buckets, id.String()), index.Count(Accounts, id.String()), nil
}

// BucketsOf returns the names of up to limit buckets of a contract, in their order,
// and how many there are.
func (j *Journal) BucketsOf(ctx context.Context, id cosi.ContractID, limit int) (names []string, count int, err error) {
	index, err := j.index(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range index.Dependents(contractKey(id)) {
		if bucket, err := cosi.ParseBucketID(e.Key.ID); err == nil && len(names) < limit {
			names = append(names, bucket.Bucket)
		}
	}
	return names, index.Count(Buckets, id.String()), nil
}

// Settled are the buckets that have settings, by the claims that these are for. It
// costs one look at every record, without decoding the others.
func (j *Journal) Settled(ctx context.Context) (map[string][]cosi.BucketID, error) {
	index, err := j.index(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string][]cosi.BucketID{}
	index.each(func(e Entry) {
		if e.Key.Kind != Buckets || !bytes.Contains(e.Value, []byte(`"settings"`)) {
			return
		}
		var b Bucket
		id, err := cosi.ParseBucketID(e.Key.ID)
		if err == nil && decode(e, &b) == nil && b.Settings != nil { // its own call tells of a damaged one
			out[b.Settings.Claim] = append(out[b.Settings.Claim], id)
		}
	})
	return out, nil
}

// Unformatted are the accesses whose forms do not have their key yet; see
// [Account.Unformatted]. It costs what [Journal.Settled] does.
func (j *Journal) Unformatted(ctx context.Context) ([]cosi.AccountID, error) {
	index, err := j.index(ctx)
	if err != nil {
		return nil, err
	}
	var out []cosi.AccountID
	index.each(func(e Entry) {
		if e.Key.Kind != Accounts || !bytes.Contains(e.Value, []byte(`"secretFormat"`)) {
			return
		}
		if a, err := accountOf(e); err == nil && a.Unformatted() {
			out = append(out, a.ID)
		}
	})
	return out, nil
}

// Walk returns the places of up to limit records that come after a place, of
// which the zero Place is the first. None means that the walk has ended. What is
// written or deleted during a walk may or may not be part of it.
func (j *Journal) Walk(ctx context.Context, after Place, limit int) ([]Place, error) {
	index, err := j.index(ctx)
	if err != nil {
		return nil, err
	}
	return index.Walk(after, limit), nil
}

// EachContract calls do with the id of every contract that has a record, until it
// returns an error.
func (j *Journal) EachContract(ctx context.Context, do func(cosi.ContractID) error) error {
	const step = 1000
	for after := (Place{}); ; {
		places, err := j.Walk(ctx, after, step)
		if err != nil || len(places) == 0 {
			return err
		}
		for _, p := range places {
			if p.Key.Kind != Contracts {
				continue
			}
			id, err := cosi.ParseContractID(p.Key.ID)
			if err == nil {
				err = do(id)
			}
			if err != nil {
				return err
			}
		}
		after = places[len(places)-1]
	}
}

// SaveContract writes a record: as a new one if it was not read from the
// journal, over the one that was read otherwise. See [ErrOvertaken].
func (j *Journal) SaveContract(ctx context.Context, c *Contract) error {
	v := storedContract{Phase: c.Phase, Proposed: stored(c.Proposed), Issued: stored(c.Issued)}
	return j.save(ctx, &c.version, contractKey(c.ID), nil, v)
}

// SaveBucket is [Journal.SaveContract] for buckets.
func (j *Journal) SaveBucket(ctx context.Context, b *Bucket) error {
	v := *b
	if len(v.Effective.Differences(v.Requested)) == 0 {
		v.Effective = params.Bucket{}
	}
	return j.save(ctx, &b.version, bucketKey(b.ID), []Key{contractKey(b.ID.ContractID)}, v)
}

// SaveAccount is [Journal.SaveContract] for accesses.
func (j *Journal) SaveAccount(ctx context.Context, a *Account) error {
	var asked *Grant
	if !reflect.DeepEqual(a.Requested, a.Effective) {
		asked = &a.Requested
	}
	v := storedAccount{Phase: a.Phase, Grant: a.Effective, Asked: asked, Proposed: stored(a.Proposed), Issued: stored(a.Issued), CreatedAt: a.CreatedAt, IssuedAt: a.IssuedAt, Since: a.Since, Formatted: a.Formatted}
	if r := a.Rotation; r != nil {
		v.Rotation = &storedRotation{r.Phase, stored(r.Proposed), r.Old, r.Grace, r.HandedOut, r.Since}
	}
	if a.Cut != "" {
		v.Cut, v.Asked = &storedCut{a.Cut, a.Effective.KeyLife}, &a.Requested
		v.Grant.KeyLife = time.Nanosecond
	}
	refs := make([]Key, len(a.Effective.Buckets))
	for i, b := range a.Effective.Buckets {
		refs[i] = bucketKey(cosi.BucketID{ContractID: a.ID.ContractID, Bucket: b.Bucket})
	}
	return j.save(ctx, &a.version, accountKey(a.ID), refs, v)
}

// Record is a record that can be deleted: *Contract, *Bucket or *Account.
type Record interface{ stored() Entry }

func (c *Contract) stored() Entry { return Entry{Key: contractKey(c.ID), Version: c.version} }
func (b *Bucket) stored() Entry   { return Entry{Key: bucketKey(b.ID), Version: b.version} }
func (a *Account) stored() Entry  { return Entry{Key: accountKey(a.ID), Version: a.version} }

// Delete removes records. Those that are gone already are passed over. See
// [ErrOvertaken] for one that has changed since it was read. Not every store can remove
// several at once: they go in the given order, so what hangs on another comes
// before it, and a repeat finds what is left.
func (j *Journal) Delete(ctx context.Context, records ...Record) error {
	entries := make([]Entry, len(records))
	for i, r := range records {
		entries[i] = r.stored()
	}
	return fromStore(j.store.Delete(ctx, entries...))
}

// ErrOvertaken is the cause where a record has changed since it was read: another
// process writes the journal without the right to. The process that is overtaken stops, and
// changes nothing more.
var ErrOvertaken = errors.New("another process writes the journal too")

// fromStore is the error of a store as the rest of the driver hears it. What an API
// server refuses, with its Roles or its quotas, is no word of a storage service: a call
// that has been carried out there stays so, and is repeated.
func fromStore(err error) error {
	switch fault.KindOf(err) {
	case fault.PermissionDenied, fault.FailedPrecondition, fault.LimitExceeded:
		return fault.As(fault.Unavailable, err)
	case fault.Mismatch:
		return fault.Wrap(fault.Unavailable, ErrOvertaken, "%s: a process without the journal's Lease, such as an earlier release of the driver, writes it too; stop that process, and retry", err)
	}
	return err
}

func (j *Journal) save(ctx context.Context, version *uint64, key Key, refs []Key, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "journal record %s cannot be written as JSON", key)
	}
	written, err := j.store.Put(ctx, Entry{Key: key, Refs: refs, Value: text, Version: *version})
	if err == nil {
		*version = written
	}
	return fromStore(err)
}

// LostRace is a store's Mismatch for an entry that another writer has changed.
func LostRace(e Entry) error {
	if e.Version == 0 {
		return fault.New(fault.Mismatch, "journal record %s is there already", e.Key)
	}
	return fault.New(fault.Mismatch, "journal record %s has changed meanwhile", e.Key)
}

func contractKey(id cosi.ContractID) Key { return Key{Contracts, id.String()} }
func bucketKey(id cosi.BucketID) Key     { return Key{Buckets, id.String()} }
func accountKey(id cosi.AccountID) Key   { return Key{Accounts, id.String()} }

func accountOf(e Entry) (*Account, error) {
	var v storedAccount
	if err := decode(e, &v); err != nil {
		return nil, err
	}
	id, err := cosi.ParseAccountID(e.Key.ID)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "journal record %s: %s", e.Key, err)
	}
	if v.Asked == nil {
		v.Asked = &v.Grant
	}
	cut := Phase("")
	if v.Cut != nil {
		cut, v.Grant.KeyLife = v.Cut.Phase, v.Cut.KeyLife
	}
	a := &Account{ID: id, Requested: *v.Asked, Effective: v.Grant, CreatedAt: v.CreatedAt, Cut: cut, Formatted: v.Formatted, version: e.Version,
		KeyState: KeyState{Phase: v.Phase, Proposed: v.Proposed.pair(), Issued: v.Issued.pair(), IssuedAt: v.IssuedAt, Since: v.Since}}
	if r := v.Rotation; r != nil {
		a.Rotation = &Rotation{r.Phase, r.Proposed.pair(), r.Old, r.Grace, r.HandedOut, r.Since}
	}
	return a, nil
}

// The stored forms: the only types in which a secret is plain text.
type (
	storedPair struct {
		ID     string `json:"id"`
		Secret string `json:"secret,omitempty"`
	}
	storedContract struct {
		Phase    Phase      `json:"phase"`
		Proposed storedPair `json:"proposed"`
		Issued   storedPair `json:"issued,omitzero"`
	}
	storedAccount struct {
		Phase     Phase           `json:"phase"`
		Grant     Grant           `json:"grant"`
		Asked     *Grant          `json:"asked,omitempty"`
		Proposed  storedPair      `json:"proposed"`
		Issued    storedPair      `json:"issued,omitzero"`
		CreatedAt time.Time       `json:"createdAt"`
		IssuedAt  time.Time       `json:"issuedAt,omitzero"`
		Since     time.Time       `json:"since,omitzero"`
		Rotation  *storedRotation `json:"rotation,omitempty"`
		Cut       *storedCut      `json:"cut,omitempty"`
		Formatted string          `json:"formatted,omitempty"`
	}
	// storedCut holds the key's life, in whose place the grant has one that is over:
	// a driver that knows of no cut gives no other key for one that has ended.
	storedCut struct {
		Phase   Phase         `json:"phase"`
		KeyLife time.Duration `json:"keyLife,omitempty"` // in nanoseconds
	}
	storedRotation struct {
		Phase     Phase         `json:"phase"`
		Proposed  storedPair    `json:"proposed,omitzero"`
		Old       string        `json:"old,omitempty"`
		Grace     time.Duration `json:"grace"` // in nanoseconds
		HandedOut time.Time     `json:"handedOut,omitzero"`
		Since     time.Time     `json:"since,omitzero"`
	}
)

func stored(p secret.KeyPair) storedPair {
	return storedPair{ID: p.AccessKeyID, Secret: p.SecretAccessKey.Reveal()}
}

func (p storedPair) pair() secret.KeyPair {
	return secret.KeyPair{AccessKeyID: p.ID, SecretAccessKey: secret.New(p.Secret)}
}

func decode(e Entry, v any) error {
	if e.Damage != nil {
		return e.Damage
	}
	if err := json.Unmarshal(e.Value, v); err != nil {
		return fault.Wrap(fault.Internal, fmt.Errorf("decode: %w", err), "journal record %s cannot be understood; restore the journal from a backup or remove the record", e.Key)
	}
	return nil
}
