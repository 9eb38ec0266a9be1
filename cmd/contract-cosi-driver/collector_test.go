package main

import "testing"

// A heap grows by the same bytes between collections, within bounds.
func TestGrowth(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{0: mostGrowth, 1 << 20: mostGrowth, headroom / 2: 200, headroom: 100, 2 * headroom: 50, 1 << 40: leastGrowth} {
		if got := growth(live); got != want {
			t.Errorf("of %d bytes: %d %%, want %d %%", live, got, want)
		}
	}
}
