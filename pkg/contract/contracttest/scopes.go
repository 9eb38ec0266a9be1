package contracttest

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
)

// modes are those of the keys that testModes asks for: each mode of each category,
// beside another one in the next.
var modes = []contract.BucketScope{
	{Mode: cosi.ReadWrite}, {Mode: cosi.ReadOnly}, {Mode: cosi.WriteOnly},
	{Mode: cosi.ReadWrite, Metadata: cosi.Metadata{ObjectMetadata: cosi.ReadOnly, BucketMetadata: cosi.ReadOnly}},
	{Mode: cosi.ReadWrite, Metadata: cosi.Metadata{BucketMetadata: cosi.ReadWrite}},
	{Mode: cosi.ReadOnly, Metadata: cosi.Metadata{ObjectMetadata: cosi.ReadWrite, BucketMetadata: cosi.WriteOnly}},
	{Mode: cosi.ReadOnly, Metadata: cosi.Metadata{ObjectMetadata: cosi.WriteOnly}},
	{Mode: cosi.WriteOnly, Metadata: cosi.Metadata{ObjectMetadata: cosi.ReadOnly, BucketMetadata: cosi.ReadWrite}},
	{Mode: cosi.WriteOnly, Metadata: cosi.Metadata{ObjectMetadata: cosi.WriteOnly, BucketMetadata: cosi.ReadOnly}},
}

// testModes makes the request of each action with a key of each mode, and those
// that no mode allows.
func testModes(e *env) {
	if !e.limited() {
		return
	}
	t := e.sign()
	b := t.bucket()
	owner := t.client(t.key)
	_, err := owner.PutBucketVersioning(e.Context(), &s3.PutBucketVersioningInput{Bucket: &b,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	e.must(err)
	for _, scope := range modes {
		scope.Bucket = b
		slot, pair := t.grant(scope)
		app := t.client(pair)
		label := string(scope.Mode) + scope.Label()
		for _, a := range cosi.Actions() {
			if slices.Contains(e.h.Unknown, a.Name) {
				continue
			}
			request, ok := requests[a.Name]
			if !ok {
				e.Errorf("no request proves %s", a.Name)
				continue
			}
			what := fmt.Sprintf("%s key: %s", label, a.Name)
			o := object{bucket: &b}
			if a.On == cosi.OnObject {
				o = e.prepare(owner, b, label+"/"+a.Name)
			}
			if err := request(e.Context(), app, o); a.AllowedBy(scope.Mode, scope.Metadata) {
				e.allowed(what, err)
			} else {
				e.refused(what, err)
			}
		}
		o := e.prepare(owner, b, label+"/in-no-mode")
		for name, request := range inNoMode {
			e.refused(label+" key: "+name, request(e.Context(), app, o))
		}
		e.must(e.Provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: t.Name, Slot: slot})) // a policy holds few keys
	}
}

// object has a version and a tag, and there is an unfinished upload to its key.
type object struct{ bucket, key, version, upload *string }

func (e *env) prepare(owner *s3.Client, bucket, key string) object {
	e.Helper()
	o := object{bucket: &bucket, key: &key}
	put, err := owner.PutObject(e.Context(), &s3.PutObjectInput{Bucket: o.bucket, Key: o.key, Body: strings.NewReader("content")})
	e.must(err)
	o.version = put.VersionId
	e.must(o.tag(e.Context(), owner, nil))
	begun, err := owner.CreateMultipartUpload(e.Context(), &s3.CreateMultipartUploadInput{Bucket: o.bucket, Key: o.key})
	e.must(err)
	o.upload = begun.UploadId
	return o
}

