// Package v1alpha2 translates COSI v1alpha2 to the driver's use cases and back.
//
// Upstream has changed v1alpha2 since it was first published, and a sidecar of any
// of these generations may call: the methods of all are served, and each call is
// read, and answered, in the form of its caller's (generation.go).
//
// What its sidecar does with an answer decides two things here. A response that
// breaks a rule is terminal, and what was made for it is never taken back; so
// every request is checked as a whole before anything is made. And three codes
// are terminal, so none of them is given to trouble that may pass.
package v1alpha2

import (
	"context"
	"path"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server/code"
)

// Server serves the Identity and Provisioner services.
type Server struct {
	name        string
	provisioner *provisioner.Provisioner
	codes       map[string]code.Table
	only        set // the generation that the configuration names; empty if the calls tell
	caller      caller
}

// New returns a server of a driver that is called name, for sidecars of one
// generation or, with [config.Auto], of any.
func New(name string, g config.Generation, p *provisioner.Provisioner) *Server {
	return &Server{name: name, provisioner: p, codes: Tables(), only: only(g), caller: caller{told: map[set]bool{}}}
}

// Register adds both services to a gRPC server. The second is not registered as
// it is generated, because a method can have messages of several generations.
func (s *Server) Register(r *grpc.Server) {
	cosipb.RegisterIdentityServer(r, s)
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: cosipb.Provisioner_ServiceDesc.ServiceName,
		HandlerType: (*any)(nil),
		Metadata:    cosipb.Provisioner_ServiceDesc.Metadata,
		Methods: []grpc.MethodDesc{
			method(s, cosipb.Provisioner_DriverGenerateBucketId_FullMethodName, s.generateBucketID),
			method(s, cosipb.Provisioner_DriverCreateBucket_FullMethodName, s.createBucket),
			method(s, cosipb.Provisioner_DriverGetBucket_FullMethodName, s.getBucket),
			method(s, cosipb.Provisioner_DriverGetExistingBucket_FullMethodName, s.getExistingBucket),
			method(s, cosipb.Provisioner_DriverDeleteBucket_FullMethodName, s.deleteBucket),
			method(s, cosipb.Provisioner_DriverGenerateBucketAccessId_FullMethodName, s.generateBucketAccessID),
			method(s, cosipb.Provisioner_DriverGrantBucketAccess_FullMethodName, s.grantBucketAccess),
			method(s, cosipb.Provisioner_DriverRevokeBucketAccess_FullMethodName, s.revokeBucketAccess),
		},
	}, s)
}

// method serves an RPC by a function that returns faults.
func method[Req any](s *Server, full string, serve func(context.Context, *Req) (proto.Message, error)) grpc.MethodDesc {
	handle := func(ctx context.Context, req any) (any, error) {
		decoded, _ := req.(*Req) // as it was made below
		resp, err := serve(ctx, decoded)
		if err != nil {
			return nil, s.codes[full].Status(err)
		}
		return resp, nil
	}
	return grpc.MethodDesc{MethodName: path.Base(full), Handler: func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		req := new(Req)
		if err := decode(req); err != nil {
			return nil, err
		}
		if intercept == nil {
			return handle(ctx, req)
		}
		return intercept(ctx, req, &grpc.UnaryServerInfo{Server: s, FullMethod: full}, handle)
	}}
}

// DriverGetInfo answers the name that classes give in driverName, and S3.
func (s *Server) DriverGetInfo(context.Context, *cosipb.DriverGetInfoRequest) (*cosipb.DriverGetInfoResponse, error) {
	return &cosipb.DriverGetInfoResponse{
		Name:               s.name,
		SupportedProtocols: []*cosipb.ObjectProtocol{{Type: cosipb.ObjectProtocol_S3}},
	}, nil
}

func (s *Server) generateBucketID(ctx context.Context, req *cosipb.DriverGenerateBucketIdRequest) (proto.Message, error) {
	s.caller.heard(klog.FromContext(ctx), generatesBucket)
	if err := onlyS3(req.GetProtocols()...); err != nil {
		return nil, err
	}
	id, err := s.provisioner.GenerateBucketID(req.GetName(), req.GetParameters())
	return &cosipb.DriverGenerateBucketIdResponse{BucketId: id.String()}, err
}

