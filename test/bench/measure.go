package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

const parallelism = 16

// The sides, as the tables name them.
const (
	fewestCalls = "fewest calls"
	ownCalls    = "its own calls"
	before      = "another driver"
	thisDriver  = "this driver"
)

// service is what was measured at one.
type service struct {
	Name  string   `json:"name"`
	Store string   `json:"journal"`
	Live  int      `json:"live"`
	Sides []string `json:"sides"`
	// Serial has the medians in ms of each round at concurrency 1, and Parallel how
	// many calls were made in a second of each round at 16; by side and operation.
	Serial   map[string]map[string][]float64 `json:"serialMs"`
	Parallel map[string]map[string][]float64 `json:"perSecond"`
	// CPU is what a call costs the driver's process in ms, at concurrency 16.
	CPU map[string]float64 `json:"driverCpuMs"`
	// GrantP99 is the 99th percentile of grants at concurrency 16, in ms.
	GrantP99 float64 `json:"grantP99Ms"`
	// LiveMiB is the driver's memory with all that was made.
	LiveMiB float64 `json:"liveMiB"`
}

// enough rounds give a median and quartiles.
const enough = 4

// measure lets the sides take turns at a service, until end if that is after enough
// rounds.
func (o options) measure(ctx context.Context, out io.Writer, program, kind, dir string, secrets bool, end time.Time) (*service, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	storage, err := harness.StartStorage(ctx, kind, dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = storage.Stop() }()
	s := &service{Name: kind, Store: "file", Live: o.live, Serial: map[string]map[string][]float64{}, Parallel: map[string]map[string][]float64{}, CPU: map[string]float64{}}
	file, err := storage.WriteConfig(dir, "onDemand:\n  backend: main\n")
	if err != nil {
		return nil, err
	}
	sides := map[string]side{}
	if o.check == "" { // two drivers need no floor
		var recorded [2]records
		for i, side := range []string{"own", "fewest"} {
			if recorded[i], err = o.newRecords(dir, side, secrets); err != nil {
				return nil, err
			}
		}
		own, err := newOwn(ctx, file, recorded[0])
		if err != nil {
			return nil, err
		}
		s.Sides, sides[fewestCalls], sides[ownCalls] = []string{fewestCalls, ownCalls}, newFewest(storage, own, recorded[1]), own
	}
	if kind == "iam" || kind == "rgw" { // which are slow themselves
		o.serial, o.parallel, o.live = max(1, o.serial/2), max(parallelism, o.parallel/4), max(parallelism, o.live/4)
		s.Live = o.live
	}
	var pid int
	for _, one := range []struct{ name, owner, program string }{{before, "before", o.against}, {thisDriver, "driver", program}} {
		if one.program == "" {
			continue
		}
		home := filepath.Join(dir, one.owner)
		if err := os.Mkdir(home, 0o700); err != nil {
			return nil, err
		}
		if file, err = storage.WriteConfig(home, "onDemand:\n  backend: main\n"); err != nil {
			return nil, err
		}
		if secrets {
			s.Store = "Secrets"
			if err := o.moveToSecrets(file); err != nil {
				return nil, err
			}
		}
		running, err := harness.StartDriver(ctx, harness.Binaries{Driver: one.program}, home, file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = running.Stop() }()
		// A plain connection, as the sidecar's is: the library's logs each message.
		conn, err := grpc.NewClient(running.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		defer func() { _ = conn.Close() }()
		sides[one.name] = &driven{cosiproto.NewProvisionerClient(conn), "bench-" + one.owner}
		s.Sides, pid = append(s.Sides, one.name), running.PID()
	}
	for _, name := range s.Sides {
		s.Serial[name], s.Parallel[name] = map[string][]float64{}, map[string][]float64{}
		for _, op := range ops[:2] {
			if _, _, err := phase(ctx, sides[name], op, "live", parallelism, max(o.live, parallelism)); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", name, op, err)
			}
		}
	}
	busy := map[string]time.Duration{}
	var grants []time.Duration
	rounds := 0
	for ; rounds < o.rounds && (rounds < enough || time.Now().Before(end)); rounds++ {
		turn := slices.Clone(s.Sides)
		if rounds%2 == 1 {
			slices.Reverse(turn)
		}
		for _, op := range ops {
			for _, name := range turn {
				took, _, err := phase(ctx, sides[name], op, fmt.Sprintf("s%d", rounds), 1, o.serial)
				if err != nil {
					return nil, fmt.Errorf("%s: %s: %w", name, op, err)
				}
				s.Serial[name][op] = append(s.Serial[name][op], quantile(took, .5))
			}
		}
		for _, op := range ops {
			for _, name := range turn {
				start, err := cpu(pid)
				if err != nil {
					return nil, err
				}
				took, rate, err := phase(ctx, sides[name], op, fmt.Sprintf("p%d", rounds), parallelism, o.parallel)
				if err != nil {
					return nil, fmt.Errorf("%s: %s: %w", name, op, err)
				}
				s.Parallel[name][op] = append(s.Parallel[name][op], rate)
				if name == thisDriver {
					end, err := cpu(pid)
					if err != nil {
						return nil, err
					}
					if busy[op] += end - start; op == "grant" {
						grants = append(grants, took...)
					}
				}
			}
		}
	}
	for op, d := range busy {
		s.CPU[op] = float64(d.Microseconds()) / 1000 / float64(rounds*o.parallel)
	}
	s.GrantP99 = quantile(grants, .99)
	if s.LiveMiB, err = harness.Memory(pid, "VmRSS"); err != nil {
		return nil, err
	}
	for _, other := range s.Sides[:len(s.Sides)-1] {
		progressf(out, "%s, journal in %s: a cycle takes %.2f of %s at concurrency 1, and %.2f at %d", kind, s.Store, middle(s.serial(thisDriver, other, "")), other, middle(s.parallel(other, thisDriver, "")), parallelism)
	}
	return s, nil
}

