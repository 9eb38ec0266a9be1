package flat

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/test/s3fake"
)

// service is the administration of a storage service beside an S3 that is the
// same for all of them. It holds as much as the driver's everyday calls meet, and
// refuses what the real ones refuse.
type service struct {
	storage *s3fake.Server
	// admin answers what is not S3, and says whether it did.
	admin func(w http.ResponseWriter, r *http.Request, body []byte) bool
	// hold gives it a key of a slot of contract "team", as a driver's grant does.
	hold func(slot string)

	mu    sync.Mutex
	calls []string
}

// start serves until the test ends, and returns the address.
func (s *service) start(t *testing.T) string {
	t.Helper()
	s.storage = s3fake.New()
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return web.URL
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	form := url.Values{}
	if r.Method == http.MethodPost {
		form, _ = url.ParseQuery(string(body))
	}
	s.calls = append(s.calls, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+form.Get("Action")))
	if s.admin(w, r, body) {
		return
	}
	if r.URL.Query().Has("list-type") {
		_, _ = io.WriteString(w, "<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>")
		return
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	s.storage.ServeHTTP(w, r)
}

// fill gives the contract n buckets with a key each.
func (s *service) fill(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		name := fmt.Sprintf("filled-%d", i)
		s.hold("ba-" + name)
		s.storage.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPut, "/"+name, http.NoBody))
	}
}

// since are the calls since it was asked last.
func (s *service) since() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.calls = nil }()
	return slices.Clone(s.calls)
}

func refuse(w http.ResponseWriter, status int, code string) bool {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<ErrorResponse><Code>%[1]s</Code><Error><Code>%[1]s</Code></Error></ErrorResponse>", code)
	return true
}

var credential = regexp.MustCompile(`Credential=([^/]+)/`)

// newVersityGW has accounts, and policies of buckets that name no others.
func newVersityGW() *service {
	type account struct{ Access, Secret, Role string }
	accounts, s := map[string]account{}, &service{}
	s.hold = func(slot string) { accounts["team."+slot+".key"] = account{"team." + slot + ".key", "secret", "user"} }
	s.admin = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		access := r.URL.Query().Get("access")
		have, there := accounts[access]
		fail := func(code string) bool {
			_, err := fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
			return err == nil
		}
		switch r.Method + " " + r.URL.Path {
		case "PATCH /list-users":
			_, _ = io.WriteString(w, "<ListUserAccountsResult>")
			for _, a := range accounts {
				_, _ = fmt.Fprintf(w, "<Accounts><Access>%s</Access><Secret>%s</Secret><Role>%s</Role></Accounts>", a.Access, a.Secret, a.Role)
			}
			_, _ = io.WriteString(w, "</ListUserAccountsResult>")
		case "PATCH /list-buckets":
			_, _ = io.WriteString(w, "<ListBucketsResult></ListBucketsResult>")
		case "PATCH /create-user":
			var a account
			_ = xml.Unmarshal(body, &a)
			if _, taken := accounts[a.Access]; taken {
				w.WriteHeader(http.StatusConflict)
				return fail("XAdminUserExists")
			}
			accounts[a.Access] = a
			w.WriteHeader(http.StatusCreated)
		case "PATCH /update-user":
			if !there {
				w.WriteHeader(http.StatusNotFound)
				return fail("XAdminUserNotFound")
			}
			_ = xml.Unmarshal(body, &have)
			accounts[access] = have
		case "PATCH /delete-user":
			delete(accounts, access)
		default:
			signer := credential.FindStringSubmatch(r.Header.Get("Authorization"))
			if _, known := accounts[signer[1]]; !known && signer[1] != root {
				w.WriteHeader(http.StatusForbidden)
				return fail("InvalidAccessKeyId")
			}
			if r.Method != http.MethodPut || !r.URL.Query().Has("policy") {
				return false
			}
			var policy struct {
				Statement []struct{ Principal struct{ AWS []string } }
			}
			_ = json.Unmarshal(body, &policy)
			for _, statement := range policy.Statement {
				for _, principal := range statement.Principal.AWS {
					if _, known := accounts[principal]; !known {
						w.WriteHeader(http.StatusBadRequest)
						return fail("MalformedPolicy")
					}
				}
			}
			return false
		}
		return true
	}
	return s
}

