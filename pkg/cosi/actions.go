package cosi

import "slices"

// Action is an S3 action that a key can have.
type Action struct {
	// Name is AWS's, with the service: "s3:GetObject".
	Name string
	// On is what it is done to.
	On Target
	// Of is the category whose mode decides.
	Of Category
	// Modes are the modes of its category that allow it.
	Modes []AccessMode
	// ByData says that the mode for the objects decides if the category has none.
	ByData bool
	// With are the modes for the objects that it takes beside; none is any.
	With []AccessMode
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

// Category is what an action is about. The names are those of a BucketAccess.
type Category string

// The categories.
const (
	ObjectData     Category = "objectData"
	ObjectMetadata Category = "objectMetadata"
	BucketMetadata Category = "bucketMetadata"
)

// Actions are all that a key can have, by name: what the modes of each category
// mean, at every service.
//
//   - HeadBucket is s3:ListBucket without a prefix, and the metadata that HeadObject
//     shows comes with s3:GetObject.
//   - Versions are deleted by ReadWrite only: a WriteOnly key, which may be in an
//     exposed place, cannot destroy history. A rule of a lifecycle can do it too.
//   - Unfinished uploads of others are listed by ReadWrite only, as it takes both
//     reading keys and writing.
//
// What is not here no mode allows. A key that changes the bucket's policy or ACL
// gives itself, or the public, every right. The driver's mark is one of the bucket's
// tags. An ACL, a retention or a legal hold takes an object out of the hands of the
// contract that pays for it.
func Actions() []Action {
	reads := []AccessMode{ReadOnly, ReadWrite}
	writes := []AccessMode{WriteOnly, ReadWrite}
	both := []AccessMode{ReadWrite}
	return []Action{
		{Name: "s3:AbortMultipartUpload", On: OnObject, Of: ObjectData, Modes: writes},
		{Name: "s3:DeleteObject", On: OnObject, Of: ObjectData, Modes: writes},
		{Name: "s3:DeleteObjectTagging", On: OnObject, Of: ObjectMetadata, Modes: writes, ByData: true},
		{Name: "s3:DeleteObjectVersion", On: OnObject, Of: ObjectData, Modes: both},
		{Name: "s3:DeleteObjectVersionTagging", On: OnObject, Of: ObjectMetadata, Modes: writes, ByData: true},
		{Name: "s3:GetBucketAcl", On: OnBucket, Of: BucketMetadata, Modes: reads},
		{Name: "s3:GetBucketCORS", On: OnBucket, Of: BucketMetadata, Modes: reads},
		{Name: "s3:GetBucketLocation", On: OnBucket, Of: BucketMetadata, Modes: reads, ByData: true},
		{Name: "s3:GetBucketPolicy", On: OnBucket, Of: BucketMetadata, Modes: reads},
		{Name: "s3:GetBucketTagging", On: OnBucket, Of: BucketMetadata, Modes: reads},
		{Name: "s3:GetBucketVersioning", On: OnBucket, Of: BucketMetadata, Modes: reads},
		{Name: "s3:GetLifecycleConfiguration", On: OnBucket, Of: BucketMetadata, Modes: reads},
		{Name: "s3:GetObject", On: OnObject, Of: ObjectData, Modes: reads},
		{Name: "s3:GetObjectAcl", On: OnObject, Of: ObjectMetadata, Modes: reads},
		{Name: "s3:GetObjectAttributes", On: OnObject, Of: ObjectMetadata, Modes: reads, ByData: true},
		{Name: "s3:GetObjectTagging", On: OnObject, Of: ObjectMetadata, Modes: reads, ByData: true},
		{Name: "s3:GetObjectVersion", On: OnObject, Of: ObjectData, Modes: reads},
		{Name: "s3:GetObjectVersionAcl", On: OnObject, Of: ObjectMetadata, Modes: reads},
		{Name: "s3:GetObjectVersionAttributes", On: OnObject, Of: ObjectMetadata, Modes: reads, ByData: true},
		{Name: "s3:GetObjectVersionTagging", On: OnObject, Of: ObjectMetadata, Modes: reads, ByData: true},
		{Name: "s3:ListBucket", On: OnKeys, Of: ObjectData, Modes: reads},
		{Name: "s3:ListBucketMultipartUploads", On: OnKeys, Of: ObjectData, Modes: both},
		{Name: "s3:ListBucketVersions", On: OnKeys, Of: ObjectData, Modes: reads},
		{Name: "s3:ListMultipartUploadParts", On: OnObject, Of: ObjectData, Modes: writes},
		{Name: "s3:PutBucketCORS", On: OnBucket, Of: BucketMetadata, Modes: writes},
		{Name: "s3:PutBucketVersioning", On: OnBucket, Of: BucketMetadata, Modes: writes},
		{Name: "s3:PutLifecycleConfiguration", On: OnBucket, Of: BucketMetadata, Modes: writes, With: both},
		{Name: "s3:PutObject", On: OnObject, Of: ObjectData, Modes: writes},
		{Name: "s3:PutObjectTagging", On: OnObject, Of: ObjectMetadata, Modes: writes, ByData: true},
		{Name: "s3:PutObjectVersionTagging", On: OnObject, Of: ObjectMetadata, Modes: writes, ByData: true},
	}
}

// AllowedBy reports whether a key of these modes may do it.
func (a Action) AllowedBy(mode AccessMode, metadata Metadata) bool {
	decides := mode
	switch {
	case a.Of == ObjectMetadata && (metadata.ObjectMetadata != "" || !a.ByData):
		decides = metadata.ObjectMetadata
	case a.Of == BucketMetadata && (metadata.BucketMetadata != "" || !a.ByData):
		decides = metadata.BucketMetadata
	}
	return slices.Contains(a.Modes, decides) && (a.With == nil || slices.Contains(a.With, mode))
}

// Allows reports whether a key of these modes may do an action. It is given by name.
func (m AccessMode) Allows(action string, metadata Metadata) bool {
	return slices.ContainsFunc(Actions(), func(a Action) bool { return a.Name == action && a.AllowedBy(m, metadata) })
}
