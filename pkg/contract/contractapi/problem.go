package contractapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contractapi/internal/api"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/retry"
)

// Problem is what the service said was wrong (RFC 9457), as the cause of a fault.
type Problem struct{ api.Problem }

// Error returns the service's own code.
func (p *Problem) Error() string { return string(p.Code) }

// kinds classifies the service's codes.
var kinds = map[api.ProblemCode]fault.Kind{
	api.InvalidArgument:      fault.InvalidArgument,
	api.Unauthenticated:      fault.PermissionDenied,
	api.PermissionDenied:     fault.PermissionDenied,
	api.ContractNotFound:     fault.NotFound,
	api.KeyNotFound:          fault.NotFound,
	api.BucketNotFound:       fault.NotFound,
	api.ContractOwnedByOther: fault.Conflict,
	api.ImmutableField:       fault.FailedPrecondition,
	api.KeySpecDiffers:       fault.Mismatch,
	api.ContractNotEmpty:     fault.FailedPrecondition,
	api.ContractNotActive:    fault.FailedPrecondition,
	api.LimitExceeded:        fault.LimitExceeded,
	api.SecretDelivered:      fault.Mismatch,
	api.PreconditionFailed:   fault.Unavailable, // another process was faster: read again
	api.Unsupported:          fault.Unsupported,
	api.RateLimited:          fault.RateLimited,
	api.Unavailable:          fault.Unavailable,
	api.Internal:             fault.Unavailable, // the service's defect, not the driver's; it may pass
}

// problemOf turns an answer that is no success into a fault. Whatever stands
// between driver and service may answer too, with a page that is no problem
// document: then the status decides.
func (p *Provider) problemOf(answer *http.Response, text []byte) error {
	var problem Problem
	kind, known := fault.Kind(""), false
	if err := json.Unmarshal(text, &problem.Problem); err == nil {
		kind, known = kinds[problem.Code]
	}
	var f *fault.Error
	switch {
	case known:
		f = fault.Wrap(kind, &problem, "%s", problem.sentence(p.said))
		f.Final = problem.Code == api.PreconditionFailed
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		f = fault.New(fault.PermissionDenied, "the contract service refused the driver's token (HTTP %d); check the backend's tokenFile", answer.StatusCode)
	case answer.StatusCode == http.StatusTooManyRequests:
		f = fault.New(fault.RateLimited, "the contract service asks for fewer calls (HTTP 429)")
	case answer.StatusCode >= 500:
		f = fault.New(fault.Unavailable, "the contract service is in trouble (HTTP %d)", answer.StatusCode)
	default:
		f = fault.New(fault.Internal, "the contract service answered HTTP %d without a problem this driver knows; check that the backend's url is a contract service", answer.StatusCode)
	}
	f.RetryAfter = retry.After(answer.Header)
	return f
}

// maxErrors is how many of a problem's errors are told.
const maxErrors = 5

// sentence is the problem in words, each of them fit for a message, with the
// cure where the driver knows one.
func (p *Problem) sentence(fit func(string) string) string {
	said := fit(p.Title)
	if p.Detail != nil && *p.Detail != "" {
		said = fit(*p.Detail)
	}
	errors := value(p.Errors)
	for _, e := range errors[:min(len(errors), maxErrors)] {
		if detail := fit(e.Detail); !strings.Contains(said, detail) {
			said += fmt.Sprintf("; %s: %s", fit(e.Pointer), detail)
		}
	}
	if p.Limit != nil {
		said += fmt.Sprintf(" (%s is %d, in use %d)", fit(p.Limit.Name), p.Limit.Max, p.Limit.Current)
	}
	switch p.Code {
	case api.Unauthenticated, api.PermissionDenied:
		return fmt.Sprintf("the contract service refused the driver's token (%s); check the backend's tokenFile", said)
	case api.ContractOwnedByOther:
		return contract.OtherOwner().Error()
	}
	return said
}
