package provisioner

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/lock"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/site"
)

// CheckTerms reports terms that their backend cannot meet. It asks no service, so
// it can be told when the configuration is loaded.
func (p *Provisioner) CheckTerms(name string, t config.Terms) error {
	service := p.backends[t.Backend].Service
	id := cosi.ContractID{Backend: t.Backend, Contract: name}
	err := service.CheckSpec(site.Spec(id, t))
	if service.Capabilities().ScopeBy == contract.ScopeByNone && !t.PerBucket {
		err = join(err, fault.New(fault.FailedPrecondition, "contract %s: backend %s cannot limit a key to a bucket, so its buckets cannot share a contract; set perBucket in the contract's terms", name, t.Backend))
	}
	return err
}

// Known are the contracts that this process has brought to their terms.
func (p *Provisioner) Known() []cosi.ContractID { return p.sites.Known() }

// Converge brings those contracts to their terms, again if this process has done
// so before, that the driver has signed and that are still there. Each has so
// much time, and none waits for another. It returns those that could not be
// brought there for now; they are when they are next used, or when the caller
// tries again.
func (p *Provisioner) Converge(ctx context.Context, contracts map[cosi.ContractID]config.Terms, timeout time.Duration) (left map[cosi.ContractID]config.Terms) {
	const atOnce = 8
	left = map[cosi.ContractID]config.Terms{}
	var mu sync.Mutex
	var work errgroup.Group
	work.SetLimit(atOnce)
	for id, terms := range contracts {
		work.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			err := p.converge(ctx, id, terms)
			if err == nil || fault.Is(err, fault.NotFound) {
				return nil
			}
			if !fault.Passing(err) {
				klog.FromContext(ctx).Info("Contract cannot be used now", "contract", id, "reason", err)
				return nil
			}
			klog.FromContext(ctx).V(2).Info("Contract cannot be used yet; it is tried again", "contract", id, "reason", err)
			mu.Lock()
			defer mu.Unlock()
			left[id] = terms
			return nil
		})
	}
	_ = work.Wait()
	return left
}

func (p *Provisioner) converge(ctx context.Context, id cosi.ContractID, terms config.Terms) error {
	ctx, call, err := p.beginIdle(ctx, lock.Shared("contract", id)) // it may be just being cancelled
	if err != nil {
		return err
	}
	defer call.end()
	return p.sites.Converge(ctx, id, terms)
}

// Sign signs a contract that was ordered, before there is a bucket, and brings it to
// its terms; see [site.Sites.Sign].
func (p *Provisioner) Sign(ctx context.Context, id cosi.ContractID, terms config.Terms) (contract.Contract, error) {
	ctx, call, err := p.beginIdle(ctx, lock.Shared("contract", id))
	if err != nil {
		return contract.Contract{}, err
	}
	defer call.end()
	return p.sites.Sign(ctx, id, terms)
}

// ContractKey is the contract's own key, and where its buckets are by default. It is
// issued if it has not been.
func (p *Provisioner) ContractKey(ctx context.Context, id cosi.ContractID, terms config.Terms) (secret.KeyPair, cosi.Endpoint, error) {
	ctx, call, err := p.beginIdle(ctx, lock.Shared("contract", id))
	if err != nil {
		return secret.KeyPair{}, cosi.Endpoint{}, err
	}
	defer call.end()
	s, err := p.sites.Open(ctx, id, terms, "")
	if err != nil {
		return secret.KeyPair{}, cosi.Endpoint{}, err
	}
	record, err := p.journal.Contract(ctx, id)
	if err != nil {
		return secret.KeyPair{}, cosi.Endpoint{}, err
	}
	return record.Issued, s.Endpoints[0], nil
}

// Cancel cancels a contract whose order was withdrawn: FailedPrecondition while the
// driver has buckets under it. One that the journal has lost is found again first.
func (p *Provisioner) Cancel(ctx context.Context, id cosi.ContractID) error {
	ctx, call, err := p.beginIdle(ctx, lock.Exclusive("contract", id))
	if err != nil {
		return err
	}
	defer call.end()
	buckets, _, err := p.journal.Usage(ctx, id)
	if err != nil {
		return err
	}
	if buckets > 0 {
		return fault.New(fault.FailedPrecondition, "contract %s has %d buckets; delete their BucketClaims", id, buckets)
	}
	if err := p.sites.Record(ctx, id); err != nil {
		return fault.IgnoreNotFound(err)
	}
	return p.sites.Cancel(ctx, id)
}

// Buckets are the names of up to limit buckets that the driver has made under a
// contract, and how many there are.
func (p *Provisioner) Buckets(ctx context.Context, id cosi.ContractID, limit int) (names []string, count int, err error) {
	return p.journal.BucketsOf(ctx, id, limit)
}

// DescribeContract reads a contract, with the terms in which it is not as the
// configuration says. NotFound if there is none of this driver's.
func (p *Provisioner) DescribeContract(ctx context.Context, id cosi.ContractID) (have contract.Contract, differing []string, err error) {
	backend, err := p.sites.At(id)
	if err != nil {
		return contract.Contract{}, nil, err
	}
	err = p.sites.Ask(ctx, "the contracts of backend "+id.Backend, func(ctx context.Context) error {
		if terms, known := p.termsOf(id); known {
			have, differing, err = backend.CompareContract(ctx, site.Spec(id, terms))
		} else {
			have, err = backend.Signed(ctx, id.Contract)
		}
		return err
	})
	return have, differing, err
}

// Usage reads what is used of a contract, as far as its service tells.
func (p *Provisioner) Usage(ctx context.Context, id cosi.ContractID) (contract.Usage, error) {
	backend, err := p.sites.At(id)
	if err != nil {
		return contract.Usage{}, err
	}
	return backend.Usage(ctx, id.Contract)
}

// Keys lists the keys of a contract at its service.
func (p *Provisioner) Keys(ctx context.Context, id cosi.ContractID) ([]contract.KeyInfo, error) {
	backend, err := p.sites.At(id)
	if err != nil {
		return nil, err
	}
	return backend.ListKeys(ctx, id.Contract, "")
}
