package sanity_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/internal/fake"
	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/sanity"
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
		Concurrency:           4,
		CallTimeout:           20 * time.Second,
		Settle:                20 * time.Second,
	}
}

// oldest and newest are what most tests run with: both versions, and the first and
// the last generation of v1alpha2.
var (
	oldest = []string{"v1alpha1", "A"}
	newest = []string{"C2"}
)

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
	for version, finds := range map[string]sanity.API{
		"v1alpha1": {Version: sanity.V1Alpha1},
		"A":        {Version: sanity.V1Alpha2, Generation: sanity.A},
		"B1":       {Version: sanity.V1Alpha2, Generation: sanity.B2}, // whose methods are the same
		"B2":       {Version: sanity.V1Alpha2, Generation: sanity.B2},
		"C1":       {Version: sanity.V1Alpha2, Generation: sanity.C1},
		"C2":       {Version: sanity.V1Alpha2, Generation: sanity.C2},
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			d := start(t, []string{version})
			c := config(d)
			c.Concurrency = 50
			if version == "B1" {
				finds.Generation, c.Generations = sanity.B1, []sanity.Generation{sanity.B1}
			}
			report := run(t, c)
			if !slices.Equal(report.APIs, []sanity.API{finds}) {
				t.Errorf("found %v, want %v", report.APIs, finds)
			}
			for _, r := range report.Results {
				old := strings.HasPrefix(r.Message, "generation ") && strings.Contains(r.Message, "does not have it")
				restart := r.Number == "T05"
				if r.Verdict != sanity.Passed && !(r.Verdict == sanity.NotRun && (old || restart)) {
					t.Errorf("%s: %s: %s", short(r), r.Verdict, r.Message)
				}
			}
			if left := d.Left(); len(left) > 0 {
				t.Errorf("the suite has left %v", left)
			}
			if testing.Verbose() {
				t.Log(table(t, report))
			}
		})
	}
}

// short is "1 A05" for v1alpha1's A05, and "C2 A05" for that of a generation.
func short(r sanity.Result) string {
	if r.Version == sanity.V1Alpha1 {
		return "1 " + r.Number
	}
	return string(r.Generation) + " " + r.Number
}

// However a run ends, it takes away what it has made.
func TestInterruptedRunCleansUp(t *testing.T) {
	t.Parallel()
	for _, after := range []int{2, 5, 10, 20, 40, 80, 160} {
		t.Run(fmt.Sprintf("%dms", after), func(t *testing.T) {
			t.Parallel()
			d := start(t, oldest)
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
	c := config(start(t, []string{"v1alpha1"}))
	c.Run = []string{"I"}
	c.Versions = sanity.Versions()
	if _, err := sanity.Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "is not served") {
		t.Errorf("both versions are wanted: got %v", err)
	}
	if _, err := sanity.Run(t.Context(), config(start(t, nil))); err == nil || !strings.Contains(err.Error(), "is not served") {
		t.Errorf("a socket without COSI: got %v", err)
	}
}

// Without parameters and without S3 the suite says what it lacks.
func TestWhatIsMissingIsSaid(t *testing.T) {
	t.Parallel()
	d := start(t, oldest)
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
		"no otherBucketParameters are given":                       "1:B05 A:B05 A:B12",
		"no otherAccessParameters are given":                       "A:A08",
		"the S3 checks are off (--s3)":                             "1:S03 A:S03 1:K01 A:K01 1:K02 1:K03 A:K03 1:K04 A:K04 1:K05 A:K05 A:K06 A:K07 A:K09 1:K11 A:K11 1:C07 A:C07",
		"no parameters are given that ask for such a key":          "1:K06 1:K07",
		"skipped by the user":                                      "1:F01 A:F01 1:F02 A:F02 1:F03 A:F03 A:F04 1:F05 A:F05 1:F06 A:F06 1:F07 A:F07 1:G07 A:G07",
		"no command is given that restarts the driver (--restart)": "1:T05 A:T05",
		"generation A does not have it; C1 has":                    "A:B13 A:B14",
		"generation A does not have it; C2 has":                    "A:A15 A:R05",
		"generation A does not have it; B2 has":                    "A:K10",
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

// What the suite lacks is one verdict of set-up, and accuses the driver of nothing.
func TestSetUpIsNoAccusation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault fake.Fault
		spoil func(*sanity.Config)
		says  string
		check string
	}{
		"a missing parameter":   {fake.NeedsParameters, func(c *sanity.Config) { c.BucketParameters, c.OtherBucketParameters = nil, nil }, "--bucket-parameter key=value", "S01"},
		"a wrong CA":            {fake.PrivateStore, func(*sanity.Config) {}, "--s3-ca", "S03"},
		"a store out of reach":  {fake.StoreElsewhere, func(*sanity.Config) {}, "--s3-endpoint", "S03"},
		"no access as it is":    {fake.GrantNever, func(*sanity.Config) {}, "--access-parameter", "S02"},
		"no answer to identity": {fake.InfoHangs, func(*sanity.Config) {}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t, oldest, c.fault)
			settings := config(d).TimedBy(d)
			settings.Settle = 10 * time.Millisecond
			c.spoil(&settings)
			report := run(t, settings)
			for _, r := range report.Results {
				switch {
				case r.Number == c.check && (r.Verdict != sanity.Unready || !strings.Contains(r.Message, c.says)):
					t.Errorf("%s: %s: %s", short(r), r.Verdict, r.Message)
				case r.Number != c.check && finding(r) && c.check != "":
					t.Errorf("%s accuses the driver: %s", short(r), r.Message)
				}
			}
			if report.Judged() != (c.check == "") {
				t.Errorf("judged: %t", report.Judged())
			}
			if left := d.Left(); len(left) > 0 {
				t.Errorf("the suite has left %v", left)
			}
		})
	}
}

