package iam_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/iam"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// play is a provider at a server that answers as the test says.
func play(t *testing.T, change func(*iam.Config), answer http.HandlerFunc) (*iam.Provider, *atomic.Int32) {
	t.Helper()
	var calls atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	c := iam.Config{
		URL: s.URL, Region: "us-east-1", Endpoints: []cosi.Endpoint{{Region: "r", URL: s.URL, PathStyle: true}},
		Credentials: func(context.Context, string) (secret.KeyPair, error) {
			return secret.KeyPair{AccessKeyID: "a", SecretAccessKey: secret.New("planted-secret")}, nil
		},
		Accounts: func() []string { return []string{""} }, Path: "/contract-cosi/", Dialect: policy.AWS(), MaxPolicyBytes: 2048, MaxKeys: 2,
		HTTP: transport.Bounded(&http.Transport{ResponseHeaderTimeout: 2 * time.Second}), Observe: func(string, error) {},
	}
	if change != nil {
		change(&c)
	}
	return iam.New(c), &calls
}

func TestCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status     int
		code, text string
		kind       fault.Kind
		says       string
		calls      int32
	}{
		{404, "NoSuchEntity", "", fault.NotFound, "NoSuchEntity", 1},
		{403, "AccessDenied", "", fault.PermissionDenied, "check the backend's credentials", 1},
		{403, "InvalidClientTokenId", "", fault.PermissionDenied, "check the backend's credentials", 1},
		{403, "SignatureDoesNotMatch", "The request signature we calculated does not match", fault.PermissionDenied, "check", 1},
		{403, "SignatureDoesNotMatch", "Signature expired: 20260101T000000Z is now earlier than", fault.FailedPrecondition, "set the clock", 1},
		{403, "SignatureDoesNotMatch", "Signature not yet current: 2026", fault.FailedPrecondition, "set the clock", 1},
		{400, "RequestExpired", "", fault.FailedPrecondition, "set the clock", 1},
		{409, "LimitExceeded", "", fault.LimitExceeded, "LimitExceeded", 1},
		{400, "Throttling", "Rate exceeded", fault.RateLimited, "Throttling", 3},
		{503, "ServiceUnavailable", "", fault.Unavailable, "ServiceUnavailable", 3},
		{409, "ConcurrentModification", "", fault.Unavailable, "ConcurrentModification", 3},
		{400, "ValidationError", "a value is too long", fault.FailedPrecondition, "a value is too long", 1},
		{400, "InvalidAction", "", fault.Unsupported, "check that the backend's url is an IAM API", 1},
		{400, "NeverHeardOf", "", fault.FailedPrecondition, "NeverHeardOf", 1},
		{502, "", "", fault.Unavailable, "", 3},
		{429, "", "", fault.RateLimited, "", 3},
	} {
		t.Run(fmt.Sprint(c.status, c.code, c.text), func(t *testing.T) {
			t.Parallel()
			p, calls := play(t, nil, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				if c.code != "" {
					_, _ = fmt.Fprintf(w, `<ErrorResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>4242</RequestId></ErrorResponse>`, c.code, c.text)
				} else {
					_, _ = fmt.Fprint(w, "<html>a page</html>")
				}
			})
			_, err := p.GetContract(t.Context(), "team")
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "4242") {
				t.Errorf("got %s: %v, want %s that says %q", fault.KindOf(err), err, c.kind, c.says)
			}
			if n := calls.Load(); n != c.calls {
				t.Errorf("%d calls, want %d", n, c.calls)
			}
		})
	}
}

func TestSlowAnswer(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	p, calls := play(t, nil, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) }) // before the server is closed
	_, err := p.GetContract(t.Context(), "team")
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "timeout") || calls.Load() != 3 {
		t.Errorf("after %d calls: %v", calls.Load(), err)
	}
}

// account plays as much of IAM as a key needs: users and keys that are there,
// and a storage that takes a while to hear of a key.
func account(path string, storage http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			storage(w, r)
			return
		}
		action := r.FormValue("Action")
		user := fmt.Sprintf("<User><UserName>%s</UserName><Path>%s</Path><UserId>u</UserId><Arn>a</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate></User>", r.FormValue("UserName"), path)
		body := map[string]string{
			"GetUser": user, "CreateUser": user,
			"ListAccessKeys":  "<AccessKeyMetadata/><IsTruncated>false</IsTruncated>",
			"CreateAccessKey": "<AccessKey><UserName>u</UserName><AccessKeyId>AK</AccessKeyId><Status>Active</Status><SecretAccessKey>told-once</SecretAccessKey></AccessKey>",
		}[action]
		_, _ = fmt.Fprintf(w, `<%[1]sResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><%[1]sResult>%[2]s</%[1]sResult></%[1]sResponse>`, action, body)
	}
}

const contractPath = "/contract-cosi/team/contract-administration/"

