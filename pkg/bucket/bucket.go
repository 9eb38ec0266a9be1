// Package bucket is everything the driver does over S3.
//
// An [Engine] acts for one contract, with the contract's own key. What a bucket
// should look like is given as a whole ([params.Bucket]); the engine reads what
// is there, compares, and writes the difference, so the same code makes a
// bucket, finishes one that a crash left half-made, and leaves a finished one
// alone. A feature that the service does not have is an error that names it.
package bucket

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Config makes an Engine.
type Config struct {
	// Endpoint is where the contract's buckets are.
	Endpoint cosi.Endpoint
	// Key is the contract's own key.
	Key secret.KeyPair
	// Owner is the driver's mark, kept in a tag of every bucket it makes.
	Owner string
	// OwnerNeedsPolicy: a policy that does not name the contract's own key would
	// lock the contract out of its bucket, so each is made to name it.
	OwnerNeedsPolicy bool
	// TagsLater: CreateBucket takes no tags, so a bucket gets its mark when it is
	// there.
	TagsLater bool
	// HTTP carries the calls; engines of one backend share it and its connections.
	HTTP aws.HTTPClient
	// Observe hears of every call that was tried, with the outcome.
	Observe func(operation string, err error)
}

// Engine makes, configures and deletes the buckets of one contract.
type Engine struct {
	s3          *s3.Client
	owner       string
	needsPolicy bool
	tagsLater   bool
	endpoint    cosi.Endpoint
	accessKeyID string
}

// The SDK repeats what failed in transit; the RPC's own deadline bounds it all.
const (
	attempts   = 3
	maxBackoff = 2 * time.Second
)

// New returns an Engine; no call is made.
func New(c Config) *Engine {
	return &Engine{
		owner:       c.Owner,
		needsPolicy: c.OwnerNeedsPolicy,
		tagsLater:   c.TagsLater,
		endpoint:    c.Endpoint,
		accessKeyID: c.Key.AccessKeyID,
		s3: s3.New(s3.Options{
			BaseEndpoint: aws.String(c.Endpoint.URL),
			Region:       c.Endpoint.Region,
			UsePathStyle: c.Endpoint.PathStyle,
			HTTPClient:   c.HTTP,
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: c.Key.AccessKeyID, SecretAccessKey: c.Key.SecretAccessKey.Reveal()}, nil
			}),
			// Services other than AWS know no checksum trailers.
			RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
			ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
			Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
				o.MaxAttempts, o.MaxBackoff = attempts, maxBackoff
				o.RateLimiter = ratelimit.None // a client-side budget would turn an outage into a longer one
			}),
			APIOptions: []func(*middleware.Stack) error{observeAttempts(c.Observe)},
		}),
	}
}

// observeAttempts reports each HTTP exchange, not only the last of a call.
func observeAttempts(observe func(string, error)) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("ObserveAttempts",
			func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
				out, metadata, err := next.HandleFinalize(ctx, in)
				observe(awsmiddleware.GetOperationName(ctx), classify(err, ""))
				return out, metadata, err
			}), "Retry", middleware.After)
	}
}

// AccessKeyID names the key that the engine acts with.
func (e *Engine) AccessKeyID() string { return e.accessKeyID }

// Create makes a bucket that carries the driver's mark from its first moment,
// and configures it to spec. A bucket that exists with the mark, left by an
// attempt that did not finish, is configured too; one without it is a Conflict
// and is left as it is. The mark is looked at in any case, as some services
// answer the owner of a bucket that it was made when it was there before.
func (e *Engine) Create(ctx context.Context, name string, spec params.Bucket) error {
	if e.tagsLater {
		return e.createUnmarked(ctx, name, spec)
	}
	err := e.make(ctx, name, spec)
	var owned *types.BucketAlreadyOwnedByYou
	if err != nil && !errors.As(err, &owned) {
		return classify(err, "CreateBucket")
	}
	tags, tagErr := e.tagsOf(ctx, name)
	if tagErr != nil {
		return tagErr
	}
	if tags[cosi.OwnerTag] != e.owner {
		return fault.New(fault.Conflict, "it exists in the contract and was not made by this driver, or the storage keeps no tags; it is left alone: choose another name")
	}
	if err == nil { // CreateBucket has set the tags
		return writeAll(e.settings(ctx, name, spec))
	}
	_, err = writeDiffering(append(e.settings(ctx, name, spec), e.tagging(ctx, name, e.marked(spec.Tags), tags)))
	return err
}

