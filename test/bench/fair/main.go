// Command fair measures what the calls of a sidecar's other tenants take while one
// tenant has thousands of claims at a service that takes ten seconds for each call,
// beside what they take alone.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// wanted is how much longer the slowest hundredth of the others' calls may take.
const wanted = 2

const (
	callers = 64   // of the tenant with the slow service
	claims  = 5000 // which that tenant waits for
	others  = 8    // callers of other tenants
	delay   = 10 * time.Second
	slow    = "slow" // the tenant, and its backend
)

func main() {
	rounds := flag.Int("rounds", 10, "pairs of alone and beside")
	calls := flag.Int("calls", 600, "buckets that the others create and delete in each")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *rounds, *calls)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "fair:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, rounds, calls int) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "contract-cosi-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := harness.Binaries{Driver: filepath.Join(root, "bin", "contract-cosi-driver"), Contractd: filepath.Join(root, "bin", "contractd")}
	service, err := harness.StartContractd(ctx, b, dir)
	if err != nil {
		return err
	}
	defer func() { _ = service.Stop() }()
	late, err := startLate(service.API)
	if err != nil {
		return err
	}
	config := filepath.Join(dir, "config.yaml")
	text := harness.ConfigText(dir, service.API, service.TokenFile, "contracts: [{name: slow, backend: slow}]\nonDemand: {backend: main}\n")
	text = strings.Replace(text, "backends:\n", fmt.Sprintf("backends:\n  - name: %s\n    type: contractapi\n    contractapi: {url: %s, tokenFile: %s}\n", slow, late, service.TokenFile), 1)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	driver, err := harness.StartDriver(ctx, b, dir, config)
	if err != nil {
		return err
	}
	defer func() { _ = driver.Stop() }()
	client := cosiproto.NewProvisionerClient(driver.Conn)

	if _, err := measure(ctx, client, "warm", calls); err != nil {
		return err
	}
	var ratios []float64
	for round := range rounds {
		var p99 [2]time.Duration
		for i := range 2 {
			beside := i ^ round&1
			end := func() {}
			if beside == 1 {
				end = flood(ctx, client)
			}
			p99[beside], err = measure(ctx, client, fmt.Sprintf("%d-%d", round, beside), calls)
			end()
			if err != nil {
				return err
			}
		}
		ratios = append(ratios, p99[1].Seconds()/p99[0].Seconds())
		_, _ = fmt.Fprintf(out, "99th percentile alone %.1f ms, beside %d callers of a slow service %.1f ms\n", ms(p99[0]), callers, ms(p99[1]))
	}
	slices.Sort(ratios)
	median := ratios[len(ratios)/2]
	_, _ = fmt.Fprintf(out, "%.2f of what it is alone, wanted at most %d (middle half %.2f to %.2f)\n", median, wanted, ratios[len(ratios)/4], ratios[3*len(ratios)/4])
	if median > wanted {
		return errors.New("not fair")
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// startLate serves what another does, ten seconds later, and returns where.
func startLate(api string) (string, error) {
	at, err := url.Parse(api)
	if err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // the driver has gone
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(delay):
			proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), nil
}

// flood asks for the claims of the one tenant, again and again, until end. It
// returns when all its callers wait for an answer.
func flood(ctx context.Context, client cosiproto.ProvisionerClient) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var next atomic.Int64
	var all, begun sync.WaitGroup
	begun.Add(callers)
	for range callers {
		all.Go(func() {
			begun.Done()
			for ctx.Err() == nil {
				name := fmt.Sprintf("slow-%d", next.Add(1)%claims)
				_, _ = client.DriverCreateBucket(ctx, &cosiproto.DriverCreateBucketRequest{Name: name, Parameters: map[string]string{"contract": slow}})
			}
		})
	}
	begun.Wait()
	return func() { cancel(); all.Wait() }
}

// measure returns the 99th percentile of calls of other tenants.
func measure(ctx context.Context, client cosiproto.ProvisionerClient, round string, calls int) (time.Duration, error) {
	took := make([]time.Duration, 2*calls)
	var group errgroup.Group
	group.SetLimit(others)
	for i := range calls {
		group.Go(func() error {
			contract, name := fmt.Sprintf("team-%d", i%10), fmt.Sprintf("fair-%s-%d", round, i)
			begun := time.Now()
			_, err := client.DriverCreateBucket(ctx, &cosiproto.DriverCreateBucketRequest{Name: name, Parameters: map[string]string{"contract": contract}})
			took[2*i] = time.Since(begun)
			if err != nil {
				return err
			}
			begun = time.Now()
			_, err = client.DriverDeleteBucket(ctx, &cosiproto.DriverDeleteBucketRequest{BucketId: "main." + contract + "." + name})
			took[2*i+1] = time.Since(begun)
			return err
		})
	}
	err := group.Wait()
	slices.Sort(took)
	return took[len(took)*99/100], err
}
