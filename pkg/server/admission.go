package server

import (
	"context"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What one process has under way. Of one contract alone it is half: as much as a
// sidecar does at once (v0.2.2: 40 workers for each kind of object).
const (
	maxCalls   = 160
	maxWaiting = 512
)

// admission lets a number of calls in at once, and others wait. A contract may
// have as many places as it leaves free: so there is always room for another
// contract's first calls, however many one makes.
type admission struct {
	mu      sync.Mutex
	calls   shares
	waiting shares
	queue   []*waiter // none of them would fit now
}

type waiter struct {
	contract string
	in       chan struct{} // closed when it is let in
}

func newAdmission(calls, waiting int) *admission {
	return &admission{calls: shares{free: calls, of: map[string]int{}}, waiting: shares{free: waiting, of: map[string]int{}}}
}

// shares are places, and how many each contract has.
type shares struct {
	free int
	of   map[string]int
}

func (s *shares) take(contract string) bool {
	if s.of[contract] >= s.free {
		return false
	}
	s.free--
	s.of[contract]++
	return true
}

func (s *shares) give(contract string) {
	s.free++
	if s.of[contract]--; s.of[contract] == 0 {
		delete(s.of, contract)
	}
}

var errFull = status.Error(codes.ResourceExhausted, "the driver has as many calls under way for this contract as it can have; retry")

// enter waits for a place while ctx lives. leave gives it back.
func (a *admission) enter(ctx context.Context, contract string) (leave func(), err error) {
	leave = func() { a.leave(contract) }
	a.mu.Lock()
	switch {
	case a.calls.take(contract):
		a.mu.Unlock()
		return leave, nil
	case !a.waiting.take(contract):
		a.mu.Unlock()
		return nil, errFull
	}
	w := &waiter{contract, make(chan struct{})}
	a.queue = append(a.queue, w)
	a.mu.Unlock()
	select {
	case <-w.in:
		return leave, nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.queue, w); i >= 0 {
		a.queue = slices.Delete(a.queue, i, i+1)
		a.waiting.give(contract)
		return nil, errFull
	}
	return leave, nil // let in at the same moment; the call finds that its time is over
}

func (a *admission) leave(contract string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls.give(contract)
	a.queue = slices.DeleteFunc(a.queue, func(w *waiter) bool {
		fits := a.calls.take(w.contract)
		if fits {
			a.waiting.give(w.contract)
			close(w.in)
		}
		return fits
	})
}

// admit lets calls of COSI in. A health check need not wait.
func (i interceptor) admit(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if strings.HasPrefix(info.FullMethod, "/grpc.") {
		return handle(ctx, req)
	}
	leave, err := i.admission.enter(ctx, i.ContractOf(req))
	if err != nil {
		return nil, err
	}
	defer leave()
	return handle(ctx, req)
}

// ContractOf is the contract that a request is about, as far as it can be told
// without looking into a journal; "" for any other request.
func ContractOf(req any) string { return subjectOf(req).contract }
