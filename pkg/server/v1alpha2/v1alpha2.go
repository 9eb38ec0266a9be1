// Package v1alpha2 translates COSI v1alpha2 to the driver's use cases and back.
//
// What its sidecar does with an answer decides two things here. A response that
// breaks a rule is terminal, and what was made for it is never taken back; so
// every request is checked as a whole before anything is made. And three codes
// are terminal, so none of them is given to trouble that may pass.
package v1alpha2

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

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
}

// New returns a server of a driver that is called name.
func New(name string, p *provisioner.Provisioner) *Server {
	return &Server{name: name, provisioner: p, codes: Tables()}
}

// Register adds both services to a gRPC server.
func (s *Server) Register(r *grpc.Server) {
	cosipb.RegisterIdentityServer(r, s)
	cosipb.RegisterProvisionerServer(r, s)
}

// DriverGetInfo answers the name that classes give in driverName, and S3.
func (s *Server) DriverGetInfo(context.Context, *cosipb.DriverGetInfoRequest) (*cosipb.DriverGetInfoResponse, error) {
	return &cosipb.DriverGetInfoResponse{
		Name:               s.name,
		SupportedProtocols: []*cosipb.ObjectProtocol{{Type: cosipb.ObjectProtocol_S3}},
	}, nil
}

// DriverCreateBucket makes a bucket.
func (s *Server) DriverCreateBucket(ctx context.Context, req *cosipb.DriverCreateBucketRequest) (*cosipb.DriverCreateBucketResponse, error) {
	err := onlyS3(req.GetProtocols()...)
	var b provisioner.Bucket
	if err == nil {
		b, err = s.provisioner.CreateBucket(ctx, req.GetName(), req.GetParameters())
	}
	if err != nil {
		return nil, s.codes[cosipb.Provisioner_DriverCreateBucket_FullMethodName].Status(err)
	}
	return &cosipb.DriverCreateBucketResponse{BucketId: b.ID.String(), Protocols: bucketInfo(b)}, nil
}

// DriverGetExistingBucket finds a bucket that the driver made, or adopts one
// that it did not.
func (s *Server) DriverGetExistingBucket(ctx context.Context, req *cosipb.DriverGetExistingBucketRequest) (*cosipb.DriverGetExistingBucketResponse, error) {
	err := onlyS3(req.GetProtocols()...)
	var b provisioner.Bucket
	if err == nil {
		b, err = s.provisioner.AdoptBucket(ctx, req.GetExistingBucketId(), req.GetParameters())
	}
	if err != nil {
		return nil, s.codes[cosipb.Provisioner_DriverGetExistingBucket_FullMethodName].Status(err)
	}
	return &cosipb.DriverGetExistingBucketResponse{BucketId: b.ID.String(), Protocols: bucketInfo(b)}, nil
}

// DriverDeleteBucket deletes a bucket and every key given on it; what it holds
// only if the Bucket object that is deleted says so too. A bucket made by a
// class that empties, and taken on later by a Bucket object of its own, keeps
// its data.
func (s *Server) DriverDeleteBucket(ctx context.Context, req *cosipb.DriverDeleteBucketRequest) (*cosipb.DriverDeleteBucketResponse, error) {
	if err := s.provisioner.DeleteBucket(ctx, req.GetBucketId(), params.Empties(req.GetParameters())); err != nil {
		return nil, s.codes[cosipb.Provisioner_DriverDeleteBucket_FullMethodName].Status(err)
	}
	return &cosipb.DriverDeleteBucketResponse{}, nil
}

// DriverGrantBucketAccess gives an access its key.
func (s *Server) DriverGrantBucketAccess(ctx context.Context, req *cosipb.DriverGrantBucketAccessRequest) (*cosipb.DriverGrantBucketAccessResponse, error) {
	buckets, err := requested(req)
	var access provisioner.Access
	if err == nil {
		access, err = s.provisioner.GrantAccess(ctx, provisioner.GrantRequest{
			Name: req.GetAccountName(), Auth: authTypes[req.GetAuthenticationType().GetType()], Parameters: req.GetParameters(), Buckets: buckets,
			Delivers: true, // the sidecar writes the Secret each time
		})
	}
	if err != nil {
		return nil, s.codes[cosipb.Provisioner_DriverGrantBucketAccess_FullMethodName].Status(err)
	}
	resp := &cosipb.DriverGrantBucketAccessResponse{
		AccountId: access.ID.String(),
		Credentials: &cosipb.CredentialInfo{S3: &cosipb.S3CredentialInfo{
			AccessKeyId: access.Key.AccessKeyID, AccessSecretKey: access.Key.SecretAccessKey.Reveal(),
		}},
	}
	for _, b := range access.Buckets {
		resp.Buckets = append(resp.Buckets, &cosipb.DriverGrantBucketAccessResponse_BucketInfo{BucketId: b.ID.String(), BucketInfo: bucketInfo(b)})
	}
	return resp, nil
}

// DriverRevokeBucketAccess takes a key away.
func (s *Server) DriverRevokeBucketAccess(ctx context.Context, req *cosipb.DriverRevokeBucketAccessRequest) (*cosipb.DriverRevokeBucketAccessResponse, error) {
	ids := make([]string, len(req.GetBuckets()))
	for i, b := range req.GetBuckets() {
		ids[i] = b.GetBucketId()
	}
	if err := s.provisioner.RevokeAccess(ctx, req.GetAccountId(), ids...); err != nil {
		return nil, s.codes[cosipb.Provisioner_DriverRevokeBucketAccess_FullMethodName].Status(err)
	}
	return &cosipb.DriverRevokeBucketAccessResponse{}, nil
}

// requested reads the buckets of a grant, each with its mode.
func requested(req *cosipb.DriverGrantBucketAccessRequest) ([]provisioner.BucketRequest, error) {
	if err := onlyS3(req.GetProtocol()); err != nil {
		return nil, err
	}
	out := make([]provisioner.BucketRequest, len(req.GetBuckets()))
	for i, b := range req.GetBuckets() {
		mode, ok := modes[b.GetAccessMode().GetMode()]
		if !ok {
			return nil, fault.New(fault.InvalidArgument, "the access mode of bucket %q is missing or unknown; set accessMode: ReadWrite, ReadOnly or WriteOnly in the BucketAccess", b.GetBucketId())
		}
		out[i] = provisioner.BucketRequest{ID: b.GetBucketId(), Mode: mode}
	}
	return out, nil
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

var modes = map[cosipb.AccessMode_Mode]cosi.AccessMode{
	cosipb.AccessMode_READ_WRITE: cosi.ReadWrite,
	cosipb.AccessMode_READ_ONLY:  cosi.ReadOnly,
	cosipb.AccessMode_WRITE_ONLY: cosi.WriteOnly,
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
	// What is gone is success in both; another NOT_FOUND has to be looked at.
	gone := single.With(code.Table{fault.Mismatch: codes.FailedPrecondition, fault.NotFound: codes.FailedPrecondition})
	return map[string]code.Table{
		cosipb.Provisioner_DriverCreateBucket_FullMethodName:       single.With(code.Table{fault.NotFound: codes.Unavailable}), // what was found a moment ago
		cosipb.Provisioner_DriverGetExistingBucket_FullMethodName:  single,
		cosipb.Provisioner_DriverDeleteBucket_FullMethodName:       gone,
		cosipb.Provisioner_DriverGrantBucketAccess_FullMethodName:  common,
		cosipb.Provisioner_DriverRevokeBucketAccess_FullMethodName: gone,
	}
}
