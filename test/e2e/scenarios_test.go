package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	authv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/container-object-storage-interface/client/apis/objectstorage/v1alpha1"

	"github.com/contract-cosi/contract-cosi-driver/test/guide"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

type scenarioOf struct {
	name string
	run  func(*scenario)
}

// scenarios run one after the other, since some of them take parts away.
var scenarios = []scenarioOf{
	{"manifests for v1alpha1", installed("v1alpha1", "v1alpha1")},
	{"manifests for v1alpha2", installed("v1alpha2", "v1alpha2")},
	{"manifests of the evaluation", installed("evaluation", "v1alpha1")},
	{"claim, access, Secret, two S3 clients", useTheSecret},
	{"every manifest of the guide", theGuide},
	{"a contract ordered with kubectl", ordered},
	{"orders that are refused", refusedOrders},
	{"an order of another's contract", anothersContract},
	{"orders in trouble", ordersInTrouble},
	{"a contract ordered beside v1alpha2", orderedV1alpha2},
	{"a contract taken over by an order", takenOver},
	{"settings of a bucket", bucketSettings},
	{"settings in trouble", settingsInTrouble},
	{"a contract's own key", ownKey},
	{"who may do what", whoMay},
	{"types that are missing", missingTypes},
	{"1000 contracts ordered", thousandOrders},
	{"contracts and settings with nothing to do", manySettings},
	{"delete the access first", accessFirst},
	{"delete the claim first", claimFirst},
	{"delete both together", together},
	{"an access removed by force", byForce},
	{"deletionPolicy Retain", retain},
	{"an existing bucket", existingBucket},
	{"two tenants", twoTenants},
	{"100 claims and accesses at once", hundred},
	{"100 claims one after another", oneByOne},
	{"accesses with one Secret", oneSecret},
	{"a key rotated as the guide says", rotated},
	{"keys renewed while they are used, and parts killed", renewed},
	{"keys in the forms that applications read", readable},
	{"keys renewed in v1alpha2, and parts killed", renewedV1alpha2},
	{"the journal in another namespace", journalMoved},
	{"Secrets in one namespace only", secretsHere},
	{"5 at upstream's 5 requests a second", throttled},
	{"driver killed -9 in flight", driverKilled},
	{"two drivers, one at a time", writers},
	{"sidecar killed -9 in flight", sidecarKilled},
	{"contractd down and back in flight", contractdDown},
	{"bad class parameters", badParameters},
	{"a random walk", randomWalk},
	{"API server restarted in flight", apiServerRestarted},
}

func TestScenarios(t *testing.T) {
	for _, sc := range scenarios {
		if shared.ctx.Err() != nil {
			return
		}
		t.Run(sc.name, func(t *testing.T) {
			s := &scenario{TB: t, world: shared.world}
			start := time.Now()
			defer func() {
				outcome := "ok"
				if t.Failed() {
					outcome = "FAILED"
				}
				if s.raced+s.orphans > 0 {
					s.note("upstream's races: %d claims and %d orphans", s.raced, s.orphans)
				}
				shared.rows = append(shared.rows, row{sc.name, time.Since(start), outcome, strings.Join(s.notes, "; ")})
			}()
			before, err := s.left() // by a scenario that failed
			s.must(err)
			sc.run(s)
			s.until("clean", func() error {
				left, err := s.left()
				left = slices.DeleteFunc(left, func(what string) bool { return slices.Contains(before, what) })
				return errors.Join(err, some("left behind", left))
			})
			s.must(s.alive())
		})
	}
}

