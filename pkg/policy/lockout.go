package policy

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
)

// managing are the actions without which the driver can neither see how a bucket is
// configured nor take its policy away again. Others that a policy denies it, such as to
// delete objects, it has again once the policy is gone.
var managing = []string{
	"s3:getbucketpolicy", "s3:putbucketpolicy", "s3:deletebucketpolicy",
	"s3:getbucketacl", "s3:getbucketcors", "s3:getbucketlocation", "s3:getbucketobjectlockconfiguration", "s3:getbucketownershipcontrols",
	"s3:getbucketpublicaccessblock", "s3:getbucketrequestpayment", "s3:getbuckettagging", "s3:getbucketversioning", "s3:getbucketwebsite",
	"s3:getencryptionconfiguration", "s3:getlifecycleconfiguration",
	"s3:getbucketencryption", // Ceph's name of the first of these two
}

// LocksOut reports whether a policy may deny the driver what it needs to manage the
// bucket, so that it could no longer take the policy back. Own are names by which the
// driver goes at the service. "" is no policy.
//
// A denial is harmless only if it certainly does not reach the driver: it names other
// callers, or leaves out the actions that manage a bucket, or is on objects alone. A
// condition proves nothing, as what the service sees of the driver's requests is not
// known here: its address, or whether a proxy has taken TLS off.
func LocksOut(text string, own ...string) (bool, error) {
	d, err := Parse(text)
	if err != nil {
		return false, err
	}
	for _, raw := range d.statements {
		s, err := object("", raw, nil)
		if err != nil {
			return false, err
		}
		if slices.Contains(texts(s["Effect"]), "Deny") && !others(s["Principal"], own) && !leavesManaging(s) && !onObjects(texts(s["Resource"])) {
			return true, nil
		}
	}
	return false, nil
}

// others reports whether a principal is certainly none of the driver's: services, or
// users and roles with other names. An account has everyone in it. Where users have the
// names of their keys' slots, the driver's has the contract's own in it.
func others(raw json.RawMessage, own []string) bool {
	kinds := map[string]json.RawMessage{"AWS": raw}
	if len(raw) > 0 && raw[0] == '{' {
		kinds, _ = object("", raw, nil)
	}
	other := func(v string) bool {
		last := v[strings.LastIndexAny(v, ":/")+1:]
		is := func(part string) func(string) bool {
			return func(name string) bool { return strings.EqualFold(name, part) }
		}
		return last != "root" && !account.MatchString(last) && !slices.ContainsFunc(own, is(last)) &&
			!slices.ContainsFunc(strings.FieldsFunc(v, func(r rune) bool { return strings.ContainsRune(":/.$", r) }), is(cosi.ContractSlot))
	}
	for kind, who := range kinds {
		switch values := texts(who); {
		case kind == "Service" || kind == "Federated":
		case kind != "AWS" || !fixed(values) || !every(values, other):
			return false
		}
	}
	return len(kinds) > 0
}

var account = regexp.MustCompile(`^(RGW)?[0-9]*$`) // AWS's and Ceph's ids of accounts

// leavesManaging reports whether none of the actions of a denial manages a bucket.
func leavesManaging(s map[string]json.RawMessage) bool {
	in := func(patterns []string) func(string) bool {
		return func(action string) bool {
			return slices.ContainsFunc(patterns, func(pattern string) bool {
				ok, _ := path.Match(strings.ToLower(pattern), action) // * and ? mean the same, and no action has a /
				return ok && !strings.ContainsAny(pattern, `[\`)
			})
		}
	}
	if denied := texts(s["Action"]); denied != nil {
		return !slices.ContainsFunc(managing, in(denied))
	}
	return every(managing, in(texts(s["NotAction"])))
}

// variable is a policy variable, which may come to anything.
var variable = regexp.MustCompile(`\$\{[^}]*\}`)

// onObjects reports whether resources are objects alone, whose names have a bucket's and
// a slash before them.
func onObjects(resources []string) bool {
	return len(resources) > 0 && every(resources, func(r string) bool { return strings.Contains(variable.ReplaceAllString(r, ""), "/") })
}

func every(all []string, holds func(string) bool) bool {
	return !slices.ContainsFunc(all, func(text string) bool { return !holds(text) })
}
