package drift

import (
	"context"
	"net/http"
	"sync/atomic"
)

type countKey struct{}

// count returns a context whose calls are counted, where they go through a
// transport of [Counted].
func count(ctx context.Context) (context.Context, *atomic.Int64) {
	n := &atomic.Int64{}
	return context.WithValue(ctx, countKey{}, n), n
}

// Counted is a transport that counts the calls made while drift is looked for,
// every attempt of them. Other calls it passes on as they are.
func Counted(next http.RoundTripper) http.RoundTripper { return counted{next} }

type counted struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	if n, ok := r.Context().Value(countKey{}).(*atomic.Int64); ok {
		n.Add(1)
	}
	return c.next.RoundTrip(r)
}

// CloseIdleConnections lets http.Client.CloseIdleConnections through.
func (c counted) CloseIdleConnections() {
	if next, ok := c.next.(interface{ CloseIdleConnections() }); ok {
		next.CloseIdleConnections()
	}
}
