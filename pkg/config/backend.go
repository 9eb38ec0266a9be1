package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// Backend is one storage service.
type Backend struct {
	// Name is the first part of every id; it can never change.
	Name string `yaml:"name"`
	// Type says how to speak to the service: contractapi, iam, rgw or versitygw.
	// The section of that name configures it.
	Type string `yaml:"type"`
	// Connection says how the service is reached, whatever its type.
	Connection Connection `yaml:"connection,omitempty"`
	// DeletionsPerSecond bounds how many objects a second are deleted at the
	// service while buckets are emptied, all buckets together.
	DeletionsPerSecond int `yaml:"deletionsPerSecond"`
	// ContractAPI configures type contractapi.
	ContractAPI *ContractAPI `yaml:"contractapi,omitempty"`
	// IAM configures type iam.
	IAM *IAM `yaml:"iam,omitempty"`
	// RGW configures type rgw.
	RGW *RGW `yaml:"rgw,omitempty"`
	// VersityGW configures type versitygw.
	VersityGW *Gateway `yaml:"versitygw,omitempty"`
}

// defaultDeletions is more than most services delete in a second, and bounds
// what the driver takes of those that delete more.
const defaultDeletions = 20_000

// The types of backends.
const (
	TypeContractAPI = "contractapi"
	TypeIAM         = "iam"
	TypeRGW         = "rgw"
	TypeVersityGW   = "versitygw"
)

// Connection says how a service is reached. Its files are read again when they
// change.
type Connection struct {
	// CAFile holds the CAs, as PEM, that are trusted instead of the system's.
	CAFile string `yaml:"caFile,omitempty"`
	// ClientCertFile and ClientKeyFile hold the certificate that the driver shows.
	ClientCertFile string `yaml:"clientCertFile,omitempty"`
	ClientKeyFile  string `yaml:"clientKeyFile,omitempty"`
	// Proxy is the address of an HTTP proxy; by default the environment says it.
	Proxy string `yaml:"proxy,omitempty"`
	// ConnectTimeout bounds the making of a connection; 5s by default.
	ConnectTimeout time.Duration `yaml:"connectTimeout,omitempty"`
	// AnswerTimeout bounds the wait for an answer; 20s by default, and at most.
	AnswerTimeout time.Duration `yaml:"answerTimeout,omitempty"`
	// InsecureSkipVerify takes any certificate for the service's. For tests.
	InsecureSkipVerify bool `yaml:"insecureSkipVerify,omitempty"`
}

// ContractAPI reaches a service that serves the contract API of
// pkg/contract/contractapi/openapi.yaml.
type ContractAPI struct {
	// URL is the API's base address.
	URL string `yaml:"url"`
	// TokenFile holds the bearer token.
	TokenFile string `yaml:"tokenFile"`
	// AllowedEndpoints are the S3 addresses that the service may name, beside
	// those at its own host: https://s3.example.com, https://*.s3.example.com, or a
	// block such as 10.0.0.0/8 for names of the second kind that lead there.
	AllowedEndpoints []string `yaml:"allowedEndpoints,omitempty"`
	// KeysReachAll is for a service whose keys cannot be limited to buckets.
	KeysReachAll bool `yaml:"keysReachAll,omitempty"`
}

// Endpoint is where S3 is served.
type Endpoint struct {
	// Region is the region's name, which requests are signed for.
	Region string `yaml:"region"`
	// URL is the address that applications are told.
	URL string `yaml:"url"`
	// VirtualHosts says that a bucket stands in the host name, not in the path.
	VirtualHosts bool `yaml:"virtualHosts,omitempty"`
}

// Gateway reaches a versitygw with its own accounts, or a Ceph object gateway.
type Gateway struct {
	// AdminURL is the admin API's address; by default that of the first endpoint.
	AdminURL string `yaml:"adminURL,omitempty"`
	// Endpoints are where S3 is served, the default one first.
	Endpoints []Endpoint `yaml:"endpoints"`
	// CredentialsFile holds the key that administers accounts: root's at a
	// versitygw, that of a user with the capabilities users=* and user-policy=* at Ceph.
	CredentialsFile string `yaml:"credentialsFile"`
	// SettleTime is how long a change takes to reach all gateways, where there
	// are several: the lifetime of versitygw's account cache, or the way to the
	// other zones of Ceph's realm.
	SettleTime time.Duration `yaml:"settleTime,omitempty"`
}

