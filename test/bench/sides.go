package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/signed"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	cosidriver "github.com/contract-cosi/contract-cosi-driver/pkg/driver"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// ops are the steps of a cycle.
var ops = []string{"create", "grant", "revoke", "delete"}

// side is a driver or a floor.
type side interface {
	do(ctx context.Context, op, name string) error
}

// driven are calls over a driver's socket, under a contract of its own.
type driven struct {
	client   cosiproto.ProvisionerClient
	contract string
}

func (d *driven) do(ctx context.Context, op, name string) error {
	name = d.contract[len("bench-"):] + "-" + name // the names of buckets are one space
	id := "main." + d.contract + "." + name
	var err error
	switch op {
	case "create":
		_, err = d.client.DriverCreateBucket(ctx, &cosiproto.DriverCreateBucketRequest{Name: name, Parameters: map[string]string{"contract": d.contract}})
	case "grant":
		_, err = d.client.DriverGrantBucketAccess(ctx, &cosiproto.DriverGrantBucketAccessRequest{BucketId: id, Name: "ba-" + name, AuthenticationType: cosiproto.AuthenticationType_Key})
	case "revoke":
		_, err = d.client.DriverRevokeBucketAccess(ctx, &cosiproto.DriverRevokeBucketAccessRequest{BucketId: id, AccountId: "main." + d.contract + ".ba-" + name})
	case "delete":
		_, err = d.client.DriverDeleteBucket(ctx, &cosiproto.DriverDeleteBucketRequest{BucketId: id})
	}
	return err
}

// own are the driver's own calls, made with its clients.
type own struct {
	records
	provider contract.Provider
	engine   *bucket.Engine
	issued   sync.Map // access key ids by bucket
	endpoint cosi.Endpoint
	key      secret.KeyPair // the contract's
}

const ownContract = "bench-own"

// newOwn makes the floor at the service of a configuration.
func newOwn(ctx context.Context, file string, r records) (*own, error) {
	c, err := config.Load(file, cosidriver.Types())
	if err != nil {
		return nil, err
	}
	services, err := cosidriver.Services(ctx, c)
	if err != nil {
		return nil, err
	}
	provider := services["main"]
	found, err := provider.EnsureContract(ctx, contract.Spec{Name: ownContract, Owner: c.Driver.Owner})
	if err != nil {
		return nil, err
	}
	f := &own{records: r, provider: provider, endpoint: found.Endpoints[0]}
	if f.key, err = provider.IssueKey(ctx, contract.IssueKeyRequest{Contract: ownContract, Slot: cosi.ContractSlot, Proposed: proposed("own")}); err != nil {
		return nil, err
	}
	can := provider.Capabilities()
	f.engine = bucket.New(bucket.Config{
		Endpoint: f.endpoint, Key: f.key, Owner: c.Driver.Owner, OwnerNeedsPolicy: can.OwnerNeedsPolicy, TagsLater: can.TagsLater,
		HTTP: bare(), Observe: func(string, error) {},
	})
	return f, nil
}

func bare() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 80}}
}

func proposed(id string) secret.KeyPair {
	return secret.KeyPair{AccessKeyID: id, SecretAccessKey: secret.New(rand.Text() + rand.Text())}
}

func (f *own) do(ctx context.Context, op, name string) error {
	if err := f.call(ctx, op, "own-"+name); err != nil {
		return err
	}
	return f.write(ctx, op, name)
}

