package events_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/contract-cosi/contract-cosi-driver/pkg/events"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
	"github.com/contract-cosi/contract-cosi-driver/test/poll"
)

const (
	claimUID  = "11111111-2222-4333-8444-555555555555"
	accessUID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
)

// api is as much of an API server as Events need.
type api struct {
	mu     sync.Mutex
	events []corev1.Event
	calls  []string
	deny   bool
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, r.Method+" "+r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, v any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	status := func(code int, reason string) {
		answer(code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code})
	}
	ref := map[string]any{"name": "photos", "namespace": "team-blue", "uid": claimUID}
	bucket := func(version, name string, spec map[string]any) {
		answer(200, map[string]any{"kind": "Bucket", "apiVersion": "objectstorage.k8s.io/" + version, "metadata": map[string]any{"name": name}, "spec": spec})
	}
	list := func(version string) {
		answer(200, map[string]any{"kind": "BucketAccessList", "apiVersion": "objectstorage.k8s.io/" + version, "metadata": map[string]any{}, "items": []any{
			map[string]any{"metadata": map[string]any{"name": "other", "uid": claimUID}},
			map[string]any{"metadata": map[string]any{"name": "web", "uid": accessUID}},
		}})
	}
	switch path := r.URL.Path; {
	case a.deny:
		status(403, "Forbidden")
	case path == "/apis/objectstorage.k8s.io/v1alpha1/buckets/bucket-"+claimUID:
		bucket("v1alpha1", "bucket-"+claimUID, map[string]any{"bucketClaim": ref})
	case path == "/apis/objectstorage.k8s.io/v1alpha2/buckets/bc-"+claimUID:
		bucket("v1alpha2", "bc-"+claimUID, map[string]any{"bucketClaimRef": ref})
	case path == "/apis/objectstorage.k8s.io/v1alpha1/buckets/bucket-"+accessUID: // names another's claim
		bucket("v1alpha1", "bucket-"+accessUID, map[string]any{"bucketClaim": ref})
	case strings.HasSuffix(path, "/namespaces/team-blue/bucketaccesses") && r.URL.Query().Get("limit") != "":
		list(strings.Split(path, "/")[3])
	case r.Method == http.MethodPost && path == "/api/v1/namespaces/team-blue/events":
		var e corev1.Event
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			status(400, "BadRequest")
			return
		}
		a.events = append(a.events, e)
		answer(201, e)
	default:
		status(404, "NotFound")
	}
}

func (a *api) made() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, e := range a.events {
		of := e.InvolvedObject
		out = append(out, fmt.Sprintf("%s %s %s/%s %s %s %s: %s", of.APIVersion, of.Kind, of.Namespace, of.Name, of.UID, e.Type, e.Reason, e.Message))
	}
	return out
}

// start runs a Teller until the test ends.
func start(t *testing.T, a *api) (*events.Teller, *harness.Buffer) {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	teller, err := events.New(&rest.Config{Host: server.URL}, "d.example.com", func(string, error) {})
	if err != nil {
		t.Fatal(err)
	}
	log := &harness.Buffer{}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log)))))
	done := make(chan struct{})
	go func() { defer close(done); teller.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return teller, log
}

func TestTell(t *testing.T) {
	t.Parallel()
	a := &api{}
	teller, _ := start(t, a)
	long := strings.Repeat("ä", 5000)
	for _, f := range []events.Failure{
		{Version: "v1alpha1", Reason: "CreateBucketFailed", Bucket: "bucket-" + claimUID, Message: "the class is wrong"},
		{Version: "v1alpha1", Reason: "CreateBucketFailed", Bucket: "bucket-" + claimUID, Message: "the class is wrong"}, // told a moment ago
		{Version: "v1alpha1", Reason: "GrantBucketAccessFailed", Bucket: "main.team-blue.bucket-" + claimUID, Access: "ba-" + accessUID, Message: "no key"},
		{Version: "v1alpha1", Reason: "RevokeBucketAccessFailed", Bucket: "main.team-blue.bucket-" + claimUID, Access: "main.team-blue.ba-" + accessUID, Message: "no answer"},
		{Version: "v1alpha1", Reason: "CreateBucketFailed", Bucket: "bucket-" + accessUID, Message: "not that claim's"},
		{Version: "v1alpha1", Reason: "CreateBucketFailed", Bucket: "bucket-00000000-0000-4000-8000-000000000000", Message: "no such Bucket"},
		{Version: "v1alpha1", Reason: "CreateBucketFailed", Bucket: "photos", Message: "no UID"},
		{Version: "v1alpha1", Reason: "CreateBucketFailed", Bucket: "../../secrets/x-" + claimUID, Message: "a path"},
		{Version: "v1alpha3", Reason: "CreateBucketFailed", Bucket: "bucket-" + claimUID, Message: "no such version"},
		{Version: "v1alpha2", Reason: "DriverDeleteBucketFailed", Bucket: "main.team-blue.bc-" + claimUID, Message: long},
	} {
		teller.Tell(f)
	}
	poll.Until(t, "four Events", func() bool { return len(a.made()) >= 4 })
	want := []string{
		"objectstorage.k8s.io/v1alpha1 BucketClaim team-blue/photos " + claimUID + " Warning CreateBucketFailed: the class is wrong",
		"objectstorage.k8s.io/v1alpha1 BucketAccess team-blue/web " + accessUID + " Warning GrantBucketAccessFailed: no key",
		"objectstorage.k8s.io/v1alpha1 BucketAccess team-blue/web " + accessUID + " Warning RevokeBucketAccessFailed: no answer",
		"objectstorage.k8s.io/v1alpha2 BucketClaim team-blue/photos " + claimUID + " Warning DriverDeleteBucketFailed: " + strings.Repeat("ä", 510) + "…",
	}
	for i, got := range a.made() {
		if i >= len(want) || got != want[i] {
			t.Errorf("Event %d is %.300s", i, got)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, call := range a.calls {
		if strings.Contains(call, "secrets") {
			t.Errorf("call %s", call)
		}
	}
}

// Without the right to, the log says what is missing, once, and all else goes on.
// However much fails, telling it neither waits nor keeps it all.
func TestForbidden(t *testing.T) {
	t.Parallel()
	a := &api{deny: true}
	teller, log := start(t, a)
	began := time.Now()
	for i := range 5_000 {
		teller.Tell(events.Failure{Version: "v1alpha1", Bucket: "bucket-" + claimUID, Message: fmt.Sprint(i)})
	}
	const reason = "its Role needs get on buckets.objectstorage.k8s.io"
	poll.Until(t, "several refusals", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.calls) > 5
	})
	a.mu.Lock()
	calls := len(a.calls)
	a.mu.Unlock()
	if most := 11 + int(time.Since(began)/time.Second); calls > most {
		t.Errorf("%d calls, at most %d are due", calls, most)
	}
	poll.Until(t, "a line of the log", func() bool { return strings.Contains(log.String(), reason) })
	if n := strings.Count(log.String(), reason); n != 1 {
		t.Errorf("the reason is told %d times:\n%s", n, log)
	}
}
