// Package iam is the provider for services that speak AWS's IAM API beside S3:
// AWS, and every service that speaks its dialect. What such services do
// differently is data, in [Config].
//
// A contract is a part of one account: the IAM users below one path. It is there
// when its own user is, whose tags tell the owner. Each access has a user of its
// own, limited by an inline policy, with at most two keys. Where every contract
// has an account to itself, its credentials are in a file of its own; all else
// stays the same.
//
// The account owns the buckets, whichever of its users created them, so the driver
// tells the contracts' buckets apart by its mark on them, and a user's objects
// are the account's. A secret is told once: a key whose answer was lost is an
// orphan, which the next IssueKey removes. IAM is consistent eventually, so a
// key is handed out when the storage takes it, unless the service is said to take it at once.
package iam

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"golang.org/x/sync/errgroup"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// Config reaches a service and says how it differs from others.
type Config struct {
	// URL is the IAM API's base address.
	URL string
	// Region is what calls of the IAM API are signed for.
	Region string
	// Endpoints are where S3 is served, the default one first.
	Endpoints []cosi.Endpoint
	// Credentials returns the key that administers a contract's account.
	Credentials func(ctx context.Context, contract string) (secret.KeyPair, error)
	// Accounts names a contract of each account that there are credentials for.
	Accounts func() []string
	// OwnAccounts says that a contract is an account which someone else has created
	// for it, and who knows its owner: all buckets of the account are the
	// contract's, and users get no tags, which such a service need not have.
	OwnAccounts bool
	// Path begins the paths of all users, with a slash at both ends.
	Path string
	// PermissionsBoundary is the ARN of a policy that bounds every user; "" is none.
	PermissionsBoundary string
	// Dialect is how policies are written.
	Dialect policy.Dialect
	// MaxPolicyBytes is the longest inline policy of a user.
	MaxPolicyBytes int
	// MaxKeys is how many keys a user can have.
	MaxKeys int
	// Settles is how long the service takes until a change holds everywhere, and AtOnce
	// says that it takes no time.
	Settles time.Duration
	AtOnce  bool
	// HTTP carries the calls.
	HTTP *http.Client
	// Observe is told of every call that was tried, with the outcome.
	Observe func(operation string, err error)
}

// Provider is a service.
type Provider struct {
	Config
	iam *iam.Client
}

var _ contract.Provider = (*Provider)(nil)

// New returns the provider; no call is made.
func New(c Config) *Provider {
	p := &Provider{Config: c}
	p.iam = iam.New(iam.Options{
		BaseEndpoint: &c.URL, Region: c.Region, HTTPClient: transport.Speaking(transport.IAM, c.HTTP),
		Retryer: aws.NopRetryer{}, // a key that is made twice is an orphan; see Provider.try
	})
	return p
}

// Capabilities implements contract.Provider.
func (p *Provider) Capabilities() contract.Capabilities {
	return contract.Capabilities{
		ScopeBy: contract.ScopeByIdentityPolicy, SeveralBuckets: true, SharedBuckets: !p.OwnAccounts, Labels: !p.OwnAccounts,
		SourceAddresses: p.Dialect.SourceAddressKey != "", WholeBuckets: p.Dialect.PrefixKey == "",
		MaxKeysPerSlot: p.MaxKeys, Settles: p.Settles,
	}
}

// Regions implements contract.Provider.
func (p *Provider) Regions(context.Context) ([]cosi.Endpoint, error) { return p.Endpoints, nil }

// Check implements contract.Provider. Of each region's S3 server any answer
// will do.
func (p *Provider) Check(ctx context.Context) error {
	for _, name := range p.Accounts() {
		if _, err := try(ctx, p, "ListUsers", name, true, p.iam.ListUsers, &iam.ListUsersInput{PathPrefix: &p.Path, MaxItems: aws.Int32(1)}); err != nil {
			return err
		}
	}
	return contract.Reach(ctx, p.HTTP, p.Endpoints)
}

// The tags of a user that the driver has made.
const (
	ownerTag   = cosi.OwnerTag
	journalTag = cosi.JournalTag
	displayTag = "contract-cosi-driver/name"
)

// maxUserName is IAM's limit (IAM API reference, CreateUser).
const maxUserName = 64

