package service

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/api"
)

// The bounds of openapi.yaml, which the generated code does not check.
const (
	maxName    = 63
	maxOwner   = 200
	maxLabels  = 32
	maxLabel   = 256
	maxGrants  = 128
	maxPrefix  = 1024
	maxSources = 64
	maxActions = 64
	maxKeep    = 8
	maxKeepID  = 128
	maxPage    = 500
	maxToken   = 512
	maxETag    = 128
	minBucket  = 3
)

var (
	nameSyntax  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	tokenSyntax = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`) // a bucket's name has dots too
)

func child(pointer string, step any) string {
	text := strings.NewReplacer("~", "~0", "/", "~1").Replace(fmt.Sprint(step))
	return pointer + "/" + text
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (f *faults) name(pointer, value string) {
	if !nameSyntax.MatchString(value) {
		f.add(pointer, "must be 1 to %d lower-case letters, digits and dashes, beginning and ending with a letter or digit", maxName)
	}
}

func (f *faults) length(pointer string, value *string, maximum int) {
	if value != nil && utf8.RuneCountInString(*value) > maximum {
		f.add(pointer, "must have at most %d characters", maximum)
	}
}

func (f *faults) contractSpec(spec api.ContractSpec) {
	if spec.Owner == "" {
		f.add("/owner", "is required")
	}
	f.length("/owner", &spec.Owner, maxOwner)
	f.length("/displayName", spec.DisplayName, maxOwner)
	f.length("/region", spec.Region, maxName)
	f.length("/plan", spec.Plan, maxName)
	if spec.DesiredState != nil && !spec.DesiredState.Valid() {
		f.add("/desiredState", "must be active or suspended")
	}
	if spec.Quota != nil {
		f.bound("/quota/maxBytes", spec.Quota.MaxBytes)
		f.bound("/quota/maxObjects", spec.Quota.MaxObjects)
		f.bound("/quota/maxBuckets", spec.Quota.MaxBuckets)
		f.bound("/quota/maxKeys", spec.Quota.MaxKeys)
	}
	if spec.Labels != nil {
		if len(*spec.Labels) > maxLabels {
			f.add("/labels", "must have at most %d entries", maxLabels)
		}
		for _, name := range sortedKeys(*spec.Labels) {
			value := (*spec.Labels)[name]
			f.length(child("/labels", name), &value, maxLabel)
		}
	}
}

func (f *faults) bound(pointer string, value *int64) {
	if value != nil && *value < 0 {
		f.add(pointer, "must not be negative")
	}
}

func (f *faults) positive(pointer string, value *int64) {
	if value != nil && *value < 1 {
		f.add(pointer, "must be at least 1; leave it out for no bound")
	}
}

// unsupported names the bounds that the storage cannot keep. Accepting one would
// promise what nothing enforces.
func (f *faults) unsupported(quota *api.Quota) {
	if quota == nil {
		return
	}
	if quota.MaxBytes != nil {
		f.add("/quota/maxBytes", "is not supported: the storage bounds single buckets only; leave it out, and bound the buckets")
	}
	if quota.MaxObjects != nil {
		f.add("/quota/maxObjects", "is not supported: the storage bounds single buckets only; leave it out, and bound the buckets")
	}
}

func (f *faults) keyRequest(request api.KeyRequest) {
	spec := request.Spec
	f.name("/spec/slot", spec.Slot)
	if spec.Buckets != nil {
		f.grants(*spec.Buckets)
	}
	if spec.SourceAddresses != nil {
		f.sources(*spec.SourceAddresses)
	}
	if request.Keep != nil {
		if len(*request.Keep) > maxKeep {
			f.add("/keep", "must have at most %d entries", maxKeep)
		}
		for i, id := range *request.Keep {
			f.length(child("/keep", i), &id, maxKeepID)
		}
	}
}

func (f *faults) grants(grants []api.BucketGrant) {
	// No list means the contract's own key. An empty one is most likely a list
	// that lost its entries, and must not become the most powerful key there is.
	if len(grants) == 0 {
		f.add("/spec/buckets", "must name a bucket; leave the field out for the contract's own key")
	}
	if len(grants) > maxGrants {
		f.add("/spec/buckets", "must have at most %d entries", maxGrants)
	}
	for i, grant := range grants {
		pointer := child("/spec/buckets", i)
		if n := utf8.RuneCountInString(grant.Bucket); n < minBucket || n > maxName {
			f.add(child(pointer, "bucket"), "must have %d to %d characters", minBucket, maxName)
		}
		for field, access := range map[string]*api.BucketAccess{"access": &grant.Access, "objectMetadata": grant.ObjectMetadata, "bucketMetadata": grant.BucketMetadata} {
			if access != nil && !access.Valid() {
				f.add(child(pointer, field), "must be readOnly, readWrite or writeOnly")
			}
		}
		f.actions(child(pointer, "actions"), grant.Actions)
		f.length(child(pointer, "prefix"), grant.Prefix, maxPrefix)
		if grant.Prefix != nil && !matchable(*grant.Prefix) {
			f.add(child(pointer, "prefix"), "must not have empty, . or .. path segments: no object key has them")
		}
	}
}

func (f *faults) actions(pointer string, actions *[]string) {
	if actions == nil {
		return
	}
	if n := len(*actions); n == 0 || n > maxActions {
		f.add(pointer, "must have 1 to %d entries; leave the field out for all actions of the access", maxActions)
	}
	for i, action := range *actions {
		if !actionSyntax.MatchString(action) {
			f.add(child(pointer, i), "must be an action like s3:GetObject")
		}
	}
}

var actionSyntax = regexp.MustCompile(`^s3:[A-Za-z]{1,61}$`)

// matchable reports whether an object key can start with the prefix. The storage
// keeps objects in directories and resolves such segments away.
func matchable(prefix string) bool {
	segments := strings.Split(prefix, "/")
	for i, segment := range segments {
		last := i == len(segments)-1 // what follows the last "/" may still grow
		if segment == "" && !last || (segment == "." || segment == "..") && !last {
			return false
		}
	}
	return true
}

func (f *faults) sources(blocks []string) {
	if len(blocks) == 0 {
		f.add("/spec/sourceAddresses", "must have an entry; leave the field out to allow every address")
	}
	if len(blocks) > maxSources {
		f.add("/spec/sourceAddresses", "must have at most %d entries", maxSources)
	}
	for i, block := range blocks {
		if _, err := netip.ParsePrefix(block); err != nil {
			f.add(child("/spec/sourceAddresses", i), "must be a CIDR block like 192.0.2.0/24")
		}
	}
}
