package retry_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/retry"
)

func TestAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for text, want := range map[string]time.Duration{
			"":                          0,
			"7":                         7 * time.Second,
			"0":                         0,
			"-7":                        0,
			"3600":                      5 * time.Minute,
			"9223372036854775807":       5 * time.Minute,
			"99999999999999999999999":   5 * time.Minute,
			"-99999999999999999999999":  0,
			"soon":                      0,
			"1.5":                       0,
			"Mon, 02 Jan 2006 15:04:05": 0, // it lacks GMT
			now.Add(3 * time.Second).UTC().Format(http.TimeFormat):  3 * time.Second,
			now.Add(-3 * time.Second).UTC().Format(http.TimeFormat): 0,
			now.AddDate(70, 0, 0).UTC().Format(http.TimeFormat):     5 * time.Minute,
		} {
			if got := retry.After(http.Header{"Retry-After": {text}}); got != want {
				t.Errorf("%q: %s, want %s", text, got, want)
			}
		}
	})
}

// A caller that waits may hold a lock: a service that asks for patience is waited for
// a few seconds, and not at all where the same call would fail alike.
func TestPatience(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    *fault.Error
		after  time.Duration
		calls  int
		within time.Duration
	}{
		"an hour":   {fault.New(fault.Unavailable, "busy"), time.Hour, 1, 0},
		"a second":  {fault.New(fault.RateLimited, "busy"), time.Second, 3, 3 * time.Second},
		"no time":   {fault.New(fault.Unavailable, "busy"), 0, 3, time.Second},
		"for good":  {fault.New(fault.Internal, "broken"), 0, 1, 0},
		"as before": {&fault.Error{Kind: fault.Unavailable, Final: true}, 0, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c.err.RetryAfter = c.after
				calls, began := 0, time.Now()
				err := retry.Do(context.Background(), func() error { calls++; return fault.In(c.err, "team") })
				if err == nil || calls != c.calls || time.Since(began) > c.within {
					t.Errorf("%v after %d calls in %s, want %d in %s", err, calls, time.Since(began), c.calls, c.within)
				}
			})
		})
	}
}
