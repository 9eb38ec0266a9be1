package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// log is a file of frames, each made durable with a single flush. A database
// flushes twice, once for the data and once for what points to it, and that is
// most of what a small RPC costs.
//
// The file begins with a head and is filled up with zeros beyond its last
// frame, so that a write needs no new blocks and the file's length, which the
// head repeats, shows if it was cut. A frame carries its number and a checksum
// of number and content. What a power cut can leave of the last, never
// acknowledged, frame are whole sectors that are still zero; anything else
// that is wrong is damage, and damage is refused rather than skipped. For the
// same reason the remains of a write that failed are wiped before the next.
type log struct {
	path     string
	file     *os.File
	size     int64  // of the file, as its head says
	end      int64  // where the next frame goes
	dirty    int64  // up to where the unused part may hold remains of a failed write
	sequence uint64 // the next frame's number
	base     int64  // end after the last rewrite: what was live then
	moved    bool   // a rewrite's rename is not yet known to be durable
}

const (
	logMagic  = "contract-cosi-driver journal 1\n"
	headBytes = 4096
	headSum   = 48 // magic, padding to 40, size
	frameHead = 16 // length, checksum, number
	growStep  = 1 << 20
	sector    = 512
	// A log is rewritten when it is this much longer than what it began with.
	maxOutdated = 8 << 20
)

// damage is what is wrong with a file's content.
type damage string

// Error implements error.
func (d damage) Error() string { return string(d) }

