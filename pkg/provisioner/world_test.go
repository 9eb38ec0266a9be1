package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/memory"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/site"
)

// A world is a storage service and a journal in memory, and drivers between them.
// Every exchange of a driver with either is a step, and in a world with a
// scheduler nothing moves until that lets it: calls are put in any order, their
// steps are lost, or their process dies between two of them. All of it runs in a
// bubble of testing/synctest, so that waits take no time.
type world struct {
	testing.TB
	service *memory.Service
	store   *memoryStore
	writer  *turns
	rand    *rand.Rand
	terms   map[string]config.Terms
	sched   *scheduler
	drivers []*process
	trace   []string

	takesOver []string // the setting driver.takesOver
}

const (
	team    = "team"
	backend = "main"
)

func newWorld(t testing.TB, secrets memory.Secrets, shared bool, seed uint64) *world {
	w := &world{
		TB: t, service: memory.New(secrets, shared), store: &memoryStore{index: journal.NewIndex()}, writer: &turns{},
		rand:  rand.New(rand.NewPCG(seed, 0)),
		terms: map[string]config.Terms{team: {Listed: team, Backend: backend, OnLastBucket: config.Keep}},
	}
	w.sched = &scheduler{w: w}
	return w
}

// process is one driver of a world.
type process struct {
	*Provisioner
	w    *world
	name string

	mu   sync.Mutex
	dead bool

	count  atomic.Int64                                // of steps
	hang   func(ctx context.Context, step string) bool // a step that is answered by nothing
	refuse string                                      // a step that is carried out and refused
}

// start runs another driver.
func (w *world) start() *process {
	p := &process{w: w, name: "driver" + strconv.Itoa(len(w.drivers)+1)}
	line := &memory.Line{Service: w.service, Step: p.step}
	client := &http.Client{Transport: line.Transport()}
	records := journal.New(&memoryLine{w.store, p})
	service := contract.NewService(backend, "cluster", func(ctx context.Context) ([]string, error) {
		have, err := records.Identities(ctx)
		return slices.Concat(have, w.takesOver), err
	}, line.Provider())
	p.Provisioner = New(Config{
		Backends: map[string]site.Backend{backend: {
			Service: service,
			Engine: func(at cosi.Endpoint, key secret.KeyPair, contract string) *bucket.Engine {
				return bucket.New(bucket.Config{Endpoint: at, Key: key, Owner: service.Mark(contract), Contract: contract, Bounder: service, HTTP: client, Observe: func(string, error) {}})
			},
		}},
		Terms:    func(name string) (config.Terms, bool) { t, ok := w.terms[name]; return t, ok },
		Journal:  records,
		Writer:   &turn{w.writer, p},
		Recorder: silent{},
	})
	w.drivers = append(w.drivers, p)
	return p
}

type silent struct{}

func (silent) Repaired(string)        {}
func (silent) Rotated(string)         {}
func (silent) ContractChanged(string) {}

var errKilled = errors.New("the process was killed")

// step is one exchange of a process.
func (p *process) step(ctx context.Context, name string, do func() error) error {
	if p.killed() {
		return fault.Wrap(fault.Internal, errKilled, "killed")
	}
	p.count.Add(1)
	if p.hang != nil && p.hang(ctx, name) {
		<-ctx.Done()
		return ctx.Err()
	}
	err := p.w.sched.step(ctx, p, name, do)
	if name == p.refuse && err == nil {
		err = fault.New(fault.LimitExceeded, "there is no room")
	}
	return err
}

func (p *process) killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

func (p *process) kill() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.w.writer.free(p)
}

// turns lets one process at a time be the one that changes things, as the Lease
// does: the one that comes when no other has calls under way takes over.
type turns struct {
	mu     sync.Mutex
	holder *process
	calls  int
	news   chan struct{}
}

type turn struct {
	*turns
	p *process
}

func (t *turn) Enter(ctx context.Context) (context.Context, func(), error) {
	for {
		if t.p.killed() {
			return ctx, nil, fault.Wrap(fault.Internal, errKilled, "killed")
		}
		t.mu.Lock()
		if t.holder == t.p || t.calls == 0 {
			if t.holder != t.p {
				t.holder = t.p
				t.p.TakenOver()
			}
			t.calls++
			t.mu.Unlock()
			return ctx, sync.OnceFunc(t.leave), nil
		}
		if t.news == nil {
			t.news = make(chan struct{})
		}
		news := t.news
		t.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			return ctx, nil, fault.In(ctx.Err(), "another process changes things")
		}
	}
}

