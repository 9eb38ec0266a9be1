package delivery_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/delivery"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube/objects"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

const (
	uid   = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
	other = "11111111-2222-4333-8444-555555555555"
)

// api is as much of an API server as a delivery needs, with a state.
type api struct {
	mu       sync.Mutex
	version  string
	accesses []map[string]any
	secrets  map[string]*corev1.Secret // by namespace and name
	writes   int
	limits   []string // of lists
	refuse   func(verb, resource string) int
	before   func(verb, resource string) // runs without the lock
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verb, resource := strings.ToLower(r.Method), "bucketaccesses"
	if strings.Contains(r.URL.Path, "/secrets") {
		resource = "secrets"
	}
	if a.before != nil {
		a.before(verb, resource)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if limit := r.URL.Query().Get("limit"); limit != "" || r.URL.Query().Has("continue") {
		a.limits = append(a.limits, limit)
	}
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, v any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	status := func(code int, reason metav1.StatusReason) {
		answer(code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: int32(code)})
	}
	if a.refuse != nil {
		switch code := a.refuse(verb, resource); code {
		case 403:
			status(403, metav1.StatusReasonForbidden)
			return
		case 404:
			status(404, metav1.StatusReasonNotFound)
			return
		case 500:
			status(500, metav1.StatusReasonInternalError)
			return
		}
	}
	of := "objectstorage.k8s.io/" + a.version
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/apis/objectstorage.k8s.io":
		v := map[string]any{"groupVersion": of, "version": a.version}
		answer(200, map[string]any{"kind": "APIGroup", "apiVersion": "v1", "name": "objectstorage.k8s.io", "versions": []any{v}, "preferredVersion": v})
	case resource == "bucketaccesses" && len(parts) == 6:
		var in []map[string]any
		for _, one := range a.accesses {
			if one["metadata"].(map[string]any)["namespace"] == parts[4] {
				in = append(in, one)
			}
		}
		answer(200, map[string]any{"kind": "BucketAccessList", "apiVersion": of, "metadata": map[string]any{}, "items": in})
	case r.URL.Path == "/apis/"+of+"/bucketaccesses": // two a page
		from := 0
		_, _ = fmt.Sscan(r.URL.Query().Get("continue"), &from)
		to, next := min(from+2, len(a.accesses)), ""
		if to < len(a.accesses) {
			next = fmt.Sprint(to)
		}
		answer(200, map[string]any{"kind": "BucketAccessList", "apiVersion": of, "metadata": map[string]any{"continue": next}, "items": a.accesses[from:to]})
	case strings.HasPrefix(r.URL.Path, "/apis/"+of+"/") && resource == "bucketaccesses" && len(parts) == 7:
		for _, one := range a.accesses {
			if meta := one["metadata"].(map[string]any); meta["namespace"] == parts[4] && meta["name"] == parts[6] {
				out := maps.Clone(one)
				out["kind"], out["apiVersion"] = "BucketAccess", of
				answer(200, out)
				return
			}
		}
		status(404, metav1.StatusReasonNotFound)
	case resource == "secrets":
		var in corev1.Secret
		var options metav1.DeleteOptions
		if verb == "delete" {
			_ = json.NewDecoder(r.Body).Decode(&options)
		}
		if verb == "post" || verb == "put" {
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				status(400, metav1.StatusReasonBadRequest)
				return
			}
		}
		key := parts[3] + "/" + in.Name
		if verb != "post" {
			key = parts[3] + "/" + parts[5]
		}
		have := a.secrets[key]
		switch {
		case verb == "post" && have != nil:
			status(409, metav1.StatusReasonAlreadyExists)
			return
		case verb != "post" && have == nil:
			status(404, metav1.StatusReasonNotFound)
			return
		case verb == "put" && in.ResourceVersion != have.ResourceVersion:
			status(409, metav1.StatusReasonConflict)
			return
		case verb == "put" && have.Immutable != nil && *have.Immutable:
			status(422, metav1.StatusReasonInvalid)
			return
		case options.Preconditions != nil && *options.Preconditions.UID != have.UID:
			status(409, metav1.StatusReasonConflict)
			return
		case verb == "delete":
			delete(a.secrets, key)
		case verb != "get":
			a.writes++
			in.ResourceVersion, in.UID = fmt.Sprint(a.writes), "u"
			a.secrets[key], have = &in, &in
		}
		out := have.DeepCopy()
		out.Kind, out.APIVersion = "Secret", "v1"
		answer(200, out)
	default:
		status(404, metav1.StatusReasonNotFound)
	}
}

