package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
)

// Judgement is what the conformance suite says of one check.
type Judgement struct{ Version, Generation, Number, Verdict, Message string }

// Sanity builds cosi-sanity into dir and runs it on a driver. It returns every check
// that has not passed, but for those that a generation of v1alpha2 does not have, or
// that need a command which restarts the driver.
func Sanity(ctx context.Context, dir, endpoint string, args ...string) ([]Judgement, error) {
	program, err := BuildIn(ctx, dir, "cmd/cosi-sanity")
	if err != nil {
		return nil, err
	}
	// Findings are in the report; a status of its own says no more.
	out, err := exec.CommandContext(ctx, program, append([]string{"--endpoint", endpoint, "-o", "json"}, args...)...).Output()
	var report struct{ Results []Judgement }
	if broken := json.Unmarshal(out, &report); broken != nil {
		return nil, fmt.Errorf("cosi-sanity: %w: %w", err, broken)
	}
	if len(report.Results) == 0 {
		return nil, fmt.Errorf("cosi-sanity has judged nothing: %w", err)
	}
	var left []Judgement
	for _, j := range report.Results {
		if j.Verdict == "pass" || j.Verdict == "not run" && (strings.HasPrefix(j.Message, "generation ") || strings.Contains(j.Message, "--restart")) {
			continue
		}
		left = append(left, j)
	}
	return left, nil
}