var (
	errLocked  = errors.New("locked")
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// openLog opens a log, or makes one, and replays every frame.
func openLog(path string, replay func([]byte) error) (*log, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		// Another process may be doing the same: a link never replaces its file.
		l, err := draftLog(path, nil, 1)
		if err != nil {
			return nil, err
		}
		err = os.Link(l.file.Name(), path)
		_ = os.Remove(l.file.Name())
		_ = l.close()
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := syncDirectory(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	l := &log{path: path, file: file}
	if err = l.lock(); err == nil {
		err = l.read(replay)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	drafts, _ := filepath.Glob(path + ".new-*") // of a process that was killed
	for _, draft := range drafts {
		_ = os.Remove(draft)
	}
	return l, nil
}

// lock keeps other processes out. Whoever waits for a log that is being
// rewritten must not end up with the old one.
func (l *log) lock() error {
	if err := syscall.Flock(int(l.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	} else if err != nil {
		return err
	}
	if l.inPlace() != nil {
		return errLocked
	}
	return nil
}

// inPlace reports whether the file is the one that its path names.
func (l *log) inPlace() error {
	held, err := l.file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(l.path)
	if err == nil && !os.SameFile(held, there) {
		err = errors.New("the file was replaced")
	}
	return err
}

// read replays the file. It changes nothing.
func (l *log) read(replay func([]byte) error) error {
	all, err := io.ReadAll(l.file)
	if err != nil {
		return err
	}
	if len(all) < headBytes || !bytes.HasPrefix(all, []byte(logMagic)) {
		return damage("it is not a journal")
	}
	if binary.BigEndian.Uint32(all[headSum:]) != crc32.Checksum(all[:headSum], castagnoli) {
		return damage("the checksum of its head is wrong")
	}
	size := binary.BigEndian.Uint64(all[headSum-8:])
	if uint64(len(all)) < size {
		return damage(fmt.Sprintf("it should have %d bytes and has %d", size, len(all)))
	}
	l.size = int64(size) //nolint:gosec // at most len(all)
	all = all[:l.size]
	at := headBytes
	for first := true; ; first = false {
		payload, number, ok := frameAt(all, at)
		if !ok || !first && number != l.sequence {
			break
		}
		if err := replay(payload); err != nil {
			return err
		}
		l.sequence = number + 1
		at += frameHead + len(payload)
		if first {
			l.base = int64(at)
		}
	}
	if l.sequence == 0 {
		return damage("its first frame cannot be read")
	}
	l.end, l.dirty = int64(at), int64(at)
	rest := all[at:]
	if used := bytes.TrimRight(rest, "\x00"); len(used) > 0 {
		if !l.torn(all, at) {
			return damage(fmt.Sprintf("what follows byte %d cannot be read", at))
		}
		l.dirty += int64(len(used))
	}
	return nil
}

// torn reports whether what stands at the end can be the remains of a write
// that a power cut ended: no good frame comes after it, and a sector of it is
// as it was before.
func (l *log) torn(all []byte, at int) bool {
	for i := at; i < len(all)-frameHead; i++ {
		if _, number, ok := frameAt(all, i); ok && number >= l.sequence {
			return false
		}
	}
	used := len(bytes.TrimRight(all, "\x00"))
	extent := used
	if n := int(binary.BigEndian.Uint32(all[at:])); n > 0 && n < len(all)-at-frameHead {
		extent = max(used, at+frameHead+n)
	}
	zeros := make([]byte, sector)
	for s := at / sector * sector; s < extent; s += sector {
		from, to := max(s, at), min(s+sector, extent)
		if bytes.Equal(all[from:to], zeros[:to-from]) {
			return true
		}
	}
	return false
}

// frameAt returns the frame that begins at a place, if it is whole and right.
func frameAt(all []byte, at int) (payload []byte, number uint64, ok bool) {
	if at+frameHead > len(all) {
		return nil, 0, false
	}
	n := int(binary.BigEndian.Uint32(all[at:]))
	if n == 0 && binary.BigEndian.Uint64(all[at+8:]) == 0 || n > len(all)-at-frameHead {
		return nil, 0, false
	}
	body := all[at+8 : at+frameHead+n]
	if binary.BigEndian.Uint32(all[at+4:]) != crc32.Checksum(body, castagnoli) {
		return nil, 0, false
	}
	return body[8:], binary.BigEndian.Uint64(body), true
}

func frame(payload []byte, number uint64) []byte {
	out := make([]byte, frameHead, frameHead+len(payload))
	binary.BigEndian.PutUint32(out, uint32(len(payload))) //nolint:gosec // a record is bounded
	binary.BigEndian.PutUint64(out[8:], number)
	out = append(out, payload...)
	binary.BigEndian.PutUint32(out[4:], crc32.Checksum(out[8:], castagnoli))
	return out
}

func head(size int64) []byte {
	out := make([]byte, headBytes)
	copy(out, logMagic)
	binary.BigEndian.PutUint64(out[headSum-8:], uint64(size)) //nolint:gosec // a size is not negative
	binary.BigEndian.PutUint32(out[headSum:], crc32.Checksum(out[:headSum], castagnoli))
	return out
}

// append writes one frame durably. After an error the log is as before: the
// next frame goes to the same place.
func (l *log) append(payload []byte) error {
	if l.moved {
		if err := syncDirectory(filepath.Dir(l.path)); err != nil {
			return err
		}
		l.moved = false
	}
	out := frame(payload, l.sequence)
	end := l.end + int64(len(out))
	if err := l.grow(end); err != nil {
		return err
	}
	if err := l.wipe(); err != nil {
		return err
	}
	l.dirty = end
	if err := l.write(out); err != nil {
		_ = l.wipe() // now if it can be, or else before the next frame
		return err
	}
	l.end = end
	l.sequence++
	return nil
}

// write puts bytes at the log's end, durably.
func (l *log) write(out []byte) error {
	if _, err := l.file.WriteAt(out, l.end); err != nil {
		return err
	}
	return syscall.Fdatasync(int(l.file.Fd()))
}

// wipe makes the unused part zero again.
func (l *log) wipe() error {
	if l.dirty <= l.end {
		return nil
	}
	if err := l.write(make([]byte, l.dirty-l.end)); err != nil {
		return err
	}
	l.dirty = l.end
	return nil
}

// grow makes room up to end, and for the zero that ends the log.
func (l *log) grow(end int64) error {
	if end+frameHead <= l.size {
		return nil
	}
	size := (end/growStep + 1) * growStep
	if _, err := l.file.WriteAt(make([]byte, size-l.size), l.size); err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil {
		return err
	}
	if _, err := l.file.WriteAt(head(size), 0); err != nil {
		return err
	}
	if err := syscall.Fdatasync(int(l.file.Fd())); err != nil {
		return err
	}
	l.size = size
	return nil
}

// outdated reports whether the log is worth rewriting: it has grown by more
// than it began with, and by enough to pay for the work.
func (l *log) outdated() bool {
	grown := l.end - l.base
	return grown > maxOutdated && grown > l.base
}

// rewrite replaces the log by one that begins with a single frame. If it
// fails, for want of room for both, the old one goes on.
func (l *log) rewrite(payload []byte) {
	next, err := draftLog(l.path, payload, l.sequence)
	if err != nil {
		return
	}
	if err := os.Rename(next.file.Name(), l.path); err != nil {
		_ = os.Remove(next.file.Name())
		_ = next.close()
		return
	}
	_ = l.file.Close()
	*l = *next
	l.moved = true
}

// draftLog makes a complete and locked log under a name of its own beside
// path, so that there is never half a journal at path.
func draftLog(path string, payload []byte, number uint64) (_ *log, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*") // mode 0600
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(file.Name())
		}
	}()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, err
	}
	first := frame(payload, number)
	end := headBytes + int64(len(first))
	size := (end/growStep + 1) * growStep
	content := append(head(size), first...)
	content = append(content, make([]byte, size-end)...)
	if _, err := file.Write(content); err != nil {
		return nil, err
	}
	if err := file.Sync(); err != nil {
		return nil, err
	}
	return &log{path: path, file: file, size: size, end: end, dirty: end, sequence: number + 1, base: end}, nil
}

// syncDirectory makes a rename durable.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}

// close lets the lock go by itself: a program that this process is just starting
// holds a copy of the file for a moment, and with it what closing would leave.
func (l *log) close() error {
	return errors.Join(syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN), l.file.Close())
}
