// Package secrets keeps the journal in Kubernetes Secrets, one for each record,
// all in one namespace: a driver that moves to another node needs no volume,
// and a backup of the cluster is a backup of the journal.
//
// # Writes
//
// One process at a time writes, the one with the Lease (package lease). Should
// two do so all the same, the API server is the referee: a record's name is a
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
// back. A process that becomes the one that writes first lets the watch catch up
// ([Store.Reload]), and from then on it knows all there is: whatever else is
// written, by a process that was paused for one, makes its own next write of that
// record be refused.
//
// As long as the first list has not come, reads wait while its pages do, and
// answer Unavailable, never NotFound.
package secrets

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// Config says where a Store is.
type Config struct {
	// Namespace holds the Secrets.
	Namespace string
	// Owner is the driver's mark. Drivers with different marks do not see each
	// other's records.
	Owner string
	// Wrote, which may be nil, is told of every durable write with the outcome.
	Wrote func(operation string, err error)
	// Called, which may be nil, is told of every call tried at the API server.
	Called func(call string, err error)
}

// Store is a journal.Store in Secrets.
type Store struct {
	Config
	client client
	cache  *cache
	stop   context.CancelFunc
	done   chan struct{}

	listing sync.Mutex   // one list at a time is enough
	pages   atomic.Int64 // that lists have brought

	mu       sync.Mutex
	lost     error     // why there is no watch; nil while there is one
	since    time.Time // since when
	unproven bool      // whether the server takes writes has to be tried
}

const (
	// startup is how long a read waits for a page of the first list.
	startup = 5 * time.Second
	// catchUp is how long Reload waits for the watch to bring what it should.
	catchUp = 2 * time.Second
	// progressEvery is how often a list that takes long is told of.
	progressEvery = 2 * time.Second
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
	ignore := func(string, error) {}
	if c.Wrote == nil {
		c.Wrote = ignore
	}
	if c.Called == nil {
		c.Called = ignore
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
	index, err := s.Index(ctx)
	if err != nil {
		return journal.Entry{}, err
	}
	e, err := index.Get(key)
	if fault.Is(err, fault.NotFound) {
		if stray, _ := index.Get(strayOf(s.Owner, nameOf(s.Owner, key))); stray.Damage != nil {
			return stray, stray.Damage
		}
	}
	return e, err
}

// Reload makes reads see all that any process wrote before it. A process does
// that when it becomes the one that writes. A watch brings writes in their order, so
// all that came before a write of this process is known when the watch has brought
// that. Only if it does not are all records read again.
func (s *Store) Reload(ctx context.Context) error {
	if s.caughtUp(ctx) {
		return nil
	}
	return s.list(ctx)
}

// caughtUp writes a Secret that is no record, removes it, and waits until the watch
// has come to it. One that a crash has left there is removed, too.
func (s *Store) caughtUp(ctx context.Context) bool {
	before := s.cache.position()
	mark, err := secretOf(s.Namespace, s.Owner, rand.Text(), journal.Entry{Key: journal.Key{Kind: journal.Probe, ID: "reload"}, Value: []byte("{}")})
	if err != nil {
		return false
	}
	written, err := s.client.write(ctx, mark, false)
	_ = s.client.remove(ctx, mark.Name, metav1.Preconditions{})
	if err != nil {
		return false
	}
	version, err := strconv.ParseUint(written.ResourceVersion, 10, 64)
	if err != nil || version <= before { // the cluster was restored from a backup
		return false
	}
	s.listing.Lock() // the first list may be under way
	reached := s.cache.reached(version)
	s.listing.Unlock()
	select {
	case <-reached:
		return true
	case <-time.After(catchUp):
	case <-ctx.Done():
	}
	return false
}

// Index implements journal.Store. It waits for the first list, as long as pages of
// it come.
func (s *Store) Index(ctx context.Context) (*journal.Index, error) {
	for pages := int64(-1); !s.cache.isFilled(); {
		before := pages
		if pages = s.pages.Load(); pages == before {
			return nil, s.unread()
		}
		select {
		case <-s.cache.filled:
		case <-ctx.Done():
			return nil, s.unread()
		case <-time.After(startup):
		}
	}
	return s.cache.index, nil
}

func (s *Store) unread() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fault.In(s.lost, "the journal has not been read yet")
}