// newIAM has users, and deletes none that has a policy or keys.
func newIAM() *service {
	type user struct {
		path, policy, tags string
		keys               []string
	}
	users, made, s := map[string]*user{}, 0, &service{}
	s.hold = func(slot string) {
		users["team."+slot] = &user{path: "/contract-cosi/team/" + slot + "/", policy: "{}", keys: []string{"AK-" + slot}}
	}
	s.admin = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		if r.Method != http.MethodPost {
			return false
		}
		form, _ := url.ParseQuery(string(body))
		name, action := form.Get("UserName"), form.Get("Action")
		u := users[name]
		if u == nil && action != "CreateUser" && action != "ListUsers" {
			return refuse(w, http.StatusNotFound, "NoSuchEntity")
		}
		result := ""
		show := func() string {
			return fmt.Sprintf("<User><UserName>%s</UserName><Path>%s</Path><UserId>u</UserId><Arn>a</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate><Tags>%s</Tags></User>", name, u.path, u.tags)
		}
		switch action {
		case "CreateUser":
			if u != nil {
				return refuse(w, http.StatusConflict, "EntityAlreadyExists")
			}
			u = &user{path: form.Get("Path")}
			for i := 1; form.Has(fmt.Sprintf("Tags.member.%d.Key", i)); i++ {
				u.tags += fmt.Sprintf("<member><Key>%s</Key><Value>%s</Value></member>", form.Get(fmt.Sprintf("Tags.member.%d.Key", i)), form.Get(fmt.Sprintf("Tags.member.%d.Value", i)))
			}
			users[name] = u
			result = show()
		case "GetUser":
			result = show()
		case "PutUserPolicy":
			u.policy = form.Get("PolicyDocument")
		case "DeleteUserPolicy":
			u.policy = ""
		case "CreateAccessKey":
			made++
			id := fmt.Sprintf("AK%d", made)
			u.keys = append(u.keys, id)
			result = fmt.Sprintf("<AccessKey><UserName>%s</UserName><AccessKeyId>%s</AccessKeyId><Status>Active</Status><SecretAccessKey>secret-of-%s</SecretAccessKey></AccessKey>", name, id, id)
		case "ListAccessKeys":
			result = "<AccessKeyMetadata>"
			for _, id := range u.keys {
				result += fmt.Sprintf("<member><AccessKeyId>%s</AccessKeyId><Status>Active</Status></member>", id)
			}
			result += "</AccessKeyMetadata><IsTruncated>false</IsTruncated>"
		case "DeleteAccessKey":
			u.keys = slices.DeleteFunc(u.keys, func(id string) bool { return id == form.Get("AccessKeyId") })
		case "DeleteUser":
			if u.policy != "" || len(u.keys) > 0 {
				return refuse(w, http.StatusConflict, "DeleteConflict")
			}
			delete(users, name)
		}
		_, _ = fmt.Fprintf(w, `<%[1]sResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><%[1]sResult>%[2]s</%[1]sResult></%[1]sResponse>`, action, result)
		return true
	}
	return s
}

// newRGW has users, each with keys of its own, by the Admin Ops API.
func newRGW() *service {
	type key struct {
		User   string `json:"user"`
		Access string `json:"access_key"`
		Secret string `json:"secret_key"`
	}
	type user struct {
		ID          string `json:"user_id"`
		DisplayName string `json:"display_name"`
		Keys        []key  `json:"keys"`
	}
	users, s := map[string]*user{}, &service{}
	s.hold = func(slot string) {
		users["cosi_team$"+slot] = &user{ID: "cosi_team$" + slot, Keys: []key{{"cosi_team$" + slot, "AK-" + slot, "secret"}}}
	}
	s.admin = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		query := r.URL.Query()
		uid := query.Get("uid")
		keyed := func(u *user) {
			u.Keys = append(u.Keys, key{uid, query.Get("access-key"), "secret-of-" + query.Get("access-key")})
		}
		switch {
		case r.Method == http.MethodPost:
			form, _ := url.ParseQuery(string(body))
			if action := form.Get("Action"); users[form.Get("UserName")] != nil {
				result := ""
				if action == "ListUserPolicies" {
					result = "<PolicyNames><member>contract-cosi-driver</member></PolicyNames>"
				}
				_, _ = fmt.Fprintf(w, "<%[1]sResponse><%[1]sResult>%[2]s</%[1]sResult></%[1]sResponse>", action, result)
				return true
			}
			return refuse(w, http.StatusNotFound, "NoSuchEntity")
		case !strings.HasPrefix(r.URL.Path, "/admin/user"):
			return false
		case r.Method == http.MethodPut && !query.Has("key") && !query.Has("quota"):
			if users[uid] != nil {
				return refuse(w, http.StatusConflict, "UserAlreadyExists")
			}
			users[uid] = &user{ID: uid, DisplayName: query.Get("display-name"), Keys: []key{}}
			if query.Has("access-key") {
				keyed(users[uid])
			}
			_ = json.NewEncoder(w).Encode(users[uid])
		case users[uid] == nil:
			return refuse(w, http.StatusNotFound, "NoSuchUser")
		case r.Method == http.MethodPut && query.Has("key"):
			keyed(users[uid])
			_ = json.NewEncoder(w).Encode(users[uid].Keys)
		case r.Method == http.MethodDelete && query.Has("key"):
			users[uid].Keys = slices.DeleteFunc(users[uid].Keys, func(k key) bool { return k.Access == query.Get("access-key") })
		case r.Method == http.MethodDelete:
			delete(users, uid)
		case r.Method == http.MethodGet:
			_ = json.NewEncoder(w).Encode(users[uid])
		}
		return true
	}
	return s
}
