package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/container-object-storage-interface/client/apis/objectstorage/v1alpha1"

	api "github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
)

// standard is a ContractClass for the namespaces with a label.
const standard = `apiVersion: contract-cosi.github.io/v1alpha1
kind: ContractClass
metadata: {name: %[1]s}
spec:
  backend: main
  namespaceSelector: {matchLabels: {storage: %[1]s}}
  quota: {maxBuckets: 10}
  maxQuota: {maxBuckets: %[2]d}
  guard: {refusePublic: true}
  bucketClasses: [{name: standard, deletionPolicy: Delete}]
  bucketAccessClasses: [{name: key}]
`

// orders are the Contracts of a namespace.
type orders struct {
	*scenario
	namespace, class string
}

// orders makes a namespace that may order of a class that is its own.
func (s *scenario) orders(name string) *orders {
	s.Helper()
	_, err := s.kube.CoreV1().Namespaces().Create(s.ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"storage": name},
	}}, metav1.CreateOptions{})
	s.must(err)
	o := &orders{s, name, name}
	o.offer(20)
	return o
}

// offer applies the class with a ceiling.
func (o *orders) offer(maxBuckets int) {
	o.Helper()
	_, err := o.kubectl(o.ctx, fmt.Sprintf(standard, o.class, maxBuckets), "apply", "--validate=strict", "-f", "-")
	o.must(err)
}

// order applies a Contract with a spec beside the class.
func (o *orders) order(name, spec string) {
	o.Helper()
	_, err := o.kubectl(o.ctx, fmt.Sprintf("apiVersion: contract-cosi.github.io/v1alpha1\nkind: Contract\nmetadata: {name: %s}\nspec: {className: %s%s}\n", name, o.class, spec),
		"-n", o.namespace, "apply", "--validate=strict", "-f", "-")
	o.must(err)
}

// wait waits for a condition, as users do.
func (o *orders) wait(name, condition string) {
	o.Helper()
	if _, err := o.kubectl(o.ctx, "", "-n", o.namespace, "wait", "contract/"+name, "--for=condition="+condition, "--timeout=30s"); err != nil {
		o.Fatalf("%v\n%s", err, o.show(name))
	}
}

func (o *orders) show(name string) string {
	text, err := o.kubectl(o.ctx, "", "-n", o.namespace, "get", "contract", name, "-o", "yaml")
	return fmt.Sprint(text, err)
}

func (o *orders) get(name string) *api.Contract {
	o.Helper()
	out, err := o.own.Contracts(o.namespace).Get(o.ctx, name, metav1.GetOptions{})
	o.must(err)
	return out
}

// delete deletes a Contract and waits for its end.
func (o *orders) delete(name string) {
	o.Helper()
	if _, err := o.kubectl(o.ctx, "", "-n", o.namespace, "delete", "contract", name, "--timeout=30s"); err != nil {
		o.Fatalf("%v\n%s", err, o.show(name))
	}
}

// signed is the spec of a contract at contractd.
func (w *world) signed(contract string) (spec map[string]any, code int, err error) {
	var c struct{ Spec map[string]any }
	code, err = w.api(http.MethodGet, "/v1/contracts/"+contract, "", &c)
	return c.Spec, code, err
}

func (s *scenario) untilSigned(contract string, is func(spec map[string]any) error) {
	s.Helper()
	s.until("signed so", func() error {
		spec, code, err := s.signed(contract)
		if err != nil || code != http.StatusOK {
			return errors.Join(err, fmt.Errorf("HTTP %d", code))
		}
		return is(spec)
	})
}

