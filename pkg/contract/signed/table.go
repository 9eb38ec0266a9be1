package signed

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/retry"
)

// Table is what is known of a service's answers.
type Table struct {
	// Service is what messages call it: "the storage".
	Service string
	// Kinds classifies the service's codes beside those that all have.
	Kinds map[string]fault.Kind
	// Cures say what to do about some codes, and CuresOf about kinds.
	Cures   map[string]string
	CuresOf map[fault.Kind]string
	// Wrong is what to do about an answer without a code that is known.
	Wrong string
}

// common are the codes of S3 and IAM that mean the same everywhere, in the
// dialects too (Amazon S3 and IAM API references, the common errors).
var common = map[string]fault.Kind{
	"AccessDenied":           fault.PermissionDenied,
	"InvalidAccessKeyId":     fault.PermissionDenied,
	"SignatureDoesNotMatch":  fault.PermissionDenied,
	"UserSuspended":          fault.PermissionDenied,
	"RequestTimeTooSkewed":   fault.FailedPrecondition,
	"LimitExceeded":          fault.LimitExceeded,
	"MethodNotAllowed":       fault.Unsupported,
	"NotImplemented":         fault.Unsupported,
	"RequestLimitExceeded":   fault.RateLimited,
	"SlowDown":               fault.RateLimited,
	"Throttling":             fault.RateLimited,
	"ThrottlingException":    fault.RateLimited,
	"TooManyRequests":        fault.RateLimited,
	"ConcurrentModification": fault.Unavailable, // another process was faster
	"InternalError":          fault.Unavailable,
	"OperationAborted":       fault.Unavailable,
	"RequestTimeout":         fault.Unavailable,
	"ServiceUnavailable":     fault.Unavailable,
}

// Kind is the kind of a code; false if the service has no such code.
func (t Table) Kind(code string) (fault.Kind, bool) {
	kind, known := t.Kinds[code]
	if !known {
		kind, known = common[code]
	}
	return kind, known
}

// Code is the service's own code of an error, "" if it is no answer of its.
func Code(err error) string {
	if answer, ok := errors.AsType[smithy.APIError](err); ok {
		return answer.ErrorCode()
	}
	return ""
}

// Fault turns an error of the AWS SDK into a fault; nil stays nil. What the call
// was about is for the caller to say.
func (t Table) Fault(err error, operation string) error {
	var answer smithy.APIError
	var response *smithyhttp.ResponseError
	status, header := 0, http.Header(nil) // 0: no answer came
	if errors.As(err, &response) && response.Response != nil {
		status, header = response.HTTPStatusCode(), response.Response.Header
	} else if other, ok := errors.AsType[interface {
		error
		HTTPStatusCode() int
	}](err); ok {
		status = other.HTTPStatusCode()
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answer):
		none := strings.NewReplacer("UnknownError", "") // the SDK's word for it
		return t.refusal(err, operation, none.Replace(answer.ErrorCode()), none.Replace(answer.ErrorMessage()), status, header)
	case status == 0:
		return fault.NoAnswer(err, operation, t.Service)
	case status < http.StatusMultipleChoices:
		return fault.Wrap(fault.Unavailable, err, "the answer of %s to %s is not what its API promises; %s", t.Service, operation, t.Wrong)
	}
	return t.refusal(err, operation, "", "", status, header)
}

// refusal is the fault of an answer that is no success. Whatever stands between
// driver and service may answer too: then the status decides.
func (t Table) refusal(cause error, operation, code, text string, status int, header http.Header) error {
	kind, known := t.Kind(code)
	if !known {
		kind = kindOf(status)
	}
	why := cmp.Or(fault.Said(code), "HTTP "+strconv.Itoa(status))
	cure := cmp.Or(t.Cures[code], t.CuresOf[kind], fault.Said(text))
	if cure == "" && !known {
		cure = t.Wrong
	}
	if code == "RequestTimeTooSkewed" {
		cure = "set the clock of the driver's node"
	}
	if cure != "" {
		why += ": " + cure
	}
	f := fault.Wrap(kind, cause, "%s refused %s (%s)", t.Service, operation, why)
	f.RetryAfter = retry.After(header)
	return f
}

// kindOf is for codes that are not in a table. What is gone has a code of the
// service's: any other 404 is of whatever has no service behind it, and passes.
func kindOf(status int) fault.Kind {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.PermissionDenied
	case http.StatusTooManyRequests:
		return fault.RateLimited
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		return fault.Unsupported
	case http.StatusBadRequest, http.StatusConflict, http.StatusPreconditionFailed:
		return fault.FailedPrecondition // a 400 need not be the request's fault, nor be for good
	}
	return fault.Unavailable
}
