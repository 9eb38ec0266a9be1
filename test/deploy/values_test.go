package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
)

// The journal's namespace is made and stays, unless it is the release's or
// another that is there; nothing there but the journal is the driver's.
func TestJournalNamespace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values    values
		namespace string // "" is that the driver has no Role
		made      bool
	}{
		"by default": {minimal(), journalNamespace, true},
		"another":    {with(minimal(), "journal.namespace", "journal"), "journal", true},
		"made":       {with(minimal(), "journal.createNamespace", false), journalNamespace, false},
		"as before":  {with(minimal(), "journal.namespace", namespace), namespace, false},
		"in a file":  {installations()["file"], "", false},
	} {
		files := mustRender(t, c.values)
		if has(files, "Namespace", c.namespace) != c.made {
			t.Errorf("%s: the namespace is made: %v", name, !c.made)
		}
		if c.made {
			made := object[corev1.Namespace](t, files, "Namespace", c.namespace)
			if made.Annotations["helm.sh/resource-policy"] != "keep" {
				t.Errorf("%s: the journal goes with the release: %v", name, made.Annotations)
			}
		}
		if c.namespace == "" {
			continue
		}
		if role := object[rbacv1.Role](t, files, "Role", release+"-driver"); role.Namespace != c.namespace {
			t.Errorf("%s: the driver's Role is in %s", name, role.Namespace)
		}
		if binding := object[rbacv1.RoleBinding](t, files, "RoleBinding", release+"-driver"); binding.Namespace != c.namespace || binding.Subjects[0].Namespace != namespace {
			t.Errorf("%s: the driver's RoleBinding is %+v", name, binding)
		}
		if config := object[corev1.Secret](t, files, "Secret", release+"-config").StringData["config.yaml"]; !strings.Contains(config, "\n    namespace: "+c.namespace+"\n") {
			t.Errorf("%s: the driver is told\n%s", name, config)
		}
	}
}

// An upgrade does not leave a journal behind without a word.
func TestJournalBefore(t *testing.T) {
	t.Parallel()
	record := func(namespace, name, owner, of string) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": of,
			"metadata": map[string]any{"name": name, "namespace": namespace, "labels": map[string]any{kube.OwnerLabel: kube.OwnerMark(owner)}},
		}}
	}
	const of = "contract-cosi-driver/journal"
	for name, c := range map[string]struct {
		values values
		there  []runtime.Object
		says   string
	}{
		"nothing":         {minimal(), nil, ""},
		"left behind":     {minimal(), []runtime.Object{record(namespace, "a", "cluster-1", of)}, "leave it there with --set journal.namespace=" + namespace},
		"it stays":        {with(minimal(), "journal.namespace", namespace), []runtime.Object{record(namespace, "a", "cluster-1", of)}, ""},
		"moved":           {minimal(), []runtime.Object{record(namespace, "a", "cluster-1", of), record(journalNamespace, "a", "cluster-1", of)}, ""},
		"another owner's": {minimal(), []runtime.Object{record(namespace, "a", "cluster-2", of)}, ""},
		"another Secret":  {minimal(), []runtime.Object{record(namespace, "a", "cluster-1", "Opaque")}, ""},
	} {
		_, err := renderIn(t, c.values, c.there...)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}

// The sidecar writes Secrets in all namespaces, or in those that are listed.
func TestSecretNamespaces(t *testing.T) {
	t.Parallel()
	secrets := func(rules []rbacv1.PolicyRule) bool {
		return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "secrets") })
	}
	if everywhere := object[rbacv1.ClusterRole](t, mustRender(t, minimal()), "ClusterRole", release+"-sidecar"); !secrets(everywhere.Rules) {
		t.Error("by default the sidecar may write no Secrets")
	}
	files := mustRender(t, with(minimal(), "sidecar.secretNamespaces", []any{"blue"}))
	if everywhere := object[rbacv1.ClusterRole](t, files, "ClusterRole", release+"-sidecar"); secrets(everywhere.Rules) {
		t.Error("the sidecar may write Secrets in every namespace")
	}
	if blue := object[rbacv1.Role](t, files, "Role", release+"-sidecar-secrets"); blue.Namespace != "blue" || !secrets(blue.Rules) {
		t.Errorf("the sidecar may %+v in %s", blue.Rules, blue.Namespace)
	}
}

