package signed

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// S3 returns a client of the SDK that acts with a key.
func S3(at cosi.Endpoint, pair secret.KeyPair, client *http.Client, change ...func(*s3.Options)) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &at.URL, Region: at.Region, UsePathStyle: at.PathStyle, HTTPClient: client,
		Credentials: Key(pair), APIOptions: []func(*middleware.Stack) error{Said(pair)},
		// The driver makes no directory buckets, and each client would have a cache for their sessions.
		ExpressCredentials: noSessions{}, DisableS3ExpressSessionAuth: aws.Bool(true),
		// Services other than AWS know no checksum trailers.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	}, change...)
}

type noSessions struct{}

// Retrieve implements [s3.ExpressCredentialsProvider].
func (noSessions) Retrieve(context.Context, string) (aws.Credentials, error) {
	return aws.Credentials{}, errors.New("directory buckets are not supported")
}

// Key is a pair as the AWS SDK takes it.
func Key(pair secret.KeyPair) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: pair.AccessKeyID, SecretAccessKey: pair.SecretAccessKey.Reveal(), SessionToken: pair.SessionToken.Reveal()}, nil
	})
}

// Said is an option of a client of the AWS SDK: what a service says in an error
// is fit for a message, and does not tell the pair's secrets.
func Said(pair secret.KeyPair) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("Said",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				out, metadata, err := next.HandleInitialize(ctx, in)
				if answer, ok := errors.AsType[smithy.APIError](err); ok {
					key, token := pair.SecretAccessKey.Reveal(), pair.SessionToken.Reveal()
					err = errors.Join(&smithy.GenericAPIError{Code: fault.Said(answer.ErrorCode(), key, token), Message: fault.Said(answer.ErrorMessage(), key, token)}, err)
				}
				return out, metadata, err
			}), middleware.After)
	}
}
