package integration

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"google.golang.org/grpc/codes"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// emptied deletes what a bucket holds with a key of the operator's.
func emptied(e *env, l *life) error { return remove(e, e.owner(l.contract), l.bucket, "x") }

func TestBadCreate(t *testing.T) {
	t.Parallel()
	e := newEnv(t, "contracts:\n  - {name: team-a, backend: main}\n")
	for name, c := range map[string]struct {
		bucket string
		class  map[string]string
		want   []string
	}{
		"no name":         {"", map[string]string{"contract": "team-a"}, []string{"bucket name", "empty"}},
		"long name":       {strings.Repeat("a", 64), map[string]string{"contract": "team-a"}, []string{"3 to 63"}},
		"S3's rules":      {"Under_Score", map[string]string{"contract": "team-a"}, []string{"lower-case"}},
		"no contract":     {"bucket", nil, []string{"contract is missing"}},
		"other contract":  {"bucket", map[string]string{"contract": "team-b"}, []string{`"team-b" is not in the driver's configuration`}},
		"unknown key":     {"bucket", map[string]string{"contract": "team-a", "versionin": "Enabled"}, []string{"did you mean versioning?"}},
		"all at once":     {"B", map[string]string{"contract": "team-a", "polcy": "{}", "policy": "{", "acl": "x"}, []string{"bucket name", "polcy", `policy: "{" is not a JSON`, "acl:"}},
		"other region":    {"bucket", map[string]string{"contract": "team-a", "region": "mars-1"}, []string{`"mars-1" is not a region`, "us-east-1"}},
		"malformed value": {"bucket", map[string]string{"contract": "team-a", "onDelete": "yes"}, []string{"onDelete", "refuse, empty"}},
	} {
		_, err := e.create(c.bucket, c.class)
		code := codes.InvalidArgument
		if name == "other contract" || name == "other region" { // which the configuration, or the service, may get
			code = codes.FailedPrecondition
		}
		t.Run(name, func(t *testing.T) { expectCode(t, err, code, c.want...) })
	}
	if code := e.api(http.MethodGet, "/v1/contracts/team-a", nil, nil); code != http.StatusNotFound {
		t.Errorf("bad requests signed a contract (HTTP %d)", code)
	}
	if n := e.metric("contract_cosi_journal_writes_total"); n != 0 {
		t.Errorf("bad requests wrote the journal %v times", n)
	}
}

func TestBadGrant(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, onDemand), newLife()
	must(t, l.create(t, e.conn))
	client := cosiproto.NewProvisionerClient(e.conn)
	keyAuth := cosiproto.AuthenticationType_Key
	for name, c := range map[string]struct {
		req  *cosiproto.DriverGrantBucketAccessRequest
		code codes.Code
		want []string
	}{
		"nothing":        {&cosiproto.DriverGrantBucketAccessRequest{}, codes.InvalidArgument, []string{"no name", "authentication type", "not one of this driver's"}},
		"IAM":            {&cosiproto.DriverGrantBucketAccessRequest{BucketId: l.id, Name: "ba-1", AuthenticationType: cosiproto.AuthenticationType_IAM}, codes.InvalidArgument, []string{"IAM", "authenticationType: Key"}},
		"unknown type":   {&cosiproto.DriverGrantBucketAccessRequest{BucketId: l.id, Name: "ba-1", AuthenticationType: 77}, codes.InvalidArgument, []string{"authentication type"}},
		"long name":      {&cosiproto.DriverGrantBucketAccessRequest{BucketId: l.id, Name: strings.Repeat("a", 64), AuthenticationType: keyAuth}, codes.InvalidArgument, []string{"1 to 63"}},
		"reserved name":  {&cosiproto.DriverGrantBucketAccessRequest{BucketId: l.id, Name: "contract-administration", AuthenticationType: keyAuth}, codes.InvalidArgument, []string{"reserved"}},
		"foreign id":     {&cosiproto.DriverGrantBucketAccessRequest{BucketId: "region/label/true", Name: "ba-1", AuthenticationType: keyAuth}, codes.InvalidArgument, []string{"not one of this driver's"}},
		"other backend":  {&cosiproto.DriverGrantBucketAccessRequest{BucketId: "other.team.bucket", Name: "ba-1", AuthenticationType: keyAuth}, codes.InvalidArgument, []string{`backend "other"`}},
		"unknown bucket": {&cosiproto.DriverGrantBucketAccessRequest{BucketId: l.id + "-not", Name: "ba-1", AuthenticationType: keyAuth}, codes.NotFound, []string{"does not exist"}},
		"parameters":     {&cosiproto.DriverGrantBucketAccessRequest{BucketId: l.id, Name: "ba-1", AuthenticationType: keyAuth, Parameters: map[string]string{"access": "rw", "mode": "x", "sourceIP": "y"}}, codes.InvalidArgument, []string{"access:", `"mode" is unknown`, "sourceIP:"}},
	} {
		_, err := client.DriverGrantBucketAccess(t.Context(), c.req)
		t.Run(name, func(t *testing.T) { expectCode(t, err, c.code, c.want...) })
	}
	if got := e.keys(l.contract); len(got) != 0 {
		t.Errorf("bad requests issued keys: %+v", got)
	}
}

