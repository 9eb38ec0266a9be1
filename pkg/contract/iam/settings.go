package iam

import (
	"cmp"
	"context"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/pkg/reload"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
)

// Settings reach a service that speaks AWS's IAM API, and say how it differs.
type Settings struct {
	// URL is the IAM API's address.
	URL string `yaml:"url" jsonschema:"required,pattern=^https?://"`
	// Region is what calls of the IAM API are signed for; us-east-1 by default.
	Region string `yaml:"region,omitempty"`
	// Endpoints are where S3 is served, the default one first.
	Endpoints contract.Endpoints `yaml:"endpoints" jsonschema:"required,minItems=1"`
	// CredentialsFile holds the key that administers the account.
	CredentialsFile string `yaml:"credentialsFile,omitempty"`
	// CredentialsDir, in its place, has a file for each contract, named as it: a
	// contract is then an account of its own.
	CredentialsDir string `yaml:"credentialsDir,omitempty"`
	// WebIdentity, in place of both, is a role that the driver assumes.
	WebIdentity *WebIdentity `yaml:"webIdentity,omitempty"`
	// PodIdentity, in their place, is the role of the driver's ServiceAccount.
	PodIdentity *PodIdentity `yaml:"podIdentity,omitempty"`
	// InstanceProfile, in their place, is the role of the driver's machine.
	InstanceProfile *InstanceProfile `yaml:"instanceProfile,omitempty"`
	// Path begins the paths of all IAM users; /contract-cosi/ by default.
	Path string `yaml:"path,omitempty"`
	// PermissionsBoundary is the ARN of a policy that bounds every user.
	PermissionsBoundary string `yaml:"permissionsBoundary,omitempty"`
	// SettleTime is how long the service needs until a change holds everywhere. With 0s
	// no fresh key is tried before it is handed out.
	SettleTime *time.Duration `yaml:"settleTime,omitempty"`
	// MaxKeys is how many keys a user can have; 2 by default.
	MaxKeys int `yaml:"maxKeys,omitempty" jsonschema:"minimum=0"`
	// MaxPolicyBytes is the longest inline policy of a user; 2048 by default.
	MaxPolicyBytes int `yaml:"maxPolicyBytes,omitempty" jsonschema:"minimum=0"`
	// Dialect is how policies are written, where it is not as at AWS.
	Dialect Dialect `yaml:"dialect,omitempty"`
}

// Dialect is how a service writes policies. What is absent is as at AWS; "none"
// is for a condition that the service does not have.
type Dialect struct {
	// Version is the policy language's: 2012-10-17.
	Version string `yaml:"version,omitempty"`
	// ActionPrefix begins every action: "s3:".
	ActionPrefix string `yaml:"actionPrefix,omitempty"`
	// ResourcePrefix begins every resource: "arn:aws:s3:::".
	ResourcePrefix string `yaml:"resourcePrefix,omitempty"`
	// SourceAddressKey is the condition key for addresses: aws:SourceIp.
	SourceAddressKey string `yaml:"sourceAddressKey,omitempty"`
	// PrefixKey is the condition key for a listing's prefix: s3:prefix.
	PrefixKey string `yaml:"prefixKey,omitempty"`
}

// Load implements contract.Settings.
func (s *Settings) Load(from settings.Section) {
	from.Decode(s)
	aws := policy.AWS()
	s.Region = cmp.Or(s.Region, "us-east-1")
	s.Path = cmp.Or(s.Path, "/contract-cosi/")
	s.MaxKeys = cmp.Or(s.MaxKeys, 2)
	s.MaxPolicyBytes = cmp.Or(s.MaxPolicyBytes, 2048)
	d := &s.Dialect
	d.Version = cmp.Or(d.Version, aws.Version)
	d.ActionPrefix = cmp.Or(d.ActionPrefix, aws.ActionPrefix)
	d.ResourcePrefix = cmp.Or(d.ResourcePrefix, aws.ResourcePrefix)
	d.SourceAddressKey = cmp.Or(d.SourceAddressKey, aws.SourceAddressKey)
	d.PrefixKey = cmp.Or(d.PrefixKey, aws.PrefixKey)

	from.At("url").URL(s.URL)
	s.Endpoints.Check(from.At("endpoints"))
	dir := from.At("credentialsDir")
	roles := s.roles()
	given := len(roles)
	for _, file := range []string{s.CredentialsFile, s.CredentialsDir} {
		if file != "" {
			given++
		}
	}
	switch {
	case given != 1:
		from.Faultf("give one of credentialsFile, for one account, webIdentity, podIdentity and instanceProfile, for one account without a stored key, and credentialsDir, for an account per contract")
	case s.CredentialsFile != "":
		from.At("credentialsFile").KeyPair(s.CredentialsFile)
	case len(roles) > 0:
		for name, r := range roles {
			r.check(from.At(name))
		}
	default:
		for _, name := range s.Accounts() {
			dir.KeyPair(filepath.Join(s.CredentialsDir, name))
		}
		if _, err := os.ReadDir(s.CredentialsDir); err != nil {
			dir.Faultf("%w", err)
		}
	}
	if clean := path.Clean("/"+s.Path) + "/"; s.Path != clean || s.Path == "//" || len(s.Path) > 256 {
		from.At("path").Faultf("%q does not begin and end with a slash, or is / alone", s.Path)
	}
	if s.MaxKeys < 1 {
		from.At("maxKeys").Faultf("%d is not a number of keys from 1", s.MaxKeys)
	}
	if s.MaxPolicyBytes < 256 {
		from.At("maxPolicyBytes").Faultf("%d is less than the 256 that a policy needs", s.MaxPolicyBytes)
	}
	from.At("settleTime").Between(s.settles(), 0, contract.MaxSettleTime)
}

