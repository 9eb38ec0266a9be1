package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"google.golang.org/grpc/codes"

	"github.com/contract-cosi/contract-cosi-driver/pkg/admin"
	"github.com/contract-cosi/contract-cosi-driver/pkg/cosi"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
	"github.com/contract-cosi/contract-cosi-driver/test/kubefake"
)

// tool runs a command of the driver's program, as a platform engineer would
// beside the driver that runs.
func (e *env) tool(command string, args ...string) (stdout, stderr string, status int) {
	e.Helper()
	cmd := exec.CommandContext(e.Context(), binaries.Driver, append([]string{command, "--config", e.configFile}, args...)...)
	var out, log strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		e.Fatal(err)
	}
	return out.String(), log.String(), cmd.ProcessState.ExitCode()
}

// report runs a command, of which a status is expected, and reads its JSON.
func report[T any](e *env, status int, command string, args ...string) []T {
	e.Helper()
	stdout, stderr, got := e.tool(command, append(args, "-o", "json")...)
	if got != status {
		e.Fatalf("%s %v ended with %d, want %d: %s%s", command, args, got, status, stdout, stderr)
	}
	var r admin.Report[T]
	must(e, json.Unmarshal([]byte(stdout), &r))
	return r.Items
}

// The commands answer alike through a driver that runs and by themselves, with
// either journal.
func TestCommandsLiveAndStopped(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(contracts string) *env{
		"file":    func(contracts string) *env { return newEnv(t, contracts) },
		"Secrets": func(contracts string) *env { return newEnvInSecrets(t, kubefake.Start(t), contracts) },
	} {
		t.Run(name, func(t *testing.T) {
			contract, unsigned := newContract(), newContract()
			e := start("contracts:\n  - {name: " + contract + ", backend: main, plan: small, quota: {maxBuckets: 5}}\n  - {name: " + unsigned + ", backend: main}\n")
			id := e.mustCreate(contract+"-a", map[string]string{"contract": contract})
			g := e.mustGrant(id, "ba-1", nil)
			e.mustGrant(id, "ba-2", map[string]string{"access": "ReadOnly"})
			if code := e.api(http.MethodDelete, "/v1/contracts/"+contract+"/keys?slot=ba-2", nil, nil); code != http.StatusNoContent {
				t.Fatalf("HTTP %d", code)
			}
			all := func() string {
				var out strings.Builder
				for _, command := range []string{"contracts", "buckets", "keys"} {
					for _, format := range []string{"table", "json", "yaml"} {
						stdout, stderr, status := e.tool(command, "-o", format)
						if status != 0 || stderr != "" && format != "table" && strings.Contains(stderr, "not all") {
							t.Errorf("%s ended with %d: %s", command, status, stderr)
						}
						fmt.Fprintln(&out, stdout)
					}
				}
				return regexp.MustCompile(`\b\d+[sm] +`).ReplaceAllString(out.String(), "age ")
			}
			live := all()
			contracts := report[admin.Contract](e, 0, "contracts", "--contract", contract)
			if len(contracts) != 1 || contracts[0].State != "Active" || contracts[0].Terms != "listed" || contracts[0].Plan != "small" ||
				contracts[0].Buckets != 1 || contracts[0].Keys != 2 || *contracts[0].Quota.Buckets != 5 || *contracts[0].Used.Buckets != 1 || contracts[0].Differing != nil {
				t.Errorf("contracts: %+v", contracts)
			}
			if other := report[admin.Contract](e, 0, "contracts", "--contract", unsigned); len(other) != 1 || other[0].State != "Unsigned" {
				t.Errorf("contracts: %+v", other)
			}
			buckets := report[admin.Bucket](e, 0, "buckets")
			if len(buckets) != 1 || buckets[0].ID != id || buckets[0].Origin != "made" || len(buckets[0].Accesses) != 2 {
				t.Errorf("buckets: %+v", buckets)
			}
			keys := report[admin.Key](e, 0, "keys")
			if len(keys) != 2 || keys[0].AccessKeyID != g.key || keys[0].State != "Active" || keys[1].State != "Missing" || keys[1].Buckets[0].Mode != cosi.ReadOnly {
				t.Errorf("keys: %+v", keys)
			}
			e.stop()
			if stopped := all(); stopped != live {
				t.Errorf("with the driver stopped the commands print\n%s\nand while it runs\n%s", stopped, live)
			}
			e.start()
		})
	}
}

