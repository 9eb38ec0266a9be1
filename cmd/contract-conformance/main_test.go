package main

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// The reference service passes, and fails when it is said to have what it lacks.
func TestReferenceService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, err := harness.BuildIn(t.Context(), dir, "cmd/contract-conformance")
	must(t, err)
	contractd, err := harness.BuildIn(t.Context(), dir, "cmd/contractd")
	must(t, err)
	c, err := harness.StartContractd(t.Context(), harness.Binaries{Contractd: contractd}, dir)
	must(t, err)
	t.Cleanup(c.Kill)
	lacks := "--lacks-actions=" + strings.Join(harness.VersityGWLacks(), ",")
	for _, run := range []struct {
		args   []string
		status int
		says   []string
	}{
		{[]string{lacks, "--lacks-quota=maxBytes,maxObjects"}, 0, []string{"--- PASS: Conformance/Provider/LostAnswers ", "--- PASS: Conformance/Provider/Neighbours ", "--- PASS: Conformance/Secrets ", "PASS\n"}},
		{[]string{"--run=Conformance/Provider/Modes"}, 1, []string{"--- FAIL: Conformance/Provider/Modes ", "s3:GetObjectAcl"}},
		{[]string{"--run=("}, 2, []string{"--run: "}},
		{[]string{"--lacks-quota=bytes"}, 2, []string{`"bytes" is none of maxBuckets`}},
		{[]string{"here"}, 2, []string{"--url and --token-file are needed"}},
	} {
		cmd := exec.CommandContext(t.Context(), program, append([]string{"--url", c.API, "--token-file", c.TokenFile}, run.args...)...)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != run.status {
			t.Errorf("%q: exit status %d, want %d:\n%s", run.args, got, run.status, out)
		}
		for _, text := range run.says {
			if !strings.Contains(string(out), text) {
				t.Errorf("%q does not say %q:\n%s", run.args, text, out)
			}
		}
		if strings.Contains(string(out), c.Token) {
			t.Errorf("%q tells the token", run.args)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
