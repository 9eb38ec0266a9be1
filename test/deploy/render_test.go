package deploy

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
)

const (
	socket  = "/var/lib/cosi/cosi.sock"
	apiPath = "/var/run/secrets/kubernetes.io/serviceaccount"
	nobody  = 65532 // the uid of the upstream sidecar's image
)

// installations are all the ways to install that the tests below look at.
func installations() map[string]values {
	m := minimal()
	return map[string]values{
		"v1alpha1":   m,
		"v1alpha2":   inVersion(m, "v1alpha2"),
		"file":       with(with(m, "journal.persistentVolumeClaim", "journal"), "replicas", 1),
		"evaluation": {"evaluation": values{"enabled": true}},
		"namespaces": with(with(m, "sidecar.secretNamespaces", []any{"blue", namespace}), "driver.logFormat", "json"),
		"own secret": {"configSecret": "mine", "config": values{"driver": values{"name": driverName}}},
	}
}

func deployment(t *testing.T, files map[string]string) appsv1.Deployment {
	return object[appsv1.Deployment](t, files, "Deployment", release)
}

func container(t *testing.T, d appsv1.Deployment, name string) corev1.Container {
	t.Helper()
	i := slices.IndexFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("%s has no container %s", d.Name, name)
	}
	return d.Spec.Template.Spec.Containers[i]
}

func mount(c corev1.Container, path string) (corev1.VolumeMount, bool) {
	i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path })
	if i < 0 {
		return corev1.VolumeMount{}, false
	}
	return c.VolumeMounts[i], true
}

// Every pod passes the restricted Pod Security Standard, and more.
func TestSecurityContext(t *testing.T) {
	t.Parallel()
	for name, v := range installations() {
		files := mustRender(t, v)
		deployments := []appsv1.Deployment{deployment(t, files)}
		if has(files, "Deployment", release+"-contractd") {
			deployments = append(deployments, object[appsv1.Deployment](t, files, "Deployment", release+"-contractd"))
		}
		for _, d := range deployments {
			pod := d.Spec.Template.Spec
			s := pod.SecurityContext
			if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || *s.RunAsUser != nobody || *s.RunAsGroup != nobody || *s.FSGroup != nobody ||
				s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s: pod %s may do more than it should: %+v", name, d.Name, s)
			}
			if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.HostNetwork || pod.HostPID || pod.HostIPC {
				t.Errorf("%s: pod %s gets a token or a namespace of the host", name, d.Name)
			}
			for _, c := range pod.Containers {
				s := c.SecurityContext
				if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Privileged != nil || s.ReadOnlyRootFilesystem == nil ||
					!*s.ReadOnlyRootFilesystem || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
					t.Errorf("%s: container %s may do more than it should: %+v", name, c.Name, s)
				}
				if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
					t.Errorf("%s: container %s has no resources", name, c.Name)
				}
			}
			for _, volume := range pod.Volumes {
				if volume.HostPath != nil {
					t.Errorf("%s: pod %s mounts %s of the host", name, d.Name, volume.HostPath.Path)
				}
			}
		}
	}
}

