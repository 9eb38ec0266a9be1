package main

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/container-object-storage-interface/client/clientset/versioned"
)

// Upstream's figures.
const (
	firstRetry = 100 * time.Millisecond
	workers    = 40 // for each kind of object
)

// loop calls listeners as upstream's loop does: the last event of an object
// counts, one object is never handled twice at once, and what fails is repeated
// forever, at growing distances.
//
// It differs in one thing. Upstream forgets an event that arrives while the
// object's last one is being handled and succeeds, until the object changes
// again or the process restarts; here it is handled next. Otherwise a run would
// now and then wait for nothing, whatever the driver does.
type loop struct {
	// queue holds the objects that wait, and keeps back one that is being
	// handled: upstream's lock for each object.
	queue     workqueue.TypedRateLimitingInterface[types.UID]
	informers []cache.SharedIndexInformer

	mu  sync.Mutex
	ops map[types.UID]*operation
}

// operation is what an object waits for.
type operation struct{ do func(context.Context) error }

func newLoop(retryMax time.Duration) *loop {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](firstRetry, retryMax)
	return &loop{queue: workqueue.NewTypedRateLimitingQueue(limiter), ops: map[types.UID]*operation{}}
}

// listener is one of upstream's.
type listener[T any] interface {
	Add(context.Context, T) error
	Update(ctx context.Context, before, now T) error
	Delete(context.Context, T) error
	InitializeKubeClient(kubernetes.Interface)
	InitializeBucketClient(versioned.Interface)
	InitializeEventRecorder(record.EventRecorder)
}

// object is a pointer to one of upstream's types.
type object interface {
	metav1.Object
	runtime.Object
}

// watch lets a listener hear of all objects of a kind.
func watch[T object](l *loop, c clients, events record.EventRecorder, resource string, example T, to listener[T]) {
	to.InitializeKubeClient(c.kube)
	to.InitializeBucketClient(c.cosi)
	to.InitializeEventRecorder(events)
	source := cache.NewListWatchFromClient(c.cosi.ObjectstorageV1alpha1().RESTClient(), resource, metav1.NamespaceAll, fields.Everything())
	informer := cache.NewSharedIndexInformer(source, example, 0, cache.Indexers{})
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			l.put(obj.(T), func(ctx context.Context) error { return to.Add(ctx, obj.(T)) })
		},
		UpdateFunc: func(old, obj any) {
			if old.(T).GetUID() != obj.(T).GetUID() { // created again while the watch was away
				l.put(old.(T), func(ctx context.Context) error { return to.Delete(ctx, old.(T)) })
			}
			l.put(obj.(T), func(ctx context.Context) error { return to.Update(ctx, old.(T), obj.(T)) })
		},
		DeleteFunc: func(obj any) {
			if unseen, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unseen.Obj
			}
			l.put(obj.(T), func(ctx context.Context) error { return to.Delete(ctx, obj.(T)) })
		},
	})
	if err != nil {
		panic(err) // of a stopped informer only, and this one has not started
	}
	l.informers = append(l.informers, informer)
}

// put replaces what an object waits for.
func (l *loop) put(obj metav1.Object, do func(context.Context) error) {
	l.mu.Lock()
	l.ops[obj.GetUID()] = &operation{do}
	l.mu.Unlock()
	l.queue.Add(obj.GetUID())
}

// run handles events until ctx ends. A panic of a listener ends the process.
func (l *loop) run(ctx context.Context) error {
	for _, informer := range l.informers {
		go informer.RunWithContext(ctx)
	}
	for _, informer := range l.informers {
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			return errors.New("stopped before the API server answered")
		}
	}
	var all sync.WaitGroup
	for range workers * len(l.informers) {
		all.Go(func() { l.work(ctx) })
	}
	<-ctx.Done()
	l.queue.ShutDown()
	all.Wait()
	return nil
}

func (l *loop) work(ctx context.Context) {
	for {
		uid, stopped := l.queue.Get()
		if stopped {
			return
		}
		l.handle(ctx, uid)
		l.queue.Done(uid)
	}
}

func (l *loop) handle(ctx context.Context, uid types.UID) {
	l.mu.Lock()
	op := l.ops[uid]
	l.mu.Unlock()
	if op == nil {
		return
	}
	// Listeners log their errors and write them into events.
	if op.do(ctx) != nil {
		l.queue.AddRateLimited(uid)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ops[uid] == op {
		delete(l.ops, uid)
	}
}
