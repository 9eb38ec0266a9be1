//go:build race

package integration

// raceEnabled: the driver's own process is built with the race detector too.
const raceEnabled = true
