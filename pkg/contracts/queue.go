package contracts

import "k8s.io/client-go/util/workqueue"

// newQueue is a queue with retries, from which what is new comes before what is only
// looked at again: a user waits for the one, and thousands of the other may be due.
func newQueue[T comparable](isNew func(T) bool) workqueue.TypedRateLimitingInterface[T] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.NewTypedItemExponentialFailureRateLimiter[T](firstWait, lastWait), workqueue.TypedRateLimitingQueueConfig[T]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{
			Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Queue: &newFirst[T]{isNew: isNew, waits: map[T]bool{}}}),
		}),
	})
}

// newFirst implements workqueue.Queue. Each of the two has its order of arrival.
type newFirst[T comparable] struct {
	isNew      func(T) bool
	fresh, old []T
	waits      map[T]bool // what is in the queue: true if in fresh, whatever old says of it
}

func (q *newFirst[T]) Len() int { return len(q.waits) }

// Push implements workqueue.Queue.
func (q *newFirst[T]) Push(item T) {
	if q.waits[item] = q.isNew(item); q.waits[item] {
		q.fresh = append(q.fresh, item)
	} else {
		q.old = append(q.old, item)
	}
}

// Touch is told of what waits already: it may have changed since.
func (q *newFirst[T]) Touch(item T) {
	if !q.waits[item] && q.isNew(item) {
		q.Push(item)
	}
}

// Pop implements workqueue.Queue.
func (q *newFirst[T]) Pop() (item T) {
	if len(q.fresh) > 0 {
		item, q.fresh = q.fresh[0], q.fresh[1:]
		delete(q.waits, item)
		return item
	}
	for {
		item, q.old = q.old[0], q.old[1:]
		if isNew, waits := q.waits[item]; waits && !isNew { // or it was taken from fresh
			delete(q.waits, item)
			return item
		}
	}
}
