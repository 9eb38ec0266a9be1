package provisioner

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// Orphan is something that is on one side only: at the service, or in the
// journal.
type Orphan struct {
	// Kind says what it is.
	Kind OrphanKind
	// ID names it: the bucket's, account's or contract's id.
	ID string
	// AccessKeyID names the key, where it is about one.
	AccessKeyID string
	// Text says in a sentence what is wrong and what to do.
	Text string
	// Fixed says that it was removed.
	Fixed bool
}

// OrphanKind says what an orphan is.
type OrphanKind string

// The kinds. Only keys and principals are ever removed.
const (
	// OrphanKey: a key that the journal does not know, of an access that it knows.
	OrphanKey OrphanKind = "key"
	// OrphanPrincipal: keys of an access that the journal does not know.
	OrphanPrincipal OrphanKind = "principal"
	// OrphanBucket: a bucket with the driver's mark that the journal does not know.
	OrphanBucket OrphanKind = "bucket"
	// OrphanContract: a contract with the driver's mark that the journal does not know.
	OrphanContract OrphanKind = "contract"
	// OrphanRecord: a record of something that is not there.
	OrphanRecord OrphanKind = "record"
)

// Audit says how a contract is audited.
type Audit struct {
	// Fix removes orphaned keys and principals.
	Fix bool
	// Grace is how old something has to be to be an orphan: what is younger may
	// be of a call that is under way, here or in another driver.
	Grace time.Duration
	// Buckets and Accounts are those under the contract that the journal knew
	// before.
	Buckets  []cosi.BucketID
	Accounts []cosi.AccountID
}

// AuditContract compares what is under a contract at its service with what the
// journal knows, in both directions. Of what seems to be on one side only the
// other side is asked again, for certain. The error tells what could not be
// looked at; what was found is returned with it.
func (p *Provisioner) AuditContract(ctx context.Context, id cosi.ContractID, a Audit) ([]Orphan, error) {
	backend, known := p.Backends[id.Backend]
	if !known {
		return nil, noBackend(id)
	}
	record, err := p.Journal.Contract(ctx, id)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	have, err := p.signed(ctx, id)
	switch {
	case fault.Is(err, fault.NotFound):
		return p.auditGone(ctx, id, record, a)
	case err != nil:
		return nil, err
	}
	var found []Orphan
	if record == nil {
		if _, err := p.Journal.Fresh().Contract(ctx, id); fault.Is(err, fault.NotFound) {
			found = append(found, Orphan{Kind: OrphanContract, ID: id.String(),
				Text: "it carries this driver's mark and has no record; it is taken on again when a bucket is next made under it"})
		}
	}
	keys, err := backend.Provider.ListKeys(ctx, id.Contract, "")
	if err != nil {
		return found, err
	}
	atService, err := p.auditKeys(ctx, backend, id, keys, a)
	found = append(found, atService...)
	inJournal, journalErr := p.auditAccounts(ctx, keys, a)
	found = append(found, inJournal...)
	err = errors.Join(err, journalErr)
	if record == nil || record.Phase != journal.Done || p.usable(have) != nil {
		if len(a.Buckets) > 0 {
			err = errors.Join(err, fault.New(fault.FailedPrecondition, "contract %s: its buckets cannot be looked at as long as it is %s or has no key", id, have.State))
		}
		return found, err
	}
	buckets, bucketErr := p.auditBuckets(ctx, id, have, a)
	return append(found, buckets...), errors.Join(err, bucketErr)
}

