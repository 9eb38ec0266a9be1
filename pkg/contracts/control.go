package contracts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
)

// finalizer keeps a Contract until what was made for it is gone.
const finalizer = "contract-cosi.github.io/contract"

// control is the part of Contracts that changes things.
type control struct {
	*Contracts
	provisioner Provisioner
	writer      Writer
	begin       func(cache.SharedIndexInformer) // runs one as long as the control
}

// Run brings contracts to their orders until ctx ends, while this process may change
// things.
func (c *Contracts) Run(ctx context.Context, p Provisioner, w Writer) {
	k := &control{Contracts: c, provisioner: p, writer: w, begin: func(i cache.SharedIndexInformer) { go i.RunWithContext(ctx) }}
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return
	}
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for serve(ctx, c.queue, k.do) {
			}
		})
	}
	working.Go(func() { k.runSettings(ctx) })
	working.Wait()
}

// serve does one piece of work of a queue. False if there will be none.
func serve[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], do func(context.Context, T) (time.Duration, error)) bool {
	item, end := queue.Get()
	if end {
		return false
	}
	defer queue.Done(item)
	again, err := try(ctx, item, do)
	switch {
	case err == nil:
		queue.Forget(item)
		if again > 0 {
			queue.AddAfter(item, again)
		}
	case again > 0 && fault.Is(err, fault.Pending): // the service says when
		queue.AddAfter(item, again)
	default:
		klog.FromContext(ctx).V(2).Info("It is tried again", "item", item, "reason", err)
		queue.AddRateLimited(item)
	}
	return true
}

// try does the work. A defect that one object brings to light is no reason to serve
// none.
func try[T comparable](ctx context.Context, item T, do func(context.Context, T) (time.Duration, error)) (again time.Duration, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fault.New(fault.Internal, "a defect of the driver: %v", r)
			klog.FromContext(ctx).Error(err, "A defect was met; please report it", "item", item, "stack", string(debug.Stack()))
		}
	}()
	return do(ctx, item)
}

func (k *control) do(ctx context.Context, item work) (again time.Duration, err error) {
	ctx, leave, err := k.writer.EnterIdle(ctx)
	if err != nil {
		return idleAgain, nil // another process does it; or this one when it has the right again
	}
	defer leave()
	if item == (work{}) {
		_, err := k.cosi(ctx) // each class has its Contract looked for
		return 0, fault.IgnoreNotFound(err)
	}
	if item.contract == "" {
		return k.class(ctx, item.class)
	}
	obj := get[*v1alpha1.Contract](k.contracts, item.contract)
	if obj == nil {
		return 0, k.sweep(ctx, item.contract)
	}
	again, err = k.contract(ctx, obj)
	k.mu.Lock()
	k.looked[item.contract] = true
	k.mu.Unlock()
	k.queue.AddAfter(work{class: obj.Spec.ClassName}, time.Second)
	return again, err
}

