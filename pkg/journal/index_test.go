package journal_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// A walk in small steps passes every record once, in the same order each time.
func TestWalk(t *testing.T) {
	index, want := journal.NewIndex(), map[journal.Key]bool{}
	for n := range 40 {
		key := journal.Key{Kind: journal.Buckets, ID: fmt.Sprintf("main.team-a.bucket-%d", n)}
		index.Put(journal.Entry{Key: key})
		want[key] = true
	}
	walk := func(step int) (seen []journal.Place) {
		t.Helper()
		for after := (journal.Place{}); ; after = seen[len(seen)-1] {
			next := index.Walk(after, step)
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

// A step of a walk takes the same memory however many records there are. It is
// not run beside other tests, whose memory would be counted.
func TestWalkTakesBoundedMemory(t *testing.T) {
	allocated := func(records int) uint64 {
		index := journal.NewIndex()
		for i := range records {
			index.Put(journal.Entry{Key: journal.Key{Kind: journal.Buckets, ID: fmt.Sprintf("main.team.bucket-%d", i)}})
		}
		const times = 100
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			if n := len(index.Walk(journal.Place{}, 50)); n != 50 {
				t.Fatal(n)
			}
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / times
	}
	few, many := allocated(1_000), allocated(20_000)
	t.Logf("a step takes %d bytes among 1,000 records and %d among 20,000", few, many)
	if many > few+few/2 {
		t.Error("it takes more where there are more")
	}
}

// Whatever is put and removed, in any order, an index holds what a plain map
// would, and counts it.
func FuzzIndex(f *testing.F) {
	f.Add([]byte("aAbB\x00\x81\xff"))
	f.Add([]byte{1, 2, 3, 130, 131, 2, 1, 9, 137, 70, 71, 200})
	f.Fuzz(func(t *testing.T, steps []byte) {
		index, want := journal.NewIndex(), map[journal.Key]journal.Entry{}
		for n, step := range steps {
			// Of two contracts, four buckets and eight accounts each.
			contract := fmt.Sprintf("main.team-%d", step>>6&1)
			bucket := func(n byte) journal.Key {
				return journal.Key{Kind: journal.Buckets, ID: fmt.Sprintf("%s.bucket-%d", contract, n&3)}
			}
			e := journal.Entry{Key: bucket(step), Refs: []journal.Key{{Kind: journal.Contracts, ID: contract}}, Version: uint64(n) + 1}
			if step&32 != 0 {
				e.Key = journal.Key{Kind: journal.Accounts, ID: fmt.Sprintf("%s.account-%d", contract, step&7)}
				e.Refs = []journal.Key{bucket(step >> 3), bucket(step)} // may be one bucket twice
			}
			if step >= 128 {
				index.Remove(e.Key)
				delete(want, e.Key)
			} else {
				index.Put(e)
				want[e.Key] = e
			}
		}
		counts := map[string]int{}
		on := map[journal.Key]map[journal.Key]uint64{}
		for key, e := range want {
			if got, err := index.Get(key); err != nil || got.Version != e.Version || got.Key != key {
				t.Fatalf("%s is %v (%v), want version %d", key, got, err, e.Version)
			}
			counts[string(key.Kind)]++
			counts[string(key.Kind)+key.ID[:len("main.team-0")]]++
			for _, ref := range e.Refs {
				if on[ref] == nil {
					on[ref] = map[journal.Key]uint64{}
				}
				on[ref][key] = e.Version
			}
		}
		for _, kind := range []journal.RecordKind{journal.Buckets, journal.Accounts} {
			for _, contract := range []string{"", "main.team-0", "main.team-1"} {
				if got := index.Count(kind, contract); got != counts[string(kind)+contract] {
					t.Errorf("%d of kind %s in %q, want %d", got, kind, contract, counts[string(kind)+contract])
				}
			}
		}
		for contract := range 2 {
			keys := []journal.Key{{Kind: journal.Contracts, ID: fmt.Sprintf("main.team-%d", contract)}}
			for b := range 4 {
				keys = append(keys, journal.Key{Kind: journal.Buckets, ID: fmt.Sprintf("main.team-%d.bucket-%d", contract, b)})
			}
			for _, key := range keys {
				got := index.Dependents(key)
				for i, e := range got {
					if on[key][e.Key] != e.Version || i > 0 && got[i-1].Key.ID >= e.Key.ID {
						t.Errorf("on %s: %s at version %d, place %d", key, e.Key, e.Version, i)
					}
				}
				if len(got) != len(on[key]) {
					t.Errorf("%d entries hang on %s, want %d", len(got), key, len(on[key]))
				}
			}
		}
		if n := len(index.All()); n != len(want) {
			t.Errorf("%d entries, want %d", n, len(want))
		}
	})
}
