package service_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/api"
	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/service"
	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

const token = "a-token"

// storage stands in for the gateway's index of buckets; owners are given by code.
type storage struct {
	mu     sync.Mutex
	owners map[string]string
	quotas map[string]store.Quota
	closed map[string]int
}

func (s *storage) Names(code, after string, limit int) (page []string, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.owners)) {
		if s.owners[name] == code && name > after {
			page = append(page, name)
		}
	}
	return page[:min(limit, len(page))], len(page) > limit
}

func (s *storage) Bucket(code, name string) (store.Bucket, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return store.Bucket{Name: name, Bytes: 7, Objects: 1, Quota: s.quotas[name]}, s.owners[name] == code, nil
}

func (s *storage) Bound(code, name string, to store.Quota) (store.Bucket, bool, error) {
	s.mu.Lock()
	if s.owners[name] == code {
		s.quotas[name] = to
	}
	s.mu.Unlock()
	return s.Bucket(code, name)
}

func (s *storage) Owner(bucket string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owners[bucket]
}

func (s *storage) Count(code string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, owner := range s.owners {
		if owner == code {
			n++
		}
	}
	return n
}

func (s *storage) Close(code string) (int, bool) {
	if n := s.Count(code); n > 0 {
		return n, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed[code]++
	return 0, true
}

func (s *storage) Reopen(code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed[code]--
}

// bench is a service over a real store, with a clock that tests turn.
type bench struct {
	t       *testing.T
	url     string
	store   *store.Store
	storage *storage
	ahead   atomic.Int64
	sick    atomic.Bool
}

func newBench(t *testing.T, change ...func(*service.Config)) *bench {
	t.Helper()
	contracts, err := store.Open(filepath.Join(t.TempDir(), "contracts.db"))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, store: contracts, storage: &storage{owners: map[string]string{}, quotas: map[string]store.Quota{}, closed: map[string]int{}}}
	cfg := service.Config{
		Store: contracts, Buckets: b.storage, Region: "us-east-1", S3URL: "http://s3.example", Tokens: []string{"another", token},
		Now:     func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) },
		Healthy: func() bool { return !b.sick.Load() },
	}
	for _, f := range change {
		f(&cfg)
	}
	server := httptest.NewServer(service.New(cfg).Handler())
	b.url = server.URL
	t.Cleanup(func() {
		server.Close()
		_ = contracts.Close() // a test may have closed it already
	})
	return b
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.body) }

// do calls the API; each header is "Name: value".
func (b *bench) do(method, path, body string, headers ...string) answer {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, data}
}

// ok calls the API and expects a status.
func (b *bench) ok(status int, method, path, body string, headers ...string) answer {
	b.t.Helper()
	a := b.do(method, path, body, headers...)
	if a.status != status {
		b.t.Fatalf("%s %s: %v, want %d", method, path, a, status)
	}
	return a
}

func decode[T any](t *testing.T, a answer) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%v: %v", a, err)
	}
	return v
}

// fails calls the API and expects a problem.
func (b *bench) fails(status int, code api.ProblemCode, method, path, body string, headers ...string) api.Problem {
	b.t.Helper()
	a := b.do(method, path, body, headers...)
	if a.status != status || a.header.Get("Content-Type") != "application/problem+json" {
		b.t.Fatalf("%s %s: %v (%s), want a problem with %d", method, path, a, a.header.Get("Content-Type"), status)
	}
	p := decode[api.Problem](b.t, a)
	if p.Code != code || p.Status != status || p.Title == "" || p.Detail == nil || p.RequestId == nil {
		b.t.Fatalf("%s %s: %v, want code %s", method, path, a, code)
	}
	if status == http.StatusServiceUnavailable && a.header.Get("Retry-After") == "" {
		b.t.Errorf("%s %s: no Retry-After", method, path)
	}
	return p
}

func pointers(p api.Problem) []string {
	var list []string
	if p.Errors != nil {
		for _, e := range *p.Errors {
			list = append(list, e.Pointer)
		}
	}
	return list
}

