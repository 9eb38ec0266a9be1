// Package secrets keeps the journal in Kubernetes Secrets, one for each record,
// all in one namespace: a driver that moves to another node needs no volume,
// and whoever backs the cluster up backs the journal up.
//
// # Writes
//
// The API server is the referee between two live drivers. A record's name is a
// pure function of its key, so of two that create it one is refused; a change
// or a deletion carries the resourceVersion that was read, so it is refused if
// another came first. Every write carries a random mark of its own: a writer
// whose answer was lost repeats the call, and if that is refused it looks
// whether what stands there is its own.
//
// Nothing slows the driver down but the server, whose priority and fairness
// are made for it. A server that is away, or asks to be left alone, is asked a
// few times more and then reported as Unavailable or RateLimited.
//
// # Reads
//
// Reads cost no call. A watch brings every write in the namespace, and what
// this process writes is in its memory before the write returns. What another
// driver writes is known some milliseconds later, or when the API server is
// back, and until then a read may be behind. Three things make that harmless:
//
//   - A write that rests on what is outdated is refused with Mismatch, and
//     before Mismatch is returned the record is read from the server, so that
//     the caller's next read sees what has beaten it.
//   - Where "there is none" would end a matter for good, the caller uses
//     Refresh, a single GET.
//   - Where a caller has to know what another has written before it, it uses
//     Sync. resourceVersions are one sequence for all Secrets, and the watch
//     brings them in that order: once a driver's own write has come back to
//     it, it knows all that was written before. That costs no call either.
//
// As long as the first list has not come, reads answer Unavailable, never
// NotFound.
package secrets

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
)

// Config says where a Store is.
type Config struct {
	// Namespace holds the Secrets.
	Namespace string
	// Owner is the driver's mark. Drivers with different marks do not see each
	// other's records.
	Owner string
	// Wrote, which may be nil, hears of every durable write with the outcome.
	Wrote func(operation string, err error)
	// Called, which may be nil, hears of every call tried at the API server.
	Called func(call string, err error)
}

// Store is a journal.Store in Secrets.
type Store struct {
	Config
	client client
	cache  *cache
	stop   context.CancelFunc
	done   chan struct{}

	listing sync.Mutex // one list at a time is enough

	mu       sync.Mutex
	lost     error     // why there is no watch; nil while there is one
	since    time.Time // since when
	unproven bool      // whether the server takes writes has to be tried
}

const (
	// startup is how long a read waits for the first list.
	startup = 5 * time.Second
	// behind is how long Sync waits for the watch before it lists.
	behind = 500 * time.Millisecond
	// tolerated is how long the watch may be broken before Check says so.
	tolerated = 10 * time.Second
	// slowest is the longest pause between two attempts to watch.
	slowest = 5 * time.Second
	// watchLength bounds a single watch; the next goes on where it ended.
	watchLength = 5 * time.Minute
)

// Open begins to follow the records in a namespace, in the cluster that
// kubeconfig names or, without one, that the pod is in. It does not wait for
// the API server: until that answers, reads and writes are Unavailable.
func Open(ctx context.Context, kubeconfig string, c Config) (*Store, error) {
	at, err := kube.Connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	return OpenAt(ctx, at, c)
}

// OpenAt is Open for a known API server.
func OpenAt(ctx context.Context, at *rest.Config, c Config) (*Store, error) {
	nobody := func(string, error) {}
	if c.Wrote == nil {
		c.Wrote = nobody
	}
	if c.Called == nil {
		c.Called = nobody
	}
	client, err := newClient(at, c.Namespace, c.Called)
	if err != nil {
		return nil, err
	}
	s := &Store{
		Config: c, client: client, cache: newCache(), done: make(chan struct{}), unproven: true, since: time.Now(),
		lost: fault.New(fault.Unavailable, "the Kubernetes API server has not answered yet"),
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(s.done)
		s.follow(ctx)
	}()
	return s, nil
}

// Close ends the watch.
func (s *Store) Close() error {
	s.stop()
	<-s.done
	return nil
}

// Get implements journal.Store.
func (s *Store) Get(ctx context.Context, key journal.Key) (journal.Entry, error) {
	if err := s.ready(ctx); err != nil {
		return journal.Entry{}, err
	}
	r, ok := s.cache.get(nameOf(s.Owner, key))
	if !ok {
		return journal.Entry{}, fault.New(fault.NotFound, "journal has no record %s", key)
	}
	return r.Entry, r.damage
}

