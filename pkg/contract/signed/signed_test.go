package signed_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

var pair = secret.KeyPair{AccessKeyID: "AK", SecretAccessKey: secret.New("planted-secret")}

var table = signed.Table{
	Service: "the service", Kinds: map[string]fault.Kind{"Gone": fault.NotFound, "Denied": fault.PermissionDenied},
	Cures: map[string]string{"Gone": "look elsewhere"}, CuresOf: map[fault.Kind]string{fault.PermissionDenied: "check the key"}, Wrong: "check the address",
}

func serve(t *testing.T, answer http.HandlerFunc) (url string, client *http.Client) {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	carrier := &http.Transport{}
	t.Cleanup(carrier.CloseIdleConnections)
	return s.URL, transport.Bounded(carrier)
}

// A service's refusals are read alike, whichever client has asked.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status     int
		code, text string
		want       fault.Kind
		says       string // in place of {op}, what was called
	}{
		"a code of the service's":     {404, "Gone", "it went", fault.NotFound, "the service refused {op} (Gone: look elsewhere)"},
		"a cure of its kind":          {403, "Denied", "", fault.PermissionDenied, "the service refused {op} (Denied: check the key)"},
		"a code that all have":        {503, "SlowDown", "", fault.RateLimited, "the service refused {op} (SlowDown)"},
		"a clock that is wrong":       {403, "RequestTimeTooSkewed", "", fault.FailedPrecondition, "(RequestTimeTooSkewed: set the clock of the driver's node)"},
		"an unknown code":             {409, "New", "", fault.FailedPrecondition, "(New: check the address)"},
		"a proxy's 502":               {502, "", "", fault.Unavailable, "the service refused {op} (HTTP 502: check the address)"},
		"nothing behind the proxy":    {404, "", "", fault.Unavailable, "(HTTP 404: check the address)"},
		"a code that tells a secret":  {400, "planted-secret", "", fault.FailedPrecondition, "([redacted]: check the address)"},
		"a code with a line end in":   {400, "A&#10;B", "", fault.FailedPrecondition, "(A B: check the address)"},
		"a code that is not the end":  {500, strings.Repeat("x", 1<<10), "", fault.Unavailable, "x…"},
		"a code that echoes the body": {400, "new-secret", "", fault.FailedPrecondition, "the service refused {op} (HTTP 400: check the address)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, client := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") == "" {
					t.Error("the call is not signed")
				}
				w.WriteHeader(c.status)
				if c.code != "" {
					_, _ = io.WriteString(w, "<Error><Code>"+c.code+"</Code><Message>"+c.text+"</Message></Error>")
				}
			})
			own := &signed.Client{Table: table, Region: "r", Credentials: func() secret.KeyPair { return pair }, HTTP: client, Observe: func(string, error) {}}
			_, err := own.Do(t.Context(), signed.Call{Operation: "Own", Method: http.MethodPut, API: transport.S3, URL: url, Body: []byte("<Secret>new-secret</Secret>")})
			if want := strings.ReplaceAll(c.says, "{op}", "Own"); !fault.Is(err, c.want) || !strings.Contains(err.Error(), want) {
				t.Errorf("own: %s: %v; want %s: %s", fault.KindOf(err), err, c.want, want)
			}
			if c.code == "" || strings.Contains(name, "echoes") {
				return // the SDK makes a code of the status, and its calls have no secrets in them
			}
			sdk := signed.S3(cosi.Endpoint{URL: url, Region: "r", PathStyle: true}, pair, client, func(o *s3.Options) { o.RetryMaxAttempts = 1 })
			_, err = sdk.ListBuckets(t.Context(), nil)
			err = table.Fault(err, "SDK")
			if want := strings.ReplaceAll(c.says, "{op}", "SDK"); !fault.Is(err, c.want) || !strings.Contains(err.Error(), want) {
				t.Errorf("SDK: %s: %v; want %s: %s", fault.KindOf(err), err, c.want, want)
			}
		})
	}
}

// A change that was sent has its answer heard when its call is given up, whichever
// client has sent it; and its caller does nothing more.
func TestWhatWasSentIsHeard(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}, 1), make(chan struct{})
	url, client := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-release
		w.WriteHeader(http.StatusNoContent)
	})
	own := &signed.Client{Table: table, Region: "r", Credentials: func() secret.KeyPair { return pair }, HTTP: client, Observe: func(string, error) {}}
	sdk := signed.S3(cosi.Endpoint{URL: url, Region: "r", PathStyle: true}, pair, transport.Speaking(transport.S3, client))
	calls := []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := own.Do(ctx, signed.Call{Operation: "Delete", Method: http.MethodDelete, API: transport.S3, URL: url})
			return err
		},
		func(ctx context.Context) error {
			_, err := sdk.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: aws.String("b")})
			return err
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, len(calls))
	for _, call := range calls {
		go func() { ended <- call(ctx) }()
		<-begun
	}
	cancel()
	close(release)
	for range calls {
		if err := <-ended; err != nil {
			t.Errorf("a call that was sent: %v", err)
		}
	}
	for _, call := range calls {
		if err := call(ctx); err == nil {
			t.Error("another call is sent")
		}
	}
}
