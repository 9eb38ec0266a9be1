package keys_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/memory"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/keys"
)

// bench is a slot at a service in memory, with a record that is saved each time.
type bench struct {
	*keys.Slot
	service  *memory.Service
	saved    []journal.KeyState
	repaired int
	steps    []string
	lose     string // a call whose answer is lost
	failSave bool
}

func newBench(t *testing.T, secrets memory.Secrets) *bench {
	t.Helper()
	b := &bench{service: memory.New(secrets, false)}
	line := &memory.Line{Service: b.service, Step: func(_ context.Context, name string, do func() error) error {
		err := do()
		if name == b.lose {
			return fault.New(fault.Unavailable, "no answer")
		}
		return err
	}}
	s := contract.NewService("main", "cluster", nil, line.Provider())
	if _, err := s.EnsureContract(t.Context(), contract.Spec{Name: "team"}); err != nil {
		t.Fatal(err)
	}
	b.Slot = &keys.Slot{
		Service: s, Contract: "team", Name: "ba-1", Scope: func(time.Time) *contract.Scope { return &contract.Scope{} }, Recorder: b, What: "key",
		State: &journal.KeyState{Phase: journal.Intent, Proposed: keys.Propose()},
		Save: func(context.Context) error {
			if b.failSave {
				return fault.New(fault.Unavailable, "the journal is away")
			}
			b.saved = append(b.saved, *b.State)
			return nil
		},
	}
	return b
}

func (b *bench) Repaired(string)     { b.repaired++ }
func (b *bench) Rotated(step string) { b.steps = append(b.steps, step) }

func (b *bench) issue(t *testing.T) {
	t.Helper()
	acknowledge, err := b.Issue(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	acknowledge(t.Context())
}

// holds checks which keys the service accepts, oldest first.
func (b *bench) holds(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, k := range b.service.Keys() {
		got = append(got, k.AccessKeyID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the service has %q, want %q", got, want)
	}
}

var all = []memory.Secrets{memory.Chosen, memory.Repeated, memory.Once}

// What was lost between the service and the journal is issued again: the same key
// where secrets are repeated, another one and no second one elsewhere.
func TestIssueIsRepeated(t *testing.T) {
	t.Parallel()
	for _, secrets := range all {
		for what, lose := range map[string]func(b *bench, lost bool){
			"the answer": func(b *bench, lost bool) { b.lose = map[bool]string{true: "IssueKey"}[lost] },
			"the record": func(b *bench, lost bool) { b.failSave = lost },
		} {
			b := newBench(t, secrets)
			lose(b, true)
			if _, err := b.Issue(t.Context()); !fault.Is(err, fault.Unavailable) {
				t.Errorf("%s lost: %v", what, err)
			}
			first := b.service.Keys()[0].AccessKeyID
			lose(b, false)
			if what == "the record" { // as it is read again
				*b.State = journal.KeyState{Phase: journal.Intent, Proposed: b.State.Proposed}
			}
			b.issue(t)
			b.holds(t, b.State.Issued.AccessKeyID)
			if same := first == b.State.Issued.AccessKeyID; same != (secrets != memory.Once) {
				t.Errorf("%s lost, secrets are told %s: the same key again: %v", what, secrets, same)
			}
			if b.State.Phase != journal.Done || b.State.IssuedAt.IsZero() {
				t.Errorf("state %+v", b.State)
			}
		}
	}
}

// A secret that was told for the last time and is in no journal is of no use: the
// record is changed first, and then another key takes the place of that one.
func TestSecretThatNobodyHas(t *testing.T) {
	t.Parallel()
	b := newBench(t, memory.Repeated)
	proposed := b.State.Proposed
	b.issue(t)
	lost := b.State.Issued
	*b.State = journal.KeyState{Phase: journal.Intent, Proposed: proposed} // from a backup
	b.saved = nil
	b.issue(t)
	if b.State.Issued == lost || b.State.Proposed == proposed || b.repaired != 1 || len(b.saved) != 2 || b.saved[0].Phase != journal.Intent {
		t.Errorf("state %+v, %d repairs, saved %+v", b.State, b.repaired, b.saved)
	}
	b.holds(t, b.State.Issued.AccessKeyID)
}

func TestRotation(t *testing.T) {
	t.Parallel()
	for _, secrets := range all {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, secrets)
			if err := b.Rotate(t.Context(), time.Hour, time.Time{}); !fault.Is(err, fault.FailedPrecondition) {
				t.Errorf("without a key: %v", err)
			}
			b.issue(t)
			old := b.State.Issued.AccessKeyID
			b.lose = "IssueKey"
			if err := b.Rotate(t.Context(), time.Hour, time.Time{}); !fault.Is(err, fault.Unavailable) {
				t.Errorf("with an answer lost: %v", err)
			}
			b.lose = ""
			if b.State.Issued.AccessKeyID != old {
				t.Error("the key has changed before its successor is known")
			}
			must(t, b.Tend(t.Context())) // carries on
			next := b.State.Issued.AccessKeyID
			b.holds(t, old, next)
			time.Sleep(time.Hour)
			must(t, b.Tend(t.Context())) // not delivered, so the old one stays
			b.holds(t, old, next)

			// The newest key is lost: its successor comes beside the one that an
			// application may still hold.
			must(t, b.Deliver(t.Context()))
			b.service.DropKeys("team", "ba-1")
			must(t, b.Lose(t.Context()))
			b.issue(t)
			if r := b.State.Rotation; r == nil || r.Old != old || !r.HandedOut.IsZero() {
				t.Errorf("rotation %+v, want the old key kept until the new one is delivered", r)
			}
			must(t, b.Deliver(t.Context()))
			must(t, b.Deliver(t.Context()))
			time.Sleep(time.Hour - time.Second)
			must(t, b.Tend(t.Context()))
			if b.State.Rotation == nil {
				t.Error("the grace was cut short")
			}
			time.Sleep(time.Second)
			must(t, b.Tend(t.Context()))
			if b.State.Rotation != nil {
				t.Error("the rotation does not end")
			}
			b.holds(t, b.State.Issued.AccessKeyID)
			if want := []string{keys.StepIssued, keys.StepDelivered, keys.StepDelivered, keys.StepEnded}; !slices.Equal(b.steps, want) {
				t.Errorf("steps %q, want %q", b.steps, want)
			}
		})
	}
}

