package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/pkg/server"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
	"github.com/contract-cosi/contract-cosi-driver/test/poll"
)

// patience is how long a test waits for what must happen. It is long, since
// nothing depends on it but how late a failure is told.
const patience = 20 * time.Second

// shortDir is a directory whose name leaves room for a socket's path;
// t.TempDir has the test's name in it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// receive fails the test, instead of hanging it, when nothing comes.
func receive[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: did not happen within %s", what, patience)
		panic("not reached")
	}
}

// ---- The socket. Listen sets the umask of the process, so these tests do not
// run beside others: a test that made a file meanwhile would get odd modes.

// stale leaves a socket as a killed process does.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("there is no stale socket to test with: %v", err)
	}
}

func listen(t *testing.T, s server.Socket) net.Listener {
	t.Helper()
	l, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// mustAnswer proves that connections reach this very listener.
func mustAnswer(t *testing.T, l net.Listener, path string) {
	t.Helper()
	accepted := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = conn.Write([]byte("x"))
			_ = conn.Close()
		}
		accepted <- err
	}()
	conn, err := net.DialTimeout("unix", path, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("the listener does not answer at %s: %v", path, err)
	}
	if err := receive(t, "accept", accepted); err != nil {
		t.Error(err)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestSocketReplacesStale(t *testing.T) {
	path := filepath.Join(shortDir(t), "cosi.sock")
	stale(t, path)
	mustAnswer(t, listen(t, server.Socket{Endpoint: "unix://" + path, Mode: 0o600}), path)
}

func TestSocketRefusesLive(t *testing.T) {
	path := filepath.Join(shortDir(t), "cosi.sock")
	first := listen(t, server.Socket{Endpoint: "unix://" + path, Mode: 0o600})
	second, err := server.Socket{Endpoint: "unix://" + path, Mode: 0o600}.Listen(t.Context())
	if err == nil {
		_ = second.Close()
		t.Fatal("a socket in use was taken over")
	}
	if want := "another process is listening there"; !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %q does not say %q and where", err, want)
	}
	conn, err := first.Accept() // the second one's question, whether anybody is there
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	mustAnswer(t, first, path)
}

func TestSocketRefusesOtherFiles(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"regular file": func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"directory":    func(path string) error { return os.Mkdir(path, 0o700) },
		// Following it would remove, or bind, something elsewhere.
		"symbolic link": func(path string) error { return os.Symlink("elsewhere", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(shortDir(t), "cosi.sock")
			if err := put(path); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if l, err := (server.Socket{Endpoint: "unix://" + path, Mode: 0o600}).Listen(t.Context()); err == nil {
				_ = l.Close()
				t.Fatal("the file was replaced")
			} else if !strings.Contains(err.Error(), "not a socket") {
				t.Errorf("error %q does not say that the file is not a socket", err)
			}
			after, err := os.Lstat(path)
			if err != nil {
				t.Fatalf("the file is gone: %v", err)
			}
			if !os.SameFile(before, after) || before.Mode() != after.Mode() || before.Size() != after.Size() {
				t.Errorf("the file was changed: %v, was %v", after, before)
			}
		})
	}
}

// otherGroup is a group that the socket would not get by itself, if this
// process can give it one.
func otherGroup() int {
	own := os.Getegid()
	if os.Geteuid() == 0 {
		return own + 12345
	}
	groups, _ := os.Getgroups()
	for _, g := range groups {
		if g != own {
			return g
		}
	}
	return own
}

func TestSocketModeAndGroup(t *testing.T) {
	for _, c := range []struct {
		mode  fs.FileMode
		group string
		gid   int
	}{
		{0o660, strconv.Itoa(os.Getgid()), os.Getgid()},
		{0o600, "", os.Getegid()},
		{0o666, strconv.Itoa(otherGroup()), otherGroup()}, // more than any usual umask would let through
	} {
		t.Run(fmt.Sprintf("%#o %s", uint32(c.mode), c.group), func(t *testing.T) {
			path := filepath.Join(shortDir(t), "cosi.sock")
			const umask = 0o027
			old := syscall.Umask(umask)
			defer syscall.Umask(old)
			listen(t, server.Socket{Endpoint: "unix://" + path, Mode: c.mode, Group: c.group})
			if left := syscall.Umask(umask); left != umask {
				t.Errorf("the process is left with umask %#o, had %#o", left, umask)
			}
			info, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != fs.ModeSocket|c.mode {
				t.Errorf("mode %v, want %v", info.Mode(), fs.ModeSocket|c.mode)
			}
			if gid := int(info.Sys().(*syscall.Stat_t).Gid); gid != c.gid {
				t.Errorf("group %d, want %d", gid, c.gid)
			}
		})
	}
}

