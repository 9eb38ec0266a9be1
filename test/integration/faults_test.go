package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/server"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
	"github.com/contract-cosi/contract-cosi-driver/test/poll"
)

// job is one RPC of the main job, with what has to be there before and what
// must be true after it, however often it was tried.
type job struct {
	name    string
	prepare func(*env, *grpc.ClientConn, *life)
	call    func(testing.TB, *grpc.ClientConn, *life) error
	after   func(*env, *life)
}

// life is one bucket and one access of a test.
type life struct {
	contract, bucket, id string
	class                map[string]string
	granted              granted
}

func newLife() *life { return newLifeUnder(newContract()) }

func newLifeUnder(contract string) *life {
	bucket := fmt.Sprintf("%s-%d", contract, contractNumber.Add(1))
	return &life{contract: contract, bucket: bucket, id: "main." + contract + "." + bucket,
		class: map[string]string{"contract": contract, "acl": "public-read", "tags": "a=b"}}
}

func (l *life) create(t testing.TB, conn *grpc.ClientConn) error {
	id, err := createVia(t, conn, l.bucket, l.class)
	if err == nil && id != l.id {
		t.Errorf("bucket id %q, want %q", id, l.id)
	}
	return err
}

func (l *life) grant(t testing.TB, conn *grpc.ClientConn) error {
	g, err := grantVia(t, conn, l.id, "ba-1", nil)
	if err != nil {
		return err
	}
	if l.granted != (granted{}) && g != l.granted {
		t.Error("a repeated grant gave something else")
	}
	l.granted = g
	return nil
}

func (l *life) revoke(t testing.TB, conn *grpc.ClientConn) error {
	return revokeVia(t, conn, l.id, "main."+l.contract+".ba-1")
}

func (l *life) delete(t testing.TB, conn *grpc.ClientConn) error {
	return deleteVia(t, conn, l.id, l.class)
}

var jobs = []job{
	{
		name: "create",
		call: func(t testing.TB, c *grpc.ClientConn, l *life) error { return l.create(t, c) },
		after: func(e *env, l *life) {
			if got := e.buckets(l.contract); !slices.Equal(got, []string{l.bucket}) {
				e.Errorf("buckets: %v", got)
			}
			if n := len(e.slot(l.contract, cosi.ContractSlot)); n != 1 {
				e.Errorf("%d keys of the contract itself, want 1", n)
			}
		},
	},
	{
		name: "grant",
		prepare: func(e *env, c *grpc.ClientConn, l *life) {
			must(e, l.create(e, c))
		},
		call: func(t testing.TB, c *grpc.ClientConn, l *life) error { return l.grant(t, c) },
		after: func(e *env, l *life) {
			if got := e.keys(l.contract); len(got) != 1 || got[0].AccessKeyID != l.granted.key {
				e.Errorf("keys: %+v, want the granted one alone", got)
			}
			allowed(e, "put with the key", put(e, l.granted.client(), l.bucket, "x"))
		},
	},
	{
		name: "revoke",
		prepare: func(e *env, c *grpc.ClientConn, l *life) {
			must(e, l.create(e, c))
			must(e, l.grant(e, c))
		},
		call: func(t testing.TB, c *grpc.ClientConn, l *life) error { return l.revoke(t, c) },
		after: func(e *env, l *life) {
			if got := e.keys(l.contract); len(got) != 0 {
				e.Errorf("keys: %+v", got)
			}
			refused(e, "put with the revoked key", put(e, harness.S3(e.service.S3, "us-east-1", l.granted.key, l.granted.secret), l.bucket, "x"))
		},
	},
	{
		name: "delete",
		prepare: func(e *env, c *grpc.ClientConn, l *life) {
			must(e, l.create(e, c))
			must(e, l.grant(e, c))
		},
		call: func(t testing.TB, c *grpc.ClientConn, l *life) error { return l.delete(t, c) },
		after: func(e *env, l *life) {
			if code := e.api(http.MethodGet, "/v1/contracts/"+l.contract, nil, nil); code != http.StatusNotFound {
				e.Errorf("the contract is left (HTTP %d)", code)
			}
		},
	},
}

