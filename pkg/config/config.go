// Package config reads the driver's one configuration file.
//
// The file is the platform engineer's side of the bargain: which services
// there are, which contracts may be used and on what terms. A class only names
// a contract, so two classes can never disagree about its terms. Secrets are
// never in the file, only the paths of files that hold them.
//
// Reading is strict. An unknown key, a bad value or a missing secret file is a
// fault, and one error names all of them with the place they stand at.
package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Config is the file.
type Config struct {
	// Driver is who this driver is.
	Driver Driver `yaml:"driver"`
	// Journal is where the driver keeps what it has made and given away.
	Journal Journal `yaml:"journal"`
	// Backends are the storage services.
	Backends []Backend `yaml:"backends"`
	// Contracts are the contracts that classes may name, with their terms.
	Contracts []Contract `yaml:"contracts"`
	// OnDemand, when given, are the terms of contracts that are not listed.
	OnDemand *OnDemand `yaml:"onDemand,omitempty"`
	// Drift is how what was made is compared with the journal.
	Drift Drift `yaml:"drift"`
}

// Driver is who this driver is.
type Driver struct {
	// Name is what DriverGetInfo answers and classes name in driverName.
	Name string `yaml:"name"`
	// Owner marks everything this driver makes. Two drivers at one service need two marks.
	Owner string `yaml:"owner"`
	// AdminSocket is where a running driver answers the commands contracts,
	// buckets, keys, audit and rotate. The default is beside a journal in a file,
	// which no other process can read; without one there is none.
	AdminSocket string `yaml:"adminSocket,omitempty"`
	// CallTimeout bounds each RPC, because the released sidecars set no deadline.
	CallTimeout time.Duration `yaml:"callTimeout"`
}

// Journal is where the driver keeps what it has made and given away.
// Exactly one place is given.
type Journal struct {
	// File is a file of its own, for a driver outside a cluster.
	File string `yaml:"file,omitempty"`
	// Secrets are Kubernetes Secrets.
	Secrets *Secrets `yaml:"secrets,omitempty"`
}

// Secrets is a journal in Kubernetes Secrets.
type Secrets struct {
	// Namespace holds them; by default the pod's own.
	Namespace string `yaml:"namespace"`
	// Kubeconfig is a file that says how the API server is reached; by default
	// the pod's service account does.
	Kubeconfig string `yaml:"kubeconfig,omitempty"`
}

// podNamespace is the file in which every pod with a service account finds the
// name of its namespace.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Contract is a contract that classes may name.
type Contract struct {
	// Name is the second part of every id; it can never change.
	Name string `yaml:"name"`
	// Terms are what is signed.
	Terms `yaml:",inline"`
}

// OnDemand are the terms of contracts that a class names and Contracts does not list.
type OnDemand struct {
	// NamePrefix limits which names are signed on demand; "" is any name.
	NamePrefix string `yaml:"namePrefix,omitempty"`
	// Terms are what is signed.
	Terms `yaml:",inline"`
}

// Terms are what a contract is signed for.
type Terms struct {
	// Listed is the name by which a class names the contract.
	Listed string `yaml:"-"`
	// Backend is the service that the contract is signed at.
	Backend string `yaml:"backend"`
	// DisplayName is shown in the service's own tools.
	DisplayName string `yaml:"displayName,omitempty"`
	// Region is where the contract's buckets live; "" leaves it to the service.
	Region string `yaml:"region,omitempty"`
	// Plan is the service's name of what is bought; "" leaves it to the service.
	Plan string `yaml:"plan,omitempty"`
	// Quota are upper bounds; an absent one is left to the plan.
	Quota Quota `yaml:"quota,omitempty"`
	// Suspend stops all use of the contract without losing anything.
	Suspend bool `yaml:"suspend,omitempty"`
	// Labels are kept with the contract at the service.
	Labels map[string]string `yaml:"labels,omitempty"`
	// AdoptBuckets lets COSI objects take on buckets of the contract that the
	// driver did not make.
	AdoptBuckets bool `yaml:"adoptBuckets,omitempty"`
	// PerBucket signs a contract of its own for each bucket whose class names
	// this one. At a service whose keys cannot be limited to a bucket that is
	// what keeps two applications apart. The terms are those of each contract.
	PerBucket bool `yaml:"perBucket,omitempty"`
	// Guard is what classes may ask for under the contract.
	Guard params.Guard `yaml:"guard,omitempty"`
	// Defaults are parameters that classes mean where they give none. A change
	// reaches the buckets that are there; keys stay as they were issued.
	Defaults params.Defaults `yaml:"defaults,omitempty"`
	// OnLastBucket says what happens when the contract's last bucket is deleted.
	OnLastBucket OnLastBucket `yaml:"onLastBucket"`
	// Drift is the contract's own mode; "" is the file's.
	Drift DriftMode `yaml:"drift,omitempty"`
}

