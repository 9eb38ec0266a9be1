package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io/fs"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// File is the Store of a driver outside a cluster: one bbolt database, which
// only this process may open. Writes that wait at the same time share one
// commit, so sixteen callers pay for little more than one disk flush; a single
// caller never waits for others to come.
type File struct {
	db      *bolt.DB
	path    string
	observe func(operation string, err error)

	pending chan *write
	closed  chan struct{} // closed by Close: no new writes
	drained chan struct{} // closed by the committer when it has ended
	close   sync.Once

	mu     sync.Mutex
	counts map[RecordKind]int
	broken error // the last commit's failure; nil when the disk takes writes
}

// write is one caller's change within a commit. apply must not change anything
// when it refuses.
type write struct {
	apply   func(*bolt.Tx) error
	err     error
	changed map[RecordKind]int
	done    chan error
}

const (
	schema      = "1"
	lockTimeout = time.Second
	// maxGroup bounds how many callers share a commit.
	maxGroup = 256
)

var (
	metaBucket    = []byte("meta")
	recordsBucket = []byte("records")
	// refsBucket is the index for Dependents: "<key referred to>\x00<key referring>".
	refsBucket = []byte("refs")
	schemaKey  = []byte("schema")
	probeKey   = []byte("probe")
)

// OpenFile opens the journal in the file at path, or makes it. A file that is
// damaged, cut short, locked by another driver or cannot be written is refused
// and left as it is. observe, which may be nil, hears of every durable write
// with the outcome.
func OpenFile(path string, observe func(operation string, err error)) (*File, error) {
	if observe == nil {
		observe = func(string, error) {}
	}
	f := &File{
		path:    path,
		observe: observe,
		pending: make(chan *write, maxGroup),
		closed:  make(chan struct{}),
		drained: make(chan struct{}),
		counts:  map[RecordKind]int{},
	}
	if err := f.open(); err != nil {
		if f.db != nil {
			_ = guard(f.db.Close)
		}
		return nil, err
	}
	go f.commitLoop()
	return f, nil
}

// open looks at the whole file before it trusts it and before it writes
// anything: bbolt itself checks its two head pages only, takes the older one
// when the newer is damaged, and starts anew on an empty file.
func (f *File) open() error {
	if _, err := os.Stat(f.path); errors.Is(err, fs.ErrNotExist) {
		if err := create(f.path); err != nil {
			return f.openError(err)
		}
	}
	if err := guard(f.verify); err != nil {
		return f.openError(err)
	}
	var err error
	f.db, err = openBolt(f.path, bolt.Options{FreelistType: bolt.FreelistMapType, InitialMmapSize: 1 << 20})
	if err == nil {
		err = guard(func() error { return checkFreePages(f.db) })
	}
	return f.openError(err)
}

// openBolt is bolt.Open that turns a panic over a damaged file into an error
// and then lets go of the file and its lock.
func openBolt(path string, o bolt.Options) (*bolt.DB, error) {
	var file *os.File
	o.Timeout = lockTimeout
	o.OpenFile = func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	var db *bolt.DB
	err := guard(func() (err error) {
		db, err = bolt.Open(path, 0o600, &o)
		return err
	})
	if err != nil && file != nil {
		// A mapping that is left behind keeps the file, and with it the lock.
		_ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
		_ = file.Close()
	}
	return db, err
}

// openError says in the user's words why the journal was not opened; nil stays nil.
func (f *File) openError(err error) error {
	var said *fault.Error
	var damage *damage
	switch {
	case err == nil:
		return nil
	case errors.As(err, &said):
		return said
	case errors.Is(err, bolterrors.ErrTimeout):
		return fault.Wrap(fault.FailedPrecondition, err, "journal %s is in use by another process; run one driver for each journal file", f.path)
	case errors.As(err, &damage), errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return fault.Wrap(fault.FailedPrecondition, err, "journal %s is damaged (%s) and was left as it is; restore it from a backup, or move it away to begin anew", f.path, err)
	}
	return fault.Wrap(fault.FailedPrecondition, err, "journal %s cannot be opened for reading and writing (%s); let the driver's user write the file and its directory", f.path, reason(err))
}

// create makes an empty journal under another name first, so that there is
// never half a journal at path.
func create(path string) error {
	draft := path + ".new"
	if err := os.RemoveAll(draft); err != nil {
		return err
	}
	db, err := openBolt(draft, bolt.Options{})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{metaBucket, recordsBucket, refsBucket} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return tx.Bucket(metaBucket).Put(schemaKey, []byte(schema))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	return os.Rename(draft, path)
}

