package gateway_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

// bounded is a bucket with a quota, and what says how much is in it.
func (w *world) bounded(t *testing.T, q store.Quota) (c *s3.Client, bucket string, holds func(objects, bytes int64)) {
	t.Helper()
	contract, c := w.contract(t)
	bucket = w.empty(t, c)
	if _, ok, err := w.gateway.Buckets().Bound(contract.Code, bucket, q); !ok || err != nil {
		t.Fatal(ok, err)
	}
	return c, bucket, func(objects, bytes int64) {
		t.Helper()
		have, ok, err := w.gateway.Buckets().Bucket(contract.Code, bucket)
		if !ok || err != nil || have.Objects != objects || have.Bytes != bytes || have.Quota != q {
			t.Errorf("the bucket has %+v (%t, %v), want %d objects of %d bytes", have, ok, err, objects, bytes)
		}
	}
}

func putSize(t *testing.T, c *s3.Client, bucket, key string, size int) error {
	_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(make([]byte, size))})
	return err
}

const overQuota = "QuotaExceeded"

func TestQuotaOfObjects(t *testing.T) {
	c, b, holds := shared.bounded(t, store.Quota{MaxObjects: 3})
	want(t, putSize(t, c, b, "a", 10), "")
	want(t, putSize(t, c, b, "dir/", 0), "")
	want(t, putSize(t, c, b, "dir/b", 20), "")
	holds(3, 30)
	want(t, putSize(t, c, b, "c", 0), overQuota)
	want(t, putSize(t, c, b, "d/", 0), overQuota)
	want(t, copyObject(t, c, b, b+"/a", "c"), overQuota)
	want(t, putSize(t, c, b, "a", 1000), "") // in place of one that is there
	want(t, copyObject(t, c, b, b+"/dir/b", "a"), "")
	holds(3, 40)
	want(t, remove(t, c, b, "dir/"), "")
	want(t, copyObject(t, c, b, b+"/a", "c"), "")
	holds(3, 60)
	_, err := c.DeleteObjects(t.Context(), &s3.DeleteObjectsInput{Bucket: &b, Delete: &types.Delete{Objects: []types.ObjectIdentifier{
		{Key: aws.String("a")}, {Key: aws.String("dir/b")}, {Key: aws.String("c")}, {Key: aws.String("none")}}}})
	want(t, err, "")
	holds(0, 0)
}

func TestQuotaOfBytes(t *testing.T) {
	c, b, holds := shared.bounded(t, store.Quota{MaxBytes: 1024})
	want(t, putSize(t, c, b, "a", 1025), overQuota)
	want(t, putSize(t, c, b, "a", 1024), "")
	want(t, putSize(t, c, b, "b", 1), overQuota)
	want(t, putSize(t, c, b, "b", 0), "")
	want(t, putSize(t, c, b, "a", 1025), overQuota)
	holds(2, 1024)
	want(t, putSize(t, c, b, "a", 500), "")
	want(t, copyObject(t, c, b, b+"/a", "c"), "")
	want(t, copyObject(t, c, b, b+"/a", "d"), overQuota)
	holds(3, 1000)

	upload, err := part(t, c, b, "upload") // 4 bytes
	want(t, err, "")
	holds(3, 1000) // a part is not an object
	_, err = c.CompleteMultipartUpload(t.Context(), upload)
	want(t, err, "")
	_, err = c.CompleteMultipartUpload(t.Context(), upload) // again, after a lost answer
	want(t, err, "")
	holds(4, 1004)
	want(t, putSize(t, c, b, "e", 20), "")
	upload, err = part(t, c, b, "upload2")
	want(t, err, "")
	_, err = c.CompleteMultipartUpload(t.Context(), upload)
	want(t, err, overQuota)
	want(t, remove(t, c, b, "e"), "")
	_, err = c.CompleteMultipartUpload(t.Context(), upload)
	want(t, err, "")
	holds(5, 1008)
}

func TestQuotaWithVersions(t *testing.T) {
	c, b, holds := shared.bounded(t, store.Quota{MaxBytes: 1000, MaxObjects: 4})
	want(t, putSize(t, c, b, "a", 400), "")
	setVersioning(t, c, b, types.BucketVersioningStatusEnabled)
	want(t, putSize(t, c, b, "a", 400), "") // the one before stays
	holds(2, 800)
	want(t, putSize(t, c, b, "a", 400), overQuota)
	want(t, remove(t, c, b, "a"), "") // leaves a marker
	holds(3, 800)
	list, err := c.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &b})
	want(t, err, "")
	for _, v := range list.Versions {
		_, err := c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &b, Key: v.Key, VersionId: v.VersionId})
		want(t, err, "")
	}
	holds(1, 0)
	want(t, putSize(t, c, b, "a", 1000), "")
	setVersioning(t, c, b, types.BucketVersioningStatusSuspended)
	want(t, putSize(t, c, b, "b", 0), "")
	want(t, putSize(t, c, b, "b", 0), "")
	holds(3, 1000)
}

