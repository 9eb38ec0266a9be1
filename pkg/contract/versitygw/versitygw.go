// Package versitygw is the provider for the S3 gateway of that name with its
// own accounts, which its admin API manages.
//
// A contract is an account that may make buckets, and owns them. A key is an
// account that may do nothing but what the policies of buckets let it: the
// provider keeps statements of its own in them, which name the keys. The rest of
// a policy is other people's and stays as it is, and the bucket's contract is
// always let do everything, because the gateway asks nothing but the policy once
// there is one.
//
// The gateway lists all its accounts or none, and cannot be asked about one. So
// nothing that is asked for every day lists them: their names are functions of
// the request, and who has a slot's keys stands in the policies of the buckets,
// which are read in any case. A list is for what the caller has lost track of.
//
// The gateway replaces a policy as a whole and has no way to say "if it is
// still as I read it". Within a process edits of one bucket's policy wait for
// each other; a key that was let in is read again. Gateways that share their
// accounts over several processes cache them: their cache's lifetime is the
// backend's settleTime.
package versitygw

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/lock"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// Config reaches a gateway.
type Config struct {
	// AdminURL is the admin API's base address.
	AdminURL string
	// S3URL is where the policies of buckets are edited; "" is the first endpoint.
	S3URL string
	// Endpoints are where S3 is served, the default one first.
	Endpoints []cosi.Endpoint
	// Credentials returns root's key, or that of an account of role admin.
	Credentials func() secret.KeyPair
	// Owner is the driver's mark. The gateway keeps a hash of it, so it is the
	// only mark that is told again.
	Owner string
	// Settles is the lifetime of the gateways' cache of accounts, where there
	// are several.
	Settles time.Duration
	// HTTP carries the calls.
	HTTP *http.Client
	// Observe is told of every call that was tried, with the outcome.
	Observe func(operation string, err error)
}

// Provider is a gateway.
type Provider struct {
	client    signed.Client
	adminURL  string
	s3URL     string
	endpoints []cosi.Endpoint
	owner     string
	settles   time.Duration
	editing   lock.Names // of the policies of buckets
}

var (
	_ contract.Provider = (*Provider)(nil)
	_ contract.Holder   = (*Provider)(nil)
)

// New returns the provider; no call is made.
func New(c Config) *Provider {
	if c.S3URL == "" {
		c.S3URL = c.Endpoints[0].URL
	}
	return &Provider{
		client:    signed.Client{Table: answers, Region: c.Endpoints[0].Region, Credentials: c.Credentials, HTTP: c.HTTP, Observe: c.Observe},
		endpoints: c.Endpoints, owner: c.Owner, settles: c.Settles,
		adminURL: strings.TrimSuffix(c.AdminURL, "/"), s3URL: strings.TrimSuffix(c.S3URL, "/"),
	}
}

// Capabilities implements contract.Provider.
func (p *Provider) Capabilities() contract.Capabilities {
	return contract.Capabilities{
		ScopeBy: contract.ScopeByBucketPolicy, SourceAddresses: true, SeveralBuckets: true,
		ChosenKeys: true, OwnerNeedsPolicy: true, Settles: p.settles,
	}
}

// Regions implements contract.Provider.
func (p *Provider) Regions(context.Context) ([]cosi.Endpoint, error) { return p.endpoints, nil }

// Check implements contract.Provider.
func (p *Provider) Check(ctx context.Context) error {
	_, err := p.bucketsOf(ctx, "")
	return err
}

// EnsureContract implements contract.Provider. A display name has no place in
// the gateway.
func (p *Provider) EnsureContract(ctx context.Context, spec contract.Spec) (contract.Contract, error) {
	wanted := contractAccount(spec.Name, spec.Owner)
	all, err := p.accounts(ctx)
	if err != nil {
		return contract.Contract{}, err
	}
	have, err := find(all, spec.Name)
	if fault.Is(err, fault.NotFound) {
		if have, all, err = p.sign(ctx, spec.Name, wanted, spec.Journal()); err != nil {
			return contract.Contract{}, err
		}
	}
	if err != nil {
		return contract.Contract{}, err
	}
	if have.Access != wanted {
		return contract.Contract{}, contract.OtherOwner()
	}
	c := p.contractOf(spec.Name, have, all)
	if err := spec.Found(spec.Owner, c.Journal); err != nil {
		return contract.Contract{}, err
	}
	c.Owner = spec.Owner
	return c, nil
}

