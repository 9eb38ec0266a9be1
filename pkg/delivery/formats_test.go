package delivery_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/delivery"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// formats asks for all formats.
func formats(d provisioner.Delivery) provisioner.Delivery {
	d.Formats = []string{"env", "file"}
	d.Key.SecretAccessKey = secret.New("secret-of-" + d.Key.AccessKeyID)
	return d
}

func first(key string) provisioner.Delivery {
	d := formats(request(key, "", false))
	d.First = true
	return d
}

// entry is what a Secret has under a name, "" if there is no such Secret.
func (a *api) entry(secret, name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.secrets["blue/"+secret]; s != nil {
		return string(s.Data[name])
	}
	return ""
}

// What applications read, to the letter: a change here is one that users see.
func TestFormats(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		a := world(version)
		s, ctx, log := a.open(t)
		if version == "v1alpha2" { // which is written by the command deliver here
			s = served(ctx, t, s)
		}
		if written, err := s.Deliver(ctx, first("old")); err != nil || !written {
			t.Fatalf("%s: %v, %v", version, written, err)
		}
		for name, want := range map[string]string{
			"AWS_ACCESS_KEY_ID": "old", "AWS_SECRET_ACCESS_KEY": "secret-of-old", "AWS_ENDPOINT_URL_S3": "https://s3.example", "AWS_REGION": "us-east-1", "BUCKET_NAME": "data",
		} {
			if got := a.entry("web-env", name); got != want {
				t.Errorf("%s: %s is %q, want %q", version, name, got, want)
			}
		}
		for name, want := range map[string]string{
			"credentials": "[default]\naws_access_key_id = old\naws_secret_access_key = secret-of-old\n",
			"config":      "[default]\nregion = us-east-1\nservices = bucket\nrequest_checksum_calculation = when_required\nresponse_checksum_validation = when_required\ns3 =\n  addressing_style = path\n\n[services bucket]\ns3 =\n  endpoint_url = https://s3.example\n",
			"rclone.conf": "[s3]\ntype = s3\nprovider = Other\naccess_key_id = old\nsecret_access_key = secret-of-old\nendpoint = https://s3.example\nregion = us-east-1\nforce_path_style = true\nno_check_bucket = true\n\n[bucket]\ntype = alias\nremote = s3:data\n",
			"s3cfg":       "[default]\naccess_key = old\nsecret_key = secret-of-old\nhost_base = s3.example\nhost_bucket = s3.example\nuse_https = true\nbucket_location = us-east-1\n",
			"ca.crt":      string(pem.EncodeToMemory(certificate)),
		} {
			if got := a.entry("web-file", name); got != want {
				t.Errorf("%s: %s is %q, want %q", version, name, got, want)
			}
		}
		for _, format := range []string{"env", "file"} {
			made := a.secrets["blue/web-"+format]
			owner := metav1.GetControllerOf(made)
			if made.Type != corev1.SecretType("contract-cosi-driver/"+format) || len(made.Finalizers) > 0 ||
				owner == nil || owner.UID != uid || owner.Name != "web" || owner.Kind != "BucketAccess" || owner.APIVersion != "objectstorage.k8s.io/"+version {
				t.Errorf("%s: %+v", version, made)
			}
		}
		if len(a.secrets) != 3 || a.held() != "old/secret of old" {
			t.Errorf("%s: %d Secrets, and the sidecar's has %q", version, len(a.secrets), a.held())
		}
		if text := log.String(); strings.Count(text, "Secret created") != 2 || strings.Contains(text, "secret-of") {
			t.Errorf("%s: the log has %s", version, text)
		}
		if written, err := s.Deliver(ctx, first("old")); written || err != nil || a.writes != 2 {
			t.Errorf("%s, again: %v, %v, %d writes", version, written, err, a.writes)
		}
	}
}

