// Package metrics counts what the driver does, for Prometheus.
//
// Every name begins with contract_cosi_. Labels have few values: methods,
// codes, operations, outcomes, and the backends and contracts that the
// configuration lists, never a key. Only what buckets hold has a series for each,
// and of that there is a bound. What counts events begins at zero for each label
// value that is known, so that a first event can be seen as an increase.
package metrics

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/keys"
	"github.com/contract-cosi/contract-cosi-driver/pkg/lease"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/site"
)

// Metrics is one driver's set of metrics.
type Metrics struct {
	registry *prometheus.Registry
	build    *prometheus.GaugeVec
	up       *prometheus.GaugeVec
	ready    prometheus.Gauge
	use      *uses
	contents *contents
	rpcs     *prometheus.HistogramVec
	panics   prometheus.Counter
	backend  *prometheus.CounterVec
	requests *prometheus.HistogramVec
	journal  *prometheus.CounterVec
	calls    *prometheus.CounterVec
	repairs  *prometheus.CounterVec
	changes  *prometheus.CounterVec
	reloads  *prometheus.CounterVec
	looks    *prometheus.CounterVec
	findings *prometheus.CounterVec
	pass     prometheus.Gauge
	interval prometheus.Gauge
	rotates  *prometheus.CounterVec
	leases   *prometheus.CounterVec
	asked    *prometheus.CounterVec
	events   *prometheus.CounterVec
	objects  *prometheus.CounterVec
	secrets  *prometheus.CounterVec
}

const namespace = "contract_cosi"

// What becomes of a change of the configuration file.
const (
	Taken     = "taken"
	Refused   = "refused"
	NextStart = "next-start"
)

