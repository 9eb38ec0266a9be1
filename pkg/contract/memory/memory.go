// Package memory is a storage service that sells by contract, in memory: a
// contract.Provider and the S3 server beside it, which enforces the limits of
// its keys. It is for tests, as go-cloud's memblob is. It passes contracttest, so
// what a use case sees of it, it could see of a real service; and each exchange
// with it can be stopped, failed or put in another order.
package memory

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Secrets says how a service tells the secret of a key.
type Secrets string

// The three classes of services; see contract.Capabilities.ChosenKeys and
// contract.Acknowledger.
const (
	// Chosen: the key is the pair that was proposed.
	Chosen Secrets = "Chosen"
	// Repeated: the same proposal is answered with the same key, until the service
	// is told that the secret is safe.
	Repeated Secrets = "Repeated"
	// Once: each request makes another key.
	Once Secrets = "Once"
)

// Service is the state of a service.
type Service struct {
	secrets Secrets
	shared  bool
	regions []string

	mu        sync.Mutex
	url       string
	contracts map[string]contract.Spec
	keys      map[string]*key // by access key id
	buckets   map[string]*bucket
	made      int // keys, ever
	twice     bool
}

type key struct {
	contract, slot, name string
	pair                 secret.KeyPair
	scope, acts          *contract.Scope // as issued, and as it is now
	acknowledged         bool
	stopped              bool
	number               int
}

// New returns a service without contracts. Where the contracts are shared, they
// are parts of one account: each one's own key reaches the buckets of all.
func New(secrets Secrets, shared bool, regions ...string) *Service {
	if len(regions) == 0 {
		regions = []string{"us-east-1"}
	}
	return &Service{
		secrets: secrets, shared: shared, regions: regions, url: "http://s3.memory",
		contracts: map[string]contract.Spec{}, keys: map[string]*key{}, buckets: map[string]*bucket{},
	}
}

// Line is a service as one driver reaches it.
type Line struct {
	*Service
	// Step stands between the two, and is called with each exchange: a call of the
	// provider or an S3 request, by its name. do carries it out, and what Step
	// returns is what the caller is told.
	Step func(ctx context.Context, name string, do func() error) error
	// Refused: the driver's credentials are wrong.
	Refused bool
}

// Provider is the line as a contract.Provider.
func (l *Line) Provider() contract.Provider {
	if l.secrets == Repeated {
		return acknowledged{&provider{l}}
	}
	return &provider{l}
}

// provider implements contract.Provider.
type provider struct{ *Line }

// acknowledged implements contract.Acknowledger too.
type acknowledged struct{ *provider }

var (
	_ contract.Restorer     = (*provider)(nil)
	_ contract.Bounder      = (*provider)(nil)
	_ contract.Acknowledger = acknowledged{}
)

// read is a call that changes nothing, and is tried again as real providers do.
func (p *provider) read(ctx context.Context, name string, do func() error) error {
	err := p.call(ctx, name, do)
	if fault.Is(err, fault.Unavailable) && ctx.Err() == nil {
		err = p.call(ctx, name, do)
	}
	return err
}