// auditGone is for a contract that the service does not have.
func (p *Provisioner) auditGone(ctx context.Context, id cosi.ContractID, record *journal.Contract, a Audit) ([]Orphan, error) {
	var found []Orphan
	gone := func(kind journal.RecordKind, id string) {
		found = append(found, Orphan{Kind: OrphanRecord, ID: id,
			Text: "the " + string(kind) + " is in the journal, and its contract is gone at the service; delete the objects that use it"})
	}
	if record != nil && record.Phase != journal.Done && len(a.Buckets)+len(a.Accounts) == 0 { // it is just being signed
		return nil, nil
	}
	if record != nil {
		if _, err := p.Journal.Fresh().Contract(ctx, id); fault.Is(err, fault.NotFound) { // it was just cancelled
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		gone(journal.Contracts, id.String())
	}
	for _, b := range a.Buckets {
		gone(journal.Buckets, b.String())
	}
	for _, b := range a.Accounts {
		gone(journal.Accounts, b.String())
	}
	return found, nil
}

// auditKeys finds the keys at the service that the journal does not know.
func (p *Provisioner) auditKeys(ctx context.Context, backend Backend, id cosi.ContractID, keys []contract.KeyInfo, a Audit) (found []Orphan, err error) {
	for _, k := range keys {
		if k.Name != "" && !wasProposed(k.Name) {
			continue // somebody else's
		}
		if age := time.Since(k.CreatedAt); !k.CreatedAt.IsZero() && age < a.Grace {
			continue
		}
		o, err := p.auditKey(ctx, backend, id, k, a)
		if err != nil {
			return found, err
		}
		if o != nil {
			found = append(found, *o)
		}
	}
	return found, nil
}

// auditKey asks the journal for certain, and keeps calls of this process on the
// same access away meanwhile.
func (p *Provisioner) auditKey(ctx context.Context, backend Backend, id cosi.ContractID, k contract.KeyInfo, a Audit) (*Orphan, error) {
	account := cosi.AccountID{ContractID: id, Account: k.Slot}
	if known, err := p.knowsKey(ctx, p.Journal, account, k); known || err != nil {
		return nil, err
	}
	unlock, err := p.locks.acquire(ctx, shared("contract", id), exclusive("account", account))
	if err != nil {
		return nil, err
	}
	defer unlock()
	known, err := p.knowsKey(ctx, p.Journal.Fresh(), account, k)
	if known || err != nil {
		return nil, err
	}
	o := &Orphan{Kind: OrphanKey, ID: account.String(), AccessKeyID: k.AccessKeyID, Text: "a key that the journal does not know; audit --fix revokes it"}
	if _, err := p.Journal.Fresh().Account(ctx, account); k.Slot != cosi.ContractSlot && fault.Is(err, fault.NotFound) {
		o.Kind, o.Text = OrphanPrincipal, "the journal knows no such access; audit --fix revokes what it holds"
	}
	if k.CreatedAt.IsZero() && a.Grace > 0 { // it could be of a call that is under way
		o.Text = "the journal does not know it, and the service does not tell its age; audit --fix --grace 0s revokes it, when no call is under way"
		return o, nil
	}
	if !a.Fix {
		return o, nil
	}
	which := k.AccessKeyID
	if o.Kind == OrphanPrincipal {
		which = ""
	}
	if err := backend.Provider.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: id.Contract, Slot: k.Slot, AccessKeyID: which}); err != nil {
		return o, fault.In(err, "key %s", account)
	}
	o.Fixed = true
	klog.FromContext(ctx).Info("An orphan was removed at the service", "kind", o.Kind, "account", account)
	return o, nil
}

// knowsKey reports whether the journal knows a key, or that one of its slot may
// be under way.
func (p *Provisioner) knowsKey(ctx context.Context, j *journal.Journal, account cosi.AccountID, k contract.KeyInfo) (bool, error) {
	if k.Slot == cosi.ContractSlot {
		record, err := j.Contract(ctx, account.ContractID)
		if err != nil {
			return false, absentIsNil(err)
		}
		return record.Phase != journal.Done || record.Issued.AccessKeyID == k.AccessKeyID, nil
	}
	record, err := j.Account(ctx, account)
	if err != nil {
		return false, absentIsNil(err)
	}
	if record.Phase != journal.Done || record.Issued.AccessKeyID == k.AccessKeyID {
		return true, nil
	}
	r := record.Rotation
	return r != nil && (r.Phase != journal.Done || r.Old == k.AccessKeyID), nil
}

