// Package hostile holds every client of the driver to one table of services
// that do what no service should: nothing of it is taken for success, none of it
// costs memory or time without bound, and no text comes through as it was sent.
package hostile

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contractapi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/iam"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/rgw"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/versitygw"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

const (
	token     = "planted-bearer-token"
	secretKey = "planted-secret-key"
)

var pair = secret.KeyPair{AccessKeyID: "AKPLANTED", SecretAccessKey: secret.New(secretKey)}

// call is one thing that the driver asks of a service.
type call struct {
	client, method string
	do             func(context.Context) error
}

func (c call) String() string { return c.client + " " + c.method }

// calls are all that the driver asks, at a service.
func calls(t *testing.T, url string) []call {
	t.Helper()
	client, err := transport.New(transport.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	at := []cosi.Endpoint{{Region: "r", URL: url, PathStyle: true}}
	nothing := func(string, error) {}
	key := func() secret.KeyPair { return pair }
	api, err := contractapi.New(contractapi.Config{URL: url, Token: func() secret.String { return secret.New(token) }, HTTP: client, Observe: nothing})
	if err != nil {
		t.Fatal(err)
	}
	gateway := rgw.Config{Endpoints: at, Credentials: key, HTTP: client, Observe: nothing}
	var all []call
	for name, p := range map[string]contract.Provider{
		"contractapi": api,
		"iam": iam.New(iam.Config{
			URL: url, Region: "r", Endpoints: at, Credentials: func(context.Context, string) (secret.KeyPair, error) { return pair, nil },
			Accounts: func() []string { return []string{""} }, Path: "/p/", Dialect: policy.AWS(), MaxKeys: 2, HTTP: client, Observe: nothing,
		}),
		"rgw":          rgw.New(gateway),
		"rgw accounts": rgw.NewAccounts(gateway),
		"versitygw":    versitygw.New(versitygw.Config{AdminURL: url, Endpoints: at, Credentials: key, Owner: "o", HTTP: client, Observe: nothing}),
	} {
		scope := &contract.Scope{Buckets: []contract.BucketScope{{Bucket: "b", Mode: cosi.ReadOnly}}}
		for method, do := range map[string]func(context.Context) error{
			"Check": p.Check,
			"EnsureContract": func(ctx context.Context) error {
				_, err := p.EnsureContract(ctx, contract.Spec{Name: "team", Owner: "o"})
				return err
			},
			"GetContract":    func(ctx context.Context) error { _, err := p.GetContract(ctx, "team"); return err },
			"DeleteContract": func(ctx context.Context) error { return p.DeleteContract(ctx, "team") },
			"IssueKey": func(ctx context.Context) error {
				_, err := p.IssueKey(ctx, contract.IssueKeyRequest{Contract: "team", Slot: "s", Scope: scope, Proposed: pair})
				return err
			},
			"ListKeys": func(ctx context.Context) error { _, err := p.ListKeys(ctx, "team", ""); return err },
			"IssueKey without doubt": func(ctx context.Context) error {
				_, err := p.IssueKey(ctx, contract.IssueKeyRequest{Contract: "team", Slot: "s", Scope: scope, Proposed: pair, Exact: true})
				return err
			},
			"RevokeKey": func(ctx context.Context) error {
				return p.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: "team", Slot: "s"})
			},
			"RevokeKey without doubt": func(ctx context.Context) error {
				return p.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: "team", Slot: "s", Scope: scope, Known: []string{"team.s.AK"}, Exact: true})
			},
		} {
			all = append(all, call{name, method, do})
		}
		if h, ok := p.(contract.Holder); ok {
			all = append(all, call{name, "HoldsKey", func(ctx context.Context) error { _, err := h.HoldsKey(ctx, *scope, pair); return err }})
		}
		if r, ok := p.(contract.Restorer); ok {
			all = append(all, call{name, "RestoreKey", func(ctx context.Context) error {
				_, err := r.RestoreKey(ctx, "team", "s", secret.KeyPair{AccessKeyID: "team.s.AK", SecretAccessKey: pair.SecretAccessKey}, scope, true)
				return err
			}})
		}
	}
	engine := func(change func(*bucket.Config)) *bucket.Engine {
		c := bucket.Config{Endpoint: at[0], Key: pair, Owner: "o", HTTP: client, Observe: nothing}
		change(&c)
		return bucket.New(c)
	}
	spec := params.Bucket{Encryption: "AES256", Versioning: "Enabled"}
	for name, e := range map[string]*bucket.Engine{
		"S3":                engine(func(*bucket.Config) {}),
		"S3 with late tags": engine(func(c *bucket.Config) { c.TagsLater = true }),
	} {
		for method, do := range map[string]func(context.Context) error{
			"Create":  func(ctx context.Context) error { return e.Create(ctx, "b", spec) },
			"Delete":  func(ctx context.Context) error { return e.Delete(ctx, "b") },
			"Empty":   func(ctx context.Context) error { _, err := e.Empty(ctx, "b", spec); return err },
			"Mark":    func(ctx context.Context) error { _, err := e.Mark(ctx, "b"); return err },
			"Restore": func(ctx context.Context) error { _, err := e.Restore(ctx, "b", spec, params.Bucket{}); return err },
			"Examine": func(ctx context.Context) error { _, err := e.Examine(ctx, "b", spec, true); return err },
			"List": func(ctx context.Context) error {
				for _, err := range e.List(ctx) {
					if err != nil {
						return err
					}
				}
				return nil
			},
		} {
			all = append(all, call{name, method, do})
		}
	}
	return all
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// fit checks that an error can be shown to anybody.
func fit(t *testing.T, c call, err error) {
	t.Helper()
	text := err.Error()
	if len(text) > 2000 || strings.ContainsAny(text, "\x1b\r\n\x00\u202e\u2066\u200b") {
		t.Errorf("%s: %d bytes, or none for a terminal: %.200q", c, len(text), text)
	}
	for _, secret := range []string{token, secretKey} {
		if strings.Contains(text, secret) {
			t.Errorf("%s: a secret is told: %.200q", c, text)
		}
	}
}

