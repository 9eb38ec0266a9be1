package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ContractClass is a kind of contract that the platform offers: the storage service,
// the terms, what tenants may choose, and who may order one. A change reaches the
// contracts that were ordered of it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ctc,categories=cosi
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Backend",type=string,JSONPath=`.spec.backend`
// +kubebuilder:printcolumn:name="Plan",type=string,JSONPath=`.spec.plan`,priority=1
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Contracts",type=integer,JSONPath=`.status.contracts`
// +kubebuilder:printcolumn:name="In sync",type=integer,JSONPath=`.status.inSync`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ContractClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ContractClassSpec `json:"spec"`
	// +optional
	Status ContractClassStatus `json:"status,omitempty"`
}

// ContractClassSpec is what the platform offers.
type ContractClassSpec struct {
	// backend is the storage service that contracts are signed at: a name of backends
	// in the driver's configuration. It cannot be changed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=22
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="backend cannot be changed; make another ContractClass"
	Backend string `json:"backend"`

	// plan is the service's name of what is bought; by default the service says.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Plan string `json:"plan,omitempty"`

	// regions are those that a contract may choose from. One that chooses none gets
	// the first. Without any, contracts cannot choose, and the service says.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	Regions []string `json:"regions,omitempty"`

	// namespaceSelector names the namespaces in which contracts of this class may be
	// ordered, by their labels. {} is all of them. By default none may.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// quota is what a contract gets that asks for nothing else.
	// +optional
	Quota Quota `json:"quota,omitempty"`

	// maxQuota is the most that a contract may ask for. A bound that is not given here
	// cannot be asked for: it is what quota says.
	// +optional
	MaxQuota Quota `json:"maxQuota,omitempty"`

	// labels are kept with each contract at the service.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`

	// guard is what classes and settings may ask for under a contract.
	// +optional
	Guard Guard `json:"guard,omitempty"`

	// defaults are parameters that classes mean where they give none. A change reaches
	// the buckets that are there; keys stay as they were issued.
	// +optional
	Defaults Defaults `json:"defaults,omitempty"`

	// drift says what is done about what has changed at the service behind the driver's
	// back; by default what the driver's configuration says.
	// +optional
	// +kubebuilder:validation:Enum=off;report;repair
	Drift string `json:"drift,omitempty"`

	// exposeKeys lets a Contract ask for the contract's own key in a Secret. That key is
	// the driver's: it can do everything under the contract, whatever the guard says, and
	// stays valid when the Secret is gone.
	// +optional
	ExposeKeys bool `json:"exposeKeys,omitempty"`

	// bucketClasses are made for each contract, and can be claimed in its namespace
	// only.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	BucketClasses []BucketClassTemplate `json:"bucketClasses,omitempty"`

	// bucketAccessClasses are made for each contract, and can be used in its namespace
	// only.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	BucketAccessClasses []BucketAccessClassTemplate `json:"bucketAccessClasses,omitempty"`

	// existing gives a contract that is at the service already to a Contract: one of
	// the driver's configuration that moves here, or one that was retained when its
	// namespace was deleted.
	// +optional
	// +listType=map
	// +listMapKey=namespace
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Existing []ExistingContract `json:"existing,omitempty"`
}

// Quota bounds a contract. A bound that is not given is left to the plan.
type Quota struct {
	// maxBuckets is how many buckets there may be.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxBuckets *int64 `json:"maxBuckets,omitempty"`
	// maxKeys is how many keys there may be, of which the contract's own is one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxKeys *int64 `json:"maxKeys,omitempty"`
	// maxBytes is how many bytes all buckets hold together, without a unit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxBytes *int64 `json:"maxBytes,omitempty"`
	// maxObjects is how many objects all buckets hold together.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxObjects *int64 `json:"maxObjects,omitempty"`
}

