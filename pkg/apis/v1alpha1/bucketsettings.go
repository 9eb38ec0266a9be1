package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BucketSettings is what a team says of a bucket of its own beyond the bucket's class,
// and can change at any time. What it says stands over the class, within what the
// contract's guard allows. What it does not say is as the class says, also after it is
// deleted. Its status has what the bucket has now.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=bucketsettings,singular=bucketsettings,shortName=bs,categories=cosi
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Claim",type=string,JSONPath=`.spec.bucketClaimName`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="In sync",type=string,JSONPath=`.status.conditions[?(@.type=="InSync")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Bucket",type=string,JSONPath=`.status.bucket`,priority=1
// +kubebuilder:printcolumn:name="ACL",type=string,JSONPath=`.status.now.acl`,priority=1
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.status.now.policy`,priority=1
// +kubebuilder:printcolumn:name="Public by",type=string,JSONPath=`.status.now.publicBy`,priority=1
// +kubebuilder:printcolumn:name="Versioning",type=string,JSONPath=`.status.now.versioning`,priority=1
// +kubebuilder:printcolumn:name="Lock",type=string,JSONPath=`.status.now.objectLock`,priority=1
// +kubebuilder:printcolumn:name="Lifecycle",type=string,JSONPath=`.status.now.lifecycle`,priority=1
// +kubebuilder:printcolumn:name="CORS",type=string,JSONPath=`.status.now.cors`,priority=1
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.now.usage.bytes`,priority=1
// +kubebuilder:printcolumn:name="Quota",type=string,JSONPath=`.status.now.quota`,priority=1
// +kubebuilder:printcolumn:name="Tags",type=string,JSONPath=`.status.now.tags`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
type BucketSettings struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec BucketSettingsSpec `json:"spec"`
	// +optional
	Status BucketSettingsStatus `json:"status,omitempty"`
}

