package docs

import (
	"go/scanner"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// words are those that a reader stumbles over, with what to write instead. The
// list holds what was found here; it is no style guide. GLOSSARY.md has the words
// that mean one thing only.
var words = []struct{ pattern, instead, why string }{
	{`anew`, "again, or a verb with re-: re-create, restart", "it is a poet's word"},
	{`(nobody|somebody|everybody)`, "no one, someone, everyone; better, say who: the driver, the service, the public", "they sound like speech"},
	{`whoever`, "anyone who; better, say who", "sentences with it have to be read twice"},
	{`for ever`, "forever, without end; of a field: immutable", "Kubernetes calls such fields immutable"},
	{`laid under`, "the defaults of", "Kubernetes calls them defaults"},
	{`(played|written) (server|gateway|service)`, "mock server", "that is its name in every language"},
	{`(could|can) ?not be looked at`, "the check failed", "it says who did what"},
	{`repeat (the|this) (call|RPC|request|command)`, "retry", "clients retry"},
	{`for earnest use`, "in production", "no one searches for it"},
	{`any more`, "no longer", "beside a noun it means something else"},
	{`start(s|ed)? again`, "restart", "it is what the commands are called"},
	{`(make|makes|made)( it| them| one)? again`, "re-create", "it is Kubernetes' word"},
	{`(take|takes|taken|taking|took) on`, "adopt (a bucket), assume (a role)", "the settings are called adoptBuckets and roleARN"},
	{`[.] who (may|can|has|changes|runs|comes|gets|wants)`, "anyone who; better, say who", "it reads as a question"},
}

// spoken is what people read in a file: of Go the comments and the texts, of
// anything else all of it, without line breaks; of a test the comments only, as
// its texts may be what it refuses. Each text comes with its line.
func spoken(name, text string) map[int]string {
	if !strings.HasSuffix(name, ".go") {
		return map[int]string{1: text}
	}
	out := map[int]string{}
	set := token.NewFileSet()
	file := set.AddFile(name, -1, len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), nil, scanner.ScanComments)
	first, last := 0, 0 // lines of the comment that is being read
	for {
		at, kind, literal := s.Scan()
		line := set.Position(at).Line
		switch kind {
		case token.EOF:
			return out
		case token.COMMENT:
			if first == 0 || line != last+1 {
				first = line
			}
			last = line + strings.Count(literal, "\n")
			out[first] += strings.TrimPrefix(literal, "//")
		case token.STRING:
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			out[line] += " " + literal
		}
	}
}

// Pages, comments and messages are in plain English.
func TestWords(t *testing.T) {
	t.Parallel()
	compiled := make([]*regexp.Regexp, len(words))
	for i, w := range words {
		compiled[i] = regexp.MustCompile(`(?i)(?:\b|\W)` + strings.ReplaceAll(w.pattern, " ", `\s+`) + `\b`)
	}
	for name, content := range files(t, ".md", ".go", ".yaml", ".json", ".tpl", ".proto", ".sh", "Makefile", "Dockerfile") {
		if strings.Contains(name, "/testdata/") {
			continue
		}
		for line, text := range spoken(name, content) {
			for i, w := range words {
				found := compiled[i].FindStringIndex(text)
				if found == nil {
					continue
				}
				if filepath.Ext(name) != ".go" {
					line += strings.Count(text[:found[0]], "\n")
				}
				t.Errorf("%s:%d: %q: write %s (%s)", name, line, strings.Join(strings.Fields(text[found[0]:found[1]]), " "), w.instead, w.why)
			}
		}
	}
}
