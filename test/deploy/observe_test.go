package deploy

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// The chart ships the alerts as they are, with the labels that the operator asks
// for, and only where its kind exists. test/alerts tests the alerts.
func TestPrometheusRule(t *testing.T) {
	t.Parallel()
	rendered, err := render(t, minimal())
	if err != nil {
		t.Fatal(err)
	}
	if text := rendered["prometheusrule.yaml"]; text != "" {
		t.Errorf("it is there without being asked for:\n%s", text)
	}
	v := with(with(minimal(), "prometheusRule.enabled", true), "prometheusRule.labels", values{"release": "prometheus"})
	if rendered, err = render(t, v); err != nil {
		t.Fatal(err)
	}
	var got struct {
		APIVersion, Kind string
		Metadata         struct {
			Namespace string
			Labels    map[string]string
		}
		Spec any
	}
	if err := yaml.Unmarshal([]byte(rendered["prometheusrule.yaml"]), &got); err != nil {
		t.Fatal(err)
	}
	if got.APIVersion != "monitoring.coreos.com/v1" || got.Kind != "PrometheusRule" || got.Metadata.Namespace != namespace || got.Metadata.Labels["release"] != "prometheus" || got.Metadata.Labels["app.kubernetes.io/name"] == "" {
		t.Errorf("%+v", got)
	}
	text, err := os.ReadFile(chartDir + "/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want any
	if err := yaml.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Spec, want) {
		t.Errorf("the rules are %v, want %v", got.Spec, want)
	}
}

// With events the driver is told to make them and may do what that takes, and no
// more.
func TestEvents(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		files, err := render(t, with(minimal(), "events.enabled", on))
		if err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(files["config.yaml"], "events: true"); told != on {
			t.Errorf("events.enabled: %v, the configuration says so: %v", on, told)
		}
		if (files["events.yaml"] != "") != on {
			t.Errorf("events.enabled: %v, and the rights are\n%s", on, files["events.yaml"])
		}
		if !on {
			continue
		}
		var may []string
		for _, p := range permissions(t, files["events.yaml"]) {
			may = append(may, p.verb+" "+p.resource)
		}
		if want := []string{"get buckets (objectstorage.k8s.io)", "list bucketaccesses (objectstorage.k8s.io)", "create events"}; !slices.Equal(may, want) {
			t.Errorf("the driver may %q, want %q", may, want)
		}
	}
	v := with(with(with(minimal(), "events.enabled", true), "journal.persistentVolumeClaim", "x"), "replicas", 1)
	if _, err := render(t, v); err == nil || !strings.Contains(err.Error(), "events.enabled goes with a journal in Secrets") {
		t.Errorf("without an API server: %v", err)
	}
}