// verify reads every page that holds data, every record and the index.
func (f *File) verify() error {
	if err := checkHeads(f.path); err != nil {
		return err
	}
	db, err := openBolt(f.path, bolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = guard(db.Close) }()
	info, err := os.Stat(f.path)
	if err != nil {
		return err
	}
	return db.View(func(tx *bolt.Tx) error {
		if tx.Size() > info.Size() {
			return &damage{fmt.Sprintf("it should have at least %d bytes and has %d", tx.Size(), info.Size())}
		}
		meta, records, refs := tx.Bucket(metaBucket), tx.Bucket(recordsBucket), tx.Bucket(refsBucket)
		if meta == nil || records == nil || refs == nil {
			return &damage{"it is not a journal"}
		}
		if v := meta.Get(schemaKey); string(v) != schema {
			return fault.New(fault.FailedPrecondition, "journal %s has format %q and this driver knows format %s; use the driver that wrote it", f.path, v, schema)
		}
		indexed := 0
		err := refs.ForEach(func(_, _ []byte) error { indexed++; return nil })
		if err != nil {
			return err
		}
		err = records.ForEach(func(k, v []byte) error {
			e, err := unseal(k, v)
			if err != nil {
				return err
			}
			if !bytes.Equal(records.Get(k), v) {
				return &damage{fmt.Sprintf("record %s cannot be found by its key", e.Key)}
			}
			f.counts[e.Key.Kind]++
			indexed -= len(e.Refs)
			for _, ref := range e.Refs {
				if refs.Get(refKey(ref, e.Key)) == nil {
					return &damage{fmt.Sprintf("record %s is missing in the index", e.Key)}
				}
			}
			return nil
		})
		if err == nil && indexed != 0 {
			return &damage{"the index names records that are not there"}
		}
		return err
	})
}

// checkFreePages counts: pages that hold data, free ones, the list of free
// ones and the two heads are all there are. A damaged list would have bbolt
// write over a page that is in use.
func checkFreePages(db *bolt.DB) error {
	return db.View(func(tx *bolt.Tx) error {
		stats := tx.Cursor().Bucket().Stats()
		inUse := stats.BranchPageN + stats.BranchOverflowN + stats.LeafPageN + stats.LeafOverflowN
		free := db.Stats().FreePageN + db.Stats().PendingPageN
		pageSize := db.Info().PageSize
		list := (16+8*free)/pageSize + 1 // as bbolt allocates it
		if all := int(tx.Size()) / pageSize; 2+inUse+free+list != all {
			return &damage{"its list of free pages is wrong"}
		}
		return nil
	})
}

// checkHeads checks both of bbolt's head pages (its internal/common/meta.go:
// 56 bytes after a page header of 16, then their FNV-1a sum). Each lies within
// one disk sector, so a crash does not tear it: a wrong sum is damage, and
// going on with the older head would silently drop the last write.
func checkHeads(path string) error {
	const header, body, sum = 16, 56, 8
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	for page := range int64(2) {
		head := make([]byte, header+body+sum)
		if _, err := file.ReadAt(head, page*int64(os.Getpagesize())); err != nil {
			return &damage{"it is cut short"}
		}
		h := fnv.New64a()
		_, _ = h.Write(head[header : header+body])
		if h.Sum64() != binary.NativeEndian.Uint64(head[header+body:]) {
			return &damage{fmt.Sprintf("the checksum of its head page %d is wrong", page)}
		}
	}
	return nil
}

func (f *File) writeError(cause error) error {
	return fault.Wrap(fault.Unavailable, cause, "journal %s cannot be written (%s); nothing was lost, and the driver goes on when it can be written again", f.path, reason(cause))
}

// reason is the operating system's word for a fault, without paths and numbers.
func reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// Close ends all writing and lets go of the file.
func (f *File) Close() error {
	var err error
	f.close.Do(func() {
		close(f.closed)
		<-f.drained
		err = guard(f.db.Close)
	})
	return err
}

// Get implements Store.
func (f *File) Get(_ context.Context, key Key) (e Entry, err error) {
	err = f.view(func(tx *bolt.Tx) error {
		e, err = get(tx, key)
		return err
	})
	return e, err
}

// Dependents implements Store.
func (f *File) Dependents(_ context.Context, key Key, limit int) (out []Entry, err error) {
	err = f.view(func(tx *bolt.Tx) error {
		prefix := refKey(key, Key{})
		cursor := tx.Bucket(refsBucket).Cursor()
		for k, _ := cursor.Seek(prefix); bytes.HasPrefix(k, prefix) && (limit == 0 || len(out) < limit); k, _ = cursor.Next() {
			kind, id, _ := bytes.Cut(k[len(prefix):], []byte("/"))
			e, err := get(tx, Key{RecordKind(kind), string(id)})
			if err != nil {
				return err
			}
			out = append(out, e)
		}
		return nil
	})
	return out, err
}

