package sanity

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/internal/wire"
	pb "github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/internal/wire/v1alpha2"
)

// v1alpha2Client calls as a sidecar of a generation does.
type v1alpha2Client struct {
	conn       *grpc.ClientConn
	generation Generation
}

var _ client = (*v1alpha2Client)(nil)

// ask makes a call whose answer does not matter.
func (c *v1alpha2Client) ask(ctx context.Context, method string, req proto.Message) (*pb.DriverDeleteBucketResponse, error) {
	return invoke[pb.DriverDeleteBucketResponse](ctx, c.conn, wire.V1Alpha2, method, req)
}

func (c *v1alpha2Client) info(ctx context.Context) (info, error) {
	resp, err := invoke[pb.DriverGetInfoResponse](ctx, c.conn, wire.V1Alpha2, "DriverGetInfo", &pb.DriverGetInfoRequest{})
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

func (c *v1alpha2Client) newID(ctx context.Context, r bucketRequest) (string, error) {
	if !c.generation.since(C1) {
		return r.name, nil
	}
	resp, err := invoke[pb.DriverGenerateBucketIdResponse](ctx, c.conn, wire.V1Alpha2, "DriverGenerateBucketId",
		&pb.DriverGenerateBucketIdRequest{Name: r.name, Protocols: protocols(r.protocols), Parameters: r.parameters})
	return resp.GetBucketId(), err
}

// create has the id generated first, if that is how it goes and it is not known.
func (c *v1alpha2Client) create(ctx context.Context, r bucketRequest) (bucket, error) {
	req := &pb.DriverCreateBucketRequest{Name: r.name, Protocols: protocols(r.protocols), Parameters: r.parameters}
	if c.generation.since(C1) {
		req.Name = r.id
		if r.id == "" {
			var err error
			if req.Name, err = c.newID(ctx, r); err != nil || req.GetName() == "" {
				return bucket{bucketRequest: r}, err
			}
		}
	}
	id, infos, err := c.createRaw(ctx, req)
	return bucket{bucketRequest: r, id: id, served: servedBy(infos)}, err
}

// createRaw makes the call alone.
func (c *v1alpha2Client) createRaw(ctx context.Context, req *pb.DriverCreateBucketRequest) (string, *pb.ObjectProtocolAndBucketInfo, error) {
	if !c.generation.since(C1) {
		resp, err := invoke[pb.DriverCreateBucketResponse](ctx, c.conn, wire.V1Alpha2, "DriverCreateBucket", req)
		return resp.GetBucketId(), resp.GetProtocols(), err
	}
	resp, err := invoke[pb.DriverCreateBucketResponseC](ctx, c.conn, wire.V1Alpha2, "DriverCreateBucket", req)
	infos := resp.GetProtocols()
	if infos == nil {
		infos = resp.GetDraftProtocols()
	}
	return req.GetName(), infos, err
}

// existing asks for a bucket by its id. Since C1 the answer has no id: the one
// that was asked with stays.
func (c *v1alpha2Client) existing(ctx context.Context, id string, r bucketRequest) (bucket, error) {
	resp, err := invoke[pb.DriverGetBucketResponse](ctx, c.conn, wire.V1Alpha2, c.generation.getMethod(),
		&pb.DriverGetBucketRequest{BucketId: id, Protocols: protocols(r.protocols), Parameters: r.parameters})
	got := resp.GetBucketId()
	if c.generation.since(C1) {
		got = id
	}
	return bucket{bucketRequest: r, id: got, served: servedBy(resp.GetProtocols())}, err
}

func (c *v1alpha2Client) delete(ctx context.Context, b bucket) error {
	_, err := c.ask(ctx, "DriverDeleteBucket", &pb.DriverDeleteBucketRequest{BucketId: b.id, Parameters: b.parameters})
	return err
}

// grantRequest has the account's id in place of the name in C2.
func (c *v1alpha2Client) grantRequest(request accessRequest) *pb.DriverGrantBucketAccessRequest {
	req := &pb.DriverGrantBucketAccessRequest{
		Account: request.name, Protocol: &pb.ObjectProtocol{Type: pb.ObjectProtocol_Type(request.protocol)},
		AuthenticationType: &pb.AuthenticationType{Type: pb.AuthenticationType_Type(request.auth)},
		ServiceAccountName: request.account, Parameters: request.parameters,
	}
	for _, b := range request.buckets {
		accessed := &pb.AccessedBucket{BucketId: b.bucket.id, AccessMode: &pb.AccessMode{Mode: c.generation.wireMode(b.mode)}}
		if c.generation.since(B2) {
			metadata := int32(max(b.metadata, anyMode))
			accessed.ObjectMetadataAccessMode = &pb.AccessMode{Mode: metadata}
			accessed.BucketMetadataAccessMode = &pb.AccessMode{Mode: metadata}
		}
		req.Buckets = append(req.Buckets, accessed)
	}
	return req
}

// newAccountID is what a grant names the account by: its name, or in C2 the id
// that is generated for it.
func (c *v1alpha2Client) newAccountID(ctx context.Context, r accessRequest) (string, error) {
	if !c.generation.since(C2) {
		return r.name, nil
	}
	resp, err := invoke[pb.DriverGenerateBucketAccessIdResponse](ctx, c.conn, wire.V1Alpha2, "DriverGenerateBucketAccessId", c.grantRequest(r))
	return resp.GetAccountId(), err
}

func (c *v1alpha2Client) grant(ctx context.Context, r accessRequest) (access, error) {
	a := access{accessRequest: r, id: r.id}
	req := c.grantRequest(r)
	if c.generation.since(C2) {
		if r.id == "" {
			var err error
			if a.id, err = c.newAccountID(ctx, r); err != nil || a.id == "" {
				return a, err
			}
		}
		req.Account = a.id
	}
	resp, err := invoke[pb.DriverGrantBucketAccessResponse](ctx, c.conn, wire.V1Alpha2, "DriverGrantBucketAccess", req)
	if err != nil {
		return access{}, err
	}
	if !c.generation.since(C2) {
		a.id = resp.GetAccountId()
	}
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
	_, err := c.ask(ctx, "DriverRevokeBucketAccess", c.revokeRequest(a))
	return err
}

func (c *v1alpha2Client) tryCreate(what, name string, of []protocol, parameters map[string]string) attempt {
	return attempt{"DriverCreateBucket " + what, func(ctx context.Context) error {
		_, _, err := c.createRaw(ctx, &pb.DriverCreateBucketRequest{Name: name, Protocols: protocols(of), Parameters: parameters})
		return err
	}}
}

func (c *v1alpha2Client) tryDelete(what, id string) attempt {
	return attempt{"DriverDeleteBucket " + what, func(ctx context.Context) error { return c.delete(ctx, bucket{id: id}) }}
}

// tryGrant spoils a valid request, which has a name of its own and in C2 an id.
func (c *v1alpha2Client) tryGrant(what string, valid accessRequest, spoil func(*pb.DriverGrantBucketAccessRequest)) attempt {
	return attempt{"DriverGrantBucketAccess " + what, func(ctx context.Context) error {
		req := c.grantRequest(valid)
		if c.generation.since(C2) {
			var err error
			if req.Account, err = c.newAccountID(ctx, valid); err != nil {
				return err
			}
		}
		spoil(req)
		_, err := invoke[pb.DriverGrantBucketAccessResponse](ctx, c.conn, wire.V1Alpha2, "DriverGrantBucketAccess", req)
		return err
	}}
}

func (c *v1alpha2Client) tryRevoke(what string, valid access, spoil func(*pb.DriverRevokeBucketAccessRequest)) attempt {
	return attempt{"DriverRevokeBucketAccess " + what, func(ctx context.Context) error {
		req := c.revokeRequest(valid)
		spoil(req)
		_, err := c.ask(ctx, "DriverRevokeBucketAccess", req)
		return err
	}}
}

func (c *v1alpha2Client) incomplete(b bucket, fresh func() accessRequest) (making, unmaking []attempt) {
	type grant = pb.DriverGrantBucketAccessRequest
	making = []attempt{
		c.tryCreate("without a name", "", b.protocols, b.parameters), // which is the id since C1
		c.tryGrant("without an account_name", fresh(), func(r *grant) { r.Account = "" }),
		c.tryGrant("without a protocol", fresh(), func(r *grant) { r.Protocol = nil }),
		c.tryGrant("without an authentication_type", fresh(), func(r *grant) { r.AuthenticationType = nil }),
		c.tryGrant("with SERVICE_ACCOUNT and without a service_account_name", fresh(), func(r *grant) {
			r.AuthenticationType.Type = pb.AuthenticationType_SERVICE_ACCOUNT
			r.ServiceAccountName = ""
		}),
		c.tryGrant("without buckets", fresh(), func(r *grant) { r.Buckets = nil }),
		c.tryGrant("without a bucket's bucket_id", fresh(), func(r *grant) { r.Buckets[0].BucketId = "" }),
		c.tryGrant("without a bucket's access_mode", fresh(), func(r *grant) { r.Buckets[0].AccessMode = nil }),
	}
	return making, []attempt{
		c.tryDelete("without a bucket_id", ""),
		c.tryRevoke("without an account_id", access{accessRequest: fresh()}, func(*pb.DriverRevokeBucketAccessRequest) {}),
	}
}

func (c *v1alpha2Client) unknownValues(b []bucketRequest, fresh func() accessRequest) []attempt {
	type grant = pb.DriverGrantBucketAccessRequest
	return []attempt{
		c.tryCreate("with a protocol of 99", b[0].id, []protocol{unknownValue}, b[0].parameters),
		c.tryGrant("with a protocol of 99", fresh(), func(r *grant) { r.Protocol.Type = unknownValue }),
		c.tryGrant("with an authentication_type of 99", fresh(), func(r *grant) { r.AuthenticationType.Type = unknownValue }),
		c.tryGrant("with an access_mode of 99", fresh(), func(r *grant) { r.Buckets[0].AccessMode.Mode = unknownValue }),
	}
}

// unsupported are requests for protocols that the driver has not told of.
func (c *v1alpha2Client) unsupported(b []bucketRequest, supported []protocol, fresh func() accessRequest) []attempt {
	var out []attempt
	for i, p := range []protocol{protocol(pb.ObjectProtocol_S3), protocol(pb.ObjectProtocol_AZURE), protocol(pb.ObjectProtocol_GCS)} {
		if slices.Contains(supported, p) {
			continue
		}
		with := "with protocol " + name(p)
		out = append(out,
			c.tryCreate(with, b[i].id, []protocol{p}, b[i].parameters),
			c.tryGrant(with, fresh(), func(r *pb.DriverGrantBucketAccessRequest) { r.Protocol.Type = pb.ObjectProtocol_Type(p) }))
	}
	return out
}

func (c *v1alpha2Client) overlong(long string, b bucketRequest, fresh func() accessRequest) (creates, others []attempt) {
	type grant = pb.DriverGrantBucketAccessRequest
	creates = []attempt{
		c.tryCreate("with a name of 4096 bytes", long, b.protocols, b.parameters),
		c.tryCreate("with a parameter of 64 KiB", b.id, b.protocols, withLong(b.parameters)),
	}
	return creates, []attempt{
		{c.generation.getMethod() + " with an id of 4096 bytes", func(ctx context.Context) error {
			_, err := c.existing(ctx, long, b)
			return err
		}},
		c.tryDelete("with an id of 4096 bytes", long),
		c.tryGrant("with an account_name of 4096 bytes", fresh(), func(r *grant) { r.Account = long }),
		c.tryGrant("with a bucket_id of 4096 bytes", fresh(), func(r *grant) { r.Buckets[0].BucketId = long }),
		c.tryGrant("with a parameter of 64 KiB", fresh(), func(r *grant) { r.Parameters = withLong(r.GetParameters()) }),
		c.tryRevoke("with an account_id of 4096 bytes", access{accessRequest: fresh(), id: long}, func(*pb.DriverRevokeBucketAccessRequest) {}),
	}
}

func (c *v1alpha2Client) foreign(ids []string, fresh func() accessRequest) []attempt {
	var out []attempt
	for _, id := range ids {
		quoted := fmt.Sprintf("with the id %q", id)
		a := fresh()
		out = append(out,
			attempt{c.generation.getMethod() + " " + quoted, func(ctx context.Context) error {
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
