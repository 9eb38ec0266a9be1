// Package store keeps contracts and access keys: durably in one bbolt file,
// and whole in memory, because every S3 request asks for a key.
//
// Reads of single items never touch the file. Writes go through one goroutine,
// which takes the waiting operation and all that queued up behind it, runs them
// one after another on a view of the data ([Tx]), and commits what they changed
// in one database transaction. So
//
//   - an operation sees every earlier one, and no other runs beside it: it may
//     read, decide and write without a lock;
//   - sixteen callers cost about one sync to disk, not sixteen;
//   - [Store.Update] returns after the commit, and memory changes after it too:
//     nothing that was ever visible is lost by kill -9.
package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// ErrClosed is returned by writes after [Store.Close].
var ErrClosed = errors.New("the store is closed")

// maxGroup bounds one commit, and with it how long its first caller waits.
const maxGroup = 128

// initialMap is address space, not memory: while the file is smaller than it,
// growth never stops the readers for a remap.
const initialMap = 64 << 20

// Store is the database. Its methods may be called concurrently.
type Store struct {
	db      *bbolt.DB
	ops     chan *operation
	closing chan struct{}
	done    chan struct{}
	once    sync.Once

	mu    sync.RWMutex // held for writing by the writer alone, and only to publish
	index index
	// revision belongs to the writer.
	revision uint64
}

type operation struct {
	run  func(*Tx) error
	err  error
	done chan struct{}
}

func contractsBucket() []byte { return []byte("contracts") }
func keysBucket() []byte      { return []byte("keys") }

// keyPath is a key's place in the file. No name holds a "/", so a contract's
// keys are neighbours there, ordered by name.
func keyPath(contract, name string) []byte { return []byte(contract + "/" + name) }

// Open opens or creates the database file and loads it.
func Open(path string) (*Store, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{
		Timeout:         time.Second,
		NoFreelistSync:  true,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: initialMap,
	})
	if errors.Is(err, berrors.ErrTimeout) {
		return nil, fmt.Errorf("open %s: another process holds it; stop that one first", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s := &Store{
		db:      db,
		ops:     make(chan *operation, maxGroup),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
		index:   newIndex(),
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("load %s: %w", path, err), db.Close())
	}
	go s.write()
	return s, nil
}

func (s *Store) load() error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		contracts, err := tx.CreateBucketIfNotExists(contractsBucket())
		if err != nil {
			return err
		}
		keys, err := tx.CreateBucketIfNotExists(keysBucket())
		if err != nil {
			return err
		}
		s.revision = contracts.Sequence()
		if err := contracts.ForEach(func(name, data []byte) error {
			var c Contract
			if err := json.Unmarshal(data, &c); err != nil {
				return fmt.Errorf("contract %s: %w", name, err)
			}
			s.index.setContract(c.Name, &c)
			return nil
		}); err != nil {
			return err
		}
		return keys.ForEach(func(path, data []byte) error {
			k, err := decodeKey(data)
			if err != nil {
				return fmt.Errorf("key %s: %w", path, err)
			}
			s.index.setKey(keyID{k.Contract, k.Name}, &k)
			return nil
		})
	})
}

func decodeKey(data []byte) (Key, error) {
	var r keyRecord
	if err := json.Unmarshal(data, &r); err != nil {
		return Key{}, err
	}
	r.Secret = NewSecret(r.SecretAccessKey)
	return r.Key, nil
}

// Close commits what is queued and closes the file.
func (s *Store) Close() error {
	s.once.Do(func() { close(s.closing) })
	<-s.done
	return s.db.Close()
}

// Update runs an operation in the writer and returns after what it staged is
// durable. An operation that returns an error leaves no trace, and its error is
// returned as it is. Operations must be quick: all other writes wait.
func (s *Store) Update(run func(*Tx) error) error {
	op := &operation{run: run, done: make(chan struct{})}
	select {
	case s.ops <- op:
	case <-s.closing:
		return ErrClosed
	}
	select {
	case <-op.done:
		return op.err
	case <-s.done:
	}
	// The writer has ended: either it still served this operation, or never will.
	select {
	case <-op.done:
		return op.err
	default:
		return ErrClosed
	}
}

func (s *Store) write() {
	defer close(s.done)
	for {
		select {
		case op := <-s.ops:
			s.commit(s.gather(op))
		case <-s.closing:
			for {
				select {
				case op := <-s.ops:
					s.commit(s.gather(op))
				default:
					return
				}
			}
		}
	}
}

// gather takes whatever else is queued, without waiting for more.
func (s *Store) gather(first *operation) []*operation {
	group := []*operation{first}
	for len(group) < maxGroup {
		select {
		case op := <-s.ops:
			group = append(group, op)
		default:
			return group
		}
	}
	return group
}