const page = `<!DOCTYPE html><html><head><title>Log in</title></head><body><form action="/login"/></body></html>`

// Whatever stands in front of a service answers for it. None of that is a
// success, and who asks is told where to look.
func TestAnswersOfOthers(t *testing.T) {
	t.Parallel()
	var strayed atomic.Int32
	elsewhere := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		strayed.Add(1)
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, page)
	})
	redirect := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", elsewhere+"/login?"+token)
			w.WriteHeader(status)
		}
	}
	says := func(kind, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, text)
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		says   string
		// right are calls for which the answer is the service's own.
		right map[string]bool
	}{
		"a redirect":            {redirect(302), "redirect", nil},
		"a lasting redirect":    {redirect(301), "redirect", nil},
		"a temporary redirect":  {redirect(307), "redirect", nil},
		"a redirect to nowhere": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSeeOther) }, "redirect", nil},
		"a web page":            {says("text/html", page), "check", nil},
		"a web page as XML":     {says("application/xml", `<?xml version="1.0"?>`+"\n"+page), "check", nil},
		"a word":                {says("text/plain", "OK\n"), "check", nil},
		"another API's JSON":    {says("application/json", `["login"]`), "check", map[string]bool{"rgw RevokeKey": true, "rgw RevokeKey without doubt": true}},
		"an error that is none": {says("application/xml", `<Error><Code>NotYou</Code></Error>`), "check", nil},
		// radosgw says nothing when it has deleted a user.
		"nothing": {says("", ""), "check", map[string]bool{"rgw RevokeKey": true, "rgw RevokeKey without doubt": true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serve(t, c.answer)
			for _, call := range calls(t, url) {
				err := call.do(t.Context())
				switch {
				case err == nil && !c.right[call.String()]:
					t.Errorf("%s is a success", call)
				case err == nil || c.right[call.String()]:
				case !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), c.says):
					t.Errorf("%s: %s: %v; want Unavailable that says %q", call, fault.KindOf(err), err, c.says)
				default:
					fit(t, call, err)
				}
			}
		})
	}
	t.Cleanup(func() {
		if n := strayed.Load(); n > 0 {
			t.Errorf("%d requests went to where a redirect pointed", n)
		}
	})
}