// No command prints a secret, and the socket is for the driver's user alone.
func TestCommandsTellNoSecret(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, onDemand), newLife()
	must(t, l.create(t, e.conn))
	must(t, l.grant(t, e.conn))
	info, err := os.Stat(filepath.Join(e.dir, "journal.log.sock"))
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v", info.Mode())
	}
	var told strings.Builder
	ask := func() {
		for _, args := range [][]string{{"contracts"}, {"buckets"}, {"keys"}, {"audit"}, {"audit", "--fix", "--grace", "0s"},
			{"rotate", "--access", "main." + l.contract + ".ba-1"}, {"rotate", "--older-than", "1ms"}, {"rotate", "--access", "main." + l.contract + ".none"}} {
			for _, format := range []string{"table", "json", "yaml"} {
				stdout, stderr, _ := e.tool(args[0], append(args[1:], "-o", format)...)
				told.WriteString(stdout + stderr)
			}
		}
	}
	ask()
	handedOut := e.mustGrant(l.id, "ba-1", nil)
	e.stop()
	ask()
	cmd := exec.CommandContext(t.Context(), binaries.Driver, "journal", "export", "--config", e.configFile)
	journal, err := cmd.Output()
	must(t, err)
	secrets := []string{e.service.Token, l.granted.secret, handedOut.secret}
	for _, m := range regexp.MustCompile(`"secret":"([^"]+)"`).FindAllStringSubmatch(string(journal), -1) {
		secrets = append(secrets, m[1])
	}
	if len(secrets) < 6 {
		t.Fatalf("only %d secrets to look for", len(secrets))
	}
	for _, s := range secrets {
		if strings.Contains(told.String(), s) || strings.Contains(e.logs.String(), s) {
			t.Error("a secret was told")
		}
	}
	if !strings.Contains(told.String(), l.granted.key) {
		t.Error("nothing was told at all")
	}
	e.start()
}

// ck is a name as the driver gives to the keys it asks for.
func ck(n int) string { return "ck" + strings.Repeat("a", 25) + string(rune('a'+n)) }

