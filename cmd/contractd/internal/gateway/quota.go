package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

// A bucket is counted once, when it first has a quota or is asked about, while
// nothing is changed in it. From then on each change of a key says what it has
// added: what there is of the key after the change, less what there was before,
// both measured in the key's turn. A write that needs room reserves it before the
// storage publishes, and its reservation ends as its change is counted; so writers
// of any number together stay within a quota, and a crash leaves nothing to mend.

// use is what a bucket, or all that there is of a key, takes.
type use struct{ bytes, objects int64 }

func (u use) plus(v use) use  { return use{u.bytes + v.bytes, u.objects + v.objects} }
func (u use) minus(v use) use { return use{u.bytes - v.bytes, u.objects - v.objects} }

// quotaAttribute is where a bucket keeps its quota. It goes with the bucket.
const quotaAttribute = "contractd-quota"

// measure is what there is of a key: the object, and its old versions, which the
// storage keeps under a hash of the key.
func (l *ledger) measure(bucket, key string) use {
	var sum use
	if info, err := os.Lstat(filepath.Join(bucket, key)); err == nil {
		sum = l.sizeOf(bucket, key, info)
	}
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
	dir := filepath.Join(l.versions, bucket, hash[:2], hash[2:4], hash[4:6], hash)
	versions, _ := os.ReadDir(dir)
	for _, v := range versions {
		if info, err := v.Info(); err == nil && !info.IsDir() {
			sum = sum.plus(l.sizeOf(dir, v.Name(), info))
		}
	}
	return sum
}

// sizeOf is what a file counts for, or a directory that may be an object. A file that
// stands for a deletion has the content of what was deleted.
func (l *ledger) sizeOf(bucket, key string, info fs.FileInfo) use {
	switch {
	case info.Mode().IsRegular() && l.has(bucket, key, deletionMark):
		return use{0, 1}
	case info.Mode().IsRegular():
		return use{info.Size(), 1}
	case info.IsDir() && l.isObject(bucket, key):
		return use{0, 1}
	}
	return use{}
}

// deletionMark is the attribute by which the storage knows a delete marker.
const deletionMark = "delete-marker"

func (l *ledger) has(bucket, key, attribute string) bool {
	_, err := l.attributes.RetrieveAttribute(nil, bucket, key, attribute)
	return err == nil
}

// count walks a bucket. The caller holds it alone.
func (l *ledger) count(bucket string) (sum use, err error) {
	walk := func(root string, size func(key string, info fs.FileInfo) use) error {
		return filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist) && file == root: // no old versions
				return nil
			case err != nil:
				return err
			case d.IsDir() && d.Name() == posix.MetaTmpDir:
				return fs.SkipDir
			case file == root:
				return nil
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			key, err := filepath.Rel(root, file)
			sum = sum.plus(size(key, info))
			return err
		})
	}
	versions := filepath.Join(l.versions, bucket)
	err = errors.Join(
		walk(bucket, func(key string, info fs.FileInfo) use { return l.sizeOf(bucket, key, info) }),
		walk(versions, func(key string, info fs.FileInfo) use {
			if info.IsDir() {
				return use{}
			}
			return l.sizeOf(filepath.Join(versions, filepath.Dir(key)), info.Name(), info)
		}))
	return sum, err
}

// counted sees to it that a bucket is counted.
func (l *ledger) counted(e *entry) error {
	e.access.RLock()
	done := e.counted || e.gone
	e.access.RUnlock()
	if done {
		return nil
	}
	if err := e.alone(); err != nil {
		return err
	}
	defer e.access.Unlock()
	return l.countAlone(e)
}

func (l *ledger) countAlone(e *entry) (err error) {
	if !e.counted {
		e.used, err = l.count(e.name)
		e.counted = err == nil
	}
	return err
}

// countBounded sees to it that a bucket with a quota is counted.
func (l *ledger) countBounded(e *entry) error {
	if !e.bounded() {
		return nil
	}
	return l.counted(e)
}

func (e *entry) bounded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.quota != store.Quota{}
}

// changed adds what a change has added, and ends its reservation.
func (e *entry) changed(by, reserved use) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.used, e.reserved = e.used.plus(by), e.reserved.minus(reserved)
}

