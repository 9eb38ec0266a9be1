package sanity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
)

// object is what the checks write.
const object, content, changed = "cosi-sanity", "written by the suite", "overwritten by the suite"

// newUser is a fresh key at work on a fresh bucket, that has written an object.
func (e *env) newUser(ctx context.Context) (access, *user, error) {
	if err := e.needS3(); err != nil {
		return access{}, nil, err
	}
	a, err := e.newAccess(ctx)
	if err != nil {
		return a, nil, err
	}
	u, err := e.user(ctx, a, a.buckets[0].bucket)
	if err != nil {
		return a, nil, err
	}
	return a, u, e.eventually(ctx, func(ctx context.Context) error {
		return named("PutObject with the issued key", u.put(ctx, object, content))
	})
}

func named(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func keyWorks(ctx context.Context, e *env) error {
	_, u, err := e.newUser(ctx)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return named("GetObject", u.reads(ctx, object, content)) },
		func(ctx context.Context) error { return named("ListObjectsV2", u.lists(ctx, object)) },
		func(ctx context.Context) error { return named("DeleteObject", u.remove(ctx, object)) },
		func(ctx context.Context) error {
			if _, err := u.get(ctx, object); httpStatus(err) != http.StatusNotFound {
				return fmt.Errorf("GetObject of a deleted object: want 404, got %w", orNothing(err))
			}
			return nil
		},
	} {
		if err := e.eventually(ctx, step); err != nil {
			return fmt.Errorf("with the issued key: %w", err)
		}
	}
	return nil
}

func orNothing(err error) error {
	if err == nil {
		return errors.New("the object")
	}
	return err
}

// reachedByName looks for the bucket where the v0.2.2 Secret says it is.
func reachedByName(ctx context.Context, e *env) error {
	if err := e.needS3(); err != nil {
		return err
	}
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	b := a.buckets[0].bucket
	u, err := e.userNamed(a, b, b.name)
	if err != nil {
		return err
	}
	if err := e.eventually(ctx, func(ctx context.Context) error { return u.put(ctx, object, content) }); err != nil {
		return fmt.Errorf("the bucket is not reached under the name %q that it was asked for with: %w", b.name, err)
	}
	return nil
}

func keyOutlivesRepeats(ctx context.Context, e *env) error {
	a, u, err := e.newUser(ctx)
	if err != nil {
		return err
	}
	for range e.cfg.Repeat - 1 {
		if _, err := e.grant(ctx, a.accessRequest); err != nil {
			return err
		}
	}
	return e.eventually(ctx, func(ctx context.Context) error {
		return named("GetObject with the key that was given first", u.reads(ctx, object, content))
	})
}

// stillRefused wants a key to be refused, when the store has taken notice.
func (e *env) stillRefused(ctx context.Context, u *user, when string) error {
	return e.eventually(ctx, func(ctx context.Context) error {
		_, err := u.get(ctx, object)
		if err := refuses("GetObject "+when, err, false); err != nil {
			return err
		}
		return refuses("PutObject "+when, u.put(ctx, object, changed), false)
	})
}

func revokedKeyRefused(ctx context.Context, e *env) error {
	a, u, err := e.newUser(ctx)
	if err != nil {
		return err
	}
	// Another key of the bucket has to outlive the first.
	other, err := e.grant(ctx, e.accessTo(a.buckets[0].bucket))
	if err != nil {
		return err
	}
	if err := e.revoke(ctx, a); err != nil {
		return err
	}
	if err := e.stillRefused(ctx, u, "with a revoked key"); err != nil {
		return err
	}
	neighbour, err := e.user(ctx, other, a.buckets[0].bucket)
	if err != nil {
		return err
	}
	return e.eventually(ctx, func(ctx context.Context) error {
		return named("GetObject with the bucket's other key", neighbour.reads(ctx, object, content))
	})
}

func keysIsolated(ctx context.Context, e *env) error {
	a, own, err := e.newUser(ctx)
	if err != nil {
		return err
	}
	b, neighbour, err := e.newUser(ctx)
	if err != nil {
		return err
	}
	intruder := *own
	intruder.bucket, intruder.bucketID = neighbour.bucket, neighbour.bucketID
	if err := e.eventually(ctx, func(ctx context.Context) error {
		_, err := intruder.get(ctx, object)
		return errors.Join(
			refuses("GetObject", err, true),
			refuses("PutObject", intruder.put(ctx, object, changed), true),
			refuses("ListObjectsV2", intruder.lists(ctx, object), true),
			refuses("DeleteObject", intruder.remove(ctx, object), true),
		)
	}); err != nil {
		return fmt.Errorf("the key of bucket %q in bucket %q: %w", a.buckets[0].bucket.name, b.buckets[0].bucket.name, err)
	}
	return named("the neighbour's object", neighbour.reads(ctx, object, content))
}

