package params

import (
	"encoding/json"
	"fmt"
	"net/netip"
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
	maxPrefixBytes = 1024 // the longest object key
	maxSourceIPs   = 64
)

const grantees = "comma-separated `id=…`, `uri=…` or `emailAddress=…`"

// bucketTable is what a BucketClass may say.
var bucketTable = newTable(bucketRows())

func bucketRows() []row[Bucket] {
	grant := func(name, permission string, list func(*Grants) *[]string) row[Bucket] {
		return row[Bucket]{
			Parameter{Name: name, Class: BucketClass, Type: grantees, Text: "grants " + permission + " on the bucket to others by ACL"},
			func(b *Bucket, v string) (err error) { *list(&b.Grants), err = parseGrantees(v); return err },
		}
	}
	return []row[Bucket]{
		{
			Parameter{Name: "contract", Class: BucketClass, Type: "DNS label", Required: true,
				Text: "the contract that the bucket is made under, as the driver's configuration names it"},
			func(b *Bucket, v string) error {
				if !cosi.IsLabel(v) {
					return fmt.Errorf("%s is not a contract's name: lower-case letters, digits and hyphens", quote(v))
				}
				b.Contract = v
				return nil
			},
		},
		{
			Parameter{Name: "region", Class: BucketClass, Type: "region name", Default: "the contract's region",
				Text: "where the bucket is made; it must be a region of the contract"},
			func(b *Bucket, v string) error {
				if v == "" || len(v) > 63 || strings.ContainsAny(v, " \t\n/") {
					return fmt.Errorf("%s is not a region's name", quote(v))
				}
				b.Region = v
				return nil
			},
		},
		{
			Parameter{Name: "acl", Class: BucketClass, Type: "`private`, `public-read`, `public-read-write` or `authenticated-read`",
				Text: "S3's canned ACL for the bucket; not together with a grant"},
			func(b *Bucket, v string) error {
				return oneOf(&b.ACL, v, "private", "public-read", "public-read-write", "authenticated-read")
			},
		},
		grant("grantRead", "READ", func(g *Grants) *[]string { return &g.Read }),
		grant("grantWrite", "WRITE", func(g *Grants) *[]string { return &g.Write }),
		grant("grantReadACP", "READ_ACP", func(g *Grants) *[]string { return &g.ReadACP }),
		grant("grantWriteACP", "WRITE_ACP", func(g *Grants) *[]string { return &g.WriteACP }),
		grant("grantFullControl", "FULL_CONTROL", func(g *Grants) *[]string { return &g.FullControl }),
		{
			Parameter{Name: "policy", Class: BucketClass, Type: "JSON document, at most 20 KiB",
				Text: "the bucket policy; every `${bucket}` in it is replaced with the bucket's name"},
			func(b *Bucket, v string) (err error) { b.Policy, err = CanonicalPolicy(v); return err },
		},
		{
			Parameter{Name: "versioning", Class: BucketClass, Type: "`Enabled` or `Suspended`", Default: "never enabled",
				Text: "whether the bucket keeps the versions of its objects"},
			func(b *Bucket, v string) error { return oneOf(&b.Versioning, v, "Enabled", "Suspended") },
		},
		{
			Parameter{Name: "tags", Class: BucketClass, Type: "comma-separated `key=value`, at most 49",
				Text: "tags of the bucket, beside the driver's own `" + cosi.OwnerTag + "`"},
			func(b *Bucket, v string) (err error) { b.Tags, err = parseTags(v); return err },
		},
		{
			Parameter{Name: "onDelete", Class: BucketClass, Type: "`refuse` or `empty`", Default: "`refuse`",
				Text: "what happens when a bucket that still holds objects is deleted: it is refused, or the objects are deleted with it"},
			func(b *Bucket, v string) error { return oneOf(&b.OnDelete, v, Refuse, Empty) },
		},
	}
}

// accessTable is what a BucketAccessClass may say.
var accessTable = newTable(accessRows())

