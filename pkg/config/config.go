// Package config reads the driver's one configuration file.
//
// The file is the platform engineer's side of the bargain: which services
// there are, which contracts may be used and on what terms. A class only names
// a contract, so two classes can never disagree about its terms. Secrets are
// never in the file, only the paths of files that hold them.
//
// Reading is strict: see pkg/settings. How a service is reached is a section of
// its backend that the provider reads, so [Types] are all that is known here of
// providers.
package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
)

// Config is the file.
type Config struct {
	// Driver is who this driver is.
	Driver Driver `yaml:"driver" jsonschema:"required"`
	// Journal is where the driver keeps what it has made and given away.
	Journal Journal `yaml:"journal" jsonschema:"required"`
	// Backends are the storage services.
	Backends []Backend `yaml:"backends" jsonschema:"required,minItems=1"`
	// Contracts are the contracts that classes may name, with their terms.
	Contracts []Contract `yaml:"contracts"`
	// OnDemand, when given, are the terms of contracts that are not listed.
	OnDemand *OnDemand `yaml:"onDemand,omitempty"`
	// Drift is how what was made is compared with the journal.
	Drift Drift `yaml:"drift"`
	// COSI is how sidecars call.
	COSI COSI `yaml:"cosi"`
	// Objects, when given, are contracts that are ordered in the cluster, as objects of
	// the types ContractClass and Contract. It goes with a journal in Secrets.
	Objects *Objects `yaml:"objects,omitempty"`
	// Tracing, when given, is where traces of calls go.
	Tracing *Tracing `yaml:"tracing,omitempty"`
	// ApplicationSecrets, when given, lets the driver write keys into the Secrets of
	// applications, which keyRotation and secretFormat need. It goes with a journal in
	// Secrets.
	ApplicationSecrets *ApplicationSecrets `yaml:"applicationSecrets,omitempty"`
}

// ApplicationSecrets are the Secrets that sidecars have written for BucketAccesses.
type ApplicationSecrets struct {
	// Namespaces are those in which the driver may read and write Secrets; none is all
	// of them.
	Namespaces []string `yaml:"namespaces,omitempty" jsonschema:"pattern=^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"`
	// Socket is where the command deliver writes them under an account of its own. The
	// driver then needs no right to them, and the namespaces are the command's.
	Socket string `yaml:"socket,omitempty"`
}

// Objects are contracts that are ordered in the cluster.
type Objects struct {
	// ChangesPerSecond is at how many contracts a second a change of their
	// ContractClass arrives; 50 by default. A Contract's own change arrives at once.
	ChangesPerSecond int `yaml:"changesPerSecond" jsonschema:"minimum=0,maximum=10000"`
}

// COSI is how sidecars call.
type COSI struct {
	// Generation is the state of upstream's v1alpha2 that the sidecar is built from,
	// by the names in proto-docs/v1alpha2.md. By default, auto, each call tells. With
	// another value a bucket's name is never taken for an id, nor an id for a name.
	Generation Generation `yaml:"generation" jsonschema:"enum=auto,enum=A,enum=B1,enum=B2,enum=C1,enum=C2"`
}

// Generation is a state that upstream's v1alpha2 has been in.
type Generation string

// Auto is the generation that each call tells.
const Auto Generation = "auto"

func (g Generation) check(at settings.Section) {
	if !slices.Contains([]Generation{Auto, "A", "B1", "B2", "C1", "C2"}, g) {
		at.Faultf("%q is none of auto, A, B1, B2, C1 and C2", g)
	}
}

// Driver is who this driver is.
type Driver struct {
	// Name is what DriverGetInfo answers and classes name in driverName.
	Name string `yaml:"name" jsonschema:"required,maxLength=63,pattern=^[a-z]([a-z0-9-]*[a-z0-9])?(\\.[a-z]([a-z0-9-]*[a-z0-9])?)*$"`
	// Owner marks everything this driver makes. Two drivers at one service need two marks.
	Owner string `yaml:"owner" jsonschema:"required,maxLength=128"`
	// TakesOver are identities of journals that are lost: the contracts that drivers with the same owner signed with them are this one's.
	TakesOver []string `yaml:"takesOver,omitempty" jsonschema:"pattern=^[0-9a-f]{16}$"`
	// AdminSocket is where a running driver answers the commands that ask it, such
	// as keys and revoke. The default is beside a journal in a file, which no other
	// process can read; without one there is none.
	AdminSocket string `yaml:"adminSocket,omitempty"`
	// CallTimeout bounds each RPC, because the released sidecars set no deadline;
	// 30s by default.
	CallTimeout time.Duration `yaml:"callTimeout"`
	// Events tells a team of calls for its claims that fail, by an Event on the
	// BucketClaim or BucketAccess. It goes with a journal in Secrets.
	Events bool `yaml:"events,omitempty"`
}

