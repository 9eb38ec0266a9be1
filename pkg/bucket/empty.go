package bucket

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// deleters are how many batches are deleted at once: enough to hide the
// listing and the way to the service, and no flood.
const deleters = 4

// maxKeys is what S3 lists and deletes at a time.
const maxKeys = 1000

// Empty deletes everything that a bucket holds: all versions of its objects,
// delete markers and unfinished uploads. Before that it takes away the access to
// write that spec's policy and ACL have given to others. It returns how many of
// them it has deleted, also when it could not go on; a repeat then finds what is
// left. What is locked stays, and the first of it stops the work with
// FailedPrecondition. A bucket that does not exist is empty.
func (e *Engine) Empty(ctx context.Context, name string, spec params.Bucket) (deleted int64, err error) {
	for _, o := range []option{e.policy(name, spec), e.acl(name, spec)} {
		if o.want != "" && err == nil {
			err = o.remove(ctx)
		}
	}
	var n atomic.Int64
	begin, cancel := inTime(ctx)
	defer cancel()
	var left error
	for before := int64(-1); err == nil && n.Load() > before; { // the last pass finds nothing to delete
		before = n.Load()
		left, err = e.deleteVersions(begin, ctx, name, &n)
	}
	if err == nil {
		err = left
	}
	if err == nil {
		err = e.abortUploads(begin, ctx, name, &n)
	}
	if fault.Is(err, fault.NotFound) {
		err = nil
	}
	return n.Load(), err
}

// inTime ends before ctx does, so that what was begun can be finished: a service
// goes on with a request whose caller has left, and gets in the way of the next.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	const most = 10 * time.Second
	return context.WithDeadline(ctx, deadline.Add(-min(most, time.Until(deadline)/3)))
}

