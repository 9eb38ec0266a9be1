package site

import (
	"context"
	"sync"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// A call that can be answered from the journal waits so long for a look at the
// service.
const lookTimeout = 5 * time.Second

// silence is how long an address that cannot be reached is not looked at again:
// a sidecar that starts while a service is down repeats a call for everything
// there is, one after the other.
const silence = 10 * time.Second

// patience is how many looks in a row an address may leave without an answer
// before it counts as one that cannot be reached. One slow look says nothing of
// the next.
const patience = 3

// quiet remembers which addresses do not answer.
type quiet struct {
	mu        sync.Mutex
	addresses map[string]*silent
}

type silent struct {
	until time.Time
	looks int // without an answer, in a row
}

// Look lets do ask at an address, in a short time. At one that cannot be reached
// it is Unavailable at once.
func (s *Sites) Look(ctx context.Context, address string, do func(context.Context) error) error {
	return s.Ask(ctx, address, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		return do(ctx)
	})
}

// Ask is Look for a caller that waits for a slow answer.
func (s *Sites) Ask(ctx context.Context, address string, do func(context.Context) error) error {
	if s.quiet.silent(address) {
		return fault.New(fault.Unavailable, "%s could not be reached a moment ago; the call is retried", address)
	}
	err := do(ctx)
	if ctx.Err() == nil {
		s.quiet.learn(address, err)
	}
	return err
}

// silent reports whether an address is left alone now. After its silence one caller
// asks, and the others go by what that one learns.
func (q *quiet) silent(address string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	one, now := q.addresses[address], time.Now()
	if one == nil || one.until.IsZero() {
		return false
	}
	is := now.Before(one.until)
	if !is {
		one.until = now.Add(silence)
	}
	return is
}

func (q *quiet) learn(address string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !fault.Unanswered(err) {
		delete(q.addresses, address)
		return
	}
	if q.addresses == nil {
		q.addresses = map[string]*silent{}
	}
	one := q.addresses[address]
	if one == nil {
		one = &silent{}
		q.addresses[address] = one
	}
	if one.looks++; one.looks >= patience || fault.Unconnected(err) {
		one.until = time.Now().Add(silence)
	}
}