// requests need one action each. What they read has to be there.
var requests = map[string]func(context.Context, *s3.Client, object) error{
	"s3:AbortMultipartUpload": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: o.bucket, Key: o.key, UploadId: o.upload}))
	},
	"s3:DeleteObject": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: o.bucket, Key: o.key}))
	},
	"s3:DeleteObjectVersion": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: o.bucket, Key: o.key, VersionId: o.version}))
	},
	"s3:DeleteObjectTagging":        func(ctx context.Context, c *s3.Client, o object) error { return o.untag(ctx, c, nil) },
	"s3:DeleteObjectVersionTagging": func(ctx context.Context, c *s3.Client, o object) error { return o.untag(ctx, c, o.version) },
	"s3:GetBucketAcl": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.GetBucketAcl(ctx, &s3.GetBucketAclInput{Bucket: o.bucket}))
	},
	"s3:GetBucketCORS": func(ctx context.Context, c *s3.Client, o object) error {
		return found(c.GetBucketCors(ctx, &s3.GetBucketCorsInput{Bucket: o.bucket}))
	},
	"s3:GetBucketPolicy": func(ctx context.Context, c *s3.Client, o object) error {
		return found(c.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: o.bucket}))
	},
	"s3:GetBucketTagging": func(ctx context.Context, c *s3.Client, o object) error {
		return found(c.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: o.bucket}))
	},
	"s3:GetBucketVersioning": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: o.bucket}))
	},
	"s3:GetLifecycleConfiguration": func(ctx context.Context, c *s3.Client, o object) error {
		return found(c.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: o.bucket}))
	},
	"s3:GetObjectAcl": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.GetObjectAcl(ctx, &s3.GetObjectAclInput{Bucket: o.bucket, Key: o.key}))
	},
	"s3:GetObjectVersionAcl": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.GetObjectAcl(ctx, &s3.GetObjectAclInput{Bucket: o.bucket, Key: o.key, VersionId: o.version}))
	},
	"s3:PutBucketCORS": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.PutBucketCors(ctx, &s3.PutBucketCorsInput{Bucket: o.bucket, CORSConfiguration: &types.CORSConfiguration{CORSRules: []types.CORSRule{
			{AllowedMethods: []string{"GET"}, AllowedOrigins: []string{"https://example.com"}},
		}}}))
	},
	"s3:PutBucketVersioning": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{Bucket: o.bucket,
			VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}}))
	},
	"s3:PutLifecycleConfiguration": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.PutBucketLifecycleConfiguration(ctx, &s3.PutBucketLifecycleConfigurationInput{Bucket: o.bucket,
			LifecycleConfiguration: &types.BucketLifecycleConfiguration{Rules: []types.LifecycleRule{{
				ID: aws.String("r"), Status: types.ExpirationStatusEnabled, Filter: &types.LifecycleRuleFilter{Prefix: aws.String("old/")},
				Expiration: &types.LifecycleExpiration{Days: aws.Int32(3650)},
			}}}}))
	},
	"s3:GetBucketLocation": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.GetBucketLocation(ctx, &s3.GetBucketLocationInput{Bucket: o.bucket}))
	},
	"s3:GetObject":                  func(ctx context.Context, c *s3.Client, o object) error { return o.read(ctx, c, nil) },
	"s3:GetObjectVersion":           func(ctx context.Context, c *s3.Client, o object) error { return o.read(ctx, c, o.version) },
	"s3:GetObjectAttributes":        func(ctx context.Context, c *s3.Client, o object) error { return o.size(ctx, c, nil) },
	"s3:GetObjectVersionAttributes": func(ctx context.Context, c *s3.Client, o object) error { return o.size(ctx, c, o.version) },
	"s3:GetObjectTagging":           func(ctx context.Context, c *s3.Client, o object) error { return o.tags(ctx, c, nil) },
	"s3:GetObjectVersionTagging":    func(ctx context.Context, c *s3.Client, o object) error { return o.tags(ctx, c, o.version) },
	"s3:ListBucket": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: o.bucket}))
	},
	"s3:ListBucketMultipartUploads": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.ListMultipartUploads(ctx, &s3.ListMultipartUploadsInput{Bucket: o.bucket}))
	},
	"s3:ListBucketVersions": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: o.bucket}))
	},
	"s3:ListMultipartUploadParts": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.ListParts(ctx, &s3.ListPartsInput{Bucket: o.bucket, Key: o.key, UploadId: o.upload}))
	},
	"s3:PutObject": func(ctx context.Context, c *s3.Client, o object) error {
		if err := outcome(c.PutObject(ctx, &s3.PutObjectInput{Bucket: o.bucket, Key: o.key, Body: strings.NewReader("new")})); err != nil {
			return err
		}
		return outcome(c.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: o.bucket, Key: o.key}))
	},
	"s3:PutObjectTagging":        func(ctx context.Context, c *s3.Client, o object) error { return o.tag(ctx, c, nil) },
	"s3:PutObjectVersionTagging": func(ctx context.Context, c *s3.Client, o object) error { return o.tag(ctx, c, o.version) },
}

