package fake

import (
	"context"
	"crypto/rand"
	"path"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/internal/wire"
	v1 "github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/internal/wire/v1alpha1"
	v2 "github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/internal/wire/v1alpha2"
)

// register serves a version: "v1alpha1", or a generation of v1alpha2.
func (d *Driver) register(version string) {
	if version == "v1alpha1" {
		s := v1alpha1{d}
		d.serve(wire.V1Alpha1, method("DriverGetInfo", s.info), method("DriverCreateBucket", s.create),
			method("DriverDeleteBucket", s.delete), method("DriverGrantBucketAccess", s.grant), method("DriverRevokeBucketAccess", s.revoke))
		return
	}
	s := v1alpha2{d, version}
	methods := []grpc.MethodDesc{
		method("DriverGetInfo", s.info), method("DriverCreateBucket", s.create), method("DriverDeleteBucket", s.delete),
		method("DriverGrantBucketAccess", s.grant), method("DriverRevokeBucketAccess", s.revoke),
	}
	if version == "A" {
		methods = append(methods, method("DriverGetExistingBucket", s.get))
	} else {
		methods = append(methods, method("DriverGetBucket", s.get))
	}
	if version >= "C1" {
		methods = append(methods, method("DriverGenerateBucketId", s.generateBucket))
	}
	if version >= "C2" {
		methods = append(methods, method("DriverGenerateBucketAccessId", s.generateAccount))
	}
	d.serve(wire.V1Alpha2, methods...)
}

func (d *Driver) serve(version string, methods ...grpc.MethodDesc) {
	services := map[string]*grpc.ServiceDesc{}
	for _, m := range methods {
		name := strings.TrimPrefix(path.Dir(wire.Method(version, m.MethodName)), "/")
		if services[name] == nil {
			services[name] = &grpc.ServiceDesc{ServiceName: name, HandlerType: (*any)(nil)}
		}
		services[name].Methods = append(services[name].Methods, m)
	}
	for _, desc := range services {
		d.server.RegisterService(desc, d)
	}
}

func method[Req, Resp any](name string, serve func(context.Context, *Req) (Resp, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		req := new(Req)
		if err := decode(req); err != nil {
			return nil, err
		}
		return intercept(ctx, req, &grpc.UnaryServerInfo{FullMethod: name}, func(ctx context.Context, req any) (any, error) {
			return serve(ctx, req.(*Req))
		})
	}}
}

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

func (d v1alpha1) info(ctx context.Context, _ *v1.DriverGetInfoRequest) (*v1.DriverGetInfoResponse, error) {
	if d.has(InfoHangs) {
		d.hang(ctx)
	}
	return &v1.DriverGetInfoResponse{Name: d.name()}, nil
}

func (d v1alpha1) create(ctx context.Context, req *v1.DriverCreateBucketRequest) (*v1.DriverCreateBucketResponse, error) {
	b, err := d.createBucket(ctx, req.GetName(), nil, req.GetParameters())
	if err != nil {
		return nil, err
	}
	return &v1.DriverCreateBucketResponse{BucketId: b.id}, nil
}

func (d v1alpha1) delete(ctx context.Context, req *v1.DriverDeleteBucketRequest) (*v1.DriverDeleteBucketResponse, error) {
	return &v1.DriverDeleteBucketResponse{}, d.deleteBucket(ctx, req.GetBucketId())
}

func (d v1alpha1) grant(ctx context.Context, req *v1.DriverGrantBucketAccessRequest) (*v1.DriverGrantBucketAccessResponse, error) {
	mode := map[string]int32{"": readWrite, "read": readOnly, "write": writeOnly}[req.GetParameters()["mode"]]
	exists := codes.FailedPrecondition
	if d.has(GrantExists) || d.has(GrantOnce) {
		exists = codes.AlreadyExists
	}
	a, _, err := d.grantAccess(ctx, req.GetName(), grant{
		auth: int32(req.GetAuthenticationType()), protocol: d.protocol(), serviceAccount: "IAM", parameters: req.GetParameters(), buckets: []accessed{{req.GetBucketId(), mode}},
	}, exists)
	if err != nil {
		return nil, err
	}
	s3 := map[string]string{"accessKeyID": a.key.id, "accessSecretKey": a.key.secret, "endpoint": d.told(), "region": region}
	credentials := map[string]*v1.CredentialDetails{"s3": {Secrets: s3}}
	if d.has(Azure) {
		credentials = map[string]*v1.CredentialDetails{"azure": {Secrets: map[string]string{
			"accessToken": "https://account.blob.example.com/?sig=" + a.key.secret, "expiryTs": "2030-01-02 03:04:05 +0000 UTC",
		}}}
	}
	if d.has(AzureWithoutExpiry) {
		credentials["azure"].Secrets["expiryTs"] = ""
	}
	if req.GetAuthenticationType() == v1.AuthenticationType_IAM {
		delete(s3, "accessKeyID")
		delete(s3, "accessSecretKey")
	}
	if d.has(NoRegion) {
		delete(s3, "region")
	}
	if d.has(MisspeltKey) {
		s3["accessKeyId"] = s3["accessKeyID"]
		delete(s3, "accessKeyID")
	}
	if d.has(TwoCredentials) {
		credentials["azure"] = &v1.CredentialDetails{}
	}
	return &v1.DriverGrantBucketAccessResponse{AccountId: a.id, Credentials: credentials}, nil
}

