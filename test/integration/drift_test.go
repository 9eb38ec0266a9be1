package integration

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/contract-cosi/contract-cosi-driver/pkg/admin"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/test/kubefake"
)

// drifting is a configuration that looks at everything once a second.
func drifting(mode string) string {
	return "onDemand:\n  backend: main\n  adoptBuckets: true\n  plan: small\n" + driftEachSecond(mode)
}

func driftEachSecond(mode string) string {
	return "drift: {mode: " + mode + ", interval: 1s, callsPerSecond: 1000}\n"
}

// found is how often drift of some kind was found, repaired or not.
func (e *env) found(what string, repaired bool) float64 {
	return e.metric("contract_cosi_drift_findings_total", `what="`+what+`"`, fmt.Sprintf(`repaired="%v"`, repaired))
}

// passes waits until everything was looked at, from the beginning, twice more.
func (e *env) passes() {
	e.Helper()
	for range 2 {
		last := e.metric("contract_cosi_drift_last_pass_timestamp_seconds")
		e.until(func() bool { return e.metric("contract_cosi_drift_last_pass_timestamp_seconds") > last })
	}
}

// open makes a bucket public, and leaves one of the bucket's own rules as it is.
const open = `{"Version":"2012-10-17","Statement":[
	{"Sid":"public","Effect":"Allow","Principal":{"AWS":["*"]},"Action":"s3:GetObject","Resource":"arn:aws:s3:::%[1]s/*"},
	{"Sid":"no-deletes","Effect":"Deny","Principal":"*","Action":"s3:DeleteObject","Resource":"arn:aws:s3:::%[1]s/keep/*"}]}`

// spoil changes everything about a bucket that drift looks for.
func spoil(t *testing.T, owner *s3.Client, bucket string) {
	t.Helper()
	_, err := owner.DeleteBucketPolicy(t.Context(), &s3.DeleteBucketPolicyInput{Bucket: &bucket})
	must(t, err)
	_, err = owner.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &bucket,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusSuspended}})
	must(t, err)
	_, err = owner.PutBucketTagging(t.Context(), &s3.PutBucketTaggingInput{Bucket: &bucket,
		Tagging: &types.Tagging{TagSet: []types.Tag{{Key: aws.String(cosi.OwnerTag), Value: aws.String("example-cluster")}, {Key: aws.String("own"), Value: aws.String("1")}}}})
	must(t, err)
	_, err = owner.PutBucketAcl(t.Context(), &s3.PutBucketAclInput{Bucket: &bucket, ACL: types.BucketCannedACLPublicReadWrite})
	must(t, err)
}

var spoiled = []string{"policy", "versioning", "tags", "acl"}

func driftClass(contract string) map[string]string {
	return map[string]string{"contract": contract, "versioning": "Enabled", "tags": "stage=test", "acl": "public-read",
		"policy": `{"Version":"2012-10-17","Statement":[{"Sid":"part","Effect":"Allow","Principal":"*","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::${bucket}/public/*"]}]}`}
}

