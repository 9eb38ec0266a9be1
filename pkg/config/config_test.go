package config_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/driver"
)

func tokenFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func valid(t testing.TB) string {
	return `
driver: {name: contract.cosi.example.com, owner: cluster-1}
journal: {file: /var/lib/contract-cosi-driver/journal.db}
backends:
  - name: main
    type: contractapi
    contractapi: {url: "https://contracts.example.com", tokenFile: ` + tokenFile(t, "planted-token\n") + `}
contracts:
  - name: team-a
    backend: main
    quota: {maxBuckets: 10}
onDemand:
  namePrefix: trial-
  backend: main
  onLastBucket: cancel
`
}

func TestParse(t *testing.T) {
	c, err := config.Parse([]byte(valid(t)), driver.Types())
	if err != nil {
		t.Fatal(err)
	}
	if c.Driver.CallTimeout != 30*time.Second {
		t.Errorf("callTimeout is %s", c.Driver.CallTimeout)
	}
	if terms, ok := c.Terms("team-a"); !ok || terms.OnLastBucket != config.Keep || *terms.Quota.MaxBuckets != 10 {
		t.Errorf("terms of team-a: %+v, %v", terms, ok)
	}
	if terms, ok := c.Terms("trial-7"); !ok || terms.OnLastBucket != config.Cancel {
		t.Errorf("terms on demand: %+v, %v", terms, ok)
	}
	if _, ok := c.Terms("team-b"); ok {
		t.Error("team-b is neither listed nor on demand")
	}
	if _, ok := c.Terms("trial-" + strings.Repeat("x", 57)); ok {
		t.Error("a name too long for an id is signed on demand")
	}
}

func TestPrintShowsDefaultsAndNoSecret(t *testing.T) {
	c, err := config.Parse([]byte(valid(t)), driver.Types())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"callTimeout: 30s", "onLastBucket: keep", "[redacted]"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "planted-token") {
		t.Errorf("the token is printed:\n%s", out.String())
	}
	// What is printed is a configuration again.
	if _, err := config.Parse(out.Bytes(), driver.Types()); err != nil {
		t.Errorf("the printed configuration is refused: %v", err)
	}
}

