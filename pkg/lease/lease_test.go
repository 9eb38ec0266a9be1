package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
	"github.com/contract-cosi/contract-cosi-driver/test/kubefake"
)

const owner = "cluster-1"

// world is an API server and the drivers that share a journal there. All is in
// one bubble of testing/synctest, so that time costs nothing.
type world struct {
	*testing.T
	kube  *kubefake.Server
	start time.Time
	log   klog.Logger
}

func newWorld(t *testing.T) *world {
	return &world{T: t, kube: kubefake.StartPiped(t), start: time.Now()}
}

// driver is a process that can be cut off, made late, paused and killed.
type driver struct {
	*Lease
	w        *world
	identity string
	taken    int
	changes  []Change

	mu     sync.Mutex
	paused chan struct{} // closed when it goes on; nil if it runs
	ahead  time.Duration // its machine was suspended for so long
	dead   bool
	flying sync.WaitGroup // what was sent and has not arrived
	fate   func(*http.Request) fate
}

// fate is what becomes of a call to the API server.
type fate struct {
	lost       bool // it never gets there
	lostAnswer bool
	late       time.Duration // until it gets there
	lateAnswer time.Duration
}

func (w *world) driver(identity string, taken func(context.Context) error) *driver {
	w.Helper()
	d := &driver{w: w, identity: identity, fate: func(*http.Request) fate { return fate{} }}
	at := w.kube.Config()
	at.Wrap(func(next http.RoundTripper) http.RoundTripper { return &wire{d, next} })
	c := Config{
		Namespace: kubefake.Namespace, Owner: owner,
		Taken: func(ctx context.Context) error {
			d.mu.Lock()
			d.taken++
			d.mu.Unlock()
			if taken != nil {
				return taken(ctx)
			}
			return nil
		},
		Changed: func(c Change) { d.changes = append(d.changes, c) },
	}
	l, err := open(klog.NewContext(w.Context(), w.log.WithName(identity)), at, c, process{identity: identity, letGo: func() {}, now: d.clock})
	if err != nil {
		w.Fatal(err)
	}
	d.Lease = l
	w.Cleanup(func() {
		d.kill()
		d.flying.Wait()
	})
	return d
}

// clock stands for whatever the process does: it does nothing while it is paused.
func (d *driver) clock() time.Duration {
	d.alive()
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Hour + time.Since(d.w.start) + d.ahead
}

func (d *driver) alive() {
	for {
		d.mu.Lock()
		paused := d.paused
		d.mu.Unlock()
		if paused == nil {
			return
		}
		<-paused
	}
}

func (d *driver) pause() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paused == nil {
		d.paused = make(chan struct{})
	}
}

func (d *driver) resume() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paused != nil {
		close(d.paused)
		d.paused = nil
	}
}

// kill ends the process at once: it makes no more calls.
func (d *driver) kill() {
	d.mu.Lock()
	d.dead = true
	d.mu.Unlock()
	d.resume()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	d.Close(ctx)
}

func (d *driver) isDead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

// network decides from now on what becomes of its calls.
func (d *driver) network(f func(*http.Request) fate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f == nil {
		f = func(*http.Request) fate { return fate{} }
	}
	d.fate = f
}

// cut takes the process off the network.
func (d *driver) cut() {
	d.network(func(*http.Request) fate { return fate{lost: true} })
	d.w.kube.CutWatches()
}

// wire is the way from a process to the API server.
type wire struct {
	d    *driver
	next http.RoundTripper
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	d := w.d
	d.alive()
	d.mu.Lock()
	t := d.fate(r)
	if d.dead {
		t = fate{lost: true}
	}
	d.mu.Unlock()
	if t.lost {
		return nil, errors.New("connection refused")
	}
	// What was sent arrives, whatever becomes of the sender.
	if t.late+t.lateAnswer > 0 || t.lostAnswer {
		return w.slow(r, t)
	}
	resp, err := w.next.RoundTrip(r)
	d.alive()
	return resp, err
}