const (
	acme  = "/v1/contracts/acme"
	admin = acme + "/keys/admin"
	own   = `{"spec":{"slot":"admin"}}`
)

func (b *bench) sign(name, spec string) api.Contract {
	b.t.Helper()
	return decode[api.Contract](b.t, b.ok(http.StatusCreated, "PUT", "/v1/contracts/"+name, spec))
}

func (b *bench) issue(name, slot string, keep ...string) api.IssuedKey {
	b.t.Helper()
	kept, err := json.Marshal(append([]string{}, keep...))
	if err != nil {
		b.t.Fatal(err)
	}
	return decode[api.IssuedKey](b.t, b.ok(http.StatusCreated, "PUT", acme+"/keys/"+name, fmt.Sprintf(`{"spec":{"slot":%q},"keep":%s}`, slot, kept)))
}

func (b *bench) keyNames(query string) []string {
	b.t.Helper()
	var names []string
	for _, k := range decode[api.KeyList](b.t, b.ok(http.StatusOK, "GET", acme+"/keys"+query, "")).Items {
		names = append(names, k.Name)
	}
	return names
}

// TestProblems holds every code that the service can emit, permission-denied and
// rate-limited being left to other implementations; internal has its own test.
func TestProblems(t *testing.T) {
	b := newBench(t)
	c := b.sign("acme", `{"owner":"me","quota":{"maxKeys":1}}`)
	b.sign("asleep", `{"owner":"me","desiredState":"suspended"}`)
	b.storage.owners["data"] = c.Code
	b.issue("admin", "admin")
	b.sign("full", `{"owner":"me"}`)
	full, _ := b.store.Contract("full")
	b.storage.owners["full-1"], b.storage.owners["full-2"] = full.Code, full.Code

	key := func(spec string) string { return `{"spec":{"slot":"admin",` + spec + `}}` }
	for _, test := range []struct {
		name         string
		status       int
		code         api.ProblemCode
		method, path string
		body         string
		header       string
		pointers     []string
	}{
		{"no token", 401, api.Unauthenticated, "GET", acme, "", "Authorization: ", nil},
		{"wrong token", 401, api.Unauthenticated, "GET", acme, "", "Authorization: Bearer wrong", nil},
		{"wrong scheme", 401, api.Unauthenticated, "GET", acme, "", "Authorization: Basic " + token, nil},
		{"unknown path without a token", 401, api.Unauthenticated, "GET", "/", "", "Authorization: ", nil},
		{"unknown path", 404, api.InvalidArgument, "GET", "/v2/contracts", "", "", nil},
		{"wrong method", 405, api.InvalidArgument, "POST", acme, "{}", "", nil},
		{"bad contract name", 422, api.InvalidArgument, "GET", "/v1/contracts/Acme", "", "", []string{"path.contractName"}},
		{"bad names", 422, api.InvalidArgument, "DELETE", "/v1/contracts/a_b/keys/-c", "", "", []string{"path.contractName", "path.keyName"}},
		{"page size", 400, api.InvalidArgument, "GET", "/v1/contracts?pageSize=many", "", "", nil},
		{"page bounds", 422, api.InvalidArgument, "GET", "/v1/contracts?pageSize=0&pageToken=%21", "", "", []string{"query.pageSize", "query.pageToken"}},
		{"no slot", 400, api.InvalidArgument, "DELETE", acme + "/keys", "", "", nil},
		{"not JSON", 400, api.InvalidArgument, "PUT", acme, "{", "", nil},
		{"two values", 400, api.InvalidArgument, "PUT", acme, `{"owner":"me"} {}`, "", nil},
		{"not an object", 400, api.InvalidArgument, "PUT", acme, `[]`, "", []string{""}},
		{"wrong media type", 415, api.InvalidArgument, "PUT", acme, `{}`, "Content-Type: text/plain", nil},
		{"too large", 413, api.InvalidArgument, "PUT", acme, `{"owner":"` + strings.Repeat("x", 70<<10) + `"}`, "", nil},
		{"all faults of form", 400, api.InvalidArgument, "PUT", acme,
			`{"Owner":"me","owner":1,"quota":{"maxKeys":1.5,"x":1},"labels":{"a":1}}`, "",
			[]string{"/Owner", "/labels/a", "/owner", "/quota/maxKeys", "/quota/x"}},
		{"all faults of value", 422, api.InvalidArgument, "PUT", "/v1/contracts/A",
			`{"owner":"","desiredState":"gone","quota":{"maxKeys":-1},"plan":"` + strings.Repeat("x", 64) + `"}`, "",
			[]string{"path.contractName", "/owner", "/plan", "/desiredState", "/quota/maxKeys"}},
		{"region", 422, api.InvalidArgument, "PUT", "/v1/contracts/new", `{"owner":"me","region":"moon"}`, "", []string{"/region"}},
		{"if-none-match", 422, api.InvalidArgument, "PUT", acme, `{"owner":"me"}`, `If-None-Match: "1"`, []string{"header.If-None-Match"}},
		{"quota", 422, api.Unsupported, "PUT", acme, `{"owner":"me","quota":{"maxBytes":1,"maxObjects":1}}`, "", []string{"/quota/maxBytes", "/quota/maxObjects"}},
		{"no contract", 404, api.ContractNotFound, "GET", "/v1/contracts/none", "", "", nil},
		{"no contract's usage", 404, api.ContractNotFound, "GET", "/v1/contracts/none/usage", "", "", nil},
		{"no contract's keys", 404, api.ContractNotFound, "GET", "/v1/contracts/none/keys", "", "", nil},
		{"no contract's key", 404, api.ContractNotFound, "GET", "/v1/contracts/none/keys/a", "", "", nil},
		{"key of no contract", 404, api.ContractNotFound, "PUT", "/v1/contracts/none/keys/a", own, "", nil},
		{"no key", 404, api.KeyNotFound, "GET", acme + "/keys/none", "", "", nil},
		{"acknowledge no key", 404, api.KeyNotFound, "PUT", acme + "/keys/none/acknowledgement", "", "", nil},
		{"owner", 409, api.ContractOwnedByOther, "PUT", acme, `{"owner":"you"}`, "", nil},
		{"another region", 409, api.ImmutableField, "PUT", acme, `{"owner":"me","region":"moon"}`, "", nil},
		{"not empty", 409, api.ContractNotEmpty, "DELETE", "/v1/contracts/full", "", "", nil},
		{"not active", 409, api.ContractNotActive, "PUT", "/v1/contracts/asleep/keys/a", own, "", nil},
		{"too many keys", 409, api.LimitExceeded, "PUT", acme + "/keys/more", `{"spec":{"slot":"more"}}`, "", nil},
		{"another spec", 409, api.KeySpecDiffers, "PUT", admin, `{"spec":{"slot":"other"}}`, "", nil},
		{"stale etag", 412, api.PreconditionFailed, "PUT", acme, `{"owner":"me"}`, `If-Match: "0"`, nil},
		{"exists", 412, api.PreconditionFailed, "PUT", acme, `{"owner":"me"}`, `If-None-Match: *`, nil},
		{"absent", 412, api.PreconditionFailed, "PUT", "/v1/contracts/none", `{"owner":"me"}`, `If-Match: *`, nil},
		{"stale delete", 412, api.PreconditionFailed, "DELETE", "/v1/contracts/asleep", "", `If-Match: "0"`, nil},
		{"not the contract's bucket", 422, api.InvalidArgument, "PUT", acme + "/keys/new",
			key(`"buckets":[{"bucket":"data","access":"readOnly"},{"bucket":"full-1","access":"readOnly"}]`), "", []string{"/spec/buckets/1/bucket"}},
		{"no buckets left", 422, api.InvalidArgument, "PUT", acme + "/keys/new", key(`"buckets":[],"sourceAddresses":[]`), "", []string{"/spec/buckets", "/spec/sourceAddresses"}},
		{"all faults of a key", 422, api.InvalidArgument, "PUT", acme + "/keys/new",
			`{"spec":{"slot":"","buckets":[{"bucket":"x","access":"all","prefix":"a//b"}],"sourceAddresses":["10.0.0.1"]},"keep":["1","2","3","4","5","6","7","8","9"]}`, "",
			[]string{"/spec/slot", "/spec/buckets/0/bucket", "/spec/buckets/0/access", "/spec/buckets/0/prefix", "/spec/sourceAddresses/0", "/keep"}},
		{"misspelt field of a key", 400, api.InvalidArgument, "PUT", acme + "/keys/new", key(`"sourceAdresses":["10.0.0.0/8"],"expiresAt":"soon"`), "",
			[]string{"/spec/expiresAt", "/spec/sourceAdresses"}},
		{"expired", 422, api.InvalidArgument, "PUT", acme + "/keys/new", key(`"expiresAt":"2020-01-01T00:00:00Z"`), "", []string{"/spec/expiresAt"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var headers []string
			if test.header != "" {
				headers = append(headers, test.header)
			}
			p := b.fails(test.status, test.code, test.method, test.path, test.body, headers...)
			if got := pointers(p); !slices.Equal(got, test.pointers) {
				t.Errorf("faults at %q, want %q", got, test.pointers)
			}
		})
	}

	p := b.fails(409, api.ContractNotEmpty, "DELETE", "/v1/contracts/full", "")
	if p.Limit == nil || p.Limit.Name != "buckets" || p.Limit.Current != 2 {
		t.Errorf("limit %+v, want 2 buckets", p.Limit)
	}
	p = b.fails(409, api.LimitExceeded, "PUT", acme+"/keys/more", `{"spec":{"slot":"more"}}`)
	if p.Limit == nil || p.Limit.Name != "maxKeys" || p.Limit.Max != 1 || p.Limit.Current != 1 {
		t.Errorf("limit %+v, want 1 of 1 keys", p.Limit)
	}
	if names := b.keyNames(""); !slices.Equal(names, []string{"admin"}) {
		t.Errorf("refused requests left keys %v", names)
	}
}