func TestParseNamesEveryFault(t *testing.T) {
	_, err := config.Parse([]byte(`
driver: {name: Contract_Driver, owner: "", callTimeout: soon, colour: blue, events: true, takesOver: [00112233445566ff, cluster-2]}
journal: {file: journal.db, fsync: no}
backends:
  - {name: Main, type: s3}
  - {name: b, type: contractapi}
  - name: b
    type: contractapi
    contractapi: {url: "ftp://x", tokenFile: /no/such/file}
contracts:
  - {name: team_a, backend: other, onLastBucket: maybe, quota: {maxKeys: -1}}
  - {name: `+strings.Repeat("c", 63)+`, backend: b}
applicationSecrets: {socket: deliver.sock, namespaces: [blue]}
`), driver.Types())
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"line 2: driver.colour: the key is unknown; known are", "line 2: driver.callTimeout: a text stands where a duration such as 30s belongs", "line 3: journal.fsync: the key is unknown",
		"driver.name:", "driver.owner:", `driver.takesOver[1]: "cluster-2" is not the identity of a journal`, "driver.events: the driver has no API server", "journal.file:",
		`line 5: backends[0].name: "Main"`, `line 5: backends[0].type: "s3" is no type of backend; known are contractapi, iam, rgw, versitygw`, "line 6: backends[1].contractapi: missing", `backends[2].name: "b" is there twice`,
		`backends[2].contractapi.url:`, "backends[2].contractapi.tokenFile: open /no/such/file",
		`contracts[0].name:`, `contracts[0].backend: "other"`, "contracts[0].onLastBucket:", "contracts[0].quota.maxKeys:",
		"applicationSecrets: the driver has no API server", "applicationSecrets: with a socket, the namespaces", "applicationSecrets.socket: \"deliver.sock\" is not an absolute path",
		"contracts[1].name: with its backend's name it has 64 characters",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "config.") {
		t.Errorf("the message speaks of Go types:\n%v", err)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"empty":         "",
		"no yaml":       "a: [",
		"second":        valid(t) + "\n---\n" + valid(t),
		"no contracts":  strings.Split(valid(t), "contracts:")[0],
		"twice":         valid(t) + "\njournal: {file: /x}\n",
		"extra":         valid(t) + "\nextra: 1\n",
		"empty token":   regexp.MustCompile(`tokenFile: \S+`).ReplaceAllString(valid(t), "tokenFile: "+tokenFile(t, " \n")+"}"),
		"list for text": strings.Replace(valid(t), "owner: cluster-1", "owner: [a]", 1),
	} {
		if _, err := config.Parse([]byte(text), driver.Types()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestJournalHasOnePlace(t *testing.T) {
	kubeconfig := tokenFile(t, "kubeconfig")
	for name, c := range map[string]struct{ journal, want string }{
		"none":                 {"{}", "journal: it has no place"},
		"two":                  {"{file: /j, secrets: {namespace: cosi}}", "journal: it has two places"},
		"relative file":        {"{file: j}", "journal.file:"},
		"relative key":         {"{file: /j, keyFile: k}", "journal.keyFile: \"k\" is not an absolute path"},
		"no key":               {"{file: /j, keyFile: /no/such/key}", "journal.keyFile: open /no/such/key: no such file"},
		"key of Secrets":       {"{keyFile: /k, secrets: {namespace: cosi}}", "journal.keyFile: it is for journal.file"},
		"no namespace":         {"{secrets: {}}", "journal.secrets.namespace: missing"},
		"no namespace outside": {"{secrets: {kubeconfig: " + kubeconfig + "}}", "journal.secrets.namespace: missing"},
		"bad namespace":        {"{secrets: {namespace: A_b}}", `journal.secrets.namespace: "A_b" is not`},
		"no such kubeconfig":   {"{secrets: {namespace: cosi, kubeconfig: /no/such/file}}", "journal.secrets.kubeconfig: open /no/such/file"},
		"relative kubeconfig":  {"{secrets: {namespace: cosi, kubeconfig: k}}", "journal.secrets.kubeconfig:"},
		"a limit":              {"{secrets: {namespace: cosi, qps: 5}}", "journal.secrets.qps: the key is unknown"},
		"in a pod":             {"{secrets: {namespace: cosi}}", ""},
		"outside":              {"{secrets: {namespace: cosi, kubeconfig: " + kubeconfig + "}}", ""},
	} {
		text := strings.Replace(valid(t), "{file: /var/lib/contract-cosi-driver/journal.db}", c.journal, 1)
		_, err := config.Parse([]byte(text), driver.Types())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// A slip of the pen is told with its place and the way out, and nothing else is.
func TestFaultsNameTheCure(t *testing.T) {
	t.Parallel()
	text := valid(t)
	lineOf := func(part string) int {
		before, _, ok := strings.Cut(text, part)
		if !ok {
			t.Fatalf("%s is not in the configuration", part)
		}
		return strings.Count(before, "\n") + 1
	}
	for slip, c := range map[string]struct{ instead, want string }{
		"quota: {maxBuckets":              {"quota: {maxBucket", "contracts[0].quota.maxBucket: the key is unknown; did you mean maxBuckets?"},
		"type: contractapi":               {"type: contractAPI", `backends[0].type: "contractAPI" is no type of backend; did you mean contractapi?`},
		"contractapi: {url":               {"contractApi: {url", "backends[0].contractApi: the key is unknown; did you mean contractapi?"},
		"    backend: main":               {"    backend: mian", `contracts[0].backend: "mian" is no backend of this file; did you mean main?`},
		"  backend: main\n  onLastBucket": {"  backend: spare\n  onLastBucket", `onDemand.backend: "spare" is no backend of this file; known are main`},
		"    quota:":                      {"\tquota:", "a tab indents the line, where YAML takes spaces only; put spaces in its place"},
		"contracts:\n":                    {"contract:\n", "contract: the key is unknown; did you mean contracts?"},
		"  namePrefix":                    {"  nameprefix", "onDemand.nameprefix: the key is unknown; did you mean namePrefix?"},
	} {
		line := fmt.Sprintf("  line %d: ", lineOf(slip))
		_, err := config.Parse([]byte(strings.Replace(text, slip, c.instead, 1)), driver.Types())
		if err == nil || !strings.Contains("\n"+err.Error()+"\n", "\n"+line+c.want+"\n") {
			t.Errorf("%s: got\n%v\nwant\n%s", c.instead, err, line+c.want)
		}
	}
}

// What stands at the wrong place may be a secret.
func TestFaultsDoNotRepeatValues(t *testing.T) {
	for _, text := range []string{
		strings.Replace(valid(t), "https://contracts", "https://admin:hunter2@contracts", 1),
		strings.Replace(valid(t), "https://contracts", "://hunter2@contracts", 1),
		strings.Replace(valid(t), "{file: /var/lib/contract-cosi-driver/journal.db}", "hunter2", 1),
		strings.Replace(valid(t), "owner: cluster-1", "owner: cluster-1, callTimeout: hunter2", 1),
	} {
		_, err := config.Parse([]byte(text), driver.Types())
		if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "config.") {
			t.Errorf("got %v", err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("driver: {name: a, owner: b}\njournal: {file: /j}\n"))
	f.Add([]byte("backends: [{name: a, type: contractapi}]\ncontracts: [{name: c}]\n"))
	f.Add([]byte("onDemand: &a {labels: *a}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := config.Parse(text, driver.Types()); err == nil && len(c.Backends) == 0 {
			t.Error("accepted without a backend")
		}
	})
}

func TestAContractPerBucket(t *testing.T) {
	t.Parallel()
	withContract := func(text string) string {
		return strings.Replace(valid(t), "contracts:\n", "contracts:\n  - "+text+"\n", 1)
	}
	c, err := config.Parse([]byte(withContract("{name: solo, backend: main, perBucket: true}")), driver.Types())
	if err != nil {
		t.Fatal(err)
	}
	solo, ok := c.Terms("solo")
	if !ok || solo.OnLastBucket != config.Cancel {
		t.Fatalf("got %+v, %v", solo, ok)
	}
	a, b := solo.ContractFor("bucket-a"), solo.ContractFor("bucket-b")
	if a == b || a != solo.ContractFor("bucket-a") || !strings.HasPrefix(a, "solo-") {
		t.Errorf("contracts %q and %q", a, b)
	}
	if own, ok := c.Terms(a); !ok || own.Listed != "solo" || own.ContractFor("bucket-a") != a {
		t.Errorf("contract %s goes by %+v, %v", a, own, ok)
	}
	for _, name := range []string{"solo-1", "solo-", "solo-zzzzzzzzzzzzzzzz", "solox0123456789abcdef"} {
		if _, ok := c.Terms(name); ok {
			t.Errorf("%s has terms", name)
		}
	}
	for text, want := range map[string]string{
		strings.Replace(valid(t), "namePrefix: trial-", "perBucket: true", 1):                   "onDemand.perBucket:",
		withContract("{name: " + strings.Repeat("s", 50) + ", backend: main, perBucket: true}"): "ids leave room",
	} {
		if _, err := config.Parse([]byte(text), driver.Types()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestGuardFaults(t *testing.T) {
	t.Parallel()
	text := strings.Replace(valid(t), "contracts:\n", `contracts:
  - name: guarded
    backend: main
    perBucket: true
    guard: {parameters: [polcy, contract], required: [nothing], modes: [rw], actions: ["s3:*"], maxKeyLife: forever, maxKeyAge: 10s, maxBuckets: -1}
    defaults:
      bucketClass: {contract: other, onDelete: empty, lifecycle: "{"}
      bucketAccessClass: {acess: ReadOnly, access: ReadOnly}
`, 1)
	_, err := config.Parse([]byte(text), driver.Types())
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`contracts[0].guard.parameters: "polcy" is no parameter`, `guard.parameters: "contract"`, `guard.required: "nothing"`, `guard.modes: "rw"`,
		`guard.actions: "s3:*"`, `guard.maxKeyLife: "forever"`, `guard.maxKeyAge: "10s"`, "guard.maxBuckets: -1 is negative", "guard.maxBuckets: a contract of perBucket",
		"defaults.bucketClass: a contract is named by the class", "defaults.bucketClass: onDelete is for the class", "defaults.bucketAccessClass: access is for the class", "lifecycle:", `"acess" is unknown; did you mean access?`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestDrift(t *testing.T) {
	c, err := config.Parse([]byte(valid(t)), driver.Types())
	if err != nil {
		t.Fatal(err)
	}
	if want := (config.Drift{Mode: config.DriftOff, Interval: time.Hour, CallsPerSecond: 20}); c.Drift != want {
		t.Errorf("by default: %+v", c.Drift)
	}
	// Helm hands over false where its values say off.
	if c, err = config.Parse([]byte(strings.Replace(valid(t), "quota: {maxBuckets: 10}", "drift: false", 1)+"drift: {mode: false}\n"), driver.Types()); err != nil || c.Drift.Mode != config.DriftOff || c.Contracts[0].Drift != config.DriftOff {
		t.Errorf("false is not off: %v", err)
	}
	text := strings.Replace(valid(t), "    quota: {maxBuckets: 10}", "    drift: off", 1) + "drift: {mode: repair, interval: 10m, callsPerSecond: 5}\n"
	if c, err = config.Parse([]byte(text), driver.Types()); err != nil {
		t.Fatal(err)
	}
	for contract, want := range map[string]config.DriftMode{"team-a": config.DriftOff, "trial-7": config.DriftRepair, "gone": config.DriftRepair} {
		if got := c.DriftMode(contract); got != want {
			t.Errorf("%s is in mode %s, want %s", contract, got, want)
		}
	}
	_, err = config.Parse([]byte(strings.NewReplacer("drift: off", "drift: fix", "mode: repair", "mode: no", "10m", "10ms", "callsPerSecond: 5", "callsPerSecond: -1").Replace(text)), driver.Types())
	for _, want := range []string{`contracts[0].drift: "fix" is none of off, report and repair`, `drift.mode: "no"`, "drift.interval: 10ms", "drift.callsPerSecond: -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}

func TestGeneration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]config.Generation{"": config.Auto, "cosi: {generation: B2}\n": "B2", "cosi: {}\n": config.Auto} {
		c, err := config.Parse([]byte(valid(t)+text), driver.Types())
		if err != nil {
			t.Fatal(err)
		}
		if c.COSI.Generation != want {
			t.Errorf("%q is %s, want %s", text, c.COSI.Generation, want)
		}
	}
	_, err := config.Parse([]byte(valid(t)+"cosi: {generation: B3}\n"), driver.Types())
	if want := `cosi.generation: "B3" is none of auto, A, B1, B2, C1 and C2`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %s", err, want)
	}
}