// Journal is where the driver keeps what it has made and given away.
// Exactly one place is given.
type Journal struct {
	// File is a file of its own, for a driver outside a cluster.
	File string `yaml:"file,omitempty"`
	// KeyFile encrypts it: a file of keys, one of 32 bytes in base64 a line. The first
	// encrypts, the others are for what was encrypted before.
	KeyFile string `yaml:"keyFile,omitempty"`
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
	Name string `yaml:"name" jsonschema:"required,pattern=^[a-z0-9]([a-z0-9-]*[a-z0-9])?$,maxLength=63"`
	// Terms are what is signed.
	Terms `yaml:",inline"`
}

// OnDemand are the terms of contracts that a class names and Contracts does not list.
type OnDemand struct {
	// NamePrefix limits which names are signed on demand; by default any is.
	NamePrefix string `yaml:"namePrefix,omitempty"`
	// Terms are what is signed.
	Terms `yaml:",inline"`
}

// Terms are what a contract is signed for.
type Terms struct {
	// Listed is the name by which a class names the contract.
	Listed string `yaml:"-"`
	// Namespace is the only one whose claims may have buckets under the contract; ""
	// is any.
	Namespace string `yaml:"-"`
	// Backend is the service that the contract is signed at.
	Backend string `yaml:"backend" jsonschema:"required"`
	// DisplayName is shown in the service's own tools.
	DisplayName string `yaml:"displayName,omitempty"`
	// Region is where the contract's buckets live; by default the service says.
	Region string `yaml:"region,omitempty"`
	// Plan is the service's name of what is bought; by default the service says.
	Plan string `yaml:"plan,omitempty"`
	// Quota are upper bounds; an absent one is left to the plan.
	Quota Quota `yaml:"quota,omitempty"`
	// Suspend stops all use of the contract without losing anything.
	Suspend bool `yaml:"suspend,omitempty"`
	// Labels are kept with the contract at the service.
	Labels map[string]string `yaml:"labels,omitempty" jsonschema:"maxProperties=32"`
	// AdoptBuckets lets COSI objects adopt buckets of the contract that the driver
	// did not create.
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
	// OnLastBucket says what happens when the contract's last bucket is deleted:
	// keep, the default, or cancel, which is the default for a contract per bucket.
	OnLastBucket OnLastBucket `yaml:"onLastBucket"`
	// Drift is the contract's own mode; by default the file's.
	Drift DriftMode `yaml:"drift,omitempty"`
}

