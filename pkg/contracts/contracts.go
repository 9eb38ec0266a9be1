// Package contracts brings about what is ordered in a cluster: of ContractClass and
// Contract objects it makes the terms that the driver goes by, signs the contracts,
// makes the classes by which buckets are claimed under them, and tells in their status
// how far it has come. Of BucketSettings it brings buckets to what a team says of them.
//
// Data goes one way. Objects become an order, by a pure function; orders are the
// terms that every process of the driver knows, beside those of its configuration
// ([Contracts.Terms]); and the one process that may change things brings each
// contract to its order ([Contracts.Run]). Nothing is kept: what is in a status was
// derived, and is derived again if it is lost.
//
// All is level-triggered: a contract is looked at when its objects change, when the
// process becomes the one that changes things, and from time to time, and then
// brought from where it is to where it should be. Each step can be repeated. A write
// to the API server is made only if it changes something.
package contracts

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube/objects"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Config is what a Contracts needs.
type Config struct {
	// At is the API server.
	At *rest.Config
	// Driver is the name that classes give.
	Driver string
	// Backends are the names of the storage services.
	Backends []string
	// Listed reports whether the configuration lists a contract, which is then its own.
	Listed func(contract string) bool
	// Check reports terms that their backend cannot meet. No service is asked.
	Check func(name string, t config.Terms) error
	// ChangesPerSecond is how fast a change of a class spreads.
	ChangesPerSecond int
	// Called is told of each call at the API server.
	Called func(call string, err error)
}

// Provisioner is what brings contracts about; see package provisioner.
type Provisioner interface {
	Sign(ctx context.Context, id cosi.ContractID, terms config.Terms) (contract.Contract, error)
	DescribeContract(ctx context.Context, id cosi.ContractID) (contract.Contract, []string, error)
	Usage(ctx context.Context, id cosi.ContractID) (contract.Usage, error)
	Buckets(ctx context.Context, id cosi.ContractID, limit int) (names []string, count int, err error)
	Cancel(ctx context.Context, id cosi.ContractID) error
	Configure(ctx context.Context, id cosi.BucketID, s *journal.Settings, look bool) (provisioner.Configured, error)
	ContractKey(ctx context.Context, id cosi.ContractID, terms config.Terms) (secret.KeyPair, cosi.Endpoint, error)
	Settled(ctx context.Context) (map[string][]cosi.BucketID, error)
}

// Writer lets one process at a time change things.
type Writer interface {
	EnterIdle(ctx context.Context) (_ context.Context, leave func(), err error)
}

// Contracts are the contracts that are ordered in the cluster.
type Contracts struct {
	Config
	contracts, classes, namespaces cache.SharedIndexInformer
	clients                        struct{ contracts, classes, events, secrets *kube.Client }
	synced                         []cache.InformerSynced
	queue                          workqueue.TypedRateLimitingInterface[work]
	made                           made
	settings                       settings

	mu     sync.Mutex
	orders map[string]order        // by namespace/name of the Contract
	named  map[string][]string     // the Contracts that come to a contract of this name
	signed map[string]config.Terms // what this process has brought a contract to
	looked map[string]bool         // the Contracts that this process has looked at
}

// work is a Contract, by namespace/name, or a ContractClass, or what Contracts have left
// that are gone.
type work struct{ contract, class string }

// How long things take.
const (
	lookAgain      = 10 * time.Minute // after a contract was found as it should be
	waitAgain      = 5 * time.Second  // for what is under way
	idleAgain      = 5 * time.Second  // for the right to change things: after a rollout an order waits so long
	firstWait      = 50 * time.Millisecond
	lastWait       = time.Minute
	syncWait       = 10 * time.Second
	serviceTimeout = time.Minute // for one contract there
	workers        = 8
)

