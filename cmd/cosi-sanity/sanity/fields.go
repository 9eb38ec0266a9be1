package sanity

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
)

// valid is a bucket, and requests for access to it to be spoilt, each under a
// name of its own.
func (e *env) valid(ctx context.Context) (bucket, func() accessRequest, error) {
	b, err := e.newBucket(ctx)
	return b, func() accessRequest { return e.accessTo(b) }, err
}

func missingFields(ctx context.Context, e *env) error {
	b, fresh, err := e.valid(ctx)
	if err != nil {
		return err
	}
	making, _ := e.api.incomplete(b, fresh)
	return e.refused(ctx, making, codes.InvalidArgument)
}

// missingIDs are accepted as well as refused: the v0.2.2 sidecar asks to
// delete and revoke with an empty id where a status was never written, and OK
// is what lets such an object go.
func missingIDs(ctx context.Context, e *env) error {
	b, fresh, err := e.valid(ctx)
	if err != nil {
		return err
	}
	_, unmaking := e.api.incomplete(b, fresh)
	return e.refused(ctx, unmaking, codes.OK, codes.InvalidArgument)
}

func unknownValues(ctx context.Context, e *env) error {
	_, fresh, err := e.valid(ctx)
	if err != nil {
		return err
	}
	b, err := e.numbered(ctx, 1)
	if err != nil {
		return err
	}
	return e.refused(ctx, e.api.unknownValues(b, fresh), codes.InvalidArgument)
}

func unsupportedProtocols(ctx context.Context, e *env) error {
	c, err := e.v1alpha2()
	if err != nil {
		return err
	}
	_, fresh, err := e.valid(ctx)
	if err != nil {
		return err
	}
	b, err := e.numbered(ctx, 3)
	if err != nil {
		return err
	}
	attempts := c.unsupported(b, e.supported, fresh)
	if len(attempts) == 0 {
		return notRun("the driver supports every protocol there is")
	}
	return e.refused(ctx, attempts, codes.InvalidArgument)
}

func overlongCreates(ctx context.Context, e *env) error {
	_, fresh, err := e.valid(ctx)
	if err != nil {
		return err
	}
	b, err := e.numbered(ctx, 1)
	if err != nil {
		return err
	}
	creates, _ := e.api.overlong(e.longName(), b[0], fresh)
	allowed := []codes.Code{codes.OK, codes.InvalidArgument}
	if e.Version == V1Alpha1 {
		allowed = append(allowed, codes.OutOfRange)
	}
	return e.refused(ctx, creates, allowed...)
}

// overlongOthers asks only for an answer that is one: the driver may take such
// values, refuse them, or find nothing of the name.
func overlongOthers(ctx context.Context, e *env) error {
	b, fresh, err := e.valid(ctx)
	if err != nil {
		return err
	}
	_, others := e.api.overlong(e.longName(), b.bucketRequest, fresh)
	return e.answered(ctx, others, codes.Internal)
}

func foreignIDsAnswered(ctx context.Context, e *env) error {
	_, fresh, err := e.valid(ctx)
	if err != nil {
		return err
	}
	ids := e.foreignIDs()
	for _, id := range ids {
		if objectName.MatchString(id) { // a driver that takes it for a bucket's reads the object to revoke
			e.announce(bucketRequest{name: id, parameters: e.cfg.BucketParameters})
		}
	}
	return e.answered(ctx, e.api.foreign(ids, fresh))
}

// longName is beyond every limit of a name or an id. What a driver cuts it down
// to is the run's own.
func (e *env) longName() string {
	name := e.bucketName()
	return name + strings.Repeat("a", 4096-len(name))
}

// foreignIDs are shaped as other drivers shape theirs, or as none would. Each part
// that a driver could take for a name is the run's own, so that an id that is
// misread means nothing that exists.
func (e *env) foreignIDs() []string {
	n := strings.ReplaceAll(e.bucketName(), "-", "")
	n = "no-such-" + e.uid + n[len(n)-12:]
	return []string{n, n + "/" + n + "/" + n, n + ":" + n + ":%2F" + n, n + "." + n + "." + n, "{" + n + "}", "日本" + n, "'" + n + "'='" + n} //nolint:gosmopolitan // not an alphabet of ids
}

// answered makes calls that need an answer, whatever it is. An error without a
// code of its own is G02's to judge.
func (e *env) answered(ctx context.Context, attempts []attempt, also ...codes.Code) error {
	unfit := append([]codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled}, also...)
	var errs []error
	for _, a := range attempts {
		err := e.patiently(ctx, a.call)
		if hung(err) || oneOf(err, unfit) {
			errs = append(errs, fmt.Errorf("%s: %s", a.what, answer(err)))
		}
		if silent(err) { // the rest would take as long
			break
		}
	}
	return errors.Join(errs...)
}
