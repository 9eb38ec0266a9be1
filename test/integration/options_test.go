package integration

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"google.golang.org/grpc/codes"

	"github.com/contract-cosi/contract-cosi-driver/pkg/admin"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal"
	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
)

// A class that asks for what the storage does not have makes nothing, through
// either version of COSI, and the answer names all that is missing.
func TestOptionsTheStorageLacks(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	class := map[string]string{"contract": contract, "expireAfterDays": "30", "tags": "stage=test"}
	_, err := e.create(contract+"-1", class)
	expectCode(t, err, codes.InvalidArgument, contract+"-1", "the storage has no lifecycle (expireAfterDays); leave it out of the class, or of the settings")
	_, err = v2{e}.create(contract+"-2", class)
	expectCode(t, err, codes.InvalidArgument, "has no lifecycle")
	if left := e.buckets(contract); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	// What is not known yet is asked of a bucket that is there.
	e.mustCreate(contract+"-3", map[string]string{"contract": contract})
	e.line.Heal()
	_, err = e.create(contract+"-4", map[string]string{"contract": contract, "blockPublicAccess": "all", "encryption": "AES256"})
	expectCode(t, err, codes.InvalidArgument, "has no blockPublicAccess, encryption")
	for _, call := range e.line.Calls() {
		if call == "PUT /"+contract+"-4" {
			t.Error("the bucket was made before it was asked")
		}
	}
}

func TestMismatchNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, onDemand), newLife()
	l.class = map[string]string{"contract": l.contract, "versioning": "Enabled", "grantRead": "id=" + e.code(newContract()), "corsOrigins": "https://a.example.com"}
	must(t, l.create(t, e.conn))
	must(t, l.create(t, e.conn))
	_, err := e.create(l.bucket, map[string]string{"contract": l.contract, "versioning": "Enabled", "corsOrigins": "https://b.example.com", "websiteIndex": "x"})
	expectCode(t, err, codes.AlreadyExists, "corsOrigins, grantRead, websiteIndex differ")
	must(t, l.grant(t, e.conn))
	_, err = v2{e}.grant("ba-1", bucketModes{l.id: readWrite}, map[string]string{"sourceIP": "10.0.0.0/8", "keyLife": "1h"})
	expectCode(t, err, codes.AlreadyExists, "sourceIP, keyLife differ")
}

// code is how the storage names a contract, which it signs if need be.
func (e *env) code(contract string) string {
	e.Helper()
	var have struct{ Code string }
	if code := e.api(http.MethodPut, "/v1/contracts/"+contract, map[string]any{"owner": "example-cluster"}, &have); code >= 300 {
		e.Fatalf("HTTP %d", code)
	}
	return have.Code
}

func TestActionsAndPrefixes(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, onDemand), newLife()
	l.class = map[string]string{"contract": l.contract}
	must(t, l.create(t, e.conn))
	full := e.mustGrant(l.id, "ba-full", nil).client()
	allowed(t, "put", put(t, full, l.bucket, "in/a"))
	allowed(t, "put", put(t, full, l.bucket, "other/a"))

	two := e.mustGrant(l.id, "ba-two", map[string]string{"prefixes": "in/, out/"}).client()
	allowed(t, "put below the first", put(t, two, l.bucket, "in/b"))
	allowed(t, "put below the second", put(t, two, l.bucket, "out/b"))
	allowed(t, "list below the second", list(t, two, l.bucket, "out/"))
	refused(t, "put beside", put(t, two, l.bucket, "other/b"))
	refused(t, "list all", list(t, two, l.bucket, ""))

	writer := e.mustGrant(l.id, "ba-actions", map[string]string{"actions": "s3:PutObject,s3:ListBucket"}).client()
	allowed(t, "put", put(t, writer, l.bucket, "in/c"))
	allowed(t, "list", list(t, writer, l.bucket, ""))
	refused(t, "get", get(t, writer, l.bucket, "in/a"))
	refused(t, "remove", remove(t, writer, l.bucket, "in/a"))

	// The mode that a BucketAccess asks for stays a bound.
	g, err := v2{e}.grant("ba-both", bucketModes{l.id: readOnly}, map[string]string{"actions": "s3:PutObject,s3:GetObject"})
	must(t, err)
	allowed(t, "get", get(t, g.client(), l.bucket, "in/a"))
	refused(t, "put", put(t, g.client(), l.bucket, "in/d"))
	refused(t, "list", list(t, g.client(), l.bucket, ""))
	_, err = v2{e}.grant("ba-none", bucketModes{l.id: readOnly}, map[string]string{"actions": "s3:PutObject"})
	expectCode(t, err, codes.InvalidArgument, "allows none of the actions")
}

