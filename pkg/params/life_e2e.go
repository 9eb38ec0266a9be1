//go:build e2e

package params

// lifeUnits have seconds too, in the driver that test/e2e builds to see keys renewed.
const lifeUnits = "hds"
