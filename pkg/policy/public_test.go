package policy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
)

// statement is one that allows something, with more members.
func statement(more string) string {
	return `{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*",` + more + `}`
}

func document(statements ...string) string {
	return `{"Version":"2012-10-17","Statement":[` + strings.Join(statements, ",") + `]}`
}

func public(t *testing.T, text string) bool {
	t.Helper()
	got, err := policy.Public(text)
	if err != nil {
		t.Errorf("%s: %v", text, err)
	}
	return got
}

func TestPublicPrincipals(t *testing.T) {
	t.Parallel()
	for principal, want := range map[string]bool{
		`"*"`:                                    true,
		`["*"]`:                                  true,
		`{"AWS":"*"}`:                            true,
		`{"AWS":["C1","*"]}`:                     true,
		`{"AWS":"C1","Service":"*"}`:             true,
		`{"CanonicalUser":"*"}`:                  true,
		`{"AWS":"arn:aws:iam::*:root"}`:          true,
		`{"AWS":"arn:*:iam::1:user/a"}`:          true,
		`{"AWS":"arn:aws:iam::1:user/?"}`:        true,
		`{"AWS":"${aws:PrincipalArn}"}`:          true,
		`{"AWS":""}`:                             true, // Ceph: the tenant without a name
		`{"AWS":"arn:aws:iam:::root"}`:           true, // and so there
		`{"AWS":"arn:aws:iam:::user/anonymous"}`: true,
		`{"AWS":"anonymous"}`:                    true,
		`{"Federated":"accounts.google.com"}`:    true,
		`{}`:                                     true,
		`[]`:                                     true,
		`null`:                                   true,
		`{"AWS":[]}`:                             true,
		`{"AWS":12}`:                             true,
		`{"AWS":{"AWS":"C1"}}`:                   true,
		`{"AWS":"C1","aws":"C1"}`:                true, // which may be either
		`"C1"`:                                   false,
		`["C1","C2"]`:                            false,
		`{"AWS":"C1"}`:                           false,
		`{"AWS":["123456789012","arn:aws:iam::1:user/a"]}`:       false,
		`{"AWS":"arn:aws:iam::123456789012:root"}`:               false,
		`{"AWS":"arn:aws-cn:sts::1:assumed-role/role/session"}`:  false,
		`{"Service":"logging.s3.amazonaws.com"}`:                 false,
		`{"CanonicalUser":"79a59df900b949e55d96a1e698fbacedfd"}`: false,
		`{"IIJGIO":["1-22-333-4444"]}`:                           false,
	} {
		if got := public(t, document(statement(`"Principal":`+principal))); got != want {
			t.Errorf("Principal %s: public %v, want %v", principal, got, want)
		}
	}
	for text, want := range map[string]bool{
		document(`{"Effect":"Allow","Action":"s3:GetObject"}`):                                                      true, // no one is named
		document(statement(`"NotPrincipal":{"AWS":"C1"}`)):                                                          true,
		document(statement(`"NotPrincipal":{"AWS":"C1"},"Principal":{"AWS":"C1"}`)):                                 true,
		document(statement(`"NotPrincipal":"C1","Condition":` + inNetwork)):                                         true,
		document(`{"Effect":"Deny","Principal":"*","Action":"*"}`):                                                  false,
		document(`{"Effect":"Deny","NotPrincipal":"C1","Action":"*"}`):                                              false,
		document(`{"Effect":"Deny","Principal":"*"}`, statement(`"Principal":"*"`)):                                 true, // what is denied may not be what is allowed
		document(`{"effect":"allow","Principal":"*","Action":"*"}`):                                                 true,
		document(`{"Effect":"Deny","effect":"Allow","Principal":"*","Action":"*"}`):                                 true,
		document(`{"Effect":"Deny","Effect":"Allow","Principal":"*","Action":"*"}`):                                 true,
		document(`{"Effect":"Allow","Effect":"Deny","Principal":"*","Action":"*"}`):                                 true,
		document(statement(`"Principal":{"AWS":"nobody"},"principal":"*"`)):                                         true,
		document(statement(`"Principal":{"AWS":"nobody"},"Principal":"*"`)):                                         true,
		document(statement(`"Principal":"*","Principal":{"AWS":"nobody"}`)):                                         true,
		document(statement(`"principal":{"AWS":"C1"}`)):                                                             true, // or no one is named
		document(statement(`"Princip\u0061l":"*"`)):                                                                 true,
		document(statement(`"Princip\u0061l":{"AWS":"C1"}`)):                                                        false,
		document(statement(`"Principal":"C1","Princip\u0061l":"*"`)):                                                true,
		document(statement(`"Principal":"*","condition":` + inNetwork)):                                             true,
		document(statement(`"Principal":"*","Condition":{},"condition":` + inNetwork)):                              true,
		`{"Statement":` + statement(`"Principal":"*"`) + `}`:                                                        true,
		`{"statement":[` + statement(`"Principal":"*"`) + `]}`:                                                      true,
		"{\"\u017ftatement\":[" + statement(`"Principal":"*"`) + "]}":                                               true, // Go reads a long s as an s
		`{"\u017ftatement":[` + statement(`"Principal":"*"`) + `]}`:                                                 true,
		`{"Statement":[],"statement":[` + statement(`"Principal":"*"`) + `]}`:                                       true,
		`{"Statement":[` + statement(`"Principal":"*"`) + `],"Statement":[]}`:                                       true,
		`{"Statement":[{"Effect":"Deny","NotPrincipal":"C1"}],"statement":[` + statement(`"Principal":"C1"`) + `]}`: true, // Go lays the one over the other
		`{"statement":[` + statement(`"Principal":"C1"`) + `]}`:                                                     false,
		`{}`: false,
		"":   false,
	} {
		if got := public(t, text); got != want {
			t.Errorf("%s: public %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{"x", "[]", "null", `{"Statement":5}`, `{"Statement":[5]}`, "{} {}", "{}]"} {
		if got, err := policy.Public(text); err == nil {
			t.Errorf("%s: public %v and no error", text, got)
		}
	}
}

const inNetwork = `{"IpAddress":{"aws:SourceIp":"192.0.2.0/24"}}`

func TestPublicConditions(t *testing.T) {
	t.Parallel()
	for condition, limits := range map[string]bool{
		inNetwork: true,
		`{"IpAddress":{"aws:sourceip":["192.0.2.0/24","2001:db8::/32"]}}`:                                               true, // names of keys have no case
		`{"IpAddress":{"aws:SourceIp":"11.0.0.0/8"}}`:                                                                   true,
		`{"IpAddress":{"aws:SourceIp":["10.0.0.0/8","172.16.0.0/12","192.168.0.0/16","fd00::/8","192.0.2.1","::2:1"]}}`: false, // the last is in ::/96
		`{"IpAddress":{"aws:SourceIp":["10.0.0.0/8","172.16.0.0/12","192.168.0.0/16","fd00::/8","192.0.2.1"]}}`:         true,
		`{"StringEquals":{"aws:SourceVpc":"vpc-1"}}`:                                                                    true,
		`{"StringEquals":{"aws:SourceVpce":["vpce-1","vpce-2"]}}`:                                                       true,
		`{"StringLike":{"aws:SourceVpc":"vpc-1"}}`:                                                                      true,
		`{"ArnEquals":{"aws:SourceArn":"arn:aws:s3:::other"}}`:                                                          true,
		`{"ArnLike":{"aws:SourceArn":"arn:aws:s3:::other"}}`:                                                            true,
		`{"StringEquals":{"aws:SourceAccount":"123456789012"}}`:                                                         true,
		`{"StringEquals":{"aws:SourceOwner":"123456789012"}}`:                                                           true,
		`{"StringEquals":{"aws:PrincipalOrgID":"o-1"}}`:                                                                 true,
		`{"StringEquals":{"aws:userid":"AIDA1"}}`:                                                                       true,
		`{"StringEquals":{"s3:DataAccessPointAccount":"123456789012"}}`:                                                 true,
		`{"StringEquals":{"s3:DataAccessPointArn":"arn:aws:s3:eu-1:1:accesspoint/a"}}`:                                  true,
		`{"Bool":{"aws:SecureTransport":"true"},"IpAddress":{"aws:SourceIp":"192.0.2.0/24"}}`:                           true, // both have to hold

		`{}`:                                  false,
		`null`:                                false,
		`[]`:                                  false,
		`{"IpAddress":{}}`:                    false,
		`{"IpAddress":{"aws:SourceIp":[]}}`:   false,
		`{"IpAddress":{"aws:SourceIp":null}}`: false,
		`{"IpAddress":{"aws:SourceIp":"0.0.0.0/0"}}`:                                                             false,
		`{"IpAddress":{"aws:SourceIp":"::/0"}}`:                                                                  false,
		`{"IpAddress":{"aws:SourceIp":["192.0.2.0/24","0.0.0.0/0"]}}`:                                            false,
		`{"IpAddress":{"aws:SourceIp":["0.0.0.0/1","128.0.0.0/1"]}}`:                                             false,
		`{"IpAddress":{"aws:SourceIp":"10.0.0.0/7"}}`:                                                            false,
		`{"IpAddress":{"aws:SourceIp":["11.0.0.0/8","12.0.0.0/8"]}}`:                                             false, // together
		`{"IpAddress":{"aws:SourceIp":"2001::/31"}}`:                                                             false,
		`{"IpAddress":{"aws:SourceIp":"::/32"}}`:                                                                 false, // Ceph: all of IPv4
		`{"IpAddress":{"aws:SourceIp":"::/97"}}`:                                                                 false, // Ceph: half of it
		`{"IpAddress":{"aws:SourceIp":"::ffff:0:0/96"}}`:                                                         false,
		`{"IpAddress":{"aws:SourceIp":"::ffff:192.0.2.0/120"}}`:                                                  false,
		`{"IpAddress":{"aws:SourceIp":"somewhere"}}`:                                                             false,
		`{"IpAddress":{"aws:SourceIp":"192.0.2.0/024"}}`:                                                         false,
		`{"IpAddress":{"aws:VpcSourceIp":"192.0.2.0/24"}}`:                                                       false,
		`{"NotIpAddress":{"aws:SourceIp":"192.0.2.1/32"}}`:                                                       false,
		`{"IpAddressIfExists":{"aws:SourceIp":"192.0.2.0/24"}}`:                                                  false,
		`{"ForAllValues:IpAddress":{"aws:SourceIp":"192.0.2.0/24"}}`:                                             false,
		`{"ipaddress":{"aws:SourceIp":"192.0.2.0/24"}}`:                                                          false,
		`{"StringLike":{"aws:SourceIp":"192.0.2.0/24"}}`:                                                         false,
		`{"IpAddress":{"aws:SourceIp":"192.0.2.0/24"},"ipAddress":{"aws:SourceIp":"0.0.0.0/0"}}`:                 false,
		`{"IpAddress":{"aws:SourceIp":"192.0.2.0/24"},"IpAddress":{"aws:SourceIp":"0.0.0.0/0"}}`:                 false,
		`{"IpAddress":{"aws:SourceIp":"192.0.2.0/24","AWS:SourceIp":"0.0.0.0/0"}}`:                               false,
		`{"IpAddress":{"aws:SourceIp":"192.0.2.0/24"},"StringEquals":{"aws:SourceVpc":"a","aws:sourcevpc":"b"}}`: false,
		`{"StringLike":{"aws:SourceVpc":"*"}}`:                                                                   false,
		`{"StringLike":{"aws:SourceVpc":["vpc-1","vpc-?"]}}`:                                                     false,
		`{"StringEquals":{"aws:SourceVpc":""}}`:                                                                  false,
		`{"StringEquals":{"aws:SourceVpc":"${aws:SourceVpc}"}}`:                                                  false,
		`{"StringNotEquals":{"aws:SourceVpc":"vpc-1"}}`:                                                          false,
		`{"StringEqualsIfExists":{"aws:SourceVpc":"vpc-1"}}`:                                                     false,
		`{"ForAllValues:StringEquals":{"aws:SourceVpc":"vpc-1"}}`:                                                false,
		`{"Null":{"aws:SourceVpc":"true"}}`:                                                                      false,
		`{"StringLike":{"aws:userid":"AROA1:*"}}`:                                                                false,
		`{"StringEquals":{"aws:userid":"anonymous"}}`:                                                            false, // AWS: who has no key
		`{"StringLike":{"aws:Referer":"*"}}`:                                                                     false,
		`{"StringEquals":{"aws:Referer":"https://www.example.com/"}}`:                                            false, // the caller's to choose
		`{"StringEquals":{"aws:UserAgent":"x"}}`:                                                                 false,
		`{"StringEquals":{"s3:x-amz-acl":"private"}}`:                                                            false,
		`{"StringEquals":{"s3:x-amz-server-side-encryption-aws-kms-key-id":"arn:aws:kms:eu-1:1:key/a"}}`:         false,
		`{"StringEquals":{"s3:prefix":"public/"}}`:                                                               false,
		`{"Bool":{"aws:SecureTransport":"true"}}`:                                                                false,
		`{"DateGreaterThan":{"aws:CurrentTime":"2000-01-01T00:00:00Z"}}`:                                         false,
		`{"DateLessThan":{"aws:CurrentTime":"2000-01-01T00:00:00Z"}}`:                                            false,
		`{"NumericLessThan":{"s3:max-keys":"10"}}`:                                                               false,
	} {
		if got := public(t, document(statement(`"Principal":"*","Condition":`+condition))); got == limits {
			t.Errorf("with the condition %s: public %v, want %v", condition, got, !limits)
		}
	}
}

func TestWithoutPublic(t *testing.T) {
	t.Parallel()
	const deny = `{"Effect":"Deny","Principal":"*","Action":"s3:DeleteObject"}`
	const open, named = `{"Effect":"Allow","Principal":"*"}`, `{"Effect":"Allow","Principal":{"AWS":"C1"},"New":1e400}`
	for name, c := range map[string]struct{ policy, rest string }{
		"the only one":           {document(open), ""},
		"without a list":         {`{"Statement":` + open + `}`, ""},
		"others stay as written": {`{"Version":"2012-10-17","Statement":[` + open + `,` + deny + `],"Own":1.50}`, `{"Own":1.50,"Statement":[` + deny + `],"Version":"2012-10-17"}`},
		"in another case":        {`{"statement":[` + open + `,` + named + `]}`, `{"Statement":[` + named + `]}`},
		"two lists":              {`{"Statement":[` + named + `],"statement":[` + deny + `,` + open + `]}`, `{"Statement":[` + named + `,` + deny + `]}`},
		"two that are closed":    {`{"Statement":[` + named + `],"Statement":[` + deny + `]}`, `{"Statement":[` + named + `,` + deny + `]}`},
		"none":                   {document(named, deny), document(named, deny)},
		"no statement":           {`{"Own":1}`, `{"Own":1}`},
	} {
		rest, public, err := policy.WithoutPublic(c.policy)
		if err != nil || rest != c.rest || public != (rest != c.policy) {
			t.Errorf("%s: %q, %v (%v); want %q", name, rest, public, err, c.rest)
		}
	}
}

func TestPublicACLs(t *testing.T) {
	t.Parallel()
	for acl, want := range map[string]bool{
		"": false, "private": false, "public-read": true, "public-read-write": true, "authenticated-read": true, "aws-exec-read": true, "log-delivery-write": false, "new": true,
	} {
		if policy.PublicACL(acl) != want {
			t.Errorf("ACL %q: public %v, want %v", acl, !want, want)
		}
	}
	for grantee, want := range map[string]bool{
		"uri=http://acs.amazonaws.com/groups/global/AllUsers":             true,
		"uri=https://acs.amazonaws.com/groups/global/AllUsers":            true,
		"uri=http://acs.amazonaws.com/groups/global/AuthenticatedUsers":   true,
		"uri=http://acs.amazonaws.com.cn/groups/global/AllUsers":          true,
		"uri=http://acs.dag.iijgio.com/groups/global/AllUsers":            true,
		"uri=HTTP://ACS.AMAZONAWS.COM/groups/global/AllUsers":             true,
		"uri=http://acs.amazonaws.com/groups/s3/LogDelivery":              false,
		"uri=http://acs.amazonaws.com/groups/s3/LogDelivery/../AllUsers":  true,
		"id=79a59df900b949e55d96a1e698fbacedfd6e09d98eacf8f8d5218e7cd47e": false,
		"emailAddress=a@example.com":                                      false,
	} {
		if policy.PublicGrantee(grantee) != want {
			t.Errorf("%s: public %v, want %v", grantee, !want, want)
		}
	}
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                   "not a JSON object",
		"[]":                 "not a JSON object",
		"null":               "not a JSON object",
		"{}":                 "no Statement",
		document():           "no Statement",
		`{"Statement":null}`: "Statement[0] is not a JSON object",
		document("5"):        "Statement[0] is not a JSON object",
		document(statement(`"Principal":"*"`)) + "{}":                                         "text after",
		document(statement(`"Principal":"*"`)) + "}":                                          "text after",
		"{\"Statement\":[\"\xff\"]}":                                                          "not UTF-8",
		`{"Version":1,"Statement":[]}`:                                                        "Version is not a text",
		`{"Statement":[],"statement":[]}`:                                                     `the policy has "statement"; it may have Version, Id, Statement`,
		`{"Statement":[],"Statement":[]}`:                                                     `the policy has "Statement" twice`,
		`{"Statement":[],"St\u0061tement":[]}`:                                                `the policy has "Statement" twice`,
		`{"Statement":[],"X":[]}`:                                                             `the policy has "X"`,
		document(`{"Effect":"Maybe"}`):                                                        "neither Allow nor Deny",
		document(`{"Effect":"allow"}`):                                                        "neither Allow nor Deny",
		document(`{"effect":"Allow"}`):                                                        `Statement[0] has "effect"`,
		document(statement(`"Principal":"C1","principal":"*"`)):                               `Statement[0] has "principal"`,
		document(statement(`"Principal":"C1","Principal":"*"`)):                               `Statement[0] has "Principal" twice`,
		document(statement(`"Sid":"a"`)):                                                      "has no Principal",
		document(statement(`"Principal":"C1","NotPrincipal":"C1"`)):                           "has both Principal and NotPrincipal",
		document(statement(`"Principal":"C1","NotAction":"x"`)):                               "has both Action and NotAction",
		document(statement(`"Principal":"C1","NotResource":"x"`)):                             "has both Resource and NotResource",
		document(`{"Effect":"Allow","Principal":"C1","Action":"x"}`):                          "has no Resource",
		document(`{"Effect":"Allow","Principal":"C1","Action":{"a":"x"},"Resource":"x"}`):     "Statement[0].Action is neither",
		document(`{"Effect":"Allow","Principal":"C1","Action":[],"Resource":"x"}`):            "Statement[0].Action is neither",
		document(statement(`"Principal":{"AWS":"C1","aws":"*"}`)):                             `Statement[0].Principal has "aws" twice`,
		document(statement(`"Principal":{"AWS":[1]}`)):                                        "Statement[0].Principal is neither",
		document(statement(`"Principal":{}`)):                                                 "Statement[0].Principal is neither",
		document(statement(`"Principal":null`)):                                               "Statement[0].Principal is neither",
		document(statement(`"Principal":"C1","Sid":1`)):                                       "Statement[0].Sid is not a text",
		document(statement(`"Principal":"C1","Condition":[]`)):                                "Statement[0].Condition is not a JSON object",
		document(statement(`"Principal":"C1","Condition":{"Bool":1}`)):                        `Statement[0].Condition["Bool"] is not a JSON object`,
		document(statement(`"Principal":"C1","Condition":{"Bool":{},"bool":{}}`)):             `Statement[0].Condition has "bool" twice`,
		document(statement(`"Principal":"C1","Condition":{"Bool":{"a:b":"","A:B":""}}`)):      `Statement[0].Condition["Bool"] has "A:B" twice`,
		`{"Statement":` + statement(`"Principal":"*"`) + `}`:                                  "",
		document(statement(`"Princip\u0061l":{"AWS":["a"]},"Condition":{"Bool":{"a":true}}`)): "",
	} {
		got, err := policy.Canonical(text)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		case err != nil && len(err.Error()) > 400:
			t.Errorf("%d bytes of %q", len(err.Error()), err)
		}
	}
}

