package sanity

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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
}

// secrets are all that the driver has told in a run.
type secrets struct {
	mu    sync.Mutex
	known map[string]bool
}

func (s *secrets) add(all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[string]bool{}
	}
	for _, secret := range all {
		s.known[secret] = true
	}
}

// redact blots every known secret out.
func (s *secrets) redact(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for secret := range s.known {
		text = strings.ReplaceAll(text, secret, "[secret]")
	}
	return text
}

// intercept gives a call no deadline, since the sidecars give none and a
// driver might lean on it; it cancels the call when it counts as hung.
func (r *recorder) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	bounded, cancel := context.WithCancelCause(ctx)
	undo := r.clock.Hang(r.timeout, func() { cancel(errNoAnswer) })
	err := invoker(bounded, method, req, reply, cc, opts...)
	undo()
	hung := err != nil && errors.Is(context.Cause(bounded), errNoAnswer)
	cancel(nil)

	st := status.Convert(err)
	c := call{
		method: path.Base(method), request: describe(req), bytes: fingerprint(req), buckets: bucketsOf(req),
		code: st.Code(), message: st.Message(), details: len(st.Proto().GetDetails()),
		gaveUp: ctx.Err() != nil, hung: hung,
	}
	r.mu.Lock()
	r.calls = append(r.calls, c)
	r.mu.Unlock()
	r.secrets.add(secretsOf(reply))
	if hung {
		return &unanswered{call: c, after: r.timeout}
	}
	return err
}

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
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []call
	for _, c := range r.calls {
		if !c.gaveUp && !c.hung {
			out = append(out, c)
		}
	}
	return out
}

func (r *recorder) unanswered() []call {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []call
	for _, c := range r.calls {
		if c.hung {
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