// contract brings one contract to its order.
func (k *control) contract(ctx context.Context, obj *v1alpha1.Contract) (again time.Duration, err error) {
	o := k.order(keyOf(obj))
	if o.reason == notKnown {
		return time.Second, nil
	}
	status := obj.Status.DeepCopy()
	status.ObservedGeneration = obj.Generation
	if obj.DeletionTimestamp != nil {
		return k.release(ctx, obj, status, o)
	}
	if !o.accepted() {
		set(obj, &status.Conditions, v1alpha1.Accepted, metav1.ConditionFalse, o.reason, o.message)
		set(obj, &status.Conditions, v1alpha1.Ready, metav1.ConditionFalse, o.reason, o.message)
		if o.reason == keyNotAllowed { // its class has taken that back
			err = k.takeKey(ctx, obj, status)
		}
		return 0, errors.Join(err, k.tell(ctx, obj, status))
	}
	set(obj, &status.Conditions, v1alpha1.Accepted, metav1.ConditionTrue, "Accepted", "the order is as its ContractClass allows")
	status.Contract = o.id.Contract
	if status.Quota = (&v1alpha1.Quota{MaxBuckets: o.terms.Quota.MaxBuckets, MaxKeys: o.terms.Quota.MaxKeys, MaxBytes: o.terms.Quota.MaxBytes, MaxObjects: o.terms.Quota.MaxObjects}); *status.Quota == (v1alpha1.Quota{}) {
		status.Quota = nil
	}
	if err := k.hold(ctx, obj, true); err != nil {
		return 0, err
	}
	again, signErr := k.sign(ctx, obj, status, o)
	classErr := k.giveClasses(ctx, obj, status, o)
	var keyErr error
	if signErr == nil {
		keyErr = k.giveKey(ctx, obj, status, o)
	}
	switch {
	case signErr != nil: // it is told
	case status.State == string(contract.StateSuspended):
		set(obj, &status.Conditions, v1alpha1.Ready, metav1.ConditionFalse, "Suspended", "the contract is suspended by spec.suspend; set it to false to use the contract again")
	case classErr != nil:
		set(obj, &status.Conditions, v1alpha1.Ready, metav1.ConditionFalse, "ClassesMissing", "the contract is signed, and the classes to claim its buckets by cannot be made: "+classErr.Error())
	case keyErr != nil:
		set(obj, &status.Conditions, v1alpha1.Ready, metav1.ConditionFalse, "KeyMissing", "the contract is signed, and its key cannot be put into a Secret: "+keyErr.Error())
	default:
		set(obj, &status.Conditions, v1alpha1.Ready, metav1.ConditionTrue, "Active", "buckets can be claimed")
	}
	if err := k.tell(ctx, obj, status); err != nil {
		return 0, err
	}
	if err := errors.Join(signErr, classErr, keyErr); err != nil {
		return again, err
	}
	return lookAgain, nil
}

// sign signs a contract, or brings it to its terms if they have changed since this
// process did so. Otherwise it only looks: what someone has changed by hand at the
// service is told, and repaired if the class's drift says so.
func (k *control) sign(ctx context.Context, obj *v1alpha1.Contract, status *v1alpha1.ContractStatus, o order) (again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	key := keyOf(obj)
	k.mu.Lock()
	before, known := k.signed[key]
	k.mu.Unlock()
	var have contract.Contract
	var differing []string
	if known && reflect.DeepEqual(before, o.terms) {
		have, differing, err = k.provisioner.DescribeContract(ctx, o.id)
		if err == nil {
			err = usable(have, o.terms.Suspend)
		}
	}
	if !known || !reflect.DeepEqual(before, o.terms) || fault.Is(err, fault.NotFound) {
		have, err = k.provisioner.Sign(ctx, o.id, o.terms)
		differing = nil
	}
	if have.Name != "" {
		status.State = string(have.State)
		status.Endpoints = nil
		for _, e := range have.Endpoints {
			status.Endpoints = append(status.Endpoints, v1alpha1.Endpoint{Region: e.Region, URL: e.URL})
		}
	}
	if err == nil {
		k.mu.Lock()
		k.signed[key] = o.terms
		k.mu.Unlock()
	}
	if _, n, usedErr := k.provisioner.Buckets(ctx, o.id, 0); usedErr == nil {
		status.Buckets = int64(n)
	}
	switch kind := fault.KindOf(err); {
	case err == nil:
		if len(differing) > 0 {
			set(obj, &status.Conditions, v1alpha1.InSync, metav1.ConditionFalse, "Changed", "the service has other terms ("+strings.Join(differing, ", ")+"), which someone has changed there; let drift of the ContractClass repair it, or change the Contract")
		} else {
			set(obj, &status.Conditions, v1alpha1.InSync, metav1.ConditionTrue, "AsOrdered", "the contract at the service is as ordered")
		}
		if used, err := k.provisioner.Usage(ctx, o.id); err == nil {
			status.Usage = &v1alpha1.Usage{Bytes: used.Bytes, Objects: used.Objects}
			if *status.Usage == (v1alpha1.Usage{}) {
				status.Usage = nil
			}
		}
		return 0, nil
	case kind == fault.Unavailable || kind == fault.RateLimited || kind == fault.Canceled:
		// What was ready still is, as far as anyone knows, unless something else is ordered now.
		set(obj, &status.Conditions, v1alpha1.InSync, metav1.ConditionUnknown, string(fault.Unavailable), err.Error())
		if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.Ready); ready == nil || ready.ObservedGeneration != obj.Generation {
			set(obj, &status.Conditions, v1alpha1.Ready, metav1.ConditionFalse, string(fault.Unavailable), err.Error())
		}
	default:
		if o.terms.Suspend || have.State != contract.StateSuspended {
			set(obj, &status.Conditions, v1alpha1.InSync, metav1.ConditionFalse, string(kind), err.Error())
		}
		set(obj, &status.Conditions, v1alpha1.Ready, metav1.ConditionFalse, string(kind), err.Error())
	}
	if f, ok := errors.AsType[*fault.Error](err); ok && f.Kind == fault.Pending {
		return max(min(f.RetryAfter, time.Minute), waitAgain/5), err
	}
	return 0, err
}

