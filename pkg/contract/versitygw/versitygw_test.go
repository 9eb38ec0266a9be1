package versitygw_test

import (
	"net/http"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contracttest"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/versitygw"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
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
		transport := &http.Transport{MaxIdleConnsPerHost: 16}
		t.Cleanup(transport.CloseIdleConnections)
		proxy := line.Proxy(t, gateway.S3, "", "")
		// Applications go to the gateway itself, the provider over the line.
		p := versitygw.New(versitygw.Config{
			AdminURL: proxy, S3URL: proxy, Endpoints: []cosi.Endpoint{{Region: harness.VersityGWRegion, URL: gateway.S3, PathStyle: true}},
			Credentials: func() secret.KeyPair {
				return secret.KeyPair{AccessKeyID: gateway.AccessKeyID, SecretAccessKey: secret.New(key)}
			},
			Owner: contracttest.Owner, HTTP: &http.Client{Transport: transport}, Observe: func(string, error) {},
		})
		return contracttest.Service{Provider: p, Lose: line.Lose, Calls: func() int { return len(line.Calls()) }}
	}
	contracttest.Run(t, contracttest.Harness{
		Open:    func(t *testing.T) contracttest.Service { return open(t, gateway.Secret) },
		Refused: func(t *testing.T) contracttest.Service { return open(t, "wrong") },
		Secrets: []string{gateway.Secret},
	})
}