// An audit finds what is on one side only, removes keys and nothing else, and
// leaves alone what is someone else's.
func TestAudit(t *testing.T) {
	t.Parallel()
	e := newEnv(t, onDemand)
	contract := newContract()
	bucket, lost := contract+"-a", contract+"-lost"
	id := e.mustCreate(bucket, map[string]string{"contract": contract})
	lostID := e.mustCreate(lost, map[string]string{"contract": contract})
	g := e.mustGrant(id, "ba-1", nil)
	e.mustGrant(id, "ba-gone", nil)
	e.mustGrant(id, "ba-rotated", nil)
	report[admin.Key](e, 0, "rotate", "--access", "main."+contract+".ba-rotated")
	owner := e.owner(contract)
	if found := report[admin.Orphan](e, 0, "audit", "--grace", "0s"); len(found) != 0 {
		t.Fatalf("a sound contract is found fault with: %+v", found)
	}

	issue := func(name, slot string, keep ...string) {
		t.Helper()
		body := map[string]any{"spec": map[string]any{"slot": slot, "buckets": []any{map[string]any{"bucket": bucket, "access": "readWrite"}}}, "keep": keep}
		if code := e.api(http.MethodPut, "/v1/contracts/"+contract+"/keys/"+name, body, nil); code != http.StatusCreated {
			t.Fatalf("HTTP %d", code)
		}
	}
	issue(ck(0), "ba-1", g.key)        // beside a key of the journal
	issue(ck(1), "ba-unknown")         // a principal without a record
	issue("by-hand", "somebody-elses") // not the driver's
	other, marked := contract+"-other", contract+"-marked"
	for name, tags := range map[string][]types.Tag{other: nil, marked: {{Key: aws.String(cosi.OwnerTag), Value: aws.String("example-cluster")}}} {
		_, err := owner.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name, CreateBucketConfiguration: &types.CreateBucketConfiguration{Tags: tags}})
		must(t, err)
	}
	_, err := owner.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &lost})
	must(t, err)
	if code := e.api(http.MethodDelete, "/v1/contracts/"+contract+"/keys?slot=ba-gone", nil, nil); code != http.StatusNoContent {
		t.Fatalf("HTTP %d", code)
	}

	if found := report[admin.Orphan](e, 0, "audit", "--fix"); len(found) != 0 {
		t.Errorf("what is young may be of a call under way: %+v", found)
	}
	prefix := "main." + contract + "."
	want := func(fixed bool) []string {
		return []string{"bucket " + prefix + marked + " false", fmt.Sprint("key ", prefix, "ba-1 ", fixed), fmt.Sprint("principal ", prefix, "ba-unknown ", fixed),
			"record " + prefix + "ba-gone false", "record " + lostID + " false"}
	}
	short := func(found []admin.Orphan) (out []string) {
		for _, o := range found {
			if o.Text == "" {
				t.Errorf("%+v says nothing", o)
			}
			out = append(out, fmt.Sprint(o.Kind, " ", o.ID, " ", o.Fixed))
		}
		slices.Sort(out)
		return out
	}
	if got := short(report[admin.Orphan](e, 1, "audit", "--grace", "0s")); !slices.Equal(got, want(false)) {
		t.Errorf("found %q\nwant %q", got, want(false))
	}
	if n := len(e.slot(contract, "ba-unknown")); n != 1 {
		t.Errorf("%d keys; without --fix nothing is removed", n)
	}
	before := e.buckets(contract)
	if got := short(report[admin.Orphan](e, 1, "audit", "--fix", "--grace", "0s")); !slices.Equal(got, want(true)) {
		t.Errorf("fixed %q\nwant %q", got, want(true))
	}
	if after := e.buckets(contract); !slices.Equal(after, before) {
		t.Errorf("the buckets were %v and are %v", before, after)
	}
	for slot, n := range map[string]int{"ba-1": 1, "ba-unknown": 0, "somebody-elses": 1, "ba-rotated": 2} {
		if got := e.slot(contract, slot); len(got) != n {
			t.Errorf("%d keys in slot %s, want %d", len(got), slot, n)
		}
	}
	allowed(t, "put", put(t, g.client(), bucket, "x"))

	// When the rest is seen to by hand, or by the calls the texts name, it is clean.
	_, err = owner.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &marked})
	must(t, err)
	must(t, e.delete(lostID))
	e.mustGrant(id, "ba-gone", nil)
	if found := report[admin.Orphan](e, 0, "audit", "--grace", "0s"); len(found) != 0 {
		t.Errorf("left: %+v", found)
	}

	// A contract that is gone takes all with it, and its records stay behind.
	for _, b := range []string{bucket, other} {
		_ = remove(t, owner, b, "x")
		_, err := owner.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &b})
		must(t, err)
	}
	if code := e.api(http.MethodDelete, "/v1/contracts/"+contract, nil, nil); code != http.StatusNoContent {
		t.Fatalf("HTTP %d", code)
	}
	if found := report[admin.Orphan](e, 1, "audit", "--grace", "0s"); len(found) != 5 { // contract, bucket, three accesses
		t.Errorf("found %+v", found)
	}
	// And a contract of this driver's whose record is lost is found, if it is listed.
	if code := e.api(http.MethodPut, "/v1/contracts/"+contract+"-listed", map[string]any{"owner": "example-cluster"}, nil); code != http.StatusCreated {
		t.Fatalf("HTTP %d", code)
	}
	writeFile(t, e.configFile, readFile(t, e.configFile)+"contracts:\n  - {name: "+contract+"-listed, backend: main}\n")
	e.until(func() bool { return e.metric("contract_cosi_config_reloads_total", `outcome="taken"`) == 1 })
	if found := report[admin.Orphan](e, 1, "audit", "--grace", "0s", "--contract", contract+"-listed"); len(found) != 1 || found[0].Kind != "contract" {
		t.Errorf("found %+v", found)
	}
}

