package bucket

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// Examination is what a look at a bucket has found.
type Examination struct {
	// Mark is the mark that the bucket carries, "" for none.
	Mark string
	// Differing are the options in which it is not as its spec says, and
	// "public-acl" or "public-policy" where spec is silent and the bucket is
	// open to everybody.
	Differing []string
	// Written are those of them that were brought back.
	Written []string
}

// Examine compares a bucket that was made before with spec, with one read for
// each option, and if repair is true writes what differs. A bucket without the
// driver's mark is never written to. An option that cannot be read keeps none of
// the others from being looked at; the error tells of all. NotFound if there is
// no bucket any more.
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
	options := append(e.settings(name, spec), e.tagging(name, want, nil, tags), e.closedACL(name, spec), e.closedPolicy(name, spec))
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

// Listed is a bucket of the contract.
type Listed struct {
	Name string
	// CreatedAt is zero if the service does not tell.
	CreatedAt time.Time
}

// List yields the contract's buckets, whoever made them, page by page. It ends
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

// What closedACL and closedPolicy read, and want.
const (
	isClosed = "closed"
	isOpen   = "open"
)

// closedACL wants a bucket whose class says nothing of an ACL to be open to
// nobody by ACL.
func (e *Engine) closedACL(name string, spec params.Bucket) option {
	o := option{
		name: "public-acl",
		read: func(ctx context.Context) (string, error) {
			have, err := e.s3.GetBucketAcl(ctx, &s3.GetBucketAclInput{Bucket: &name})
			if err = classify(err, "GetBucketAcl"); fault.Is(err, fault.Unsupported) {
				return isClosed, nil // a service without ACLs
			}
			if err != nil {
				return "", err
			}
			if slices.ContainsFunc(have.Grants, func(g types.Grant) bool {
				return g.Grantee != nil && slices.Contains([]string{"uri=" + allUsers, "uri=" + authenticatedUsers}, granteeOf(g.Grantee))
			}) {
				return isOpen, nil
			}
			return isClosed, nil
		},
		write: e.acl(name, spec).remove,
	}
	if spec.ACL == "" && spec.Grants.Nobody() {
		o.want = isClosed
	}
	return o
}

// closedPolicy wants a bucket whose class says nothing of a policy to have none
// that lets everybody in. It takes out the statements that do, and leaves the
// others as they are.
func (e *Engine) closedPolicy(name string, spec params.Bucket) option {
	var rest string
	o := option{
		name: "public-policy",
		read: func(ctx context.Context) (string, error) {
			have, err := e.s3.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: &name})
			if found, err := has(err, "GetBucketPolicy"); fault.Is(err, fault.Unsupported) || err == nil && !found {
				return isClosed, nil
			} else if err != nil {
				return "", err
			}
			var open bool
			if rest, open = withoutOpen(aws.ToString(have.Policy)); open {
				return isOpen, nil
			}
			return isClosed, nil
		},
		write: func(ctx context.Context) error {
			if rest == "" {
				_, err := e.s3.DeleteBucketPolicy(ctx, &s3.DeleteBucketPolicyInput{Bucket: &name})
				return removed(err, "DeleteBucketPolicy")
			}
			_, err := e.s3.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: &name, Policy: &rest})
			return classify(err, "PutBucketPolicy")
		},
	}
	if spec.Policy == "" {
		o.want = isClosed
	}
	return o
}

// withoutOpen returns a policy without the statements that let everybody in, ""
// if no other is left, and whether there was one. A statement with a condition
// does not let everybody in.
func withoutOpen(policy string) (rest string, open bool) {
	var doc map[string]json.RawMessage
	if json.Unmarshal([]byte(policy), &doc) != nil {
		return policy, false
	}
	var statements []json.RawMessage
	if json.Unmarshal(doc["Statement"], &statements) != nil {
		statements = []json.RawMessage{doc["Statement"]} // a single one needs no list
	}
	kept := slices.DeleteFunc(slices.Clone(statements), letsEverybodyIn)
	if len(kept) == len(statements) {
		return policy, false
	}
	if len(kept) == 0 {
		return "", true
	}
	doc["Statement"], _ = json.Marshal(kept)
	text, _ := json.Marshal(doc)
	return string(text), true
}

func letsEverybodyIn(text json.RawMessage) bool {
	var s struct {
		Effect                             string
		Principal, NotPrincipal, Condition any
	}
	if json.Unmarshal(text, &s) != nil || s.Effect != "Allow" || s.Condition != nil {
		return false
	}
	return s.NotPrincipal != nil || everybody(s.Principal)
}

// everybody reports whether a policy's principal is "*" in one of its spellings.
func everybody(principal any) bool {
	switch p := principal.(type) {
	case string:
		return p == "*"
	case []any:
		return slices.ContainsFunc(p, everybody)
	case map[string]any:
		for _, who := range p {
			if everybody(who) {
				return true
			}
		}
	}
	return false
}
