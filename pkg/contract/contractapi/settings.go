package contractapi

import (
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
)

// Settings reach a service that serves the contract API of openapi.yaml.
type Settings struct {
	// URL is the API's base address.
	URL string `yaml:"url" jsonschema:"required,pattern=^https?://"`
	// TokenFile holds the bearer token.
	TokenFile string `yaml:"tokenFile" jsonschema:"required,minLength=1"`
	// KeysReachAll is for a service whose keys cannot be limited to buckets.
	KeysReachAll bool `yaml:"keysReachAll,omitempty"`
}

// Load implements contract.Settings.
func (s *Settings) Load(from settings.Section) {
	from.Decode(s)
	from.At("url").URL(s.URL)
	from.At("tokenFile").Secret(s.TokenFile)
}

// Secrets implements contract.Settings.
func (s *Settings) Secrets() map[string]string { return map[string]string{"token": s.TokenFile} }

// Open implements contract.Settings.
func (s *Settings) Open(r contract.Reach) (contract.Provider, error) {
	token, err := settings.OpenSecret(s.TokenFile, r.Changed("token"))
	if err != nil {
		return nil, err
	}
	return New(Config{URL: s.URL, Token: token.Get, KeysReachAll: s.KeysReachAll, HTTP: r.HTTP, Observe: r.Observe})
}
