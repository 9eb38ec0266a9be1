// Package journaltest is what every journal.Store has to do: one suite, run on
// each of them, and on a store in a real cluster as well.
package journaltest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Store is a store that can be closed.
type Store interface {
	journal.Store
	Close() error
}

// Harness opens stores.
type Harness struct {
	// Place prepares a place for a store, empty, and returns what opens it: as
	// often as the test likes, as a restarted driver would.
	Place func(t *testing.T) (open func() (Store, error))
	// Shared says that a place can be open several times at once.
	Shared bool
}

// Run runs the suite, its tests side by side.
func Run(t *testing.T, h Harness) {
	for name, test := range map[string]func(*testing.T, place){
		"Reopened":      testReopened,
		"CompareSwap":   testCompareAndSwap,
		"Delete":        testDelete,
		"Dependents":    testDependents,
		"All":           testAll,
		"Walk":          testWalk,
		"Writers":       testConcurrentWriters,
		"Closed":        testClosed,
		"Names":         testNames,
		"Export-import": testTransfer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			test(t, place{t, h.Place(t)})
		})
	}
	if !h.Shared {
		return
	}
	for name, test := range map[string]func(*testing.T, place){
		"TwoWriters":   testTwoWriters,
		"LostRace":     testLostRace,
		"Refresh":      testRefresh,
		"NeitherMiss":  testNeitherMisses,
		"SyncAfterAll": testSyncSeesEarlierWrites,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			test(t, place{t, h.Place(t)})
		})
	}
}

type place struct {
	*testing.T
	maker func() (Store, error)
}

func (p place) open() Store {
	p.Helper()
	s, err := p.maker()
	p.must(err)
	p.Cleanup(func() { _ = s.Close() })
	return s
}

func (p place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// want checks that an error is a fault of a kind.
func (p place) want(kind fault.Kind, err error, what string) {
	p.Helper()
	if !fault.Is(err, kind) {
		p.Errorf("%s: got %v, want %s", what, err, kind)
	}
}

// overtaken checks that a write was refused because the record has changed.
func (p place) overtaken(err error, what string) {
	p.Helper()
	if !errors.Is(err, journal.ErrOvertaken) || !fault.Is(err, fault.Unavailable) {
		p.Errorf("%s: got %v, want ErrOvertaken", what, err)
	}
}

func contractID(name string) cosi.ContractID {
	return cosi.ContractID{Backend: "main", Contract: name}
}

func bucketID(n int) cosi.BucketID {
	return cosi.BucketID{ContractID: contractID("team-a"), Bucket: fmt.Sprintf("bucket-%d", n)}
}

func accountID(n int) cosi.AccountID {
	return cosi.AccountID{ContractID: contractID("team-a"), Account: fmt.Sprintf("ba-%d", n)}
}

func account(n int, phase journal.Phase, buckets ...int) *journal.Account {
	a := &journal.Account{ID: accountID(n), KeyState: journal.KeyState{Phase: phase, Proposed: pair(n)}}
	for _, b := range buckets {
		a.Effective.Buckets = append(a.Effective.Buckets, journal.BucketAccess{Bucket: bucketID(b).Bucket, Mode: cosi.ReadWrite})
	}
	return a
}

func pair(n int) secret.KeyPair {
	return secret.KeyPair{AccessKeyID: fmt.Sprintf("key-%d", n), SecretAccessKey: secret.New(fmt.Sprintf("secret-%d", n))}
}

func testReopened(t *testing.T, p place) {
	s := p.open()
	j := journal.New(s)
	p.must(j.SaveContract(t.Context(), &journal.Contract{ID: contractID("team-a"), KeyState: journal.KeyState{Phase: journal.Done, Issued: pair(7)}}))
	for i := range 5 {
		p.must(j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(i)}))
		p.must(j.SaveAccount(t.Context(), account(i, journal.Done, i)))
	}
	rotating := account(9, journal.Done, 1)
	rotating.IssuedAt = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	rotating.Rotation = &journal.Rotation{Phase: journal.Intent, Proposed: pair(10), Old: "key-8", Grace: time.Hour, HandedOut: rotating.IssuedAt}
	p.must(j.SaveAccount(t.Context(), rotating))
	p.must(s.Close())
	j = journal.New(p.open())
	if a, err := j.Account(t.Context(), rotating.ID); err != nil || !a.IssuedAt.Equal(rotating.IssuedAt) || !reflect.DeepEqual(a.Rotation, rotating.Rotation) {
		t.Errorf("a rotation is %+v (%v), want %+v", a, err, rotating)
	}
	c, err := j.Contract(t.Context(), contractID("team-a"))
	if err != nil || c.Issued.SecretAccessKey.Reveal() != "secret-7" {
		t.Errorf("the contract's record: %v", err)
	}
	for i := range 5 {
		if _, err := j.Bucket(t.Context(), bucketID(i)); err != nil {
			t.Error(err)
		}
		a, err := j.Account(t.Context(), accountID(i))
		if err != nil || a.Proposed.SecretAccessKey.Reveal() != fmt.Sprintf("secret-%d", i) {
			t.Errorf("account %d: %v", i, err)
		}
	}
	for kind, want := range map[journal.RecordKind]int{journal.Contracts: 1, journal.Buckets: 5, journal.Accounts: 6} {
		if n, err := j.Count(t.Context(), kind); err != nil || n != want {
			t.Errorf("%d records of kind %s (%v), want %d", n, kind, err, want)
		}
	}
	p.must(retried(func() error { return j.Check(t.Context()) }))
}

