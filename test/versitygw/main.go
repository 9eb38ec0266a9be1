// Command versitygw runs the S3 gateway of that name for the tests of the
// providers, as a deployment would: with the accounts of its admin API, or with
// the AWS-compatible IAM service beside it. It has a module of its own, so that
// nothing of it is in the driver's.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3api"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "versitygw:", err)
		os.Exit(1)
	}
}

// limit of connections and requests, far above what a test makes.
const limit = 4096

func run(ctx context.Context) error {
	dir := flag.String("dir", "", "`directory` that holds accounts and objects")
	s3 := flag.String("s3", "", "`host:port` of the S3 and admin API")
	iam := flag.String("iam", "", "`host:port` of the IAM API; empty is the admin API's accounts")
	access := flag.String("access", "", "root's access key `id`")
	secret := os.Getenv("ROOT_SECRET_KEY")
	addresses := flag.String("addresses-file", "", "`file` to write when all accept connections")
	flag.Parse()

	config := &embedgw.Config{
		RootUserAccess: *access, RootUserSecret: secret, Ports: []string{*s3},
		MaxConnections: limit, MaxRequests: limit, MultipartMaxParts: 10000, KeepAlive: true, Quiet: true,
		IAMCacheDisable: true, // 1.8.0 finds accounts in it by strings that later requests overwrite
	}
	ended := make(chan error, 2)
	if *iam == "" {
		config.IAMDir = filepath.Join(*dir, "iam")
	} else {
		socket := filepath.Join(*dir, "iam.sock")
		if err := os.MkdirAll(filepath.Join(*dir, "iam"), 0o700); err != nil {
			return err
		}
		go func() {
			ended <- embedgw.RunIAMAPI(ctx, &embedgw.IAMConfig{
				RootUserAccess: *access, RootUserSecret: secret, Ports: []string{*iam}, IAMDir: filepath.Join(*dir, "iam"),
				PrivatePorts: []string{socket}, PrivateSocketPerm: "0600", MaxConnections: limit, MaxRequests: limit, KeepAlive: true, Quiet: true,
			})
		}()
		config.StandaloneIAMEndpoint = socket
		if err := until(ctx, "unix", socket); err != nil {
			return err
		}
		if err := until(ctx, "tcp", *iam); err != nil {
			return err
		}
	}
	objects, versions := filepath.Join(*dir, "objects"), filepath.Join(*dir, "versions")
	for _, d := range []string{objects, versions, filepath.Join(*dir, "iam")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	storage, err := posix.New(objects, meta.XattrMeta{}, posix.PosixOpts{VersioningDir: versions})
	if err != nil {
		return err
	}
	accepting := make(chan struct{})
	config.S3Options = []s3api.Option{s3api.WithOnListen(func() { close(accepting) })}
	go func() { ended <- embedgw.RunVersityGW(ctx, storage, config) }()
	select {
	case <-accepting:
	case err := <-ended:
		return err
	}
	text, err := json.Marshal(map[string]string{"s3": "http://" + *s3, "iam": "http://" + *iam})
	if err != nil {
		return err
	}
	if err := os.WriteFile(*addresses, text, 0o600); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return errors.Join(err, errors.New("a server has ended"))
	}
}

// until waits for a process to accept connections.
func until(ctx context.Context, network, address string) error {
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, network, address)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}