// New returns Contracts; no call is made.
func New(c Config) (*Contracts, error) {
	out := &Contracts{
		Config: c, orders: map[string]order{}, named: map[string][]string{}, signed: map[string]config.Terms{}, looked: map[string]bool{},
	}
	out.queue = newQueue(out.isNew)
	var failed error
	client := func(v schema.GroupVersion, name, kind, verbs string, types ...runtime.Object) *kube.Client {
		client, err := kube.NewClient(c.At, "", kube.Resource{Version: v, Name: name, Kind: kind, Verbs: verbs, Types: types}, c.Called)
		failed = errors.Join(failed, err)
		return client
	}
	out.clients.contracts = client(v1alpha1.GroupVersion, "contracts", "Contract", "list, watch and patch", &v1alpha1.Contract{}, &v1alpha1.ContractList{})
	out.clients.classes = client(v1alpha1.GroupVersion, "contractclasses", "ContractClass", "list, watch and patch", &v1alpha1.ContractClass{}, &v1alpha1.ContractClassList{})
	out.clients.events = client(corev1.SchemeGroupVersion, "events", "Event", "create", &corev1.Event{})
	out.clients.secrets = client(corev1.SchemeGroupVersion, "secrets", "Secret", "get, create, update and delete", &corev1.Secret{})
	namespaces := client(corev1.SchemeGroupVersion, "namespaces", "Namespace", "list and watch", &corev1.Namespace{}, &corev1.NamespaceList{})
	if failed != nil {
		return nil, failed
	}
	for _, f := range []struct {
		into    *cache.SharedIndexInformer
		client  *kube.Client
		example runtime.Object
		list    func() runtime.Object
		changed func(key string)
	}{
		{&out.contracts, out.clients.contracts, &v1alpha1.Contract{}, func() runtime.Object { return &v1alpha1.ContractList{} }, out.contractChanged},
		{&out.classes, out.clients.classes, &v1alpha1.ContractClass{}, func() runtime.Object { return &v1alpha1.ContractClassList{} }, out.classChanged},
		{&out.namespaces, namespaces, &corev1.Namespace{}, func() runtime.Object { return &corev1.NamespaceList{} }, out.namespaceChanged},
	} {
		informer, err := f.client.Follow(f.example, f.list, "")
		if err != nil {
			return nil, err
		}
		if err := informer.SetTransform(essential); err != nil {
			return nil, err
		}
		*f.into = informer
		registered, err := informer.AddEventHandler(handler(f.changed))
		if err != nil {
			return nil, err
		}
		out.synced = append(out.synced, registered.HasSynced)
	}
	if err := out.contracts.AddIndexers(cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, byClass: func(o any) ([]string, error) {
		if obj, ok := o.(*v1alpha1.Contract); ok {
			return []string{obj.Spec.ClassName}, nil
		}
		return nil, nil
	}}); err != nil {
		return nil, err
	}
	return out, out.openSettings()
}

// byClass is an index of Contracts.
const byClass = "class"

// essential leaves out of an object what tenants can write into it, in any size, and the
// driver does not go by: an informer keeps all objects.
func essential(o any) (any, error) {
	if m, ok := o.(metav1.Object); ok {
		m.SetManagedFields(nil)
		m.SetAnnotations(nil)
		if _, selected := o.(*corev1.Namespace); !selected {
			m.SetLabels(nil)
		}
	}
	return o, nil
}

// handler calls changed for each object that is there, and then for each whose
// meaning changes: a status is the driver's own.
func handler(changed func(key string)) cache.ResourceEventHandler {
	do := func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			changed(key)
		}
	}
	update := func(before, now any) {
		a, aOK := before.(metav1.Object)
		b, bOK := now.(metav1.Object)
		if !aOK || !bOK || a.GetUID() != b.GetUID() || a.GetGeneration() != b.GetGeneration() ||
			!maps.Equal(a.GetLabels(), b.GetLabels()) || (a.GetDeletionTimestamp() == nil) != (b.GetDeletionTimestamp() == nil) {
			do(now)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: do, UpdateFunc: update, DeleteFunc: do}
}

// Follow begins to read the objects, until ctx ends, and waits for the first of them
// for a while. A cluster that does not have the types is asked again and again, and
// the driver goes on without.
func (c *Contracts) Follow(ctx context.Context) error {
	for _, informer := range []cache.SharedIndexInformer{c.namespaces, c.classes, c.contracts, c.settings.informer} {
		go informer.RunWithContext(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, syncWait)
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return fault.New(fault.Unavailable, "ContractClasses and Contracts cannot be read yet; are the CustomResourceDefinitions of contract-cosi.github.io installed, and may the driver list and watch them?")
	}
	return nil
}

