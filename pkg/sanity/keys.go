package sanity

import (
	"context"
	"errors"
	"fmt"
	"net/http"

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
	if e.version == V1Alpha1 && parameters == nil {
		return nil, nil, notRun("no parameters are given that ask for such a key")
	}
	a, full, err := e.newUser(ctx)
	if err != nil {
		return nil, nil, err
	}
	b := a.buckets[0].bucket
	request := e.accessTo(b)
	if e.version == V1Alpha1 {
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

// splitReadOnly is for a driver that generates ids: its generation has modes in
// three categories, by other numbers than the first.
func splitReadOnly(ctx context.Context, e *env) error {
	c, err := e.v1alpha2()
	if err != nil {
		return err
	}
	var not notRun
	if _, err := e.generate(ctx, c, e.aBucket()); errors.As(err, &not) { // what else is wrong with it, other checks tell
		return err
	}
	e.split = true
	return readOnlyReads(ctx, e)
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

// deletedBucketsKeys looks whether a key outlives its bucket, which shows only
// when a bucket of the same name is there again.
func deletedBucketsKeys(ctx context.Context, e *env) error {
	a, u, err := e.newUser(ctx)
	if err != nil {
		return err
	}
	b := a.buckets[0].bucket
	if err := e.eventually(ctx, func(ctx context.Context) error { return named("DeleteObject", u.remove(ctx, object)) }); err != nil {
		return err
	}
	err = e.doggedly(ctx, func(ctx context.Context) error { return e.api.delete(ctx, b) })
	if codeOf(err) == codes.FailedPrecondition {
		return notRun("the driver does not delete a bucket that access was given to: " + answer(err))
	}
	if err != nil {
		return fmt.Errorf("DriverDeleteBucket(%s): %w", b.id, err)
	}
	again, err := e.create(ctx, b.bucketRequest)
	if err != nil {
		return notRun("the driver does not make a bucket again under the name of a deleted one: " + answer(err))
	}
	owner, err := e.grant(ctx, e.accessTo(again))
	if err != nil {
		return err
	}
	now, err := e.user(ctx, owner, again)
	if err != nil {
		return err
	}
	if err := e.eventually(ctx, func(ctx context.Context) error { return named("PutObject", now.put(ctx, object, content)) }); err != nil {
		return err
	}
	return e.stillRefused(ctx, u, "with the key of a bucket that was deleted")
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
