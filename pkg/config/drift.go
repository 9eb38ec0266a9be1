package config

import (
	"cmp"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
)

// DriftMode says what is done about what has changed at a service behind the
// driver's back.
type DriftMode string

// The modes.
const (
	// DriftOff: nothing is checked. The default.
	DriftOff DriftMode = "off"
	// DriftReport: it is logged and counted.
	DriftReport DriftMode = "report"
	// DriftRepair: it is also brought back to what the journal says.
	DriftRepair DriftMode = "repair"
)

// unquoted is what YAML 1.1, which Helm reads, makes of an off without quotes.
const unquoted DriftMode = "false"

// Drift says how buckets, keys and contracts are compared with the journal.
type Drift struct {
	// Mode is for contracts whose terms say none; off by default.
	Mode DriftMode `yaml:"mode"`
	// Interval is the time in which everything is checked once; 1h by default.
	Interval time.Duration `yaml:"interval"`
	// CallsPerSecond bounds the calls that this takes at all services together; 20
	// by default.
	CallsPerSecond int `yaml:"callsPerSecond" jsonschema:"minimum=0,maximum=10000"`
}

func (d *Drift) setDefaults() {
	if d.Mode == "" || d.Mode == unquoted {
		d.Mode = DriftOff
	}
	d.Interval = cmp.Or(d.Interval, time.Hour)
	d.CallsPerSecond = cmp.Or(d.CallsPerSecond, 20)
}

func (d Drift) check(at settings.Section) {
	d.Mode.check(at.At("mode"))
	at.At("interval").Between(d.Interval, time.Second, 7*24*time.Hour)
	if d.CallsPerSecond < 1 || d.CallsPerSecond > 10_000 {
		at.At("callsPerSecond").Faultf("%d is not between 1 and 10000", d.CallsPerSecond)
	}
}

func (m DriftMode) check(at settings.Section) {
	if m != DriftOff && m != DriftReport && m != DriftRepair {
		at.Faultf("%q is none of off, report and repair", m)
	}
}

// DriftMode returns what is done for a contract. One that the file no longer
// has goes by the file's own mode.
func (c *Config) DriftMode(contract string) DriftMode {
	if terms, ok := c.Terms(contract); ok && terms.Drift != "" {
		return terms.Drift
	}
	return c.Drift.Mode
}