// ordered is the story of a tenant.
func ordered(s *scenario) {
	blue, red := s.orders("order-blue"), s.orders("order-red")
	blue.order("media", ", reclaimPolicy: Delete")
	blue.wait("media", "Ready")
	c := blue.get("media")
	if _, code, err := s.signed(c.Status.Contract); err != nil || code != http.StatusOK {
		s.Fatalf("a contract that is ready is not signed: HTTP %d, %v", code, err)
	}
	table, err := s.kubectl(s.ctx, "", "-n", blue.namespace, "get", "contracts")
	s.must(err)
	if head := strings.Fields(table); len(head) < 7 || strings.Join(head[:8], " ") != "NAME CLASS STATE READY BUCKETS USED QUOTA AGE" {
		s.Errorf("kubectl prints\n%s", table)
	}

	// Claims go by the class that the status names, in its own namespace only.
	if len(c.Status.BucketClasses) != 1 || len(c.Status.BucketAccessClasses) != 1 {
		s.Fatalf("its status names no classes: %+v", c.Status)
	}
	class := c.Status.BucketClasses[0].Name
	cosi := s.cosi.ObjectstorageV1alpha1()
	claim := &v1alpha1.BucketClaim{ObjectMeta: metav1.ObjectMeta{Name: "photos"}, Spec: v1alpha1.BucketClaimSpec{
		BucketClassName: class, Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolS3},
	}}
	s.until("refused to the other namespace", func() error {
		_, err := cosi.BucketClaims(red.namespace).Create(s.ctx, claim, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "belongs to a Contract of namespace order-blue") {
			return fmt.Errorf("the claim of another namespace: %v", err)
		}
		return nil
	})
	s.until("claimed", func() error {
		_, err := cosi.BucketClaims(blue.namespace).Create(s.ctx, claim, metav1.CreateOptions{})
		return err
	})
	bucket := ""
	s.until("bound", func() error {
		claim, err := cosi.BucketClaims(blue.namespace).Get(s.ctx, "photos", metav1.GetOptions{})
		if err != nil || !claim.Status.BucketReady {
			return fmt.Errorf("not ready, %w", err)
		}
		bucket = claim.Status.BucketName
		return nil
	})

	// The driver itself asks whose a bucket is: a Bucket that got past admission.
	stranger := &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{Name: "bucket-11111111-2222-3333-4444-555555555555"}, Spec: v1alpha1.BucketSpec{
		DriverName: driverName, BucketClassName: class, DeletionPolicy: v1alpha1.DeletionPolicyDelete, Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolS3},
		Parameters: map[string]string{"contract": c.Status.Contract}, BucketClaim: &v1.ObjectReference{Namespace: red.namespace, Name: "photos", UID: "11111111-2222-3333-4444-555555555555"},
	}}
	_, err = cosi.Buckets().Create(s.ctx, stranger, metav1.CreateOptions{})
	s.must(err)
	s.until("refused by the driver", func() error {
		if len(s.tells("is for namespace order-blue alone")) == 0 {
			return errors.New("no such text")
		}
		return nil
	})
	s.must(cosi.Buckets().Delete(s.ctx, stranger.Name, metav1.DeleteOptions{}))

	// Terms follow the Contract and the class.
	blue.order("media", ", reclaimPolicy: Delete, quota: {maxBuckets: 15}")
	s.untilSigned(c.Status.Contract, quotaIs(15))
	blue.order("media", ", reclaimPolicy: Delete, suspend: true")
	blue.wait("media", "Ready=False")
	blue.order("media", ", reclaimPolicy: Delete")
	blue.wait("media", "Ready")

	// Its end waits for its buckets, and names them.
	_, err = s.kubectl(s.ctx, "", "-n", blue.namespace, "delete", "contract", "media", "--wait=false")
	s.must(err)
	s.until("held by its bucket", func() error {
		if text := blue.show("media"); !strings.Contains(text, "reason: HasBuckets") || !strings.Contains(text, bucket) {
			return errors.New(text)
		}
		return nil
	})
	s.must(cosi.BucketClaims(blue.namespace).Delete(s.ctx, "photos", metav1.DeleteOptions{}))
	blue.delete("media")
	if _, code, err := s.signed(c.Status.Contract); err != nil || code != http.StatusNotFound {
		s.Errorf("a cancelled contract is still signed: HTTP %d, %v", code, err)
	}
	if list, err := cosi.BucketClasses().List(s.ctx, metav1.ListOptions{LabelSelector: "contract-cosi.github.io/namespace"}); err != nil || len(list.Items) > 0 {
		s.Errorf("classes are left: %v, %v", list.Items, err)
	}
}

