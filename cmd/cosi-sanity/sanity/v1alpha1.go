package sanity

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/internal/wire"
	pb "github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/internal/wire/v1alpha1"
)

type v1alpha1Client struct{ conn *grpc.ClientConn }

var _ client = v1alpha1Client{}

// invoke makes a call by a method's name.
func invoke[Resp any](ctx context.Context, conn *grpc.ClientConn, version, method string, req proto.Message) (*Resp, error) {
	resp := new(Resp)
	err := conn.Invoke(ctx, wire.Method(version, method), req, resp)
	return resp, err
}

func (c v1alpha1Client) info(ctx context.Context) (info, error) {
	resp, err := invoke[pb.DriverGetInfoResponse](ctx, c.conn, wire.V1Alpha1, "DriverGetInfo", &pb.DriverGetInfoRequest{})
	return info{name: resp.GetName()}, err
}

// newID has nothing to do: the name is what is asked with.
func (c v1alpha1Client) newID(_ context.Context, r bucketRequest) (string, error) { return r.name, nil }

func (c v1alpha1Client) create(ctx context.Context, request bucketRequest) (bucket, error) {
	resp, err := invoke[pb.DriverCreateBucketResponse](ctx, c.conn, wire.V1Alpha1, "DriverCreateBucket",
		&pb.DriverCreateBucketRequest{Name: request.name, Parameters: request.parameters})
	return bucket{bucketRequest: request, id: resp.GetBucketId()}, err
}

func (c v1alpha1Client) delete(ctx context.Context, b bucket) error {
	_, err := invoke[pb.DriverDeleteBucketResponse](ctx, c.conn, wire.V1Alpha1, "DriverDeleteBucket",
		&pb.DriverDeleteBucketRequest{BucketId: b.id, DeleteContext: b.parameters})
	return err
}

func (c v1alpha1Client) grantRequest(request accessRequest) *pb.DriverGrantBucketAccessRequest {
	return &pb.DriverGrantBucketAccessRequest{
		BucketId: request.buckets[0].bucket.id, Name: request.name,
		AuthenticationType: pb.AuthenticationType(request.auth), Parameters: request.parameters,
	}
}

func (c v1alpha1Client) grant(ctx context.Context, request accessRequest) (access, error) {
	resp, err := invoke[pb.DriverGrantBucketAccessResponse](ctx, c.conn, wire.V1Alpha1, "DriverGrantBucketAccess", c.grantRequest(request))
	if err != nil {
		return access{}, err
	}
	a := access{accessRequest: request, id: resp.GetAccountId()}
	a.credentialFaults = a.takeV1Alpha1(resp.GetCredentials())
	return a, nil
}

// What the v0.2.2 sidecar looks for in the credentials
// (client/apis/objectstorage/consts/consts.go). An empty region is a check of its
// own: some services have none.
var (
	s3Keys    = []string{"accessKeyID", "accessSecretKey", "endpoint"}
	azureKeys = []string{"accessToken"}
)

const azureTime = "2006-01-02 15:04:05.999999999 -0700 MST"

// takeV1Alpha1 reads credentials as the sidecar does and tells what it would
// stumble over.
func (a *access) takeV1Alpha1(credentialsByProtocol map[string]*pb.CredentialDetails) []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if n := len(credentialsByProtocol); n != 1 {
		fault("credentials has %d entries and the sidecar takes exactly one", n)
	}
	s3, isS3 := credentialsByProtocol["s3"]
	azure, isAzure := credentialsByProtocol["azure"]
	if !isS3 && !isAzure {
		fault("credentials is for %q, and the sidecar knows s3 and azure", slices.Sorted(maps.Keys(credentialsByProtocol)))
		return faults
	}
	details, wanted := s3.GetSecrets(), s3Keys
	if !isS3 {
		details, wanted = azure.GetSecrets(), azureKeys
	}
	if a.auth == serviceAccountAuth { // without a key
		wanted = nil
	}
	for _, key := range wanted {
		if details[key] == "" {
			fault("credentials has no %s: the sidecar writes an empty text into the Secret%s", key, likeKey(key, details))
		}
	}
	if expiry := details["expiryTs"]; !isS3 && a.auth != serviceAccountAuth {
		if _, err := time.Parse(azureTime, expiry); err != nil {
			fault("expiryTs is not of the form %q: the sidecar makes the zero time of it", azureTime)
		}
	}
	if isS3 {
		a.key = credentials{s3: true, id: details["accessKeyID"], secret: details["accessSecretKey"]}
		b := a.buckets[0].bucket
		a.at = map[string]location{b.id: {endpoint: details["endpoint"], region: details["region"], bucket: b.name}}
	} else {
		a.key = credentials{secret: details["accessToken"]}
	}
	return faults
}