// A key is put back as it was where that is possible, and revoked with all that
// the record knows of.
func TestPutBackAndRevoke(t *testing.T) {
	t.Parallel()
	for _, secrets := range all {
		b := newBench(t, secrets)
		b.issue(t)
		b.service.DropKeys("team", "ba-1")
		if held, err := b.Held(t.Context()); held || err != nil {
			t.Errorf("held %v, %v", held, err)
		}
		same, err := b.PutBack(t.Context())
		if err != nil || same != (secrets == memory.Chosen) {
			t.Errorf("secrets are told %s: put back as it was: %v, %v", secrets, same, err)
		}
		must(t, b.Revoke(t.Context()))
		b.holds(t)
	}
}

// Each change of a key has one line of the log, which names the key and holds no
// secret.
func TestAudit(t *testing.T) {
	t.Parallel()
	for _, secrets := range all {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, secrets)
			var log bytes.Buffer
			ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
			var secret []string
			step := func(event string, do func() error, keys ...*string) {
				t.Helper()
				log.Reset()
				must(t, do())
				secret = append(secret, b.State.Proposed.SecretAccessKey.Reveal(), b.State.Issued.SecretAccessKey.Reveal())
				var ids []string
				for _, k := range keys {
					ids = append(ids, fmt.Sprintf("%q", *k))
				}
				want := fmt.Sprintf(`%q logger="audit" contract="main.team" access="ba-1" keys=[%s]`, event, strings.Join(ids, ","))
				if strings.Count(log.String(), `logger="audit"`) != 1 || !strings.Contains(log.String(), want+"\n") {
					t.Errorf("the log is %s; want %s", &log, want)
				}
				for _, s := range secret {
					if s != "" && strings.Contains(log.String(), s) {
						t.Errorf("a secret is in the log: %s", &log)
					}
				}
			}
			issue := func() error { _, err := b.Issue(ctx); return err }
			current := &b.State.Issued.AccessKeyID
			step("Key issued", issue, current)
			b.service.DropKeys("team", "ba-1")
			if secrets == memory.Chosen {
				step("Key put back", func() error { _, err := b.PutBack(ctx); return err }, current)
			} else {
				must(t, b.Lose(ctx))
				step("Key issued", issue, current)
			}
			first := *current
			step("Key rotated", func() error { return b.Rotate(ctx, time.Hour, time.Time{}) }, current, &first)
			must(t, b.Deliver(ctx))
			time.Sleep(time.Hour)
			step("Key revoked", func() error { return b.Tend(ctx) }, &first)
			step("Key revoked", func() error { return b.Revoke(ctx) }, current)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestProposed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{keys.Propose().AccessKeyID: true, "ck": false, "": false, "ckABC": false, "xx" + keys.Propose().AccessKeyID[2:]: false} {
		if keys.Proposed(name) != want {
			t.Errorf("%q: %v, want %v", name, !want, want)
		}
	}
}

// A rotation that is refused leaves no second key, though an earlier try of the
// call may have made one: what the record says from then on is all that there is.
func TestRefusedRotationLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, secrets := range all {
		b := newBench(t, secrets)
		b.issue(t)
		_, err := b.Service.IssueKey(t.Context(), contract.IssueKeyRequest{
			Contract: "team", Slot: "ba-1", Scope: &contract.Scope{}, Proposed: keys.Propose(), Keep: []string{b.State.Issued.AccessKeyID},
		})
		must(t, err)
		b.service.Suspend("team", true)
		if err := b.Rotate(t.Context(), 0, time.Time{}); !fault.Is(err, fault.FailedPrecondition) || b.State.Rotation != nil {
			t.Errorf("got %v with %+v", err, b.State.Rotation)
		}
		b.holds(t, b.State.Issued.AccessKeyID)
		must(t, b.Revoke(t.Context()))
		b.holds(t)
	}
}
