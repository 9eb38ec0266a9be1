// Package delivery writes the keys that are renewed into the Secrets that applications
// read, which COSI's sidecars have written first. Beside each it keeps those that a class
// asks for with secretFormat, which are the driver's own: the sidecar's name, a dash and
// the format.
//
// An access is found by its BucketAccess's UID, with which the name of its account
// ends. Of a Secret nothing but the key is changed, and only if the Secret was written
// for that access: in v1alpha1 it has the sidecar's finalizer and names the access in
// its BucketInfo, in v1alpha2 the BucketAccess owns it. One in a format has the driver's
// type, which no one can change later, and the BucketAccess owns it. What is written replaces what
// was read, by its resourceVersion, so an edit in between is never overwritten unseen.
//
// Nothing is watched, and of what was read only the names of BucketAccesses are kept:
// no Secret stays in memory.
package delivery

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube/objects"
	"github.com/contract-cosi/contract-cosi-driver/pkg/provisioner"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

const (
	again = 10 * time.Second // until the BucketAccesses are listed again
	tries = 3                // at a Secret that others write at the same time
)

// Config says which Secrets are written.
type Config struct {
	// At is the API server.
	At *rest.Config
	// Namespaces are where; none is everywhere.
	Namespaces []string
	// CA returns the CAs of a backend's endpoints as PEM, nil if they are the system's.
	CA func(backend string) ([]byte, error)
	// Called is told of every call at the API server or, with a Socket, of each "deliver".
	Called func(call string, err error)
	// Socket, in place of API server and namespaces, is where another process writes them;
	// see [Serve].
	Socket string
}

// Secrets are those of accesses.
type Secrets struct {
	Config
	secrets *kube.Client
	remote  *remote // nil if this process writes them

	queueing sync.Mutex
	queues   map[string]queue // by backend; the zero id is all accesses
	work     func(queue)      // has what a queue holds done; nil unless Run runs

	mu       sync.Mutex // also held while BucketAccesses are listed
	accesses *kube.Client
	version  string
	names    map[types.UID]types.NamespacedName
	began    time.Time               // the last list
	listed   time.Time               // when it had ended
	asked    map[types.UID]time.Time // for those that wait for the next
}

// New returns the Secrets of accesses; no call is made.
func New(c Config) (*Secrets, error) {
	if c.Socket != "" {
		return &Secrets{Config: c, remote: newRemote(c.Socket, c.Called), queues: map[string]queue{}}, nil
	}
	secrets, err := kube.NewClient(c.At, "", kube.Resource{
		Version: corev1.SchemeGroupVersion, Name: "secrets", Kind: "Secret", Verbs: "get, create, update and delete", Types: []runtime.Object{&corev1.Secret{}},
	}, c.Called)
	return &Secrets{Config: c, secrets: secrets, queues: map[string]queue{}, asked: map[types.UID]time.Time{}}, err
}

// Deliver implements provisioner.Deliverer.
func (s *Secrets) Deliver(ctx context.Context, d provisioner.Delivery) (written bool, err error) {
	ca, err := s.ca(d)
	if err != nil {
		return false, err
	}
	if s.remote != nil {
		return s.remote.ask(ctx, asked{Delivery: d, CA: ca})
	}
	return s.deliver(ctx, d, ca)
}

func (s *Secrets) deliver(ctx context.Context, d provisioner.Delivery, ca []byte) (written bool, err error) {
	access, version, err := s.find(ctx, d)
	if err != nil {
		return false, err
	}
	targets, err := targetsOf(access, d.Buckets)
	if err != nil {
		return false, err
	}
	formatted := formatted(targets, d.Formats, ca)
	if targets = append(targets, formatted...); d.First {
		targets, d.Repair = formatted, true
	}
	for _, t := range targets {
		wrote, one := s.put(ctx, access, version, t, d)
		written = written || wrote
		if fault.Is(one, fault.FailedPrecondition) { // the access is on its way out
			return written, one
		}
		if err == nil || provisioner.Undecided(one) { // of several Secrets it is the one that counts
			err = one
		}
	}
	return written, err
}

