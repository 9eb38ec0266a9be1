package sanity_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/internal/fake"
	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/sanity"
)

// found says which checks a driver with a fault does not pass, and that it
// passes all others: "B03" in both versions, "1:B03" in v1alpha1 only.
var findings = map[fake.Fault]string{
	fake.NameTooLong:   "I01",
	fake.NameUpperCase: "2:I02",
	fake.NoProtocols:   "2:I03",
	fake.ProtocolTwice: "2:I04",

	fake.NoBucketID:         "B01 C:B13",
	fake.LongBucketID:       "B02",
	fake.SlashInBucketID:    "A:B02", // later generations allow it
	fake.NewBucketID:        "B03",
	fake.OneBucketID:        "1A:B04 C:B13",
	fake.CreateAnything:     "B05",
	fake.NoProtocolInfo:     "2:B06",
	fake.UnsupportedInfo:    "2:B06",
	fake.DeleteNotFound:     "B07", // what v1alpha1's sidecar takes for success
	fake.DeletePrecondition: "B07 1:B08",
	fake.DeleteUnknown:      "B09",
	fake.ExistingNotFound:   "2:B10",
	fake.ExistingInvented:   "2:B11 C:B14",
	fake.ExistingAnything:   "2:B12",
	fake.NothingDeleted:     "B16",

	fake.GeneratesAnother:        "C:B13",
	fake.GeneratesOne:            "C:B13",
	fake.GeneratesSpaces:         "C:B02",
	fake.GenerateMakes:           "C:B14",
	fake.GeneratesAnotherAccount: "C:A15",

	fake.NoAccountID:    "A01",
	fake.LongAccountID:  "A02",
	fake.NoRegion:       "1:A14",
	fake.MisspeltKey:    "1:A03",
	fake.TwoCredentials: "A03",
	fake.NoStyle:        "2:A04",
	fake.NewAccountID:   "A05",
	fake.GrantOnce:      "A05",
	fake.NewKey:         "A06",
	fake.RotatedKey:     "A06 K03",
	fake.OneAccountID:   "1A:A07 C:A15",
	fake.GrantExists:    "1:A08",
	fake.GrantAnything:  "2:A08 2:A09",
	fake.GrantUnknown:   "A10",
	fake.OneInfo:        "2:A11",
	fake.OrderMatters:   "2:A12",
	fake.IAMFailed:      "A13",

	fake.ExistingOtherID: "A:A17", // later generations keep the id that was asked with

	fake.RevokeGenerated:    "C:R05",
	fake.RevokeNotFound:     "R01",
	fake.RevokeUnknown:      "R02",
	fake.RevokeNeedsBucket:  "R03",
	fake.RevokeKeepsAccount: "R04",

	fake.DeadKeys:        "K01",
	fake.BucketElsewhere: "1:K02",
	fake.ImmortalKeys:    "K04",
	fake.RevokesAll:      "K04",
	fake.MasterKeys:      "K05",
	fake.NoModes:         "K06 K07",
	fake.ModesShifted:    "C:K01",
	fake.WidestMode:      "C:K10",
	fake.OldKeysStay:     "A06 K11",
	fake.FirstMode:       "2:K09",

	fake.MissingInternal:    "F01",
	fake.MissingHangs:       "G08",
	fake.MissingIDInternal:  "F02",
	fake.EnumsTaken:         "F03",
	fake.ProtocolsTaken:     "2:F04",
	fake.LongInternal:       "F05 F06",
	fake.ForeignUnknown:     "C:F05 G02",
	fake.ForeignUnavailable: "C:F05 F06 F07",
	fake.ForeignCrash:       "1:G11 C:G11 G09", // in A it is gone already
	fake.ForeignPanic:       "G11",
	fake.InfoHangs:          "1A:G08", // of which the generation is not known

	fake.CreateRace:         "1A:C01", // since C1 the id is settled before
	fake.GrantRace:          "1A:C02",
	fake.KeyRace:            "C03",
	fake.ConcurrencyRefused: "C04",
	fake.RevokeRace:         "C05",
	fake.DeleteRace:         "C06",
	fake.GrantExistsBeside:  "1:G03",
	fake.LostGrants:         "C07",
	fake.PoisonedCreate:     "T01",
	fake.PoisonedGrant:      "T02",
	fake.PoisonedRevoke:     "T03",
	fake.PoisonedDelete:     "T04",

	fake.GrantOutOfRange: "G01",
	fake.Details:         "G04",
	fake.NoMessage:       "G05",
	fake.SecretInMessage: "G06",
	fake.ChangingMessage: "G07",
}

// expand makes "1 B03", "A B03" and "C2 B03" of "B03".
func expand(checks string) []string {
	var out []string
	for check := range strings.FieldsSeq(checks) {
		in, number, ok := strings.Cut(check, ":")
		if !ok {
			in, number = "12", in
		}
		for _, api := range map[string][]string{"1": {"1"}, "2": {"A", "C2"}, "12": {"1", "A", "C2"}, "A": {"A"}, "C": {"C2"}, "1A": {"1", "A"}}[in] {
			out = append(out, api+" "+number)
		}
	}
	slices.Sort(out)
	return out
}

