package params

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/policy"
)

// Documents of JSON are brought to one canonical form, in a class and when they
// are read back from a service: two texts that mean the same become equal.

// read decodes one JSON value and nothing after it. With strict, a field that v
// does not have is a fault.
func read(text string, v any, strict bool) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if strict {
		decoder.DisallowUnknownFields()
	}
	if err := decoder.Decode(v); err != nil {
		return fmt.Errorf("not such a JSON object: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is text after the JSON object")
	}
	return nil
}

func write(v any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // plain data
	return strings.TrimSuffix(b.String(), "\n")
}

// lifecycle is the document of PutBucketLifecycleConfiguration, in the JSON of
// AWS's own tools (Amazon S3 API reference, BucketLifecycleConfiguration).
type lifecycle struct {
	Rules []lifecycleRule
}

type lifecycleRule struct {
	ID                             string              `json:",omitempty"`
	Status                         string              `json:",omitempty"`
	Prefix                         *string             `json:",omitempty"`
	Filter                         *lifecycleFilter    `json:",omitempty"`
	Expiration                     *lifecycleEnd       `json:",omitempty"`
	NoncurrentVersionExpiration    *noncurrentEnd      `json:",omitempty"`
	AbortIncompleteMultipartUpload *abortUploads       `json:",omitempty"`
	Transitions                    []transition        `json:",omitempty"`
	NoncurrentVersionTransitions   []noncurrentToClass `json:",omitempty"`
}

type lifecycleFilter struct {
	Prefix                *string       `json:",omitempty"`
	Tag                   *tag          `json:",omitempty"`
	ObjectSizeGreaterThan *int64        `json:",omitempty"`
	ObjectSizeLessThan    *int64        `json:",omitempty"`
	And                   *lifecycleAnd `json:",omitempty"`
}

type lifecycleAnd struct {
	Prefix                *string `json:",omitempty"`
	Tags                  []tag   `json:",omitempty"`
	ObjectSizeGreaterThan *int64  `json:",omitempty"`
	ObjectSizeLessThan    *int64  `json:",omitempty"`
}

type tag struct{ Key, Value string }

type lifecycleEnd struct {
	Days                      *int32     `json:",omitempty"`
	Date                      *time.Time `json:",omitempty"`
	ExpiredObjectDeleteMarker *bool      `json:",omitempty"`
}

type noncurrentEnd struct {
	NoncurrentDays          *int32 `json:",omitempty"`
	NewerNoncurrentVersions *int32 `json:",omitempty"`
}

type abortUploads struct {
	DaysAfterInitiation *int32 `json:",omitempty"`
}

type transition struct {
	Days         *int32     `json:",omitempty"`
	Date         *time.Time `json:",omitempty"`
	StorageClass string     `json:",omitempty"`
}

type noncurrentToClass struct {
	NoncurrentDays          *int32 `json:",omitempty"`
	NewerNoncurrentVersions *int32 `json:",omitempty"`
	StorageClass            string `json:",omitempty"`
}

// CanonicalLifecycle returns a lifecycle document in canonical JSON: rules have
// an ID and are sorted by it, and each a filter. With strict, as a class is
// read, a field that S3 does not have is a fault.
func CanonicalLifecycle(text string, strict bool) (string, error) {
	var doc lifecycle
	if err := read(text, &doc, strict); err != nil {
		return "", err
	}
	if len(doc.Rules) == 0 {
		return "", errors.New("it has no Rules")
	}
	seen := map[string]bool{}
	for i := range doc.Rules {
		r := &doc.Rules[i]
		if r.Status != "Enabled" && r.Status != "Disabled" {
			return "", fmt.Errorf("Rules[%d].Status is neither Enabled nor Disabled", i)
		}
		if r.Expiration == nil && r.NoncurrentVersionExpiration == nil && r.AbortIncompleteMultipartUpload == nil &&
			len(r.Transitions) == 0 && len(r.NoncurrentVersionTransitions) == 0 {
			return "", fmt.Errorf("Rules[%d] says nothing to be done", i)
		}
		if r.ID == "" { // the service would make one up
			r.ID = fmt.Sprintf("rule-%d", i+1)
		}
		if seen[r.ID] {
			return "", fmt.Errorf("Rules[%d].ID %s is there twice", i, quote(r.ID))
		}
		seen[r.ID] = true
		r.normalize()
	}
	slices.SortFunc(doc.Rules, func(a, b lifecycleRule) int { return strings.Compare(a.ID, b.ID) })
	return write(doc), nil
}

// normalize undoes what services write in more than one way.
func (r *lifecycleRule) normalize() {
	if r.Filter == nil {
		r.Filter = &lifecycleFilter{Prefix: r.Prefix}
	}
	r.Prefix = nil
	if f := r.Filter; f.Prefix == nil && f.Tag == nil && f.And == nil && f.ObjectSizeGreaterThan == nil && f.ObjectSizeLessThan == nil {
		f.Prefix = new(string)
	}
	if and := r.Filter.And; and != nil {
		slices.SortFunc(and.Tags, func(a, b tag) int { return strings.Compare(a.Key, b.Key) })
	}
	if e := r.Expiration; e != nil && e.ExpiredObjectDeleteMarker != nil && !*e.ExpiredObjectDeleteMarker {
		e.ExpiredObjectDeleteMarker = nil
	}
}