// useTheSecret is the main job: what an application does with what it is given.
func useTheSecret(s *scenario) {
	n := s.tenant("use", classes{})
	s.must(n.ask("photos"))
	n.ready()
	c := n.secret("photos")
	s.must(c.works(s.ctx))

	file := filepath.Join(s.TempDir(), "file")
	s.must(os.WriteFile(file, []byte("from s3cmd"), 0o600))
	at := "s3://" + c.Bucket + "/dir/file"
	s.s3cmd(c, "put", file, at)
	if out := s.s3cmd(c, "ls", "--recursive", "s3://"+c.Bucket); !strings.Contains(out, at) {
		s.Errorf("s3cmd lists %q", out)
	}
	s.s3cmd(c, "get", "--force", at, file+".back")
	if text, err := os.ReadFile(file + ".back"); err != nil || string(text) != "from s3cmd" {
		s.Errorf("s3cmd got %q, %v", text, err)
	}
	s.s3cmd(c, "del", at)
	s.note("Go SDK and s3cmd: put, list, get, delete")

	s.must(n.deleteAccess("photos"))
	s.until("revoked", func() error { return s.refused(c) })
	s.must(n.deleteClaim("photos"))
	n.vanish()
}

// theGuide applies what the guide shows, and uses what comes of it.
func theGuide(s *scenario) {
	s.mayWriteSecrets(driverAccount) // for secretFormat
	tenants := map[string]*tenant{}
	for _, name := range []string{"first", "blue", "green"} {
		tenants[name] = &tenant{s, name, map[string]credentials{}, map[types.UID]state{}}
	}
	blue := tenants["blue"]
	files := s.guide("v1alpha1")
	for _, file := range files {
		if filepath.Base(filepath.Dir(file)) == "existing" && filepath.Base(file) == "bucket.yaml" {
			// The guide adopts a bucket that there is.
			blue.ready()
			archive := "archive"
			_, err := s.operator("team-blue").CreateBucket(s.ctx, &s3.CreateBucketInput{Bucket: &archive})
			s.must(err)
		}
		args := []string{"-f", file}
		if base := filepath.Base(file); filepath.Base(filepath.Dir(file)) == "tenant" && (base == "bucket.yaml" || base == "reader.yaml") {
			args = append(args, "--as", "jane", "--as-group", "team-blue", "--as-group", "system:authenticated") // who has role.yaml, and no more
		}
		s.until("applied: "+file, func() error { return s.apply(s.ctx, args...) })
		if filepath.Base(file) == "bucket.yaml" { // v0.2.2 wants a Bucket to be older than its claim
			s.until("ready", func() error {
				buckets, err := blue.buckets().List(s.ctx, metav1.ListOptions{})
				for _, b := range buckets.Items {
					if b.Spec.ExistingBucketID != "" && !b.Status.BucketReady {
						err = errors.New("the sidecar has not taken the Bucket on")
					}
				}
				return err
			})
		}
	}
	for _, n := range tenants {
		n.ready()
	}
	s.must(tenants["first"].secret("photos").works(s.ctx))
	s.must(blue.secret("archive").works(s.ctx))
	s.must(tenants["green"].secret("photos").works(s.ctx))
	writer, reader := blue.secret("photos"), blue.secret("photos-reader")
	s.must(put(s.ctx, writer.client(), writer.Bucket, "photo"))
	s.must(get(s.ctx, reader.client(), reader.Bucket, "photo"))
	s.must(refusal(put(s.ctx, reader.client(), reader.Bucket, "photo")))
	s.must(refusal(remove(s.ctx, reader.client(), reader.Bucket, "photo")))
	s.must(remove(s.ctx, writer.client(), writer.Bucket, "photo"))
	s.note("%d files, keys used", len(files))
	// Retain, as shown, would keep the bucket, its contract and what the driver knows of them.
	_, err := s.kubectl(s.ctx, "", "patch", "bucket", "archive", "--type", "merge", "--patch", `{"spec": {"deletionPolicy": "Delete"}}`)
	s.must(err)
	for _, n := range tenants {
		n.deleteAll()
		n.vanish()
	}
	_, err = s.kubectl(s.ctx, "", "-n", "green", "delete", "contract", "media")
	s.must(err)
}

func accessFirst(s *scenario) {
	n := s.tenant("access-first", classes{})
	s.must(n.ask("a"))
	s.must(n.access("b", "a"))
	n.ready()
	a, b := n.secret("a"), n.secret("b")
	s.must(a.works(s.ctx))
	s.must(n.deleteAccess("a"))
	s.until("revoked", func() error { return s.refused(a) })
	s.must(b.works(s.ctx)) // the other key is none of its business
	s.must(n.deleteAccess("b"))
	s.until("gone", func() error {
		o, err := n.objects()
		return errors.Join(err, some("accesses left", o.accessNames()))
	})
	s.must(n.deleteClaim("a"))
	n.vanish()
}

