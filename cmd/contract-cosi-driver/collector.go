package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// headroom is how far the heap may grow before the collector runs, in bytes. A part
// of what is live, which is the collector's own rule, would be too little for a heap
// of a few MiB, with dozens of runs a second under load, and too much for that of a
// large journal.
const headroom = 12 << 20

// The bounds of that part, in percent.
const (
	leastGrowth = 30
	mostGrowth  = 300
)

// paceCollector sets how far the heap may grow, now and after each collection.
func paceCollector() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(growth(live[0].Value.Uint64()))
	// A new object that nothing refers to is gone with the next collection.
	runtime.AddCleanup(&struct{ next *byte }{}, func(struct{}) { paceCollector() }, struct{}{})
}

// growth is how far a heap may grow, in percent of the bytes of it that are live.
func growth(live uint64) int {
	return int(min(max(headroom*100/max(live, 1), leastGrowth), mostGrowth))
}
