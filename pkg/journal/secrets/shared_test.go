package secrets_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// shared is what two drivers on the same records can count on, beside what every
// store does.
func shared(t *testing.T, place func(*testing.T) func() *journal.Journal) {
	for name, test := range map[string]func(*testing.T, func() *journal.Journal){
		"TwoWriters": testTwoWriters,
		"LostRace":   testLostRace,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			test(t, place(t))
		})
	}
}

var contractID = bucketID(1).ContractID

func accountID(n int) cosi.AccountID {
	return cosi.AccountID{ContractID: contractID, Account: fmt.Sprintf("ba-%d", n)}
}

func account(n int, phase journal.Phase, bucket int) *journal.Account {
	return &journal.Account{ID: accountID(n), Effective: journal.Grant{Buckets: []journal.BucketAccess{{Bucket: bucketID(bucket).Bucket, Mode: cosi.ReadWrite}}}, KeyState: journal.KeyState{Phase: phase}}
}

// want checks that an error is a fault of a kind.
func want(t *testing.T, kind fault.Kind, err error, what string) {
	t.Helper()
	if !fault.Is(err, kind) {
		t.Errorf("%s: got %v, want %s", what, err, kind)
	}
}

func overtaken(t *testing.T, err error, what string) {
	t.Helper()
	if !errors.Is(err, journal.ErrOvertaken) {
		t.Errorf("%s: got %v, want ErrOvertaken", what, err)
	}
}

// add adds a word to a record.
func add(t *testing.T, j *journal.Journal, word string) {
	for {
		c, err := j.Contract(t.Context(), contractID)
		if err == nil && strings.Contains(c.Proposed.AccessKeyID, word) {
			return // its answer was lost
		}
		if err == nil {
			c.Proposed.AccessKeyID += word
			err = j.SaveContract(t.Context(), c)
		}
		switch {
		case err == nil:
			return
		case !errors.Is(err, journal.ErrOvertaken) && !fault.Is(err, fault.Unavailable):
			t.Error(err)
			return
		}
	}
}

func words(t *testing.T, j *journal.Journal) int {
	c, err := j.Contract(t.Context(), contractID)
	if err != nil {
		return 0
	}
	return strings.Count(c.Proposed.AccessKeyID, "<")
}

// Two processes write to one record.
func testTwoWriters(t *testing.T, driver func() *journal.Journal) {
	const rounds = 10
	one, two := driver(), driver()
	must(t, one.SaveContract(t.Context(), &journal.Contract{ID: contractID}))
	eventually(t, "the record", func() bool { _, err := two.Contract(t.Context(), contractID); return err == nil })
	var group sync.WaitGroup
	for w, j := range []*journal.Journal{one, two} {
		group.Go(func() {
			for i := range rounds {
				add(t, j, fmt.Sprintf("<%d.%d>", w, i))
			}
		})
	}
	group.Wait()
	eventually(t, "the words of both", func() bool {
		return words(t, one) == 2*rounds && words(t, two) == 2*rounds
	})
}

// After a Mismatch a reader sees what has beaten it.
func testLostRace(t *testing.T, driver func() *journal.Journal) {
	one, two := driver(), driver()
	for i := range 20 {
		must(t, one.SaveAccount(t.Context(), account(i, journal.Intent, 1)))
		overtaken(t, two.SaveAccount(t.Context(), account(i, journal.Intent, 2)), "the second of two creates")
		mine, err := two.Account(t.Context(), accountID(i))
		if err != nil || mine.Effective.Buckets[0].Bucket != bucketID(1).Bucket {
			t.Fatalf("after a lost create: %v", err)
		}
		theirs, err := one.Account(t.Context(), accountID(i))
		must(t, err)
		theirs.Phase = journal.Done
		must(t, one.SaveAccount(t.Context(), theirs))
		overtaken(t, two.SaveAccount(t.Context(), mine), "the second of two updates")
		if mine, err = two.Account(t.Context(), accountID(i)); err != nil || mine.Phase != journal.Done {
			t.Fatalf("after a lost update: %v", err)
		}
		must(t, one.Delete(t.Context(), theirs))
		overtaken(t, two.SaveAccount(t.Context(), mine), "an update of what another has deleted")
		_, err = two.Account(t.Context(), accountID(i))
		want(t, fault.NotFound, err, "after an update lost to a deletion")
		must(t, two.Delete(t.Context(), mine)) // gone is fine
	}
}
