package iam_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// actionOf are the calls whose actions are called otherwise (Service Authorization
// Reference, Amazon S3).
var actionOf = map[string]string{"ListBuckets": "ListAllMyBuckets"}

// The policy for the driver's own credentials allows the calls that this package makes
// with them, and no other.
func TestPolicyAllowsTheCalls(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var made []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for prefix, calls := range map[string]*regexp.Regexp{"iam:": regexp.MustCompile(`\bp\.iam\.([A-Z]\w+)`), "s3:": regexp.MustCompile(`\bagain\(ctx, p, "([A-Z]\w+)"`)} {
			for _, call := range calls.FindAllStringSubmatch(string(text), -1) {
				name := call[1]
				if other, is := actionOf[name]; is {
					name = other
				}
				made = append(made, prefix+name)
			}
		}
	}
	slices.Sort(made)
	made = slices.Compact(made)

	text, err := os.ReadFile("../../../deploy/iam-policy.json")
	if err != nil {
		t.Fatal(err)
	}
	var policy struct {
		Statement []struct {
			Effect   string
			Action   []string
			Resource string
		}
	}
	if err := json.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	var allowed []string
	for _, s := range policy.Statement {
		allowed = append(allowed, s.Action...)
		changes := slices.ContainsFunc(s.Action, func(a string) bool { return !strings.Contains(a, ":List") && !strings.Contains(a, ":Get") })
		if s.Effect != "Allow" || changes && s.Resource != "arn:aws:iam::*:user/contract-cosi/*" {
			t.Errorf("statement %+v", s)
		}
	}
	slices.Sort(allowed)
	if !slices.Equal(made, allowed) || len(made) < 10 {
		t.Errorf("deploy/iam-policy.json allows\n  %v\nand the driver calls\n  %v", allowed, made)
	}
}
