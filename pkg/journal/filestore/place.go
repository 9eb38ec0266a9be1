package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// place is where a log is.
type place struct {
	name string // as it was given
	path string // of the file itself, to which name may lead over symlinks
}

// refusal is why a file is not used, and what to do about it. It is told after
// the file's name.
type refusal string

// Error implements error.
func (r refusal) Error() string { return string(r) }

const errLocked = refusal("is in use by another process; run one driver for each journal file")

var errMoved = errors.New("the file was replaced")

// draftMark is in the names of drafts, after the log's own.
const draftMark = ".new-"

// find finds the file that a name leads to, and makes it if there is none.
func find(name string) (place, error) {
	path, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		return begin(name)
	}
	if err != nil {
		return place{}, err
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // to open it could block, or have an effect
		err = refusal("is not a regular file; let journal.file name one, or one that is to be made")
	}
	return place{name, path}, err
}

func begin(name string) (place, error) {
	if _, err := os.Lstat(name); err == nil {
		return place{}, refusal("is a symlink to nothing; mount what it leads to, or remove it to begin a new journal")
	}
	directory, err := filepath.EvalSymlinks(filepath.Dir(name))
	if err != nil {
		return place{}, err
	}
	p := place{name, filepath.Join(directory, filepath.Base(name))}
	draft, err := p.draft(1, nil, nil)
	if err != nil {
		return place{}, err
	}
	defer draft.discard()
	// Another process may be doing the same. A link never replaces its file, and
	// it may have removed the draft.
	if err := os.Link(draft.file.Name(), p.path); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
		return place{}, err
	}
	return p, syncDirectory(directory)
}

// take makes the file this process's own, if it is no other's, and removes the
// drafts that a killed process has left: only the process that holds the log makes
// any. One that waits while the log is rewritten must not end up with the old file.
func (p place) take(file *os.File) error {
	if err := lock(file); err != nil {
		return err
	}
	if err := p.check(file); errors.Is(err, errMoved) || errors.Is(err, fs.ErrNotExist) {
		return errLocked
	}
	entries, _ := os.ReadDir(filepath.Dir(p.path))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(p.path)+draftMark) {
			_ = os.Remove(filepath.Join(filepath.Dir(p.path), e.Name()))
		}
	}
	return p.check(file) // one of them may have been its other name
}

func lock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// check reports whether the file is the one that its name leads to, has no other
// name, and is the driver's alone.
func (p place) check(file *os.File) error {
	held, err := file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(p.name)
	if err != nil {
		return err
	}
	if !os.SameFile(held, there) {
		return errMoved
	}
	if held.Sys().(*syscall.Stat_t).Nlink > 1 {
		return refusal("has another name, a hard link, under which a second driver could open it; remove that")
	}
	return p.private(held)
}

// private refuses a file that is not the driver's alone.
func (p place) private(held fs.FileInfo) error {
	if mode := held.Mode().Perm(); mode&0o007 != 0 || mode&0o070 != 0 && !p.shared(held) {
		return refusal(fmt.Sprintf("has mode %04o, with which others can read or change the keys in it; run chmod 600 on it", mode))
	}
	return nil
}

// shared reports whether the file's group is meant to have it: it is one of this
// process's, and that of a directory that gives it to all that is made there.
// Kubernetes does so to each file of a volume when a pod has an fsGroup. It may
// be the only way in for a pod that is given another user than the one before.
func (p place) shared(file fs.FileInfo) bool {
	directory, err := os.Stat(filepath.Dir(p.path))
	if err != nil || directory.Mode()&fs.ModeSetgid == 0 {
		return false
	}
	groups, _ := os.Getgroups()
	group := file.Sys().(*syscall.Stat_t).Gid
	return group == directory.Sys().(*syscall.Stat_t).Gid && slices.Contains(append(groups, os.Getegid()), int(group))
}

// temporary makes a locked file beside the log. It has the log's mode, so that a
// group that needs it can open it the next time as well.
func (p place) temporary() (_ *os.File, err error) {
	file, err := os.CreateTemp(filepath.Dir(p.path), filepath.Base(p.path)+draftMark+"*") // mode 0600
	if err != nil {
		return nil, err
	}
	err = lock(file)
	if old, statErr := os.Stat(p.path); err == nil && statErr == nil {
		err = file.Chmod(old.Mode().Perm()&0o060 | 0o600)
	}
	if err != nil {
		_ = os.Remove(file.Name())
		_ = file.Close()
	}
	return file, err
}

// syncDirectory makes what has changed in a directory durable.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}
