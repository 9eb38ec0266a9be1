package backends

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// What a real gateway lets a caller without a key do under a policy, the driver
// calls public. The gateway reads more as the public than AWS does.
func TestRGWPublicPolicies(t *testing.T) {
	t.Parallel()
	c := harness.S3(ceph.URL, harness.CephRegion, ceph.AccessKeyID, ceph.Secret)
	bucket := label("public")
	_, err := c.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket})
	must(t, err)
	_, err = c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: aws.String("o"), Body: strings.NewReader("content")})
	must(t, err)
	// reads reports whether an object is read without a key.
	reads := func(document string) bool {
		t.Helper()
		_, err := c.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: &bucket, Policy: &document})
		must(t, err)
		answer, err := http.Get(ceph.URL + "/" + bucket + "/o")
		must(t, err)
		must(t, answer.Body.Close())
		return answer.StatusCode == http.StatusOK
	}
	for more, want := range map[string]bool{
		`"Principal":"*"`:                                                 true,
		`"Principal":{"AWS":"*"}`:                                         true,
		`"Principal":"*x"`:                                                true,
		`"Principal":{"AWS":""}`:                                          true,
		`"Principal":{"AWS":"arn:aws:iam:::root"}`:                        true,
		`"Principal":{"AWS":"arn:aws:iam:::user/anonymous"}`:              true,
		`"NotPrincipal":{"AWS":"t"}`:                                      true,
		`"Principal":{"AWS":"t"}`:                                         false,
		`"Principal":{"AWS":"arn:aws:iam::t:root"}`:                       false,
		`"Principal":{"AWS":"arn:aws:iam::t:user/a"}`:                     false,
		`"Principal":{"AWS":"arn:aws:iam:::user/a"}`:                      false,
		`"Principal":{"AWS":"arn:aws:iam::t:group/a"}`:                    false,
		`"Principal":{"CanonicalUser":"a"}`:                               false,
		`"Principal":{"Service":"logging.s3.amazonaws.com"}`:              false,
		`"Principal":"*","Condition":{}`:                                  true,
		`"Principal":"*","Condition":{"IpAddress":{}}`:                    true,
		`"Principal":"*","Condition":` + from("0.0.0.0/0"):                true,
		`"Principal":"*","Condition":` + from("::/32"):                    true, // which holds for every IPv4 address
		`"Principal":"*","Condition":` + from("::/97"):                    true,
		`"Principal":"*","Condition":` + from("10.0.0.0/8"):               false,
		`"Principal":"*","Condition":` + from("2001:db8::/32"):            false,
		`"Principal":"*","Condition":` + vpc("StringEquals"):              false,
		`"Principal":"*","Condition":` + vpc("ArnLike"):                   false,
		`"Principal":"*","Condition":` + vpc("StringNotEquals"):           false, // as there is none
		`"Principal":"*","Condition":{"Null":{"aws:a":"true"}}`:           true,
		`"Principal":"*","Condition":` + vpc("StringEqualsIfExists"):      true,
		`"Principal":"*","Condition":` + vpc("ForAllValues:StringEquals"): true,
	} {
		document := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::` + bucket + `/*",` + more + `}]}`
		if got := reads(document); got != want {
			t.Errorf("%s: read without a key: %v, want %v", more, got, want)
		}
		if public, err := policy.Public(document); err != nil || want && !public {
			t.Errorf("%s: public %v (%v)", more, public, err)
		}
	}
}

func from(block string) string { return `{"IpAddress":{"aws:SourceIp":"` + block + `"}}` }

func vpc(operator string) string { return `{"` + operator + `":{"aws:SourceVpc":"vpc-1"}}` }