// RGW reaches a Ceph object gateway.
type RGW struct {
	Gateway `yaml:",inline"`
	// Accounts makes a contract an account of the gateway, which Squid and later
	// releases have, and not a tenant. It can never change for a contract that
	// is signed. The key's user then needs the capabilities accounts=* and
	// users=*, or, at Squid, the flag admin.
	Accounts bool `yaml:"accounts,omitempty"`
}

// IAM reaches a service that speaks AWS's IAM API, and says how it differs.
type IAM struct {
	// URL is the IAM API's address.
	URL string `yaml:"url"`
	// Region is what calls of the IAM API are signed for; us-east-1 by default.
	Region string `yaml:"region,omitempty"`
	// Endpoints are where S3 is served, the default one first.
	Endpoints []Endpoint `yaml:"endpoints"`
	// CredentialsFile holds the key that administers the account.
	CredentialsFile string `yaml:"credentialsFile,omitempty"`
	// CredentialsDir, in its place, has a file for each contract, named as it: a
	// contract is then an account of its own.
	CredentialsDir string `yaml:"credentialsDir,omitempty"`
	// Path begins the paths of all IAM users; /contract-cosi/ by default.
	Path string `yaml:"path,omitempty"`
	// PermissionsBoundary is the ARN of a policy that bounds every user.
	PermissionsBoundary string `yaml:"permissionsBoundary,omitempty"`
	// SettleTime is how long the service needs until a change holds everywhere.
	SettleTime time.Duration `yaml:"settleTime,omitempty"`
	// MaxKeys is how many keys a user can have; 2 by default.
	MaxKeys int `yaml:"maxKeys,omitempty"`
	// MaxPolicyBytes is the longest inline policy of a user; 2048 by default.
	MaxPolicyBytes int `yaml:"maxPolicyBytes,omitempty"`
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

// None stands in a dialect for what a service does not have.
const None = "none"

func (b *Backend) setDefaults() {
	def(&b.DeletionsPerSecond, defaultDeletions)
	if i := b.IAM; i != nil {
		def(&i.Region, "us-east-1")
		def(&i.Path, "/contract-cosi/")
		def(&i.MaxKeys, 2)
		def(&i.MaxPolicyBytes, 2048)
		def(&i.Dialect.Version, "2012-10-17")
		def(&i.Dialect.ActionPrefix, "s3:")
		def(&i.Dialect.ResourcePrefix, "arn:aws:s3:::")
		def(&i.Dialect.SourceAddressKey, "aws:SourceIp")
		def(&i.Dialect.PrefixKey, "s3:prefix")
	}
	if b.RGW != nil {
		b.RGW.setDefaults()
	}
	if b.VersityGW != nil {
		b.VersityGW.setDefaults()
	}
}

func (g *Gateway) setDefaults() {
	if len(g.Endpoints) > 0 {
		def(&g.AdminURL, g.Endpoints[0].URL)
	}
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// section is the part of a backend that its type is configured by.
type section interface {
	check(at string) []error
	// secrets are the files that hold secrets, by what they are.
	secrets() map[string]string
}

// sections are those of all types; a nil one is not there.
func (b Backend) sections() map[string]section {
	out := map[string]section{TypeContractAPI: nil, TypeIAM: nil, TypeRGW: nil, TypeVersityGW: nil}
	if b.ContractAPI != nil {
		out[TypeContractAPI] = b.ContractAPI
	}
	if b.IAM != nil {
		out[TypeIAM] = b.IAM
	}
	if b.RGW != nil {
		out[TypeRGW] = b.RGW
	}
	if b.VersityGW != nil {
		out[TypeVersityGW] = b.VersityGW
	}
	return out
}

func (b Backend) check(at string) []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !cosi.IsLabel(b.Name) {
		fault("%s.name: %q is not a DNS label of lower-case letters, digits and hyphens", at, b.Name)
	}
	if b.DeletionsPerSecond < 0 {
		fault("%s.deletionsPerSecond: %d is negative", at, b.DeletionsPerSecond)
	}
	own, known := b.sections()[b.Type]
	switch {
	case !known:
		fault("%s.type: %q is not one of contractapi, iam, rgw, versitygw", at, b.Type)
	case own == nil:
		fault("%s.%s: missing; it configures the backend of this type", at, b.Type)
	default:
		faults = append(faults, own.check(at+"."+b.Type)...)
	}
	for name, s := range b.sections() {
		if known && name != b.Type && s != nil {
			fault("%s.%s: the backend is of type %s", at, name, b.Type)
		}
	}
	return append(faults, b.Connection.check(at+".connection")...)
}

// Transport is how the backend is reached, as pkg/transport takes it.
func (b Backend) Transport() transport.Config {
	out := b.Connection.transport()
	if b.ContractAPI != nil {
		out.Allowed = b.ContractAPI.Allowed()
	}
	return out
}

func (c Connection) transport() transport.Config {
	return transport.Config{
		CAFile: c.CAFile, ClientCertFile: c.ClientCertFile, ClientKeyFile: c.ClientKeyFile, Proxy: c.Proxy,
		ConnectTimeout: c.ConnectTimeout, AnswerTimeout: c.AnswerTimeout, SkipVerify: c.InsecureSkipVerify,
	}
}

func (c Connection) check(at string) []error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if (c.ClientCertFile == "") != (c.ClientKeyFile == "") {
		fault("%s: clientCertFile and clientKeyFile go together", at)
	}
	for name, d := range map[string]time.Duration{"connectTimeout": c.ConnectTimeout, "answerTimeout": c.AnswerTimeout} {
		if d < 0 || d > transport.AttemptTimeout {
			fault("%s.%s: %s is not between 0 and %s, which an attempt has in all", at, name, d, transport.AttemptTimeout)
		}
	}
	if c.Proxy != "" {
		faults = append(faults, checkURL(at+".proxy", c.Proxy)...)
	}
	if len(faults) == 0 {
		if _, err := transport.New(c.transport()); err != nil {
			fault("%s: %w", at, err)
		}
	}
	return faults
}

