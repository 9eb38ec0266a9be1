package contractapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contractapi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
	"github.com/contract-cosi/contract-cosi-driver/test/poll"
)

const (
	token = "planted-bearer-token"
	// tries is how often a call is made that may succeed later.
	tries = 3
)

// request is what the service was asked.
type request struct{ method, target, authorization, body string }

// service plays the contract service: it writes down each request and answers
// as the test says, given how many requests came before.
type service struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	requests []request
	observed []string
}

type answer func(w http.ResponseWriter, r *http.Request, before int)

// noServer is where no server of a test can be: a port that was one's a moment
// ago may be another's now.
const noServer = "http://127.0.0.1:1"

func play(t *testing.T, a answer) (*service, *contractapi.Provider) {
	t.Helper()
	s := &service{t: t}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("request body: %v", err)
		}
		s.mu.Lock()
		before := len(s.requests)
		s.requests = append(s.requests, request{r.Method, r.URL.RequestURI(), r.Header.Get("Authorization"), string(body)})
		s.mu.Unlock()
		a(w, r, before)
	}))
	t.Cleanup(s.Close)
	return s, s.provider(s.URL)
}

func (s *service) provider(url string) *contractapi.Provider {
	s.t.Helper()
	return s.allowed(url, transport.Allowed{})
}

