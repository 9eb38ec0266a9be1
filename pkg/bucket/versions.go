package bucket

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// versioning cannot be taken back: what was enabled is suspended, and in a bucket with
// a lock it stays.
func (e *Engine) versioning(name string, spec params.Bucket) option {
	put := func(ctx context.Context, status types.BucketVersioningStatus) error {
		_, err := e.s3.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
			Bucket: &name, VersioningConfiguration: &types.VersioningConfiguration{Status: status},
		})
		return classify(err, "PutBucketVersioning")
	}
	return option{
		name: "versioning",
		want: spec.Versioning,
		read: func(ctx context.Context) (string, error) {
			have, err := e.s3.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &name})
			if err != nil {
				return "", classify(err, "GetBucketVersioning")
			}
			return string(have.Status), nil
		},
		write: func(ctx context.Context) error { return put(ctx, types.BucketVersioningStatus(spec.Versioning)) },
		remove: func(ctx context.Context) error {
			if err := put(ctx, types.BucketVersioningStatusSuspended); signed.Code(err) != "InvalidBucketState" {
				return err
			}
			return nil
		},
	}
}

// locked is a bucket with object lock and no default retention.
const locked = "Enabled"

// objectLock cannot be taken back either: what goes is the default retention.
func (e *Engine) objectLock(name string, spec params.Bucket) option {
	put := func(ctx context.Context, value string) error {
		_, err := e.s3.PutObjectLockConfiguration(ctx, &s3.PutObjectLockConfigurationInput{Bucket: &name, ObjectLockConfiguration: lockOf(value)})
		return classify(err, "PutObjectLockConfiguration")
	}
	return option{
		name: "objectLock",
		want: spec.ObjectLock,
		read: func(ctx context.Context) (string, error) {
			have, err := e.s3.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &name})
			found, err := has(err, "GetObjectLockConfiguration")
			if !found {
				return "", err
			}
			if have.ObjectLockConfiguration == nil {
				return blank, nil
			}
			return lockText(have.ObjectLockConfiguration), nil
		},
		write:  func(ctx context.Context) error { return put(ctx, spec.ObjectLock) },
		remove: func(ctx context.Context) error { return put(ctx, locked) },
	}
}

// lockOf reads the notation of the parameter, which has been checked.
func lockOf(value string) *types.ObjectLockConfiguration {
	c := &types.ObjectLockConfiguration{ObjectLockEnabled: types.ObjectLockEnabledEnabled}
	mode, period, ok := strings.Cut(value, ":")
	if !ok {
		return c
	}
	retention := &types.DefaultRetention{Mode: types.ObjectLockRetentionMode(mode)}
	n, _ := strconv.ParseInt(period[:len(period)-1], 10, 32)
	if strings.HasSuffix(period, "y") {
		retention.Years = aws.Int32(int32(n))
	} else {
		retention.Days = aws.Int32(int32(n))
	}
	c.Rule = &types.ObjectLockRule{DefaultRetention: retention}
	return c
}

func lockText(c *types.ObjectLockConfiguration) string {
	if c.ObjectLockEnabled != types.ObjectLockEnabledEnabled {
		return ""
	}
	if c.Rule == nil || c.Rule.DefaultRetention == nil {
		return locked
	}
	r := c.Rule.DefaultRetention
	if n := aws.ToInt32(r.Years); n > 0 {
		return fmt.Sprintf("%s:%dy", r.Mode, n)
	}
	return fmt.Sprintf("%s:%dd", r.Mode, aws.ToInt32(r.Days))
}
