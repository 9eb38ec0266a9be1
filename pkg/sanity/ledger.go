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
	// open are the requests that may have made something or not, by their
	// bytes. Repeating one tells.
	open map[string]func(context.Context) error
	// objects are the keys of what may be in a bucket, by its id.
	objects map[string][]string
}

type accessKey struct{ account, bucket string }

func newLedger() *ledger {
	return &ledger{
		buckets: map[string]bucket{}, accesses: map[accessKey]access{},
		open: map[string]func(context.Context) error{}, objects: map[string][]string{},
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
	key := method + fingerprint(req)
	if err != nil {
		if makes(req) && uncertain(status.Code(err)) {
			l.open[key] = func(ctx context.Context) error { return cc.Invoke(ctx, method, req, reply) }
		}
		return err
	}
	delete(l.open, key)
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
func (l *ledger) left() (buckets []bucket, accesses []access, open []func(context.Context) error, objects map[string][]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.buckets)), slices.Collect(maps.Values(l.accesses)), slices.Collect(maps.Values(l.open)), maps.Clone(l.objects)
}

// cleanUp takes away what a check has made, in any case and in a time of its
// own. What stays is a finding of the run.
func (e *env) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.CallTimeout+2*e.cfg.Settle)
	defer cancel()
	_, _, open, _ := e.ledger.left()
	for _, again := range open {
		if err := again(ctx); codeOf(err) == codes.Unavailable || codeOf(err) == codes.DeadlineExceeded {
			e.leavef("what became of a call is not known: %w", err)
		}
	}
	_, accesses, _, _ := e.ledger.left()
	for _, a := range accesses {
		if err := e.takeBack(ctx, a); err != nil {
			e.leavef("access %q: %w", a.id, err)
		}
	}
	buckets, _, _, objects := e.ledger.left()
	for _, b := range buckets {
		if err := e.remove(ctx, b, objects[b.id]); err != nil {
			e.leavef("bucket %q: %w", b.id, err)
		}
	}
}

// takeBack revokes access that may be gone.
func (e *env) takeBack(ctx context.Context, a access) error {
	err := e.patiently(ctx, func(ctx context.Context) error { return e.api.revoke(ctx, a) })
	if codeOf(err) == codes.NotFound {
		return nil
	}
	return err
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
