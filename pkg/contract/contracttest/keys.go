package contracttest

import (
	"slices"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// request is for a key to a bucket, or for the contract's own where keys cannot
// be limited.
func (t *tenant) request(b string) contract.IssueKeyRequest {
	return contract.IssueKeyRequest{
		Contract: t.Name, Slot: label("s"), Proposed: propose(),
		Scope: &contract.Scope{Buckets: []contract.BucketScope{scoped(b)}},
	}
}

func testReplay(e *env) {
	t := e.sign()
	b := t.bucket()
	req := t.request(b)
	first := e.issue(req)
	second := e.issue(req)
	repeats := e.Provider.Capabilities().ChosenKeys
	if e.Provider.Capabilities().ChosenKeys && first.SecretAccessKey.Reveal() != req.Proposed.SecretAccessKey.Reveal() {
		e.Error("the secret is not the one that was chosen")
	}
	acknowledger, ok := e.bare.(contract.Acknowledger)
	repeats = repeats || ok
	same := first.AccessKeyID == second.AccessKeyID && first.SecretAccessKey.Reveal() == second.SecretAccessKey.Reveal()
	if same != repeats {
		e.Errorf("a repeated request returns the same key: %v, want %v", same, repeats)
	}
	t.holds(req.Slot, second.AccessKeyID)
	e.allowed("put", e.put(t.client(second), b, "o"))
	if !ok {
		return
	}
	e.must(acknowledger.AcknowledgeKey(e.Context(), t.Name, req.Proposed))
	e.must(acknowledger.AcknowledgeKey(e.Context(), t.Name, req.Proposed))
	_, err := e.Provider.IssueKey(e.Context(), req)
	e.kind("asking again for a secret that is safe", err, fault.Mismatch)
	t.holds(req.Slot, second.AccessKeyID)
}

func testOrphans(e *env) {
	t := e.sign()
	b := t.bucket()
	req := t.request(b)
	orphan := e.issue(req)
	req.Proposed = propose()
	pair := e.issue(req)
	t.holds(req.Slot, pair.AccessKeyID)
	e.allowed("put with the key", e.put(t.client(pair), b, "o"))
	if orphan.AccessKeyID == pair.AccessKeyID && orphan.SecretAccessKey.Reveal() == pair.SecretAccessKey.Reveal() {
		e.Error("another proposal is answered with the same key")
	}
	e.dead("put with the orphan", func() error { return e.put(t.client(orphan), b, "o") })
}

func testRotation(e *env) {
	if e.Provider.Capabilities().MaxKeysPerSlot == 1 {
		return // testKeyLimit has the rest
	}
	t := e.sign()
	b := t.bucket()
	req := t.request(b)
	old := e.issue(req)
	req.Proposed, req.Keep = propose(), []string{old.AccessKeyID}
	next := e.issue(req)
	want := []string{old.AccessKeyID, next.AccessKeyID}
	t.holds(req.Slot, want...)
	e.allowed("put with the old key", e.put(t.client(old), b, "old"))
	e.allowed("put with the new key", e.put(t.client(next), b, "new"))
	e.must(e.Provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: t.Name, Slot: req.Slot, AccessKeyID: old.AccessKeyID}))
	e.must(e.Provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: t.Name, Slot: req.Slot, AccessKeyID: old.AccessKeyID}))
	t.holds(req.Slot, next.AccessKeyID)
	e.dead("put with the old key after its end", func() error { return e.put(t.client(old), b, "old") })
	e.allowed("put with the new key after the old one's end", e.put(t.client(next), b, "new"))
}

func testKeyLimit(e *env) {
	most := e.Provider.Capabilities().MaxKeysPerSlot
	if most == 0 {
		return // there is none
	}
	t := e.sign()
	b := t.bucket()
	req := t.request(b)
	var keys []string
	for range most {
		keys = append(keys, e.issue(req).AccessKeyID)
		req.Proposed, req.Keep = propose(), slices.Clone(keys)
	}
	_, err := e.Provider.IssueKey(e.Context(), req)
	e.kind("one key more than a slot holds", err, fault.LimitExceeded)
	t.holds(req.Slot, keys...)
}

