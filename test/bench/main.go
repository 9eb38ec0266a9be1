// Command bench measures the driver beside the bare calls, in one run.
//
// The floor is what nobody can go below: the same S3 and contract calls, made
// directly with the driver's own clients at the same concurrency, plus as many
// fsynced 512-byte writes as the driver's journal makes. Both take turns in
// small rounds, so that what disturbs the machine disturbs both; what is
// compared are medians and ratios, because absolute times are the machine's.
//
// Given a kubeconfig, it also measures a driver whose journal is in Secrets of
// that cluster: grants a second, memory, and API calls for each RPC.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contractapi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// The targets.
const (
	maxSerialRatio   = 1.35 // sum of the medians, driver to floor, at concurrency 1
	minParallelRatio = 0.85 // throughput, driver to floor, at concurrency 16
	maxGrowth        = 1.15 // of the driver-to-floor ratio, last to first of the live ones
	maxServiceGrowth = 1.5  // of contractd alone, last to first
	maxIdleMiB       = 40
	maxLiveMiB       = 64
	maxStart         = 60 * time.Millisecond
	minSecretsGrants = 60 // a second at concurrency 16, journal in Secrets
)

func main() {
	o := options{}
	flag.IntVar(&o.serial, "serial", 600, "cycles at concurrency 1, of each side")
	flag.IntVar(&o.parallel, "parallel", 4800, "cycles at concurrency 16, of each side")
	flag.IntVar(&o.live, "live", 2000, "buckets and keys for the growth and memory figures, of each side")
	flag.StringVar(&o.backend, "backend", "contractapi", "`type` of the storage service; of another than contractapi only the calls are measured, and printed")
	flag.StringVar(&o.against, "against", "", "`file` of another driver to measure beside this one, at a service of another type than contractapi")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` that reaches a cluster, in which the journal in Secrets is measured as well")
	flag.StringVar(&o.namespace, "namespace", "contract-cosi", "`namespace` there, which must exist")
	flag.StringVar(&o.out, "out", "", "`directory` for RESULTS.md and results.json; default is the command's own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	measure := run
	if o.backend != "contractapi" {
		measure = runBackend
	}
	err := measure(ctx, os.Stdout, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	serial, parallel, live     int
	kubeconfig, namespace, out string
	backend, against           string
}

// ops are the steps of a cycle.
var ops = []string{"create", "grant", "revoke", "delete"}

// side is the driver or the floor.
type side interface {
	do(ctx context.Context, op, name string) error
}

func run(ctx context.Context, out io.Writer, o options) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	if o.out == "" {
		o.out = filepath.Join(root, "test", "bench")
	}
	b := harness.Binaries{Driver: filepath.Join(root, "bin", "contract-cosi-driver"), Contractd: filepath.Join(root, "bin", "contractd")}
	dir, err := os.MkdirTemp("", "contract-cosi-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	service, err := harness.StartContractd(ctx, b, dir)
	if err != nil {
		return err
	}
	defer func() { _ = service.Stop() }()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte(harness.ConfigText(dir, service.API, service.TokenFile, "onDemand:\n  backend: main\n")), 0o600); err != nil {
		return err
	}
	r := &results{Machine: fmt.Sprintf("%d cores, %s, %s", runtime.NumCPU(), runtime.GOARCH, runtime.Version())}

	if r.StartMS, err = starts(ctx, b, dir, config); err != nil {
		return err
	}
	progressf(out, "start to first DriverGetInfo: %.0f ms", r.StartMS)
	driver, err := harness.StartDriver(ctx, b, dir, config)
	if err != nil {
		return err
	}
	defer func() { _ = driver.Stop() }()
	if r.IdleMiB, err = resident(driver.PID()); err != nil {
		return err
	}
	// A plain connection, as the sidecar's is: the library's logs each message.
	conn, err := grpc.NewClient(driver.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	driven := &driven{cosiproto.NewProvisionerClient(conn), drivenContract}
	floor, err := newFloor(ctx, service, dir)
	if err != nil {
		return err
	}

	for _, s := range []side{driven, floor} { // contracts signed, connections open
		if _, err := cycles(ctx, s, "warm", 16, 64); err != nil {
			return err
		}
	}
	if err := r.measureSerial(ctx, out, driven, floor, o.serial); err != nil {
		return err
	}
	if r.Calls, err = callsPerRPC(ctx, driven, driver.HTTP); err != nil {
		return err
	}
	if err := r.measureParallel(ctx, out, driven, floor, o.parallel); err != nil {
		return err
	}
	if err := r.measureLive(ctx, out, driven, floor, o.live); err != nil {
		return err
	}
	if r.LiveMiB, err = resident(driver.PID()); err != nil {
		return err
	}
	if o.kubeconfig != "" {
		if err := r.measureSecrets(ctx, out, b, dir, config, o); err != nil {
			return err
		}
	}
	table := r.table()
	_, _ = fmt.Fprint(out, "\n", table)
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(o.out, "RESULTS.md"), []byte(table), 0o644),
		os.WriteFile(filepath.Join(o.out, "results.json"), append(text, '\n'), 0o644),
	)
	if missed := r.missed(); err == nil && len(missed) > 0 {
		err = errors.New("missed: " + strings.Join(missed, "; "))
	}
	return err
}

func progressf(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, "%s  "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

// driven are calls over a driver's socket, under a contract of its own.
type driven struct {
	client   cosiproto.ProvisionerClient
	contract string
}

const (
	drivenContract = "bench-driver"
	floorContract  = "bench-floor"
)

func (d *driven) do(ctx context.Context, op, name string) error {
	name = d.contract[len("bench-"):] + "-" + name // the names of buckets are one space
	id := "main." + d.contract + "." + name
	var err error
	switch op {
	case "create":
		_, err = d.client.DriverCreateBucket(ctx, &cosiproto.DriverCreateBucketRequest{Name: name, Parameters: map[string]string{"contract": d.contract}})
	case "grant":
		_, err = d.client.DriverGrantBucketAccess(ctx, &cosiproto.DriverGrantBucketAccessRequest{BucketId: id, Name: "ba-" + name, AuthenticationType: cosiproto.AuthenticationType_Key})
	case "revoke":
		_, err = d.client.DriverRevokeBucketAccess(ctx, &cosiproto.DriverRevokeBucketAccessRequest{BucketId: id, AccountId: "main." + d.contract + ".ba-" + name})
	case "delete":
		_, err = d.client.DriverDeleteBucket(ctx, &cosiproto.DriverDeleteBucketRequest{BucketId: id})
	}
	return err
}

// floor are the bare calls and the bare disk.
type floor struct {
	provider contract.Provider
	engine   *bucket.Engine
	issued   sync.Map      // access key ids by bucket
	files    chan *os.File // one for each caller, as appending to one would queue them
}

func newFloor(ctx context.Context, service *harness.Contractd, dir string) (*floor, error) {
	nobody := func(string, error) {}
	transport := &http.Transport{DialContext: (&net.Dialer{}).DialContext, MaxIdleConnsPerHost: 80}
	client := &http.Client{Transport: transport}
	provider, err := contractapi.New(contractapi.Config{URL: service.API, Token: func() secret.String { return secret.New(service.Token) }, HTTP: client, Observe: nobody})
	if err != nil {
		return nil, err
	}
	return floorAt(ctx, provider, client, dir, "bench")
}

// floorAt is the floor at any service, under a contract of the driver's owner.
func floorAt(ctx context.Context, provider contract.Provider, client *http.Client, dir, owner string) (*floor, error) {
	signed, err := provider.EnsureContract(ctx, contract.Spec{Name: floorContract, Owner: owner})
	if err != nil {
		return nil, err
	}
	key, err := provider.IssueKey(ctx, contract.IssueKeyRequest{Contract: floorContract, Slot: cosi.ContractSlot, Proposed: proposed("floor")})
	if err != nil {
		return nil, err
	}
	can := provider.Capabilities()
	f := &floor{
		provider: provider,
		engine: bucket.New(bucket.Config{
			Endpoint: signed.Endpoints[0], Key: key, Owner: owner, OwnerNeedsPolicy: can.OwnerNeedsPolicy, TagsLater: can.TagsLater, RefusesRepeat: can.RefusesRepeat,
			HTTP: client, Observe: func(string, error) {},
		}),
		files: make(chan *os.File, parallelism),
	}
	for i := range parallelism {
		file, err := os.OpenFile(filepath.Join(dir, "floor-"+strconv.Itoa(i)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		f.files <- file
	}
	return f, nil
}

func proposed(id string) secret.KeyPair {
	return secret.KeyPair{AccessKeyID: id, SecretAccessKey: secret.New(rand.Text() + rand.Text())}
}

func (f *floor) fsyncedWrites(n int) error {
	file := <-f.files
	defer func() { f.files <- file }()
	for range n {
		if _, err := file.Write(make([]byte, 512)); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
	}
	return nil
}

func (f *floor) do(ctx context.Context, op, name string) error {
	if err := f.call(ctx, op, "f-"+name); err != nil {
		return err
	}
	return f.fsyncedWrites(journalWrites[op])
}

// call is an operation without its share of the disk.
func (f *floor) call(ctx context.Context, op, name string) error {
	switch op {
	case "create":
		return f.engine.Create(ctx, name, params.Bucket{Contract: floorContract, OnDelete: params.Refuse})
	case "grant":
		proposed := proposed("ba-" + name)
		pair, err := f.provider.IssueKey(ctx, contract.IssueKeyRequest{
			Contract: floorContract, Slot: "ba-" + name, Proposed: proposed, Exact: true, Scope: scopeOf(name),
		})
		if err != nil {
			return err
		}
		f.issued.Store(name, pair.AccessKeyID)
		if a, ok := f.provider.(contract.Acknowledger); ok {
			return a.AcknowledgeKey(ctx, floorContract, proposed)
		}
		return nil
	case "revoke":
		known, _ := f.issued.LoadAndDelete(name)
		id, _ := known.(string)
		return f.provider.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: floorContract, Slot: "ba-" + name, Scope: scopeOf(name), Known: []string{id}, Exact: true})
	case "delete":
		return f.engine.Delete(ctx, name)
	}
	return fmt.Errorf("no operation %s", op)
}

func scopeOf(bucket string) *contract.Scope {
	return &contract.Scope{Buckets: []contract.BucketScope{{Bucket: bucket, Mode: cosi.ReadWrite}}}
}

// journalWrites is how often the driver writes its journal in each RPC, which a
// test of test/integration holds.
var journalWrites = map[string]int{"create": 1, "grant": 2, "revoke": 1, "delete": 1}

const parallelism = 16

// cycles runs whole cycles and returns each operation's times.
func cycles(ctx context.Context, s side, round string, workers, n int) (map[string][]time.Duration, error) {
	times := map[string][]time.Duration{}
	var mu sync.Mutex
	var next atomic.Int64
	var failed error
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				for _, op := range ops {
					start := time.Now()
					err := s.do(ctx, op, fmt.Sprintf("%s-%d", round, i))
					took := time.Since(start)
					mu.Lock()
					times[op] = append(times[op], took)
					failed = errors.Join(failed, err)
					mu.Unlock()
					if err != nil {
						return
					}
				}
			}
		})
	}
	group.Wait()
	return times, failed
}

// results is what is measured; times are in milliseconds.
type results struct {
	Machine string `json:"machine"`

	SerialDriverMS map[string]float64 `json:"serialDriverMs"`
	SerialFloorMS  map[string]float64 `json:"serialFloorMs"`
	SerialRatio    float64            `json:"serialRatio"`

	ParallelDriver float64 `json:"parallelDriverCyclesPerSecond"`
	ParallelFloor  float64 `json:"parallelFloorCyclesPerSecond"`
	ParallelRatio  float64 `json:"parallelRatio"`

	Live          int     `json:"live"`
	RatioFirst    float64 `json:"ratioFirst200"`
	RatioLast     float64 `json:"ratioLast200"`
	Growth        float64 `json:"ratioGrowth"`
	ServiceGrowth float64 `json:"contractdGrowth"`

	IdleMiB float64            `json:"idleMiB"`
	LiveMiB float64            `json:"liveMiB"`
	StartMS float64            `json:"startMs"`
	Calls   map[string]float64 `json:"backendCallsPerRpc"`

	Secrets *secretsResults `json:"secrets,omitempty"` // nil if there was no cluster
}

// secretsResults are of a driver whose journal is in Secrets.
type secretsResults struct {
	SerialMS map[string]float64 `json:"serialMs"`
	Rates    map[string]float64 `json:"perSecond"` // at concurrency 16
	Calls    map[string]float64 `json:"apiCallsPerRpc"`
	IdleMiB  float64            `json:"idleMiB"`
	LiveMiB  float64            `json:"liveMiB"`
}

// measureSecrets runs a driver with its journal in Secrets: a few cycles one
// after the other, and then each operation on all that is to live, at
// concurrency 16.
func (r *results) measureSecrets(ctx context.Context, out io.Writer, b harness.Binaries, dir, config string, o options) error {
	text, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, "secrets")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	config = filepath.Join(dir, "config.yaml")
	kubeconfig, err := filepath.Abs(o.kubeconfig)
	if err != nil {
		return err
	}
	if err := os.WriteFile(config, []byte(harness.InSecrets(string(text), o.namespace, kubeconfig)), 0o600); err != nil {
		return err
	}
	driver, err := harness.StartDriver(ctx, b, dir, config)
	if err != nil {
		return err
	}
	defer func() { _ = driver.Stop() }()
	s := &secretsResults{SerialMS: map[string]float64{}, Rates: map[string]float64{}, Calls: map[string]float64{}}
	r.Secrets = s
	if s.IdleMiB, err = resident(driver.PID()); err != nil {
		return err
	}
	conn, err := grpc.NewClient(driver.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	d := &driven{cosiproto.NewProvisionerClient(conn), drivenContract}
	times, err := cycles(ctx, d, "secrets", 1, 100)
	if err != nil {
		return err
	}
	for _, op := range ops {
		s.SerialMS[op] = median(times[op])
	}
	for _, op := range []string{"create", "grant", "grant again", "revoke", "delete"} {
		before, err := metric(ctx, driver.HTTP, "contract_cosi_journal_calls_total")
		if err != nil {
			return err
		}
		if err := d.do(ctx, strings.TrimSuffix(op, " again"), "counted"); err != nil {
			return err
		}
		after, err := metric(ctx, driver.HTTP, "contract_cosi_journal_calls_total")
		if err != nil {
			return err
		}
		s.Calls[op] = after - before
	}
	for _, op := range ops {
		start := time.Now()
		if err := each(o.live, func(i int) error { return d.do(ctx, op, fmt.Sprintf("kube-%d", i)) }); err != nil {
			return err
		}
		s.Rates[op] = float64(o.live) / time.Since(start).Seconds()
		if op == "grant" {
			if s.LiveMiB, err = resident(driver.PID()); err != nil {
				return err
			}
		}
	}
	progressf(out, "journal in Secrets: %.0f grants a second at concurrency %d", s.Rates["grant"], parallelism)
	return nil
}

// each calls do for 0 to n-1, parallelism at a time, until one fails.
func each(n int, do func(int) error) error {
	var next atomic.Int64
	var group errgroup.Group
	for range parallelism {
		group.Go(func() error {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := do(int(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

const (
	serialRound   = 25
	parallelRound = 400
)

func (r *results) measureSerial(ctx context.Context, out io.Writer, d, f side, n int) error {
	times := [2]map[string][]time.Duration{{}, {}}
	for round := 0; round*serialRound < n; round++ {
		for i, s := range turn(round, d, f) {
			which := i ^ round&1
			t, err := cycles(ctx, s, fmt.Sprintf("s%d", round), 1, serialRound)
			if err != nil {
				return err
			}
			for op, list := range t {
				times[which][op] = append(times[which][op], list...)
			}
		}
	}
	r.SerialDriverMS, r.SerialFloorMS = map[string]float64{}, map[string]float64{}
	var sum [2]float64
	for _, op := range ops {
		r.SerialDriverMS[op], r.SerialFloorMS[op] = median(times[0][op]), median(times[1][op])
		sum[0] += r.SerialDriverMS[op]
		sum[1] += r.SerialFloorMS[op]
	}
	r.SerialRatio = sum[0] / sum[1]
	progressf(out, "concurrency 1: %.2f ms a cycle, floor %.2f ms", sum[0], sum[1])
	return nil
}

func (r *results) measureParallel(ctx context.Context, out io.Writer, d, f side, n int) error {
	var rates [2][]float64
	for round := 0; round*parallelRound < n; round++ {
		for i, s := range turn(round, d, f) {
			start := time.Now()
			if _, err := cycles(ctx, s, fmt.Sprintf("p%d", round), parallelism, parallelRound); err != nil {
				return err
			}
			which := i ^ round&1
			rates[which] = append(rates[which], parallelRound/time.Since(start).Seconds())
		}
	}
	r.ParallelDriver, r.ParallelFloor = middle(rates[0]), middle(rates[1])
	r.ParallelRatio = r.ParallelDriver / r.ParallelFloor
	progressf(out, "concurrency %d: %.0f cycles a second, floor %.0f", parallelism, r.ParallelDriver, r.ParallelFloor)
	return nil
}

// turn lets the other side begin in every second round.
func turn(round int, d, f side) []side {
	if round&1 == 1 {
		return []side{f, d}
	}
	return []side{d, f}
}

// measureLive makes buckets and keys that stay, and compares the first with
// the last of them.
func (r *results) measureLive(ctx context.Context, out io.Writer, d *driven, f *floor, n int) error {
	const window = 200
	var sums [2][]time.Duration // create and grant, by side
	var service []time.Duration // the floor's calls without its disk
	r.Live = n
	for i := range n {
		name := fmt.Sprintf("live-%d", i)
		start := time.Now()
		for _, op := range ops[:2] {
			if err := d.do(ctx, op, name); err != nil {
				return err
			}
		}
		sums[0] = append(sums[0], time.Since(start))
		start = time.Now()
		for _, op := range ops[:2] {
			if err := f.call(ctx, op, "f-"+name); err != nil {
				return err
			}
		}
		calls := time.Since(start)
		if err := f.fsyncedWrites(journalWrites["create"] + journalWrites["grant"]); err != nil {
			return err
		}
		service = append(service, calls)
		sums[1] = append(sums[1], time.Since(start))
	}
	last := min(window, n/2)
	ratio := func(from, to int) float64 { return median(sums[0][from:to]) / median(sums[1][from:to]) }
	r.RatioFirst, r.RatioLast = ratio(0, last), ratio(n-last, n)
	r.Growth = r.RatioLast / r.RatioFirst
	r.ServiceGrowth = median(service[n-last:]) / median(service[:last])
	progressf(out, "%d live: ratio %.2f at first, %.2f at last", n, r.RatioFirst, r.RatioLast)
	return nil
}

// callsPerRPC runs one undisturbed cycle and reads the driver's own metrics.
func callsPerRPC(ctx context.Context, d *driven, address string) (map[string]float64, error) {
	out := map[string]float64{}
	for _, op := range ops {
		before, err := backendCalls(ctx, address)
		if err != nil {
			return nil, err
		}
		if err := d.do(ctx, op, "counted"); err != nil {
			return nil, err
		}
		// A grant's acknowledgement follows its answer.
		want := map[string]float64{"grant": 2}[op]
		for deadline := time.Now().Add(time.Second); ; time.Sleep(5 * time.Millisecond) {
			after, err := backendCalls(ctx, address)
			if err != nil {
				return nil, err
			}
			if out[op] = after - before; out[op] >= want || time.Now().After(deadline) {
				break
			}
		}
	}
	return out, nil
}

func backendCalls(ctx context.Context, address string) (float64, error) {
	return metric(ctx, address, "contract_cosi_backend_calls_total")
}

// metric is the sum of a metric's samples.
func metric(ctx context.Context, address, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name+"{") {
			v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]), 64)
			if err != nil {
				return 0, err
			}
			sum += v
		}
	}
	return sum, err
}

// starts is the median time from exec to the first answered DriverGetInfo.
func starts(ctx context.Context, b harness.Binaries, dir, config string) (float64, error) {
	const n = 11
	socket := filepath.Join(dir, "start.sock")
	var times []time.Duration
	for range n {
		cmd := exec.CommandContext(ctx, b.Driver, "--config", config, "--endpoint", "unix://"+socket, "--http-endpoint", "127.0.0.1:0")
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
	return median(times), nil
}

// resident is the memory of a process in MiB.
func resident(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmRSS:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			return kib / 1024, err
		}
	}
	return 0, errors.New("no VmRSS")
}

func median(list []time.Duration) float64 {
	out := make([]float64, len(list))
	for i, d := range list {
		out[i] = float64(d.Microseconds()) / 1000
	}
	return middle(out)
}

func middle(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// figure is a row of the table that has a target.
type figure struct {
	what, value, target string
	met                 bool
}

func (r *results) figures() []figure {
	atMost := func(what string, value, target float64, format string) figure {
		return figure{what, fmt.Sprintf(format, value), "≤ " + fmt.Sprintf(format, target), value <= target}
	}
	out := []figure{
		atMost("cycle at concurrency 1, driver to floor", r.SerialRatio, maxSerialRatio, "%.2f"),
		{"throughput at concurrency 16, driver to floor", fmt.Sprintf("%.2f", r.ParallelRatio), fmt.Sprintf("≥ %.2f", minParallelRatio), r.ParallelRatio >= minParallelRatio},
		atMost(fmt.Sprintf("driver-to-floor ratio, last 200 to first 200 of %d live", r.Live), r.Growth, maxGrowth, "%.2f"),
		atMost(fmt.Sprintf("contractd alone, last 200 to first 200 of %d live", r.Live), r.ServiceGrowth, maxServiceGrowth, "%.2f"),
		atMost("resident memory, idle", r.IdleMiB, maxIdleMiB, "%.0f MiB"),
		atMost(fmt.Sprintf("resident memory, %d buckets and keys live", r.Live), r.LiveMiB, maxLiveMiB, "%.0f MiB"),
		atMost("start to first DriverGetInfo", r.StartMS, float64(maxStart.Milliseconds()), "%.0f ms"),
	}
	if s := r.Secrets; s != nil {
		rate := s.Rates["grant"]
		out = append(out,
			figure{fmt.Sprintf("journal in Secrets: grants a second at concurrency %d", parallelism), fmt.Sprintf("%.0f", rate), fmt.Sprintf("≥ %d", minSecretsGrants), rate >= minSecretsGrants},
			atMost("journal in Secrets: resident memory, idle", s.IdleMiB, maxIdleMiB, "%.0f MiB"),
			atMost(fmt.Sprintf("journal in Secrets: resident memory, %d buckets and keys live", r.Live), s.LiveMiB, maxLiveMiB, "%.0f MiB"),
		)
	}
	return out
}

func (r *results) missed() []string {
	var out []string
	for _, f := range r.figures() {
		if !f.met {
			out = append(out, fmt.Sprintf("%s is %s, target %s", f.what, f.value, f.target))
		}
	}
	return out
}

func (r *results) table() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("# The driver beside the bare calls\n\nWritten by `make bench` on %s. The floor is the same S3 and contract calls made directly with the driver's own\n", r.Machine)
	p("clients, plus as many fsynced 512-byte writes as the journal makes; both take turns in one run. The floor waits for a\n")
	p("key's acknowledgement; the driver answers first and acknowledges while the next call is under way.\n\n")
	p("| median in ms at concurrency 1 | create | grant | revoke | delete | sum |\n|---|---|---|---|---|---|\n")
	row := func(what string, m map[string]float64, format string, total bool) {
		p("| %s |", what)
		sum := 0.0
		for _, op := range ops {
			p(" "+format+" |", m[op])
			sum += m[op]
		}
		if total {
			p(" "+format+" |\n", sum)
		} else {
			p(" |\n")
		}
	}
	row("driver", r.SerialDriverMS, "%.2f", true)
	row("floor", r.SerialFloorMS, "%.2f", true)
	row("backend calls per RPC", r.Calls, "%.0f", false)
	p("\n| cycles a second at concurrency %d | |\n|---|---|\n| driver | %.0f |\n| floor | %.0f |\n", parallelism, r.ParallelDriver, r.ParallelFloor)
	if s := r.Secrets; s != nil {
		p("\n| journal in Secrets | create | grant | grant again | revoke | delete |\n|---|---|---|---|---|---|\n")
		p("| API calls per RPC |")
		for _, op := range []string{"create", "grant", "grant again", "revoke", "delete"} {
			p(" %.0f |", s.Calls[op])
		}
		p("\n| median in ms at concurrency 1 | %.2f | %.2f | | %.2f | %.2f |\n", s.SerialMS["create"], s.SerialMS["grant"], s.SerialMS["revoke"], s.SerialMS["delete"])
		p("| a second at concurrency %d | %.0f | %.0f | | %.0f | %.0f |\n", parallelism, s.Rates["create"], s.Rates["grant"], s.Rates["revoke"], s.Rates["delete"])
	}
	p("\n| figure | measured | target |\n|---|---|---|\n")
	for _, f := range r.figures() {
		mark := ""
		if !f.met {
			mark = " (missed)"
		}
		p("| %s | %s%s | %s |\n", f.what, f.value, mark, f.target)
	}
	return b.String()
}
