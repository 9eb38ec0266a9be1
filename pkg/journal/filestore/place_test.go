package filestore_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
)

// refused checks that a journal is not opened, for a reason that the user is told.
func refused(t *testing.T, path string, why ...string) {
	t.Helper()
	f, err := filestore.Open(t.Context(), path, nil)
	if err == nil {
		_ = f.Close()
	}
	if !fault.Is(err, fault.FailedPrecondition) {
		t.Fatalf("%s: got %v", path, err)
	}
	for _, part := range append(why, path) {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the reason %q does not hold %q", err, part)
		}
	}
}

// A symlink, to the file or to a directory on the way, is followed: it stays, and
// whichever way a second process comes, it finds the lock.
func TestSymlinks(t *testing.T) {
	t.Parallel()
	for name, link := range map[string]func(target, alias string) string{
		"file": func(target, alias string) string {
			must(t, os.MkdirAll(alias, 0o700))
			must(t, os.Symlink(filepath.Join(target, "journal.log"), filepath.Join(alias, "link.log")))
			return filepath.Join(alias, "link.log")
		},
		"directory": func(target, alias string) string {
			must(t, os.Symlink(target, alias))
			return filepath.Join(alias, "journal.log")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target := filepath.Join(t.TempDir(), "target")
			must(t, os.Mkdir(target, 0o700))
			path := filepath.Join(target, "journal.log")
			must(t, open(t, path).Close())
			alias := link(target, filepath.Join(t.TempDir(), "alias"))
			target, err := os.Readlink(alias)
			f := open(t, alias)
			fill(t, journal.New(f), 3)
			for range 2 {
				must(t, f.Rewrite())
				refused(t, path, "in use by another process")
				refused(t, alias, "in use by another process")
				if after, afterErr := os.Readlink(alias); after != target || (err == nil) != (afterErr == nil) {
					t.Fatalf("the symlink to %q is now one to %q (%v)", target, after, afterErr)
				}
			}
			must(t, journal.New(f).Check(t.Context()))
			must(t, f.Close())
			expect(t, journal.New(open(t, path)), 3)
		})
	}
	t.Run("new file", func(t *testing.T) {
		t.Parallel()
		target, alias := t.TempDir(), filepath.Join(t.TempDir(), "alias")
		must(t, os.Symlink(target, alias))
		open(t, filepath.Join(alias, "journal.log"))
		refused(t, filepath.Join(target, "journal.log"), "in use by another process")
	})
	// To begin a journal there would hide that what it leads to is not mounted.
	t.Run("to nothing", func(t *testing.T) {
		t.Parallel()
		target, alias := filepath.Join(t.TempDir(), "journal.log"), filepath.Join(t.TempDir(), "alias")
		must(t, os.Symlink(target, alias))
		refused(t, alias, "is a symlink to nothing; mount what it leads to")
		if _, err := os.Lstat(target); err == nil {
			t.Error("a journal was begun")
		}
	})
}

