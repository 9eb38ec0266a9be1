// Package client reads and writes the driver's resources (package v1alpha1) at an API
// server, for programs that order contracts or configure buckets: operators, portals and
// tests. The driver itself follows them with informers.
//
//	c, err := client.New(config)
//	contract, err := c.Contracts("team-blue").Get(ctx, "media", metav1.GetOptions{})
//
// Errors are the API server's; package k8s.io/apimachinery/pkg/api/errors tells them
// apart.
package client

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
)

// Client makes calls on all three kinds.
type Client struct{ rest rest.Interface }

// New returns a Client; no call is made. The configuration says how the API server is
// reached, and how fast calls may follow each other.
func New(at *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	at = rest.CopyConfig(at)
	at.APIPath, at.GroupVersion = "/apis", &v1alpha1.GroupVersion
	at.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	at.ContentType, at.AcceptContentTypes = runtime.ContentTypeJSON, "" // custom resources have no other
	c, err := rest.RESTClientFor(at)
	return &Client{c}, err
}

// ContractClasses are what the platform offers.
func (c *Client) ContractClasses() Resource[*v1alpha1.ContractClass, *v1alpha1.ContractClassList] {
	return Resource[*v1alpha1.ContractClass, *v1alpha1.ContractClassList]{c.rest, "contractclasses", "ContractClass", "", &v1alpha1.ContractClass{}, &v1alpha1.ContractClassList{}}
}

// Contracts are those of a namespace; "" is all, for List and Watch.
func (c *Client) Contracts(namespace string) Resource[*v1alpha1.Contract, *v1alpha1.ContractList] {
	return Resource[*v1alpha1.Contract, *v1alpha1.ContractList]{c.rest, "contracts", "Contract", namespace, &v1alpha1.Contract{}, &v1alpha1.ContractList{}}
}

// BucketSettings are those of a namespace; "" is all, for List and Watch.
func (c *Client) BucketSettings(namespace string) Resource[*v1alpha1.BucketSettings, *v1alpha1.BucketSettingsList] {
	return Resource[*v1alpha1.BucketSettings, *v1alpha1.BucketSettingsList]{c.rest, "bucketsettings", "BucketSettings", namespace, &v1alpha1.BucketSettings{}, &v1alpha1.BucketSettingsList{}}
}

// Object is one of v1alpha1's kinds.
type Object interface {
	runtime.Object
	metav1.Object
}

// Resource makes calls on the objects T of a kind, whose lists are L.
type Resource[T Object, L runtime.Object] struct {
	rest                  rest.Interface
	name, kind, namespace string
	object                T // empty ones
	list                  L
}

func (r Resource[T, L]) to(request *rest.Request) *rest.Request {
	return request.NamespaceIfScoped(r.namespace, r.namespace != "").Resource(r.name)
}

func (r Resource[T, L]) into(ctx context.Context, request *rest.Request) (T, error) {
	out, _ := r.object.DeepCopyObject().(T)
	return out, request.Do(ctx).Into(out)
}

// Get reads one.
func (r Resource[T, L]) Get(ctx context.Context, name string, o metav1.GetOptions) (T, error) {
	return r.into(ctx, r.to(r.rest.Get()).Name(name).VersionedParams(&o, metav1.ParameterCodec))
}

// List reads those that the options select, or a page of them.
func (r Resource[T, L]) List(ctx context.Context, o metav1.ListOptions) (L, error) {
	out, _ := r.list.DeepCopyObject().(L)
	return out, r.to(r.rest.Get()).VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(out)
}

// Watch tells of changes until it is stopped or ctx ends, or the API server ends it.
func (r Resource[T, L]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return r.to(r.rest.Get()).VersionedParams(&o, metav1.ParameterCodec).Watch(ctx)
}

// Create makes one.
func (r Resource[T, L]) Create(ctx context.Context, object T, o metav1.CreateOptions) (T, error) {
	return r.into(ctx, r.to(r.rest.Post()).VersionedParams(&o, metav1.ParameterCodec).Body(object))
}

// Update replaces one, but for its status: a conflict if it has changed since it was read.
func (r Resource[T, L]) Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error) {
	return r.into(ctx, r.to(r.rest.Put()).Name(object.GetName()).VersionedParams(&o, metav1.ParameterCodec).Body(object))
}

// UpdateStatus replaces the status alone, which is the driver's to write.
func (r Resource[T, L]) UpdateStatus(ctx context.Context, object T, o metav1.UpdateOptions) (T, error) {
	return r.into(ctx, r.to(r.rest.Put()).Name(object.GetName()).SubResource("status").VersionedParams(&o, metav1.ParameterCodec).Body(object))
}

// Patch changes a part of one.
func (r Resource[T, L]) Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, o metav1.PatchOptions) (T, error) {
	return r.into(ctx, r.to(r.rest.Patch(kind)).Name(name).VersionedParams(&o, metav1.ParameterCodec).Body(patch))
}

// Apply makes one, or brings it to what the object says under the options' FieldManager
// (server-side apply). A field with its zero value says nothing, unless it is a pointer.
func (r Resource[T, L]) Apply(ctx context.Context, object T, o metav1.ApplyOptions) (T, error) {
	object, _ = object.DeepCopyObject().(T)
	object.GetObjectKind().SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(r.kind))
	object.SetManagedFields(nil)
	object.SetResourceVersion("")
	body, err := json.Marshal(object)
	if err != nil {
		return object, fmt.Errorf("%s %s: %w", r.kind, object.GetName(), err)
	}
	return r.Patch(ctx, object.GetName(), types.ApplyPatchType, body, o.ToPatchOptions())
}

// Delete deletes one, which stays until its finalizers are off.
func (r Resource[T, L]) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return r.to(r.rest.Delete()).Name(name).Body(&o).Do(ctx).Error()
}

// DeleteCollection deletes those that the list options select.
func (r Resource[T, L]) DeleteCollection(ctx context.Context, o metav1.DeleteOptions, of metav1.ListOptions) error {
	return r.to(r.rest.Delete()).VersionedParams(&of, metav1.ParameterCodec).Body(&o).Do(ctx).Error()
}
