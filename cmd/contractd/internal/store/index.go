package store

type keyID struct{ contract, name string }

type slotID struct{ contract, slot string }

// index is the data in memory, reachable in one step by everything that is
// asked for. What it points to is never changed, only replaced.
type index struct {
	contracts map[string]*Contract
	codes     map[string]*Contract
	ids       map[string]*Key            // by access key id
	keys      map[string]map[string]*Key // by contract and name
	slots     map[slotID]map[string]bool // names of the keys
}

func newIndex() index {
	return index{
		contracts: map[string]*Contract{},
		codes:     map[string]*Contract{},
		ids:       map[string]*Key{},
		keys:      map[string]map[string]*Key{},
		slots:     map[slotID]map[string]bool{},
	}
}

// setContract replaces a contract, or removes it when c is nil.
func (x *index) setContract(name string, c *Contract) {
	if old := x.contracts[name]; old != nil {
		delete(x.contracts, name)
		delete(x.codes, old.Code)
	}
	if c != nil {
		x.contracts[name] = c
		x.codes[c.Code] = c
	}
}

// setKey replaces a key, or removes it when k is nil.
func (x *index) setKey(id keyID, k *Key) {
	if old := x.keys[id.contract][id.name]; old != nil {
		delete(x.ids, old.AccessKeyID)
		remove(x.keys, id.contract, id.name)
		remove(x.slots, slotID{id.contract, old.Slot}, id.name)
	}
	if k != nil {
		x.ids[k.AccessKeyID] = k
		insert(x.keys, id.contract, id.name, k)
		insert(x.slots, slotID{id.contract, k.Slot}, id.name, true)
	}
}

func insert[O, I comparable, V any](m map[O]map[I]V, outer O, inner I, v V) {
	if m[outer] == nil {
		m[outer] = map[I]V{}
	}
	m[outer][inner] = v
}

// remove drops the inner map with its last entry, so that slots of the past
// hold no memory.
func remove[O, I comparable, V any](m map[O]map[I]V, outer O, inner I) {
	delete(m[outer], inner)
	if len(m[outer]) == 0 {
		delete(m, outer)
	}
}
