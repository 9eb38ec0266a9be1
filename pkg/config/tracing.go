package config

import (
	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// Tracing is where traces of calls go.
type Tracing struct {
	// Endpoint is an OpenTelemetry collector that takes OTLP over HTTP:
	// http://collector:4318/v1/traces, for example.
	Endpoint string `yaml:"endpoint" jsonschema:"required"`
	// Ratio is the part of the calls that is traced, from 0 to 1; 1 by default.
	Ratio *float64 `yaml:"ratio,omitempty" jsonschema:"minimum=0,maximum=1"`
	// Connection is how the collector is reached.
	Connection transport.Config `yaml:"connection,omitempty"`
}

func (t Tracing) check(at settings.Section) {
	at.At("endpoint").URL(t.Endpoint)
	if r := *t.Ratio; !(r >= 0 && r <= 1) { // nor not a number
		at.At("ratio").Faultf("%v is not between 0 and 1", r)
	}
	checkConnection(at.At("connection"), t.Connection)
}
