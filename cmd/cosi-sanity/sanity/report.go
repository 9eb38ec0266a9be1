package sanity

import (
	"slices"
	"time"
)

// Verdict is what became of a check.
type Verdict string

// The verdicts. Nothing is left out of a report.
const (
	Passed Verdict = "pass"
	Failed Verdict = "fail"
	// Warned is a SHOULD that the driver does not do.
	Warned Verdict = "warn"
	// NotRun has a reason.
	NotRun Verdict = "not run"
	// Unready is a check of set-up that did not pass: what needs it has no verdict.
	Unready Verdict = "set-up"
)

// Result is the verdict of one check in one version.
type Result struct {
	API
	Number string `json:"number"`
	Name   string `json:"name"`
	Rule
	Verdict Verdict `json:"verdict"`
	// Message says what was expected and what came, or why there was no run.
	Message string `json:"message,omitempty"`
	// Note is what a check that has passed has to say.
	Note string `json:"note,omitempty"`
	// Known is a finding of the baseline, which does not fail the run.
	Known bool          `json:"known,omitempty"`
	Took  time.Duration `json:"tookNanoseconds"`
}

// Report is what a run has found.
type Report struct {
	Endpoint string `json:"endpoint"`
	// Run is the first group of every UID in the names that the run has used.
	Run     string        `json:"run"`
	APIs    []API         `json:"apis"`
	Started time.Time     `json:"started"`
	Took    time.Duration `json:"tookNanoseconds"`
	// Results are in the order of the checks, version by version.
	Results []Result `json:"results"`
}

// Failed reports whether anything failed that is not of the baseline.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Results, func(result Result) bool { return result.Verdict == Failed && !result.Known })
}

// Judged reports whether there is a verdict: the suite had what it needs.
func (r *Report) Judged() bool { return r.Count(Unready) == 0 }

// Count is how often a verdict was given.
func (r *Report) Count(v Verdict) int {
	n := 0
	for _, result := range r.Results {
		if result.Verdict == v {
			n++
		}
	}
	return n
}
