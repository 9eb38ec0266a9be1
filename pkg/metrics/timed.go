package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// timed measures requests. The transport below it reads an answer whole, so its
// body is in the time.
type timed struct {
	next http.RoundTripper
	took prometheus.Observer
}

// RoundTrip implements http.RoundTripper.
func (t timed) RoundTrip(r *http.Request) (*http.Response, error) {
	start := time.Now()
	answer, err := t.next.RoundTrip(r)
	t.took.Observe(time.Since(start).Seconds())
	return answer, err
}

// CloseIdleConnections lets http.Client.CloseIdleConnections through.
func (t timed) CloseIdleConnections() {
	if next, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		next.CloseIdleConnections()
	}
}
