package versitygw

import "github.com/contract-cosi/contract-cosi-driver/pkg/fault"

// kinds classifies the gateway's codes (versitygw v1.8.0, s3err).
var kinds = map[string]fault.Kind{
	"InvalidAccessKeyId":       fault.PermissionDenied,
	"SignatureDoesNotMatch":    fault.PermissionDenied,
	"AccessDenied":             fault.PermissionDenied,
	"XAdminAccessDenied":       fault.PermissionDenied,
	"XAdminUserNotFound":       fault.NotFound,
	"NoSuchBucket":             fault.NotFound,
	"NoSuchBucketPolicy":       fault.NotFound,
	"XAdminUserExists":         fault.Conflict,
	"XAdminMethodNotSupported": fault.Unsupported,
	"RequestTimeTooSkewed":     fault.FailedPrecondition,
	"MalformedPolicy":          fault.FailedPrecondition,
	"SlowDown":                 fault.RateLimited,
	"ServiceUnavailable":       fault.Unavailable,
	"InternalError":            fault.Unavailable,
}

// cures are what to do, where the code says it.
var cures = map[string]string{
	"InvalidAccessKeyId":       "check the backend's credentialsFile",
	"SignatureDoesNotMatch":    "check the backend's credentialsFile",
	"AccessDenied":             "check that the backend's credentials are those of root or of an account of role admin",
	"XAdminAccessDenied":       "check that the backend's credentials are those of root or of an account of role admin",
	"XAdminMethodNotSupported": "the gateway has an IAM service of its own; use a backend of type iam",
	"RequestTimeTooSkewed":     "set the clock of the driver's node",
	"MalformedPolicy":          "the bucket's policy names an account that is gone; take that statement out",
}
