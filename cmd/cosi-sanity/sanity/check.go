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
	// SetUp is what the suite needs before it can judge.
	SetUp Level = "set-up"
)

// Rule is what a check stands on in one version.
type Rule struct {
	For   Version `json:"-"`
	Level Level   `json:"level"`
	// Sentence is quoted where Source is a text of the specification, and
	// describes where it is a sidecar's code.
	Sentence string `json:"sentence"`
	// Source is the file and line.
	Source string `json:"source"`
}

// Check is one thing that is looked at.
type Check struct {
	// Number is the check's and stays: a letter for the group and two digits.
	Number string
	// Name says what a driver does that passes.
	Name string
	// Rules are the versions it runs in.
	Rules []Rule
	// Since is the first generation of v1alpha2 that has what is checked; "" is
	// all of them.
	Since Generation

	// needs are the checks that have to pass first, by their numbers: what they
	// judge is not this one's to judge. "2:B07" is needed in v1alpha2 only.
	needs string
	// run is the check; overall one that judges all calls of a run.
	run     func(context.Context, *env) error
	overall func(context.Context, *session) error
}

// Groups are what the letters of the checks stand for, in their order.
func Groups() [][2]string {
	return [][2]string{
		{"S", "set-up: what the suite needs before it can judge"},
		{"I", "identity: who the driver is"},
		{"B", "buckets"},
		{"A", "access"},
		{"R", "revocation"},
		{"K", "keys: what an issued key can do"},
		{"F", "fields that are missing, unknown, over-long or foreign"},
		{"C", "callers at once"},
		{"T", "calls that are given up, and restarts"},
		{"G", "general: all calls of the run"},
	}
}

func (c Check) rule(v Version) (Rule, bool) {
	i := slices.IndexFunc(c.Rules, func(r Rule) bool { return r.For == v })
	if i < 0 {
		return Rule{}, false
	}
	return c.Rules[i], true
}

// needed are the numbers of the checks that have to pass first.
func (c Check) needed(v Version) []string {
	var out []string
	for number := range strings.FieldsSeq(c.needs) {
		number, only := strings.CutPrefix(number, "2:")
		if !only || v == V1Alpha2 {
			out = append(out, number)
		}
	}
	return out
}

// is reports whether a selector means the check: its number, its group's
// letter or its name.
func (c Check) is(selector string) bool {
	return strings.EqualFold(selector, c.Number) || strings.EqualFold(selector, c.Number[:1]) || strings.EqualFold(selector, c.Name)
}
