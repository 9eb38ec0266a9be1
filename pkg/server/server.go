// Package server puts the driver on its unix socket.
//
// It owns what every RPC of every COSI version has in common: the deadline
// that the sidecars do not set, the answer to a panic, one log line and one
// measurement a call, health, reflection and a bounded stop. What the RPCs
// mean is the business of server/v1alpha1, which translates them.
package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
)

// Recorder is told of every RPC.
type Recorder interface {
	RPC(method, code string, took time.Duration)
	Panic()
}

// Config makes a Server.
type Config struct {
	// CallTimeout bounds each RPC.
	CallTimeout time.Duration
	// Recorder is told of every RPC.
	Recorder Recorder
	// Checks are what the health service answers beside "" (the process answers),
	// by service: nil is serving.
	Checks map[string]func(context.Context) error
	// ContractOf tells the contract that a request is about: each has its share of
	// the calls that are served at once. nil is the package's ContractOf.
	ContractOf func(req any) string
	// Failed, which may be nil, is told of each call of COSI that has failed, with the
	// message that it was answered with, and does not wait. method is the full one.
	Failed func(method, bucket, access, message string)
	// Tracer, which may be nil, gets a span of each call of COSI.
	Tracer trace.TracerProvider
	// Register adds the COSI services.
	Register func(*grpc.Server)
}

// Server is the gRPC server.
type Server struct{ grpc *grpc.Server }

// New returns a server with health and reflection beside the COSI services.
// log is what each call's logger derives from.
func New(log klog.Logger, c Config) *Server {
	if c.ContractOf == nil {
		c.ContractOf = ContractOf
	}
	i := interceptor{log: log, admission: newAdmission(maxCalls, maxWaiting), Config: c}
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(i.record, i.bound, i.admit, i.recover),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeader), grpc.MaxConcurrentStreams(2 * (maxCalls + maxWaiting)), grpc.ConnectionTimeout(slowClient),
		grpc.NumStreamWorkers(workers), // the SDK's deep stack would be grown again in each call's goroutine
		// A fixed window, since no message is large: measuring one costs a ping for each message.
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
	}
	if c.Tracer != nil {
		options = append(options, grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithTracerProvider(c.Tracer), otelgrpc.WithPropagators(propagation.TraceContext{}),
			otelgrpc.WithFilter(func(call *stats.RPCTagInfo) bool { return isCOSI(call.FullMethodName) }),
		)))
	}
	s := grpc.NewServer(options...)
	c.Register(s)
	grpc_health_v1.RegisterHealthServer(s, &health{checks: c.Checks})
	reflection.Register(s)
	return &Server{grpc: s}
}

// Methods are the full names of COSI's methods that are served.
func (s *Server) Methods() []string {
	var out []string
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			if method := "/" + service + "/" + m.Name; isCOSI(method) {
				out = append(out, method)
			}
		}
	}
	return out
}

// isCOSI tells a method of COSI from those of health and reflection.
func isCOSI(method string) bool { return !strings.HasPrefix(method, "/grpc.") }

// Serve answers calls until ctx ends, then stops: no new call, and those under
// way have the grace time to finish and a few seconds more to undo. It returns nil after a stop that was asked for.
func (s *Server) Serve(ctx context.Context, listener net.Listener, grace time.Duration) error {
	failed := make(chan error, 1)
	go func() { failed <- s.grpc.Serve(netutil.LimitListener(listener, maxClients)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("socket: %w", err)
	case <-ctx.Done():
	}
	stopped := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(grace):
		s.grpc.Stop() // ends the calls' contexts
		select {
		case <-stopped:
		case <-time.After(afterwork):
		}
	}
	if err := <-failed; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("socket: %w", err)
	}
	return nil
}

// workers are goroutines kept for calls; more calls at once get their own.
const workers = 16

// afterwork is how long calls that were ended have to undo what they began.
const afterwork = 6 * time.Second

// maxMessage bounds a request, in bytes. COSI's texts have 4 KiB at most, and the
// documents in a class's parameters some more.
const maxMessage = 1 << 20

// window is how much a client may send before it hears back, in bytes.
const window = 1 << 20

type interceptor struct {
	log       klog.Logger
	admission *admission
	Config
}

// record logs and measures the outcome. Of a request no more is logged than what
// it is about: parameters are in it, and credentials in the response. All lines of
// one call have the same request id.
func (i interceptor) record(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	start := time.Now()
	log := i.log.WithValues("method", info.FullMethod, "request", newRequestID())
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(subjectOf(req).attributes()...)
		log = log.WithValues("trace", span.SpanContext().TraceID())
	}
	resp, err := handle(klog.NewContext(ctx, log), req)
	took, code := time.Since(start), status.Code(err)
	i.Recorder.RPC(info.FullMethod, code.String(), took)
	if err != nil {
		about, message := subjectOf(req), status.Convert(err).Message()
		log.Info("Call failed", append(about.values(), "code", code, "message", message, "took", took)...)
		if i.Failed != nil && code != codes.Canceled && about != (subject{}) {
			i.Failed(info.FullMethod, about.bucket, about.access, message)
		}
	} else if done := log.V(2); done.Enabled() {
		done.Info("Call done", append(subjectOf(req).values(), "took", took)...)
	}
	return resp, err
}

func (i interceptor) bound(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, i.CallTimeout)
	defer cancel()
	return handle(ctx, req)
}

// recover answers a panic with Internal. An empty OK, which a handler that
// returns nil would send, tells the sidecar that all went well.
func (i interceptor) recover(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if what := recover(); what != nil {
			i.Recorder.Panic()
			klog.FromContext(ctx).Error(fmt.Errorf("panic: %v", what), "A call panicked; this is a defect of the driver", "stack", string(debug.Stack()))
			resp, err = nil, status.Error(codes.Internal, "the driver has a defect; see its log")
		}
	}()
	return handle(ctx, req)
}

// What the driver lets the health service be asked, beside "", by which it says
// that the process answers.
const (
	// ReadyService: calls can be taken now.
	ReadyService = "ready"
	// BackendsService: every storage service can be used now.
	BackendsService = "backends"
)

// ReasonHeader carries why a service is not serving.
const ReasonHeader = "reason"

type health struct {
	grpc_health_v1.UnimplementedHealthServer
	checks map[string]func(context.Context) error
}

// Check implements the gRPC health protocol.
func (h *health) Check(ctx context.Context, req *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	answer := &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}
	if req.GetService() == "" {
		return answer, nil
	}
	check, known := h.checks[req.GetService()]
	if !known {
		return nil, status.Errorf(codes.NotFound, "the health service knows \"\" and %q", slices.Sorted(maps.Keys(h.checks)))
	}
	if err := check(ctx); err != nil {
		answer.Status = grpc_health_v1.HealthCheckResponse_NOT_SERVING
		_ = grpc.SetHeader(ctx, metadata.Pairs(ReasonHeader, strings.Join(strings.Fields(err.Error()), " ")))
	}
	return answer, nil
}
