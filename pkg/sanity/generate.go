package sanity

import (
	"context"
	"fmt"
	"regexp"

	"google.golang.org/grpc/codes"

	pb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
)

// generatedForm is what the sidecar takes for an id that is generated.
var generatedForm = regexp.MustCompile(`^[a-zA-Z0-9/._-]+$`)

// generate asks for the id of a bucket to come, if the driver serves that: the
// later generations of v1alpha2 do.
func (e *env) generate(ctx context.Context, c *v1alpha2Client, request bucketRequest) (string, error) {
	var resp *pb.DriverGenerateBucketIdResponse
	err := e.patiently(ctx, func(ctx context.Context) (err error) {
		resp, err = c.provisioner.DriverGenerateBucketId(ctx, &pb.DriverGenerateBucketIdRequest{
			Name: request.name, Protocols: protocols(request.protocols), Parameters: request.parameters,
		})
		return err
	})
	switch id := resp.GetBucketId(); {
	case codeOf(err) == codes.Unimplemented:
		return "", notRun("the driver does not serve DriverGenerateBucketId, which v1alpha2 has in its later generations")
	case err != nil:
		return "", fmt.Errorf("DriverGenerateBucketId(%s): %w", request.name, err)
	case len(id) > 2048 || !generatedForm.MatchString(id):
		return "", fmt.Errorf("DriverGenerateBucketId(%s): bucket_id %q is not 1 to 2048 characters of a-z, A-Z, 0-9, /, ., _ and -", request.name, id)
	default:
		return id, nil
	}
}

func generatedID(ctx context.Context, e *env) error {
	c, err := e.v1alpha2()
	if err != nil {
		return err
	}
	request, other := e.aBucket(), e.aBucket()
	first, err := e.generate(ctx, c, request)
	if err != nil {
		return err
	}
	for range e.cfg.Repeat - 1 {
		again, err := e.generate(ctx, c, request)
		if err != nil {
			return err
		}
		if again != first {
			return fmt.Errorf("DriverGenerateBucketId(%s) answered bucket_id %q, and %q when repeated", request.name, first, again)
		}
	}
	second, err := e.generate(ctx, c, other)
	if err == nil && second == first {
		err = fmt.Errorf("DriverGenerateBucketId answered bucket_id %q for %s and for %s", first, request.name, other.name)
	}
	return err
}

func onlyGenerated(ctx context.Context, e *env) error {
	c, err := e.v1alpha2()
	if err != nil {
		return err
	}
	request := e.aBucket()
	id, err := e.generate(ctx, c, request)
	if err != nil {
		return err
	}
	found := e.refused(ctx, []attempt{{"DriverGetBucket of a bucket whose id was only generated", func(ctx context.Context) error {
		_, err := c.provisioner.DriverGetBucket(ctx, &pb.DriverGetBucketRequest{BucketId: id, Protocols: protocols(request.protocols), Parameters: request.parameters})
		return err
	}}}, codes.NotFound)
	if err := e.delete(ctx, bucket{bucketRequest: request, id: id}); err != nil {
		return err
	}
	return found
}
