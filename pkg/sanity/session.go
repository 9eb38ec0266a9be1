package sanity

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// session is the checks of one version over one connection.
type session struct {
	cfg      *Config
	version  Version
	uid      string // the run's part of all names
	conn     *grpc.ClientConn
	api      client
	recorder *recorder
	store    *store

	supported []protocol // what the driver says it serves, in v1alpha2
	leftovers []string   // what could not be cleaned up
	gone      bool       // the driver did not answer when last asked
	shaken    bool       // the last check did not pass
}

func newSession(c *Config, v Version, uid string, told *secrets) (*session, error) {
	s := &session{cfg: c, version: v, uid: uid, recorder: &recorder{clock: c.clock, timeout: c.CallTimeout, secrets: told}}
	var err error
	s.conn, err = grpc.NewClient(c.Endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(s.recorder.intercept, recordMade),
		// A driver that was restarted is found again at once.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second}, MinConnectTimeout: c.CallTimeout}),
	)
	if err != nil {
		return nil, err
	}
	if s.store, err = newStore(c); err != nil {
		return nil, err
	}
	if v == V1Alpha1 {
		s.api = newV1Alpha1(s.conn)
	} else {
		s.api = newV1Alpha2(s.conn)
	}
	return s, nil
}

// patiently repeats a call that the driver asks to repeat, as the sidecars do,
// though not for ever.
func (s *session) patiently(ctx context.Context, call func(context.Context) error) error {
	return s.repeat(ctx, call, func(err error) bool {
		switch status.Code(err) {
		case codes.Aborted, codes.Unavailable, codes.ResourceExhausted:
			return true
		}
		return false
	})
}

// doggedly repeats a call after any error that a gRPC status came with.
func (s *session) doggedly(ctx context.Context, call func(context.Context) error) error {
	return s.repeat(ctx, call, func(err error) bool { _, ok := status.FromError(err); return ok })
}

func (s *session) repeat(ctx context.Context, call func(context.Context) error, again func(error) bool) error {
	const first, most = 5 * time.Millisecond, 500 * time.Millisecond
	until := time.Now().Add(s.cfg.Settle)
	for pause := first; ; pause = min(2*pause, most) {
		err := call(ctx)
		if err == nil || !again(err) || time.Now().Add(pause).After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// eventually repeats a look at the object store until it shows what is
// expected.
func (s *session) eventually(ctx context.Context, look func(context.Context) error) error {
	return s.repeat(ctx, look, func(error) bool { return true })
}

// errNoAnswer is why the suite ends a call.
var errNoAnswer = errors.New("no answer in time")
