// Package keys is the one machine that every key of the driver goes through: the
// keys of accesses, the contracts' own keys, and their successors when a key is
// rotated or lost.
//
//	propose  a random pair is written to the journal
//	issue    the service is asked for the key, with that proposal
//	record   what it answered is written to the journal
//	acknowledge  the service is told that the secret is safe
//
// Each step can be lost, with its answer or with the process, and is then
// repeated from the journal. A record is changed before its key is: what the
// service does follows from what the journal says, never the other way round.
// A repeat of the same proposal returns the same key where the service repeats
// secrets. Elsewhere the answer that was lost is an orphan in the key's slot,
// which the next issue removes, because afterwards the slot holds exactly what
// the record says.
package keys

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Propose returns a random pair. Its id is a DNS label that no other will have.
func Propose() secret.KeyPair {
	return secret.KeyPair{
		AccessKeyID:     "ck" + strings.ToLower(rand.Text()),
		SecretAccessKey: secret.New(rand.Text() + rand.Text()),
	}
}

// Proposed reports whether a name can be one of Propose's.
func Proposed(name string) bool {
	rest, ok := strings.CutPrefix(name, "ck")
	return ok && len(rest) == len(rand.Text()) && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// Recorder hears what became of keys.
type Recorder interface {
	// Repaired hears of a key that was lost and is issued again.
	Repaired(what string)
	// Rotated is told of each step of a rotation.
	Rotated(step string)
}

// Slot is one key with its place at the service and its record. The holder of a
// Slot holds the lock on its record.
type Slot struct {
	// Service has the key, in this contract and slot.
	Service        *contract.Service
	Contract, Name string
	// Scope is what limits a key whose life began at a time; nil for the contract's
	// own key.
	Scope func(since time.Time) *contract.Scope
	// State is the part of the record that the machine moves, and Save writes the
	// record.
	State *journal.KeyState
	Save  func(context.Context) error
	// Fresh says that this call has written the first proposal since the slot held
	// what its record says, so nothing was asked of the service for it yet.
	Fresh bool
	// What names the key in metrics.
	What     string
	Recorder Recorder
}

// Audit writes the one line of the log that a key's change has, whatever the log's
// level: of the key of an access, or of a contract's own, by their ids alone. The
// lines have the logger's name "audit".
func Audit(ctx context.Context, event string, contract cosi.ContractID, slot string, keys ...string) {
	shown := make([]string, len(keys))
	for i, k := range keys { // an id is what a service said
		shown[i] = fault.Said(k)
	}
	klog.LoggerWithName(klog.FromContext(ctx), "audit").Info(event, "contract", contract.String(), "access", fault.Said(slot), "keys", shown)
}

func (s *Slot) audit(ctx context.Context, event string, keys ...string) {
	Audit(ctx, event, cosi.ContractID{Backend: s.Service.Name(), Contract: s.Contract}, s.Name, keys...)
}

// acknowledgeTimeout bounds what is told to a service after all is done.
const acknowledgeTimeout = 5 * time.Second

// Issue carries an intent on until its key is recorded: that of the key itself,
// or that of its rotation. Without an intent it does nothing. It returns what
// tells the service that the secret is safe, for the caller to call when there is
// time.
func (s *Slot) Issue(ctx context.Context) (acknowledge func(context.Context), err error) {
	const asks = 2 // the second after a secret was told and lost
	for try := 1; ; try++ {
		next, keep := s.next()
		if next == nil {
			return func(context.Context) {}, nil
		}
		asked, rotating, since := *next, s.State.Phase == journal.Done, s.State.Since
		if rotating {
			since = s.State.Rotation.Since
		}
		pair, err := s.Service.IssueKey(ctx, contract.IssueKeyRequest{Contract: s.Contract, Slot: s.Name, Scope: s.scope(since), Proposed: asked, Keep: keep, Exact: s.Fresh})
		s.Fresh = false
		switch {
		case err == nil:
			s.take(pair, asked)
			if err := s.Save(ctx); err != nil {
				return nil, err
			}
			if rotating {
				s.audit(ctx, "Key rotated", pair.AccessKeyID, s.State.Rotation.Old)
			} else {
				s.audit(ctx, "Key issued", pair.AccessKeyID)
			}
			return func(ctx context.Context) { s.acknowledge(ctx, asked) }, nil
		case !fault.Is(err, fault.Mismatch):
			return nil, err
		case try == asks:
			return nil, fault.As(fault.Unavailable, err) // told and lost once more: the next call tries again
		}
		// The service has told this secret for the last time, and it is not in the
		// journal. No one can use that key: another is asked for, which removes it.
		if err := s.propose(ctx, next); err != nil {
			return nil, err
		}
		s.Recorder.Repaired(s.What)
		klog.FromContext(ctx).Info("The secret of a key was lost before it was recorded; issuing another key", "what", s.What, "contract", s.Contract, "slot", s.Name)
	}
}

func (s *Slot) scope(since time.Time) *contract.Scope {
	if s.Scope == nil {
		return nil
	}
	return s.Scope(since)
}

func (s *Slot) propose(ctx context.Context, next *secret.KeyPair) error {
	*next = Propose()
	return s.Save(ctx)
}

// next is the proposal that waits to be issued, with the keys that stay beside
// it; nil if none waits.
func (s *Slot) next() (proposed *secret.KeyPair, keep []string) {
	rotation := s.State.Rotation
	switch {
	case s.State.Phase != journal.Done && rotation != nil:
		return &s.State.Proposed, []string{rotation.Old}
	case s.State.Phase != journal.Done:
		return &s.State.Proposed, nil
	case rotation != nil && rotation.Phase != journal.Done:
		return &rotation.Proposed, []string{s.State.Issued.AccessKeyID}
	}
	return nil, nil
}

// take records the key that was issued.
func (s *Slot) take(pair, asked secret.KeyPair) {
	k, now := s.State, time.Now().UTC()
	if r := k.Rotation; r != nil && k.Phase == journal.Done { // else it is a lost key's successor
		k.Since, k.Rotation = r.Since, &journal.Rotation{Phase: journal.Done, Old: k.Issued.AccessKeyID, Grace: r.Grace}
	}
	k.Phase, k.Proposed, k.Issued, k.IssuedAt = journal.Done, asked, pair, now
}

func (s *Slot) acknowledge(ctx context.Context, asked secret.KeyPair) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), acknowledgeTimeout)
	defer cancel()
	if err := s.Service.AcknowledgeKey(ctx, s.Contract, asked); err != nil { // it keeps the secret for a repeat that never comes
		klog.FromContext(ctx).V(2).Info("The service was not told that a key is safe", "contract", s.Contract, "err", err)
	}
}