func (d v1alpha1) revoke(ctx context.Context, req *v1.DriverRevokeBucketAccessRequest) (*v1.DriverRevokeBucketAccessResponse, error) {
	return &v1.DriverRevokeBucketAccessResponse{}, d.revokeAccess(ctx, req.GetAccountId(), []string{req.GetBucketId()})
}

// v1alpha2 serves a generation of the new one.
type v1alpha2 struct {
	d          *Driver
	generation string
}

func (s v1alpha2) info(ctx context.Context, _ *v2.DriverGetInfoRequest) (*v2.DriverGetInfoResponse, error) {
	if s.d.has(InfoHangs) {
		s.d.hang(ctx)
	}
	only := &v2.ObjectProtocol{Type: v2.ObjectProtocol_Type(s.d.protocol())}
	resp := &v2.DriverGetInfoResponse{Name: s.d.name(), SupportedProtocols: []*v2.ObjectProtocol{only}}
	switch {
	case s.d.has(NoProtocols):
		resp.SupportedProtocols = nil
	case s.d.has(ProtocolTwice):
		resp.SupportedProtocols = append(resp.SupportedProtocols, only)
	}
	return resp, nil
}

func (s v1alpha2) bucketInfo(b *bucket) *v2.ObjectProtocolAndBucketInfo {
	if s.d.has(Azure) {
		return &v2.ObjectProtocolAndBucketInfo{Azure: &v2.AzureBucketInfo{StorageAccount: "account"}}
	}
	style := &v2.S3AddressingStyle{Style: v2.S3AddressingStyle_PATH}
	if s.d.has(NoStyle) {
		style = nil
	}
	return &v2.ObjectProtocolAndBucketInfo{S3: &v2.S3BucketInfo{BucketId: b.s3Name, Endpoint: s.d.told(), Region: region, AddressingStyle: style}}
}

// createInfo is bucketInfo with the faults that are a create's.
func (s v1alpha2) createInfo(b *bucket) *v2.ObjectProtocolAndBucketInfo {
	info := s.bucketInfo(b)
	switch {
	case s.d.has(NoProtocolInfo):
		return nil
	case s.d.has(UnsupportedInfo):
		info.Azure = &v2.AzureBucketInfo{}
	}
	return info
}

func types(protocols []*v2.ObjectProtocol) []int32 {
	var out []int32
	for _, p := range protocols {
		out = append(out, int32(p.GetType()))
	}
	return out
}

// create answers in the form of its generation: field 1 is the id, or the infos.
func (s v1alpha2) create(ctx context.Context, req *v2.DriverCreateBucketRequest) (proto.Message, error) {
	name := req.GetName()
	if s.generation >= "C1" && name != "" {
		var err error
		if name, err = s.d.generatedName(ctx, name); err != nil {
			return nil, err
		}
	}
	b, err := s.d.createBucket(ctx, name, types(req.GetProtocols()), req.GetParameters())
	switch {
	case err != nil:
		return nil, err
	case s.generation >= "C1":
		return &v2.DriverCreateBucketResponseC{Protocols: s.createInfo(b)}, nil
	}
	return &v2.DriverCreateBucketResponse{BucketId: b.id, Protocols: s.createInfo(b)}, nil
}

func (s v1alpha2) get(ctx context.Context, req *v2.DriverGetBucketRequest) (*v2.DriverGetBucketResponse, error) {
	b, err := s.d.existingBucket(ctx, req.GetBucketId(), req.GetParameters())
	if err != nil {
		return nil, err
	}
	id := b.id
	if s.d.has(ExistingOtherID) {
		id += ".static"
	}
	return &v2.DriverGetBucketResponse{BucketId: id, Protocols: s.bucketInfo(b)}, nil
}

