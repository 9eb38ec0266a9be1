package events

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Bucket is as much of COSI's Bucket as says whose it is.
type Bucket struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		BucketClaim    *corev1.ObjectReference `json:"bucketClaim,omitempty"`    // in v1alpha1
		BucketClaimRef *corev1.ObjectReference `json:"bucketClaimRef,omitempty"` // in v1alpha2
	} `json:"spec"`
}

// claim is what the Bucket was made for; the zero reference if it says nothing.
func (b *Bucket) claim() corev1.ObjectReference {
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

// BucketAccessList is as much of COSI's BucketAccessList as names its items.
type BucketAccessList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []struct {
		metav1.ObjectMeta `json:"metadata"`
	} `json:"items"`
}

// DeepCopyObject implements runtime.Object. Nothing is changed in place.
func (l *BucketAccessList) DeepCopyObject() runtime.Object {
	out := *l
	return &out
}
