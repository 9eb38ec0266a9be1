package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/test/guide"
)

const (
	system = "contract-cosi-system"
	driver = "deployment/contract-cosi-driver"
	chart  = "contract-cosi-driver deploy/chart --namespace " + system
	// pods are the driver's, without contractd's.
	pods = "-n " + system + " get pods --selector app.kubernetes.io/name=contract-cosi-driver"
)

// scenario is one thing that happens to an installation. Each needs what those
// before it have left, apart from those that are chosen.
type scenario struct {
	name string
	when when
	do   func(*walker)
}

// when a scenario runs.
type when int

const (
	chosen when = iota // by its name
	always             // because others need what it does
	asked              // with LONG=1 only, because it takes minutes
)

var scenarios = []scenario{
	{"first bucket", always, firstBucket},
	{"application", always, application},
	{"rolling update", chosen, rollingUpdate},
	{"configuration", chosen, configuration},
	{"leader deleted", chosen, leaderDeleted},
	{"access without its Secret", chosen, accessStuck},
	{"Bucket without its claim", chosen, bucketOrphaned},
	{"leader lost, with help", chosen, leaderHelped},
	{"leader lost", asked, leaderLost},
	{"helm rollback", chosen, rollback},
	{"kubelet and containerd", chosen, restarts},
	{"helm test", chosen, helmTest},
	{"restricted", chosen, restricted},
	{"drain", chosen, drain},
	{"memory limit", chosen, memoryLimit},
	{"figures", chosen, figures},
	{"uninstall", always, uninstall},
	{"kustomize", chosen, kustomize},
	{"production", chosen, production},
	{"arbitrary user", always, arbitraryUser},
	{"disk pressure", chosen, diskPressure},
}

// walk goes through what is chosen, and prints the table.
func walk(ctx context.Context, n *node, names *regexp.Regexp, long bool) error {
	blocks, err := guide.Of(n.root, guide.Node)
	if err != nil {
		return err
	}
	if err := os.CopyFS(n.path("repository/deploy"), os.DirFS(filepath.Join(n.root, "deploy"))); err != nil {
		return err
	}
	w := &walker{node: n, ctx: ctx, blocks: blocks, ran: map[string]bool{}}
	for _, s := range scenarios {
		if s.when != always && !names.MatchString(s.name) || s.when == asked && !long {
			continue
		}
		fmt.Printf("\n== %s\n", s.name)
		from := time.Now()
		w.note = nil
		err = w.one(s)
		w.rows = append(w.rows, row{s.name, time.Since(from), strings.Join(w.note, "; ")})
		if err != nil {
			err = fmt.Errorf("%s: %w", s.name, err)
			break
		}
	}
	if err == nil && names.String() == "." {
		err = w.leftOut()
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "\nscenario\ttook\tseen")
	for _, r := range w.rows {
		_, _ = fmt.Fprintf(out, "%s\t%.1f s\t%s\n", r.scenario, r.took.Seconds(), r.notes)
	}
	return errors.Join(err, out.Flush())
}

// one does a scenario.
func (w *walker) one(s scenario) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
			_, _ = w.try("kubectl get pods --all-namespaces -o wide; kubectl get events --all-namespaces --sort-by .lastTimestamp | tail -12")
		default:
			panic(r)
		}
	}()
	s.do(w)
	return nil
}

// guide is the commands in a section of a page that are a node's, in the order they
// stand.
func (w *walker) guide(page, section string) []string {
	var lines []string
	for _, b := range w.blocks {
		if b.Page == page && b.Section == section {
			lines = append(lines, b.Commands()...)
		}
	}
	if len(lines) == 0 {
		w.fail("%s has no commands in the section %q", page, section)
	}
	return lines
}

// follow runs commands of a guide; those that no node here can run it names.
func (w *walker) follow(lines ...string) {
	for _, line := range lines {
		if why := elsewhere(line); why != "" {
			fmt.Printf("  # not run: %s: %s\n", line, why)
			continue
		}
		w.sh(line)
	}
}

// with runs a command of a guide whose reader puts something in a word's place.
func (w *walker) with(line string, oldnew ...string) string {
	w.ran[line] = true
	return w.sh(strings.NewReplacer(oldnew...).Replace(line))
}

func elsewhere(line string) string {
	for begin, why := range guide.Elsewhere {
		if strings.HasPrefix(line, begin) {
			return why
		}
	}
	return ""
}