func TestSocketRefusesBadSettings(t *testing.T) {
	dir := shortDir(t)
	good := "unix://" + filepath.Join(dir, "cosi.sock")
	long := "unix://" + filepath.Join(dir, strings.Repeat("x", 108), "cosi.sock")
	for name, c := range map[string]struct {
		socket server.Socket
		want   string
	}{
		"unknown group":     {server.Socket{Endpoint: good, Group: "no-such-group-here"}, `socket group "no-such-group-here"`},
		"negative group":    {server.Socket{Endpoint: good, Group: "-1"}, `socket group "-1"`},
		"too long":          {server.Socket{Endpoint: long}, "at most 107 characters"},
		"missing .sock":     {server.Socket{Endpoint: "unix://" + filepath.Join(dir, "cosi")}, ".sock"},
		"relative path":     {server.Socket{Endpoint: "unix://cosi.sock"}, "is not unix:///absolute/path.sock"},
		"no scheme":         {server.Socket{Endpoint: filepath.Join(dir, "cosi.sock")}, "is not unix:///absolute/path.sock"},
		"TCP":               {server.Socket{Endpoint: "tcp://127.0.0.1:0"}, "is not unix:///absolute/path.sock"},
		"empty":             {server.Socket{}, "is not unix:///absolute/path.sock"},
		"missing directory": {server.Socket{Endpoint: "unix://" + filepath.Join(dir, "none", "cosi.sock")}, "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := c.socket.Listen(t.Context())
			if err == nil {
				_ = l.Close()
				t.Fatal("was accepted")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not say %q", err, c.want)
			}
			if left := names(t, dir); len(left) > 0 {
				t.Errorf("a refused socket left %q behind", left)
			}
		})
	}
}

// The longest path that is let through has to be one that the system takes.
func TestSocketLongestPath(t *testing.T) {
	dir := shortDir(t)
	const most = 107
	path := filepath.Join(dir, strings.Repeat("x", most-len(dir)-len("/.sock"))+".sock")
	if len(path) != most {
		t.Fatalf("the test made a path of %d characters", len(path))
	}
	listen(t, server.Socket{Endpoint: "unix://" + path, Mode: 0o600})
}

// The sidecar's container shares the directory: a lock file or a temporary name
// in it would be an accident waiting to happen.
func TestSocketIsAloneInItsDirectory(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "cosi.sock")
	stale(t, path)
	l := listen(t, server.Socket{Endpoint: "unix://" + path, Mode: 0o600})
	if got := names(t, dir); !slices.Equal(got, []string{"cosi.sock"}) {
		t.Errorf("the directory holds %q, want the socket only", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); len(got) > 0 {
		t.Errorf("after Close the directory holds %q", got)
	}
}

// Without the lock both would find the stale socket, and the slower one would
// remove the socket that the faster one has just made.
func TestSocketTwoAtOnce(t *testing.T) {
	const rounds = 50
	dir := shortDir(t)
	for round := range rounds {
		path := filepath.Join(dir, fmt.Sprintf("%d.sock", round))
		stale(t, path)
		type outcome struct {
			listener net.Listener
			err      error
		}
		outcomes, start := make(chan outcome, 2), make(chan struct{})
		for range 2 {
			go func() {
				<-start
				l, err := server.Socket{Endpoint: "unix://" + path, Mode: 0o600}.Listen(t.Context())
				outcomes <- outcome{l, err}
			}()
		}
		close(start)
		var winner net.Listener
		for range 2 {
			o := receive(t, "listen", outcomes)
			switch {
			case o.err != nil && !strings.Contains(o.err.Error(), "another process is listening"):
				t.Errorf("round %d: the loser is told %q", round, o.err)
			case o.err == nil && winner != nil:
				t.Fatalf("round %d: both have the socket", round)
			case o.err == nil:
				winner = o.listener
			}
		}
		if winner == nil {
			t.Fatalf("round %d: nobody has the socket", round)
		}
		conn, err := winner.Accept() // the loser's question
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		mustAnswer(t, winner, path)
		_ = winner.Close()
	}
}