func (o options) moveToSecrets(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	kubeconfig, err := filepath.Abs(o.kubeconfig)
	if err != nil {
		return err
	}
	// Drivers with an owner of their own do not see each other's records, nor those of an earlier run.
	moved := strings.Replace(harness.InSecrets(string(text), o.namespace, kubeconfig), "owner: example-cluster", "owner: bench-"+strings.ToLower(rand.Text()), 1)
	return os.WriteFile(file, []byte(moved), 0o600)
}

// serial returns, for each round, what one side takes at concurrency 1 to what
// another takes: for an operation or, if it is "", for all together.
func (s *service) serial(one, other, op string) []float64 {
	a, b := s.cycle(s.Serial[one], op), s.cycle(s.Serial[other], op)
	for i := range a {
		a[i] /= b[i]
	}
	return a
}

// parallel is the same at concurrency 16, of the calls in a second.
func (s *service) parallel(one, other, op string) []float64 {
	a, b := inverse(s.cycle(inverseAll(s.Parallel[one]), op)), inverse(s.cycle(inverseAll(s.Parallel[other]), op))
	for i := range a {
		a[i] /= b[i]
	}
	return a
}

// cycle adds the times of all operations up, or returns those of one.
func (s *service) cycle(times map[string][]float64, op string) []float64 {
	if op != "" {
		return slices.Clone(times[op])
	}
	sum := make([]float64, len(times[ops[0]]))
	for _, list := range times {
		for i, v := range list {
			sum[i] += v
		}
	}
	return sum
}

func inverse(list []float64) []float64 {
	out := make([]float64, len(list))
	for i, v := range list {
		out[i] = 1 / v
	}
	return out
}

func inverseAll(m map[string][]float64) map[string][]float64 {
	out := map[string][]float64{}
	for k, v := range m {
		out[k] = inverse(v)
	}
	return out
}

// phase makes n calls of one kind, and returns their times and how many were made
// in a second.
func phase(ctx context.Context, s side, op, round string, workers, n int) ([]time.Duration, float64, error) {
	times := make([]time.Duration, n)
	var group errgroup.Group
	group.SetLimit(workers)
	begun := time.Now()
	for i := range n {
		group.Go(func() error {
			start := time.Now()
			err := s.do(ctx, op, fmt.Sprintf("%s-%d", round, i))
			times[i] = time.Since(start)
			return err
		})
	}
	err := group.Wait()
	return times, float64(n) / time.Since(begun).Seconds(), err
}

// tolerated is how much slower a driver may be, beyond what the noise explains.
const tolerated = 1.10

// ratio is the median of what was measured in pairs, and how far off chance may have
// put it: the notch of a box plot, 1.57 interquartile ranges over the root of the
// number (McGill, Tukey and Larsen, 1978).
func ratio(pairs []float64) (median, spread float64) {
	pairs = slices.Sorted(slices.Values(pairs))
	n := len(pairs)
	return middle(pairs), 1.57 * (pairs[n*3/4] - pairs[n/4]) / math.Sqrt(float64(n))
}

// slower names the operations in which this driver is slower than the other, and
// prints all ratios with their spread.
func slower(out io.Writer, s *service) (found []string) {
	judge := func(what string, pairs []float64) {
		median, spread := ratio(pairs)
		mark := ""
		if median-spread > tolerated {
			mark, found = "  SLOWER", append(found, fmt.Sprintf("%s %.2f ± %.2f", what, median, spread))
		}
		_, _ = fmt.Fprintf(out, "  %-24s %.2f ± %.2f%s\n", what, median, spread, mark)
	}
	_, _ = fmt.Fprintf(out, "%s: times, this driver to the one before\n", s.Name)
	for _, op := range ops {
		judge(op+" at 1", s.serial(thisDriver, before, op))
		judge(op+fmt.Sprintf(" at %d", parallelism), s.parallel(before, thisDriver, op))
	}
	for i, f := range found { // the numbers of a second run differ
		found[i], _, _ = strings.Cut(f, " ±")
		found[i] = found[i][:strings.LastIndex(found[i], " ")]
	}
	return found
}

