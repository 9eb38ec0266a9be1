package fault

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
)

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
