package gateway_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/gateway"
	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/store"
)

const region = "us-east-1"

// world is the one gateway that a process can have, shared by all tests here.
// Each test signs contracts of its own.
type world struct {
	http    http.Client // all clients share its connections
	store   *store.Store
	gateway *gateway.Gateway
	dir     string
	buckets atomic.Int64
}

var shared = &world{http: http.Client{Transport: &http.Transport{}}}

func TestMain(m *testing.M) {
	code, err := shared.run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

const (
	unfinished = "unfinished-bucket" // as a crash leaves it: no owner, empty
	foreign    = "foreign-directory" // no owner, but data in it
)

func (w *world) run(m *testing.M) (code int, err error) {
	w.dir, err = os.MkdirTemp("", "contractd-gateway-test")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(w.dir)) }()
	for _, d := range []string{unfinished, foreign + "/data"} {
		if err := os.MkdirAll(filepath.Join(w.dir, "s3", d), 0o700); err != nil {
			return 1, err
		}
	}
	w.store, err = store.Open(filepath.Join(w.dir, "contracts.db"))
	if err != nil {
		return 1, err
	}
	ctx, stop := context.WithCancel(context.Background())
	w.gateway, err = gateway.Start(ctx, gateway.Config{
		Dir: w.dir, Address: "127.0.0.1:0", Region: region, Store: w.store,
		Now: time.Now,
	})
	if err != nil {
		stop()
		return 1, err
	}
	code = m.Run()
	w.http.CloseIdleConnections()
	stop()
	return code, errors.Join(w.gateway.Err(), w.store.Close())
}

// contract signs a contract and returns it with a client that holds its own key.
func (w *world) contract(t *testing.T, change ...func(*store.Contract)) (store.Contract, *s3.Client) {
	t.Helper()
	id := rand.Text()[:12]
	c := store.Contract{Name: strings.ToLower(id), Code: "C" + id, Owner: "test", Region: region, SignedAt: time.Now()}
	for _, f := range change {
		f(&c)
	}
	w.update(t, func(tx *store.Tx) { tx.PutContract(c) })
	return c, w.key(t, c)
}

// key issues a key, the contract's own one without grants, and returns a client with it.
func (w *world) key(t *testing.T, c store.Contract, grants ...store.Grant) *s3.Client {
	t.Helper()
	client, _ := w.keyWith(t, store.Key{Contract: c.Name, Grants: grants})
	return client
}

func (w *world) keyWith(t *testing.T, k store.Key) (*s3.Client, store.Key) {
	t.Helper()
	k.Name, k.Slot = strings.ToLower(rand.Text()), "test"
	k.AccessKeyID, k.Secret = "CK"+rand.Text()[:18], store.NewSecret(rand.Text())
	w.update(t, func(tx *store.Tx) { tx.PutKey(k) })
	return w.client(k), k
}

func (w *world) client(k store.Key) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint:               aws.String("http://" + w.gateway.Address()),
		UsePathStyle:               true,
		Region:                     region,
		RetryMaxAttempts:           1,
		HTTPClient:                 &w.http,
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: k.AccessKeyID, SecretAccessKey: k.Secret.Reveal()}, nil
		}),
	})
}

func (w *world) update(t *testing.T, run func(*store.Tx)) {
	t.Helper()
	if err := w.store.Update(func(tx *store.Tx) error { run(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

// bucket makes a bucket with an object in it.
func (w *world) bucket(t *testing.T, client *s3.Client) string {
	t.Helper()
	name := fmt.Sprintf("bucket-%d", w.buckets.Add(1))
	want(t, create(t, client, name), "")
	want(t, put(t, client, name, "seed"), "")
	return name
}

func create(t *testing.T, c *s3.Client, bucket string) error {
	_, err := c.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket})
	return err
}

func put(t *testing.T, c *s3.Client, bucket, key string) error {
	_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader("data")})
	return err
}

func get(t *testing.T, c *s3.Client, bucket, key string) error {
	out, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return err
	}
	defer func() { _ = out.Body.Close() }()
	if data, err := io.ReadAll(out.Body); err != nil || string(data) != "data" {
		return fmt.Errorf("read %q: %w", data, err)
	}
	return nil
}

func list(t *testing.T, c *s3.Client, bucket, prefix string) error {
	_, err := c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &prefix})
	return err
}

