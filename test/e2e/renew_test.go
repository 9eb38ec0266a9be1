package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cosiapi "sigs.k8s.io/container-object-storage-interface/client/apis"
)

var (
	renewFor = flag.Duration("renew", 2*time.Minute, "how `long` keys are renewed while they are used, in each version of COSI")
	renewing = flag.Int("renewing", 200, "how `many` accesses have their keys renewed")
	slack    = flag.Duration("slack", 45*time.Second, "how much `older` than its class says a key may get, for what was taken away to be at work again, on a busy machine")
)

const (
	// The classes of the driver that is built for this have seconds too.
	keyRotation, keyGrace = 10 * time.Second, 4 * time.Second
	// dueEvery is how often the driver looks for what is due.
	dueEvery = time.Second
	// betweenKills is how long all parts run together.
	betweenKills = 12 * time.Second
)

// renewed is the proof of renewal in v1alpha1, with upstream's controller and sidecar.
func renewed(s *scenario) {
	s.mayWriteSecrets(driverAccount)
	s.secondsDriver()
	n := s.tenant("renewed", classes{parameters: map[string]string{"onDelete": "empty"}})
	r := s.renewal(n.name)
	r.read = n.read
	r.eachAccess(func(access, claim string) {
		s.must(n.claim(claim, ""))
		s.must(n.access(access, claim))
	})
	n.ready()
	r.prove([]part{
		{"driver", s.startDriver},
		{"contractd", s.startContractd},
		{"sidecar", func() error { return s.startCOSI("sidecar", fast) }},
		{"driver", s.startDriver},
		{"apiserver", s.restartAPIServer},
	})
	for _, access := range r.accesses {
		n.secret(access)
	}
	n.deleteAll()
	n.vanish()
}

