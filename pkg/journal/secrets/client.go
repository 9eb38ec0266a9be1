package secrets

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

const (
	// callTimeout bounds one try of one call.
	callTimeout = 10 * time.Second
	// tries is how often a call is made that gets no answer, or is put off.
	tries = 5
	// firstPause is the wait after the first try; it doubles.
	firstPause = 50 * time.Millisecond
	// longestPause is the longest that a server may ask for within a call. One
	// that asks for more is named to the caller, who comes back.
	longestPause = 2 * time.Second
	// pageSize is how many Secrets a page of a list has.
	pageSize = 500
)

// client makes the few calls there are, on Secrets of one namespace. It knows
// one type of the API, so that the program does not carry all of them.
type client struct {
	rest      rest.Interface
	namespace string
	observe   func(call string, err error)
}

// connect reads how the API server is reached; no call is made.
func connect(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig() // reads the token again when it is rotated
		if err != nil {
			return nil, fault.Wrap(fault.FailedPrecondition, err, "journal.secrets: this is not a pod with a service account, and no kubeconfig is given; set journal.secrets.kubeconfig, or automountServiceAccountToken: true")
		}
		return c, nil
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fault.Wrap(fault.FailedPrecondition, err, "journal.secrets.kubeconfig: %s cannot be used (%s)", kubeconfig, err)
	}
	return c, nil
}

func newClient(c *rest.Config, namespace string, observe func(string, error)) (*client, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Secret{}, &corev1.SecretList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)

	c = rest.CopyConfig(c)
	c.APIPath = "/api"
	c.GroupVersion = &corev1.SchemeGroupVersion
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.UserAgent = "contract-cosi-driver"
	// The server decides how much is too much (API priority and fairness). The
	// library's own default would be five calls a second.
	c.QPS = -1
	c.WarningHandler = rest.NoWarnings{}
	r, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fault.Wrap(fault.FailedPrecondition, err, "the Kubernetes API server cannot be reached as configured (%s)", err)
	}
	return &client{rest: r, namespace: namespace, observe: observe}, nil
}

// request bounds a request and leaves all repeating to this package.
func (c *client) request(r *rest.Request) *rest.Request {
	return r.Namespace(c.namespace).Resource("secrets").MaxRetries(0)
}

// once makes a single call.
func (c *client) once(ctx context.Context, call string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := c.classify(call, do(ctx))
	c.observe(call, err)
	return err
}

func (c *client) get(ctx context.Context, name string) (*corev1.Secret, error) {
	return c.secret(ctx, "get", c.rest.Get().Name(name))
}

// write creates a Secret, or replaces it if it has a resourceVersion. A dry run
// does all but that.
func (c *client) write(ctx context.Context, s *corev1.Secret, dry bool) (*corev1.Secret, error) {
	call, r := "create", c.rest.Post()
	if s.ResourceVersion != "" {
		call, r = "update", c.rest.Put().Name(s.Name)
	}
	if dry {
		r.Param("dryRun", metav1.DryRunAll)
	}
	return c.secret(ctx, call, r.Body(s))
}

// secret makes a call that a Secret answers.
func (c *client) secret(ctx context.Context, call string, r *rest.Request) (*corev1.Secret, error) {
	out := &corev1.Secret{}
	err := c.once(ctx, call, func(ctx context.Context) error { return c.request(r).Do(ctx).Into(out) })
	return out, err
}

func (c *client) remove(ctx context.Context, name string, p metav1.Preconditions) error {
	return c.once(ctx, "delete", func(ctx context.Context) error {
		options := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}, Preconditions: &p}
		return c.request(c.rest.Delete()).Name(name).Body(options).Do(ctx).Error()
	})
}

// list passes on all Secrets that a selector names, page by page, as of the
// returned version.
func (c *client) list(ctx context.Context, labels string, each func(*corev1.Secret) error) (version string, err error) {
	for next := ""; ; {
		page := &corev1.SecretList{}
		err := c.once(ctx, "list", func(ctx context.Context) error {
			r := c.request(c.rest.Get()).Param("labelSelector", labels).Param("fieldSelector", "type="+secretType).
				Param("limit", fmt.Sprint(pageSize))
			if next != "" {
				r = r.Param("continue", next)
			}
			return r.Do(ctx).Into(page)
		})
		for i := range page.Items {
			err = errors.Join(err, each(&page.Items[i]))
		}
		if err != nil || page.Continue == "" {
			return page.ResourceVersion, err
		}
		next = page.Continue
	}
}

func (c *client) watch(ctx context.Context, labels, from string, length time.Duration) (watch.Interface, error) {
	w, err := c.request(c.rest.Get()).Param("watch", "true").Param("labelSelector", labels).Param("fieldSelector", "type="+secretType).
		Param("resourceVersion", from).Param("allowWatchBookmarks", "true").
		Param("timeoutSeconds", fmt.Sprint(int(length.Seconds()))).Watch(ctx)
	err = c.classify("watch", err)
	c.observe("watch", err)
	return w, err
}

// errGone says that the server does not have the history that a watch asked for.
var errGone = errors.New("gone")

// classes is the one table of what the API server's answers mean to the
// journal. The first that fits counts.
var classes = []struct {
	is   func(error) bool
	kind fault.Kind
	text string // after "the Kubernetes API server"
}{
	{apierrors.IsAlreadyExists, fault.Mismatch, "has the Secret already"},
	{apierrors.IsConflict, fault.Mismatch, "has a newer version of the Secret"},
	{isMissingNamespace, fault.FailedPrecondition, "has no namespace {namespace}; make it, or correct journal.secrets.namespace"},
	{apierrors.IsNotFound, fault.NotFound, "does not have the Secret"},
	{isTerminating, fault.FailedPrecondition, "is deleting namespace {namespace}; name another in journal.secrets.namespace, and move the journal with export and import"},
	{isQuota, fault.LimitExceeded, "has no quota left for Secrets in namespace {namespace}; raise its ResourceQuota"},
	{apierrors.IsForbidden, fault.PermissionDenied, "does not let the driver {call} Secrets in namespace {namespace}; its Role needs get, list, watch, create, update and delete on secrets"},
	{apierrors.IsUnauthorized, fault.PermissionDenied, "does not accept the driver's credentials; renew the service account's token or the kubeconfig"},
	{apierrors.IsTooManyRequests, fault.RateLimited, "asks for fewer calls"},
	{apierrors.IsRequestEntityTooLargeError, fault.Internal, "refuses the journal's Secret as too large"},
	{apierrors.IsInvalid, fault.Internal, "refuses the journal's Secret as invalid"},
	{apierrors.IsBadRequest, fault.Internal, "does not understand the call to {call} Secrets"},
}

// classify turns what a call came to into a fault. What is not in the table is
// Unavailable: an outcome that is unknown, or trouble that passes.
func (c *client) classify(call string, err error) error {
	if err == nil {
		return nil
	}
	// A version that the server has not reached is as good as one that it has
	// forgotten: the cluster was restored from a backup.
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return fault.Wrap(fault.Unavailable, errGone, "the Kubernetes API server has forgotten the history that the journal's watch asked for")
	}
	for _, class := range classes {
		if class.is(err) {
			text := strings.NewReplacer("{call}", call, "{namespace}", c.namespace).Replace(class.text)
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
		return fault.Wrap(fault.Unavailable, err, "the Kubernetes API server is in trouble (HTTP %d); the journal goes on when it has recovered", answer.Status().Code)
	}
	return fault.Wrap(fault.Unavailable, err, "the Kubernetes API server cannot be reached (%s); the journal goes on when it answers", fault.Silence(err))
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