// Guard is what may be asked for under a contract. What it does not mention is
// allowed.
type Guard struct {
	// parameters are those that classes may give; none is all of them.
	// +optional
	// +listType=set
	Parameters []string `json:"parameters,omitempty"`
	// required are parameters that have to be given, by the class or the defaults.
	// +optional
	// +listType=set
	Required []string `json:"required,omitempty"`
	// refusePublic refuses what opens a bucket to the public: an ACL, a grant or a
	// policy.
	// +optional
	RefusePublic bool `json:"refusePublic,omitempty"`
	// regions are where buckets may be made; none is all of the contract's.
	// +optional
	// +listType=set
	Regions []string `json:"regions,omitempty"`
	// modes are what keys may do; none is all of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:items:Enum=ReadOnly;WriteOnly;ReadWrite
	Modes []string `json:"modes,omitempty"`
	// actions are the S3 actions that keys may have; none is all of their modes.
	// +optional
	// +listType=set
	Actions []string `json:"actions,omitempty"`
	// maxKeyLife is the longest that a key may live, such as 90d; by default any time.
	// +optional
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]*[hd]$`
	MaxKeyLife string `json:"maxKeyLife,omitempty"`
	// maxBucketBytes is the most that maxBytes of a class may be, such as 2Ti; where it
	// is given, a class or the defaults have to give one.
	// +optional
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]*([KMGTP]i)?$`
	MaxBucketBytes string `json:"maxBucketBytes,omitempty"`
	// maxBucketObjects is the same of maxObjects.
	// +optional
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]*$`
	MaxBucketObjects string `json:"maxBucketObjects,omitempty"`
	// requireRotation says that the class, or the defaults, have to give keyRotation.
	// +optional
	RequireRotation bool `json:"requireRotation,omitempty"`
	// maxKeyAge is the longest that one key may be valid, such as 90d: keyRotation and
	// keyGrace together, or keyLife; by default any time.
	// +optional
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]*[hd]$`
	MaxKeyAge string `json:"maxKeyAge,omitempty"`
	// maxBuckets is how many buckets this driver makes under a contract at most. Unlike
	// the quota it binds the driver alone, and holds at a service without such a bound.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxBuckets *int64 `json:"maxBuckets,omitempty"`
	// maxKeys is how many keys this driver gives under a contract at most.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxKeys *int64 `json:"maxKeys,omitempty"`
}

// Defaults are parameters that a contract lays under its classes.
type Defaults struct {
	// bucketClass are parameters of BucketClasses.
	// +optional
	BucketClass map[string]string `json:"bucketClass,omitempty"`
	// bucketAccessClass are parameters of BucketAccessClasses.
	// +optional
	BucketAccessClass map[string]string `json:"bucketAccessClass,omitempty"`
}

// BucketClassTemplate is a BucketClass that each contract gets.
type BucketClassTemplate struct {
	// name is how the class is found in the status of a Contract, and begins the
	// name of the BucketClass.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name"`
	// deletionPolicy says what becomes of a bucket whose claim is deleted.
	// +optional
	// +kubebuilder:default=Retain
	// +kubebuilder:validation:Enum=Retain;Delete
	DeletionPolicy string `json:"deletionPolicy,omitempty"`
	// parameters are the class's own beside the contract. COSI keeps them with each
	// bucket as they were when it was claimed; what is to reach buckets that are there
	// belongs into defaults.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!('contract' in self)",message="contract is filled in for each Contract"
	Parameters map[string]string `json:"parameters,omitempty"`
}

// BucketAccessClassTemplate is a BucketAccessClass that each contract gets.
type BucketAccessClassTemplate struct {
	// name is how the class is found in the status of a Contract, and begins the
	// name of the BucketAccessClass.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([a-z0-9-]*[a-z0-9])?$`
	Name string `json:"name"`
	// parameters are the class's own.
	// +optional
	Parameters map[string]string `json:"parameters,omitempty"`
}

// ExistingContract gives a contract that is there to a Contract.
type ExistingContract struct {
	// namespace of the Contract.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name of the Contract.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// contract is its name at the service.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=61
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Contract string `json:"contract"`
}

// ContractClassStatus is how far the driver has come.
type ContractClassStatus struct {
	// observedGeneration is the generation that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// contracts is how many Contracts name the class.
	// +optional
	Contracts int64 `json:"contracts"`
	// inSync is how many of them are at the service as the class says now.
	// +optional
	InSync int64 `json:"inSync"`
	// conditions: Accepted says whether contracts can be ordered.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ContractClassList is a list of them.
//
// +kubebuilder:object:root=true
type ContractClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ContractClass `json:"items"`
}
