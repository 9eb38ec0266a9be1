package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

// empty makes a bucket with nothing in it.
func (w *world) empty(t *testing.T, client *s3.Client) string {
	t.Helper()
	name := fmt.Sprintf("bucket-%d", w.buckets.Add(1))
	want(t, create(t, client, name), "")
	return name
}

func deleteBucket(t *testing.T, c *s3.Client, bucket string) error {
	_, err := c.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &bucket})
	return err
}

func setVersioning(t *testing.T, c *s3.Client, bucket string, status types.BucketVersioningStatus) {
	t.Helper()
	_, err := c.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &bucket,
		VersioningConfiguration: &types.VersioningConfiguration{Status: status}})
	want(t, err, "")
}

func putVersion(t *testing.T, c *s3.Client, bucket, key string) (version string, err error) {
	out, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader("data")})
	if err != nil {
		return "", err
	}
	return aws.ToString(out.VersionId), nil
}

func getVersion(t *testing.T, c *s3.Client, bucket, key, version string) error {
	out, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key, VersionId: &version})
	if err != nil {
		return err
	}
	return out.Body.Close()
}

func copyObject(t *testing.T, c *s3.Client, bucket, source, key string) error {
	_, err := c.CopyObject(t.Context(), &s3.CopyObjectInput{Bucket: &bucket, Key: &key, CopySource: aws.String(source)})
	return err
}

// part begins an upload with one part in it.
func part(t *testing.T, c *s3.Client, bucket, key string) (*s3.CompleteMultipartUploadInput, error) {
	made, err := c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return nil, err
	}
	part, err := c.UploadPart(t.Context(), &s3.UploadPartInput{Bucket: &bucket, Key: &key, UploadId: made.UploadId,
		PartNumber: aws.Int32(1), Body: strings.NewReader("data")})
	if err != nil {
		return nil, err
	}
	return &s3.CompleteMultipartUploadInput{Bucket: &bucket, Key: &key, UploadId: made.UploadId,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{{ETag: part.ETag, PartNumber: aws.Int32(1)}}}}, nil
}

// answered fails when the service could not say what is wrong.
func answered(t *testing.T, what string, err error) {
	t.Helper()
	var api smithy.APIError
	if err != nil && (!errors.As(err, &api) || api.ErrorCode() == "InternalError") {
		t.Errorf("%s: %v", what, err)
	}
}

func TestChangesAndTheDeletionOfTheBucketAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(c *s3.Client, bucket string) (change func() error)
		object  string // that is in the bucket after the change
	}{
		"put": {func(c *s3.Client, bucket string) func() error {
			return func() error { return put(t, c, bucket, "key") }
		}, "key"},
		"put below a directory": {func(c *s3.Client, bucket string) func() error {
			return func() error { return put(t, c, bucket, "a/b/key") }
		}, "a/b/key"},
		"copy": {func(c *s3.Client, bucket string) func() error {
			source := shared.bucket(t, c)
			return func() error { return copyObject(t, c, bucket, source+"/seed", "key") }
		}, "key"},
		"completed upload": {func(c *s3.Client, bucket string) func() error {
			upload, err := part(t, c, bucket, "key")
			want(t, err, "")
			return func() error { _, err := c.CompleteMultipartUpload(t.Context(), upload); return err }
		}, "key"},
		"begun upload": {func(c *s3.Client, bucket string) func() error {
			return func() error { _, err := part(t, c, bucket, "key"); return err }
		}, ""},
		"tags": {func(c *s3.Client, bucket string) func() error {
			return func() error {
				_, err := c.PutBucketTagging(t.Context(), &s3.PutBucketTaggingInput{Bucket: &bucket,
					Tagging: &types.Tagging{TagSet: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}}})
				return err
			}
		}, ""},
		"versioning": {func(c *s3.Client, bucket string) func() error {
			return func() error {
				_, err := c.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &bucket,
					VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
				return err
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, mine := shared.contract(t)
			_, theirs := shared.contract(t)
			for range 20 {
				bucket := shared.empty(t, mine)
				change := test.prepare(mine, bucket)
				var changed, deleted error
				var both sync.WaitGroup
				both.Go(func() { changed = change() })
				both.Go(func() { deleted = deleteBucket(t, mine, bucket) })
				both.Wait()
				answered(t, "the change", changed)
				answered(t, "the deletion", deleted)
				switch {
				case deleted == nil && changed == nil && test.object != "":
					t.Fatal("both the change and the deletion of the bucket are acknowledged")
				case deleted != nil && changed == nil && test.object != "":
					want(t, deleted, "BucketNotEmpty")
					want(t, get(t, mine, bucket, test.object), "")
					want(t, remove(t, mine, bucket, test.object), "")
					want(t, deleteBucket(t, mine, bucket), "")
				case deleted != nil:
					t.Fatalf("the deletion of an empty bucket: %v", deleted)
				}
				// The name is free, and nothing of the old bucket is in the next one.
				want(t, create(t, theirs, bucket), "")
				_, err := theirs.GetBucketTagging(t.Context(), &s3.GetBucketTaggingInput{Bucket: &bucket})
				want(t, err, "NoSuchTagSet")
				want(t, deleteBucket(t, theirs, bucket), "")
				if t.Failed() {
					return
				}
			}
		})
	}
}

