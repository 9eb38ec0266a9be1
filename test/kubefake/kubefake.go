// Package kubefake is as much of a Kubernetes API server as the journal needs,
// and can be made to fail where a real one cannot on demand: it keeps Secrets
// of one namespace, with resourceVersions, preconditions, pages, label
// selectors and watches, and drops connections, loses answers, forgets history
// or holds its watches back when told to.
package kubefake

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
)

// Namespace is the one there is.
const Namespace = "contract-cosi"

// Fault is what becomes of a call.
type Fault struct {
	// Drop closes the connection: before the call is carried out, or after.
	Drop, DropAnswer bool
	// Refuse answers with this error.
	Refuse *apierrors.StatusError
}

// Server is a running API server.
type Server struct {
	http *httptest.Server

	mu       sync.Mutex
	revision uint64
	secrets  map[string]corev1.Secret
	history  []event
	oldest   uint64 // what came up to here is forgotten
	pages    map[string][]corev1.Secret
	calls    map[string]int
	fault    func(verb, name string) Fault
	held     bool
	news     chan struct{} // closed and replaced whenever a watch should look
	cut      int           // watches of before are ended
}

type event struct {
	kind     string
	revision uint64
	secret   corev1.Secret
}

// Start runs a server until the test ends.
func Start(t testing.TB) *Server {
	s := &Server{
		revision: 100, secrets: map[string]corev1.Secret{}, pages: map[string][]corev1.Secret{}, calls: map[string]int{}, news: make(chan struct{}),
		fault: func(string, string) Fault { return Fault{} },
	}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.CutWatches()
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Config is how a client reaches the server.
func (s *Server) Config() *rest.Config { return &rest.Config{Host: s.http.URL} }

// Kubeconfig is the text of a kubeconfig that reaches the server.
func (s *Server) Kubeconfig() string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: fake
clusters: [{name: fake, cluster: {server: %q}}]
contexts: [{name: fake, context: {cluster: fake, user: fake}}]
users: [{name: fake, user: {}}]
`, s.http.URL)
}

// Inject decides from now on what becomes of each call; nil heals all.
func (s *Server) Inject(fault func(verb, name string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fault == nil {
		fault = func(string, string) Fault { return Fault{} }
	}
	s.fault = fault
}

// Down is an outage: every connection is dropped until Inject(nil).
func (s *Server) Down() {
	s.Inject(func(string, string) Fault { return Fault{Drop: true} })
	s.CutWatches()
}

// CutWatches ends all watches, as a server does from time to time.
func (s *Server) CutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut++
	s.look()
}

// HoldWatches keeps events back, or lets them go.
func (s *Server) HoldWatches(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
	s.look()
}

// Forget drops the history: a watch that goes on from before is told 410 Gone.
func (s *Server) Forget() {
	s.mu.Lock()
	s.revision++
	s.oldest, s.history = s.revision, nil
	s.mu.Unlock()
	s.CutWatches()
}

// Restore takes the server back to an earlier state, as a backup of its
// database does. A watch that goes on from what is now the future is refused.
func (s *Server) Restore(secrets []corev1.Secret, revision uint64) {
	s.mu.Lock()
	s.revision, s.history, s.oldest, s.secrets = revision, nil, 0, map[string]corev1.Secret{}
	for _, secret := range secrets {
		s.secrets[secret.Name] = secret
	}
	s.mu.Unlock()
	s.CutWatches()
}

// Revision is the last resourceVersion that was given.
func (s *Server) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// Calls returns how many calls of each verb there were, and counts anew.
func (s *Server) Calls() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.calls
	s.calls = map[string]int{}
	return out
}

// Secrets returns what is there.
func (s *Server) Secrets() []corev1.Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []corev1.Secret
	for _, name := range slices.Sorted(maps.Keys(s.secrets)) {
		out = append(out, s.secrets[name])
	}
	return out
}

// Edit changes a Secret as somebody with kubectl would; nil deletes it.
func (s *Server) Edit(name string, edit func(*corev1.Secret)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.secrets[name]
	if edit == nil {
		delete(s.secrets, name)
		s.happened("DELETED", old)
		return
	}
	next := *old.DeepCopy()
	edit(&next)
	s.happened("MODIFIED", next)
}

func (s *Server) look() {
	close(s.news)
	s.news = make(chan struct{})
}

// happened gives a Secret its next resourceVersion and tells the watches.
func (s *Server) happened(kind string, secret corev1.Secret) corev1.Secret {
	s.revision++
	secret.ResourceVersion = strconv.FormatUint(s.revision, 10)
	secret.TypeMeta = metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"}
	if kind != "DELETED" {
		s.secrets[secret.Name] = secret
	}
	s.history = append(s.history, event{kind, s.revision, secret})
	s.look()
	return secret
}

var resource = schema.GroupResource{Resource: "secrets"}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"+Namespace+"/secrets")
	name = strings.TrimPrefix(name, "/")
	query := r.URL.Query()
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete"}[r.Method]
	if verb == "get" && name == "" {
		verb = "list"
		if query.Get("watch") == "true" {
			verb = "watch"
		}
	}
	var body corev1.Secret
	var options metav1.DeleteOptions
	var err error
	switch verb {
	case "create", "update":
		err = json.NewDecoder(r.Body).Decode(&body)
	case "delete":
		err = json.NewDecoder(r.Body).Decode(&options)
	}
	if name == "" {
		name = body.Name
	}
	s.mu.Lock()
	s.calls[verb]++
	fault := s.fault(verb, name)
	s.mu.Unlock()
	switch {
	case fault.Drop:
		panic(http.ErrAbortHandler)
	case fault.Refuse != nil:
		refuse(w, fault.Refuse)
		return
	case !ok:
		refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "another"))
		return
	case err != nil:
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	case verb == "watch":
		s.watch(w, r)
		return
	}
	s.mu.Lock()
	var answer any
	var refusal *apierrors.StatusError
	switch verb {
	case "get":
		if secret, ok := s.secrets[name]; ok {
			answer = secret
		} else {
			refusal = apierrors.NewNotFound(resource, name)
		}
	case "list":
		answer = s.list(query.Get("labelSelector"), query.Get("limit"), query.Get("continue"))
	case "create":
		answer, refusal = s.create(body, query.Has("dryRun"))
	case "update":
		answer, refusal = s.update(body)
	case "delete":
		answer, refusal = s.remove(name, options)
	}
	s.mu.Unlock()
	if fault.DropAnswer {
		panic(http.ErrAbortHandler)
	}
	if refusal != nil {
		refuse(w, refusal)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if verb == "create" {
		w.WriteHeader(http.StatusCreated)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func refuse(w http.ResponseWriter, e *apierrors.StatusError) {
	w.Header().Set("Content-Type", "application/json")
	if d := e.ErrStatus.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	w.WriteHeader(int(e.ErrStatus.Code))
	status := e.ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	_ = json.NewEncoder(w).Encode(status)
}

func invalid(secret corev1.Secret) *apierrors.StatusError {
	bad := validation.IsDNS1123Subdomain(secret.Name)
	for key, value := range secret.Labels {
		bad = append(append(bad, validation.IsQualifiedName(key)...), validation.IsValidLabelValue(value)...)
	}
	for key := range secret.Annotations {
		bad = append(bad, validation.IsQualifiedName(key)...)
	}
	for key := range secret.Data {
		bad = append(bad, validation.IsConfigMapKey(key)...)
	}
	if len(bad) == 0 {
		return nil
	}
	e := apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, secret.Name, nil)
	e.ErrStatus.Message = strings.Join(bad, "; ")
	return e
}

func (s *Server) create(secret corev1.Secret, dry bool) (corev1.Secret, *apierrors.StatusError) {
	if e := invalid(secret); e != nil {
		return secret, e
	}
	if _, there := s.secrets[secret.Name]; there {
		return secret, apierrors.NewAlreadyExists(resource, secret.Name)
	}
	if secret.ResourceVersion != "" {
		return secret, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if dry {
		return secret, nil
	}
	secret.UID = types.UID(fmt.Sprintf("uid-%d", s.revision))
	return s.happened("ADDED", secret), nil
}

func (s *Server) update(secret corev1.Secret) (corev1.Secret, *apierrors.StatusError) {
	have, there := s.secrets[secret.Name]
	switch {
	case !there:
		return secret, apierrors.NewNotFound(resource, secret.Name)
	case secret.ResourceVersion != have.ResourceVersion:
		return secret, apierrors.NewConflict(resource, secret.Name, fmt.Errorf("the object has been modified"))
	case secret.Type != have.Type:
		return secret, apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, secret.Name, nil)
	}
	secret.UID = have.UID
	return s.happened("MODIFIED", secret), invalid(secret)
}

func (s *Server) remove(name string, options metav1.DeleteOptions) (any, *apierrors.StatusError) {
	have, there := s.secrets[name]
	if !there {
		return nil, apierrors.NewNotFound(resource, name)
	}
	if p := options.Preconditions; p != nil && (p.ResourceVersion != nil && *p.ResourceVersion != have.ResourceVersion || p.UID != nil && *p.UID != have.UID) {
		return nil, apierrors.NewConflict(resource, name, fmt.Errorf("a precondition failed"))
	}
	delete(s.secrets, name)
	s.happened("DELETED", have)
	return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}, nil
}

func matches(selector string, secret corev1.Secret) bool {
	parsed, err := labels.Parse(selector)
	return err == nil && parsed.Matches(labels.Set(secret.Labels))
}

func (s *Server) list(selector, limit, token string) corev1.SecretList {
	items := s.pages[token]
	version, _, _ := strings.Cut(token, "/")
	if token == "" {
		version = strconv.FormatUint(s.revision, 10)
		for _, name := range slices.Sorted(maps.Keys(s.secrets)) {
			if matches(selector, s.secrets[name]) {
				items = append(items, s.secrets[name])
			}
		}
	}
	out := corev1.SecretList{TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: items}
	if n, err := strconv.Atoi(limit); err == nil && n > 0 && n < len(items) {
		out.Continue = fmt.Sprintf("%s/%d", version, len(s.pages))
		s.pages[out.Continue] = items[n:]
		out.Items = items[:n]
	}
	return out
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	from, err := strconv.ParseUint(r.URL.Query().Get("resourceVersion"), 10, 64)
	if err != nil {
		refuse(w, apierrors.NewBadRequest("resourceVersion"))
		return
	}
	s.mu.Lock()
	cut, future := s.cut, from > s.revision
	s.mu.Unlock()
	if future {
		e := apierrors.NewTimeoutError("Too large resource version", 1)
		e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		refuse(w, e)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	encoder := json.NewEncoder(w)
	for {
		s.mu.Lock()
		news, held, ended, forgotten := s.news, s.held, s.cut != cut, from < s.oldest
		var events []event
		for _, e := range s.history {
			if e.revision > from && matches(r.URL.Query().Get("labelSelector"), e.secret) {
				events = append(events, e)
			}
		}
		s.mu.Unlock()
		switch {
		case forgotten:
			gone := apierrors.NewResourceExpired("too old resource version").ErrStatus
			gone.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			_ = encoder.Encode(map[string]any{"type": "ERROR", "object": gone})
			return
		case ended:
			return
		case !held:
			for _, e := range events {
				if encoder.Encode(map[string]any{"type": e.kind, "object": e.secret}) != nil {
					return
				}
				from = e.revision
			}
			w.(http.Flusher).Flush()
		}
		select {
		case <-news:
		case <-r.Context().Done():
			return
		case <-time.After(time.Minute):
			return
		}
	}
}
