package bucket

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// Examination is what a look at a bucket has found.
type Examination struct {
	// Mark is the mark that the bucket carries, "" for none.
	Mark string
	// Differing are the options in which it is not as its spec says, and
	// "public-acl" or "public-policy" where spec is silent and the bucket is public
	// by an ACL or a policy.
	Differing []string
	// Written are those of them that were brought back.
	Written []string
}

// Examine compares a bucket that was made before with spec, with one read for
// each option, and if repair is true writes what differs. A bucket without the
// driver's mark is never written to. An option that cannot be read keeps none of
// the others from being looked at; the error tells of all. NotFound if the
// bucket no longer exists.
func (e *Engine) Examine(ctx context.Context, name string, spec params.Bucket, repair bool) (Examination, error) {
	tags, err := e.tagsOf(ctx, name)
	if err != nil {
		return Examination{}, err
	}
	x := Examination{Mark: tags[cosi.OwnerTag]}
	want := spec.Tags
	if x.Mark == e.owner {
		want = e.marked(spec.Tags)
	}
	options := append(e.settings(name, spec), e.tagging(name, want, nil, tags), e.notPublicACL(name, spec), e.notPublicPolicy(name, spec))
	var faults []error
	for _, o := range options {
		differs, err := o.differs(ctx)
		if err == nil && differs {
			x.Differing = append(x.Differing, o.name)
			if repair && x.Mark == e.owner {
				if err = e.write(ctx, o); err == nil {
					x.Written = append(x.Written, o.name)
				}
			}
		}
		if err != nil {
			faults = append(faults, err)
		}
		if ctx.Err() != nil || KeyRefused(err) { // the rest would fail alike
			break
		}
	}
	if len(faults) > 1 {
		return x, fault.Wrap(fault.KindOf(faults[0]), errors.Join(faults...), "%s, and %d other options", faults[0], len(faults)-1)
	}
	return x, errors.Join(faults...)
}

// State is what a bucket has now.
type State struct {
	// Tags are those of the bucket but for the driver's mark.
	Tags map[string]string
	// Has are its other options by name, in the form of [params.Bucket] where that has
	// one. An ACL is its grants to others. What was never set, and what the service
	// does not have, is left out, and what is not wanted and may not be read.
	Has map[string]string
	// PublicBy are "acl" and "policy", where they open it to the public.
	PublicBy []string
	// Differing are the options in which it is not as it should be.
	Differing []string
}

// State reads what a bucket has, with one read for each option, and compares it with
// spec. It writes nothing.
func (e *Engine) State(ctx context.Context, name string, spec params.Bucket) (State, error) {
	tags, err := e.tagsOf(ctx, name)
	if err != nil {
		return State{}, err
	}
	if tags[cosi.OwnerTag] != e.owner {
		return State{}, lostMark()
	}
	out := State{Tags: tags, Has: map[string]string{}}
	for _, o := range append(e.settings(name, spec), e.tagging(name, e.marked(spec.Tags), nil, maps.Clone(tags))) {
		have, err := o.read(ctx)
		if fault.Is(err, fault.Unsupported) || o.want == "" && fault.Is(err, fault.PermissionDenied) {
			continue
		}
		if err != nil {
			return State{}, err
		}
		if o.want != "" && o.want != have {
			out.Differing = append(out.Differing, o.name)
		}
		if o.name == "tags" || have == o.none || have == blank {
			continue
		}
		out.Has[o.name] = have
		if isPublicBy[o.name] != nil && isPublicBy[o.name](have) {
			out.PublicBy = append(out.PublicBy, o.name)
			if o.want == "" {
				out.Differing = append(out.Differing, "public-"+o.name)
			}
		}
	}
	delete(out.Tags, cosi.OwnerTag)
	return out, nil
}

// isPublicBy are the options that can open a bucket to the public.
var isPublicBy = map[string]func(have string) bool{
	"acl": func(have string) bool {
		return slices.ContainsFunc(strings.Split(strings.Trim(have, "[]"), ", "), func(grant string) bool {
			_, who, _ := strings.Cut(grant, " ")
			return policy.PublicGrantee(who)
		})
	},
	"policy": func(have string) bool { public, _ := policy.Public(have); return public },
}

