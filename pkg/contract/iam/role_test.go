package iam_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/iam"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// cloud is what gives keys for roles, and an IAM API that takes these keys: an STS
// API, EKS's agent on a node, and the metadata service of a machine, of version 2 alone.
type cloud struct {
	life    time.Duration
	refusal string
	assumed []string // the tokens
}

// key is a new key in the form of agent and metadata service.
func (c *cloud) key(w io.Writer, token string) {
	c.assumed = append(c.assumed, token)
	_, _ = fmt.Fprintf(w, `{"Code": "Success", "AccessKeyId": "ASIA1", "SecretAccessKey": "s", "Token": "session-%d", "Expiration": %q}`,
		len(c.assumed), time.Now().Add(c.life).UTC().Format(time.RFC3339))
}

// metadata answers under the metadata service's paths.
func (c *cloud) metadata(w http.ResponseWriter, r *http.Request) {
	const session, roles = "a-session-of-the-machine", "/latest/meta-data/iam/security-credentials/"
	switch path := r.URL.Path; {
	case r.Method == http.MethodPut && path == "/latest/api/token" && r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds") != "":
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
		_, _ = io.WriteString(w, session)
	case r.Header.Get("X-Aws-Ec2-Metadata-Token") != session:
		w.WriteHeader(http.StatusUnauthorized)
	case path == roles && c.refusal == "":
		_, _ = io.WriteString(w, "cosi")
	case path == roles+"cosi":
		c.key(w, "machine")
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// agent answers the pods of a node.
func (c *cloud) agent(w http.ResponseWriter, r *http.Request) {
	token := r.Header.Get("Authorization")
	if c.refusal != "" || token == "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"code": %q, "message": "the token is %s"}`, c.refusal, token)
		return
	}
	c.key(w, token)
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	form, _ := url.ParseQuery(string(body))
	token := form.Get("WebIdentityToken")
	switch {
	case strings.HasPrefix(r.URL.Path, "/latest/"):
		c.metadata(w, r)
	case r.URL.Path == "/v1/credentials":
		c.agent(w, r)
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

// asRole are the ways to be given a role's key.
var asRole = map[string]func(s *iam.Settings, url, tokenFile string){
	"webIdentity": func(s *iam.Settings, url, tokenFile string) {
		s.WebIdentity = &iam.WebIdentity{URL: url, RoleARN: "arn:aws:iam::1:role/cosi", TokenFile: tokenFile}
	},
	"podIdentity": func(s *iam.Settings, url, tokenFile string) {
		s.PodIdentity = &iam.PodIdentity{URL: url + "/v1/credentials", TokenFile: tokenFile}
	},
	"instanceProfile": func(s *iam.Settings, url, _ string) { s.InstanceProfile = &iam.InstanceProfile{URL: url} },
}

// A role's key is asked for once while it lives, with the token of that moment,
// and before it ends again.
func TestRole(t *testing.T) {
	t.Parallel()
	for as := range asRole {
		for life, tokens := range map[time.Duration]int{time.Hour: 1, time.Minute: 3} {
			t.Run(fmt.Sprint(as, life), func(t *testing.T) {
				t.Parallel()
				service := &cloud{life: life}
				p, file := withRole(t, service, as)
				var want []string
				for i := range 3 {
					token := fmt.Sprintf("token-%d", i)
					must(t, os.WriteFile(file, []byte(token), 0o600))
					must(t, p.Check(t.Context()))
					if as == "instanceProfile" { // whose service has the next key when it has it
						token, tokens = "machine", 1
					}
					want = append(want, token)
				}
				if got := service.assumed; !slices.Equal(got, want[:tokens]) {
					t.Errorf("the role was taken on with %s, want %s", got, want[:tokens])
				}
			})
		}
	}
}

// While what gives the keys is away, the key of now is used until it ends.
func TestRoleWhileItsServiceIsAway(t *testing.T) {
	t.Parallel()
	for as := range asRole {
		for life, works := range map[time.Duration]bool{4 * time.Minute: true, -time.Second: as == "instanceProfile"} { // whose service says that of its keys
			service := &cloud{life: life}
			p, file := withRole(t, service, as)
			must(t, os.WriteFile(file, []byte("token"), 0o600))
			must(t, p.Check(t.Context()))
			service.refusal = "InternalFailure"
			if err := p.Check(t.Context()); (err == nil) != works {
				t.Errorf("%s, a key that lives for %s: %v", as, life, err)
			}
		}
	}
}

func TestRoleRefused(t *testing.T) {
	t.Parallel()
	const trust, associated = "check that the role trusts", "check that a role is associated"
	for _, c := range []struct {
		as, refusal string
		kind        fault.Kind
		says        string
	}{
		{"webIdentity", "InvalidIdentityToken", fault.PermissionDenied, trust},
		{"webIdentity", "AccessDenied", fault.PermissionDenied, trust},
		{"webIdentity", "ValidationError", fault.FailedPrecondition, "ValidationError"},
		{"podIdentity", "ResourceNotFoundException", fault.PermissionDenied, associated},
		{"podIdentity", "AccessDeniedException", fault.PermissionDenied, associated},
		{"podIdentity", "InvalidParameterException", fault.FailedPrecondition, "InvalidParameterException"},
		{"instanceProfile", "no role", fault.Unavailable, "a hop limit of 2"},
	} {
		p, file := withRole(t, &cloud{refusal: c.refusal}, c.as)
		must(t, os.WriteFile(file, []byte("a-token"), 0o600))
		err := p.Check(t.Context())
		if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "a-token") {
			t.Errorf("%s, %s: %v", c.as, c.refusal, err)
		}
	}
	for as, says := range map[string]string{"webIdentity": "check webIdentity.tokenFile", "podIdentity": "associate the role"} {
		p, _ := withRole(t, &cloud{}, as)
		if err := p.Check(t.Context()); !fault.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s without a token: %v", as, err)
		}
	}
}

func withRole(t *testing.T, service *cloud, as string) (p contract.Provider, tokenFile string) {
	t.Helper()
	s := httptest.NewServer(service)
	t.Cleanup(s.Close)
	tokenFile = filepath.Join(t.TempDir(), "token")
	settings := &iam.Settings{URL: s.URL, Region: "us-east-1", Endpoints: contract.Endpoints{{Region: "r", URL: s.URL}}, Path: "/contract-cosi/"}
	asRole[as](settings, s.URL, tokenFile)
	p, err := settings.Open(contract.Parts{HTTP: transport.Bounded(&http.Transport{}), Observe: func(string, error) {}})
	must(t, err)
	return p, tokenFile
}
