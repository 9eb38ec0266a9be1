package sanity

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"
)

type v1alpha1Client struct {
	identity    cosiproto.IdentityClient
	provisioner cosiproto.ProvisionerClient
}

func newV1Alpha1(conn *grpc.ClientConn) *v1alpha1Client {
	return &v1alpha1Client{cosiproto.NewIdentityClient(conn), cosiproto.NewProvisionerClient(conn)}
}

var _ client = (*v1alpha1Client)(nil)

func (c *v1alpha1Client) info(ctx context.Context) (info, error) {
	resp, err := c.identity.DriverGetInfo(ctx, &cosiproto.DriverGetInfoRequest{})
	return info{name: resp.GetName()}, err
}

func (c *v1alpha1Client) create(ctx context.Context, request bucketRequest) (bucket, error) {
	resp, err := c.provisioner.DriverCreateBucket(ctx, &cosiproto.DriverCreateBucketRequest{Name: request.name, Parameters: request.parameters})
	return bucket{bucketRequest: request, id: resp.GetBucketId()}, err
}

func (c *v1alpha1Client) delete(ctx context.Context, b bucket) error {
	_, err := c.provisioner.DriverDeleteBucket(ctx, deleteRequest(b.id, b.parameters))
	return err
}

// deleteRequest is the request of the v0.2.2 sidecar, which sends the bucket's
// parameters in a field that the stubs of v0.1.0 do not know: delete_context,
// a map with the number 2.
func deleteRequest(id string, parameters map[string]string) *cosiproto.DriverDeleteBucketRequest {
	req := &cosiproto.DriverDeleteBucketRequest{BucketId: id}
	var raw []byte
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		var entry []byte
		entry = protowire.AppendTag(entry, 1, protowire.BytesType)
		entry = protowire.AppendString(entry, key)
		entry = protowire.AppendTag(entry, 2, protowire.BytesType)
		entry = protowire.AppendString(entry, parameters[key])
		raw = protowire.AppendTag(raw, 2, protowire.BytesType)
		raw = protowire.AppendBytes(raw, entry)
	}
	req.ProtoReflect().SetUnknown(raw)
	return req
}

func (c *v1alpha1Client) grantRequest(request accessRequest) *cosiproto.DriverGrantBucketAccessRequest {
	return &cosiproto.DriverGrantBucketAccessRequest{
		BucketId: request.buckets[0].bucket.id, Name: request.name,
		AuthenticationType: cosiproto.AuthenticationType(request.auth), Parameters: request.parameters,
	}
}

func (c *v1alpha1Client) grant(ctx context.Context, request accessRequest) (access, error) {
	resp, err := c.provisioner.DriverGrantBucketAccess(ctx, c.grantRequest(request))
	if err != nil {
		return access{}, err
	}
	a := access{accessRequest: request, id: resp.GetAccountId()}
	a.credentialFaults = a.takeV1Alpha1(resp.GetCredentials())
	return a, nil
}

// What the v0.2.2 sidecar looks for in the credentials
// (client/apis/objectstorage/consts/consts.go).
var (
	s3Keys    = []string{"accessKeyID", "accessSecretKey", "endpoint", "region"}
	azureKeys = []string{"accessToken", "expiryTs"}
)

const azureTime = "2006-01-02 15:04:05.999999999 -0700 MST"

// takeV1Alpha1 reads credentials as the sidecar does and tells what it would
// stumble over.
func (a *access) takeV1Alpha1(credentialsByProtocol map[string]*cosiproto.CredentialDetails) []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if n := len(credentialsByProtocol); n != 1 {
		fault("credentials has %d entries and the sidecar takes exactly one", n)
	}
	wanted := s3Keys
	details, isS3 := credentialsByProtocol["s3"]
	if !isS3 {
		var isAzure bool
		if details, isAzure = credentialsByProtocol["azure"]; !isAzure {
			fault("credentials is for %q, and the sidecar knows s3 and azure", slices.Sorted(maps.Keys(credentialsByProtocol)))
			return faults
		}
		wanted = azureKeys
	}
	secrets := details.GetSecrets()
	for _, key := range wanted {
		if secrets[key] == "" {
			fault("credentials has no %s: the sidecar writes an empty text into the Secret", key)
		}
	}
	if expiry := secrets["expiryTs"]; !isS3 && expiry != "" {
		if _, err := time.Parse(azureTime, expiry); err != nil {
			fault("expiryTs is not of the form %q, and the sidecar makes the zero time of it", azureTime)
		}
	}
	if isS3 {
		a.key = credentials{s3: true, id: secrets["accessKeyID"], secret: secrets["accessSecretKey"]}
		b := a.buckets[0].bucket
		a.at = map[string]location{b.id: {endpoint: secrets["endpoint"], region: secrets["region"], bucket: b.name}}
	} else {
		a.key = credentials{secret: secrets["accessToken"]}
	}
	return faults
}

