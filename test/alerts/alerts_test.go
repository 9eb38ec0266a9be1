// Package alerts puts the alerts that the chart ships to Prometheus' own query
// engine. It is a module of its own, so that Prometheus is no dependency of the
// driver.
package alerts

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	file = "../../deploy/chart/files/alerts.yaml"
	// scrape is how far apart samples are, and rules are evaluated.
	scrape = time.Minute
)

var syntax = parser.NewParser(parser.Options{})

// healthy are two drivers with drift off, at which nothing happens. A line is a
// series: values from minute 0 on, "0x9" being ten times 0 and "0+60x9" a rise.
var healthy = []string{
	`contract_cosi_build_info{job="d",namespace="s",pod="%s",version="v1"} 1x400`,
	`contract_cosi_journal_up{job="d",namespace="s",pod="%s"} 1x400`,
	`contract_cosi_backend_up{job="d",namespace="s",pod="%s",backend="main"} 1x400`,
	`contract_cosi_panics_total{job="d",namespace="s",pod="%s"} 0x400`,
	`contract_cosi_config_reloads_total{job="d",namespace="s",pod="%s",outcome="refused"} 0x400`,
	`contract_cosi_lease_changes_total{job="d",namespace="s",pod="%s",change="lost"} 0x400`,
	`contract_cosi_drift_findings_total{job="d",namespace="s",pod="%s",what="policy",repaired="false"} 0x400`,
	`contract_cosi_drift_findings_total{job="d",namespace="s",pod="%s",what="policy",repaired="true"} 0+1x400`,
	`contract_cosi_drift_last_pass_timestamp_seconds{job="d",namespace="s",pod="%s"} 0x400`,
	`contract_cosi_drift_interval_seconds{job="d",namespace="s",pod="%s"} 0x400`,
	`contract_cosi_contract_keys_ending{job="d",namespace="s",pod="%s",contract="blue"} 0x400`,
	`contract_cosi_contract_keys_ended{job="d",namespace="s",pod="%s",contract="blue"} 0x400`,
	`contract_cosi_contract_keys_overdue{job="d",namespace="s",pod="%s",contract="blue"} 0x400`,
	`contract_cosi_contract_buckets{job="d",namespace="s",pod="%s",contract="blue"} 5x400`,
	`contract_cosi_contract_max_buckets{job="d",namespace="s",pod="%s",contract="blue"} 10x400`,
	`contract_cosi_contract_keys{job="d",namespace="s",pod="%s",contract="blue"} 5x400`,
	`contract_cosi_rpc_duration_seconds_count{job="d",namespace="s",pod="%s",method="/cosi.v1alpha1.Provisioner/DriverCreateBucket",code="OK"} 0+6x400`,
	// A class that is wrong, or a contract that is full, is its team's affair.
	`contract_cosi_rpc_duration_seconds_count{job="d",namespace="s",pod="%s",method="/cosi.v1alpha1.Provisioner/DriverCreateBucket",code="ResourceExhausted"} 0+60x400`,
	`contract_cosi_rpc_duration_seconds_count{job="d",namespace="s",pod="%s",method="/cosi.v1alpha1.Provisioner/DriverCreateBucket",code="InvalidArgument"} 0+60x400`,
	`contract_cosi_rpc_duration_seconds_count{job="d",namespace="s",pod="%s",method="/grpc.health.v1.Health/Check",code="Unavailable"} 0+60x400`,
}

