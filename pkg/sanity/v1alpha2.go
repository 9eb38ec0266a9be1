package sanity

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
)

type v1alpha2Client struct {
	identity    pb.IdentityClient
	provisioner pb.ProvisionerClient
}

func newV1Alpha2(conn *grpc.ClientConn) *v1alpha2Client {
	return &v1alpha2Client{pb.NewIdentityClient(conn), pb.NewProvisionerClient(conn)}
}

var _ client = (*v1alpha2Client)(nil)

func (c *v1alpha2Client) info(ctx context.Context) (info, error) {
	resp, err := c.identity.DriverGetInfo(ctx, &pb.DriverGetInfoRequest{})
	out := info{name: resp.GetName()}
	for _, p := range resp.GetSupportedProtocols() {
		out.protocols = append(out.protocols, protocol(p.GetType()))
	}
	return out, err
}

func protocols(of []protocol) []*pb.ObjectProtocol {
	var out []*pb.ObjectProtocol
	for _, p := range of {
		out = append(out, &pb.ObjectProtocol{Type: pb.ObjectProtocol_Type(p)})
	}
	return out
}

// servedBy are the protocols that an answer has an info for.
func servedBy(i *pb.ObjectProtocolAndBucketInfo) []protocol {
	var out []protocol
	if i.GetS3() != nil {
		out = append(out, protocol(pb.ObjectProtocol_S3))
	}
	if i.GetAzure() != nil {
		out = append(out, protocol(pb.ObjectProtocol_AZURE))
	}
	if i.GetGcs() != nil {
		out = append(out, protocol(pb.ObjectProtocol_GCS))
	}
	return out
}

func (c *v1alpha2Client) create(ctx context.Context, request bucketRequest) (bucket, error) {
	resp, err := c.provisioner.DriverCreateBucket(ctx, &pb.DriverCreateBucketRequest{
		Name: request.name, Protocols: protocols(request.protocols), Parameters: request.parameters,
	})
	return bucket{request, resp.GetBucketId(), servedBy(resp.GetProtocols())}, err
}

// existing asks for a bucket by its id.
func (c *v1alpha2Client) existing(ctx context.Context, id string, request bucketRequest) (bucket, error) {
	resp, err := c.provisioner.DriverGetExistingBucket(ctx, &pb.DriverGetExistingBucketRequest{
		ExistingBucketId: id, Protocols: protocols(request.protocols), Parameters: request.parameters,
	})
	return bucket{request, resp.GetBucketId(), servedBy(resp.GetProtocols())}, err
}

func (c *v1alpha2Client) delete(ctx context.Context, b bucket) error {
	_, err := c.provisioner.DriverDeleteBucket(ctx, &pb.DriverDeleteBucketRequest{BucketId: b.id, Parameters: b.parameters})
	return err
}

func (c *v1alpha2Client) grantRequest(request accessRequest) *pb.DriverGrantBucketAccessRequest {
	req := &pb.DriverGrantBucketAccessRequest{
		AccountName: request.name, Protocol: &pb.ObjectProtocol{Type: pb.ObjectProtocol_Type(request.protocol)},
		AuthenticationType: &pb.AuthenticationType{Type: pb.AuthenticationType_Type(request.auth)},
		ServiceAccountName: request.account, Parameters: request.parameters,
	}
	for _, b := range request.buckets {
		accessed := &pb.DriverGrantBucketAccessRequest_AccessedBucket{
			BucketId: b.bucket.id, AccessMode: &pb.AccessMode{Mode: pb.AccessMode_Mode(b.mode)},
		}
		if request.split {
			accessed.AccessMode.Mode++ // ANY is the first there
			accessed.ProtoReflect().SetUnknown(noMetadataModes())
		}
		req.Buckets = append(req.Buckets, accessed)
	}
	return req
}

// noMetadataModes are the fields by which later generations say ANY of metadata.
func noMetadataModes() []byte {
	wire, err := proto.Marshal(&pb.AccessedBucketB2{
		ObjectMetadataAccessMode: &pb.AccessModeB2{Mode: pb.AccessModeB2_ANY}, BucketMetadataAccessMode: &pb.AccessModeB2{Mode: pb.AccessModeB2_ANY},
	})
	if err != nil {
		panic(err) // a message of constants
	}
	return wire
}

