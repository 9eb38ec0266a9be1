// Package fault is the driver's one vocabulary for what went wrong.
//
// Every client of a storage service classifies its SDK's codes into a [Kind],
// in one table beside that client. Everything above speaks kinds only, and the
// gRPC server turns them into codes, in one table per COSI version. A Kind
// answers the single question its reader has: will the same call succeed
// later, and who has to act first?
//
// A message is shown to the user in events and status fields. It names the
// thing, the cause and the cure; it is the same for the same fault each time
// (the sidecars turn each distinct text into an event), so it carries no
// request id, no time and no secret.
package fault

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Kind classifies a fault. The zero Kind is not a fault.
type Kind string

// The closed set of kinds.
const (
	// InvalidArgument: the request itself is wrong; repeating it cannot help.
	InvalidArgument Kind = "InvalidArgument"
	// NotFound: the thing the request names does not exist.
	NotFound Kind = "NotFound"
	// Mismatch: the thing exists and is ours, but was made with other parameters.
	Mismatch Kind = "Mismatch"
	// Conflict: the thing exists and is not ours; it is neither adopted nor changed.
	Conflict Kind = "Conflict"
	// FailedPrecondition: a person has to change the state of the system first.
	FailedPrecondition Kind = "FailedPrecondition"
	// LimitExceeded: a quota or key limit is reached.
	LimitExceeded Kind = "LimitExceeded"
	// PermissionDenied: the storage service refused the driver's own credentials.
	PermissionDenied Kind = "PermissionDenied"
	// Unsupported: the service has no such feature.
	Unsupported Kind = "Unsupported"
	// OutOfRange: several at once, of what the service can do for one only.
	OutOfRange Kind = "OutOfRange"
	// Pending: under way at the service; ask again.
	Pending Kind = "Pending"
	// RateLimited: the service asks for fewer calls.
	RateLimited Kind = "RateLimited"
	// Unavailable: no answer, so the outcome is unknown until it is read again.
	Unavailable Kind = "Unavailable"
	// Canceled: the caller gave the call up.
	Canceled Kind = "Canceled"
	// Internal: a defect of the driver or an answer it cannot make sense of.
	Internal Kind = "Internal"
)

// Error is a fault of one Kind with a text for the user.
type Error struct {
	// Kind says who has to act.
	Kind Kind
	// RetryAfter is how long the service asked to wait; zero if it did not say.
	RetryAfter time.Duration
	// Final says that the same call would fail alike at once: it is not repeated
	// before its caller repeats it.
	Final bool

	message string
	cause   error
}

// New returns a fault with a formatted message.
func New(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, message: Line(fmt.Sprintf(format, args...))}
}

// Wrap returns a fault that keeps cause for [errors.Is] and [errors.As]. The
// cause is not part of the message: an SDK's own text carries request ids.
func Wrap(kind Kind, cause error, format string, args ...any) *Error {
	return &Error{Kind: kind, message: Line(fmt.Sprintf(format, args...)), cause: cause}
}

// Error returns the text for the user.
func (e *Error) Error() string { return e.message }

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.cause }

// RetryableError tells the AWS SDK what [Error.Final] tells pkg/retry.
func (e *Error) RetryableError() bool { return !e.Final }

// In puts the place a fault was met before its text and keeps its kind, which
// for an error that is no fault is derived as [KindOf] does.
func In(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	out := Wrap(KindOf(err), err, "%s: %s", fmt.Sprintf(format, args...), err)
	if f, ok := errors.AsType[*Error](err); ok {
		out.RetryAfter, out.Final = f.RetryAfter, f.Final
	}
	return out
}

// As keeps the text of err and gives it another kind: what is a bad argument
// to a service may be a fault of the platform to the caller.
func As(kind Kind, err error) error {
	return Wrap(kind, err, "%s", err)
}

// KindOf returns the kind of err: "" for nil, Unavailable for a deadline that
// passed, Canceled for a call given up, Internal for any other error that is
// no fault.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var f *Error
	switch {
	case errors.As(err, &f):
		return f.Kind
	case errors.Is(err, context.DeadlineExceeded):
		return Unavailable
	case errors.Is(err, context.Canceled):
		return Canceled
	}
	return Internal
}

// Is reports whether err is a fault of the given kind.
func Is(err error, kind Kind) bool { return KindOf(err) == kind }

// Passing reports whether a fault says nothing of the thing that was asked for: what
// answers for it is away for now.
func Passing(err error) bool {
	switch KindOf(err) {
	case Unavailable, RateLimited, Pending, Canceled:
		return true
	}
	return false
}

// IgnoreNotFound is err, or nil if its kind is NotFound: for what removes a thing
// that may be gone.
func IgnoreNotFound(err error) error {
	if Is(err, NotFound) {
		return nil
	}
	return err
}
