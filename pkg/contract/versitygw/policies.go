package versitygw

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/lock"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// readers look at so many buckets at once.
const readers = 8

// rewrites is how often an edit that another process has undone is repeated.
const rewrites = 4

// grant lets the slot's principals, and none of its others, do in each bucket
// what the scope says. It returns those others, as far as policies named them.
func (p *Provider) grant(ctx context.Context, req contract.IssueKeyRequest, principals []string) (others []string, err error) {
	for _, b := range req.Scope.Buckets {
		want, err := allow(b, req.Scope, principals)
		if err != nil {
			return nil, err
		}
		err = p.edit(ctx, req.Contract, b.Bucket, true, func(have []policy.Statement) []policy.Statement {
			left, gone := without(have, func(principal string) bool { return isOf(principal, req.Contract, req.Slot) })
			others = append(others, gone...)
			return with(left, want)
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(others, func(o string) bool { return slices.Contains(principals, o) }), nil
}

// allow are the statements for a bucket of a scope. Their Sids are the same for
// all keys that may do the same, which so share their statements: gateways that
// keep policies in extended attributes have little room for them.
func allow(b contract.BucketScope, scope *contract.Scope, principals []string) ([]policy.Statement, error) {
	sid := policy.SidOf(fmt.Sprint(string(b.Mode)+b.Label(), b.Prefix, scope.SourceAddresses))
	dialect := policy.AWS()
	dialect.Unknown = []string{"s3:GetObjectVersionAcl"}
	return dialect.Allow(sid, []contract.BucketScope{b}, scope.SourceAddresses, principals...)
}

// ungrant takes principals out of the policies of buckets, and returns those
// that it has found there. What it writes is not read again: the accounts go
// next, and one that another process writes back is no more than a name, which
// the next edit takes out.
func (p *Provider) ungrant(ctx context.Context, contract string, buckets []string, gone func(string) bool) ([]string, error) {
	found := make([][]string, len(buckets))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, b := range buckets {
		group.Go(func() error {
			err := p.edit(ctx, contract, b, false, func(have []policy.Statement) (left []policy.Statement) {
				left, found[i] = without(have, gone)
				return left
			})
			if fault.Is(err, fault.NotFound) { // deleted meanwhile
				return nil
			}
			return err
		})
	}
	err := group.Wait()
	return slices.Concat(found...), err
}

// bucketsIn are those of a scope.
func bucketsIn(scope *contract.Scope) []string {
	out := make([]string, len(scope.Buckets))
	for i, b := range scope.Buckets {
		out[i] = b.Bucket
	}
	return out
}

// without takes principals out of statements, and the statements that then
// have none. It returns whom it has taken out as well.
func without(statements []policy.Statement, gone func(string) bool) (left []policy.Statement, taken []string) {
	key := policy.AWS().PrincipalKey
	for _, s := range statements {
		var stay []string
		for _, principal := range s.Principal[key] {
			if gone(principal) {
				taken = append(taken, principal)
			} else {
				stay = append(stay, principal)
			}
		}
		if len(stay) > 0 {
			s.Principal = map[string][]string{key: stay}
			left = append(left, s)
		}
	}
	return left, taken
}

// with adds statements, or their principals to those that say the same.
func with(statements, more []policy.Statement) []policy.Statement {
	key := policy.AWS().PrincipalKey
	for _, s := range more {
		i := slices.IndexFunc(statements, func(have policy.Statement) bool { return have.Sid == s.Sid })
		if i < 0 {
			statements = append(statements, s)
			continue
		}
		s.Principal = map[string][]string{key: append(slices.Clone(statements[i].Principal[key]), s.Principal[key]...)}
		statements[i] = s
	}
	return statements
}

// edit replaces the driver's statements in a bucket's policy with what change
// makes of them, and, where verify says so, until they are found there. NotFound if
// there is no bucket, or no account of its contract.
func (p *Provider) edit(ctx context.Context, name, bucket string, verify bool, change func([]policy.Statement) []policy.Statement) error {
	unlock, err := p.editing.Acquire(ctx, lock.Exclusive("policy", named(bucket)))
	if err != nil {
		return err
	}
	defer unlock()
	owner := contractAccount(name, p.owner)
	keeper := policy.AWS().Owner(bucket, owner)
	dead, healing := func(string) bool { return false }, false
	for range rewrites {
		doc, err := p.policyOf(ctx, bucket)
		if err != nil {
			return err
		}
		want, _ := without(change(doc.Statements(ofKeys)), dead)
		if doc.HasExactly(ofKeys, want) {
			return nil
		}
		doc.Remove(policy.Own)
		doc.Set(policy.AWS().Version, want...)
		// A policy that says nothing is deleted, as then the owner needs none.
		method, operation, text := http.MethodDelete, "DeleteBucketPolicy", []byte(nil)
		if !doc.Empty() {
			doc.Set(policy.AWS().Version, keeper)
			method, operation, text = http.MethodPut, "PutBucketPolicy", []byte(doc.String())
		}
		_, err = p.s3(ctx, operation, method, bucket, text)
		switch {
		case err == nil && !verify:
			return nil
		case err == nil:
		case signed.Code(err) == "MalformedPolicy" && !healing:
			// It names an account that is gone: the contract's own, or a key that
			// another process, which had read the policy before, has written back.
			all, listErr := p.accounts(ctx)
			if listErr == nil && !has(all, owner) {
				listErr = noAccount()
			}
			if listErr != nil {
				return listErr
			}
			healing = true
			dead = func(principal string) bool { return !has(all, principal) }
		case len(text) > attributeBytes && signed.Code(err) == "InternalError":
			return fault.Wrap(fault.LimitExceeded, err, "bucket %s: the gateway cannot store its policy of %d bytes; ext4 has room for 4 KiB of attributes: revoke keys, or let the gateway keep its metadata elsewhere", bucket, len(text))
		default:
			return fault.In(err, "bucket %s", bucket)
		}
	}
	return fault.New(fault.Unavailable, "bucket %s: another process keeps changing its policy; retry", bucket)
}

// named is a bucket's name, as a lock has it.
type named string

func (n named) String() string { return string(n) }

// attributeBytes is what fits into an extended attribute on every file system.
const attributeBytes = 3 << 10

// ofKeys tells the Sids of the statements that let keys do something.
func ofKeys(sid string) bool {
	return policy.Own(sid) && sid != policy.AWS().Owner("", "").Sid
}

func (p *Provider) policyOf(ctx context.Context, bucket string) (*policy.Document, error) {
	text, err := p.s3(ctx, "GetBucketPolicy", http.MethodGet, bucket, nil)
	if signed.Code(err) == "NoSuchBucketPolicy" {
		text, err = nil, nil
	}
	if err != nil {
		return nil, fault.In(err, "bucket %s", bucket)
	}
	doc, err := policy.Parse(string(text))
	if err != nil {
		return nil, fault.Wrap(fault.FailedPrecondition, err, "bucket %s has a policy that cannot be read; it is left alone: correct it", bucket)
	}
	return doc, nil
}

// s3 makes a call about a bucket's policy.
func (p *Provider) s3(ctx context.Context, operation, method, bucket string, text []byte) ([]byte, error) {
	return p.client.Do(ctx, signed.Call{Operation: operation, Method: method, API: transport.S3, URL: p.s3URL + "/" + bucket + "?policy=", Body: text})
}
