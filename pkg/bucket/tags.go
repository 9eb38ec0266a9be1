package bucket

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
)

func (e *Engine) tagsOf(ctx context.Context, name string) (map[string]string, error) {
	answer, err := e.s3.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: &name})
	if found, err := has(err, "GetBucketTagging"); !found {
		return nil, err
	}
	tags := make(map[string]string, len(answer.TagSet))
	for _, t := range answer.TagSet {
		tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return tags, nil
}

// marked are the tags of a class and the driver's mark.
func (e *Engine) marked(tags map[string]string) map[string]string {
	out := map[string]string{cosi.OwnerTag: e.owner}
	maps.Copy(out, tags)
	return out
}

// tagSet is a map as S3 takes it, sorted by key.
func tagSet(tags map[string]string) []types.Tag {
	out := make([]types.Tag, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, types.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	return out
}

// tagging wants some tags on a bucket, not those it was given before, and
// leaves its others alone.
func (e *Engine) tagging(name string, want, before, have map[string]string) option {
	all := map[string]string{}
	maps.Copy(all, have)
	for key := range before {
		delete(all, key)
	}
	maps.Copy(all, want)
	text := func(tags map[string]string) string {
		out, _ := json.Marshal(tagSet(tags)) // plain data
		return string(out)
	}
	return option{
		name: "tags",
		want: text(all),
		read: func(context.Context) (string, error) { return text(have), nil },
		write: func(ctx context.Context) error {
			_, err := e.s3.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{Bucket: &name, Tagging: &types.Tagging{TagSet: tagSet(all)}})
			return classify(err, "PutBucketTagging")
		},
	}
}