func claimFirst(s *scenario) {
	n := s.tenant("claim-first", classes{})
	s.must(n.ask("a"))
	n.ready()
	c := n.secret("a")
	s.must(put(s.ctx, c.client(), c.Bucket, "kept"))
	s.must(n.deleteClaim("a"))
	// A bucket that holds objects stays, and the administrator is told why.
	s.until("told", func() error { return s.described("bucket", c.Bucket, "", "FailedDeleteBucket", "still holds objects") })
	s.note("a bucket with objects is not deleted, and describe says so")
	// The accesses were deleted with the claim. The service's operator empties it.
	operator := s.operator(n.name)
	s.must(get(s.ctx, operator, c.Bucket, "kept"))
	s.must(remove(s.ctx, operator, c.Bucket, "kept"))
	s.must(n.deleteAccess("a"))
	n.vanish()
}

func together(s *scenario) {
	const m = 10
	n := s.tenant("together", classes{parameters: map[string]string{"onDelete": "empty"}})
	s.must(each(m, func(i int) error { return n.ask(numbered(i)) }))
	n.ready()
	for i := range m {
		c := n.secret(numbered(i))
		s.must(put(s.ctx, c.client(), c.Bucket, "x"))
	}
	s.must(each(m, func(i int) error {
		remove := []func(string) error{n.deleteClaim, n.deleteAccess}
		return each(2, func(j int) error { return remove[j](numbered(i)) })
	}))
	n.vanish()
	s.note("%d pairs, their buckets emptied by onDelete", m)
}

// byForce takes an access away without the sidecar's knowledge, as its races do
// too: the key goes with the bucket, and a neighbour keeps the contract alive.
func byForce(s *scenario) {
	n := s.tenant("force", classes{})
	s.must(errors.Join(n.ask("a"), n.ask("b")))
	n.ready()
	a, b := n.secret("a"), n.secret("b")
	access, err := n.accesses().Get(s.ctx, "a", metav1.GetOptions{})
	s.must(err)
	s.must(n.release(access))
	s.must(n.deleteAccess("a"))
	s.must(a.works(s.ctx)) // no one could revoke it
	before, err := s.listed("/v1/contracts/force/keys")
	s.must(err)
	s.must(n.deleteClaim("a"))
	s.until("revoked", func() error {
		keys, err := s.listed("/v1/contracts/force/keys")
		if err == nil && len(keys) != len(before)-1 {
			err = fmt.Errorf("the contract has the keys %v", keys)
		}
		return errors.Join(err, s.refused(a))
	})
	s.must(b.works(s.ctx))
	n.deleteAll()
	n.vanish()
}

// retain: the bucket outlives its claim, and comes back with its data.
func retain(s *scenario) {
	n := s.tenant("retain", classes{policy: v1alpha1.DeletionPolicyRetain})
	s.must(n.ask("a"))
	n.ready()
	c := n.secret("a")
	s.must(put(s.ctx, c.client(), c.Bucket, "precious"))
	s.must(n.deleteAccess("a"))
	s.until("revoked", func() error { return s.refused(c) })
	s.must(n.deleteClaim("a"))
	n.vanish()
	s.must(get(s.ctx, s.operator(n.name), c.Bucket, "precious"))

	n.existing(c.Bucket, "again", v1alpha1.DeletionPolicyDelete)
	s.must(n.claim("again", c.Bucket))
	s.must(n.access("again", "again"))
	n.ready()
	again := n.secret("again")
	s.must(get(s.ctx, again.client(), again.Bucket, "precious"))
	s.must(remove(s.ctx, again.client(), again.Bucket, "precious"))
	s.note("retained with its data, taken on again, then deleted")
	s.must(n.deleteAccess("again"))
	s.until("revoked", func() error { return s.refused(again) })
	s.must(n.deleteClaim("again"))
	n.vanish()
}

