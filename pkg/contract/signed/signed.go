// Package signed makes the calls of administration APIs that have no SDK and
// are signed as S3's are (Signature Version 4). A provider brings the table of
// its service's codes, and what its documents look like.
package signed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/retry"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// Client makes the calls of one service.
type Client struct {
	// Service is what messages call it: "the Ceph gateway".
	Service string
	// Region is what calls are signed for.
	Region string
	// Credentials returns the key that signs.
	Credentials func() secret.KeyPair
	// HTTP carries the calls; see pkg/transport.
	HTTP *http.Client
	// Observe hears of every attempt, with the outcome.
	Observe func(operation string, err error)
	// FinishesWrites says that a write which was sent is waited for even if its
	// caller gives up: the service would go on with it, and get in the way of the
	// caller's next attempt.
	FinishesWrites bool
	// Kinds classifies the service's codes, and Cures say what to do about some.
	Kinds map[string]fault.Kind
	Cures map[string]string
	// Wrong is the cure for an answer that is none of the service's.
	Wrong string
}

// Call is one call.
type Call struct {
	Operation, Method string
	// API is what the answer has to look like if it is a success.
	API transport.API
	// URL is the whole address, with its query.
	URL  string
	Body []byte
	// Type is the body's media type; "" says none.
	Type string
}

// Do makes a call, again where that may help, and returns what was answered.
func (c *Client) Do(ctx context.Context, call Call) ([]byte, error) {
	var answer []byte
	err := retry.Do(ctx, func() (err error) {
		attempt := ctx
		if c.FinishesWrites && call.Method != http.MethodGet && ctx.Err() == nil {
			attempt = context.WithoutCancel(ctx)
		}
		answer, err = c.once(attempt, call)
		c.Observe(call.Operation, err)
		return err
	})
	return answer, err
}

func (c *Client) once(ctx context.Context, call Call) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, call.Method, call.URL, bytes.NewReader(call.Body))
	if err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the address of %s is none", c.Service)
	}
	if call.Type != "" {
		request.Header.Set("Content-Type", call.Type)
	}
	sum := sha256.Sum256(call.Body)
	hash := hex.EncodeToString(sum[:])
	request.Header.Set("X-Amz-Content-Sha256", hash)
	pair := c.Credentials()
	key := aws.Credentials{AccessKeyID: pair.AccessKeyID, SecretAccessKey: pair.SecretAccessKey.Reveal()}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(ctx, key, request, hash, "s3", c.Region, time.Now()); err != nil {
		return nil, fault.Wrap(fault.Internal, err, "the call %s cannot be signed", call.Operation)
	}
	answer, err := transport.Speaking(call.API, c.HTTP).Do(request)
	if err != nil {
		return nil, fault.NoAnswer(err, call.Operation, c.Service)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fault.NoAnswer(err, call.Operation, c.Service)
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		return nil, c.refusal(call, answer, text)
	}
	return text, nil
}

// code is the service's own code, as the cause of a fault.
type code string

// Error returns the code.
func (c code) Error() string { return string(c) }

// IsCode reports whether err is a refusal with the service's code.
func IsCode(err error, of string) bool {
	var c code
	return errors.As(err, &c) && string(c) == of
}

// refusal turns an answer that is no success into a fault. Whatever stands
// between driver and service may answer too: then the status decides.
func (c *Client) refusal(call Call, answer *http.Response, text []byte) error {
	var said struct{ Code string }
	if json.Unmarshal(text, &said) != nil {
		_ = xml.Unmarshal(text, &said)
	}
	kind, known := c.Kinds[said.Code]
	if !known && bytes.Contains(call.Body, []byte(said.Code)) {
		said.Code = "" // an echo, of a secret maybe
	}
	why, cure := fault.Said(said.Code, c.Credentials().SecretAccessKey.Reveal()), c.Cures[said.Code]
	if why == "" {
		why = "HTTP " + strconv.Itoa(answer.StatusCode)
	}
	if !known {
		if kind = kindOf(answer.StatusCode); kind != fault.RateLimited {
			cure = c.Wrong
		}
		if kind == fault.PermissionDenied {
			cure = "check the backend's credentialsFile"
		}
	}
	if cure != "" {
		why += ": " + cure
	}
	f := fault.Wrap(kind, code(said.Code), "%s refused the call (%s)", c.Service, why)
	f.RetryAfter = retry.After(answer.Header)
	return f
}

// kindOf is for codes that are not in a table. What is not there has a code of
// the service's: a 404 without one is of whatever has no service behind it.
func kindOf(status int) fault.Kind {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fault.PermissionDenied
	case status == http.StatusTooManyRequests:
		return fault.RateLimited
	case status == http.StatusConflict || status == http.StatusNotFound || status >= 500:
		return fault.Unavailable
	}
	return fault.Internal
}
