// Package sanity is a conformance suite for COSI drivers. It talks to any
// driver over its unix socket, in v1alpha1 and in each generation of v1alpha2,
// and knows nothing of the driver: ids are opaque, parameters are the user's, and
// a verdict rests on what the driver answers and on what the issued keys can do.
//
//	report, err := sanity.Run(ctx, sanity.Config{Endpoint: "unix:///run/cosi.sock"})
//
// A [Check] has a number that stays, and for each version the sentence it
// stands on and its [Level]. A driver may legally answer in many ways; a check
// fails only what the specification forbids or what a released sidecar does
// not survive, and says which. It judges the one step that it is named for: the
// checks that it needs come first, and where one of them did not pass it is "not
// run: see" that one. What the suite has not been told (parameters only the user
// can know, an S3 endpoint) makes a check "not run" too, with the reason.
//
// A check makes buckets and accesses of its own, under names such as the
// sidecars give, and takes them away again, whatever its verdict. All calls go
// through one recorder, so that the last checks can judge every call of the
// run: codes, messages, details, leaks, calls without an answer, crashes.
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

// API is a version of COSI and, in v1alpha2, its generation.
type API struct {
	Version    Version    `json:"version"`
	Generation Generation `json:"generation,omitempty"`
}

func (a API) String() string {
	if a.Generation == "" {
		return string(a.Version)
	}
	return fmt.Sprintf("%s, generation %s", a.Version, a.Generation)
}

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
	apis, err := served(ctx, c)
	if err != nil {
		return nil, err
	}
	before, err := c.takeInventory(ctx)
	if err != nil {
		return nil, err
	}
	var id [4]byte
	_, _ = rand.Read(id[:]) // never fails
	report := &Report{Endpoint: c.Endpoint, Run: hex.EncodeToString(id[:]), APIs: apis, Started: time.Now()}
	told := &secrets{}
	for _, api := range apis {
		s, err := newSession(&c, api, report.Run, told)
		if err != nil {
			return nil, err
		}
		s.inventory = before
		report.Results = append(report.Results, s.checks(ctx)...)
		_ = s.conn.Close()
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

// served tells which of the wanted versions the socket serves, and in which
// generations.
func served(ctx context.Context, c Config) ([]API, error) {
	wanted := c.Versions
	if len(wanted) == 0 {
		wanted = Versions()
	}
	var out []API
	var missing []error
	for _, v := range wanted {
		s, err := newSession(&c, API{Version: v}, "", &secrets{})
		if err != nil {
			return nil, err
		}
		apis, err := s.speaks(ctx)
		_ = s.conn.Close()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case status.Code(err) == codes.Unimplemented:
			missing = append(missing, fmt.Errorf("%s is not served at %s", v, c.Endpoint))
		case status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "dial"):
			return nil, fmt.Errorf("no driver answers at %s: %w", c.Endpoint, err)
		default: // whatever else is wrong, the checks will tell
			out = append(out, apis...)
		}
	}
	if len(out) == 0 || len(c.Versions) > 0 && len(missing) > 0 {
		return nil, errors.Join(missing...)
	}
	return out, nil
}

// speaks tells in which generations a version is to be judged.
func (s *session) speaks(ctx context.Context) ([]API, error) {
	_, err := s.api.info(ctx)
	c, ok := s.api.(*v1alpha2Client)
	if !ok {
		return []API{s.API}, err
	}
	generations := s.cfg.Generations
	if len(generations) == 0 && err == nil {
		generations = generationsOf(c.methods(ctx))
	}
	if len(generations) == 0 {
		generations = []Generation{A}
	}
	var out []API
	for _, g := range generations {
		out = append(out, API{V1Alpha2, g})
	}
	return out, err
}

// checks runs all checks, one after the other.
func (s *session) checks(ctx context.Context) []Result {
	known, err := s.api.info(ctx)
	s.driver, s.supported = known.name, known.protocols
	s.mute, s.shaken = hung(err), err != nil
	all := Checks()
	wanted := selected(all, s.cfg, s.Version)
	released := false
	var results []Result
	for _, check := range all {
		rule, ok := check.rule(s.Version)
		if !ok || !wanted[check.Number] {
			continue
		}
		if check.overall != nil && !released {
			released = true
			s.release(ctx)
		}
		r := Result{Number: check.Number, Name: check.Name, API: s.API, Rule: rule}
		started := time.Now()
		err := s.do(ctx, check)
		r.Took = time.Since(started)
		var not notRun
		var noted note
		switch {
		case err == nil:
			r.Verdict = Passed
		case errors.As(err, &noted):
			r.Verdict, r.Note = Passed, string(noted)
		case errors.As(err, &not):
			r.Verdict, r.Message = NotRun, string(not)
		case rule.Level == SetUp:
			r.Verdict, r.Message = Unready, err.Error()
		case rule.Level == Should && !s.cfg.Strict:
			r.Verdict, r.Message = Warned, err.Error()
		default:
			r.Verdict, r.Message = Failed, err.Error()
		}
		if r.Verdict == Failed || r.Verdict == Warned {
			r.Known = s.cfg.Baseline.has(r)
		}
		s.verdicts[check.Number] = r
		results = append(results, r)
	}
	s.release(ctx)
	return results
}