// existingBucket: someone else made the bucket, and keeps it.
func existingBucket(s *scenario) {
	n := s.tenant("existing", classes{})
	s.must(n.claim("first", "")) // which signs the contract
	n.ready()
	operator, bucket := s.operator(n.name), "made-by-hand"
	_, err := operator.CreateBucket(s.ctx, &s3.CreateBucketInput{Bucket: &bucket})
	s.must(err)
	s.must(put(s.ctx, operator, bucket, "old"))

	n.existing(bucket, "second", v1alpha1.DeletionPolicyDelete)
	s.must(n.claim("second", bucket))
	s.must(n.access("second", "second"))
	n.ready()
	c := n.secret("second")
	s.must(get(s.ctx, c.client(), bucket, "old"))
	s.must(c.works(s.ctx))
	s.must(remove(s.ctx, c.client(), bucket, "old"))
	s.must(n.deleteAccess("second"))
	s.until("revoked", func() error { return s.refused(c) })
	s.must(n.deleteClaim("second"))
	s.must(n.deleteClaim("first"))
	n.vanish()
}

func twoTenants(s *scenario) {
	one, two := s.tenant("tenant-one", classes{}), s.tenant("tenant-two", classes{})
	s.must(errors.Join(one.ask("a"), two.ask("a"), two.ask("b")))
	one.ready()
	two.ready()
	keys := map[string]credentials{"one": one.secret("a"), "two": two.secret("a"), "two, b": two.secret("b")}
	for name, c := range keys {
		s.must(put(s.ctx, c.client(), c.Bucket, "mine"))
		for other, o := range keys {
			if name == other {
				continue
			}
			s3c := o.client()
			_, listed := list(s.ctx, s3c, c.Bucket)
			_, deleted := s3c.DeleteBucket(s.ctx, &s3.DeleteBucketInput{Bucket: &c.Bucket})
			for what, err := range map[string]error{
				"list": listed, "get": get(s.ctx, s3c, c.Bucket, "mine"), "put": put(s.ctx, s3c, c.Bucket, "theirs"),
				"delete": remove(s.ctx, s3c, c.Bucket, "mine"), "delete the bucket": deleted,
			} {
				if err := refusal(err); err != nil {
					s.Errorf("%s of the bucket of %s with the key of %s: %v", what, name, other, err)
				}
			}
		}
	}
	for _, c := range keys {
		s.must(get(s.ctx, c.client(), c.Bucket, "mine"))
		s.must(remove(s.ctx, c.client(), c.Bucket, "mine"))
	}
	s.note("3 keys, 5 requests each to each other's bucket, all refused")
	for _, n := range []*tenant{one, two} {
		n.deleteAll()
		n.vanish()
	}
}

func hundred(s *scenario) {
	const m = 100
	n := s.tenant("hundred", classes{})
	start := time.Now()
	s.must(each(m, func(i int) error { return n.ask(numbered(i)) }))
	n.ready()
	s.note("all granted after %.1f s", time.Since(start).Seconds())
	n.useAll(m)
	n.deleteAll()
	n.vanish()
}

// oneByOne makes claims one after the other, while controller and sidecar are slow
// enough to meet in a claim's status. No claim is cured here as by heal.
func oneByOne(s *scenario) {
	const m = 100
	s.slow("40")
	defer s.slow(fast)
	n := s.tenant("one-by-one", classes{})
	start := time.Now()
	for i := range m {
		s.must(n.claim(numbered(i), ""))
	}
	s.until("ready", func() error {
		o, err := n.objects()
		if err != nil {
			return err
		}
		var waiting []string
		for i := range o.claims {
			c := &o.claims[i]
			if b := o.bucketOf(c); !c.Status.BucketReady || c.Status.BucketName != b.Name || !b.Status.BucketReady || len(c.Finalizers) == 0 {
				waiting = append(waiting, fmt.Sprintf("%s is %+v with finalizers %v; its Bucket is %+v", c.Name, c.Status, c.Finalizers, b.Status))
			}
		}
		return some("not ready", waiting)
	})
	s.note("all ready after %.1f s", time.Since(start).Seconds())
	n.deleteAll()
	n.vanish()
}

