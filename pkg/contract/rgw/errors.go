package rgw

import (
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// kinds classifies radosgw's codes, as 16.2 gives them on the calls that this
// package makes. Some of them are not what they say:
//
//   - DeleteUser of a user who owns buckets is BucketAlreadyExists;
//   - DeleteKey of a key that is not there is InvalidAccessKeyId, the same as a
//     call signed with a key that is none. It is never taken for success.
//
// Those of accounts are as the sources of Squid and Tentacle have them: an
// account that is not there is NoSuchKey, one that has users BucketNotEmpty.
var kinds = map[string]fault.Kind{
	"UserAlreadyExists":       fault.Conflict,
	"KeyExists":               fault.Conflict,
	"AccountAlreadyExists":    fault.Conflict,
	"NoSuchUser":              fault.NotFound,
	"NoSuchKey":               fault.NotFound,
	"NoSuchEntity":            fault.NotFound, // the same of the IAM API
	"BucketAlreadyExists":     fault.FailedPrecondition,
	"BucketNotEmpty":          fault.FailedPrecondition,
	"InvalidArgument":         fault.InvalidArgument,
	"InvalidTenantName":       fault.InvalidArgument,
	"InvalidRequest":          fault.InvalidArgument,
	"MalformedPolicyDocument": fault.Unsupported, // the policy is the driver's, and names what this release does not know
	"UnknownError":            fault.Unavailable,
}

// cures are what to do, where the code says it.
var cures = map[string]string{
	"KeyExists":               "another user has a key of this id",
	"AccountAlreadyExists":    "another account has this name",
	"BucketAlreadyExists":     "it still owns buckets; delete them first",
	"BucketNotEmpty":          "it still has users; delete them first",
	"AccessDenied":            "check that the driver's user has the capabilities users=* and user-policy=*, for quotas and usage of buckets also buckets=*, or what accounts need",
	"UserSuspended":           "check the driver's own user, and resume it",
	"MalformedPolicyDocument": "this release does not know what the policy of the key says",
	"MethodNotAllowed":        "let the gateway serve the admin and iam APIs (rgw enable apis)",
}

// answers is how the gateway's refusals are read.
var answers = signed.Table{
	Service: "the Ceph gateway", Kinds: kinds, Cures: cures,
	CuresOf: map[fault.Kind]string{fault.PermissionDenied: "check the backend's credentialsFile"},
	Wrong:   "check that the backend's url is a Ceph gateway that serves the Admin Ops API",
}
