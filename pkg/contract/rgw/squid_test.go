package rgw_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// squid plays a gateway with accounts: the Admin Ops API for accounts and users,
// as the sources of Ceph 19 and 20 have it, in front of a versitygw, which
// serves S3 and what the IAM API does inside an account. No radosgw that has
// accounts is a part of this.
type squid struct {
	*httptest.Server
	t       *testing.T
	gateway *harness.VersityGW
	s3      *httputil.ReverseProxy
	// caps and admin are what the driver's own user may do; strict says that
	// accounts are read and deleted by an admin only, as at Ceph 19.
	caps          []map[string]string
	admin, strict bool

	mu       sync.Mutex
	accounts map[string]*squidAccount // by id
	users    map[string]*squidUser    // of the Admin Ops API, by uid
	keyOf    map[string]string        // the account of a key, by its id
	bucketOf map[string]string        // the account of a bucket, by its name
	policy   string                   // the last that was put
}

type squidAccount struct {
	ID         string          `json:"id"`
	Name       string          `json:"name"`
	MaxBuckets int             `json:"max_buckets"`
	within     map[string]bool // its IAM users, by name
}

type squidUser struct {
	ID          string              `json:"user_id"`
	DisplayName string              `json:"display_name"`
	AccountID   string              `json:"account_id"`
	Keys        []map[string]string `json:"keys"`
	Caps        []map[string]string `json:"caps"`
	Admin       any                 `json:"admin"`
}

const driverKeyID, driverSecret = "driver", "planted-driver-secret"

var (
	idForm   = regexp.MustCompile(`^RGW[0-9]{17}$`)
	nameForm = regexp.MustCompile(`^[\w+=,.@-]{1,64}$`)
)

func startSquid(t *testing.T) *squid {
	t.Helper()
	dir := t.TempDir()
	program, err := harness.BuildIn(t.Context(), dir, "test/versitygw")
	must(t, err)
	gateway, err := harness.StartVersityGW(t.Context(), program, dir, true)
	must(t, err)
	t.Cleanup(func() { gateway.Kill() })
	to, err := url.Parse(gateway.S3)
	must(t, err)
	s := playSquid(t)
	s.gateway = gateway
	s.s3 = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, r.In.Host
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 32, DisableCompression: true},
	}
	return s
}

// playSquid is one without storage.
func playSquid(t *testing.T) *squid {
	s := &squid{
		t:        t,
		caps:     []map[string]string{{"type": "accounts", "perm": "*"}, {"type": "users", "perm": "*"}},
		accounts: map[string]*squidAccount{}, users: map[string]*squidUser{}, keyOf: map[string]string{}, bucketOf: map[string]string{},
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *squid) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/admin/"):
		if _, said := s.signedBy(r, nil, map[string]string{driverKeyID: driverSecret}); said != "" {
			refuse(w, http.StatusForbidden, said)
			return
		}
		s.serveAdmin(w, r)
	case r.Method == http.MethodPost && r.URL.Path == "/" && r.Header.Get("Content-Type") == "application/x-www-form-urlencoded":
		s.serveIAM(w, r)
	case r.Method == http.MethodHead && r.URL.Path == "/": // that something answers is all that is asked
	default:
		s.serveS3(w, r)
	}
}

// signedBy checks a signature, made with one of the keys given. said is the
// code of what is wrong with it.
func (s *squid) signedBy(r *http.Request, body []byte, keys map[string]string) (id, said string) {
	id, region, service, headers := authorization(r)
	key, ok := keys[id]
	if !ok {
		return id, "InvalidAccessKeyId"
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return id, "AccessDenied"
	}
	again, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+r.Host+r.URL.RequestURI(), bytes.NewReader(body))
	must(s.t, err)
	again.ContentLength = max(r.ContentLength, 0)
	for _, name := range headers {
		if name != "host" && name != "content-length" {
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	hash := r.Header.Get("X-Amz-Content-Sha256")
	if hash == "" {
		hash = sha256Of(body)
	}
	must(s.t, v4.NewSigner().SignHTTP(r.Context(), aws.Credentials{AccessKeyID: id, SecretAccessKey: key}, again, hash, service, region, at))
	if again.Header.Get("Authorization") != r.Header.Get("Authorization") {
		return id, "SignatureDoesNotMatch"
	}
	return id, ""
}

var authorizationForm = regexp.MustCompile(`Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request, ?SignedHeaders=([^,]+),`)

func authorization(r *http.Request) (id, region, service string, headers []string) {
	found := authorizationForm.FindStringSubmatch(r.Header.Get("Authorization"))
	if found == nil {
		return "", "", "", nil
	}
	return found[1], found[2], found[3], strings.Split(found[4], ";")
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"Code":%q,"RequestId":"tx1","HostId":"h"}`, code)
}

func refuseXML(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message/></Error>`, code)
}

