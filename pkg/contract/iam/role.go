package iam

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
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

// role is one that the service gives a temporary key for, so that none is stored.
type role interface {
	check(at settings.Section)
	// token is the file with what the driver shows for the key; "" if it shows nothing.
	token() string
	// credentials returns what gives the key of now.
	credentials(region string, p contract.Parts) func(context.Context, string) (secret.KeyPair, error)
}

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

// PodIdentity is the role that is associated with the ServiceAccount of the driver's
// pod (EKS Pod Identity). An agent on the node gives a temporary key for the pod's token.
type PodIdentity struct {
	// URL is where the agent gives the key. Without it, the environment's
	// AWS_CONTAINER_CREDENTIALS_FULL_URI, which EKS sets, or EKS's agent.
	URL string `yaml:"url,omitempty" jsonschema:"pattern=^https?://"`
	// TokenFile holds the token. Without it, the environment's
	// AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE, or where EKS mounts it.
	TokenFile string `yaml:"tokenFile,omitempty"`
}

// What EKS sets and mounts for a pod whose ServiceAccount has a role (EKS user guide,
// "Understand how EKS Pod Identity works").
const (
	agentURLVariable   = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
	agentTokenVariable = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE" //nolint:gosec // no token
	agentURL           = "http://169.254.170.23/v1/credentials"
	agentToken         = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount/eks-pod-identity-token" //nolint:gosec // no token
)

// InstanceProfile is the role of the machine that the driver runs on. Its metadata
// service, in version 2, gives a temporary key to anything that can reach it.
type InstanceProfile struct {
	// URL is the metadata service's address; http://169.254.169.254 by default.
	URL string `yaml:"url,omitempty" jsonschema:"pattern=^https?://"`
}

// renewBefore is how long before its end a temporary key is replaced, so that no
// call outlives it, and what gives the next one may be away for as long.
const renewBefore = 5 * time.Minute

// What is asked for a key, as metrics and messages call it.
const (
	assumeRole     = "AssumeRoleWithWebIdentity"
	getCredentials = "GetCredentials"
	getMetadata    = "GetMetadata"
)

func (w *WebIdentity) check(at settings.Section) {
	at.At("url").URL(w.URL)
	if !strings.HasPrefix(w.RoleARN, "arn:") {
		at.At("roleARN").Faultf("%q is not a role's ARN", w.RoleARN)
	}
	if _, err := w.GetIdentityToken(); err != nil {
		at.At("tokenFile").Faultf("%w", err)
	}
}

func (i *PodIdentity) check(at settings.Section) {
	i.URL = cmp.Or(i.URL, os.Getenv(agentURLVariable), agentURL)
	i.TokenFile = cmp.Or(i.TokenFile, os.Getenv(agentTokenVariable), agentToken)
	at.At("url").URL(i.URL)
	if _, err := tokenIn(i.TokenFile); err != nil {
		at.At("tokenFile").Faultf("%w; associate the role with the driver's ServiceAccount before its pod starts", err)
	}
}

func (i *InstanceProfile) check(at settings.Section) {
	i.URL = cmp.Or(i.URL, "http://169.254.169.254")
	at.At("url").URL(i.URL)
}

// tokenIn reads a token.
func tokenIn(file string) ([]byte, error) {
	token, err := os.ReadFile(file)
	if err == nil && len(token) == 0 {
		err = fmt.Errorf("%s is empty", file)
	}
	return token, err
}

// unsaid keeps the token in a file out of what a service says, which may repeat it.
func unsaid(file string) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		token, _ := tokenIn(file)
		return signed.Said(secret.KeyPair{SessionToken: secret.New(string(token))})(stack)
	}
}

// GetIdentityToken implements stscreds.IdentityTokenRetriever.
func (w *WebIdentity) GetIdentityToken() ([]byte, error) { return tokenIn(w.TokenFile) }

func (w *WebIdentity) token() string { return w.TokenFile }

func (w *WebIdentity) credentials(region string, p contract.Parts) func(context.Context, string) (secret.KeyPair, error) {
	client := sts.New(sts.Options{
		BaseEndpoint: &w.URL, Region: region, HTTPClient: transport.Speaking(transport.IAM, p.HTTP), Retryer: aws.NopRetryer{},
		APIOptions: []func(*middleware.Stack) error{unsaid(w.TokenFile)},
	})
	session := stscreds.NewWebIdentityRoleProvider(client, w.RoleARN, w, func(o *stscreds.WebIdentityRoleOptions) {
		o.RoleSessionName = "contract-cosi-driver"
	})
	return temporary(session, assumeRole, p.Observe, w.classify)
}

func (i *PodIdentity) token() string { return i.TokenFile }

