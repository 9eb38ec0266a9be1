package iam_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/iam"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// cloud is an STS API and an IAM API that takes the keys which the first gives.
type cloud struct {
	life    time.Duration
	refusal string
	assumed []string // the tokens
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	form, _ := url.ParseQuery(string(body))
	token := form.Get("WebIdentityToken")
	switch {
	case r.Method != http.MethodPost: // a look at the storage
	case form.Get("Action") != "AssumeRoleWithWebIdentity":
		if want := fmt.Sprintf("session-%d", len(c.assumed)); r.Header.Get("X-Amz-Security-Token") != want || !strings.Contains(r.Header.Get("Authorization"), "Credential=ASIA1/") {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, "<ErrorResponse><Error><Code>InvalidClientTokenId</Code><Message>want %s</Message></Error></ErrorResponse>", want)
			return
		}
		_, _ = io.WriteString(w, "<ListUsersResponse><ListUsersResult><Users/></ListUsersResult></ListUsersResponse>")
	case c.refusal != "" || r.Header.Get("Authorization") != "" || form.Get("RoleArn") != "arn:aws:iam::1:role/cosi":
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, "<ErrorResponse><Error><Code>%s</Code><Message>the token is %s</Message></Error></ErrorResponse>", c.refusal, token)
	default:
		c.assumed = append(c.assumed, token)
		_, _ = fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
			<AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>session-%d</SessionToken><Expiration>%s</Expiration>
			</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, len(c.assumed), time.Now().Add(c.life).UTC().Format(time.RFC3339))
	}
}

// A role's key is asked for once while it lives, with the token of that moment,
// and before it ends again.
func TestWebIdentity(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		life    time.Duration
		assumed string
	}{
		"an hour":        {time.Hour, "[token-0]"},
		"soon at an end": {time.Minute, "[token-0 token-1 token-2]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := &cloud{life: c.life}
			p, file := withRole(t, service)
			for i := range 3 {
				must(t, os.WriteFile(file, fmt.Appendf(nil, "token-%d", i), 0o600))
				must(t, p.Check(t.Context()))
			}
			if got := fmt.Sprint(service.assumed); got != c.assumed {
				t.Errorf("the role was taken on with %s, want %s", got, c.assumed)
			}
		})
	}
}

func TestWebIdentityRefused(t *testing.T) {
	t.Parallel()
	for refusal, kind := range map[string]fault.Kind{
		"InvalidIdentityToken": fault.PermissionDenied,
		"AccessDenied":         fault.PermissionDenied,
		"ValidationError":      fault.FailedPrecondition,
	} {
		p, file := withRole(t, &cloud{refusal: refusal})
		must(t, os.WriteFile(file, []byte("a-token"), 0o600))
		err := p.Check(t.Context())
		if !fault.Is(err, kind) || !strings.Contains(err.Error(), refusal) || strings.Contains(err.Error(), "a-token") {
			t.Errorf("%s: %v", refusal, err)
		}
		if kind == fault.PermissionDenied && !strings.Contains(err.Error(), "check that the role trusts") {
			t.Errorf("%s: no cure in %q", refusal, err)
		}
	}
	p, _ := withRole(t, &cloud{})
	if err := p.Check(t.Context()); !fault.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), "check webIdentity.tokenFile") {
		t.Errorf("without a token: %v", err)
	}
}

func withRole(t *testing.T, service *cloud) (p contract.Provider, tokenFile string) {
	t.Helper()
	s := httptest.NewServer(service)
	t.Cleanup(s.Close)
	tokenFile = filepath.Join(t.TempDir(), "token")
	settings := &iam.Settings{
		URL: s.URL, Region: "us-east-1", Endpoints: contract.Endpoints{{Region: "r", URL: s.URL}}, Path: "/contract-cosi/",
		WebIdentity: &iam.WebIdentity{URL: s.URL, RoleARN: "arn:aws:iam::1:role/cosi", TokenFile: tokenFile},
	}
	p, err := settings.Open(contract.Parts{HTTP: transport.Bounded(&http.Transport{}), Observe: func(string, error) {}})
	must(t, err)
	return p, tokenFile
}
