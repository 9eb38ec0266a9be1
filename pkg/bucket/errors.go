package bucket

import (
	"errors"
	"net/http"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

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
	"RequestTimeTooSkewed":                fault.FailedPrecondition,
	"TooManyBuckets":                      fault.LimitExceeded,
	"QuotaExceeded":                       fault.LimitExceeded,
	"AccessDenied":                        fault.PermissionDenied,
	"InvalidAccessKeyId":                  fault.PermissionDenied,
	"SignatureDoesNotMatch":               fault.PermissionDenied,
	"AllAccessDisabled":                   fault.PermissionDenied,
	"AccountProblem":                      fault.PermissionDenied,
	"ExpiredToken":                        fault.PermissionDenied,
	"UserSuspended":                       fault.PermissionDenied,
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
	"MethodNotAllowed":                    fault.Unsupported,
	"NotImplemented":                      fault.Unsupported,
	"SlowDown":                            fault.RateLimited,
	"Throttling":                          fault.RateLimited,
	"ThrottlingException":                 fault.RateLimited,
	"TooManyRequests":                     fault.RateLimited,
	"RequestLimitExceeded":                fault.RateLimited,
	"OperationAborted":                    fault.Unavailable,
	"RequestTimeout":                      fault.Unavailable,
	"InternalError":                       fault.Unavailable,
	"ServiceUnavailable":                  fault.Unavailable,
}

// cures are what to do, where the code says it.
var cures = map[string]string{
	"BucketAlreadyExists":           "the name is taken by another contract of the service; choose another name",
	"BucketNotEmpty":                "it still holds objects; delete them, or let its BucketClass say onDelete: empty",
	"VersionedBucketNotEmpty":       "it still holds versions of objects; delete them, or let its BucketClass say onDelete: empty",
	"AccessControlListNotSupported": "ACLs are off in this bucket; let the class say objectOwnership: BucketOwnerPreferred, or leave acl and the grants out of it",
	"RequestTimeTooSkewed":          "set the clock of the driver's node",
	"TooManyBuckets":                "the contract's bucket limit is reached; delete a bucket or raise the limit",
}

// code is S3's own code of an error, "" if the error is not S3's answer.
func code(err error) string {
	var answer smithy.APIError
	if errors.As(err, &answer) {
		return answer.ErrorCode()
	}
	return ""
}

// KeyRefused reports whether an error of this package says that the storage no
// longer knows the contract's own key, as opposed to denying it something.
func KeyRefused(err error) bool {
	c := code(err)
	return c == "InvalidAccessKeyId" || c == "SignatureDoesNotMatch"
}

// classify turns an error of the SDK into a fault; nil stays nil. Which bucket
// it was about is for the caller to say.
func classify(err error, operation string) error {
	if err == nil {
		return nil
	}
	var answer smithy.APIError
	var response *smithyhttp.ResponseError
	hasStatus := errors.As(err, &response) && response.Response != nil && response.HTTPStatusCode() != 0 // 0: no answer came
	switch {
	case errors.As(err, &answer):
		kind, known := kinds[answer.ErrorCode()]
		if !known {
			kind = kindOfStatus(response, hasStatus)
		}
		said := answer.ErrorCode()
		if cure, ok := cures[said]; ok {
			said += ": " + cure
		} else if text := answer.ErrorMessage(); text != "" {
			said += ": " + text
		}
		return fault.Wrap(kind, err, "the storage refused %s (%s)", operation, said)
	case hasStatus && response.HTTPStatusCode() < http.StatusMultipleChoices:
		return fault.Wrap(fault.Unavailable, err, "the storage's answer to %s is not what S3 promises; check the backend's address", operation)
	case hasStatus:
		return fault.Wrap(kindOfStatus(response, true), err, "the storage answered %s with HTTP %d", operation, response.HTTPStatusCode())
	}
	return fault.NoAnswer(err, operation, "the storage")
}

func kindOfStatus(response *smithyhttp.ResponseError, known bool) fault.Kind {
	if !known {
		return fault.Unavailable
	}
	// A bucket is gone when S3 says NoSuchBucket, not when whatever stands in
	// front of it has no backend: every other 404 is trouble that may pass.
	switch status := response.HTTPStatusCode(); {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fault.PermissionDenied
	case status == http.StatusTooManyRequests:
		return fault.RateLimited
	case status == http.StatusNotImplemented || status == http.StatusMethodNotAllowed:
		return fault.Unsupported
	case status == http.StatusConflict || status == http.StatusPreconditionFailed || status == http.StatusBadRequest:
		return fault.FailedPrecondition // a 400 of no known code need not be the request's fault, nor be for good
	}
	return fault.Unavailable
}

// NotEmpty reports whether an error of this package says that a bucket holds
// something.
func NotEmpty(err error) bool {
	c := code(err)
	return c == "BucketNotEmpty" || c == "VersionedBucketNotEmpty"
}
