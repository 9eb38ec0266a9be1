// Command contractd is the reference contract service: it sells object storage
// by contract over the API of openapi.yaml, and runs the S3 server that the
// contracts are about in the same process. All it needs is a directory.
package main

//go:generate go -C ../.. tool -modfile=test/tools/go.mod oapi-codegen -config cmd/contractd/internal/api/config.yaml -o cmd/contractd/internal/api/api.gen.go pkg/contract/contractapi/openapi.yaml

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/gateway"
	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/service"
	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

// stopTime bounds an orderly stop; what still runs then is cut off.
const stopTime = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "contractd:", err)
		os.Exit(1)
	}
}

// settings are the flags, checked.
type settings struct {
	dataDir       string
	apiAddress    string
	s3Address     string
	s3URL         string
	region        string
	tokens        []string
	pendingFor    time.Duration
	addressesFile string
}

// run serves until ctx ends, which is an orderly end. It changes the working
// directory of the process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(stderr)))
	return serve(klog.NewContext(ctx, logger), cfg)
}

func parse(args []string, stdout io.Writer) (settings, error) {
	var cfg settings
	var tokenFiles []string
	flags := flag.NewFlagSet("contractd", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // a fault is reported once, by main
	flags.StringVar(&cfg.dataDir, "data-dir", "", "`directory` that holds contracts and objects; made when missing (required)")
	flags.StringVar(&cfg.apiAddress, "api-address", "127.0.0.1:0", "`host:port` of the contract API; port 0 takes a free one")
	flags.StringVar(&cfg.s3Address, "s3-address", "127.0.0.1:0", "`host:port` of the S3 server; port 0 takes a free one")
	flags.StringVar(&cfg.s3URL, "s3-url", "", "`URL` of the S3 server that is told to tenants (default http://<s3-address>)")
	flags.StringVar(&cfg.region, "region", "us-east-1", "`name` of the only region")
	flags.DurationVar(&cfg.pendingFor, "pending-for", 0, "how long a new contract stays pending, as if a person had to sign it")
	flags.StringVar(&cfg.addressesFile, "addresses-file", "", "`file` to write {\"api\":URL,\"s3\":URL} to when both servers accept connections")
	flags.Func("token-file", "`file` with the bearer tokens that may call the API, one a line; may be repeated (required)", func(path string) error {
		tokenFiles = append(tokenFiles, path)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stdout, "contractd serves the contract API, and S3 for the contracts.\n\nFlags:\n")
			flags.SetOutput(stdout)
			flags.PrintDefaults()
		}
		return cfg, err
	}
	switch {
	case flags.NArg() > 0:
		return cfg, fmt.Errorf("unexpected argument %q: contractd takes flags only, see --help", flags.Arg(0))
	case cfg.dataDir == "":
		return cfg, errors.New("--data-dir is missing: name the directory that holds contracts and objects")
	case len(tokenFiles) == 0:
		return cfg, errors.New("--token-file is missing: name a file with the bearer tokens that may call the API")
	case cfg.region == "":
		return cfg, errors.New("--region is empty: give the region a name")
	case cfg.pendingFor < 0:
		return cfg, errors.New("--pending-for is negative: give a time like 30s, or 0")
	}
	var err error
	for _, path := range tokenFiles {
		tokens, readErr := readTokens(path)
		cfg.tokens, err = append(cfg.tokens, tokens...), errors.Join(err, readErr)
	}
	// The gateway changes the working directory.
	for _, path := range []*string{&cfg.dataDir, &cfg.addressesFile} {
		if *path != "" {
			absolute, absErr := filepath.Abs(*path)
			*path, err = absolute, errors.Join(err, absErr)
		}
	}
	return cfg, err
}

// readTokens returns the non-empty lines of a file.
func readTokens(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	tokens := strings.Fields(string(data))
	if len(tokens) == 0 {
		return nil, fmt.Errorf("--token-file: %s is empty: write one token a line", path)
	}
	return tokens, nil
}

func serve(ctx context.Context, cfg settings) (err error) {
	logger := klog.FromContext(ctx)
	if err := os.MkdirAll(cfg.dataDir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	// Who waits for the file must not find the addresses of an earlier run.
	if err := removeFile(cfg.addressesFile); err != nil {
		return fmt.Errorf("--addresses-file: %w", err)
	}
	contracts, err := store.Open(filepath.Join(cfg.dataDir, "contracts.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, contracts.Close()) }()

	// The gateway stops when the API has: an answer given is still true then.
	s3ctx, stopS3 := context.WithCancel(context.WithoutCancel(ctx))
	defer stopS3()
	s3, err := gateway.Start(s3ctx, gateway.Config{
		Dir:     cfg.dataDir,
		Address: cfg.s3Address,
		Region:  cfg.region,
		Store:   contracts,
		Now:     time.Now,
	})
	if err != nil {
		return err
	}
	s3Address := "http://" + s3.Address()
	if cfg.s3URL == "" {
		cfg.s3URL = s3Address
	}

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.apiAddress)
	if err != nil {
		return fmt.Errorf("--api-address: %w", err)
	}
	server := &http.Server{
		Handler: service.New(service.Config{
			Store:      contracts,
			Buckets:    s3.Buckets(),
			Region:     cfg.region,
			S3URL:      cfg.s3URL,
			Tokens:     cfg.tokens,
			PendingFor: cfg.pendingFor,
			Now:        time.Now,
			Healthy:    func() bool { return running(s3.Done()) },
		}).Handler(),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	apiDone := make(chan error, 1)
	go func() { apiDone <- server.Serve(listener) }()

	apiAddress := "http://" + listener.Addr().String()
	if err := writeAddresses(cfg.addressesFile, apiAddress, s3Address); err != nil {
		return fmt.Errorf("--addresses-file: %w", err)
	}
	logger.Info("Serving", "api", apiAddress, "s3", s3Address, "region", cfg.region, "dataDir", cfg.dataDir)

	select {
	case <-ctx.Done():
		logger.Info("Stopping")
	case err = <-apiDone:
		err = fmt.Errorf("the API server ended: %w", err)
	case <-s3.Done():
		err = fmt.Errorf("the S3 server ended: %w", s3.Err())
	}

	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if server.Shutdown(deadline) != nil {
		_ = server.Close() // out of time: what still runs is cut off
	}
	stopS3()
	select {
	case <-s3.Done():
	case <-deadline.Done():
	}
	if err == nil {
		logger.Info("Stopped")
	}
	return err
}

func running(done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
		return true
	}
}

func removeFile(path string) error {
	if err := os.Remove(path); path != "" && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// writeAddresses tells scripts where the servers listen. Who finds the file
// finds it whole.
func writeAddresses(path, api, s3 string) error {
	if path == "" {
		return nil
	}
	data, err := json.Marshal(map[string]string{"api": api, "s3": s3})
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, writeErr := temporary.Write(append(data, '\n'))
	if err := errors.Join(writeErr, temporary.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return os.Rename(temporary.Name(), path)
}
