package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
)

// Unanswered reports whether err is about a request that got no answer
// at all, as opposed to an answer that asks for patience or cannot be used.
func Unanswered(err error) bool {
	if transport, ok := errors.AsType[*url.Error](err); ok {
		var refused *Error
		return !errors.As(transport.Err, &refused)
	}
	return errors.Is(err, context.DeadlineExceeded)
}

// Unconnected reports whether err is about a connection that could not be made, or
// broke, as opposed to an answer that takes its time.
func Unconnected(err error) bool {
	var op *net.OpError
	var timeout interface{ Timeout() bool }
	return Unanswered(err) && (errors.As(err, &op) && op.Op == "dial" || !(errors.As(err, &timeout) && timeout.Timeout()))
}

// NoAnswer is the fault of a call for which net/http returned err in place of an
// answer. A fault below it is the transport's own: it says what became of the
// call, and its kind stays. Any other error is told by a stable word, because
// its text names ports, which differ each time, and whole addresses.
func NoAnswer(err error, call, service string) *Error {
	if call != "" {
		call += " "
	}
	var refused *Error
	switch {
	case errors.As(err, &refused):
		out := Wrap(refused.Kind, err, "the call %sto %s %s", call, service, refused)
		out.Final = refused.Final
		return out
	case errors.Is(err, context.Canceled):
		return Wrap(Canceled, err, "the call %sto %s was given up", call, service)
	}
	return Wrap(Unavailable, err, "%s", strings.TrimSpace(fmt.Sprintf("%s does not answer %s", service, call))+" ("+Silence(err)+")")
}

// Silence is a stable word for why there is no answer.
func Silence(err error) string {
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
	case strings.Contains(err.Error(), "response headers exceeded"):
		return "its answer is too long"
	case strings.Contains(err.Error(), "EOF"):
		return "connection closed"
	case strings.Contains(err.Error(), "x509") || strings.Contains(err.Error(), "tls: "):
		return "its TLS certificate cannot be verified"
	}
	return "no connection"
}
