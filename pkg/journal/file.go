package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// File is the Store of a driver outside a cluster: a log in one file, which
// only this process may open, and all records in memory. Writes that come
// while the disk is busy share the next flush, so sixteen callers pay for
// little more than one; a single caller writes at once, in its own goroutine.
type File struct {
	path    string
	observe func(operation string, err error)

	queueing sync.Mutex
	queue    []*write
	leading  bool // somebody is writing, and sees to who is next

	committing sync.Mutex // held while the disk is written; guards log and closed
	log        *log
	closed     bool

	mu         sync.RWMutex
	entries    map[Key]Entry
	dependents map[Key]map[Key]bool // the index of Refs
	counts     map[RecordKind]int
	broken     error // the last write's failure; nil when the disk takes writes
}

// write is one caller's change. apply must not stage anything when it refuses.
type write struct {
	apply func(*stage) error
	err   error
	// turn ends the caller's waiting: true makes it the one who writes next,
	// false says that its change is settled.
	turn chan bool
}

// OpenFile opens the journal in the file at path, or makes it. A file that is
// damaged, cut short, locked by another driver or cannot be written is refused
// and left as it is. observe, which may be nil, hears of every durable write
// with the outcome.
func OpenFile(path string, observe func(operation string, err error)) (*File, error) {
	if observe == nil {
		observe = func(string, error) {}
	}
	f := &File{path: path, observe: observe, entries: map[Key]Entry{}, dependents: map[Key]map[Key]bool{}, counts: map[RecordKind]int{}}
	l, err := openLog(path, func(payload []byte) error {
		changes, err := parseChanges(payload)
		if err == nil {
			f.keep(changes)
		}
		return err
	})
	if err != nil {
		return nil, openError(path, err)
	}
	f.log = l
	return f, nil
}

// openError says in the user's words why a journal was not opened.
func openError(path string, err error) error {
	var damage damage
	switch {
	case errors.Is(err, errLocked):
		return fault.Wrap(fault.FailedPrecondition, err, "journal %s is in use by another process; run one driver for each journal file", path)
	case errors.As(err, &damage):
		return fault.Wrap(fault.FailedPrecondition, err, "journal %s is damaged (%s) and was left as it is; restore it from a backup, or move it away to begin anew", path, damage)
	}
	return fault.Wrap(fault.FailedPrecondition, err, "journal %s cannot be opened for reading and writing (%s); let the driver's user write the file and its directory", path, reason(err))
}

func (f *File) writeError(err error) error {
	return fault.Wrap(fault.Unavailable, err, "journal %s cannot be written (%s); nothing was lost, and the driver goes on when it can be written again", f.path, reason(err))
}

// reason is the operating system's word for a fault, without paths and numbers.
func reason(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}

// Close ends all writing and lets go of the file.
func (f *File) Close() error {
	f.committing.Lock()
	defer f.committing.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	return f.log.close()
}

// Get implements Store.
func (f *File) Get(_ context.Context, key Key) (Entry, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	e, ok := f.entries[key]
	if !ok {
		return Entry{}, fault.New(fault.NotFound, "journal has no record %s", key)
	}
	return e, nil
}

// Refresh implements Store. Nobody else writes the file.
func (f *File) Refresh(context.Context, Key) error { return nil }

// Sync implements Store.
func (f *File) Sync(context.Context, Key) error { return nil }

// All implements Store.
func (f *File) All(context.Context) ([]Entry, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Collect(maps.Values(f.entries)), nil
}

// Walk implements Store.
func (f *File) Walk(_ context.Context, after Place, limit int) ([]Place, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return Next(maps.Keys(f.entries), after, limit), nil
}

// Dependents implements Store.
func (f *File) Dependents(_ context.Context, key Key, limit int) ([]Entry, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var out []Entry
	for from := range f.dependents[key] {
		if out = append(out, f.entries[from]); len(out) == limit {
			break
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Key.ID, b.Key.ID) })
	return out, nil
}

// Count implements Store.
func (f *File) Count(_ context.Context, kind RecordKind) (int, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.counts[kind], nil
}

// Check implements Store. The file must still be where it was opened, and
// after a failed write one is tried, as large as any.
func (f *File) Check(context.Context) error {
	f.committing.Lock()
	err := f.log.inPlace()
	f.committing.Unlock()
	if err != nil {
		return f.writeError(err)
	}
	f.mu.RLock()
	broken := f.broken
	f.mu.RUnlock()
	if broken == nil {
		return nil
	}
	probe := Key{Kind: "probe", ID: "disk"}
	err = f.commit("check", func(s *stage) error {
		s.put(Entry{Key: probe, Value: json.RawMessage(strconv.Quote(strings.Repeat("x", 64<<10)))})
		return nil
	})
	if err != nil {
		return err
	}
	return f.commit("check", func(s *stage) error { s.remove(probe); return nil })
}

// Create implements Store.
func (f *File) Create(_ context.Context, e Entry) (Entry, error) {
	err := f.commit("create", func(s *stage) error {
		if _, ok := s.get(e.Key); ok {
			return fault.New(fault.Mismatch, "journal record %s is there already", e.Key)
		}
		e = s.put(e)
		return nil
	})
	return e, err
}

// Update implements Store.
func (f *File) Update(_ context.Context, e Entry) (Entry, error) {
	err := f.commit("update", func(s *stage) error {
		have, ok := s.get(e.Key)
		if !ok || have.Version != e.Version {
			return fault.New(fault.Mismatch, "journal record %s has changed meanwhile", e.Key)
		}
		e = s.put(e)
		return nil
	})
	return e, err
}

