package rgw

import (
	"context"
	"net/url"
	"slices"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

var _ contract.Restorer = (*Provider)(nil)

// RestoreKey implements contract.Restorer. A key is stopped with its user, which
// release 16 then forgets the policies of, or by the policy that suspends.
// Policies that others have given to the user beside the driver's are not
// checked.
func (p *Provider) RestoreKey(ctx context.Context, name, slot string, pair secret.KeyPair, scope *contract.Scope, write bool) ([]string, error) {
	uid := userID(name, slot)
	want, err := policyOf(scope)
	if err != nil {
		return nil, err
	}
	have, err := p.calls.getUser(ctx, uid)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(have.Keys, func(k key) bool { return k.AccessKey == pair.AccessKeyID }) {
		return nil, fault.New(fault.NotFound, "user %s has no key %s", uid, pair.AccessKeyID)
	}
	policies, err := p.calls.userPolicies(ctx, uid)
	if err != nil {
		return nil, err
	}
	limits := ""
	if slices.Contains(policies, grantPolicy) {
		if limits, err = p.calls.userPolicy(ctx, uid, grantPolicy); err != nil {
			return nil, err
		}
	}
	denied := slices.Contains(policies, suspendPolicy)
	var differing []string
	if have.suspended() || denied {
		differing = append(differing, contract.KeyInactive)
	}
	if !policy.Same(limits, want) {
		differing = append(differing, contract.KeyPolicy)
	}
	if len(differing) == 0 {
		return nil, nil
	}
	// While the contract is suspended, its keys are stopped, and what stops them
	// may be that they have no policy.
	owner, err := p.calls.getUser(ctx, userID(name, cosi.ContractSlot))
	if err != nil || owner.suspended() {
		return nil, err
	}
	if !write {
		return differing, nil
	}
	// The limits come first, so that a key never reaches more than it should, and
	// again after the write of the user that may have taken them away.
	if slices.Contains(differing, contract.KeyPolicy) {
		if err := p.calls.putUserPolicy(ctx, uid, grantPolicy, want); err != nil {
			return differing, err
		}
	}
	if have.suspended() {
		if err := p.calls.modifyUser(ctx, uid, url.Values{"suspended": {"false"}}); err != nil {
			return differing, err
		}
		if err := p.calls.putUserPolicy(ctx, uid, grantPolicy, want); err != nil {
			return differing, err
		}
	}
	if denied {
		if err := p.calls.deleteUserPolicy(ctx, uid, suspendPolicy); err != nil {
			return differing, err
		}
	}
	if !denied && !have.suspended() {
		return differing, nil
	}
	// The contract may have been suspended meanwhile, and this key's part of that
	// was just undone.
	if owner, err = p.calls.getUser(ctx, userID(name, cosi.ContractSlot)); err == nil && owner.suspended() {
		err = p.calls.putUserPolicy(ctx, uid, suspendPolicy, denyAll())
	}
	return differing, err
}
