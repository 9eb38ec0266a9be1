package sanity_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/contract-cosi/contract-cosi-driver/pkg/sanity"
	"github.com/contract-cosi/contract-cosi-driver/pkg/sanity/internal/fake"
)

// found says which checks a driver with a fault does not pass, and that it
// passes all others: "B03" in both versions, "1:B03" in v1alpha1 only.
var found = map[fake.Fault]string{
	fake.NameTooLong:   "I01",
	fake.NameUpperCase: "2:I02",
	fake.NoProtocols:   "2:I03 2:B06 2:B10 2:F04",
	fake.ProtocolTwice: "2:I04",

	fake.NoBucketID: "B01 B02 B03 B04 B05 2:B06 B07 1:B08 B09 2:B10 2:B11 2:B12 A01 A02 A03 2:A04 A05 A06 A07 A08 2:A09 A10 2:A11 2:A12 A13 " +
		"R01 R02 R03 K01 1:K02 K03 K04 K05 K06 2:K10 K07 1:K08 2:K09 F01 F02 F03 2:F04 F05 F06 F07 C01 C02 C03 C04 C05 C06 T01 T02 T03 T04 G10", // what would go without a bucket?
	fake.LongBucketID:       "B02 2:B10",
	fake.SlashInBucketID:    "2:B02 2:B10",
	fake.NewBucketID:        "B03 B05 B09 C01 T01",
	fake.OneBucketID:        "B04 2:A09 2:A11 2:K09 C04",
	fake.CreateAnything:     "B05",
	fake.NoProtocolInfo:     "2:B06",
	fake.UnsupportedInfo:    "2:B06",
	fake.DeleteNotFound:     "B07 2:C05 2:C06 2:T04 2:G01", // what v1alpha1's sidecar takes for success
	fake.DeletePrecondition: "B07 1:B08 C05 C06 T04",
	fake.DeleteUnknown:      "B09 2:B14",
	fake.ExistingNotFound:   "2:B10 2:B12",
	fake.ExistingInvented:   "2:B11 2:B14",
	fake.ExistingAnything:   "2:B12",
	fake.NothingDeleted:     "B07 1:B08 2:B11 A10 R03 C04 C05 C06 T04 G10",

	fake.GeneratesAnother: "2:B13",
	fake.GeneratesOne:     "2:B13",
	fake.GeneratesSpaces:  "2:B13 2:B14",
	fake.GenerateMakes:    "2:B14",

	fake.NoAccountID:    "A01 A02 A03 2:A04 A05 A06 A07 A08 2:A09 2:A11 2:A12 R01 R02 R03 K01 1:K02 K03 K04 K05 K06 2:K10 K07 1:K08 2:K09 C02 C03 C04 C05 C06 T02 T03 G10",
	fake.LongAccountID:  "A02",
	fake.NoRegion:       "1:A03 1:K01 1:K02 1:K03 1:K04 1:K05 1:K06 1:K07 1:K08 1:T02 1:T03", // nothing can be signed
	fake.TwoCredentials: "A03 2:A11",
	fake.NoStyle:        "2:A04 2:A11",
	fake.NewAccountID:   "A05 2:A12 R02 C02 T02",
	fake.NewKey:         "A06 C03",
	fake.RotatedKey:     "A06 K03 C03 T02",
	fake.OneAccountID:   "A07 K04 C04",
	fake.GrantExists:    "1:A08 1:G03",
	fake.GrantAnything:  "2:A08 2:A09",
	fake.GrantUnknown:   "A10",
	fake.OneInfo:        "2:A11",
	fake.OrderMatters:   "2:A12",
	fake.IAMFailed:      "A13 2:F01",

	fake.RevokeNotFound:    "R01 R03 C05 C06 T03 2:G01",
	fake.RevokeUnknown:     "R02",
	fake.RevokeNeedsBucket: "R03 C06 G10",

	fake.DeadKeys:           "K01 1:K02 K03 K04 K05 K06 2:K10 K07 1:K08 2:K09 T02 1:T03",
	fake.BucketElsewhere:    "1:K02",
	fake.ImmortalKeys:       "K04 T03",
	fake.RevokesAll:         "K04",
	fake.MasterKeys:         "K05 K06 2:K10 K07 2:K09",
	fake.NoModes:            "K06 2:K10 K07 2:K09",
	fake.ModesShifted:       "2:K10",
	fake.KeysOutliveBuckets: "1:K08",

	fake.MissingInternal:   "F01",
	fake.MissingHangs:      "F01 G08 G10",
	fake.MissingIDInternal: "F02",
	fake.EnumsTaken:        "F03",
	fake.ProtocolsTaken:    "2:F04",
	fake.LongInternal:      "F05 F06",
	fake.ForeignUnknown:    "F06 F07 G02",
	fake.ForeignCrash:      "2:I01 1:F06 G09 1:G10", // the rest is not run

	fake.CreateRace:         "C01",
	fake.GrantRace:          "C02",
	fake.KeyRace:            "C03",
	fake.ConcurrencyRefused: "C04",
	fake.RevokeRace:         "C05",
	fake.DeleteRace:         "C06 G10",
	fake.PoisonedCreate:     "T01",
	fake.PoisonedGrant:      "T02",
	fake.PoisonedRevoke:     "T03 G10",
	fake.PoisonedDelete:     "T04 G10",

	fake.GrantOutOfRange: "G01",
	fake.Details:         "G04",
	fake.NoMessage:       "G05",
	fake.SecretInMessage: "G06",
	fake.ChangingMessage: "G07",
}

