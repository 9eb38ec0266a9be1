package provisioner

import (
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/memory"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
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

// What modes for metadata may be asked for is the class's, the guard's and the
// backend's to say, and is refused before anything is made.
func TestMetadataModes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, memory.Chosen, false, 1)
	for name, guard := range map[string]params.Guard{
		"modes": {Modes: []cosi.AccessMode{cosi.ReadOnly}}, "listed": {Parameters: []string{"versioning", "cors"}}, "fixed": {Required: []string{"lifecycle"}},
	} {
		w.terms[name] = config.Terms{Listed: name, Backend: backend, Guard: guard}
	}
	p := w.start()
	data := cosi.Metadata{ObjectMetadata: cosi.ReadWrite}
	reads, writes := cosi.Metadata{BucketMetadata: cosi.ReadOnly}, cosi.Metadata{BucketMetadata: cosi.WriteOnly}
	for _, c := range []struct {
		contract string
		class    map[string]string
		mode     cosi.AccessMode
		metadata cosi.Metadata
		kind     fault.Kind
		says     string
	}{
		{team, nil, cosi.ReadOnly, data, "", ""},
		{team, nil, cosi.ReadOnly, writes, "", ""},
		{team, map[string]string{"access": "ReadOnly"}, "", reads, "", ""},
		{team, map[string]string{"access": "ReadOnly"}, "", data, fault.InvalidArgument, "ReadWrite is asked for, and the BucketAccessClass allows ReadOnly only"},
		{team, map[string]string{"prefix": "in/"}, "", reads, "", ""},
		{team, map[string]string{"prefix": "in/"}, "", writes, fault.InvalidArgument, "bucketMetadata: WriteOnly is asked for, and the BucketAccessClass limits keys to a part of the bucket"},
		{"modes", nil, cosi.ReadOnly, reads, "", ""},
		{"modes", nil, cosi.ReadOnly, data, fault.FailedPrecondition, "guard.modes: ReadWrite is not one of ReadOnly"},
		{"listed", nil, cosi.ReadOnly, reads, "", ""},
		{"listed", nil, cosi.ReadOnly, writes, fault.FailedPrecondition, "guard.parameters: a key that writes bucketMetadata changes expireAfterDays"},
		{"fixed", nil, cosi.ReadOnly, reads, "", ""},
		{"fixed", nil, cosi.ReadOnly, writes, fault.FailedPrecondition, "guard.required: a key that writes bucketMetadata changes lifecycle"},
	} {
		_, _, broken, err := checked(p, c.contract, GrantRequest{Name: "ba-1", Auth: cosi.Key, Parameters: c.class,
			Buckets: []BucketRequest{{ID: cosi.BucketID{ContractID: cosi.ContractID{Backend: backend, Contract: c.contract}, Bucket: "a-bucket"}.String(), Mode: c.mode, Metadata: c.metadata}}})
		if len(broken) > 0 {
			err = fault.New(fault.FailedPrecondition, "%s", strings.Join(broken, "; "))
		}
		if fault.KindOf(err) != c.kind || c.kind != "" && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s, class %v, %q and %+v: %v, want %s with %q", c.contract, c.class, c.mode, c.metadata, err, c.kind, c.says)
		}
	}
}

// checked is a grant as far as it is checked before a record is written.
func checked(p *process, contract string, req GrantRequest) (cosi.AccountID, journal.Grant, []string, error) {
	id, _, _, err := p.checkGrant(req, req.Parameters)
	if err != nil {
		return id, journal.Grant{}, nil, err
	}
	terms, _ := p.terms(contract)
	grant, broken, err := p.guardedGrant(terms, req)
	return id, grant, broken, err
}

// A grant to a service account is refused in both of its phases, with the reason
// and what to do.
func TestServiceAccount(t *testing.T) {
	t.Parallel()
	p := newWorld(t, memory.Chosen, false, 1).start()
	req := GrantRequest{Name: "ba-1", Auth: cosi.ServiceAccount, Buckets: []BucketRequest{{ID: bucketID("bucket-1")}}}
	_, granted := p.GrantAccess(t.Context(), req)
	_, generated := p.GenerateAccessID(req)
	for _, err := range []error{granted, generated} {
		if !fault.Is(err, fault.InvalidArgument) || !strings.Contains(err.Error(), "the request names no namespace") ||
			!strings.Contains(err.Error(), "use a BucketAccessClass with authenticationType: Key") {
			t.Errorf("got %v", err)
		}
	}
	if steps := p.count.Load(); steps != 0 {
		t.Errorf("%d steps at the services and the journal, want none", steps)
	}
}
