package deploy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// lookalike is another name than the driver's, and the same to the released
// sidecars.
const lookalike = "contract.co\u017fi.example.com"

// The names that the released sidecars take for the driver's are the driver's to
// every policy, and a name outside ASCII can be given to nothing.
func TestDriverNames(t *testing.T) {
	t.Parallel()
	files := mustRender(t, minimal())
	names, classes := compile(t, files, "names"), compile(t, files, "bucketclasses")
	for _, v := range versions {
		for name, says := range map[string]string{
			driverName:                  "",
			strings.ToUpper(driverName): "",
			"other.example.com":         "",
			lookalike:                   "driverName has a character outside ASCII; write the driver's name in ASCII",
			"\u00e4.example.com":        "driverName has a character outside ASCII; write the driver's name in ASCII",
			driverName + "\n":           "driverName has a character outside ASCII; write the driver's name in ASCII",
		} {
			fields := map[string]any{"driverName": name, "deletionPolicy": "Delete", "parameters": map[string]any{"nonsense": "1"}}
			for resource, o := range map[string]*unstructured.Unstructured{
				"bucketclasses": class(v, "BucketClass", "x", fields), "bucketaccessclasses": class(v, "BucketAccessClass", "x", fields),
				"buckets": thing(v, "Bucket", "x", fields),
			} {
				if got := strings.Join(names.decide(t, change{resource: resource, new: o}), "|"); got != says {
					t.Errorf("%s %s of %q: got %q, want %q", v, resource, name, got, says)
				}
			}
			of := class(v, "BucketClass", "x", fields)
			if ours := strings.EqualFold(name, driverName); ours != (len(classes.decide(t, change{resource: "bucketclasses", new: of})) > 0) {
				t.Errorf("%s: to a sidecar a class of %q is ours: %v; to the policy it is not so", v, name, ours)
			}
		}
		disk := compile(t, mustRender(t, with(minimal(), "config.driver.name", "disk.example.com")), "bucketclasses")
		folded := class(v, "BucketClass", "x", map[string]any{"driverName": "di\u017f\u212a.example.com", "deletionPolicy": "Delete"})
		if len(disk.decide(t, change{resource: "bucketclasses", new: folded})) == 0 {
			t.Errorf("%s: a class that is as good as ours is not looked at", v)
		}
		tenants := compile(t, mustRender(t, inVersion(minimal(), v)), "tenants")
		claim := thing(v, "BucketClaim", "photos", map[string]any{"bucketClassName": "x"})
		older := class(v, "BucketClass", "x", map[string]any{"driverName": lookalike})
		if len(tenants.decide(t, change{resource: "bucketclaims", new: claim, namespace: inNamespace("red", nil), params: older})) == 0 {
			t.Errorf("%s: an older class that is as good as ours can be claimed", v)
		}
		old := class(v, "BucketClass", "x", map[string]any{"driverName": lookalike, "deletionPolicy": "Delete"})
		labelled := old.DeepCopy()
		labelled.SetLabels(map[string]string{"a": "b"})
		if got := names.decide(t, change{resource: "bucketclasses", old: old, new: labelled}); len(got) > 0 {
			t.Errorf("%s: an older class cannot be labelled: %q", v, got)
		}
	}
}
