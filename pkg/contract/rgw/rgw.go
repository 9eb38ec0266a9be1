// Package rgw is the provider for Ceph object gateways (radosgw), through the
// Admin Ops API, for users and keys, and the IAM API beside it, for policies.
//
// A contract is a tenant of the gateway, with a user that owns the tenant's
// buckets. An access is another user of that tenant, with one policy and one
// key. That answers what is hard about a gateway with a flat list of users:
//
//   - An object belongs to the user who wrote it, and the owner of the bucket
//     may not read it. But a policy reaches as far as its user's tenant, and no
//     further: so the contract's own user may be allowed everything, and then
//     reaches every object of the contract and nothing else.
//   - A bucket's name is free if no other bucket of the contract has it, and a
//     policy that names a bucket can never come to mean another contract's.
//   - All that belongs to a contract is found by the name of its tenant.
//
// A tenant's buckets are found by name with the tenant's keys. A request
// without one, to a bucket that is public, names it as <tenant>:<bucket>.
//
// The driver chooses a key's id and leaves its secret to the gateway, which
// could take that too, but writes it into its log.
//
// Release 16 drops a user's policies with every other change of the user. So
// policies are written last, and the changes are few.
//
// Squid and later releases have accounts. [Accounts] is the provider that makes
// a contract an account, and leaves what is in it to pkg/contract/iam.
package rgw

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Config reaches a gateway.
type Config struct {
	// AdminURL serves the Admin Ops API; "" is the first endpoint.
	AdminURL string
	// Endpoints are where S3 is served, the default one first. A region is a zone
	// group of the realm; its users are the same in all of them.
	Endpoints []cosi.Endpoint
	// Credentials returns the key of the driver's own user, which has the
	// capabilities users=* and user-policy=*, and for the quotas and usage of buckets
	// buckets=*; see [Accounts] for what those need.
	Credentials func() secret.KeyPair
	// Settles is how long a change takes to the other zones of the realm, where
	// there are any. It is not waited for.
	Settles time.Duration
	// HTTP carries the calls. Its transport keeps connections open.
	HTTP *http.Client
	// Observe is told of every call that was tried, with the outcome.
	Observe func(operation string, err error)
}

// Provider is a Ceph object gateway.
type Provider struct {
	calls     *client
	endpoints []cosi.Endpoint
	settles   time.Duration
}

var (
	_ contract.Provider = (*Provider)(nil)
	_ contract.Bounder  = (*Provider)(nil)
)

// New returns the provider; no call is made.
func New(c Config) *Provider {
	return &Provider{endpoints: c.Endpoints, settles: c.Settles, calls: newClient(c)}
}

func newClient(c Config) *client {
	if c.AdminURL == "" {
		c.AdminURL = c.Endpoints[0].URL
	}
	return &client{url: strings.TrimSuffix(c.AdminURL, "/"), Client: signed.Client{
		Table: answers, Region: c.Endpoints[0].Region, Credentials: c.Credentials, HTTP: c.HTTP, Observe: c.Observe,
	}}
}

// Capabilities implements contract.Provider.
func (p *Provider) Capabilities() contract.Capabilities {
	return contract.Capabilities{
		ScopeBy: contract.ScopeByIdentityPolicy, SourceAddresses: true, SeveralBuckets: true, TagsLater: true, Placements: true, Suspend: true, BucketBounds: true,
		Quota: contract.QuotaKinds{Buckets: true, Bytes: true, Objects: true}, Settles: p.settles,
	}
}

// Regions implements contract.Provider.
func (p *Provider) Regions(context.Context) ([]cosi.Endpoint, error) { return p.endpoints, nil }

// Check implements contract.Provider. The driver's own user says what it may do;
// of each S3 address any answer will do.
func (p *Provider) Check(ctx context.Context) error {
	u, err := p.calls.userOfKey(ctx, p.calls.Credentials().AccessKeyID)
	if err != nil {
		return err
	}
	for _, needed := range []string{"users", "user-policy"} {
		if !slices.ContainsFunc(u.Caps, func(c capability) bool { return c.Type == needed && c.Perm == "*" }) {
			return fault.New(fault.PermissionDenied, "the driver's own user at the Ceph gateway lacks the capability %s=*; add it with radosgw-admin caps add", needed)
		}
	}
	return contract.Reach(ctx, p.calls.HTTP, p.endpoints)
}

