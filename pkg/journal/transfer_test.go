package journal_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// What an export holds can be imported where some of it is there, and not where
// something else is.
func TestTransfer(t *testing.T) {
	s, err := filestore.Open(t.Context(), filepath.Join(t.TempDir(), "journal.log"), nil)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	j := journal.New(s)
	bucket := cosi.BucketID{ContractID: cosi.ContractID{Backend: "main", Contract: "team-a"}, Bucket: "photos"}
	account := &journal.Account{
		ID:        cosi.AccountID{ContractID: bucket.ContractID, Account: "ba-1"},
		Effective: journal.Grant{Buckets: []journal.BucketAccess{{Bucket: bucket.Bucket, Mode: cosi.ReadWrite}}}, KeyState: journal.KeyState{Phase: journal.Done, Proposed: secret.KeyPair{AccessKeyID: "1", SecretAccessKey: secret.New("secret-1")}},
	}
	must(t, j.SaveBucket(t.Context(), &journal.Bucket{ID: bucket}))
	must(t, j.SaveAccount(t.Context(), account))
	var out strings.Builder
	if n, err := journal.Export(t.Context(), s, "owner", &out); err != nil || n != 2 {
		t.Fatalf("%d entries, %v", n, err)
	}
	imported, same, err := journal.Import(t.Context(), s, "owner", strings.NewReader(out.String()))
	if imported != 0 || same != 2 || err != nil {
		t.Errorf("over itself: %d imported, %d the same, %v", imported, same, err)
	}
	must(t, j.Delete(t.Context(), account))
	imported, same, err = journal.Import(t.Context(), s, "owner", strings.NewReader(out.String()))
	if imported != 1 || same != 1 || err != nil {
		t.Errorf("after a loss: %d imported, %d the same, %v", imported, same, err)
	}
	accounts, err := j.AccountsOn(t.Context(), bucket)
	if err != nil || len(accounts) != 1 || accounts[0].Proposed.SecretAccessKey.Reveal() != "secret-1" {
		t.Fatalf("what was imported: %v", err)
	}
	accounts[0].Phase = journal.Intent
	must(t, j.SaveAccount(t.Context(), accounts[0]))
	if _, _, err = journal.Import(t.Context(), s, "owner", strings.NewReader(out.String())); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), account.ID.String()) {
		t.Errorf("over another record: %v", err)
	}
}

// A journal that is moved keeps its identity, also through an export by a driver
// that takes it for a record.
func TestTransferOfIdentity(t *testing.T) {
	t.Parallel()
	const identity = "00112233445566ff"
	head := `{"format":"contract-cosi-driver journal","version":1,"owner":"owner","entries":%ENTRIES%%MORE%}`
	entry := func(id, value string) string {
		return "\n" + `{"key":{"kind":"identity","id":"` + id + `"},"value":` + value + `}`
	}
	export := func(entries, more, rest string) string {
		return strings.NewReplacer("%ENTRIES%", entries, "%MORE%", more).Replace(head) + rest
	}
	for what, c := range map[string]struct {
		export string
		kind   fault.Kind
		want   []string
	}{
		"in the head":            {export("0", `,"identities":["`+identity+`"]`, ""), "", []string{identity}},
		"as an entry":            {export("1", "", entry("journal", `{"identities":["`+identity+`"]}`)), "", []string{identity}},
		"none":                   {export("0", "", ""), "", nil},
		"no identity":            {export("0", `,"identities":["x"]`, ""), fault.InvalidArgument, nil},
		"an entry without":       {export("1", "", entry("journal", `{}`)), fault.InvalidArgument, nil},
		"an entry of other name": {export("1", "", entry("other", `{"identities":["`+identity+`"]}`)), fault.InvalidArgument, nil},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, err := filestore.Open(t.Context(), filepath.Join(t.TempDir(), "journal.log"), nil)
			must(t, err)
			t.Cleanup(func() { _ = s.Close() })
			if _, _, err := journal.Import(t.Context(), s, "owner", strings.NewReader(c.export)); !fault.Is(err, c.kind) {
				t.Fatalf("%v, want %q", err, c.kind)
			}
			have, err := journal.New(s).Identities(t.Context())
			if err != nil || !slices.Equal(have, c.want) {
				t.Errorf("%q, %v, want %q", have, err, c.want)
			}
		})
	}
}