// selected are the checks that the user wants, and those that they need.
func selected(all []Check, c *Config, v Version) map[string]bool {
	out := map[string]bool{}
	for _, check := range slices.Backward(all) { // what is needed comes before
		if len(c.Run) == 0 || slices.ContainsFunc(c.Run, check.is) {
			out[check.Number] = true
		}
		if out[check.Number] {
			for _, number := range check.needed(v) {
				out[number] = true
			}
		}
	}
	return out
}

// notRun is the reason why a check has no verdict.
type notRun string

func (n notRun) Error() string { return string(n) }

const seeOther = "see "

// see is the verdict of a check that another one has decided.
func see(number string) error { return notRun(seeOther + number) }

// blocked is why a check cannot be run after those that it needs; nil if it can.
func (c Check) blocked(v Version, verdicts map[string]Result) error {
	for _, number := range c.needed(v) {
		switch r, ok := verdicts[number]; {
		case !ok || r.Verdict == Passed: // or not of this version
		case r.Verdict == NotRun && strings.HasPrefix(r.Message, seeOther):
			return notRun(r.Message)
		case r.Verdict == NotRun: // for a reason that is its own
		default:
			return see(number)
		}
	}
	return nil
}

// do runs one check and clears up after it.
func (s *session) do(ctx context.Context, check Check) error {
	switch {
	case slices.ContainsFunc(s.cfg.Skip, check.is):
		return notRun("skipped by the user")
	case check.overall != nil: // it judges what was seen, also of a run cut short
		return check.overall(context.WithoutCancel(ctx), s)
	case ctx.Err() != nil:
		return notRun("the run was cut short")
	case s.mute:
		return notRun("DriverGetInfo has no answer")
	}
	if !s.Generation.since(check.Since) {
		return notRun(fmt.Sprintf("generation %s does not have it; %s has", s.Generation, check.Since))
	}
	if err := check.blocked(s.Version, s.verdicts); err != nil {
		return err
	}
	if s.lost(ctx) {
		return notRun("the driver no longer answers")
	}
	e := &env{session: s, number: check.Number}
	e.ledger = newLedger()
	ctx = withLedger(ctx, e.ledger)
	before, left := s.unanswered(), len(s.leftovers)
	err := check.run(ctx, e)
	s.shaken = err != nil
	if s.unanswered().crashed > before.crashed {
		s.revive(ctx)
	}
	if check.keeps() {
		s.kept = append(s.kept, e)
	} else {
		e.cleanUp(context.WithoutCancel(ctx))
	}
	after := s.unanswered()
	switch {
	case ctx.Err() != nil:
		return notRun("the run was cut short")
	case err != nil && after.crashed > before.crashed:
		return see("G11")
	case err != nil && after.hung > before.hung:
		return see("G08")
	case err == nil || errors.As(err, new(notRun)):
		return err
	}
	// What a failed check leaves behind is told with it.
	for _, l := range s.leftovers[left:] {
		err = errors.Join(err, fmt.Errorf("and left behind: %s", l))
	}
	s.leftovers = s.leftovers[:left]
	return err
}

// silence counts the calls without an answer.
type silence struct{ hung, crashed int }

func (s *session) unanswered() silence {
	return silence{
		len(s.recorder.which(func(c call) bool { return c.hung })),
		len(s.recorder.which(func(c call) bool { return c.crashed })),
	}
}

// keeps reports whether what a check makes stays to the end: that of set-up.
func (c Check) keeps() bool { return c.Rules[0].Level == SetUp }

// release clears up after the checks of set-up.
func (s *session) release(ctx context.Context) {
	for _, e := range s.kept {
		e.cleanUp(withLedger(context.WithoutCancel(ctx), e.ledger))
	}
	s.kept = nil
	s.withdraw()
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
	s.mute = hung(err)
	s.gone = s.mute || codeOf(err) == codes.Unavailable
	return s.gone
}

// revive restarts a driver that a call has ended, if the user has told how and it
// does not come back by itself. The next check finds out whether it has.
func (s *session) revive(ctx context.Context) {
	s.shaken = true
	if s.cfg.Restart != "" && s.lost(ctx) && !s.mute {
		_ = s.restart(ctx)
	}
}

// hung reports whether a call had no answer.
func hung(err error) bool {
	_, ok := errors.AsType[*unanswered](err)
	return ok
}

// silent reports whether a call had no answer, for its time or for the driver's end.
func silent(err error) bool { return hung(err) || errors.As(err, new(*crashed)) }
