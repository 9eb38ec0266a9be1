// Package filestore keeps the journal in a file, for a driver outside a cluster
// or with a volume.
//
// # The file
//
// It is a log of changes, which only one process may open, and all records are
// in memory. Writes that come while the disk is busy share the next flush, so
// sixteen callers pay for little more than one; a single caller writes at once,
// in its own goroutine.
//
// # Who can read it
//
// The file holds keys, so one whose mode lets others read or change it is refused.
// Group access is accepted as Kubernetes gives it to the files of a volume, for the
// pod's fsGroup: the directory is set-group-ID, the file has its group, and the
// process is in it. Anyone who can write the directory can replace the file. Still its
// mode is not looked at: many volumes are open to all, and mounted for one pod only.
//
// # Encryption
//
// With a file of keys each change is encrypted by AES-256-GCM (crypto/cipher), with
// a nonce of its own. The first key of the file encrypts and the others are for what
// was encrypted before, so a key is changed by another first line. A log that is not
// wholly encrypted by the first key is rewritten when it is opened.
//
// # Rewrites
//
// When most of the file is outdated it is replaced by one that holds what is live.
// That is written beside it while calls go on, which wait only for the last few
// changes to be copied into room that is there already. If it fails, the old file is
// used and grows, and a rewrite is tried again when what is outdated has doubled, and
// now and then by Check, so that it is well soon after the cause has gone. Check, the
// log and the observed operation "rewrite" tell of it. Nothing but the disk bounds the
// file then: to refuse writes would lose revocations in order to save space.
package filestore

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// Store is a journal.Store in a file.
type Store struct {
	path    string
	logger  klog.Logger
	observe func(operation string, err error)
	index   *journal.Index
	keys    keys

	queueing sync.Mutex
	queue    []*write

	disk      mutex // held while the log is written; guards what follows
	log       *log
	closed    bool
	broken    error         // the last write's failure; nil when the disk takes writes
	rewriting chan struct{} // closed when the rewrite under way ends; nil if there is none
	outdated  bool          // of what was read, some is not encrypted by the first key
	stuck     error         // why the last rewrite failed; nil if it did not
	tried     time.Time     // when that was
}

// mutex is one that can be waited for beside something else.
type mutex chan struct{}

func (m mutex) Lock()   { m <- struct{}{} }
func (m mutex) Unlock() { <-m }

const (
	// mostBehind is how much of what was written during a rewrite is copied while
	// calls wait. Where calls write more than that during each of mostRounds of
	// copying, it is what they have written during the last.
	mostBehind = 64 << 10
	mostRounds = 20
	// retryRewrite is how long Check waits before it tries a rewrite again.
	retryRewrite = 5 * time.Minute
)

// write is one caller's change. apply must not stage anything when it refuses.
type write struct {
	apply func(*stage) error
	done  chan struct{} // closed when err tells the outcome
	err   error
}

// Open opens the journal in the file at path, or makes it. A file that is
// damaged, cut short, locked by another driver, open to others or cannot be
// written is refused and left as it is. observe, which may be nil, is told of every
// durable write and every rewrite with the outcome.
func Open(ctx context.Context, path string, observe func(operation string, err error)) (*Store, error) {
	return OpenEncrypted(ctx, path, "", observe)
}

// OpenEncrypted is Open for a file that is encrypted by the keys in keyFile, or is
// to be; "" is none. A file that none of them opens is refused.
func OpenEncrypted(ctx context.Context, path, keyFile string, observe func(operation string, err error)) (*Store, error) {
	if observe == nil {
		observe = func(string, error) {}
	}
	s := &Store{path: path, logger: klog.FromContext(ctx), observe: observe, index: journal.NewIndex(), disk: make(mutex, 1)}
	var err error
	if s.keys, err = readKeys(keyFile); err != nil {
		return nil, fault.Wrap(fault.FailedPrecondition, err, "journal.keyFile %s cannot be used: %s", keyFile, reason(err))
	}
	if s.log, err = openLog(path, s.replay); err != nil {
		return nil, openError(path, err)
	}
	if s.outdated {
		s.disk.Lock()
		s.rewrite()
		s.disk.Unlock()
	}
	return s, nil
}

// openError says in the user's words why a journal was not opened.
func openError(path string, err error) error {
	if errors.As(err, new(refusal)) {
		return fault.Wrap(fault.FailedPrecondition, err, "journal %s %s", path, err)
	}
	return fault.Wrap(fault.FailedPrecondition, err, "journal %s cannot be opened for reading and writing (%s); let the driver's user write the file and its directory", path, reason(err))
}

func (s *Store) writeError(err error) error {
	return fault.Wrap(fault.Unavailable, err, "journal %s cannot be written (%s); nothing was lost, and the driver goes on when it can be written again", s.path, reason(err))
}

// reason is the operating system's word for a fault, without paths and numbers.
func reason(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}