// A bucket of another region is no reason to go there.
func TestAnotherRegion(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amz-Bucket-Region", "eu-west-7")
		w.WriteHeader(http.StatusMovedPermanently)
		_, _ = io.WriteString(w, `<Error><Code>PermanentRedirect</Code></Error>`)
	})
	for _, call := range calls(t, url) {
		if !strings.HasPrefix(call.client, "S3") {
			continue
		}
		if err := call.do(t.Context()); !fault.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), "eu-west-7") {
			t.Errorf("%s: %s: %v", call, fault.KindOf(err), err)
		}
	}
}

// What a service says is not said as it came.
func TestTextOfAService(t *testing.T) {
	t.Parallel()
	echo := func(r *http.Request) string {
		return "\x1b[2J\x1b]0;owned\x07\u202egnp.exe\u2066 \r\n" + secretKey + " pl\u200banted-secret-key Authorization: " + r.Header.Get("Authorization")
	}
	xml := strings.NewReplacer("\x1b", "\u009b", "\x07", "\u0085", "\r", "") // XML has no others
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;")
	for _, status := range []int{403, 418, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			long := strings.Repeat("A very long text. ", 1<<12)
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", "1")
				if strings.HasPrefix(r.URL.Path, "/v1/") {
					w.Header().Set("Content-Type", "application/problem+json")
					w.WriteHeader(status)
					text := fmt.Sprintf("%q", echo(r)+long)
					_, _ = fmt.Fprintf(w, `{"code":"invalid-argument","title":"t","detail":%s,"errors":[%s{"pointer":%s,"detail":%s}]}`, text, strings.Repeat(`{"pointer":"/a","detail":"b"},`, 1000), text, text)
					return
				}
				w.WriteHeader(status)
				text := xml.Replace(escape.Replace(echo(r)))
				_, _ = fmt.Fprintf(w, `<ErrorResponse><Error><Code>%[1]s</Code><Message>%[1]s%[2]s</Message></Error><Code>%[1]s</Code><Message>%[1]s%[2]s</Message></ErrorResponse>`, text, long)
			})
			for _, call := range calls(t, url) {
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // no time for the second that is asked for
				defer cancel()
				if err := call.do(ctx); err == nil {
					t.Errorf("%s is a success", call)
				} else {
					fit(t, call, err)
				}
			}
		})
	}
}

// flood writes without end, and counts.
func flood(begin string, served *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		chunk := bytes.Repeat([]byte("<x>y</x>"), 8<<10)
		n, err := io.WriteString(w, begin)
		for err == nil {
			served.Add(int64(n))
			n, err = w.Write(chunk)
		}
	}
}

// bomb is a page that is a thousand times longer than what is sent of it.
func bomb(t *testing.T) http.HandlerFunc {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	for range 256 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	}
}

