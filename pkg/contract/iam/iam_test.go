package iam_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contracttest"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/iam"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T) *harness.VersityGW {
	t.Helper()
	dir := t.TempDir()
	program, err := harness.BuildIn(t.Context(), dir, "test/versitygw")
	must(t, err)
	gateway, err := harness.StartVersityGW(t.Context(), program, dir, true)
	must(t, err)
	t.Cleanup(func() { gateway.Kill() })
	return gateway
}

// The suite that every provider passes, against versitygw's IAM API and its S3
// gateway.
func TestConformance(t *testing.T) {
	t.Parallel()
	gateway := start(t)
	open := func(t *testing.T, key string) contracttest.Service {
		t.Helper()
		line := &harness.Line{}
		carrier := &http.Transport{MaxIdleConnsPerHost: 16}
		t.Cleanup(carrier.CloseIdleConnections)
		p := iam.New(iam.Config{
			URL: line.Proxy(t, gateway.IAM, "", ""), Region: "us-east-1",
			Endpoints: []cosi.Endpoint{{Region: harness.VersityGWRegion, URL: gateway.S3, PathStyle: true}},
			Credentials: func(context.Context, string) (secret.KeyPair, error) {
				return secret.KeyPair{AccessKeyID: gateway.AccessKeyID, SecretAccessKey: secret.New(key)}, nil
			},
			Accounts: func() []string { return []string{""} },
			Path:     "/contract-cosi/", Dialect: policy.AWS(), MaxPolicyBytes: 2048, MaxKeys: 2,
			HTTP: transport.Bounded(carrier), Observe: func(string, error) {},
		})
		return contracttest.Service{Provider: p, Lose: line.Lose, Calls: func() int { return len(line.Calls()) }}
	}
	contracttest.Run(t, contracttest.Harness{
		Open:     func(t *testing.T) contracttest.Service { return open(t, gateway.Secret) },
		Refused:  func(t *testing.T) contracttest.Service { return open(t, "wrong") },
		Secrets:  []string{gateway.Secret},
		Unknown:  harness.VersityGWLacks(),
		Operator: contracttest.IAMOperator(gateway.IAM, gateway.AccessKeyID, gateway.Secret),
	})
}
