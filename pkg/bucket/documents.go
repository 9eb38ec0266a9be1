package bucket

import (
	"context"
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// The SDK's types have the field names of AWS's JSON, so a document of a class
// and what a service answers are turned into each other by way of their text.

func (e *Engine) lifecycle(name string, spec params.Bucket) option {
	want := spec.LifecycleDocument()
	return option{
		name: "lifecycle",
		want: want,
		read: func(ctx context.Context) (string, error) {
			have, err := e.s3.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &name})
			found, err := has(err, "GetBucketLifecycleConfiguration")
			if !found {
				return "", err
			}
			if len(have.Rules) == 0 {
				return blank, nil
			}
			return canonical(types.BucketLifecycleConfiguration{Rules: have.Rules}, params.CanonicalLifecycle), nil
		},
		write: func(ctx context.Context) error {
			in := &s3.PutBucketLifecycleConfigurationInput{Bucket: &name, LifecycleConfiguration: &types.BucketLifecycleConfiguration{}}
			if err := fill(in.LifecycleConfiguration, want); err != nil {
				return err
			}
			_, err := e.s3.PutBucketLifecycleConfiguration(ctx, in)
			return classify(err, "PutBucketLifecycleConfiguration")
		},
		remove: func(ctx context.Context) error {
			_, err := e.s3.DeleteBucketLifecycle(ctx, &s3.DeleteBucketLifecycleInput{Bucket: &name})
			return removed(err, "DeleteBucketLifecycle")
		},
	}
}

func (e *Engine) cors(name string, spec params.Bucket) option {
	want := spec.CORSDocument()
	return option{
		name: "cors",
		want: want,
		read: func(ctx context.Context) (string, error) {
			have, err := e.s3.GetBucketCors(ctx, &s3.GetBucketCorsInput{Bucket: &name})
			found, err := has(err, "GetBucketCors")
			if !found {
				return "", err
			}
			if len(have.CORSRules) == 0 {
				return blank, nil
			}
			return canonical(types.CORSConfiguration{CORSRules: have.CORSRules}, params.CanonicalCORS), nil
		},
		write: func(ctx context.Context) error {
			in := &s3.PutBucketCorsInput{Bucket: &name, CORSConfiguration: &types.CORSConfiguration{}}
			if err := fill(in.CORSConfiguration, want); err != nil {
				return err
			}
			_, err := e.s3.PutBucketCors(ctx, in)
			return classify(err, "PutBucketCors")
		},
		remove: func(ctx context.Context) error {
			_, err := e.s3.DeleteBucketCors(ctx, &s3.DeleteBucketCorsInput{Bucket: &name})
			return removed(err, "DeleteBucketCors")
		},
	}
}

// fill reads a document of a class into the SDK's type.
func fill(into any, document string) error {
	if err := json.Unmarshal([]byte(document), into); err != nil {
		return fault.Wrap(fault.Internal, err, "a document of the class does not fit the SDK")
	}
	return nil
}

// canonical is a service's answer in the notation of a class. What cannot be
// brought to it is other than any class's.
func canonical(answer any, form func(string, bool) (string, error)) string {
	text, _ := json.Marshal(answer) // plain data
	if out, err := form(string(text), false); err == nil {
		return out
	}
	return string(text)
}
