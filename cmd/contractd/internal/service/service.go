// Package service answers the contract API over the contract store and the
// gateway's index of buckets.
//
// Every decision that a concurrent caller could upset is taken inside the
// store's writer, where nothing else runs. What the types of the API cannot
// say, the bounds of openapi.yaml, is checked before.
package service

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/api"
	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

// Buckets is what the service needs to know about the storage's buckets.
type Buckets interface {
	// Owner returns the code of the contract that owns a bucket, or "".
	Owner(bucket string) string
	// Count returns how many buckets a contract has.
	Count(code string) int
	// Close keeps a contract without buckets from making any, until Reopen.
	Close(code string) (count int, closed bool)
	Reopen(code string)
	// Names returns up to limit names of a contract's buckets, in order, behind the
	// one given, and whether there are more.
	Names(code, after string, limit int) (page []string, more bool)
	// Bucket counts a bucket of a contract, and Bound gives it a quota; false if the
	// contract has none of the name.
	Bucket(code, name string) (store.Bucket, bool, error)
	Bound(code, name string, to store.Quota) (store.Bucket, bool, error)
}

// Config is what a [Service] works with.
type Config struct {
	Store      *store.Store
	Buckets    Buckets
	Region     string
	S3URL      string
	Tokens     []string      // bearer tokens that may call
	PendingFor time.Duration // how long a new contract stays pending
	Now        func() time.Time
	Healthy    func() bool // whether the S3 side serves too
}

// Service implements the contract API.
type Service struct {
	store      *store.Store
	buckets    Buckets
	endpoint   api.Endpoint
	tokens     [][sha256.Size]byte
	pendingFor time.Duration
	now        func() time.Time
	healthy    func() bool
}

var _ api.StrictServerInterface = (*Service)(nil)

// New returns a service.
func New(cfg Config) *Service {
	s := &Service{
		store:      cfg.Store,
		buckets:    cfg.Buckets,
		endpoint:   api.Endpoint{Url: cfg.S3URL, Region: cfg.Region, PathStyle: true},
		pendingFor: cfg.PendingFor,
		now:        cfg.Now,
		healthy:    cfg.Healthy,
	}
	for _, token := range cfg.Tokens {
		s.tokens = append(s.tokens, sha256.Sum256([]byte(token)))
	}
	return s
}

// Handler returns the API with its authentication, and GET /healthz without.
func (s *Service) Handler() http.Handler {
	badRequest := func(w http.ResponseWriter, r *http.Request, err error) {
		writeError(w, r, newProblem(http.StatusBadRequest, api.InvalidArgument, "%v.", err))
	}
	mux := http.NewServeMux()
	api.HandlerWithOptions(
		api.NewStrictHandlerWithOptions(s, nil, api.StrictHTTPServerOptions{
			RequestErrorHandlerFunc:  badRequest,
			ResponseErrorHandlerFunc: writeError,
		}),
		api.StdHTTPServerOptions{
			BaseRouter:       mux,
			Middlewares:      []api.MiddlewareFunc{checkBody},
			ErrorHandlerFunc: badRequest,
		})
	root := http.NewServeMux()
	root.HandleFunc("GET /healthz", s.health)
	root.Handle("/", s.authenticate(problemsOnly(mux)))
	return recovered(root)
}

func (s *Service) health(w http.ResponseWriter, r *http.Request) {
	if !s.healthy() {
		writeError(w, r, unavailable("The S3 server does not run."))
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// authenticate compares with every token, each in constant time.
func (s *Service) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		given := sha256.Sum256([]byte(token))
		known := 0
		for _, t := range s.tokens {
			known |= subtle.ConstantTimeCompare(given[:], t[:])
		}
		if !strings.EqualFold(scheme, "Bearer") || known == 0 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, r, newProblem(http.StatusUnauthorized, api.Unauthenticated,
				"The request needs the header Authorization: Bearer, with a token of this service."))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// problemsOnly answers for the router where it would answer in plain text. No
// code of the API means "no such path": contract-not-found would tell a caller
// with a wrong base URL that its contract is gone.
func problemsOnly(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fallback, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		verdict := statusWriter{ResponseWriter: w}
		fallback.ServeHTTP(&verdict, r)
		w.Header().Del("X-Content-Type-Options")
		if verdict.status == http.StatusMethodNotAllowed {
			writeError(w, r, newProblem(verdict.status, api.InvalidArgument, "This path cannot be called with %s.", r.Method))
			return
		}
		writeError(w, r, newProblem(http.StatusNotFound, api.InvalidArgument, "The contract API has no such path; check the base URL."))
	})
}

// statusWriter lets an answer set headers, and keeps its status and text back.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader notes the status.
func (w *statusWriter) WriteHeader(status int) { w.status = status }

// Write drops the text.
func (w *statusWriter) Write(b []byte) (int, error) { return len(b), nil }

func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if cause := recover(); cause != nil {
				klog.FromContext(r.Context()).Info("Panic in a request", "stack", string(debug.Stack()))
				writeError(w, r, fmt.Errorf("panic: %v", cause))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// page reads the paging parameters.
func (f *faults) page(size *int, token *string) (limit int, after string) {
	limit = 100
	if size != nil {
		limit = *size
	}
	if limit < 1 || limit > maxPage {
		f.add("query.pageSize", "must be 1 to %d", maxPage)
	}
	if token != nil {
		name, err := base64.RawURLEncoding.DecodeString(*token)
		if err != nil || len(*token) > maxToken || !tokenSyntax.Match(name) {
			f.add("query.pageToken", "must be the nextPageToken of an earlier page")
		}
		after = string(name)
	}
	return limit, after
}

// nextToken is opaque to callers: the name that the next page starts behind.
func nextToken(more bool, last string) *string {
	if !more {
		return nil
	}
	token := base64.RawURLEncoding.EncodeToString([]byte(last))
	return &token
}