func TestUnavailable(t *testing.T) {
	b := newBench(t)
	b.ok(http.StatusOK, "GET", "/healthz", "", "Authorization: ")
	b.sick.Store(true)
	b.fails(http.StatusServiceUnavailable, api.Unavailable, "GET", "/healthz", "", "Authorization: ")
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	b.fails(http.StatusServiceUnavailable, api.Unavailable, "PUT", acme, `{"owner":"me"}`)
}

func TestInternal(t *testing.T) {
	b := newBench(t, func(cfg *service.Config) { cfg.Healthy = func() bool { panic("planted cause") } })
	p := b.fails(http.StatusInternalServerError, api.Internal, "GET", "/healthz", "")
	if strings.Contains(*p.Detail, "planted") {
		t.Errorf("the caller sees the cause: %s", *p.Detail)
	}
}

func TestSignAndChange(t *testing.T) {
	b := newBench(t)
	first := b.ok(http.StatusCreated, "PUT", acme, `{"owner":"me","quota":{"maxBuckets":3},"labels":{"a":"b"}}`)
	c := decode[api.Contract](t, first)
	if c.State != api.ContractStateActive || c.Code == "" || *c.Principal != c.Code || *c.EffectiveQuota.MaxBuckets != 3 ||
		c.Endpoints[0].Url != "http://s3.example" || !c.Endpoints[0].PathStyle || *c.Spec.Region != "us-east-1" {
		t.Errorf("signed %s", first.body)
	}
	etag := first.header.Get("ETag")

	// The same body, also spelled out, writes nothing.
	same := `{"owner":"me","quota":{"maxBuckets":3},"labels":{"a":"b"},"region":"us-east-1","desiredState":"active","plan":""}`
	again := b.ok(http.StatusOK, "PUT", acme, same)
	if again.header.Get("ETag") != etag || string(again.body) != string(first.body) {
		t.Errorf("a repeat changed the contract: %v, was %v", again, first)
	}
	changed := b.ok(http.StatusOK, "PUT", acme, `{"owner":"me","desiredState":"suspended"}`, "If-Match: "+etag)
	if changed.header.Get("ETag") == etag {
		t.Error("a change left the ETag")
	}
	c = decode[api.Contract](t, changed)
	if c.State != api.ContractStateSuspended || c.Spec.Quota != nil || c.Spec.Labels != nil || *c.Reason == "" || *c.Message == "" {
		t.Errorf("changed to %s", changed.body)
	}
	b.fails(http.StatusPreconditionFailed, api.PreconditionFailed, "PUT", acme, same, "If-Match: "+etag)
	b.ok(http.StatusOK, "PUT", acme, same, `If-Match: "x", `+changed.header.Get("ETag"))
	b.ok(http.StatusOK, "PUT", acme, same, "If-Match: *")

	b.ok(http.StatusNoContent, "DELETE", acme, "")
	b.ok(http.StatusNoContent, "DELETE", acme, "")
	signed := b.ok(http.StatusCreated, "PUT", acme, same, "If-None-Match: *")
	if signed.header.Get("ETag") == etag || decode[api.Contract](t, signed).Code == c.Code {
		t.Error("a contract signed again has the old one's ETag or code")
	}
}

