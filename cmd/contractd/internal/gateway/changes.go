package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3api/middlewares"
	"github.com/versity/versitygw/s3api/utils"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"
)

// The storage keeps a bucket as a directory, an object as a file in it, and a
// key's slashes as directories between. It looks, decides and writes in steps,
// so two changes at once can lose one that was acknowledged: a put makes the
// directory of a bucket again that was just deleted, a delete removes the
// directory that a put has made, two versions of an object take one place. The
// methods here let a change run while nothing else can upset it.

// reads is what the ledger hands to the storage as it is. A method of the
// backend that is not in it does not compile until the ledger has it.
type reads interface {
	fmt.Stringer
	Shutdown()
	NormalizeObjectKey(bucket, object string) string

	ListBuckets(context.Context, s3response.ListBucketsInput) (s3response.ListAllMyBucketsResult, error)
	ListBucketsAndOwners(context.Context) ([]s3response.Bucket, error)
	HeadBucket(context.Context, *s3.HeadBucketInput) (*s3.HeadBucketOutput, error)
	GetBucketAcl(context.Context, *s3.GetBucketAclInput) ([]byte, error)
	GetBucketVersioning(_ context.Context, bucket string) (s3response.GetBucketVersioningOutput, error)
	GetBucketPolicy(_ context.Context, bucket string) ([]byte, error)
	GetBucketOwnershipControls(_ context.Context, bucket string) (types.ObjectOwnership, error)
	GetBucketCors(_ context.Context, bucket string) ([]byte, error)
	GetBucketWebsite(_ context.Context, bucket string) ([]byte, error)
	GetBucketTagging(_ context.Context, bucket string) (map[string]string, error)
	GetObjectLockConfiguration(_ context.Context, bucket string) ([]byte, error)

	ListObjects(context.Context, *s3.ListObjectsInput) (s3response.ListObjectsResult, error)
	ListObjectsV2(context.Context, *s3.ListObjectsV2Input) (s3response.ListObjectsV2Result, error)
	ListObjectVersions(context.Context, *s3.ListObjectVersionsInput) (s3response.ListVersionsResult, error)
	ListMultipartUploads(context.Context, *s3.ListMultipartUploadsInput) (s3response.ListMultipartUploadsResult, error)
	HeadObject(context.Context, *s3.HeadObjectInput) (*s3.HeadObjectOutput, error)
	GetObject(context.Context, *s3.GetObjectInput) (*s3.GetObjectOutput, error)
	GetObjectAcl(context.Context, *s3.GetObjectAclInput) (*s3.GetObjectAclOutput, error)
	GetObjectAttributes(context.Context, *s3.GetObjectAttributesInput) (s3response.GetObjectAttributesResponse, error)
	GetObjectTagging(_ context.Context, bucket, object, versionID string) (map[string]string, error)
	GetObjectRetention(_ context.Context, bucket, object, versionID string) ([]byte, error)
	GetObjectLegalHold(_ context.Context, bucket, object, versionID string) (*bool, error)
	SelectObjectContent(context.Context, *s3.SelectObjectContentInput) func(*bufio.Writer)

	// The storage does not have these two.
	PutObjectAcl(context.Context, *s3.PutObjectAclInput) error
	RestoreObject(context.Context, *s3.RestoreObjectInput) error
}

// find returns the entry of the bucket that the request was admitted to.
func (l *ledger) find(ctx context.Context, bucket string) (*entry, error) {
	e := l.buckets.find(bucket)
	// The gateway leaves the ACL here that it has judged by. Since then the
	// bucket may have gone, and the name to another contract.
	acl, judged := ctx.Value("parsed-acl").(auth.ACL)
	if e == nil || judged && acl.Owner != e.owner {
		return nil, noSuchBucket(bucket)
	}
	return e, nil
}

// change runs a change of a bucket, or with a key of that object, while the
// bucket stays and nothing else changes the object.
func (l *ledger) change(ctx context.Context, bucket, key string, run func() error) error {
	return l.changeHeld(ctx, bucket, key, func(*hold) error { return run() })
}