// BucketSettingsSpec is what the bucket is to have. Fields are called as the
// parameters of a BucketClass, and mean the same.
//
// +kubebuilder:validation:XValidation:rule="!has(self.acl) || !(has(self.grantRead) || has(self.grantWrite) || has(self.grantReadACP) || has(self.grantWriteACP) || has(self.grantFullControl))",message="acl and a grant exclude each other"
// +kubebuilder:validation:XValidation:rule="!has(self.lifecycle) || !(has(self.expireAfterDays) || has(self.noncurrentExpireAfterDays) || has(self.abortUploadsAfterDays))",message="lifecycle and the simple parameters exclude each other"
// +kubebuilder:validation:XValidation:rule="!has(self.cors) || !(has(self.corsOrigins) || has(self.corsMethods))",message="cors and corsOrigins exclude each other"
// +kubebuilder:validation:XValidation:rule="!has(self.corsMethods) || has(self.corsOrigins)",message="corsMethods needs corsOrigins"
// +kubebuilder:validation:XValidation:rule="!has(self.encryption) || !has(self.kmsKey)",message="encryption and kmsKey exclude each other"
// +kubebuilder:validation:XValidation:rule="!has(self.websiteError) || has(self.websiteIndex)",message="websiteError needs websiteIndex"
// +kubebuilder:validation:XValidation:rule="!has(self.objectLock) || !has(self.versioning) || self.versioning != 'Suspended'",message="objectLock and versioning: Suspended contradict each other"
// +kubebuilder:validation:XValidation:rule="!has(self.objectOwnership) || self.objectOwnership != 'BucketOwnerEnforced' || (!has(self.acl) || self.acl == 'private') && !(has(self.grantRead) || has(self.grantWrite) || has(self.grantReadACP) || has(self.grantWriteACP) || has(self.grantFullControl))",message="an ACL and objectOwnership: BucketOwnerEnforced contradict each other"
// +kubebuilder:validation:XValidation:rule="!has(self.blockPublicAccess) || !('BlockPublicAcls' in self.blockPublicAccess) || !has(self.acl) || self.acl == 'private'",message="a public acl and blockPublicAccess: BlockPublicAcls contradict each other"
type BucketSettingsSpec struct {
	// bucketClaimName names a BucketClaim of this namespace, whose bucket this driver has
	// made. It cannot be changed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="bucketClaimName cannot be changed; make other BucketSettings"
	BucketClaimName string `json:"bucketClaimName"`

	// objectOwnership says whose the objects are that others write, and whether ACLs
	// count at all.
	// +optional
	// +kubebuilder:validation:Enum=BucketOwnerEnforced;BucketOwnerPreferred;ObjectWriter
	ObjectOwnership string `json:"objectOwnership,omitempty"`
	// blockPublicAccess is what the service refuses or ignores that would make the bucket
	// public; [] is nothing.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=BlockPublicAcls;IgnorePublicAcls;BlockPublicPolicy;RestrictPublicBuckets
	BlockPublicAccess []string `json:"blockPublicAccess,omitzero"`
	// acl is S3's canned ACL for the bucket; not together with a grant.
	// +optional
	// +kubebuilder:validation:Enum=private;public-read;public-read-write;authenticated-read
	ACL string `json:"acl,omitempty"`
	// grantRead are grantees with READ on the bucket, each id=…, uri=… or
	// emailAddress=….
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	GrantRead []Grantee `json:"grantRead,omitempty"`
	// grantWrite are grantees with WRITE.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	GrantWrite []Grantee `json:"grantWrite,omitempty"`
	// grantReadACP are grantees with READ_ACP.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	GrantReadACP []Grantee `json:"grantReadACP,omitempty"`
	// grantWriteACP are grantees with WRITE_ACP.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	GrantWriteACP []Grantee `json:"grantWriteACP,omitempty"`
	// grantFullControl are grantees with FULL_CONTROL.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	GrantFullControl []Grantee `json:"grantFullControl,omitempty"`
	// policy is the bucket policy, a JSON document; ${bucket} and ${contract} in it are
	// replaced with the names of the two. Whether it can be read is told by the condition
	// Accepted.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=20480
	Policy string `json:"policy,omitempty"`
	// versioning says whether the bucket keeps the versions of its objects. What was
	// enabled cannot be undone: without it versioning is suspended.
	// +optional
	// +kubebuilder:validation:Enum=Enabled;Suspended
	Versioning string `json:"versioning,omitempty"`
	// objectLock is Enabled, or a default retention such as GOVERNANCE:30d or
	// COMPLIANCE:7y. A lock can never be turned off, and many services give it to new
	// buckets only.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^(Enabled|(GOVERNANCE|COMPLIANCE):([1-9][0-9]{0,3}d|[1-9][0-9]?y))$`
	ObjectLock string `json:"objectLock,omitempty"`
	// expireAfterDays: objects are deleted so many days after they were written.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ExpireAfterDays *int32 `json:"expireAfterDays,omitempty"`
	// noncurrentExpireAfterDays: versions of objects are deleted so many days after they
	// were replaced.
	// +optional
	// +kubebuilder:validation:Minimum=1
	NoncurrentExpireAfterDays *int32 `json:"noncurrentExpireAfterDays,omitempty"`
	// abortUploadsAfterDays: unfinished uploads are given up so many days after they were
	// begun.
	// +optional
	// +kubebuilder:validation:Minimum=1
	AbortUploadsAfterDays *int32 `json:"abortUploadsAfterDays,omitempty"`
	// lifecycle is the whole lifecycle configuration, {"Rules": […]} in JSON; not
	// together with the simple fields.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=20480
	Lifecycle string `json:"lifecycle,omitempty"`
	// corsOrigins: web pages of these origins may use the bucket in a browser.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:Pattern=`^(\*|[a-z][a-z0-9+.-]*://[^/*,\s]*\*?[^/*,\s]*)$`
	CORSOrigins []string `json:"corsOrigins,omitempty"`
	// corsMethods is what they may do; by default GET and HEAD.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:Enum=GET;PUT;POST;DELETE;HEAD
	CORSMethods []string `json:"corsMethods,omitempty"`
	// cors is the whole CORS configuration, {"CORSRules": […]} in JSON; not together with
	// the simple fields.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=20480
	CORS string `json:"cors,omitempty"`
	// encryption is how objects are encrypted that come without a word on it.
	// +optional
	// +kubebuilder:validation:Enum=AES256;"aws:kms"
	Encryption string `json:"encryption,omitempty"`
	// kmsKey is encryption with this key of the service's key service.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^[!-~]+$`
	KMSKey string `json:"kmsKey,omitempty"`
	// websiteIndex makes the bucket a web site; who may read it is for acl or policy to
	// say.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[^/]+$`
	WebsiteIndex string `json:"websiteIndex,omitempty"`
	// websiteError is what the web site shows when there is no such page.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	WebsiteError string `json:"websiteError,omitempty"`
	// requestPayer says who pays for requests and transfer.
	// +optional
	// +kubebuilder:validation:Enum=BucketOwner;Requester
	RequestPayer string `json:"requestPayer,omitempty"`
	// maxBytes is how much the bucket may hold, in bytes, a multiple of 1024.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:MultipleOf=1024
	MaxBytes *int64 `json:"maxBytes,omitempty"`
	// maxObjects is how many objects the bucket may hold, old versions among them.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxObjects *int64 `json:"maxObjects,omitempty"`
	// tags are the bucket's, beside the driver's own, and in place of those of its class.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=49
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() > 0 && key.size() <= 128 && key == key.trim() && !key.contains(',') && !key.contains('=') && self[key] == self[key].trim() && !self[key].contains(','))",message="a key is 1 to 128 characters without comma and =, a value has no comma, and neither has white space around it"
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.matches('^((?i:aws:)|contract-cosi-driver/)'))",message="keys that begin with aws: or contract-cosi-driver/ are reserved"
	Tags map[string]TagValue `json:"tags,omitempty"`
}

