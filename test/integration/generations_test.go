package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// sidecar makes the calls of one generation of v1alpha2, or of v1alpha1, and keeps
// what its COSI objects keep.
type sidecar struct {
	v2
	generation string
}

// at reports whether the generation is another one or a later one.
func (s sidecar) at(generation string) bool {
	return s.generation != "v1alpha1" && s.generation >= generation
}

// call makes a call by its method's name.
func (s sidecar) call(method string, req, resp proto.Message) error {
	return s.conn.Invoke(context.WithoutCancel(s.Context()), "/sigs.k8s.io.cosi.v1alpha2.Provisioner/"+method, req, resp)
}

// create makes a bucket as a reconcile does: id is what its Bucket object has as
// status.bucketID. It returns the id that the object then has.
func (s sidecar) create(name, id string, class map[string]string) (string, error) {
	s.Helper()
	protocols := []*cosipb.ObjectProtocol{s3Protocol()}
	switch {
	case s.generation == "v1alpha1":
		return createVia(s, s.conn, name, class)
	case s.at("C1"):
		if id == "" {
			resp := &cosipb.DriverGenerateBucketIdResponse{}
			if err := s.call("DriverGenerateBucketId", &cosipb.DriverGenerateBucketIdRequest{Name: name, Protocols: protocols, Parameters: class}, resp); err != nil {
				return "", err
			}
			id = resp.GetBucketId()
		}
		resp := &cosipb.DriverCreateBucketResponseC1{}
		if err := s.call("DriverCreateBucket", &cosipb.DriverCreateBucketRequest{Name: id, Protocols: protocols, Parameters: class}, resp); err != nil {
			return id, err
		}
		s.completeInfo(resp.GetProtocols(), id)
		s.completeInfo(resp.GetDraftProtocols(), id)
		return id, nil
	}
	resp := &cosipb.DriverCreateBucketResponse{}
	err := s.call("DriverCreateBucket", &cosipb.DriverCreateBucketRequest{Name: name, Protocols: protocols, Parameters: class}, resp)
	if err == nil {
		s.completeInfo(resp.GetProtocols(), resp.GetBucketId())
	}
	return resp.GetBucketId(), err
}

// existing takes a bucket on by its raw id.
func (s sidecar) existing(id string) error {
	s.Helper()
	resp := &cosipb.DriverGetBucketResponse{}
	var err error
	switch s.generation {
	case "v1alpha1":
		return nil // which knows it by the id alone
	case "A":
		err = s.call("DriverGetExistingBucket", &cosipb.DriverGetExistingBucketRequest{ExistingBucketId: id}, resp)
	default:
		err = s.call("DriverGetBucket", &cosipb.DriverGetBucketRequest{BucketId: id}, resp)
	}
	if err == nil {
		s.completeInfo(resp.GetProtocols(), id)
		if !s.at("C1") && resp.GetBucketId() != id {
			s.Errorf("%s: bucket %s is taken on as %s", s.generation, id, resp.GetBucketId())
		}
	}
	return err
}

// grant asks for a key as a reconcile does: account is what the BucketAccess has as
// status.accountID.
func (s sidecar) grant(name, account, bucket string, mode cosi.AccessMode) (granted, error) {
	s.Helper()
	return s.grantWith(name, account, bucket, mode, cosi.Metadata{})
}

