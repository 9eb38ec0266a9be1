package lease

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

var (
	runs = flag.Int("runs", 6, "random `walks` of each kind")
	seed = flag.Uint64("seed", 0, "repeat the walk of this `seed`")
)

// service is what the drivers change: it notices whatever two of them send at a time.
type service struct {
	*testing.T
	mu       sync.Mutex
	attempts []attempt
	sent     map[string]int
}

type attempt struct {
	by         *driver
	begun, end time.Time
}

// send is an attempt that arrives at some time in its 20 s, whatever becomes of
// the process that sent it.
func (s *service) send(ctx context.Context, d *driver, length time.Duration) bool {
	if transport.May(ctx, transport.AttemptTimeout) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, a := range s.attempts {
		if a.by != d && a.end.After(now) {
			s.Errorf("at %s: %s sends something although what %s sent at %s can arrive until %s", now.Format(time.TimeOnly), d.identity, a.by.identity, a.begun.Format(time.TimeOnly), a.end.Format(time.TimeOnly))
		}
	}
	s.attempts = append(s.attempts[max(0, len(s.attempts)-200):], attempt{d, now, now.Add(length)})
	s.sent[d.identity]++
	return true
}

// forget leaves out what a killed process has sent, as is done for the sake of a
// restarted container, which does not have to wait.
func (s *service) forget(d *driver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = slices.DeleteFunc(s.attempts, func(a attempt) bool { return a.by == d })
}

// walk is one random history of some drivers.
type walk struct {
	*world
	service *service
	random  *rand.Rand
	rough   bool // processes are killed and paused, and networks cut; otherwise each call is admitted

	mu      sync.Mutex
	drivers []*driver
	calls   sync.WaitGroup
}

func (w *walk) chance(percent int) bool { return w.number(100) < percent }

func (w *walk) number(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

func (w *walk) upTo(d time.Duration) time.Duration { return time.Duration(w.number(int(d))) }

func (w *walk) alive(i int) *driver {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.drivers[i]
}

// faults makes some calls to the API server late, and loses some.
func (w *walk) faults(percent int) func(*http.Request) fate {
	return func(r *http.Request) (f fate) {
		if r.URL.Query().Get("watch") != "" || !w.chance(percent) {
			return fate{}
		}
		switch w.number(4) {
		case 0:
			f.lost = true
		case 1:
			f.lostAnswer = true
		case 2:
			f.late = w.upTo(40 * time.Second)
		case 3:
			f.lateAnswer = w.upTo(40 * time.Second)
		}
		return f
	}
}

// call is what a sidecar asks for: some attempts, one after the other.
func (w *walk) call(d *driver, idle bool) {
	const patience = 3 * time.Minute
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	enter := d.Enter
	if idle {
		enter = d.EnterIdle
	}
	begun := time.Now()
	ctx, leave, err := enter(ctx)
	if err != nil {
		if !w.rough && !idle {
			w.Errorf("a call at %s was not admitted in %s: %v", d.identity, time.Since(begun), err)
		}
		return
	}
	defer leave()
	for range 1 + w.number(3) {
		length := w.upTo(transport.AttemptTimeout)
		if w.chance(70) {
			length /= 100
		}
		if !w.service.send(ctx, d, length) || idle && ctx.Err() != nil {
			return
		}
		time.Sleep(length)
	}
}

// disturb does something to a process or to the API server.
func (w *walk) disturb() {
	i := w.number(len(w.drivers))
	d := w.alive(i)
	if d.isDead() {
		return
	}
	switch w.number(9) {
	case 0:
		d.kill()
		w.calls.Go(func() {
			time.Sleep(w.upTo(time.Minute))
			identity := d.identity // the container is restarted, or another pod
			if w.chance(50) {
				identity += "'"
			} else {
				w.service.forget(d)
			}
			next := w.driver(identity, nil)
			next.network(w.faults(5))
			w.mu.Lock()
			defer w.mu.Unlock()
			w.drivers[i] = next
		})
	case 1, 2:
		d.pause()
		w.calls.Go(func() {
			time.Sleep(w.upTo(90 * time.Second))
			d.resume()
		})
	case 3:
		d.cut()
		w.calls.Go(func() {
			time.Sleep(w.upTo(90 * time.Second))
			d.network(w.faults(5))
		})
	case 4:
		w.kube.CutWatches()
	case 5:
		w.kube.HoldWatches(true)
		w.calls.Go(func() {
			time.Sleep(w.upTo(time.Minute))
			w.kube.HoldWatches(false)
		})
	case 6:
		w.kube.Down()
		w.calls.Go(func() {
			time.Sleep(w.upTo(time.Minute))
			w.kube.Inject(nil)
		})
	case 7:
		d.network(w.faults(40))
	case 8: // an orderly stop
		ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
		d.resume()
		d.Close(ctx)
		cancel()
		next := w.driver(d.identity+"+", nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.drivers[i] = next
	}
}

func (w *walk) run() {
	const length = 8 * time.Minute
	for i := range 2 + w.number(3) {
		d := w.driver(fmt.Sprintf("%c", 'a'+i), nil)
		d.network(w.faults(5))
		w.drivers = append(w.drivers, d)
	}
	begun := time.Now()
	for i := range w.drivers {
		for range 1 + w.number(3) {
			w.calls.Go(func() {
				for time.Since(begun) < length {
					time.Sleep(w.upTo(20 * time.Second))
					w.call(w.alive(i), w.chance(30))
				}
			})
		}
	}
	for w.rough && time.Since(begun) < length {
		time.Sleep(w.upTo(30 * time.Second))
		w.disturb()
	}
	w.calls.Wait()

	// When all is well again, the driver that is called is admitted.
	w.kube.Inject(nil)
	w.kube.HoldWatches(false)
	for _, d := range w.drivers {
		d.resume()
		d.network(nil)
	}
	for _, d := range w.drivers {
		if d.isDead() {
			continue
		}
		ctx, leave := d.enter(life + margin + every + callTimeout)
		if !w.service.send(ctx, d, 0) {
			w.Errorf("%s is admitted and may send nothing: %v", d.identity, transport.May(ctx, transport.AttemptTimeout))
		}
		leave()
	}
}

// At no time may two drivers send something, whatever happens to them, to their
// network and to the API server; and a call that waits is admitted.
func TestWalks(t *testing.T) {
	for name, rough := range map[string]bool{"rough": true, "patient": false} {
		t.Run(name, func(t *testing.T) {
			n := *runs
			if *seed != 0 {
				n = 1
			}
			for range n {
				s := *seed
				if s == 0 {
					s = rand.Uint64()
				}
				t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := &walk{
							world: newWorld(t), service: &service{T: t, sent: map[string]int{}}, random: rand.New(rand.NewPCG(s, 0)),
							rough: rough,
						}
						w.run()
						if len(w.service.sent) == 0 {
							t.Error("nothing was sent at all")
						}
					})
				})
			}
		})
	}
}