// A key that is revoked by hand is refused at once, and no grant call gives
// another, no matter which driver is asked, before that is lifted.
func TestRevokeByHand(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func() []*env{
		"file": func() []*env { return []*env{newEnv(t, drifting("repair"))} },
		"Secrets": func() []*env {
			kube := kubefake.Start(t)
			return []*env{newEnvInSecrets(t, kube, drifting("repair")), newEnvInSecrets(t, kube, drifting("repair"))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			drivers, contract := start(), newContract()
			e, other := drivers[0], drivers[len(drivers)-1]
			id := e.mustCreate(contract+"-a", map[string]string{"contract": contract})
			leaked := e.mustGrant(id, "ba-1", nil)
			beside := e.mustGrant(id, "ba-2", nil)
			allowed(t, "put", put(t, leaked.client(), contract+"-a", "x"))
			access := "main." + contract + ".ba-1"
			cut := report[admin.Key](e, 0, "revoke", "--access", access)
			if len(cut) != 1 || cut[0].State != "Revoked" || cut[0].AccessKeyID != leaked.key {
				t.Errorf("revoked: %+v", cut)
			}
			refused(t, "the key", put(t, leaked.client(), contract+"-a", "x"))
			allowed(t, "another key", put(t, beside.client(), contract+"-a", "x"))
			denied := func(e *env) {
				t.Helper()
				_, err := e.grant(id, "ba-1", nil)
				expectCode(t, err, codes.FailedPrecondition, "revoked by hand", "contract-cosi-driver revoke --access "+access+" --lift")
				_, err = (v2{e}).grant("ba-1", bucketModes{id: readWrite}, nil)
				expectCode(t, err, codes.FailedPrecondition, "revoked by hand")
			}
			denied(e)
			denied(other)
			other.passes() // drift repair
			e.stop()
			e.start()
			denied(e)
			if _, stderr, status := e.tool("rotate", "--access", access); status != 2 || !strings.Contains(stderr, "revoked by hand") {
				t.Errorf("rotate ended with %d: %s", status, stderr)
			}
			if rotated := report[admin.Key](e, 0, "rotate", "--older-than", "1ms"); len(rotated) != 1 {
				t.Errorf("rotated for their age: %+v", rotated)
			}
			if slot := e.slot(contract, "ba-1"); len(slot) > 0 {
				t.Errorf("the access has keys: %+v", slot)
			}
			if found := report[admin.Orphan](e, 0, "audit"); len(found) > 0 {
				t.Errorf("audit: %+v", found)
			}

			report[admin.Key](e, 0, "revoke", "--access", access, "--lift")
			next := other.mustGrant(id, "ba-1", nil)
			refused(t, "the key", put(t, leaked.client(), contract+"-a", "x"))
			allowed(t, "the next key", put(t, next.client(), contract+"-a", "x"))
			report[admin.Key](e, 0, "revoke", "--access", access)
			must(t, e.revoke(id, next.account))
			must(t, e.revoke(id, beside.account))
			if keys := report[admin.Key](e, 0, "keys"); len(keys) > 0 {
				t.Errorf("keys: %+v", keys)
			}
			third := e.mustGrant(id, "ba-1", nil) // a new access of the name
			report[admin.Key](e, 0, "revoke", "--access", access)
			refused(t, "the key", put(t, third.client(), contract+"-a", "x"))
			must(t, remove(t, e.owner(contract), contract+"-a", "x"))
			must(t, e.delete(id))
		})
	}
}

