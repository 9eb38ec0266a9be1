package backends

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/rgw"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// tenant is a signed contract with its own key.
type tenant struct {
	*testing.T
	provider *rgw.Provider
	line     *harness.Line
	name     string
	own      *s3.Client
	engine   *bucket.Engine
}

const owner = "test cluster [1]"

func sign(t *testing.T, region string) *tenant {
	t.Helper()
	p, line := openIn(t, administrator(), region)
	e := &tenant{T: t, provider: p, line: line, name: label("t")}
	_, err := p.EnsureContract(t.Context(), contract.Spec{Name: e.name, Owner: owner})
	e.must(err)
	t.Cleanup(func() {
		if err := p.DeleteContract(context.WithoutCancel(t.Context()), e.name); err != nil {
			t.Errorf("contract %s is left behind: %v", e.name, err)
		}
	})
	pair, err := p.IssueKey(t.Context(), contract.IssueKeyRequest{Contract: e.name, Slot: cosi.ContractSlot, Proposed: propose()})
	e.must(err)
	e.own = s3Of(pair)
	e.engine = bucket.New(bucket.Config{
		Endpoint: cosi.Endpoint{Region: region, URL: ceph.URL, PathStyle: true}, Key: pair, Owner: owner, TagsLater: true, Placements: true,
		HTTP: transport.Bounded(http.DefaultTransport), Observe: func(string, error) {},
	})
	return e
}

// s3Of is an application's client. It repeats, because the SDK may close the
// connection on an answer that comes before it has looked for its request's end.
func s3Of(pair secret.KeyPair) *s3.Client {
	once := harness.S3(ceph.URL, "us-east-1", pair.AccessKeyID, pair.SecretAccessKey.Reveal()).Options()
	once.RetryMaxAttempts = 3
	return s3.New(once)
}

func (e *tenant) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// bucket makes a bucket that goes with the test.
func (e *tenant) bucket() string {
	e.Helper()
	name := label("b")
	e.cleanBucket(name)
	e.must(e.engine.Create(e.Context(), name, params.Bucket{Contract: e.name}))
	return name
}

func (e *tenant) cleanBucket(name string) {
	e.Cleanup(func() {
		ctx := context.WithoutCancel(e.Context())
		_, err := e.engine.Empty(ctx, name, params.Bucket{})
		if err := errors.Join(err, e.engine.Delete(ctx, name)); err != nil {
			e.Errorf("bucket %s: %v", name, err)
		}
	})
}

func (e *tenant) issue(slot string, scope contract.Scope) *s3.Client {
	e.Helper()
	pair, err := e.provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: e.name, Slot: slot, Scope: &scope, Proposed: propose()})
	e.must(err)
	return s3Of(pair)
}

func scopeOf(mode cosi.AccessMode, bucket, prefix string) contract.Scope {
	return contract.Scope{Buckets: []contract.BucketScope{{Bucket: bucket, Prefix: prefix, Mode: mode}}}
}

func put(e *tenant, c *s3.Client, bucket, key string) error {
	_, err := c.PutObject(e.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader("x")})
	return err
}