func (s *service) allowed(url string, allowed transport.Allowed) *contractapi.Provider {
	s.t.Helper()
	// Each test's connections are its own, so that one's lost answers are not another's.
	carrier := &http.Transport{}
	s.t.Cleanup(carrier.CloseIdleConnections)
	p, err := contractapi.New(contractapi.Config{URL: url, Allowed: allowed, Token: func() secret.String { return secret.New(token) }, HTTP: transport.Bounded(carrier), Observe: func(operation string, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.observed = append(s.observed, operation+" "+string(fault.KindOf(err)))
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *service) seen() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// lines are the requests without their bodies.
func (s *service) lines() []string {
	out := []string{}
	for _, r := range s.seen() {
		out = append(out, r.method+" "+r.target)
	}
	return out
}

// asked checks what the service was asked, in order.
func (s *service) asked(want ...string) {
	s.t.Helper()
	if got := s.lines(); !slices.Equal(got, want) {
		s.t.Errorf("the service was asked\n%q, want\n%q", got, want)
	}
}

// bounded is a context that fails a test instead of hanging it.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// kind checks the kind of an error and, as every test's errors come by here,
// that none of them has the token in it.
func kind(t *testing.T, err error, want fault.Kind) {
	t.Helper()
	if got := fault.KindOf(err); got != want {
		t.Errorf("error %v is of kind %q, want %q", err, got, want)
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if text := fmt.Sprintf("%v %+v %#v", e, e, e); strings.Contains(text, token) {
			t.Errorf("the token is in the error %s", text)
		}
	}
}

func write(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// problem answers an RFC 9457 problem. Each has another request id, as those of
// real services have.
func problem(w http.ResponseWriter, status int, code string, before int) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("X-Request-ID", fmt.Sprintf("req-%d", before))
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"type":"about:blank","title":"Title of %s","status":%d,"code":%q,"detail":"detail of %s","requestId":"req-%d","instance":"/problems/req-%d"}`,
		code, status, code, code, before, before)
}

const region = `{"url":"https://s3.example","region":"north","pathStyle":true}`

func contractJSON(state string) string {
	return `{"name":"team-a","code":"c-1","state":"` + state + `","message":"said of ` + state + `","endpoints":[` + region +
		`],"spec":{"owner":"cluster-1"},"createdAt":"2024-05-06T07:08:09Z"}`
}

func keyJSON(name, id, slot, state string) string {
	return fmt.Sprintf(`{"name":%q,"accessKeyId":%q,"state":%q,"acknowledged":true,"spec":{"slot":%q},"createdAt":"2024-05-06T07:08:09Z"}`, name, id, state, slot)
}

func issued(id, key string) string {
	return fmt.Sprintf(`{"key":%s,"secretAccessKey":%q}`, keyJSON("ck1", id, "ba-1", "active"), key)
}

// ---- What went wrong.

func TestProblemCodes(t *testing.T) {
	t.Parallel()
	type class struct {
		status int
		kind   fault.Kind
		tries  int
	}
	table := map[string]class{
		"invalid-argument":        {400, fault.InvalidArgument, 1},
		"unauthenticated":         {401, fault.PermissionDenied, 1},
		"permission-denied":       {403, fault.PermissionDenied, 1},
		"contract-not-found":      {404, fault.NotFound, 1},
		"key-not-found":           {404, fault.NotFound, 1},
		"bucket-not-found":        {404, fault.NotFound, 1},
		"contract-owned-by-other": {409, fault.Conflict, 1},
		"immutable-field":         {409, fault.FailedPrecondition, 1},
		"key-spec-differs":        {409, fault.Mismatch, 1},
		"contract-not-empty":      {409, fault.FailedPrecondition, 1},
		"contract-not-active":     {409, fault.FailedPrecondition, 1},
		"limit-exceeded":          {409, fault.LimitExceeded, 1},
		"secret-delivered":        {410, fault.Mismatch, 1},
		"precondition-failed":     {412, fault.Unavailable, 1}, // another was faster; the next call sees the new state
		"unsupported":             {422, fault.Unsupported, 1},
		"rate-limited":            {429, fault.RateLimited, tries},
		"unavailable":             {503, fault.Unavailable, tries},
		"internal":                {500, fault.Unavailable, tries},
	}
	var codes []string
	for code, want := range table {
		codes = append(codes, code)
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			s, p := play(t, func(w http.ResponseWriter, _ *http.Request, before int) { problem(w, want.status, code, before) })
			_, first := p.GetContract(bounded(t), "team-a")
			kind(t, first, want.kind)
			if got := len(s.seen()); got != want.tries {
				t.Errorf("%d tries, want %d", got, want.tries)
			}
			var cause *contractapi.Problem
			if !errors.As(first, &cause) || string(cause.Code) != code {
				t.Errorf("the error does not keep the service's code: %v", cause)
			}
			_, second := p.GetContract(bounded(t), "team-a")
			stable(t, first, second)
			if says := "detail of " + code; code != "contract-owned-by-other" && !strings.Contains(first.Error(), says) {
				t.Errorf("the text %q does not say %q", first, says)
			}
		})
	}

	// The table has to have what the API says, no more and no less.
	text, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Components struct {
			Schemas struct {
				ProblemCode struct {
					Enum []string `yaml:"enum"`
				} `yaml:"ProblemCode"`
			} `yaml:"schemas"`
		} `yaml:"components"`
	}
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	inAPI := document.Components.Schemas.ProblemCode.Enum
	slices.Sort(inAPI)
	slices.Sort(codes)
	if len(inAPI) == 0 || !slices.Equal(codes, inAPI) {
		t.Errorf("the table has %q, openapi.yaml has %q", codes, inAPI)
	}
}

var port = regexp.MustCompile(`:\d{2,5}\b`)

// stable checks that two like failures read the same: the sidecars turn each
// distinct text into an event.
func stable(t *testing.T, first, second error) {
	t.Helper()
	if first == nil || second == nil {
		t.Errorf("errors %v and %v, want two failures", first, second)
		return
	}
	if first.Error() != second.Error() {
		t.Errorf("two like failures read differently:\n%s\n%s", first, second)
	}
	if text := first.Error(); port.MatchString(text) || strings.Contains(text, "req-") {
		t.Errorf("the text %q has a port or a request id in it", text)
	}
}

func TestProblemSentence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		problem string
		want    string
	}{
		"title":           {`{"title":"Too long","code":"invalid-argument","requestId":"req-1"}`, "Too long"},
		"detail":          {`{"title":"Wrong","detail":"plan x is not sold","code":"invalid-argument"}`, "plan x is not sold"},
		"fields":          {`{"title":"Wrong","code":"invalid-argument","errors":[{"pointer":"/plan","detail":"is not sold"},{"pointer":"/quota","detail":"too much"}]}`, "Wrong; /plan: is not sold; /quota: too much"},
		"fields in words": {`{"title":"Wrong","detail":"plan is not sold","code":"invalid-argument","errors":[{"pointer":"/plan","detail":"is not sold"}]}`, "plan is not sold"},
		"limit":           {`{"title":"Full","code":"limit-exceeded","limit":{"name":"maxKeys","max":3,"current":3}}`, "Full (maxKeys is 3, in use 3)"},
		"token":           {`{"title":"Expired","code":"unauthenticated"}`, "the contract service refused the driver's token (Expired); check the backend's tokenFile"},
		"owner":           {`{"title":"Not yours","code":"contract-owned-by-other"}`, "it belongs to another owner; choose another contract name, or set driver.owner to the mark it was signed with"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { write(w, 409, c.problem) })
			_, err := p.GetContract(bounded(t), "team-a")
			if err == nil || err.Error() != c.want {
				t.Errorf("text %v, want %s", err, c.want)
			}
		})
	}
}

// A proxy or a wrong address answers with pages of its own.
func TestAnswersThatAreNoProblem(t *testing.T) {
	t.Parallel()
	const page = `<html><body><h1>planted page</h1>req-77</body></html>`
	for name, c := range map[string]struct {
		status int
		body   string
		kind   fault.Kind
		tries  int
		says   string
	}{
		"400":              {400, page, fault.Internal, 1, "HTTP 400"},
		"401":              {401, page, fault.PermissionDenied, 1, "tokenFile"},
		"403":              {403, page, fault.PermissionDenied, 1, "tokenFile"},
		"404":              {404, page, fault.Internal, 1, "check that the backend's url is a contract service"},
		"429":              {429, page, fault.RateLimited, tries, "HTTP 429"},
		"500":              {500, page, fault.Unavailable, tries, "HTTP 500"},
		"502":              {502, page, fault.Unavailable, tries, "HTTP 502"},
		"503":              {503, page, fault.Unavailable, tries, "HTTP 503"},
		"504 empty":        {504, "", fault.Unavailable, tries, "HTTP 504"},
		"404 empty":        {404, "", fault.Internal, 1, "HTTP 404"},
		"unknown code 4xx": {409, `{"title":"planted page","code":"from-the-future"}`, fault.Internal, 1, "HTTP 409"},
		"unknown code 5xx": {503, `{"title":"planted page","code":"from-the-future"}`, fault.Unavailable, tries, "HTTP 503"},
		"other JSON":       {404, `["planted page"]`, fault.Internal, 1, "HTTP 404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
				w.Header().Set("Content-Type", "text/html")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			_, first := p.GetContract(bounded(t), "team-a")
			kind(t, first, c.kind)
			if got := len(s.seen()); got != c.tries {
				t.Errorf("%d tries, want %d", got, c.tries)
			}
			_, second := p.GetContract(bounded(t), "team-a")
			stable(t, first, second)
			if !strings.Contains(first.Error(), c.says) || strings.Contains(first.Error(), "planted page") {
				t.Errorf("text %q, want one that says %q and nothing of the page", first, c.says)
			}
			// A page that happens to be 404 must not pass for a contract that is gone.
			if c.status == 404 {
				kind(t, p.DeleteContract(bounded(t), "team-a"), fault.Internal)
				kind(t, p.RevokeKey(bounded(t), contract.RevokeKeyRequest{Contract: "team-a", Slot: "ba-1", AccessKeyID: "AK1"}), fault.Internal)
				kind(t, p.RevokeKey(bounded(t), contract.RevokeKeyRequest{Contract: "team-a", Slot: "ba-1"}), fault.Internal)
			}
		})
	}
}

// cut promises more than it sends.
func cut(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)+100))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func TestAnswerCutShort(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 503} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			// What was cut happens to be whole JSON; it must not be believed.
			s, p := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { cut(w, status, contractJSON("active")) })
			_, first := p.GetContract(bounded(t), "team-a")
			kind(t, first, fault.Unavailable)
			if got := len(s.seen()); got != tries {
				t.Errorf("%d tries, want %d", got, tries)
			}
			_, second := p.GetContract(bounded(t), "team-a")
			stable(t, first, second)
		})
	}
	t.Run("then whole", func(t *testing.T) {
		t.Parallel()
		s, p := play(t, func(w http.ResponseWriter, _ *http.Request, before int) {
			if before == 0 {
				cut(w, 201, issued("AK1", "sk1")[:20])
				return
			}
			write(w, 200, issued("AK1", "sk1"))
		})
		got, err := p.IssueKey(bounded(t), contract.IssueKeyRequest{Contract: "team-a", Slot: "ba-1", Proposed: secret.KeyPair{AccessKeyID: "ck1"}})
		if err != nil || got.AccessKeyID != "AK1" || got.SecretAccessKey.Reveal() != "sk1" {
			t.Errorf("key %v, %v", got, err)
		}
		s.asked("PUT /v1/contracts/team-a/keys/ck1", "PUT /v1/contracts/team-a/keys/ck1")
	})
}

func TestAnswerThatIsNotJSON(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"page":       "<html>log in</html>",
		"cut JSON":   contractJSON("active")[:30],
		"other type": `"a text"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { write(w, 200, body) })
			_, err := p.GetContract(bounded(t), "team-a")
			kind(t, err, fault.Unavailable)
			s.asked("GET /v1/contracts/team-a") // it would not get better
		})
	}
}