// expand makes "1 B03" and "2 B03" of "B03".
func expand(checks string) []string {
	var out []string
	for check := range strings.FieldsSeq(checks) {
		if version, number, ok := strings.Cut(check, ":"); ok {
			out = append(out, version+" "+number)
		} else {
			out = append(out, "1 "+check, "2 "+check)
		}
	}
	slices.Sort(out)
	return out
}

func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	// The runs wait more than they work, so there are more at once than tests
	// would be.
	const atOnce = 24
	faults := fake.Faults()
	reports := make([]*sanity.Report, len(faults))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, fault := range faults {
		d := start(t, both, fault)
		c := config(d).TimedBy(d)
		c.Settle = time.Nanosecond // what does not come at once never comes
		group.Go(func() (err error) {
			reports[i], err = sanity.Run(t.Context(), c)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, fault := range faults {
		t.Run(string(fault), func(t *testing.T) {
			checks, ok := found[fault]
			if !ok {
				t.Fatal("nobody has said which checks find it")
			}
			report := reports[i]
			got, want := failed(report), expand(checks)
			for _, check := range want {
				if !slices.Contains(got, check) {
					t.Errorf("%s does not find it", check)
				}
			}
			for _, r := range report.Results {
				if (r.Verdict == sanity.Failed || r.Verdict == sanity.Warned) && !slices.Contains(want, short(r)) {
					t.Errorf("%s takes another fault for it: %s", short(r), r.Message)
				}
				if strings.Contains(r.Message, "secret-of-key") {
					t.Errorf("%s tells a secret: %s", short(r), r.Message)
				}
			}
		})
	}
}

// A check that nothing fails proves nothing.
func TestEveryCheckCanFail(t *testing.T) {
	t.Parallel()
	var able []string
	for _, checks := range found {
		able = append(able, expand(checks)...)
	}
	for _, check := range sanity.Checks() {
		for _, rule := range check.Rules {
			name := fmt.Sprintf("%s %s", strings.TrimPrefix(string(rule.Version), "v1alpha"), check.Number)
			if !slices.Contains(able, name) {
				t.Errorf("no fault fails %s: %s", name, check.Name)
			}
		}
	}
}

// legal says which checks cannot be run on a driver that does something
// otherwise and is right. All others pass: the suite is fair.
var legal = map[fake.Fault]string{
	fake.AbortsSecond:    "",
	fake.OneBucketOnly:   "2:A11 2:A12 2:K09",
	fake.KeepsGranted:    "1:K08",
	fake.FullKeysOnly:    "K06 2:K10 K07 2:K09",
	fake.OpaqueIDs:       "B09 R02 2:B13 2:B14 2:K10",
	fake.ServiceAccounts: "",
	fake.Azure:           "K01 1:K02 K03 K04 K05 K06 2:K10 K07 1:K08 2:K09",
	fake.TakesEmptyIDs:   "",
}

func TestLegalHabitsPass(t *testing.T) {
	t.Parallel()
	for _, habit := range fake.Habits() {
		t.Run(string(habit), func(t *testing.T) {
			t.Parallel()
			checks, ok := legal[habit]
			if !ok {
				t.Fatal("nobody has said which checks cannot be run")
			}
			c := config(start(t, both, habit))
			if habit == fake.KeepsGranted {
				c.Settle = 200 * time.Millisecond // it is asked all that time
			}
			want := expand(checks)
			for _, r := range run(t, c).Results {
				verdict := sanity.Passed
				if slices.Contains(want, short(r)) {
					verdict = sanity.NotRun
				}
				if r.Verdict != verdict {
					t.Errorf("%s: %s, want %s: %s", short(r), r.Verdict, verdict, r.Message)
				}
			}
		})
	}
}
