package delivery

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
)

// Between two attempts for an access, and how many there are until its turn in the course
// of drift's interval: enough for a sidecar that is slow, or for a person to read an Event.
// What fails because the API server or a service is away is tried until that is over.
const (
	firstWait = time.Second
	lastWait  = 2 * time.Minute
	attempts  = 15
	workers   = 4 // of each backend
)

// queue has accesses of one backend, so that one that does not answer holds up no other's.
type queue = workqueue.TypedRateLimitingInterface[cosi.AccountID]

func (s *Secrets) queueOf(backend string) queue {
	s.queueing.Lock()
	defer s.queueing.Unlock()
	q := s.queues[backend]
	if q == nil {
		q = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[cosi.AccountID](firstWait, lastWait))
		if s.queues[backend] = q; s.work != nil {
			s.work(q)
		}
	}
	return q
}

// Tender does what is due of an access; *provisioner.Provisioner does.
type Tender interface {
	// Tend does it. In most cases there is nothing, and no call is made.
	Tend(ctx context.Context, key journal.Key) error
	// Unformatted are the accesses whose Secrets may have to be written.
	Unformatted(ctx context.Context) ([]cosi.AccountID, error)
}

// Soon implements provisioner.Deliverer.
func (s *Secrets) Soon(id cosi.AccountID) { s.queueOf(id.Backend).Add(id) }

// All is Soon for every access whose Secrets may have to be written: a process that was
// killed has left some.
func (s *Secrets) All() { s.Soon(cosi.AccountID{}) }

// Run does what is to be done soon, until ctx ends. Each attempt has so much time.
func (s *Secrets) Run(ctx context.Context, p Tender, timeout time.Duration) {
	var working sync.WaitGroup
	work := func(q queue) {
		for range workers {
			working.Go(func() {
				for s.serve(ctx, p, q, timeout) {
				}
			})
		}
	}
	s.queueing.Lock()
	for _, q := range s.queues {
		work(q)
	}
	s.work = work
	s.queueing.Unlock()
	s.All()
	<-ctx.Done()
	s.queueing.Lock()
	for _, q := range s.queues {
		q.ShutDown()
	}
	s.work = nil
	s.queueing.Unlock()
	working.Wait()
}

// serve does one piece of work. False if there will be none.
func (s *Secrets) serve(ctx context.Context, p Tender, q queue, timeout time.Duration) bool {
	id, end := q.Get()
	if end {
		return false
	}
	defer q.Done(id)
	err := s.tend(ctx, p, id, timeout)
	away, failed := fault.Passing(err), q.NumRequeues(id)
	if err == nil || !away && failed >= attempts {
		q.Forget(id)
		return true
	}
	klog.FromContext(ctx).V(2).Info("What is due of an access is done later", "account", id, "reason", err)
	if away && failed >= attempts/2 {
		q.AddAfter(id, lastWait) // an outage leaves attempts for what comes after it
	} else {
		q.AddRateLimited(id)
	}
	return true
}

func (s *Secrets) tend(ctx context.Context, p Tender, id cosi.AccountID, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if id != (cosi.AccountID{}) {
		return p.Tend(ctx, journal.Key{Kind: journal.Accounts, ID: id.String()})
	}
	all, err := p.Unformatted(ctx)
	for _, one := range all {
		s.Soon(one)
	}
	return err
}
