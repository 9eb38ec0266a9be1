package bucket_test

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// version is of an object, as S3 lists and deletes it.
type version struct {
	Key       string
	VersionID string `xml:"VersionId"`
}

// full is a bucket that serves what Empty asks for.
type full struct {
	t  *testing.T
	mu sync.Mutex
	// held are in the order of a listing; every third is a delete marker.
	held     []version
	underWay map[string]bool // objects of which versions are just being deleted
	deletes  int
}

const pageSize = 1000

func (f *full) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	switch {
	case q.Has("uploads"):
		_, _ = fmt.Fprint(w, "<ListMultipartUploadsResult/>")
	case q.Has("versions"):
		f.list(w, q.Get("key-marker"), q.Get("version-id-marker"))
	case q.Has("delete"):
		var in struct{ Object []version }
		if err := xml.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Object) > pageSize {
			f.t.Errorf("%d versions at once (%v)", len(in.Object), err)
		}
		f.remove(in.Object)
		_, _ = fmt.Fprint(w, "<DeleteResult/>")
	default:
		f.t.Errorf("%s %s", r.Method, r.URL)
	}
}

func (f *full) list(w http.ResponseWriter, key, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	type result struct {
		XMLName             xml.Name `xml:"ListVersionsResult"`
		Version             []version
		DeleteMarker        []version
		IsTruncated         bool
		NextKeyMarker       string
		NextVersionIDMarker string `xml:"NextVersionIdMarker"`
	}
	var page result
	for _, v := range f.held {
		if v.Key < key || v.Key == key && v.VersionID <= id {
			continue
		}
		if len(page.Version)+len(page.DeleteMarker) == pageSize {
			page.IsTruncated = true
			break
		}
		if v.VersionID[len(v.VersionID)-1]%3 == 0 {
			page.DeleteMarker = append(page.DeleteMarker, v)
		} else {
			page.Version = append(page.Version, v)
		}
		page.NextKeyMarker, page.NextVersionIDMarker = v.Key, v.VersionID
	}
	if err := xml.NewEncoder(w).Encode(page); err != nil {
		f.t.Error(err)
	}
}

func (f *full) remove(versions []version) {
	mine, gone := map[string]bool{}, map[version]bool{}
	f.mu.Lock()
	f.deletes++
	for _, v := range versions {
		gone[v] = true
		if !mine[v.Key] && f.underWay[v.Key] {
			f.t.Errorf("two requests delete versions of %s at once", v.Key)
		}
		mine[v.Key], f.underWay[v.Key] = true, true
	}
	f.mu.Unlock()
	time.Sleep(20 * time.Millisecond) //nolint:forbidigo // a service takes its time, in which others ask
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []version
	for _, v := range f.held {
		if !gone[v] {
			left = append(left, v)
		}
	}
	f.held = left
	for key := range mine {
		delete(f.underWay, key)
	}
}

// Everything goes, in few requests, of which no two touch one object: also where an
// object has versions on many pages.
func TestEmpty(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string]func(object int) int{
		"a few versions": func(int) int { return 7 },
		"one of each":    func(int) int { return 1 },
		"one object with many": func(object int) int {
			if object == 200 {
				return 5000
			}
			return 2
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &full{t: t, underWay: map[string]bool{}}
			for object := range 1000 {
				for v := range versions(object) {
					f.held = append(f.held, version{fmt.Sprintf("object-%04d", object), fmt.Sprintf("%06d", v)})
				}
			}
			all := len(f.held)
			service := httptest.NewServer(f)
			t.Cleanup(service.Close)
			engine := bucket.New(bucket.Config{
				Endpoint: cosi.Endpoint{URL: service.URL, Region: "r"}, Key: secret.KeyPair{AccessKeyID: "a", SecretAccessKey: secret.New("s")}, Owner: "o",
				HTTP: service.Client(), Observe: func(string, error) {},
			})
			n, err := engine.Empty(t.Context(), "b", params.Bucket{})
			if err != nil || n != int64(all) || len(f.held) != 0 {
				t.Errorf("%d of %d versions were deleted, %d are left: %v", n, all, len(f.held), err)
			}
			if most := 2*all/pageSize + 3; f.deletes > most {
				t.Errorf("%d requests for %d versions, want at most %d", f.deletes, all, most)
			}
		})
	}
}