// make is the request that makes a bucket. Its error is the SDK's.
func (e *Engine) make(ctx context.Context, name string, spec params.Bucket) error {
	in := &s3.CreateBucketInput{Bucket: &name}
	var with types.CreateBucketConfiguration
	if !e.tagsLater {
		with.Tags = tagSet(e.marked(spec.Tags))
		in.CreateBucketConfiguration = &with
	}
	if e.endpoint.Region != "us-east-1" { // which S3 wants unsaid (API reference, CreateBucket)
		with.LocationConstraint = types.BucketLocationConstraint(e.endpoint.Region)
		in.CreateBucketConfiguration = &with
	}
	if spec.ACL != "" || !spec.Grants.IsZero() {
		in.ObjectOwnership = types.ObjectOwnershipBucketOwnerPreferred // ACLs are off otherwise
	}
	_, err := e.s3.CreateBucket(ctx, in)
	return err
}

// createUnmarked is Create where a bucket is there for a moment without its
// mark. One without any tag and with nothing in it is what a crash at that
// moment leaves: it is marked and finished. One that holds something is not.
func (e *Engine) createUnmarked(ctx context.Context, name string, spec params.Bucket) error {
	tags, err := e.tagsOf(ctx, name)
	switch {
	case fault.Is(err, fault.NotFound):
		if err := classify(e.make(ctx, name, spec), "CreateBucket"); err != nil {
			return err
		}
		return writeAll(append([]option{e.tagging(ctx, name, e.marked(spec.Tags), nil)}, e.settings(ctx, name, spec)...))
	case err != nil:
		return err
	case tags[cosi.OwnerTag] != e.owner:
		fresh := false
		if len(tags) == 0 {
			if fresh, err = e.isEmpty(ctx, name); err != nil {
				return err
			}
		}
		if !fresh {
			return fault.New(fault.Conflict, "it exists in the contract and was not made by this driver; it is left alone: choose another name")
		}
	}
	_, err = writeDiffering(append([]option{e.tagging(ctx, name, e.marked(spec.Tags), tags)}, e.settings(ctx, name, spec)...))
	return err
}

// isEmpty reports whether a bucket holds nothing, no old version either.
func (e *Engine) isEmpty(ctx context.Context, name string) (bool, error) {
	page, err := e.s3.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &name, MaxKeys: aws.Int32(1)})
	if err != nil {
		return false, classify(err, "ListObjectVersions")
	}
	return len(page.Versions)+len(page.DeleteMarkers) == 0, nil
}

// Restore brings a bucket that was made before back to spec, and returns the
// options that had changed and were written. NotFound if there is no bucket any
// more. One without the driver's mark is a Conflict and left as it is.
func (e *Engine) Restore(ctx context.Context, name string, spec params.Bucket) (written []string, err error) {
	tags, err := e.tagsOf(ctx, name)
	if err != nil {
		return nil, err
	}
	if tags[cosi.OwnerTag] != e.owner {
		return nil, fault.New(fault.Conflict, "it has lost the driver's tag %s, or somebody has made it anew; it is left alone: restore the tag, or delete the bucket", cosi.OwnerTag)
	}
	return writeDiffering(append(e.settings(ctx, name, spec), e.tagging(ctx, name, e.marked(spec.Tags), tags)))
}

// Differences names the options in which a bucket is not as spec says. What
// spec does not mention is not looked at.
func (e *Engine) Differences(ctx context.Context, name string, spec params.Bucket) ([]string, error) {
	tags, err := e.tagsOf(ctx, name)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, o := range append(e.settings(ctx, name, spec), e.tagging(ctx, name, spec.Tags, tags)) {
		differs, err := o.wantedAndDiffers()
		if err != nil {
			return nil, err
		}
		if differs {
			out = append(out, o.name)
		}
	}
	return out, nil
}

// Mark returns the mark that a bucket carries: this driver's, another one's or
// "" for none. NotFound if the bucket does not exist.
func (e *Engine) Mark(ctx context.Context, name string) (string, error) {
	tags, err := e.tagsOf(ctx, name)
	return tags[cosi.OwnerTag], err
}

// Ours reports whether a bucket exists and carries the driver's mark; NotFound
// if it does not exist.
func (e *Engine) Ours(ctx context.Context, name string) (bool, error) {
	mark, err := e.Mark(ctx, name)
	return err == nil && mark == e.owner, err
}

func (e *Engine) tagsOf(ctx context.Context, name string) (map[string]string, error) {
	answer, err := e.s3.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: &name})
	if code(err) == "NoSuchTagSet" {
		return nil, nil
	}
	if err != nil {
		return nil, classify(err, "GetBucketTagging")
	}
	tags := make(map[string]string, len(answer.TagSet))
	for _, t := range answer.TagSet {
		tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return tags, nil
}

