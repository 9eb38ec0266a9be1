// Package gateway runs the S3 side of the service: versitygw over a directory,
// with the contract store deciding who may do what.
//
// Only one gateway can run in a process, and it changes the process's working
// directory to the one that holds the buckets.
package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3api"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

// Bounds of the S3 server. They are far above what one machine serves at once
// and keep a flood of connections from taking the process's memory.
const (
	maxConnections = 4096
	maxRequests    = 1024
	maxParts       = 10000   // S3's own bound
	maxCopy        = 5 << 30 // S3's own bound, in bytes
	ioBuffer       = 256 << 10
)

// bindAttempts is how often another free port is tried when the one picked was
// taken before the gateway could bind it.
const bindAttempts = 5

// Config says where and for whom the gateway runs.
type Config struct {
	Dir     string // absolute; buckets, old versions and, where needed, metadata live below
	Address string // host:port; port 0 takes a free one
	Region  string
	Store   *store.Store
	Now     func() time.Time
}

// Gateway is a running S3 server.
type Gateway struct {
	address string
	buckets *Contents
	done    chan struct{}
	err     error
}

// Start runs the gateway until ctx ends, and returns once it accepts connections.
func Start(ctx context.Context, cfg Config) (*Gateway, error) {
	attempts := 1
	host, port, err := net.SplitHostPort(cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("S3 address: %w", err)
	}
	if port == "0" {
		attempts = bindAttempts
	}
	for {
		if port == "0" {
			if cfg.Address, err = freeAddress(ctx, host); err != nil {
				return nil, fmt.Errorf("S3 address: %w", err)
			}
		}
		g, err := start(ctx, cfg)
		attempts--
		if err == nil || attempts == 0 || !errors.Is(err, syscall.EADDRINUSE) {
			return g, err
		}
	}
}

// freeAddress finds a free port, because versitygw binds port 0 but does not
// tell which port it got. Between this close and the gateway's bind another
// process may take the port; Start then tries the next one.
func freeAddress(ctx context.Context, host string) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort(host, port), errors.Join(err, l.Close())
}

