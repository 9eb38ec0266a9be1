// Package contracttest is what every contract.Provider has to do: one suite,
// written from the seam's comments and run on each provider against a real
// server. What a provider's capabilities promise is proved with S3 requests
// signed with the keys it gives; what they do not promise has to be refused.
//
// The suite knows no service. A provider's test gives it a [Harness].
package contracttest

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/contract-cosi/contract-cosi-driver/pkg/bucket"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
)

// Owner is the mark of the driver that the suite plays. A provider that has to
// know it is made with it.
const Owner = "contracttest"

// Service is a provider with everything between it and its server on a line.
type Service struct {
	// Provider is the provider under test.
	Provider contract.Provider
	// Lose counts the provider's calls from 1 again and loses the answer of the n-th:
	// the server has done it and the provider never hears. 0 loses none, -1 every request,
	// before the server hears of it.
	Lose func(n int)
	// Calls is how many calls there were since then.
	Calls func() int
}

// Harness reaches the server under test.
type Harness struct {
	// Open makes a provider for one test. Tests run side by side at one server.
	Open func(t *testing.T) Service
	// Refused makes a provider whose administration credentials are wrong.
	Refused func(t *testing.T) Service
	// Slow makes a provider at a server that signs no contract at once; nil if
	// there is no such server.
	Slow func(t *testing.T) Service
	// Secrets are the administration credentials, which may appear in no output.
	Secrets []string
	// Operator changes keys past the provider, for one that restores them; nil
	// for any other.
	Operator *Operator
	// Lacks are bounds that the provider can pass on and this server refuses.
	Lacks contract.QuotaKinds
	// Unknown are actions of [cosi.Actions] that this server does not have.
	Unknown []string
	// Logs is all that the provider and what it uses have logged; it may be nil.
	Logs func() string
}

// tests are the suite, by name.
var tests = map[string]func(*env){
	"EnsureTwice":       testEnsureTwice,
	"OtherOwner":        testOtherOwner,
	"OtherJournal":      testOtherJournal,
	"Unknown":           testUnknown,
	"Pending":           testPending,
	"Suspend":           testSuspend,
	"Quota":             testQuota,
	"BucketQuota":       testBucketQuota,
	"Unsupported":       testUnsupported,
	"Replay":            testReplay,
	"Orphans":           testOrphans,
	"Rotation":          testRotation,
	"KeyLimit":          testKeyLimit,
	"Revoke":            testRevoke,
	"WithoutDoubt":      testWithoutDoubt,
	"RestoreKey":        testRestoreKey,
	"ListKeys":          testListKeys,
	"DeleteContract":    testDeleteContract,
	"ContractKey":       testContractKey,
	"Modes":             testModes,
	"Neighbours":        testNeighbours,
	"Prefix":            testPrefix,
	"SourceAddresses":   testSourceAddresses,
	"SeveralBuckets":    testSeveralBuckets,
	"NotTheBucket":      testNotTheBucket,
	"ObjectsOwner":      testObjectsOwner,
	"LostAnswers":       testLostAnswers,
	"SideBySide":        testSideBySide,
	"NoAnswer":          testNoAnswer,
	"WrongCredentials":  testWrongCredentials,
	"RegionsAndCheck":   testRegionsAndCheck,
	"CapabilitiesStand": testCapabilitiesStand,
}

// Run runs the suite, its tests side by side.
func Run(t *testing.T, h Harness) {
	var all told
	t.Run("Provider", func(t *testing.T) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				e := &env{T: t, h: h, told: &all}
				e.open(h.Open)
				test(e)
			})
		}
	})
	t.Run("Secrets", func(t *testing.T) { all.check(t, h) })
}

// told collects what must not be told and what was.
type told struct {
	mu      sync.Mutex
	secrets []string
	errors  []string
}

func (s *told) issued(pair secret.KeyPair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets = append(s.secrets, pair.SecretAccessKey.Reveal())
}

func (s *told) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errors = append(s.errors, err.Error())
}

// check looks for secrets, after all tests, in all that was said.
func (s *told) check(t *testing.T, h Harness) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.errors) == 0 {
		t.Error("no test met an error to look at")
	}
	said := strings.Join(s.errors, "\n")
	if h.Logs != nil {
		said += h.Logs()
	}
	for _, text := range append(s.secrets, h.Secrets...) {
		if strings.Contains(said, text) {
			t.Error("a secret is told in an error or a log")
		}
	}
}

// env is one test. Its Provider is the portable type around the one under test,
// which is what the driver uses.
type env struct {
	*testing.T
	Service
	bare contract.Provider
	h    Harness
	told *told
}

// open goes on with another provider.
func (e *env) open(open func(*testing.T) Service) {
	e.Service = open(e.T)
	e.bare = e.Provider
	e.Provider = contract.NewService("test", Owner, journals(ownJournal), e.bare)
}

// The identities of the journals of two drivers with one owner.
const ownJournal, otherJournal = "00112233445566ff", "ff66554433221100"

func journals(identities ...string) contract.Journals {
	return func(context.Context) ([]string, error) { return identities, nil }
}

// patience bounds what a service may take its time for.
const patience = 30 * time.Second

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.told.failed(err)
		e.Fatal(err)
	}
}

