package secrets_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/journaltest"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/secrets"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/test/kubefake"
	"github.com/contract-cosi/contract-cosi-driver/test/poll"
)

const owner = "cluster-1"

func open(t testing.TB, s *kubefake.Server, owner string) *secrets.Store {
	t.Helper()
	store, err := secrets.OpenAt(t.Context(), s.Config(), secrets.Config{Namespace: kubefake.Namespace, Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func bucketID(n int) cosi.BucketID { return bucketOf(fmt.Sprintf("bucket-%d", n)) }

func bucketOf(name string) cosi.BucketID {
	return cosi.BucketID{ContractID: cosi.ContractID{Backend: "main", Contract: "team-a"}, Bucket: name}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for what a watch brings.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	poll.Until(t, what, is)
}

func TestStore(t *testing.T) {
	run := func(t *testing.T, prepare func(*kubefake.Server)) {
		journaltest.Run(t, func(t *testing.T) func() (journal.Store, error) {
			s := kubefake.Start(t)
			prepare(s)
			return func() (journal.Store, error) {
				return secrets.OpenAt(t.Context(), s.Config(), secrets.Config{Namespace: kubefake.Namespace, Owner: owner})
			}
		})
		shared(t, func(t *testing.T) func() *journal.Journal {
			s := kubefake.Start(t)
			prepare(s)
			return func() *journal.Journal { return journal.New(open(t, s, owner)) }
		})
	}
	t.Run("healthy", func(t *testing.T) { run(t, func(*kubefake.Server) {}) })
	// Every fifth write is done and its answer lost; every seventh call finds no server.
	t.Run("lost answers", func(t *testing.T) {
		run(t, func(s *kubefake.Server) {
			writes, calls := 0, 0
			s.Inject(func(verb, _ string) kubefake.Fault {
				if calls++; verb != "watch" && calls%7 == 0 {
					return kubefake.Fault{Drop: true}
				}
				if verb == "create" || verb == "update" || verb == "delete" {
					if writes++; writes%5 == 0 {
						return kubefake.Fault{DropAnswer: true}
					}
				}
				return kubefake.Fault{}
			})
		})
	})
	// The watch is cut, and what it missed forgotten, every few milliseconds.
	t.Run("broken watches", func(t *testing.T) {
		run(t, func(s *kubefake.Server) {
			stop := make(chan struct{})
			t.Cleanup(func() { close(stop) })
			go func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					case <-time.After(20 * time.Millisecond):
					}
					if i%3 == 0 {
						s.Forget()
					} else {
						s.CutWatches()
					}
				}
			}()
		})
	})
}

// What is written is a typed Secret that can be found by its labels, and has a
// secret nowhere but in its data.
func TestSecretOfARecord(t *testing.T) {
	s := kubefake.Start(t)
	j := journal.New(open(t, s, owner))
	id := cosi.AccountID{ContractID: bucketID(1).ContractID, Account: "ba-1"}
	must(t, j.SaveAccount(t.Context(), &journal.Account{ID: id, KeyState: journal.KeyState{Issued: secret.KeyPair{AccessKeyID: "key", SecretAccessKey: secret.New("planted-secret")}}}))
	all := s.Secrets()
	if len(all) != 1 {
		t.Fatalf("%d Secrets", len(all))
	}
	got := all[0]
	if got.Type != "contract-cosi-driver/journal" || got.Labels["contract-cosi-driver/kind"] != "account" || got.Annotations["contract-cosi-driver/owner"] != owner {
		t.Errorf("type %s, labels %v, annotations %v", got.Type, got.Labels, got.Annotations)
	}
	if !strings.Contains(got.Name, id.String()) {
		t.Errorf("its name %s does not show the id", got.Name)
	}
	if !strings.Contains(string(got.Data["record.json"]), "planted-secret") || strings.Contains(fmt.Sprint(got.ObjectMeta), "planted-secret") {
		t.Error("the secret is not where it belongs")
	}
}

func TestOwnersDoNotSeeEachOther(t *testing.T) {
	s := kubefake.Start(t)
	one, two := journal.New(open(t, s, "cluster-1")), journal.New(open(t, s, "cluster-2"))
	must(t, one.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(1)}))
	if _, err := two.Bucket(t.Context(), bucketID(1)); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
	must(t, two.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(1)}))
	if n := len(s.Secrets()); n != 2 {
		t.Errorf("%d Secrets", n)
	}
}