func (w *wire) slow(r *http.Request, t fate) (*http.Response, error) {
	type answer struct {
		resp *http.Response
		err  error
	}
	arrives, given := make(chan answer), make(chan struct{})
	defer close(given)
	sent := r.Clone(context.WithoutCancel(r.Context()))
	w.d.flying.Go(func() {
		time.Sleep(t.late)
		resp, err := w.next.RoundTrip(sent)
		time.Sleep(t.lateAnswer)
		if err == nil && t.lostAnswer {
			_ = resp.Body.Close()
			resp, err = nil, errors.New("connection reset")
		}
		select {
		case arrives <- answer{resp, err}:
		case <-given:
			if err == nil {
				_ = resp.Body.Close()
			}
		}
	})
	select {
	case a := <-arrives:
		w.d.alive()
		return a.resp, a.err
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// enter is a call that begins now and must be admitted within a time.
func (d *driver) enter(within time.Duration) (context.Context, func()) {
	d.w.Helper()
	ctx, cancel := context.WithTimeout(d.w.Context(), within)
	d.w.Cleanup(cancel)
	guarded, leave, err := d.Enter(ctx)
	if err != nil {
		d.w.Fatalf("%s: not within %s: %v", d.identity, within, err)
	}
	return guarded, leave
}

// refused is a call that ends with an error when its time is over.
func (d *driver) refused(within time.Duration, kind fault.Kind, text string) {
	d.w.Helper()
	ctx, cancel := context.WithTimeout(d.w.Context(), within)
	defer cancel()
	_, leave, err := d.Enter(ctx)
	if err == nil {
		leave()
	}
	if !fault.Is(err, kind) || !strings.Contains(err.Error(), text) {
		d.w.Errorf("%s: got %s %v, want %s %q", d.identity, fault.KindOf(err), err, kind, text)
	}
}

func (d *driver) want(changes ...Change) {
	d.w.Helper()
	synctest.Wait()
	if fmt.Sprint(d.changes) != fmt.Sprint(changes) {
		d.w.Errorf("%s: changes %v, want %v", d.identity, d.changes, changes)
	}
}

func in(t *testing.T, f func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t)) })
}

// name of the Lease.
var name = "writer." + kube.OwnerMark(owner)

// mayAttempt asks a context's guard for an attempt.
func mayAttempt(ctx context.Context) bool { return transport.May(ctx, transport.AttemptTimeout) == nil }

// A free Lease is taken without a call, and follows the calls from then on.
func TestFollowsTheCalls(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		synctest.Wait()
		if !a.Held() {
			w.Fatal("a free Lease was not taken")
		}
		b := w.driver("b", nil)
		time.Sleep(10 * time.Second)
		if b.Held() || !a.Held() {
			w.Fatal("a Lease moved without a call")
		}
		call, leave := a.enter(0)
		asked := time.Now()
		go func() {
			time.Sleep(3 * time.Second)
			if !mayAttempt(call) {
				w.Error("a call under way may not go on during a handover")
			}
			leave()
			leave() // counts once
		}()
		time.Sleep(time.Second)
		_, leaveB := b.enter(time.Minute)
		if took := time.Since(asked); took < 3*time.Second || took > 3*time.Second+100*time.Millisecond {
			w.Errorf("handed over after %s", took)
		}
		if mayAttempt(call) {
			w.Error("a call that has ended may still send something")
		}
		leaveB()
		a.want(Taken, Released)
		b.want(Taken)
		if a.taken != 1 || b.taken != 1 {
			w.Errorf("Taken was called %d and %d times", a.taken, b.taken)
		}
		if o := w.kube.Lease(name); *o.Spec.LeaseTransitions != 2 || nameOf(holderOf(o)) != "b" || o.Labels[kube.OwnerLabel] == "" || o.Annotations[kube.OwnerLabel] != owner {
			w.Errorf("the Lease is %+v", o)
		}
	})
}

// Nothing is called in steady state but the renewals, and a call at the holder
// costs nothing.
func TestSteadyState(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		synctest.Wait()
		w.driver("b", nil)
		time.Sleep(time.Second)
		w.kube.LeaseCalls()
		for range 50 { // the fake's watches last for a minute without news
			_, leave := a.enter(0)
			leave()
			time.Sleep(time.Second)
		}
		if calls := w.kube.LeaseCalls(); fmt.Sprint(calls) != "map[update:10]" {
			w.Errorf("calls %v", calls)
		}
	})
}

