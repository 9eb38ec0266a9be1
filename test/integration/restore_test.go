package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"google.golang.org/grpc/codes"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
)

// restored checks that a repeat has re-created something, once, and said so.
func (e *env) restored(what string, times float64) {
	e.Helper()
	if n := e.metric("contract_cosi_repairs_total", `what="`+what+`"`); n != times {
		e.Errorf("%v repairs of %s in the metric, want %v", n, what, times)
	}
	if times > 0 && !strings.Contains(e.logs.String(), `what="`+what+`"`) {
		e.Errorf("the log does not say that %s was made anew", what)
	}
}

// What someone took from a bucket at the service is there again after the
// repeats of a sidecar's restart, and nothing else is touched.
func TestRestoredBucket(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	bucket := contract + "-x"
	class := map[string]string{"contract": contract, "versioning": "Enabled", "tags": "stage=test", "acl": "public-read",
		"policy": `{"Version":"2012-10-17","Statement":[{"Sid":"open","Effect":"Allow","Principal":"*","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::${bucket}/public/*"]}]}`}
	id := e.mustCreate(bucket, class)
	e.mustCreate(bucket, class)
	for _, what := range []string{"policy", "versioning", "tags", "acl", "bucket"} {
		e.restored(what, 0)
	}
	owner := e.owner(contract)
	readPolicy := func() error {
		_, err := owner.GetBucketPolicy(t.Context(), &s3.GetBucketPolicyInput{Bucket: &bucket})
		return err
	}
	setTags := func(tags ...string) {
		t.Helper()
		var set []types.Tag
		for i := 0; i < len(tags); i += 2 {
			set = append(set, types.Tag{Key: &tags[i], Value: &tags[i+1]})
		}
		_, err := owner.PutBucketTagging(t.Context(), &s3.PutBucketTaggingInput{Bucket: &bucket, Tagging: &types.Tagging{TagSet: set}})
		must(t, err)
	}

	_, err := owner.DeleteBucketPolicy(t.Context(), &s3.DeleteBucketPolicyInput{Bucket: &bucket})
	must(t, err)
	_, err = owner.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &bucket,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusSuspended}})
	must(t, err)
	setTags(cosi.OwnerTag, "example-cluster", "backup", "nightly")
	_, err = owner.PutBucketAcl(t.Context(), &s3.PutBucketAclInput{Bucket: &bucket, ACL: types.BucketCannedACLPrivate})
	must(t, err)
	if readPolicy() == nil {
		t.Error("the policy was to be gone")
	}
	for range 2 {
		e.mustCreate(bucket, class)
	}
	must(t, readPolicy())
	versioning, err := owner.GetBucketVersioning(t.Context(), &s3.GetBucketVersioningInput{Bucket: &bucket})
	if err != nil || versioning.Status != types.BucketVersioningStatusEnabled {
		t.Errorf("versioning: %v, %v", versioning, err)
	}
	tags, err := owner.GetBucketTagging(t.Context(), &s3.GetBucketTaggingInput{Bucket: &bucket})
	must(t, err)
	if len(tags.TagSet) != 3 {
		t.Errorf("%d tags; the class's, the mark and somebody's own are 3", len(tags.TagSet))
	}
	for _, what := range []string{"policy", "versioning", "tags", "acl"} {
		e.restored(what, 1)
	}

	// A bucket without the mark may be another one: it is left alone, and so is
	// the application's Secret.
	g := e.mustGrant(id, "ba-1", nil)
	setTags("backup", "nightly")
	_, err = e.create(bucket, class)
	expectCode(t, err, codes.FailedPrecondition, "has lost the driver's tag")
	if again := e.mustGrant(id, "ba-1", nil); again != g {
		t.Error("the key has changed")
	}
	setTags(cosi.OwnerTag, "example-cluster")

	// A bucket that is gone is re-created, with all that its class says.
	_, err = owner.DeleteBucketPolicy(t.Context(), &s3.DeleteBucketPolicyInput{Bucket: &bucket})
	must(t, err)
	_, err = owner.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &bucket})
	must(t, err)
	e.mustCreate(bucket, class)
	must(t, readPolicy())
	e.restored("bucket", 1)
	allowed(t, "put with the key from before", put(t, g.client(), bucket, "x"))
}

// A key that someone deleted at the service is replaced, once, whichever API
// version asks, and however many at a time.
func TestRestoredKey(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, onDemand), newLife()
	must(t, l.create(t, e.conn))
	must(t, l.grant(t, e.conn))
	lost := l.granted
	if code := e.api(http.MethodDelete, "/v1/contracts/"+l.contract+"/keys?slot=ba-1", nil, nil); code != http.StatusNoContent {
		t.Fatalf("HTTP %d", code)
	}
	answers := make(chan granted, 20)
	for range cap(answers) {
		go func() {
			g, err := v2{e}.grant("ba-1", bucketModes{l.id: readWrite}, nil)
			if err != nil {
				t.Error(err)
			}
			answers <- g
		}()
	}
	next := <-answers
	for range cap(answers) - 1 {
		if g := <-answers; g != next {
			t.Error("two answers differ")
		}
	}
	if next.key == lost.key || next.secret == lost.secret || next.account != lost.account {
		t.Error("the key was not replaced, or more than it")
	}
	if again := e.mustGrant(l.id, "ba-1", nil); again != next {
		t.Error("v1alpha1 answers another key")
	}
	if got := e.keys(l.contract); len(got) != 1 || got[0].AccessKeyID != next.key {
		t.Errorf("keys: %+v", got)
	}
	allowed(t, "put", put(t, next.client(), l.bucket, "x"))
	if n := e.metric("contract_cosi_repairs_total", `what="key"`); n != 1 {
		t.Errorf("%v repairs in the metric", n)
	}
	if !strings.Contains(e.logs.String(), "The service no longer has a key") {
		t.Error("the log does not say so")
	}
}

