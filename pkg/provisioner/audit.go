package provisioner

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/keys"
	"github.com/contract-cosi/contract-cosi-driver/pkg/lock"
	"github.com/contract-cosi/contract-cosi-driver/pkg/site"
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
	// OrphanContract: a contract with the driver's mark that the journal does not
	// know, or one that its terms would have cancelled with its last bucket.
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
// journal is asked again, as the process that changes things and with the locks
// that calls take. The error tells what could not be checked; what was found is
// returned with it.
func (p *Provisioner) AuditContract(ctx context.Context, id cosi.ContractID, a Audit) ([]Orphan, error) {
	backend, err := p.sites.At(id)
	if err != nil {
		return nil, err
	}
	record, err := p.journal.Contract(ctx, id)
	if fault.IgnoreNotFound(err) != nil {
		return nil, err
	}
	have, err := backend.Signed(ctx, id.Contract)
	if fault.Is(err, fault.NotFound) {
		return p.auditGone(ctx, id, record, a)
	}
	if err != nil {
		return nil, err
	}
	var found []Orphan
	add := func(more []Orphan, failed error) { found, err = append(found, more...), errors.Join(err, failed) }
	add(p.auditUnused(ctx, id, record))
	listed, listErr := backend.ListKeys(ctx, id.Contract, "")
	if listErr != nil {
		return found, errors.Join(err, listErr)
	}
	add(p.auditKeys(ctx, backend, id, listed, a))
	add(p.auditAccounts(ctx, listed, a))
	switch {
	case len(a.Buckets) == 0 && (record == nil || backend.Usable(have) != nil):
	case record == nil || record.Phase != journal.Done || backend.Usable(have) != nil:
		err = errors.Join(err, fault.New(fault.FailedPrecondition, "contract %s: its buckets cannot be checked as long as it is %s or has no key", id, have.State))
	default:
		add(p.auditBuckets(ctx, id, a))
	}
	return found, err
}

// auditUnused finds a contract that the journal does not know, or that should have
// been cancelled.
func (p *Provisioner) auditUnused(ctx context.Context, id cosi.ContractID, record *journal.Contract) ([]Orphan, error) {
	text := "it has no bucket, and its terms cancel it with its last one; the driver tries again, or cancel it at the service"
	switch terms, known := p.termsOf(id); {
	case record == nil:
		text = "it carries this driver's mark and has no record; it gets one when a bucket is next created under it"
	case !known || terms.OnLastBucket != config.Cancel:
		return nil, nil
	}
	ctx, call, err := p.begin(ctx, lock.Exclusive("contract", id))
	if err != nil {
		return nil, err
	}
	defer call.end()
	_, err = p.journal.Contract(ctx, id)
	if recorded := err == nil; recorded == (record == nil) || recorded && !p.unused(ctx, id) {
		return nil, fault.IgnoreNotFound(err)
	}
	return []Orphan{{Kind: OrphanContract, ID: id.String(), Text: text}}, nil
}

// auditGone is for a contract that the service does not have.
func (p *Provisioner) auditGone(ctx context.Context, id cosi.ContractID, record *journal.Contract, a Audit) ([]Orphan, error) {
	if record == nil && len(a.Buckets)+len(a.Accounts) == 0 {
		return nil, nil
	}
	ctx, call, err := p.begin(ctx, lock.Exclusive("contract", id)) // no call is signing or cancelling it
	if err != nil {
		return nil, err
	}
	defer call.end()
	var found []Orphan
	gone := func(kind journal.RecordKind, id string, err error) {
		if err == nil {
			found = append(found, Orphan{Kind: OrphanRecord, ID: id,
				Text: "the " + string(kind) + " is in the journal, and its contract is gone at the service; delete the objects that use it"})
		}
	}
	record, err = p.journal.Contract(ctx, id)
	if err == nil && record.Phase == journal.Done {
		gone(journal.Contracts, id.String(), nil)
	}
	for _, b := range a.Buckets {
		_, err := p.journal.Bucket(ctx, b)
		gone(journal.Buckets, b.String(), err)
	}
	for _, b := range a.Accounts {
		_, err := p.journal.Account(ctx, b)
		gone(journal.Accounts, b.String(), err)
	}
	return found, nil
}