// Quota bounds a contract.
type Quota struct {
	MaxBuckets *int64 `yaml:"maxBuckets,omitempty"`
	MaxKeys    *int64 `yaml:"maxKeys,omitempty"`
	// MaxBytes and MaxObjects are what all buckets of the contract hold together.
	MaxBytes   *int64 `yaml:"maxBytes,omitempty"`
	MaxObjects *int64 `yaml:"maxObjects,omitempty"`
}

// OnLastBucket says what happens to a contract without buckets.
type OnLastBucket string

// What happens when the last bucket goes.
const (
	// Keep: the contract goes on. The default, but for a contract per bucket.
	Keep OnLastBucket = "keep"
	// Cancel: the contract is cancelled. The default for a contract per bucket.
	Cancel OnLastBucket = "cancel"
)

// maxSocketPath is what fits into sockaddr_un.sun_path with its closing zero (unix(7)).
const maxSocketPath = 107

const defaultCallTimeout = 30 * time.Second

// Load reads and checks the file at path. The error names every fault.
func Load(file string) (*Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("configuration %s:\n%w", file, err)
	}
	return c, nil
}

// Parse reads and checks the text of a configuration, and that the files it
// names can be read. The error lists one fault a line.
func Parse(text []byte) (*Config, error) {
	c := &Config{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var faults []error
	if err := decoder.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		var several *yaml.TypeError
		if !errors.As(err, &several) {
			return nil, fmt.Errorf("  %s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		for _, text := range several.Errors {
			faults = append(faults, errors.New(plain(text)))
		}
	}
	if err := decoder.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		faults = append(faults, errors.New("there is a second YAML document; the driver reads one"))
	}
	c.setDefaults()
	faults = append(faults, c.check()...)
	if len(faults) == 0 {
		return c, nil
	}
	lines := make([]error, len(faults))
	for i, f := range faults {
		lines[i] = fmt.Errorf("  %w", f)
	}
	return nil, errors.Join(lines...)
}

var (
	unknownKey = regexp.MustCompile(`field (\S+) not found in type \S+$`)
	wrongType  = regexp.MustCompile("cannot unmarshal !!(\\w+)( `[^`]*`)? into (\\S+)$")
)

// plain says what the decoder says without Go's type names, and without the
// value: somebody may have put a secret where none belongs.
func plain(text string) string {
	text = unknownKey.ReplaceAllString(text, "key $1 is unknown here")
	return wrongType.ReplaceAllStringFunc(text, func(found string) string {
		parts := wrongType.FindStringSubmatch(found)
		kinds := map[string]string{"str": "a text", "seq": "a list", "map": "a section", "int": "a number", "float": "a number", "bool": "true or false"}
		wanted := map[string]string{"string": "a text", "int64": "a whole number", "bool": "true or false", "time.Duration": "a duration such as 30s"}[parts[3]]
		if wanted == "" {
			wanted = "a section"
			if strings.HasPrefix(parts[3], "[]") {
				wanted = "a list"
			}
		}
		return kinds[parts[1]] + " stands where " + wanted + " belongs"
	})
}

func (c *Config) setDefaults() {
	if c.Driver.CallTimeout == 0 {
		c.Driver.CallTimeout = defaultCallTimeout
	}
	if beside := c.Journal.File + ".sock"; c.Driver.AdminSocket == "" && c.Journal.File != "" && len(beside) <= maxSocketPath {
		c.Driver.AdminSocket = beside
	}
	if s := c.Journal.Secrets; s != nil && s.Namespace == "" && s.Kubeconfig == "" {
		text, _ := os.ReadFile(podNamespace) // what is missing is a fault
		s.Namespace = strings.TrimSpace(string(text))
	}
	for i := range c.Backends {
		c.Backends[i].setDefaults()
	}
	c.Drift.setDefaults()
	for i := range c.Contracts {
		c.Contracts[i].setDefaults()
	}
	if c.OnDemand != nil {
		c.OnDemand.setDefaults()
	}
}

