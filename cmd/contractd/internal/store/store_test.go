package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

func open(t *testing.T, path string) *store.Store {
	t.Helper()
	s, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // a test may have closed it already
	return s
}

func update(t *testing.T, s *store.Store, run func(*store.Tx)) {
	t.Helper()
	if err := s.Update(func(tx *store.Tx) error { run(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

func contract(name string) store.Contract {
	return store.Contract{Name: name, Code: "C-" + name, Owner: "me", Labels: map[string]string{"a": "b"}, SignedAt: time.Now().UTC()}
}

func key(contract, name, slot string) store.Key {
	return store.Key{
		Contract: contract, Name: name, Slot: slot, AccessKeyID: "id-" + contract + "-" + name,
		Secret: store.NewSecret("planted-" + name), CreatedAt: time.Now().UTC(),
	}
}

func TestWhatWasWrittenIsThereAfterOpening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contracts.db")
	s := open(t, path)
	var c store.Contract
	k := key("acme", "k", "slot")
	update(t, s, func(tx *store.Tx) {
		c = tx.PutContract(contract("acme"))
		tx.PutContract(contract("gone"))
		tx.PutKey(k)
		tx.PutKey(key("acme", "gone", "slot"))
		tx.PutKey(key("gone", "k", "slot"))
	})
	update(t, s, func(tx *store.Tx) {
		tx.DeleteKey("acme", "gone")
		tx.DeleteContract("gone")
	})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with secrets has mode %v, %v", info.Mode(), err)
	}
	if _, err := store.Open(path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("opened twice: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, path)
	if got, ok := s.Contract("acme"); !ok || !reflect.DeepEqual(got, c) {
		t.Errorf("contract %+v, want %+v", got, c)
	}
	if got, ok := s.ContractByCode("C-acme"); !ok || got.Name != "acme" {
		t.Errorf("by code: %+v", got)
	}
	got, of, ok := s.Lookup("id-acme-k")
	if !ok || !reflect.DeepEqual(got, k) || of.Name != "acme" {
		t.Errorf("key %+v of %s, want %+v", got, of.Name, k)
	}
	if slot := s.Slot("acme", "slot"); len(slot) != 1 || s.KeyCount("acme") != 1 {
		t.Errorf("slot %+v, count %d, want one key", slot, s.KeyCount("acme"))
	}
	for _, id := range []string{"id-acme-gone", "id-gone-k"} {
		if _, _, ok := s.Lookup(id); ok {
			t.Errorf("%s is back", id)
		}
	}
	// Revisions go on from the highest ever given, also of what is gone.
	update(t, s, func(tx *store.Tx) {
		if next := tx.PutContract(contract("new")); next.Revision <= c.Revision+1 {
			t.Errorf("revision %d was given before", next.Revision)
		}
	})
}

func TestRefusedOperationLeavesNoTrace(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "contracts.db"))
	update(t, s, func(tx *store.Tx) {
		tx.PutContract(contract("acme"))
		tx.PutKey(key("acme", "old", "slot"))
	})
	refused := errors.New("refused")

	// Many at once share commits: every other one is refused after it staged.
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() {
			err := s.Update(func(tx *store.Tx) error {
				tx.PutKey(key("acme", fmt.Sprintf("k%02d", i), "slot"))
				if i%2 == 0 {
					return nil
				}
				tx.DeleteKey("acme", "old")
				tx.DeleteContract("acme")
				return refused
			})
			if i%2 == 0 && err != nil || i%2 == 1 && !errors.Is(err, refused) {
				t.Errorf("operation %d: %v", i, err)
			}
		})
	}
	group.Wait()
	if n := s.KeyCount("acme"); n != 51 {
		t.Errorf("%d keys, want 51", n)
	}
	page, _, err := s.Keys("acme", "", 500)
	if err != nil || len(page) != 51 {
		t.Errorf("%d keys in the file, %v, want 51", len(page), err)
	}
	if _, ok := s.Key("acme", "old"); !ok {
		t.Error("a refused removal removed")
	}
}