// driverRule is the ID of the rule that the simple parameters make.
const driverRule = "contract-cosi-driver"

// LifecycleDocument is what the class asks for by lifecycle or by the simple
// parameters, in canonical JSON; "" for nothing.
func (b Bucket) LifecycleDocument() string {
	if b.ExpireAfterDays == 0 && b.NoncurrentExpireAfterDays == 0 && b.AbortUploadsAfterDays == 0 {
		return b.Lifecycle
	}
	rule := lifecycleRule{ID: driverRule, Status: "Enabled"}
	if d := b.ExpireAfterDays; d > 0 {
		rule.Expiration = &lifecycleEnd{Days: &d}
	}
	if d := b.NoncurrentExpireAfterDays; d > 0 {
		rule.NoncurrentVersionExpiration = &noncurrentEnd{NoncurrentDays: &d}
	}
	if d := b.AbortUploadsAfterDays; d > 0 {
		rule.AbortIncompleteMultipartUpload = &abortUploads{DaysAfterInitiation: &d}
	}
	rule.normalize()
	return write(lifecycle{Rules: []lifecycleRule{rule}})
}

// cors is the document of PutBucketCors, in the JSON of AWS's own tools (Amazon
// S3 API reference, CORSConfiguration).
type cors struct {
	CORSRules []corsRule
}

type corsRule struct {
	ID             string   `json:",omitempty"`
	AllowedOrigins []string `json:",omitempty"`
	AllowedMethods []string `json:",omitempty"`
	AllowedHeaders []string `json:",omitempty"`
	ExposeHeaders  []string `json:",omitempty"`
	MaxAgeSeconds  *int32   `json:",omitempty"`
}

var corsMethods = []string{"GET", "PUT", "POST", "DELETE", "HEAD"}

// CanonicalCORS returns a CORS document in canonical JSON: the lists of a rule
// are sorted, the rules stay in their order, which matters. strict is as in
// [CanonicalLifecycle].
func CanonicalCORS(text string, strict bool) (string, error) {
	var doc cors
	if err := read(text, &doc, strict); err != nil {
		return "", err
	}
	if len(doc.CORSRules) == 0 {
		return "", errors.New("it has no CORSRules")
	}
	for i := range doc.CORSRules {
		r := &doc.CORSRules[i]
		if len(r.AllowedOrigins) == 0 || len(r.AllowedMethods) == 0 {
			return "", fmt.Errorf("CORSRules[%d] has no AllowedOrigins or no AllowedMethods", i)
		}
		for _, m := range r.AllowedMethods {
			if !slices.Contains(corsMethods, m) {
				return "", fmt.Errorf("CORSRules[%d].AllowedMethods: %s is not one of %s", i, quote(m), strings.Join(corsMethods, ", "))
			}
		}
		r.normalize()
	}
	return write(doc), nil
}

func (r *corsRule) normalize() {
	for _, list := range []*[]string{&r.AllowedOrigins, &r.AllowedMethods, &r.AllowedHeaders, &r.ExposeHeaders} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if r.MaxAgeSeconds != nil && *r.MaxAgeSeconds <= 0 { // some services write none so
		r.MaxAgeSeconds = nil
	}
}

// CORSDocument is what the class asks for by cors or by corsOrigins, in
// canonical JSON; "" for nothing.
func (b Bucket) CORSDocument() string {
	if len(b.CORSOrigins) == 0 {
		return b.CORS
	}
	rule := corsRule{ID: driverRule, AllowedOrigins: slices.Clone(b.CORSOrigins), AllowedMethods: slices.Clone(b.CORSMethods),
		AllowedHeaders: []string{"*"}, ExposeHeaders: []string{"ETag"}}
	if len(rule.AllowedMethods) == 0 {
		rule.AllowedMethods = []string{"GET", "HEAD"}
	}
	rule.normalize()
	return write(cors{CORSRules: []corsRule{rule}})
}

// classPolicy is a bucket policy of a class in canonical JSON.
func classPolicy(text string) (string, error) {
	canonical, err := policy.Canonical(text)
	if err != nil {
		return "", err
	}
	doc, err := policy.Parse(canonical)
	if err == nil && doc.Remove(policy.Own) {
		err = errors.New("the Sid of a statement begins as those of the driver's own; choose another")
	}
	return canonical, err
}

// PolicyFor returns the policy of the class for one bucket.
func (b Bucket) PolicyFor(bucket string) string {
	return strings.NewReplacer("${bucket}", bucket, "${contract}", b.Contract).Replace(b.Policy)
}
