package contracts

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube/objects"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
)

// fields are the names of a type's fields in JSON.
func fields(of any) (names []string) {
	for field := range reflect.TypeOf(of).Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// A BucketSettings can say whatever a class can that changes in a bucket's life, and its
// status tells of every option.
func TestSettingsSayWhatClassesSay(t *testing.T) {
	t.Parallel()
	spec := fields(v1alpha1.BucketSettingsSpec{})
	for _, p := range params.Table() {
		fixed := slices.Contains([]string{"contract", "region", "placement", "onDelete"}, p.Name)
		if p.Class == params.BucketClass && slices.Contains(spec, p.Name) == fixed {
			t.Errorf("%s is a field of the spec: %v", p.Name, !fixed)
		}
	}
	now := fields(v1alpha1.BucketNow{})
	for _, option := range bucket.Options() {
		if !strings.HasPrefix(option, "public-") && !slices.Contains(now, option) {
			t.Errorf("the status does not tell of %s", option)
		}
	}
}

// What a spec says is what the parameters of those names say.
func TestSpecIsParameters(t *testing.T) {
	t.Parallel()
	days, bytes := int32(3), int64(1)<<60
	spec := v1alpha1.BucketSettingsSpec{
		BucketClaimName: "photos", BlockPublicAccess: []string{}, GrantRead: []v1alpha1.Grantee{"id=b", "id=a"}, ExpireAfterDays: &days, MaxBytes: &bytes,
		Tags: map[string]v1alpha1.TagValue{"b": "2", "a": "1"}, Policy: "{}",
	}
	given := params.Given(spec)
	delete(given, "bucketClaimName")
	want := map[string]string{"blockPublicAccess": "none", "grantRead": "id=b,id=a", "expireAfterDays": "3", "maxBytes": "1152921504606846976", "tags": "a=1,b=2", "policy": "{}"}
	if !reflect.DeepEqual(given, want) {
		t.Errorf("it gives %v", given)
	}
	delete(given, "policy")
	if err := params.CheckSettings(given); err != nil {
		t.Error(err)
	}
}

// Of several BucketSettings for a claim the oldest counts that is not being deleted.
func TestWhichSettingsCount(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	t.Cleanup(c.settings.queue.ShutDown)
	for name, age := range map[string]time.Duration{"gone": 9 * time.Hour, "old": 5 * time.Hour, "young": time.Hour} {
		obj := &v1alpha1.BucketSettings{
			ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
			Spec:       v1alpha1.BucketSettingsSpec{BucketClaimName: "photos"},
		}
		if name == "gone" {
			obj.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
		}
		c.add(c.settings.informer, obj)
	}
	all := c.settings.of("blue/photos")
	if len(all) != 2 || all[0].Name != "old" || len(c.settings.of("red/photos")) > 0 || len(c.settings.claimsOf("blue", "any")) != 3 {
		t.Errorf("they are %v", all)
	}
}

// What a service says is told as a terminal can show it, and what S3 cannot undo in words.
func TestNow(t *testing.T) {
	t.Parallel()
	got := provisioner.Configured{State: &bucket.State{
		Has:  map[string]string{"policy": "a\x1b[31m\u202eb" + strings.Repeat("x", nowMost), "versioning": "Suspended", "objectLock": "Enabled", "later": "unknown"},
		Tags: map[string]string{"k\x00": "v\n"}, PublicBy: []string{"acl"},
	}}
	now := nowOf(got)
	if !strings.HasPrefix(now.Policy, "a[31mbxxx") || len(now.Policy) > nowMost || now.Tags["k"] != "v" || now.PublicBy[0] != "acl" || now.Versioning != "Suspended" {
		t.Errorf("it is %.100v", now)
	}
	if texts := remains(got); len(texts) != 2 {
		t.Errorf("what stays: %v", texts)
	}
}

// After a start, buckets that a status tells of have their turns in the course of time.
func TestTurns(t *testing.T) {
	t.Parallel()
	s := &settings{due: map[string]time.Time{}}
	if look, _ := s.isDue("blue/a", false); !look {
		t.Error("what no status tells of is not looked at")
	}
	if look, left := s.isDue("blue/a", true); look || left <= 0 || left > lookSettings {
		t.Errorf("what a status tells of is looked at: %v, in %s", look, left)
	}
	s.due["blue/a"] = time.Now().Add(-time.Second)
	if look, _ := s.isDue("blue/a", true); !look {
		t.Error("what is due is not looked at")
	}
}

// alone is a writer that always may.
type alone struct{}

func (alone) EnterIdle(ctx context.Context) (context.Context, func(), error) {
	return ctx, func() {}, nil
}

// bringing is a provisioner of which the first attempts fail.
type bringing struct {
	Provisioner
	fails []error
	got   provisioner.Configured // beside a failure
	asked []string               // claims, "" for none, of the settings that buckets were to be brought to
}

func (b *bringing) Settled(context.Context) (map[string][]cosi.BucketID, error) {
	return map[string][]cosi.BucketID{}, nil
}

func (b *bringing) Configure(_ context.Context, _ cosi.BucketID, s *journal.Settings, _ bool) (provisioner.Configured, error) {
	claim := ""
	if s != nil {
		claim = s.Claim
	}
	b.asked = append(b.asked, claim)
	if n := len(b.asked); n <= len(b.fails) {
		return b.got, b.fails[n-1]
	}
	return provisioner.Configured{Accepted: true, State: &bucket.State{}}, nil
}

// controlled is a control beside an API server with a claim blue/photos and its bucket,
// and without BucketSettings. What was applied to it comes out of the channel.
func controlled(t *testing.T, p Provisioner) (*control, <-chan string) {
	t.Helper()
	applied := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(r.URL.Path, "/buckets/"):
			_, _ = io.WriteString(w, `{"apiVersion":"objectstorage.k8s.io/v1alpha1","kind":"Bucket","metadata":{"name":"b"},"spec":{"driverName":"driver.example.com","bucketClaim":{"namespace":"blue","name":"photos"}},"status":{"bucketID":"main.team.data"}}`)
		case r.Method == http.MethodPatch:
			body, _ := io.ReadAll(r.Body)
			applied <- string(body)
			_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Status","status":"Success"}`)
		case r.Method == http.MethodGet:
			_, _ = io.WriteString(w, `{"apiVersion":"contract-cosi.github.io/v1alpha1","kind":"BucketSettingsList","metadata":{},"items":[]}`)
		default:
			_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Status","status":"Success"}`)
		}
	}))
	t.Cleanup(server.Close)
	c := contractsAt(t, server.URL)
	cosiV1 := schema.GroupVersion{Group: objects.Group, Version: objects.V1alpha1}
	var err error
	at := &cosiObjects{version: objects.V1alpha1}
	for _, k := range []struct {
		to   **kube.Client
		name string
		of   runtime.Object
	}{{&at.buckets, "buckets", &objects.Bucket{}}, {&at.claims, "bucketclaims", &objects.BucketClaim{}}} {
		if *k.to, err = kube.NewClient(c.At, "", kube.Resource{Version: cosiV1, Name: k.name, Kind: k.name, Verbs: "get", Types: []runtime.Object{k.of}}, c.Called); err != nil {
			t.Fatal(err)
		}
	}
	c.made.version = at
	if c.settings.claims, err = at.claims.Follow(&objects.BucketClaim{}, func() runtime.Object { return &objects.BucketClaimList{} }, ""); err != nil {
		t.Fatal(err)
	}
	c.settings.known = func() bool { return true }
	claim := &objects.BucketClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "photos"}}
	claim.Status.BucketName = "b"
	if err := c.settings.claims.GetStore().Add(claim); err != nil {
		t.Fatal(err)
	}
	return &control{Contracts: c, provisioner: p, writer: alone{}}, applied
}