func TestBucketsComeAndGoWhileOthersAsk(t *testing.T) {
	_, mine := shared.contract(t)
	_, theirs := shared.contract(t)
	bucket := "coming-" + strings.ToLower(rand.Text())
	done := make(chan struct{})
	var churn, asking sync.WaitGroup
	for _, owner := range []*s3.Client{mine, theirs} {
		churn.Go(func() {
			for range 60 {
				answered(t, "create", create(t, owner, bucket))
				answered(t, "put", put(t, owner, bucket, "a/key"))
				answered(t, "remove", remove(t, owner, bucket, "a/key"))
				answered(t, "delete", deleteBucket(t, owner, bucket))
			}
		})
		asking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				answered(t, "head", head(t, owner, bucket))
				_, err := owner.ListBuckets(t.Context(), &s3.ListBucketsInput{})
				answered(t, "list", err)
			}
		})
	}
	churn.Wait()
	close(done)
	asking.Wait()
	for _, owner := range []*s3.Client{mine, theirs} {
		answered(t, "remove", remove(t, owner, bucket, "a/key"))
		answered(t, "delete", deleteBucket(t, owner, bucket))
	}
	want(t, create(t, mine, bucket), "")
}

// half of a body is more than the server waits for before it begins.
const half = 64 << 10

// slowPut is a put whose body is half sent.
type slowPut struct{ conn *net.TCPConn }