// userOf names the user of a slot. Where the two names are too long together, a
// hash keeps them apart.
func userOf(name, slot string) string {
	full := name + "." + slot
	if len(full) <= maxUserName {
		return full
	}
	sum := sha256.Sum256([]byte(full))
	tail := "." + hex.EncodeToString(sum[:8])
	return full[:maxUserName-len(tail)] + tail
}

func (p *Provider) pathOf(name string) string         { return p.Path + name + "/" }
func (p *Provider) slotPath(name, slot string) string { return p.pathOf(name) + slot + "/" }
func (p *Provider) slotOf(name string, path string) string {
	return strings.TrimSuffix(strings.TrimPrefix(path, p.pathOf(name)), "/")
}

// user reads a slot's user. NotFound if there is none, Conflict if one of its
// name is somewhere else in the account, where the driver makes none.
func (p *Provider) user(ctx context.Context, name, slot string) (*types.User, error) {
	user := userOf(name, slot)
	out, err := try(ctx, p, "GetUser", name, true, p.iam.GetUser, &iam.GetUserInput{UserName: &user})
	if err != nil {
		return nil, err
	}
	if out.User == nil {
		return nil, fault.New(fault.Internal, "the service answered without the user it was asked for; check that the backend's url is an IAM API")
	}
	if have := aws.ToString(out.User.Path); have != p.slotPath(name, slot) {
		return nil, fault.New(fault.Conflict, "the IAM user %s has the path %s, where this driver makes none; it is left alone: choose another name, or rename that user", user, have)
	}
	return out.User, nil
}

// makeUser makes a slot's user, or finds that it is there.
func (p *Provider) makeUser(ctx context.Context, name, slot string, tags map[string]string) (user *types.User, existed bool, err error) {
	in := &iam.CreateUserInput{UserName: aws.String(userOf(name, slot)), Path: aws.String(p.slotPath(name, slot))}
	if !p.OwnAccounts {
		in.Tags = tagList(tags)
	}
	if p.PermissionsBoundary != "" {
		in.PermissionsBoundary = &p.PermissionsBoundary
	}
	out, err := try(ctx, p, "CreateUser", name, true, p.iam.CreateUser, in)
	if fault.Is(err, fault.Conflict) {
		user, err = p.user(ctx, name, slot)
		return user, true, err
	}
	if err != nil {
		return nil, false, err
	}
	return out.User, false, nil
}

// EnsureContract implements contract.Provider. Labels become tags of the
// contract's user; one that the terms no longer have stays, as it may by now be
// another owner's.
func (p *Provider) EnsureContract(ctx context.Context, spec contract.Spec) (contract.Contract, error) {
	user, err := p.user(ctx, spec.Name, cosi.ContractSlot)
	if fault.Is(err, fault.NotFound) {
		var existed bool
		user, existed, err = p.makeUser(ctx, spec.Name, cosi.ContractSlot, tagsOf(spec))
		if err == nil && !existed {
			return p.contractOf(spec.Name, spec.Owner, spec.Journal(), spec.Region), nil
		}
	}
	if err != nil {
		return contract.Contract{}, err
	}
	if p.OwnAccounts {
		return p.contractOf(spec.Name, spec.Owner, "", spec.Region), nil
	}
	have := tagMap(user.Tags)
	if err := spec.Found(have[ownerTag], have[journalTag]); err != nil {
		return contract.Contract{}, err
	}
	tags := tagsOf(spec)
	maps.DeleteFunc(tags, func(k, v string) bool { return have[k] == v })
	if len(tags) > 0 {
		if _, err := try(ctx, p, "TagUser", spec.Name, true, p.iam.TagUser, &iam.TagUserInput{UserName: user.UserName, Tags: tagList(tags)}); err != nil {
			return contract.Contract{}, err
		}
	}
	return p.contractOf(spec.Name, spec.Owner, spec.Journal(), spec.Region), nil
}

// tagsOf are those of a contract's user.
func tagsOf(spec contract.Spec) map[string]string {
	tags := maps.Clone(spec.Labels)
	if tags == nil {
		tags = map[string]string{}
	}
	tags[ownerTag] = spec.Owner
	if mark := spec.Journal(); mark != "" {
		tags[journalTag] = mark
	}
	if spec.Display != "" {
		tags[displayTag] = spec.Display
	}
	return tags
}

