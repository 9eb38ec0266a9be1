package keys

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// A key is rotated in two slots: beside the old key a new one is issued, which
// the access is answered from then on, and the old one is revoked some time
// after that. The grace does not begin when the new key is issued but when it is
// delivered, so no application loses a key whose successor it was never given.
//
// What delivers it differs. A driver that may write applications' Secrets does so
// itself (provisioner.Deliverer). The sidecar of v1alpha2 writes the Secret with each
// grant, so the answer is the delivery. That of v1alpha1 never overwrites a
// Secret, and repeats a grant whose answer is in the Secret already: there only
// the person who replaced the Secret can say so (see [Slot.Deliver]).

// The steps of a rotation, as a Recorder hears them.
const (
	// StepIssued: there is a new key, and the old one is valid beside it.
	StepIssued = "issued"
	// StepDelivered: the new key has reached the application's Secret.
	StepDelivered = "delivered"
	// StepEnded: the old key is revoked.
	StepEnded = "ended"
)

// Rotate writes the intent of a rotation, and issues the new key. Its life begins at
// since; the zero time leaves it with that of the key before. FailedPrecondition if there is no key yet, or still the one before its last
// rotation; see [Slot.Tend] for one that was begun.
func (s *Slot) Rotate(ctx context.Context, grace time.Duration, since time.Time) error {
	k := s.State
	switch {
	case k.Phase != journal.Done:
		return fault.New(fault.FailedPrecondition, "it has no key yet; it is granted first")
	case s.Service.Capabilities().MaxKeysPerSlot == 1:
		return fault.New(fault.FailedPrecondition, "backend %s holds one key for each access; make a second BucketAccess instead", s.Service.Name())
	case k.Rotation == nil:
		if since.IsZero() {
			since = k.Since
		}
		k.Rotation = &journal.Rotation{Phase: journal.Intent, Grace: grace, Since: since}
		if err := s.propose(ctx, &k.Rotation.Proposed); err != nil {
			return err
		}
		s.Fresh = true
		return s.issueNext(ctx)
	case k.Rotation.HandedOut.IsZero():
		return fault.New(fault.FailedPrecondition, "it still has the key before its last rotation, because the new one is not delivered yet; when the application's Secret has it, say rotate --delivered")
	}
	return fault.New(fault.FailedPrecondition, "it still has the key before its last rotation, which is revoked when its grace ends; rotate it after that")
}

// Tend carries on a rotation that was interrupted, and ends one whose grace is
// over.
func (s *Slot) Tend(ctx context.Context) error {
	r := s.State.Rotation
	switch {
	case r == nil || s.State.Phase != journal.Done:
		return nil
	case r.Phase != journal.Done:
		return s.issueNext(ctx)
	case !Due(r):
		return nil
	}
	if err := s.revoke(ctx, r.Old); err != nil {
		return err
	}
	s.State.Rotation = nil
	if err := s.Save(ctx); err != nil {
		return err
	}
	s.Recorder.Rotated(StepEnded)
	return nil
}

// Due reports whether the key before a rotation is to be revoked.
func Due(r *journal.Rotation) bool {
	return r.Phase == journal.Done && !r.HandedOut.IsZero() && time.Since(r.HandedOut) >= r.Grace
}

// issueNext asks for the key of a rotation's intent, beside the one there is.
func (s *Slot) issueNext(ctx context.Context) error {
	acknowledge, err := s.Issue(ctx)
	if err != nil {
		// An earlier try of the call that is refused may have been done before its
		// answer was lost.
		if !Refused(err) || s.tidy(ctx) != nil {
			return err
		}
		s.State.Rotation = nil // there is no second key to be had
		return errors.Join(err, s.Save(ctx))
	}
	acknowledge(ctx)
	s.Recorder.Rotated(StepIssued)
	return nil
}

// tidy revokes what the slot holds beside the keys of the record.
func (s *Slot) tidy(ctx context.Context) error {
	have, err := s.Service.ListKeys(ctx, s.Contract, s.Name)
	for _, k := range have {
		known := k.AccessKeyID == s.State.Issued.AccessKeyID || s.State.Rotation != nil && k.AccessKeyID == s.State.Rotation.Old
		if err == nil && !known {
			err = s.revoke(ctx, k.AccessKeyID)
		}
	}
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// Deliver records that a rotated key is in the application's Secret, from when on
// the old key's grace runs. If that cannot be written the old key lives longer,
// which harms no one.
func (s *Slot) Deliver(ctx context.Context) error {
	if r := s.State.Rotation; r == nil || !r.HandedOut.IsZero() {
		return nil
	}
	return s.DeliverAgain(ctx)
}

// DeliverAgain is Deliver for a key that had to be written into the Secret once
// more: the grace begins again.
func (s *Slot) DeliverAgain(ctx context.Context) error {
	r := s.State.Rotation
	if r == nil || r.Phase != journal.Done || s.State.Phase != journal.Done {
		return nil
	}
	r.HandedOut = time.Now().UTC()
	if err := s.Save(ctx); err != nil {
		return err
	}
	s.Recorder.Rotated(StepDelivered)
	klog.FromContext(ctx).Info("A rotated key is delivered; the one before is revoked when its grace ends", "contract", s.Contract, "slot", s.Name)
	return nil
}

// Refused reports whether an error is the service's word that there is no key to
// be had, as opposed to an outcome that is open.
func Refused(err error) bool {
	switch fault.KindOf(err) {
	case "", fault.Unavailable, fault.RateLimited, fault.Pending, fault.Canceled, fault.Internal, fault.Mismatch:
		return false
	}
	return true
}
