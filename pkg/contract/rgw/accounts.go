package rgw

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/iam"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Accounts is a Ceph object gateway with accounts, which Squid and later
// releases have (Ceph documentation, "User Accounts").
//
// A contract is an account. Buckets and objects belong to it, whichever of its
// users made them, and its users may do what their policies say and nothing
// else. The Admin Ops API makes the account and its root user, whose key can be
// read again at any time. With that key the IAM API of the gateway makes the
// users of the accesses: that is pkg/contract/iam, at an account of its own.
//
// The driver's user needs the capabilities accounts=* and users=*. Squid asks
// for a capability that no user can be given when an account is read or deleted;
// there the user has the flag admin.
type Accounts struct {
	calls     *client
	endpoints []cosi.Endpoint
	within    iam.Config // but for the credentials
}

var (
	_ contract.Provider = (*Accounts)(nil)
	_ contract.Restorer = (*Accounts)(nil)
)

// maxKeys is how many keys of an access there can be: what a rotation needs,
// and less than the gateway's own bound, 4.
const maxKeys = 2

// NewAccounts returns the provider; no call is made.
func NewAccounts(c Config) *Accounts {
	calls := newClient(c)
	return &Accounts{
		calls: calls, endpoints: c.Endpoints,
		within: iam.Config{
			URL: calls.url, Region: calls.Region, Endpoints: c.Endpoints, OwnAccounts: true, Path: "/contract-cosi/",
			Dialect: dialect(), MaxKeys: maxKeys, Settles: c.Settles, HTTP: calls.HTTP, Observe: c.Observe,
		},
	}
}

// Capabilities implements contract.Provider. An account cannot be suspended, and
// no release bounds its bytes over this API that does not cut the number to 32
// bits.
func (p *Accounts) Capabilities() contract.Capabilities {
	out := iam.New(p.within).Capabilities()
	out.TagsLater, out.Placements, out.Quota = true, true, contract.QuotaKinds{Buckets: true}
	return out
}

// Regions implements contract.Provider.
func (p *Accounts) Regions(context.Context) ([]cosi.Endpoint, error) { return p.endpoints, nil }

// Check implements contract.Provider. That accounts can be read is tried, at one
// that does not exist.
func (p *Accounts) Check(ctx context.Context) error {
	u, err := p.calls.userOfKey(ctx, p.calls.Credentials().AccessKeyID)
	if err != nil {
		return err
	}
	for _, needed := range []string{"accounts", "users"} {
		if !u.isAdmin() && !slices.Contains(u.Caps, capability{Type: needed, Perm: "*"}) {
			return fault.New(fault.PermissionDenied, "the driver's own user at the Ceph gateway lacks the capability %s=*; add it with radosgw-admin caps add, and check the release: Squid's accounts need a user with the flag --admin", needed)
		}
	}
	if _, err := p.calls.getAccount(ctx, accountID("")); err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return contract.Reach(ctx, p.calls.HTTP, p.endpoints)
}

// isAdmin reports whether a user may do everything at the Admin Ops API.
func (u user) isAdmin() bool { return u.Admin == true || u.Admin == "true" }

// accountID is the id of a contract's account: RGW and 17 digits.
func accountID(name string) string {
	const ids = 100_000_000_000_000_000
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("RGW%017d", binary.BigEndian.Uint64(sum[:])%ids)
}

// rootID is the id of the root user of a contract's account, and rootKeyID that
// of its key.
func rootID(name string) string    { return "contract-cosi." + name }
func rootKeyID(name string) string { return "root" + accountID(name) }

// accountName is what the gateway's tools show of an account, with the driver's
// mark. No two accounts can have the same one, so it begins with the contract's.
func accountName(spec contract.Spec) string {
	shown := spec.Name
	if spec.Display != "" {
		// The gateway takes no name with one of these. A mark is escaped.
		shown += " " + strings.NewReplacer("$", "_", ":", "_").Replace(spec.Display)
	}
	return displayName(shown, markFor(spec))
}

// EnsureContract implements contract.Provider.
func (p *Accounts) EnsureContract(ctx context.Context, spec contract.Spec) (contract.Contract, error) {
	if err := p.ensure(ctx, &spec); err != nil {
		return contract.Contract{}, err
	}
	within, err := p.account(ctx, spec.Name)
	if err == nil {
		_, err = within.EnsureContract(ctx, contract.Spec{Name: spec.Name})
	}
	if err != nil {
		return contract.Contract{}, err
	}
	return contractOf(spec.Name, markFor(spec), false, p.endpoints), nil
}