// New returns an empty set that also describes the process.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		build: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "build_info", Help: "1, with the driver's version as a label.",
		}, []string{"version"}),
		up: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "backend_up", Help: "1 if the storage service could be used when the driver last looked, 0 if not.",
		}, []string{"backend"}),
		ready: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "journal_up", Help: "1 if the journal could be read and written when the driver last looked, 0 if not.",
		}),
		use: newUses(), contents: newContents(),
		rpcs: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "rpc_duration_seconds",
			Help:    "Duration of RPCs by full method and gRPC code; its _count counts them.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"method", "code"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "panics_total", Help: "RPCs that panicked and were answered with Internal.",
		}),
		backend: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "backend_calls_total",
			Help: "Calls tried at storage services, by backend, operation and outcome (ok, or the kind of fault).",
		}, []string{"backend", "operation", "outcome"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "backend_request_duration_seconds",
			Help:    "Duration of HTTP requests to storage services, with their answers' bodies; also of those without an answer.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20},
		}, []string{"backend"}),
		journal: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "journal_writes_total",
			Help: "Durable writes to the journal by operation and outcome.",
		}, []string{"operation", "outcome"}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "journal_calls_total",
			Help: "Calls tried at the Kubernetes API server for a journal in Secrets, by call and outcome.",
		}, []string{"call", "outcome"}),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "repairs_total",
			Help: "Things lost behind the driver's back and brought back, by what they were.",
		}, []string{"what"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "contract_changes_total",
			Help: "What became of contracts: signed, converged (brought to changed terms), cancelled, or kept at the service although their last bucket went.",
		}, []string{"change"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "config_reloads_total",
			Help: "Changes of the configuration file that were seen, by outcome: taken over, refused because of a fault, or left for the next start.",
		}, []string{"outcome"}),
		looks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "drift_looks_total",
			Help: "Things compared with the journal, by kind of record and outcome (ok, or the kind of fault that was in the way).",
		}, []string{"kind", "outcome"}),
		findings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "drift_findings_total",
			Help: "What had changed behind the driver's back, by what it was and whether it was repaired; counted at every look.",
		}, []string{"what", "repaired"}),
		pass: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "drift_last_pass_timestamp_seconds",
			Help: "When everything had been compared with the journal; the driver's start if it has not been since.",
		}),
		interval: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "drift_interval_seconds", Help: "In which time everything is compared with the journal, 0 if drift is off.",
		}),
		rotates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "key_rotations_total",
			Help: "Steps of the rotation of keys: issued (the new key), delivered (into the Secret) and ended (the old key is revoked).",
		}, []string{"step"}),
		leases: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "lease_changes_total",
			Help: "What became of the Lease beside a journal in Secrets: taken, released (for another driver, or at a stop) or lost.",
		}, []string{"change"}),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "lease_calls_total",
			Help: "Calls tried at the Kubernetes API server for that Lease, by call and outcome.",
		}, []string{"call", "outcome"}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "event_calls_total",
			Help: "Calls tried at the Kubernetes API server for Events on claims, by call and outcome.",
		}, []string{"call", "outcome"}),
		objects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "object_calls_total",
			Help: "Calls tried at the Kubernetes API server for contracts that are ordered in the cluster, by call and outcome.",
		}, []string{"call", "outcome"}),
		secrets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "secret_calls_total",
			Help: "Calls tried at the Kubernetes API server for the Secrets of applications, or of the command deliver in the driver's place, by call and outcome.",
		}, []string{"call", "outcome"}),
	}
	m.registry.MustRegister(m.build, m.up, m.ready, m.use, m.rpcs, m.panics, m.backend, m.requests, m.journal, m.calls, m.repairs, m.changes, m.reloads, m.looks,
		m.findings, m.pass, m.interval, m.rotates, m.leases, m.asked, m.events, m.objects, m.secrets, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for vec, values := range map[*prometheus.CounterVec][][]string{
		m.journal: {{"create", "ok"}, {"update", "ok"}, {"delete", "ok"}},
		m.changes: {{string(site.Signed)}, {string(site.Converged)}, {string(site.Cancelled)}, {string(site.Kept)}},
		m.reloads: {{Taken}, {Refused}, {NextStart}},
		m.looks:   {{string(journal.Contracts), "ok"}, {string(journal.Buckets), "ok"}, {string(journal.Accounts), "ok"}},
		m.rotates: {{keys.StepIssued}, {keys.StepDelivered}, {keys.StepEnded}},
	} {
		for _, v := range values {
			vec.WithLabelValues(v...)
		}
	}
	m.pass.SetToCurrentTime()
	for _, what := range provisioner.Findings() {
		m.repairs.WithLabelValues(what)
		for _, repaired := range []bool{false, true} {
			m.findings.WithLabelValues(what, strconv.FormatBool(repaired))
		}
	}
	return m
}

// Build says which version of the driver this is.
func (m *Metrics) Build(version string) { m.build.WithLabelValues(version).Set(1) }

// JournalUp records how a look at the journal went.
func (m *Metrics) JournalUp(up bool) { m.ready.Set(number(up)) }

// BackendUp records how a look at a storage service went.
func (m *Metrics) BackendUp(name string, up bool) { m.up.WithLabelValues(name).Set(number(up)) }

// Timed is a transport that measures the requests to one storage service.
func (m *Metrics) Timed(backend string, next http.RoundTripper) http.RoundTripper {
	return timed{next, m.requests.WithLabelValues(backend)}
}

// Live adds gauges of the contracts, buckets and keys that count reports.
func (m *Metrics) Live(contracts, buckets, keys func(context.Context) (int, error)) {
	gauge := func(name, help string, count func(context.Context) (int, error)) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, func() float64 {
			n, err := count(context.Background()) //nolint:forbidigo // a collector is given none
			if err != nil {
				return 0
			}
			return float64(n)
		}))
	}
	gauge("contracts", "Contracts in the journal.", contracts)
	gauge("buckets", "Buckets in the journal.", buckets)
	gauge("keys", "Keys in the journal.", keys)
}

// Writer adds a gauge of whether this driver may change things.
func (m *Metrics) Writer(held func() bool) {
	m.contents.writes = held
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "writer", Help: "1 if this driver has the Lease beside the journal, and so changes things at the storage services; 0 if not.",
	}, func() float64 { return number(held()) }))
	for _, change := range []lease.Change{lease.Taken, lease.Released, lease.Lost} {
		m.leases.WithLabelValues(string(change))
	}
}

