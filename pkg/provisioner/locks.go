package provisioner

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// locks keeps calls of this process on the same thing apart: many readers or
// one writer for each name. A caller waits no longer than its context.
type locks struct {
	mu    sync.Mutex
	named map[string]*lock
}

type lock struct {
	users int
	sem   *semaphore.Weighted
}

const everybody = 1 << 30

// request is a lock that a call wants.
type request struct {
	name   string
	weight int64
}

func shared(kind string, id fmt.Stringer) request {
	return request{kind + "/" + id.String(), 1}
}

func exclusive(kind string, id fmt.Stringer) request {
	return request{kind + "/" + id.String(), everybody}
}

// acquire takes the locks one after the other and returns what releases them.
// Every caller asks in the order contract, buckets by name, account, so no two
// wait for each other.
func (l *locks) acquire(ctx context.Context, requests ...request) (release func(), err error) {
	held := make([]func(), 0, len(requests))
	release = func() {
		for _, h := range slices.Backward(held) {
			h()
		}
	}
	for _, r := range requests {
		one := l.enter(r.name)
		if err := one.sem.Acquire(ctx, r.weight); err != nil {
			l.leave(r.name)
			release()
			return nil, fault.In(err, "another call on %s is still under way", r.name)
		}
		held = append(held, func() {
			one.sem.Release(r.weight)
			l.leave(r.name)
		})
	}
	return release, nil
}

func (l *locks) enter(name string) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.named == nil {
		l.named = map[string]*lock{}
	}
	one := l.named[name]
	if one == nil {
		one = &lock{sem: semaphore.NewWeighted(everybody)}
		l.named[name] = one
	}
	one.users++
	return one
}

func (l *locks) leave(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.named[name]; one != nil {
		if one.users--; one.users == 0 {
			delete(l.named, name)
		}
	}
}