// leftOut are the commands of the guides that should have been run and were not.
func (w *walker) leftOut() error {
	var left []error
	for _, b := range w.blocks {
		for _, line := range b.Commands() {
			if !w.ran[line] && elsewhere(line) == "" {
				left = append(left, fmt.Errorf("no scenario runs what %s says: %s", b, line))
			}
		}
	}
	return errors.Join(left...)
}

// installCOSI follows the guide to COSI's controller.
func (w *walker) installCOSI() {
	w.follow(w.guide("deploy/README.md", "What you need")...)
	w.sh("kubectl wait --for=condition=Established crd --all")
	w.sh("kubectl -n container-object-storage-system rollout status deployment/container-object-storage-controller")
}

// firstBucket follows the guide, word for word, from COSI to a key in a Secret.
func firstBucket(w *walker) {
	w.cosiRepository()
	w.installCOSI()
	from := time.Now()
	for _, line := range w.guide("deploy/README.md", "First bucket in five minutes") {
		if strings.HasPrefix(line, "kubectl delete") {
			break // the end of the evaluation is another scenario
		}
		w.follow(line)
		if strings.Contains(line, "get secret") {
			w.notef("helm install to a key in a Secret %.1f s", time.Since(from).Seconds())
		}
	}
}

// cosiRepository puts upstream's release, from its published modules, where git looks
// for the repository that the guide names.
func (w *walker) cosiRepository() {
	repository := w.path("cosi.git")
	for from, to := range map[string]string{w.cosi: "", w.cosiClient: "client"} {
		for _, part := range []string{"kustomization.yaml", "controller", "config"} { // of each, what it has
			source, target := filepath.Join(from, part), filepath.Join(repository, to, part)
			info, err := os.Stat(source)
			switch {
			case errors.Is(err, os.ErrNotExist):
				continue
			case err == nil && info.IsDir():
				err = os.CopyFS(target, os.DirFS(source))
			case err == nil:
				var text []byte
				if text, err = os.ReadFile(source); err == nil {
					err = w.write(target, string(text))
				}
			}
			if err != nil {
				w.fail("%w", err)
			}
		}
	}
	w.get("cd " + repository + " && git init -q && git add -Af . && git -c user.name=node -c user.email=node@localhost commit -qm v0.2.2 && git tag v0.2.2 && " +
		"git config --global url.file://" + strings.TrimSuffix(repository, ".git") + ".insteadOf https://github.com/kubernetes-sigs/container-object-storage-interface")
}

// application is one beside the guide's, that counts what fails.
func application(w *walker) {
	w.sh("kubectl apply -f " + w.root + "/test/node/load.yaml")
	w.sh("kubectl -n first rollout status deployment/load")
	w.within(time.Minute, "kubectl -n first logs deployment/load | grep requests")
	from := time.Now()
	w.sh("kubectl -n first delete pod --selector app=photos")
	took := time.Since(from)
	if took > 15*time.Second {
		w.fail("the guide's application took %s to end: it does not heed TERM", took)
	}
	w.notef("the guide's application ends within %.1f s of TERM", took.Seconds())
}

var counted = regexp.MustCompile(`(\d+) requests, (\d+) failed`)

// requests is what the application has counted.
func (w *walker) requests() (all, failed int) {
	for _, m := range counted.FindAllStringSubmatch(w.get("kubectl -n first logs deployment/load"), -1) {
		all, _ = strconv.Atoi(m[1])
		failed, _ = strconv.Atoi(m[2])
	}
	return all, failed
}

// atMost is how many claims are made meanwhile: v0.2.2 takes seconds for each.
const atMost = 12

// claims makes a bucket with a key every two seconds while something is done, waits
// for all of them, and deletes them again. No request of the application may fail
// meanwhile.
func (w *walker) claims(name string, do func()) {
	w.claimsFor(name, 2*time.Minute, do)
}