// A tenant's name has letters, digits and underscores only, and a contract's no
// underscores: so they stand for its hyphens.
const tenantPrefix = "cosi_"

func tenantOf(name string) string { return tenantPrefix + strings.ReplaceAll(name, "-", "_") }

// usersOf begins the ids of a contract's users.
func usersOf(name string) string { return tenantOf(name) + "$" }

// userID is the id of the user that has a slot's keys. The slot of the
// contract's own keys is the one whose user owns the buckets.
func userID(name, slot string) string { return usersOf(name) + slot }

// mark is what the driver keeps with a user, at the end of its display name.
type mark struct{ owner, region, journal string }

func markFor(spec contract.Spec) mark { return mark{spec.Owner, spec.Region, spec.Journal()} }

const markBegins, markEnds = " [contract-cosi-driver ", "]"

// displayName is what the gateway's tools show of a user, with the mark.
func displayName(shown string, m mark) string {
	fields := url.Values{"owner": {m.owner}}
	if m.region != "" {
		fields.Set("region", m.region)
	}
	if m.journal != "" {
		fields.Set("journal", m.journal)
	}
	// The gateway writes the name into the XML of ACLs as it is.
	return strings.NewReplacer("&", "_", "<", "_").Replace(shown) + markBegins + strings.ReplaceAll(fields.Encode(), "&", ";") + markEnds
}

// markOf is the inverse of displayName; it is zero for a user without a mark.
// A mark is escaped, so the last one that begins is the one.
func markOf(displayName string) mark {
	i := strings.LastIndex(displayName, markBegins)
	if i < 0 {
		return mark{}
	}
	fields, _ := url.ParseQuery(strings.ReplaceAll(strings.TrimSuffix(displayName[i+len(markBegins):], markEnds), ";", "&"))
	return mark{owner: fields.Get("owner"), region: fields.Get("region"), journal: fields.Get("journal")}
}

// EnsureContract implements contract.Provider.
func (p *Provider) EnsureContract(ctx context.Context, spec contract.Spec) (contract.Contract, error) {
	if err := p.ensure(ctx, &spec); err != nil {
		return contract.Contract{}, err
	}
	return contractOf(spec.Name, markFor(spec), spec.Suspend, p.endpoints), nil
}

// contractOf is a contract as its mark shows it. Its own region comes first.
func contractOf(name string, m mark, suspended bool, endpoints []cosi.Endpoint) contract.Contract {
	c := contract.Contract{Name: name, Owner: m.owner, Journal: m.journal, State: contract.StateActive, Endpoints: contract.From(m.region, endpoints)}
	if suspended {
		c.State = contract.StateSuspended
	}
	return c
}

func (p *Provider) ensure(ctx context.Context, spec *contract.Spec) error {
	uid := userID(spec.Name, cosi.ContractSlot)
	have, err := p.calls.getUser(ctx, uid)
	if fault.Is(err, fault.NotFound) {
		if have, err = p.calls.createUser(ctx, uid, "", attributes(*spec)); fault.Is(err, fault.Conflict) { // by an attempt whose answer was lost
			have, err = p.calls.getUser(ctx, uid)
		}
	}
	if err != nil {
		return err
	}
	m := markOf(have.DisplayName)
	if err := spec.Found(m.owner, m.journal); err != nil {
		return err
	}
	// The contract's user is suspended first and resumed last: so no key is
	// issued meanwhile, and one that is not suspended has been resumed wholly.
	if have.suspended() && !spec.Suspend {
		if err := p.suspendAccesses(ctx, spec.Name, false); err != nil {
			return err
		}
	}
	if have.differsFrom(*spec) {
		if err := p.calls.modifyUser(ctx, uid, attributes(*spec)); err != nil {
			return err
		}
	}
	if bounds := quotaOf(*spec); have.Quota.Enabled != bounds.Enabled || bounds.Enabled && have.Quota != bounds {
		if err := p.calls.setQuota(ctx, uid, bounds); err != nil {
			return err
		}
	}
	if err := p.calls.putUserPolicy(ctx, uid, grantPolicy, ownPolicy()); err != nil {
		return err
	}
	if spec.Suspend {
		return p.suspendAccesses(ctx, spec.Name, true)
	}
	return nil
}