func TestForeignIDsOnRevokeAndDelete(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, onDemand), newLife()
	must(t, l.create(t, e.conn))
	must(t, l.grant(t, e.conn))
	for _, id := range []string{"", "other-driver-id", "a/b", "other.team.name", "main.team", strings.Repeat("x", 3000)} {
		expectCode(t, e.delete(id), codes.InvalidArgument)
		expectCode(t, e.revoke(l.id, id), codes.InvalidArgument)
		expectCode(t, e.revoke(id, l.granted.account), codes.InvalidArgument)
	}
	expectCode(t, e.revoke(l.id+"-2", l.granted.account), codes.InvalidArgument, "has no access to bucket")
	// Ids of ours that are not there are success: the sidecar retries forever.
	must(t, e.delete("main.never-signed.bucket"))
	must(t, e.revoke("main.never-signed.bucket", "main.never-signed.ba-1"))
	must(t, e.delete(l.id+"-gone"))
	must(t, e.revoke(l.id, "main."+l.contract+".ba-gone"))
	allowed(t, "the key still works", put(t, l.granted.client(), l.bucket, "x"))
}

func TestContractStates(t *testing.T) {
	t.Parallel()
	service, err := harness.StartContractd(t.Context(), binaries, t.TempDir(), "--pending-for", "300ms")
	must(t, err)
	t.Cleanup(service.Kill)
	e, l := newEnvAt(t, service, "onDemand:\n  backend: main\n  quota: {maxBuckets: 1, maxKeys: 2}\n"), newLife()
	expectCode(t, l.create(t, e.conn), codes.Unavailable, "is pending")
	for err = l.create(t, e.conn); err != nil; err = l.create(t, e.conn) { // as the sidecar does
		expectCode(t, err, codes.Unavailable, "is pending")
	}
	_, err = e.create(l.bucket+"-2", l.class)
	expectCode(t, err, codes.ResourceExhausted, "TooManyBuckets", "limit")
	must(t, l.grant(t, e.conn)) // the contract's own key is the other one
	_, err = e.grant(l.id, "ba-2", nil)
	expectCode(t, err, codes.ResourceExhausted, "maxKeys")
	if n := e.metric("contract_cosi_keys"); n != 1 {
		t.Errorf("%v keys in the journal; the refused one is none", n)
	}

	if code := e.api(http.MethodPut, "/v1/contracts/"+l.contract, map[string]any{"owner": "example-cluster", "desiredState": "suspended"}, nil); code != http.StatusOK {
		t.Fatalf("suspend: HTTP %d", code)
	}
	refused(t, "an application of a suspended contract", put(t, l.granted.client(), l.bucket, "x"))
	for range 3 { // and the driver's retries do not resume what someone has suspended
		_, err = e.create(l.bucket+"-3", l.class)
		expectCode(t, err, codes.FailedPrecondition, "suspended")
	}
	// A caller that is refused a key learns of the contract's state, and whom to ask.
	_, err = e.grant(l.id, "ba-3", nil)
	expectCode(t, err, codes.FailedPrecondition, "access main."+l.contract+".ba-3: contract "+l.contract+" is suspended (", "ask the platform's operator to resume it")
	if text := err.Error(); strings.Contains(text, "desiredState") || strings.Count(text, l.contract) > 2 {
		t.Errorf("the refusal is %q", text)
	}
	must(t, l.grant(t, e.conn)) // a repeat is answered from the journal
	must(t, l.revoke(t, e.conn))
	expectCode(t, l.delete(t, e.conn), codes.FailedPrecondition, "suspended")
	if code := e.api(http.MethodPut, "/v1/contracts/"+l.contract, map[string]any{"owner": "example-cluster"}, nil); code != http.StatusOK {
		t.Fatalf("resume: HTTP %d", code)
	}
	must(t, l.delete(t, e.conn))
}

