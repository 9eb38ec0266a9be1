package contracts

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube"
	"github.com/contract-cosi/contract-cosi-driver/pkg/kube/objects"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// signing is a provisioner of one contract, at a service that fails at will.
type signing struct {
	Provisioner
	state                contract.State
	err, keyErr, mayNot  error
	signed               []config.Terms
	cancelled, described int
}

func (s *signing) have() contract.Contract { return contract.Contract{Name: "c", State: s.state} }

func (s *signing) Sign(_ context.Context, _ cosi.ContractID, terms config.Terms) (contract.Contract, error) {
	s.signed = append(s.signed, terms)
	return s.have(), s.err
}

func (s *signing) DescribeContract(context.Context, cosi.ContractID) (contract.Contract, []string, error) {
	s.described++
	return s.have(), nil, s.err
}

func (s *signing) Usage(context.Context, cosi.ContractID) (contract.Usage, error) {
	return contract.Usage{}, nil
}

func (s *signing) Buckets(context.Context, cosi.ContractID, int) ([]string, int, error) {
	return nil, 0, nil
}

func (s *signing) Cancel(context.Context, cosi.ContractID) error {
	s.cancelled++
	return s.mayNot
}

func (s *signing) ContractKey(context.Context, cosi.ContractID, config.Terms) (secret.KeyPair, cosi.Endpoint, error) {
	return secret.KeyPair{AccessKeyID: "KEY", SecretAccessKey: secret.New("secret")}, cosi.Endpoint{}, s.keyErr
}

// tenant is a control with an accepted Contract of a namespace, beside an API server that
// keeps its status. Answer, if it is not nil, is asked first what a call is answered.
type tenant struct {
	*control
	t      *testing.T
	obj    *v1alpha1.Contract
	writes int
	answer func(*http.Request) int
	secret func() *corev1.Secret // the one that is there
}

// withClasses lets Contracts know that there are no classes yet.
func (c *Contracts) withClasses(t *testing.T) {
	t.Helper()
	at := &cosiObjects{version: objects.V1alpha1}
	for i, of := range []runtime.Object{&objects.BucketClass{}, &objects.BucketAccessClass{}} {
		client, err := kube.NewClient(c.At, "", kube.Resource{Version: schema.GroupVersion{Group: objects.Group, Version: objects.V1alpha1}, Name: "classes", Types: []runtime.Object{of}}, c.Called)
		if err != nil {
			t.Fatal(err)
		}
		informer, err := client.Follow(of, func() runtime.Object { return &objects.BucketClassList{} }, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := informer.AddIndexers(cache.Indexers{contractMark: func(o any) ([]string, error) { return []string{classOf(o).Annotations[contractMark]}, nil }}); err != nil {
			t.Fatal(err)
		}
		at.kinds[i] = kindOfClass{client: client, informer: informer, synced: func() bool { return true }}
	}
	c.made.version = at
}

func newTenant(t *testing.T, p Provisioner) *tenant {
	t.Helper()
	out := &tenant{t: t, secret: func() *corev1.Secret { return nil }}
	server := httptest.NewServer(out)
	t.Cleanup(server.Close)
	c := contractsAt(t, server.URL)
	out.control = &control{Contracts: c, provisioner: p, writer: alone{}}
	out.withClasses(t)
	out.offer(offered())
	out.put(c.namespaces, namespaced("blue", "uid-blue", "blue"))
	out.obj = &v1alpha1.Contract{
		ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "media", UID: "1", Generation: 1, Finalizers: []string{finalizer}},
		Spec:       v1alpha1.ContractSpec{ClassName: "standard"},
	}
	return out
}

// ServeHTTP has no object but the Contract's status.
func (c *tenant) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	code := 0
	if c.answer != nil {
		code = c.answer(r)
	}
	switch {
	case code > 0:
	case r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/contracts/media/status"):
		var said v1alpha1.Contract
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &said); err != nil {
			c.t.Error(err)
		}
		c.obj.Status = said.Status
		c.writes++
	case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/secrets/") && c.secret() != nil:
		_ = json.NewEncoder(w).Encode(c.secret())
		return
	case r.Method == http.MethodGet:
		code = http.StatusNotFound
	}
	if code > 0 {
		w.WriteHeader(code)
	}
	reasons := map[int]metav1.StatusReason{http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusConflict: metav1.StatusReasonConflict}
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Reason: reasons[code], Code: int32(code)})
}