// limited is a bucket with an object, and a second key that may do less.
func (e *env) limited(ctx context.Context, m mode, parameters map[string]string) (full, less *user, err error) {
	if e.Version == V1Alpha1 && parameters == nil {
		return nil, nil, notRun("no parameters are given that ask for such a key")
	}
	a, full, err := e.newUser(ctx)
	if err != nil {
		return nil, nil, err
	}
	b := a.buckets[0].bucket
	request := e.accessTo(b)
	if e.Version == V1Alpha1 {
		request.parameters = parameters
	} else {
		request.buckets[0].mode = m
	}
	l, err := e.grant(ctx, request)
	if codeOf(err) == codes.InvalidArgument {
		return nil, nil, notRun("the driver does not give such a key: " + answer(err))
	}
	if err != nil {
		return nil, nil, err
	}
	less, err = e.user(ctx, l, b)
	return full, less, err
}

func readOnlyReads(ctx context.Context, e *env) error {
	full, less, err := e.limited(ctx, readOnly, e.cfg.ReadOnlyParameters)
	if err != nil {
		return err
	}
	return e.readsOnly(ctx, full, less)
}

// metadataWider asks for a key that may do more with metadata than with data.
func metadataWider(ctx context.Context, e *env) error {
	a, full, err := e.newUser(ctx)
	if err != nil {
		return err
	}
	b := a.buckets[0].bucket
	request := e.accessTo(b)
	request.buckets[0].mode, request.buckets[0].metadata = readOnly, readWrite
	l, err := e.grant(ctx, request)
	if codeOf(err) == codes.InvalidArgument {
		return notRun("the driver does not give such a key: " + answer(err))
	}
	if err != nil {
		return err
	}
	less, err := e.user(ctx, l, b)
	if err != nil {
		return err
	}
	return e.readsOnly(ctx, full, less)
}

func (e *env) readsOnly(ctx context.Context, full, less *user) error {
	if err := e.eventually(ctx, func(ctx context.Context) error {
		return errors.Join(named("GetObject", less.reads(ctx, object, content)), named("ListObjectsV2", less.lists(ctx, object)))
	}); err != nil {
		return fmt.Errorf("with a read-only key: %w", err)
	}
	if err := e.eventually(ctx, func(ctx context.Context) error {
		return errors.Join(
			refuses("PutObject", less.put(ctx, object, changed), false),
			refuses("DeleteObject", less.remove(ctx, object), false),
		)
	}); err != nil {
		return fmt.Errorf("with a read-only key: %w", err)
	}
	return named("the object, afterwards", full.reads(ctx, object, content))
}

func writeOnlyWrites(ctx context.Context, e *env) error {
	full, less, err := e.limited(ctx, writeOnly, e.cfg.WriteOnlyParameters)
	if err != nil {
		return err
	}
	return e.writesOnly(ctx, full, less)
}

func (e *env) writesOnly(ctx context.Context, full, less *user) error {
	if err := e.eventually(ctx, func(ctx context.Context) error {
		return named("PutObject", less.put(ctx, object, changed))
	}); err != nil {
		return fmt.Errorf("with a write-only key: %w", err)
	}
	if err := e.eventually(ctx, func(ctx context.Context) error {
		_, err := less.get(ctx, object)
		return refuses("GetObject", err, false)
	}); err != nil {
		return fmt.Errorf("with a write-only key: %w", err)
	}
	if full == nil {
		return nil
	}
	return named("what the write-only key wrote", full.reads(ctx, object, changed))
}

