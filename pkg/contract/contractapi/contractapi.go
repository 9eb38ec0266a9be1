// Package contractapi is the provider for services that serve the contract API
// of openapi.yaml, beside this file: contractd, or the contract service of a
// company.
//
// Every write of that API is a PUT or DELETE of something the driver named, so
// a call whose answer was lost is simply repeated, first here and then by
// the caller that retries the RPC. The pair that the driver proposes is used for its
// id, as the key's name: the same name answers the same secret until the
// driver acknowledges it.
package contractapi

//go:generate go tool -modfile=../../../test/tools/go.mod oapi-codegen -config internal/api/config.yaml -o internal/api/api.gen.go openapi.yaml

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contractapi/internal/api"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/retry"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// Config reaches a service.
type Config struct {
	// URL is the API's base address.
	URL string
	// Token returns the bearer token as it is now.
	Token func() secret.String
	// Allowed are the addresses that the service may name.
	Allowed transport.Allowed
	// KeysReachAll says that the service cannot limit a key to buckets: each
	// reaches all of its contract.
	KeysReachAll bool
	// HTTP carries the calls. Its transport keeps connections open.
	HTTP *http.Client
	// Observe is told of every call that was tried, with the outcome.
	Observe func(operation string, err error)
}

// Provider is a contract service.
type Provider struct {
	Config
	client  *api.Client
	scopeBy contract.ScopeBy
}

var (
	_ contract.Provider     = (*Provider)(nil)
	_ contract.Acknowledger = (*Provider)(nil)
	_ contract.Comparer     = (*Provider)(nil)
	_ contract.Meter        = (*Provider)(nil)
	_ contract.Bounder      = (*Provider)(nil)
)

// New returns the provider; no call is made.
func New(c Config) (*Provider, error) {
	calls, err := api.NewClient(c.URL, api.WithHTTPClient(c.HTTP), api.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+c.Token().Reveal())
		return nil
	}))
	if err != nil {
		return nil, fmt.Errorf("contract service %s: %w", c.URL, err)
	}
	p := &Provider{Config: c, client: calls, scopeBy: contract.ScopeByKey}
	if c.KeysReachAll {
		p.scopeBy = contract.ScopeByNone
	}
	return p, nil
}

// Capabilities implements contract.Provider.
func (p *Provider) Capabilities() contract.Capabilities {
	scoped := p.scopeBy == contract.ScopeByKey
	return contract.Capabilities{
		ScopeBy: p.scopeBy, SourceAddresses: scoped, SeveralBuckets: true, SeveralPrefixes: scoped, Actions: scoped, KeyExpiry: true,
		Suspend: true, Plans: true, Labels: true, BucketBounds: true,
		Quota: contract.QuotaKinds{Buckets: true, Keys: true, Bytes: true, Objects: true}, // the service says what it has not
	}
}

// Regions implements contract.Provider.
func (p *Provider) Regions(ctx context.Context) ([]cosi.Endpoint, error) {
	var list api.RegionList
	err := p.call(ctx, "ListRegions", &list, func(ctx context.Context) (*http.Response, error) { return p.client.ListRegions(ctx) })
	if err == nil && len(list.Items) == 0 {
		err = unpromised(nil)
	}
	if err != nil {
		return nil, err
	}
	return p.endpointsOf(list.Items)
}

// Check implements contract.Provider. Of each region's S3 server any answer
// will do.
func (p *Provider) Check(ctx context.Context) error {
	endpoints, err := p.Regions(ctx)
	if err != nil {
		return err
	}
	return contract.Reach(ctx, p.HTTP, endpoints)
}