// changeHeld is change for what reads a body: it can pause the hold.
func (l *ledger) changeHeld(ctx context.Context, bucket, key string, run func(*hold) error) error {
	e, err := l.find(ctx, bucket)
	if err != nil {
		return err
	}
	if err := l.countBounded(e); err != nil {
		return err
	}
	file := key
	if key != "" {
		file = path.Clean("/" + key) // keys of one file are one key here
	}
	h, err := e.hold(file, func() use { return l.measure(bucket, key) })
	if err != nil {
		return err
	}
	defer h.pause()
	return run(h)
}

// place is changeHeld for what makes an object. What a refused one has left of
// the key's directories goes.
func (l *ledger) place(ctx context.Context, bucket, key string, run func(*hold) error) error {
	if err := checkKey(key); err != nil {
		return err
	}
	err := l.changeHeld(ctx, bucket, key, run)
	if err != nil && strings.Contains(key, "/") {
		l.prune(bucket, key)
	}
	return err
}

// remove runs the deletion of an object. If directories may go with it, nothing
// else runs in the bucket.
func (l *ledger) remove(ctx context.Context, bucket, key, version string, run func() error) error {
	if !utils.IsObjectNameValid(key) {
		return s3err.GetAPIError(s3err.ErrBadRequest) // the gateway does not look at the keys of DeleteObjects
	}
	if version == "" && !strings.Contains(key, "/") {
		return l.change(ctx, bucket, key, run)
	}
	e, err := l.find(ctx, bucket)
	if err != nil {
		return err
	}
	if err := e.alone(); err != nil {
		return err
	}
	defer e.access.Unlock()
	if !e.counted {
		return run()
	}
	before := l.measure(bucket, key)
	defer func() { e.changed(l.measure(bucket, key).minus(before), use{}) }()
	return run()
}

// prune removes the directories of a key that hold nothing.
func (l *ledger) prune(bucket, key string) {
	e := l.buckets.find(bucket)
	if e == nil || e.alone() != nil {
		return
	}
	defer e.access.Unlock()
	for dir := path.Dir("/" + key); dir != "/"; dir = path.Dir(dir) {
		if l.isObject(bucket, dir) || syscall.Rmdir(filepath.Join(bucket, dir)) != nil {
			return
		}
	}
}

// sweep removes the directories that a killed process has left in a bucket to be
// deleted: they hold nothing and would keep the bucket for good. It stops at the
// first object. The caller holds the bucket alone.
func (l *ledger) sweep(dir string) bool {
	found, err := os.ReadDir(dir)
	for _, f := range found {
		if f.Name() == posix.MetaTmpDir { // no key has this name
			continue
		}
		below := filepath.Join(dir, f.Name())
		if !f.IsDir() || !l.sweep(below) || l.isObject(below, "") || syscall.Rmdir(below) != nil {
			return false
		}
	}
	return err == nil
}

// isObject reports whether a directory is an object, put by a key that ends in a
// slash, or may be one.
func (l *ledger) isObject(bucket, dir string) bool {
	_, err := l.attributes.RetrieveAttribute(nil, bucket, dir, directoryMark)
	return !errors.Is(err, meta.ErrNoSuchKey) && !errors.Is(err, fs.ErrNotExist)
}

// directoryMark is the attribute by which the storage knows a directory that
// was put as an object.
const directoryMark = "etag"

// maxSegment bounds what stands between two slashes of a key, in bytes: names of
// files have 255 at most, and the storage replaces a file by one with 28 more.
const maxSegment = 227

