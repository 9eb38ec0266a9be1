package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	cosidriver "github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// rounds at a service of another type: the sides take turns, so that what else
// the machine does falls upon both.
const rounds = 4

// runBackend measures the driver beside the bare calls at a service of any
// type, and prints it.
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
	file, err := storage.WriteConfig(dir, "onDemand:\n  backend: main\n")
	if err != nil {
		return err
	}
	c, err := config.Load(file, cosidriver.Types())
	if err != nil {
		return err
	}
	services, err := cosidriver.Services(ctx, c)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 80}}
	bare, err := floorAt(ctx, services["main"], client, dir, c.Driver.Owner)
	if err != nil {
		return err
	}
	running, err := harness.StartDriver(ctx, harness.Binaries{Driver: filepath.Join(root, "bin", "contract-cosi-driver")}, dir, file)
	if err != nil {
		return err
	}
	defer func() { _ = running.Stop() }()
	conn, err := grpc.NewClient(running.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	sides := map[string]side{"driver": &driven{client: cosiproto.NewProvisionerClient(conn)}, "bare": bare}

	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(table, "%s\tconcurrency\tbare ms\tdriver ms\tratio\t\n", o.backend)
	for workers, cycle := range map[int]int{1: o.serial, parallelism: o.parallel} {
		times := map[string]map[string][]time.Duration{"driver": {}, "bare": {}}
		for round := range 2 * rounds {
			name := []string{"driver", "bare"}[round%2]
			got, err := cycles(ctx, sides[name], fmt.Sprintf("c%d-r%d", workers, round), workers, max(1, cycle/rounds))
			if err != nil {
				return err
			}
			for op, list := range got {
				times[name][op] = append(times[name][op], list...)
			}
		}
		for _, op := range ops {
			bare, driven := median(times["bare"][op]), median(times["driver"][op])
			_, _ = fmt.Fprintf(table, "%s\t%d\t%.1f\t%.1f\t%.2f\t\n", op, workers, bare, driven, driven/bare)
		}
	}
	return table.Flush()
}