// What cannot be done has a status of its own, and says why.
func TestCommandFaults(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, onDemand), newLife()
	must(t, l.create(t, e.conn))
	must(t, l.grant(t, e.conn))
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown contract": {[]string{"buckets", "--contract", "nobody"}, "neither in the configuration nor in the journal"},
		"unknown access":   {[]string{"rotate", "--access", "main." + l.contract + ".nobody"}, "is not in the journal"},
		"no access":        {[]string{"rotate", "--access", "nobody"}, "not one of this driver's"},
		"rotate what":      {[]string{"rotate"}, "either --access ID"},
		"rotate both":      {[]string{"rotate", "--access", "a", "--older-than", "1d"}, "either --access ID"},
		"revoke what":      {[]string{"revoke"}, `"access" not set`},
		"revoke unknown":   {[]string{"revoke", "--access", "main." + l.contract + ".nobody"}, "is not in the journal"},
		"no time":          {[]string{"rotate", "--older-than", "long"}, "90d"},
		"format":           {[]string{"keys", "-o", "xml"}, "none of table, json and yaml"},
		"flag":             {[]string{"keys", "--fix"}, "fix"},
	} {
		_, stderr, status := e.tool(c.args[0], c.args[1:]...)
		if status != 2 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: ended with %d, %q", name, status, stderr)
		}
	}

	// What is known is told although the service is away.
	e.line.Cut()
	stdout, stderr, status := e.tool("keys", "-o", "json")
	if status != 2 || !strings.Contains(stdout, l.granted.key) || !strings.Contains(stdout, `"Unknown"`) || !strings.Contains(stderr, "does not answer") {
		t.Errorf("in an outage keys ended with %d: %s%s", status, stdout, stderr)
	}
	if stdout, stderr, status := e.tool("audit"); status != 2 || !strings.Contains(stderr, "does not answer") || stdout != "" {
		t.Errorf("in an outage audit ended with %d: %s%s", status, stdout, stderr)
	}
	access := "main." + l.contract + ".ba-1"
	if stdout, stderr, status := e.tool("revoke", "--access", access); status != 2 || stdout != "" || !strings.Contains(stderr, "run the command again until it succeeds") {
		t.Errorf("in an outage revoke ended with %d: %s%s", status, stdout, stderr)
	}
	if stdout, _, _ := e.tool("keys"); !strings.Contains(stdout, "Revoking") {
		t.Errorf("keys after a revocation that the service has not heard of:\n%s", stdout)
	}
	e.line.Heal()

	// A journal that is in use by a driver that cannot be asked.
	must(t, os.Remove(filepath.Join(e.dir, "journal.log.sock")))
	if _, stderr, status := e.tool("keys"); status != 2 || !strings.Contains(stderr, "in use by another process") || !strings.Contains(stderr, "driver.adminSocket") {
		t.Errorf("without a socket keys ended with %d: %s", status, stderr)
	}
	// And one that is not there is not begun by a command.
	none := filepath.Join(e.dir, "none.yaml")
	writeFile(t, none, strings.Replace(readFile(t, e.configFile), "journal.log", "none.log", 1))
	cmd := exec.CommandContext(t.Context(), binaries.Driver, "keys", "--config", none)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "no journal to ask about") {
		t.Errorf("without a journal: %s", out)
	}
	if _, err := os.Stat(filepath.Join(e.dir, "none.log")); err == nil {
		t.Error("a command began a journal")
	}
}

// tending ends rotations each second, and looks for no drift.
var tending = onDemand + driftEachSecond("off")

