package rgw_test

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contracttest"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/rgw"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sha256Of(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func open(t *testing.T, s *squid, admin, key string) *rgw.Accounts {
	t.Helper()
	carrier := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(carrier.CloseIdleConnections)
	return rgw.NewAccounts(rgw.Config{
		AdminURL: admin, Endpoints: []cosi.Endpoint{{Region: harness.VersityGWRegion, URL: s.URL, PathStyle: true}},
		Credentials: func() secret.KeyPair {
			return secret.KeyPair{AccessKeyID: driverKeyID, SecretAccessKey: secret.New(key)}
		},
		HTTP: transport.Bounded(carrier), Observe: func(string, error) {},
	})
}

// The suite that every provider passes, against a mock gateway whose S3 is
// versitygw's.
func TestAccountsConformance(t *testing.T) {
	t.Parallel()
	s := startSquid(t)
	serve := func(t *testing.T, key string) contracttest.Service {
		t.Helper()
		line := &harness.Line{}
		p := open(t, s, line.Proxy(t, s.URL, "", ""), key)
		return contracttest.Service{Provider: p, Lose: line.Lose, Calls: func() int { return len(line.Calls()) }}
	}
	contracttest.Run(t, contracttest.Harness{
		Open:     func(t *testing.T) contracttest.Service { return serve(t, driverSecret) },
		Refused:  func(t *testing.T) contracttest.Service { return serve(t, "wrong") },
		Secrets:  []string{driverSecret, s.gateway.Secret},
		Unknown:  append(harness.VersityGWLacks(), "s3:GetObjectAttributes", "s3:GetObjectVersionAttributes"), // no policy may name them
		Operator: contracttest.IAMOperator(s.gateway.IAM, s.gateway.AccessKeyID, s.gateway.Secret),            // of the gateway behind the played one
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.accounts)+len(s.users)+len(s.bucketOf) > 0 {
		t.Errorf("%d accounts, %d root users and %d buckets are left behind", len(s.accounts), len(s.users), len(s.bucketOf))
	}
}

// An account tells whose it is, and is changed only where its terms are.
func TestAccount(t *testing.T) {
	t.Parallel()
	s := startSquid(t)
	p := open(t, s, s.URL, driverSecret)
	many := int64(math.MaxInt32) + 2
	spec := contract.Spec{Name: "team-a", Owner: "cluster:1$", Display: "Team: A $", Quota: contract.Quota{MaxBuckets: &many}}
	for range 2 {
		_, err := p.EnsureContract(t.Context(), spec)
		must(t, err)
	}
	got, err := p.GetContract(t.Context(), "team-a")
	must(t, err)
	if got.Owner != spec.Owner {
		t.Errorf("the owner is %q, want %q", got.Owner, spec.Owner)
	}
	// The gateway finds accounts by name too, so two of one display name differ.
	other := spec
	other.Name = "team-b"
	_, err = p.EnsureContract(t.Context(), other)
	must(t, err)
	if len(s.accounts) != 2 {
		t.Errorf("there are %d accounts", len(s.accounts))
	}
	for id, a := range s.accounts {
		if a.MaxBuckets != math.MaxInt32 {
			t.Errorf("account %s may have %d buckets", id, a.MaxBuckets)
		}
		if !strings.HasPrefix(a.Name, "team-") {
			t.Errorf("account %s is shown as %q", id, a.Name)
		}
	}
	// The key that the driver works with is re-created when a term is taken over.
	root := s.users["contract-cosi.team-a"]
	root.Keys = nil
	issue := contract.IssueKeyRequest{Contract: "team-a", Slot: cosi.ContractSlot}
	if _, err = p.IssueKey(t.Context(), issue); !fault.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), "restart the driver") {
		t.Errorf("without the root user's key: %v", err)
	}
	_, err = p.EnsureContract(t.Context(), spec)
	must(t, err)
	_, err = p.IssueKey(t.Context(), issue)
	must(t, err)
}

// A prefix that the gateway's policies cannot name is refused, and one with what
// release 16 decodes twice is escaped.
func TestAccountPrefix(t *testing.T) {
	t.Parallel()
	s := startSquid(t)
	p := open(t, s, s.URL, driverSecret)
	_, err := p.EnsureContract(t.Context(), contract.Spec{Name: "team-a", Owner: "cluster"})
	must(t, err)
	issue := func(prefix string) error {
		_, err := p.IssueKey(t.Context(), contract.IssueKeyRequest{
			Contract: "team-a", Slot: "s",
			Scope: &contract.Scope{Buckets: []contract.BucketScope{{Bucket: "logs", Prefix: prefix, Mode: cosi.WriteOnly}}},
		})
		return err
	}
	if err := issue("a:b/"); !fault.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), "colon") {
		t.Errorf("a colon: got %v", err)
	}
	must(t, issue("a+b%20/"))
	if !strings.Contains(s.policy, `logs/a\u002bb\u002520/*`) {
		t.Errorf("the policy is sent as %s", s.policy)
	}
}

// What someone else has made is left alone.
func TestForeignAccounts(t *testing.T) {
	t.Parallel()
	gateway := startSquid(t).gateway
	for name, spoil := range map[string]func(s *squid, a *squidAccount){
		"an account without a mark": func(_ *squid, a *squidAccount) { a.Name = "team-a" },
		"another contract's":        func(_ *squid, a *squidAccount) { a.Name = "team-b" + strings.TrimPrefix(a.Name, "team-a") },
		"a user of its name":        func(s *squid, _ *squidAccount) { s.users["contract-cosi.team-a"].AccountID = "" },
		"a name that is taken": func(s *squid, a *squidAccount) {
			delete(s.accounts, a.ID)
			s.accounts["RGW00000000000000000"] = &squidAccount{ID: "RGW00000000000000000", Name: a.Name}
		},
		"a key of its id": func(s *squid, _ *squidAccount) {
			s.users = map[string]*squidUser{}
		},
	} {
		s := playSquid(t)
		s.gateway = gateway
		p := open(t, s, s.URL, driverSecret)
		spec := contract.Spec{Name: "team-a", Owner: "cluster"}
		_, err := p.EnsureContract(t.Context(), spec)
		must(t, err)
		for _, a := range s.accounts {
			spoil(s, a)
		}
		if _, err := p.EnsureContract(t.Context(), spec); !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The driver's user may do what it has to, or is told what is missing.
func TestAccountCapabilities(t *testing.T) {
	t.Parallel()
	all := func(types ...string) (out []map[string]string) {
		for _, c := range types {
			out = append(out, map[string]string{"type": c, "perm": "*"})
		}
		return out
	}
	for name, c := range map[string]struct {
		caps          []map[string]string
		admin, strict bool
		says          string
	}{
		"Tentacle":       {caps: all("accounts", "users")},
		"Squid":          {strict: true, admin: true},
		"Squid by caps":  {strict: true, caps: all("accounts", "users"), says: "what accounts need"},
		"no accounts":    {caps: all("users"), says: "accounts=*"},
		"no users":       {caps: all("accounts"), says: "users=*"},
		"as for tenants": {caps: all("users", "user-policy"), says: "accounts=*"},
	} {
		s := playSquid(t)
		s.caps, s.admin, s.strict = c.caps, c.admin, c.strict
		err := open(t, s, s.URL, driverSecret).Check(t.Context())
		if c.says == "" && err != nil || c.says != "" && (!fault.Is(err, fault.PermissionDenied) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}
