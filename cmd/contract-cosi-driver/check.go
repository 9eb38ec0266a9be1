package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server"
)

// check asks a running driver who it is and whether all of it is well. It fails
// when the driver, its journal or one of its backends does not answer; /readyz
// says less, whether calls can be taken. With --config it asks the backends of a
// configuration instead, before a driver is deployed with it.
func check() *cobra.Command {
	var endpoint, file string
	var timeout age
	var try bool
	c := &cobra.Command{
		Use: "check", Short: "Probe a running driver, or try a configuration's backends", Args: arguments,
		Example: "  contract-cosi-driver check --endpoint unix:///run/cosi/cosi.sock\n" +
			"  contract-cosi-driver check --config driver.yaml\n" +
			"  contract-cosi-driver check --config driver.yaml --trial",
	}
	flags := c.Flags()
	endpointFlag(flags, &endpoint)
	flags.Var(&timeout, "timeout", "how long to wait: by default 8s for a driver, 30s for backends and 5m for a trial")
	flags.StringVar(&file, "config", "", "check the backends of a configuration `file`, not a running driver")
	flags.BoolVar(&try, "trial", false, "with --config: sign a contract at each backend, make a bucket, use a key, and take all of it back")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if try && file == "" {
			return errors.New("--trial goes with --config")
		}
		least := 8 * time.Second
		switch {
		case try:
			least = 5 * time.Minute
		case file != "":
			least = 30 * time.Second
		}
		ctx, cancel := context.WithTimeout(c.Context(), cmp.Or(time.Duration(timeout), least))
		defer cancel()
		if file != "" {
			return checkBackends(ctx, file, try, c.OutOrStdout(), c.ErrOrStderr())
		}
		return checkDriver(ctx, endpoint, c.OutOrStdout())
	}
	return c
}

// checkDriver prints the name of the driver that serves at an endpoint.
func checkDriver(ctx context.Context, endpoint string, stdout io.Writer) error {
	if !strings.HasPrefix(endpoint, "unix:///") {
		return fmt.Errorf("endpoint %q is not unix:///absolute/path.sock", endpoint)
	}
	// gRPC tries again for as long as it may, whatever the reason.
	first, err := (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(endpoint, "unix://"))
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("the socket %s: permission denied; run as the driver's user, or as a member of the socket's group (serve --socket-group)", endpoint)
	} else if err == nil {
		_ = first.Close()
	}
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("no driver answers at %s; see whether one runs with this --endpoint", endpoint)
		}
	}
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
	c, err := load(file)
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
