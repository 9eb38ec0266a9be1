package bucket

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// deleters are how many batches are deleted at once: enough to hide the
// listing and the way to the service, and no flood.
const deleters = 4

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
	if err == nil {
		err = e.deleteVersions(ctx, name, &n)
	}
	if err == nil {
		err = e.abortUploads(ctx, name, &n)
	}
	if fault.Is(err, fault.NotFound) {
		err = nil
	}
	return n.Load(), err
}

// deleteVersions lists ahead of those that delete. A page is a batch: S3 lists
// and deletes up to 1000 at a time.
func (e *Engine) deleteVersions(ctx context.Context, name string, deleted *atomic.Int64) error {
	work, ctx := errgroup.WithContext(ctx)
	batches := make(chan []types.ObjectIdentifier)
	work.Go(func() error {
		defer close(batches)
		pages := s3.NewListObjectVersionsPaginator(e.s3, &s3.ListObjectVersionsInput{Bucket: &name})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return classify(err, "ListObjectVersions")
			}
			batch := make([]types.ObjectIdentifier, 0, len(page.Versions)+len(page.DeleteMarkers))
			for _, v := range page.Versions {
				batch = append(batch, types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
			}
			for _, m := range page.DeleteMarkers {
				batch = append(batch, types.ObjectIdentifier{Key: m.Key, VersionId: m.VersionId})
			}
			select {
			case batches <- batch:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range deleters {
		work.Go(func() error {
			for batch := range batches {
				n, err := e.deleteBatch(ctx, name, batch)
				deleted.Add(int64(n))
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return work.Wait()
}

// deleteBatch returns how many of a batch are gone.
func (e *Engine) deleteBatch(ctx context.Context, name string, batch []types.ObjectIdentifier) (int, error) {
	if len(batch) == 0 {
		return 0, nil
	}
	if err := e.pace(ctx, len(batch)); err != nil {
		return 0, err
	}
	answer, err := e.s3.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &name, Delete: &types.Delete{Objects: batch, Quiet: aws.Bool(true)}})
	if err != nil {
		return 0, classify(err, "DeleteObjects")
	}
	if n := len(answer.Errors); n > 0 {
		return len(batch) - n, e.refusedObject(ctx, name, answer.Errors[0])
	}
	return len(batch), nil
}

// refusedObject says why an object cannot be deleted.
func (e *Engine) refusedObject(ctx context.Context, name string, refused types.Error) error {
	if kind, known := kinds[aws.ToString(refused.Code)]; known && (kind == fault.Unavailable || kind == fault.RateLimited) {
		return fault.New(kind, "the storage refused to delete an object (%s)", aws.ToString(refused.Code))
	}
	object := fmt.Sprintf("object %q", clip(aws.ToString(refused.Key)))
	hold, err := e.s3.GetObjectLegalHold(ctx, &s3.GetObjectLegalHoldInput{Bucket: &name, Key: refused.Key, VersionId: refused.VersionId})
	if err == nil && hold.LegalHold != nil && hold.LegalHold.Status == types.ObjectLockLegalHoldStatusOn {
		return fault.New(fault.FailedPrecondition, "%s is under a legal hold, and maybe others; nothing that is locked is deleted: take the hold off, or keep the bucket", object)
	}
	retention, err := e.s3.GetObjectRetention(ctx, &s3.GetObjectRetentionInput{Bucket: &name, Key: refused.Key, VersionId: refused.VersionId})
	if err == nil && retention.Retention != nil && aws.ToTime(retention.Retention.RetainUntilDate).After(time.Now()) {
		return fault.New(fault.FailedPrecondition, "%s is locked until %s (%s), and maybe others; nothing that is locked is deleted: wait, or keep the bucket",
			object, retention.Retention.RetainUntilDate.UTC().Format(time.RFC3339), retention.Retention.Mode)
	}
	return fault.New(fault.FailedPrecondition, "%s cannot be deleted (%s): look for a policy that denies it", object, aws.ToString(refused.Code))
}

func (e *Engine) abortUploads(ctx context.Context, name string, aborted *atomic.Int64) error {
	pages := s3.NewListMultipartUploadsPaginator(e.s3, &s3.ListMultipartUploadsInput{Bucket: &name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return classify(err, "ListMultipartUploads")
		}
		work, ctx := errgroup.WithContext(ctx)
		work.SetLimit(deleters)
		for _, u := range page.Uploads {
			work.Go(func() error {
				if err := e.pace(ctx, 1); err != nil {
					return err
				}
				_, err := e.s3.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &name, Key: u.Key, UploadId: u.UploadId})
				if err != nil && code(err) != "NoSuchUpload" {
					return classify(err, "AbortMultipartUpload")
				}
				aborted.Add(1)
				return nil
			})
		}
		if err := work.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// pace waits until so many may be deleted. That the wait would outlast the call
// is the same as if it had.
func (e *Engine) pace(ctx context.Context, n int) error {
	if err := e.deletions.WaitN(ctx, n); err != nil {
		return fault.Wrap(fault.Unavailable, err, "deleting is paced")
	}
	return nil
}
