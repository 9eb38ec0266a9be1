package e2e

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	kubeerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/container-object-storage-interface/client/apis/objectstorage/v1alpha1"

	api "github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
)

var (
	walkSeed  = flag.Uint64("seed", 0, "of the random walk; 0 chooses one")
	walkSteps = flag.Int("steps", 30, "of the random walk")
)

// walked is what a random walk wants to be there, of one of its Contracts.
type walked struct {
	*team
	claims   map[string]bool
	settings map[string]string // by claim: the value of the tag that they give
	leaves   bool              // the Contract is being deleted
}

// randomWalk changes two Contracts of two namespaces, their classes, claims under them
// and their settings at random, with kills in between. Then what was wanted last is
// there, and in the end nothing is left.
func randomWalk(s *scenario) {
	seed := *walkSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	s.note("-seed %d -steps %d", seed, *walkSteps)
	random := rand.New(rand.NewPCG(seed, 0))
	var all []*walked
	for _, namespace := range []string{"walk-blue", "walk-red"} {
		o := s.orders(namespace)
		w := &walked{team: &team{orders: o}, claims: map[string]bool{}, settings: map[string]string{}}
		w.sign()
		all = append(all, w)
	}
	var trace []string
	defer func() {
		if s.Failed() {
			s.Logf("seed %d:\n%s", seed, strings.Join(trace, "\n"))
		}
	}()
	for range *walkSteps {
		w := all[random.IntN(len(all))]
		what := w.step(random)
		trace = append(trace, fmt.Sprintf("%s %s: %s", time.Now().Format("05.000"), w.namespace, what))
	}
	trace = append(trace, "the end of the steps")
	for _, w := range all {
		w.arrives()
	}
	for _, w := range all {
		for claim := range w.settings {
			w.unset(claim)
		}
		w.withdraw() // and all at once, as a namespace goes
	}
	for _, w := range all {
		w.unclaim("--all")
		w.until("gone", func() error {
			return w.none("-n", w.namespace, "contracts,bucketsettings")
		})
	}
	s.until("without classes", func() error {
		return s.none("bucketclasses,bucketaccessclasses", "-l", "contract-cosi.github.io/namespace")
	})
}

// none reports what there is.
func (s *scenario) none(of ...string) error {
	text, err := s.kubectl(s.ctx, "", append([]string{"get", "-o", "name"}, of...)...)
	if err == nil && text != "" {
		err = errors.New(text)
	}
	return err
}

// sign orders the Contract and waits for it, longer than a driver needs to come back to
// an API server.
func (w *walked) sign() {
	w.Helper()
	w.order("media", ", reclaimPolicy: Delete")
	w.until("ready", func() error {
		_, err := w.kubectl(w.ctx, "", "-n", w.namespace, "wait", "contract/media", "--for=condition=Ready", "--timeout=10s")
		return err
	})
	status := w.get("media").Status
	w.bucketClass = status.BucketClasses[0].Name
	if w.contract = status.Contract; w.client == nil {
		w.client = w.operator(w.contract)
	}
}

func (w *walked) withdraw() {
	w.Helper()
	_, err := w.kubectl(w.ctx, "", "-n", w.namespace, "delete", "contract", "media", "--wait=false", "--ignore-not-found")
	w.must(err)
}