func (c *tenant) put(to cache.SharedIndexInformer, o any) {
	c.t.Helper()
	if err := to.GetStore().Add(o); err != nil {
		c.t.Fatal(err)
	}
}

func (c *tenant) offer(class *v1alpha1.ContractClass) { c.put(c.classes, class) }

// look has the Contract looked at as it is now.
func (c *tenant) look() (time.Duration, error) {
	c.t.Helper()
	obj := c.obj.DeepCopy()
	c.put(c.contracts, obj)
	c.reorder(keyOf(obj))
	return c.contract(c.t.Context(), obj)
}

func (c *tenant) is(what string, want metav1.ConditionStatus, reason string) {
	c.t.Helper()
	if got := meta.FindStatusCondition(c.obj.Status.Conditions, what); got == nil || got.Status != want || got.Reason != reason {
		c.t.Errorf("%s is %+v, want %s, %s", what, got, want, reason)
	}
}

// Terms that have not arrived are told as such, also of a contract that was suspended
// before, and are brought again.
func TestChangesOfASuspendedContract(t *testing.T) {
	t.Parallel()
	p := &signing{state: contract.StateSuspended}
	c := newTenant(t, p)
	c.obj.Spec.Suspend = true
	if _, err := c.look(); err != nil {
		t.Fatal(err)
	}
	c.is(v1alpha1.InSync, metav1.ConditionTrue, "AsOrdered")
	c.is(v1alpha1.Ready, metav1.ConditionFalse, "Suspended")
	for _, err := range []error{fault.New(fault.Unavailable, "it is away"), fault.New(fault.FailedPrecondition, "too few")} {
		c.obj.Generation++
		c.obj.Spec.Quota.MaxBuckets = number(c.obj.Generation)
		p.err = err
		if _, err := c.look(); err == nil {
			t.Error("it is not tried again")
		}
		if meta.IsStatusConditionTrue(c.obj.Status.Conditions, v1alpha1.InSync) {
			t.Errorf("it is in sync, and %v", p.err)
		}
	}
	p.err = nil
	if _, err := c.look(); err != nil || *p.signed[len(p.signed)-1].Quota.MaxBuckets != 3 {
		t.Errorf("it was brought to %+v, %v", p.signed[len(p.signed)-1].Quota, err)
	}
	c.is(v1alpha1.InSync, metav1.ConditionTrue, "AsOrdered")
}

// What was ready stays so while its service is away, and what is ordered since is not
// ready before it has arrived.
func TestReadyIsOfTheOrderAsItIs(t *testing.T) {
	t.Parallel()
	p := &signing{state: contract.StateActive}
	c := newTenant(t, p)
	if _, err := c.look(); err != nil {
		t.Fatal(err)
	}
	p.err = fault.New(fault.Unavailable, "it is away")
	_, _ = c.look()
	c.is(v1alpha1.Ready, metav1.ConditionTrue, "Active")
	c.obj.Generation++
	c.obj.Spec.Quota.MaxBuckets = number(7)
	_, _ = c.look()
	c.is(v1alpha1.Ready, metav1.ConditionFalse, "Unavailable")
	p.err = nil
	if _, err := c.look(); err != nil {
		t.Fatal(err)
	}
	c.is(v1alpha1.Ready, metav1.ConditionTrue, "Active")
}