func (w *walker) claimsFor(name string, limit time.Duration, do func()) {
	before, failedBefore := w.requests()
	stop, stopped := make(chan struct{}), make(chan int, 1)
	go func() {
		made := 0
		for {
			if made < atMost {
				if out, err := w.quiet(w.claim(fmt.Sprintf("%s-%d", name, made))); err != nil {
					fmt.Println("    not applied:", err, out)
				} else {
					made++
				}
			}
			select {
			case <-stop:
				stopped <- made
				return
			case <-time.After(2 * time.Second):
			}
		}
	}()
	func() {
		defer close(stop)
		do()
	}()
	made := <-stopped
	from := time.Now()
	selector := "--selector made=" + name
	w.within(limit, "kubectl -n first wait bucketaccess "+selector+" --for=jsonpath='{.status.accessGranted}'=true --timeout=10s | grep -c . | grep -x "+strconv.Itoa(made))
	waited := time.Since(from)
	w.sh("kubectl -n first delete bucketaccess --timeout=3m " + selector)
	w.sh("kubectl -n first delete bucketclaim --timeout=3m " + selector)
	w.orphans(name + "-")
	w.within(time.Minute, "kubectl -n first logs deployment/load --since=5s | grep requests")
	after, failed := w.requests()
	if after <= before || failed != failedBefore {
		w.fail("the application: %d requests, %d failed; before %d and %d", after, failed, before, failedBefore)
	}
	w.notef("%d claims, the last ready after %.1f s; %d requests, none failed", made, waited.Seconds(), after-before)
}

// orphans waits until there is no Bucket of a claim in namespace first with the prefix.
//
// v0.2.2's controller and sidecar leave Buckets, whatever the driver does: of a claim
// that never got its finalizer, because a write of its status came first; and where a
// write conflict follows the deletion at the storage, the next attempt ends with
// "FailedDeleteBucket ... bucketclaims not found". They are counted, and cured as the
// guide says: the Bucket is deleted, and loses its finalizers once the driver has
// removed its bucket and the record of it.
func (w *walker) orphans(prefix string) {
	const settled = 10 * time.Second // nothing works on a Bucket that has not changed for so long
	seen, cured := map[string]time.Time{}, map[string]bool{}
	deadline := time.Now().Add(3 * time.Minute)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ; ; <-tick.C {
		lines := w.get(`kubectl get buckets -o jsonpath='{range .items[?(@.spec.bucketClaim.namespace=="first")]}{.spec.bucketClaim.name} {.metadata.name} {.metadata.resourceVersion} {.metadata.deletionTimestamp}{"\n"}{end}' | grep '^` + prefix + `' || true`)
		if lines == "" {
			break
		}
		if time.Now().After(deadline) || w.ctx.Err() != nil {
			w.fail("Buckets stay: %s", lines)
		}
		for line := range strings.Lines(lines) {
			f := strings.Fields(line)
			if len(f) < 3 {
				continue
			}
			bucket, state := f[1], f[1]+f[2]
			if seen[state].IsZero() {
				seen[state] = time.Now()
			}
			if time.Since(seen[state]) < settled || w.works("kubectl -n first get bucketclaim "+f[0]) {
				continue
			}
			if len(f) == 3 {
				w.sh("kubectl delete bucket " + bucket + " --wait=false")
				cured[bucket] = true
			} else if !w.works("kubectl -n " + system + "-journal get secrets -o yaml | grep -F " + bucket) {
				w.sh("kubectl patch bucket " + bucket + " --type=merge --patch '{\"metadata\":{\"finalizers\":null}}'")
				cured[bucket] = true
			}
		}
	}
	if len(cured) > 0 {
		w.notef("Buckets left by v0.2.2: %d", len(cured))
	}
}

// works reports whether a line succeeds.
func (w *walker) works(line string) bool {
	_, err := w.quiet(line)
	return err == nil
}

// claim is a line that applies a claim and an access to it.
func (w *walker) claim(name string) string {
	return "sed 's/photos/" + name + "/; s/^  namespace: first/&\\n  labels: {made: " + name[:strings.LastIndex(name, "-")] + "}/' deploy/examples/first/bucket.yaml | kubectl apply -f -"
}

// rollingUpdate changes the chart's pods.
func rollingUpdate(w *walker) {
	w.claims("rolling", func() {
		from := time.Now()
		w.sh("helm upgrade " + chart + " --reuse-values --set-string podAnnotations.update=1")
		w.sh("kubectl -n " + system + " rollout status " + driver)
		w.notef("rollout %.0f s", time.Since(from).Seconds())
	})
}

// configuration changes what the driver reads.
func configuration(w *walker) {
	w.claims("configuration", func() {
		w.sh("helm upgrade " + chart + " --reuse-values --set config.driver.callTimeout=20s")
		w.sh("kubectl -n " + system + " rollout status " + driver)
	})
	w.sh("kubectl -n " + system + " get secret contract-cosi-driver-config -o jsonpath='{.data.config\\.yaml}' | base64 -d | grep callTimeout")
}

const lease = "kubectl -n " + system + " get lease contract-cosi-example-com-cosi -o jsonpath='{.spec.holderIdentity}'"

