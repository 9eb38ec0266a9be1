package bucket

import (
	"context"
	"fmt"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// quota is the one option that is not S3's: the service keeps it, where contracts
// and keys are kept. A bound that the class does not name is one that the bucket is
// not to have.
func (e *Engine) quota(name string, spec params.Bucket) option {
	lacking := func() error {
		if e.bounder == nil {
			return fault.New(fault.Unsupported, "the service bounds no single bucket")
		}
		return nil
	}
	set := func(to contract.Bounds) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := lacking(); err != nil {
				return err
			}
			return e.bounder.BoundBucket(ctx, e.contract, name, to)
		}
	}
	want := contract.Bounds{MaxBytes: spec.MaxBytes, MaxObjects: spec.MaxObjects}
	return option{
		name: "quota",
		want: quotaText(want),
		read: func(ctx context.Context) (string, error) {
			if err := lacking(); err != nil {
				return "", err
			}
			have, err := e.bounder.BucketUse(ctx, e.contract, name)
			return quotaText(have.Bounds), err
		},
		write:  set(want),
		remove: set(contract.Bounds{}),
	}
}

func quotaText(b contract.Bounds) string {
	if b == (contract.Bounds{}) {
		return ""
	}
	return fmt.Sprintf("%d bytes, %d objects", b.MaxBytes, b.MaxObjects)
}
