package bucket

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
)

// policy is the class's policy. The statements by which the driver gives keys
// their rights may stand in the same document: they are not the class's, and
// stay.
func (e *Engine) policy(ctx context.Context, name string, spec params.Bucket) option {
	want := spec.PolicyFor(name)
	var grants policy.Document // of the bucket as it was read; a fresh one has none
	return option{
		name:   "policy",
		wanted: want != "",
		differs: func() (bool, error) {
			have, err := e.s3.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: &name})
			if code(err) == "NoSuchBucketPolicy" {
				return true, nil
			}
			if err != nil {
				return false, classify(err, "GetBucketPolicy")
			}
			doc, err := policy.Parse(aws.ToString(have.Policy))
			if err != nil {
				return true, nil // nothing of the driver's is in it
			}
			grants.Take(doc, policy.Own)
			doc.Remove(policy.Own)
			canonical, err := params.CanonicalPolicy(doc.String())
			lockedOut := e.needsPolicy && !grants.Has(policy.AWS().Owner(name, e.accessKeyID))
			return err != nil || canonical != want || lockedOut, nil
		},
		write: func() error {
			doc, err := policy.Parse(want)
			if err != nil {
				return fault.Wrap(fault.InvalidArgument, err, "%s", err)
			}
			doc.Take(&grants, policy.Own)
			if e.needsPolicy {
				doc.Set("", policy.AWS().Owner(name, e.accessKeyID))
			}
			text := doc.String()
			_, err = e.s3.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: &name, Policy: &text})
			return classify(err, "PutBucketPolicy")
		},
	}
}
