package params

//go:generate go run ../../test/generate ../..

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
)

// Limits of S3 that a class is checked against before anything is made.
const (
	maxPolicyBytes = 20 << 10 // Amazon S3 User Guide, "Bucket policies": 20 KB
	maxTags        = 49       // S3 takes 50 tags a bucket; one is the driver's
	maxTagKey      = 128
	maxTagValue    = 256
	maxGrantees    = 100  // Amazon S3 User Guide, "Access control list overview": 100 grants
	maxPrefixBytes = 1024 // the longest object key
	maxSourceIPs   = 64
	maxPrefixes    = 16
	maxCORS        = 64   // origins of a class
	maxKMSKey      = 2048 // AWS KMS API reference, KeyId
)

// The servers of the tests: versitygw, as contractd runs it, Ceph's radosgw, and
// for what neither has a fake that keeps state.
var (
	onVersitygw = []string{"versitygw"}
	onAll       = []string{"versitygw", "radosgw", "fake"}
	onCeph      = []string{"radosgw", "fake"}
	onGateway   = []string{"versitygw", "fake"}
	onFake      = []string{"fake"}
	onCounting  = []string{"versitygw", "radosgw"} // the first by contractd
)

// Words of S3 that the table and the checks across parameters share.
const (
	ownershipEnforced = "BucketOwnerEnforced"
	suspended         = "Suspended"
	kms               = "aws:kms"
)

// actionNames are the S3 actions that a key can have.
func actionNames() []string {
	var out []string
	for _, a := range cosi.Actions() {
		out = append(out, a.Name)
	}
	return out
}

// publicBlocks are the parts of a public access block, as S3 names them.
var publicBlocks = []string{"BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"}

const document = "JSON document, at most 20 KiB"

// object is what can be said as data of a document of JSON with one field; what
// it says is for the functions of documents.go to read.
func object(field string) Check {
	return Check{MaxBytes: maxPolicyBytes, Rules: []Rule{
		{Pattern: `[ \t\r\n]*\{.*\}[ \t\r\n]*`, Fault: "is not a JSON object"},
		{Pattern: `.*(` + field + `|\\u).*`, Fault: "has no " + field},
	}}
}

const grantees = "comma-separated `id=…`, `uri=…` or `emailAddress=…`"

// grantNames are the explicit ACL grants, which a canned ACL excludes.
var grantNames = []string{"grantRead", "grantWrite", "grantReadACP", "grantWriteACP", "grantFullControl"}

// bucketTable is what a BucketClass may say.
var bucketTable = newTable(bucketRows())

