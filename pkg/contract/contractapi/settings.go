package contractapi

import (
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// Settings reach a service that serves the contract API of openapi.yaml.
type Settings struct {
	// URL is the API's base address.
	URL string `yaml:"url" jsonschema:"required,pattern=^https?://"`
	// TokenFile holds the bearer token.
	TokenFile string `yaml:"tokenFile" jsonschema:"required,minLength=1"`
	// AllowedEndpoints are the S3 addresses that the service may name, beside
	// those at its own host: https://s3.example.com, https://*.s3.example.com, or a
	// block such as 10.0.0.0/8 for names of the second kind that lead there.
	AllowedEndpoints []string `yaml:"allowedEndpoints,omitempty"`
	// KeysReachAll is for a service whose keys cannot be limited to buckets.
	KeysReachAll bool `yaml:"keysReachAll,omitempty"`
}

// Load implements contract.Settings.
func (s *Settings) Load(from settings.Section) {
	from.Decode(s)
	if _, err := transport.NewAllowed(s.URL, s.AllowedEndpoints); from.At("url").URL(s.URL) && err != nil {
		from.At("allowedEndpoints").Faultf("%w", err)
	}
	from.At("tokenFile").Secret(s.TokenFile)
}

// Allowed are the addresses that the service may name.
func (s *Settings) Allowed() transport.Allowed {
	out, _ := transport.NewAllowed(s.URL, s.AllowedEndpoints) // was checked
	return out
}

// Secrets implements contract.Settings.
func (s *Settings) Secrets() map[string]string { return map[string]string{"token": s.TokenFile} }

// Open implements contract.Settings.
func (s *Settings) Open(p contract.Parts) (contract.Provider, error) {
	token, err := settings.OpenSecret(s.TokenFile, p.Changed("token"))
	if err != nil {
		return nil, err
	}
	return New(Config{URL: s.URL, Token: token.Get, Allowed: s.Allowed(), KeysReachAll: s.KeysReachAll, HTTP: p.HTTP, Observe: p.Observe})
}