func remove(t *testing.T, c *s3.Client, bucket, key string) error {
	_, err := c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: &key})
	return err
}

func head(t *testing.T, c *s3.Client, bucket string) error {
	_, err := c.HeadBucket(t.Context(), &s3.HeadBucketInput{Bucket: &bucket})
	return err
}

func putPolicy(t *testing.T, c *s3.Client, bucket, policy string) error {
	_, err := c.PutBucketPolicy(t.Context(), &s3.PutBucketPolicyInput{Bucket: &bucket, Policy: &policy})
	return err
}

const denied = "AccessDenied"

// want compares an error's S3 code, "" for no error. A HEAD request has no body
// and so no code but the status's name.
func want(t *testing.T, err error, code string) {
	t.Helper()
	var api smithy.APIError
	switch {
	case err == nil && code == "":
	case err == nil:
		t.Errorf("succeeded, want %s", code)
	case errors.As(err, &api) && (api.ErrorCode() == code || api.ErrorCode() == "Forbidden" && code == denied):
	default:
		t.Errorf("got %v, want code %q", err, code)
	}
}

func wantStatus(t *testing.T, err error, status int) {
	t.Helper()
	var response interface{ HTTPStatusCode() int }
	if !errors.As(err, &response) || response.HTTPStatusCode() != status {
		t.Errorf("got %v, want status %d", err, status)
	}
}

func TestContractsOwnKey(t *testing.T) {
	_, mine := shared.contract(t)
	_, theirs := shared.contract(t)
	bucket := shared.bucket(t, mine)

	err := create(t, mine, bucket)
	want(t, err, "BucketAlreadyOwnedByYou")
	wantStatus(t, err, http.StatusConflict)
	err = create(t, theirs, bucket)
	want(t, err, "BucketAlreadyExists")
	wantStatus(t, err, http.StatusConflict)

	want(t, get(t, mine, bucket, "seed"), "")
	want(t, get(t, theirs, bucket, "seed"), denied)
	want(t, put(t, theirs, bucket, "x"), denied)
	want(t, list(t, theirs, bucket, ""), denied)
	want(t, head(t, theirs, bucket), denied)
	_, err = theirs.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &bucket})
	want(t, err, denied)

	_, err = mine.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &bucket})
	want(t, err, "BucketNotEmpty")
	want(t, remove(t, mine, bucket, "seed"), "")
	_, err = mine.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &bucket})
	want(t, err, "")
	want(t, get(t, mine, bucket, "seed"), "NoSuchBucket")
	want(t, create(t, theirs, bucket), "")
}

// The gateway reuses the memory of a request's strings for the next request.
func TestIndexKeepsItsOwnNames(t *testing.T) {
	contract, client := shared.contract(t)
	var names []string
	for range 5 {
		names = append(names, shared.bucket(t, client))
	}
	for _, name := range names {
		if owner := shared.gateway.Buckets().Owner(name); owner != contract.Code {
			t.Errorf("the bucket %s belongs to %q, want %s", name, owner, contract.Code)
		}
	}
}

func TestTwoKeysOfAContractOwnTheSame(t *testing.T) {
	contract, first := shared.contract(t)
	bucket := shared.bucket(t, first)
	second := shared.key(t, contract)
	want(t, get(t, second, bucket, "seed"), "")
	want(t, create(t, second, bucket), "BucketAlreadyOwnedByYou")
}

func TestListBucketsShowsOnlyTheContracts(t *testing.T) {
	contract, mine := shared.contract(t)
	_, theirs := shared.contract(t)
	a, b := shared.bucket(t, mine), shared.bucket(t, mine)
	shared.bucket(t, theirs)

	out, err := mine.ListBuckets(t.Context(), &s3.ListBucketsInput{})
	want(t, err, "")
	var names []string
	for _, found := range out.Buckets {
		names = append(names, *found.Name)
	}
	slices.Sort(names)
	expected := []string{a, b}
	slices.Sort(expected)
	if !slices.Equal(names, expected) {
		t.Errorf("listed %v, want %v", names, expected)
	}
	scoped := shared.key(t, contract, store.Grant{Bucket: a, Access: store.ReadWrite})
	_, err = scoped.ListBuckets(t.Context(), &s3.ListBucketsInput{})
	want(t, err, denied)
}