// What is read of an answer has a bound, whatever it claims to be.
func TestEndlessAnswers(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	headers := func(w http.ResponseWriter, _ *http.Request) {
		for i := range 4 << 10 {
			w.Header().Set(fmt.Sprintf("X-Header-%d", i), strings.Repeat("x", 100))
		}
	}
	for name, answer := range map[string]http.HandlerFunc{
		"XML":     flood("<ListUserAccountsResult>", &served),
		"headers": headers,
		"gzip":    bomb(t),
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, answer)
			for _, call := range calls(t, url) {
				if call.method != "GetContract" && call.String() != "S3 Mark" {
					continue
				}
				served.Store(0)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := call.do(ctx)
				if !fault.Is(err, fault.Unavailable) {
					t.Errorf("%s: %s: %v; want Unavailable", call, fault.KindOf(err), err)
				}
				if n := served.Load(); n > 100<<20 { // the longest list has 64 MiB
					t.Errorf("%s: %d MiB were read", call, n>>20)
				}
			}
		})
	}
}

// Lists whose pages name each other end, and not as if they were whole: what was
// not seen would be lost or left behind.
func TestPagesInACircle(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]int{}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		mu.Lock()
		asked[r.Method+r.URL.Path+r.PostForm.Get("Action")]++
		mu.Unlock()
		next := map[string]string{"": "B", "B": "A", "A": "B"}
		token := r.Form.Get("Marker") + r.Form.Get("pageToken") + r.Form.Get("marker") + r.Form.Get("continuation-token") + r.Form.Get("key-marker")
		user := func(path string) string {
			return `<User><UserName>team.s</UserName><Path>` + path + `</Path><UserId>u</UserId><Arn>a</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate></User>`
		}
		switch action := r.PostForm.Get("Action"); {
		case r.URL.Path == "/admin/user" && r.Form.Has("list"):
			_, _ = fmt.Fprintf(w, `{"keys":["x"],"truncated":true,"marker":%q}`, next[token])
		case strings.HasPrefix(r.URL.Path, "/admin/"):
			_, _ = io.WriteString(w, `{"user_id":"u","display_name":"team [contract-cosi-driver owner=o]","caps":[],"keys":[],"user_quota":{}}`)
		case strings.HasSuffix(r.URL.Path, "/keys"):
			_, _ = fmt.Fprintf(w, `{"items":[],"nextPageToken":%q}`, next[token])
		case action == "ListUsers", action == "ListAccessKeys":
			_, _ = fmt.Fprintf(w, `<%[1]sResponse><%[1]sResult><IsTruncated>true</IsTruncated><Marker>%[2]s</Marker></%[1]sResult></%[1]sResponse>`, action, next[token])
		case action != "":
			slot := "s"
			if r.PostForm.Get("UserName") != "team.s" {
				slot = cosi.ContractSlot
			}
			_, _ = fmt.Fprintf(w, `<%[1]sResponse><%[1]sResult>%[2]s</%[1]sResult></%[1]sResponse>`, action, user("/p/team/"+slot+"/"))
		case r.Form.Has("versions"):
			_, _ = fmt.Fprintf(w, `<ListVersionsResult><IsTruncated>true</IsTruncated><NextKeyMarker>%s</NextKeyMarker></ListVersionsResult>`, next[token])
		default:
			_, _ = fmt.Fprintf(w, `<ListAllMyBucketsResult><ContinuationToken>%s</ContinuationToken></ListAllMyBucketsResult>`, next[token])
		}
	})
	lists := map[string]bool{
		"contractapi ListKeys": true, "iam ListKeys": true, "iam RevokeKey": true, "iam DeleteContract": true, "rgw ListKeys": true,
		"S3 Empty": true, "S3 List": true,
	}
	found := 0
	for _, call := range calls(t, url) {
		if !lists[call.String()] {
			continue
		}
		found++
		mu.Lock()
		clear(asked)
		mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := call.do(ctx)
		if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "no end") {
			t.Errorf("%s: %s: %v; want Unavailable that says so", call, fault.KindOf(err), err)
		}
		mu.Lock()
		for what, n := range asked {
			if n > 20 {
				t.Errorf("%s: asked %s %d times", call, what, n)
			}
		}
		mu.Unlock()
	}
	if found != len(lists) {
		t.Errorf("%d of %d lists were tried", found, len(lists))
	}
}
