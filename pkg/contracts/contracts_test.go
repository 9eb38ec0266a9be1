package contracts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
)

// cluster is Contracts with the objects of a cluster, and no API server.
type cluster struct {
	*Contracts
	t      *testing.T
	listed map[string]bool
	unmet  error
}

// contractsAt are those of an API server, none of which the configuration lists.
func contractsAt(t *testing.T, url string) *Contracts {
	t.Helper()
	c, err := New(Config{
		At: &rest.Config{Host: url}, Driver: "driver.example.com", Backends: []string{"main"}, ChangesPerSecond: 1000,
		Listed: func(string) bool { return false }, Check: func(string, config.Terms) error { return nil }, Called: func(string, error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.queue.ShutDown)
	t.Cleanup(c.settings.queue.ShutDown)
	return c
}

func newCluster(t *testing.T) *cluster {
	out := &cluster{t: t, listed: map[string]bool{}}
	c := contractsAt(t, "http://127.0.0.1:1")
	c.Listed = func(name string) bool { return out.listed[name] }
	c.Check = func(string, config.Terms) error { return out.unmet }
	out.Contracts = c
	out.add(c.namespaces, namespaced("blue", "uid-blue", "blue"))
	out.add(c.namespaces, namespaced("azure", "uid-azure", "blue"))
	out.add(c.classes, offered())
	return out
}

func (c *cluster) add(to cache.SharedIndexInformer, o any) {
	c.t.Helper()
	if err := to.GetStore().Add(o); err != nil {
		c.t.Fatal(err)
	}
}

// order adds a Contract that was made so long ago.
func (c *cluster) orderIn(namespace string, age time.Duration) string {
	c.t.Helper()
	obj := &v1alpha1.Contract{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "media", CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
		Spec:       v1alpha1.ContractSpec{ClassName: "standard"},
	}
	c.add(c.contracts, obj)
	c.contractChanged(keyOf(obj))
	return keyOf(obj)
}

// A contract has one source: the configuration before an order, and of two orders the
// older one. What frees a name gives it to the next.
func TestWhoseAContractIs(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	class := offered()
	class.Spec.Existing = []v1alpha1.ExistingContract{{Namespace: "blue", Name: "media", Contract: "old"}}
	c.add(c.classes, class)
	blue := c.orderIn("blue", time.Hour)
	if terms, ok := c.Terms("old"); !ok || terms.Namespace != "blue" {
		t.Errorf("the terms are %+v, %v", terms, ok)
	}
	c.listed["old"] = true
	if o := c.order(blue); o.reason != nameTaken {
		t.Errorf("beside the configuration: %+v", o)
	}
	if _, ok := c.Terms("old"); ok || len(c.All()) > 0 {
		t.Error("the contract has two sources")
	}
	delete(c.listed, "old")

	// Another class gives the same contract to another namespace.
	other := offered()
	other.Name, other.Spec.Existing = "other", []v1alpha1.ExistingContract{{Namespace: "azure", Name: "media", Contract: "old"}}
	c.add(c.classes, other)
	obj := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Namespace: "azure", Name: "media", CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0))}, Spec: v1alpha1.ContractSpec{ClassName: "other"}}
	c.add(c.contracts, obj)
	c.contractChanged(keyOf(obj))
	if o := c.order(keyOf(obj)); o.reason != nameTaken {
		t.Errorf("the younger one: %+v", o)
	}
	if terms, ok := c.Terms("old"); !ok || terms.Namespace != "blue" || len(c.All()) != 1 {
		t.Errorf("the terms are %+v, %v", terms, ok)
	}
	if err := c.contracts.GetStore().Delete(get[*v1alpha1.Contract](c.contracts, blue)); err != nil {
		t.Fatal(err)
	}
	c.contractChanged(blue)
	if terms, ok := c.Terms("old"); !ok || terms.Namespace != "azure" {
		t.Errorf("after the older one is gone: %+v, %v", terms, ok)
	}
	c.unmet = errors.New("it has no plan")
	if o := c.order(keyOf(obj)); o.reason != termsNotPossible {
		t.Errorf("terms that the backend cannot meet: %+v", o)
	}
}

