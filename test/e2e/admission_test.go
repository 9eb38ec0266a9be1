package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

type fields = map[string]any

// classCase is one case of the table that the policies and the driver's parser
// are held to without an API server as well.
type classCase struct {
	Name       string            `json:"name"`
	Class      string            `json:"class"`
	Parameters map[string]string `json:"parameters"`
	Says       string            `json:"says"`
	OnlyDriver bool              `json:"onlyDriver"`
}

func classCases() ([]classCase, error) {
	text, err := os.ReadFile("../deploy/testdata/classes.yaml")
	if err != nil {
		return nil, err
	}
	var cases []classCase
	return cases, yaml.UnmarshalStrict(text, &cases)
}

// takesClass asks the API server whether it takes a class.
func (c *cluster) takesClass(ctx context.Context, version string, asked classCase) error {
	f := fields{"driverName": driverName, "deletionPolicy": "Delete"}
	if asked.Class == "BucketAccessClass" {
		f = fields{"driverName": driverName, "authenticationType": "Key"}
	}
	if len(asked.Parameters) > 0 {
		parameters := fields{}
		for key, value := range asked.Parameters {
			parameters[key] = value
		}
		f["parameters"] = parameters
	}
	o := object(version, asked.Class, "", "x", f)
	_, err := c.resource(o).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	return err
}

// object is one of COSI's: v1alpha1 has the fields of classes at the top.
func object(version, kind, namespace, name string, f fields) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields{"spec": f}}
	if version == "v1alpha1" && strings.HasSuffix(kind, "Class") {
		o.Object = fields{}
		for key, value := range f {
			o.Object[key] = value
		}
	}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "objectstorage.k8s.io", Version: version, Kind: kind})
	o.SetName(name)
	o.SetNamespace(namespace)
	return o
}

// resource is where an object is created and updated.
func (c *cluster) resource(o *unstructured.Unstructured) dynamic.ResourceInterface {
	kind := o.GroupVersionKind()
	plural := strings.ToLower(kind.Kind) + "s"
	if strings.HasSuffix(kind.Kind, "ss") {
		plural = strings.ToLower(kind.Kind) + "es"
	}
	all := c.dynamic.Resource(kind.GroupVersion().WithResource(plural))
	if o.GetNamespace() != "" {
		return all.Namespace(o.GetNamespace())
	}
	return all
}

// verdict is what the policies say, and "" where they let an object pass.
func verdict(err error) string {
	if err == nil {
		return ""
	}
	if _, text, denied := strings.Cut(err.Error(), "denied request: "); denied {
		return text
	}
	return "not a policy's verdict: " + err.Error()
}

// installed applies all that deploy holds for one variant to a cluster of its
// own, in which nobody acts on it, and holds the policies to their tables.
func installed(variant, version string) func(*scenario) {
	return func(s *scenario) {
		c := s.ownCluster()
		s.must(c.installCOSI(s.ctx, version))
		s.must(c.install(s.ctx, variant, version))
		files, err := filepath.Glob(filepath.Join(deployDir, "manifests", variant, "*.yaml"))
		s.must(err)
		s.note("%d files applied", len(files)-1) // the kustomization is none

		cases, err := classCases()
		s.must(err)
		for _, asked := range cases {
			want := asked.Says
			if asked.OnlyDriver {
				want = ""
			}
			if got := verdict(c.takesClass(s.ctx, version, asked)); got != want {
				s.Errorf("%s: the API server says\n  %s\nwant\n  %s", asked.Name, got, want)
			}
		}
		changes := 0
		if version == "v1alpha1" { // v1alpha2 has such rules in its types
			changes = s.changes(c)
		}
		s.tenants(c, version)
		s.note("policies decide %d classes, %d changes and 6 claims as they should", len(cases), changes)
	}
}

// ownCluster starts a cluster that ends with the scenario.
func (s *scenario) ownCluster() *cluster {
	s.Helper()
	dir, err := os.MkdirTemp(s.dir, "")
	s.must(err)
	c, err := startCluster(s.ctx, s.bin, dir)
	if c != nil {
		name := filepath.Base(s.Name())
		s.runs("apiserver-of-"+name, c.apiserver)
		s.runs("etcd-of-"+name, c.etcd)
		s.Cleanup(func() {
			s.kill("apiserver-of-" + name)
			s.kill("etcd-of-" + name)
		})
	}
	s.must(err)
	return c
}

