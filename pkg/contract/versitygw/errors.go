package versitygw

import (
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// kinds classifies the gateway's codes (versitygw v1.8.0, s3err).
var kinds = map[string]fault.Kind{
	"XAdminAccessDenied":       fault.PermissionDenied,
	"XAdminUserNotFound":       fault.NotFound,
	"NoSuchBucket":             fault.NotFound,
	"NoSuchBucketPolicy":       fault.NotFound,
	"XAdminUserExists":         fault.Conflict,
	"XAdminMethodNotSupported": fault.Unsupported,
	"MalformedPolicy":          fault.FailedPrecondition,
}

// cures are what to do, where the code says it.
var cures = map[string]string{
	"AccessDenied":             "check that the backend's credentials are those of root or of an account of role admin",
	"XAdminAccessDenied":       "check that the backend's credentials are those of root or of an account of role admin",
	"XAdminMethodNotSupported": "the gateway has an IAM service of its own; use a backend of type iam",
	"MalformedPolicy":          "the bucket's policy names an account that is gone; take that statement out",
}

// answers is how the gateway's refusals are read.
var answers = signed.Table{
	Service: "the gateway", Kinds: kinds, Cures: cures,
	CuresOf: map[fault.Kind]string{fault.PermissionDenied: "check the backend's credentialsFile"},
	Wrong:   "check the backend's addresses",
}
