package iam

import (
	"context"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// policyName is the name of the one inline policy that a user has.
const policyName = "contract-cosi-driver"

// IssueKey implements contract.Provider.
func (p *Provider) IssueKey(ctx context.Context, req contract.IssueKeyRequest) (secret.KeyPair, error) {
	document, err := p.documentOf(req)
	if err != nil {
		return secret.KeyPair{}, err
	}
	own, err := p.user(ctx, req.Contract, cosi.ContractSlot)
	if err != nil {
		return secret.KeyPair{}, err
	}
	existed := true
	if req.Slot != cosi.ContractSlot {
		tags := map[string]string{ownerTag: tagMap(own.Tags)[ownerTag]}
		if _, existed, err = p.makeUser(ctx, req.Contract, req.Slot, tags); err != nil {
			return secret.KeyPair{}, err
		}
	}
	user := userOf(req.Contract, req.Slot)
	if existed {
		if err := p.makeRoom(ctx, req, user); err != nil {
			return secret.KeyPair{}, err
		}
	}
	// The policy comes before the key: a key never reaches more than it should.
	if err := p.putPolicy(ctx, req.Contract, user, document); err != nil {
		return secret.KeyPair{}, gone(err, req.Slot)
	}
	out, err := try(ctx, p, "CreateAccessKey", req.Contract, false, p.iam.CreateAccessKey, &iam.CreateAccessKeyInput{UserName: &user})
	if err != nil {
		return secret.KeyPair{}, gone(err, req.Slot)
	}
	if out.AccessKey == nil || aws.ToString(out.AccessKey.AccessKeyId) == "" || aws.ToString(out.AccessKey.SecretAccessKey) == "" {
		return secret.KeyPair{}, fault.New(fault.Internal, "the service answered without a key; check that the backend's url is an IAM API")
	}
	pair := secret.KeyPair{AccessKeyID: aws.ToString(out.AccessKey.AccessKeyId), SecretAccessKey: secret.New(aws.ToString(out.AccessKey.SecretAccessKey))}
	return pair, p.accepted(ctx, pair, req)
}

// makeRoom takes from a user that was there the keys that are not kept.
// LimitExceeded if those that are leave no room for another.
func (p *Provider) makeRoom(ctx context.Context, req contract.IssueKeyRequest, user string) error {
	have, err := p.keyIDs(ctx, req.Contract, user)
	if err != nil {
		return err
	}
	going := slices.DeleteFunc(slices.Clone(have), func(id string) bool { return slices.Contains(req.Keep, id) })
	if p.MaxKeys > 0 && len(have)-len(going) >= p.MaxKeys {
		return fault.New(fault.LimitExceeded, "an IAM user has at most %d keys, and all of them are to stay", p.MaxKeys)
	}
	return p.removeKeys(ctx, req.Contract, user, going)
}

// putPolicy writes a user's policy.
func (p *Provider) putPolicy(ctx context.Context, name, user, document string) error {
	_, err := try(ctx, p, "PutUserPolicy", name, true, p.iam.PutUserPolicy, &iam.PutUserPolicyInput{UserName: &user, PolicyName: aws.String(policyName), PolicyDocument: &document})
	return err
}

// gone tells a user that was there a moment ago from a contract that is not:
// only the latter is NotFound.
func gone(err error, slot string) error {
	if fault.Is(err, fault.NotFound) && slot != cosi.ContractSlot {
		return fault.As(fault.Unavailable, err)
	}
	return err
}

// documentOf is the inline policy of the slot's user.
func (p *Provider) documentOf(req contract.IssueKeyRequest) (string, error) {
	statements := []policy.Statement{{
		Sid: policy.SidOf("contract"), Effect: "Allow", Action: []string{p.Dialect.ActionPrefix + "*"}, Resource: []string{p.Dialect.ResourcePrefix + "*"},
	}}
	if req.Scope != nil {
		var err error
		if statements, err = p.Dialect.Allow("", req.Scope.Buckets, req.Scope.SourceAddresses); err != nil {
			return "", err
		}
	}
	doc, err := policy.Parse("")
	if err != nil {
		return "", err
	}
	doc.Set(p.Dialect.Version, statements...)
	text := doc.Escaped()
	if p.MaxPolicyBytes > 0 && len(text) > p.MaxPolicyBytes {
		return "", fault.New(fault.LimitExceeded, "the policy of a key to %d buckets has %d bytes, and the service takes %d; use several accesses", len(req.Scope.Buckets), len(text), p.MaxPolicyBytes)
	}
	return text, nil
}

// keys are a user's. NotFound if there is no such user.
func (p *Provider) keys(ctx context.Context, name, user string) ([]types.AccessKeyMetadata, error) {
	var out []types.AccessKeyMetadata
	err := transport.Pages(transport.Listing(ctx), func(ctx context.Context, token string) (string, bool, error) {
		page, err := try(ctx, p, "ListAccessKeys", name, true, p.iam.ListAccessKeys, &iam.ListAccessKeysInput{UserName: &user, Marker: optional(token)})
		if err != nil {
			return "", false, err
		}
		out = append(out, page.AccessKeyMetadata...)
		return aws.ToString(page.Marker), page.IsTruncated, nil
	})
	return out, err
}

// keyIDs are the ids of a user's keys.
func (p *Provider) keyIDs(ctx context.Context, name, user string) ([]string, error) {
	keys, err := p.keys(ctx, name, user)
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = aws.ToString(k.AccessKeyId)
	}
	return out, err
}

