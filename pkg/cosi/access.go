package cosi

// AccessMode says what a key may do with one category of what a bucket has: the
// objects, or the [Metadata] of either.
type AccessMode string

// The access modes, and what they let a key do with objects.
const (
	// ReadWrite: list, read, write and delete objects.
	ReadWrite AccessMode = "ReadWrite"
	// ReadOnly: list and read objects.
	ReadOnly AccessMode = "ReadOnly"
	// WriteOnly: write and delete objects, without listing or reading them.
	WriteOnly AccessMode = "WriteOnly"
)

// Metadata are a key's modes for what describes the objects of a bucket, and the
// bucket itself. One that is "" gives what goes with the mode for the objects.
type Metadata struct {
	ObjectMetadata AccessMode `json:"objectMetadata,omitempty"`
	BucketMetadata AccessMode `json:"bucketMetadata,omitempty"`
}

// Label is a text of letters that tells modes apart; "" if none is set.
func (m Metadata) Label() string {
	var out string
	if m.ObjectMetadata != "" {
		out += "Object" + string(m.ObjectMetadata)
	}
	if m.BucketMetadata != "" {
		out += "Bucket" + string(m.BucketMetadata)
	}
	return out
}

// BucketScope is what a key may do with one bucket. Several of one bucket add up.
type BucketScope struct {
	Bucket string
	// Prefix limits it to objects whose key begins so; "" is all of them.
	Prefix string
	Mode   AccessMode
	Metadata
	// Actions are the S3 actions ("s3:GetObject") that the key may do, each one
	// of those that the modes allow; none is all of them.
	Actions []string
}

// AuthType says how an application proves who it is.
type AuthType string

// The authentication types of both COSI versions; "" is one the driver does not know.
const (
	// Key: an access key and its secret.
	Key AuthType = "Key"
	// ServiceAccount: the workload's Kubernetes service account (IAM in v1alpha1).
	ServiceAccount AuthType = "ServiceAccount"
)

// Endpoint is where the buckets of a contract are reached over S3.
type Endpoint struct {
	// Region is the region's name, which requests are signed for.
	Region string `json:"region"`
	// URL is the address, with scheme.
	URL string `json:"url"`
	// PathStyle says that the bucket stands in the path, not in the host name.
	PathStyle bool `json:"pathStyle"`
}