// Work that no caller waits for ends as soon as another driver asks.
func TestIdleWorkMakesWay(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		synctest.Wait()
		b := w.driver("b", nil)
		synctest.Wait()
		if _, _, err := b.EnterIdle(w.Context()); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "driver a has Lease "+kubefake.Namespace+"/"+name+",") {
			w.Errorf("idle work at a driver that does not hold the Lease: %v", err)
		}
		idle, leave, err := a.EnterIdle(w.Context())
		if err != nil || !mayAttempt(idle) {
			w.Fatal(err)
		}
		call, leaveCall := a.enter(0)
		asked := make(chan time.Time, 1)
		go func() {
			_, leave := b.enter(time.Minute)
			asked <- time.Now()
			leave()
		}()
		<-idle.Done()
		if err := context.Cause(idle); !fault.Is(err, fault.Unavailable) {
			w.Errorf("the cause is %v", err)
		}
		if err := transport.May(idle, 0); !fault.Is(err, fault.Unavailable) {
			w.Errorf("an attempt during the handover: %v", err)
		}
		if !mayAttempt(call) {
			w.Error("a call is cut off with the idle work")
		}
		if _, _, err := a.EnterIdle(w.Context()); !fault.Is(err, fault.Unavailable) {
			w.Errorf("more idle work during a handover: %v", err)
		}
		leaveCall()
		time.Sleep(5 * time.Second)
		if b.Held() {
			w.Error("the Lease was handed over under idle work")
		}
		ended := time.Now()
		leave()
		if took := (<-asked).Sub(ended); took > 100*time.Millisecond {
			w.Errorf("handed over %s after the work had ended", took)
		}
	})
}

// Two drivers that are both called all the time take turns of a second.
func TestTakesTurns(t *testing.T) {
	in(t, func(w *world) {
		drivers := []*driver{w.driver("a", nil), w.driver("b", nil), w.driver("c", nil)}
		const length = 60 * time.Second
		var calls [3]int
		var longest time.Duration
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i, d := range drivers {
			for range 4 {
				wg.Go(func() {
					for begun := time.Now(); time.Since(begun) < length; {
						asked := time.Now()
						_, leave := d.enter(time.Minute)
						mu.Lock()
						calls[i]++
						longest = max(longest, time.Since(asked))
						mu.Unlock()
						time.Sleep(50 * time.Millisecond)
						leave()
					}
				})
			}
		}
		wg.Wait()
		transitions := int(*w.kube.Lease(name).Spec.LeaseTransitions)
		if transitions < 40 || transitions > 63 {
			w.Errorf("%d handovers in %s", transitions, length)
		}
		if longest > 2500*time.Millisecond {
			w.Errorf("a call waited for %s: two others had a turn of a second before it", longest)
		}
		for i, n := range calls {
			if n < 4*300 {
				w.Errorf("%d of %v calls at %s", n, calls, drivers[i].identity)
			}
		}
	})
}

// Who asks first is served first, and who is dead does not hold up the others.
func TestOrder(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		_, leave := a.enter(time.Second)
		order := make(chan string, 4)
		var drivers []*driver
		for _, name := range []string{"b", "c", "d"} {
			d := w.driver(name, nil)
			drivers = append(drivers, d)
			go func() {
				ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
				defer cancel()
				if _, leave, err := d.Enter(ctx); err == nil {
					order <- d.identity
					leave()
				}
			}()
			time.Sleep(time.Second)
		}
		drivers[0].kill()
		released := time.Now()
		leave()
		if got := <-order + <-order; got != "cd" {
			w.Errorf("served in the order %s", got)
		}
		if took := time.Since(released); took > 2500*time.Millisecond {
			w.Errorf("both were served after %s", took)
		}
		// The list is empty then.
		time.Sleep(time.Second)
		if list := waitingFor(w.kube.Lease(name)); len(list) != 0 {
			w.Errorf("still waiting: %v", list)
		}
	})
}

// A killed driver's Lease is taken over by one that is called, and by one that is
// not, once it can have nothing under way.
func TestKill(t *testing.T) {
	for name, called := range map[string]bool{"called": true, "not called": false} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				a := w.driver("a", nil)
				call, _ := a.enter(time.Second)
				b := w.driver("b", nil)
				time.Sleep(14 * time.Second)
				last := time.Now() // the moment before the end in which it could begin an attempt
				if !mayAttempt(call) {
					w.Fatal("the holder may not send anything")
				}
				a.kill()
				if called {
					_, leave := b.enter(35 * time.Second)
					defer leave()
				} else {
					time.Sleep(35 * time.Second)
				}
				if !b.Held() {
					w.Fatal("not taken over within 35 s")
				}
				if took := time.Since(last); called && took < transport.AttemptTimeout {
					w.Errorf("taken over %s after an attempt was begun", took)
				}
			})
		})
	}
}

