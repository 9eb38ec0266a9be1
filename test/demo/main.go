// Command demo walks the driver's main job on this machine, through its
// socket, at a real storage service: contractd, or one of another type with
// -backend. With -keep it leaves both running until Ctrl-C and prints lines to
// try.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

func main() {
	keep := flag.Bool("keep", false, "leave the storage service and the driver running until Ctrl-C")
	backend := flag.String("backend", "contractapi", "`type` of the storage service: "+strings.Join(harness.StorageTypes, ", "))
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *backend, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\nFAILED:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, backend string, keep bool) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	b := harness.Binaries{Driver: filepath.Join(root, "bin", "contract-cosi-driver")}
	dir, err := os.MkdirTemp("", "contract-cosi-")
	if err != nil {
		return err
	}
	d := &demo{out: out, dir: dir}
	// The programs outlive Ctrl-C, which reaches them too, until they are stopped here.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	err = d.start(life, ctx, b, backend)
	switch {
	case err != nil:
	case keep:
		err = d.wait(ctx)
	default:
		err = d.walk(ctx)
	}
	return errors.Join(err, d.stop())
}

// demo is what runs, and what the steps hand on.
type demo struct {
	out      io.Writer
	dir      string
	storage  *harness.Storage
	driver   *harness.Driver
	provider contract.Provider // looks at the service beside the driver
	cosi     cosiproto.ProvisionerClient
}

// contracts are the ones of the demonstration: two tenants, cancelled when
// their last bucket goes.
const contracts = `contracts:
  - name: team-blue
    backend: main
    displayName: Blue team
    onLastBucket: cancel
  - name: team-green
    backend: main
    onLastBucket: cancel
`

func (d *demo) start(life, ctx context.Context, b harness.Binaries, backend string) (err error) {
	d.printf("Starting a storage service of type %s and the driver in %s\n", backend, d.dir)
	if d.storage, err = harness.StartStorage(life, backend, d.dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	file, err := d.storage.WriteConfig(d.dir, contracts)
	if err != nil {
		return err
	}
	c, err := config.Load(file, driver.Types())
	if err != nil {
		return err
	}
	services, err := driver.Services(ctx, c)
	if err != nil {
		return err
	}
	d.provider = services["main"]
	if d.driver, err = harness.StartDriver(life, b, d.dir, file); err != nil {
		return err
	}
	d.cosi = cosiproto.NewProvisionerClient(d.driver.Conn)
	d.printf("  contract API  %s\n  S3            %s\n  driver        %s\n  probes        http://%s/readyz\n\n", d.storage.API, d.storage.S3, d.driver.Endpoint, d.driver.HTTP)
	return ctx.Err()
}

// stop ends both programs and removes the directory.
func (d *demo) stop() error {
	var errs []error
	if d.driver != nil {
		errs = append(errs, named("driver", d.driver.Stop()))
	}
	if d.storage != nil {
		errs = append(errs, named("storage service", d.storage.Stop()))
	}
	errs = append(errs, os.RemoveAll(d.dir))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	d.printf("Both stopped, %s removed.\n", d.dir)
	return nil
}

func named(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s did not stop in order: %w", what, err)
	}
	return nil
}

func (d *demo) printf(format string, args ...any) { _, _ = fmt.Fprintf(d.out, format, args...) }

// step prints what is done and what is seen, and stops the walk if it is not
// what was to be seen.
func (d *demo) step(what string, do func() (string, error)) error {
	start := time.Now()
	seen, err := do()
	if err != nil {
		d.printf("✗ %s\n", what)
		return fmt.Errorf("%s: %w", what, err)
	}
	d.printf("✓ %-58s %s (%s)\n", what, seen, time.Since(start).Round(100*time.Microsecond))
	return nil
}

