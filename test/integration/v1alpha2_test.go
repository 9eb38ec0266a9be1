package integration

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"google.golang.org/grpc/codes"

	"github.com/contract-cosi/contract-cosi-driver/pkg/admin"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
)

// v2 makes v1alpha2 calls to a driver.
type v2 struct{ *env }

func (e v2) client() cosipb.ProvisionerClient { return cosipb.NewProvisionerClient(e.conn) }

func s3Protocol() *cosipb.ObjectProtocol {
	return &cosipb.ObjectProtocol{Type: cosipb.ObjectProtocol_S3}
}

func (e v2) create(name string, parameters map[string]string) (*cosipb.DriverCreateBucketResponse, error) {
	return e.client().DriverCreateBucket(e.Context(), &cosipb.DriverCreateBucketRequest{
		Name: name, Protocols: []*cosipb.ObjectProtocol{s3Protocol()}, Parameters: parameters,
	})
}

func (e v2) mustCreate(name string, parameters map[string]string) string {
	e.Helper()
	resp, err := e.create(name, parameters)
	must(e, err)
	return resp.GetBucketId()
}

func (e v2) existing(id string, parameters map[string]string) (*cosipb.DriverGetExistingBucketResponse, error) {
	return e.client().DriverGetExistingBucket(e.Context(), &cosipb.DriverGetExistingBucketRequest{
		ExistingBucketId: id, Protocols: []*cosipb.ObjectProtocol{s3Protocol()}, Parameters: parameters,
	})
}

// bucketModes are the buckets of a grant.
type bucketModes map[string]cosipb.AccessMode_Mode

func grantRequest(account string, buckets bucketModes, parameters map[string]string) *cosipb.DriverGrantBucketAccessRequest {
	req := &cosipb.DriverGrantBucketAccessRequest{
		AccountName: account, Protocol: s3Protocol(), Parameters: parameters,
		AuthenticationType: &cosipb.AuthenticationType{Type: cosipb.AuthenticationType_KEY},
	}
	for id, mode := range buckets { // in an order that changes, as the sidecar's does
		req.Buckets = append(req.Buckets, &cosipb.DriverGrantBucketAccessRequest_AccessedBucket{BucketId: id, AccessMode: &cosipb.AccessMode{Mode: mode}})
	}
	return req
}

// grant checks the rules of the response that the sidecar checks, whose breach
// is terminal there, and returns what it would write into the Secrets.
func (e v2) grant(account string, buckets bucketModes, parameters map[string]string) (granted, error) {
	e.Helper()
	resp, err := e.client().DriverGrantBucketAccess(e.Context(), grantRequest(account, buckets, parameters))
	if err != nil {
		return granted{}, err
	}
	c := resp.GetCredentials()
	if c.GetS3() == nil || c.GetAzure() != nil || c.GetGcs() != nil {
		e.Error("the credentials are not those of S3 alone")
	}
	g := granted{account: resp.GetAccountId(), key: c.GetS3().GetAccessKeyId(), secret: c.GetS3().GetAccessSecretKey()}
	var answered []string
	for _, b := range resp.GetBuckets() {
		answered = append(answered, b.GetBucketId())
		info := b.GetBucketInfo()
		e.completeInfo(info, b.GetBucketId())
		g.endpoint, g.region = info.GetS3().GetEndpoint(), info.GetS3().GetRegion()
	}
	slices.Sort(answered)
	if want := slices.Sorted(maps.Keys(buckets)); !slices.Equal(answered, want) {
		e.Errorf("info for buckets %v, want exactly %v", answered, want)
	}
	if slices.Contains([]string{g.account, g.endpoint, g.region, g.key, g.secret}, "") {
		e.Error("an incomplete grant")
	}
	return g, nil
}

func (e v2) completeInfo(info *cosipb.ObjectProtocolAndBucketInfo, id string) {
	e.Helper()
	s := info.GetS3()
	if info.GetAzure() != nil || info.GetGcs() != nil {
		e.Error("info of a protocol that is not supported")
	}
	if !strings.HasSuffix(id, "."+s.GetBucketId()) || s.GetBucketId() == "" || s.GetEndpoint() == "" || s.GetRegion() == "" ||
		s.GetAddressingStyle().GetStyle() != cosipb.S3AddressingStyle_PATH {
		e.Errorf("incomplete info of %s: %v", id, s)
	}
}

func (e v2) mustGrant(account string, buckets bucketModes) granted {
	e.Helper()
	g, err := e.grant(account, buckets, nil)
	must(e, err)
	return g
}

