package filestore

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"syscall"

	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
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
	place
	file     *os.File
	size     int64  // of the file, as its head says
	end      int64  // where the next frame goes
	dirty    int64  // up to where the unused part may hold remains of a failed write
	sequence uint64 // the next frame's number
	base     int64  // end of the first frame: what was live at the last rewrite
	due      int64  // the end beyond which it is to be rewritten
	moved    bool   // a rewrite's rename is not yet known to be durable
}

const (
	logMagic  = "contract-cosi-driver journal 1\n"
	headBytes = 4096
	headSum   = 48 // magic, padding to 40, size
	frameHead = 16 // length, checksum, number
	growStep  = 1 << 20
	sector    = 512
	// A log is rewritten when what came since the last rewrite is more than was
	// live then, and than this.
	maxOutdated = 8 << 20
	copyBuffer  = 64 << 10
)

func damage(format string, args ...any) error {
	return refusal("is damaged (" + fmt.Sprintf(format, args...) + ") and was left as it is; restore it from a backup, or move it away to begin a new one")
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openLog opens a log, or makes one, and replays every frame.
func openLog(name string, replay func(io.Reader) error) (*log, error) {
	at, err := find(name)
	if err != nil {
		return nil, err
	}
	l := &log{place: at}
	if l.file, err = os.OpenFile(at.path, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if err = l.take(l.file); err == nil {
		err = l.read(replay)
	}
	if err != nil {
		_ = l.close()
		return nil, err
	}
	return l, nil
}

// read replays the file. It changes nothing.
func (l *log) read(replay func(io.Reader) error) error {
	first := make([]byte, headBytes)
	n, err := l.file.ReadAt(first, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if n < headBytes || !bytes.HasPrefix(first, []byte(logMagic)) {
		return damage("it is not a journal")
	}
	if binary.BigEndian.Uint32(first[headSum:]) != crc32.Checksum(first[:headSum], castagnoli) {
		return damage("the checksum of its head is wrong")
	}
	l.size = int64(binary.BigEndian.Uint64(first[headSum-8:])) //nolint:gosec // the head has a checksum
	if info, err := l.file.Stat(); err != nil {
		return err
	} else if info.Size() < l.size {
		return damage("it should have %d bytes and has %d", l.size, info.Size())
	}
	buffer := make([]byte, copyBuffer)
	l.end = headBytes
	for {
		payload, number, err := frameAt(l.file, l.size, l.end, buffer)
		if err != nil {
			return err
		}
		if payload == nil || l.sequence > 0 && number != l.sequence {
			break
		}
		if err := replay(payload); err != nil {
			return err
		}
		l.sequence = number + 1
		l.end += frameHead + payload.Size()
		if l.base == 0 {
			l.base = l.end
		}
	}
	if l.sequence == 0 {
		return damage("its first frame cannot be read")
	}
	l.due = l.base + max(l.base, maxOutdated)
	from := l.end / sector * sector
	rest := make([]byte, l.size-from)
	if _, err := l.file.ReadAt(rest, from); err != nil {
		return err
	}
	at := int(l.end - from)
	used := len(bytes.TrimRight(rest[at:], "\x00"))
	if used > 0 && !l.torn(rest, at, buffer) {
		return damage("what follows byte %d cannot be read", l.end)
	}
	l.dirty = l.end + int64(used)
	return nil
}

// torn reports whether what stands at a place of the file's rest, which begins
// with a sector, can be the remains of a write that a power cut ended: no good
// frame comes after it, and a sector of it is as it was before.
func (l *log) torn(rest []byte, at int, buffer []byte) bool {
	used := len(bytes.TrimRight(rest, "\x00"))
	r := bytes.NewReader(rest)
	for i := at; i < used; i++ {
		if payload, number, _ := frameAt(r, r.Size(), int64(i), buffer); payload != nil && number >= l.sequence {
			return false
		}
	}
	extent := used
	if n := int(binary.BigEndian.Uint32(rest[at:])); n > 0 && n < len(rest)-at-frameHead {
		extent = max(used, at+frameHead+n)
	}
	zeros := make([]byte, sector)
	for s := 0; s < extent; s += sector {
		from, to := max(s, at), min(s+sector, extent)
		if bytes.Equal(rest[from:to], zeros[:to-from]) {
			return true
		}
	}
	return false
}

// frameAt returns the content of the frame that begins at a place, or nil if
// there is none that is whole and right.
func frameAt(r io.ReaderAt, size, at int64, buffer []byte) (payload *io.SectionReader, number uint64, err error) {
	if at+frameHead > size {
		return nil, 0, nil
	}
	if _, err := r.ReadAt(buffer[:frameHead], at); err != nil {
		return nil, 0, err
	}
	n, checksum := int64(binary.BigEndian.Uint32(buffer)), binary.BigEndian.Uint32(buffer[4:])
	number = binary.BigEndian.Uint64(buffer[8:])
	if n == 0 && number == 0 || n > size-at-frameHead {
		return nil, 0, nil
	}
	sum := crc32.New(castagnoli)
	_, _ = sum.Write(buffer[8:frameHead])
	payload = io.NewSectionReader(r, at+frameHead, n)
	if _, err := io.CopyBuffer(sum, payload, buffer); err != nil {
		return nil, 0, err
	}
	if sum.Sum32() != checksum {
		return nil, 0, nil
	}
	_, err = payload.Seek(0, io.SeekStart)
	return payload, number, err
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
	out := make([]byte, frameHead, frameHead+len(payload))
	binary.BigEndian.PutUint32(out, uint32(len(payload))) //nolint:gosec // a record is bounded
	binary.BigEndian.PutUint64(out[8:], l.sequence)
	out = append(out, payload...)
	binary.BigEndian.PutUint32(out[4:], crc32.Checksum(out[8:], castagnoli))
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

// draft makes a complete and locked log under a name of its own beside its
// place, so that there is never half a journal there. Its first frame has a
// number, and holds what is live.
func (p place) draft(number uint64, live []journal.Entry, keys keys) (_ *log, err error) {
	file, err := p.temporary()
	if err != nil {
		return nil, err
	}
	l := &log{place: p, file: file, sequence: number + 1}
	defer func() {
		if err != nil {
			l.discard()
		}
	}()
	var first [frameHead]byte
	binary.BigEndian.PutUint64(first[8:], number)
	sum := crc32.New(castagnoli)
	_, _ = sum.Write(first[8:])
	payload := io.NewOffsetWriter(file, headBytes+frameHead)
	out := bufio.NewWriterSize(io.MultiWriter(payload, sum), copyBuffer)
	encoder := json.NewEncoder(out)
	synced := int64(0)
	for i := range live {
		c, err := keys.seal(change{Put: &live[i]})
		if err == nil {
			err = encoder.Encode(c)
		}
		if err != nil {
			return nil, err
		}
		if n, _ := payload.Seek(0, io.SeekCurrent); n-synced > growStep { // a flush of all at once would hold up those of calls
			synced = n
			if err := syscall.Fdatasync(int(file.Fd())); err != nil {
				return nil, err
			}
		}
	}
	if err := out.Flush(); err != nil {
		return nil, err
	}
	n, err := payload.Seek(0, io.SeekCurrent)
	if err != nil || n > math.MaxUint32 {
		return nil, errors.Join(err, syscall.EFBIG)
	}
	binary.BigEndian.PutUint32(first[:], uint32(n)) //nolint:gosec // see above
	binary.BigEndian.PutUint32(first[4:], sum.Sum32())
	if _, err := file.WriteAt(first[:], headBytes); err != nil {
		return nil, err
	}
	l.end = headBytes + frameHead + n
	l.base, l.dirty, l.size = l.end, l.end, l.end
	l.due = l.base + max(l.base, maxOutdated)
	return l, l.grow(l.end)
}

// follow appends the frames that another log has from one place to another.
func (l *log) follow(other *log, from, to int64) error {
	end := l.end + to - from
	if err := l.grow(end); err != nil {
		return err
	}
	if _, err := io.Copy(io.NewOffsetWriter(l.file, l.end), io.NewSectionReader(other.file, from, to-from)); err != nil {
		return err
	}
	l.end, l.dirty = end, end
	return syscall.Fdatasync(int(l.file.Fd()))
}

// replace lets a draft follow another log to its end, and puts it in its place.
func (l *log) replace(other *log, from int64) error {
	if err := l.follow(other, from, other.end); err != nil {
		return err
	}
	if err := other.check(other.file); err != nil {
		return err
	}
	l.sequence, l.moved = other.sequence, true
	return os.Rename(l.file.Name(), l.path)
}

// discard removes a draft.
func (l *log) discard() {
	_ = os.Remove(l.file.Name())
	_ = l.close()
}

// close lets the lock go by itself: a program that this process is just starting
// holds a copy of the file for a moment, and with it what closing would leave.
func (l *log) close() error {
	return errors.Join(syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN), l.file.Close())
}