// begin sends the first half of a put.
func begin(t *testing.T, c *s3.Client, input *s3.PutObjectInput) slowPut {
	t.Helper()
	signed, err := s3.NewPresignClient(c).PresignPutObject(t.Context(), input)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(signed.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", target.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var request bytes.Buffer
	fmt.Fprintf(&request, "PUT %s HTTP/1.1\r\nContent-Length: %d\r\n", target.RequestURI(), 2*half)
	want(t, signed.SignedHeader.Write(&request), "") // with the host
	request.WriteString("\r\n")
	request.Write(make([]byte, half))
	_, err = conn.Write(request.Bytes())
	want(t, err, "")
	return slowPut{conn.(*net.TCPConn)}
}

// finish sends the second half and returns the answer's status.
func (p slowPut) finish(t *testing.T) int {
	t.Helper()
	_, err := p.conn.Write(make([]byte, half))
	want(t, err, "")
	return p.status(t)
}

// breakOff sends no more and returns the answer's status.
func (p slowPut) breakOff(t *testing.T) int {
	t.Helper()
	want(t, p.conn.CloseWrite(), "")
	return p.status(t)
}

func (p slowPut) status(t *testing.T) int {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(p.conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func TestSlowPutStopsNobodyAndStaysOutOfTheNextBucket(t *testing.T) {
	_, mine := shared.contract(t)
	_, theirs := shared.contract(t)
	for _, key := range []string{"key", "a/b/key"} {
		bucket := shared.empty(t, mine)
		slow := begin(t, mine, &s3.PutObjectInput{Bucket: &bucket, Key: &key})
		want(t, put(t, mine, bucket, key), "")
		want(t, remove(t, mine, bucket, key), "")
		want(t, deleteBucket(t, mine, bucket), "")
		want(t, create(t, theirs, bucket), "")
		if status := slow.finish(t); status < 400 || status >= 500 {
			t.Errorf("status %d for an object of a bucket that is gone, want 4xx", status)
		}
		want(t, get(t, theirs, bucket, key), "NoSuchKey")
		want(t, deleteBucket(t, theirs, bucket), "")
		want(t, create(t, mine, bucket), "")
	}
}

func TestVersioningSetWhileAnObjectIsSent(t *testing.T) {
	_, c := shared.contract(t)
	bucket, key := shared.empty(t, c), "key"
	slow := begin(t, c, &s3.PutObjectInput{Bucket: &bucket, Key: &key})
	want(t, put(t, c, bucket, "other"), "")
	setVersioning(t, c, bucket, types.BucketVersioningStatusEnabled)
	version, err := putVersion(t, c, bucket, key)
	want(t, err, "")
	if status := slow.finish(t); status != http.StatusConflict && status != http.StatusOK {
		t.Errorf("status %d, want 409, or 200 if it came after the versioning", status)
	}
	want(t, getVersion(t, c, bucket, key, version), "")
}

func TestRefusedPutLeavesNothing(t *testing.T) {
	_, c := shared.contract(t)
	digest := aws.String("AAAAAQ==")
	for name, test := range map[string]struct {
		input s3.PutObjectInput
		code  string
	}{
		"bad digest":              {s3.PutObjectInput{Key: aws.String("a/key"), Body: strings.NewReader("data"), ChecksumCRC32: digest}, "BadDigest"},
		"bad digest, directory":   {s3.PutObjectInput{Key: aws.String("a/b/"), Body: strings.NewReader(""), ChecksumCRC32: digest}, "BadDigest"},
		"bad tags, directory":     {s3.PutObjectInput{Key: aws.String("a/"), Body: strings.NewReader(""), Tagging: aws.String("x=1&x=2")}, "InvalidArgument"},
		"directory with data":     {s3.PutObjectInput{Key: aws.String("a/"), Body: strings.NewReader("data")}, "DirectoryObjectContainsData"},
		"hold without lock":       {s3.PutObjectInput{Key: aws.String("a/key"), Body: strings.NewReader("data"), ObjectLockLegalHoldStatus: types.ObjectLockLegalHoldStatusOn}, "InvalidRequest"},
		"long name":               {s3.PutObjectInput{Key: aws.String("a/" + strings.Repeat("k", 300)), Body: strings.NewReader("data")}, "KeyTooLongError"},
		"long directory":          {s3.PutObjectInput{Key: aws.String("a/" + strings.Repeat("k", 300) + "/k"), Body: strings.NewReader("data")}, "KeyTooLongError"},
		"name of the storage":     {s3.PutObjectInput{Key: aws.String(".sgwtmp/key"), Body: strings.NewReader("data")}, "InvalidArgument"},
		"below an object":         {s3.PutObjectInput{Key: aws.String("seed/b/key"), Body: strings.NewReader("data")}, "ObjectParentIsFile"},
		"condition":               {s3.PutObjectInput{Key: aws.String("a/key"), Body: strings.NewReader("data"), IfMatch: aws.String("x")}, "NoSuchKey"},
		"condition at the object": {s3.PutObjectInput{Key: aws.String("seed"), Body: strings.NewReader("no"), IfNoneMatch: aws.String("*")}, "PreconditionFailed"},
		"hold on the object":      {s3.PutObjectInput{Key: aws.String("seed"), Body: strings.NewReader("no"), ObjectLockLegalHoldStatus: types.ObjectLockLegalHoldStatusOn}, "InvalidRequest"},
	} {
		t.Run(name, func(t *testing.T) {
			bucket := shared.bucket(t, c)
			test.input.Bucket = &bucket
			_, err := c.PutObject(t.Context(), &test.input)
			want(t, err, test.code)
			leavesNothing(t, c, bucket)
		})
	}
	t.Run("below a file that came without S3", func(t *testing.T) {
		bucket := shared.bucket(t, c)
		file := filepath.Join(shared.dir, "s3", bucket, "file")
		want(t, os.WriteFile(file, []byte("data"), 0o600), "")
		want(t, put(t, c, bucket, "file/key"), "ObjectParentIsFile")
		want(t, get(t, c, bucket, "file"), "")
		want(t, os.Remove(file), "")
		leavesNothing(t, c, bucket)
	})
	t.Run("copy with a hold", func(t *testing.T) {
		bucket := shared.bucket(t, c)
		_, err := c.CopyObject(t.Context(), &s3.CopyObjectInput{Bucket: &bucket, Key: aws.String("a/key"), CopySource: aws.String(bucket + "/seed"),
			ObjectLockLegalHoldStatus: types.ObjectLockLegalHoldStatusOn})
		want(t, err, "InvalidRequest")
		leavesNothing(t, c, bucket)
	})
	for _, key := range []string{"a/key", "seed"} {
		t.Run("body broken off, "+key, func(t *testing.T) {
			bucket := shared.bucket(t, c)
			if status := begin(t, c, &s3.PutObjectInput{Bucket: &bucket, Key: &key}).breakOff(t); status != http.StatusBadRequest {
				t.Errorf("status %d, want 400", status)
			}
			leavesNothing(t, c, bucket)
		})
	}
	t.Run("condition no longer true at the end", func(t *testing.T) {
		bucket, key := shared.bucket(t, c), "a/b/key"
		out, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader("data")})
		want(t, err, "")
		slow := begin(t, c, &s3.PutObjectInput{Bucket: &bucket, Key: &key, IfMatch: out.ETag})
		want(t, put(t, c, bucket, "other"), "")
		want(t, remove(t, c, bucket, "other"), "")
		want(t, remove(t, c, bucket, key), "")
		if status := slow.finish(t); status < 400 || status >= 500 {
			t.Errorf("status %d, want 4xx", status)
		}
		leavesNothing(t, c, bucket)
	})
}

// leavesNothing checks that a bucket has its seed alone, also on the disk.
func leavesNothing(t *testing.T, c *s3.Client, bucket string) {
	t.Helper()
	want(t, get(t, c, bucket, "seed"), "")
	found, err := os.ReadDir(filepath.Join(shared.dir, "s3", bucket))
	want(t, err, "")
	for _, f := range found {
		if f.Name() != "seed" && f.Name() != ".sgwtmp" {
			t.Errorf("%s is left in the bucket", f.Name())
		}
	}
	want(t, put(t, c, bucket, "a"), "") // also where the refused key had a directory
	want(t, remove(t, c, bucket, "a"), "")
	want(t, remove(t, c, bucket, "seed"), "")
	want(t, deleteBucket(t, c, bucket), "")
}

// A form's body ends with its last boundary, before the end that its length says.
func TestFormWithMoreBehind(t *testing.T) {
	_, c := shared.contract(t)
	bucket := shared.bucket(t, c)
	signed, err := s3.NewPresignClient(c).PresignPostObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: aws.String("key")})
	want(t, err, "")
	var form bytes.Buffer
	fields := multipart.NewWriter(&form)
	for name, value := range signed.Values {
		want(t, fields.WriteField(name, value), "")
	}
	file, err := fields.CreateFormFile("file", "name")
	want(t, err, "")
	_, err = io.WriteString(file, "data")
	want(t, err, "")
	want(t, fields.Close(), "")
	form.WriteString("\r\nmore")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, signed.URL, &form)
	want(t, err, "")
	request.Header.Set("Content-Type", fields.FormDataContentType())
	response, err := shared.http.Do(request)
	want(t, err, "")
	want(t, response.Body.Close(), "")
	if response.StatusCode != http.StatusNoContent {
		t.Errorf("status %d, want 204", response.StatusCode)
	}
	want(t, get(t, c, bucket, "key"), "")
}

