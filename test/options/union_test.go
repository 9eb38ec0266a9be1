package options

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// union is all that drivers of object storage have, one this and another that,
// each with the test that shows it here, or why it is not here.
var union = []struct {
	feature    string
	parameters string // space-separated, if it is one or more of the table
	test       string // directory and name
	why        string
}{
	// Buckets.
	{feature: "region or location", parameters: "region", test: "test/integration.TestBadCreate"},
	{feature: "canned ACL, a public bucket by it", parameters: "acl", test: "test/integration.TestCannedACL"},
	{feature: "the five grants of an ACL", parameters: "grantRead grantWrite grantReadACP grantWriteACP grantFullControl", test: "test/integration.TestExplicitGrants"},
	{feature: "CORS", parameters: "corsOrigins corsMethods cors", test: "test/options.TestOptions"},
	{feature: "bucket policy with placeholders", parameters: "policy", test: "test/options.TestOptions"},
	{feature: "object ownership", parameters: "objectOwnership", test: "test/options.TestOptions"},
	{feature: "public access block", parameters: "blockPublicAccess", test: "test/backends.TestRGWOptions"},
	{feature: "versioning", parameters: "versioning", test: "test/options.TestOptions"},
	{feature: "object lock, its mode, days and years, a retention period", parameters: "objectLock", test: "test/integration.TestObjectLock"},
	{feature: "lifecycle, time to live of objects", parameters: "expireAfterDays noncurrentExpireAfterDays abortUploadsAfterDays lifecycle", test: "test/backends.TestRGWOptions"},
	{feature: "encryption", parameters: "encryption kmsKey", test: "test/options.TestOptions"},
	{feature: "tags", parameters: "tags", test: "test/options.TestOptions"},
	{feature: "web site", parameters: "websiteIndex websiteError", test: "test/options.TestOptions"},
	{feature: "request payer", parameters: "requestPayer", test: "test/backends.TestRGWOptions"},
	{feature: "placement, storage policy, disk type, data centre or rack", parameters: "placement", test: "test/backends.TestRGWPlacement"},
	{feature: "deletion with all objects, opted in to and with proof of ownership", parameters: "onDelete", test: "test/integration.TestReplacedBucketIsNotEmptied"},
	{feature: "deletion with versions, uploads and locks, over deadlines", test: "test/integration.TestEmptyOverDeadlinesAndRestarts"},
	{feature: "an existing bucket", test: "test/integration.TestAdoption"},
	{feature: "owner of a bucket", test: "test/integration.TestForeignBuckets"},
	{feature: "options that the storage lacks are refused, and none is ignored", test: "test/integration.TestOptionsTheStorageLacks"},
	{feature: "unknown parameters are refused", test: "test/integration.TestBadCreate"},
	{feature: "an allow-list of options for each tenant, and its limits", test: "test/integration.TestGuardRefuses"},
	{feature: "numbers of buckets and keys of a tenant", test: "test/integration.TestGuardCounts"},
	{feature: "quota of a user or tenant in bytes and objects", why: "It is in the contract's terms (quota.maxBytes, quota.maxObjects), which the platform signs and a class cannot raise."},
	{feature: "quota of a single bucket, in bytes and objects", parameters: "maxBytes maxObjects", test: "test/options.TestOptions"},
	{feature: "quota that only warns", why: "A bound is kept; the metrics of what a bucket holds have an alert before it is full."},
	{feature: "replication within the service, its groups and policies", why: "Services fix it with where a bucket is placed; what can be chosen of it is placement."},
	{feature: "replication to other buckets and namespaces over resources", why: "It needs roles and second buckets that no COSI object describes; it is set up at the service."},
	{feature: "settings of storage accounts that hold containers", why: "They are another protocol's; the driver speaks S3."},
	{feature: "a prefix of bucket names", why: "A bucket is called as its Bucket object is, since that is the name which the Secret of v1alpha1 tells the application; the BucketClass's name is its beginning."},
	{feature: "the type or host of an endpoint", why: "A contract's endpoints come from its service; a class that could name another would hand out keys for it."},
	// Keys.
	{feature: "read and write, read-only, write-only", parameters: "access", test: "test/integration.TestModes"},
	{feature: "single operations, listing only", parameters: "actions", test: "test/integration.TestActionsAndPrefixes"},
	{feature: "a part of a bucket, or several", parameters: "prefix prefixes", test: "test/integration.TestActionsAndPrefixes"},
	{feature: "source addresses", parameters: "sourceIP", test: "test/integration.TestPrefixAndSourceIP"},
	{feature: "expiry", parameters: "keyLife", test: "test/integration.TestKeyLife"},
	{feature: "several buckets with one key, a mode for each", test: "test/integration.TestSeveralBuckets"},
	{feature: "keys of users with policies of their own", test: "test/backends.TestRGWConformance"},
	{feature: "the same key for a repeated grant", test: "test/integration.TestEveryCallRepeated"},
	{feature: "protocols that a key may be used with", why: "An S3 key signs requests and knows nothing of TLS; an endpoint without it is not given out by a service that minds."},
	{feature: "an administrator's mode", why: "A key that may change the bucket could take it out of the class's hands; that is the contract's own key."},
	{feature: "service accounts in the place of keys", why: "No service here trusts a cluster's tokens; the request is refused with the way out (test/integration.TestBadGrant)."},
	// Tenants.
	{feature: "the tenant, backend and terms that a class uses", parameters: "contract", test: "test/integration.TestTermsConverge"},
	{feature: "tenants that cannot reach each other", test: "test/integration.TestNeighbours"},
	{feature: "credentials that a class or a namespace names", why: "A class names a contract, and the driver holds the contract's key; no Secret is read for a class, so none can be borrowed."},
	// The API.
	{feature: "both versions of COSI on one socket, and the way from one to the other", test: "test/integration.TestUpgrade"},
	{feature: "all calls of v1alpha2, in its numbers", test: "pkg/cosipb/v1alpha2.TestWireIsThePublishedOne"},
	{feature: "answers and codes that the released sidecars take as they are meant", test: "test/integration.TestConformance"},
	{feature: "one table of errors", test: "test/docs.TestCodesAndFields"},
	// Robustness.
	{feature: "a stale socket", test: "pkg/server.TestSocketReplacesStale"},
	{feature: "an end that waits for calls under way", test: "pkg/server.TestServeWaitsForACallUnderWay"},
	{feature: "ids that say whose they are", test: "test/integration.TestForeignIDsOnRevokeAndDelete"},
	{feature: "several callers of one name", test: "test/integration.TestTwentyCallersOfOneName"},
	{feature: "several live drivers", test: "test/integration.TestTwoLiveDrivers"},
	{feature: "recovery after a crash at any step", test: "test/integration.TestKilledBetweenSteps"},
	{feature: "what a failed call has made is taken back, also when its caller has left", test: "test/integration.TestCreateIsAllOrNothing"},
	{feature: "retries with jitter, where a replay is safe", test: "test/backends.TestTroubleThatPasses"},
	{feature: "policies edited without loss", test: "pkg/policy.TestEditsLoseNothing"},
	{feature: "policies edited by compare-and-swap", why: "S3's PutBucketPolicy takes no condition. Statements of the driver's are found by their Sid, and drift puts back what another editor has lost."},
	{feature: "a revoked key is refused when the call returns", test: "test/integration.TestEveryCallRepeated"},
	{feature: "secrets in no log and no message", test: "test/integration.TestSecretsAreNotPrinted"},
	{feature: "rotation with two keys and a grace", test: "test/integration.TestRotation"},
	{feature: "rotation by a schedule, into the Secret that the application reads", parameters: "keyRotation keyGrace", test: "pkg/provisioner.TestRenewalWithAFaultAtEveryStep"},
	{feature: "Secrets in the forms that applications read", parameters: "secretFormat", test: "pkg/delivery.TestFormats"},
	{feature: "a Secret that was edited or deleted", test: "pkg/provisioner.TestSecretThatWasChanged"},
	{feature: "keys and principals that nobody knows of", test: "test/integration.TestAudit"},
	{feature: "what has changed behind the driver's back", test: "test/integration.TestDriftIsRepaired"},
	// Transport.
	{feature: "certificates that are verified", test: "pkg/transport.TestCertificatesAreVerified"},
	{feature: "a CA of one's own, renewed while calls are made", test: "pkg/transport.TestANewCA"},
	{feature: "client certificates", test: "pkg/transport.TestClientCertificate"},
	{feature: "a proxy", test: "pkg/transport.TestProxy"},
	{feature: "credentials that are renewed", test: "test/backends.TestWrongCredentials"},
	// Observability.
	{feature: "Prometheus metrics", test: "test/docs.TestMetrics"},
	{feature: "health and reflection over gRPC", test: "pkg/server.TestHealth"},
	{feature: "probes", test: "cmd/contract-cosi-driver.TestServeAnswersProbes"},
	{feature: "readiness that asks the service", test: "pkg/server.TestLooksOnceASecond"},
	{feature: "a check of a configuration before it is deployed", test: "test/backends.TestCheck"},
	{feature: "traces", why: "A call is one line and one observation, and so is each call it makes; the sidecars start no trace that could be carried on."},
	{feature: "logs as JSON", test: "cmd/contract-cosi-driver.TestLogFormat"},
	{feature: "a log level that changes while running", why: "A start takes milliseconds and loses nothing, so it is a flag."},
	// Packaging.
	{feature: "a chart with a schema", test: "test/deploy.TestSchema"},
	{feature: "manifests for kustomize", test: "test/deploy.TestKustomizations"},
	{feature: "example classes", test: "test/deploy.TestExamples"},
	{feature: "no root, no privilege, a read-only file system, seccomp", test: "test/deploy.TestSecurityContext"},
	{feature: "a token for each container, and none where none is needed", test: "test/deploy.TestTokens"},
	{feature: "least rights", test: "test/deploy.TestRoles"},
	{feature: "admission policies", test: "test/deploy.TestClasses"},
	{feature: "images for several architectures", test: "test/deploy.TestPlatforms"},
	{feature: "images signed, with a list of parts", why: "The repository publishes none. Their base is pinned by digest, make release writes their lists of parts, and whoever publishes an image signs it."},
	{feature: "a development container", why: "Go is all that make run needs."},
	// Tests.
	{feature: "real servers, clients and reconcilers in a cluster", test: "test/e2e.TestScenarios"},
	{feature: "faults after each call", test: "test/integration.TestLostAnswers"},
	{feature: "a conformance suite", test: "cmd/cosi-sanity/sanity.TestEveryCheckCanFail"},
	{feature: "random messages", test: "test/integration.TestRandomMessages"},
	{feature: "a guide to grpcurl", test: "test/docs.TestSessions"},
}

