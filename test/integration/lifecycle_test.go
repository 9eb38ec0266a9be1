package integration

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"google.golang.org/grpc/codes"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
)

func TestInfo(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	info, err := cosiproto.NewIdentityClient(e.conn).DriverGetInfo(t.Context(), &cosiproto.DriverGetInfoRequest{})
	if err != nil || info.GetName() != "contract.cosi.example.com" {
		t.Errorf("%v, %v", info, err)
	}
}

// The main job, every call three times.
func TestEveryCallRepeated(t *testing.T) {
	t.Parallel()
	e := newEnv(t, "onDemand:\n  backend: main\n  onLastBucket: cancel\n")
	contract := newContract()
	class := map[string]string{"contract": contract}
	var id string
	for range 3 {
		got := e.mustCreate(contract+"-data", class)
		if id == "" {
			id = got
		}
		if got != id || id != "main."+contract+"."+contract+"-data" {
			t.Fatalf("bucket id %q, first %q", got, id)
		}
	}
	first := e.mustGrant(id, "ba-1", nil)
	for range 2 {
		if again := e.mustGrant(id, "ba-1", nil); again != first {
			t.Fatal("a repeated grant gave something else")
		}
	}
	bucket := contract + "-data"
	app := first.client()
	allowed(t, "put", put(t, app, bucket, "object"))
	allowed(t, "get", get(t, app, bucket, "object"))
	allowed(t, "list", list(t, app, bucket, ""))

	expectCode(t, e.delete(id), codes.FailedPrecondition, "still holds objects; delete them", "a new BucketClass can say onDelete: empty")
	allowed(t, "get after a refused delete", get(t, app, bucket, "object"))

	for range 3 {
		must(t, e.revoke(id, first.account))
		refused(t, "get after revoke", get(t, app, bucket, "object"))
	}
	owner := e.owner(contract)
	allowed(t, "owner's remove", remove(t, owner, bucket, "object"))
	for range 3 {
		must(t, e.delete(id))
	}
	if code := e.api(http.MethodGet, "/v1/contracts/"+contract, nil, nil); code != http.StatusNotFound {
		t.Errorf("the contract is still there (HTTP %d), its terms say cancel", code)
	}
	if n := e.metric("contract_cosi_contract_changes_total", `change="cancelled"`); n != 1 {
		t.Errorf("%v contracts cancelled in the metric", n)
	}
	if n := e.metric("contract_cosi_contracts") + e.metric("contract_cosi_buckets") + e.metric("contract_cosi_keys"); n != 0 {
		t.Errorf("%v buckets and keys are left in the journal", n)
	}
	// The same name again is a new life: a new contract and another key.
	id = e.mustCreate(bucket, class)
	if again := e.mustGrant(id, "ba-1", nil); again.key == first.key || again.secret == first.secret {
		t.Error("a key of an earlier life came back")
	}
	must(t, e.delete(id))
}

func TestModes(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	bucket := contract + "-modes"
	id := e.mustCreate(bucket, map[string]string{"contract": contract})
	full := e.mustGrant(id, "ba-full", nil).client()
	reader := e.mustGrant(id, "ba-reader", map[string]string{"access": "ReadOnly"}).client()
	writer := e.mustGrant(id, "ba-writer", map[string]string{"access": "WriteOnly"}).client()
	allowed(t, "full put", put(t, full, bucket, "a"))

	allowed(t, "reader get", get(t, reader, bucket, "a"))
	allowed(t, "reader list", list(t, reader, bucket, ""))
	refused(t, "reader put", put(t, reader, bucket, "a"))
	refused(t, "reader remove", remove(t, reader, bucket, "a"))

	allowed(t, "writer put", put(t, writer, bucket, "b"))
	refused(t, "writer get", get(t, writer, bucket, "b"))
	refused(t, "writer list", list(t, writer, bucket, ""))
	allowed(t, "writer remove", remove(t, writer, bucket, "b"))

	for who, c := range map[string]*s3.Client{"full": full, "reader": reader, "writer": writer} {
		_, err := c.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &bucket})
		refused(t, who+" delete bucket", err)
		_, err = c.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &bucket,
			VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
		refused(t, who+" versioning", err)
		_, err = c.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket + "-more")})
		refused(t, who+" create bucket", err)
	}
}

