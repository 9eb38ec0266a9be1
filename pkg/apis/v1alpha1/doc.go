// Package v1alpha1 has the types of the API group contract-cosi.github.io, by which
// contracts are ordered in a cluster: a ContractClass is what the platform offers, a
// Contract is what a tenant orders of it, and BucketSettings are what a team says of a
// bucket.
//
// The types hold what can be said, and nothing of what the driver does about it. The
// comments on them are what kubectl explain prints.
//
// +kubebuilder:object:generate=true
// +groupName=contract-cosi.github.io
package v1alpha1

//go:generate go -C ../../.. tool -modfile=test/controller-gen/go.mod controller-gen object crd paths=./pkg/apis/... output:crd:dir=deploy/crds output:object:dir=pkg/apis/v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion names the group and its version.
var GroupVersion = schema.GroupVersion{Group: "contract-cosi.github.io", Version: "v1alpha1"}

// AddToScheme adds the types to a scheme, for clients.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ContractClass{}, &ContractClassList{}, &Contract{}, &ContractList{}, &BucketSettings{}, &BucketSettingsList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