func access(name, uid, namespace string, spec, st map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": name, "uid": uid, "namespace": namespace}, "spec": spec, "status": st}
}

func pair(id string) secret.KeyPair {
	return secret.KeyPair{AccessKeyID: id, SecretAccessKey: secret.New("secret of " + id)}
}

const upstreams = `{"metadata":{"name":"bc-` + uid + `","creationTimestamp":null},"spec":{"bucketName":"data","authenticationType":"Key","secretS3":{"endpoint":"https://s3.example","region":"us-east-1","accessKeyID":"old","accessSecretKey":"secret of old"},"secretAzure":null,"protocols":["S3"]},"more":{"a":[1]}}`

// world is an API server with one access, and another that is no one's business.
func world(version string) *api {
	a := &api{version: version, secrets: map[string]*corev1.Secret{}}
	strange := access("other", other, "red", map[string]any{"credentialsSecretName": "other"}, nil)
	if version == "v1alpha1" {
		a.accesses = []map[string]any{strange, strange, access("web", uid, "blue", map[string]any{"credentialsSecretName": "web", "protocol": "S3"}, map[string]any{"accountID": "main.team.ba-" + uid})}
		a.secrets["blue/web"] = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "web", Labels: map[string]string{"mine": "x"}, Finalizers: []string{"cosi.objectstorage.k8s.io/secret-protection"}, ResourceVersion: "0"},
			Data:       map[string][]byte{"BucketInfo": []byte(upstreams), "mine": []byte("y")},
		}
		return a
	}
	yes := true
	a.accesses = []map[string]any{strange, strange, access("web", uid, "blue",
		map[string]any{"protocol": "S3", "bucketClaims": []any{map[string]any{"bucketClaimName": "data", "accessSecretName": "web"}}},
		map[string]any{"accountID": "main.team.ba-" + uid, "accessedBuckets": []any{map[string]any{"bucketID": "main.team.data", "bucketClaimName": "data"}}})}
	a.secrets["blue/web"] = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "blue", Name: "web", Labels: map[string]string{"mine": "x"}, ResourceVersion: "0", Finalizers: []string{"objectstorage.k8s.io/protection"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "objectstorage.k8s.io/v1alpha2", Kind: "BucketAccess", Name: "web", UID: uid, Controller: &yes}},
		},
		Data: map[string][]byte{
			"COSI_S3_BUCKET_ID": []byte("data"), "COSI_S3_ENDPOINT": []byte("https://s3.example"), "COSI_S3_REGION": []byte("us-east-1"), "COSI_S3_ADDRESSING_STYLE": []byte("path"),
			"COSI_S3_ACCESS_KEY_ID": []byte("old"), "COSI_S3_ACCESS_SECRET_KEY": []byte("secret of old"), "mine": []byte("y"),
		},
	}
	return a
}

// held is the key in the Secret.
func (a *api) held() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.secrets["blue/web"]
	if s == nil {
		return ""
	}
	if id, is := s.Data["COSI_S3_ACCESS_KEY_ID"]; is {
		return string(id) + "/" + string(s.Data["COSI_S3_ACCESS_SECRET_KEY"])
	}
	var info struct {
		Spec struct {
			SecretS3 struct{ AccessKeyID, AccessSecretKey string }
		}
	}
	_ = json.Unmarshal(s.Data["BucketInfo"], &info)
	return info.Spec.SecretS3.AccessKeyID + "/" + info.Spec.SecretS3.AccessSecretKey
}

func (a *api) open(t *testing.T, namespaces ...string) (*delivery.Secrets, context.Context, *bytes.Buffer) {
	t.Helper()
	s := a.client(t, namespaces...)
	log := &bytes.Buffer{}
	return s, klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log)))), log
}

// certificate is what a backend's CA file has, beside what no one else may see.
var certificate = &pem.Block{Type: "CERTIFICATE", Bytes: []byte("one")}

