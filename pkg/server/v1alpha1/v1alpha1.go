// Package v1alpha1 translates COSI v1alpha1, the API of the released sidecars
// (v0.2.x), to the driver's use cases and back. It decides nothing but which
// gRPC code a fault becomes.
package v1alpha1

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
)

// Server serves the Identity and Provisioner services.
type Server struct {
	// Name is what DriverGetInfo answers.
	Name string
	// Provisioner carries out the use cases.
	Provisioner *provisioner.Provisioner
}

var (
	_ cosiproto.IdentityServer    = (*Server)(nil)
	_ cosiproto.ProvisionerServer = (*Server)(nil)
)

// Register adds both services to a gRPC server.
func (s *Server) Register(r *grpc.Server) {
	cosiproto.RegisterIdentityServer(r, s)
	cosiproto.RegisterProvisionerServer(r, s)
}

// DriverGetInfo answers the name that classes give in driverName.
func (s *Server) DriverGetInfo(context.Context, *cosiproto.DriverGetInfoRequest) (*cosiproto.DriverGetInfoResponse, error) {
	return &cosiproto.DriverGetInfoResponse{Name: s.Name}, nil
}

// DriverCreateBucket makes a bucket. The sidecar ignores bucket_info; it is
// filled for those who look.
func (s *Server) DriverCreateBucket(ctx context.Context, req *cosiproto.DriverCreateBucketRequest) (*cosiproto.DriverCreateBucketResponse, error) {
	b, err := s.Provisioner.CreateBucket(ctx, req.GetName(), req.GetParameters())
	if err != nil {
		return nil, toStatus(err, createCodes)
	}
	return &cosiproto.DriverCreateBucketResponse{
		BucketId: b.ID.String(),
		BucketInfo: &cosiproto.Protocol{Type: &cosiproto.Protocol_S3{S3: &cosiproto.S3{
			Region: b.Endpoint.Region, SignatureVersion: cosiproto.S3SignatureVersion_S3V4,
		}}},
	}, nil
}

// DriverDeleteBucket deletes a bucket and every key given on it.
func (s *Server) DriverDeleteBucket(ctx context.Context, req *cosiproto.DriverDeleteBucketRequest) (*cosiproto.DriverDeleteBucketResponse, error) {
	if err := s.Provisioner.DeleteBucket(ctx, req.GetBucketId()); err != nil {
		return nil, toStatus(err, deleteCodes)
	}
	return &cosiproto.DriverDeleteBucketResponse{}, nil
}

// The sidecar wants exactly one entry, under this name, with these keys; it
// takes a missing one for an empty text
// (v0.2.2, client/apis/objectstorage/consts/consts.go).
const (
	credentialsS3   = "s3"
	accessKeyID     = "accessKeyID"
	accessSecretKey = "accessSecretKey"
	endpoint        = "endpoint"
	region          = "region"
)

// DriverGrantBucketAccess gives an access its key.
func (s *Server) DriverGrantBucketAccess(ctx context.Context, req *cosiproto.DriverGrantBucketAccessRequest) (*cosiproto.DriverGrantBucketAccessResponse, error) {
	access, err := s.Provisioner.GrantAccess(ctx, req.GetName(), authTypes[req.GetAuthenticationType()], req.GetParameters(),
		provisioner.BucketRequest{ID: req.GetBucketId()})
	if err != nil {
		return nil, toStatus(err, grantCodes)
	}
	at := access.Buckets[0].Endpoint
	return &cosiproto.DriverGrantBucketAccessResponse{
		AccountId: access.ID.String(),
		Credentials: map[string]*cosiproto.CredentialDetails{credentialsS3: {Secrets: map[string]string{
			accessKeyID:     access.Key.AccessKeyID,
			accessSecretKey: access.Key.SecretAccessKey.Reveal(),
			endpoint:        at.URL,
			region:          at.Region,
		}}},
	}, nil
}

var authTypes = map[cosiproto.AuthenticationType]cosi.AuthType{
	cosiproto.AuthenticationType_Key: cosi.Key,
	cosiproto.AuthenticationType_IAM: cosi.ServiceAccount,
}

// DriverRevokeBucketAccess takes a key away.
func (s *Server) DriverRevokeBucketAccess(ctx context.Context, req *cosiproto.DriverRevokeBucketAccessRequest) (*cosiproto.DriverRevokeBucketAccessResponse, error) {
	if err := s.Provisioner.RevokeAccess(ctx, req.GetAccountId(), req.GetBucketId()); err != nil {
		return nil, toStatus(err, deleteCodes)
	}
	return &cosiproto.DriverRevokeBucketAccessResponse{}, nil
}

// The codes of faults, where all RPCs agree.
var commonCodes = map[fault.Kind]codes.Code{
	fault.InvalidArgument:    codes.InvalidArgument,
	fault.NotFound:           codes.NotFound,
	fault.FailedPrecondition: codes.FailedPrecondition,
	fault.LimitExceeded:      codes.ResourceExhausted,
	fault.PermissionDenied:   codes.PermissionDenied,
	fault.Unsupported:        codes.InvalidArgument, // it came from a class: the specification's Unimplemented is for whole RPCs
	fault.Pending:            codes.Unavailable,
	fault.RateLimited:        codes.Unavailable,
	fault.Unavailable:        codes.Unavailable,
	fault.Canceled:           codes.Canceled,
	fault.Internal:           codes.Internal,
}

// The codes of the kinds that depend on the RPC.
var (
	// The specification's ALREADY_EXISTS is for a bucket made with other
	// parameters. For somebody else's bucket it would be legal too, but the
	// v0.2.2 sidecar hides the message of that code from the user.
	createCodes = map[fault.Kind]codes.Code{fault.Mismatch: codes.AlreadyExists, fault.Conflict: codes.FailedPrecondition}
	// ALREADY_EXISTS would make the v0.2.2 sidecar read the response that it
	// has not got, and crash.
	grantCodes = map[fault.Kind]codes.Code{fault.Mismatch: codes.FailedPrecondition, fault.Conflict: codes.FailedPrecondition}
	// NOT_FOUND would be taken for success by the sidecar in Delete, and is
	// retried for ever in Revoke.
	deleteCodes = map[fault.Kind]codes.Code{fault.Mismatch: codes.FailedPrecondition, fault.Conflict: codes.FailedPrecondition, fault.NotFound: codes.FailedPrecondition}
)

// toStatus is the one place where a fault of this API version gets its code.
func toStatus(err error, special map[fault.Kind]codes.Code) error {
	kind := fault.KindOf(err)
	code, ok := special[kind]
	if !ok {
		if code, ok = commonCodes[kind]; !ok {
			code = codes.Internal
		}
	}
	return status.Error(code, err.Error())
}