// Grantee has a grant in an ACL: id=…, uri=… or emailAddress=….
//
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:Pattern=`^(id|uri|emailAddress)=[^,"\s]+$`
type Grantee string

// TagValue is the value of a tag.
//
// +kubebuilder:validation:MaxLength=256
type TagValue string

// BucketSettingsStatus is what there is.
type BucketSettingsStatus struct {
	// observedGeneration is the generation that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// bucket is the id of the claim's bucket: backend, contract and the bucket's name.
	// +optional
	Bucket string `json:"bucket,omitempty"`
	// now is what the bucket has at the service. It is read after each change, and now
	// and then.
	// +optional
	Now *BucketNow `json:"now,omitempty"`
	// conditions: Accepted says whether the settings can be read and the contract allows
	// them, Ready whether the claim's bucket has them, and InSync whether it is as its
	// class and the settings say.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// BucketNow is what a bucket has at the service, also what others have set. What was never
// set, and what the service does not have, is left out.
type BucketNow struct {
	// objectOwnership is whose the objects of others are.
	// +optional
	ObjectOwnership string `json:"objectOwnership,omitempty"`
	// blockPublicAccess is what the service refuses or ignores that would make the bucket
	// public.
	// +optional
	BlockPublicAccess string `json:"blockPublicAccess,omitempty"`
	// acl has the grants to others than the owner.
	// +optional
	ACL string `json:"acl,omitempty"`
	// policy is the bucket policy without the statements for keys that the driver has
	// given.
	// +optional
	Policy string `json:"policy,omitempty"`
	// publicBy is what opens the bucket to the public: acl or policy.
	// +optional
	// +listType=atomic
	PublicBy []string `json:"publicBy,omitempty"`
	// versioning is Enabled or Suspended.
	// +optional
	Versioning string `json:"versioning,omitempty"`
	// objectLock is Enabled, or the default retention.
	// +optional
	ObjectLock string `json:"objectLock,omitempty"`
	// lifecycle is the lifecycle configuration.
	// +optional
	Lifecycle string `json:"lifecycle,omitempty"`
	// cors is the CORS configuration.
	// +optional
	CORS string `json:"cors,omitempty"`
	// encryption is the algorithm, with the key after it if one is named.
	// +optional
	Encryption string `json:"encryption,omitempty"`
	// website has the index page and the page for errors.
	// +optional
	Website string `json:"website,omitempty"`
	// requestPayer is who pays, if it is not the bucket's owner.
	// +optional
	RequestPayer string `json:"requestPayer,omitempty"`
	// quota is how much the bucket may hold.
	// +optional
	Quota string `json:"quota,omitempty"`
	// usage is what the bucket holds, where the service tells.
	// +optional
	Usage *Usage `json:"usage,omitempty"`
	// tags are the bucket's, but for the driver's own.
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
}

// BucketSettingsList is a list of them.
//
// +kubebuilder:object:root=true
type BucketSettingsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BucketSettings `json:"items"`
}