// A bucket that is answered for two names may belong to someone else: it is never deleted.
func TestSharedBucketIsNotDeleted(t *testing.T) {
	t.Parallel()
	for _, versions := range [][]string{oldest, newest} {
		d := start(t, versions, fake.OneBucketID)
		run(t, config(d))
		if n := d.Deleted(); n > 0 {
			t.Errorf("%v: %d deletions of a bucket_id that was answered for two names", versions, n)
		}
	}
}

// Every name and every id that the suite makes up carries the run's UID, so that
// a driver which misreads one touches nothing of others.
func TestNamesAreTheRunsOwn(t *testing.T) {
	t.Parallel()
	for _, versions := range [][]string{oldest, newest} {
		d := start(t, versions, fake.TakesEmptyIDs)
		report := run(t, config(d))
		for _, id := range d.Asked() {
			for part := range strings.FieldsFuncSeq(id, func(r rune) bool { return strings.ContainsRune("/:.{}'=日本%", r) }) {
				if part != "fake" && !strings.Contains(part, report.Run) {
					t.Errorf("%q of %q is not of the run %s", part, id, report.Run)
				}
			}
		}
	}
}

func TestInventory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ command, says string }{
		"nothing new": {"echo one; echo two", ""},
		"left behind": {"echo one; test -e before && echo user of a refused grant; touch before", "did not hold before: user of a refused grant"},
		"taken away":  {"echo one; test -e before || echo a bucket of others; touch before", "no longer holds what it held before, which the run has not made: a bucket of others"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := config(start(t, []string{"v1alpha1"}))
			settings.Inventory = "cd " + t.TempDir() + "; " + c.command
			settings.Run = []string{"B01", "G10"}
			report := run(t, settings)
			last := report.Results[len(report.Results)-1]
			if (last.Verdict == sanity.Failed) != (c.says != "") || !strings.Contains(last.Message, c.says) {
				t.Errorf("%s: %s: %s", last.Number, last.Verdict, last.Message)
			}
		})
	}
}