// oneSecret: two accesses with one Secret would be granted, and wedge each other.
func oneSecret(s *scenario) {
	n := s.tenant("one-secret", classes{})
	s.must(n.ask("a"))
	n.ready()
	foreign := &v1alpha1.BucketAccessClass{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, DriverName: "other.example.com", AuthenticationType: v1alpha1.AuthenticationTypeKey}
	_, err := s.cosi.ObjectstorageV1alpha1().BucketAccessClasses().Create(s.ctx, foreign, metav1.CreateOptions{})
	s.must(err)
	for _, of := range []struct{ class, secret, says string }{
		{n.name, "c", "has to be the name of the BucketAccess, b"},
		{foreign.Name, "a", "is that of BucketAccess a"},
	} {
		_, err := n.accesses().Create(s.ctx, &v1alpha1.BucketAccess{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1alpha1.BucketAccessSpec{
			BucketClaimName: "a", BucketAccessClassName: of.class, CredentialsSecretName: of.secret, Protocol: v1alpha1.ProtocolS3,
		}}, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), of.says) {
			s.Errorf("an access of class %s: the API server says %v, not %q", of.class, err, of.says)
		}
	}
	n.deleteAll()
	n.vanish()
}

// secretsHere gives the sidecar its right to Secrets in one namespace only, as
// sidecar.secretNamespaces does.
func secretsHere(s *scenario) {
	n := s.tenant("secrets-here", classes{})
	roles := s.kube.RbacV1()
	everywhere, err := roles.ClusterRoles().Get(s.ctx, sidecarAccount, metav1.GetOptions{})
	s.must(err)
	less := everywhere.DeepCopy()
	less.Rules = slices.DeleteFunc(less.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "secrets") })
	here := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "secrets"}, Rules: slices.DeleteFunc(slices.Clone(everywhere.Rules), func(r rbacv1.PolicyRule) bool {
		return !slices.Contains(r.Resources, "secrets")
	})}
	_, err = roles.Roles(n.name).Create(s.ctx, here, metav1.CreateOptions{})
	s.must(err)
	_, err = roles.RoleBindings(n.name).Create(s.ctx, &rbacv1.RoleBinding{
		ObjectMeta: here.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: here.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: driverNamespace, Name: sidecarAccount}},
	}, metav1.CreateOptions{})
	s.must(err)
	less, err = roles.ClusterRoles().Update(s.ctx, less, metav1.UpdateOptions{})
	s.must(err)
	defer func() {
		less.Rules = everywhere.Rules
		_, err := roles.ClusterRoles().Update(s.ctx, less, metav1.UpdateOptions{})
		s.must(err)
	}()
	s.until("limited", func() error {
		for namespace, may := range map[string]bool{n.name: true, driverNamespace: false} {
			review, err := s.kube.AuthorizationV1().SubjectAccessReviews().Create(s.ctx, &authv1.SubjectAccessReview{Spec: authv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + driverNamespace + ":" + sidecarAccount,
				ResourceAttributes: &authv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "secrets"},
			}}, metav1.CreateOptions{})
			if err != nil || review.Status.Allowed != may {
				return fmt.Errorf("the sidecar may write Secrets in %s: %v, %w", namespace, !may, err)
			}
		}
		return nil
	})
	s.must(n.ask("a"))
	n.ready()
	s.must(n.secret("a").works(s.ctx))
	n.deleteAll()
	n.vanish()
}