func testCompareAndSwap(t *testing.T, p place) {
	j := journal.New(p.open())
	_, err := j.Account(t.Context(), accountID(1))
	p.want(fault.NotFound, err, "no record")
	first := account(1, journal.Intent, 1)
	p.must(j.SaveAccount(t.Context(), first))
	p.overtaken(j.SaveAccount(t.Context(), account(1, journal.Intent, 1)), "a second record of one name")
	other, err := j.Account(t.Context(), accountID(1))
	p.must(err)
	other.Phase = journal.Done
	p.must(j.SaveAccount(t.Context(), other))
	p.overtaken(j.SaveAccount(t.Context(), first), "an outdated record")
	p.overtaken(j.Delete(t.Context(), first), "the deletion of an outdated record")
	// Removed and made again is not the record that was read, either.
	p.must(j.Delete(t.Context(), other))
	p.must(j.Delete(t.Context(), other)) // gone is fine
	_, err = j.Account(t.Context(), accountID(1))
	p.want(fault.NotFound, err, "a deleted record")
	p.overtaken(j.SaveAccount(t.Context(), other), "a record that is gone")
	p.must(j.SaveAccount(t.Context(), account(1, journal.Done, 1)))
	for _, outdated := range []*journal.Account{first, other} {
		p.overtaken(j.SaveAccount(t.Context(), outdated), "a record of an earlier life")
		p.overtaken(j.Delete(t.Context(), outdated), "the deletion of a record of an earlier life")
	}
}

func testDelete(t *testing.T, p place) {
	j := journal.New(p.open())
	a, b := account(1, journal.Done, 1), account(2, journal.Done, 1)
	bucket := &journal.Bucket{ID: bucketID(1)}
	p.must(j.SaveBucket(t.Context(), bucket))
	p.must(j.SaveAccount(t.Context(), a))
	p.must(j.SaveAccount(t.Context(), b))
	outdated := *b
	p.must(j.SaveAccount(t.Context(), b))
	p.overtaken(j.Delete(t.Context(), a, &outdated, bucket), "one of three is outdated")
	if _, err := j.Bucket(t.Context(), bucketID(1)); err != nil {
		t.Errorf("what stands behind the outdated one was deleted: %v", err)
	}
	p.must(j.Delete(t.Context(), a, b, bucket)) // whether or not the first is gone
	for _, kind := range []journal.RecordKind{journal.Buckets, journal.Accounts} {
		if n, err := j.Count(t.Context(), kind); err != nil || n != 0 {
			t.Errorf("%d records of kind %s are left (%v)", n, kind, err)
		}
	}
}

