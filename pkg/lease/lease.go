// Package lease says which process may change things at the storage services:
// of all drivers that share a journal in Kubernetes Secrets, one at a time. A
// coordination.k8s.io/v1 Lease beside the Secrets names it.
//
// # Who has it
//
// The Lease follows the calls. A free one is taken by the first that sees it. A
// process that is called and does not have it puts its name on the Lease's list
// of those that wait. The holder watches the Lease: it admits no more calls,
// cancels its background work, lets the calls under way end, and gives the Lease
// back with the list on it. The first on the list takes it at once; if that one
// is dead, the next may take it a second later, and so on. The one that has taken it keeps
// it for a second at least, or two drivers that are both called would do nothing
// but hand it over.
//
// # What holds at any time
//
// The Lease lives for 30 s from the moment before its last renewal was sent, and
// is renewed every 5 s. Each attempt at a service asks first whether the Lease
// outlives it ([transport.Guarded]). A process takes the Lease of another only if
// it has seen no renewal for 31 s. Each measures this with a clock of its own that
// cannot be set and goes on while the machine is suspended; the time of day does
// not matter. All changes are compare-and-swap, so a process that has missed
// something changes nothing.
//
// Each taking has an identity of its own. A call that was admitted before the
// Lease was lost sends nothing more, even if the same process has taken it again,
// and a holder that a backup has brought back is waited for as any other.
//
// # What does not hold
//
// What a process has sent before it was killed, or before the Lease was taken from
// it by an edit or with a deletion, can still arrive at a service while another
// has the Lease. Without an edit that is so only for a restarted container, which
// does not wait for its predecessor's Lease to expire, and for a virtual machine
// whose clock stood still while its host had stopped it.
//
// A Lease that is deleted is created again by its holder, and others wait as if it
// had been renewed. A driver that starts at that very moment cannot know of a
// holder.
package lease

