package store

import (
	"fmt"
	"io"
	"net/netip"
	"time"
)

// Secret is a secret access key. Whatever prints or encodes it shows a mark;
// [Secret.Reveal] is the only way to the text.
type Secret struct{ text string }

// NewSecret wraps a secret text.
func NewSecret(text string) Secret { return Secret{text: text} }

// Reveal returns the text.
func (s Secret) Reveal() string { return s.text }

// Format prints the mark for every verb: %x would give away as much as %s.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[redacted]") }

// MarshalText returns the mark, for JSON and every other encoder.
func (s Secret) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }

// State is where a contract stands.
type State string

// The states that this service knows. A contract that was cancelled is gone,
// so it has none.
const (
	Pending   State = "pending"
	Active    State = "active"
	Suspended State = "suspended"
)

// Contract is a signed contract. Values are shared: treat maps as read-only.
type Contract struct {
	Name        string
	Code        string // assigned when it was signed; names the contract in bucket policies and ACLs
	Owner       string
	DisplayName string
	Region      string
	Plan        string
	Suspended   bool
	MaxBuckets  *int64
	MaxKeys     *int64
	Labels      map[string]string
	Revision    uint64 // grows with every write, over all contracts
	SignedAt    time.Time
	ActiveFrom  time.Time // pending before
	UpdatedAt   time.Time
}

// State returns where the contract stands at the given time.
func (c Contract) State(now time.Time) State {
	switch {
	case now.Before(c.ActiveFrom):
		return Pending
	case c.Suspended:
		return Suspended
	}
	return Active
}

// Bucket is what a bucket holds and may hold, old versions and delete markers among
// it; a bound of 0 is none.
type Bucket struct {
	Name           string
	Bytes, Objects int64
	Quota
}

// Quota bounds a bucket.
type Quota struct {
	MaxBytes   int64 `json:",omitempty"`
	MaxObjects int64 `json:",omitempty"`
}

// Grant is what a key may do in one bucket.
type Grant struct {
	Bucket string
	Prefix string // only objects whose key starts with it
	Access Access
	// ObjectMetadata and BucketMetadata are the modes for what describes the objects
	// and the bucket; "" is what goes with Access.
	ObjectMetadata Access `json:",omitempty"`
	BucketMetadata Access `json:",omitempty"`
	// Actions limit it to some of what the modes allow; none is all of it.
	Actions []string `json:",omitempty"`
}

// Access is the mode of a [Grant].
type Access string

// The modes, spelled as the contract API spells them.
const (
	ReadOnly  Access = "readOnly"
	ReadWrite Access = "readWrite"
	WriteOnly Access = "writeOnly"
)

// Key is an access key. Values are shared: treat slices as read-only.
type Key struct {
	Contract     string
	Name         string
	Slot         string
	AccessKeyID  string
	Secret       Secret         `json:"-"` // written through keyRecord alone
	Grants       []Grant        // none: the contract's own key
	Sources      []netip.Prefix // none: from anywhere
	ExpiresAt    *time.Time     // none: never
	CreatedAt    time.Time
	Acknowledged bool
}

// Scoped reports whether the key is limited to some buckets.
func (k Key) Scoped() bool { return len(k.Grants) > 0 }

// Expired reports whether the key's time is over.
func (k Key) Expired(now time.Time) bool { return k.ExpiresAt != nil && !now.Before(*k.ExpiresAt) }

// keyRecord is a key as the database holds it. The S3 signature check needs
// the secret of every live key, so the file has it, readable by its owner alone.
type keyRecord struct {
	Key
	SecretAccessKey string
}
