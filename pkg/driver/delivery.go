package driver

import (
	"context"
	"os"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/delivery"
	"github.com/contract-cosi/contract-cosi-driver/pkg/events"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server"
)

// newDeliverer returns what writes keys into applications' Secrets; nil if the
// configuration does not ask for it.
func newDeliverer(c *config.Config, m *metrics.Metrics) (*delivery.Secrets, error) {
	if c.ApplicationSecrets == nil {
		return nil, nil
	}
	to := delivery.Config{Namespaces: c.ApplicationSecrets.Namespaces, Socket: c.ApplicationSecrets.Socket, Called: m.SecretCall, CA: authorities(c.Backends)}
	var err error
	if to.Socket == "" {
		to.At, err = kube.Connect(c.Journal.Secrets.Kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	return delivery.New(to)
}

// authorities reads the CA files of backends as they are when they are asked for.
func authorities(backends []config.Backend) func(backend string) ([]byte, error) {
	files := map[string]string{}
	for _, b := range backends {
		files[b.Name] = b.Connection.CAFile
	}
	return func(backend string) ([]byte, error) {
		if files[backend] == "" {
			return nil, nil
		}
		return os.ReadFile(files[backend])
	}
}

// again has what is due of an access done as soon as what is away is back; nil if there is
// nothing that does it.
func again(d *delivery.Secrets) func(journal.Key) {
	if d == nil {
		return nil
	}
	return func(key journal.Key) {
		if id, err := cosi.ParseAccountID(key.ID); err == nil && key.Kind == journal.Accounts {
			d.Soon(id)
		}
	}
}

// undelivered passes on why a key cannot be replaced or written, in each version of COSI that may
// have the BucketAccess; nil if there is no Teller.
func undelivered(t *events.Teller, versions []Version) func(string, cosi.AccountID, cosi.BucketID, error) {
	if t == nil {
		return nil
	}
	return func(reason string, access cosi.AccountID, bucket cosi.BucketID, why error) {
		for _, v := range versions {
			t.Tell(events.Failure{Version: string(v), Reason: reason, Bucket: bucket.String(), Access: access.String(), Message: why.Error()})
		}
	}
}

// Deliverer is the command that writes keys into applications' Secrets in a driver's
// place, under an account of its own.
type Deliverer struct {
	// Socket is where the driver asks.
	Socket server.Socket
	// Kubeconfig reaches the API server; "" is the pod's account.
	Kubeconfig string
	// Namespaces are where the command may write; none is everywhere.
	Namespaces []string
}

// Run writes what is asked for until ctx ends.
func (d Deliverer) Run(ctx context.Context) error {
	at, err := kube.Connect(d.Kubeconfig)
	if err != nil {
		return err
	}
	writes, err := delivery.New(delivery.Config{At: at, Namespaces: d.Namespaces, Called: func(string, error) {}})
	if err != nil {
		return err
	}
	listener, err := d.Socket.Listen(ctx)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Writing applications' Secrets for a driver", "endpoint", d.Socket.Endpoint)
	return delivery.Serve(ctx, listener, writes)
}