// slower is the same beside results that were recorded: of the ratios to the
// driver's own calls.
func (r *results) slower(out io.Writer, s *service) (found []string) {
	compared := false
	for _, b := range r.Services {
		if b.Name != s.Name || b.Store != s.Store {
			continue
		}
		compared = true
		_, _ = fmt.Fprintf(out, "%s: times to its own calls, now and as recorded\n", s.Name)
		for _, op := range ops {
			for _, at := range []struct {
				what     string
				now, was []float64
			}{
				{op + " at 1", s.serial(thisDriver, ownCalls, op), b.serial(thisDriver, ownCalls, op)},
				{op + fmt.Sprintf(" at %d", parallelism), s.parallel(ownCalls, thisDriver, op), b.parallel(ownCalls, thisDriver, op)},
			} {
				now, spread := ratio(at.now)
				was, wasSpread := ratio(at.was)
				_, _ = fmt.Fprintf(out, "  %-24s %.2f ± %.2f, recorded %.2f ± %.2f\n", at.what, now, spread, was, wasSpread)
				if now-spread > tolerated*(was+wasSpread) {
					found = append(found, at.what)
				}
			}
		}
	}
	if !compared {
		found = append(found, "no ratios were recorded")
	}
	return found
}

// results is what is kept of a run.
type results struct {
	Machine   string     `json:"machine"`
	Services  []*service `json:"services"`
	BinaryMiB float64    `json:"binaryMiB"`
	StartMS   float64    `json:"startMs"`
	HopMS     float64    `json:"hopMs"`
	IdleMiB   float64    `json:"idleMiB"`
	IdleCPU   float64    `json:"idleCpu"` // of a core
}

// measureProcess measures a driver that is not called.
func (r *results) measureProcess(ctx context.Context, dir, program string) error {
	stripped := filepath.Join(dir, "stripped")
	root, err := harness.Root()
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-trimpath", "-ldflags", "-s -w", "-o", stripped, "./cmd/contract-cosi-driver")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	info, err := os.Stat(stripped)
	if err != nil {
		return err
	}
	r.BinaryMiB = float64(info.Size()) / (1 << 20)
	home := filepath.Join(dir, "idle")
	if err := os.Mkdir(home, 0o700); err != nil {
		return err
	}
	storage, err := harness.StartStorage(ctx, "contractapi", home)
	if err != nil {
		return err
	}
	defer func() { _ = storage.Stop() }()
	config, err := storage.WriteConfig(home, "onDemand:\n  backend: main\n")
	if err != nil {
		return err
	}
	if r.StartMS, err = starts(ctx, program, home, config); err != nil {
		return err
	}
	driver, err := harness.StartDriver(ctx, harness.Binaries{Driver: program}, home, config)
	if err != nil {
		return err
	}
	defer func() { _ = driver.Stop() }()
	const settle, idle = 2 * time.Second, 20 * time.Second
	time.Sleep(settle)
	first, err := cpu(driver.PID())
	if err != nil {
		return err
	}
	time.Sleep(idle)
	last, err := cpu(driver.PID())
	if err != nil {
		return err
	}
	r.IdleCPU = (last - first).Seconds() / idle.Seconds()
	if r.IdleMiB, err = harness.Memory(driver.PID(), "VmRSS"); err != nil {
		return err
	}
	r.HopMS, err = hop(ctx, driver.Conn)
	return err
}

// starts is the median time from exec to the first answered DriverGetInfo.
func starts(ctx context.Context, program, dir, config string) (float64, error) {
	const n = 11
	socket := filepath.Join(dir, "start.sock")
	var times []time.Duration
	for range n {
		cmd := exec.CommandContext(ctx, program, "--config", config, "--endpoint", "unix://"+socket, "--http-endpoint", "127.0.0.1:0")
		start := time.Now()
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		for {
			if c, err := net.Dial("unix", socket); err == nil {
				_ = c.Close()
				break
			}
			if time.Since(start) > 10*time.Second {
				return 0, errors.New("the driver does not start")
			}
			time.Sleep(time.Millisecond)
		}
		conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return 0, err
		}
		if _, err := cosiproto.NewIdentityClient(conn).DriverGetInfo(ctx, &cosiproto.DriverGetInfoRequest{}); err != nil {
			return 0, err
		}
		times = append(times, time.Since(start))
		_ = conn.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			return 0, err
		}
	}
	return quantile(times, .5), nil
}