// A copy of an object onto itself changes what is told of it and adds nothing, also where
// versions are kept; that of an older version does. What a copy is admitted for is what
// it copies, whatever conditions the client gives.
func TestQuotaOfCopies(t *testing.T) {
	c, b, holds := shared.bounded(t, store.Quota{MaxBytes: 1000})
	onto := func(source string, more ...func(*s3.CopyObjectInput)) error {
		in := &s3.CopyObjectInput{Bucket: &b, Key: aws.String("dir/a"), CopySource: aws.String(b + "/" + source), MetadataDirective: types.MetadataDirectiveReplace, Metadata: map[string]string{"n": "1"}}
		for _, m := range more {
			m(in)
		}
		_, err := c.CopyObject(t.Context(), in)
		return err
	}
	want(t, putSize(t, c, b, "dir/a", 500), "")
	want(t, onto("dir/a"), "")
	setVersioning(t, c, b, types.BucketVersioningStatusEnabled)
	want(t, putSize(t, c, b, "dir/a", 400), "")
	holds(2, 900)
	want(t, onto("dir/a"), "")
	want(t, onto("dir//a"), "")
	versions, err := c.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &b})
	want(t, err, "")
	for _, v := range versions.Versions {
		says := overQuota
		if aws.ToBool(v.IsLatest) {
			says = ""
		}
		want(t, onto("dir/a?versionId="+aws.ToString(v.VersionId)), says)
	}
	holds(2, 900)
	tomorrow, before := time.Now().Add(24*time.Hour), time.Now().Add(-24*time.Hour)
	want(t, putSize(t, c, b, "b", 60), "")
	want(t, onto("b", func(in *s3.CopyObjectInput) { in.CopySourceIfUnmodifiedSince = &tomorrow }), overQuota)
	want(t, onto("b", func(in *s3.CopyObjectInput) { in.CopySourceIfMatch = aws.String("*") }), overQuota)
	want(t, putSize(t, c, b, "b", 10), "")
	want(t, onto("b", func(in *s3.CopyObjectInput) { in.CopySourceIfUnmodifiedSince = &before }), "PreconditionFailed")
	want(t, onto("none"), "NoSuchVersion")
	holds(4, 970)
}

// A bucket is counted when it gets its quota, and what it holds beyond that stays.
func TestQuotaBelowWhatIsThere(t *testing.T) {
	contract, c := shared.contract(t)
	b := shared.empty(t, c)
	setVersioning(t, c, b, types.BucketVersioningStatusEnabled)
	for _, key := range []string{"a", "a", "x/y/z", "x/dir/", "x/dir/b"} {
		size := 100
		if strings.HasSuffix(key, "/") {
			size = 0
		}
		want(t, putSize(t, c, b, key, size), "")
	}
	_, err := part(t, c, b, "unfinished")
	want(t, err, "")
	have, ok, err := shared.gateway.Buckets().Bound(contract.Code, b, store.Quota{MaxBytes: 1, MaxObjects: 1})
	if !ok || err != nil || have.Objects != 5 || have.Bytes != 400 {
		t.Errorf("%+v %t %v", have, ok, err)
	}
	want(t, putSize(t, c, b, "c", 0), overQuota)
	_, err = c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &b, Key: aws.String("x/y/z")})
	want(t, err, "")
	want(t, remove(t, c, b, "x/y/z"), "")
	if have, _, _ := shared.gateway.Buckets().Bucket(contract.Code, b); have.Objects != 6 || have.Bytes != 400 { // with the marker
		t.Errorf("%+v", have)
	}
	if _, ok, _ := shared.gateway.Buckets().Bound("another", b, store.Quota{}); ok {
		t.Error("another contract bounded it")
	}
}

// Writers at once, in every way that makes an object, never pass a bound together,
// and what is counted is what is there.
func TestQuotaOfWritersAtOnce(t *testing.T) {
	const size, most = 100, 20
	for name, q := range map[string]store.Quota{"objects": {MaxObjects: most}, "bytes": {MaxBytes: most * size}} {
		t.Run(name, func(t *testing.T) {
			c, b, holds := shared.bounded(t, q)
			source := shared.empty(t, c)
			want(t, putSize(t, c, source, "source", size), "")
			var there atomic.Int64
			var all sync.WaitGroup
			for i := range 16 {
				all.Go(func() {
					for j := range 6 {
						key, err := fmt.Sprintf("%d/%d", i, j), error(nil)
						switch (i + j) % 3 {
						case 0:
							err = putSize(t, c, b, key, size)
						case 1:
							err = copyObject(t, c, b, source+"/source", key)
						case 2:
							var made *s3.CreateMultipartUploadOutput
							if made, err = c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &b, Key: &key}); err == nil {
								var part *s3.UploadPartOutput
								part, err = c.UploadPart(t.Context(), &s3.UploadPartInput{Bucket: &b, Key: &key, UploadId: made.UploadId, PartNumber: aws.Int32(1), Body: bytes.NewReader(make([]byte, size))})
								if err == nil {
									_, err = c.CompleteMultipartUpload(t.Context(), &s3.CompleteMultipartUploadInput{Bucket: &b, Key: &key, UploadId: made.UploadId,
										MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{{ETag: part.ETag, PartNumber: aws.Int32(1)}}}})
								}
							}
						}
						var api smithy.APIError
						switch {
						case err == nil:
							if there.Add(1) > most {
								t.Errorf("%s passed the bound", key)
							}
							if j%2 == 1 {
								there.Add(-1) // before, so that the room is not counted as free too late
								want(t, remove(t, c, b, key), "")
							}
						case !errors.As(err, &api) || api.ErrorCode() != overQuota:
							t.Errorf("%s: %v", key, err)
						}
					}
				})
			}
			all.Wait()
			list, err := c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &b})
			want(t, err, "")
			if n := len(list.Contents); n > most || n == 0 {
				t.Errorf("%d objects, at most %d are allowed", n, most)
			}
			holds(int64(len(list.Contents)), int64(size*len(list.Contents)))
			for i := range most + 1 - len(list.Contents) {
				code := ""
				if i == most-len(list.Contents) {
					code = overQuota
				}
				want(t, putSize(t, c, b, fmt.Sprintf("last-%d", i), size), code)
			}
		})
	}
}