// EnsureContract implements contract.Provider. The journal's mark is a label, and
// the labels that are put take the place of all there were: so a contract is read
// first, and none that is signed meanwhile is written over. A service without
// labels has no such mark.
func (p *Provider) EnsureContract(ctx context.Context, spec contract.Spec) (contract.Contract, error) {
	if len(spec.Journals) == 0 {
		return p.put(ctx, spec, nil)
	}
	have, err := p.GetContract(ctx, spec.Name)
	if fault.Is(err, fault.NotFound) {
		have, err = p.sign(ctx, spec)
		if !overtaken(err) {
			return have, err
		}
		have, err = p.GetContract(ctx, spec.Name)
	}
	if err == nil {
		err = spec.Found(have.Owner, have.Journal)
	}
	if err != nil {
		return contract.Contract{}, err
	}
	return p.put(ctx, spec, nil)
}

// sign puts a contract that is not there.
func (p *Provider) sign(ctx context.Context, spec contract.Spec) (contract.Contract, error) {
	absent := &api.PutContractParams{IfNoneMatch: optional("*")}
	have, err := p.put(ctx, spec, absent)
	if fault.Is(err, fault.Unsupported) && len(spec.Labels) == 0 {
		spec.Journals = nil
		return p.put(ctx, spec, absent)
	}
	return have, err
}

// overtaken reports whether a contract is there that was not: of another driver, or
// of a try whose answer was lost.
func overtaken(err error) bool {
	var problem *Problem
	return errors.As(err, &problem) && problem.Code == api.PreconditionFailed
}

func (p *Provider) put(ctx context.Context, spec contract.Spec, params *api.PutContractParams) (contract.Contract, error) {
	desired := api.ContractSpecDesiredStateActive
	if spec.Suspend {
		desired = api.ContractSpecDesiredStateSuspended
	}
	body := api.ContractSpec{
		Owner:        spec.Owner,
		DisplayName:  optional(spec.Display),
		Region:       optional(spec.Region),
		Plan:         optional(spec.Plan),
		DesiredState: &desired,
		Quota:        &api.Quota{MaxBuckets: spec.Quota.MaxBuckets, MaxKeys: spec.Quota.MaxKeys, MaxBytes: spec.Quota.MaxBytes, MaxObjects: spec.Quota.MaxObjects},
	}
	labels := maps.Clone(spec.Labels)
	if mark := spec.Journal(); mark != "" {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[cosi.JournalTag] = mark
	}
	if len(labels) > 0 {
		body.Labels = &labels
	}
	return p.contract(ctx, "PutContract", spec.Name, func(ctx context.Context) (*http.Response, error) {
		return p.client.PutContract(ctx, spec.Name, params, body)
	})
}

// GetContract implements contract.Provider.
func (p *Provider) GetContract(ctx context.Context, name string) (contract.Contract, error) {
	return p.contract(ctx, "GetContract", name, func(ctx context.Context) (*http.Response, error) { return p.client.GetContract(ctx, name) })
}

// CompareContract implements contract.Comparer. An absent bound is a term too:
// it is what a signed contract without one has.
func (p *Provider) CompareContract(ctx context.Context, spec contract.Spec) (contract.Contract, []string, error) {
	var c api.Contract
	have, err := p.contractInto(ctx, &c, "GetContract", spec.Name, func(ctx context.Context) (*http.Response, error) {
		return p.client.GetContract(ctx, spec.Name)
	})
	if err != nil {
		return have, nil, err
	}
	quota, labels := value(c.Spec.Quota), maps.Clone(value(c.Spec.Labels))
	delete(labels, cosi.JournalTag)
	var differing []string
	for _, term := range []struct {
		name    string
		differs bool
	}{
		{"displayName", spec.Display != "" && value(c.Spec.DisplayName) != spec.Display},
		{"plan", spec.Plan != "" && value(c.Spec.Plan) != spec.Plan},
		{"quota", !sameBound(quota.MaxBuckets, spec.Quota.MaxBuckets) || !sameBound(quota.MaxKeys, spec.Quota.MaxKeys) ||
			!sameBound(quota.MaxBytes, spec.Quota.MaxBytes) || !sameBound(quota.MaxObjects, spec.Quota.MaxObjects)},
		{"labels", !maps.Equal(labels, spec.Labels)},
		{"suspend", (value(c.Spec.DesiredState) == api.ContractSpecDesiredStateSuspended) != spec.Suspend},
	} {
		if term.differs {
			differing = append(differing, term.name)
		}
	}
	return have, differing, nil
}

