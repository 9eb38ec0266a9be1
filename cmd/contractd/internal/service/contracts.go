package service

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/api"
	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

// errUnchanged ends an operation that found nothing to write.
var errUnchanged = errors.New("unchanged")

// ListRegions implements GET /v1/regions.
func (s *Service) ListRegions(context.Context, api.ListRegionsRequestObject) (api.ListRegionsResponseObject, error) {
	return api.ListRegions200JSONResponse{Items: []api.Endpoint{s.endpoint}}, nil
}

// ListContracts implements GET /v1/contracts.
func (s *Service) ListContracts(_ context.Context, r api.ListContractsRequestObject) (api.ListContractsResponseObject, error) {
	var found faults
	limit, after := found.page(r.Params.PageSize, r.Params.PageToken)
	found.length("query.owner", r.Params.Owner, maxOwner)
	if err := found.invalid(); err != nil {
		return nil, err
	}
	page, more, err := s.store.Contracts(after, limit, func(c store.Contract) bool {
		return r.Params.Owner == nil || c.Owner == *r.Params.Owner
	})
	if err != nil {
		return nil, err
	}
	list := api.ListContracts200JSONResponse{Items: make([]api.Contract, len(page))}
	for i, c := range page {
		list.Items[i] = s.contract(c)
		list.NextPageToken = nextToken(more, c.Name)
	}
	return list, nil
}

// GetContract implements GET /v1/contracts/{contractName}.
func (s *Service) GetContract(_ context.Context, r api.GetContractRequestObject) (api.GetContractResponseObject, error) {
	c, err := s.find(r.ContractName)
	if err != nil {
		return nil, err
	}
	return api.GetContract200JSONResponse{ContractJSONResponse: s.answer(c)}, nil
}

// GetUsage implements GET /v1/contracts/{contractName}/usage.
func (s *Service) GetUsage(_ context.Context, r api.GetUsageRequestObject) (api.GetUsageResponseObject, error) {
	c, err := s.find(r.ContractName)
	if err != nil {
		return nil, err
	}
	return api.GetUsage200JSONResponse{
		Buckets:    int64(s.buckets.Count(c.Code)),
		Keys:       int64(s.store.KeyCount(c.Name)),
		MeasuredAt: s.now().UTC(),
	}, nil
}

// PutContract implements PUT /v1/contracts/{contractName}.
func (s *Service) PutContract(_ context.Context, r api.PutContractRequestObject) (api.PutContractResponseObject, error) {
	var found faults
	found.name("path.contractName", r.ContractName)
	found.length("header.If-Match", r.Params.IfMatch, maxETag)
	if match := r.Params.IfNoneMatch; match != nil && *match != "*" {
		found.add("header.If-None-Match", "can only be *")
	}
	found.contractSpec(*r.Body)
	if err := found.invalid(); err != nil {
		return nil, err
	}
	found.unsupported(r.Body.Quota)
	if err := found.problem(http.StatusUnprocessableEntity, api.Unsupported); err != nil {
		return nil, err
	}

	var result store.Contract
	var existed bool
	err := s.store.Update(func(tx *store.Tx) error {
		var current store.Contract
		current, existed = tx.Contract(r.ContractName)
		wanted, err := s.terms(current, existed, r.ContractName, *r.Body)
		if err != nil {
			return err
		}
		// Preconditions come after what would be refused without them (RFC 9110, 13.2.1).
		if err := s.precondition(current, existed, r.Params.IfMatch, r.Params.IfNoneMatch); err != nil {
			return err
		}
		if existed && sameTerms(current, wanted) {
			result = current
			return errUnchanged
		}
		result = tx.PutContract(wanted)
		return nil
	})
	if err != nil && !errors.Is(err, errUnchanged) {
		return nil, err
	}

	answer := s.answer(result)
	switch {
	case answer.Body.State == api.ContractStatePending:
		wait := max(1, int(math.Ceil(result.ActiveFrom.Sub(s.now()).Seconds())))
		return api.PutContract202JSONResponse{ContractAcceptedJSONResponse: api.ContractAcceptedJSONResponse{
			Body:    answer.Body,
			Headers: api.ContractAcceptedResponseHeaders{ETag: answer.Headers.ETag, RetryAfter: &wait},
		}}, nil
	case existed:
		return api.PutContract200JSONResponse{ContractJSONResponse: answer}, nil
	default:
		return api.PutContract201JSONResponse{Body: answer.Body, Headers: api.PutContract201ResponseHeaders(answer.Headers)}, nil
	}
}

