package policy

import (
	"encoding/json"
	"math"
	"net/netip"
	"slices"
	"strings"
)

// What opens a bucket to the public is what Amazon S3 Block Public Access calls
// public (Amazon S3 User Guide, "The meaning of public"), and everything besides
// that is not known to let in named callers only. The functions below are the
// one place that says so: for the guard of a contract, which asks before a bucket
// is made, and for drift, which asks of what a service has.

// PublicACL reports whether a canned ACL of S3 opens a bucket to the public.
func PublicACL(canned string) bool {
	return !slices.Contains([]string{"", "private", "bucket-owner-read", "bucket-owner-full-control", "log-delivery-write"}, canned)
}

// PublicGrantee reports whether a grantee of an ACL, in the notation of the grant
// headers (`id=…`, `uri=…`), is the public. A group is, whatever host and scheme
// the service names it with, but for the group that S3 delivers logs as.
func PublicGrantee(grantee string) bool {
	uri, group := strings.CutPrefix(grantee, "uri=")
	return group && uri != "http://acs.amazonaws.com/groups/s3/LogDelivery"
}

// Public reports whether a policy opens its bucket to the public; see
// [WithoutPublic].
func Public(text string) (bool, error) {
	_, public, err := WithoutPublic(text)
	return public, err
}

// WithoutPublic reports whether a policy opens its bucket to the public, and
// returns it without the statements that do: as it was if there is none, "" if
// there is no other. "" is no policy. An error is a text that is no policy.
//
// A statement is judged by itself, whatever others deny, and so that no service
// reads more in it: names without case, of two members of a name the more open
// one, and what is missing as if it let everyone in. It is public if it allows
// something, unless it names its principals or has a condition that limits it.
func WithoutPublic(text string) (rest string, public bool, err error) {
	d, err := Parse(text)
	if err != nil {
		return "", false, err
	}
	all, _ := members(json.RawMessage(text))
	all = slices.DeleteFunc(all, func(m member) bool { return !m.is(member{name: "Statement"}) })
	// Of two lists a service may take either, or lay the one over the other.
	public = len(all) > 1
	d.statements = nil
	for _, m := range all {
		for _, s := range items(m.value) {
			if _, ok := members(s); ok && !publicStatement(s) {
				d.statements = append(d.statements, s)
			} else {
				public = true
			}
		}
		delete(d.members, m.name)
	}
	switch {
	case !public:
		return text, false, nil
	case d.Empty():
		return "", true, nil
	}
	return d.String(), true, nil
}

func publicStatement(raw json.RawMessage) bool {
	all, _ := members(raw)
	have := func(name string) []member {
		return slices.DeleteFunc(slices.Clone(all), func(m member) bool { return !m.is(member{name: name}) })
	}
	// only is a member that all services read alike.
	only := func(name string, holds func(json.RawMessage) bool) bool {
		m := have(name)
		return len(m) == 1 && m[0].name == name && holds(m[0].value)
	}
	allows := func(effect member) bool {
		var text string
		return json.Unmarshal(effect.value, &text) != nil || !strings.EqualFold(text, "Deny")
	}
	effects := have("Effect")
	switch {
	case len(effects) > 0 && !slices.ContainsFunc(effects, allows):
		return false
	case len(have("NotPrincipal")) > 0:
		return true
	}
	return !only("Principal", named) && !only("Condition", limits)
}

// named reports whether a principal is one or more that are named. A federated
// one is an identity provider, at which anyone may have an identity.
func named(raw json.RawMessage) bool {
	if raw[0] != '{' {
		return fixed(texts(raw))
	}
	kinds, err := object("", raw, nil)
	for kind, who := range kinds {
		if strings.EqualFold(kind, "Federated") || !fixed(texts(who)) {
			return false
		}
	}
	return err == nil && len(kinds) > 0
}

// fixed reports whether there are values, and each is of one or more callers and
// of no other: it has no wildcard and no policy variable, and is not what some
// services call the one who comes without a key.
func fixed(values []string) bool {
	return len(values) > 0 && !slices.ContainsFunc(values, func(v string) bool {
		last := v[strings.LastIndexAny(v, ":/")+1:]
		return v == "" || strings.ContainsAny(v, "*?") || strings.Contains(v, "${") ||
			strings.EqualFold(last, "anonymous") || strings.HasSuffix(v, "::root") // of no account: Ceph's default tenant
	})
}

// The forms of conditions that limit a statement to some callers: they hold only
// if the request has the key, and its value is one that is given. The keys are
// those of "The meaning of public" that are the service's to know and not the
// caller's to choose. So the one for a KMS key is left out: it is a header of the
// request, which proves something at a service only that asks its KMS too.
var (
	limitingOperators = []string{"StringEquals", "StringEqualsIgnoreCase", "StringLike", "ArnEquals", "ArnLike"}
	limitingKeys      = []string{
		"aws:SourceArn", "aws:SourceVpc", "aws:SourceVpce", "aws:SourceOwner", "aws:SourceAccount", "aws:userid", "aws:PrincipalOrgID",
		"s3:DataAccessPointArn", "s3:DataAccessPointAccount",
	}
)

// limits reports whether a condition is known to limit a statement. All of its
// tests have to hold, so one that limits is enough.
func limits(raw json.RawMessage) bool {
	operators, err := object("", raw, nil)
	if err != nil {
		return false
	}
	found := false
	for operator, tests := range operators {
		keys, err := object("", tests, nil)
		if err != nil {
			return false
		}
		for key, values := range keys {
			is := func(name string) bool { return strings.EqualFold(name, key) } // as IAM compares the names of keys
			found = found || operator == "IpAddress" && is("aws:SourceIp") && narrow(texts(values)) ||
				slices.Contains(limitingOperators, operator) && slices.ContainsFunc(limitingKeys, is) && fixed(texts(values))
		}
	}
	return found
}

var (
	// private networks are not the public, however broad they are.
	private = blocks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
	// embedding blocks of IPv6 have all of IPv4 in them, for some services.
	embedding = blocks("::/96", "::ffff:0:0/96", "64:ff9b::/96")
)

func blocks(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}

// narrow reports whether address blocks are no part of the Internet that is the
// public: together no more than a /8 of IPv4 or a /32 of IPv6, which is what S3
// lets pass of one.
func narrow(texts []string) bool {
	var v4, v6 float64 // parts of the whole
	for _, t := range texts {
		block, ok := ParseBlock(t)
		if !ok || slices.ContainsFunc(embedding, block.Overlaps) {
			return false
		}
		part := math.Ldexp(1, -block.Bits())
		switch within := func(p netip.Prefix) bool { return p.Overlaps(block) && p.Bits() <= block.Bits() }; {
		case slices.ContainsFunc(private, within):
		case block.Addr().Is4():
			v4 += part
		default:
			v6 += part
		}
	}
	return len(texts) > 0 && v4 <= 1./(1<<8) && v6 <= 1./(1<<32)
}

// ParseBlock reads a CIDR block, or an address as the block that holds nothing
// else. An IPv4 address in IPv6's notation is none: services disagree on it.
func ParseBlock(text string) (netip.Prefix, bool) {
	block, err := netip.ParsePrefix(text)
	if err != nil {
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" {
			return netip.Prefix{}, false
		}
		block = netip.PrefixFrom(address, address.BitLen())
	}
	return block.Masked(), !block.Addr().Is4In6()
}
