package versitygw_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/versitygw"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// deleteAccount is what an operator does by hand.
func deleteAccount(t *testing.T, gateway *harness.VersityGW, access string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, gateway.S3+"/delete-user?access="+access, nil)
	must(t, err)
	const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	req.Header.Set("X-Amz-Content-Sha256", empty)
	key := aws.Credentials{AccessKeyID: gateway.AccessKeyID, SecretAccessKey: gateway.Secret}
	must(t, v4.NewSigner().SignHTTP(t.Context(), key, req, empty, "s3", harness.VersityGWRegion, time.Now()))
	answer, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("delete-user: HTTP %d", answer.StatusCode)
	}
}

// A bucket's policy has three authors: the class, the driver for its keys, and
// everyone else. None of them loses anything to another, and the contract never
// loses its bucket.
func TestPoliciesOfThreeAuthors(t *testing.T) {
	t.Parallel()
	gateway := start(t)
	at := cosi.Endpoint{Region: harness.VersityGWRegion, URL: gateway.S3, PathStyle: true}
	p := versitygw.New(versitygw.Config{
		AdminURL: gateway.S3, Endpoints: []cosi.Endpoint{at}, Owner: "o", HTTP: http.DefaultClient, Observe: func(string, error) {},
		Credentials: func() secret.KeyPair {
			return secret.KeyPair{AccessKeyID: gateway.AccessKeyID, SecretAccessKey: secret.New(gateway.Secret)}
		},
	})
	ctx := t.Context()
	_, err := p.EnsureContract(ctx, contract.Spec{Name: "tenant", Owner: "o"})
	must(t, err)
	own, err := p.IssueKey(ctx, contract.IssueKeyRequest{Contract: "tenant", Slot: cosi.ContractSlot, Proposed: secret.KeyPair{AccessKeyID: "a", SecretAccessKey: secret.New("own-secret")}})
	must(t, err)
	engine := bucket.New(bucket.Config{Endpoint: at, Key: own, Owner: "o", OwnerNeedsPolicy: true, HTTP: http.DefaultClient, Observe: func(string, error) {}})
	class, err := params.ParseBucket(map[string]string{
		"contract": "tenant",
		"policy":   `{"Version":"2012-10-17","Statement":[{"Sid":"Readers","Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::${bucket}/public/*"}]}`,
	})
	must(t, err)
	const b = "three-authors"
	must(t, engine.Create(ctx, b, class))
	owner := harness.S3(at.URL, at.Region, own.AccessKeyID, own.SecretAccessKey.Reveal())
	read := func() string {
		t.Helper()
		out, err := owner.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: aws.String(b)})
		must(t, err)
		return aws.ToString(out.Policy)
	}
	grant := func(slot string) secret.KeyPair {
		t.Helper()
		pair, err := p.IssueKey(ctx, contract.IssueKeyRequest{
			Contract: "tenant", Slot: slot, Proposed: secret.KeyPair{AccessKeyID: "k", SecretAccessKey: secret.New("secret-of-" + slot)},
			Scope: &contract.Scope{Buckets: []contract.BucketScope{{Bucket: b, Mode: cosi.ReadWrite}}},
		})
		must(t, err)
		return pair
	}
	works := func(pair secret.KeyPair) {
		t.Helper()
		_, err := harness.S3(at.URL, at.Region, pair.AccessKeyID, pair.SecretAccessKey.Reveal()).ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: aws.String(b)})
		must(t, err)
	}
	one, two := grant("one"), grant("two")
	works(one)
	works(two)
	works(own)

	// Someone else adds a statement, by hand and in another order.
	theirs := strings.Replace(read(), `"Statement":[`, `"Statement":[{"Sid":"Theirs","Effect":"Deny","Principal":"*","Action":"s3:DeleteBucketPolicy","Resource":"arn:aws:s3:::`+b+`"},`, 1)
	_, err = owner.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: aws.String(b), Policy: &theirs})
	must(t, err)
	must(t, p.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: "tenant", Slot: "one"}))
	for _, sid := range []string{"Readers", "Theirs"} {
		if !strings.Contains(read(), `"`+sid+`"`) {
			t.Errorf("statement %s is lost in %s", sid, read())
		}
	}
	if strings.Contains(read(), one.AccessKeyID) || !strings.Contains(read(), two.AccessKeyID) {
		t.Errorf("the key that was revoked stays, or the other one goes: %s", read())
	}
	works(two)

	// The class's repair takes out what is not the class's, and leaves the keys.
	written, err := engine.Restore(ctx, b, class, class)
	must(t, err)
	if len(written) != 1 || strings.Contains(read(), "Theirs") || !strings.Contains(read(), two.AccessKeyID) {
		t.Errorf("restored %q: %s", written, read())
	}
	if written, err = engine.Restore(ctx, b, class, class); err != nil || len(written) != 0 {
		t.Errorf("a second look changes %q, %v", written, err)
	}
	works(two)
	works(own)

	// A Sid like the driver's makes no statement the driver's: none of those is public.
	forged := strings.Replace(read(), `"Statement":[`, `"Statement":[{"Sid":"ContractCosiForged","Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::`+b+`/*"},`, 1)
	_, err = owner.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: aws.String(b), Policy: &forged})
	must(t, err)
	if written, err = engine.Restore(ctx, b, class, class); err != nil || len(written) != 1 || strings.Contains(read(), "Forged") {
		t.Errorf("restored %q (%v): %s", written, err, read())
	}
	works(two)

	// A key that is gone and still named in a policy, as two processes that edit
	// it at once can leave it, does no harm.
	dead := grant("dead")
	deleteAccount(t, gateway, dead.AccessKeyID)
	works(grant("three"))
	if strings.Contains(read(), dead.AccessKeyID) {
		t.Errorf("the key that is gone is still named: %s", read())
	}
	must(t, p.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: "tenant", Slot: "three"}))
	must(t, p.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: "tenant", Slot: "two"}))
	if !strings.Contains(read(), "Readers") || strings.Contains(read(), two.AccessKeyID) {
		t.Errorf("after the last key: %s", read())
	}
	works(own)

	// A journal from a backup may know less than there is, and be sure of it: a key
	// that is let do something is found where it is let.
	scope := &contract.Scope{Buckets: []contract.BucketScope{{Bucket: b, Mode: cosi.ReadWrite}}}
	for what, forget := range map[string]func() error{
		"revoke": func() error {
			return p.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: "tenant", Slot: "four", Scope: scope, Exact: true, Known: []string{"tenant.four.before"}})
		},
		"grant": func() error {
			_, err := p.IssueKey(ctx, contract.IssueKeyRequest{Contract: "tenant", Slot: "four", Scope: scope, Exact: true, Proposed: secret.KeyPair{AccessKeyID: "other", SecretAccessKey: secret.New("another-secret")}})
			return err
		},
	} {
		four := grant("four")
		must(t, forget())
		keys, err := p.ListKeys(ctx, "tenant", "four")
		must(t, err)
		if slices.ContainsFunc(keys, func(k contract.KeyInfo) bool { return k.AccessKeyID == four.AccessKeyID }) {
			t.Errorf("%s leaves %s", what, four.AccessKeyID)
		}
	}
	must(t, p.RevokeKey(ctx, contract.RevokeKeyRequest{Contract: "tenant", Slot: "four"}))

	must(t, engine.Delete(ctx, b))
	if err := p.DeleteContract(ctx, "tenant"); err != nil {
		t.Error(err)
	}
	if _, err := p.GetContract(ctx, "tenant"); !fault.Is(err, fault.NotFound) {
		t.Errorf("got %v", err)
	}
}