// rotated runs the commands of operations.md, and its old key lives for the grace.
func rotated(s *scenario) {
	s.mayWriteSecrets(driverAccount)
	n := s.tenant("rotated", classes{})
	s.must(n.ask("photos"))
	n.ready()
	before := n.secret("photos")
	_, commands, found := strings.Cut(s.commands("Rotate keys"), "driver() {")
	if !found {
		s.Fatal("operations.md does not say how a key is rotated")
	}
	_, commands, _ = strings.Cut(commands, "\n") // the first line runs the driver in a pod
	file := filepath.Join(s.dir, "driver.yaml")
	commands = fmt.Sprintf("driver() { %s \"$@\" --config %s; }\n", s.build.Driver, file) + strings.ReplaceAll(commands, "team-blue", n.name)
	rotating := exec.CommandContext(s.ctx, "bash", "-eux", "-o", "pipefail", "-c", commands)
	rotating.Env = append(os.Environ(), "PATH="+s.bin+":"+os.Getenv("PATH"), "KUBECONFIG="+s.kubeconfig)
	out, err := rotating.CombinedOutput()
	if err != nil {
		s.Fatalf("%v\n%s", err, out)
	}
	after := n.secret("photos")
	if after == before {
		s.Errorf("the Secret has the key that it had:\n%s", out)
	}
	s.must(before.works(s.ctx))
	s.must(after.works(s.ctx))
	n.deleteAll()
	n.vanish()
	s.must(s.refused(before))
}

// commands are those of a section of operations.md.
func (s *scenario) commands(section string) string {
	s.Helper()
	blocks, err := guide.Of(filepath.Dir(deployDir), guide.Node)
	s.must(err)
	for _, b := range blocks {
		if b.Page == "deploy/operations.md" && b.Section == section {
			return b.Text
		}
	}
	s.Fatalf("operations.md has no commands in the section %q", section)
	return ""
}

