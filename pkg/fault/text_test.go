package fault_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

func TestSaid(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain":                              "plain",
		"two\r\n lines\tand a tab":           "two lines and a tab",
		"\x1b[31mred\x1b[0m":                 "[31mred [0m",
		"\x00\x07":                           "",
		"a\u202egnp.exe\u2066\u200b\ufeff":   "agnp.exe",
		"next\u2028line\u0085":               "next line",
		"bad \xff\xfe":                       "bad \ufffd",
		"Überfüllt 満杯":                       "Überfüllt 満杯",
		"the token is s3cr3t, s3cr3t":        "the token is [redacted], [redacted]",
		"the token is s3\u200bcr\u202e3t":    "the token is [redacted]",
		strings.Repeat("é", 201):             strings.Repeat("é", 200) + "…",
		strings.Repeat("x", 197) + " s3cr3t": strings.Repeat("x", 197) + " [r…",
	} {
		if got := fault.Said(text, "", "s3cr3t"); strings.ReplaceAll(got, "\ufffd\ufffd", "\ufffd") != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A message is an event's text and a gRPC header: nothing that is put into one
// makes it long, or more than a line.
func TestMessagesAreOneShortLine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("\x1b[2J\n満", 1<<20)
	for _, err := range []error{
		fault.New(fault.Internal, "the service says %s", long), fault.Wrap(fault.Internal, errors.New("x"), "%s", long),
		fault.In(errors.New(long), "bucket"), fault.As(fault.Internal, errors.New(long)),
	} {
		if text := err.Error(); utf8.RuneCountInString(text) > 8001 || strings.ContainsAny(text, "\x1b\n") {
			t.Errorf("%d bytes: %.80q", len(text), text)
		}
	}
}

func FuzzSaid(f *testing.F) {
	f.Add("a\x1b[31m\u202e s3cr3t", "s3cr3t")
	f.Add("s3\u200bcr3t\xff", "s3cr3t")
	f.Fuzz(func(t *testing.T, text, secret string) {
		got := fault.Said(text, secret)
		if utf8.RuneCountInString(got) > 201 || strings.ContainsFunc(got, func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }) {
			t.Errorf("%q", got)
		}
		if len(secret) > len("[redacted]…") && strings.Contains(got, secret) {
			t.Errorf("%q tells %q", got, secret)
		}
	})
}
