package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	v1 "k8s.io/api/core/v1"
	kubeerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/container-object-storage-interface/client/apis/objectstorage/v1alpha1"

	api "github.com/contract-cosi/contract-cosi-driver/pkg/apis/v1alpha1"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// Policies that settings give.
const (
	noACLs     = `{"Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:PutObjectAcl","Resource":"arn:aws:s3:::${bucket}/*"}]}`
	noDeletion = `{"Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:DeleteObject","Resource":"arn:aws:s3:::${bucket}/*"}]}`
	toAll      = `{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::${bucket}/*"}]}`
)

// team is a namespace with a Contract, a claim under it, and settings of that.
type team struct {
	*orders
	contract, bucketClass string
	client                *s3.Client // with the contract's rights
}

// team orders a Contract and claims a bucket, photos.
func (s *scenario) team(name string) *team {
	s.Helper()
	o := s.orders(name)
	o.order("media", ", reclaimPolicy: Delete")
	o.wait("media", "Ready")
	c := o.get("media")
	t := &team{o, c.Status.Contract, c.Status.BucketClasses[0].Name, s.operator(c.Status.Contract)}
	t.claim("photos")
	return t
}

// claim asks for a bucket and waits for it.
func (t *team) claim(name string) (bucket string) {
	t.Helper()
	claims := t.cosi.ObjectstorageV1alpha1().BucketClaims(t.namespace)
	t.until("claimed", func() error {
		_, err := claims.Create(t.ctx, &v1alpha1.BucketClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.BucketClaimSpec{
			BucketClassName: t.bucketClass, Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolS3},
		}}, metav1.CreateOptions{})
		return made(err)
	})
	t.until("bound", func() error {
		claim, err := claims.Get(t.ctx, name, metav1.GetOptions{})
		if err != nil || !claim.Status.BucketReady {
			return fmt.Errorf("not ready, %w", err)
		}
		bucket = claim.Status.BucketName
		return nil
	})
	return bucket
}

// unclaim deletes all claims that there are and waits for the end of their buckets.
func (t *team) unclaim(names ...string) {
	t.Helper()
	_, err := t.kubectl(t.ctx, "", append([]string{"-n", t.namespace, "delete", "bucketclaim", "--wait=false"}, names...)...)
	t.must(err)
	t.tenant().vanish()
}

// tenant is the team as COSI has it.
func (t *team) tenant() *tenant {
	return &tenant{t.scenario, t.namespace, nil, map[types.UID]state{}}
}

// manifest is a BucketSettings; spec is in YAML's flow style.
func (t *team) manifest(name, claim, spec string) string {
	return fmt.Sprintf("apiVersion: contract-cosi.github.io/v1alpha1\nkind: BucketSettings\nmetadata: {name: %s, namespace: %s}\nspec: {bucketClaimName: %s%s}\n", name, t.namespace, claim, spec)
}

func (t *team) set(name, claim, spec string) error {
	_, err := t.kubectl(t.ctx, t.manifest(name, claim, spec), "apply", "--validate=strict", "-f", "-")
	return err
}

// settles applies settings and waits until they are there.
func (t *team) settles(name, claim, spec string) *api.BucketSettings {
	t.Helper()
	t.must(t.set(name, claim, spec))
	return t.comes(name, api.Ready, metav1.ConditionTrue, "")
}

// comes waits for a condition of the newest generation, with a text in it.
func (t *team) comes(name, condition string, is metav1.ConditionStatus, says string) *api.BucketSettings {
	t.Helper()
	var out *api.BucketSettings
	t.until(fmt.Sprintf("%s=%s %q", condition, is, says), func() error {
		out = t.bucketSettings(name)
		for _, c := range out.Status.Conditions {
			if c.Type == condition && c.Status == is && c.ObservedGeneration == out.Generation && strings.Contains(c.Reason+": "+c.Message, says) {
				return nil
			}
		}
		return fmt.Errorf("%+v", out.Status)
	})
	return out
}

func (t *team) bucketSettings(name string) *api.BucketSettings {
	t.Helper()
	out, err := t.own.BucketSettings(t.namespace).Get(t.ctx, name, metav1.GetOptions{})
	t.must(err)
	return out
}

func (t *team) unset(name string) {
	t.Helper()
	_, err := t.kubectl(t.ctx, "", "-n", t.namespace, "delete", "bucketsettings", name, "--timeout=10s")
	t.must(err)
}

