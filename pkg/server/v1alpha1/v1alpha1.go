// Package v1alpha1 translates COSI v1alpha1, the API of the released sidecars
// (v0.2.x), to the driver's use cases and back. It decides nothing but which
// gRPC code a fault becomes.
package v1alpha1

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
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
	return &cosiproto.DriverGetInfoResponse{Name: s.name}, nil
}

// DriverCreateBucket makes a bucket. The sidecar ignores bucket_info; it is
// filled for those who look.
func (s *Server) DriverCreateBucket(ctx context.Context, req *cosiproto.DriverCreateBucketRequest) (*cosiproto.DriverCreateBucketResponse, error) {
	b, err := s.provisioner.CreateBucket(ctx, req.GetName(), req.GetParameters())
	if err != nil {
		return nil, s.codes[createBucket].Status(err)
	}
	return &cosiproto.DriverCreateBucketResponse{
		BucketId: b.ID.String(),
		BucketInfo: &cosiproto.Protocol{Type: &cosiproto.Protocol_S3{S3: &cosiproto.S3{
			Region: b.Endpoint.Region, SignatureVersion: cosiproto.S3SignatureVersion_S3V4,
		}}},
	}, nil
}

// DriverDeleteBucket deletes a bucket and every key given on it; what it holds
// only if the Bucket object that is deleted says so too.
func (s *Server) DriverDeleteBucket(ctx context.Context, req *cosiproto.DriverDeleteBucketRequest) (*cosiproto.DriverDeleteBucketResponse, error) {
	if err := s.provisioner.DeleteBucket(ctx, req.GetBucketId(), params.Empties(deleteContextOf(req))); err != nil {
		return nil, s.codes[deleteBucket].Status(err)
	}
	return &cosiproto.DriverDeleteBucketResponse{}, nil
}

// deleteContextOf returns the Bucket's parameters. The v0.2.2 sidecar sends them
// in a field that the specification has had since v0.2.0: map<string, string>
// delete_context = 2.
func deleteContextOf(req *cosiproto.DriverDeleteBucketRequest) map[string]string {
	const deleteContext, key, value = 2, 1, 2
	out := map[string]string{}
	eachText(req.ProtoReflect().GetUnknown(), func(field protowire.Number, entry []byte) {
		if field != deleteContext {
			return
		}
		var k, v string
		eachText(entry, func(field protowire.Number, text []byte) {
			switch field {
			case key:
				k = string(text)
			case value:
				v = string(text)
			}
		})
		out[k] = v
	})
	return out
}

// eachText calls do for the length-delimited fields of a message; all others
// are passed over.
func eachText(message []byte, do func(protowire.Number, []byte)) {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		if kind == protowire.BytesType {
			text, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return
			}
			do(field, text)
		}
		if n = protowire.ConsumeFieldValue(field, kind, message); n < 0 {
			return
		}
		message = message[n:]
	}
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
	// The sidecar never overwrites a Secret (v0.2.2, bucketaccess_controller.go:265),
	// so the answer need not be what the application has.
	access, err := s.provisioner.GrantAccess(ctx, provisioner.GrantRequest{
		Name: req.GetName(), Auth: authTypes[req.GetAuthenticationType()], Parameters: req.GetParameters(),
		Buckets: []provisioner.BucketRequest{{ID: req.GetBucketId()}},
	})
	if err != nil {
		return nil, s.codes[grantAccess].Status(err)
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
	if err := s.provisioner.RevokeAccess(ctx, req.GetAccountId(), req.GetBucketId()); err != nil {
		return nil, s.codes[revokeAccess].Status(err)
	}
	return &cosiproto.DriverRevokeBucketAccessResponse{}, nil
}

// Tables are the codes of each RPC's faults, by full method.
func Tables() map[string]code.Table {
	common := code.Table{
		fault.InvalidArgument:    codes.InvalidArgument,
		fault.NotFound:           codes.NotFound,
		fault.Conflict:           codes.FailedPrecondition,
		fault.FailedPrecondition: codes.FailedPrecondition,
		fault.LimitExceeded:      codes.ResourceExhausted,
		fault.PermissionDenied:   codes.PermissionDenied,
		fault.Unsupported:        codes.InvalidArgument, // it came from a class: the specification's Unimplemented is for whole RPCs
		fault.OutOfRange:         codes.InvalidArgument, // this version asks for one bucket only
		fault.Pending:            codes.Unavailable,
		fault.RateLimited:        codes.Unavailable,
		fault.Unavailable:        codes.Unavailable,
		fault.Canceled:           codes.Canceled,
		fault.Internal:           codes.Internal,
	}
	// NOT_FOUND would be taken for success by the sidecar in Delete, and is
	// retried forever in Revoke.
	gone := common.With(code.Table{fault.Mismatch: codes.FailedPrecondition, fault.NotFound: codes.FailedPrecondition})
	return map[string]code.Table{
		// The specification's ALREADY_EXISTS is for a bucket made with other
		// parameters. For another owner's bucket it would be legal too, but the
		// v0.2.2 sidecar hides the message of that code from the user.
		createBucket: common.With(code.Table{fault.Mismatch: codes.AlreadyExists, fault.NotFound: codes.Unavailable}), // what was found a moment ago
		deleteBucket: gone,
		// ALREADY_EXISTS would make the v0.2.2 sidecar read the response that
		// it has not got, and crash.
		grantAccess:  common.With(code.Table{fault.Mismatch: codes.FailedPrecondition}),
		revokeAccess: gone,
	}
}

// The RPCs by full method; the generated code names services only.
const (
	createBucket = "/cosi.v1alpha1.Provisioner/DriverCreateBucket"
	deleteBucket = "/cosi.v1alpha1.Provisioner/DriverDeleteBucket"
	grantAccess  = "/cosi.v1alpha1.Provisioner/DriverGrantBucketAccess"
	revokeAccess = "/cosi.v1alpha1.Provisioner/DriverRevokeBucketAccess"
)
