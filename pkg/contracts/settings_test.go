package contracts

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
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
	if len(all) != 2 || all[0].Name != "old" || len(c.settings.of("red/photos")) > 0 || len(c.settings.claimsIn("blue")) != 3 {
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
