package metrics_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
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

// What buckets hold is told by the writer alone, as each contract was last asked, and
// no longer than until everything was looked at without an answer.
func TestBuckets(t *testing.T) {
	t.Parallel()
	m, held := metrics.New(), atomic.Bool{}
	n := func(i int64) *int64 { return &i }
	m.Writer(held.Load)
	blue, red := cosi.ContractID{Backend: "main", Contract: "blue"}, cosi.ContractID{Backend: "main", Contract: "red"}
	m.BucketsMeasured(blue, []metrics.BucketUse{
		{Bucket: "photos", Namespace: "team-blue", Claim: "photos", Bytes: n(5), Objects: n(2), MaxBytes: n(1024)},
		{Bucket: "gone", Bytes: n(1)},
	})
	m.BucketsMeasured(red, []metrics.BucketUse{{Bucket: "photos", Objects: n(0)}})
	if text := page(t, m); strings.Contains(text, "photos") {
		t.Error("another driver is the writer, and this one tells")
	}
	held.Store(true)
	of := `{backend="main",bucket="photos",claim="photos",contract="blue",namespace="team-blue"}`
	has(t, page(t, m), "contract_cosi_bucket_bytes"+of+" 5", "contract_cosi_bucket_objects"+of+" 2", "contract_cosi_bucket_max_bytes"+of+" 1024",
		`contract_cosi_bucket_objects{backend="main",bucket="photos",claim="",contract="red",namespace=""} 0`, "contract_cosi_buckets_left_out 0")
	if text := page(t, m); strings.Contains(text, "contract_cosi_bucket_max_objects{") || strings.Contains(text, `contract_cosi_bucket_bytes{backend="main",bucket="photos",claim="",contract="red"`) {
		t.Error("what is not known or bounded is told")
	}
	m.Passed()
	m.BucketsMeasured(blue, []metrics.BucketUse{{Bucket: "photos", Bytes: n(6)}})
	m.Passed()
	text := page(t, m)
	has(t, text, `contract_cosi_bucket_bytes{backend="main",bucket="photos",claim="",contract="blue",namespace=""} 6`)
	if strings.Contains(text, `contract="red"`) || strings.Contains(text, `bucket="gone"`) {
		t.Error("what is gone is told")
	}
}

// What a service calls a bucket does not break the page, which any parser of the format
// reads, compressed or not.
func TestPageIsWellFormed(t *testing.T) {
	t.Parallel()
	m, n := metrics.New(), int64(5)
	hostile := "a\"} 1\n\\b\xff"
	m.BucketsMeasured(cosi.ContractID{Backend: "main", Contract: "blue"}, []metrics.BucketUse{{Bucket: hostile, Bytes: &n}, {Bucket: "photos", Bytes: &n, MaxBytes: &n}})
	for _, encoding := range []string{"", "gzip", "br, gzip", "br"} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		request.Header.Set("Accept-Encoding", encoding)
		request.Header.Set("Accept", "application/vnd.google.protobuf, application/openmetrics-text")
		answer := httptest.NewRecorder()
		m.Handler().ServeHTTP(answer, request)
		var body io.Reader = answer.Body
		if compressed := strings.Contains(encoding, "gzip"); compressed != (answer.Header().Get("Content-Encoding") == "gzip") {
			t.Fatalf("to %q it answers %q", encoding, answer.Header().Get("Content-Encoding"))
		} else if compressed {
			var err error
			if body, err = gzip.NewReader(body); err != nil {
				t.Fatal(err)
			}
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(body)
		if err != nil {
			t.Fatal(err)
		}
		told := families["contract_cosi_bucket_bytes"].GetMetric()
		if len(told) != 2 || told[0].GetGauge().GetValue() != 5 || told[0].GetLabel()[1].GetValue() != "a\"} 1\n\\b\uFFFD" {
			t.Errorf("told %v", told)
		}
		if got := answer.Header().Get("Content-Type"); families["go_goroutines"] == nil || got != "text/plain; version=0.0.4; charset=utf-8" {
			t.Errorf("content type %q, and %d families", got, len(families))
		}
	}
}

// Of very many buckets the fullest are told.
func TestVeryManyBuckets(t *testing.T) {
	t.Parallel()
	m, n := metrics.New(), func(i int64) *int64 { return &i }
	all := make([]metrics.BucketUse, 10_050)
	for i := range all {
		all[i] = metrics.BucketUse{Bucket: fmt.Sprintf("bucket-%d", i), Bytes: n(int64(i)), Objects: n(1)}
	}
	all[3].MaxBytes = n(4)
	m.BucketsMeasured(cosi.ContractID{Backend: "main", Contract: "blue"}, all)
	text := page(t, m)
	has(t, text, "contract_cosi_buckets_left_out 50")
	if got := strings.Count(text, "contract_cosi_bucket_bytes{"); got != 10_000 {
		t.Errorf("%d buckets are told of", got)
	}
	for bucket, told := range map[string]bool{"bucket-3": true, "bucket-4": false, "bucket-50": false, "bucket-51": true, "bucket-10049": true} {
		if strings.Contains(text, `bucket="`+bucket+`"`) != told {
			t.Errorf("%s: told %v", bucket, !told)
		}
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