// What another finding names, or brings about, is not told once more by the inventory.
func TestInventoryTellsNothingTwice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault   fake.Fault
		run     string
		message string // G10's
	}{
		{fake.NothingDeleted, "B16", "see B16"},
		{fake.DeletePrecondition, "B08", "the service holds what it did not hold before: \"a bucket\"\nthe service holds what it did not hold before: account 7"},
	} {
		settings := config(start(t, []string{"v1alpha1"}, c.fault))
		settings.Inventory = "cd " + t.TempDir() + "; test -e before && printf '[\n \"a bucket\",\n  \"want OK or NotFound\",\n account 7\n]' || echo '[]'; touch before"
		settings.Run = []string{c.run, "G10"}
		report := run(t, settings)
		last := report.Results[len(report.Results)-1]
		lines := strings.Split(last.Message, "\n")
		slices.Sort(lines)
		if got := strings.Join(lines, "\n"); got != c.message {
			t.Errorf("%s: %s: %s, want %s", c.fault, last.Verdict, got, c.message)
		}
	}
}

// A call that ends the driver each time it is repeated is told once.
func TestCallThatEndsTheDriverIsToldOnce(t *testing.T) {
	t.Parallel()
	settings := config(start(t, newest, fake.ForeignPanic))
	settings.Settle, settings.Run = 200*time.Millisecond, []string{"F07", "G11"}
	for _, r := range run(t, settings).Results {
		lines := strings.Split(r.Message, "\n")
		slices.Sort(lines)
		if r.Number == "G11" && (len(lines) < 2 || len(slices.Compact(lines)) < len(lines)) {
			t.Errorf("%s: %s", r.Verdict, r.Message)
		}
	}
}

// A class that does not work on its own proves nothing about the driver.
func TestOtherParametersHaveToWork(t *testing.T) {
	t.Parallel()
	for _, versions := range [][]string{oldest, newest} {
		settings := config(start(t, versions, fake.NeedsParameters))
		settings.OtherBucketParameters = map[string]string{"color": "red"}
		settings.Run = []string{"B05"}
		for _, r := range run(t, settings).Results {
			if r.Number == "B05" && (r.Verdict != sanity.NotRun || !strings.Contains(r.Message, "the parameter class is required")) {
				t.Errorf("%s: %s: %s", short(r), r.Verdict, r.Message)
			}
		}
	}
}

// Drivers that read Bucket objects find one for each bucket that they are asked to
// make, and none is left.
func TestBucketObjects(t *testing.T) {
	t.Parallel()
	for _, versions := range [][]string{oldest, newest} {
		d := start(t, versions)
		dir := t.TempDir()
		c := config(d)
		c.Run = []string{"B", "C01", "T01"}
		c.Objects = `n=$(cat); for name in $(echo "$n" | grep -o '"name":"b[^"]*' | cut -d'"' -f4); do [ "$1" = apply ] && touch ` + dir + `/all-$name ` + dir + `/$name || rm ` + dir + `/$name; done`
		report := run(t, c)
		if report.Failed() || !report.Judged() {
			t.Error(table(t, report))
		}
		for _, id := range d.Made() {
			if _, err := os.Stat(filepath.Join(dir, "all-"+id)); err != nil {
				t.Errorf("there was no object for bucket %s", id)
			}
		}
		left, err := filepath.Glob(filepath.Join(dir, "b*"))
		if err != nil || len(left) > 0 {
			t.Errorf("objects are left: %v, %v", left, err)
		}
		c.Objects = "echo no cluster; false"
		for _, r := range run(t, c).Results {
			if r.Number == "S01" && (r.Verdict != sanity.Unready || !strings.Contains(r.Message, "no cluster")) {
				t.Errorf("a command that fails: %s: %s", r.Verdict, r.Message)
			}
		}
	}
}

