package sanity

import (
	"context"
	"maps"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// client is what both versions can be asked, in words of neither. Its methods
// judge nothing, and make one call each, or two where a generation of v1alpha2
// creates and grants in two phases.
type client interface {
	info(ctx context.Context) (info, error)
	// newID is what a request to create names the bucket by: its name or, where
	// ids are generated first, the id.
	newID(ctx context.Context, request bucketRequest) (string, error)
	create(ctx context.Context, request bucketRequest) (bucket, error)
	delete(ctx context.Context, b bucket) error
	grant(ctx context.Context, request accessRequest) (access, error)
	revoke(ctx context.Context, a access) error

	// incomplete are requests with a required field left out: those of Create
	// and Grant, which make something, and those of Delete and Revoke. Each has a
	// fresh name, here and below.
	incomplete(b bucket, fresh func() accessRequest) (making, unmaking []attempt)
	// unknownValues are requests with an enum's value that no version knows.
	unknownValues(b []bucketRequest, fresh func() accessRequest) []attempt
	// overlong are requests with a value beyond all limits, long where it is a
	// name or an id; creates are those of DriverCreateBucket.
	overlong(long string, b bucketRequest, fresh func() accessRequest) (creates, others []attempt)
	// foreign are requests with ids that the driver has not given.
	foreign(ids []string, fresh func() accessRequest) []attempt
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
	id         string     // if it was generated before; since C1
	protocols  []protocol // v1alpha2
	parameters map[string]string
}

// bucket is what was answered to a bucketRequest.
type bucket struct {
	bucketRequest
	id       string
	answered bool // with OK, but without an id
	// served are the protocols that the answer has an info for; v1alpha2.
	served []protocol
}

// again is the request that made the bucket, as a sidecar repeats it.
func (b bucket) again() bucketRequest {
	r := b.bucketRequest
	r.id = b.id
	return r
}

// mode is what an access may do; v1alpha2 has a field for it. The numbers are
// those of B2.
type mode int32

const (
	anyMode   mode = 1
	readWrite mode = 2
	readOnly  mode = 3
	writeOnly mode = 4
)

// accessedBucket is one bucket of an access.
type accessedBucket struct {
	bucket bucket
	mode   mode
	// metadata is the mode of an object's metadata and of the bucket's; since B2.
	metadata mode
}

// accessRequest asks for access.
type accessRequest struct {
	name       string
	id         string           // if it was generated before; C2
	buckets    []accessedBucket // exactly one in v1alpha1
	protocol   protocol         // v1alpha2
	auth       int32            // 1 is a key and 2 a service account, in both versions
	account    string           // the service account's name; v1alpha2
	parameters map[string]string
}

// access is what was answered to an accessRequest.
type access struct {
	accessRequest
	id       string
	answered bool // with OK, but without an id
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

func withLong(parameters map[string]string) map[string]string {
	out := maps.Clone(parameters)
	if out == nil {
		out = map[string]string{}
	}
	out["cosi-sanity"] = strings.Repeat("a", 64<<10)
	return out
}

// equalLetters compares names but for case and punctuation.
func equalLetters(a, b string) bool {
	letters := func(s string) string {
		return strings.ToLower(strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) {
				return r
			}
			return -1
		}, s))
	}
	return letters(a) == letters(b)
}