// Terms that change in the configuration reach the contract at the next start.
func TestTermsConverge(t *testing.T) {
	t.Parallel()
	contract := newContract()
	e := newEnv(t, "contracts:\n  - {name: "+contract+", backend: main, quota: {maxBuckets: 1}}\n")
	e.mustCreate(contract+"-1", map[string]string{"contract": contract})
	_, err := e.create(contract+"-2", map[string]string{"contract": contract})
	expectCode(t, err, codes.ResourceExhausted, "bucket limit is reached", "has 1 buckets of this driver; quota.maxBuckets of its terms is 1")
	e.stop()
	text := strings.Replace(readFile(t, e.configFile), "maxBuckets: 1", "maxBuckets: 2", 1)
	writeFile(t, e.configFile, text)
	e.start()
	e.mustCreate(contract+"-2", map[string]string{"contract": contract})

	// A contract in use is suspended by its terms, though no one makes a bucket.
	e.stop()
	writeFile(t, e.configFile, strings.Replace(text, "backend: main,", "backend: main, suspend: true,", 1))
	e.start()
	e.until(func() bool {
		var have struct{ State string }
		return e.api(http.MethodGet, "/v1/contracts/"+contract, nil, &have) == http.StatusOK && have.State == "suspended"
	})
}

// Changed terms are taken over while the driver runs, of listed contracts and of
// those signed on demand; a faulty file is not, nor what needs another start.
func TestTermsChangeWhileRunning(t *testing.T) {
	t.Parallel()
	contract, demanded := newContract(), newContract()
	e := newEnv(t, "contracts:\n  - {name: "+contract+", backend: main, quota: {maxBuckets: 1}}\nonDemand:\n  backend: main\n  plan: small\n")
	must(t, func() error { _, err := e.create(contract+"-1", map[string]string{"contract": contract}); return err }())
	e.mustCreate(demanded+"-1", map[string]string{"contract": demanded})
	terms := func(contract string) (out struct {
		State string
		Spec  struct {
			Plan  string
			Quota struct{ MaxBuckets int }
		}
	}) {
		e.api(http.MethodGet, "/v1/contracts/"+contract, nil, &out)
		return out
	}
	reloaded := func(outcome string, times float64) {
		t.Helper()
		e.until(func() bool { return e.metric("contract_cosi_config_reloads_total", `outcome="`+outcome+`"`) == times })
	}

	text := strings.NewReplacer("maxBuckets: 1", "maxBuckets: 2", "plan: small", "plan: large").Replace(readFile(t, e.configFile))
	writeFile(t, e.configFile, text)
	e.until(func() bool { return terms(contract).Spec.Quota.MaxBuckets == 2 && terms(demanded).Spec.Plan == "large" })
	reloaded("taken", 1)
	e.mustCreate(contract+"-2", map[string]string{"contract": contract})
	e.until(func() bool { return e.metric("contract_cosi_contract_changes_total", `change="converged"`) == 2 })
	if log := e.logs.String(); !strings.Contains(log, `"Contract brought to its terms" contract="main.`+contract+`" changed=["quota"]`) {
		t.Error("the log does not say what has changed")
	}

	writeFile(t, e.configFile, strings.Replace(text, "maxBuckets: 2", "maxBukets: 3", 1))
	reloaded("refused", 1)
	if !strings.Contains(e.logs.String(), "maxBukets") {
		t.Error("the log does not say what is wrong")
	}
	writeFile(t, e.configFile, strings.Replace(text, "owner: example-cluster", "owner: another", 1))
	reloaded("next-start", 1)
	if got := terms(contract); got.Spec.Quota.MaxBuckets != 2 || got.State != "active" {
		t.Errorf("a file that was not taken over has changed the contract: %+v", got)
	}

	writeFile(t, e.configFile, strings.Replace(text, "backend: main, quota", "backend: main, suspend: true, quota", 1))
	e.until(func() bool { return terms(contract).State == "suspended" })
	_, err := e.create(contract+"-3", map[string]string{"contract": contract})
	expectCode(t, err, codes.FailedPrecondition, "suspended")
	writeFile(t, e.configFile, text)
	e.until(func() bool { return terms(contract).State == "active" })
	if n := e.metric("contract_cosi_contract_changes_total", `change="signed"`); n != 2 {
		t.Errorf("%v contracts signed in the metric", n)
	}
}

