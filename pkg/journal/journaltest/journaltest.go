// Package journaltest is what every journal.Store has to do: one suite, run on
// each of them.
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

// Run runs the suite, its tests side by side. prepare makes a place for a store,
// empty, and returns what opens it: as often as the test likes, as a restarted
// driver would.
func Run(t *testing.T, prepare func(t *testing.T) (open func() (journal.Store, error))) {
	for name, test := range map[string]func(*testing.T, place){
		"Reopened":    testReopened,
		"CompareSwap": testCompareAndSwap,
		"Delete":      testDelete,
		"Dependents":  testDependents,
		"Writers":     testConcurrentWriters,
		"Closed":      testClosed,
		"Names":       testNames,
		"Identity":    testIdentity,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			test(t, place{t, prepare(t)})
		})
	}
}

type place struct {
	*testing.T
	maker func() (journal.Store, error)
}

func (p place) open() journal.Store {
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

// A journal gets one identity, which is no record and outlives restarts and moves.
func testIdentity(t *testing.T, p place) {
	s := p.open()
	j := journal.New(s)
	if have, err := j.Identities(t.Context()); err != nil || len(have) != 0 {
		t.Fatalf("at first: %q, %v", have, err)
	}
	p.must(j.Begin(t.Context()))
	begun, err := j.Identities(t.Context())
	if err != nil || len(begun) != 1 || !cosi.IsIdentity(begun[0]) {
		t.Fatalf("begun: %q, %v", begun, err)
	}
	if places, err := j.Walk(t.Context(), journal.Place{}, 10); err != nil || len(places) != 0 {
		t.Errorf("a walk finds %v, %v", places, err)
	}
	if use, err := j.Use(t.Context(), time.Now(), func(string) string { return "" }); err != nil || len(use) != 0 {
		t.Errorf("it is used: %v, %v", use, err)
	}
	const other = "00112233445566ff"
	head := fmt.Sprintf(`{"format":"contract-cosi-driver journal","version":1,"owner":"o","entries":0,"identities":[%q]}`, other)
	for range 2 {
		if _, _, err := journal.Import(t.Context(), s, "o", strings.NewReader(head)); err != nil {
			t.Fatal(err)
		}
	}
	p.must(s.Close())
	s = p.open()
	j = journal.New(s)
	p.must(j.Begin(t.Context()))
	have, err := j.Identities(t.Context())
	if want := []string{begun[0], other}; err != nil || !slices.Equal(have, want) {
		t.Errorf("after an import and a restart: %q, %v, want %q", have, err, want)
	}
	var out strings.Builder
	if n, err := journal.Export(t.Context(), s, "o", &out); err != nil || n != 0 || !strings.Contains(out.String(), begun[0]) {
		t.Errorf("an export has %d entries (%v): %s", n, err, out.String())
	}
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
	// Removed and re-created is not the record that was read, either.
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

// What hangs on a bucket and what a contract has follow what is written and
// deleted. The keys of a bucket count also when the bucket's own record is gone.
func testDependents(t *testing.T, p place) {
	j := journal.New(p.open())
	const n = 12                                                             // bucket-1 is the beginning of bucket-10
	other := cosi.ContractID{Backend: "main", Contract: "team-a-and-others"} // and team-a of this
	p.must(j.SaveBucket(t.Context(), &journal.Bucket{ID: cosi.BucketID{ContractID: other, Bucket: "b"}}))
	has := func(contract cosi.ContractID, buckets, keys int) {
		t.Helper()
		if b, k, err := j.Usage(t.Context(), contract); b != buckets || k != keys || err != nil {
			t.Errorf("%s has %d buckets and %d keys (%v), want %d and %d", contract, b, k, err, buckets, keys)
		}
		if used, err := j.InUse(t.Context(), contract); used != (buckets > 0) || err != nil {
			t.Errorf("%s has %d buckets, and to be used is %v (%v)", contract, buckets, used, err)
		}
	}
	for i := range n {
		p.must(j.SaveBucket(t.Context(), &journal.Bucket{ID: bucketID(i)}))
		a := account(i, journal.Intent, i, (i+1)%n)
		p.must(j.SaveAccount(t.Context(), a))
		p.must(j.SaveAccount(t.Context(), a)) // a change is no other key
	}
	has(contractID("team-a"), n, n)
	accounts, err := j.AccountsOn(t.Context(), bucketID(1))
	if err != nil || len(accounts) != 2 || accounts[0].ID != accountID(0) || accounts[1].ID != accountID(1) {
		t.Errorf("accounts on bucket 1: %d, %v", len(accounts), err)
	}
	p.must(j.Delete(t.Context(), accounts[0]))
	if accounts, err = j.AccountsOn(t.Context(), bucketID(1)); err != nil || len(accounts) != 1 {
		t.Errorf("after one is deleted: %d, %v", len(accounts), err)
	}
	for i := range n {
		has(contractID("team-a"), n-i, n-1)
		b, err := j.Bucket(t.Context(), bucketID(i))
		p.must(err)
		p.must(j.Delete(t.Context(), b))
	}
	has(contractID("team-a"), 0, n-1)
	has(other, 1, 0)
}

// Writers add a word each to the same record until all have got through:
// compare-and-swap loses none and doubles none, and nothing that is written at
// once is mixed up.
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
		c, err := j.Contract(t.Context(), contractID("team-a"))
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
	c, err := j.Contract(t.Context(), contractID("team-a"))
	if err != nil || strings.Count(c.Proposed.AccessKeyID, "<") != want {
		t.Errorf("%q (%v), want %d words", c.Proposed.AccessKeyID, err, want)
	}
}

func testClosed(_ *testing.T, p place) {
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
		if _, err := j.Bucket(t.Context(), id); err != nil {
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
