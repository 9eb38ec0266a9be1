package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// recorder stands before the contract service and its storage, and writes down
// who changes what, and from when to when.
type recorder struct {
	mu    sync.Mutex
	calls []*changing
}

// changing is a call that changes something.
type changing struct {
	driver, what string
	begun, ended time.Time // ended is zero while it is under way
}

// proxy is an HTTP proxy for one driver. It closes with the test.
func (r *recorder) proxy(s *scenario, driver string) string {
	forward := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, ErrorLog: nil}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet || req.Method == http.MethodHead {
			forward.ServeHTTP(w, req)
			return
		}
		call := &changing{driver: driver, what: req.Method + " " + req.URL.Path, begun: time.Now()}
		r.mu.Lock()
		r.calls = append(r.calls, call)
		r.mu.Unlock()
		forward.ServeHTTP(w, req)
		r.mu.Lock()
		defer r.mu.Unlock()
		call.ended = time.Now()
	})}
	go func() { _ = server.Serve(listener) }()
	s.Cleanup(func() { _ = server.Close() })
	return "http://" + listener.Addr().String()
}

// firstOf is when a driver first changed something after a time.
func (r *recorder) firstOf(driver string, after time.Time) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c.driver == driver && c.begun.After(after) {
			return c.begun, true
		}
	}
	return time.Time{}, false
}

// overlaps are calls of two drivers that were under way at one time, but for what
// a driver had sent before it was killed or paused.
func (r *recorder) overlaps(stops map[string][]time.Time) (out []string, turns int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.calls, func(a, b *changing) int { return a.begun.Compare(b.begun) })
	sentBefore := func(c *changing) bool {
		return slices.ContainsFunc(stops[c.driver], func(stop time.Time) bool {
			return !c.begun.After(stop) && (c.ended.IsZero() || !c.ended.Before(stop))
		})
	}
	latest := map[string]*changing{} // by driver, the call of those before that ends last
	for i, c := range r.calls {
		if i > 0 && r.calls[i-1].driver != c.driver {
			turns++
		}
		for driver, open := range latest {
			if driver != c.driver && (open.ended.IsZero() || open.ended.After(c.begun)) && !sentBefore(open) {
				out = append(out, fmt.Sprintf("%s by %s from %s to %s, and %s by %s from %s", open.what, open.driver,
					open.begun.Format(time.StampMicro), open.ended.Format(time.StampMicro), c.what, c.driver, c.begun.Format(time.StampMicro)))
			}
		}
		if have := latest[c.driver]; have == nil || !have.ended.IsZero() && (c.ended.IsZero() || c.ended.After(have.ended)) {
			latest[c.driver] = c
		}
	}
	return out, turns
}

// pair is two drivers on one journal, each with a sidecar that is live: upstream's
// election is left out, so that both are called for everything.
type pair struct {
	*scenario
	recorder recorder
	drivers  map[string]*harness.Driver
	files    map[string]string
	stops    map[string][]time.Time
	outputs  []output
}

// output is what a process of a driver has printed.
type output struct {
	driver string
	*harness.Buffer
}

func (s *scenario) pair() *pair {
	p := &pair{scenario: s, drivers: map[string]*harness.Driver{}, files: map[string]string{}, stops: map[string][]time.Time{}}
	s.kill("sidecar")
	s.kill("driver")
	s.Cleanup(func() {
		for _, name := range []string{"a", "b"} {
			s.kill("sidecar-" + name)
			s.kill("driver-" + name)
		}
		s.must(errors.Join(s.startDriver(), s.startCOSI("sidecar", fast)))
	})
	for _, name := range []string{"a", "b"} {
		dir := s.TempDir()
		p.files[name] = filepath.Join(dir, "driver.yaml")
		text := strings.Replace(s.config(), "  contractapi: {", "  connection: {proxy: \""+p.recorder.proxy(s, name)+"\"}\n  contractapi: {", 1)
		s.must(os.WriteFile(p.files[name], []byte(text), 0o600))
		p.start(name)
		sidecar, err := harness.Start(s.ctx, s.cosiBin, "sidecar", "--kubeconfig", s.accounts[sidecarAccount], "--driver-addr", p.drivers[name].Endpoint,
			"--qps", fast, "--retry-max", "2s", "-v", "3")
		s.must(err)
		s.runs("sidecar-"+name, sidecar)
	}
	return p
}

func (p *pair) start(name string) {
	p.Helper()
	d, err := harness.StartDriver(p.ctx, p.build, filepath.Dir(p.files[name]), p.files[name], "-v", "2")
	p.must(err)
	p.drivers[name] = d
	p.outputs = append(p.outputs, output{name, d.Output})
	p.runs("driver-"+name, d.Process)
}

