package provisioner

import (
	"context"
	"errors"
	"math/bits"
	"sync"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/keys"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// A key whose class says keyRotation is renewed: the next one is issued beside it,
// written into the application's Secret, and after a grace the old one is revoked.
// The record says how far that has come, and each step looks at what is there, so a
// crash between any two of them is a step that is done again. What keeps the
// application working:
//
//   - No key is issued as long as its Secret could not take it.
//   - Only the key that is replaced is overwritten. A Secret that holds anything else
//     was edited, and is a matter of drift.
//   - Before the old key is revoked, the Secret is looked at again. If it has the old
//     key, because a backup or a late sidecar has put that back, it gets the new one,
//     and the grace begins again.
//   - The grace has to be over by the time of day, and for a part of it by a clock
//     that no one sets.

// Reasons why an access does not have in its Secrets what its class says.
const (
	KeyNotRenewed    = "KeyNotRenewed"
	SecretNotWritten = "SecretNotWritten"
)

// Deliverer writes keys to where applications read them.
type Deliverer interface {
	// Deliver makes the Secrets of an access hold a key, and reports whether it had to
	// write one. The error is a Mismatch if a Secret holds another key that it may not
	// replace, NotFound if a Secret is missing, Conflict if what has its name is
	// not this access's or is being deleted without it, and FailedPrecondition if the
	// access itself is gone or being deleted.
	Deliver(ctx context.Context, d Delivery) (written bool, err error)
	// Withdraw deletes the Secrets in formats of an access that is revoked.
	Withdraw(ctx context.Context, access cosi.AccountID, formats []string) error
	// Soon has [Provisioner.Tend] called for an access before its turn. It does not wait.
	Soon(access cosi.AccountID)
}

// Undecided reports whether an error of a Deliverer leaves open which key a Secret holds:
// the key before may still be in it.
func Undecided(err error) bool {
	switch fault.KindOf(err) {
	case "", fault.Mismatch, fault.NotFound, fault.Conflict, fault.FailedPrecondition:
		return false
	}
	return true
}

// Delivery is a key for the Secrets of an access.
type Delivery struct {
	Access  cosi.AccountID
	Key     secret.KeyPair
	Buckets []Bucket
	// Replaces is the id of the one other key that is overwritten; "" is none.
	Replaces string
	// Repair overwrites whatever is there, and re-creates a Secret that is missing.
	Repair bool
	// Formats are those of the class's secretFormat: each is a Secret beside that of the
	// sidecar. First writes only these, and creates them.
	Formats []string
	First   bool
}

// errLeaving says that the access itself is gone or being deleted.
var errLeaving = errors.New("leaving")

// settle is for how much of a grace a process has to have watched it, at most. The
// kubelet brings a Secret into a pod in less.
const settle = 10 * time.Minute

// renew does what is due of the key of an access, and tells why it cannot. It does not
// tell of what passes, or of an access that is on its way out.
func (p *Provisioner) renew(ctx context.Context, slot *keys.Slot, record *journal.Account) error {
	reason, err := SecretNotWritten, p.format(ctx, slot, record)
	if err == nil {
		reason, err = KeyNotRenewed, p.renewed(ctx, slot, record)
	}
	if p.told != nil && err != nil && !fault.Passing(err) && !errors.Is(err, errLeaving) {
		p.told(reason, record.ID, bucketIDOf(record.ID, record.Effective.Buckets[0]), err)
	}
	return err
}

// unformatted reports whether the Secrets of the class's secretFormat have to be written.
func (p *Provisioner) unformatted(record *journal.Account) bool {
	return p.deliverer != nil && record.Unformatted() && !ended(record)
}

// Unformatted are the accesses for which that may be so.
func (p *Provisioner) Unformatted(ctx context.Context) ([]cosi.AccountID, error) {
	return p.journal.Unformatted(ctx)
}

// format writes the Secrets of the class's secretFormat for the first time, or for a key
// that no rotation has led to. Those that have the key before a rotation are
// [Provisioner.finish]'s.
func (p *Provisioner) format(ctx context.Context, slot *keys.Slot, record *journal.Account) error {
	if !p.unformatted(record) || record.Rotation != nil && record.Formatted == record.Rotation.Old {
		return nil
	}
	if _, err := p.deliver(ctx, record, Delivery{First: true}); err != nil {
		return fault.In(err, "its secretFormat is not written")
	}
	return slot.Save(ctx)
}

func (p *Provisioner) renewed(ctx context.Context, slot *keys.Slot, record *journal.Account) error {
	if rotation, grace := p.schedule(record); rotation != record.Effective.KeyRotation || grace != record.Effective.KeyGrace {
		record.Effective.KeyRotation, record.Effective.KeyGrace = rotation, grace
		if err := slot.Save(ctx); err != nil {
			return err
		}
	}
	if p.rotates(record) {
		if _, err := p.deliver(ctx, record, Delivery{Replaces: record.Issued.AccessKeyID}); err != nil {
			return undelivered(err)
		}
		if err := slot.Rotate(ctx, record.Effective.KeyGrace, time.Now().UTC()); err != nil {
			return err
		}
	}
	return p.finish(ctx, slot, record)
}

// finish carries a rotation on: it issues the new key, delivers it, and ends the
// rotation when the grace is over.
func (p *Provisioner) finish(ctx context.Context, slot *keys.Slot, record *journal.Account) error {
	r := record.Rotation
	if r == nil || record.Phase != journal.Done {
		return nil
	}
	if r.Phase != journal.Done {
		if err := slot.Tend(ctx); err != nil {
			return err
		}
		r = record.Rotation
	}
	if p.deliverer != nil && (r.HandedOut.IsZero() || p.unformatted(record)) {
		if _, err := p.deliver(ctx, record, Delivery{Replaces: r.Old}); err != nil {
			return undelivered(err)
		}
		if err := slot.DeliverAgain(ctx); err != nil {
			return err
		}
	}
	if watched := p.graces.watched(record); !keys.Due(r) || watched < min(r.Grace, settle) {
		return nil
	}
	if p.deliverer != nil {
		written, err := p.deliver(ctx, record, Delivery{Replaces: r.Old})
		if written {
			err := slot.DeliverAgain(ctx)
			p.graces.watched(record)
			return err
		}
		if Undecided(err) {
			return undelivered(err)
		}
	}
	if err := slot.Tend(ctx); err != nil {
		return err
	}
	p.graces.forget(record.ID)
	return nil
}

// tending reports whether there can be something to do for an access's key.
func (p *Provisioner) tending(record *journal.Account) bool {
	rotation, grace := p.schedule(record)
	return record.Rotation != nil || record.Cut == journal.Intent || p.rotates(record) || p.unformatted(record) ||
		record.Cut == "" && (rotation != record.Effective.KeyRotation || grace != record.Effective.KeyGrace)
}

// schedule is when a key is replaced: as its class says or, if that says nothing, the
// contract's defaults as they are now.
func (p *Provisioner) schedule(record *journal.Account) (rotation, grace time.Duration) {
	terms, known := p.termsOf(record.ID.ContractID)
	if !known || record.Requested.KeyRotation > 0 {
		return record.Effective.KeyRotation, record.Effective.KeyGrace
	}
	given := map[string]string{}
	for _, name := range []string{"keyRotation", "keyGrace"} {
		if v, ok := terms.Defaults.BucketAccessClass[name]; ok {
			given[name] = v
		}
	}
	if len(given) == 0 {
		return 0, 0
	}
	class, err := params.ParseAccess(given)
	if backend, known := p.backends[record.ID.Backend]; err != nil || !known || backend.Capabilities().MaxKeysPerSlot == 1 {
		return 0, 0
	}
	return class.KeyRotation, class.KeyGrace
}

// spread is the part of a rotation's interval by which one can come early.
const spread = 10

// rotates reports whether the key of an access is to be replaced now. Keys of one
// hour do not all come at once: each is up to a tenth of the interval early, as a
// hash of its id says.
func (p *Provisioner) rotates(record *journal.Account) bool {
	every := record.Effective.KeyRotation
	if every == 0 || p.deliverer == nil || record.Phase != journal.Done || record.Rotation != nil || record.Cut != "" || ended(record) {
		return false
	}
	at := journal.PlaceOf(journal.Key{Kind: journal.Accounts, ID: record.ID.String() + "/" + record.Issued.AccessKeyID}).At
	early, _ := bits.Mul64(at, uint64(every/spread))                      //nolint:gosec // an interval is positive
	return time.Since(record.KeyIssuedAt()) >= every-time.Duration(early) //nolint:gosec // less than a tenth
}

// deliver has the record's key delivered; d says what may be overwritten.
func (p *Provisioner) deliver(ctx context.Context, record *journal.Account, d Delivery) (written bool, err error) {
	d.Access, d.Key, d.Formats = record.ID, record.Issued, record.Effective.SecretFormat
	for _, b := range record.Effective.Buckets {
		bucket, err := p.journal.Bucket(ctx, bucketIDOf(record.ID, b))
		if err != nil {
			return false, err
		}
		d.Buckets = append(d.Buckets, p.bucketOf(bucket))
	}
	written, err = p.deliverer.Deliver(ctx, d)
	if fault.Is(err, fault.FailedPrecondition) {
		err = fault.Wrap(fault.FailedPrecondition, errLeaving, "%s", err)
	}
	if err == nil && len(d.Formats) > 0 {
		record.Formatted = d.Key.AccessKeyID // the caller saves it
	}
	return written, err
}

func undelivered(err error) error {
	return fault.In(err, "its key is not renewed, and stays valid")
}

// inspectSecret compares the Secrets of an access with its key. One that is being
// deleted has no findings.
func (p *Provisioner) inspectSecret(ctx context.Context, record *journal.Account, repair bool) ([]Finding, error) {
	look, r := Delivery{}, record.Rotation
	switch {
	case p.deliverer == nil || r != nil && r.Phase != journal.Done:
		return nil, nil
	case r != nil && r.HandedOut.IsZero(): // it may have the key before, until the one after is delivered
		look.Replaces = r.Old
	}
	_, err := p.deliver(ctx, record, look)
	switch fault.KindOf(err) {
	case "", fault.FailedPrecondition, fault.PermissionDenied, fault.RateLimited: // a Secret that it may not see, or not yet, is not looked at
		return nil, nil
	case fault.Conflict:
		return []Finding{{What: secretFinding, Why: foreignIsLeft}}, nil
	case fault.Mismatch, fault.NotFound:
	default:
		return nil, err
	}
	if !repair {
		return []Finding{{What: secretFinding}}, nil
	}
	if !p.alive.has(accountKey(record.ID)) {
		return []Finding{{What: secretFinding, Why: changedIsLeft}}, nil
	}
	written, err := p.deliver(ctx, record, Delivery{Repair: true})
	if written {
		p.recorder.Repaired(secretFinding)
	}
	return []Finding{{What: secretFinding, Repaired: written && err == nil}}, err
}

// graces are those of rotations that this process watches: since when, by a clock
// that cannot be set.
type graces struct {
	mu    sync.Mutex
	since map[cosi.AccountID]grace
}

type grace struct{ of, since time.Time }

// watched is how long this process has known of the delivery of a rotated key.
func (g *graces) watched(record *journal.Account) time.Duration {
	of := record.Rotation.HandedOut
	if of.IsZero() {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.since == nil {
		g.since = map[cosi.AccountID]grace{}
	}
	if have := g.since[record.ID]; !have.of.Equal(of) {
		g.since[record.ID] = grace{of, time.Now()}
	}
	return time.Since(g.since[record.ID].since)
}

func (g *graces) clear() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.since = nil
}

func (g *graces) forget(id cosi.AccountID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.since, id)
}