func (c *v1alpha2Client) grant(ctx context.Context, request accessRequest) (access, error) {
	resp, err := c.provisioner.DriverGrantBucketAccess(ctx, c.grantRequest(request))
	if err != nil {
		return access{}, err
	}
	a := access{accessRequest: request, id: resp.GetAccountId()}
	a.credentialFaults = a.takeCredentials(resp.GetCredentials())
	a.infoFaults = a.takeBuckets(resp.GetBuckets())
	return a, nil
}

// takeCredentials wants exactly the requested protocol, and a key if one was
// asked for.
func (a *access) takeCredentials(c *pb.CredentialInfo) []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	present := map[protocol]bool{
		protocol(pb.ObjectProtocol_S3): c.GetS3() != nil, protocol(pb.ObjectProtocol_AZURE): c.GetAzure() != nil, protocol(pb.ObjectProtocol_GCS): c.GetGcs() != nil,
	}
	for _, p := range []protocol{1, 2, 3} {
		switch is := present[p]; {
		case is && p != a.protocol:
			fault("credentials hold %s, and %s was asked for", name(p), name(a.protocol))
		case !is && p == a.protocol:
			fault("credentials hold no %s, which was asked for", name(p))
		}
	}
	if s3 := c.GetS3(); s3 != nil && a.auth == keyAuth {
		if s3.GetAccessKeyId() == "" {
			fault("credentials.s3 has no access_key_id")
		}
		if s3.GetAccessSecretKey() == "" {
			fault("credentials.s3 has no access_secret_key")
		}
	}
	if c.GetAzure() != nil && a.auth == keyAuth && c.GetAzure().GetAccessToken() == "" {
		fault("credentials.azure has no access_token")
	}
	if c.GetGcs() != nil && a.auth == keyAuth && (c.GetGcs().GetAccessId() == "" || c.GetGcs().GetAccessSecret() == "") {
		fault("credentials.gcs has no access_id or no access_secret")
	}
	switch {
	case c.GetS3() != nil:
		a.key = credentials{true, c.GetS3().GetAccessKeyId(), c.GetS3().GetAccessSecretKey()}
	case c.GetAzure() != nil:
		a.key = credentials{secret: c.GetAzure().GetAccessToken()}
	default:
		a.key = credentials{id: c.GetGcs().GetAccessId(), secret: c.GetGcs().GetAccessSecret()}
	}
	return faults
}

// takeBuckets wants one complete info for each requested bucket, and no other.
func (a *access) takeBuckets(infos []*pb.DriverGrantBucketAccessResponse_BucketInfo) []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	a.at = map[string]location{}
	for _, i := range infos {
		if !slices.ContainsFunc(a.buckets, func(b accessedBucket) bool { return b.bucket.id == i.GetBucketId() }) {
			fault("bucket %q was not asked for", i.GetBucketId())
		}
		if _, twice := a.at[i.GetBucketId()]; twice {
			fault("bucket %q is there twice", i.GetBucketId())
		}
		if got := servedBy(i.GetBucketInfo()); !slices.Equal(got, []protocol{a.protocol}) {
			fault("bucket %q has an info for %v, and %s was asked for", i.GetBucketId(), names(got), name(a.protocol))
		}
		s3 := i.GetBucketInfo().GetS3()
		style := s3.GetAddressingStyle().GetStyle()
		a.at[i.GetBucketId()] = location{s3.GetEndpoint(), s3.GetRegion(), s3.GetBucketId(), style == pb.S3AddressingStyle_VIRTUAL}
		for _, field := range []struct {
			name    string
			missing bool
		}{
			{"s3.bucket_id", s3.GetBucketId() == ""}, {"s3.endpoint", s3.GetEndpoint() == ""}, {"s3.region", s3.GetRegion() == ""},
			{"s3.addressing_style", style != pb.S3AddressingStyle_PATH && style != pb.S3AddressingStyle_VIRTUAL},
		} {
			if s3 != nil && field.missing {
				fault("bucket %q has no %s", i.GetBucketId(), field.name)
			}
		}
		if az := i.GetBucketInfo().GetAzure(); az != nil && az.GetStorageAccount() == "" {
			fault("bucket %q has no azure.storage_account", i.GetBucketId())
		}
		if gcs := i.GetBucketInfo().GetGcs(); gcs != nil && (gcs.GetProjectId() == "" || gcs.GetBucketName() == "") {
			fault("bucket %q has no gcs.project_id or no gcs.bucket_name", i.GetBucketId())
		}
	}
	for _, b := range a.buckets {
		if _, ok := a.at[b.bucket.id]; !ok {
			fault("bucket %q was asked for and has no info", b.bucket.id)
		}
	}
	return faults
}