func sameBound(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }

func (p *Provider) contract(ctx context.Context, operation, name string, send send) (contract.Contract, error) {
	return p.contractInto(ctx, &api.Contract{}, operation, name, send)
}

func (p *Provider) contractInto(ctx context.Context, c *api.Contract, operation, name string, send send) (contract.Contract, error) {
	meta, err := p.exchange(ctx, operation, c, send)
	if err == nil && c.Name != name {
		err = unpromised(nil)
	}
	if err != nil {
		return contract.Contract{}, err
	}
	state, ok := states[c.State]
	if !ok {
		return contract.Contract{}, fault.New(fault.Internal, "the service says state %q, which this driver does not know", p.said(string(c.State)))
	}
	endpoints, err := p.endpointsOf(c.Endpoints)
	if err != nil {
		return contract.Contract{}, fault.In(err, "contract %s", name)
	}
	return contract.Contract{
		Name:       c.Name,
		Owner:      c.Spec.Owner,
		Journal:    value(c.Spec.Labels)[cosi.JournalTag],
		State:      state,
		Message:    p.said(value(c.Message)),
		Endpoints:  endpoints,
		RetryAfter: retry.After(meta.header),
	}, nil
}

var states = map[api.ContractState]contract.State{
	api.ContractStatePending:    contract.StatePending,
	api.ContractStateActive:     contract.StateActive,
	api.ContractStateSuspended:  contract.StateSuspended,
	api.ContractStateCancelling: contract.StateCancelling,
	api.ContractStateCancelled:  contract.StateCancelling,
	api.ContractStateFailed:     contract.StateFailed,
}

// Usage implements contract.Meter.
func (p *Provider) Usage(ctx context.Context, name string) (contract.Usage, error) {
	var u api.Usage
	err := p.call(ctx, "GetUsage", &u, func(ctx context.Context) (*http.Response, error) { return p.client.GetUsage(ctx, name) })
	if err != nil {
		return contract.Usage{}, err
	}
	return contract.Usage{Buckets: &u.Buckets, Keys: &u.Keys, Bytes: u.Bytes, Objects: u.Objects}, nil
}

// DeleteContract implements contract.Provider.
func (p *Provider) DeleteContract(ctx context.Context, name string) error {
	var c api.Contract
	meta, err := p.exchange(ctx, "DeleteContract", &c, func(ctx context.Context) (*http.Response, error) {
		return p.client.DeleteContract(ctx, name, nil)
	})
	switch {
	case fault.Is(err, fault.NotFound) || err == nil && meta.status == http.StatusNoContent:
		return nil
	case err == nil && meta.status == http.StatusAccepted:
		f := fault.New(fault.Pending, "it is being cancelled")
		f.RetryAfter = retry.After(meta.header)
		return f
	case err == nil:
		err = unpromised(nil)
	}
	return err
}

