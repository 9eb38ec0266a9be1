package provisioner

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// keyService keeps the keys of one slot. With chosen it takes them as they are
// given.
type keyService struct {
	contract.Provider
	chosen bool
	keys   map[string]bool // whether each is active
	asked  []contract.IssueKeyRequest
}

func (s *keyService) Capabilities() contract.Capabilities {
	return contract.Capabilities{ScopeBy: contract.ScopeByKey, ChosenKeys: s.chosen}
}

func (s *keyService) ListKeys(context.Context, string, string) (out []contract.KeyInfo, _ error) {
	for id, active := range s.keys {
		out = append(out, contract.KeyInfo{AccessKeyID: id, Slot: "ba-1", Active: active})
	}
	return out, nil
}

func (s *keyService) IssueKey(_ context.Context, r contract.IssueKeyRequest) (secret.KeyPair, error) {
	s.asked = append(s.asked, r)
	s.keys[r.Proposed.AccessKeyID] = true
	return r.Proposed, nil
}

// A key that is gone is given to a service that takes it as it was, if that is
// asked for, with its limits; and never to another, nor one that is stopped.
func TestInspectAccount(t *testing.T) {
	t.Parallel()
	id := cosi.AccountID{ContractID: cosi.ContractID{Backend: "main", Contract: "team-a"}, Account: "ba-1"}
	pair := secret.KeyPair{AccessKeyID: "ck1", SecretAccessKey: secret.New("planted")}
	for name, c := range map[string]struct {
		chosen, repair bool
		keys           map[string]bool
		want           []Finding
		asked          int
	}{
		"there":             {true, true, map[string]bool{"ck1": true}, nil, 0},
		"gone":              {true, true, map[string]bool{}, []Finding{{What: "key", Repaired: true}}, 1},
		"gone, report only": {true, false, map[string]bool{}, []Finding{{What: "key"}}, 0},
		"gone elsewhere":    {false, true, map[string]bool{"other": true}, []Finding{{What: "key", Why: keyIsLeft}}, 0},
		"stopped":           {true, true, map[string]bool{"ck1": false}, []Finding{{What: "key-inactive", Why: inactiveIsLeft}}, 0},
	} {
		store, err := filestore.Open(t.Context(), filepath.Join(t.TempDir(), "journal"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		j := journal.New(store)
		record := &journal.Account{ID: id, Phase: journal.Done, Proposed: pair, Issued: pair,
			Grant: journal.Grant{Buckets: []journal.BucketAccess{{Bucket: "data", Mode: cosi.ReadOnly}}}}
		record.Asked = record.Grant
		if err := j.SaveAccount(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		service := &keyService{chosen: c.chosen, keys: c.keys}
		p := New(Config{Journal: j, Backends: map[string]Backend{"main": {Provider: service}}, Repaired: func(string) {}})
		got, err := p.InspectAccount(t.Context(), id, c.repair)
		if err != nil || !reflect.DeepEqual(got, c.want) || len(service.asked) != c.asked {
			t.Errorf("%s: %+v, %v, asked %d times; want %+v, %d", name, got, err, len(service.asked), c.want, c.asked)
		}
		if len(service.asked) > 0 && (service.asked[0].Proposed != pair || !reflect.DeepEqual(service.asked[0].Scope, scopeOf(record))) {
			t.Errorf("%s: asked %+v", name, service.asked[0])
		}
	}
}

// changedKeys is a service whose key others have changed.
type changedKeys struct {
	*keyService
	differing []string
	fails     error
	meanwhile func() // another process does something between a look and the next call
	writes    int
}

func (s *changedKeys) RestoreKey(_ context.Context, _, slot, accessKeyID string, scope *contract.Scope, write bool) ([]string, error) {
	if active, there := s.keys[accessKeyID]; !there || !active || slot != "ba-1" || scope == nil {
		return nil, fault.New(fault.NotFound, "no such key")
	}
	found := s.differing
	if write {
		s.writes, s.differing = s.writes+1, nil
	} else if s.meanwhile != nil {
		s.meanwhile()
	}
	return found, s.fails
}

// A key that was changed is brought back if that is asked for; and never by a
// record that another process has changed.
func TestInspectChangedKey(t *testing.T) {
	t.Parallel()
	id := cosi.AccountID{ContractID: cosi.ContractID{Backend: "main", Contract: "team-a"}, Account: "ba-1"}
	pair := secret.KeyPair{AccessKeyID: "ck1", SecretAccessKey: secret.New("planted")}
	both := []string{contract.KeyInactive, contract.KeyPolicy}
	silent := fault.New(fault.Unavailable, "silent")
	for name, c := range map[string]struct {
		repair    bool
		keys      map[string]bool
		differing []string
		fails     error
		meanwhile bool
		want      []Finding
		kind      fault.Kind
		writes    int
	}{
		"as issued":               {repair: true, keys: map[string]bool{"ck1": true}},
		"changed":                 {repair: true, keys: map[string]bool{"ck1": true}, differing: both, want: []Finding{{What: "key-inactive", Repaired: true}, {What: "key-policy", Repaired: true}}, writes: 1},
		"changed, report only":    {keys: map[string]bool{"ck1": true}, differing: both, want: []Finding{{What: "key-inactive"}, {What: "key-policy"}}},
		"changed and regranted":   {repair: true, keys: map[string]bool{"ck1": true}, differing: both, meanwhile: true},
		"silent":                  {repair: true, keys: map[string]bool{"ck1": true}, fails: silent, kind: fault.Unavailable},
		"gone":                    {repair: true, keys: map[string]bool{}, want: []Finding{{What: "key", Why: keyIsLeft}}},
		"the service cannot tell": {repair: true, keys: map[string]bool{"ck1": true}, fails: fault.New(fault.Unsupported, "no such call")},
		"stopped, and cannot":     {repair: true, keys: map[string]bool{"ck1": false}, want: []Finding{{What: "key-inactive", Why: inactiveIsLeft}}},
	} {
		store, err := filestore.Open(t.Context(), filepath.Join(t.TempDir(), "journal"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		j := journal.New(store)
		record := &journal.Account{ID: id, Phase: journal.Done, Proposed: pair, Issued: pair,
			Grant: journal.Grant{Buckets: []journal.BucketAccess{{Bucket: "data", Mode: cosi.ReadOnly}}}}
		record.Asked = record.Grant
		if err := j.SaveAccount(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		service := &changedKeys{keyService: &keyService{keys: c.keys}, differing: c.differing, fails: c.fails}
		if c.meanwhile {
			service.meanwhile = func() {
				now, err := j.Account(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				now.Issued.AccessKeyID = "ck2"
				if err := j.SaveAccount(t.Context(), now); err != nil {
					t.Fatal(err)
				}
			}
		}
		var counted []string
		p := New(Config{Journal: j, Backends: map[string]Backend{"main": {Provider: service}}, Repaired: func(what string) { counted = append(counted, what) }})
		got, err := p.InspectAccount(t.Context(), id, c.repair)
		if fault.KindOf(err) != c.kind || !reflect.DeepEqual(got, c.want) || service.writes != c.writes || len(service.asked) != 0 {
			t.Errorf("%s: %+v, %v, %d writes, %d keys issued; want %+v, %q, %d", name, got, err, service.writes, len(service.asked), c.want, c.kind, c.writes)
		}
		if c.writes > 0 && !slices.Equal(counted, both) {
			t.Errorf("%s: repairs of %q counted", name, counted)
		}
	}
}