// at is what the service has of a bucket, in a few words.
func (t *team) at(bucket string) (out string, err error) {
	policy, err := t.client.GetBucketPolicy(t.ctx, &s3.GetBucketPolicyInput{Bucket: &bucket})
	if err == nil {
		out += strings.ReplaceAll(aws.ToString(policy.Policy), bucket, "BUCKET") // whose name may hold any text
	} else if !strings.Contains(err.Error(), "NoSuchBucketPolicy") {
		return "", err
	}
	versioning, err := t.client.GetBucketVersioning(t.ctx, &s3.GetBucketVersioningInput{Bucket: &bucket})
	if err != nil {
		return "", err
	}
	out += " versioning=" + string(versioning.Status)
	tags, err := t.client.GetBucketTagging(t.ctx, &s3.GetBucketTaggingInput{Bucket: &bucket})
	if err != nil {
		return "", err
	}
	for _, tag := range tags.TagSet {
		out += " " + aws.ToString(tag.Key) + "=" + aws.ToString(tag.Value)
	}
	return out, nil
}

// has waits until the service has all of some texts of a bucket, and none that begins
// with !.
func (t *team) has(bucket string, texts ...string) {
	t.Helper()
	t.until("at the service", func() error {
		have, err := t.at(bucket)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if text, not := strings.CutPrefix(text, "!"); strings.Contains(have, text) == not {
				return fmt.Errorf("%q: %s", text, have)
			}
		}
		return nil
	})
}

