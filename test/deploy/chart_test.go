// Package deploy holds the chart, the manifests, the admission policies, the
// guide and the Dockerfile to what the programs are.
//
//	go test . -run TestGenerated -update
//
// writes what is generated from the chart. The module is one of its own, so
// that Helm and the API server's libraries are no dependencies of the driver.
//
// The tables of what the admission policies accept and refuse are testdata's
// classes.yaml, changes.yaml and claims.yaml. They say in their heads how each
// is applied, so that they can be put to a real API server as well.
package deploy

import (
	"flag"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what is generated instead of comparing it")

const (
	root      = "../.."
	chartDir  = root + "/deploy/chart"
	release   = "contract-cosi-driver"
	namespace = "contract-cosi-system"
	// journalNamespace is the driver's, by default.
	journalNamespace = namespace + "-journal"
)

// values are what an installation says.
type values = map[string]any

// minimal is a v1alpha1 installation with nothing but what is required.
func minimal() values {
	return values{"config": values{
		"driver":    values{"name": driverName, "owner": "cluster-1"},
		"backends":  []any{values{"name": "main", "type": "contractapi", "contractapi": values{"url": "https://contracts.example.com", "tokenFile": "/etc/contract-cosi-driver/credentials/main/token"}}},
		"contracts": []any{values{"name": "team-blue", "backend": "main"}},
	}, "credentials": []any{"main"}}
}

// inVersion returns v for a version of COSI. The image of v1alpha2's sidecar has no
// default.
func inVersion(v values, version string) values {
	if version == "v1alpha2" {
		v = with(v, "sidecar.image", values{"repository": "objectstorage-sidecar", "tag": "v1alpha2"})
	}
	return with(v, "sidecar.version", version)
}

// with returns v with the value at a dotted path replaced.
func with(v values, at string, value any) values {
	out := maps.Clone(v)
	first, rest, deeper := strings.Cut(at, ".")
	if deeper {
		below, _ := out[first].(values)
		if below == nil {
			below = values{}
		}
		value = with(below, rest, value)
	}
	out[first] = value
	return out
}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render returns the text of each template, by its file's name, as an API
// server of Kubernetes 1.36 would get it.
func render(t *testing.T, v values) (map[string]string, error) {
	t.Helper()
	return renderIn(t, v)
}

// renderIn is render in a cluster where some Secrets are.
func renderIn(t *testing.T, v values, secrets ...runtime.Object) (map[string]string, error) {
	t.Helper()
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v1.36.0", Major: "1", Minor: "36"}
	capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
	return renderWith(t, v, capabilities, secrets...)
}

// renderWith is renderIn by an API server of certain capabilities.
func renderWith(t *testing.T, v values, capabilities *chartutil.Capabilities, secrets ...runtime.Object) (map[string]string, error) {
	t.Helper()
	c := loadChart(t)
	given, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.RenderWithClientProvider(c, given, lookedUp{fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds, secrets...)})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, text := range rendered {
		if strings.TrimSpace(text) != "" {
			out[path.Base(name)] = strings.TrimLeft(text, "\n")
		}
	}
	return out, nil
}

var listKinds = map[schema.GroupVersionResource]string{corev1.SchemeGroupVersion.WithResource("secrets"): "SecretList"}

// lookedUp answers a template's lookup of Secrets.
type lookedUp struct{ client dynamic.Interface }

func (l lookedUp) GetClientFor(string, string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return l.client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")), true, nil
}

func mustRender(t *testing.T, v values) map[string]string {
	t.Helper()
	files, err := render(t, v)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// documents are the objects of a text, each as its own YAML.
func documents(text string) []string {
	var out []string
	for d := range strings.SplitSeq("\n"+text, "\n---\n") {
		if kindOf(d) != "" {
			out = append(out, strings.TrimLeft(d, "\n"))
		}
	}
	return out
}

func kindOf(document string) string {
	var o struct {
		Kind string `json:"kind"`
	}
	if yaml.Unmarshal([]byte(document), &o) != nil {
		return ""
	}
	return o.Kind
}

// object returns the one object of a kind and name, decoded strictly into T.
func object[T any](t *testing.T, files map[string]string, kind, name string) T {
	t.Helper()
	var found []T
	for file, text := range files {
		if filepath.Ext(file) != ".yaml" {
			continue
		}
		for _, d := range documents(text) {
			var head struct {
				Metadata struct {
					Name string `json:"name"`
				} `json:"metadata"`
			}
			if kindOf(d) != kind || yaml.Unmarshal([]byte(d), &head) != nil || head.Metadata.Name != name {
				continue
			}
			var o T
			if err := yaml.UnmarshalStrict([]byte(d), &o); err != nil {
				t.Fatalf("%s %s: %v", kind, name, err)
			}
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects %s %s, want one", len(found), kind, name)
	}
	return found[0]
}

func has(files map[string]string, kind, name string) bool {
	for _, text := range files {
		for _, d := range documents(text) {
			if kindOf(d) == kind && strings.Contains(d+"\n", fmt.Sprintf("\n  name: %s\n", name)) {
				return true
			}
		}
	}
	return false
}
