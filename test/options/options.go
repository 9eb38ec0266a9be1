// Package options proves every bucket option on every server within reach: it
// is there after the bucket was made, as the server itself tells it; it is
// another after the class was; a change by others is seen and undone; and it is
// gone when the class drops it. A server that lacks an option says so before
// anything is made.
package options

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// Server is an S3 service with a key that makes buckets, as a bucket engine is
// told of it.
type Server struct {
	// Name is one of the servers that an option can be on.
	Name string
	// Config is the engine's; of it are set here what is the same for all.
	bucket.Config
}

func (s *Server) engine() *bucket.Engine {
	c := s.Config
	c.Owner, c.Observe = "options-test", func(string, error) {}
	if c.HTTP == nil {
		c.HTTP = http.DefaultClient
	}
	return bucket.New(c)
}

// get reads a subresource of a bucket past the engine and the SDK.
func (s *Server) get(t *testing.T, bucket, subresource string) string {
	t.Helper()
	if subresource == "quota" { // which is not S3's
		use, err := s.Bounder.BucketUse(t.Context(), s.Contract, bucket)
		must(t, err)
		return fmt.Sprintf("%+v", use.Bounds)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Endpoint.URL+"/"+bucket+"?"+subresource+"=", nil)
	must(t, err)
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // SHA-256 of nothing
	req.Header.Set("X-Amz-Content-Sha256", empty)
	credentials := aws.Credentials{AccessKeyID: s.Key.AccessKeyID, SecretAccessKey: s.Key.SecretAccessKey.Reveal()}
	must(t, v4.NewSigner().SignHTTP(t.Context(), credentials, req, empty, "s3", s.Endpoint.Region, time.Now()))
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(text)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type class map[string]string

// option is a family of parameters: two classes, and what the server tells of
// a bucket of each.
type option struct {
	name        string // as differences name it
	subresource string
	first, then class
	says, next  []string
	// left is what the server says when the class has dropped the option.
	left string
	// stays says that S3 cannot take the option back; left is what remains.
	stays bool
	// on are the servers that have it; the others refuse it.
	on []string
}

// The servers.
const (
	Versitygw = "versitygw"
	Radosgw   = "radosgw"
	fake      = "fake"
)

const allow = `{"Version":"2012-10-17","Statement":[{"Sid":"%s","Effect":"Allow","Principal":"*","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::${bucket}/%s/*"]}]}`

var options = []option{
	{name: "objectOwnership", subresource: "ownershipControls", on: []string{Versitygw, fake},
		first: class{"objectOwnership": "BucketOwnerPreferred"}, says: []string{"<ObjectOwnership>BucketOwnerPreferred<"},
		then: class{"objectOwnership": "BucketOwnerEnforced"}, next: []string{"<ObjectOwnership>BucketOwnerEnforced<"}, left: "OwnershipControlsNotFound"},
	{name: "blockPublicAccess", subresource: "publicAccessBlock", on: []string{Radosgw, fake},
		first: class{"blockPublicAccess": "all"}, says: []string{"<BlockPublicPolicy>true<", "<RestrictPublicBuckets>true<"},
		then: class{"blockPublicAccess": "BlockPublicAcls"}, next: []string{"<BlockPublicAcls>true<", "<BlockPublicPolicy>false<"}},
	{name: "acl", subresource: "acl", on: []string{Versitygw, Radosgw, fake},
		first: class{"acl": "public-read"}, says: []string{"READ<"},
		then: class{"acl": "private"}, next: []string{"FULL_CONTROL"}, left: "FULL_CONTROL"},
	{name: "policy", subresource: "policy", on: []string{Versitygw, Radosgw, fake},
		first: class{"policy": fmt.Sprintf(allow, "a", "${contract}")}, says: []string{":::%s/team/*"},
		then: class{"policy": fmt.Sprintf(allow, "b", "public")}, next: []string{":::%s/public/*"}, left: "NoSuchBucketPolicy"},
	{name: "versioning", subresource: "versioning", on: []string{Versitygw, Radosgw, fake},
		first: class{"versioning": "Enabled"}, says: []string{"<Status>Enabled<"},
		then: class{"versioning": "Suspended"}, next: []string{"<Status>Suspended<"}, left: "<Status>Suspended<", stays: true},
	{name: "objectLock", subresource: "object-lock", on: []string{Versitygw, Radosgw, fake},
		first: class{"objectLock": "GOVERNANCE:30d"}, says: []string{"<Mode>GOVERNANCE<", "<Days>30<"},
		then: class{"objectLock": "COMPLIANCE:2y"}, next: []string{"<Mode>COMPLIANCE<", "<Years>2<"}, left: "<ObjectLockEnabled>Enabled<", stays: true},
	{name: "lifecycle", subresource: "lifecycle", on: []string{Radosgw, fake},
		first: class{"expireAfterDays": "30", "noncurrentExpireAfterDays": "7", "abortUploadsAfterDays": "3"},
		says:  []string{"<Days>30<", "<NoncurrentDays>7<", "<DaysAfterInitiation>3<"},
		then: class{"lifecycle": `{"Rules":[{"ID":"z","Status":"Enabled","Filter":{"Prefix":"logs/"},"Expiration":{"Days":5}},
			{"ID":"a","Status":"Disabled","Prefix":"tmp/","Expiration":{"Days":1}}]}`},
		next: []string{"<Prefix>logs/<", "<Days>5<", "<Status>Disabled<"}, left: "NoSuchLifecycleConfiguration"},
	{name: "cors", subresource: "cors", on: []string{Versitygw, Radosgw, fake},
		first: class{"corsOrigins": "https://b.example.com,https://a.example.com", "corsMethods": "PUT,GET"},
		says:  []string{"<AllowedOrigin>https://a.example.com<", "<AllowedMethod>PUT<"},
		then:  class{"cors": `{"CORSRules":[{"AllowedMethods":["HEAD"],"AllowedOrigins":["https://c.example.com"],"MaxAgeSeconds":60}]}`},
		next:  []string{"<AllowedOrigin>https://c.example.com<", "<MaxAgeSeconds>60<"}, left: "NoSuchCORSConfiguration"},
	{name: "encryption", subresource: "encryption", on: []string{fake},
		first: class{"encryption": "AES256"}, says: []string{"<SSEAlgorithm>AES256<"},
		then: class{"kmsKey": "key-1"}, next: []string{"<SSEAlgorithm>aws:kms<", "<KMSMasterKeyID>key-1<"}, left: "ServerSideEncryptionConfigurationNotFoundError"},
	{name: "website", subresource: "website", on: []string{Versitygw, fake},
		first: class{"websiteIndex": "index.html", "websiteError": "error.html"}, says: []string{"<Suffix>index.html<", "<Key>error.html<"},
		then: class{"websiteIndex": "main.html"}, next: []string{"<Suffix>main.html<"}, left: "NoSuchWebsiteConfiguration"},
	{name: "requestPayer", subresource: "requestPayment", on: []string{Radosgw, fake},
		first: class{"requestPayer": "Requester"}, says: []string{"<Payer>Requester<"},
		then: class{"requestPayer": "BucketOwner"}, next: []string{"<Payer>BucketOwner<"}, left: "<Payer>BucketOwner<"},
	{name: "quota", subresource: "quota", on: []string{Versitygw, Radosgw},
		first: class{"maxBytes": "10Mi", "maxObjects": "100"}, says: []string{"MaxBytes:10485760 ", "MaxObjects:100}"},
		then: class{"maxObjects": "50"}, next: []string{"{MaxBytes:0 MaxObjects:50}"}, left: "{MaxBytes:0 MaxObjects:0}"},
	{name: "tags", subresource: "tagging", on: []string{Versitygw, Radosgw, fake},
		first: class{"tags": "stage=test,team=blue"}, says: []string{"<Key>stage</Key>", "<Value>blue</Value>"},
		then: class{"tags": "stage=live"}, next: []string{"<Value>live</Value>"}, left: cosi.OwnerTag},
}

var bucketNumber atomic.Int32

func newName() string { return fmt.Sprintf("options-%d", bucketNumber.Add(1)) }

func (c class) spec(t *testing.T) params.Bucket {
	t.Helper()
	given := map[string]string{"contract": "team"}
	maps.Copy(given, c)
	spec, err := params.ParseBucket(given)
	must(t, err)
	return spec
}

// Run walks every option at a server that fresh returns, with a user of its
// own: no other test's bucket comes and goes in it.
func Run(t *testing.T, fresh func(*testing.T) *Server) {
	for _, o := range options {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			if s := fresh(t); slices.Contains(o.on, s.Name) {
				o.isKept(t, s)
			} else {
				o.isRefused(t, s)
			}
		})
	}
}

