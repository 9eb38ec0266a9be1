package secrets

import (
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// cache keeps the index of this process's records. It has two sources that are
// not in step: the watch, which brings everything in the order it was written,
// and the answers to this process's own calls, which run ahead of it. The rule
// that brings them together: up to the version that the watch has reached, the
// watch is right; beyond it, the highest version is.
type cache struct {
	index  *journal.Index
	filled chan struct{} // closed with the first list

	mu   sync.Mutex
	seen uint64 // the watch has brought everything up to here
	// removed are records that are known to be gone and of whose end the watch
	// has not told yet. What it still tells of them is outdated.
	removed map[journal.Key]removal
	lists   uint64                   // how many lists were begun
	awaited map[uint64]chan struct{} // closed when seen gets to a version
}

type removal struct {
	version uint64 // the last that the record is known to have had
	list    uint64 // how many lists had been begun by then
}

func newCache() *cache {
	return &cache{index: journal.NewIndex(), filled: make(chan struct{}), removed: map[journal.Key]removal{}, awaited: map[uint64]chan struct{}{}}
}

// keep takes the answer to a call.
func (c *cache) keep(r record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Version > c.seen && c.isNews(r) {
		c.put(r)
	}
}

// forget drops a record that a call has shown to be gone, if it still has the
// version that the call was about.
func (c *cache) forget(key journal.Key, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version != 0 && c.version(key) == version {
		c.index.Remove(key)
		c.removed[key] = removal{version, c.lists}
	}
}

// event takes what the watch brings.
func (c *cache) event(what watch.EventType, r record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Version <= c.seen { // a list has brought it already
		return
	}
	c.see(r.Version)
	switch {
	case what == watch.Bookmark:
	case what == watch.Deleted:
		if c.removed[r.Key].version < r.Version {
			delete(c.removed, r.Key)
		}
		if c.version(r.Key) <= r.Version {
			c.index.Remove(r.Key)
		}
	case c.isNews(r):
		c.put(r)
	}
}

// position is the version up to which everything has been seen.
func (c *cache) position() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// reached returns what is closed when everything up to a version has been seen.
func (c *cache) reached(version uint64) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	reached := make(chan struct{})
	c.awaited[version] = reached // which no other write has
	c.see(c.seen)
	return reached
}

// listing is what is known when a list begins.
type listing struct{ number, seen uint64 }

func (c *cache) beginList() listing {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists++
	return listing{c.lists, c.seen}
}

// replace takes a list, which is as of a version.
func (c *cache) replace(begun listing, version string, items map[journal.Key]record) error {
	as, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the Kubernetes API server gave a list a resourceVersion that is no number")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// A list is never older than what was known when it began, unless the
	// cluster was restored from a backup: then nothing that was known holds.
	restored := as < begun.seen
	if as < c.seen && !restored { // the watch has overtaken the list
		return nil
	}
	for _, e := range c.index.All() {
		if _, there := items[e.Key]; !there && (restored || e.Version <= as) {
			c.index.Remove(e.Key)
		}
	}
	for key, r := range c.removed {
		if restored || r.list < begun.number { // the list was made after it
			delete(c.removed, key)
		}
	}
	for _, r := range items {
		if restored || c.isNews(r) {
			c.put(r)
		}
	}
	c.see(as)
	if !c.isFilled() {
		close(c.filled)
	}
	return nil
}

// isFilled reports whether there was a list.
func (c *cache) isFilled() bool {
	select {
	case <-c.filled:
		return true
	default:
		return false
	}
}

// The rest is called with mu held.

func (c *cache) see(version uint64) {
	c.seen = version
	for awaited, reached := range c.awaited {
		if awaited <= version {
			close(reached)
			delete(c.awaited, awaited)
		}
	}
}

func (c *cache) version(key journal.Key) uint64 {
	e, _ := c.index.Get(key)
	return e.Version
}

func (c *cache) isNews(r record) bool {
	return r.Version > max(c.version(r.Key), c.removed[r.Key].version)
}

func (c *cache) put(r record) {
	if r.stray != r.Key {
		c.index.Remove(r.stray)
	}
	c.index.Put(r.Entry)
}
