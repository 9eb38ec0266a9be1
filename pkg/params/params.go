// Package params is the table of class parameters: what a BucketClass and a
// BucketAccessClass may say, what it means, and how it is read.
//
// The table drives everything that speaks of parameters: parsing, the refusal
// of unknown keys, and what test/generate writes from it: the reference in
// proto-docs/parameters.md and the admission policies of the chart. A class is
// written by a platform engineer and read by a machine much later, so every
// fault of a class is reported at once, with the key it stands at and, for an
// unknown key, the nearest one there is.
package params

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
	"github.com/contract-cosi/contract-cosi-driver/pkg/settings"
)

// Class is the kind of object a parameter stands in.
type Class string

// The two classes, and what a team says of a bucket over its class.
const (
	BucketClass       Class = "BucketClass"
	BucketAccessClass Class = "BucketAccessClass"
	BucketSettings    Class = "BucketSettings"
)

// OnDelete says what becomes of the objects of a bucket that is deleted.
type OnDelete string

// What DriverDeleteBucket does with a bucket that holds objects.
const (
	// Refuse: a bucket that holds objects is not deleted.
	Refuse OnDelete = "refuse"
	// Empty: the objects are deleted with the bucket.
	Empty OnDelete = "empty"
)

// Grants are the explicit ACL grants of a bucket: each a list of grantees in
// S3's notation, `id=…`, `uri=…` or `emailAddress=…`, sorted.
type Grants struct {
	Read        []string `json:"grantRead,omitempty"`
	Write       []string `json:"grantWrite,omitempty"`
	ReadACP     []string `json:"grantReadACP,omitempty"`
	WriteACP    []string `json:"grantWriteACP,omitempty"`
	FullControl []string `json:"grantFullControl,omitempty"`
}

// None reports whether there are no grants.
func (g Grants) None() bool {
	return len(g.Read)+len(g.Write)+len(g.ReadACP)+len(g.WriteACP)+len(g.FullControl) == 0
}

