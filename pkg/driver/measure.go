package driver

import (
	"context"
	"sync"

	"golang.org/x/time/rate"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
)

// claimsPerSecond paces the questions at the API server whose buckets are.
const claimsPerSecond = 10

// meter tells m what drift's timer has learnt of buckets, with the claims that they
// are for. A Bucket's claim never changes, so each is asked for once. What two passes
// over the journal have not come to is forgotten.
type meter struct {
	*metrics.Metrics
	// claim asks; nil if the driver may not read Buckets.
	claim func(ctx context.Context, bucket string) (namespace, name string, err error)
	limit *rate.Limiter

	mu            sync.Mutex
	known, before claims // of this pass, and of the one before
}

type claims map[cosi.ContractID]map[string]claimed

type claimed struct{ namespace, name string }

func newMeter(m *metrics.Metrics, claim func(context.Context, string) (string, string, error)) *meter {
	return &meter{Metrics: m, claim: claim, limit: rate.NewLimiter(claimsPerSecond, 1), known: claims{}}
}

// Measured implements drift.Recorder.
func (m *meter) Measured(ctx context.Context, id cosi.ContractID, all []contract.BucketUse) {
	m.mu.Lock()
	before, is := m.known[id]
	if !is {
		before = m.before[id]
	}
	m.mu.Unlock()
	known := map[string]claimed{}
	out := make([]metrics.BucketUse, len(all))
	for i, use := range all {
		of, is := before[use.Bucket]
		if !is && m.claim != nil && m.limit.Wait(ctx) == nil {
			var err error
			of.namespace, of.name, err = m.claim(ctx, use.Bucket)
			is = err == nil
		}
		if is {
			known[use.Bucket] = of
		}
		out[i] = metrics.BucketUse{Bucket: use.Bucket, Namespace: of.namespace, Claim: of.name, Bytes: use.Bytes, Objects: use.Objects,
			MaxBytes: most(use.MaxBytes), MaxObjects: most(use.MaxObjects)}
	}
	m.mu.Lock()
	m.known[id] = known
	m.mu.Unlock()
	m.BucketsMeasured(id, out)
}

// Passed implements drift.Recorder.
func (m *meter) Passed() {
	m.mu.Lock()
	m.known, m.before = claims{}, m.known
	m.mu.Unlock()
	m.Metrics.Passed()
}

// most is a bound as metrics have it, where 0 is none.
func most(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}
