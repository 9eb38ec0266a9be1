package iam

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

var _ contract.Restorer = (*Provider)(nil)

// RestoreKey implements contract.Restorer. Policies that others have given to
// the user beside the driver's are not checked.
func (p *Provider) RestoreKey(ctx context.Context, name, slot string, key secret.KeyPair, scope *contract.Scope, write bool) ([]string, error) {
	want, err := p.documentOf(contract.IssueKeyRequest{Contract: name, Slot: slot, Scope: scope})
	if err != nil {
		return nil, err
	}
	user := userOf(name, slot)
	differing, err := p.compareKey(ctx, name, user, key.AccessKeyID, want)
	if err == nil && len(differing) > 0 && p.Settles > 0 { // it may just have been written, and not be read everywhere yet
		select {
		case <-time.After(min(p.Settles, lag)):
		case <-ctx.Done():
		}
		differing, err = p.compareKey(ctx, name, user, key.AccessKeyID, want)
	}
	if err != nil || !write {
		return differing, err
	}
	// The policy comes first here, too: a key never reaches more than it should.
	if slices.Contains(differing, contract.KeyPolicy) {
		if err := p.putPolicy(ctx, name, user, want); err != nil {
			return differing, err
		}
	}
	if slices.Contains(differing, contract.KeyInactive) {
		_, err = try(ctx, p, "UpdateAccessKey", name, true, p.iam.UpdateAccessKey, &iam.UpdateAccessKeyInput{UserName: &user, AccessKeyId: &key.AccessKeyID, Status: types.StatusTypeActive})
	}
	return differing, err
}

// compareKey returns what is not as it should be. NotFound if the user has no
// such key.
func (p *Provider) compareKey(ctx context.Context, name, user, accessKeyID, want string) ([]string, error) {
	keys, err := p.keys(ctx, name, user)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(keys, func(k types.AccessKeyMetadata) bool { return aws.ToString(k.AccessKeyId) == accessKeyID })
	if i < 0 {
		return nil, fault.New(fault.NotFound, "the IAM user %s has no key %s", user, accessKeyID)
	}
	out, err := try(ctx, p, "GetUserPolicy", name, true, p.iam.GetUserPolicy, &iam.GetUserPolicyInput{UserName: &user, PolicyName: aws.String(policyName)})
	have := ""
	if err == nil {
		have = unescaped(aws.ToString(out.PolicyDocument))
	} else if !fault.Is(err, fault.NotFound) {
		return nil, err
	}
	var differing []string
	if keys[i].Status == types.StatusTypeInactive {
		differing = append(differing, contract.KeyInactive)
	}
	if !policy.Same(have, want) {
		differing = append(differing, contract.KeyPolicy)
	}
	return differing, nil
}

// unescaped is a document as it was written: AWS escapes it for a URL (IAM API
// reference, GetUserPolicy), and not every service does.
func unescaped(document string) string {
	if plain, err := url.PathUnescape(document); err == nil && strings.HasPrefix(document, "%") {
		return plain
	}
	return document
}