// A contract is not cancelled with the driver's last bucket as long as one is
// left in it, no matter who made that.
func TestContractIsKeptWhileAnythingIsLeft(t *testing.T) {
	t.Parallel()
	e, contract := newEnv(t, cancelling), newContract()
	id := e.mustCreate(contract+"-1", map[string]string{"contract": contract})
	others := contract + "-of-somebody-else"
	_, err := e.owner(contract).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &others})
	must(t, err)
	must(t, e.delete(id))
	if code := e.api(http.MethodGet, "/v1/contracts/"+contract, nil, nil); code != http.StatusOK {
		t.Errorf("the contract is gone with somebody's bucket (HTTP %d)", code)
	}
	if n := e.metric("contract_cosi_contract_changes_total", `change="kept"`); n != 1 || !strings.Contains(e.logs.String(), "the service keeps the contract") {
		t.Errorf("%v contracts kept in the metric, or the log does not say so", n)
	}
}

func TestContractOfAnotherOwner(t *testing.T) {
	t.Parallel()
	contract := newContract()
	e := newEnv(t, onDemand)
	if code := e.api(http.MethodPut, "/v1/contracts/"+contract, map[string]any{"owner": "somebody else"}, nil); code != http.StatusCreated {
		t.Fatalf("HTTP %d", code)
	}
	_, err := e.create(contract+"-1", map[string]string{"contract": contract})
	expectCode(t, err, codes.FailedPrecondition, "belongs to another owner", "driver.owner")
	if n := len(e.slot(contract, "contract-administration")); n != 0 {
		t.Errorf("%d keys of a foreign contract were issued", n)
	}
}

// A contract that someone else has signed under the old name is not cancelled.
func TestForeignContractIsNotCancelled(t *testing.T) {
	t.Parallel()
	contract := newContract()
	terms := "contracts:\n  - {name: " + contract + ", backend: main"
	e := newEnv(t, terms+"}\n")
	must(t, e.delete(e.mustCreate(contract+"-1", map[string]string{"contract": contract})))
	e.stop()
	path := "/v1/contracts/" + contract
	if code := e.api(http.MethodDelete, path, nil, nil); code != http.StatusNoContent {
		t.Fatalf("HTTP %d", code)
	}
	if code := e.api(http.MethodPut, path, map[string]any{"owner": "somebody else"}, nil); code != http.StatusCreated {
		t.Fatalf("HTTP %d", code)
	}
	writeFile(t, e.configFile, strings.Replace(readFile(t, e.configFile), terms, terms+", onLastBucket: cancel", 1))
	e.start()
	must(t, e.delete("main."+contract+"."+contract+"-1"))
	if code := e.api(http.MethodGet, path, nil, nil); code != http.StatusOK {
		t.Errorf("the other owner's contract: HTTP %d", code)
	}
}

// A start of the driver does not sign a contract again that is gone: no one has
// asked for a bucket.
func TestStartSignsNothing(t *testing.T) {
	t.Parallel()
	contract := newContract()
	e := newEnv(t, "contracts:\n  - {name: "+contract+", backend: main}\n")
	must(t, e.delete(e.mustCreate(contract+"-1", map[string]string{"contract": contract})))
	e.stop()
	path := "/v1/contracts/" + contract
	if code := e.api(http.MethodDelete, path, nil, nil); code != http.StatusNoContent {
		t.Fatalf("HTTP %d", code)
	}
	e.line.Heal()
	e.start()
	e.until(func() bool { return len(e.line.Calls()) > 0 })
	e.stop() // which waits for what a start does
	if code := e.api(http.MethodGet, path, nil, nil); code != http.StatusNotFound {
		t.Errorf("the contract was signed again (HTTP %d)", code)
	}
	// The next bucket does sign it, and gets the new contract a key of its own.
	e.start()
	class := map[string]string{"contract": contract}
	e.mustCreate(contract+"-2", class)
}

