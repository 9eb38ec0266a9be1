package sanity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// Baseline are findings that a project knows of: the failures and warnings of a
// report that it keeps, in JSON.
type Baseline []Finding

// Finding is one of a baseline: a check in a version, or one generation of it.
type Finding struct {
	API
	Number  string  `json:"number"`
	Verdict Verdict `json:"verdict"`
}

// LoadBaseline reads a report that -o json has written.
func LoadBaseline(file string) (Baseline, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var report struct{ Results []Finding }
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&report); err != nil {
		return nil, fmt.Errorf("%s: not a report in JSON: %w", file, err)
	}
	if report.Results == nil {
		return nil, fmt.Errorf("%s: not a report in JSON: it has no results", file)
	}
	return slices.DeleteFunc(report.Results, func(f Finding) bool { return f.Verdict != Failed && f.Verdict != Warned }), nil
}

func (b Baseline) has(r Result) bool {
	return slices.ContainsFunc(b, func(f Finding) bool { return f.API == r.API && f.Number == r.Number })
}