func TestNoAnswer(t *testing.T) {
	t.Parallel()
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		s, _ := play(t, nil)
		p := s.provider(noServer)
		_, first := p.GetContract(bounded(t), "team-a")
		_, second := p.GetContract(bounded(t), "team-a")
		kind(t, first, fault.Unavailable)
		stable(t, first, second)
		if !strings.Contains(first.Error(), "connection refused") {
			t.Errorf("text %q does not say why", first)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if want := slices.Repeat([]string{"GetContract Unavailable"}, 2*tries); !slices.Equal(s.observed, want) {
			t.Errorf("observed %q, want %q", s.observed, want)
		}
	})
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		_, p := play(t, func(http.ResponseWriter, *http.Request, int) { panic(http.ErrAbortHandler) })
		_, first := p.GetContract(bounded(t), "team-a")
		_, second := p.GetContract(bounded(t), "team-a")
		kind(t, first, fault.Unavailable)
		stable(t, first, second)
	})
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		s, p := play(t, func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := p.GetContract(ctx, "team-a")
		kind(t, err, fault.Unavailable)
		if got := len(s.seen()); got > 1 {
			t.Errorf("%d tries, want no other after the deadline", got)
		}
	})
	t.Run("given up", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		s, p := play(t, func(_ http.ResponseWriter, r *http.Request, _ int) {
			cancel()
			<-r.Context().Done()
		})
		_, err := p.GetContract(ctx, "team-a")
		kind(t, err, fault.Canceled)
		s.asked("GET /v1/contracts/team-a")
	})
}

// ---- Trying again.

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 503} {
		for _, seconds := range []int{0, 1} {
			for _, page := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d after %ds page=%t", status, seconds, page), func(t *testing.T) {
					t.Parallel()
					s, p := play(t, func(w http.ResponseWriter, _ *http.Request, before int) {
						switch {
						case before > 0:
							write(w, 200, contractJSON("active"))
						case page:
							w.Header().Set("Retry-After", strconv.Itoa(seconds))
							w.WriteHeader(status)
						default:
							w.Header().Set("Retry-After", strconv.Itoa(seconds))
							problem(w, status, map[int]string{429: "rate-limited", 503: "unavailable"}[status], before)
						}
					})
					start := time.Now()
					if _, err := p.GetContract(bounded(t), "team-a"); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(start); took < time.Duration(seconds)*time.Second {
						t.Errorf("the second try came after %s, the service asked for %ds", took, seconds)
					}
					s.asked("GET /v1/contracts/team-a", "GET /v1/contracts/team-a")
				})
			}
		}
	}
}

func TestThirdTryCounts(t *testing.T) {
	t.Parallel()
	s, p := play(t, func(w http.ResponseWriter, _ *http.Request, before int) {
		if before < tries-1 {
			problem(w, 503, "unavailable", before)
			return
		}
		write(w, 200, contractJSON("active"))
	})
	if _, err := p.GetContract(bounded(t), "team-a"); err != nil {
		t.Errorf("the last try's answer is lost: %v", err)
	}
	if got := len(s.seen()); got != tries {
		t.Errorf("%d tries, want %d", got, tries)
	}
}

// A body has to be whole at each try.
func TestRetrySendsTheBodyAgain(t *testing.T) {
	t.Parallel()
	s, p := play(t, func(w http.ResponseWriter, _ *http.Request, before int) {
		if before == 0 {
			problem(w, 503, "unavailable", before)
			return
		}
		write(w, 200, contractJSON("active"))
	})
	if _, err := p.EnsureContract(bounded(t), contract.Spec{Name: "team-a", Owner: "cluster-1"}); err != nil {
		t.Fatal(err)
	}
	got := s.seen()
	if len(got) != 2 || got[0] != got[1] || got[0].body == "" {
		t.Errorf("requests %q, want the same one twice", got)
	}
}

func TestNoWaitBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	const asked = 3600
	s, p := play(t, func(w http.ResponseWriter, _ *http.Request, before int) {
		w.Header().Set("Retry-After", strconv.Itoa(asked))
		problem(w, 503, "unavailable", before)
	})
	ctx := bounded(t)
	_, err := p.GetContract(ctx, "team-a")
	if ctx.Err() != nil {
		t.Error("the call waited for the deadline, although the next try was to be later")
	}
	kind(t, err, fault.Unavailable)
	s.asked("GET /v1/contracts/team-a")
	var f *fault.Error
	if !errors.As(err, &f) || f.RetryAfter < time.Minute || f.RetryAfter >= asked*time.Second {
		t.Errorf("the caller is not told to come back later: %#v", f)
	}
}

func TestWaitEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s, p := play(t, func(w http.ResponseWriter, _ *http.Request, before int) {
		w.Header().Set("Retry-After", "3600")
		problem(w, 503, "unavailable", before)
	})
	ended := make(chan error, 1)
	go func() {
		_, err := p.GetContract(ctx, "team-a")
		ended <- err
	}()
	poll.Until(t, "a call", func() bool { return len(s.seen()) > 0 })
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a call that was given up succeeded")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("a call that was given up goes on waiting")
	}
}

// ---- Contracts.

// sameJSON compares two documents and not their spelling.
func sameJSON(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Errorf("the body %q is not JSON: %v", got, err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("body %s, want %s", got, want)
	}
}