// Close ends all writing and lets go of the file.
func (s *Store) Close() error {
	s.disk.Lock()
	defer s.disk.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.awaitRewrite()
	return s.log.close()
}

// Get implements journal.Store.
func (s *Store) Get(_ context.Context, key journal.Key) (journal.Entry, error) {
	return s.index.Get(key)
}

// Index implements journal.Store.
func (s *Store) Index(context.Context) (*journal.Index, error) { return s.index, nil }

// Check implements journal.Store. The file must still be where it was opened,
// and have been rewritten when that was due. After a failed write one is tried,
// as large as any: it deletes what is not there, so that nothing stays.
func (s *Store) Check(context.Context) error {
	s.disk.Lock()
	misplaced, broken := s.log.check(s.log.file), s.broken != nil
	if s.stuck != nil && time.Since(s.tried) > retryRewrite {
		s.rewrite()
	}
	stuck := s.stuck
	s.disk.Unlock()
	if misplaced != nil {
		if errors.As(misplaced, new(refusal)) {
			return openError(s.path, misplaced)
		}
		return s.writeError(misplaced)
	}
	if broken {
		probe := journal.Key{Kind: journal.Probe, ID: strings.Repeat("x", 64<<10)}
		if err := s.commit("check", func(st *stage) error { st.remove(probe); return nil }); err != nil {
			return err
		}
	}
	return stuck
}

// Put implements journal.Store.
func (s *Store) Put(_ context.Context, e journal.Entry) (version uint64, err error) {
	operation := "update"
	if e.Version == 0 {
		operation = "create"
	}
	err = s.commit(operation, func(st *stage) error {
		if st.version(e.Key) != e.Version {
			return journal.LostRace(e)
		}
		version = st.put(e)
		return nil
	})
	return version, err
}

// Delete implements journal.Store.
func (s *Store) Delete(_ context.Context, entries ...journal.Entry) error {
	return s.commit("delete", func(st *stage) error {
		for _, e := range entries {
			if have := st.version(e.Key); have != 0 && have != e.Version {
				return journal.LostRace(e)
			}
		}
		for _, e := range entries {
			st.remove(e.Key)
		}
		return nil
	})
}

// commit makes a change durable, together with all that wait for the disk as
// well: the one that gets it writes for all. It does not end with a context. The wait
// is short, and the caller has to know how the write ended.
func (s *Store) commit(operation string, apply func(*stage) error) error {
	w := &write{apply: apply, done: make(chan struct{})}
	s.queueing.Lock()
	s.queue = append(s.queue, w)
	s.queueing.Unlock()
	select {
	case <-w.done:
	case s.disk <- struct{}{}:
		s.queueing.Lock()
		group := s.queue
		s.queue = nil
		s.queueing.Unlock()
		s.commitGroup(group)
		for _, w := range group {
			close(w.done)
		}
		s.disk.Unlock()
	}
	s.observe(operation, w.err)
	return w.err
}

func (s *Store) commitGroup(group []*write) {
	s.broken = s.tryGroup(group)
	full := errors.Is(s.broken, syscall.ENOSPC) || errors.Is(s.broken, syscall.EDQUOT)
	if full && s.rewriting != nil { // whose draft has taken the room
		s.awaitRewrite()
		s.broken = s.tryGroup(group)
	}
	if s.log.end > s.log.due {
		s.rewrite()
	}
}

// tryGroup writes for a group. It returns why the disk does not take writes.
func (s *Store) tryGroup(group []*write) error {
	st := &stage{index: s.index, versions: map[journal.Key]uint64{}, last: s.log.sequence << versionBits}
	for _, w := range group {
		w.err = w.apply(st)
	}
	if len(st.changes) == 0 { // all were refused
		return s.broken
	}
	if err := s.append(st.changes); err != nil {
		for _, w := range group {
			w.err = cmp.Or(w.err, err) // those that were refused stay so
		}
		return err
	}
	for _, c := range st.changes {
		s.apply(c)
	}
	return nil
}

func (s *Store) append(changes []change) error {
	if s.closed {
		return fault.New(fault.Unavailable, "the driver is stopping")
	}
	var payload bytes.Buffer
	encoder := json.NewEncoder(&payload)
	for _, c := range changes {
		c, err := s.keys.seal(c)
		if err == nil {
			err = encoder.Encode(c)
		}
		if err != nil {
			return fault.Wrap(fault.Internal, err, "journal record cannot be written as JSON")
		}
	}
	if err := s.log.append(payload.Bytes()); err != nil {
		return s.writeError(err)
	}
	return nil
}

// replay takes what a frame holds into memory.
func (s *Store) replay(frame io.Reader) error {
	lines := bufio.NewScanner(frame)
	lines.Buffer(nil, math.MaxInt)
	for lines.Scan() {
		c, err := readChange(lines.Bytes())
		current := true
		if err == nil {
			c, current, err = s.keys.open(c)
		}
		if errors.As(err, new(refusal)) {
			return err
		}
		s.outdated = s.outdated || !current
		if err != nil || (c.Put == nil) == (c.Delete == nil) {
			return damage("a change cannot be understood")
		}
		s.apply(c)
	}
	return lines.Err()
}

