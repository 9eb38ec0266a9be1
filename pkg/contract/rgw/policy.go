package rgw

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
)

// dialect is AWS's, without what releases before 20 do not know: they refuse a
// policy that names such an action, by a pattern too.
func dialect() policy.Dialect {
	d := policy.AWS()
	d.Unknown = []string{"s3:GetObjectAttributes", "s3:GetObjectVersionAttributes"}
	return d
}

// The names of the policies that the driver gives to users.
const (
	// grantPolicy says what a user may do.
	grantPolicy = "contract-cosi-driver"
	// suspendPolicy denies everything, as long as the contract is suspended.
	suspendPolicy = "contract-cosi-driver-suspended"
)

// ownPolicy lets the contract's own user do everything in its tenant, objects
// that other users wrote included. radosgw takes a resource to be in the tenant
// of the user whose policy names it, and none outside of it.
func ownPolicy() string {
	return document(policy.Statement{Sid: "AllowAll", Effect: "Allow", Action: []string{"s3:*"}, Resource: []string{"*"}})
}

func denyAll() string {
	return document(policy.Statement{Sid: "DenyAll", Effect: "Deny", Action: []string{"s3:*"}, Resource: []string{"*"}})
}

// An object belongs to the user who wrote it, and its ACL lets that user do all
// with it that no policy speaks of. So what a mode does not allow is denied, and
// by patterns, which cover what later releases know beside. NotAction would say
// it shorter; radosgw 16 passes over it.
var (
	denials = []struct {
		pattern string
		parts   []string // what is denied of it where something is allowed
	}{
		{"s3:GetObject*", []string{"s3:GetObject", "s3:GetObjectVersion", "s3:GetObject*Tagging", "s3:GetObjectA*", "s3:GetObjectVersionA*"}},
		{"s3:Put*", []string{"s3:PutObject", "s3:PutObject*Tagging"}},
		{"s3:Delete*", []string{"s3:DeleteObject", "s3:DeleteObjectVersion", "s3:DeleteObject*Tagging"}},
		{"s3:AbortMultipartUpload", nil},
		{"s3:ListMultipartUploadParts", nil},
		{"s3:*Acl", []string{"s3:Put*Acl", "s3:GetObject*Acl"}},
		{"s3:*Retention", nil}, {"s3:*LegalHold", nil}, {"s3:RestoreObject", nil}, {"s3:GetObjectTorrent", nil}, {"s3:GetObjectVersionTorrent", nil},
	}
	deletes = map[cosi.AccessMode][]string{
		cosi.ReadWrite: {"s3:DeleteObject", "s3:DeleteObjectVersion"},
		cosi.WriteOnly: {"s3:DeleteObject"},
	}
)

// denied are the actions that modes do not allow.
func denied(b contract.BucketScope) []string {
	allows := func(pattern string) bool {
		return slices.ContainsFunc(cosi.Actions(), func(a cosi.Action) bool {
			matches, _ := path.Match(pattern, a.Name)
			return matches && a.AllowedBy(b.Mode, b.Metadata)
		})
	}
	var out []string
	for _, d := range denials {
		if !allows(d.pattern) {
			out = append(out, d.pattern)
			continue
		}
		out = append(out, slices.DeleteFunc(slices.Clone(d.parts), allows)...)
	}
	return out
}

// policyOf is the policy of the user that has a key.
func policyOf(scope *contract.Scope) (string, error) {
	if scope == nil {
		return ownPolicy(), nil
	}
	return scopedPolicy(*scope)
}

// scopedPolicy is the policy of a user whose key is limited to scope.
// FailedPrecondition if radosgw's policies have no words for it.
func scopedPolicy(scope contract.Scope) (string, error) {
	if err := nameable(scope); err != nil {
		return "", err
	}
	dialect := dialect()
	statements, err := dialect.Allow("Allow", scope.Buckets, nil)
	if err != nil {
		return "", err
	}
	deny := func(s policy.Statement) {
		s.Effect = "Deny"
		statements = append(statements, s)
	}
	everything := []string{"s3:*"}
	var reached []string
	alike := map[string]contract.BucketScope{} // one of those with the same modes
	wholes, within := map[string][]string{}, map[string][]string{}
	for _, b := range scope.Buckets {
		modes := string(b.Mode) + b.Label()
		alike[modes] = b
		bucket := dialect.ResourcePrefix + b.Bucket
		reached = append(reached, bucket, bucket+"/"+b.Prefix+"*")
		wholes[modes] = append(wholes[modes], bucket)
		within[modes] = append(within[modes], bucket, bucket+"/*")
	}
	for _, modes := range slices.Sorted(maps.Keys(alike)) {
		if actions := deletes[alike[modes].Mode]; len(actions) > 0 {
			// Whether several objects may be deleted in one request is asked of the
			// bucket first, and then of each object.
			statements = append(statements, policy.Statement{Sid: "AllowDeleteMany" + modes, Effect: "Allow", Action: actions, Resource: wholes[modes]})
		}
		deny(policy.Statement{Sid: "Deny" + modes, Action: denied(alike[modes]), Resource: within[modes]})
	}
	deny(policy.Statement{Sid: "DenyElsewhere", Action: everything, NotResource: reached})
	if len(scope.SourceAddresses) > 0 {
		blocks := make([]string, len(scope.SourceAddresses))
		for i, a := range scope.SourceAddresses {
			blocks[i] = a.String()
		}
		deny(policy.Statement{
			Sid: "DenyFromElsewhere", Action: everything, Resource: []string{"*"},
			Condition: map[string]map[string][]string{"NotIpAddress": {dialect.SourceAddressKey: blocks}},
		})
	}
	return document(statements...), nil
}

// nameable checks that radosgw's policies have words for a scope.
func nameable(scope contract.Scope) error {
	for _, b := range scope.Buckets {
		if strings.Contains(b.Prefix, ":") {
			return fault.New(fault.FailedPrecondition, "the prefix %q has a colon, which the Ceph gateway's policies cannot name; choose another prefix", b.Prefix)
		}
	}
	return nil
}

// document is a policy's text, as it is sent.
func document(statements ...policy.Statement) string {
	d, _ := policy.Parse("") // of nothing there is nothing to find fault with
	d.Set(policy.AWS().Version, statements...)
	return d.Escaped()
}
