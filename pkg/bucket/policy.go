package bucket

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
)

// policyVersion is the language of what the driver writes (Amazon S3 User
// Guide, "Policy version").
const policyVersion = "2012-10-17"

// policy is the class's policy. The statements by which the driver gives keys
// their rights may stand in the same document: they are not the class's, and
// stay.
func (e *Engine) policy(name string, spec params.Bucket) option {
	want := spec.PolicyFor(name)
	var grants policy.Document // of the bucket as it was read; a fresh one has none
	read := func(ctx context.Context) (string, error) {
		have, err := e.s3.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: &name})
		if found, err := has(err, "GetBucketPolicy"); !found {
			return "", err
		}
		text := aws.ToString(have.Policy)
		doc, err := policy.Parse(text)
		if err != nil {
			return text, nil //nolint:nilerr // nothing of the driver's is in it
		}
		grants.Take(doc, policy.Own)
		if rest, public, _ := policy.WithoutPublic(grants.String()); public { // which no statement of the driver's is
			own, _ := policy.Parse(rest)
			grants = *own
			return text, nil
		}
		if _, err := policy.Canonical(text); err != nil {
			return text, nil //nolint:nilerr // as no class has it
		}
		doc.Remove(policy.Own)
		if text = ""; !doc.Empty() {
			text, _ = policy.Canonical(doc.String())
		}
		if e.needsPolicy && !grants.Has(policy.AWS().Owner(name, e.accessKeyID)) {
			text += " (and locks the contract out)"
		}
		return text, nil
	}
	write := func(ctx context.Context, class string) error {
		doc, err := policy.Parse(class)
		if err != nil {
			return fault.Wrap(fault.InvalidArgument, err, "%s", err)
		}
		if class == "" {
			doc.Set(policyVersion)
		}
		doc.Take(&grants, policy.Own)
		if doc.Empty() {
			_, err := e.s3.DeleteBucketPolicy(ctx, &s3.DeleteBucketPolicyInput{Bucket: &name})
			return removed(err, "DeleteBucketPolicy")
		}
		if e.needsPolicy {
			doc.Set("", policy.AWS().Owner(name, e.accessKeyID))
		}
		text := doc.String()
		_, err = e.s3.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: &name, Policy: &text})
		return classify(err, "PutBucketPolicy")
	}
	return option{
		name:  "policy",
		want:  want,
		read:  read,
		write: func(ctx context.Context) error { return write(ctx, want) },
		remove: func(ctx context.Context) error {
			if _, err := read(ctx); err != nil {
				return err
			}
			return write(ctx, "")
		},
	}
}
