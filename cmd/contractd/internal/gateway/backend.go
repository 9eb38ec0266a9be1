package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/s3err"
)

// ledger is the storage with a contract's terms around it: who owns a bucket,
// how many there may be, and a policy that leaves the owner in charge. It also
// keeps changes apart that the storage would mix up; see changes.go.
type ledger struct {
	reads
	storage    backend.Backend
	attributes meta.MetadataStorer // the storage's own
	versions   string              // the directory of old versions
	buckets    *Buckets
	terms      terms
}

var _ backend.Backend = (*ledger)(nil)

// CreateBucket makes a bucket under the caller's contract. A name that is taken
// is settled here, by the index, so that two callers at once get one answer each
// and not a half-made bucket.
func (l *ledger) CreateBucket(ctx context.Context, input *s3.CreateBucketInput, acl []byte) error {
	// The gateway hands the owner over in the context; the storage reads it there too.
	owner, ok := ctx.Value("bucket-owner").(auth.Account)
	if !ok || owner.Access == "" {
		return s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	// The gateway's strings live in a buffer of the request, which the next one overwrites.
	e, err := l.buckets.reserve(strings.Clone(*input.Bucket), strings.Clone(owner.Access), l.terms)
	if err != nil {
		return err
	}
	made := false
	defer func() { l.buckets.settle(e, made) }()
	if err := l.storage.CreateBucket(ctx, input, acl); err != nil {
		return err
	}
	made = true
	return nil
}

// DeleteBucket deletes a bucket and gives its name and its place in the quota free.
func (l *ledger) DeleteBucket(ctx context.Context, bucket string) error {
	e, err := l.find(ctx, bucket)
	if err != nil {
		return err
	}
	if err := e.alone(); err != nil {
		return err
	}
	there := true
	defer func() { l.buckets.settle(e, there) }()
	l.sweep(bucket)
	l.sweep(filepath.Join(l.versions, bucket))
	err = l.storage.DeleteBucket(ctx, bucket)
	// An earlier attempt may have failed when the bucket was gone already.
	there = err != nil && !errors.Is(err, s3err.GetAPIError(s3err.ErrNoSuchBucket))
	return err
}

// ChangeBucketOwner is not supported: a bucket stays with its contract.
func (l *ledger) ChangeBucketOwner(context.Context, string, string) error { return unsupported() }

// PutBucketPolicy refuses a policy with which the owner could no longer read,
// replace or remove the policy: an explicit Deny is final in the gateway, also
// for the owner, so such a bucket could not be repaired over S3. It does not
// matter under which condition the Deny holds: one that the owner happens to
// meet locks just as well.
func (l *ledger) PutBucketPolicy(ctx context.Context, bucket string, document []byte) error {
	policy, err := auth.ParsePolicyDocument(document)
	if err != nil {
		return err
	}
	owner := l.buckets.Owner(bucket)
	for _, statement := range policy.Statement {
		_, everyone := statement.Principals["*"]
		_, named := statement.Principals[owner]
		if statement.Effect != auth.BucketPolicyAccessTypeDeny || !everyone && !named {
			continue
		}
		for _, action := range []auth.Action{auth.GetBucketPolicyAction, auth.PutBucketPolicyAction, auth.DeleteBucketPolicyAction} {
			if statement.Actions.FindMatch(action) && statement.Resources.FindMatch(bucket, l.NormalizeObjectKey) {
				return s3err.APIError{
					Code: "MalformedPolicy",
					Description: fmt.Sprintf("The policy denies %s on %s to its owner %s, who could then never change it again. "+
						"Deny object actions, or name other principals.", action, bucket, owner),
					HTTPStatusCode: http.StatusBadRequest,
				}
			}
		}
	}
	return l.change(ctx, bucket, "", func() error { return l.storage.PutBucketPolicy(ctx, bucket, document) })
}

func tooManyBuckets() error {
	return s3err.APIError{
		Code:           "TooManyBuckets",
		Description:    "The contract has as many buckets as its quota maxBuckets allows. Delete one, or have the quota raised.",
		HTTPStatusCode: http.StatusBadRequest,
	}
}
