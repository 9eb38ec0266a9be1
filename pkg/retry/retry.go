// Package retry makes a call again that may succeed when it is repeated.
//
// Every call that a provider makes can be repeated. So one that got no answer,
// or that the service was too busy for, is made a few times, ever later and
// never at the same moment as everybody else's, and no later than the service
// asks or the caller's deadline allows.
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
		if f, ok := errors.AsType[*fault.Error](err); ok {
			pause = max(pause, f.RetryAfter)
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
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
// (RFC 9110, section 10.2.3; dates are not used by storage services).
func After(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
