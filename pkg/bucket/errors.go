package bucket

import (
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// kinds classifies S3's error codes (Amazon S3 API reference, "Error
// responses", and those of the services that speak S3).
var kinds = map[string]fault.Kind{
	"BucketAlreadyExists":                 fault.Conflict,
	"BucketAlreadyOwnedByYou":             fault.Conflict,
	"NoSuchBucket":                        fault.NotFound,
	"BucketNotEmpty":                      fault.FailedPrecondition,
	"VersionedBucketNotEmpty":             fault.FailedPrecondition,
	"InvalidBucketState":                  fault.FailedPrecondition,
	"AccessControlListNotSupported":       fault.FailedPrecondition,
	"InvalidBucketAclWithObjectOwnership": fault.FailedPrecondition,
	"TooManyBuckets":                      fault.LimitExceeded,
	"QuotaExceeded":                       fault.LimitExceeded,
	"AllAccessDisabled":                   fault.PermissionDenied,
	"AccountProblem":                      fault.PermissionDenied,
	"ExpiredToken":                        fault.PermissionDenied,
	"InvalidArgument":                     fault.InvalidArgument,
	"InvalidRequest":                      fault.InvalidArgument,
	"InvalidBucketName":                   fault.InvalidArgument,
	"InvalidTag":                          fault.InvalidArgument,
	"InvalidLocationConstraint":           fault.InvalidArgument,
	"MalformedACLError":                   fault.InvalidArgument,
	"MalformedPolicy":                     fault.InvalidArgument,
	"MalformedXML":                        fault.InvalidArgument,
	"UnresolvableGrantByEmailAddress":     fault.InvalidArgument,
	"IllegalLocationConstraintException":  fault.InvalidArgument,
}

// cures are what to do, where the code says it.
var cures = map[string]string{
	"BucketAlreadyExists":           "the name is taken by another contract of the service; choose another name",
	"BucketNotEmpty":                "it still holds objects; delete them, and the deletion goes on. For new buckets a new BucketClass can say onDelete: empty",
	"VersionedBucketNotEmpty":       "it still holds versions of objects; delete them, and the deletion goes on. For new buckets a new BucketClass can say onDelete: empty",
	"AccessControlListNotSupported": "ACLs are off in this bucket; use a BucketClass with objectOwnership: BucketOwnerPreferred, or one without acl and grants",
	"TooManyBuckets":                "the contract's bucket limit is reached; delete a bucket or raise the limit",
}

// answers is how S3's refusals are read.
var answers = signed.Table{Service: "the storage", Kinds: kinds, Cures: cures, Wrong: "check the backend's address"}

// classify turns an error of the SDK into a fault; nil stays nil. Which bucket
// it was about is for the caller to say.
func classify(err error, operation string) error { return answers.Fault(err, operation) }

// KeyRefused reports whether an error of this package says that the storage no
// longer knows the contract's own key, as opposed to denying it something.
func KeyRefused(err error) bool {
	c := signed.Code(err)
	return c == "InvalidAccessKeyId" || c == "SignatureDoesNotMatch"
}

// NotEmpty reports whether an error of this package says that a bucket holds
// something.
func NotEmpty(err error) bool {
	c := signed.Code(err)
	return c == "BucketNotEmpty" || c == "VersionedBucketNotEmpty"
}