// contractOf is an active contract, as a part of an account always is. Its own
// region, if it has one, is the first.
func (p *Provider) contractOf(name, owner, journal, region string) contract.Contract {
	return contract.Contract{Name: name, Owner: owner, Journal: journal, State: contract.StateActive, Endpoints: contract.From(region, p.Endpoints)}
}

// GetContract implements contract.Provider.
func (p *Provider) GetContract(ctx context.Context, name string) (contract.Contract, error) {
	user, err := p.user(ctx, name, cosi.ContractSlot)
	if err != nil {
		return contract.Contract{}, err
	}
	tags := tagMap(user.Tags)
	return p.contractOf(name, tags[ownerTag], tags[journalTag], ""), nil
}

// DeleteContract implements contract.Provider.
func (p *Provider) DeleteContract(ctx context.Context, name string) error {
	user, err := p.user(ctx, name, cosi.ContractSlot)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if err == nil || p.OwnAccounts {
		owner := ""
		if user != nil {
			owner = tagMap(user.Tags)[ownerTag]
		}
		buckets, err := p.bucketsOf(ctx, name, owner)
		if err != nil {
			return err
		}
		if len(buckets) > 0 {
			return fault.New(fault.FailedPrecondition, "it still has %d buckets; delete them first", len(buckets))
		}
	}
	users, err := p.users(ctx, name)
	if err != nil {
		return err
	}
	// The contract's own user goes last: until then it is found and taken up.
	slices.SortFunc(users, func(a, b types.User) int {
		last := func(u types.User) int {
			if p.slotOf(name, aws.ToString(u.Path)) == cosi.ContractSlot {
				return 1
			}
			return 0
		}
		return last(a) - last(b)
	})
	for _, u := range users {
		if err := p.removeUser(ctx, name, aws.ToString(u.UserName)); err != nil {
			return err
		}
	}
	return nil
}

// users are all of a contract.
func (p *Provider) users(ctx context.Context, name string) ([]types.User, error) {
	var out []types.User
	err := transport.Pages(transport.Listing(ctx), func(ctx context.Context, token string) (string, bool, error) {
		in := &iam.ListUsersInput{PathPrefix: aws.String(p.pathOf(name)), Marker: optional(token)}
		page, err := try(ctx, p, "ListUsers", name, true, p.iam.ListUsers, in)
		if err != nil {
			return "", false, err
		}
		out = append(out, page.Users...)
		return aws.ToString(page.Marker), page.IsTruncated, nil
	})
	return out, err
}

// optional is the token of a page; the first has none.
func optional(token string) *string {
	if token == "" {
		return nil
	}
	return &token
}

// removeUser deletes a user, its policy, and keys that it turns out to have. What
// is not there is nil.
func (p *Provider) removeUser(ctx context.Context, name, user string) error {
	_, err := try(ctx, p, "DeleteUserPolicy", name, true, p.iam.DeleteUserPolicy, &iam.DeleteUserPolicyInput{UserName: &user, PolicyName: aws.String(policyName)})
	if err = fault.IgnoreNotFound(err); err != nil {
		return err
	}
	remove := func() error {
		_, err := try(ctx, p, "DeleteUser", name, true, p.iam.DeleteUser, &iam.DeleteUserInput{UserName: &user})
		return fault.IgnoreNotFound(err)
	}
	if err = remove(); !fault.Is(err, fault.Conflict) {
		return err
	}
	keys, err := p.keyIDs(ctx, name, user)
	if err == nil {
		err = p.removeKeys(ctx, name, user, keys)
	}
	if err == nil {
		err = remove()
	}
	if fault.Is(err, fault.Conflict) { // what was made meanwhile
		return fault.As(fault.Unavailable, err)
	}
	return fault.IgnoreNotFound(err)
}

// readers look at so many things at once.
const readers = 8

// each does something for every item, several at a time.
func each[T any](ctx context.Context, items []T, do func(context.Context, int, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, item := range items {
		group.Go(func() error { return do(ctx, i, item) })
	}
	return group.Wait()
}

func tagList(tags map[string]string) []types.Tag {
	var out []types.Tag
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, types.Tag{Key: aws.String(k), Value: aws.String(tags[k])})
	}
	return out
}

func tagMap(tags []types.Tag) map[string]string {
	out := make(map[string]string, len(tags))
	for _, t := range tags {
		out[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return out
}
