package memory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// bucket is a bucket of the S3 server, which has what the driver asks for.
type bucket struct {
	contract, region string
	documents        map[string]string // by subresource
	objects          map[string]string // by key
	uploads          int
	bounds           contract.Bounds
}

// use is what the bucket holds.
func (b *bucket) use(name string) contract.BucketUse {
	bytes, objects := int64(0), int64(len(b.objects))
	for _, content := range b.objects {
		bytes += int64(len(content))
	}
	return contract.BucketUse{Bucket: name, Bytes: &bytes, Objects: &objects, Bounds: b.bounds}
}

// full reports whether an object is too much in place of what is there of it.
func (b *bucket) full(object, content string) bool {
	have, there := b.objects[object]
	use := b.use("")
	more := int64(1)
	if there {
		more = 0
	}
	return b.bounds.MaxObjects > 0 && more > 0 && *use.Objects+more > b.bounds.MaxObjects ||
		b.bounds.MaxBytes > 0 && *use.Bytes+int64(len(content)-len(have)) > b.bounds.MaxBytes
}

// absent are S3's codes for a document that a bucket does not have.
var absent = map[string]string{
	"tagging": "NoSuchTagSet", "policy": "NoSuchBucketPolicy", "lifecycle": "NoSuchLifecycleConfiguration", "cors": "NoSuchCORSConfiguration",
}

// initial are the documents that every bucket has.
var initial = map[string]string{
	"versioning": "<VersioningConfiguration/>",
	"acl": `<AccessControlPolicy><Owner><ID>owner</ID></Owner><AccessControlList>` +
		`<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser"><ID>owner</ID></Grantee><Permission>FULL_CONTROL</Permission></Grant>` +
		`</AccessControlList></AccessControlPolicy>`,
}

// Serve makes the S3 server answer at an address, beside what Transport carries.
func (s *Service) Serve() *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := s.read(r).answer()
		maps.Copy(w.Header(), answer.Header)
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
	}))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.url = server.URL
	return server
}

// Transport carries S3 requests over the line, without a network.
func (l *Line) Transport() http.RoundTripper { return carrier{l} }

type carrier struct{ *Line }

// RoundTrip implements http.RoundTripper.
func (c carrier) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	e := c.read(r) // the caller of a request need not be there when it is carried out
	err = c.Step(r.Context(), nameOf(r), func() error {
		answer = e.answer()
		return nil
	})
	if fault.Is(err, fault.Unavailable) { // as a network says it
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// nameOf is a request as a step: "PUT ?policy".
func nameOf(r *http.Request) string {
	for _, sub := range slices.Sorted(maps.Keys(r.URL.Query())) {
		if sub != "x-id" && r.URL.Query().Get(sub) == "" {
			return r.Method + " ?" + sub
		}
	}
	return r.Method
}

// Do is what an application does with a key: nil if the server lets it.
func (s *Service) Do(ctx context.Context, accessKeyID, method, bucket, object string) error {
	r, err := http.NewRequestWithContext(ctx, method, s.url+"/"+bucket+"/"+object, strings.NewReader(""))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+accessKeyID+"/")
	if answer := s.read(r).answer(); answer.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("%s %s/%s: %s", method, bucket, object, text)
	}
	return nil
}

// exchange is one request at the server.
type exchange struct {
	s            *Service
	method       string
	name, object string // the bucket, and the object in it
	query        url.Values
	header       http.Header
	body         []byte
}

func (s *Service) read(r *http.Request) *exchange {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	name, object, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return &exchange{s: s, method: r.Method, name: name, object: object, query: r.URL.Query(), header: r.Header, body: body}
}

func (e *exchange) answer() *http.Response {
	e.s.mu.Lock()
	defer e.s.mu.Unlock()
	w := httptest.NewRecorder()
	e.serve(w)
	return w.Result()
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
}

