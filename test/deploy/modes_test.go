package deploy

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The modes of an access are held to its class in both forms: one for each bucket,
// and one in each category.
func TestModes(t *testing.T) {
	t.Parallel()
	one := func(mode string) map[string]any { return map[string]any{"accessMode": mode} }
	three := func(pairs ...string) map[string]any {
		modes := map[string]any{}
		for i := 0; i < len(pairs); i += 2 {
			modes[pairs[i]] = pairs[i+1]
		}
		return map[string]any{"accessModes": modes}
	}
	access := func(class string, claims ...map[string]any) *unstructured.Unstructured {
		list := make([]any, len(claims))
		for i, c := range claims {
			list[i] = c
		}
		return thing("v1alpha2", "BucketAccess", "photos", map[string]any{"bucketAccessClassName": class, "bucketClaims": list})
	}
	accessClass := func(name, driver string, parameters map[string]any) *unstructured.Unstructured {
		return class("v1alpha2", "BucketAccessClass", name, map[string]any{"driverName": driver, "parameters": parameters})
	}
	classes := []*unstructured.Unstructured{
		class("v1alpha2", "BucketAccessClass", "bare", map[string]any{"driverName": driverName}),
		accessClass("all", driverName, map[string]any{"access": "ReadWrite"}),
		accessClass("reads", strings.ToUpper(driverName), map[string]any{"access": "ReadOnly"}),
		accessClass("part", driverName, map[string]any{"prefix": "in/"}),
		accessClass("parts", driverName, map[string]any{"prefixes": "in/,out/"}),
		accessClass("foreign", "other.example.com", map[string]any{"access": "ReadOnly"}),
	}
	const (
		only = "the BucketAccessClass allows ReadOnly only; use another BucketAccessClass"
		part = "a bucketMetadata that writes is asked for, and the BucketAccessClass limits keys to a part of the bucket; use another BucketAccessClass, or ReadOnly"
	)
	policy := compile(t, mustRender(t, inVersion(minimal(), "v1alpha2")), "modes")
	for name, c := range map[string]struct {
		access *unstructured.Unstructured
		says   string
	}{
		"one, any class":              {access("bare", one("WriteOnly")), ""},
		"one, the class's":            {access("reads", one("ReadOnly")), ""},
		"one, not the class's":        {access("reads", one("ReadOnly"), one("ReadWrite")), only},
		"one, a class that writes":    {access("all", one("ReadOnly")), ""},
		"three, any class":            {access("bare", three("objectData", "ReadWrite", "bucketMetadata", "ReadWrite")), ""},
		"three, the class's":          {access("reads", three("objectData", "ReadOnly", "objectMetadata", "ReadOnly")), ""},
		"three, not the class's":      {access("reads", three("objectData", "ReadOnly", "objectMetadata", "WriteOnly")), only},
		"three, no objectData":        {access("reads", three("bucketMetadata", "ReadWrite")), only},
		"a part, reads":               {access("part", three("objectData", "ReadWrite", "bucketMetadata", "ReadOnly")), ""},
		"a part, writes":              {access("part", three("bucketMetadata", "WriteOnly")), part},
		"parts, the second one":       {access("parts", three("objectData", "ReadOnly"), three("bucketMetadata", "ReadWrite")), part},
		"parts, one mode":             {access("parts", one("ReadWrite")), ""},
		"another driver's":            {access("foreign", one("ReadWrite")), ""},
		"another driver's, with more": {access("foreign", three("bucketMetadata", "ReadWrite")), ""},
	} {
		var got []string
		for _, class := range classes {
			got = append(got, policy.decide(t, change{resource: "bucketaccesses", new: c.access, namespace: inNamespace("red", nil), params: class})...)
		}
		if strings.Join(got, "|") != c.says {
			t.Errorf("%s: got %q, want %q", name, got, c.says)
		}
	}
	if has(mustRender(t, minimal()), "ValidatingAdmissionPolicy", release+"-modes") {
		t.Error("in v1alpha1 no access has modes")
	}
}