func (i *PodIdentity) credentials(_ string, p contract.Parts) func(context.Context, string) (secret.KeyPair, error) {
	agent := endpointcreds.New(i.URL, func(o *endpointcreds.Options) {
		o.HTTPClient, o.Retryer = transport.Speaking(transport.JSON, onNode()), aws.NopRetryer{}
		o.APIOptions = []func(*middleware.Stack) error{unsaid(i.TokenFile)}
		o.AuthorizationTokenProvider = endpointcreds.TokenProviderFunc(func() (string, error) {
			token, err := tokenIn(i.TokenFile)
			return string(token), err
		})
	})
	return temporary(agent, getCredentials, p.Observe, func(err error) error {
		if _, unreadable := tokenIn(i.TokenFile); unreadable != nil {
			return fault.Wrap(fault.FailedPrecondition, err, "the pod's token cannot be read; associate the role with the driver's ServiceAccount before its pod starts, or check podIdentity.tokenFile of the backend")
		}
		return agents.Fault(err, getCredentials)
	})
}

func (i *InstanceProfile) token() string { return "" }

func (i *InstanceProfile) credentials(_ string, p contract.Parts) func(context.Context, string) (secret.KeyPair, error) {
	profile := ec2rolecreds.New(func(o *ec2rolecreds.Options) {
		o.Client = imds.New(imds.Options{
			Endpoint: i.URL, HTTPClient: onNode(), Retryer: aws.NopRetryer{}, ClientEnableState: imds.ClientEnabled, EnableFallback: aws.FalseTernary,
		})
	})
	return temporary(profile, getMetadata, p.Observe, func(err error) error { return profiles.Fault(err, getMetadata) })
}

// onNode reaches what is on the driver's own node, which no proxy leads to.
func onNode() *http.Client { return transport.Bounded(&http.Transport{}) }

// temporary gives a role's key of now, and asks for the next in time.
func temporary(from aws.CredentialsProvider, operation string, observe func(string, error), classify func(error) error) func(context.Context, string) (secret.KeyPair, error) {
	if _, own := from.(aws.HandleFailRefreshCredentialsCacheStrategy); !own {
		from = lasting{from, func(err error) { observe(operation, classify(err)) }}
	}
	cache := aws.NewCredentialsCache(from, func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = renewBefore })
	return func(ctx context.Context, _ string) (secret.KeyPair, error) {
		var key aws.Credentials
		err := retry.Do(ctx, func() (err error) {
			if key, err = cache.Retrieve(ctx); err == nil {
				return nil
			}
			err = classify(err)
			observe(operation, err)
			return err
		})
		return secret.KeyPair{
			AccessKeyID: key.AccessKeyID, SecretAccessKey: secret.New(key.SecretAccessKey), SessionToken: secret.New(key.SessionToken),
		}, err
	}
}

// lasting uses a key until it ends as long as there is no next one.
type lasting struct {
	aws.CredentialsProvider
	failed func(error)
}

// HandleFailToRefresh implements aws.HandleFailRefreshCredentialsCacheStrategy.
func (l lasting) HandleFailToRefresh(_ context.Context, have aws.Credentials, err error) (aws.Credentials, error) {
	have.Expires = have.Expires.Add(renewBefore) // as it was told: the cache takes it off again
	if !have.HasKeys() || have.Expired() {
		return have, err
	}
	l.failed(err)
	return have, nil
}

// agents is how the agent's refusals are read (eks-pod-identity-agent, whose codes are
// those of EKS Auth's AssumeRoleForPodIdentity).
var agents = signed.Table{
	Service: "the pod identity agent", Wrong: "check podIdentity.url of the backend",
	Kinds: map[string]fault.Kind{
		"AccessDeniedException":       fault.PermissionDenied,
		"ExpiredTokenException":       fault.PermissionDenied,
		"InvalidTokenException":       fault.PermissionDenied,
		"ResourceNotFoundException":   fault.PermissionDenied,
		"InvalidParameterException":   fault.FailedPrecondition,
		"InvalidRequestException":     fault.FailedPrecondition,
		"InternalServerException":     fault.Unavailable,
		"ServiceUnavailableException": fault.Unavailable,
	},
	CuresOf: map[fault.Kind]string{
		fault.PermissionDenied: "check that a role is associated with the driver's ServiceAccount, and that it trusts pods.eks.amazonaws.com",
	},
}

// profiles is how the metadata service's refusals are read.
var profiles = signed.Table{
	Service: "the instance metadata service",
	Wrong:   "check that the node's instance has a role, and that it lets pods ask for it (IMDSv2 with a hop limit of 2)",
	CuresOf: map[fault.Kind]string{
		fault.PermissionDenied: "check that the metadata service of the node's instance is enabled",
	},
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