func TestEnsureContractBody(t *testing.T) {
	t.Parallel()
	five, none := int64(5), int64(0)
	for name, c := range map[string]struct {
		spec contract.Spec
		body string
	}{
		"least": {contract.Spec{Name: "team-a", Owner: "cluster-1"}, `{"owner":"cluster-1","desiredState":"active","quota":{}}`},
		"all": {
			contract.Spec{
				Name: "team-a", Owner: "cluster-1", Display: "Team A", Region: "north", Plan: "gold", Suspend: true,
				Quota: contract.Quota{MaxBuckets: &five, MaxKeys: &none}, Labels: map[string]string{"cost": "42"},
			},
			`{"owner":"cluster-1","displayName":"Team A","region":"north","plan":"gold","desiredState":"suspended","quota":{"maxBuckets":5,"maxKeys":0},"labels":{"cost":"42"}}`,
		},
		"no labels": {contract.Spec{Name: "team-a", Owner: "cluster-1", Labels: map[string]string{}}, `{"owner":"cluster-1","desiredState":"active","quota":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { write(w, 201, contractJSON("active")) })
			if _, err := p.EnsureContract(bounded(t), c.spec); err != nil {
				t.Fatal(err)
			}
			s.asked("PUT /v1/contracts/team-a")
			sameJSON(t, s.seen()[0].body, c.body)
		})
	}
}

// The journal's mark is a label: a contract is signed with it unless another was
// faster, and keeps the one that it has.
func TestJournalsMark(t *testing.T) {
	t.Parallel()
	const mine, others, path = "00112233445566ff", "ff00112233445566", " /v1/contracts/team-a"
	label := func(mark string) string { return `"contract-cosi-driver/journal":"` + mark + `"` }
	contractWith := func(labels string) string {
		return strings.Replace(contractJSON("active"), `"owner":"cluster-1"`, `"owner":"cluster-1","labels":{`+labels+`}`, 1)
	}
	type step struct {
		status int
		body   string // of an answer, or a problem's code
	}
	none := step{404, "contract-not-found"}
	for name, c := range map[string]struct {
		labels map[string]string
		steps  []step
		asked  []string
		put    []string // the labels of each PUT, behind its If-None-Match
		kind   fault.Kind
		mark   string
	}{
		"signed":            {nil, []step{none, {201, contractWith(label(mine))}}, []string{"GET", "PUT"}, []string{"*" + label(mine)}, "", mine},
		"there":             {nil, []step{{200, contractWith(label(mine))}, {200, contractWith(label(mine))}}, []string{"GET", "PUT"}, []string{label(mine)}, "", mine},
		"there, of before":  {nil, []step{{200, contractWith("")}, {200, contractWith("")}}, []string{"GET", "PUT"}, []string{""}, "", ""},
		"there, of another": {nil, []step{{200, contractWith(label(others))}}, []string{"GET"}, nil, fault.FailedPrecondition, ""},
		"another is faster": {nil, []step{none, {412, "precondition-failed"}, {200, contractWith(label(others))}}, []string{"GET", "PUT", "GET"}, []string{"*" + label(mine)}, fault.FailedPrecondition, ""},
		"an answer was lost": {nil, []step{none, {412, "precondition-failed"}, {200, contractWith(label(mine))}, {200, contractWith(label(mine))}},
			[]string{"GET", "PUT", "GET", "PUT"}, []string{"*" + label(mine), label(mine)}, "", mine},
		"no labels at the service": {nil, []step{none, {422, "unsupported"}, {201, contractWith("")}}, []string{"GET", "PUT", "PUT"}, []string{"*" + label(mine), "*"}, "", ""},
		"labels that it has not":   {map[string]string{"cost": "42"}, []step{none, {422, "unsupported"}}, []string{"GET", "PUT"}, []string{"*" + label(mine) + `,"cost":"42"`}, fault.Unsupported, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var absent []string
			s, p := play(t, func(w http.ResponseWriter, r *http.Request, before int) {
				if r.Method == http.MethodPut {
					absent = append(absent, r.Header.Get("If-None-Match"))
				}
				if step := c.steps[before]; step.status < 300 {
					write(w, step.status, step.body)
				} else {
					problem(w, step.status, step.body, before)
				}
			})
			have, err := p.EnsureContract(bounded(t), contract.Spec{Name: "team-a", Owner: "cluster-1", Journals: []string{mine}, Labels: c.labels})
			if !fault.Is(err, c.kind) || have.Journal != c.mark {
				t.Errorf("%+v, %v, want %q and the mark %q", have, err, c.kind, c.mark)
			}
			var want, put []string
			for _, method := range c.asked {
				want = append(want, method+path)
			}
			s.asked(want...)
			for _, r := range s.seen() {
				if r.method != http.MethodPut {
					continue
				}
				_, rest, _ := strings.Cut(r.body, `"labels":{`)
				labels, _, _ := strings.Cut(rest, "}")
				put = append(put, absent[len(put)]+labels)
			}
			if !slices.Equal(put, c.put) {
				t.Errorf("labels put: %q, want %q", put, c.put)
			}
		})
	}
}

func TestContractStates(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]contract.State{
		"pending": contract.StatePending, "active": contract.StateActive, "suspended": contract.StateSuspended,
		"cancelling": contract.StateCancelling, "cancelled": contract.StateCancelling, "failed": contract.StateFailed,
	} {
		t.Run(said, func(t *testing.T) {
			t.Parallel()
			_, p := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
				status := 200
				if said == "pending" {
					w.Header().Set("Retry-After", "7")
					status = 202
				}
				write(w, status, contractJSON(said))
			})
			expected := contract.Contract{
				Name: "team-a", Owner: "cluster-1", State: want, Message: "said of " + said,
				Endpoints: []cosi.Endpoint{{URL: "https://s3.example", Region: "north", PathStyle: true}},
			}
			if said == "pending" {
				expected.RetryAfter = 7 * time.Second
			}
			for name, ask := range map[string]func() (contract.Contract, error){
				"get":    func() (contract.Contract, error) { return p.GetContract(bounded(t), "team-a") },
				"ensure": func() (contract.Contract, error) { return p.EnsureContract(bounded(t), contract.Spec{Name: "team-a"}) },
			} {
				if got, err := ask(); err != nil || !reflect.DeepEqual(got, expected) {
					t.Errorf("%s: %+v, %v; want %+v", name, got, err, expected)
				}
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		t.Parallel()
		_, p := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { write(w, 200, contractJSON("from-the-future")) })
		_, err := p.GetContract(bounded(t), "team-a")
		kind(t, err, fault.Internal)
	})
}

func TestCompareContract(t *testing.T) {
	t.Parallel()
	five, six := int64(5), int64(6)
	as := func(change func(*contract.Spec)) contract.Spec {
		s := contract.Spec{Name: "team-a", Owner: "cluster-1", Display: "Team A", Plan: "small", Region: "north",
			Quota: contract.Quota{MaxBuckets: &five}, Labels: map[string]string{"a": "b"}}
		change(&s)
		return s
	}
	_, p := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		if r.Method != http.MethodGet {
			t.Errorf("%s changes something", r.Method)
		}
		write(w, 200, strings.Replace(contractJSON("active"), `"spec":{`, `"spec":{"displayName":"Team A","plan":"small","desiredState":"active","quota":{"maxBuckets":5},"labels":{"a":"b"},`, 1))
	})
	for name, c := range map[string]struct {
		change func(*contract.Spec)
		want   []string
	}{
		"the same":            {func(*contract.Spec) {}, nil},
		"left to the service": {func(s *contract.Spec) { s.Display, s.Plan, s.Region = "", "", "" }, nil},
		"display":             {func(s *contract.Spec) { s.Display = "B" }, []string{"displayName"}},
		"plan":                {func(s *contract.Spec) { s.Plan = "large" }, []string{"plan"}},
		"another bound":       {func(s *contract.Spec) { s.Quota.MaxBuckets = &six }, []string{"quota"}},
		"one bound more":      {func(s *contract.Spec) { s.Quota.MaxKeys = &six }, []string{"quota"}},
		"no bound any more":   {func(s *contract.Spec) { s.Quota = contract.Quota{} }, []string{"quota"}},
		"no labels any more":  {func(s *contract.Spec) { s.Labels = nil }, []string{"labels"}},
		"suspended":           {func(s *contract.Spec) { s.Suspend = true }, []string{"suspend"}},
		"several":             {func(s *contract.Spec) { s.Plan, s.Suspend = "large", true }, []string{"plan", "suspend"}},
	} {
		have, got, err := p.CompareContract(bounded(t), as(c.change))
		if err != nil || !slices.Equal(got, c.want) || have.State != contract.StateActive || have.Owner != "cluster-1" {
			t.Errorf("%s: %v, %v, %+v; want %v", name, got, err, have, c.want)
		}
	}
	_, gone := play(t, func(w http.ResponseWriter, _ *http.Request, before int) {
		problem(w, 404, "contract-not-found", before)
	})
	_, _, err := gone.CompareContract(bounded(t), as(func(*contract.Spec) {}))
	kind(t, err, fault.NotFound)
}

func TestUsage(t *testing.T) {
	t.Parallel()
	_, p := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		write(w, 200, `{"buckets":3,"keys":4,"bytes":5,"measuredAt":"2024-05-06T07:08:09Z"}`)
	})
	u, err := p.Usage(bounded(t), "team-a")
	if err != nil || *u.Buckets != 3 || *u.Keys != 4 || *u.Bytes != 5 || u.Objects != nil {
		t.Errorf("%+v, %v", u, err)
	}
}

// A service from before there were bounds of buckets has no such path; it is not
// a contract or a bucket that is gone.
func TestServiceWithoutBucketBounds(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]answer{
		"contractd's own answer": func(w http.ResponseWriter, _ *http.Request, before int) {
			problem(w, http.StatusNotFound, "invalid-argument", before)
		},
		"a page":      func(w http.ResponseWriter, _ *http.Request, _ int) { write(w, http.StatusNotFound, "not here") },
		"no method":   func(w http.ResponseWriter, _ *http.Request, _ int) { write(w, http.StatusMethodNotAllowed, "") },
		"unsupported": func(w http.ResponseWriter, _ *http.Request, before int) { problem(w, 422, "unsupported", before) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p := play(t, a)
			_, err := p.BucketUse(bounded(t), "team-a", "photos")
			kind(t, err, fault.Unsupported)
			_, err = p.BucketUses(bounded(t), "team-a")
			kind(t, err, fault.Unsupported)
			kind(t, p.BoundBucket(bounded(t), "team-a", "photos", contract.Bounds{MaxObjects: 1}), fault.Unsupported)
		})
	}
}

func TestBucketUse(t *testing.T) {
	t.Parallel()
	_, p := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		write(w, http.StatusOK, `{"name":"photos","objects":2,"quota":{"maxBytes":-1,"maxObjects":9223372036854775807}}`)
	})
	use, err := p.BucketUse(bounded(t), "team-a", "photos")
	if err != nil || use.Bytes != nil || *use.Objects != 2 || use.Bounds != (contract.Bounds{MaxObjects: math.MaxInt64}) {
		t.Errorf("%+v %v", use, err)
	}
	_, err = p.BucketUse(bounded(t), "team-a", "videos") // another's answer
	kind(t, err, fault.Unavailable)
}

func TestDeleteContract(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer answer
		kind   fault.Kind
	}{
		"gone": {func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusNoContent) }, ""},
		"takes time": {func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Retry-After", "7")
			write(w, 202, contractJSON("cancelling"))
		}, fault.Pending},
		"never was":     {func(w http.ResponseWriter, _ *http.Request, n int) { problem(w, 404, "contract-not-found", n) }, ""},
		"holds buckets": {func(w http.ResponseWriter, _ *http.Request, n int) { problem(w, 409, "contract-not-empty", n) }, fault.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := play(t, c.answer)
			kind(t, p.DeleteContract(bounded(t), "team-a"), c.kind)
			s.asked("DELETE /v1/contracts/team-a")
		})
	}
}

// ---- Keys.

var issueRequest = contract.IssueKeyRequest{
	Contract: "team-a", Slot: "ba-1",
	Scope:    &contract.Scope{Buckets: []contract.BucketScope{{Bucket: "photos", Mode: cosi.ReadWrite}}},
	Proposed: secret.KeyPair{AccessKeyID: "ck1", SecretAccessKey: secret.New("planted-proposed-secret")},
}

func TestIssueKeyBody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		scope *contract.Scope
		keep  []string
		body  string
	}{
		"limited in every way": {
			&contract.Scope{
				Buckets: []contract.BucketScope{
					{Bucket: "photos", Prefix: "2024/", Mode: cosi.ReadWrite},
					{Bucket: "logs", Mode: cosi.WriteOnly},
					{Bucket: "docs", Mode: cosi.ReadOnly},
				},
				SourceAddresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")},
			},
			[]string{"AK0", "AK9"},
			`{"spec":{"slot":"ba-1","buckets":[{"bucket":"photos","prefix":"2024/","access":"readWrite"},{"bucket":"logs","access":"writeOnly"},{"bucket":"docs","access":"readOnly"}],"sourceAddresses":["10.0.0.0/8","2001:db8::/32"]},"keep":["AK0","AK9"]}`,
		},
		"limited to a bucket": {
			&contract.Scope{Buckets: []contract.BucketScope{{Bucket: "photos", Mode: cosi.ReadWrite}}, SourceAddresses: []netip.Prefix{}},
			[]string{},
			`{"spec":{"slot":"ba-1","buckets":[{"bucket":"photos","access":"readWrite"}]}}`,
		},
		// The presence of buckets, empty or not, is what makes a key a limited one.
		"the contract's own": {nil, nil, `{"spec":{"slot":"ba-1"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { write(w, 201, issued("AK1", "sk1")) })
			r := issueRequest
			r.Scope, r.Keep = c.scope, c.keep
			got, err := p.IssueKey(bounded(t), r)
			if err != nil {
				t.Fatal(err)
			}
			if got.AccessKeyID != "AK1" || got.SecretAccessKey.Reveal() != "sk1" {
				t.Errorf("key %s %s, want what the service issued", got.AccessKeyID, got.SecretAccessKey.Reveal())
			}
			s.asked("PUT /v1/contracts/team-a/keys/ck1")
			sameJSON(t, s.seen()[0].body, c.body)
		})
	}
}

// Leaving buckets out of the body of a limited key would make it the
// contract's own, which reaches everything.
func TestIssueKeyWithAnEmptyScopeIsNotTheContractsOwn(t *testing.T) {
	t.Parallel()
	s, p := play(t, func(w http.ResponseWriter, _ *http.Request, n int) { problem(w, 400, "invalid-argument", n) })
	r := issueRequest
	r.Scope = &contract.Scope{}
	if _, err := p.IssueKey(bounded(t), r); err == nil {
		t.Error("the service's refusal is lost")
	}
	for _, asked := range s.seen() {
		if !strings.Contains(asked.body, `"buckets"`) {
			t.Errorf("a key limited to nothing was asked for as one that reaches all: %s", asked.body)
		}
	}
}

// A refusal never costs a key: whether one that was handed out is still held is
// for the caller to know.
func TestIssueKeyRefused(t *testing.T) {
	t.Parallel()
	const put = "PUT /v1/contracts/team-a/keys/ck1"
	for code, status := range map[string]int{"secret-delivered": 410, "key-spec-differs": 409} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			s, p := play(t, func(w http.ResponseWriter, _ *http.Request, before int) { problem(w, status, code, before) })
			_, err := p.IssueKey(bounded(t), issueRequest)
			kind(t, err, fault.Mismatch)
			s.asked(put)
		})
	}
	for code, status := range map[string]int{"limit-exceeded": 409, "contract-not-active": 409, "invalid-argument": 400} {
		t.Run(code+" removes nothing", func(t *testing.T) {
			t.Parallel()
			s, p := play(t, func(w http.ResponseWriter, _ *http.Request, before int) { problem(w, status, code, before) })
			if _, err := p.IssueKey(bounded(t), issueRequest); err == nil || strings.Contains(err.Error(), "planted-proposed-secret") {
				t.Errorf("error %v", err)
			}
			s.asked(put)
		})
	}
}