// checkKey refuses a key that the storage could not keep, or would keep where
// no list shows it and no DeleteBucket minds it.
func checkKey(key string) error {
	for segment := range strings.SplitSeq(key, "/") {
		if len(segment) > maxSegment {
			return s3err.APIError{
				Code: "KeyTooLongError",
				Description: fmt.Sprintf("This storage keeps keys as paths of files: what stands between two slashes of a key "+
					"has %d bytes at most, and here it has %d. Use a shorter key, or more slashes.", maxSegment, len(segment)),
				HTTPStatusCode: http.StatusBadRequest,
			}
		}
		if segment == posix.MetaTmpDir {
			return s3err.APIError{
				Code:           "InvalidArgument",
				Description:    fmt.Sprintf("The storage keeps the name %s in a key for itself. Use another key.", segment),
				HTTPStatusCode: http.StatusBadRequest,
			}
		}
	}
	return nil
}

// checkUpload refuses an upload id that the storage has not made. It would take
// one with slashes as a path, to other contracts' buckets too.
func checkUpload(id *string) error {
	if text := aws.ToString(id); len(text) != 36 || strings.Trim(text, "0123456789abcdef-") != "" {
		return s3err.GetNoSuchUploadErr(text)
	}
	return nil
}

// checkLock refuses an object with a legal hold or a retention where the bucket
// has no object lock; the storage would put it and then refuse.
func (l *ledger) checkLock(ctx context.Context, bucket string, mode types.ObjectLockMode, hold types.ObjectLockLegalHoldStatus) error {
	if mode == "" && hold != types.ObjectLockLegalHoldStatusOn {
		return nil
	}
	data, err := l.storage.GetObjectLockConfiguration(ctx, bucket)
	if errors.Is(err, s3err.GetAPIError(s3err.ErrObjectLockConfigurationNotFound)) {
		return s3err.GetAPIError(s3err.ErrMissingObjectLockConfigurationNoSpaces)
	}
	if err != nil {
		return err
	}
	var config auth.BucketLockConfig
	if err := json.Unmarshal(data, &config); err != nil || !config.Enabled {
		return s3err.GetAPIError(s3err.ErrMissingObjectLockConfigurationNoSpaces)
	}
	return nil
}

// body gives a hold up while the client sends, which takes as long as the client
// likes, and takes it again at the end: the storage publishes after that.
type body struct {
	io.Reader
	hold  *hold
	left  int64             // that must come still
	size  int64             // that has come
	admit func(int64) error // asks for room for all that has come; may be nil
}

// Read reads from the client.
func (b *body) Read(p []byte) (int, error) {
	b.hold.pause()
	n, err := b.Reader.Read(p)
	b.left -= int64(n)
	b.size += int64(n)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if b.left > 0 { // the gateway reports a connection that broke off as the end
		return n, s3err.GetAPIError(s3err.ErrIncompleteBody)
	}
	if changed := b.hold.resume(); changed != nil {
		return n, changed
	}
	if b.admit != nil {
		if full := b.admit(b.size); full != nil {
			return n, full
		}
	}
	return n, err
}

// checkedBody is a body with checksums behind it. The storage asks for that type.
type checkedBody struct {
	*body
	sums middlewares.ChecksumReader
}

// Algorithm returns the client's checksum algorithm.
func (b checkedBody) Algorithm() string { return b.sums.Algorithm() }

// Checksum returns the client's checksum.
func (b checkedBody) Checksum() string { return b.sums.Checksum() }

// body wraps a body of the given size, nil when that is not known.
func (h *hold) body(r io.Reader, size *int64, admit func(int64) error) io.Reader {
	b := &body{Reader: r, hold: h, left: aws.ToInt64(size), admit: admit}
	if sums, ok := r.(middlewares.ChecksumReader); ok {
		return checkedBody{body: b, sums: sums}
	}
	return b
}

