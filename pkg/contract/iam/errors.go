package iam

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/retry"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// kinds classifies IAM's codes (IAM API reference, "Common Errors" and those of
// each operation), those of the services that speak IAM, and the few of S3 that
// the provider meets.
var kinds = map[string]fault.Kind{
	"NoSuchEntity":                  fault.NotFound,
	"NoSuchBucket":                  fault.NotFound,
	"EntityAlreadyExists":           fault.Conflict,
	"DeleteConflict":                fault.Conflict,
	"AccessDeniedException":         fault.PermissionDenied,
	"InvalidClientTokenId":          fault.PermissionDenied,
	"MissingAuthenticationToken":    fault.PermissionDenied,
	"OptInRequired":                 fault.PermissionDenied,
	"UnrecognizedClientException":   fault.PermissionDenied,
	"MalformedPolicyDocument":       fault.FailedPrecondition,
	"InvalidInput":                  fault.FailedPrecondition,
	"ValidationError":               fault.FailedPrecondition,
	"UnmodifiableEntity":            fault.FailedPrecondition,
	"EntityTemporarilyUnmodifiable": fault.Unavailable,
	"ServiceFailure":                fault.Unavailable,
	"InternalFailure":               fault.Unavailable,
	"InvalidAction":                 fault.Unsupported,
}

// cures are what to do, where the kind says it.
var cures = map[fault.Kind]string{
	fault.PermissionDenied: "check the backend's credentials, and that they may manage IAM users below its path",
	fault.Unsupported:      "check that the backend's url is an IAM API",
	fault.LimitExceeded:    "ask the service's operator for more, or delete what is not needed",
}

// answers is how the service's refusals are read.
var answers = signed.Table{Service: "the service", Kinds: kinds, CuresOf: cures, Wrong: "check the backend's address"}

// try makes a call of the IAM API as the administrator of a contract's account,
// and again, if it can be repeated, where that may help.
func try[In, Out any](ctx context.Context, p *Provider, operation, name string, repeatable bool, call func(context.Context, In, ...func(*iam.Options)) (Out, error), in In) (Out, error) {
	var out Out
	if strings.HasPrefix(operation, "Get") || strings.HasPrefix(operation, "List") { // all are POST
		ctx = transport.Reading(ctx)
	}
	pair, err := p.Credentials(ctx, name)
	if err != nil {
		return out, err
	}
	once := func() (err error) {
		out, err = call(ctx, in, func(o *iam.Options) {
			o.Credentials, o.APIOptions = signed.Key(pair), append(o.APIOptions, signed.Said(pair))
		})
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

// classify turns an error of the SDK into a fault; nil stays nil. A signature of
// another time has the code of a wrong one, or one of its own.
func classify(err error, operation string) error {
	var answer smithy.APIError
	if errors.As(err, &answer) && (answer.ErrorCode() == "RequestExpired" ||
		strings.Contains(answer.ErrorMessage(), "Signature expired") || strings.Contains(answer.ErrorMessage(), "not yet current")) {
		return fault.Wrap(fault.FailedPrecondition, err, "the service refused %s (%s: set the clock of the driver's node)", operation, answer.ErrorCode())
	}
	return answers.Fault(err, operation)
}