// step does something, and tells what.
func (w *walked) step(random *rand.Rand) string {
	claim := []string{"a", "b", "c"}[random.IntN(3)]
	claims := w.cosi.ObjectstorageV1alpha1().BucketClaims(w.namespace)
	switch random.IntN(13) {
	case 0, 1:
		if w.leaves {
			return "nothing is claimed of a Contract that is deleted"
		}
		w.until("claimed", func() error { // which an API server that has just started refuses
			_, err := claims.Get(w.ctx, claim, metav1.GetOptions{})
			if kubeerrors.IsNotFound(err) { // one that is being deleted has to go first
				_, err = claims.Create(w.ctx, &v1alpha1.BucketClaim{ObjectMeta: metav1.ObjectMeta{Name: claim}, Spec: v1alpha1.BucketClaimSpec{
					BucketClassName: w.bucketClass, Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolS3},
				}}, metav1.CreateOptions{})
				w.claims[claim] = true
			}
			return err
		})
		return "claim " + claim
	case 2:
		if w.claims[claim] { // which takes until the contract is not suspended
			w.must(claims.Delete(w.ctx, claim, metav1.DeleteOptions{}))
			delete(w.claims, claim)
		}
		return "unclaim " + claim
	case 3, 4:
		w.settings[claim] = fmt.Sprint(random.IntN(1000))
		w.must(w.set(claim, claim, fmt.Sprintf(", tags: {walk: '%s'}%s", w.settings[claim], []string{"", ", versioning: Enabled", ", policy: '" + noACLs + "'"}[random.IntN(3)])))
		return "settings " + claim + "=" + w.settings[claim]
	case 5:
		if w.settings[claim] != "" {
			w.unset(claim)
			delete(w.settings, claim)
		}
		return "no settings " + claim
	case 6:
		if w.leaves {
			return "nothing is ordered of a Contract that is deleted"
		}
		suspend := random.IntN(3) == 0
		w.order("media", fmt.Sprintf(", reclaimPolicy: Delete, suspend: %v, quota: {maxBuckets: %d}", suspend, 10+random.IntN(10)))
		return fmt.Sprint("suspend ", suspend)
	case 7:
		w.offer(20 + random.IntN(10))
		return "the class"
	case 8, 9:
		w.kill("driver")
		w.must(w.startDriver())
		w.kill("sidecar")
		w.must(w.startCOSI("sidecar", fast))
		return "kill the driver"
	case 10:
		w.kill("contractd")
		w.pass(time.Duration(random.IntN(300)) * time.Millisecond)
		w.must(w.startContractd())
		return "kill the service"
	case 11:
		if w.restarts >= max(1, *walkSteps/50) { // clients take half a minute to come back
			return "the API server was killed before"
		}
		w.kill("apiserver")
		w.pass(time.Duration(random.IntN(300)) * time.Millisecond)
		w.must(w.restartAPIServer())
		return "kill the API server"
	}
	w.withdraw()
	w.leaves = true
	return "delete the Contract"
}

// arrives waits until everything is as it was wanted last.
func (w *walked) arrives() {
	if w.leaves {
		_, err := w.kubectl(w.ctx, "", "-n", w.namespace, "patch", "contract", "media", "--type=merge", "-p", `{"spec":{"suspend":false}}`) // or its buckets stay
		if err != nil && !strings.Contains(err.Error(), "NotFound") {
			w.Fatal(err)
		}
		w.unclaim("--all")
		clear(w.claims)
		w.until("gone", func() error { return w.none("-n", w.namespace, "contracts") })
		w.client = nil
	}
	w.sign()
	n, orphans := w.tenant(), map[types.UID]bool{}
	w.until("without the claims that were deleted", func() error {
		o, err := n.objects()
		if err == nil {
			err = n.bury(o, orphans)
		}
		for _, c := range o.claims {
			if err == nil && !c.DeletionTimestamp.IsZero() {
				err = errors.New("there is claim " + c.Name)
			}
		}
		return err
	})
	w.orphans += len(orphans)
	n.ready()
	for _, claim := range slices.Sorted(maps.Keys(w.claims)) {
		bucket := w.claim(claim)
		if want := w.settings[claim]; want != "" {
			w.comes(claim, api.InSync, metav1.ConditionTrue, "")
			w.has(bucket, " walk="+want)
		} else {
			w.has(bucket, "!walk=", "!PutObjectAcl")
		}
	}
	for _, claim := range []string{"a", "b", "c"} {
		if !w.claims[claim] && w.settings[claim] != "" {
			w.comes(claim, api.Ready, metav1.ConditionFalse, "NoSuchClaim")
		}
	}
}