func (s *Store) commit(group []*operation) {
	tx := newTx(&s.index, s.revision)
	for _, op := range group {
		op.err = tx.do(op.run)
	}
	if tx.changed() {
		if err := s.flush(tx); err != nil {
			// Even an operation that changed nothing may have decided by what
			// another of the group staged.
			for _, op := range group {
				if op.err == nil {
					op.err = fmt.Errorf("commit: %w", err)
				}
			}
		} else {
			s.publish(tx)
		}
	}
	for _, op := range group {
		close(op.done)
	}
}

func (s *Store) flush(tx *Tx) error {
	return s.db.Update(func(file *bbolt.Tx) error {
		contracts, keys := file.Bucket(contractsBucket()), file.Bucket(keysBucket())
		for name, c := range tx.contracts {
			var value any
			if c != nil {
				value = c
			}
			if err := put(contracts, []byte(name), value); err != nil {
				return err
			}
		}
		for id, k := range tx.keys {
			var value any
			if k != nil {
				value = keyRecord{Key: *k, SecretAccessKey: k.Secret.Reveal()}
			}
			if err := put(keys, keyPath(id.contract, id.name), value); err != nil {
				return err
			}
		}
		return contracts.SetSequence(tx.revision)
	})
}

func put(b *bbolt.Bucket, path []byte, value any) error {
	if value == nil {
		return b.Delete(path)
	}
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return b.Put(path, data)
}

func (s *Store) publish(tx *Tx) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, k := range tx.keys {
		s.index.setKey(id, k)
	}
	for name, c := range tx.contracts {
		s.index.setContract(name, c)
	}
	s.revision = tx.revision
}

// Contract returns a contract by name.
func (s *Store) Contract(name string) (Contract, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return deref(s.index.contracts[name])
}

// ContractByCode returns a contract by the code the service assigned.
func (s *Store) ContractByCode(code string) (Contract, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return deref(s.index.codes[code])
}

// Key returns a contract's key by name.
func (s *Store) Key(contract, name string) (Key, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return deref(s.index.keys[contract][name])
}

// Lookup returns the key with an access key id, and its contract.
func (s *Store) Lookup(accessKeyID string) (Key, Contract, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	k := s.index.ids[accessKeyID]
	if k == nil {
		return Key{}, Contract{}, false
	}
	c, ok := deref(s.index.contracts[k.Contract])
	return *k, c, ok
}

// KeyCount returns how many keys a contract has.
func (s *Store) KeyCount(contract string) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.index.keys[contract])
}

// Slot returns the keys of a slot, by name.
func (s *Store) Slot(contract, slot string) []Key {
	s.mu.RLock()
	defer s.mu.RUnlock()
	names := slices.Sorted(maps.Keys(s.index.slots[slotID{contract, slot}]))
	keys := make([]Key, len(names))
	for i, name := range names {
		keys[i] = *s.index.keys[contract][name]
	}
	return keys
}

// Contracts returns up to limit contracts that match, by name, starting behind
// the name given, and whether there are more. The file is in that order, so a
// page costs what it holds.
func (s *Store) Contracts(after string, limit int, match func(Contract) bool) (page []Contract, more bool, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(contractsBucket()).Cursor()
		for name, data := seekBehind(cursor, []byte(after)); name != nil; name, data = cursor.Next() {
			var c Contract
			if err := json.Unmarshal(data, &c); err != nil {
				return fmt.Errorf("contract %s: %w", name, err)
			}
			if !match(c) {
				continue
			}
			if len(page) == limit {
				more = true
				return nil
			}
			page = append(page, c)
		}
		return nil
	})
	return page, more, err
}

// Keys returns up to limit keys of a contract in the manner of [Store.Contracts].
func (s *Store) Keys(contract, after string, limit int) (page []Key, more bool, err error) {
	prefix := keyPath(contract, "")
	err = s.db.View(func(tx *bbolt.Tx) error {
		cursor := tx.Bucket(keysBucket()).Cursor()
		for path, data := seekBehind(cursor, keyPath(contract, after)); bytes.HasPrefix(path, prefix); path, data = cursor.Next() {
			if len(page) == limit {
				more = true
				return nil
			}
			k, err := decodeKey(data)
			if err != nil {
				return fmt.Errorf("key %s: %w", path, err)
			}
			page = append(page, k)
		}
		return nil
	})
	return page, more, err
}

func seekBehind(cursor *bbolt.Cursor, path []byte) (key, value []byte) {
	key, value = cursor.Seek(path)
	if key != nil && bytes.Equal(key, path) {
		return cursor.Next()
	}
	return key, value
}

func deref[T any](p *T) (T, bool) {
	if p == nil {
		var zero T
		return zero, false
	}
	return *p, true
}