// LeaseChanged records what became of the Lease.
func (m *Metrics) LeaseChanged(change string) { m.leases.WithLabelValues(change).Inc() }

// LeaseCall records a call tried for the Lease.
func (m *Metrics) LeaseCall(call string, err error) {
	m.asked.WithLabelValues(call, outcome(err)).Inc()
}

// EventCall records a call tried for an Event.
func (m *Metrics) EventCall(call string, err error) {
	m.events.WithLabelValues(call, outcome(err)).Inc()
}

// ObjectCall records a call tried for contracts that are ordered in the cluster.
func (m *Metrics) ObjectCall(call string, err error) {
	m.objects.WithLabelValues(call, outcome(err)).Inc()
}

// SecretCall records a call tried for the Secret of an application: a verb at the API
// server, or "deliver".
func (m *Metrics) SecretCall(call string, err error) {
	m.secrets.WithLabelValues(call, outcome(err)).Inc()
}

// RPC records one call.
func (m *Metrics) RPC(method, code string, took time.Duration) {
	m.rpcs.WithLabelValues(method, code).Observe(took.Seconds())
}

// Serves says which methods there are, each of which has been called 0 times.
func (m *Metrics) Serves(methods []string) {
	for _, method := range methods {
		m.rpcs.WithLabelValues(method, "OK")
	}
}

// Panic records a call that panicked.
func (m *Metrics) Panic() { m.panics.Inc() }

// Backend returns what records the calls tried at one storage service.
func (m *Metrics) Backend(name string) func(operation string, err error) {
	return func(operation string, err error) { m.backend.WithLabelValues(name, operation, outcome(err)).Inc() }
}

// JournalWrite records a durable write.
func (m *Metrics) JournalWrite(operation string, err error) {
	m.journal.WithLabelValues(operation, outcome(err)).Inc()
}

// JournalCall records a call tried at the Kubernetes API server.
func (m *Metrics) JournalCall(call string, err error) {
	m.calls.WithLabelValues(call, outcome(err)).Inc()
}

// Repaired records something that was lost behind the driver's back and re-created.
func (m *Metrics) Repaired(what string) { m.repairs.WithLabelValues(what).Inc() }

// ContractChanged records a step in a contract's life.
func (m *Metrics) ContractChanged(change string) { m.changes.WithLabelValues(change).Inc() }

// Reloaded records what became of a change of the configuration file.
func (m *Metrics) Reloaded(outcome string) { m.reloads.WithLabelValues(outcome).Inc() }

// Looked records that a thing was compared with the journal.
func (m *Metrics) Looked(kind string, err error) { m.looks.WithLabelValues(kind, outcome(err)).Inc() }

// Found records something that had changed behind the driver's back.
func (m *Metrics) Found(what string, repaired bool) {
	m.findings.WithLabelValues(what, strconv.FormatBool(repaired)).Inc()
}

// Passed records that everything was compared with the journal.
func (m *Metrics) Passed() {
	m.pass.SetToCurrentTime()
	m.contents.passed()
}

// DriftEvery says in which time everything is compared with the journal; 0 is
// never.
func (m *Metrics) DriftEvery(interval time.Duration) { m.interval.Set(interval.Seconds()) }

// Rotated records a step in the rotation of a key.
func (m *Metrics) Rotated(step string) { m.rotates.WithLabelValues(step).Inc() }

// Handler serves the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		families, err := m.registry.Gather()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
		to := io.Writer(w)
		if slices.Contains(strings.Split(strings.ReplaceAll(r.Header.Get("Accept-Encoding"), " ", ""), ","), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			compressed := gzip.NewWriter(w)
			defer func() { _ = compressed.Close() }()
			to = compressed
		}
		for _, family := range families {
			if _, err := expfmt.MetricFamilyToText(to, family); err != nil {
				return // who asked is gone
			}
		}
		_ = m.contents.write(to)
	})
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func outcome(err error) string {
	if err == nil {
		return "ok"
	}
	return string(fault.KindOf(err))
}