func (t *turn) EnterIdle(ctx context.Context) (context.Context, func(), error) {
	if t.p.killed() {
		return ctx, nil, fault.Wrap(fault.Internal, errKilled, "killed")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder != nil && t.holder != t.p {
		return ctx, nil, fault.New(fault.Unavailable, "another process changes things")
	}
	if t.holder == nil {
		t.holder = t.p
		t.p.TakenOver()
	}
	t.calls++
	return ctx, sync.OnceFunc(t.leave), nil
}

func (t *turn) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == t.p {
		t.calls--
		t.wake()
	}
}

func (t *turns) wake() {
	if t.news != nil {
		close(t.news)
		t.news = nil
	}
}

// free is what the end of a Lease's life does for a process that is gone.
func (t *turns) free(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holder == p {
		t.holder, t.calls = nil, 0
		t.wake()
	}
}

// fate is what becomes of a step.
type fate string

const (
	carried    fate = "carried out"
	lost       fate = "lost"         // before the other side hears of it
	refused    fate = "refused"      // by the other side, which lets the next one pass
	unanswered fate = "unanswered"   // carried out, and no answer comes
	killed     fate = "killed"       // the process dies before it
	killedThen fate = "killed after" // and after it
	late       fate = "late"         // the process dies, and what it had sent is carried out later
)

// scheduler lets one step at a time go.
type scheduler struct {
	w *world

	mu      sync.Mutex
	on      bool
	waiting []*waiter
	steps   int
	plan    func(step int, name string) fate
	late    []func() error
}

type waiter struct {
	name string
	turn chan struct{}
}

// follow lets plan decide on every step from now on; nil lets all be carried out.
func (s *scheduler) follow(plan func(step int, name string) fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = plan
}

func (s *scheduler) step(ctx context.Context, p *process, name string, do func() error) error {
	s.mu.Lock()
	if s.on {
		one := &waiter{p.name + " " + name, make(chan struct{})}
		s.waiting = append(s.waiting, one)
		s.mu.Unlock()
		select {
		case <-one.turn:
		case <-ctx.Done():
			s.mu.Lock()
			s.waiting = slices.DeleteFunc(s.waiting, func(w *waiter) bool { return w == one })
			s.mu.Unlock()
			return fault.In(ctx.Err(), "%s", name)
		}
		s.mu.Lock()
	}
	f := carried
	if s.plan != nil {
		f = s.plan(s.steps, name)
		s.steps++
	}
	if s.on || s.plan != nil {
		s.w.trace = append(s.w.trace, fmt.Sprintf("%s %s: %s", p.name, name, f))
	}
	s.mu.Unlock()
	noAnswer := fault.Wrap(fault.Unavailable, &url.Error{Op: "Get", URL: name, Err: io.ErrUnexpectedEOF}, "no answer to %s", name)
	switch f {
	case carried:
		return do()
	case lost:
		return noAnswer
	case refused:
		return fault.New(fault.PermissionDenied, "%s is refused", name)
	case unanswered:
		_ = do()
		return noAnswer
	case killedThen:
		_ = do()
	case late:
		s.mu.Lock()
		s.late = append(s.late, do)
		s.mu.Unlock()
	case killed:
	}
	p.kill()
	return fault.Wrap(fault.Internal, errKilled, "killed")
}

// catchUp carries out what killed processes had sent.
func (s *scheduler) catchUp() {
	s.mu.Lock()
	all := s.late
	s.late = nil
	s.mu.Unlock()
	for _, do := range all {
		_ = do()
	}
}

// together runs calls, and lets their steps go in an order that the seed says.
func (w *world) together(calls ...func() error) []error {
	errs := make([]error, len(calls))
	var running sync.WaitGroup
	done := make(chan struct{})
	w.sched.mu.Lock()
	w.sched.on = true
	w.sched.mu.Unlock()
	for i, call := range calls {
		running.Go(func() { errs[i] = call() })
	}
	go func() { running.Wait(); close(done) }()
	for {
		synctest.Wait()
		select {
		case <-done:
			w.drain()
			return errs
		default:
		}
		if !w.letOneGo() {
			time.Sleep(10 * time.Millisecond) // all of them wait for a time to pass
		}
	}
}