func TestIssueKeyWithoutAKey(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{"empty": "", "no fields": "{}", "no secret": issued("AK1", ""), "no id": issued("", "sk1")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { write(w, 201, body) })
			_, err := p.IssueKey(bounded(t), issueRequest)
			kind(t, err, fault.Unavailable)
			if err != nil && strings.Contains(err.Error(), "sk1") {
				t.Errorf("the secret is in the text %q", err)
			}
		})
	}
}

func TestAcknowledgeKey(t *testing.T) {
	t.Parallel()
	s, p := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusNoContent) })
	if err := p.AcknowledgeKey(bounded(t), "team-a", issueRequest.Proposed); err != nil {
		t.Error(err)
	}
	s.asked("PUT /v1/contracts/team-a/keys/ck1/acknowledgement")

	_, p = play(t, func(w http.ResponseWriter, _ *http.Request, n int) { problem(w, 404, "key-not-found", n) })
	kind(t, p.AcknowledgeKey(bounded(t), "team-a", issueRequest.Proposed), fault.NotFound)
}

// nextPage would be misread by a client that does not escape it.
const nextPage = "a b&slot=x"

// twoPages answers a list of keys in two pages.
func twoPages(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Query().Get("pageToken") {
	case "":
		write(w, 200, fmt.Sprintf(`{"items":[%s,%s],"nextPageToken":%q}`, keyJSON("k1", "AK1", "ba-1", "active"), keyJSON("k2", "AK2", "ba-1", "inactive"), nextPage))
	case nextPage:
		write(w, 200, fmt.Sprintf(`{"items":[%s],"nextPageToken":""}`, keyJSON("k3", "AK3", "ba-1", "active")))
	default:
		write(w, 400, `{"title":"unknown page","code":"invalid-argument"}`)
	}
}