// What someone changes at a service is brought back without any call of a
// sidecar, and nothing of the application's is touched.
func TestDriftIsRepaired(t *testing.T) {
	t.Parallel()
	e := newEnv(t, drifting("repair"))
	contract := newContract()
	bucket, plain := contract+"-classed", contract+"-plain"
	id := e.mustCreate(bucket, driftClass(contract))
	e.mustCreate(plain, map[string]string{"contract": contract})
	app := e.mustGrant(id, "ba-1", nil).client()
	allowed(t, "put", put(t, app, bucket, "object"))
	owner := e.owner(contract)
	nobody := s3.New(s3.Options{BaseEndpoint: aws.String(e.service.S3), Region: "us-east-1", UsePathStyle: true, Credentials: aws.AnonymousCredentials{}, RetryMaxAttempts: 1})
	e.passes()
	if n := e.metric("contract_cosi_drift_findings_total"); n != 0 {
		t.Errorf("%v findings where nothing has changed:\n%s", n, e.logs)
	}

	spoil(t, owner, bucket)
	_, err := owner.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: &plain, Policy: aws.String(fmt.Sprintf(open, plain))})
	must(t, err)
	for _, what := range append(spoiled, "public-policy") {
		e.until(func() bool { return e.found(what, true) == 1 })
		if n := e.metric("contract_cosi_repairs_total", `what="`+what+`"`); n != 1 {
			t.Errorf("%v repairs of %s", n, what)
		}
		if line := fmt.Sprintf(`what="%s" repaired=true`, what); strings.Count(e.logs.String(), line) != 1 {
			t.Errorf("not one line of the log says %s", line)
		}
	}
	have, err := owner.GetBucketTagging(t.Context(), &s3.GetBucketTaggingInput{Bucket: &bucket})
	if err != nil || len(have.TagSet) != 3 {
		t.Errorf("tags: %v, %v; the class's, the mark and somebody's own are 3", have, err)
	}
	policy, err := owner.GetBucketPolicy(t.Context(), &s3.GetBucketPolicyInput{Bucket: &plain})
	must(t, err)
	if text := aws.ToString(policy.Policy); strings.Contains(text, `"public"`) || !strings.Contains(text, "no-deletes") {
		t.Errorf("the policy is %s", text)
	}
	refused(t, "anonymous get", get(t, nobody, plain, "x"))
	allowed(t, "get", get(t, app, bucket, "object"))

	// By ACL, too, where a class says nothing of one.
	_, err = owner.PutBucketOwnershipControls(t.Context(), &s3.PutBucketOwnershipControlsInput{Bucket: &plain,
		OwnershipControls: &types.OwnershipControls{Rules: []types.OwnershipControlsRule{{ObjectOwnership: types.ObjectOwnershipBucketOwnerPreferred}}}})
	must(t, err)
	_, err = owner.PutBucketAcl(t.Context(), &s3.PutBucketAclInput{Bucket: &plain, ACL: types.BucketCannedACLPublicRead})
	must(t, err)
	e.until(func() bool { return e.found("public-acl", true) == 1 })
	refused(t, "anonymous list", list(t, nobody, plain, ""))

	// A bucket that is gone is re-created, as a repeat of its create call does.
	_, err = owner.DeleteBucketPolicy(t.Context(), &s3.DeleteBucketPolicyInput{Bucket: &plain})
	must(t, err)
	_, err = owner.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &plain})
	must(t, err)
	e.until(func() bool { return e.found("bucket", true) == 1 })
	if !slices.Contains(e.buckets(contract), plain) {
		t.Error("the bucket was not made anew")
	}
	if !strings.Contains(e.logs.String(), "A bucket was deleted behind the driver's back, with all that it held") {
		t.Error("a bucket was made anew silently")
	}
	e.passes()
	if n := e.metric("contract_cosi_drift_findings_total", `repaired="false"`); n != 0 {
		t.Errorf("%v findings were not repaired:\n%s", n, e.logs)
	}
}

// In mode report all of it is found, and nothing is changed; a contract's own
// mode goes before the file's.
func TestDriftIsReported(t *testing.T) {
	t.Parallel()
	reported, off := newContract(), newContract()
	e := newEnv(t, "contracts:\n  - {name: "+reported+", backend: main, drift: report}\n  - {name: "+off+", backend: main}\n"+driftEachSecond("off"))
	bucket, unseen, lost := reported+"-a", off+"-a", reported+"-lost"
	e.mustCreate(bucket, driftClass(reported))
	e.mustCreate(unseen, driftClass(off))
	e.mustCreate(lost, map[string]string{"contract": reported})
	spoil(t, e.owner(reported), bucket)
	spoil(t, e.owner(off), unseen)
	_, err := e.owner(reported).DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &lost})
	must(t, err)
	for _, what := range append(spoiled, "bucket") {
		e.until(func() bool { return e.found(what, false) > 0 })
	}
	e.passes()
	if n := e.metric("contract_cosi_repairs_total") + e.metric("contract_cosi_drift_findings_total", `repaired="true"`); n != 0 {
		t.Errorf("%v repairs in mode report", n)
	}
	if slices.Contains(e.buckets(reported), lost) {
		t.Error("a bucket was made in mode report")
	}
	versioning, err := e.owner(reported).GetBucketVersioning(t.Context(), &s3.GetBucketVersioningInput{Bucket: &bucket})
	if err != nil || versioning.Status != types.BucketVersioningStatusSuspended {
		t.Errorf("versioning is %v (%v) in mode report", versioning.Status, err)
	}
	if strings.Contains(e.logs.String(), `"Changed behind the driver's back" bucket="main.`+off) {
		t.Error("a contract in mode off was looked at")
	}
}

