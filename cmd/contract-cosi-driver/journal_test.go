package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/test/kubefake"
)

const planted = "planted-secret-of-a-key"

// fillJournal writes a contract, a bucket and a key into a journal's file.
func fillJournal(t *testing.T, path string) {
	t.Helper()
	store, err := filestore.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	j := journal.New(store)
	contract := cosi.ContractID{Backend: "main", Contract: "team-a"}
	account := &journal.Account{
		ID:        cosi.AccountID{ContractID: contract, Account: "ba-1"},
		Effective: journal.Grant{Buckets: []journal.BucketAccess{{Bucket: "data", Mode: cosi.ReadWrite}}}, KeyState: journal.KeyState{Phase: journal.Done, Issued: secret.KeyPair{AccessKeyID: "key", SecretAccessKey: secret.New(planted)}},
	}
	for _, err := range []error{
		j.SaveContract(t.Context(), &journal.Contract{ID: contract, KeyState: journal.KeyState{Phase: journal.Done}}),
		j.SaveBucket(t.Context(), &journal.Bucket{ID: cosi.BucketID{ContractID: contract, Bucket: "data"}}),
		j.SaveAccount(t.Context(), account),
		store.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A journal goes from a file into Secrets and from there into another file, and
// is the same there.
func TestJournalMoves(t *testing.T) {
	t.Parallel()
	p := setUp(t, "http://127.0.0.1:1")
	fillJournal(t, p.journal)
	kube := kubefake.Start(t)
	kubeconfig := filepath.Join(p.dir, "kubeconfig")
	write(t, kubeconfig, kube.Kubeconfig())
	text, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	inFile := fmt.Sprintf("journal: {file: %s}", p.journal)
	inSecrets, elsewhere := filepath.Join(p.dir, "secrets.yaml"), filepath.Join(p.dir, "elsewhere.yaml")
	write(t, inSecrets, strings.Replace(string(text), inFile, fmt.Sprintf("journal: {secrets: {namespace: %s, kubeconfig: %s}}", kubefake.Namespace, kubeconfig), 1))
	other, key := filepath.Join(p.dir, "other"), filepath.Join(p.dir, "journal.key") // which is encrypted
	write(t, key, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), 32)))
	write(t, elsewhere, strings.Replace(string(text), inFile, fmt.Sprintf("journal: {file: %s, keyFile: %s}", other, key), 1))

	first, second := filepath.Join(p.dir, "first"), filepath.Join(p.dir, "second")
	stdout, stderr, err := command(t, "journal", "export", "--config", p.config, "--output", first)
	if err != nil || !strings.Contains(stderr, "3 entries exported") || !strings.Contains(stderr, "holds secrets") || strings.Contains(stdout+stderr, planted) {
		t.Errorf("export: %q, %q, %v", stdout, stderr, err)
	}
	if info, err := os.Stat(first); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the export's mode is %v (%v)", info.Mode(), err)
	}
	if _, _, err := command(t, "journal", "export", "--config", p.config, "--output", first); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("an export over another: %v", err)
	}
	for _, want := range []string{"3 entries imported, 0 were there already\n", "0 entries imported, 3 were there already\n"} {
		if stdout, _, err := command(t, "journal", "import", "--config", inSecrets, "--input", first); err != nil || stdout != want {
			t.Errorf("import: %q, %v", stdout, err)
		}
	}
	if n := len(kube.Secrets()); n != 3 {
		t.Errorf("%d Secrets", n)
	}
	if _, _, err := command(t, "journal", "export", "--config", inSecrets, "--output", second); err != nil {
		t.Error(err)
	}
	if stdout, _, err := command(t, "journal", "import", "--config", elsewhere, "--input", second); err != nil || !strings.HasPrefix(stdout, "3 entries imported") {
		t.Errorf("import: %q, %v", stdout, err)
	}
	third, _, err := command(t, "journal", "export", "--config", elsewhere)
	if err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(other); err != nil || bytes.Contains(text, []byte(planted)) {
		t.Errorf("the encrypted journal has a secret in it (%v)", err)
	}
	for _, file := range []string{first, second} {
		if got, err := os.ReadFile(file); err != nil || string(got) != third {
			t.Errorf("%s differs from the last export (%v)", file, err)
		}
	}
}

// What is not a whole export of this driver is refused before anything is
// written, in words that do not repeat it.
func TestImportRefuses(t *testing.T) {
	t.Parallel()
	p := setUp(t, "http://127.0.0.1:1")
	fillJournal(t, p.journal)
	good, _, err := command(t, "journal", "export", "--config", p.config)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(good, "\n")
	empty := setUp(t, "http://127.0.0.1:1")
	for name, c := range map[string]struct{ config, text, want string }{
		"nothing":         {empty.config, "", "does not begin as one"},
		"something else":  {empty.config, "kind: Secret\n", "does not begin as one"},
		"cut":             {empty.config, strings.Join(lines[:3], ""), "should have 3 entries and has 2"},
		"cut in a line":   {empty.config, good[:len(good)-20], "entry 3 is damaged"},
		"twice":           {empty.config, good + lines[1], "entry 4 is damaged"},
		"another kind":    {empty.config, strings.Replace(good, `"kind":"bucket"`, `"kind":"bukket"`, 1), "is damaged"},
		"another version": {empty.config, strings.Replace(good, `"version":1`, `"version":2`, 1), "version 2"},
		"another owner":   {empty.config, strings.Replace(good, "cluster-1", "cluster-2", 1), `owner mark "cluster-2" and this one has "cluster-1"`},
		"another secret":  {p.config, strings.Replace(good, planted, "planted-other", 1), "other records under 1 of the keys of the export (account/main.team-a.ba-1)"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "export")
			write(t, file, c.text)
			_, _, err := command(t, "journal", "import", "--config", c.config, "--input", file)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "planted") {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if after, _, err := command(t, "journal", "export", "--config", empty.config); err != nil || strings.Count(after, "\n") != 1 {
		t.Errorf("after refused imports the journal has %q (%v)", after, err)
	}
}
