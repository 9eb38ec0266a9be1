package rgw

import (
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
)

// Settings reach a Ceph object gateway.
type Settings struct {
	contract.GatewaySettings `yaml:",inline"`
	// Accounts makes a contract an account of the gateway, which Squid and later
	// releases have, and not a tenant. It can never change for a contract that
	// is signed. The key's user then needs the capabilities accounts=* and
	// users=*, or, at Squid, the flag admin.
	Accounts bool `yaml:"accounts,omitempty"`
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
	c := Config{
		AdminURL: s.AdminURL, Endpoints: s.Endpoints.Storage(), Credentials: key.Get, Settles: s.SettleTime, HTTP: p.HTTP, Observe: p.Observe,
	}
	if s.Accounts {
		return NewAccounts(c), nil
	}
	return New(c), nil
}