// Each container has the token of its own account, and a driver that needs none
// has none. Only the sidecar's account may do anything outside the namespace.
func TestTokens(t *testing.T) {
	t.Parallel()
	for name, v := range installations() {
		files := mustRender(t, v)
		d := deployment(t, files)
		m, ok := mount(container(t, d, "sidecar"), apiPath)
		if projected := volume(d, m.Name).Projected; !ok || !m.ReadOnly || projected == nil || projected.Sources[0].ServiceAccountToken == nil {
			t.Errorf("%s: the sidecar's token is mounted from %+v", name, volume(d, m.Name))
		}
		if d.Spec.Template.Spec.ServiceAccountName != release+"-sidecar" {
			t.Errorf("%s: the pod's account is %s", name, d.Spec.Template.Spec.ServiceAccountName)
		}
		inSecrets := name != "file"
		m, ok = mount(container(t, d, "driver"), apiPath)
		if ok != inSecrets {
			t.Errorf("%s: the driver's token is there: %v, want %v", name, ok, inSecrets)
		}
		if inSecrets {
			token := object[corev1.Secret](t, files, "Secret", release+"-driver-token")
			if from := volume(d, m.Name).Secret; !m.ReadOnly || from == nil || from.SecretName != token.Name || len(from.Items) != 3 {
				t.Errorf("%s: the driver's token is mounted from %+v", name, from)
			}
			if token.Type != corev1.SecretTypeServiceAccountToken || token.Annotations[corev1.ServiceAccountNameKey] != release+"-driver" {
				t.Errorf("%s: the driver's token is of %v, %s", name, token.Annotations, token.Type)
			}
		}
		for _, text := range files {
			for _, document := range documents(text) {
				checkBinding(t, name, document, inSecrets)
			}
		}
	}
}

// checkBinding: a role is bound to the account whose name it has.
func checkBinding(t *testing.T, name, document string, inSecrets bool) {
	t.Helper()
	switch kindOf(document) {
	case "ServiceAccount":
		var account corev1.ServiceAccount
		if err := yaml.UnmarshalStrict([]byte(document), &account); err != nil {
			t.Fatal(err)
		}
		if account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
			t.Errorf("%s: the token of ServiceAccount %s is mounted by itself", name, account.Name)
		}
		if account.Name == release+"-driver" && !inSecrets {
			t.Errorf("%s: the driver has an account that it does not need", name)
		}
	case "RoleBinding", "ClusterRoleBinding":
		var binding rbacv1.ClusterRoleBinding // its fields are the same
		if err := yaml.UnmarshalStrict([]byte(document), &binding); err != nil {
			t.Fatal(err)
		}
		if len(binding.Subjects) != 1 || binding.Subjects[0].Kind != "ServiceAccount" || binding.Subjects[0].Namespace != namespace ||
			binding.Subjects[0].Name != strings.TrimSuffix(binding.RoleRef.Name, "-secrets") || binding.RoleRef.Name != binding.Name {
			t.Errorf("%s: %s %s binds %+v to %+v", name, binding.Kind, binding.Name, binding.RoleRef, binding.Subjects)
		}
		if binding.Kind == "ClusterRoleBinding" && binding.Name != release+"-sidecar" {
			t.Errorf("%s: %s reaches beyond the namespace", name, binding.Name)
		}
	}
}

// Pods are restarted when the configuration has changed, and not otherwise:
// credentials are read again by the driver itself.
func TestRollout(t *testing.T) {
	t.Parallel()
	annotations := func(v values, secrets ...runtime.Object) map[string]string {
		files, err := renderIn(t, v, secrets...)
		if err != nil {
			t.Fatal(err)
		}
		return deployment(t, files).Spec.Template.Annotations
	}
	secret := func(name, holds string) runtime.Object {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret",
			"metadata": map[string]any{"name": name, "namespace": namespace}, "data": map[string]any{"holds": holds},
		}}
	}
	base, own := annotations(minimal(), secret("main", "YQ==")), installations()["own secret"]
	for name, c := range map[string]struct {
		before, after map[string]string
		again         bool
	}{
		"resources":                    {base, annotations(with(minimal(), "driver.resources", values{}), secret("main", "YQ==")), false},
		"a term":                       {base, annotations(with(minimal(), "config.contracts", []any{values{"name": "team-blue", "backend": "main", "suspend": true}}), secret("main", "YQ==")), true},
		"the token":                    {base, annotations(minimal(), secret("main", "Yg==")), false},
		"a configuration of one's own": {annotations(own, secret("mine", "YQ==")), annotations(own, secret("mine", "Yg==")), true},
	} {
		if again := !maps.Equal(c.before, c.after); again != c.again {
			t.Errorf("%s has changed; the pods start again: %v", name, again)
		}
	}
}