// leader is the pod whose sidecar calls its driver.
func (w *walker) leader() string {
	w.within(4*time.Minute, lease+" | grep .")
	return w.get(lease)
}

// leaderDeleted deletes the leader's pod, as a person does.
func leaderDeleted(w *walker) {
	leader := w.leader()
	w.claims("deleted", func() {
		w.sh("kubectl -n " + system + " delete pod " + leader)
		from := time.Now()
		w.within(3*time.Minute, lease+" | grep -v "+leader)
		w.notef("%.1f s without a leader", time.Since(from).Seconds())
		w.sh("kubectl -n " + system + " rollout status " + driver)
	})
}

// accessStuck leaves an access as v0.2.2's sidecar does when it is killed while it
// revokes, with its Secret gone, and frees it as the guide says.
func accessStuck(w *walker) {
	w.sh(w.claim("stuck-0"))
	w.granted("first", "stuck-0")
	w.stopDriver()
	w.sh("kubectl -n first delete bucketaccess/stuck-0 --wait=false")
	w.sh("kubectl -n first patch secret/stuck-0 --type=merge --patch '{\"metadata\":{\"finalizers\":null}}'")
	w.sh("kubectl -n first delete secret/stuck-0")
	w.sh("kubectl -n " + system + " scale " + driver + " --replicas=2")
	lines := w.guide("deploy/operations.md", "Accesses that are not deleted")
	find, free := lines[0], lines[1]
	if found := strings.TrimSpace(w.sh(find)); found != "first stuck-0" {
		w.fail("found is %q", found)
	}
	w.within(2*time.Minute, lease+" | grep .")
	w.with(free, "NAMESPACE", "first", "NAME", "stuck-0")
	w.sh("kubectl -n first wait bucketaccess/stuck-0 --for=delete --timeout=2m")
	w.sh("kubectl -n first delete bucketclaim/stuck-0 --timeout=1m")
}

// bucketOrphaned leaves a Bucket as v0.2.2 does where a write conflict follows the
// deletion at the storage: its claim is gone before it. It is cured as the guide says.
func bucketOrphaned(w *walker) {
	w.sh(w.claim("orphan-0"))
	w.granted("first", "orphan-0")
	w.sh("kubectl -n first delete bucketaccess/orphan-0 --timeout=2m")
	w.stopDriver()
	w.sh("kubectl -n first delete bucketclaim/orphan-0 --wait=false")
	w.sh("kubectl -n first patch bucketclaim/orphan-0 --type=merge --patch '{\"metadata\":{\"finalizers\":null}}'")
	w.sh("kubectl -n first wait bucketclaim/orphan-0 --for=delete --timeout=1m")
	w.sh("kubectl -n " + system + " scale " + driver + " --replicas=2")
	w.orphans("orphan-")
	if len(w.note) != 1 {
		w.fail("the Bucket went by itself: %s", w.note)
	}
}

// stopDriver waits until there is no pod of it.
func (w *walker) stopDriver() {
	w.sh("kubectl -n " + system + " scale " + driver + " --replicas=0")
	w.sh("kubectl -n " + system + " wait pod --selector app.kubernetes.io/name=contract-cosi-driver --for=delete --timeout=2m")
}

// loseLeader kills the leader as a machine's end does: nothing is given back.
func (w *walker) loseLeader() (lost string) {
	lost = w.leader()
	id := w.get("ctr --namespace k8s.io tasks list | grep -F \"$(kubectl -n " + system + " get pod " + lost +
		" -o jsonpath='{.status.containerStatuses[?(@.name==\"sidecar\")].containerID}' | sed 's#.*//##')\" | awk '{print $2}'")
	fmt.Println("  $ kill -9", id, "# the leader's sidecar; its pod with it")
	w.get("kill -9 " + id + "; kubectl -n " + system + " delete pod --force --grace-period=0 " + lost)
	return lost
}

// leaderLost waits for what v0.2.2's lease allows.
func leaderLost(w *walker) {
	w.claimsFor("lost", 8*time.Minute, func() {
		lost := w.loseLeader()
		took := w.within(7*time.Minute, lease+" | grep -v "+lost)
		w.notef("%.0f s without a leader", took.Seconds())
	})
}

// leaderHelped does not wait, but follows the guide.
func leaderHelped(w *walker) {
	w.claims("helped", func() {
		from := time.Now()
		lost := w.loseLeader()
		w.follow(w.guide("deploy/operations.md", "How long a takeover takes")...)
		w.within(2*time.Minute, lease+" | grep -v "+lost)
		w.notef("%.0f s without a leader", time.Since(from).Seconds())
		w.sh("kubectl -n " + system + " rollout status " + driver)
	})
}

