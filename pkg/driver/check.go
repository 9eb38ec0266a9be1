package driver

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/trial"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/site"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// Finding is the outcome of one check of a backend.
type Finding struct {
	Backend, What string
	// Err is why it failed, nil if it did not.
	Err error
	// Skipped says that an earlier failure left nothing to check.
	Skipped bool
}

// Check finds out whether a configuration could be deployed: whether each
// backend answers, takes the credentials and can do what the contracts' terms
// ask for. With try, which makes things and takes them back, it goes through
// the life of a contract on each. found is told of each outcome as it is known;
// the error is of a configuration that cannot be tried.
func Check(ctx context.Context, c *config.Config, try bool, found func(Finding)) error {
	backends, err := newBackends(ctx, c, metrics.New(), nil)
	if err != nil {
		return err
	}
	p := provisioner.New(provisioner.Config{Backends: backends})
	for _, b := range c.Backends {
		if err := checkBackend(ctx, c, b, p, backends[b.Name], try, found); err != nil {
			return err
		}
	}
	return nil
}

func checkBackend(ctx context.Context, c *config.Config, b config.Backend, p *provisioner.Provisioner, made site.Backend, try bool, found func(Finding)) error {
	tell := func(what string, err error) { found(Finding{Backend: b.Name, What: what, Err: err}) }
	err := made.Check(ctx)
	switch denied := fault.Is(err, fault.PermissionDenied); {
	case err == nil:
		tell("answers", nil)
		tell("takes the credentials", nil)
	case denied:
		tell("answers", nil)
		tell("takes the credentials", err)
	default:
		tell("answers", err)
		found(Finding{Backend: b.Name, What: "takes the credentials", Skipped: true})
	}
	for _, t := range c.Contracts {
		if t.Backend == b.Name {
			tell("can meet the terms of contract "+t.Name, p.CheckTerms(t.Name, t.Terms))
		}
	}
	if d := c.OnDemand; d != nil && d.Backend == b.Name {
		tell("can meet the terms on demand", p.CheckTerms("on demand", d.Terms))
	}
	switch {
	case !try:
		return nil
	case err != nil:
		found(Finding{Backend: b.Name, What: "trial", Skipped: true})
		return nil //nolint:nilerr // the failure is told
	}
	client, err := transport.New(b.Transport())
	if err != nil {
		return err
	}
	for _, step := range trial.Run(ctx, trial.Service{
		Service: made.Service, Engine: made.Engine, Contract: trialContract(c, b), HTTP: client,
	}) {
		tell("trial: "+step.What, step.Err)
	}
	return nil
}

// trialContract is a name that no contract has. Where each contract has an account
// of its own, there are credentials for those alone, and the trial takes the
// first that has none of the driver's contracts yet.
func trialContract(c *config.Config, b config.Backend) string {
	name := "trial-" + strings.ToLower(rand.Text()[:12])
	if s, ok := b.Settings.(interface{ Accounts() []string }); ok {
		for _, account := range s.Accounts() {
			if _, listed := c.Terms(account); !listed {
				return account
			}
		}
	}
	return name
}