// A start that waits for the directory must end when it is told to.
func TestSocketWaitsForTheLockNoLongerThanAsked(t *testing.T) {
	dir := shortDir(t)
	held, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := server.Socket{Endpoint: "unix://" + filepath.Join(dir, "cosi.sock"), Mode: 0o600}.Listen(ctx)
		failed <- err
	}()
	cancel()
	if err := receive(t, "end of Listen", failed); !errors.Is(err, context.Canceled) {
		t.Errorf("Listen returned %v, want that it was cancelled", err)
	}
}

// ---- The server.

// identity is the COSI service that does what a test wants.
type identity func(context.Context) (*cosiproto.DriverGetInfoResponse, error)

func (i identity) DriverGetInfo(ctx context.Context, _ *cosiproto.DriverGetInfoRequest) (*cosiproto.DriverGetInfoResponse, error) {
	return i(ctx)
}

func named(context.Context) (*cosiproto.DriverGetInfoResponse, error) {
	return &cosiproto.DriverGetInfoResponse{Name: "test.example"}, nil
}

type recorded struct{ method, code string }

// recorder keeps what a server.Recorder hears.
type recorder struct {
	mu     sync.Mutex
	rpcs   []recorded
	panics int
	odd    []time.Duration // durations that cannot be
}

func (r *recorder) RPC(method, code string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rpcs = append(r.rpcs, recorded{method, code})
	if took <= 0 || took > 2*patience {
		r.odd = append(r.odd, took)
	}
}

func (r *recorder) Panic() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.panics++
}

func (r *recorder) seen() ([]recorded, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.rpcs), r.panics
}

type setup struct {
	handler     identity
	ready       func(context.Context) error
	backends    func(context.Context) error
	callTimeout time.Duration
	grace       time.Duration
}

type served struct {
	*recorder
	log    *harness.Buffer
	path   string
	conn   *grpc.ClientConn
	cosi   cosiproto.IdentityClient
	health grpc_health_v1.HealthClient
	stop   context.CancelFunc
	ended  <-chan error // Serve's result
}

// serve starts a server on a socket of its own and connects to it.
func serve(t *testing.T, s setup) *served {
	t.Helper()
	if s.handler == nil {
		s.handler = named
	}
	if s.ready == nil {
		s.ready = func(context.Context) error { return nil }
	}
	if s.callTimeout == 0 {
		s.callTimeout = 2 * patience
	}
	out := &served{recorder: &recorder{}, log: &harness.Buffer{}, path: filepath.Join(shortDir(t), "cosi.sock")}
	listener, err := net.Listen("unix", out.path)
	if err != nil {
		t.Fatal(err)
	}
	grpcServer := server.New(textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(5), textlogger.Output(out.log))), server.Config{
		CallTimeout: s.callTimeout, Recorder: out.recorder,
		Checks:   map[string]func(context.Context) error{server.ReadyService: s.ready, server.BackendsService: s.backends},
		Register: func(r *grpc.Server) { cosiproto.RegisterIdentityServer(r, s.handler) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- grpcServer.Serve(ctx, listener, s.grace) }()
	out.stop, out.ended = cancel, ended
	t.Cleanup(cancel)
	if out.conn, err = grpc.NewClient("unix://"+out.path, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.conn.Close() })
	out.cosi, out.health = cosiproto.NewIdentityClient(out.conn), grpc_health_v1.NewHealthClient(out.conn)
	return out
}

