package policy

import (
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// Dialect is how a service writes policies.
type Dialect struct {
	// Version is the policy language's.
	Version string
	// ActionPrefix begins every action, with the colon: "s3:".
	ActionPrefix string
	// ResourcePrefix begins every resource: "arn:aws:s3:::".
	ResourcePrefix string
	// PrincipalKey names the kind of a principal: "AWS".
	PrincipalKey string
	// SourceAddressKey is the condition key for the caller's address; "" is a
	// service that has none.
	SourceAddressKey string
	// PrefixKey is the condition key for what a listing asks for; "" is a
	// service that has none.
	PrefixKey string
	// Unknown are the actions of [cosi.Actions] that the service refuses in a
	// policy, because it does not know them.
	Unknown []string
}

// AWS is the dialect of Amazon S3.
func AWS() Dialect {
	return Dialect{
		Version: "2012-10-17", ActionPrefix: "s3:", ResourcePrefix: "arn:aws:s3:::", PrincipalKey: "AWS",
		SourceAddressKey: "aws:SourceIp", PrefixKey: "s3:prefix",
	}
}

// patterns stand in statements for the actions that they match, because the size
// of policies is limited: 2,048 characters for an inline policy of AWS IAM and of
// versitygw's, 4 KiB for a bucket policy that versitygw keeps in an extended
// attribute. Of all actions of Amazon S3 (Service Authorization Reference,
// "Actions, resources, and condition keys for Amazon S3") they match some of
// [cosi.Actions] and no other. GetObject* is none of them: it matches the
// reading of ACLs, retention, legal holds and torrents too.
var patterns = matched("DeleteObject*", "DeleteObject*Tagging", "GetObject*Attributes", "GetObject*Tagging", "PutObject*Tagging")

// pattern stands for actions.
type pattern struct {
	text  string
	names []string // what it matches
}

func matched(texts ...string) []pattern {
	out := make([]pattern, len(texts))
	for i, text := range texts {
		out[i].text = text
		for _, a := range cosi.Actions() {
			name := strings.TrimPrefix(a.Name, "s3:")
			if matches, _ := path.Match(text, name); matches {
				out[i].names = append(out[i].names, name)
			}
		}
	}
	return out
}

// actions are those that modes allow on some target, as a statement says them.
func (d Dialect) actions(m modes, on ...cosi.Target) []string {
	var out []string
	for _, a := range cosi.Actions() {
		if slices.Contains(on, a.On) && a.AllowedBy(m.data, m.Metadata) && !slices.Contains(d.Unknown, a.Name) {
			out = append(out, strings.TrimPrefix(a.Name, "s3:"))
		}
	}
	for _, p := range patterns {
		if missing := func(name string) bool { return !slices.Contains(out, name) }; slices.ContainsFunc(p.names, missing) {
			continue
		}
		out = append(slices.DeleteFunc(out, func(name string) bool { return slices.Contains(p.names, name) }), p.text)
	}
	slices.Sort(out)
	for i := range out {
		out[i] = d.ActionPrefix + out[i]
	}
	return out
}

// Allow are the statements that let their principals do with buckets what
// their scopes say, from the source addresses; none is anywhere. Their Sids begin
// with sid. A principal is named in the policies of buckets, and none in those of
// identities. FailedPrecondition if the dialect has no words for it.
func (d Dialect) Allow(sid string, buckets []cosi.BucketScope, sources []netip.Prefix, principals ...string) ([]Statement, error) {
	condition := map[string]map[string][]string{}
	if len(sources) > 0 {
		if d.SourceAddressKey == "" {
			return nil, fault.New(fault.FailedPrecondition, "the service's policies cannot limit a key to addresses")
		}
		for _, block := range sources {
			condition["IpAddress"] = map[string][]string{d.SourceAddressKey: append(condition["IpAddress"][d.SourceAddressKey], block.String())}
		}
	}
	var out []Statement
	for m, buckets := range grouped(buckets) {
		for i, prefix := range slices.Sorted(maps.Keys(buckets)) {
			names, part := buckets[prefix], ""
			if i > 0 { // a Sid is there once
				part = strconv.Itoa(i)
			}
			if strings.ContainsAny(prefix, "*?$") {
				return nil, fault.New(fault.FailedPrecondition, "the prefix %q has a character (one of *, ? and $) that policies read as a pattern; choose another prefix", prefix)
			}
			var wholes, objects []string
			for _, name := range names {
				wholes = append(wholes, d.ResourcePrefix+name)
				objects = append(objects, d.ResourcePrefix+name+"/"+prefix+"*")
			}
			add := func(kind string, actions []string, resources []string, more map[string]map[string][]string) {
				if len(actions) == 0 {
					return
				}
				s := Statement{Sid: sid + kind + m.String() + part, Effect: "Allow", Action: actions, Resource: resources, Condition: merged(condition, more)}
				if len(principals) > 0 {
					s.Principal = map[string][]string{d.PrincipalKey: principals}
				}
				out = append(out, s)
			}
			if prefix == "" {
				add("Bucket", d.actions(m, cosi.OnBucket, cosi.OnKeys), wholes, nil)
			} else {
				if d.PrefixKey == "" {
					return nil, fault.New(fault.FailedPrecondition, "the service's policies cannot limit a key to a part of a bucket")
				}
				// AWS takes no condition on the prefix with this one.
				listing := slices.DeleteFunc(d.actions(m, cosi.OnKeys), func(a string) bool { return a == d.ActionPrefix+"ListBucketMultipartUploads" })
				add("List", listing, wholes, map[string]map[string][]string{"StringLike": {d.PrefixKey: {prefix + "*"}}})
				add("Bucket", d.actions(m, cosi.OnBucket), wholes, nil)
			}
			add("Objects", d.actions(m, cosi.OnObject), objects, nil)
		}
	}
	slices.SortFunc(out, func(a, b Statement) int { return strings.Compare(a.Sid, b.Sid) })
	return out, nil
}

// modes are those of a scope, by category.
type modes struct {
	data cosi.AccessMode
	cosi.Metadata
}

func (m modes) String() string { return string(m.data) + m.Label() }

// grouped are the buckets of a scope by modes and prefix.
func grouped(buckets []cosi.BucketScope) map[modes]map[string][]string {
	out := map[modes]map[string][]string{}
	for _, b := range buckets {
		m := modes{b.Mode, b.Metadata}
		if out[m] == nil {
			out[m] = map[string][]string{}
		}
		out[m][b.Prefix] = append(out[m][b.Prefix], b.Bucket)
	}
	return out
}

func merged(a, b map[string]map[string][]string) map[string]map[string][]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := map[string]map[string][]string{}
	for _, m := range []map[string]map[string][]string{a, b} {
		maps.Copy(out, m)
	}
	return out
}

// Owner is the statement that keeps a bucket in its contract's hands where the
// policy, once there is one, is all that the service goes by.
func (d Dialect) Owner(bucket, principal string) Statement {
	return Statement{
		Sid: ownerSid, Effect: "Allow", Principal: map[string][]string{d.PrincipalKey: {principal}},
		Action: []string{d.ActionPrefix + "*"}, Resource: []string{d.ResourcePrefix + bucket, d.ResourcePrefix + bucket + "/*"},
	}
}