// What may be on purpose, or is not the driver's, is reported and left alone
// also in mode repair.
func TestDriftThatIsLeftAlone(t *testing.T) {
	t.Parallel()
	e := newEnv(t, drifting("repair"))
	contract, suspended := newContract(), newContract()
	adopted, unmarked := contract+"-adopted", contract+"-unmarked"
	e.mustCreate(unmarked, driftClass(contract))
	owner := e.owner(contract)
	_, err := owner.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &adopted})
	must(t, err)
	id := "main." + contract + "." + adopted
	g := e.mustGrant(id, "ba-1", nil) // which adopts the bucket
	_, err = owner.DeleteBucketTagging(t.Context(), &s3.DeleteBucketTaggingInput{Bucket: &unmarked})
	must(t, err)
	_, err = owner.DeleteBucketPolicy(t.Context(), &s3.DeleteBucketPolicyInput{Bucket: &unmarked})
	must(t, err)
	_, err = owner.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: &adopted, Policy: aws.String(fmt.Sprintf(open, adopted))})
	must(t, err)
	e.until(func() bool { return e.found("mark", false) > 0 && e.found("public-policy", false) > 0 })
	e.passes()
	if _, err := owner.GetBucketPolicy(t.Context(), &s3.GetBucketPolicyInput{Bucket: &unmarked}); err == nil {
		t.Error("a bucket without the mark was written to")
	}
	policy, err := owner.GetBucketPolicy(t.Context(), &s3.GetBucketPolicyInput{Bucket: &adopted})
	if err != nil || !strings.Contains(aws.ToString(policy.Policy), `"public"`) {
		t.Errorf("the policy of an adopted bucket was changed (%v)", err)
	}

	// A key that is gone is not issued without an access.
	if code := e.api(http.MethodDelete, "/v1/contracts/"+contract+"/keys?slot=ba-1", nil, nil); code != http.StatusNoContent {
		t.Fatalf("HTTP %d", code)
	}
	e.until(func() bool { return e.found("key", false) > 0 })
	if n := len(e.keys(contract)); n != 0 {
		t.Errorf("%d keys that nobody holds", n)
	}
	if again := e.mustGrant(id, "ba-1", nil); again.key == g.key {
		t.Error("a dead key was given")
	}

	// A contract that someone suspended is not resumed; its plan is brought back
	// once it is.
	e.mustCreate(suspended+"-a", map[string]string{"contract": suspended})
	terms := map[string]any{"owner": "example-cluster", "desiredState": "suspended", "plan": "free"}
	if code := e.api(http.MethodPut, "/v1/contracts/"+suspended, terms, nil); code != http.StatusOK {
		t.Fatalf("HTTP %d", code)
	}
	e.until(func() bool { return e.found("suspended", false) > 0 && e.found("contract-plan", false) > 0 })
	e.passes()
	var have struct {
		State string
		Spec  struct{ Plan string }
	}
	e.api(http.MethodGet, "/v1/contracts/"+suspended, nil, &have)
	if have.State != "suspended" || have.Spec.Plan != "free" {
		t.Errorf("the contract is %+v", have)
	}
	if n := e.metric("contract_cosi_repairs_total", `what="policy"`) + e.metric("contract_cosi_drift_findings_total", `repaired="true"`); n != 0 {
		t.Errorf("%v repairs", n)
	}
	delete(terms, "desiredState")
	e.api(http.MethodPut, "/v1/contracts/"+suspended, terms, nil)
	e.until(func() bool { return e.found("contract-plan", true) == 1 })
	e.api(http.MethodGet, "/v1/contracts/"+suspended, nil, &have)
	if have.State != "active" || have.Spec.Plan != "small" {
		t.Errorf("the contract is %+v", have)
	}
}