// walk is the main job.
func (d *demo) walk(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	const bucket, other = "bucket-blue", "bucket-green"
	var id, otherID string
	var key *access
	steps := []struct {
		what string
		do   func() (string, error)
	}{
		{"DriverGetInfo", func() (string, error) {
			info, err := cosiproto.NewIdentityClient(d.driver.Conn).DriverGetInfo(ctx, &cosiproto.DriverGetInfoRequest{})
			return "driver " + info.GetName(), err
		}},
		{"create: the contract is signed, the bucket is made", func() (seen string, err error) {
			if id, err = d.create(ctx, bucket, "team-blue"); err != nil {
				return "", err
			}
			_, err = d.provider.GetContract(ctx, "team-blue")
			return "bucket_id " + id, err
		}},
		{"create again: the same id", func() (string, error) {
			again, err := d.create(ctx, bucket, "team-blue")
			if err == nil && again != id {
				err = fmt.Errorf("got %s", again)
			}
			return "bucket_id " + again, err
		}},
		{"create a neighbour's bucket under another contract", func() (seen string, err error) {
			otherID, err = d.create(ctx, other, "team-green")
			return "bucket_id " + otherID, err
		}},
		{"grant: a key limited to the bucket", func() (seen string, err error) {
			key, err = d.grant(ctx, id, "ba-app", nil)
			return fmt.Sprintf("account_id %s, access key %s", key.account, key.id), err
		}},
		{"grant again: the same key", func() (string, error) {
			again, err := d.grant(ctx, id, "ba-app", nil)
			if err == nil && *again != *key {
				err = errors.New("another key")
			}
			return "access key " + again.id, err
		}},
		{"upload and download with that key", func() (string, error) { return "hello.txt", key.roundTrip(ctx, bucket) }},
		{"the same key at the neighbour's bucket", func() (string, error) {
			return refusedBy(key.put(ctx, other, "hello.txt"))
		}},
		{"a read-only key reads", func() (string, error) { return d.readOnly(ctx, id, bucket) }},
		{"a write-only key writes", func() (string, error) { return d.writeOnly(ctx, id, bucket) }},
		{"revoke: the key is refused", func() (string, error) {
			if err := d.revoke(ctx, id, key.account); err != nil {
				return "", err
			}
			return refusedBy(key.put(ctx, bucket, "hello.txt"))
		}},
		{"delete of a bucket that holds objects", func() (string, error) {
			err := d.delete(ctx, id)
			if status.Code(err) != codes.FailedPrecondition {
				return "", fmt.Errorf("got %v", err)
			}
			return "FailedPrecondition", nil
		}},
		{"emptied by its application, deleted", func() (string, error) {
			last, err := d.grant(ctx, id, "ba-cleaner", nil)
			if err != nil {
				return "", err
			}
			for _, object := range []string{"hello.txt", "written.txt"} {
				if _, err := last.client().DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: ptr(bucket), Key: ptr(object)}); err != nil {
					return "", err
				}
			}
			return "with the keys still given on it", errors.Join(d.delete(ctx, id), d.delete(ctx, otherID))
		}},
		{"nothing is left at the service", func() (string, error) {
			for _, contract := range []string{"team-blue", "team-green"} {
				if _, err := d.provider.GetContract(ctx, contract); !fault.Is(err, fault.NotFound) {
					return "", fmt.Errorf("contract %s: got %v, want that it is not there", contract, err)
				}
			}
			return "no contract, no key, no bucket", nil
		}},
		{"nothing is left in the driver", func() (string, error) { return d.emptyJournal(ctx) }},
	}
	for _, s := range steps {
		if err := d.step(s.what, s.do); err != nil {
			d.printf("\nThe driver's log:\n")
			harness.Copy(d.out, d.driver.Process)
			return err
		}
	}
	d.printf("\nAll %d steps done.\n", len(steps))
	return nil
}

func (d *demo) create(ctx context.Context, name, contract string) (string, error) {
	resp, err := d.cosi.DriverCreateBucket(ctx, &cosiproto.DriverCreateBucketRequest{Name: name, Parameters: map[string]string{"contract": contract}})
	return resp.GetBucketId(), err
}

func (d *demo) delete(ctx context.Context, id string) error {
	_, err := d.cosi.DriverDeleteBucket(ctx, &cosiproto.DriverDeleteBucketRequest{BucketId: id})
	return err
}

func (d *demo) revoke(ctx context.Context, bucketID, accountID string) error {
	_, err := d.cosi.DriverRevokeBucketAccess(ctx, &cosiproto.DriverRevokeBucketAccessRequest{BucketId: bucketID, AccountId: accountID})
	return err
}

// access is what an application finds in its Secret.
type access struct{ account, endpoint, region, id, secret string }

func (d *demo) grant(ctx context.Context, bucketID, name string, parameters map[string]string) (*access, error) {
	resp, err := d.cosi.DriverGrantBucketAccess(ctx, &cosiproto.DriverGrantBucketAccessRequest{
		BucketId: bucketID, Name: name, AuthenticationType: cosiproto.AuthenticationType_Key, Parameters: parameters,
	})
	s := resp.GetCredentials()["s3"].GetSecrets()
	return &access{resp.GetAccountId(), s["endpoint"], s["region"], s["accessKeyID"], s["accessSecretKey"]}, err
}

func (a *access) client() *s3.Client { return harness.S3(a.endpoint, a.region, a.id, a.secret) }

func (a *access) put(ctx context.Context, bucket, object string) error {
	_, err := a.client().PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &object, Body: strings.NewReader("hello\n")})
	return err
}

func (a *access) get(ctx context.Context, bucket, object string) error {
	answer, err := a.client().GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &object})
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && string(text) != "hello\n" {
		err = fmt.Errorf("object %s holds %q", object, text)
	}
	return err
}

func (a *access) roundTrip(ctx context.Context, bucket string) error {
	if err := a.put(ctx, bucket, "hello.txt"); err != nil {
		return err
	}
	return a.get(ctx, bucket, "hello.txt")
}