// Of many writers with the same ETag one wins, which is what CAS is for.
func TestIfMatchHasOneWinner(t *testing.T) {
	b := newBench(t)
	etag := b.ok(http.StatusCreated, "PUT", acme, `{"owner":"me"}`).header.Get("ETag")
	statuses := make(chan int, 10)
	var group sync.WaitGroup
	for i := range cap(statuses) {
		group.Go(func() {
			statuses <- b.do("PUT", acme, fmt.Sprintf(`{"owner":"me","plan":"p%d"}`, i), "If-Match: "+etag).status
		})
	}
	group.Wait()
	count := map[int]int{}
	for range cap(statuses) {
		count[<-statuses]++
	}
	if count[http.StatusOK] != 1 || count[http.StatusPreconditionFailed] != cap(statuses)-1 {
		t.Errorf("statuses %v, want one 200 and the rest 412", count)
	}
}

func TestPending(t *testing.T) {
	b := newBench(t, func(cfg *service.Config) { cfg.PendingFor = time.Hour })
	signed := b.ok(http.StatusAccepted, "PUT", acme, `{"owner":"me"}`)
	c := decode[api.Contract](t, signed)
	if c.State != api.ContractStatePending || c.Code != "" || c.Principal != nil || signed.header.Get("Retry-After") != "3600" {
		t.Errorf("signed %v with Retry-After %q", signed, signed.header.Get("Retry-After"))
	}
	repeated := b.ok(http.StatusAccepted, "PUT", acme, `{"owner":"me"}`)
	if repeated.header.Get("ETag") != signed.header.Get("ETag") {
		t.Error("a repeat changed the ETag")
	}
	b.fails(http.StatusConflict, api.ContractNotActive, "PUT", admin, own)

	b.ahead.Store(int64(time.Hour))
	active := b.ok(http.StatusOK, "GET", acme, "")
	if c := decode[api.Contract](t, active); c.State != api.ContractStateActive || c.Code == "" {
		t.Errorf("after its time: %v", active)
	}
	if active.header.Get("ETag") == signed.header.Get("ETag") {
		t.Error("another representation has the same strong ETag")
	}
	b.ok(http.StatusCreated, "PUT", admin, own)
}

