package deploy

import (
	"os"
	"reflect"
	"testing"

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
