package contracts

import (
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"
)

// A name that the driver makes up is at most 40 characters long: it fits in a label
// beside anything, and in ids beside a backend's name. It begins with a part that
// people can read, and ends with a hash that makes it the only one: 80 bits, so that a
// tenant who looks for another's finds none.
const (
	readable = 22
	between  = "--" // which no one writes before a word of 16 letters
	hashed   = 16
)

// The admission policies have the same pattern.
var reserved = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*--[a-z2-7]{16}$`)

// Reserved reports whether a contract's name is of the form that the driver gives to
// those that were ordered. No configuration can hand it out.
func Reserved(name string) bool {
	return len(name) <= readable+len(between)+hashed && reserved.MatchString(name)
}

// nameOf returns the name for what the parts identify together.
func nameOf(text string, parts ...string) string {
	text = strings.ReplaceAll(text, ".", "-")
	return strings.TrimRight(text[:min(len(text), readable)], "-") + between + hashOf(parts...)
}

// classNameOf is the name of a class that is made for a Contract, by namespace/name. It
// is the same in every cluster, so that claims can be written before the contract is
// there.
func classNameOf(key, template string) string { return nameOf(template, key, template) }

func hashOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:hashed*5/8]))
}
