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
	"sigs.k8s.io/container-object-storage-interface/client/apis/objectstorage/v1alpha1"

	api "github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
)

var (
	walkSeed  = flag.Uint64("seed", 0, "of the random walk; 0 chooses one")
	walkSteps = flag.Int("steps", 30, "of the random walk")
)

// walked is what a random walk wants to be there.
type walked struct {
	*team
	rand     *rand.Rand
	claims   map[string]bool
	settings map[string]string // by claim: the value of the tag that they give
	trace    []string
}

// randomWalk changes a Contract, its class, claims under it and their settings at
// random, with kills in between. Then what was wanted last is there, and in the end
// nothing is left.
func randomWalk(s *scenario) {
	seed := *walkSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	s.note("-seed %d -steps %d", seed, *walkSteps)
	o := s.orders("walk")
	o.order("media", ", reclaimPolicy: Delete")
	o.wait("media", "Ready")
	c := o.get("media")
	w := &walked{
		team: &team{o, c.Status.Contract, c.Status.BucketClasses[0].Name, s.operator(c.Status.Contract)},
		rand: rand.New(rand.NewPCG(seed, 0)), claims: map[string]bool{}, settings: map[string]string{},
	}
	defer func() {
		if s.Failed() {
			s.Logf("seed %d:\n%s", seed, strings.Join(w.trace, "\n"))
		}
	}()
	for range *walkSteps {
		w.step()
	}
	w.arrives()
	for claim := range w.settings {
		w.unset(claim)
	}
	// All at once, as a namespace goes.
	_, err := s.kubectl(s.ctx, "", "-n", w.namespace, "delete", "contract", "media", "--wait=false")
	s.must(err)
	w.unclaim("--all")
	w.until("gone", func() error {
		text, err := s.kubectl(s.ctx, "", "-n", w.namespace, "get", "contracts,bucketsettings", "-o", "name")
		if err == nil && text != "" {
			err = errors.New(text)
		}
		return err
	})
}

func (w *walked) step() {
	claim := []string{"a", "b", "c"}[w.rand.IntN(3)]
	claims := w.cosi.ObjectstorageV1alpha1().BucketClaims(w.namespace)
	var err error
	var what string
	switch w.rand.IntN(9) {
	case 0:
		what = "claim " + claim
		if _, err = claims.Get(w.ctx, claim, metav1.GetOptions{}); kubeerrors.IsNotFound(err) { // one that is being deleted has to go first
			_, err = claims.Create(w.ctx, &v1alpha1.BucketClaim{ObjectMeta: metav1.ObjectMeta{Name: claim}, Spec: v1alpha1.BucketClaimSpec{
				BucketClassName: w.bucketClass, Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolS3},
			}}, metav1.CreateOptions{})
			w.claims[claim] = true
		}
	case 1:
		what = "unclaim " + claim
		if w.claims[claim] { // which takes until the contract is not suspended
			err = claims.Delete(w.ctx, claim, metav1.DeleteOptions{})
			delete(w.claims, claim)
		}
	case 2, 3:
		w.settings[claim] = fmt.Sprint(w.rand.IntN(1000))
		what = "settings " + claim + "=" + w.settings[claim]
		err = w.team.set(claim, claim, fmt.Sprintf(", tags: {walk: '%s'}%s", w.settings[claim], []string{"", ", versioning: Enabled", ", policy: '" + noACLs + "'"}[w.rand.IntN(3)]))
	case 4:
		what = "no settings " + claim
		if w.settings[claim] != "" {
			w.unset(claim)
			delete(w.settings, claim)
		}
	case 5:
		suspend := w.rand.IntN(3) == 0
		what = fmt.Sprint("suspend ", suspend)
		w.order("media", fmt.Sprintf(", reclaimPolicy: Delete, suspend: %v, quota: {maxBuckets: %d}", suspend, 10+w.rand.IntN(10)))
	case 6:
		what = "the class"
		w.offer(20 + w.rand.IntN(10))
	case 7:
		what = "kill the driver"
		w.kill("driver")
		w.must(w.startDriver())
		w.kill("sidecar")
		w.must(w.startCOSI("sidecar", fast))
	case 8:
		what = "kill the service"
		w.kill("contractd")
		w.pass(time.Duration(w.rand.IntN(300)) * time.Millisecond)
		w.must(w.startContractd())
	}
	w.trace = append(w.trace, fmt.Sprint(what, " ", err))
	w.must(err)
}

// arrives waits until everything is as it was wanted last.
func (w *walked) arrives() {
	w.order("media", ", reclaimPolicy: Delete")
	w.wait("media", "Ready")
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
		if w.claims[claim] {
			continue
		}
		w.until("unclaimed", func() error {
			_, err := w.cosi.ObjectstorageV1alpha1().BucketClaims(w.namespace).Get(w.ctx, claim, metav1.GetOptions{})
			if err == nil {
				return errors.New("the claim is there")
			}
			return gone(err)
		})
		if w.settings[claim] != "" {
			w.comes(claim, api.Ready, metav1.ConditionFalse, "NoSuchClaim")
		}
	}
}
