// Package policy reads, judges, edits and writes policy documents of AWS's form.
//
// A document at a service belongs to the one who wrote it. The driver finds its own
// statements by their Sid, and everything else — other statements, members it has
// never heard of, numbers to the last digit — is written back as it was read
// ([Document]). What a class asks for is held to the grammar ([Canonical]). Whether
// either opens a bucket to the public is judged at one place ([WithoutPublic]).
//
// What the services that speak this form do differently is data: a [Dialect].
package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Document is a policy.
type Document struct {
	members    map[string]json.RawMessage
	statements []json.RawMessage
}

// Parse reads a document; "" is one without statements. Where a service allows
// a lone statement in the place of a list, it becomes a list of one.
func Parse(text string) (*Document, error) {
	d := &Document{members: map[string]json.RawMessage{}}
	if text == "" {
		return d, nil
	}
	if err := json.Unmarshal([]byte(text), &d.members); err != nil {
		return nil, fmt.Errorf("a policy that is no JSON object: %w", err)
	}
	if d.members == nil {
		return nil, errors.New("a policy that is no JSON object")
	}
	raw := bytes.TrimSpace(d.members["Statement"])
	switch {
	case len(raw) == 0:
	case raw[0] == '{':
		d.statements = []json.RawMessage{raw}
	default:
		if err := json.Unmarshal(raw, &d.statements); err != nil {
			return nil, fmt.Errorf("a policy whose Statement is no list: %w", err)
		}
	}
	for _, s := range d.statements {
		if s = bytes.TrimSpace(s); len(s) == 0 || s[0] != '{' {
			return nil, errors.New("a policy with a statement that is no object")
		}
	}
	return d, nil
}

// sidOf is a statement's Sid, "" for none.
func sidOf(statement json.RawMessage) string {
	var s map[string]json.RawMessage  // the rest need not be read
	_ = json.Unmarshal(statement, &s) // it was an object when it was read
	var sid string
	_ = json.Unmarshal(s["Sid"], &sid)
	return sid
}

// Set writes statements, each in the place of the one with its Sid or at the
// end. A document without a version gets the one given, if it is not "".
func (d *Document) Set(version string, statements ...Statement) {
	if _, ok := d.members["Version"]; !ok && version != "" {
		d.members["Version"] = encode(version)
	}
	for _, s := range statements {
		d.put(s.Sid, encode(s))
	}
}

func (d *Document) put(sid string, statement json.RawMessage) {
	if i := slices.IndexFunc(d.statements, func(have json.RawMessage) bool { return sidOf(have) == sid }); i >= 0 {
		d.statements[i] = statement
		return
	}
	d.statements = append(d.statements, statement)
}

// Remove takes out the statements whose Sid is given, and reports whether there
// were any.
func (d *Document) Remove(sid func(string) bool) bool {
	before := len(d.statements)
	d.statements = slices.DeleteFunc(d.statements, func(s json.RawMessage) bool { return sid(sidOf(s)) })
	return len(d.statements) != before
}

// Take adds the statements of another document whose Sid is given.
func (d *Document) Take(other *Document, sid func(string) bool) {
	for _, s := range other.statements {
		if id := sidOf(s); sid(id) {
			d.put(id, s)
		}
	}
}

// Has reports whether there is a statement with this Sid that says the same.
func (d *Document) Has(want Statement) bool {
	text := encode(want)
	return slices.ContainsFunc(d.statements, func(s json.RawMessage) bool { return sidOf(s) == want.Sid && equal(s, text) })
}

// Statements are those whose Sid is given, as far as the driver writes any.
func (d *Document) Statements(sid func(string) bool) []Statement {
	var out []Statement
	for _, raw := range d.statements {
		var s Statement
		if sid(sidOf(raw)) && json.Unmarshal(encode(listed(raw)), &s) == nil {
			out = append(out, s)
		}
	}
	return out
}

// listed writes each text of a statement that may be a list as a list.
func listed(raw json.RawMessage) any {
	var members map[string]any
	_ = json.Unmarshal(raw, &members) // it was an object when it was read
	list := func(v any) any {
		if text, ok := v.(string); ok {
			return []any{text}
		}
		return v
	}
	for _, name := range []string{"Action", "Resource"} {
		if v, ok := members[name]; ok {
			members[name] = list(v)
		}
	}
	if principal, ok := members["Principal"].(map[string]any); ok {
		for k := range principal {
			principal[k] = list(principal[k])
		}
	}
	if conditions, ok := members["Condition"].(map[string]any); ok {
		for _, c := range conditions {
			if keys, ok := c.(map[string]any); ok {
				for k := range keys {
					keys[k] = list(keys[k])
				}
			}
		}
	}
	return members
}

// HasExactly reports whether the statements whose Sid is given are these.
func (d *Document) HasExactly(sid func(string) bool, want []Statement) bool {
	n := 0
	for _, s := range d.statements {
		if sid(sidOf(s)) {
			n++
		}
	}
	return n == len(want) && !slices.ContainsFunc(want, func(s Statement) bool { return !d.Has(s) })
}

// equal compares JSON, where a text and a list of that one text are the same:
// services write the one for the other.
func equal(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return bytes.Equal(encode(plain(x)), encode(plain(y)))
}

func plain(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		slices.SortFunc(out, func(a, b any) int { return bytes.Compare(encode(a), encode(b)) })
		if len(out) == 1 {
			return out[0]
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = plain(v[k])
		}
		return out
	}
	return v
}

// Same reports whether two texts are documents that say the same; "" is one
// that says nothing.
func Same(a, b string) bool {
	x, err := Parse(a)
	if err != nil {
		return false
	}
	y, err := Parse(b)
	return err == nil && equal(json.RawMessage(x.String()), json.RawMessage(y.String()))
}

// Empty reports whether there is no statement.
func (d *Document) Empty() bool { return len(d.statements) == 0 }

// String returns the document as JSON.
func (d *Document) String() string {
	members := make(map[string]json.RawMessage, len(d.members)+1)
	maps.Copy(members, d.members)
	members["Statement"] = encode(d.statements)
	return string(encode(members))
}

// Escaped is the document for the IAM API. radosgw 16 decodes it once more than
// it was encoded, so what that would change is written as JSON can write it too.
func (d *Document) Escaped() string {
	return strings.NewReplacer("+", `\u002b`, "%", `\u0025`).Replace(d.String())
}

// encode is JSON without escapes for HTML, which count against size limits.
func encode(v any) json.RawMessage {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // data that was read from JSON, or plain structs
	return bytes.TrimSpace(out.Bytes())
}

// Statement is a statement that the driver writes.
type Statement struct {
	Sid       string              `json:"Sid,omitempty"`
	Effect    string              `json:"Effect"`
	Principal map[string][]string `json:"Principal,omitempty"`
	Action    []string            `json:"Action"`
	Resource  []string            `json:"Resource,omitempty"`
	// NotResource, in the place of Resource, is all but these.
	NotResource []string                       `json:"NotResource,omitempty"`
	Condition   map[string]map[string][]string `json:"Condition,omitempty"`
}

// The Sids of the driver's statements. AWS allows letters and digits only.
const (
	ownSid   = "ContractCosi"
	ownerSid = ownSid + "Owner"
)

// Own reports whether a statement with this Sid is the driver's.
func Own(sid string) bool { return strings.HasPrefix(sid, ownSid) }

// SidOf begins the Sids of statements that go together, named by any text.
func SidOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return ownSid + hex.EncodeToString(sum[:6])
}