func TestModes(t *testing.T) {
	contract, owner := shared.contract(t)
	bucket, sibling := shared.bucket(t, owner), shared.bucket(t, owner)
	_, neighbour := shared.contract(t)
	foreignBucket := shared.bucket(t, neighbour)

	for _, test := range []struct {
		access      store.Access
		read, write string // the code that reading and writing give
	}{
		{store.ReadOnly, "", denied},
		{store.WriteOnly, denied, ""},
		{store.ReadWrite, "", ""},
	} {
		t.Run(string(test.access), func(t *testing.T) {
			client := shared.key(t, contract, store.Grant{Bucket: bucket, Access: test.access})

			want(t, head(t, client, bucket), test.read)
			want(t, list(t, client, bucket, ""), test.read)
			want(t, get(t, client, bucket, "seed"), test.read)
			_, err := client.GetBucketLocation(t.Context(), &s3.GetBucketLocationInput{Bucket: &bucket})
			want(t, err, test.read)
			_, err = client.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: &bucket})
			want(t, err, test.read)
			_, err = client.GetObjectTagging(t.Context(), &s3.GetObjectTaggingInput{Bucket: &bucket, Key: aws.String("seed")})
			want(t, err, test.read)

			want(t, put(t, client, bucket, "mine"), test.write)
			want(t, remove(t, client, bucket, "mine"), test.write)
			want(t, upload(t, client, bucket, "parts"), test.write)

			for _, other := range []string{sibling, foreignBucket} {
				want(t, head(t, client, other), denied)
				want(t, list(t, client, other, ""), denied)
				want(t, get(t, client, other, "seed"), denied)
				want(t, put(t, client, other, "mine"), denied)
				want(t, remove(t, client, other, "seed"), denied)
				_, err := client.CopyObject(t.Context(), &s3.CopyObjectInput{Bucket: &bucket, Key: aws.String("copy"), CopySource: aws.String(other + "/seed")})
				want(t, err, denied)
			}
			administration(t, client, bucket)
		})
	}
}

// administration checks that a scoped key can do none of it.
func administration(t *testing.T, client *s3.Client, bucket string) {
	t.Helper()
	ctx := t.Context()
	want(t, create(t, client, "by-scoped-key"), denied)
	want(t, putPolicy(t, client, bucket, `{"Statement":[]}`), denied)
	_, err := client.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: &bucket})
	want(t, err, denied)
	_, err = client.DeleteBucketPolicy(ctx, &s3.DeleteBucketPolicyInput{Bucket: &bucket})
	want(t, err, denied)
	_, err = client.PutBucketAcl(ctx, &s3.PutBucketAclInput{Bucket: &bucket, ACL: types.BucketCannedACLPublicRead})
	want(t, err, denied)
	_, err = client.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{Bucket: &bucket,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	want(t, err, denied)
	_, err = client.DeleteBucketTagging(ctx, &s3.DeleteBucketTaggingInput{Bucket: &bucket})
	want(t, err, denied)
	_, err = client.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &bucket})
	want(t, err, denied)
}

func upload(t *testing.T, c *s3.Client, bucket, key string) error {
	made, err := c.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return err
	}
	part, err := c.UploadPart(t.Context(), &s3.UploadPartInput{Bucket: &bucket, Key: &key, UploadId: made.UploadId,
		PartNumber: aws.Int32(1), Body: strings.NewReader("data")})
	if err != nil {
		return err
	}
	if _, err := c.ListParts(t.Context(), &s3.ListPartsInput{Bucket: &bucket, Key: &key, UploadId: made.UploadId}); err != nil {
		return err
	}
	_, err = c.CompleteMultipartUpload(t.Context(), &s3.CompleteMultipartUploadInput{Bucket: &bucket, Key: &key, UploadId: made.UploadId,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{{ETag: part.ETag, PartNumber: aws.Int32(1)}}}})
	return err
}

func TestOldVersionsAreDeletedByReadWriteOnly(t *testing.T) {
	contract, owner := shared.contract(t)
	bucket := shared.bucket(t, owner)
	_, err := owner.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &bucket,
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}})
	want(t, err, "")
	out, err := owner.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: aws.String("v"), Body: strings.NewReader("data")})
	want(t, err, "")
	for _, test := range []struct {
		access store.Access
		code   string
	}{{store.WriteOnly, denied}, {store.ReadWrite, ""}} {
		client := shared.key(t, contract, store.Grant{Bucket: bucket, Access: test.access})
		_, err := client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: aws.String("v"), VersionId: out.VersionId})
		want(t, err, test.code)
	}
}

