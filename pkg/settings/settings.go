// Package settings reads a file of settings strictly. A key that is unknown, a
// value of the wrong kind and whatever a section's owner finds wrong with it
// become faults, and one error lists all of them, each with the line and the
// place where it stands. No fault repeats a value that it cannot judge: it may
// be a secret at the wrong place.
//
// pkg/config reads the driver's file with it, and the provider of each type of
// backend reads its section of that file.
package settings

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Section is a part of a file, down to a single value. The zero Section is a
// part of no file, and its faults are lost.
type Section struct {
	at     string     // how the part is reached: backends[0].iam.url
	line   int        // where it begins, or the nearest part around it; 0 is unknown
	node   *yaml.Node // nil if it is not there
	faults *[]fault   // of the whole file
}

type fault struct {
	line int
	err  error
}

// Read reads one YAML document into a struct; see [Section.Decode]. The error is
// of a text that is no YAML.
func Read(text []byte, into any) (Section, error) {
	s := Section{faults: new([]fault)}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return s, nil
	case err != nil:
		return s, syntax(text, err)
	}
	if n := endless(&document, map[*yaml.Node]bool{}); n != nil {
		return s, fmt.Errorf("  line %d: the alias *%s stands in the part that it stands for; write out what it should be", n.Line, n.Value)
	}
	s.node = document.Content[0]
	if err := decoder.Decode(&document); !errors.Is(err, io.EOF) {
		s.Faultf("there is a second YAML document; leave one")
	}
	return s, s.decode(into)
}

// endless is an alias within what it stands for, of which there is no end to read; nil
// if there is none.
func endless(n *yaml.Node, around map[*yaml.Node]bool) *yaml.Node {
	if around[n.Alias] {
		return n
	}
	around[n] = true
	defer delete(around, n)
	for _, part := range n.Content {
		if found := endless(part, around); found != nil {
			return found
		}
	}
	return nil
}

// At is the part of s that is reached by keys (strings) and indices (ints).
func (s Section) At(path ...any) Section {
	for _, step := range path {
		next := Section{faults: s.faults}
		switch {
		case s.at == "":
			next.at = fmt.Sprint(step)
		case reflect.TypeOf(step).Kind() == reflect.Int:
			next.at = fmt.Sprintf("%s[%d]", s.at, step)
		default:
			next.at = fmt.Sprintf("%s.%s", s.at, step)
		}
		next.node, next.line = find(s.node, step)
		if next.line == 0 {
			next.line = s.line
		}
		s = next
	}
	return s
}

// find looks up a step of a path. The line is 0 if it is not there, or comes
// from another place by a merge.
func find(in *yaml.Node, step any) (value *yaml.Node, line int) {
	n := resolve(in)
	if i, ok := step.(int); ok && n.Kind == yaml.SequenceNode && i < len(n.Content) {
		return n.Content[i], n.Content[i].Line
	}
	for key, v := range pairs(n) {
		switch {
		case key.Value == step:
			return v, key.Line
		case key.Tag == mergeTag:
			for _, merged := range mergedBy(v) {
				if found, _ := find(merged, step); found != nil && value == nil {
					value = found
				}
			}
		}
	}
	return value, 0
}

const mergeTag, nullTag = "!!merge", "!!null"

// resolve is what an alias stands for.
func resolve(n *yaml.Node) *yaml.Node {
	switch {
	case n == nil:
		return &yaml.Node{}
	case n.Kind == yaml.AliasNode:
		return n.Alias
	}
	return n
}

// pairs are the keys and values of a mapping; none of anything else.
func pairs(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], n.Content[i+1]) {
				return
			}
		}
	}
}

// mergedBy are the mappings that the value of a merge key names.
func mergedBy(value *yaml.Node) []*yaml.Node {
	if n := resolve(value); n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{value}
}

// Given reports whether the file has the part.
func (s Section) Given() bool { return s.node != nil && resolve(s.node).Tag != nullTag }

// Faultf adds what is wrong with the part, and how it is mended.
func (s Section) Faultf(format string, args ...any) {
	if s.faults == nil {
		return
	}
	err := fmt.Errorf(format, args...)
	if s.at != "" {
		err = fmt.Errorf("%s: %w", s.at, err)
	}
	if s.line > 0 {
		err = fmt.Errorf("line %d: %w", s.line, err)
	}
	*s.faults = append(*s.faults, fault{s.line, err})
}

// Err is what was found in the whole file, one fault a line in the order of the
// file; nil if there is nothing. The same faults make the same text.
func (s Section) Err() error {
	slices.SortFunc(*s.faults, func(a, b fault) int {
		return cmp.Or(a.line-b.line, strings.Compare(a.err.Error(), b.err.Error()))
	})
	lines := make([]error, len(*s.faults))
	for i, f := range *s.faults {
		lines[i] = fmt.Errorf("  %w", f.err)
	}
	return errors.Join(lines...)
}

// URL adds a fault if text is no address of a service, and reports whether it is
// one. It does not show a password that stands in it.
func (s Section) URL(text string) bool {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		s.Faultf("this is not an http or https address without credentials")
	case u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil:
		s.Faultf("%q is not an http or https address without credentials", u.Redacted())
	default:
		return true
	}
	return false
}

// Between adds a fault if a time is not within its bounds.
func (s Section) Between(d, least, most time.Duration) {
	if d < least || d > most {
		s.Faultf("%s is not between %s and %s", d, least, most)
	}
}