// What cannot be made beside a contract is told once, and not written at each attempt.
func TestARepeatedFaultIsToldOnce(t *testing.T) {
	t.Parallel()
	p := &signing{state: contract.StateActive, keyErr: fault.New(fault.Internal, "no key")}
	c := newTenant(t, p)
	class := offered()
	class.Spec.ExposeKeys = true
	c.offer(class)
	c.obj.Spec.KeySecretName = "own"
	if _, err := c.look(); err == nil {
		t.Error("it is not tried again")
	}
	c.is(v1alpha1.Ready, metav1.ConditionFalse, "KeyMissing")
	for i := range c.obj.Status.Conditions { // some time has passed
		at := &c.obj.Status.Conditions[i].LastTransitionTime
		*at = metav1.NewTime(at.Add(-time.Hour).Truncate(time.Second))
	}
	before := c.writes
	if _, _ = c.look(); c.writes != before {
		t.Errorf("%d writes of what was told before", c.writes-before)
	}
	// A suspended one has no use of it.
	c.obj.Spec.Suspend, p.state = true, contract.StateSuspended
	if _, err := c.look(); err != nil {
		t.Error(err)
	}
	c.is(v1alpha1.Ready, metav1.ConditionFalse, "Suspended")
}

// A class that exposes keys no longer takes back the Secret that a Contract has, and a
// Contract whose Secret the driver may no longer delete can go: it is the Secret's owner.
func TestKeysThatAreNoLongerExposed(t *testing.T) {
	t.Parallel()
	c := newTenant(t, &signing{state: contract.StateActive})
	var have *corev1.Secret
	c.answer = func(r *http.Request) int {
		switch {
		case !strings.Contains(r.URL.Path, "/secrets"):
		case r.Method == http.MethodPost:
			have = &corev1.Secret{}
			if err := json.NewDecoder(r.Body).Decode(have); err != nil {
				t.Error(err)
			}
		case r.Method == http.MethodDelete:
			have = nil
		}
		return 0
	}
	c.secret = func() *corev1.Secret { return have }
	class := offered()
	class.Spec.ExposeKeys = true
	c.offer(class)
	c.obj.Spec.KeySecretName = "own"
	if _, err := c.look(); err != nil || have == nil || c.obj.Status.KeySecretName != "own" {
		t.Fatalf("the Secret is %v, the status tells of %q, %v", have, c.obj.Status.KeySecretName, err)
	}
	exposed := c.obj.Status.DeepCopy()
	c.offer(offered())
	if _, err := c.look(); err != nil || have != nil || c.obj.Status.KeySecretName != "" {
		t.Errorf("the Secret is %v, the status tells of %q, %v", have, c.obj.Status.KeySecretName, err)
	}
	c.is(v1alpha1.Accepted, metav1.ConditionFalse, keyNotAllowed)

	c.obj.Status, c.obj.DeletionTimestamp = *exposed, &metav1.Time{Time: time.Unix(1e9, 0)}
	c.answer = func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/secrets") {
			return http.StatusForbidden
		}
		return 0
	}
	if _, err := c.look(); err != nil {
		t.Error(err)
	}
	if ready := meta.FindStatusCondition(c.obj.Status.Conditions, v1alpha1.Ready); ready.Reason == "KeyLeft" {
		t.Errorf("it waits: %s", ready.Message)
	}
}

// A service that refuses to cancel a contract is asked less and less often.
func TestARefusedCancelIsTriedLessOften(t *testing.T) {
	t.Parallel()
	p := &signing{state: contract.StateActive, mayNot: fault.New(fault.FailedPrecondition, "it has a foreign bucket")}
	c := newTenant(t, p)
	c.obj.DeletionTimestamp, c.obj.Spec.ReclaimPolicy = &metav1.Time{Time: time.Unix(1e9, 0)}, v1alpha1.Delete
	if _, err := c.look(); !fault.Is(err, fault.FailedPrecondition) {
		t.Errorf("it says %v", err)
	}
	c.is(v1alpha1.Ready, metav1.ConditionFalse, "NotCancelled")
}