// A rotated key is beside the old one until it was handed out and the grace is
// over; then the old one is refused.
func TestRotation(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, tending), newLife()
	must(t, l.create(t, e.conn))
	must(t, l.grant(t, e.conn))
	first := l.granted
	access := "main." + l.contract + ".ba-1"
	rotated := report[admin.Key](e, 0, "rotate", "--access", access, "--grace", "0s")
	if len(rotated) != 1 || rotated[0].AccessKeyID == first.key || rotated[0].Rotation.Old != first.key {
		t.Fatalf("rotated: %+v", rotated)
	}
	// No caller was given the new one: the old one lives, whatever the grace.
	for last := e.metric("contract_cosi_drift_last_pass_timestamp_seconds"); e.metric("contract_cosi_drift_last_pass_timestamp_seconds") < last+2; {
		allowed(t, "put with the old key", put(t, first.client(), l.bucket, "x"))
	}
	if _, stderr, status := e.tool("rotate", "--access", access); status != 2 || !strings.Contains(stderr, "not delivered yet") {
		t.Errorf("a third key: %d, %s", status, stderr)
	}
	if again := report[admin.Key](e, 0, "rotate", "--older-than", "1ms"); len(again) != 0 {
		t.Errorf("rotated for its age once more: %+v", again)
	}
	second := e.mustGrant(l.id, "ba-1", nil)
	if second.key != rotated[0].AccessKeyID || second.account != first.account {
		t.Error("the grant does not answer the new key")
	}
	// A sidecar of v1alpha1 does not overwrite a Secret: the answer may have gone
	// nowhere, and the old key lives until its replacement is confirmed.
	e.passes()
	allowed(t, "put with the old key", put(t, first.client(), l.bucket, "x"))
	if confirmed := report[admin.Key](e, 0, "rotate", "--access", access, "--delivered"); len(confirmed) != 1 || confirmed[0].Rotation == nil || confirmed[0].Rotation.Delivered.IsZero() {
		t.Errorf("confirmed: %+v", confirmed)
	}
	if again, err := (v2{e}).grant("ba-1", bucketModes{l.id: readWrite}, nil); err != nil || again != second {
		t.Errorf("a repeat answers another key (%v)", err)
	}
	allowed(t, "put with the new key", put(t, second.client(), l.bucket, "x"))
	e.until(func() bool { return put(t, first.client(), l.bucket, "x") != nil })
	refused(t, "put with the old key", put(t, first.client(), l.bucket, "x"))
	allowed(t, "put with the new key", put(t, second.client(), l.bucket, "x"))
	if keys := report[admin.Key](e, 0, "keys"); len(keys) != 1 || keys[0].Rotation != nil || keys[0].State != "Active" {
		t.Errorf("keys: %+v", keys)
	}
	for _, step := range []string{"issued", "delivered", "ended"} {
		if n := e.metric("contract_cosi_key_rotations_total", `step="`+step+`"`); n != 1 {
			t.Errorf("step %s was taken %v times", step, n)
		}
	}

	// With a grace the old one lives on after the new one was handed out.
	report[admin.Key](e, 0, "rotate", "--older-than", "1ms")
	third, err := (v2{e}).grant("ba-1", bucketModes{l.id: readWrite}, nil) // whose sidecar does
	must(t, err)
	e.passes()
	allowed(t, "put with the old key", put(t, second.client(), l.bucket, "x"))
	allowed(t, "put with the new key", put(t, third.client(), l.bucket, "x"))
	if keys := report[admin.Key](e, 0, "keys"); len(keys) != 1 || keys[0].Rotation == nil || keys[0].Rotation.EndsAt.IsZero() {
		t.Errorf("keys: %+v", keys)
	}
	// The newest key is lost at the service: another is issued, and the one that
	// an application may still hold stays.
	for _, k := range e.slot(l.contract, "ba-1") {
		if k.AccessKeyID == third.key {
			e.api(http.MethodDelete, "/v1/contracts/"+l.contract+"/keys/"+k.Name, nil, nil)
		}
	}
	fourth := e.mustGrant(l.id, "ba-1", nil)
	allowed(t, "put with the kept key", put(t, second.client(), l.bucket, "x"))
	allowed(t, "put with the new key", put(t, fourth.client(), l.bucket, "x"))
	// Revoking the access takes all of them.
	must(t, e.revoke(l.id, fourth.account))
	for _, g := range []granted{second, third, fourth} {
		refused(t, "after revoke", put(t, g.client(), l.bucket, "x"))
	}
}

