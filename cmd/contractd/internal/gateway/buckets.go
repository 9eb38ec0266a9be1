package gateway

import (
	"sync"

	"github.com/versity/versitygw/s3err"
)

// Buckets knows which contract owns which bucket. It is the referee between
// making a bucket, deleting it and cancelling its contract: whoever changes the
// set of buckets holds the bucket's entry here first.
type Buckets struct {
	mu      sync.RWMutex
	entries map[string]*entry
	counts  map[string]int // by owner, with the buckets that are just being made
	closing map[string]int // contracts being cancelled, with the number of callers doing so
}

// entry is a bucket. While busy is not nil somebody is making or deleting it,
// and closes busy when the outcome is known.
type entry struct {
	owner string
	busy  chan struct{}
}

func newBuckets() *Buckets {
	return &Buckets{entries: map[string]*entry{}, counts: map[string]int{}, closing: map[string]int{}}
}

// Owner returns the code of the contract that owns a bucket, "" when there is
// no such bucket.
func (b *Buckets) Owner(bucket string) string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if e := b.entries[bucket]; e != nil {
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

// reserve takes a name for a bucket that the owner is about to make. The caller
// makes it and then says whether that worked.
func (b *Buckets) reserve(bucket, owner string, terms terms) (done func(made bool), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.await(bucket); e != nil {
		if e.owner == owner {
			return nil, s3err.GetBucketErr(s3err.ErrBucketAlreadyOwnedByYou, bucket)
		}
		return nil, s3err.GetBucketErr(s3err.ErrBucketAlreadyExists, bucket)
	}
	limit, exists := terms(owner)
	if !exists || b.closing[owner] > 0 {
		return nil, s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	if limit != nil && int64(b.counts[owner]) >= *limit {
		return nil, tooManyBuckets()
	}
	e := &entry{owner: owner, busy: make(chan struct{})}
	b.entries[bucket] = e
	b.counts[owner]++
	return func(made bool) { b.settle(bucket, e, made) }, nil
}

// hold takes a bucket that is about to be deleted. The caller deletes it and
// then says whether it is still there. Without such a bucket done is nil.
func (b *Buckets) hold(bucket string) (done func(there bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.await(bucket)
	if e == nil {
		return nil
	}
	e.busy = make(chan struct{})
	return func(there bool) { b.settle(bucket, e, there) }
}

// await returns the bucket's entry once nobody else is busy with it. It is
// called with the lock held and gives it up meanwhile.
func (b *Buckets) await(bucket string) *entry {
	for {
		e := b.entries[bucket]
		if e == nil || e.busy == nil {
			return e
		}
		busy := e.busy
		b.mu.Unlock()
		<-busy
		b.mu.Lock()
	}
}

func (b *Buckets) settle(bucket string, e *entry, there bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !there {
		b.drop(bucket, e)
	}
	close(e.busy)
	e.busy = nil
}

// assign records a bucket's owner, for what was found at the start and for a
// change of owner.
func (b *Buckets) assign(bucket, owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.await(bucket); e != nil {
		b.drop(bucket, e)
	}
	b.entries[bucket] = &entry{owner: owner}
	b.counts[owner]++
}

func (b *Buckets) drop(bucket string, e *entry) {
	delete(b.entries, bucket)
	if b.counts[e.owner]--; b.counts[e.owner] == 0 {
		delete(b.counts, e.owner)
	}
}
