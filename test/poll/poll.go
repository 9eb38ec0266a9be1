// Package poll waits for what another process or goroutine brings about without
// telling. It is the one place where a test sleeps, and no verdict hangs
// on how long that takes.
package poll

import (
	"testing"
	"time"
)

const (
	interval = 2 * time.Millisecond
	patience = 30 * time.Second // of a busy machine
)

// Until asks again and again whether something is so, and fails the test where
// it stays otherwise.
func Until(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(interval) { //nolint:forbidigo // there is no event
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}