func (t *Terms) setDefaults() {
	if t.OnLastBucket == "" {
		t.OnLastBucket = Keep
		if t.PerBucket {
			t.OnLastBucket = Cancel
		}
	}
}

// driverName is RFC 1035's preferred name syntax in lower case, the strictest
// form that any released sidecar asks for.
var driverName = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?(\.[a-z]([a-z0-9-]*[a-z0-9])?)*$`)

func (c *Config) check() []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	if n := c.Driver.Name; len(n) > 63 || !driverName.MatchString(n) {
		fault("driver.name: %q is not a DNS name of at most 63 lower-case characters whose labels begin with a letter", n)
	}
	if o := c.Driver.Owner; o == "" || len(o) > 128 || strings.TrimSpace(o) != o {
		fault("driver.owner: %q is not a mark of 1 to 128 characters; name the cluster, for example", o)
	}
	if t := c.Driver.CallTimeout; t < time.Second || t > 10*time.Minute {
		fault("driver.callTimeout: %s is not between 1s and 10m", t)
	}
	if s := c.Driver.AdminSocket; s != "" && (!path.IsAbs(s) || !strings.HasSuffix(s, ".sock") || len(s) > maxSocketPath) {
		fault("driver.adminSocket: %q is not an absolute path that ends in .sock and has at most %d characters", s, maxSocketPath)
	}
	faults = append(faults, c.Journal.check()...)
	faults = append(faults, c.Drift.check()...)

	backends := map[string]bool{}
	for i, b := range c.Backends {
		at := fmt.Sprintf("backends[%d]", i)
		if backends[b.Name] {
			fault("%s.name: %q is there twice", at, b.Name)
		}
		backends[b.Name] = true
		faults = append(faults, b.check(at)...)
	}
	if len(c.Backends) == 0 {
		fault("backends: there is none; name at least one storage service")
	}
	if len(c.Contracts) == 0 && c.OnDemand == nil {
		fault("contracts: there is none and no onDemand terms, so no class could name one")
	}

	contracts := map[string]bool{}
	for i, t := range c.Contracts {
		at := fmt.Sprintf("contracts[%d]", i)
		if !cosi.IsLabel(t.Name) {
			fault("%s.name: %q is not a DNS label of lower-case letters, digits and hyphens", at, t.Name)
		}
		if contracts[t.Name] {
			fault("%s.name: %q is there twice", at, t.Name)
		}
		contracts[t.Name] = true
		name := t.Name
		if t.PerBucket {
			name = perBucketName(t.Name, "") // the longest that is made of it
		}
		if most := cosi.MaxPrefix - 1; len(t.Backend)+len(name) > most {
			fault("%s.name: with its backend's name it has %d characters; ids leave room for %d", at, len(t.Backend)+len(name), most)
		}
		faults = append(faults, t.check(at, backends)...)
	}
	if d := c.OnDemand; d != nil {
		if d.NamePrefix != "" && !cosi.IsLabel(d.NamePrefix+"x") {
			fault("onDemand.namePrefix: %q cannot begin a contract's name", d.NamePrefix)
		}
		if d.PerBucket {
			fault("onDemand.perBucket: only a listed contract can stand for one per bucket; list it in contracts")
		}
		faults = append(faults, d.check("onDemand", backends)...)
	}
	return faults
}

func (j Journal) check() []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	switch {
	case j.File == "" && j.Secrets == nil:
		fault("journal: it has no place; give journal.file, an absolute path, or journal.secrets")
	case j.File != "" && j.Secrets != nil:
		fault("journal: it has two places; give either journal.file or journal.secrets, and move its content with journal export and import")
	case j.File != "" && !path.IsAbs(j.File):
		fault("journal.file: %q is not an absolute path", j.File)
	}
	if s := j.Secrets; s != nil {
		if s.Namespace == "" {
			fault("journal.secrets.namespace: missing; only in a pod, without a kubeconfig, is there a default")
		} else if !cosi.IsLabel(s.Namespace) {
			fault("journal.secrets.namespace: %q is not a name of a namespace", s.Namespace)
		}
		if s.Kubeconfig != "" {
			if !path.IsAbs(s.Kubeconfig) {
				fault("journal.secrets.kubeconfig: %q is not an absolute path", s.Kubeconfig)
			} else if f, err := os.Open(s.Kubeconfig); err != nil {
				fault("journal.secrets.kubeconfig: %w", err)
			} else {
				_ = f.Close()
			}
		}
	}
	return faults
}

func (t Terms) check(at string, backends map[string]bool) []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !backends[t.Backend] {
		fault("%s.backend: %q is not a backend of this file", at, t.Backend)
	}
	if t.OnLastBucket != Keep && t.OnLastBucket != Cancel {
		fault("%s.onLastBucket: %q is neither keep nor cancel", at, t.OnLastBucket)
	}
	if t.Drift != "" {
		faults = append(faults, t.Drift.check(at+".drift")...)
	}
	for name, bound := range map[string]*int64{"maxBuckets": t.Quota.MaxBuckets, "maxKeys": t.Quota.MaxKeys, "maxBytes": t.Quota.MaxBytes, "maxObjects": t.Quota.MaxObjects} {
		if bound != nil && *bound < 0 {
			fault("%s.quota.%s: %d is negative", at, name, *bound)
		}
	}
	for _, text := range t.Guard.Check(t.Defaults) {
		fault("%s.%s", at, text)
	}
	if t.PerBucket && t.Guard.MaxBuckets != nil {
		fault("%s.guard.maxBuckets: a contract of perBucket has one bucket each; leave it out", at)
	}
	if len(t.Labels) > 32 {
		fault("%s.labels: %d labels; at most 32 are allowed", at, len(t.Labels))
	}
	return faults
}

// maxSecretBytes bounds what is read from a secret's file.
const maxSecretBytes = 64 << 10

// ReadSecret reads the secret that a file holds, without the white space around it.
func ReadSecret(file string) (secret.String, error) {
	if file == "" {
		return secret.String{}, errors.New("missing")
	}
	text, err := readLimited(file)
	if err != nil {
		return secret.String{}, err
	}
	s, err := ParseSecret(text)
	if err != nil {
		err = fmt.Errorf("%s %w", file, err)
	}
	return s, err
}

// ParseSecret is the secret that a file's text is.
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

func readLimited(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxSecretBytes))
}

// Print writes the effective configuration, defaults filled in, as YAML. Of a
// secret file it tells that it was read, and nothing of what it holds.
func (c *Config) Print(w io.Writer) error {
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(c); err != nil {
		return err
	}
	for _, b := range c.Backends {
		files := b.sections()[b.Type].secrets()
		for _, what := range slices.Sorted(maps.Keys(files)) {
			if _, err := fmt.Fprintf(w, "# backend %s: %s read from %s: %s\n", b.Name, what, files[what], secret.String{}); err != nil {
				return err
			}
		}
	}
	return encoder.Close()
}

// perBucketName is the name of the contract that a bucket has to itself, a pure
// function of the two names.
func perBucketName(contract, bucket string) string {
	sum := sha256.Sum256([]byte(bucket))
	return contract + "-" + hex.EncodeToString(sum[:perBucketBytes])
}

// perBucketBytes of a hash keep the contracts of 10,000 buckets apart but for
// one chance in a hundred thousand million.
const perBucketBytes = 8

// ContractFor is the contract that a bucket of this name belongs under: the one
// that its class names, or one of the bucket's own.
func (t Terms) ContractFor(bucket string) string {
	if t.PerBucket {
		return perBucketName(t.Listed, bucket)
	}
	return t.Listed
}

var perBucketSuffix = regexp.MustCompile(fmt.Sprintf(`^-[0-9a-f]{%d}$`, 2*perBucketBytes))

// Terms returns what a contract of this name is signed for; false if there is
// no such contract. A contract that one bucket has to itself goes by the terms
// of the one that its class names.
func (c *Config) Terms(name string) (Terms, bool) {
	for _, t := range c.Contracts {
		suffix, ok := strings.CutPrefix(name, t.Name)
		if ok && (suffix == "" || t.PerBucket && perBucketSuffix.MatchString(suffix)) {
			t.Listed = t.Name
			return t.Terms, true
		}
	}
	if d := c.OnDemand; d != nil && strings.HasPrefix(name, d.NamePrefix) && len(d.Backend)+1+len(name) <= cosi.MaxPrefix {
		terms := d.Terms
		terms.Listed = name
		return terms, true
	}
	return Terms{}, false
}
