package sanity

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
)

// env is what one check works with.
type env struct {
	*session
	number string
	ledger *ledger

	mu    sync.Mutex
	names int
}

// name returns a name that is used only once, of the form that the sidecars
// give: a prefix and a UID. The UID's first group is the run's, its second the
// check's number in hexadecimal.
func (e *env) name(prefix string) string {
	e.mu.Lock()
	e.names++
	n := e.names
	e.mu.Unlock()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d", e.uid, e.API, e.number, n))
	return fmt.Sprintf("%s%s-%02x%s-4%03x-8%03x-%x", prefix, e.uid, e.number[0], e.number[1:], n&0xfff, uint16(sum[0])<<4|uint16(sum[1]&0xf), sum[2:8])
}

func (e *env) bucketName() string {
	if e.Version == V1Alpha1 {
		return e.name("bucket-")
	}
	return e.name("bc-")
}

func (e *env) accessName() string { return e.name("ba-") }

// protocols are what buckets are asked for: S3 if the driver has it, else what
// it names first.
func (s *session) protocols() []protocol {
	const s3 protocol = 1
	switch {
	case s.Version == V1Alpha1:
		return nil
	case len(s.supported) == 0 || slices.Contains(s.supported, s3):
		return []protocol{s3}
	}
	return s.supported[:1]
}

// aBucket asks for a bucket of the usual class under a fresh name.
func (e *env) aBucket() bucketRequest {
	r := bucketRequest{name: e.bucketName(), protocols: e.protocols(), parameters: e.cfg.BucketParameters}
	e.announce(r)
	return r
}

// numbered are requests for n buckets, each with what a request to create names
// the bucket by.
func (e *env) numbered(ctx context.Context, n int) ([]bucketRequest, error) {
	out := make([]bucketRequest, n)
	for i := range out {
		out[i] = e.aBucket()
		err := e.patiently(ctx, func(ctx context.Context) (err error) {
			out[i].id, err = e.api.newID(ctx, out[i])
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// accessTo asks for the usual access to buckets under a fresh name.
func (e *env) accessTo(buckets ...bucket) accessRequest {
	r := accessRequest{name: e.accessName(), auth: keyAuth, parameters: e.cfg.AccessParameters}
	for _, b := range buckets {
		r.buckets = append(r.buckets, accessedBucket{bucket: b, mode: readWrite})
	}
	if p := e.protocols(); len(p) > 0 {
		r.protocol = p[0]
	}
	return r
}

// create makes a bucket that has to be made.
func (e *env) create(ctx context.Context, request bucketRequest) (bucket, error) {
	var b bucket
	err := e.patiently(ctx, func(ctx context.Context) (err error) {
		b, err = e.api.create(ctx, request)
		return err
	})
	if err == nil && b.id == "" {
		b.answered, err = true, errors.New("the answer has no bucket_id")
	}
	if err != nil {
		return b, fmt.Errorf("DriverCreateBucket(%s): %w", request.name, err)
	}
	return b, nil
}

// newBucket makes a bucket of the usual class.
func (e *env) newBucket(ctx context.Context) (bucket, error) { return e.create(ctx, e.aBucket()) }

// delete deletes a bucket that has to be deleted.
func (e *env) delete(ctx context.Context, b bucket) error {
	if err := e.patiently(ctx, func(ctx context.Context) error { return e.api.delete(ctx, b) }); err != nil {
		return fmt.Errorf("DriverDeleteBucket(%s): %w", b.id, err)
	}
	return nil
}

// grant gives access that has to be given.
func (e *env) grant(ctx context.Context, request accessRequest) (access, error) {
	var a access
	err := e.patiently(ctx, func(ctx context.Context) (err error) {
		a, err = e.api.grant(ctx, request)
		return err
	})
	if err == nil && a.id == "" {
		a.answered, err = true, errors.New("the answer has no account_id")
	}
	if err != nil {
		return a, fmt.Errorf("DriverGrantBucketAccess(%s): %w", request.name, err)
	}
	return a, nil
}

// newAccess gives the usual access to a fresh bucket.
func (e *env) newAccess(ctx context.Context) (access, error) {
	b, err := e.newBucket(ctx)
	if err != nil {
		return access{}, err
	}
	return e.grant(ctx, e.accessTo(b))
}

// revoke takes access away that has to be taken away.
func (e *env) revoke(ctx context.Context, a access) error {
	if err := e.patiently(ctx, func(ctx context.Context) error { return e.api.revoke(ctx, a) }); err != nil {
		return fmt.Errorf("DriverRevokeBucketAccess(%s): %w", a.id, err)
	}
	return nil
}

// refused makes calls that have to be answered with one of some codes, each
// of them twice: a refusal stands.
func (e *env) refused(ctx context.Context, attempts []attempt, allowed ...codes.Code) error {
	var errs []error
	for _, a := range attempts {
		err := e.patiently(ctx, a.call)
		if !oneOf(err, allowed) {
			errs = append(errs, fmt.Errorf("%s: want %s, got %s", a.what, list(allowed), answer(err)))
			if silent(err) { // the rest would take as long
				break
			}
			continue
		}
		if err == nil {
			continue
		}
		if err := e.patiently(ctx, a.call); !oneOf(err, allowed) {
			errs = append(errs, fmt.Errorf("%s, repeated: want %s, got %s", a.what, list(allowed), answer(err)))
		}
	}
	return errors.Join(errs...)
}

func oneOf(err error, allowed []codes.Code) bool {
	if hung(err) {
		return false
	}
	for _, c := range allowed {
		if codeOf(err) == c {
			return true
		}
	}
	return false
}

// answer is what came, in words.
func answer(err error) string {
	if err == nil {
		return "OK"
	}
	return shorten(err.Error())
}

func list(allowed []codes.Code) string {
	text := ""
	for i, c := range allowed {
		switch {
		case i > 0 && i == len(allowed)-1:
			text += " or "
		case i > 0:
			text += ", "
		}
		text += c.String()
	}
	return text
}

// atOnce runs n callers and returns what went wrong, each fault once.
func (s *session) atOnce(n int, caller func(i int) error) error {
	leave := s.cfg.clock.Gather(n)
	errs := make([]error, n)
	start := make(chan struct{})
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			defer leave()
			<-start
			errs[i] = caller(i)
		})
	}
	close(start)
	group.Wait()
	seen := map[string]bool{}
	var distinct []error
	for _, err := range errs {
		const most = 5 // of fifty, the rest would say the same
		if err == nil || seen[err.Error()] || len(distinct) == most {
			continue
		}
		seen[err.Error()] = true
		distinct = append(distinct, err)
	}
	return errors.Join(distinct...)
}