// sign makes a contract's account, after its journal's mark: a contract that is
// seen without one has none. Where two drivers do so at once, both look who else is
// there, and all but one give way.
func (p *Provider) sign(ctx context.Context, name, access, journal string) (have account, all []account, err error) {
	made, mark := []string{access}, keyAccount(name, journalSlot, journal)
	if journal != "" {
		made = []string{mark, access}
	}
	for _, access := range made {
		err := p.create(ctx, access, secret.New(rand.Text()+rand.Text()), mayNothing) // a contract's key is issued later
		if err != nil && signed.Code(err) != "XAdminUserExists" {
			return account{}, nil, err
		}
	}
	if all, err = p.accounts(ctx); err != nil {
		return account{}, nil, err
	}
	first := ""
	for _, a := range all {
		if a.isContract(name) && (first == "" || a.Access < first) {
			first = a.Access
		}
	}
	var lost []string
	if first != access {
		lost = append(lost, access)
	}
	if journal != "" && (first != access || markOf(all, name) != journal) {
		lost = append(lost, mark)
	}
	return account{Access: first, Role: mayNothing}, all, p.removeAll(ctx, lost)
}

func (p *Provider) contractOf(name string, a account, all []account) contract.Contract {
	owner := "another driver (" + a.parts()[1] + ")"
	if a.Access == contractAccount(name, p.owner) {
		owner = p.owner
	}
	return contract.Contract{Name: name, Owner: owner, Journal: markOf(all, name), State: contract.StateActive, Endpoints: p.endpoints}
}

// GetContract implements contract.Provider.
func (p *Provider) GetContract(ctx context.Context, name string) (contract.Contract, error) {
	all, err := p.accounts(ctx)
	if err != nil {
		return contract.Contract{}, err
	}
	have, err := find(all, name)
	if err != nil {
		return contract.Contract{}, err
	}
	return p.contractOf(name, have, all), nil
}

// DeleteContract implements contract.Provider. The gateway would delete an
// account that owns buckets and leave them without an owner, so they are looked for,
// while the account cannot make any.
func (p *Provider) DeleteContract(ctx context.Context, name string) error {
	all, err := p.accounts(ctx)
	if err != nil {
		return err
	}
	have, err := find(all, name)
	switch {
	case fault.Is(err, fault.NotFound):
	case err != nil:
		return err
	default:
		if err := p.stopWithoutBuckets(ctx, have); err != nil {
			return err
		}
	}
	for _, a := range all {
		slot := a.slot(name)
		if slot != "" && slot != cosi.ContractSlot || strings.HasPrefix(a.Access, keyAccount(name, journalSlot, "")) {
			if err := p.remove(ctx, a.Access); err != nil {
				return err
			}
		}
	}
	if have.Access == "" {
		return nil
	}
	return p.remove(ctx, have.Access)
}

// stopWithoutBuckets takes from a contract's account the right to make buckets,
// if it has none: FailedPrecondition if it has, and then all is as before.
func (p *Provider) stopWithoutBuckets(ctx context.Context, a account) error {
	if a.Role == makesBuckets {
		if err := p.update(ctx, a.Access, nil, mayNothing); err != nil {
			return err
		}
	}
	buckets, err := p.bucketsOf(ctx, a.Access)
	if err == nil && len(buckets) == 0 {
		return nil
	}
	if a.Role == makesBuckets {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		if undo := p.update(ctx, a.Access, nil, makesBuckets); err == nil {
			err = undo
		}
	}
	if err == nil {
		err = fault.New(fault.FailedPrecondition, "it still has %d buckets; delete them first", len(buckets))
	}
	return err
}

// undoTimeout bounds what is undone after a call was given up.
const undoTimeout = 5 * time.Second

// IssueKey implements contract.Provider.
func (p *Provider) IssueKey(ctx context.Context, req contract.IssueKeyRequest) (secret.KeyPair, error) {
	issue := p.issueKey
	if req.Scope == nil {
		issue = p.issueContractKey
	}
	pair, err := issue(ctx, req)
	if err != nil {
		return secret.KeyPair{}, err
	}
	return pair, nil
}

// issueContractKey gives the contract's account the proposed secret. The
// account is what owns the buckets, so its name stays.
func (p *Provider) issueContractKey(ctx context.Context, req contract.IssueKeyRequest) (secret.KeyPair, error) {
	pair := secret.KeyPair{AccessKeyID: contractAccount(req.Contract, p.owner), SecretAccessKey: req.Proposed.SecretAccessKey}
	switch {
	case req.Slot != cosi.ContractSlot:
		return pair, fault.New(fault.Unsupported, "versitygw has one key that reaches all of a contract")
	case slices.Contains(req.Keep, pair.AccessKeyID):
		return pair, fault.New(fault.LimitExceeded, "versitygw has one key that reaches all of a contract")
	}
	return pair, p.update(ctx, pair.AccessKeyID, &pair.SecretAccessKey, makesBuckets)
}