func get(e *tenant, c *s3.Client, bucket, key string) error {
	out, err := c.GetObject(e.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err == nil {
		err = out.Body.Close()
	}
	return err
}

func (e *tenant) allowed(what string, err error) {
	e.Helper()
	if err != nil {
		e.Errorf("%s: %v", what, err)
	}
}

func (e *tenant) refused(what string, err error) {
	e.Helper()
	if !isRefused(err) {
		e.Errorf("%s: got %v, want a refusal", what, err)
	}
}

func (e *tenant) kind(what string, err error, want fault.Kind) {
	e.Helper()
	if !fault.Is(err, want) {
		e.Errorf("%s: got %s (%v), want %s", what, fault.KindOf(err), err, want)
	}
}

// An object's ACL gives the user who wrote it every right. None of them may
// outlast or go beyond what the key is for.
func TestRGWOwnObjects(t *testing.T) {
	t.Parallel()
	e := sign(t, "us-east-1")
	b := e.bucket()
	slot := label("s")
	c := e.issue(slot, scopeOf(cosi.WriteOnly, b, ""))
	e.allowed("put", put(e, c, b, "o"))
	e.refused("get of its own object with a key that writes", get(e, c, b, "o"))
	_, err := c.GetObjectAcl(e.Context(), &s3.GetObjectAclInput{Bucket: &b, Key: aws.String("o")})
	e.refused("the ACL of its own object", err)

	c = e.issue(slot, scopeOf(cosi.ReadWrite, b, ""))
	e.allowed("get with a key that reads too", get(e, c, b, "o"))
	_, err = c.PutObjectAcl(e.Context(), &s3.PutObjectAclInput{Bucket: &b, Key: aws.String("o"), ACL: types.ObjectCannedACLPublicRead})
	e.refused("a public ACL for its own object", err)

	c = e.issue(slot, scopeOf(cosi.ReadOnly, b, ""))
	e.allowed("get with a key that reads", get(e, c, b, "o"))
	_, err = c.PutObjectTagging(e.Context(), &s3.PutObjectTaggingInput{Bucket: &b, Key: aws.String("o"), Tagging: &types.Tagging{TagSet: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}}})
	e.refused("tags for its own object with a key that reads", err)

	c = e.issue(slot, scopeOf(cosi.ReadWrite, b, "in/"))
	e.refused("get of its own object outside of the prefix", get(e, c, b, "o"))
	other := e.bucket()
	c = e.issue(slot, scopeOf(cosi.ReadWrite, other, ""))
	e.refused("get of its own object in a bucket it had before", get(e, c, b, "o"))

	elsewhere := scopeOf(cosi.ReadWrite, b, "")
	elsewhere.SourceAddresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	c = e.issue(slot, elsewhere)
	e.refused("get of its own object from another address", get(e, c, b, "o"))
	elsewhere.SourceAddresses = append(elsewhere.SourceAddresses, netip.MustParsePrefix("127.0.0.1/32"))
	c = e.issue(slot, elsewhere)
	e.allowed("get from one of three blocks", get(e, c, b, "o"))
}

// Several objects in one request, of which some are out of the key's reach.
func TestRGWDeleteMany(t *testing.T) {
	t.Parallel()
	e := sign(t, "us-east-1")
	b := e.bucket()
	for _, key := range []string{"in/1", "in/2", "out"} {
		e.must(put(e, e.own, b, key))
	}
	many := func(c *s3.Client) (*s3.DeleteObjectsOutput, error) {
		return c.DeleteObjects(e.Context(), &s3.DeleteObjectsInput{Bucket: &b, Delete: &types.Delete{Objects: []types.ObjectIdentifier{
			{Key: aws.String("in/1")}, {Key: aws.String("in/2")}, {Key: aws.String("out")},
		}}})
	}
	_, err := many(e.issue(label("s"), scopeOf(cosi.ReadOnly, b, "")))
	e.refused("with a key that reads", err)
	for _, mode := range []cosi.AccessMode{cosi.WriteOnly, cosi.ReadWrite} {
		out, err := many(e.issue(label("s"), scopeOf(mode, b, "in/")))
		e.must(err)
		if len(out.Deleted) != 2 || len(out.Errors) != 1 || aws.ToString(out.Errors[0].Key) != "out" {
			e.Errorf("%s: %d deleted and %d refused, want 2 and the one outside of the prefix", mode, len(out.Deleted), len(out.Errors))
		}
	}
	e.allowed("the object outside", get(e, e.own, b, "out"))
}

func TestRGWVersions(t *testing.T) {
	t.Parallel()
	e := sign(t, "us-east-1")
	b := label("b")
	e.cleanBucket(b)
	e.must(e.engine.Create(e.Context(), b, params.Bucket{Contract: e.name, Versioning: "Enabled"}))
	first, err := e.own.PutObject(e.Context(), &s3.PutObjectInput{Bucket: &b, Key: aws.String("o"), Body: strings.NewReader("x")})
	e.must(err)
	e.must(put(e, e.own, b, "o"))
	old := func(c *s3.Client) error {
		out, err := c.GetObject(e.Context(), &s3.GetObjectInput{Bucket: &b, Key: aws.String("o"), VersionId: first.VersionId})
		if err == nil {
			err = out.Body.Close()
		}
		return err
	}
	destroy := func(c *s3.Client) error {
		_, err := c.DeleteObject(e.Context(), &s3.DeleteObjectInput{Bucket: &b, Key: aws.String("o"), VersionId: first.VersionId})
		return err
	}
	reader, writer, both := e.issue(label("s"), scopeOf(cosi.ReadOnly, b, "")), e.issue(label("s"), scopeOf(cosi.WriteOnly, b, "")), e.issue(label("s"), scopeOf(cosi.ReadWrite, b, ""))
	e.allowed("an old version", old(reader))
	e.refused("an old version with a key that writes", old(writer))
	e.refused("its end with a key that reads", destroy(reader))
	e.refused("its end with a key that writes", destroy(writer))
	e.allowed("its end with a key that does both", destroy(both))
}

