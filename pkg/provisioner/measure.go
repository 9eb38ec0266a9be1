package provisioner

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// MeasureContract reads what the buckets of a contract hold and may hold, those that
// the journal knows, with the calls that list them at the service. told is false
// where the service does not tell.
func (p *Provisioner) MeasureContract(ctx context.Context, id cosi.ContractID) (all []contract.BucketUse, told bool, err error) {
	backend, err := p.sites.At(id)
	if err != nil {
		return nil, false, err
	}
	ctx, call, err := p.beginIdle(ctx)
	if err != nil {
		return nil, false, err
	}
	defer call.end()
	return p.measure(ctx, id, func(ctx context.Context) (all []contract.BucketUse, err error) {
		err = p.sites.Look(ctx, "backend "+id.Backend, func(ctx context.Context) error {
			all, err = backend.BucketUses(ctx, id.Contract)
			return err
		})
		return all, err
	})
}

// BucketUses is [Provisioner.MeasureContract] for a command, which need not be the one
// that changes things.
func (p *Provisioner) BucketUses(ctx context.Context, id cosi.ContractID) (all []contract.BucketUse, told bool, err error) {
	backend, err := p.sites.At(id)
	if err != nil {
		return nil, false, err
	}
	return p.measure(ctx, id, func(ctx context.Context) ([]contract.BucketUse, error) { return backend.BucketUses(ctx, id.Contract) })
}

func (p *Provisioner) measure(ctx context.Context, id cosi.ContractID, read func(context.Context) ([]contract.BucketUse, error)) ([]contract.BucketUse, bool, error) {
	ours, _, err := p.journal.BucketsOf(ctx, id, math.MaxInt)
	if err != nil || len(ours) == 0 {
		return nil, err == nil, err
	}
	all, err := read(ctx)
	if fault.Is(err, fault.Unsupported) {
		return nil, false, nil
	}
	slices.Sort(ours)
	slices.SortFunc(all, func(a, b contract.BucketUse) int { return cmp.Compare(a.Bucket, b.Bucket) })
	all = slices.CompactFunc(all, func(a, b contract.BucketUse) bool { return a.Bucket == b.Bucket }) // a bucket can be on two pages of a list
	return slices.DeleteFunc(all, func(u contract.BucketUse) bool { _, is := slices.BinarySearch(ours, u.Bucket); return !is }), err == nil, err
}

// BucketUse reads what one bucket holds and may hold; Unsupported where the service
// does not tell.
func (p *Provisioner) BucketUse(ctx context.Context, id cosi.BucketID) (contract.BucketUse, error) {
	backend, err := p.sites.At(id.ContractID)
	if err != nil {
		return contract.BucketUse{}, err
	}
	return backend.BucketUse(ctx, id.Contract, id.Bucket)
}