// journalMoved copies the journal as operations.md says, and compares.
func journalMoved(s *scenario) {
	const to = "moved-journal"
	n := s.tenant("moved", classes{})
	s.must(n.ask("a"))
	n.ready()
	const begin = "kubectl -n contract-cosi-system get secrets "
	_, command, found := strings.Cut(s.commands("Move the journal to a namespace of its own"), begin)
	command, _, _ = strings.Cut(command, "\n")
	if !found {
		s.Fatal("operations.md does not say how a journal is copied")
	}
	command = strings.NewReplacer(journalNamespace, to, driverNamespace, journalNamespace).Replace(begin + command)
	s.label(s.cluster, to, nil)
	copying := exec.CommandContext(s.ctx, "bash", "-euo", "pipefail", "-c", command)
	copying.Env = append(os.Environ(), "PATH="+s.bin+":"+os.Getenv("PATH"), "KUBECONFIG="+s.kubeconfig)
	if out, err := copying.CombinedOutput(); err != nil {
		s.Fatalf("%s: %v\n%s", command, err, out)
	}
	records := func(namespace string) map[string]v1.Secret {
		list, err := s.kube.CoreV1().Secrets(namespace).List(s.ctx, metav1.ListOptions{})
		s.must(err)
		out := map[string]v1.Secret{}
		for _, r := range list.Items {
			out[r.Name] = v1.Secret{Type: r.Type, Data: r.Data, ObjectMeta: metav1.ObjectMeta{Labels: r.Labels, Annotations: r.Annotations}}
		}
		return out
	}
	if was, is := records(journalNamespace), records(to); len(was) == 0 || !reflect.DeepEqual(was, is) {
		s.Errorf("of %d records %d were copied, or otherwise", len(was), len(is))
	}
	s.must(s.kube.CoreV1().Secrets(to).DeleteCollection(s.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	n.deleteAll()
	n.vanish()
}

// throttled runs upstream as it is released: with client-go's default of 5
// requests a second.
func throttled(s *scenario) {
	s.slow("0")
	defer s.slow(fast)
	n := s.tenant("throttled", classes{})
	s.must(each(5, func(i int) error { return n.ask(numbered(i)) }))
	n.ready()
	n.useAll(5)
	n.deleteAll()
	n.vanish()
}

// slow starts controller and sidecar again with another rate limit.
func (s *scenario) slow(qps string) {
	s.Helper()
	for _, role := range []string{"controller", "sidecar"} {
		s.kill(role)
		s.must(s.startCOSI(role, qps))
	}
}

func driverKilled(s *scenario) {
	s.disturbed("driver-killed", 3, func() { s.kill("driver") }, s.startDriver)
}

func sidecarKilled(s *scenario) {
	s.disturbed("sidecar-killed", 3, func() { s.kill("sidecar") }, func() error { return s.startCOSI("sidecar", fast) })
}

func apiServerRestarted(s *scenario) {
	// Once: client-go comes back to an API server only after half a minute or so.
	s.disturbed("apiserver-restarted", 1, func() { s.kill("apiserver") }, s.restartAPIServer)
}

func contractdDown(s *scenario) {
	unavailable := func() float64 {
		n, err := s.metric("contract_cosi_rpc_duration_seconds_count", `code="Unavailable"`)
		s.must(err)
		return n
	}
	var before float64
	down := func() {
		before = unavailable()
		s.kill("contractd")
	}
	s.disturbed("contractd-down", 3, down, func() error {
		s.until("noticed", func() error {
			if unavailable() <= before {
				return errors.New("no call has failed with Unavailable")
			}
			return nil
		})
		return s.startContractd()
	})
}

// disturbed asks for many buckets and keys and deletes them again. So many times
// in the middle of either a part is taken away, asked for more, and given back.
func (s *scenario) disturbed(name string, times int, take func(), giveBack func() error) {
	const half = 5
	m := times * 2 * half
	n := s.tenant(name, classes{})
	disturb := func(work func(i int) error, done func(objects) int) {
		for i := range times {
			first := i * 2 * half
			var g errgroup.Group
			g.Go(func() error { return each(half, func(j int) error { return work(first + j) }) })
			s.until("in flight", func() error {
				o, err := n.objects()
				if err == nil {
					err = n.heal(o)
				}
				if got := done(o); err == nil && got <= first {
					err = fmt.Errorf("%d done", got)
				}
				return err
			})
			take()
			g.Go(func() error {
				return each(half, func(j int) error { return s.insist(func() error { return work(first + half + j) }) })
			})
			s.must(giveBack())
			s.must(g.Wait())
		}
	}
	disturb(func(i int) error { return n.ask(numbered(i)) }, func(o objects) int {
		granted := 0
		for _, a := range o.accesses {
			if a.Status.AccessGranted {
				granted++
			}
		}
		return granted
	})
	n.ready()
	n.useAll(m)
	disturb(func(i int) error { return n.deleteAccess(numbered(i)) }, func(o objects) int { return m - len(o.accesses) })
	n.deleteAll()
	n.vanish()
	s.note("%d times, %d claims and accesses", 2*times, m)
}

// badParameters: who applies a class with a mistake is told at once. Where the
// policies are not installed, who uses the class reads what the driver says.
func badParameters(s *scenario) {
	const bucketText = `BucketClass parameters: "versionin" is unknown; `
	const accessText = `BucketAccessClass parameters: "acces" is unknown; `
	manifests := fmt.Sprintf(`apiVersion: objectstorage.k8s.io/v1alpha1
kind: BucketClass
metadata: {name: bad-bucket}
driverName: %[1]s
deletionPolicy: Delete
parameters: {contract: bad-bucket, versionin: Enabled}
---
apiVersion: objectstorage.k8s.io/v1alpha1
kind: BucketAccessClass
metadata: {name: bad-access}
driverName: %[1]s
authenticationType: Key
parameters: {acces: ReadOnly}
`, driverName)
	_, err := s.kubectl(s.ctx, manifests, "apply", "--validate=strict", "-f", "-")
	for _, text := range []string{bucketText + "known are abortUploadsAfterDays, acl, ", accessText + "known are access, actions, "} {
		if err == nil || !strings.Contains(err.Error(), text) {
			s.Errorf("kubectl apply says %v, not %s", err, text)
		}
	}
	for _, of := range []string{"bucketclasses", "bucketaccessclasses"} {
		_, err := s.kubectl(s.ctx, "", "delete", "validatingadmissionpolicybinding", release+"-"+of)
		s.must(err)
	}
	defer func() {
		s.must(s.apply(s.ctx, "-f", filepath.Join(deployDir, "manifests", "v1alpha1", "admission-parameters.yaml")))
		s.must(s.enforced(s.ctx, "v1alpha1"))
	}()
	s.until("without policies", func() error {
		_, err := s.kubectl(s.ctx, manifests, "apply", "--dry-run=server", "-f", "-")
		return err
	})

	bucket := s.tenant("bad-bucket", classes{parameters: map[string]string{"versionin": "Enabled"}})
	s.must(bucket.claim("a", ""))
	s.until("told", func() error {
		o, err := bucket.objects()
		if err != nil || len(o.claims) != 1 {
			return err
		}
		return errors.Join(
			s.described("bucket", "bucket-"+string(o.claims[0].UID), "", "FailedCreateBucket", bucketText+"did you mean versioning?"),
			s.described("bucketclaim", "a", "bad-bucket", "CreateBucketFailed", driverName, bucketText+"did you mean versioning?"), // where the team looks
		)
	})
	access := s.tenant("bad-access", classes{access: map[string]string{"acces": "ReadOnly"}})
	s.must(access.ask("a"))
	s.until("told", func() error {
		o, err := access.objects()
		if err == nil {
			err = access.heal(o)
		}
		return errors.Join(err, s.described("bucketaccess", "a", "bad-access", "FailedGrantAccess", "GrantBucketAccessFailed", accessText+"did you mean access?"))
	})
	s.note("refused by apply; without the policies describe shows the driver's text")
	for _, t := range []*tenant{bucket, access} {
		t.deleteAll()
		t.vanish()
	}
}

// described is nil if kubectl describe shows all the texts.
func (s *scenario) described(kind, name, namespace string, texts ...string) error {
	args := []string{"describe", kind, name}
	if namespace != "" {
		args = append(args, "--namespace", namespace)
	}
	out, err := s.kubectl(s.ctx, "", args...)
	if err != nil {
		return err
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			return fmt.Errorf("kubectl describe %s %s does not say %q but:\n%s", kind, name, text, out)
		}
	}
	return nil
}

// operator is an S3 client with a key of a contract itself, which the driver
// knows nothing of.
func (s *scenario) operator(contract string) *s3.Client {
	s.Helper()
	var issued struct {
		Key             struct{ AccessKeyID string }
		SecretAccessKey string
	}
	code, err := s.api(http.MethodPut, "/v1/contracts/"+contract+"/keys/operator", `{"spec":{"slot":"operator"}}`, &issued)
	if err != nil || code != http.StatusCreated {
		s.Fatalf("operator's key: HTTP %d, %v", code, err)
	}
	return harness.S3(s.contractd.S3, "us-east-1", issued.Key.AccessKeyID, issued.SecretAccessKey)
}

// useAll uses the first m keys, which have to be m.
func (n *tenant) useAll(m int) {
	n.Helper()
	different := map[string]bool{}
	var all []credentials
	for i := range m {
		c := n.secret(numbered(i))
		different[c.AccessKeyID+" "+c.Bucket] = true
		all = append(all, c)
	}
	if len(different) != m {
		n.Errorf("%d different keys and buckets, want %d", len(different), m)
	}
	n.must(each(m, func(i int) error { return all[i].works(n.ctx) }))
}

// deleteAll deletes all accesses, waits for their end, and deletes all claims.
func (n *tenant) deleteAll() {
	n.Helper()
	o, err := n.objects()
	n.must(err)
	n.must(each(len(o.accesses), func(i int) error { return n.deleteAccess(o.accesses[i].Name) }))
	n.until("gone", func() error {
		o, err := n.objects()
		return errors.Join(err, some("accesses left", o.accessNames()))
	})
	n.must(each(len(o.claims), func(i int) error { return n.deleteClaim(o.claims[i].Name) }))
}

// insist repeats a request while the API server is away.
func (s *scenario) insist(do func() error) error {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// each does something m times at once.
func each(m int, do func(int) error) error {
	var g errgroup.Group
	for i := range m {
		g.Go(func() error { return do(i) })
	}
	return g.Wait()
}

func numbered(i int) string { return fmt.Sprintf("n-%03d", i) }