// The service ends a key by itself; the driver neither hands it out again nor
// replaces it.
func TestKeyLife(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, onDemand), newLife()
	must(t, l.create(t, e.conn))
	before := time.Now()
	g := e.mustGrant(l.id, "ba-1", map[string]string{"keyLife": "36h"})
	if again := e.mustGrant(l.id, "ba-1", map[string]string{"keyLife": "36h"}); again != g {
		t.Error("a repeated grant gave something else")
	}
	allowed(t, "put", put(t, g.client(), l.bucket, "x"))
	var page struct {
		Items []struct {
			Spec struct {
				Slot      string
				ExpiresAt time.Time
			}
		}
	}
	e.api(http.MethodGet, "/v1/contracts/"+l.contract+"/keys?pageSize=500", nil, &page)
	for _, k := range page.Items {
		if life := k.Spec.ExpiresAt.Sub(before); k.Spec.Slot == "ba-1" && (life < 36*time.Hour-time.Minute || life > 36*time.Hour+time.Minute) {
			t.Errorf("the service ends the key at %s", k.Spec.ExpiresAt)
		}
	}

	// The same record, made 37 hours earlier.
	e.stop()
	store, err := filestore.Open(t.Context(), e.dir+"/journal.log", nil)
	must(t, err)
	id, err := cosi.ParseAccountID(g.account)
	must(t, err)
	record, err := journal.New(store).Account(t.Context(), id)
	must(t, err)
	record.CreatedAt = record.CreatedAt.Add(-37 * time.Hour)
	must(t, journal.New(store).SaveAccount(t.Context(), record))
	must(t, store.Close())
	e.start()
	_, err = e.grant(l.id, "ba-1", map[string]string{"keyLife": "36h"})
	expectCode(t, err, codes.FailedPrecondition, "has ended at", "keyLife")
	if got := e.keys(l.contract); len(got) != 1 || got[0].AccessKeyID != g.key {
		t.Errorf("keys: %+v", got)
	}
	must(t, e.revoke(l.id, g.account))
	must(t, remove(t, e.owner(l.contract), l.bucket, "x"))
	must(t, l.delete(t, e.conn))
}

// Options that cannot be taken back in the life of one bucket are kept over
// repeats, and the object lock is the storage's own.
func TestObjectLock(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, onDemand), newLife()
	l.class = map[string]string{"contract": l.contract, "objectLock": "GOVERNANCE:1d"}
	must(t, l.create(t, e.conn))
	must(t, l.create(t, e.conn))
	must(t, l.grant(t, e.conn))
	allowed(t, "put", put(t, l.granted.client(), l.bucket, "x"))
	owner := e.owner(l.contract)
	versions, err := owner.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &l.bucket})
	must(t, err)
	if len(versions.Versions) != 1 {
		t.Fatalf("%d versions", len(versions.Versions))
	}
	v := versions.Versions[0]
	_, err = owner.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &l.bucket, Key: v.Key, VersionId: v.VersionId})
	if err == nil {
		t.Error("a locked version was deleted")
	}
}