// IssueKey implements contract.Provider.
func (p *Provider) IssueKey(ctx context.Context, req contract.IssueKeyRequest) (secret.KeyPair, error) {
	body := api.KeyRequest{Spec: api.KeySpec{Slot: req.Slot}}
	if len(req.Keep) > 0 {
		body.Keep = &req.Keep
	}
	if req.Scope != nil && p.scopeBy != contract.ScopeByNone {
		grants := make([]api.BucketGrant, len(req.Scope.Buckets))
		for i, b := range req.Scope.Buckets {
			grants[i] = api.BucketGrant{Bucket: b.Bucket, Prefix: optional(b.Prefix), Access: accesses[b.Mode],
				ObjectMetadata: optional(accesses[b.ObjectMetadata]), BucketMetadata: optional(accesses[b.BucketMetadata])}
			if len(b.Actions) > 0 {
				grants[i].Actions = &b.Actions
			}
		}
		body.Spec.Buckets = &grants
		if len(req.Scope.SourceAddresses) > 0 {
			blocks := make([]string, len(req.Scope.SourceAddresses))
			for i, a := range req.Scope.SourceAddresses {
				blocks[i] = a.String()
			}
			body.Spec.SourceAddresses = &blocks
		}
		if !req.Scope.ExpiresAt.IsZero() {
			body.Spec.ExpiresAt = &req.Scope.ExpiresAt
		}
	}
	var issued api.IssuedKey
	err := p.call(ctx, "PutKey", &issued, func(ctx context.Context) (*http.Response, error) {
		return p.client.PutKey(ctx, req.Contract, req.Proposed.AccessKeyID, body)
	})
	if err == nil && (issued.Key.AccessKeyId == "" || issued.SecretAccessKey == "") {
		err = unpromised(nil)
	}
	if err == nil && !keepsMetadata(body.Spec, issued.Key.Spec) {
		err = fault.New(fault.Unsupported, "the contract service cannot limit a key by objectMetadata or bucketMetadata; leave them out of the BucketAccess")
	}
	if err != nil {
		return secret.KeyPair{}, err
	}
	return secret.KeyPair{AccessKeyID: issued.Key.AccessKeyId, SecretAccessKey: secret.New(issued.SecretAccessKey)}, nil
}

// keepsMetadata reports whether a key has the modes for metadata that it was asked
// for: a service that does not know them passes over them.
func keepsMetadata(asked, has api.KeySpec) bool {
	modes := func(s api.KeySpec) map[string][2]api.BucketAccess {
		out := map[string][2]api.BucketAccess{}
		for _, g := range value(s.Buckets) {
			if g.ObjectMetadata != nil || g.BucketMetadata != nil {
				out[g.Bucket+"/"+value(g.Prefix)] = [2]api.BucketAccess{value(g.ObjectMetadata), value(g.BucketMetadata)}
			}
		}
		return out
	}
	return maps.Equal(modes(asked), modes(has))
}

var accesses = map[cosi.AccessMode]api.BucketAccess{
	cosi.ReadWrite: api.ReadWrite,
	cosi.ReadOnly:  api.ReadOnly,
	cosi.WriteOnly: api.WriteOnly,
}

// AcknowledgeKey implements contract.Acknowledger.
func (p *Provider) AcknowledgeKey(ctx context.Context, name string, proposed secret.KeyPair) error {
	err := p.call(ctx, "AcknowledgeKey", nil, func(ctx context.Context) (*http.Response, error) {
		return p.client.AcknowledgeKey(ctx, name, proposed.AccessKeyID)
	})
	return err
}

// ListKeys implements contract.Provider.
func (p *Provider) ListKeys(ctx context.Context, name, slot string) ([]contract.KeyInfo, error) {
	keys, err := p.keys(ctx, name, slot)
	var out []contract.KeyInfo
	for _, k := range keys {
		out = append(out, contract.KeyInfo{AccessKeyID: k.AccessKeyId, Slot: k.Spec.Slot, Active: k.State == api.KeyStateActive, CreatedAt: k.CreatedAt, Name: k.Name})
	}
	return out, err
}

