package policy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
)

// What may lock the driver out, and what certainly does not.
func TestLocksOut(t *testing.T) {
	t.Parallel()
	const everyone, everything, whole = `"Principal":"*",`, `"Action":"s3:*",`, `"Resource":"arn:aws:s3:::data"`
	for statement, want := range map[string]bool{
		everyone + everything + `"Resource":"*"`:                                            true,
		`"Principal":{"AWS":["*"]},"Action":["s3:GetObject","S3:Put*"],` + whole:            true,
		`"Principal":"*","Action":"s3:?etBucketPolicy",` + whole:                            true,
		`"Principal":"*","Action":"s3:GetBucketVersioning",` + whole:                        true,
		`"Principal":"*","Action":"s3:GetBucketEncryption",` + whole:                        true,
		`"NotPrincipal":{"AWS":"me"},"Action":"*",` + whole:                                 true,
		`"Principal":"*","NotAction":"s3:GetObject",` + whole:                               true,
		`"Principal":"*","NotAction":["s3:*BucketPolicy","s3:Get*"],` + whole:               false,
		`"Principal":"*","NotAction":["s3:*BucketPolic[y]","s3:Get*"],` + whole:             true,
		`"Principal":"*","Action":"s3:DeleteObject","Resource":"*"`:                         false,
		`"Principal":"*","Action":["s3:DeleteBucket","s3:PutBucketAcl","s3:Put?"],` + whole: false,

		// A condition may hold for the driver, whatever it says.
		everyone + everything + whole + `,"Condition":{}`:                                                             true,
		everyone + everything + whole + `,"Condition":{"StringLike":{"aws:UserAgent":"*"}}`:                           true,
		everyone + everything + whole + `,"Condition":{"StringNotEquals":{"aws:userid":"me"}}`:                        true,
		everyone + everything + whole + `,"Condition":{"DateGreaterThan":{"aws:CurrentTime":"2000-01-01T00:00:00Z"}}`: true,
		everyone + everything + whole + `,"Condition":{"Bool":{"aws:SecureTransport":"false"}}`:                       true,
		everyone + everything + whole + `,"Condition":{"NotIpAddress":{"aws:SourceIp":"10.0.0.0/8"}}`:                 true,

		// Those who are named are others, unless they are everyone, an account or the driver.
		`"Principal":{"AWS":"other"},` + everything + whole:                                                                                  false,
		`"Principal":"other",` + everything + whole:                                                                                          false,
		`"Principal":{"AWS":["arn:aws:iam::123456789012:user/app","arn:aws:iam::1:role/x"]},` + everything + whole:                           false,
		`"Principal":{"AWS":["other","KEY"]},` + everything + whole:                                                                          true,
		`"Principal":{"AWS":"arn:aws:iam::team:user/media"},` + everything + whole:                                                           true,
		`"Principal":{"AWS":"arn:aws:iam::1:user/driver/media/contract-administration/media.contract-administration"},` + everything + whole: true,
		`"Principal":{"AWS":"arn:aws:iam::1:user/media.Contract-Administration"},` + everything + whole:                                      true,
		`"Principal":{"AWS":"arn:aws:iam::media:user/contract-administration"},` + everything + whole:                                        true,
		`"Principal":{"AWS":"media$contract-administration"},` + everything + whole:                                                          true,
		`"Principal":{"AWS":"arn:aws:iam::1:user/driver/media/app/media.app"},` + everything + whole:                                         false,
		`"Principal":{"AWS":"arn:aws:iam::123456789012:root"},` + everything + whole:                                                         true,
		`"Principal":{"AWS":"123456789012"},` + everything + whole:                                                                           true,
		`"Principal":{"AWS":"arn:aws:iam::RGW12345678901234567:root"},` + everything + whole:                                                 true,
		`"Principal":{"AWS":"arn:aws:iam:::user/${aws:username}"},` + everything + whole:                                                     true,
		`"Principal":{"CanonicalUser":"abc"},` + everything + whole:                                                                          true,
		`"Principal":{"Service":"logging.s3.amazonaws.com"},` + everything + whole:                                                           false,
		`"Principal":{"Service":"logging.s3.amazonaws.com","AWS":"*"},` + everything + whole:                                                 true,

		// Objects are not the bucket.
		everyone + everything + `"Resource":"arn:aws:s3:::data/*"`:                       false,
		everyone + everything + `"Resource":["arn:aws:s3:::data/*","arn:aws:s3:::dat?"]`: true,
		everyone + everything + `"Resource":"arn:aws:s3:::data${aws:PrincipalTag/x}"`:    true,
		everyone + everything + `"NotResource":"arn:aws:s3:::data/*"`:                    true,
		everyone + everything + `"NotResource":"arn:aws:s3:::other"`:                     true,
	} {
		for _, effect := range []string{`"Deny"`, `"\u0044eny"`} {
			text := `{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"*"},{"Effect":` + effect + `,` + statement + `}]}`
			if locks, err := policy.LocksOut(text, "media", "KEY"); err != nil || locks != want {
				t.Errorf("%s: %v, %v", statement, locks, err)
			}
		}
		if locks, err := policy.LocksOut(`{"Statement":{"Effect":"Allow",` + statement + `}}`); err != nil || locks {
			t.Errorf("what is allowed locks out: %s: %v", statement, err)
		}
	}
	if locks, err := policy.LocksOut(""); err != nil || locks {
		t.Errorf("no policy: %v, %v", locks, err)
	}
}

