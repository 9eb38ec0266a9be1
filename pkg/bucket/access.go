package bucket

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// ownership is whose the objects of others are; ACLs are off by default.
func ownership(spec params.Bucket) string {
	if spec.ObjectOwnership == "" && (spec.ACL != "" || !spec.Grants.None()) {
		return string(types.ObjectOwnershipBucketOwnerPreferred)
	}
	return spec.ObjectOwnership
}

// ownership looks at what the class says in so many words. What an ACL needs is
// asked for when the bucket is made: some services take ACLs without it.
func (e *Engine) ownership(name string, spec params.Bucket) option {
	return option{
		name: "objectOwnership",
		want: spec.ObjectOwnership,
		read: func(ctx context.Context) (string, error) {
			have, err := e.s3.GetBucketOwnershipControls(ctx, &s3.GetBucketOwnershipControlsInput{Bucket: &name})
			found, err := has(err, "GetBucketOwnershipControls")
			if !found {
				return "", err
			}
			if have.OwnershipControls == nil || len(have.OwnershipControls.Rules) == 0 {
				return blank, nil
			}
			return string(have.OwnershipControls.Rules[0].ObjectOwnership), nil
		},
		write: func(ctx context.Context) error { return e.putOwnership(ctx, name, spec.ObjectOwnership) },
		remove: func(ctx context.Context) error {
			_, err := e.s3.DeleteBucketOwnershipControls(ctx, &s3.DeleteBucketOwnershipControlsInput{Bucket: &name})
			return removed(err, "DeleteBucketOwnershipControls")
		},
	}
}

func (e *Engine) putOwnership(ctx context.Context, name, whose string) error {
	_, err := e.s3.PutBucketOwnershipControls(ctx, &s3.PutBucketOwnershipControlsInput{Bucket: &name, OwnershipControls: &types.OwnershipControls{
		Rules: []types.OwnershipControlsRule{{ObjectOwnership: types.ObjectOwnership(whose)}},
	}})
	return classify(err, "PutBucketOwnershipControls")
}

// publicAccess is the public access block, as the list of what it blocks.
func (e *Engine) publicAccess(name string, spec params.Bucket) option {
	const nothing = "none"
	text := func(blocked []string) string {
		if len(blocked) == 0 {
			return nothing
		}
		return strings.Join(blocked, ",")
	}
	o := option{
		name: "blockPublicAccess",
		none: nothing,
		read: func(ctx context.Context) (string, error) {
			have, err := e.s3.GetPublicAccessBlock(ctx, &s3.GetPublicAccessBlockInput{Bucket: &name})
			found, err := has(err, "GetPublicAccessBlock")
			if !found {
				return nothing, err
			}
			if have.PublicAccessBlockConfiguration == nil {
				return blank, nil
			}
			var blocked []string
			c := have.PublicAccessBlockConfiguration
			for _, part := range []struct { // sorted by name, as the class's are
				name string
				on   *bool
			}{{"BlockPublicAcls", c.BlockPublicAcls}, {"BlockPublicPolicy", c.BlockPublicPolicy}, {"IgnorePublicAcls", c.IgnorePublicAcls}, {"RestrictPublicBuckets", c.RestrictPublicBuckets}} {
				if aws.ToBool(part.on) {
					blocked = append(blocked, part.name)
				}
			}
			return text(blocked), nil
		},
		write: func(ctx context.Context) error {
			blocks := func(part string) *bool { return aws.Bool(slices.Contains(spec.BlockPublicAccess, part)) }
			_, err := e.s3.PutPublicAccessBlock(ctx, &s3.PutPublicAccessBlockInput{Bucket: &name, PublicAccessBlockConfiguration: &types.PublicAccessBlockConfiguration{
				BlockPublicAcls: blocks("BlockPublicAcls"), BlockPublicPolicy: blocks("BlockPublicPolicy"),
				IgnorePublicAcls: blocks("IgnorePublicAcls"), RestrictPublicBuckets: blocks("RestrictPublicBuckets"),
			}})
			return classify(err, "PutPublicAccessBlock")
		},
		remove: func(ctx context.Context) error {
			_, err := e.s3.DeletePublicAccessBlock(ctx, &s3.DeletePublicAccessBlockInput{Bucket: &name})
			return removed(err, "DeletePublicAccessBlock")
		},
	}
	if spec.BlockPublicAccess != nil {
		o.want = text(spec.BlockPublicAccess)
	}
	return o
}
