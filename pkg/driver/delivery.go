package driver

import (
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/delivery"
	"github.com/contract-cosi/contract-cosi-driver/pkg/events"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
)

// newDeliverer returns what writes keys into applications' Secrets; nil if the
// configuration does not ask for it.
func newDeliverer(c *config.Config, m *metrics.Metrics) (provisioner.Deliverer, error) {
	if c.ApplicationSecrets == nil {
		return nil, nil
	}
	at, err := kube.Connect(c.Journal.Secrets.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return delivery.New(delivery.Config{At: at, Namespaces: c.ApplicationSecrets.Namespaces, Called: m.SecretCall})
}

// overdue passes on why a key cannot be replaced, in each version of COSI that may
// have the BucketAccess; nil if there is no Teller.
func overdue(t *events.Teller, versions []Version) func(cosi.AccountID, cosi.BucketID, error) {
	if t == nil {
		return nil
	}
	return func(access cosi.AccountID, bucket cosi.BucketID, why error) {
		for _, v := range versions {
			t.Tell(events.Failure{Version: string(v), Reason: "KeyNotRenewed", Bucket: bucket.String(), Access: access.String(), Message: why.Error()})
		}
	}
}
