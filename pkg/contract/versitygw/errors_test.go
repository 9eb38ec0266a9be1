package versitygw_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/versitygw"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// play is a provider at a server that answers as the test says.
func play(t *testing.T, answer http.HandlerFunc) (*versitygw.Provider, *atomic.Int32) {
	t.Helper()
	var calls atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return versitygw.New(versitygw.Config{
		AdminURL: s.URL, Endpoints: []cosi.Endpoint{{Region: "r", URL: s.URL, PathStyle: true}}, Owner: "o",
		Credentials: func() secret.KeyPair {
			return secret.KeyPair{AccessKeyID: "a", SecretAccessKey: secret.New("planted-secret")}
		},
		HTTP: transport.Bounded(&http.Transport{ResponseHeaderTimeout: 2 * time.Second}), Observe: func(string, error) {},
	}), &calls
}

func TestCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		code   string
		kind   fault.Kind
		says   string
		calls  int32
	}{
		{403, "InvalidAccessKeyId", fault.PermissionDenied, "check the backend's credentialsFile", 1},
		{403, "SignatureDoesNotMatch", fault.PermissionDenied, "check the backend's credentialsFile", 1},
		{403, "XAdminAccessDenied", fault.PermissionDenied, "role admin", 1},
		{403, "AccessDenied", fault.PermissionDenied, "role admin", 1},
		{403, "RequestTimeTooSkewed", fault.FailedPrecondition, "set the clock", 1},
		{501, "XAdminMethodNotSupported", fault.Unsupported, "type iam", 1},
		{503, "SlowDown", fault.RateLimited, "SlowDown", 3},
		{500, "InternalError", fault.Unavailable, "InternalError", 3},
		{401, "", fault.PermissionDenied, "check the backend's credentialsFile", 1},
		{404, "", fault.Unavailable, "HTTP 404", 3}, // no one is behind the proxy
		{429, "", fault.RateLimited, "HTTP 429", 3},
		{502, "", fault.Unavailable, "HTTP 502", 3},
		{400, "", fault.FailedPrecondition, "HTTP 400", 1},
		{307, "", fault.Unavailable, "redirect to 127.0.0.1:1", 1},
	} {
		t.Run(fmt.Sprint(c.status, c.code), func(t *testing.T) {
			t.Parallel()
			p, calls := play(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(c.status)
				if c.code != "" {
					_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>words</Message><RequestId>4242</RequestId></Error>", c.code)
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

// An answer that is not the gateway's is not taken for an empty list: what is
// not there would be re-created.
func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "<html></html>", "{}", "<ListUserAccountsResult>"} {
		p, _ := play(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, text) })
		if _, err := p.GetContract(t.Context(), "team"); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%q: got %v, want Unavailable", text, err)
		}
	}
}

func TestSlowAnswer(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	p, calls := play(t, func(http.ResponseWriter, *http.Request) { <-release })
	t.Cleanup(func() { close(release) }) // before the server is closed
	_, err := p.GetContract(t.Context(), "team")
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "timeout") || calls.Load() != 3 {
		t.Errorf("after %d calls: %v", calls.Load(), err)
	}
}
