package fault

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// Unanswered reports whether err is about a request to which nobody answered
// anything, as opposed to an answer that asks for patience.
func Unanswered(err error) bool {
	var transport *url.Error // what net/http returns when there is no response
	return errors.As(err, &transport) || errors.Is(err, context.DeadlineExceeded)
}

// Unconnected reports whether err is about a connection that could not be made, or
// broke, as opposed to an answer that takes its time.
func Unconnected(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	var timeout interface{ Timeout() bool }
	return Unanswered(err) && !(errors.As(err, &timeout) && timeout.Timeout())
}

// NoAnswer is a stable word for why a request got no answer. The text of the
// error itself names ports, which differ each time, and whole addresses.
func NoAnswer(err error) string {
	var errno syscall.Errno
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.As(err, &dns):
		return "the name " + dns.Name + " cannot be resolved"
	case errors.As(err, &errno):
		return errno.Error()
	case strings.Contains(err.Error(), "EOF"):
		return "connection closed"
	case strings.Contains(err.Error(), "x509") || strings.Contains(err.Error(), "tls: "):
		return "its TLS certificate cannot be verified"
	}
	return "no connection"
}