// bucketSettings is the story of a team.
func bucketSettings(s *scenario) {
	t := s.team("settings-blue")
	bucket := t.claim("photos")

	// What the schema sees is refused at once.
	for spec, says := range map[string]string{
		", versioning: Sometimes":                                  "versioning",
		", acl: private, grantRead: [id=a]":                        "acl and a grant exclude each other",
		", grantRead: ['id=a,id=b']":                               "grantRead",
		", tags: {'aws:x': 'y'}":                                   "reserved",
		", tags: {a: 'b,c'}":                                       "comma",
		", corsMethods: [GET]":                                     "corsMethods needs corsOrigins",
		", objectLock: Enabled, versioning: Suspended":             "contradict",
		", lifecycle: '{\"Rules\":[]}', expireAfterDays: 3":        "exclude each other",
		", acl: public-read, blockPublicAccess: [BlockPublicAcls]": "contradict",
	} {
		if err := t.set("photos", "photos", spec); err == nil || !strings.Contains(err.Error(), says) {
			s.Errorf("%s: %v", spec, err)
		}
	}

	first := ", policy: '" + noACLs + "', versioning: Enabled, tags: {cost: '1'}, corsOrigins: ['https://a.example.com']"
	got := t.settles("photos", "photos", first)
	t.has(bucket, "PutObjectAcl", "versioning=Enabled", "cost=1")
	if now := got.Status.Now; now == nil || now.Versioning != "Enabled" || now.Tags["cost"] != "1" || len(now.Tags) != 1 || !strings.Contains(now.Policy, bucket) ||
		!strings.Contains(now.CORS, "a.example.com") || len(now.PublicBy) > 0 || got.Status.Bucket != "main."+t.contract+"."+bucket {
		s.Errorf("its status is %+v", got.Status)
	}
	table, err := s.kubectl(s.ctx, "", "-n", t.namespace, "get", "bucketsettings", "-o", "wide")
	s.must(err)
	if head := strings.Join(strings.Fields(strings.SplitN(table, "\n", 2)[0]), " "); head != "NAME CLAIM ACCEPTED READY IN SYNC AGE BUCKET ACL POLICY PUBLIC BY VERSIONING LOCK LIFECYCLE CORS USED QUOTA TAGS REASON" {
		s.Errorf("kubectl prints\n%s", table)
	}
	// No default is written into what a team has applied.
	if _, err := t.kubectl(s.ctx, t.manifest("photos", "photos", first), "diff", "-f", "-"); err != nil {
		s.Errorf("kubectl diff: %v", err)
	}
	_, err = t.kubectl(s.ctx, t.manifest("photos", "photos", ", versioning: Suspended"), "diff", "-f", "-")
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		s.Errorf("kubectl diff of a change: %v", err)
	}

	// The bucket follows each change.
	t.settles("photos", "photos", ", policy: '"+noDeletion+"', tags: {other: '2'}")
	t.has(bucket, "!PutObjectAcl", "DeleteObject", "versioning=Suspended", "!cost", "other=2")
	got = t.settles("photos", "photos", ", policy: '"+noDeletion+"', tags: {other: '2'}, maxBytes: 1048576")
	if now := got.Status.Now; now.Quota != "1048576 bytes, 0 objects" || now.Usage == nil {
		s.Errorf("with a quota it is %+v", now)
	}
	t.comes("photos", api.InSync, metav1.ConditionTrue, "versioning is suspended")

	// A policy that only the driver can judge, and one that the contract does not allow.
	for policy, says := range map[string]string{
		`{"Statement":[{"Effect":"Maybe"}]}`: "Invalid: BucketSettings parameters: policy",
		toAll:                                "NotAllowed: contract " + t.contract + " does not allow it: guard.refusePublic",
		`{"Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"*"}]}`: "may lock the driver out",
	} {
		s.must(t.set("photos", "photos", ", policy: '"+policy+"', tags: {third: '3'}"))
		start := time.Now()
		t.comes("photos", api.Accepted, metav1.ConditionFalse, says)
		if took := time.Since(start); took > 2*time.Second {
			s.note("a policy was refused after %.1f s", took.Seconds())
		}
		t.has(bucket, "DeleteObject", "other=2", "!third")
	}
	// What the class allows later is accepted then.
	s.must(t.set("photos", "photos", ", policy: '"+toAll+"', tags: {third: '3'}"))
	t.comes("photos", api.Accepted, metav1.ConditionFalse, "refusePublic")
	_, err = s.kubectl(s.ctx, "", "patch", "contractclass", t.class, "--type=merge", "-p", `{"spec":{"guard":{"refusePublic":false}}}`)
	s.must(err)
	got = t.comes("photos", api.Ready, metav1.ConditionTrue, "")
	if strings.Join(got.Status.Now.PublicBy, ",") != "policy" {
		s.Errorf("a public bucket: %+v", got.Status.Now)
	}
	t.has(bucket, "GetObject", "third=3")

	// The older of two counts, and then the other.
	t.settles("photos", "photos", ", tags: {third: '3'}")
	s.pass(time.Second) // creation times have no parts of a second
	s.must(t.set("also", "photos", ", tags: {also: '4'}"))
	t.comes("also", api.Accepted, metav1.ConditionFalse, "ClaimTaken")
	t.has(bucket, "third=3", "!also")
	t.unset("photos")
	t.comes("also", api.Ready, metav1.ConditionTrue, "")
	t.has(bucket, "also=4", "!third")
	t.unset("also")
	t.has(bucket, "!also", "!PutObjectAcl", "!GetObject")

	// No settings reach a bucket of another namespace, nor one that is not there.
	red := s.orders("settings-red")
	other := &team{orders: red}
	s.must(other.set("photos", "photos", ", tags: {red: '1'}"))
	other.comes("photos", api.Ready, metav1.ConditionFalse, "NoSuchClaim")
	other.unset("photos")

	t.unclaim("photos")
	t.delete("media")
}

