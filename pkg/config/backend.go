package config

import (
	"maps"
	"slices"
	"time"

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
	// Connection says how the service is reached, whatever its type.
	Connection Connection `yaml:"connection,omitempty"`
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

// Connection says how a service is reached. Its files are read again when they
// change.
type Connection struct {
	// CAFile holds the CAs, as PEM, that are trusted instead of the system's.
	CAFile string `yaml:"caFile,omitempty"`
	// ClientCertFile and ClientKeyFile hold the certificate that the driver shows.
	ClientCertFile string `yaml:"clientCertFile,omitempty"`
	ClientKeyFile  string `yaml:"clientKeyFile,omitempty"`
	// Proxy is the address of an HTTP proxy; by default the environment says it.
	Proxy string `yaml:"proxy,omitempty"`
	// ConnectTimeout bounds the making of a connection; 5s by default.
	ConnectTimeout time.Duration `yaml:"connectTimeout,omitempty"`
	// AnswerTimeout bounds the wait for an answer; 20s by default.
	AnswerTimeout time.Duration `yaml:"answerTimeout,omitempty"`
	// InsecureSkipVerify takes any certificate for the service's. For tests.
	InsecureSkipVerify bool `yaml:"insecureSkipVerify,omitempty"`
}

// load fills in what the file leaves out, and reads the section of the type.
func (b *Backend) load(from settings.Section, types Types) {
	if b.DeletionsPerSecond == 0 {
		b.DeletionsPerSecond = defaultDeletions
	}
	if b.DeletionsPerSecond < 0 {
		from.At("deletionsPerSecond").Faultf("%d is negative", b.DeletionsPerSecond)
	}
	if !cosi.IsLabel(b.Name) {
		from.At("name").Faultf("%q is not a DNS label of lower-case letters, digits and hyphens", b.Name)
	}
	b.Connection.check(from.At("connection"))

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

// Transport is the connection as pkg/transport takes it.
func (c Connection) Transport() transport.Config {
	return transport.Config{
		CAFile: c.CAFile, ClientCertFile: c.ClientCertFile, ClientKeyFile: c.ClientKeyFile, Proxy: c.Proxy,
		ConnectTimeout: c.ConnectTimeout, AnswerTimeout: c.AnswerTimeout, SkipVerify: c.InsecureSkipVerify,
	}
}

func (c Connection) check(at settings.Section) {
	const most = 10 * time.Minute
	at.At("connectTimeout").Between(c.ConnectTimeout, 0, most)
	at.At("answerTimeout").Between(c.AnswerTimeout, 0, most)
	if c.Proxy != "" {
		at.At("proxy").URL(c.Proxy)
	}
	files := c.Transport()
	files.Proxy = ""
	if (c.ClientCertFile == "") != (c.ClientKeyFile == "") {
		at.Faultf("clientCertFile and clientKeyFile go together")
	} else if _, err := transport.New(files); err != nil {
		at.Faultf("%w", err)
	}
}
