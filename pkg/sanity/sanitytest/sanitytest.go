// Package sanitytest runs the conformance suite as part of go test.
//
//	func TestConformance(t *testing.T) {
//		endpoint := startMyDriver(t)
//		sanitytest.Test(t, sanity.Config{
//			Endpoint:         endpoint,
//			BucketParameters: map[string]string{"tier": "standard"},
//		})
//	}
package sanitytest

import (
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/sanity"
)

// Test runs the suite and reports each check as a subtest, called
// "<version>/<number> <name>". A check that was not run is skipped, with its
// reason; a warning is logged.
func Test(t *testing.T, c sanity.Config) {
	t.Helper()
	report, err := sanity.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range report.Versions {
		t.Run(string(v), func(t *testing.T) {
			for _, r := range report.Results {
				if r.Version == v {
					t.Run(r.Number+" "+r.Name, func(t *testing.T) { tell(t, r) })
				}
			}
		})
	}
}

func tell(t *testing.T, r sanity.Result) {
	t.Helper()
	switch r.Verdict {
	case sanity.Failed:
		t.Errorf("%s\n%s, %s: %s", r.Message, r.Level, r.Source, r.Sentence)
	case sanity.Warned:
		t.Logf("warning: %s\n%s, %s: %s", r.Message, r.Level, r.Source, r.Sentence)
	case sanity.NotRun:
		t.Skip(r.Message)
	case sanity.Passed:
	}
}
