package driver

import (
	"path"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/events"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
)

// newTeller returns what tells teams of calls that fail; nil if the configuration
// does not ask for it.
func newTeller(c *config.Config, m *metrics.Metrics) (*events.Teller, error) {
	if !c.Driver.Events {
		return nil, nil
	}
	at, err := kube.Connect(c.Journal.Secrets.Kubeconfig)
	if err != nil {
		return nil, err
	}
	return events.New(at, c.Driver.Name, m.EventCall)
}

// failed passes a failed call on to a Teller; nil if there is none.
func failed(t *events.Teller) func(method, bucket, access, message string) {
	if t == nil {
		return nil
	}
	return func(method, bucket, access, message string) {
		version, reason := versionOf(method)
		t.Tell(events.Failure{Version: version, Reason: reason, Bucket: bucket, Access: access, Message: message})
	}
}

// versionOf is the version of COSI that a full method's package ends with, and
// how Events name its failure.
func versionOf(method string) (version, reason string) {
	service, call := path.Split(method)
	parts := strings.Split(service, ".")
	return parts[max(0, len(parts)-2)], strings.TrimPrefix(call, "Driver") + "Failed"
}