// hop is the median time of a call over the socket that does nothing.
func hop(ctx context.Context, conn *grpc.ClientConn) (float64, error) {
	const n = 2000
	times := make([]time.Duration, n)
	for i := range times {
		start := time.Now()
		if _, err := cosiproto.NewIdentityClient(conn).DriverGetInfo(ctx, &cosiproto.DriverGetInfoRequest{}); err != nil {
			return 0, err
		}
		times[i] = time.Since(start)
	}
	return quantile(times, .5), nil
}

// cpu is what a process has had of the processors.
func cpu(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// proc_pid_stat(5): after the name in brackets, utime is field 14 and stime 15,
	// in ticks of 10 ms.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks int64
	for _, field := range fields[14-3 : 16-3] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// quantile is in ms.
func quantile(list []time.Duration, q float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return float64(list[int(q*float64(len(list)-1))].Microseconds()) / 1000
}

func middle(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// table is what RESULTS.md says.
func (r *results) table() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("# The driver beside the fewest calls\n\nWritten by `make bench` on %s. The fewest calls are those that keep the promises\n", r.Machine)
	p("(the mark on a bucket, the limits of a key), made with bare clients; its own calls are those that the driver makes, with\n")
	p("its clients. Both also write a record for each that has to be durable: with an fdatasync, or to a Secret with a bare client. The\n")
	p("sides take turns in small rounds; what is compared are the medians of the ratios of a round. Each entry is the median time in ms at concurrency 1 and how many were\n")
	p("done in a second at concurrency %d. For its ratios, less is better in the first number, more in the second.\n", parallelism)
	for _, s := range r.Services {
		p("\n| %s, journal in %s, %d live | create | grant | revoke | delete | cycle |\n|---|---|---|---|---|---|\n", s.Name, s.Store, s.Live)
		columns := append(slices.Clone(ops), "")
		for _, side := range s.Sides {
			p("| %s |", side)
			for _, op := range columns {
				p(" %.2f · %.0f |", middle(s.cycle(s.Serial[side], op)), middle(inverse(s.cycle(inverseAll(s.Parallel[side]), op))))
			}
			p("\n")
		}
		for _, floor := range s.Sides[:len(s.Sides)-1] {
			p("| to %s |", floor)
			for _, op := range columns {
				slow, fast := middle(s.serial(thisDriver, floor, op)), middle(s.parallel(thisDriver, floor, op))
				mark := ""
				if floor == fewestCalls && op != "" && (slow > maxToFewest || fast < minOfFewest) || floor == ownCalls && op == "" && s.Name == "contractapi" && s.Store == "file" && (slow > maxToOwn || fast < minOfOwn) {
					mark = " (missed)"
				}
				p(" %.2f · %.2f%s |", slow, fast, mark)
			}
			p("\n")
		}
		p("| CPU of the driver, ms a call |")
		for _, op := range ops {
			p(" %.2f |", s.CPU[op])
		}
		p(" |\n")
	}
	p("\n| figure | measured | target |\n|---|---|---|\n")
	row := func(what, format string, value, target float64, atLeast bool) {
		sign, mark := "≤", ""
		if atLeast {
			sign = "≥"
		}
		if atLeast && value < target || !atLeast && value > target {
			mark = " (missed)"
		}
		p("| %s | "+format+"%s | %s "+format+" |\n", what, value, mark, sign, target)
	}
	p("| a call to the fewest calls, at every service | above | ≤ %.1f at concurrency 1, ≥ %.1f at %d |\n", maxToFewest, minOfFewest, parallelism)
	p("| a cycle to its own calls, at the contract API | above | ≤ %.2f at concurrency 1, ≥ %.2f at %d |\n", maxToOwn, minOfOwn, parallelism)
	for _, s := range r.Services {
		if s.Store == "Secrets" {
			row(fmt.Sprintf("journal in Secrets: grants a second at concurrency %d", parallelism), "%.0f", middle(s.Parallel[thisDriver]["grant"]), minGrants, true)
			row("journal in Secrets: 99th percentile of these", "%.0f ms", s.GrantP99, float64(maxGrantP99.Milliseconds()), false)
		}
	}
	row("driver, stripped", "%.1f MiB", r.BinaryMiB, maxBinaryMiB, false)
	row("start to first DriverGetInfo", "%.0f ms", r.StartMS, float64(maxStart.Milliseconds()), false)
	p("| a call that does nothing (DriverGetInfo), at concurrency 1 | %.2f ms | |\n", r.HopMS)
	row("resident memory, idle", "%.1f MiB", r.IdleMiB, maxIdleMiB, false)
	row("processor, idle", "%.2f %% of a core", 100*r.IdleCPU, 0.1, false)
	return b.String()
}
