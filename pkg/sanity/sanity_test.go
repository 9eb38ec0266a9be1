package sanity_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/sanity"
	"github.com/contract-cosi/contract-cosi-driver/pkg/sanity/internal/fake"
)

// start runs a fake driver.
func start(t *testing.T, versions []string, faults ...fake.Fault) *fake.Driver {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d, stop, err := fake.Start(dir, versions, faults...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return d
}

// config is all that the suite can be told about the fake driver.
func config(d *fake.Driver) sanity.Config {
	return sanity.Config{
		Endpoint:              d.Endpoint,
		BucketParameters:      map[string]string{"class": "one"},
		OtherBucketParameters: map[string]string{"class": "two"},
		OtherAccessParameters: map[string]string{"team": "other"},
		ReadOnlyParameters:    map[string]string{"mode": "read"},
		WriteOnlyParameters:   map[string]string{"mode": "write"},
		S3:                    sanity.S3{Enabled: true},
		Concurrency:           8,
		CallTimeout:           20 * time.Second,
		Settle:                20 * time.Second,
	}
}

var both = []string{"v1alpha1", "v1alpha2"}

func run(t *testing.T, c sanity.Config) *sanity.Report {
	t.Helper()
	report, err := sanity.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func table(t *testing.T, r *sanity.Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestCorrectDriverPasses(t *testing.T) {
	t.Parallel()
	d := start(t, both)
	c := config(d)
	c.Concurrency = 50
	report := run(t, c)
	for _, r := range report.Results {
		if r.Verdict != sanity.Passed {
			t.Errorf("%s %s: %s: %s", r.Version, r.Number, r.Verdict, r.Message)
		}
	}
	if left := d.Left(); len(left) > 0 {
		t.Errorf("the suite has left %v", left)
	}
	if testing.Verbose() {
		t.Log(table(t, report))
	}
}

// failed are the checks that did not pass.
func failed(r *sanity.Report) []string {
	var out []string
	for _, result := range r.Results {
		if result.Verdict == sanity.Failed || result.Verdict == sanity.Warned {
			out = append(out, short(result))
		}
	}
	return out
}

// short is "1 A05" for v1alpha1's A05.
func short(r sanity.Result) string {
	return strings.TrimPrefix(string(r.Version), "v1alpha") + " " + r.Number
}

// However a run ends, it takes away what it has made.
func TestInterruptedRunCleansUp(t *testing.T) {
	t.Parallel()
	for _, after := range []int{2, 5, 10, 20, 40, 80, 160} {
		t.Run(fmt.Sprintf("%dms", after), func(t *testing.T) {
			t.Parallel()
			d := start(t, both)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(after)*time.Millisecond)
			defer cancel()
			report, err := sanity.Run(ctx, config(d))
			if left := d.Left(); len(left) > 0 {
				t.Errorf("the suite has left %v", left)
			}
			if err == nil || report == nil { // it was faster, or had not begun
				return
			}
			if report.Failed() {
				t.Errorf("a run that was cut short: %s", table(t, report))
			}
		})
	}
}

func TestVersionsAreFound(t *testing.T) {
	t.Parallel()
	for _, version := range both {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := config(start(t, []string{version}))
			report := run(t, c)
			if len(report.Versions) != 1 || string(report.Versions[0]) != version || report.Failed() {
				t.Errorf("%s", table(t, report))
			}
			c.Versions = sanity.Versions()
			if _, err := sanity.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "is not served") {
				t.Errorf("both versions are wanted: got %v", err)
			}
		})
	}
	if _, err := sanity.Run(t.Context(), config(start(t, nil))); err == nil || !strings.Contains(err.Error(), "is not served") {
		t.Errorf("a socket without COSI: got %v", err)
	}
}

// Without parameters and without S3 the suite says what it lacks.
func TestWhatIsMissingIsSaid(t *testing.T) {
	t.Parallel()
	d := start(t, both)
	report := run(t, sanity.Config{Endpoint: d.Endpoint, Concurrency: 2, Skip: []string{"F", "g07"}})
	reasons := map[string][]string{}
	for _, r := range report.Results {
		switch r.Verdict {
		case sanity.NotRun:
			reasons[r.Message] = append(reasons[r.Message], short(r))
		case sanity.Passed:
		default:
			t.Errorf("%s: %s", short(r), r.Message)
		}
	}
	for reason, checks := range map[string]string{
		"no otherBucketParameters are given":              "B05 2:B12",
		"no otherAccessParameters are given":              "2:A08",
		"the S3 checks are off (--s3)":                    "K01 1:K02 K03 K04 K05 2:K06 2:K07 1:K08 2:K09 2:K10",
		"no parameters are given that ask for such a key": "1:K06 1:K07",
		"skipped by the user":                             "F01 F02 F03 2:F04 F05 F06 F07 G07",
	} {
		slices.Sort(reasons[reason])
		if !slices.Equal(reasons[reason], expand(checks)) {
			t.Errorf("%s: got %v, want %v", reason, reasons[reason], expand(checks))
		}
		delete(reasons, reason)
	}
	if len(reasons) > 0 {
		t.Errorf("other reasons: %v", reasons)
	}
}

func TestStoreIsReached(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		faults  []fake.Fault
		reach   func(*testing.T, *fake.Driver, *sanity.S3)
		verdict sanity.Verdict
	}{
		{[]fake.Fault{fake.PrivateStore}, trust, sanity.Passed},
		{[]fake.Fault{fake.PrivateStore}, func(*testing.T, *fake.Driver, *sanity.S3) {}, sanity.Failed},
		{[]fake.Fault{fake.StoreElsewhere}, func(_ *testing.T, d *fake.Driver, s *sanity.S3) { s.Endpoint = d.StoreURL }, sanity.Passed},
		{[]fake.Fault{fake.StoreElsewhere}, func(*testing.T, *fake.Driver, *sanity.S3) {}, sanity.Failed},
		{nil, func(_ *testing.T, _ *fake.Driver, s *sanity.S3) { s.Addressing = "path" }, sanity.Passed},
	} {
		d := start(t, both, c.faults...)
		settings := config(d)
		settings.Run = []string{"K01"}
		settings.Settle = 100 * time.Millisecond
		c.reach(t, d, &settings.S3)
		for _, r := range run(t, settings).Results {
			if r.Number == "K01" && r.Verdict != c.verdict {
				t.Errorf("%v with %+v: %s: %s, want %s", c.faults, settings.S3, short(r), r.Verdict, c.verdict)
			}
		}
	}
}

// trust has the suite trust the driver's store.
func trust(t *testing.T, d *fake.Driver, s *sanity.S3) {
	t.Helper()
	s.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(s.CAFile, d.StoreCA, 0o600); err != nil {
		t.Fatal(err)
	}
}