// Settings are accepted once the contract's guard has allowed them, not where it was
// never asked. What was accepted stays so while the driver cannot ask.
func TestAcceptedByTheGuard(t *testing.T) {
	t.Parallel()
	away := fault.New(fault.Unavailable, "the journal is away")
	accepted := []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, ObservedGeneration: 1}}
	for _, c := range []struct {
		what       string
		before     []metav1.Condition
		generation int64
		got        provisioner.Configured
		err        error
		want       metav1.ConditionStatus
	}{
		{"the guard was not asked", nil, 1, provisioner.Configured{}, away, metav1.ConditionUnknown},
		{"the bucket has no class yet", nil, 1, provisioner.Configured{}, fault.New(fault.Pending, "later"), metav1.ConditionUnknown},
		{"nor of the change", accepted, 2, provisioner.Configured{}, away, metav1.ConditionUnknown},
		{"it was asked before", accepted, 1, provisioner.Configured{}, away, metav1.ConditionTrue},
		{"it refuses", accepted, 1, provisioner.Configured{}, fmt.Errorf("%w", provisioner.ErrNotAccepted), metav1.ConditionFalse},
		{"it allows, and the service is away", nil, 1, provisioner.Configured{Accepted: true}, away, metav1.ConditionTrue},
		{"it allows", nil, 1, provisioner.Configured{Accepted: true, State: &bucket.State{}}, nil, metav1.ConditionTrue},
	} {
		k, applied := controlled(t, &bringing{got: c.got, fails: []error{c.err}})
		obj := &v1alpha1.BucketSettings{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "s", UID: "1", Generation: c.generation}, Spec: v1alpha1.BucketSettingsSpec{BucketClaimName: "photos"}}
		obj.Status.Conditions = c.before
		if err := k.settings.informer.GetStore().Add(obj); err != nil {
			t.Fatal(err)
		}
		_, _ = k.configure(t.Context(), "blue/photos") // what it says is not the matter
		var out v1alpha1.BucketSettings
		if err := json.Unmarshal([]byte(<-applied), &out); err != nil {
			t.Fatal(err)
		}
		if got := meta.FindStatusCondition(out.Status.Conditions, v1alpha1.Accepted); got == nil || got.Status != c.want {
			t.Errorf("%s: %+v", c.what, got)
		}
	}
}

