package journal

import (
	"cmp"
	"maps"
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
	mu         sync.RWMutex
	entries    map[Key]Entry
	dependents map[Key]*dependents
	counts     map[scope]int
}

// dependents are the keys of the entries that hang on one, in order.
type dependents struct {
	on   Key
	keys []Key
}

// scope is what is counted: the entries of a kind, of one contract or, if that
// is empty, of all.
type scope struct {
	kind     RecordKind
	contract string
}

// NewIndex returns an index without entries.
func NewIndex() *Index {
	return &Index{entries: map[Key]Entry{}, dependents: map[Key]*dependents{}, counts: map[scope]int{}}
}

// Get returns the entry of a key; NotFound if there is none, and its damage if
// it has one.
func (x *Index) Get(key Key) (Entry, error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	e, ok := x.entries[key]
	if !ok {
		return e, fault.New(fault.NotFound, "journal has no record %s", key)
	}
	return e, e.Damage
}

// Put takes an entry in place of any other with its key.
func (x *Index) Put(e Entry) {
	if e.Key.Kind == Probe {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if old, ok := x.entries[e.Key]; ok && slices.Equal(old.Refs, e.Refs) {
		e.Key, e.Refs = old.Key, old.Refs // whose text is in memory already
	} else {
		x.remove(old)
		e.Refs = slices.Clone(e.Refs)
		for i, ref := range e.Refs {
			d := x.dependents[ref]
			if d == nil {
				d = &dependents{on: cmp.Or(x.entries[ref].Key, ref)}
				x.dependents[d.on] = d
			}
			e.Refs[i] = d.on
			if at, found := slices.BinarySearchFunc(d.keys, e.Key, Key.compare); !found {
				d.keys = slices.Insert(d.keys, at, e.Key)
			}
		}
		x.count(e.Key, 1)
	}
	x.entries[e.Key] = e
}

// Remove forgets the entry of a key, if there is one.
func (x *Index) Remove(key Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(x.entries[key])
}

func (x *Index) remove(e Entry) {
	if e.Key == (Key{}) { // there was none
		return
	}
	for _, ref := range e.Refs {
		d := x.dependents[ref]
		if d == nil { // ref stands twice in Refs
			continue
		}
		if at, found := slices.BinarySearchFunc(d.keys, e.Key, Key.compare); found {
			d.keys = slices.Delete(d.keys, at, at+1)
		}
		if len(d.keys) == 0 {
			delete(x.dependents, ref)
		}
	}
	x.count(e.Key, -1)
	delete(x.entries, e.Key)
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
	d := x.dependents[key]
	if d == nil {
		return nil
	}
	out := make([]Entry, len(d.keys))
	for i, k := range d.keys {
		out[i] = x.entries[k]
	}
	return out
}

// All returns every entry, in no order.
func (x *Index) All() []Entry {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return slices.AppendSeq(make([]Entry, 0, len(x.entries)), maps.Values(x.entries))
}

// each calls do with every entry, in no order. It may not use the index.
func (x *Index) each(do func(Entry)) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, e := range x.entries {
		do(e)
	}
}

// Walk is [Journal.Walk]. It takes memory for limit places, however many entries
// there are.
func (x *Index) Walk(after Place, limit int) []Place {
	x.mu.RLock()
	defer x.mu.RUnlock()
	first := make([]Place, 0, limit+1)
	for key := range x.entries {
		p := PlaceOf(key)
		if key.Kind == Identity || p.compare(after) <= 0 || len(first) == limit && p.compare(first[limit-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(first, p, Place.compare)
		first = slices.Insert(first, at, p) // there is room for one more than the limit
		first = first[:min(limit, len(first))]
	}
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
