package sanity

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
)

// valid is a bucket and a request for access to it, for the calls that are
// spoilt.
func (e *env) valid(ctx context.Context) (bucket, accessRequest, error) {
	b, err := e.newBucket(ctx)
	return b, e.accessTo(b), err
}

func missingFields(ctx context.Context, e *env) error {
	b, a, err := e.valid(ctx)
	if err != nil {
		return err
	}
	making, _ := e.api.incomplete(b, a)
	return e.refused(ctx, making, codes.InvalidArgument)
}

// missingIDs are accepted as well as refused: the v0.2.2 sidecar asks to
// delete and revoke with an empty id where a status was never written, and OK
// is what lets such an object go.
func missingIDs(ctx context.Context, e *env) error {
	b, a, err := e.valid(ctx)
	if err != nil {
		return err
	}
	_, unmaking := e.api.incomplete(b, a)
	return e.refused(ctx, unmaking, codes.OK, codes.InvalidArgument)
}

func unknownValues(ctx context.Context, e *env) error {
	_, a, err := e.valid(ctx)
	if err != nil {
		return err
	}
	return e.refused(ctx, e.api.unknownValues(e.bucketName(), a), codes.InvalidArgument)
}

func unsupportedProtocols(ctx context.Context, e *env) error {
	c, err := e.v1alpha2()
	if err != nil {
		return err
	}
	_, a, err := e.valid(ctx)
	if err != nil {
		return err
	}
	attempts := c.unsupported(e.bucketName(), e.supported, a)
	if len(attempts) == 0 {
		return notRun("the driver supports every protocol there is")
	}
	return e.refused(ctx, attempts, codes.InvalidArgument)
}

func overlongCreates(ctx context.Context, e *env) error {
	b, a, err := e.valid(ctx)
	if err != nil {
		return err
	}
	creates, _ := e.api.overlong(e.bucketName(), b, a)
	allowed := []codes.Code{codes.OK, codes.InvalidArgument}
	if e.version == V1Alpha1 {
		allowed = append(allowed, codes.OutOfRange)
	}
	return e.refused(ctx, creates, allowed...)
}

// overlongOthers asks only for an answer that is one: the driver may take such
// values, refuse them, or find nothing of the name.
func overlongOthers(ctx context.Context, e *env) error {
	b, a, err := e.valid(ctx)
	if err != nil {
		return err
	}
	_, others := e.api.overlong(e.bucketName(), b, a)
	return e.answered(ctx, others, codes.Internal)
}

func foreignIDsAnswered(ctx context.Context, e *env) error {
	_, a, err := e.valid(ctx)
	if err != nil {
		return err
	}
	return e.answered(ctx, e.api.foreign(a))
}

// answered makes calls that need an answer, whatever it is: no silence, no
// crash, no error that nobody has thought about.
func (e *env) answered(ctx context.Context, attempts []attempt, also ...codes.Code) error {
	unfit := append([]codes.Code{codes.Unknown, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled}, also...)
	var errs []error
	for _, a := range attempts {
		err := e.patiently(ctx, a.call)
		var none *unanswered
		if errors.As(err, &none) || oneOf(err, unfit) {
			errs = append(errs, fmt.Errorf("%s: %s", a.what, answer(err)))
		}
		if errors.As(err, &none) { // the rest would take as long
			break
		}
	}
	return errors.Join(errs...)
}
