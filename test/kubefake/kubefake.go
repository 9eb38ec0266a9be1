// Package kubefake is as much of a Kubernetes API server as the journal and the
// Lease beside it need, and can be made to fail where a real one cannot on
// demand: it keeps Secrets and Leases of one namespace, with resourceVersions,
// preconditions, pages, selectors and watches, and drops connections, loses
// answers, forgets history or holds its watches back when told to.
package kubefake

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"
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

// object is a Secret or a Lease. What is stored is never changed, only replaced.
type object interface {
	metav1.Object
	runtime.Object
}

type key struct{ resource, name string }

// resources are what there is, by the paths of their namespaces.
var resources = map[string]struct {
	name, kind string
	version    schema.GroupVersion
	empty      func() object
}{
	"/api/v1/":                      {"secrets", "Secret", corev1.SchemeGroupVersion, func() object { return &corev1.Secret{} }},
	"/apis/coordination.k8s.io/v1/": {"leases", "Lease", coordinationv1.SchemeGroupVersion, func() object { return &coordinationv1.Lease{} }},
}

var codecs = serializer.NewCodecFactory(scheme.Scheme)

// Server is a running API server.
type Server struct {
	http *httptest.Server
	pipe *pipe // nil if it listens in the network

	mu       sync.Mutex
	revision uint64
	objects  map[key]object
	history  []event
	oldest   uint64 // what came up to here is forgotten
	pages    map[string][]object
	calls    map[string]map[string]int
	fault    func(verb, name string) Fault
	held     bool
	news     chan struct{} // closed and replaced whenever a watch should look
	cut      int           // watches of before are ended
}

type event struct {
	kind     string
	revision uint64
	resource string
	object   object
}

// Start runs a server until the test ends.
func Start(t testing.TB) *Server {
	s := newServer()
	s.start(t)
	return s
}

// StartPiped runs a server that only this process can reach, also in a bubble
// of testing/synctest.
func StartPiped(t testing.TB) *Server {
	s := newServer()
	s.pipe = &pipe{connections: make(chan net.Conn), closed: make(chan struct{})}
	s.http.Listener = s.pipe
	s.start(t)
	return s
}

func newServer() *Server {
	s := &Server{
		revision: 100, objects: map[key]object{}, pages: map[string][]object{}, calls: map[string]map[string]int{}, news: make(chan struct{}),
		fault: func(string, string) Fault { return Fault{} },
	}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	return s
}

func (s *Server) start(t testing.TB) {
	s.http.Start()
	t.Cleanup(func() {
		s.CutWatches()
		s.http.CloseClientConnections()
		s.http.Close()
	})
}

// Config is how a client reaches the server.
func (s *Server) Config() *rest.Config {
	c := &rest.Config{Host: s.http.URL}
	if s.pipe != nil {
		c.Dial = s.pipe.dial
	}
	return c
}

// pipe is a network with one listener.
type pipe struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func (p *pipe) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.connections <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements net.Listener.
func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (p *pipe) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

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

// Backup returns what takes the server back to how it is now, as a backup of
// its database does. A watch that goes on from what is then the future is refused.
func (s *Server) Backup() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects, revision := maps.Clone(s.objects), s.revision
	return func() {
		s.mu.Lock()
		s.revision, s.history, s.oldest, s.objects = revision, nil, 0, maps.Clone(objects)
		s.mu.Unlock()
		s.CutWatches()
	}
}

// Calls returns how many calls of each verb there were on Secrets, and starts at 0 again.
func (s *Server) Calls() map[string]int { return s.called("secrets") }

// LeaseCalls is Calls for Leases.
func (s *Server) LeaseCalls() map[string]int { return s.called("leases") }

func (s *Server) called(resource string) map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.calls[resource]
	delete(s.calls, resource)
	return out
}

// Secrets returns what is there.
func (s *Server) Secrets() []corev1.Secret {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []corev1.Secret
	for _, o := range s.sorted("secrets") {
		out = append(out, *o.(*corev1.Secret).DeepCopy())
	}
	return out
}

// Lease returns the Lease of a name, nil if there is none.
func (s *Server) Lease(name string) *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, _ := s.objects[key{"leases", name}].(*coordinationv1.Lease)
	return o.DeepCopy()
}

// Add creates Secrets as kubectl would, whatever is in them.
func (s *Server) Add(secrets ...corev1.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range secrets {
		s.happened("ADDED", "secrets", secrets[i].DeepCopy())
	}
}

