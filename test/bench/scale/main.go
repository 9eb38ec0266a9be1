// Command scale measures a driver that has made ten thousand buckets with two keys
// each, beside one that has made ten: its memory, its start, what a call costs, and
// what listing, audit and a pass of drift add. Given a kubeconfig, the journals are
// in Secrets of that cluster.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// What is wanted of 10,000 buckets, 20,000 keys and 500 contracts.
const (
	maxMiB       = 80
	maxAddedMiB  = 16
	maxStart     = 500 * time.Millisecond
	maxStartKube = 5 * time.Second
	maxCallRatio = 1.10
	maxStop      = 20 // ms
	longSilence  = 10 * time.Second
)

const (
	keysEach = 2
	callers  = 16
	rounds   = 16 // in which the two drivers take turns
	cycles   = 20 // of each round
)

func main() {
	var o options
	flag.IntVar(&o.buckets, "buckets", 10_000, "buckets, with two keys each")
	flag.StringVar(&o.parts, "parts", "start,cycle,list,drift,rewrite", "`parts` to measure when all is made, separated by commas")
	flag.IntVar(&o.contracts, "contracts", 500, "contracts that they are under")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` that reaches a cluster, for journals in Secrets")
	flag.StringVar(&o.namespace, "namespace", "contract-cosi", "`namespace` there, which must exist")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

type options struct {
	buckets, contracts           int
	kubeconfig, namespace, parts string
}

func (o options) has(part string) bool {
	return slices.Contains(strings.Split(o.parts, ","), part)
}

// world is a driver with a contract service of its own.
type world struct {
	options
	binaries    harness.Binaries
	dir, config string
	owner       string // which no earlier run in the cluster has had
	contractd   *harness.Contractd
	driver      *harness.Driver
}

func (o options) start(ctx context.Context, root, dir, name string) (w *world, err error) {
	w = &world{options: o, dir: filepath.Join(dir, name), owner: name + "-" + strings.ToLower(rand.Text())}
	w.binaries = harness.Binaries{Driver: filepath.Join(root, "bin", "contract-cosi-driver"), Contractd: filepath.Join(root, "bin", "contractd")}
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		return nil, err
	}
	if w.contractd, err = harness.StartContractd(ctx, w.binaries, w.dir); err != nil {
		return nil, err
	}
	if err := w.configure("onDemand:\n  backend: main\n"); err != nil {
		return nil, err
	}
	w.driver, err = harness.StartDriver(ctx, w.binaries, w.dir, w.config)
	return w, err
}

func (w *world) configure(contracts string) error {
	w.config = filepath.Join(w.dir, "config.yaml")
	text := harness.ConfigText(w.dir, w.contractd.API, w.contractd.TokenFile, contracts)
	text = strings.Replace(text, "owner: example-cluster", "owner: "+w.owner, 1)
	if w.kubeconfig != "" {
		text = harness.InSecrets(text, w.namespace, w.kubeconfig)
	}
	return os.WriteFile(w.config, []byte(text), 0o600)
}

// restart returns how long the driver takes until it is ready.
func (w *world) restart(ctx context.Context) (took time.Duration, err error) {
	if err := w.driver.Stop(); err != nil {
		return 0, err
	}
	begun := time.Now()
	if w.driver, err = harness.StartDriver(ctx, w.binaries, w.dir, w.config); err != nil {
		return 0, err
	}
	for ; ; time.Sleep(5 * time.Millisecond) {
		answer, err := http.Get("http://" + w.driver.HTTP + "/readyz")
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return time.Since(begun), nil
			}
		}
		if time.Since(begun) > time.Minute {
			return 0, errors.New("the driver is not ready after a minute")
		}
	}
}

func (w *world) stop() { _, _ = w.driver.Stop(), w.contractd.Stop() }

// call makes one call about a bucket or its key.
func (w *world) call(ctx context.Context, op, contract, name string, key int) error {
	client := cosiproto.NewProvisionerClient(w.driver.Conn)
	under := "main." + contract + "."
	access := fmt.Sprintf("ba-%d-%s", key, name)
	var err error
	switch op {
	case "create":
		_, err = client.DriverCreateBucket(ctx, &cosiproto.DriverCreateBucketRequest{Name: name, Parameters: map[string]string{"contract": contract}})
	case "grant":
		_, err = client.DriverGrantBucketAccess(ctx, &cosiproto.DriverGrantBucketAccessRequest{BucketId: under + name, Name: access, AuthenticationType: cosiproto.AuthenticationType_Key})
	case "revoke":
		_, err = client.DriverRevokeBucketAccess(ctx, &cosiproto.DriverRevokeBucketAccessRequest{BucketId: under + name, AccountId: under + access})
	case "delete":
		_, err = client.DriverDeleteBucket(ctx, &cosiproto.DriverDeleteBucketRequest{BucketId: under + name})
	}
	return err
}

// fill makes buckets with their keys, and returns how many keys were given in a
// second and the 99th percentile of what a grant took.
func (w *world) fill(ctx context.Context, buckets int) (rate float64, p99 time.Duration, err error) {
	name := func(i int) (contract, bucket string) {
		return fmt.Sprintf("team-%d", i%w.contracts), fmt.Sprintf("bucket-7f3c1e9a-4f0e-4b8d-9a51-%012d", i)
	}
	each := func(n int, do func(i int) error) error {
		var group errgroup.Group
		group.SetLimit(callers)
		for i := range n {
			group.Go(func() error { return do(i) })
		}
		return group.Wait()
	}
	if err := each(buckets, func(i int) error {
		contract, bucket := name(i)
		return w.call(ctx, "create", contract, bucket, 0)
	}); err != nil {
		return 0, 0, err
	}
	took := make([]time.Duration, buckets*keysEach)
	begun := time.Now()
	err = each(len(took), func(i int) error {
		contract, bucket := name(i / keysEach)
		start := time.Now()
		err := w.call(ctx, "grant", contract, bucket, i%keysEach)
		took[i] = time.Since(start)
		return err
	})
	slices.Sort(took)
	return float64(len(took)) / time.Since(begun).Seconds(), took[len(took)*99/100], err
}

// round returns the median times of the calls of some cycles, added up.
func (w *world) round(ctx context.Context, round int) (time.Duration, error) {
	var sum time.Duration
	ops := []string{"create", "grant", "revoke", "delete"}
	times := make([][]time.Duration, len(ops))
	for i := range cycles {
		for at, op := range ops {
			begun := time.Now()
			if err := w.call(ctx, op, "team-0", fmt.Sprintf("cycle-%d-%d", round, i), 0); err != nil {
				return 0, err
			}
			times[at] = append(times[at], time.Since(begun))
		}
	}
	for _, t := range times {
		slices.Sort(t)
		sum += t[len(t)/2]
	}
	return sum, nil
}

// rewrites opens the journal of a driver that is stopped, and writes to it until it
// has been rewritten some times. It returns by how much the longest call took more then
// than otherwise, as the median of the times.
func (w *world) rewrites(ctx context.Context) (time.Duration, error) {
	var done atomic.Int32
	store, err := filestore.Open(ctx, filepath.Join(w.dir, "journal.log"), func(operation string, _ error) {
		if operation == "rewrite" {
			done.Add(1)
		}
	})
	if err != nil {
		return 0, err
	}
	defer func() { _ = store.Close() }()
	records := journal.New(store)
	filler := &journal.Bucket{ID: cosi.BucketID{ContractID: cosi.ContractID{Backend: "main", Contract: "filler"}, Bucket: "filler"}, Requested: params.Bucket{Policy: strings.Repeat("x", 20_000)}}
	longest := func(until func() bool) (most time.Duration) {
		for err == nil && !until() {
			begun := time.Now()
			err = records.SaveBucket(ctx, filler)
			most = max(most, time.Since(begun))
		}
		return most
	}
	more := make([]time.Duration, 5)
	for i := range more {
		calls := 0
		quiet := longest(func() bool { calls++; return calls > 300 })
		more[i] = longest(func() bool { return done.Load() > int32(i) }) - quiet
	}
	slices.Sort(more)
	return more[len(more)/2], errors.Join(err, records.Delete(ctx, filler))
}

// list runs a command beside the driver, and returns what it wrote as progress and
// its memory in MiB.
func (w *world) list(ctx context.Context, args ...string) (progress string, mib float64, err error) {
	cmd := exec.CommandContext(ctx, w.binaries.Driver, append(args, "--config", w.config, "-o", "json")...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = io.Discard, &said
	if err := cmd.Run(); err != nil {
		return "", 0, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, said.String())
	}
	usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return said.String(), float64(usage.Maxrss) / 1024, nil
}

// passes waits until everything has been compared with the journal once more.
func (w *world) passes(ctx context.Context) error {
	first := ""
	for ; ; time.Sleep(time.Second) {
		answer, err := http.Get("http://" + w.driver.HTTP + "/metrics")
		if err != nil {
			return err
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			return err
		}
		_, rest, _ := strings.Cut(string(text), "\ncontract_cosi_drift_last_pass_timestamp_seconds ")
		now, _, _ := strings.Cut(rest, "\n")
		if first == "" {
			first = now
		}
		if now != first || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func run(ctx context.Context, out io.Writer, o options) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "contract-cosi-scale-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	store, start := "file", maxStart
	if o.kubeconfig != "" {
		if o.kubeconfig, err = filepath.Abs(o.kubeconfig); err != nil {
			return err
		}
		store, start = "Secrets", maxStartKube
	}
	small, err := o.start(ctx, root, dir, "scale-small")
	if err != nil {
		return err
	}
	defer func() { small.stop() }()
	large, err := o.start(ctx, root, dir, "scale-large")
	if err != nil {
		return err
	}
	defer func() { large.stop() }()
	var missed []string
	_, _ = fmt.Fprintf(out, "| journal: %s; %d buckets, %d keys, %d contracts | measured | target |\n|---|---|---|\n", store, o.buckets, keysEach*o.buckets, o.contracts)
	row := func(what, format string, value, most float64) {
		target := "≤ " + fmt.Sprintf(format, most)
		if value > most {
			target += " (missed)"
			missed = append(missed, what)
		}
		_, _ = fmt.Fprintf(out, "| %s | "+format+" | %s |\n", what, value, target)
	}

	if _, _, err := small.fill(ctx, 10); err != nil {
		return err
	}
	rate, p99, err := large.fill(ctx, o.buckets)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "| grants a second at concurrency %d | %.0f | |\n| 99th percentile of these grants | %d ms | |\n", callers, rate, p99.Milliseconds())
	made, err := harness.Memory(large.driver.PID(), "VmRSS")
	if err != nil {
		return err
	}
	row("resident memory, all made", "%.0f MiB", made, maxMiB)
	for _, part := range []struct {
		name    string
		measure func() error
	}{
		{"start", func() error {
			took, err := large.restart(ctx)
			if err != nil {
				return err
			}
			row("start to ready", "%.0f ms", float64(took.Milliseconds()), float64(start.Milliseconds()))
			peak, err := harness.Memory(large.driver.PID(), "VmHWM")
			row("resident memory, most during the start", "%.0f MiB", peak, maxMiB)
			return err
		}},
		{"cycle", func() error {
			var ratios []float64
			for round := range rounds {
				var sums [2]time.Duration
				for i := range 2 {
					which := i ^ round&1
					if sums[which], err = []*world{small, large}[which].round(ctx, round); err != nil {
						return err
					}
				}
				ratios = append(ratios, sums[1].Seconds()/sums[0].Seconds())
			}
			slices.Sort(ratios)
			row(fmt.Sprintf("a cycle at concurrency 1, to one among ten (middle half of the pairs %.2f to %.2f)", ratios[rounds/4], ratios[3*rounds/4]), "%.2f", ratios[rounds/2], maxCallRatio)
			return nil
		}},
		{"list", func() error {
			for _, args := range [][]string{{"buckets"}, {"keys"}, {"audit"}} {
				var progress string
				var own float64
				begun := time.Now()
				added, err := harness.Adds(large.driver.PID(), func() (err error) { progress, own, err = large.list(ctx, args...); return err })
				if err != nil {
					return err
				}
				if told := strings.Count(progress, "\n"); told == 0 && time.Since(begun) > longSilence {
					missed = append(missed, "progress of "+args[0])
				}
				row(fmt.Sprintf("%s -o json adds to the driver (%.1f s; the command has %.0f MiB, and told its progress %d times)", args[0], time.Since(begun).Seconds(), own, strings.Count(progress, "\n")), "%.0f MiB", added, maxAddedMiB)
			}
			return nil
		}},
		{"drift", func() error {
			if err := large.configure("onDemand:\n  backend: main\ndrift: {mode: report, interval: 1s, callsPerSecond: 10000}\n"); err != nil {
				return err
			}
			if _, err := large.restart(ctx); err != nil {
				return err
			}
			begun := time.Now()
			added, err := harness.Adds(large.driver.PID(), func() error { return large.passes(ctx) })
			row(fmt.Sprintf("a pass of drift adds to the driver (%.0f s)", time.Since(begun).Seconds()), "%.0f MiB", added, maxAddedMiB)
			return err
		}},
		{"rewrite", func() error {
			if o.kubeconfig != "" {
				return nil
			}
			if err := large.driver.Stop(); err != nil {
				return err
			}
			more, err := large.rewrites(ctx)
			row("longest call while the journal is rewritten, more than otherwise", "%.0f ms", float64(more.Milliseconds()), maxStop)
			return err
		}},
	} {
		if !o.has(part.name) {
			continue
		}
		if err := part.measure(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if len(missed) > 0 {
		return errors.New("missed: " + strings.Join(missed, "; "))
	}
	return nil
}