// A driver that reads Bucket objects is not accused because one is missing which a
// cluster would have, and all that it has made is taken away.
func TestBucketObjectsOfUnknownBuckets(t *testing.T) {
	t.Parallel()
	for _, versions := range [][]string{{"v1alpha1"}, newest} {
		d := start(t, versions, fake.ReadsObjects, fake.GrantUnknown)
		dir := t.TempDir()
		d.ReadObjects(func(name string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err == nil
		})
		c := config(d)
		c.Run = []string{"B09", "R02", "F07"}
		c.Objects = `grep -o '"metadata":{"name":"[^"]*' | cut -d'"' -f6 | while read n; do [ "$1" = apply ] && touch ` + dir + `/$n || rm ` + dir + `/$n; done`
		report := run(t, c)
		for _, r := range report.Results {
			if finding(r) {
				t.Errorf("%s: %s: %s", short(r), r.Verdict, r.Message)
			}
		}
		if left := d.Left(); len(left) > 0 {
			t.Errorf("the suite has left %v", left)
		}
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	settings := config(start(t, newest))
	settings.Restart, settings.Run = "true", []string{"T05"}
	for _, r := range run(t, settings).Results {
		if r.Verdict != sanity.Passed {
			t.Errorf("%s: %s: %s", short(r), r.Verdict, r.Message)
		}
	}
}

// A driver that a call has ended is restarted, so that the other checks are judged
// and what was made is taken away.
func TestRestartAfterACrash(t *testing.T) {
	t.Parallel()
	d := start(t, newest, fake.ForeignCrash)
	settings := config(d)
	dir := filepath.Dir(strings.TrimPrefix(d.Endpoint, "unix://"))
	ended, back := filepath.Join(dir, "ended"), filepath.Join(dir, "back")
	for _, pipe := range []string{ended, back} {
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		// To find out what became of the call, it is repeated, which ends the driver again.
		for _, faults := range [][]fake.Fault{{fake.ForeignCrash}, nil} {
			if _, err := os.ReadFile(ended); err != nil { // waits for the command
				return
			}
			_, stop, err := fake.Start(dir, newest, faults...)
			if err != nil {
				t.Error(err)
			} else {
				t.Cleanup(stop)
			}
			_ = os.WriteFile(back, nil, 0o600)
		}
	}()
	settings.Restart = "echo > " + ended + "; cat " + back
	settings.Settle, settings.Run = time.Second, []string{"F07", "C01", "G"}
	verdicts := map[string]sanity.Verdict{"F07": sanity.NotRun, "G11": sanity.Failed}
	for _, r := range run(t, settings).Results {
		if want, ok := verdicts[r.Number]; r.Verdict != want && (ok || r.Verdict != sanity.Passed) {
			t.Errorf("%s: %s: %s", short(r), r.Verdict, r.Message)
		}
	}
}

// What a baseline knows does not fail a run, and what is new does.
func TestBaseline(t *testing.T) {
	t.Parallel()
	settings := config(start(t, newest, fake.NewAccountID, fake.CreateAnything))
	settings.Run = []string{"A05", "B05"}
	var text strings.Builder
	if err := run(t, settings).WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "known.json")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if settings.Baseline, err = sanity.LoadBaseline(file); err != nil {
		t.Fatal(err)
	}
	if report := run(t, settings); report.Failed() {
		t.Errorf("known findings fail: %s", table(t, report))
	}
	settings.Baseline = settings.Baseline[1:]
	if report := run(t, settings); !report.Failed() {
		t.Errorf("a new finding does not fail: %s", table(t, report))
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
		{[]fake.Fault{fake.StoreElsewhere}, func(_ *testing.T, d *fake.Driver, s *sanity.S3) { s.Endpoint = d.StoreURL }, sanity.Passed},
		{nil, func(_ *testing.T, _ *fake.Driver, s *sanity.S3) { s.Addressing = "path" }, sanity.Passed},
		{[]fake.Fault{fake.NoRegion}, func(*testing.T, *fake.Driver, *sanity.S3) {}, sanity.Passed},
		{[]fake.Fault{fake.MisspeltKey}, func(*testing.T, *fake.Driver, *sanity.S3) {}, sanity.NotRun},
	} {
		d := start(t, oldest, c.faults...)
		settings := config(d)
		settings.Run = []string{"K01"}
		settings.Settle = 100 * time.Millisecond
		c.reach(t, d, &settings.S3)
		for _, r := range run(t, settings).Results {
			// A misspelt key is a thing of v1alpha1's map.
			if r.Number == "K01" && r.Verdict != c.verdict && (c.verdict != sanity.NotRun || r.Version == sanity.V1Alpha1) {
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
