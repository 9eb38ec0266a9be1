// Package drift looks, in the course of each interval, once at everything that
// the driver has made: whether it is still as the journal says.
//
// The looks are spread evenly. When in the interval a thing has its turn follows
// from a hash of its id, so it is the same in each interval and after each
// restart, and the buckets of one contract do not come together. The journal is
// walked in small steps, so memory does not grow with what is in it. A look is a
// few calls at a service, one read for each option of a bucket; all looks
// together keep to a number of calls a second, on average, and an interval that
// is too short for that is overrun rather than the service.
//
// Each look takes the lock that calls on the same thing take, and no longer than
// it needs for its calls: the waiting is done outside. With the look at a contract
// comes the question what its buckets hold, in every mode. Nothing is remembered
// between two looks, so a driver that stops, and two that are live at once, do
// no harm.
package drift

import (
	"context"
	"math/bits"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
)

// Inspector looks at one thing; *provisioner.Provisioner does.
type Inspector interface {
	InspectContract(ctx context.Context, id cosi.ContractID, repair bool) ([]provisioner.Finding, error)
	InspectBucket(ctx context.Context, id cosi.BucketID, repair bool) ([]provisioner.Finding, error)
	InspectAccount(ctx context.Context, id cosi.AccountID, repair bool) ([]provisioner.Finding, error)
	// MeasureContract reads what the buckets of a contract hold, with a call for all of
	// them; told is false where the service does not tell.
	MeasureContract(ctx context.Context, id cosi.ContractID) (all []contract.BucketUse, told bool, err error)
	// Tend does what is due of a record. In most cases there is nothing, and no
	// call is made.
	Tend(ctx context.Context, key journal.Key) error
}

// Recorder hears what was looked at.
type Recorder interface {
	// Looked is told of each look: at what kind of record, and how it went.
	Looked(kind string, err error)
	// Found is told of each finding.
	Found(what string, repaired bool)
	// Measured hears what the buckets of a contract hold. It may take until ctx ends.
	Measured(ctx context.Context, id cosi.ContractID, all []contract.BucketUse)
	// Passed hears that everything was looked at.
	Passed()
}

// Config says what is looked at, and who hears of it.
type Config struct {
	// Journal is what things are compared with.
	Journal *journal.Journal
	// Inspector looks.
	Inspector Inspector
	// Settings are the configuration's, as it is now.
	Settings func() config.Drift
	// Mode is what is done for a contract, as the configuration is now.
	Mode func(contract string) config.DriftMode
	// Timeout bounds one look.
	Timeout time.Duration
	// Recorder hears of it.
	Recorder Recorder
	// Again is called with a record whose due work failed because a service or the API
	// server is away. If it is nil, the work waits for the record's next turn.
	Again func(key journal.Key)
}

const (
	step     = 1000            // records whose keys are held at a time
	atOnce   = 16              // looks under way at a time
	patience = 5 * time.Second // until a journal that cannot be read is read again
	// attention is how often a waiting look checks whether the settings are
	// still the same.
	attention = time.Second
)

// Run looks until ctx ends, and returns when no look is in progress.
func Run(ctx context.Context, c Config) {
	r := &runner{Config: c, limit: rate.NewLimiter(rate.Inf, 1)}
	var last config.Drift
	var begin time.Time
	for ctx.Err() == nil {
		s, after := c.Settings(), journal.Place{}
		r.limit.SetLimit(rate.Limit(s.CallsPerSecond))
		if s == last {
			begin = begin.Add(time.Since(begin).Truncate(s.Interval))
		} else { // what had its turn before the start has it in the next interval
			var in time.Duration
			begin, in = began(time.Now(), s.Interval)
			after.At = phase(in, s.Interval)
		}
		last = s
		r.pass(ctx, s, begin, after)
		r.waitUntil(ctx, s, begin.Add(s.Interval))
	}
}

// began is when the interval of now began, and how long ago. It keeps the reading of the
// clock that cannot be set: one that is set back does not hold the turns up.
func began(now time.Time, interval time.Duration) (begin time.Time, ago time.Duration) {
	ago = now.Sub(now.Truncate(interval))
	return now.Add(-ago), ago
}

type runner struct {
	Config
	limit *rate.Limiter
}

// pass looks at all that comes after a place, each in its turn.
func (r *runner) pass(ctx context.Context, s config.Drift, begin time.Time, after journal.Place) {
	log := klog.FromContext(ctx)
	var looks errgroup.Group
	looks.SetLimit(atOnce)
	defer func() { _ = looks.Wait() }()
	whole := after == journal.Place{}
	for {
		places, err := r.Journal.Walk(ctx, after, step)
		if err != nil {
			log.V(2).Info("The journal cannot be walked; drift is looked for later", "reason", err)
			if !r.waitUntil(ctx, s, time.Now().Add(patience)) {
				return
			}
			continue
		}
		if len(places) == 0 {
			break
		}
		for _, p := range places {
			if !r.waitUntil(ctx, s, begin.Add(turn(p, s.Interval))) {
				return
			}
			looks.Go(func() error { r.look(ctx, p.Key); return nil })
		}
		after = places[len(places)-1]
	}
	_ = looks.Wait()
	if ctx.Err() == nil && whole {
		r.Recorder.Passed()
		if late := time.Since(begin) - s.Interval; late > max(s.Interval/10, time.Second) {
			log.Info("Looking for drift took longer than its interval; raise drift.callsPerSecond or drift.interval", "late", late.Round(time.Second))
		}
	}
}

