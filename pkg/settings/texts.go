package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// syntax says what is wrong with a text that is no YAML.
func syntax(text []byte, err error) error {
	if said := err.Error(); strings.Contains(said, "tab character") || strings.Contains(said, "cannot start any token") {
		line := 0
		for content := range strings.Lines(string(text)) {
			line++
			if indent := content[:len(content)-len(strings.TrimLeft(content, " \t"))]; strings.Contains(indent, "\t") {
				return fmt.Errorf("  line %d: a tab indents the line, where YAML takes spaces only; put spaces in its place", line)
			}
		}
	}
	return fmt.Errorf("  %w; look for a quote, a bracket, a colon or an indentation that is wrong there or in the next line", readable(err))
}

// readable is an error of the YAML library without the library's name.
func readable(err error) error { return errors.New(strings.TrimPrefix(err.Error(), "yaml: ")) }

// Suggest is the end of a sentence that says that a word is unknown: it names
// the known word that is nearest to it, or all of them.
func Suggest(word string, known []string) string {
	near, distance := "", 0
	for _, k := range known {
		if d := editDistance(strings.ToLower(word), strings.ToLower(k)); near == "" || d < distance {
			near, distance = k, d
		}
	}
	if near == "" {
		return "there is none"
	}
	if distance > max(2, len(near)/3) {
		return "known are " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
	}
	return "did you mean " + near + "?"
}

// editDistance is the Levenshtein distance of two texts.
func editDistance(a, b string) int {
	const most = 64 // a longer key is near to nothing
	if len(a) > most || len(b) > most {
		return most
	}
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		diagonal := last[0]
		last[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, last[j+1] = last[j+1], min(last[j+1]+1, last[j]+1, diagonal+cost)
		}
	}
	return last[len(b)]
}