// attributes are a contract's user as its terms want it. A bound on buckets that
// they do not mention is left to the gateway's operator.
func attributes(spec contract.Spec) url.Values {
	shown := spec.Display
	if shown == "" {
		shown = spec.Name
	}
	out := url.Values{"display-name": {displayName(shown, markFor(spec))}, "suspended": {strconv.FormatBool(spec.Suspend)}}
	if n := spec.Quota.MaxBuckets; n != nil {
		out.Set("max-buckets", strconv.FormatInt(maxBuckets(*n), 10))
	}
	return out
}

func (u user) suspended() bool { return u.Suspended != 0 }

func (u user) differsFrom(spec contract.Spec) bool {
	n := spec.Quota.MaxBuckets
	return u.DisplayName != attributes(spec).Get("display-name") || u.suspended() != spec.Suspend || n != nil && u.MaxBuckets != maxBuckets(*n)
}

// maxBuckets is a bound as the gateway has it: 0 would be none, and -1 is that
// there may be no bucket.
func maxBuckets(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}

func quotaOf(spec contract.Spec) quota {
	out := quota{MaxSize: -1, MaxObjects: -1}
	if n := spec.Quota.MaxBytes; n != nil {
		out.Enabled, out.MaxSize = true, *n
	}
	if n := spec.Quota.MaxObjects; n != nil {
		out.Enabled, out.MaxObjects = true, *n
	}
	return out
}

// suspendAccesses suspends or resumes a contract's accesses, whom the suspension
// of the buckets' owner does not keep out. It is done by a policy: to suspend
// their users would take the policies away that they have.
func (p *Provider) suspendAccesses(ctx context.Context, name string, suspend bool) error {
	slots, err := p.accesses(ctx, name)
	if err != nil {
		return err
	}
	for _, slot := range slots {
		uid := userID(name, slot)
		if suspend {
			err = p.calls.putUserPolicy(ctx, uid, suspendPolicy, denyAll())
		} else {
			err = p.calls.deleteUserPolicy(ctx, uid, suspendPolicy)
		}
		if err != nil && !fault.Is(err, fault.NotFound) { // revoked meanwhile
			return err
		}
	}
	return nil
}

// accesses are the slots of a contract but its own. The gateway lists users by
// no name, so all of the cluster's are looked through; it is done where a
// contract is suspended, cancelled or audited.
func (p *Provider) accesses(ctx context.Context, name string) ([]string, error) {
	var out []string
	err := p.calls.listUsers(ctx, func(uid string) {
		if slot, ok := strings.CutPrefix(uid, usersOf(name)); ok && slot != cosi.ContractSlot {
			out = append(out, slot)
		}
	})
	return out, err
}

// GetContract implements contract.Provider.
func (p *Provider) GetContract(ctx context.Context, name string) (contract.Contract, error) {
	u, err := p.calls.getUser(ctx, userID(name, cosi.ContractSlot))
	if err != nil {
		return contract.Contract{}, err
	}
	return contractOf(name, markOf(u.DisplayName), u.suspended(), p.endpoints), nil
}

// DeleteContract implements contract.Provider. The user that owns the buckets
// goes first, because the gateway refuses that while there are any.
func (p *Provider) DeleteContract(ctx context.Context, name string) error {
	err := p.calls.deleteUser(ctx, userID(name, cosi.ContractSlot))
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	slots, err := p.accesses(ctx, name)
	if err != nil {
		return err
	}
	for _, slot := range slots {
		if err := p.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: name, Slot: slot}); err != nil {
			return err
		}
	}
	return nil
}