// createBucket makes a bucket by its name or, if it was generated before, by its
// id. Field 1 of the answer is the id in one case, and a message in the other.
func (s *Server) createBucket(ctx context.Context, req *cosipb.DriverCreateBucketRequest) (proto.Message, error) {
	id, generated := s.provisioner.Generated(req.GetName(), req.GetParameters())
	if s.only != 0 {
		generated = s.only&callers(createsByID) != 0
	}
	if generated {
		s.caller.heard(klog.FromContext(ctx), createsByID)
	} else {
		s.caller.heard(klog.FromContext(ctx), createsByName)
	}
	if err := onlyS3(req.GetProtocols()...); err != nil {
		return nil, err
	}
	if !generated {
		b, err := s.provisioner.CreateBucket(ctx, req.GetName(), req.GetParameters())
		return &cosipb.DriverCreateBucketResponse{BucketId: b.ID.String(), Protocols: bucketInfo(b)}, err
	}
	if _, err := cosi.ParseBucketID(req.GetName()); err != nil {
		return nil, err
	}
	b, err := s.provisioner.CreateGenerated(ctx, id, req.GetParameters())
	return &cosipb.DriverCreateBucketResponseC1{Protocols: bucketInfo(b), DraftProtocols: bucketInfo(b)}, err
}

func (s *Server) getBucket(ctx context.Context, req *cosipb.DriverGetBucketRequest) (proto.Message, error) {
	s.caller.heard(klog.FromContext(ctx), gets)
	return s.adoptBucket(ctx, req)
}

// getExistingBucket is getBucket by its first name; the messages are the same on
// the wire.
func (s *Server) getExistingBucket(ctx context.Context, req *cosipb.DriverGetBucketRequest) (proto.Message, error) {
	s.caller.heard(klog.FromContext(ctx), getsExisting)
	return s.adoptBucket(ctx, req)
}

// adoptBucket finds a bucket that the driver made, or adopts one that it did not.
func (s *Server) adoptBucket(ctx context.Context, req *cosipb.DriverGetBucketRequest) (proto.Message, error) {
	if err := onlyS3(req.GetProtocols()...); err != nil {
		return nil, err
	}
	b, err := s.provisioner.AdoptBucket(ctx, req.GetBucketId(), req.GetParameters())
	return &cosipb.DriverGetBucketResponse{BucketId: b.ID.String(), Protocols: bucketInfo(b)}, err
}

// deleteBucket deletes a bucket and every key given on it; what it holds only if
// the Bucket object that is deleted says so too. A bucket made by a class that
// empties, and adopted later by a Bucket object of its own, keeps its data.
func (s *Server) deleteBucket(ctx context.Context, req *cosipb.DriverDeleteBucketRequest) (proto.Message, error) {
	return &cosipb.DriverDeleteBucketResponse{}, s.provisioner.DeleteBucket(ctx, req.GetBucketId(), params.Empties(req.GetParameters()))
}

func (s *Server) generateBucketAccessID(ctx context.Context, req *cosipb.DriverGenerateBucketAccessIdRequest) (proto.Message, error) {
	s.caller.heard(klog.FromContext(ctx), generatesAccount)
	request, err := s.requested(ctx, req)
	if err != nil {
		return nil, err
	}
	request.Name = req.GetAccountName()
	id, err := s.provisioner.GenerateAccessID(request)
	return &cosipb.DriverGenerateBucketAccessIdResponse{AccountId: id.String()}, err
}

// grantBucketAccess gives an access its key, by its name or by the id that was
// generated for it: a name has no dots.
func (s *Server) grantBucketAccess(ctx context.Context, req *cosipb.DriverGrantBucketAccessRequestB2) (proto.Message, error) {
	request, err := s.requested(ctx, req)
	if err != nil {
		return nil, err
	}
	request.Name = req.GetAccount()
	if id, err := cosi.ParseAccountID(req.GetAccount()); err == nil {
		s.caller.heard(klog.FromContext(ctx), grantsByID)
		request.Name, request.Under = id.Account, id.ContractID
	}
	access, err := s.provisioner.GrantAccess(ctx, request)
	resp := &cosipb.DriverGrantBucketAccessResponse{
		AccountId: access.ID.String(),
		Credentials: &cosipb.CredentialInfo{S3: &cosipb.S3CredentialInfo{
			AccessKeyId: access.Key.AccessKeyID, AccessSecretKey: access.Key.SecretAccessKey.Reveal(),
		}},
	}
	for _, b := range access.Buckets {
		resp.Buckets = append(resp.Buckets, &cosipb.DriverGrantBucketAccessResponse_BucketInfo{BucketId: b.ID.String(), BucketInfo: bucketInfo(b)})
	}
	return resp, err
}

func (s *Server) revokeBucketAccess(ctx context.Context, req *cosipb.DriverRevokeBucketAccessRequest) (proto.Message, error) {
	ids := make([]string, len(req.GetBuckets()))
	for i, b := range req.GetBuckets() {
		ids[i] = b.GetBucketId()
	}
	return &cosipb.DriverRevokeBucketAccessResponse{}, s.provisioner.RevokeAccess(ctx, req.GetAccountId(), ids...)
}

// grant is what the requests of both phases of a grant have.
type grant interface {
	GetProtocol() *cosipb.ObjectProtocol
	GetAuthenticationType() *cosipb.AuthenticationType
	GetParameters() map[string]string
	GetBuckets() []*cosipb.AccessedBucketB2
}