// likeKey names a key that was perhaps meant.
func likeKey(key string, given map[string]string) string {
	for _, other := range slices.Sorted(maps.Keys(given)) {
		if equalLetters(other, key) {
			return fmt.Sprintf(" (there is %s, which it does not read)", other)
		}
	}
	return ""
}

func (c v1alpha1Client) revoke(ctx context.Context, a access) error {
	_, err := invoke[pb.DriverRevokeBucketAccessResponse](ctx, c.conn, wire.V1Alpha1, "DriverRevokeBucketAccess",
		&pb.DriverRevokeBucketAccessRequest{BucketId: a.buckets[0].bucket.id, AccountId: a.id})
	return err
}

func (c v1alpha1Client) tryCreate(what string, req *pb.DriverCreateBucketRequest) attempt {
	return attempt{"DriverCreateBucket " + what, func(ctx context.Context) error {
		_, err := invoke[pb.DriverCreateBucketResponse](ctx, c.conn, wire.V1Alpha1, "DriverCreateBucket", req)
		return err
	}}
}

func (c v1alpha1Client) tryDelete(what, id string) attempt {
	return attempt{"DriverDeleteBucket " + what, func(ctx context.Context) error { return c.delete(ctx, bucket{id: id}) }}
}

// tryGrant spoils a valid request, which has a name of its own.
func (c v1alpha1Client) tryGrant(what string, valid accessRequest, spoil func(*pb.DriverGrantBucketAccessRequest)) attempt {
	return attempt{"DriverGrantBucketAccess " + what, func(ctx context.Context) error {
		req := c.grantRequest(valid)
		spoil(req)
		_, err := invoke[pb.DriverGrantBucketAccessResponse](ctx, c.conn, wire.V1Alpha1, "DriverGrantBucketAccess", req)
		return err
	}}
}

func (c v1alpha1Client) tryRevoke(what, bucketID, accountID string) attempt {
	return attempt{"DriverRevokeBucketAccess " + what, func(ctx context.Context) error {
		return c.revoke(ctx, access{id: accountID, accessRequest: accessRequest{buckets: []accessedBucket{{bucket: bucket{id: bucketID}}}}})
	}}
}

func (c v1alpha1Client) incomplete(b bucket, fresh func() accessRequest) (making, unmaking []attempt) {
	type grant = pb.DriverGrantBucketAccessRequest
	making = []attempt{
		c.tryCreate("without a name", &pb.DriverCreateBucketRequest{Parameters: b.parameters}),
		c.tryGrant("without a bucket_id", fresh(), func(r *grant) { r.BucketId = "" }),
		c.tryGrant("without a name", fresh(), func(r *grant) { r.Name = "" }),
		c.tryGrant("without an authentication_type", fresh(), func(r *grant) { r.AuthenticationType = 0 }),
	}
	return making, []attempt{
		c.tryDelete("without a bucket_id", ""),
		c.tryRevoke("without an account_id", b.id, ""),
		c.tryRevoke("without ids", "", ""),
	}
}

func (c v1alpha1Client) unknownValues(_ []bucketRequest, fresh func() accessRequest) []attempt {
	return []attempt{c.tryGrant("with an authentication_type of 99", fresh(), func(r *pb.DriverGrantBucketAccessRequest) { r.AuthenticationType = unknownValue })}
}

func (c v1alpha1Client) overlong(long string, b bucketRequest, fresh func() accessRequest) (creates, others []attempt) {
	type grant = pb.DriverGrantBucketAccessRequest
	creates = []attempt{
		c.tryCreate("with a name of 4096 bytes", &pb.DriverCreateBucketRequest{Name: long, Parameters: b.parameters}),
		c.tryCreate("with a parameter of 64 KiB", &pb.DriverCreateBucketRequest{Name: b.name, Parameters: withLong(b.parameters)}),
	}
	id := fresh().buckets[0].bucket.id
	return creates, []attempt{
		c.tryDelete("with an id of 4096 bytes", long),
		c.tryGrant("with a bucket_id of 4096 bytes", fresh(), func(r *grant) { r.BucketId = long }),
		c.tryGrant("with a name of 4096 bytes", fresh(), func(r *grant) { r.Name = long }),
		c.tryGrant("with a parameter of 64 KiB", fresh(), func(r *grant) { r.Parameters = withLong(r.GetParameters()) }),
		c.tryRevoke("with an account_id of 4096 bytes", id, long),
	}
}

func (c v1alpha1Client) foreign(ids []string, fresh func() accessRequest) []attempt {
	var out []attempt
	for _, id := range ids {
		quoted := fmt.Sprintf("with the id %q", id)
		out = append(out, c.tryDelete(quoted, id), c.tryRevoke(quoted, id, id),
			c.tryGrant(quoted, fresh(), func(r *pb.DriverGrantBucketAccessRequest) { r.BucketId = id }))
	}
	return out
}

func (c v1alpha1Client) serviceAccount(a accessRequest) accessRequest {
	a.auth = serviceAccountAuth
	return a
}