// client calls the API server without a network.
func (a *api) client(t *testing.T, namespaces ...string) *delivery.Secrets {
	t.Helper()
	ca := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("secret-of-ca")}), pem.EncodeToMemory(certificate)...)
	s, err := delivery.New(delivery.Config{At: &rest.Config{Host: "http://api.example", Transport: a}, Namespaces: namespaces, Called: func(string, error) {}, CA: func(backend string) ([]byte, error) {
		if backend != "main" {
			t.Errorf("the CA of backend %s was asked for", backend)
		}
		return ca, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// RoundTrip implements http.RoundTripper.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	a.ServeHTTP(w, r)
	return w.Result(), nil
}

func request(key, replaces string, repair bool) provisioner.Delivery {
	id, _ := cosi.ParseAccountID("main.team.ba-" + uid)
	return provisioner.Delivery{
		Access: id, Key: pair(key), Replaces: replaces, Repair: repair,
		Buckets: []provisioner.Bucket{{ID: cosi.BucketID{ContractID: id.ContractID, Bucket: "data"}, Endpoint: cosi.Endpoint{URL: "https://s3.example", Region: "us-east-1", PathStyle: true}}},
	}
}

var versions = []string{"v1alpha1", "v1alpha2"}

func TestDeliver(t *testing.T) {
	t.Parallel()
	now, yes := metav1.Now(), true
	immutable := func(_ *api, s *corev1.Secret) { s.Immutable = &yes }
	for _, version := range versions {
		for _, c := range []struct {
			name     string
			change   func(a *api, s *corev1.Secret)
			d        provisioner.Delivery
			want     fault.Kind
			held     string
			replaced bool
			unnamed  bool // the error is about all of them
		}{
			{name: "the key is there", d: request("old", "", false), held: "old"},
			{name: "a look at another key", d: request("next", "", false), want: fault.Mismatch, held: "old"},
			{name: "the key that is replaced", d: request("next", "old", false), held: "next", replaced: true},
			{name: "a key that is not", d: request("next", "older", false), want: fault.Mismatch, held: "old"},
			{name: "whatever is there", d: request("next", "", true), held: "next", replaced: true},
			{name: "missing", change: func(a *api, _ *corev1.Secret) { delete(a.secrets, "blue/web") }, d: request("next", "old", false), want: fault.NotFound},
			{name: "re-created", change: func(a *api, _ *corev1.Secret) { delete(a.secrets, "blue/web") }, d: request("next", "", true), held: "next", replaced: true},
			{name: "of another access", change: func(_ *api, s *corev1.Secret) {
				s.OwnerReferences = nil
				s.Data["BucketInfo"] = bytes.ReplaceAll(s.Data["BucketInfo"], []byte(uid), []byte(other))
			}, d: request("next", "", true), want: fault.Conflict, held: "old"},
			{name: "of no sidecar", change: func(_ *api, s *corev1.Secret) { s.Finalizers, s.OwnerReferences = nil, nil }, d: request("next", "old", false), want: fault.Conflict, held: "old"},
			{name: "Secret being deleted", change: func(_ *api, s *corev1.Secret) { s.DeletionTimestamp = &now }, d: request("next", "", true), want: fault.Conflict, held: "old"},
			{name: "access being deleted", change: func(a *api, _ *corev1.Secret) {
				a.accesses[2]["metadata"].(map[string]any)["deletionTimestamp"] = now
			}, d: request("next", "", true), want: fault.FailedPrecondition, held: "old"},
			{name: "no access", change: func(a *api, _ *corev1.Secret) { a.accesses = a.accesses[:2] }, d: request("next", "", true), want: fault.FailedPrecondition, held: "old", unnamed: true},
			{name: "another driver's access", change: func(a *api, _ *corev1.Secret) { a.accesses[2]["status"].(map[string]any)["accountID"] = "x" }, d: request("next", "old", true), want: fault.Conflict, held: "old"},
			{name: "immutable, with the key", change: immutable, d: request("old", "", false), held: "old"},
			{name: "immutable, with the key after a rotation", change: immutable, d: request("old", "older", false), held: "old"},
			{name: "immutable, before a rotation", change: immutable, d: request("old", "old", false), want: fault.InvalidArgument, held: "old"},
			{name: "immutable, with the key that is replaced", change: immutable, d: request("next", "old", false), want: fault.InvalidArgument, held: "old"},
			{name: "immutable, a look at another key", change: immutable, d: request("next", "", false), want: fault.Mismatch, held: "old"},
			{name: "immutable, whatever is there", change: immutable, d: request("next", "", true), want: fault.InvalidArgument, held: "old"},
			{name: "a name that no Secret has", change: func(a *api, _ *corev1.Secret) {
				a.accesses[2]["spec"] = map[string]any{"credentialsSecretName": "../web"}
			}, d: request("next", "old", false), want: fault.InvalidArgument, held: "old", unnamed: true},
			{name: "COSI is not served for now", change: func(a *api, _ *corev1.Secret) {
				a.refuse = func(_, resource string) int { return map[bool]int{true: 404}[resource == "bucketaccesses"] }
			}, d: request("next", "old", false), want: fault.Unavailable, held: "old", unnamed: true},
			{name: "no right", change: func(a *api, _ *corev1.Secret) {
				a.refuse = func(_, resource string) int { return map[bool]int{true: 403}[resource == "secrets"] }
			}, d: request("next", "old", false), want: fault.PermissionDenied, held: "old"},
			{name: "API server in trouble", change: func(a *api, _ *corev1.Secret) {
				a.refuse = func(verb, _ string) int { return map[bool]int{true: 500}[verb == "put"] }
			}, d: request("next", "old", false), want: fault.Unavailable, held: "old"},
		} {
			for _, by := range []string{"itself", "deliver"} {
				a := world(version)
				if c.change != nil {
					c.change(a, a.secrets["blue/web"])
				}
				s, ctx, log := a.open(t)
				if by == "deliver" {
					s = served(ctx, t, s)
				}
				written, err := s.Deliver(ctx, c.d)
				held := ""
				if c.held != "" {
					held = c.held + "/secret of " + c.held
				}
				if fault.KindOf(err) != c.want || written != c.replaced || a.held() != held {
					t.Errorf("%s, by %s, %s: written %v, %v; the Secret has %q, want %q", version, by, c.name, written, err, a.held(), held)
				}
				if err != nil && !c.unnamed && !strings.Contains(err.Error(), "blue/web") {
					t.Errorf("%s, by %s, %s: %v does not say of which Secret or BucketAccess", version, by, c.name, err)
				}
				if told := strings.Contains(log.String(), "secret=\"blue/web\""); told != c.replaced || strings.Contains(log.String(), "secret of") {
					t.Errorf("%s, by %s, %s: the log has %s", version, by, c.name, log)
				}
			}
		}
	}
}

// served has another process write the Secrets: the answers are its own.
func served(ctx context.Context, t *testing.T, writes *delivery.Secrets) *delivery.Secrets {
	t.Helper()
	dir, err := os.MkdirTemp("", "d") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- delivery.Serve(ctx, listener, writes) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	s, err := delivery.New(delivery.Config{Socket: socket, Called: func(string, error) {}, CA: func(string) ([]byte, error) { return pem.EncodeToMemory(certificate), nil }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// As long as no one writes the Secrets, or someone else listens there, the key waits.
func TestNobodyDelivers(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	var called []string
	s, err := delivery.New(delivery.Config{Socket: socket, Called: func(call string, err error) { called = append(called, call+" "+string(fault.KindOf(err))) }})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Deliver(t.Context(), request("next", "old", false)); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "check that it runs") {
		t.Errorf("no one listens: %v", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	other.Listener = listener
	other.Start()
	t.Cleanup(other.Close)
	if _, err := s.Deliver(t.Context(), request("next", "old", false)); !fault.Is(err, fault.Unavailable) || strings.Contains(err.Error(), "secret of") {
		t.Errorf("something else listens: %v", err)
	}
	if want := []string{"deliver Unavailable", "deliver Unavailable"}; !slices.Equal(called, want) {
		t.Errorf("metrics hear of %q, want %q", called, want)
	}
}

// With a list of namespaces nothing is asked of any other.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		namespaces []string
		want       fault.Kind
	}{{[]string{"blue"}, ""}, {[]string{"red", "green"}, fault.PermissionDenied}} {
		a := world("v1alpha1")
		s, ctx, _ := a.open(t, c.namespaces...)
		_, err := s.Deliver(ctx, request("next", "old", false))
		if fault.KindOf(err) != c.want {
			t.Errorf("%v: %v", c.namespaces, err)
		}
		_, err = s.Deliver(ctx, request("next", "old", false))
		if c.want != "" && !fault.Is(err, fault.RateLimited) { // it was listed a moment ago
			t.Errorf("%v, again: %v", c.namespaces, err)
		}
	}
}

// A tenant who makes each BucketAccess as long as etcd takes them takes no more memory than
// a container has, and none for longer than the list.
func TestLongAccesses(t *testing.T) {
	t.Parallel()
	const etcd, most = 3 << 19, 32 << 20
	a := world("v1alpha2")
	s, ctx, _ := a.open(t)
	if _, err := s.Deliver(ctx, request("next", "old", false)); err != nil {
		t.Fatal(err)
	}
	for _, limit := range a.limits {
		if n, err := strconv.Atoi(limit); err != nil || n < 1 || n*etcd > most {
			t.Errorf("%q are listed at a time", limit)
		}
	}
	if len(a.limits) != 2 {
		t.Errorf("lists had limits %q", a.limits)
	}
	var list objects.BucketAccessList
	if err := json.Unmarshal([]byte(`{"items":[{"metadata":{"name":"web","annotations":{"a":"long"}},"spec":{"credentialsSecretName":"long"}}]}`), &list); err != nil {
		t.Fatal(err)
	}
	if kept := fmt.Sprint(list); !strings.Contains(kept, "web") || strings.Contains(kept, "long") {
		t.Errorf("of a list is kept %s", kept)
	}
}

// A BucketAccess that was there and is gone is not one of a namespace that is not listed:
// no one is told to list it, and a Secret that was re-created for it is taken away.
func TestGoneFromAListedNamespace(t *testing.T) {
	t.Parallel()
	a := world("v1alpha1")
	s, ctx, _ := a.open(t, "blue")
	if _, err := s.Deliver(ctx, request("old", "", false)); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	a.accesses = a.accesses[:2]
	a.mu.Unlock()
	if _, err := s.Deliver(ctx, request("old", "", false)); !fault.Is(err, fault.FailedPrecondition) {
		t.Error(err)
	}
}

// Many accesses whose BucketAccess is gone, as after a namespace was deleted by force, are
// told of by one list, and not by one for each.
func TestManyAreGone(t *testing.T) {
	t.Parallel()
	a := world("v1alpha2")
	synctest.Test(t, func(t *testing.T) {
		s := a.client(t)
		gone := map[int]bool{}
		for range 30 {
			for n := range 100 {
				d := request("next", "old", false)
				d.Access.Account = fmt.Sprintf("ba-%08d-2222-4333-8444-555555555555", n)
				if _, err := s.Deliver(t.Context(), d); fault.Is(err, fault.FailedPrecondition) {
					gone[n] = true
				} else if !gone[n] && !fault.Is(err, fault.RateLimited) {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		if lists := len(a.limits) / 2; len(gone) != 100 || lists > 3 {
			t.Errorf("after %d lists %d of 100 are known to be gone", lists, len(gone))
		}
	})
}

// A cluster that is moved from one version of COSI to the other keeps its accounts: the
// Secret of the new BucketAccess is found, with the driver running.
func TestAcrossVersions(t *testing.T) {
	t.Parallel()
	a := world("v1alpha1")
	s, ctx, _ := a.open(t)
	if _, err := s.Deliver(ctx, request("next", "old", false)); err != nil {
		t.Fatal(err)
	}
	moved := world("v1alpha2")
	a.mu.Lock()
	a.version, a.accesses, a.secrets = "v1alpha2", moved.accesses, moved.secrets
	a.secrets["blue/web"].Data["COSI_S3_ACCESS_KEY_ID"] = []byte("next")
	a.mu.Unlock()
	if written, err := s.Deliver(ctx, request("last", "next", false)); err != nil || !written || a.held() != "last/secret of last" {
		t.Errorf("written %v, %v; the Secret has %q", written, err, a.held())
	}
}

// Whatever others have put into a Secret stays, and its JSON too.
func TestOtherFieldsStay(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		a := world(version)
		before := a.secrets["blue/web"].DeepCopy()
		s, ctx, _ := a.open(t)
		if _, err := s.Deliver(ctx, request("next", "old", false)); err != nil {
			t.Fatal(err)
		}
		after := a.secrets["blue/web"]
		for name, text := range after.Data {
			want := strings.ReplaceAll(strings.ReplaceAll(string(before.Data[name]), "secret of old", "secret of next"), `"old"`, `"next"`)
			if strings.HasSuffix(name, "KEY_ID") {
				want = "next"
			}
			if got := string(text); got != want && canonical(got) != canonical(want) {
				t.Errorf("%s: %s is %s, want %s", version, name, got, want)
			}
		}
		if len(after.Data) != len(before.Data) || !maps.Equal(after.Labels, before.Labels) || !slices.Equal(after.Finalizers, before.Finalizers) || len(after.OwnerReferences) != len(before.OwnerReferences) {
			t.Errorf("%s: %+v", version, after)
		}
	}
}

// A key that a user has put beside that of the sidecar stays; a copy is replaced with it.
func TestKeyBesideTheSidecars(t *testing.T) {
	t.Parallel()
	for beside, want := range map[string]string{"mine": "mine", "old": "next"} {
		a := world("v1alpha2")
		data := a.secrets["blue/web"].Data
		data["AWS_ACCESS_KEY_ID"], data["AWS_SECRET_ACCESS_KEY"] = []byte(beside), []byte("secret of "+beside)
		s, ctx, _ := a.open(t)
		if _, err := s.Deliver(ctx, request("next", "old", false)); err != nil {
			t.Fatal(err)
		}
		data = a.secrets["blue/web"].Data
		if got := string(data["AWS_ACCESS_KEY_ID"]); got != want || string(data["AWS_SECRET_ACCESS_KEY"]) != "secret of "+want || a.held() != "next/secret of next" {
			t.Errorf("%s beside it is %s, and the key is %s", beside, got, a.held())
		}
	}
}

// second gives the v1alpha2 access another Secret, which holds what its first does.
func (a *api) second(name string) {
	a.accesses[2]["spec"].(map[string]any)["bucketClaims"] = []any{
		map[string]any{"bucketClaimName": "data", "accessSecretName": "web"}, map[string]any{"bucketClaimName": "data", "accessSecretName": name},
	}
	made := a.secrets["blue/web"].DeepCopy()
	made.Name = name
	a.secrets["blue/"+name] = made
}

// Of an access with two Secrets, one that was edited does not hide that the other may
// still hold the key before.
func TestSeveralSecrets(t *testing.T) {
	t.Parallel()
	a := world("v1alpha2")
	a.second("web2")
	a.secrets["blue/web"].Data["COSI_S3_ACCESS_KEY_ID"] = []byte("by hand")
	a.refuse = func(verb, _ string) int { return map[bool]int{true: 500}[verb == "put"] }
	s, ctx, _ := a.open(t)
	if written, err := s.Deliver(ctx, request("next", "old", false)); written || !fault.Is(err, fault.Unavailable) {
		t.Errorf("written %v, %v", written, err)
	}
}

func canonical(text string) string {
	var v any
	_ = json.Unmarshal([]byte(text), &v)
	out, _ := json.Marshal(v)
	return string(out)
}

// What is re-created is what the sidecar has created.
func TestReCreatedAsItWas(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		a := world(version)
		before := a.secrets["blue/web"]
		delete(a.secrets, "blue/web")
		delete(before.Data, "mine")
		before.Data["BucketInfo"] = bytes.ReplaceAll(before.Data["BucketInfo"], []byte(`,"more":{"a":[1]}`), nil)
		if version == "v1alpha2" {
			delete(before.Data, "BucketInfo")
		}
		s, ctx, _ := a.open(t)
		if _, err := s.Deliver(ctx, request("old", "", true)); err != nil {
			t.Fatal(err)
		}
		after := a.secrets["blue/web"]
		for name := range before.Data {
			if got, want := string(after.Data[name]), string(before.Data[name]); got != want && canonical(got) != canonical(want) {
				t.Errorf("%s: %s is %s, want %s", version, name, got, want)
			}
		}
		if len(after.Data) != len(before.Data) || !slices.Equal(after.Finalizers, before.Finalizers) || len(after.OwnerReferences) != len(before.OwnerReferences) {
			t.Errorf("%s: %+v, want %+v", version, after, before)
		}
	}
}

// An edit between the look and the write is seen: one that leaves the key is kept, and
// one of the key ends the delivery. A Secret that never stands still is for later.
func TestEditedAtTheSameTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(s *corev1.Secret, n int)
		want fault.Kind
		held string
	}{
		"a label":       {func(s *corev1.Secret, n int) { s.Labels = map[string]string{"n": fmt.Sprint(min(n, 2))} }, "", "next"},
		"the key":       {func(s *corev1.Secret, _ int) { s.Data["COSI_S3_ACCESS_KEY_ID"] = []byte("mine") }, fault.Mismatch, "mine"},
		"again, always": {func(s *corev1.Secret, n int) { s.Labels = map[string]string{"n": fmt.Sprint(n)} }, fault.Unavailable, "old"},
	} {
		a := world("v1alpha2")
		n := 0
		a.before = func(verb, resource string) {
			if verb != "put" || resource != "secrets" {
				return
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			s := a.secrets["blue/web"].DeepCopy()
			n++
			c.edit(s, n)
			if canonical(fmt.Sprint(s.Labels, s.Data)) == canonical(fmt.Sprint(a.secrets["blue/web"].Labels, a.secrets["blue/web"].Data)) && fmt.Sprint(s.Labels, s.Data) == fmt.Sprint(a.secrets["blue/web"].Labels, a.secrets["blue/web"].Data) {
				return
			}
			s.ResourceVersion += "e"
			a.secrets["blue/web"] = s
		}
		s, ctx, _ := a.open(t)
		_, err := s.Deliver(ctx, request("next", "old", false))
		if held := a.held(); fault.KindOf(err) != c.want || !strings.HasPrefix(held, c.held+"/") {
			t.Errorf("%s: %v, the Secret has %q", name, err, held)
		}
	}
}

// However much is logged, what is sent to the API server and comes from it is not.
func TestLoggedInFull(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		a := world(version)
		s, log := a.client(t), &bytes.Buffer{}
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log), textlogger.Verbosity(100))))
		if _, err := s.Deliver(ctx, request("next", "old", false)); err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"secret of", base64.StdEncoding.EncodeToString([]byte("secret of")), string(a.secrets["blue/web"].Data["BucketInfo"]), base64.StdEncoding.EncodeToString(a.secrets["blue/web"].Data["BucketInfo"])} {
			if text != "" && strings.Contains(log.String(), text) {
				t.Errorf("%s: the log has %.100q in %.3000s", version, text, log)
			}
		}
		if !strings.Contains(log.String(), "Secret updated") {
			t.Errorf("%s: the log has %s", version, log)
		}
	}
}