// grantWith is grant with modes for metadata, which the first generations do not send.
func (s sidecar) grantWith(name, account, bucket string, mode cosi.AccessMode, metadata cosi.Metadata) (granted, error) {
	s.Helper()
	if s.generation == "v1alpha1" {
		return grantVia(s, s.conn, bucket, name, map[string]string{"access": string(mode)})
	}
	auth := &cosipb.AuthenticationType{Type: cosipb.AuthenticationType_KEY}
	resp := &cosipb.DriverGrantBucketAccessResponse{}
	if !s.at("B2") {
		one := map[cosi.AccessMode]cosipb.AccessMode_Mode{cosi.ReadWrite: 1, cosi.ReadOnly: 2, cosi.WriteOnly: 3}
		if err := s.call("DriverGrantBucketAccess", &cosipb.DriverGrantBucketAccessRequest{
			AccountName: name, Protocol: s3Protocol(), AuthenticationType: auth,
			Buckets: []*cosipb.DriverGrantBucketAccessRequest_AccessedBucket{{BucketId: bucket, AccessMode: &cosipb.AccessMode{Mode: one[mode]}}},
		}, resp); err != nil {
			return granted{}, err
		}
	} else {
		three := func(mode cosi.AccessMode) *cosipb.AccessModeB2 {
			return &cosipb.AccessModeB2{Mode: map[cosi.AccessMode]cosipb.AccessModeB2_Mode{"": 1, cosi.ReadWrite: 2, cosi.ReadOnly: 3, cosi.WriteOnly: 4}[mode]}
		}
		buckets := []*cosipb.AccessedBucketB2{{
			BucketId: bucket, ObjectDataAccessMode: three(mode),
			ObjectMetadataAccessMode: three(metadata.ObjectMetadata), BucketMetadataAccessMode: three(metadata.BucketMetadata),
		}}
		field := name
		if s.at("C2") {
			if account == "" {
				resp := &cosipb.DriverGenerateBucketAccessIdResponse{}
				if err := s.call("DriverGenerateBucketAccessId", &cosipb.DriverGenerateBucketAccessIdRequest{
					AccountName: name, Protocol: s3Protocol(), AuthenticationType: auth, Buckets: buckets,
				}, resp); err != nil {
					return granted{}, err
				}
				account = resp.GetAccountId()
			}
			field = account
		}
		if err := s.call("DriverGrantBucketAccess", &cosipb.DriverGrantBucketAccessRequestB2{
			Account: field, Protocol: s3Protocol(), AuthenticationType: auth, Buckets: buckets,
		}, resp); err != nil {
			return granted{}, err
		}
		if s.at("C2") && resp.GetAccountId() != account {
			s.Errorf("%s: account %s was generated, and %s is granted", s.generation, account, resp.GetAccountId())
		}
	}
	info, key := resp.GetBuckets()[0].GetBucketInfo(), resp.GetCredentials().GetS3()
	s.completeInfo(info, bucket)
	return granted{resp.GetAccountId(), info.GetS3().GetEndpoint(), info.GetS3().GetRegion(), key.GetAccessKeyId(), key.GetAccessSecretKey()}, nil
}

func (s sidecar) revoke(account, bucket string) error {
	if s.generation == "v1alpha1" {
		return revokeVia(s, s.conn, bucket, account)
	}
	return s.v2.revoke(account, bucket)
}

func (s sidecar) delete(id string, class map[string]string) error {
	if s.generation == "v1alpha1" {
		return deleteVia(s, s.conn, id, class)
	}
	return s.v2.delete(id, class)
}