// Of a service whose settleTime is 0s no fresh key is tried, of one without it is.
func TestKeysOfAServiceThatTakesThemAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settleTime *time.Duration
		looks      int32
	}{"0s": {new(time.Duration), 0}, "no settleTime": {nil, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var looks atomic.Int32
			service := httptest.NewServer(account(contractPath, func(w http.ResponseWriter, _ *http.Request) {
				looks.Add(1)
				_, _ = fmt.Fprint(w, "<ListAllMyBucketsResult/>")
			}))
			t.Cleanup(service.Close)
			file := filepath.Join(t.TempDir(), "key")
			must(t, os.WriteFile(file, []byte("aws_access_key_id = AK\naws_secret_access_key = secret-of-it\n"), 0o600))
			settings := iam.Settings{
				URL: service.URL, Region: "us-east-1", Endpoints: contract.Endpoints{{Region: "r", URL: service.URL}}, Path: "/contract-cosi/",
				CredentialsFile: file, MaxKeys: 2, MaxPolicyBytes: 2048, SettleTime: c.settleTime,
			}
			p, err := settings.Open(contract.Parts{
				HTTP: transport.Bounded(&http.Transport{}), Observe: func(string, error) {}, Changed: func(string) func(error) { return func(error) {} },
			})
			must(t, err)
			if _, err := p.IssueKey(t.Context(), contract.IssueKeyRequest{Contract: "team", Slot: cosi.ContractSlot}); err != nil || looks.Load() != c.looks {
				t.Errorf("after %d looks: %v", looks.Load(), err)
			}
		})
	}
}

// A key is handed out when the storage takes it, and not before.
func TestPropagationIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settles time.Duration
		code    string
		after   int32
		kind    fault.Kind
		scope   *contract.Scope
	}{
		"unknown at first":      {5 * time.Second, "InvalidAccessKeyId", 3, "", nil},
		"not let at first":      {5 * time.Second, "AccessDenied", 3, "", nil},
		"unknown for too long":  {200 * time.Millisecond, "InvalidAccessKeyId", 1000, fault.Unavailable, nil},
		"not let, as it may be": {5 * time.Second, "AccessDenied", 1000, "", &contract.Scope{SourceAddresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}, Buckets: []contract.BucketScope{{Bucket: "b", Mode: cosi.ReadOnly}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var looks atomic.Int32
			path := contractPath
			slot := cosi.ContractSlot
			if c.scope != nil {
				slot = "s"
			}
			p, _ := play(t, func(config *iam.Config) { config.Settles = c.settles }, account(path, func(w http.ResponseWriter, _ *http.Request) {
				if looks.Add(1) < c.after {
					w.WriteHeader(http.StatusForbidden)
					_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", c.code)
					return
				}
				_, _ = fmt.Fprint(w, "<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>")
			}))
			pair, err := p.IssueKey(t.Context(), contract.IssueKeyRequest{Contract: "team", Slot: slot, Scope: c.scope})
			if fault.KindOf(err) != c.kind {
				t.Fatalf("got %v, want %q", err, c.kind)
			}
			if err == nil && (pair.AccessKeyID != "AK" || pair.SecretAccessKey.Reveal() != "told-once") {
				t.Errorf("got %+v", pair)
			}
		})
	}
}

// A user of the name that is somewhere else in the account is someone else's.
func TestForeignUsers(t *testing.T) {
	t.Parallel()
	p, calls := play(t, nil, account("/people/", func(http.ResponseWriter, *http.Request) {}))
	for what, err := range map[string]error{
		"GetContract":    second(p.GetContract(t.Context(), "team")),
		"EnsureContract": second(p.EnsureContract(t.Context(), contract.Spec{Name: "team", Owner: "o"})),
		"IssueKey":       second(p.IssueKey(t.Context(), contract.IssueKeyRequest{Contract: "team", Slot: cosi.ContractSlot})),
		"RevokeKey":      p.RevokeKey(t.Context(), contract.RevokeKeyRequest{Contract: "team", Slot: "s"}),
		"DeleteContract": p.DeleteContract(t.Context(), "team"),
	} {
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("%s: got %v, want Conflict", what, err)
		}
	}
	if n := calls.Load(); n != 5 {
		t.Errorf("%d calls, want one look each", n)
	}
}

func second[T any](_ T, err error) error { return err }

func TestPolicyThatIsTooLong(t *testing.T) {
	t.Parallel()
	p, calls := play(t, nil, account(contractPath, func(http.ResponseWriter, *http.Request) {}))
	scope := &contract.Scope{}
	for i := range 40 {
		scope.Buckets = append(scope.Buckets, contract.BucketScope{Bucket: fmt.Sprintf("a-bucket-with-a-name-of-some-length-%d", i), Mode: cosi.ReadWrite})
	}
	_, err := p.IssueKey(t.Context(), contract.IssueKeyRequest{Contract: "team", Slot: "s", Scope: scope})
	if !fault.Is(err, fault.LimitExceeded) || !strings.Contains(err.Error(), "2048") || calls.Load() != 0 {
		t.Errorf("after %d calls: %v", calls.Load(), err)
	}
}

// Names that are too long together for IAM stay apart.
func TestLongNames(t *testing.T) {
	t.Parallel()
	var asked []string
	p, _ := play(t, nil, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.FormValue("UserName"))
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `<ErrorResponse><Error><Code>NoSuchEntity</Code></Error></ErrorResponse>`)
	})
	long := strings.Repeat("c", 50)
	for _, slot := range []string{strings.Repeat("s", 63), strings.Repeat("s", 62) + "t", "short"} {
		_ = p.RevokeKey(context.Background(), contract.RevokeKeyRequest{Contract: long, Slot: slot})
	}
	if len(asked) != 3 || asked[0] == asked[1] || asked[2] != long+".short" {
		t.Errorf("asked for %q", asked)
	}
	for _, name := range asked {
		if len(name) > 64 {
			t.Errorf("%q has %d characters", name, len(name))
		}
	}
}
