package harness

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// Fate is what becomes of a call.
type Fate int

// The fates of a call.
const (
	// Deliver: the service does it and its answer arrives.
	Deliver Fate = iota
	// LoseAnswer: the service does it and the caller never hears.
	LoseAnswer
	// LoseRequest: the service never hears.
	LoseRequest
	// CutAnswer: the service does it, and half of the answer arrives.
	CutAnswer
	// Busy: something in front of the service answers that it is unavailable for
	// a second (HTTP 503).
	Busy
	// Throttled: the same, that there are too many calls (HTTP 429).
	Throttled
	// Broken: the same, that it has failed (HTTP 500).
	Broken
)

// Line is what lies between a driver and its services: every call of the
// driver goes through one of its proxies, in one count.
type Line struct {
	mu     sync.Mutex
	calls  []string
	whole  []string // with their queries
	plan   func(call int) Fate
	onLoss func()
}

// Proxy returns the address of a proxy to target. In what the target answers,
// from is replaced by into: so an address that a service announces leads through
// a proxy too.
func (l *Line) Proxy(t testing.TB, target, from, into string) string {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fate, onLoss := l.next(r)
		lose := func() {
			onLoss()
			panic(http.ErrAbortHandler) // the connection is closed without a byte
		}
		switch fate {
		case LoseRequest:
			lose()
		case Busy, Throttled, Broken:
			if fate != Broken {
				w.Header().Set("Retry-After", "1")
			}
			w.WriteHeader(map[Fate]int{Busy: http.StatusServiceUnavailable, Throttled: http.StatusTooManyRequests, Broken: http.StatusInternalServerError}[fate])
			return
		}
		out := r.Clone(r.Context())
		out.RequestURI, out.URL.Scheme, out.URL.Host = "", to.Scheme, to.Host
		answer, err := transport.RoundTrip(out) // with the Host that was signed
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if fate == LoseAnswer {
			lose()
		}
		maps.Copy(w.Header(), answer.Header)
		if from != "" {
			w.Header().Del("Content-Length")
			body = bytes.ReplaceAll(body, []byte(from), []byte(into))
		}
		if fate == CutAnswer {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
			w.WriteHeader(answer.StatusCode)
			_, _ = w.Write(body[:len(body)/2])
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func (l *Line) next(r *http.Request) (fate Fate, onLoss func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, r.Method+" "+r.URL.Path)
	l.whole = append(l.whole, r.Method+" "+r.URL.RequestURI())
	if l.plan != nil {
		fate = l.plan(len(l.calls))
	}
	return fate, l.onLoss
}

// Plan counts from 1 again and lets plan say what becomes of each call, from 1.
// onLoss, which may be nil, is called when one is about to be lost.
func (l *Line) Plan(plan func(call int) Fate, onLoss func()) {
	if onLoss == nil {
		onLoss = func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls, l.whole, l.plan, l.onLoss = nil, nil, plan, onLoss
}

// Lose counts from 1 again and loses the answer to the n-th call: the service does it
// and the caller never hears. 0 loses none, -1 every request before the service hears.
func (l *Line) Lose(n int) {
	l.Plan(func(call int) Fate {
		switch {
		case n < 0:
			return LoseRequest
		case call == n:
			return LoseAnswer
		}
		return Deliver
	}, nil)
}

// Heal counts from 1 again and loses nothing.
func (l *Line) Heal() { l.Plan(nil, nil) }

// Cut loses every request.
func (l *Line) Cut() { l.Plan(func(int) Fate { return LoseRequest }, nil) }

// Calls are the calls since the last plan.
func (l *Line) Calls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.calls)
}

// Queries are the calls since the last plan, with their queries.
func (l *Line) Queries() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.whole)
}