// PutObject puts an object.
func (l *ledger) PutObject(ctx context.Context, input s3response.PutObjectInput) (out s3response.PutObjectOutput, err error) {
	bucket, key := *input.Bucket, *input.Key
	err = l.place(ctx, bucket, key, func(h *hold) error {
		if err := l.checkLock(ctx, bucket, input.ObjectLockMode, input.ObjectLockLegalHoldStatus); err != nil {
			return err
		}
		size := input.ContentLength
		if ctx.Value("object-post-result") != nil {
			size = nil // of a form the gateway knows no more than a bound
		}
		admit := func(size int64) error { return l.admit(ctx, h, size) }
		if err := admit(aws.ToInt64(size)); err != nil { // before the client sends it, and for a body that is never read
			return err
		}
		input.Body = h.body(input.Body, size, admit)
		fresh := strings.HasSuffix(key, "/") && !l.isObject(bucket, key)
		if out, err = l.storage.PutObject(ctx, input); err != nil && fresh {
			// The storage makes and marks a directory before it looks at its checksum.
			_ = l.attributes.DeleteAttribute(bucket, key, directoryMark)
		}
		return err
	})
	return out, err
}

// CopyObject copies an object.
func (l *ledger) CopyObject(ctx context.Context, input s3response.CopyObjectInput) (out s3response.CopyObjectOutput, err error) {
	err = l.place(ctx, *input.Bucket, *input.Key, func(h *hold) error {
		if err := l.checkLock(ctx, *input.Bucket, input.ObjectLockMode, input.ObjectLockLegalHoldStatus); err != nil {
			return err
		}
		if err := l.admitCopy(ctx, h, &input); err != nil {
			return err
		}
		out, err = l.storage.CopyObject(ctx, input)
		return err
	})
	return out, err
}

// DeleteObject deletes an object, or one version of it.
func (l *ledger) DeleteObject(ctx context.Context, input *s3.DeleteObjectInput) (out *s3.DeleteObjectOutput, err error) {
	err = l.remove(ctx, *input.Bucket, *input.Key, aws.ToString(input.VersionId), func() error {
		out, err = l.storage.DeleteObject(ctx, input)
		return err
	})
	return out, err
}

// DeleteObjects deletes objects, one after another as the storage does.
func (l *ledger) DeleteObjects(ctx context.Context, input *s3.DeleteObjectsInput) (all s3response.DeleteResult, err error) {
	for _, object := range input.Delete.Objects {
		one := *input
		one.Delete = &types.Delete{Objects: []types.ObjectIdentifier{object}}
		err := l.remove(ctx, *input.Bucket, aws.ToString(object.Key), aws.ToString(object.VersionId), func() error {
			result, err := l.storage.DeleteObjects(ctx, &one)
			all.Deleted, all.Error = append(all.Deleted, result.Deleted...), append(all.Error, result.Error...)
			return err
		})
		if err != nil {
			all.Error = append(all.Error, s3err.ObjectDeleteError(object.Key, object.VersionId, err))
		}
	}
	return all, nil
}

// CreateMultipartUpload begins an upload in parts.
func (l *ledger) CreateMultipartUpload(ctx context.Context, input s3response.CreateMultipartUploadInput) (out s3response.InitiateMultipartUploadResult, err error) {
	if err := checkKey(*input.Key); err != nil {
		return out, err
	}
	err = l.change(ctx, *input.Bucket, *input.Key, func() error {
		out, err = l.storage.CreateMultipartUpload(ctx, input)
		return err
	})
	return out, err
}

// UploadPart takes a part.
func (l *ledger) UploadPart(ctx context.Context, input *s3.UploadPartInput) (out *s3.UploadPartOutput, err error) {
	if err := checkUpload(input.UploadId); err != nil {
		return nil, err
	}
	err = l.changeHeld(ctx, *input.Bucket, "", func(h *hold) error { // parts are files of their own
		held := *input
		held.Body = h.body(input.Body, input.ContentLength, nil)
		out, err = l.storage.UploadPart(ctx, &held)
		return err
	})
	return out, err
}

// UploadPartCopy takes a part from another object.
func (l *ledger) UploadPartCopy(ctx context.Context, input *s3.UploadPartCopyInput) (out s3response.CopyPartResult, err error) {
	if err := checkUpload(input.UploadId); err != nil {
		return out, err
	}
	err = l.change(ctx, *input.Bucket, "", func() error {
		out, err = l.storage.UploadPartCopy(ctx, input)
		return err
	})
	return out, err
}