// Delete implements Store.
func (f *File) Delete(_ context.Context, entries ...Entry) error {
	return f.commit("delete", func(s *stage) error {
		for _, e := range entries {
			if have, ok := s.get(e.Key); ok && have.Version != e.Version {
				return fault.New(fault.Mismatch, "journal record %s has changed meanwhile", e.Key)
			}
		}
		for _, e := range entries {
			s.remove(e.Key)
		}
		return nil
	})
}

// commit makes a change durable, together with those of everybody else who has
// come by the time the disk is free: whoever is first in the queue writes for
// all. It does not end with a context. The wait is short, and whoever asked
// for a write has to know how it ended.
func (f *File) commit(operation string, apply func(*stage) error) error {
	w := &write{apply: apply, turn: make(chan bool, 1)}
	f.queueing.Lock()
	f.queue = append(f.queue, w)
	waits := f.leading
	f.leading = true
	f.queueing.Unlock()
	if !waits || <-w.turn {
		f.lead(w)
	}
	f.observe(operation, w.err)
	return w.err
}

// lead writes for all who are in the queue, lets the first of those who came
// meanwhile write next, and only then wakes the others: the disk does not wait
// for them.
func (f *File) lead(leader *write) {
	f.queueing.Lock()
	group := f.queue
	f.queue = nil
	f.queueing.Unlock()

	f.committing.Lock()
	f.commitGroup(group)
	f.committing.Unlock()

	f.queueing.Lock()
	if len(f.queue) > 0 {
		f.queue[0].turn <- true
	} else {
		f.leading = false
	}
	f.queueing.Unlock()
	for _, w := range group {
		if w != leader {
			w.turn <- false
		}
	}
}

func (f *File) commitGroup(group []*write) {
	s := &stage{file: f, changes: map[Key]change{}, version: f.log.sequence << versionBits}
	for _, w := range group {
		w.err = w.apply(s)
	}
	if len(s.changes) == 0 { // all were refused
		return
	}
	err := f.append(s)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = err
	if err == nil {
		f.keep(slices.Collect(maps.Values(s.changes)))
		return
	}
	for _, w := range group {
		if w.err == nil { // those that were refused stay so
			w.err = err
		}
	}
}

// append writes what is staged, and the log anew when most of it is outdated.
func (f *File) append(s *stage) error {
	if f.closed {
		return fault.New(fault.Unavailable, "the driver is stopping")
	}
	payload, err := formatChanges(maps.Values(s.changes))
	if err != nil {
		return fault.Wrap(fault.Internal, err, "journal record cannot be written as JSON")
	}
	if f.log.outdated() {
		live, err := formatChanges(func(yield func(change) bool) {
			for _, e := range f.entries {
				if !yield(change{Put: &e}) {
					return
				}
			}
		})
		if err == nil {
			f.log.rewrite(live)
		}
	}
	if err := f.log.append(payload); err != nil {
		return f.writeError(err)
	}
	return nil
}

// keep takes durable changes into memory. The caller holds mu, or is alone.
func (f *File) keep(changes []change) {
	for _, c := range changes {
		key := c.Delete
		if c.Put != nil {
			key = &c.Put.Key
		}
		old, had := f.entries[*key]
		if had {
			f.counts[key.Kind]--
			for _, ref := range old.Refs {
				if delete(f.dependents[ref], *key); len(f.dependents[ref]) == 0 {
					delete(f.dependents, ref)
				}
			}
			delete(f.entries, *key)
		}
		if c.Put == nil {
			continue
		}
		f.entries[*key] = *c.Put
		f.counts[key.Kind]++
		for _, ref := range c.Put.Refs {
			if f.dependents[ref] == nil {
				f.dependents[ref] = map[Key]bool{}
			}
			f.dependents[ref][*key] = true
		}
	}
}

// stage is what a group of writes will change: those that come later in the
// group see it, the rest of the world not yet.
type stage struct {
	file    *File
	changes map[Key]change
	version uint64
}

// versionBits leave room for that many changes in one frame of the log, whose
// number is the rest of a version: so no record ever has a version that
// another had before it under the same key.
const versionBits = 16

func (s *stage) get(key Key) (Entry, bool) {
	if c, ok := s.changes[key]; ok {
		if c.Put == nil {
			return Entry{}, false
		}
		return *c.Put, true
	}
	s.file.mu.RLock()
	defer s.file.mu.RUnlock()
	e, ok := s.file.entries[key]
	return e, ok
}

func (s *stage) put(e Entry) Entry {
	s.version++
	e.Version = strconv.FormatUint(s.version, 10)
	s.changes[e.Key] = change{Put: &e}
	return e
}

func (s *stage) remove(key Key) { s.changes[key] = change{Delete: &key} }

// change is one step of the log. Frames hold them as JSON, one a line.
type change struct {
	Put    *Entry `json:"put,omitempty"`
	Delete *Key   `json:"delete,omitempty"`
}

func formatChanges(changes func(func(change) bool)) ([]byte, error) {
	var out []byte
	for c := range changes {
		line, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		out = append(append(out, line...), '\n')
	}
	return out, nil
}

func parseChanges(payload []byte) ([]change, error) {
	var out []change
	for line := range strings.Lines(string(payload)) {
		var c change
		if err := json.Unmarshal([]byte(line), &c); err != nil || (c.Put == nil) == (c.Delete == nil) {
			return nil, damage(fmt.Sprintf("a change of %d bytes cannot be understood", len(line)))
		}
		out = append(out, c)
	}
	return out, nil
}
