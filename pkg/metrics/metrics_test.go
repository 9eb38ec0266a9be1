package metrics_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/metrics"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// page is what a scrape gets.
func page(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

func has(t *testing.T, page string, samples ...string) {
	t.Helper()
	for _, s := range samples {
		if !strings.Contains(page, "\n"+s+"\n") {
			t.Errorf("no sample %s", s)
		}
	}
}

// A first event is an increase: its series is there before it.
func TestEventsBeginAtZero(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	m.Writer(func() bool { return true })
	m.Build("v1.2.3")
	has(t, page(t, m),
		`contract_cosi_panics_total 0`,
		`contract_cosi_journal_writes_total{operation="update",outcome="ok"} 0`,
		`contract_cosi_contract_changes_total{change="signed"} 0`,
		`contract_cosi_config_reloads_total{outcome="refused"} 0`,
		`contract_cosi_repairs_total{what="contract-key"} 0`,
		`contract_cosi_drift_looks_total{kind="bucket",outcome="ok"} 0`,
		`contract_cosi_drift_findings_total{repaired="false",what="policy"} 0`,
		`contract_cosi_drift_findings_total{repaired="true",what="public-acl"} 0`,
		`contract_cosi_drift_findings_total{repaired="false",what="key"} 0`,
		`contract_cosi_key_rotations_total{step="issued"} 0`,
		`contract_cosi_lease_changes_total{change="lost"} 0`,
		`contract_cosi_writer 1`,
		`contract_cosi_build_info{version="v1.2.3"} 1`,
	)
	before := strings.Count(page(t, m), "\n")
	m.Found("policy", false)
	m.ContractChanged("kept")
	m.Reloaded(metrics.Refused)
	if after := strings.Count(page(t, m), "\n"); after != before {
		t.Errorf("an event has made %d lines more", after-before)
	}
}

// What is told of contracts takes the place of what was told before.
func TestUse(t *testing.T) {
	t.Parallel()
	m, most := metrics.New(), int64(10)
	if text := page(t, m); strings.Contains(text, "contract_cosi_contract_buckets") {
		t.Error("what is not known yet is told")
	}
	m.Used([]metrics.Use{
		{Contract: "team-blue", Use: journal.Use{Buckets: 2, Keys: 3, Ended: 1, NextEnd: time.Unix(1800000000, 0)}, MaxBuckets: &most},
		{Contract: "team-red"},
	})
	text := page(t, m)
	has(t, text,
		`contract_cosi_contract_buckets{contract="team-blue"} 2`, `contract_cosi_contract_keys{contract="team-blue"} 3`,
		`contract_cosi_contract_max_buckets{contract="team-blue"} 10`, `contract_cosi_contract_keys_ended{contract="team-blue"} 1`,
		`contract_cosi_key_earliest_expiry_timestamp_seconds{contract="team-blue"} 1.8e+09`,
		`contract_cosi_contract_buckets{contract="team-red"} 0`,
	)
	for _, absent := range []string{"contract_cosi_contract_max_keys{", `expiry_timestamp_seconds{contract="team-red"}`} {
		if strings.Contains(text, absent) {
			t.Errorf("%s is told and not known", absent)
		}
	}
	m.Used([]metrics.Use{{Contract: "team-red", MaxKeys: &most}})
	text = page(t, m)
	has(t, text, `contract_cosi_contract_max_keys{contract="team-red"} 10`)
	if strings.Contains(text, "team-blue") {
		t.Error("a contract that is gone is still told")
	}
}

// Requests are measured, with an answer or without.
func TestTimed(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	client, err := transport.New(transport.Config{})
	if err != nil {
		t.Fatal(err)
	}
	client.Transport = m.Timed("main", client.Transport)
	for _, url := range []string{server.URL, "http://127.0.0.1:1"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := client.Do(r); err == nil {
			_ = answer.Body.Close()
		}
	}
	client.CloseIdleConnections()
	has(t, page(t, m), `contract_cosi_backend_request_duration_seconds_count{backend="main"} 2`)
}
