// Package s3fake is an S3 service that has every option of a bucket, for those
// that no real server within reach of the tests has. It keeps what it is given
// and gives it back, and it can lack options in the two ways in which real
// services do: it says so, or it answers that all is well and keeps nothing.
package s3fake

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Server is a running service.
type Server struct {
	// URL is its address.
	URL string
	// Lacks are the subresources that it answers with 501, such as "lifecycle".
	Lacks map[string]bool

	mu      sync.Mutex
	hidden  map[string]bool // those that it takes and does not show
	buckets map[string]*bucket
	calls   []string
}

type bucket struct {
	location  string
	documents map[string]string // by subresource
}

// absent are the codes with which S3 says that a bucket has no such document
// (Amazon S3 API reference, the Get… operations).
var absent = map[string]string{
	"tagging":           "NoSuchTagSet",
	"policy":            "NoSuchBucketPolicy",
	"lifecycle":         "NoSuchLifecycleConfiguration",
	"cors":              "NoSuchCORSConfiguration",
	"website":           "NoSuchWebsiteConfiguration",
	"publicAccessBlock": "NoSuchPublicAccessBlockConfiguration",
	"ownershipControls": "OwnershipControlsNotFoundError",
	"object-lock":       "ObjectLockConfigurationNotFoundError",
	"encryption":        "ServerSideEncryptionConfigurationNotFoundError",
}

// initial are the documents that every bucket has.
var initial = map[string]string{
	"versioning":     `<VersioningConfiguration/>`,
	"requestPayment": `<RequestPaymentConfiguration><Payer>BucketOwner</Payer></RequestPaymentConfiguration>`,
	"acl":            acl(""),
}

func acl(grants string) string {
	return `<AccessControlPolicy><Owner><ID>owner</ID></Owner><AccessControlList>` +
		`<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser"><ID>owner</ID></Grantee><Permission>FULL_CONTROL</Permission></Grant>` +
		grants + `</AccessControlList></AccessControlPolicy>`
}

const readAll = `<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group"><URI>http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee><Permission>READ</Permission></Grant>`

// New returns a service that answers [Server.RoundTrip] only.
func New() *Server {
	return &Server{URL: "http://s3.fake", Lacks: map[string]bool{}, hidden: map[string]bool{}, buckets: map[string]*bucket{}}
}

// RoundTrip answers a request without a network, as an http.RoundTripper.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

// Hide makes the service take an option and not show it, or show it again.
func (s *Server) Hide(subresource string, hidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden[subresource] = hidden
}

// Start runs a service for the time of a test.
func Start(t testing.TB) *Server {
	s := New()
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	s.URL = web.URL
	return s
}

// Calls are the requests so far, as "PUT bucket?subresource".
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.calls...)
}

// Document is what a bucket has of a subresource, and where it was made for
// "location".
func (s *Server) Document(name, subresource string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[name]
	if b == nil {
		return ""
	}
	if subresource == "location" {
		return b.location
	}
	return b.documents[subresource]
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.Trim(r.URL.Path, "/")
	subresource := ""
	for key := range r.URL.Query() {
		if _, known := absent[key]; known || initial[key] != "" {
			subresource = key
		}
	}
	s.calls = append(s.calls, strings.TrimSuffix(r.Method+" "+name+"?"+subresource, "?"))
	b := s.buckets[name]
	switch {
	case name == "":
		s.list(w)
	case b == nil && r.Method == http.MethodPut && subresource == "":
		s.buckets[name] = made(r, body)
	case b == nil:
		fail(w, http.StatusNotFound, "NoSuchBucket")
	case s.Lacks[subresource]:
		fail(w, http.StatusNotImplemented, "NotImplemented")
	case r.URL.Query().Has("location"):
		_, _ = fmt.Fprintf(w, "<LocationConstraint>%s</LocationConstraint>", b.location)
	case subresource == "" && r.Method == http.MethodPut:
		fail(w, http.StatusConflict, "BucketAlreadyOwnedByYou")
	case subresource == "" && r.Method == http.MethodDelete:
		delete(s.buckets, name)
		w.WriteHeader(http.StatusNoContent)
	case s.hidden[subresource] && r.Method == http.MethodGet && initial[subresource] != "":
		_, _ = io.WriteString(w, initial[subresource])
	case s.hidden[subresource] && r.Method == http.MethodGet:
		fail(w, http.StatusNotFound, absent[subresource])
	case r.Method == http.MethodPut && r.Header.Get("X-Amz-Acl") != "":
		b.documents["acl"] = acl(map[string]string{"public-read": readAll}[r.Header.Get("X-Amz-Acl")])
	case r.Method == http.MethodPut:
		b.documents[subresource] = string(body)
	case r.Method == http.MethodDelete:
		delete(b.documents, subresource)
		w.WriteHeader(http.StatusNoContent)
	case b.documents[subresource] != "":
		_, _ = io.WriteString(w, b.documents[subresource])
	default:
		fail(w, http.StatusNotFound, absent[subresource])
	}
}

func (s *Server) list(w io.Writer) {
	_, _ = io.WriteString(w, "<ListAllMyBucketsResult><Buckets>")
	for name := range s.buckets {
		_, _ = fmt.Fprintf(w, "<Bucket><Name>%s</Name></Bucket>", name)
	}
	_, _ = io.WriteString(w, "</Buckets></ListAllMyBucketsResult>")
}

func made(r *http.Request, body []byte) *bucket {
	var configuration struct {
		LocationConstraint string
		Tags               struct {
			Tag []struct{ Key, Value string }
		}
	}
	_ = xml.Unmarshal(body, &configuration)
	b := &bucket{location: configuration.LocationConstraint, documents: map[string]string{}}
	maps.Copy(b.documents, initial)
	tags := ""
	for _, t := range configuration.Tags.Tag {
		tags += fmt.Sprintf("<Tag><Key>%s</Key><Value>%s</Value></Tag>", t.Key, t.Value)
	}
	b.documents["tagging"] = "<Tagging><TagSet>" + tags + "</TagSet></Tagging>"
	if r.Header.Get("X-Amz-Bucket-Object-Lock-Enabled") == "true" {
		b.documents["object-lock"] = `<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>`
		b.documents["versioning"] = `<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>`
	}
	return b
}

func fail(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<Error><Code>%s</Code></Error>`, code)
}
