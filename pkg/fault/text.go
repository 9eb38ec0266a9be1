package fault

import (
	"strings"
	"unicode"
)

// How long a message can be, and what a service said in it, in characters: gRPC
// and Kubernetes carry no text of any length.
const (
	maxMessage = 8000
	maxSaid    = 200
)

// Said is a text that a service gave, fit for a message: short, on one line and
// without the secrets that the caller shares with the service.
func Said(text string, secrets ...string) string {
	text = strings.Join(strings.Fields(line(text, len(text))), " ")
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "[redacted]")
		}
	}
	return line(text, maxSaid)
}

// Line is a text as a message holds it: on one line, with an end.
func Line(text string) string { return line(text, maxMessage) }

// line keeps a text to one line of at most so many characters that a terminal
// shows as they are: no control characters, and none that change the order or
// the look of others.
func line(text string, most int) string {
	n := 0
	return strings.Map(func(r rune) rune {
		switch n++; {
		case n == most+1:
			return '…'
		case n > most+1:
			return -1
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r) || unicode.IsControl(r):
			return ' '
		}
		n--
		return -1
	}, text)
}