func start(ctx context.Context, cfg Config) (*Gateway, error) {
	storage, attributes, err := openStorage(ctx, cfg.Dir)
	if err != nil {
		return nil, err
	}
	buckets := newBuckets()
	if err := adopt(ctx, storage, attributes, buckets); err != nil {
		return nil, err
	}
	be := &ledger{
		reads:      storage,
		storage:    storage,
		attributes: attributes,
		versions:   versionsDir(cfg.Dir),
		buckets:    buckets,
		terms: func(code string) (*int64, bool) {
			contract, ok := cfg.Store.ContractByCode(code)
			return contract.MaxBuckets, ok
		},
	}
	accepting := make(chan struct{})
	g := &Gateway{address: cfg.Address, buckets: &Contents{buckets, be}, done: make(chan struct{})}
	go func() {
		defer close(g.done)
		g.err = embedgw.RunVersityGW(ctx, be, &embedgw.Config{
			// No one is given the root key, so it is another one at each start.
			RootUserAccess: "ROOT" + rand.Text()[:16],
			RootUserSecret: rand.Text(),
			Region:         cfg.Region,
			Ports:          []string{cfg.Address},
			// Off the S3 port, and out of reach for want of the root key.
			AdminPorts:          []string{"@contractd-" + rand.Text()},
			AdminMaxConnections: 1,
			AdminMaxRequests:    1,
			MaxConnections:      maxConnections,
			MaxRequests:         maxRequests,
			MultipartMaxParts:   maxParts,
			KeepAlive:           true,
			Quiet:               true,
			IAMService:          &iam{store: cfg.Store, buckets: buckets, now: cfg.Now},
			S3Options:           []s3api.Option{s3api.WithOnListen(func() { close(accepting) })},
		})
	}()
	select {
	case <-accepting:
		return g, nil
	case <-g.done:
		return nil, fmt.Errorf("S3 server on %s: %w", cfg.Address, g.err)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Address is the host and port the gateway listens on.
func (g *Gateway) Address() string { return g.address }

// Buckets is the index of buckets, their owners and what they hold.
func (g *Gateway) Buckets() *Contents { return g.buckets }

// Done is closed when the gateway has ended; [Gateway.Err] then tells why.
func (g *Gateway) Done() <-chan struct{} { return g.done }

// Err returns why the gateway ended, nil after an orderly end.
func (g *Gateway) Err() error {
	<-g.done
	return g.err
}

func versionsDir(dir string) string { return filepath.Join(dir, "versions") }

// openStorage opens the directory tree that holds the buckets.
func openStorage(ctx context.Context, dir string) (*posix.Posix, meta.MetadataStorer, error) {
	objects, versions := filepath.Join(dir, "s3"), versionsDir(dir)
	for _, d := range []string{objects, versions} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, nil, err
		}
	}
	opts := posix.PosixOpts{VersioningDir: versions, IOBufferSize: ioBuffer, CopyObjectThreshold: maxCopy}
	var attributes meta.MetadataStorer = meta.XattrMeta{}
	if err := probe(objects); err != nil {
		opts.SideCarDir = filepath.Join(dir, "metadata")
		klog.FromContext(ctx).Info("The file system keeps no extended attributes; metadata go to files beside the objects",
			"dir", opts.SideCarDir, "cause", err.Error())
		if err := os.MkdirAll(opts.SideCarDir, 0o700); err != nil {
			return nil, nil, err
		}
		if attributes, err = meta.NewSideCar(opts.SideCarDir); err != nil {
			return nil, nil, fmt.Errorf("metadata directory: %w", err)
		}
	}
	attributes = settled{attributes}
	storage, err := posix.New(objects, attributes, opts)
	if err != nil {
		return nil, nil, fmt.Errorf("open the bucket directory: %w", err)
	}
	return storage, attributes, nil
}

// settled lets a bucket that is gone have no attributes. The storage makes sure of
// a bucket before it reads them, and answers 500 when the bucket goes in between.
type settled struct{ meta.MetadataStorer }

// RetrieveAttribute reads an attribute.
func (s settled) RetrieveAttribute(f *os.File, bucket, object, attribute string) ([]byte, error) {
	data, err := s.MetadataStorer.RetrieveAttribute(f, bucket, object, attribute)
	if object == "" && errors.Is(err, fs.ErrNotExist) {
		return nil, meta.ErrNoSuchKey
	}
	return data, err
}

// probe writes an extended attribute, the only sure way to know that it works.
func probe(dir string) error {
	const attribute = "contractd-probe"
	if err := (meta.XattrMeta{}).StoreAttribute(nil, dir, "", attribute, []byte("1")); err != nil {
		return err
	}
	return meta.XattrMeta{}.DeleteAttribute(dir, "", attribute)
}

// adopt reads which buckets there are. A bucket whose making was cut short by a
// crash is a directory without an owner; it holds nothing, no one could ever
// use or delete it, and its name would be taken for good, so it goes.
func adopt(ctx context.Context, storage *posix.Posix, attributes meta.MetadataStorer, buckets *Buckets) error {
	found, err := storage.ListBucketsAndOwners(ctx)
	if err != nil {
		return fmt.Errorf("list buckets: %w", err)
	}
	logger := klog.FromContext(ctx)
	for _, b := range found {
		if b.Owner == "" {
			if err := os.Remove(b.Name); err == nil { // relative: the storage set the working directory
				logger.Info("Removed a bucket that was never finished", "bucket", b.Name)
				continue
			}
			logger.Info("A directory without an owner is not empty and stays; its name cannot be used for a bucket", "bucket", b.Name)
		}
		e := newEntry(b.Name, b.Owner)
		if e.quota, err = readQuota(attributes, b.Name); err != nil {
			return err
		}
		buckets.add(e)
	}
	return nil
}
