package provisioner

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
)

// emptyService has no contract, or one with keys and nothing else.
type emptyService struct {
	contract.Provider
	signed  bool
	keys    []contract.KeyInfo
	revoked []string
}

func (s *emptyService) GetContract(_ context.Context, name string) (contract.Contract, error) {
	if !s.signed {
		return contract.Contract{}, fault.New(fault.NotFound, "there is no contract %s", name)
	}
	return contract.Contract{Name: name, Owner: "cluster-1", State: contract.StateActive}, nil
}

func (s *emptyService) ListKeys(context.Context, string, string) ([]contract.KeyInfo, error) {
	return s.keys, nil
}

func (s *emptyService) RevokeKey(_ context.Context, _, slot, accessKeyID string) error {
	s.revoked = append(s.revoked, slot+"/"+accessKeyID)
	return nil
}

var teamA = cosi.ContractID{Backend: "main", Contract: "team-a"}

func over(t *testing.T, service contract.Provider) *Provisioner {
	t.Helper()
	store, err := filestore.Open(t.Context(), filepath.Join(t.TempDir(), "journal"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return New(Config{
		Owner: "cluster-1", Journal: journal.New(store), Backends: map[string]Backend{"main": {Provider: service}},
		Terms: func(string) (config.Terms, bool) { return config.Terms{Backend: "main"}, true },
	})
}

// A contract that is just being signed has a record and is not there yet; that
// is no finding. Once it was there, it is.
func TestAContractBeingSignedIsNotMissed(t *testing.T) {
	t.Parallel()
	p := over(t, &emptyService{})
	record := &journal.Contract{ID: teamA, Phase: journal.Intent}
	for _, c := range []struct {
		phase journal.Phase
		want  int
	}{{journal.Intent, 0}, {journal.Done, 1}} {
		record.Phase = c.phase
		if err := p.Journal.SaveContract(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		if found, err := p.InspectContract(t.Context(), teamA, true); err != nil || len(found) != c.want {
			t.Errorf("in phase %s a look finds %+v, %v", c.phase, found, err)
		}
		if found, err := p.AuditContract(t.Context(), teamA, Audit{}); err != nil || len(found) != c.want {
			t.Errorf("in phase %s an audit finds %+v, %v", c.phase, found, err)
		}
	}
}

// A key is revoked by an audit if it is known to be old enough, or if no age is
// asked for.
func TestAuditAndTheAgeOfKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		created time.Time
		grace   time.Duration
		fix     bool
		found   int
		revoked []string
	}{
		"old":                   {time.Now().Add(-time.Hour), time.Minute, true, 1, []string{"ba-1/"}},
		"old, not fixed":        {time.Now().Add(-time.Hour), time.Minute, false, 1, nil},
		"young":                 {time.Now(), time.Minute, true, 0, nil},
		"of no age":             {time.Time{}, time.Minute, true, 1, nil},
		"of no age, none asked": {time.Time{}, 0, true, 1, []string{"ba-1/"}},
	} {
		service := &emptyService{signed: true, keys: []contract.KeyInfo{{AccessKeyID: "key", Slot: "ba-1", Active: true, CreatedAt: c.created}}}
		p := over(t, service)
		if err := p.Journal.SaveContract(t.Context(), &journal.Contract{ID: teamA, Phase: journal.Done}); err != nil {
			t.Fatal(err)
		}
		found, err := p.AuditContract(t.Context(), teamA, Audit{Fix: c.fix, Grace: c.grace})
		if err != nil || len(found) != c.found || !slices.Equal(service.revoked, c.revoked) {
			t.Errorf("%s: found %+v, revoked %q, %v", name, found, service.revoked, err)
		}
	}
}
