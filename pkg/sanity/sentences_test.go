package sanity_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/sanity"
)

var source = regexp.MustCompile(`^([a-z0-9_./-]+):(\d+)$`)

// What is quoted from v1alpha1 stands where the source says. The module is
// there in any build; v1alpha2's text is in no module.
func TestSentencesAreQuoted(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/container-object-storage-interface-spec").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(out))
	for _, check := range sanity.Checks() {
		for _, rule := range check.Rules {
			match := source.FindStringSubmatch(rule.Source)
			if match == nil || rule.Sentence == "" {
				t.Errorf("%s %s: source %q, sentence %q", check.Number, rule.Version, rule.Source, rule.Sentence)
				continue
			}
			if rule.Version != sanity.V1Alpha1 || strings.HasPrefix(match[1], "sidecar/") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, match[1]))
			if err != nil {
				t.Fatal(err)
			}
			line, err := strconv.Atoi(match[2])
			if err != nil {
				t.Fatal(err)
			}
			if !quotes(string(text), line, rule.Sentence) {
				t.Errorf("%s %s: not at %s: %s", check.Number, rule.Version, rule.Source, rule.Sentence)
			}
		}
	}
}

// quotes reports whether a sentence begins in a line, comment marks left out.
func quotes(text string, line int, sentence string) bool {
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) {
		return false
	}
	var words []string
	for _, l := range lines[line-1 : min(len(lines), line+5)] {
		words = append(words, strings.Fields(strings.TrimPrefix(strings.TrimSpace(l), "//"))...)
	}
	first := strings.Fields(sentence)[0]
	return strings.Contains(strings.Join(words, " "), sentence) && strings.Contains(lines[line-1], first)
}