func (f *own) call(ctx context.Context, op, name string) error {
	scope := &contract.Scope{Buckets: []contract.BucketScope{{Bucket: name, Mode: cosi.ReadWrite}}}
	switch op {
	case "create":
		return f.engine.Create(ctx, name, params.Bucket{Contract: ownContract, OnDelete: params.Refuse})
	case "grant":
		proposed := proposed("ba-" + name)
		pair, err := f.provider.IssueKey(ctx, contract.IssueKeyRequest{Contract: ownContract, Slot: "ba-" + name, Proposed: proposed, Exact: true, Scope: scope})
		if err != nil {
			return err
		}
		f.issued.Store(name, pair.AccessKeyID)
		if a, ok := f.provider.(contract.Acknowledger); ok {
			return a.AcknowledgeKey(ctx, ownContract, proposed)
		}
		return nil
	case "revoke":
		known, _ := f.issued.LoadAndDelete(name)
		id, _ := known.(string)
		return f.provider.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: ownContract, Slot: "ba-" + name, Scope: scope, Known: []string{id}, Exact: true})
	case "delete":
		if f.provider.Capabilities().SharedBuckets { // another contract's must not be deleted
			if ours, err := f.engine.Ours(ctx, name); err != nil || !ours {
				return cmp.Or(err, fmt.Errorf("bucket %s has no mark", name))
			}
		}
		return f.engine.Delete(ctx, name)
	}
	return fmt.Errorf("no operation %s", op)
}

// fewest are the fewest calls that keep the promises, made with bare clients.
type fewest struct {
	records
	kind    string
	storage *harness.Storage
	owner   string     // the contract's key
	s3      *s3.Client // with that key
	iam     *iam.Client
	admin   signed.Client // with the administrator's
	http    *http.Client
	issued  sync.Map // access key ids by user
}

// newFewest makes the floor beside another, whose contract it uses.
func newFewest(storage *harness.Storage, beside *own, r records) *fewest {
	f := &fewest{records: r, kind: storage.Type, storage: storage, owner: beside.key.AccessKeyID, http: bare()}
	key := func(id, secret string) aws.CredentialsProvider {
		return credentials.NewStaticCredentialsProvider(id, secret, "")
	}
	root := secret.KeyPair{AccessKeyID: storage.AccessKeyID, SecretAccessKey: secret.New(storage.Secrets[0])}
	f.s3 = s3.New(s3.Options{
		BaseEndpoint: &beside.endpoint.URL, Region: beside.endpoint.Region, UsePathStyle: true, HTTPClient: f.http,
		Credentials:                key(beside.key.AccessKeyID, beside.key.SecretAccessKey.Reveal()),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired, ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
	})
	f.iam = iam.New(iam.Options{BaseEndpoint: &storage.API, Region: "us-east-1", HTTPClient: f.http, Credentials: key(root.AccessKeyID, root.SecretAccessKey.Reveal())})
	f.admin = signed.Client{Region: beside.endpoint.Region, Credentials: func() secret.KeyPair { return root }, HTTP: f.http, Observe: func(string, error) {}}
	return f
}

func (f *fewest) do(ctx context.Context, op, name string) error {
	if err := f.call(ctx, op, "fewest-"+name); err != nil {
		return err
	}
	return f.write(ctx, op, name)
}

func (f *fewest) call(ctx context.Context, op, name string) error {
	switch op {
	case "create":
		return f.create(ctx, name)
	case "grant":
		return f.grant(ctx, name, "ba-"+name)
	case "revoke":
		return f.revoke(ctx, name, "ba-"+name)
	}
	if f.kind == "iam" { // whose contracts share an account, so only the mark tells whose a bucket is
		if _, err := f.s3.GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: &name}); err != nil {
			return err
		}
	}
	_, err := f.s3.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &name})
	return err
}

// create makes a bucket that carries a mark.
func (f *fewest) create(ctx context.Context, name string) error {
	mark := []types.Tag{{Key: aws.String(cosi.OwnerTag), Value: aws.String("bench")}}
	in := &s3.CreateBucketInput{Bucket: &name}
	if f.kind != "rgw" {
		in.CreateBucketConfiguration = &types.CreateBucketConfiguration{Tags: mark}
	}
	_, err := f.s3.CreateBucket(ctx, in)
	if err == nil && f.kind == "rgw" { // which takes no tags with it
		_, err = f.s3.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{Bucket: &name, Tagging: &types.Tagging{TagSet: mark}})
	}
	return err
}

