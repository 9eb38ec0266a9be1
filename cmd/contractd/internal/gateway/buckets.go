package gateway

import (
	"net/http"
	"sync"

	"github.com/versity/versitygw/s3err"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

// Buckets knows which contract owns which bucket. It is the referee between
// making a bucket, changing what is in it, deleting it and cancelling its
// contract: each of them holds the bucket's entry here while it works on the
// disk.
type Buckets struct {
	mu      sync.RWMutex // never held while waiting for an entry
	entries map[string]*entry
	counts  map[string]int // by owner, with the buckets that are just being made
	closing map[string]int // contracts being cancelled, with the number of callers doing so
}

// entry is a bucket, from its making to its deletion; the next bucket of the
// same name has an entry of its own.
type entry struct {
	name  string
	owner string

	// access is held shared by changes in the bucket. Held alone, the
	// bucket is made or deleted, or a directory in it removed: every other
	// change may count on a directory that it has seen or made.
	access sync.RWMutex
	gone   bool // deleted, or never made
	rules  int  // how often the bucket's versioning was set

	counted bool // what it holds is known; changed by who holds it alone

	mu       sync.Mutex
	turns    map[string]*turn // keys that are being changed
	quota    store.Quota
	used     use // once it is counted
	reserved use // of it, by writes that are about to be published
}

// turn is the lock of one key. It is there while users hold it or wait for it.
type turn struct {
	sync.Mutex
	users int
}

func newBuckets() *Buckets {
	return &Buckets{entries: map[string]*entry{}, counts: map[string]int{}, closing: map[string]int{}}
}

func newEntry(name, owner string) *entry {
	return &entry{name: name, owner: owner, turns: map[string]*turn{}}
}

// Owner returns the code of the contract that owns a bucket, "" when there is
// no such bucket.
func (b *Buckets) Owner(bucket string) string {
	if e := b.find(bucket); e != nil {
		return e.owner
	}
	return ""
}

// Count returns how many buckets a contract has.
func (b *Buckets) Count(code string) int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.counts[code]
}

// Close stops a contract from making buckets, unless it has some: then nothing
// changes and closed is false. After a successful Close, call [Buckets.Reopen]
// when the contract is gone or stays after all.
func (b *Buckets) Close(code string) (count int, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.counts[code]; n > 0 {
		return n, false
	}
	b.closing[code]++
	return 0, true
}

// Reopen ends what [Buckets.Close] began.
func (b *Buckets) Reopen(code string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing[code]--; b.closing[code] == 0 {
		delete(b.closing, code)
	}
}

// terms tell how many buckets a contract may have, nil for any number, and
// whether the contract exists.
type terms func(code string) (maxBuckets *int64, exists bool)

// reserve takes a name for a bucket that the owner is about to make, and holds
// the bucket alone. The caller makes it and then calls settle.
func (b *Buckets) reserve(bucket, owner string, terms terms) (*entry, error) {
	for {
		made, taken, err := b.enter(bucket, owner, terms)
		if taken == nil {
			return made, err
		}
		taken.access.RLock() // waits for who makes or deletes it
		gone := taken.gone
		taken.access.RUnlock()
		switch {
		case gone:
		case taken.owner == owner:
			return nil, s3err.GetBucketErr(s3err.ErrBucketAlreadyOwnedByYou, bucket)
		default:
			return nil, s3err.GetBucketErr(s3err.ErrBucketAlreadyExists, bucket)
		}
	}
}

// enter adds an entry for a bucket, held alone, unless the name is taken.
func (b *Buckets) enter(bucket, owner string, terms terms) (made, taken *entry, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[bucket]; e != nil {
		return nil, e, nil
	}
	limit, exists := terms(owner)
	if !exists || b.closing[owner] > 0 {
		return nil, nil, s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	if limit != nil && int64(b.counts[owner]) >= *limit {
		return nil, nil, tooManyBuckets()
	}
	e := newEntry(bucket, owner)
	e.access.Lock()
	b.add(e)
	return e, nil, nil
}

// add records a bucket. Except when the gateway starts, b.mu is held.
func (b *Buckets) add(e *entry) {
	b.entries[e.name] = e
	b.counts[e.owner]++
}

// settle ends the making or deletion of a bucket that the caller holds alone.
func (b *Buckets) settle(e *entry, there bool) {
	if !there {
		e.gone = true
		b.drop(e)
	}
	e.access.Unlock()
}

func (b *Buckets) drop(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, e.name)
	if b.counts[e.owner]--; b.counts[e.owner] == 0 {
		delete(b.counts, e.owner)
	}
}

func (b *Buckets) find(bucket string) *entry {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.entries[bucket]
}

// alone waits until nothing else changes the bucket.
func (e *entry) alone() error {
	e.access.Lock()
	if e.gone {
		e.access.Unlock()
		return noSuchBucket(e.name)
	}
	return nil
}

// hold is one change's share of a bucket and, with a key, its turn at the key.
// It is for one goroutine.
type hold struct {
	entry *entry
	key   string // "" for the bucket itself
	turn  *turn
	rules int
	held  bool

	measure  func() use // what there is of the key
	before   use        // as the hold was taken, where the bucket is counted
	reserved use        // of the bucket's room, until the hold is given up
}

// hold takes a share of the bucket and the turn at a key, of which measure tells
// what there is.
func (e *entry) hold(key string, measure func() use) (*hold, error) {
	h := &hold{entry: e, key: key, measure: measure}
	if err := h.take(); err != nil {
		return nil, err
	}
	h.rules = e.rules
	return h, nil
}

func (h *hold) take() error {
	e := h.entry
	e.access.RLock()
	if e.gone {
		e.access.RUnlock()
		return noSuchBucket(e.name)
	}
	if h.key != "" {
		h.turn = e.takeTurn(h.key)
		if e.counted {
			h.before = h.measure()
		}
	}
	h.held = true
	return nil
}

// pause gives the hold up until resume, or for good.
func (h *hold) pause() {
	if !h.held {
		return
	}
	h.held = false
	if h.key != "" {
		if h.entry.counted {
			h.entry.changed(h.measure().minus(h.before), h.reserved)
			h.reserved = use{}
		}
		h.entry.endTurn(h.key, h.turn)
	}
	h.entry.access.RUnlock()
}

// resume takes the hold again, if nothing has changed that the writer has
// decided by.
func (h *hold) resume() error {
	if err := h.take(); err != nil {
		return err
	}
	if h.entry.rules == h.rules {
		return nil
	}
	h.pause()
	return s3err.APIError{
		Code:           "OperationAborted",
		Description:    "The bucket's versioning was set while the object was sent. Send the object again.",
		HTTPStatusCode: http.StatusConflict,
	}
}

func (e *entry) takeTurn(key string) *turn {
	e.mu.Lock()
	t := e.turns[key]
	if t == nil {
		t = &turn{}
		e.turns[key] = t
	}
	t.users++
	e.mu.Unlock()
	t.Lock()
	return t
}

func (e *entry) endTurn(key string, t *turn) {
	t.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(e.turns, key)
	}
}

func noSuchBucket(bucket string) error { return s3err.GetBucketErr(s3err.ErrNoSuchBucket, bucket) }
