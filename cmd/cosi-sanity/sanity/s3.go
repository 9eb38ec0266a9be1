package sanity

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awscredentials "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// store is the object store as the suite reaches it.
type store struct {
	S3
	http *http.Client
	// namedByID says that buckets are not reached under the requested name but
	// under their id; found out with the first key, which may write.
	namedByID, known bool
}

func newStore(c *Config) (*store, error) {
	authorities, err := c.S3.authorities()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	return &store{S3: c.S3, http: &http.Client{Transport: transport, Timeout: c.CallTimeout}}, nil
}

// user is a bucket seen through an issued key.
type user struct {
	client    *s3.Client
	endpoint  string
	bucket    string
	bucketID  string
	requested string // the bucket's name in the request
	ledger    *ledger
}

// needS3 is why a check of keys is not run.
func (e *env) needS3() error {
	if !e.cfg.S3.Enabled {
		return notRun("the S3 checks are off (--s3)")
	}
	return nil
}

// user is a key at work on one of its buckets.
func (e *env) user(ctx context.Context, a access, b bucket) (*user, error) {
	u, err := e.userNamed(a, b, a.at[b.id].bucket)
	if err != nil || e.Version == V1Alpha2 {
		return u, err
	}
	return u, e.findName(ctx, u, b)
}

// userNamed is user, with the bucket under a given name.
func (e *env) userNamed(a access, b bucket, bucketName string) (*user, error) {
	at, ok := a.at[b.id]
	if !a.key.s3 || !ok {
		return nil, notRun("the driver has not given an S3 key")
	}
	endpoint, region, virtual := at.endpoint, at.region, at.virtual
	if e.store.Region != "" {
		region = e.store.Region
	}
	if region == "" {
		region = "us-east-1" // which services without regions take
	}
	if e.store.Endpoint != "" {
		endpoint = e.store.Endpoint
	}
	if e.store.Addressing != "" {
		virtual = e.store.Addressing == "virtual"
	}
	if a.key.id == "" || a.key.secret == "" || endpoint == "" {
		return nil, see("A03") // of an incomplete key
	}
	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}
	return &user{
		client: s3.New(s3.Options{
			BaseEndpoint: aws.String(endpoint), Region: region, UsePathStyle: !virtual, HTTPClient: e.store.http,
			Credentials: awscredentials.NewStaticCredentialsProvider(a.key.id, a.key.secret, ""),
			// Stores other than Amazon's may not know the newer checksums.
			RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
			ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
			RetryMaxAttempts:           1, // the suite repeats where it makes sense
		}),
		endpoint: endpoint, bucket: bucketName, bucketID: b.id, requested: b.name, ledger: e.ledger,
	}, nil
}

// findName finds out, once for a session, whether v1alpha1 buckets are reached
// under the name they were asked for. Where they are not, one check says so,
// and the others use the id.
func (e *env) findName(ctx context.Context, u *user, b bucket) error {
	if !e.store.known {
		err := e.eventually(ctx, func(ctx context.Context) error {
			byName, byID := *u, *u
			byName.bucket, byID.bucket = b.name, b.id
			err := byName.put(ctx, "name", "name")
			if err != nil && b.id != b.name && byID.put(ctx, "name", "name") == nil {
				e.store.namedByID = true
				return nil
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("the key's bucket is reached neither under its name nor under its id: %w", err)
		}
		e.store.known = true
	}
	u.bucket = b.name
	if e.store.namedByID {
		u.bucket = b.id
	}
	return nil
}

func (u *user) put(ctx context.Context, key, body string) error {
	u.ledger.put(u.bucketID, key) // it may arrive without an answer
	_, err := u.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &u.bucket, Key: &key, Body: strings.NewReader(body)})
	return err
}

func (u *user) get(ctx context.Context, key string) (string, error) {
	out, err := u.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &u.bucket, Key: &key})
	if err != nil {
		return "", err
	}
	defer func() { _ = out.Body.Close() }()
	body, err := io.ReadAll(out.Body)
	return string(body), err
}

// reads wants an object to be there, with its content.
func (u *user) reads(ctx context.Context, key, body string) error {
	got, err := u.get(ctx, key)
	if err == nil && got != body {
		err = fmt.Errorf("GetObject %s: got %q, want %q", key, shorten(got), body)
	}
	return err
}

func (u *user) lists(ctx context.Context, key string) error {
	out, err := u.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &u.bucket})
	if err != nil {
		return err
	}
	for _, o := range out.Contents {
		if aws.ToString(o.Key) == key {
			return nil
		}
	}
	return fmt.Errorf("ListObjectsV2 does not show %s", key)
}

func (u *user) remove(ctx context.Context, key string) error {
	_, err := u.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &u.bucket, Key: &key})
	return err
}

// refuses wants a request to be refused because of the key; what is hidden
// from it counts where hidden is true.
func refuses(what string, err error, hidden bool) error {
	if err == nil {
		return fmt.Errorf("%s is allowed, and should be refused", what)
	}
	if denied(err) || hidden && httpStatus(err) == http.StatusNotFound {
		return nil
	}
	return fmt.Errorf("%s: got neither success nor a refusal: %w", what, err)
}

// denied reports whether the store has refused a key.
func denied(err error) bool {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		switch api.ErrorCode() {
		case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AllAccessDisabled", "AccountProblem", "InvalidAccessKey", "InvalidToken":
			return true
		}
	}
	status := httpStatus(err)
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

func httpStatus(err error) int {
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return response.HTTPStatusCode()
	}
	return 0
}
