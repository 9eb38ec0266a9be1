package contracttest

import (
	"net/netip"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
)

func testModes(e *env) {
	if !e.limited() {
		return
	}
	t := e.sign()
	b := t.bucket()
	e.must(e.put(t.client(t.key), b, "o"))
	for mode, can := range map[cosi.AccessMode]struct{ read, write bool }{
		cosi.ReadWrite: {true, true},
		cosi.ReadOnly:  {true, false},
		cosi.WriteOnly: {false, true},
	} {
		_, pair := t.grant(contract.BucketScope{Bucket: b, Mode: mode})
		app := t.client(pair)
		for what, c := range map[string]struct {
			can bool
			err error
		}{
			"put":    {can.write, e.put(app, b, "of-"+string(mode))},
			"get":    {can.read, e.get(app, b, "o")},
			"list":   {can.read, e.list(app, b, "")},
			"delete": {can.write, e.remove(app, b, "of-"+string(mode))},
		} {
			if c.can {
				e.allowed(string(mode)+" key: "+what, c.err)
			} else {
				e.refused(string(mode)+" key: "+what, c.err)
			}
		}
		e.multipart(app, b, string(mode), can.write)
	}
}

// multipart uploads in parts, as every client does with a large object.
func (e *env) multipart(c *s3.Client, bucket, what string, can bool) {
	e.Helper()
	key := "parts-of-" + what
	begun, err := c.CreateMultipartUpload(e.Context(), &s3.CreateMultipartUploadInput{Bucket: &bucket, Key: &key})
	if !can {
		e.refused(what+" key: multipart", err)
		return
	}
	e.allowed(what+" key: multipart", err)
	if err == nil {
		_, err = c.AbortMultipartUpload(e.Context(), &s3.AbortMultipartUploadInput{Bucket: &bucket, Key: &key, UploadId: begun.UploadId})
		e.allowed(what+" key: abort", err)
	}
}

func testNeighbours(e *env) {
	if !e.limited() {
		return
	}
	t, other := e.sign(), e.sign()
	own, sibling, foreign := t.bucket(), t.bucket(), other.bucket()
	e.must(e.put(t.client(t.key), sibling, "o"))
	e.must(e.put(other.client(other.key), foreign, "o"))
	_, pair := t.grant(scoped(own))
	app := t.client(pair)
	e.allowed("put into its own bucket", e.put(app, own, "o"))
	for what, b := range map[string]string{"the contract's other bucket": sibling, "another contract's bucket": foreign} {
		refused := e.refused
		if b == foreign {
			refused = e.unreachable
		}
		refused("put into "+what, e.put(app, b, "o2"))
		refused("get from "+what, e.get(app, b, "o"))
		refused("list of "+what, e.list(app, b, ""))
		refused("delete from "+what, e.remove(app, b, "o"))
	}
	// Another key on the same bucket, and its end, change nothing for this one.
	slot, _ := t.grant(contract.BucketScope{Bucket: own, Mode: cosi.ReadOnly})
	e.allowed("put beside another key", e.put(app, own, "o"))
	e.must(e.Provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: t.Name, Slot: slot}))
	e.allowed("put after the other key's end", e.put(app, own, "o"))
	if !e.Provider.Capabilities().SharedBuckets {
		e.unreachable("another contract's own key", e.list(other.client(other.key), own, ""))
	}
}

func testPrefix(e *env) {
	if !e.limited() || e.Provider.Capabilities().WholeBuckets {
		return
	}
	t := e.sign()
	b := t.bucket()
	owner := t.client(t.key)
	for _, key := range []string{"in/o", "inside", "out/o"} {
		e.must(e.put(owner, b, key))
	}
	_, pair := t.grant(contract.BucketScope{Bucket: b, Prefix: "in/", Mode: cosi.ReadWrite})
	app := t.client(pair)
	e.allowed("put below the prefix", e.put(app, b, "in/p"))
	e.allowed("get below the prefix", e.get(app, b, "in/o"))
	e.allowed("list of the prefix", e.list(app, b, "in/"))
	e.allowed("list below the prefix", e.list(app, b, "in/deeper/"))
	e.allowed("delete below the prefix", e.remove(app, b, "in/p"))
	for _, key := range []string{"out/o", "inside"} {
		e.refused("put of "+key, e.put(app, b, key))
		e.refused("get of "+key, e.get(app, b, key))
		e.refused("delete of "+key, e.remove(app, b, key))
	}
	e.refused("list of all", e.list(app, b, ""))
	e.refused("list of another prefix", e.list(app, b, "out/"))
	e.refused("list of a shorter prefix", e.list(app, b, "in"))
}

