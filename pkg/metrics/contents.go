package metrics

import (
	"cmp"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
)

// BucketUse is what one bucket holds and may hold, nil where that is not known or not
// bounded, and whose it is; Namespace and Claim are "" where the driver cannot know.
type BucketUse struct {
	Bucket, Namespace, Claim             string
	Bytes, Objects, MaxBytes, MaxObjects *int64
}

// fullness is how much of a bucket's nearest bound is used.
func (b BucketUse) fullness() float64 {
	full := func(used, most *int64) float64 {
		if used == nil || most == nil {
			return 0
		}
		return float64(*used) / float64(*most)
	}
	return max(full(b.Bytes, b.MaxBytes), full(b.Objects, b.MaxObjects))
}

// maxBuckets bounds the buckets that are told of one by one. Of more, those that are
// fullest are, then the largest.
const maxBuckets = 10_000

// contents is a collector of what buckets hold, as each contract was last asked. It
// tells nothing while another driver is the writer, which then asks.
type contents struct {
	writes                                        func() bool
	bytes, objects, maxBytes, maxObjects, leftOut *prometheus.Desc

	mu  sync.Mutex
	all map[cosi.ContractID]*measured
}

type measured struct {
	buckets []BucketUse
	fresh   bool // since the last pass over all that there is
}

func newContents() *contents {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	of := []string{"backend", "contract", "bucket", "namespace", "claim"}
	return &contents{
		writes:     func() bool { return true },
		bytes:      desc("bucket_bytes", "Bytes in a bucket, as its service counts them, when the driver last asked (once in drift.interval).", of...),
		objects:    desc("bucket_objects", "Objects in a bucket, old versions among them, when the driver last asked.", of...),
		maxBytes:   desc("bucket_max_bytes", "How many bytes a bucket may hold (maxBytes).", of...),
		maxObjects: desc("bucket_max_objects", "How many objects a bucket may hold (maxObjects).", of...),
		leftOut:    desc("buckets_left_out", "Buckets that the metrics of single buckets leave out: there are too many, and these are the least full."),
		all:        map[cosi.ContractID]*measured{},
	}
}

// BucketsMeasured takes what the buckets of a contract hold in place of what they held.
func (m *Metrics) BucketsMeasured(id cosi.ContractID, all []BucketUse) {
	m.contents.mu.Lock()
	defer m.contents.mu.Unlock()
	m.contents.all[id] = &measured{all, true}
}

// passed forgets the contracts that were not asked since the last time: they are gone,
// or do not answer.
func (c *contents) passed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, m := range c.all {
		if !m.fresh {
			delete(c.all, id)
		}
		m.fresh = false
	}
}

// Describe implements prometheus.Collector.
func (c *contents) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.bytes, c.objects, c.maxBytes, c.maxObjects, c.leftOut} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *contents) Collect(to chan<- prometheus.Metric) {
	if !c.writes() {
		return
	}
	type told struct {
		id cosi.ContractID
		BucketUse
	}
	var all []told
	c.mu.Lock()
	for id, m := range c.all {
		for _, b := range m.buckets {
			all = append(all, told{id, b})
		}
	}
	c.mu.Unlock()
	left := max(0, len(all)-maxBuckets)
	if left > 0 {
		bytes := func(b BucketUse) int64 {
			if b.Bytes == nil {
				return 0
			}
			return *b.Bytes
		}
		slices.SortFunc(all, func(x, y told) int {
			return cmp.Or(cmp.Compare(y.fullness(), x.fullness()), cmp.Compare(bytes(y.BucketUse), bytes(x.BucketUse)), cmp.Compare(x.Bucket, y.Bucket))
		})
	}
	for _, b := range all[:len(all)-left] {
		for _, gauge := range []struct {
			desc  *prometheus.Desc
			value *int64
		}{{c.bytes, b.Bytes}, {c.objects, b.Objects}, {c.maxBytes, b.MaxBytes}, {c.maxObjects, b.MaxObjects}} {
			if gauge.value != nil {
				to <- prometheus.MustNewConstMetric(gauge.desc, prometheus.GaugeValue, float64(*gauge.value), b.id.Backend, b.id.Contract, b.Bucket, b.Namespace, b.Claim)
			}
		}
	}
	to <- prometheus.MustNewConstMetric(c.leftOut, prometheus.GaugeValue, float64(left))
}
