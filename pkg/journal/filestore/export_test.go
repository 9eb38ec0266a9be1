package filestore

import (
	"errors"
	"time"
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