func TestPrefix(t *testing.T) {
	contract, owner := shared.contract(t)
	bucket := shared.bucket(t, owner)
	client := shared.key(t, contract, store.Grant{Bucket: bucket, Prefix: "app/", Access: store.ReadWrite})

	want(t, put(t, client, bucket, "app/1"), "")
	want(t, get(t, client, bucket, "app/1"), "")
	want(t, list(t, client, bucket, "app/"), "")
	want(t, list(t, client, bucket, "app/1"), "")
	want(t, remove(t, client, bucket, "app/1"), "")

	want(t, get(t, client, bucket, "seed"), denied)
	want(t, put(t, client, bucket, "application"), denied)
	want(t, put(t, client, bucket, "app/../seed"), denied)
	want(t, list(t, client, bucket, ""), denied)
	want(t, list(t, client, bucket, "ap"), denied)
	want(t, list(t, client, bucket, "app/../"), denied)
	want(t, head(t, client, bucket), denied)

	out, err := client.DeleteObjects(t.Context(), &s3.DeleteObjectsInput{Bucket: &bucket,
		Delete: &types.Delete{Objects: []types.ObjectIdentifier{{Key: aws.String("seed")}, {Key: aws.String("app/2")}}}})
	want(t, err, "")
	if len(out.Errors) != 1 || *out.Errors[0].Key != "seed" {
		t.Errorf("bulk delete refused %v, want seed alone", out.Errors)
	}
	want(t, get(t, owner, bucket, "seed"), "")
}

func TestTwoGrantsInOneBucket(t *testing.T) {
	contract, owner := shared.contract(t)
	bucket := shared.bucket(t, owner)
	client := shared.key(t, contract,
		store.Grant{Bucket: bucket, Prefix: "in/", Access: store.WriteOnly},
		store.Grant{Bucket: bucket, Prefix: "out/", Access: store.ReadOnly})
	want(t, put(t, owner, bucket, "out/1"), "")
	want(t, put(t, client, bucket, "in/1"), "")
	want(t, get(t, client, bucket, "in/1"), denied)
	want(t, get(t, client, bucket, "out/1"), "")
	want(t, put(t, client, bucket, "out/2"), denied)
}

func TestSourceAddresses(t *testing.T) {
	contract, owner := shared.contract(t)
	bucket := shared.bucket(t, owner)
	grants := []store.Grant{{Bucket: bucket, Access: store.ReadWrite}}
	for _, test := range []struct {
		grants []store.Grant
		block  string
		code   string
	}{
		{grants, "127.0.0.0/8", ""},
		{grants, "10.0.0.0/8", denied},
		{nil, "127.0.0.0/8", ""}, // the contract's own key is limited too
		{nil, "10.0.0.0/8", denied},
	} {
		client, _ := shared.keyWith(t, store.Key{Contract: contract.Name, Grants: test.grants, Sources: []netip.Prefix{netip.MustParsePrefix(test.block)}})
		want(t, get(t, client, bucket, "seed"), test.code)
		want(t, list(t, client, bucket, ""), test.code)
	}
}

func TestKeyThatEnds(t *testing.T) {
	contract, owner := shared.contract(t)
	bucket := shared.bucket(t, owner)
	soon, never := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	live, _ := shared.keyWith(t, store.Key{Contract: contract.Name, ExpiresAt: &soon})
	want(t, get(t, live, bucket, "seed"), "")
	over, _ := shared.keyWith(t, store.Key{Contract: contract.Name, ExpiresAt: &never})
	err := get(t, over, bucket, "seed")
	want(t, err, "InvalidAccessKeyId")
	wantStatus(t, err, http.StatusForbidden)

	revoked, key := shared.keyWith(t, store.Key{Contract: contract.Name, Grants: []store.Grant{{Bucket: bucket, Access: store.ReadOnly}}})
	want(t, get(t, revoked, bucket, "seed"), "")
	shared.update(t, func(tx *store.Tx) { tx.DeleteKey(contract.Name, key.Name) })
	err = get(t, revoked, bucket, "seed")
	want(t, err, "InvalidAccessKeyId")
	wantStatus(t, err, http.StatusForbidden)
}

