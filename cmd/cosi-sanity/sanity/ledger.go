package sanity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ledger is what a check has made and has to take away again. It is kept by an
// interceptor, since also a call that should have been refused may have made
// something.
type ledger struct {
	mu       sync.Mutex
	buckets  map[string]bucket
	accesses map[accessKey]access
	// ending are the accesses whose revocation was asked for, or the deletion of
	// their bucket, whatever was answered.
	ending map[accessKey]bool
	// tried are the requests to make something that were not answered OK, by
	// their bytes.
	tried map[string]tried
	// objects are the keys of what may be in a bucket, by its id.
	objects map[string][]string
}

type accessKey struct{ account, bucket string }

// tried is a request that may have made something all the same. Repeating it
// tells, where the answer leaves that open.
type tried struct {
	request   any
	uncertain bool
	again     func(context.Context) error
}

func newLedger() *ledger {
	return &ledger{
		buckets: map[string]bucket{}, accesses: map[accessKey]access{}, ending: map[accessKey]bool{},
		tried: map[string]tried{}, objects: map[string][]string{},
	}
}

type ledgerKey struct{}

func withLedger(ctx context.Context, l *ledger) context.Context {
	return context.WithValue(ctx, ledgerKey{}, l)
}

// recordMade keeps the ledger that ctx carries.
func recordMade(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoker(ctx, method, req, reply, cc, opts...)
	l, ok := ctx.Value(ledgerKey{}).(*ledger)
	if !ok {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if key, ok := revokedAccess(req); ok {
		l.ending[key] = true
	}
	if id, ok := deletedBucket(req); ok {
		for key, a := range l.accesses {
			if slices.ContainsFunc(a.buckets, func(b accessedBucket) bool { return b.bucket.id == id }) {
				l.ending[key] = true
			}
		}
	}
	key := method + fingerprint(req)
	if err != nil {
		if makes(req) {
			before := l.tried[key]
			l.tried[key] = tried{req, before.uncertain || uncertain(status.Code(err)), func(ctx context.Context) error { return cc.Invoke(ctx, method, req, reply) }}
		}
		return err
	}
	delete(l.tried, key)
	if b, ok := madeBucket(req, reply); ok {
		l.buckets[b.id] = b
	}
	if key, a, ok := madeAccess(req, reply); ok {
		l.accesses[key] = a
	}
	if id, ok := deletedBucket(req); ok {
		delete(l.buckets, id)
		delete(l.objects, id)
	}
	if key, ok := revokedAccess(req); ok {
		delete(l.accesses, key)
	}
	return nil
}

// uncertain reports whether a call that was answered so may have been carried
// out all the same.
func uncertain(c codes.Code) bool {
	switch c {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Internal, codes.Unknown:
		return true
	}
	return false
}

func (l *ledger) put(bucketID, object string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.objects[bucketID], object) {
		l.objects[bucketID] = append(l.objects[bucketID], object)
	}
}

// left is a copy of what is still there.
func (l *ledger) left() (buckets []bucket, accesses map[accessKey]access, open []tried, objects map[string][]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.buckets)), maps.Clone(l.accesses), slices.Collect(maps.Values(l.tried)), maps.Clone(l.objects)
}

// cleanUp takes away what a check has made, in any case and in a time of its
// own. What stays is a finding of the run.
func (e *env) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.CallTimeout+2*e.cfg.Settle)
	defer cancel()
	_, _, open, _ := e.ledger.left()
	for _, t := range open {
		e.settle(ctx, t)
	}
	_, accesses, _, _ := e.ledger.left()
	for key, a := range accesses {
		if a.id == "" {
			e.uncertain++
			continue
		}
		if err := e.takeBack(ctx, a); err != nil && !(codeOf(err) == codes.NotFound && e.ledger.ends(key)) {
			e.leavef("access %q: %w", a.id, err)
		}
	}
	buckets, _, _, objects := e.ledger.left()
	for _, b := range buckets {
		if b.id == "" {
			e.uncertain++
			continue
		}
		if e.recorder.shared(b.id) {
			e.spared++
			continue
		}
		if err := e.remove(ctx, b, objects[b.id]); err != nil {
			e.leavef("bucket %q: %w", b.id, err)
		}
	}
}

func (l *ledger) ends(key accessKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ending[key]
}

// settle finds out about a call that was not answered OK. If it may have made
// something of which no answer tells the id, the id is derived from others.
func (e *env) settle(ctx context.Context, t tried) {
	if t.uncertain {
		switch err := e.patiently(ctx, t.again); {
		case err == nil: // it is in the ledger now
			return
		case silent(err):
			e.uncertain++
			e.revive(ctx) // the rest has to be taken away
			return
		case codeOf(err) == codes.Unavailable:
			e.leavef("what became of a call is not known: %w", err)
			return
		case uncertain(codeOf(err)):
			e.uncertain++
		}
	}
	ctx = quiet(ctx)
	const longest = 253 // of a name that a sidecar gives
	if name := bucketName(t.request); name != "" && len(name) <= longest {
		if id, ok := e.recorder.derive(name, e.recorder.names); ok {
			_ = e.api.delete(ctx, bucket{id: id})
		}
	}
	if a := askedAccess(t.request); a.name != "" && len(a.name) <= longest {
		if id, ok := e.recorder.derive(a.name, e.recorder.accounts); ok {
			a.id = id
			_ = e.api.revoke(ctx, a)
		}
	}
}

// takeBack revokes access that may be gone.
func (e *env) takeBack(ctx context.Context, a access) error {
	return e.patiently(ctx, func(ctx context.Context) error { return e.api.revoke(ctx, a) })
}

// remove deletes a bucket that may be gone. Where that is refused and objects
// may be in it, they are deleted first. A write that was given up may arrive
// in between, so it is tried until it is done.
func (e *env) remove(ctx context.Context, b bucket, objects []string) error {
	once := func(ctx context.Context) error {
		err := e.api.delete(ctx, b)
		if codeOf(err) == codes.NotFound {
			return nil
		}
		return err
	}
	if len(objects) == 0 {
		return e.patiently(ctx, once)
	}
	return e.doggedly(ctx, func(ctx context.Context) error {
		if err := once(ctx); err == nil {
			return nil
		}
		if err := e.empty(ctx, b, objects); err != nil {
			return err
		}
		return once(ctx)
	})
}

func (e *env) leavef(format string, args ...any) {
	e.leftovers = append(e.leftovers, fmt.Sprintf("%s: ", e.number)+fmt.Errorf(format, args...).Error())
}

// empty deletes objects with a key of its own: the check's may be dead or may
// not delete.
func (e *env) empty(ctx context.Context, b bucket, objects []string) error {
	a, err := e.grant(ctx, e.accessTo(b))
	if err != nil {
		return err
	}
	user, err := e.user(ctx, a, b)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := e.eventually(ctx, func(ctx context.Context) error { return user.remove(ctx, object) }); err != nil {
			return errors.Join(fmt.Errorf("object %q: %w", object, err), e.takeBack(ctx, a))
		}
	}
	return e.takeBack(ctx, a)
}
