package filestore_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
)

// What is in testdata was written by the first build of the driver: an export;
// the journal that its import makes, with one key changed and one bucket deleted
// afterwards, and its export; that journal after a rewrite; and as a process
// leaves it that was killed while it tried whether the disk takes writes. The
// zeros at the end of the files are left out.
const (
	testdata   = "../testdata/"
	firstOwner = "cluster-1"
)

func fixture(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(testdata + name)
	must(t, err)
	return text
}

// unpacked is a file of the first build with its zeros.
func unpacked(t *testing.T, name string) string {
	t.Helper()
	text := fixture(t, name)
	path := filepath.Join(t.TempDir(), "journal.log")
	must(t, os.WriteFile(path, append(text, make([]byte, 1<<20-len(text))...), 0o600))
	return path
}

func exported(t *testing.T, s journal.Store) string {
	t.Helper()
	var out strings.Builder
	_, err := journal.Export(t.Context(), s, firstOwner, &out)
	must(t, err)
	return out.String()
}

// Journals of the first build are read and carried on.
func TestJournalsOfTheFirstBuild(t *testing.T) {
	t.Parallel()
	after := string(fixture(t, "after.export"))
	for _, name := range []string{"journal.log", "rewritten.log", "probe.log"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := unpacked(t, name)
			f := open(t, path)
			if got := exported(t, f); got != after {
				t.Errorf("it holds\n%s\nwant\n%s", got, after)
			}
			must(t, f.Check(t.Context()))
			must(t, journal.New(f).SaveBucket(t.Context(), filler(1, 1)))
			must(t, f.Rewrite())
			carriedOn := exported(t, f)
			must(t, f.Close())
			if exported(t, open(t, path)) != carriedOn || strings.Count(carriedOn, "\n") != strings.Count(after, "\n")+1 {
				t.Error("it was not carried on")
			}
		})
	}
	for _, name := range []string{"after.export", "probe.export"} {
		f := open(t, filepath.Join(t.TempDir(), "journal.log"))
		if n, _, err := journal.Import(t.Context(), f, firstOwner, bytes.NewReader(fixture(t, name))); n != 6 || err != nil {
			t.Errorf("%s: %d entries imported, %v", name, n, err)
		}
		if exported(t, f) != after {
			t.Errorf("%s is not what was imported", name)
		}
	}
}

// What is written now is, byte for byte, what the first build wrote.
func TestBytesOfTheFirstBuild(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.log")
	f := open(t, path)
	_, _, err := journal.Import(t.Context(), f, firstOwner, bytes.NewReader(fixture(t, "journal.export")))
	must(t, err)
	if exported(t, f) != string(fixture(t, "journal.export")) {
		t.Error("an export is other than the first build's")
	}
	j := journal.New(f)
	a, err := j.Account(t.Context(), cosi.AccountID{ContractID: contractID, Account: "ba-2"})
	must(t, err)
	a.Phase, a.Issued, a.IssuedAt = journal.Done, pair("7"), time.Date(2024, 5, 6, 7, 8, 9, 10, time.UTC)
	a.Issued.AccessKeyID = "ID-7"
	must(t, j.SaveAccount(t.Context(), a))
	b, err := j.Bucket(t.Context(), cosi.BucketID{ContractID: contractID, Bucket: "a.-b"})
	must(t, err)
	must(t, j.Delete(t.Context(), b))
	got, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(bytes.TrimRight(got, "\x00"), fixture(t, "journal.log")) || len(got) != 1<<20 {
		t.Errorf("the file of %d bytes is other than the first build's", len(got))
	}
}

// A file that was rewritten, and written to meanwhile and afterwards, can be read
// by the first build as well.
func TestRewrittenForTheFirstBuild(t *testing.T) {
	t.Parallel()
	path := unpacked(t, "journal.log")
	f := open(t, path)
	j := journal.New(f)
	for i := range 30 {
		done := make(chan error)
		go func() { done <- f.Rewrite() }()
		b := filler(i, 1000)
		must(t, j.SaveBucket(t.Context(), b))
		if i%2 == 0 {
			must(t, j.Delete(t.Context(), b))
		}
		must(t, <-done)
	}
	index, err := f.Index(t.Context())
	must(t, err)
	read := firstBuild(t, path)
	for _, e := range index.All() {
		if got := read[e.Key]; got.Version != e.Version || !bytes.Equal(got.Value, e.Value) {
			t.Errorf("%s is version %d and %s", e.Key, got.Version, got.Value)
		}
		delete(read, e.Key)
	}
	if len(read) > 0 {
		t.Errorf("the first build finds %d records more", len(read))
	}
}