// usable says why a contract that was only looked at takes no buckets, unless it is
// suspended by its order.
func usable(have contract.Contract, suspend bool) error {
	switch {
	case have.State == contract.StateActive, suspend && have.State == contract.StateSuspended:
		return nil
	case have.State == contract.StatePending || have.State == contract.StateCancelling:
		return fault.New(fault.Pending, "contract %s is %s at the service; it is looked at again", have.Name, strings.ToLower(string(have.State)))
	}
	return fault.New(fault.FailedPrecondition, "contract %s is %s at the service; ask the platform's operator", have.Name, strings.ToLower(string(have.State)))
}

// giveClasses makes the classes of a contract.
func (k *control) giveClasses(ctx context.Context, obj *v1alpha1.Contract, status *v1alpha1.ContractStatus, o order) error {
	at, err := k.cosi(ctx)
	if err != nil {
		return err
	}
	for kind, into := range []*[]v1alpha1.ClassName{bucketClasses: &status.BucketClasses, accessClasses: &status.BucketAccessClasses} {
		should, names := at.wanted(kind, k.Driver, keyOf(obj), o)
		if err := at.bring(ctx, kind, keyOf(obj), should); err != nil {
			return err
		}
		*into = names
	}
	return nil
}

// cosi returns COSI's objects, with the classes that are there.
func (k *control) cosi(ctx context.Context) (*cosiObjects, error) {
	at, err := k.made.at(ctx, k.Contracts)
	if err != nil {
		return nil, err
	}
	return at, at.follow(ctx, k)
}

// sweep takes away what was made for a Contract that is gone: someone has taken the
// finalizer off. The contract at the service stays.
func (k *control) sweep(ctx context.Context, key string) error {
	k.mu.Lock()
	delete(k.signed, key)
	delete(k.looked, key)
	k.mu.Unlock()
	for _, name := range k.classes.GetStore().ListKeys() { // one of which has a Contract less
		k.queue.AddAfter(work{class: name}, time.Second)
	}
	return errors.Join(k.takeClasses(ctx, key, bucketClasses), k.takeClasses(ctx, key, accessClasses))
}

// takeClasses deletes the classes of a kind that were made for a Contract.
func (k *control) takeClasses(ctx context.Context, key string, kind int) error {
	at, err := k.cosi(ctx)
	if err != nil {
		return fault.IgnoreNotFound(err) // a cluster without COSI has none
	}
	return at.bring(ctx, kind, key, nil)
}

// namedBuckets is how many buckets a condition names.
const namedBuckets = 5

