package harness

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
)

// Line is what lies between a driver and its services: every call of the
// driver goes through one of its proxies, in one count, and the answer of the
// n-th call can be lost after the service has done what it was asked.
type Line struct {
	mu    sync.Mutex
	calls int
	drop  int  // the call whose answer is lost, counted from 1; 0 for none
	rest  bool // and those of all calls after it
	down  bool // requests are lost too
	hook  func(call int)
	log   []string
}

// Proxy returns the address of a proxy to target. In what the target answers,
// old is replaced by new: so an address that a service announces leads through
// a proxy too.
func (l *Line) Proxy(t testing.TB, target, old, new string) string {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 32}
	t.Cleanup(transport.CloseIdleConnections)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, lost, down := l.count(r)
		if down {
			panic(http.ErrAbortHandler)
		}
		out := r.Clone(r.Context())
		out.RequestURI, out.URL.Scheme, out.URL.Host = "", to.Scheme, to.Host
		answer, err := transport.RoundTrip(out) // with the Host that was signed
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer func() { _ = answer.Body.Close() }()
		if lost {
			_, _ = io.Copy(io.Discard, answer.Body)
			if hook := l.onLost(); hook != nil {
				hook(n)
			}
			panic(http.ErrAbortHandler) // the connection is closed without a byte
		}
		for name, values := range answer.Header {
			w.Header()[name] = values
		}
		if old == "" {
			w.WriteHeader(answer.StatusCode)
			_, _ = io.Copy(w, answer.Body)
			return
		}
		body, _ := io.ReadAll(answer.Body)
		w.Header().Del("Content-Length")
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(bytes.ReplaceAll(body, []byte(old), []byte(new)))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func (l *Line) onLost() func(int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hook
}

// OnLost has f called with the number of each call whose answer is lost, when
// the service has done it and the driver does not know. Heal ends that.
func (l *Line) OnLost(f func(call int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hook = f
}

func (l *Line) count(r *http.Request) (n int, lost, down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	l.log = append(l.log, r.Method+" "+r.URL.Path)
	return l.calls, l.drop != 0 && (l.calls == l.drop || l.rest && l.calls > l.drop), l.down
}

// Drop loses the answer of the n-th call from now, and with rest those of all
// after it, until Heal.
func (l *Line) Drop(n int, rest bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls, l.log, l.drop, l.rest = 0, nil, n, rest
}

// Heal loses nothing any more and counts anew.
func (l *Line) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls, l.log, l.drop, l.rest, l.down, l.hook = 0, nil, 0, false, false, nil
}

// Cut loses requests as well, until Heal.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
}

// Calls are the calls since the last Drop or Heal.
func (l *Line) Calls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.log...)
}