// turn is when in the interval a place has its turn, and phase the place that
// has its turn then.
func turn(p journal.Place, interval time.Duration) time.Duration {
	whole, _ := bits.Mul64(p.At, uint64(interval)) //nolint:gosec // an interval is positive
	return time.Duration(whole)                    //nolint:gosec // less than the interval
}

func phase(in, interval time.Duration) uint64 {
	quotient, _ := bits.Div64(uint64(in), 0, uint64(interval)) //nolint:gosec // both are positive
	return quotient
}

// waitUntil returns false if ctx has ended or the settings are others now.
func (r *runner) waitUntil(ctx context.Context, s config.Drift, t time.Time) bool {
	for {
		left := time.Until(t)
		if ctx.Err() != nil || r.Settings() != s {
			return false
		}
		if left <= 0 {
			return true
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(left, attention)):
		}
	}
}

// look waits for its turn among the calls, and pays for the calls it took
// before it lets the next one look.
func (r *runner) look(ctx context.Context, key journal.Key) {
	counted, calls := count(ctx)
	defer func() {
		for range calls.Load() - 1 {
			if r.limit.Wait(ctx) != nil {
				return
			}
		}
	}()
	r.tend(counted, key)
	r.measure(counted, key)
	of, inspect := r.inspection(key)
	if inspect == nil || r.Mode(of) == config.DriftOff || r.limit.Wait(ctx) != nil {
		return
	}
	log := klog.FromContext(ctx).WithValues(string(key.Kind), key.ID)
	looking, cancel := context.WithTimeout(klog.NewContext(counted, log), r.Timeout)
	defer cancel()
	found, err := inspect(looking, r.Mode(of) == config.DriftRepair)
	if ctx.Err() != nil && len(found) == 0 {
		return // the driver stops
	}
	r.Recorder.Looked(string(key.Kind), err)
	for _, f := range found {
		r.Recorder.Found(f.What, f.Repaired)
		values := []any{"what", f.What, "repaired", f.Repaired}
		if f.Why != "" {
			values = append(values, "left", f.Why)
		}
		log.Info("Changed behind the driver's back", values...)
	}
	switch {
	case err == nil:
	case fault.Passing(err): // an outage is not told for each thing
		log.V(2).Info("Drift check failed", "reason", err)
	default:
		log.Info("Drift check failed", "reason", err)
	}
}

// tend is done in each mode: it does not look for drift, it needs the timer.
func (r *runner) tend(ctx context.Context, key journal.Key) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	if err := r.Inspector.Tend(ctx, key); err != nil {
		klog.FromContext(ctx).V(2).Info("What is due could not be done; it is tried again", string(key.Kind), key.ID, "reason", err)
		if fault.Passing(err) && r.Again != nil {
			r.Again(key)
		}
	}
}

// measure is done in each mode too, once for each contract.
func (r *runner) measure(ctx context.Context, key journal.Key) {
	if key.Kind != journal.Contracts {
		return
	}
	id, err := cosi.ParseContractID(key.ID)
	if err != nil || r.limit.Wait(ctx) != nil {
		return
	}
	measuring, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	all, told, err := r.Inspector.MeasureContract(measuring, id)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("What the buckets of a contract hold is not known; it is asked for again", "contract", id, "reason", err)
	} else if told {
		r.Recorder.Measured(measuring, id, all)
	}
}

// inspection is how a record's thing is looked at; nil if its id is none of the
// driver's.
func (r *runner) inspection(key journal.Key) (of string, inspect func(context.Context, bool) ([]provisioner.Finding, error)) {
	switch key.Kind {
	case journal.Contracts:
		if id, err := cosi.ParseContractID(key.ID); err == nil {
			return id.Contract, func(ctx context.Context, repair bool) ([]provisioner.Finding, error) {
				return r.Inspector.InspectContract(ctx, id, repair)
			}
		}
	case journal.Buckets:
		if id, err := cosi.ParseBucketID(key.ID); err == nil {
			return id.Contract, func(ctx context.Context, repair bool) ([]provisioner.Finding, error) {
				return r.Inspector.InspectBucket(ctx, id, repair)
			}
		}
	case journal.Accounts:
		if id, err := cosi.ParseAccountID(key.ID); err == nil {
			return id.Contract, func(ctx context.Context, repair bool) ([]provisioner.Finding, error) {
				return r.Inspector.InspectAccount(ctx, id, repair)
			}
		}
	}
	return "", nil
}
