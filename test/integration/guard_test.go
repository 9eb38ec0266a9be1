package integration

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What a guard refuses, it refuses with the name of each rule, through both
// versions of COSI, and nothing is made for it.
func TestGuardRefuses(t *testing.T) {
	t.Parallel()
	contract := newContract()
	e := newEnv(t, `contracts:
  - name: `+contract+`
    backend: main
    guard:
      parameters: [region, versioning, acl, onDelete, tags, maxBytes, access, prefix, keyLife, actions]
      required: [tags, prefix]
      refusePublic: true
      regions: [us-east-1]
      modes: [ReadOnly, WriteOnly]
      actions: ["s3:GetObject", "s3:PutObject"]
      maxKeyLife: 30d
      maxBucketBytes: 1Gi
`)
	class := func(pairs ...string) map[string]string {
		out := map[string]string{"contract": contract}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	all := class("maxBytes", "2Gi", "websiteIndex", "x", "cors", `{"CORSRules":[{"AllowedOrigins":["*"],"AllowedMethods":["GET"]}]}`, "acl", "public-read", "region", "us-west-1")
	for _, create := range []func() error{
		func() error { _, err := e.create(contract+"-1", all); return err },
		func() error { _, err := v2{e}.create(contract+"-1", all); return err },
	} {
		expectCode(t, create(), codes.FailedPrecondition, "contract "+contract+" does not allow it",
			"guard.parameters: a BucketClass may not give cors, websiteIndex", "guard.required: the BucketClass has to give tags",
			"guard.refusePublic: acl makes the bucket public", "guard.maxBucketBytes: the BucketClass has to give a maxBytes of at most 1Gi", `guard.regions: "us-west-1" is not one of us-east-1`)
	}
	if code := e.api(http.MethodGet, "/v1/contracts/"+contract, nil, nil); code != http.StatusNotFound {
		t.Errorf("a refused class signed the contract (HTTP %d)", code)
	}

	id := e.mustCreate(contract+"-1", class("tags", "a=b", "region", "us-east-1", "maxBytes", "1Gi"))
	_, err := e.grant(id, "ba-1", map[string]string{"sourceIP": "10.0.0.0/8", "actions": "s3:GetObject,s3:DeleteObject", "keyLife": "31d"})
	expectCode(t, err, codes.FailedPrecondition, "guard.parameters: a BucketAccessClass may not give sourceIP", "has to give prefix",
		"guard.modes: ReadWrite is not one of ReadOnly, WriteOnly", "guard.actions: s3:DeleteObject are not of", "guard.maxKeyLife: the class has to give a keyLife of at most 30d")
	_, err = v2{e}.grant("ba-1", bucketModes{id: readOnly}, nil)
	expectCode(t, err, codes.FailedPrecondition, "guard.actions: the class has to give actions", "guard.maxKeyLife")
	if n := len(e.keys(contract)); n != 0 {
		t.Errorf("%d keys", n)
	}
	within := map[string]string{"access": "ReadOnly", "prefix": "in/", "actions": "s3:GetObject", "keyLife": "30d"}
	g := e.mustGrant(id, "ba-1", within)

	// Tightened later, it leaves what there is alone.
	e.stop()
	writeFile(t, e.configFile, strings.Replace(readFile(t, e.configFile), "required: [tags, prefix]", "required: [tags, prefix, encryption, sourceIP]", 1))
	e.start()
	e.mustCreate(contract+"-1", class("tags", "a=b", "region", "us-east-1", "maxBytes", "1Gi"))
	if again := e.mustGrant(id, "ba-1", within); again != g {
		t.Error("the key has changed")
	}
	_, err = e.grant(id, "ba-2", within)
	expectCode(t, err, codes.FailedPrecondition, "has to give sourceIP")
	must(t, e.revoke(id, g.account))
	must(t, e.delete(id))
}

// A policy that names a caller as S3 spells it, and the public in another case, is
// public at a gateway that reads members without case, as contractd's does. It is
// refused in a class, found when it was written past the driver, and taken away.
func TestPublicInAnotherCase(t *testing.T) {
	t.Parallel()
	contract := newContract()
	e := newEnv(t, "contracts:\n  - {name: "+contract+", backend: main, guard: {refusePublic: true}}\n"+driftEachSecond("repair"))
	bucket := contract + "-1"
	statement := func(more string) string {
		return `{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::` + bucket + `/*",` + more + `}`
	}
	document := func(more string) string { return `{"Version":"2012-10-17","Statement":[` + statement(more) + `]}` }
	const folded = `"Principal":{"AWS":"nobody"},"principal":"*"`
	for says, more := range map[string]string{
		`policy: Statement[0] has "principal"`:               folded,
		`policy: Statement[0] has "Principal" twice`:         `"Principal":{"AWS":"nobody"},"Princip\u0061l":"*"`,
		"guard.refusePublic: policy makes the bucket public": `"Principal":"*","Condition":{"Bool":{"aws:SecureTransport":"false"}}`,
	} {
		_, err := e.create(bucket, map[string]string{"contract": contract, "policy": document(more)})
		code := codes.InvalidArgument
		if strings.HasPrefix(says, "guard") {
			code = codes.FailedPrecondition
		}
		expectCode(t, err, code, says)
	}
	id := e.mustCreate(bucket, map[string]string{"contract": contract})
	named := `"Principal":{"AWS":"` + e.mustGrant(id, "ba-1", nil).key + `"}`
	owner := e.owner(contract)
	allowed(t, "put", put(t, owner, bucket, "object"))
	anonymous := s3.New(s3.Options{BaseEndpoint: aws.String(e.service.S3), Region: "us-east-1", UsePathStyle: true, Credentials: aws.AnonymousCredentials{}, RetryMaxAttempts: 1})
	refused(t, "anonymous get", get(t, anonymous, bucket, "object"))
	for theirs, stays := range map[string]bool{
		document(folded): false,
		document(`"Principal":"*","Condition":{"Bool":{"aws:SecureTransport":"false"}}`):                                     false,
		`{"Version":"2012-10-17","Statement":[` + statement(named) + `],"statement":[` + statement(`"Principal":"*"`) + `]}`: true,
	} {
		e.stop() // or it would be taken away before it is seen to be there
		_, err := owner.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: &bucket, Policy: &theirs})
		must(t, err)
		allowed(t, "anonymous get with "+theirs, get(t, anonymous, bucket, "object"))
		e.start()
		e.until(func() bool { return e.found("public-policy", true) == 1 })
		refused(t, "anonymous get after the repair", get(t, anonymous, bucket, "object"))
		have, err := owner.GetBucketPolicy(t.Context(), &s3.GetBucketPolicyInput{Bucket: &bucket})
		if stays && (err != nil || !strings.Contains(aws.ToString(have.Policy), named)) || !stays && err == nil {
			t.Errorf("%s became %+v (%v)", theirs, have, err)
		}
	}
}

