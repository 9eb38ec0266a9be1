package contracts

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
)

// order is what a Contract and its ContractClass come to. It is a function of the
// objects alone, so every process comes to the same.
type order struct {
	id    cosi.ContractID
	terms config.Terms
	// The templates of the classes that it gets.
	bucketClasses []v1alpha1.BucketClassTemplate
	accessClasses []v1alpha1.BucketAccessClassTemplate
	// reason and message say why the order is not accepted; "" if it is.
	reason, message string
}

func (o order) accepted() bool { return o.reason == "" }

// Why an order is not accepted.
const (
	noClass             = "NoSuchClass"
	classNotAccepted    = "ClassNotAccepted"
	namespaceNotAllowed = "NamespaceNotAllowed"
	regionNotAllowed    = "RegionNotAllowed"
	quotaTooHigh        = "QuotaTooHigh"
	keyNotAllowed       = "KeyNotAllowed"
	nameTaken           = "NameTaken"
	termsNotPossible    = "NotPossible"
	notKnown            = "NotKnown" // which passes, and is not told
)

// identify returns the name of a contract at the service: the one that the class
// gives it, or one that no other has. It holds the namespace's UID, so that a
// namespace that is re-created does not get what its predecessor had.
func identify(c *v1alpha1.Contract, class *v1alpha1.ContractClass, namespace *corev1.Namespace) string {
	for _, e := range class.Spec.Existing {
		if e.Namespace == c.Namespace && e.Name == c.Name {
			return e.Contract
		}
	}
	return nameOf(c.Name, string(namespace.UID), c.Name)
}

// check says what is wrong with a class, for every order of it.
func check(class *v1alpha1.ContractClass, backends []string) []string {
	faults := termsOf(class).Faults(backends)
	seen := map[string]bool{}
	for _, e := range class.Spec.Existing {
		if seen[e.Contract] {
			faults = append(faults, fmt.Sprintf("existing: contract %q is given to two Contracts", e.Contract))
		}
		seen[e.Contract] = true
	}
	for _, b := range class.Spec.BucketClasses {
		given := map[string]string{"contract": "x"}
		maps.Copy(given, b.Parameters)
		if _, err := params.ParseBucket(given); err != nil {
			faults = append(faults, fmt.Sprintf("bucketClasses %s: %s", b.Name, err))
		}
	}
	for _, a := range class.Spec.BucketAccessClasses {
		if _, err := params.ParseAccess(a.Parameters); err != nil {
			faults = append(faults, fmt.Sprintf("bucketAccessClasses %s: %s", a.Name, err))
		}
	}
	if s := class.Spec.NamespaceSelector; s != nil {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			faults = append(faults, fmt.Sprintf("namespaceSelector: %s", err))
		}
	}
	return faults
}