// firstBuild reads a file as the first build does: a head that holds the length,
// and frames whose numbers have no gap, up to the first that is none.
func firstBuild(t *testing.T, path string) map[journal.Key]journal.Entry {
	t.Helper()
	entries, _ := readFirst(t, path)
	return entries
}

func firstBuildEnd(t *testing.T, path string) int64 {
	t.Helper()
	_, end := readFirst(t, path)
	return int64(end)
}

func readFirst(t *testing.T, path string) (map[journal.Key]journal.Entry, int) {
	t.Helper()
	all, err := os.ReadFile(path)
	must(t, err)
	table := crc32.MakeTable(crc32.Castagnoli)
	if string(all[:31]) != "contract-cosi-driver journal 1\n" || binary.BigEndian.Uint32(all[48:]) != crc32.Checksum(all[:48], table) || binary.BigEndian.Uint64(all[40:]) != uint64(len(all)) {
		t.Fatal("the head is wrong")
	}
	entries, at, sequence := map[journal.Key]journal.Entry{}, 4096, uint64(0)
	for {
		n, number := int(binary.BigEndian.Uint32(all[at:])), binary.BigEndian.Uint64(all[at+8:])
		if n == 0 && number == 0 {
			break
		}
		if crc32.Checksum(all[at+8:at+16+n], table) != binary.BigEndian.Uint32(all[at+4:]) || sequence > 0 && number != sequence {
			t.Fatalf("the frame at %d is wrong", at)
		}
		for line := range strings.Lines(string(all[at+16 : at+16+n])) {
			var change struct {
				Put *struct {
					Key     journal.Key     `json:"key"`
					Refs    []journal.Key   `json:"refs,omitempty"`
					Value   json.RawMessage `json:"value"`
					Version string          `json:"version"`
				} `json:"put,omitempty"`
				Delete *journal.Key `json:"delete,omitempty"`
			}
			must(t, json.Unmarshal([]byte(line), &change))
			if change.Delete != nil {
				delete(entries, *change.Delete)
				continue
			}
			var version uint64
			must(t, json.Unmarshal([]byte(change.Put.Version), &version))
			entries[change.Put.Key] = journal.Entry{Key: change.Put.Key, Refs: change.Put.Refs, Value: change.Put.Value, Version: version}
		}
		sequence, at = number+1, at+16+n
	}
	if sequence == 0 || len(bytes.TrimRight(all[at:], "\x00")) > 0 {
		t.Fatalf("what follows %d is wrong", at)
	}
	return entries, at
}

// Whatever is in a file: either it is refused and left as it is, or what was in it
// up to some write is there, and it can be carried on.
func FuzzFile(f *testing.F) {
	good, err := os.ReadFile(testdata + "journal.log")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, uint16(0))
	f.Add([]byte{}, uint16(4096))
	f.Add(make([]byte, 512), uint16(len(good)-600))
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 0}, uint16(len(good)))
	f.Fuzz(func(t *testing.T, with []byte, at uint16) {
		all := append(bytes.Clone(good), make([]byte, 1<<20-len(good))...)
		copy(all[at:], with)
		path := filepath.Join(t.TempDir(), "journal.log")
		must(t, os.WriteFile(path, all, 0o600))
		s, err := filestore.Open(t.Context(), path, nil)
		if err != nil {
			if !strings.Contains(err.Error(), "is damaged") {
				t.Error(err)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, all) {
				t.Errorf("the refused file was changed (%v)", err)
			}
			return
		}
		j := journal.New(s)
		must(t, j.SaveBucket(t.Context(), filler(1, 1)))
		want := exported(t, s)
		must(t, s.Close())
		if exported(t, open(t, path)) != want {
			t.Error("it was not carried on")
		}
	})
}
