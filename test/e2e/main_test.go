package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
)

// shared is the world that all scenarios run in, one after the other, and what
// became of them.
var shared struct {
	*world
	rows []row
}

// limit is for all scenarios together. go test's own would leave everything
// behind that runs.
const limit = 20 * time.Minute

// row is a line of the table at the end.
type row struct {
	scenario string
	took     time.Duration
	outcome  string
	notes    string
}

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "aws" {
		if err := awsCopy(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	kube := flag.String("kube", "", "`directory` with etcd, kube-apiserver and kubectl")
	bin := flag.String("bin", filepath.Join("..", "..", "bin"), "`directory` with contract-cosi-driver, contractd and cosi")
	flag.Parse()
	code, err := runAll(m, *kube, *bin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// runAll starts the world, runs the scenarios and prints the table. Whatever
// happens, nothing goes on running and no directory stays.
func runAll(m *testing.M, kube, bin string) (code int, err error) {
	if kube == "" {
		return 1, errors.New("e2e: no API server is given; run make e2e")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit+2**renewFor+time.Duration(*figures)*2*time.Second)
	defer cancel()
	dir, err := os.MkdirTemp("", "e2e") // a socket's path has to be short
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	start := time.Now()
	shared.world = newWorld(ctx, "v1alpha1", bin, dir)
	defer shared.stop()
	logs := filepath.Join(bin, "e2e-logs")
	if err := os.RemoveAll(logs); err != nil {
		return 1, err
	}
	defer func() {
		if code != 0 || err != nil {
			fmt.Println("What all parts printed is in", logs)
			err = errors.Join(err, shared.saveLogs(logs))
		}
	}()
	if err := shared.start(kube); err != nil {
		return 1, err
	}
	shared.rows = append(shared.rows, row{"all parts started", time.Since(start), "ok", "etcd, API server, contractd, driver, COSI controller and sidecar"})
	code = m.Run()
	if ctx.Err() != nil { // which ends every wait of a scenario
		code, err = 1, fmt.Errorf("e2e: given up: %w", context.Cause(ctx))
	}
	printTable(time.Since(start))
	return code, err
}

func printTable(all time.Duration) {
	fmt.Println()
	t := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "SCENARIO\tTIME\tRESULT\tREMARKS")
	for _, r := range shared.rows {
		_, _ = fmt.Fprintf(t, "%s\t%.1f s\t%s\t%s\n", r.scenario, r.took.Seconds(), r.outcome, r.notes)
	}
	_, _ = fmt.Fprintf(t, "all\t%.1f s\n", all.Seconds())
	_ = t.Flush()
	fmt.Println()
}
