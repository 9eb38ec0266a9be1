// Package docs holds the documents to what the programs do: the commands they
// show are run, and their tables compared with the code.
//
//	go test ./test/docs -update
//
// writes what is generated, and the output of commands that has changed.
package docs

//go:generate go test . -run TestDescriptorSets|TestProto|TestContractAPI|TestExposition -update

import (
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/test/guide"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

var update = flag.Bool("update", false, "write what the documents should say")

func readme(t *testing.T) (root, text string) {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return root, string(content)
}

// block returns the only fenced block of a language.
func block(t *testing.T, text, language string) string {
	t.Helper()
	var found []string
	for _, b := range guide.Parse("", text) {
		if b.Language == language {
			found = append(found, b.Text)
		}
	}
	if len(found) != 1 {
		t.Fatalf("the page has %d %s blocks", len(found), language)
	}
	return found[0]
}

// The configurations that pages show are accepted, but for the files of another
// machine. One that shows a part replaces that of the first, which has all.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	root, _ := readme(t)
	blocks, err := guide.Of(root, guide.Config)
	must(t, err)
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("x"), 0o600))
	files := strings.NewReplacer("/etc/contract-cosi-driver/token", token, "/etc/contract-cosi-driver/kubeconfig", token)
	var whole map[string]any
	for _, b := range blocks {
		if b.Page == "deploy/storage-services.md" {
			continue // TestStorageServices
		}
		var shown map[string]any
		must(t, yaml.Unmarshal([]byte(files.Replace(b.Text)), &shown))
		if whole == nil {
			whole = shown
		}
		all := maps.Clone(whole)
		maps.Copy(all, shown)
		if d, ok := shown["driver"].(map[string]any); ok {
			all["driver"] = maps.Clone(whole["driver"].(map[string]any))
			maps.Copy(all["driver"].(map[string]any), d)
		}
		text, err := yaml.Marshal(all)
		must(t, err)
		if _, err := config.Parse(text, driver.Types()); err != nil {
			t.Errorf("%s: %v", b, err)
		}
	}
}

// Every make target that README.md names is one that make help lists.
func TestTargets(t *testing.T) {
	t.Parallel()
	root, text := readme(t)
	cmd := exec.CommandContext(t.Context(), "make", "help")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z0-9-]+)").FindAllStringSubmatch(text, -1) {
		named = append(named, m[1])
	}
	if !slices.Contains(named, "demo") || !slices.Contains(named, "test") {
		t.Errorf("README.md names only %v", named)
	}
	for _, target := range named {
		if !strings.Contains(string(out), "make "+target+" ") {
			t.Errorf("make %s is not in make help:\n%s", target, out)
		}
	}
}

// Every metric is documented, and no other.
func TestMetrics(t *testing.T) {
	t.Parallel()
	root, _ := readme(t)
	files, err := filepath.Glob(filepath.Join(root, "pkg", "metrics", "*.go"))
	must(t, err)
	var source []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		source = append(source, text...)
	}
	document, err := os.ReadFile(filepath.Join(root, "deploy", "operations.md"))
	must(t, err)
	var want, got []string
	for _, m := range regexp.MustCompile(`(?:Name: |gauge\(|desc\(|family\(|\t\{)"([a-z_]+)"`).FindAllSubmatch(source, -1) {
		want = append(want, string(m[1]))
	}
	_, table, _ := strings.Cut(string(document), "\n## Metrics\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, m := range regexp.MustCompile("`contract_cosi_([a-z_]+)`").FindAllStringSubmatch(table, -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) < 10 || !slices.Equal(got, want) {
		t.Errorf("documented are the metrics %v, the driver has %v", got, want)
	}

	alerts, err := os.ReadFile(filepath.Join(root, "deploy", "chart", "files", "alerts.yaml"))
	must(t, err)
	for _, m := range regexp.MustCompile(`contract_cosi_([a-z_]+)`).FindAllStringSubmatch(string(alerts), -1) {
		if !slices.Contains(want, strings.TrimSuffix(m[1], "_count")) {
			t.Errorf("alerts.yaml asks for contract_cosi_%s, which the driver does not have", m[1])
		}
	}
	shipped := firstGroups(`alert: (\w+)`, string(alerts))
	if told := firstGroups("(?m)^\\| `(ContractCosi\\w+)` \\|", string(document)); len(shipped) < 10 || !slices.Equal(told, shipped) {
		t.Errorf("documented are the alerts %v, the chart has %v", told, shipped)
	}
}

// firstGroups returns what an expression's group matches in a text, each once.
func firstGroups(expression, text string) []string {
	var out []string
	for _, m := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return slices.Compact(out)
}
