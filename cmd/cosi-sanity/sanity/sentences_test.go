package sanity_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/sanity"
)

// binds are the words that make a sentence a MUST, and a driver's at that.
var binds = regexp.MustCompile(`(?i)\b(must|shall|required)\b`)

var source = regexp.MustCompile(`^([a-zA-Z0-9_./-]+):(\d+)$`)

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
				t.Errorf("%s %s: source %q, sentence %q", check.Number, rule.For, rule.Source, rule.Sentence)
				continue
			}
			if rule.Level == sanity.SetUp {
				continue
			}
			if rule.Level == sanity.Must && !binds.MatchString(rule.Sentence) {
				t.Errorf("%s %s: a MUST, and the sentence has none: %s", check.Number, rule.For, rule.Sentence)
			}
			if rule.For != sanity.V1Alpha1 || strings.HasPrefix(match[1], "sidecar/") {
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
			// The first part of a sentence stands at the place that is named; others
			// are of the same text.
			for i, part := range strings.Split(rule.Sentence, " […] ") {
				if i == 0 && !quotes(string(text), line, part) || !strings.Contains(words(string(text)), part) {
					t.Errorf("%s %s: not at %s: %s", check.Number, rule.For, rule.Source, part)
				}
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
	first := strings.Fields(sentence)[0]
	return strings.Contains(words(strings.Join(lines[line-1:min(len(lines), line+5)], "\n")), sentence) && strings.Contains(lines[line-1], first)
}

// words are a text without comment marks and line breaks.
func words(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		out = append(out, strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "//"))...)
	}
	return strings.Join(out, " ")
}