func (p *Provider) keys(ctx context.Context, name, slot string) ([]api.Key, error) {
	var out []api.Key
	err := transport.Pages(transport.Listing(ctx), func(ctx context.Context, token string) (string, bool, error) {
		var page api.KeyList
		err := p.call(ctx, "ListKeys", &page, func(ctx context.Context) (*http.Response, error) {
			return p.client.ListKeys(ctx, name, &api.ListKeysParams{Slot: optional(slot), PageToken: optional(token)})
		})
		if err == nil && page.Items == nil {
			err = unpromised(nil)
		}
		out = append(out, page.Items...)
		return value(page.NextPageToken), value(page.NextPageToken) != "", err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// RevokeKey implements contract.Provider.
func (p *Provider) RevokeKey(ctx context.Context, req contract.RevokeKeyRequest) error {
	return fault.IgnoreNotFound(p.revokeKey(ctx, req.Contract, req.Slot, req.AccessKeyID))
}

func (p *Provider) revokeKey(ctx context.Context, name, slot, accessKeyID string) error {
	if accessKeyID == "" {
		return p.call(ctx, "RevokeSlot", nil, func(ctx context.Context) (*http.Response, error) {
			return p.client.RevokeSlot(ctx, name, &api.RevokeSlotParams{Slot: slot})
		})
	}
	// The API deletes by name and the caller knows the id: a rare call may list.
	keys, err := p.keys(ctx, name, slot)
	i := slices.IndexFunc(keys, func(k api.Key) bool { return k.AccessKeyId == accessKeyID })
	if err != nil || i < 0 {
		return err
	}
	return p.call(ctx, "DeleteKey", nil, func(ctx context.Context) (*http.Response, error) { return p.client.DeleteKey(ctx, name, keys[i].Name) })
}

// unpromised is what a success is that the API does not know: of whatever stands
// in front of the service, maybe, so what was asked may not have been done.
func unpromised(cause error) error {
	f := fault.Wrap(fault.Unavailable, cause, "the contract service's answer is not what its API promises; check that the backend's url is a contract service")
	f.Final = true
	return f
}

// said is a text of the service, fit for a message.
func (p *Provider) said(text string) string { return fault.Said(text, p.Token().Reveal()) }

// send makes one HTTP request.
type send func(context.Context) (*http.Response, error)

func (p *Provider) call(ctx context.Context, operation string, into any, send send) error {
	_, err := p.exchange(ctx, operation, into, send)
	return err
}

// meta is what an answer says beside its body.
type meta struct {
	status int
	header http.Header
}

// exchange makes a call and reads its answer: JSON into the value given, or
// nothing, which is 204, where none is given.
func (p *Provider) exchange(ctx context.Context, operation string, into any, send send) (meta, error) {
	var answer meta
	err := retry.Do(ctx, func() (err error) {
		answer, err = p.once(ctx, into, send)
		p.Observe(operation, err)
		return err
	})
	return answer, err
}

func (p *Provider) once(ctx context.Context, into any, send send) (meta, error) {
	answer, err := send(ctx)
	if err != nil {
		return meta{}, fault.NoAnswer(err, "", "the contract service")
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return meta{}, fault.NoAnswer(err, "", "the contract service")
	}
	m := meta{status: answer.StatusCode, header: answer.Header}
	switch {
	case answer.StatusCode >= 300:
		return m, p.problemOf(answer, text)
	case answer.StatusCode == http.StatusNoContent:
		return m, nil
	case into == nil:
		return m, unpromised(nil)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return m, unpromised(err)
	}
	return m, nil
}

// endpointsOf are endpoints that the service names, which the driver sends
// signed requests to and tells to applications.
func (p *Provider) endpointsOf(list []api.Endpoint) ([]cosi.Endpoint, error) {
	out := make([]cosi.Endpoint, len(list))
	for i, e := range list {
		if err := p.Allowed.Check(e.Url); err != nil {
			return nil, fault.Wrap(fault.FailedPrecondition, err, "the contract service names the S3 address %q: %s", p.said(e.Url), err)
		}
		if region := p.said(e.Region); region != e.Region {
			return nil, fault.New(fault.FailedPrecondition, "the contract service names a region %q, which is no name", region)
		}
		out[i] = cosi.Endpoint{Region: e.Region, URL: e.Url, PathStyle: e.PathStyle}
	}
	return out, nil
}

func optional[S ~string](s S) *S {
	if s == "" {
		return nil
	}
	return &s
}

// value returns what an optional field holds, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
