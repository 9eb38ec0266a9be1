package sanity

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// client is what both versions can be asked, in words of neither. Its methods
// make one call each and judge nothing.
type client interface {
	info(ctx context.Context) (info, error)
	create(ctx context.Context, request bucketRequest) (bucket, error)
	delete(ctx context.Context, b bucket) error
	grant(ctx context.Context, request accessRequest) (access, error)
	revoke(ctx context.Context, a access) error

	// incomplete are requests with a required field left out: those of Create
	// and Grant, which make something, and those of Delete and Revoke.
	incomplete(b bucket, a accessRequest) (making, unmaking []attempt)
	// unknownValues are requests with an enum's value that no version knows.
	unknownValues(bucketName string, a accessRequest) []attempt
	// overlong are requests with a value beyond all limits; creates are those
	// of DriverCreateBucket.
	overlong(bucketName string, b bucket, a accessRequest) (creates, others []attempt)
	// foreign are requests with ids that no driver has given.
	foreign(a accessRequest) []attempt
	// serviceAccount asks for access without a key.
	serviceAccount(a accessRequest) accessRequest
}

// attempt is a call that is made to be refused.
type attempt struct {
	what string
	call func(context.Context) error
}

// info is who the driver says it is.
type info struct {
	name      string
	protocols []protocol // v1alpha2
}

// protocol is v1alpha2's number of an object protocol.
type protocol int32

// bucketRequest asks for a bucket.
type bucketRequest struct {
	name       string
	protocols  []protocol // v1alpha2
	parameters map[string]string
}

// bucket is what was answered to a bucketRequest.
type bucket struct {
	bucketRequest
	id string
	// served are the protocols that the answer has an info for; v1alpha2.
	served []protocol
}

// mode is what an access may do; v1alpha2 has a field for it.
type mode int32

const (
	readWrite mode = 1
	readOnly  mode = 2
	writeOnly mode = 3
)

// accessedBucket is one bucket of an access.
type accessedBucket struct {
	bucket bucket
	mode   mode
}

// accessRequest asks for access.
type accessRequest struct {
	name       string
	buckets    []accessedBucket // exactly one in v1alpha1
	protocol   protocol         // v1alpha2
	auth       int32            // 1 is a key and 2 a service account, in both versions
	account    string           // the service account's name; v1alpha2
	parameters map[string]string
	split      bool // the modes stand in three categories, as in v1alpha2's later generations
}

// access is what was answered to an accessRequest.
type access struct {
	accessRequest
	id string
	// key is the S3 key, or what another protocol has in its place.
	key credentials
	// at is where each bucket is reached, by its id.
	at map[string]location
	// faults are what is wrong with the answer's credentials and its bucket
	// infos, by the rules of the version.
	credentialFaults, infoFaults []error
}

// credentials are what an application signs with.
type credentials struct {
	s3         bool
	id, secret string
}

// location is where an application finds a bucket.
type location struct {
	endpoint, region, bucket string
	virtual                  bool
}

const keyAuth, serviceAccountAuth int32 = 1, 2

// unknownValue is no value of any enum.
const unknownValue = 99

// codeOf is the code that a call was answered with; a call that was not
// answered has none of the driver's and counts as DEADLINE_EXCEEDED.
func codeOf(err error) codes.Code {
	if st, ok := status.FromError(err); ok {
		return st.Code()
	}
	return codes.DeadlineExceeded
}
