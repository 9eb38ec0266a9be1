package kube

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// FieldManager is the name under which the driver applies objects.
const FieldManager = "contract-cosi-driver"

// Apply makes an object, or a subresource of it, as the driver says, and leaves to
// others what it does not say (server-side apply). An object with a uid is not
// re-created if it is gone: that is a Mismatch, or NotFound.
func (c *Client) Apply(ctx context.Context, namespace, name, subresource string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return c.Do(ctx, "patch", nil, func(r *rest.Request) *rest.Request {
		if namespace != "" {
			r = r.Namespace(namespace)
		}
		return r.Name(name).SubResource(sub(subresource)...).SetHeader("Content-Type", string(types.ApplyYAMLPatchType)).
			Param("fieldManager", FieldManager).Param("force", "true").Body(body)
	})
}

func sub(resource string) []string {
	if resource == "" {
		return nil
	}
	return []string{resource}
}

// Follow returns an informer of a resource, of those objects that a selector of
// labels names. list makes an empty list. It has to be run.
func (c *Client) Follow(example runtime.Object, list func() runtime.Object, labels string) (cache.SharedIndexInformer, error) {
	prepare := func(verb string, o metav1.ListOptions) *rest.Request {
		o.LabelSelector = labels
		return c.request(verb).VersionedParams(&o, metav1.ParameterCodec)
	}
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			out := list()
			err := prepare("list", o).Do(unlogged(ctx)).Into(out)
			c.called("list", c.Classify("list", err))
			return out, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := prepare("watch", o).Watch(unlogged(ctx))
			c.called("watch", c.Classify("watch", err))
			return w, err
		},
	}, example, 0, cache.Indexers{})
	return informer, informer.SetTransform(func(o any) (any, error) {
		if m, ok := o.(metav1.Object); ok {
			m.SetManagedFields(nil) // most of an object, and of no use here
		}
		return o, nil
	})
}

// Versions are those in which the server has a group of APIs, the preferred one
// first; none if it has no such group.
func Versions(ctx context.Context, at *rest.Config, group string) ([]string, error) {
	c, err := NewClient(at, "", Resource{Version: schema.GroupVersion{Group: group, Version: "v1"}, Kind: "APIGroup", Name: group, Verbs: "get"}, func(string, error) {})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(unlogged(ctx), CallTimeout)
	defer cancel()
	var out metav1.APIGroup
	body, err := c.rest.Get().AbsPath("/apis", group).SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(body, &out)
	}
	if err != nil {
		return nil, fmt.Errorf("API group %s: %w", group, c.Classify("get", err))
	}
	versions := []string{out.PreferredVersion.Version}
	for _, v := range out.Versions {
		if v.Version != out.PreferredVersion.Version {
			versions = append(versions, v.Version)
		}
	}
	return versions, nil
}