func testDependents(t *testing.T, p place) {
	j := journal.New(p.open())
	for i := range 12 { // bucket-1 is the beginning of bucket-10
		p.must(j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(i)}))
		p.must(j.SaveAccount(t.Context(), account(i, journal.Done, i, (i+1)%12)))
	}
	accounts, err := j.AccountsOn(t.Context(), bucketID(1))
	if err != nil || len(accounts) != 2 || accounts[0].ID != accountID(0) || accounts[1].ID != accountID(1) {
		t.Errorf("accounts on bucket 1: %d, %v", len(accounts), err)
	}
	p.must(j.Delete(t.Context(), accounts[0]))
	if accounts, err = j.AccountsOn(t.Context(), bucketID(1)); err != nil || len(accounts) != 1 {
		t.Errorf("after one is deleted: %d, %v", len(accounts), err)
	}
	for i := range 12 {
		if used, err := j.InUse(t.Context(), contractID("team-a")); err != nil || !used {
			t.Errorf("with %d buckets the contract is not in use (%v)", 12-i, err)
		}
		b, err := j.Bucket(t.Context(), bucketID(i))
		p.must(err)
		p.must(j.Delete(t.Context(), b))
	}
	if used, err := j.InUse(t.Context(), contractID("team-a")); err != nil || used {
		t.Errorf("without buckets the contract is in use (%v)", err)
	}
}

func testAll(t *testing.T, p place) {
	s := p.open()
	j := journal.New(s)
	for i := range 3 {
		p.must(j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(i)}))
	}
	all, err := s.All(t.Context())
	p.must(err)
	var ids []string
	for _, e := range all {
		ids = append(ids, e.Key.ID)
	}
	slices.Sort(ids)
	if strings.Join(ids, " ") != fmt.Sprintf("%s %s %s", bucketID(0), bucketID(1), bucketID(2)) {
		t.Errorf("entries: %s", ids)
	}
}

// Writers add a word each to the same record until all have got through:
// compare-and-swap loses none and doubles none, and nothing that is written at
// once is mixed up.
// A walk in small steps passes every record once, in the same order each time.
func testWalk(t *testing.T, p place) {
	s := p.open()
	j := journal.New(s)
	want := map[journal.Key]bool{}
	for n := range 40 {
		p.must(j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(n)}))
		want[journal.Key{Kind: journal.Buckets, ID: bucketID(n).String()}] = true
	}
	p.must(j.SaveContract(t.Context(), &journal.Contract{ID: contractID("team-a")}))
	want[journal.Key{Kind: journal.Contracts, ID: contractID("team-a").String()}] = true
	walk := func(step int) (seen []journal.Place) {
		t.Helper()
		for after := (journal.Place{}); ; after = seen[len(seen)-1] {
			next, err := j.Walk(t.Context(), after, step)
			p.must(err)
			if len(next) == 0 {
				return seen
			}
			if len(next) > step {
				t.Fatalf("%d places, at most %d were asked for", len(next), step)
			}
			seen = append(seen, next...)
		}
	}
	seen := walk(7)
	for i, place := range seen {
		if !want[place.Key] || place != journal.PlaceOf(place.Key) || i > 0 && place.At < seen[i-1].At {
			t.Errorf("place %d is %v", i, place)
		}
		delete(want, place.Key)
	}
	if len(want) > 0 {
		t.Errorf("the walk missed %v", want)
	}
	if !slices.Equal(seen, walk(1)) || !slices.Equal(seen, walk(1000)) {
		t.Error("another step gives another walk")
	}
}

func testConcurrentWriters(t *testing.T, p place) {
	const writers, rounds = 8, 5
	j := journal.New(p.open())
	p.must(retried(func() error {
		return j.SaveContract(t.Context(), &journal.Contract{ID: contractID("team-a"), KeyState: journal.KeyState{Phase: journal.Intent}})
	}))
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range rounds {
				err := retried(func() error { return j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(w*100 + i)}) })
				if err != nil && !errors.Is(err, journal.ErrOvertaken) { // an earlier try has done it
					t.Error(err)
				}
				add(t, j, fmt.Sprintf("<%d.%d>", w, i))
			}
		})
	}
	group.Wait()
	expectWords(t, j, writers*rounds)
	if n, _ := j.Count(t.Context(), journal.Buckets); n != writers*rounds {
		t.Errorf("%d buckets, want %d", n, writers*rounds)
	}
}

// retried makes a call again whose outcome is unknown, as the sidecars do.
func retried(do func() error) error {
	for range 20 {
		if err := do(); !fault.Is(err, fault.Unavailable) {
			return err
		}
	}
	return do()
}

