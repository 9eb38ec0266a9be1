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
	pageSize = 500
)

// client makes the few calls there are on Secrets.
type client struct{ *kube.Client }

func newClient(at *rest.Config, namespace string, called func(string, error)) (client, error) {
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

func (c client) create(ctx context.Context, s *corev1.Secret, options metav1.CreateOptions) (*corev1.Secret, error) {
	out := &corev1.Secret{}
	return out, c.Do(ctx, "create", out, func(r *rest.Request) *rest.Request {
		if len(options.DryRun) > 0 {
			r = r.Param("dryRun", options.DryRun[0])
		}
		return r.Body(s)
	})
}

func (c client) update(ctx context.Context, s *corev1.Secret) (*corev1.Secret, error) {
	out := &corev1.Secret{}
	return out, c.Do(ctx, "update", out, func(r *rest.Request) *rest.Request { return r.Name(s.Name).Body(s) })
}

func (c client) remove(ctx context.Context, name string, p metav1.Preconditions) error {
	options := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}, Preconditions: &p}
	return c.Do(ctx, "delete", nil, func(r *rest.Request) *rest.Request { return r.Name(name).Body(options) })
}

// list returns all Secrets that a selector names, as of the returned version.
func (c client) list(ctx context.Context, labels string) (items []corev1.Secret, version string, err error) {
	for next := ""; ; {
		page := &corev1.SecretList{}
		err := c.Do(ctx, "list", page, func(r *rest.Request) *rest.Request {
			if next != "" {
				r = r.Param("continue", next)
			}
			return selected(r, labels).Param("limit", strconv.Itoa(pageSize))
		})
		if err != nil {
			return nil, "", err
		}
		items, version, next = append(items, page.Items...), page.ResourceVersion, page.Continue
		if next == "" {
			return items, version, nil
		}
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
