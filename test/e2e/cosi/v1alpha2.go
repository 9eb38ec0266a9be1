package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	kubeerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
)

// protection is the finalizer of all that is made.
const protection = "objectstorage.k8s.io/protection"

// looks are how long the stand-in waits between two looks at all objects.
const looks = 300 * time.Millisecond

// v1alpha2 stands in for upstream's controller and sidecar of v1alpha2, as far as
// claims and keys go. As they do, it grants every access again when it has started,
// and writes the answer into the Secrets, whatever they hold; once it has, it leaves an
// access alone. It takes the Secrets away before it revokes.
type v1alpha2 struct {
	objects dynamic.Interface
	kube    kubernetes.Interface
	driver  cosipb.ProvisionerClient
	granted map[types.UID]bool
}

func standIn(ctx context.Context, config *rest.Config, driver string) error {
	conn, err := grpc.NewClient(driver, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	s := &v1alpha2{driver: cosipb.NewProvisionerClient(conn), granted: map[types.UID]bool{}}
	if s.objects, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	if s.kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	for {
		s.all(ctx, "bucketclaims", s.claim)
		s.all(ctx, "bucketaccesses", s.access)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(looks):
		}
	}
}

func (s *v1alpha2) at(plural string) dynamic.NamespaceableResourceInterface {
	return s.objects.Resource(schema.GroupVersionResource{Group: "objectstorage.k8s.io", Version: "v1alpha2", Resource: plural})
}

// all reconciles what there is of a kind. What fails is tried again at the next look.
func (s *v1alpha2) all(ctx context.Context, plural string, reconcile func(context.Context, *unstructured.Unstructured) error) {
	list, err := s.at(plural).List(ctx, metav1.ListOptions{})
	if err != nil {
		klog.ErrorS(err, "Cannot list", "kind", plural)
		return
	}
	for i := range list.Items {
		if err := reconcile(ctx, &list.Items[i]); err != nil {
			klog.ErrorS(err, "Reconciler error", "kind", plural, "name", list.Items[i].GetName())
		}
	}
}

// protect puts the finalizer on, or takes it away.
func (s *v1alpha2) protect(ctx context.Context, plural string, o *unstructured.Unstructured, on bool) error {
	if slices.Contains(o.GetFinalizers(), protection) == on {
		return nil
	}
	o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == protection }))
	if on {
		o.SetFinalizers(append(o.GetFinalizers(), protection))
	}
	now, err := s.at(plural).Namespace(o.GetNamespace()).Update(ctx, o, metav1.UpdateOptions{})
	if err == nil {
		*o = *now
	}
	return err
}

// write sets an object's status.
func (s *v1alpha2) write(ctx context.Context, plural string, o *unstructured.Unstructured, status map[string]any) error {
	o.Object["status"] = status
	_, err := s.at(plural).Namespace(o.GetNamespace()).UpdateStatus(ctx, o, metav1.UpdateOptions{})
	return err
}