// A container that was restarted takes the Lease of its predecessor at once;
// one that has another name cannot know that it is gone.
func TestRestart(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		a.enter(time.Second)
		a.kill()
		begun := time.Now()
		again := w.driver("a", nil)
		_, leave := again.enter(time.Minute)
		if took := time.Since(begun); took > 100*time.Millisecond {
			w.Errorf("its own Lease was taken after %s", took)
		}
		leave()
		again.want(Taken)

		// Only what was there at its start is its predecessor's.
		b := w.driver("b", nil)
		_, leave = b.enter(time.Minute)
		w.kube.EditLease(name, func(o *coordinationv1.Lease) { *o.Spec.HolderIdentity = "a_other" })
		leave()
		time.Sleep(20 * time.Second)
		if again.Held() || b.Held() {
			w.Error("a Lease that another of the same name holds was taken")
		}
		again.enter(15 * time.Second)
	})
}

func TestClose(t *testing.T) {
	in(t, func(w *world) {
		a, closed := w.driver("a", nil), make(chan struct{})
		call, leave := a.enter(time.Second)
		idle, leaveIdle, err := a.EnterIdle(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		context.AfterFunc(idle, leaveIdle)
		b := w.driver("b", nil)
		synctest.Wait()
		go func() {
			defer close(closed)
			ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
			defer cancel()
			a.Close(ctx)
		}()
		time.Sleep(40 * time.Second) // it goes on renewing for the call
		a.refused(time.Second, fault.Unavailable, "this driver is stopping")
		if !mayAttempt(call) || b.Held() || idle.Err() == nil {
			w.Errorf("a stop did not wait for the call (%v), or did for idle work", transport.May(call, 0))
		}
		leave()
		<-closed
		synctest.Wait()
		if !b.Held() {
			w.Error("what was given back was not taken")
		}
		a.want(Taken, Released)

		// A call that does not end in time keeps the Lease from being given back.
		call, _ = b.enter(time.Second)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		b.Close(ctx)
		if err := transport.May(call, 0); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "this driver stops") {
			w.Errorf("an attempt after the stop: %v", err)
		}
		b.want(Taken, Lost)
		c := w.driver("c", nil)
		c.refused(19*time.Second, fault.Unavailable, "driver b has Lease")
		c.enter(16 * time.Second)
	})
}

// A process that was paused, or whose machine was suspended, sends nothing
// after its Lease has expired, although it has heard of nothing.
func TestPaused(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		call, leave := a.enter(time.Second)
		b := w.driver("b", nil)
		synctest.Wait()
		a.pause()
		_, leaveB := b.enter(35 * time.Second)
		may := make(chan bool)
		go func() { may <- mayAttempt(call) }()
		a.resume()
		if <-may {
			w.Error("a process that was paused sends something")
		}
		// It is admitted again in its turn; what it was doing before is not.
		leaveB()
		again, leaveAgain := a.enter(5 * time.Second)
		if !mayAttempt(again) || mayAttempt(call) {
			w.Errorf("a call: %v; a call from before the Lease was lost: %v", mayAttempt(again), mayAttempt(call))
		}
		leaveAgain()
		leave()
		a.want(Taken, Lost, Taken)
	})
}

func TestSuspended(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		call, leave := a.enter(time.Second)
		defer leave()
		b := w.driver("b", nil)
		synctest.Wait()
		b.pause() // and is not told that the holder is well
		time.Sleep(time.Hour)
		b.resume()
		b.refused(20*time.Second, fault.Unavailable, "driver a has Lease "+kubefake.Namespace+"/"+name+",")
		a.want(Taken)

		a.mu.Lock()
		a.ahead = time.Hour // while its timers stood still
		a.mu.Unlock()
		if mayAttempt(call) || a.Held() {
			w.Error("the Lease outlives the suspension of its holder")
		}
	})
}

