// Package secret holds text that must not be printed.
//
// A [String] is handed from the file it was read from to the one place that
// needs the text, and every other way out — fmt with any verb, JSON, YAML —
// prints a mark instead. [String.Reveal] is the only way to the text, so a
// search for its callers lists every place a secret leaves.
package secret

import (
	"fmt"
	"io"
)

const redacted = "[redacted]"

// String is a secret. The zero String is empty.
type String struct{ text string }

// New wraps a secret text.
func New(text string) String { return String{text: text} }

// Reveal returns the text.
func (s String) Reveal() string { return s.text }

// IsZero reports whether the secret is empty.
func (s String) IsZero() bool { return s.text == "" }

// Format prints the mark, whatever the verb: %x or %q would give away as much as %s.
func (s String) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// String returns the mark.
func (s String) String() string { return redacted }

// MarshalText returns the mark, for JSON, YAML and every other encoder.
func (s String) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// KeyPair is an access key of a storage service.
type KeyPair struct {
	// AccessKeyID names the key. It is no secret.
	AccessKeyID string
	// SecretAccessKey signs requests.
	SecretAccessKey String
	// SessionToken goes with a temporary key; any other has none.
	SessionToken String
}
