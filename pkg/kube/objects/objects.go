// Package objects has as much of COSI's objects as the driver reads and writes, for
// all versions at once: what one version does not have is empty.
package objects

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Group is COSI's API group.
const Group = "objectstorage.k8s.io"

// V1alpha1 is the version whose classes have no spec.
const V1alpha1 = "v1alpha1"

// Bucket is as much of a Bucket as says whose it is.
type Bucket struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		DriverName     string                  `json:"driverName,omitempty"`
		BucketClaim    *corev1.ObjectReference `json:"bucketClaim,omitempty"`    // in v1alpha1
		BucketClaimRef *corev1.ObjectReference `json:"bucketClaimRef,omitempty"` // in v1alpha2
	} `json:"spec"`
	Status struct {
		BucketID string `json:"bucketID,omitempty"`
	} `json:"status"`
}

// Claim is what the Bucket was made for; the zero reference if it says nothing.
func (b *Bucket) Claim() corev1.ObjectReference {
	for _, ref := range []*corev1.ObjectReference{b.Spec.BucketClaim, b.Spec.BucketClaimRef} {
		if ref != nil {
			return *ref
		}
	}
	return corev1.ObjectReference{}
}

// DeepCopyObject implements runtime.Object. Nothing is changed in place.
func (b *Bucket) DeepCopyObject() runtime.Object {
	out := *b
	return &out
}

// BucketClaim is as much of a BucketClaim as says which Bucket it has.
type BucketClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		BucketName      string `json:"bucketName,omitempty"`      // in v1alpha1
		BoundBucketName string `json:"boundBucketName,omitempty"` // in v1alpha2
	} `json:"status"`
}

// Bound is the name of the claim's Bucket, "" if it has none yet.
func (c *BucketClaim) Bound() string { return c.Status.BucketName + c.Status.BoundBucketName }

// DeepCopyObject implements runtime.Object. Nothing is changed in place.
func (c *BucketClaim) DeepCopyObject() runtime.Object {
	out := *c
	return &out
}

// BucketClaimList is a list of them.
type BucketClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []BucketClaim `json:"items"`
}

// DeepCopyObject implements runtime.Object. Nothing is changed in place.
func (l *BucketClaimList) DeepCopyObject() runtime.Object {
	out := *l
	return &out
}

// BucketAccess is as much of a BucketAccess as says which Secrets it has.
type BucketAccess struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Protocol              string `json:"protocol,omitempty"`
		CredentialsSecretName string `json:"credentialsSecretName,omitempty"` // in v1alpha1
		BucketClaims          []struct {
			BucketClaimName  string `json:"bucketClaimName"`
			AccessSecretName string `json:"accessSecretName"`
		} `json:"bucketClaims,omitempty"` // in v1alpha2
	} `json:"spec"`
	Status struct {
		AccountID       string `json:"accountID,omitempty"`
		AccessedBuckets []struct {
			BucketID        string `json:"bucketID"`
			BucketClaimName string `json:"bucketClaimName"`
		} `json:"accessedBuckets,omitempty"` // in v1alpha2
	} `json:"status"`
}

// DeepCopyObject implements runtime.Object. Nothing is changed in place.
func (a *BucketAccess) DeepCopyObject() runtime.Object {
	out := *a
	return &out
}

// BucketAccessList is a list of them, with as much as says which they are: what a tenant
// has put beside that, which has no bound in all, is not kept.
type BucketAccessList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Named `json:"items"`
}

// Page is how many objects of tenants are read at a time: each can be as long as the API
// server takes them, which is more than a MiB.
const Page = 20

// Named is an object of which no more than its name is read.
type Named struct {
	Identity `json:"metadata"`
}

// Identity is as much of an object's metadata as says which it is.
type Identity struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// DeepCopyObject implements runtime.Object. Nothing is changed in place.
func (l *BucketAccessList) DeepCopyObject() runtime.Object {
	out := *l
	return &out
}

// ClassSpec is what a BucketClass or a BucketAccessClass says.
type ClassSpec struct {
	DriverName         string            `json:"driverName,omitempty"`
	DeletionPolicy     string            `json:"deletionPolicy,omitempty"`     // of a BucketClass
	AuthenticationType string            `json:"authenticationType,omitempty"` // of a BucketAccessClass
	Parameters         map[string]string `json:"parameters,omitempty"`
}

// Within reports whether another class says all that this one does. Admission may have
// filled in more parameters.
func (s ClassSpec) Within(other ClassSpec) bool {
	for name, value := range s.Parameters {
		if have, ok := other.Parameters[name]; !ok || have != value {
			return false
		}
	}
	return s.DriverName == other.DriverName && s.DeletionPolicy == other.DeletionPolicy && s.AuthenticationType == other.AuthenticationType
}

// Class is a BucketClass or a BucketAccessClass. What it says stands beside the
// metadata in v1alpha1, and in a spec in later versions.
type Class struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	ClassSpec         `json:",inline"`
	Spec              *ClassSpec `json:"spec,omitempty"`
}

// NewClass returns a class in a version of COSI.
func NewClass(version string, meta metav1.ObjectMeta, says ClassSpec) Class {
	if version == V1alpha1 {
		return Class{ObjectMeta: meta, ClassSpec: says}
	}
	return Class{ObjectMeta: meta, Spec: &says}
}

// Says is what the class says, in whatever version.
func (c *Class) Says() ClassSpec {
	if c.Spec != nil {
		return *c.Spec
	}
	return c.ClassSpec
}

// BucketClass is a BucketClass.
type BucketClass struct {
	Class `json:",inline"`
}

// DeepCopyObject implements runtime.Object. Nothing is changed in place.
func (c *BucketClass) DeepCopyObject() runtime.Object {
	out := *c
	return &out
}

// BucketClassList is a list of them.
type BucketClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []BucketClass `json:"items"`
}

// DeepCopyObject implements runtime.Object. Nothing is changed in place.
func (l *BucketClassList) DeepCopyObject() runtime.Object {
	out := *l
	return &out
}

// BucketAccessClass is a BucketAccessClass.
type BucketAccessClass struct {
	Class `json:",inline"`
}

// DeepCopyObject implements runtime.Object. Nothing is changed in place.
func (c *BucketAccessClass) DeepCopyObject() runtime.Object {
	out := *c
	return &out
}

// BucketAccessClassList is a list of them.
type BucketAccessClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []BucketAccessClass `json:"items"`
}

// DeepCopyObject implements runtime.Object. Nothing is changed in place.
func (l *BucketAccessClassList) DeepCopyObject() runtime.Object {
	out := *l
	return &out
}
