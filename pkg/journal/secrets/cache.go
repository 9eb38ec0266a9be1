package secrets

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// cache is what the process knows of its records. It has two sources that are
// not in step: the watch, which brings everything in the order it was written,
// and the answers to this process's own calls, which run ahead of it. The rule
// that brings them together: up to the revision that the watch has reached, the
// watch is right; beyond it, the highest revision is.
type cache struct {
	filled chan struct{} // closed with the first list

	mu         sync.RWMutex
	seen       uint64 // the watch has brought everything up to here
	records    map[string]record
	dependents map[journal.Key]map[string]bool // the index of Refs, by name
	counts     map[journal.RecordKind]int
	// removed are Secrets that are known to be gone and of whose end the watch
	// has not told yet. What it still tells of them is outdated.
	removed map[types.UID]removal
	lists   uint64        // how many lists were begun
	news    chan struct{} // closed and replaced when seen grows
}

type removal struct {
	name string
	list uint64 // how many lists had been begun by then
}

func newCache() *cache {
	return &cache{
		filled: make(chan struct{}), news: make(chan struct{}),
		records: map[string]record{}, dependents: map[journal.Key]map[string]bool{}, counts: map[journal.RecordKind]int{},
		removed: map[types.UID]removal{},
	}
}

func (c *cache) get(name string) (record, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	r, ok := c.records[name]
	return r, ok
}

func (c *cache) count(kind journal.RecordKind) int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.counts[kind]
}

func (c *cache) dependentsOf(key journal.Key, limit int) []journal.Entry {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var out []journal.Entry
	for name := range c.dependents[key] {
		if out = append(out, c.records[name].Entry); len(out) == limit {
			break
		}
	}
	slices.SortFunc(out, func(a, b journal.Entry) int { return strings.Compare(a.Key.ID, b.Key.ID) })
	return out
}

// walk leaves damaged records in: whoever reads one is told.
func (c *cache) walk(after journal.Place, limit int) []journal.Place {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return journal.Next(func(yield func(journal.Key) bool) {
		for _, r := range c.records {
			if !yield(r.Key) {
				return
			}
		}
	}, after, limit)
}

// all returns every entry; an error if one is damaged.
func (c *cache) all() ([]journal.Entry, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]journal.Entry, 0, len(c.records))
	for _, r := range c.records {
		if r.damage != nil {
			return nil, r.damage
		}
		out = append(out, r.Entry)
	}
	return out, nil
}

// upTo reports whether the watch has brought what this process last knew of a
// name by itself; if not, news is closed when there is reason to ask again.
func (c *cache) upTo(name string) (news <-chan struct{}, current bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.records[name].revision > c.seen {
		return c.news, false
	}
	for _, r := range c.removed {
		if r.name == name {
			return c.news, false
		}
	}
	return nil, true
}

// keep takes the answer to a call.
func (c *cache) keep(name string, r record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, gone := c.removed[r.uid]; !gone && r.revision > c.seen && r.revision > c.records[name].revision {
		c.put(name, r)
	}
}

// forget drops a record that a call has shown to be gone, if it is still the one.
func (c *cache) forget(name string, isIt func(record) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.records[name]; ok && isIt(r) {
		c.drop(name)
		c.removed[r.uid] = removal{name, c.lists}
	}
}

// event takes what the watch brings.
func (c *cache) event(what watch.EventType, name string, r record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.revision <= c.seen { // a list has brought it already
		return
	}
	c.reach(r.revision)
	have := c.records[name]
	switch _, gone := c.removed[r.uid]; {
	case what == watch.Bookmark:
	case what == watch.Deleted:
		delete(c.removed, r.uid)
		if have.revision <= r.revision {
			c.drop(name)
		}
	case !gone && have.revision < r.revision:
		c.put(name, r)
	}
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
func (c *cache) replace(begun listing, version string, items map[string]record) error {
	revision, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the Kubernetes API server gave a list a resourceVersion that is no number")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// A list is never older than what was known when it began, unless the
	// cluster was restored from a backup: then nothing known holds any more.
	restored := revision < begun.seen
	if revision < c.seen && !restored { // the watch has overtaken the list
		return nil
	}
	for name, r := range c.records {
		if _, there := items[name]; !there && (restored || r.revision <= revision) {
			c.drop(name)
		}
	}
	for uid, r := range c.removed {
		if restored || r.list < begun.number { // the list was made after it
			delete(c.removed, uid)
		}
	}
	for name, r := range items {
		if _, gone := c.removed[r.uid]; !gone && (restored || r.revision > c.records[name].revision) {
			c.put(name, r)
		}
	}
	c.reach(revision)
	select {
	case <-c.filled:
	default:
		close(c.filled)
	}
	return nil
}

// The rest is called with mu held.

func (c *cache) reach(revision uint64) {
	c.seen = revision
	close(c.news)
	c.news = make(chan struct{})
}

func (c *cache) put(name string, r record) {
	c.drop(name)
	c.records[name] = r
	c.counts[r.Key.Kind]++
	for _, ref := range r.Refs {
		if c.dependents[ref] == nil {
			c.dependents[ref] = map[string]bool{}
		}
		c.dependents[ref][name] = true
	}
}

func (c *cache) drop(name string) {
	r, ok := c.records[name]
	if !ok {
		return
	}
	delete(c.records, name)
	c.counts[r.Key.Kind]--
	for _, ref := range r.Refs {
		if delete(c.dependents[ref], name); len(c.dependents[ref]) == 0 {
			delete(c.dependents, ref)
		}
	}
}