// deniesDriver is what a service does with a request of the driver's, read as plainly as
// that can be: every condition holds, and a pattern is compared letter by letter.
func deniesDriver(text, action string, names ...string) bool {
	type statement struct{ Effect, Principal, NotPrincipal, Action, NotAction, Resource, NotResource string }
	var doc struct{ Statement []statement }
	if json.Unmarshal([]byte(text), &doc) != nil {
		return false
	}
	like := func(pattern, text string) bool {
		ends := make([]bool, len(text)+1) // where in the text what there was of the pattern can end
		ends[0] = true
		for p := range []byte(pattern) {
			next := make([]bool, len(ends))
			for i := range next {
				if pattern[p] == '*' {
					next[i] = ends[i] || i > 0 && next[i-1]
				} else {
					next[i] = i > 0 && ends[i-1] && (pattern[p] == '?' || strings.EqualFold(pattern[p:p+1], text[i-1:i]))
				}
			}
			ends = next
		}
		return ends[len(text)]
	}
	reaches := func(yes, no string, is func(pattern string) bool) bool {
		return yes != "" && is(yes) || no != "" && !is(no)
	}
	return slices.ContainsFunc(doc.Statement, func(s statement) bool {
		return s.Effect == "Deny" &&
			reaches(s.Principal, s.NotPrincipal, func(p string) bool { return p == "*" || slices.Contains(names, p) }) &&
			reaches(s.Action, s.NotAction, func(p string) bool { return like(p, action) }) &&
			reaches(s.Resource, s.NotResource, func(p string) bool { return like(p, "arn:aws:s3:::data") })
	})
}

// No policy that denies the driver a read of the configuration or a change of the policy
// passes.
func FuzzLocksOut(f *testing.F) {
	f.Add("Deny", "*", "s3:*", "*", uint8(0))
	f.Add("Deny", "KEY", "s3:Get*", "arn:aws:s3:::da*a", uint8(1))
	f.Add("Deny", "KEY", "s3:Get[a]", "arn:aws:s3:::data/*", uint8(6))
	f.Add("Deny", "KEY", strings.Repeat("*", 20)+"x", "*", uint8(1))
	f.Fuzz(func(t *testing.T, effect, principal, action, resource string, not uint8) {
		checkLocksOut(t, effect, principal, action, resource, not)
	})
}

func checkLocksOut(t *testing.T, effect, principal, action, resource string, not uint8) {
	t.Helper()
	member := func(bit uint8, name, value string) string {
		if not&bit != 0 {
			name = "Not" + name
		}
		text, _ := json.Marshal(value)
		return fmt.Sprintf("%q:%s", name, text)
	}
	text := fmt.Sprintf(`{"Statement":[{"Effect":%q,%s,%s,%s}]}`, effect, member(1, "Principal", principal), member(2, "Action", action), member(4, "Resource", resource))
	text, err := policy.Canonical(text)
	if err != nil {
		return
	}
	locks, err := policy.LocksOut(text, "KEY")
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for _, needed := range []string{"s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy", "s3:GetBucketTagging", "s3:GetBucketAcl", "s3:GetLifecycleConfiguration"} {
		if !locks && deniesDriver(text, needed, "KEY") {
			t.Fatalf("%s denies %s and passes", text, needed)
		}
	}
}

// The same with policies that are made of what matters.
func TestLocksOutOfMany(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	made := func(pieces ...string) string {
		var out strings.Builder
		for range 1 + random.IntN(4) {
			out.WriteString(pieces[random.IntN(len(pieces))])
		}
		return out.String()
	}
	for range 5000 {
		checkLocksOut(t, "Deny", []string{"*", "KEY", "other", "123456789012"}[random.IntN(4)], made("s3:", "*", "?", "Get", "Bucket", "Policy", "["),
			made("arn:aws:s3:::", "*", "data", "?", "/", "dat"), uint8(random.IntN(8)))
	}
}
