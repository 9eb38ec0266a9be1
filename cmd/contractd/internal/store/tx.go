package store

import (
	"maps"
	"slices"
)

// Tx is what an operation of [Store.Update] reads and stages: the data as of
// the last commit, with the changes of this group over it. It is valid inside
// the operation only.
type Tx struct {
	base      *index // the writer is its only changer, so it reads without the lock
	revision  uint64
	contracts map[string]*Contract // staged; nil: removed
	keys      map[keyID]*Key       // staged; nil: removed
	undo      []func()             // of the running operation
}

func newTx(base *index, revision uint64) *Tx {
	return &Tx{base: base, revision: revision, contracts: map[string]*Contract{}, keys: map[keyID]*Key{}}
}

func (t *Tx) changed() bool { return len(t.contracts)+len(t.keys) > 0 }

// do runs one operation of the group; when it fails, the others keep what they staged.
func (t *Tx) do(run func(*Tx) error) error {
	t.undo = t.undo[:0]
	err := run(t)
	if err != nil {
		for _, undo := range slices.Backward(t.undo) {
			undo()
		}
	}
	return err
}

func stage[K comparable, V any](t *Tx, staged map[K]*V, id K, v *V) {
	old, had := staged[id]
	t.undo = append(t.undo, func() {
		if had {
			staged[id] = old
		} else {
			delete(staged, id)
		}
	})
	staged[id] = v
}

// Contract returns a contract by name.
func (t *Tx) Contract(name string) (Contract, bool) {
	if c, ok := t.contracts[name]; ok {
		return deref(c)
	}
	return deref(t.base.contracts[name])
}

// PutContract stages a contract and returns it with its new revision.
func (t *Tx) PutContract(c Contract) Contract {
	t.revision++ // not taken back by an undo: a gap does no harm
	c.Revision = t.revision
	stage(t, t.contracts, c.Name, &c)
	return c
}

// DeleteContract stages the removal of a contract with all its keys.
func (t *Tx) DeleteContract(name string) {
	for _, k := range t.contractKeys(name) {
		t.DeleteKey(name, k)
	}
	stage(t, t.contracts, name, nil)
}

// Key returns a contract's key by name.
func (t *Tx) Key(contract, name string) (Key, bool) {
	if k, ok := t.keys[keyID{contract, name}]; ok {
		return deref(k)
	}
	return deref(t.base.keys[contract][name])
}

// PutKey stages a key.
func (t *Tx) PutKey(k Key) { stage(t, t.keys, keyID{k.Contract, k.Name}, &k) }

// DeleteKey stages the removal of a key; one that is not there costs nothing.
func (t *Tx) DeleteKey(contract, name string) {
	if _, ok := t.Key(contract, name); ok {
		stage(t, t.keys, keyID{contract, name}, nil)
	}
}

// Slot returns the keys of a slot, in no order.
func (t *Tx) Slot(contract, slot string) []Key {
	var keys []Key
	for name := range t.base.slots[slotID{contract, slot}] {
		if _, staged := t.keys[keyID{contract, name}]; !staged {
			keys = append(keys, *t.base.keys[contract][name])
		}
	}
	for id, k := range t.keys {
		if id.contract == contract && k != nil && k.Slot == slot {
			keys = append(keys, *k)
		}
	}
	return keys
}

// KeyCount returns how many keys a contract has.
func (t *Tx) KeyCount(contract string) int {
	n := len(t.base.keys[contract])
	for id, k := range t.keys {
		if id.contract != contract {
			continue
		}
		_, before := t.base.keys[contract][id.name]
		switch {
		case k != nil && !before:
			n++
		case k == nil && before:
			n--
		}
	}
	return n
}

func (t *Tx) contractKeys(contract string) []string {
	names := slices.Collect(maps.Keys(t.base.keys[contract]))
	for id := range t.keys {
		if id.contract == contract {
			names = append(names, id.name)
		}
	}
	return names
}
