package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// Use is what there is under a contract that the configuration lists.
type Use struct {
	Contract string
	journal.Use
	// MaxBuckets and MaxKeys bound it; nil where the configuration does not.
	MaxBuckets, MaxKeys *int64
}

// Used takes what there is in place of what there was.
func (m *Metrics) Used(all []Use) { m.use.now.Store(&all) }

// uses is a collector of what was last told. A contract that goes takes its
// series with it.
type uses struct {
	now                                                                             atomic.Pointer[[]Use]
	buckets, keys, maxBuckets, maxKeys, endingKeys, endedKeys, overdueKeys, nextEnd *prometheus.Desc
}

func newUses() *uses {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, []string{"contract"}, nil)
	}
	return &uses{
		buckets:     desc("contract_buckets", "Buckets under a contract."),
		keys:        desc("contract_keys", "Keys of accesses under a contract; its own is not among them."),
		maxBuckets:  desc("contract_max_buckets", "How many buckets the configuration allows under a contract."),
		maxKeys:     desc("contract_max_keys", "How many keys of accesses the configuration allows under a contract."),
		endingKeys:  desc("contract_keys_ending", "Keys of a contract in the last fifth, at most a week, of their life (keyLife)."),
		endedKeys:   desc("contract_keys_ended", "Keys of a contract whose life (keyLife) is over and whose access is still there."),
		overdueKeys: desc("contract_keys_overdue", "Keys of a contract that are older than their keyRotation, or whose successor is not in the application's Secret."),
		nextEnd:     desc("key_earliest_expiry_timestamp_seconds", "When the next key of a contract ends by itself (keyLife)."),
	}
}

// Describe implements prometheus.Collector.
func (u *uses) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{u.buckets, u.keys, u.maxBuckets, u.maxKeys, u.endingKeys, u.endedKeys, u.overdueKeys, u.nextEnd} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (u *uses) Collect(to chan<- prometheus.Metric) {
	all := u.now.Load()
	if all == nil {
		return
	}
	for _, use := range *all {
		send := func(desc *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, use.Contract)
		}
		send(u.buckets, float64(use.Buckets))
		send(u.keys, float64(use.Keys))
		send(u.endingKeys, float64(use.Ending))
		send(u.endedKeys, float64(use.Ended))
		send(u.overdueKeys, float64(use.Overdue))
		if use.MaxBuckets != nil {
			send(u.maxBuckets, float64(*use.MaxBuckets))
		}
		if use.MaxKeys != nil {
			send(u.maxKeys, float64(*use.MaxKeys))
		}
		if !use.NextEnd.IsZero() {
			send(u.nextEnd, float64(use.NextEnd.Unix()))
		}
	}
}