func bucketRows() []row[Bucket] {
	grant := func(name, permission string, list func(*Grants) *[]string) row[Bucket] {
		return row[Bucket]{
			Parameter{Name: name, Option: "acl", Class: BucketClass, TestedOn: onVersitygw, Type: grantees, Text: "grants " + permission + " on the bucket to others by ACL", Opens: []Rule{{Pattern: `uri=.*`}, {Pattern: `uri="*http://acs\.amazonaws\.com/groups/s3/LogDelivery"*`, Not: true}},
				Check: Check{List: true, MaxItems: maxGrantees, Rules: []Rule{
					{Pattern: `(id|uri|emailAddress)="*[^"\s\v\pZ\x{85}]+"*`, Fault: "is not id=…, uri=… or emailAddress=…"},
				}}},
			func(b *Bucket, v string) error { *list(&b.Grants) = grantList(v); return nil },
		}
	}
	days := func(name, text string, field func(*Bucket) *int32) row[Bucket] {
		return row[Bucket]{
			Parameter{Name: name, Option: "lifecycle", Class: BucketClass, TestedOn: onCeph, Type: "number of days", Text: text,
				Check: Check{Rules: []Rule{{Pattern: `[1-9][0-9]{0,4}`, Fault: "is not a number of days from 1 to 99999"}}}},
			func(b *Bucket, v string) error {
				n, err := strconv.ParseInt(v, 10, 32)
				*field(b) = int32(n)
				return err
			},
		}
	}
	return []row[Bucket]{
		{
			Parameter{Name: "contract", Class: BucketClass, TestedOn: onVersitygw, Type: "DNS label", Required: true,
				Text:      "the contract that the bucket is made under, as the driver's configuration names it",
				NoDefault: "a contract is named by the class",
				Check: Check{Rules: []Rule{{
					Pattern: `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`,
					Fault:   "is not a contract's name: lower-case letters, digits and hyphens",
				}}}},
			func(b *Bucket, v string) error { b.Contract = v; return nil },
		},
		{
			Parameter{Name: "region", Class: BucketClass, TestedOn: onVersitygw, Type: "region name", Default: "the contract's region",
				Text:  "where the bucket is made; it must be a region of the contract",
				Check: Check{Rules: []Rule{{Pattern: `[^ \t\n/]{1,63}`, Fault: "is not a region's name"}}}},
			func(b *Bucket, v string) error { b.Region = v; return nil },
		},
		{
			Parameter{Name: "placement", Class: BucketClass, TestedOn: onCeph, Type: "name of a placement target", Default: "the service's",
				Text:  "which pools of the service keep the objects, where it offers several; it can never be changed",
				Check: Check{Rules: []Rule{{Pattern: `[A-Za-z0-9][A-Za-z0-9_./-]{0,127}`, Fault: "is not a placement's name"}}}},
			func(b *Bucket, v string) error { b.Placement = v; return nil },
		},
		{
			Parameter{Name: "objectOwnership", Class: BucketClass, TestedOn: onGateway, Type: "`BucketOwnerEnforced`, `BucketOwnerPreferred` or `ObjectWriter`", Default: "the service's, `BucketOwnerPreferred` with an ACL",
				Text:  "whose the objects are that others write, and whether ACLs count at all",
				Check: Check{OneOf: []string{ownershipEnforced, "BucketOwnerPreferred", "ObjectWriter"}}},
			func(b *Bucket, v string) error { b.ObjectOwnership = v; return nil },
		},
		{
			Parameter{Name: "blockPublicAccess", Class: BucketClass, TestedOn: onCeph, Type: "`all`, `none`, or comma-separated `BlockPublicAcls`, `IgnorePublicAcls`, `BlockPublicPolicy`, `RestrictPublicBuckets`", Default: "the service's",
				Text: "what the service refuses or ignores that would make the bucket public",
				Check: Check{List: true, MaxItems: len(publicBlocks), Rules: []Rule{
					{Pattern: "all|none|" + strings.Join(publicBlocks, "|"), Fault: "is not all, none or one of " + strings.Join(publicBlocks, ", ")},
				}}},
			func(b *Bucket, v string) (err error) { b.BlockPublicAccess, err = blockList(v); return err },
		},
		{
			Parameter{Name: "acl", Class: BucketClass, TestedOn: onAll, Type: "`private`, `public-read`, `public-read-write` or `authenticated-read`",
				Text:     "S3's canned ACL for the bucket; not together with a grant",
				Check:    Check{OneOf: []string{"private", "public-read", "public-read-write", "authenticated-read"}},
				Opens:    []Rule{{Pattern: `private`, Not: true}},
				Excludes: grantNames},
			func(b *Bucket, v string) error { b.ACL = v; return nil },
		},
		grant("grantRead", "READ", func(g *Grants) *[]string { return &g.Read }),
		grant("grantWrite", "WRITE", func(g *Grants) *[]string { return &g.Write }),
		grant("grantReadACP", "READ_ACP", func(g *Grants) *[]string { return &g.ReadACP }),
		grant("grantWriteACP", "WRITE_ACP", func(g *Grants) *[]string { return &g.WriteACP }),
		grant("grantFullControl", "FULL_CONTROL", func(g *Grants) *[]string { return &g.FullControl }),
		{
			Parameter{Name: "policy", Class: BucketClass, TestedOn: onAll, Type: document,
				Text:  "the bucket policy; `${bucket}` and `${contract}` in it are replaced with the names of the two. It may have the members of AWS's grammar, in their case, and none twice",
				Check: object("Statement")},
			func(b *Bucket, v string) (err error) { b.Policy, err = classPolicy(v); return err },
		},
		{
			Parameter{Name: "versioning", Class: BucketClass, TestedOn: onAll, Type: "`Enabled` or `Suspended`", Default: "never enabled",
				Text:  "whether the bucket keeps the versions of its objects",
				Check: Check{OneOf: []string{"Enabled", suspended}}},
			func(b *Bucket, v string) error { b.Versioning = v; return nil },
		},
		{
			Parameter{Name: "objectLock", Class: BucketClass, TestedOn: onAll, Type: "`Enabled`, or a default retention such as `GOVERNANCE:30d` or `COMPLIANCE:7y`",
				Text: "makes the bucket with object lock and so with versions; the retention is what an object gets that comes without one. It can never be turned off",
				Check: Check{Rules: []Rule{{
					Pattern: `Enabled|(GOVERNANCE|COMPLIANCE):([1-9][0-9]{0,3}d|[1-9][0-9]?y)`,
					Fault:   "is neither Enabled nor GOVERNANCE or COMPLIANCE with a number of days (1d to 9999d) or years (1y to 99y)",
				}}}},
			func(b *Bucket, v string) error { b.ObjectLock = v; return nil },
		},
		days("expireAfterDays", "objects are deleted so many days after they were written", func(b *Bucket) *int32 { return &b.ExpireAfterDays }),
		days("noncurrentExpireAfterDays", "versions of objects are deleted so many days after they were replaced", func(b *Bucket) *int32 { return &b.NoncurrentExpireAfterDays }),
		days("abortUploadsAfterDays", "unfinished uploads are given up so many days after they were begun", func(b *Bucket) *int32 { return &b.AbortUploadsAfterDays }),
		{
			Parameter{Name: "lifecycle", Class: BucketClass, TestedOn: onCeph, Type: document,
				Text:     "the whole lifecycle configuration, `{\"Rules\": […]}` as AWS's tools take it; not together with the simple parameters",
				Check:    object("Rules"),
				Excludes: []string{"expireAfterDays", "noncurrentExpireAfterDays", "abortUploadsAfterDays"}},
			func(b *Bucket, v string) (err error) { b.Lifecycle, err = CanonicalLifecycle(v, true); return err },
		},
		{
			Parameter{Name: "corsOrigins", Option: "cors", Class: BucketClass, TestedOn: onAll, Type: "comma-separated origins such as `https://www.example.com`, or `*`",
				Text: "web pages of these origins may use the bucket in a browser",
				Check: Check{List: true, MaxItems: maxCORS, Rules: []Rule{
					{Pattern: `\*|[a-z][a-z0-9+.-]*://[^/*,\s]*\*?[^/*,\s]*`, Fault: "is not an origin like https://www.example.com"},
				}}},
			func(b *Bucket, v string) error { b.CORSOrigins = set(v); return nil },
		},
		{
			Parameter{Name: "corsMethods", Option: "cors", Class: BucketClass, TestedOn: onAll, Type: "comma-separated `GET`, `PUT`, `POST`, `DELETE`, `HEAD`", Default: "`GET,HEAD`",
				Text: "what they may do",
				Check: Check{List: true, MaxItems: len(corsMethods), Rules: []Rule{
					{Pattern: strings.Join(corsMethods, "|"), Fault: "is not one of " + strings.Join(corsMethods, ", ")},
				}},
				Needs: "corsOrigins"},
			func(b *Bucket, v string) error { b.CORSMethods = set(v); return nil },
		},
		{
			Parameter{Name: "cors", Class: BucketClass, TestedOn: onAll, Type: document,
				Text:     "the whole CORS configuration, `{\"CORSRules\": […]}` as AWS's tools take it; not together with the simple parameters",
				Check:    object("CORSRules"),
				Excludes: []string{"corsOrigins", "corsMethods"}},
			func(b *Bucket, v string) (err error) { b.CORS, err = CanonicalCORS(v, true); return err },
		},
		{
			Parameter{Name: "encryption", Class: BucketClass, TestedOn: onFake, Type: "`AES256` or `aws:kms`", Default: "the service's",
				Text:  "how objects are encrypted that come without a word on it: with the service's own keys, or by its key service with its default key",
				Check: Check{OneOf: []string{"AES256", kms}}},
			func(b *Bucket, v string) error { b.Encryption = v; return nil },
		},
		{
			Parameter{Name: "kmsKey", Option: "encryption", Class: BucketClass, TestedOn: onFake, Type: "id of a key at the service's key service",
				Text:      "encryption with this key; in place of `encryption`",
				Satisfies: "encryption",
				Check:     Check{MaxBytes: maxKMSKey, Rules: []Rule{{Pattern: `[!-~]+`, Fault: "is not the id of a key"}}},
				Excludes:  []string{"encryption"}},
			func(b *Bucket, v string) error { b.KMSKey = v; return nil },
		},
		{
			Parameter{Name: "websiteIndex", Option: "website", Class: BucketClass, TestedOn: onGateway, Type: "object key without `/`, such as `index.html`",
				Text:  "makes the bucket a web site; who may read it is for `acl` or `policy` to say",
				Check: Check{Rules: []Rule{{Pattern: `[^/\x00]{1,255}`, Fault: "is not the end of an object key, 1 to 255 characters without /"}}}},
			func(b *Bucket, v string) error { b.WebsiteIndex = v; return nil },
		},
		{
			Parameter{Name: "websiteError", Option: "website", Class: BucketClass, TestedOn: onGateway, Type: "object key",
				Text:  "what the web site shows when there is no such page",
				Check: Check{MaxBytes: maxPrefixBytes, Rules: []Rule{{Pattern: `[^\x00]+`, Fault: "is not an object key"}}},
				Needs: "websiteIndex"},
			func(b *Bucket, v string) error { b.WebsiteError = v; return nil },
		},
		{
			Parameter{Name: "requestPayer", Class: BucketClass, TestedOn: onCeph, Type: "`BucketOwner` or `Requester`", Default: "the service's",
				Text:  "who pays for requests and transfer",
				Check: Check{OneOf: []string{"BucketOwner", "Requester"}}},
			func(b *Bucket, v string) error { b.RequestPayer = v; return nil },
		},
		{
			Parameter{Name: "maxBytes", Option: "quota", Class: BucketClass, TestedOn: onCounting, Type: "number of bytes, a multiple of 1024, such as `500Mi` or `2Ti`",
				Text: "how much the bucket may hold; a write that would pass it is refused. `Ki`, `Mi`, `Gi`, `Ti` and `Pi` stand for powers of 1024",
				// No number that is written so is beyond 64 bits, and each can be written in full.
				Check: Check{Rules: []Rule{{Pattern: `[1-9][0-9]{0,17}|[1-8][0-9]{18}|[1-9][0-9]{0,5}[KMGT]i|[1-9][0-9]{0,2}Pi`, Fault: "is not a number of bytes such as 500Mi or 2Ti"}}}},
			func(b *Bucket, v string) (err error) { b.MaxBytes, err = parseBytes(v); return err },
		},
		{
			Parameter{Name: "maxObjects", Option: "quota", Class: BucketClass, TestedOn: onCounting, Type: "number of objects",
				Text:  "how many objects the bucket may hold, old versions among them; a write that would pass it is refused",
				Check: Check{Rules: []Rule{{Pattern: `[1-9][0-9]{0,17}`, Fault: "is not a number of objects: 1 to 18 digits, the first not 0"}}}},
			func(b *Bucket, v string) (err error) { b.MaxObjects, err = strconv.ParseInt(v, 10, 64); return err },
		},
		{
			Parameter{Name: "tags", Class: BucketClass, TestedOn: onAll, Type: "comma-separated `key=value`, at most 49",
				Text: "tags of the bucket, beside the driver's own `" + cosi.OwnerTag + "`",
				Check: Check{List: true, MaxItems: maxTags, UniqueKeys: true, Rules: []Rule{
					{Pattern: `[^=]+=.*`, Fault: "is not key=value"},
					{Pattern: fmt.Sprintf(`[^=]{1,%d}=.{0,%d}`, maxTagKey, maxTagValue),
						Fault: fmt.Sprintf("is too long: S3 takes %d characters for the key and %d for the value", maxTagKey, maxTagValue)},
					{Pattern: `((?i:aws:)|contract-cosi-driver/).*`, Not: true, Fault: "is reserved"},
				}}},
			func(b *Bucket, v string) error { b.Tags = tagMap(v); return nil },
		},
		{
			Parameter{Name: "onDelete", Class: BucketClass, TestedOn: onVersitygw, Type: "`refuse` or `empty`", Default: "`refuse`",
				Text:      "what happens when a bucket that still holds objects is deleted: it is refused, or the objects are deleted with it",
				NoDefault: "onDelete is for the class to say", // it is also asked of the object that is deleted
				Check:     Check{OneOf: []string{string(Refuse), string(Empty)}}},
			func(b *Bucket, v string) error { b.OnDelete = OnDelete(v); return nil },
		},
	}
}