func TestDirectoriesThatAKilledProcessLeft(t *testing.T) {
	_, c := shared.contract(t)
	bucket := shared.empty(t, c)
	for _, dir := range []string{"s3/" + bucket + "/a/b", "s3/" + bucket + "/c", "versions/" + bucket + "/0a/0b/0c"} {
		if err := os.MkdirAll(filepath.Join(shared.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: aws.String("c/d/")})
	want(t, err, "")
	want(t, deleteBucket(t, c, bucket), "BucketNotEmpty") // a directory that was put is an object
	_, err = c.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: aws.String("c/d/")})
	want(t, err, "")
	want(t, remove(t, c, bucket, "c/d/"), "")
	want(t, deleteBucket(t, c, bucket), "")
}

func TestLongKeys(t *testing.T) {
	_, c := shared.contract(t)
	bucket := shared.bucket(t, c)
	setVersioning(t, c, bucket, types.BucketVersioningStatusEnabled)
	longest := strings.Repeat("k", 227)
	for _, key := range []string{longest, "a/" + longest, strings.Repeat("d", 227) + "/" + longest + "/" + longest + "/" + longest} {
		for range 2 { // to replace an object takes more than to make it
			want(t, put(t, c, bucket, key), "")
			want(t, copyObject(t, c, bucket, bucket+"/seed", key), "")
			want(t, upload(t, c, bucket, key), "")
		}
		want(t, get(t, c, bucket, key), "")
		want(t, remove(t, c, bucket, key), "")
	}
	for _, key := range []string{longest + "k", "b/" + longest + "k", longest + "k/b", strings.Repeat("é", 114), strings.Repeat("k", 1000)} {
		err := put(t, c, bucket, key)
		want(t, err, "KeyTooLongError")
		wantStatus(t, err, http.StatusBadRequest)
		want(t, copyObject(t, c, bucket, bucket+"/seed", key), "KeyTooLongError")
		want(t, upload(t, c, bucket, key), "KeyTooLongError")
	}
}