// change is a line of a driver's log about the Lease.
type change struct {
	driver string
	at     time.Time
	taken  bool // or given back
}

// changes are what became of the Lease, in order, by the drivers' logs.
func (p *pair) changes() []change {
	p.Helper()
	var out []change
	for _, o := range p.outputs {
		for line := range strings.Lines(o.String()) {
			taken := strings.Contains(line, `] "Took the Lease"`)
			if !taken && !strings.Contains(line, `] "Gave the Lease back"`) {
				continue
			}
			at, err := time.Parse("0102 15:04:05.000000", line[1:21]) // as klog begins a line
			p.must(err)
			out = append(out, change{o.driver, at, taken})
		}
	}
	slices.SortStableFunc(out, func(a, b change) int { return a.at.Compare(b.at) })
	return out
}

// holder is the driver that may change things now, and the other one.
func (p *pair) holder() (holder, other string) {
	p.Helper()
	p.until("a driver with the Lease", func() error {
		changes := p.changes()
		if len(changes) == 0 || !changes[len(changes)-1].taken {
			return errors.New("no driver has the Lease")
		}
		holder = changes[len(changes)-1].driver
		return nil
	})
	return holder, map[string]string{"a": "b", "b": "a"}[holder]
}

// handovers tells how often the Lease was given back, and how long it took at
// most until a driver had it again.
func (p *pair) handovers() (slowest time.Duration, times int) {
	p.Helper()
	changes := p.changes()
	for i := range len(changes) - 1 {
		if c, next := changes[i], changes[i+1]; !c.taken && next.taken {
			slowest, times = max(slowest, next.at.Sub(c.at)), times+1
		}
	}
	return slowest, times
}

// takenOver notes that a driver was stopped now, and waits until another changes
// something. It returns how long that took.
func (p *pair) takenOver(stopped, other string, since time.Time) time.Duration {
	p.Helper()
	var at time.Time
	p.until("taken over from "+stopped, func() error {
		first, ok := p.recorder.firstOf(other, since)
		if at = first; !ok {
			return errors.New("the other driver has changed nothing yet")
		}
		return nil
	})
	return at.Sub(since)
}

// writers lets two drivers be live on one journal, and stops the one that changes
// things in every way, while claims come. At no moment do both change something;
// nothing leaks, and every key that was handed out works.
func writers(s *scenario) {
	const batch, batches = 40, 5
	p := s.pair()
	n := s.tenant("writers", classes{})
	asked := 0
	ask := func() {
		s.must(each(batch, func(i int) error { return n.ask(numbered(asked + i)) }))
		asked += batch
	}
	ask()
	n.ready()

	holder, other := p.holder()
	since := time.Now()
	p.stops[holder] = append(p.stops[holder], since)
	s.kill("driver-" + holder)
	ask()
	killed := p.takenOver(holder, other, since)
	p.start(holder)
	n.ready()

	holder, other = p.holder()
	ask()
	since = time.Now()
	p.stops[holder] = append(p.stops[holder], since)
	delete(s.running, "driver-"+holder)
	s.must(p.drivers[holder].Stop()) // SIGTERM, and its calls end
	p.takenOver(holder, other, since)
	p.start(holder)
	n.ready()

	ask()
	holder, other = p.holder()
	since = time.Now()
	p.stops[holder] = append(p.stops[holder], since)
	pid := p.drivers[holder].Process.PID()
	s.must(syscall.Kill(pid, syscall.SIGSTOP))
	paused := p.takenOver(holder, other, since)
	s.must(syscall.Kill(pid, syscall.SIGCONT))
	n.ready()

	ask() // with both alive
	n.ready()
	s.note("taken over %.1f s after a kill, %.1f s after a pause", killed.Seconds(), paused.Seconds())
	for what, took := range map[string]time.Duration{"a kill": killed, "a pause": paused} {
		if took > 35*time.Second {
			s.Errorf("the other driver took over %s after %s, want 35 s at most", took, what)
		}
	}
	overlaps, turns := p.recorder.overlaps(p.stops)
	if err := some("calls of two drivers overlap", overlaps); err != nil {
		s.Error(err)
	} else {
		s.note("%d changing calls in %d turns, none of two drivers at once", len(p.recorder.calls), turns)
	}
	slowest, handovers := p.handovers()
	if slowest > 2*time.Second {
		s.Errorf("the Lease was given back and taken %s later, want 2 s at most", slowest)
	}
	s.note("%d handovers, each taken within %d ms of being given back", handovers, slowest.Milliseconds())
	n.useAll(asked)
	n.deleteAll()
	n.vanish()
}