func TestSecretIsReplayedUntilAcknowledged(t *testing.T) {
	b := newBench(t)
	b.sign("acme", `{"owner":"me"}`)
	first := b.ok(http.StatusCreated, "PUT", admin, own)
	if first.header.Get("Cache-Control") != "no-store" {
		t.Error("an answer with a secret may be cached")
	}
	repeat := b.ok(http.StatusOK, "PUT", admin, own)
	if string(repeat.body) != string(first.body) || repeat.header.Get("Cache-Control") != "no-store" {
		t.Errorf("repeated %v, was %v", repeat, first)
	}
	secret := decode[api.IssuedKey](t, first).SecretAccessKey
	b.ok(http.StatusNoContent, "PUT", admin+"/acknowledgement", "")
	b.ok(http.StatusNoContent, "PUT", admin+"/acknowledgement", "")
	for _, a := range []answer{b.do("PUT", admin, own), b.do("GET", admin, ""), b.do("GET", acme+"/keys", "")} {
		if strings.Contains(string(a.body), secret) {
			t.Errorf("the secret is in %v", a)
		}
	}
	b.fails(http.StatusGone, api.SecretDelivered, "PUT", admin, own)
	if k := decode[api.Key](t, b.ok(http.StatusOK, "GET", admin, "")); !k.Acknowledged {
		t.Error("the key does not say that it was acknowledged")
	}
	// The storage still needs the secret.
	if k, _ := b.store.Key("acme", "admin"); k.Secret.Reveal() != secret {
		t.Error("the key cannot be used any more")
	}
}