// until waits for a condition that is about to come true.
func (e *env) until(holds func() bool) {
	e.Helper()
	poll.Until(e, "what is waited for", holds)
}

// slot are the keys of one slot at the service.
func (e *env) slot(contract, slot string) []key {
	e.Helper()
	var page struct{ Items []key }
	if code := e.api(http.MethodGet, "/v1/contracts/"+contract+"/keys?slot="+slot, nil, &page); code != http.StatusOK {
		e.Fatalf("HTTP %d", code)
	}
	return page.Items
}

// prepare does what a job needs, and waits for what follows the answers.
func (e *env) prepare(j job, conn *grpc.ClientConn, l *life) {
	e.Helper()
	if j.prepare == nil {
		return
	}
	j.prepare(e, conn, l)
	e.until(func() bool {
		return !slices.ContainsFunc(e.keys(l.contract), func(k key) bool { return !k.Acknowledged })
	})
}

const cancelling = "onDemand:\n  backend: main\n  onLastBucket: cancel\n"

// The answer of the n-th call between driver and services is lost, for every n
// of every RPC: alone, which the driver should get over by itself, and with
// all that follow, after which the RPC is repeated.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, j := range jobs {
		calls := callsOf(t, j)
		for _, rest := range []bool{false, true} {
			for n := 1; n <= calls; n++ {
				t.Run(fmt.Sprintf("%s/%d/rest=%v", j.name, n, rest), func(t *testing.T) {
					t.Parallel()
					e, l := newEnv(t, cancelling), newLife()
					e.prepare(j, e.conn, l)
					e.line.Plan(func(call int) harness.Fate {
						if call == n || rest && call > n {
							return harness.LoseAnswer
						}
						return harness.Deliver
					}, nil)
					err := j.call(t, e.conn, l)
					e.until(func() bool { return len(e.line.Calls()) >= n })
					if err != nil && status.Code(err) != codes.Unavailable {
						t.Errorf("a lost answer gave %v", err)
					}
					if err != nil && !rest {
						t.Errorf("one lost answer was not got over: %v", err)
					}
					e.line.Heal()
					for range 2 {
						must(t, j.call(t, e.conn, l))
					}
					j.after(e, l)
					nothingLeft(e, l)
				})
			}
		}
	}
}

// callsOf counts the calls of an undisturbed RPC.
func callsOf(t *testing.T, j job) int {
	t.Helper()
	e, l := newEnv(t, cancelling), newLife()
	e.prepare(j, e.conn, l)
	e.line.Heal()
	must(t, j.call(t, e.conn, l))
	e.stop() // which waits for what follows the answer
	n := len(e.line.Calls())
	e.start()
	t.Logf("%s: %s", j.name, strings.Join(e.line.Calls(), ", "))
	nothingLeft(e, l)
	return n
}

// nothingLeft ends a life and checks that service and journal forget it.
func nothingLeft(e *env, l *life) {
	e.Helper()
	e.stop()
	e.start() // nothing of what follows may hang on the process's memory
	if l.granted != (granted{}) {
		_ = remove(e, harness.S3(e.service.S3, "us-east-1", l.granted.key, l.granted.secret), l.bucket, "x")
		must(e, l.revoke(e, e.conn))
	}
	if code := e.api(http.MethodGet, "/v1/contracts/"+l.contract, nil, nil); code == http.StatusOK {
		if owned := e.buckets(l.contract); len(owned) > 0 {
			must(e, emptied(e, l))
		}
	}
	must(e, l.delete(e, e.conn))
	if code := e.api(http.MethodGet, "/v1/contracts/"+l.contract, nil, nil); code != http.StatusNotFound {
		e.Errorf("contract %s is left at the service (HTTP %d)", l.contract, code)
	}
	if n := e.metric("contract_cosi_buckets") + e.metric("contract_cosi_keys"); n != 0 {
		e.Errorf("%v records are left in the journal", n)
	}
}

