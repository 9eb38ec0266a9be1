// Package inprocess runs a driver inside a test, where the race detector sees it.
package inprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// Driver is one that serves.
type Driver struct {
	// HTTP is where it answers probes and metrics.
	HTTP string
	// Conn is a connection to its socket.
	Conn *grpc.ClientConn

	cancel context.CancelFunc
	done   chan error
}

// Start runs a driver with the configuration in file, at endpoint, until Stop.
// logs is told of everything.
func Start(file, endpoint string, logs io.Writer) (*Driver, error) {
	c, err := config.Load(file, driver.Types())
	if err != nil {
		return nil, err
	}
	d := &Driver{done: make(chan error, 1)}
	var ctx context.Context
	ctx, d.cancel = context.WithCancel(context.Background())
	log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(9), textlogger.Output(logs)))
	started := make(chan string, 1)
	go func() {
		d.done <- driver.Run(klog.NewContext(ctx, log), c, driver.Options{
			ConfigFile:  file,
			Versions:    []driver.Version{driver.V1alpha1, driver.V1alpha2},
			Socket:      server.Socket{Endpoint: endpoint, Mode: 0o600},
			HTTPAddress: "127.0.0.1:0", Grace: 10 * time.Second,
			Started: func(address string) { started <- address },
		})
	}()
	select {
	case d.HTTP = <-started:
	case err := <-d.done:
		d.cancel()
		return nil, fmt.Errorf("the driver did not start: %w", err)
	}
	if d.Conn, err = harness.Dial(ctx, endpoint); err != nil {
		d.cancel()
		return nil, errors.Join(err, <-d.done)
	}
	return d, nil
}

// Stop ends the driver, and returns what it ended with.
func (d *Driver) Stop() error {
	_ = d.Conn.Close()
	d.cancel()
	return <-d.done
}