// A Secret in a format follows the rules of the sidecar's, but for one that is to be
// written first: that is created, and takes the key whatever the driver's own has.
func TestDeliverInFormats(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	mine := func(a *api, change func(s *corev1.Secret)) {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "web-env", ResourceVersion: "7"}, Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"AWS_ACCESS_KEY_ID": []byte("mine")}}
		change(s)
		a.secrets["blue/web-env"] = s
	}
	owned := func(s *corev1.Secret) {
		yes := true
		s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "objectstorage.k8s.io/v1alpha1", Kind: "BucketAccess", Name: "web", UID: uid, Controller: &yes}}
	}
	for _, version := range versions {
		for _, c := range []struct {
			name    string
			change  func(a *api)
			d       provisioner.Delivery
			want    fault.Kind
			held    string // in the environment
			written bool
		}{
			{name: "the key is there", d: formats(request("old", "", false)), held: "old"},
			{name: "the key that is replaced", d: formats(request("next", "old", false)), held: "next", written: true},
			{name: "a look at another key", d: formats(request("next", "", false)), want: fault.Mismatch, held: "old"},
			{name: "a key that no rotation has led to", d: first("lost"), held: "lost", written: true},
			{name: "edited", change: func(a *api) { a.secrets["blue/web-env"].Data["BUCKET_NAME"] = []byte("x") }, d: formats(request("old", "", false)), want: fault.Mismatch, held: "old"},
			{name: "edited, and before a rotation", change: func(a *api) { a.secrets["blue/web-env"].Data["BUCKET_NAME"] = []byte("x") }, d: formats(request("old", "old", false)), held: "old", written: true},
			{name: "edited, and repaired", change: func(a *api) { delete(a.secrets["blue/web-env"].Data, "AWS_ACCESS_KEY_ID") }, d: formats(request("old", "", true)), held: "old", written: true},
			{name: "deleted", change: func(a *api) { delete(a.secrets, "blue/web-env") }, d: formats(request("old", "", false)), want: fault.NotFound},
			{name: "deleted, and repaired", change: func(a *api) { delete(a.secrets, "blue/web-env") }, d: formats(request("old", "", true)), held: "old", written: true},
			{name: "a user's", change: func(a *api) { mine(a, func(*corev1.Secret) {}) }, d: first("old"), want: fault.Conflict, held: "mine"},
			{name: "a user's that the access owns", change: func(a *api) { mine(a, owned) }, d: formats(request("old", "", true)), want: fault.Conflict, held: "mine"},
			{name: "of the type, without an owner", change: func(a *api) {
				mine(a, func(s *corev1.Secret) { s.Type = "contract-cosi-driver/env" })
			}, d: first("old"), want: fault.Conflict, held: "mine"},
			{name: "of another format", change: func(a *api) {
				mine(a, func(s *corev1.Secret) { owned(s); s.Type = "contract-cosi-driver/file" })
			}, d: first("old"), want: fault.Conflict, held: "mine"},
			{name: "access being deleted", change: func(a *api) { a.accesses[2]["metadata"].(map[string]any)["deletionTimestamp"] = now }, d: first("next"), want: fault.FailedPrecondition, held: "old"},
			{name: "another driver's access", change: func(a *api) { a.accesses[2]["status"].(map[string]any)["accountID"] = "x" }, d: first("next"), want: fault.Conflict, held: "old"},
			{name: "no right", change: func(a *api) {
				a.refuse = func(verb, _ string) int { return map[bool]int{true: 403}[verb == "put"] }
			}, d: first("next"), want: fault.PermissionDenied, held: "old"},
			{name: "a key that breaks lines", d: func() provisioner.Delivery {
				d := first("next")
				d.Key.SecretAccessKey = secret.New("a\nb")
				return d
			}(), want: fault.Internal, held: "old"},
		} {
			a := world(version)
			s, ctx, log := a.open(t)
			if _, err := s.Deliver(ctx, first("old")); err != nil {
				t.Fatal(err)
			}
			a.mu.Lock()
			pair := a.secrets["blue/web"].Data // the sidecar's has the same key
			for name, text := range pair {
				pair[name] = []byte(strings.ReplaceAll(string(text), "secret of ", "secret-of-"))
			}
			if c.change != nil {
				c.change(a)
			}
			a.mu.Unlock()
			log.Reset()
			written, err := s.Deliver(ctx, c.d)
			if held := a.entry("web-env", "AWS_ACCESS_KEY_ID"); fault.KindOf(err) != c.want || written != c.written || held != c.held {
				t.Errorf("%s, %s: written %v, %v; the environment has %q, want %q", version, c.name, written, err, held, c.held)
			}
			if strings.Contains(log.String(), "secret-of") || err != nil && strings.Contains(err.Error(), "secret-of") {
				t.Errorf("%s, %s: the log has %s, the error is %v", version, c.name, log, err)
			}
		}
	}
}

// What a user has put beside the driver's entries stays.
func TestEntriesBesideAFormatStay(t *testing.T) {
	t.Parallel()
	a := world("v1alpha1")
	s, ctx, _ := a.open(t)
	if _, err := s.Deliver(ctx, first("old")); err != nil {
		t.Fatal(err)
	}
	a.secrets["blue/web-env"].Data["MINE"] = []byte("y")
	a.secrets["blue/web-env"].Labels = map[string]string{"mine": "x"}
	if written, err := s.Deliver(ctx, first("old")); err != nil || written {
		t.Errorf("written %v, %v", written, err)
	}
	if _, err := s.Deliver(ctx, first("next")); err != nil || a.entry("web-env", "MINE") != "y" || a.secrets["blue/web-env"].Labels["mine"] != "x" {
		t.Errorf("%v, %+v", err, a.secrets["blue/web-env"])
	}
}