// serve judges who asks, and then what.
func (e *exchange) serve(w http.ResponseWriter) {
	_, id, _ := strings.Cut(e.header.Get("Authorization"), "Credential=")
	id, _, _ = strings.Cut(id, "/")
	k := e.s.keys[id]
	if k == nil || k.stopped {
		fail(w, http.StatusForbidden, "InvalidAccessKeyId")
		return
	}
	if e.s.contracts[k.contract].Suspend {
		fail(w, http.StatusForbidden, "UserSuspended")
		return
	}
	b := e.s.buckets[e.name]
	switch {
	case k.acts != nil && !e.allowed(k.acts):
		fail(w, http.StatusForbidden, "AccessDenied")
	case b != nil && b.contract != k.contract && !e.s.shared:
		if e.method == http.MethodPut && e.object == "" && len(e.query) <= 1 {
			fail(w, http.StatusConflict, "BucketAlreadyExists")
			return
		}
		fail(w, http.StatusForbidden, "AccessDenied")
	case e.name == "":
		e.listBuckets(w, k)
	case b == nil && e.method == http.MethodPut && e.object == "" && e.sub() == "":
		e.create(w, k)
	case b == nil:
		fail(w, http.StatusNotFound, "NoSuchBucket")
	case e.object != "":
		e.onObject(w, b)
	default:
		e.onBucket(w, b)
	}
}

// actions are S3's names for what keys of accesses can do, by method and
// subresource.
var actions = map[string]string{
	"GET list-type": "ListBucket", "GET uploads": "ListBucketMultipartUploads", "GET versions": "ListBucketVersions", "GET location": "GetBucketLocation",
	"object GET": "GetObject", "object HEAD": "GetObject", "object PUT": "PutObject", "object DELETE": "DeleteObject", "object POST uploads": "PutObject",
	"object DELETE uploadId": "AbortMultipartUpload", "object GET uploadId": "ListMultipartUploadParts",
	"object GET tagging": "GetObjectTagging", "object PUT tagging": "PutObjectTagging", "object DELETE tagging": "DeleteObjectTagging",
	"object GET attributes": "GetObjectAttributes", "object GET acl": "GetObjectAcl",
	"GET acl": "GetBucketAcl", "GET policy": "GetBucketPolicy", "GET tagging": "GetBucketTagging",
	"GET cors": "GetBucketCORS", "PUT cors": "PutBucketCORS", "DELETE cors": "PutBucketCORS",
	"GET versioning": "GetBucketVersioning", "PUT versioning": "PutBucketVersioning",
	"GET lifecycle": "GetLifecycleConfiguration", "PUT lifecycle": "PutLifecycleConfiguration", "DELETE lifecycle": "PutLifecycleConfiguration",
}

// action is the S3 action of the request, "" if no key of an access can have it.
func (e *exchange) action() string {
	name := e.method
	if e.object != "" {
		name = "object " + name
	}
	name = actions[strings.TrimSpace(name+" "+e.sub())]
	if name == "" {
		return ""
	}
	if e.object != "" && e.query.Has("versionId") { // of one version: GetObjectTagging is GetObjectVersionTagging
		name = strings.Replace(name, "Object", "ObjectVersion", 1)
	}
	return "s3:" + name
}

// allowed reports whether a key of a scope may make the request.
func (e *exchange) allowed(scope *contract.Scope) bool {
	at := e.object
	if at == "" {
		at = e.query.Get("prefix")
	}
	return slices.ContainsFunc(scope.Buckets, func(b contract.BucketScope) bool {
		return b.Bucket == e.name && strings.HasPrefix(at, b.Prefix) && b.Mode.Allows(e.action(), b.Metadata)
	})
}

// sub is the subresource of the request, "" for none.
func (e *exchange) sub() string {
	for key := range e.query {
		if absent[key] != "" || initial[key] != "" || slices.Contains([]string{"location", "versions", "delete", "uploads", "uploadId", "object-lock", "encryption", "website",
			"requestPayment", "publicAccessBlock", "ownershipControls", "list-type", "attributes"}, key) {
			return key
		}
	}
	return ""
}

