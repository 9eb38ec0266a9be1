package params

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
)

// Check is what can be said about a value as data. The driver reads it here,
// and the API server in the admission policies that are written from it, so a
// class that the one refuses, the other refuses with the same text. What data
// cannot say, only the driver checks.
type Check struct {
	// OneOf are all the values there are; empty if any other rule decides.
	OneOf []string
	// List says that the value is a list, separated by commas. White space
	// around an item does not count.
	List bool
	// MaxBytes bounds the value, 0 does not; MaxItems bounds a list, every one.
	MaxBytes, MaxItems int
	// UniqueKeys says that the items are key=value and that no key may come twice.
	UniqueKeys bool
	// Rules are what the value, or each item of a list, has to meet. Of one
	// item, the first that it breaks is reported.
	Rules []Rule
}

// Rule is one condition of a [Check].
type Rule struct {
	// Pattern is a regular expression (RE2, as Go and CEL have it) for the whole text.
	Pattern string
	// Not turns the pattern around: it may not match.
	Not bool
	// Address stands in place of a pattern: an IP address or a CIDR block.
	Address bool
	// Fault is what a message says after the text that breaks the rule.
	Fault string

	compiled func() *regexp.Regexp // when it is first asked
}

// Expression is the pattern as a regular expression that matches whole texts,
// with line ends or without.
func (r Rule) Expression() string { return `\A(?s:` + r.Pattern + `)\z` }

func (r Rule) broken(text string) bool {
	if r.Address {
		_, ok := policy.ParseBlock(text)
		return !ok
	}
	return r.compiled().MatchString(text) == r.Not
}

// faults are the texts of all that is wrong with a value.
func (c Check) faults(value string) []string {
	if c.MaxBytes > 0 && len(value) > c.MaxBytes {
		return []string{fmt.Sprintf("%d bytes; at most %d are allowed", len(value), c.MaxBytes)}
	}
	if len(c.OneOf) > 0 && !slices.Contains(c.OneOf, value) {
		return []string{quote(value) + " is not one of " + strings.Join(c.OneOf, ", ")}
	}
	texts := []string{value}
	if c.List {
		texts = items(value)
	}
	if c.MaxItems > 0 && len(texts) > c.MaxItems {
		return []string{fmt.Sprintf("more than %d items", c.MaxItems)}
	}
	var faults []string
	for _, text := range texts {
		for _, r := range c.Rules {
			if r.broken(text) {
				faults = append(faults, quote(text)+" "+r.Fault)
				break
			}
		}
	}
	if c.UniqueKeys && len(faults) == 0 && !unique(texts) {
		faults = append(faults, "a key is given twice")
	}
	return faults
}

func unique(pairs []string) bool {
	seen := map[string]bool{}
	for _, pair := range pairs {
		key, _, _ := strings.Cut(pair, "=")
		if seen[key] {
			return false
		}
		seen[key] = true
	}
	return true
}

func items(value string) []string {
	list := strings.Split(value, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return list
}
