package admin

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// A contract with so many keys that one pass takes longer than the grace is waited for,
// and one whose keys never end is given up.
func TestReplaceAll(t *testing.T) {
	t.Parallel()
	const grace = 2 * time.Minute
	for name, ends := range map[string]bool{"many": true, "stuck": false} {
		synctest.Test(t, func(t *testing.T) {
			left := make([]cosi.AccountID, 10_000)
			if !ends {
				left = left[:1]
			}
			for i := range left {
				left[i].Account = fmt.Sprint(i)
			}
			begun := map[cosi.AccountID]time.Time{}
			var done, faults int
			err := replaceAll(t.Context(), left, grace, func(id cosi.AccountID) (bool, error) {
				if begun[id].IsZero() {
					begun[id] = time.Now()
				}
				return !ends || time.Since(begun[id]) < grace, nil
			}, func(cosi.AccountID) { done++ }, func(l Line) { faults += len(l.Faults) })
			if err != nil || ends && (done != len(left) || faults > 0) || !ends && faults != 1 {
				t.Errorf("%s: %d are done, %d faults, %v", name, done, faults, err)
			}
		})
	}
}

// What is away for now is tried again, in whatever words it is told.
func TestReplaceWhatIsAway(t *testing.T) {
	t.Parallel()
	for _, kind := range []fault.Kind{fault.Unavailable, fault.RateLimited, fault.Pending, fault.Canceled} {
		synctest.Test(t, func(t *testing.T) {
			tries, faults := 0, 0
			err := replaceAll(t.Context(), make([]cosi.AccountID, 1), time.Minute, func(cosi.AccountID) (bool, error) {
				if tries++; tries < 3 {
					return false, fault.New(kind, "away")
				}
				return false, nil
			}, func(cosi.AccountID) {}, func(l Line) { faults += len(l.Faults) })
			if err != nil || tries != 3 || faults > 0 {
				t.Errorf("%s: %d tries, %d faults, %v", kind, tries, faults, err)
			}
		})
	}
}

// Keys that would be replaced by keys that have to be replaced are not begun with.
func TestReplaceBeforeATimeToCome(t *testing.T) {
	t.Parallel()
	err := (&Admin{}).Do(t.Context(), Rotate, Request{Contract: "blue", IssuedBefore: time.Now().Add(time.Hour)}, nil)
	if !fault.Is(err, fault.InvalidArgument) || !strings.Contains(err.Error(), "in the future") {
		t.Errorf("it is refused with %v", err)
	}
}
