package sanity

import (
	"context"
	"slices"
	"strings"
)

// Version is a version of the COSI API.
type Version string

// The versions that sidecars speak.
const (
	V1Alpha1 Version = "v1alpha1"
	V1Alpha2 Version = "v1alpha2"
)

// Versions are all versions, the oldest first.
func Versions() []Version { return []Version{V1Alpha1, V1Alpha2} }

// Level says how much a sentence binds a driver.
type Level string

// The levels, in RFC 2119's words where the specification has them.
const (
	// Must is a MUST or SHALL of the specification.
	Must Level = "MUST"
	// Should is a SHOULD or RECOMMENDED. What fails it is a warning.
	Should Level = "SHOULD"
	// SidecarSafety is what the specification leaves open, or gets wrong, and
	// what makes a released sidecar crash, hang or leak.
	SidecarSafety Level = "sidecar-safety"
)

// Rule is what a check stands on in one version.
type Rule struct {
	Version Version `json:"-"`
	Level   Level   `json:"level"`
	// Sentence is quoted where Source is a text of the specification, and
	// describes where it is a sidecar's code.
	Sentence string `json:"sentence"`
	// Source is the file and line.
	Source string `json:"source"`
}

// Check is one thing that is looked at.
type Check struct {
	// Number is the check's, for ever: a letter for the group and two digits.
	Number string
	// Name says what a driver does that passes.
	Name string
	// Rules are the versions it runs in.
	Rules []Rule

	// run is the check; overall one that judges all calls of a run.
	run     func(context.Context, *env) error
	overall func(context.Context, *session) error
}

func (c Check) rule(v Version) (Rule, bool) {
	i := slices.IndexFunc(c.Rules, func(r Rule) bool { return r.Version == v })
	if i < 0 {
		return Rule{}, false
	}
	return c.Rules[i], true
}

// is reports whether a selector means the check: its number, its group's
// letter or its name.
func (c Check) is(selector string) bool {
	return strings.EqualFold(selector, c.Number) || strings.EqualFold(selector, c.Number[:1]) || strings.EqualFold(selector, c.Name)
}
