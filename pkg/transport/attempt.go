package transport

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// What is read of an answer. The driver reads documents and lists, never objects.
const (
	maxHeader = 64 << 10
	maxAnswer = 8 << 20  // of a document, or a page of a list
	maxList   = 64 << 20 // of a list that is kept as a whole, all pages together
)

// Bounded returns a client over a transport. It follows no redirect: that would
// carry signatures and tokens elsewhere and turn a write into a read. An attempt
// is not sent if the guard of its context says no, and ends, with its body, after
// [AttemptTimeout]; one that changes nothing also ends with its call. What it returns in place of an answer is, where it says more
// than net/http, a fault whose text completes "the call ...".
func Bounded(next http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     over{next, attempt},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// over is a transport that does something with each request to another one.
type over struct {
	next http.RoundTripper
	trip func(http.RoundTripper, *http.Request) (*http.Response, error)
}

// RoundTrip implements http.RoundTripper.
func (o over) RoundTrip(r *http.Request) (*http.Response, error) { return o.trip(o.next, r) }

// CloseIdleConnections is what http.Client.CloseIdleConnections calls.
func (o over) CloseIdleConnections() {
	if next, ok := o.next.(interface{ CloseIdleConnections() }); ok {
		next.CloseIdleConnections()
	}
}

// unsent is a request that is not made.
func unsent(r *http.Request, err error) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, err
}

// attempt makes one attempt at a service.
func attempt(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return unsent(r, err)
	}
	if err := May(r.Context(), AttemptTimeout); err != nil {
		return unsent(r, final(fault.Unavailable, err, "was not sent: %s", err))
	}
	ctx := r.Context()
	if changes(r) {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, end := context.WithTimeout(ctx, AttemptTimeout)
	defer end()
	answer, err := next.RoundTrip(r.WithContext(ctx))
	if err == nil {
		answer.Request = r
		answer, err = whole(answer, func([]byte) error {
			if answer.StatusCode >= 300 && answer.StatusCode < 400 {
				return redirected(answer)
			}
			return nil
		})
	}
	if ended := ctx.Err(); err != nil && ended != nil {
		err = ended // not its cause, which the one who cancelled the call knows
	}
	return answer, err
}

// whole returns an answer with its body in memory, if check does not mind it.
func whole(answer *http.Response, check func(body []byte) error) (*http.Response, error) {
	body, err := read(answer)
	_ = answer.Body.Close()
	if err == nil {
		err = check(body)
	}
	if err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

// changes reports whether a request may change something. Such an attempt is not
// given up with its call: the service would go on with it, while the driver holds
// that it is over and begins the next, or lets another process do so.
func changes(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Context().Value(readingKey{}) == nil
}

type readingKey struct{}

// Reading returns a context for calls that change nothing, whatever their method.
func Reading(ctx context.Context) context.Context {
	return context.WithValue(ctx, readingKey{}, true)
}

type roomKey struct{}

// Listing returns a context for the calls that read one list, or one page of
// any length, which is kept as a whole: together their answers have a bound.
func Listing(ctx context.Context) context.Context {
	room := &atomic.Int64{}
	room.Store(maxList)
	return context.WithValue(ctx, roomKey{}, room)
}

// read reads a body.
func read(answer *http.Response) ([]byte, error) {
	if answer.Request.Method == http.MethodHead { // which tells the length of another answer
		return nil, nil
	}
	room, listing := answer.Request.Context().Value(roomKey{}).(*atomic.Int64)
	if !listing {
		room = &atomic.Int64{}
		room.Store(maxAnswer)
	}
	most := max(room.Load(), 0)
	body, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	if err == nil && room.Add(-int64(len(body))) < 0 {
		err = final(fault.Unavailable, nil, "was answered with more than a service of its kind sends; check the backend's address")
	}
	return body, err
}

// ErrRedirect is the cause of the fault that stands for a redirect.
var ErrRedirect = errors.New("redirect")

// redirected is the fault of an answer that sends the driver elsewhere.
func redirected(answer *http.Response) error {
	if region := answer.Header.Get("X-Amz-Bucket-Region"); region != "" {
		return final(fault.FailedPrecondition, ErrRedirect, "was answered with a redirect to region %s, where the bucket is; correct the region and the address of the backend's endpoint", fault.Said(region))
	}
	where := ""
	if to, err := answer.Location(); err == nil && to.Host != answer.Request.URL.Host {
		_, token, _ := strings.Cut(answer.Request.Header.Get("Authorization"), " ")
		where = " to " + fault.Said(to.Host, token)
	}
	return final(fault.Unavailable, ErrRedirect, "was answered with a redirect%s (HTTP %d), and none is followed; set the backend's address to the service's own, and check what stands in front of it", where, answer.StatusCode)
}

func final(kind fault.Kind, cause error, format string, args ...any) error {
	f := fault.Wrap(kind, cause, format, args...)
	f.Final = true
	return f
}

// What a list may take: more pages than any service needs for what the driver
// reads, and longer than any call lasts.
const (
	maxPages = 10_000
	listTime = 10 * time.Minute
)

// Pages calls page with the token of each page of a list, "" for the first one,
// until there are no more.
func Pages(ctx context.Context, page func(ctx context.Context, token string) (next string, more bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	seen := map[[sha256.Size]byte]bool{} // of the tokens, which may be long
	for token := ""; ; {
		next, more, err := page(ctx, token)
		if err != nil || !more {
			return err
		}
		sum := sha256.Sum256([]byte(next))
		if next == "" || seen[sum] || len(seen) == maxPages {
			return final(fault.Unavailable, nil, "the service's list has no end; check the backend's address, and tell the service's operator")
		}
		seen[sum], token = true, next
	}
}
