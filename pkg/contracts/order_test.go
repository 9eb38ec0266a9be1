package contracts

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
)

func number(n int64) *int64 { return &n }

// offered is a class of which blue namespaces may order.
func offered() *v1alpha1.ContractClass {
	return &v1alpha1.ContractClass{ObjectMeta: metav1.ObjectMeta{Name: "standard"}, Spec: v1alpha1.ContractClassSpec{
		Backend: "main", Regions: []string{"eu", "us"}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "blue"}},
		Quota: v1alpha1.Quota{MaxBuckets: number(5), MaxKeys: number(7)}, MaxQuota: v1alpha1.Quota{MaxBuckets: number(10)},
	}}
}

func namespaced(name, uid, team string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Labels: map[string]string{"team": team}}}
}

func TestOrders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*v1alpha1.Contract, *v1alpha1.ContractClass, *corev1.Namespace)
		reason string
		terms  func(config.Terms) bool
	}{
		"what the class says": {func(*v1alpha1.Contract, *v1alpha1.ContractClass, *corev1.Namespace) {}, "", func(t config.Terms) bool {
			return *t.Quota.MaxBuckets == 5 && t.Region == "eu" && t.Namespace == "blue" && t.DisplayName == "blue/media" && t.OnLastBucket == config.Keep && t.Listed != ""
		}},
		"what the Contract asks for": {func(c *v1alpha1.Contract, _ *v1alpha1.ContractClass, _ *corev1.Namespace) {
			c.Spec = v1alpha1.ContractSpec{Region: "us", DisplayName: "Media", Suspend: true, Quota: v1alpha1.Quota{MaxBuckets: number(10), MaxKeys: number(7)}}
		}, "", func(t config.Terms) bool {
			return *t.Quota.MaxBuckets == 10 && *t.Quota.MaxKeys == 7 && t.Region == "us" && t.DisplayName == "Media" && t.Suspend
		}},
		"above the ceiling": {func(c *v1alpha1.Contract, _ *v1alpha1.ContractClass, _ *corev1.Namespace) {
			c.Spec.Quota.MaxBuckets = number(11)
		}, quotaTooHigh, nil},
		"above what has no ceiling": {func(c *v1alpha1.Contract, _ *v1alpha1.ContractClass, _ *corev1.Namespace) {
			c.Spec.Quota.MaxKeys = number(8)
		}, quotaTooHigh, nil},
		"a bound that the class does not have": {func(c *v1alpha1.Contract, _ *v1alpha1.ContractClass, _ *corev1.Namespace) {
			c.Spec.Quota.MaxBytes = number(8)
		}, quotaTooHigh, nil},
		"another region": {func(c *v1alpha1.Contract, _ *v1alpha1.ContractClass, _ *corev1.Namespace) { c.Spec.Region = "mars" }, regionNotAllowed, nil},
		"another namespace": {func(_ *v1alpha1.Contract, _ *v1alpha1.ContractClass, n *corev1.Namespace) {
			n.Labels["team"] = "red"
		}, namespaceNotAllowed, nil},
		"no namespace is selected": {func(_ *v1alpha1.Contract, class *v1alpha1.ContractClass, _ *corev1.Namespace) {
			class.Spec.NamespaceSelector = nil
		}, namespaceNotAllowed, nil},
		"everyone may": {func(_ *v1alpha1.Contract, class *v1alpha1.ContractClass, n *corev1.Namespace) {
			class.Spec.NamespaceSelector, n.Labels = &metav1.LabelSelector{}, nil
		}, "", func(config.Terms) bool { return true }},
		"no such backend": {func(_ *v1alpha1.Contract, class *v1alpha1.ContractClass, _ *corev1.Namespace) {
			class.Spec.Backend = "other"
		}, classNotAccepted, nil},
		"a default that is no parameter": {func(_ *v1alpha1.Contract, class *v1alpha1.ContractClass, _ *corev1.Namespace) {
			class.Spec.Defaults.BucketClass = map[string]string{"versionning": "Enabled"}
		}, classNotAccepted, nil},
		"a template that is no class": {func(_ *v1alpha1.Contract, class *v1alpha1.ContractClass, _ *corev1.Namespace) {
			class.Spec.BucketClasses = []v1alpha1.BucketClassTemplate{{Name: "x", Parameters: map[string]string{"versioning": "Perhaps"}}}
		}, classNotAccepted, nil},
		"a template that is no access class": {func(_ *v1alpha1.Contract, class *v1alpha1.ContractClass, _ *corev1.Namespace) {
			class.Spec.BucketAccessClasses = []v1alpha1.BucketAccessClassTemplate{{Name: "x", Parameters: map[string]string{"acess": "ReadOnly"}}}
		}, classNotAccepted, nil},
		"one contract given twice": {func(_ *v1alpha1.Contract, class *v1alpha1.ContractClass, _ *corev1.Namespace) {
			class.Spec.Existing = []v1alpha1.ExistingContract{{Namespace: "blue", Name: "media", Contract: "old"}, {Namespace: "red", Name: "media", Contract: "old"}}
		}, classNotAccepted, nil},
		"an existing contract": {func(_ *v1alpha1.Contract, class *v1alpha1.ContractClass, _ *corev1.Namespace) {
			class.Spec.Existing = []v1alpha1.ExistingContract{{Namespace: "red", Name: "media", Contract: "other"}, {Namespace: "blue", Name: "media", Contract: "old"}}
		}, "", func(t config.Terms) bool { return t.Listed == "old" }},
	} {
		contract := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "media"}}
		class, namespace := offered(), namespaced("blue", "uid-1", "blue")
		c.change(contract, class, namespace)
		o := orderOf(contract, class, namespace, []string{"main"})
		if o.reason != c.reason || (o.message == "") != (c.reason == "") {
			t.Errorf("%s: %q: %s", name, o.reason, o.message)
		}
		if c.terms != nil && !c.terms(o.terms) {
			t.Errorf("%s: the terms are %+v", name, o.terms)
		}
	}
	for name, o := range map[string]order{
		noClass:  orderOf(&v1alpha1.Contract{}, nil, namespaced("blue", "", "blue"), nil),
		notKnown: orderOf(&v1alpha1.Contract{}, offered(), nil, nil),
	} {
		if o.reason != name {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// Two Contracts are never one contract, and what the driver makes up is nothing that
// a configuration can hand out, and fits in ids and labels.
func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	class := offered()
	for _, uid := range []string{"uid-1", "uid-2"} {
		for _, namespace := range []string{"a", "a-b"} {
			for _, name := range []string{"c", "b-c", "b.c", "b--c", "0", strings.Repeat("long.", 50) + "1", strings.Repeat("long.", 50) + "2"} {
				c := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
				made := identify(c, class, namespaced(namespace, uid+namespace, ""))
				what := fmt.Sprint(uid, namespace, name)
				if other := seen[made]; other != "" {
					t.Errorf("%s and %s are both %s", what, other, made)
				}
				seen[made] = what
				id := cosi.ContractID{Backend: strings.Repeat("b", 22), Contract: made}
				if parsed, err := cosi.ParseContractID(id.String()); err != nil || parsed != id || len(made) > 40 || !Reserved(made) {
					t.Errorf("%s: %s has %d characters: %v, %v", what, made, len(made), parsed, err)
				}
			}
		}
	}
	for _, name := range []string{"team-acknowledgements", "tenant-a", "x--acknowledgement", "media--ABCDEFGHIJKLMNOP", "--abcdefghijklmnop"} {
		if Reserved(name) {
			t.Errorf("%s cannot be had", name)
		}
	}
}