// IssueKey implements contract.Provider.
func (p *Provider) IssueKey(ctx context.Context, req contract.IssueKeyRequest) (secret.KeyPair, error) {
	if own := req.Slot == cosi.ContractSlot; own != (req.Scope == nil) {
		return secret.KeyPair{}, fault.New(fault.Unsupported, "a Ceph gateway's keys to all of a contract are those of slot %s, and no others", cosi.ContractSlot)
	}
	uid := userID(req.Contract, req.Slot)
	limits, err := policyOf(req.Scope)
	if err != nil {
		return secret.KeyPair{}, err
	}
	owner, err := p.calls.getUser(ctx, userID(req.Contract, cosi.ContractSlot))
	if err != nil {
		return secret.KeyPair{}, err
	}
	if owner.suspended() {
		return secret.KeyPair{}, fault.New(fault.FailedPrecondition, "the contract is suspended; resume it first")
	}
	var pair secret.KeyPair
	if req.Scope == nil {
		pair, err = p.replaceKeys(ctx, uid, owner.Keys, req)
	} else {
		pair, err = p.makeAccess(ctx, uid, displayName(req.Slot, mark{owner: markOf(owner.DisplayName).owner}), req)
	}
	if err == nil { // a write of a user takes its policies away, so they come last
		err = p.calls.putUserPolicy(ctx, uid, grantPolicy, limits)
	}
	if err != nil {
		return secret.KeyPair{}, err
	}
	return pair, nil
}

// makeAccess makes an access's user with its key, or goes on with the user that
// an earlier attempt has made.
func (p *Provider) makeAccess(ctx context.Context, uid, shown string, req contract.IssueKeyRequest) (secret.KeyPair, error) {
	// A bound of -1 is that the user may have no bucket of its own.
	made, err := p.calls.createUser(ctx, uid, req.Proposed.AccessKeyID, url.Values{"display-name": {shown}, "max-buckets": {"-1"}})
	if err == nil {
		return find(made.Keys, req.Proposed.AccessKeyID)
	}
	if !fault.Is(err, fault.Conflict) {
		return secret.KeyPair{}, err
	}
	have, lookup := p.calls.getUser(ctx, uid)
	switch {
	case fault.Is(lookup, fault.NotFound):
		return secret.KeyPair{}, err // it is the key's id that is taken
	case lookup != nil:
		return secret.KeyPair{}, lookup
	case have.DisplayName != shown:
		return secret.KeyPair{}, fault.New(fault.Conflict, "user %s exists and was not made by this driver; it is left alone", uid)
	}
	return p.replaceKeys(ctx, uid, have.Keys, req)
}

// replaceKeys makes the proposed key and takes away those that are not kept.
func (p *Provider) replaceKeys(ctx context.Context, uid string, have []key, req contract.IssueKeyRequest) (secret.KeyPair, error) {
	for _, k := range have {
		if k.AccessKey != req.Proposed.AccessKeyID && !slices.Contains(req.Keep, k.AccessKey) {
			if err := p.deleteKey(ctx, uid, k.AccessKey); err != nil {
				return secret.KeyPair{}, err
			}
		}
	}
	keys, err := p.calls.makeKey(ctx, uid, req.Proposed.AccessKeyID)
	if err != nil {
		return secret.KeyPair{}, err
	}
	return find(keys, req.Proposed.AccessKeyID)
}

func find(keys []key, accessKeyID string) (secret.KeyPair, error) {
	i := slices.IndexFunc(keys, func(k key) bool { return k.AccessKey == accessKeyID })
	if i < 0 || keys[i].SecretKey == "" {
		return secret.KeyPair{}, fault.New(fault.Internal, "the Ceph gateway answered without the key that was asked for")
	}
	return secret.KeyPair{AccessKeyID: accessKeyID, SecretAccessKey: secret.New(keys[i].SecretKey)}, nil
}

// ListKeys implements contract.Provider. An access whose policy was lost has no
// key that could be used, and none is listed. The gateway does not say when a
// key was made.
func (p *Provider) ListKeys(ctx context.Context, name, slot string) ([]contract.KeyInfo, error) {
	if slot != "" && slot != cosi.ContractSlot {
		keys, err := p.keysOf(ctx, name, slot)
		if err == nil && len(keys) == 0 { // is there the contract?
			_, err = p.calls.getUser(ctx, userID(name, cosi.ContractSlot))
		}
		return keys, err
	}
	owner, err := p.calls.getUser(ctx, userID(name, cosi.ContractSlot))
	if err != nil {
		return nil, err
	}
	out := infos(owner.Keys, cosi.ContractSlot, !owner.suspended())
	if slot == cosi.ContractSlot {
		return out, nil
	}
	slots, err := p.accesses(ctx, name)
	if err != nil {
		return nil, err
	}
	for _, s := range slots {
		keys, err := p.keysOf(ctx, name, s)
		if err != nil {
			return nil, err
		}
		out = append(out, keys...)
	}
	return out, nil
}