// release lets a Contract go: first nothing new can be claimed, then its buckets have
// to be gone, then it is cancelled if it says so, and then nothing of it is left.
func (k *control) release(ctx context.Context, obj *v1alpha1.Contract, status *v1alpha1.ContractStatus, o order) (time.Duration, error) {
	if !slices.Contains(obj.Finalizers, finalizer) {
		return 0, nil
	}
	wait := func(err error, reason, text string) (time.Duration, error) {
		set(obj, &status.Conditions, v1alpha1.Ready, metav1.ConditionFalse, reason, text)
		return waitAgain, errors.Join(err, k.tell(ctx, obj, status))
	}
	if err := k.takeClasses(ctx, keyOf(obj), bucketClasses); err != nil {
		return wait(err, "ClassesLeft", "the BucketClasses that were made for it cannot be deleted: "+err.Error())
	}
	if o.id.Contract == "" {
		return wait(nil, notKnown, o.message+"; what is under the contract is not known without; restore the ContractClass, or take the finalizer off this Contract to leave the contract as it is")
	}
	if reason, text, err := k.empty(ctx, obj, status, o); reason != "" {
		return wait(err, reason, text)
	}
	// A Secret that the driver may no longer delete goes with its owner, the Contract.
	if err := k.takeKey(ctx, obj, status); err != nil && !fault.Is(err, fault.PermissionDenied) {
		return wait(err, "KeyLeft", "the Secret with its key cannot be deleted: "+err.Error())
	}
	if err := k.takeClasses(ctx, keyOf(obj), accessClasses); err != nil {
		return wait(err, "ClassesLeft", "the BucketAccessClasses that were made for it cannot be deleted: "+err.Error())
	}
	k.mu.Lock()
	delete(k.signed, keyOf(obj))
	k.mu.Unlock()
	if err := k.hold(ctx, obj, false); err != nil {
		return 0, err
	}
	what := "the contract stays at the service; a Contract of this name in this namespace takes it back"
	if obj.Spec.ReclaimPolicy == v1alpha1.Delete {
		what = "the contract was cancelled at the service"
	}
	k.event(ctx, k.refTo(obj), corev1.EventTypeNormal, "Released", what)
	return 0, nil
}

// empty sees to it that nothing of a Contract is left at the service, or says why there
// is. One whose name another has never had anything. What fails is an error, so that the
// service is not asked at the same pace for what it refuses.
func (k *control) empty(ctx context.Context, obj *v1alpha1.Contract, status *v1alpha1.ContractStatus, o order) (reason, text string, err error) {
	if o.reason == nameTaken {
		return "", "", nil
	}
	names, n, err := k.provisioner.Buckets(ctx, o.id, namedBuckets)
	if err != nil {
		return notKnown, err.Error(), err
	}
	if status.Buckets = int64(n); n > 0 {
		more := ""
		if n > len(names) {
			more = ", …"
		}
		return "HasBuckets", fmt.Sprintf("the contract has %d buckets (%s%s); delete their BucketClaims", n, strings.Join(names, ", "), more), nil
	}
	if obj.Spec.ReclaimPolicy != v1alpha1.Delete {
		return "", "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	if err := k.provisioner.Cancel(ctx, o.id); err != nil {
		return "NotCancelled", err.Error(), err
	}
	return "", "", nil
}

// hold puts the finalizer on a Contract or a ContractClass, or takes it off.
func (k *control) hold(ctx context.Context, obj metav1.Object, on bool) error {
	if slices.Contains(obj.GetFinalizers(), finalizer) == on {
		return nil
	}
	finalizers := []string{}
	if on {
		finalizers = append(finalizers, finalizer)
	}
	err := k.apply(ctx, obj, "", map[string]any{"finalizers": finalizers}, nil)
	if !on {
		err = fault.IgnoreNotFound(err)
	}
	return err
}

// kindOf is the kind of an object of the driver's own group, with its client.
func (k *control) kindOf(obj metav1.Object) (string, *kube.Client) {
	switch obj.(type) {
	case *v1alpha1.ContractClass:
		return "ContractClass", k.clients.classes
	case *v1alpha1.BucketSettings:
		return "BucketSettings", k.settings.client
	}
	return "Contract", k.clients.contracts
}

// apply says a part of an object: of its metadata, or the status. The uid keeps it from
// making one that is gone: what is Mismatch then, as it is in the case of a conflict, is
// tried again, and by then the object is seen as it is.
func (k *control) apply(ctx context.Context, obj metav1.Object, subresource string, metadata map[string]any, status any) error {
	kind, client := k.kindOf(obj)
	all := map[string]any{"name": obj.GetName(), "uid": obj.GetUID()}
	if obj.GetNamespace() != "" {
		all["namespace"] = obj.GetNamespace()
	}
	maps.Copy(all, metadata)
	body := map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": kind, "metadata": all}
	if status != nil {
		body["status"] = status
	}
	return fault.In(client.Apply(ctx, obj.GetNamespace(), obj.GetName(), subresource, body), "%s %s", kind, obj.GetName())
}

