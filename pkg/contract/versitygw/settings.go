package versitygw

import (
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
)

// Settings reach a versitygw with its own accounts.
type Settings struct {
	contract.GatewaySettings `yaml:",inline"`
}

// Load implements contract.Settings.
func (s *Settings) Load(from settings.Section) {
	from.Decode(s)
	s.Check(from)
}

// Open implements contract.Settings.
func (s *Settings) Open(p contract.Parts) (contract.Provider, error) {
	key, err := settings.OpenKeyPair(s.CredentialsFile, p.Changed("credentials"))
	if err != nil {
		return nil, err
	}
	return New(Config{
		AdminURL: s.AdminURL, Endpoints: s.Endpoints.Storage(), Credentials: key.Get, Owner: p.Owner, Settles: s.SettleTime,
		HTTP: p.HTTP, Observe: p.Observe,
	}), nil
}