// everyKeyRefused collects the keys that repeated grants of one access have
// answered: they are all revoked by its one account_id.
func everyKeyRefused(ctx context.Context, e *env) error {
	a, u, err := e.newUser(ctx)
	if err != nil {
		return err
	}
	b := a.buckets[0].bucket
	users, known := []*user{u}, map[string]bool{a.key.id: true}
	for range e.cfg.Repeat - 1 {
		again, err := e.grant(ctx, a.accessRequest)
		if err != nil {
			return see("A05")
		}
		if known[again.key.id] {
			continue
		}
		known[again.key.id] = true
		u, err := e.user(ctx, again, b)
		if err != nil {
			return err
		}
		users = append(users, u)
	}
	if err := e.revoke(ctx, a); err != nil {
		return see("R01")
	}
	for i, u := range users {
		if err := e.stillRefused(ctx, u, "after the revocation of the access"); err != nil {
			return fmt.Errorf("the access was answered %d keys in %d grants; with key %d: %w", len(users), e.cfg.Repeat, i+1, err)
		}
	}
	return nil
}

// keysAtOnce has accesses of one bucket granted at once, tries every key, and
// revokes all but one at once.
func keysAtOnce(ctx context.Context, e *env) error {
	_, owner, err := e.newUser(ctx)
	if err != nil {
		return err
	}
	b := bucket{id: owner.bucketID, bucketRequest: bucketRequest{name: owner.requested}}
	const enough = 10 // a service may have room for few keys in a bucket's policy
	n := min(e.cfg.Concurrency, enough)
	accesses, users := make([]access, n), make([]*user, n)
	requests := make([]accessRequest, n)
	for i := range requests {
		requests[i] = e.accessTo(b)
	}
	if err := e.atOnce(n, func(i int) (err error) {
		err = e.doggedly(ctx, func(ctx context.Context) (err error) {
			accesses[i], err = e.api.grant(ctx, requests[i])
			return err
		})
		if err == nil {
			users[i], err = e.user(ctx, accesses[i], b)
		}
		return err
	}); codeOf(err) == codes.ResourceExhausted {
		return notRun(fmt.Sprintf("the driver does not give %d keys of one bucket: %s", n, answer(err)))
	} else if err != nil {
		return fmt.Errorf("%d grants on one bucket at once: %w", n, err)
	}
	opens := func(ctx context.Context, u *user) error {
		return e.eventually(ctx, func(ctx context.Context) error { return u.reads(ctx, object, content) })
	}
	dead, first := e.count(n, func(i int) error { return opens(ctx, users[i]) })
	if dead > 0 {
		return fmt.Errorf("%d grants on one bucket at once were answered OK, and %d of the keys do not open it: %w", n, dead, first)
	}
	if err := e.atOnce(n-1, func(i int) error {
		return e.doggedly(ctx, func(ctx context.Context) error { return e.api.revoke(ctx, accesses[i]) })
	}); err != nil {
		return fmt.Errorf("%d revocations on one bucket at once: %w", n-1, err)
	}
	alive, first := e.count(n-1, func(i int) error { return e.stillRefused(ctx, users[i], "with a revoked key") })
	if alive > 0 {
		return fmt.Errorf("%d revocations on one bucket at once were answered OK, and %d of the keys are not refused: %w", n-1, alive, first)
	}
	if err := opens(ctx, users[n-1]); err != nil {
		return fmt.Errorf("after the other %d accesses of the bucket were revoked at once, the key of the last one: %w", n-1, err)
	}
	return nil
}

// count makes n looks at once and tells how many of them failed.
func (e *env) count(n int, look func(i int) error) (int, error) {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = look(i) })
	}
	group.Wait()
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return 0, nil
	}
	return len(errs), errs[0]
}

// eachItsMode gives one key two buckets, one to read and one to write.
func eachItsMode(ctx context.Context, e *env) error {
	if err := e.needS3(); err != nil {
		return err
	}
	a, err := e.sharedAccess(ctx, readOnly, writeOnly)
	if err != nil {
		if codeOf(err) == codes.InvalidArgument {
			return notRun("the driver does not give such a key: " + answer(err))
		}
		return err
	}
	var full, less [2]*user
	for i, b := range a.buckets {
		owner, err := e.grant(ctx, e.accessTo(b.bucket))
		if err != nil {
			return err
		}
		if full[i], err = e.user(ctx, owner, b.bucket); err != nil {
			return err
		}
		if less[i], err = e.user(ctx, a, b.bucket); err != nil {
			return err
		}
		if err := e.eventually(ctx, func(ctx context.Context) error { return named("PutObject", full[i].put(ctx, object, content)) }); err != nil {
			return err
		}
	}
	return errors.Join(
		named("in the bucket to read", e.readsOnly(ctx, full[0], less[0])),
		named("in the bucket to write", e.writesOnly(ctx, full[1], less[1])),
	)
}
