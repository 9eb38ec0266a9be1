// Package sanity is a conformance suite for COSI drivers. It talks to any
// driver over its unix socket, in v1alpha1 and v1alpha2, and knows nothing of
// the driver: ids are opaque, parameters are the user's, and a verdict rests on
// what the driver answers and on what the issued keys can do.
//
//	report, err := sanity.Run(ctx, sanity.Config{Endpoint: "unix:///run/cosi.sock"})
//
// A [Check] has a number that stays, and for each version the sentence it
// stands on and its [Level]. A driver may legally answer in many ways; a check
// fails only what the specification forbids or what a released sidecar does
// not survive, and says which. What a check needs and has not got (parameters
// only the user can know, an S3 endpoint) makes it "not run", with the reason.
//
// A check makes buckets and accesses of its own, under names such as the
// sidecars give, and takes them away again, whatever its verdict. All calls go
// through one recorder, so that the last checks can judge every call of the
// run: codes, messages, details, leaks, calls without an answer.
//
// Package sanitytest runs the suite as subtests; the command cosi-sanity runs
// it against any socket.
package sanity

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Run puts a driver through the checks. An error means that there is no
// verdict: the configuration is wrong, no driver answers, or ctx has ended; in
// the last case the report holds what was found until then.
func Run(ctx context.Context, c Config) (*Report, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	// A deadline of the caller's would travel with each call, and no sidecar
	// sends one.
	ctx, stop := untimed(ctx)
	defer stop()
	versions, err := served(ctx, c)
	if err != nil {
		return nil, err
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	report := &Report{Endpoint: c.Endpoint, Run: hex.EncodeToString(id[:]), Versions: versions, Started: time.Now()}
	told := &secrets{}
	for _, v := range versions {
		results, err := runVersion(ctx, &c, v, report.Run, told)
		if err != nil {
			return nil, err
		}
		report.Results = append(report.Results, results...)
	}
	// A message that quotes the driver may quote a secret; all are known by now.
	for i := range report.Results {
		report.Results[i].Message = told.redact(report.Results[i].Message)
	}
	report.Took = time.Since(report.Started)
	if ctx.Err() != nil {
		return report, fmt.Errorf("the run was cut short: %w", context.Cause(ctx))
	}
	return report, nil
}

// untimed ends with ctx and has no deadline.
func untimed(ctx context.Context) (context.Context, func()) {
	out, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return out, func() {
		detach()
		cancel(nil)
	}
}

// served tells which of the wanted versions the socket serves.
func served(ctx context.Context, c Config) ([]Version, error) {
	wanted := c.Versions
	if len(wanted) == 0 {
		wanted = Versions()
	}
	var out []Version
	var missing []error
	for _, v := range wanted {
		s, err := newSession(&c, v, "", &secrets{})
		if err != nil {
			return nil, err
		}
		_, err = s.api.info(ctx)
		_ = s.conn.Close()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case status.Code(err) == codes.Unimplemented:
			missing = append(missing, fmt.Errorf("%s is not served at %s", v, c.Endpoint))
		case status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "dial"):
			return nil, fmt.Errorf("no driver answers at %s: %w", c.Endpoint, err)
		default: // whatever else is wrong, the checks will tell
			out = append(out, v)
		}
	}
	if len(out) == 0 || len(c.Versions) > 0 && len(missing) > 0 {
		return nil, errors.Join(missing...)
	}
	return out, nil
}

// runVersion runs the checks of one version, one after the other.
func runVersion(ctx context.Context, c *Config, v Version, run string, told *secrets) ([]Result, error) {
	s, err := newSession(c, v, run, told)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.conn.Close() }()
	if known, err := s.api.info(ctx); err == nil {
		s.supported = known.protocols
	}
	var results []Result
	for _, check := range Checks() {
		rule, ok := check.rule(v)
		if !ok {
			continue
		}
		r := Result{Number: check.Number, Name: check.Name, Version: v, Rule: rule}
		started := time.Now()
		err := s.do(ctx, check)
		r.Took = time.Since(started)
		var not notRun
		switch {
		case err == nil:
			r.Verdict = Passed
		case errors.As(err, &not):
			r.Verdict, r.Message = NotRun, string(not)
		case rule.Level == Should && !c.Strict:
			r.Verdict, r.Message = Warned, err.Error()
		default:
			r.Verdict, r.Message = Failed, err.Error()
		}
		results = append(results, r)
	}
	return results, nil
}

// notRun is the reason why a check has no verdict.
type notRun string

func (n notRun) Error() string { return string(n) }

// do runs one check and clears up after it.
func (s *session) do(ctx context.Context, check Check) error {
	switch {
	case len(s.cfg.Run) > 0 && !slices.ContainsFunc(s.cfg.Run, check.is):
		return notRun("not selected")
	case slices.ContainsFunc(s.cfg.Skip, check.is):
		return notRun("skipped by the user")
	case check.overall != nil: // it judges what was seen, also of a run cut short
		return check.overall(context.WithoutCancel(ctx), s)
	case ctx.Err() != nil:
		return notRun("the run was cut short")
	case s.lost(ctx):
		return notRun("the driver no longer answers")
	}
	e := &env{session: s, number: check.Number}
	e.ledger = newLedger()
	ctx = withLedger(ctx, e.ledger)
	defer e.cleanUp(context.WithoutCancel(ctx))
	err := check.run(ctx, e)
	s.shaken = err != nil
	if ctx.Err() != nil {
		return notRun("the run was cut short")
	}
	return err
}

// lost reports whether the driver has gone, which is asked only after a fault,
// and with patience only once.
func (s *session) lost(ctx context.Context) bool {
	if !s.shaken {
		return false
	}
	ask := func(ctx context.Context) error {
		_, err := s.api.info(ctx)
		return err
	}
	var err error
	if s.gone {
		err = ask(ctx)
	} else {
		err = s.patiently(ctx, ask)
	}
	s.gone = codeOf(err) == codes.Unavailable
	return s.gone
}
