package deploy

//go:generate go test . -run TestGenerated|TestGuideQuotes -update

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// variants are the installations that deploy/manifests shows.
func variants() map[string]values {
	own := values{"configSecret": release + "-config", "config": values{"driver": values{"name": driverName}}}
	return map[string]values{
		"v1alpha1":   own,
		"v1alpha2":   inVersion(own, "v1alpha2"),
		"evaluation": with(values{}, "evaluation", values{"enabled": true, "token": "evaluation"}),
	}
}

// Everything under deploy that is written by a machine.
func TestGenerated(t *testing.T) {
	if *update { // the chart is rendered under it
		if err := os.WriteFile(chartDir+"/values.schema.json", []byte(chartSchema(t)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{
		chartDir + "/README.md":             chartReadme(t),
		chartDir + "/values.schema.json":    chartSchema(t),
		root + "/deploy/config.schema.json": indented(t, configSchema(t), "") + "\n",
		root + "/deploy/configuration.md":   configuration(t),
	}
	dir := root + "/deploy/manifests"
	for name, v := range variants() {
		for file, text := range manifests(t, v) {
			want[filepath.Join(dir, name, file)] = text
		}
	}
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		for file, text := range want {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for file, text := range want {
		have, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		} else if string(have) != text {
			t.Errorf("%s is stale; run make generate", file)
		}
	}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && want[filepath.Clean(file)] == "" {
			t.Errorf("%s is generated no more; run make generate", file)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// manifests are the files of one variant, for kustomize.
func manifests(t *testing.T, v values) map[string]string {
	t.Helper()
	const head = "# Rendered from deploy/chart by `make generate`; edit that.\n"
	namespaces := []string{fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata:
  name: %s
  labels:
    pod-security.kubernetes.io/enforce: restricted
`, namespace)}
	out, mutating := map[string]string{}, map[string][]string{}
	// The journal is in a namespace: kubectl delete -k must not take it away.
	var resources []string
	for file, text := range mustRender(t, v) {
		if filepath.Ext(file) != ".yaml" {
			continue
		}
		var keep []string
		for _, d := range documents(text) {
			switch document := strings.TrimSpace(d) + "\n"; {
			case kindOf(d) == "Namespace":
				namespaces = append(namespaces, document)
			case strings.Contains(d, "helm.sh/hook:"): // Helm's own
			case strings.HasPrefix(kindOf(d), "MutatingAdmissionPolicy"):
				mutating[file] = append(mutating[file], document)
			default:
				keep = append(keep, document)
			}
		}
		if len(keep) > 0 {
			out[file] = head + strings.Join(keep, "---\n")
			resources = append(resources, file)
		}
	}
	var newer []string
	for _, file := range slices.Sorted(maps.Keys(mutating)) {
		newer = append(newer, mutating[file]...)
	}
	out["admission-mutating.yaml"] = head + strings.Join(newer, "---\n")
	out["namespace.yaml"] = head + strings.Join(namespaces, "---\n")
	slices.Sort(resources)
	out["kustomization.yaml"] = head +
		"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization" +
		"\nresources:\n  - " + strings.Join(resources, "\n  - ") +
		"\n  # - admission-mutating.yaml # where the API server has MutatingAdmissionPolicy v1: Kubernetes 1.36\n"
	return out
}

// Every value has its text and is checked, and every text has its value.
func TestSchema(t *testing.T) {
	t.Parallel()
	inSchema := map[string]bool{}
	for _, row := range valueRows(t) {
		inSchema[row.path] = true
		if row.text == "" {
			t.Errorf("%s has no description in values.schema.json", row.path)
		}
	}
	var walk func(at string, v any)
	walk = func(at string, v any) {
		if below, ok := v.(map[string]any); ok && !inSchema[at] {
			for key, v := range below {
				walk(strings.TrimPrefix(at+"."+key, "."), v)
			}
			return
		}
		if !inSchema[at] {
			t.Errorf("%s is in values.yaml and not in values.schema.json", at)
		}
	}
	walk("", loadChart(t).Values)
}

func TestLint(t *testing.T) {
	t.Parallel()
	for name, v := range variants() {
		result := lint.All(chartDir, v, namespace, true)
		for _, m := range result.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %s", name, m)
			}
		}
	}
}

type valueRow struct{ path, kind, def, text string }

// valueRows are the leaves of the schema, with the defaults of values.yaml.
func valueRows(t *testing.T) []valueRow {
	t.Helper()
	type node struct {
		Ref         string          `json:"$ref"`
		Type        string          `json:"type"`
		Enum        []any           `json:"enum"`
		Description string          `json:"description"`
		Properties  map[string]node `json:"properties"`
	}
	var top node
	if err := json.Unmarshal([]byte(chartSchema(t)), &top); err != nil {
		t.Fatal(err)
	}
	var rows []valueRow
	var walk func(at string, n node, def any)
	walk = func(at string, n node, def any) {
		if len(n.Properties) > 0 && (!strings.HasPrefix(at, "config.") || at == "config.driver") { // the rest has a page of its own
			below, _ := def.(map[string]any)
			for _, key := range slices.Sorted(maps.Keys(n.Properties)) {
				walk(strings.TrimPrefix(at+"."+key, "."), n.Properties[key], below[key])
			}
			return
		}
		kind := n.Type
		switch {
		case len(n.Enum) > 0:
			kind = words(n.Enum)
		case strings.HasSuffix(n.Ref, "/resources"), strings.HasSuffix(n.Ref, "/texts"):
			kind = "object"
		case strings.HasSuffix(n.Ref, "/objects"):
			kind = "array"
		case n.Ref != "":
			kind = "string"
		}
		shown := ""
		if def != nil {
			encoded, err := json.Marshal(def)
			if err != nil {
				t.Fatal(err)
			}
			shown = "`" + string(encoded) + "`"
		}
		text := meaning(at[strings.LastIndex(at, ".")+1:], &jsonschema.Schema{Description: n.Description})
		rows = append(rows, valueRow{at, kind, shown, text})
	}
	walk("", top, loadChart(t).Values)
	return rows
}

func chartReadme(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# The chart

<!-- Written by ` + "`make generate`" + ` from values.schema.json, values.yaml and templates/rbac.yaml; edit those. -->

For platform engineers who install the driver with Helm: the values of the chart, and every permission that it gives. What to
do with it is in the [guide](../README.md), and what stands below ` + "`config`" + ` in [configuration.md](../configuration.md).

## Values

| value | type | default | meaning |
|---|---|---|---|
`)
	for _, r := range valueRows(t) {
		if r.path != "global" && r.path != "config.journal" {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.path, r.kind, r.def, r.text)
		}
	}
	b.WriteString(`
## Permissions

The driver and the sidecar have a ServiceAccount each, and each container gets the token of its own only. The sidecar's is
the pod's account, with a token that changes every hour. A pod has only one such, so the driver's token is a Secret of the
release; anyone who can read it can read the journal. With ` + "`journal.persistentVolumeClaim`" + ` the
driver has no account.
`)
	for _, v := range []string{"v1alpha1", "v1alpha2"} {
		fmt.Fprintf(&b, "\n### With v%s's sidecar\n\n| role | of | verb | resource | reason |\n|---|---|---|---|---|\n", strings.TrimPrefix(v, "v"))
		for _, r := range permissions(t, mustRender(t, variants()[v])["rbac.yaml"]) {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.kind, r.of, r.verb, r.resource, r.reason)
		}
	}
	return b.String()
}

type permission struct{ kind, of, verb, resource, reason string }

// words are values as a table shows them.
func words(values []any) string {
	var out []string
	for _, v := range values {
		if v != false { // which stands for an off
			out = append(out, fmt.Sprintf("`%v`", v))
		}
	}
	return strings.Join(out, ", ")
}

// permissions are the verbs of rendered roles, each with the comment beside it.
func permissions(t *testing.T, text string) []permission {
	t.Helper()
	var out []permission
	for _, d := range documents(text) {
		var role struct {
			Kind     string
			Metadata struct{ Name string }
			Rules    []struct {
				APIGroups []string `yaml:"apiGroups"`
				Resources []string
				Verbs     yaml.Node
			}
		}
		if err := yaml.Unmarshal([]byte(d), &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs.Content {
				reason := strings.TrimSpace(strings.TrimPrefix(verb.LineComment, "#"))
				if reason == "" {
					t.Errorf("%s %s: %s of %v has no reason", role.Kind, role.Metadata.Name, verb.Value, rule.Resources)
				}
				resource := strings.Join(rule.Resources, ", ")
				if group := strings.Join(slices.DeleteFunc(rule.APIGroups, func(g string) bool { return g == "" }), ", "); group != "" {
					resource += " (" + group + ")"
				}
				out = append(out, permission{role.Kind, strings.TrimPrefix(role.Metadata.Name, release+"-"), verb.Value, resource, reason})
			}
		}
	}
	return out
}
