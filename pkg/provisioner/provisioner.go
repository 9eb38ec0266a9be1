// Package provisioner holds the driver's use cases: make a bucket under a
// contract, give an application a key to it, take the key back, delete the
// bucket. They are written once, for every storage service and every version
// of the COSI API.
//
// Each call is safe to repeat, at any time and after any crash. That rests on
// four things: one process at a time changes things ([Writer]), and its locks
// keep its calls on one thing apart; ids are pure functions of the request; a
// key's intent is in the journal before a service is asked for it, and every
// result before the caller is answered; and what a service does can be repeated,
// is undone, or carries the driver's mark.
package provisioner

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/lock"
	"github.com/contract-cosi/contract-cosi-driver/pkg/site"
)

// Writer lets one process at a time change things at the storage services. The
// context that it returns is what a call goes on with: it ends attempts that
// could outlive the right to make them.
type Writer interface {
	// Enter waits until this process is the one.
	Enter(ctx context.Context) (_ context.Context, leave func(), err error)
	// EnterIdle is for work that no caller waits for: it is refused unless this
	// process is the one, and ends when another wants to be.
	EnterIdle(ctx context.Context) (_ context.Context, leave func(), err error)
}

// Claims knows what buckets were claimed for.
type Claims interface {
	// Namespace is that of the claim for which a bucket of this name is to be made.
	// Unavailable if it is not known yet.
	Namespace(ctx context.Context, bucket string) (string, error)
}

// alone is the Writer of a process that has its journal to itself.
type alone struct{}

func (alone) Enter(ctx context.Context) (context.Context, func(), error) { return ctx, func() {}, nil }

func (alone) EnterIdle(ctx context.Context) (context.Context, func(), error) {
	return ctx, func() {}, nil
}

// Config makes a Provisioner.
type Config struct {
	// Backends are the storage services by name.
	Backends map[string]site.Backend
	// Terms returns what a contract is signed for; false if no class may name it.
	Terms func(contract string) (config.Terms, bool)
	// Journal remembers.
	Journal *journal.Journal
	// Writer admits calls; nil if no other process can have the journal.
	Writer Writer
	// Claims is asked where terms are for one namespace; nil if there are no such terms.
	Claims Claims
	// Deliverer writes keys into Secrets; nil if the driver may not.
	Deliverer Deliverer
	// Undelivered, which may be nil, hears why a key cannot be replaced in time, or
	// cannot be written as its class says: the reason is [KeyNotRenewed] or
	// [SecretNotWritten]. The bucket is one that it reaches.
	Undelivered func(reason string, access cosi.AccountID, bucket cosi.BucketID, why error)
	// Recorder hears what happens beside the answers to calls.
	Recorder site.Recorder
}

// Provisioner carries out the use cases.
type Provisioner struct {
	backends   map[string]site.Backend
	terms      func(contract string) (config.Terms, bool)
	journal    *journal.Journal
	writer     Writer
	claims     Claims
	recorder   site.Recorder
	sites      *site.Sites
	locks      lock.Names
	rooms      rooms
	alive      alive
	deliverer  Deliverer
	told       func(string, cosi.AccountID, cosi.BucketID, error)
	graces     graces
	background sync.WaitGroup // what is done after a call was answered
}

// New returns a Provisioner; no call is made.
func New(c Config) *Provisioner {
	if c.Writer == nil {
		c.Writer = alone{}
	}
	return &Provisioner{
		backends: c.Backends, terms: c.Terms, journal: c.Journal, writer: c.Writer, claims: c.Claims, recorder: c.Recorder,
		deliverer: c.Deliverer, told: c.Undelivered,
		sites: site.New(site.Config{Backends: c.Backends, Journal: c.Journal, Recorder: c.Recorder}),
	}
}

// Wait waits for what is still done after calls were answered. It is bounded,
// and no call may come after it.
func (p *Provisioner) Wait() { p.background.Wait() }

// TakenOver forgets what was true before this process became the one that changes
// things.
func (p *Provisioner) TakenOver() {
	p.sites.ForgetAll()
	p.alive.clear()
	p.graces.clear()
}

// undoTimeout bounds what is done after a call has failed or been given up, and what a call
// can do without.
const undoTimeout = 5 * time.Second

// call is a use case under way.
type call struct {
	p      *Provisioner
	unlock func()
	leave  func()
	parts  atomic.Int32 // those that have not ended: the call, and what it does after its answer
}

// begin admits a call: this process is the one that changes things, and no other
// of its calls is on the same things. Everyone asks for locks in the order
// contract, buckets by name, access.
func (p *Provisioner) begin(ctx context.Context, requests ...lock.Request) (context.Context, *call, error) {
	return p.admit(ctx, p.writer.Enter, requests)
}