func TestUnion(t *testing.T) {
	t.Parallel()
	root, err := harness.Root()
	must(t, err)
	missing := map[string]bool{}
	for _, p := range params.Table() {
		missing[p.Name] = true
	}
	seen := map[string]bool{}
	for _, u := range union {
		if seen[u.feature] {
			t.Errorf("%s is there twice", u.feature)
		}
		seen[u.feature] = true
		for p := range strings.FieldsSeq(u.parameters) {
			if !slices.ContainsFunc(params.Table(), func(have params.Parameter) bool { return have.Name == p }) {
				t.Errorf("%s: there is no parameter %s", u.feature, p)
			}
			delete(missing, p)
		}
		switch {
		case (u.test == "") == (u.why == ""):
			t.Errorf("%s has to have either a test or a reason", u.feature)
		case u.why != "":
			t.Logf("%-70s %s", u.feature, u.why)
		case !hasTest(t, root, u.test):
			t.Errorf("%s: there is no test %s", u.feature, u.test)
		default:
			t.Logf("%-70s %s", u.feature, u.test)
		}
	}
	for p := range missing {
		t.Errorf("parameter %s belongs to no feature", p)
	}
}

func hasTest(t *testing.T, root, test string) bool {
	dir, name, _ := strings.Cut(test, ".")
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	must(t, err)
	function := regexp.MustCompile(`(?m)^func ` + name + `\(t \*testing\.T\)`)
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		must(t, err)
		return function.Match(text)
	})
}