func (s v1alpha2) generateBucket(ctx context.Context, req *v2.DriverGenerateBucketIdRequest) (*v2.DriverGenerateBucketIdResponse, error) {
	if err := s.d.checkName(ctx, req.GetName()); err != nil {
		return nil, err
	}
	s.d.mu.Lock()
	id := s.d.bucketID(req.GetName())
	switch _, made := s.d.buckets[req.GetName()]; {
	case s.d.has(GeneratesAnother), made && s.d.has(NewBucketID):
		id += strings.ToLower(rand.Text()[:4])
	case s.d.has(GeneratesOne):
		id = "fake.bucket"
	case s.d.has(GeneratesSpaces):
		id += " x"
	}
	s.d.given[id] = req.GetName()
	s.d.mu.Unlock()
	if s.d.has(GenerateMakes) {
		if _, err := s.d.createBucket(ctx, req.GetName(), types(req.GetProtocols()), req.GetParameters()); err != nil {
			return nil, err
		}
	}
	return &v2.DriverGenerateBucketIdResponse{BucketId: id}, nil
}

func (s v1alpha2) generateAccount(ctx context.Context, req *v2.DriverGrantBucketAccessRequest) (*v2.DriverGenerateBucketAccessIdResponse, error) {
	if err := s.d.checkName(ctx, req.GetAccount()); err != nil {
		return nil, err
	}
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	id := s.d.accountID(req.GetAccount())
	if _, made := s.d.accounts[req.GetAccount()]; s.d.has(GeneratesAnotherAccount) || made && s.d.has(NewAccountID) {
		id += strings.ToLower(rand.Text()[:4])
	}
	s.d.given[id] = req.GetAccount()
	return &v2.DriverGenerateBucketAccessIdResponse{AccountId: id}, nil
}

// delete is delete of the oldest generation for all.
func (s v1alpha2) delete(ctx context.Context, req *v2.DriverDeleteBucketRequest) (*v2.DriverDeleteBucketResponse, error) {
	return &v2.DriverDeleteBucketResponse{}, s.d.deleteBucket(ctx, req.GetBucketId())
}

// mode is a bucket's mode by the numbers of the old enum, which knows no ANY.
func (s v1alpha2) mode(b *v2.AccessedBucket) int32 {
	mode := b.GetAccessMode().GetMode()
	switch {
	case mode == 0 || mode > 4 || s.generation < "B2" || s.d.has(ModesShifted):
		return mode
	case s.d.has(WidestMode) && b.GetObjectMetadataAccessMode().GetMode() == readWrite+1:
		return readWrite
	}
	return max(mode-1, readWrite)
}

func (s v1alpha2) grant(ctx context.Context, req *v2.DriverGrantBucketAccessRequest) (*v2.DriverGrantBucketAccessResponse, error) {
	name := req.GetAccount()
	if s.generation >= "C2" && name != "" {
		var err error
		if name, err = s.d.generatedName(ctx, name); err != nil {
			return nil, err
		}
	}
	g := grant{
		auth: int32(req.GetAuthenticationType().GetType()), protocol: int32(req.GetProtocol().GetType()),
		serviceAccount: req.GetServiceAccountName(), parameters: req.GetParameters(),
	}
	for _, b := range req.GetBuckets() {
		g.buckets = append(g.buckets, accessed{b.GetBucketId(), s.mode(b)})
	}
	a, buckets, err := s.d.grantAccess(ctx, name, g, codes.AlreadyExists)
	if err != nil {
		return nil, err
	}
	resp := &v2.DriverGrantBucketAccessResponse{
		AccountId:   a.id,
		Credentials: &v2.CredentialInfo{S3: &v2.S3CredentialInfo{AccessKeyId: a.key.id, AccessSecretKey: a.key.secret}},
	}
	if s.generation >= "C2" {
		resp.AccountId = ""
	}
	if s.d.has(Azure) {
		resp.Credentials = &v2.CredentialInfo{Azure: &v2.AzureCredentialInfo{AccessToken: "https://account.blob.example.com/?sig=" + a.key.secret}}
	}
	if g.auth == int32(v2.AuthenticationType_SERVICE_ACCOUNT) {
		resp.Credentials = &v2.CredentialInfo{S3: &v2.S3CredentialInfo{}}
	}
	if s.d.has(TwoCredentials) {
		resp.Credentials.Azure = &v2.AzureCredentialInfo{}
	}
	if s.d.has(OneInfo) {
		buckets = buckets[:1]
	}
	for _, b := range buckets {
		resp.Buckets = append(resp.Buckets, &v2.DriverGrantBucketAccessResponse_BucketInfo{BucketId: b.id, BucketInfo: s.bucketInfo(b)})
	}
	return resp, nil
}

func (s v1alpha2) revoke(ctx context.Context, req *v2.DriverRevokeBucketAccessRequest) (*v2.DriverRevokeBucketAccessResponse, error) {
	var ids []string
	for _, b := range req.GetBuckets() {
		ids = append(ids, b.GetBucketId())
	}
	return &v2.DriverRevokeBucketAccessResponse{}, s.d.revokeAccess(ctx, req.GetAccountId(), ids)
}