func testSourceAddresses(e *env) {
	if !e.limited() || !e.Provider.Capabilities().SourceAddresses {
		return
	}
	t := e.sign()
	b := t.bucket()
	for text, can := range map[string]bool{"127.0.0.0/8": true, "203.0.113.0/24": false} {
		scope := &contract.Scope{Buckets: []contract.BucketScope{scoped(b)}, SourceAddresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/32"), netip.MustParsePrefix(text)}}
		app := t.client(e.issue(contract.IssueKeyRequest{Contract: t.Name, Slot: label("s"), Scope: scope, Proposed: propose()}))
		for what, err := range map[string]error{"put": e.put(app, b, "o"), "list": e.list(app, b, "")} {
			if can {
				e.allowed(what+" from an address in "+text, err)
			} else {
				e.refused(what+" from an address outside "+text, err)
			}
		}
	}
}

func testSeveralBuckets(e *env) {
	t := e.sign()
	a, b, c := t.bucket(), t.bucket(), t.bucket()
	scope := &contract.Scope{Buckets: []contract.BucketScope{{Bucket: a, Mode: cosi.ReadWrite}, {Bucket: b, Mode: cosi.ReadOnly}}}
	req := contract.IssueKeyRequest{Contract: t.Name, Slot: label("s"), Scope: scope, Proposed: propose()}
	if !e.Provider.Capabilities().SeveralBuckets {
		return // the driver does not ask for it
	}
	app := t.client(e.issue(req))
	e.allowed("put into the first", e.put(app, a, "o"))
	e.allowed("list of the second", e.list(app, b, ""))
	e.refused("put into the second", e.put(app, b, "o"))
	e.refused("list of a third", e.list(app, c, ""))
	e.must(e.Provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: t.Name, Slot: req.Slot}))
	e.dead("put into the first after the end", func() error { return e.put(app, a, "o") })
	e.dead("list of the second after the end", func() error { return e.list(app, b, "") })
}

// A key is for the objects of its buckets, not for the buckets themselves.
func testNotTheBucket(e *env) {
	if !e.limited() {
		return
	}
	t := e.sign()
	b := t.bucket()
	_, pair := t.grant(scoped(b))
	app := t.client(pair)
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::` + b + `/*"}]}`
	name := label("b")
	_, err := app.PutBucketPolicy(e.Context(), &s3.PutBucketPolicyInput{Bucket: &b, Policy: &policy})
	e.refused("a change of its bucket's policy", err)
	_, err = app.DeleteBucket(e.Context(), &s3.DeleteBucketInput{Bucket: &b})
	e.refused("the end of its bucket", err)
	_, err = app.CreateBucket(e.Context(), &s3.CreateBucketInput{Bucket: &name})
	e.refused("another bucket", err)
	if out, err := app.ListBuckets(e.Context(), &s3.ListBucketsInput{}); err == nil {
		for _, listed := range out.Buckets {
			if aws.ToString(listed.Name) != b {
				e.Errorf("a key for bucket %s lists %s", b, aws.ToString(listed.Name))
			}
		}
	}
}

// Whoever wrote an object, it is the contract's: nothing that an application
// does may put it out of the reach of the one who pays for it.
func testObjectsOwner(e *env) {
	if !e.limited() {
		return
	}
	t := e.sign()
	b := t.bucket()
	slot, pair := t.grant(scoped(b))
	e.must(e.put(t.client(pair), b, "written-by-the-application"))
	owner := t.client(t.key)
	e.allowed("the contract reads", e.get(owner, b, "written-by-the-application"))
	_, reader := t.grant(contract.BucketScope{Bucket: b, Mode: cosi.ReadOnly})
	e.allowed("another application reads", e.get(t.client(reader), b, "written-by-the-application"))
	e.must(e.Provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: t.Name, Slot: slot}))
	e.allowed("the contract reads after the key's end", e.get(owner, b, "written-by-the-application"))
	e.allowed("the contract deletes", e.remove(owner, b, "written-by-the-application"))
}