// In an outage of the API server the holder goes on for as long as it is sure.
func TestOutage(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		call, leave := a.enter(time.Second)
		time.Sleep(4900 * time.Millisecond)
		w.kube.Down()
		time.Sleep(5 * time.Second) // almost 10 s after the last renewal
		if !mayAttempt(call) {
			w.Error("it does not serve to the end")
		}
		_, leave2 := a.enter(0)
		leave2()
		time.Sleep(200 * time.Millisecond)
		if err := transport.May(call, transport.AttemptTimeout); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "was not renewed in time: the Kubernetes API server cannot be reached") {
			w.Errorf("an attempt that the Lease does not outlive: %v", err)
		}
		if err := transport.May(call, time.Second); err != nil {
			w.Errorf("an attempt that it outlives: %v", err)
		}
		a.refused(time.Second, fault.Unavailable, "the right to change things, cannot be taken or renewed: the Kubernetes API server cannot be reached")
		b := w.driver("b", nil)
		synctest.Wait()
		b.Close(w.Context()) // it has nothing to give back, so it waits for nothing
		time.Sleep(time.Minute)
		w.kube.Inject(nil)
		_, leave2 = a.enter(2 * time.Second)
		if !mayAttempt(call) {
			w.Error("another took nothing meanwhile, so the call may go on")
		}
		leave2()
		leave()
		a.want(Taken)
	})
}

// Whatever becomes of calls and answers, one driver at most is sure to hold the
// Lease, and it comes to an end.
func TestLostAndLate(t *testing.T) {
	every := func(n int, f fate) func(*http.Request) fate {
		calls := 0
		return func(r *http.Request) fate {
			if calls++; r.URL.Query().Get("watch") == "" && calls%n == 0 {
				return f
			}
			return fate{}
		}
	}
	for name, network := range map[string]func() func(*http.Request) fate{
		"all answers late":      func() func(*http.Request) fate { return every(1, fate{lateAnswer: 3 * time.Second}) },
		"all calls late":        func() func(*http.Request) fate { return every(1, fate{late: 3 * time.Second}) },
		"answers after 20 s":    func() func(*http.Request) fate { return every(3, fate{lateAnswer: 20 * time.Second}) },
		"calls after 20 s":      func() func(*http.Request) fate { return every(3, fate{late: 20 * time.Second}) },
		"every answer lost":     func() func(*http.Request) fate { return every(2, fate{lostAnswer: true}) },
		"every third call lost": func() func(*http.Request) fate { return every(3, fate{lost: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				a, b := w.driver("a", nil), w.driver("b", nil)
				a.network(network())
				b.network(network())
				for range 5 {
					for _, d := range []*driver{a, b} {
						call, leave := d.enter(time.Minute)
						if !mayAttempt(call) {
							w.Errorf("%s is admitted and may do nothing", d.identity)
						}
						if a.Held() && b.Held() {
							w.Error("both hold the Lease")
						}
						leave()
						time.Sleep(7 * time.Second)
					}
				}
			})
		})
	}
}

// The guard counts from before a renewal was sent.
func TestLateRenewal(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		call, leave := a.enter(time.Second)
		defer leave()
		w.kube.HoldWatches(true) // which would bring it at once
		time.Sleep(4 * time.Second)
		a.network(func(*http.Request) fate { return fate{lateAnswer: 3 * time.Second} })
		time.Sleep(5 * time.Second) // a renewal of 4 s ago was answered 1 s ago
		if err := transport.May(call, 26*time.Second); err != nil {
			w.Errorf("before its end: %v", err)
		}
		if err := transport.May(call, 27*time.Second); err == nil {
			w.Error("the right counts from the answer")
		}
	})
}

// A watch that brings nothing makes a handover slow, and does not prevent it.
func TestSilentWatch(t *testing.T) {
	in(t, func(w *world) {
		a, b := w.driver("a", nil), w.driver("b", nil)
		synctest.Wait()
		w.kube.HoldWatches(true)
		for range 3 {
			for _, d := range []*driver{a, b} {
				_, leave := d.enter(every + quiet + time.Second)
				leave()
			}
		}
	})
}

func TestDeleted(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		call, leave := a.enter(time.Second)
		b := w.driver("b", nil)
		synctest.Wait()
		w.kube.EditLease(name, nil)
		synctest.Wait()
		if !a.Held() || b.Held() || !mayAttempt(call) || w.kube.Lease(name) == nil {
			w.Error("its holder did not make it again")
		}
		// Without its holder it is waited for as if it were there.
		a.cut()
		w.kube.EditLease(name, nil)
		b.refused(25*time.Second, fault.Unavailable, "driver a has Lease "+kubefake.Namespace+"/"+name+",")
		b.enter(10 * time.Second)
		leave()
		a.network(nil)
		time.Sleep(2 * time.Second)
		a.want(Taken, Lost)
	})
}

