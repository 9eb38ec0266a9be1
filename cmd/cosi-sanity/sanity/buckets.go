package sanity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
)

// domainName is the notation that both versions ask for, with the length
// checked apart.
var domainName = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*$`)

func driverName(ctx context.Context, e *env) error {
	got, err := e.api.info(ctx)
	switch {
	case err != nil:
		return err
	case got.name == "":
		return errors.New("DriverGetInfo: the name is empty")
	case len(got.name) > 63:
		return fmt.Errorf("DriverGetInfo: the name %q has %d characters, and 63 are allowed", shorten(got.name), len(got.name))
	case !domainName.MatchString(got.name):
		return fmt.Errorf("DriverGetInfo: the name %q is not in domain name notation", got.name)
	}
	return nil
}

// label is what the v1alpha2 sidecar takes for a part of a driver's name.
var label = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)

func driverNameLabels(ctx context.Context, e *env) error {
	got, err := e.api.info(ctx)
	if err != nil {
		return err
	}
	for part := range strings.SplitSeq(got.name, ".") {
		if !label.MatchString(part) || len(part) > 63 {
			return fmt.Errorf("DriverGetInfo: %q in the name %q is not a label of lower-case letters, digits and hyphens that begins with a letter", part, got.name)
		}
	}
	return nil
}

func someProtocol(ctx context.Context, e *env) error {
	got, err := e.api.info(ctx)
	if err == nil && len(got.protocols) == 0 {
		err = errors.New("DriverGetInfo: supported_protocols is empty")
	}
	return err
}

func knownProtocols(ctx context.Context, e *env) error {
	got, err := e.api.info(ctx)
	if err != nil {
		return err
	}
	for i, p := range got.protocols {
		switch {
		case p == 0:
			return errors.New("DriverGetInfo: supported_protocols holds UNKNOWN")
		case slices.Contains(got.protocols[:i], p):
			return fmt.Errorf("DriverGetInfo: supported_protocols holds %s twice", name(p))
		}
	}
	return nil
}

func createAnswersID(ctx context.Context, e *env) error {
	_, err := e.newBucket(ctx)
	return err
}

// The alphabet of ids in v1alpha2: the first text's, and the one that sidecars
// hold a generated id to.
var (
	idAlphabet        = regexp.MustCompile(`^[a-zA-Z0-9.-]*$`)
	generatedAlphabet = regexp.MustCompile(`^[a-zA-Z0-9/._-]*$`)
)

// checkID holds an id to its version's alphabet and length.
func (e *env) checkID(field, id string) error {
	most := 128
	if e.Version == V1Alpha2 {
		most = 2048
		alphabet := idAlphabet
		if e.Generation.since(C1) {
			alphabet = generatedAlphabet
		}
		if !alphabet.MatchString(id) {
			return fmt.Errorf("%s %q: only %s is allowed", field, shorten(id), strings.Trim(alphabet.String(), "^*$"))
		}
	}
	if len(id) > most {
		return fmt.Errorf("%s %q has %d bytes, and %d are allowed", field, shorten(id), len(id), most)
	}
	return nil
}

func bucketIDForm(ctx context.Context, e *env) error {
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	return e.checkID("bucket_id", b.id)
}

func createAgain(ctx context.Context, e *env) error {
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	return e.sameBucket(ctx, b, e.cfg.Repeat-1)
}

// sameBucket repeats the request that made a bucket.
func (e *env) sameBucket(ctx context.Context, b bucket, times int) error {
	for range times {
		again, err := e.create(ctx, b.bucketRequest) // as if its answer had not been stored
		switch {
		case err != nil:
			return fmt.Errorf("repeated: %w", err)
		case again.id != b.id:
			return fmt.Errorf("DriverCreateBucket(%s) answered bucket_id %q, and %q when repeated", b.name, b.id, again.id)
		}
	}
	return nil
}

func ownBuckets(ctx context.Context, e *env) error {
	one, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	two, err := e.newBucket(ctx)
	if err == nil && one.id == two.id {
		err = fmt.Errorf("buckets %q and %q both have bucket_id %q", one.name, two.name, one.id)
	}
	return err
}

func createOtherwise(ctx context.Context, e *env) error {
	if e.cfg.OtherBucketParameters == nil {
		return notRun("no otherBucketParameters are given")
	}
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	other := b.again()
	other.parameters = e.cfg.OtherBucketParameters
	if err := e.refused(ctx, []attempt{{"DriverCreateBucket with other parameters", func(ctx context.Context) error {
		_, err := e.api.create(ctx, other)
		return err
	}}}, codes.AlreadyExists); err != nil {
		return cmp.Or(e.otherClassFails(ctx), err)
	}
	switch again, err := e.create(ctx, b.again()); {
	case err != nil:
		return fmt.Errorf("after that was refused, with the first parameters: %w", err)
	case again.id != b.id:
		return see("B03")
	}
	return nil
}

// otherClassFails is why nothing can be told from what the driver makes of
// otherBucketParameters; nil if they are those of a class that works.
func (e *env) otherClassFails(ctx context.Context) error {
	r := e.aBucket()
	r.parameters = e.cfg.OtherBucketParameters
	id, err := e.api.newID(ctx, r)
	if r.id = id; err == nil {
		_, err = e.create(ctx, r)
	}
	if err == nil {
		return nil
	}
	return notRun(fmt.Sprintf("otherBucketParameters are not those of a class that works: %v", err))
}

func protocolsServed(ctx context.Context, e *env) error {
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	return e.checkProtocols(b)
}

func (e *env) checkProtocols(b bucket) error {
	if len(b.served) == 0 {
		return errors.New("protocols has no bucket info at all")
	}
	for _, p := range b.protocols {
		if !slices.Contains(b.served, p) {
			return fmt.Errorf("protocols has no info for %s, which was asked for", name(p))
		}
	}
	for _, p := range b.served {
		if !slices.Contains(e.supported, p) {
			return fmt.Errorf("protocols has an info for %s, which is not among supported_protocols", name(p))
		}
	}
	return nil
}

// goneBucket is a bucket that was made and deleted: its id has the driver's form.
func (e *env) goneBucket(ctx context.Context) (bucket, error) {
	b, err := e.newBucket(ctx)
	if err != nil {
		return b, err
	}
	return b, e.delete(ctx, b)
}

func deletes(ctx context.Context, e *env) error {
	_, err := e.goneBucket(ctx)
	return err
}

func deleteAgain(ctx context.Context, e *env) error {
	b, err := e.goneBucket(ctx)
	for range e.cfg.Repeat - 1 {
		if err != nil {
			return err
		}
		err = e.delete(ctx, b)
	}
	return err
}

func deleteGone(ctx context.Context, e *env) error {
	b, err := e.goneBucket(ctx)
	if err != nil {
		return err
	}
	return e.refused(ctx, []attempt{{"DriverDeleteBucket of a deleted bucket", func(ctx context.Context) error {
		return e.api.delete(ctx, b)
	}}}, codes.OK, codes.NotFound)
}

func deleteUnknown(ctx context.Context, e *env) error {
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	unknown := b
	if unknown.id, err = renamed(b.id, b.name, e.aBucket().name); err != nil {
		return err
	}
	err = e.patiently(ctx, func(ctx context.Context) error { return e.api.delete(ctx, unknown) })
	allowed := []codes.Code{codes.OK}
	if e.Version == V1Alpha1 {
		allowed = append(allowed, codes.NotFound)
	}
	switch {
	case codeOf(err) == codes.InvalidArgument:
		return notRun("the driver does not take an id that the suite has made up for one of its own")
	case !oneOf(err, allowed):
		return fmt.Errorf("DriverDeleteBucket(%s), of which there is none: want %s, got %s", unknown.id, list(allowed), answer(err))
	}
	return nil
}

// renamed makes the id of something that does not exist from the id of
// something that does, if the driver's ids show names.
func renamed(id, name, other string) (string, error) {
	if strings.Count(id, name) != 1 {
		return "", notRun("the driver's ids do not show names, so the suite cannot write the id of something unknown")
	}
	return strings.Replace(id, name, other, 1), nil
}

func existingBucket(ctx context.Context, e *env) error {
	c, err := e.v1alpha2()
	if err != nil {
		return err
	}
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	first, method := "", c.generation.getMethod()
	for i := range e.cfg.Repeat {
		var got bucket
		err := e.patiently(ctx, func(ctx context.Context) (err error) {
			got, err = c.existing(ctx, b.id, b.bucketRequest)
			return err
		})
		switch {
		case err != nil:
			return fmt.Errorf("%s(%s): %w", method, b.id, err)
		case got.id == "":
			return fmt.Errorf("%s(%s): the answer has no bucket_id", method, b.id)
		case i > 0 && got.id != first:
			return fmt.Errorf("%s(%s) answered bucket_id %q, and %q when repeated", method, b.id, first, got.id)
		}
		first = got.id
		if err := e.checkProtocols(got); err != nil {
			return fmt.Errorf("%s(%s): %w", method, b.id, err)
		}
	}
	return nil
}

func existingGone(ctx context.Context, e *env) error {
	c, err := e.v1alpha2()
	if err != nil {
		return err
	}
	b, err := e.goneBucket(ctx)
	if err != nil {
		return err
	}
	return e.refused(ctx, []attempt{{c.generation.getMethod() + " of a deleted bucket", func(ctx context.Context) error {
		_, err := c.existing(ctx, b.id, b.bucketRequest)
		return err
	}}}, codes.NotFound)
}

func existingOtherwise(ctx context.Context, e *env) error {
	c, err := e.v1alpha2()
	if err != nil {
		return err
	}
	if e.cfg.OtherBucketParameters == nil {
		return notRun("no otherBucketParameters are given")
	}
	b, err := e.newBucket(ctx)
	if err != nil {
		return err
	}
	other := b.bucketRequest
	other.parameters = e.cfg.OtherBucketParameters
	allowed := []codes.Code{codes.AlreadyExists}
	if c.generation.since(B1) { // of which the enhancement proposal says both
		allowed = append(allowed, codes.InvalidArgument)
	}
	if err := e.refused(ctx, []attempt{{c.generation.getMethod() + " with other parameters", func(ctx context.Context) error {
		_, err := c.existing(ctx, b.id, other)
		return err
	}}}, allowed...); err != nil {
		return cmp.Or(e.otherClassFails(ctx), err)
	}
	return nil
}
