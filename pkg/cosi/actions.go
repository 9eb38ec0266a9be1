package cosi

import "slices"

// Action is an S3 action that a key can have.
type Action struct {
	// Name is AWS's, with the service: "s3:GetObject".
	Name string
	// On is what it is done to.
	On Target
	// Modes are the access modes that allow it.
	Modes []AccessMode
}

// Target is what an action is done to, and so how a prefix limits it.
type Target string

// The targets.
const (
	// OnBucket: the bucket as a whole. A prefix does not limit it.
	OnBucket Target = "bucket"
	// OnKeys: the list of the bucket's keys. A prefix limits what may be listed.
	OnKeys Target = "keys"
	// OnObject: one object. A prefix limits its key.
	OnObject Target = "object"
)

// Actions are all that a key can have, by name: what the access modes mean, at
// every service. What is not here, bucket administration, ACLs, object lock and
// its bypass, no mode allows.
//
//   - HeadBucket is s3:ListBucket without a prefix.
//   - Versions are deleted by ReadWrite only: a WriteOnly key, which may be in an
//     exposed place, cannot destroy history.
//   - Unfinished uploads of others are listed by ReadWrite only, as it takes both
//     reading keys and writing.
func Actions() []Action {
	reads := []AccessMode{ReadOnly, ReadWrite}
	writes := []AccessMode{WriteOnly, ReadWrite}
	both := []AccessMode{ReadWrite}
	return []Action{
		{"s3:AbortMultipartUpload", OnObject, writes},
		{"s3:DeleteObject", OnObject, writes},
		{"s3:DeleteObjectTagging", OnObject, writes},
		{"s3:DeleteObjectVersion", OnObject, both},
		{"s3:DeleteObjectVersionTagging", OnObject, writes},
		{"s3:GetBucketLocation", OnBucket, reads},
		{"s3:GetObject", OnObject, reads},
		{"s3:GetObjectAttributes", OnObject, reads},
		{"s3:GetObjectTagging", OnObject, reads},
		{"s3:GetObjectVersion", OnObject, reads},
		{"s3:GetObjectVersionAttributes", OnObject, reads},
		{"s3:GetObjectVersionTagging", OnObject, reads},
		{"s3:ListBucket", OnKeys, reads},
		{"s3:ListBucketMultipartUploads", OnKeys, both},
		{"s3:ListBucketVersions", OnKeys, reads},
		{"s3:ListMultipartUploadParts", OnObject, writes},
		{"s3:PutObject", OnObject, writes},
		{"s3:PutObjectTagging", OnObject, writes},
		{"s3:PutObjectVersionTagging", OnObject, writes},
	}
}

// Allows reports whether the mode allows an action.
func (m AccessMode) Allows(action string) bool {
	return slices.ContainsFunc(Actions(), func(a Action) bool { return a.Name == action && slices.Contains(a.Modes, m) })
}