func set(obj metav1.Object, conditions *[]metav1.Condition, what string, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(conditions, metav1.Condition{Type: what, Status: is, Reason: reason, Message: clip(message, 1024), ObservedGeneration: obj.GetGeneration()})
}

func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

// tell writes a Contract's status if it says something else than before.
func (k *control) tell(ctx context.Context, obj *v1alpha1.Contract, status *v1alpha1.ContractStatus) error {
	if equality.Semantic.DeepEqual(&obj.Status, status) {
		return nil
	}
	return k.told(ctx, obj, status, obj.Status.Conditions, status.Conditions)
}

// told writes a status, and makes an Event if the object has become ready, or not ready
// for another reason.
func (k *control) told(ctx context.Context, obj metav1.Object, status any, had, has []metav1.Condition) error {
	err := k.apply(ctx, obj, "status", nil, status)
	if err != nil {
		return fault.IgnoreNotFound(err)
	}
	before, now := meta.FindStatusCondition(had, v1alpha1.Ready), meta.FindStatusCondition(has, v1alpha1.Ready)
	if now != nil && (before == nil || before.Status != now.Status || before.Reason != now.Reason) {
		kind := corev1.EventTypeWarning
		if now.Status == metav1.ConditionTrue || now.Reason == "Suspended" || now.Reason == string(fault.Pending) {
			kind = corev1.EventTypeNormal
		}
		k.event(ctx, k.refTo(obj), kind, now.Reason, now.Message)
	}
	return nil
}

func (k *control) refTo(obj metav1.Object) corev1.ObjectReference {
	kind, _ := k.kindOf(obj)
	return corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
	}
}

// event is a courtesy: that there is none is no fault.
func (k *control) event(ctx context.Context, of corev1.ObjectReference, kind, reason, message string) {
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: of.Namespace, GenerateName: "contract-cosi-driver-"},
		InvolvedObject: of, Type: kind, Reason: reason, Message: clip(message, 1024), Source: corev1.EventSource{Component: k.Driver}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	err := k.clients.events.Do(ctx, "create", nil, func(r *rest.Request) *rest.Request { return r.Namespace(of.Namespace).Body(event) })
	if err != nil {
		klog.FromContext(ctx).V(2).Info("An Event could not be made", "object", of.Kind+" "+of.Namespace+"/"+of.Name, "reason", err)
	}
}

// class tells in a ContractClass's status how far its contracts have come.
func (k *control) class(ctx context.Context, name string) (again time.Duration, err error) {
	obj := get[*v1alpha1.ContractClass](k.classes, name)
	if obj == nil {
		return 0, nil
	}
	status := obj.Status.DeepCopy()
	status.ObservedGeneration, status.Contracts, status.InSync = obj.Generation, 0, 0
	for _, key := range k.keysBy(byClass, name) {
		c := get[*v1alpha1.Contract](k.contracts, key)
		if c == nil {
			continue
		}
		o := k.order(key)
		k.mu.Lock()
		terms, signed := k.signed[key]
		looked := k.looked[key]
		k.mu.Unlock()
		if !looked && c.Status.ObservedGeneration > 0 { // a process that has just started knows less than it has told before
			return waitAgain, nil
		}
		status.Contracts++
		if signed && o.accepted() && reflect.DeepEqual(terms, o.terms) {
			status.InSync++
		}
	}
	condition := metav1.Condition{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, Reason: "Accepted", Message: "contracts can be ordered", ObservedGeneration: obj.Generation}
	if faults := check(obj, k.Backends); len(faults) > 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "Faults", clip(strings.Join(faults, "; "), 1024)
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	if !equality.Semantic.DeepEqual(&obj.Status, status) {
		err = k.apply(ctx, obj, "status", nil, status)
	}
	// A class stays while there are contracts of it: without it, where they are is not known.
	if held := status.Contracts > 0; err == nil && (held || obj.DeletionTimestamp != nil) && (!held || obj.DeletionTimestamp == nil) {
		err = k.hold(ctx, obj, held)
	}
	return lookAgain, fault.IgnoreNotFound(err) // a Contract may have been re-created of another class
}
