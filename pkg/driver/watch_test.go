package driver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
)

// What there is of each contract is summed up under the name that the
// configuration lists: one series each, however many buckets have a contract of
// their own.
func TestUse(t *testing.T) {
	t.Parallel()
	n := func(n int64) *int64 { return &n }
	listed := func(name string, change func(*config.Terms)) config.Contract {
		out := config.Contract{Name: name, Terms: config.Terms{Backend: "main"}}
		change(&out.Terms)
		return out
	}
	c := &config.Config{
		Drift: config.Drift{Mode: config.DriftOff, Interval: time.Minute},
		Contracts: []config.Contract{
			listed("team-blue", func(t *config.Terms) { t.Quota.MaxBuckets, t.Guard.MaxBuckets, t.Quota.MaxKeys = n(10), n(5), n(4) }),
			listed("team-red", func(t *config.Terms) { t.Drift = config.DriftReport }),
			listed("each", func(t *config.Terms) { t.PerBucket, t.Quota.MaxBuckets = true, n(1) }),
		},
		OnDemand: &config.OnDemand{Terms: config.Terms{Backend: "main", Quota: config.Quota{MaxBuckets: n(3)}}},
	}
	path := filepath.Join(t.TempDir(), "journal.log")
	synctest.Test(t, func(t *testing.T) {
		store, err := filestore.Open(t.Context(), path, func(string, error) {})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		j, start := journal.New(store), time.Now()
		add := func(contract, bucket string, lives ...time.Duration) {
			t.Helper()
			id := cosi.ContractID{Backend: "main", Contract: contract}
			if err := j.SaveBucket(t.Context(), &journal.Bucket{ID: cosi.BucketID{ContractID: id, Bucket: bucket}}); err != nil {
				t.Fatal(err)
			}
			for i, life := range lives {
				grant := journal.Grant{Buckets: []journal.BucketAccess{{Bucket: bucket, Mode: cosi.ReadWrite}}, KeyLife: life}
				err := j.SaveAccount(t.Context(), &journal.Account{
					ID: cosi.AccountID{ContractID: id, Account: "ba-" + bucket + string(rune('a'+i))}, Requested: grant, Effective: grant, CreatedAt: start,
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		blue, each := c.Contracts[0].Terms, c.Contracts[2].Terms
		blue.Listed, each.Listed = "team-blue", "each"
		add(blue.ContractFor("one"), "one", 0, time.Hour, 30*time.Hour)
		add(blue.ContractFor("two"), "two", 75*time.Minute)
		add(each.ContractFor("three"), "three", 5*time.Hour)
		add(each.ContractFor("four"), "four", 4*time.Hour)
		add("anything", "five")
		<-time.After(time.Hour)
		m := metrics.New()
		use(t.Context(), c, j, m)
		text := told(t, m)
		for _, want := range []string{
			`contract_buckets{contract="team-blue"} 2`, `contract_keys{contract="team-blue"} 4`,
			`contract_max_buckets{contract="team-blue"} 5`, `contract_max_keys{contract="team-blue"} 3`,
			`contract_keys_ended{contract="team-blue"} 1`, `contract_keys_ending{contract="team-blue"} 1`, `contract_keys_ending{contract="each"} 0`,
			`contract_buckets{contract="team-red"} 0`,
			`contract_buckets{contract="each"} 2`, `contract_keys{contract="each"} 2`,
			`contract_buckets{contract="onDemand"} 1`,
			`drift_interval_seconds 60`,
		} {
			if !strings.Contains(text, "\ncontract_cosi_"+want+"\n") {
				t.Errorf("no sample %s", want)
			}
		}
		for contract, life := range map[string]time.Duration{"team-blue": 75 * time.Minute, "each": 4 * time.Hour} {
			var end float64
			for line := range strings.Lines(text) {
				if after, ok := strings.CutPrefix(line, `contract_cosi_key_earliest_expiry_timestamp_seconds{contract="`+contract+`"} `); ok {
					_, err := fmt.Sscan(after, &end)
					if err != nil {
						t.Error(err)
					}
				}
			}
			if want := float64(start.Add(life).Unix()); end != want {
				t.Errorf("the next key of %s ends at %v, want %v", contract, end, want)
			}
		}
		for _, absent := range []string{`max_buckets{contract="each"`, `max_buckets{contract="onDemand"`, `max_keys{contract="team-red"`, "anything", "timestamp_seconds{contract=\"team-red\""} {
			if strings.Contains(text, absent) {
				t.Errorf("%s is told", absent)
			}
		}
	})
}

func told(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}
