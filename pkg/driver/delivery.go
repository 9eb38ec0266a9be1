package driver

import (
	"os"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/delivery"
	"github.com/contract-cosi/contract-cosi-driver/pkg/events"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
)

// newDeliverer returns what writes keys into applications' Secrets; nil if the
// configuration does not ask for it.
func newDeliverer(c *config.Config, m *metrics.Metrics) (*delivery.Secrets, error) {
	if c.ApplicationSecrets == nil {
		return nil, nil
	}
	at, err := kube.Connect(c.Journal.Secrets.Kubeconfig)
	if err != nil {
		return nil, err
	}
	cas := map[string]string{}
	for _, b := range c.Backends {
		cas[b.Name] = b.Connection.CAFile
	}
	return delivery.New(delivery.Config{At: at, Namespaces: c.ApplicationSecrets.Namespaces, Called: m.SecretCall, CA: func(backend string) ([]byte, error) {
		if cas[backend] == "" {
			return nil, nil
		}
		return os.ReadFile(cas[backend]) // the connection has read it, and reads it again when it changes
	}})
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