func TestSlotHoldsTheKeyAndWhatIsKept(t *testing.T) {
	b := newBench(t)
	b.sign("acme", `{"owner":"me","quota":{"maxKeys":3}}`)
	b.issue("bystander", "other")
	first := b.issue("one", "slot")
	second := b.issue("two", "slot", first.Key.AccessKeyId)
	if got := b.keyNames("?slot=slot"); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("kept %v, want one and two", got)
	}
	// The quota counts what is left after the replacement.
	b.issue("three", "slot", second.Key.AccessKeyId)
	if got := b.keyNames("?slot=slot"); !slices.Equal(got, []string{"three", "two"}) {
		t.Errorf("kept %v, want two and three", got)
	}
	if _, _, ok := b.store.Lookup(first.Key.AccessKeyId); ok {
		t.Error("the storage still knows the replaced key")
	}
	// A repeat owes the same state, and keep is not part of what it is compared by.
	b.ok(http.StatusOK, "PUT", acme+"/keys/three", `{"spec":{"slot":"slot"}}`)
	if got := b.keyNames(""); !slices.Equal(got, []string{"bystander", "three"}) {
		t.Errorf("left %v, want bystander and three", got)
	}
}

func TestEveryDeleteMayBeRepeated(t *testing.T) {
	b := newBench(t)
	for range 2 {
		for _, path := range []string{acme, admin, acme + "/keys?slot=admin"} {
			b.ok(http.StatusNoContent, "DELETE", path, "")
		}
	}
	b.sign("acme", `{"owner":"me"}`)
	one := b.issue("one", "a")
	two := b.issue("two", "a", one.Key.AccessKeyId)
	three := b.issue("three", "b")
	b.ok(http.StatusNoContent, "DELETE", acme+"/keys?slot=a", "")
	if got := b.keyNames(""); !slices.Equal(got, []string{"three"}) {
		t.Errorf("left %v, want three", got)
	}
	b.ok(http.StatusNoContent, "DELETE", acme, "")
	for _, k := range []api.IssuedKey{one, two, three} {
		if _, _, ok := b.store.Lookup(k.Key.AccessKeyId); ok {
			t.Errorf("the key %s outlived its contract", k.Key.Name)
		}
	}
	b.sign("acme", `{"owner":"me"}`)
	if got := b.keyNames(""); len(got) > 0 {
		t.Errorf("a contract signed again has keys %v", got)
	}
}

