package versitygw

import (
	"context"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

var _ contract.Restorer = (*Provider)(nil)

// RestoreKey implements contract.Restorer. An account cannot be stopped, so it
// is the policies of the key's buckets that are read. What other keys may do
// there, and other people's statements, are left as they are.
func (p *Provider) RestoreKey(ctx context.Context, name, slot string, key secret.KeyPair, scope *contract.Scope, write bool) ([]string, error) {
	if scope == nil { // the contract's own key owns its buckets
		return nil, fault.New(fault.Unsupported, "a contract's own key has no limits")
	}
	held := isOf(key.AccessKeyID, name, slot)
	if held {
		var err error
		if held, err = p.HoldsKey(ctx, *scope, key); err != nil {
			return nil, err
		}
	}
	if !held {
		return nil, fault.New(fault.NotFound, "the gateway has no account %s", key.AccessKeyID)
	}
	this := func(principal string) bool { return principal == key.AccessKeyID }
	var differing []string
	for _, b := range scope.Buckets {
		want, err := allow(b, scope, []string{key.AccessKeyID})
		if err != nil {
			return nil, err
		}
		change := func(have []policy.Statement) []policy.Statement {
			left, _ := without(have, this)
			return with(left, want)
		}
		doc, err := p.policyOf(ctx, b.Bucket)
		if err != nil {
			return nil, err
		}
		if doc.HasExactly(ofKeys, change(doc.Statements(ofKeys))) {
			continue
		}
		differing = []string{contract.KeyPolicy}
		if !write {
			break
		}
		if err := p.edit(ctx, name, b.Bucket, true, change); err != nil {
			return differing, err
		}
	}
	return differing, nil
}