// Who has not heard of the last renewals does not know how old a deletion is.
func TestDeletedUnseen(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		call, leave := a.enter(time.Second)
		defer leave()
		b := w.driver("b", nil)
		time.Sleep(time.Second)
		w.kube.HoldWatches(true)
		time.Sleep(28 * time.Second)
		a.cut()
		w.kube.EditLease(name, nil)
		for transport.May(call, 0) == nil {
			if b.Held() {
				w.Fatal("taken while its holder may send something")
			}
			time.Sleep(time.Second)
		}
		time.Sleep(20 * time.Second)
		if !b.Held() {
			w.Error("it was not taken at all")
		}
	})
}

func TestEdited(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		call, leave := a.enter(time.Second)
		w.kube.EditLease(name, func(o *coordinationv1.Lease) { *o.Spec.HolderIdentity = "other" })
		synctest.Wait()
		if err := transport.May(call, 0); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "was lost (other has it)") {
			w.Errorf("an attempt after the Lease was taken away: %v", err)
		}
		leave()
		a.refused(20*time.Second, fault.Unavailable, "driver other has Lease")
		a.enter(15 * time.Second)
		w.kube.EditLease(name, func(o *coordinationv1.Lease) {
			o.Spec = coordinationv1.LeaseSpec{LeaseTransitions: new(int32(math.MaxInt32))}
			o.Annotations = map[string]string{waitingAnnotation: strings.Repeat("x ", 1000)}
		})
		synctest.Wait()
		a.enter(every + time.Second)
		a.want(Taken, Lost, Taken, Lost, Taken)
	})
}

// What a backup says of the holder is true no more.
func TestBackup(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		_, leave := a.enter(time.Second)
		leave()
		restore := w.kube.Backup()
		b := w.driver("b", nil)
		call, leave := b.enter(time.Minute)
		time.Sleep(10 * time.Second)
		restore()
		for range 30 {
			if a.Held() && mayAttempt(call) {
				w.Fatal("both may change things")
			}
			time.Sleep(time.Second)
		}
		leave()
		b.enter(10 * time.Second)
	})
}

// What the API server refuses is said at once, with the cure.
func TestForbidden(t *testing.T) {
	in(t, func(w *world) {
		w.kube.Inject(func(verb, name string) kubefake.Fault {
			return kubefake.Fault{Refuse: apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, name, errors.New("RBAC"))}
		})
		a := w.driver("a", nil)
		begun := time.Now()
		a.refused(time.Minute, fault.PermissionDenied, "cannot be taken or renewed: the Kubernetes API server does not let the driver get Leases in namespace "+kubefake.Namespace+"; its Role needs get, watch, create and update on leases.coordination.k8s.io")
		if took := time.Since(begun); took > time.Second {
			w.Errorf("said after %s", took)
		}
		w.kube.Inject(nil)
		time.Sleep(2 * time.Second)
		a.enter(0)
	})
}

// A driver that cannot read the journal gives the Lease to one that can.
func TestTakenInVain(t *testing.T) {
	in(t, func(w *world) {
		fails := true
		a := w.driver("a", func(context.Context) error {
			if fails {
				return fault.New(fault.Unavailable, "the journal cannot be read")
			}
			return nil
		})
		a.refused(time.Second, fault.Unavailable, "was taken and given back: the journal cannot be read")
		b := w.driver("b", nil)
		_, leave := b.enter(time.Second)
		leave()
		fails = false
		_, leave = a.enter(2 * every)
		leave()

		// A slow one holds up nothing but its own calls, and ends with the Lease.
		ended := make(chan error, 1)
		c := w.driver("c", func(ctx context.Context) error {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		})
		c.refused(2*keep, fault.Unavailable, "is being taken")
		for range 4 { // it is taken again at once
			w.kube.EditLease(name, func(o *coordinationv1.Lease) {
				o.Spec.HolderIdentity = nil
				setWaiting(o, []string{"c"})
			})
			synctest.Wait()
			select {
			case err := <-ended:
				if !strings.Contains(err.Error(), "was lost (no driver has it)") {
					w.Errorf("ended with %v", err)
				}
			default:
				w.Error("it goes on without the Lease")
			}
		}
	})
}

