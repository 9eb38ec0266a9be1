package driver

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server"
)

// watchEvery is how often the driver looks how its backends are and what there
// is, whether or not it is asked.
const watchEvery = 15 * time.Second

// watch looks at once, and then until ctx ends.
func watch(ctx context.Context, look func()) {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for look(); ; look() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// readiness says whether calls can be taken.
func readiness(log klog.Logger, p *provisioner.Provisioner, m *metrics.Metrics) func(context.Context) error {
	return server.Looks(log, func(ctx context.Context) server.Away {
		err := p.Ready(ctx)
		m.JournalUp(err == nil)
		if err != nil {
			return server.Away{"journal": err}
		}
		return nil
	})
}

// backendsUp says whether all backends can be used, and m of each of them.
func backendsUp(log klog.Logger, p *provisioner.Provisioner, m *metrics.Metrics) func(context.Context) error {
	return server.Looks(log, func(ctx context.Context) server.Away {
		away := server.Away{}
		for name, err := range p.CheckBackends(ctx) {
			m.BackendUp(name, err == nil)
			if err != nil {
				away["backend "+name] = err
			}
		}
		return away
	})
}

// unlisted stands for the contracts that the configuration does not list. It is no
// contract's name.
const unlisted = "onDemand"

// use tells m what there is of each contract that the configuration lists, and of
// all others together, and how often that is looked at.
func use(ctx context.Context, c *config.Config, records *journal.Journal, m *metrics.Metrics) {
	m.DriftEvery(driftEvery(c))
	most := map[string][2]*int64{}
	for _, t := range c.Contracts {
		most[t.Name] = [2]*int64{}
		if !t.PerBucket { // else they bound each bucket's own contract
			most[t.Name] = limits(t.Terms)
		}
	}
	found, err := records.Use(ctx, time.Now(), func(contract string) string {
		if id, err := cosi.ParseContractID(contract); err == nil {
			if terms, known := c.Terms(id.Contract); known {
				if _, listed := most[terms.Listed]; listed {
					return terms.Listed
				}
			}
		}
		return unlisted
	})
	if err != nil {
		klog.FromContext(ctx).V(2).Info("What there is of each contract is not known; it is looked at again", "reason", err)
		return
	}
	all := make([]metrics.Use, 0, len(most)+1)
	if c.OnDemand != nil || found[unlisted] != (journal.Use{}) {
		most[unlisted] = [2]*int64{}
	}
	for name, limit := range most {
		all = append(all, metrics.Use{Contract: name, Use: found[name], MaxBuckets: limit[0], MaxKeys: limit[1]})
	}
	m.Used(all)
}

// driftEvery is the interval in which anything is compared with the journal; 0 if
// nothing is.
func driftEvery(c *config.Config) time.Duration {
	on := func(mode config.DriftMode) bool { return mode != config.DriftOff }
	if on(c.Drift.Mode) || slices.ContainsFunc(c.Contracts, func(t config.Contract) bool { return on(c.DriftMode(t.Name)) }) {
		return c.Drift.Interval
	}
	return 0
}

// limits are how many buckets and keys of accesses a contract's terms allow: its
// quota, of which the contract's own key takes one, and its guard.
func limits(t config.Terms) [2]*int64 {
	least := func(a, b *int64) *int64 {
		if a == nil || b != nil && *b < *a {
			return b
		}
		return a
	}
	keys := t.Quota.MaxKeys
	if keys != nil {
		others := max(*keys-1, 0)
		keys = &others
	}
	return [2]*int64{least(t.Quota.MaxBuckets, t.Guard.MaxBuckets), least(keys, t.Guard.MaxKeys)}
}