// requested reads a grant, but for its name.
func (s *Server) requested(ctx context.Context, req grant) (provisioner.GrantRequest, error) {
	out := provisioner.GrantRequest{
		Auth: authTypes[req.GetAuthenticationType().GetType()], Parameters: req.GetParameters(),
		Delivers: true, // the sidecar writes the Secret each time
	}
	if err := onlyS3(req.GetProtocol()); err != nil {
		return out, err
	}
	var modes form
	var err error
	out.Buckets, modes, err = accessed(req.GetBuckets())
	if modes != "" {
		if s.only != 0 && s.only&callers(modes) == 0 {
			return out, fault.New(fault.InvalidArgument, "the request is %s, which a sidecar of generation %s does not make; correct cosi.generation in the driver's configuration", modes, s.only)
		}
		s.caller.heard(klog.FromContext(ctx), modes)
	}
	return out, err
}

// onlyS3 refuses every other protocol.
func onlyS3(protocols ...*cosipb.ObjectProtocol) error {
	for _, p := range protocols {
		if p.GetType() != cosipb.ObjectProtocol_S3 {
			return fault.New(fault.InvalidArgument, "protocol %s is not supported; this driver serves S3", p.GetType())
		}
	}
	return nil
}

// bucketInfo is where a bucket is reached. The bucket's name is its S3 name,
// not the id that COSI keeps.
func bucketInfo(b provisioner.Bucket) *cosipb.ObjectProtocolAndBucketInfo {
	style := cosipb.S3AddressingStyle_VIRTUAL
	if b.Endpoint.PathStyle {
		style = cosipb.S3AddressingStyle_PATH
	}
	return &cosipb.ObjectProtocolAndBucketInfo{S3: &cosipb.S3BucketInfo{
		BucketId:        b.ID.Bucket,
		Endpoint:        b.Endpoint.URL,
		Region:          b.Endpoint.Region,
		AddressingStyle: &cosipb.S3AddressingStyle{Style: style},
	}}
}

var authTypes = map[cosipb.AuthenticationType_Type]cosi.AuthType{
	cosipb.AuthenticationType_KEY:             cosi.Key,
	cosipb.AuthenticationType_SERVICE_ACCOUNT: cosi.ServiceAccount,
}

// Tables are the codes of each RPC's faults, by full method. The sidecar gives
// up at INVALID_ARGUMENT, ALREADY_EXISTS, UNIMPLEMENTED and, in a grant,
// OUT_OF_RANGE, and repeats the call at all others.
func Tables() map[string]code.Table {
	common := code.Table{
		fault.InvalidArgument:    codes.InvalidArgument,
		fault.NotFound:           codes.NotFound,
		fault.Mismatch:           codes.AlreadyExists,
		fault.Conflict:           codes.FailedPrecondition, // it heals when the other one goes
		fault.FailedPrecondition: codes.FailedPrecondition,
		fault.LimitExceeded:      codes.ResourceExhausted,
		fault.PermissionDenied:   codes.PermissionDenied,
		fault.Unsupported:        codes.InvalidArgument, // it came from a class, which cannot change
		fault.OutOfRange:         codes.OutOfRange,
		fault.Pending:            codes.Unavailable,
		fault.RateLimited:        codes.Unavailable,
		fault.Unavailable:        codes.Unavailable,
		fault.Canceled:           codes.Canceled,
		fault.Internal:           codes.Internal,
	}
	single := common.With(code.Table{fault.OutOfRange: codes.InvalidArgument}) // OUT_OF_RANGE is for grants
	// What is gone is success; another NOT_FOUND has to be looked at. And an id is
	// generated without a look.
	gone := single.With(code.Table{fault.Mismatch: codes.FailedPrecondition, fault.NotFound: codes.FailedPrecondition})
	return map[string]code.Table{
		cosipb.Provisioner_DriverGenerateBucketId_FullMethodName:       gone,
		cosipb.Provisioner_DriverGenerateBucketAccessId_FullMethodName: gone.With(code.Table{fault.OutOfRange: codes.OutOfRange}),
		cosipb.Provisioner_DriverCreateBucket_FullMethodName:           single.With(code.Table{fault.NotFound: codes.Unavailable}), // what was found a moment ago
		cosipb.Provisioner_DriverGetBucket_FullMethodName:              single,
		cosipb.Provisioner_DriverGetExistingBucket_FullMethodName:      single,
		cosipb.Provisioner_DriverDeleteBucket_FullMethodName:           gone,
		cosipb.Provisioner_DriverGrantBucketAccess_FullMethodName:      common,
		cosipb.Provisioner_DriverRevokeBucketAccess_FullMethodName:     gone,
	}
}
