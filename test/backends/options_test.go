package backends

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/test/options"
)

var users atomic.Int32

// atCeph is the gateway with a user of its own.
func atCeph(t *testing.T) *options.Server {
	t.Helper()
	contract := fmt.Sprintf("options-%d", users.Add(1))
	out, err := ceph.Admin(t.Context(), "user", "create", "--uid="+tenantOf(contract)+"$"+cosi.ContractSlot, "--display-name=options")
	if err != nil {
		t.Fatal(err)
	}
	var user struct {
		Keys []struct {
			AccessKey string `json:"access_key"`
			SecretKey string `json:"secret_key"`
		}
	}
	if err := json.Unmarshal([]byte(out), &user); err != nil || len(user.Keys) == 0 {
		t.Fatalf("%v: %s", err, out)
	}
	return &options.Server{Name: options.Radosgw, Config: bucket.Config{
		Endpoint: cosi.Endpoint{URL: ceph.URL, Region: "default", PathStyle: true},
		Key:      secret.KeyPair{AccessKeyID: user.Keys[0].AccessKey, SecretAccessKey: secret.New(user.Keys[0].SecretKey)},
		Features: &bucket.Features{}, TagsLater: true, Placements: true,
		Contract: contract, Bounder: provide(t, ceph.URL, administrator(), "default"),
	}}
}

func TestRGWOptions(t *testing.T) { options.Run(t, atCeph) }

func TestRGWPlacement(t *testing.T) {
	t.Parallel()
	c := atCeph(t).Config
	c.Owner, c.HTTP, c.Observe = "options-test", http.DefaultClient, func(string, error) {}
	engine := bucket.New(c)
	spec := params.Bucket{Contract: "c", Placement: "cold"}
	if err := engine.Create(t.Context(), "placed", spec); !fault.Is(err, fault.InvalidArgument) {
		t.Errorf("a placement that is not there: %v", err)
	}
	spec.Placement = "default-placement"
	if err := engine.Create(t.Context(), "placed", spec); err != nil {
		t.Fatal(err)
	}
	out, err := ceph.Admin(t.Context(), "bucket", "stats", "--bucket="+tenantOf(c.Contract)+"/placed")
	if err != nil || !strings.Contains(out, `"placement_rule": "default-placement"`) {
		t.Errorf("%v: %s", err, out)
	}
	if err := engine.Delete(t.Context(), "placed"); err != nil {
		t.Error(err)
	}
}
