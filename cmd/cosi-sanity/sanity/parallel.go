package sanity

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

func createAtOnce(ctx context.Context, e *env) error {
	request := e.aBucket()
	return e.alikeAtOnce(ctx, func(ctx context.Context) (string, error) {
		b, err := e.api.create(ctx, request)
		return fmt.Sprintf("bucket_id %q", b.id), err
	})
}

func grantAtOnce(ctx context.Context, e *env) error {
	return e.grantsAtOnce(ctx, func(a access) string { return fmt.Sprintf("account_id %q", a.id) })
}

func keyAtOnce(ctx context.Context, e *env) error {
	return e.grantsAtOnce(ctx, func(a access) string {
		secret := sha256.Sum256([]byte(a.key.secret)) // a short one would not be redacted
		return fmt.Sprintf("access key %q with a secret whose hash begins with %x", a.key.id, secret[:3])
	})
}

func (e *env) grantsAtOnce(ctx context.Context, show func(access) string) error {
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	request := e.accessTo(b)
	return e.alikeAtOnce(ctx, func(ctx context.Context) (string, error) {
		a, err := e.api.grant(ctx, request)
		return show(a), err
	})
}

// alikeAtOnce makes the same call from many callers. Some may be refused, for one
// is enough; all have to be answered the same in the end.
func (e *env) alikeAtOnce(ctx context.Context, call func(context.Context) (string, error)) error {
	var mu sync.Mutex
	first := ""
	return e.atOnce(e.cfg.Concurrency, func(int) error {
		var got string
		err := e.doggedly(ctx, func(ctx context.Context) (err error) {
			got, err = call(ctx)
			return err
		})
		if err != nil {
			return fmt.Errorf("%d callers of one name, one of them in the end: %w", e.cfg.Concurrency, err)
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

// deleteOnce deletes a bucket, where NOT_FOUND is success to v1alpha1's sidecar.
func (e *env) deleteOnce(ctx context.Context, b bucket) error {
	err := e.api.delete(ctx, b)
	if e.Version == V1Alpha1 && codeOf(err) == codes.NotFound {
		return nil
	}
	return err
}

func endAtOnce(ctx context.Context, e *env) error {
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	// The sidecars repeat whatever is answered, so only what does not heal counts.
	if err := e.atOnce(e.cfg.Concurrency, func(int) error {
		return named("DriverRevokeBucketAccess", e.doggedly(ctx, func(ctx context.Context) error { return e.api.revoke(ctx, a) }))
	}); err != nil {
		return err
	}
	b := a.buckets[0].bucket
	return e.atOnce(e.cfg.Concurrency, func(int) error {
		return named("DriverDeleteBucket", e.doggedly(ctx, func(ctx context.Context) error { return e.deleteOnce(ctx, b) }))
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
	calls := []func(context.Context) error{func(ctx context.Context) error { return named("DriverDeleteBucket", e.deleteOnce(ctx, b)) }}
	for range accesses {
		a, err := e.grant(ctx, e.accessTo(b))
		if codeOf(err) == codes.ResourceExhausted {
			return notRun(fmt.Sprintf("the driver does not give %d keys of one bucket: %s", accesses, answer(err)))
		}
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
			last, err := e.grant(ctx, request)
			if err == nil {
				err = alike(early, last, false)
			}
			if err != nil {
				return err
			}
			if err := e.tryKey(ctx, "K01", last, func(ctx context.Context, u *user) error {
				return e.eventually(ctx, func(ctx context.Context) error { return named("PutObject with the key", u.put(ctx, object, content)) })
			}); err != nil {
				return err
			}
			_ = e.api.revoke(ctx, last) // a bucket may have room for few; what is left is cleaned up
			return nil
		}, nil
	})
}

// tryKey uses a key, if keys are to be used and the check that judges that in
// particular has found nothing.
func (e *env) tryKey(ctx context.Context, unless string, a access, use func(context.Context, *user) error) error {
	if v := e.verdicts[unless].Verdict; !e.cfg.S3.Enabled || !a.key.s3 || v == Failed || v == NotRun {
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
			return e.tryKey(ctx, "K04", a, func(ctx context.Context, u *user) error { return e.stillRefused(ctx, u, "with a revoked key") })
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
			return named("repeated", e.doggedly(ctx, func(ctx context.Context) error {
				return named(fmt.Sprintf("DriverDeleteBucket(%s)", b.id), e.deleteOnce(ctx, b))
			}))
		}, err
	})
}

// restarted runs the user's command, waits for the driver, and repeats what was
// asked before.
func restarted(ctx context.Context, e *env) error {
	if e.cfg.Restart == "" {
		return notRun("no command is given that restarts the driver (--restart)")
	}
	requests, err := e.numbered(ctx, 1)
	if err != nil {
		return err
	}
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	if err := e.restart(ctx); err != nil {
		return err
	}
	id, err := e.api.newID(ctx, requests[0])
	switch {
	case err != nil:
		return fmt.Errorf("DriverGenerateBucketId(%s) after a restart: %w", requests[0].name, err)
	case id != requests[0].id:
		return fmt.Errorf("DriverGenerateBucketId(%s) answered bucket_id %q, and %q after a restart", requests[0].name, requests[0].id, id)
	}
	if err := e.sameBucket(ctx, a.buckets[0].bucket, 1); err != nil {
		return fmt.Errorf("after a restart: %w", err)
	}
	return named("after a restart", e.sameAccess(ctx, a, 1, false))
}

// restart runs the user's command and waits for the driver.
func (s *session) restart(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, "sh", "-c", s.cfg.Restart).CombinedOutput(); err != nil { //nolint:gosec // the user's own
		return notRun(fmt.Sprintf("the command of --restart failed: %v: %s", err, shorten(string(out))))
	}
	s.conn.ResetConnectBackoff()
	return named("after the restart", s.patiently(ctx, func(ctx context.Context) error {
		_, err := s.api.info(quiet(ctx))
		return err
	}))
}
