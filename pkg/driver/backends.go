package driver

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contractapi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/iam"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/rgw"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/versitygw"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/drift"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/pkg/reload"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/site"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// newBackends makes what reaches each storage service. Files are read, and no
// call is made.
func newBackends(ctx context.Context, c *config.Config, m *metrics.Metrics) (map[string]site.Backend, error) {
	out := make(map[string]site.Backend, len(c.Backends))
	for _, b := range c.Backends {
		made, err := newBackend(ctx, b, c.Driver.Owner, m.Backend(b.Name))
		if err != nil {
			return nil, fmt.Errorf("backend %s: %w", b.Name, err)
		}
		out[b.Name] = made
	}
	return out, nil
}

// Services are the storage services by the backends' names, for tools that look
// at what a driver has made.
func Services(ctx context.Context, c *config.Config) (map[string]*contract.Service, error) {
	backends, err := newBackends(ctx, c, metrics.New())
	out := make(map[string]*contract.Service, len(backends))
	for name, b := range backends {
		out[name] = b.Service
	}
	return out, err
}

// reach is what every type of backend is made with.
type reach struct {
	owner   string
	client  *http.Client
	observe func(operation string, err error)
	// changed hears of files that were read again, by what they are.
	changed func(what string) func(error)
}

func newBackend(ctx context.Context, b config.Backend, owner string, observe func(string, error)) (site.Backend, error) {
	log := klog.FromContext(ctx).WithValues("backend", b.Name)
	r := reach{owner: owner, observe: observe, changed: func(what string) func(error) {
		return func(err error) {
			if err != nil {
				log.Error(err, "A file was changed and cannot be used; the driver goes on with what it held", "what", what)
				return
			}
			log.Info("A file was changed and read again", "what", what)
		}
	}}
	if b.Connection.InsecureSkipVerify {
		log.Info("TLS certificates of this backend are not verified: connection.insecureSkipVerify is set")
	}
	connection := b.Transport()
	connection.Changed = r.changed("TLS")
	var err error
	if r.client, err = transport.New(connection); err != nil {
		return site.Backend{}, err
	}
	r.client.Transport = drift.Counted(r.client.Transport)
	provider, err := newProvider(b, r)
	if err != nil {
		return site.Backend{}, err
	}
	can, features := provider.Capabilities(), &bucket.Features{}
	deletions := rate.NewLimiter(rate.Limit(b.DeletionsPerSecond), b.DeletionsPerSecond)
	return site.Backend{
		Service: contract.NewService(b.Name, owner, provider),
		Engine: func(at cosi.Endpoint, key secret.KeyPair, mark string) *bucket.Engine {
			return bucket.New(bucket.Config{
				Endpoint: at, Key: key, Owner: mark, HTTP: r.client, Observe: observe, Features: features, Deletions: deletions,
				OwnerNeedsPolicy: can.OwnerNeedsPolicy, TagsLater: can.TagsLater, Placements: can.Placements,
			})
		},
	}, nil
}

// newProvider is the table of types.
func newProvider(b config.Backend, r reach) (contract.Provider, error) {
	switch b.Type {
	case config.TypeContractAPI:
		return newContractAPI(*b.ContractAPI, r)
	case config.TypeIAM:
		return newIAM(*b.IAM, r)
	case config.TypeRGW:
		return newRGW(*b.RGW, r)
	case config.TypeVersityGW:
		return newVersityGW(*b.VersityGW, r)
	}
	return nil, fmt.Errorf("type %q is unknown", b.Type) // the configuration was checked
}

func newContractAPI(c config.ContractAPI, r reach) (contract.Provider, error) {
	token, err := reload.Open(r.changed("token"), func(texts [][]byte) (secret.String, error) { return config.ParseSecret(texts[0]) }, c.TokenFile)
	if err != nil {
		return nil, err
	}
	return contractapi.New(contractapi.Config{URL: c.URL, Token: token.Get, Allowed: c.Allowed(), KeysReachAll: c.KeysReachAll, HTTP: r.client, Observe: r.observe})
}

func newRGW(c config.RGW, r reach) (contract.Provider, error) {
	key, err := openKey(c.CredentialsFile, r)
	if err != nil {
		return nil, err
	}
	out := rgw.Config{
		AdminURL: c.AdminURL, Endpoints: config.Storage(c.Endpoints), Credentials: key.Get, Settles: c.SettleTime, HTTP: r.client, Observe: r.observe,
	}
	if c.Accounts {
		return rgw.NewAccounts(out), nil
	}
	return rgw.New(out), nil
}

func newVersityGW(c config.Gateway, r reach) (contract.Provider, error) {
	key, err := openKey(c.CredentialsFile, r)
	if err != nil {
		return nil, err
	}
	return versitygw.New(versitygw.Config{
		AdminURL: c.AdminURL, Endpoints: config.Storage(c.Endpoints), Credentials: key.Get, Owner: r.owner, Settles: c.SettleTime,
		HTTP: r.client, Observe: r.observe,
	}), nil
}

func newIAM(c config.IAM, r reach) (contract.Provider, error) {
	known := func(key string) string { // of a dialect
		if key == config.None {
			return ""
		}
		return key
	}
	out := iam.Config{
		URL: c.URL, Region: c.Region, Endpoints: config.Storage(c.Endpoints), Path: c.Path, PermissionsBoundary: c.PermissionsBoundary,
		Dialect: policy.Dialect{
			Version: c.Dialect.Version, ActionPrefix: c.Dialect.ActionPrefix, ResourcePrefix: c.Dialect.ResourcePrefix,
			SourceAddressKey: known(c.Dialect.SourceAddressKey), PrefixKey: known(c.Dialect.PrefixKey),
		},
		MaxPolicyBytes: c.MaxPolicyBytes, MaxKeys: c.MaxKeys, Settles: c.SettleTime, HTTP: r.client, Observe: r.observe,
	}
	if c.CredentialsDir != "" {
		ring := &keyRing{dir: c.CredentialsDir, reach: r, keys: map[string]*reload.File[secret.KeyPair]{}}
		out.Credentials, out.Accounts = ring.of, c.Accounts
		return iam.New(out), nil
	}
	key, err := openKey(c.CredentialsFile, r)
	if err != nil {
		return nil, err
	}
	out.Credentials = func(string) (secret.KeyPair, error) { return key.Get(), nil }
	out.Accounts = func() []string { return []string{""} }
	return iam.New(out), nil
}

func openKey(file string, r reach) (*reload.File[secret.KeyPair], error) {
	return reload.Open(r.changed("credentials"), func(texts [][]byte) (secret.KeyPair, error) { return config.ParseKeyPair(texts[0]) }, file)
}

// keyRing holds the credentials of contracts that have an account each. A file
// that is put there later is found when its contract is asked for.
type keyRing struct {
	dir string
	reach
	mu   sync.Mutex
	keys map[string]*reload.File[secret.KeyPair]
}

func (k *keyRing) of(name string) (secret.KeyPair, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys[name] == nil {
		key, err := openKey(filepath.Join(k.dir, name), k.reach)
		if err != nil {
			return secret.KeyPair{}, fault.Wrap(fault.FailedPrecondition, err, "there are no credentials for contract %s; put them into a file of its name in the backend's credentialsDir", name)
		}
		k.keys[name] = key
	}
	return k.keys[name].Get(), nil
}