// changes tries what v1alpha1's types let everybody change, and returns how many.
func (s *scenario) changes(c *cluster) int {
	const fixed = " cannot be changed once set; make a new object"
	const owned = "the Bucket belongs to another BucketClaim; a BucketClaim of existingBucketName has to be the one that its spec.bucketClaim names"
	class := fields{"driverName": driverName, "deletionPolicy": "Delete", "parameters": fields{"contract": "a"}}
	bucket := fields{"driverName": driverName, "bucketClassName": "a", "deletionPolicy": "Delete", "protocols": []any{"S3"}, "existingBucketID": "a.b.c",
		"bucketClaim": fields{"namespace": "default", "name": "a"}}
	claim := fields{"bucketClassName": "a", "protocols": []any{"S3"}}
	access := fields{"bucketClaimName": "a", "bucketAccessClassName": "a", "credentialsSecretName": "a"}
	table := []struct {
		kind string
		made fields
		path []string
		to   any
		says string
	}{
		{"BucketClass", class, []string{"parameters", "contract"}, "b", "parameters" + fixed},
		{"BucketClass", class, []string{"deletionPolicy"}, "Retain", "deletionPolicy" + fixed},
		{"BucketClass", class, []string{"driverName"}, "other.example.com", "driverName" + fixed},
		{"BucketClass", class, []string{"metadata", "labels"}, fields{"a": "b"}, ""},
		{"BucketAccessClass", fields{"driverName": driverName, "authenticationType": "Key"}, []string{"authenticationType"}, "IAM", "authenticationType" + fixed},
		{"Bucket", bucket, []string{"spec", "existingBucketID"}, "a.b.d", "existingBucketID" + fixed},
		{"Bucket", bucket, []string{"spec", "deletionPolicy"}, "Retain", ""},
		{"Bucket", bucket, []string{"spec", "bucketClaim", "uid"}, "1", ""},
		{"Bucket", bucket, []string{"spec", "bucketClaim", "namespace"}, "kube-system", owned},
		{"Bucket", bucket, []string{"status"}, fields{"bucketReady": true, "bucketID": "a.b.d"}, "bucketID" + fixed},
		{"BucketClaim", claim, []string{"spec", "bucketClassName"}, "b", "bucketClassName" + fixed},
		{"BucketClaim", claim, []string{"metadata", "finalizers"}, []any{"example.com/a"}, ""},
		{"BucketAccess", access, []string{"spec", "credentialsSecretName"}, "b", "credentialsSecretName" + fixed},
		{"BucketAccess", access, []string{"spec", "bucketAccessClassName"}, "b", "bucketAccessClassName" + fixed},
	}
	_, err := c.kube.CoreV1().Namespaces().Patch(s.ctx, "default", "application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata": {"labels": {"%s/a": "allowed"}}}`, driverName), metav1.PatchOptions{})
	s.must(err)
	for _, t := range table {
		namespace := ""
		if t.kind == "BucketClaim" || t.kind == "BucketAccess" {
			namespace = "default"
		}
		o := object("v1alpha1", t.kind, namespace, "a", t.made)
		r := c.resource(o)
		s.until("made", func() error { // a policy learns of a new class after a moment
			_, err := r.Create(s.ctx, o.DeepCopy(), metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			return made(err)
		})
		there, err := r.Get(s.ctx, "a", metav1.GetOptions{})
		s.must(err)
		var subresources []string
		if t.path[0] == "status" {
			subresources = []string{"status"}
			there.Object["status"] = fields{"bucketReady": true, "bucketID": "a.b.c"}
			there, err = r.UpdateStatus(s.ctx, there, metav1.UpdateOptions{})
			s.must(err)
		}
		s.must(unstructured.SetNestedField(there.Object, t.to, t.path...))
		_, err = r.Update(s.ctx, there, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
		if got := verdict(err); got != t.says {
			s.Errorf("%s, %s: the API server says\n  %s\nwant\n  %s", t.kind, strings.Join(t.path, "."), got, t.says)
		}
	}
	return len(table)
}

// tenants tries to claim classes that a namespace may and may not claim.
func (s *scenario) tenants(c *cluster, version string) {
	for namespace, labels := range map[string]map[string]string{
		"blue": {driverName + "/blue": "allowed"}, "red": {driverName + "/red": "allowed", driverName + "/blue": "no"},
	} {
		_, err := c.kube.CoreV1().Namespaces().Create(s.ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels}}, metav1.CreateOptions{})
		s.must(err)
	}
	for name, driver := range map[string]string{"blue": driverName, "other": "other.example.com"} {
		class := object(version, "BucketClass", "", name, fields{"driverName": driver, "deletionPolicy": "Delete", "parameters": fields{"contract": name}})
		_, err := c.resource(class).Create(s.ctx, class, metav1.CreateOptions{})
		s.must(err)
	}
	refused := "namespace red may not claim BucketClass blue; who may allow it labels the namespace " + driverName + "/blue=allowed"
	claim := func(namespace string, spec fields) error {
		spec["protocols"] = []any{"S3"}
		o := object(version, "BucketClaim", namespace, "photos", spec)
		_, err := c.resource(o).Create(s.ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	s.until("allowed to claim", func() error { return claim("blue", fields{"bucketClassName": "blue"}) })
	s.until("refused by the new class's label", func() error {
		if got := verdict(claim("red", fields{"bucketClassName": "blue"})); got != refused {
			return fmt.Errorf("the API server says %q", got)
		}
		return nil
	})
	for what, err := range map[string]error{
		"another driver's class": claim("red", fields{"bucketClassName": "other"}),
		"an existing bucket":     claim("red", fields{"existingBucketName": "x"}),
	} {
		if got := verdict(err); got != "" {
			s.Errorf("%s: the API server says %s", what, got)
		}
	}
	if version != "v1alpha1" { // where a Bucket has to name its claim in any case
		return
	}
	for says, owner := range map[string]fields{
		"spec.bucketClaim has to name the namespace and the name of the BucketClaim that may use this existing bucket": {},
		"": {"namespace": "blue", "name": "photos"},
	} {
		o := object(version, "Bucket", "", "x", fields{"driverName": driverName, "bucketClassName": "blue", "deletionPolicy": "Delete",
			"protocols": []any{"S3"}, "existingBucketID": "a.b.c", "bucketClaim": owner})
		_, err := c.resource(o).Create(s.ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if got := verdict(err); got != says {
			s.Errorf("Bucket of claim %v: the API server says %q, want %q", owner, got, says)
		}
	}
}
