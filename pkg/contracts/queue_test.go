package contracts

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
)

// A change of one Contract, and of one claim's settings, goes before thousands that are
// looked at again, also where they were in the queue before it.
func TestChangesGoFirst(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	t.Cleanup(c.settings.queue.ShutDown)
	obj := func(name string, generation int64) (*v1alpha1.Contract, *v1alpha1.BucketSettings) {
		order, settings := &v1alpha1.Contract{}, &v1alpha1.BucketSettings{Spec: v1alpha1.BucketSettingsSpec{BucketClaimName: name}}
		order.Namespace, order.Name, order.Generation, order.Status.ObservedGeneration = "blue", name, generation, 1
		settings.Namespace, settings.Name, settings.Generation, settings.Status.ObservedGeneration = "blue", name, generation, 1
		c.add(c.contracts, order)
		c.add(c.settings.informer, settings)
		return order, settings
	}
	names := []string{"a", "b", "c", "d", "e"}
	for _, name := range names {
		obj(name, 1)
		c.queue.Add(work{contract: "blue/" + name})
		c.settings.queue.Add("blue/" + name)
	}
	for _, name := range []string{"d", "c"} { // changed while they wait
		obj(name, 2)
		c.queue.Add(work{contract: "blue/" + name})
		c.settings.queue.Add("blue/" + name)
	}
	obj("late", 2)
	c.queue.Add(work{contract: "blue/late"})
	c.settings.queue.Add("blue/late")
	for _, name := range []string{"d", "c", "late", "a", "b", "e"} {
		if item, _ := c.queue.Get(); item.contract != "blue/"+name {
			t.Errorf("the Contract is %v, not %s", item, name)
		}
		if claim, _ := c.settings.queue.Get(); claim != "blue/"+name {
			t.Errorf("the claim is %s, not %s", claim, name)
		}
	}
	if c.queue.Len()+c.settings.queue.Len() > 0 {
		t.Error("something is left")
	}
	// What is gone is news, and so is a class: it tells how far its contracts have come.
	c.queue.Add(work{contract: "blue/a"})
	c.queue.Add(work{contract: "blue/gone"})
	c.queue.Add(work{class: "standard"})
	if item, _ := c.queue.Get(); item.contract != "blue/gone" {
		t.Errorf("it is %v", item)
	}
	if item, _ := c.queue.Get(); item.class != "standard" {
		t.Errorf("it is %v", item)
	}
}

// Whatever is pushed, touched and popped in whatever order, each thing that waits comes
// out once, and what is new before what is not.
func TestNothingIsLostInTheQueue(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	isNew := map[int]bool{}
	q := &newFirst[int]{isNew: func(i int) bool { return isNew[i] }, waits: map[int]bool{}}
	waits := map[int]bool{} // whether it was new when it was last said to be
	for range 20000 {
		switch item := random.IntN(20); random.IntN(5) {
		case 0, 1:
			isNew[item] = !isNew[item]
			if was, in := waits[item]; in {
				q.Touch(item)
				waits[item] = was || isNew[item]
			} else {
				q.Push(item)
				waits[item] = isNew[item]
			}
		case 2, 3:
			if q.Len() != len(waits) {
				t.Fatalf("seed %d: %d wait, of %d", seed, q.Len(), len(waits))
			}
			if len(waits) == 0 {
				continue
			}
			got := q.Pop()
			was, in := waits[got]
			delete(waits, got)
			rest := slices.Collect(func(yield func(bool) bool) {
				for _, w := range waits {
					if !yield(w) {
						return
					}
				}
			})
			if !in || !was && slices.Contains(rest, true) {
				t.Fatalf("seed %d: %d came, which waits: %v, is new: %v", seed, got, in, was)
			}
		}
	}
}
