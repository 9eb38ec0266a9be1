package params

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
)

// Guard is what the platform lets classes ask for under a contract. A class is
// the tenant's policy; the guard is the platform's. What it does not mention is
// allowed.
type Guard struct {
	// Parameters are those that classes may give; none is all of them. A
	// parameter that is not here has the value that the defaults give it.
	Parameters []string `yaml:"parameters,omitempty"`
	// Required are those that have to be given, by the class or the defaults.
	Required []string `yaml:"required,omitempty"`
	// RefusePublic refuses what opens a bucket to the public: an ACL, a grant or a
	// policy.
	RefusePublic bool `yaml:"refusePublic,omitempty"`
	// Regions are where buckets may be made; none is all of the contract's.
	Regions []string `yaml:"regions,omitempty"`
	// Modes are what keys may do, in each category; none is all of them.
	Modes []cosi.AccessMode `yaml:"modes,omitempty"`
	// Actions are the S3 actions that keys may have; none is all of their modes.
	Actions []string `yaml:"actions,omitempty"`
	// MaxKeyLife is the longest that a key may live, such as 90d; by default
	// any time.
	MaxKeyLife string `yaml:"maxKeyLife,omitempty" jsonschema:"pattern=^([1-9][0-9]*[hd])?$"`
	// MaxBucketBytes and MaxBucketObjects are the most that a class may let one bucket
	// hold, written as maxBytes and maxObjects are; where one is given, each class or
	// the defaults have to bound it.
	MaxBucketBytes   string `yaml:"maxBucketBytes,omitempty" jsonschema:"pattern=^([1-9][0-9]*([KMGTP]i)?)?$"`
	MaxBucketObjects string `yaml:"maxBucketObjects,omitempty" jsonschema:"pattern=^([1-9][0-9]*)?$"`
	// RequireRotation says that the class, or the defaults, have to give keyRotation.
	RequireRotation bool `yaml:"requireRotation,omitempty"`
	// MaxKeyAge is the longest that one key may be valid, such as 90d: keyRotation
	// and keyGrace together, or keyLife; by default any time.
	MaxKeyAge string `yaml:"maxKeyAge,omitempty" jsonschema:"pattern=^([1-9][0-9]*[hd])?$"`
	// MaxBuckets and MaxKeys are how many there may be of this driver's under
	// the contract. Unlike the contract's quota they bind the driver alone, so
	// they hold at a service that has no such bounds.
	MaxBuckets *int64 `yaml:"maxBuckets,omitempty" jsonschema:"minimum=0"`
	MaxKeys    *int64 `yaml:"maxKeys,omitempty" jsonschema:"minimum=0"`
}

// Defaults are parameters that a contract lays under its classes.
type Defaults struct {
	BucketClass       map[string]string `yaml:"bucketClass,omitempty"`
	BucketAccessClass map[string]string `yaml:"bucketAccessClass,omitempty"`
}

// Under returns the parameters of a class with defaults where it gives none. A
// default gives way to a parameter that it cannot stand beside.
func (c Class) Under(defaults, class map[string]string) map[string]string {
	if len(defaults) == 0 {
		return class
	}
	out := maps.Clone(defaults)
	for _, p := range Table() {
		if p.Class != c {
			continue
		}
		_, given := class[p.Name]
		for _, other := range p.Excludes {
			if given {
				delete(out, other)
			} else if _, given := class[other]; given {
				delete(out, p.Name)
			}
		}
	}
	for _, p := range Table() { // what is nothing without one that gave way goes too
		if _, in := out[p.Needs]; p.Class == c && p.Needs != "" && !in {
			if _, given := class[p.Needs]; !given {
				delete(out, p.Name)
			}
		}
	}
	maps.Copy(out, class)
	return out
}

// Bucket names the rules that a BucketClass breaks. Requested are the parameters
// that the class has itself, and effective is what it means with the contract's
// defaults. Region is where the bucket is, or would be made: where the class names
// none, the contract's or the service's default. The caller has to know it: ""
// is none of the guard's regions.
func (g Guard) Bucket(requested map[string]string, effective Bucket, region string) []string {
	return g.bucket(BucketClass, requested, effective, region)
}