func quotaIs(maxBuckets float64) func(map[string]any) error {
	return func(spec map[string]any) error {
		if quota, _ := spec["quota"].(map[string]any); quota["maxBuckets"] != maxBuckets {
			return fmt.Errorf("its quota is %v", quota)
		}
		return nil
	}
}

// refusedOrders are those that the API server or the driver refuses, and what brings
// each of them about.
func refusedOrders(s *scenario) {
	o := s.orders("order-refused")
	for _, c := range []struct{ spec, reason, says string }{
		{", quota: {maxBuckets: 30}", "QuotaTooHigh", "maxBuckets is 30, of at most 20"},
		{", quota: {maxKeys: 3}", "QuotaTooHigh", "maxKeys cannot be asked for"},
		{", region: mars", "RegionNotAllowed", "region mars"},
	} {
		o.order("refused", c.spec)
		o.wait("refused", "Accepted=False")
		if text := o.show("refused"); !strings.Contains(text, "reason: "+c.reason) || !strings.Contains(text, c.says) {
			s.Errorf("%s: %s", c.spec, text)
		}
		o.delete("refused")
	}
	// What the class allows later is accepted then.
	o.order("later", ", quota: {maxBuckets: 30}, reclaimPolicy: Delete")
	o.wait("later", "Accepted=False")
	o.offer(40)
	o.wait("later", "Ready")
	contract := o.get("later").Status.Contract
	s.untilSigned(contract, quotaIs(30))
	for field, value := range map[string]string{"className": `"other"`, "region": `"us"`} {
		_, err := s.kubectl(s.ctx, "", "-n", o.namespace, "patch", "contract", "later", "--type=merge", "-p", fmt.Sprintf(`{"spec":{%q:%s}}`, field, value))
		if err == nil || !strings.Contains(err.Error(), "cannot be changed") {
			s.Errorf("%s was changed: %v", field, err)
		}
	}
	// A contract that was retained comes back to the Contract of that name, and to no
	// other namespace.
	o.order("later", ", quota: {maxBuckets: 30}, reclaimPolicy: Retain")
	o.delete("later")
	s.untilSigned(contract, quotaIs(30))
	o.order("later", ", reclaimPolicy: Delete")
	o.wait("later", "Ready")
	if again := o.get("later").Status.Contract; again != contract {
		s.Errorf("the retained contract %s did not come back: %s", contract, again)
	}
	o.delete("later")
}

// anothersContract is an order that comes to a contract of another owner: it is refused,
// says why, and its end leaves that contract alone.
func anothersContract(s *scenario) {
	o := s.orders("order-anothers")
	if code, err := s.api(http.MethodPut, "/v1/contracts/anothers", `{"owner":"another"}`, nil); err != nil || code != http.StatusCreated {
		s.Fatalf("HTTP %d, %v", code, err)
	}
	o.existing("theirs", "anothers")
	for _, reclaim := range []string{"Retain", "Delete"} {
		o.order("theirs", ", reclaimPolicy: "+reclaim)
		o.wait("theirs", "Ready=False")
		s.until("told whose it is", func() error {
			if text := o.show("theirs"); !strings.Contains(text, "belongs to another owner") {
				return errors.New(text)
			}
			return nil
		})
		o.delete("theirs")
	}
	if _, code, err := s.signed("anothers"); err != nil || code != http.StatusOK {
		s.Errorf("another owner's contract: HTTP %d, %v", code, err)
	}
	if code, err := s.api(http.MethodDelete, "/v1/contracts/anothers", "", nil); err != nil || code != http.StatusNoContent {
		s.Errorf("it cannot be cancelled: HTTP %d, %v", code, err)
	}
	// A namespace that the class does not name.
	_, err := s.kubectl(s.ctx, "", "label", "namespace", o.namespace, "storage-")
	s.must(err)
	o.order("refused", "")
	o.wait("refused", "Accepted=False")
	if text := o.show("refused"); !strings.Contains(text, "reason: NamespaceNotAllowed") || !strings.Contains(text, "namespaceSelector") {
		s.Errorf("in a namespace that may not order: %s", text)
	}
	o.delete("refused")
}

