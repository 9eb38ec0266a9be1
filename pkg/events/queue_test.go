package events

import (
	"testing"
	"time"
)

// What was dropped because too much waited is told when it happens again.
func TestDropped(t *testing.T) {
	t.Parallel()
	teller := &Teller{objects: map[string]versioned{"v1alpha1": {}}, queue: make(chan Failure, 1), told: map[Failure]time.Time{}}
	const id = "-2f1a6b1e-0a55-4d10-9a35-1b9a2f1c7a01"
	first, second := Failure{Version: "v1alpha1", Bucket: "a" + id}, Failure{Version: "v1alpha1", Bucket: "b" + id}
	for _, f := range []Failure{first, second} {
		teller.Tell(f)
	}
	if got := <-teller.queue; got != first {
		t.Fatalf("told of %v", got)
	}
	teller.Tell(second)
	select {
	case got := <-teller.queue:
		if got != second {
			t.Errorf("told of %v", got)
		}
	default:
		t.Error("what was dropped is not told when it happens again")
	}
}
