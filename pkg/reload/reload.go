// Package reload reads a file again when it has changed.
//
// A platform renews what it mounts into a pod — a token, a key, a CA bundle —
// while the driver runs, and the driver is not told. A [File] looks when it is
// asked, at most once a second, and compares contents: the mounts of Kubernetes
// are links that are swapped, so times and sizes prove nothing. What cannot be
// read or makes no sense leaves the value there was, because a file that is
// being written is no reason to stop.
package reload

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// interval is how long a value is used before the file is looked at again.
const interval = time.Second

// maxBytes bounds what is read; CA bundles are the longest.
const maxBytes = 4 << 20

// File is a value that a file, or several together, hold.
type File[T any] struct {
	paths   []string
	parse   func(texts [][]byte) (T, error)
	changed func(error)

	mu     sync.Mutex
	texts  [][]byte
	value  T
	looked time.Time
	broken bool // what is there now cannot be used, and that was said
}

// Open reads the files for the first time, which has to succeed. changed, which
// may be nil, is told of every later change: nil of one that is in effect, and
// once of one that cannot be used.
func Open[T any](changed func(error), parse func(texts [][]byte) (T, error), paths ...string) (*File[T], error) {
	if changed == nil {
		changed = func(error) {}
	}
	f := &File[T]{paths: paths, parse: parse, changed: changed, looked: time.Now()}
	var err error
	if f.texts, err = read(paths); err != nil {
		return nil, err
	}
	if f.value, err = parse(f.texts); err != nil {
		return nil, err
	}
	return f, nil
}

// Get returns the value of what the files hold now, or of what they last held
// that made sense.
func (f *File[T]) Get() T {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) < interval {
		return f.value
	}
	f.looked = time.Now()
	texts, err := read(f.paths)
	if err == nil && equal(texts, f.texts) {
		f.broken = false
		return f.value
	}
	var value T
	if err == nil {
		value, err = f.parse(texts)
	}
	if err != nil {
		if !f.broken {
			f.broken = true
			f.changed(err)
		}
		return f.value
	}
	f.texts, f.value, f.broken = texts, value, false
	f.changed(nil)
	return f.value
}

func read(paths []string) ([][]byte, error) {
	texts := make([][]byte, len(paths))
	for i, path := range paths {
		text, err := readOne(path)
		if err != nil {
			return nil, err
		}
		texts[i] = text
	}
	return texts, nil
}

func readOne(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err == nil && len(text) > maxBytes {
		err = fmt.Errorf("%s has more than %d bytes", path, maxBytes)
	}
	return text, err
}

func equal(a, b [][]byte) bool {
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}
