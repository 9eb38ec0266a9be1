package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// What a policy may have (AWS IAM User Guide, "Grammar of the IAM JSON policy
// language").
var (
	documentMembers  = []string{"Version", "Id", "Statement"}
	statementMembers = []string{"Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition"}
)

// Canonical checks that text is a bucket policy which all services read alike,
// and returns it with the members of its objects sorted. Which actions, resources
// and principals there are is for the service to say.
//
// Some services read a member in any case, some take the first of two and some
// the last, and some pass over what they do not know. So a policy has the members
// of the grammar only, exactly as they are spelt there, and no object has two that
// are the same without case.
func Canonical(text string) (string, error) {
	if !utf8.ValidString(text) {
		return "", errors.New("not UTF-8")
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var canonical map[string]any
	if err := decoder.Decode(&canonical); err != nil {
		return "", fmt.Errorf("not a JSON object: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return "", errors.New("there is text after the JSON object")
	}
	doc, err := object("the policy", json.RawMessage(text), documentMembers)
	if err != nil {
		return "", err
	}
	for _, name := range []string{"Version", "Id"} {
		if v, ok := doc[name]; ok && v[0] != '"' {
			return "", fmt.Errorf("%s is not a text", name)
		}
	}
	statements := items(doc["Statement"])
	if len(statements) == 0 {
		return "", errors.New("the policy has no Statement")
	}
	for i, s := range statements {
		if err := checkStatement(fmt.Sprintf("Statement[%d]", i), s); err != nil {
			return "", err
		}
	}
	out, err := json.Marshal(canonical) // which sorts the members of objects
	return string(out), err
}

func checkStatement(at string, raw json.RawMessage) error {
	s, err := object(at, raw, statementMembers)
	if err != nil {
		return err
	}
	if e := string(s["Effect"]); e != `"Allow"` && e != `"Deny"` {
		return fmt.Errorf("%s.Effect is neither Allow nor Deny", at)
	}
	if sid, ok := s["Sid"]; ok && sid[0] != '"' {
		return fmt.Errorf("%s.Sid is not a text", at)
	}
	for _, either := range [][2]string{{"Principal", "NotPrincipal"}, {"Action", "NotAction"}, {"Resource", "NotResource"}} {
		name := either[0]
		if _, ok := s[name]; !ok {
			name = either[1]
		} else if _, both := s[either[1]]; both {
			return fmt.Errorf("%s has both %s and %s", at, either[0], either[1])
		}
		value, ok := s[name]
		if !ok {
			return fmt.Errorf("%s has no %s", at, either[0])
		}
		named := map[string]json.RawMessage{"": value}
		if value[0] == '{' && either[0] == "Principal" {
			if named, err = object(at+"."+name, value, nil); err != nil {
				return err
			}
		}
		for _, list := range named {
			ok = ok && texts(list) != nil
		}
		if !ok || len(named) == 0 {
			return fmt.Errorf("%s.%s is neither a text nor a list of texts", at, name)
		}
	}
	condition, ok := s["Condition"]
	if !ok {
		return nil
	}
	operators, err := object(at+".Condition", condition, nil)
	for _, operator := range slices.Sorted(maps.Keys(operators)) {
		if _, err := object(fmt.Sprintf("%s.Condition[%.60q]", at, operator), operators[operator], nil); err != nil {
			return err
		}
	}
	return err
}

// object are the members of a JSON object by name. Those that it may have are
// known; nil is any.
func object(at string, raw json.RawMessage, known []string) (map[string]json.RawMessage, error) {
	list, ok := members(raw)
	if !ok {
		return nil, fmt.Errorf("%s is not a JSON object", at)
	}
	out := map[string]json.RawMessage{}
	for i, m := range list {
		if known != nil && !slices.Contains(known, m.name) {
			return nil, fmt.Errorf("%s has %.60q; it may have %s, in this case", at, m.name, strings.Join(known, ", "))
		}
		if slices.ContainsFunc(list[:i], m.is) {
			return nil, fmt.Errorf("%s has %.60q twice, by its name without case", at, m.name)
		}
		out[m.name] = m.value
	}
	return out, nil
}

// member is one of a JSON object. Its value has no white space around it.
type member struct {
	name  string
	value json.RawMessage
}

// is reports whether a reader without case takes the one for the other.
func (m member) is(other member) bool { return strings.EqualFold(m.name, other.name) }

// members are all that an object has, in their order, also those of one name;
// false if raw is no object. Escapes in names are decoded.
func members(raw json.RawMessage) (out []member, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	for decoder.More() {
		var m member
		name, err := decoder.Token()
		if err == nil {
			err = decoder.Decode(&m.value)
		}
		if m.name, ok = name.(string); err != nil || !ok {
			return nil, false
		}
		out = append(out, m)
	}
	return out, true
}

// items are those of a list, or a value that stands without one.
func items(raw json.RawMessage) []json.RawMessage {
	var out []json.RawMessage
	if len(raw) > 0 && raw[0] != '[' {
		return []json.RawMessage{raw}
	}
	_ = json.Unmarshal(raw, &out) // a part of what was read, or nothing
	return out
}

// texts are a text or a list of texts; nil is anything else, and an empty list.
func texts(raw json.RawMessage) []string {
	var out []string
	for _, item := range items(raw) {
		var text string
		if item[0] != '"' || json.Unmarshal(item, &text) != nil {
			return nil
		}
		out = append(out, text)
	}
	return out
}