// existing has a Contract come to a contract that is there.
func (o *orders) existing(name, contract string) {
	o.Helper()
	_, err := o.kubectl(o.ctx, "", "patch", "contractclass", o.class, "--type=merge", "-p",
		fmt.Sprintf(`{"spec":{"existing":[{"namespace":%q,"name":%q,"contract":%q}]}}`, o.namespace, name, contract))
	o.must(err)
}

// unchanged waits until a Contract has what it had before, and is ready.
func (o *orders) unchanged(name string, before *api.Contract) {
	o.Helper()
	o.until("as before", func() error {
		now := o.get(name)
		if now.Status.Contract != before.Status.Contract || fmt.Sprint(now.Status.BucketClasses) != fmt.Sprint(before.Status.BucketClasses) {
			return fmt.Errorf("it came to %s with %v, and was %s with %v", now.Status.Contract, now.Status.BucketClasses, before.Status.Contract, before.Status.BucketClasses)
		}
		return nil
	})
	o.wait(name, "Ready")
}

// ordersInTrouble are Contracts whose driver is killed, that are restored without a
// status, lose their classes, their finalizer or their namespace.
func ordersInTrouble(s *scenario) {
	o := s.orders("order-trouble")
	// Killed while it signs.
	var all []string
	for i := range 10 {
		all = append(all, fmt.Sprintf("c%d", i))
		o.order(all[i], ", reclaimPolicy: Delete")
	}
	s.kill("driver")
	s.must(s.startDriver())
	s.kill("sidecar")
	s.must(s.startCOSI("sidecar", fast))
	names := map[string]bool{}
	for _, name := range all {
		o.wait(name, "Ready")
		names[o.get(name).Status.Contract] = true
	}
	signed, err := s.listed("/v1/contracts")
	signed = slices.DeleteFunc(signed, func(name string) bool { return !strings.HasPrefix(name, "c") })
	if err != nil || len(signed) != len(all) || len(names) != len(all) {
		s.Fatalf("%d Contracts are %d contracts, of which the service has %v, %v", len(all), len(names), signed, err)
	}

	// A driver that starts with nothing to do changes nothing.
	versions := func() string {
		text, err := s.kubectl(s.ctx, "", "get", "contracts,contractclasses,bucketclasses,bucketaccessclasses", "-A",
			"-o", `jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`)
		s.must(err)
		return text
	}
	s.until("the class knows all", func() error {
		text, err := s.kubectl(s.ctx, "", "get", "contractclass", o.class, "-o", "jsonpath={.status.contracts}/{.status.inSync}")
		if want := fmt.Sprintf("%d/%d", len(all), len(all)); err != nil || text != want {
			return fmt.Errorf("%s, not %s, %w", text, want, err)
		}
		return nil
	})
	before := versions()
	s.kill("driver")
	s.must(s.startDriver())
	s.kill("sidecar")
	s.must(s.startCOSI("sidecar", fast))
	s.until("looked at", func() error {
		n, err := s.metric("contract_cosi_backend_calls_total", `operation="GetContract"`)
		if err != nil || n < float64(len(all)) {
			return fmt.Errorf("%v of them, %w", n, err)
		}
		return nil
	})
	if puts, err := s.metric("contract_cosi_backend_calls_total", `operation="PutContract"`); err == nil && puts > 0 {
		s.Errorf("a driver that had nothing to do made %v calls that sign", puts)
	}
	if after := versions(); after != before {
		s.Errorf("a driver that had nothing to do wrote:\n%s\nbefore:\n%s", after, before)
	}

	// Restored from a backup: the object is another one, without a status.
	was := o.get(all[0])
	_, err = s.kubectl(s.ctx, "", "-n", o.namespace, "patch", "contract", all[0], "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.must(err)
	_, err = s.kubectl(s.ctx, "", "-n", o.namespace, "delete", "contract", all[0])
	s.must(err)
	o.order(all[0], ", reclaimPolicy: Delete")
	o.wait(all[0], "Ready")
	o.unchanged(all[0], was)

	// A class that someone deletes or changes is re-created.
	was = o.get(all[1])
	_, err = s.kubectl(s.ctx, "", "delete", "bucketclass", was.Status.BucketClasses[0].Name)
	s.must(err)
	_, err = s.kubectl(s.ctx, "", "delete", "bucketaccessclass", was.Status.BucketAccessClasses[0].Name)
	s.must(err)
	s.until("made again", func() error {
		_, err := s.kubectl(s.ctx, "", "get", "bucketclass/"+was.Status.BucketClasses[0].Name, "bucketaccessclass/"+was.Status.BucketAccessClasses[0].Name)
		return err
	})

	// Deleted by force: what was made for it goes, the contract stays.
	was = o.get(all[2])
	s.kill("driver") // which would not let it pass
	_, err = s.kubectl(s.ctx, "", "-n", o.namespace, "patch", "contract", all[2], "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.must(err)
	_, err = s.kubectl(s.ctx, "", "-n", o.namespace, "delete", "contract", all[2])
	s.must(err)
	s.must(s.startDriver())
	s.kill("sidecar")
	s.must(s.startCOSI("sidecar", fast))
	s.until("swept", func() error {
		if _, err := s.kubectl(s.ctx, "", "get", "bucketclass", was.Status.BucketClasses[0].Name); err == nil {
			return errors.New("its class is left")
		}
		return nil
	})
	if _, code, err := s.signed(was.Status.Contract); err != nil || code != http.StatusOK {
		s.Errorf("a contract whose object was deleted by force is gone: HTTP %d, %v", code, err)
	}
	o.order(all[2], ", reclaimPolicy: Delete") // and takes it back
	o.wait(all[2], "Ready")
	o.unchanged(all[2], was)

	for _, name := range all {
		o.delete(name)
	}

	// A namespace of the same name does not get what was retained in the one before.
	o.order("kept", "")
	o.wait("kept", "Ready")
	first := o.get("kept").Status.Contract
	o.delete("kept")
	s.must(s.remade(o.namespace, map[string]string{"storage": o.class}))
	o.order("kept", ", reclaimPolicy: Delete")
	o.wait("kept", "Ready")
	if second := o.get("kept").Status.Contract; second == first {
		s.Errorf("another namespace got contract %s", first)
	}
	// But by the platform's word.
	o.delete("kept")
	o.existing("kept", first)
	o.order("kept", ", reclaimPolicy: Delete")
	o.wait("kept", "Ready")
	if second := o.get("kept").Status.Contract; second != first {
		s.Errorf("the contract is %s, and not %s", second, first)
	}
	o.delete("kept")
}

// remade deletes a namespace, of which nothing is left, and makes another of the same
// name. No controller finalizes namespaces here.
func (w *world) remade(name string, labels map[string]string) error {
	namespaces := w.kube.CoreV1().Namespaces()
	if err := namespaces.Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	n, err := namespaces.Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	n.Spec.Finalizers = nil
	if _, err := namespaces.Finalize(w.ctx, n, metav1.UpdateOptions{}); err != nil {
		return err
	}
	_, err = namespaces.Create(w.ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	return err
}

// thousandOrders are as many Contracts as a driver is made for, and what it takes.
func thousandOrders(s *scenario) {
	const many = 1000
	o := s.orders("order-many")
	var manifests strings.Builder
	for i := range many {
		_, _ = fmt.Fprintf(&manifests, "---\napiVersion: contract-cosi.github.io/v1alpha1\nkind: Contract\nmetadata: {name: c%d, namespace: %s}\nspec: {className: %s, reclaimPolicy: Delete}\n", i, o.namespace, o.class)
	}
	inSync := func(n int) func() error {
		return func() error {
			class, err := s.own.ContractClasses().Get(s.ctx, o.class, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if in, observed := class.Status.InSync, class.Status.ObservedGeneration; in < int64(n) || observed != class.Generation {
				return fmt.Errorf("%d, not %d, at generation %d", in, n, observed)
			}
			return nil
		}
	}
	idle, err := s.metric("process_resident_memory_bytes")
	s.must(err)
	start := time.Now()
	_, err = s.kubectl(s.ctx, manifests.String(), "create", "-f", "-")
	s.must(err)
	for n := many / 4; n <= many; n += many / 4 { // a busy machine takes its time, and shows progress
		s.until("in sync", inSync(n))
	}
	s.note("%d signed, with their classes, in %.0f s", many, time.Since(start).Seconds())

	s.kill("driver")
	start = time.Now()
	s.must(s.startDriver())
	s.kill("sidecar")
	s.must(s.startCOSI("sidecar", fast))
	s.until("looked at", func() error {
		n, err := s.metric("contract_cosi_backend_calls_total", `operation="GetContract"`)
		if err != nil || n < many {
			return fmt.Errorf("%v of them, %w", n, err)
		}
		return nil
	})
	took := time.Since(start)
	if took > time.Minute {
		s.Errorf("after a start it takes %s until all are looked at", took)
	}
	if patches, err := s.metric("contract_cosi_object_calls_total", `call="patch"`); err == nil && patches > 0 {
		s.Errorf("a driver that had nothing to do made %v writes", patches)
	}
	memory, err := s.metric("process_resident_memory_bytes")
	s.must(err)
	if memory > 96<<20 {
		s.Errorf("it takes %.0f MiB", memory/(1<<20))
	}
	s.note("settled %.1f s after a start, without a write, in %.0f MiB, of %.0f without a contract", took.Seconds(), memory/(1<<20), idle/(1<<20))

	changed := o.get("c7").Status.Contract
	o.order("c7", ", reclaimPolicy: Delete, quota: {maxBuckets: 7}")
	start = time.Now()
	s.untilSigned(changed, quotaIs(7))
	s.note("one change arrives in %.1f s", time.Since(start).Seconds())

	const pace = 50 // the default of objects.changesPerSecond
	changes := func() float64 {
		n, err := s.metric("contract_cosi_backend_calls_total", `operation="PutContract"`)
		s.must(err)
		return n
	}
	had := changes()
	start = time.Now()
	_, err = s.kubectl(s.ctx, "", "patch", "contractclass", o.class, "--type=merge", "-p", `{"spec":{"quota":{"maxBuckets":12}}}`)
	s.must(err)
	progress := map[string]bool{}
	s.until("changed", func() error {
		if n, most := changes()-had, pace*(time.Since(start).Seconds()+1); n > most {
			s.Fatalf("%v contracts are changed within %s, at %d a second", n, time.Since(start), pace)
		}
		err := inSync(many)()
		progress[fmt.Sprint(err)] = true
		return err
	})
	if len(progress) < 3 { // what was, what is, and at least one in between
		s.Errorf("the class told of its progress: %v", progress)
	}
	s.note("a change of the class arrives at all in %.0f s", time.Since(start).Seconds())

	start = time.Now()
	all := s.own.Contracts(o.namespace)
	s.must(all.DeleteCollection(s.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.until("all gone", func() error {
		list, err := all.List(s.ctx, metav1.ListOptions{Limit: 1})
		if err == nil && len(list.Items) > 0 {
			err = errors.New("there are Contracts")
		}
		return err
	})
	s.note("all deleted in %.0f s", time.Since(start).Seconds())
}

// takenOver moves a contract that the configuration has handed out to a Contract: its
// bucket and its keys stay.
func takenOver(s *scenario) {
	n := s.tenant("order-moved", classes{})
	s.must(n.ask("photos"))
	n.ready()
	c := n.secret("photos")
	s.must(c.works(s.ctx))
	_, err := s.kubectl(s.ctx, "", "label", "namespace", n.name, "storage="+n.name)
	s.must(err)
	o := &orders{s, n.name, n.name}
	o.offer(20)
	o.existing("mine", n.name)
	o.order("mine", ", reclaimPolicy: Delete")
	o.wait("mine", "Ready")
	if mine := o.get("mine"); mine.Status.Contract != n.name || mine.Status.Buckets != 1 {
		s.Errorf("its status is %+v", mine.Status)
	}
	s.untilSigned(n.name, quotaIs(10))
	s.must(c.works(s.ctx))
	n.deleteAll()
	n.vanish()
	o.delete("mine")
}
