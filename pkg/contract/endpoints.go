package contract

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// Reach reports which of a service's S3 addresses does not answer, for
// [Provider] Check: any answer will do, as S3 redirects requests without a
// signature.
func Reach(ctx context.Context, client *http.Client, endpoints []cosi.Endpoint) error {
	for _, e := range endpoints {
		request, err := http.NewRequestWithContext(ctx, http.MethodHead, e.URL, nil)
		if err != nil {
			return fault.Wrap(fault.Internal, err, "the S3 address of region %s is none", e.Region)
		}
		request.Close = true // radosgw sends the end of a body after all
		answer, err := client.Do(request)
		if err == nil {
			err = answer.Body.Close()
		}
		if err != nil && !errors.Is(err, transport.ErrRedirect) {
			return fault.NoAnswer(err, "", "the storage of region "+e.Region+" at "+e.URL)
		}
	}
	return nil
}

// From returns endpoints with that of a region first.
func From(region string, endpoints []cosi.Endpoint) []cosi.Endpoint {
	first := func(e cosi.Endpoint) bool { return e.Region == region }
	var out []cosi.Endpoint
	if i := slices.IndexFunc(endpoints, first); i >= 0 {
		out = append(out, endpoints[i])
	}
	return append(out, slices.DeleteFunc(slices.Clone(endpoints), first)...)
}