// A changed class changes the terms of its contracts at once, and a namespace that
// loses its label the acceptance.
func TestOrdersFollow(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	key := c.orderIn("blue", 0)
	name := c.order(key).id.Contract
	class := offered()
	class.Spec.Quota.MaxBuckets = number(6)
	c.add(c.classes, class)
	c.classChanged("standard")
	if terms, ok := c.Terms(name); !ok || *terms.Quota.MaxBuckets != 6 {
		t.Errorf("after a change of the class: %+v, %v", terms, ok)
	}
	c.add(c.namespaces, namespaced("blue", "uid-blue", "red"))
	c.namespaceChanged("blue")
	if _, ok := c.Terms(name); ok {
		t.Error("a namespace that may not order has terms")
	}
	c.add(c.namespaces, namespaced("blue", "uid-again", "blue"))
	c.namespaceChanged("blue")
	if _, ok := c.Terms(name); ok {
		t.Error("a namespace that was made again has the contract of the one before")
	}
}

// A change of a Contract has the settings of its buckets looked at, and of no others but
// those that tell of no bucket; its end, too.
func TestWhoseSettingsAreConcerned(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	t.Cleanup(c.settings.queue.ShutDown)
	key := c.orderIn("blue", 0)
	for claim, bucket := range map[string]string{"own": "main." + c.order(key).id.Contract + ".bucket", "other": "main.other.bucket", "none": ""} {
		obj := &v1alpha1.BucketSettings{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: claim}, Spec: v1alpha1.BucketSettingsSpec{BucketClaimName: claim}}
		obj.Status.Bucket = bucket
		c.add(c.settings.informer, obj)
	}
	for _, when := range []string{"a change", "the end"} {
		if when == "the end" {
			if err := c.contracts.GetStore().Delete(get[*v1alpha1.Contract](c.contracts, key)); err != nil {
				t.Fatal(err)
			}
		}
		c.contractChanged(key)
		var claims []string
		for c.settings.queue.Len() > 0 {
			claim, _ := c.settings.queue.Get()
			c.settings.queue.Done(claim)
			claims = append(claims, claim)
		}
		slices.Sort(claims)
		if !slices.Equal(claims, []string{"blue/none", "blue/own"}) {
			t.Errorf("%s: looked at are %v", when, claims)
		}
	}
}

// What tenants write into objects beside their specs takes no memory of the driver.
func TestWhatIsKeptOfObjects(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Query().Get("sendInitialEvents") != "": // it is too old for that
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprint(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Invalid","code":422}`)
			return
		case r.URL.Query().Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		kind, version := map[string]string{"contracts": "Contract", "contractclasses": "ContractClass", "namespaces": "Namespace", "bucketsettings": "BucketSettings"}[path.Base(r.URL.Path)], "contract-cosi.github.io/v1alpha1"
		if kind == "Namespace" {
			version = "v1"
		}
		_, _ = fmt.Fprintf(w, `{"apiVersion":%q,"kind":"%sList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"namespace":"blue","name":"a","uid":"1","labels":{"k":"v"},"annotations":{"k":"v"}}}]}`, version, kind)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(server.Close)
	t.Cleanup(cancel)
	c := contractsAt(t, server.URL)
	if err := c.Follow(ctx); err != nil {
		t.Fatal(err)
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.settings.synced) {
		t.Fatal("the settings are not read")
	}
	for _, informer := range []cache.SharedIndexInformer{c.contracts, c.classes, c.namespaces, c.settings.informer} {
		if n := len(informer.GetStore().List()); n != 1 {
			t.Errorf("%d objects are kept", n)
		}
		for _, o := range informer.GetStore().List() {
			obj, _ := o.(metav1.Object)
			if _, team := o.(*corev1.Namespace); obj.GetUID() != "1" || len(obj.GetAnnotations()) > 0 || len(obj.GetLabels()) > 0 != team {
				t.Errorf("kept is %+v", o)
			}
		}
	}
}

// A namespace concerns its own Contracts, and costs nothing for those of others: when the
// driver starts it is told of all namespaces. The test is not parallel, because it counts.
func TestWhatANamespaceCosts(t *testing.T) {
	c := newCluster(t)
	for i := range 2000 {
		obj := &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", i), Name: "media"}, Spec: v1alpha1.ContractSpec{ClassName: "standard"}}
		c.add(c.contracts, obj)
	}
	if n := testing.AllocsPerRun(10, func() { c.namespaceChanged("blue") }); n > 100 {
		t.Errorf("a namespace without Contracts costs %.0f allocations, beside 2,000 Contracts of others", n)
	}
}
