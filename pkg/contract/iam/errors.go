package iam

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/retry"
)

// kinds classifies IAM's codes (IAM API reference, "Common Errors" and those of
// each operation), those of the services that speak IAM, and the few of S3 that
// the provider meets.
var kinds = map[string]fault.Kind{
	"NoSuchEntity":                  fault.NotFound,
	"NoSuchBucket":                  fault.NotFound,
	"EntityAlreadyExists":           fault.Conflict,
	"LimitExceeded":                 fault.LimitExceeded,
	"AccessDenied":                  fault.PermissionDenied,
	"AccessDeniedException":         fault.PermissionDenied,
	"InvalidClientTokenId":          fault.PermissionDenied,
	"InvalidAccessKeyId":            fault.PermissionDenied,
	"SignatureDoesNotMatch":         fault.PermissionDenied,
	"MissingAuthenticationToken":    fault.PermissionDenied,
	"OptInRequired":                 fault.PermissionDenied,
	"UnrecognizedClientException":   fault.PermissionDenied,
	"RequestExpired":                fault.FailedPrecondition,
	"RequestTimeTooSkewed":          fault.FailedPrecondition,
	"MalformedPolicyDocument":       fault.FailedPrecondition,
	"InvalidInput":                  fault.FailedPrecondition,
	"ValidationError":               fault.FailedPrecondition,
	"UnmodifiableEntity":            fault.FailedPrecondition,
	"DeleteConflict":                fault.Unavailable, // what was made meanwhile
	"ConcurrentModification":        fault.Unavailable,
	"EntityTemporarilyUnmodifiable": fault.Unavailable,
	"ServiceFailure":                fault.Unavailable,
	"InternalFailure":               fault.Unavailable,
	"InternalError":                 fault.Unavailable,
	"ServiceUnavailable":            fault.Unavailable,
	"Throttling":                    fault.RateLimited,
	"ThrottlingException":           fault.RateLimited,
	"RequestLimitExceeded":          fault.RateLimited,
	"TooManyRequests":               fault.RateLimited,
	"SlowDown":                      fault.RateLimited,
	"InvalidAction":                 fault.Unsupported,
	"NotImplemented":                fault.Unsupported,
	"MethodNotAllowed":              fault.Unsupported,
}

// cures are what to do, where the kind says it.
var cures = map[fault.Kind]string{
	fault.PermissionDenied: "check the backend's credentials, and that they may manage IAM users below its path",
	fault.Unsupported:      "check that the backend's url is an IAM API",
	fault.LimitExceeded:    "ask the service's operator for more, or delete what is not needed",
}

const skewed = "set the clock of the driver's node"

func code(err error) string {
	var answer smithy.APIError
	if errors.As(err, &answer) {
		return answer.ErrorCode()
	}
	return ""
}

// try makes a call of the IAM API as the administrator of a contract's account,
// and again, if it can be repeated, where that may help.
func try[Out any](ctx context.Context, p *Provider, operation, name string, repeatable bool, call func(context.Context, func(*iam.Options)) (Out, error)) (Out, error) {
	var out Out
	pair, err := p.Credentials(name)
	if err != nil {
		return out, err
	}
	as := func(o *iam.Options) {
		o.Credentials, o.APIOptions = signed.Key(pair), append(o.APIOptions, signed.Said(pair))
	}
	once := func() (err error) {
		out, err = call(ctx, as)
		err = classify(err, operation)
		p.Observe(operation, err)
		return err
	}
	if !repeatable {
		return out, once()
	}
	err = retry.Do(ctx, once)
	return out, err
}

// classify turns an error of the SDK into a fault; nil stays nil.
func classify(err error, operation string) error {
	if err == nil {
		return nil
	}
	var answer smithy.APIError
	var response *smithyhttp.ResponseError
	status := 0
	if errors.As(err, &response) && response.Response != nil {
		status = response.HTTPStatusCode()
	}
	var f *fault.Error
	switch {
	case errors.As(err, &answer):
		kind, known := kinds[answer.ErrorCode()]
		if !known {
			kind = kindOfStatus(status)
		}
		said := answer.ErrorCode()
		cure := cures[kind]
		if isSkew(answer) {
			kind, cure = fault.FailedPrecondition, skewed
		}
		if kind == fault.FailedPrecondition && cure == "" {
			cure = answer.ErrorMessage()
		}
		if cure != "" {
			said += ": " + cure
		}
		f = fault.Wrap(kind, err, "the service refused %s (%s)", operation, said)
	case status >= 300:
		f = fault.Wrap(kindOfStatus(status), err, "the service answered %s with HTTP %d; check the backend's address", operation, status)
	case status != 0:
		f = fault.Wrap(fault.Unavailable, err, "the service's answer to %s was cut short, or is none", operation)
	default:
		return fault.NoAnswer(err, operation, "the service")
	}
	if response != nil && response.Response != nil {
		f.RetryAfter = retry.After(response.Response.Header)
	}
	return f
}

// isSkew tells a signature of another time from a wrong one, which have the
// same code.
func isSkew(answer smithy.APIError) bool {
	text := answer.ErrorMessage()
	return answer.ErrorCode() == "RequestExpired" || answer.ErrorCode() == "RequestTimeTooSkewed" ||
		strings.Contains(text, "Signature expired") || strings.Contains(text, "not yet current")
}

func kindOfStatus(status int) fault.Kind {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fault.PermissionDenied
	case status == http.StatusTooManyRequests:
		return fault.RateLimited
	case status == http.StatusNotImplemented || status == http.StatusMethodNotAllowed:
		return fault.Unsupported
	case status == http.StatusBadRequest || status == http.StatusConflict:
		return fault.FailedPrecondition
	}
	return fault.Unavailable
}