// Settings that a service was told of, and that are deleted before it has them all, are
// withdrawn: the journal has them.
func TestHalfBroughtSettingsAreWithdrawn(t *testing.T) {
	t.Parallel()
	p := &bringing{fails: []error{fault.New(fault.Unavailable, "it is away")}}
	k, _ := controlled(t, p)
	obj := &v1alpha1.BucketSettings{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "s", UID: "1", Generation: 1}, Spec: v1alpha1.BucketSettingsSpec{BucketClaimName: "photos", Versioning: "Enabled"}}
	if err := k.settings.informer.GetStore().Add(obj); err != nil {
		t.Fatal(err)
	}
	if _, err := k.configure(t.Context(), "blue/photos"); !fault.Is(err, fault.Unavailable) {
		t.Fatalf("it says %v", err)
	}
	if err := k.settings.informer.GetStore().Delete(obj); err != nil {
		t.Fatal(err)
	}
	if _, err := k.configure(t.Context(), "blue/photos"); err != nil || !slices.Equal(p.asked, []string{"blue/photos", ""}) {
		t.Errorf("the bucket was brought to %q, %v", p.asked, err)
	}
}

// Nothing is remembered of settings that are gone.
func TestSettingsThatAreGoneAreForgotten(t *testing.T) {
	t.Parallel()
	k, _ := controlled(t, &bringing{})
	obj := &v1alpha1.BucketSettings{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "s", UID: "1", Generation: 1}, Spec: v1alpha1.BucketSettingsSpec{BucketClaimName: "photos"}}
	if err := k.settings.informer.GetStore().Add(obj); err != nil {
		t.Fatal(err)
	}
	if _, err := k.configure(t.Context(), "blue/photos"); err != nil || len(k.settings.due) != 1 || len(k.settings.held) != 1 {
		t.Fatalf("due are %v, held %v, %v", k.settings.due, k.settings.held, err)
	}
	if err := k.settings.informer.GetStore().Delete(obj); err != nil {
		t.Fatal(err)
	}
	if _, err := k.configure(t.Context(), "blue/photos"); err != nil || len(k.settings.due)+len(k.settings.held) > 0 {
		t.Errorf("due are %v, held %v, %v", k.settings.due, k.settings.held, err)
	}
}

// The API server is not asked every few seconds for a claim that these settings will never
// be for.
func TestSettingsForNoBucketWaitForTheClaim(t *testing.T) {
	t.Parallel()
	k, _ := controlled(t, &bringing{})
	k.Driver = "other.example.com"
	for name, uid := range map[string]types.UID{"photos": "", "missing": "", "videos": "2"} {
		claim := &objects.BucketClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: name, UID: uid}}
		claim.Status.BucketName = "b"
		if name != "missing" {
			if err := k.settings.claims.GetStore().Add(claim); err != nil {
				t.Fatal(err)
			}
		}
		obj := &v1alpha1.BucketSettings{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: name, UID: "1", Generation: 1}, Spec: v1alpha1.BucketSettingsSpec{BucketClaimName: name}}
		if err := k.settings.informer.GetStore().Add(obj); err != nil {
			t.Fatal(err)
		}
		if again, err := k.configure(t.Context(), "blue/"+name); err != nil || again != lookSettings {
			t.Errorf("%s: again in %s, %v", name, again, err)
		}
	}
}

// BucketSettings that are re-created under their name for another claim are two changes,
// also where the informer has seen one.
func TestSettingsAreRecreatedForAnotherClaim(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	t.Cleanup(c.settings.queue.ShutDown)
	of := func(uid types.UID, claim string) *v1alpha1.BucketSettings {
		return &v1alpha1.BucketSettings{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "s", UID: uid, Generation: 1}, Spec: v1alpha1.BucketSettingsSpec{BucketClaimName: claim}}
	}
	c.settingsUpdated(of("1", "photos"), of("2", "videos"))
	if n := c.settings.queue.Len(); n != 2 {
		t.Errorf("%d claims are looked at", n)
	}
	c.settingsUpdated(of("2", "videos"), of("2", "videos"))
	if n := c.settings.queue.Len(); n != 2 {
		t.Errorf("%d claims are looked at", n)
	}
}

// A bucket has the settings of one claim: those of another that had it before are not
// withdrawn in their place.
func TestABucketHasTheSettingsOfOneClaim(t *testing.T) {
	t.Parallel()
	id := cosi.BucketID{ContractID: cosi.ContractID{Backend: "main", Contract: "team"}, Bucket: "data"}
	s := &settings{held: map[string][]cosi.BucketID{"blue/photos": {id}}}
	for range 2 {
		s.holds("red/photos", id)
	}
	if len(s.held["blue/photos"]) != 0 || !slices.Equal(s.held["red/photos"], []cosi.BucketID{id}) {
		t.Errorf("they are %v", s.held)
	}
}