func name(p protocol) string { return pb.ObjectProtocol_Type(p).String() }

func names(of []protocol) []string {
	var out []string
	for _, p := range of {
		out = append(out, name(p))
	}
	return out
}

func (c *v1alpha2Client) revokeRequest(a access) *pb.DriverRevokeBucketAccessRequest {
	req := &pb.DriverRevokeBucketAccessRequest{
		AccountId: a.id, Protocol: &pb.ObjectProtocol{Type: pb.ObjectProtocol_Type(a.protocol)},
		AuthenticationType: &pb.AuthenticationType{Type: pb.AuthenticationType_Type(a.auth)},
		ServiceAccountName: a.account, Parameters: a.parameters,
	}
	for _, b := range a.buckets {
		req.Buckets = append(req.Buckets, &pb.DriverRevokeBucketAccessRequest_AccessedBucket{BucketId: b.bucket.id})
	}
	return req
}

func (c *v1alpha2Client) revoke(ctx context.Context, a access) error {
	_, err := c.provisioner.DriverRevokeBucketAccess(ctx, c.revokeRequest(a))
	return err
}

func (c *v1alpha2Client) tryCreate(what string, req *pb.DriverCreateBucketRequest) attempt {
	return attempt{"DriverCreateBucket " + what, func(ctx context.Context) error {
		_, err := c.provisioner.DriverCreateBucket(ctx, req)
		return err
	}}
}

func (c *v1alpha2Client) tryDelete(what, id string) attempt {
	return attempt{"DriverDeleteBucket " + what, func(ctx context.Context) error {
		_, err := c.provisioner.DriverDeleteBucket(ctx, &pb.DriverDeleteBucketRequest{BucketId: id})
		return err
	}}
}

func (c *v1alpha2Client) tryGrant(what string, valid accessRequest, spoil func(*pb.DriverGrantBucketAccessRequest)) attempt {
	return attempt{"DriverGrantBucketAccess " + what, func(ctx context.Context) error {
		req := c.grantRequest(valid)
		spoil(req)
		_, err := c.provisioner.DriverGrantBucketAccess(ctx, req)
		return err
	}}
}

func (c *v1alpha2Client) tryRevoke(what string, valid access, spoil func(*pb.DriverRevokeBucketAccessRequest)) attempt {
	return attempt{"DriverRevokeBucketAccess " + what, func(ctx context.Context) error {
		req := c.revokeRequest(valid)
		spoil(req)
		_, err := c.provisioner.DriverRevokeBucketAccess(ctx, req)
		return err
	}}
}

func (c *v1alpha2Client) incomplete(b bucket, a accessRequest) (making, unmaking []attempt) {
	type grant = pb.DriverGrantBucketAccessRequest
	making = []attempt{
		c.tryCreate("without a name", &pb.DriverCreateBucketRequest{Protocols: protocols(b.protocols), Parameters: b.parameters}),
		c.tryGrant("without an account_name", a, func(r *grant) { r.AccountName = "" }),
		c.tryGrant("without a protocol", a, func(r *grant) { r.Protocol = nil }),
		c.tryGrant("without an authentication_type", a, func(r *grant) { r.AuthenticationType = nil }),
		c.tryGrant("with SERVICE_ACCOUNT and without a service_account_name", a, func(r *grant) {
			r.AuthenticationType.Type = pb.AuthenticationType_SERVICE_ACCOUNT
			r.ServiceAccountName = ""
		}),
		c.tryGrant("without buckets", a, func(r *grant) { r.Buckets = nil }),
		c.tryGrant("without a bucket's bucket_id", a, func(r *grant) { r.Buckets[0].BucketId = "" }),
		c.tryGrant("without a bucket's access_mode", a, func(r *grant) { r.Buckets[0].AccessMode = nil }),
	}
	return making, []attempt{
		c.tryDelete("without a bucket_id", ""),
		c.tryRevoke("without an account_id", access{accessRequest: a}, func(*pb.DriverRevokeBucketAccessRequest) {}),
	}
}