// Until the first list has come nothing is NotFound, and an outage later does
// not change what is known.
func TestOutage(t *testing.T) {
	s := kubefake.Start(t)
	s.Down()
	store := open(t, s, owner)
	j := journal.New(store)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := j.Bucket(ctx, bucketID(1)); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a read before the first list: %v", err)
	}
	if _, err := j.Count(t.Context(), journal.Buckets); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a count before the first list: %v", err)
	}
	if err := j.Check(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("check before the first list: %v", err)
	}
	s.Inject(nil)
	if _, err := j.Bucket(t.Context(), bucketID(1)); !fault.Is(err, fault.NotFound) {
		t.Errorf("a read that waits for the first list: %v", err)
	}
	must(t, j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(1)}))
	must(t, j.Check(t.Context()))

	s.Down()
	_, err := j.Bucket(t.Context(), bucketID(1))
	must(t, err)
	err = j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(2)})
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "journal record bucket/main.team-a.bucket-2: the Kubernetes API server cannot be reached (connection closed)") {
		t.Errorf("a write in an outage: %v", err)
	}
	if err := j.Check(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("check after a failed write: %v", err)
	}
	s.Inject(nil)
	must(t, j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(2)}))
	must(t, j.Check(t.Context()))
	// The watch comes back by itself.
	must(t, journal.New(open(t, s, owner)).SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(3)}))
	eventually(t, "another driver's write", func() bool {
		_, err := j.Bucket(t.Context(), bucketID(3))
		return err == nil
	})
}

// A watch that lags does not hide a process's own writes, and Reload does not
// need it.
func TestSlowWatch(t *testing.T) {
	s := kubefake.Start(t)
	store := open(t, s, owner)
	j, other := journal.New(store), journal.New(open(t, s, owner))
	must(t, other.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(0)}))
	must(t, store.Reload(t.Context()))
	s.HoldWatches(true)
	b := &journal.Bucket{ID: bucketID(1)}
	for range 3 {
		must(t, j.SaveBucket(t.Context(), b))
		b.Adopted = !b.Adopted
		must(t, j.SaveBucket(t.Context(), b))
		if got, err := j.Bucket(t.Context(), b.ID); err != nil || got.Adopted != b.Adopted {
			t.Fatalf("its own write: %v", err)
		}
		must(t, j.Delete(t.Context(), b))
		if _, err := j.Bucket(t.Context(), b.ID); !fault.Is(err, fault.NotFound) {
			t.Fatalf("its own deletion: %v", err)
		}
		b = &journal.Bucket{ID: bucketID(1)}
	}
	must(t, other.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(2)}))
	must(t, j.SaveBucket(t.Context(), b))
	must(t, store.Reload(t.Context()))
	if used, err := j.Bucket(t.Context(), bucketID(2)); err != nil {
		t.Errorf("%v, %v", used, err)
	}
	must(t, j.Delete(t.Context(), b))
	s.HoldWatches(false) // what was held back must not bring anything to life again
	must(t, other.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(3)}))
	eventually(t, "what the watch brings last", func() bool { _, err := j.Bucket(t.Context(), bucketID(3)); return err == nil })
	if _, err := j.Bucket(t.Context(), b.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("after the watch has caught up: %v", err)
	}
	if n, err := j.Count(t.Context(), journal.Buckets); n != 3 || err != nil {
		t.Errorf("%d buckets, %v", n, err)
	}
}

// Each answer of the API server means one thing to the journal, in a text that
// says what to do.
func TestRefusals(t *testing.T) {
	group := schema.GroupResource{Resource: "secrets"}
	quota := apierrors.NewForbidden(group, "x", fmt.Errorf("exceeded quota: secrets"))
	terminating := apierrors.NewForbidden(group, "x", fmt.Errorf("being terminated"))
	terminating.ErrStatus.Details.Causes = append(terminating.ErrStatus.Details.Causes, terminatingCause())
	for name, c := range map[string]struct {
		answer *apierrors.StatusError
		kind   fault.Kind
		text   string
		calls  int
	}{
		"no permission": {apierrors.NewForbidden(group, "x", fmt.Errorf("RBAC")), fault.PermissionDenied, "does not let the driver create Secrets in namespace " + kubefake.Namespace + "; its Role needs get, list, watch, create, update and delete on secrets", 1},
		"quota":         {quota, fault.LimitExceeded, "no quota left", 1},
		"terminating":   {terminating, fault.FailedPrecondition, "is deleting namespace", 1},
		"no namespace":  {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "x"), fault.FailedPrecondition, "has no namespace " + kubefake.Namespace, 1},
		"credentials":   {apierrors.NewUnauthorized("x"), fault.PermissionDenied, "does not accept the driver's credentials", 1},
		"busy":          {apierrors.NewTooManyRequests("x", 1), fault.RateLimited, "asks for fewer calls", 5},
		"very busy":     {apierrors.NewTooManyRequests("x", 60), fault.RateLimited, "asks for fewer calls", 1},
		"too large":     {apierrors.NewRequestEntityTooLargeError("x"), fault.Internal, "too large", 1},
		"trouble":       {apierrors.NewInternalError(fmt.Errorf("etcd")), fault.Unavailable, "is in trouble (HTTP 500)", 5},
		"no leader":     {apierrors.NewServerTimeout(group, "create", 0), fault.Unavailable, "is in trouble (HTTP 500)", 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := kubefake.Start(t)
			j := journal.New(open(t, s, owner))
			if _, err := j.Bucket(t.Context(), bucketID(1)); !fault.Is(err, fault.NotFound) {
				t.Fatal(err)
			}
			s.Calls()
			s.Inject(func(verb, _ string) kubefake.Fault {
				if verb == "create" {
					return kubefake.Fault{Refuse: c.answer}
				}
				return kubefake.Fault{}
			})
			heard := c.kind
			if c.calls == 1 && !slices.Contains([]fault.Kind{fault.RateLimited, fault.Internal}, c.kind) {
				heard = fault.Unavailable // nothing may be taken for a storage service's refusal
			}
			err := j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(1)})
			if !fault.Is(err, heard) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %s: %v", fault.KindOf(err), err)
			}
			if n := s.Calls()["create"]; n != c.calls {
				t.Errorf("%d calls, want %d", n, c.calls)
			}
			if err := j.Check(t.Context()); !fault.Is(err, c.kind) {
				t.Errorf("check says %v", err)
			}
			s.Inject(nil)
			must(t, j.Check(t.Context()))
		})
	}
}

