package sanity

import "time"

// clock says when calls are given up. A test whose driver knows when it is in the
// midst of a call has the driver say it, for its verdict must not hang on how
// busy the machine is.
type clock interface {
	// GiveUp runs stop after a while, to give a call up in the midst.
	GiveUp(after time.Duration, stop func()) (undo func() bool)
	// Hang runs stop after a while, when a call counts as hung.
	Hang(after time.Duration, stop func()) (undo func() bool)
	// Gather is told that n callers begin together, and by leave that one is done.
	Gather(n int) (leave func())
}

type wallClock struct{}

// GiveUp runs stop when the time is over.
func (wallClock) GiveUp(after time.Duration, stop func()) (undo func() bool) {
	return time.AfterFunc(after, stop).Stop
}

// Hang runs stop when the time is over.
func (wallClock) Hang(after time.Duration, stop func()) (undo func() bool) {
	return time.AfterFunc(after, stop).Stop
}

// Gather has nothing to do.
func (wallClock) Gather(int) (leave func()) { return func() {} }