func TestPrefixAndSourceIP(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	bucket := contract + "-scope"
	id := e.mustCreate(bucket, map[string]string{"contract": contract})
	in := e.mustGrant(id, "ba-in", map[string]string{"prefix": "in/"}).client()
	allowed(t, "put below", put(t, in, bucket, "in/a"))
	allowed(t, "list below", list(t, in, bucket, "in/"))
	refused(t, "put beside", put(t, in, bucket, "out/a"))
	refused(t, "list all", list(t, in, bucket, ""))

	here := e.mustGrant(id, "ba-here", map[string]string{"sourceIP": "127.0.0.0/8,::1"}).client()
	allowed(t, "from here", put(t, here, bucket, "in/b"))
	elsewhere := e.mustGrant(id, "ba-elsewhere", map[string]string{"sourceIP": "192.0.2.0/24"}).client()
	refused(t, "from elsewhere", put(t, elsewhere, bucket, "in/c"))
}

func TestNeighbours(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	a, b := newContract(), newContract()
	mine := e.mustCreate(a+"-mine", map[string]string{"contract": a})
	e.mustCreate(a+"-sibling", map[string]string{"contract": a})
	e.mustCreate(b+"-other", map[string]string{"contract": b})
	app := e.mustGrant(mine, "ba-1", nil).client()
	allowed(t, "own bucket", put(t, app, a+"-mine", "x"))
	for _, bucket := range []string{a + "-sibling", b + "-other"} {
		refused(t, bucket+" put", put(t, app, bucket, "x"))
		refused(t, bucket+" get", get(t, app, bucket, "x"))
		refused(t, bucket+" list", list(t, app, bucket, ""))
	}
	_, err := app.ListBuckets(t.Context(), &s3.ListBucketsInput{})
	refused(t, "list buckets", err)
	// And the contract's own key means nothing in the other contract.
	refused(t, "owner of the other contract", put(t, e.owner(a), b+"-other", "x"))
}

func TestBucketOptions(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	bucket := contract + "-options"
	e.mustCreate(bucket, map[string]string{
		"contract": contract, "versioning": "Enabled", "tags": "stage=test,cost=42", "region": "us-east-1",
		"policy": `{"Version":"2012-10-17","Statement":[{"Sid":"open","Effect":"Allow","Principal":"*","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::${bucket}/public/*"]}]}`,
	})
	owner := e.owner(contract)
	versioning, err := owner.GetBucketVersioning(t.Context(), &s3.GetBucketVersioningInput{Bucket: &bucket})
	if err != nil || versioning.Status != types.BucketVersioningStatusEnabled {
		t.Errorf("versioning: %v, %v", versioning, err)
	}
	tags, err := owner.GetBucketTagging(t.Context(), &s3.GetBucketTaggingInput{Bucket: &bucket})
	must(t, err)
	have := map[string]string{}
	for _, tag := range tags.TagSet {
		have[*tag.Key] = *tag.Value
	}
	if len(have) != 3 || have["stage"] != "test" || have["cost"] != "42" || have[cosi.OwnerTag] != "example-cluster" {
		t.Errorf("tags: %v", have)
	}
	policy, err := owner.GetBucketPolicy(t.Context(), &s3.GetBucketPolicyInput{Bucket: &bucket})
	must(t, err)
	var doc struct {
		Statement []struct {
			Sid      string
			Resource []string
		}
	}
	must(t, json.Unmarshal([]byte(*policy.Policy), &doc))
	if len(doc.Statement) != 1 || doc.Statement[0].Resource[0] != "arn:aws:s3:::"+bucket+"/public/*" {
		t.Errorf("policy: %s", *policy.Policy)
	}
	// The owner still owns a bucket with a policy, and the public only what it says.
	allowed(t, "owner put", put(t, owner, bucket, "public/a"))
	allowed(t, "owner put", put(t, owner, bucket, "private/a"))
	for path, want := range map[string]int{"/public/a": http.StatusOK, "/private/a": http.StatusForbidden} {
		resp, err := http.Get(contractd.S3 + "/" + bucket + path)
		must(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("public read of %s: HTTP %d, want %d", path, resp.StatusCode, want)
		}
	}
}

