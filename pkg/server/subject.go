package server

import (
	"crypto/rand"
	"strings"

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
	case *cosipb.DriverCreateBucketRequest:
		return subject{contract: r.GetParameters()["contract"], bucket: r.GetName()}
	case *cosipb.DriverGetExistingBucketRequest:
		return subject{contract: r.GetParameters()["contract"], bucket: r.GetExistingBucketId()}
	case *cosipb.DriverDeleteBucketRequest:
		s.bucket = r.GetBucketId()
	case *cosipb.DriverGrantBucketAccessRequest:
		s.access = r.GetAccountName()
		if len(r.GetBuckets()) > 0 { // the others are under the same contract
			s.bucket = r.GetBuckets()[0].GetBucketId()
		}
	case *cosipb.DriverRevokeBucketAccessRequest:
		s.access = r.GetAccountId()
		if len(r.GetBuckets()) > 0 {
			s.bucket = r.GetBuckets()[0].GetBucketId()
		}
	}
	for _, id := range []string{s.bucket, s.access} { // which have the same form
		if b, err := cosi.ParseBucketID(id); err == nil {
			s.contract = b.Contract
			break
		}
	}
	return s
}

// values are the subject as lines of the log have it.
func (s subject) values() []any {
	var out []any
	for _, v := range []struct{ name, text string }{{"contract", s.contract}, {"bucket", s.bucket}, {"access", s.access}} {
		if v.text != "" {
			out = append(out, v.name, fault.Said(v.text))
		}
	}
	return out
}

// newRequestID names one call in the log.
func newRequestID() string { return strings.ToLower(rand.Text()[:10]) }