func testRevoke(e *env) {
	t := e.sign()
	b := t.bucket()
	req := t.request(b)
	pair := e.issue(req)
	app := t.client(pair)
	e.allowed("put", e.put(app, b, "o"))
	e.must(e.Provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: t.Name, Slot: req.Slot, AccessKeyID: "AKNOTTHERE"}))
	t.holds(req.Slot, pair.AccessKeyID)
	e.must(e.Provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: t.Name, Slot: label("other"), AccessKeyID: pair.AccessKeyID}))
	t.holds(req.Slot, pair.AccessKeyID)
	for range 2 {
		e.must(e.Provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: t.Name, Slot: req.Slot}))
		t.holds(req.Slot)
	}
	e.must(e.Provider.RevokeKey(e.Context(), contract.RevokeKeyRequest{Contract: t.Name, Slot: req.Slot, AccessKeyID: pair.AccessKeyID}))
	for what, do := range map[string]func() error{
		"put":  func() error { return e.put(app, b, "o") },
		"get":  func() error { return e.get(app, b, "o") },
		"list": func() error { return e.list(app, b, "") },
	} {
		e.dead(what+" with a revoked key", do)
	}
	// The slot can be used again.
	req.Proposed = propose()
	e.allowed("put with the slot's next key", e.put(t.client(e.issue(req)), b, "o"))
}

// testWithoutDoubt issues, rotates and revokes keys for a caller who knows what
// the slot holds. Nothing is looked for then, so no call costs more for all that
// the contract has beside.
func testWithoutDoubt(e *env) {
	t := e.sign()
	b := t.bucket()
	rotates := e.Provider.Capabilities().MaxKeysPerSlot != 1
	life := func() (calls []int) {
		counted := func(do func()) {
			e.Lose(0)
			do()
			calls = append(calls, e.Calls())
		}
		req := t.request(b)
		req.Exact = true
		var pair secret.KeyPair
		counted(func() { pair = e.issue(req) })
		t.holds(req.Slot, pair.AccessKeyID)
		revoke := contract.RevokeKeyRequest{Contract: t.Name, Slot: req.Slot, Scope: req.Scope, Exact: true, Known: []string{pair.AccessKeyID}}
		if rotates {
			old := pair
			req.Proposed, req.Keep = propose(), []string{old.AccessKeyID}
			counted(func() { pair = e.issue(req) })
			t.holds(req.Slot, old.AccessKeyID, pair.AccessKeyID)
			e.allowed("put with the key that stays", e.put(t.client(old), b, "o"))
			revoke.AccessKeyID, revoke.Known = old.AccessKeyID, []string{old.AccessKeyID, pair.AccessKeyID}
			counted(func() { e.must(e.Provider.RevokeKey(e.Context(), revoke)) })
			t.holds(req.Slot, pair.AccessKeyID)
			e.dead("put with the key before", func() error { return e.put(t.client(old), b, "o") })
		}
		e.allowed("put", e.put(t.client(pair), b, "o"))
		revoke.AccessKeyID = ""
		counted(func() { e.must(e.Provider.RevokeKey(e.Context(), revoke)) })
		e.must(e.Provider.RevokeKey(e.Context(), revoke))
		t.holds(req.Slot)
		e.dead("put with a revoked key", func() error { return e.put(t.client(pair), b, "o") })
		return calls
	}
	alone := life()
	for range 12 {
		e.issue(t.request(t.bucket()))
	}
	if among := life(); !slices.Equal(among, alone) {
		e.Errorf("issue, rotate, end and revoke make %d calls among others, and %d alone", among, alone)
	}
}

func testListKeys(e *env) {
	t, neighbour := e.sign(), e.sign()
	b := t.bucket()
	one, two := t.request(b), t.request(b)
	first, second := e.issue(one), e.issue(two)
	t.holds(one.Slot, first.AccessKeyID)
	t.holds(label("none"))
	t.holds("", t.key.AccessKeyID, first.AccessKeyID, second.AccessKeyID)
	neighbour.holds("", neighbour.key.AccessKeyID)
	keys, err := e.Provider.ListKeys(e.Context(), t.Name, "")
	e.must(err)
	slots := map[string]string{t.key.AccessKeyID: cosi.ContractSlot, first.AccessKeyID: one.Slot, second.AccessKeyID: two.Slot}
	for _, k := range keys {
		if k.Slot != slots[k.AccessKeyID] || !k.Active {
			e.Errorf("key %+v, want an active one of slot %s", k, slots[k.AccessKeyID])
		}
	}
}

func testContractKey(e *env) {
	t := e.sign()
	b := t.bucket()
	c := t.client(t.key)
	e.allowed("put", e.put(c, b, "o"))
	e.allowed("get", e.get(c, b, "o"))
	e.allowed("list", e.list(c, b, ""))
	// A repeated request leaves exactly one key, which works.
	pair := e.issue(contract.IssueKeyRequest{Contract: t.Name, Slot: cosi.ContractSlot, Proposed: propose()})
	t.holds(cosi.ContractSlot, pair.AccessKeyID)
	e.allowed("list with the new key", e.list(t.client(pair), b, ""))
	e.dead("list with the key before", func() error { return e.list(c, b, "") })
	e.allowed("delete with the new key", e.remove(t.client(pair), b, "o"))
	t.use(pair)
}
