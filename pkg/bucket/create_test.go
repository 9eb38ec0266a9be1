package bucket_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// creating is a service that makes buckets, and what it was called for. It refuses to
// create one that its owner has with a code, or with "" says that it was made.
type creating struct {
	again string
	keeps bool // the tags

	mu    sync.Mutex
	marks map[string]string
	calls []string
}

func (c *creating) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := strings.Trim(r.URL.Path, "/")
	mark, exists := c.marks[name]
	if r.Method == http.MethodGet {
		c.calls = append(c.calls, "look")
		if mark == "" {
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, "<Error><Code>NoSuchTagSet</Code></Error>")
			return
		}
		_, _ = fmt.Fprintf(w, "<Tagging><TagSet><Tag><Key>%s</Key><Value>%s</Value></Tag></TagSet></Tagging>", cosi.OwnerTag, mark)
		return
	}
	c.calls = append(c.calls, "create")
	switch {
	case !exists && c.keeps:
		c.marks[name] = "o"
	case !exists:
		c.marks[name] = ""
	case c.again != "":
		w.WriteHeader(http.StatusConflict)
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", c.again)
	}
}

func (c *creating) since() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := strings.Join(c.calls, " ")
	c.calls = nil
	return out
}

// Where the answer to CreateBucket proves that a bucket is new, nothing else is asked;
// which services do that is found out with the first bucket.
func TestCreateAsksWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		service       *creating
		first, second string
	}{
		"refuses a bucket that its owner has": {&creating{again: "BucketAlreadyOwnedByYou", keeps: true}, "create look create", "create"},
		"takes it for made":                   {&creating{keeps: true}, "create look create", "create look"},
		"refuses with something else":         {&creating{again: "OperationAborted", keeps: true}, "create look create", "create look"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.service.marks = map[string]string{"another": "another's"}
			engine := at(t, c.service)
			for i, want := range []string{c.first, c.second, c.second} {
				if err := engine.Create(t.Context(), fmt.Sprint("b", i), params.Bucket{}); err != nil {
					t.Fatal(err)
				}
				if calls := c.service.since(); calls != want {
					t.Errorf("bucket %d: %s; want %s", i, calls, want)
				}
			}
			if err := engine.Create(t.Context(), "another", params.Bucket{}); err == nil || c.service.marks["another"] != "another's" {
				t.Errorf("a bucket of another: %v", err)
			}
		})
	}
}

// A service that keeps no tags proves nothing.
func TestCreateWithoutTags(t *testing.T) {
	t.Parallel()
	service := &creating{again: "BucketAlreadyOwnedByYou", marks: map[string]string{}}
	engine := at(t, service)
	for i := range 2 {
		if err := engine.Create(t.Context(), fmt.Sprint("b", i), params.Bucket{}); !fault.Is(err, fault.Conflict) {
			t.Errorf("it says %v", err)
		}
		if calls := service.since(); calls != "create look" {
			t.Errorf("it calls %s", calls)
		}
	}
}

// What one region of an address does is no proof of another's.
func TestCreateInTwoRegions(t *testing.T) {
	t.Parallel()
	service := &creating{again: "BucketAlreadyOwnedByYou", keeps: true, marks: map[string]string{}}
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	features := &bucket.Features{}
	var calls []string
	for _, region := range []string{"a", "b", "a"} {
		c := configAt(server)
		c.Endpoint.Region, c.Features = region, features
		engine := bucket.New(c)
		if err := engine.Create(t.Context(), fmt.Sprint(region, len(calls)), params.Bucket{}); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, service.since())
	}
	if want := []string{"create look create", "create look create", "create"}; !slices.Equal(calls, want) {
		t.Errorf("it calls %q; want %q", calls, want)
	}
}

// at is an engine at a service.
func at(t *testing.T, handler http.Handler) *bucket.Engine {
	t.Helper()
	service := httptest.NewServer(handler)
	t.Cleanup(service.Close)
	return bucket.New(configAt(service))
}

func configAt(service *httptest.Server) bucket.Config {
	return bucket.Config{
		Endpoint: cosi.Endpoint{URL: service.URL, Region: "r", PathStyle: true}, Key: secret.KeyPair{AccessKeyID: "access", SecretAccessKey: secret.New("secret-of-it")}, Owner: "o",
		HTTP: service.Client(), Observe: func(string, error) {},
	}
}