// call is one call of the provider.
func (p *provider) call(ctx context.Context, name string, do func() error) error {
	err := p.Step(ctx, name, func() error {
		if p.Refused {
			return fault.New(fault.PermissionDenied, "the service refused the credentials; check them")
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return do()
	})
	if errors.Is(ctx.Err(), context.Canceled) {
		return fault.Wrap(fault.Canceled, ctx.Err(), "the call was given up")
	}
	return err
}

// Capabilities implements contract.Provider.
func (p *provider) Capabilities() contract.Capabilities {
	return contract.Capabilities{
		ScopeBy: contract.ScopeByKey, SeveralBuckets: true, SeveralPrefixes: true, ChosenKeys: p.secrets == Chosen, SharedBuckets: p.shared,
		Suspend: true, BucketBounds: true, Quota: contract.QuotaKinds{Buckets: true},
	}
}

func (s *Service) endpoints() []cosi.Endpoint {
	out := make([]cosi.Endpoint, len(s.regions))
	for i, r := range s.regions {
		out[i] = cosi.Endpoint{Region: r, URL: s.url, PathStyle: true}
	}
	return out
}

// Regions implements contract.Provider.
func (p *provider) Regions(ctx context.Context) (out []cosi.Endpoint, err error) {
	err = p.read(ctx, "Regions", func() error { out = p.endpoints(); return nil })
	return out, err
}

// Check implements contract.Provider.
func (p *provider) Check(ctx context.Context) error {
	return p.call(ctx, "Check", func() error { return nil })
}

// EnsureContract implements contract.Provider.
func (p *provider) EnsureContract(ctx context.Context, spec contract.Spec) (out contract.Contract, err error) {
	err = p.call(ctx, "EnsureContract", func() error {
		if have, ok := p.contracts[spec.Name]; ok {
			if err := spec.Found(have.Owner, have.Journal()); err != nil {
				return err
			}
		}
		p.contracts[spec.Name] = spec
		out, err = p.get(spec.Name)
		return err
	})
	return out, err
}

func (s *Service) get(name string) (contract.Contract, error) {
	spec, ok := s.contracts[name]
	if !ok {
		return contract.Contract{}, fault.New(fault.NotFound, "there is no such contract")
	}
	c := contract.Contract{Name: name, Owner: spec.Owner, Journal: spec.Journal(), State: contract.StateActive, Endpoints: s.endpoints()}
	slices.SortStableFunc(c.Endpoints, func(a, b cosi.Endpoint) int {
		if a.Region == spec.Region && b.Region != spec.Region {
			return -1
		}
		return 0
	})
	if spec.Suspend {
		c.State = contract.StateSuspended
	}
	return c, nil
}

// GetContract implements contract.Provider.
func (p *provider) GetContract(ctx context.Context, name string) (out contract.Contract, err error) {
	err = p.read(ctx, "GetContract", func() error { out, err = p.get(name); return err })
	return out, err
}

// DeleteContract implements contract.Provider.
func (p *provider) DeleteContract(ctx context.Context, name string) error {
	return p.call(ctx, "DeleteContract", func() error {
		for _, b := range p.buckets {
			if b.contract == name {
				return fault.New(fault.FailedPrecondition, "it still has buckets; delete them first")
			}
		}
		delete(p.contracts, name)
		for id, k := range p.keys {
			if k.contract == name {
				delete(p.keys, id)
			}
		}
		return nil
	})
}

// IssueKey implements contract.Provider.
func (p *provider) IssueKey(ctx context.Context, req contract.IssueKeyRequest) (out secret.KeyPair, err error) {
	err = p.call(ctx, "IssueKey", func() error {
		have, err := p.get(req.Contract)
		if err != nil {
			return err
		}
		if have.State != contract.StateActive {
			return fault.New(fault.FailedPrecondition, "the contract is suspended; resume it first")
		}
		out, err = p.issue(req)
		return err
	})
	return out, err
}

func (s *Service) issue(req contract.IssueKeyRequest) (secret.KeyPair, error) {
	var same *key
	for id, k := range s.keys {
		switch {
		case k.contract != req.Contract || k.slot != req.Slot:
		case k.name == req.Proposed.AccessKeyID && s.secrets != Once:
			same = k
		case !slices.Contains(req.Keep, id) && !req.Exact: // or it would not be looked for
			delete(s.keys, id)
		}
	}
	if same != nil {
		if same.acknowledged {
			return secret.KeyPair{}, fault.New(fault.Mismatch, "the secret of this key is not told again")
		}
		return same.pair, nil
	}
	s.made++
	k := &key{contract: req.Contract, slot: req.Slot, name: req.Proposed.AccessKeyID, pair: req.Proposed, scope: req.Scope, acts: req.Scope, number: s.made}
	if s.secrets != Chosen {
		k.pair = secret.KeyPair{AccessKeyID: "AK" + rand.Text(), SecretAccessKey: secret.New(rand.Text())}
	}
	s.keys[k.pair.AccessKeyID] = k
	return k.pair, nil
}

// AcknowledgeKey implements contract.Acknowledger.
func (a acknowledged) AcknowledgeKey(ctx context.Context, name string, proposed secret.KeyPair) error {
	return a.call(ctx, "AcknowledgeKey", func() error {
		for _, k := range a.keys {
			if k.contract == name && k.name == proposed.AccessKeyID {
				k.acknowledged = true
			}
		}
		return nil
	})
}

// ListKeys implements contract.Provider.
func (p *provider) ListKeys(ctx context.Context, name, slot string) (out []contract.KeyInfo, err error) {
	err = p.read(ctx, "ListKeys", func() error {
		if _, err := p.get(name); err != nil {
			return err
		}
		out = p.list(name, slot)
		return nil
	})
	return out, err
}

func (s *Service) list(name, slot string) (out []contract.KeyInfo) {
	for id, k := range s.keys {
		if k.contract == name && (slot == "" || k.slot == slot) {
			out = append(out, contract.KeyInfo{AccessKeyID: id, Slot: k.slot, Active: !k.stopped, Name: k.name, CreatedAt: time.Unix(int64(k.number), 0)})
		}
	}
	slices.SortFunc(out, func(a, b contract.KeyInfo) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return out
}

// RevokeKey implements contract.Provider.
func (p *provider) RevokeKey(ctx context.Context, req contract.RevokeKeyRequest) error {
	return p.call(ctx, "RevokeKey", func() error {
		for id, k := range p.keys {
			going := k.contract == req.Contract && k.slot == req.Slot && (req.AccessKeyID == "" || req.AccessKeyID == id)
			if going && (!req.Exact || slices.Contains(req.Known, id)) { // what is not known would not be looked for
				delete(p.keys, id)
			}
		}
		return nil
	})
}

// RestoreKey implements contract.Restorer.
func (p *provider) RestoreKey(ctx context.Context, name, slot string, pair secret.KeyPair, _ *contract.Scope, write bool) (differing []string, err error) {
	err = p.call(ctx, "RestoreKey", func() error {
		k := p.keys[pair.AccessKeyID]
		if k == nil || k.contract != name || k.slot != slot {
			return fault.New(fault.NotFound, "there is no such key")
		}
		if k.stopped {
			differing = append(differing, contract.KeyInactive)
		}
		if k.acts != k.scope {
			differing = append(differing, contract.KeyPolicy)
		}
		if write {
			k.stopped, k.acts = false, k.scope
		}
		return nil
	})
	return differing, err
}

// bucketOf is a bucket of a contract.
func (s *Service) bucketOf(name, bucket string) (*bucket, error) {
	if b := s.buckets[bucket]; b != nil && b.contract == name {
		return b, nil
	}
	return nil, fault.New(fault.NotFound, "there is no such bucket")
}

// BucketUse implements contract.Bounder.
func (p *provider) BucketUse(ctx context.Context, name, bucket string) (out contract.BucketUse, err error) {
	err = p.read(ctx, "BucketUse", func() error {
		b, err := p.bucketOf(name, bucket)
		if err == nil {
			out = b.use(bucket)
		}
		return err
	})
	return out, err
}

// BucketUses implements contract.Bounder.
func (p *provider) BucketUses(ctx context.Context, name string) (out []contract.BucketUse, err error) {
	err = p.read(ctx, "BucketUses", func() error {
		for bucket, b := range p.buckets {
			if b.contract == name {
				out = append(out, b.use(bucket))
			}
		}
		if p.twice {
			out = append(out, out...)
		}
		return nil
	})
	return out, err
}

// BoundBucket implements contract.Bounder.
func (p *provider) BoundBucket(ctx context.Context, name, bucket string, to contract.Bounds) error {
	return p.call(ctx, "BoundBucket", func() error {
		b, err := p.bucketOf(name, bucket)
		if err == nil {
			b.bounds = to
		}
		return err
	})
}

// What follows is for a test that looks behind the service, or is its operator.

// ListTwice lets lists have each bucket twice, as one in pages can that changes while it is read.
func (s *Service) ListTwice() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.twice = true
}

// Key is a key that the service accepts.
type Key struct {
	Contract, Slot, AccessKeyID string
	Buckets                     []string
}

// Keys are those that the service accepts, by contract, slot and age.
func (s *Service) Keys() (out []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.contracts {
		for _, info := range s.list(name, "") {
			k := Key{Contract: name, Slot: info.Slot, AccessKeyID: info.AccessKeyID}
			if scope := s.keys[info.AccessKeyID].scope; scope != nil {
				for _, b := range scope.Buckets {
					k.Buckets = append(k.Buckets, b.Bucket)
				}
			}
			out = append(out, k)
		}
	}
	slices.SortStableFunc(out, func(a, b Key) int { return strings.Compare(a.Contract+"/"+a.Slot, b.Contract+"/"+b.Slot) })
	return out
}

// Contracts are the names of those that there are.
func (s *Service) Contracts() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.contracts {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// Suspended reports whether a contract is.
func (s *Service) Suspended(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contracts[name].Suspend
}

// Suspend stops a contract, or resumes it.
func (s *Service) Suspend(name string, suspend bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spec := s.contracts[name]
	spec.Suspend = suspend
	s.contracts[name] = spec
}

// DropContract takes a contract away with all that it holds.
func (s *Service) DropContract(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.contracts, name)
	for id, k := range s.keys {
		if k.contract == name {
			delete(s.keys, id)
		}
	}
	for id, b := range s.buckets {
		if b.contract == name {
			delete(s.buckets, id)
		}
	}
}

// DropKeys takes the keys of a slot away.
func (s *Service) DropKeys(name, slot string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, k := range s.keys {
		if k.contract == name && k.slot == slot {
			delete(s.keys, id)
		}
	}
}

// StopKey makes the service refuse a key.
func (s *Service) StopKey(accessKeyID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.keys[accessKeyID]; k != nil {
		k.stopped = true
	}
}

// LimitKey lets a key do something else than it was issued for.
func (s *Service) LimitKey(accessKeyID string, to contract.Scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.keys[accessKeyID]; k != nil {
		k.acts = &to
	}
}

// AddRegion gives the service another region.
func (s *Service) AddRegion(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.regions = append(s.regions, name)
}