func TestListKeysFollowsPages(t *testing.T) {
	t.Parallel()
	s, p := play(t, func(w http.ResponseWriter, r *http.Request, _ int) { twoPages(w, r) })
	got, err := p.ListKeys(bounded(t), "team-a", "ba-1")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	want := []contract.KeyInfo{
		{AccessKeyID: "AK1", Slot: "ba-1", Active: true, CreatedAt: at, Name: "k1"},
		{AccessKeyID: "AK2", Slot: "ba-1", Active: false, CreatedAt: at, Name: "k2"},
		{AccessKeyID: "AK3", Slot: "ba-1", Active: true, CreatedAt: at, Name: "k3"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("keys %+v, want %+v", got, want)
	}
	for _, line := range s.lines() {
		if !strings.Contains(line, "slot=ba-1") {
			t.Errorf("%s does not ask for the slot", line)
		}
	}
	if n := len(s.lines()); n != 2 {
		t.Errorf("%d pages were read, want 2", n)
	}

	s, p = play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { write(w, 200, `{"items":[]}`) })
	if got, err := p.ListKeys(bounded(t), "team-a", ""); err != nil || len(got) > 0 {
		t.Errorf("keys %v, %v; want none", got, err)
	}
	s.asked("GET /v1/contracts/team-a/keys") // without a slot, all of the contract's

	_, p = play(t, func(w http.ResponseWriter, _ *http.Request, n int) { problem(w, 404, "contract-not-found", n) })
	_, err = p.ListKeys(bounded(t), "team-a", "")
	kind(t, err, fault.NotFound)
}

func TestRevokeKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		id      string
		removed string // the target of the DELETE
	}{
		"first page":  {"AK2", "/v1/contracts/team-a/keys/k2"},
		"second page": {"AK3", "/v1/contracts/team-a/keys/k3"},
		"absent":      {"AK9", ""},
		"whole slot":  {"", "/v1/contracts/team-a/keys?slot=ba-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
				if r.Method == http.MethodDelete {
					w.WriteHeader(http.StatusNoContent)
					return
				}
				twoPages(w, r)
			})
			if err := p.RevokeKey(bounded(t), contract.RevokeKeyRequest{Contract: "team-a", Slot: "ba-1", AccessKeyID: c.id}); err != nil {
				t.Error(err)
			}
			var removed []string
			for _, r := range s.seen() {
				if r.method == http.MethodDelete {
					removed = append(removed, r.target)
				}
			}
			if c.removed == "" && len(removed) > 0 || c.removed != "" && !slices.Equal(removed, []string{c.removed}) {
				t.Errorf("removed %q, want %q", removed, c.removed)
			}
		})
	}
	t.Run("missing contract", func(t *testing.T) {
		t.Parallel()
		_, p := play(t, func(w http.ResponseWriter, _ *http.Request, n int) { problem(w, 404, "contract-not-found", n) })
		kind(t, p.RevokeKey(bounded(t), contract.RevokeKeyRequest{Contract: "team-a", Slot: "ba-1", AccessKeyID: "AK1"}), "")
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		_, p := play(t, func(w http.ResponseWriter, r *http.Request, n int) {
			if r.Method == http.MethodDelete {
				problem(w, 503, "unavailable", n)
				return
			}
			twoPages(w, r)
		})
		kind(t, p.RevokeKey(bounded(t), contract.RevokeKeyRequest{Contract: "team-a", Slot: "ba-1", AccessKeyID: "AK1"}), fault.Unavailable)
		kind(t, p.RevokeKey(bounded(t), contract.RevokeKeyRequest{Contract: "team-a", Slot: "ba-1"}), fault.Unavailable)
	})
}

// ---- Regions.

func TestRegions(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	// An S3 server refuses a request without a signature, and that is answer enough.
	storage, _ := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
		if down.Load() {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(http.StatusForbidden)
	})
	list := func(w http.ResponseWriter, _ *http.Request, _ int) {
		write(w, 200, fmt.Sprintf(`{"items":[{"url":%q,"region":"north","pathStyle":true}]}`, storage.URL))
	}
	s, p := play(t, list)
	got, err := p.Regions(bounded(t))
	if want := []cosi.Endpoint{{URL: storage.URL, Region: "north", PathStyle: true}}; err != nil || !slices.Equal(got, want) {
		t.Fatalf("regions %v, %v; want %v", got, err, want)
	}
	s.asked("GET /v1/regions")
	storage.asked() // a region that is away is a region all the same
	if err := p.Check(bounded(t)); err != nil {
		t.Errorf("check: %v", err)
	}
	storage.asked("HEAD /")
	for _, r := range storage.seen() {
		if r.authorization != "" {
			t.Error("the token was given to the storage")
		}
	}

	down.Store(true)
	first, second := p.Check(bounded(t)), p.Check(bounded(t))
	kind(t, first, fault.Unavailable)
	if first == nil || second == nil || first.Error() != second.Error() || !strings.Contains(first.Error(), "region north") {
		t.Errorf("errors %v and %v, want one text that names the region", first, second)
	}
}

func TestRegionsNeedsTheService(t *testing.T) {
	t.Parallel()
	_, p := play(t, func(w http.ResponseWriter, _ *http.Request, n int) { problem(w, 401, "unauthenticated", n) })
	_, err := p.Regions(bounded(t))
	kind(t, err, fault.PermissionDenied)
}

// ---- All operations.

func TestTokenIsSentAndNotTold(t *testing.T) {
	t.Parallel()
	operations := map[string]func(context.Context, *contractapi.Provider) error{
		"Regions": func(ctx context.Context, p *contractapi.Provider) error { _, err := p.Regions(ctx); return err },
		"GetContract": func(ctx context.Context, p *contractapi.Provider) error {
			_, err := p.GetContract(ctx, "team-a")
			return err
		},
		"DeleteContract": func(ctx context.Context, p *contractapi.Provider) error { return p.DeleteContract(ctx, "team-a") },
		"EnsureContract": func(ctx context.Context, p *contractapi.Provider) error {
			_, err := p.EnsureContract(ctx, contract.Spec{Name: "team-a", Owner: "cluster-1"})
			return err
		},
		"IssueKey": func(ctx context.Context, p *contractapi.Provider) error {
			_, err := p.IssueKey(ctx, issueRequest)
			return err
		},
		"AcknowledgeKey": func(ctx context.Context, p *contractapi.Provider) error {
			return p.AcknowledgeKey(ctx, "team-a", issueRequest.Proposed)
		},
		"ListKeys": func(ctx context.Context, p *contractapi.Provider) error {
			_, err := p.ListKeys(ctx, "team-a", "")
			return err
		},
		"RevokeKey": func(ctx context.Context, p *contractapi.Provider) error {
			return p.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: "team-a", Slot: "ba-1", AccessKeyID: "AK1"})
		},
		"RevokeSlot": func(ctx context.Context, p *contractapi.Provider) error {
			return p.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: "team-a", Slot: "ba-1"})
		},
	}
	for name, operate := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := play(t, func(w http.ResponseWriter, _ *http.Request, n int) { problem(w, 403, "permission-denied", n) })
			err := operate(bounded(t), p)
			kind(t, err, fault.PermissionDenied)
			for _, r := range s.seen() {
				if r.authorization != "Bearer "+token {
					t.Errorf("%s %s came with authorization %q", r.method, r.target, r.authorization)
				}
				if strings.Contains(r.target+r.body, token) || strings.Contains(r.target+r.body, issueRequest.Proposed.SecretAccessKey.Reveal()) {
					t.Errorf("%s %s %s has a secret in it", r.method, r.target, r.body)
				}
			}
			if len(s.seen()) != 1 {
				t.Errorf("asked %q, want one request", s.lines())
			}
			kind(t, operate(bounded(t), s.provider(noServer)), fault.Unavailable)
		})
	}
}

