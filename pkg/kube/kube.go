// Package kube makes the few calls that the driver has for the Kubernetes API
// server: on one resource, in one namespace or, of Events, in any. A client knows only the types that
// it is told of, so that the program does not carry the whole API.
package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// CallTimeout bounds one call, whatever the caller's own deadline.
const CallTimeout = 10 * time.Second

// OwnerMark is a driver's owner mark as names and labels can hold it: they have
// no room for a mark of any form, so it is a hash.
func OwnerMark(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:5])
}

// OwnerLabel is on all that the driver keeps at the API server; its value is
// the OwnerMark. The annotation of the same name has the mark in full.
const OwnerLabel = "contract-cosi-driver/owner"

// Connect reads how the API server is reached: from a kubeconfig or, without
// one, as the service account of the pod. No call is made.
func Connect(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig() // reads the token again when it is rotated
		if err != nil {
			return nil, fault.Wrap(fault.FailedPrecondition, err, "this is not a pod with a service account, and no kubeconfig is given; give one (for a driver, journal.secrets.kubeconfig), or set automountServiceAccountToken: true")
		}
		return c, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fault.Wrap(fault.FailedPrecondition, err, "the kubeconfig %s cannot be used (%s)", kubeconfig, err)
	}
	return c, nil
}

// Resource is what a Client makes calls on.
type Resource struct {
	Version schema.GroupVersion
	Name    string           // as paths have it: "secrets"
	Kind    string           // as people read it: "Secret"
	Verbs   string           // what the driver's Role has to allow: "get and list"
	Types   []runtime.Object // an object, and a list if there are any
}

// Client makes calls on a resource in a namespace. Without one, the request's
// prepare names it, if the resource has any.
type Client struct {
	rest      rest.Interface
	namespace string
	resource  Resource
	called    func(call string, err error)
}

// NewClient returns a client; no call is made. called is told of every call.
func NewClient(at *rest.Config, namespace string, r Resource, called func(call string, err error)) (*Client, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(r.Version, r.Types...)
	metav1.AddToGroupVersion(scheme, r.Version)

	at = rest.CopyConfig(at)
	at.APIPath = "/apis"
	if r.Version.Group == "" {
		at.APIPath = "/api"
	}
	at.GroupVersion = &r.Version
	at.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	at.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON // the first costs both sides less
	at.UserAgent = "contract-cosi-driver"
	// The server decides how much is too much (API priority and fairness). The
	// library's own default would be five calls a second.
	at.QPS = -1
	at.WarningHandler = rest.NoWarnings{}
	at.Wrap(transport.Traced)
	c, err := rest.RESTClientFor(at)
	if err != nil {
		return nil, fault.Wrap(fault.FailedPrecondition, err, "the Kubernetes API server cannot be reached as configured (%s)", err)
	}
	return &Client{rest: c, namespace: namespace, resource: r, called: called}, nil
}

var methods = map[string]string{
	"get": http.MethodGet, "list": http.MethodGet, "watch": http.MethodGet,
	"create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete,
}

// Do makes one call, a verb of RBAC, and reads the answer into out, which may
// be nil. prepare completes the request. What is to be repeated is the caller's
// decision.
func (c *Client) Do(ctx context.Context, call string, out runtime.Object, prepare func(*rest.Request) *rest.Request) error {
	ctx, cancel := context.WithTimeout(unlogged(ctx), CallTimeout)
	defer cancel()
	result := prepare(c.request(call)).Do(ctx)
	err := result.Error()
	if err == nil && out != nil {
		err = result.Into(out)
	}
	err = c.Classify(call, err)
	c.called(call, err)
	return err
}

// Watch begins to watch for a time.
func (c *Client) Watch(ctx context.Context, length time.Duration, prepare func(*rest.Request) *rest.Request) (watch.Interface, error) {
	w, err := prepare(c.request("watch")).Param("watch", "true").
		Param("timeoutSeconds", strconv.Itoa(int(length.Seconds()))).Watch(unlogged(ctx))
	err = c.Classify("watch", err)
	c.called("watch", err)
	return w, err
}