// Edit changes a Secret as a person with kubectl would; nil deletes it.
func (s *Server) Edit(name string, edit func(*corev1.Secret)) { change(s, "secrets", name, edit) }

// EditLease is Edit for a Lease.
func (s *Server) EditLease(name string, edit func(*coordinationv1.Lease)) {
	change(s, "leases", name, edit)
}

func change[T object](s *Server, resource, name string, edit func(T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.objects[key{resource, name}].DeepCopyObject().(T)
	if edit == nil {
		s.happened("DELETED", resource, next)
		return
	}
	edit(next)
	s.happened("MODIFIED", resource, next)
}

// sorted returns the objects of a resource by their names.
func (s *Server) sorted(resource string) []object {
	var out []object
	for k, o := range s.objects {
		if k.resource == resource {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b object) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

func (s *Server) look() {
	close(s.news)
	s.news = make(chan struct{})
}

// happened gives an object its next resourceVersion and tells the watches.
func (s *Server) happened(kind, resource string, o object) object {
	s.revision++
	o.SetResourceVersion(strconv.FormatUint(s.revision, 10))
	for _, r := range resources {
		if r.name == resource {
			o.GetObjectKind().SetGroupVersionKind(r.version.WithKind(r.kind))
		}
	}
	at := key{resource, o.GetName()}
	if s.objects[at] = o; kind == "DELETED" {
		delete(s.objects, at)
	}
	s.history = append(s.history, event{kind, s.revision, resource, o})
	s.look()
	return o
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	prefix, name, ok := strings.Cut(r.URL.Path, "namespaces/"+Namespace+"/")
	kind := resources[prefix]
	name, known := strings.CutPrefix(name, kind.name)
	name = strings.TrimPrefix(name, "/")
	query := r.URL.Query()
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete"}[r.Method]
	if verb == "get" && name == "" {
		verb = "list"
		if query.Get("watch") == "true" {
			verb = "watch"
		}
	}
	if ok = ok && known && kind.name != ""; !ok {
		kind = resources["/api/v1/"]
	}
	body := kind.empty()
	var options metav1.DeleteOptions
	var err error
	switch verb {
	case "create", "update":
		err = decode(r.Body, body)
	case "delete":
		err = decode(r.Body, &options)
	}
	if name == "" {
		name = body.GetName()
	}
	s.mu.Lock()
	if s.calls[kind.name] == nil {
		s.calls[kind.name] = map[string]int{}
	}
	s.calls[kind.name][verb]++
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
		s.watch(w, r, kind.name)
		return
	}
	s.mu.Lock()
	var answer any
	var refusal *apierrors.StatusError
	switch verb {
	case "get":
		if o, ok := s.objects[key{kind.name, name}]; ok {
			answer = o
		} else {
			refusal = apierrors.NewNotFound(schema.GroupResource{Resource: kind.name}, name)
		}
	case "list":
		answer = s.list(kind.name, query.Get("labelSelector"), query.Get("limit"), query.Get("continue"))
	case "create":
		answer, refusal = s.create(kind.name, body, query.Has("dryRun"))
	case "update":
		answer, refusal = s.update(kind.name, body)
	case "delete":
		answer, refusal = s.remove(kind.name, name, options)
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

// decode reads JSON or protobuf.
func decode(body io.Reader, into runtime.Object) error {
	text, err := io.ReadAll(body)
	if err == nil {
		_, _, err = codecs.UniversalDeserializer().Decode(text, nil, into)
	}
	return err
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

func invalid(o object) *apierrors.StatusError {
	bad := validation.IsDNS1123Subdomain(o.GetName())
	for key, value := range o.GetLabels() {
		bad = append(append(bad, validation.IsQualifiedName(key)...), validation.IsValidLabelValue(value)...)
	}
	for key := range o.GetAnnotations() {
		bad = append(bad, validation.IsQualifiedName(key)...)
	}
	switch o := o.(type) {
	case *corev1.Secret:
		for key := range o.Data {
			bad = append(bad, validation.IsConfigMapKey(key)...)
		}
	case *coordinationv1.Lease:
		if d := o.Spec.LeaseDurationSeconds; d != nil && *d <= 0 {
			bad = append(bad, "spec.leaseDurationSeconds: must be greater than 0")
		}
		if n := o.Spec.LeaseTransitions; n != nil && *n < 0 {
			bad = append(bad, "spec.leaseTransitions: must be greater than or equal to 0")
		}
	}
	if len(bad) == 0 {
		return nil
	}
	e := apierrors.NewInvalid(schema.GroupKind{}, o.GetName(), nil)
	e.ErrStatus.Message = strings.Join(bad, "; ")
	return e
}

func (s *Server) create(resource string, o object, dry bool) (object, *apierrors.StatusError) {
	if e := invalid(o); e != nil {
		return o, e
	}
	if _, there := s.objects[key{resource, o.GetName()}]; there {
		return o, apierrors.NewAlreadyExists(schema.GroupResource{Resource: resource}, o.GetName())
	}
	if o.GetResourceVersion() != "" {
		return o, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if dry {
		return o, nil
	}
	o.SetUID(types.UID(fmt.Sprintf("uid-%d", s.revision)))
	return s.happened("ADDED", resource, o), nil
}

func (s *Server) update(resource string, o object) (object, *apierrors.StatusError) {
	have, there := s.objects[key{resource, o.GetName()}]
	if !there {
		return o, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, o.GetName())
	}
	if o.GetResourceVersion() != have.GetResourceVersion() {
		return o, apierrors.NewConflict(schema.GroupResource{Resource: resource}, o.GetName(), fmt.Errorf("the object has been modified"))
	}
	if secret, ok := o.(*corev1.Secret); ok && secret.Type != have.(*corev1.Secret).Type {
		return o, apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, o.GetName(), nil)
	}
	if e := invalid(o); e != nil {
		return o, e
	}
	if m := o.GetManagedFields(); len(m) == 1 && reflect.ValueOf(m[0]).IsZero() { // as a real one takes it
		o.SetManagedFields(nil)
	}
	o.SetUID(have.GetUID())
	return s.happened("MODIFIED", resource, o), nil
}

func (s *Server) remove(resource, name string, options metav1.DeleteOptions) (any, *apierrors.StatusError) {
	have, there := s.objects[key{resource, name}]
	if !there {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
	}
	if p := options.Preconditions; p != nil && (p.ResourceVersion != nil && *p.ResourceVersion != have.GetResourceVersion() || p.UID != nil && *p.UID != have.GetUID()) {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: resource}, name, fmt.Errorf("a precondition failed"))
	}
	s.happened("DELETED", resource, have.DeepCopyObject().(object))
	return metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}, nil
}

func matches(selector string, o object) bool {
	parsed, err := labels.Parse(selector)
	return err == nil && parsed.Matches(labels.Set(o.GetLabels()))
}

func (s *Server) list(resource, selector, limit, token string) corev1.SecretList {
	items := s.pages[token]
	version, _, _ := strings.Cut(token, "/")
	if token == "" {
		version = strconv.FormatUint(s.revision, 10)
		for _, o := range s.sorted(resource) {
			if matches(selector, o) {
				items = append(items, o)
			}
		}
	}
	out := corev1.SecretList{TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: version}}
	if n, err := strconv.Atoi(limit); err == nil && n > 0 && n < len(items) {
		out.Continue = fmt.Sprintf("%s/%d", version, len(s.pages))
		s.pages[out.Continue] = items[n:]
		items = items[:n]
	}
	for _, o := range items {
		out.Items = append(out.Items, *o.(*corev1.Secret))
	}
	return out
}

// watch sends what happens from a version on or, without one, how things are and
// what happens from now on.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, resource string) {
	query := r.URL.Query()
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	from, syntax := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	if err != nil || syntax != nil && query.Get("resourceVersion") != "" {
		refuse(w, apierrors.NewBadRequest("resourceVersion or fieldSelector"))
		return
	}
	watched := func(e event) bool {
		set := fields.Set{"metadata.name": e.object.GetName()}
		if secret, ok := e.object.(*corev1.Secret); ok {
			set["type"] = string(secret.Type)
		}
		return e.resource == resource && matches(query.Get("labelSelector"), e.object) && selector.Matches(set)
	}
	s.mu.Lock()
	cut, future := s.cut, from > s.revision
	var events []event
	if syntax != nil {
		from = s.revision
		for _, o := range s.sorted(resource) {
			events = append(events, event{"ADDED", from, resource, o})
		}
	}
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
		for _, e := range s.history {
			if e.revision > from {
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
				if watched(e) && encoder.Encode(map[string]any{"type": e.kind, "object": e.object}) != nil {
					return
				}
				from = e.revision
			}
			events = nil
			w.(http.Flusher).Flush()
		default:
			events = slices.DeleteFunc(events, func(e event) bool { return e.revision > from })
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
