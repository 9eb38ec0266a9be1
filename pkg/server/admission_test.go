package server_test

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
	"github.com/contract-cosi/contract-cosi-driver/test/poll"
)

// provisioner makes buckets of contract "slow" only when it is let, and those of
// any other at once. It does not care for deadlines.
type provisioner struct {
	cosiproto.UnimplementedProvisionerServer
	let       chan struct{}
	underWay  atomic.Int32
	mostAlike atomic.Int32
}

func (p *provisioner) DriverCreateBucket(ctx context.Context, r *cosiproto.DriverCreateBucketRequest) (*cosiproto.DriverCreateBucketResponse, error) {
	klog.FromContext(ctx).V(2).Info("Provisioning")
	n := p.underWay.Add(1)
	defer p.underWay.Add(-1)
	for most := p.mostAlike.Load(); n > most && !p.mostAlike.CompareAndSwap(most, n); most = p.mostAlike.Load() {
	}
	if r.GetParameters()["contract"] == "slow" {
		<-p.let
	}
	return &cosiproto.DriverCreateBucketResponse{BucketId: r.GetName()}, nil
}

func provision(t *testing.T, timeout time.Duration) (*provisioner, *grpc.ClientConn) {
	t.Helper()
	p, conn, _ := provisionLogged(t, timeout, nil)
	return p, conn
}

func provisionLogged(t *testing.T, timeout time.Duration, failed func(method, bucket, access, message string)) (*provisioner, *grpc.ClientConn, *harness.Buffer) {
	t.Helper()
	log := &harness.Buffer{}
	p := &provisioner{let: make(chan struct{})}
	path := filepath.Join(shortDir(t), "cosi.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(2), textlogger.Output(log))), server.Config{
		CallTimeout: timeout, Recorder: &recorder{}, Checks: map[string]func(context.Context) error{server.ReadyService: func(context.Context) error { return nil }},
		Failed:   failed,
		Register: func(r *grpc.Server) { cosiproto.RegisterProvisionerServer(r, p) },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener, 0) }()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		_ = <-ended // it was closed
	})
	return p, conn, log
}

// One contract's flood does not keep another's calls from being served, nor
// callers that ask how the driver is. It waits, and what finds no place in its time,
// or no place to wait, is told so.
func TestOneContractsFlood(t *testing.T) {
	t.Parallel()
	const flood = 1000
	p, conn := provision(t, 2*patience)
	client := cosiproto.NewProvisionerClient(conn)
	create := func(ctx context.Context, contract string) error {
		_, err := client.DriverCreateBucket(ctx, &cosiproto.DriverCreateBucketRequest{Name: "b", Parameters: map[string]string{"contract": contract}})
		return err
	}
	var done, full atomic.Int32
	var all sync.WaitGroup
	for range flood {
		all.Go(func() {
			switch err := create(t.Context(), "slow"); status.Code(err) {
			case codes.OK:
				done.Add(1)
			case codes.ResourceExhausted:
				full.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	poll.Until(t, "a flood", func() bool { return p.underWay.Load() > 0 && full.Load() > 0 })
	for i := range 100 {
		if err := create(t.Context(), fmt.Sprint("team-", i%3)); err != nil {
			t.Fatalf("a neighbour's call %d: %v", i, err)
		}
	}
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: server.ReadyService}); err != nil {
		t.Errorf("readiness: %v", err)
	}
	// One that waits ends with its own deadline.
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := create(short, "slow"); err == nil {
		t.Error("there is room for more of the flood")
	}
	close(p.let)
	all.Wait()
	if n := done.Load(); n+full.Load() != flood || n < 80 {
		t.Errorf("%d calls are done and %d refused of %d", n, full.Load(), flood)
	}
	if most := p.mostAlike.Load(); most > 160 {
		t.Errorf("%d calls were served at once", most)
	}
	if err := create(t.Context(), "slow"); err != nil {
		t.Errorf("after the flood: %v", err)
	}
}

// What finds no place in the time that the driver gives a call is told so.
func TestWaitsInItsDeadline(t *testing.T) {
	t.Parallel()
	p, conn := provision(t, 200*time.Millisecond)
	client := cosiproto.NewProvisionerClient(conn)
	const flood, places = 200, 80
	var refused atomic.Int32
	var all sync.WaitGroup
	for range flood {
		all.Go(func() {
			_, err := client.DriverCreateBucket(t.Context(), &cosiproto.DriverCreateBucketRequest{Name: "b", Parameters: map[string]string{"contract": "slow"}})
			if status.Code(err) == codes.ResourceExhausted {
				refused.Add(1)
			}
		})
	}
	poll.Until(t, "refusals", func() bool { return refused.Load() == flood-places })
	close(p.let)
	all.Wait()
	if n := refused.Load(); n != flood-places {
		t.Errorf("%d of %d calls found no place, want %d", n, flood, flood-places)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	_, conn := provision(t, patience)
	client := cosiproto.NewProvisionerClient(conn)
	for size, want := range map[int]codes.Code{64 << 10: codes.OK, 2 << 20: codes.ResourceExhausted} {
		_, err := client.DriverCreateBucket(t.Context(), &cosiproto.DriverCreateBucketRequest{Name: "b", Parameters: map[string]string{"policy": strings.Repeat("x", size)}})
		if status.Code(err) != want {
			t.Errorf("%d bytes: %v, want %s", size, err, want)
		}
	}
}

func TestContractOf(t *testing.T) {
	t.Parallel()
	class := map[string]string{"contract": "team-a"}
	for _, c := range []struct {
		request any
		want    string
	}{
		{&cosiproto.DriverCreateBucketRequest{Name: "b", Parameters: class}, "team-a"},
		{&cosiproto.DriverDeleteBucketRequest{BucketId: "main.team-a.bucket-1"}, "team-a"},
		{&cosiproto.DriverGrantBucketAccessRequest{BucketId: "main.team-a.bucket-1", Parameters: map[string]string{"access": "ReadOnly"}}, "team-a"},
		{&cosiproto.DriverRevokeBucketAccessRequest{BucketId: "main.team-a.bucket-1", AccountId: "main.team-a.access-1"}, "team-a"},
		{&cosipb.DriverCreateBucketRequest{Name: "b", Parameters: class}, "team-a"},
		{&cosipb.DriverGetBucketRequest{BucketId: "b", Parameters: class}, "team-a"},
		{&cosipb.DriverDeleteBucketRequest{BucketId: "main.team-a.bucket-1"}, "team-a"},
		{&cosipb.DriverGrantBucketAccessRequestB2{Buckets: []*cosipb.AccessedBucketB2{{BucketId: "main.team-a.bucket-1"}}}, "team-a"},
		{&cosipb.DriverGrantBucketAccessRequestB2{}, ""},
		{&cosipb.DriverRevokeBucketAccessRequest{AccountId: "main.team-a.access-1"}, "team-a"},
		{&cosiproto.DriverDeleteBucketRequest{BucketId: "another driver's"}, ""},
		{&cosiproto.DriverGetInfoRequest{}, ""},
		{nil, ""},
	} {
		if got := server.ContractOf(c.request); got != c.want {
			t.Errorf("%T: %q, want %q", c.request, got, c.want)
		}
	}
}