// orderOf is pure. The class or the namespace may be nil: it is not there, or not
// known yet.
func orderOf(c *v1alpha1.Contract, class *v1alpha1.ContractClass, namespace *corev1.Namespace, backends []string) order {
	refuse := func(reason, format string, args ...any) order {
		return order{reason: reason, message: fmt.Sprintf(format, args...)}
	}
	if class == nil {
		return refuse(noClass, "there is no ContractClass %s; order of one that is listed by kubectl get contractclasses", c.Spec.ClassName)
	}
	if namespace == nil {
		return refuse(notKnown, "namespace %s is not known yet", c.Namespace)
	}
	o := order{
		id: cosi.ContractID{Backend: class.Spec.Backend, Contract: identify(c, class, namespace)}, terms: termsOf(class),
		bucketClasses: class.Spec.BucketClasses, accessClasses: class.Spec.BucketAccessClasses,
	}
	refuse = func(reason, format string, args ...any) order {
		o.reason, o.message = reason, fmt.Sprintf(format, args...)
		return o
	}
	if faults := check(class, backends); len(faults) > 0 {
		return refuse(classNotAccepted, "ContractClass %s cannot be used (%s); ask the platform's operator", class.Name, strings.Join(faults, "; "))
	}
	if !allowed(class, namespace) {
		return refuse(namespaceNotAllowed, "namespace %s may not order of ContractClass %s; ask the platform's operator to label the namespace as the class's namespaceSelector says", c.Namespace, class.Name)
	}
	o.terms.Listed, o.terms.Namespace, o.terms.Suspend = o.id.Contract, c.Namespace, c.Spec.Suspend
	o.terms.DisplayName = c.Spec.DisplayName
	if o.terms.DisplayName == "" {
		o.terms.DisplayName = c.Namespace + "/" + c.Name
	}
	if region := c.Spec.Region; region != "" {
		if !slices.Contains(class.Spec.Regions, region) {
			return refuse(regionNotAllowed, "region %s is not one of ContractClass %s, which has %s; order another Contract with one of these, or with none", region, class.Name, list(class.Spec.Regions))
		}
		o.terms.Region = region
	}
	if c.Spec.KeySecretName != "" && !class.Spec.ExposeKeys {
		return refuse(keyNotAllowed, "ContractClass %s exposes no keys; leave keySecretName out, and get keys by BucketAccesses", class.Name)
	}
	var tooHigh []string
	for _, bound := range []struct {
		name      string
		asked     *int64
		most, has *int64
		into      **int64
	}{
		{"maxBuckets", c.Spec.Quota.MaxBuckets, class.Spec.MaxQuota.MaxBuckets, class.Spec.Quota.MaxBuckets, &o.terms.Quota.MaxBuckets},
		{"maxKeys", c.Spec.Quota.MaxKeys, class.Spec.MaxQuota.MaxKeys, class.Spec.Quota.MaxKeys, &o.terms.Quota.MaxKeys},
		{"maxBytes", c.Spec.Quota.MaxBytes, class.Spec.MaxQuota.MaxBytes, class.Spec.Quota.MaxBytes, &o.terms.Quota.MaxBytes},
		{"maxObjects", c.Spec.Quota.MaxObjects, class.Spec.MaxQuota.MaxObjects, class.Spec.Quota.MaxObjects, &o.terms.Quota.MaxObjects},
	} {
		if bound.asked == nil {
			continue
		}
		most := bound.most
		if most == nil {
			most = bound.has
		}
		switch {
		case most == nil:
			tooHigh = append(tooHigh, fmt.Sprintf("%s cannot be asked for", bound.name))
		case *bound.asked > *most:
			tooHigh = append(tooHigh, fmt.Sprintf("%s is %d, of at most %d", bound.name, *bound.asked, *most))
		default:
			*bound.into = bound.asked
		}
	}
	if len(tooHigh) > 0 {
		return refuse(quotaTooHigh, "quota: %s; ask for less, or the platform's operator for another ContractClass", strings.Join(tooHigh, "; "))
	}
	return o
}

func allowed(class *v1alpha1.ContractClass, namespace *corev1.Namespace) bool {
	selector, err := metav1.LabelSelectorAsSelector(class.Spec.NamespaceSelector) // nil names none
	return err == nil && selector.Matches(labels.Set(namespace.Labels))
}

// termsOf are those of a contract that asks for nothing.
func termsOf(class *v1alpha1.ContractClass) config.Terms {
	s := class.Spec
	t := config.Terms{
		Backend: s.Backend, Plan: s.Plan, Labels: s.Labels, OnLastBucket: config.Keep, Drift: config.DriftMode(s.Drift),
		Quota: config.Quota{MaxBuckets: s.Quota.MaxBuckets, MaxKeys: s.Quota.MaxKeys, MaxBytes: s.Quota.MaxBytes, MaxObjects: s.Quota.MaxObjects},
		Guard: params.Guard{
			Parameters: s.Guard.Parameters, Required: s.Guard.Required, RefusePublic: s.Guard.RefusePublic, Regions: s.Guard.Regions,
			Actions: s.Guard.Actions, MaxKeyLife: s.Guard.MaxKeyLife, RequireRotation: s.Guard.RequireRotation, MaxKeyAge: s.Guard.MaxKeyAge,
			MaxBucketBytes: s.Guard.MaxBucketBytes, MaxBucketObjects: s.Guard.MaxBucketObjects, MaxBuckets: s.Guard.MaxBuckets, MaxKeys: s.Guard.MaxKeys,
		},
		Defaults: params.Defaults{BucketClass: s.Defaults.BucketClass, BucketAccessClass: s.Defaults.BucketAccessClass},
	}
	for _, m := range s.Guard.Modes {
		t.Guard.Modes = append(t.Guard.Modes, cosi.AccessMode(m))
	}
	if len(s.Regions) > 0 {
		t.Region = s.Regions[0]
	}
	return t
}

func list(texts []string) string {
	if len(texts) == 0 {
		return "none to choose from"
	}
	return strings.Join(texts, ", ")
}
