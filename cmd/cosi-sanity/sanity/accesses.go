package sanity

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
)

func grantAnswersID(ctx context.Context, e *env) error {
	_, err := e.newAccess(ctx)
	return err
}

func accountIDForm(ctx context.Context, e *env) error {
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	return e.checkID("account_id", a.id)
}

func credentialsComplete(ctx context.Context, e *env) error {
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	return errors.Join(a.credentialFaults...)
}

func bucketInfosComplete(ctx context.Context, e *env) error {
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	return errors.Join(a.infoFaults...)
}

// regionNamed is for v1alpha1, whose Secret has a region: an SDK asks for one,
// also where the service has none.
func regionNamed(ctx context.Context, e *env) error {
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	if at, ok := a.at[a.buckets[0].bucket.id]; ok && at.region == "" {
		return errors.New("credentials has no region: an application's SDK that reads the Secret has none to sign with (us-east-1 is what most services without regions take)")
	}
	return nil
}

func grantAgain(ctx context.Context, e *env) error {
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	return e.sameAccess(ctx, a, e.cfg.Repeat-1, false)
}

func grantSameKey(ctx context.Context, e *env) error {
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	return e.sameAccess(ctx, a, e.cfg.Repeat-1, true)
}

// sameAccess repeats the request that gave access.
func (e *env) sameAccess(ctx context.Context, a access, times int, key bool) error {
	for range times {
		again, err := e.grant(ctx, a.accessRequest) // as if its answer had not been stored
		if err != nil && e.Version == V1Alpha1 && codeOf(err) == codes.AlreadyExists {
			return fmt.Errorf("repeated: %w; the sidecar crashes at that code", err)
		}
		if err != nil {
			return fmt.Errorf("repeated: %w", err)
		}
		if err := alike(a, again, key); err != nil {
			return err
		}
	}
	return nil
}

// alike compares what two equal grants have answered.
func alike(a, b access, key bool) error {
	switch {
	case !key && a.id != b.id:
		return fmt.Errorf("DriverGrantBucketAccess(%s) answered account_id %q, and %q when repeated", a.name, a.id, b.id)
	case key && a.key.id != b.key.id:
		return fmt.Errorf("DriverGrantBucketAccess(%s) answered the access key %q, and %q when repeated", a.name, a.key.id, b.key.id)
	case key && a.key.secret != b.key.secret:
		return fmt.Errorf("DriverGrantBucketAccess(%s) answered another secret when repeated", a.name)
	}
	return nil
}

// again is the request that gave access, as a sidecar repeats it.
func (a access) again() accessRequest {
	r := a.accessRequest
	r.id = a.id
	return r
}

func ownAccounts(ctx context.Context, e *env) error {
	one, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	two, err := e.grant(ctx, e.accessTo(one.buckets[0].bucket))
	switch {
	case err != nil:
		return err
	case one.id == two.id:
		return fmt.Errorf("accesses %q and %q both have account_id %q", one.name, two.name, one.id)
	}
	return nil
}

// grantOtherwise asks for other access under a name that is taken. v1alpha1
// leaves it to the driver what comes, but for one code.
func grantOtherwise(ctx context.Context, e *env) error {
	if e.Version == V1Alpha2 && e.cfg.OtherAccessParameters == nil {
		return notRun("no otherAccessParameters are given")
	}
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	var attempts []attempt
	if e.cfg.OtherAccessParameters != nil {
		other := a.again()
		other.parameters = e.cfg.OtherAccessParameters
		attempts = append(attempts, e.tryGrant("DriverGrantBucketAccess with other parameters", other))
	}
	if e.Version == V1Alpha2 {
		return e.refused(ctx, attempts, codes.AlreadyExists)
	}
	elsewhere, err := e.otherBucket(ctx, a)
	if err != nil {
		return err
	}
	for _, try := range append(attempts, elsewhere) {
		if err := e.patiently(ctx, try.call); codeOf(err) == codes.AlreadyExists {
			return fmt.Errorf("%s: %s", try.what, answer(err))
		}
	}
	return nil
}

func (e *env) tryGrant(what string, r accessRequest) attempt {
	return attempt{what, func(ctx context.Context) error {
		_, err := e.api.grant(ctx, r)
		return err
	}}
}

// otherBucket asks for access to another bucket under an access's name.
func (e *env) otherBucket(ctx context.Context, a access) (attempt, error) {
	b, err := e.newBucket(ctx)
	other := a.again()
	other.buckets = []accessedBucket{{bucket: b, mode: readWrite}}
	return e.tryGrant("DriverGrantBucketAccess for another bucket under the same name", other), err
}