// With applicationSecrets the driver may write Secrets: in every namespace, or in those
// that are named, and else in none.
func TestApplicationSecrets(t *testing.T) {
	t.Parallel()
	want := []string{
		"get bucketaccesses (objectstorage.k8s.io)", "list bucketaccesses (objectstorage.k8s.io)",
		"get secrets", "update secrets", "create secrets", "delete secrets",
	}
	for _, c := range []struct {
		on         bool
		namespaces []any
		kinds      []string
	}{
		{false, nil, nil},
		{false, []any{"blue"}, nil},
		{true, nil, []string{"kind: ClusterRole\n"}},
		{true, []any{"blue", "green"}, []string{"kind: Role\n", "namespace: blue", "namespace: green"}},
	} {
		v := with(minimal(), "applicationSecrets.enabled", c.on)
		if c.namespaces != nil {
			v = with(v, "applicationSecrets.namespaces", c.namespaces)
		}
		files, err := render(t, v)
		if err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(files["config.yaml"], "applicationSecrets:"); told != c.on {
			t.Errorf("%+v: the configuration says so: %v", c, told)
		}
		rights := files["application-secrets.yaml"]
		var may []string
		for _, p := range permissions(t, rights) {
			may = append(may, p.verb+" "+p.resource)
		}
		times := 0
		if c.on {
			times = max(1, len(c.namespaces))
		}
		if all := slices.Repeat(want, times); !slices.Equal(may, all) {
			t.Errorf("%+v: the driver may %q, want %q", c, may, all)
		}
		for _, kind := range c.kinds {
			if !strings.Contains(rights, kind) {
				t.Errorf("%+v: there is no %q in\n%s", c, kind, rights)
			}
		}
		if len(c.namespaces) > 0 && strings.Contains(rights, "ClusterRole") {
			t.Errorf("%+v: a right in every namespace:\n%s", c, rights)
		}
	}
	separate := with(with(minimal(), "applicationSecrets.enabled", true), "applicationSecrets.separate", true)
	files, err := render(t, separate)
	if err != nil {
		t.Fatal(err)
	}
	if rights := files["application-secrets.yaml"]; !strings.Contains(rights, "name: "+release+"-deliver\n") || strings.Contains(rights, "name: "+release+"-driver\n") {
		t.Errorf("these rights are not those of the command deliver:\n%s", rights)
	}
	if !strings.Contains(files["config.yaml"], "socket: /var/lib/cosi-delivery/deliver.sock") {
		t.Errorf("the driver is not told where to ask:\n%s", files["config.yaml"])
	}
	mounts := map[string][]string{} // of each container
	for _, c := range object[appsv1.Deployment](t, files, "Deployment", release).Spec.Template.Spec.Containers {
		for _, m := range c.VolumeMounts {
			mounts[c.Name] = append(mounts[c.Name], m.Name)
		}
	}
	if got, want := mounts["deliver"], []string{"delivery", "deliver-token"}; !slices.Equal(got, want) {
		t.Errorf("deliver has the volumes %q, want %q", got, want)
	}
	for container, sees := range map[string]bool{"driver": true, "sidecar": false} {
		if slices.Contains(mounts[container], "delivery") != sees || slices.Contains(mounts[container], "deliver-token") {
			t.Errorf("%s has the volumes %q", container, mounts[container])
		}
	}
	v := with(with(with(minimal(), "applicationSecrets.enabled", true), "journal.persistentVolumeClaim", "x"), "replicas", 1)
	if _, err := render(t, v); err == nil || !strings.Contains(err.Error(), "applicationSecrets.enabled goes with a journal in Secrets") {
		t.Errorf("without an API server: %v", err)
	}
}

// With contracts the driver is told to follow what is ordered, and may do what that
// takes: nothing on Secrets, and no more than reading of what is not its own.
func TestContracts(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		files, err := render(t, with(minimal(), "contracts.enabled", on))
		if err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(files["config.yaml"], "objects: {}"); told != on {
			t.Errorf("contracts.enabled: %v, the configuration says so: %v", on, told)
		}
		if (files["contracts.yaml"] != "") != on {
			t.Errorf("contracts.enabled: %v, and the rights are\n%s", on, files["contracts.yaml"])
		}
		if !on {
			continue
		}
		for _, p := range permissions(t, files["contracts.yaml"]) {
			own := strings.Contains(p.resource, "contract-cosi.github.io") || strings.Contains(p.resource, "classes (objectstorage") || p.resource == "events"
			if !own && !slices.Contains([]string{"get", "list", "watch"}, p.verb) || strings.Contains(p.resource, "secrets") {
				t.Errorf("the driver may %s %s", p.verb, p.resource)
			}
		}
	}
	v := with(with(with(minimal(), "contracts.enabled", true), "journal.persistentVolumeClaim", "x"), "replicas", 1)
	if _, err := render(t, v); err == nil || !strings.Contains(err.Error(), "contracts.enabled goes with a journal in Secrets") {
		t.Errorf("without an API server: %v", err)
	}
}

// Secrets of contracts' own keys take rights in the namespaces that are named, and in no
// other.
func TestKeyNamespaces(t *testing.T) {
	t.Parallel()
	v := with(minimal(), "contracts.enabled", true)
	if files := mustRender(t, v); strings.Contains(files["contracts.yaml"]+files["contracts-keys.yaml"], "secrets") {
		t.Error("without a namespace there are rights on Secrets")
	}
	files := mustRender(t, with(v, "contracts.keyNamespaces", []any{"blue", "green"}))
	text := files["contracts-keys.yaml"]
	if strings.Count(text, "\nkind: Role\n") != 2 || strings.Count(text, "\nkind: RoleBinding\n") != 2 || strings.Contains(text, "ClusterRole") ||
		strings.Count(text, "namespace: blue") != 2 || strings.Count(text, "namespace: green") != 2 {
		t.Errorf("the rights are\n%s", text)
	}
}
