// Package signed is what the clients of services that take signed calls
// (Signature Version 4) have in common: one client for the administration APIs
// that have no SDK, the options of the AWS SDK's, and the reading of refusals. A
// provider brings the table of its service's codes.
package signed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/retry"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// Client makes the calls of one service.
type Client struct {
	// Table classifies the service's refusals.
	Table
	// Region is what calls are signed for.
	Region string
	// Credentials returns the key that signs.
	Credentials func() secret.KeyPair
	// HTTP carries the calls; see pkg/transport.
	HTTP *http.Client
	// Observe is told of every attempt, with the outcome.
	Observe func(operation string, err error)
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
		answer, err = c.once(ctx, call)
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
		var said struct{ Code string }
		if json.Unmarshal(text, &said) != nil {
			_ = xml.Unmarshal(text, &said)
		}
		if _, known := c.Kind(said.Code); !known && bytes.Contains(call.Body, []byte(said.Code)) {
			said.Code = "" // an echo, of a secret maybe
		}
		said.Code = fault.Said(said.Code, pair.SecretAccessKey.Reveal())
		return nil, c.refusal(&smithy.GenericAPIError{Code: said.Code}, call.Operation, said.Code, "", answer.StatusCode, answer.Header)
	}
	return text, nil
}
