package rgw

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// What the gateway does is tested at a real one, in test/backends. Here is what
// a healthy one with few users does not show.

var update = flag.Bool("update", false, "write the golden files")

func TestScopedPolicy(t *testing.T) {
	t.Parallel()
	got, err := scopedPolicy(contract.Scope{
		Buckets: []contract.BucketScope{
			{Bucket: "logs", Prefix: "a+b/", Mode: cosi.WriteOnly},
			{Bucket: "media", Mode: cosi.ReadWrite},
			{Bucket: "reports", Mode: cosi.ReadOnly},
		},
		SourceAddresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")},
	})
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "policy.json")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the policy is\n%s\nwant\n%s", got, want)
	}
}

// What is denied of a mode on its objects is what it does not allow, and no more.
func TestDeniedActions(t *testing.T) {
	t.Parallel()
	denies := func(patterns []string, action string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { matches, err := path.Match(p, action); return err == nil && matches })
	}
	modes := []cosi.AccessMode{cosi.ReadWrite, cosi.ReadOnly, cosi.WriteOnly, ""}
	for _, mode := range modes[:3] {
		for _, object := range modes {
			for _, bucket := range modes {
				b := contract.BucketScope{Mode: mode, Metadata: cosi.Metadata{ObjectMetadata: object, BucketMetadata: bucket}}
				patterns := denied(b)
				for _, a := range cosi.Actions() {
					allowed, is := a.AllowedBy(mode, b.Metadata), denies(patterns, a.Name)
					if allowed && is || !allowed && !is && a.On == cosi.OnObject {
						t.Errorf("%s %+v: %s is allowed: %v, and denied: %v", mode, b.Metadata, a.Name, allowed, is)
					}
				}
				for _, name := range []string{"s3:PutObjectAcl", "s3:PutObjectVersionAcl", "s3:PutObjectRetention", "s3:PutObjectLegalHold", "s3:GetObjectTorrent"} {
					if !denies(patterns, name) {
						t.Errorf("%s %+v: %s is not denied", mode, b.Metadata, name)
					}
				}
			}
		}
	}
}

// gateway answers each request as the test says.
func gateway(t *testing.T, answer http.HandlerFunc) *Provider {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return New(Config{
		Endpoints: []cosi.Endpoint{{Region: "default", URL: s.URL, PathStyle: true}, {Region: "other", URL: "http://other.example.com"}},
		Credentials: func() secret.KeyPair {
			return secret.KeyPair{AccessKeyID: "id", SecretAccessKey: secret.New("planted")}
		},
		HTTP: transport.Bounded(http.DefaultTransport), Observe: func(string, error) {},
	})
}

func TestCodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		want   fault.Kind
		says   string
	}{
		"no such user":        {404, `{"Code":"NoSuchUser","Message":"","RequestId":"tx1","HostId":"h"}`, fault.NotFound, "NoSuchUser"},
		"in XML":              {404, `<?xml version="1.0"?><Error><Code>NoSuchEntity</Code><Message></Message></Error>`, fault.NotFound, "NoSuchEntity"},
		"a bad signature":     {403, `{"Code":"SignatureDoesNotMatch"}`, fault.PermissionDenied, "check the backend's credentialsFile"},
		"an unknown key":      {403, `{"Code":"InvalidAccessKeyId"}`, fault.PermissionDenied, "check the backend's credentialsFile"},
		"no capability":       {403, `{"Code":"AccessDenied"}`, fault.PermissionDenied, "users=*"},
		"a skewed clock":      {403, `{"Code":"RequestTimeTooSkewed"}`, fault.FailedPrecondition, "clock"},
		"buckets are left":    {409, `{"Code":"BucketAlreadyExists"}`, fault.FailedPrecondition, "delete them first"},
		"no admin API":        {405, `{"Code":"MethodNotAllowed"}`, fault.Unsupported, "rgw enable apis"},
		"an S3 server's 404":  {404, `<Error><Code>NoSuchBucket</Code></Error>`, fault.Unavailable, "check that the backend's url"},
		"a web server's 404":  {404, `<html>not here</html>`, fault.Unavailable, "HTTP 404"},
		"a web server's 403":  {403, `go away`, fault.PermissionDenied, "HTTP 403"},
		"a lost race":         {409, `{"Code":"ConcurrentModification"}`, fault.Unavailable, "ConcurrentModification"},
		"an unknown conflict": {409, `{"Code":"Other"}`, fault.FailedPrecondition, "Other"},
		"too many calls":      {503, `{"Code":"SlowDown"}`, fault.RateLimited, "SlowDown"},
		"a proxy's 502":       {502, `<html>bad gateway</html>`, fault.Unavailable, "HTTP 502"},
	} {
		var calls atomic.Int32
		p := gateway(t, func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.WriteHeader(c.status)
			_, _ = fmt.Fprint(w, c.body)
		})
		_, err := p.GetContract(t.Context(), "team-a")
		if !fault.Is(err, c.want) {
			t.Errorf("%s: got %s (%v), want %s", name, fault.KindOf(err), err, c.want)
			continue
		}
		if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %q does not say %q", name, err, c.says)
		}
		for _, never := range []string{"planted", "tx1"} {
			if strings.Contains(err.Error(), never) {
				t.Errorf("%s: %q tells %q", name, err, never)
			}
		}
		want := int32(1)
		if c.want == fault.Unavailable || c.want == fault.RateLimited {
			want = 3
		}
		if n := calls.Load(); n != want {
			t.Errorf("%s: %d calls, want %d", name, n, want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	p := gateway(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	_, err := p.GetContract(ctx, "team-a")
	if !fault.Is(err, fault.Unavailable) || time.Since(began) > 5*time.Second {
		t.Errorf("got %v after %s; a minute does not fit into the deadline", err, time.Since(began))
	}
}

// The cluster's users come in pages, and only the contract's are its own.
func TestUsersInPages(t *testing.T) {
	t.Parallel()
	pages := map[string]string{
		"":    `{"keys":["administrator","cosi_team_a$one","cosi_team_a_b$two"],"truncated":true,"count":3,"marker":"m 1"}`,
		"m 1": `{"keys":["cosi_team_a$contract-administration","other$cosi_team_a$three"],"truncated":true,"count":2,"marker":"m2"}`,
		"m2":  `{"keys":["cosi_team_a$four"],"truncated":false,"count":1}`,
	}
	p := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("list") {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		_, _ = fmt.Fprint(w, pages[r.URL.Query().Get("marker")])
	})
	got, err := p.accesses(t.Context(), "team-a")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"one", "four"}; !slices.Equal(got, want) {
		t.Errorf("accesses %q, want %q", got, want)
	}
}