func text(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

// parameters are a class's.
func (s *v1alpha2) parameters(ctx context.Context, plural, class string) (map[string]string, error) {
	o, err := s.at(plural).Get(ctx, class, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	in, _, err := unstructured.NestedStringMap(o.Object, "spec", "parameters")
	return in, err
}

// claim has a bucket made for a claim. The id, which upstream has in a Bucket, stays
// in the claim's status.
func (s *v1alpha2) claim(ctx context.Context, c *unstructured.Unstructured) error {
	id := text(c, "status", "bucketID")
	parameters, err := s.parameters(ctx, "bucketclasses", text(c, "spec", "bucketClassName"))
	if err != nil {
		return err
	}
	if c.GetDeletionTimestamp() != nil {
		if id != "" {
			if _, err := s.driver.DriverDeleteBucket(ctx, &cosipb.DriverDeleteBucketRequest{BucketId: id, Parameters: parameters}); err != nil {
				return err
			}
		}
		return s.protect(ctx, "bucketclaims", c, false)
	}
	if id != "" {
		return nil
	}
	if err := s.protect(ctx, "bucketclaims", c, true); err != nil {
		return err
	}
	name := "bc-" + string(c.GetUID())
	made, err := s.driver.DriverCreateBucket(ctx, &cosipb.DriverCreateBucketRequest{
		Name: name, Protocols: []*cosipb.ObjectProtocol{{Type: cosipb.ObjectProtocol_S3}}, Parameters: parameters,
	})
	if err != nil {
		return err
	}
	return s.write(ctx, "bucketclaims", c, map[string]any{"boundBucketName": name, "bucketID": made.GetBucketId(), "readyToUse": true})
}

// access has a key made for an access to one claim.
func (s *v1alpha2) access(ctx context.Context, a *unstructured.Unstructured) error {
	claims, _, err := unstructured.NestedSlice(a.Object, "spec", "bucketClaims")
	if err != nil || len(claims) != 1 {
		return fmt.Errorf("an access to %d claims: %w", len(claims), err)
	}
	of := unstructured.Unstructured{Object: claims[0].(map[string]any)}
	secret := text(&of, "accessSecretName")
	protocol, key := &cosipb.ObjectProtocol{Type: cosipb.ObjectProtocol_S3}, &cosipb.AuthenticationType{Type: cosipb.AuthenticationType_KEY}
	if a.GetDeletionTimestamp() != nil {
		if err := s.forget(ctx, a.GetNamespace(), secret); err != nil {
			return err
		}
		id, bucket := text(a, "status", "accountID"), ""
		if accessed, _, _ := unstructured.NestedSlice(a.Object, "status", "accessedBuckets"); len(accessed) > 0 {
			bucket = text(&unstructured.Unstructured{Object: accessed[0].(map[string]any)}, "bucketID")
		}
		if id != "" {
			if _, err := s.driver.DriverRevokeBucketAccess(ctx, &cosipb.DriverRevokeBucketAccessRequest{
				AccountId: id, Protocol: protocol, AuthenticationType: key, Buckets: []*cosipb.DriverRevokeBucketAccessRequest_AccessedBucket{{BucketId: bucket}},
			}); err != nil {
				return err
			}
		}
		return s.protect(ctx, "bucketaccesses", a, false)
	}
	if s.granted[a.GetUID()] {
		return nil
	}
	claim, err := s.at("bucketclaims").Namespace(a.GetNamespace()).Get(ctx, text(&of, "bucketClaimName"), metav1.GetOptions{})
	if err != nil || text(claim, "status", "bucketID") == "" {
		return err
	}
	parameters, err := s.parameters(ctx, "bucketaccessclasses", text(a, "spec", "bucketAccessClassName"))
	if err != nil {
		return err
	}
	if err := s.protect(ctx, "bucketaccesses", a, true); err != nil {
		return err
	}
	bucket := text(claim, "status", "bucketID")
	answer, err := s.driver.DriverGrantBucketAccess(ctx, &cosipb.DriverGrantBucketAccessRequest{
		AccountName: "ba-" + string(a.GetUID()), Protocol: protocol, AuthenticationType: key, Parameters: parameters,
		Buckets: []*cosipb.DriverGrantBucketAccessRequest_AccessedBucket{{BucketId: bucket, AccessMode: &cosipb.AccessMode{Mode: cosipb.AccessMode_READ_WRITE}}},
	})
	if err != nil {
		return err
	}
	if err := s.hand(ctx, a, secret, answer); err != nil {
		return err
	}
	s.granted[a.GetUID()] = true
	if text(a, "status", "accountID") == answer.GetAccountId() {
		return nil
	}
	return s.write(ctx, "bucketaccesses", a, map[string]any{"readyToUse": true, "accountID": answer.GetAccountId(), "accessedBuckets": []any{
		map[string]any{"bucketName": text(claim, "status", "boundBucketName"), "bucketID": bucket, "bucketClaimName": claim.GetName()},
	}})
}

// hand writes the answer into an access's Secret.
func (s *v1alpha2) hand(ctx context.Context, a *unstructured.Unstructured, name string, answer *cosipb.DriverGrantBucketAccessResponse) error {
	info, pair := answer.GetBuckets()[0].GetBucketInfo().GetS3(), answer.GetCredentials().GetS3()
	secrets, controller := s.kube.CoreV1().Secrets(a.GetNamespace()), true
	have, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !kubeerrors.IsNotFound(err) {
		return err
	}
	missing := err != nil
	now := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: a.GetNamespace()}, Type: v1.SecretTypeOpaque}
	if !missing {
		now = have
	}
	now.Finalizers = []string{protection}
	now.OwnerReferences = []metav1.OwnerReference{{APIVersion: a.GetAPIVersion(), Kind: a.GetKind(), Name: a.GetName(), UID: a.GetUID(), Controller: &controller}}
	now.Data = nil
	now.StringData = map[string]string{
		"COSI_S3_BUCKET_ID": info.GetBucketId(), "COSI_S3_ENDPOINT": info.GetEndpoint(), "COSI_S3_REGION": info.GetRegion(), "COSI_S3_ADDRESSING_STYLE": "path",
		"COSI_S3_ACCESS_KEY_ID": pair.GetAccessKeyId(), "COSI_S3_ACCESS_SECRET_KEY": pair.GetAccessSecretKey(),
	}
	if missing {
		_, err = secrets.Create(ctx, now, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, now, metav1.UpdateOptions{})
	}
	return err
}

// forget deletes a Secret.
func (s *v1alpha2) forget(ctx context.Context, namespace, name string) error {
	secrets := s.kube.CoreV1().Secrets(namespace)
	have, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if kubeerrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	have.Finalizers = nil
	if _, err := secrets.Update(ctx, have, metav1.UpdateOptions{}); err != nil {
		return err
	}
	err = secrets.Delete(ctx, name, metav1.DeleteOptions{})
	if kubeerrors.IsNotFound(err) {
		return nil
	}
	return err
}