func checkURL(at, text string) []error {
	u, err := url.Parse(text)
	if err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil {
		return nil
	}
	shown := "what it says" // which may hold a password
	if err == nil {
		shown = strconv.Quote(u.Redacted())
	}
	return []error{fmt.Errorf("%s: %s is not an http or https address without credentials", at, shown)}
}

func checkEndpoints(at string, endpoints []Endpoint) []error {
	var faults []error
	if len(endpoints) == 0 {
		faults = append(faults, fmt.Errorf("%s: there is none; name where S3 is served", at))
	}
	seen := map[string]bool{}
	for i, e := range endpoints {
		if e.Region == "" || seen[e.Region] {
			faults = append(faults, fmt.Errorf("%s[%d].region: %q is empty or there twice", at, i, e.Region))
		}
		seen[e.Region] = true
		faults = append(faults, checkURL(fmt.Sprintf("%s[%d].url", at, i), e.URL)...)
	}
	return faults
}

// Storage are endpoints as the driver speaks of them.
func Storage(endpoints []Endpoint) []cosi.Endpoint {
	out := make([]cosi.Endpoint, len(endpoints))
	for i, e := range endpoints {
		out[i] = cosi.Endpoint{Region: e.Region, URL: e.URL, PathStyle: !e.VirtualHosts}
	}
	return out
}

func checkSettleTime(at string, d time.Duration) []error {
	if d < 0 || d > 10*time.Minute {
		return []error{fmt.Errorf("%s: %s is not between 0 and 10m", at, d)}
	}
	return nil
}