// add adds a word to a record.
func add(t *testing.T, j *journal.Journal, word string) {
	for {
		c, err := j.Fresh().Contract(t.Context(), contractID("team-a"))
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

func expectWords(t *testing.T, j *journal.Journal, want int) {
	t.Helper()
	c, err := j.Fresh().Contract(t.Context(), contractID("team-a"))
	if err != nil || strings.Count(c.Proposed.AccessKeyID, "<") != want {
		t.Errorf("%q (%v), want %d words", c.Proposed.AccessKeyID, err, want)
	}
}

func testClosed(t *testing.T, p place) {
	s := p.open()
	p.must(s.Close())
	p.must(s.Close())
}

// Every id that the driver can give is one that the store can keep.
func testNames(t *testing.T, p place) {
	j := journal.New(p.open())
	long := strings.Repeat("n", 63)
	wide := cosi.ContractID{Backend: strings.Repeat("b", 31), Contract: strings.Repeat("c", 32)}
	for _, name := range []string{long, "a.b", "a-.b", "a.-b", "1-2.3", "aaa"} {
		if err := cosi.CheckBucketName(name); err != nil {
			t.Fatal(err)
		}
		id := cosi.BucketID{ContractID: wide, Bucket: name}
		p.must(j.SaveBucket(t.Context(), &journal.Bucket{ID: id}))
		if _, err := j.Fresh().Bucket(t.Context(), id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	// The same id in all three kinds.
	p.must(j.SaveAccount(t.Context(), &journal.Account{ID: cosi.AccountID{ContractID: wide, Account: long}}))
	p.must(j.SaveContract(t.Context(), &journal.Contract{ID: wide}))
	if n, _ := j.Count(t.Context(), journal.Buckets); n != 6 {
		t.Errorf("%d buckets", n)
	}
}

func testTransfer(t *testing.T, p place) {
	s := p.open()
	j := journal.New(s)
	p.must(j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(1)}))
	p.must(j.SaveAccount(t.Context(), account(1, journal.Done, 1)))
	var out strings.Builder
	if n, err := journal.Export(t.Context(), s, "owner", &out); err != nil || n != 2 {
		t.Fatalf("%d entries, %v", n, err)
	}
	imported, same, err := journal.Import(t.Context(), s, "owner", strings.NewReader(out.String()))
	if imported != 0 || same != 2 || err != nil {
		t.Errorf("over itself: %d imported, %d the same, %v", imported, same, err)
	}
	a, err := j.Account(t.Context(), accountID(1))
	p.must(err)
	p.must(j.Delete(t.Context(), a))
	imported, same, err = journal.Import(t.Context(), s, "owner", strings.NewReader(out.String()))
	if imported != 1 || same != 1 || err != nil {
		t.Errorf("after a loss: %d imported, %d the same, %v", imported, same, err)
	}
	accounts, err := j.AccountsOn(t.Context(), bucketID(1))
	if err != nil || len(accounts) != 1 || accounts[0].Proposed.SecretAccessKey.Reveal() != "secret-1" {
		t.Errorf("what was imported: %v", err)
	}
	accounts[0].Phase = journal.Intent
	p.must(j.SaveAccount(t.Context(), accounts[0]))
	if _, _, err = journal.Import(t.Context(), s, "owner", strings.NewReader(out.String())); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), accountID(1).String()) {
		t.Errorf("over another record: %v", err)
	}
}

// Two processes write to one record.
func testTwoWriters(t *testing.T, p place) {
	const rounds = 10
	one, two := journal.New(p.open()), journal.New(p.open())
	p.must(one.SaveContract(t.Context(), &journal.Contract{ID: contractID("team-a")}))
	if _, err := two.Fresh().Contract(t.Context(), contractID("team-a")); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for w, j := range []*journal.Journal{one, two} {
		group.Go(func() {
			for i := range rounds {
				add(t, j, fmt.Sprintf("<%d.%d>", w, i))
			}
		})
	}
	group.Wait()
	expectWords(t, one, 2*rounds)
	expectWords(t, two, 2*rounds)
}