// A driver that stops gives back even what it does not know to have.
func TestCloseWithoutAnswers(t *testing.T) {
	in(t, func(w *world) {
		w.kube.HoldWatches(true)
		w.kube.Inject(func(verb, _ string) kubefake.Fault { return kubefake.Fault{DropAnswer: verb == "create"} })
		a := w.driver("a", nil)
		synctest.Wait()
		a.Close(w.Context())
		if o := w.kube.Lease(name); o == nil || holderOf(o) != "" {
			w.Errorf("the Lease is %+v", o)
		}
	})
}

// Two processes of one name do not both hold it, no matter which has taken it.
func TestSameName(t *testing.T) {
	in(t, func(w *world) {
		b := w.driver("b", nil)
		_, leave := b.enter(time.Second)
		one, two := w.driver("a", nil), w.driver("a", nil)
		var calls sync.WaitGroup
		for _, d := range []*driver{one, two} {
			for i := range 5 {
				calls.Go(func() {
					time.Sleep(time.Duration(i) * 7 * time.Second)
					ctx, cancel := context.WithTimeout(w.Context(), 20*time.Second)
					defer cancel()
					call, leave, err := d.Enter(ctx)
					if err != nil {
						return // they are taken for one, so one of them may have to wait for long
					}
					if mayAttempt(call) && one.Held() && two.Held() {
						w.Error("both may change things")
					}
					leave()
				})
			}
		}
		time.Sleep(time.Second)
		leave()
		calls.Wait()
	})
}

// The time of a renewal is for people, and says which one it was.
func TestStamp(t *testing.T) {
	in(t, func(w *world) { // where time stands still
		x := &tenure{}
		if one, two := x.stamp(1), x.stamp(2); one.Equal(two) || !two.Equal(&x.renewal) || x.sent != 2 {
			w.Errorf("%s and %s", one, two)
		}
	})
}

// A watch whose beginning is not answered is given up for another.
func TestWatchWithoutAnswer(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		synctest.Wait()
		b := w.driver("b", nil)
		watches := 0
		b.network(func(r *http.Request) (f fate) {
			if r.URL.Query().Get("watch") != "" {
				if watches++; watches == 1 {
					f.late = time.Hour
				}
			}
			return f
		})
		w.kube.CutWatches()
		time.Sleep(10 * time.Second)
		a.Close(w.Context())
		synctest.Wait()
		if !b.Held() {
			w.Error("it did not see that the Lease was given back")
		}
	})
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, string(line))
	return len(line), nil
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.text)
}

// What becomes of the Lease is one line each time, with the reason.
func TestLog(t *testing.T) {
	in(t, func(w *world) {
		log := &lines{}
		w.log = textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log)))
		a := w.driver("a", nil)
		synctest.Wait()
		b := w.driver("b", nil)
		_, leave := b.enter(time.Minute)
		a.Close(w.Context())
		w.kube.EditLease(name, func(o *coordinationv1.Lease) { *o.Spec.HolderIdentity = "other" })
		leave()
		time.Sleep(2 * life)
		var got []string
		for _, line := range log.all() {
			_, text, _ := strings.Cut(strings.TrimSpace(line), "] ")
			got = append(got, strings.Replace(text, ` lease="`+kubefake.Namespace+"/"+name+`"`, "", 1))
		}
		want := []string{
			`"Took the Lease" logger="a" reason="it is free"`,
			`"Gave the Lease back" logger="a" waiting=["b"]`,
			`"Took the Lease" logger="b" reason="it is free"`,
			`"Lost the Lease" logger="b" reason="other has it"`,
			`"Took the Lease" logger="b" reason="driver other did not renew it"`,
		}
		slices.Sort(got[1:3]) // of two processes
		slices.Sort(want[1:3])
		if !slices.Equal(got, want) {
			w.Errorf("the log is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A call that is given up is not one that found the Lease elsewhere.
func TestGivenUp(t *testing.T) {
	in(t, func(w *world) {
		a := w.driver("a", nil)
		synctest.Wait()
		b := w.driver("b", nil)
		_, leave := a.enter(0)
		defer leave()
		ctx, cancel := context.WithCancel(w.Context())
		time.AfterFunc(time.Second, cancel)
		if _, _, err := b.Enter(ctx); !fault.Is(err, fault.Canceled) {
			w.Errorf("got %v", err)
		}
	})
}
