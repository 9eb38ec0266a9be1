package sanity

import (
	"context"

	"google.golang.org/grpc/codes"

	pb "github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/internal/wire/v1alpha2"
)

// Generation is a form that upstream's v1alpha2 has had before its release.
type Generation string

// The generations, the oldest first.
const (
	A  Generation = "A"  // the first published: DriverGetExistingBucket, one access mode
	B1 Generation = "B1" // DriverGetBucket in its place
	B2 Generation = "B2" // an access mode in each of three categories
	C1 Generation = "C1" // DriverGenerateBucketId before DriverCreateBucket
	C2 Generation = "C2" // DriverGenerateBucketAccessId before DriverGrantBucketAccess
)

// Generations are all generations, the oldest first.
func Generations() []Generation { return []Generation{A, B1, B2, C1, C2} }

// The letters and digits are in the order of the generations.
func (g Generation) since(first Generation) bool { return g >= first }

func (g Generation) getMethod() string {
	if g == A {
		return "DriverGetExistingBucket"
	}
	return "DriverGetBucket"
}

// wireMode is the number of a mode. [B2] put ANY before the others.
func (g Generation) wireMode(m mode) int32 {
	if m != anyMode && m < unknownValue && !g.since(B2) {
		return int32(m) - 1
	}
	return int32(m)
}

// generationsOf are the generations that a driver shows by the methods it has:
// the oldest, if it has the method that only the oldest has, and the newest.
// B1 and B2 have the same methods.
func generationsOf(has func(method string) bool) []Generation {
	var out []Generation
	if has("DriverGetExistingBucket") {
		out = append(out, A)
	}
	switch {
	case has("DriverGenerateBucketAccessId"):
		return append(out, C2)
	case has("DriverGenerateBucketId"):
		return append(out, C1)
	case has("DriverGetBucket"):
		return append(out, B2)
	case len(out) == 0: // it has no method that tells
		return []Generation{A}
	}
	return out
}

// methods are those of a driver, found by requests in which everything is
// missing: none of them makes anything.
func (c *v1alpha2Client) methods(ctx context.Context) func(method string) bool {
	return func(method string) bool {
		_, err := c.ask(ctx, method, &pb.DriverGetBucketRequest{})
		return codeOf(err) != codes.Unimplemented
	}
}