// Dependents implements journal.Store.
func (s *Store) Dependents(ctx context.Context, key journal.Key, limit int) ([]journal.Entry, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.cache.dependentsOf(key, limit), nil
}

// Count implements journal.Store. It does not wait.
func (s *Store) Count(_ context.Context, kind journal.RecordKind) (int, error) {
	select {
	case <-s.cache.filled:
		return s.cache.count(kind), nil
	default:
		return 0, s.unread()
	}
}

// Walk implements journal.Store.
func (s *Store) Walk(ctx context.Context, after journal.Place, limit int) ([]journal.Place, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.cache.walk(after, limit), nil
}

// All implements journal.Store.
func (s *Store) All(ctx context.Context) ([]journal.Entry, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.cache.all()
}

// Refresh implements journal.Store: one GET.
func (s *Store) Refresh(ctx context.Context, key journal.Key) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	_, err := s.read(ctx, key)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// Sync implements journal.Store: it waits until the watch has brought this
// process's own last write of key, and should it be slow, lists.
func (s *Store) Sync(ctx context.Context, key journal.Key) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	name := nameOf(s.Owner, key)
	slow := time.NewTimer(behind)
	defer slow.Stop()
	for {
		news, current := s.cache.upTo(name)
		if current {
			return nil
		}
		select {
		case <-news:
		case <-slow.C:
			if _, err := s.list(ctx); err != nil {
				return err
			}
			slow.Reset(behind)
		case <-ctx.Done():
			return fault.Wrap(fault.KindOf(ctx.Err()), ctx.Err(), "the journal's watch at the Kubernetes API server is behind; repeat the call")
		}
	}
}

// ready waits a while for the first list.
func (s *Store) ready(ctx context.Context) error {
	select {
	case <-s.cache.filled:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, startup)
	defer cancel()
	select {
	case <-s.cache.filled:
		return nil
	case <-ctx.Done():
		return s.unread()
	}
}

func (s *Store) unread() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fault.In(s.lost, "the journal has not been read yet")
}

// Check implements journal.Store. Whether the server takes writes is tried
// with one that leaves nothing behind, unless the last write has shown it.
func (s *Store) Check(ctx context.Context) error {
	select {
	case <-s.cache.filled:
	default:
		return s.unread()
	}
	s.mu.Lock()
	lost, since, unproven := s.lost, s.since, s.unproven
	s.mu.Unlock()
	if lost != nil && time.Since(since) > tolerated {
		return fault.In(lost, "the journal is not being followed, and may be behind what other drivers write")
	}
	if !unproven {
		return nil
	}
	probe, err := secretOf(s.Namespace, s.Owner, record{Entry: journal.Entry{Key: journal.Key{Kind: "probe", ID: "write"}, Value: []byte("{}")}, write: rand.Text()})
	if err != nil {
		return err
	}
	_, err = s.client.create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	s.proven(err)
	return fault.In(err, "the journal cannot be written")
}

// proven remembers whether the server takes writes.
func (s *Store) proven(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unproven = err != nil && !fault.Is(err, fault.Mismatch)
}

// Create implements journal.Store.
func (s *Store) Create(ctx context.Context, e journal.Entry) (journal.Entry, error) {
	e.Version = ""
	return s.write(ctx, "create", e, "is there already")
}

// Update implements journal.Store.
func (s *Store) Update(ctx context.Context, e journal.Entry) (journal.Entry, error) {
	return s.write(ctx, "update", e, "has changed meanwhile")
}

// Delete implements journal.Store, one record after the other.
func (s *Store) Delete(ctx context.Context, entries ...journal.Entry) error {
	var err error
	for _, e := range entries {
		if err = s.remove(ctx, e); err != nil {
			break
		}
	}
	s.proven(err)
	s.Wrote("delete", err)
	return err
}

// write creates a record, or replaces the one whose version it carries.
func (s *Store) write(ctx context.Context, operation string, e journal.Entry, lostRace string) (journal.Entry, error) {
	out, err := s.tryWrite(ctx, e)
	if fault.Is(err, fault.Mismatch) {
		err = fault.Wrap(fault.Mismatch, err, "journal record %s %s", e.Key, lostRace)
	} else {
		err = fault.In(err, "journal record %s", e.Key)
	}
	s.proven(err)
	s.Wrote(operation, err)
	return out, err
}

