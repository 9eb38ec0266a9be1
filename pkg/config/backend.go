package config

import (
	"cmp"
	"maps"
	"slices"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// Types are the types of backends, by name, each with what makes its settings.
type Types map[string]func() contract.Settings

// Backend is one storage service.
type Backend struct {
	// Name is the first part of every id; it can never change.
	Name string `yaml:"name" jsonschema:"required,pattern=^[a-z0-9]([a-z0-9-]*[a-z0-9])?$,maxLength=63"`
	// Type says how to speak to the service. The section of that name configures
	// it.
	Type string `yaml:"type" jsonschema:"required"`
	// Connection says how the service is reached, whatever its type. Its files are
	// read again when they change.
	Connection transport.Config `yaml:"connection,omitempty"`
	// DeletionsPerSecond bounds how many objects a second are deleted at the
	// service while buckets are emptied, all buckets together; 20000 by default.
	DeletionsPerSecond int `yaml:"deletionsPerSecond" jsonschema:"minimum=0"`
	// Settings are the section that is named as the type.
	Settings contract.Settings `yaml:"-"`
	// Section is all that the file says beside the fields above, and after that
	// the settings, under the name of the type.
	Section map[string]any `yaml:",inline"`
}

// defaultDeletions is more than most services delete in a second, and bounds
// what the driver takes of those that delete more.
const defaultDeletions = 20_000

// load fills in what the file leaves out, and reads the section of the type.
func (b *Backend) load(from settings.Section, types Types) {
	b.DeletionsPerSecond = cmp.Or(b.DeletionsPerSecond, defaultDeletions)
	if b.DeletionsPerSecond < 0 {
		from.At("deletionsPerSecond").Faultf("%d is negative", b.DeletionsPerSecond)
	}
	if !cosi.IsLabel(b.Name) {
		from.At("name").Faultf("%q is not a DNS label of lower-case letters, digits and hyphens", b.Name)
	}
	checkConnection(from.At("connection"), b.Connection)

	known := slices.Collect(maps.Keys(types))
	for _, key := range slices.Sorted(maps.Keys(b.Section)) {
		switch {
		case types[key] == nil:
			from.At(key).Faultf("the key is unknown; %s", settings.Suggest(key, append(settings.KeysOf(*b), known...)))
		case types[b.Type] != nil && key != b.Type:
			from.At(key).Faultf("the backend is of type %s; take this section out, or change the type", b.Type)
		}
	}
	section := from.At(b.Type)
	switch {
	case types[b.Type] == nil:
		from.At("type").Faultf("%q is no type of backend; %s", b.Type, settings.Suggest(b.Type, known))
	case !section.Given():
		section.Faultf("missing; it configures the backend of this type")
	default:
		b.Settings = types[b.Type]()
		b.Settings.Load(section)
		b.Section = map[string]any{b.Type: b.Settings}
	}
}

// Transport is how the backend is reached: the connection, and the addresses that
// the service may name where its settings say so.
func (b Backend) Transport() transport.Config {
	out := b.Connection
	if s, ok := b.Settings.(interface{ Allowed() transport.Allowed }); ok {
		out.Allowed = s.Allowed()
	}
	return out
}

func checkConnection(at settings.Section, c transport.Config) {
	at.At("connectTimeout").Between(c.ConnectTimeout, 0, transport.AttemptTimeout)
	at.At("answerTimeout").Between(c.AnswerTimeout, 0, transport.AttemptTimeout)
	if c.Proxy != "" {
		at.At("proxy").URL(c.Proxy)
		c.Proxy = "" // what follows is about the files
	}
	if (c.ClientCertFile == "") != (c.ClientKeyFile == "") {
		at.Faultf("clientCertFile and clientKeyFile go together")
	} else if _, err := transport.New(c); err != nil {
		at.Faultf("%w", err)
	}
}
