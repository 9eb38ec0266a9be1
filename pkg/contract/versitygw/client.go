package versitygw

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/retry"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// client makes signed calls, to the admin API and to the S3 API, with the
// administration credentials.
type client struct {
	region      string
	credentials func() secret.KeyPair
	http        *http.Client
	observe     func(operation string, err error)
	signer      *v4.Signer
}

func newClient(c Config) client {
	// A redirect would turn a write into a read.
	carrier := *c.HTTP
	carrier.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client{
		region: c.Endpoints[0].Region, credentials: c.Credentials, http: &carrier, observe: c.Observe,
		signer: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }),
	}
}

// maxAnswer bounds what is read of an answer; the list of accounts is the longest.
const maxAnswer = 64 << 20

// call makes a call, again where that may help, and returns what was answered.
func (c client) call(ctx context.Context, operation, method, address string, query url.Values, body []byte) ([]byte, error) {
	var answer []byte
	err := retry.Do(ctx, func() (err error) {
		answer, err = c.once(ctx, method, address+"?"+query.Encode(), body)
		c.observe(operation, err)
		return err
	})
	return answer, err
}

func (c client) once(ctx context.Context, method, address string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(address, "?"), bytes.NewReader(body))
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the address of the gateway is none")
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	req.Header.Set("X-Amz-Content-Sha256", hash)
	pair := c.credentials()
	key := aws.Credentials{AccessKeyID: pair.AccessKeyID, SecretAccessKey: pair.SecretAccessKey.Reveal()}
	if err := c.signer.SignHTTP(ctx, key, req, hash, "s3", c.region, time.Now()); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the call cannot be signed")
	}
	answer, err := c.http.Do(req)
	if err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, fault.Wrap(fault.Canceled, err, "the call was given up")
		}
		return nil, fault.Wrap(fault.Unavailable, err, "the gateway does not answer (%s)", fault.NoAnswer(err))
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, fault.Wrap(fault.Unavailable, err, "the gateway's answer was cut short")
	}
	if answer.StatusCode >= 300 {
		return nil, refusal(answer, text)
	}
	return text, nil
}

// kinds classifies the gateway's codes (versitygw v1.8.0, s3err).
var kinds = map[string]fault.Kind{
	"InvalidAccessKeyId":       fault.PermissionDenied,
	"SignatureDoesNotMatch":    fault.PermissionDenied,
	"AccessDenied":             fault.PermissionDenied,
	"XAdminAccessDenied":       fault.PermissionDenied,
	"XAdminUserNotFound":       fault.NotFound,
	"NoSuchBucket":             fault.NotFound,
	"NoSuchBucketPolicy":       fault.NotFound,
	"XAdminUserExists":         fault.Conflict,
	"XAdminMethodNotSupported": fault.Unsupported,
	"RequestTimeTooSkewed":     fault.FailedPrecondition,
	"MalformedPolicy":          fault.FailedPrecondition,
	"SlowDown":                 fault.RateLimited,
	"ServiceUnavailable":       fault.Unavailable,
	"InternalError":            fault.Unavailable,
}

// cures are what to do, where the code says it.
var cures = map[string]string{
	"InvalidAccessKeyId":       "check the backend's credentialsFile",
	"SignatureDoesNotMatch":    "check the backend's credentialsFile",
	"AccessDenied":             "check that the backend's credentials are those of root or of an account of role admin",
	"XAdminAccessDenied":       "check that the backend's credentials are those of root or of an account of role admin",
	"XAdminMethodNotSupported": "the gateway has an IAM service of its own; use a backend of type iam",
	"RequestTimeTooSkewed":     "set the clock of the driver's node",
	"MalformedPolicy":          "the bucket's policy names an account that is gone; take that statement out",
}

// refused is the gateway's own code, as the cause of a fault.
type refused string

// Error returns the code.
func (r refused) Error() string { return string(r) }

func isCode(err error, code string) bool {
	var r refused
	return errors.As(err, &r) && string(r) == code
}

// refusal turns an answer that is no success into a fault.
func refusal(answer *http.Response, text []byte) error {
	var said struct{ Code, Message string }
	_ = xml.Unmarshal(text, &said) // whatever stands before the gateway answers in its own way
	kind, known := kinds[said.Code]
	if !known {
		switch status := answer.StatusCode; {
		case status == http.StatusUnauthorized || status == http.StatusForbidden:
			kind = fault.PermissionDenied
			said.Code = "HTTP 403: check the backend's credentialsFile"
		case status == http.StatusTooManyRequests:
			kind = fault.RateLimited
		case status >= 500 || status == http.StatusNotFound: // the gateway has a code for what is not there
			kind = fault.Unavailable
		default:
			kind = fault.Internal
		}
	}
	why := said.Code
	if cure, ok := cures[said.Code]; ok {
		why += ": " + cure
	}
	var f *fault.Error
	if why == "" {
		f = fault.New(kind, "the gateway answered HTTP %d without a code; check the backend's addresses", answer.StatusCode)
	} else {
		f = fault.Wrap(kind, refused(said.Code), "the gateway refused the call (%s)", why)
	}
	f.RetryAfter = retry.After(answer.Header)
	return f
}