// accessTable is what a BucketAccessClass may say.
var accessTable = newTable(accessRows())

func accessRows() []row[Access] {
	return []row[Access]{
		{
			Parameter{Name: "access", Class: BucketAccessClass, TestedOn: onVersitygw, Type: "`ReadWrite`, `ReadOnly` or `WriteOnly`", Default: "`ReadWrite`",
				Text: "what the key may do with the objects of the bucket; in v1alpha2 the BucketAccess asks for modes, and `ReadOnly` and `WriteOnly` allow no other, in any category",
				// An API server that writes defaults into classes gives it to each.
				NoDefault: "access is for the class to say; guard.modes bounds it",
				Check:     Check{OneOf: []string{string(cosi.ReadWrite), string(cosi.ReadOnly), string(cosi.WriteOnly)}}},
			func(a *Access, v string) error { a.Mode = cosi.AccessMode(v); return nil },
		},
		{
			Parameter{Name: "prefix", Class: BucketAccessClass, TestedOn: onVersitygw, Type: "beginning of an object key",
				Text: "limits the key to objects whose key begins so",
				Check: Check{MaxBytes: maxPrefixBytes, Rules: []Rule{{
					Pattern: `[^*?\x00]+`,
					Fault:   fmt.Sprintf("is not the beginning of an object key: 1 to %d bytes without * and ?", maxPrefixBytes),
				}}}},
			func(a *Access, v string) error { a.Prefixes = []string{v}; return nil },
		},
		{
			Parameter{Name: "prefixes", Class: BucketAccessClass, TestedOn: onVersitygw, Type: "comma-separated beginnings of object keys",
				Text: "limits the key to objects whose key begins with one of them; in place of `prefix`",
				Check: Check{List: true, MaxItems: maxPrefixes, MaxBytes: maxPrefixes * maxPrefixBytes, Rules: []Rule{{
					Pattern: `[^*?\x00]+`,
					Fault:   "is not the beginning of an object key, without * and ?",
				}}},
				Excludes: []string{"prefix"}},
			func(a *Access, v string) error { a.Prefixes = set(v); return nil },
		},
		{
			Parameter{Name: "actions", Class: BucketAccessClass, TestedOn: onVersitygw, Type: "comma-separated S3 actions such as `s3:GetObject`", Default: "all of the mode",
				Text: "what the key may do of what its mode allows, and nothing else",
				Check: Check{List: true, MaxItems: len(cosi.Actions()), Rules: []Rule{
					{Pattern: strings.Join(actionNames(), "|"), Fault: "is not one of " + strings.Join(actionNames(), ", ")},
				}}},
			func(a *Access, v string) error { a.Actions = set(v); return nil },
		},
		{
			Parameter{Name: "keyLife", Class: BucketAccessClass, TestedOn: onVersitygw, Type: lifeType, Default: "until it is revoked",
				Text:  "when the key ends. With `keyRotation` each key has a life of its own; else make a second BucketAccess before that",
				Check: lifeCheck},
			func(a *Access, v string) (err error) { a.KeyLife, err = ParseLife(v); return err },
		},
		{
			Parameter{Name: "keyRotation", Class: BucketAccessClass, TestedOn: onVersitygw, Type: lifeType, Default: "never",
				Text:  "the age at which a key is replaced: the driver writes the next one into the application's Secret, and revokes the old one after `keyGrace`. It needs `applicationSecrets` in the driver's configuration",
				Check: lifeCheck},
			func(a *Access, v string) (err error) { a.KeyRotation, err = ParseLife(v); return err },
		},
		{
			Parameter{Name: "keyGrace", Class: BucketAccessClass, TestedOn: onVersitygw, Type: lifeType, Default: "24h, and half of `keyRotation` at most", Needs: "keyRotation",
				Text:  "how long the old key stays valid after the new one is in the Secret. The kubelet takes about a minute to bring a changed Secret into a mounted volume; an application that reads it with `envFrom` has to be restarted within the grace",
				Check: lifeCheck},
			func(a *Access, v string) (err error) { a.KeyGrace, err = ParseLife(v); return err },
		},
		{
			Parameter{Name: "secretFormat", Class: BucketAccessClass, TestedOn: onVersitygw, Type: "comma-separated `env`, `file`", Default: "none",
				Text: "forms in which applications read the key: beside the Secret of the BucketAccess, say `photos`, the driver keeps `photos-env` with variables for `envFrom`, or `photos-file` with files for AWS tools, rclone and s3cmd. It needs `applicationSecrets` in the driver's configuration",
				Check: Check{List: true, MaxItems: 2, Rules: []Rule{
					{Pattern: EnvFormat + "|" + FileFormat, Fault: "is not one of " + EnvFormat + ", " + FileFormat},
				}}},
			func(a *Access, v string) error { a.SecretFormat = set(v); return nil },
		},
		{
			Parameter{Name: "sourceIP", Class: BucketAccessClass, TestedOn: onVersitygw, Type: "comma-separated addresses or CIDR blocks", Default: "anywhere",
				Text: "where requests with the key may come from",
				Check: Check{List: true, MaxItems: maxSourceIPs, Rules: []Rule{
					{Address: true, Fault: "is neither an address nor a CIDR block"},
				}}},
			func(a *Access, v string) error { a.SourceIP = blocks(v); return nil },
		},
	}
}