// The end of a Contract is not the end of another's contract, however bad its own order
// is, and no matter who has put the finalizer on.
func TestTheEndOfAContractIsNotAnothers(t *testing.T) {
	t.Parallel()
	for _, whose := range []string{"the configuration's", "another Contract's"} {
		p := &signing{state: contract.StateActive}
		c := newTenant(t, p)
		class := offered()
		class.Spec.Existing = []v1alpha1.ExistingContract{{Namespace: "blue", Name: "media", Contract: "old"}}
		c.offer(class)
		if whose == "the configuration's" {
			c.Listed = func(name string) bool { return name == "old" }
		} else {
			other := offered()
			other.Name, other.Spec.Existing = "other", []v1alpha1.ExistingContract{{Namespace: "azure", Name: "media", Contract: "old"}}
			c.offer(other)
			c.put(c.namespaces, namespaced("azure", "uid-azure", "blue"))
			c.put(c.contracts, &v1alpha1.Contract{ObjectMeta: metav1.ObjectMeta{Namespace: "azure", Name: "media"}, Spec: v1alpha1.ContractSpec{ClassName: "other"}})
			c.reorder("azure/media")
			c.obj.CreationTimestamp = metav1.NewTime(time.Unix(1e9, 0))
		}
		c.obj.DeletionTimestamp, c.obj.Spec.ReclaimPolicy = &metav1.Time{Time: time.Unix(1e9, 0)}, v1alpha1.Delete
		c.obj.Spec.Quota.MaxBuckets = number(1000)
		if _, err := c.look(); err != nil || p.cancelled > 0 {
			t.Errorf("%s contract was cancelled %d times, %v", whose, p.cancelled, err)
		}
	}
}

// What another process has changed while it was the one to change things is brought to
// its terms, and not taken for a change behind the driver's back.
func TestTermsAreBroughtAfterAnotherProcess(t *testing.T) {
	t.Parallel()
	p := &signing{state: contract.StateActive}
	c := newTenant(t, p)
	for range 2 {
		if _, err := c.look(); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.signed) != 1 || p.described != 1 {
		t.Fatalf("signed %d times, looked at %d times", len(p.signed), p.described)
	}
	c.put(c.contracts, c.obj.DeepCopy())
	c.looked["blue/media"] = true
	inSync := func() bool {
		var said v1alpha1.ContractClass
		c.answer = func(r *http.Request) int {
			if strings.HasSuffix(r.URL.Path, "/contractclasses/standard/status") {
				if err := json.NewDecoder(r.Body).Decode(&said); err != nil {
					t.Error(err)
				}
			}
			return 0
		}
		_, err := c.class(t.Context(), "standard")
		return err == nil && said.Status.Contracts == 1 && said.Status.InSync == 1
	}
	if !inSync() {
		t.Error("the class does not tell of it")
	}
	c.TakenOver()
	if again, err := c.class(t.Context(), "standard"); err != nil || again != waitAgain {
		t.Errorf("the class tells what is not known now: again in %s, %v", again, err)
	}
	if _, err := c.look(); err != nil || len(p.signed) != 2 {
		t.Errorf("signed %d times, %v", len(p.signed), err)
	}
}

// A ContractClass is let go after the last of its Contracts, also if that was taken away
// by force.
func TestAClassLosesAContract(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.withClasses(t)
		k := &control{Contracts: c.Contracts, writer: alone{}}
		if _, err := k.do(t.Context(), work{contract: "blue/media"}); err != nil {
			t.Fatal(err)
		}
		<-time.After(waitAgain)
		if c.queue.Len() != 1 {
			t.Error("the class is not looked at")
		}
	})
}

// Workers wait for COSI's classes beside each other, where they cannot be read.
func TestClassesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.withClasses(t)
		at := c.made.version
		for i := range at.kinds {
			at.kinds[i].informer = nil
		}
		k := &control{Contracts: c.Contracts, begin: func(cache.SharedIndexInformer) {}}
		one := make(chan error)
		go func() { one <- at.follow(t.Context(), k) }()
		synctest.Wait()
		if !at.following.TryLock() {
			t.Error("another has to wait until this one has waited")
		}
		if err := <-one; !fault.Is(err, fault.Unavailable) {
			t.Errorf("it says %v", err)
		}
	})
}

// Classes whose Contract was taken away by force while no driver ran are looked for, also
// where no Contract is left.
func TestClassesAreReadWithoutContracts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.withClasses(t)
		for i := range c.made.version.kinds {
			c.made.version.kinds[i].informer = nil
		}
		begun := 0
		k := &control{Contracts: c.Contracts, writer: alone{}, begin: func(cache.SharedIndexInformer) { begun++ }}
		c.Again()
		for c.queue.Len() > 0 {
			item, _ := c.queue.Get()
			_, _ = k.do(t.Context(), item) // there is no API server
			c.queue.Done(item)
		}
		if begun != 2 {
			t.Errorf("%d kinds of classes are read", begun)
		}
	})
}