// The gateway logs what is said in a query.
func TestNoSecretIsSent(t *testing.T) {
	t.Parallel()
	proposed := secret.KeyPair{AccessKeyID: "ck1", SecretAccessKey: secret.New("planted-too")}
	p := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		var all strings.Builder
		_ = r.Write(&all)
		if strings.Contains(all.String(), "planted") {
			t.Errorf("a secret is sent with %s %s", r.Method, r.URL.Path)
		}
		if r.URL.Path == "/" {
			_, _ = fmt.Fprint(w, `<PutUserPolicyResponse/>`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"display_name":%q,"keys":[{"access_key":"ck1","secret_key":"s"}]}`, displayName("x", mark{owner: "o"}))
	})
	scope := contract.Scope{Buckets: []contract.BucketScope{{Bucket: "b", Mode: cosi.ReadWrite}}}
	pair, err := p.IssueKey(t.Context(), contract.IssueKeyRequest{Contract: "c", Slot: "s", Scope: &scope, Proposed: proposed})
	if err != nil {
		t.Fatal(err)
	}
	if pair.SecretAccessKey.Reveal() != "s" {
		t.Error("the secret is not the gateway's")
	}
}

// A contract's own region is its first, whenever it is looked at.
func TestRegion(t *testing.T) {
	t.Parallel()
	shown := ""
	p := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut || r.Method == http.MethodPost && r.URL.Query().Has("display-name") {
			shown = r.URL.Query().Get("display-name")
		}
		if r.URL.Path == "/" {
			_, _ = fmt.Fprint(w, `<PutUserPolicyResponse/>`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"display_name":%q}`, shown)
	})
	shown = displayName("x", mark{owner: "o"})
	for region, want := range map[string][]string{"": {"default", "other"}, "other": {"other", "default"}, "default": {"default", "other"}} {
		made, err := p.EnsureContract(t.Context(), contract.Spec{Name: "c", Owner: "o", Region: region})
		if err != nil {
			t.Fatal(err)
		}
		read, err := p.GetContract(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []contract.Contract{made, read} {
			if got := []string{c.Endpoints[0].Region, c.Endpoints[1].Region}; !slices.Equal(got, want) {
				t.Errorf("region %q: endpoints are in %q, want %q", region, got, want)
			}
		}
	}
}

// A contract that is suspended while a key is restored has that key stopped
// again.
func TestSuspendedMeanwhile(t *testing.T) {
	t.Parallel()
	ownerReads := 0
	denied := true // whether the access has the policy that denies all
	p := gateway(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		switch uid, action := r.FormValue("uid"), r.FormValue("Action"); {
		case uid == userID("c", cosi.ContractSlot):
			_, _ = fmt.Fprintf(w, `{"suspended":%d}`, ownerReads) // 0, and then 1
			ownerReads++
		case uid != "":
			_, _ = fmt.Fprint(w, `{"keys":[{"access_key":"ck1"}]}`)
		case action == "ListUserPolicies":
			_, _ = fmt.Fprintf(w, `<ListUserPoliciesResponse><ListUserPoliciesResult><PolicyNames><member>%s</member></PolicyNames></ListUserPoliciesResult></ListUserPoliciesResponse>`, suspendPolicy)
		case action == "DeleteUserPolicy":
			denied = false
			_, _ = fmt.Fprint(w, `<DeleteUserPoliciesResponse/>`) // as release 16 calls it
		case action == "PutUserPolicy" && r.FormValue("PolicyName") == suspendPolicy:
			denied = r.FormValue("PolicyDocument") == denyAll()
			fallthrough
		default:
			_, _ = fmt.Fprint(w, `<PutUserPolicyResponse/>`)
		}
	})
	scope := contract.Scope{Buckets: []contract.BucketScope{{Bucket: "b", Mode: cosi.ReadWrite}}}
	if _, err := p.RestoreKey(t.Context(), "c", "s", secret.KeyPair{AccessKeyID: "ck1"}, &scope, true); err != nil {
		t.Fatal(err)
	}
	if !denied || ownerReads != 2 {
		t.Errorf("a key of a suspended contract can be used; its contract was looked at %d times", ownerReads)
	}
}

func FuzzMark(f *testing.F) {
	f.Add("Team A", "cluster", "eu", "00112233445566ff")
	f.Add(" [contract-cosi-driver owner=x]", "a]b [contract-cosi-driver owner=", "", "")
	f.Add("", "ä%+ &", "=", "&journal=")
	f.Fuzz(func(t *testing.T, shown, owner, region, journal string) {
		want := mark{owner, region, journal}
		if got := markOf(displayName(shown, want)); got != want {
			t.Errorf("%+v with %q comes back as %+v", want, shown, got)
		}
	})
}