// Check implements journal.Store. Whether the server takes writes is tried
// with one that leaves nothing behind, unless the last write has shown it.
func (s *Store) Check(ctx context.Context) error {
	if !s.cache.isFilled() {
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
	probe, err := secretOf(s.Namespace, s.Owner, rand.Text(), journal.Entry{Key: journal.Key{Kind: journal.Probe, ID: "write"}, Value: []byte("{}")})
	if err != nil {
		return err
	}
	_, err = s.client.write(ctx, probe, true)
	s.proven(err)
	return fault.In(err, "the journal cannot be written")
}

// proven remembers whether the server takes writes.
func (s *Store) proven(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unproven = err != nil && !fault.Is(err, fault.Mismatch)
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

// Put implements journal.Store.
func (s *Store) Put(ctx context.Context, e journal.Entry) (version uint64, err error) {
	operation := "update"
	if e.Version == 0 {
		operation = "create"
	}
	r, err := s.write(ctx, e)
	if fault.Is(err, fault.Mismatch) {
		err = journal.LostRace(e)
	} else {
		err = fault.In(err, "journal record %s", e.Key)
	}
	s.proven(err)
	s.Wrote(operation, err)
	return r.Version, err
}

// write creates a record, or replaces the one whose version it carries.
func (s *Store) write(ctx context.Context, e journal.Entry) (r record, err error) {
	mark := rand.Text()
	secret, err := secretOf(s.Namespace, s.Owner, mark, e)
	if err != nil {
		return r, err
	}
	err = s.repeat(ctx, func() error {
		written, err := s.client.write(ctx, secret, false)
		if err == nil {
			r, err = recordOf(s.Owner, written)
		}
		return err
	})
	switch {
	case err == nil:
		s.cache.keep(r)
		return r, r.Damage
	case fault.Is(err, fault.NotFound) && e.Version != 0:
		err = fault.As(fault.Mismatch, err)
	case !fault.Is(err, fault.Mismatch):
		return r, err
	}
	// Another was faster, or this very write was done and its answer lost. If
	// both, what counts for the caller is what stands there.
	have, readErr := s.read(ctx, e.Key)
	switch {
	case readErr == nil && have.write == mark:
		return have, nil
	case readErr != nil && !fault.Is(readErr, fault.NotFound):
		return r, readErr
	}
	return r, err
}

// remove deletes a record that is as it was read. To repeat that is safe: no
// resourceVersion comes twice.
func (s *Store) remove(ctx context.Context, e journal.Entry) error {
	if e.Version == 0 { // it was never written
		return nil
	}
	name, version := nameOf(s.Owner, e.Key), strconv.FormatUint(e.Version, 10)
	err := s.repeat(ctx, func() error {
		return s.client.remove(ctx, name, metav1.Preconditions{ResourceVersion: &version})
	})
	switch {
	case err == nil || fault.Is(err, fault.NotFound):
		s.cache.forget(e.Key, e.Version)
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
	return journal.LostRace(e)
}

// read gets a record from the server into the cache. What is damaged comes
// back as an error.
func (s *Store) read(ctx context.Context, key journal.Key) (record, error) {
	name := nameOf(s.Owner, key)
	before, _ := s.cache.index.Get(key)
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
		s.cache.keep(r)
		return r, r.Damage
	case fault.Is(err, fault.NotFound):
		s.cache.forget(key, before.Version)
	}
	return r, err
}

// repeat makes a call again that got no answer, or was put off.
func (s *Store) repeat(ctx context.Context, do func() error) error {
	pause := firstPause
	for try := 1; ; try++ {
		err := transport.May(ctx, kube.CallTimeout)
		if err != nil {
			return err
		}
		err = do()
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
	d += time.Duration(mathrand.Int64N(int64(d)/2 + 1)) //nolint:gosec // chance keeps no secret
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
func (s *Store) list(ctx context.Context) error {
	s.listing.Lock()
	defer s.listing.Unlock()
	begun, records, told := s.cache.beginList(), map[journal.Key]record{}, time.Now()
	version, err := s.client.list(ctx, s.selector(), func(page []corev1.Secret) (err error) {
		for i := range page {
			r, unreadable := recordOf(s.Owner, &page[i])
			records[r.Key], err = r, errors.Join(err, unreadable)
		}
		s.pages.Add(1)
		if time.Since(told) > progressEvery {
			told = time.Now()
			klog.FromContext(ctx).Info("Reading the journal", "namespace", s.Namespace, "records", len(records))
		}
		return err
	})
	if err != nil {
		return err
	}
	return s.cache.replace(begun, version, records)
}
