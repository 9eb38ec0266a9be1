package integration

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// fill writes objects, each with some versions.
func fill(t *testing.T, c *s3.Client, bucket string, objects, versions int) {
	t.Helper()
	var work errgroup.Group
	work.SetLimit(16)
	for i := range objects {
		work.Go(func() error {
			for range versions {
				if err := put(t, c, bucket, fmt.Sprintf("%d/object-%04d", i%10, i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	must(t, work.Wait())
}

// More than one page, more than one call, a restart of the driver and a kill -9
// of it: all goes in the end, and each message tells how far it has come.
func TestEmptyOverDeadlinesAndRestarts(t *testing.T) {
	t.Parallel()
	e := newEnvWith(t, contractd, onDemand, func(text string) string {
		text = strings.Replace(text, "driver:\n", "driver:\n  callTimeout: 3s\n", 1)
		return strings.Replace(text, "    type: contractapi\n", "    type: contractapi\n    deletionsPerSecond: 300\n", 1)
	})
	contract := newContract()
	bucket := contract + "-full"
	id := e.mustCreate(bucket, map[string]string{"contract": contract, "versioning": "Enabled", "onDelete": "empty"})
	g := e.mustGrant(id, "ba-1", nil)
	app := g.client()
	fill(t, app, bucket, 500, 3)
	for i := range 20 {
		_, err := app.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &bucket, Key: aws.String(fmt.Sprintf("upload-%d", i))})
		must(t, err)
	}
	told := regexp.MustCompile(`it is being emptied: (\d+) versions, delete markers and uploads are deleted so far`)
	last, answers := 0, 0
	for {
		err := e.delete(id)
		if err == nil {
			break
		}
		if status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		answers++
		found := told.FindStringSubmatch(status.Convert(err).Message())
		if found == nil {
			t.Fatalf("%q does not tell how far it is", err)
		}
		now, _ := strconv.Atoi(found[1])
		if now < last {
			t.Errorf("%d after %d", now, last)
		}
		last = now
		if answers == 1 {
			refused(t, "the key while the bucket is emptied", put(t, app, bucket, "x"))
			_, err := e.grant(id, "ba-2", nil)
			expectCode(t, err, codes.FailedPrecondition, "is being emptied for its deletion")
			_, err = e.create(bucket, map[string]string{"contract": contract, "versioning": "Enabled", "onDelete": "empty"})
			expectCode(t, err, codes.Unavailable, "is being emptied for its deletion")
			e.stop()
			e.start()
		}
	}
	if answers < 1 || last == 0 {
		t.Errorf("%d answers, %d deleted; the bucket was to take several calls", answers, last)
	}
	if total := fmt.Sprintf("deleted=%d ", 500*3+20); !strings.Contains(e.logs.String(), total) {
		t.Errorf("the log does not say %s, which is what all calls deleted together", total)
	}
	if left := e.buckets(contract); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A driver that dies in the middle leaves what a repeat carries on from.
func TestEmptyAfterAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := newEnv(t, onDemand)
	e.stop()
	config := dir + "/config.yaml"
	writeFile(t, config, strings.Replace(readFile(t, e.configFile), "    type: contractapi\n", "    type: contractapi\n    deletionsPerSecond: 1000\n", 1))
	contract := newContract()
	bucket := contract + "-full"
	d, err := harness.StartDriver(t.Context(), binaries, e.dir, config)
	must(t, err)
	class := map[string]string{"contract": contract, "onDelete": "empty"}
	id, err := createVia(t, d.Conn, bucket, class)
	must(t, err)
	owner := e.owner(contract)
	fill(t, owner, bucket, 2500, 1)
	done := make(chan error, 1)
	go func() { done <- deleteVia(t, d.Conn, id, class) }()
	e.until(func() bool { // something is gone
		out, err := owner.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: aws.String("0/")})
		return err == nil && aws.ToInt32(out.KeyCount) < 250
	})
	d.Kill()
	if err := <-done; err == nil {
		t.Fatal("it was done before it was killed")
	}
	d, err = harness.StartDriver(t.Context(), binaries, e.dir, config)
	must(t, err)
	t.Cleanup(d.Kill)
	err = deleteVia(t, d.Conn, id, class)
	for status.Code(err) == codes.Unavailable { // a busy machine needs more than one call, as a sidecar makes them
		err = deleteVia(t, d.Conn, id, class)
	}
	must(t, err)
	if left := e.buckets(contract); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// What is locked stays, and the message says which and until when.
func TestEmptyStopsAtALock(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	bucket := contract + "-locked"
	id := e.mustCreate(bucket, map[string]string{"contract": contract, "objectLock": "Enabled", "onDelete": "empty"})
	owner := e.owner(contract)
	must(t, put(t, owner, bucket, "free"))
	until := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Second)
	_, err := owner.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: aws.String("kept"), Body: strings.NewReader("x"),
		ObjectLockMode: types.ObjectLockModeGovernance, ObjectLockRetainUntilDate: &until})
	must(t, err)
	for range 2 {
		expectCode(t, e.delete(id), codes.FailedPrecondition, bucket, "emptying it has stopped after", `object "kept" is locked until `+until.Format(time.RFC3339)+" (GOVERNANCE)")
	}
	allowed(t, "what is locked", func() error {
		_, err := owner.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: aws.String("kept")})
		return err
	}())

	held := contract + "-held"
	id = e.mustCreate(held, map[string]string{"contract": contract, "objectLock": "Enabled", "onDelete": "empty"})
	_, err = owner.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &held, Key: aws.String("evidence"), Body: strings.NewReader("x"), ObjectLockLegalHoldStatus: types.ObjectLockLegalHoldStatusOn})
	must(t, err)
	expectCode(t, e.delete(id), codes.FailedPrecondition, `object "evidence" is under a legal hold`)
	versions, err := owner.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &held})
	must(t, err)
	_, err = owner.PutObjectLegalHold(t.Context(), &s3.PutObjectLegalHoldInput{Bucket: &held, Key: aws.String("evidence"), VersionId: versions.Versions[0].VersionId,
		LegalHold: &types.ObjectLockLegalHold{Status: types.ObjectLockLegalHoldStatusOff}})
	must(t, err)
	must(t, e.delete(id))
}