func TestSpecIsReturnedAsGiven(t *testing.T) {
	b := newBench(t)
	c := b.sign("acme", `{"owner":"me"}`)
	b.storage.owners["data"] = c.Code
	spec := `{"buckets":[{"access":"readWrite","bucket":"data","prefix":"app/"},{"access":"readOnly","bucket":"data"}],` +
		`"expiresAt":"2999-01-01T00:00:00Z","slot":"app","sourceAddresses":["10.0.0.0/8","2001:db8::/32"]}`
	issued := b.ok(http.StatusCreated, "PUT", acme+"/keys/app", `{"spec":`+spec+`}`)
	var got struct {
		Key struct{ Spec json.RawMessage }
	}
	if err := json.Unmarshal(issued.body, &got); err != nil || string(got.Key.Spec) != spec {
		t.Errorf("spec %s, want %s", got.Key.Spec, spec)
	}
	// The same instant in another zone is the same spec.
	b.ok(http.StatusOK, "PUT", acme+"/keys/app", `{"spec":`+strings.Replace(spec, "2999-01-01T00:00:00Z", "2999-01-01T09:00:00+09:00", 1)+`}`)
	b.fails(http.StatusConflict, api.KeySpecDiffers, "PUT", acme+"/keys/app", `{"spec":`+strings.Replace(spec, "app/", "app2/", 1)+`}`)
}

func TestExpiredKeyIsInactive(t *testing.T) {
	b := newBench(t)
	b.sign("acme", `{"owner":"me"}`)
	at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	b.ok(http.StatusCreated, "PUT", admin, `{"spec":{"slot":"a","expiresAt":"`+at+`"}}`)
	b.ahead.Store(int64(2 * time.Hour))
	if k := decode[api.Key](t, b.ok(http.StatusOK, "GET", admin, "")); k.State != api.KeyStateInactive {
		t.Errorf("state %s, want inactive", k.State)
	}
}

func TestPages(t *testing.T) {
	b := newBench(t)
	var contracts, keys []string
	for i := range 7 {
		name := fmt.Sprintf("c%d", i)
		contracts = append(contracts, name)
		b.sign(name, fmt.Sprintf(`{"owner":"owner-%d"}`, i%2))
	}
	b.sign("acme", `{"owner":"me"}`)
	b.sign("acme-2", `{"owner":"me"}`) // its keys must not appear among those of acme
	b.ok(http.StatusCreated, "PUT", "/v1/contracts/acme-2/keys/k0", own)
	for i := range 5 {
		name := fmt.Sprintf("k%d", i)
		keys = append(keys, name)
		b.issue(name, name)
	}
	for _, test := range []struct {
		path string
		want []string
	}{
		{"/v1/contracts?pageSize=3", append([]string{"acme", "acme-2"}, contracts...)},
		{"/v1/contracts?pageSize=500", append([]string{"acme", "acme-2"}, contracts...)},
		{"/v1/contracts?pageSize=1&owner=owner-1", []string{"c1", "c3", "c5"}},
		{"/v1/contracts?owner=nobody", nil},
		{acme + "/keys?pageSize=2", keys},
		{acme + "/keys?pageSize=5", keys},
		{acme + "/keys?slot=k3&pageSize=1", []string{"k3"}},
	} {
		var got []string
		for path := test.path; path != ""; {
			page := decode[struct {
				Items         []struct{ Name string }
				NextPageToken string
			}](t, b.ok(http.StatusOK, "GET", path, ""))
			for _, item := range page.Items {
				got = append(got, item.Name)
			}
			if path = ""; page.NextPageToken != "" {
				path = test.path + "&pageToken=" + page.NextPageToken
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.path, got, test.want)
		}
	}
}

func TestUsageAndRegions(t *testing.T) {
	b := newBench(t)
	c := b.sign("acme", `{"owner":"me"}`)
	b.issue("one", "a")
	b.issue("two", "b")
	b.storage.owners["data"] = c.Code
	if u := decode[api.Usage](t, b.ok(http.StatusOK, "GET", acme+"/usage", "")); u.Buckets != 1 || u.Keys != 2 {
		t.Errorf("usage %+v, want 1 bucket and 2 keys", u)
	}
	regions := decode[api.RegionList](t, b.ok(http.StatusOK, "GET", "/v1/regions", ""))
	if len(regions.Items) != 1 || regions.Items[0] != (api.Endpoint{Url: "http://s3.example", Region: "us-east-1", PathStyle: true}) {
		t.Errorf("regions %+v", regions)
	}
}