func grantElsewhere(ctx context.Context, e *env) error {
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	try, err := e.otherBucket(ctx, a)
	if err != nil {
		return err
	}
	return e.refused(ctx, []attempt{try}, codes.AlreadyExists)
}

func grantUnknownBucket(ctx context.Context, e *env) error {
	b, err := e.goneBucket(ctx)
	if err != nil {
		return err
	}
	if err := e.patiently(ctx, e.tryGrant("", e.accessTo(b)).call); err == nil {
		return fmt.Errorf("DriverGrantBucketAccess for bucket %q, which was deleted: want an error, got OK", b.id)
	}
	return nil
}

func authenticationTypes(ctx context.Context, e *env) error {
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	request := e.api.serviceAccount(e.accessTo(b))
	var a access
	err = e.patiently(ctx, func(ctx context.Context) (err error) {
		a, err = e.api.grant(ctx, request)
		return err
	})
	switch {
	case !oneOf(err, []codes.Code{codes.OK, codes.InvalidArgument}):
		return fmt.Errorf("DriverGrantBucketAccess for a service account: want OK or InvalidArgument, got %s", answer(err))
	case err == nil:
		// Without a key, but of one protocol: the sidecars want that all the same.
		return errors.Join(slices.Concat(a.infoFaults, a.credentialFaults)...)
	}
	return nil
}

func revokes(ctx context.Context, e *env) error {
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	return e.revoke(ctx, a)
}

func revokeAgain(ctx context.Context, e *env) error {
	a, err := e.newAccess(ctx)
	for range e.cfg.Repeat {
		if err != nil {
			return err
		}
		err = e.revoke(ctx, a)
	}
	return err
}

func revokeUnknown(ctx context.Context, e *env) error {
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	unknown := a
	if unknown.id, err = renamed(a.id, a.name, e.accessName()); err != nil {
		return err
	}
	err = e.patiently(ctx, func(ctx context.Context) error { return e.api.revoke(ctx, unknown) })
	switch {
	case codeOf(err) == codes.InvalidArgument:
		return notRun("the driver does not take an id that the suite has made up for one of its own")
	case err != nil:
		return fmt.Errorf("DriverRevokeBucketAccess(%s), of which there is none: want OK, got %s", unknown.id, answer(err))
	}
	return nil
}

// revokeAfterDelete is the order in which the v0.2.2 sidecar may go about. A
// driver may refuse to delete a bucket that access was given to: the sidecar
// repeats that, and the revocation comes meanwhile.
func revokeAfterDelete(ctx context.Context, e *env) error {
	a, err := e.newAccess(ctx)
	if err != nil {
		return err
	}
	b := a.buckets[0].bucket
	deleted := e.patiently(ctx, func(ctx context.Context) error { return e.api.delete(ctx, b) })
	if err := e.revoke(ctx, a); err != nil {
		if deleted != nil {
			return fmt.Errorf("the bucket was not deleted (%s), nor was the access revoked: %w", answer(deleted), err)
		}
		return fmt.Errorf("after the bucket was deleted: %w", err)
	}
	if deleted != nil {
		if err := e.delete(ctx, b); err != nil {
			return fmt.Errorf("after the access was revoked: %w", err)
		}
	}
	return nil
}

func manyBuckets(ctx context.Context, e *env) error {
	a, err := e.sharedAccess(ctx)
	if err != nil {
		return err
	}
	return errors.Join(a.infoFaults...)
}

// sharedAccess gives one account two buckets, or says that the driver does
// not do that.
func (e *env) sharedAccess(ctx context.Context, modes ...mode) (access, error) {
	var buckets []bucket
	for range 2 {
		b, err := e.newBucket(ctx)
		if err != nil {
			return access{}, err
		}
		buckets = append(buckets, b)
	}
	request := e.accessTo(buckets...)
	for i, m := range modes {
		request.buckets[i].mode = m
	}
	a, err := e.grant(ctx, request)
	if codeOf(err) == codes.OutOfRange {
		return a, notRun("the driver gives an account one bucket only (OUT_OF_RANGE), which the specification allows")
	}
	return a, err
}

func anyOrder(ctx context.Context, e *env) error {
	a, err := e.sharedAccess(ctx)
	if err != nil {
		return err
	}
	turned := a
	turned.buckets = slices.Clone(a.buckets)
	slices.Reverse(turned.buckets)
	if err := e.sameAccess(ctx, turned, 1, false); err != nil {
		return fmt.Errorf("with the buckets in another order: %w", err)
	}
	return nil
}
