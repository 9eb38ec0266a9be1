package rgw

import (
	"maps"
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
	inNoMode = []string{
		"s3:*Acl", "s3:*Retention", "s3:*LegalHold", "s3:RestoreObject", "s3:GetObjectTorrent", "s3:GetObjectVersionTorrent",
	}
	denied = map[cosi.AccessMode][]string{
		cosi.ReadWrite: nil,
		cosi.ReadOnly:  {"s3:Put*", "s3:Delete*", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"},
		cosi.WriteOnly: {"s3:GetObject*", "s3:DeleteObjectVersion"},
	}
	deletes = map[cosi.AccessMode][]string{
		cosi.ReadWrite: {"s3:DeleteObject", "s3:DeleteObjectVersion"},
		cosi.WriteOnly: {"s3:DeleteObject"},
	}
)

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
	wholes, within := map[cosi.AccessMode][]string{}, map[cosi.AccessMode][]string{}
	for _, b := range scope.Buckets {
		bucket := dialect.ResourcePrefix + b.Bucket
		reached = append(reached, bucket, bucket+"/"+b.Prefix+"*")
		wholes[b.Mode] = append(wholes[b.Mode], bucket)
		within[b.Mode] = append(within[b.Mode], bucket, bucket+"/*")
	}
	for _, mode := range slices.Sorted(maps.Keys(wholes)) {
		if actions := deletes[mode]; len(actions) > 0 {
			// Whether several objects may be deleted in one request is asked of the
			// bucket first, and then of each object.
			statements = append(statements, policy.Statement{Sid: "AllowDeleteMany" + string(mode), Effect: "Allow", Action: actions, Resource: wholes[mode]})
		}
		deny(policy.Statement{Sid: "Deny" + string(mode), Action: slices.Concat(denied[mode], inNoMode), Resource: within[mode]})
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