func (c *v1alpha2Client) unknownValues(bucketName string, a accessRequest) []attempt {
	type grant = pb.DriverGrantBucketAccessRequest
	return []attempt{
		c.tryCreate("with a protocol of 99", &pb.DriverCreateBucketRequest{
			Name: bucketName, Protocols: protocols([]protocol{unknownValue}), Parameters: a.buckets[0].bucket.parameters,
		}),
		c.tryGrant("with a protocol of 99", a, func(r *grant) { r.Protocol.Type = unknownValue }),
		c.tryGrant("with an authentication_type of 99", a, func(r *grant) { r.AuthenticationType.Type = unknownValue }),
		c.tryGrant("with an access_mode of 99", a, func(r *grant) { r.Buckets[0].AccessMode.Mode = unknownValue }),
	}
}

// unsupported are requests for protocols that the driver has not told of.
func (c *v1alpha2Client) unsupported(bucketName string, supported []protocol, a accessRequest) []attempt {
	var out []attempt
	for _, p := range []protocol{protocol(pb.ObjectProtocol_S3), protocol(pb.ObjectProtocol_AZURE), protocol(pb.ObjectProtocol_GCS)} {
		if slices.Contains(supported, p) {
			continue
		}
		with := "with protocol " + name(p)
		out = append(out,
			c.tryCreate(with, &pb.DriverCreateBucketRequest{Name: bucketName, Protocols: protocols([]protocol{p}), Parameters: a.buckets[0].bucket.parameters}),
			c.tryGrant(with, a, func(r *pb.DriverGrantBucketAccessRequest) { r.Protocol.Type = pb.ObjectProtocol_Type(p) }))
	}
	return out
}

func (c *v1alpha2Client) overlong(name string, b bucket, a accessRequest) (creates, others []attempt) {
	type grant = pb.DriverGrantBucketAccessRequest
	creates = []attempt{
		c.tryCreate("with a name of 4096 bytes", &pb.DriverCreateBucketRequest{Name: longName, Protocols: protocols(b.protocols), Parameters: b.parameters}),
		c.tryCreate("with a parameter of 64 KiB", &pb.DriverCreateBucketRequest{Name: name, Protocols: protocols(b.protocols), Parameters: withLong(b.parameters)}),
	}
	return creates, []attempt{
		{"DriverGetExistingBucket with an id of 4096 bytes", func(ctx context.Context) error {
			_, err := c.existing(ctx, longName, b.bucketRequest)
			return err
		}},
		c.tryDelete("with an id of 4096 bytes", longName),
		c.tryGrant("with an account_name of 4096 bytes", a, func(r *grant) { r.AccountName = longName }),
		c.tryGrant("with a bucket_id of 4096 bytes", a, func(r *grant) { r.Buckets[0].BucketId = longName }),
		c.tryGrant("with a parameter of 64 KiB", a, func(r *grant) { r.Parameters = withLong(r.GetParameters()) }),
		c.tryRevoke("with an account_id of 4096 bytes", access{accessRequest: a, id: longName}, func(*pb.DriverRevokeBucketAccessRequest) {}),
	}
}

func (c *v1alpha2Client) foreign(a accessRequest) []attempt {
	var out []attempt
	for _, id := range foreignIDs {
		quoted := fmt.Sprintf("with the id %q", id)
		out = append(out,
			attempt{"DriverGetExistingBucket " + quoted, func(ctx context.Context) error {
				_, err := c.existing(ctx, id, a.buckets[0].bucket.bucketRequest)
				return err
			}},
			c.tryDelete(quoted, id),
			c.tryGrant(quoted, a, func(r *pb.DriverGrantBucketAccessRequest) { r.Buckets[0].BucketId = id }),
			c.tryRevoke(quoted, access{accessRequest: a, id: id}, func(r *pb.DriverRevokeBucketAccessRequest) { r.Buckets[0].BucketId = id }))
	}
	return out
}

func (c *v1alpha2Client) serviceAccount(a accessRequest) accessRequest {
	a.auth, a.account = serviceAccountAuth, "cosi-sanity"
	return a
}

var errNotV1Alpha2 = errors.New("the check is for v1alpha2")

// v1alpha2 is the client of a check that only this version has.
func (s *session) v1alpha2() (*v1alpha2Client, error) {
	c, ok := s.api.(*v1alpha2Client)
	if !ok {
		return nil, errNotV1Alpha2
	}
	return c, nil
}