// removeKeys deletes keys of a user; nil for those that are not there.
func (p *Provider) removeKeys(ctx context.Context, name, user string, ids []string) error {
	for _, id := range ids {
		_, err := try(ctx, p, "DeleteAccessKey", name, true, p.iam.DeleteAccessKey, &iam.DeleteAccessKeyInput{UserName: &user, AccessKeyId: &id})
		if fault.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// ListKeys implements contract.Provider.
func (p *Provider) ListKeys(ctx context.Context, name, slot string) ([]contract.KeyInfo, error) {
	out, err := p.listKeys(ctx, name, slot)
	if err == nil && len(out) == 0 && p.Settles > 0 {
		// A key may have been made where the list does not show it yet.
		select {
		case <-time.After(min(p.Settles, lag)):
		case <-ctx.Done():
		}
		out, err = p.listKeys(ctx, name, slot)
	}
	return out, err
}

// lag is how long an empty list is doubted.
const lag = 2 * time.Second

func (p *Provider) listKeys(ctx context.Context, name, slot string) ([]contract.KeyInfo, error) {
	if _, err := p.user(ctx, name, cosi.ContractSlot); err != nil {
		return nil, err
	}
	users := []types.User{{UserName: aws.String(userOf(name, slot)), Path: aws.String(p.slotPath(name, slot))}}
	if slot == "" {
		var err error
		if users, err = p.users(ctx, name); err != nil {
			return nil, err
		}
	}
	found := make([][]contract.KeyInfo, len(users))
	err := each(ctx, users, func(ctx context.Context, i int, u types.User) error {
		keys, err := p.keys(ctx, name, aws.ToString(u.UserName))
		for _, k := range keys {
			found[i] = append(found[i], contract.KeyInfo{
				AccessKeyID: aws.ToString(k.AccessKeyId), Slot: p.slotOf(name, aws.ToString(u.Path)),
				Active: k.Status == types.StatusTypeActive, CreatedAt: aws.ToTime(k.CreateDate),
			})
		}
		return fault.IgnoreNotFound(err)
	})
	return slices.Concat(found...), err
}

// RevokeKey implements contract.Provider.
func (p *Provider) RevokeKey(ctx context.Context, req contract.RevokeKeyRequest) error {
	name, user, going := req.Contract, userOf(req.Contract, req.Slot), slices.Clone(req.Known)
	_, err := p.user(ctx, name, req.Slot) // one that is elsewhere belongs to someone else
	if err == nil && !req.Exact {
		going, err = p.keyIDs(ctx, name, user)
	}
	if err != nil {
		return fault.IgnoreNotFound(err)
	}
	if req.AccessKeyID != "" {
		going = slices.DeleteFunc(going, func(id string) bool { return id != req.AccessKeyID })
	}
	err = p.removeKeys(ctx, name, user, going)
	if err != nil || req.AccessKeyID != "" || req.Slot == cosi.ContractSlot { // whose user is the contract
		return err
	}
	return p.removeUser(ctx, name, user)
}