// A cluster without COSI has no classes to wait for.
func TestTheEndOfAContractWithoutCOSI(t *testing.T) {
	t.Parallel()
	c := newTenant(t, &signing{state: contract.StateActive})
	c.made.version = nil
	released := false
	c.answer = func(r *http.Request) int {
		released = released || r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/contracts/media")
		return 0
	}
	c.obj.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
	if _, err := c.look(); err != nil || !released {
		t.Errorf("it is let go: %v, %v", released, err)
	}
}

// A class that the API server keeps otherwise than it was applied, by a webhook or an older
// type, is applied again and not deleted: that would have no end.
func TestAClassThatIsKeptOtherwise(t *testing.T) {
	t.Parallel()
	c := newTenant(t, &signing{state: contract.StateActive})
	class := offered()
	class.Spec.BucketClasses = []v1alpha1.BucketClassTemplate{{Name: "standard", DeletionPolicy: "Delete"}}
	c.offer(class)
	var calls []string
	var made objects.BucketClass
	c.answer = func(r *http.Request) int {
		if strings.Contains(r.URL.Path, "/classes") {
			calls = append(calls, r.Method)
			if r.Method == http.MethodPatch {
				if err := json.NewDecoder(r.Body).Decode(&made); err != nil {
					t.Error(err)
				}
			}
		}
		return 0
	}
	if _, err := c.look(); err != nil || len(calls) != 1 {
		t.Fatalf("the calls are %v, %v", calls, err)
	}
	made.DeletionPolicy = "Retain"
	c.put(c.made.version.kinds[bucketClasses].informer, made.DeepCopyObject())
	if _, err := c.look(); err != nil || !slices.Equal(calls, []string{http.MethodPatch, http.MethodPatch}) {
		t.Errorf("the calls are %v, %v", calls, err)
	}
	class.Spec.BucketClasses[0].Parameters = map[string]string{"versioning": "Enabled"}
	c.offer(class)
	if _, err := c.look(); err != nil || !slices.Equal(calls[2:], []string{http.MethodDelete, http.MethodPatch}) {
		t.Errorf("the calls are %v, %v", calls, err)
	}
}

// A contract whose service never ends a call takes a worker for a while only.
func TestAnOrderEnds(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.withClasses(t)
			obj := get[*v1alpha1.Contract](c.contracts, c.orderIn("blue", 0)).DeepCopy()
			if obj.Finalizers = []string{finalizer}; deleted {
				obj.DeletionTimestamp, obj.Spec.ReclaimPolicy = &metav1.Time{Time: time.Unix(1e9, 0)}, v1alpha1.Delete
			}
			k := &control{Contracts: c.Contracts, provisioner: &endless{}, writer: alone{}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if _, err := k.contract(ctx, obj); err == nil || ctx.Err() != nil {
				t.Errorf("it ends with %v, and %v", err, ctx.Err())
			}
		})
	}
}

// endless is a provisioner whose service takes all the time that it gets.
type endless struct{ signing }

func (*endless) Sign(ctx context.Context, _ cosi.ContractID, _ config.Terms) (contract.Contract, error) {
	<-ctx.Done()
	return contract.Contract{}, ctx.Err()
}

func (*endless) Cancel(ctx context.Context, _ cosi.ContractID) error {
	<-ctx.Done()
	return ctx.Err()
}

// A conflict is no sign that an object is gone: what could not be written is tried again.
func TestConflicts(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/contracts/media/status", "/contracts/media"} {
		c := newTenant(t, &signing{state: contract.StateActive})
		c.answer = func(r *http.Request) int {
			if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, path) {
				return http.StatusConflict
			}
			return 0
		}
		if !strings.HasSuffix(path, "/status") {
			c.obj.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
		}
		if _, err := c.look(); !fault.Is(err, fault.Mismatch) {
			t.Errorf("after a conflict at %s: %v", path, err)
		}
	}
}
