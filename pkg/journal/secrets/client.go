package secrets

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
)

const (
	// tries is how often a call is made that gets no answer, or is put off.
	tries = 5
	// firstPause is the wait after the first try; it doubles.
	firstPause = 50 * time.Millisecond
	// longestPause is the longest that a server may ask for within a call. One
	// that asks for more is named to the caller, who comes back.
	longestPause = 2 * time.Second
	// pageSize is how many Secrets a page of a list has.
	pageSize = 1500
)

// client makes the few calls there are on Secrets.
type client struct{ *kube.Client }

func newClient(at *rest.Config, namespace string, called func(string, error)) (client, error) {
	at = rest.CopyConfig(at)
	at.ContentType = runtime.ContentTypeProtobuf // costs both sides less
	c, err := kube.NewClient(at, namespace, kube.Resource{
		Version: corev1.SchemeGroupVersion, Name: "secrets", Kind: "Secret", Verbs: "get, list, watch, create, update and delete",
		Types: []runtime.Object{&corev1.Secret{}, &corev1.SecretList{}},
	}, called)
	return client{c}, err
}

func (c client) get(ctx context.Context, name string) (*corev1.Secret, error) {
	out := &corev1.Secret{}
	return out, c.Do(ctx, "get", out, func(r *rest.Request) *rest.Request { return r.Name(name) })
}

// write creates a Secret, or replaces it if it has a resourceVersion. A dry run
// does all but that. Who manages which field is not kept of a replaced one: one client writes
// them all, and to work it out is a tenth of what a write costs the server.
func (c client) write(ctx context.Context, s *corev1.Secret, dry bool) (*corev1.Secret, error) {
	call, out := "create", &corev1.Secret{}
	if s.ResourceVersion != "" {
		call = "update"
		s.ManagedFields = []metav1.ManagedFieldsEntry{{}} // as the API has it for none
	}
	return out, c.Do(ctx, call, out, func(r *rest.Request) *rest.Request {
		if call == "update" {
			r = r.Name(s.Name)
		}
		if dry {
			r = r.Param("dryRun", metav1.DryRunAll)
		}
		return r.Body(s)
	})
}

func (c client) remove(ctx context.Context, name string, p metav1.Preconditions) error {
	options := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}, Preconditions: &p}
	return c.Do(ctx, "delete", nil, func(r *rest.Request) *rest.Request { return r.Name(name).Body(options) })
}

// list passes on all Secrets that a selector names, page by page, as of the
// returned version.
func (c client) list(ctx context.Context, labels string, take func([]corev1.Secret) error) (version string, err error) {
	for next := ""; ; {
		page := &corev1.SecretList{}
		err := c.Do(ctx, "list", page, func(r *rest.Request) *rest.Request {
			if next != "" {
				r = r.Param("continue", next)
			}
			return selected(r, labels).Param("limit", strconv.Itoa(pageSize))
		})
		if err == nil {
			err = take(page.Items)
		}
		if err != nil || page.Continue == "" {
			return page.ResourceVersion, err
		}
		next = page.Continue
	}
}

func (c client) watch(ctx context.Context, labels, from string, length time.Duration) (watch.Interface, error) {
	return c.Watch(ctx, length, func(r *rest.Request) *rest.Request {
		return selected(r, labels).Param("resourceVersion", from).Param("allowWatchBookmarks", "true")
	})
}

func selected(r *rest.Request, labels string) *rest.Request {
	return r.Param("labelSelector", labels).Param("fieldSelector", "type="+secretType)
}
