package settings

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Decode reads the part into a struct, as far as it can be read. What the
// struct has no field for, and what is of another kind, becomes a fault.
func (s Section) Decode(into any) {
	if err := s.decode(into); err != nil {
		s.Faultf("%w", err)
	}
}

func (s Section) decode(into any) error {
	if s.node == nil {
		return nil
	}
	err := s.node.Decode(into)
	var several *yaml.TypeError
	if err != nil && !errors.As(err, &several) {
		return readable(err)
	}
	found := len(*s.faults)
	s.compare(reflect.TypeOf(into))
	if err != nil && len(*s.faults) == found {
		return errors.New("it cannot be read") // the library's text would show the value
	}
	return nil
}

// compare finds what Go's decoder drops or refuses.
func (s Section) compare(t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	n := resolve(s.node)
	switch kind := t.Kind(); {
	case n.Tag == nullTag:
	case kind == reflect.Struct && n.Kind == yaml.MappingNode:
		fields, open := fieldsOf(t)
		s.compareKeys(n, func(key string) reflect.Type {
			if section, rest, dotted := strings.Cut(key, "."); dotted && fields[section] != nil {
				s.At(key).Faultf("the key is unknown; write it as a section, %s: {%s: …}", section, rest)
			} else if fields[key] == nil && !open {
				s.At(key).Faultf("the key is unknown; %s", Suggest(key, slices.Collect(maps.Keys(fields))))
			}
			return fields[key]
		})
	case kind == reflect.Map && n.Kind == yaml.MappingNode:
		s.compareKeys(n, func(string) reflect.Type { return t.Elem() })
	case kind == reflect.Slice && n.Kind == yaml.SequenceNode:
		for i := range n.Content {
			s.At(i).compare(t.Elem())
		}
	case kind == reflect.Interface:
	case s.node.Decode(reflect.New(t).Interface()) != nil, (kind == reflect.Int || kind == reflect.Int64) && cut(n):
		s.Faultf("%s stands where %s belongs", is(n), wanted(t))
	}
}

// cut reports whether a number has a fraction, which Go's decoder drops.
func cut(n *yaml.Node) bool {
	number, err := strconv.ParseFloat(n.Value, 64)
	return n.ShortTag() == "!!float" && err == nil && number != math.Trunc(number)
}

// compareKeys compares the values of a mapping with the types that typeOf has
// for their keys, nil for any.
func (s Section) compareKeys(n *yaml.Node, typeOf func(key string) reflect.Type) {
	seen := map[string]int{}
	for key, value := range pairs(n) {
		if key.Tag == mergeTag {
			for _, merged := range mergedBy(value) {
				s.compareKeys(resolve(merged), typeOf)
			}
			continue
		}
		child := s.At(key.Value)
		child.node = value
		if first := seen[key.Value]; first > 0 {
			child.line = key.Line
			child.Faultf("the key is there twice, first in line %d", first)
			continue
		}
		seen[key.Value] = key.Line
		if t := typeOf(key.Value); t != nil {
			child.compare(t)
		}
	}
}

// KeysOf are the keys that a struct has.
func KeysOf(v any) []string {
	fields, _ := fieldsOf(reflect.TypeOf(v))
	return slices.Collect(maps.Keys(fields))
}

// fieldsOf are the keys that a struct has, with their types. An open one takes
// any other key too.
func fieldsOf(t reflect.Type) (fields map[string]reflect.Type, open bool) {
	fields = map[string]reflect.Type{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-":
		case options == "inline" && f.Type.Kind() == reflect.Map:
			open = true
		case options == "inline":
			below, _ := fieldsOf(f.Type)
			maps.Copy(fields, below)
		default:
			fields[name] = f.Type
		}
	}
	return fields, open
}

// is says what stands in the file, and not what it says.
func is(n *yaml.Node) string {
	return cmp.Or(map[string]string{
		"!!seq": "a list", "!!map": "a section", "!!int": "a number", "!!float": "a number", "!!bool": "true or false",
	}[n.ShortTag()], "a text")
}

func wanted(t reflect.Type) string {
	if t == reflect.TypeFor[time.Duration]() {
		return "a duration such as 30s"
	}
	return cmp.Or(map[reflect.Kind]string{
		reflect.Struct: "a section", reflect.Map: "a section", reflect.Slice: "a list", reflect.Bool: "true or false", reflect.String: "a text",
	}[t.Kind()], "a whole number")
}
