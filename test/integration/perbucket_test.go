package integration

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// keysReachAll is a service whose keys cannot be limited to a bucket.
func keysReachAll(text string) string {
	return strings.Replace(text, "      tokenFile:", "      keysReachAll: true\n      tokenFile:", 1)
}

// Where a key reaches all of its contract, each bucket has a contract to itself.
func TestAContractPerBucket(t *testing.T) {
	t.Parallel()
	template := newContract()
	e := newEnvWith(t, contractd, "contracts:\n  - {name: "+template+", backend: main, perBucket: true}\n", keysReachAll)
	class := map[string]string{"contract": template}
	one, two := e.mustCreate(template+"-one", class), e.mustCreate(template+"-two", class)
	contractOf := func(id string) string { return strings.Split(id, ".")[1] }
	if contractOf(one) == contractOf(two) || !strings.HasPrefix(contractOf(one), template+"-") {
		t.Fatalf("buckets %s and %s", one, two)
	}
	if again := e.mustCreate(template+"-one", class); again != one {
		t.Errorf("a repeated create gives %s, want %s", again, one)
	}
	g := e.mustGrant(one, "ba-1", nil)
	if again := e.mustGrant(one, "ba-1", nil); again != g {
		t.Error("a repeated grant gives another key")
	}
	allowed(t, "put into its own bucket", put(t, g.client(), template+"-one", "o"))
	refused(t, "put into the neighbour's", put(t, g.client(), template+"-two", "o"))

	// What such a key cannot be is refused before anything is made.
	for parameter, value := range map[string]string{"access": "ReadOnly", "prefix": "in/", "sourceIP": "192.0.2.0/24"} {
		_, err := e.grant(two, "ba-2", map[string]string{parameter: value})
		expectCode(t, err, codes.InvalidArgument, "backend main")
	}
	// Neither can a class slip a second bucket into a bucket's own contract.
	_, err := e.create(template+"-three", map[string]string{"contract": contractOf(one)})
	expectCode(t, err, codes.FailedPrecondition, "belongs to one bucket")

	allowed(t, "delete", remove(t, g.client(), template+"-one", "o"))
	for _, id := range []string{one, two} {
		must(t, e.delete(id))
		must(t, e.delete(id))
		if code := e.api(http.MethodGet, "/v1/contracts/"+contractOf(id), nil, nil); code != http.StatusNotFound {
			t.Errorf("contract %s is left behind: HTTP %d", contractOf(id), code)
		}
	}
}

// Terms that a backend cannot meet stop the driver before it serves.
func TestTermsThatCannotBeMet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		contracts, want string
		change          func(string) string
	}{
		"shared contract, keys that reach all":    {"contracts:\n  - {name: team, backend: main}\n", "set perBucket", keysReachAll},
		"on-demand contract, keys that reach all": {onDemand, "set perBucket", keysReachAll},
		"a suspension at a versitygw": {"contracts:\n  - {name: team, backend: main, suspend: true, quota: {maxBytes: 1}}\n", "backend main has no suspend, quota.maxBytes", func(text string) string {
			before, rest, _ := strings.Cut(text, "    type: contractapi\n")
			_, after, _ := strings.Cut(rest, "contracts:\n")
			key := filepath.Join(filepath.Dir(contractd.TokenFile), "unused-credentials")
			writeFile(t, key, "aws_access_key_id = a\naws_secret_access_key = b\n")
			return before + "    type: versitygw\n    versitygw: {endpoints: [{region: r, url: \"http://127.0.0.1:1\"}], credentialsFile: " + key + "}\ncontracts:\n" + after
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "t") // a socket's path has to be short
			must(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			file := filepath.Join(dir, "config.yaml")
			must(t, os.WriteFile(file, []byte(c.change(harness.ConfigText(dir, contractd.API, contractd.TokenFile, c.contracts))), 0o600))
			loaded, err := config.Load(file, driver.Types())
			must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err = driver.Run(ctx, loaded, driver.Options{Socket: server.Socket{Endpoint: "unix://" + filepath.Join(dir, "s.sock"), Mode: 0o600}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