// What was made for a sidecar of one generation is found, granted, revoked and
// deleted for one of every other, and the first can come back in between.
func TestSidecarOfAnotherGeneration(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	generations := []string{"v1alpha1", "A", "B1", "B2", "C1", "C2"}
	for _, from := range generations {
		for _, to := range generations {
			if from == to {
				continue
			}
			t.Run(from+" to "+to, func(t *testing.T) {
				sub := &env{TB: t, dir: e.dir, service: e.service, conn: e.conn}
				before, after := sidecar{v2{sub}, from}, sidecar{v2{sub}, to}
				contract := newContract()
				name, class := contract+"-b", map[string]string{"contract": contract}
				id, err := before.create(name, "", class)
				must(t, err)
				old, err := before.grant("ba-old", "", id, cosi.ReadOnly)
				must(t, err)

				for _, s := range []sidecar{after, before} {
					if again, err := s.create(name, id, class); err != nil || again != id {
						t.Errorf("%s: create of %s again: %q, %v", s.generation, id, again, err)
					}
					if err := s.existing(id); err != nil {
						t.Errorf("%s: an existing bucket: %v", s.generation, err)
					}
					switch again, err := s.grant("ba-old", old.account, id, cosi.ReadOnly); {
					case err != nil:
						t.Errorf("%s: grant again: %v", s.generation, err)
					case again != old:
						t.Errorf("%s: the access has another account or key", s.generation)
					}
				}
				_, err = after.grant("ba-old", old.account, id, cosi.ReadWrite)
				otherwise := codes.AlreadyExists
				if to == "v1alpha1" {
					otherwise = codes.FailedPrecondition
				}
				expectCode(t, err, otherwise, "was granted otherwise")
				added, err := after.grant("ba-new", "", id, cosi.WriteOnly)
				must(t, err)
				allowed(t, "put by the new key", put(t, added.client(), name, "x"))
				refused(t, "get by the new key", get(t, added.client(), name, "x"))
				allowed(t, "get by the old key", get(t, old.client(), name, "x"))
				refused(t, "put by the old key", put(t, old.client(), name, "x"))

				must(t, after.revoke(old.account, id))
				refused(t, "get after the revoke", get(t, old.client(), name, "x"))
				must(t, before.revoke(added.account, id))
				refused(t, "put after the revoke", put(t, added.client(), name, "x"))
				must(t, remove(t, sub.owner(contract), name, "x"))
				must(t, after.delete(id, class))
				if left := e.buckets(contract); len(left) != 0 {
					t.Errorf("left are %v", left)
				}
			})
		}
	}
	if text := e.logs.String(); !strings.Contains(text, `generation="C2"`) || strings.Count(text, "The sidecar speaks COSI v1alpha2") > 12 {
		t.Errorf("the generation of the sidecar is not in the log, or too often")
	}
}

// Modes for metadata are rights of the key, and of what a repeat is compared with,
// whichever sidecar repeats it and after the driver's restart.
func TestModesOfThreeCategories(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	name := contract + "-b"
	var s sidecar
	generation := func(name string) { s = sidecar{v2{e}, name} }
	generation("B2")
	id, err := s.create(name, "", map[string]string{"contract": contract})
	must(t, err)
	must(t, put(t, e.owner(contract), name, "x"))
	tags := cosi.Metadata{ObjectMetadata: cosi.ReadWrite, BucketMetadata: cosi.ReadOnly}
	tagger, err := s.grantWith("ba-tagger", "", id, cosi.ReadOnly, tags)
	must(t, err)
	// What is not set follows the mode of the objects, and takes nothing away.
	bare, err := s.grantWith("ba-bare", "", id, cosi.ReadWrite, cosi.Metadata{ObjectMetadata: cosi.ReadOnly})
	must(t, err)

	key := "x"
	tagging := &types.Tagging{TagSet: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}}
	tag := func(c *s3.Client) error {
		_, err := c.PutObjectTagging(t.Context(), &s3.PutObjectTaggingInput{Bucket: &name, Key: &key, Tagging: tagging})
		return err
	}
	versioning := func(c *s3.Client) error {
		_, err := c.GetBucketVersioning(t.Context(), &s3.GetBucketVersioningInput{Bucket: &name})
		return err
	}
	allowed(t, "the tagger tags", tag(tagger.client()))
	allowed(t, "the tagger reads the versioning", versioning(tagger.client()))
	refused(t, "the tagger writes", put(t, tagger.client(), name, "y"))
	_, err = tagger.client().PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &name,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	refused(t, "the tagger changes the versioning", err)
	allowed(t, "the other key writes", put(t, bare.client(), name, "y"))
	refused(t, "the other key tags", tag(bare.client()))
	refused(t, "the other key reads the versioning", versioning(bare.client()))

	for _, g := range []string{"B2", "C1", "C2"} {
		e.stop()
		e.start()
		generation(g)
		again, err := s.grantWith("ba-tagger", tagger.account, id, cosi.ReadOnly, tags)
		must(t, err)
		if again != tagger {
			t.Errorf("%s: the access has another account or key", g)
		}
		_, err = s.grantWith("ba-tagger", tagger.account, id, cosi.ReadOnly, cosi.Metadata{ObjectMetadata: cosi.ReadWrite})
		expectCode(t, err, codes.AlreadyExists, "metadata modes differ")
	}
	generation("A")
	_, err = s.grant("ba-tagger", tagger.account, id, cosi.ReadOnly)
	expectCode(t, err, codes.AlreadyExists, "metadata modes differ")
	allowed(t, "the tagger tags as before", tag(tagger.client()))
	must(t, s.revoke(tagger.account, id))
	refused(t, "the tagger tags after the revoke", tag(tagger.client()))
}