func (e *exchange) listBuckets(w io.Writer, k *key) {
	_, _ = io.WriteString(w, "<ListAllMyBucketsResult><Buckets>")
	for _, name := range slices.Sorted(maps.Keys(e.s.buckets)) {
		if b := e.s.buckets[name]; b.contract == k.contract || e.s.shared {
			_, _ = fmt.Fprintf(w, "<Bucket><Name>%s</Name></Bucket>", name)
		}
	}
	_, _ = io.WriteString(w, "</Buckets></ListAllMyBucketsResult>")
}

func (e *exchange) create(w http.ResponseWriter, k *key) {
	most, have := e.s.contracts[k.contract].Quota.MaxBuckets, 0
	for _, b := range e.s.buckets {
		if b.contract == k.contract {
			have++
		}
	}
	if most != nil && int64(have) >= *most {
		fail(w, http.StatusBadRequest, "TooManyBuckets")
		return
	}
	var asked struct {
		LocationConstraint string
		Tags               struct {
			Tag []struct{ Key, Value string }
		}
	}
	_ = xml.Unmarshal(e.body, &asked)
	b := &bucket{contract: k.contract, region: asked.LocationConstraint, documents: maps.Clone(initial), objects: map[string]string{}}
	if b.region == "" {
		b.region = "us-east-1"
	}
	tags := ""
	for _, t := range asked.Tags.Tag {
		tags += fmt.Sprintf("<Tag><Key>%s</Key><Value>%s</Value></Tag>", t.Key, t.Value)
	}
	if tags != "" {
		b.documents["tagging"] = "<Tagging><TagSet>" + tags + "</TagSet></Tagging>"
	}
	e.s.buckets[e.name] = b
	w.WriteHeader(http.StatusOK)
}

func (e *exchange) onBucket(w http.ResponseWriter, b *bucket) {
	sub := e.sub()
	_, document := absent[sub]
	document = document || initial[sub] != ""
	switch {
	case sub == "" && e.method == http.MethodPut:
		fail(w, http.StatusConflict, "BucketAlreadyOwnedByYou")
	case sub == "" && e.method == http.MethodDelete && len(b.objects) > 0:
		fail(w, http.StatusConflict, "BucketNotEmpty")
	case sub == "" && e.method == http.MethodDelete:
		delete(e.s.buckets, e.name)
		w.WriteHeader(http.StatusNoContent)
	case sub == "" && e.method == http.MethodHead:
	case sub == "location":
		_, _ = fmt.Fprintf(w, "<LocationConstraint>%s</LocationConstraint>", b.region)
	case sub == "versions":
		_, _ = io.WriteString(w, "<ListVersionsResult>")
		for _, key := range slices.Sorted(maps.Keys(b.objects)) {
			_, _ = fmt.Fprintf(w, "<Version><Key>%s</Key><VersionId>null</VersionId></Version>", key)
		}
		_, _ = io.WriteString(w, "</ListVersionsResult>")
	case sub == "uploads":
		_, _ = io.WriteString(w, "<ListMultipartUploadsResult></ListMultipartUploadsResult>")
	case sub == "list-type":
		_, _ = io.WriteString(w, "<ListBucketResult></ListBucketResult>")
	case sub == "delete":
		var asked struct {
			Object []struct{ Key string }
		}
		_ = xml.Unmarshal(e.body, &asked)
		for _, o := range asked.Object {
			delete(b.objects, o.Key)
		}
		_, _ = io.WriteString(w, "<DeleteResult></DeleteResult>")
	case !document:
		fail(w, http.StatusNotImplemented, "NotImplemented")
	case e.method == http.MethodPut && sub == "acl":
		e.putACL(b)
	case e.method == http.MethodPut:
		b.documents[sub] = string(e.body)
	case e.method == http.MethodDelete:
		delete(b.documents, sub)
		w.WriteHeader(http.StatusNoContent)
	case b.documents[sub] == "":
		fail(w, http.StatusNotFound, absent[sub])
	default:
		_, _ = io.WriteString(w, b.documents[sub])
	}
}

func (e *exchange) putACL(b *bucket) {
	b.documents["acl"] = initial["acl"]
	if e.header.Get("X-Amz-Acl") == "public-read" {
		b.documents["acl"] = strings.Replace(initial["acl"], "</AccessControlList>",
			`<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group"><URI>http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee><Permission>READ</Permission></Grant></AccessControlList>`, 1)
	}
}