func (e v2) revoke(account string, ids ...string) error {
	req := &cosipb.DriverRevokeBucketAccessRequest{AccountId: account, Protocol: s3Protocol()}
	for _, id := range ids {
		req.Buckets = append(req.Buckets, &cosipb.DriverRevokeBucketAccessRequest_AccessedBucket{BucketId: id})
	}
	_, err := e.client().DriverRevokeBucketAccess(e.Context(), req)
	return err
}

func (e v2) delete(id string, parameters map[string]string) error {
	_, err := e.client().DriverDeleteBucket(e.Context(), &cosipb.DriverDeleteBucketRequest{BucketId: id, Parameters: parameters})
	return err
}

const (
	readWrite = cosipb.AccessMode_READ_WRITE
	readOnly  = cosipb.AccessMode_READ_ONLY
	writeOnly = cosipb.AccessMode_WRITE_ONLY
)

func TestV1alpha2EveryCallRepeated(t *testing.T) {
	t.Parallel()
	e := v2{newEnv(t, cancelling)}
	info, err := cosipb.NewIdentityClient(e.conn).DriverGetInfo(t.Context(), &cosipb.DriverGetInfoRequest{})
	must(t, err)
	if p := info.GetSupportedProtocols(); info.GetName() != "contract.cosi.example.com" || len(p) != 1 || p[0].GetType() != cosipb.ObjectProtocol_S3 {
		t.Errorf("driver info: %v", info)
	}
	contract := newContract()
	class := map[string]string{"contract": contract}
	for range 3 {
		resp, err := e.create(contract+"-data", class)
		must(t, err)
		if want := "main." + contract + "." + contract + "-data"; resp.GetBucketId() != want {
			t.Errorf("bucket id %q, want %q", resp.GetBucketId(), want)
		}
		e.completeInfo(resp.GetProtocols(), resp.GetBucketId())
	}
	id := "main." + contract + "." + contract + "-data"
	_, err = e.create(contract+"-data", map[string]string{"contract": contract, "versioning": "Enabled"})
	expectCode(t, err, codes.AlreadyExists, "versioning differ")

	first := e.mustGrant("ba-1", bucketModes{id: readWrite})
	for range 2 {
		if again := e.mustGrant("ba-1", bucketModes{id: readWrite}); again != first {
			t.Error("a repeated grant gave something else")
		}
	}
	_, err = e.grant("ba-1", bucketModes{id: readOnly}, nil)
	expectCode(t, err, codes.AlreadyExists, "granted otherwise")
	app := first.client()
	allowed(t, "put", put(t, app, contract+"-data", "x"))
	expectCode(t, e.delete(id, class), codes.FailedPrecondition, "still holds objects")
	allowed(t, "remove", remove(t, app, contract+"-data", "x"))
	for range 3 {
		must(t, e.revoke(first.account, id))
		refused(t, "put after revoke", put(t, app, contract+"-data", "x"))
	}
	for range 3 {
		must(t, e.delete(id, class))
	}
	if code := e.api(http.MethodGet, "/v1/contracts/"+contract, nil, nil); code != http.StatusNotFound {
		t.Errorf("the contract is left (HTTP %d)", code)
	}
}

// One key for several buckets, with a mode for each.
func TestSeveralBuckets(t *testing.T) {
	t.Parallel()
	e := v2{newEnv(t, onDemand)}
	contract, other := newContract(), newContract()
	class := map[string]string{"contract": contract}
	both, in, out := contract+"-both", contract+"-in", contract+"-out"
	ids := bucketModes{e.mustCreate(both, class): readWrite, e.mustCreate(in, class): readOnly, e.mustCreate(out, class): writeOnly}
	e.mustCreate(contract+"-none", class)
	elsewhere := e.mustCreate(other+"-x", map[string]string{"contract": other})

	g := e.mustGrant("ba-several", ids)
	for range 5 { // in other orders
		if again := e.mustGrant("ba-several", ids); again != g {
			t.Fatal("a repeated grant gave something else")
		}
	}
	app, owner := g.client(), e.owner(contract)
	allowed(t, "owner put", put(t, owner, in, "a"))
	allowed(t, "read-write put", put(t, app, both, "a"))
	allowed(t, "read-write get", get(t, app, both, "a"))
	allowed(t, "read-only get", get(t, app, in, "a"))
	refused(t, "read-only put", put(t, app, in, "a"))
	allowed(t, "write-only put", put(t, app, out, "a"))
	refused(t, "write-only get", get(t, app, out, "a"))
	refused(t, "bucket that was not asked for", put(t, app, contract+"-none", "a"))
	if n := len(e.keys(contract)); n != 1 {
		t.Errorf("%d keys, want one for all buckets", n)
	}

	_, err := e.grant("ba-across", bucketModes{"main." + contract + "." + both: readWrite, elsewhere: readWrite}, nil)
	expectCode(t, err, codes.InvalidArgument, "buckets of two contracts")

	// The key goes with the first bucket that is deleted.
	allowed(t, "remove", remove(t, owner, out, "a"))
	must(t, e.delete("main."+contract+"."+out, nil))
	refused(t, "the key of a deleted bucket", put(t, app, both, "b"))
	must(t, e.revoke(g.account, slices.Collect(maps.Keys(ids))...))
}

