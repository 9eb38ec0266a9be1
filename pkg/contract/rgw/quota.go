package rgw

import (
	"context"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// The gateway counts an object in whole blocks of 4 KiB against a bucket's quota,
// and looks at its count of a bucket only now and then while there is room: many
// writers at once can pass a bound by a little. An object that is overwritten needs
// room beside the one it replaces.

// BucketUse implements contract.Bounder.
func (p *Provider) BucketUse(ctx context.Context, name, bucket string) (contract.BucketUse, error) {
	b, err := p.calls.getBucket(ctx, tenantOf(name)+"/"+bucket)
	if signed.Code(err) == "NoSuchBucket" { // of any other call it is an S3 server's that knows no administration
		err = fault.As(fault.NotFound, err)
	}
	return b.use(), err
}

// BucketUses implements contract.Bounder. A gateway whose driver's user was not given
// buckets=* is one that does not tell.
func (p *Provider) BucketUses(ctx context.Context, name string) ([]contract.BucketUse, error) {
	all, err := p.calls.getBuckets(ctx, userID(name, cosi.ContractSlot))
	if signed.Code(err) == "AccessDenied" {
		return nil, fault.As(fault.Unsupported, err)
	}
	out := make([]contract.BucketUse, len(all))
	for i, b := range all {
		out[i] = b.use()
	}
	return out, err
}

// BoundBucket implements contract.Bounder.
func (p *Provider) BoundBucket(ctx context.Context, name, bucket string, to contract.Bounds) error {
	q := quota{Enabled: to != contract.Bounds{}, MaxSize: -1, MaxObjects: -1}
	if to.MaxBytes > 0 {
		q.MaxSize = to.MaxBytes
	}
	if to.MaxObjects > 0 {
		q.MaxObjects = to.MaxObjects
	}
	return p.calls.setBucketQuota(ctx, userID(name, cosi.ContractSlot), bucket, q)
}

func (b bucket) use() contract.BucketUse {
	out := contract.BucketUse{Bucket: b.Name, Bytes: new(int64), Objects: new(int64)}
	for _, category := range b.Usage { // parts of unfinished uploads are one of their own
		*out.Bytes += category.Size
		*out.Objects += category.Objects
	}
	if b.Quota.Enabled {
		out.Bounds = contract.Bounds{MaxBytes: max(0, b.Quota.MaxSize), MaxObjects: max(0, b.Quota.MaxObjects)}
	}
	return out
}
