package deploy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// An access is decided by the others of its namespace, and by its class if that
// is of this driver.
func TestAccesses(t *testing.T) {
	t.Parallel()
	access := func(name, class, secret string) *unstructured.Unstructured {
		o := thing("v1alpha1", "BucketAccess", name, map[string]any{"bucketClaimName": "photos", "bucketAccessClassName": class, "credentialsSecretName": secret})
		o.SetNamespace("red")
		return o
	}
	there := access("old", "foreign", "taken")
	classes := []*unstructured.Unstructured{
		class("v1alpha1", "BucketAccessClass", "ours", map[string]any{"driverName": strings.ToUpper(driverName)}),
		class("v1alpha1", "BucketAccessClass", "foreign", map[string]any{"driverName": "other.example.com"}),
	}
	loose := with(minimal(), "admission.secretNamedAsAccess", false)
	const (
		shared = "credentialsSecretName taken is that of BucketAccess old; give each access a Secret of its own"
		named  = "credentialsSecretName has to be the name of the BucketAccess, photos, so that no other access has it"
		where  = "namespace red gets no Secrets of CONTRACT.COSI.EXAMPLE.COM; ask the operator of the platform to add it to sidecar.secretNamespaces"
	)
	for name, c := range map[string]struct {
		values values
		access *unstructured.Unstructured
		says   string
	}{
		"its own name":             {minimal(), access("photos", "ours", "photos"), ""},
		"another name":             {minimal(), access("photos", "ours", "other"), named},
		"another's name":           {minimal(), access("photos", "ours", "taken"), shared + "|" + named},
		"its own name is another":  {minimal(), access("taken", "ours", "taken"), shared},
		"applied again":            {minimal(), access("old", "foreign", "taken"), ""},
		"another driver's":         {minimal(), access("photos", "foreign", "other"), ""},
		"another driver's, shared": {minimal(), access("photos", "foreign", "taken"), shared},
		"without the rule":         {loose, access("photos", "ours", "other"), ""},
		"without the rule, shared": {loose, access("photos", "ours", "taken"), shared},
		"no Secrets here":          {with(loose, "sidecar.secretNamespaces", []any{"blue", "green"}), access("photos", "ours", "other"), where},
		"Secrets here":             {with(loose, "sidecar.secretNamespaces", []any{"blue", "red"}), access("photos", "ours", "other"), ""},
		"no Secrets of ours here":  {with(loose, "sidecar.secretNamespaces", []any{"blue"}), access("photos", "foreign", "other"), ""},
	} {
		files := mustRender(t, c.values)
		got := compile(t, files, "accesses-secret").decide(t, change{resource: "bucketaccesses", new: c.access, namespace: inNamespace("red", nil), params: there})
		for _, class := range classes {
			if has(files, "ValidatingAdmissionPolicy", release+"-accesses") {
				got = append(got, compile(t, files, "accesses").decide(t, change{resource: "bucketaccesses", new: c.access, namespace: inNamespace("red", nil), params: class})...)
			}
		}
		if strings.Join(got, "|") != c.says {
			t.Errorf("%s: got %q, want %q", name, got, c.says)
		}
	}
	v2 := mustRender(t, inVersion(minimal(), "v1alpha2"))
	for _, policy := range []string{"accesses", "accesses-secret"} {
		if has(v2, "ValidatingAdmissionPolicy", release+"-"+policy) {
			t.Errorf("policy %s is for v1alpha1", policy)
		}
	}
}