// auditAccounts finds the accesses in the journal that are not whole.
func (p *Provisioner) auditAccounts(ctx context.Context, keys []contract.KeyInfo, a Audit) (found []Orphan, err error) {
	for _, id := range a.Accounts {
		wrong, err := auditAccount(ctx, p.Journal, id, keys, a.Grace)
		if err == nil && len(wrong) > 0 { // by what is known; now for certain
			wrong, err = auditAccount(ctx, p.Journal.Fresh(), id, keys, a.Grace)
		}
		if err != nil {
			return found, err
		}
		found = append(found, wrong...)
	}
	return found, nil
}

func auditAccount(ctx context.Context, j *journal.Journal, id cosi.AccountID, keys []contract.KeyInfo, grace time.Duration) (found []Orphan, err error) {
	record, err := j.Account(ctx, id)
	if err != nil {
		return nil, absentIsNil(err)
	}
	orphan := func(text string) {
		found = append(found, Orphan{Kind: OrphanRecord, ID: id.String(), AccessKeyID: record.Issued.AccessKeyID, Text: text})
	}
	for _, b := range record.Grant.Buckets {
		if _, err := j.Bucket(ctx, bucketIDOf(id, b)); fault.Is(err, fault.NotFound) {
			orphan("the access reaches bucket " + b.Bucket + ", which the journal does not know; delete its BucketAccess")
		}
	}
	there := slices.ContainsFunc(keys, func(k contract.KeyInfo) bool { return k.AccessKeyID == record.Issued.AccessKeyID })
	switch {
	case time.Since(record.CreatedAt) < grace || time.Since(record.IssuedAt) < grace: // its key may be younger than the list
	case record.Phase != journal.Done:
		orphan("a grant of this access was begun and never ended; repeat it, or delete its BucketAccess")
	case !there && !ended(record):
		orphan("its key is gone at the service; it is issued anew when the access is asked for again, or delete its BucketAccess")
	}
	return found, nil
}

// auditBuckets finds the buckets that are on one side only.
func (p *Provisioner) auditBuckets(ctx context.Context, id cosi.ContractID, have contract.Contract, a Audit) (found []Orphan, err error) {
	missing := map[string]cosi.BucketID{}
	for _, b := range a.Buckets {
		missing[b.Bucket] = b
	}
	for _, endpoint := range have.Endpoints {
		engine, err := p.engine(ctx, id, endpoint)
		if err != nil {
			return found, err
		}
		for b, err := range engine.List(ctx) {
			if err != nil {
				return found, p.explain(ctx, id, engine, fault.In(err, "contract %s", id))
			}
			if _, known := missing[b.Name]; known {
				delete(missing, b.Name)
				continue
			}
			bucketID := cosi.BucketID{ContractID: id, Bucket: b.Name}
			if _, err := sure(ctx, p.Journal, (*journal.Journal).Bucket, bucketID); !fault.Is(err, fault.NotFound) || time.Since(b.CreatedAt) < a.Grace {
				continue
			}
			ours, err := engine.Ours(ctx, b.Name)
			if err != nil && !fault.Is(err, fault.NotFound) {
				return found, fault.In(err, "bucket %s", bucketID)
			}
			if ours {
				found = append(found, Orphan{Kind: OrphanBucket, ID: bucketID.String(),
					Text: "it carries this driver's mark and has no record; make its BucketClaim again, or delete the bucket by hand"})
			}
		}
	}
	for _, b := range missing {
		o, err := p.auditLostBucket(ctx, b, a.Grace)
		if err != nil {
			return found, err
		}
		if o != nil {
			found = append(found, *o)
		}
	}
	return found, nil
}

// auditLostBucket asks the journal for certain, when no call of this process is
// just deleting the bucket.
func (p *Provisioner) auditLostBucket(ctx context.Context, id cosi.BucketID, grace time.Duration) (*Orphan, error) {
	unlock, err := p.locks.acquire(ctx, shared("contract", id.ContractID), exclusive("bucket", id))
	if err != nil {
		return nil, err
	}
	defer unlock()
	record, err := p.Journal.Fresh().Bucket(ctx, id)
	if err != nil || time.Since(record.CreatedAt) < grace {
		return nil, absentIsNil(err)
	}
	return &Orphan{Kind: OrphanRecord, ID: id.String(),
		Text: "the bucket is gone at the service; it is made anew, empty, when its create call is repeated, or delete its BucketClaim"}, nil
}
