// Package bucket is everything the driver does over S3.
//
// An [Engine] acts for one contract, with the contract's own key. What a bucket
// should look like is given as a whole ([params.Bucket]); the engine reads what
// is there, compares, and writes the difference, so the same code makes a
// bucket, finishes one that a crash left half-made, and leaves a finished one
// alone. A feature that the service does not have is an error that names it.
package bucket

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	"golang.org/x/time/rate"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
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
	// Placements: a bucket's place can be named with its region, as Ceph has it
	// ("region:placement").
	Placements bool
	// Contract is whose buckets they are, and Bounder reads and sets what each may
	// hold; nil where the service has no such bounds.
	Contract string
	Bounder  contract.Bounder
	// HTTP carries the calls; engines of one backend share it and its connections.
	HTTP *http.Client
	// Observe is told of every call that was tried, with the outcome.
	Observe func(operation string, err error)
	// Features remembers what the service has; engines of one backend share it.
	Features *Features
	// Deletions paces the emptying of buckets, in objects per second; nil does
	// not. Engines of one backend share it. Its burst is at least half of its limit.
	Deletions *rate.Limiter
}

// Engine makes, configures and deletes the buckets of one contract.
type Engine struct {
	s3          *s3.Client
	owner       string
	needsPolicy bool
	tagsLater   bool
	endpoint    cosi.Endpoint
	accessKeyID string
	features    *Features
	placements  bool
	deletions   *rate.Limiter
	contract    string
	bounder     contract.Bounder
}

// The SDK repeats what failed in transit; the RPC's own deadline bounds it all.
const (
	attempts   = 3
	maxBackoff = 2 * time.Second
)