// A region that the class leaves out is the contract's or the service's, and the
// guard's to refuse all the same.
func TestGuardOfTheDefaultRegion(t *testing.T) {
	t.Parallel()
	elsewhere, named, here := newContract(), newContract(), newContract()
	e := newEnv(t, `contracts:
  - {name: `+elsewhere+`, backend: main, guard: {regions: [eu-west-1]}}
  - {name: `+named+`, backend: main, region: us-east-1, guard: {regions: [eu-west-1]}}
  - {name: `+here+`, backend: main, guard: {regions: [eu-west-1, us-east-1]}}
`)
	for _, contract := range []string{elsewhere, named} {
		_, err := e.create(contract+"-1", map[string]string{"contract": contract})
		expectCode(t, err, codes.FailedPrecondition, `guard.regions: the class has no region, and the default, "us-east-1", is not one of eu-west-1`)
		if code := e.api(http.MethodGet, "/v1/contracts/"+contract, nil, nil); code != http.StatusNotFound {
			t.Errorf("a refused class signed the contract (HTTP %d)", code)
		}
	}
	e.mustCreate(here+"-1", map[string]string{"contract": here})
	e.mustCreate(here+"-2", map[string]string{"contract": here}) // which is open by now
}

// A contract may have been signed where the service no longer signs by default.
func TestGuardOfTheSignedRegion(t *testing.T) {
	t.Parallel()
	contract := newContract()
	e := newEnvWith(t, contractd, "contracts:\n  - {name: "+contract+", backend: main, guard: {regions: [eu-west-1]}}\n", func(text string) string {
		_, rest, _ := strings.Cut(text, "url: ")
		address, _, _ := strings.Cut(rest, "\n")
		to, err := url.Parse(address)
		must(t, err)
		proxy := httputil.NewSingleHostReverseProxy(to)
		proxy.ModifyResponse = func(r *http.Response) error { // contractd has one region
			body, err := io.ReadAll(r.Body)
			if strings.HasSuffix(r.Request.URL.Path, "/regions") {
				body = bytes.ReplaceAll(body, []byte("us-east-1"), []byte("eu-west-1"))
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			return err
		}
		s := httptest.NewServer(proxy)
		t.Cleanup(s.Close)
		return strings.Replace(text, address, s.URL, 1)
	})
	_, err := e.create(contract+"-1", map[string]string{"contract": contract})
	expectCode(t, err, codes.FailedPrecondition, `the default, "us-east-1", is not one of eu-west-1`)
	if n := len(e.buckets(contract)); n != 0 {
		t.Errorf("%d buckets", n)
	}
}

// The bounds hold for as many as ask at once.
func TestGuardCounts(t *testing.T) {
	t.Parallel()
	contract := newContract()
	e := newEnv(t, "contracts:\n  - {name: "+contract+", backend: main, guard: {maxBuckets: 3, maxKeys: 4}}\n")
	class := map[string]string{"contract": contract}
	count := func(n int, call func(i int) error) (made int) {
		var wg sync.WaitGroup
		outcome := make(chan error, n)
		for i := range n {
			wg.Go(func() { outcome <- call(i) })
		}
		wg.Wait()
		close(outcome)
		for err := range outcome {
			if err == nil {
				made++
			} else if status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
		}
		return made
	}
	name := func(i int) string { return contract + "-" + string(rune('a'+i)) }
	if n := count(10, func(i int) error { _, err := e.create(name(i), class); return err }); n != 3 {
		t.Errorf("%d buckets were made", n)
	}
	buckets := e.buckets(contract)
	if len(buckets) != 3 {
		t.Fatalf("buckets: %v", buckets)
	}
	id := "main." + contract + "." + buckets[0]
	if n := count(10, func(i int) error { _, err := e.grant(id, "ba-"+name(i), nil); return err }); n != 4 {
		t.Errorf("%d keys were issued", n)
	}
	_, err := e.create(contract+"-more", class)
	expectCode(t, err, codes.ResourceExhausted, "guard.maxBuckets", "of at most 3")
	must(t, e.delete(id))
	e.mustCreate(contract+"-more", class)
}

// Defaults stand in for what a class leaves out, and follow the configuration:
// what they drop is taken from the buckets that had it. A repeat is compared
// with what its class says itself.
func TestDefaults(t *testing.T) {
	t.Parallel()
	contract := newContract()
	terms := func(defaults string) string {
		return "contracts:\n  - name: " + contract + "\n    backend: main\n    defaults:\n" + defaults
	}
	first := terms("      bucketClass: {tags: team=blue, corsOrigins: \"https://a.example.com\", corsMethods: PUT, versioning: Suspended}\n      bucketAccessClass: {prefix: in/}\n")
	e := newEnv(t, first)
	owner := func() *s3.Client { return e.owner(contract) }
	class := map[string]string{"contract": contract, "versioning": "Enabled"}
	bucket := contract + "-1"
	id := e.mustCreate(bucket, class)
	tags := func() map[string]string {
		t.Helper()
		out, err := owner().GetBucketTagging(t.Context(), &s3.GetBucketTaggingInput{Bucket: &bucket})
		must(t, err)
		all := map[string]string{}
		for _, tag := range out.TagSet {
			all[*tag.Key] = *tag.Value
		}
		return all
	}
	cors, err := owner().GetBucketCors(t.Context(), &s3.GetBucketCorsInput{Bucket: &bucket})
	must(t, err)
	if m := cors.CORSRules[0].AllowedMethods; len(m) != 1 || m[0] != "PUT" || tags()["team"] != "blue" {
		t.Errorf("CORS %v, tags %v", m, tags())
	}
	versioning, err := owner().GetBucketVersioning(t.Context(), &s3.GetBucketVersioningInput{Bucket: &bucket})
	must(t, err)
	if versioning.Status != "Enabled" {
		t.Errorf("versioning %s: the class comes first", versioning.Status)
	}
	g := e.mustGrant(id, "ba-1", nil)
	allowed(t, "put below the default's prefix", put(t, g.client(), bucket, "in/a"))
	refused(t, "put beside", put(t, g.client(), bucket, "out/a"))
	wide := e.mustGrant(id, "ba-2", map[string]string{"prefixes": "in/,out/"}) // which the default gives way to
	allowed(t, "put by its own class", put(t, wide.client(), bucket, "out/a"))

	e.stop()
	writeFile(t, e.configFile, strings.Replace(readFile(t, e.configFile), first, terms("      bucketClass: {tags: team=red}\n"), 1))
	e.start()
	e.mustCreate(bucket, class)
	if have := tags(); have["team"] != "red" || len(have) != 2 {
		t.Errorf("tags %v", have)
	}
	if _, err := owner().GetBucketCors(t.Context(), &s3.GetBucketCorsInput{Bucket: &bucket}); err == nil {
		t.Error("what the defaults dropped is still there")
	}
	e.restored("cors", 0) // no one took it away
	if again := e.mustGrant(id, "ba-1", nil); again != g {
		t.Error("a key follows the defaults")
	}
	calls := len(e.line.Calls())
	e.mustCreate(bucket, class)
	for _, call := range e.line.Calls()[calls:] {
		if strings.HasPrefix(call, http.MethodPut) || strings.HasPrefix(call, http.MethodDelete) {
			t.Errorf("a third repeat writes: %s", call)
		}
	}
	_, err = e.create(bucket, map[string]string{"contract": contract, "versioning": "Enabled", "tags": "team=red"})
	expectCode(t, err, codes.AlreadyExists, "tags differ")

	// A default that cannot stand beside what a class says.
	e.stop()
	writeFile(t, e.configFile, strings.Replace(readFile(t, e.configFile), "{tags: team=red}", "{objectLock: Enabled}", 1))
	e.start()
	_, err = e.create(contract+"-2", map[string]string{"contract": contract, "versioning": "Suspended"})
	expectCode(t, err, codes.FailedPrecondition, "with the defaults of contract "+contract, "objectLock and versioning: Suspended contradict")
}