// A Secret that COSI calls as a format would be called is COSI's.
func TestSecretCalledAsAFormat(t *testing.T) {
	t.Parallel()
	a := world("v1alpha2")
	a.second("web-env")
	s, ctx, _ := a.open(t)
	if _, err := s.Deliver(ctx, first("next")); !fault.Is(err, fault.Conflict) || a.entry("web-env", "COSI_S3_ACCESS_KEY_ID") != "old" || a.entry("web-env-env", "AWS_ACCESS_KEY_ID") != "next" {
		t.Errorf("%v, %+v", err, a.secrets)
	}
	d := formats(request("next", "old", false))
	if _, err := s.Deliver(ctx, d); !fault.Is(err, fault.Conflict) || a.entry("web-env", "COSI_S3_ACCESS_KEY_ID") != "next" {
		t.Errorf("%v, %+v", err, a.secrets)
	}
}

// Names that no Secret can have are refused before any call for them.
func TestNamesOfFormats(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("a", 250), "../../red/secrets/x", "A b", "-", "x\n"} {
		a := world("v1alpha1")
		a.accesses[2]["spec"].(map[string]any)["credentialsSecretName"] = name
		s, ctx, _ := a.open(t)
		if written, err := s.Deliver(ctx, first("old")); written || !fault.Is(err, fault.InvalidArgument) || a.writes > 0 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, %v", name, written, err)
		}
	}
}

// An answer that is lost, on the way to the API server or back, is no second Secret.
func TestFormatsWithAnswersLost(t *testing.T) {
	t.Parallel()
	for _, arrives := range []bool{false, true} {
		a := world("v1alpha1")
		lost := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || lost == 2 {
				a.ServeHTTP(w, r)
				return
			}
			lost++
			if arrives {
				a.ServeHTTP(httptest.NewRecorder(), r)
			}
			w.WriteHeader(http.StatusInternalServerError)
		}))
		t.Cleanup(server.Close)
		s, err := delivery.New(delivery.Config{At: &rest.Config{Host: server.URL}, Called: func(string, error) {}, CA: func(string) ([]byte, error) { return nil, nil }})
		if err != nil {
			t.Fatal(err)
		}
		ctx := klog.NewContext(t.Context(), klog.Logger{})
		if _, err := s.Deliver(ctx, first("old")); !fault.Is(err, fault.Unavailable) {
			t.Error(err)
		}
		if _, err := s.Deliver(ctx, first("old")); err != nil || a.writes != 2 || a.entry("web-env", "AWS_ACCESS_KEY_ID") != "old" {
			t.Errorf("arrives %v: %v, %d writes", arrives, err, a.writes)
		}
	}
}

// A Secret that is created while its access is deleted does not stay.
func TestDeletedWhileFormatted(t *testing.T) {
	t.Parallel()
	a := world("v1alpha1")
	a.before = func(verb, resource string) {
		if verb == "post" && resource == "secrets" {
			a.mu.Lock()
			a.accesses = a.accesses[:2]
			a.mu.Unlock()
		}
	}
	s, ctx, _ := a.open(t)
	_, err := s.Deliver(ctx, first("old"))
	if left := slices.Sorted(maps.Keys(a.secrets)); !fault.Is(err, fault.FailedPrecondition) || !slices.Equal(left, []string{"blue/web"}) {
		t.Errorf("%v, left %v", err, left)
	}
}

// With its access, also while that is being deleted, go the Secrets in formats and no
// others.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for _, version := range versions {
		for _, foreign := range []bool{false, true} {
			a := world(version)
			s, ctx, log := a.open(t)
			if version == "v1alpha2" {
				s = served(ctx, t, s)
			}
			if _, err := s.Deliver(ctx, first("old")); err != nil {
				t.Fatal(err)
			}
			want := []string{"blue/web"}
			if foreign {
				a.secrets["blue/web-file"] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "web-file"}, Type: corev1.SecretTypeOpaque}
				want = append(want, "blue/web-file")
			}
			a.accesses[2]["metadata"].(map[string]any)["deletionTimestamp"] = now
			for range 2 {
				if err := s.Withdraw(ctx, first("old").Access, []string{"env", "file"}); err != nil {
					t.Error(err)
				}
			}
			if left := slices.Sorted(maps.Keys(a.secrets)); !slices.Equal(left, want) {
				t.Errorf("%s: left %v, want %v", version, left, want)
			}
			if told := strings.Count(log.String(), "Secret deleted"); told != 3-len(want) {
				t.Errorf("%s: the log has %s", version, log)
			}
		}
	}
}