// uid is how the names of accounts end.
var uid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// find reads the BucketAccess of an account as it is now, if it is not being deleted.
func (s *Secrets) find(ctx context.Context, d provisioner.Delivery) (*objects.BucketAccess, string, error) {
	access, version, err := s.locate(ctx, d.Access)
	if err == nil && access.DeletionTimestamp != nil {
		err = fault.New(fault.FailedPrecondition, "BucketAccess %s/%s is being deleted", access.Namespace, access.Name)
	}
	return access, version, err
}

// locate reads it in any case.
func (s *Secrets) locate(ctx context.Context, of cosi.AccountID) (*objects.BucketAccess, string, error) {
	id := types.UID(uid.FindString(of.Account))
	if id == "" {
		return nil, "", fault.New(fault.FailedPrecondition, "it was not granted to a BucketAccess, so it has no Secret")
	}
	name, accesses, version, err := s.lookUp(ctx, id, false)
	if err != nil {
		return nil, "", err
	}
	access := &objects.BucketAccess{}
	read := func() error {
		err := accesses.Do(ctx, "get", access, func(r *rest.Request) *rest.Request { return r.Namespace(name.Namespace).Name(name.Name) })
		if err == nil && access.UID != id {
			err = fault.New(fault.NotFound, "BucketAccess %s is another one now", name)
		}
		return err
	}
	if err = read(); fault.Is(err, fault.NotFound) { // or the cluster has another version of COSI now
		if name, accesses, version, err = s.lookUp(ctx, id, true); err == nil {
			err = read()
		}
	}
	switch {
	case fault.Is(err, fault.NotFound):
		return nil, "", fault.As(fault.FailedPrecondition, err)
	case err != nil:
		return nil, "", err
	case access.Status.AccountID != "" && access.Status.AccountID != of.String():
		return nil, "", fault.New(fault.Conflict, "BucketAccess %s has another account, %s", name, fault.Said(access.Status.AccountID))
	}
	return access, version, nil
}

// lookUp returns where a BucketAccess is, and what reads it. If it is not known, or was
// not found where it was, all are listed.
func (s *Secrets) lookUp(ctx context.Context, id types.UID, gone bool) (types.NamespacedName, *kube.Client, string, error) {
	asked := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	name, known := s.names[id]
	if before, is := s.asked[id]; is {
		asked = before
	}
	if gone || !known && !s.began.After(asked) { // a list since it was asked for does not have it
		if !gone && time.Since(s.listed) < again {
			s.asked[id] = asked
			return name, nil, "", fault.New(fault.RateLimited, "BucketAccesses are listed every %s at most", again)
		}
		err := s.list(ctx)
		if fault.Is(err, fault.NotFound) { // COSI's objects are not served for now, which says nothing of this one
			err = fault.As(fault.Unavailable, err)
		}
		if err != nil {
			return name, nil, "", err
		}
		name, known = s.names[id]
	}
	delete(s.asked, id)
	switch {
	case !known && !gone && len(s.Namespaces) > 0:
		return name, nil, "", fault.New(fault.PermissionDenied, "in the namespaces of applicationSecrets there is no BucketAccess with the UID %s; add its namespace, or use a class without keyRotation and secretFormat", id)
	case !known:
		return name, nil, "", fault.New(fault.FailedPrecondition, "there is no BucketAccess with the UID %s", id)
	}
	return name, s.accesses, s.version, nil
}

// list reads the names of all BucketAccesses, in the version that the cluster has now.
func (s *Secrets) list(ctx context.Context) error {
	began := time.Now()
	versions, err := kube.Versions(ctx, s.At, objects.Group)
	if err != nil {
		return fault.In(err, "which version of COSI the cluster has is not known")
	}
	s.version = versions[0]
	s.accesses, err = kube.NewClient(s.At, "", kube.Resource{
		Version: schema.GroupVersion{Group: objects.Group, Version: s.version}, Name: "bucketaccesses", Kind: "BucketAccess", Verbs: "get and list",
		Types: []runtime.Object{&objects.BucketAccess{}, &objects.BucketAccessList{}},
	}, s.Called)
	if err != nil {
		return err
	}
	names := map[types.UID]types.NamespacedName{}
	namespaces := s.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		if err := s.listIn(ctx, namespace, names); err != nil {
			return err
		}
	}
	s.names, s.began, s.listed = names, began, time.Now()
	return nil
}

