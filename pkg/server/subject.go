package server

import (
	"crypto/rand"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// subject is what a request is about, as it says itself.
type subject struct{ contract, bucket, access string }

func subjectOf(req any) subject {
	var s subject
	switch r := req.(type) {
	case *cosiproto.DriverCreateBucketRequest:
		return subject{contract: r.GetParameters()["contract"], bucket: r.GetName()}
	case *cosiproto.DriverDeleteBucketRequest:
		s.bucket = r.GetBucketId()
	case *cosiproto.DriverGrantBucketAccessRequest:
		s.bucket, s.access = r.GetBucketId(), r.GetName()
	case *cosiproto.DriverRevokeBucketAccessRequest:
		s.bucket, s.access = r.GetBucketId(), r.GetAccountId()
	case *cosipb.DriverGenerateBucketIdRequest:
		return subject{contract: r.GetParameters()["contract"], bucket: r.GetName()}
	case *cosipb.DriverCreateBucketRequest:
		return subject{contract: r.GetParameters()["contract"], bucket: r.GetName()}
	case *cosipb.DriverGetBucketRequest:
		return subject{contract: r.GetParameters()["contract"], bucket: r.GetBucketId()}
	case *cosipb.DriverDeleteBucketRequest:
		s.bucket = r.GetBucketId()
	case *cosipb.DriverGenerateBucketAccessIdRequest:
		s.access, s.bucket = r.GetAccountName(), first(r.GetBuckets())
	case *cosipb.DriverGrantBucketAccessRequestB2:
		s.access, s.bucket = r.GetAccount(), first(r.GetBuckets())
	case *cosipb.DriverRevokeBucketAccessRequest:
		s.access, s.bucket = r.GetAccountId(), first(r.GetBuckets())
	}
	for _, id := range []string{s.bucket, s.access} { // which have the same form
		if b, err := cosi.ParseBucketID(id); err == nil {
			s.contract = b.Contract
			break
		}
	}
	return s
}

// first returns the first of a request's buckets; the others are under the same
// contract.
func first[B interface{ GetBucketId() string }](buckets []B) string {
	if len(buckets) == 0 {
		return ""
	}
	return buckets[0].GetBucketId()
}

// values are the subject as lines of the log have it.
func (s subject) values() []any {
	var out []any
	for _, v := range s.named() {
		out = append(out, v.name, v.text)
	}
	return out
}

type named struct{ name, text string }

// named are the parts that a request has given, on one line each.
func (s subject) named() []named {
	out := slices.DeleteFunc([]named{{"contract", s.contract}, {"bucket", s.bucket}, {"access", s.access}}, func(n named) bool { return n.text == "" })
	for i := range out {
		out[i].text = fault.Said(out[i].text)
	}
	return out
}

// attributes are the same for a trace.
func (s subject) attributes() []attribute.KeyValue {
	var out []attribute.KeyValue
	for _, v := range s.named() {
		out = append(out, attribute.String("cosi."+v.name, v.text))
	}
	return out
}

// newRequestID names one call in the log.
func newRequestID() string { return strings.ToLower(rand.Text()[:10]) }