// Terms returns what a contract that was ordered is signed for; false if there is no
// such contract, or its order is not accepted.
func (c *Contracts) Terms(name string) (config.Terms, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range c.named[name] {
		if o := c.settle(key); o.accepted() {
			return o.terms, true
		}
	}
	return config.Terms{}, false
}

// All are the contracts that are ordered and accepted.
func (c *Contracts) All() []config.Contract {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]config.Contract, 0, len(c.orders))
	for key := range c.orders {
		if o := c.settle(key); o.accepted() {
			out = append(out, config.Contract{Name: o.id.Contract, Terms: o.terms})
		}
	}
	slices.SortFunc(out, func(a, b config.Contract) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// TakenOver looks at everything again, and forgets what was true before this process
// became the one that changes things: another may have changed them since.
func (c *Contracts) TakenOver() {
	c.mu.Lock()
	clear(c.signed)
	clear(c.looked)
	c.mu.Unlock()
	c.Again()
}

// Again looks at everything again: the configuration lists other contracts.
func (c *Contracts) Again() {
	for _, key := range c.contracts.GetStore().ListKeys() {
		c.contractChanged(key)
	}
	for _, name := range c.classes.GetStore().ListKeys() {
		c.queue.Add(work{class: name})
	}
	c.queue.Add(work{})
	c.settingsAgain()
}

// concerned has a Contract looked at, with the settings of its buckets: its terms may be
// others.
func (c *Contracts) concerned(key string, after time.Duration) {
	c.queue.AddAfter(work{contract: key}, after)
	c.settingsConcerned(key, c.order(key), after)
}

func (c *Contracts) settingsConcerned(key string, o order, after time.Duration) {
	namespace, _, _ := strings.Cut(key, "/")
	for _, claim := range c.settings.claimsOf(namespace, o.id.Contract) {
		c.settings.queue.AddAfter(claim, after)
	}
}

// isNew reports whether a user waits for a piece of work: what was ordered is not what
// was last told of. A class tells how far its contracts have come.
func (c *Contracts) isNew(item work) bool {
	obj := get[*v1alpha1.Contract](c.contracts, item.contract)
	return obj == nil || obj.Generation != obj.Status.ObservedGeneration
}

// settle is the order of a Contract, with what concerns others: of two that come to
// one name, and of one that the configuration lists, one has it, also where the order is
// not accepted for another reason: its end is not another's. mu is held.
func (c *Contracts) settle(key string) order {
	o, ok := c.orders[key]
	if !ok || o.id.Contract == "" {
		return o
	}
	if c.Listed(o.id.Contract) {
		o.reason = nameTaken
		o.message = "contract " + o.id.Contract + " is listed in the driver's configuration; take it out there, and this Contract has it"
		return o
	}
	if first := c.named[o.id.Contract][0]; first != key {
		o.reason = nameTaken
		o.message = "contract " + o.id.Contract + " is the one of Contract " + first + "; ask the platform's operator to correct existing of the ContractClasses"
		return o
	}
	if !o.accepted() {
		return o
	}
	if err := c.Check(o.id.Contract, o.terms); err != nil {
		o.reason, o.message = termsNotPossible, err.Error()
	}
	return o
}

// contractChanged makes the order of a Contract again.
func (c *Contracts) contractChanged(key string) {
	for _, other := range c.reorder(key) {
		c.concerned(other, 0)
	}
}

// reorder returns the Contracts that this concerns: it, and those that come to the
// same contract.
func (c *Contracts) reorder(key string) (concerned []string) {
	obj := get[*v1alpha1.Contract](c.contracts, key)
	c.mu.Lock()
	defer c.mu.Unlock()
	concerned = []string{key}
	before, ok := c.orders[key]
	defer func() {
		if ok && before.id != c.orders[key].id { // no one else knows of the buckets that it had
			c.settingsConcerned(key, before, 0)
		}
	}()
	if ok {
		name := before.id.Contract
		c.named[name] = slices.DeleteFunc(c.named[name], func(k string) bool { return k == key })
		concerned = append(concerned, c.named[name]...)
		if len(c.named[name]) == 0 {
			delete(c.named, name)
		}
		delete(c.orders, key)
	}
	if obj == nil {
		return concerned
	}
	o := orderOf(obj, get[*v1alpha1.ContractClass](c.classes, obj.Spec.ClassName), get[*corev1.Namespace](c.namespaces, obj.Namespace), c.Backends)
	c.orders[key] = o
	if name := o.id.Contract; name != "" {
		concerned = append(concerned, c.named[name]...)
		c.named[name] = append(c.named[name], key)
		slices.SortFunc(c.named[name], c.older)
	}
	slices.Sort(concerned)
	return slices.Compact(concerned)
}

// older puts the Contract first that was there first.
func (c *Contracts) older(a, b string) int {
	born := func(key string) time.Time {
		if obj := get[*v1alpha1.Contract](c.contracts, key); obj != nil {
			return obj.CreationTimestamp.Time
		}
		return time.Time{}
	}
	return cmp.Or(born(a).Compare(born(b)), strings.Compare(a, b))
}

// classChanged makes the orders of a class again at once, and lets them arrive at the
// configured pace.
func (c *Contracts) classChanged(name string) {
	n := 0
	c.reorderAll(byClass, name, func(key string) {
		c.concerned(key, time.Duration(n)*time.Second/time.Duration(c.ChangesPerSecond))
		n++
	})
	c.queue.Add(work{class: name})
}

// namespaceChanged makes the orders of a namespace again.
func (c *Contracts) namespaceChanged(name string) {
	c.reorderAll(cache.NamespaceIndex, name, func(key string) { c.concerned(key, 0) })
}

// reorderAll makes the orders again of one value of an index, and tells of those that
// come to something else, always in one order: of two changes one after the other, each
// Contract has its first turn.
func (c *Contracts) reorderAll(index, of string, changed func(key string)) {
	for _, key := range c.keysBy(index, of) {
		before := c.order(key)
		concerned := c.reorder(key)
		if reflect.DeepEqual(before, c.order(key)) {
			continue
		}
		for _, other := range concerned {
			changed(other)
		}
	}
}

// keysBy are the Contracts of one value of an index, sorted.
func (c *Contracts) keysBy(index, of string) []string {
	keys, _ := c.contracts.GetIndexer().IndexKeys(index, of) // an index that is there is no fault
	slices.Sort(keys)
	return keys
}

func (c *Contracts) order(key string) order {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settle(key)
}

// Namespace implements provisioner.Claims.
func (c *Contracts) Namespace(ctx context.Context, bucket string) (string, error) {
	namespace, _, err := c.Claim(ctx, bucket)
	return namespace, err
}

// Claim returns the BucketClaim that a bucket is for: it asks for the Bucket, which
// COSI's controller has made before the driver is called for it.
func (c *Contracts) Claim(ctx context.Context, bucket string) (namespace, name string, err error) {
	at, err := c.made.at(ctx, c)
	if err != nil {
		return "", "", err
	}
	var b objects.Bucket
	err = at.buckets.Do(ctx, "get", &b, func(r *rest.Request) *rest.Request { return r.Name(bucket) })
	if fault.Is(err, fault.NotFound) {
		err = fault.As(fault.Unavailable, err)
	}
	if err != nil {
		return "", "", fault.In(err, "whose claim it is for is not known")
	}
	claim := b.Claim()
	if claim.Namespace == "" {
		return "", "", fault.New(fault.FailedPrecondition, "Bucket %s says no claim that it is for; claim it by a BucketClaim", bucket)
	}
	return claim.Namespace, claim.Name, nil
}

func keyOf(o *v1alpha1.Contract) string { return o.Namespace + "/" + o.Name }

// get is the zero object if there is none. What it returns is not to be changed.
func get[T any](from cache.SharedIndexInformer, key string) (out T) {
	if o, ok, _ := from.GetStore().GetByKey(key); ok {
		out, _ = o.(T)
	}
	return out
}
