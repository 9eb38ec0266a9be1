package contract

import (
	"net/http"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
)

// Settings are how one service is reached, as the driver's configuration says
// it. Each provider has its own, with its keys as tags for YAML.
type Settings interface {
	// Load reads the section of the file, fills in what it leaves out, and adds a
	// fault for each thing that is wrong with it. Files that it names are read.
	Load(from settings.Section)
	// Secrets are the files that hold secrets, by what they are.
	Secrets() map[string]string
	// Open makes the provider. Files are read, and no call is made.
	Open(p Parts) (Provider, error)
}

// Parts are what every provider is opened with.
type Parts struct {
	// Owner is the driver's mark.
	Owner string
	// HTTP carries the calls.
	HTTP *http.Client
	// Observe is told of every call that was tried, with the outcome.
	Observe func(operation string, err error)
	// Changed is told of files that were read again, by what they are; see
	// [settings.OpenKeyPair].
	Changed func(what string) func(error)
}

// Endpoints are where S3 is served, the default one first.
type Endpoints []Endpoint

// Endpoint is where S3 is served.
type Endpoint struct {
	// Region is the region's name, which requests are signed for.
	Region string `yaml:"region" jsonschema:"required,minLength=1"`
	// URL is the address that applications get.
	URL string `yaml:"url" jsonschema:"required,pattern=^https?://"`
	// VirtualHosts says that a bucket stands in the host name, not in the path.
	VirtualHosts bool `yaml:"virtualHosts,omitempty"`
}

// Check adds what is wrong with the endpoints.
func (e Endpoints) Check(at settings.Section) {
	if len(e) == 0 {
		at.Faultf("there is none; name where S3 is served")
	}
	seen := map[string]bool{}
	for i, endpoint := range e {
		if endpoint.Region == "" || seen[endpoint.Region] {
			at.At(i, "region").Faultf("%q is empty or there twice", endpoint.Region)
		}
		seen[endpoint.Region] = true
		at.At(i, "url").URL(endpoint.URL)
	}
}

// Storage are the endpoints as the driver speaks of them.
func (e Endpoints) Storage() []cosi.Endpoint {
	out := make([]cosi.Endpoint, len(e))
	for i, endpoint := range e {
		out[i] = cosi.Endpoint{Region: endpoint.Region, URL: endpoint.URL, PathStyle: !endpoint.VirtualHosts}
	}
	return out
}

// MaxSettleTime is the longest that a service may take until a change holds
// everywhere.
const MaxSettleTime = 10 * time.Minute

// GatewaySettings are those of a gateway with an admin API beside S3 and one key
// for both.
type GatewaySettings struct {
	// AdminURL is the admin API's address; by default that of the first endpoint.
	AdminURL string `yaml:"adminURL,omitempty" jsonschema:"pattern=^(https?://.+)?$"`
	// Endpoints are where S3 is served, the default one first.
	Endpoints Endpoints `yaml:"endpoints" jsonschema:"required,minItems=1"`
	// CredentialsFile holds the key that administers accounts: root's at a
	// versitygw, that of a user with the capabilities users=* and user-policy=* at Ceph, for quotas of buckets also buckets=*.
	CredentialsFile string `yaml:"credentialsFile" jsonschema:"required,minLength=1"`
	// SettleTime is how long a change takes to reach all gateways, where there
	// are several: the lifetime of versitygw's account cache, or the way to the
	// other zones of Ceph's realm.
	SettleTime time.Duration `yaml:"settleTime,omitempty"`
}

// Check fills in what is left out, and adds what is wrong.
func (g *GatewaySettings) Check(at settings.Section) {
	g.Endpoints.Check(at.At("endpoints"))
	if g.AdminURL == "" && len(g.Endpoints) > 0 {
		g.AdminURL = g.Endpoints[0].URL
	} else if g.AdminURL != "" {
		at.At("adminURL").URL(g.AdminURL)
	}
	at.At("credentialsFile").KeyPair(g.CredentialsFile)
	at.At("settleTime").Between(g.SettleTime, 0, MaxSettleTime)
}

// Secrets are the files that hold secrets, by what they are.
func (g *GatewaySettings) Secrets() map[string]string {
	return map[string]string{"credentials": g.CredentialsFile}
}
