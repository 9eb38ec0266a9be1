package contracttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// client is an application's, which has nothing but its key.
func client(at cosi.Endpoint, pair secret.KeyPair) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(at.URL), Region: at.Region, UsePathStyle: at.PathStyle,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: pair.AccessKeyID, SecretAccessKey: pair.SecretAccessKey.Reveal()}, nil
		}),
		RetryMaxAttempts:           3, // an answer that comes fast may find the connection closed by the SDK's end of the request
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
	})
}

func (e *env) put(c *s3.Client, bucket, key string) error {
	_, err := c.PutObject(e.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader("content of " + key)})
	return err
}

func (e *env) get(c *s3.Client, bucket, key string) error {
	out, err := c.GetObject(e.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return err
	}
	defer func() { _ = out.Body.Close() }()
	text, err := io.ReadAll(out.Body)
	if err == nil && string(text) != "content of "+key {
		err = fmt.Errorf("object %s holds %q", key, text)
	}
	return err
}

func (e *env) list(c *s3.Client, bucket, prefix string) error {
	_, err := c.ListObjectsV2(e.Context(), &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &prefix})
	return err
}

func (e *env) remove(c *s3.Client, bucket, key string) error {
	_, err := c.DeleteObject(e.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: &key})
	return err
}

func (e *env) allowed(what string, err error) {
	e.Helper()
	if err != nil {
		e.Errorf("%s: %v", what, err)
	}
}

// isRefused reports whether the storage refused a request for want of rights,
// as opposed to having failed at it. The status alone has to do where the connection
// of a write was closed before the body of the refusal arrived.
func isRefused(err error) bool {
	if answer, ok := errors.AsType[smithy.APIError](err); ok {
		return slices.Contains([]string{
			"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "Forbidden", "AllAccessDisabled", "UserSuspended", "QuotaExceeded", "TooManyBuckets",
		}, answer.ErrorCode())
	}
	response, ok := errors.AsType[*smithyhttp.ResponseError](err)
	return ok && response.HTTPStatusCode() == http.StatusForbidden
}

// unreachable is refused, for a bucket of another contract: where names are a
// contract's own affair, there is none of that name.
func (e *env) unreachable(what string, err error) {
	e.Helper()
	var answer smithy.APIError
	if errors.As(err, &answer) && answer.ErrorCode() == "NoSuchBucket" {
		return
	}
	e.refused(what, err)
}

func (e *env) refused(what string, err error) {
	e.Helper()
	if !isRefused(err) {
		e.Errorf("%s: got %v, want a refusal", what, err)
	}
}

// dead checks that a key is refused when the service has settled.
func (e *env) dead(what string, do func() error) {
	e.Helper()
	deadline := time.Now().Add(e.Provider.Capabilities().Settles)
	for {
		err := do()
		if isRefused(err) {
			return
		}
		if time.Now().After(deadline) {
			e.Errorf("%s: got %v, want a refusal within %s", what, err, e.Provider.Capabilities().Settles)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
