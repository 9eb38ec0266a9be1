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
	api.ContractOwnedByOther: fault.Conflict,
	api.ImmutableField:       fault.FailedPrecondition,
	api.KeySpecDiffers:       fault.Mismatch,
	api.ContractNotEmpty:     fault.FailedPrecondition,
	api.ContractNotActive:    fault.FailedPrecondition,
	api.LimitExceeded:        fault.LimitExceeded,
	api.SecretDelivered:      fault.Mismatch,
	api.PreconditionFailed:   fault.Unavailable, // somebody else was faster: read again
	api.Unsupported:          fault.Unsupported,
	api.RateLimited:          fault.RateLimited,
	api.Unavailable:          fault.Unavailable,
	api.Internal:             fault.Unavailable, // the service's defect, not the driver's; it may pass
}

// problemOf turns an answer that is no success into a fault. Whatever stands
// between driver and service may answer too, with a page that is no problem
// document: then the status decides.
func problemOf(answer *http.Response, text []byte) error {
	var p Problem
	kind, known := fault.Kind(""), false
	if err := json.Unmarshal(text, &p.Problem); err == nil {
		kind, known = kinds[p.Code]
	}
	var f *fault.Error
	switch {
	case known:
		f = fault.Wrap(kind, &p, "%s", p.sentence())
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

// sentence is the problem in words, with the cure where the driver knows one.
func (p *Problem) sentence() string {
	said := p.Title
	if p.Detail != nil && *p.Detail != "" {
		said = *p.Detail
	}
	if p.Errors != nil {
		for _, e := range *p.Errors {
			if !strings.Contains(said, e.Detail) {
				said += fmt.Sprintf("; %s: %s", e.Pointer, e.Detail)
			}
		}
	}
	if p.Limit != nil {
		said += fmt.Sprintf(" (%s is %d, in use %d)", p.Limit.Name, p.Limit.Max, p.Limit.Current)
	}
	switch p.Code {
	case api.Unauthenticated, api.PermissionDenied:
		return fmt.Sprintf("the contract service refused the driver's token (%s); check the backend's tokenFile", said)
	case api.ContractOwnedByOther:
		return contract.OtherOwner().Error()
	}
	return said
}