// bucket tells the author of by, a class or settings, what to change there.
func (g Guard) bucket(by Class, requested map[string]string, effective Bucket, region string) []string {
	faults := g.notAllowed(by, requested)
	faults = append(faults, g.missing(by, func(p string) bool { return effective.fields()[p] != nil })...)
	if g.RefusePublic {
		if public := effective.Public(); len(public) > 0 {
			faults = append(faults, fmt.Sprintf("guard.refusePublic: %s makes the bucket public", strings.Join(public, ", ")))
		}
	}
	if len(g.Regions) > 0 && !slices.Contains(g.Regions, region) {
		text := "guard.regions: %s is not one of %s"
		if effective.Region == "" {
			text = "guard.regions: the class has no region, and the default, %s, is not one of %s"
		}
		faults = append(faults, fmt.Sprintf(text, quote(region), strings.Join(g.Regions, ", ")))
	}
	most := g.bounds()
	for _, b := range []struct {
		rule, parameter, most string
		have, bound           int64
	}{
		{"maxBucketBytes", "maxBytes", g.MaxBucketBytes, effective.MaxBytes, most.MaxBytes},
		{"maxBucketObjects", "maxObjects", g.MaxBucketObjects, effective.MaxObjects, most.MaxObjects},
	} {
		if b.most != "" && (b.have == 0 || b.have > b.bound) {
			faults = append(faults, fmt.Sprintf("guard.%s: the %s has to give a %s of at most %s", b.rule, by, b.parameter, b.most))
		}
	}
	return faults
}

// Settings names the rules that settings break: given are their own parameters, and
// effective is what they come to with the class. Where the bucket is, they cannot say.
func (g Guard) Settings(given map[string]string, effective Bucket) []string {
	g.Regions = nil
	return g.bucket(BucketSettings, given, effective, "")
}

// bounds are what a bucket may hold at most, read as a class's are.
func (g Guard) bounds() Bucket {
	b, _ := ParseBucket(g.asClass())
	return b
}

func (g Guard) asClass() map[string]string {
	class := map[string]string{"contract": "x"}
	if g.MaxBucketBytes != "" {
		class["maxBytes"] = g.MaxBucketBytes
	}
	if g.MaxBucketObjects != "" {
		class["maxObjects"] = g.MaxBucketObjects
	}
	return class
}

// bucketWrites are the parameters of a BucketClass that a key overrides whose mode
// for the bucket's metadata writes.
var bucketWrites = []string{
	"versioning", "expireAfterDays", "noncurrentExpireAfterDays", "abortUploadsAfterDays", "lifecycle", "corsOrigins", "corsMethods", "cors",
}

// Access names the rules that a BucketAccessClass breaks, for a key with these
// modes, of all categories; writes says that it writes the metadata of a bucket.
// Requested and effective are as in [Guard.Bucket]; access is what the effective
// parameters mean.
func (g Guard) Access(requested, effective map[string]string, access Access, modes []cosi.AccessMode, writes bool) []string {
	faults := g.notAllowed(BucketAccessClass, requested)
	faults = append(faults, g.missing(BucketAccessClass, func(p string) bool { _, in := effective[p]; return in })...)
	for _, mode := range modes {
		if len(g.Modes) > 0 && !slices.Contains(g.Modes, mode) {
			faults = append(faults, fmt.Sprintf("guard.modes: %s is not one of %s", mode, join(g.Modes)))
		}
	}
	if writes {
		if other := slices.DeleteFunc(slices.Clone(bucketWrites), func(p string) bool { return len(g.Parameters) == 0 || slices.Contains(g.Parameters, p) }); len(other) > 0 {
			faults = append(faults, "guard.parameters: a key that writes bucketMetadata changes "+strings.Join(other, ", "))
		}
		if fixed := slices.DeleteFunc(slices.Clone(bucketWrites), func(p string) bool { return !slices.Contains(g.Required, p) }); len(fixed) > 0 {
			faults = append(faults, "guard.required: a key that writes bucketMetadata changes "+strings.Join(fixed, ", "))
		}
	}
	if len(g.Actions) > 0 {
		other := slices.DeleteFunc(slices.Clone(access.Actions), func(a string) bool { return slices.Contains(g.Actions, a) })
		if len(access.Actions) == 0 {
			faults = append(faults, "guard.actions: the class has to give actions, of "+strings.Join(g.Actions, ", "))
		} else if len(other) > 0 {
			faults = append(faults, fmt.Sprintf("guard.actions: %s are not of %s", strings.Join(other, ", "), strings.Join(g.Actions, ", ")))
		}
	}
	if most, _ := ParseLife(g.MaxKeyLife); g.MaxKeyLife != "" && (access.KeyLife == 0 || access.KeyLife > most) {
		faults = append(faults, fmt.Sprintf("guard.maxKeyLife: the class has to give a keyLife of at most %s", g.MaxKeyLife))
	}
	if g.RequireRotation && access.KeyRotation == 0 {
		faults = append(faults, "guard.requireRotation: the class has to give a keyRotation")
	}
	if most, _ := ParseLife(g.MaxKeyAge); g.MaxKeyAge != "" && (access.Age() == 0 || access.Age() > most) {
		faults = append(faults, fmt.Sprintf("guard.maxKeyAge: the class has to give a keyRotation, with its keyGrace, or a keyLife of at most %s", g.MaxKeyAge))
	}
	return faults
}