// An id that was only generated stands for nothing, and can be taken away.
func TestOnlyGenerated(t *testing.T) {
	t.Parallel()
	e := v2{newEnv(t, onDemand)}
	s := sidecar{e, "C2"}
	contract := newContract()
	resp := &cosipb.DriverGenerateBucketIdResponse{}
	req := &cosipb.DriverGenerateBucketIdRequest{Name: contract + "-b", Parameters: map[string]string{"contract": contract}}
	must(t, s.call("DriverGenerateBucketId", req, resp))
	must(t, s.delete(resp.GetBucketId(), nil))
	access := &cosipb.DriverGenerateBucketAccessIdResponse{}
	mode := func(m cosipb.AccessModeB2_Mode) *cosipb.AccessModeB2 { return &cosipb.AccessModeB2{Mode: m} }
	must(t, s.call("DriverGenerateBucketAccessId", &cosipb.DriverGenerateBucketAccessIdRequest{
		AccountName: "ba-1", Protocol: s3Protocol(), AuthenticationType: &cosipb.AuthenticationType{Type: cosipb.AuthenticationType_KEY},
		Buckets: []*cosipb.AccessedBucketB2{{BucketId: resp.GetBucketId(), ObjectDataAccessMode: mode(3), ObjectMetadataAccessMode: mode(1), BucketMetadataAccessMode: mode(1)}},
	}, access))
	must(t, s.revoke(access.GetAccountId(), resp.GetBucketId()))
	if got := e.api(http.MethodGet, "/v1/contracts/"+contract, nil, nil); got != 404 {
		t.Errorf("the contract of a bucket that was never made answers %d", got)
	}
	before := resp.GetBucketId()
	e.stop()
	e.start()
	must(t, s.call("DriverGenerateBucketId", req, resp))
	if resp.GetBucketId() != before {
		t.Errorf("id %s became %s at the next start", before, resp.GetBucketId())
	}

	// By hand: an id that its class does not lead to, and a name that has dots.
	other := newContract()
	err := s.call("DriverCreateBucket", &cosipb.DriverCreateBucketRequest{Name: before, Parameters: map[string]string{"contract": other}}, &cosipb.DriverCreateBucketResponseC1{})
	expectCode(t, err, codes.FailedPrecondition, "it would be main."+other)
	named, err := sidecar{e, "A"}.create("with.two."+contract, "", map[string]string{"contract": contract})
	must(t, err)
	if want := "main." + contract + ".with.two." + contract; named != want {
		t.Errorf("a name with dots became %s, want %s", named, want)
	}
}

// A sidecar is upgraded, and taken back, in the middle of its work, and the driver
// is killed at each change, while it is called. Nothing is lost, made twice or left over, and no key can
// do more than was asked for.
func TestSidecarsComeAndGo(t *testing.T) {
	t.Parallel()
	const contracts = "onDemand:\n  backend: main\n  onLastBucket: cancel\n"
	t.Run("contractapi", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, contracts)
		e.stop() // its configuration and line serve the driver that is killed
		contract := newContract()
		sidecarsComeAndGo(t, e, contract)
		if code := e.api(http.MethodGet, "/v1/contracts/"+contract, nil, nil); code != http.StatusNotFound {
			t.Errorf("the contract is left (HTTP %d)", code)
		}
	})
	t.Run("iam", func(t *testing.T) {
		t.Parallel()
		dir, err := os.MkdirTemp("", "c") // a socket's path has to be short
		must(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		storage, err := harness.StartStorage(t.Context(), "iam", dir)
		must(t, err)
		t.Cleanup(storage.Kill)
		file, err := storage.WriteConfig(dir, contracts)
		must(t, err)
		sidecarsComeAndGo(t, &env{TB: t, dir: dir, configFile: file}, newContract())
		root := granted{"", storage.S3, harness.VersityGWRegion, storage.AccessKeyID, storage.Secrets[0]}
		buckets, err := root.client().ListBuckets(t.Context(), &s3.ListBucketsInput{})
		must(t, err)
		users, err := iam.New(iam.Options{BaseEndpoint: &storage.API, Region: root.region, Credentials: root.client().Options().Credentials}).ListUsers(t.Context(), &iam.ListUsersInput{})
		must(t, err)
		if len(buckets.Buckets)+len(users.Users) > 0 {
			t.Errorf("%d buckets and %d users are left", len(buckets.Buckets), len(users.Users))
		}
	})
}

