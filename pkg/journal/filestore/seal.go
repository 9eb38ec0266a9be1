package filestore

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// keys encrypt the changes of a log: the first seals, and all of them open. None
// leaves them plain.
type keys []cipher.AEAD

const (
	keyBytes   = 32 // AES-256
	maxKeyFile = 64 << 10
)

// readKeys reads the file of the keys, a line in base64 for each. "" is no file.
func readKeys(name string) (keys, error) {
	if name == "" {
		return nil, nil
	}
	path, err := filepath.EvalSymlinks(name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxKeyFile:
		return nil, errors.New("it is no file of keys")
	}
	if err := (place{name, path}).private(info); err != nil {
		return nil, fmt.Errorf("it %w", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out keys
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(key) != keyBytes {
			return nil, fmt.Errorf("line %d is no key of %d bytes in base64; head -c %d /dev/urandom | base64 makes one", n, keyBytes, keyBytes)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, err
		}
		out = append(out, aead)
	}
	if len(out) == 0 {
		return nil, errors.New("it holds no key")
	}
	return out, nil
}

// seal encrypts a change, if there is a key.
func (k keys) seal(c change) (change, error) {
	if len(k) == 0 {
		return c, nil
	}
	text, err := json.Marshal(c)
	return change{Sealed: k[0].Seal(nil, nil, text, nil)}, err //nolint:gosec // it makes a random nonce itself
}

// open decrypts a change. It is current if it stands in the log as seal would
// write it.
func (k keys) open(c change) (_ change, current bool, err error) {
	if c.Sealed == nil {
		return c, len(k) == 0, nil
	}
	for i, key := range k {
		text, err := key.Open(nil, nil, c.Sealed, nil)
		if err != nil {
			continue
		}
		out, err := readChange(text)
		return out, i == 0, err
	}
	if len(k) == 0 {
		return c, false, refusal("is encrypted; give the file of its key, journal.keyFile")
	}
	return c, false, refusal("is encrypted with a key that journal.keyFile does not hold; add that key to it as a further line")
}