// What was spoilt is never taken for "there is no record": a new key would be
// given in place of one that an application holds.
func TestDamagedSecret(t *testing.T) {
	for name, edit := range map[string]func(*corev1.Secret){
		"no data":       func(s *corev1.Secret) { s.Data = nil },
		"no label":      func(s *corev1.Secret) { s.Labels = nil },
		"no annotation": func(s *corev1.Secret) { s.Annotations = nil },
		"not JSON":      func(s *corev1.Secret) { s.Data = map[string][]byte{"record.json": []byte("{")} },
		"another's record": func(s *corev1.Secret) {
			s.Data = map[string][]byte{"record.json": []byte(`{"key":{"kind":"bucket","id":"main.team-a.other"},"value":{}}`)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, id := range []cosi.BucketID{bucketID(1), bucketOf("a.-b")} { // whose Secret's name holds a hash
				s := kubefake.Start(t)
				follower := journal.New(open(t, s, owner))
				writer := journal.New(open(t, s, owner))
				b := &journal.Bucket{ID: id}
				must(t, writer.SaveBucket(t.Context(), b))
				must(t, writer.SaveBucket(t.Context(), &journal.Bucket{ID: bucketOf("other")}))
				eventually(t, "the record", func() bool { _, err := follower.Bucket(t.Context(), id); return err == nil })
				secret := s.Secrets()[0]
				s.Edit(secret.Name, edit)
				store := open(t, s, owner)
				j := journal.New(store)
				if name != "no label" { // by which it is found
					if _, err := j.Bucket(t.Context(), id); !fault.Is(err, fault.Internal) {
						t.Errorf("%s: a read after a start: %v", id, err)
					}
					if _, err := journal.Export(t.Context(), store, owner, io.Discard); !fault.Is(err, fault.Internal) || !strings.Contains(err.Error(), secret.Name) {
						t.Errorf("%s: an export: %v", id, err)
					}
				}
				for _, j := range []*journal.Journal{j, follower} {
					err := j.SaveBucket(t.Context(), &journal.Bucket{ID: id})
					if !fault.Is(err, fault.Internal) || !strings.Contains(err.Error(), "is not a journal record of this driver") {
						t.Errorf("%s: a write over it: %v", id, err)
					}
				}
				// It is restored from a backup.
				s.Edit(secret.Name, func(s *corev1.Secret) {
					s.Data, s.Labels, s.Annotations = secret.Data, secret.Labels, secret.Annotations
				})
				eventually(t, "the restored record", func() bool {
					n, err := journal.Export(t.Context(), store, owner, io.Discard)
					return err == nil && n == 2
				})
				if n, err := j.Count(t.Context(), journal.Buckets); n != 2 || err != nil {
					t.Errorf("%s: %d buckets (%v), want 2", id, n, err)
				}
			}
		})
	}
}

