package filestore

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// Rewrite rewrites the file now and returns how that ended.
func (s *Store) Rewrite() error {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.rewrite()
	s.awaitRewrite()
	return s.stuck
}

// Settle waits for the rewrite under way.
func (s *Store) Settle() {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.awaitRewrite()
}

// Later makes it seem that the last rewrite was long ago.
func (s *Store) Later() {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.tried = time.Time{}
}

// Break makes it seem that the last write has failed.
func (s *Store) Break() {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.broken = errors.New("broken by a test")
}

// Approach makes a draft, lets the caller write on, and lets the draft follow the log until
// only what calls wait for is left. It returns how much that is, and by how much the
// draft's file would have to grow for it.
func (s *Store) Approach(write func()) (left, grows int64, err error) {
	s.disk.Lock()
	place, number, end := s.log.place, s.log.sequence-1, s.log.end
	s.disk.Unlock()
	draft, err := place.draft(number, s.index.All(), s.keys)
	if err != nil {
		return 0, 0, err
	}
	defer draft.discard()
	write()
	from, err := s.approach(draft, end)
	if err != nil {
		return 0, 0, err
	}
	defer s.disk.Unlock()
	left, size := s.log.end-from, draft.size
	err = draft.follow(s.log, from, s.log.end)
	return left, draft.size - size, err
}

// MostBehind is the most that calls wait for.
const MostBehind = mostBehind

// KeepBusy writes as much again and again, whenever anything else lets the disk go, until
// stop is called.
func (s *Store) KeepBusy(size int) (stop func()) {
	done := make(chan struct{})
	value, _ := json.Marshal(strings.Repeat("x", size))
	var group sync.WaitGroup
	for range 2 { // of which one waits while the other writes
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				s.disk.Lock()
				_ = s.tryGroup([]*write{{apply: func(st *stage) error {
					st.put(journal.Entry{Key: journal.Key{Kind: journal.Buckets, ID: "main.team-a.busy"}, Value: value})
					return nil
				}}})
				s.disk.Unlock()
			}
		})
	}
	return func() {
		close(done)
		group.Wait()
	}
}