// A bucket of this driver's that was found again without its record is not
// changed before its class is known again.
func TestDriftOfABucketWithoutItsClass(t *testing.T) {
	t.Parallel()
	e := newEnv(t, "onDemand:\n  backend: main\n  adoptBuckets: true\n"+driftEachSecond("repair"))
	contract := newContract()
	bucket := contract + "-x"
	class := map[string]string{"contract": contract, "policy": strings.ReplaceAll(fmt.Sprintf(open, bucket), "\n", "")}
	id := e.mustCreate(bucket, class)
	e.loseJournal()
	e.mustGrant(id, "ba-1", nil)
	e.until(func() bool { return e.found("public-policy", false) > 0 })
	e.passes()
	e.mustCreate(bucket, class) // its policy is still what its class says
	e.restored("policy", 0)
	seen := e.found("public-policy", false)
	e.passes()
	if n := e.found("public-policy", false); n > seen+1 { // one look may have been under way
		t.Errorf("%v findings where the class asks for the policy", n-seen)
	}
}

// A key that is stopped at the service may be so on purpose: it is reported, and
// stays stopped.
func TestDriftOfAStoppedKey(t *testing.T) {
	t.Parallel()
	var stopped atomic.Bool
	e := newEnvWith(t, contractd, drifting("repair"), func(text string) string {
		_, rest, _ := strings.Cut(text, "url: ")
		address, _, _ := strings.Cut(rest, "\n")
		to, err := url.Parse(address)
		must(t, err)
		proxy := httputil.NewSingleHostReverseProxy(to)
		proxy.ModifyResponse = func(r *http.Response) error { // contractd cannot stop a key
			body, err := io.ReadAll(r.Body)
			if stopped.Load() && strings.HasSuffix(r.Request.URL.Path, "/keys") {
				body = bytes.ReplaceAll(body, []byte(`"state":"active"`), []byte(`"state":"inactive"`))
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Length", strconv.Itoa(len(body)))
			return err
		}
		s := httptest.NewServer(proxy)
		t.Cleanup(s.Close)
		return strings.Replace(text, address, s.URL, 1)
	})
	l := newLife()
	must(t, l.create(t, e.conn))
	must(t, l.grant(t, e.conn))
	e.passes()
	if n := e.found("key-inactive", false); n != 0 {
		t.Errorf("%v findings before", n)
	}
	stopped.Store(true)
	e.until(func() bool { return e.found("key-inactive", false) > 0 })
	must(t, l.grant(t, e.conn)) // answers the same key
	if keys := report[admin.Key](e, 0, "keys"); len(keys) != 1 || keys[0].State != "Inactive" {
		t.Errorf("keys: %+v", keys)
	}
	if n := e.metric("contract_cosi_repairs_total"); n != 0 {
		t.Errorf("%v repairs", n)
	}
}

// A pass reads each option of a bucket at most once, and writes nothing where
// nothing has changed.
func TestDriftReadsOnce(t *testing.T) {
	t.Parallel()
	contract := newContract()
	e := newEnv(t, "contracts:\n  - {name: "+contract+", backend: main}\n"+driftEachSecond("off"))
	const buckets = 12
	for n := range buckets {
		class := driftClass(contract)
		if n%2 == 0 {
			class = map[string]string{"contract": contract}
		}
		id := e.mustCreate(fmt.Sprintf("%s-%d", contract, n), class)
		e.mustGrant(id, fmt.Sprintf("ba-%d", n), nil)
	}
	e.line.Heal()
	text := readFile(t, e.configFile)
	// The interval is long enough to be the only one, and begins when this does.
	e.stop()
	writeFile(t, e.configFile, strings.Replace(text, "mode: off, interval: 1s", "mode: repair, interval: 2s", 1))
	e.start()
	e.passes()
	writeFile(t, e.configFile, text) // no more looks begin, and those under way end in two passes
	e.until(func() bool { return e.metric("contract_cosi_drift_interval_seconds") == 0 })
	e.passes()
	looks := e.metric("contract_cosi_drift_looks_total", `kind="bucket"`)
	reads := map[string]int{}
	for _, call := range e.line.Queries() {
		if strings.Contains(call, contract+"-") && !strings.Contains(call, "/v1/") {
			reads[call]++
			if !strings.HasPrefix(call, "GET ") {
				t.Errorf("a look made the call %s", call)
			}
		}
	}
	if len(reads) < buckets*3 || len(reads) > buckets*4 {
		t.Errorf("%d different reads of %d buckets: %v", len(reads), buckets, reads)
	}
	for call, n := range reads {
		if most := int(looks)/buckets + 1; n > most {
			t.Errorf("%s came %d times in %d looks at each bucket", call, n, most)
		}
	}
}

// Two live drivers may both repair: what was changed is brought back, and no
// more happens than that.
func TestDriftWithTwoLiveDrivers(t *testing.T) {
	t.Parallel()
	kube := kubefake.Start(t)
	drivers := []*env{newEnvInSecrets(t, kube, drifting("repair")), newEnvInSecrets(t, kube, drifting("repair"))}
	contract := newContract()
	var buckets []string
	for n := range 5 {
		bucket := fmt.Sprintf("%s-%d", contract, n)
		id := drivers[n%2].mustCreate(bucket, driftClass(contract))
		drivers[n%2].mustGrant(id, fmt.Sprintf("ba-%d", n), nil)
		buckets = append(buckets, bucket)
	}
	owner := drivers[0].owner(contract)
	for _, b := range buckets {
		spoil(t, owner, b)
	}
	for _, what := range spoiled {
		for _, e := range drivers {
			e.until(func() bool { return drivers[0].found(what, true)+drivers[1].found(what, true) >= 5 })
		}
	}
	for _, e := range drivers {
		e.passes()
		if n := e.metric("contract_cosi_drift_findings_total", `repaired="false"`); n != 0 {
			t.Errorf("%v findings were not repaired:\n%s", n, e.logs)
		}
	}
	for _, b := range buckets {
		versioning, err := owner.GetBucketVersioning(t.Context(), &s3.GetBucketVersioningInput{Bucket: &b})
		if err != nil || versioning.Status != types.BucketVersioningStatusEnabled {
			t.Errorf("versioning of %s is %v (%v)", b, versioning.Status, err)
		}
	}
	if n := len(drivers[0].keys(contract)); n != 5 {
		t.Errorf("%d keys", n)
	}
}

// A driver that looks for drift at a service that says nothing stops at once.
func TestDriftStops(t *testing.T) {
	t.Parallel()
	e := newEnv(t, drifting("repair"))
	contract := newContract()
	for n := range 5 {
		e.mustCreate(fmt.Sprintf("%s-%d", contract, n), map[string]string{"contract": contract})
	}
	e.line.Cut()
	e.until(func() bool { return e.metric("contract_cosi_drift_looks_total", `outcome="Unavailable"`) > 2 })
	e.stop()
	if n := strings.Count(e.logs.String(), "Changed behind the driver's back"); n != 0 {
		t.Errorf("an outage was taken for %d findings", n)
	}
	e.line.Heal()
	e.start()
}