// deleteVersions deletes page by page, and lists ahead of that. All versions of an
// object are one deleter's: versitygw confuses them when two requests delete some at
// once. A service that looks for the place where the next page begins (versitygw too)
// may pass over what comes after something that is gone, or list what is just
// going, so one pass need not find all, nor delete all that it finds: left is
// about something that it did not. New work is begun while ctx lives, and
// finished while whole does.
func (e *Engine) deleteVersions(ctx, whole context.Context, name string, deleted *atomic.Int64) (left, err error) {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(deleters)
	var remains atomic.Pointer[error]
	size := e.batchSize()
	remove := func(objects []types.ObjectIdentifier) error {
		for batch := range slices.Chunk(objects, size) {
			left, err := e.deleteBatch(ctx, whole, name, batch, deleted)
			if left != nil {
				remains.Store(&left)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	var open []types.ObjectIdentifier // of the object that the next page goes on with
	listErr := transport.Pages(ctx, func(ctx context.Context, token string) (string, bool, error) {
		key, version, _ := strings.Cut(token, "\x00")
		page, err := e.s3.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &name, KeyMarker: optional(key), VersionIdMarker: optional(version)})
		if err != nil {
			return "", false, classify(err, "ListObjectVersions")
		}
		objects := open
		for _, v := range page.Versions {
			objects = append(objects, types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
		}
		for _, m := range page.DeleteMarkers {
			objects = append(objects, types.ObjectIdentifier{Key: m.Key, VersionId: m.VersionId})
		}
		open = nil
		if aws.ToBool(page.IsTruncated) {
			goesOn := func(o types.ObjectIdentifier) bool { return aws.ToString(o.Key) == aws.ToString(page.NextKeyMarker) }
			for _, o := range objects {
				if goesOn(o) {
					open = append(open, o)
				}
			}
			objects = slices.DeleteFunc(objects, goesOn)
		}
		if len(open) >= maxKeys { // an object with as many versions as there are in a page
			err, open = remove(open), nil
		}
		if len(objects) > 0 {
			work.Go(func() error { return remove(objects) })
		}
		next := aws.ToString(page.NextKeyMarker) + "\x00" + aws.ToString(page.NextVersionIdMarker)
		return next, aws.ToBool(page.IsTruncated), cmp.Or(err, ctx.Err())
	})
	err = cmp.Or(work.Wait(), listErr)
	if err == nil {
		err = remove(open)
	}
	if p := remains.Load(); p != nil {
		left = *p
	}
	return left, err
}

// deleteBatch deletes up to a thousand versions and counts those that are gone.
// What cannot be deleted for good is an error, and anything else is left.
func (e *Engine) deleteBatch(ctx, whole context.Context, name string, batch []types.ObjectIdentifier, deleted *atomic.Int64) (left, err error) {
	if len(batch) == 0 || ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err := e.pace(ctx, len(batch)); err != nil {
		return nil, err
	}
	answer, err := e.s3.DeleteObjects(whole, &s3.DeleteObjectsInput{Bucket: &name, Delete: &types.Delete{Objects: batch, Quiet: aws.Bool(true)}})
	if err != nil {
		return nil, classify(err, "DeleteObjects")
	}
	refused := slices.DeleteFunc(answer.Errors, func(r types.Error) bool {
		return slices.Contains([]string{"NoSuchKey", "NoSuchVersion"}, aws.ToString(r.Code))
	})
	deleted.Add(int64(len(batch) - len(refused)))
	if len(refused) == 0 {
		return nil, nil
	}
	err = e.refusedObject(whole, name, refused[0])
	if fault.Is(err, fault.FailedPrecondition) {
		return nil, err
	}
	return err, nil
}

// refusedObject says why an object cannot be deleted.
func (e *Engine) refusedObject(ctx context.Context, name string, refused types.Error) error {
	code := fault.Said(aws.ToString(refused.Code))
	object := fmt.Sprintf("object %q", fault.Said(aws.ToString(refused.Key)))
	hold, err := e.s3.GetObjectLegalHold(ctx, &s3.GetObjectLegalHoldInput{Bucket: &name, Key: refused.Key, VersionId: refused.VersionId})
	if err == nil && hold.LegalHold != nil && hold.LegalHold.Status == types.ObjectLockLegalHoldStatusOn {
		return fault.New(fault.FailedPrecondition, "%s is under a legal hold, and maybe others; nothing that is locked is deleted: take the hold off, or keep the bucket", object)
	}
	retention, err := e.s3.GetObjectRetention(ctx, &s3.GetObjectRetentionInput{Bucket: &name, Key: refused.Key, VersionId: refused.VersionId})
	if err == nil && retention.Retention != nil && aws.ToTime(retention.Retention.RetainUntilDate).After(time.Now()) {
		return fault.New(fault.FailedPrecondition, "%s is locked until %s (%s), and maybe others; nothing that is locked is deleted: wait, or keep the bucket",
			object, retention.Retention.RetainUntilDate.UTC().Format(time.RFC3339), fault.Said(string(retention.Retention.Mode)))
	}
	if kind, _ := answers.Kind(code); kind == fault.PermissionDenied {
		return fault.New(fault.FailedPrecondition, "%s cannot be deleted (%s): look for a policy that denies it", object, code)
	}
	return fault.New(fault.Unavailable, "%s was not deleted (%s)", object, code)
}

func (e *Engine) abortUploads(ctx, whole context.Context, name string, aborted *atomic.Int64) error {
	return transport.Pages(ctx, func(ctx context.Context, token string) (string, bool, error) {
		key, upload, _ := strings.Cut(token, "\x00")
		page, err := e.s3.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: &name, KeyMarker: optional(key), UploadIdMarker: optional(upload)})
		if err != nil {
			return "", false, classify(err, "ListMultipartUploads")
		}
		work, ctx := errgroup.WithContext(ctx)
		work.SetLimit(deleters)
		for _, u := range page.Uploads {
			work.Go(func() error {
				if err := e.pace(ctx, 1); err != nil {
					return err
				}
				_, err := e.s3.AbortMultipartUpload(whole, &s3.AbortMultipartUploadInput{Bucket: &name, Key: u.Key, UploadId: u.UploadId})
				if err != nil && signed.Code(err) != "NoSuchUpload" {
					return classify(err, "AbortMultipartUpload")
				}
				aborted.Add(1)
				return nil
			})
		}
		next := aws.ToString(page.NextKeyMarker) + "\x00" + aws.ToString(page.NextUploadIdMarker)
		return next, aws.ToBool(page.IsTruncated), work.Wait()
	})
}

// batchSize is what S3 lists and deletes at a time, or so much that all deleters
// together may delete a batch each in half a second: the least that a call has
// time for. A deleter that finds no time left ends the work of all, so with more a call
// could end before one of them has deleted anything.
func (e *Engine) batchSize() int {
	return max(1, min(maxKeys, int(min(maxKeys, e.deletions.Limit()/2/deleters))))
}

// pace waits until so many may be deleted. That the wait would outlast the call
// is the same as if it had.
func (e *Engine) pace(ctx context.Context, n int) error {
	if err := e.deletions.WaitN(ctx, n); err != nil {
		return fault.Wrap(fault.Unavailable, context.DeadlineExceeded, "there is no time left for the pace of deletions")
	}
	return nil
}