// settingsInTrouble are BucketSettings whose driver, service or claim goes away.
func settingsInTrouble(s *scenario) {
	t := s.team("settings-trouble")
	bucket := t.claim("photos")
	t.settles("photos", "photos", ", versioning: Enabled, tags: {a: '1'}")

	// A driver that starts with nothing to do writes nothing, anywhere.
	version := t.bucketSettings("photos").ResourceVersion
	restart := func() {
		s.must(s.startDriver())
		s.kill("sidecar")
		s.must(s.startCOSI("sidecar", fast))
	}
	s.kill("driver")
	restart()
	s.until("looked at", func() error {
		n, err := s.metric("contract_cosi_object_calls_total", `call="get"`)
		if err == nil && n < 1 {
			err = errors.New("the Bucket of the claim was not asked for")
		}
		return err
	})
	if now := t.bucketSettings("photos").ResourceVersion; now != version {
		s.Errorf("its status was written: %s, and %s before", now, version)
	}
	if puts, err := s.metric("contract_cosi_backend_calls_total", `operation="PutBucket`); err == nil && puts > 0 {
		s.Errorf("a driver that had nothing to do made %v calls that change a bucket", puts)
	}

	// Killed in the middle of changes.
	for i := range 4 {
		s.must(t.set("photos", "photos", fmt.Sprintf(", versioning: Enabled, tags: {b%d: '%d'}, policy: '%s'", i, i, []string{noACLs, noDeletion}[i%2])))
		s.pass(time.Duration(i*i) * 10 * time.Millisecond)
		s.kill("driver")
		restart()
	}
	t.comes("photos", api.Ready, metav1.ConditionTrue, "")
	t.has(bucket, "DeleteObject", "!PutObjectAcl", "b3=3", "!b2", "!b1", "!a=1")

	// Changed and deleted while no driver runs.
	s.kill("driver")
	t.unset("photos")
	restart()
	t.has(bucket, "!b3", "!DeleteObject", "versioning=Suspended")
	s.until("told at the claim", func() error {
		text, err := s.kubectl(s.ctx, "", "-n", t.namespace, "get", "events", "-o", "jsonpath={.items[*].message}")
		if err == nil && !strings.Contains(text, "the bucket is as its class says; versioning is suspended") {
			err = errors.New(text)
		}
		return err
	})

	// Changed and deleted while the service is away.
	t.settles("photos", "photos", ", tags: {c: '1'}")
	s.kill("contractd")
	s.must(t.set("photos", "photos", ", tags: {d: '1'}"))
	t.comes("photos", api.InSync, metav1.ConditionUnknown, "Unavailable")
	s.must(s.startContractd())
	t.comes("photos", api.InSync, metav1.ConditionTrue, "")
	t.has(bucket, "d=1", "!c=1")
	s.kill("contractd")
	t.unset("photos")
	s.must(s.startContractd())
	t.has(bucket, "!d=1")

	// Changed by hand at the service: the next look, or drift, tells; a repeat repairs.
	t.settles("photos", "photos", ", tags: {e: '1'}")
	_, err := t.client.PutBucketVersioning(s.ctx, &s3.PutBucketVersioningInput{Bucket: &bucket, VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatusEnabled}})
	s.must(err)
	t.settles("photos", "photos", ", tags: {e: '1'}, versioning: Suspended")
	t.has(bucket, "versioning=Suspended", "e=1")

	// A claim that is re-created has another bucket, which gets the settings.
	t.unclaim("photos")
	t.comes("photos", api.Ready, metav1.ConditionFalse, "NoSuchClaim")
	again := t.claim("photos")
	got := t.comes("photos", api.Ready, metav1.ConditionTrue, "")
	if again == bucket || !strings.HasSuffix(got.Status.Bucket, again) {
		s.Errorf("the claim has %s, after %s, and the settings are for %s", again, bucket, got.Status.Bucket)
	}
	t.has(again, "e=1")

	t.unclaim("photos")
	t.unset("photos")
	t.delete("media")
}