func TestRGWPrefixes(t *testing.T) {
	t.Parallel()
	e := sign(t, "us-east-1")
	b := e.bucket()
	for prefix, ok := range map[string]bool{
		"a b/": true, "a+b/": true, "50%/": true, "%41/": true, `q"\/`: true, "ä/": true, "(x),'{y}/": true,
		"a:b/": false, "a*": false, "a?": false, "${aws:username}/": false,
	} {
		scope := scopeOf(cosi.ReadWrite, b, prefix)
		pair, err := e.provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: e.name, Slot: label("s"), Scope: &scope, Proposed: propose()})
		if !ok {
			e.kind(prefix, err, fault.FailedPrecondition)
			continue
		}
		e.must(err)
		c := s3Of(pair)
		e.allowed("put below "+prefix, put(e, c, b, prefix+"o"))
		_, err = c.ListObjectsV2(e.Context(), &s3.ListObjectsV2Input{Bucket: &b, Prefix: &prefix})
		e.allowed("list of "+prefix, err)
		e.refused("put beside "+prefix, put(e, c, b, "A/o"))
	}
}

// A suspension of the contract keeps its applications out, and takes none of
// their limits away.
func TestRGWSuspend(t *testing.T) {
	t.Parallel()
	e := sign(t, "us-east-1")
	b, neighbour := e.bucket(), e.bucket()
	slot := label("s")
	c := e.issue(slot, scopeOf(cosi.ReadWrite, b, ""))
	e.must(put(e, c, b, "o"))
	active := func() bool {
		keys, err := e.provider.ListKeys(e.Context(), e.name, slot)
		e.must(err)
		return len(keys) == 1 && keys[0].Active
	}
	suspend := func(s bool) {
		_, err := e.provider.EnsureContract(e.Context(), contract.Spec{Name: e.name, Owner: owner, Suspend: s})
		e.must(err)
	}
	suspend(true)
	e.refused("get while suspended", get(e, c, b, "o"))
	_, err := c.ListObjectsV2(e.Context(), &s3.ListObjectsV2Input{Bucket: &b}) // which the owner's suspension does not stop
	e.refused("list while suspended", err)
	if active() {
		e.Error("a key of a suspended contract is active")
	}
	suspend(false)
	e.allowed("get when resumed", get(e, c, b, "o"))
	e.refused("put into the neighbour", put(e, c, neighbour, "o"))
	if !active() {
		e.Error("a key of a resumed contract is not active")
	}
}

// The gateway's operator changes a user, and the gateway drops its policies.
func TestRGWLostPolicy(t *testing.T) {
	t.Parallel()
	e := sign(t, "us-east-1")
	b := e.bucket()
	slot := label("s")
	c := e.issue(slot, scopeOf(cosi.ReadWrite, b, ""))
	e.must(put(e, c, b, "o"))
	change := func(slot string) {
		_, err := ceph.Admin(e.Context(), "user", "modify", "--uid", tenantOf(e.name)+"$"+slot, "--email", label("e")+"@example.com")
		e.must(err)
	}
	change(slot)
	change(cosi.ContractSlot)
	works := put(e, c, b, "o") == nil // at a release that keeps the policies
	keys, err := e.provider.ListKeys(e.Context(), e.name, slot)
	e.must(err)
	if listed := len(keys) == 1; listed != works {
		e.Errorf("a key works: %v, and is listed: %v", works, listed)
	}
	if works {
		return
	}
	e.allowed("put with the key that takes its place", put(e, e.issue(slot, scopeOf(cosi.ReadWrite, b, "")), b, "o"))
	e.refused("the contract's own key without its policy", get(e, e.own, b, "o"))
	_, err = e.provider.EnsureContract(e.Context(), contract.Spec{Name: e.name, Owner: owner})
	e.must(err)
	e.allowed("the contract's own key", get(e, e.own, b, "o"))
}