// Delete deletes a bucket; nil if there is none. FailedPrecondition if it holds
// anything.
func (e *Engine) Delete(ctx context.Context, name string) error {
	_, err := e.s3.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &name})
	err = classify(err, "DeleteBucket")
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// Empty deletes everything that a bucket holds: all versions of its objects,
// delete markers and unfinished uploads. What is locked stays, and is reported
// as FailedPrecondition. A bucket that does not exist is empty.
func (e *Engine) Empty(ctx context.Context, name string) error {
	err := e.emptyVersions(ctx, name)
	if err == nil {
		err = e.abortUploads(ctx, name)
	}
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

func (e *Engine) emptyVersions(ctx context.Context, name string) error {
	pages := s3.NewListObjectVersionsPaginator(e.s3, &s3.ListObjectVersionsInput{Bucket: &name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return classify(err, "ListObjectVersions")
		}
		batch := make([]types.ObjectIdentifier, 0, len(page.Versions)+len(page.DeleteMarkers))
		for _, v := range page.Versions {
			batch = append(batch, types.ObjectIdentifier{Key: v.Key, VersionId: v.VersionId})
		}
		for _, m := range page.DeleteMarkers {
			batch = append(batch, types.ObjectIdentifier{Key: m.Key, VersionId: m.VersionId})
		}
		if len(batch) == 0 {
			continue
		}
		answer, err := e.s3.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &name, Delete: &types.Delete{Objects: batch, Quiet: aws.Bool(true)}})
		if err != nil {
			return classify(err, "DeleteObjects")
		}
		if n := len(answer.Errors); n > 0 {
			return fault.New(fault.FailedPrecondition, "%d of its objects cannot be deleted (%s); an object lock may hold them", n, aws.ToString(answer.Errors[0].Code))
		}
	}
	return nil
}

func (e *Engine) abortUploads(ctx context.Context, name string) error {
	pages := s3.NewListMultipartUploadsPaginator(e.s3, &s3.ListMultipartUploadsInput{Bucket: &name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return classify(err, "ListMultipartUploads")
		}
		for _, u := range page.Uploads {
			_, err := e.s3.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &name, Key: u.Key, UploadId: u.UploadId})
			if err != nil && code(err) != "NoSuchUpload" {
				return classify(err, "AbortMultipartUpload")
			}
		}
	}
	return nil
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

// option is one thing a class can say of a bucket.
type option struct {
	// name is the parameter's, or the first word of several.
	name string
	// wanted reports whether the class says anything.
	wanted bool
	// differs reads the bucket and compares.
	differs func() (bool, error)
	// write brings the bucket to the class.
	write func() error
}

func (o option) wantedAndDiffers() (bool, error) {
	if !o.wanted {
		return false, nil
	}
	return o.differs()
}

// settings are all options but the tags, which are read before anything else.
func (e *Engine) settings(ctx context.Context, name string, spec params.Bucket) []option {
	return []option{e.versioning(ctx, name, spec), e.acl(ctx, name, spec), e.policy(ctx, name, spec)}
}

// writeAll configures a fresh bucket, in which there is nothing to compare.
func writeAll(options []option) error {
	for _, o := range options {
		if !o.wanted {
			continue
		}
		if err := o.write(); err != nil {
			return err
		}
	}
	return nil
}

// writeDiffering writes the options that differ and returns their names.
func writeDiffering(options []option) (written []string, err error) {
	for _, o := range options {
		differs, err := o.wantedAndDiffers()
		if err != nil {
			return written, err
		}
		if !differs {
			continue
		}
		if err := o.write(); err != nil {
			return written, err
		}
		written = append(written, o.name)
	}
	return written, nil
}

// tagging wants some tags on a bucket and leaves its others alone.
func (e *Engine) tagging(ctx context.Context, name string, want, have map[string]string) option {
	all := maps.Clone(have)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, want)
	return option{
		name:    "tags",
		wanted:  len(want) > 0,
		differs: func() (bool, error) { return !maps.Equal(all, have), nil },
		write: func() error {
			_, err := e.s3.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{Bucket: &name, Tagging: &types.Tagging{TagSet: tagSet(all)}})
			return classify(err, "PutBucketTagging")
		},
	}
}

func (e *Engine) versioning(ctx context.Context, name string, spec params.Bucket) option {
	want := types.BucketVersioningStatus(spec.Versioning)
	return option{
		name:   "versioning",
		wanted: want != "",
		differs: func() (bool, error) {
			have, err := e.s3.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &name})
			if err != nil {
				return false, classify(err, "GetBucketVersioning")
			}
			return have.Status != want, nil
		},
		write: func() error {
			_, err := e.s3.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
				Bucket: &name, VersioningConfiguration: &types.VersioningConfiguration{Status: want},
			})
			return classify(err, "PutBucketVersioning")
		},
	}
}
