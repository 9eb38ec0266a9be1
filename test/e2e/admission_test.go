package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/contract-cosi/contract-cosi-driver/test/guide"
)

type fields = map[string]any

// classCase is one case of a table that the policies, and the driver's parser, are
// held to without an API server as well; so are the next.
type classCase struct {
	Name       string            `json:"name"`
	Class      string            `json:"class"`
	Parameters map[string]string `json:"parameters"`
	Says       string            `json:"says"`
	OnlyDriver bool              `json:"onlyDriver"`
}

// changeCase is one of changes of v1alpha1's objects.
type changeCase struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Before fields `json:"before"`
	After  fields `json:"after"`
	Says   string `json:"says"`
}

// claimCases are what a namespace may claim, and for whom a Bucket may be.
type claimCases struct {
	Classes   map[string]string `json:"classes"`
	Claims    []claimCase       `json:"claims"`
	Buckets   []claimCase       `json:"buckets"`
	BucketsV2 []claimCase       `json:"bucketsV2"`
}

type claimCase struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	Spec   fields            `json:"spec"`
	Says   string            `json:"says"`
}

// table reads one of the tables.
func table[T any](s *scenario, file string) (cases T) {
	s.Helper()
	text, err := os.ReadFile(filepath.Join("..", "deploy", "testdata", file))
	s.must(err)
	s.must(yaml.UnmarshalStrict(text, &cases))
	return cases
}

// takesClass asks the API server whether it takes a class, and as what.
func (c *cluster) takesClass(ctx context.Context, version string, asked classCase) (*unstructured.Unstructured, error) {
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
	return c.takes(ctx, class(version, asked.Class, "x", f))
}

// takes asks the API server whether it takes a new object, and as what.
func (c *cluster) takes(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return c.resource(o).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
}

// class is a class, which has its fields at the top in v1alpha1.
func class(version, kind, name string, f fields) *unstructured.Unstructured {
	if version != "v1alpha1" {
		f = fields{"spec": f}
	}
	return object(version, kind, "", name, f)
}