// Between look and write another driver has taken over, and written a newer key: what this
// one would repair is not overwritten.
func TestRepairedByAnother(t *testing.T) {
	t.Parallel()
	a := world("v1alpha2")
	a.before = func(verb, resource string) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if s := a.secrets["blue/web"].DeepCopy(); verb == "put" && s.ResourceVersion == "0" {
			s.Data["COSI_S3_ACCESS_KEY_ID"], s.ResourceVersion = []byte("newer"), "1n"
			a.secrets["blue/web"] = s
		}
	}
	s, ctx, _ := a.open(t)
	if written, err := s.Deliver(ctx, request("next", "", true)); written || !fault.Is(err, fault.Unavailable) || !strings.HasPrefix(a.held(), "newer/") {
		t.Errorf("written %v, %v; the Secret has %q", written, err, a.held())
	}
}

// A process whose right to change things may end before a write does writes nothing.
func TestWithoutTheRightToChange(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"itself", "deliver"} {
		for name, d := range map[string]provisioner.Delivery{"update": request("next", "old", false), "create": first("old")} {
			a := world("v1alpha1")
			s, ctx, _ := a.open(t)
			if by == "deliver" {
				s = served(ctx, t, s)
			}
			ctx = transport.Guarded(ctx, func(time.Duration) error { return fault.New(fault.Unavailable, "the Lease ends") })
			if written, err := s.Deliver(ctx, d); written || !fault.Is(err, fault.Unavailable) || a.writes > 0 {
				t.Errorf("%s, by %s: written %v, %v, %d writes", name, by, written, err, a.writes)
			}
		}
	}
}

// A Secret that is re-created while its access is deleted does not stay.
func TestDeletedWhileReCreated(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		a := world(version)
		delete(a.secrets, "blue/web")
		a.before = func(verb, resource string) {
			if verb == "post" && resource == "secrets" {
				a.mu.Lock()
				a.accesses = a.accesses[:2]
				a.mu.Unlock()
			}
		}
		s, ctx, _ := a.open(t)
		written, err := s.Deliver(ctx, request("old", "", true))
		if written || !fault.Is(err, fault.FailedPrecondition) || len(a.secrets) > 0 {
			t.Errorf("%s: written %v, %v, left %v", version, written, err, a.secrets)
		}
	}
}
