package service

import (
	"context"
	"net/http"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/api"
	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

// ListBuckets implements GET /v1/contracts/{contractName}/buckets.
func (s *Service) ListBuckets(_ context.Context, r api.ListBucketsRequestObject) (api.ListBucketsResponseObject, error) {
	c, err := s.find(r.ContractName)
	if err != nil {
		return nil, err
	}
	var found faults
	limit, after := found.page(r.Params.PageSize, r.Params.PageToken)
	if err := found.invalid(); err != nil {
		return nil, err
	}
	names, more := s.buckets.Names(c.Code, after, limit)
	list := api.ListBuckets200JSONResponse{Items: []api.Bucket{}}
	for _, name := range names {
		b, ok, err := s.buckets.Bucket(c.Code, name)
		if err != nil {
			return nil, err
		}
		if ok { // or it has gone meanwhile
			list.Items = append(list.Items, bucket(b))
		}
		list.NextPageToken = nextToken(more, name)
	}
	return list, nil
}

// GetBucket implements GET /v1/contracts/{contractName}/buckets/{bucketName}.
func (s *Service) GetBucket(_ context.Context, r api.GetBucketRequestObject) (api.GetBucketResponseObject, error) {
	c, err := s.find(r.ContractName)
	if err != nil {
		return nil, err
	}
	b, ok, err := s.buckets.Bucket(c.Code, r.BucketName)
	if err == nil && !ok {
		err = noBucket(c.Name)
	}
	return api.GetBucket200JSONResponse(bucket(b)), err
}

// PutBucketQuota implements PUT /v1/contracts/{contractName}/buckets/{bucketName}/quota.
func (s *Service) PutBucketQuota(_ context.Context, r api.PutBucketQuotaRequestObject) (api.PutBucketQuotaResponseObject, error) {
	var found faults
	found.positive("/maxBytes", r.Body.MaxBytes)
	found.positive("/maxObjects", r.Body.MaxObjects)
	if err := found.invalid(); err != nil {
		return nil, err
	}
	c, err := s.find(r.ContractName)
	if err != nil {
		return nil, err
	}
	b, ok, err := s.buckets.Bound(c.Code, r.BucketName, store.Quota{MaxBytes: value(r.Body.MaxBytes), MaxObjects: value(r.Body.MaxObjects)})
	if err == nil && !ok {
		err = noBucket(c.Name)
	}
	return api.PutBucketQuota200JSONResponse(bucket(b)), err
}

// bucket is how callers see a bucket.
func bucket(b store.Bucket) api.Bucket {
	seen := api.Bucket{Name: b.Name, Bytes: &b.Bytes, Objects: &b.Objects}
	if b.MaxBytes > 0 {
		seen.Quota.MaxBytes = &b.MaxBytes
	}
	if b.MaxObjects > 0 {
		seen.Quota.MaxObjects = &b.MaxObjects
	}
	return seen
}

func noBucket(contract string) error {
	return newProblem(http.StatusNotFound, api.BucketNotFound, "The contract %s has no such bucket.", contract)
}