// renewedV1alpha2 is the proof in v1alpha2, in a world of its own, with a driver that has
// no right to applications' Secrets and asks the command deliver.
func renewedV1alpha2(outer *scenario) {
	dir, err := os.MkdirTemp(outer.dir, "")
	outer.must(err)
	s := &scenario{TB: outer.TB, world: newWorld(outer.ctx, "v1alpha2", filepath.Dir(outer.cosiBin), dir)}
	s.Cleanup(func() {
		s.stop()
		for _, l := range s.logs {
			outer.logs = append(outer.logs, log{l.name + "-v1alpha2", l.output})
		}
	})
	s.must(s.start(outer.bin))
	_, err = s.kubectl(s.ctx, "", "-n", driverNamespace, "create", "serviceaccount", deliverAccount)
	s.must(err)
	s.accounts[deliverAccount], err = s.serviceAccount(s.ctx, driverNamespace, deliverAccount)
	s.must(err)
	s.mayWriteSecrets(deliverAccount)
	s.delivery = filepath.Join(s.dir, "deliver.sock")
	s.must(s.startDeliver())
	s.secondsDriver()
	const name = "renewed"
	apply := func(text string) {
		s.until("applied", func() error {
			_, err := s.kubectl(s.ctx, text, "apply", "--validate=strict", "-f", "-")
			return err
		})
	}
	apply(fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {%[2]s/%[1]s: %[1]s}}
---
apiVersion: objectstorage.k8s.io/v1alpha2
kind: BucketClass
metadata: {name: %[1]s}
spec: {driverName: %[2]s, deletionPolicy: Delete, parameters: {contract: %[1]s, onDelete: empty}}
---
apiVersion: objectstorage.k8s.io/v1alpha2
kind: BucketAccessClass
metadata: {name: %[1]s}
spec: {driverName: %[2]s, authenticationType: Key}
`, name, driverName))
	r := s.renewal(name)
	r.read = func(ctx context.Context, access string) (credentials, error) {
		o, err := s.kube.CoreV1().Secrets(name).Get(ctx, access, metav1.GetOptions{})
		if err != nil {
			return credentials{}, err
		}
		of := func(entry string) string { return string(o.Data["COSI_S3_"+entry]) }
		return credentials{of("BUCKET_ID"), of("ENDPOINT"), of("REGION"), of("ACCESS_KEY_ID"), of("ACCESS_SECRET_KEY")}, nil
	}
	claimed := map[string]bool{}
	r.eachAccess(func(access, claim string) {
		if !claimed[claim] {
			claimed[claim] = true
			apply(fmt.Sprintf(`apiVersion: objectstorage.k8s.io/v1alpha2
kind: BucketClaim
metadata: {name: %s, namespace: %s}
spec: {bucketClassName: %[2]s, protocols: [S3]}
`, claim, name))
		}
		_, err := s.resource(object(s.version, "BucketAccess", name, access, nil)).Create(s.ctx, object(s.version, "BucketAccess", name, access, fields{"spec": fields{
			"bucketAccessClassName": name, "protocol": "S3",
			"bucketClaims": []any{fields{"bucketClaimName": claim, "accessMode": "ReadWrite", "accessSecretName": access}},
		}}), metav1.CreateOptions{})
		s.must(err)
	})
	s.until("granted", func() error {
		var errs []error
		for _, access := range r.accesses {
			o, err := s.resource(object(s.version, "BucketAccess", name, access, nil)).Get(s.ctx, access, metav1.GetOptions{})
			if err == nil && o.Object["status"] == nil {
				err = errors.New(access + " is not granted")
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	r.prove([]part{
		{"driver", s.startDriver},
		{"deliver", s.startDeliver},
		{"sidecar", s.startStandIn},
		{"contractd", s.startContractd},
		{"driver", s.startDriver},
		{"apiserver", s.restartAPIServer},
	})
	for _, kind := range []string{"bucketaccess", "bucketclaim"} {
		_, err := s.kubectl(s.ctx, "", "-n", name, "delete", kind, "--all", "--timeout", patience.String())
		s.must(err)
	}
	s.until("clean", func() error {
		contracts, err := s.listed("/v1/contracts")
		secrets, secretsErr := s.kube.CoreV1().Secrets(name).List(s.ctx, metav1.ListOptions{})
		if err = errors.Join(err, secretsErr); err == nil && len(contracts)+len(secrets.Items) > 0 {
			err = fmt.Errorf("the contracts %q and %d Secrets are left", contracts, len(secrets.Items))
		}
		return err
	})
	s.must(s.alive())
	outer.notes = append(outer.notes, s.notes...)
}

// secondsDriver puts in the driver's place one whose keys may live for seconds.
func (s *scenario) secondsDriver() {
	s.Helper()
	released := s.build.Driver
	s.build.Driver = filepath.Join(filepath.Dir(released), "e2e-driver")
	s.kill("driver")
	s.must(s.startDriver())
	s.Cleanup(func() {
		s.build.Driver, s.drift, s.terms = released, "", ""
		s.kill("driver")
		s.must(s.startDriver())
	})
}

// part is one that is killed, and how it comes back.
type part struct {
	name string
	back func() error
}

// renewal is the proof that renewed keys do no harm. Each application writes an object
// each second with whatever its Secret says, and parts are killed.
//
//   - No request with the key that a Secret has is refused, and no key before its grace
//     is over.
//   - No access ever has more than two keys.
//   - No key is older than its rotation, its grace and the driver's interval allow, the
//     times apart in which a part was away.
//   - In the end each access has one key, and no other key works.
type renewal struct {
	*scenario
	contract string
	accesses []string
	read     func(ctx context.Context, access string) (credentials, error)

	mu       sync.Mutex
	faults   []string
	requests int
	held     map[string]map[string]credentials // by access and id, what a Secret had
	away     bool                              // a part is killed
}

func (s *scenario) renewal(contract string) *renewal {
	return &renewal{scenario: s, contract: contract, held: map[string]map[string]credentials{}}
}

// eachAccess names the accesses, ten to a claim.
func (r *renewal) eachAccess(ask func(access, claim string)) {
	for i := range *renewing {
		access := numbered(i)
		r.accesses = append(r.accesses, access)
		r.held[access] = map[string]credentials{}
		ask(access, "bucket-"+numbered(i/10))
	}
}

func (r *renewal) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// rotating sets whether keys are renewed.
func (r *renewal) rotating(on bool) {
	r.Helper()
	r.drift, r.terms = fmt.Sprintf("{interval: %s, callsPerSecond: 1000}", dueEvery), ""
	if on {
		r.terms = fmt.Sprintf(", defaults: {bucketAccessClass: {keyRotation: %s, keyGrace: %s}}", keyRotation, keyGrace)
	}
	r.must(r.writeConfig())
}

// prove lets keys be renewed while they are used and parts are killed.
func (r *renewal) prove(parts []part) {
	r.Helper()
	first := map[string]credentials{}
	for _, access := range r.accesses {
		c, err := r.read(r.ctx, access)
		r.must(err)
		first[access] = c
	}
	r.rotating(true)
	ctx, stop := context.WithCancel(r.ctx)
	defer stop()
	var running sync.WaitGroup
	for i, access := range r.accesses {
		running.Go(func() {
			if !wait(ctx, time.Duration(i)*time.Second/time.Duration(len(r.accesses))) {
				return
			}
			r.apply(ctx, access)
		})
	}
	var oldest time.Duration
	running.Go(func() { oldest = r.watch(ctx) })
	kills, begun := 0, time.Now()
	for wait(ctx, betweenKills) {
		// A slow machine gets more time for as many keys as prove something.
		if past := time.Since(begun) - *renewFor; past > patience || past >= 0 && r.fewest() >= 3 {
			break
		}
		p := parts[kills%len(parts)]
		r.set(&r.away, true)
		r.kill(p.name)
		r.must(p.back())
		r.set(&r.away, false)
		kills++
	}
	stop()
	running.Wait()
	r.must(errors.Join(some("renewal", r.faults)))
	r.rotating(false)
	r.until("one key for each", func() error {
		keys, err := r.keys()
		if err == nil && len(keys) != len(r.accesses) {
			err = fmt.Errorf("%d keys for %d accesses", len(keys), len(r.accesses))
		}
		return err
	})
	fewest, all := r.fewest(), 0
	for _, access := range r.accesses {
		all += len(r.held[access])
	}
	if fewest < 3 || r.requests < all {
		r.Errorf("%d requests, and %d keys of an access at least, are too few to prove anything", r.requests, fewest)
	}
	r.note("%d accesses, %d keys, %d requests, none refused; the oldest key had %.0f s; %d kills", len(r.accesses), all, r.requests, oldest.Seconds(), kills)
	leaked := r.onlyLast()
	for _, access := range r.accesses {
		r.must(r.refused(first[access]))
	}
	// All at once, for keys that have leaked.
	out, err := exec.CommandContext(r.ctx, r.build.Driver, "rotate", "--contract", r.contract, "--now", "--grace", "3s", "--config", filepath.Join(r.dir, "driver.yaml")).CombinedOutput()
	if err != nil {
		r.Errorf("rotate --now: %v\n%s", err, tail(string(out), 40))
	}
	r.onlyLast()
	for _, c := range leaked {
		r.must(r.refused(c))
	}
}

// fewest is how many keys the Secret of each access has had.
func (r *renewal) fewest() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.held[r.accesses[0]])
	for _, access := range r.accesses {
		n = min(n, len(r.held[access]))
	}
	return n
}

// onlyLast is what the Secrets have in the end, which works. What they had before
// does not, which is tried for one access whole.
func (r *renewal) onlyLast() map[string]credentials {
	r.Helper()
	last := map[string]credentials{}
	for _, access := range r.accesses {
		c, err := r.read(r.ctx, access)
		r.must(err)
		r.must(c.works(r.ctx))
		last[access] = c
	}
	for id, c := range r.held[r.accesses[0]] {
		if id != last[r.accesses[0]].AccessKeyID {
			r.must(r.refused(c))
		}
	}
	return last
}

// wait reports whether a time has passed before ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (r *renewal) set(flag *bool, to bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*flag = to
}

// apply is an application. Its key is a second old, as one is that a kubelet has brought.
func (r *renewal) apply(ctx context.Context, access string) {
	each := time.NewTicker(time.Second)
	defer each.Stop()
	var client *s3.Client
	var with credentials
	var at time.Time // when the Secret had it
	for ctx.Err() == nil {
		if client != nil {
			r.judge(ctx, access, with, at, put(ctx, client, with.Bucket, "object"))
		}
		asked := time.Now()
		if c, err := r.read(ctx, access); err == nil { // else the API server is away
			at = asked
			if c != with {
				client, with = c.client(), c
				r.mu.Lock()
				r.held[access][c.AccessKeyID] = c
				r.mu.Unlock()
			}
		}
		select {
		case <-ctx.Done():
		case <-each.C:
		}
	}
}

// judge holds an answer to the rules, for a key that was in the Secret at a time.
func (r *renewal) judge(ctx context.Context, access string, c credentials, at time.Time, answer error) {
	if answer == nil {
		r.mu.Lock()
		r.requests++
		r.mu.Unlock()
		return
	}
	if said, ok := errors.AsType[*smithyhttp.ResponseError](answer); !ok || said.HTTPStatusCode()/100 != 4 { // the service is away
		return
	}
	took := time.Since(at)
	now, err := r.read(ctx, access)
	switch {
	case err == nil && now.AccessKeyID == c.AccessKeyID:
		r.fault("%s is refused with the key that its Secret has: %v", access, answer)
	case took < keyGrace*3/4: // else the grace can have passed since the Secret had it
		r.fault("%s is refused %s after its Secret had the key, which has a grace: %v", access, took, answer)
	}
}

// watch looks at the keys of all accesses as long as ctx lasts, and returns the
// greatest age, of the times in which all parts were there.
func (r *renewal) watch(ctx context.Context) (oldest time.Duration) {
	most := keyRotation + keyGrace + dueEvery + *slack
	ages, last := map[string]time.Duration{}, time.Now()
	told := map[string]bool{}
	for wait(ctx, 200*time.Millisecond) {
		r.mu.Lock()
		away := r.away
		r.mu.Unlock()
		keys, err := r.keys()
		passed := time.Since(last)
		last = time.Now()
		if err != nil {
			continue
		}
		slots := map[string]int{}
		for _, k := range keys {
			if slots[k.slot]++; slots[k.slot] == 3 {
				r.fault("%s has more than two keys", k.slot)
			}
			if !away {
				ages[k.id] += passed
			}
			if oldest = max(oldest, ages[k.id]); ages[k.id] > most && !told[k.id] {
				told[k.id] = true
				r.fault("the key %s of %s is older than %s", k.id, k.slot, most)
			}
		}
	}
	return oldest
}

// serviceKey is a key of an access as the service lists it.
type serviceKey struct{ id, slot string }

// keys are those of the accesses.
func (r *renewal) keys() (out []serviceKey, err error) {
	var page struct {
		Items []struct {
			AccessKeyID string
			Spec        struct {
				Slot    string
				Buckets []any
			}
		}
		NextPageToken string
	}
	code, err := r.api(http.MethodGet, "/v1/contracts/"+r.contract+"/keys?pageSize=500", "", &page)
	if err != nil || code != http.StatusOK || page.NextPageToken != "" {
		return nil, fmt.Errorf("contractd does not list all keys: HTTP %d, %w", code, err)
	}
	for _, k := range page.Items {
		if len(k.Spec.Buckets) > 0 { // the contract's own has none
			out = append(out, serviceKey{k.AccessKeyID, k.Spec.Slot})
		}
	}
	return out, nil
}

// read reads the Secret of an access.
func (n *tenant) read(ctx context.Context, access string) (credentials, error) {
	s, err := n.kube.CoreV1().Secrets(n.name).Get(ctx, access, metav1.GetOptions{})
	if err != nil {
		return credentials{}, err
	}
	var info cosiapi.BucketInfo
	if err := json.Unmarshal(s.Data["BucketInfo"], &info); err != nil {
		return credentials{}, err
	}
	return credentials{info.Spec.BucketName, info.Spec.S3.Endpoint, info.Spec.S3.Region, info.Spec.S3.AccessKeyID, info.Spec.S3.AccessSecretKey}, nil
}