func rollback(w *walker) {
	w.sh("helm upgrade " + chart + " --reuse-values --set-string podAnnotations.update=2")
	w.sh("kubectl -n " + system + " rollout status " + driver)
	w.claims("rollback", func() {
		w.sh("helm rollback contract-cosi-driver --namespace " + system)
		w.sh("kubectl -n " + system + " rollout status " + driver)
	})
}

// restarts ends and starts what runs the pods. They go on.
func restarts(w *walker) {
	before := w.get("kubectl " + pods + " -o name")
	w.claims("restarts", func() {
		for _, name := range []string{"containerd", "kubelet"} {
			fmt.Println("  $ kill -9", name, "# and start it again")
			if err := w.restart(name, os.Kill); err != nil {
				w.fail("%s: %w", name, err)
			}
			// kubelet ends where containerd does not answer.
			if err := w.until(w.ctx, func() error { return w.ctr(w.ctx, "version") }); err != nil {
				w.fail("containerd: %w", err)
			}
		}
		w.within(2*time.Minute, "kubectl wait node node --for=condition=Ready --timeout=1s && kubectl get --raw /api/v1/nodes/node/proxy/healthz")
		w.sh("kubectl -n " + system + " rollout status " + driver)
	})
	if after := w.get("kubectl " + pods + " -o name"); after != before {
		w.fail("other pods: %s; before: %s", after, before)
	}
}

func helmTest(w *walker) {
	w.sh("helm test contract-cosi-driver --namespace " + system)
}

// restricted lets the namespace have no pod that Pod Security's strictest profile
// refuses.
func restricted(w *walker) {
	w.sh("kubectl label namespace " + system + " pod-security.kubernetes.io/enforce=restricted pod-security.kubernetes.io/enforce-version=latest")
	w.claims("restricted", func() {
		w.sh("kubectl -n " + system + " rollout restart " + driver)
		w.sh("kubectl -n " + system + " rollout status " + driver)
	})
	w.helmTestQuietly()
}

func (w *walker) helmTestQuietly() {
	w.sh("helm test contract-cosi-driver --namespace " + system + " | grep Phase")
}

// drain evicts what it may: with one node, one of the two pods can go, and as nothing
// can start elsewhere, the other one stays.
func drain(w *walker) {
	w.sh("kubectl -n " + system + " get poddisruptionbudget")
	w.claimsFor("drain", 4*time.Minute, func() {
		w.refused("kubectl drain node --delete-emptydir-data --pod-selector app.kubernetes.io/name=contract-cosi-driver --timeout=15s", "disruption budget")
		if left := w.get("kubectl " + pods + " --field-selector status.phase=Running -o name"); len(strings.Fields(left)) != 1 {
			w.fail("one pod should have stayed: %q", left)
		}
		w.sh("kubectl uncordon node")
		w.sh(rollout)
	})
	w.notef("the second pod stays")
}

// memoryLimit gives new pods less than they need: the old ones stay.
func memoryLimit(w *walker) {
	w.claims("memory", func() {
		w.sh("helm upgrade " + chart + " --reuse-values --set driver.resources.requests.memory=7Mi,driver.resources.limits.memory=7Mi")
		w.within(2*time.Minute, "kubectl "+pods+" -o json | grep -i oom")
		w.sh("kubectl " + pods)
		w.sh("helm rollback contract-cosi-driver --namespace " + system)
		w.sh("kubectl -n " + system + " rollout status " + driver)
	})
}

// figures are what the containers use, by their cgroups. None has more memory than the
// chart requests for the driver.
func figures(w *walker) {
	const request = 64 << 20
	containers := w.get("kubectl -n " + system + ` get pods -o jsonpath='{range .items[*]}{range .status.containerStatuses[*]}{.name} {.containerID}{"\n"}{end}{end}'`)
	for line := range strings.Lines(containers) {
		name, id, _ := strings.Cut(strings.TrimSpace(line), " containerd://")
		figure := strings.Fields(w.get(`dir=$(find /sys/fs/cgroup -type d -path '*/` + w.group + `/*' -name ` + id + ` -exec test -f '{}/memory.stat' ';' -print -quit)
awk '$1 == "total_rss" || $1 == "anon" {print $2}' "$dir/memory.stat"
awk '$1 == "usage_usec" {printf "%.1f", $2 / 1e6}' "$dir/cpu.stat" 2>/dev/null || awk '{printf "%.1f", $1 / 1e9}' "${dir/memory/cpuacct}/cpuacct.usage"`))
		if len(figure) != 2 {
			w.fail("%s has no figures in its cgroup: %q", name, figure)
		}
		rss, err := strconv.Atoi(figure[0])
		if err != nil || rss > request {
			w.fail("%s has %s bytes of memory, more than %d: %v", name, figure[0], request, err)
		}
		w.notef("%s %d MiB, %s s of CPU", name, rss>>20, figure[1])
	}
	if len(w.note) < 5 {
		w.fail("only %d containers: %s", len(w.note), containers)
	}
}