// Allowed are the addresses that the service may name.
func (a *ContractAPI) Allowed() transport.Allowed {
	out, _ := transport.NewAllowed(a.URL, a.AllowedEndpoints) // was checked
	return out
}

func (a *ContractAPI) check(at string) []error {
	faults := checkURL(at+".url", a.URL)
	if _, err := transport.NewAllowed(a.URL, a.AllowedEndpoints); err != nil && len(faults) == 0 {
		faults = append(faults, fmt.Errorf("%s.allowedEndpoints%w", at, err))
	}
	if _, err := ReadSecret(a.TokenFile); err != nil {
		faults = append(faults, fmt.Errorf("%s.tokenFile: %w", at, err))
	}
	return faults
}

func (a *ContractAPI) secrets() map[string]string { return map[string]string{"token": a.TokenFile} }

func (g *Gateway) check(at string) []error {
	faults := checkEndpoints(at+".endpoints", g.Endpoints)
	if g.AdminURL != "" {
		faults = append(faults, checkURL(at+".adminURL", g.AdminURL)...)
	}
	if _, err := ReadKeyPair(g.CredentialsFile); err != nil {
		faults = append(faults, fmt.Errorf("%s.credentialsFile: %w", at, err))
	}
	return append(faults, checkSettleTime(at+".settleTime", g.SettleTime)...)
}

func (g *Gateway) secrets() map[string]string {
	return map[string]string{"credentials": g.CredentialsFile}
}

func (i *IAM) check(at string) []error {
	faults := append(checkURL(at+".url", i.URL), checkEndpoints(at+".endpoints", i.Endpoints)...)
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	switch {
	case (i.CredentialsFile == "") == (i.CredentialsDir == ""):
		fault("%s: give either credentialsFile, for one account, or credentialsDir, for an account per contract", at)
	case i.CredentialsFile != "":
		if _, err := ReadKeyPair(i.CredentialsFile); err != nil {
			fault("%s.credentialsFile: %w", at, err)
		}
	default:
		for _, name := range i.Accounts() {
			if _, err := ReadKeyPair(filepath.Join(i.CredentialsDir, name)); err != nil {
				fault("%s.credentialsDir: %w", at, err)
			}
		}
		if _, err := os.ReadDir(i.CredentialsDir); err != nil {
			fault("%s.credentialsDir: %w", at, err)
		}
	}
	if clean := path.Clean("/"+i.Path) + "/"; i.Path != clean || i.Path == "//" || len(i.Path) > 256 {
		fault("%s.path: %q does not begin and end with a slash, or is / alone", at, i.Path)
	}
	if i.MaxKeys < 1 || i.MaxPolicyBytes < 256 {
		fault("%s: maxKeys is %d and maxPolicyBytes %d; at least 1 and 256 are needed", at, i.MaxKeys, i.MaxPolicyBytes)
	}
	return append(faults, checkSettleTime(at+".settleTime", i.SettleTime)...)
}

func (i *IAM) secrets() map[string]string {
	if i.CredentialsFile != "" {
		return map[string]string{"credentials": i.CredentialsFile}
	}
	out := map[string]string{}
	for _, name := range i.Accounts() {
		out["credentials of contract "+name] = filepath.Join(i.CredentialsDir, name)
	}
	return out
}

// Accounts are the contracts that credentialsDir has a file for, as of now.
// Files of other names, which Kubernetes mounts beside them, are none.
func (i *IAM) Accounts() []string {
	entries, err := os.ReadDir(i.CredentialsDir)
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

// ReadKeyPair reads a file of credentials: [ParseKeyPair].
func ReadKeyPair(file string) (secret.KeyPair, error) {
	if file == "" {
		return secret.KeyPair{}, errors.New("missing")
	}
	text, err := readLimited(file)
	if err != nil {
		return secret.KeyPair{}, err
	}
	pair, err := ParseKeyPair(text)
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return pair, err
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
		return secret.KeyPair{}, errors.New("it does not hold aws_access_key_id = … and aws_secret_access_key = …")
	}
	return pair, nil
}
