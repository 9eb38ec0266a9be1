package versitygw_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contracttest"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/versitygw"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

func start(t *testing.T) *harness.VersityGW {
	t.Helper()
	dir := t.TempDir()
	program, err := harness.BuildIn(t.Context(), dir, "test/versitygw")
	must(t, err)
	gateway, err := harness.StartVersityGW(t.Context(), program, dir, false)
	must(t, err)
	t.Cleanup(func() { gateway.Kill() })
	return gateway
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The suite that every provider passes, against a real gateway.
func TestConformance(t *testing.T) {
	t.Parallel()
	gateway := start(t)
	open := func(t *testing.T, key string) contracttest.Service {
		t.Helper()
		line := &harness.Line{}
		carrier := &http.Transport{MaxIdleConnsPerHost: 16}
		t.Cleanup(carrier.CloseIdleConnections)
		proxy := line.Proxy(t, gateway.S3, "", "")
		// Applications go to the gateway itself, the provider over the line.
		p := versitygw.New(versitygw.Config{
			AdminURL: proxy, S3URL: proxy, Endpoints: []cosi.Endpoint{{Region: harness.VersityGWRegion, URL: gateway.S3, PathStyle: true}},
			Credentials: func() secret.KeyPair {
				return secret.KeyPair{AccessKeyID: gateway.AccessKeyID, SecretAccessKey: secret.New(key)}
			},
			Owner: contracttest.Owner, HTTP: transport.Bounded(carrier), Observe: func(string, error) {},
		})
		return contracttest.Service{Provider: p, Lose: line.Lose, Calls: func() int { return len(line.Calls()) }}
	}
	contracttest.Run(t, contracttest.Harness{
		Open:     func(t *testing.T) contracttest.Service { return open(t, gateway.Secret) },
		Refused:  func(t *testing.T) contracttest.Service { return open(t, "wrong") },
		Secrets:  []string{gateway.Secret},
		Unknown:  harness.VersityGWLacks(),
		Operator: operator(gateway),
	})
}

// operator changes the policies of buckets, as root.
func operator(gateway *harness.VersityGW) *contracttest.Operator {
	root := s3.New(s3.Options{
		BaseEndpoint: &gateway.S3, Region: harness.VersityGWRegion, UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: gateway.AccessKeyID, SecretAccessKey: gateway.Secret}, nil
		}),
	})
	return &contracttest.Operator{
		Widen: func(t *testing.T, k contracttest.Key) {
			have, err := root.GetBucketPolicy(t.Context(), &s3.GetBucketPolicyInput{Bucket: &k.Bucket})
			must(t, err)
			wide := strings.ReplaceAll(aws.ToString(have.Policy), `"s3:GetObject"`, `"s3:GetObject","s3:PutObject"`)
			_, err = root.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: &k.Bucket, Policy: &wide})
			must(t, err)
		},
		Drop: func(t *testing.T, k contracttest.Key) {
			_, err := root.DeleteBucketPolicy(t.Context(), &s3.DeleteBucketPolicyInput{Bucket: &k.Bucket})
			must(t, err)
		},
	}
}