func (e *exchange) onObject(w http.ResponseWriter, b *bucket) {
	content, there := b.objects[e.object]
	tags := e.object + "?tagging"
	switch sub := e.sub(); {
	case sub == "uploads" && e.method == http.MethodPost:
		b.uploads++
		_, _ = fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%d</UploadId></InitiateMultipartUploadResult>", b.uploads)
	case sub == "uploadId" && e.method == http.MethodGet:
		_, _ = io.WriteString(w, "<ListPartsResult></ListPartsResult>")
	case sub == "uploadId":
		w.WriteHeader(http.StatusNoContent)
	case sub == "tagging" && e.method == http.MethodPut:
		b.documents[tags] = string(e.body)
	case sub == "tagging" && e.method == http.MethodDelete:
		delete(b.documents, tags)
		w.WriteHeader(http.StatusNoContent)
	case sub == "tagging":
		_, _ = io.WriteString(w, cmp.Or(b.documents[tags], "<Tagging><TagSet></TagSet></Tagging>"))
	case sub == "acl":
		_, _ = io.WriteString(w, initial["acl"])
	case sub == "attributes":
		_, _ = fmt.Fprintf(w, "<GetObjectAttributesResponse><ObjectSize>%d</ObjectSize></GetObjectAttributesResponse>", len(content))
	case e.method == http.MethodPut:
		if content = string(decoded(e.header, e.body)); b.full(e.object, content) {
			fail(w, http.StatusForbidden, "QuotaExceeded")
			return
		}
		b.objects[e.object] = content
		w.Header().Set("X-Amz-Version-Id", "null") // the only one that there is
	case e.method == http.MethodDelete:
		delete(b.objects, e.object)
		w.WriteHeader(http.StatusNoContent)
	case !there:
		fail(w, http.StatusNotFound, "NoSuchKey")
	default:
		_, _ = io.WriteString(w, content)
	}
}

// decoded takes the SDK's chunks apart.
func decoded(header http.Header, body []byte) []byte {
	if !strings.Contains(header.Get("Content-Encoding"), "aws-chunked") {
		return body
	}
	var out []byte
	for len(body) > 0 {
		var size int
		line, rest, _ := bytes.Cut(body, []byte("\r\n"))
		if _, err := fmt.Sscanf(string(line), "%x", &size); err != nil || size == 0 || size+2 > len(rest) {
			break
		}
		out, body = append(out, rest[:size]...), rest[size+2:]
	}
	return out
}

// Buckets are those that there are, by name, each with its contract.
func (s *Service) Buckets() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for name, b := range s.buckets {
		out[name] = b.contract
	}
	return out
}

// Document is what a bucket has of a subresource; Put writes it, "" takes it away.
func (s *Service) Document(name, sub string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.buckets[name]; b != nil {
		return b.documents[sub]
	}
	return ""
}

// SetDocument writes a subresource of a bucket, or takes it away if text is "".
func (s *Service) SetDocument(name, sub, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.buckets[name]; b != nil {
		b.documents[sub] = text
	}
}

// MakeBucket makes one as the contract's own, past the driver.
func (s *Service) MakeBucket(name, contract, region string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[name] = &bucket{contract: contract, region: region, documents: maps.Clone(initial), objects: map[string]string{}}
}

// PutObject writes an object, past the driver.
func (s *Service) PutObject(bucket, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.buckets[bucket]; b != nil {
		b.objects[key] = key
	}
}

// Bounds are what a bucket may hold.
func (s *Service) Bounds(bucket string) contract.Bounds {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.buckets[bucket]; b != nil {
		return b.bounds
	}
	return contract.Bounds{}
}

// SetBounds changes what a bucket may hold, past the driver.
func (s *Service) SetBounds(bucket string, to contract.Bounds) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.buckets[bucket]; b != nil {
		b.bounds = to
	}
}

// DropBucket takes one away with what it holds.
func (s *Service) DropBucket(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.buckets, name)
}
