package journal

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// Index is what a [Store] knows of its entries, in memory: each of them once,
// found by its key and by what it hangs on, and counted. It can be used by
// several goroutines at once.
type Index struct {
	mu     sync.RWMutex
	nodes  map[Key]*node
	counts map[scope]int
}

// node is an entry, or what others hang on and is not there.
type node struct {
	Entry
	there      bool
	dependents []*node // by their keys
}

// scope is what is counted: the entries of a kind, of one contract or, if that
// is empty, of all.
type scope struct {
	kind     RecordKind
	contract string
}

// NewIndex returns an index without entries.
func NewIndex() *Index {
	return &Index{nodes: map[Key]*node{}, counts: map[scope]int{}}
}

// Get returns the entry of a key; NotFound if there is none, and its damage if
// it has one.
func (x *Index) Get(key Key) (Entry, error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.nodes[key]
	if n == nil || !n.there {
		return Entry{}, fault.New(fault.NotFound, "journal has no record %s", key)
	}
	return n.Entry, n.Damage
}

// Put takes an entry in place of any other with its key.
func (x *Index) Put(e Entry) {
	if e.Key.Kind == Probe {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.node(e.Key)
	if !n.there || !slices.Equal(n.Refs, e.Refs) {
		x.remove(n)
		n = x.node(e.Key)
		n.Refs = make([]Key, len(e.Refs))
		for i, ref := range e.Refs {
			on := x.node(ref)
			n.Refs[i] = on.Key
			if at, found := on.find(n); !found {
				on.dependents = slices.Insert(on.dependents, at, n)
			}
		}
		n.there = true
		x.count(n.Key, 1)
	}
	e.Key, e.Refs = n.Key, n.Refs // whose text is in memory already
	n.Entry = e
}

// node returns that of a key, which is made if there is none.
func (x *Index) node(key Key) *node {
	n := x.nodes[key]
	if n == nil {
		n = &node{Entry: Entry{Key: key}}
		x.nodes[key] = n
	}
	return n
}

// find returns the place of another among the dependents.
func (n *node) find(other *node) (at int, found bool) {
	return slices.BinarySearchFunc(n.dependents, other, func(a, b *node) int { return a.Key.compare(b.Key) })
}

// Remove forgets the entry of a key, if there is one.
func (x *Index) Remove(key Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := x.nodes[key]; n != nil {
		x.remove(n)
	}
}

func (x *Index) remove(n *node) {
	if n.there {
		x.count(n.Key, -1)
	}
	refs := n.Refs
	n.there, n.Entry = false, Entry{Key: n.Key}
	for _, ref := range refs {
		on := x.nodes[ref]
		if on == nil { // ref stands twice in Refs
			continue
		}
		if at, found := on.find(n); found {
			on.dependents = slices.Delete(on.dependents, at, at+1)
		}
		x.forget(on)
	}
	x.forget(n)
}

// forget drops a node that is of no use.
func (x *Index) forget(n *node) {
	if !n.there && len(n.dependents) == 0 {
		delete(x.nodes, n.Key)
	}
}

func (x *Index) count(key Key, n int) {
	for _, s := range []scope{{kind: key.Kind}, {key.Kind, key.contract()}} {
		if x.counts[s] += n; x.counts[s] == 0 {
			delete(x.counts, s)
		}
	}
}

// Count returns how many entries of a kind there are of a contract, or of all if
// its id is empty. It costs the same however many there are.
func (x *Index) Count(kind RecordKind, contract string) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.counts[scope{kind, contract}]
}

// Dependents returns the entries whose Refs name key, sorted by id.
func (x *Index) Dependents(key Key) []Entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := x.nodes[key]
	if n == nil {
		return nil
	}
	out := make([]Entry, len(n.dependents))
	for i, d := range n.dependents {
		out[i] = d.Entry
	}
	return out
}

// All returns every entry, in no order.
func (x *Index) All() []Entry {
	var out []Entry
	x.each(func(e Entry) { out = append(out, e) })
	return out
}

// each calls do with every entry, in no order. It may not use the index.
func (x *Index) each(do func(Entry)) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, n := range x.nodes {
		if n.there {
			do(n.Entry)
		}
	}
}

// Walk is [Journal.Walk]. It takes memory for limit places, however many entries
// there are.
func (x *Index) Walk(after Place, limit int) []Place {
	first := make([]Place, 0, limit+1)
	x.each(func(e Entry) {
		p := PlaceOf(e.Key)
		if e.Key.Kind == Identity || p.compare(after) <= 0 || len(first) == limit && p.compare(first[limit-1]) > 0 {
			return
		}
		at, _ := slices.BinarySearchFunc(first, p, Place.compare)
		first = slices.Insert(first, at, p) // there is room for one more than the limit
		first = first[:min(limit, len(first))]
	})
	return first
}

// Place is where a record stands in the order in which records are walked. The
// order is that of a hash of their keys: it is the same in every process and
// after every restart, and it spreads the records of one contract, or of one
// day, evenly over the whole.
type Place struct {
	// At is the hash; places go from 0 to the largest number.
	At uint64
	// Key names the record.
	Key Key
}

// PlaceOf is a pure function of the key.
func PlaceOf(key Key) Place {
	var d xxhash.Digest // of key.String(), which need not be made
	d.Reset()
	_, _ = d.WriteString(string(key.Kind))
	_, _ = d.WriteString("/")
	_, _ = d.WriteString(key.ID)
	return Place{At: d.Sum64(), Key: key}
}

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(p.At, q.At), p.Key.compare(q.Key))
}

// compare puts keys in the order of their ids.
func (k Key) compare(l Key) int {
	return cmp.Or(strings.Compare(k.ID, l.ID), strings.Compare(string(k.Kind), string(l.Kind)))
}

// contract returns the id of the contract that a key belongs to: the part of its
// id up to the second dot.
func (k Key) contract() string {
	backend, rest, _ := strings.Cut(k.ID, ".")
	name, _, _ := strings.Cut(rest, ".")
	return k.ID[:min(len(k.ID), len(backend)+1+len(name))]
}