// call makes one call whose client sets no deadline, as the sidecars do.
func (s *served) call(t *testing.T) <-chan error {
	t.Helper()
	answered := make(chan error, 1)
	go func() {
		_, err := s.cosi.DriverGetInfo(t.Context(), &cosiproto.DriverGetInfoRequest{})
		answered <- err
	}()
	return answered
}

const getInfo = "/cosi.v1alpha1.Identity/DriverGetInfo"

func TestPanicIsAnsweredAndSurvived(t *testing.T) {
	t.Parallel()
	const planted = "planted-text-of-the-panic"
	var calls atomic.Int32
	s := serve(t, setup{handler: func(ctx context.Context) (*cosiproto.DriverGetInfoResponse, error) {
		if calls.Add(1) == 1 {
			panic(planted)
		}
		return named(ctx)
	}})
	err := receive(t, "answer to the panic", s.call(t))
	answer := status.Convert(err)
	if answer.Code() != codes.Internal {
		t.Errorf("code %s, want Internal", answer.Code())
	}
	if len(answer.Details()) > 0 || strings.Contains(answer.Message(), planted) || strings.Contains(answer.Message(), ".go:") {
		t.Errorf("the answer tells of the driver's inside: %q %v", answer.Message(), answer.Details())
	}
	if log := s.log.String(); !strings.Contains(log, planted) || !strings.Contains(log, "server_test.go") {
		t.Errorf("the log does not tell what panicked and where:\n%s", log)
	}
	if err := receive(t, "the next call", s.call(t)); err != nil {
		t.Errorf("the call after a panic: %v", err)
	}
	rpcs, panics := s.seen()
	if want := []recorded{{getInfo, "Internal"}, {getInfo, "OK"}}; !slices.Equal(rpcs, want) || panics != 1 {
		t.Errorf("recorded %v and %d panics, want %v and 1", rpcs, panics, want)
	}
}

func TestCallTimeoutEndsACall(t *testing.T) {
	t.Parallel()
	s := serve(t, setup{callTimeout: 20 * time.Millisecond, handler: func(ctx context.Context) (*cosiproto.DriverGetInfoResponse, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}})
	if err := receive(t, "end of the call", s.call(t)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("answer %v, want DeadlineExceeded", err)
	}
}

func TestEveryRPCIsRecorded(t *testing.T) {
	t.Parallel()
	var next atomic.Value
	s := serve(t, setup{handler: func(ctx context.Context) (*cosiproto.DriverGetInfoResponse, error) {
		if code := next.Load().(codes.Code); code != codes.OK {
			return nil, status.Error(code, "sentence for the user")
		}
		return named(ctx)
	}})
	var want []recorded
	for _, code := range []codes.Code{codes.OK, codes.Unavailable, codes.InvalidArgument, codes.AlreadyExists, codes.OK} {
		next.Store(code)
		if err := receive(t, "answer", s.call(t)); status.Code(err) != code {
			t.Errorf("answer %v, want %s", err, code)
		}
		want = append(want, recorded{getInfo, code.String()})
	}
	if _, err := s.health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	want = append(want, recorded{"/grpc.health.v1.Health/Check", "OK"})
	if got, _ := s.seen(); !slices.Equal(got, want) {
		t.Errorf("recorded %v, want %v", got, want)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.odd) > 0 {
		t.Errorf("recorded durations %v", s.odd)
	}
	if log := s.log.String(); !strings.Contains(log, "sentence for the user") || !strings.Contains(log, getInfo) {
		t.Errorf("the log does not tell of failed calls:\n%s", log)
	}
}