func bucketSeries(name, bucket string) string {
	return fmt.Sprintf(`contract_cosi_bucket_%s{job="d",namespace="s",pod="a",backend="main",contract="blue",bucket=%q,exported_namespace="team",claim=%q}`, name, bucket, bucket)
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, c := range []struct {
		name    string
		without bool     // the healthy drivers
		series  []string // in place of the healthy drivers' series of these labels, or beside them
		// fires is what fires at which minute: an alert with the labels that tell it
		// from another one.
		fires map[int][]string
	}{
		{name: "nothing happens", fires: map[int][]string{0: nil, 60: nil, 400: nil}},
		{
			name: "no driver", without: true,
			fires: map[int][]string{9: nil, 10: {"ContractCosiDriverAbsent"}},
		},
		{
			name:   "a backend is away for ten minutes",
			series: []string{`contract_cosi_backend_up{job="d",namespace="s",pod="a",backend="main"} 1x59 0x9 1x300`},
			fires:  map[int][]string{60: nil, 64: nil, 65: {`ContractCosiBackendDown{backend="main"}`}, 69: {`ContractCosiBackendDown{backend="main"}`}, 70: nil},
		},
		{
			name:   "a backend that is away for a moment, now and then",
			series: []string{`contract_cosi_backend_up{job="d",namespace="s",pod="a",backend="main"} 1 0 0 0 1 0 0 0 0 1 0 0 0 1`},
			fires:  map[int][]string{3: nil, 8: nil, 12: nil},
		},
		{
			name:   "a journal is away",
			series: []string{`contract_cosi_journal_up{job="d",namespace="s",pod="b"} 1x9 0x300`},
			fires:  map[int][]string{14: nil, 15: {"ContractCosiJournalDown"}},
		},
		{
			name: "the Lease goes from one driver to the other",
			series: []string{
				`contract_cosi_writer{job="d",namespace="s",pod="a"} 1x20 0x300`, `contract_cosi_writer{job="d",namespace="s",pod="b"} 0x22 1x300`,
			},
			fires: map[int][]string{22: nil, 30: nil},
		},
		{
			name:   "nobody has the Lease",
			series: []string{`contract_cosi_writer{job="d",namespace="s",pod="a"} 1x9 0x300`, `contract_cosi_writer{job="d",namespace="s",pod="b"} 0x300`},
			fires:  map[int][]string{14: nil, 15: {"ContractCosiNoWriter"}},
		},
		{
			name:   "a Lease is lost",
			series: []string{`contract_cosi_lease_changes_total{job="d",namespace="s",pod="a",change="lost"} 0x9 1x300`},
			fires:  map[int][]string{9: nil, 11: {"ContractCosiLeaseLost"}, 30: nil},
		},
		{
			name: "a service refuses calls",
			series: []string{
				`contract_cosi_rpc_duration_seconds_count{job="d",namespace="s",pod="a",method="/sigs.k8s.io.cosi.v1alpha2.Provisioner/DriverGrantBucketAccess",code="Unavailable"} 0x30 0+2x300`,
				`contract_cosi_rpc_duration_seconds_count{job="d",namespace="s",pod="a",method="/sigs.k8s.io.cosi.v1alpha2.Provisioner/DriverGrantBucketAccess",code="OK"} 0x30 0+2x300`,
			},
			fires: map[int][]string{30: nil, 44: nil, 60: {`ContractCosiRPCErrors{method="/sigs.k8s.io.cosi.v1alpha2.Provisioner/DriverGrantBucketAccess"}`}},
		},
		{
			name:   "a call in a hundred fails",
			series: []string{`contract_cosi_rpc_duration_seconds_count{job="d",namespace="s",pod="a",method="/cosi.v1alpha1.Provisioner/DriverCreateBucket",code="Unavailable"} 0+2x400`},
			fires:  map[int][]string{60: nil},
		},
		{
			name:   "a call panics",
			series: []string{`contract_cosi_panics_total{job="d",namespace="s",pod="a"} 0x9 1x300`},
			fires:  map[int][]string{9: nil, 11: {"ContractCosiPanic"}, 60: {"ContractCosiPanic"}, 75: nil},
		},
		{
			name:   "a configuration is refused",
			series: []string{`contract_cosi_config_reloads_total{job="d",namespace="s",pod="a",outcome="refused"} 0x9 1x300`},
			fires:  map[int][]string{9: nil, 11: {"ContractCosiConfigRefused"}, 60: {"ContractCosiConfigRefused"}},
		},
		{
			name: "drift is found, once an hour until it is put right",
			series: []string{
				`contract_cosi_drift_interval_seconds{job="d",namespace="s",pod="a"} 3600x400`,
				`contract_cosi_drift_last_pass_timestamp_seconds{job="d",namespace="s",pod="a"} 0x59 3600x59 7200x59 10800x59 14400x100`,
				`contract_cosi_drift_findings_total{job="d",namespace="s",pod="a",what="policy",repaired="false"} 0x59 1x59 2x59 3x200`,
			},
			fires: map[int][]string{
				59: nil, 61: {`ContractCosiDriftFound{what="policy"}`}, 150: {`ContractCosiDriftFound{what="policy"}`}, 290: {`ContractCosiDriftFound{what="policy"}`}, 305: nil,
			},
		},
		{
			name: "drift is not looked for",
			series: []string{
				`contract_cosi_drift_interval_seconds{job="d",namespace="s",pod="a"} 3600x400`,
				`contract_cosi_drift_last_pass_timestamp_seconds{job="d",namespace="s",pod="a"} 0x400`,
			},
			fires: map[int][]string{185: nil, 191: {"ContractCosiDriftLate"}},
		},
		{
			name:   "keys end",
			series: []string{`contract_cosi_contract_keys_ending{job="d",namespace="s",pod="a",contract="blue"} 0x9 2x300`},
			fires:  map[int][]string{14: nil, 15: {`ContractCosiKeyEndsSoon{contract="blue"}`}},
		},
		{
			name:   "keys have ended",
			series: []string{`contract_cosi_contract_keys_ended{job="d",namespace="s",pod="a",contract="blue"} 0x9 1x300`},
			fires:  map[int][]string{14: nil, 15: {`ContractCosiKeyEnded{contract="blue"}`}},
		},
		{
			name:   "keys are not renewed",
			series: []string{`contract_cosi_contract_keys_overdue{job="d",namespace="s",pod="a",contract="blue"} 0x9 2x300`},
			fires:  map[int][]string{129: nil, 130: {`ContractCosiKeyNotRenewed{contract="blue"}`}},
		},
		{
			name: "a contract fills up",
			series: []string{
				`contract_cosi_contract_buckets{job="d",namespace="s",pod="a",contract="blue"} 9x29 10x300`,
				`contract_cosi_contract_keys{job="d",namespace="s",pod="a",contract="blue"} 91x300`,
				`contract_cosi_contract_max_keys{job="d",namespace="s",pod="a",contract="blue"} 100x300`,
			},
			fires: map[int][]string{14: nil, 15: {`ContractCosiQuotaNearlyUsed{contract="blue", what="keys"}`}, 45: {
				`ContractCosiQuotaNearlyUsed{contract="blue", what="buckets"}`, `ContractCosiQuotaNearlyUsed{contract="blue", what="keys"}`,
			}},
		},
		{
			name: "buckets fill up",
			series: []string{
				bucketSeries("bytes", "photos") + ` 90x29 95x300`, bucketSeries("max_bytes", "photos") + ` 100x400`,
				bucketSeries("objects", "photos") + ` 0x400`, // which are not bounded
				bucketSeries("objects", "videos") + ` 91x300`, bucketSeries("max_objects", "videos") + ` 100x400`,
				bucketSeries("bytes", "music") + ` 91x400`,
			},
			fires: map[int][]string{14: nil, 15: {`ContractCosiBucketNearlyFull{backend="main", bucket="videos", claim="videos", contract="blue", exported_namespace="team", what="objects"}`}, 45: {
				`ContractCosiBucketNearlyFull{backend="main", bucket="photos", claim="photos", contract="blue", exported_namespace="team", what="bytes"}`,
				`ContractCosiBucketNearlyFull{backend="main", bucket="videos", claim="videos", contract="blue", exported_namespace="team", what="objects"}`,
			}},
		},
	} {
		for _, all := range c.fires {
			for _, alert := range all {
				name, _, _ := strings.Cut(alert, "{")
				tested[name] = true
			}
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := series{}
			if !c.without {
				for _, line := range healthy {
					all.add(t, fmt.Sprintf(line, "a"))
					all.add(t, fmt.Sprintf(line, "b"))
				}
			}
			for _, line := range c.series {
				all.add(t, line)
			}
			got := evaluate(t, all, slices.Max(slices.Collect(maps.Keys(c.fires))))
			for minute, want := range c.fires {
				if !slices.Equal(got[minute], want) {
					t.Errorf("minute %d: %q fire, want %q", minute, got[minute], want)
				}
			}
		})
	}
	for _, r := range rules(t) {
		if !tested[r.Alert] {
			t.Errorf("%s is not tested", r.Alert)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
			t.Errorf("%s has no summary, description or severity", r.Alert)
		}
	}
}