func TestWrongToken(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	e.stop()
	other := t.TempDir() + "/token"
	writeFile(t, other, "not-the-token")
	writeFile(t, e.configFile, strings.Replace(readFile(t, e.configFile), e.service.TokenFile, other, 1))
	e.start()
	contract := newContract()
	_, err := e.create(contract+"-1", map[string]string{"contract": contract})
	expectCode(t, err, codes.PermissionDenied, "token", "tokenFile")
}

// The number of calls of each RPC, and of durable writes. A change that adds
// one has to change this table.
func TestCallsPerRPC(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, onDemand), newLife()
	l.class = map[string]string{"contract": l.contract}
	first := newLifeUnder(l.contract)
	must(t, first.create(t, e.conn)) // signs the contract

	for _, step := range []struct {
		name   string
		call   func() error
		calls  []string
		writes float64
	}{
		{"create", func() error { return l.create(t, e.conn) }, []string{"PUT /" + l.bucket}, 1},
		{"create again", func() error { return l.create(t, e.conn) }, []string{"GET /" + l.bucket}, 0},
		{"grant", func() error { return l.grant(t, e.conn) }, []string{"PUT /v1/contracts/" + l.contract + "/keys/…", "PUT /v1/contracts/" + l.contract + "/keys/…/acknowledgement"}, 2},
		{"grant again", func() error { return l.grant(t, e.conn) }, []string{"GET /v1/contracts/" + l.contract + "/keys"}, 0},
		{"revoke", func() error { return l.revoke(t, e.conn) }, []string{"DELETE /v1/contracts/" + l.contract + "/keys"}, 1},
		{"delete", func() error { return l.delete(t, e.conn) }, []string{"DELETE /" + l.bucket}, 1},
		{"delete again", func() error { return l.delete(t, e.conn) }, nil, 0},
	} {
		before := e.metric("contract_cosi_journal_writes_total")
		e.line.Heal()
		must(t, step.call())
		if step.name == "grant" { // which is acknowledged after it was answered
			e.until(func() bool { return len(e.line.Calls()) == len(step.calls) })
		}
		calls := e.line.Calls()
		for i, c := range calls {
			head, rest, ok := strings.Cut(c, "/keys/")
			if _, tail, more := strings.Cut(rest, "/"); ok && more {
				calls[i] = head + "/keys/…/" + tail
			} else if ok {
				calls[i] = head + "/keys/…"
			}
		}
		if step.name == "delete again" { // asks whether someone else has the name
			calls = nil
		}
		if strings.Join(calls, "\n") != strings.Join(step.calls, "\n") {
			t.Errorf("%s calls\n%s\nwant\n%s", step.name, strings.Join(calls, "\n"), strings.Join(step.calls, "\n"))
		}
		if writes := e.metric("contract_cosi_journal_writes_total") - before; writes != step.writes {
			t.Errorf("%s writes the journal %v times, want %v", step.name, writes, step.writes)
		}
	}
}

// A call that the sidecar gives up, or that outlives its deadline, leaves
// nothing that a repeat does not carry on from.
func TestCancelledCalls(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, cancelling), newLife()
	e.line.Heal()
	e.line.Cut()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := cosiproto.NewProvisionerClient(e.conn).DriverCreateBucket(ctx, &cosiproto.DriverCreateBucketRequest{Name: l.bucket, Parameters: l.class})
		done <- err
	}()
	e.until(func() bool { return len(e.line.Calls()) > 0 })
	cancel()
	expectCode(t, <-done, codes.Canceled)
	e.line.Heal()
	must(t, l.create(t, e.conn))
	must(t, l.grant(t, e.conn))
	nothingLeft(e, l)
}