func (c *v1alpha1Client) revoke(ctx context.Context, a access) error {
	_, err := c.provisioner.DriverRevokeBucketAccess(ctx, &cosiproto.DriverRevokeBucketAccessRequest{BucketId: a.buckets[0].bucket.id, AccountId: a.id})
	return err
}

func (c *v1alpha1Client) tryCreate(what string, req *cosiproto.DriverCreateBucketRequest) attempt {
	return attempt{"DriverCreateBucket " + what, func(ctx context.Context) error {
		_, err := c.provisioner.DriverCreateBucket(ctx, req)
		return err
	}}
}

func (c *v1alpha1Client) tryDelete(what, id string) attempt {
	return attempt{"DriverDeleteBucket " + what, func(ctx context.Context) error {
		_, err := c.provisioner.DriverDeleteBucket(ctx, &cosiproto.DriverDeleteBucketRequest{BucketId: id})
		return err
	}}
}

func (c *v1alpha1Client) tryGrant(what string, valid accessRequest, spoil func(*cosiproto.DriverGrantBucketAccessRequest)) attempt {
	return attempt{"DriverGrantBucketAccess " + what, func(ctx context.Context) error {
		req := proto.CloneOf(c.grantRequest(valid))
		spoil(req)
		_, err := c.provisioner.DriverGrantBucketAccess(ctx, req)
		return err
	}}
}

func (c *v1alpha1Client) tryRevoke(what, bucketID, accountID string) attempt {
	return attempt{"DriverRevokeBucketAccess " + what, func(ctx context.Context) error {
		_, err := c.provisioner.DriverRevokeBucketAccess(ctx, &cosiproto.DriverRevokeBucketAccessRequest{BucketId: bucketID, AccountId: accountID})
		return err
	}}
}

func (c *v1alpha1Client) incomplete(b bucket, a accessRequest) (making, unmaking []attempt) {
	type grant = cosiproto.DriverGrantBucketAccessRequest
	making = []attempt{
		c.tryCreate("without a name", &cosiproto.DriverCreateBucketRequest{Parameters: b.parameters}),
		c.tryGrant("without a bucket_id", a, func(r *grant) { r.BucketId = "" }),
		c.tryGrant("without a name", a, func(r *grant) { r.Name = "" }),
		c.tryGrant("without an authentication_type", a, func(r *grant) { r.AuthenticationType = 0 }),
	}
	return making, []attempt{
		c.tryDelete("without a bucket_id", ""),
		c.tryRevoke("without an account_id", b.id, ""),
		c.tryRevoke("without ids", "", ""),
	}
}

func (c *v1alpha1Client) unknownValues(_ string, a accessRequest) []attempt {
	return []attempt{c.tryGrant("with an authentication_type of 99", a, func(r *cosiproto.DriverGrantBucketAccessRequest) { r.AuthenticationType = unknownValue })}
}

func (c *v1alpha1Client) overlong(name string, b bucket, a accessRequest) (creates, others []attempt) {
	type grant = cosiproto.DriverGrantBucketAccessRequest
	creates = []attempt{
		c.tryCreate("with a name of 4096 bytes", &cosiproto.DriverCreateBucketRequest{Name: longName, Parameters: b.parameters}),
		c.tryCreate("with a parameter of 64 KiB", &cosiproto.DriverCreateBucketRequest{Name: name, Parameters: withLong(b.parameters)}),
	}
	return creates, []attempt{
		c.tryDelete("with an id of 4096 bytes", longName),
		c.tryGrant("with a bucket_id of 4096 bytes", a, func(r *grant) { r.BucketId = longName }),
		c.tryGrant("with a name of 4096 bytes", a, func(r *grant) { r.Name = longName }),
		c.tryGrant("with a parameter of 64 KiB", a, func(r *grant) { r.Parameters = withLong(r.GetParameters()) }),
		c.tryRevoke("with an account_id of 4096 bytes", b.id, longName),
	}
}

func (c *v1alpha1Client) foreign(a accessRequest) []attempt {
	var out []attempt
	for _, id := range foreignIDs {
		quoted := fmt.Sprintf("with the id %q", id)
		out = append(out, c.tryDelete(quoted, id), c.tryRevoke(quoted, id, id),
			c.tryGrant(quoted, a, func(r *cosiproto.DriverGrantBucketAccessRequest) { r.BucketId = id }))
	}
	return out
}

func (c *v1alpha1Client) serviceAccount(a accessRequest) accessRequest {
	a.auth = serviceAccountAuth
	return a
}

// longName is beyond every limit of a name or an id.
var longName = strings.Repeat("a", 4096)

// foreignIDs are shaped as other drivers shape theirs, or as nobody would.
var foreignIDs = []string{"no-such", "region/label/false", "a:b:%2Fc", "a.b.c.d", "../../etc", "{}", "日本", "' OR 1=1"} //nolint:gosmopolitan // not an alphabet of ids

func withLong(parameters map[string]string) map[string]string {
	out := maps.Clone(parameters)
	if out == nil {
		out = map[string]string{}
	}
	out["cosi-sanity"] = strings.Repeat("a", 64<<10)
	return out
}
