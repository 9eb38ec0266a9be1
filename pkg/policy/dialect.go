package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
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
}

// AWS is the dialect of Amazon S3.
func AWS() Dialect {
	return Dialect{
		Version: "2012-10-17", ActionPrefix: "s3:", ResourcePrefix: "arn:aws:s3:::", PrincipalKey: "AWS",
		SourceAddressKey: "aws:SourceIp", PrefixKey: "s3:prefix",
	}
}

// What a mode means. Bucket administration, ACLs and object lock are nobody's
// but the contract's own. Old versions go only by a key that may also read, so
// that one in an exposed place cannot destroy history.
var (
	onBucket = map[cosi.AccessMode][]string{
		cosi.ReadOnly:  {"GetBucketLocation"},
		cosi.ReadWrite: {"GetBucketLocation", "ListBucketMultipartUploads"},
	}
	listing = map[cosi.AccessMode][]string{
		cosi.ReadOnly:  {"ListBucket", "ListBucketVersions"},
		cosi.ReadWrite: {"ListBucket", "ListBucketVersions"},
	}
	onObjects = map[cosi.AccessMode][]string{
		cosi.ReadOnly:  {"GetObject", "GetObjectTagging", "GetObjectVersion", "GetObjectVersionTagging"},
		cosi.WriteOnly: {"AbortMultipartUpload", "DeleteObject", "ListMultipartUploadParts", "PutObject", "PutObjectTagging"},
		cosi.ReadWrite: {
			"AbortMultipartUpload", "DeleteObject", "DeleteObjectVersion", "GetObject", "GetObjectTagging", "GetObjectVersion",
			"GetObjectVersionTagging", "ListMultipartUploadParts", "PutObject", "PutObjectTagging",
		},
	}
)

// Allow are the statements that let whoever they are about do what scope says.
// Their Sids begin with sid. A principal is named in the policies of buckets,
// and none in those of identities. FailedPrecondition if the dialect has no
// words for the scope.
func (d Dialect) Allow(sid string, scope contract.Scope, principals ...string) ([]Statement, error) {
	condition := map[string]map[string][]string{}
	if len(scope.SourceAddresses) > 0 {
		if d.SourceAddressKey == "" {
			return nil, fault.New(fault.FailedPrecondition, "the service's policies cannot limit a key to addresses")
		}
		for _, block := range scope.SourceAddresses {
			condition["IpAddress"] = map[string][]string{d.SourceAddressKey: append(condition["IpAddress"][d.SourceAddressKey], block.String())}
		}
	}
	var out []Statement
	for mode, buckets := range grouped(scope.Buckets) {
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
				s := Statement{Sid: sid + kind + string(mode) + part, Effect: "Allow", Resource: resources, Condition: merged(condition, more)}
				for _, a := range actions {
					s.Action = append(s.Action, d.ActionPrefix+a)
				}
				if len(principals) > 0 {
					s.Principal = map[string][]string{d.PrincipalKey: principals}
				}
				out = append(out, s)
			}
			if prefix == "" {
				add("Bucket", slices.Concat(onBucket[mode], listing[mode]), wholes, nil)
			} else {
				if d.PrefixKey == "" {
					return nil, fault.New(fault.FailedPrecondition, "the service's policies cannot limit a key to a part of a bucket")
				}
				// Unfinished uploads cannot be limited by prefix everywhere.
				add("List", listing[mode], wholes, map[string]map[string][]string{"StringLike": {d.PrefixKey: {prefix + "*"}}})
				add("Bucket", onBucket[cosi.ReadOnly][:min(1, len(onBucket[mode]))], wholes, nil)
			}
			add("Objects", onObjects[mode], objects, nil)
		}
	}
	slices.SortFunc(out, func(a, b Statement) int { return strings.Compare(a.Sid, b.Sid) })
	return out, nil
}

// grouped are the buckets of a scope by mode and prefix.
func grouped(buckets []contract.BucketScope) map[cosi.AccessMode]map[string][]string {
	out := map[cosi.AccessMode]map[string][]string{}
	for _, b := range buckets {
		if out[b.Mode] == nil {
			out[b.Mode] = map[string][]string{}
		}
		out[b.Mode][b.Prefix] = append(out[b.Mode][b.Prefix], b.Bucket)
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