// kind checks the kind of an error, and that its text is fit for an event.
func (e *env) kind(what string, err error, want fault.Kind) {
	e.Helper()
	if err != nil {
		e.told.failed(err)
		if text := err.Error(); len(text) > 1024 || strings.ContainsAny(text, "\n\r") {
			e.Errorf("%s: the text is no sentence: %q", what, text)
		}
	}
	if !fault.Is(err, want) {
		e.Errorf("%s: got %q (%v), want %q", what, fault.KindOf(err), err, want)
	}
}

func label(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()[:12]) }

// propose is a pair as the driver proposes it.
func propose() secret.KeyPair {
	return secret.KeyPair{AccessKeyID: "ck" + strings.ToLower(rand.Text()), SecretAccessKey: secret.New(rand.Text() + rand.Text())}
}

// ensure signs a contract and waits until it is no longer pending.
func (e *env) ensure(spec contract.Spec) (contract.Contract, error) {
	e.Helper()
	return settle(e, func() (contract.Contract, bool, error) {
		c, err := e.Provider.EnsureContract(e.Context(), spec)
		return c, err == nil && c.State == contract.StatePending, err
	})
}

// settle calls do until it is no longer pending.
func settle[T any](e *env, do func() (out T, pending bool, err error)) (T, error) {
	e.Helper()
	deadline := time.Now().Add(patience)
	for {
		out, pending, err := do()
		if !pending {
			return out, err
		}
		if time.Now().After(deadline) {
			e.Fatalf("still pending after %s", patience)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// tenant is a signed contract with its own key.
type tenant struct {
	*env
	contract.Contract
	key    secret.KeyPair
	engine *bucket.Engine
}

// sign signs a fresh contract, which is cancelled when the test ends.
func (e *env) sign() *tenant {
	e.Helper()
	name := label("t")
	c, err := e.ensure(contract.Spec{Name: name, Owner: Owner})
	e.must(err)
	if c.State != contract.StateActive || len(c.Endpoints) == 0 {
		e.Fatalf("contract %+v", c)
	}
	t := &tenant{env: e, Contract: c}
	t.key = t.issue(contract.IssueKeyRequest{Contract: name, Slot: cosi.ContractSlot, Proposed: propose()})
	t.use(t.key)
	e.Cleanup(func() { t.cancel(name) })
	return t
}

// use goes on with another of the contract's own keys.
func (t *tenant) use(pair secret.KeyPair) {
	t.key = pair
	mark := Owner
	if t.Provider.Capabilities().SharedBuckets {
		mark = cosi.SharedMark(Owner, t.Name)
	}
	t.engine = bucket.New(bucket.Config{
		Endpoint: t.Endpoints[0], Key: pair, Owner: mark, HTTP: http.DefaultClient, Observe: func(string, error) {},
		Contract: t.Name, Bounder: t.Provider.(contract.Bounder), // the portable type is one for every provider
		OwnerNeedsPolicy: t.Provider.Capabilities().OwnerNeedsPolicy, TagsLater: t.Provider.Capabilities().TagsLater,
	})
}

// cancel takes away what a test has left.
func (t *tenant) cancel(name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	t.Lose(0)
	for {
		err := t.Provider.DeleteContract(ctx, name)
		if !fault.Is(err, fault.Pending) {
			if err != nil {
				t.Errorf("contract %s is left behind: %v", name, err)
			}
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// bucket makes a bucket, which is emptied and deleted when the test ends.
func (t *tenant) bucket() string {
	t.Helper()
	name := label("b")
	t.must(t.engine.Create(t.Context(), name, params.Bucket{Contract: t.Name}))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if _, err := t.engine.Empty(ctx, name, params.Bucket{}); err != nil {
			t.Errorf("bucket %s: %v", name, err)
		}
		if err := t.engine.Delete(ctx, name); err != nil {
			t.Errorf("bucket %s: %v", name, err)
		}
	})
	return name
}

func (e *env) issue(req contract.IssueKeyRequest) secret.KeyPair {
	e.Helper()
	pair, err := e.Provider.IssueKey(e.Context(), req)
	e.must(err)
	if pair.AccessKeyID == "" || pair.SecretAccessKey.Reveal() == "" {
		e.Fatal("an empty key")
	}
	e.told.issued(pair)
	e.told.issued(req.Proposed)
	return pair
}

// grant issues a key to one bucket in a slot of its own.
func (t *tenant) grant(scope contract.BucketScope) (slot string, pair secret.KeyPair) {
	t.Helper()
	slot = label("s")
	return slot, t.issue(contract.IssueKeyRequest{Contract: t.Name, Slot: slot, Scope: &contract.Scope{Buckets: []contract.BucketScope{scope}}, Proposed: propose()})
}

func (t *tenant) ids(slot string) []string {
	t.Helper()
	keys, err := t.Provider.ListKeys(t.Context(), t.Name, slot)
	t.must(err)
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k.AccessKeyID
	}
	slices.Sort(out)
	return out
}

func (t *tenant) holds(slot string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := t.ids(slot); !slices.Equal(got, want) {
		t.Errorf("slot %s holds %q, want %q", slot, got, want)
	}
}

// limited reports whether keys can be limited to buckets here. Where they
// cannot, there is nothing for the tests of limits to prove.
func (e *env) limited() bool { return e.Provider.Capabilities().ScopeBy != contract.ScopeByNone }

// scoped is the scope of a key that may write to a bucket.
func scoped(bucket string) contract.BucketScope {
	return contract.BucketScope{Bucket: bucket, Mode: cosi.ReadWrite}
}

func (t *tenant) client(pair secret.KeyPair) *s3.Client { return client(t.Endpoints[0], pair) }
