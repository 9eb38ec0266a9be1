package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/retry"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// pipes is a network without time of its own.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	p <- there
	return here, nil
}

// played runs a test with a service, in a time of its own. asked is what it was
// asked.
func played(t *testing.T, answer http.HandlerFunc, test func(t *testing.T, c *http.Client, asked *atomic.Int32)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network, asked := make(pipes), &atomic.Int32{}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the client has left
			answer(w, r)
		})}
		ended := make(chan error, 1)
		go func() { ended <- s.Serve(network) }()
		c := transport.Bounded(&http.Transport{DialContext: network.dial})
		test(t, c, asked)
		c.CloseIdleConnections()
		close(network)
		_ = <-ended // it was closed
		_ = s.Close()
		time.Sleep(3 * time.Hour) // until the service has noticed
	})
}

// ask makes a call and returns what was answered, and when.
func ask(ctx context.Context, t *testing.T, c *http.Client) (text string, took time.Duration, err error) {
	t.Helper()
	return askWith(ctx, t, c, http.MethodDelete)
}

func askWith(ctx context.Context, t *testing.T, c *http.Client, method string) (text string, took time.Duration, err error) {
	t.Helper()
	began := time.Now()
	request, err := http.NewRequestWithContext(ctx, method, "http://service/", strings.NewReader("body"))
	must(t, err)
	answer, err := c.Do(request)
	if err != nil {
		return "", time.Since(began), err
	}
	body, err := io.ReadAll(answer.Body)
	must(t, answer.Body.Close())
	return string(body), time.Since(began), err
}

func silence(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// drip sends the beginning of an answer, and then one byte a second.
func drip(w http.ResponseWriter, _ *http.Request) {
	for {
		if _, err := io.WriteString(w, "x"); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		time.Sleep(time.Second)
	}
}

func stall(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "2")
	_, _ = io.WriteString(w, "x")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// An attempt ends with its body, or before.
func TestAttemptsEnd(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{"silence": silence, "a body that stalls": stall, "a byte a second": drip} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			played(t, answer, func(t *testing.T, c *http.Client, _ *atomic.Int32) {
				_, took, err := ask(context.Background(), t, c)
				if err == nil || fault.Silence(err) != "timeout" || took != transport.AttemptTimeout || !fault.Unanswered(err) {
					t.Errorf("after %s: %v", took, err)
				}
				// The caller's own end comes first where nothing is changed.
				for method, reading := range map[string]func(context.Context) context.Context{
					http.MethodGet:  func(ctx context.Context) context.Context { return ctx },
					http.MethodPost: transport.Reading,
				} {
					ctx, cancel := context.WithTimeout(reading(context.Background()), 3*time.Second)
					defer cancel()
					_, took, err = askWith(ctx, t, c, method)
					if !errors.Is(err, context.DeadlineExceeded) || took != 3*time.Second {
						t.Errorf("%s with a deadline: after %s: %v", method, took, err)
					}
					ctx, give := context.WithCancelCause(reading(context.Background()))
					time.AfterFunc(2*time.Second, func() { give(errors.New("a cause of the caller's own")) })
					_, took, err = askWith(ctx, t, c, method)
					if !errors.Is(err, context.Canceled) || took != 2*time.Second {
						t.Errorf("%s given up: after %s: %v", method, took, err)
					}
				}
			})
		})
	}
}

// What may have changed something is not given up with its call, and nothing more
// is sent.
func TestChangesAreNotGivenUp(t *testing.T) {
	t.Parallel()
	slow := func(after time.Duration) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { time.Sleep(after); _, _ = io.WriteString(w, "done") }
	}
	for name, c := range map[string]struct {
		after, canceled, deadline time.Duration
		took                      time.Duration
		done                      bool
	}{
		"canceled":                        {10 * time.Second, 2 * time.Second, time.Minute, 10 * time.Second, true},
		"a deadline":                      {10 * time.Second, time.Minute, 5 * time.Second, 10 * time.Second, true},
		"canceled, and no answer":         {time.Hour, 2 * time.Second, 2 * time.Hour, transport.AttemptTimeout, false},
		"a deadline before no answer":     {time.Hour, time.Minute, 5 * time.Second, transport.AttemptTimeout, false},
		"an answer before the call's end": {time.Second, 2 * time.Second, 5 * time.Second, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			played(t, slow(c.after), func(t *testing.T, client *http.Client, asked *atomic.Int32) {
				ctx, cancel := context.WithTimeout(context.Background(), c.deadline)
				defer cancel()
				time.AfterFunc(c.canceled, cancel)
				text, took, err := ask(ctx, t, client)
				if (err == nil) != c.done || took != c.took || c.done && text != "done" {
					t.Errorf("%q after %s: %v", text, took, err)
				}
				<-ctx.Done()
				if _, took, err := ask(ctx, t, client); err == nil || took != 0 || asked.Load() != 1 {
					t.Errorf("another attempt: after %s, asked %d times: %v", took, asked.Load(), err)
				}
				time.Sleep(c.after) // the service ends too
			})
		})
	}
}