// Count implements Store.
func (f *File) Count(_ context.Context, kind RecordKind) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[kind], nil
}

// Check implements Store. A disk that took the last write and a file that can
// be read are well. After a failed write it tries one itself, of a size for
// which bbolt needs new pages.
func (f *File) Check(ctx context.Context) error {
	if err := f.view(func(*bolt.Tx) error { return nil }); err != nil {
		return err
	}
	f.mu.Lock()
	broken := f.broken
	f.mu.Unlock()
	if broken == nil {
		return nil
	}
	err := f.commit(ctx, "check", func(tx *bolt.Tx, _ map[RecordKind]int) error {
		return tx.Bucket(metaBucket).Put(probeKey, make([]byte, 64<<10))
	})
	if err != nil {
		return err
	}
	return f.commit(ctx, "check", func(tx *bolt.Tx, _ map[RecordKind]int) error {
		return tx.Bucket(metaBucket).Delete(probeKey)
	})
}

// Create implements Store.
func (f *File) Create(ctx context.Context, e Entry) (Entry, error) {
	err := f.commit(ctx, "create", func(tx *bolt.Tx, changed map[RecordKind]int) error {
		if tx.Bucket(recordsBucket).Get([]byte(e.Key.String())) != nil {
			return fault.New(fault.Mismatch, "journal record %s is there already", e.Key)
		}
		if err := put(tx, &e); err != nil {
			return err
		}
		changed[e.Key.Kind]++
		for _, ref := range e.Refs {
			if err := tx.Bucket(refsBucket).Put(refKey(ref, e.Key), nil); err != nil {
				return err
			}
		}
		return nil
	})
	return e, err
}

// Update implements Store.
func (f *File) Update(ctx context.Context, e Entry) (Entry, error) {
	err := f.commit(ctx, "update", func(tx *bolt.Tx, _ map[RecordKind]int) error {
		present, err := unchanged(tx, e)
		if err != nil {
			return err
		}
		if !present {
			return fault.New(fault.Mismatch, "journal record %s is gone", e.Key)
		}
		return put(tx, &e)
	})
	return e, err
}