// ownKey is the contract's own key in a Secret, where the class and the driver's rights
// allow it.
func ownKey(s *scenario) {
	o := s.orders("order-key")
	const spec = ", reclaimPolicy: Delete, keySecretName: own"
	o.order("media", spec)
	o.wait("media", "Accepted=False")
	if text := o.show("media"); !strings.Contains(text, "reason: KeyNotAllowed") {
		s.Errorf("a class that exposes no keys: %s", text)
	}
	_, err := s.kubectl(s.ctx, "", "patch", "contractclass", o.class, "--type=merge", "-p", `{"spec":{"exposeKeys":true}}`)
	s.must(err)
	o.wait("media", "Accepted")
	o.wait("media", "Ready=False")
	if text := o.show("media"); !strings.Contains(text, "contracts.keyNamespaces") {
		s.Errorf("without the right: %s", text)
	}
	secrets := s.kube.CoreV1().Secrets(o.namespace)
	foreign := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Data: map[string][]byte{"password": []byte("x")}}
	_, err = secrets.Create(s.ctx, foreign, metav1.CreateOptions{})
	s.must(err)
	for _, args := range [][]string{
		{"create", "role", "keys", "--verb=get,create,update,delete", "--resource=secrets"},
		{"create", "rolebinding", "keys", "--role=keys", "--serviceaccount=" + driverNamespace + ":" + driverAccount},
	} {
		_, err := s.kubectl(s.ctx, "", append([]string{"-n", o.namespace}, args...)...)
		s.must(err)
	}
	o.order("media", spec+", displayName: again") // or it would be looked at after a minute
	s.until("told that the Secret is another's", func() error {
		if text := o.show("media"); !strings.Contains(text, "the driver has not made it") {
			return errors.New(text)
		}
		return nil
	})
	if have, err := secrets.Get(s.ctx, "own", metav1.GetOptions{}); err != nil || len(have.Data) != 1 {
		s.Errorf("a Secret of another is %v, %v", have.Data, err)
	}
	s.must(secrets.Delete(s.ctx, "own", metav1.DeleteOptions{}))
	o.order("media", spec)
	o.wait("media", "Ready")
	have, err := secrets.Get(s.ctx, "own", metav1.GetOptions{})
	s.must(err)
	client := harness.S3(string(have.Data["AWS_ENDPOINT_URL_S3"]), string(have.Data["AWS_REGION"]), string(have.Data["AWS_ACCESS_KEY_ID"]), string(have.Data["AWS_SECRET_ACCESS_KEY"]))
	_, err = client.ListBuckets(s.ctx, &s3.ListBucketsInput{})
	s.must(err)

	o.order("media", ", reclaimPolicy: Delete, keySecretName: other")
	s.until("in the other Secret", func() error {
		_, err := secrets.Get(s.ctx, "other", metav1.GetOptions{})
		return err
	})
	o.wait("media", "Ready")
	if _, err := secrets.Get(s.ctx, "own", metav1.GetOptions{}); !kubeerrors.IsNotFound(err) {
		s.Errorf("the Secret that is no longer asked for: %v", err)
	}
	o.delete("media")
	if _, err := secrets.Get(s.ctx, "other", metav1.GetOptions{}); !kubeerrors.IsNotFound(err) {
		s.Errorf("the Secret of a Contract that is gone: %v", err)
	}
}

