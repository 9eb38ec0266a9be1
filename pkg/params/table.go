package params

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
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
)

const grantees = "comma-separated `id=…`, `uri=…` or `emailAddress=…`"

// grantNames are the explicit ACL grants, which a canned ACL excludes.
var grantNames = []string{"grantRead", "grantWrite", "grantReadACP", "grantWriteACP", "grantFullControl"}

// bucketTable is what a BucketClass may say.
var bucketTable = newTable(bucketRows())

func bucketRows() []row[Bucket] {
	grant := func(name, permission string, list func(*Grants) *[]string) row[Bucket] {
		return row[Bucket]{
			Parameter{Name: name, Class: BucketClass, Type: grantees, Text: "grants " + permission + " on the bucket to others by ACL",
				Check: Check{List: true, MaxItems: maxGrantees, Rules: []Rule{
					{Pattern: `(id|uri|emailAddress)="*[^"].*`, Fault: "is not id=…, uri=… or emailAddress=…"},
				}}},
			func(b *Bucket, v string) error { *list(&b.Grants) = grantList(v); return nil },
		}
	}
	return []row[Bucket]{
		{
			Parameter{Name: "contract", Class: BucketClass, Type: "DNS label", Required: true,
				Text: "the contract that the bucket is made under, as the driver's configuration names it",
				Check: Check{Rules: []Rule{{
					Pattern: `[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`,
					Fault:   "is not a contract's name: lower-case letters, digits and hyphens",
				}}}},
			func(b *Bucket, v string) error { b.Contract = v; return nil },
		},
		{
			Parameter{Name: "region", Class: BucketClass, Type: "region name", Default: "the contract's region",
				Text:  "where the bucket is made; it must be a region of the contract",
				Check: Check{Rules: []Rule{{Pattern: `[^ \t\n/]{1,63}`, Fault: "is not a region's name"}}}},
			func(b *Bucket, v string) error { b.Region = v; return nil },
		},
		{
			Parameter{Name: "acl", Class: BucketClass, Type: "`private`, `public-read`, `public-read-write` or `authenticated-read`",
				Text:     "S3's canned ACL for the bucket; not together with a grant",
				Check:    Check{OneOf: []string{"private", "public-read", "public-read-write", "authenticated-read"}},
				Excludes: grantNames},
			func(b *Bucket, v string) error { b.ACL = v; return nil },
		},
		grant("grantRead", "READ", func(g *Grants) *[]string { return &g.Read }),
		grant("grantWrite", "WRITE", func(g *Grants) *[]string { return &g.Write }),
		grant("grantReadACP", "READ_ACP", func(g *Grants) *[]string { return &g.ReadACP }),
		grant("grantWriteACP", "WRITE_ACP", func(g *Grants) *[]string { return &g.WriteACP }),
		grant("grantFullControl", "FULL_CONTROL", func(g *Grants) *[]string { return &g.FullControl }),
		{
			Parameter{Name: "policy", Class: BucketClass, Type: "JSON document, at most 20 KiB",
				Text: "the bucket policy; every `${bucket}` in it is replaced with the bucket's name",
				// What a document of JSON says is for CanonicalPolicy to read.
				Check: Check{MaxBytes: maxPolicyBytes, Rules: []Rule{
					{Pattern: `[ \t\r\n]*\{.*\}[ \t\r\n]*`, Fault: "is not a JSON object"},
					{Pattern: `.*(Statement|\\u).*`, Fault: "has no Statement"},
				}}},
			func(b *Bucket, v string) (err error) { b.Policy, err = CanonicalPolicy(v); return err },
		},
		{
			Parameter{Name: "versioning", Class: BucketClass, Type: "`Enabled` or `Suspended`", Default: "never enabled",
				Text:  "whether the bucket keeps the versions of its objects",
				Check: Check{OneOf: []string{"Enabled", "Suspended"}}},
			func(b *Bucket, v string) error { b.Versioning = v; return nil },
		},
		{
			Parameter{Name: "tags", Class: BucketClass, Type: "comma-separated `key=value`, at most 49",
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
			Parameter{Name: "onDelete", Class: BucketClass, Type: "`refuse` or `empty`", Default: "`refuse`",
				Text:  "what happens when a bucket that still holds objects is deleted: it is refused, or the objects are deleted with it",
				Check: Check{OneOf: []string{string(Refuse), string(Empty)}}},
			func(b *Bucket, v string) error { b.OnDelete = OnDelete(v); return nil },
		},
	}
}

// accessTable is what a BucketAccessClass may say.
var accessTable = newTable(accessRows())

func accessRows() []row[Access] {
	return []row[Access]{
		{
			Parameter{Name: "access", Class: BucketAccessClass, Type: "`ReadWrite`, `ReadOnly` or `WriteOnly`", Default: "`ReadWrite`",
				Text:  "what the key may do with the objects of the bucket; no key may change the bucket itself. In v1alpha2 the BucketAccess asks for a mode, and `ReadOnly` and `WriteOnly` allow no other",
				Check: Check{OneOf: []string{string(cosi.ReadWrite), string(cosi.ReadOnly), string(cosi.WriteOnly)}}},
			func(a *Access, v string) error { a.Mode = cosi.AccessMode(v); return nil },
		},
		{
			Parameter{Name: "prefix", Class: BucketAccessClass, Type: "beginning of an object key",
				Text: "limits the key to objects whose key begins so",
				Check: Check{MaxBytes: maxPrefixBytes, Rules: []Rule{{
					Pattern: `[^*?\x00]+`,
					Fault:   fmt.Sprintf("is not the beginning of an object key: 1 to %d bytes without * and ?", maxPrefixBytes),
				}}}},
			func(a *Access, v string) error { a.Prefix = v; return nil },
		},
		{
			Parameter{Name: "sourceIP", Class: BucketAccessClass, Type: "comma-separated addresses or CIDR blocks", Default: "anywhere",
				Text: "where requests with the key may come from",
				Check: Check{List: true, MaxItems: maxSourceIPs, Rules: []Rule{
					{Address: true, Fault: "is neither an address nor a CIDR block"},
				}}},
			func(a *Access, v string) error { a.SourceIP = blocks(v); return nil },
		},
	}
}

// CanonicalPolicy checks that text is a bucket policy document as far as every
// S3 service agrees on one, and returns it in canonical JSON: two texts of the
// same policy become equal. Which actions and principals exist is for the
// service to say.
func CanonicalPolicy(text string) (string, error) {
	if len(text) > maxPolicyBytes {
		return "", fmt.Errorf("the policy has %d bytes; S3 takes at most %d", len(text), maxPolicyBytes)
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var doc map[string]any
	if err := decoder.Decode(&doc); err != nil {
		return "", fmt.Errorf("not a JSON object: %w", err)
	}
	if decoder.More() {
		return "", fmt.Errorf("there is text after the JSON object")
	}
	statements, ok := doc["Statement"].([]any)
	if single, isObject := doc["Statement"].(map[string]any); isObject {
		statements, ok = []any{single}, true
	}
	if !ok || len(statements) == 0 {
		return "", fmt.Errorf("the policy has no Statement")
	}
	for i, s := range statements {
		statement, ok := s.(map[string]any)
		if !ok {
			return "", fmt.Errorf("Statement[%d] is not an object", i)
		}
		if e := statement["Effect"]; e != "Allow" && e != "Deny" {
			return "", fmt.Errorf("Statement[%d].Effect is neither Allow nor Deny", i)
		}
		for _, either := range [][2]string{{"Principal", "NotPrincipal"}, {"Action", "NotAction"}, {"Resource", "NotResource"}} {
			if statement[either[0]] == nil && statement[either[1]] == nil {
				return "", fmt.Errorf("Statement[%d] has no %s", i, either[0])
			}
		}
	}
	canonical, err := json.Marshal(doc) // object keys are sorted
	if err != nil {
		return "", err
	}
	return string(canonical), nil
}

// PolicyFor returns the policy of the class for one bucket.
func (b Bucket) PolicyFor(bucket string) string {
	return strings.ReplaceAll(b.Policy, "${bucket}", bucket)
}

// The functions below read lists that have passed their Check.

func tagMap(v string) map[string]string {
	tags := map[string]string{}
	for _, pair := range items(v) {
		key, value, _ := strings.Cut(pair, "=")
		tags[key] = value
	}
	return tags
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

func blocks(v string) []string {
	var list []string
	for _, text := range items(v) {
		if block, ok := parseAddress(text); ok {
			list = append(list, block.String())
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