import (
	"context"
	"errors"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

const (
	// life is how long the Lease outlives the sending of its last renewal.
	life = 30 * time.Second
	// every is the time between renewals.
	every = 5 * time.Second
	// margin is how much longer others wait: no two clocks run equally fast.
	margin = time.Second
	// keep is how long a process keeps the Lease that others wait for.
	keep = time.Second
	// turn is how long each one on the list has a free Lease to itself. Who is
	// not on it leaves it to them for as long as they may wait for an answer.
	turn = time.Second
)

// Config says whose Lease it is, and who takes it.
type Config struct {
	// Namespace is that of the journal.
	Namespace string
	// Owner is the driver's mark, from which the Lease has its name.
	Owner string
	// Dir is a directory that this process does not share with another driver,
	// that of its socket: a restarted container, which has the same one, takes
	// the Lease of its predecessor at once. Without one a process is always new.
	Dir string
	// Taken is called when the Lease was taken, before a call is admitted: what
	// is remembered of the journal and the services may be outdated. An error
	// gives the Lease back. Its context ends with the Lease.
	Taken func(context.Context) error
	// Changed, which may be nil, hears what becomes of the Lease.
	Changed func(Change)
	// Called, which may be nil, is told of every call tried at the API server.
	Called func(call string, err error)
}

// Change is a step in the life of a Lease, as this process sees it.
type Change string

// The changes.
const (
	// Taken: this process may change things.
	Taken Change = "taken"
	// Released: it has given the Lease back, because another waits or it stops.
	Released Change = "released"
	// Lost: another has the Lease, and this process did not give it back.
	Lost Change = "lost"
)

// Lease is the right to change things, whether this process has it or not.
type Lease struct {
	Config
	process
	client *kube.Client
	name   string // of the object
	log    klog.Logger
	stop   context.CancelFunc
	done   chan struct{}
	wake   chan struct{} // tells the loop to look again
	beside sync.WaitGroup

	mu      sync.Mutex
	seen    *coordinationv1.Lease // as last seen; without a resourceVersion there is none
	unsure  bool                  // it has to be read
	looked  time.Duration         // when it was certain that this is how it is; 0 before the first look
	acted   time.Duration         // when its holder was last seen to do something
	gone    string                // the holder that was this process's predecessor
	tenure  *tenure               // nil if this process does not hold it, and does not try to take it
	waiting int                   // calls that wait for it
	failed  error                 // why it was given back without a call; nil after the next taking
	trouble error                 // why the API server cannot be asked; nil if it can
	calm    time.Duration         // when the next call may be made
	rest    time.Duration         // when the Lease may be taken again
	closing bool
	news    chan struct{} // closed and replaced when waiting calls are to look again
}

// tenure is the time from one taking of the Lease to its end.
type tenure struct {
	id       string          // what the Lease names as its holder; never used again
	why      string          // it could be taken
	ctx      context.Context //nolint:containedctx // ends when nothing more may be sent
	end      context.CancelCauseFunc
	idle     context.Context //nolint:containedctx // ends as soon as another waits
	endIdle  context.CancelFunc
	may      func(time.Duration) error
	until    time.Duration // the end of the right, unless it is renewed; 0 before it begins
	renewal  metav1.MicroTime
	sent     time.Duration // when the renewal was
	opened   time.Duration // when calls were first admitted; 0 before
	yielding bool          // another waits, or this process stops
	under    int           // calls and background work under way
}

// Open begins to follow the Lease, and takes it if it is free. It does not wait
// for the API server.
func Open(ctx context.Context, at *rest.Config, c Config) (*Lease, error) {
	p, err := identify(c)
	if err != nil {
		return nil, err
	}
	l, err := open(ctx, at, c, p)
	if err != nil {
		p.letGo()
	}
	return l, err
}

func open(ctx context.Context, at *rest.Config, c Config, p process) (*Lease, error) {
	if c.Changed == nil {
		c.Changed = func(Change) {}
	}
	if c.Called == nil {
		c.Called = func(string, error) {}
	}
	at = rest.CopyConfig(at)
	// A connection that has gone silent takes one call with it, not all that follow.
	at.NextProtos = []string{"http/1.1"}
	client, err := kube.NewClient(at, c.Namespace, kube.Resource{
		Version: coordinationv1.SchemeGroupVersion, Name: "leases", Kind: "Lease", Verbs: "get, watch, create and update",
		Types: []runtime.Object{&coordinationv1.Lease{}},
	}, c.Called)
	if err != nil {
		return nil, err
	}
	l := &Lease{
		Config: c, client: client, process: p, name: "writer." + kube.OwnerMark(c.Owner),
		done: make(chan struct{}), wake: make(chan struct{}, 1), news: make(chan struct{}), unsure: true,
	}
	l.seen = &coordinationv1.Lease{}
	l.log = klog.FromContext(ctx).WithValues("lease", c.Namespace+"/"+l.name)
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	go l.run(ctx)
	return l, nil
}

// Held reports whether a call would be admitted at once.
func (l *Lease) Held() bool {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.admits(now)
}

// Enter admits a call: at once if this process holds the Lease; otherwise it
// asks for it and waits until ctx ends, for an error that names the holder. With
// the returned context an attempt at a service is sent only if the Lease outlives
// it. The call ends with the returned function; the Lease is not given back before.
func (l *Lease) Enter(ctx context.Context) (context.Context, func(), error) {
	for {
		now := l.now()
		l.mu.Lock()
		if t := l.tenure; l.admits(now) {
			defer l.mu.Unlock()
			return transport.Guarded(ctx, t.may), l.enter(t), nil
		}
		if l.closing || l.refused() || ctx.Err() != nil {
			defer l.mu.Unlock()
			return nil, nil, l.why(ctx)
		}
		l.waiting++
		news := l.news
		l.mu.Unlock()
		l.look()
		select {
		case <-news:
		case <-ctx.Done():
		}
		l.mu.Lock()
		l.waiting--
		l.mu.Unlock()
	}
}

// EnterIdle admits work that no caller waits for: only if this process holds
// the Lease and no other waits for it. As soon as another does, the returned
// context is cancelled, and no further attempt is sent.
func (l *Lease) EnterIdle(ctx context.Context) (context.Context, func(), error) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenure
	if !l.admits(now) || t.yielding {
		return nil, nil, l.why(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	handover := fault.New(fault.Unavailable, "another driver waits for the right to change things; this goes on where it is called")
	stop := context.AfterFunc(t.idle, func() { cancel(handover) })
	leave := l.enter(t)
	guarded := transport.Guarded(ctx, func(d time.Duration) error {
		if t.idle.Err() != nil {
			return handover
		}
		return t.may(d)
	})
	return guarded, func() {
		stop()
		cancel(context.Canceled)
		leave()
	}, nil
}

// Close admits no more calls, waits for those under way until ctx ends, and
// gives the Lease back, so that another takes it at once. One that cannot be
// given back expires.
func (l *Lease) Close(ctx context.Context) {
	l.mu.Lock()
	l.closing = true
	if l.tenure != nil {
		l.tenure.handOver()
	}
	l.tell()
	l.mu.Unlock()
	l.look()
	select {
	case <-l.done:
	case <-ctx.Done():
	}
	l.stop()
	<-l.done
}

// admits reports whether calls are admitted: one that is admitted can make at
// least one attempt.
func (l *Lease) admits(now time.Duration) bool {
	t := l.tenure
	return t != nil && t.opened != 0 && !l.leaving(now) && now+transport.AttemptTimeout <= t.until
}

// leaving reports whether the Lease is to be given back as soon as what is
// under way has ended. There is no way back from it.
func (l *Lease) leaving(now time.Duration) bool {
	t := l.tenure
	return l.closing || t.ctx.Err() != nil || t.yielding && t.opened != 0 && now >= t.opened+keep
}

func (l *Lease) enter(t *tenure) (leave func()) {
	t.under++
	left := false
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if left {
			return
		}
		left = true
		if t.under--; t.under == 0 && t.yielding {
			l.look()
		}
	}
}

// guard returns what decides whether an attempt may be sent in a tenure.
func (l *Lease) guard(t *tenure) func(time.Duration) error {
	return func(d time.Duration) error {
		now := l.now()
		l.mu.Lock()
		defer l.mu.Unlock()
		if t.ctx.Err() != nil {
			return context.Cause(t.ctx)
		}
		const late = "Lease %s/%s, the right to change things, was not renewed in time"
		switch {
		case now+d <= t.until:
			return nil
		case l.trouble != nil:
			return fault.In(l.trouble, late, l.Namespace, l.name)
		}
		return fault.New(fault.Unavailable, late+"; retry", l.Namespace, l.name)
	}
}

// refused reports whether waiting cannot help.
func (l *Lease) refused() bool {
	k := fault.KindOf(l.trouble)
	return k != "" && k != fault.Unavailable && k != fault.RateLimited
}

// why says what a call has waited for.
func (l *Lease) why(ctx context.Context) error {
	holder := holderOf(l.seen)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fault.Wrap(fault.Canceled, ctx.Err(), "the call was given up while it waited for Lease %s/%s", l.Namespace, l.name)
	case l.closing:
		return fault.New(fault.Unavailable, "this driver is stopping; retry")
	case l.trouble != nil:
		return fault.In(l.trouble, "Lease %s/%s, the right to change things, cannot be taken or renewed", l.Namespace, l.name)
	case holder != "" && (l.tenure == nil || holder != l.tenure.id):
		return fault.New(fault.Unavailable, "driver %s has Lease %s/%s, the right to change things, and has not handed it over yet; retry", nameOf(holder), l.Namespace, l.name)
	case l.failed != nil:
		return fault.In(l.failed, "Lease %s/%s, the right to change things, was taken and given back", l.Namespace, l.name)
	}
	return fault.New(fault.Unavailable, "Lease %s/%s, the right to change things, is being taken or handed over; retry", l.Namespace, l.name)
}

// handOver ends what no caller waits for; calls go on.
func (t *tenure) handOver() {
	t.yielding = true
	t.endIdle()
}

// look lets the loop see what has changed.
func (l *Lease) look() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// tell lets waiting calls see what has changed.
func (l *Lease) tell() {
	close(l.news)
	l.news = make(chan struct{})
}
