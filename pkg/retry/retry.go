// Package retry makes a call again that may succeed when it is repeated.
//
// Every call that a provider makes can be repeated. So one that got no answer,
// or that the service was too busy for, is made a few times, ever later and
// never at the same moment as all others, no sooner than the service asks
// and no later than the caller's deadline allows. A service that asks for more
// patience than a caller has is not waited for here.
package retry

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

const (
	attempts  = 3
	firstWait = 100 * time.Millisecond
	// patience is the longest that a service is waited for: a caller that waits may
	// hold up others.
	patience = 5 * time.Second
	// longest bounds what a service can ask its callers to wait.
	longest = 5 * time.Minute
)

// Do calls do until it succeeds, fails for good or there is no time left. It
// returns the last error.
func Do(ctx context.Context, do func() error) error {
	wait := firstWait
	for attempt := 1; ; attempt++ {
		err := do()
		kind := fault.KindOf(err)
		if kind != fault.Unavailable && kind != fault.RateLimited || attempt == attempts || ctx.Err() != nil {
			return err
		}
		pause := wait/2 + rand.N(wait/2) //nolint:gosec // chance keeps no secret
		f, told := errors.AsType[*fault.Error](err)
		if told {
			pause = max(pause, f.RetryAfter)
		}
		if deadline, ok := ctx.Deadline(); told && f.Final || pause > patience || ok && time.Until(deadline) <= pause {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
		wait *= 2
	}
}

// After is what an answer's Retry-After header says, zero if it says nothing
// that can be used (RFC 9110, section 10.2.3).
func After(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(max(seconds, 0), int64(longest/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(at), 0), longest)
	}
	return 0
}