// kill -9 of the driver just before the service hears of the n-th call of an
// RPC, and when the service has done it and the driver has not heard; then the
// RPC again, by a new driver on the same journal.
func TestKilledBetweenSteps(t *testing.T) {
	t.Parallel()
	for _, j := range jobs {
		for n := range callsOf(t, j) {
			n++
			for name, fate := range map[string]harness.Fate{"before": harness.LoseRequest, "after": harness.LoseAnswer} {
				t.Run(fmt.Sprintf("%s/%s/%d", j.name, name, n), func(t *testing.T) {
					t.Parallel()
					killedAt(t, j, n, fate)
				})
			}
		}
	}
}

func killedAt(t *testing.T, j job, n int, fate harness.Fate) {
	e, l := newEnv(t, cancelling), newLife()
	e.stop() // its configuration and line serve the driver that is killed
	d := e.startProcess()
	e.prepare(j, d.Conn, l)
	var once sync.Once
	kill := d.Process.Kill // d is another one soon
	e.line.Plan(func(call int) harness.Fate {
		if call >= n {
			return fate
		}
		return harness.Deliver
	}, func() { once.Do(kill) })
	_ = j.call(t, d.Conn, l) // a grant may be answered before its acknowledgement is lost
	if err := d.Wait(); err == nil {
		t.Error("the driver was to be killed")
	}
	must(t, d.Conn.Close())
	e.line.Heal()

	d = e.startProcess()
	for range 2 {
		must(t, j.call(t, d.Conn, l))
	}
	j.after(e, l)
	must(t, d.Stop())
	e.start()
	nothingLeft(e, l)
}

// A journal that lost the answer to a key which the service does not tell again,
// as one restored from a backup has: a new key, no second one, and said so.
func TestSecretToldAndLost(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, cancelling), newLife()
	must(t, l.create(t, e.conn))
	e.stop()
	d := e.startProcess()
	must(t, l.create(t, d.Conn)) // so that the key is the first thing that the grant asks for
	var once sync.Once
	kill := d.Process.Kill // d is another one soon
	e.line.Plan(func(int) harness.Fate { return harness.LoseAnswer }, func() { once.Do(kill) })
	_ = l.grant(t, d.Conn)
	_ = d.Wait()
	must(t, d.Conn.Close())
	e.line.Heal()
	lost := e.keys(l.contract)
	if len(lost) != 1 {
		t.Fatalf("keys: %+v", lost)
	}
	if code := e.api(http.MethodPut, "/v1/contracts/"+l.contract+"/keys/"+lost[0].Name+"/acknowledgement", nil, nil); code != http.StatusNoContent {
		t.Fatalf("HTTP %d", code)
	}
	e.start()
	must(t, l.grant(t, e.conn))
	if got := e.keys(l.contract); len(got) != 1 || got[0].AccessKeyID != l.granted.key || got[0].AccessKeyID == lost[0].AccessKeyID {
		t.Errorf("keys: %+v, want the new one alone", got)
	}
	if n := e.metric("contract_cosi_repairs_total", `what="key"`); n != 1 {
		t.Errorf("%v repairs in the metric", n)
	}
	nothingLeft(e, l)
}

// startProcess runs the driver as a process of its own on the env's files.
func (e *env) startProcess(flags ...string) *harness.Driver {
	e.Helper()
	d, err := harness.StartDriver(e.Context(), binaries, e.dir, e.configFile, flags...)
	must(e, err)
	e.Cleanup(func() {
		if !d.Ended() {
			d.Kill()
		}
		if strings.Contains(d.Output.String(), "DATA RACE") {
			e.Errorf("the driver has a data race:\n%s", d.Output)
		}
	})
	return d
}

func TestTwentyCallersOfOneName(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, cancelling), newLife()
	together(20, func(int) { must(t, l.create(t, e.conn)) })
	var mu sync.Mutex
	var all []granted
	together(20, func(int) {
		g, err := e.grant(l.id, "ba-1", nil)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, g)
	})
	if all = slices.Compact(all); len(all) != 1 {
		t.Fatalf("%d different keys for one access", len(all))
	}
	l.granted = all[0]
	if n := len(e.keys(l.contract)); n != 1 {
		t.Errorf("%d keys at the service", n)
	}
	together(20, func(int) { must(t, l.revoke(t, e.conn)) })
	together(20, func(int) { must(t, l.delete(t, e.conn)) })
	nothingLeft(e, l)
}

