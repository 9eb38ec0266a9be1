package transport_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// The success of an API has the API's form.
func TestSpeaking(t *testing.T) {
	t.Parallel()
	const (
		page  = `<!DOCTYPE html><html><head/></html>`
		xhtml = "\ufeff<?xml version=\"1.0\"?>\n<HTML/>"
	)
	for _, c := range []struct {
		api          transport.API
		method, path string
		status       int
		body         string
		ok           bool
	}{
		{transport.S3, "GET", "/b?tagging", 200, "<?xml version=\"1.0\"?>\n<!-- x -->\n<Tagging/>", true},
		{transport.S3, "GET", "/b?tagging", 200, "", false},
		{transport.S3, "GET", "/b?tagging", 204, "", false},
		{transport.S3, "GET", "/b?tagging", 200, page, false},
		{transport.S3, "GET", "/b?tagging", 200, xhtml, false},
		{transport.S3, "GET", "/b?tagging", 200, "OK", false},
		{transport.S3, "GET", "/b?tagging", 200, "{}", false},
		{transport.S3, "GET", "/b?tagging", 200, "<Error><Code>X</Code></Error>", false},
		{transport.S3, "GET", "/b?policy", 200, `{"Version":"x"}`, true},
		{transport.S3, "GET", "/b?policy", 200, "", false},
		{transport.S3, "POST", "/b?delete", 200, "<DeleteResult/>", true},
		{transport.S3, "POST", "/b?delete", 200, "", false},
		{transport.S3, "PUT", "/b", 200, "", true},
		{transport.S3, "PUT", "/b", 200, "<CreateBucketResult/>", true},
		{transport.S3, "PUT", "/b?encryption", 200, page, false},
		{transport.S3, "PUT", "/b?policy", 200, "{}", false},
		{transport.S3, "DELETE", "/b", 204, "", true},
		{transport.S3, "DELETE", "/b", 200, "", false},
		{transport.S3, "DELETE", "/b?policy", 200, "", true},
		{transport.S3, "DELETE", "/b?policy", 204, "", true},
		{transport.S3, "DELETE", "/b?policy", 200, page, false},
		{transport.S3, "HEAD", "/b", 200, "", true},
		{transport.IAM, "POST", "/", 200, "<DeleteAccessKeyResponse><ResponseMetadata/></DeleteAccessKeyResponse>", true},
		{transport.IAM, "POST", "/", 200, "", false},
		{transport.IAM, "POST", "/", 200, "<ErrorResponse/>", false},
		{transport.IAM, "POST", "/", 200, "{}", false},
		{transport.IAM, "POST", "/", 200, page, false},
		{transport.JSON, "GET", "/admin/user", 200, ` {"user_id":"x"}`, true},
		{transport.JSON, "GET", "/admin/user", 200, "[]", true},
		{transport.JSON, "DELETE", "/admin/user", 200, "", true},
		{transport.JSON, "DELETE", "/admin/user", 200, page, false},
		{transport.S3, "GET", "/b?tagging", 404, page, true}, // it claims nothing
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		request, err := http.NewRequestWithContext(t.Context(), c.method, s.URL+c.path, strings.NewReader("x"))
		must(t, err)
		answer, err := transport.Speaking(c.api, transport.Bounded(&http.Transport{})).Do(request)
		if (err == nil) != c.ok || err != nil && !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %s %s: %d %q: %v", c.api, c.method, c.path, c.status, c.body, err)
		}
		if err == nil {
			body, err := io.ReadAll(answer.Body)
			if want := c.body; err != nil || c.method != "HEAD" && string(body) != want {
				t.Errorf("%s %s: the body became %q, %v", c.method, c.path, body, err)
			}
		}
		s.Close()
	}
}