// admit reserves room for an object of a size at the key of a hold, or refuses it.
// Where nothing keeps the object that it replaces, that one's room is free.
func (h *hold) admit(size int64, replaces bool) error {
	e := h.entry
	more := use{size, 1}
	if replaces {
		more = more.minus(h.before)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reserved = e.reserved.minus(h.reserved)
	h.reserved = use{}
	taken, q := e.used.plus(e.reserved), e.quota
	if q.MaxBytes > 0 && more.bytes > 0 && more.bytes > q.MaxBytes-taken.bytes || q.MaxObjects > 0 && more.objects > 0 && more.objects > q.MaxObjects-taken.objects {
		return overQuota()
	}
	h.reserved = use{max(0, more.bytes), max(0, more.objects)}
	e.reserved = e.reserved.plus(h.reserved)
	return nil
}

// admit reserves room for an object at the key of a hold, where the bucket has a
// quota.
func (l *ledger) admit(ctx context.Context, h *hold, size int64) error {
	if !h.entry.bounded() {
		return nil
	}
	versioning, err := l.storage.GetBucketVersioning(ctx, h.entry.name)
	if err != nil {
		return err
	}
	return h.admit(size, versioning.Status == nil)
}

// admitCopy reserves room for a copy, and has the storage refuse another source
// than the one that was looked at.
func (l *ledger) admitCopy(ctx context.Context, h *hold, input *s3response.CopyObjectInput) error {
	if !h.entry.bounded() {
		return nil
	}
	bucket, key, version, err := backend.ParseCopySource(*input.CopySource)
	if err != nil {
		return err
	}
	source := &s3.HeadObjectInput{Bucket: &bucket, Key: &key}
	if version != "" {
		source.VersionId = &version
	}
	object, err := l.storage.HeadObject(ctx, source)
	if err != nil || l.onto(input, bucket, key, version) {
		return nil //nolint:nilerr // the copy finds that out too, and says it as a copy does
	}
	// Beside an ETag, the time does not count.
	if since := input.CopySourceIfUnmodifiedSince; cmp.Or(aws.ToString(input.CopySourceIfMatch), "*") == "*" && (since == nil || since.After(aws.ToTime(object.LastModified))) {
		input.CopySourceIfMatch = backend.TrimEtag(object.ETag)
	}
	return l.admit(ctx, h, aws.ToInt64(object.ContentLength))
}

// onto reports whether a copy's source is what it would replace: the storage then changes
// what is told of the object, and keeps no version of it.
func (l *ledger) onto(input *s3response.CopyObjectInput, bucket, key, version string) bool {
	if bucket != *input.Bucket || path.Clean("/"+key) != path.Clean("/"+*input.Key) {
		return false
	}
	current, _ := l.attributes.RetrieveAttribute(nil, bucket, key, versionID)
	return version == "" || version == string(current)
}

// versionID is the attribute by which the storage knows the version of an object.
const versionID = "version-id"

// admitUpload reserves room for the object that an upload's parts become.
func (l *ledger) admitUpload(ctx context.Context, h *hold, input *s3.CompleteMultipartUploadInput) error {
	if !h.entry.bounded() {
		return nil
	}
	sizes, marker := map[string]int64{}, ""
	for {
		page, err := l.storage.ListParts(ctx, &s3.ListPartsInput{Bucket: input.Bucket, Key: input.Key, UploadId: input.UploadId, PartNumberMarker: &marker, MaxParts: aws.Int32(1000)})
		if err != nil {
			return err
		}
		for _, p := range page.Parts {
			sizes[partID(int32(p.PartNumber), p.ETag)] = p.Size //nolint:gosec // 1 to 10000
		}
		if !page.IsTruncated {
			break
		}
		marker = fmt.Sprint(page.NextPartNumberMarker)
	}
	var size int64
	for _, p := range input.MultipartUpload.Parts {
		of, there := sizes[partID(aws.ToInt32(p.PartNumber), aws.ToString(p.ETag))]
		if !there {
			return s3err.GetAPIError(s3err.ErrInvalidPart)
		}
		size += of
	}
	return l.admit(ctx, h, size)
}

func partID(number int32, etag string) string {
	return fmt.Sprint(number, " ", strings.Trim(etag, `"`))
}

func overQuota() error {
	return s3err.APIError{
		Code:           "QuotaExceeded",
		Description:    "The bucket has a quota, and no room within it for the object. Delete objects, or have the quota raised.",
		HTTPStatusCode: http.StatusForbidden,
	}
}

// readQuota is the quota that a bucket keeps.
func readQuota(attributes meta.MetadataStorer, bucket string) (q store.Quota, err error) {
	text, err := attributes.RetrieveAttribute(nil, bucket, "", quotaAttribute)
	if errors.Is(err, meta.ErrNoSuchKey) {
		return q, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &q)
	}
	if err != nil {
		err = fmt.Errorf("quota of bucket %s: %w", bucket, err)
	}
	return q, err
}

// Contents tells what buckets hold, and bounds it.
type Contents struct {
	*Buckets
	ledger *ledger
}

// Names returns up to limit names of a contract's buckets, in order, behind the one
// given, and whether there are more.
func (b *Buckets) Names(code, after string, limit int) (page []string, more bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var all []string
	for name := range maps.Keys(b.entries) {
		if b.entries[name].owner == code && name > after {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all[:min(limit, len(all))], len(all) > limit
}

// Bucket counts a bucket of a contract; false if it has none of the name.
func (c *Contents) Bucket(code, name string) (store.Bucket, bool, error) {
	e := c.find(name)
	if e == nil || e.owner != code {
		return store.Bucket{}, false, nil
	}
	if err := c.ledger.counted(e); err != nil {
		return store.Bucket{}, false, e.unlessGone(err)
	}
	e.access.RLock()
	defer e.access.RUnlock()
	return e.contents(), !e.gone, nil
}

// Bound gives a bucket of a contract a quota; false if it has none of the name.
func (c *Contents) Bound(code, name string, to store.Quota) (store.Bucket, bool, error) {
	e := c.find(name)
	if e == nil || e.owner != code || e.alone() != nil {
		return store.Bucket{}, false, nil
	}
	defer e.access.Unlock()
	text, err := json.Marshal(to)
	if err == nil {
		err = c.ledger.countAlone(e)
	}
	if err == nil {
		err = c.ledger.attributes.StoreAttribute(nil, name, "", quotaAttribute, text)
	}
	if err != nil {
		return store.Bucket{}, false, fmt.Errorf("quota of bucket %s: %w", name, err)
	}
	e.mu.Lock()
	e.quota = to
	e.mu.Unlock()
	return e.contents(), true, nil
}

// unlessGone is a fault in a bucket that is still there.
func (e *entry) unlessGone(err error) error {
	e.access.RLock()
	defer e.access.RUnlock()
	if e.gone {
		return nil
	}
	return err
}

func (e *entry) contents() store.Bucket {
	e.mu.Lock()
	defer e.mu.Unlock()
	return store.Bucket{Name: e.name, Bytes: e.used.bytes, Objects: e.used.objects, Quota: e.quota}
}