// auditKeys finds the keys at the service that the journal does not know.
func (p *Provisioner) auditKeys(ctx context.Context, backend site.Backend, id cosi.ContractID, listed []contract.KeyInfo, a Audit) (found []Orphan, err error) {
	for _, k := range listed {
		if k.Name != "" && !keys.Proposed(k.Name) {
			continue // someone else's
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

// auditKey judges a key, and asks again before it says anything against it.
func (p *Provisioner) auditKey(ctx context.Context, backend site.Backend, id cosi.ContractID, k contract.KeyInfo, a Audit) (*Orphan, error) {
	account := cosi.AccountID{ContractID: id, Account: k.Slot}
	if known, _, err := p.knowsKey(ctx, account, k); known || err != nil {
		return nil, err
	}
	ctx, call, _, err := p.beginAccess(ctx, account, p.begin)
	if err != nil {
		return nil, err
	}
	defer call.end()
	known, access, err := p.knowsKey(ctx, account, k)
	if known || err != nil {
		return nil, err
	}
	o := &Orphan{Kind: OrphanKey, ID: account.String(), AccessKeyID: k.AccessKeyID, Text: "a key that the journal does not know; audit --fix revokes it"}
	which := k.AccessKeyID
	if !access {
		o.Kind, o.Text, which = OrphanPrincipal, "the journal knows no such access; audit --fix revokes what it holds", ""
	}
	if k.CreatedAt.IsZero() && a.Grace > 0 { // it could be of a call that is under way
		o.Text = "the journal does not know it, and the service does not tell its age; audit --fix --grace 0s revokes it, when no call is under way"
		return o, nil
	}
	if !a.Fix {
		return o, nil
	}
	if err := backend.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: id.Contract, Slot: k.Slot, AccessKeyID: which}); err != nil {
		return o, fault.In(err, "access %s", account)
	}
	o.Fixed = true
	keys.Audit(ctx, "Key revoked", id, k.Slot, k.AccessKeyID)
	return o, nil
}

// knowsKey reports whether the journal knows a key, or that one of its slot may
// be under way, and whether it has a record of the slot at all.
func (p *Provisioner) knowsKey(ctx context.Context, account cosi.AccountID, k contract.KeyInfo) (known, recorded bool, err error) {
	var state journal.KeyState
	if k.Slot == cosi.ContractSlot {
		record, err := p.journal.Contract(ctx, account.ContractID)
		if err != nil {
			return false, true, fault.IgnoreNotFound(err)
		}
		state = record.KeyState
	} else {
		record, err := p.journal.Account(ctx, account)
		if err != nil || record.Cut == journal.Done {
			return false, err == nil, fault.IgnoreNotFound(err)
		}
		state = record.KeyState
	}
	r := state.Rotation
	return state.Phase != journal.Done || state.Issued.AccessKeyID == k.AccessKeyID ||
		r != nil && (r.Phase != journal.Done || r.Old == k.AccessKeyID), true, nil
}

// auditAccounts finds the accesses in the journal that are not whole.
func (p *Provisioner) auditAccounts(ctx context.Context, listed []contract.KeyInfo, a Audit) (found []Orphan, err error) {
	for _, id := range a.Accounts {
		record, err := p.journal.Account(ctx, id)
		if fault.IgnoreNotFound(err) != nil {
			return found, err
		}
		if err == nil && len(p.notWhole(ctx, record, listed, a.Grace)) > 0 { // as far as is known; now for certain
			inside, call, record, err := p.beginAccess(ctx, id, p.begin)
			if err != nil {
				return found, err
			}
			if record != nil {
				found = append(found, p.notWhole(inside, record, listed, a.Grace)...)
			}
			call.end()
		}
	}
	return found, nil
}

func (p *Provisioner) notWhole(ctx context.Context, record *journal.Account, listed []contract.KeyInfo, grace time.Duration) (found []Orphan) {
	orphan := func(text string) {
		found = append(found, Orphan{Kind: OrphanRecord, ID: record.ID.String(), AccessKeyID: record.Issued.AccessKeyID, Text: text})
	}
	for _, b := range record.Effective.Buckets {
		if _, err := p.journal.Bucket(ctx, bucketIDOf(record.ID, b)); fault.Is(err, fault.NotFound) {
			orphan("the access reaches bucket " + b.Bucket + ", which the journal does not know; delete its BucketAccess")
		}
	}
	there := slices.ContainsFunc(listed, func(k contract.KeyInfo) bool { return k.AccessKeyID == record.Issued.AccessKeyID })
	switch {
	case time.Since(record.CreatedAt) < grace || time.Since(record.IssuedAt) < grace: // its key may be younger than the list
	case record.Cut == journal.Intent:
		orphan("its key was revoked by hand, and the service has not carried that out; repeat contract-cosi-driver revoke")
	case record.Cut != "":
	case record.Phase != journal.Done:
		orphan("a grant of this access was begun and never ended; repeat it, or delete its BucketAccess")
	case !there && !ended(record):
		orphan("its key is gone at the service; another is issued when the grant call is repeated, or delete its BucketAccess")
	}
	return found
}

// auditBuckets finds the buckets that are on one side only.
func (p *Provisioner) auditBuckets(ctx context.Context, id cosi.ContractID, a Audit) (found []Orphan, err error) {
	missing := map[string]cosi.BucketID{}
	for _, b := range a.Buckets {
		missing[b.Bucket] = b
	}
	err = p.sites.Do(ctx, p.finder(id), func(s *site.Site) error {
		for _, endpoint := range s.Endpoints {
			engine := s.In(endpoint)
			for b, err := range engine.List(ctx) {
				if err != nil {
					return fault.In(err, "contract %s", id)
				}
				delete(missing, b.Name)
				bucketID := cosi.BucketID{ContractID: id, Bucket: b.Name}
				if _, err := p.journal.Bucket(ctx, bucketID); !fault.Is(err, fault.NotFound) || time.Since(b.CreatedAt) < a.Grace {
					continue
				}
				ours, err := engine.Ours(ctx, b.Name)
				if fault.IgnoreNotFound(err) != nil {
					return fault.In(err, "bucket %s", bucketID)
				}
				if !ours {
					continue
				}
				o, err := p.auditBucket(ctx, bucketID, false, a.Grace,
					Orphan{Kind: OrphanBucket, Text: "it carries this driver's mark and has no record; make its BucketClaim again, or delete the bucket by hand"})
				if err != nil {
					return err
				}
				found = append(found, o...)
			}
		}
		return nil
	})
	if err != nil {
		return found, err
	}
	for _, b := range missing {
		o, err := p.auditBucket(ctx, b, true, a.Grace,
			Orphan{Kind: OrphanRecord, Text: "the bucket is gone at the service; it is re-created, empty, when its create call is repeated, or delete its BucketClaim"})
		if err != nil {
			return found, err
		}
		found = append(found, o...)
	}
	return found, nil
}

// auditBucket asks the journal again whether it has a bucket, when no call is
// making or deleting it.
func (p *Provisioner) auditBucket(ctx context.Context, id cosi.BucketID, recorded bool, grace time.Duration, o Orphan) ([]Orphan, error) {
	ctx, call, err := p.begin(ctx, lock.Shared("contract", id.ContractID), lock.Exclusive("bucket", id))
	if err != nil {
		return nil, err
	}
	defer call.end()
	record, err := p.journal.Bucket(ctx, id)
	if fault.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if (err == nil) != recorded || recorded && time.Since(record.CreatedAt) < grace {
		return nil, nil
	}
	o.ID = id.String()
	return []Orphan{o}, nil
}