// naive is how a service may read a document: names in any case or as they are,
// and of two members of a name the first or the last. It knows the plainest form
// of a public statement only.
type naive struct{ folds, first bool }

func (n naive) read(raw json.RawMessage) any {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	switch open, _ := decoder.Token(); open {
	case json.Delim('{'):
		out := map[string]any{}
		for decoder.More() {
			name, _ := decoder.Token()
			var value json.RawMessage
			if decoder.Decode(&value) != nil {
				return nil
			}
			key := name.(string)
			if n.folds {
				for _, known := range []string{"Statement", "Effect", "Principal", "NotPrincipal", "Condition", "AWS"} {
					if strings.EqualFold(known, key) {
						key = known
					}
				}
			}
			if _, have := out[key]; !have || !n.first {
				out[key] = n.read(value)
			}
		}
		return out
	case json.Delim('['):
		var list []json.RawMessage
		_ = json.Unmarshal(raw, &list)
		var out []any
		for _, item := range list {
			out = append(out, n.read(item))
		}
		return out
	default:
		return open
	}
}

func (n naive) public(text string) bool {
	doc, _ := n.read(json.RawMessage(text)).(map[string]any)
	list, _ := doc["Statement"].([]any)
	if lone, ok := doc["Statement"].(map[string]any); ok {
		list = []any{lone}
	}
	return slices.ContainsFunc(list, func(v any) bool {
		s, _ := v.(map[string]any)
		condition, _ := s["Condition"].(map[string]any)
		who := s["Principal"]
		if kinds, ok := who.(map[string]any); ok {
			who = kinds["AWS"]
		}
		names, _ := who.([]any)
		return s["Effect"] == "Allow" && (who == "*" || slices.Contains(names, any("*")) || s["NotPrincipal"] != nil) && len(condition) == 0
	})
}

