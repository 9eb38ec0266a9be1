package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// What is found at real services is for test/backends; here is what is printed
// of a service that is not there.
func TestCheckOfAConfiguration(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	file, token := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "token")
	write(t, token, "planted-token")
	write(t, file, `
driver: {name: d.example.com, owner: o}
journal: {file: /j}
backends:
  - {name: away, type: contractapi, contractapi: {url: "http://127.0.0.1:1", tokenFile: `+token+`}}
  - {name: gone, type: versitygw, versitygw: {endpoints: [{region: r, url: "http://127.0.0.1:1"}], credentialsFile: `+token+`.key}}
contracts:
  - {name: blue, backend: away}
  - {name: green, backend: gone, suspend: true}
`)
	write(t, token+".key", "aws_access_key_id = a\naws_secret_access_key = planted-secret\n")
	stdout, stderr, err := command(t, "check", "--config", file, "--trial")
	if err == nil || !strings.Contains(err.Error(), "3 checks failed") {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{
		"BACKEND  CHECK ", "away     answers ", "does not answer (connection refused)", "away     takes the credentials ", "skipped",
		"away     can meet the terms of contract blue   ok", "contract green: backend gone has no suspend",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is missing in\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout+stderr+err.Error(), "planted") {
		t.Error("a secret is printed")
	}
	if _, _, err := command(t, "check", "--trial"); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("a trial of nothing: %v", err)
	}
	if _, _, err := command(t, "check", "--config", "/no/such"); err == nil {
		t.Error("a configuration that is not there is checked")
	}
}
