package sanity

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Config is what a run has to be told. The zero value of every field but
// Endpoint works; what a check needs and is not given, it reports.
type Config struct {
	// Endpoint is the driver's socket, unix:///path.sock.
	Endpoint string `yaml:"endpoint"`
	// Versions narrows the run; by default it covers what the socket serves.
	Versions []Version `yaml:"versions"`
	// Generations are those of v1alpha2 to judge; by default the oldest and the
	// newest that the driver's methods show.
	Generations []Generation `yaml:"generations"`

	// BucketParameters and AccessParameters are those of a class that works.
	BucketParameters map[string]string `yaml:"bucketParameters"`
	AccessParameters map[string]string `yaml:"accessParameters"`
	// The others are valid as well, but a bucket or an access made with the
	// first set is not compatible with them.
	OtherBucketParameters map[string]string `yaml:"otherBucketParameters"`
	OtherAccessParameters map[string]string `yaml:"otherAccessParameters"`
	// ReadOnlyParameters and WriteOnlyParameters are access parameters that ask
	// for such a key in v1alpha1, which has no field for it.
	ReadOnlyParameters  map[string]string `yaml:"readOnlyParameters"`
	WriteOnlyParameters map[string]string `yaml:"writeOnlyParameters"`

	// S3 tells how issued keys are tried.
	S3 S3 `yaml:"s3"`

	// Repeat is how often a call that has to be idempotent is made; 3 by default.
	Repeat int `yaml:"repeat"`
	// Concurrency is how many callers there are at once; 50 by default.
	Concurrency int `yaml:"concurrency"`
	// CallTimeout is when a call without an answer counts as hung; 30s by default.
	CallTimeout time.Duration `yaml:"callTimeout"`
	// Settle is how long the driver may ask for a repetition (ABORTED,
	// UNAVAILABLE, RESOURCE_EXHAUSTED), and how long the object store may take
	// to notice a key that was given or taken away; 10s by default.
	Settle time.Duration `yaml:"settle"`

	// Inventory is a shell command that prints what the service holds, one thing a
	// line: buckets, users, keys. It runs before and after; what is new then was
	// left behind.
	Inventory string `yaml:"inventory"`
	// Objects is a shell command that makes the Bucket objects which a driver
	// reads: it is called with "apply" or "delete" as its first argument, and a
	// manifest at its standard input, as in kubectl "$1" -f -.
	Objects string `yaml:"bucketObjects"`
	// Restart is a shell command that restarts the driver and ends. It is run
	// for T05, and after a call that the driver does not come back from.
	Restart string `yaml:"restart"`
	// Baseline are findings that are known, and do not fail a run.
	Baseline Baseline `yaml:"-"`

	// Run and Skip select checks by number, by the letter of a group or by name.
	Run  []string `yaml:"run"`
	Skip []string `yaml:"skip"`
	// Strict takes a SHOULD for a MUST.
	Strict bool `yaml:"strict"`

	clock clock // by default the wall clock
}

// S3 is how the suite reaches the object store.
type S3 struct {
	// Enabled lets the suite use issued keys, which makes objects for a moment.
	Enabled bool `yaml:"enabled"`
	// Endpoint replaces the address that the driver gives, for a machine that
	// reaches the store otherwise than the workloads do.
	Endpoint string `yaml:"endpoint"`
	// CAFile is a PEM file of the authorities that the endpoint is trusted by.
	CAFile string `yaml:"caFile"`
	// Region is what is signed for, in place of what the driver answers; where it
	// answers none, us-east-1.
	Region string `yaml:"region"`
	// Addressing is "path" or "virtual"; by default v1alpha2 does as the driver
	// says, and v1alpha1, which does not say, uses the path.
	Addressing string `yaml:"addressing"`
}

// Load reads a configuration file into c. Unknown keys are refused.
func (c *Config) Load(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", file, err)
	}
	if c.S3.CAFile != "" && !filepath.IsAbs(c.S3.CAFile) {
		c.S3.CAFile = filepath.Join(filepath.Dir(file), c.S3.CAFile)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Repeat == 0 {
		c.Repeat = 3
	}
	if c.Concurrency == 0 {
		c.Concurrency = 50
	}
	if c.CallTimeout == 0 {
		c.CallTimeout = 30 * time.Second
	}
	if c.Settle == 0 {
		c.Settle = 10 * time.Second
	}
	if c.clock == nil {
		c.clock = wallClock{}
	}
	return c
}

// Validate names every fault of the configuration.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if path, ok := strings.CutPrefix(c.Endpoint, "unix://"); !ok || !filepath.IsAbs(path) {
		fault("endpoint %q is not unix:///absolute/path.sock", c.Endpoint)
	}
	for _, v := range c.Versions {
		if !slices.Contains(Versions(), v) {
			fault("versions: %q is none of %v", v, Versions())
		}
	}
	for _, g := range c.Generations {
		if !slices.Contains(Generations(), g) {
			fault("generations: %q is none of %v", g, Generations())
		}
	}
	if c.Repeat < 2 {
		fault("repeat: %d is not 2 or more", c.Repeat)
	}
	if c.Concurrency < 2 {
		fault("concurrency: %d is not 2 or more", c.Concurrency)
	}
	if c.CallTimeout < 0 || c.Settle < 0 {
		fault("callTimeout and settle cannot be negative")
	}
	if u, err := url.Parse(c.S3.Endpoint); c.S3.Endpoint != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		fault("s3.endpoint: %q is not http://host or https://host", c.S3.Endpoint)
	}
	if !slices.Contains([]string{"", "path", "virtual"}, c.S3.Addressing) {
		fault("s3.addressing: %q is neither path nor virtual", c.S3.Addressing)
	}
	if _, err := c.S3.authorities(); err != nil {
		fault("s3.caFile: %w", err)
	}
	if !c.S3.Enabled && c.S3 != (S3{}) {
		fault("s3: settings are given, and enabled is not")
	}
	checks := Checks()
	for _, selector := range slices.Concat(c.Run, c.Skip) {
		if !slices.ContainsFunc(checks, func(check Check) bool { return check.is(selector) }) {
			fault("no check is called %q", selector)
		}
	}
	return errors.Join(errs...)
}

// authorities are the ones of CAFile; nil leaves it to the system.
func (s S3) authorities() (*x509.CertPool, error) {
	if s.CAFile == "" {
		return nil, nil
	}
	text, err := os.ReadFile(s.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no PEM certificate", s.CAFile)
	}
	return pool, nil
}