// roles are what a platform gives: who may do what with the driver's types.
const roles = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-platform}
rules:
- {apiGroups: [contract-cosi.github.io], resources: [contractclasses], verbs: ["*"]}
- {apiGroups: [contract-cosi.github.io], resources: [contracts, bucketsettings], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-platform}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-platform}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: platform}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant, namespace: %[1]s}
rules:
- {apiGroups: [contract-cosi.github.io], resources: [contracts, bucketsettings], verbs: ["*"]}
- {apiGroups: [objectstorage.k8s.io], resources: [bucketclaims, bucketaccesses], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: tenant}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: team, namespace: %[1]s}
rules:
- {apiGroups: [contract-cosi.github.io], resources: [contracts], verbs: [get, list, watch]}
- {apiGroups: [contract-cosi.github.io], resources: [bucketsettings], verbs: ["*"]}
- {apiGroups: [objectstorage.k8s.io], resources: [bucketclaims, bucketaccesses], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: team, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: team}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: team}]
`

// whoMay shows with impersonation what each audience can do: the platform offers, the
// tenant orders, the team uses, and a stranger does nothing.
func whoMay(s *scenario) {
	t := s.team("who-may")
	_, err := s.kubectl(s.ctx, fmt.Sprintf(roles, t.namespace), "apply", "-f", "-")
	s.must(err)
	as := func(who, stdin string, args ...string) error {
		_, err := s.kubectl(s.ctx, stdin, append(args, "--as=someone", "--as-group="+who, "--as-group=system:authenticated")...)
		return err
	}
	class := fmt.Sprintf(standard, t.class, 20)
	contract := fmt.Sprintf("apiVersion: contract-cosi.github.io/v1alpha1\nkind: Contract\nmetadata: {name: media, namespace: %s}\nspec: {className: %s, reclaimPolicy: Delete, displayName: mine}\n", t.namespace, t.class)
	settings := t.manifest("photos", "photos", ", tags: {a: '1'}")
	apply := []string{"apply", "--server-side", "--force-conflicts", "-f", "-"}
	for _, c := range []struct {
		what, manifest string
		may            []string
	}{
		{"offer", class, []string{"platform"}},
		{"order", contract, []string{"tenant"}},
		{"settle", settings, []string{"tenant", "team"}},
	} {
		for _, who := range []string{"platform", "tenant", "team", "stranger"} {
			if err := as(who, c.manifest, apply...); (err == nil) != slices.Contains(c.may, who) || err != nil && !strings.Contains(err.Error(), "orbidden") {
				s.Errorf("%s %s: %v", who, c.what, err)
			}
		}
	}
	// A status is no one's but the driver's.
	for _, who := range []string{"team", "stranger", "platform"} {
		for _, kind := range []string{"contract/media", "bucketsettings/photos"} {
			if err := as(who, "", "-n", t.namespace, "patch", kind, "--subresource=status", "--type=merge", "-p", `{"status":{"observedGeneration":99}}`); err == nil || !strings.Contains(err.Error(), "orbidden") {
				s.Errorf("%s wrote the status of %s: %v", who, kind, err)
			}
		}
	}
	for who, may := range map[string]bool{"platform": true, "tenant": true, "team": true, "stranger": false} {
		if err := as(who, "", "-n", t.namespace, "get", "contracts,bucketsettings"); (err == nil) != may {
			s.Errorf("%s reads: %v", who, err)
		}
	}
	// What the driver itself has no business with.
	driver := "--as=system:serviceaccount:" + driverNamespace + ":" + driverAccount
	for _, verb := range []string{"create contracts.contract-cosi.github.io", "delete contracts.contract-cosi.github.io", "create bucketsettings.contract-cosi.github.io", "patch bucketsettings.contract-cosi.github.io",
		"delete bucketsettings.contract-cosi.github.io", "get secrets", "list secrets", "create secrets", "update bucketclaims.objectstorage.k8s.io", "delete buckets.objectstorage.k8s.io", "delete namespaces"} {
		out, err := s.kubectl(s.ctx, "", append(append([]string{"auth", "can-i"}, strings.Fields(verb)...), "-n", t.namespace, driver)...)
		if err == nil || strings.TrimSpace(out) == "yes" {
			s.Errorf("the driver may %s", verb)
		}
	}
	t.unset("photos")
	t.unclaim("photos")
	t.delete("media")
	for _, kind := range []string{"clusterrole", "clusterrolebinding"} {
		_, err := s.kubectl(s.ctx, "", "delete", kind, "e2e-platform")
		s.must(err)
	}
}

// missingTypes is a cluster that loses the types of the driver and gets them back: what
// it has goes on, and what comes back is found again.
func missingTypes(s *scenario) {
	t := s.team("types-gone")
	bucket := t.claim("photos")
	t.settles("photos", "photos", ", tags: {a: '1'}")
	crds := filepath.Join(deployDir, "crds", "contract-cosi.github.io_bucketsettings.yaml")

	// The type goes with its objects, which wait for no one; the bucket goes back.
	s.must(s.deleteCRD(crds))
	t.has(bucket, "!a=1")
	// A driver that starts without the type serves contracts and claims.
	s.kill("driver")
	s.must(s.startDriver())
	s.kill("sidecar")
	s.must(s.startCOSI("sidecar", fast))
	t.order("another", ", reclaimPolicy: Delete")
	t.wait("another", "Ready")
	t.delete("another")
	second := t.claim("more")
	// And finds it when it comes back.
	s.must(s.apply(s.ctx, "-f", crds))
	s.until("settled", func() error { return t.set("more", "more", ", tags: {b: '2'}") })
	t.has(second, "b=2")
	t.unset("more")
	t.has(second, "!b=2")
	t.unclaim("more", "photos")

	// Uninstalled by force: the driver is gone, and neither settings nor, without their
	// finalizers, Contracts hold their namespace.
	t.claim("photos")
	t.settles("photos", "photos", ", tags: {c: '3'}")
	s.kill("driver")
	t.unset("photos")
	_, err := s.kubectl(s.ctx, "", "-n", t.namespace, "patch", "contract", "media", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.must(err)
	_, err = s.kubectl(s.ctx, "", "-n", t.namespace, "delete", "contract", "media", "--timeout=10s")
	s.must(err)
	s.must(s.startDriver())
	s.kill("sidecar")
	s.must(s.startCOSI("sidecar", fast))
	t.order("media", ", reclaimPolicy: Delete")
	t.wait("media", "Ready")
	t.unclaim("photos")
	t.delete("media")
}

// deleteCRD deletes a type and waits for its end.
func (s *scenario) deleteCRD(file string) error {
	_, err := s.kubectl(s.ctx, "", "delete", "-f", file, "--timeout=60s")
	return err
}
