package integration

import (
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/sanity"
)

// The conformance suite on both versions, with the S3 check, and nothing of it
// left out.
func TestConformance(t *testing.T) {
	t.Parallel()
	e := newEnv(t, cancelling)
	contract := newContract()
	class := func(more ...string) map[string]string {
		out := map[string]string{"contract": contract}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	c := sanity.Config{
		Endpoint:              e.endpoint(),
		BucketParameters:      class(),
		OtherBucketParameters: class("versioning", "Enabled"),
		OtherAccessParameters: map[string]string{"prefix": "other/"},
		ReadOnlyParameters:    map[string]string{"access": "ReadOnly"},
		WriteOnlyParameters:   map[string]string{"access": "WriteOnly"},
		S3:                    sanity.S3{Enabled: true},
		Strict:                true,
	}
	report, err := sanity.Run(t.Context(), c)
	must(t, err)
	if len(report.Versions) != 2 {
		t.Errorf("versions %v, want both", report.Versions)
	}
	for _, r := range report.Results {
		if r.Verdict != sanity.Passed {
			t.Errorf("%s %s %s: %s", r.Version, r.Number, r.Verdict, r.Message)
		}
	}
	if n := e.metric("contract_cosi_buckets") + e.metric("contract_cosi_keys"); n != 0 {
		t.Errorf("%v records are left in the journal", n)
	}
}