// rules reads the file as Prometheus does, which checks expressions and templates.
func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, syntax, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var out []rulefmt.Rule
	for _, g := range groups.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// evaluate returns which alerts fire in each minute up to the last.
func evaluate(t *testing.T, all series, last int) map[int][]string {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: syntax})
	start := time.Unix(0, 0)
	fires := map[int][]string{}
	for _, r := range rules(t) {
		q, err := engine.NewRangeQuery(t.Context(), all, nil, r.Expr, start, start.Add(time.Duration(last)*scrape), scrape)
		if err != nil {
			t.Fatal(err)
		}
		matrix, err := q.Exec(t.Context()).Matrix()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range matrix {
			since := -1
			for i, p := range s.Floats {
				minute := int(time.Duration(p.T) * time.Millisecond / scrape)
				if i == 0 || p.T-s.Floats[i-1].T > scrape.Milliseconds() {
					since = minute
				}
				if time.Duration(minute-since)*scrape >= time.Duration(r.For) {
					fires[minute] = append(fires[minute], named(r, s.Metric))
				}
			}
		}
		q.Close()
	}
	for _, names := range fires {
		slices.Sort(names)
	}
	return fires
}

// named is an alert with the labels that tell it from another of the same driver.
func named(r rulefmt.Rule, metric labels.Labels) string {
	b := labels.NewBuilder(metric)
	if what := r.Labels["what"]; what != "" {
		b.Set("what", what)
	}
	out := r.Alert + b.Del("job", "namespace").Labels().String()
	return strings.TrimSuffix(out, "{}")
}

// series is a storage in memory, by the text of the labels.
type series map[string]promql.Series

// add takes a series in place of any other with its labels.
func (s series) add(t *testing.T, line string) {
	t.Helper()
	metric, values, err := syntax.ParseSeriesDesc(line)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	one := promql.Series{Metric: metric}
	for i, v := range values {
		if !v.Omitted {
			one.Floats = append(one.Floats, promql.FPoint{T: int64(i) * scrape.Milliseconds(), F: v.Value})
		}
	}
	s[metric.String()] = one
}

// Querier implements storage.Queryable.
func (s series) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		set := &selected{}
		for _, one := range s {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(one.Metric.Get(m.Name)) }) {
				set.all = append(set.all, one)
			}
		}
		return set
	}}, nil
}

// selected goes through series; it implements storage.SeriesSet.
type selected struct {
	all []promql.Series
	at  int
}

func (s *selected) Next() bool {
	s.at++
	return s.at <= len(s.all)
}
func (s *selected) At() storage.Series              { return promql.NewStorageSeries(s.all[s.at-1]) }
func (*selected) Err() error                        { return nil }
func (*selected) Warnings() annotations.Annotations { return nil }

var _ storage.Queryable = series{}
