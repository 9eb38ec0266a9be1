//go:build !e2e

package params

// lifeUnits are those in which classes say how long keys live: hours and days.
const lifeUnits = "hd"