func TestTwentyNames(t *testing.T) {
	t.Parallel()
	e, contract := newEnv(t, onDemand), newContract()
	ids := make([]string, 20)
	grants := make([]granted, 20)
	together(20, func(i int) {
		ids[i] = e.mustCreate(fmt.Sprintf("%s-%d", contract, i), map[string]string{"contract": contract})
		grants[i] = e.mustGrant(ids[i], fmt.Sprintf("ba-%d", i), nil)
		allowed(t, "put", put(t, grants[i].client(), fmt.Sprintf("%s-%d", contract, i), "x"))
	})
	if n := len(e.keys(contract)); n != 20 {
		t.Errorf("%d keys at the service", n)
	}
	if n := len(e.slot(contract, cosi.ContractSlot)); n != 1 {
		t.Errorf("%d keys of the contract itself; twenty first callers must share one", n)
	}
	together(20, func(i int) {
		allowed(t, "remove", remove(t, grants[i].client(), fmt.Sprintf("%s-%d", contract, i), "x"))
		must(t, e.revoke(ids[i], grants[i].account))
		must(t, e.delete(ids[i]))
	})
	if got := e.buckets(contract); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// Grants, revokes and deletes of one bucket at once, in any order: no panic,
// and after a last delete no key is left.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, cancelling), newLife()
	must(t, l.create(t, e.conn))
	together(24, func(i int) {
		account := fmt.Sprintf("ba-%d", i%4)
		switch i % 3 {
		case 0:
			_, _ = e.grant(l.id, account, nil)
		case 1:
			must(t, e.revoke(l.id, "main."+l.contract+"."+account))
		case 2:
			must(t, l.delete(t, e.conn))
		}
	})
	must(t, l.delete(t, e.conn))
	nothingLeft(e, l)
}

func together(n int, do func(int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { do(i) })
	}
	group.Wait()
}

// Services that are away: Unavailable within the deadline, told by the metrics,
// the log and check, and all well again without a restart. The driver stays ready:
// it takes calls for its other backends.
func TestBackendDown(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, "onDemand:\n  backend: main\n"), newLife()
	if _, text := e.web("/metrics"); !strings.Contains(text, `contract_cosi_rpc_duration_seconds_count{code="OK",method="/sigs.k8s.io.cosi.v1alpha2.Provisioner/DriverDeleteBucket"} 0`) {
		t.Error("a method that was not called is not in the metrics")
	}
	must(t, l.create(t, e.conn))
	must(t, l.grant(t, e.conn))
	e.line.Cut()
	start := time.Now()
	other := newLife()
	expectCode(t, other.create(t, e.conn), codes.Unavailable, "does not answer")
	_, err := e.grant(l.id, "ba-2", nil)
	expectCode(t, err, codes.Unavailable, "does not answer")
	expectCode(t, l.revoke(t, e.conn), codes.Unavailable, "does not answer")
	expectCode(t, l.delete(t, e.conn), codes.Unavailable, "does not answer")
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("four calls took %s", took)
	}
	must(t, l.grant(t, e.conn)) // what is in the journal is answered all the same
	for _, probe := range []string{"/healthz", "/readyz"} {
		if code, text := e.web(probe); code != http.StatusOK {
			t.Errorf("%s: %d %q", probe, code, text)
		}
	}
	e.backends(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	if up := e.metric("contract_cosi_backend_up", `backend="main"`); up != 0 {
		t.Errorf("backend_up is %v", up)
	}
	e.line.Heal()
	must(t, other.create(t, e.conn))
	must(t, l.revoke(t, e.conn))
	must(t, l.delete(t, e.conn))
	e.backends(grpc_health_v1.HealthCheckResponse_SERVING)
	if up := e.metric("contract_cosi_backend_up", `backend="main"`); up != 1 {
		t.Errorf("backend_up is %v", up)
	}
	for _, line := range []string{`"Not available" part="backend main" reason="backend main: `, `"Available again" part="backend main"`} {
		if n := strings.Count(e.logs.String(), line); n != 1 {
			t.Errorf("%s is in the log %d times", line, n)
		}
	}
	if n := e.metric("contract_cosi_backend_calls_total", `outcome="Unavailable"`); n == 0 {
		t.Error("no failed call in the metrics")
	}
	if n := e.metric("contract_cosi_backend_request_duration_seconds_count", `backend="main"`); n == 0 {
		t.Error("no request is measured")
	}
}

