package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

const (
	// callTimeout lets a renewal that gets no answer be sent again before the
	// first attempt at a service is refused, which is 10 s after the one before.
	callTimeout = 4 * time.Second
	// pause is the least time between a call that failed and the next.
	pause = time.Second
	// quiet is how long the watch may bring nothing until a process in which
	// calls wait looks for itself; a watch can be broken without a sign of it.
	quiet = 3 * time.Second
	// watchLength bounds a single watch.
	watchLength = 5 * time.Minute
)

// What a Lease has beside its owner. A holder is written as the process's name
// and what makes the taking unique.
const (
	waitingAnnotation = "contract-cosi-driver/waiting" // names of processes, the first to ask first
	separator         = "_"
)

func holderOf(o *coordinationv1.Lease) string {
	if o.Spec.HolderIdentity == nil {
		return ""
	}
	return *o.Spec.HolderIdentity
}

// nameOf is the process that a holder is.
func nameOf(holder string) string {
	if i := strings.LastIndex(holder, separator); i >= 0 {
		return holder[:i]
	}
	return holder
}

func waitingFor(o *coordinationv1.Lease) []string {
	return strings.Fields(o.Annotations[waitingAnnotation])
}

func revisionOf(o *coordinationv1.Lease) uint64 {
	n, _ := strconv.ParseUint(o.ResourceVersion, 10, 64)
	return n
}

func setWaiting(o *coordinationv1.Lease, list []string) {
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, waitingAnnotation, strings.Join(list, " "))
}

// run does what is due until ctx ends, or the Lease was given back for good.
func (l *Lease) run(ctx context.Context) {
	l.beside.Go(func() { l.follow(ctx) })
	for again := time.Duration(0); again >= 0 && ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			continue
		case <-l.wake:
		case <-time.After(again):
		}
		again = l.step(ctx)
	}
	l.mu.Lock()
	l.closing = true
	if l.tenure != nil {
		l.over("this driver stops")
	}
	l.tell()
	l.mu.Unlock()
	l.stop()
	l.beside.Wait()
	l.letGo()
	close(l.done)
}

// step makes the call that is due, if one is, and returns when to look again;
// less than 0 if there is nothing more to do.
func (l *Lease) step(ctx context.Context) (again time.Duration) {
	now := l.now()
	l.mu.Lock()
	t, list := l.tenure, waitingFor(l.seen)
	place := slices.Index(list, l.identity)
	held := t != nil && t.id == holderOf(l.seen)
	free := l.free(len(list), place)
	next, call := l.seen.DeepCopy(), "update"
	if next.ResourceVersion == "" {
		call = "create"
	}
	wait := func(until time.Duration) { call, again = "", max(0, until-now) }
	switch {
	case l.closing && !held && (t == nil || !l.unsure):
		call, again = "", -1
	case now < l.calm:
		wait(l.calm)
	case l.unsure || l.waiting > 0 && now >= l.looked+quiet:
		call = "get"
	case held && t.under == 0 && l.leaving(now):
		t.end(fault.New(fault.Unavailable, "the right to change things was given back; retry"))
		next.Spec.HolderIdentity = nil
	case held && (now >= t.until-life+every || call == "create"):
		next.Spec.RenewTime = t.stamp(now)
	case held && t.yielding && now < t.opened+keep:
		wait(min(t.until-life+every, t.opened+keep))
	case held:
		wait(t.until - life + every)
	case now >= free:
		if t == nil {
			t = l.attempt(ctx)
		}
		stamp, transitions := t.stamp(now), int32(1)
		if before := next.Spec.LeaseTransitions; before != nil {
			transitions = max(1, *before+1)
		}
		next.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: &t.id, LeaseDurationSeconds: new(int32(life / time.Second)),
			AcquireTime: stamp, RenewTime: stamp, LeaseTransitions: &transitions,
		}
		if place < 0 { // all on the list have had their turn
			place = len(list) - 1
		}
		setWaiting(next, list[place+1:])
	case l.waiting > 0 && place < 0 && now >= l.rest:
		setWaiting(next, append(list, l.identity))
	case l.waiting > 0:
		wait(min(free, l.looked+quiet))
	default:
		wait(free)
	}
	l.mu.Unlock()
	if call != "" {
		l.do(ctx, call, next)
	}
	return again
}

// free returns when this process may take the Lease, should nothing happen until
// then. It has a place on the list of those that wait, or less than 0.
func (l *Lease) free(waiting, place int) time.Duration {
	at, holder := l.acted, holderOf(l.seen)
	switch {
	case holder != "" && holder != l.gone:
		at += life + margin
	case holder == "" && place > 0:
		at += min(every, time.Duration(place)*turn)
	case holder == "" && place < 0 && waiting > 0:
		at += every
	}
	return max(at, l.rest)
}

// attempt begins to try to take the Lease.
func (l *Lease) attempt(ctx context.Context) *tenure {
	t := &tenure{id: l.identity + separator + rand.Text(), why: "it is free"}
	switch holder := holderOf(l.seen); holder {
	case "":
	case l.gone:
		t.why = "it was this driver's before its restart"
	default:
		t.why = "driver " + nameOf(holder) + " did not renew it"
	}
	t.ctx, t.end = context.WithCancelCause(context.WithoutCancel(ctx))
	t.idle, t.endIdle = context.WithCancel(t.ctx)
	t.may = l.guard(t)
	l.tenure = t
	return t
}

// stamp is for a renewal that is sent now, and for no other. Its time is for
// people to read.
func (t *tenure) stamp(now time.Duration) *metav1.MicroTime {
	stamp := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	if !stamp.After(t.renewal.Time) {
		stamp.Time = t.renewal.Add(time.Microsecond)
	}
	t.renewal, t.sent = stamp, now
	return &stamp
}

