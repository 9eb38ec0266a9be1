package versitygw

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// editing lets one edit of a bucket's policy wait for another.
type editing struct {
	mu      sync.Mutex
	buckets map[string]*sync.Mutex
}

func (e *editing) lock(bucket string) (unlock func()) {
	e.mu.Lock()
	m, ok := e.buckets[bucket]
	if !ok {
		m = &sync.Mutex{}
		e.buckets[bucket] = m
	}
	e.mu.Unlock()
	m.Lock()
	return m.Unlock
}

// readers look at so many buckets at once.
const readers = 8

// rewrites is how often an edit that another process has undone is made again.
const rewrites = 4

// grant lets the slot's principals, and none of its others, do in each bucket
// what the scope says.
func (p *Provider) grant(ctx context.Context, owner string, req contract.IssueKeyRequest, principals []string) error {
	for _, b := range req.Scope.Buckets {
		want, err := allow(b, req.Scope, principals)
		if err != nil {
			return err
		}
		err = p.edit(ctx, owner, b.Bucket, func(have []policy.Statement) []policy.Statement {
			return with(without(have, ofSlot(req.Contract, req.Slot)), want)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// allow are the statements for a bucket of a scope. Their Sids are the same for
// all keys that may do the same, which so share their statements: gateways that
// keep policies in extended attributes have little room for them.
func allow(b contract.BucketScope, scope *contract.Scope, principals []string) ([]policy.Statement, error) {
	sid := policy.SidOf(fmt.Sprint(b.Mode, b.Prefix, scope.SourceAddresses))
	return policy.AWS().Allow(sid, []contract.BucketScope{b}, scope.SourceAddresses, principals...)
}

// ungrant takes principals out of the policies of all the contract's buckets
// but some.
func (p *Provider) ungrant(ctx context.Context, owner string, gone func(string) bool, but []contract.BucketScope) error {
	buckets, err := p.bucketsOf(ctx, owner)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for _, b := range buckets {
		if slices.ContainsFunc(but, func(s contract.BucketScope) bool { return s.Bucket == b }) {
			continue
		}
		group.Go(func() error {
			err := p.edit(ctx, owner, b, func(have []policy.Statement) []policy.Statement { return without(have, gone) })
			if fault.Is(err, fault.NotFound) { // deleted meanwhile
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

// ofSlot tells the accounts of a slot's keys.
func ofSlot(contract, slot string) func(string) bool {
	return func(principal string) bool { return strings.HasPrefix(principal, keyAccount(contract, slot, "")) }
}

// without takes principals out of statements, and the statements that then
// have none.
func without(statements []policy.Statement, gone func(string) bool) []policy.Statement {
	key := policy.AWS().PrincipalKey
	var out []policy.Statement
	for _, s := range statements {
		if left := slices.DeleteFunc(slices.Clone(s.Principal[key]), gone); len(left) > 0 {
			s.Principal = map[string][]string{key: left}
			out = append(out, s)
		}
	}
	return out
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
// makes of them, until they are found there. NotFound if there is no bucket.
func (p *Provider) edit(ctx context.Context, owner, bucket string, change func([]policy.Statement) []policy.Statement) error {
	defer p.editing.lock(bucket)()
	keeper := policy.AWS().Owner(bucket, owner)
	dead, healing := func(string) bool { return false }, false
	for range rewrites {
		doc, err := p.policyOf(ctx, bucket)
		if err != nil {
			return err
		}
		want := change(without(doc.Statements(ofKeys), dead))
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
		if _, err := p.s3(ctx, operation, method, bucket, text); err != nil {
			if signed.Code(err) == "MalformedPolicy" && !healing {
				// Another process, which had read the policy before, may have written
				// back a key that is gone.
				all, listErr := p.accounts(ctx)
				if listErr != nil {
					return listErr
				}
				healing = true
				dead = func(principal string) bool {
					return !slices.ContainsFunc(all, func(a account) bool { return a.Access == principal })
				}
				continue
			}
			if len(text) > attributeBytes && signed.Code(err) == "InternalError" {
				return fault.Wrap(fault.LimitExceeded, err, "bucket %s: the gateway cannot store its policy of %d bytes; ext4 has room for 4 KiB of attributes: revoke keys, or let the gateway keep its metadata elsewhere", bucket, len(text))
			}
			return fault.In(err, "bucket %s", bucket)
		}
	}
	return fault.New(fault.Unavailable, "bucket %s: its policy is changed by somebody else all the time; repeat the call", bucket)
}

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