func (s *Secrets) listIn(ctx context.Context, namespace string, names map[types.UID]types.NamespacedName) error {
	return transport.Pages(ctx, func(ctx context.Context, next string) (string, bool, error) {
		var out objects.BucketAccessList
		err := s.accesses.Do(ctx, "list", &out, func(r *rest.Request) *rest.Request {
			return r.Namespace(namespace).VersionedParams(&metav1.ListOptions{Limit: objects.Page, Continue: next}, metav1.ParameterCodec)
		})
		for _, a := range out.Items {
			names[a.UID] = types.NamespacedName{Namespace: a.Namespace, Name: a.Name}
		}
		return out.Continue, out.Continue != "", err
	})
}

// put makes one Secret of an access hold a key.
func (s *Secrets) put(ctx context.Context, access *objects.BucketAccess, version string, t target, d provisioner.Delivery) (written bool, err error) {
	name := access.Namespace + "/" + t.secret
	if faults := validation.IsDNS1123Subdomain(t.secret); len(faults) > 0 {
		return false, fault.New(fault.InvalidArgument, "no Secret can have the name %s; make the BucketAccess with another name of its Secret, or a shorter one", fault.Said(name))
	}
	at := func(r *rest.Request) *rest.Request { return r.Namespace(access.Namespace).Name(t.secret) }
	for try := 1; ; try++ {
		have := &corev1.Secret{}
		err := s.secrets.Do(ctx, "get", have, at)
		if fault.Is(err, fault.NotFound) {
			if !d.Repair {
				return false, fault.New(fault.NotFound, "Secret %s is missing; restore it, or let drift repair re-create it", name)
			}
			return s.create(ctx, access, version, t, d)
		}
		if err != nil {
			return false, fault.In(err, "Secret %s", name)
		}
		held, whole := t.form.read(have, d.Key)
		switch {
		case !t.form.owns(access, have):
			return false, fault.New(fault.Conflict, "Secret %s was not written for this BucketAccess; delete it, or give it another name", name)
		case have.DeletionTimestamp != nil:
			return false, fault.New(fault.Conflict, "Secret %s is being deleted, but its BucketAccess is not; remove the Secret's finalizers, and drift repair re-creates it", name)
		case !whole && !d.Repair && (d.Replaces == "" || held != d.Replaces):
			return false, fault.New(fault.Mismatch, "Secret %s holds another key than the driver gave it; restore that, or let drift repair it", name)
		case have.Immutable != nil && *have.Immutable && (!whole || held == d.Replaces): // before a rotation too, which could not be delivered
			return false, fault.New(fault.InvalidArgument, "Secret %s is immutable, so it cannot take another key; delete it, and drift repair re-creates it", name)
		case whole:
			return false, nil
		}
		now := have.DeepCopy()
		if err := t.form.write(now, access, t.bucket, d.Key); err != nil {
			return false, unwritable(name, err)
		}
		err = s.change(ctx, "update", nil, func(r *rest.Request) *rest.Request { return at(r).Body(now) })
		if fault.Is(err, fault.Mismatch) && try < tries && !d.Repair { // it may hold a newer key now
			continue
		}
		if fault.Is(err, fault.Mismatch) {
			err = fault.As(fault.Unavailable, err)
		}
		if err != nil {
			return false, fault.In(err, "Secret %s", name)
		}
		audit(ctx, "Secret updated", d.Access, name, d.Key.AccessKeyID)
		return true, nil
	}
}

// change makes a call that changes a Secret, if the right to change things outlives it: a
// process that was paused writes no key that another has replaced.
func (s *Secrets) change(ctx context.Context, call string, out runtime.Object, prepare func(*rest.Request) *rest.Request) error {
	if err := transport.May(ctx, kube.CallTimeout); err != nil {
		return err
	}
	return s.secrets.Do(ctx, call, out, prepare)
}

func unwritable(name string, err error) error {
	return fault.Wrap(fault.Internal, err, "Secret %s cannot be written: %s", name, err)
}