// object is one of COSI's.
func object(version, kind, namespace, name string, content fields) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(content)}
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
// own, in which no one acts on it, and holds the policies to their tables.
func installed(variant, version string) func(*scenario) {
	return func(s *scenario) {
		c := s.ownCluster()
		s.must(c.installCOSI(s.ctx, version))
		s.must(c.install(s.ctx, variant, version))
		files, err := filepath.Glob(filepath.Join(deployDir, "manifests", variant, "*.yaml"))
		s.must(err)
		s.note("%d files applied", len(files)-1) // the kustomization is none

		claims := s.claims(c, version)
		classes := table[[]classCase](s, "classes.yaml")
		for _, asked := range classes {
			want := asked.Says
			if asked.OnlyDriver {
				want = ""
			}
			_, err := c.takesClass(s.ctx, version, asked)
			if got := verdict(err); got != want {
				s.Errorf("%s: the API server says\n  %s\nwant\n  %s", asked.Name, got, want)
			}
		}
		_, err = c.takes(s.ctx, class(version, "BucketClass", "x", fields{"driverName": "contract.co\u017fi.example.com", "deletionPolicy": "Delete", "parameters": fields{"contract": "c"}}))
		if got := verdict(err); !strings.Contains(got, "driverName has a character outside ASCII") {
			s.Errorf("of a name that is like the driver's the API server says %q", got)
		}
		s.note("policies decide %d classes and %d claims", len(classes), claims)
		if version == "v1alpha1" { // v1alpha2 has such rules in its types
			s.note("%d changes", s.changes(c))
		} else {
			s.note("%d examples applied", s.examples(c, version))
		}
		if variant == "v1alpha1" {
			s.must(c.apply(s.ctx, "-k", filepath.Join(deployDir, "examples", "kustomize")))
			s.note("the overlay applied")
		}
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

// changes tries to change objects, and returns how many.
func (s *scenario) changes(c *cluster) int {
	s.label(c, "blue", map[string]string{driverName + "/c": "b"})
	cases := table[[]changeCase](s, "changes.yaml")
	for i, of := range cases {
		namespace := ""
		if of.Kind == "BucketClaim" || of.Kind == "BucketAccess" {
			namespace = "blue"
		}
		before := object("v1alpha1", of.Kind, namespace, numbered(i), of.Before)
		r := c.resource(before)
		there, err := r.Create(s.ctx, before, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			s.Fatalf("%s: %v", of.Name, err)
		}
		var status []string
		if of.After["status"] != nil {
			status = []string{"status"}
		}
		if of.Before["status"] != nil {
			there.Object["status"] = before.Object["status"]
			there, err = r.UpdateStatus(s.ctx, there, metav1.UpdateOptions{})
			s.must(err)
		}
		after := object("v1alpha1", of.Kind, namespace, there.GetName(), of.After)
		after.SetResourceVersion(there.GetResourceVersion())
		_, err = r.Update(s.ctx, after, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}, status...)
		if got := verdict(err); got != of.Says {
			s.Errorf("%s: the API server says\n  %s\nwant\n  %s", of.Name, got, of.Says)
		}
	}
	return len(cases)
}

// claims tries to claim classes and to make Buckets, and returns how many.
func (s *scenario) claims(c *cluster, version string) int {
	cases := table[claimCases](s, "claims.yaml")
	for name, driver := range cases.Classes {
		o := class(version, "BucketClass", name, fields{"driverName": driver, "deletionPolicy": "Delete", "parameters": fields{"contract": "c"}})
		_, err := c.resource(o).Create(s.ctx, o, metav1.CreateOptions{})
		s.must(err)
	}
	s.label(c, "blue", nil)
	if version != "v1alpha1" {
		cases.Buckets = cases.BucketsV2
	}
	// A policy learns of new classes and labels after a moment.
	decided := func(kind, namespace string, of claimCase) {
		s.label(c, "red", of.Labels)
		s.until("decided as the table says: "+of.Name, func() error {
			o := object(version, kind, namespace, "photos", fields{"spec": of.Spec})
			_, err := c.takes(s.ctx, o)
			if got := verdict(err); got != of.Says {
				return fmt.Errorf("the API server says %q, want %q", got, of.Says)
			}
			return nil
		})
	}
	for _, of := range cases.Claims {
		decided("BucketClaim", "red", of)
	}
	for _, of := range cases.Buckets {
		decided("Bucket", "", of)
	}
	return len(cases.Claims) + len(cases.Buckets)
}

// label makes a namespace, or gives it other labels.
func (s *scenario) label(c *cluster, namespace string, labels map[string]string) {
	s.Helper()
	o := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: labels}}
	_, err := c.kube.CoreV1().Namespaces().Create(s.ctx, o, metav1.CreateOptions{})
	if made(err) == nil && err != nil {
		_, err = c.kube.CoreV1().Namespaces().Update(s.ctx, o, metav1.UpdateOptions{})
	}
	s.must(err)
}

var applied = regexp.MustCompile(`kubectl apply -f deploy/(examples/[a-z0-9/.]+)`)

// guide are the manifests that the guide has its reader apply, in its order,
// for one API version.
func (s *scenario) guide(version string) (files []string) {
	s.Helper()
	by := guide.Node
	if version == "v1alpha2" {
		by = guide.E2E
	}
	blocks, err := guide.Of(filepath.Dir(deployDir), by)
	s.must(err)
	for _, b := range blocks {
		for _, m := range applied.FindAllStringSubmatch(b.Text, -1) {
			if file := filepath.Join(deployDir, m[1]); !slices.Contains(files, file) {
				files = append(files, file)
			}
		}
	}
	return files
}

// examples applies them, and returns how many.
func (s *scenario) examples(c *cluster, version string) int {
	files := s.guide(version)
	for _, file := range files {
		s.until("applied: "+file, func() error { return c.apply(s.ctx, "-f", file) })
	}
	return len(files)
}
