package deploy

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	yaml3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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

// cases reads a table, which is also run against a real API server.
func cases[T any](t *testing.T, file string) T {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var out T
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// resourceOf is the plural of a kind.
func resourceOf[T ~string](of T) string {
	kind := strings.ToLower(string(of))
	if strings.HasSuffix(kind, "s") {
		return kind + "es"
	}
	return kind + "s"
}

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
	for _, c := range cases[[]classCase](t, "classes.yaml") {
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

// changeCase is one case of testdata/changes.yaml.
type changeCase struct {
	Name   string         `json:"name"`
	Kind   string         `json:"kind"`
	Before map[string]any `json:"before"`
	After  map[string]any `json:"after"`
	Says   string         `json:"says"`
}

// What v1alpha2 makes immutable is immutable in v1alpha1.
func TestChanges(t *testing.T) {
	t.Parallel()
	p := compile(t, mustRender(t, minimal()), "lifetime")
	for _, c := range cases[[]changeCase](t, "changes.yaml") {
		build := func(fields map[string]any) *unstructured.Unstructured { return class("v1alpha1", c.Kind, "x", fields) }
		ch := change{resource: resourceOf(c.Kind), old: build(c.Before), new: build(c.After)}
		if _, ok := c.After["status"]; ok {
			ch.subresource = "status"
		}
		if !p.asked(ch) {
			t.Errorf("%s: the policy is not asked", c.Name)
		}
		if got := p.decide(t, ch); strings.Join(got, " | ") != c.Says {
			t.Errorf("%s: got %q, want %q", c.Name, got, c.Says)
		}
	}
}

// claimCases is testdata/claims.yaml.
type claimCases struct {
	Classes   map[string]string `json:"classes"`
	Claims    []claimCase       `json:"claims"`
	Buckets   []claimCase       `json:"buckets"`
	BucketsV2 []claimCase       `json:"bucketsV2"`
}

type claimCase struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	Spec   map[string]any    `json:"spec"`
	Says   string            `json:"says"`
}

// A namespace may claim the classes that its labels name, and an existing
// bucket is for the claim that it names.
func TestClaims(t *testing.T) {
	t.Parallel()
	given := cases[claimCases](t, "claims.yaml")
	for _, v := range versions {
		p := compile(t, mustRender(t, inVersion(minimal(), v)), "tenants")
		if p.spec.ParamKind.APIVersion != "objectstorage.k8s.io/"+v {
			t.Errorf("%s: the policy reads classes of %s", v, p.spec.ParamKind.APIVersion)
		}
		for _, c := range given.Claims {
			claim := thing(v, "BucketClaim", "photos", c.Spec)
			claim.SetNamespace("red")
			var got []string
			for name, driver := range given.Classes { // the API server asks once for each
				of := class(v, "BucketClass", name, map[string]any{"driverName": driver, "parameters": map[string]any{"contract": "c"}})
				got = append(got, p.decide(t, change{resource: "bucketclaims", new: claim, namespace: inNamespace("red", c.Labels), params: of})...)
			}
			if strings.Join(got, " | ") != c.Says {
				t.Errorf("%s %s: got %q, want %q", v, c.Name, got, c.Says)
			}
		}
	}
	for v, buckets := range map[string][]claimCase{"v1alpha1": given.Buckets, "v1alpha2": given.BucketsV2} {
		files := mustRender(t, inVersion(minimal(), v))
		made := compile(t, files, "tenants-buckets")
		for _, c := range buckets {
			ch := change{resource: "buckets", new: thing(v, "Bucket", "x", c.Spec)}
			var got []string
			if v == "v1alpha1" {
				got = compile(t, files, "tenants-existing").decide(t, ch)
			}
			for _, ch.params = range []runtime.Object{inNamespace("blue", nil), inNamespace("red", c.Labels)} {
				got = append(got, made.decide(t, ch)...)
			}
			if strings.Join(got, " | ") != c.Says {
				t.Errorf("%s %s: got %q, want %q", v, c.Name, got, c.Says)
			}
		}
	}
}

// A contract's guard is in the policies as the driver has it.
func TestGuards(t *testing.T) {
	t.Parallel()
	v := minimal()
	guard := values{"parameters": []any{"versioning", "acl", "grantRead", "region", "encryption"}, "required": []any{"encryption", "versioning", "keyLife"},
		"regions": []any{"eu-1", "eu-2"}, "refusePublic": true}
	v["config"].(values)["contracts"] = []any{
		values{"name": "strict", "backend": "main", "guard": guard, "defaults": values{"bucketClass": values{"versioning": "Enabled"}}},
		values{"name": "free", "backend": "main"},
		values{"name": "far", "backend": "main", "region": "us-1", "guard": values{"regions": []any{"eu-1"}}},
		values{"name": "near", "backend": "main", "region": "us-1", "guard": values{"regions": []any{"eu-1"}}, "defaults": values{"bucketClass": values{"region": "eu-2"}}},
	}
	v["config"].(values)["onDemand"] = values{"backend": "main", "namePrefix": "trial-", "guard": values{"refusePublic": true}}
	text, err := yaml.Marshal(guard)
	if err != nil {
		t.Fatal(err)
	}
	var strict params.Guard
	if err := yaml3.Unmarshal(text, &strict); err != nil {
		t.Fatal(err)
	}
	guards := map[string]params.Guard{"strict": strict, "trial-1": {RefusePublic: true}, "far": {Regions: []string{"eu-1"}}, "near": {Regions: []string{"eu-1"}}}
	// What a contract's defaults say, and where a bucket is of which nothing says it.
	defaults := map[string]map[string]string{"near": {"region": "eu-2"}}
	home := map[string]string{"strict": "eu-1", "far": "us-1", "near": "us-1"}
	p := compile(t, mustRender(t, v), "bucketclasses")
	for name, in := range map[string]map[string]string{
		"nothing given":  {"contract": "strict"},
		"good":           {"contract": "strict", "encryption": "AES256", "region": "eu-2"},
		"a key does":     {"contract": "strict", "kmsKey": "k"},
		"all at once":    {"contract": "strict", "tags": "a=b", "policy": "{", "region": "us-1", "acl": "public-read"},
		"rules and acl":  {"contract": "strict", "tags": "a=b", "onDelete": "empty", "region": "us-1", "acl": "public-read"},
		"a group":        {"contract": "strict", "encryption": "AES256", "grantRead": "id=a, uri=b"},
		"a caller":       {"contract": "strict", "encryption": "AES256", "grantRead": "id=a"},
		"log delivery":   {"contract": "strict", "encryption": "AES256", "grantRead": `uri="http://acs.amazonaws.com/groups/s3/LogDelivery"`},
		"over https":     {"contract": "strict", "encryption": "AES256", "grantRead": `uri="https://acs.amazonaws.com/groups/global/AllUsers"`},
		"its region":     {"contract": "far", "region": "eu-1"},
		"no region":      {"contract": "far"},
		"another region": {"contract": "far", "region": "eu-2"},
		"by default":     {"contract": "near"},
		"free":           {"contract": "free", "acl": "public-read", "tags": "a=b"},
		"on demand":      {"contract": "trial-1", "tags": "a=b"},
		"open on demand": {"contract": "trial-1", "acl": "authenticated-read"},
	} {
		effective := params.BucketClass.Under(map[string]string{"versioning": "Enabled"}, params.BucketClass.Under(defaults[in["contract"]], in))
		want := ""
		if spec, err := params.ParseBucket(effective); err != nil {
			want = err.Error()
		} else if broken := guards[in["contract"]].Bucket(in, spec, cmp.Or(spec.Region, home[in["contract"]])); len(broken) > 0 {
			want = "contract " + in["contract"] + " does not allow it: " + strings.Join(broken, "; ")
		}
		got := p.decide(t, change{resource: "bucketclasses", new: classCase{Class: params.BucketClass, Parameters: in}.object("v1alpha1", "x")})
		if len(got) > 1 { // the API server tells the first
			got = got[:1]
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%s: the policy says\n  %q\nthe driver\n  %q", name, got, want)
		}
	}
}
