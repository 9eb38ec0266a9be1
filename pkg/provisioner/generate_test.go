package provisioner

import (
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/memory"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// An id is generated without a call to a service and without a look at the
// journal, and is that of what is made later.
func TestGeneratedIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, memory.Chosen, false, 1)
	p := w.start()
	class := map[string]string{"contract": team}
	grant := GrantRequest{Name: "ba-1", Auth: cosi.Key, Buckets: []BucketRequest{{ID: bucketID("bucket-1"), Mode: cosi.ReadOnly}}}

	id, err := p.GenerateBucketID("bucket-1", class)
	if err != nil || id.String() != bucketID("bucket-1") {
		t.Fatalf("generated bucket id %s, %v", id, err)
	}
	account, err := p.GenerateAccessID(grant)
	if err != nil || account.String() != accessID("ba-1") {
		t.Fatalf("generated account id %s, %v", account, err)
	}
	if steps := p.count.Load(); steps != 0 {
		t.Errorf("%d steps at the services and the journal, want none", steps)
	}

	made, err := p.CreateGenerated(w.ctx(), id, class)
	if err != nil || made.ID != id {
		t.Fatalf("created %s, %v", made.ID, err)
	}
	grant.Under = account.ContractID
	access, err := p.GrantAccess(w.ctx(), grant)
	if err != nil || access.ID != account {
		t.Fatalf("granted %s, %v", access.ID, err)
	}
	grant.Under.Contract = "other"
	if _, err := p.GrantAccess(w.ctx(), grant); !fault.Is(err, fault.InvalidArgument) {
		t.Errorf("an account of another contract: %v", err)
	}
	steps := p.count.Load()
	other := id
	other.Contract = "other"
	if _, err := p.CreateGenerated(w.ctx(), other, class); !fault.Is(err, fault.FailedPrecondition) {
		t.Errorf("a bucket of another contract: %v", err)
	}
	if p.count.Load() != steps {
		t.Error("something was asked or written for a request that does not fit")
	}
}

func TestIDsAndNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, memory.Chosen, false, 1)
	w.terms["each"] = config.Terms{Listed: "each", Backend: backend, PerBucket: true}
	p := w.start()
	for s, want := range map[string]bool{
		bucketID("bucket-1"):                      true,
		backend + ".other.bucket-1":               true, // the class is wrong, or has changed
		"gone." + team + ".bucket-1":              true, // the contract was at a backend that is gone
		"gone.other.bucket-1":                     false,
		"bc-6b3f3c1e-98d0-4a65-a33c-0c5f7a0f3d52": false,
		"with.three.dots.in-it":                   false,
		backend + "." + team:                      false,
		"":                                        false,
	} {
		if _, got := p.Generated(s, map[string]string{"contract": team}); got != want {
			t.Errorf("%q is an id: %v, want %v", s, got, want)
		}
	}
	if id, err := p.GenerateBucketID("bucket-1", map[string]string{"contract": "each"}); err != nil {
		t.Error(err)
	} else if _, ok := p.Generated(id.String(), map[string]string{"contract": "each"}); !ok {
		t.Errorf("%s, of a contract per bucket, is not taken for an id", id)
	}
}