// Listed is a bucket of the contract.
type Listed struct {
	Name string
	// CreatedAt is zero if the service does not tell.
	CreatedAt time.Time
}

// List yields the contract's buckets, also those that the driver did not create, page by page. It ends
// with an error, if there is one.
func (e *Engine) List(ctx context.Context) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		ended := errors.New("the caller has seen enough")
		err := transport.Pages(transport.Listing(ctx), func(ctx context.Context, token string) (string, bool, error) {
			page, err := e.s3.ListBuckets(ctx, &s3.ListBucketsInput{ContinuationToken: optional(token)})
			if err != nil {
				return "", false, classify(err, "ListBuckets")
			}
			for _, b := range page.Buckets {
				if !yield(Listed{aws.ToString(b.Name), aws.ToTime(b.CreationDate)}, nil) {
					return "", false, ended
				}
			}
			return aws.ToString(page.ContinuationToken), aws.ToString(page.ContinuationToken) != "", nil
		})
		if err != nil && !errors.Is(err, ended) {
			yield(Listed{}, err)
		}
	}
}

// optional is a part of a page's token; the first has none.
func optional(token string) *string {
	if token == "" {
		return nil
	}
	return &token
}

// What notPublicACL and notPublicPolicy read, and want.
const (
	notPublic = "not public"
	isPublic  = "public"
)

// notPublicACL wants a bucket whose class says nothing of an ACL not to be public
// by one.
func (e *Engine) notPublicACL(name string, spec params.Bucket) option {
	o := option{
		name: "public-acl",
		read: func(ctx context.Context) (string, error) {
			have, err := e.s3.GetBucketAcl(ctx, &s3.GetBucketAclInput{Bucket: &name})
			if err = classify(err, "GetBucketAcl"); fault.Is(err, fault.Unsupported) {
				return notPublic, nil // a service without ACLs
			}
			if err != nil {
				return "", err
			}
			if slices.ContainsFunc(have.Grants, func(g types.Grant) bool { return g.Grantee != nil && policy.PublicGrantee(granteeOf(g.Grantee)) }) {
				return isPublic, nil
			}
			return notPublic, nil
		},
		write: e.acl(name, spec).remove,
	}
	if spec.ACL == "" && spec.Grants.None() {
		o.want = notPublic
	}
	return o
}

// notPublicPolicy wants a bucket whose class says nothing of a policy not to be
// public by one. It takes out the statements that make it so, and leaves the
// others as they are.
func (e *Engine) notPublicPolicy(name string, spec params.Bucket) option {
	var rest string
	o := option{
		name: "public-policy",
		read: func(ctx context.Context) (string, error) {
			have, err := e.s3.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: &name})
			if found, err := has(err, "GetBucketPolicy"); fault.Is(err, fault.Unsupported) || err == nil && !found {
				return notPublic, nil
			} else if err != nil {
				return "", err
			}
			var public bool
			if rest, public, err = policy.WithoutPublic(aws.ToString(have.Policy)); err != nil {
				return "", fault.Wrap(fault.FailedPrecondition, err, "the service has a policy of the bucket that cannot be read (%s); correct it there", err)
			}
			if public {
				return isPublic, nil
			}
			return notPublic, nil
		},
		write: func(ctx context.Context) error {
			if rest == "" {
				_, err := e.s3.DeleteBucketPolicy(ctx, &s3.DeleteBucketPolicyInput{Bucket: &name})
				return removed(err, "DeleteBucketPolicy")
			}
			if doc, err := policy.Parse(rest); e.needsPolicy && err == nil {
				doc.Set("", policy.AWS().Owner(name, e.accessKeyID))
				rest = doc.String()
			}
			_, err := e.s3.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: &name, Policy: &rest})
			return classify(err, "PutBucketPolicy")
		},
	}
	if spec.Policy == "" {
		o.want = notPublic
	}
	return o
}