// laidOver is how a gateway in Go reads a document.
func laidOver(text string) bool {
	var doc struct {
		Statement []struct {
			Effect                  string
			Principal, NotPrincipal any
			Condition               map[string]any
		}
	}
	if json.Unmarshal([]byte(text), &doc) != nil {
		return false
	}
	for _, s := range doc.Statement {
		if s.Effect == "Allow" && (s.Principal == "*" || s.NotPrincipal != nil) && len(s.Condition) == 0 {
			return true
		}
	}
	return false
}

// Whichever way a service reads a policy, if it reads one that is public, it is
// called public or refused; and what is left without that is not public.
func FuzzPublic(f *testing.F) {
	for _, more := range []string{
		`"Principal":"*"`, `"Principal":{"AWS":"nobody"},"principal":"*"`, `"Princip\u0061l":{"AWS":["*"]}`, `"NotPrincipal":{"AWS":"C1"}`,
		`"Principal":"*","Condition":{}`, `"Principal":"*","Condition":` + inNetwork, `"Principal":"*","Condition":{"IpAddress":{"aws:SourceIp":"::/0"}},"condition":{}`,
		`"effect":"Deny","Principal":{"aws":"*","AWS":"C1"}`,
	} {
		f.Add(document(statement(more)))
		f.Add(fmt.Sprintf(`{"Statement":[{"Effect":"Deny",%s}],"statement":[%s]}`, more, statement(`"Principal":"C1"`)))
		f.Add(fmt.Sprintf(`{"Statement":%s,"statement":[%s]}`, statement(more), statement(`"Principal":"C1"`)))
	}
	f.Add(foreign)
	f.Fuzz(checkReadings)
}