// beginIdle is begin for work that no caller waits for.
func (p *Provisioner) beginIdle(ctx context.Context, requests ...lock.Request) (context.Context, *call, error) {
	return p.admit(ctx, p.writer.EnterIdle, requests)
}

func (p *Provisioner) admit(ctx context.Context, enter func(context.Context) (context.Context, func(), error), requests []lock.Request) (context.Context, *call, error) {
	ctx, leave, err := enter(ctx)
	if err != nil {
		return ctx, nil, err
	}
	unlock, err := p.locks.Acquire(ctx, requests...)
	if err != nil {
		leave()
		return ctx, nil, err
	}
	c := &call{p: p, unlock: unlock, leave: leave}
	c.parts.Add(1)
	return ctx, c, nil
}

// end ends the call, but for what is done after it.
func (c *call) end() {
	c.unlock()
	c.part()
}

func (c *call) part() {
	if c.parts.Add(-1) == 0 {
		c.leave()
	}
}

// after does something when the call is answered, without its locks.
func (c *call) after(do func()) {
	c.parts.Add(1)
	c.p.background.Go(func() {
		defer c.part()
		do()
	})
}

// undoing is a context for taking back what a call has done, also if the call
// was given up.
func undoing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}

// join makes one fault of several of the same kind.
func join(faults ...error) error {
	faults = slices.DeleteFunc(faults, func(err error) bool { return err == nil })
	if len(faults) < 2 {
		return errors.Join(faults...)
	}
	texts := make([]string, len(faults))
	for i, err := range faults {
		texts[i] = err.Error()
	}
	return fault.Wrap(fault.KindOf(faults[0]), faults[0], "%s", strings.Join(texts, "; "))
}

// parseBucket reads a bucket's id. An id that names no backend of the driver's is
// another driver's.
func (p *Provisioner) parseBucket(s string) (cosi.BucketID, site.Backend, error) {
	id, err := cosi.ParseBucketID(s)
	if err != nil {
		return id, site.Backend{}, err
	}
	backend, ok := p.backends[id.Backend]
	if !ok {
		return id, backend, fault.New(fault.InvalidArgument, "bucket id %q names backend %q, which is not this driver's; restore the backend's entry in the configuration if it was", s, id.Backend)
	}
	return id, backend, nil
}

// termsOf are a contract's terms, if the configuration has them for that backend.
func (p *Provisioner) termsOf(id cosi.ContractID) (config.Terms, bool) {
	terms, known := p.terms(id.Contract)
	return terms, known && terms.Backend == id.Backend
}

// Ready reports whether calls can be taken now: whether the journal can be read
// and written. A backend that is away concerns its own calls only.
func (p *Provisioner) Ready(ctx context.Context) error { return p.journal.Check(ctx) }

// CheckBackends looks at all backends at once, and returns for each, by name, why
// it cannot be used now, or nil.
func (p *Provisioner) CheckBackends(ctx context.Context) map[string]error {
	var mu sync.Mutex
	var looks sync.WaitGroup
	found := make(map[string]error, len(p.backends))
	for name, b := range p.backends {
		looks.Go(func() {
			err := b.Check(ctx)
			mu.Lock()
			defer mu.Unlock()
			found[name] = err
		})
	}
	looks.Wait()
	return found
}

func bucketIDOf(id cosi.AccountID, b journal.BucketAccess) cosi.BucketID {
	return cosi.BucketID{ContractID: id.ContractID, Bucket: b.Bucket}
}

// alive are the things that this process knows to exist, because it has made or
// seen them since it became the one that changes things, and has not begun to
// take them away. Of any other a process that was killed may have taken away half.
type alive struct {
	mu      sync.Mutex
	records map[uint64]struct{} // by their places, which take less than their keys
}

func (a *alive) add(key journal.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.records == nil {
		a.records = map[uint64]struct{}{}
	}
	a.records[journal.PlaceOf(key).At] = struct{}{}
}

func (a *alive) remove(key journal.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.records, journal.PlaceOf(key).At)
}

func (a *alive) has(key journal.Key) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.records[journal.PlaceOf(key).At]
	return ok
}

func (a *alive) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.records = nil
}

func bucketKey(id cosi.BucketID) journal.Key {
	return journal.Key{Kind: journal.Buckets, ID: id.String()}
}
func accountKey(id cosi.AccountID) journal.Key {
	return journal.Key{Kind: journal.Accounts, ID: id.String()}
}