func TestCopy(t *testing.T) {
	_, c := shared.contract(t)
	bucket := shared.bucket(t, c)
	want(t, copyObject(t, c, bucket, bucket+"/seed", "a/copy"), "")
	want(t, get(t, c, bucket, "a/copy"), "")
	made, err := c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &bucket, Key: aws.String("parts")})
	want(t, err, "")
	_, err = c.UploadPartCopy(t.Context(), &s3.UploadPartCopyInput{Bucket: &bucket, Key: aws.String("parts"), UploadId: made.UploadId,
		PartNumber: aws.Int32(1), CopySource: aws.String(bucket + "/seed")})
	want(t, err, "")
}

// TestVersionsOfOneKey checks that each acknowledged version is there after
// others have changed the same key.
func TestVersionsOfOneKey(t *testing.T) {
	_, c := shared.contract(t)
	bucket := shared.bucket(t, c)
	setVersioning(t, c, bucket, types.BucketVersioningStatusEnabled)
	removeVersion := func(key, version string) (string, error) {
		out, err := c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: &key, VersionId: &version})
		if err != nil {
			return "", err
		}
		return aws.ToString(out.VersionId), nil
	}
	for name, change := range map[string]func(key string) (version string, err error){
		"put": func(key string) (string, error) { return putVersion(t, c, bucket, key) },
		"delete": func(key string) (string, error) {
			out, err := c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: &key})
			if err != nil {
				return "", err
			}
			return aws.ToString(out.VersionId), nil
		},
		"version delete": func(key string) (string, error) {
			version, err := putVersion(t, c, bucket, key)
			if err == nil {
				_, err = removeVersion(key, version)
			}
			return "", err
		},
		"upload": func(key string) (string, error) {
			upload, err := part(t, c, bucket, key)
			if err != nil {
				return "", err
			}
			out, err := c.CompleteMultipartUpload(t.Context(), upload)
			if err != nil {
				return "", err
			}
			return aws.ToString(out.VersionId), nil
		},
		"copy": func(key string) (string, error) {
			out, err := c.CopyObject(t.Context(), &s3.CopyObjectInput{Bucket: &bucket, Key: &key, CopySource: aws.String(bucket + "/seed")})
			if err != nil {
				return "", err
			}
			return aws.ToString(out.VersionId), nil
		},
	} {
		for _, key := range []string{"flat " + name, "a/b/" + name} {
			t.Run(key, func(t *testing.T) {
				var mu sync.Mutex
				acknowledged := map[string]bool{}
				var writers sync.WaitGroup
				write := func(change func(string) (string, error)) {
					for range 15 {
						version, err := change(key)
						if err != nil {
							t.Errorf("refused: %v", err)
						}
						mu.Lock()
						acknowledged[version] = true
						mu.Unlock()
					}
				}
				writers.Go(func() { write(change) })
				for range 2 {
					writers.Go(func() { write(func(key string) (string, error) { return putVersion(t, c, bucket, key) }) })
				}
				writers.Wait()
				delete(acknowledged, "") // nothing made

				list, err := c.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &bucket, Prefix: &key})
				want(t, err, "")
				there := map[string]bool{}
				for _, v := range list.Versions {
					there[*v.VersionId] = true
				}
				for _, m := range list.DeleteMarkers {
					there[*m.VersionId] = true
				}
				for version := range acknowledged {
					if !there[version] {
						t.Errorf("the acknowledged version %s is lost", version)
					}
				}
				if len(there) != len(acknowledged) {
					t.Errorf("%d versions, want %d", len(there), len(acknowledged))
				}
			})
		}
	}
}

