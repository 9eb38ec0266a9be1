// Command bench measures the driver beside what it cannot go below, in one run.
//
// There are two floors. The fewest calls are those that keep the driver's promises
// (the mark on a bucket, the limits of a key), made with bare clients. Its own calls
// are those that the driver makes, with the driver's own clients. Each floor also
// writes 512 bytes for every record that the driver makes durable: with an fdatasync or,
// where the journal is in Secrets, to a Secret.
//
// All take turns in small rounds, so that what disturbs the machine disturbs all.
// What is compared are ratios of a round, and their medians, because absolute times
// are the machine's.
//
// With -check another driver takes part, and the run fails if this one is slower.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

type options struct {
	backends, against, check, recorded string
	rounds, serial, parallel, live     int
	within                             time.Duration
	kubeconfig, namespace, out         string
}

func main() {
	o := options{}
	flag.StringVar(&o.backends, "backend", strings.Join(harness.StorageTypes, ","), "`types` of the storage services, separated by commas; rgw is left out where Ceph is not installed")
	flag.IntVar(&o.rounds, "rounds", 12, "rounds in which the sides take turns")
	flag.DurationVar(&o.within, "within", time.Hour, "`time` for all services, of which each has its share; no round begins after that, but the first four")
	flag.IntVar(&o.serial, "serial", 25, "calls of a kind at concurrency 1, of each side in a round")
	flag.IntVar(&o.parallel, "parallel", 200, "the same at concurrency 16")
	flag.IntVar(&o.live, "live", 200, "buckets and keys that are live meanwhile, of each side")
	flag.StringVar(&o.against, "against", "", "`file` of another driver to measure beside this one")
	flag.StringVar(&o.check, "check", "", "`file` of another driver, than which this one must not be slower")
	flag.StringVar(&o.recorded, "check-recorded", "", "`file` of results, to whose ratios this driver is held where there is no other driver")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` that reaches a cluster, in which the journal in Secrets is measured as well")
	flag.StringVar(&o.namespace, "namespace", "contract-cosi", "`namespace` there, which must exist")
	flag.StringVar(&o.out, "out", "", "`directory` for RESULTS.md and results.json; by default they are only printed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// The targets.
const (
	maxToFewest  = 2.0  // p50 at concurrency 1
	minOfFewest  = 0.6  // throughput at concurrency 16
	maxToOwn     = 1.10 // a cycle at concurrency 1, at the contract API
	minOfOwn     = 0.97 // at concurrency 16, at the contract API
	maxIdleMiB   = 24
	maxBinaryMiB = 40
	maxStart     = 20 * time.Millisecond
	minGrants    = 300 // a second at concurrency 16, journal in Secrets
	maxGrantP99  = 100 * time.Millisecond
)

func progressf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "%s  "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

func run(ctx context.Context, out io.Writer, o options) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "contract-cosi-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if o.check != "" {
		o.against = o.check
	}
	program := filepath.Join(root, "bin", "contract-cosi-driver")
	var all []*service
	kinds, begun := strings.Split(o.backends, ","), time.Now()
	services := len(kinds)
	if o.kubeconfig != "" {
		services++
	}
	for i, kind := range kinds {
		if _, err := exec.LookPath("radosgw"); kind == "rgw" && err != nil {
			progressf(out, "rgw is left out: %v", err)
			continue
		}
		s, err := o.measure(ctx, out, program, kind, filepath.Join(dir, kind), false, begun.Add(o.within*time.Duration(i+1)/time.Duration(services)))
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		all = append(all, s)
	}
	switch {
	case o.check != "":
		return o.confirm(ctx, out, program, dir, all, slower)
	case o.recorded != "":
		text, err := os.ReadFile(o.recorded)
		if err != nil {
			return err
		}
		var before results
		if err := json.Unmarshal(text, &before); err != nil {
			return err
		}
		return o.confirm(ctx, out, program, dir, all, before.slower)
	}
	if o.kubeconfig != "" {
		s, err := o.measure(ctx, out, program, "contractapi", filepath.Join(dir, "secrets"), true, begun.Add(o.within))
		if err != nil {
			return fmt.Errorf("journal in Secrets: %w", err)
		}
		all = append(all, s)
	}
	r := &results{Machine: fmt.Sprintf("%d cores, %s, %s", runtime.NumCPU(), runtime.GOARCH, runtime.Version()), Services: all}
	if err := r.measureProcess(ctx, dir, program); err != nil {
		return err
	}
	table := r.table()
	_, _ = fmt.Fprint(out, "\n", table)
	if o.out == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	return errors.Join(err,
		os.WriteFile(filepath.Join(o.out, "RESULTS.md"), []byte(table), 0o644),
		os.WriteFile(filepath.Join(o.out, "results.json"), append(text, '\n'), 0o644),
	)
}

// confirm measures what seems slower once more, with more rounds: only what is
// slower both times is.
func (o options) confirm(ctx context.Context, out io.Writer, program, dir string, all []*service, slower func(io.Writer, *service) []string) error {
	o.rounds *= 2
	var found []string
	for _, s := range all {
		first := slower(out, s)
		if len(first) == 0 {
			continue
		}
		progressf(out, "%s seems slower (%s); measuring it again", s.Name, strings.Join(first, ", "))
		again, err := o.measure(ctx, out, program, s.Name, filepath.Join(dir, s.Name+"-again"), false, time.Now().Add(o.within))
		if err != nil {
			return err
		}
		for _, what := range slower(out, again) {
			if slices.Contains(first, what) {
				found = append(found, s.Name+": "+what)
			}
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("slower by more than a tenth: %s", strings.Join(found, "; "))
	}
	return nil
}
