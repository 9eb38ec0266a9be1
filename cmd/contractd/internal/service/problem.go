package service

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/api"
	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

// problem is an error as the caller sees it (RFC 9457).
type problem struct {
	body       api.Problem
	retryAfter int // seconds; 0: no such header
}

// Error returns the text of the problem.
func (p *problem) Error() string { return string(p.body.Code) + ": " + *p.body.Detail }

func newProblem(status int, code api.ProblemCode, format string, args ...any) *problem {
	detail := fmt.Sprintf(format, args...)
	return &problem{body: api.Problem{
		Type:   "about:blank",
		Title:  http.StatusText(status),
		Status: status,
		Code:   code,
		Detail: &detail,
	}}
}

func (p *problem) limit(name string, maximum, current int64) *problem {
	p.body.Limit = &struct {
		Current int64  `json:"current"`
		Max     int64  `json:"max"`
		Name    string `json:"name"`
	}{Current: current, Max: maximum, Name: name}
	return p
}

func unavailable(detail string) *problem {
	p := newProblem(http.StatusServiceUnavailable, api.Unavailable, "%s", detail)
	p.retryAfter = 1
	return p
}

// faults collects everything that is wrong with a request, so that the caller
// can mend it in one go.
type faults []struct {
	Detail  string `json:"detail"`
	Pointer string `json:"pointer"`
}

// add notes one fault. The pointer is a JSON pointer into the body, or names a
// parameter, like "path.keyName".
func (f *faults) add(pointer, format string, args ...any) { //nolint:goprintffuncname // every line of a check calls it
	*f = append(*f, struct {
		Detail  string `json:"detail"`
		Pointer string `json:"pointer"`
	}{fmt.Sprintf(format, args...), pointer})
}

// problem returns nil when there are no faults.
func (f faults) problem(status int, code api.ProblemCode) error {
	if len(f) == 0 {
		return nil
	}
	texts := make([]string, len(f))
	for i, fault := range f {
		texts[i] = fault.Pointer + " " + fault.Detail
	}
	p := newProblem(status, code, "%s", strings.Join(texts, "; "))
	list := []struct {
		Detail  string `json:"detail"`
		Pointer string `json:"pointer"`
	}(f)
	p.body.Errors = &list
	return p
}

func (f faults) invalid() error {
	return f.problem(http.StatusUnprocessableEntity, api.InvalidArgument)
}

// writeError answers with a problem. An error that is not one is this service's
// fault: the caller learns only an id, by which the log has the cause.
func writeError(w http.ResponseWriter, r *http.Request, err error) {
	requestID := rand.Text()
	var p *problem
	switch {
	case errors.As(err, &p):
	case errors.Is(err, store.ErrClosed):
		p = unavailable("The service is shutting down. Retry in a moment.")
	default:
		klog.FromContext(r.Context()).Error(err, "Request failed", "method", r.Method, "path", r.URL.Path, "requestId", requestID)
		p = newProblem(http.StatusInternalServerError, api.Internal,
			"The service failed on this request. Repeat it; if that does not help, ask the operator about the requestId.")
	}
	body := p.body
	body.RequestId = &requestID
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	w.WriteHeader(body.Status)
	_ = json.NewEncoder(w).Encode(body) // the caller has gone: no one is left to tell
}