// Both containers mean the same socket, and the sidecar's user can open it.
func TestSocket(t *testing.T) {
	t.Parallel()
	for name, v := range installations() {
		d := deployment(t, mustRender(t, v))
		driver, sidecar := container(t, d, "driver"), container(t, d, "sidecar")
		if !slices.Contains(driver.Args, "--endpoint=unix://"+socket) || !slices.Contains(driver.Args, "--socket-mode=0660") {
			t.Errorf("%s: the driver's arguments are %v", name, driver.Args)
		}
		says := slices.Contains(sidecar.Args, "--driver-addr=unix://"+socket) ||
			slices.ContainsFunc(sidecar.Env, func(e corev1.EnvVar) bool { return e.Name == "COSI_ENDPOINT" && e.Value == "unix://"+socket })
		if !says {
			t.Errorf("%s: the sidecar is not told the socket", name)
		}
		for _, c := range []corev1.Container{driver, sidecar} {
			if m, ok := mount(c, filepath.Dir(socket)); !ok || m.Name != "socket" || m.ReadOnly {
				t.Errorf("%s: container %s has no socket directory", name, c.Name)
			}
		}
	}
}

// The sidecar's image and arguments are those of its version.
func TestSidecar(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]struct{ image, arg string }{
		"v1alpha1": {"registry.k8s.io/sig-storage/objectstorage-sidecar:v0.2.2", "--driver-addr="},
		"v1alpha2": {"objectstorage-sidecar:v1alpha2", "--leader-elect=true"},
	} {
		c := container(t, deployment(t, mustRender(t, installations()[version])), "sidecar")
		if !strings.HasPrefix(c.Image, want.image) || !slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, want.arg) }) {
			t.Errorf("%s: %s %v", version, c.Image, c.Args)
		}
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "POD_NAMESPACE" }) {
			t.Errorf("%s: the sidecar is not told where its lease is", version)
		}
	}
	digest := "sha256:" + strings.Repeat("0", 64)
	for _, of := range []struct{ section, container, tagged, pinned string }{
		{"sidecar", "sidecar", "example.com/x:v0.2.2", "example.com/x@" + digest},
		{"driver", "driver", "example.com/x:" + loadChart(t).Metadata.AppVersion, "example.com/x@" + digest},
	} {
		v := with(minimal(), of.section+".image", values{"repository": "example.com/x"})
		if image := container(t, deployment(t, mustRender(t, v)), of.container).Image; image != of.tagged {
			t.Errorf("the image of the %s is %s", of.container, image)
		}
		v = with(v, of.section+".image", values{"repository": "example.com/x", "tag": "v1", "digest": digest})
		if image := container(t, deployment(t, mustRender(t, v)), of.container).Image; image != of.pinned {
			t.Errorf("the image of the %s is %s", of.container, image)
		}
	}
}

