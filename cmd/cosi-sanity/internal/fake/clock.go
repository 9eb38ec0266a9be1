package fake

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A driver with a fault of timing shows it when calls meet or are given up.
// GiveUp, Hang and Gather take the place of the suite's clock: what would come
// with time, comes when the driver is at the place.

// GiveUp runs stop when the next call is in the midst of its work, in a driver
// whose fault is to be given up there.
func (d *Driver) GiveUp(_ time.Duration, stop func()) (undo func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.giveUp = stop
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.giveUp = nil
		return true
	}
}

// Hang runs stop when a call hangs, in a driver whose fault that is.
func (d *Driver) Hang(_ time.Duration, stop func()) (undo func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	n := d.count
	d.hanging[n] = stop
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.hanging, n)
		return true
	}
}

// Gather says that n callers begin together, and then of each that it is done.
// A call waits for another beside it as long as one can come.
func (d *Driver) Gather(n int) (leave func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.crowd += n
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.crowd--
		d.relent()
	}
}

// meeting is the calls that are under way at one place.
type meeting struct {
	calls []*present
	met   bool
}

type present struct {
	ctx     context.Context
	name    string
	beside  bool
	settled chan struct{} // closed when beside is known
}

// together reports whether another call is under way at the same place, of
// another name if it has one. One that its caller has given up does not count.
// The call holds its place until leave.
func (d *Driver) together(ctx context.Context, place, name string) (beside bool, leave func()) {
	own := &present{ctx: ctx, name: name, settled: make(chan struct{})}
	d.mu.Lock()
	m := d.meetings[place]
	if m == nil {
		m = &meeting{}
		d.meetings[place] = m
	}
	m.met = m.met || slices.ContainsFunc(m.calls, func(p *present) bool { return p.ctx.Err() == nil && (name == "" || p.name != name) })
	m.calls = append(m.calls, own)
	d.waiting = append(d.waiting, own)
	if m.met {
		d.settle(true, m.calls...)
	}
	d.relent()
	d.mu.Unlock()
	select {
	case <-own.settled:
	case <-ctx.Done():
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settle(false, own)
	return own.beside, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		m.calls = slices.DeleteFunc(m.calls, func(p *present) bool { return p == own })
		if len(m.calls) == 0 && d.meetings[place] == m {
			delete(d.meetings, place)
		}
	}
}

// relent lets the calls go that wait in vain: all callers wait.
func (d *Driver) relent() {
	if len(d.waiting) >= d.crowd {
		d.settle(false, slices.Clone(d.waiting)...)
	}
}

// settle tells calls that still wait whether there is another beside them.
func (d *Driver) settle(beside bool, calls ...*present) {
	for _, p := range calls {
		if i := slices.Index(d.waiting, p); i >= 0 {
			d.waiting = slices.Delete(d.waiting, i, i+1)
			p.beside = beside
			close(p.settled)
		}
	}
}

// linger spoils a name whose caller gives up.
func (d *Driver) linger(ctx context.Context, f Fault, name string) error {
	if !d.has(f) {
		return nil
	}
	d.mu.Lock()
	giveUp := d.giveUp
	d.spoilt[name] = d.spoilt[name] || giveUp != nil || ctx.Err() != nil
	spoilt := d.spoilt[name]
	d.mu.Unlock()
	if giveUp != nil {
		giveUp()
		<-ctx.Done()
	}
	if spoilt {
		return status.Error(codes.Internal, "it is in disorder")
	}
	return nil
}

// hang never answers.
func (d *Driver) hang(ctx context.Context) {
	d.mu.Lock()
	for _, stop := range d.hanging {
		stop()
	}
	d.mu.Unlock()
	<-ctx.Done()
}