// Repeats while the services are away answer what they answered before: a
// running application is well, and nothing is replaced for want of an answer.
func TestRepeatsWhileServicesAreAway(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, onDemand), newLife()
	must(t, l.create(t, e.conn))
	must(t, l.grant(t, e.conn))
	e.line.Cut()
	must(t, l.create(t, e.conn))
	must(t, l.grant(t, e.conn))
	asked := len(e.line.Calls())
	for range 10 { // and no two of them wait for the same silence
		must(t, l.create(t, e.conn))
		must(t, l.grant(t, e.conn))
	}
	if n := len(e.line.Calls()); asked == 0 || n != asked {
		t.Errorf("%d calls at the first repeat and %d at the others, want some and none", asked, n-asked)
	}
	if _, err := (v2{e}).existing(l.id, nil); err != nil {
		t.Error(err)
	}
	if n := e.metric("contract_cosi_repairs_total"); n != 0 {
		t.Errorf("%v repairs", n)
	}
	e.line.Heal()
	must(t, l.grant(t, e.conn))
	allowed(t, "put", put(t, l.granted.client(), l.bucket, "x"))
}

// A contract that someone has cancelled is not signed again for the repeats of
// what was under it: its data are lost, and the user has to hear of it.
func TestRepeatsUnderACancelledContract(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, onDemand), newLife()
	must(t, l.create(t, e.conn))
	must(t, l.grant(t, e.conn))
	owner := e.owner(l.contract)
	_, err := owner.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &l.bucket})
	must(t, err)
	path := "/v1/contracts/" + l.contract
	if code := e.api(http.MethodDelete, path, nil, nil); code != http.StatusNoContent {
		t.Fatalf("HTTP %d", code)
	}
	expectCode(t, l.create(t, e.conn), codes.FailedPrecondition, "is gone at the storage service")
	expectCode(t, l.grant(t, e.conn), codes.FailedPrecondition, "is gone at the storage service")
	_, err = v2{e}.existing(l.id, nil)
	expectCode(t, err, codes.NotFound, "is gone at the storage service")
	if code := e.api(http.MethodGet, path, nil, nil); code != http.StatusNotFound {
		t.Errorf("the contract was signed again (HTTP %d)", code)
	}
	must(t, l.revoke(t, e.conn))
	must(t, l.delete(t, e.conn))
}

// The contract's own key and an option of each bucket were taken away: one
// round of repeats makes good for all, since another comes at the next restart
// of the sidecar only.
func TestOneRoundRestoresAll(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	class := map[string]string{"contract": contract, "versioning": "Enabled"}
	buckets := []string{contract + "-a", contract + "-b", contract + "-c"}
	for _, b := range buckets {
		e.mustCreate(b, class)
		_, err := e.owner(contract).PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &b,
			VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusSuspended}})
		must(t, err)
	}
	if code := e.api(http.MethodDelete, "/v1/contracts/"+contract+"/keys?slot="+cosi.ContractSlot, nil, nil); code != http.StatusNoContent {
		t.Fatalf("HTTP %d", code)
	}
	for _, b := range buckets {
		e.mustCreate(b, class)
	}
	e.restored("versioning", 3)
	if n := e.metric("contract_cosi_repairs_total", `what="contract-key"`); n != 1 {
		t.Errorf("%v repairs of the contract's key", n)
	}
}

// A bucket that is gone and cannot be re-created is no success, and a key to it
// is refused in a way that heals.
func TestGoneBucketThatCannotComeBack(t *testing.T) {
	t.Parallel()
	contract := newContract()
	e := newEnv(t, "contracts:\n  - {name: "+contract+", backend: main, quota: {maxBuckets: 1}}\n")
	bucket, other := contract+"-x", contract+"-in-its-place"
	class := map[string]string{"contract": contract}
	id := e.mustCreate(bucket, class)
	owner := e.owner(contract)
	_, err := owner.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &bucket})
	must(t, err)
	_, err = owner.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &other})
	must(t, err)
	_, err = e.create(bucket, class)
	expectCode(t, err, codes.ResourceExhausted, "TooManyBuckets")
	_, err = v2{e}.grant("ba-1", bucketModes{id: readWrite}, nil)
	expectCode(t, err, codes.FailedPrecondition)
	_, err = owner.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &other})
	must(t, err)
	e.mustCreate(bucket, class)
	e.mustGrant(id, "ba-1", nil)
	e.restored("bucket", 1)
}

// A journal that was lost is filled again by the sidecar's repeats, in whatever
// order they come.
func TestLostJournal(t *testing.T) {
	t.Parallel()
	e := newEnv(t, "onDemand:\n  backend: main\n  adoptBuckets: true\n")
	contract := newContract()
	bucket := contract + "-x"
	class := map[string]string{"contract": contract, "versioning": "Enabled", "onDelete": "empty"}
	id := e.mustCreate(bucket, class)
	e.loseJournal()
	g := e.mustGrant(id, "ba-1", nil)
	_, err := e.create(bucket, map[string]string{"contract": contract, "versioning": "Suspended"})
	expectCode(t, err, codes.AlreadyExists, "versioning differ")
	e.mustCreate(bucket, class)
	_, err = e.create(bucket, map[string]string{"contract": contract, "versioning": "Enabled"})
	expectCode(t, err, codes.AlreadyExists, "onDelete differ") // its class is known again
	allowed(t, "put", put(t, g.client(), bucket, "x"))
	must(t, e.delete(id))
}