const lifeType = "number of hours or days, such as `12h` or `90d`"

var lifeCheck = Check{Rules: []Rule{{Pattern: `[1-9][0-9]{0,3}[` + lifeUnits + `]`, Fault: "is not a number of hours (12h) or days (90d)"}}}

// The functions below read lists that have passed their Check.

func tagMap(v string) map[string]string {
	tags := map[string]string{}
	for _, pair := range items(v) {
		key, value, _ := strings.Cut(pair, "=")
		tags[key] = value
	}
	return tags
}

// set is a list without order: sorted, each item once.
func set(v string) []string {
	list := items(v)
	slices.Sort(list)
	return slices.Compact(list)
}

// blockList is a set in which "all" is written out and "none" is empty.
func blockList(v string) ([]string, error) {
	list := set(v)
	if len(list) > 1 && (slices.Contains(list, "all") || slices.Contains(list, "none")) {
		return nil, fmt.Errorf("all and none stand alone")
	}
	switch list[0] {
	case "all":
		return publicBlocks, nil
	case "none":
		return []string{}, nil
	}
	return list, nil
}

func grantList(v string) []string {
	var list []string
	for _, grantee := range items(v) {
		kind, who, _ := strings.Cut(grantee, "=")
		list = append(list, kind+"="+strings.Trim(who, `"`))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// parseBytes reads a number of bytes. Ceph keeps a bucket's bound in KiB, so no
// other is taken anywhere: what is read back is then what was written.
func parseBytes(v string) (int64, error) {
	number, shift := strings.TrimSuffix(v, "i"), 0
	if number != v {
		shift = 10 * (1 + strings.IndexByte("KMGTP", number[len(number)-1]))
		number = number[:len(number)-1]
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if n <<= shift; err == nil && n%1024 != 0 {
		err = fmt.Errorf("%d is not a multiple of 1024; use a suffix such as Ki or Mi", n)
	}
	return n, err
}

// ParseLife reads a number of hours or days, such as 12h or 90d.
func ParseLife(v string) (time.Duration, error) {
	if number, ok := strings.CutSuffix(v, "d"); ok {
		n, err := strconv.ParseUint(number, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(v)
}

func blocks(v string) []string {
	var list []string
	for _, text := range items(v) {
		if block, ok := policy.ParseBlock(text); ok {
			list = append(list, block.String())
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