// CompleteMultipartUpload makes an object of its parts.
func (l *ledger) CompleteMultipartUpload(ctx context.Context, input *s3.CompleteMultipartUploadInput) (out s3response.CompleteMultipartUploadResult, version string, err error) {
	if err := checkUpload(input.UploadId); err != nil {
		return out, "", err
	}
	err = l.place(ctx, *input.Bucket, *input.Key, func(h *hold) error {
		if err := l.checkCompletion(ctx, h, input); err != nil {
			return err
		}
		out, version, err = l.storage.CompleteMultipartUpload(ctx, input)
		return err
	})
	return out, version, err
}

// checkCompletion refuses a completion that the bucket has no room for, or after which
// something would be missing though the storage acknowledges it.
func (l *ledger) checkCompletion(ctx context.Context, h *hold, input *s3.CompleteMultipartUploadInput) error {
	object, err := l.storage.HeadObject(ctx, &s3.HeadObjectInput{Bucket: input.Bucket, Key: input.Key})
	if err != nil {
		object = &s3.HeadObjectOutput{}
	}
	_, err = l.storage.ListParts(ctx, &s3.ListPartsInput{Bucket: input.Bucket, Key: input.Key, UploadId: input.UploadId, MaxParts: aws.Int32(1)})
	if errors.Is(err, s3err.GetAPIError(s3err.ErrNoSuchUpload)) {
		// The storage takes any object of the key for the upload's. It is if it has
		// these parts: then the client repeats what it has not heard the answer to.
		etag, failed := backend.ComputeMultipartETagFromPartETags(input.MultipartUpload.Parts)
		if failed != nil || etag != aws.ToString(object.ETag) {
			return err
		}
		return nil
	}
	if err != nil {
		return err
	}
	versioning, err := l.storage.GetBucketVersioning(ctx, *input.Bucket)
	if err != nil {
		return err
	}
	if versioning.Status != nil && *versioning.Status == types.BucketVersioningStatusSuspended && aws.ToString(object.VersionId) != "" {
		return s3err.APIError{
			Code: "NotImplemented",
			Description: "The bucket's versioning is suspended, and this storage would lose the object's present version to an upload in parts. " +
				"Put the object in one request, or copy it to this key.",
			HTTPStatusCode: http.StatusNotImplemented,
		}
	}
	return l.admitUpload(ctx, h, input)
}

// AbortMultipartUpload ends an upload without an object.
func (l *ledger) AbortMultipartUpload(ctx context.Context, input *s3.AbortMultipartUploadInput) error {
	if err := checkUpload(input.UploadId); err != nil {
		return err
	}
	return l.change(ctx, *input.Bucket, *input.Key, func() error { return l.storage.AbortMultipartUpload(ctx, input) })
}

// ListParts lists the parts of an upload.
func (l *ledger) ListParts(ctx context.Context, input *s3.ListPartsInput) (s3response.ListPartsResult, error) {
	if err := checkUpload(input.UploadId); err != nil {
		return s3response.ListPartsResult{}, err
	}
	return l.storage.ListParts(ctx, input)
}

// PutBucketVersioning sets a bucket's versioning. Who puts an object has decided
// by the old one whether to keep a version, so nothing else runs in the bucket.
func (l *ledger) PutBucketVersioning(ctx context.Context, bucket string, status types.BucketVersioningStatus) error {
	e, err := l.find(ctx, bucket)
	if err != nil {
		return err
	}
	if err := e.alone(); err != nil {
		return err
	}
	defer e.access.Unlock()
	e.rules++
	return l.storage.PutBucketVersioning(ctx, bucket, status)
}

// PutBucketAcl sets a bucket's ACL.
func (l *ledger) PutBucketAcl(ctx context.Context, bucket string, acl []byte) error { //nolint:revive // versitygw's name
	return l.change(ctx, bucket, "", func() error { return l.storage.PutBucketAcl(ctx, bucket, acl) })
}