// terms is the contract that the spec asks for, or why it cannot be had.
func (s *Service) terms(current store.Contract, exists bool, name string, spec api.ContractSpec) (store.Contract, error) {
	now := s.now().UTC()
	wanted := current
	region := value(spec.Region)
	switch {
	case !exists && region != "" && region != s.endpoint.Region:
		var found faults
		found.add("/region", "is not a region of this service, which has %s", s.endpoint.Region)
		return wanted, found.invalid()
	case !exists:
		wanted = store.Contract{
			Name:       name,
			Code:       newCode(),
			Owner:      spec.Owner,
			Region:     s.endpoint.Region,
			SignedAt:   now,
			ActiveFrom: now.Add(s.pendingFor),
		}
	case spec.Owner != current.Owner:
		return wanted, newProblem(http.StatusConflict, api.ContractOwnedByOther,
			"The contract %s belongs to another owner. Choose another name.", name)
	case region != "" && region != current.Region:
		return wanted, newProblem(http.StatusConflict, api.ImmutableField,
			"The contract %s is in the region %s, which cannot be changed to %s. Sign another contract there.", name, current.Region, region)
	}
	wanted.UpdatedAt = now
	wanted.DisplayName = value(spec.DisplayName)
	wanted.Plan = value(spec.Plan)
	wanted.Suspended = value(spec.DesiredState) == api.ContractSpecDesiredStateSuspended
	wanted.Labels = value(spec.Labels)
	quota := value(spec.Quota)
	wanted.MaxBuckets, wanted.MaxKeys = quota.MaxBuckets, quota.MaxKeys
	return wanted, nil
}

// sameTerms reports whether two states of a contract differ in nothing that
// its signatory can say.
func sameTerms(a, b store.Contract) bool {
	return a.DisplayName == b.DisplayName && a.Plan == b.Plan && a.Suspended == b.Suspended &&
		maps.Equal(a.Labels, b.Labels) && equal(a.MaxBuckets, b.MaxBuckets) && equal(a.MaxKeys, b.MaxKeys)
}

// precondition checks If-Match and If-None-Match: *.
func (s *Service) precondition(current store.Contract, exists bool, ifMatch, ifNoneMatch *string) error {
	if ifNoneMatch != nil && exists {
		return newProblem(http.StatusPreconditionFailed, api.PreconditionFailed,
			"The contract %s exists already, and If-None-Match: * asks for a new one.", current.Name)
	}
	if ifMatch == nil || exists && matches(*ifMatch, s.etag(current)) {
		return nil
	}
	return newProblem(http.StatusPreconditionFailed, api.PreconditionFailed,
		"The contract is not the one that If-Match names. Read it again, and decide by what it says now.")
}

func matches(header, etag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		if candidate = strings.TrimSpace(candidate); candidate == "*" || candidate == etag {
			return true
		}
	}
	return false
}

// errResigned tells that a contract was cancelled and signed again between two
// looks at it.
var errResigned = errors.New("signed again")

// DeleteContract implements DELETE /v1/contracts/{contractName}.
func (s *Service) DeleteContract(_ context.Context, r api.DeleteContractRequestObject) (api.DeleteContractResponseObject, error) {
	var found faults
	found.name("path.contractName", r.ContractName)
	found.length("header.If-Match", r.Params.IfMatch, maxETag)
	if err := found.invalid(); err != nil {
		return nil, err
	}
	for {
		c, ok := s.store.Contract(r.ContractName)
		if !ok {
			return api.DeleteContract204Response{}, nil
		}
		if err := s.cancel(c, r.Params.IfMatch); err == nil {
			return api.DeleteContract204Response{}, nil
		} else if !errors.Is(err, errResigned) {
			return nil, err
		}
	}
}

