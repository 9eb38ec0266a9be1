package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"k8s.io/klog/v2"
)

// readyFor is how long an answer about readiness is given again, so that
// probes do not become load on the storage service.
const readyFor = time.Second

// readyTimeout bounds one look at the backends and the journal.
const readyTimeout = 5 * time.Second

// NotReady is why a call could not be served now, by the parts of the driver that
// are away.
type NotReady map[string]error

// Error tells all that is known. It is for the driver's own user.
func (n NotReady) Error() string {
	reasons := make([]string, 0, len(n))
	for _, part := range n.parts() {
		reasons = append(reasons, n[part].Error())
	}
	return strings.Join(reasons, "; ")
}

func (n NotReady) parts() []string { return slices.Sorted(maps.Keys(n)) }

// Readiness asks check for the parts that are away, at most once a second and by
// one caller at a time, and logs whenever the answer is another one.
func Readiness(log klog.Logger, check func(context.Context) map[string]error) func(context.Context) error {
	var mu sync.Mutex
	var asked time.Time
	var last error
	said := ""
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(asked) < readyFor {
			return last
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		last = nil
		now := ""
		if away := check(ctx); len(away) > 0 {
			last = NotReady(away)
			now = last.Error()
		}
		asked = time.Now()
		switch {
		case now != "" && now != said:
			log.Info("Not ready", "reason", now)
		case now != said:
			log.Info("Ready")
		}
		said = now
		return last
	}
}

// HTTP answers /metrics, /healthz (the process is up) and /readyz (it could
// serve a call now, or which of its parts could not). Whoever asks is not known,
// so no more is told.
func HTTP(metrics http.Handler, ready func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready(r.Context()); err != nil {
			var away NotReady
			errors.As(err, &away)
			say(w, http.StatusServiceUnavailable, "not ready: "+strings.Join(away.parts(), ", "))
			return
		}
		say(w, http.StatusOK, "ok")
	})
	return mux
}

// What a listener takes of its clients, which are probes and scrapers.
const (
	maxClients = 256
	maxHeader  = 16 << 10
	slowClient = 5 * time.Second
	idleClient = 30 * time.Second
)

// ServeHTTP answers at an address until ctx ends; "" is none. stop is called if
// the listener fails, because a driver without its probes is not well.
func ServeHTTP(ctx context.Context, stop func(), address string, handler http.Handler) (at string, done <-chan error, err error) {
	ended := make(chan error, 1)
	if address == "" {
		ended <- nil
		return "", ended, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, fmt.Errorf("http endpoint: %w", err)
	}
	s := &http.Server{
		Handler: handler, ReadTimeout: slowClient, WriteTimeout: readyTimeout + slowClient, IdleTimeout: idleClient, MaxHeaderBytes: maxHeader,
	}
	context.AfterFunc(ctx, func() { _ = s.Close() }) // probes have nothing to finish
	go func() {
		err := s.Serve(netutil.LimitListener(listener, maxClients))
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		ended <- err
		stop()
	}()
	return listener.Addr().String(), ended, nil
}

func say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n"))
}