func accessRows() []row[Access] {
	return []row[Access]{
		{
			Parameter{Name: "access", Class: BucketAccessClass, Type: "`ReadWrite`, `ReadOnly` or `WriteOnly`", Default: "`ReadWrite`",
				Text: "what the key may do with the objects of the bucket; no key may change the bucket itself. In v1alpha2 the BucketAccess asks for a mode, and `ReadOnly` and `WriteOnly` allow no other"},
			func(a *Access, v string) error {
				return oneOf(&a.Mode, v, cosi.ReadWrite, cosi.ReadOnly, cosi.WriteOnly)
			},
		},
		{
			Parameter{Name: "prefix", Class: BucketAccessClass, Type: "beginning of an object key",
				Text: "limits the key to objects whose key begins so"},
			func(a *Access, v string) error {
				if v == "" || len(v) > maxPrefixBytes || strings.ContainsAny(v, "*?\x00") {
					return fmt.Errorf("%s is not the beginning of an object key: 1 to %d bytes without * and ?", quote(v), maxPrefixBytes)
				}
				a.Prefix = v
				return nil
			},
		},
		{
			Parameter{Name: "sourceIP", Class: BucketAccessClass, Type: "comma-separated addresses or CIDR blocks", Default: "anywhere",
				Text: "where requests with the key may come from"},
			func(a *Access, v string) (err error) { a.SourceIP, err = parseAddresses(v); return err },
		},
	}
}

func oneOf[S ~string](dst *S, v string, allowed ...S) error {
	if !slices.Contains(allowed, S(v)) {
		texts := make([]string, len(allowed))
		for i, a := range allowed {
			texts[i] = string(a)
		}
		return fmt.Errorf("%s is not one of %s", quote(v), strings.Join(texts, ", "))
	}
	*dst = S(v)
	return nil
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

func parseTags(v string) (map[string]string, error) {
	tags := map[string]string{}
	for _, pair := range strings.Split(v, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		switch {
		case !ok || key == "":
			return nil, fmt.Errorf("%s is not key=value", quote(pair))
		case len(key) > maxTagKey || len(value) > maxTagValue:
			return nil, fmt.Errorf("tag %s is too long: S3 takes %d bytes for the key and %d for the value", quote(key), maxTagKey, maxTagValue)
		case strings.HasPrefix(key, "contract-cosi-driver/") || strings.HasPrefix(strings.ToLower(key), "aws:"):
			return nil, fmt.Errorf("tag %s is reserved", quote(key))
		}
		if _, twice := tags[key]; twice {
			return nil, fmt.Errorf("tag %s is given twice", quote(key))
		}
		tags[key] = value
	}
	if len(tags) > maxTags {
		return nil, fmt.Errorf("%d tags; at most %d fit beside the driver's own", len(tags), maxTags)
	}
	return tags, nil
}

func parseGrantees(v string) ([]string, error) {
	var list []string
	for _, grantee := range strings.Split(v, ",") {
		kind, who, ok := strings.Cut(strings.TrimSpace(grantee), "=")
		who = strings.Trim(who, `"`)
		if !ok || who == "" || !slices.Contains([]string{"id", "uri", "emailAddress"}, kind) {
			return nil, fmt.Errorf("%s is not id=…, uri=… or emailAddress=…", quote(grantee))
		}
		list = append(list, kind+"="+who)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

func parseAddresses(v string) ([]string, error) {
	var list []string
	for _, text := range strings.Split(v, ",") {
		text = strings.TrimSpace(text)
		block, err := netip.ParsePrefix(text)
		if err != nil {
			address, addressErr := netip.ParseAddr(text)
			if addressErr != nil || address.Zone() != "" {
				return nil, fmt.Errorf("%s is neither an address nor a CIDR block", quote(text))
			}
			block = netip.PrefixFrom(address, address.BitLen())
		}
		list = append(list, block.Masked().String())
	}
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) > maxSourceIPs {
		return nil, fmt.Errorf("%d blocks; at most %d are allowed", len(list), maxSourceIPs)
	}
	return list, nil
}
