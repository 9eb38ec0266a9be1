// Package lock keeps the calls of one process on the same thing apart: many
// readers or one writer for each name, for no longer than a caller's context.
package lock

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// Names are locks by name. The zero value has none that is taken.
type Names struct {
	mu    sync.Mutex
	named map[string]*lock
}

type lock struct {
	users int
	sem   *semaphore.Weighted
}

const all = 1 << 30

// Request is a lock that a call wants.
type Request struct {
	name   string
	weight int64
}

// Shared asks for a lock that others share.
func Shared(kind string, id fmt.Stringer) Request { return Request{kind + " " + id.String(), 1} }

// Exclusive asks for a lock that no other has.
func Exclusive(kind string, id fmt.Stringer) Request { return Request{kind + " " + id.String(), all} }

// Acquire takes the locks one after the other and returns what releases them.
// Callers who take several ask in the same order, so that no two wait for each
// other. Unavailable or Canceled if ctx ends before.
func (n *Names) Acquire(ctx context.Context, requests ...Request) (release func(), err error) {
	held := make([]func(), 0, len(requests))
	release = func() {
		for _, h := range slices.Backward(held) {
			h()
		}
	}
	for _, r := range requests {
		one := n.enter(r.name)
		if err := one.sem.Acquire(ctx, r.weight); err != nil {
			n.leave(r.name)
			release()
			return nil, fault.In(err, "another call on %s is still under way", r.name)
		}
		held = append(held, func() {
			one.sem.Release(r.weight)
			n.leave(r.name)
		})
	}
	return release, nil
}

func (n *Names) enter(name string) *lock {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.named == nil {
		n.named = map[string]*lock{}
	}
	one := n.named[name]
	if one == nil {
		one = &lock{sem: semaphore.NewWeighted(all)}
		n.named[name] = one
	}
	one.users++
	return one
}

func (n *Names) leave(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if one := n.named[name]; one != nil {
		if one.users--; one.users == 0 {
			delete(n.named, name)
		}
	}
}
