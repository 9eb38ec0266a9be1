package driver

import (
	"context"
	"fmt"

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
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/site"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// newBackends makes what reaches each storage service, for the driver whose
// contracts are of these journals. Files are read, and no call is made.
func newBackends(ctx context.Context, c *config.Config, m *metrics.Metrics, journals contract.Journals) (map[string]site.Backend, error) {
	out := make(map[string]site.Backend, len(c.Backends))
	for _, b := range c.Backends {
		made, err := newBackend(ctx, b, c.Driver.Owner, m, journals)
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
	backends, err := newBackends(ctx, c, metrics.New(), nil)
	out := make(map[string]*contract.Service, len(backends))
	for name, b := range backends {
		out[name] = b.Service
	}
	return out, err
}

// Types is the table of the types of backends.
func Types() config.Types {
	return config.Types{
		"contractapi": func() contract.Settings { return &contractapi.Settings{} },
		"iam":         func() contract.Settings { return &iam.Settings{} },
		"rgw":         func() contract.Settings { return &rgw.Settings{} },
		"versitygw":   func() contract.Settings { return &versitygw.Settings{} },
	}
}

func newBackend(ctx context.Context, b config.Backend, owner string, m *metrics.Metrics, journals contract.Journals) (site.Backend, error) {
	log := klog.FromContext(ctx).WithValues("backend", b.Name)
	observe := m.Backend(b.Name)
	parts := contract.Parts{Owner: owner, Observe: observe, Changed: func(what string) func(error) {
		return func(err error) {
			if err != nil {
				log.Error(err, "A file was changed and cannot be used; the driver goes on with what it held", "what", what)
				return
			}
			log.Info("A file was changed and read again", "what", what)
		}
	}}
	if b.Connection.SkipVerify {
		log.Info("TLS certificates of this backend are not verified: connection.insecureSkipVerify is set")
	}
	connection := b.Transport()
	connection.Changed = parts.Changed("TLS")
	var err error
	if parts.HTTP, err = transport.New(connection); err != nil {
		return site.Backend{}, err
	}
	parts.HTTP.Transport = m.Timed(b.Name, drift.Counted(parts.HTTP.Transport))
	provider, err := b.Settings.Open(parts)
	if err != nil {
		return site.Backend{}, err
	}
	can, features := provider.Capabilities(), &bucket.Features{}
	deletions := rate.NewLimiter(rate.Limit(b.DeletionsPerSecond), b.DeletionsPerSecond)
	service := contract.NewService(b.Name, owner, journals, provider)
	return site.Backend{
		Service: service,
		Engine: func(at cosi.Endpoint, key secret.KeyPair, contract string) *bucket.Engine {
			return bucket.New(bucket.Config{
				Endpoint: at, Key: key, Owner: service.Mark(contract), Contract: contract, Bounder: service, HTTP: parts.HTTP, Observe: observe, Features: features, Deletions: deletions,
				OwnerNeedsPolicy: can.OwnerNeedsPolicy, TagsLater: can.TagsLater, Placements: can.Placements,
			})
		},
	}, nil
}