// The file holds keys. It is the driver's alone, unless its group was made to
// have it in the way in which Kubernetes does so for a pod's fsGroup.
func TestModes(t *testing.T) {
	t.Parallel()
	const setgid = os.ModeSetgid
	for _, c := range []struct {
		file, directory fs.FileMode
		group           int // of the file; 0 for that of the process
		fine            bool
	}{
		{0o600, 0o700, 0, true},
		{0o600, 0o777, 0, true}, // many volumes are open to all, and mounted for one pod
		{0o600, 0o777 | setgid, 0, true},
		{0o666, 0o700, 0, false},
		{0o640, 0o700, 0, false},
		{0o620, 0o700, 0, false},
		{0o604, 0o700, 0, false},
		{0o602, 0o700, 0, false},
		{0o660, 0o770, 0, false},
		{0o660, 0o770 | setgid, 0, true}, // fsGroup
		{0o640, 0o770 | setgid, 0, true},
		{0o666, 0o777 | setgid, 0, false},
		{0o660, 0o770 | setgid, 54321, false}, // of another group than the directory
	} {
		t.Run(fmt.Sprintf("%v in %v, group %d", c.file, c.directory, c.group), func(t *testing.T) {
			t.Parallel()
			directory := filepath.Join(t.TempDir(), "volume")
			must(t, os.Mkdir(directory, 0o700))
			path := filepath.Join(directory, "journal.log")
			f := open(t, path)
			fill(t, journal.New(f), 2)
			must(t, f.Close())
			if c.group != 0 {
				if os.Getuid() != 0 { // which only root can change
					return
				}
				must(t, os.Chown(path, -1, c.group))
			}
			must(t, os.Chmod(directory, c.directory))
			must(t, os.Chmod(path, c.file))
			if !c.fine {
				refused(t, path, fmt.Sprintf("has mode %04o", c.file), "run chmod 600 on it")
				must(t, os.Chmod(path, 0o600)) // the cure
				f = open(t, path)
				expect(t, journal.New(f), 2)
				must(t, os.Chmod(path, c.file)) // while the driver runs
				if err := f.Check(t.Context()); !fault.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), "run chmod 600 on it") {
					t.Errorf("check says %v", err)
				}
				return
			}
			f = open(t, path)
			must(t, f.Rewrite())
			must(t, f.Check(t.Context()))
			must(t, f.Close())
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != c.file {
				t.Errorf("after a rewrite the mode is %v (%v)", info.Mode(), err)
			}
			expect(t, journal.New(open(t, path)), 2)
		})
	}
}

// What is no file is not opened, nor waited for.
func TestSpecialFiles(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	fifo := filepath.Join(directory, "fifo")
	must(t, syscall.Mkfifo(fifo, 0o600))
	link := filepath.Join(directory, "link")
	must(t, os.Symlink(fifo, link))
	for _, path := range []string{directory, fifo, link, "/dev/null"} {
		refused(t, path, "is not a regular file")
	}
	refused(t, filepath.Join(directory, "missing", "journal.log"), "no such file or directory")
}

// Under a second name the file would be the old one after a rewrite, with no lock.
func TestHardLinks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.log")
	other := path + ".backup"
	f := open(t, path)
	fill(t, journal.New(f), 3)
	must(t, os.Link(path, other)) // while the driver runs
	if err := f.Check(t.Context()); !fault.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), "has another name") {
		t.Errorf("check says %v", err)
	}
	if err := f.Rewrite(); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "has another name") {
		t.Errorf("a rewrite: %v", err)
	}
	refused(t, other, "in use by another process")
	must(t, f.Close())
	refused(t, path, "has another name", "remove that")
	refused(t, other, "has another name")
	must(t, os.Remove(other)) // the cure
	f = open(t, path)
	must(t, f.Rewrite())
	expect(t, journal.New(f), 3)
}

// A rewrite does not replace what another has put in the file's place.
func TestFileThatWasReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.log")
	f := open(t, path)
	fill(t, journal.New(f), 3)
	must(t, os.Rename(path, path+".moved"))
	must(t, os.WriteFile(path, []byte("another's"), 0o600))
	if err := f.Rewrite(); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "the file was replaced") {
		t.Errorf("a rewrite: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "another's" {
		t.Errorf("it is overwritten (%v)", err)
	}
	must(t, f.Close())
	expect(t, journal.New(open(t, path+".moved")), 3)
}

// What a killed process has left of a rewrite goes when the journal is opened,
// and nothing else does.
func TestLeftDrafts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal[a].log") // which is a pattern
	f := open(t, path)
	fill(t, journal.New(f), 1)
	drafts, others := []string{path + ".new-1", path + ".new-abc"}, []string{path + ".sock", path + ".backup", path + "x.new-1", filepath.Join(filepath.Dir(path), "journala.log.new-1")}
	for _, name := range append(drafts, others...) {
		must(t, os.WriteFile(name, nil, 0o600))
	}
	drafts = append(drafts, path+".new-linked") // as a kill leaves it that comes when the journal was just begun
	must(t, os.Link(path, path+".new-linked"))
	refused(t, path, "in use by another process")
	if _, err := os.Stat(drafts[0]); err != nil {
		t.Error("a process that was refused has removed the draft of the one that holds the journal")
	}
	must(t, f.Close())
	expect(t, journal.New(open(t, path)), 1)
	for _, name := range drafts {
		if _, err := os.Stat(name); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	for _, name := range others {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
}