// An access that was granted under v1alpha1 and has another key since keeps working when
// the cluster moves to v1alpha2: the sidecar there is answered with the key of now, and
// takes it away.
func TestAccessMovesToV1alpha2(t *testing.T) {
	t.Parallel()
	e := v2{newEnv(t, onDemand)}
	contract := newContract()
	bucket := contract + "-a"
	id := e.env.mustCreate(bucket, map[string]string{"contract": contract})
	first := e.env.mustGrant(id, "ba-moved", nil)
	rotate := func() {
		report[admin.Key](e.env, 0, "rotate", "--access", "main."+contract+".ba-moved", "--grace", "0s")
	}
	rotate()
	moved := e.mustGrant("ba-moved", bucketModes{id: readWrite})
	if again := e.mustGrant("ba-moved", bucketModes{id: readWrite}); moved.key == first.key || again != moved {
		t.Errorf("v1alpha2 is answered with the key %s, then %s; v1alpha1 had %s", moved.key, again.key, first.key)
	}
	allowed(t, "put with the key of now", put(t, moved.client(), bucket, "a"))
	rotate() // which ends the rotation before it
	refused(t, "put with the first key", put(t, first.client(), bucket, "a"))
	last := e.mustGrant("ba-moved", bucketModes{id: readWrite})
	allowed(t, "put with the last key", put(t, last.client(), bucket, "a"))
	must(t, e.revoke(moved.account, id))
	refused(t, "put after the revocation", put(t, last.client(), bucket, "a"))
}