// isKept walks an option through the life of a bucket.
func (o option) isKept(t *testing.T, s *Server) {
	ctx, e, name := t.Context(), s.engine(), newName()
	first, then, none := o.first.spec(t), o.then.spec(t), class{}.spec(t)
	tells := func(when string, want []string) {
		t.Helper()
		have := strings.ReplaceAll(s.get(t, name, o.subresource), "&#34;", `"`)
		for _, text := range want {
			if strings.Contains(text, "%s") {
				text = fmt.Sprintf(text, name)
			}
			if !strings.Contains(have, text) {
				t.Errorf("%s: the server tells\n%s\nwhich has no %s", when, have, text)
			}
		}
	}
	written := func(when string, got []string, err error, want ...string) {
		t.Helper()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: wrote %v, %v; want %v", when, got, err, want)
		}
	}
	must(t, e.Create(ctx, name, first))
	t.Cleanup(func() { _ = e.Delete(context.WithoutCancel(ctx), name) })
	tells("made", o.says)
	differing, err := e.Differences(ctx, name, first)
	written("compared with its own class", differing, err)
	differing, err = e.Differences(ctx, name, then)
	written("compared with another class", differing, err, o.name)
	got, err := e.Restore(ctx, name, first, first)
	written("repeated", got, err)

	got, err = e.Restore(ctx, name, then, first)
	written("another class", got, err, o.name)
	tells("another class", o.next)
	got, err = e.Restore(ctx, name, first, first) // as after a change by others
	written("changed behind the driver's back", got, err, o.name)
	tells("restored", o.says)

	got, err = e.Restore(ctx, name, none, first)
	written("dropped", got, err, o.name)
	tells("dropped", []string{o.left})
	if !o.stays {
		for _, text := range o.says {
			if strings.Contains(text, "%s") {
				text = fmt.Sprintf(text, name)
			}
			if have := s.get(t, name, o.subresource); strings.Contains(have, text) {
				t.Errorf("dropped: the server still tells %s", text)
			}
		}
	}
	got, err = e.Restore(ctx, name, none, none)
	written("repeated without it", got, err)
	if name := newName(); !o.stays { // left half-made by an attempt of the same class
		must(t, e.Create(ctx, name, none))
		must(t, e.Create(ctx, name, first))
		differing, err = e.Differences(ctx, name, first)
		written("finished", differing, err)
		must(t, e.Delete(ctx, name))
	}
}

// isRefused sees that a class with the option is refused, and that nothing is
// made for it once the contract has a bucket that could be asked.
func (o option) isRefused(t *testing.T, s *Server) {
	e, other, name := s.engine(), newName(), newName()
	must(t, e.Create(t.Context(), other, class{}.spec(t)))
	t.Cleanup(func() { _ = e.Delete(context.WithoutCancel(t.Context()), other) })
	for range 2 {
		err := e.Create(t.Context(), name, o.first.spec(t))
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "the storage has no "+o.name) {
			t.Errorf("got %v, want that the storage has no %s", err, o.name)
		}
		if _, err := e.Mark(t.Context(), name); !fault.Is(err, fault.NotFound) {
			t.Errorf("the bucket is there: %v", err)
		}
	}
}