func TestCapabilities(t *testing.T) {
	t.Parallel()
	_, p := play(t, nil)
	want := contract.Capabilities{
		ScopeBy: contract.ScopeByKey, SourceAddresses: true, SeveralBuckets: true, SeveralPrefixes: true, Actions: true, KeyExpiry: true,
		Suspend: true, Plans: true, Labels: true, BucketBounds: true,
		Quota: contract.QuotaKinds{Buckets: true, Keys: true, Bytes: true, Objects: true},
	}
	if got := p.Capabilities(); got != want {
		t.Errorf("capabilities %+v, want %+v", got, want)
	}
}

// A success is what the API promises, and nothing else: a login page or a
// redirect to one must not pass for a key revoked or a contract gone.
func TestUnpromisedSuccess(t *testing.T) {
	t.Parallel()
	calls := map[string]func(context.Context, *contractapi.Provider) error{
		"RevokeKey of a slot": func(ctx context.Context, p *contractapi.Provider) error {
			return p.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: "team-a", Slot: "ba-1"})
		},
		"RevokeKey of a key": func(ctx context.Context, p *contractapi.Provider) error {
			return p.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: "team-a", Slot: "ba-1", AccessKeyID: "AK1"})
		},
		"AcknowledgeKey": func(ctx context.Context, p *contractapi.Provider) error {
			return p.AcknowledgeKey(ctx, "team-a", issueRequest.Proposed)
		},
		"DeleteContract": func(ctx context.Context, p *contractapi.Provider) error { return p.DeleteContract(ctx, "team-a") },
		"GetContract": func(ctx context.Context, p *contractapi.Provider) error {
			_, err := p.GetContract(ctx, "team-a")
			return err
		},
		"EnsureContract": func(ctx context.Context, p *contractapi.Provider) error {
			_, err := p.EnsureContract(ctx, contract.Spec{Name: "team-a", Owner: "cluster-1"})
			return err
		},
		"ListKeys": func(ctx context.Context, p *contractapi.Provider) error {
			_, err := p.ListKeys(ctx, "team-a", "")
			return err
		},
		"Check": func(ctx context.Context, p *contractapi.Provider) error { return p.Check(ctx) },
	}
	answers := map[string]http.HandlerFunc{
		"page":    func(w http.ResponseWriter, _ *http.Request) { write(w, 200, "<html>sign in</html>") },
		"object":  func(w http.ResponseWriter, _ *http.Request) { write(w, 200, "{}") },
		"nothing": func(w http.ResponseWriter, _ *http.Request) { write(w, 200, "") },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other"+r.URL.Path, http.StatusMovedPermanently)
		},
	}
	for what, call := range calls {
		for which, answer := range answers {
			t.Run(what+"/"+which, func(t *testing.T) {
				t.Parallel()
				s, p := play(t, func(w http.ResponseWriter, r *http.Request, _ int) { answer(w, r) })
				kind(t, call(bounded(t), p), fault.Unavailable)
				if n := len(s.seen()); n != 1 {
					t.Errorf("asked %q", s.lines())
				}
			})
		}
	}
}

// What is not there is revoked.
func TestRevokeOfTheAbsent(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"contract-not-found", "key-not-found"} {
		_, p := play(t, func(w http.ResponseWriter, _ *http.Request, n int) { problem(w, 404, code, n) })
		if err := p.RevokeKey(bounded(t), contract.RevokeKeyRequest{Contract: "team-a", Slot: "ba-1"}); err != nil {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// An address that the service names is where the driver sends signed requests,
// and what applications are told: it is refused before either, unless the
// configuration has it.
func TestAddressesOfOthers(t *testing.T) {
	t.Parallel()
	inside, _ := play(t, func(w http.ResponseWriter, _ *http.Request, _ int) { write(w, 200, "internal") })
	for name, c := range map[string]struct {
		url, region string
		list        []string
		ok          bool
		says        string
	}{
		"an internal server": {inside.URL, "north", nil, false, "allowedEndpoints"},
		"one that is listed": {inside.URL, "north", []string{inside.URL}, true, ""},
		"another port of it": {inside.URL + "1", "north", []string{inside.URL}, false, "allowedEndpoints"},
		"metadata":           {"http://169.254.169.254/latest", "north", nil, false, "allowedEndpoints"},
		"no HTTP":            {"file:///etc/passwd", "north", nil, false, "no address of an S3 service"},
		"credentials":        {"http://a:b@localhost", "north", nil, false, "no address of an S3 service"},
		"a screen":           {"http://localhost/\\u001b[2J", "north", nil, false, "no address of an S3 service"},
		"a region's name":    {"http://localhost", "\\u001b[2J", nil, false, "region"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoint := fmt.Sprintf(`{"url":"%s","region":"%s","pathStyle":true}`, c.url, c.region)
			s, _ := play(t, func(w http.ResponseWriter, r *http.Request, _ int) {
				switch r.URL.Path {
				case "/v1/regions":
					write(w, 200, `{"items":[`+endpoint+`]}`)
				default:
					write(w, 200, strings.Replace(contractJSON("active"), region, endpoint, 1))
				}
			})
			own := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
			allowed, err := transport.NewAllowed(own, c.list)
			if err != nil {
				t.Fatal(err)
			}
			p := s.allowed(s.URL, allowed)
			for what, ask := range map[string]func() error{
				"Regions": func() error { _, err := p.Regions(bounded(t)); return err },
				"Check":   func() error { return p.Check(bounded(t)) },
				"Get":     func() error { _, err := p.GetContract(bounded(t), "team-a"); return err },
				"Ensure": func() error {
					_, err := p.EnsureContract(bounded(t), contract.Spec{Name: "team-a", Owner: "cluster-1"})
					return err
				},
			} {
				err := ask()
				if c.ok != (err == nil) {
					t.Errorf("%s: %v", what, err)
				}
				if err != nil && (!fault.Is(err, fault.FailedPrecondition) || !strings.Contains(err.Error(), c.says) || strings.ContainsAny(err.Error(), "\x1b")) {
					t.Errorf("%s: %s: %q", what, fault.KindOf(err), err)
				}
			}
		})
	}
	t.Cleanup(func() {
		if n := len(inside.seen()); n > 1 { // by the one that is listed
			t.Errorf("an internal server was asked %d times", n)
		}
	})
}
