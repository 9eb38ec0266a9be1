package metrics

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

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

// contents are what buckets hold, as each contract was last asked. They are told of only
// by the writer, which asks.
type contents struct {
	writes func() bool

	mu  sync.Mutex
	all map[cosi.ContractID]*measured
}

type measured struct {
	buckets []BucketUse
	fresh   bool // since the last pass over all that there is
}

func newContents() *contents {
	return &contents{writes: func() bool { return true }, all: map[cosi.ContractID]*measured{}}
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

// told is a bucket that is told of.
type told struct {
	contract cosi.ContractID
	*BucketUse
}

// fullest are the buckets to tell of, and how many are left out.
func (c *contents) fullest() (all []told, left int) {
	c.mu.Lock()
	for id, m := range c.all {
		for i := range m.buckets {
			all = append(all, told{id, &m.buckets[i]})
		}
	}
	c.mu.Unlock()
	if left = len(all) - maxBuckets; left <= 0 {
		return all, 0
	}
	bytes := func(b told) int64 {
		if b.Bytes == nil {
			return 0
		}
		return *b.Bytes
	}
	slices.SortFunc(all, func(x, y told) int {
		return cmp.Or(cmp.Compare(y.fullness(), x.fullness()), cmp.Compare(bytes(y), bytes(x)), cmp.Compare(x.Bucket, y.Bucket))
	})
	return all[:maxBuckets], left
}

// write tells of the buckets in Prometheus' text format, as the registry would, which
// would first hold all of these tens of thousands of series in memory.
func (c *contents) write(to io.Writer) error {
	if !c.writes() {
		return nil
	}
	all, left := c.fullest()
	out := bufio.NewWriter(to)
	escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	label := func(value string) string {
		return `"` + escape.Replace(strings.ToValidUTF8(value, "\uFFFD")) + `"` // others choose the names
	}
	family := func(name, help string) {
		_, _ = fmt.Fprintf(out, "# HELP %[1]s_%[2]s %[3]s\n# TYPE %[1]s_%[2]s gauge\n", namespace, name, help)
	}
	for _, gauge := range []struct {
		name, help string
		value      func(*BucketUse) *int64
	}{
		{"bucket_bytes", "Bytes in a bucket, as its service counts them, when the driver last asked (once in drift.interval).", func(b *BucketUse) *int64 { return b.Bytes }},
		{"bucket_objects", "Objects in a bucket, old versions among them, when the driver last asked.", func(b *BucketUse) *int64 { return b.Objects }},
		{"bucket_max_bytes", "How many bytes a bucket may hold (maxBytes).", func(b *BucketUse) *int64 { return b.MaxBytes }},
		{"bucket_max_objects", "How many objects a bucket may hold (maxObjects).", func(b *BucketUse) *int64 { return b.MaxObjects }},
	} {
		family(gauge.name, gauge.help)
		for _, b := range all {
			if n := gauge.value(b.BucketUse); n != nil {
				_, _ = fmt.Fprintf(out, "%s_%s{backend=%s,bucket=%s,claim=%s,contract=%s,namespace=%s} %d\n", namespace, gauge.name,
					label(b.contract.Backend), label(b.Bucket), label(b.Claim), label(b.contract.Contract), label(b.Namespace), *n)
			}
		}
	}
	family("buckets_left_out", "Buckets that the metrics of single buckets leave out: there are too many, and these are the least full.")
	_, _ = fmt.Fprintf(out, "%s_buckets_left_out %d\n", namespace, left)
	return out.Flush() // a bufio.Writer keeps its first error
}