func (s *Settings) settles() time.Duration {
	if s.SettleTime == nil {
		return 0
	}
	return *s.SettleTime
}

// roles are those that are given, by their names in the settings.
func (s *Settings) roles() map[string]role {
	out := map[string]role{}
	if s.WebIdentity != nil {
		out["webIdentity"] = s.WebIdentity
	}
	if s.PodIdentity != nil {
		out["podIdentity"] = s.PodIdentity
	}
	if s.InstanceProfile != nil {
		out["instanceProfile"] = s.InstanceProfile
	}
	return out
}

// Secrets implements contract.Settings.
func (s *Settings) Secrets() map[string]string {
	if s.CredentialsFile != "" {
		return map[string]string{"credentials": s.CredentialsFile}
	}
	out := map[string]string{}
	for _, r := range s.roles() {
		if file := r.token(); file != "" {
			out["token of the role"] = file
		}
	}
	for _, name := range s.Accounts() {
		out["credentials of contract "+name] = filepath.Join(s.CredentialsDir, name)
	}
	return out
}

// Accounts are the contracts that credentialsDir has a file for, as of now; none
// without it. Files of other names, which Kubernetes mounts beside them, are no
// accounts.
func (s *Settings) Accounts() []string {
	entries, err := os.ReadDir(s.CredentialsDir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if cosi.IsLabel(e.Name()) && !e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out
}

// Open implements contract.Settings.
func (s *Settings) Open(p contract.Parts) (contract.Provider, error) {
	known := func(key string) string {
		if key == "none" {
			return ""
		}
		return key
	}
	c := Config{
		Accounts: func() []string { return []string{""} },
		URL:      s.URL, Region: s.Region, Endpoints: s.Endpoints.Storage(), Path: s.Path, PermissionsBoundary: s.PermissionsBoundary,
		Dialect: policy.Dialect{
			Version: s.Dialect.Version, ActionPrefix: s.Dialect.ActionPrefix, ResourcePrefix: s.Dialect.ResourcePrefix,
			SourceAddressKey: known(s.Dialect.SourceAddressKey), PrefixKey: known(s.Dialect.PrefixKey),
		},
		MaxPolicyBytes: s.MaxPolicyBytes, MaxKeys: s.MaxKeys, Settles: s.settles(), AtOnce: s.SettleTime != nil && *s.SettleTime == 0, HTTP: p.HTTP, Observe: p.Observe,
	}
	if s.CredentialsDir != "" {
		ring := &keyRing{dir: s.CredentialsDir, changed: p.Changed("credentials"), keys: map[string]*reload.File[secret.KeyPair]{}}
		c.Credentials, c.Accounts = ring.of, s.Accounts
		return New(c), nil
	}
	for _, r := range s.roles() {
		c.Credentials = r.credentials(s.Region, p)
		return New(c), nil
	}
	key, err := settings.OpenKeyPair(s.CredentialsFile, p.Changed("credentials"))
	if err != nil {
		return nil, err
	}
	c.Credentials = func(context.Context, string) (secret.KeyPair, error) { return key.Get(), nil }
	return New(c), nil
}

// keyRing holds the credentials of contracts that have an account each. A file
// that is put there later is found when its contract is asked for.
type keyRing struct {
	dir     string
	changed func(error)

	mu   sync.Mutex
	keys map[string]*reload.File[secret.KeyPair]
}

func (k *keyRing) of(_ context.Context, name string) (secret.KeyPair, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys[name] == nil {
		key, err := settings.OpenKeyPair(filepath.Join(k.dir, name), k.changed)
		if err != nil {
			return secret.KeyPair{}, fault.Wrap(fault.FailedPrecondition, err, "there are no credentials for contract %s; put them into a file of its name in the backend's credentialsDir", name)
		}
		k.keys[name] = key
	}
	return k.keys[name].Get(), nil
}