// New returns an Engine; no call is made.
func New(c Config) *Engine {
	if c.Features == nil {
		c.Features = &Features{}
	}
	if c.Deletions == nil {
		c.Deletions = rate.NewLimiter(rate.Inf, 0)
	}
	return &Engine{
		owner:       c.Owner,
		needsPolicy: c.OwnerNeedsPolicy,
		tagsLater:   c.TagsLater,
		endpoint:    c.Endpoint,
		accessKeyID: c.Key.AccessKeyID,
		features:    c.Features,
		placements:  c.Placements,
		deletions:   c.Deletions,
		contract:    c.Contract,
		bounder:     c.Bounder,
		s3: signed.S3(c.Endpoint, c.Key, transport.Speaking(transport.S3, c.HTTP), func(o *s3.Options) {
			o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
				o.MaxAttempts, o.MaxBackoff = attempts, maxBackoff
				o.RateLimiter = ratelimit.None // a client-side budget would turn an outage into a longer one
			})
			o.APIOptions = append(o.APIOptions, observeAttempts(c.Observe))
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
// and configures it to spec. What the service is known not to have is Unsupported
// before anything is made. A bucket that exists with the mark, left by an
// attempt that did not finish, is configured too; one without it is a Conflict
// and is left as it is. The mark is looked at also when the service says that the
// bucket was made: some say so to the owner of one that was there before. Which do is
// found out with the first bucket.
// Mismatch if it exists in another region. Pending if the service has taken a
// setting that it does not show yet: a repeat carries on.
func (e *Engine) Create(ctx context.Context, name string, spec params.Bucket) error {
	settings := e.settings(name, spec)
	if err := e.probe(ctx, spec, settings); err != nil {
		return err
	}
	if e.tagsLater {
		return e.createUnmarked(ctx, name, spec)
	}
	in := e.createInput(name, spec)
	_, err := e.s3.CreateBucket(ctx, in)
	var owned *types.BucketAlreadyOwnedByYou
	if err != nil && !errors.As(err, &owned) {
		return classify(err, "CreateBucket")
	}
	if proves, _ := e.features.has(e.endpoint.URL, e.proof()); proves && err == nil {
		return e.writeAll(ctx, settings)
	}
	tags, tagErr := e.tagsOf(ctx, name)
	if tagErr != nil {
		return tagErr
	}
	if tags[cosi.OwnerTag] != e.owner {
		return fault.New(fault.Conflict, "it exists in the contract and was not made by this driver, or the storage keeps no tags; it is left alone: choose another name")
	}
	if err == nil { // CreateBucket has set the tags
		if _, known := e.features.has(e.endpoint.URL, e.proof()); !known {
			_, err := e.s3.CreateBucket(ctx, in) // which changes nothing of a bucket that is as new
			e.features.learn(e.endpoint.URL, e.proof(), errors.As(err, &owned))
		}
		return e.writeAll(ctx, settings)
	}
	if err := e.sameRegion(ctx, name); err != nil {
		return err
	}
	_, err = e.writeDiffering(ctx, append(settings, e.tagging(name, e.marked(spec.Tags), nil, tags)))
	return err
}

// proof is the feature of an endpoint whose answer to CreateBucket proves that the bucket
// is new and has its mark: it keeps the tags, and refuses to create a bucket that exists
// for its owner, too. S3 does so in all regions but us-east-1 (API reference, CreateBucket).
func (e *Engine) proof() string { return "a proof that a bucket is new, in " + e.endpoint.Region }

// createInput is the request that makes a bucket.
func (e *Engine) createInput(name string, spec params.Bucket) *s3.CreateBucketInput {
	in := &s3.CreateBucketInput{Bucket: &name, ObjectOwnership: types.ObjectOwnership(ownership(spec))}
	var with types.CreateBucketConfiguration
	if !e.tagsLater {
		with.Tags = tagSet(e.marked(spec.Tags))
		in.CreateBucketConfiguration = &with
	}
	if e.endpoint.Region != "us-east-1" { // which S3 wants unsaid (API reference, CreateBucket)
		with.LocationConstraint = types.BucketLocationConstraint(e.endpoint.Region)
		in.CreateBucketConfiguration = &with
	}
	if spec.Placement != "" {
		with.LocationConstraint += types.BucketLocationConstraint(":" + spec.Placement)
		in.CreateBucketConfiguration = &with
	}
	if spec.ObjectLock != "" {
		in.ObjectLockEnabledForBucket = aws.Bool(true)
	}
	return in
}

// createUnmarked is Create where a bucket is there for a moment without its
// mark. One without any tag and with nothing in it is what a crash at that
// moment leaves: it is marked and finished. One that holds something is not.
func (e *Engine) createUnmarked(ctx context.Context, name string, spec params.Bucket) error {
	tags, err := e.tagsOf(ctx, name)
	switch {
	case fault.Is(err, fault.NotFound):
		if _, err := e.s3.CreateBucket(ctx, e.createInput(name, spec)); err != nil {
			return classify(err, "CreateBucket")
		}
		return e.writeAll(ctx, append([]option{e.tagging(name, e.marked(spec.Tags), nil, nil)}, e.settings(name, spec)...))
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
	if err := e.sameRegion(ctx, name); err != nil {
		return err
	}
	_, err = e.writeDiffering(ctx, append([]option{e.tagging(name, e.marked(spec.Tags), nil, tags)}, e.settings(name, spec)...))
	return err
}

// sameRegion refuses a bucket that was made before in another region than the
// engine's. A service that does not tell has one region; and for us-east-1, which
// requests leave unsaid, Ceph tells the name that its own zonegroup has.
func (e *Engine) sameRegion(ctx context.Context, name string) error {
	if e.placements && e.endpoint.Region == "us-east-1" {
		return nil
	}
	answer, err := e.s3.GetBucketLocation(ctx, &s3.GetBucketLocationInput{Bucket: &name})
	if err = classify(err, "GetBucketLocation"); fault.Is(err, fault.Unsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	have, _, _ := strings.Cut(string(answer.LocationConstraint), ":") // Ceph adds the placement
	if have = cmp.Or(have, "us-east-1"); have != e.endpoint.Region {
		return fault.New(fault.Mismatch, "it exists in region %s, and its class asks for region %s; use a BucketClass with the first, or delete the bucket", have, e.endpoint.Region)
	}
	return nil
}

// isEmpty reports whether a bucket holds nothing, no old version either.
func (e *Engine) isEmpty(ctx context.Context, name string) (bool, error) {
	page, err := e.s3.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &name, MaxKeys: aws.Int32(1)})
	if err != nil {
		return false, classify(err, "ListObjectVersions")
	}
	return len(page.Versions)+len(page.DeleteMarkers) == 0, nil
}

// Restore brings a bucket that was made before back to spec, and takes away
// what before asked for and spec does not. It returns the options that were not
// as they should be and were written. NotFound if the bucket no longer exists.
// One without the driver's mark is a Conflict and left as it is.
func (e *Engine) Restore(ctx context.Context, name string, spec, before params.Bucket) (written []string, err error) {
	tags, err := e.tagsOf(ctx, name)
	if err != nil {
		return nil, err
	}
	if tags[cosi.OwnerTag] != e.owner {
		return nil, lostMark()
	}
	settings := e.settings(name, spec)
	for i, had := range e.settings(name, before) {
		if had.want == "" || settings[i].want != "" {
			continue
		}
		have, err := had.read(ctx)
		if fault.Is(err, fault.Unsupported) || err == nil && (have == had.none || have == blank) { // to remove a lock or versions from a bucket without would give it some
			continue
		}
		if err == nil {
			err = had.remove(ctx)
		}
		if err != nil {
			return written, err
		}
		written = append(written, had.name)
	}
	more, err := e.writeDiffering(ctx, append(settings, e.tagging(name, e.marked(spec.Tags), before.Tags, tags)))
	return append(written, more...), err
}

func lostMark() error {
	return fault.New(fault.Conflict, "it has lost the driver's tag %s, or was re-created by someone else; it is left alone: restore the tag, or delete the bucket", cosi.OwnerTag)
}

// Differences names the options in which a bucket is not as spec says. What
// spec does not mention is not looked at.
func (e *Engine) Differences(ctx context.Context, name string, spec params.Bucket) ([]string, error) {
	tags, err := e.tagsOf(ctx, name)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, o := range append(e.settings(name, spec), e.tagging(name, spec.Tags, nil, tags)) {
		differs, err := o.differs(ctx)
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
