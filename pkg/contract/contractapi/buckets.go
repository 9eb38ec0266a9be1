package contractapi

import (
	"context"
	"net/http"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contractapi/internal/api"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// BucketUse implements contract.Bounder.
func (p *Provider) BucketUse(ctx context.Context, name, bucket string) (contract.BucketUse, error) {
	var b api.Bucket
	err := p.ofBuckets(ctx, "GetBucket", &b, func(ctx context.Context) (*http.Response, error) { return p.client.GetBucket(ctx, name, bucket) })
	if err == nil && b.Name != bucket {
		err = unpromised(nil)
	}
	return useOf(b), err
}

// BucketUses implements contract.Bounder.
func (p *Provider) BucketUses(ctx context.Context, name string) ([]contract.BucketUse, error) {
	var out []contract.BucketUse
	err := transport.Pages(transport.Listing(ctx), func(ctx context.Context, token string) (string, bool, error) {
		var page api.BucketList
		size := maxPage
		err := p.ofBuckets(ctx, "ListBuckets", &page, func(ctx context.Context) (*http.Response, error) {
			return p.client.ListBuckets(ctx, name, &api.ListBucketsParams{PageSize: &size, PageToken: optional(token)})
		})
		if err == nil && page.Items == nil {
			err = unpromised(nil)
		}
		for _, b := range page.Items {
			out = append(out, useOf(b))
		}
		return value(page.NextPageToken), value(page.NextPageToken) != "", err
	})
	return out, err
}

// maxPage is the longest page of a list that the API knows.
const maxPage = 500

// BoundBucket implements contract.Bounder.
func (p *Provider) BoundBucket(ctx context.Context, name, bucket string, to contract.Bounds) error {
	var quota api.BucketQuota
	if to.MaxBytes > 0 {
		quota.MaxBytes = &to.MaxBytes
	}
	if to.MaxObjects > 0 {
		quota.MaxObjects = &to.MaxObjects
	}
	return p.ofBuckets(ctx, "PutBucketQuota", &api.Bucket{}, func(ctx context.Context) (*http.Response, error) {
		return p.client.PutBucketQuota(ctx, name, bucket, quota)
	})
}

// ofBuckets makes a call of the part of the API that came later: a service without
// it has no such path, and says so in one way or another.
func (p *Provider) ofBuckets(ctx context.Context, operation string, into any, send send) error {
	meta, err := p.exchange(ctx, operation, into, send)
	switch meta.status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		if !fault.Is(err, fault.NotFound) {
			err = fault.Wrap(fault.Unsupported, err, "the contract service does not bound single buckets")
		}
	}
	return err
}

func useOf(b api.Bucket) contract.BucketUse {
	return contract.BucketUse{
		Bucket: b.Name, Bytes: b.Bytes, Objects: b.Objects,
		Bounds: contract.Bounds{MaxBytes: max(0, value(b.Quota.MaxBytes)), MaxObjects: max(0, value(b.Quota.MaxObjects))},
	}
}