// A copy of a record's Secret under another name is not that record.
func TestCopiedSecret(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"copy", "bucket.main.team-a.bucket-1.copy", "bucket.main.team-a.bucket-2.4afb32cc10"} {
		s := kubefake.Start(t)
		j := journal.New(open(t, s, owner))
		must(t, j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(1)}))
		copied := *s.Secrets()[0].DeepCopy()
		copied.Name = name
		s.Add(copied)
		store := open(t, s, owner)
		j = journal.New(store)
		if b, err := j.Bucket(t.Context(), bucketID(1)); err != nil {
			t.Errorf("%s: the record itself: %v", name, err)
		} else if err := j.SaveBucket(t.Context(), b); err != nil {
			t.Errorf("%s: the record itself: %v", name, err)
		}
		if _, err := j.Bucket(t.Context(), bucketID(2)); strings.Contains(name, "bucket-2") != fault.Is(err, fault.Internal) {
			t.Errorf("%s: the record that it would be: %v", name, err)
		}
		if _, err := journal.Export(t.Context(), store, owner, io.Discard); !fault.Is(err, fault.Internal) || !strings.Contains(err.Error(), "/"+name+" is not a journal record") {
			t.Errorf("%s: an export: %v", name, err)
		}
	}
}

// Records come in pages, once; nothing after that costs a list.
func TestManyRecords(t *testing.T) {
	const n = 1503
	s := kubefake.Start(t)
	filler := journal.New(open(t, s, owner))
	for i := range n {
		must(t, filler.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(i)}))
	}
	s.Calls()
	j := journal.New(open(t, s, owner))
	eventually(t, "the watch", func() bool { return j.Check(t.Context()) == nil })
	for i := range n {
		if _, err := j.Bucket(t.Context(), bucketID(i)); err != nil {
			t.Fatal(err)
		}
	}
	calls := s.Calls()
	if calls["list"] != 2 || calls["get"] != 0 {
		t.Errorf("calls: %v", calls)
	}
}

// A process that takes over waits until the watch has brought what was written before,
// and reads nothing again. What an earlier one has left of it does not matter twice.
func TestReload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubefake.StartPiped(t)
		store := open(t, s, owner)
		j, other := journal.New(store), journal.New(open(t, s, owner))
		must(t, other.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(0)}))
		synctest.Wait()
		s.HoldWatches(true)
		must(t, other.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(1)}))
		s.Calls()
		done := make(chan error, 1)
		go func() { done <- store.Reload(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Errorf("Reload ended before the watch had caught up: %v", err)
		default:
			s.HoldWatches(false)
			must(t, <-done)
		}
		if n, err := j.Count(t.Context(), journal.Buckets); n != 2 || err != nil {
			t.Errorf("%d buckets, %v", n, err)
		}
		if calls := s.Calls(); calls["list"] != 0 || len(s.Secrets()) != 2 {
			t.Errorf("calls: %v; %d Secrets", calls, len(s.Secrets()))
		}
		s.Inject(func(verb, _ string) kubefake.Fault { return kubefake.Fault{Drop: verb == "delete"} })
		must(t, store.Reload(t.Context()))
		if n := len(s.Secrets()); n != 3 {
			t.Errorf("%d Secrets where nothing can be deleted", n)
		}
		if n, err := journal.Export(t.Context(), open(t, s, owner), owner, io.Discard); n != 2 || err != nil {
			t.Errorf("%d records, %v", n, err)
		}
		s.Inject(nil)
		must(t, store.Reload(t.Context()))
		if n := len(s.Secrets()); n != 2 {
			t.Errorf("%d Secrets after that", n)
		}
	})
}

// A first list that is slow is waited for as long as its pages come.
func TestSlowList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubefake.StartPiped(t)
		filler := journal.New(open(t, s, owner))
		for i := range 1503 {
			must(t, filler.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(i)}))
		}
		slow := s.Config()
		slow.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				<-time.After(4 * time.Second)
				return next.RoundTrip(r)
			})
		})
		store, err := secrets.OpenAt(t.Context(), slow, secrets.Config{Namespace: kubefake.Namespace, Owner: owner})
		must(t, err)
		defer func() { _ = store.Close() }()
		if _, err := journal.New(store).Bucket(t.Context(), bucketID(1502)); err != nil {
			t.Error(err)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (do roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return do(r) }

// A cluster can be restored from a backup. What is known from after it was
// taken does not hold then.
func TestRestoredCluster(t *testing.T) {
	s := kubefake.Start(t)
	store := open(t, s, owner)
	j := journal.New(store)
	must(t, j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(1)}))
	restore := s.Backup()
	b, err := j.Bucket(t.Context(), bucketID(1))
	must(t, err)
	must(t, j.Delete(t.Context(), b))
	for i := range 5 {
		last := &journal.Bucket{ID: bucketID(10 + i)}
		must(t, j.SaveBucket(t.Context(), last))
		must(t, store.Reload(t.Context()))
	}
	restore()
	eventually(t, "what the backup held", func() bool {
		_, err := j.Bucket(t.Context(), bucketID(1))
		return err == nil
	})
	if n, err := j.Count(t.Context(), journal.Buckets); n != 1 || err != nil {
		t.Errorf("%d buckets, %v", n, err)
	}
}

func terminatingCause() metav1.StatusCause {
	return metav1.StatusCause{Type: corev1.NamespaceTerminatingCause}
}
