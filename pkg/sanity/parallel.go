package sanity

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

func createAtOnce(ctx context.Context, e *env) error {
	request := e.aBucket()
	return e.alikeAtOnce(ctx, func(ctx context.Context) (string, error) {
		b, err := e.create(ctx, request)
		return fmt.Sprintf("bucket_id %q", b.id), err
	})
}

func grantAtOnce(ctx context.Context, e *env) error {
	return e.grantsAtOnce(ctx, func(a access) string { return fmt.Sprintf("account_id %q", a.id) })
}

func keyAtOnce(ctx context.Context, e *env) error {
	return e.grantsAtOnce(ctx, func(a access) string { return fmt.Sprintf("access key %q with the secret %q", a.key.id, a.key.secret) })
}

func (e *env) grantsAtOnce(ctx context.Context, show func(access) string) error {
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	request := e.accessTo(b)
	return e.alikeAtOnce(ctx, func(ctx context.Context) (string, error) {
		a, err := e.grant(ctx, request)
		return show(a), err
	})
}

// alikeAtOnce makes the same call from many callers; all have to be answered
// the same in the end.
func (e *env) alikeAtOnce(ctx context.Context, call func(context.Context) (string, error)) error {
	var mu sync.Mutex
	first := ""
	return e.atOnce(e.cfg.Concurrency, func(int) error {
		got, err := call(ctx)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if first == "" {
			first = got
		}
		if got != first {
			return fmt.Errorf("%d callers of one name were answered %s and %s", e.cfg.Concurrency, first, got)
		}
		return nil
	})
}

func differentAtOnce(ctx context.Context, e *env) error {
	var mu sync.Mutex
	names := map[string]string{} // by id
	return e.atOnce(e.cfg.Concurrency, func(int) error {
		a, err := e.newAccess(ctx)
		if err != nil {
			return err
		}
		b := a.buckets[0].bucket
		for id, name := range map[string]string{"account_id " + a.id: a.name, "bucket_id " + b.id: b.name} {
			mu.Lock()
			other, twice := names[id]
			names[id] = name
			mu.Unlock()
			if twice {
				return fmt.Errorf("%s and %s both have %s", name, other, id)
			}
		}
		if err := e.revoke(ctx, a); err != nil {
			return err
		}
		return e.delete(ctx, b)
	})
}

func endAtOnce(ctx context.Context, e *env) error {
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	if err := e.atOnce(e.cfg.Concurrency, func(int) error { return e.revoke(ctx, a) }); err != nil {
		return err
	}
	b := a.buckets[0].bucket
	return e.atOnce(e.cfg.Concurrency, func(int) error {
		err := e.delete(ctx, b)
		if e.version == V1Alpha1 && codeOf(err) == codes.NotFound { // success to the sidecar
			return nil
		}
		return err
	})
}

// deleteTogether does what the v0.2.2 sidecar does when a claim and its
// accesses are deleted at once, with its endless repetition.
func deleteTogether(ctx context.Context, e *env) error {
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	const accesses = 5
	calls := []func(context.Context) error{func(ctx context.Context) error {
		err := e.api.delete(ctx, b)
		if e.version == V1Alpha1 && codeOf(err) == codes.NotFound {
			return nil
		}
		return named("DriverDeleteBucket", err)
	}}
	for range accesses {
		a, err := e.grant(ctx, e.accessTo(b))
		if err != nil {
			return err
		}
		calls = append(calls, func(ctx context.Context) error { return named("DriverRevokeBucketAccess", e.api.revoke(ctx, a)) })
	}
	if err := e.atOnce(len(calls), func(i int) error { return e.doggedly(ctx, calls[i]) }); err != nil {
		return err
	}
	// Whichever came first: a sidecar that could not write it down asks again.
	return e.atOnce(len(calls), func(i int) error { return named("repeated", e.doggedly(ctx, calls[i])) })
}

