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
