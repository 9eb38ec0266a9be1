package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	cosidriver "github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// rounds at a service of another type: the sides take turns, so that what else
// the machine does falls upon all.
const rounds = 4

// runBackend measures the driver beside the bare calls at a service of any
// type, and prints it: the medians of the calls' times, how many were done in a
// second, and what each cost the driver's process. So many buckets and keys as o says are live meanwhile.
func runBackend(ctx context.Context, out io.Writer, o options) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "contract-cosi-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	storage, err := harness.StartStorage(ctx, o.backend, dir)
	if err != nil {
		return err
	}
	defer func() { _ = storage.Stop() }()
	measured := []string{"bare"}
	sides, pids := map[string]side{}, map[string]int{}
	for _, one := range []struct{ name, program string }{{"before", o.against}, {"driver", filepath.Join(root, "bin", "contract-cosi-driver")}} {
		if one.program == "" {
			continue
		}
		home := filepath.Join(dir, one.name)
		if err := os.Mkdir(home, 0o700); err != nil {
			return err
		}
		file, err := storage.WriteConfig(home, "onDemand:\n  backend: main\n")
		if err != nil {
			return err
		}
		if sides["bare"] == nil {
			if sides["bare"], err = bareAt(ctx, file, dir); err != nil {
				return err
			}
		}
		running, err := harness.StartDriver(ctx, harness.Binaries{Driver: one.program}, home, file)
		if err != nil {
			return err
		}
		defer func() { _ = running.Stop() }()
		conn, err := grpc.NewClient(running.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		sides[one.name] = &driven{cosiproto.NewProvisionerClient(conn), "bench-" + one.name}
		measured, pids[one.name] = append(measured, one.name), running.PID()
	}
	for _, name := range measured {
		for _, op := range []string{"create", "grant"} {
			if _, _, err := phase(ctx, sides[name], op, "live", parallelism, o.live); err != nil {
				return err
			}
		}
	}

	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(table, "%s, %d live\t", o.backend, o.live)
	for _, name := range measured {
		_, _ = fmt.Fprintf(table, "%s ms\t", name)
	}
	for _, name := range measured {
		_, _ = fmt.Fprintf(table, "%s /s\t", name)
	}
	for _, name := range measured[1:] {
		_, _ = fmt.Fprintf(table, "%s CPU ms\t", name)
	}
	_, _ = fmt.Fprintln(table)
	for _, setting := range []struct{ workers, n int }{{1, o.serial}, {parallelism, o.parallel}} {
		times, rates, busy := map[string][]time.Duration{}, map[string][]float64{}, map[string]time.Duration{}
		for round := range rounds {
			for _, name := range measured {
				for _, op := range ops {
					before, err := cpu(pids[name])
					if err != nil {
						return err
					}
					took, rate, err := phase(ctx, sides[name], op, fmt.Sprintf("c%d-r%d", setting.workers, round), setting.workers, max(1, setting.n/rounds))
					if err != nil {
						return err
					}
					after, err := cpu(pids[name])
					if err != nil {
						return err
					}
					busy[name+op] += after - before
					times[name+op], rates[name+op] = append(times[name+op], took...), append(rates[name+op], rate)
				}
			}
		}
		for _, op := range ops {
			_, _ = fmt.Fprintf(table, "%s at %d\t", op, setting.workers)
			for _, name := range measured {
				_, _ = fmt.Fprintf(table, "%.2f\t", median(times[name+op]))
			}
			for _, name := range measured {
				_, _ = fmt.Fprintf(table, "%.0f\t", middle(rates[name+op]))
			}
			for _, name := range measured[1:] {
				_, _ = fmt.Fprintf(table, "%.2f\t", busy[name+op].Seconds()*1000/float64(len(times[name+op])))
			}
			_, _ = fmt.Fprintln(table)
		}
	}
	return table.Flush()
}

// bareAt is the floor at the service of a configuration.
func bareAt(ctx context.Context, file, dir string) (*floor, error) {
	c, err := config.Load(file, cosidriver.Types())
	if err != nil {
		return nil, err
	}
	services, err := cosidriver.Services(ctx, c)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 80}}
	return floorAt(ctx, services["main"], client, dir, c.Driver.Owner)
}

// cpu is what a process has had of the processors; none of no process.
func cpu(pid int) (time.Duration, error) {
	if pid == 0 {
		return 0, nil
	}
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

// phase makes n calls of one kind, and returns their times and how many were done
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