// grant makes a key that is limited to a bucket.
func (f *fewest) grant(ctx context.Context, name, user string) error {
	policy := fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":["arn:aws:s3:::%[1]s","arn:aws:s3:::%[1]s/*"]}]}`, name)
	switch f.kind {
	case "contractapi":
		path := "/v1/contracts/" + ownContract + "/keys/" + user
		err := f.rest(ctx, http.MethodPut, path, fmt.Sprintf(`{"spec":{"slot":%q,"buckets":[{"bucket":%q,"access":"readWrite"}]}}`, user, name))
		if err != nil {
			return err
		}
		return f.rest(ctx, http.MethodPut, path+"/acknowledgement", "")
	case "versitygw":
		if err := f.gateway(ctx, "/create-user", fmt.Sprintf("<Account><Access>%s</Access><Secret>%s</Secret><Role>user</Role></Account>", user, rand.Text())); err != nil {
			return err
		}
		_, _ = f.s3.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: &name})                                           // what others have written stays
		allow := strings.Replace(policy, `"Action"`, fmt.Sprintf(`"Principal":{"AWS":[%q,%q]},"Action"`, f.owner, user), 1) // without which the owner is locked out
		_, err := f.s3.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: &name, Policy: &allow})
		return err
	case "iam":
		if _, err := f.iam.CreateUser(ctx, &iam.CreateUserInput{UserName: &user}); err != nil {
			return err
		}
		if _, err := f.iam.PutUserPolicy(ctx, &iam.PutUserPolicyInput{UserName: &user, PolicyName: aws.String("access"), PolicyDocument: &policy}); err != nil {
			return err
		}
		key, err := f.iam.CreateAccessKey(ctx, &iam.CreateAccessKeyInput{UserName: &user})
		if err == nil {
			f.issued.Store(user, *key.AccessKey.AccessKeyId)
		}
		return err
	}
	if err := f.ops(ctx, http.MethodPut, url.Values{"uid": {user}, "display-name": {user}, "max-buckets": {"-1"}}); err != nil {
		return err
	}
	_, err := f.iam.PutUserPolicy(ctx, &iam.PutUserPolicyInput{UserName: &user, PolicyName: aws.String("access"), PolicyDocument: &policy})
	return err
}

func (f *fewest) revoke(ctx context.Context, name, user string) error {
	switch f.kind {
	case "contractapi":
		return f.rest(ctx, http.MethodDelete, "/v1/contracts/"+ownContract+"/keys?slot="+user, "")
	case "versitygw":
		if err := f.gateway(ctx, "/delete-user?access="+user, ""); err != nil {
			return err
		}
		if _, err := f.s3.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: &name}); err != nil {
			return err
		}
		_, err := f.s3.DeleteBucketPolicy(ctx, &s3.DeleteBucketPolicyInput{Bucket: &name})
		return err
	case "iam":
		id, _ := f.issued.LoadAndDelete(user)
		key, _ := id.(string)
		if _, err := f.iam.DeleteAccessKey(ctx, &iam.DeleteAccessKeyInput{UserName: &user, AccessKeyId: &key}); err != nil {
			return err
		}
		if _, err := f.iam.DeleteUserPolicy(ctx, &iam.DeleteUserPolicyInput{UserName: &user, PolicyName: aws.String("access")}); err != nil {
			return err
		}
		_, err := f.iam.DeleteUser(ctx, &iam.DeleteUserInput{UserName: &user})
		return err
	}
	return f.ops(ctx, http.MethodDelete, url.Values{"uid": {user}})
}

// rest calls the contract API.
func (f *fewest) rest(ctx context.Context, method, path, body string) error {
	request, err := http.NewRequestWithContext(ctx, method, f.storage.API+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+f.storage.Secrets[0])
	request.Header.Set("Content-Type", "application/json")
	answer, err := f.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return err
}

// gateway calls versitygw's admin API.
func (f *fewest) gateway(ctx context.Context, path, body string) error {
	_, err := f.admin.Do(ctx, signed.Call{Operation: path, Method: http.MethodPatch, API: transport.S3, URL: f.storage.API + path, Body: []byte(body)})
	return err
}

// ops calls Ceph's Admin Ops API about a user.
func (f *fewest) ops(ctx context.Context, method string, query url.Values) error {
	_, err := f.admin.Do(ctx, signed.Call{Operation: method, Method: method, API: transport.JSON, URL: f.storage.API + "/admin/user?" + query.Encode()})
	return err
}