func (s *squid) serveAdmin(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	if q.Has("secret-key") {
		s.t.Errorf("a secret is sent with %s %s", r.Method, r.URL.Path)
	}
	var status int
	var answer any
	switch call := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/admin/"); call {
	case "POST account":
		status, answer = s.createAccount(q)
	case "GET account", "PUT account", "DELETE account":
		status, answer = s.account(r.Method, q)
	case "PUT user":
		if q.Has("key") {
			status, answer = s.makeKey(q)
		} else {
			status, answer = s.createUser(q)
		}
	case "GET user":
		status, answer = http.StatusNotFound, "NoSuchUser"
		if u := s.users[q.Get("uid")]; u != nil {
			status, answer = http.StatusOK, u
		} else if q.Get("access-key") == driverKeyID {
			u := squidUser{ID: "driver", Caps: s.caps, Admin: s.admin}
			if s.strict { // as release 16 at least writes it
				u.Admin = strconv.FormatBool(s.admin)
			}
			status, answer = http.StatusOK, u
		}
	case "DELETE user":
		u := s.users[q.Get("uid")]
		if status, answer = http.StatusNotFound, "NoSuchUser"; u != nil {
			status, answer = http.StatusOK, struct{}{}
			delete(s.users, u.ID)
			for _, k := range u.Keys {
				delete(s.keyOf, k["access_key"])
			}
		}
	default:
		s.t.Errorf("a gateway with accounts was asked for %s", call)
		status, answer = http.StatusMethodNotAllowed, "MethodNotAllowed"
	}
	if code, ok := answer.(string); ok {
		refuse(w, status, code)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (s *squid) createAccount(q url.Values) (int, any) {
	id, name := q.Get("id"), q.Get("name")
	if !idForm.MatchString(id) || name == "" || strings.ContainsAny(name, "$:") {
		return http.StatusBadRequest, "InvalidArgument"
	}
	for _, a := range s.accounts {
		if a.ID == id || a.Name == name {
			return http.StatusConflict, "AccountAlreadyExists"
		}
	}
	a := &squidAccount{ID: id, MaxBuckets: 1000, within: map[string]bool{}}
	s.accounts[id] = a
	a.set(q)
	return http.StatusOK, a
}

func (a *squidAccount) set(q url.Values) {
	if q.Has("name") {
		a.Name = q.Get("name")
	}
	if q.Has("max-buckets") {
		n, _ := strconv.ParseInt(q.Get("max-buckets"), 10, 64)
		a.MaxBuckets = int(int32(n)) // as the gateway does
	}
}

func (s *squid) account(method string, q url.Values) (int, any) {
	if s.strict && !s.admin && method != http.MethodPut {
		return http.StatusForbidden, "AccessDenied"
	}
	a := s.accounts[q.Get("id")]
	if a == nil {
		return http.StatusNotFound, "NoSuchKey"
	}
	switch method {
	case http.MethodPut:
		a.set(q)
	case http.MethodDelete:
		if len(a.within) > 0 || slices.ContainsFunc(slices.Collect(maps.Values(s.users)), func(u *squidUser) bool { return u.AccountID == a.ID }) {
			return http.StatusConflict, "BucketNotEmpty"
		}
		if len(s.buckets(a.ID)) > 0 {
			return http.StatusConflict, "BucketAlreadyExists"
		}
		delete(s.accounts, a.ID)
	}
	return http.StatusOK, a
}

func (s *squid) createUser(q url.Values) (int, any) {
	id := q.Get("uid")
	switch {
	case s.users[id] != nil:
		return http.StatusConflict, "UserAlreadyExists"
	case s.keyOf[q.Get("access-key")] != "":
		return http.StatusConflict, "KeyExists"
	case s.accounts[q.Get("account-id")] == nil:
		return http.StatusNotFound, "NoSuchKey"
	case !nameForm.MatchString(q.Get("display-name")) || idForm.MatchString(id) || q.Get("account-root") != "true":
		return http.StatusBadRequest, "InvalidArgument"
	}
	s.users[id] = &squidUser{ID: id, DisplayName: q.Get("display-name"), AccountID: q.Get("account-id")}
	if q.Get("generate-key") == "true" {
		s.makeKey(q)
	}
	return http.StatusOK, s.users[id]
}

func (s *squid) makeKey(q url.Values) (int, any) {
	u, id := s.users[q.Get("uid")], q.Get("access-key")
	if u == nil {
		return http.StatusNotFound, "NoSuchUser"
	}
	u.Keys = append(slices.DeleteFunc(u.Keys, func(k map[string]string) bool { return k["access_key"] == id }), map[string]string{"access_key": id, "secret_key": rand.Text()})
	s.keyOf[id] = u.AccountID
	return http.StatusOK, u.Keys
}

func (s *squid) buckets(account string) []string {
	var out []string
	for b, a := range s.bucketOf {
		if a == account {
			out = append(out, b)
		}
	}
	slices.Sort(out)
	return out
}

// rootKeys are those of all root users, with their secrets.
func (s *squid) rootKeys() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]string{}
	for _, u := range s.users {
		for _, k := range u.Keys {
			out[k["access_key"]] = k["secret_key"]
		}
	}
	return out
}