// givenUp makes a call again and again, each time a fresh one that fresh
// returns, and gives it up after other times: by cancelling it and by a
// deadline, at once and in the midst. Then complete has to bring it to an end.
func (e *env) givenUp(ctx context.Context, fresh func(context.Context) (call, complete func(context.Context) error, err error)) error {
	call, complete, err := fresh(ctx)
	if err != nil {
		return err
	}
	started := time.Now()
	if err := e.patiently(ctx, call); err != nil {
		return err
	}
	took := time.Since(started)
	if err := complete(ctx); err != nil {
		return err
	}
	for i := range 6 {
		after := took * time.Duration(max(0, i-1)) / 4
		if i == 1 {
			after = time.Millisecond / 2
		}
		call, complete, err := fresh(ctx)
		if err != nil {
			return err
		}
		short, stop := context.WithCancel(ctx)
		if i%2 == 0 {
			stop()
			short, stop = context.WithTimeout(ctx, after)
		}
		undo := e.cfg.clock.GiveUp(after, stop)
		started := time.Now()
		if call(short) == nil {
			took = min(took, time.Since(started)) // the first may have had to wait for the machine
		}
		undo()
		stop()
		if err := complete(ctx); err != nil {
			return fmt.Errorf("a call that was given up after %v: %w", after, err)
		}
	}
	return nil
}

func createGivenUp(ctx context.Context, e *env) error {
	return e.givenUp(ctx, func(context.Context) (func(context.Context) error, func(context.Context) error, error) {
		request, early := e.aBucket(), bucket{}
		call := func(ctx context.Context) (err error) {
			early, err = e.api.create(ctx, request)
			return named(fmt.Sprintf("DriverCreateBucket(%s)", request.name), err)
		}
		return call, func(ctx context.Context) error {
			answered := early.id
			if err := e.doggedly(ctx, call); err != nil {
				return fmt.Errorf("repeated: %w", err)
			}
			if answered != "" && answered != early.id {
				return fmt.Errorf("DriverCreateBucket(%s) answered bucket_id %q, and %q when repeated", request.name, answered, early.id)
			}
			return e.sameBucket(ctx, early, 1)
		}, nil
	})
}

func grantGivenUp(ctx context.Context, e *env) error {
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	return e.givenUp(ctx, func(context.Context) (func(context.Context) error, func(context.Context) error, error) {
		request, early := e.accessTo(b), access{}
		call := func(ctx context.Context) (err error) {
			early, err = e.api.grant(ctx, request)
			return named(fmt.Sprintf("DriverGrantBucketAccess(%s)", request.name), err)
		}
		return call, func(ctx context.Context) error {
			answered := early
			if err := e.doggedly(ctx, call); err != nil {
				return fmt.Errorf("repeated: %w", err)
			}
			if answered.id != "" {
				if err := alike(answered, early, false); err != nil {
					return err
				}
			}
			if err := e.sameAccess(ctx, early, 1, false); err != nil {
				return err
			}
			return e.tryKey(ctx, early, func(ctx context.Context, u *user) error {
				return e.eventually(ctx, func(ctx context.Context) error { return named("PutObject with the key", u.put(ctx, object, content)) })
			})
		}, nil
	})
}

// tryKey uses a key, if keys are to be used.
func (e *env) tryKey(ctx context.Context, a access, use func(context.Context, *user) error) error {
	if !e.cfg.S3.Enabled || !a.key.s3 {
		return nil
	}
	u, err := e.user(ctx, a, a.buckets[0].bucket)
	if err != nil {
		return err
	}
	return use(ctx, u)
}

func revokeGivenUp(ctx context.Context, e *env) error {
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	return e.givenUp(ctx, func(ctx context.Context) (func(context.Context) error, func(context.Context) error, error) {
		a, err := e.grant(ctx, e.accessTo(b))
		call := func(ctx context.Context) error {
			return named(fmt.Sprintf("DriverRevokeBucketAccess(%s)", a.id), e.api.revoke(ctx, a))
		}
		return call, func(ctx context.Context) error {
			if err := e.doggedly(ctx, call); err != nil {
				return fmt.Errorf("repeated: %w", err)
			}
			return e.tryKey(ctx, a, func(ctx context.Context, u *user) error { return e.stillRefused(ctx, u, "with a revoked key") })
		}, err
	})
}

func deleteGivenUp(ctx context.Context, e *env) error {
	return e.givenUp(ctx, func(ctx context.Context) (func(context.Context) error, func(context.Context) error, error) {
		b, err := e.newBucket(ctx)
		call := func(ctx context.Context) error {
			return named(fmt.Sprintf("DriverDeleteBucket(%s)", b.id), e.api.delete(ctx, b))
		}
		return call, func(ctx context.Context) error {
			err := e.doggedly(ctx, func(ctx context.Context) error {
				err := call(ctx)
				if e.version == V1Alpha1 && codeOf(err) == codes.NotFound {
					return nil
				}
				return err
			})
			return named("repeated", err)
		}, err
	})
}
