package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// files are those of the repository whose names end so, by their path from its
// root, with what they hold.
func files(t *testing.T, endings ...string) map[string]string {
	t.Helper()
	root, err := harness.Root()
	must(t, err)
	out := map[string]string{}
	for _, ending := range endings {
		list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*"+ending)
		list.Dir = root
		names, err := list.Output()
		must(t, err)
		for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
			text, err := os.ReadFile(filepath.Join(root, name))
			if os.IsNotExist(err) {
				continue // deleted, and not committed yet
			}
			must(t, err)
			out[name] = string(text)
		}
	}
	if len(out) < 10 {
		t.Fatalf("only %d files end in %q", len(out), endings)
	}
	return out
}

// anchors are those of a page's headings, as GitHub makes them.
func anchors(page string) map[string]bool {
	unlettered := regexp.MustCompile(`[^a-z0-9_ -]`)
	out := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		out[strings.ReplaceAll(unlettered.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return out
}

// Links between pages lead to files and headings that are there.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := files(t, ".md")
	root, err := harness.Root()
	must(t, err)
	link, code := regexp.MustCompile(`\]\(([^):]+)\)`), regexp.MustCompile("`[^`\n]+`")
	for name, page := range pages {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(page, ""), -1) {
			file, anchor, _ := strings.Cut(m[1], "#")
			to := filepath.Join(filepath.Dir(name), file)
			if file == "" {
				to = name
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if anchor != "" && strings.HasSuffix(to, ".md") && !anchors(pages[to])[anchor] {
				t.Errorf("%s: %s has no heading %s", name, to, anchor)
			}
		}
	}
}

// Diagrams have no semicolon, which ends a statement of Mermaid wherever it stands.
func TestDiagrams(t *testing.T) {
	t.Parallel()
	n := 0
	for name, page := range files(t, ".md") {
		for _, m := range regexp.MustCompile("(?s)\n```mermaid\n(.*?)\n```\n").FindAllStringSubmatch(page, -1) {
			n++
			for line := range strings.Lines(m[1]) {
				if strings.Contains(line, ";") {
					t.Errorf("%s: a semicolon in the diagram's line %q", name, line)
				}
			}
		}
	}
	if n < 4 {
		t.Errorf("only %d diagrams", n)
	}
}

// README.md names the versions that the tests and the chart have.
func TestVersions(t *testing.T) {
	t.Parallel()
	root, text := readme(t)
	for _, v := range []struct{ file, pattern, says string }{
		{"test/e2e/kube/kubernetes/go.mod", `k8s\.io/kubernetes v(\S+)`, "an API server %s (`make e2e`)"},
		{"test/e2e/go.mod", `sigs\.k8s\.io/container-object-storage-interface (v\S+)`, "| %s (`make e2e`) |"},
		{"deploy/chart/Chart.yaml", `kubeVersion: ">=(1\.\d+)`, "| %s or newer; "},
	} {
		content, err := os.ReadFile(filepath.Join(root, v.file))
		must(t, err)
		m := regexp.MustCompile(v.pattern).FindStringSubmatch(string(content))
		if m == nil || !strings.Contains(text, strings.Replace(v.says, "%s", m[1], 1)) {
			t.Errorf("README.md does not say %q as %s does: %v", v.says, v.file, m)
		}
	}
}

// Every page begins with who it is for and what they get.
func TestAudience(t *testing.T) {
	t.Parallel()
	begins := regexp.MustCompile(`^# .+\n\n(<!-- [^>]+ -->\n\n)?For \S+`)
	for name, page := range files(t, ".md") {
		if name == "test/bench/RESULTS.md" { // make bench writes it whole
			continue
		}
		if !begins.MatchString(page) {
			t.Errorf("%s does not begin with a title and then \"For\" and its readers", name)
		}
	}
}