func (w *world) letOneGo() bool {
	w.sched.mu.Lock()
	defer w.sched.mu.Unlock()
	if len(w.sched.waiting) == 0 {
		return false
	}
	slices.SortStableFunc(w.sched.waiting, func(a, b *waiter) int { return strings.Compare(a.name, b.name) })
	i := w.rand.IntN(len(w.sched.waiting))
	one := w.sched.waiting[i]
	w.sched.waiting = slices.Delete(w.sched.waiting, i, i+1)
	close(one.turn)
	return true
}

// drain lets all go that is still done after calls were answered.
func (w *world) drain() {
	w.sched.mu.Lock()
	w.sched.on = false
	for _, one := range w.sched.waiting {
		close(one.turn)
	}
	w.sched.waiting = nil
	w.sched.mu.Unlock()
	for _, p := range w.drivers {
		p.Wait()
	}
}

// memoryStore is a journal that several processes share.
type memoryStore struct {
	mu      sync.Mutex
	version uint64
	index   *journal.Index
}

// memoryLine is the store as one process reaches it: reads cost nothing, writes
// are steps.
type memoryLine struct {
	*memoryStore
	p *process
}

func (s *memoryLine) Get(_ context.Context, key journal.Key) (journal.Entry, error) {
	return s.index.Get(key)
}
func (s *memoryLine) Index(context.Context) (*journal.Index, error) { return s.index, nil }
func (s *memoryLine) Close() error                                  { return nil }
func (s *memoryLine) Check(context.Context) error                   { return nil }

func (s *memoryLine) write(ctx context.Context, name string, do func() error) error {
	return s.p.step(ctx, "journal "+name, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return do()
	})
}

// changed reports whether an entry is another than the one that was read.
func (s *memoryStore) changed(e journal.Entry) bool {
	have, _ := s.index.Get(e.Key)
	return have.Version != e.Version
}

func (s *memoryLine) Put(ctx context.Context, e journal.Entry) (uint64, error) {
	name := "create " + string(e.Key.Kind)
	if e.Version != 0 {
		name = "update " + string(e.Key.Kind)
	}
	err := s.write(ctx, name, func() error {
		if s.changed(e) {
			return journal.LostRace(e)
		}
		s.version++
		e.Version = s.version
		s.index.Put(e)
		return nil
	})
	return e.Version, err
}

func (s *memoryLine) Delete(ctx context.Context, entries ...journal.Entry) error {
	return s.write(ctx, "delete", func() error {
		for _, e := range entries {
			if have, err := s.index.Get(e.Key); err == nil && have.Version != e.Version {
				return journal.LostRace(e)
			}
		}
		for _, e := range entries {
			s.index.Remove(e.Key)
		}
		return nil
	})
}

// lose drops records as the loss of a journal does: all of them, or one.
func (s *memoryStore) lose(keys ...journal.Key) {
	for _, key := range keys {
		s.index.Remove(key)
	}
	if len(keys) == 0 {
		s.index = journal.NewIndex()
	}
}

// keys are those of all records.
func (s *memoryStore) keys() (out []journal.Key) {
	for _, p := range s.index.Walk(journal.Place{}, 1000) {
		out = append(out, p.Key)
	}
	return out
}

// records are the journal's, without a step.
func (w *world) records() *journal.Journal { return journal.New(&memoryLine{w.store, nil}) }

func bucketID(name string) string { return backend + "." + team + "." + name }
func accessID(name string) string { return backend + "." + team + "." + name }

// The calls of a sidecar, by a driver.

func (w *world) create(p *process, name string, class map[string]string) error {
	given := map[string]string{"contract": team}
	maps.Copy(given, class)
	_, err := p.CreateBucket(w.ctx(), name, given)
	return err
}

func (w *world) grant(p *process, name string, buckets ...string) (secret.KeyPair, error) {
	req := GrantRequest{Name: name, Auth: cosi.Key, Delivers: true}
	for _, b := range buckets {
		req.Buckets = append(req.Buckets, BucketRequest{ID: bucketID(b)})
	}
	a, err := p.GrantAccess(w.ctx(), req)
	return a.Key, err
}

func (w *world) revoke(p *process, name string) error {
	return p.RevokeAccess(w.ctx(), accessID(name))
}

func (w *world) delete(p *process, name string) error {
	return p.DeleteBucket(w.ctx(), bucketID(name), true)
}

func (w *world) rotate(p *process, name string, grace time.Duration) error {
	id, err := cosi.ParseAccountID(accessID(name))
	return cmp.Or(err, p.RotateAccess(w.ctx(), id, grace))
}

func (w *world) cut(p *process, name string) error {
	id, err := cosi.ParseAccountID(accessID(name))
	return cmp.Or(err, p.CutAccess(w.ctx(), id))
}

