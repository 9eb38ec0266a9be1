package sanity

import (
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	pb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
)

// What the interceptors have to know of a message is read here, for both
// versions, so that requests which are spoilt on purpose are seen as well.

// madeBucket returns the bucket that an answered call has made.
func madeBucket(req, reply any) (bucket, bool) {
	switch req := req.(type) {
	case *cosiproto.DriverCreateBucketRequest:
		return bucket{bucketRequest{name: req.GetName(), parameters: req.GetParameters()}, reply.(*cosiproto.DriverCreateBucketResponse).GetBucketId(), nil}, true
	case *pb.DriverCreateBucketRequest:
		return bucket{bucketRequest{name: req.GetName(), parameters: req.GetParameters()}, reply.(*pb.DriverCreateBucketResponse).GetBucketId(), nil}, true
	}
	return bucket{}, false
}

// madeAccess returns the access that an answered call has made.
func madeAccess(req, reply any) (accessKey, access, bool) {
	switch req := req.(type) {
	case *cosiproto.DriverGrantBucketAccessRequest:
		id := reply.(*cosiproto.DriverGrantBucketAccessResponse).GetAccountId()
		return accessKey{id, req.GetBucketId()}, access{id: id, accessRequest: accessRequest{
			name: req.GetName(), buckets: []accessedBucket{{bucket: bucket{id: req.GetBucketId()}}},
		}}, true
	case *pb.DriverGrantBucketAccessRequest:
		a := access{accessRequest: accessRequest{
			name: req.GetAccountName(), protocol: protocol(req.GetProtocol().GetType()), auth: int32(req.GetAuthenticationType().GetType()),
			account: req.GetServiceAccountName(), parameters: req.GetParameters(),
		}, id: reply.(*pb.DriverGrantBucketAccessResponse).GetAccountId()}
		for _, b := range req.GetBuckets() {
			a.buckets = append(a.buckets, accessedBucket{bucket: bucket{id: b.GetBucketId()}})
		}
		return accessKey{a.id, ""}, a, true
	}
	return accessKey{}, access{}, false
}

// makes reports whether a request makes something.
func makes(req any) bool {
	switch req.(type) {
	case *cosiproto.DriverCreateBucketRequest, *cosiproto.DriverGrantBucketAccessRequest, *pb.DriverCreateBucketRequest, *pb.DriverGrantBucketAccessRequest:
		return true
	}
	return false
}

// deletedBucket is the id that a request deletes.
func deletedBucket(req any) (string, bool) {
	switch req := req.(type) {
	case *cosiproto.DriverDeleteBucketRequest:
		return req.GetBucketId(), true
	case *pb.DriverDeleteBucketRequest:
		return req.GetBucketId(), true
	}
	return "", false
}

// revokedAccess is what a request revokes. In v1alpha1 that is an account's
// access to one bucket, in v1alpha2 to all of its own.
func revokedAccess(req any) (accessKey, bool) {
	switch req := req.(type) {
	case *cosiproto.DriverRevokeBucketAccessRequest:
		return accessKey{req.GetAccountId(), req.GetBucketId()}, true
	case *pb.DriverRevokeBucketAccessRequest:
		return accessKey{req.GetAccountId(), ""}, true
	}
	return accessKey{}, false
}

// bucketsOf is how many buckets a grant names.
func bucketsOf(req any) int {
	if req, ok := req.(*pb.DriverGrantBucketAccessRequest); ok {
		return len(req.GetBuckets())
	}
	return 1
}

// secretsOf are the secrets of an answer. A short one is left out: it would be
// found in any text.
func secretsOf(reply any) []string {
	var all []string
	switch reply := reply.(type) {
	case *cosiproto.DriverGrantBucketAccessResponse:
		for _, details := range reply.GetCredentials() {
			all = append(all, details.GetSecrets()["accessSecretKey"], details.GetSecrets()["accessToken"])
		}
	case *pb.DriverGrantBucketAccessResponse:
		c := reply.GetCredentials()
		all = append(all, c.GetS3().GetAccessSecretKey(), c.GetAzure().GetAccessToken(), c.GetGcs().GetAccessSecret())
	}
	const shortest = 8
	var out []string
	for _, secret := range all {
		if len(secret) >= shortest {
			out = append(out, secret)
		}
	}
	return out
}
