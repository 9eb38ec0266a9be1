package signed

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Key is a pair as the AWS SDK takes it.
func Key(pair secret.KeyPair) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: pair.AccessKeyID, SecretAccessKey: pair.SecretAccessKey.Reveal()}, nil
	})
}

// Said is an option of a client of the AWS SDK: what a service says in an error
// is fit for a message, and does not tell the pair's secret.
func Said(pair secret.KeyPair) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("Said",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				out, metadata, err := next.HandleInitialize(ctx, in)
				var answer smithy.APIError
				if errors.As(err, &answer) {
					key := pair.SecretAccessKey.Reveal()
					err = said{err, fault.Said(answer.ErrorCode(), key), fault.Said(answer.ErrorMessage(), key), answer.ErrorFault()}
				}
				return out, metadata, err
			}), middleware.After)
	}
}

// said is an error of the SDK with other words.
type said struct {
	error
	code, message string
	fault         smithy.ErrorFault
}

// ErrorCode, ErrorMessage and ErrorFault implement smithy.APIError.
func (s said) ErrorCode() string             { return s.code }
func (s said) ErrorMessage() string          { return s.message }
func (s said) ErrorFault() smithy.ErrorFault { return s.fault }

// Unwrap returns the SDK's error.
func (s said) Unwrap() error { return s.error }