// A Secret that a user has put in the place of the driver's, between the look and the
// deletion, stays.
func TestWithdrawOfAnother(t *testing.T) {
	t.Parallel()
	a := world("v1alpha1")
	s, ctx, _ := a.open(t)
	if _, err := s.Deliver(ctx, first("old")); err != nil {
		t.Fatal(err)
	}
	a.before = func(verb, resource string) {
		if verb == "delete" && resource == "secrets" {
			a.mu.Lock()
			a.secrets["blue/web-env"] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "web-env", UID: "mine"}}
			a.mu.Unlock()
		}
	}
	if err := s.Withdraw(ctx, first("old").Access, []string{"env"}); !fault.Is(err, fault.Mismatch) || a.secrets["blue/web-env"] == nil {
		t.Errorf("%v, left %v", err, a.secrets)
	}
}

// tender does what it is told for accesses.
type tender struct {
	mu    sync.Mutex
	tries map[string]int
	fail  func(id string, n int) error
	all   []cosi.AccountID
}

func (t *tender) Tend(_ context.Context, key journal.Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tries[key.ID]++
	return t.fail(key.ID, t.tries[key.ID])
}

func (t *tender) Unformatted(context.Context) ([]cosi.AccountID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tries[""]++
	if err := t.fail("", t.tries[""]); err != nil {
		return nil, err
	}
	return t.all, nil
}

func (t *tender) tried(id string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tries[id]
}

// What a process that was killed has left is taken up at the start, what is granted comes
// at once, and what fails is tried again for a time: for as long as an outage lasts, and soon
// after its end.
func TestSoon(t *testing.T) {
	t.Parallel()
	id := func(name string) cosi.AccountID {
		id, err := cosi.ParseAccountID("main.team." + name)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	synctest.Test(t, func(t *testing.T) {
		const outage = 2 * time.Hour
		away, begin, since := errors.New("away"), time.Now(), 0
		p := &tender{tries: map[string]int{}, all: []cosi.AccountID{id("left")}, fail: func(id string, n int) error {
			switch {
			case id == "main.team.outage" && time.Since(begin) < outage:
				return fault.New(fault.Unavailable, "the API server is away")
			case id == "main.team.outage":
				if since++; since < 4 { // the sidecar is not done either
					return away
				}
			case id == "main.team.never" || n < 3:
				return away
			}
			return nil
		}}
		s, err := delivery.New(delivery.Config{At: &rest.Config{}, Called: func(string, error) {}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx, p, time.Minute); close(done) }()
		s.Soon(id("granted"))
		s.Soon(id("never"))
		s.Soon(id("outage"))
		synctest.Wait()
		if n := p.tried("main.team.granted"); n != 1 {
			t.Errorf("tried %d times at once", n)
		}
		time.Sleep(outage - time.Second)
		during := p.tried("main.team.outage")
		time.Sleep(2*time.Minute + time.Second)
		after := p.tried("main.team.outage")
		time.Sleep(time.Hour)
		cancel()
		<-done
		if after != during+1 || p.tried("main.team.outage") != after+3 {
			t.Errorf("tried %d times in the outage, %d until soon after, and %d in all", during, after, p.tried("main.team.outage"))
		}
		delete(p.tries, "main.team.outage")
		if want := map[string]int{"": 3, "main.team.left": 3, "main.team.granted": 3, "main.team.never": 16}; !maps.Equal(p.tries, want) {
			t.Errorf("tries are %v, want %v", p.tries, want)
		}
	})
}

// hanging waits for the backend dead until it is told to stop.
type hanging struct{ done chan string }

func (h hanging) Tend(ctx context.Context, key journal.Key) error {
	if strings.HasPrefix(key.ID, "dead.") {
		<-ctx.Done()
		return ctx.Err()
	}
	h.done <- key.ID
	return nil
}

func (hanging) Unformatted(context.Context) ([]cosi.AccountID, error) { return nil, nil }

// A storage service that does not answer holds up no access at another.
func TestSoonAtEachBackend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := delivery.New(delivery.Config{At: &rest.Config{}, Called: func(string, error) {}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		p, ended := hanging{make(chan string, 1)}, make(chan struct{})
		for n := range 20 {
			s.Soon(cosi.AccountID{ContractID: cosi.ContractID{Backend: "dead", Contract: "team"}, Account: fmt.Sprint("ba-", n)})
		}
		go func() { s.Run(ctx, p, time.Minute); close(ended) }()
		synctest.Wait()
		s.Soon(first("old").Access)
		synctest.Wait()
		if len(p.done) != 1 {
			t.Error("an access at a backend that answers waits for one that does not")
		}
		cancel()
		<-ended
	})
}