// The line of a call says what it was about, as one clean line, and carries the
// request id that the handler's lines have.
func TestLinesOfACall(t *testing.T) {
	t.Parallel()
	var failures []string
	p, conn, log := provisionLogged(t, patience, func(method, bucket, access, message string) {
		failures = append(failures, strings.Join([]string{method, bucket, access, message}, " "))
	})
	close(p.let)
	client := cosiproto.NewProvisionerClient(conn)
	long := strings.Repeat("x", 5000)
	if _, err := client.DriverCreateBucket(t.Context(), &cosiproto.DriverCreateBucketRequest{Name: "bucket-1\n\x1b[2J" + long, Parameters: map[string]string{"contract": "team-a", "policy": "planted-secret"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DriverRevokeBucketAccess(t.Context(), &cosiproto.DriverRevokeBucketAccessRequest{BucketId: "main.team-b.bucket-2", AccountId: "main.team-b.ba-1"}); err == nil {
		t.Fatal("a call that is not implemented succeeds")
	}
	if want := []string{"/cosi.v1alpha1.Provisioner/DriverRevokeBucketAccess main.team-b.bucket-2 main.team-b.ba-1 method DriverRevokeBucketAccess not implemented"}; !slices.Equal(failures, want) {
		t.Errorf("told are the failures %q, want %q", failures, want)
	}
	var requests []string
	for _, want := range []struct{ line, is string }{
		{`"Call done"`, ` contract="team-a" bucket="bucket-1 [2Jxxx`},
		{`"Call failed"`, ` contract="team-b" bucket="main.team-b.bucket-2" access="main.team-b.ba-1"`},
	} {
		for line := range strings.Lines(log.String()) {
			if !strings.Contains(line, want.line) {
				continue
			}
			if !strings.Contains(line, want.is) || len(line) > 800 || strings.Contains(line, "planted") {
				t.Errorf("the line is %s; want %s", line, want.is)
			}
			requests = append(requests, regexp.MustCompile(`request="[a-z0-9]{10}"`).FindString(line))
		}
	}
	if len(requests) != 2 || requests[0] == "" || requests[0] == requests[1] {
		t.Errorf("request ids %q", requests)
	}
	if !strings.Contains(log.String(), `"Provisioning" method="/cosi.v1alpha1.Provisioner/DriverCreateBucket" `+requests[0]) {
		t.Errorf("the handler's lines have another request id:\n%s", log)
	}
}

// The handler's logger is the one that knows the method.
func TestHandlerGetsTheLogger(t *testing.T) {
	t.Parallel()
	s := serve(t, setup{handler: func(ctx context.Context) (*cosiproto.DriverGetInfoResponse, error) {
		klog.FromContext(ctx).Info("From the handler")
		return named(ctx)
	}})
	if err := receive(t, "answer", s.call(t)); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(s.log.String()) {
		if strings.Contains(line, "From the handler") && strings.Contains(line, getInfo) {
			return
		}
	}
	t.Errorf("no line of the handler names the method:\n%s", s.log)
}

func TestReflectionListsServices(t *testing.T) {
	t.Parallel()
	s := serve(t, setup{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := grpc_reflection_v1.NewServerReflectionClient(s.conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
	}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, service := range answer.GetListServicesResponse().GetService() {
		got = append(got, service.GetName())
	}
	for _, want := range []string{"cosi.v1alpha1.Identity", "grpc.health.v1.Health"} {
		if !slices.Contains(got, want) {
			t.Errorf("reflection lists %q, without %s", got, want)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	const reason = "backend main: the contract service does not answer (connection refused)"
	broken := errors.New(reason)
	for name, c := range map[string]struct {
		service string
		ready   error
		status  grpc_health_v1.HealthCheckResponse_ServingStatus
		reason  []string
		code    codes.Code
	}{
		"process":                      {"", nil, grpc_health_v1.HealthCheckResponse_SERVING, nil, codes.OK},
		"process without its backends": {"", broken, grpc_health_v1.HealthCheckResponse_SERVING, nil, codes.OK},
		"ready":                        {server.ReadyService, nil, grpc_health_v1.HealthCheckResponse_SERVING, nil, codes.OK},
		"not ready":                    {server.ReadyService, broken, grpc_health_v1.HealthCheckResponse_NOT_SERVING, []string{reason}, codes.OK},
		"backends":                     {server.BackendsService, nil, grpc_health_v1.HealthCheckResponse_NOT_SERVING, []string{reason}, codes.OK},
		"unknown":                      {"cosi.v1alpha1.Nothing", nil, 0, nil, codes.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, setup{ready: func(context.Context) error { return c.ready }, backends: func(context.Context) error { return broken }})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var header metadata.MD
			answer, err := s.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: c.service}, grpc.Header(&header))
			if status.Code(err) != c.code || answer.GetStatus() != c.status {
				t.Errorf("answer %v, %v; want %v, %v", answer.GetStatus(), err, c.status, c.code)
			}
			if got := header.Get(server.ReasonHeader); !slices.Equal(got, c.reason) {
				t.Errorf("reason %q, want %q", got, c.reason)
			}
		})
	}
}

func TestServeStopsAHangingCall(t *testing.T) {
	t.Parallel()
	started := make(chan struct{})
	s := serve(t, setup{grace: 20 * time.Millisecond, handler: func(ctx context.Context) (*cosiproto.DriverGetInfoResponse, error) {
		close(started)
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}})
	answered := s.call(t)
	receive(t, "start of the call", started)
	s.stop()
	if err := receive(t, "stop", s.ended); err != nil {
		t.Errorf("a stop that was asked for returned %v", err)
	}
	if err := receive(t, "end of the call", answered); err == nil {
		t.Error("the call that was broken off is said to have gone well")
	}
}

func TestServeWaitsForACallUnderWay(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	s := serve(t, setup{grace: 2 * patience, handler: func(ctx context.Context) (*cosiproto.DriverGetInfoResponse, error) {
		close(started)
		<-release
		if ctx.Err() != nil {
			return nil, status.Error(codes.Aborted, "the stop ended the call's context")
		}
		return named(ctx)
	}})
	answered := s.call(t)
	receive(t, "start of the call", started)
	s.stop()
	poll.Until(t, "no new connections", func() bool {
		conn, err := net.Dial("unix", s.path)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	select {
	case err := <-s.ended:
		t.Errorf("Serve returned %v with a call under way", err)
	case err := <-answered:
		t.Errorf("the call ended with %v before it was let go on", err)
	default:
	}
	close(release)
	if err := receive(t, "answer", answered); err != nil {
		t.Errorf("the call under way: %v", err)
	}
	if err := receive(t, "stop", s.ended); err != nil {
		t.Errorf("a stop that was asked for returned %v", err)
	}
	if left, err := os.Lstat(s.path); err == nil {
		t.Errorf("the stop left %s behind", left.Name())
	}
}

// A listener that breaks is not a stop that was asked for.
func TestServeReportsABrokenListener(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("unix", filepath.Join(shortDir(t), "cosi.sock"))
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	s := server.New(klog.Background(), server.Config{
		CallTimeout: patience, Recorder: &recorder{}, Register: func(*grpc.Server) {},
	})
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(t.Context(), listener, 0) }()
	if err := receive(t, "end of Serve", failed); err == nil || !strings.Contains(err.Error(), "socket") {
		t.Errorf("Serve returned %v on a closed listener", err)
	}
}

// ---- Probes over HTTP.

func TestHTTP(t *testing.T) {
	t.Parallel()
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("some_metric 1\n")) })
	broken := server.Away{
		"backend main": errors.New("backend main: the contract service says \x1b[2J planted-token"),
		"journal":      errors.New("the Kubernetes API server at 10.0.0.1 does not answer"),
	}
	for name, c := range map[string]struct {
		method, path string
		ready        error
		code         int
		body         string
	}{
		"healthz":                      {"GET", "/healthz", nil, 200, "ok\n"},
		"healthz without the backends": {"GET", "/healthz", broken, 200, "ok\n"},
		"ready":                        {"GET", "/readyz", nil, 200, "ok\n"},
		"not ready":                    {"GET", "/readyz", broken, 503, "not ready: backend main, journal\n"},
		"metrics":                      {"GET", "/metrics", broken, 200, "some_metric 1\n"},
		"other path":                   {"GET", "/", nil, 404, "404 page not found\n"},
		"path below":                   {"GET", "/metrics/x", nil, 404, "404 page not found\n"},
		"post metrics":                 {"POST", "/metrics", nil, 405, "Method Not Allowed\n"},
		"post healthz":                 {"POST", "/healthz", nil, 405, "Method Not Allowed\n"},
		"post readyz":                  {"POST", "/readyz", nil, 405, "Method Not Allowed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := httptest.NewRecorder()
			handler := server.HTTP(metrics, func(context.Context) error { return c.ready })
			handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil))
			if answer.Code != c.code || answer.Body.String() != c.body {
				t.Errorf("answer %d %q, want %d %q", answer.Code, answer.Body, c.code, c.body)
			}
		})
	}
}