// The guard is asked before each attempt, for all the time it can take. What it
// refuses is not sent, and not tried again.
func TestGuard(t *testing.T) {
	t.Parallel()
	played(t, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, c *http.Client, asked *atomic.Int32) {
		var lost error
		var times []time.Duration
		ctx := transport.Guarded(context.Background(), func(d time.Duration) error { times = append(times, d); return lost })
		if _, _, err := ask(ctx, t, c); err != nil || len(times) != 1 || times[0] != transport.AttemptTimeout || asked.Load() != 1 {
			t.Errorf("%v; asked the guard for %v, the service %d times", err, times, asked.Load())
		}
		lost = errors.New("the lease is another's")
		err := retry.Do(ctx, func() error {
			_, _, err := ask(ctx, t, c)
			return fault.NoAnswer(err, "DeleteUser", "the service")
		})
		if !fault.Is(err, fault.Unavailable) || !errors.Is(err, lost) || !strings.Contains(err.Error(), "was not sent: the lease is another's") || fault.Unanswered(err) {
			t.Errorf("got %s: %v", fault.KindOf(err), err)
		}
		if len(times) != 2 || asked.Load() != 1 {
			t.Errorf("asked the guard %d times, and the service %d times", len(times), asked.Load())
		}
	})
}

// A list that is kept as a whole has one bound for all its pages.
func TestListing(t *testing.T) {
	t.Parallel()
	page := strings.Repeat("x", 5<<20)
	played(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) }, func(t *testing.T, c *http.Client, _ *atomic.Int32) {
		pages := 0
		err := transport.Pages(transport.Listing(context.Background()), func(ctx context.Context, token string) (string, bool, error) {
			_, _, err := ask(ctx, t, c)
			pages++
			return token + "x", true, err
		})
		if pages != 13 || err == nil || fault.Unanswered(err) { // 64 MiB are 12.8 of them
			t.Errorf("after %d pages: %v", pages, err)
		}
		if _, _, err := ask(context.Background(), t, c); err != nil {
			t.Errorf("a list's bound is another call's: %v", err)
		}
	})
}

func TestPages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		next  func(int) (string, bool)
		pages int
		ends  bool
	}{
		"one":              {func(int) (string, bool) { return "", false }, 1, true},
		"three":            {func(n int) (string, bool) { return "abc"[:n], n < 3 }, 3, true},
		"the same":         {func(int) (string, bool) { return "a", true }, 2, false},
		"a circle":         {func(n int) (string, bool) { return "abcabc"[n-1 : n], true }, 4, false},
		"more, not which":  {func(int) (string, bool) { return "", true }, 1, false},
		"always another":   {func(n int) (string, bool) { return strings.Repeat("x", n), true }, 10_001, false},
		"no more, a token": {func(int) (string, bool) { return "a", false }, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			err := transport.Pages(t.Context(), func(context.Context, string) (string, bool, error) {
				n++
				next, more := c.next(n)
				return next, more, nil
			})
			if n != c.pages || (err == nil) != c.ends {
				t.Errorf("%d pages: %v", n, err)
			}
		})
	}
	// A page that takes a minute is no reason to go on for a day.
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := transport.Pages(context.Background(), func(ctx context.Context, token string) (string, bool, error) {
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
			}
			return token + "x", true, ctx.Err()
		})
		if !fault.Is(err, fault.Unavailable) || time.Since(began) > 20*time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
