package iam

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/retry"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// WebIdentity is a role that the driver assumes with a token of its pod, so that
// no key of the account is stored anywhere (IRSA at EKS). The service gives a
// temporary key for the token.
type WebIdentity struct {
	// URL is the address of the service's STS API.
	URL string `yaml:"url" jsonschema:"required,pattern=^https?://"`
	// RoleARN is the role.
	RoleARN string `yaml:"roleARN" jsonschema:"required"`
	// TokenFile holds the token. Kubernetes writes a new one before it expires.
	TokenFile string `yaml:"tokenFile" jsonschema:"required"`
}

// renewBefore is how long before its end a temporary key is replaced, so that no
// call outlives it.
const renewBefore = 5 * time.Minute

const assumeRole = "AssumeRoleWithWebIdentity"

func (w *WebIdentity) check(at settings.Section) {
	at.At("url").URL(w.URL)
	if !strings.HasPrefix(w.RoleARN, "arn:") {
		at.At("roleARN").Faultf("%q is not a role's ARN", w.RoleARN)
	}
	if _, err := w.GetIdentityToken(); err != nil {
		at.At("tokenFile").Faultf("%w", err)
	}
}

// GetIdentityToken implements stscreds.IdentityTokenRetriever.
func (w *WebIdentity) GetIdentityToken() ([]byte, error) {
	token, err := os.ReadFile(w.TokenFile)
	if err == nil && len(token) == 0 {
		err = fmt.Errorf("%s is empty", w.TokenFile)
	}
	return token, err
}

// credentials returns what gives the role's key of now.
func (w *WebIdentity) credentials(region string, p contract.Parts) func(context.Context, string) (secret.KeyPair, error) {
	client := sts.New(sts.Options{
		BaseEndpoint: &w.URL, Region: region, HTTPClient: transport.Speaking(transport.IAM, p.HTTP), Retryer: aws.NopRetryer{},
		APIOptions: []func(*middleware.Stack) error{func(stack *middleware.Stack) error {
			token, _ := w.GetIdentityToken() // which the answer may repeat
			return signed.Said(secret.KeyPair{SessionToken: secret.New(string(token))})(stack)
		}},
	})
	role := stscreds.NewWebIdentityRoleProvider(client, w.RoleARN, w, func(o *stscreds.WebIdentityRoleOptions) {
		o.RoleSessionName = "contract-cosi-driver"
	})
	cache := aws.NewCredentialsCache(role, func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = renewBefore })
	return func(ctx context.Context, _ string) (secret.KeyPair, error) {
		var key aws.Credentials
		err := retry.Do(ctx, func() (err error) {
			if key, err = cache.Retrieve(ctx); err == nil {
				return nil
			}
			err = w.classify(err)
			p.Observe(assumeRole, err)
			return err
		})
		return secret.KeyPair{
			AccessKeyID: key.AccessKeyID, SecretAccessKey: secret.New(key.SecretAccessKey), SessionToken: secret.New(key.SessionToken),
		}, err
	}
}

// roles is how STS's refusals are read (STS API reference, AssumeRoleWithWebIdentity).
var roles = signed.Table{
	Service: "the STS API", Wrong: "check webIdentity.url of the backend",
	Kinds: map[string]fault.Kind{
		"InvalidIdentityToken":  fault.PermissionDenied,
		"IDPRejectedClaim":      fault.PermissionDenied,
		"ExpiredTokenException": fault.PermissionDenied,
		"AccessDeniedException": fault.PermissionDenied,
		"ValidationError":       fault.FailedPrecondition,
		"RegionDisabled":        fault.FailedPrecondition,
		"IDPCommunicationError": fault.Unavailable,
	},
	CuresOf: map[fault.Kind]string{
		fault.PermissionDenied: "check that the role trusts the cluster's issuer, this ServiceAccount and the token's audience",
	},
}

func (w *WebIdentity) classify(err error) error {
	if _, unreadable := w.GetIdentityToken(); unreadable != nil {
		return fault.Wrap(fault.FailedPrecondition, err, "the token of role %s cannot be read; check webIdentity.tokenFile of the backend, and what the pod mounts there", w.RoleARN)
	}
	return roles.Fault(err, assumeRole)
}