// notAllowed names the parameters that a class may not have. What it has to give
// is not one of its choices.
func (g Guard) notAllowed(c Class, requested map[string]string) []string {
	if len(g.Parameters) == 0 {
		return nil
	}
	var other []string
	for _, name := range slices.Sorted(maps.Keys(requested)) {
		if !named(name).Required && !slices.Contains(g.Parameters, name) {
			other = append(other, name)
		}
	}
	if len(other) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("guard.parameters: a %s may not give %s", c, strings.Join(other, ", "))}
}

func (g Guard) missing(by Class, has func(string) bool) []string {
	c := by
	if by == BucketSettings {
		c = BucketClass
	}
	var out []string
	for _, name := range g.Required {
		instead := func(p Parameter) bool { return p.Satisfies == name && has(p.Name) }
		if named(name).Class == c && !has(name) && !slices.ContainsFunc(Table(), instead) {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("guard.required: the %s has to give %s", by, strings.Join(out, ", "))}
}

// Check names what is wrong with a guard and the defaults that go with it.
func (g Guard) Check(d Defaults) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, list := range []struct {
		at    string
		names []string
	}{{"parameters", g.Parameters}, {"required", g.Required}} {
		for _, name := range list.names {
			if p := named(name); p.Name == "" || p.Required {
				fault("guard.%s: %s is no parameter that can be named here", list.at, quote(name))
			}
		}
	}
	for _, m := range g.Modes {
		if !slices.Contains([]cosi.AccessMode{cosi.ReadWrite, cosi.ReadOnly, cosi.WriteOnly}, m) {
			fault("guard.modes: %s is not one of ReadWrite, ReadOnly, WriteOnly", quote(string(m)))
		}
	}
	for _, a := range g.Actions {
		if !slices.Contains(actionNames(), a) {
			fault("guard.actions: %s is not one of %s", quote(a), strings.Join(actionNames(), ", "))
		}
	}
	for name, most := range map[string]string{"maxKeyLife": g.MaxKeyLife, "maxKeyAge": g.MaxKeyAge} {
		if most == "" {
			continue
		}
		if _, err := ParseAccess(map[string]string{"keyLife": most}); err != nil {
			fault("guard.%s: %s is not a number of hours (12h) or days (90d)", name, quote(most))
		}
	}
	if _, err := ParseBucket(g.asClass()); err != nil {
		fault("guard.maxBucketBytes, maxBucketObjects: %s", err)
	}
	for name, most := range map[string]*int64{"maxBuckets": g.MaxBuckets, "maxKeys": g.MaxKeys} {
		if most != nil && *most < 0 {
			fault("guard.%s: %d is negative", name, *most)
		}
	}
	for _, p := range Table() {
		at, given := "bucketClass", d.BucketClass
		if p.Class == BucketAccessClass {
			at, given = "bucketAccessClass", d.BucketAccessClass
		}
		if _, is := given[p.Name]; is && p.NoDefault != "" {
			fault("defaults.%s: %s", at, p.NoDefault)
		}
	}
	bucket := maps.Clone(d.BucketClass)
	if bucket == nil {
		bucket = map[string]string{}
	}
	bucket["contract"] = "x"
	if _, err := ParseBucket(bucket); err != nil {
		fault("defaults.bucketClass: %s", err)
	}
	if _, err := ParseAccess(d.BucketAccessClass); err != nil {
		fault("defaults.bucketAccessClass: %s", err)
	}
	return faults
}

// named is a parameter of either class, none if there is none of the name. No
// name is in both.
func named(name string) Parameter {
	table := Table()
	if i := slices.IndexFunc(table, func(p Parameter) bool { return p.Name == name }); i >= 0 {
		return table[i]
	}
	return Parameter{}
}

func join(modes []cosi.AccessMode) string {
	out := make([]string, len(modes))
	for i, m := range modes {
		out[i] = string(m)
	}
	return strings.Join(out, ", ")
}