// Held reports whether the service still has the key. NotFound if it does not
// have the contract.
func (s *Slot) Held(ctx context.Context) (bool, error) {
	return s.Service.HoldsKey(ctx, s.Contract, s.Name, s.scope(s.State.Since), s.State.Issued)
}

// Lose turns the record of a key that the service does not have into an intent
// for another. The key before a rotation stays: an application may still hold it.
func (s *Slot) Lose(ctx context.Context) error {
	k := s.State
	k.Phase, k.Issued = journal.Intent, secret.KeyPair{}
	if r := k.Rotation; r != nil && r.Phase != journal.Done {
		k.Rotation = nil
	} else if r != nil {
		r.HandedOut = time.Time{}
	}
	if err := s.propose(ctx, &k.Proposed); err != nil {
		return err
	}
	s.Recorder.Repaired(s.What)
	klog.FromContext(ctx).Info("The service no longer has a key; issuing another", "what", s.What, "contract", s.Contract, "slot", s.Name)
	return nil
}

// PutBack gives the service a key again that it has lost, with the secret that
// the application holds: only for a service that takes the keys it is given.
func (s *Slot) PutBack(ctx context.Context) (same bool, err error) {
	var keep []string
	if r := s.State.Rotation; r != nil && r.Phase == journal.Done {
		keep = append(keep, r.Old)
	}
	pair, err := s.Service.IssueKey(ctx, contract.IssueKeyRequest{Contract: s.Contract, Slot: s.Name, Scope: s.scope(s.State.Since), Proposed: s.State.Proposed, Keep: keep})
	same = err == nil && pair == s.State.Issued
	switch {
	case same:
		s.audit(ctx, "Key put back", pair.AccessKeyID)
	case err == nil:
		err = s.tidy(ctx)
	}
	return same, err
}

// Revoke takes every key of the slot away, with its principal.
func (s *Slot) Revoke(ctx context.Context) error { return s.revoke(ctx, "") }

func (s *Slot) revoke(ctx context.Context, accessKeyID string) error {
	req := contract.RevokeKeyRequest{Contract: s.Contract, Slot: s.Name, AccessKeyID: accessKeyID, Scope: s.scope(s.State.Since)}
	known := func(id string) {
		if id != "" {
			req.Known = append(req.Known, id)
		}
	}
	known(s.State.Issued.AccessKeyID)
	if r := s.State.Rotation; r != nil {
		known(r.Old)
	}
	req.Exact = accessKeyID == "" || slices.Contains(req.Known, accessKeyID)
	issued := req.Known
	if accessKeyID != "" {
		issued = []string{accessKeyID}
	}
	if next, _ := s.next(); next != nil {
		known(next.AccessKeyID)
		req.Exact = false
	}
	err := s.Service.RevokeKey(ctx, req)
	if err == nil && len(issued) > 0 {
		s.audit(ctx, "Key revoked", issued...)
	}
	return err
}