// The usual values are where Kubernetes looks for them.
func TestPods(t *testing.T) {
	t.Parallel()
	given := values{
		"fullnameOverride": "cosi", "nameOverride": "buckets", "podAnnotations": values{"a": "b"}, "podLabels": values{"c": "d"},
		"affinity": values{"nodeAffinity": values{}}, "tolerations": []any{values{"key": "k", "operator": "Exists"}},
		"nodeSelector": values{"e": "f"}, "priorityClassName": "high", "serviceAccount.annotations": values{"role": "arn"},
		"driver.extraEnv": []any{values{"name": "G", "value": "h"}}, "sidecar.extraEnv": []any{values{"name": "I", "value": "j"}},
		"extraVolumes":                 []any{values{"name": "ca", "configMap": values{"name": "ca"}}},
		"driver.extraVolumeMounts":     []any{values{"name": "ca", "mountPath": "/ca"}},
		"podSecurityContext.runAsUser": nil, "podSecurityContext.runAsGroup": nil, "podSecurityContext.fsGroup": nil,
	}
	v := minimal()
	for at, value := range given {
		v = with(v, at, value)
	}
	files := mustRender(t, v)
	d := object[appsv1.Deployment](t, files, "Deployment", "cosi")
	pod := d.Spec.Template
	if pod.Annotations["a"] != "b" || pod.Labels["c"] != "d" || pod.Labels["app.kubernetes.io/name"] != "buckets" {
		t.Errorf("the pod's metadata is %+v", pod.ObjectMeta)
	}
	if s := pod.Spec; s.Affinity == nil || len(s.Tolerations) != 1 || s.NodeSelector["e"] != "f" || s.PriorityClassName != "high" {
		t.Errorf("the pod's place is %+v", s)
	}
	if s := pod.Spec.SecurityContext; s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil || s.RunAsNonRoot == nil {
		t.Errorf("OpenShift cannot choose the user: %+v", s)
	}
	driver, sidecar := container(t, d, "driver"), container(t, d, "sidecar")
	if len(driver.Env) != 1 || driver.Env[0].Value != "h" || !slices.ContainsFunc(sidecar.Env, func(e corev1.EnvVar) bool { return e.Name == "I" }) {
		t.Errorf("the environments are %+v and %+v", driver.Env, sidecar.Env)
	}
	if m, ok := mount(driver, "/ca"); !ok || volume(d, m.Name).ConfigMap == nil {
		t.Errorf("the extra volume is not mounted: %+v", driver.VolumeMounts)
	}
	if account := object[corev1.ServiceAccount](t, files, "ServiceAccount", pod.Spec.ServiceAccountName); account.Annotations["role"] != "arn" {
		t.Errorf("the pod's account has the annotations %v", account.Annotations)
	}
	check := object[corev1.Pod](t, files, "Pod", "cosi-test")
	if c := check.Spec.Containers[0]; c.Image != driver.Image || !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/ca" }) {
		t.Errorf("helm test runs %+v", c)
	}
}

// What Prometheus and Grafana get selects the driver's pods and their metrics.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"PodMonitor", "ConfigMap"} {
		if has(mustRender(t, minimal()), kind, release) || has(mustRender(t, minimal()), kind, release+"-dashboard") {
			t.Errorf("there is a %s by default", kind)
		}
	}
	files := mustRender(t, with(with(with(minimal(), "podMonitor.enabled", true), "podMonitor.labels", values{"release": "p"}), "dashboard.enabled", true))
	monitor := object[unstructured.Unstructured](t, files, "PodMonitor", release)
	selector, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	pod := deployment(t, files).Spec.Template
	for key, value := range selector {
		if pod.Labels[key] != value {
			t.Errorf("the PodMonitor selects %v", selector)
		}
	}
	if monitor.GetLabels()["release"] != "p" || len(selector) == 0 {
		t.Errorf("the PodMonitor's labels are %v", monitor.GetLabels())
	}
	var dashboard struct{ Panels []any }
	text := object[corev1.ConfigMap](t, files, "ConfigMap", release+"-dashboard").Data["contract-cosi-driver.json"]
	if err := json.Unmarshal([]byte(text), &dashboard); err != nil || len(dashboard.Panels) == 0 {
		t.Fatalf("the dashboard has %d panels: %v", len(dashboard.Panels), err)
	}
	source, err := os.ReadFile(filepath.Join(root, "pkg", "metrics", "metrics.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`contract_cosi_([a-z_]+)`).FindAllStringSubmatch(text, -1) {
		name := strings.TrimSuffix(strings.TrimSuffix(m[1], "_bucket"), "_count")
		if !strings.Contains(string(source), `"`+name+`"`) {
			t.Errorf("the driver has no metric %s", m[0])
		}
	}
}

// Policies that change objects are for API servers that have them, and the one
// about claims is for v1alpha1.
func TestMutating(t *testing.T) {
	t.Parallel()
	const kind = "MutatingAdmissionPolicy"
	for _, v := range versions {
		files := mustRender(t, inVersion(minimal(), v))
		if has(files, kind, release+"-claims") != (v == "v1alpha1") || !has(files, kind, release+"-bucketclasses-defaults") {
			t.Errorf("%s: not the policies that there should be", v)
		}
		older, err := renderWith(t, inVersion(minimal(), v), chartutil.DefaultCapabilities.Copy())
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range older {
			if strings.Contains(text, "\nkind: "+kind) {
				t.Errorf("%s: %s is for a newer API server", v, name)
			}
		}
	}
}

// What is packed has its README.
func TestPacked(t *testing.T) {
	t.Parallel()
	if !slices.ContainsFunc(loadChart(t).Files, func(f *chart.File) bool { return f.Name == "README.md" }) {
		t.Error("the packed chart has no README.md")
	}
}
