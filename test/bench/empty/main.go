// Command empty measures the deletion of a full bucket through the driver, as
// the sidecar asks for it, beside a bare loop with the same SDK that lists and
// deletes until nothing is left. Both buckets hold the same; who goes first
// changes from round to round.
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

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contractapi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// wanted is the driver's speed as a part of the bare loop's.
const wanted = 1.0

const contractName = "bench"

type options struct{ objects, versions, rounds int }

func main() {
	var o options
	flag.IntVar(&o.objects, "objects", 2000, "objects in each bucket")
	flag.IntVar(&o.versions, "versions", 3, "versions of each object")
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
	dir, err := os.MkdirTemp("", "contract-cosi-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := harness.Binaries{Driver: filepath.Join(root, "bin", "contract-cosi-driver"), Contractd: filepath.Join(root, "bin", "contractd")}
	service, err := harness.StartContractd(ctx, b, dir)
	if err != nil {
		return err
	}
	defer func() { _ = service.Stop() }()
	config := filepath.Join(dir, "config.yaml")
	text := harness.ConfigText(dir, service.API, service.TokenFile, "onDemand:\n  backend: main\n")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	driver, err := harness.StartDriver(ctx, b, dir, config)
	if err != nil {
		return err
	}
	defer func() { _ = driver.Stop() }()

	var bare, driven time.Duration
	for round := range o.rounds {
		ours, bucket, err := makeBucket(ctx, driver, fmt.Sprintf("driven-%d", round))
		if err != nil {
			return err
		}
		_, other, err := makeBucket(ctx, driver, fmt.Sprintf("bare-%d", round))
		if err != nil {
			return err
		}
		client, err := contractsOwn(ctx, service)
		if err != nil {
			return err
		}
		began := time.Now()
		for _, name := range []string{bucket, other} {
			if err := fill(ctx, client, name, o); err != nil {
				return err
			}
		}
		_, _ = fmt.Fprintf(out, "round %d: two buckets of %d objects with %d versions filled in %.0f s\n", round+1, o.objects, o.versions, time.Since(began).Seconds())
		var calls int
		sides := []func() error{
			func() error {
				took, err := timed(func() error { return bareLoop(ctx, client, other) })
				bare += took
				return err
			},
			func() error {
				took, err := timed(func() (err error) { calls, err = deleteThrough(ctx, driver, ours); return err })
				driven += took
				return err
			},
		}
		if round%2 == 1 {
			sides[0], sides[1] = sides[1], sides[0]
		}
		if err := errors.Join(sides[0](), sides[1]()); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "  the driver was called %d times; so far bare %.1f s, driver %.1f s\n", calls, bare.Seconds(), driven.Seconds())
	}
	speed := bare.Seconds() / driven.Seconds()
	n := float64(o.rounds * o.objects * o.versions)
	_, _ = fmt.Fprintf(out, "bare loop %.0f versions/s, driver %.0f versions/s: %.2f of the bare loop's speed, wanted %.1f\n", n/bare.Seconds(), n/driven.Seconds(), speed, wanted)
	if speed < wanted {
		return errors.New("too slow")
	}
	return nil
}

func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}

func makeBucket(ctx context.Context, d *harness.Driver, name string) (id, bucket string, err error) {
	resp, err := cosiproto.NewProvisionerClient(d.Conn).DriverCreateBucket(ctx, &cosiproto.DriverCreateBucketRequest{
		Name: name, Parameters: map[string]string{"contract": contractName, "versioning": "Enabled", "onDelete": "empty"},
	})
	return resp.GetBucketId(), name, err
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

// contractsOwn is a client with a key of the contract's own. It is made as an
// application would make one.
func contractsOwn(ctx context.Context, service *harness.Contractd) (*s3.Client, error) {
	provider, err := contractapi.New(contractapi.Config{URL: service.API, Token: func() secret.String { return secret.New(service.Token) }, HTTP: http.DefaultClient, Observe: func(string, error) {}})
	if err != nil {
		return nil, err
	}
	pair, err := provider.IssueKey(ctx, contract.IssueKeyRequest{Contract: contractName, Slot: cosi.ContractSlot + "-bench", Proposed: secret.KeyPair{AccessKeyID: "bench"}})
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: writers}
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(service.S3), Region: "us-east-1", UsePathStyle: true, HTTPClient: &http.Client{Transport: transport},
		Credentials: credentials.NewStaticCredentialsProvider(pair.AccessKeyID, pair.SecretAccessKey.Reveal(), ""),
	}), nil
}

const (
	writers      = 16
	bareDeleters = 4
)

func fill(ctx context.Context, client *s3.Client, bucket string, o options) error {
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
					if _, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader("x")}); err != nil {
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
func bareLoop(ctx context.Context, client *s3.Client, bucket string) error {
	for listed := -1; listed != 0; {
		var err error
		if listed, err = barePass(ctx, client, bucket); err != nil {
			return err
		}
	}
	_, err := client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &bucket})
	return err
}

func barePass(ctx context.Context, client *s3.Client, bucket string) (listed int, err error) {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(bareDeleters)
	in := &s3.ListObjectVersionsInput{Bucket: &bucket}
	for {
		page, err := client.ListObjectVersions(ctx, in)
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
				_, err := client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &bucket, Delete: &types.Delete{Objects: batch, Quiet: aws.Bool(true)}})
				return err
			})
		}
		if !aws.ToBool(page.IsTruncated) {
			return listed, work.Wait()
		}
		in.KeyMarker, in.VersionIdMarker = page.NextKeyMarker, page.NextVersionIdMarker
	}
}