// Users of the same names that someone else made are left alone.
func TestRGWForeignUsers(t *testing.T) {
	t.Parallel()
	e := sign(t, "us-east-1")
	b := e.bucket()
	name, slot := label("t"), label("s")
	foreign := func(contract, slot string) {
		uid := tenantOf(contract) + "$" + slot
		_, err := ceph.Admin(e.Context(), "user", "create", "--uid", uid, "--display-name", "somebody", "--access-key", label("ak"), "--secret-key", "s")
		e.must(err)
		e.Cleanup(func() { _, _ = ceph.Admin(context.WithoutCancel(e.Context()), "user", "rm", "--uid", uid) })
	}
	foreign(name, cosi.ContractSlot)
	_, err := e.provider.EnsureContract(e.Context(), contract.Spec{Name: name, Owner: owner})
	e.kind("a contract's user that somebody else made", err, fault.Conflict)
	foreign(e.name, slot)
	scope := scopeOf(cosi.ReadWrite, b, "")
	_, err = e.provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: e.name, Slot: slot, Scope: &scope, Proposed: propose()})
	e.kind("an access's user that somebody else made", err, fault.Conflict)
	taken := propose()
	_, err = e.provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: e.name, Slot: label("s"), Scope: &scope, Proposed: taken})
	e.must(err)
	_, err = e.provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: e.name, Slot: label("s"), Scope: &scope, Proposed: taken})
	e.kind("a key's id that another access has", err, fault.Conflict)
}

func TestRGWTerms(t *testing.T) {
	t.Parallel()
	e := sign(t, "us-east-1")
	none := int64(0)
	_, err := e.provider.EnsureContract(e.Context(), contract.Spec{Name: e.name, Owner: owner, Display: "Team [A] [contract-cosi-driver owner=x]", Quota: contract.Quota{MaxBuckets: &none}})
	e.must(err)
	have, err := e.provider.GetContract(e.Context(), e.name)
	e.must(err)
	if have.Owner != owner {
		e.Errorf("owner %q, want %q", have.Owner, owner)
	}
	if err := e.engine.Create(e.Context(), label("b"), params.Bucket{Contract: e.name}); err == nil {
		e.Error("a bucket under a contract for none")
	}
	_, err = contract.NewService("ceph", owner, nil, e.provider).EnsureContract(e.Context(), contract.Spec{Name: e.name, Owner: owner, Region: "elsewhere"})
	e.kind("a region that the gateway is not in", err, fault.InvalidArgument)
}

// The driver's own user says what it lacks.
func TestRGWCheck(t *testing.T) {
	t.Parallel()
	for caps, lacks := range map[string]string{"users=*": "user-policy=*", "user-policy=*;users=read": "users=*", "users=*;user-policy=*": ""} {
		pair := secret.KeyPair{AccessKeyID: label("ak"), SecretAccessKey: secret.New(label("secret"))}
		_, err := ceph.Admin(t.Context(), "user", "create", "--uid", label("u"), "--display-name", "x", "--access-key", pair.AccessKeyID, "--secret-key", pair.SecretAccessKey.Reveal(), "--caps", caps)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := openIn(t, pair, "us-east-1")
		err = p.Check(t.Context())
		switch {
		case lacks == "" && err != nil:
			t.Errorf("%s: %v", caps, err)
		case lacks != "" && (!fault.Is(err, fault.PermissionDenied) || !strings.Contains(err.Error(), lacks)):
			t.Errorf("%s: got %v, want one that names %s", caps, err, lacks)
		}
		if lacks != "" {
			continue
		}
		// Without buckets=* nothing is told of buckets, and a class with a quota is refused
		// with what to do.
		if _, err = p.BucketUses(t.Context(), "team"); !fault.Is(err, fault.Unsupported) {
			t.Errorf("the use of buckets: %v", err)
		}
		err = p.BoundBucket(t.Context(), "team", "photos", contract.Bounds{MaxObjects: 1})
		if !fault.Is(err, fault.PermissionDenied) || !strings.Contains(err.Error(), "buckets=*") {
			t.Errorf("a quota: %v", err)
		}
	}
}