func TestContractThatIsNotActive(t *testing.T) {
	contract, owner := shared.contract(t)
	bucket := shared.bucket(t, owner)
	scoped := shared.key(t, contract, store.Grant{Bucket: bucket, Access: store.ReadWrite})
	refused := func() {
		t.Helper()
		for _, client := range []*s3.Client{owner, scoped} {
			want(t, get(t, client, bucket, "seed"), denied)
			want(t, put(t, client, bucket, "x"), denied)
		}
		want(t, create(t, owner, "by-inactive-contract"), denied)
		_, err := owner.ListBuckets(t.Context(), &s3.ListBucketsInput{})
		want(t, err, denied)
	}

	suspended := contract
	suspended.Suspended = true
	shared.update(t, func(tx *store.Tx) { tx.PutContract(suspended) })
	refused()
	pending := contract
	pending.ActiveFrom = time.Now().Add(time.Hour)
	shared.update(t, func(tx *store.Tx) { tx.PutContract(pending) })
	refused()
	shared.update(t, func(tx *store.Tx) { tx.PutContract(contract) })
	want(t, get(t, owner, bucket, "seed"), "")
	want(t, get(t, scoped, bucket, "seed"), "")
}

func TestBucketLimit(t *testing.T) {
	_, client := shared.contract(t, func(c *store.Contract) { c.MaxBuckets = aws.Int64(2) })
	first := shared.bucket(t, client)

	// Of many at once exactly one fits beside the first.
	results := make(chan error, 8)
	var started sync.WaitGroup
	for i := range cap(results) {
		started.Go(func() { results <- create(t, client, fmt.Sprintf("%s-more-%d", first, i)) })
	}
	started.Wait()
	made := 0
	for range cap(results) {
		if err := <-results; err == nil {
			made++
		} else {
			want(t, err, "TooManyBuckets")
			wantStatus(t, err, http.StatusBadRequest)
		}
	}
	if made != 1 {
		t.Errorf("%d buckets made, want 1", made)
	}
	want(t, create(t, client, first), "BucketAlreadyOwnedByYou") // a repeat is not one more

	want(t, remove(t, client, first, "seed"), "")
	_, err := client.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &first})
	want(t, err, "")
	want(t, create(t, client, first+"-again"), "")
}

func TestOneNameManyContracts(t *testing.T) {
	name := fmt.Sprintf("contested-%s", strings.ToLower(rand.Text()))
	results := make(chan error, 6)
	var started sync.WaitGroup
	for range cap(results) {
		_, client := shared.contract(t)
		started.Go(func() { results <- create(t, client, name) })
	}
	started.Wait()
	made := 0
	for range cap(results) {
		if err := <-results; err == nil {
			made++
		} else {
			want(t, err, "BucketAlreadyExists")
		}
	}
	if made != 1 {
		t.Errorf("%d contracts made the bucket, want 1", made)
	}
}

func TestRefusedCreateLeavesTheNameFree(t *testing.T) {
	_, client := shared.contract(t)
	name := "refused-" + strings.ToLower(rand.Text())
	_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name,
		CreateBucketConfiguration: &types.CreateBucketConfiguration{Tags: []types.Tag{
			{Key: aws.String("twice"), Value: aws.String("1")}, {Key: aws.String("twice"), Value: aws.String("2")}}}})
	if err == nil {
		t.Fatal("two tags of one name were accepted")
	}
	want(t, create(t, client, name), "")
}

func TestClosedContractMakesNoBucket(t *testing.T) {
	contract, client := shared.contract(t)
	count, closed := shared.gateway.Buckets().Close(contract.Code)
	if count != 0 || !closed {
		t.Fatalf("closing an empty contract: %d, %v", count, closed)
	}
	name := "closing-" + strings.ToLower(rand.Text())
	want(t, create(t, client, name), denied)
	shared.gateway.Buckets().Reopen(contract.Code)
	want(t, create(t, client, name), "")
	if count, closed := shared.gateway.Buckets().Close(contract.Code); count != 1 || closed {
		t.Errorf("closing a contract with a bucket: %d, %v", count, closed)
	}
}