// ensure makes the account and its root user, or brings them to spec.
func (p *Accounts) ensure(ctx context.Context, spec *contract.Spec) error {
	id, want := accountID(spec.Name), url.Values{"name": {accountName(*spec)}}
	bound := int64(0)
	if n := spec.Quota.MaxBuckets; n != nil {
		bound = min(maxBuckets(*n), math.MaxInt32) // the gateway cuts what is longer
		want.Set("max-buckets", strconv.FormatInt(bound, 10))
	}
	have, err := p.calls.getAccount(ctx, id)
	if fault.Is(err, fault.NotFound) {
		if have, err = p.calls.createAccount(ctx, id, want); fault.Is(err, fault.Conflict) { // by an attempt whose answer was lost
			taken := err
			if have, err = p.calls.getAccount(ctx, id); fault.Is(err, fault.NotFound) {
				err = taken // it is the name that is taken
			}
		}
	}
	if err != nil {
		return err
	}
	m := markOf(have.Name)
	if !strings.HasPrefix(have.Name, spec.Name+" ") {
		m = mark{}
	}
	if err := spec.Found(m.owner, m.journal); err != nil {
		return fault.In(err, "account %s", id)
	}
	if want.Set("name", accountName(*spec)); have.Name != want.Get("name") || spec.Quota.MaxBuckets != nil && have.MaxBuckets != bound {
		if err := p.calls.modifyAccount(ctx, id, want); err != nil {
			return err
		}
	}
	return p.ensureRoot(ctx, spec.Name)
}

// ensureRoot makes the root user of a contract's account, or gives it back the
// key that it lost.
func (p *Accounts) ensureRoot(ctx context.Context, name string) error {
	uid := rootID(name)
	have, err := p.calls.getUser(ctx, uid)
	if fault.Is(err, fault.NotFound) {
		have, err = p.calls.createUser(ctx, uid, rootKeyID(name), url.Values{
			"display-name": {"root"}, "account-id": {accountID(name)}, "account-root": {"true"},
		})
		if fault.Is(err, fault.Conflict) {
			taken := err
			if have, err = p.calls.getUser(ctx, uid); fault.Is(err, fault.NotFound) {
				err = taken // it is the key's id that is taken
			}
		}
	}
	if err != nil {
		return err
	}
	if have.AccountID != accountID(name) {
		return fault.New(fault.Conflict, "user %s exists and is not of account %s; it is left alone", uid, accountID(name))
	}
	if _, err := find(have.Keys, rootKeyID(name)); err != nil {
		_, err = p.calls.makeKey(ctx, uid, rootKeyID(name))
		return err
	}
	return nil
}

// account is what is in a contract's account, reached with its root user's key.
// NotFound if there is no such user.
func (p *Accounts) account(ctx context.Context, name string) (*iam.Provider, error) {
	root, err := p.calls.getUser(ctx, rootID(name))
	if err != nil {
		return nil, err
	}
	pair, err := find(root.Keys, rootKeyID(name))
	if err != nil {
		return nil, fault.New(fault.FailedPrecondition, "the root user %s of its account has lost the key %s; restart the driver, which creates it again", rootID(name), rootKeyID(name))
	}
	within := p.within
	within.Credentials = func(context.Context, string) (secret.KeyPair, error) { return pair, nil }
	return iam.New(within), nil
}

// GetContract implements contract.Provider.
func (p *Accounts) GetContract(ctx context.Context, name string) (contract.Contract, error) {
	have, err := p.calls.getAccount(ctx, accountID(name))
	if err != nil {
		return contract.Contract{}, err
	}
	return contractOf(name, markOf(have.Name), false, p.endpoints), nil
}

// DeleteContract implements contract.Provider. The gateway deletes no account
// that has users, the root user among them, which goes when its key has done
// its work.
func (p *Accounts) DeleteContract(ctx context.Context, name string) error {
	within, err := p.account(ctx, name)
	if err == nil {
		if err := within.DeleteContract(ctx, name); err != nil {
			return err
		}
		err = p.calls.deleteUser(ctx, rootID(name))
	}
	if err == nil || fault.Is(err, fault.NotFound) {
		err = p.calls.deleteAccount(ctx, accountID(name))
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return nil
}

// IssueKey implements contract.Provider. The contract's own keys are of an IAM
// user too: the root user's is the driver's alone.
func (p *Accounts) IssueKey(ctx context.Context, req contract.IssueKeyRequest) (secret.KeyPair, error) {
	if req.Scope != nil {
		if err := nameable(*req.Scope); err != nil {
			return secret.KeyPair{}, err
		}
	}
	within, err := p.account(ctx, req.Contract)
	if err != nil {
		return secret.KeyPair{}, err
	}
	return within.IssueKey(ctx, req)
}

// ListKeys implements contract.Provider.
func (p *Accounts) ListKeys(ctx context.Context, name, slot string) ([]contract.KeyInfo, error) {
	within, err := p.account(ctx, name)
	if err != nil {
		return nil, err
	}
	return within.ListKeys(ctx, name, slot)
}

// RevokeKey implements contract.Provider.
func (p *Accounts) RevokeKey(ctx context.Context, req contract.RevokeKeyRequest) error {
	within, err := p.account(ctx, req.Contract)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return within.RevokeKey(ctx, req)
}

// RestoreKey implements contract.Restorer.
func (p *Accounts) RestoreKey(ctx context.Context, name, slot string, key secret.KeyPair, scope *contract.Scope, write bool) ([]string, error) {
	within, err := p.account(ctx, name)
	if err != nil {
		return nil, err
	}
	return within.RestoreKey(ctx, name, slot, key, scope, write)
}