// Quota bounds a contract.
type Quota struct {
	// MaxBuckets and MaxKeys are how many there may be.
	MaxBuckets *int64 `yaml:"maxBuckets,omitempty" jsonschema:"minimum=0"`
	MaxKeys    *int64 `yaml:"maxKeys,omitempty" jsonschema:"minimum=0"`
	// MaxBytes and MaxObjects are what all buckets of the contract hold together.
	MaxBytes   *int64 `yaml:"maxBytes,omitempty" jsonschema:"minimum=0"`
	MaxObjects *int64 `yaml:"maxObjects,omitempty" jsonschema:"minimum=0"`
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

func checkSocket(at settings.Section, s string) {
	if s != "" && (!path.IsAbs(s) || !strings.HasSuffix(s, ".sock") || len(s) > maxSocketPath) {
		at.Faultf("%q is not an absolute path that ends in .sock and has at most %d characters", s, maxSocketPath)
	}
}

// Load reads and checks the file at path. The error names every fault.
func Load(file string, types Types) (*Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c, err := Parse(text, types)
	if err != nil {
		return nil, fmt.Errorf("configuration %s:\n%w", file, err)
	}
	return c, nil
}

// Parse reads and checks the text of a configuration, and that the files it
// names can be read. The error lists one fault a line.
func Parse(text []byte, types Types) (*Config, error) {
	c := &Config{}
	file, err := settings.Read(text, c)
	if err != nil {
		return nil, err
	}
	c.setDefaults()
	for i := range c.Backends {
		c.Backends[i].load(file.At("backends", i), types)
	}
	c.check(file)
	if err := file.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Config) setDefaults() {
	c.Driver.CallTimeout = cmp.Or(c.Driver.CallTimeout, 30*time.Second)
	if beside := c.Journal.File + ".sock"; c.Driver.AdminSocket == "" && c.Journal.File != "" && len(beside) <= maxSocketPath {
		c.Driver.AdminSocket = beside
	}
	if s := c.Journal.Secrets; s != nil && s.Namespace == "" && s.Kubeconfig == "" {
		text, _ := os.ReadFile(podNamespace) // what is missing is a fault
		s.Namespace = strings.TrimSpace(string(text))
	}
	c.Drift.setDefaults()
	if c.Objects != nil {
		c.Objects.ChangesPerSecond = cmp.Or(c.Objects.ChangesPerSecond, 50)
	}
	if t := c.Tracing; t != nil && t.Ratio == nil {
		t.Ratio = new(1.0)
	}
	c.COSI.Generation = cmp.Or(c.COSI.Generation, Auto)
	for i := range c.Contracts {
		c.Contracts[i].setDefaults()
	}
	if c.OnDemand != nil {
		c.OnDemand.setDefaults()
	}
}

func (t *Terms) setDefaults() {
	if t.Drift == unquoted {
		t.Drift = DriftOff
	}
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

func (c *Config) check(file settings.Section) {
	at := file.At("driver")
	if n := c.Driver.Name; len(n) > 63 || !driverName.MatchString(n) {
		at.At("name").Faultf("%q is not a DNS name of at most 63 lower-case characters whose labels begin with a letter", n)
	}
	if o := c.Driver.Owner; o == "" || len(o) > 128 || strings.TrimSpace(o) != o {
		at.At("owner").Faultf("%q is not a mark of 1 to 128 characters; name the cluster, for example", o)
	}
	for i, s := range c.Driver.TakesOver {
		if !cosi.IsIdentity(s) {
			at.At("takesOver", i).Faultf("%q is not the identity of a journal, which has %d digits and letters from a to f; the refusal of a contract names it", s, 2*cosi.IdentityBytes)
		}
	}
	at.At("callTimeout").Between(c.Driver.CallTimeout, time.Second, 10*time.Minute)
	checkSocket(at.At("adminSocket"), c.Driver.AdminSocket)
	if c.Driver.Events && c.Journal.Secrets == nil {
		at.At("events").Faultf("the driver has no API server to make Events at; keep the journal in journal.secrets")
	}
	c.Journal.check(file.At("journal"))
	c.Drift.check(file.At("drift"))
	c.COSI.Generation.check(file.At("cosi", "generation"))

	var backends []string
	for i, b := range c.Backends {
		if slices.Contains(backends, b.Name) {
			file.At("backends", i, "name").Faultf("%q is there twice", b.Name)
		}
		backends = append(backends, b.Name)
	}
	if len(backends) == 0 {
		file.At("backends").Faultf("there is none; name at least one storage service")
	}
	if len(c.Contracts) == 0 && c.OnDemand == nil && c.Objects == nil {
		file.At("contracts").Faultf("there is none, no onDemand terms and no objects, so no class could name one")
	}
	if o := c.Objects; o != nil {
		if c.Journal.Secrets == nil {
			file.At("objects").Faultf("the driver has no API server to read them at; keep the journal in journal.secrets")
		}
		if n := o.ChangesPerSecond; n < 1 || n > 10_000 {
			file.At("objects", "changesPerSecond").Faultf("%d is not between 1 and 10000", n)
		}
	}

	if t := c.Tracing; t != nil {
		t.check(file.At("tracing"))
	}
	if a := c.ApplicationSecrets; a != nil {
		if c.Journal.Secrets == nil {
			file.At("applicationSecrets").Faultf("the driver has no API server to write them at; keep the journal in journal.secrets")
		}
		checkSocket(file.At("applicationSecrets", "socket"), a.Socket)
		if a.Socket != "" && len(a.Namespaces) > 0 {
			file.At("applicationSecrets").Faultf("with a socket, the namespaces are given to the command deliver")
		}
		for i, n := range a.Namespaces {
			if !cosi.IsLabel(n) {
				file.At("applicationSecrets", "namespaces", i).Faultf("%q is not the name of a namespace", n)
			}
		}
	}

	contracts := map[string]bool{}
	for i, t := range c.Contracts {
		at := file.At("contracts", i)
		if !cosi.IsLabel(t.Name) {
			at.At("name").Faultf("%q is not a DNS label of lower-case letters, digits and hyphens", t.Name)
		}
		if contracts[t.Name] {
			at.At("name").Faultf("%q is there twice", t.Name)
		}
		contracts[t.Name] = true
		name := t.Name
		if t.PerBucket {
			name = perBucketName(t.Name, "") // the longest that is made of it
		}
		if most := cosi.MaxPrefix - 1; len(t.Backend)+len(name) > most {
			at.At("name").Faultf("with its backend's name it has %d characters; ids leave room for %d", len(t.Backend)+len(name), most)
		}
		t.check(at, backends)
	}
	if d := c.OnDemand; d != nil {
		at := file.At("onDemand")
		if d.NamePrefix != "" && !cosi.IsLabel(d.NamePrefix+"x") {
			at.At("namePrefix").Faultf("%q cannot begin a contract's name", d.NamePrefix)
		}
		if d.PerBucket {
			at.At("perBucket").Faultf("only a listed contract can stand for one per bucket; list it in contracts")
		}
		d.check(at, backends)
	}
}

func (j Journal) check(at settings.Section) {
	switch {
	case j.File == "" && j.Secrets == nil:
		at.Faultf("it has no place; give journal.file, an absolute path, or journal.secrets")
	case j.File != "" && j.Secrets != nil:
		at.Faultf("it has two places; give either journal.file or journal.secrets, and move its content with journal export and import")
	case j.File != "" && !path.IsAbs(j.File):
		at.At("file").Faultf("%q is not an absolute path", j.File)
	}
	switch key := at.At("keyFile"); {
	case j.KeyFile == "":
	case j.Secrets != nil:
		key.Faultf("it is for journal.file; Kubernetes encrypts Secrets by its EncryptionConfiguration")
	case !path.IsAbs(j.KeyFile):
		key.Faultf("%q is not an absolute path", j.KeyFile)
	default:
		if _, err := os.ReadFile(j.KeyFile); err != nil {
			key.Faultf("%w", err)
		}
	}
	s := j.Secrets
	if s == nil {
		return
	}
	switch namespace := at.At("secrets", "namespace"); {
	case s.Namespace == "":
		namespace.Faultf("missing; only in a pod, without a kubeconfig, is there a default")
	case !cosi.IsLabel(s.Namespace):
		namespace.Faultf("%q is not a name of a namespace", s.Namespace)
	}
	if s.Kubeconfig == "" {
		return
	}
	kubeconfig := at.At("secrets", "kubeconfig")
	if !path.IsAbs(s.Kubeconfig) {
		kubeconfig.Faultf("%q is not an absolute path", s.Kubeconfig)
	} else if _, err := os.ReadFile(s.Kubeconfig); err != nil {
		kubeconfig.Faultf("%w", err)
	}
}

func (t Terms) check(at settings.Section, backends []string) {
	if !slices.Contains(backends, t.Backend) {
		at.At("backend").Faultf("%q is no backend of this file; %s", t.Backend, settings.Suggest(t.Backend, backends))
	}
	if t.OnLastBucket != Keep && t.OnLastBucket != Cancel {
		at.At("onLastBucket").Faultf("%q is neither keep nor cancel", t.OnLastBucket)
	}
	if t.Drift != "" {
		t.Drift.check(at.At("drift"))
	}
	for name, bound := range map[string]*int64{"maxBuckets": t.Quota.MaxBuckets, "maxKeys": t.Quota.MaxKeys, "maxBytes": t.Quota.MaxBytes, "maxObjects": t.Quota.MaxObjects} {
		if bound != nil && *bound < 0 {
			at.At("quota", name).Faultf("%d is negative", *bound)
		}
	}
	for _, text := range t.Guard.Check(t.Defaults) {
		place, why, _ := strings.Cut(text, ": ")
		section, key, _ := strings.Cut(place, ".")
		at.At(section, key).Faultf("%s", why)
	}
	if t.PerBucket && t.Guard.MaxBuckets != nil {
		at.At("guard", "maxBuckets").Faultf("a contract of perBucket has one bucket each; leave it out")
	}
	if len(t.Labels) > 32 {
		at.At("labels").Faultf("%d labels; at most 32 are allowed", len(t.Labels))
	}
}

// Faults are what is wrong with terms that no file has, one line each, at these
// backends.
func (t Terms) Faults(backends []string) []string {
	section, err := settings.Read(nil, &struct{}{})
	if err != nil {
		return []string{err.Error()}
	}
	t.check(section, backends)
	if err := section.Err(); err != nil {
		lines := strings.Split(err.Error(), "\n")
		for i, line := range lines {
			lines[i] = strings.TrimSpace(line)
		}
		return lines
	}
	return nil
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
		files := b.Settings.Secrets()
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
	if terms, ok := c.Listed(name); ok {
		return terms, true
	}
	if d := c.OnDemand; d != nil && strings.HasPrefix(name, d.NamePrefix) && len(d.Backend)+1+len(name) <= cosi.MaxPrefix {
		terms := d.Terms
		terms.Listed = name
		return terms, true
	}
	return Terms{}, false
}

// Listed is Terms without those on demand.
func (c *Config) Listed(name string) (Terms, bool) {
	for _, t := range c.Contracts {
		suffix, ok := strings.CutPrefix(name, t.Name)
		if ok && (suffix == "" || t.PerBucket && perBucketSuffix.MatchString(suffix)) {
			t.Listed = t.Name
			return t.Terms, true
		}
	}
	return Terms{}, false
}