// Clients that send nothing, or without end, do not keep others from asking, and
// cost no more than a few connections.
func TestHTTPClients(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	at, done, err := server.ServeHTTP(ctx, func() {}, "127.0.0.1:0", server.HTTP(http.NotFoundHandler(), func(context.Context) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	get := func(header string) (int, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Long", header)
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Do(request)
		if err != nil {
			return 0, err
		}
		return answer.StatusCode, answer.Body.Close()
	}
	if code, err := get(strings.Repeat("x", 100<<10)); err == nil && code == http.StatusOK {
		t.Error("a header of 100 KiB is read")
	}
	silent := make(chan struct{})
	var ended atomic.Int32
	for range 300 {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		go func() { // until the listener has had enough of a client that says nothing
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
			if ended.Add(1) == 300 {
				close(silent)
			}
		}()
	}
	if code, err := get(""); err != nil || code != http.StatusOK {
		t.Errorf("a probe beside 300 silent clients: %d, %v", code, err)
	}
	if ended.Load() == 0 { // it came last
		t.Error("301 clients are served at once")
	}
	cancel()
	if err := receive(t, "end of the listener", done); err != nil {
		t.Error(err)
	}
	receive(t, "end of the silent clients", silent)
	if _, _, err := server.ServeHTTP(ctx, func() {}, "127.0.0.1:1000000", nil); err == nil {
		t.Error("an address that is none is served")
	}
}

// ---- Looks.

func TestLooksOnceASecond(t *testing.T) {
	t.Parallel()
	const callers = 100
	broken := errors.New("no answer")
	var asked, within atomic.Int32
	ready := server.Looks(klog.Background(), func(context.Context) server.Away {
		asked.Add(1)
		if within.Add(1) > 1 {
			t.Error("two callers look at the same time")
		}
		defer within.Add(-1)
		return server.Away{"journal": broken}
	})
	start := time.Now()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if err := ready(t.Context()); err == nil || err.Error() != broken.Error() {
				t.Errorf("a caller is told %v, want %v", err, broken)
			}
		})
	}
	all.Wait()
	// A second may pass on a busy machine, so its length is taken into account.
	if most := 1 + int32(time.Since(start)/time.Second); asked.Load() > most {
		t.Errorf("asked %d times for %d callers, want at most %d", asked.Load(), callers, most)
	}
}

func TestLooksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log harness.Buffer
		looks := []server.Away{
			{"backend main": errors.New("main is away")}, {"backend main": errors.New("main is away")}, {}, nil,
			{"journal": errors.New("no journal"), "backend main": errors.New("main is slow")},
			{"journal": errors.New("no journal"), "backend main": errors.New("main is away")},
		}
		asked := 0
		ready := server.Looks(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))), func(ctx context.Context) server.Away {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("a look has no bound")
			}
			if ctx.Err() != nil { // what one probe's impatience did would be told to all others
				t.Error("the look was given up with its caller")
			}
			asked++
			return looks[asked-1]
		})
		given, cancel := context.WithCancel(t.Context())
		cancel()
		for i, want := range []string{"main is away", "main is away", "", "", "main is slow; no journal", "main is away; no journal"} {
			got := ""
			if err := ready(given); err != nil {
				got = err.Error()
			}
			if got != want || asked != i+1 {
				t.Errorf("look %d of %d: %q, want %q", asked, i+1, got, want)
			}
			time.Sleep(2 * time.Second)
		}
		// Told once for each change.
		for text, times := range map[string]int{
			`"Not available" part="backend main" reason="main is away"`: 2, `"Not available" part="backend main" reason="main is slow"`: 1,
			`"Available again" part="backend main"`: 1, `part="journal"`: 1,
		} {
			if n := strings.Count(log.String(), text); n != times {
				t.Errorf("%q is in the log %d times, want %d:\n%s", text, n, times, log.String())
			}
		}
	})
}