func (w *world) lift(p *process, name string) error {
	id, err := cosi.ParseAccountID(accessID(name))
	return cmp.Or(err, p.LiftAccess(w.ctx(), id))
}

// inspect is a drift pass with repair, and what is due.
func (w *world) inspect(p *process) error {
	places, err := w.records().Walk(w.ctx(), journal.Place{}, 1000)
	for _, place := range places {
		err = errors.Join(err, p.Tend(w.ctx(), place.Key))
		switch place.Key.Kind {
		case journal.Contracts:
			id, _ := cosi.ParseContractID(place.Key.ID)
			_, one := p.InspectContract(w.ctx(), id, true)
			err = errors.Join(err, one)
		case journal.Buckets:
			id, _ := cosi.ParseBucketID(place.Key.ID)
			_, one := p.InspectBucket(w.ctx(), id, true)
			err = errors.Join(err, one)
		case journal.Accounts:
			id, _ := cosi.ParseAccountID(place.Key.ID)
			_, one := p.InspectAccount(w.ctx(), id, true)
			err = errors.Join(err, one)
		}
	}
	return err
}

// ctx bounds a call as the server does.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(klog.NewContext(w.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard)))), time.Minute)
	w.Cleanup(cancel)
	return ctx
}

// must repeats a call until it succeeds, as a sidecar does.
func (w *world) must(what string, call func() error) {
	w.Helper()
	var err error
	for range 20 {
		if err = call(); err == nil {
			return
		}
		time.Sleep(time.Second)
	}
	w.fail("%s never succeeds: %v", what, err)
}

func (w *world) fail(format string, args ...any) {
	w.Helper()
	w.Errorf(format+"\n  %s", append(args, strings.Join(w.trace, "\n  "))...)
}

// works reports whether the service lets a key read in a bucket.
func (w *world) works(key secret.KeyPair, name string) bool {
	err := w.service.Do(context.Background(), key.AccessKeyID, http.MethodGet, name, "o")
	return err != nil && strings.Contains(err.Error(), "NoSuchKey") // which only who may read is told
}

// consistent checks that service and journal say the same.
func (w *world) consistent() {
	w.Helper()
	ctx, j := context.Background(), w.records()
	known := map[string]bool{}
	places, _ := j.Walk(ctx, journal.Place{}, 1000)
	for _, p := range places {
		switch p.Key.Kind {
		case journal.Contracts:
			id, _ := cosi.ParseContractID(p.Key.ID)
			record, err := j.Contract(ctx, id)
			if err != nil || record.Phase != journal.Done || !slices.Contains(w.service.Contracts(), id.Contract) {
				w.fail("contract %s: record %+v, %v, and the service has %v", id, record, err, w.service.Contracts())
				continue
			}
			known[record.Issued.AccessKeyID] = true
		case journal.Buckets:
			id, _ := cosi.ParseBucketID(p.Key.ID)
			if w.service.Buckets()[id.Bucket] == "" {
				w.fail("bucket %s has a record, and the service does not have it", id)
			}
		case journal.Accounts:
			id, _ := cosi.ParseAccountID(p.Key.ID)
			record, err := j.Account(ctx, id)
			if err != nil || record.Phase != journal.Done {
				w.fail("access %s: record %+v, %v", id, record, err)
				continue
			}
			known[record.Issued.AccessKeyID] = true
			if r := record.Rotation; r != nil {
				known[r.Old] = true
			}
			for _, b := range record.Effective.Buckets {
				if _, err := j.Bucket(ctx, bucketIDOf(id, b)); err != nil {
					w.fail("access %s reaches bucket %s, which has no record", id, b.Bucket)
				}
			}
		}
	}
	there := map[string]bool{}
	for _, k := range w.service.Keys() {
		there[k.AccessKeyID] = true
		if !known[k.AccessKeyID] {
			w.fail("key %s of slot %s is not in the journal", k.AccessKeyID, k.Slot)
		}
	}
	for id := range known {
		if !there[id] {
			w.fail("key %s is in the journal, and the service does not have it", id)
		}
	}
	for name := range w.service.Buckets() {
		if _, err := j.Bucket(ctx, cosi.BucketID{ContractID: cosi.ContractID{Backend: backend, Contract: team}, Bucket: name}); err != nil && strings.Contains(w.service.Document(name, "tagging"), cosi.OwnerTag) {
			w.fail("bucket %s carries the mark and has no record", name)
		}
	}
}
