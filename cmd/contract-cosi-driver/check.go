package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server"
)

// check asks a running driver who it is and whether all of it is well. It fails
// when the driver, its journal or one of its backends does not answer; /readyz
// says less, whether calls can be taken. With --config it asks the backends of a
// configuration instead, before a driver is deployed with it.
func check(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("contract-cosi-driver check", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var endpoint string
	endpointFlag(flags, &endpoint)
	timeout := flags.Duration("timeout", 0, "how long to wait: by default 8s for a driver, 30s for backends and 5m for a trial")
	file := flags.String("config", "", "check the backends of a configuration `file`, not a running driver")
	try := flags.Bool("trial", false, "with --config: sign a contract at each backend, make a bucket, use a key, and take all of it back")
	if err := parse(flags, args); err != nil || helped(flags) {
		return err
	}
	if *try && *file == "" {
		return errors.New("--trial goes with --config")
	}
	if *timeout == 0 {
		*timeout = 8 * time.Second
		switch {
		case *try:
			*timeout = 5 * time.Minute
		case *file != "":
			*timeout = 30 * time.Second
		}
	}
	if *file != "" {
		ctx, cancel := context.WithTimeout(ctx, *timeout)
		defer cancel()
		return checkBackends(ctx, *file, *try, stdout, stderr)
	}
	if !strings.HasPrefix(endpoint, "unix:///") {
		return fmt.Errorf("endpoint %q is not unix:///absolute/path.sock", endpoint)
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	conn, err := connection.Connect(ctx, endpoint, nil, connection.WithTimeout(*timeout))
	if err != nil {
		return fmt.Errorf("no driver answers at %s", endpoint)
	}
	defer func() { _ = conn.Close() }()
	name, err := whoIsIt(ctx, conn)
	if err != nil {
		return fmt.Errorf("the driver at %s does not say who it is: %s", endpoint, status.Convert(err).Message())
	}
	for _, part := range []struct{ service, is string }{
		{server.ReadyService, "is not ready"},
		{server.BackendsService, "is ready, but not all of its backends are"},
	} {
		var header metadata.MD
		health, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: part.service}, grpc.Header(&header))
		if err != nil {
			return fmt.Errorf("driver %s does not say how it is: %s", name, status.Convert(err).Message())
		}
		if health.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			return errors.New("driver " + name + " " + part.is + ": " + strings.Join(header.Get(server.ReasonHeader), "; "))
		}
	}
	_, err = fmt.Fprintf(stdout, "driver %s is ready\n", name)
	return err
}

// checkBackends prints what each backend of a configuration can do, and fails
// if that is not enough.
func checkBackends(ctx context.Context, file string, try bool, stdout, stderr io.Writer) error {
	c, err := config.Load(file, driver.Types())
	if err != nil {
		return err
	}
	ctx = klog.NewContext(ctx, textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(stderr))))
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "BACKEND\tCHECK\tRESULT\tREASON") // Flush reports what could not be written
	failed := 0
	err = driver.Check(ctx, c, try, func(f driver.Finding) {
		result, reason := "ok", ""
		switch {
		case f.Skipped:
			result = "skipped"
		case f.Err != nil:
			result, reason = "FAILED", f.Err.Error()
			failed++
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.Backend, f.What, result, reason)
	})
	if err := errors.Join(err, table.Flush()); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d checks failed", failed)
	}
	return nil
}

// whoIsIt asks in the version that the driver serves.
func whoIsIt(ctx context.Context, conn *grpc.ClientConn) (name string, err error) {
	info, err := cosiproto.NewIdentityClient(conn).DriverGetInfo(ctx, &cosiproto.DriverGetInfoRequest{})
	if status.Code(err) != codes.Unimplemented {
		return info.GetName(), err
	}
	next, err := cosipb.NewIdentityClient(conn).DriverGetInfo(ctx, &cosipb.DriverGetInfoRequest{})
	return next.GetName(), err
}