// Operations see each other in turn, whether or not they share a commit.
func TestOperationsAreSerial(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "contracts.db"))
	update(t, s, func(tx *store.Tx) { tx.PutContract(contract("acme")) })
	const limit = 10
	errFull := errors.New("full")
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() {
			err := s.Update(func(tx *store.Tx) error {
				if n := tx.KeyCount("acme"); n >= limit {
					return errFull
				} else if slot := tx.Slot("acme", "slot"); len(slot) != n {
					return fmt.Errorf("a slot of %d beside a count of %d", len(slot), n)
				}
				tx.PutKey(key("acme", fmt.Sprintf("k%02d", i), "slot"))
				return nil
			})
			if err != nil && !errors.Is(err, errFull) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := s.KeyCount("acme"); n != limit {
		t.Errorf("%d keys, want %d", n, limit)
	}
}

func TestTxSeesWhatItStaged(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "contracts.db"))
	update(t, s, func(tx *store.Tx) {
		tx.PutContract(contract("acme"))
		tx.PutKey(key("acme", "a", "one"))
		tx.PutKey(key("acme", "b", "one"))
		tx.PutKey(key("acme-2", "a", "one"))
	})
	update(t, s, func(tx *store.Tx) {
		tx.DeleteKey("acme", "a")
		tx.DeleteKey("acme", "a")
		tx.DeleteKey("acme", "never")
		tx.PutKey(key("acme", "c", "one"))
		moved := key("acme", "b", "two")
		tx.PutKey(moved)
		if one, two := tx.Slot("acme", "one"), tx.Slot("acme", "two"); len(one) != 1 || one[0].Name != "c" || len(two) != 1 || two[0].Name != "b" {
			t.Errorf("slots %+v and %+v", one, two)
		}
		if n := tx.KeyCount("acme"); n != 2 {
			t.Errorf("%d keys, want 2", n)
		}
		if _, ok := tx.Key("acme", "a"); ok {
			t.Error("a removed key is there")
		}
		tx.DeleteContract("acme")
		if _, ok := tx.Contract("acme"); ok || tx.KeyCount("acme") != 0 {
			t.Error("a removed contract is there")
		}
	})
	if s.KeyCount("acme") != 0 || s.KeyCount("acme-2") != 1 || len(s.Slot("acme", "one")) != 0 {
		t.Error("the removal of a contract removed too little or too much")
	}
}

func TestClosedStoreRefusesWrites(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "contracts.db"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(func(*store.Tx) error { return nil }); !errors.Is(err, store.ErrClosed) {
		t.Errorf("got %v, want %v", err, store.ErrClosed)
	}
}

func TestSecretNeverPrints(t *testing.T) {
	k := key("acme", "k", "slot")
	encoded, err := json.Marshal(struct {
		Key    store.Key
		Secret store.Secret
	}{k, k.Secret})
	if err != nil {
		t.Fatal(err)
	}
	outputs := []string{string(encoded)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		outputs = append(outputs, fmt.Sprintf(verb, k), fmt.Sprintf(verb, k.Secret), fmt.Sprintf(verb, &k))
	}
	for _, output := range outputs {
		if strings.Contains(output, "planted") || strings.Contains(output, fmt.Sprintf("%x", "planted")) {
			t.Errorf("the secret is in %s", output)
		}
	}
}

func TestStates(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		c    store.Contract
		want store.State
	}{
		{store.Contract{ActiveFrom: now}, store.Active},
		{store.Contract{ActiveFrom: now.Add(1)}, store.Pending},
		{store.Contract{ActiveFrom: now.Add(1), Suspended: true}, store.Pending},
		{store.Contract{Suspended: true}, store.Suspended},
	} {
		if got := test.c.State(now); got != test.want {
			t.Errorf("%+v is %s, want %s", test.c, got, test.want)
		}
	}
}