func sidecarsComeAndGo(t *testing.T, e *env, contract string) {
	class := map[string]string{"contract": contract}
	type object struct {
		name, id string // of the bucket
		key      granted
		mode     cosi.AccessMode
	}
	const count = 200
	objects := make([]object, count)
	modes := []cosi.AccessMode{cosi.ReadWrite, cosi.ReadOnly, cosi.WriteOnly}
	work := []string{"A", "B2", "C1", "C2", "C1", "B2", "A", "v1alpha1", "C2"}
	var d *harness.Driver
	for turn, generation := range work {
		d = e.startProcess()
		s := sidecar{v2{&env{TB: t, dir: e.dir, service: e.service, conn: d.Conn}}, generation}
		next := min(count, (turn+1)*count/(len(work)-1))
		last := turn == len(work)-1
		var done atomic.Int64
		cut := func(err error) bool { // the driver was killed: the next sidecar asks again
			return !last && int(done.Load()) > next/2 && status.Code(err) == codes.Unavailable
		}
		var all sync.WaitGroup
		for caller := range 8 {
			all.Go(func() {
				for i := caller; i < next; i += 8 { // those of before as well: a sidecar that starts reconciles all
					o := &objects[i]
					before := *o
					if !last && int(done.Add(1)) == next/2+1 {
						d.Process.Kill()
					}
					o.name, o.mode = fmt.Sprintf("%s-%d", contract, i), modes[i%len(modes)]
					id, err := s.create(o.name, o.id, class)
					if err != nil {
						if !cut(err) {
							t.Errorf("%s: create %s: %v", generation, o.name, err)
						}
						return
					}
					o.id = id
					key, err := s.grant(fmt.Sprintf("ba-%d", i), o.key.account, o.id, o.mode)
					if err != nil {
						if !cut(err) {
							t.Errorf("%s: grant on %s: %v", generation, o.id, err)
						}
						return
					}
					o.key = key
					if before.id != "" && o.id != before.id || before.key.account != "" && o.key != before.key {
						t.Errorf("%s: bucket %s or its key has changed", generation, before.id)
					}
				}
			})
		}
		all.Wait()
		if t.Failed() {
			t.FailNow()
		}
		if !last {
			_ = d.Wait() // it was killed
			must(t, d.Conn.Close())
		}
	}
	s := sidecar{v2{&env{TB: t, dir: e.dir, service: e.service, conn: d.Conn}}, "C2"}
	for i, o := range objects[:9] {
		putErr, getErr := put(t, o.key.client(), o.name, "x"), get(t, o.key.client(), o.name, "x")
		if may := o.mode != cosi.ReadOnly; (putErr == nil) != may {
			t.Errorf("put with a %s key: %v", o.mode, putErr)
		}
		if may := o.mode == cosi.ReadWrite; may != (getErr == nil) {
			t.Errorf("get with a %s key: %v", o.mode, getErr)
		}
		refused(t, "a neighbour's bucket", put(t, o.key.client(), objects[i+1].name, "x"))
		if o.mode != cosi.ReadOnly {
			must(t, remove(t, o.key.client(), o.name, "x"))
		}
	}
	var all sync.WaitGroup
	for caller := range 8 {
		all.Go(func() {
			for i := caller; i < count; i += 8 {
				o := objects[i]
				if err := s.revoke(o.key.account, o.id); err != nil {
					t.Errorf("revoke %s: %v", o.key.account, err)
				}
				if err := s.delete(o.id, class); err != nil {
					t.Errorf("delete %s: %v", o.id, err)
				}
			}
		})
	}
	all.Wait()
	must(t, d.Stop())
}