// keysOf are the keys of an access.
func (p *Provider) keysOf(ctx context.Context, name, slot string) ([]contract.KeyInfo, error) {
	uid := userID(name, slot)
	u, err := p.calls.getUser(ctx, uid)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	policies, err := p.calls.userPolicies(ctx, uid)
	if err != nil || !slices.Contains(policies, grantPolicy) {
		return nil, err
	}
	return infos(u.Keys, slot, !u.suspended() && !slices.Contains(policies, suspendPolicy)), nil
}

func infos(keys []key, slot string, active bool) []contract.KeyInfo {
	out := make([]contract.KeyInfo, len(keys))
	for i, k := range keys {
		out[i] = contract.KeyInfo{AccessKeyID: k.AccessKey, Slot: slot, Active: active}
	}
	return out
}

// RevokeKey implements contract.Provider.
func (p *Provider) RevokeKey(ctx context.Context, req contract.RevokeKeyRequest) error {
	err := p.revokeKey(ctx, userID(req.Contract, req.Slot), req)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

func (p *Provider) revokeKey(ctx context.Context, uid string, req contract.RevokeKeyRequest) error {
	if req.AccessKeyID == "" && req.Slot != cosi.ContractSlot {
		return p.calls.deleteUser(ctx, uid)
	}
	have, err := p.calls.getUser(ctx, uid)
	if err != nil {
		return err
	}
	going := slices.DeleteFunc(slices.Clone(have.Keys), func(k key) bool { return req.AccessKeyID != "" && k.AccessKey != req.AccessKeyID })
	// A write of a user takes its policies away, and what stays of its keys needs
	// them. They are written even if there is nothing to delete: an attempt before
	// this one may have ended in between.
	policies, err := p.policiesOf(ctx, uid, req)
	if err != nil {
		return err
	}
	for _, k := range going {
		if err := p.deleteKey(ctx, uid, k.AccessKey); err != nil {
			return err
		}
	}
	if len(going) == len(have.Keys) {
		return nil
	}
	for _, d := range policies {
		if err := p.calls.putUserPolicy(ctx, uid, d.name, d.text); err != nil {
			return err
		}
	}
	return nil
}

// policiesOf are the policies that a slot's user has to have, the one that
// suspends it first.
func (p *Provider) policiesOf(ctx context.Context, uid string, req contract.RevokeKeyRequest) ([]namedPolicy, error) {
	if req.Slot == cosi.ContractSlot {
		return []namedPolicy{{grantPolicy, ownPolicy()}}, nil
	}
	owner, err := p.calls.getUser(ctx, userID(req.Contract, cosi.ContractSlot))
	if err != nil {
		return nil, err
	}
	var out []namedPolicy
	if owner.suspended() {
		out = append(out, namedPolicy{suspendPolicy, denyAll()})
	}
	var limits string
	if req.Scope != nil {
		limits, err = policyOf(req.Scope)
	} else {
		limits, err = p.calls.userPolicy(ctx, uid, grantPolicy)
	}
	if err == nil && limits != "" {
		out = append(out, namedPolicy{grantPolicy, limits})
	}
	return out, err
}

// namedPolicy is a policy of a user.
type namedPolicy struct{ name, text string }

// deleteKey deletes a key that the user had a moment ago. If another attempt
// was faster, the gateway says the same as of a bad signature: then only the
// user tells what is so.
func (p *Provider) deleteKey(ctx context.Context, uid, accessKeyID string) error {
	err := p.calls.deleteKey(ctx, uid, accessKeyID)
	if !fault.Is(err, fault.PermissionDenied) {
		return err
	}
	have, lookup := p.calls.getUser(ctx, uid)
	if lookup == nil && !slices.ContainsFunc(have.Keys, func(k key) bool { return k.AccessKey == accessKeyID }) {
		return nil
	}
	return err
}