// serveIAM has the calls that a root user signed done by versitygw, and notes
// what becomes of users and keys.
func (s *squid) serveIAM(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	must(s.t, err)
	id, said := s.signedBy(r, body, s.rootKeys())
	if said != "" {
		refuseXML(w, http.StatusForbidden, said)
		return
	}
	form, err := url.ParseQuery(string(body))
	must(s.t, err)
	for field := range form {
		if strings.HasPrefix(field, "Tags.") {
			s.t.Errorf("%s is asked to keep tags, which the gateway does not", form.Get("Action"))
		}
	}
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, s.gateway.IAM+"/", bytes.NewReader(body))
	must(s.t, err)
	request.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	own := aws.Credentials{AccessKeyID: s.gateway.AccessKeyID, SecretAccessKey: s.gateway.Secret}
	must(s.t, v4.NewSigner().SignHTTP(r.Context(), own, request, sha256Of(body), "iam", harness.VersityGWRegion, time.Now()))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		refuseXML(w, http.StatusServiceUnavailable, "ServiceUnavailable")
		return
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode < 300 {
		s.note(id, form, text)
	}
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(text)
}

func (s *squid) note(rootKeyID string, form url.Values, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.accounts[s.keyOf[rootKeyID]]
	switch form.Get("Action") {
	case "PutUserPolicy":
		s.policy = form.Get("PolicyDocument")
	case "CreateUser":
		a.within[form.Get("UserName")] = true
	case "DeleteUser":
		delete(a.within, form.Get("UserName"))
	case "CreateAccessKey":
		var made struct {
			ID string `xml:"CreateAccessKeyResult>AccessKey>AccessKeyId"`
		}
		must(s.t, xml.Unmarshal(text, &made))
		s.keyOf[made.ID] = a.ID
	}
}

// serveS3 lets versitygw serve it, and keeps accounts apart, as it has but one.
func (s *squid) serveS3(w http.ResponseWriter, r *http.Request) {
	id, _, _, _ := authorization(r)
	bucket, _, inside := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	whole := !inside && bucket != "" && (r.URL.RawQuery == "" || strings.HasPrefix(r.URL.RawQuery, "x-id="))
	if secret, root := s.rootKeys()[id]; root {
		if _, said := s.signedBy(r, nil, map[string]string{id: secret}); said != "" || r.Method != http.MethodGet || bucket != "" {
			refuseXML(w, http.StatusForbidden, "AccessDenied")
			return
		}
		s.listBuckets(w, id)
		return
	}
	s.mu.Lock()
	account, owner := s.keyOf[id], s.bucketOf[bucket]
	full := false
	if a := s.accounts[account]; a != nil && r.Method == http.MethodPut && whole && owner == "" {
		full = a.MaxBuckets < 0 || a.MaxBuckets > 0 && len(s.buckets(account)) >= a.MaxBuckets
	}
	s.mu.Unlock()
	switch {
	case owner != "" && account != "" && owner != account:
		refuseXML(w, http.StatusForbidden, "AccessDenied")
		return
	case full:
		refuseXML(w, http.StatusBadRequest, "TooManyBuckets")
		return
	}
	answer := &status{ResponseWriter: w}
	s.s3.ServeHTTP(answer, r)
	if !whole || answer.code >= 300 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method {
	case http.MethodPut:
		s.bucketOf[bucket] = account
	case http.MethodDelete:
		delete(s.bucketOf, bucket)
	}
}

func (s *squid) listBuckets(w http.ResponseWriter, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprint(w, `<ListAllMyBucketsResult><Buckets>`)
	for _, b := range s.buckets(s.keyOf[id]) {
		_, _ = fmt.Fprintf(w, `<Bucket><Name>%s</Name></Bucket>`, b)
	}
	_, _ = fmt.Fprint(w, `</Buckets></ListAllMyBucketsResult>`)
}

// status notes the status of an answer.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}
