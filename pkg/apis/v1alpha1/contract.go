package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Contract is a contract with a storage service that a tenant orders: buckets are
// claimed, and paid for, under it. It is signed as soon as it is accepted. The
// classes by which buckets are claimed are in its status.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=ct,categories=cosi
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=`.spec.className`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Buckets",type=integer,JSONPath=`.status.buckets`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.usage.bytes`
// +kubebuilder:printcolumn:name="Quota",type=integer,JSONPath=`.status.quota.maxBytes`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Contract",type=string,JSONPath=`.status.contract`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
type Contract struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ContractSpec `json:"spec"`
	// +optional
	Status ContractStatus `json:"status,omitempty"`
}

// ContractSpec is what is ordered.
//
// +kubebuilder:validation:XValidation:rule="has(self.region) == has(oldSelf.region) && (!has(self.region) || self.region == oldSelf.region)",message="region cannot be changed; order another Contract"
type ContractSpec struct {
	// className names the ContractClass. It cannot be changed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="className cannot be changed; order another Contract"
	ClassName string `json:"className"`

	// displayName is shown in the service's own tools; by default namespace and name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	DisplayName string `json:"displayName,omitempty"`

	// region is where buckets are made that do not say; one of the class's. It cannot
	// be changed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Region string `json:"region,omitempty"`

	// quota is what is asked for, up to the class's maxQuota. What is not given is as
	// the class says.
	// +optional
	Quota Quota `json:"quota,omitempty"`

	// suspend stops all use of the contract without losing anything.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// reclaimPolicy says what becomes of the contract at the service when this object
	// is deleted, after its last bucket: Retain keeps it, and a Contract of the same
	// name in the same namespace takes it back; Delete cancels it.
	// +optional
	// +kubebuilder:default=Retain
	ReclaimPolicy ReclaimPolicy `json:"reclaimPolicy,omitempty"`

	// keySecretName asks for the contract's own key in a Secret of this name, where the
	// class exposes keys. The key can do everything under the contract. Without it there
	// is no Secret.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	KeySecretName string `json:"keySecretName,omitempty"`
}

// ReclaimPolicy says what becomes of a contract whose object is deleted.
//
// +kubebuilder:validation:Enum=Retain;Delete
type ReclaimPolicy string

// The policies.
const (
	// Retain keeps the contract at the service.
	Retain ReclaimPolicy = "Retain"
	// Delete cancels it.
	Delete ReclaimPolicy = "Delete"
)

// ContractStatus is what there is.
type ContractStatus struct {
	// observedGeneration is the generation that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// contract is the contract's name at the service, and in the ids of its buckets.
	// +optional
	Contract string `json:"contract,omitempty"`
	// state is what the service says: Pending, Active, Suspended, Cancelling or Failed.
	// +optional
	State string `json:"state,omitempty"`
	// endpoints are where the contract's buckets can be, the default one first.
	// +optional
	// +listType=atomic
	Endpoints []Endpoint `json:"endpoints,omitempty"`
	// quota is what the contract has, the class's part included.
	// +optional
	Quota *Quota `json:"quota,omitempty"`
	// buckets is how many buckets the driver has made under the contract.
	// +optional
	Buckets int64 `json:"buckets"`
	// usage is what the service has counted, as far as it tells. It is read now and
	// then.
	// +optional
	Usage *Usage `json:"usage,omitempty"`
	// bucketClasses are the classes that were made for the contract.
	// +optional
	// +listType=map
	// +listMapKey=template
	BucketClasses []ClassName `json:"bucketClasses,omitempty"`
	// bucketAccessClasses are the classes that were made for the contract.
	// +optional
	// +listType=map
	// +listMapKey=template
	BucketAccessClasses []ClassName `json:"bucketAccessClasses,omitempty"`
	// keySecretName is the Secret that the driver keeps the contract's own key in.
	// +optional
	KeySecretName string `json:"keySecretName,omitempty"`
	// conditions: Accepted says whether the order is as the class allows, InSync
	// whether the contract at the service is as ordered, and Ready whether buckets can
	// be claimed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Endpoint is where S3 is served.
type Endpoint struct {
	// region is the region's name.
	Region string `json:"region"`
	// url is the address.
	URL string `json:"url"`
}

// Usage is what a bucket holds, or all buckets of a contract together. What the service
// does not count is left out.
type Usage struct {
	// bytes that are held.
	// +optional
	Bytes *int64 `json:"bytes,omitempty"`
	// objects that are held.
	// +optional
	Objects *int64 `json:"objects,omitempty"`
}

// ClassName is a class that was made for a contract.
type ClassName struct {
	// template is its name in the ContractClass.
	Template string `json:"template"`
	// name is the class's own, to be given in claims and accesses.
	Name string `json:"name"`
}

// The types of conditions.
const (
	// Accepted: the order is as the class allows, or the settings as the contract does.
	Accepted = "Accepted"
	// InSync: the contract or the bucket at the service is as it should be.
	InSync = "InSync"
	// Ready: buckets can be claimed, or the bucket has the settings.
	Ready = "Ready"
)

// ContractList is a list of them.
//
// +kubebuilder:object:root=true
type ContractList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Contract `json:"items"`
}
