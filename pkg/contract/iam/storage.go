package iam

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/retry"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// storage is an S3 client with some key.
func (p *Provider) storage(at cosi.Endpoint, pair secret.KeyPair) *s3.Client {
	return signed.S3(at, pair, transport.Speaking(transport.S3, p.HTTP), func(o *s3.Options) { o.Retryer = aws.NopRetryer{} })
}

// The waits for a fresh key, ever longer.
const (
	firstLook  = 50 * time.Millisecond
	rarestLook = time.Second
)

// accepted waits until the storage takes a fresh key, where it may need time to settle.
// Unavailable if it does not in that time.
func (p *Provider) accepted(ctx context.Context, pair secret.KeyPair, req contract.IssueKeyRequest) error {
	if p.AtOnce {
		return nil
	}
	deadline := time.Now().Add(p.Settles)
	wait := firstLook
	for {
		err := p.probe(ctx, pair, req)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
		wait = min(2*wait, rarestLook)
	}
}

// probe makes a request with the key. One that may list has to be let; of any
// other it is enough that the storage knows the key.
func (p *Provider) probe(ctx context.Context, pair secret.KeyPair, req contract.IssueKeyRequest) error {
	client := p.storage(p.Endpoints[0], pair)
	var err error
	lists := true
	if req.Scope == nil {
		_, err = client.ListBuckets(ctx, &s3.ListBucketsInput{})
	} else {
		b := req.Scope.Buckets[0]
		lists = b.Mode != cosi.WriteOnly && len(req.Scope.SourceAddresses) == 0
		_, err = client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &b.Bucket, Prefix: aws.String(b.Prefix), MaxKeys: aws.Int32(1)})
	}
	p.Observe("ProbeKey", nil)
	switch code := signed.Code(err); {
	case err == nil:
		return nil
	case code == "":
		return fault.NoAnswer(err, "", "the storage")
	case code == "InvalidAccessKeyId" || code == "SignatureDoesNotMatch":
		return fault.Wrap(fault.Unavailable, err, "the storage does not know the new key yet; retry")
	case code == "AccessDenied" && lists:
		return fault.Wrap(fault.Unavailable, err, "the storage does not let the new key do what it may; retry, and check what the account's own policies deny")
	}
	return nil // it knows the key: what else is wrong, the application would be told as well
}

// bucketsOf are those buckets of the account that carry the contract's mark, or
// all of an account that is the contract's own.
func (p *Provider) bucketsOf(ctx context.Context, name, owner string) ([]string, error) {
	pair, err := p.Credentials(ctx, name)
	if err != nil {
		return nil, err
	}
	var out []string
	mark := cosi.SharedMark(owner, name)
	client := p.storage(p.Endpoints[0], pair)
	var all []string
	err = transport.Pages(transport.Listing(ctx), func(ctx context.Context, token string) (string, bool, error) {
		in := &s3.ListBucketsInput{ContinuationToken: optional(token)}
		page, err := again(ctx, p, "ListBuckets", func() (*s3.ListBucketsOutput, error) { return client.ListBuckets(ctx, in) })
		if err != nil {
			return "", false, err
		}
		for _, b := range page.Buckets {
			all = append(all, aws.ToString(b.Name))
		}
		return aws.ToString(page.ContinuationToken), aws.ToString(page.ContinuationToken) != "", nil
	})
	if err != nil || p.OwnAccounts {
		return all, err
	}
	found := make([]bool, len(all))
	err = each(ctx, all, func(ctx context.Context, i int, b string) error {
		tags, err := again(ctx, p, "GetBucketTagging", func() (*s3.GetBucketTaggingOutput, error) {
			return client.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: &b})
		})
		if signed.Code(err) == "NoSuchTagSet" || fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, t := range tags.TagSet {
			found[i] = found[i] || aws.ToString(t.Key) == cosi.OwnerTag && aws.ToString(t.Value) == mark
		}
		return nil
	})
	for i, b := range all {
		if found[i] {
			out = append(out, b)
		}
	}
	return out, err
}

// again makes a call of S3, again where that may help.
func again[Out any](ctx context.Context, p *Provider, operation string, call func() (Out, error)) (Out, error) {
	var out Out
	err := retry.Do(ctx, func() (err error) {
		out, err = call()
		err = classify(err, operation)
		p.Observe(operation, err)
		return err
	})
	return out, err
}