func TestOwnerIsNotLockedOutByPolicy(t *testing.T) {
	contract, owner := shared.contract(t)
	bucket := shared.bucket(t, owner)
	scoped, key := shared.keyWith(t, store.Key{Contract: contract.Name, Grants: []store.Grant{{Bucket: bucket, Access: store.ReadWrite}}})
	statement := func(effect, principal, action, condition string) string {
		return fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Effect":%q,"Principal":{"AWS":[%q]},"Action":%q,"Resource":["arn:aws:s3:::%s","arn:aws:s3:::%s/*"]%s}]}`,
			effect, principal, action, bucket, bucket, condition)
	}
	for _, policy := range []string{
		statement("Deny", "*", "s3:*", ""),
		statement("Deny", contract.Code, "s3:*", ""),
		statement("Deny", "*", "s3:Put*", ""),
		statement("Deny", "*", "s3:*", `,"Condition":{"Bool":{"aws:SecureTransport":"false"}}`),
		`{"Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:DeleteBucketPolicy","Resource":"arn:aws:s3:::` + bucket + `"}]}`,
	} {
		err := putPolicy(t, owner, bucket, policy)
		want(t, err, "MalformedPolicy")
		wantStatus(t, err, http.StatusBadRequest)
	}

	// A policy that does not name the owner takes nothing from it.
	want(t, putPolicy(t, owner, bucket, statement("Allow", key.AccessKeyID, "s3:*", "")), "")
	want(t, get(t, owner, bucket, "seed"), "")
	want(t, put(t, owner, bucket, "more"), "")
	// What is denied to a key is denied, whatever its grants say; the owner may lift it.
	want(t, putPolicy(t, owner, bucket, statement("Deny", key.AccessKeyID, "s3:*", "")), "")
	want(t, get(t, scoped, bucket, "seed"), denied)
	want(t, get(t, owner, bucket, "seed"), "")
	_, err := owner.DeleteBucketPolicy(t.Context(), &s3.DeleteBucketPolicyInput{Bucket: &bucket})
	want(t, err, "")
	want(t, get(t, scoped, bucket, "seed"), "")
}

func TestPolicyAndACLCanLetANeighbourIn(t *testing.T) {
	mine, owner := shared.contract(t)
	theirs, neighbour := shared.contract(t)
	bucket := shared.bucket(t, owner)
	policy := func(principal string) string {
		return fmt.Sprintf(`{"Statement":[{"Effect":"Allow","Principal":{"AWS":%q},"Action":"s3:GetObject","Resource":"arn:aws:s3:::%s/*"}]}`, principal, bucket)
	}
	want(t, putPolicy(t, owner, bucket, policy("Cnobody")), "MalformedPolicy")
	want(t, putPolicy(t, owner, bucket, policy(theirs.Code)), "")
	want(t, get(t, neighbour, bucket, "seed"), "")
	want(t, put(t, neighbour, bucket, "x"), denied)

	_, err := owner.DeleteBucketPolicy(t.Context(), &s3.DeleteBucketPolicyInput{Bucket: &bucket})
	want(t, err, "")
	_, err = owner.PutBucketOwnershipControls(t.Context(), &s3.PutBucketOwnershipControlsInput{Bucket: &bucket,
		OwnershipControls: &types.OwnershipControls{Rules: []types.OwnershipControlsRule{{ObjectOwnership: types.ObjectOwnershipBucketOwnerPreferred}}}})
	want(t, err, "")
	_, err = owner.PutBucketAcl(t.Context(), &s3.PutBucketAclInput{Bucket: &bucket, GrantRead: aws.String("Cnobody")})
	want(t, err, "InvalidArgument")
	_, err = owner.PutBucketAcl(t.Context(), &s3.PutBucketAclInput{Bucket: &bucket, GrantRead: &theirs.Code})
	want(t, err, "")
	want(t, get(t, neighbour, bucket, "seed"), "")
	acl, err := owner.GetBucketAcl(t.Context(), &s3.GetBucketAclInput{Bucket: &bucket})
	want(t, err, "")
	if *acl.Owner.ID != mine.Code {
		t.Errorf("the bucket belongs to %s, want the contract %s", *acl.Owner.ID, mine.Code)
	}
}

func TestScopeEndsWithTheBucket(t *testing.T) {
	contract, owner := shared.contract(t)
	_, neighbour := shared.contract(t)
	bucket := shared.bucket(t, owner)
	client := shared.key(t, contract, store.Grant{Bucket: bucket, Access: store.ReadWrite})
	want(t, remove(t, owner, bucket, "seed"), "")
	_, err := owner.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &bucket})
	want(t, err, "")
	want(t, create(t, neighbour, bucket), "")
	want(t, put(t, neighbour, bucket, "theirs"), "")
	want(t, get(t, client, bucket, "theirs"), denied)
}

func TestPresignedURL(t *testing.T) {
	contract, owner := shared.contract(t)
	bucket := shared.bucket(t, owner)
	for name, test := range map[string]struct {
		client *s3.Client
		key    string
		status int
	}{
		"own key":        {owner, "seed", http.StatusOK},
		"scoped key":     {shared.key(t, contract, store.Grant{Bucket: bucket, Access: store.ReadOnly}), "seed", http.StatusOK},
		"outside prefix": {shared.key(t, contract, store.Grant{Bucket: bucket, Prefix: "app/", Access: store.ReadOnly}), "seed", http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			signed, err := s3.NewPresignClient(test.client).PresignGetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &test.key})
			if err != nil {
				t.Fatal(err)
			}
			if status := fetch(t, signed.URL); status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
		})
	}
	if status := fetch(t, "http://"+shared.gateway.Address()+"/"+bucket+"/seed"); status != http.StatusForbidden {
		t.Errorf("without a signature: status %d, want 403", status)
	}
}

func fetch(t *testing.T, url string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := shared.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode
}

func TestChunkedUpload(t *testing.T) {
	contract, owner := shared.contract(t)
	bucket := shared.bucket(t, owner)
	scoped := shared.key(t, contract, store.Grant{Bucket: bucket, Access: store.WriteOnly})
	for _, client := range []*s3.Client{owner, scoped} {
		// A checksum makes the client send the body in chunks with a trailer.
		_, err := client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: aws.String("chunked"),
			ChecksumAlgorithm: types.ChecksumAlgorithmCrc32, Body: bytes.NewReader(make([]byte, 200<<10))})
		want(t, err, "")
	}
}

func TestAdministrationAPIIsNotOnTheS3Port(t *testing.T) {
	_, client := shared.contract(t)
	// On the S3 port the path is a bucket like any other.
	want(t, put(t, client, "create-user", "x"), "NoSuchBucket")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://"+shared.gateway.Address()+"/list-users", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := shared.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		t.Error("the administration API answers on the S3 port")
	}
}

func TestWhatACrashLeaves(t *testing.T) {
	_, client := shared.contract(t)
	name := unfinished
	want(t, create(t, client, name), "")
	_, err := client.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &name})
	want(t, err, "")
	want(t, create(t, client, foreign), "BucketAlreadyExists")
	if _, err := os.Stat(filepath.Join(shared.dir, "s3", foreign, "data")); err != nil {
		t.Errorf("a directory with data was touched: %v", err)
	}
}

// TestFreshBucket pins what a driver's comparison of a new bucket relies on.
func TestFreshBucket(t *testing.T) {
	_, client := shared.contract(t)
	bucket := "fresh-" + strings.ToLower(rand.Text())
	_, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket,
		CreateBucketConfiguration: &types.CreateBucketConfiguration{Tags: []types.Tag{{Key: aws.String("made-by"), Value: aws.String("test")}}}})
	want(t, err, "")
	tags, err := client.GetBucketTagging(t.Context(), &s3.GetBucketTaggingInput{Bucket: &bucket})
	want(t, err, "")
	if len(tags.TagSet) != 1 || *tags.TagSet[0].Key != "made-by" {
		t.Errorf("tags of the making: %v", tags.TagSet)
	}
	versioning, err := client.GetBucketVersioning(t.Context(), &s3.GetBucketVersioningInput{Bucket: &bucket})
	want(t, err, "")
	if versioning.Status != "" {
		t.Errorf("versioning %q, want none", versioning.Status)
	}
	_, err = client.GetBucketPolicy(t.Context(), &s3.GetBucketPolicyInput{Bucket: &bucket})
	want(t, err, "NoSuchBucketPolicy")
	_, err = client.DeleteBucketTagging(t.Context(), &s3.DeleteBucketTaggingInput{Bucket: &bucket})
	want(t, err, "")
	_, err = client.GetBucketTagging(t.Context(), &s3.GetBucketTaggingInput{Bucket: &bucket})
	want(t, err, "NoSuchTagSet")
	_, err = client.PutBucketAcl(t.Context(), &s3.PutBucketAclInput{Bucket: &bucket, ACL: types.BucketCannedACLPublicRead})
	want(t, err, "AccessControlListNotSupported")
	want(t, head(t, client, "missing-bucket"), "NotFound")
	want(t, list(t, client, "missing-bucket", ""), "NoSuchBucket")
}
