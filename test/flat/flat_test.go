// Package flat holds the calls of each RPC to what they may be at most, however
// much the service has.
package flat

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	cosi "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/test/inprocess"
)

// root is the key that the driver administers the services with.
const root = "root-key"

// kinds are the services, with the most calls that each RPC may make for one
// bucket and one key when no crash has left a doubt. Each further bucket may cost
// more where the policies of buckets hold the limits. The probe that a fresh key
// is taken is counted with the grant.
var kinds = map[string]struct {
	settings string // with the address
	open     func() *service
	most
}{
	"versitygw": {settings: "adminURL", open: newVersityGW, most: most{create: 1, again: 1, grant: 4, repeat: 1, revoke: 3, unbucket: 1, further: 3}},
	"iam":       {settings: "url", open: newIAM, most: most{create: 1, again: 1, grant: 4 + 1, repeat: 2, revoke: 4, unbucket: 2}},
	"rgw":       {settings: "adminURL", open: newRGW, most: most{create: 3, again: 1, grant: 3, repeat: 2, revoke: 1, unbucket: 1}},
}

// byDriver is how many buckets and keys the driver itself makes; the service is
// given the rest.
const byDriver = 300

// drive is a driver at a service.
type drive struct {
	testing.TB
	*service
	provisioner cosi.ProvisionerClient
}

func start(t *testing.T, kind string) *drive {
	t.Helper()
	d := &drive{TB: t, service: kinds[kind].open()}
	address := d.start(t)
	dir, err := os.MkdirTemp("", "f") // a socket's path has to be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		must(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	credentials := write("credentials", "aws_access_key_id = "+root+"\naws_secret_access_key = a-secret-of-some-length\n")
	config := write("config.yaml", fmt.Sprintf(`driver: {name: contract.cosi.example.com, owner: example}
journal: {file: %[1]s/journal.log}
backends:
  - name: main
    type: %[2]s
    %[2]s: {%[3]s: %[4]s, endpoints: [{region: eu-1, url: %[4]s}], credentialsFile: %[5]s}
contracts:
  - {name: team, backend: main}
`, dir, kind, kinds[kind].settings, address, credentials))
	running, err := inprocess.Start(config, "unix://"+filepath.Join(dir, "cosi.sock"), io.Discard)
	must(t, err)
	t.Cleanup(func() { must(t, running.Stop()) })
	d.provisioner = cosi.NewProvisionerClient(running.Conn)
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (d *drive) create(name string) error {
	_, err := d.provisioner.DriverCreateBucket(d.Context(), &cosi.DriverCreateBucketRequest{Name: name, Protocols: []*cosi.ObjectProtocol{{Type: cosi.ObjectProtocol_S3}}, Parameters: map[string]string{"contract": "team"}})
	return err
}

func ids(names []string) (out []string) {
	for _, n := range names {
		out = append(out, "main.team."+n)
	}
	return out
}

func (d *drive) grant(name string, buckets ...string) error {
	req := &cosi.DriverGrantBucketAccessRequest{AccountName: name, AuthenticationType: &cosi.AuthenticationType{Type: cosi.AuthenticationType_KEY}, Protocol: &cosi.ObjectProtocol{Type: cosi.ObjectProtocol_S3}}
	for _, id := range ids(buckets) {
		req.Buckets = append(req.Buckets, &cosi.DriverGrantBucketAccessRequest_AccessedBucket{BucketId: id, AccessMode: &cosi.AccessMode{Mode: cosi.AccessMode_READ_WRITE}})
	}
	_, err := d.provisioner.DriverGrantBucketAccess(d.Context(), req)
	return err
}

func (d *drive) revoke(name string, buckets ...string) error {
	req := &cosi.DriverRevokeBucketAccessRequest{AccountId: "main.team." + name}
	for _, id := range ids(buckets) {
		req.Buckets = append(req.Buckets, &cosi.DriverRevokeBucketAccessRequest_AccessedBucket{BucketId: id})
	}
	_, err := d.provisioner.DriverRevokeBucketAccess(d.Context(), req)
	return err
}

func (d *drive) unbucket(name string) error {
	_, err := d.provisioner.DriverDeleteBucket(d.Context(), &cosi.DriverDeleteBucketRequest{BucketId: "main.team." + name})
	return err
}

// most are the most calls of each RPC.
type most struct {
	create, again, grant, repeat, revoke, unbucket, further int
}

// over makes each RPC once and takes all back, and returns those with more calls
// than they may make, or with a list of everything.
func (d *drive) over(m most) map[string]string {
	over := map[string]string{}
	three := []string{"b-1", "b-2", "b-3"}
	for _, step := range []struct {
		what string
		most int
		do   func() error
	}{
		{"create", m.create, func() error { return d.create("b-1") }},
		{"create again", m.again, func() error { return d.create("b-1") }},
		{"grant", m.grant, func() error { return d.grant("ba-1", "b-1") }},
		{"grant again", m.repeat, func() error { return d.grant("ba-1", "b-1") }},
		{"revoke", m.revoke, func() error { return d.revoke("ba-1", "b-1") }},
		{"create more", 2 * m.create, func() error { must(d, d.create("b-2")); return d.create("b-3") }},
		{"grant to three", m.grant + 2*m.further, func() error { return d.grant("ba-3", three...) }},
		{"revoke of three", m.revoke + 2*m.further, func() error { return d.revoke("ba-3", three...) }},
		{"delete", m.unbucket, func() error { return d.unbucket("b-1") }},
		{"delete more", 2 * m.unbucket, func() error { must(d, d.unbucket("b-2")); return d.unbucket("b-3") }},
	} {
		d.since()
		must(d, step.do())
		if calls := d.since(); len(calls) > step.most || slices.ContainsFunc(calls, lists) {
			over[step.what] = fmt.Sprintf("%d, at most %d:\n%s", len(calls), step.most, strings.Join(calls, "\n"))
		}
	}
	return over
}

// An RPC makes the same calls among ten buckets and keys as among three thousand.
func TestCallsAreFlat(t *testing.T) {
	t.Parallel()
	for kind, k := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := start(t, kind)
			must(t, d.create("first")) // signs the contract
			made := 0
			for _, n := range []int{10, 300, 3000} {
				var group errgroup.Group
				group.SetLimit(16)
				for i := made; i < min(n, byDriver); i++ {
					group.Go(func() error {
						name := fmt.Sprintf("made-%d", i)
						if err := d.create(name); err != nil {
							return err
						}
						return d.grant("ba-"+name, name)
					})
				}
				must(t, group.Wait())
				made = min(n, byDriver)
				d.fill(n - made)
				over := d.over(k.most)
				for round := 0; len(over) > 0 && round < 3; round++ { // a look at the backend, every 15 s, may have come between
					again := d.over(k.most)
					maps.DeleteFunc(over, func(what, _ string) bool { return again[what] == "" })
				}
				for what, calls := range over {
					t.Errorf("among %d: %s makes more calls than it may, or a list of everything:\n%s", n, what, calls)
				}
			}
		})
	}
}

// lists reports whether a call's answer grows with what the service has.
func lists(call string) bool {
	return strings.HasSuffix(call, "/list-users") || strings.HasSuffix(call, "/list-buckets") || strings.HasSuffix(call, "ListUsers") || strings.HasSuffix(call, "/admin/user/list")
}