func TestV1alpha2BadRequests(t *testing.T) {
	t.Parallel()
	e := v2{newEnv(t, onDemand)}
	contract := newContract()
	class := map[string]string{"contract": contract}
	azure := &cosipb.ObjectProtocol{Type: cosipb.ObjectProtocol_AZURE}
	create := func(req *cosipb.DriverCreateBucketRequest) error {
		_, err := e.client().DriverCreateBucket(t.Context(), req)
		return err
	}
	for name, protocols := range map[string][]*cosipb.ObjectProtocol{"azure": {s3Protocol(), azure}, "unknown": {{}}, "beyond": {{Type: 77}}} {
		err := create(&cosipb.DriverCreateBucketRequest{Name: contract + "-x", Protocols: protocols, Parameters: class})
		t.Run("create/"+name, func(t *testing.T) { expectCode(t, err, codes.InvalidArgument, "not supported", "S3") })
	}
	expectCode(t, create(&cosipb.DriverCreateBucketRequest{}), codes.InvalidArgument, "bucket name", "contract is missing")
	if code := e.api(http.MethodGet, "/v1/contracts/"+contract, nil, nil); code != http.StatusNotFound {
		t.Errorf("bad requests signed a contract (HTTP %d)", code)
	}
	must(t, create(&cosipb.DriverCreateBucketRequest{Name: contract + "-x", Parameters: class})) // no protocol is any

	id := "main." + contract + "." + contract + "-x"
	good := func() *cosipb.DriverGrantBucketAccessRequest {
		return grantRequest("ba-1", bucketModes{id: readWrite}, nil)
	}
	for name, c := range map[string]struct {
		change func(*cosipb.DriverGrantBucketAccessRequest)
		code   codes.Code
		want   string
	}{
		"no protocol": {func(r *cosipb.DriverGrantBucketAccessRequest) { r.Protocol = nil }, codes.InvalidArgument, "S3"},
		"azure":       {func(r *cosipb.DriverGrantBucketAccessRequest) { r.Protocol = azure }, codes.InvalidArgument, "AZURE"},
		"no auth":     {func(r *cosipb.DriverGrantBucketAccessRequest) { r.AuthenticationType = nil }, codes.InvalidArgument, "authentication type"},
		"service account": {func(r *cosipb.DriverGrantBucketAccessRequest) {
			r.AuthenticationType.Type = cosipb.AuthenticationType_SERVICE_ACCOUNT
			r.ServiceAccountName = "sa"
		}, codes.InvalidArgument, "service account"},
		"no buckets":        {func(r *cosipb.DriverGrantBucketAccessRequest) { r.Buckets = nil }, codes.InvalidArgument, "no bucket"},
		"empty bucket":      {func(r *cosipb.DriverGrantBucketAccessRequest) { r.Buckets[0].BucketId = "" }, codes.InvalidArgument, "not one of this driver's"},
		"no mode":           {func(r *cosipb.DriverGrantBucketAccessRequest) { r.Buckets[0].AccessMode = nil }, codes.InvalidArgument, "access mode"},
		"unknown mode":      {func(r *cosipb.DriverGrantBucketAccessRequest) { r.Buckets[0].AccessMode.Mode = 77 }, codes.InvalidArgument, "access mode"},
		"twice":             {func(r *cosipb.DriverGrantBucketAccessRequest) { r.Buckets = append(r.Buckets, r.GetBuckets()[0]) }, codes.InvalidArgument, "named twice"},
		"class is stricter": {func(r *cosipb.DriverGrantBucketAccessRequest) { r.Parameters = map[string]string{"access": "ReadOnly"} }, codes.InvalidArgument, "allows ReadOnly only"},
		"bad parameter":     {func(r *cosipb.DriverGrantBucketAccessRequest) { r.Parameters = map[string]string{"prefx": "a"} }, codes.InvalidArgument, "did you mean prefix?"},
		"unknown bucket":    {func(r *cosipb.DriverGrantBucketAccessRequest) { r.Buckets[0].BucketId += "-not" }, codes.NotFound, "does not exist"},
	} {
		req := good()
		c.change(req)
		_, err := e.client().DriverGrantBucketAccess(t.Context(), req)
		t.Run("grant/"+name, func(t *testing.T) { expectCode(t, err, c.code, c.want) })
	}
	if n := len(e.keys(contract)); n != 0 {
		t.Errorf("bad requests issued %d keys", n)
	}
	for _, bad := range []string{"", "a/b", "other.team.name"} {
		expectCode(t, e.delete(bad, nil), codes.InvalidArgument)
		expectCode(t, e.revoke(bad, id), codes.InvalidArgument)
		_, err := e.existing(bad, nil)
		expectCode(t, err, codes.InvalidArgument)
	}
}

// What one version made, the other goes on with: a cluster's upgrade, and back.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	next := v2{e}
	contract := newContract()
	class := map[string]string{"contract": contract, "onDelete": "empty"}

	id := e.mustCreate(contract+"-old", class)
	old := e.mustGrant(id, "ba-old", nil)
	allowed(t, "put", put(t, old.client(), contract+"-old", "x"))
	e.stop()
	e.start() // the new pod
	if resp, err := next.create(contract+"-old", class); err != nil || resp.GetBucketId() != id {
		t.Errorf("created again through v1alpha2: %v, %v", resp, err)
	}
	if resp, err := next.existing(id, nil); err != nil || resp.GetBucketId() != id {
		t.Errorf("taken on through v1alpha2: %v, %v", resp, err)
	}
	if again := next.mustGrant("ba-old", bucketModes{id: readWrite}); again != old {
		t.Error("the application's key changed with the API version")
	}
	added := next.mustGrant("ba-added", bucketModes{id: readOnly})
	allowed(t, "the new key reads the old bucket", get(t, added.client(), contract+"-old", "x"))
	must(t, next.revoke(old.account, id))
	refused(t, "put after revoke", put(t, old.client(), contract+"-old", "x"))

	id2 := next.mustCreate(contract+"-new", class)
	back := next.mustGrant("ba-new", bucketModes{id2: readWrite})
	if again := e.mustGrant(id2, "ba-new", nil); again != back {
		t.Error("the application's key changed with the API version")
	}
	must(t, e.revoke(id2, back.account))
	refused(t, "put after revoke", put(t, back.client(), contract+"-new", "x"))
	must(t, e.delete(id2))

	// A Bucket object that does not say so keeps the data in v1alpha1 as well, if
	// its sidecar sends what it says.
	expectCode(t, deleteVia(e, e.conn, id, map[string]string{"contract": contract}), codes.FailedPrecondition, "still holds objects")

	// Deleted through v1alpha2 with its data, as the class said in v1alpha1; but
	// not by a Bucket object that does not say so.
	expectCode(t, next.delete(id, nil), codes.FailedPrecondition, "still holds objects")
	must(t, next.delete(id, class))
	if got := e.buckets(contract); len(got) != 0 {
		t.Errorf("buckets: %v", got)
	}
}

