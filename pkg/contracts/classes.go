package contracts

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube/objects"
)

// What a class that was made for a Contract carries. Admission reads the namespace.
const (
	namespaceLabel = "contract-cosi.github.io/namespace"
	ownerLabel     = kube.OwnerLabel // which driver made it
	contractMark   = "contract-cosi.github.io/contract"
	templateMark   = "contract-cosi.github.io/template" // a hash of what the driver has made it of
)

// made are the classes that were made for Contracts, once COSI's version is known.
type made struct {
	mu      sync.Mutex
	asked   time.Time
	err     error
	version *cosiObjects
}

// cosiObjects are COSI's objects in the version that the cluster has.
type cosiObjects struct {
	version string
	buckets *kube.Client
	claims  *kube.Client

	following sync.Mutex
	kinds     [2]kindOfClass
}

// The kinds of classes.
const (
	bucketClasses = iota
	accessClasses
)

type kindOfClass struct {
	client   *kube.Client
	informer cache.SharedIndexInformer
	synced   cache.InformerSynced
	kind     string
}

// at returns COSI's objects. Which version the cluster has is asked for until it is
// known, and then never again: another version comes with another sidecar, and so with
// another start.
func (m *made) at(ctx context.Context, c *Contracts) (*cosiObjects, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.version != nil {
		return m.version, nil
	}
	if m.err != nil && time.Since(m.asked) < waitAgain {
		return nil, m.err
	}
	m.version, m.err = c.open(ctx)
	m.asked = time.Now()
	if m.err != nil {
		m.version = nil
	}
	return m.version, m.err
}

func (c *Contracts) open(ctx context.Context) (*cosiObjects, error) {
	versions, err := kube.Versions(ctx, c.At, objects.Group)
	if err != nil {
		return nil, fault.In(err, "which version of COSI the cluster has is not known; are its CustomResourceDefinitions installed?")
	}
	version := schema.GroupVersion{Group: objects.Group, Version: versions[0]}
	out := &cosiObjects{version: version.Version}
	client := func(name, kind, verbs string, types ...runtime.Object) (k *kube.Client) {
		if err == nil {
			k, err = kube.NewClient(c.At, "", kube.Resource{Version: version, Name: name, Kind: kind, Verbs: verbs, Types: types}, c.Called)
		}
		return k
	}
	out.buckets = client("buckets", "Bucket", "get", &objects.Bucket{})
	out.claims = client("bucketclaims", "BucketClaim", "list and watch", &objects.BucketClaim{}, &objects.BucketClaimList{})
	const verbs = "list, watch, patch, create and delete"
	out.kinds = [2]kindOfClass{
		{client: client("bucketclasses", "BucketClass", verbs, &objects.BucketClass{}, &objects.BucketClassList{}), kind: "BucketClass"},
		{client: client("bucketaccessclasses", "BucketAccessClass", verbs, &objects.BucketAccessClass{}, &objects.BucketAccessClassList{}), kind: "BucketAccessClass"},
	}
	return out, err
}

// follow begins to read the classes that are there, and waits for the first of them for a
// while.
func (o *cosiObjects) follow(ctx context.Context, c *control) error {
	if err := o.start(c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, syncWait)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), o.kinds[bucketClasses].synced, o.kinds[accessClasses].synced) {
		return fault.New(fault.Unavailable, "COSI's classes cannot be read yet; may the driver list and watch bucketclasses and bucketaccessclasses?")
	}
	return nil
}

func (o *cosiObjects) start(c *control) error {
	selector := namespaceLabel + "," + ownerLabel + "=" + kube.OwnerMark(c.Driver)
	o.following.Lock()
	defer o.following.Unlock()
	for i := range o.kinds {
		k := &o.kinds[i]
		if k.informer != nil {
			continue
		}
		var example, list runtime.Object = &objects.BucketClass{}, &objects.BucketClassList{}
		if i == accessClasses {
			example, list = &objects.BucketAccessClass{}, &objects.BucketAccessClassList{}
		}
		informer, err := k.client.Follow(example, list.DeepCopyObject, selector)
		if err != nil {
			return err
		}
		err = informer.AddIndexers(cache.Indexers{contractMark: func(o any) ([]string, error) { return []string{classOf(o).Annotations[contractMark]}, nil }})
		if err != nil {
			return err
		}
		registered, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(o any, first bool) { // what is there at the start is looked at with its Contract, if that is there
				if !first || get[*v1alpha1.Contract](c.contracts, classOf(o).Annotations[contractMark]) == nil {
					c.classChangedOf(o)
				}
			},
			UpdateFunc: func(_, now any) { c.classChangedOf(now) },
			DeleteFunc: c.classChangedOf,
		})
		if err != nil {
			return err
		}
		k.informer, k.synced = informer, registered.HasSynced
		c.begin(informer)
	}
	return nil
}