// Delete implements Store.
func (f *File) Delete(ctx context.Context, entries ...Entry) error {
	return f.commit(ctx, "delete", func(tx *bolt.Tx, changed map[RecordKind]int) error {
		for _, e := range entries {
			if _, err := unchanged(tx, e); err != nil {
				return err
			}
		}
		for _, e := range entries {
			if tx.Bucket(recordsBucket).Get([]byte(e.Key.String())) == nil {
				continue
			}
			if err := tx.Bucket(recordsBucket).Delete([]byte(e.Key.String())); err != nil {
				return err
			}
			changed[e.Key.Kind]--
			for _, ref := range e.Refs {
				if err := tx.Bucket(refsBucket).Delete(refKey(ref, e.Key)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// commit hands a change to the committer and waits until it is durable. Once
// it is queued the wait is short and goes on even if the caller gives up:
// whoever asked for a write has to know how it ended.
func (f *File) commit(ctx context.Context, operation string, apply func(*bolt.Tx, map[RecordKind]int) error) error {
	w := &write{changed: map[RecordKind]int{}, done: make(chan error, 1)}
	w.apply = func(tx *bolt.Tx) error {
		clear(w.changed)
		return apply(tx, w.changed)
	}
	select {
	case <-f.closed:
		return fault.New(fault.Unavailable, "the driver is stopping")
	default:
	}
	select {
	case f.pending <- w:
	case <-f.closed:
		return fault.New(fault.Unavailable, "the driver is stopping")
	case <-ctx.Done():
		return ctx.Err()
	}
	var err error
	select {
	case err = <-w.done:
	case <-f.drained:
		select {
		case err = <-w.done:
		default:
			err = fault.New(fault.Unavailable, "the driver is stopping")
		}
	}
	f.observe(operation, err)
	return err
}

// commitLoop takes the write that waits longest and whatever else waits by
// then into one commit. The longer a flush takes, the more callers share the next.
func (f *File) commitLoop() {
	defer close(f.drained)
	group := make([]*write, 0, maxGroup)
	for {
		group = group[:0]
		select {
		case w := <-f.pending:
			group = append(group, w)
		case <-f.closed:
			return
		}
	gather:
		for len(group) < maxGroup {
			select {
			case w := <-f.pending:
				group = append(group, w)
			default:
				break gather
			}
		}
		f.commitGroup(group)
	}
}

func (f *File) commitGroup(group []*write) {
	err := guard(func() error {
		return f.db.Update(func(tx *bolt.Tx) error {
			for _, w := range group {
				if w.err = w.apply(tx); w.err != nil && !isRefusal(w.err) {
					return w.err
				}
			}
			return nil
		})
	})
	f.mu.Lock()
	f.broken = err
	if err == nil {
		for _, w := range group {
			if w.err == nil {
				for kind, n := range w.changed {
					f.counts[kind] += n
				}
			}
		}
	}
	f.mu.Unlock()
	for _, w := range group {
		switch {
		case isRefusal(w.err):
			w.done <- w.err
		case err != nil:
			w.done <- f.writeError(err)
		default:
			w.done <- nil
		}
	}
}

// isRefusal tells a change that was refused before it touched anything from a
// failure of the database, which takes the whole commit back.
func isRefusal(err error) bool { return fault.Is(err, fault.Mismatch) }

func (f *File) view(read func(*bolt.Tx) error) error {
	err := guard(func() error { return f.db.View(read) })
	if err == nil {
		return nil
	}
	if _, isFault := errors.AsType[*fault.Error](err); isFault {
		return err
	}
	return fault.Wrap(fault.Unavailable, err, "journal %s cannot be read (%s)", f.path, reason(err))
}

// damage is what is wrong with a file's content.
type damage struct{ what string }

func (d *damage) Error() string { return d.what }

// guard turns what bbolt does on a damaged file — a panic, or a memory fault
// where the file was cut short beneath its mapping — into an error.
func guard(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if what := recover(); what != nil {
			err = &damage{"a page cannot be understood"}
		}
	}()
	return do()
}

// An entry is stored as a checksum (CRC-32C, 4 bytes), its version (8 bytes)
// and JSON. The checksum covers the key too, so an exchanged value shows.

type storedEntry struct {
	Refs  []string        `json:"refs,omitempty"`
	Value json.RawMessage `json:"value"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const sealBytes = 12

// put writes e under a version that no entry of the database has had before,
// so that a record removed and made again is not taken for the one that was read.
func put(tx *bolt.Tx, e *Entry) error {
	version, err := tx.Bucket(recordsBucket).NextSequence()
	if err != nil {
		return err
	}
	s := storedEntry{Value: e.Value}
	for _, ref := range e.Refs {
		s.Refs = append(s.Refs, ref.String())
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	key := []byte(e.Key.String())
	out := make([]byte, sealBytes, sealBytes+len(text))
	binary.BigEndian.PutUint64(out[4:], version)
	out = append(out, text...)
	binary.BigEndian.PutUint32(out, checksum(key, out[4:]))
	e.Version = strconv.FormatUint(version, 10)
	return tx.Bucket(recordsBucket).Put(key, out)
}

func checksum(key, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, rest)
}

func unseal(key, sealed []byte) (Entry, error) {
	if len(sealed) < sealBytes || checksum(key, sealed[4:]) != binary.BigEndian.Uint32(sealed) {
		return Entry{}, &damage{fmt.Sprintf("the checksum of record %q is wrong", key)}
	}
	var s storedEntry
	if err := json.Unmarshal(sealed[sealBytes:], &s); err != nil {
		return Entry{}, &damage{fmt.Sprintf("record %q is not JSON", key)}
	}
	e := Entry{Key: parseKey(key), Value: s.Value, Version: strconv.FormatUint(binary.BigEndian.Uint64(sealed[4:]), 10)}
	for _, ref := range s.Refs {
		e.Refs = append(e.Refs, parseKey([]byte(ref)))
	}
	return e, nil
}

func parseKey(text []byte) Key {
	kind, id, _ := bytes.Cut(text, []byte("/"))
	return Key{RecordKind(kind), string(id)}
}

func get(tx *bolt.Tx, key Key) (Entry, error) {
	text := []byte(key.String())
	sealed := tx.Bucket(recordsBucket).Get(text)
	if sealed == nil {
		return Entry{}, fault.New(fault.NotFound, "journal has no record %s", key)
	}
	e, err := unseal(text, sealed)
	if err != nil {
		return Entry{}, fault.Wrap(fault.Internal, err, "journal is damaged: %s; restore it from a backup", err)
	}
	return e, nil
}

// unchanged reports whether the database has the entry, and Mismatch if it is
// not the one that e was read as.
func unchanged(tx *bolt.Tx, e Entry) (bool, error) {
	sealed := tx.Bucket(recordsBucket).Get([]byte(e.Key.String()))
	if sealed == nil {
		return false, nil
	}
	if strconv.FormatUint(binary.BigEndian.Uint64(sealed[4:]), 10) != e.Version {
		return false, fault.New(fault.Mismatch, "journal record %s has changed meanwhile", e.Key)
	}
	return true, nil
}

func refKey(to, from Key) []byte {
	out := append([]byte(to.String()), 0)
	if from == (Key{}) {
		return out
	}
	return append(out, from.String()...)
}
