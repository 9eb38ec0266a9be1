package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Storage is a storage service of some type that runs on this machine.
type Storage struct {
	// Type is the type of backend that speaks to it.
	Type string
	// API is where contracts and keys are administered, S3 where buckets are.
	API, S3 string
	// Secrets are what the driver administers it with; AccessKeyID is of the first, ""
	// for a token.
	AccessKeyID string
	Secrets     []string
	// Stop ends it in order. Kill ends it at once; Restart runs it again, with the same data at the same
	// addresses.
	Stop    func() error
	Kill    func()
	Restart func(context.Context) error

	section string // with $api and $s3
}

// StorageTypes are the types of services that can be started.
var StorageTypes = []string{"contractapi", "iam", "rgw", "versitygw"}

// StartStorage builds what a service needs from whatever Go has cached, and
// runs it with all that it has in dir.
func StartStorage(ctx context.Context, kind, dir string) (*Storage, error) {
	switch kind {
	case "contractapi":
		return startContractAPI(ctx, dir)
	case "iam", "versitygw":
		return startVersityGW(ctx, kind, dir)
	case "rgw":
		ceph, err := StartCeph(ctx, dir)
		if err != nil {
			return nil, err
		}
		s := CephStorage(ceph)
		s.Kill = ceph.Kill
		s.Stop = func() error { ceph.Kill(); return nil } // there is nothing to keep
		return s, nil
	}
	return nil, fmt.Errorf("there is no storage service of type %q: %q", kind, StorageTypes)
}

func startContractAPI(ctx context.Context, dir string) (*Storage, error) {
	program, err := BuildIn(ctx, dir, "cmd/contractd")
	if err != nil {
		return nil, err
	}
	b := Binaries{Contractd: program}
	c, err := StartContractd(ctx, b, dir)
	if err != nil {
		return nil, err
	}
	s := &Storage{Type: "contractapi", API: c.API, S3: c.S3, Secrets: []string{c.Token}}
	s.section = fmt.Sprintf("type: contractapi\n    contractapi: {url: $api, tokenFile: %q}", c.TokenFile)
	s.Kill = func() { c.Kill() }
	s.Stop = func() error { return c.Stop() }
	s.Restart = func(ctx context.Context) error {
		var err error
		c, err = StartContractd(ctx, b, dir, "--api-address", s.API[len("http://"):], "--s3-address", s.S3[len("http://"):])
		return err
	}
	return s, nil
}

func startVersityGW(ctx context.Context, kind, dir string) (*Storage, error) {
	program, err := BuildIn(ctx, dir, "test/versitygw")
	if err != nil {
		return nil, err
	}
	g, err := StartVersityGW(ctx, program, dir, kind == "iam")
	if err != nil {
		return nil, err
	}
	s := &Storage{Type: kind, API: g.S3, S3: g.S3, AccessKeyID: g.AccessKeyID, Secrets: []string{g.Secret}, Kill: func() { g.Kill() }, Stop: func() error { return g.Stop() }, Restart: g.Restart}
	admin := "adminURL"
	if kind == "iam" {
		s.API, admin = g.IAM, "url"
	}
	s.section = gatewaySection(kind, admin, VersityGWRegion, g.CredentialsFile)
	if kind == "iam" { // which is one process
		s.section = strings.Replace(s.section, "{", "{settleTime: 0s, ", 1)
	}
	return s, nil
}

// CephStorage is a Ceph gateway that runs.
func CephStorage(c *Ceph) *Storage {
	return &Storage{
		Type: "rgw", API: c.URL, S3: c.URL, AccessKeyID: c.AccessKeyID, Secrets: []string{c.Secret}, Kill: c.StopGateway, Restart: c.RestartGateway,
		section: gatewaySection("rgw", "adminURL", CephRegion, c.CredentialsFile),
	}
}

func gatewaySection(kind, admin, region, credentials string) string {
	return fmt.Sprintf("type: %s\n    %s: {%s: $api, endpoints: [{region: %s, url: $s3}], credentialsFile: %q}", kind, kind, admin, region, credentials)
}

// Config is a configuration with the service as backend "main", reached at the
// addresses given. Contracts is the YAML of its contracts and whatever else
// belongs to the file's top level.
func (s *Storage) Config(dir, api, s3, contracts string) string {
	return configText(dir, strings.NewReplacer("$api", api, "$s3", s3).Replace(s.section), contracts)
}

// WriteConfig writes a configuration that reaches the service directly, and
// returns where it is.
func (s *Storage) WriteConfig(dir, contracts string) (string, error) {
	file := filepath.Join(dir, "config.yaml")
	return file, os.WriteFile(file, []byte(s.Config(dir, s.API, s.S3, contracts)), 0o600)
}

// HoldTable compares a table of a page, between its marks, with what it has to
// be; with update it writes it.
func HoldTable(t testing.TB, path, text, name, table string, update bool) {
	t.Helper()
	begin := strings.Index(text, "<!-- "+name+":")
	if begin < 0 {
		t.Fatalf("%s has no mark %q", path, name)
	}
	begin += strings.Index(text[begin:], "\n") + 1
	end := begin + strings.Index(text[begin:], "<!-- end -->")
	if text[begin:end] == table {
		return
	}
	if !update {
		t.Errorf("the table %q of %s is stale, run with -update:\n%s\nwant\n%s", name, filepath.Base(path), text[begin:end], table)
		return
	}
	if err := os.WriteFile(path, []byte(text[:begin]+table+text[end:]), 0o644); err != nil {
		t.Error(err)
	}
}