// backends waits until check would find the backends as they should be.
func (e *env) backends(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
	e.Helper()
	e.until(func() bool {
		answer, err := grpc_health_v1.NewHealthClient(e.conn).Check(e.Context(), &grpc_health_v1.HealthCheckRequest{Service: server.BackendsService})
		must(e, err)
		return answer.GetStatus() == want
	})
}

// contractd itself is killed and restarted: what it had answered is there.
func TestServiceRestarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	service, err := harness.StartContractd(t.Context(), binaries, dir)
	must(t, err)
	e, l := newEnvAt(t, service, onDemand), newLife()
	must(t, l.create(t, e.conn))
	must(t, l.grant(t, e.conn))
	apiAddress, s3Address := strings.TrimPrefix(service.API, "http://"), strings.TrimPrefix(service.S3, "http://")
	service.Kill()
	_, err = e.grant(l.id, "ba-2", nil)
	expectCode(t, err, codes.Unavailable)
	service, err = harness.StartContractd(t.Context(), binaries, dir, "--api-address", apiAddress, "--s3-address", s3Address)
	must(t, err)
	t.Cleanup(service.Kill)
	allowed(t, "the key after the restart", put(t, l.granted.client(), l.bucket, "x"))
	_, err = e.grant(l.id, "ba-2", nil)
	must(t, err)
}

// A planted secret — the token, the contract's key, an application's key —
// is in no log, no message and no page of a full run at the highest verbosity.
func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	service, err := harness.StartContractd(t.Context(), binaries, dir)
	must(t, err)
	t.Cleanup(func() {
		if !service.Ended() {
			service.Kill()
		}
	})
	e, l := newEnvAt(t, service, "onDemand:\n  backend: main\n  quota: {maxKeys: 2}\n"), newLife()
	e.stop()
	d := e.startProcess("-v=9")
	must(t, l.create(t, d.Conn))
	must(t, l.grant(t, d.Conn))
	must(t, l.grant(t, d.Conn))
	messages := []string{}
	fail := func(err error) {
		if err == nil {
			t.Error("a call was to fail")
			return
		}
		messages = append(messages, err.Error())
	}
	_, err = grantVia(t, d.Conn, l.id, "ba-2", nil) // over the limit
	fail(err)
	_, err = createVia(t, d.Conn, l.bucket, map[string]string{"contract": l.contract, "policy": `{"secret":"x"}`})
	fail(err)
	allowed(t, "put", put(t, l.granted.client(), l.bucket, "x"))
	fail(l.delete(t, d.Conn))
	e.http = d.HTTP
	_, metrics := e.web("/metrics")
	journal, err := os.ReadFile(filepath.Join(e.dir, "journal.log"))
	must(t, err)
	allowed(t, "remove", remove(t, l.granted.client(), l.bucket, "x"))
	must(t, l.revoke(t, d.Conn))
	must(t, l.delete(t, d.Conn))
	must(t, d.Stop())
	service.Kill()

	if !strings.Contains(string(journal), l.granted.secret) {
		t.Error("the test looks for the wrong text: not even the journal has it")
	}
	for what, secret := range map[string]string{"token": service.Token, "application's secret": l.granted.secret} {
		for where, text := range map[string]string{
			"driver's log": d.Output.String(), "messages": strings.Join(messages, "\n"), "metrics": metrics, "contractd's log": service.Output.String(),
		} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s is in the %s", what, where)
			}
		}
	}
	if !strings.Contains(d.Output.String(), "DriverGrantBucketAccess") {
		t.Error("the log does not tell of the calls")
	}
}