func TestCannedACL(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	bucket := contract + "-acl"
	e.mustCreate(bucket, map[string]string{"contract": contract, "acl": "public-read"})
	owner := e.owner(contract)
	acl, err := owner.GetBucketAcl(t.Context(), &s3.GetBucketAclInput{Bucket: &bucket})
	must(t, err)
	if !slices.ContainsFunc(acl.Grants, func(g types.Grant) bool {
		return g.Grantee.Type == types.TypeGroup && g.Permission == types.PermissionRead
	}) {
		t.Errorf("acl: %+v", acl.Grants)
	}
}

func TestExplicitGrants(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract, other := newContract(), newContract()
	e.mustCreate(other+"-x", map[string]string{"contract": other})
	var guest struct{ Principal string }
	if code := e.api(http.MethodGet, "/v1/contracts/"+other, nil, &guest); code != http.StatusOK || guest.Principal == "" {
		t.Fatalf("HTTP %d, principal %q", code, guest.Principal)
	}
	bucket := contract + "-grants"
	e.mustCreate(bucket, map[string]string{"contract": contract, "grantRead": "id=" + guest.Principal, "grantFullControl": "id=" + guest.Principal})
	acl, err := e.owner(contract).GetBucketAcl(t.Context(), &s3.GetBucketAclInput{Bucket: &bucket})
	must(t, err)
	var have []string
	for _, g := range acl.Grants {
		if aws.ToString(g.Grantee.ID) == guest.Principal {
			have = append(have, string(g.Permission))
		}
	}
	slices.Sort(have)
	if !slices.Equal(have, []string{"FULL_CONTROL", "READ"}) {
		t.Errorf("the guest has %v in %+v", have, acl.Grants)
	}
	allowed(t, "guest list", list(t, e.owner(other), bucket, ""))
	_, err = e.create(contract+"-nobody", map[string]string{"contract": contract, "grantRead": "id=nobody"})
	expectCode(t, err, codes.InvalidArgument, "nobody")
	if slices.Contains(e.buckets(contract), contract+"-nobody") {
		t.Error("a bucket that could not be configured was left behind")
	}
}

