// Command empty measures the deletion of a full bucket through the driver, as
// the sidecar asks for it, beside a bare loop with the same SDK and an
// application's key that lists and deletes until nothing is left. Both buckets
// hold the same; who goes first changes from round to round.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

const (
	wanted      = 1.0 // the driver's speed as a part of the bare loop's
	maxAddedMiB = 16
)

type options struct {
	services                  string
	objects, versions, rounds int
}

func main() {
	var o options
	flag.StringVar(&o.services, "services", strings.Join(harness.StorageTypes, ","), "`types` of services to measure at, separated by commas")
	flag.IntVar(&o.objects, "objects", 2000, "objects in each bucket")
	flag.IntVar(&o.versions, "versions", 3, "versions of each object, where the service keeps versions")
	flag.IntVar(&o.rounds, "rounds", 3, "pairs of buckets")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, o)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, o options) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	var table strings.Builder
	var missed error
	for kind := range strings.SplitSeq(o.services, ",") {
		row, err := o.measure(ctx, out, filepath.Join(root, "bin", "contract-cosi-driver"), kind)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		speed := row.bare.Seconds() / row.driven.Seconds()
		_, _ = fmt.Fprintf(&table, "| %s | %d | %.0f | %.0f | %.2f | %.0f |\n", kind, row.versions, float64(row.versions)/row.bare.Seconds(), float64(row.versions)/row.driven.Seconds(), speed, row.added)
		if speed < wanted {
			missed = errors.Join(missed, fmt.Errorf("%s: the driver has %.2f of the bare loop's speed, wanted %.1f", kind, speed, wanted))
		}
		if row.added > maxAddedMiB {
			missed = errors.Join(missed, fmt.Errorf("%s: it added %.0f MiB to the driver, at most %d are wanted", kind, row.added, maxAddedMiB))
		}
	}
	_, _ = fmt.Fprintf(out, "\n| service | versions deleted by each | bare loop, a second | driver, a second | driver to bare | MiB more in the driver |\n|---|---|---|---|---|---|\n%s", table.String())
	return missed
}

// row is what was measured at a service: how long all the versions took, and how many
// MiB the driver took more.
type row struct {
	versions     int
	bare, driven time.Duration
	added        float64
}

func (o options) measure(ctx context.Context, out io.Writer, program, kind string) (row, error) {
	var r row
	dir, err := os.MkdirTemp("", "contract-cosi-bench-")
	if err != nil {
		return r, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	service, err := harness.StartStorage(ctx, kind, dir)
	if err != nil {
		return r, err
	}
	defer func() { _ = service.Stop() }()
	config, err := service.WriteConfig(dir, "onDemand:\n  backend: main\n")
	if err != nil {
		return r, err
	}
	driver, err := harness.StartDriver(ctx, harness.Binaries{Driver: program}, dir, config)
	if err != nil {
		return r, err
	}
	defer func() { _ = driver.Stop() }()
	for round := range o.rounds {
		ours, err := makeBucket(ctx, driver, fmt.Sprintf("driven-%d", round))
		if err != nil {
			return r, err
		}
		other, err := makeBucket(ctx, driver, fmt.Sprintf("bare-%d", round))
		if err != nil {
			return r, err
		}
		began := time.Now()
		for _, b := range []bucket{ours, other} {
			if err := b.fill(ctx, o); err != nil {
				return r, err
			}
		}
		_, _ = fmt.Fprintf(out, "%s, round %d: two buckets of %d objects with %d versions filled in %.0f s\n", kind, round+1, o.objects, o.versions, time.Since(began).Seconds())
		var calls int
		sides := []func() error{
			func() error {
				took, err := timed(func() error { return other.bareLoop(ctx) })
				r.bare += took
				return err
			},
			func() error {
				var added float64
				took, err := timed(func() (err error) {
					added, err = harness.Adds(driver.PID(), func() (err error) { calls, err = deleteThrough(ctx, driver, ours.id); return err })
					return err
				})
				r.driven += took
				r.added = max(r.added, added)
				return err
			},
		}
		if round%2 == 1 {
			sides[0], sides[1] = sides[1], sides[0]
		}
		if err := errors.Join(sides[0](), sides[1]()); err != nil {
			return r, err
		}
		if _, err := deleteThrough(ctx, driver, other.id); err != nil { // which is empty
			return r, err
		}
		r.versions += o.objects * o.versions
		_, _ = fmt.Fprintf(out, "  the driver was called %d times; so far bare %.1f s, driver %.1f s\n", calls, r.bare.Seconds(), r.driven.Seconds())
	}
	return r, nil
}

func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}