// Twenty callers with one key name get one key.
func TestConcurrentRepeatsGetOneKey(t *testing.T) {
	b := newBench(t)
	b.sign("acme", `{"owner":"me"}`)
	bodies := make(chan string, 20)
	var group sync.WaitGroup
	for range cap(bodies) {
		group.Go(func() { bodies <- string(b.do("PUT", admin, own).body) })
	}
	group.Wait()
	first := <-bodies
	for range cap(bodies) - 1 {
		if other := <-bodies; other != first {
			t.Errorf("two answers: %s and %s", first, other)
		}
	}
	if got := b.keyNames(""); !slices.Equal(got, []string{"admin"}) {
		t.Errorf("keys %v, want one", got)
	}
}

// A closed index is opened again, whatever became of the contract.
func TestRefusedCancellationLeavesTheContractUsable(t *testing.T) {
	b := newBench(t)
	c := b.sign("acme", `{"owner":"me"}`)
	b.fails(http.StatusPreconditionFailed, api.PreconditionFailed, "DELETE", acme, "", `If-Match: "0"`)
	if b.storage.closed[c.Code] != 0 {
		t.Error("the contract can make no more buckets")
	}
	etag := b.ok(http.StatusOK, "GET", acme, "").header.Get("ETag")
	b.ok(http.StatusNoContent, "DELETE", acme, "", "If-Match: "+etag)
}

func TestBuckets(t *testing.T) {
	b := newBench(t)
	mine, other := b.sign("acme", `{"owner":"me"}`).Code, b.sign("other", `{"owner":"me"}`).Code
	b.storage.mu.Lock()
	maps.Copy(b.storage.owners, map[string]string{"a.b.c": mine, "bucket": mine, "cellar": mine, "theirs": other})
	b.storage.mu.Unlock()
	const buckets, quota = acme + "/buckets", acme + "/buckets/bucket/quota"
	var names []string
	for token := ""; ; {
		page := decode[api.BucketList](t, b.ok(http.StatusOK, "GET", buckets+"?pageSize=1"+token, ""))
		for _, found := range page.Items {
			names = append(names, found.Name)
		}
		if page.NextPageToken == nil {
			break
		}
		token = "&pageToken=" + *page.NextPageToken
	}
	if !slices.Equal(names, []string{"a.b.c", "bucket", "cellar"}) {
		t.Errorf("buckets %q", names)
	}
	for _, body := range []string{`{"maxBytes":1024,"maxObjects":9223372036854775807}`, `{"maxBytes":1}`, `{}`} {
		var want api.BucketQuota
		if err := json.Unmarshal([]byte(body), &want); err != nil {
			t.Fatal(err)
		}
		for _, got := range []api.Bucket{
			decode[api.Bucket](t, b.ok(http.StatusOK, "PUT", quota, body)),
			decode[api.Bucket](t, b.ok(http.StatusOK, "GET", buckets+"/bucket", "")),
		} {
			if got.Name != "bucket" || *got.Bytes != 7 || *got.Objects != 1 || !reflect.DeepEqual(got.Quota, want) {
				t.Errorf("%s: %+v", body, got)
			}
		}
	}
	p := b.fails(http.StatusUnprocessableEntity, api.InvalidArgument, "PUT", quota, `{"maxBytes":0,"maxObjects":-1}`)
	if got := pointers(p); !slices.Equal(got, []string{"/maxBytes", "/maxObjects"}) {
		t.Errorf("faults at %q", got)
	}
	b.fails(http.StatusBadRequest, api.InvalidArgument, "PUT", quota, `{"maxBytes":9223372036854775808}`)
	b.fails(http.StatusBadRequest, api.InvalidArgument, "PUT", quota, `{"maxbytes":1}`)
	b.fails(http.StatusNotFound, api.BucketNotFound, "PUT", buckets+"/theirs/quota", `{}`)
	b.fails(http.StatusNotFound, api.BucketNotFound, "GET", buckets+"/theirs", "")
	b.fails(http.StatusNotFound, api.ContractNotFound, "GET", "/v1/contracts/unknown/buckets", "")
	if b.storage.quotas["theirs"] != (store.Quota{}) {
		t.Error("another contract's bucket was bounded")
	}
}