// cancel removes a contract. First the index of buckets refuses the contract new
// ones, so that none can appear between the look and the removal.
func (s *Service) cancel(c store.Contract, ifMatch *string) error {
	count, closed := s.buckets.Close(c.Code)
	if !closed {
		return newProblem(http.StatusConflict, api.ContractNotEmpty,
			"The contract %s still has buckets. Delete them first.", c.Name).limit("buckets", 0, int64(count))
	}
	defer s.buckets.Reopen(c.Code)
	return s.store.Update(func(tx *store.Tx) error {
		current, ok := tx.Contract(c.Name)
		if !ok {
			return nil
		}
		if current.Code != c.Code {
			return errResigned
		}
		if err := s.precondition(current, true, ifMatch, nil); err != nil {
			return err
		}
		tx.DeleteContract(c.Name)
		return nil
	})
}

// find returns a contract by a name from the path.
func (s *Service) find(name string) (store.Contract, error) {
	var found faults
	found.name("path.contractName", name)
	if err := found.invalid(); err != nil {
		return store.Contract{}, err
	}
	c, ok := s.store.Contract(name)
	if !ok {
		return store.Contract{}, noContract(name)
	}
	return c, nil
}

func noContract(name string) error {
	return newProblem(http.StatusNotFound, api.ContractNotFound, "There is no contract %s.", name)
}

func (s *Service) answer(c store.Contract) api.ContractJSONResponse {
	etag := s.etag(c)
	return api.ContractJSONResponse{Body: s.contract(c), Headers: api.ContractResponseHeaders{ETag: &etag}}
}

// etag changes with what a caller sees, so also when time alone makes a pending
// contract active.
func (s *Service) etag(c store.Contract) string {
	if c.State(s.now()) == store.Pending {
		return fmt.Sprintf(`"%d-pending"`, c.Revision)
	}
	return fmt.Sprintf(`"%d"`, c.Revision)
}

// contract is how callers see a contract.
func (s *Service) contract(c store.Contract) api.Contract {
	desired := api.ContractSpecDesiredStateActive
	if c.Suspended {
		desired = api.ContractSpecDesiredStateSuspended
	}
	var quota *api.Quota
	if c.MaxBuckets != nil || c.MaxKeys != nil {
		quota = &api.Quota{MaxBuckets: c.MaxBuckets, MaxKeys: c.MaxKeys}
	}
	seen := api.Contract{
		Name:           c.Name,
		Endpoints:      []api.Endpoint{{Url: s.endpoint.Url, Region: c.Region, PathStyle: s.endpoint.PathStyle}},
		EffectiveQuota: quota,
		CreatedAt:      c.SignedAt,
		UpdatedAt:      &c.UpdatedAt,
		Spec: api.ContractSpec{
			Owner:        c.Owner,
			DisplayName:  optional(c.DisplayName),
			Region:       &c.Region,
			Plan:         optional(c.Plan),
			DesiredState: &desired,
			Quota:        quota,
		},
	}
	if len(c.Labels) > 0 {
		seen.Spec.Labels = &c.Labels
	}
	var reason, message string
	switch c.State(s.now()) {
	case store.Pending:
		seen.State, reason, message = api.ContractStatePending, "AwaitingSignature", "The contract is being signed; ask for it again."
	case store.Suspended:
		seen.State, reason, message = api.ContractStateSuspended, "SuspendedByOwner",
			"The storage refuses the contract's keys until the contract is resumed."
	case store.Active:
		seen.State, reason, message = api.ContractStateActive, "Signed", "The contract can be used."
	}
	seen.Reason, seen.Message = &reason, &message
	if seen.State != api.ContractStatePending {
		seen.Code = c.Code
		seen.Principal = &c.Code
	}
	return seen
}

// newCode is plain enough for a bucket policy's principal and an ACL's grantee.
func newCode() string { return "C" + rand.Text()[:12] }

// value returns what an optional field holds, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func optional[S ~string](text S) *S {
	if text == "" {
		return nil
	}
	return &text
}

func equal(a, b *int64) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// utc makes times of the same instant equal, also as text.
func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
