package deploy

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// classCase is one case of testdata/classes.yaml.
type classCase struct {
	Name       string            `json:"name"`
	Class      params.Class      `json:"class"`
	Parameters map[string]string `json:"parameters"`
	Says       string            `json:"says"`
	OnlyDriver bool              `json:"onlyDriver"`
}

func classCases(t *testing.T) []classCase {
	t.Helper()
	text, err := os.ReadFile("testdata/classes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []classCase
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

func resourceOf(c params.Class) string { return strings.ToLower(string(c)) + "es" }

func (c classCase) object(version, name string) *unstructured.Unstructured {
	fields := map[string]any{"driverName": driverName}
	if c.Class == params.BucketClass {
		fields["deletionPolicy"] = "Delete"
	} else {
		fields["authenticationType"] = "Key"
	}
	if len(c.Parameters) > 0 {
		given := map[string]any{}
		for key, value := range c.Parameters {
			given[key] = value
		}
		fields["parameters"] = given
	}
	return class(version, string(c.Class), name, fields)
}

var nearest = regexp.MustCompile(`(is unknown; )did you mean \w+\?`)

// driver is what the driver says of a class, with the one difference that is
// known: it names the nearest key of an unknown one.
func (c classCase) driver() string {
	var err error
	var known []string
	if c.Class == params.BucketClass {
		_, err = params.ParseBucket(c.Parameters)
	} else {
		_, err = params.ParseAccess(c.Parameters)
	}
	if err == nil {
		return ""
	}
	for _, p := range params.Table() {
		if p.Class == c.Class {
			known = append(known, p.Name)
		}
	}
	slices.Sort(known)
	return nearest.ReplaceAllString(err.Error(), "${1}known are "+strings.Join(known, ", "))
}

// The driver and the policies refuse the same classes with the same texts.
func TestClasses(t *testing.T) {
	t.Parallel()
	files := mustRender(t, minimal())
	policies := map[params.Class]policy{}
	for _, c := range []params.Class{params.BucketClass, params.BucketAccessClass} {
		policies[c] = compile(t, files, resourceOf(c))
	}
	for _, c := range classCases(t) {
		t.Run(c.Name, func(t *testing.T) {
			if got := c.driver(); got != c.Says {
				t.Errorf("the driver says\n  %s\nwant\n  %s", got, c.Says)
			}
			want := c.Says
			if c.OnlyDriver {
				want = ""
			}
			for _, v := range versions {
				got := policies[c.Class].decide(t, change{resource: resourceOf(c.Class), new: c.object(v, "x")})
				if strings.Join(got, " | ") != want {
					t.Errorf("the policy for %s says\n  %s\nwant\n  %s", v, strings.Join(got, " | "), want)
				}
			}
		})
	}
}

// Values that are put together at random are refused by both or by none.
func TestClassesAtRandom(t *testing.T) {
	t.Parallel()
	files := mustRender(t, minimal())
	random := rand.New(rand.NewPCG(1, 2))
	parts := []string{"", "a", "Z", "-", ".", " ", "\t", "\n", ",", "=", `"`, "é", "id=", "uri=", "aws:", "contract-cosi-driver/", "{", "}", "Statement", `\u`,
		"10.0.0.1", "::1", "/8", "/129", "%eth0", "*", "Enabled", "refuse", "ReadOnly", "private", strings.Repeat("x", 63), strings.Repeat("y,", 60), "\u00a0", "\u2028"}
	for _, table := range []params.Class{params.BucketClass, params.BucketAccessClass} {
		p := compile(t, files, resourceOf(table))
		for _, parameter := range params.Table() {
			if parameter.Class != table {
				continue
			}
			for range 300 {
				var value strings.Builder
				for range 1 + random.IntN(5) {
					value.WriteString(parts[random.IntN(len(parts))])
				}
				c := classCase{Class: table, Parameters: map[string]string{parameter.Name: value.String()}}
				if table == params.BucketClass && parameter.Name != "contract" {
					c.Parameters["contract"] = "c"
				}
				driver, says := c.driver() != "", p.decide(t, change{resource: resourceOf(table), new: c.object("v1alpha1", "x")})
				if driver != (len(says) > 0) && !(driver && parameter.Name == "policy") {
					t.Errorf("%s %q: the driver says %q, the policy %q", parameter.Name, value.String(), c.driver(), says)
				}
			}
		}
	}
}

// The largest class that the API server takes is answered within its budget.
func TestClassesCost(t *testing.T) {
	t.Parallel()
	p := compile(t, mustRender(t, minimal()), "bucketclasses")
	c := classCase{Class: params.BucketClass, Parameters: map[string]string{
		"contract": strings.Repeat("a", 100<<10), "policy": "{" + strings.Repeat(" ", 20<<10-11) + "Statement}",
		"tags": strings.Repeat(",", 48), "grantRead": strings.Repeat("id=a,", 99) + "id=a", "grantWrite": strings.Repeat(",", 200<<10),
	}}
	for i := range 500 {
		c.Parameters[fmt.Sprintf("key-%d-%s", i, strings.Repeat("k", 200))] = "x"
	}
	// A text that would be too long gives way to a short one.
	got := p.decide(t, change{resource: "bucketclasses", new: c.object("v1alpha2", "x")})
	if len(got) != 1 || got[0] != "BucketClass parameters: unknown or malformed" {
		t.Errorf("got %q", got)
	}
}

func TestClassFields(t *testing.T) {
	t.Parallel()
	files := mustRender(t, minimal())
	for name, c := range map[string]struct {
		kind   params.Class
		fields map[string]any
		says   string
	}{
		"another driver's":    {params.BucketClass, map[string]any{"driverName": "other.example.com", "deletionPolicy": "Delete", "parameters": map[string]any{"x": "y"}}, ""},
		"our name in capital": {params.BucketClass, map[string]any{"driverName": strings.ToUpper(driverName), "deletionPolicy": "Delete"}, "BucketClass parameters: contract is missing: the contract that the bucket is made under, as the driver's configuration names it"},
		"deletion policy":     {params.BucketClass, map[string]any{"driverName": driverName, "deletionPolicy": "delete", "parameters": map[string]any{"contract": "c"}}, `deletionPolicy: "delete" is not one of Retain, Delete`},
		"authentication":      {params.BucketAccessClass, map[string]any{"driverName": driverName, "authenticationType": "IAM"}, `authenticationType: "IAM" is not supported by this driver; set authenticationType: Key`},
	} {
		for _, v := range versions {
			p := compile(t, files, resourceOf(c.kind))
			if got := p.decide(t, change{resource: resourceOf(c.kind), new: class(v, string(c.kind), "x", c.fields)}); strings.Join(got, "|") != c.says {
				t.Errorf("%s: got %q, want %q", name, got, c.says)
			}
		}
	}
}

// A class from before the policies can still be labelled and deleted.
func TestUnchangedClass(t *testing.T) {
	t.Parallel()
	p := compile(t, mustRender(t, minimal()), "bucketclasses")
	for _, v := range versions {
		old := classCase{Class: params.BucketClass, Parameters: map[string]string{"nonsense": "1"}}.object(v, "x")
		labelled := old.DeepCopy()
		labelled.SetLabels(map[string]string{"a": "b"})
		if got := p.decide(t, change{resource: "bucketclasses", old: old, new: labelled}); len(got) > 0 {
			t.Errorf("%s: a label is refused: %q", v, got)
		}
		changed := classCase{Class: params.BucketClass, Parameters: map[string]string{"nonsense": "2"}}.object(v, "x")
		if got := p.decide(t, change{resource: "bucketclasses", old: old, new: changed}); len(got) == 0 {
			t.Errorf("%s: another malformed class is accepted", v)
		}
	}
}

func TestLifetime(t *testing.T) {
	t.Parallel()
	p := compile(t, mustRender(t, minimal()), "lifetime")
	owner := map[string]any{"namespace": "blue", "name": "photos"}
	bound := map[string]any{"namespace": "blue", "name": "photos", "uid": "1"}
	const owned = "the Bucket belongs to another BucketClaim; a BucketClaim of existingBucketName has to be the one that its spec.bucketClaim names"
	type m = map[string]any
	for name, c := range map[string]struct {
		resource, kind string
		old, new       map[string]any
		says           string
	}{
		"class parameters":      {"bucketclasses", "BucketClass", m{"driverName": driverName, "parameters": m{"contract": "a"}}, m{"driverName": driverName, "parameters": m{"contract": "b"}}, "parameters cannot be changed once set; make a new object"},
		"class two":             {"bucketclasses", "BucketClass", m{"driverName": driverName, "deletionPolicy": "Delete", "parameters": m{"contract": "a"}}, m{"driverName": driverName, "deletionPolicy": "Retain"}, "deletionPolicy, parameters cannot be changed once set; make a new object"},
		"class is given away":   {"bucketclasses", "BucketClass", m{"driverName": driverName}, m{"driverName": "other"}, "driverName cannot be changed once set; make a new object"},
		"class foreign":         {"bucketclasses", "BucketClass", m{"driverName": "other", "parameters": m{"a": "1"}}, m{"driverName": "other", "parameters": m{"a": "2"}}, ""},
		"class gets parameters": {"bucketaccessclasses", "BucketAccessClass", m{"driverName": driverName, "authenticationType": "Key"}, m{"driverName": driverName, "authenticationType": "Key", "parameters": m{"access": "ReadOnly"}}, ""},
		"bucket retained":       {"buckets", "Bucket", m{"driverName": driverName, "deletionPolicy": "Delete"}, m{"driverName": driverName, "deletionPolicy": "Retain"}, ""},
		"bucket parameters set": {"buckets", "Bucket", m{"driverName": driverName, "existingBucketID": "a.b.c"}, m{"driverName": driverName, "existingBucketID": "a.b.c", "parameters": m{"contract": "b"}}, ""},
		"bucket id":             {"buckets", "Bucket", m{"driverName": driverName, "existingBucketID": "a.b.c"}, m{"driverName": driverName, "existingBucketID": "a.b.d"}, "existingBucketID cannot be changed once set; make a new object"},
		"bucket is bound":       {"buckets", "Bucket", m{"driverName": driverName, "bucketClaim": owner}, m{"driverName": driverName, "bucketClaim": bound}, ""},
		"bucket is stolen":      {"buckets", "Bucket", m{"driverName": driverName, "bucketClaim": bound}, m{"driverName": driverName, "bucketClaim": m{"namespace": "red", "name": "photos", "uid": "2"}}, owned},
		"bucket is let go":      {"buckets", "Bucket", m{"driverName": driverName, "bucketClaim": bound}, m{"driverName": driverName}, owned},
		"bucket foreign":        {"buckets", "Bucket", m{"driverName": "other", "bucketClaim": bound}, m{"driverName": "other"}, ""},
		"bucket status":         {"buckets/status", "Bucket", m{"driverName": driverName, "bucketID": "a.b.c"}, m{"driverName": driverName, "bucketID": "a.b.d"}, "bucketID cannot be changed once set; make a new object"},
		"bucket status set":     {"buckets/status", "Bucket", m{"driverName": driverName, "bucketReady": false}, m{"driverName": driverName, "bucketReady": true, "bucketID": "a.b.d"}, ""},
		"claim class":           {"bucketclaims", "BucketClaim", m{"bucketClassName": "a"}, m{"bucketClassName": "b"}, "bucketClassName cannot be changed once set; make a new object"},
		"claim class set":       {"bucketclaims", "BucketClaim", m{"bucketClassName": "", "protocols": []any{"S3"}}, m{"bucketClassName": "b", "protocols": []any{"S3"}}, ""},
		"access secret":         {"bucketaccesses", "BucketAccess", m{"credentialsSecretName": "a"}, m{"credentialsSecretName": "b"}, "credentialsSecretName cannot be changed once set; make a new object"},
		"access status":         {"bucketaccesses/status", "BucketAccess", m{"accountID": "a.b.c"}, m{"accountID": ""}, "accountID cannot be changed once set; make a new object"},
	} {
		resource, subresource, status := strings.Cut(c.resource, "/")
		build := func(fields m) *unstructured.Unstructured {
			switch {
			case status:
				return thing("v1alpha1", c.kind, "x", m{"driverName": fields["driverName"]}, fields)
			case strings.HasSuffix(c.kind, "Class"):
				return class("v1alpha1", c.kind, "x", fields)
			}
			return thing("v1alpha1", c.kind, "x", fields, nil)
		}
		ch := change{resource: resource, subresource: subresource, old: build(c.old), new: build(c.new)}
		if !p.asked(ch) {
			t.Errorf("%s: the policy is not asked", name)
		}
		if got := p.decide(t, ch); strings.Join(got, " | ") != c.says {
			t.Errorf("%s: got %q, want %q", name, got, c.says)
		}
	}
}

func TestTenants(t *testing.T) {
	t.Parallel()
	const refused = "namespace red may not claim BucketClass blue; who may allow it labels the namespace contract.cosi.example.com/blue=allowed"
	for _, v := range versions {
		p := compile(t, mustRender(t, with(minimal(), "sidecar.version", v)), "tenants")
		if p.spec.ParamKind.APIVersion != "objectstorage.k8s.io/"+v {
			t.Errorf("%s: the policy reads classes of %s", v, p.spec.ParamKind.APIVersion)
		}
		claim := func(spec map[string]any) *unstructured.Unstructured {
			o := thing(v, "BucketClaim", "photos", spec, nil)
			o.SetNamespace("red")
			return o
		}
		for name, c := range map[string]struct {
			spec   map[string]any
			labels map[string]string
			class  *unstructured.Unstructured
			says   string
		}{
			"no label":           {map[string]any{"bucketClassName": "blue"}, nil, class(v, "BucketClass", "blue", map[string]any{"driverName": driverName}), refused},
			"another label":      {map[string]any{"bucketClassName": "blue"}, map[string]string{driverName + "/red": "allowed"}, class(v, "BucketClass", "blue", map[string]any{"driverName": driverName}), refused},
			"another value":      {map[string]any{"bucketClassName": "blue"}, map[string]string{driverName + "/blue": "no"}, class(v, "BucketClass", "blue", map[string]any{"driverName": "Contract.cosi.example.com"}), refused},
			"allowed":            {map[string]any{"bucketClassName": "blue"}, map[string]string{driverName + "/blue": "allowed"}, class(v, "BucketClass", "blue", map[string]any{"driverName": driverName}), ""},
			"another class":      {map[string]any{"bucketClassName": "blue"}, nil, class(v, "BucketClass", "red", map[string]any{"driverName": driverName}), ""},
			"another driver's":   {map[string]any{"bucketClassName": "blue"}, nil, class(v, "BucketClass", "blue", map[string]any{"driverName": "other.example.com"}), ""},
			"an existing Bucket": {map[string]any{"existingBucketName": "x"}, nil, class(v, "BucketClass", "blue", map[string]any{"driverName": driverName}), ""},
		} {
			ch := change{resource: "bucketclaims", new: claim(c.spec), namespace: inNamespace("red", c.labels), params: c.class}
			if got := p.decide(t, ch); strings.Join(got, "|") != c.says {
				t.Errorf("%s %s: got %q, want %q", v, name, got, c.says)
			}
		}
	}
	p := compile(t, mustRender(t, minimal()), "tenants-existing")
	for name, c := range map[string]struct {
		spec    map[string]any
		refused bool
	}{
		"nobody's":  {map[string]any{"driverName": driverName, "existingBucketID": "a.b.c", "bucketClaim": map[string]any{}}, true},
		"half":      {map[string]any{"driverName": driverName, "existingBucketID": "a.b.c", "bucketClaim": map[string]any{"namespace": "blue"}}, true},
		"blue's":    {map[string]any{"driverName": driverName, "existingBucketID": "a.b.c", "bucketClaim": map[string]any{"namespace": "blue", "name": "photos"}}, false},
		"a new one": {map[string]any{"driverName": driverName}, false},
		"foreign":   {map[string]any{"driverName": "other", "existingBucketID": "x"}, false},
	} {
		if got := p.decide(t, change{resource: "buckets", new: thing("v1alpha1", "Bucket", "x", c.spec, nil)}); (len(got) > 0) != c.refused {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
