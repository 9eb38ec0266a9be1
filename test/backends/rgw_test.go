// Package backends proves the driver at the real storage services that it is
// for, each of which the tests run themselves.
package backends

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contracttest"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/rgw"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

var ceph *harness.Ceph

// storages are one of each type, which all tests share; they keep to contracts
// of their own.
var storages = map[string]*harness.Storage{}

func TestMain(m *testing.M) {
	harness.Main(m, func(ctx context.Context, dir string, after func(func())) (err error) {
		began := time.Now()
		if ceph, err = harness.StartCeph(ctx, dir); err != nil {
			return err
		}
		after(ceph.Kill)
		fmt.Printf("the Ceph gateway answers after %.1f s\n", time.Since(began).Seconds())
		for _, kind := range harness.StorageTypes {
			if kind == "rgw" {
				storages[kind] = harness.CephStorage(ceph)
				continue
			}
			home, err := os.MkdirTemp(dir, kind)
			if err != nil {
				return err
			}
			s, err := harness.StartStorage(ctx, kind, home)
			if err != nil {
				return err
			}
			after(func() { s.Kill() })
			storages[kind] = s
		}
		return nil
	})
}

func open(t *testing.T, pair secret.KeyPair) (*rgw.Provider, *harness.Line) {
	return openIn(t, pair, "us-east-1")
}

// openIn is a provider whose calls go over a line.
func openIn(t *testing.T, pair secret.KeyPair, region string) (*rgw.Provider, *harness.Line) {
	t.Helper()
	line := &harness.Line{}
	return provide(t, line.Proxy(t, ceph.URL, "", ""), pair, region), line
}

func provide(t testing.TB, admin string, pair secret.KeyPair, region string) *rgw.Provider {
	t.Helper()
	carrier := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(carrier.CloseIdleConnections)
	return rgw.New(rgw.Config{
		Endpoints: []cosi.Endpoint{{Region: region, URL: ceph.URL, PathStyle: true}}, AdminURL: admin,
		Credentials: func() secret.KeyPair { return pair }, HTTP: transport.Bounded(carrier), Observe: func(string, error) {},
	})
}

func administrator() secret.KeyPair {
	return secret.KeyPair{AccessKeyID: ceph.AccessKeyID, SecretAccessKey: secret.New(ceph.Secret)}
}

func label(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()[:12]) }

func propose() secret.KeyPair {
	return secret.KeyPair{AccessKeyID: "ck" + strings.ToLower(rand.Text()), SecretAccessKey: secret.New(rand.Text())}
}

// tenantOf is the gateway's tenant for a contract.
func tenantOf(contract string) string { return "cosi_" + strings.ReplaceAll(contract, "-", "_") }

// The suite that every provider passes.
func TestRGWConformance(t *testing.T) {
	t.Parallel()
	service := func(pair func() secret.KeyPair) func(t *testing.T) contracttest.Service {
		return func(t *testing.T) contracttest.Service {
			p, line := open(t, pair())
			return contracttest.Service{Provider: p, Lose: line.Lose, Calls: func() int { return len(line.Calls()) }}
		}
	}
	contracttest.Run(t, contracttest.Harness{
		Open: service(administrator),
		Refused: service(func() secret.KeyPair {
			return secret.KeyPair{AccessKeyID: ceph.AccessKeyID, SecretAccessKey: secret.New("wrong")}
		}),
		Secrets:  []string{ceph.Secret},
		Unknown:  []string{"s3:GetObjectAttributes", "s3:GetObjectVersionAttributes"},
		Logs:     ceph.Log,
		Operator: operator(),
	})
}

// operator changes the users of accesses, with radosgw-admin and the IAM API.
func operator() *contracttest.Operator {
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	api := iam.New(iam.Options{
		BaseEndpoint: &ceph.URL, Region: "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: ceph.AccessKeyID, SecretAccessKey: ceph.Secret}, nil
		}),
	})
	user := func(k contracttest.Key) string { return tenantOf(k.Contract) + "$" + k.Slot }
	put := func(t *testing.T, k contracttest.Key, name, effect string) {
		t.Helper()
		_, err := api.PutUserPolicy(t.Context(), &iam.PutUserPolicyInput{UserName: aws.String(user(k)), PolicyName: &name,
			PolicyDocument: aws.String(`{"Version":"2012-10-17","Statement":[{"Effect":"` + effect + `","Action":["s3:*"],"Resource":["*"]}]}`)})
		must(t, err)
	}
	return &contracttest.Operator{
		Stop: map[string]func(*testing.T, contracttest.Key){
			"with its user": func(t *testing.T, k contracttest.Key) {
				_, err := ceph.Admin(t.Context(), "user", "suspend", "--uid", user(k))
				must(t, err)
			},
			"as a contract is": func(t *testing.T, k contracttest.Key) { put(t, k, "contract-cosi-driver-suspended", "Deny") },
		},
		Widen: func(t *testing.T, k contracttest.Key) { put(t, k, "contract-cosi-driver", "Allow") },
		Drop: func(t *testing.T, k contracttest.Key) { // release 16 does it with every change of a user
			_, err := ceph.Admin(t.Context(), "user", "modify", "--uid", user(k), "--email", label("e")+"@example.com")
			must(t, err)
		},
	}
}
