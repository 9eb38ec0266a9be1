package integration

import (
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// The conformance suite on both versions, in every generation of v1alpha2, with
// the S3 checks.
func TestConformance(t *testing.T) {
	t.Parallel()
	e := newEnv(t, cancelling)
	contract := newContract()
	findings, err := harness.Sanity(t.Context(), t.TempDir(), e.endpoint(),
		"--generation", "A,B1,B2,C1,C2", "--s3", "--strict",
		"--bucket-parameter", "contract="+contract,
		"--other-bucket-parameter", "contract="+contract, "--other-bucket-parameter", "versioning=Enabled",
		"--other-access-parameter", "prefix=other/",
		"--read-only-parameter", "access=ReadOnly", "--write-only-parameter", "access=WriteOnly")
	must(t, err)
	for _, f := range findings {
		if f.Number == "K10" && strings.Contains(f.Message, "does not give such a key") { // metadata modes are refused
			continue
		}
		t.Errorf("%+v", f)
	}
	if n := e.metric("contract_cosi_buckets") + e.metric("contract_cosi_keys"); n != 0 {
		t.Errorf("%v records are left in the journal", n)
	}
}
