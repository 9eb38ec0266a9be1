package sanity

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
)

// generated asks for an id as the first phase of a creation or a grant does.
func (e *env) generated(ctx context.Context, method, name string, ask func(context.Context) (string, error)) (string, error) {
	var id string
	err := e.patiently(ctx, func(ctx context.Context) (err error) {
		id, err = ask(ctx)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%s(%s): %w", method, name, err)
	}
	if id == "" {
		return "", fmt.Errorf("%s(%s): the answer has no id", method, name)
	}
	return id, nil
}

func (e *env) generatedBucket(ctx context.Context, r bucketRequest) (string, error) {
	return e.generated(ctx, "DriverGenerateBucketId", r.name, func(ctx context.Context) (string, error) { return e.api.newID(ctx, r) })
}

func (e *env) generatedAccount(ctx context.Context, c *v1alpha2Client, r accessRequest) (string, error) {
	return e.generated(ctx, "DriverGenerateBucketAccessId", r.name, func(ctx context.Context) (string, error) { return c.newAccountID(ctx, r) })
}

// steady wants an id to be the same each time, and not the one of another name.
func (e *env) steady(own, other func() (string, error)) error {
	first, err := own()
	if err != nil {
		return err
	}
	for range e.cfg.Repeat - 1 {
		again, err := own()
		if err != nil {
			return fmt.Errorf("repeated: %w", err)
		}
		if again != first {
			return fmt.Errorf("one name was answered the id %q, and %q when repeated", first, again)
		}
	}
	second, err := other()
	if err == nil && second == first {
		err = fmt.Errorf("two names were answered the id %q", first)
	}
	return err
}

func generatedBucketID(ctx context.Context, e *env) error {
	request, other := e.aBucket(), e.aBucket()
	return e.steady(
		func() (string, error) { return e.generatedBucket(ctx, request) },
		func() (string, error) { return e.generatedBucket(ctx, other) })
}

func onlyGeneratedBucket(ctx context.Context, e *env) error {
	c, err := e.v1alpha2()
	if err != nil {
		return err
	}
	request := e.aBucket()
	id, err := e.generatedBucket(ctx, request)
	if err != nil {
		return err
	}
	found := e.refused(ctx, []attempt{{c.generation.getMethod() + " of a bucket whose id was only generated", func(ctx context.Context) error {
		_, err := c.existing(ctx, id, request)
		return err
	}}}, codes.NotFound)
	if err := e.delete(ctx, bucket{bucketRequest: request, id: id}); err != nil {
		return err
	}
	return found
}

func generatedAccountID(ctx context.Context, e *env) error {
	c, err := e.v1alpha2()
	if err != nil {
		return err
	}
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	request, other := e.accessTo(b), e.accessTo(b)
	return e.steady(
		func() (string, error) { return e.generatedAccount(ctx, c, request) },
		func() (string, error) { return e.generatedAccount(ctx, c, other) })
}

func onlyGeneratedAccount(ctx context.Context, e *env) error {
	c, err := e.v1alpha2()
	if err != nil {
		return err
	}
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	request := e.accessTo(b)
	id, err := e.generatedAccount(ctx, c, request)
	if err != nil {
		return err
	}
	return e.revoke(ctx, access{accessRequest: request, id: id})
}

// existingGranted is given access to by the id that the sidecar keeps: what was
// asked with since C1, what was answered before.
func existingGranted(ctx context.Context, e *env) error {
	c, err := e.v1alpha2()
	if err != nil {
		return err
	}
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	var found bucket
	err = e.patiently(ctx, func(ctx context.Context) (err error) {
		found, err = c.existing(ctx, b.id, b.bucketRequest)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := e.grant(ctx, e.accessTo(found)); err != nil {
		return fmt.Errorf("for the existing bucket %q: %w", found.id, err)
	}
	return nil
}
