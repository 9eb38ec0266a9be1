package sanity

import (
	v1 "github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/internal/wire/v1alpha1"
	v2 "github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/internal/wire/v1alpha2"
)

// What the interceptors have to know of a message is read here, for both
// versions, so that requests which are spoilt on purpose are seen as well.

// madeBucket returns the bucket that an answered call has made.
func madeBucket(req, reply any) (bucket, bool) {
	made := func(name, id string, parameters map[string]string) (bucket, bool) {
		return bucket{bucketRequest: bucketRequest{name: name, parameters: parameters}, id: id}, true
	}
	switch req := req.(type) {
	case *v1.DriverCreateBucketRequest:
		return made(req.GetName(), reply.(*v1.DriverCreateBucketResponse).GetBucketId(), req.GetParameters())
	case *v2.DriverCreateBucketRequest:
		if resp, ok := reply.(*v2.DriverCreateBucketResponse); ok {
			return made(req.GetName(), resp.GetBucketId(), req.GetParameters())
		}
		return made(req.GetName(), req.GetName(), req.GetParameters())
	}
	return bucket{}, false
}

// madeAccess returns the access that an answered call has made.
func madeAccess(req, reply any) (accessKey, access, bool) {
	switch req := req.(type) {
	case *v1.DriverGrantBucketAccessRequest:
		id := reply.(*v1.DriverGrantBucketAccessResponse).GetAccountId()
		return accessKey{id, req.GetBucketId()}, access{id: id, accessRequest: accessRequest{
			name: req.GetName(), buckets: []accessedBucket{{bucket: bucket{id: req.GetBucketId()}}},
		}}, true
	case *v2.DriverGrantBucketAccessRequest:
		a := access{accessRequest: accessRequest{
			name: req.GetAccount(), protocol: protocol(req.GetProtocol().GetType()), auth: int32(req.GetAuthenticationType().GetType()),
			account: req.GetServiceAccountName(), parameters: req.GetParameters(),
		}, id: req.GetAccount()}
		resp, ok := reply.(*v2.DriverGrantBucketAccessResponse)
		if !ok {
			return accessKey{}, access{}, false // only an id was generated
		}
		if id := resp.GetAccountId(); id != "" { // C2 has none
			a.id = id
		}
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
	case *v1.DriverCreateBucketRequest, *v1.DriverGrantBucketAccessRequest, *v2.DriverCreateBucketRequest, *v2.DriverGrantBucketAccessRequest:
		return true
	}
	return false
}

// deletedBucket is the id that a request deletes.
func deletedBucket(req any) (string, bool) {
	switch req := req.(type) {
	case *v1.DriverDeleteBucketRequest:
		return req.GetBucketId(), true
	case *v2.DriverDeleteBucketRequest:
		return req.GetBucketId(), true
	}
	return "", false
}

// revokedAccess is what a request revokes. In v1alpha1 that is an account's
// access to one bucket, in v1alpha2 to all of its own.
func revokedAccess(req any) (accessKey, bool) {
	switch req := req.(type) {
	case *v1.DriverRevokeBucketAccessRequest:
		return accessKey{req.GetAccountId(), req.GetBucketId()}, true
	case *v2.DriverRevokeBucketAccessRequest:
		return accessKey{req.GetAccountId(), ""}, true
	}
	return accessKey{}, false
}

// bucketsOf is how many buckets a grant names.
func bucketsOf(req any) int {
	if req, ok := req.(*v2.DriverGrantBucketAccessRequest); ok {
		return len(req.GetBuckets())
	}
	return 1
}

// secretsOf are the secrets of an answer. A short one is left out: it would be
// found in any text.
func secretsOf(reply any) []string {
	var all []string
	switch reply := reply.(type) {
	case *v1.DriverGrantBucketAccessResponse:
		for _, details := range reply.GetCredentials() {
			all = append(all, details.GetSecrets()["accessSecretKey"], details.GetSecrets()["accessToken"])
		}
	case *v2.DriverGrantBucketAccessResponse:
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

// namedBucket returns the name that a bucket's id was answered for.
func namedBucket(req, reply any) (id, name string) {
	switch req := req.(type) {
	case *v1.DriverCreateBucketRequest:
		return reply.(*v1.DriverCreateBucketResponse).GetBucketId(), req.GetName()
	case *v2.DriverCreateBucketRequest:
		if resp, ok := reply.(*v2.DriverCreateBucketResponse); ok {
			return resp.GetBucketId(), req.GetName()
		}
	case *v2.DriverGenerateBucketIdRequest:
		return reply.(*v2.DriverGenerateBucketIdResponse).GetBucketId(), req.GetName()
	}
	return "", ""
}

// bucketName is the name that a request to create has.
func bucketName(req any) string {
	switch req := req.(type) {
	case *v1.DriverCreateBucketRequest:
		return req.GetName()
	case *v2.DriverCreateBucketRequest:
		return req.GetName()
	}
	return ""
}

// askedAccess is what a grant asks for, without the answer.
func askedAccess(req any) access {
	switch req := req.(type) {
	case *v1.DriverGrantBucketAccessRequest:
		_, a, _ := madeAccess(req, &v1.DriverGrantBucketAccessResponse{})
		return a
	case *v2.DriverGrantBucketAccessRequest:
		_, a, _ := madeAccess(req, &v2.DriverGrantBucketAccessResponse{})
		return a
	}
	return access{}
}
