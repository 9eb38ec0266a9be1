package settings

import (
	"errors"
	"fmt"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/reload"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// OpenSecret reads a file that holds a secret, and again when it has changed;
// changed, which may be nil, hears of that.
func OpenSecret(file string, changed func(error)) (*reload.File[secret.String], error) {
	return open(file, changed, ParseSecret)
}

// OpenKeyPair is OpenSecret for a file of credentials.
func OpenKeyPair(file string, changed func(error)) (*reload.File[secret.KeyPair], error) {
	return open(file, changed, ParseKeyPair)
}

func open[T any](file string, changed func(error), parse func([]byte) (T, error)) (*reload.File[T], error) {
	if file == "" {
		return nil, errors.New("missing; give the path of a file")
	}
	return reload.Open(changed, func(texts [][]byte) (T, error) {
		value, err := parse(texts[0])
		if err != nil {
			err = fmt.Errorf("%s %w", file, err)
		}
		return value, err
	}, file)
}

// Secret adds a fault if a file does not hold a secret.
func (s Section) Secret(file string) {
	if _, err := OpenSecret(file, nil); err != nil {
		s.Faultf("%w", err)
	}
}

// KeyPair adds a fault if a file does not hold credentials.
func (s Section) KeyPair(file string) {
	if _, err := OpenKeyPair(file, nil); err != nil {
		s.Faultf("%w", err)
	}
}

// ParseSecret is the secret that a file's text is, without the white space
// around it.
func ParseSecret(text []byte) (secret.String, error) {
	trimmed := strings.TrimSpace(string(text))
	if trimmed == "" {
		return secret.String{}, errors.New("is empty")
	}
	if strings.ContainsFunc(trimmed, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return secret.String{}, errors.New("holds more than one line")
	}
	return secret.New(trimmed), nil
}

// ParseKeyPair reads credentials as AWS's tools keep them in
// ~/.aws/credentials: aws_access_key_id and aws_secret_access_key, of the
// section [default] if there are sections.
func ParseKeyPair(text []byte) (secret.KeyPair, error) {
	var pair secret.KeyPair
	section := "default"
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSpace(strings.TrimSuffix(name, "]"))
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || section != "default" || strings.HasPrefix(line, "#") {
			continue
		}
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "aws_access_key_id":
			pair.AccessKeyID = value
		case "aws_secret_access_key":
			pair.SecretAccessKey = secret.New(value)
		}
	}
	if pair.AccessKeyID == "" || pair.SecretAccessKey.IsZero() {
		return secret.KeyPair{}, errors.New("does not hold aws_access_key_id = … and aws_secret_access_key = …")
	}
	return pair, nil
}