// A quota of one bucket from its class and the contract's defaults: kept by the
// storage, told by commands and metrics, brought back, changed in place, taken away.
func TestBucketQuota(t *testing.T) {
	t.Parallel()
	contract := newContract()
	bucket := contract + "-a"
	terms := "contracts:\n  - {name: " + contract + ", backend: main, defaults: {bucketClass: {maxBytes: 64Ki}}}\n"
	e := newEnv(t, terms+driftEachSecond("repair"))
	class := map[string]string{"contract": contract, "maxObjects": "2"}
	id := e.mustCreate(bucket, class)
	c := e.mustGrant(id, "ba-1", nil).client()
	path := "/v1/contracts/" + contract + "/buckets/" + bucket
	quota := func() string {
		var have struct{ Quota json.RawMessage }
		if code := e.api(http.MethodGet, path, nil, &have); code != http.StatusOK {
			e.Fatalf("HTTP %d", code)
		}
		return string(have.Quota)
	}
	full := func() bool {
		err := put(t, c, bucket, "c")
		return err != nil && strings.Contains(err.Error(), "QuotaExceeded")
	}
	allowed(t, "the first", put(t, c, bucket, "a"))
	allowed(t, "the second", put(t, c, bucket, "b"))
	if !full() {
		t.Error("the third of two objects was put")
	}
	of := []string{`contract="` + contract + `"`, `bucket="` + bucket + `"`, `namespace=""`, `claim=""`}
	e.until(func() bool { return e.metric("contract_cosi_bucket_objects", of...) == 2 })
	if e.metric("contract_cosi_bucket_max_objects", of...) != 2 || e.metric("contract_cosi_bucket_max_bytes", of...) != 64<<10 || e.metric("contract_cosi_bucket_bytes", of...) == 0 {
		t.Error("the metrics do not tell the bounds")
	}
	items := report[admin.Bucket](e, 0, "buckets")
	if len(items) != 1 || *items[0].Used.Objects != 2 || *items[0].Quota.Objects != 2 || *items[0].Quota.Bytes != 64<<10 || *items[0].Used.Bytes == 0 {
		t.Errorf("the command tells %+v", items)
	}
	if stdout, _, _ := e.tool("buckets"); !strings.Contains(stdout, " of 65536  2 of 2 ") {
		t.Errorf("the table is\n%s", stdout)
	}

	// Someone lifts it at the service.
	if code := e.api(http.MethodPut, path+"/quota", map[string]any{}, nil); code != http.StatusOK {
		t.Fatalf("HTTP %d", code)
	}
	e.until(func() bool { return e.found("quota", true) > 0 })
	e.until(full)

	// The defaults change, and then there are none.
	for _, c := range []struct{ before, now, want string }{
		{"maxBytes: 64Ki", "maxBytes: 1Ki", `{"maxBytes":1024,"maxObjects":2}`}, {"maxBytes: 1Ki", "maxObjects: '9'", `{"maxObjects":2}`},
	} {
		e.stop()
		writeFile(t, e.configFile, strings.Replace(readFile(t, e.configFile), c.before, c.now, 1))
		e.start()
		e.mustCreate(bucket, class)
		if got := quota(); got != c.want {
			t.Errorf("with %s: %s, want %s", c.now, got, c.want)
		}
	}
	_, err := e.create(bucket, map[string]string{"contract": contract, "maxObjects": "3"})
	expectCode(t, err, codes.AlreadyExists, "maxObjects differ")
	for _, c := range []struct{ name, value, says string }{
		{"maxBytes", "1.5Gi", "is not a number of bytes such as 500Mi or 2Ti"}, {"maxBytes", "1000", "1000 is not a multiple of 1024; use a suffix such as Ki or Mi"},
		{"maxBytes", "0", "is not a number of bytes"}, {"maxBytes", "9223372036854775808", "is not a number of bytes"}, {"maxBytes", "-1Ki", "is not a number of bytes"},
		{"maxObjects", "0", "is not a number of objects"}, {"maxObjects", "1e3", "is not a number of objects"},
	} {
		_, err := e.create(contract+"-b", map[string]string{"contract": contract, c.name: c.value})
		expectCode(t, err, codes.InvalidArgument, c.name+": ", c.says)
	}
}