// build compiles a command once for a test.
func build(t *testing.T, dir, name string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	cmd.Dir = filepath.Join(root, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

// flags are the flags that a program names in its own help.
func flags(t *testing.T, binary string, args ...string) map[string]bool {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), binary, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", binary, err, out)
	}
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-[a-z], )?--?([a-z0-9-]+)`).FindAllStringSubmatch(string(out), -1) {
		found[m[1]] = true
	}
	return found
}

// Every argument in the chart is a flag of the program that gets it.
func TestFlags(t *testing.T) {
	t.Parallel()
	driver := flags(t, build(t, "cmd/contract-cosi-driver", "driver"), "serve", "--help")
	contractd := flags(t, build(t, "cmd/contractd", "contractd"), "--help")
	for name, v := range installations() {
		files := mustRender(t, v)
		check := func(c corev1.Container, known map[string]bool) {
			for _, arg := range c.Args {
				flag, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
				if strings.HasPrefix(arg, "-") && !known[flag] {
					t.Errorf("%s: %s has no flag %s", name, c.Name, arg)
				}
			}
		}
		check(container(t, deployment(t, files), "driver"), driver)
		if name == "evaluation" {
			check(container(t, object[appsv1.Deployment](t, files, "Deployment", release+"-contractd"), "contractd"), contractd)
		}
	}
}

// Probes and network policies name ports that are there, and the driver serves
// HTTP at the one that is probed.
func TestPorts(t *testing.T) {
	t.Parallel()
	for name, v := range installations() {
		files := mustRender(t, v)
		d := deployment(t, files)
		driver := container(t, d, "driver")
		if !slices.Contains(driver.Args, "--http-endpoint=:8080") || driver.Ports[0].ContainerPort != 8080 {
			t.Errorf("%s: %v, %v", name, driver.Args, driver.Ports)
		}
		if driver.LivenessProbe.HTTPGet.Path != "/healthz" || driver.ReadinessProbe.HTTPGet.Path != "/readyz" {
			t.Errorf("%s: the driver is probed at %s and %s", name, driver.LivenessProbe.HTTPGet.Path, driver.ReadinessProbe.HTTPGet.Path)
		}
		ports := map[string]bool{}
		for _, c := range d.Spec.Template.Spec.Containers {
			for _, p := range c.Ports {
				ports[p.Name] = true
			}
			for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
				if p != nil && !slices.ContainsFunc(c.Ports, func(port corev1.ContainerPort) bool { return port.Name == p.HTTPGet.Port.StrVal }) {
					t.Errorf("%s: container %s is probed at a port it does not have: %s", name, c.Name, p.HTTPGet.Port.StrVal)
				}
			}
		}
		network := object[networkingv1.NetworkPolicy](t, files, "NetworkPolicy", release)
		for _, p := range network.Spec.Ingress[0].Ports {
			if !ports[p.Port.StrVal] {
				t.Errorf("%s: the network policy opens a port that is not there: %s", name, p.Port.StrVal)
			}
		}
		if len(network.Spec.PolicyTypes) != 2 || len(network.Spec.Egress) < 2 {
			t.Errorf("%s: the network policy is %+v", name, network.Spec)
		}
	}
}

// What selects the driver's pods selects them, and contractd's not.
func TestSelectors(t *testing.T) {
	t.Parallel()
	files := mustRender(t, installations()["evaluation"])
	d := deployment(t, files)
	contractd := object[appsv1.Deployment](t, files, "Deployment", release+"-contractd")
	budget := object[policyv1.PodDisruptionBudget](t, files, "PodDisruptionBudget", release)
	network := object[networkingv1.NetworkPolicy](t, files, "NetworkPolicy", release)
	selects := func(by, labels map[string]string) bool {
		for key, value := range by {
			if labels[key] != value {
				return false
			}
		}
		return len(by) > 0
	}
	selectors := []map[string]string{d.Spec.Selector.MatchLabels, budget.Spec.Selector.MatchLabels, network.Spec.PodSelector.MatchLabels}
	for _, s := range d.Spec.Template.Spec.TopologySpreadConstraints {
		selectors = append(selectors, s.LabelSelector.MatchLabels)
	}
	if len(selectors) != 5 {
		t.Errorf("%d selectors, want 5", len(selectors))
	}
	for _, s := range selectors {
		if !selects(s, d.Spec.Template.Labels) || selects(s, contractd.Spec.Template.Labels) {
			t.Errorf("%v does not select the driver's pods alone", s)
		}
	}
	service := object[corev1.Service](t, files, "Service", release+"-contractd")
	if !selects(service.Spec.Selector, contractd.Spec.Template.Labels) || selects(service.Spec.Selector, d.Spec.Template.Labels) {
		t.Errorf("the service selects %v", service.Spec.Selector)
	}
	if budget.Spec.MaxUnavailable.IntValue() != 1 || d.Spec.Template.Spec.PriorityClassName != "" {
		t.Errorf("budget %v, priority class %q", budget.Spec.MaxUnavailable, d.Spec.Template.Spec.PriorityClassName)
	}
}

// The driver accepts the configuration that the chart writes, and finds it and
// its secrets where the chart mounts them.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"v1alpha1", "file", "evaluation"} {
		files := mustRender(t, installations()[name])
		secret := object[corev1.Secret](t, files, "Secret", release+"-config")
		text := secret.StringData["config.yaml"]
		d := deployment(t, files)
		driver := container(t, d, "driver")
		if !slices.Contains(driver.Args, "--config=/etc/contract-cosi-driver/config/config.yaml") {
			t.Errorf("%s: %v", name, driver.Args)
		}
		m, _ := mount(driver, "/etc/contract-cosi-driver/config")
		if v := volume(d, m.Name); v.Secret == nil || v.Secret.SecretName != secret.Name || !m.ReadOnly || m.SubPath != "" {
			t.Errorf("%s: the configuration is mounted from %+v", name, v)
		}
		var given struct {
			Journal  map[string]any `json:"journal"`
			Backends []struct {
				ContractAPI struct {
					TokenFile string `json:"tokenFile"`
				} `json:"contractapi"`
			} `json:"backends"`
		}
		if err := yaml.Unmarshal([]byte(text), &given); err != nil {
			t.Fatal(err)
		}
		for _, b := range given.Backends {
			m, ok := mount(driver, filepath.Dir(b.ContractAPI.TokenFile))
			if !ok || !m.ReadOnly || m.SubPath != "" || volume(d, m.Name).Secret == nil {
				t.Errorf("%s: nothing is mounted for %s", name, b.ContractAPI.TokenFile)
			}
			token := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(token, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			text = strings.ReplaceAll(text, b.ContractAPI.TokenFile, token)
		}
		// The journal is looked at here, so that what is parsed does not depend on
		// a cluster.
		if secrets, _ := given.Journal["secrets"].(map[string]any); (secrets["namespace"] == journalNamespace) != (name != "file") {
			t.Errorf("%s: the journal is %v", name, given.Journal)
		}
		if name != "file" {
			text = strings.Replace(text, "\n  secrets:\n    namespace: "+journalNamespace, "\n  file: /journal", 1)
		}
		if err := refused(text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// refused says why the driver does not take a configuration.
func refused(text string) error {
	_, err := config.Parse([]byte(text), driver.Types())
	return err
}

func volume(d appsv1.Deployment, name string) corev1.Volume {
	i := slices.IndexFunc(d.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	if i < 0 {
		return corev1.Volume{}
	}
	return d.Spec.Template.Spec.Volumes[i]
}

// No role has a verb for everything, only the sidecar's reaches beyond one
// namespace, and the driver's reaches the journal's.
func TestRoles(t *testing.T) {
	t.Parallel()
	unnamed := object[rbacv1.Role](t, mustRender(t, installations()["own secret"]), "Role", release+"-driver")
	if names := unnamed.Rules[2].ResourceNames; len(names) != 0 {
		t.Errorf("the chart does not know the owner, and limits the driver to the Leases %v", names)
	}
	for _, v := range versions {
		files := mustRender(t, installations()[v])
		driver := object[rbacv1.Role](t, files, "Role", release+"-driver")
		sidecar := object[rbacv1.Role](t, files, "Role", release+"-sidecar")
		cluster := object[rbacv1.ClusterRole](t, files, "ClusterRole", release+"-sidecar")
		if driver.Namespace != journalNamespace || sidecar.Namespace != namespace {
			t.Errorf("%s: roles in %s and %s", v, driver.Namespace, sidecar.Namespace)
		}
		var may []string
		for _, r := range driver.Rules {
			may = append(may, fmt.Sprint(r.Resources, r.ResourceNames, r.Verbs))
		}
		if want := []string{"[secrets] [] [get list watch create update delete]", "[leases] [] [create]", "[leases] [writer." + kube.OwnerMark("cluster-1") + "] [get watch update]"}; !slices.Equal(may, want) {
			t.Errorf("%s: the driver may %q, want %q", v, may, want)
		}
		for _, rule := range slices.Concat(driver.Rules, sidecar.Rules, cluster.Rules) {
			for _, word := range slices.Concat(rule.Verbs, rule.Resources, rule.APIGroups) {
				if strings.Contains(word, "*") || word == "escalate" || word == "bind" || word == "impersonate" {
					t.Errorf("%s: a rule says %q: %+v", v, word, rule)
				}
			}
		}
	}
}

// What cannot work is refused, with a text that says what to do.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values values
		says   string
	}{
		"nothing given":          {values{}, "config.backends is empty"},
		"no owner":               {with(minimal(), "config.driver.owner", ""), "config.driver.owner is empty"},
		"no name":                {with(minimal(), "config.driver.name", ""), "config.driver.name is empty"},
		"no name beside a file":  {values{"configSecret": "mine"}, "config.driver.name is empty"},
		"no image of v1alpha2":   {with(minimal(), "sidecar.version", "v1alpha2"), "sidecar.image is empty"},
		"no tag of v1alpha2":     {with(inVersion(minimal(), "v1alpha2"), "sidecar.image", values{"repository": "x"}), "sidecar.image is empty"},
		"a digest that is a tag": {with(minimal(), "driver.image.digest", "v1"), "/driver/image/digest"},
		"Secrets of v1alpha2":    {with(inVersion(minimal(), "v1alpha2"), "sidecar.secretNamespaces", []any{"blue"}), "sidecar.secretNamespaces is for v1alpha1"},
		"unknown value":          {with(minimal(), "replica", 1), "replica"},
		"unknown version":        {with(minimal(), "sidecar.version", "v1"), "sidecar/version"},
		"name in capitals":       {with(minimal(), "config.driver.name", "Example.com"), "config/driver/name"},
		"two pods, one file":     {with(minimal(), "journal.persistentVolumeClaim", "x"), "set replicas to 1"},
		"a journal of its own":   {with(minimal(), "config.journal", values{"file": "/x"}), "config.journal is written by the chart"},
		"two configurations":     {values{"configSecret": "x", "evaluation": values{"enabled": true}}, "exclude each other"},
		"no contract":            {with(minimal(), "config.contracts", []any{}), "config.contracts is empty"},
		"unknown key":            {with(minimal(), "config.drfit", values{}), "/config'"},
		"unknown key of a quota": {with(minimal(), "config.contracts", []any{values{"name": "a", "backend": "main", "quota": values{"maxBucket": 1}}}), "/config/contracts/0/quota"},
		"unknown type":           {with(minimal(), "config.backends", []any{values{"name": "main", "type": "contractAPI"}}), "/config/backends/0/type"},
		"no section":             {with(minimal(), "config.backends", []any{values{"name": "main", "type": "iam"}}), "'iam'"},
		"another's section": {with(minimal(), "config.backends", []any{values{"name": "main", "type": "contractapi",
			"contractapi": values{"url": "https://c", "tokenFile": "/t"}, "iam": values{}}}), "'iam'"},
		"a contract's backend":   {with(minimal(), "config.contracts", []any{values{"name": "a", "backend": "mian"}}), `config.contracts[0].backend: "mian" is not in config.backends; known are main`},
		"backend on demand":      {with(minimal(), "config.onDemand", values{"backend": "mian"}), `config.onDemand.backend: "mian" is not in config.backends; known are main`},
		"not the evaluation's":   {values{"evaluation": values{"enabled": true}, "config": values{"onDemand": values{"backend": "main"}}}, "known are evaluation"},
		"unknown default":        {with(minimal(), "config.onDemand", values{"backend": "main", "defaults": values{"bucketClass": values{"vrsioning": "Enabled"}}}), "/config/onDemand/defaults/bucketClass"},
		"a credential with dots": {with(minimal(), "credentials", []any{"a.b"}), "credentials"},
	} {
		if _, err := render(t, c.values); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}
