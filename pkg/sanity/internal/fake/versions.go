package fake

import (
	"context"
	"crypto/rand"
	"strings"

	"google.golang.org/grpc/codes"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	pb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
)

func (d *Driver) name() string {
	switch {
	case d.has(NameTooLong):
		return strings.Repeat("a", 40) + "." + strings.Repeat("b", 23)
	case d.has(NameUpperCase):
		return "Fake.cosi.example.com"
	}
	return "fake.cosi.example.com"
}

// told is the store's address as workloads see it.
func (d *Driver) told() string {
	if d.has(StoreElsewhere) {
		return "http://store.invalid"
	}
	return d.StoreURL
}

const region = "us-east-1"

// v1alpha1 serves the old version.
type v1alpha1 struct{ *Driver }

func (d v1alpha1) DriverGetInfo(context.Context, *cosiproto.DriverGetInfoRequest) (*cosiproto.DriverGetInfoResponse, error) {
	return &cosiproto.DriverGetInfoResponse{Name: d.name()}, nil
}

func (d v1alpha1) DriverCreateBucket(ctx context.Context, req *cosiproto.DriverCreateBucketRequest) (*cosiproto.DriverCreateBucketResponse, error) {
	b, err := d.createBucket(ctx, req.GetName(), nil, req.GetParameters())
	if err != nil {
		return nil, err
	}
	return &cosiproto.DriverCreateBucketResponse{BucketId: b.id}, nil
}

func (d v1alpha1) DriverDeleteBucket(ctx context.Context, req *cosiproto.DriverDeleteBucketRequest) (*cosiproto.DriverDeleteBucketResponse, error) {
	return &cosiproto.DriverDeleteBucketResponse{}, d.deleteBucket(ctx, req.GetBucketId())
}

func (d v1alpha1) DriverGrantBucketAccess(ctx context.Context, req *cosiproto.DriverGrantBucketAccessRequest) (*cosiproto.DriverGrantBucketAccessResponse, error) {
	mode := map[string]int32{"": readWrite, "read": readOnly, "write": writeOnly}[req.GetParameters()["mode"]]
	exists := codes.FailedPrecondition
	if d.has(GrantExists) {
		exists = codes.AlreadyExists
	}
	a, _, err := d.grantAccess(ctx, req.GetName(), grant{
		auth: int32(req.GetAuthenticationType()), protocol: d.protocol(), serviceAccount: "IAM", parameters: req.GetParameters(), buckets: []accessed{{req.GetBucketId(), mode}},
	}, exists)
	if err != nil {
		return nil, err
	}
	s3 := map[string]string{"accessKeyID": a.key.id, "accessSecretKey": a.key.secret, "endpoint": d.told(), "region": region}
	credentials := map[string]*cosiproto.CredentialDetails{"s3": {Secrets: s3}}
	if d.has(Azure) {
		credentials = map[string]*cosiproto.CredentialDetails{"azure": {Secrets: map[string]string{
			"accessToken": "https://account.blob.example.com/?sig=" + a.key.secret, "expiryTs": "2030-01-02 03:04:05 +0000 UTC",
		}}}
	}
	if req.GetAuthenticationType() == cosiproto.AuthenticationType_IAM {
		delete(s3, "accessKeyID")
		delete(s3, "accessSecretKey")
	}
	if d.has(NoRegion) {
		delete(s3, "region")
	}
	if d.has(TwoCredentials) {
		credentials["azure"] = &cosiproto.CredentialDetails{}
	}
	return &cosiproto.DriverGrantBucketAccessResponse{AccountId: a.id, Credentials: credentials}, nil
}

func (d v1alpha1) DriverRevokeBucketAccess(ctx context.Context, req *cosiproto.DriverRevokeBucketAccessRequest) (*cosiproto.DriverRevokeBucketAccessResponse, error) {
	return &cosiproto.DriverRevokeBucketAccessResponse{}, d.revokeAccess(ctx, req.GetAccountId(), []string{req.GetBucketId()})
}

// v1alpha2Identity and v1alpha2 serve the new one.
type v1alpha2Identity struct {
	pb.UnimplementedIdentityServer
	d *Driver
}

type v1alpha2 struct {
	pb.UnimplementedProvisionerServer
	d *Driver
}

func (s v1alpha2Identity) DriverGetInfo(context.Context, *pb.DriverGetInfoRequest) (*pb.DriverGetInfoResponse, error) {
	only := &pb.ObjectProtocol{Type: pb.ObjectProtocol_Type(s.d.protocol())}
	resp := &pb.DriverGetInfoResponse{Name: s.d.name(), SupportedProtocols: []*pb.ObjectProtocol{only}}
	switch {
	case s.d.has(NoProtocols):
		resp.SupportedProtocols = nil
	case s.d.has(ProtocolTwice):
		resp.SupportedProtocols = append(resp.SupportedProtocols, only)
	}
	return resp, nil
}

func (s v1alpha2) bucketInfo(b *bucket) *pb.ObjectProtocolAndBucketInfo {
	if s.d.has(Azure) {
		return &pb.ObjectProtocolAndBucketInfo{Azure: &pb.AzureBucketInfo{StorageAccount: "account"}}
	}
	style := &pb.S3AddressingStyle{Style: pb.S3AddressingStyle_PATH}
	if s.d.has(NoStyle) {
		style = nil
	}
	return &pb.ObjectProtocolAndBucketInfo{S3: &pb.S3BucketInfo{BucketId: b.s3Name, Endpoint: s.d.told(), Region: region, AddressingStyle: style}}
}

