package options

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/test/s3fake"
)

// The table says of each parameter what it was tested on, and this test that it
// was: an option on the servers above, anything else where test/integration runs.
func TestTableNamesTheServers(t *testing.T) {
	t.Parallel()
	tested := map[string][]string{"placement": {Radosgw, fake}}
	for _, o := range options {
		for _, c := range []class{o.first, o.then} {
			for parameter := range c {
				tested[parameter] = o.on
			}
		}
	}
	for _, p := range params.Table() {
		want, isOption := tested[p.Name]
		if strings.HasPrefix(p.Name, "grant") {
			want, isOption = []string{Versitygw}, true // TestExplicitGrants of test/integration
		}
		if p.Class == params.BucketAccessClass || !isOption {
			want = []string{Versitygw}
		}
		if !slices.Equal(p.TestedOn, want) {
			t.Errorf("%s: the table names %v, the tests run on %v", p.Name, p.TestedOn, want)
		}
	}
}

// A service that takes an option and does not show it, be it that it takes its
// time or that it ignores what it does not know: that is not final, and nothing is
// concluded from it for other buckets.
func TestDroppedOption(t *testing.T) {
	t.Parallel()
	for _, o := range options {
		// Without tags no bucket is the driver's, a lock is made with the bucket, and a quota is not S3's.
		if o.name == "tags" || o.name == "objectLock" || o.name == "quota" {
			continue
		}
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			first := o.first.spec(t)
			synctest.Test(t, func(t *testing.T) {
				web := s3fake.New()
				s := faked(web)
				s.HTTP = &http.Client{Transport: web}
				e := s.engine()
				web.Hide(o.subresource, true)
				err := e.Create(t.Context(), "one", first)
				if !fault.Is(err, fault.Pending) || !strings.Contains(err.Error(), "has taken "+o.name) || !strings.Contains(err.Error(), " and does not show it yet") {
					t.Errorf("got %v, want that %s does not show yet", err, o.name)
				}
				// The next one shows after three seconds, as the first would have.
				go func() {
					time.Sleep(3 * time.Second)
					web.Hide(o.subresource, false)
				}()
				must(t, e.Create(t.Context(), "two", first))
				must(t, e.Create(t.Context(), "one", first))
			})
		})
	}
}

func TestPlacement(t *testing.T) {
	t.Parallel()
	spec := class{"placement": "cold"}.spec(t)
	web := s3fake.Start(t)
	s := faked(web)
	must(t, s.engine().Create(t.Context(), "one", spec))
	if at := web.Document("one", "location"); at != ":cold" {
		t.Errorf("made at %q", at)
	}
	s.Placements = false
	if err := s.engine().Create(t.Context(), "two", spec); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "no placement") {
		t.Errorf("got %v", err)
	}
}