func (s *Store) tryWrite(ctx context.Context, e journal.Entry) (journal.Entry, error) {
	wanted := record{Entry: e, write: rand.Text()}
	secret, err := secretOf(s.Namespace, s.Owner, wanted)
	if err != nil {
		return e, err
	}
	written := secret
	err = s.repeat(ctx, func() (err error) {
		if e.Version == "" {
			written, err = s.client.create(ctx, secret, metav1.CreateOptions{})
		} else if written, err = s.client.update(ctx, secret); fault.Is(err, fault.NotFound) {
			err = fault.As(fault.Mismatch, err)
		}
		return err
	})
	switch {
	case err == nil:
		r, err := recordOf(s.Owner, written)
		if err != nil {
			return e, err
		}
		s.cache.keep(secret.Name, r)
		return r.Entry, r.damage
	case !fault.Is(err, fault.Mismatch):
		return e, err
	}
	// Somebody was faster, or this very write was done and its answer lost. If
	// both, what counts for the caller is what stands there.
	have, readErr := s.read(ctx, e.Key)
	switch {
	case readErr == nil && have.write == wanted.write:
		return have.Entry, nil
	case readErr != nil && !fault.Is(readErr, fault.NotFound):
		return e, readErr
	}
	return e, err
}

// remove deletes a record that is as it was read. To repeat that is safe: no
// resourceVersion comes twice.
func (s *Store) remove(ctx context.Context, e journal.Entry) error {
	if e.Version == "" { // it was never written
		return nil
	}
	name := nameOf(s.Owner, e.Key)
	err := s.repeat(ctx, func() error {
		return s.client.remove(ctx, name, metav1.Preconditions{ResourceVersion: &e.Version})
	})
	switch {
	case err == nil || fault.Is(err, fault.NotFound):
		s.cache.forget(name, func(r record) bool { return r.Version == e.Version })
		return nil
	case !fault.Is(err, fault.Mismatch):
		return fault.In(err, "journal record %s", e.Key)
	}
	switch _, readErr := s.read(ctx, e.Key); {
	case fault.Is(readErr, fault.NotFound):
		return nil
	case readErr != nil && !fault.Is(readErr, fault.Internal):
		return fault.In(readErr, "journal record %s", e.Key)
	}
	return fault.Wrap(fault.Mismatch, err, "journal record %s has changed meanwhile", e.Key)
}

// read gets a record from the server into the cache. What is damaged comes
// back as an error.
func (s *Store) read(ctx context.Context, key journal.Key) (record, error) {
	name := nameOf(s.Owner, key)
	before, had := s.cache.get(name)
	var r record
	err := s.repeat(ctx, func() error {
		secret, err := s.client.get(ctx, name)
		if err == nil {
			r, err = recordOf(s.Owner, secret)
		}
		return err
	})
	switch {
	case err == nil:
		s.cache.keep(name, r)
		return r, r.damage
	case fault.Is(err, fault.NotFound) && had:
		s.cache.forget(name, func(now record) bool { return now.revision == before.revision })
	}
	return r, err
}

// repeat makes a call again that got no answer, or was put off.
func (s *Store) repeat(ctx context.Context, do func() error) error {
	pause := firstPause
	for try := 1; ; try++ {
		err := do()
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Unavailable && f.Kind != fault.RateLimited {
			return err
		}
		if try == tries || f.RetryAfter > longestPause || !sleep(ctx, max(pause, f.RetryAfter)) {
			return err
		}
		pause *= 2
	}
}

// sleep waits, with a part left to chance so that those who were refused
// together do not come back together; false if ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	d += time.Duration(mathrand.Int64N(int64(d)/2 + 1))
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// selector names this driver's records.
func (s *Store) selector() string { return kube.OwnerLabel + "=" + kube.OwnerMark(s.Owner) }

// list reads all records and returns as of when they are.
func (s *Store) list(ctx context.Context) (version string, err error) {
	s.listing.Lock()
	defer s.listing.Unlock()
	begun := s.cache.beginList()
	items, version, err := s.client.list(ctx, s.selector())
	if err != nil {
		return "", err
	}
	records := make(map[string]record, len(items))
	for i := range items {
		r, err := recordOf(s.Owner, &items[i])
		if err != nil {
			return "", err
		}
		records[items[i].Name] = r
	}
	return version, s.cache.replace(begun, version, records)
}
