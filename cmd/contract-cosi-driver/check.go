package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server"
)

// check asks a running driver who it is and whether it could serve a call now.
// It fails, for the use as a probe, when the driver, its journal or one of its
// backends does not answer.
func check(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("contract-cosi-driver check", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var endpoint string
	endpointFlag(flags, &endpoint)
	timeout := flags.Duration("timeout", 8*time.Second, "how long to wait for the answer")
	if err := parse(flags, args); err != nil || helped(flags) {
		return err
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
	var header metadata.MD
	health, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: server.ReadyService}, grpc.Header(&header))
	if err != nil {
		return fmt.Errorf("driver %s does not say how it is: %s", name, status.Convert(err).Message())
	}
	if health.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return errors.New("driver " + name + " is not ready: " + strings.Join(header.Get(server.ReasonHeader), "; "))
	}
	_, err = fmt.Fprintf(stdout, "driver %s is ready\n", name)
	return err
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