func (d *demo) readOnly(ctx context.Context, id, bucket string) (string, error) {
	reader, err := d.grant(ctx, id, "ba-reader", map[string]string{"access": "ReadOnly"})
	if err == nil {
		err = reader.get(ctx, bucket, "hello.txt")
	}
	if err != nil {
		return "", err
	}
	seen, err := refusedBy(reader.put(ctx, bucket, "written.txt"))
	return "writing: " + seen, err
}

func (d *demo) writeOnly(ctx context.Context, id, bucket string) (string, error) {
	writer, err := d.grant(ctx, id, "ba-writer", map[string]string{"access": "WriteOnly"})
	if err == nil {
		err = writer.put(ctx, bucket, "written.txt")
	}
	if err != nil {
		return "", err
	}
	seen, err := refusedBy(writer.get(ctx, bucket, "hello.txt"))
	return "reading: " + seen, err
}

// refusedBy says with which code a request was refused, as it had to be. Where
// contracts have their own names of buckets, another one's is not there.
func refusedBy(err error) (string, error) {
	var answer smithy.APIError
	if errors.As(err, &answer) && slices.Contains([]string{"AccessDenied", "InvalidAccessKeyId", "NoSuchBucket"}, answer.ErrorCode()) {
		return "refused, " + answer.ErrorCode(), nil
	}
	return "", fmt.Errorf("not refused: %v", err)
}

func (d *demo) emptyJournal(ctx context.Context) (string, error) {
	text := fetch(ctx, "http://"+d.driver.HTTP+"/metrics")
	for _, want := range []string{"\ncontract_cosi_buckets 0\n", "\ncontract_cosi_keys 0\n"} {
		if !strings.Contains(text, want) {
			return "", errors.New("the metrics tell of buckets or keys")
		}
	}
	return "no bucket, no key", nil
}

func fetch(ctx context.Context, url string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return ""
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

// wait makes a bucket and a key to it, prints lines to try, and waits for Ctrl-C.
func (d *demo) wait(ctx context.Context) error {
	const bucket, account = "photos", "ba-web"
	id, err := d.create(ctx, bucket, "team-blue")
	if err != nil {
		return err
	}
	key, err := d.grant(ctx, id, account, nil)
	if err != nil {
		return err
	}
	environment := filepath.Join(d.dir, "aws.env")
	text := fmt.Sprintf("export AWS_ACCESS_KEY_ID=%s AWS_SECRET_ACCESS_KEY=%s AWS_DEFAULT_REGION=%s\n", key.id, key.secret, key.region)
	if err := os.WriteFile(environment, []byte(text), 0o600); err != nil {
		return err
	}
	socket := strings.TrimPrefix(d.driver.Endpoint, "unix://")
	call := func(method, body string) {
		if body != "" {
			body = " -d '" + body + "'"
		}
		d.printf("bin/grpcurl -plaintext%s -unix %s %s\n", body, socket, method)
	}
	d.printf("# What the driver serves\n")
	call("list", "")
	call("cosi.v1alpha1.Identity/DriverGetInfo", "")
	d.printf("\n# A bucket, and a key to it. Both are there already: you get the same ones.\n")
	call("cosi.v1alpha1.Provisioner/DriverCreateBucket", `{"name": "`+bucket+`", "parameters": {"contract": "team-blue"}}`)
	call("cosi.v1alpha1.Provisioner/DriverGrantBucketAccess", `{"bucket_id": "`+id+`", "name": "`+account+`", "authentication_type": "Key"}`)
	d.printf("\n# Use the key, with any S3 client\n. %s\n", environment)
	d.printf("echo hello | aws --endpoint-url %s s3 cp - s3://%s/hello.txt\n", d.storage.S3, bucket)
	d.printf("aws --endpoint-url %s s3 ls s3://%s\n", d.storage.S3, bucket)
	d.printf("aws --endpoint-url %s s3 rm s3://%s/hello.txt\n", d.storage.S3, bucket)
	d.printf("\n# Take both away again\n")
	call("cosi.v1alpha1.Provisioner/DriverRevokeBucketAccess", `{"bucket_id": "`+id+`", "account_id": "`+key.account+`"}`)
	call("cosi.v1alpha1.Provisioner/DriverDeleteBucket", `{"bucket_id": "`+id+`"}`)
	d.printf("\n# How the driver is\n")
	d.printf("bin/contract-cosi-driver check --endpoint %s\ncurl http://%s/readyz\ncurl http://%s/metrics\n", d.driver.Endpoint, d.driver.HTTP, d.driver.HTTP)
	d.printf("\n# What there is, and what is left over\n")
	for _, command := range []string{"contracts", "keys", "audit"} {
		d.printf("bin/contract-cosi-driver %s --config %s\n", command, filepath.Join(d.dir, "config.yaml"))
	}
	d.printf("\nRunning until Ctrl-C.\n")
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			d.printf("\n")
			return nil
		case <-tick.C:
			if d.driver.Ended() {
				return fmt.Errorf("the driver has ended:\n%s", d.driver.Output)
			}
		}
	}
}

func ptr(s string) *string { return &s }
