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

// lookFor is how long an answer about a part of the driver is given again, so
// that probes do not become load on what it is about.
const lookFor = time.Second

// lookTimeout bounds one look.
const lookTimeout = 5 * time.Second

// Away are the parts of the driver that cannot be used now, with the reasons.
type Away map[string]error

// Error tells all that is known. It is for the driver's own user.
func (a Away) Error() string {
	reasons := make([]string, 0, len(a))
	for _, part := range a.parts() {
		reasons = append(reasons, a[part].Error())
	}
	return strings.Join(reasons, "; ")
}

func (a Away) parts() []string { return slices.Sorted(maps.Keys(a)) }

// Looks asks check for the parts that are away, at most once a second and by one
// caller at a time. It logs each change of a part, and returns [Away] if there
// are any.
func Looks(log klog.Logger, check func(context.Context) Away) func(context.Context) error {
	var mu sync.Mutex
	var asked time.Time
	away := Away{}
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(asked) >= lookFor {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
			defer cancel()
			before := away
			away = check(ctx)
			asked = time.Now()
			tell(log, before, away)
		}
		if len(away) == 0 {
			return nil
		}
		return away
	}
}

// tell logs what has changed between two looks.
func tell(log klog.Logger, before, now Away) {
	for _, part := range now.parts() {
		if had := before[part]; had == nil || had.Error() != now[part].Error() {
			log.Info("Not available", "part", part, "reason", now[part].Error())
		}
	}
	for _, part := range before.parts() {
		if now[part] == nil {
			log.Info("Available again", "part", part)
		}
	}
}

// HTTP answers /metrics, /healthz (the process is up) and /readyz (it can take
// calls now, or which of its parts cannot). The caller is not known, so it is told
// no more.
func HTTP(metrics http.Handler, ready func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready(r.Context()); err != nil {
			var away Away
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
		Handler: handler, ReadTimeout: slowClient, WriteTimeout: lookTimeout + slowClient, IdleTimeout: idleClient, MaxHeaderBytes: maxHeader,
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