// inNoMode are requests that no key of an access may make.
var inNoMode = map[string]func(context.Context, *s3.Client, object) error{
	"s3:PutBucketAcl": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.PutBucketAcl(ctx, &s3.PutBucketAclInput{Bucket: o.bucket, ACL: types.BucketCannedACLPublicRead}))
	},
	"s3:PutBucketPolicy": func(ctx context.Context, c *s3.Client, o object) error {
		policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::` + *o.bucket + `/*"}]}`
		return outcome(c.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: o.bucket, Policy: &policy}))
	},
	"s3:DeleteBucketPolicy": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.DeleteBucketPolicy(ctx, &s3.DeleteBucketPolicyInput{Bucket: o.bucket}))
	},
	"s3:PutBucketTagging": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{Bucket: o.bucket, Tagging: someTags()}))
	},
	"s3:PutObjectAcl": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.PutObjectAcl(ctx, &s3.PutObjectAclInput{Bucket: o.bucket, Key: o.key, ACL: types.ObjectCannedACLPublicRead}))
	},
	"s3:DeleteBucket": func(ctx context.Context, c *s3.Client, o object) error {
		return outcome(c.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: o.bucket}))
	},
}

func outcome(_ any, err error) error { return err }

// found is the outcome of reading a document that the bucket may not have.
func found(_ any, err error) error {
	if strings.HasPrefix(signed.Code(err), "NoSuch") {
		return nil
	}
	return err
}

func someTags() *types.Tagging {
	return &types.Tagging{TagSet: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}}
}

func (o object) read(ctx context.Context, c *s3.Client, version *string) error {
	out, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: o.bucket, Key: o.key, VersionId: version})
	if err != nil {
		return err
	}
	defer func() { _ = out.Body.Close() }()
	if text, err := io.ReadAll(out.Body); err != nil || string(text) != "content" {
		return fmt.Errorf("read %q (%w)", text, err)
	}
	return nil
}

func (o object) size(ctx context.Context, c *s3.Client, version *string) error {
	out, err := c.GetObjectAttributes(ctx, &s3.GetObjectAttributesInput{Bucket: o.bucket, Key: o.key, VersionId: version,
		ObjectAttributes: []types.ObjectAttributes{types.ObjectAttributesObjectSize}})
	if err == nil && aws.ToInt64(out.ObjectSize) != int64(len("content")) {
		err = fmt.Errorf("it has %d bytes", aws.ToInt64(out.ObjectSize))
	}
	return err
}

func (o object) tag(ctx context.Context, c *s3.Client, version *string) error {
	return outcome(c.PutObjectTagging(ctx, &s3.PutObjectTaggingInput{Bucket: o.bucket, Key: o.key, VersionId: version,
		Tagging: someTags()}))
}

func (o object) tags(ctx context.Context, c *s3.Client, version *string) error {
	out, err := c.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: o.bucket, Key: o.key, VersionId: version})
	if err == nil && len(out.TagSet) != 1 {
		err = fmt.Errorf("it has %d tags", len(out.TagSet))
	}
	return err
}

func (o object) untag(ctx context.Context, c *s3.Client, version *string) error {
	return outcome(c.DeleteObjectTagging(ctx, &s3.DeleteObjectTaggingInput{Bucket: o.bucket, Key: o.key, VersionId: version}))
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

// A key is for its buckets, and knows of no others.
func testNotTheBucket(e *env) {
	if !e.limited() {
		return
	}
	t := e.sign()
	b := t.bucket()
	_, pair := t.grant(scoped(b))
	app := t.client(pair)
	name := label("b")
	_, err := app.CreateBucket(e.Context(), &s3.CreateBucketInput{Bucket: &name})
	e.refused("another bucket", err)
	if out, err := app.ListBuckets(e.Context(), &s3.ListBucketsInput{}); err == nil {
		for _, listed := range out.Buckets {
			if aws.ToString(listed.Name) != b {
				e.Errorf("a key for bucket %s lists %s", b, aws.ToString(listed.Name))
			}
		}
	}
}

// Every object is the contract's, also one that an application wrote: nothing that an application
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