func checkReadings(t *testing.T, text string) {
	rest, public, err := policy.WithoutPublic(text)
	canonical, strict := policy.Canonical(text)
	read := laidOver(text)
	for _, n := range []naive{{false, false}, {false, true}, {true, false}, {true, true}} {
		read = read || json.Valid([]byte(text)) && n.public(text)
	}
	if read && err == nil && !public {
		t.Errorf("%q is public for some, and not called so", text)
	}
	if strict == nil {
		if again, err := policy.Canonical(canonical); err != nil || again != canonical {
			t.Errorf("%q is not stable: %q (%v)", canonical, again, err)
		}
		if of, err := policy.Public(canonical); err != nil || of != public {
			t.Errorf("%q: public %v, and in canonical form %v (%v)", text, public, of, err)
		}
	}
	if err != nil {
		return
	}
	if again, still, err := policy.WithoutPublic(rest); err != nil || still || again != rest {
		t.Errorf("%q leaves %q, which is still public (%v)", text, rest, err)
	}
	if !public && rest != text {
		t.Errorf("%q was not public and became %q", text, rest)
	}
}

// Documents of the grammar's words, in all cases and numbers, which random texts
// seldom are.
func TestPublicReadings(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	object := func(most int, member func() string) string {
		list := make([]string, random.IntN(most+1))
		for i := range list {
			list[i] = member()
		}
		return "{" + strings.Join(list, ",") + "}"
	}
	who := func() string {
		return pick(`"*"`, `"C1"`, `["C1","*"]`, `["C1"]`, `{"AWS":"*"}`, `{"AWS":"C1"}`, `{"aws":"*","AWS":"C1"}`, `{"AWS":"C1","AWS":["*"]}`, `{}`, `[]`)
	}
	member := func() string {
		switch random.IntN(5) {
		case 0:
			return pick(`"Effect"`, `"effect"`, `"E\u0066fect"`) + ":" + pick(`"Allow"`, `"Allow"`, `"Deny"`, `"allow"`)
		case 1, 2:
			return pick(`"Principal"`, `"Principal"`, `"principal"`, `"Princip\u0061l"`, `"NotPrincipal"`) + ":" + who()
		case 3:
			return pick(`"Condition"`, `"condition"`) + ":" + pick(`{}`, inNetwork, `{"IpAddress":{"aws:SourceIp":"::/0"}}`, `{"Null":{}}`)
		}
		return pick(`"Action":"s3:*"`, `"Resource":"*"`, `"Sid":"a"`, `"X":1`)
	}
	made := func() string { return object(6, member) }
	whole := func() string {
		return pick(`"Statement"`, `"Statement"`, `"statement"`, `"\u017ftatement"`) + ":" + pick(made(), "["+made()+"]", "["+made()+","+made()+"]")
	}
	public := 0
	for range 1000 {
		text := object(3, whole)
		checkReadings(t, text)
		if is, err := policy.Public(text); err == nil && is {
			public++
		}
		if t.Failed() {
			return
		}
	}
	if public < 300 || public > 950 {
		t.Errorf("%d of the documents were public", public)
	}
}
