package options

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contractapi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
	"github.com/contract-cosi/contract-cosi-driver/test/s3fake"
)

var contractd *harness.Contractd

func TestMain(m *testing.M) {
	harness.Main(m, func(ctx context.Context, dir string, after func(func())) error {
		binaries, err := harness.Build(ctx, dir, false)
		if err != nil {
			return err
		}
		if contractd, err = harness.StartContractd(ctx, binaries, dir); err == nil {
			after(func() { contractd.Kill() })
		}
		return err
	})
}

func TestOptions(t *testing.T) {
	t.Run(Versitygw, func(t *testing.T) { Run(t, ofContractd) })
	t.Run(fake, func(t *testing.T) { Run(t, func(t *testing.T) *Server { return faked(s3fake.Start(t)) }) })
}

func faked(s *s3fake.Server) *Server {
	return &Server{fake, bucket.Config{
		Endpoint: cosi.Endpoint{URL: s.URL, Region: "us-east-1", PathStyle: true},
		Key:      secret.KeyPair{AccessKeyID: "key", SecretAccessKey: secret.New("secret")},
		Features: &bucket.Features{}, Placements: true,
	}}
}

// ofContractd is versitygw as contractd runs it, with a contract's own key.
func ofContractd(t *testing.T) *Server {
	t.Helper()
	put := func(path string, body, into any) {
		t.Helper()
		text, err := json.Marshal(body)
		must(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, contractd.API+path, bytes.NewReader(text))
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+contractd.Token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode >= http.StatusMultipleChoices {
			t.Fatalf("PUT %s: HTTP %d", path, resp.StatusCode)
		}
		must(t, json.NewDecoder(resp.Body).Decode(into))
	}
	contract := fmt.Sprintf("team-%d", bucketNumber.Add(1))
	var issued struct {
		Key             struct{ AccessKeyID string }
		SecretAccessKey string
	}
	put("/v1/contracts/"+contract, map[string]any{"owner": "options-test"}, &struct{}{})
	put("/v1/contracts/"+contract+"/keys/own", map[string]any{"spec": map[string]any{"slot": "own"}}, &issued)
	api, err := contractapi.New(contractapi.Config{
		URL: contractd.API, Token: func() secret.String { return secret.New(contractd.Token) }, HTTP: http.DefaultClient, Observe: func(string, error) {},
	})
	must(t, err)
	return &Server{Versitygw, bucket.Config{
		Contract: contract, Bounder: api,
		Endpoint: cosi.Endpoint{URL: contractd.S3, Region: "us-east-1", PathStyle: true},
		Key:      secret.KeyPair{AccessKeyID: issued.Key.AccessKeyID, SecretAccessKey: secret.New(issued.SecretAccessKey)},
		Features: &bucket.Features{},
	}}
}