// bucket is one with a key for it.
type bucket struct {
	id, name string
	*s3.Client
}

func makeBucket(ctx context.Context, d *harness.Driver, name string) (bucket, error) {
	provisioner := cosiproto.NewProvisionerClient(d.Conn)
	parameters := map[string]string{"contract": "bench", "versioning": "Enabled", "onDelete": "empty"}
	made, err := provisioner.DriverCreateBucket(ctx, &cosiproto.DriverCreateBucketRequest{Name: name, Parameters: parameters})
	if err != nil {
		return bucket{}, err
	}
	granted, err := provisioner.DriverGrantBucketAccess(ctx, &cosiproto.DriverGrantBucketAccessRequest{BucketId: made.GetBucketId(), Name: "ba-" + name, AuthenticationType: cosiproto.AuthenticationType_Key})
	if err != nil {
		return bucket{}, err
	}
	held := granted.GetCredentials()["s3"].GetSecrets()
	return bucket{made.GetBucketId(), name, s3.New(s3.Options{
		BaseEndpoint: aws.String(held["endpoint"]), Region: held["region"], UsePathStyle: true,
		HTTPClient:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: writers}},
		Credentials: credentials.NewStaticCredentialsProvider(held["accessKeyID"], held["accessSecretKey"], ""),
		// Ceph 16 knows no checksum trailers.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
	})}, nil
}

// deleteThrough repeats the call as the sidecar does, without its pauses, and
// returns how often it was made.
func deleteThrough(ctx context.Context, d *harness.Driver, id string) (int, error) {
	for calls := 1; ; calls++ {
		_, err := cosipb.NewProvisionerClient(d.Conn).DriverDeleteBucket(ctx, &cosipb.DriverDeleteBucketRequest{BucketId: id, Parameters: map[string]string{"onDelete": "empty"}})
		if status.Code(err) != codes.Unavailable {
			return calls, err
		}
	}
}

const (
	writers      = 16
	bareDeleters = 4
)

func (b bucket) fill(ctx context.Context, o options) error {
	work, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range writers {
		work.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= o.objects {
					return nil
				}
				key := fmt.Sprintf("%02x/object-%07d", i%256, i)
				for range o.versions {
					if _, err := b.PutObject(ctx, &s3.PutObjectInput{Bucket: &b.name, Key: &key, Body: strings.NewReader("x")}); err != nil {
						return err
					}
				}
			}
		})
	}
	return work.Wait()
}

// bareLoop is what a skilled hand would write: it lists, and deletes page by page
// beside that, until nothing is listed.
func (b bucket) bareLoop(ctx context.Context) error {
	for {
		if listed, err := b.barePass(ctx); listed == 0 || err != nil {
			return err
		}
	}
}

func (b bucket) barePass(ctx context.Context) (listed int, err error) {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(bareDeleters)
	in := &s3.ListObjectVersionsInput{Bucket: &b.name}
	for {
		page, err := b.ListObjectVersions(ctx, in)
		if err != nil {
			return 0, errors.Join(err, work.Wait())
		}
		var batch []types.ObjectIdentifier
		for _, v := range page.Versions {
			batch = append(batch, types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
		}
		for _, m := range page.DeleteMarkers {
			batch = append(batch, types.ObjectIdentifier{Key: m.Key, VersionId: m.VersionId})
		}
		if listed += len(batch); len(batch) > 0 {
			work.Go(func() error {
				_, err := b.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &b.name, Delete: &types.Delete{Objects: batch, Quiet: aws.Bool(true)}})
				return err
			})
		}
		if !aws.ToBool(page.IsTruncated) {
			return listed, work.Wait()
		}
		in.KeyMarker, in.VersionIdMarker = page.NextKeyMarker, page.NextVersionIdMarker
	}
}