// A rotation whose n-th call is lost, in either way, ends in two keys and not
// more, by its repeat or by the timer alone; and no key that is in use dies.
func TestRotationWithLostAnswers(t *testing.T) {
	t.Parallel()
	for _, fate := range []harness.Fate{harness.LoseAnswer, harness.LoseRequest} {
		for n := 1; n <= 2; n++ { // the key, and its acknowledgement
			for _, timer := range []bool{false, true} {
				t.Run(fmt.Sprintf("fate=%v/%d/timer=%v", fate, n, timer), func(t *testing.T) {
					t.Parallel()
					contracts := onDemand
					if timer {
						contracts = tending
					}
					e, l := newEnv(t, contracts), newLife()
					must(t, l.create(t, e.conn))
					must(t, l.grant(t, e.conn))
					access := "main." + l.contract + ".ba-1"
					e.until(func() bool { return len(e.slot(l.contract, "ba-1")) == 1 && e.slot(l.contract, "ba-1")[0].Acknowledged })
					e.line.Plan(func(call int) harness.Fate {
						if call >= n {
							return fate
						}
						return harness.Deliver
					}, nil)
					_, stderr, status := e.tool("rotate", "--access", access)
					// The timer's own calls are counted too, so the second may be the key.
					if n == 1 && status != 2 || n == 2 && status != 0 && !timer {
						t.Errorf("rotate ended with %d: %s", status, stderr)
					}
					allowed(t, "the old key", put(t, harness.S3(e.service.S3, l.granted.region, l.granted.key, l.granted.secret), l.bucket, "x"))
					e.line.Heal()
					if n == 1 && !timer {
						report[admin.Key](e, 0, "rotate", "--access", access)
					}
					e.until(func() bool {
						keys := report[admin.Key](e, 0, "keys")
						return keys[0].Rotation != nil && keys[0].Rotation.Old == l.granted.key
					})
					if slot := e.slot(l.contract, "ba-1"); len(slot) != 2 {
						t.Errorf("%d keys", len(slot))
					}
					next := e.mustGrant(l.id, "ba-1", nil)
					for _, g := range []granted{l.granted, next} {
						allowed(t, "a key", put(t, g.client(), l.bucket, "x"))
					}
					if next.key == l.granted.key {
						t.Error("nothing was rotated")
					}
				})
			}
		}
	}
}

// A contract without room for a second key refuses, and the first goes on.
func TestRotationWithoutRoom(t *testing.T) {
	t.Parallel()
	e, l := newEnv(t, "onDemand:\n  backend: main\n  quota: {maxKeys: 2}\n"), newLife()
	must(t, l.create(t, e.conn))
	must(t, l.grant(t, e.conn))
	access := "main." + l.contract + ".ba-1"
	if _, stderr, status := e.tool("rotate", "--access", access); status != 2 || !strings.Contains(stderr, "maxKeys") {
		t.Errorf("rotate ended with %d: %s", status, stderr)
	}
	keys := report[admin.Key](e, 0, "keys")
	if len(keys) != 1 || keys[0].Rotation != nil || keys[0].AccessKeyID != l.granted.key {
		t.Errorf("keys: %+v", keys)
	}
	allowed(t, "put", put(t, l.granted.client(), l.bucket, "x"))
	_, err := e.grant(l.id, "ba-2", nil)
	expectCode(t, err, codes.ResourceExhausted)
}