// classChangedOf has the Contract looked at whose class it is.
func (c *Contracts) classChangedOf(o any) {
	c.queue.Add(work{contract: classOf(o).Annotations[contractMark]})
}

// classOf is the class that an informer tells of, which knows no other objects.
func classOf(o any) *objects.Class {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	switch o := o.(type) {
	case *objects.BucketClass:
		return &o.Class
	case *objects.BucketAccessClass:
		return &o.Class
	}
	return &objects.Class{}
}

// wanted are the classes of one kind that a Contract should have, by their names.
func (o *cosiObjects) wanted(kind int, driver, key string, from order) (map[string]objects.Class, []v1alpha1.ClassName) {
	out, names := map[string]objects.Class{}, []v1alpha1.ClassName{}
	add := func(template string, says objects.ClassSpec) {
		name := classNameOf(key, template)
		says.DriverName = driver
		out[name] = objects.NewClass(o.version, metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{namespaceLabel: from.terms.Namespace, ownerLabel: kube.OwnerMark(driver)},
			Annotations: map[string]string{contractMark: key, templateMark: hashOf(says.DeletionPolicy, fmt.Sprint(says.Parameters))},
		}, says)
		names = append(names, v1alpha1.ClassName{Template: template, Name: name})
	}
	if kind == bucketClasses {
		for _, t := range from.bucketClasses {
			parameters := maps.Clone(t.Parameters)
			if parameters == nil {
				parameters = map[string]string{}
			}
			parameters["contract"] = from.id.Contract
			add(t.Name, objects.ClassSpec{DeletionPolicy: t.DeletionPolicy, Parameters: parameters})
		}
		return out, names
	}
	for _, t := range from.accessClasses {
		add(t.Name, objects.ClassSpec{AuthenticationType: "Key", Parameters: t.Parameters})
	}
	return out, names
}

// there are the classes of a kind that were made for a Contract.
func (k kindOfClass) there(key string) map[string]*objects.Class {
	out := map[string]*objects.Class{}
	classes, _ := k.informer.GetIndexer().ByIndex(contractMark, key) // an index that is there is no fault
	for _, o := range classes {
		class := classOf(o)
		out[class.Name] = class
	}
	return out
}

// bring makes the classes of a kind as they should be. What COSI keeps immutable is
// deleted and re-created: COSI has copied what buckets need of it. One that is not as it
// was applied is applied again: a class that someone has changed is put right, and one
// that the API server keeps otherwise makes no loop.
func (o *cosiObjects) bring(ctx context.Context, kind int, key string, should map[string]objects.Class) error {
	k := o.kinds[kind]
	is := k.there(key)
	for _, name := range slices.Sorted(maps.Keys(is)) {
		class, ok := should[name]
		if ok = ok && class.Annotations[templateMark] == is[name].Annotations[templateMark]; !ok {
			if err := o.remove(ctx, kind, is[name]); err != nil {
				return err
			}
		}
		if !ok || !class.Says().Within(is[name].Says()) || class.Labels[namespaceLabel] != is[name].Labels[namespaceLabel] {
			delete(is, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(should)) {
		if is[name] != nil {
			continue
		}
		class := should[name]
		class.APIVersion, class.Kind = objects.Group+"/"+o.version, k.kind
		if err := k.client.Apply(ctx, "", name, "", class); err != nil {
			return fault.In(err, "%s %s", k.kind, name)
		}
	}
	return nil
}

func (o *cosiObjects) remove(ctx context.Context, kind int, class *objects.Class) error {
	options := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}, Preconditions: &metav1.Preconditions{UID: &class.UID}}
	err := o.kinds[kind].client.Do(ctx, "delete", nil, func(r *rest.Request) *rest.Request { return r.Name(class.Name).Body(options) })
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return fault.In(err, "%s %s", o.kinds[kind].kind, class.Name)
}