// TestNeighboursInADirectory checks that a delete takes no directory from those
// who put into it.
func TestNeighboursInADirectory(t *testing.T) {
	_, c := shared.contract(t)
	bucket := shared.bucket(t, c)
	var writers sync.WaitGroup
	for _, key := range []string{"a/b/c/1", "a/b/c/2", "a/b/3"} {
		writers.Go(func() {
			for range 60 {
				want(t, put(t, c, bucket, key), "")
				want(t, get(t, c, bucket, key), "")
				_, err := c.DeleteObjects(t.Context(), &s3.DeleteObjectsInput{Bucket: &bucket,
					Delete: &types.Delete{Objects: []types.ObjectIdentifier{{Key: &key}}}})
				want(t, err, "")
			}
		})
	}
	writers.Go(func() {
		dir := "a/b/c/"
		for range 60 {
			_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &dir})
			want(t, err, "")
			_, err = c.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: &dir})
			want(t, err, "")
			want(t, remove(t, c, bucket, dir), "")
		}
	})
	writers.Wait()
	leavesNothing(t, c, bucket)
}

// TestPathsEndAtTheBucket tries names that are paths to another contract's bucket.
func TestPathsEndAtTheBucket(t *testing.T) {
	_, mine := shared.contract(t)
	_, theirs := shared.contract(t)
	bucket, other := shared.bucket(t, mine), shared.bucket(t, theirs)
	want(t, put(t, theirs, other, "dir/key"), "")
	upload, err := part(t, mine, bucket, "key")
	want(t, err, "")
	ctx := t.Context()
	for _, id := range []string{"../../../../" + other, "../../../../" + other + "/dir", "..", ".", strings.Repeat(".", 36)} {
		_, err := mine.UploadPart(ctx, &s3.UploadPartInput{Bucket: &bucket, Key: upload.Key, UploadId: &id, PartNumber: aws.Int32(1), Body: strings.NewReader("x")})
		want(t, err, "NoSuchUpload")
		_, err = mine.UploadPartCopy(ctx, &s3.UploadPartCopyInput{Bucket: &bucket, Key: upload.Key, UploadId: &id, PartNumber: aws.Int32(1), CopySource: aws.String(bucket + "/seed")})
		want(t, err, "NoSuchUpload")
		_, err = mine.ListParts(ctx, &s3.ListPartsInput{Bucket: &bucket, Key: upload.Key, UploadId: &id})
		want(t, err, "NoSuchUpload")
		_, err = mine.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{Bucket: &bucket, Key: upload.Key, UploadId: &id, MultipartUpload: upload.MultipartUpload})
		want(t, err, "NoSuchUpload")
		_, err = mine.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &bucket, Key: upload.Key, UploadId: &id})
		want(t, err, "NoSuchUpload")
	}
	out, err := mine.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &bucket,
		Delete: &types.Delete{Objects: []types.ObjectIdentifier{{Key: aws.String("../" + other + "/dir/key")}, {Key: aws.String("seed")}}}})
	want(t, err, "")
	if len(out.Errors) != 1 || len(out.Deleted) != 1 || *out.Deleted[0].Key != "seed" {
		t.Errorf("deleted %v, refused %v; want seed alone deleted", out.Deleted, out.Errors)
	}
	want(t, get(t, theirs, other, "dir/key"), "")
}

func TestCompletion(t *testing.T) {
	_, c := shared.contract(t)
	bucket := shared.bucket(t, c)
	complete := func(upload *s3.CompleteMultipartUploadInput) error {
		_, err := c.CompleteMultipartUpload(t.Context(), upload)
		return err
	}
	aborted, err := part(t, c, bucket, "seed")
	want(t, err, "")
	_, err = c.AbortMultipartUpload(t.Context(), &s3.AbortMultipartUploadInput{Bucket: &bucket, Key: aborted.Key, UploadId: aborted.UploadId})
	want(t, err, "")
	want(t, complete(aborted), "NoSuchUpload") // though the key has an object

	done, err := part(t, c, bucket, "key")
	want(t, err, "")
	want(t, complete(done), "")
	want(t, complete(done), "") // the answer got lost
	want(t, put(t, c, bucket, "key"), "")
	want(t, complete(done), "NoSuchUpload")

	// A version that came before versioning was suspended is not given up for parts.
	setVersioning(t, c, bucket, types.BucketVersioningStatusEnabled)
	version, err := putVersion(t, c, bucket, "key")
	want(t, err, "")
	setVersioning(t, c, bucket, types.BucketVersioningStatusSuspended)
	want(t, upload(t, c, bucket, "key"), "NotImplemented")
	want(t, getVersion(t, c, bucket, "key", version), "")
	want(t, put(t, c, bucket, "key"), "")
	want(t, upload(t, c, bucket, "key"), "")
	want(t, upload(t, c, bucket, "seed"), "")
	want(t, getVersion(t, c, bucket, "key", version), "")
}
