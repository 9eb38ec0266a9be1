package sanity

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// session is the checks of one API over one connection.
type session struct {
	API
	cfg      *Config
	uid      string // the run's part of all names
	conn     *grpc.ClientConn
	api      client
	recorder *recorder
	store    *store

	driver    string     // its name
	supported []protocol // what the driver says it serves, in v1alpha2
	objects   struct {   // those of --bucket-objects
		sync.Mutex
		made []map[string]any
		err  error
	}
	kept      []*env            // what stays until all checks have run
	leftovers []string          // what could not be cleaned up
	verdicts  map[string]Result // by the check's number
	spared    int               // buckets that may belong to someone else
	uncertain int               // calls that may have made something which has no id
	inventory []string          // what the service held before
	gone      bool              // the driver did not answer when last asked
	mute      bool              // DriverGetInfo hung
	shaken    bool              // the last check did not pass
}

func newSession(c *Config, api API, uid string, told *secrets) (*session, error) {
	s := &session{API: api, verdicts: map[string]Result{}, cfg: c, uid: uid, recorder: &recorder{clock: c.clock, timeout: c.CallTimeout, secrets: told, names: map[string]string{}, accounts: map[string]string{}}}
	var err error
	s.conn, err = grpc.NewClient(c.Endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithChainUnaryInterceptor(s.recorder.intercept, recordMade),
		grpc.WithStatsHandler(s.recorder),
		// A driver that was restarted is found again at once.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second}, MinConnectTimeout: c.CallTimeout}),
	)
	if err != nil {
		return nil, err
	}
	if s.store, err = newStore(c); err != nil {
		return nil, err
	}
	if api.Version == V1Alpha1 {
		s.api = v1alpha1Client{s.conn}
	} else {
		s.api = &v1alpha2Client{s.conn, api.Generation}
	}
	return s, nil
}

// patiently repeats a call that the driver asks to repeat, as the sidecars do,
// though not without end.
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
	var crash error // the first says more than what comes of it
	for pause := first; ; pause = min(2*pause, most) {
		err := call(ctx)
		if c, ok := errors.AsType[*crashed](err); ok && crash == nil {
			crash = c
		}
		if err == nil || !again(err) || time.Now().Add(pause).After(until) {
			if err != nil && crash != nil {
				return crash
			}
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
