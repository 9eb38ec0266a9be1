package gateway

import (
	"fmt"
	"net/http"
	"time"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

// iam answers the gateway's two questions: whose key is this (auth.IAMService),
// and may it do that (auth.PolicyEvaluator).
//
// Two kinds of principal come out of it. A contract's own keys all act as the
// contract, named by its code, so buckets and ACL entries belong to the
// contract and outlive every key. A scoped key acts as itself, named by its
// access key id, and owns nothing.
type iam struct {
	store   *store.Store
	buckets *Buckets
	now     func() time.Time
}

var (
	_ auth.IAMService        = (*iam)(nil)
	_ auth.PolicyEvaluator   = (*iam)(nil)
	_ auth.PrincipalResolver = (*iam)(nil)
)

// GetUserAccount returns the account that a request signed with this key acts
// as. Its SessionToken is the way the key's own id reaches EvaluatePolicy: the
// gateway passes it on untouched, and these keys have no sessions.
func (i *iam) GetUserAccount(accessKeyID string) (auth.Account, error) {
	key, contract, ok := i.store.Lookup(accessKeyID)
	if !ok || key.Expired(i.now()) {
		return auth.Account{}, auth.ErrNoSuchUser
	}
	principal := contract.Code
	if key.Scoped() {
		principal = key.AccessKeyID
	}
	return auth.Account{
		Access:       principal,
		Secret:       key.Secret.Reveal(),
		Role:         auth.RoleUser,
		SessionToken: key.AccessKeyID,
	}, nil
}

// EvaluatePolicy decides every action on every resource for one request. What
// is not decided here is left to the bucket's policy and ACL.
func (i *iam) EvaluatePolicy(principal, accessKeyID string, actions []auth.Action, resources []string, condition map[string][]string) (auth.PolicyEvaluation, error) {
	r := request{condition: condition}
	key, contract, known := i.store.Lookup(accessKeyID)
	refuse := !known || i.refuses(key, contract, r)
	result := auth.PolicyEvaluation{PrincipalArn: principal}
	fill(&result.Decisions, resources, actions, func(resource string, action auth.Action) verdict {
		if refuse {
			return deny
		}
		r.bucket, r.object = parseResource(resource)
		r.action = action
		if key.Scoped() {
			return i.judgeScoped(key, contract, r)
		}
		return i.judgeOwn(contract, r)
	})
	return result, nil
}

// refuses reports what no grant and no bucket policy can outweigh.
func (i *iam) refuses(key store.Key, contract store.Contract, r request) bool {
	now := i.now()
	return contract.State(now) != store.Active || key.Expired(now) || !r.comesFrom(key.Sources)
}

// judgeOwn is what a contract's own key may do: everything in the contract's
// buckets. Making a bucket is always allowed here, because only then can the
// ledger answer which contract has the name.
func (i *iam) judgeOwn(contract store.Contract, r request) verdict {
	switch r.action {
	case auth.CreateBucketAction, auth.ListAllMyBucketsAction:
		return allow
	}
	if i.buckets.Owner(r.bucket) == contract.Code {
		return allow
	}
	return noMatch
}

// judgeScoped is what a scoped key may do: what its grants say, in buckets that
// its contract still owns. Seeing names of buckets is denied outright, because
// the gateway would then list by owner.
func (i *iam) judgeScoped(key store.Key, contract store.Contract, r request) verdict {
	if r.action == auth.ListAllMyBucketsAction {
		return deny
	}
	if i.buckets.Owner(r.bucket) != contract.Code {
		return noMatch
	}
	for _, grant := range key.Grants {
		if grant.Bucket == r.bucket && permits(grant, r) {
			return allow
		}
	}
	return noMatch
}

// ResolvePrincipals returns which names of a bucket policy belong to no account.
func (i *iam) ResolvePrincipals(names []string) ([]string, error) {
	var missing []string
	for _, name := range names {
		if !i.exists(name) {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// ResolveAccounts checks the grantees of an ACL. An unknown one is the caller's
// mistake; merely reported as missing, the gateway would answer 500 and have
// every client retry.
func (i *iam) ResolveAccounts(names []string) ([]string, error) {
	for _, name := range names {
		if !i.exists(name) {
			return nil, s3err.APIError{
				Code:           "InvalidArgument",
				Description:    fmt.Sprintf("No contract and no key is called %q. Name grantees by their bare contract code or access key id.", name),
				HTTPStatusCode: http.StatusBadRequest,
			}
		}
	}
	return nil, nil
}

func (i *iam) exists(name string) bool {
	if _, ok := i.store.ContractByCode(name); ok {
		return true
	}
	key, _, ok := i.store.Lookup(name)
	return ok && !key.Expired(i.now())
}

// Accounts are made through the contract API alone.

// CreateAccount is not supported.
func (*iam) CreateAccount(auth.Account) error { return unsupported() }

// UpdateUserAccount is not supported.
func (*iam) UpdateUserAccount(string, auth.MutableProps) error { return unsupported() }

// DeleteUserAccount is not supported.
func (*iam) DeleteUserAccount(string) error { return unsupported() }

// ListUserAccounts is not supported.
func (*iam) ListUserAccounts() ([]auth.Account, error) { return nil, unsupported() }

// Shutdown does nothing: the store is closed by who opened it.
func (*iam) Shutdown() error { return nil }

func unsupported() error { return s3err.GetAPIError(s3err.ErrAdminMethodNotSupported) }