func (s *Store) apply(c change) {
	if c.Put != nil {
		s.index.Put(*c.Put)
	} else {
		s.index.Remove(*c.Delete)
	}
}

// rewrite begins a rewrite, unless one is under way. The disk is held. What is live
// is read without it, and may be newer than where the draft follows the log from:
// it is the same after all that came since.
func (s *Store) rewrite() {
	if s.rewriting != nil || s.closed {
		return
	}
	s.rewriting = make(chan struct{})
	place, number, end := s.log.place, s.log.sequence-1, s.log.end
	go func() {
		draft, err := place.draft(number, s.index.All(), s.keys)
		if err == nil {
			if err = s.replace(draft, end); err != nil {
				draft.discard()
			}
		}
		s.rewritten(err)
	}()
}

// awaitRewrite waits for the rewrite under way, which needs the disk to end.
func (s *Store) awaitRewrite() {
	if rewriting := s.rewriting; rewriting != nil {
		s.disk.Unlock()
		<-rewriting
		s.disk.Lock()
	}
}

// replace lets a draft follow the log, from where the log was when the draft was
// begun, and puts it in the log's place.
func (s *Store) replace(draft *log, from int64) error {
	from, err := s.approach(draft, from)
	if err != nil {
		return err
	}
	old := s.log
	if err = draft.replace(old, from); err == nil {
		s.log = draft
	}
	s.disk.Unlock()
	if err == nil {
		_ = old.close() // which can take a while
	}
	return err
}

// approach lets a draft follow the log while calls go on. If it succeeds it returns
// up to where, with the disk held: what is left is little, and there is room for it.
func (s *Store) approach(draft *log, from int64) (int64, error) {
	for round := 0; ; round++ {
		s.disk.Lock()
		to := s.log.end
		if behind := to - from; behind <= mostBehind && draft.end+behind+frameHead <= draft.size || round == mostRounds {
			return from, nil
		}
		s.disk.Unlock()
		if err := draft.follow(s.log, from, to); err != nil {
			return 0, err
		}
		from = to
	}
}

// rewritten notes how a rewrite has ended, and logs what changes about that.
func (s *Store) rewritten(err error) {
	s.disk.Lock()
	defer s.disk.Unlock()
	close(s.rewriting)
	s.rewriting = nil
	s.observe("rewrite", err)
	switch {
	case err != nil && s.stuck == nil:
		s.logger.Info("The journal's file cannot be rewritten without what is outdated, and grows until it can be", "file", s.path, "reason", reason(err))
	case err == nil && s.stuck != nil:
		s.logger.Info("The journal's file was rewritten", "file", s.path)
	}
	s.stuck = nil
	if err != nil {
		s.stuck = fault.Wrap(fault.Unavailable, err, "journal %s cannot be rewritten without what is outdated (%s), and grows; make room for a second file beside it, and let the driver's user write its directory", s.path, reason(err))
		s.tried = time.Now()
		s.log.due = s.log.end + s.log.end - s.log.base
	}
}

// stage is what a group of writes will change: those that come later in the
// group see it, the rest of the world not yet.
type stage struct {
	index    *journal.Index
	changes  []change
	versions map[journal.Key]uint64 // of what changes; 0 is deleted
	last     uint64                 // the version that was given last
}

// versionBits leave room for that many changes in one frame of the log, whose
// number is the rest of a version: so no record ever has a version that
// another had before it under the same key.
const versionBits = 16

// version returns a key's, or 0 if it has no entry.
func (s *stage) version(key journal.Key) uint64 {
	if version, changed := s.versions[key]; changed {
		return version
	}
	e, _ := s.index.Get(key)
	return e.Version
}

func (s *stage) put(e journal.Entry) (version uint64) {
	s.last++
	e.Version, s.versions[e.Key] = s.last, s.last
	s.changes = append(s.changes, change{Put: &e})
	return s.last
}

func (s *stage) remove(key journal.Key) {
	s.versions[key] = 0
	s.changes = append(s.changes, change{Delete: &key})
}

// change is one step of the log. Frames hold them as JSON, one a line.
type change struct {
	Put    *journal.Entry `json:"put,omitempty"`
	Delete *journal.Key   `json:"delete,omitempty"`
	// Sealed is the encrypted JSON of a change, and stands alone.
	Sealed []byte `json:"sealed,omitempty"`
}

// readChange reads the JSON of a change, of which it keeps nothing.
func readChange(text []byte) (c change, err error) {
	put, begun := bytes.CutPrefix(text, []byte(`{"put":`))
	put, ended := bytes.CutSuffix(put, []byte(`}`))
	if e, ok := journal.ReadEntry(put); begun && ended && ok {
		return change{Put: &e}, nil
	}
	err = json.Unmarshal(text, &c)
	return c, err
}