// runBoth runs the suite with a driver of both versions in the oldest form, and
// one of the newest.
func runBoth(t *testing.T, c func(*fake.Driver) sanity.Config, faults ...fake.Fault) ([]sanity.Result, []*fake.Driver, error) {
	t.Helper()
	var results []sanity.Result
	var drivers []*fake.Driver
	for _, versions := range [][]string{oldest, newest} {
		d := start(t, versions, faults...)
		drivers = append(drivers, d)
		report, err := sanity.Run(t.Context(), c(d))
		if err != nil {
			return nil, nil, err
		}
		results = append(results, report.Results...)
	}
	return results, drivers, nil
}

func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	// The runs wait more than they work, so there are more at once than tests
	// would be.
	const atOnce = 24
	faults := fake.Faults()
	found := make([][]sanity.Result, len(faults))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, fault := range faults {
		group.Go(func() (err error) {
			found[i], _, err = runBoth(t, func(d *fake.Driver) sanity.Config {
				c := config(d).TimedBy(d)
				c.Settle = time.Nanosecond // what does not come at once never comes
				if fault == fake.GrantExistsBeside {
					c.Settle = 20 * time.Second // it does come
				}
				return c
			}, fault)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, fault := range faults {
		t.Run(string(fault), func(t *testing.T) {
			checks, ok := findings[fault]
			if !ok {
				t.Fatal("the table does not say which checks find it")
			}
			want := expand(checks)
			for _, check := range want {
				if !slices.ContainsFunc(found[i], func(r sanity.Result) bool { return finding(r) && short(r) == check }) {
					t.Errorf("%s does not find it", check)
				}
			}
			for _, r := range found[i] {
				if finding(r) && !slices.Contains(want, short(r)) {
					t.Errorf("%s takes another fault for it: %s", short(r), r.Message)
				}
				if strings.Contains(r.Message, "secret-of-key") {
					t.Errorf("%s tells a secret: %s", short(r), r.Message)
				}
			}
		})
	}
}

func finding(r sanity.Result) bool {
	return r.Verdict == sanity.Failed || r.Verdict == sanity.Warned || r.Verdict == sanity.Unready
}

// A check that nothing fails proves nothing.
func TestEveryCheckCanFail(t *testing.T) {
	t.Parallel()
	elsewhere := []string{"S01", "S02", "S03", "T05", "G10"} // see their own tests
	var able []string
	for _, checks := range findings {
		able = append(able, expand(checks)...)
	}
	for _, check := range sanity.Checks() {
		for _, rule := range check.Rules {
			ways := []string{"1 "}
			if rule.For == sanity.V1Alpha2 {
				ways = []string{"A ", "C2 "}
			}
			if !slices.Contains(elsewhere, check.Number) && !slices.ContainsFunc(ways, func(w string) bool { return slices.Contains(able, w+check.Number) }) {
				t.Errorf("no fault fails %s %s: %s", rule.For, check.Number, check.Name)
			}
		}
		if check.Cure() == "" {
			t.Errorf("%s does not say what to do", check.Number)
		}
	}
}

// legal says which checks cannot be run on a driver that does something
// otherwise and is right. All others pass: the suite is fair.
var legal = map[fake.Fault]string{
	fake.AbortsSecond:    "",
	fake.OneBucketOnly:   "2:A11 2:A12 2:K09",
	fake.KeepsGranted:    "",
	fake.FullKeysOnly:    "K06 K07 2:K09 C:K10",
	fake.OpaqueIDs:       "B09 R02",
	fake.ServiceAccounts: "",
	fake.Azure:           "S03 K01 1:K02 K03 K04 K05 K06 K07 2:K09 C:K10 K11 C07",
	fake.TakesEmptyIDs:   "",
	fake.ExistsBeside:    "",
	fake.InternalBeside:  "",
	fake.NeedsParameters: "",
	fake.FewKeys:         "C06 C07",
}

// notThere are the checks of generations that the oldest has not, and the one
// that needs a command.
const notThere = "A:B13 A:B14 A:A15 A:R05 A:K10 T05"

func TestLegalHabitsPass(t *testing.T) {
	t.Parallel()
	for _, habit := range fake.Habits() {
		t.Run(string(habit), func(t *testing.T) {
			t.Parallel()
			checks, ok := legal[habit]
			if !ok {
				t.Fatal("the table does not say which checks cannot be run")
			}
			results, drivers, err := runBoth(t, func(d *fake.Driver) sanity.Config {
				c := config(d)
				if habit == fake.FewKeys {
					c.Settle = 100 * time.Millisecond // it is asked all that time
				}
				if habit == fake.InternalBeside || habit == fake.ExistsBeside {
					c = c.TimedBy(d)
				}
				return c
			}, habit)
			if err != nil {
				t.Fatal(err)
			}
			want := expand(checks + " " + notThere)
			for _, r := range results {
				verdict := sanity.Passed
				if slices.Contains(want, short(r)) {
					verdict = sanity.NotRun
				}
				if r.Verdict != verdict {
					t.Errorf("%s: %s, want %s: %s", short(r), r.Verdict, verdict, r.Message)
				}
			}
			for _, d := range drivers {
				if left := d.Left(); len(left) > 0 {
					t.Errorf("the suite has left %v", left)
				}
			}
		})
	}
}