// A bucket is there for a moment without its mark.
func TestRGWUnmarkedBucket(t *testing.T) {
	t.Parallel()
	for _, region := range []string{"us-east-1", "default"} { // which is said with the request, or not
		e := sign(t, region)
		left, used := label("b"), label("b")
		for _, b := range []string{left, used} {
			e.cleanBucket(b)
			_, err := e.own.CreateBucket(e.Context(), &s3.CreateBucketInput{Bucket: &b})
			e.must(err)
		}
		e.must(e.engine.Create(e.Context(), left, params.Bucket{Contract: e.name, Tags: map[string]string{"a": "b"}}))
		ours, err := e.engine.Ours(e.Context(), left)
		e.must(err)
		if !ours {
			e.Error("what an interrupted create left is not marked")
		}
		e.must(e.engine.Create(e.Context(), left, params.Bucket{Contract: e.name, Tags: map[string]string{"a": "b"}}))
		e.must(put(e, e.own, used, "o"))
		e.kind("a bucket of somebody else's objects", e.engine.Create(e.Context(), used, params.Bucket{Contract: e.name}), fault.Conflict)
		fresh := e.bucket()
		if ours, err = e.engine.Ours(e.Context(), fresh); err != nil || !ours {
			e.Errorf("a fresh bucket is not marked: %v", err)
		}
	}
}

// How many calls each method makes at the gateway.
func TestRGWCalls(t *testing.T) {
	t.Parallel()
	e := sign(t, "us-east-1")
	b := e.bucket()
	name, slot := label("t"), label("s")
	scope := scopeOf(cosi.ReadWrite, b, "")
	pair := propose()
	for _, step := range []struct {
		what string
		want int
		do   func() error
	}{
		{"Check", 1, func() error { return e.provider.Check(e.Context()) }},
		{"EnsureContract, fresh", 3, func() error {
			_, err := e.provider.EnsureContract(e.Context(), contract.Spec{Name: name, Owner: owner})
			return err
		}},
		{"EnsureContract, as it is", 2, func() error {
			_, err := e.provider.EnsureContract(e.Context(), contract.Spec{Name: name, Owner: owner})
			return err
		}},
		{"GetContract", 1, func() error {
			_, err := e.provider.GetContract(e.Context(), name)
			return err
		}},
		{"IssueKey, the contract's own", 3, func() error {
			_, err := e.provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: name, Slot: cosi.ContractSlot, Proposed: propose()})
			return err
		}},
		{"IssueKey", 3, func() error {
			_, err := e.provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: e.name, Slot: slot, Scope: &scope, Proposed: pair})
			return err
		}},
		{"ListKeys of a slot", 2, func() error {
			_, err := e.provider.ListKeys(e.Context(), e.name, slot)
			return err
		}},
		{"IssueKey, repeated", 5, func() error {
			_, err := e.provider.IssueKey(e.Context(), contract.IssueKeyRequest{Contract: e.name, Slot: slot, Scope: &scope, Proposed: pair})
			return err
		}},
		{"RevokeKey of a slot", 1, func() error {
			return e.provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: e.name, Slot: slot})
		}},
		{"DeleteContract", 2, func() error { return e.provider.DeleteContract(e.Context(), name) }},
	} {
		e.line.Heal()
		e.must(step.do())
		if calls := e.line.Calls(); len(calls) != step.want {
			e.Errorf("%s: %d calls, want %d: %s", step.what, len(calls), step.want, fmt.Sprint(calls))
		}
	}
}

// Not parallel: the others wait until the gateway is back.
func TestRGWRestarts(t *testing.T) {
	l := run(t, storages["rgw"], nil).life()
	must(t, l.create())
	must(t, l.grant())
	ceph.StopGateway()
	other := l.life()
	other.contract = l.contract
	if err := other.create(); status.Code(err) != codes.Unavailable {
		t.Errorf("a bucket at a gateway that is down: %v", err)
	}
	if err := l.grant(); err != nil {
		t.Errorf("a repeated grant while the gateway is down: %v", err)
	}
	must(t, ceph.RestartGateway(context.WithoutCancel(t.Context()))) // it outlives the test
	must(t, again(other.create))
	must(t, again(l.grant))
	must(t, l.use())
	must(t, again(l.revoke))
	l.refused()
	for _, l := range []*life{l, other} {
		must(t, again(l.delete))
	}
}