// unlogged keeps what is sent and answered out of the log: from level 8 on the library
// writes it there, with the keys that Secrets hold.
func unlogged(ctx context.Context) context.Context { return klog.NewContext(ctx, klog.Logger{}) }

func (c *Client) request(call string) *rest.Request {
	r := c.rest.Verb(methods[call]).Resource(c.resource.Name).MaxRetries(0)
	if c.namespace == "" {
		return r
	}
	return r.Namespace(c.namespace)
}

// ErrGone says that the server does not have the history that a watch asked for.
var ErrGone = errors.New("gone")

// classes is the one table of what the API server's answers mean. The first
// that fits counts.
var classes = []struct {
	is   func(error) bool
	kind fault.Kind
	text string // after "the Kubernetes API server"
}{
	{apierrors.IsAlreadyExists, fault.Mismatch, "has the {kind} already"},
	{apierrors.IsConflict, fault.Mismatch, "has a newer version of the {kind}"},
	{isMissingNamespace, fault.FailedPrecondition, "has no namespace {namespace}; make it, or correct journal.secrets.namespace"},
	{apierrors.IsNotFound, fault.NotFound, "does not have the {kind}"},
	{isTerminating, fault.FailedPrecondition, "is deleting namespace {namespace}; name another in journal.secrets.namespace, and move the journal with export and import"},
	{isQuota, fault.LimitExceeded, "has no quota left for {kind}s in namespace {namespace}; raise its ResourceQuota"},
	{apierrors.IsForbidden, fault.PermissionDenied, "does not let the driver {call} {kind}s in namespace {namespace}; its Role needs {verbs} on {resource}"},
	{apierrors.IsUnauthorized, fault.PermissionDenied, "does not accept the driver's credentials; renew the service account's token or the kubeconfig"},
	{apierrors.IsTooManyRequests, fault.RateLimited, "asks for fewer calls"},
	{apierrors.IsRequestEntityTooLargeError, fault.Internal, "refuses the {kind} as too large"},
	{apierrors.IsInvalid, fault.Internal, "refuses the {kind} as invalid"},
	{apierrors.IsBadRequest, fault.Internal, "does not understand the call to {call} {kind}s"},
}

// Classify turns what a call came to into a fault. What is not in the table is
// Unavailable: an outcome that is unknown, or trouble that passes.
func (c *Client) Classify(call string, err error) error {
	if err == nil {
		return nil
	}
	// A version that the server has not reached is as good as one that it has
	// forgotten: the cluster was restored from a backup.
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return fault.Wrap(fault.Unavailable, ErrGone, "the Kubernetes API server has forgotten the history that a watch asked for")
	}
	for _, class := range classes {
		if class.is(err) {
			r, where := c.resource, "in namespace "+c.namespace
			if c.namespace == "" {
				where = "in every namespace"
			}
			text := strings.NewReplacer("{call}", call, "in namespace {namespace}", where, "{namespace}", c.namespace, "{kind}", r.Kind, "{verbs}", r.Verbs,
				"{resource}", schema.GroupResource{Group: r.Version.Group, Resource: r.Name}.String()).Replace(class.text)
			out := fault.Wrap(class.kind, err, "the Kubernetes API server %s", text)
			if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
				out.RetryAfter = time.Duration(seconds) * time.Second
			}
			return out
		}
	}
	if errors.Is(err, context.Canceled) {
		return fault.Wrap(fault.Canceled, err, "the call was given up before the Kubernetes API server answered")
	}
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && answer.Status().Code >= http.StatusInternalServerError {
		return fault.Wrap(fault.Unavailable, err, "the Kubernetes API server is in trouble (HTTP %d); the driver goes on when it has recovered", answer.Status().Code)
	}
	return fault.Wrap(fault.Unavailable, err, "the Kubernetes API server cannot be reached (%s); the driver goes on when it answers", fault.Silence(err))
}

func isMissingNamespace(err error) bool {
	var answer apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &answer) && answer.Status().Details != nil && answer.Status().Details.Kind == "namespaces"
}

func isTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

func isQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}