// arbitraryUser runs the pods as OpenShift does, as a user of the namespace's own
// range in the group 0, and so needs no user of the images.
func arbitraryUser(w *walker) {
	w.installCOSI()
	w.sh("helm install " + chart + " --wait --create-namespace --set evaluation.enabled=true --set podSecurityContext.runAsUser=1000650000,podSecurityContext.runAsGroup=0,podSecurityContext.fsGroup=1000650000")
	w.sh("kubectl -n " + system + " rollout status " + driver)
	w.sh("until kubectl apply -f deploy/examples/first/classes.yaml; do sleep 1; done")
	w.sh("kubectl apply -f deploy/examples/first/bucket.yaml")
	w.sh("kubectl -n first wait bucketaccess/photos --for=jsonpath='{.status.accessGranted}'=true --timeout=2m")
	w.sh("kubectl " + pods + " -o jsonpath='{.items[*].spec.securityContext}'")
	w.helmTestQuietly()
}

// diskPressure lets kubelet see too little free space, and evict pods.
func diskPressure(w *walker) {
	file := w.path("kubelet.yaml")
	text := w.get("cat " + file)
	kubelet := func(text string) {
		if err := w.write(file, text); err != nil {
			w.fail("%w", err)
		}
		if err := w.restart("kubelet", os.Kill); err != nil {
			w.fail("%w", err)
		}
	}
	fmt.Println("  $ # kubelet is told that the disk is nearly full")
	kubelet(strings.Replace(text, "nodefs.available: 1%", "nodefs.available: 99%", 1))
	w.within(2*time.Minute, "kubectl wait node node --for=condition=DiskPressure --timeout=1s")
	w.within(3*time.Minute, "kubectl -n "+system+" get events --field-selector reason=Evicted | grep pod/contract-cosi-driver-")
	w.sh("kubectl " + pods)
	fmt.Println("  $ # and then that it is not")
	kubelet(text)
	w.within(2*time.Minute, "kubectl wait node node --for=condition=DiskPressure=false --timeout=1s")
	if err := w.images(w.ctx); err != nil { // kubelet has removed those that no pod used
		w.fail("%w", err)
	}
	w.sh("kubectl -n " + system + " rollout status " + driver + " --timeout=3m")
}

// uninstall follows the guide to the evaluation's end, and looks for what is left.
func uninstall(w *walker) {
	w.sh("kubectl -n first delete deployment load")
	lines := w.guide("deploy/README.md", "First bucket in five minutes")
	for i, line := range lines {
		if strings.HasPrefix(line, "kubectl delete") {
			lines = lines[i:]
			break
		}
	}
	for _, line := range lines {
		w.follow(line)
		if strings.HasSuffix(line, "first/bucket.yaml") {
			w.orphans("")
		}
	}
	if left := w.get("kubectl get namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings,buckets,bucketclasses,bucketaccessclasses -o name; kubectl get bucketclaims,bucketaccesses --all-namespaces -o name"); strings.Contains(left, "contract-cosi") || regexp.MustCompile(`(?m)^(bucket|namespace/first)`).MatchString(left) {
		w.fail("left is %s", left)
	}
	w.notef("nothing is left")
}

// kustomize installs the evaluation without Helm, and removes it again.
func kustomize(w *walker) {
	w.sh("kubectl apply -f deploy/manifests/evaluation/namespace.yaml")
	w.sh("kubectl apply -k deploy/manifests/evaluation")
	w.sh("kubectl -n " + system + " rollout status " + driver)
	w.sh("kubectl delete -k deploy/manifests/evaluation --ignore-not-found")
	w.sh("kubectl get namespace contract-cosi-system-journal")
	w.sh("kubectl delete namespace contract-cosi-system contract-cosi-system-journal")
}
