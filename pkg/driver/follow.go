package driver

import (
	"bytes"
	"context"
	"os"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contracts"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
)

// live is the configuration as it is now, with the contracts that are ordered in the
// cluster. Terms of contracts are the part that changes while the driver runs; what
// the parts are built from does not.
type live struct {
	current atomic.Pointer[config.Config]
	ordered *contracts.Contracts // nil if the configuration does not ask for them
}

func newLive(c *config.Config) *live {
	l := &live{}
	l.current.Store(c)
	return l
}

// terms are those of the configuration, or of an order. What has the form of an
// ordered contract's name cannot be had on demand.
func (l *live) terms(contract string) (config.Terms, bool) {
	c := l.current.Load()
	if l.ordered == nil {
		return c.Terms(contract)
	}
	if terms, ok := l.ordered.Terms(contract); ok {
		return terms, true
	}
	if contracts.Reserved(contract) {
		return c.Listed(contract)
	}
	return c.Terms(contract)
}

// all is the configuration as if it listed the contracts that are ordered.
func (l *live) all() *config.Config {
	c := l.current.Load()
	if l.ordered == nil {
		return c
	}
	out := *c
	out.Contracts = slices.Concat(c.Contracts, l.ordered.All())
	return &out
}

func (l *live) drift() config.Drift { return l.current.Load().Drift }

func (l *live) driftMode(contract string) config.DriftMode {
	if terms, ok := l.terms(contract); ok && terms.Drift != "" {
		return terms.Drift
	}
	return l.current.Load().Drift.Mode
}

// lookAgain is how often the file is read. It is polled, because a ConfigMap
// changes by a link that is replaced somewhere above it.
const lookAgain = 2 * time.Second

// follow reads the file until ctx ends. What changes in the terms of contracts,
// and in nothing that needs another start, is taken over if check has nothing
// against it; took hears of that.
func (l *live) follow(ctx context.Context, file string, check func(*config.Config) error, seen func(outcome string), took func(before, now *config.Config)) {
	log := klog.FromContext(ctx).WithValues("file", file)
	// What has changed since the start is a change too. A text that is refused is
	// tried again: what is at fault may be a file that it names.
	var last []byte
	told := ""
	for ticker := time.NewTicker(lookAgain); ; {
		select {
		case <-ctx.Done():
			ticker.Stop()
			return
		case <-ticker.C:
		}
		text, err := os.ReadFile(file)
		if err != nil || bytes.Equal(text, last) { // one that is away is just being replaced
			continue
		}
		now, err := config.Parse(text, Types())
		if err == nil {
			err = check(now)
		}
		if err != nil {
			if err.Error() != told {
				told = err.Error()
				seen(metrics.Refused)
				log.Error(err, "The configuration file has changed and is not taken over; the driver goes on with what it had")
			}
			continue
		}
		last, told = text, ""
		before := l.current.Load()
		switch {
		case reflect.DeepEqual(before, now):
		case !reflect.DeepEqual(fixed(before), fixed(now)):
			seen(metrics.NextStart)
			log.Info("The configuration file has changed in more than contracts, onDemand and drift; restart the driver to take it over")
		default:
			l.current.Store(now)
			seen(metrics.Taken)
			log.Info("The configuration file has changed; taken over")
			took(before, now)
		}
	}
}

// fixed is the part of a configuration that the driver is built from.
func fixed(c *config.Config) config.Config {
	out := *c
	out.Contracts, out.OnDemand, out.Drift = nil, nil, config.Drift{}
	return out
}

// listed are the contracts that the configuration names.
func listed(c *config.Config) map[cosi.ContractID]config.Terms {
	out := make(map[cosi.ContractID]config.Terms, len(c.Contracts))
	for _, t := range c.Contracts {
		out[cosi.ContractID{Backend: t.Backend, Contract: t.Name}] = t.Terms
	}
	return out
}

// changed are those contracts whose terms are others now: of the listed ones,
// and of those that this process has signed on demand.
func changed(before, now *config.Config, known []cosi.ContractID) map[cosi.ContractID]config.Terms {
	out := listed(now)
	for _, id := range known {
		if terms, ok := now.Terms(id.Contract); ok && terms.Backend == id.Backend {
			out[id] = terms
		}
	}
	for id, terms := range out {
		if had, ok := before.Terms(id.Contract); ok && reflect.DeepEqual(had, terms) {
			delete(out, id)
		}
	}
	return out
}