// DeleteBucketPolicy removes a bucket's policy.
func (l *ledger) DeleteBucketPolicy(ctx context.Context, bucket string) error {
	return l.change(ctx, bucket, "", func() error { return l.storage.DeleteBucketPolicy(ctx, bucket) })
}

// PutBucketOwnershipControls sets a bucket's ownership controls.
func (l *ledger) PutBucketOwnershipControls(ctx context.Context, bucket string, ownership types.ObjectOwnership) error {
	return l.change(ctx, bucket, "", func() error { return l.storage.PutBucketOwnershipControls(ctx, bucket, ownership) })
}

// DeleteBucketOwnershipControls removes a bucket's ownership controls.
func (l *ledger) DeleteBucketOwnershipControls(ctx context.Context, bucket string) error {
	return l.change(ctx, bucket, "", func() error { return l.storage.DeleteBucketOwnershipControls(ctx, bucket) })
}

// PutBucketCors sets a bucket's CORS rules.
func (l *ledger) PutBucketCors(ctx context.Context, bucket string, cors []byte) error {
	return l.change(ctx, bucket, "", func() error { return l.storage.PutBucketCors(ctx, bucket, cors) })
}

// DeleteBucketCors removes a bucket's CORS rules.
func (l *ledger) DeleteBucketCors(ctx context.Context, bucket string) error {
	return l.change(ctx, bucket, "", func() error { return l.storage.DeleteBucketCors(ctx, bucket) })
}

// PutBucketWebsite sets a bucket's website configuration.
func (l *ledger) PutBucketWebsite(ctx context.Context, bucket string, website []byte) error {
	return l.change(ctx, bucket, "", func() error { return l.storage.PutBucketWebsite(ctx, bucket, website) })
}

// DeleteBucketWebsite removes a bucket's website configuration.
func (l *ledger) DeleteBucketWebsite(ctx context.Context, bucket string) error {
	return l.change(ctx, bucket, "", func() error { return l.storage.DeleteBucketWebsite(ctx, bucket) })
}

// PutBucketTagging sets a bucket's tags.
func (l *ledger) PutBucketTagging(ctx context.Context, bucket string, tags map[string]string) error {
	return l.change(ctx, bucket, "", func() error { return l.storage.PutBucketTagging(ctx, bucket, tags) })
}

// DeleteBucketTagging removes a bucket's tags.
func (l *ledger) DeleteBucketTagging(ctx context.Context, bucket string) error {
	return l.change(ctx, bucket, "", func() error { return l.storage.DeleteBucketTagging(ctx, bucket) })
}

// PutObjectLockConfiguration sets a bucket's object lock.
func (l *ledger) PutObjectLockConfiguration(ctx context.Context, bucket string, config []byte) error {
	return l.change(ctx, bucket, "", func() error { return l.storage.PutObjectLockConfiguration(ctx, bucket, config) })
}

// PutObjectTagging sets the tags of an object or a version.
func (l *ledger) PutObjectTagging(ctx context.Context, bucket, object, versionID string, tags map[string]string) error {
	return l.change(ctx, bucket, object, func() error { return l.storage.PutObjectTagging(ctx, bucket, object, versionID, tags) })
}

// DeleteObjectTagging removes the tags of an object or a version.
func (l *ledger) DeleteObjectTagging(ctx context.Context, bucket, object, versionID string) error {
	return l.change(ctx, bucket, object, func() error { return l.storage.DeleteObjectTagging(ctx, bucket, object, versionID) })
}

// PutObjectRetention sets the retention of an object or a version.
func (l *ledger) PutObjectRetention(ctx context.Context, bucket, object, versionID string, retention []byte) error {
	return l.change(ctx, bucket, object, func() error { return l.storage.PutObjectRetention(ctx, bucket, object, versionID, retention) })
}

// PutObjectLegalHold sets or lifts the legal hold of an object or a version.
func (l *ledger) PutObjectLegalHold(ctx context.Context, bucket, object, versionID string, status bool) error {
	return l.change(ctx, bucket, object, func() error { return l.storage.PutObjectLegalHold(ctx, bucket, object, versionID, status) })
}