// do makes a call and takes in what it came to.
func (l *Lease) do(ctx context.Context, call string, next *coordinationv1.Lease) {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got, begun := &coordinationv1.Lease{}, l.now()
	err := l.client.Do(bounded, call, got, func(r *rest.Request) *rest.Request {
		if call != "create" {
			r = r.Name(l.name)
		}
		if call != "get" {
			r = r.Body(next)
		}
		return r
	})
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.tell()
	if ctx.Err() != nil {
		return
	}
	var f *fault.Error
	absent := call == "get" && fault.Is(err, fault.NotFound)
	l.unsure = err != nil && !absent && l.seen.ResourceVersion == next.ResourceVersion
	switch errors.As(err, &f); {
	case absent:
		l.missing(now)
	case err == nil:
		l.observe(got, now, call == "get")
	case f.Kind == fault.Mismatch || f.Kind == fault.NotFound: // another was faster, and may be about to be faster again
		l.calm = now + 10*time.Millisecond + mathrand.N(40*time.Millisecond) //nolint:gosec // chance keeps no secret
	default:
		if l.trouble == nil {
			l.log.Info("The Lease cannot be read or written", "reason", err)
		}
		l.trouble, l.calm = err, max(now, begun+max(pause, min(f.RetryAfter, every)))
		return
	}
	l.trouble = nil
}

// observe takes in how the Lease is, or was: current says that it is not from before
// what has been seen already.
func (l *Lease) observe(o *coordinationv1.Lease, now time.Duration, current bool) {
	have, holder := l.seen, holderOf(o)
	if o.ResourceVersion == have.ResourceVersion {
		l.looked = now
		return
	}
	if !current && revisionOf(o) < revisionOf(have) {
		return
	}
	if l.looked == 0 && nameOf(holder) == l.identity {
		l.gone = holder
	}
	// What those who wait write does not count.
	if have.ResourceVersion == "" || holder != holderOf(have) || !o.Spec.RenewTime.Equal(have.Spec.RenewTime) {
		l.acted = now
	}
	l.seen, l.looked = o, now
	switch t := l.tenure; {
	case t == nil:
	case holder != t.id:
		l.over(cmp.Or(nameOf(holder), "no driver") + " has it")
	default:
		if len(waitingFor(o)) > 0 {
			t.handOver()
		}
		if begins := t.until == 0; o.Spec.RenewTime.Equal(&t.renewal) {
			if t.until = t.sent + life; begins {
				l.taken(t)
			}
		}
	}
	l.tell()
	l.look()
}

// missing takes in that there is no Lease. Its holder is held for what it was.
func (l *Lease) missing(now time.Duration) {
	if l.seen.ResourceVersion != "" || l.looked == 0 {
		l.acted = now
	}
	list := waitingFor(l.seen)
	l.seen = &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: l.Namespace, Name: l.name,
			Labels:      map[string]string{kube.OwnerLabel: kube.OwnerMark(l.Owner)},
			Annotations: map[string]string{kube.OwnerLabel: l.Owner},
		},
		Spec: l.seen.Spec,
	}
	setWaiting(l.seen, list)
	l.looked = now
	l.look()
}

// taken makes ready for calls.
func (l *Lease) taken(t *tenure) {
	l.log.Info("Took the Lease", "reason", t.why)
	l.Changed(Taken)
	t.under++
	l.beside.Go(func() {
		ctx, cancel := context.WithTimeout(transport.Guarded(t.ctx, t.may), life)
		defer cancel()
		err := l.Taken(ctx)
		now := l.now()
		l.mu.Lock()
		defer l.mu.Unlock()
		t.under--
		t.opened = now
		if l.tenure != t {
			return
		}
		if l.failed = err; err != nil {
			l.log.Info("The Lease was taken, and is given back without a call", "reason", err)
			l.rest = now + every
			t.end(err)
		}
		l.tell()
		l.look()
	})
}

// over ends the tenure.
func (l *Lease) over(why string) {
	t := l.tenure
	l.tenure = nil
	switch {
	case t.until == 0: // it never began
	case t.ctx.Err() != nil:
		l.log.Info("Gave the Lease back", "waiting", waitingFor(l.seen))
		l.Changed(Released)
	default:
		l.log.Info("Lost the Lease", "reason", why)
		l.Changed(Lost)
	}
	t.handOver()
	t.end(fault.New(fault.Unavailable, "the right to change things was lost (%s); retry", why))
}

// follow watches the Lease until ctx ends.
func (l *Lease) follow(ctx context.Context) {
	var lost error
	for ctx.Err() == nil {
		err, again := l.watch(ctx), pause
		if err != nil && lost == nil && ctx.Err() == nil {
			l.log.Info("The Lease cannot be watched; until it can, it is handed over late", "reason", err)
		}
		if lost = err; err == nil {
			again = pause / 10
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// watch begins with how the Lease is, and lasts as long as the server lets it.
func (l *Lease) watch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchLength+callTimeout)
	defer cancel()
	silent := time.AfterFunc(callTimeout, cancel)
	w, err := l.client.Watch(ctx, watchLength, func(r *rest.Request) *rest.Request {
		return r.Param("fieldSelector", "metadata.name="+l.name)
	})
	silent.Stop()
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		o, ok := event.Object.(*coordinationv1.Lease)
		if !ok {
			return l.client.Classify("watch", apierrors.FromObject(event.Object))
		}
		now := l.now()
		l.mu.Lock()
		if event.Type != watch.Deleted {
			l.observe(o, now, false)
		} else if revisionOf(o) >= revisionOf(l.seen) {
			l.missing(now)
		}
		l.mu.Unlock()
	}
	return nil
}