// Before anything is deleted, no one else can write: the driver's keys and the
// access that the class has given to others are gone.
func TestEmptyTakesAccessAway(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	bucket := contract + "-open"
	id := e.mustCreate(bucket, map[string]string{"contract": contract, "objectLock": "Enabled", "onDelete": "empty",
		"policy": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":["s3:PutObject"],"Resource":["arn:aws:s3:::${bucket}/*"]}]}`})
	anybody := func() int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, e.service.S3+"/"+bucket+"/by-anybody", strings.NewReader("x"))
		must(t, err)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if code := anybody(); code != http.StatusOK {
		t.Fatalf("HTTP %d; the policy lets anybody write", code)
	}
	g := e.mustGrant(id, "ba-1", nil)
	until := time.Now().Add(time.Hour)
	_, err := e.owner(contract).PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: aws.String("kept"), Body: strings.NewReader("x"),
		ObjectLockMode: types.ObjectLockModeGovernance, ObjectLockRetainUntilDate: &until})
	must(t, err)
	expectCode(t, e.delete(id), codes.FailedPrecondition, "is locked until")
	refused(t, "the application", put(t, g.client(), bucket, "x"))
	if code := anybody(); code != http.StatusForbidden {
		t.Errorf("HTTP %d; the class's policy was to go first", code)
	}
}

// A bucket that was adopted is emptied only if the class it was adopted by says so.
func TestEmptyOfAnAdoptedBucket(t *testing.T) {
	t.Parallel()
	contract := newContract()
	e := newEnv(t, "contracts:\n  - {name: "+contract+", backend: main, adoptBuckets: true}\n")
	e.mustCreate(contract+"-signs", map[string]string{"contract": contract})
	owner := e.owner(contract)
	for _, c := range []struct {
		bucket string
		class  map[string]string
		gone   bool
	}{{contract + "-kept", nil, false}, {contract + "-emptied", map[string]string{"onDelete": "empty"}, true}} {
		_, err := owner.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &c.bucket})
		must(t, err)
		must(t, put(t, owner, c.bucket, "x"))
		id := "main." + contract + "." + c.bucket
		_, err = v2{e}.existing(id, c.class)
		must(t, err)
		err = v2{e}.delete(id, map[string]string{"onDelete": "empty"})
		if c.gone {
			must(t, err)
		} else {
			expectCode(t, err, codes.FailedPrecondition, "still holds objects")
			allowed(t, "get", get(t, owner, c.bucket, "x"))
		}
	}
}