// issueKey makes the key's account, lets the buckets' policies name it and
// those of the slot that stay, and takes all others away.
func (p *Provider) issueKey(ctx context.Context, req contract.IssueKeyRequest) (secret.KeyPair, error) {
	pair := secret.KeyPair{AccessKeyID: keyAccount(req.Contract, req.Slot, req.Proposed.AccessKeyID), SecretAccessKey: req.Proposed.SecretAccessKey}
	stay, there := slices.Clone(req.Keep), false
	var orphans []string
	if !req.Exact {
		have, err := p.keysOf(ctx, req.Contract, req.Slot)
		if err != nil {
			return pair, err
		}
		stay = nil
		for _, a := range have {
			switch {
			case a.Access == pair.AccessKeyID:
				there = a.Secret == pair.SecretAccessKey.Reveal()
			case slices.Contains(req.Keep, a.Access):
				stay = append(stay, a.Access)
			default:
				orphans = append(orphans, a.Access)
			}
		}
	}
	if !there {
		err := p.create(ctx, pair.AccessKeyID, pair.SecretAccessKey, mayNothing)
		if signed.Code(err) == "XAdminUserExists" {
			err = p.update(ctx, pair.AccessKeyID, &pair.SecretAccessKey, mayNothing)
		}
		if err != nil {
			return pair, err
		}
	}
	named, err := p.grant(ctx, req, append(stay, pair.AccessKeyID))
	if err != nil {
		return pair, err
	}
	return pair, p.removeAll(ctx, append(orphans, named...))
}

// keysOf are the accounts of a slot's keys, or of all slots of a contract for "".
// NotFound if there is no such contract.
func (p *Provider) keysOf(ctx context.Context, name, slot string) ([]account, error) {
	all, err := p.accounts(ctx)
	if err == nil {
		_, err = find(all, name)
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(a account) bool {
		of := a.slot(name)
		return of == "" || slot != "" && of != slot
	}), nil
}

// ListKeys implements contract.Provider. The gateway does not say when an
// account was made.
func (p *Provider) ListKeys(ctx context.Context, name, slot string) ([]contract.KeyInfo, error) {
	have, err := p.keysOf(ctx, name, slot)
	var out []contract.KeyInfo
	for _, a := range have {
		out = append(out, contract.KeyInfo{AccessKeyID: a.Access, Slot: a.slot(name), Active: true})
	}
	return out, err
}

// HoldsKey implements contract.Holder: the storage is asked with the key itself,
// which need not be let do what it asks.
func (p *Provider) HoldsKey(ctx context.Context, scope contract.Scope, pair secret.KeyPair) (held bool, err error) {
	known := func(err error) (held, told bool) {
		switch code := signed.Code(err); code {
		case "AccessDenied", "NoSuchBucket", "SignatureDoesNotMatch":
			return true, true
		case "InvalidAccessKeyId":
			return false, true
		}
		return err == nil, err == nil
	}
	as := p.client
	as.Credentials = func() secret.KeyPair { return pair }
	as.Observe = func(operation string, err error) {
		if _, told := known(err); told {
			err = nil
		}
		p.client.Observe(operation, err)
	}
	_, err = as.Do(ctx, signed.Call{Operation: "ProbeKey", Method: http.MethodGet, API: transport.S3, URL: p.s3URL + "/" + scope.Buckets[0].Bucket + "?location="})
	held, told := known(err)
	if told {
		return held, nil
	}
	return false, err
}

// RevokeKey implements contract.Provider. A key leaves the policies before its
// account goes: the gateway takes no policy that names an account which is gone.
func (p *Provider) RevokeKey(ctx context.Context, req contract.RevokeKeyRequest) error {
	if req.Slot == cosi.ContractSlot {
		return p.revokeContractKey(ctx, req)
	}
	going := func(access string) bool {
		return isOf(access, req.Contract, req.Slot) && (req.AccessKeyID == "" || access == req.AccessKeyID)
	}
	known := slices.Clone(req.Known)
	if !req.Exact {
		have, err := p.keysOf(ctx, req.Contract, req.Slot)
		if err != nil {
			return fault.IgnoreNotFound(err)
		}
		for _, a := range have {
			known = append(known, a.Access)
		}
	}
	known = slices.DeleteFunc(known, func(access string) bool { return !going(access) })
	if len(known) == 0 && !req.Exact {
		return nil
	}
	var buckets []string
	if req.Scope != nil {
		buckets = bucketsIn(req.Scope)
	} else {
		var err error
		if buckets, err = p.bucketsOf(ctx, contractAccount(req.Contract, p.owner)); err != nil {
			return err
		}
	}
	named, err := p.ungrant(ctx, req.Contract, buckets, going)
	if err != nil {
		return err
	}
	return p.removeAll(ctx, append(known, named...))
}

// revokeContractKey leaves a contract's account with a secret that no one knows.
func (p *Provider) revokeContractKey(ctx context.Context, req contract.RevokeKeyRequest) error {
	access := contractAccount(req.Contract, p.owner)
	if req.AccessKeyID != "" && req.AccessKeyID != access {
		return nil
	}
	unknown := secret.New(rand.Text() + rand.Text())
	return fault.IgnoreNotFound(p.update(ctx, access, &unknown, mayNothing))
}
