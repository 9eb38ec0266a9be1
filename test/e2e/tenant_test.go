package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cosiapi "sigs.k8s.io/container-object-storage-interface/client/apis"
	"sigs.k8s.io/container-object-storage-interface/client/apis/objectstorage/v1alpha1"
	cosiclient "sigs.k8s.io/container-object-storage-interface/client/clientset/versioned/typed/objectstorage/v1alpha1"
)

const (
	// patience bounds every wait. Nothing takes nearly as long.
	patience = 2 * time.Minute
	// settled is how long an object must not change to be called stuck: longer
	// than any party waits between two attempts.
	settled = 4 * time.Second
)

// scenario is one line of the table.
type scenario struct {
	testing.TB
	*world
	notes []string
	// raced and orphans count what upstream's races left for users to repair.
	raced, orphans int
}

func (s *scenario) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scenario) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// pass lets time go by in which the world works on; no verdict hangs on how much it
// gets done.
func (s *scenario) pass(d time.Duration) {
	select {
	case <-s.ctx.Done():
	case <-time.After(d):
	}
}

// until waits for a condition: for ready to return nil.
func (s *scenario) until(what string, ready func() error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	for {
		err := ready()
		if err == nil {
			return
		}
		s.must(s.alive())
		select {
		case <-ctx.Done():
			s.Fatalf("still not %s: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tenant is an application team: a namespace, a contract, and classes that name it.
type tenant struct {
	*scenario
	name string // of all of these
	// handedOut are the credentials that were read, by access: what has to be
	// worthless in the end.
	handedOut map[string]credentials
	unchanged map[types.UID]state
}

// state is since when an object is what it is.
type state struct {
	version string
	since   time.Time
}

// classes are what differs between tenants.
type classes struct {
	policy             v1alpha1.DeletionPolicy
	parameters, access map[string]string
}

// tenant makes one. Its bucket class names a contract of its own.
func (s *scenario) tenant(name string, c classes) *tenant {
	s.Helper()
	parameters := map[string]string{"contract": name}
	maps.Copy(parameters, c.parameters)
	if c.policy == "" {
		c.policy = v1alpha1.DeletionPolicyDelete
	}
	meta := metav1.ObjectMeta{Name: name}
	_, err := s.kube.CoreV1().Namespaces().Create(s.ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{driverName + "/" + name: name}, // or it may not claim its class
	}}, metav1.CreateOptions{})
	s.must(err)
	api := s.cosi.ObjectstorageV1alpha1()
	_, err = api.BucketClasses().Create(s.ctx, &v1alpha1.BucketClass{ObjectMeta: meta, DriverName: driverName,
		DeletionPolicy: c.policy, Parameters: parameters}, metav1.CreateOptions{})
	s.must(err)
	_, err = api.BucketAccessClasses().Create(s.ctx, &v1alpha1.BucketAccessClass{ObjectMeta: meta, DriverName: driverName,
		AuthenticationType: v1alpha1.AuthenticationTypeKey, Parameters: c.access}, metav1.CreateOptions{})
	s.must(err)
	n := &tenant{s, name, map[string]credentials{}, map[types.UID]state{}}
	// The API server's policies learn of a new class after a moment.
	s.until("allowed to claim its class", func() error {
		_, err := n.claims().Create(n.ctx, n.claimOf("probe", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	return n
}

func (n *tenant) claims() cosiclient.BucketClaimInterface {
	return n.cosi.ObjectstorageV1alpha1().BucketClaims(n.name)
}

func (n *tenant) accesses() cosiclient.BucketAccessInterface {
	return n.cosi.ObjectstorageV1alpha1().BucketAccesses(n.name)
}

func (n *tenant) buckets() cosiclient.BucketInterface {
	return n.cosi.ObjectstorageV1alpha1().Buckets()
}

// claim asks for a bucket, or for one that exists.
func (n *tenant) claim(name, existing string) error {
	_, err := n.claims().Create(n.ctx, n.claimOf(name, existing), metav1.CreateOptions{})
	return made(err)
}

func (n *tenant) claimOf(name, existing string) *v1alpha1.BucketClaim {
	return &v1alpha1.BucketClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.BucketClaimSpec{
		BucketClassName: n.name, ExistingBucketName: existing, Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolS3},
	}}
}

// access asks for a key to a claim's bucket, in a Secret of the access's name.
func (n *tenant) access(name, claim string) error {
	spec := v1alpha1.BucketAccessSpec{BucketClaimName: claim, BucketAccessClassName: n.name, CredentialsSecretName: name, Protocol: v1alpha1.ProtocolS3}
	_, err := n.accesses().Create(n.ctx, &v1alpha1.BucketAccess{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	return made(err)
}

// made is success where something is to be there.
func made(err error) error {
	if kubeerrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// ask asks for a bucket and a key to it.
func (n *tenant) ask(name string) error {
	return errors.Join(n.claim(name, ""), n.access(name, name))
}

func (n *tenant) deleteClaim(name string) error {
	return gone(n.claims().Delete(n.ctx, name, metav1.DeleteOptions{}))
}

func (n *tenant) deleteAccess(name string) error {
	return gone(n.accesses().Delete(n.ctx, name, metav1.DeleteOptions{}))
}

// gone is success where something is to be deleted.
func gone(err error) error {
	if kubeerrors.IsNotFound(err) {
		return nil
	}
	return err
}

// objects are the tenant's, read in an order in which a Bucket is never older
// than the claim that is compared with it.
type objects struct {
	claims   []v1alpha1.BucketClaim
	accesses []v1alpha1.BucketAccess
	buckets  map[string]v1alpha1.Bucket
	claimed  map[string]bool
}

func (o objects) accessNames() []string {
	var names []string
	for _, a := range o.accesses {
		names = append(names, a.Name)
	}
	return names
}

func (n *tenant) objects() (objects, error) {
	o := objects{buckets: map[string]v1alpha1.Bucket{}, claimed: map[string]bool{}}
	accesses, err := n.accesses().List(n.ctx, metav1.ListOptions{})
	if err != nil {
		return o, err
	}
	claims, err := n.claims().List(n.ctx, metav1.ListOptions{})
	if err != nil {
		return o, err
	}
	buckets, err := n.buckets().List(n.ctx, metav1.ListOptions{})
	if err != nil {
		return o, err
	}
	o.accesses, o.claims = accesses.Items, claims.Items
	for _, c := range o.claims {
		o.claimed[c.Name] = true
	}
	for _, b := range buckets.Items {
		if b.Spec.BucketClaim != nil && b.Spec.BucketClaim.Namespace == n.name {
			o.buckets[b.Name] = b
		}
	}
	return o, nil
}

// stuck reports whether an object has not changed for so long that no one works
// on it.
func (n *tenant) stuck(obj metav1.Object) bool {
	s, known := n.unchanged[obj.GetUID()]
	if !known || s.version != obj.GetResourceVersion() {
		n.unchanged[obj.GetUID()] = state{obj.GetResourceVersion(), time.Now()}
		return false
	}
	return time.Since(s.since) > settled
}

// ready waits until all claims are ready and all accesses granted.
func (n *tenant) ready() {
	n.Helper()
	n.until("ready", func() error {
		o, err := n.objects()
		if err == nil {
			err = n.heal(o)
		}
		if err != nil {
			return err
		}
		var waiting []string
		for i := range o.claims {
			c := &o.claims[i]
			if b := o.bucketOf(c); !c.Status.BucketReady || c.Status.BucketName == "" {
				waiting = append(waiting, fmt.Sprintf("claim %s (ready %t) of Bucket %q (ready %t)", c.Name, c.Status.BucketReady, b.Name, b.Status.BucketReady))
			}
		}
		for _, a := range o.accesses {
			if !a.Status.AccessGranted || a.Status.AccountID == "" {
				waiting = append(waiting, "access "+a.Name)
			}
		}
		return some("not ready", waiting)
	})
}

// heal makes up for a race of the released controller and sidecar, which both
// write a claim's status: the controller can put bucketReady=false over the true
// of the sidecar, or give up when it sees that true before it has written
// bucketName, and nothing corrects it. The Bucket is ready, its claim is not and
// stays so. Such claims are counted, and cured as users do, by a patch of the
// status. A claim whose Bucket is not ready is the driver's affair.
func (n *tenant) heal(o objects) error {
	for i := range o.claims {
		c := &o.claims[i]
		b := o.bucketOf(c)
		if b.Status.BucketID == "" || !b.Status.BucketReady || c.Status.BucketReady && c.Status.BucketName != "" || !n.stuck(c) {
			continue
		}
		patch := fmt.Appendf(nil, `{"status": {"bucketReady": true, "bucketName": %q}}`, b.Name)
		if _, err := n.claims().Patch(n.ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
		n.raced++
	}
	return nil
}

// bucketOf is the Bucket that the controller has made for a claim, or the one
// that the claim names.
func (o objects) bucketOf(c *v1alpha1.BucketClaim) v1alpha1.Bucket {
	name := c.Spec.ExistingBucketName
	if name == "" {
		name = "bucket-" + string(c.UID)
	}
	return o.buckets[name]
}

// some is an error that names the first few of those that are waited for.
func some(what string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%d %s: %s", len(names), what, strings.Join(names[:min(3, len(names))], "; "))
}

// credentials is what an application reads from its Secret.
type credentials struct {
	Bucket, Endpoint, Region, AccessKeyID, SecretAccessKey string
}

// secret reads the Secret of an access, as the pod would that mounts it.
func (n *tenant) secret(access string) credentials {
	n.Helper()
	s, err := n.kube.CoreV1().Secrets(n.name).Get(n.ctx, access, metav1.GetOptions{})
	n.must(err)
	var info cosiapi.BucketInfo
	n.must(json.Unmarshal(s.Data["BucketInfo"], &info))
	if info.Spec.S3 == nil || info.Spec.AuthenticationType != v1alpha1.AuthenticationTypeKey || len(s.Data) != 1 {
		n.Fatalf("Secret %s is not one for S3 with a key", access)
	}
	c := credentials{info.Spec.BucketName, info.Spec.S3.Endpoint, info.Spec.S3.Region, info.Spec.S3.AccessKeyID, info.Spec.S3.AccessSecretKey}
	n.handedOut[access] = c
	return c
}

// vanish waits until nothing is left of the tenant's claims, accesses, Buckets
// and Secrets, and proves that the keys it has read are worthless.
//
// The released controller and sidecar lose objects, whatever the driver does:
//
//   - A claim that is ready before the controller has put its finalizer on never
//     gets it. It goes at once when it is deleted, and its Bucket stays.
//   - A Bucket that has lost its claim cannot shed its finalizers. A write
//     conflict after the driver has deleted its bucket leads there.
//   - An access that has lost its claim is never revoked. It was deleted with its
//     claim, and the claim was the faster. The driver has to have revoked the key
//     with the bucket.
//
// Such objects are counted, and cured as users do: by deleting the Bucket, and
// by taking finalizers away when the driver has done its part and forgotten them.
func (n *tenant) vanish() {
	n.Helper()
	orphans := map[types.UID]bool{}
	n.until("gone", func() error {
		o, err := n.objects()
		if err != nil {
			return err
		}
		journal, err := n.journal()
		if err != nil {
			return err
		}
		var left []string
		for i := range o.claims {
			left = append(left, "claim "+o.claims[i].Name)
		}
		if err := n.bury(o, orphans); err != nil {
			return err
		}
		for _, b := range o.buckets {
			left = append(left, "Bucket "+b.Name)
			if owner := b.Spec.BucketClaim; owner == nil || o.claimed[owner.Name] || !n.stuck(&b) {
				continue
			}
			if !b.DeletionTimestamp.IsZero() && b.Spec.DeletionPolicy == v1alpha1.DeletionPolicyDelete && strings.Contains(journal, b.Name) {
				continue // no one has asked the driver yet
			}
			orphans[b.UID] = true
			if b.DeletionTimestamp.IsZero() {
				err = n.buckets().Delete(n.ctx, b.Name, metav1.DeleteOptions{})
			} else {
				b.Finalizers = nil
				_, err = n.buckets().Update(n.ctx, &b, metav1.UpdateOptions{})
			}
			if gone(err) != nil {
				return err
			}
		}
		for i := range o.accesses {
			a := &o.accesses[i]
			left = append(left, "access "+a.Name)
			if a.DeletionTimestamp.IsZero() || !o.orphaned(a.Spec.BucketClaimName) || !n.stuck(a) || strings.Contains(journal, string(a.UID)) {
				continue
			}
			if c, ok := n.handedOut[a.Name]; ok && n.refused(c) != nil {
				return fmt.Errorf("access %s has lost its bucket, and its key still works", a.Name)
			}
			orphans[a.UID] = true
			if err := n.release(a); err != nil {
				return err
			}
		}
		secrets, err := n.kube.CoreV1().Secrets(n.name).List(n.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, s := range secrets.Items {
			left = append(left, "Secret "+s.Name)
		}
		return some("left", left)
	})
	n.orphans += len(orphans)
	for access, c := range n.handedOut {
		if err := n.refused(c); err != nil {
			n.Errorf("the key of access %s: %v", access, err)
		}
		if who := n.tells(c.SecretAccessKey); len(who) > 0 {
			n.Errorf("the log of %s holds the secret of access %s", strings.Join(who, " and of "), access)
		}
	}
}

// bury takes the finalizers from claims that are deleted and whose Bucket is gone: the
// released sidecar does that before it deletes the Bucket, and no more if it fails then.
func (n *tenant) bury(o objects, orphans map[types.UID]bool) error {
	for i := range o.claims {
		c := &o.claims[i]
		if c.DeletionTimestamp.IsZero() || o.bucketOf(c).Name != "" || !n.stuck(c) {
			continue
		}
		orphans[c.UID], c.Finalizers = true, nil
		if _, err := n.claims().Update(n.ctx, c, metav1.UpdateOptions{}); gone(err) != nil {
			return err
		}
	}
	return nil
}

// journal is the names of the driver's records, which have those of the buckets
// and keys in them that it knows.
func (n *tenant) journal() (string, error) {
	secrets, err := n.kube.CoreV1().Secrets(journalNamespace).List(n.ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	var names []string
	for _, s := range secrets.Items {
		names = append(names, s.Name)
	}
	return strings.Join(names, " "), nil
}

// orphaned reports whether a claim and its Bucket are both gone.
func (o objects) orphaned(claim string) bool {
	for _, b := range o.buckets {
		if b.Spec.BucketClaim != nil && b.Spec.BucketClaim.Name == claim {
			return false
		}
	}
	return !o.claimed[claim]
}

// release takes the finalizers from an access and its Secret.
func (n *tenant) release(a *v1alpha1.BucketAccess) error {
	secrets := n.kube.CoreV1().Secrets(n.name)
	s, err := secrets.Get(n.ctx, a.Spec.CredentialsSecretName, metav1.GetOptions{})
	if err == nil {
		s.Finalizers = nil
		if _, err = secrets.Update(n.ctx, s, metav1.UpdateOptions{}); err == nil {
			err = secrets.Delete(n.ctx, s.Name, metav1.DeleteOptions{})
		}
	}
	if gone(err) != nil {
		return err
	}
	a.Finalizers = nil
	_, err = n.accesses().Update(n.ctx, a, metav1.UpdateOptions{})
	return gone(err)
}

// existing makes a Bucket object for a bucket that is there, as administrators
// do. The object has to be named like the bucket: the Secret shows its name.
func (n *tenant) existing(bucket, claim string, policy v1alpha1.DeletionPolicy) {
	n.Helper()
	_, err := n.kubectl(n.ctx, fmt.Sprintf(`apiVersion: objectstorage.k8s.io/v1alpha1
kind: Bucket
metadata: {name: %s}
spec: {driverName: %s, bucketClassName: %s, deletionPolicy: %s, existingBucketID: main.%s.%s, protocols: [S3], bucketClaim: {namespace: %s, name: %s}}
`, bucket, driverName, n.name, policy, n.name, bucket, n.name, claim), "apply", "--validate=strict", "-f", "-")
	n.must(err)
	n.until("ready", func() error {
		b, err := n.buckets().Get(n.ctx, bucket, metav1.GetOptions{})
		if err == nil && !b.Status.BucketReady {
			err = errors.New("the sidecar has not taken the Bucket on")
		}
		return err
	})
}
