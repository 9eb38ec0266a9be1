package contracts

import (
	"bytes"
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
)

// A Secret with a contract's own key has what AWS's tools read from their environment.
// One that the driver has not made is never changed.

// giveKey keeps the Secret that a Contract asks for.
func (k *control) giveKey(ctx context.Context, obj *v1alpha1.Contract, status *v1alpha1.ContractStatus, o order) error {
	want := obj.Spec.KeySecretName
	if status.KeySecretName != want {
		if err := k.takeKey(ctx, obj, status); err != nil {
			return err
		}
	}
	if want == "" || status.State == string(contract.StateSuspended) { // which has none to give now
		return nil
	}
	have, err := k.keySecret(ctx, obj, want)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	missing := err != nil
	if !missing && !k.madeFor(obj, have) {
		return fault.New(fault.Conflict, "Secret %s is there, and the driver has not made it; delete it, or name another in keySecretName", want)
	}
	key, at, err := k.provisioner.ContractKey(ctx, o.id, o.terms)
	if err != nil {
		return err
	}
	if missing && status.KeySecretName != want { // it is told first, or a driver that dies here would not know what to take away
		told := obj.Status.DeepCopy()
		told.KeySecretName = want
		if err := k.apply(ctx, obj, "status", nil, told); err != nil {
			return err
		}
		status.KeySecretName = want
	}
	data := map[string][]byte{
		"AWS_ACCESS_KEY_ID": []byte(key.AccessKeyID), "AWS_SECRET_ACCESS_KEY": []byte(key.SecretAccessKey.Reveal()),
		"AWS_ENDPOINT_URL_S3": []byte(at.URL), "AWS_REGION": []byte(at.Region),
	}
	secret := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: obj.Namespace, Name: want,
			Labels: map[string]string{ownerLabel: kube.OwnerMark(k.Driver)}, Annotations: map[string]string{contractMark: keyOf(obj)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Contract", Name: obj.Name, UID: obj.UID}},
		},
		Type: corev1.SecretTypeOpaque, Data: data,
	}
	switch {
	case missing:
		err = k.clients.secrets.Do(ctx, "create", nil, func(r *rest.Request) *rest.Request { return r.Namespace(obj.Namespace).Body(secret) })
	case !maps.EqualFunc(have.Data, data, bytes.Equal) || len(have.OwnerReferences) != 1 || have.OwnerReferences[0].UID != obj.UID:
		secret.UID, secret.ResourceVersion = have.UID, have.ResourceVersion
		err = k.clients.secrets.Do(ctx, "update", nil, func(r *rest.Request) *rest.Request { return r.Namespace(obj.Namespace).Name(want).Body(secret) })
	}
	if err == nil {
		status.KeySecretName = want
	}
	return err
}

// takeKey deletes the Secret that the driver has made for a Contract, if it has.
func (k *control) takeKey(ctx context.Context, obj *v1alpha1.Contract, status *v1alpha1.ContractStatus) error {
	name := status.KeySecretName
	if name == "" {
		return nil
	}
	have, err := k.keySecret(ctx, obj, name)
	if err == nil && k.madeFor(obj, have) {
		options := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"}, Preconditions: &metav1.Preconditions{UID: &have.UID}}
		err = k.clients.secrets.Do(ctx, "delete", nil, func(r *rest.Request) *rest.Request { return r.Namespace(obj.Namespace).Name(name).Body(options) })
	}
	if err = fault.IgnoreNotFound(err); err != nil {
		return err
	}
	status.KeySecretName = ""
	return nil
}

func (k *control) keySecret(ctx context.Context, obj *v1alpha1.Contract, name string) (*corev1.Secret, error) {
	out := &corev1.Secret{}
	err := k.clients.secrets.Do(ctx, "get", out, func(r *rest.Request) *rest.Request { return r.Namespace(obj.Namespace).Name(name) })
	if fault.Is(err, fault.PermissionDenied) {
		err = fault.Wrap(fault.PermissionDenied, err, "the driver may not keep Secrets in namespace %s; ask the platform's operator to add it to contracts.keyNamespaces of the chart", obj.Namespace)
	}
	return out, err
}

// madeFor reports whether the driver has made a Secret for a Contract.
func (k *control) madeFor(obj *v1alpha1.Contract, s *corev1.Secret) bool {
	return s.Labels[ownerLabel] == kube.OwnerMark(k.Driver) && s.Annotations[contractMark] == keyOf(obj)
}
