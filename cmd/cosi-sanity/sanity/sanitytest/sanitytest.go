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
	"fmt"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/sanity"
)

// Test runs the suite and reports each check as a subtest, called "<version>/<number>
// <name>", with the generation after the version in v1alpha2. A check that was not
// run is skipped, with its reason; a warning is logged, and so is what the
// baseline knows. Without a complete set-up the test fails: there is no verdict.
func Test(t *testing.T, c sanity.Config) {
	t.Helper()
	report, err := sanity.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, api := range report.APIs {
		t.Run(string(api.Version)+string(api.Generation), func(t *testing.T) {
			for _, r := range report.Results {
				if r.API == api {
					t.Run(r.Number+" "+r.Name, func(t *testing.T) { tell(t, r) })
				}
			}
		})
	}
}

func tell(t *testing.T, r sanity.Result) {
	t.Helper()
	text := fmt.Sprintf("%s\n%s, %s: %s", r.Message, r.Level, r.Source, r.Sentence)
	switch {
	case r.Known:
		t.Log("known: " + text)
	case r.Verdict == sanity.Failed, r.Verdict == sanity.Unready:
		t.Error(text)
	case r.Verdict == sanity.Warned:
		t.Log("warning: " + text)
	case r.Verdict == sanity.NotRun:
		t.Skip(r.Message)
	}
}
