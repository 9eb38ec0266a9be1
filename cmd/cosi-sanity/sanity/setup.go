package sanity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// The checks of set-up tell a driver that the suite cannot judge from one that
// it can. What they make stays until all other checks have run: a bucket_id that
// is answered for a second name is then seen before anything is deleted by it.

func canCreate(ctx context.Context, e *env) error {
	b, err := e.newBucket(ctx)
	if e.objects.err != nil {
		return e.objects.err
	}
	if err == nil || b.answered {
		return nil // whether the answer is right, B01 judges
	}
	return fmt.Errorf("no bucket can be made: %w\n%s", err, hint("a bucket class", "--bucket-parameter", e.cfg.BucketParameters))
}

func canGrant(ctx context.Context, e *env) error {
	a, err := e.newAccess(ctx)
	if err == nil || a.answered {
		return nil
	}
	return fmt.Errorf("no access can be given: %w\n%s", err, hint("an access class", "--access-parameter", e.cfg.AccessParameters))
}

// hint says what the user can do. Values of parameters are not shown.
func hint(class, flag string, given map[string]string) string {
	if len(given) == 0 {
		return fmt.Sprintf("If the driver needs parameters, give those of %s that works: %s key=value", class, flag)
	}
	return fmt.Sprintf("Look at the driver's log, and whether %s with these parameters works: %s", class, strings.Join(slices.Sorted(maps.Keys(given)), ", "))
}

// canReach wants any answer of the object store.
func canReach(ctx context.Context, e *env) error {
	if err := e.needS3(); err != nil {
		return err
	}
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	b := a.buckets[0].bucket
	u, err := e.userNamed(a, b, a.at[b.id].bucket)
	if err != nil {
		return err
	}
	var unreached error
	_ = e.eventually(ctx, func(ctx context.Context) error {
		_, err := u.get(ctx, object)
		if unreached = nil; err != nil && httpStatus(err) < http.StatusContinue {
			unreached = err
		}
		return unreached
	})
	if unreached == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("the object store is not reached at %s: %w", u.endpoint, unreached),
		errors.New("Give an address that this machine reaches with --s3-endpoint, and the authority of its certificate with --s3-ca"))
}
