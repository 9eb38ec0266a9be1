package filestore_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/journaltest"
)

// keyFile writes a file of keys.
func keyFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	must(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return path
}

func newKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return base64.StdEncoding.EncodeToString(key)
}

func TestEncryptedFileStore(t *testing.T) {
	file := keyFile(t, newKey())
	journaltest.Run(t, func(t *testing.T) func() (journal.Store, error) {
		path := filepath.Join(t.TempDir(), "journal.log")
		return func() (journal.Store, error) { return filestore.OpenEncrypted(t.Context(), path, file, nil) }
	})
}

// A plain journal is encrypted when it is opened with a key, and one under an old
// key by the new one; then nothing of either is left in the file, and the old key
// is no longer needed.
func TestKeysChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "journal.log")
	const records = 50
	f, err := filestore.Open(t.Context(), path, nil)
	must(t, err)
	fill := func(f *filestore.Store, from int) {
		for n := from; n < from+records; n++ {
			must(t, journal.New(f).SaveBucket(t.Context(), filler(n, 100)))
		}
	}
	fill(f, 0)
	must(t, f.Close())

	first, second := newKey(), newKey()
	total := records
	for _, lines := range [][]string{{first}, {"# of this year", second, "", "# of last year", first}, {second}} {
		f, err := filestore.OpenEncrypted(t.Context(), path, keyFile(t, lines...), nil)
		must(t, err)
		fill(f, total)
		total += records
		must(t, f.Close())
		text, err := os.ReadFile(path)
		must(t, err)
		for _, plain := range []string{"bucket", strings.Repeat("x", 20), `"put"`} {
			if bytes.Contains(text, []byte(plain)) {
				t.Fatalf("with keys %d: %q is in the file", len(lines), plain)
			}
		}
	}
	f, err = filestore.OpenEncrypted(t.Context(), path, keyFile(t, second), nil)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	for n := range total {
		if b, err := journal.New(f).Bucket(t.Context(), bucketID(n)); err != nil || len(b.Requested.Policy) != 100 {
			t.Fatalf("record %d: %v", n, err)
		}
	}
}

// Who does not have the key is told so, and the file is left as it is.
func TestKeyThatDoesNotOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.log")
	f, err := filestore.OpenEncrypted(t.Context(), path, keyFile(t, newKey()), nil)
	must(t, err)
	must(t, journal.New(f).SaveBucket(t.Context(), filler(1, 10)))
	must(t, f.Close())
	before, err := os.ReadFile(path)
	must(t, err)
	open := keyFile(t, newKey())
	must(t, os.Chmod(open, 0o644))
	for name, c := range map[string]struct{ file, want string }{
		"no key":      {"", path + " is encrypted; give the file of its key, journal.keyFile"},
		"another key": {keyFile(t, newKey()), path + " is encrypted with a key that journal.keyFile does not hold"},
		"no file":     {filepath.Join(t.TempDir(), "none"), "none cannot be used: no such file or directory"},
		"a directory": {t.TempDir(), "cannot be used: it is no file of keys"},
		"empty":       {keyFile(t, "# nothing"), "cannot be used: it holds no key"},
		"short":       {keyFile(t, newKey(), "c2hvcnQ="), "line 2 is no key of 32 bytes in base64; head -c 32 /dev/urandom | base64 makes one"},
		"no base64":   {keyFile(t, "planted secret"), "line 1 is no key"},
		"open":        {open, "it has mode 0644, with which others can read or change the keys in it; run chmod 600"},
	} {
		f, err := filestore.OpenEncrypted(t.Context(), path, c.file, nil)
		if err == nil {
			must(t, f.Close())
		}
		if !fault.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "planted") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(after, before) {
			t.Errorf("%s: the file was changed", name)
		}
	}
}