// A create whose last step is refused leaves no bucket, no record, and the
// name is free for a class that works.
func TestCreateIsAllOrNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	bucket := contract + "-half"
	bad := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"no-such-principal"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::${bucket}/*"}]}`
	_, err := e.create(bucket, map[string]string{"contract": contract, "policy": bad, "tags": "a=b"})
	expectCode(t, err, codes.InvalidArgument, "PutBucketPolicy", bucket)
	if got := e.buckets(contract); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
	if n := e.metric("contract_cosi_buckets"); n != 0 {
		t.Errorf("%v records left behind", n)
	}
	e.mustCreate(bucket, map[string]string{"contract": contract})
}

func TestEmptyOnDelete(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	bucket := contract + "-full"
	id := e.mustCreate(bucket, map[string]string{"contract": contract, "versioning": "Enabled", "onDelete": "empty"})
	g := e.mustGrant(id, "ba-1", nil)
	app := g.client()
	for _, object := range []string{"a", "b/c", "a", "a"} {
		allowed(t, "put", put(t, app, bucket, object))
	}
	allowed(t, "remove", remove(t, app, bucket, "a"))
	_, err := app.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &bucket, Key: aws.String("upload")})
	allowed(t, "unfinished upload", err)
	must(t, e.delete(id))
	refused(t, "the key after delete", put(t, app, bucket, "x"))
	if got := e.buckets(contract); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	if got := e.keys(contract); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	must(t, e.revoke(id, g.account)) // the sidecar may come later
}

// Delete takes back every key it gave on the bucket, since the sidecar may
// never ask for it.
func TestDeleteRevokes(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	id := e.mustCreate(contract+"-a", map[string]string{"contract": contract})
	other := e.mustCreate(contract+"-b", map[string]string{"contract": contract})
	e.mustGrant(id, "ba-1", nil)
	e.mustGrant(id, "ba-2", nil)
	stays := e.mustGrant(other, "ba-3", nil)
	must(t, e.delete(id))
	left := e.keys(contract)
	if len(left) != 1 || left[0].Spec.Slot != "ba-3" {
		t.Errorf("keys left: %+v", left)
	}
	allowed(t, "the other bucket's key", put(t, stays.client(), contract+"-b", "x"))
	if n := e.metric("contract_cosi_keys"); n != 1 {
		t.Errorf("%v keys in the journal", n)
	}
	if _, err := e.grant(id, "ba-4", nil); err == nil {
		t.Error("a grant on a deleted bucket")
	}
}

func TestRepeatsSurviveRestart(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	class := map[string]string{"contract": contract, "tags": "b=2,a=1"}
	id := e.mustCreate(contract+"-x", class)
	g := e.mustGrant(id, "ba-1", map[string]string{"access": "ReadOnly"})
	e.stop()
	e.start()
	if again := e.mustCreate(contract+"-x", class); again != id {
		t.Errorf("bucket id %q became %q", id, again)
	}
	if again := e.mustGrant(id, "ba-1", map[string]string{"access": "ReadOnly"}); again != g {
		t.Error("the key has changed")
	}
	must(t, e.revoke(id, g.account))
	must(t, e.delete(id))
}

func TestOtherParametersUnderTheSameName(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	id := e.mustCreate(contract+"-x", map[string]string{"contract": contract, "tags": "a=1"})
	_, err := e.create(contract+"-x", map[string]string{"contract": contract, "tags": "a=2", "versioning": "Enabled"})
	expectCode(t, err, codes.AlreadyExists, "tags, versioning differ")
	g := e.mustGrant(id, "ba-1", nil)
	// ALREADY_EXISTS here would crash the released sidecar.
	_, err = e.grant(id, "ba-1", map[string]string{"access": "ReadOnly"})
	expectCode(t, err, codes.FailedPrecondition, "granted otherwise")
	if again := e.mustGrant(id, "ba-1", nil); again != g {
		t.Error("the refused grant changed the key")
	}
}

func TestForeignBuckets(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract, other := newContract(), newContract()
	e.mustCreate(contract+"-first", map[string]string{"contract": contract})
	e.mustCreate(other+"-first", map[string]string{"contract": other})
	owner := e.owner(contract)
	for name, c := range map[string]*s3.Client{
		contract + "-by-hand":  owner,
		contract + "-by-other": e.owner(other),
	} {
		_, err := c.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name})
		must(t, err)
		allowed(t, "put", put(t, c, name, "precious"))
		for range 2 {
			_, err = e.create(name, map[string]string{"contract": contract, "onDelete": "empty"})
			expectCode(t, err, codes.FailedPrecondition, "choose another name")
		}
		id := "main." + contract + "." + name
		_, err = e.grant(id, "ba-1", nil)
		expectCode(t, err, codes.NotFound, "not made by this driver")
		if err := e.delete(id); c == owner {
			expectCode(t, err, codes.FailedPrecondition, "not made by this driver")
		}
		allowed(t, name+" is untouched", get(t, c, name, "precious"))
	}
}

// A key that someone took away at the service does not stop the contract.
func TestContractKeyLost(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	e.mustCreate(contract+"-a", map[string]string{"contract": contract})
	if code := e.api(http.MethodDelete, "/v1/contracts/"+contract+"/keys?slot="+cosi.ContractSlot, nil, nil); code != http.StatusNoContent {
		t.Fatalf("HTTP %d", code)
	}
	e.mustCreate(contract+"-b", map[string]string{"contract": contract})
	if n := e.metric("contract_cosi_repairs_total", `what="contract-key"`); n != 1 {
		t.Errorf("%v repairs in the metric", n)
	}
	if !strings.Contains(e.logs.String(), "The service no longer has a key") {
		t.Error("the log does not say so")
	}
	// The same when the next call is a delete: the bucket goes, not only its record.
	e.api(http.MethodDelete, "/v1/contracts/"+contract+"/keys?slot="+cosi.ContractSlot, nil, nil)
	must(t, e.delete("main."+contract+"."+contract+"-a"))
	if got := e.buckets(contract); !slices.Equal(got, []string{contract + "-b"}) {
		t.Errorf("buckets: %v", got)
	}
}

// A bucket that took the name of one of the driver's is not emptied.
func TestReplacedBucketIsNotEmptied(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	bucket := contract + "-x"
	id := e.mustCreate(bucket, map[string]string{"contract": contract, "onDelete": "empty"})
	owner := e.owner(contract)
	_, err := owner.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &bucket})
	must(t, err)
	_, err = owner.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket})
	must(t, err)
	allowed(t, "put", put(t, owner, bucket, "precious"))
	expectCode(t, e.delete(id), codes.FailedPrecondition, "it is left alone")
	allowed(t, "get", get(t, owner, bucket, "precious"))
}