// createInfo is bucketInfo with the faults that are a create's.
func (s v1alpha2) createInfo(b *bucket) *pb.ObjectProtocolAndBucketInfo {
	info := s.bucketInfo(b)
	switch {
	case s.d.has(NoProtocolInfo):
		return nil
	case s.d.has(UnsupportedInfo):
		info.Azure = &pb.AzureBucketInfo{}
	}
	return info
}

func types(protocols []*pb.ObjectProtocol) []int32 {
	var out []int32
	for _, p := range protocols {
		out = append(out, int32(p.GetType()))
	}
	return out
}

func (s v1alpha2) DriverCreateBucket(ctx context.Context, req *pb.DriverCreateBucketRequest) (*pb.DriverCreateBucketResponse, error) {
	b, err := s.d.createBucket(ctx, req.GetName(), types(req.GetProtocols()), req.GetParameters())
	if err != nil {
		return nil, err
	}
	return &pb.DriverCreateBucketResponse{BucketId: b.id, Protocols: s.createInfo(b)}, nil
}

func (s v1alpha2) DriverGetExistingBucket(ctx context.Context, req *pb.DriverGetExistingBucketRequest) (*pb.DriverGetExistingBucketResponse, error) {
	b, err := s.d.existingBucket(ctx, req.GetExistingBucketId(), req.GetParameters())
	if err != nil {
		return nil, err
	}
	return &pb.DriverGetExistingBucketResponse{BucketId: b.id, Protocols: s.bucketInfo(b)}, nil
}

func (s v1alpha2) DriverGetBucket(ctx context.Context, req *pb.DriverGetBucketRequest) (*pb.DriverGetBucketResponse, error) {
	b, err := s.d.existingBucket(ctx, req.GetBucketId(), req.GetParameters())
	if err != nil {
		return nil, err
	}
	return &pb.DriverGetBucketResponse{BucketId: b.id, Protocols: s.bucketInfo(b)}, nil
}

func (s v1alpha2) DriverGenerateBucketId(ctx context.Context, req *pb.DriverGenerateBucketIdRequest) (*pb.DriverGenerateBucketIdResponse, error) {
	id := "fake." + req.GetName()
	switch {
	case s.d.has(OpaqueIDs): // which are those of an older generation
		return s.UnimplementedProvisionerServer.DriverGenerateBucketId(ctx, req)
	case s.d.has(GeneratesAnother):
		id += strings.ToLower(rand.Text()[:4])
	case s.d.has(GeneratesOne):
		id = "fake.bucket"
	case s.d.has(GeneratesSpaces):
		id += " x"
	case s.d.has(GenerateMakes):
		if _, err := s.d.createBucket(ctx, req.GetName(), types(req.GetProtocols()), req.GetParameters()); err != nil {
			return nil, err
		}
	}
	return &pb.DriverGenerateBucketIdResponse{BucketId: id}, nil
}

func (s v1alpha2) DriverDeleteBucket(ctx context.Context, req *pb.DriverDeleteBucketRequest) (*pb.DriverDeleteBucketResponse, error) {
	return &pb.DriverDeleteBucketResponse{}, s.d.deleteBucket(ctx, req.GetBucketId())
}

func (s v1alpha2) DriverGrantBucketAccess(ctx context.Context, req *pb.DriverGrantBucketAccessRequest) (*pb.DriverGrantBucketAccessResponse, error) {
	g := grant{
		auth: int32(req.GetAuthenticationType().GetType()), protocol: int32(req.GetProtocol().GetType()),
		serviceAccount: req.GetServiceAccountName(), parameters: req.GetParameters(),
	}
	for _, b := range req.GetBuckets() {
		mode := int32(b.GetAccessMode().GetMode())
		if len(b.ProtoReflect().GetUnknown()) > 0 && !s.d.has(ModesShifted) { // one mode of three
			mode--
		}
		g.buckets = append(g.buckets, accessed{b.GetBucketId(), mode})
	}
	a, buckets, err := s.d.grantAccess(ctx, req.GetAccountName(), g, codes.AlreadyExists)
	if err != nil {
		return nil, err
	}
	resp := &pb.DriverGrantBucketAccessResponse{
		AccountId:   a.id,
		Credentials: &pb.CredentialInfo{S3: &pb.S3CredentialInfo{AccessKeyId: a.key.id, AccessSecretKey: a.key.secret}},
	}
	if s.d.has(Azure) {
		resp.Credentials = &pb.CredentialInfo{Azure: &pb.AzureCredentialInfo{AccessToken: "https://account.blob.example.com/?sig=" + a.key.secret}}
	}
	if g.auth == int32(pb.AuthenticationType_SERVICE_ACCOUNT) {
		resp.Credentials = &pb.CredentialInfo{S3: &pb.S3CredentialInfo{}}
	}
	if s.d.has(TwoCredentials) {
		resp.Credentials.Azure = &pb.AzureCredentialInfo{}
	}
	if s.d.has(OneInfo) {
		buckets = buckets[:1]
	}
	for _, b := range buckets {
		resp.Buckets = append(resp.Buckets, &pb.DriverGrantBucketAccessResponse_BucketInfo{BucketId: b.id, BucketInfo: s.bucketInfo(b)})
	}
	return resp, nil
}

func (s v1alpha2) DriverRevokeBucketAccess(ctx context.Context, req *pb.DriverRevokeBucketAccessRequest) (*pb.DriverRevokeBucketAccessResponse, error) {
	var ids []string
	for _, b := range req.GetBuckets() {
		ids = append(ids, b.GetBucketId())
	}
	return &pb.DriverRevokeBucketAccessResponse{}, s.d.revokeAccess(ctx, req.GetAccountId(), ids)
}
