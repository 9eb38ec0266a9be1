package server

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// readyFor is how long an answer about readiness is given again, so that
// probes do not become load on the storage service.
const readyFor = time.Second

// readyTimeout bounds one look at the backends and the journal.
const readyTimeout = 5 * time.Second

// Readiness asks check, at most once a second and by one caller at a time.
func Readiness(check func(context.Context) error) func(context.Context) error {
	var mu sync.Mutex
	var asked time.Time
	var last error
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(asked) < readyFor {
			return last
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
		defer cancel()
		last = check(ctx)
		asked = time.Now()
		return last
	}
}

// HTTP answers /metrics, /healthz (the process is up) and /readyz (it could
// serve a call now, or why not).
func HTTP(metrics http.Handler, ready func(context.Context) error) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready(r.Context()); err != nil {
			say(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		say(w, http.StatusOK, "ok")
	})
	return mux
}

func say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text + "\n"))
}
