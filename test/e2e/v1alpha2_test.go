package e2e

import (
	"fmt"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	cosiproto "sigs.k8s.io/container-object-storage-interface/proto"
)

// orderedV1alpha2 is a Contract and BucketSettings in a cluster whose COSI is v1alpha2.
// Upstream has released no controller of it, so the test makes what that would.
func orderedV1alpha2(s *scenario) {
	c := s.ownCluster()
	s.must(c.installCOSI(s.ctx, "v1alpha2"))
	s.must(c.install(s.ctx, "v1alpha2", "v1alpha2"))
	s.must(c.apply(s.ctx, "-f", filepath.Join(deployDir, "crds")))
	w := newWorld(s.ctx, "v1alpha2", filepath.Dir(s.cosiBin), c.dir)
	w.cluster, w.contractd, w.accounts[driverAccount] = c, s.contractd, c.kubeconfig
	s.must(w.startDriver())
	s.Cleanup(w.stop)
	in := &scenario{TB: s.TB, world: w}
	blue, red := in.orders("order-blue"), in.orders("order-red")
	_, err := c.own.ContractClasses().Patch(s.ctx, blue.class, types.MergePatchType, []byte(`{"spec":{"bucketClasses":[{"name":"standard","deletionPolicy":"Delete","parameters":{"tags":"of=template"}}]}}`), metav1.PatchOptions{})
	s.must(err)
	blue.order("media", ", reclaimPolicy: Delete")
	blue.wait("media", "Ready")
	status := blue.get("media").Status

	at := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "objectstorage.k8s.io", Version: "v1alpha2", Resource: resource}
	}
	class, err := c.dynamic.Resource(at("bucketclasses")).Get(s.ctx, status.BucketClasses[0].Name, metav1.GetOptions{})
	s.must(err)
	access, err := c.dynamic.Resource(at("bucketaccessclasses")).Get(s.ctx, status.BucketAccessClasses[0].Name, metav1.GetOptions{})
	s.must(err)
	parameters, _, _ := unstructured.NestedStringMap(class.Object, "spec", "parameters")
	for _, o := range []*unstructured.Unstructured{class, access} {
		if driver, _, _ := unstructured.NestedString(o.Object, "spec", "driverName"); driver != driverName {
			s.Errorf("%s is of driver %q", o.GetName(), driver)
		}
	}
	if policy, _, _ := unstructured.NestedString(class.Object, "spec", "deletionPolicy"); policy != "Delete" || parameters["contract"] != status.Contract || parameters["tags"] != "of=template" {
		s.Errorf("its BucketClass says %v", class.Object["spec"])
	}
	if how, _, _ := unstructured.NestedString(access.Object, "spec", "authenticationType"); how != "Key" {
		s.Errorf("its BucketAccessClass says %v", access.Object["spec"])
	}

	claim := func(namespace string, more ...string) error {
		_, err := c.kubectl(s.ctx, fmt.Sprintf("apiVersion: objectstorage.k8s.io/v1alpha2\nkind: BucketClaim\nmetadata: {name: photos, namespace: %s}\nspec: {bucketClassName: %s, protocols: [S3]}\n", namespace, class.GetName()),
			append([]string{"create", "-f", "-"}, more...)...)
		return err
	}
	in.until("refused to the other namespace", func() error {
		if err := claim(red.namespace, "--dry-run=server"); err == nil || !strings.Contains(err.Error(), "belongs to a Contract of namespace order-blue") {
			return fmt.Errorf("the claim of another namespace: %w", err)
		}
		return nil
	})
	in.until("claimed", func() error { return claim(blue.namespace) })
	made, err := c.dynamic.Resource(at("bucketclaims")).Namespace(blue.namespace).Get(s.ctx, "photos", metav1.GetOptions{})
	s.must(err)
	bucket := "bc-" + string(made.GetUID())
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "objectstorage.k8s.io/v1alpha2", "kind": "Bucket", "metadata": map[string]any{"name": bucket},
		"spec": map[string]any{
			"driverName": driverName, "deletionPolicy": "Delete", "protocols": []any{"S3"},
			"bucketClaimRef": map[string]any{"namespace": blue.namespace, "name": "photos", "uid": string(made.GetUID())},
		},
	}}
	s.must(unstructured.SetNestedStringMap(object.Object, parameters, "spec", "parameters"))
	b, err := c.dynamic.Resource(at("buckets")).Create(s.ctx, object, metav1.CreateOptions{})
	s.must(err)
	driver := cosiproto.NewProvisionerClient(w.driver.Conn)
	answer, err := driver.DriverCreateBucket(s.ctx, &cosiproto.DriverCreateBucketRequest{Name: bucket, Parameters: parameters})
	s.must(err)
	tell := func(o *unstructured.Unstructured, resource, field, value string) {
		s.Helper()
		o.Object["status"] = map[string]any{field: value, "readyToUse": true}
		_, err := c.dynamic.Resource(at(resource)).Namespace(o.GetNamespace()).UpdateStatus(s.ctx, o, metav1.UpdateOptions{})
		s.must(err)
	}
	tell(b, "buckets", "bucketID", answer.GetBucketId())
	tell(made, "bucketclaims", "boundBucketName", bucket)

	t := &team{orders: blue, contract: status.Contract, client: in.operator(status.Contract)}
	t.has(bucket, "of=template")
	t.settles("photos", "photos", ", tags: {of: team}")
	t.has(bucket, "of=team", "!template")
	t.unset("photos")
	t.has(bucket, "of=template")

	// A template that changes reaches the class, which COSI keeps immutable.
	_, err = c.own.ContractClasses().Patch(s.ctx, blue.class, types.MergePatchType, []byte(`{"spec":{"bucketClasses":[{"name":"standard","deletionPolicy":"Delete","parameters":{"tags":"of=another"}}]}}`), metav1.PatchOptions{})
	s.must(err)
	in.until("of the changed template", func() error {
		class, err := c.dynamic.Resource(at("bucketclasses")).Get(s.ctx, class.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if tags, _, _ := unstructured.NestedString(class.Object, "spec", "parameters", "tags"); tags != "of=another" {
			return fmt.Errorf("its tags are %q", tags)
		}
		return nil
	})

	_, err = driver.DriverDeleteBucket(s.ctx, &cosiproto.DriverDeleteBucketRequest{BucketId: answer.GetBucketId()})
	s.must(err)
	blue.delete("media")
	in.until("without classes", func() error {
		return in.none("bucketclasses.objectstorage.k8s.io,bucketaccessclasses.objectstorage.k8s.io", "-l", "contract-cosi.github.io/namespace")
	})
}