func TestDeleteContext(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	class := map[string]string{"contract": contract, "onDelete": "empty"}
	id := e.mustCreate(contract+"-x", class)
	allowed(t, "put", put(t, e.owner(contract), contract+"-x", "x"))
	expectCode(t, deleteVia(e, e.conn, id, map[string]string{"contract": contract, "onDelete": "refuse"}), codes.FailedPrecondition, "still holds objects")
	must(t, deleteVia(e, e.conn, id, class))
}

func TestAdoption(t *testing.T) {
	t.Parallel()
	contract, strict := newContract(), newContract()
	e := v2{newEnv(t, "contracts:\n  - {name: "+contract+", backend: main, adoptBuckets: true}\n  - {name: "+strict+", backend: main}\n")}
	idOf := func(bucket string) string { return "main." + contract + "." + bucket }

	// Nothing is signed for a bucket that cannot be there.
	_, err := e.existing(idOf(contract+"-hand"), nil)
	expectCode(t, err, codes.NotFound, "does not exist")
	if code := e.api(http.MethodGet, "/v1/contracts/"+contract, nil, nil); code != http.StatusNotFound {
		t.Errorf("a contract was signed for a bucket that is not there (HTTP %d)", code)
	}
	e.mustCreate(contract+"-first", map[string]string{"contract": contract})
	e.mustCreate(strict+"-first", map[string]string{"contract": strict})
	owner := e.owner(contract)
	byHand := func(c *s3.Client, bucket string, tags ...types.Tag) {
		_, err := c.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket, CreateBucketConfiguration: &types.CreateBucketConfiguration{Tags: tags}})
		must(t, err)
		allowed(t, "put", put(t, c, bucket, "precious"))
	}
	for range 2 {
		_, err = e.existing(idOf(contract+"-hand"), nil)
		expectCode(t, err, codes.NotFound, "does not exist")
	}
	hand := contract + "-hand"
	byHand(owner, hand)
	byHand(e.owner(strict), strict+"-hand")
	_, err = e.existing("main."+strict+"."+strict+"-hand", nil)
	expectCode(t, err, codes.FailedPrecondition, "adoptBuckets")

	// What the parameters ask for and the bucket does not have is named, and
	// nothing is changed.
	_, err = e.existing(idOf(hand), map[string]string{"versioning": "Enabled", "tags": "a=b"})
	expectCode(t, err, codes.AlreadyExists, "versioning, tags differ")
	_, err = e.existing(idOf(hand), map[string]string{"contract": strict})
	expectCode(t, err, codes.InvalidArgument, "its parameters name")
	for range 3 {
		resp, err := e.existing(idOf(hand), nil)
		must(t, err)
		if resp.GetBucketId() != idOf(hand) {
			t.Errorf("bucket id %q", resp.GetBucketId())
		}
		e.completeInfo(resp.GetProtocols(), resp.GetBucketId())
	}
	versioning, err := owner.GetBucketVersioning(t.Context(), &s3.GetBucketVersioningInput{Bucket: &hand})
	if err != nil || versioning.Status != "" {
		t.Errorf("adoption changed the bucket: %v, %v", versioning, err)
	}
	g := e.mustGrant("ba-1", bucketModes{idOf(hand): readOnly})
	allowed(t, "get", get(t, g.client(), hand, "precious"))

	// A claim cannot get hold of it by its name.
	_, err = e.create(hand, map[string]string{"contract": contract})
	expectCode(t, err, codes.AlreadyExists, "adopted")
	// It is not emptied, though the deletion says so: its adoption did not.
	expectCode(t, e.delete(idOf(hand), map[string]string{"onDelete": "empty"}), codes.FailedPrecondition, "still holds objects")
	allowed(t, "get", get(t, g.client(), hand, "precious"))
	// Unless its class says so as well.
	both := contract + "-both"
	byHand(owner, both)
	_, err = e.existing(idOf(both), map[string]string{"onDelete": "empty"})
	must(t, err)
	expectCode(t, e.delete(idOf(both), nil), codes.FailedPrecondition, "still holds objects")
	must(t, e.delete(idOf(both), map[string]string{"onDelete": "empty"}))

	// It is compared as it is now, not as it was when it was first adopted, and
	// the last object that adopted it decides what becomes of its data.
	later := contract + "-later"
	byHand(owner, later)
	_, err = e.existing(idOf(later), nil)
	must(t, err)
	_, err = owner.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &later,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	must(t, err)
	_, err = e.existing(idOf(later), map[string]string{"versioning": "Enabled", "onDelete": "empty"})
	must(t, err)
	_, err = e.existing(idOf(later), map[string]string{"versioning": "Suspended"})
	expectCode(t, err, codes.AlreadyExists, "not as its parameters say: versioning differ")
	must(t, e.delete(idOf(later), map[string]string{"onDelete": "empty"}))

	// Nor is it ours when another driver has put its mark on it.
	taken := contract + "-taken"
	byHand(owner, taken)
	_, err = e.existing(idOf(taken), map[string]string{"onDelete": "empty"})
	must(t, err)
	theirKey, theirMark := cosi.OwnerTag, "another-cluster"
	_, err = owner.PutBucketTagging(t.Context(), &s3.PutBucketTaggingInput{Bucket: &taken, Tagging: &types.Tagging{TagSet: []types.Tag{{Key: &theirKey, Value: &theirMark}}}})
	must(t, err)
	_, err = e.existing(idOf(taken), map[string]string{"onDelete": "empty"})
	expectCode(t, err, codes.FailedPrecondition, "no longer has the tag")
	expectCode(t, e.delete(idOf(taken), map[string]string{"onDelete": "empty"}), codes.FailedPrecondition, "it is left alone")
	allowed(t, "get", get(t, owner, taken, "precious"))

	// Another driver's bucket stays with it.
	theirs := contract + "-theirs"
	key, mark := cosi.OwnerTag, "another-cluster"
	byHand(owner, theirs, types.Tag{Key: &key, Value: &mark})
	_, err = e.existing(idOf(theirs), nil)
	expectCode(t, err, codes.FailedPrecondition, "another driver")

	// One that has gone is not re-created: what it held was the point.
	must(t, e.revoke(g.account, idOf(hand)))
	allowed(t, "remove", remove(t, owner, hand, "precious"))
	_, err = owner.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &hand})
	must(t, err)
	_, err = e.existing(idOf(hand), nil)
	expectCode(t, err, codes.NotFound)
	must(t, e.delete(idOf(hand), nil))

	// v1alpha1 asks nothing before the grant: it adopts, under the same rule.
	byHand(owner, hand)
	first := make(chan granted, 8)
	for i := range cap(first) { // at once
		go func() {
			g, err := e.env.grant(idOf(hand), fmt.Sprintf("ba-first-%d", i), nil)
			if err != nil {
				t.Error(err)
			}
			first <- g
		}()
	}
	old := <-first
	for range cap(first) - 1 {
		<-first
	}
	allowed(t, "get", get(t, old.client(), hand, "precious"))
	_, err = e.env.grant("main."+strict+"."+strict+"-hand", "ba-2", nil)
	expectCode(t, err, codes.NotFound, "not made by this driver")
	expectCode(t, e.env.delete(idOf(hand)), codes.FailedPrecondition, "still holds objects")
}

// A bucket of the driver's own that was retained is adopted again, and keeps
// its data when the object that adopted it does not say otherwise.
func TestRetainedBucket(t *testing.T) {
	t.Parallel()
	e := v2{newEnv(t, onDemand)}
	contract := newContract()
	bucket := contract + "-x"
	id := e.mustCreate(bucket, map[string]string{"contract": contract, "onDelete": "empty"})
	g := e.mustGrant("ba-1", bucketModes{id: readWrite})
	allowed(t, "put", put(t, g.client(), bucket, "precious"))
	_, err := e.existing(id, nil)
	must(t, err)
	_, err = e.existing(id, map[string]string{"versioning": "Enabled"})
	expectCode(t, err, codes.AlreadyExists, "versioning differ")
	expectCode(t, e.delete(id, nil), codes.FailedPrecondition, "still holds objects")
	allowed(t, "get", get(t, g.client(), bucket, "precious"))

	// The same when the journal has lost the bucket, and its mark proves it.
	e.loseJournal()
	resp, err := e.existing(id, nil)
	if err != nil || resp.GetBucketId() != id {
		t.Errorf("%v, %v", resp, err)
	}
}