// After a Mismatch a reader sees what has beaten it.
func testLostRace(t *testing.T, p place) {
	one, two := journal.New(p.open()), journal.New(p.open())
	for i := range 20 {
		p.must(one.SaveAccount(t.Context(), account(i, journal.Intent, 1)))
		p.overtaken(two.SaveAccount(t.Context(), account(i, journal.Intent, 2)), "the second of two creates")
		mine, err := two.Account(t.Context(), accountID(i))
		if err != nil || mine.Effective.Buckets[0].Bucket != bucketID(1).Bucket {
			t.Fatalf("after a lost create: %v", err)
		}
		theirs, err := one.Account(t.Context(), accountID(i))
		p.must(err)
		theirs.Phase = journal.Done
		p.must(one.SaveAccount(t.Context(), theirs))
		p.overtaken(two.SaveAccount(t.Context(), mine), "the second of two updates")
		if mine, err = two.Account(t.Context(), accountID(i)); err != nil || mine.Phase != journal.Done {
			t.Fatalf("after a lost update: %v", err)
		}
		p.must(one.Delete(t.Context(), theirs))
		p.overtaken(two.SaveAccount(t.Context(), mine), "an update of what another has deleted")
		_, err = two.Account(t.Context(), accountID(i))
		p.want(fault.NotFound, err, "after an update lost to a deletion")
		p.must(two.Delete(t.Context(), mine)) // gone is fine
	}
}

func testRefresh(t *testing.T, p place) {
	one, two := journal.New(p.open()), journal.New(p.open())
	for i := range 20 {
		a := account(i, journal.Intent, 1)
		for _, phase := range []journal.Phase{journal.Intent, journal.Done} {
			a.Phase = phase
			p.must(one.SaveAccount(t.Context(), a))
			if got, err := two.Fresh().Account(t.Context(), a.ID); err != nil || got.Phase != phase {
				t.Fatalf("right after a write: %v", err)
			}
		}
		p.must(one.Delete(t.Context(), a))
		_, err := two.Fresh().Account(t.Context(), a.ID)
		p.want(fault.NotFound, err, "right after a deletion")
		_, err = two.Account(t.Context(), a.ID)
		p.want(fault.NotFound, err, "a read after that")
	}
}

// What another process wrote before a process's own last write is seen after
// Sync.
func testSyncSeesEarlierWrites(t *testing.T, p place) {
	one, two := journal.New(p.open()), journal.New(p.open())
	for i := range 30 {
		p.must(one.SaveAccount(t.Context(), account(i, journal.Done, 1)))
		own := &journal.Bucket{ID: bucketID(i)}
		p.must(two.SaveBucket(t.Context(), own))
		if i%2 == 1 {
			p.must(two.Delete(t.Context(), own))
		}
		p.must(two.Sync(t.Context(), own))
		if accounts, err := two.AccountsOn(t.Context(), bucketID(1)); err != nil || len(accounts) != i+1 {
			t.Fatalf("%d accounts, %v; want %d", len(accounts), err, i+1)
		}
	}
}

// One process deletes a bucket's record while the other records a key to it.
// Each syncs and looks: never do both find nothing.
func testNeitherMisses(t *testing.T, p place) {
	granter, deleter := journal.New(p.open()), journal.New(p.open())
	for i := range 100 {
		bucket := &journal.Bucket{ID: bucketID(i)}
		p.must(deleter.SaveBucket(t.Context(), bucket))
		if _, err := granter.Fresh().Bucket(t.Context(), bucket.ID); err != nil {
			t.Fatal(err)
		}
		var granted, deleted error
		var group sync.WaitGroup
		var bucketGone bool
		var keys []*journal.Account
		group.Go(func() {
			a := account(i, journal.Intent, i)
			if granted = granter.SaveAccount(t.Context(), a); granted != nil {
				return
			}
			if granted = granter.Sync(t.Context(), a); granted != nil {
				return
			}
			_, err := granter.Bucket(t.Context(), bucket.ID)
			bucketGone = fault.Is(err, fault.NotFound)
		})
		group.Go(func() {
			if deleted = deleter.Delete(t.Context(), bucket); deleted != nil {
				return
			}
			if deleted = deleter.Sync(t.Context(), bucket); deleted != nil {
				return
			}
			keys, deleted = deleter.AccountsOn(t.Context(), bucket.ID)
		})
		group.Wait()
		p.must(granted)
		p.must(deleted)
		if !bucketGone && len(keys) == 0 {
			t.Fatalf("round %d: the key was given to a bucket that is gone, and nobody knows", i)
		}
	}
}