// create re-creates a Secret as the sidecar has created it, or creates one in a format. Should its access be
// deleted meanwhile, it takes it away again.
func (s *Secrets) create(ctx context.Context, access *objects.BucketAccess, version string, t target, d provisioner.Delivery) (written bool, err error) {
	name := access.Namespace + "/" + t.secret
	now := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: access.Namespace, Name: t.secret}, Type: corev1.SecretTypeOpaque}
	t.form.own(now, access, version)
	if err := t.form.write(now, access, t.bucket, d.Key); err != nil {
		return false, unwritable(name, err)
	}
	made := &corev1.Secret{}
	err = s.change(ctx, "create", made, func(r *rest.Request) *rest.Request { return r.Namespace(access.Namespace).Body(now) })
	if err != nil {
		if fault.Is(err, fault.Mismatch) {
			err = fault.As(fault.Unavailable, err)
		}
		return false, fault.In(err, "Secret %s", name)
	}
	event := "Secret re-created"
	if d.First {
		event = "Secret created"
	}
	audit(ctx, event, d.Access, name, d.Key.AccessKeyID)
	_, _, err = s.find(ctx, d)
	if !fault.Is(err, fault.FailedPrecondition) {
		return true, nil
	}
	at := func(r *rest.Request) *rest.Request { return r.Namespace(access.Namespace).Name(t.secret) }
	made.Finalizers = nil
	undo := s.change(ctx, "update", nil, func(r *rest.Request) *rest.Request { return at(r).Body(made) })
	if undo == nil {
		undo = s.change(ctx, "delete", nil, func(r *rest.Request) *rest.Request {
			return at(r).Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}})
		})
	}
	if undo != nil && !fault.Is(undo, fault.NotFound) {
		klog.FromContext(ctx).Info("A Secret was re-created while its access was deleted; delete it by hand", "secret", name, "reason", undo)
	}
	return false, err
}

// audit writes the line of the log that each change of a Secret has.
func audit(ctx context.Context, event string, access cosi.AccountID, name, key string) {
	klog.LoggerWithName(klog.FromContext(ctx), "audit").Info(event, "contract", access.ContractID.String(), "access", fault.Said(access.Account),
		"keys", []string{fault.Said(key)}, "secret", name)
}

// target is a Secret of an access.
type target struct {
	secret string
	bucket provisioner.Bucket
	form   form
}

// targetsOf are the Secrets of an access: one in v1alpha1, one for each bucket in
// v1alpha2.
func targetsOf(access *objects.BucketAccess, buckets []provisioner.Bucket) ([]target, error) {
	if name := access.Spec.CredentialsSecretName; name != "" {
		if len(buckets) != 1 {
			return nil, fault.New(fault.Internal, "a BucketAccess of v1alpha1 reaches %d buckets", len(buckets))
		}
		return []target{{name, buckets[0], bucketInfo{}}}, nil
	}
	var out []target
	for _, claim := range access.Spec.BucketClaims {
		i := slices.IndexFunc(access.Status.AccessedBuckets, func(b struct {
			BucketID        string `json:"bucketID"`
			BucketClaimName string `json:"bucketClaimName"`
		}) bool {
			return b.BucketClaimName == claim.BucketClaimName
		})
		if i < 0 {
			return nil, fault.New(fault.FailedPrecondition, "BucketAccess %s/%s is not granted yet", access.Namespace, access.Name)
		}
		id := access.Status.AccessedBuckets[i].BucketID
		at := slices.IndexFunc(buckets, func(b provisioner.Bucket) bool {
			return b.ID.String() == id || strings.HasSuffix(id, b.ID.Bucket) && len(buckets) == 1
		})
		if at < 0 {
			return nil, fault.New(fault.Conflict, "BucketAccess %s/%s reaches bucket %s, which its key does not", access.Namespace, access.Name, fault.Said(id))
		}
		out = append(out, target{claim.AccessSecretName, buckets[at], entries{}})
	}
	if len(out) == 0 {
		return nil, fault.New(fault.FailedPrecondition, "BucketAccess %s/%s names no Secret", access.Namespace, access.Name)
	}
	return out, nil
}

// form is how a version's sidecar, or a format, writes Secrets.
type form interface {
	// read returns the id of the key that a Secret holds, and whether it holds key and
	// all that belongs beside it.
	read(s *corev1.Secret, key secret.KeyPair) (held string, whole bool)
	// owns reports whether a Secret was written for an access.
	owns(access *objects.BucketAccess, s *corev1.Secret) bool
	// write puts a key in, and what belongs beside it where that is missing.
	write(s *corev1.Secret, access *objects.BucketAccess, bucket provisioner.Bucket, key secret.KeyPair) error
	// own marks a new Secret as the access's.
	own(s *corev1.Secret, access *objects.BucketAccess, version string)
}
