package e2e

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/container-object-storage-interface/client/apis/objectstorage/v1alpha1"
	cosiproto "sigs.k8s.io/container-object-storage-interface/proto"

	api "github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
)

// figures are what a driver with nothing to do has; it is made for 1000, which takes minutes.
var figures = flag.Int("figures", 50, "measure with so many `Contracts` and twice as many BucketSettings")

// manySettings are Contracts and BucketSettings in numbers, and what they take of a
// driver that has nothing to do, or a little. Claims and Buckets are made by the test: COSI's own speed is not what
// is measured.
func manySettings(s *scenario) {
	contracts, settings := *figures, 2**figures
	s.kill("sidecar")
	s.kill("controller")
	o := s.orders("settings-many")
	all, of := s.own.Contracts(o.namespace), s.own.BucketSettings(o.namespace)
	s.must(inTurns(contracts, func(i int) error {
		_, err := all.Create(s.ctx, &api.Contract{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}, Spec: api.ContractSpec{ClassName: o.class, ReclaimPolicy: api.Delete},
		}, metav1.CreateOptions{})
		return err
	}))
	names := make([]string, contracts)
	classes := make([]string, contracts)
	for quarter := 1; quarter <= 4; quarter++ {
		s.until("signed", func() error {
			list, err := all.List(s.ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			n := 0
			for _, c := range list.Items {
				if c.Status.Contract == "" || len(c.Status.BucketClasses) == 0 {
					continue
				}
				names[n], classes[n] = c.Status.Contract, c.Status.BucketClasses[0].Name
				n++
			}
			if n < contracts*quarter/4 {
				return fmt.Errorf("%d of %d", n, contracts)
			}
			return nil
		})
	}

	cosi := s.cosi.ObjectstorageV1alpha1()
	driver := cosiproto.NewProvisionerClient(s.driver.Conn)
	ids := make([]string, settings)
	s.must(inTurns(settings, func(i int) error {
		claim, err := cosi.BucketClaims(o.namespace).Create(s.ctx, &v1alpha1.BucketClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("b%d", i)}, Spec: v1alpha1.BucketClaimSpec{
			BucketClassName: classes[i/2], Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolS3},
		}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		parameters := map[string]string{"contract": names[i/2]}
		b, err := cosi.Buckets().Create(s.ctx, &v1alpha1.Bucket{ObjectMeta: metav1.ObjectMeta{Name: "bucket-" + string(claim.UID)}, Spec: v1alpha1.BucketSpec{
			DriverName: driverName, BucketClassName: classes[i/2], DeletionPolicy: v1alpha1.DeletionPolicyDelete, Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolS3},
			Parameters: parameters, BucketClaim: &v1.ObjectReference{Namespace: o.namespace, Name: claim.Name, UID: claim.UID},
		}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		answer, err := driver.DriverCreateBucket(s.ctx, &cosiproto.DriverCreateBucketRequest{Name: b.Name, Parameters: parameters})
		if err != nil {
			return err
		}
		ids[i] = answer.GetBucketId()
		b.Status.BucketReady, b.Status.BucketID = true, answer.GetBucketId()
		if _, err = cosi.Buckets().UpdateStatus(s.ctx, b, metav1.UpdateOptions{}); err != nil {
			return err
		}
		claim.Status.BucketReady, claim.Status.BucketName = true, b.Name
		_, err = cosi.BucketClaims(o.namespace).UpdateStatus(s.ctx, claim, metav1.UpdateOptions{})
		return err
	}))

	start := time.Now()
	s.must(inTurns(settings, func(i int) error {
		_, err := of.Apply(s.ctx, &api.BucketSettings{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("b%d", i)},
			Spec:       api.BucketSettingsSpec{BucketClaimName: fmt.Sprintf("b%d", i), Tags: map[string]api.TagValue{"n": api.TagValue(fmt.Sprint("x", i))}, Policy: noACLs},
		}, metav1.ApplyOptions{FieldManager: "e2e"})
		return err
	}))
	created := time.Since(start)
	for quarter := 1; quarter <= 4; quarter++ {
		s.until("settled", func() error {
			list, err := of.List(s.ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			n := 0
			for _, c := range list.Items {
				if c.Status.Now != nil {
					n++
				}
			}
			if n < settings*quarter/4 {
				return fmt.Errorf("%d of %d", n, settings)
			}
			return nil
		})
	}
	s.note("%d settings at %d buckets %.0f s after the first was created, which took %.0f s", settings, settings, time.Since(start).Seconds(), created.Seconds())

	counts := func(metric string, labels ...string) float64 {
		n, err := s.metric(metric, labels...)
		if err != nil {
			return 0
		}
		return n
	}
	looks := func() float64 { return counts("contract_cosi_backend_calls_total", `operation="GetContract"`) }
	lookedAt := func() error {
		looked, found := looks(), counts("contract_cosi_object_calls_total", `call="get"`)
		if looked < float64(contracts) || found < float64(settings) {
			return fmt.Errorf("%v contracts and %v Buckets", looked, found)
		}
		return nil
	}
	for range 2 { // the first tells of the buckets that were made since the Contracts were looked at
		s.kill("driver")
		start = time.Now()
		s.must(s.startDriver())
		s.until("settled after a start", lookedAt)
	}
	took, cpu := time.Since(start), counts("process_cpu_seconds_total")
	if took > time.Minute && contracts <= 1000 {
		s.Errorf("after a start it takes %s until all are looked at", took)
	}
	writes := func() float64 { return counts("contract_cosi_object_calls_total", `call="patch"`) }
	changes := func() (n float64) {
		for _, operation := range []string{`operation="PutContract"`, `operation="PutBucket`, `operation="DeleteBucket`, `operation="CreateBucket`} {
			n += counts("contract_cosi_backend_calls_total", operation)
		}
		return n
	}
	s.pass(10 * time.Second) // a steady state that writes would write now
	if w, c := writes(), changes(); w+c > 0 {
		s.Errorf("a driver that had nothing to do made %v writes and %v calls that change something", w, c)
	}
	memory := counts("process_resident_memory_bytes")
	s.note("settled %.1f s after a start, %.1f s of CPU, with no write and no change, in %.0f MiB", took.Seconds(), cpu, memory/(1<<20))
	if memory > 96<<20 {
		s.Errorf("it takes %.0f MiB", memory/(1<<20))
	}

	// A change, in the steady state and among all that a start looks at.
	last := fmt.Sprintf("c%d", contracts-1)
	contract := o.get(last).Status.Contract
	change := func(when string, maxBuckets int) {
		start, before := time.Now(), looks()
		_, err := all.Patch(s.ctx, last, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"quota":{"maxBuckets":%d}}}`, maxBuckets), metav1.PatchOptions{})
		s.must(err)
		s.untilSigned(contract, quotaIs(float64(maxBuckets)))
		s.note("a change %s arrives in %.1f s, after %v looks at other contracts", when, time.Since(start).Seconds(), looks()-before)
	}
	change("in the steady state", 7)
	s.kill("driver")
	s.must(s.startDriver())
	s.until("looking", func() error {
		if looks() == 0 {
			return errors.New("no contract was looked at")
		}
		return nil
	})
	change("among the looks after a start", 8)

	start = time.Now()
	_, err := of.Patch(s.ctx, "b7", types.MergePatchType, []byte(`{"spec":{"tags":{"n":"changed"}}}`), metav1.PatchOptions{})
	s.must(err)
	t := &team{orders: o}
	t.comes("b7", api.Ready, metav1.ConditionTrue, "")
	s.note("changed settings are told of in %.1f s", time.Since(start).Seconds())

	// The end, without COSI.
	s.must(of.DeleteCollection(s.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	driver = cosiproto.NewProvisionerClient(s.driver.Conn)
	s.must(inTurns(settings, func(i int) error {
		_, err := driver.DriverDeleteBucket(s.ctx, &cosiproto.DriverDeleteBucketRequest{BucketId: ids[i]})
		return err
	}))
	s.must(cosi.BucketClaims(o.namespace).DeleteCollection(s.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.must(cosi.Buckets().DeleteCollection(s.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.must(all.DeleteCollection(s.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.until("gone", func() error {
		list, err := all.List(s.ctx, metav1.ListOptions{Limit: 1})
		if err == nil && len(list.Items) > 0 {
			err = errors.New("there are Contracts")
		}
		return err
	})
	s.must(s.startCOSI("controller", fast))
	s.must(s.startCOSI("sidecar", fast))
}

// inTurns does something m times, a few at once.
func inTurns(m int, do func(int) error) error {
	var g errgroup.Group
	g.SetLimit(16)
	for i := range m {
		g.Go(func() error { return do(i) })
	}
	return g.Wait()
}
