package contractapi_test

import (
	"net/http"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contractapi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contracttest"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// The suite that every provider passes, against contractd and its S3 server.
func TestConformance(t *testing.T) {
	t.Parallel()
	start := func(flags ...string) *harness.Contractd {
		dir := t.TempDir()
		program, err := harness.BuildIn(t.Context(), dir, "cmd/contractd")
		if err != nil {
			t.Fatal(err)
		}
		c, err := harness.StartContractd(t.Context(), harness.Binaries{Contractd: program}, dir, flags...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Kill)
		return c
	}
	service, slow := start(), start("--pending-for", "500ms")
	open := func(t *testing.T, c *harness.Contractd, token string) contracttest.Service {
		t.Helper()
		line := &harness.Line{}
		carrier := &http.Transport{MaxIdleConnsPerHost: 16}
		t.Cleanup(carrier.CloseIdleConnections)
		p, err := contractapi.New(contractapi.Config{
			URL: line.Proxy(t, c.API, "", ""), Token: func() secret.String { return secret.New(token) }, HTTP: transport.Bounded(carrier), Observe: func(string, error) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		return contracttest.Service{Provider: p, Lose: line.Lose, Calls: func() int { return len(line.Calls()) }}
	}
	contracttest.Run(t, contracttest.Harness{
		Open:    func(t *testing.T) contracttest.Service { return open(t, service, service.Token) },
		Refused: func(t *testing.T) contracttest.Service { return open(t, service, "wrong") },
		Slow:    func(t *testing.T) contracttest.Service { return open(t, slow, slow.Token) },
		Secrets: []string{service.Token, slow.Token},
		Unknown: harness.VersityGWLacks(),
		Lacks:   contract.QuotaKinds{Bytes: true, Objects: true},
	})
}