// Bucket is what a BucketClass asks for. Its JSON form is what the journal
// keeps and what a repeated request is compared with, so two classes that mean
// the same are equal: lists are sorted and documents are in canonical JSON. The
// fields of the JSON are called as the parameters are.
type Bucket struct {
	Contract  string `json:"contract"`
	Region    string `json:"region,omitempty"`
	Placement string `json:"placement,omitempty"`

	ObjectOwnership string `json:"objectOwnership,omitempty"`
	// BlockPublicAccess is nil if the class does not say, empty for none.
	BlockPublicAccess []string `json:"blockPublicAccess,omitzero"`
	ACL               string   `json:"acl,omitempty"`
	Grants
	Policy string `json:"policy,omitempty"` // canonical JSON, names not yet replaced

	Versioning string `json:"versioning,omitempty"`
	ObjectLock string `json:"objectLock,omitempty"`

	ExpireAfterDays           int32  `json:"expireAfterDays,omitempty"`
	NoncurrentExpireAfterDays int32  `json:"noncurrentExpireAfterDays,omitempty"`
	AbortUploadsAfterDays     int32  `json:"abortUploadsAfterDays,omitempty"`
	Lifecycle                 string `json:"lifecycle,omitempty"` // canonical JSON; see LifecycleDocument

	CORSOrigins []string `json:"corsOrigins,omitempty"`
	CORSMethods []string `json:"corsMethods,omitempty"`
	CORS        string   `json:"cors,omitempty"` // canonical JSON; see CORSDocument

	Encryption   string `json:"encryption,omitempty"`
	KMSKey       string `json:"kmsKey,omitempty"`
	WebsiteIndex string `json:"websiteIndex,omitempty"`
	WebsiteError string `json:"websiteError,omitempty"`
	RequestPayer string `json:"requestPayer,omitempty"`
	// MaxBytes and MaxObjects bound what the bucket holds; 0 is no bound.
	MaxBytes   int64             `json:"maxBytes,omitempty"`
	MaxObjects int64             `json:"maxObjects,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	OnDelete   OnDelete          `json:"onDelete"`
}

// Access is what a BucketAccessClass asks for.
type Access struct {
	Mode cosi.AccessMode
	// Prefixes limit the key to objects whose key begins with one of them.
	Prefixes []string
	// SourceIP are CIDR blocks, sorted.
	SourceIP []string
	// Actions are the S3 actions that the key may do, sorted; nil leaves it to
	// the mode.
	Actions []string
	// KeyLife is how long the key lives; 0 is until it is revoked.
	KeyLife time.Duration
	// KeyRotation is the age at which the application gets the next key; 0 is never.
	KeyRotation time.Duration
	// KeyGrace is how long the key before stays valid after that.
	KeyGrace time.Duration
	// SecretFormat are the forms of the key that applications read beside COSI's own,
	// sorted.
	SecretFormat []string
}

// What SecretFormat can have.
const (
	// EnvFormat is variables for the environment.
	EnvFormat = "env"
	// FileFormat is files for clients of S3.
	FileFormat = "file"
)

// ActionsIn are those of the class's actions that modes allow.
func (a Access) ActionsIn(mode cosi.AccessMode, metadata cosi.Metadata) []string {
	return slices.DeleteFunc(slices.Clone(a.Actions), func(action string) bool { return !mode.Allows(action, metadata) })
}

// Parameter describes one row of the table.
type Parameter struct {
	// Name is the key in the class's parameters, with case.
	Name string
	// Class is where the parameter may stand.
	Class Class
	// Type says how the value is written.
	Type string
	// Default is what an absent parameter means; "" if it must be given or has no
	// effect. A literal one, in backquotes, is written into classes by the
	// admission policies, so it has to be what every service can do.
	Default string
	// Required parameters have to be given.
	Required bool
	// Text explains the parameter to the author of a class.
	Text string
	// Check is what its value has to meet.
	Check Check
	// Excludes are parameters that cannot stand beside this one.
	Excludes []string
	// Option is the option of a bucket that it says something of, where several
	// parameters share one; "" for one of its own name.
	Option string
	// Needs is a parameter that this one is nothing without; "" for none.
	Needs string
	// Satisfies is a parameter that need not be given where this one is, though a
	// guard requires it; "" for none.
	Satisfies string
	// Opens are what [Bucket.Public] looks for in the parameter, as data: a value,
	// or an item of a list, that meets all of them opens the bucket to the public.
	// None is of a parameter that opens nothing, or where only the driver can tell.
	Opens []Rule
	// NoDefault says why a contract's defaults cannot give the parameter; "" if
	// they can.
	NoDefault string
	// TestedOn are the servers that its tests run on; test/options holds the
	// table to them.
	TestedOn []string
}

// row adds to a Parameter how its value gets into T.
type row[T any] struct {
	Parameter
	set func(*T, string) error
}

// ParseBucket reads the parameters of a BucketClass. The error is an
// InvalidArgument that names every fault.
func ParseBucket(in map[string]string) (Bucket, error) {
	out := Bucket{OnDelete: Refuse}
	errs := append(bucketTable.parse(in, &out), contradictions(out)...)
	return out, invalid(BucketClass, errs)
}

// With is what a bucket is to be whose class comes to b, with settings over it. A
// parameter of b gives way to one that it cannot stand beside. The error is an
// InvalidArgument that names every fault.
func (b Bucket) With(settings map[string]string) (Bucket, error) {
	if len(settings) == 0 {
		return b, nil
	}
	out := Bucket{OnDelete: Refuse}
	errs := append(bucketTable.parse(BucketClass.Under(Given(b), settings), &out), contradictions(out)...)
	return out, invalid(BucketSettings, errs)
}

// CheckSettings reports what is wrong with settings whatever the class is.
func CheckSettings(settings map[string]string) error {
	_, err := Bucket{Contract: "x", OnDelete: Refuse}.With(settings)
	return err
}

// Given are the parameters that a value comes to whose JSON calls them by their names:
// a [Bucket], or another type that says the same.
func Given(v any) map[string]string {
	text, _ := json.Marshal(v) // plain data
	var said map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	_ = decoder.Decode(&said)
	out := make(map[string]string, len(said))
	for name, value := range said {
		switch value := value.(type) {
		case []any:
			out[name] = "none" // an empty list that is given says so
			if len(value) > 0 {
				out[name] = strings.Join(sprints(value), ",")
			}
		case map[string]any:
			pairs := make([]string, 0, len(value))
			for _, key := range slices.Sorted(maps.Keys(value)) {
				pairs = append(pairs, fmt.Sprintf("%s=%s", key, value[key]))
			}
			out[name] = strings.Join(pairs, ",")
		default:
			out[name] = fmt.Sprint(value)
		}
	}
	return out
}

func sprints(values []any) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprint(v)
	}
	return out
}

// Beside is a class that says something of all that either of two does. Of what both
// say, it says what b does, with the tags of both.
func (b Bucket) Beside(other Bucket) Bucket {
	all := other.fields()
	maps.Copy(all, b.fields())
	tags := maps.Clone(other.Tags)
	if tags == nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, b.Tags)
	text, _ := json.Marshal(all)
	var out Bucket
	_ = json.Unmarshal(text, &out)
	if len(tags) > 0 {
		out.Tags = tags
	}
	return out
}

// fields are what a class says, by the names of the parameters.
func (b Bucket) fields() map[string]json.RawMessage {
	text, _ := json.Marshal(b) // plain data
	var out map[string]json.RawMessage
	_ = json.Unmarshal(text, &out)
	return out
}

// Differences names the parameters in which two classes differ.
func (b Bucket) Differences(other Bucket) []string {
	if reflect.DeepEqual(b, other) { // nearly always; the fields cost more
		return nil
	}
	x, y := b.fields(), other.fields()
	all := maps.Clone(x)
	maps.Copy(all, y)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return string(x[name]) == string(y[name]) })
}

// Saying names the parameters by which a class says something of an option.
func (b Bucket) Saying(option string) []string {
	said := b.fields()
	var out []string
	for _, r := range bucketTable.rows {
		if cmp.Or(r.Option, r.Name) == option && said[r.Name] != nil {
			out = append(out, r.Name)
		}
	}
	return out
}

// contradictions are values that are good one by one and not together. Only the
// driver tells them.
func contradictions(b Bucket) []error {
	var errs []error
	contradict := func(a, b string) { errs = append(errs, fmt.Errorf("%s and %s contradict each other", a, b)) }
	if b.ObjectLock != "" && b.Versioning == suspended {
		contradict("objectLock", "versioning: "+suspended)
	}
	hasACL := b.ACL != "" && b.ACL != "private" || !b.Grants.None()
	if hasACL && b.ObjectOwnership == ownershipEnforced {
		contradict("an ACL", "objectOwnership: "+ownershipEnforced)
	}
	for _, public := range b.Public() {
		block := "BlockPublicAcls"
		if public == "policy" {
			block = "BlockPublicPolicy"
		}
		if slices.Contains(b.BlockPublicAccess, block) {
			contradict("a public "+public, "blockPublicAccess: "+block)
		}
	}
	return errs
}

// Public names the parameters that open the bucket to the public, as pkg/policy
// judges it.
func (b Bucket) Public() []string {
	var out []string
	if policy.PublicACL(b.ACL) {
		out = append(out, "acl")
	}
	for _, g := range []struct {
		name string
		who  []string
	}{{"grantRead", b.Read}, {"grantWrite", b.Write}, {"grantReadACP", b.ReadACP}, {"grantWriteACP", b.WriteACP}, {"grantFullControl", b.FullControl}} {
		if slices.ContainsFunc(g.who, policy.PublicGrantee) {
			out = append(out, g.name)
		}
	}
	// Which name stands in place of ${bucket} is not known, so it names no caller.
	if public, err := policy.Public(strings.ReplaceAll(b.Policy, "${contract}", b.Contract)); public || err != nil {
		out = append(out, "policy")
	}
	return out
}

// Empties reports whether the parameters of a Bucket object say that its
// objects are deleted with it. No other parameter is read: what was made has to
// be deletable, whatever its object says.
func Empties(in map[string]string) bool { return in["onDelete"] == string(Empty) }

// ParseAccess reads the parameters of a BucketAccessClass; see [ParseBucket].
func ParseAccess(in map[string]string) (Access, error) {
	out := Access{Mode: cosi.ReadWrite}
	errs := append(accessTable.parse(in, &out), out.schedule()...)
	return out, invalid(BucketAccessClass, errs)
}

// Age is how long one key can be valid at most; 0 is any time.
func (a Access) Age() time.Duration {
	if a.KeyRotation > 0 {
		return a.KeyRotation + a.KeyGrace
	}
	return a.KeyLife
}

// keyGrace is that of a class which says none, if its keyRotation is long enough.
const keyGrace = 24 * time.Hour

// schedule fills in the grace of a rotation. It returns what cannot be kept to.
func (a *Access) schedule() (errs []error) {
	if a.KeyRotation == 0 {
		return nil
	}
	a.KeyGrace = cmp.Or(a.KeyGrace, min(keyGrace, a.KeyRotation/2))
	if a.KeyGrace >= a.KeyRotation {
		errs = append(errs, errors.New("keyGrace has to be shorter than keyRotation, or an access would need a third key"))
	}
	if a.KeyLife > 0 && a.KeyRotation+a.KeyGrace >= a.KeyLife {
		errs = append(errs, errors.New("keyLife has to be longer than keyRotation and keyGrace together, or a key ends before the next one is in use"))
	}
	return errs
}

// Table returns all parameters, those of the BucketClass first.
func Table() []Parameter {
	var out []Parameter
	for _, r := range bucketTable.rows {
		out = append(out, r.Parameter)
	}
	for _, r := range accessTable.rows {
		out = append(out, r.Parameter)
	}
	return out
}

// table is the rows of one class, in the order of the reference and by name.
type table[T any] struct {
	rows  []row[T]
	named map[string]row[T]
}

func newTable[T any](rows []row[T]) table[T] {
	t := table[T]{rows: rows, named: make(map[string]row[T], len(rows))}
	for _, r := range rows {
		for i := range r.Check.Rules {
			rule := &r.Check.Rules[i]
			rule.compiled = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(rule.Expression()) })
		}
		t.named[r.Name] = r
	}
	return t
}

// What is read of a class, and how many of its faults are told: enough for any
// that a person wrote.
const (
	maxParameters = 256
	maxValue      = 64 << 10 // bytes
	maxFaults     = 10
)

func (t table[T]) parse(in map[string]string, out *T) []error {
	if len(in) > maxParameters {
		return []error{fmt.Errorf("%d parameters; at most %d are read", len(in), maxParameters)}
	}
	var errs []error
	for _, r := range t.rows {
		if _, given := in[r.Name]; r.Required && !given {
			errs = append(errs, fmt.Errorf("%s is missing: %s", r.Name, r.Text))
		}
	}
	for _, r := range t.rows {
		value, given := in[r.Name]
		if !given {
			continue
		}
		faults := []string{fmt.Sprintf("%d bytes; at most %d are read", len(value), maxValue)}
		if len(value) <= maxValue {
			faults = r.Check.faults(value)
		}
		if len(faults) == 0 {
			if err := r.set(out, value); err != nil {
				faults = []string{err.Error()}
			}
		}
		for _, f := range faults {
			errs = append(errs, fmt.Errorf("%s: %s", r.Name, f))
		}
		if _, given := in[r.Needs]; r.Needs != "" && !given {
			errs = append(errs, fmt.Errorf("%s needs %s", r.Name, r.Needs))
		}
		for _, other := range r.Excludes {
			if _, both := in[other]; both {
				errs = append(errs, fmt.Errorf("%s and %s exclude each other", r.Name, other))
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(in)) {
		if _, known := t.named[key]; !known {
			errs = append(errs, fmt.Errorf("%s is unknown; %s", quote(key), settings.Suggest(key, slices.Sorted(maps.Keys(t.named)))))
		}
	}
	return errs
}

func invalid(class Class, errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	var texts []string
	for _, err := range errs[:min(len(errs), maxFaults)] {
		texts = append(texts, err.Error())
	}
	if more := len(errs) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return fault.Wrap(fault.InvalidArgument, errors.Join(errs...), "%s parameters: %s", class, strings.Join(texts, "; "))
}

// Quoted is how many characters of a value a message shows.
const Quoted = 60

// quote keeps what a class says short in a message.
func quote(s string) string {
	if characters := []rune(s); len(characters) > Quoted {
		s = string(characters[:Quoted]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
