package sanity

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// call is one RPC of the run.
type call struct {
	method  string // the RPC's name without its service
	request string // what was asked, shortened
	bytes   string // what was asked, to tell two requests apart
	buckets int    // how many buckets the request names
	code    codes.Code
	message string
	details int
	gaveUp  bool // the caller did not wait for the answer
	hung    bool // there was none
	crashed bool // the connection was lost before there was one
	quiet   bool // the answer is not judged
}

func (c call) String() string {
	text := fmt.Sprintf("%s(%s) answered %s", c.method, c.request, c.code)
	if c.message != "" {
		text += ": " + shorten(c.message)
	}
	return text
}

// recorder sees every RPC of a session.
type recorder struct {
	clock   clock
	timeout time.Duration
	secrets *secrets

	mu    sync.Mutex
	calls []call
	// names are those that each bucket_id was first answered for, notOurs if it
	// was answered for two; accounts are the same of each account_id.
	names, accounts map[string]string
}

const notOurs = ""

// errShared is why a bucket is not deleted.
var errShared = errors.New("the bucket_id was answered for two names, so that the bucket may belong to someone else: it is not deleted")

// secrets are all that the driver has told in a run.
type secrets struct {
	mu    sync.Mutex
	known map[string]int // numbered, so that two can be told apart
}

func (s *secrets) add(all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]int{}
	}
	for _, secret := range all {
		if _, ok := s.known[secret]; !ok {
			s.known[secret] = len(s.known) + 1
		}
	}
}

// redact blots every known secret out.
func (s *secrets) redact(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for secret, n := range s.known {
		text = strings.ReplaceAll(text, secret, fmt.Sprintf("[secret %d]", n))
	}
	return text
}

// intercept gives a call no deadline, since the sidecars give none and a
// driver might lean on it; it cancels the call when it counts as hung.
func (r *recorder) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if id, ok := deletedBucket(req); ok && r.shared(id) {
		return errShared
	}
	bounded, cancel := context.WithCancelCause(ctx)
	seen := &seen{}
	undo := r.clock.Hang(r.timeout, func() { cancel(errNoAnswer) })
	err := invoker(context.WithValue(bounded, seenKey{}, seen), method, req, reply, cc, opts...)
	undo()
	hung := err != nil && errors.Is(context.Cause(bounded), errNoAnswer)
	cancel(nil)

	st := status.Convert(err)
	c := call{
		method: path.Base(method), request: describe(req), bytes: fingerprint(req), buckets: bucketsOf(req),
		code: st.Code(), message: st.Message(), details: len(st.Proto().GetDetails()),
		gaveUp: ctx.Err() != nil, hung: hung, quiet: ctx.Value(quietKey{}) != nil,
	}
	c.crashed = st.Code() == codes.Unavailable && seen.sent.Load() && !seen.answered.Load() && !c.gaveUp && !hung
	r.mu.Lock()
	r.calls = append(r.calls, c)
	if id, name := namedBucket(req, reply); err == nil && id != "" {
		if first, ok := r.names[id]; !ok {
			r.names[id] = name
		} else if first != name {
			r.names[id] = notOurs
		}
	}
	if _, a, ok := madeAccess(req, reply); ok && err == nil && a.id != "" {
		r.accounts[a.id] = a.name
	}
	r.mu.Unlock()
	r.secrets.add(secretsOf(reply))
	switch {
	case hung:
		return &unanswered{call: c, after: r.timeout}
	case c.crashed:
		return &crashed{call: c, st: st}
	}
	return err
}

// shared reports whether a bucket_id was answered for two names.
func (r *recorder) shared(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	name, ok := r.names[id]
	return ok && name == notOurs
}

// derive makes the id that a name would have, if ids show names.
func (r *recorder) derive(name string, known map[string]string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := known[name]; ok { // since C1 requests have ids
		return name, true
	}
	for id, other := range known {
		if out, err := renamed(id, other, name); err == nil && other != notOurs {
			return out, true
		}
	}
	return "", false
}

// quiet calls are not judged: the suite makes them to clear up after others.
func quiet(ctx context.Context) context.Context { return context.WithValue(ctx, quietKey{}, true) }

type quietKey struct{}

// seen is what happened to a call on its connection: an error that no answer
// brought after the request was sent is the end of the driver.
type seen struct{ sent, answered atomic.Bool }

type seenKey struct{}

// TagRPC implements [stats.Handler].
func (r *recorder) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements [stats.Handler].
func (r *recorder) HandleRPC(ctx context.Context, event stats.RPCStats) {
	seen, ok := ctx.Value(seenKey{}).(*seen)
	if !ok {
		return
	}
	switch event.(type) {
	case *stats.OutPayload:
		seen.sent.Store(true)
	case *stats.InHeader, *stats.InTrailer:
		seen.answered.Store(true)
	}
}

// TagConn implements [stats.Handler].
func (r *recorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (r *recorder) HandleConn(context.Context, stats.ConnStats) {}

// crashed is the error of a call in which the connection was lost.
type crashed struct {
	call call
	st   *status.Status
}

func (c *crashed) Error() string {
	return fmt.Sprintf("%s(%s): the connection was lost during the call: %s", c.call.method, c.call.request, shorten(c.st.Message()))
}

// GRPCStatus lets the call be repeated.
func (c *crashed) GRPCStatus() *status.Status { return c.st }

// unanswered is the error of a call that hung. It is no status, so that it is
// never taken for one of the driver's.
type unanswered struct {
	call  call
	after time.Duration
}

func (u *unanswered) Error() string {
	return fmt.Sprintf("%s(%s) had no answer after %v", u.call.method, u.call.request, u.after)
}

// answered are the calls that the driver has answered.
func (r *recorder) answered() []call {
	return r.which(func(c call) bool { return !c.gaveUp && !c.hung && !c.crashed && !c.quiet })
}

// which are the calls of which something holds.
func (r *recorder) which(is func(call) bool) []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []call
	for _, c := range r.calls {
		if is(c) {
			out = append(out, c)
		}
	}
	return out
}

// leaks returns the calls whose message holds a secret.
func (r *recorder) leaks() []call {
	var out []call
	for _, c := range r.answered() {
		if c.message != r.secrets.redact(c.message) {
			out = append(out, c)
		}
	}
	return out
}

// describe is a request in a few words; requests hold no secrets.
func describe(req any) string {
	m, ok := req.(proto.Message)
	if !ok {
		return ""
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return err.Error()
	}
	// protojson puts spaces in at random; the values hold none that matter.
	inner := strings.TrimSuffix(strings.TrimPrefix(string(text), "{"), "}")
	return shorten(strings.ReplaceAll(inner, " ", ""))
}

// shorten cuts the middle out of a long text.
func shorten(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return s[:most*2/3] + "…" + s[len(s)-most/3:]
}

func fingerprint(req any) string {
	m, ok := req.(proto.Message)
	if !ok {
		return ""
	}
	text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return string(text)
}
