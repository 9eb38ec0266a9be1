package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	cosipb "github.com/contract-cosi/contract-cosi-driver/pkg/cosipb/v1alpha2"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
	"github.com/contract-cosi/contract-cosi-driver/test/poll"
)

const (
	driverName = "test.cosi.example"
	token      = "planted-token-of-the-backend"
	// patience is how long a test waits for what must happen.
	patience = 20 * time.Second
)

// shortDir leaves room for a socket's path, which t.TempDir does not.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// command runs the program to its end.
func command(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, log harness.Buffer
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- run(ctx, args, &out, &log) }()
	select {
	case err = <-ended:
	case <-time.After(2 * patience):
		t.Fatalf("%q does not end", args)
	}
	return out.String(), log.String(), err
}

// place is what one driver is started with.
type place struct{ dir, config, endpoint, socket, journal, token string }

// setUp writes a configuration whose only backend is at url.
func setUp(t *testing.T, url string) place {
	t.Helper()
	dir := shortDir(t)
	p := place{
		dir: dir, config: filepath.Join(dir, "config.yaml"), socket: filepath.Join(dir, "s", "cosi.sock"),
		journal: filepath.Join(dir, "journal"), token: filepath.Join(dir, "token"),
	}
	p.endpoint = "unix://" + p.socket
	if err := os.Mkdir(filepath.Dir(p.socket), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, p.token, token+"\n")
	write(t, p.config, fmt.Sprintf(`
driver: {name: %s, owner: cluster-1}
journal: {file: %s}
backends:
- name: main
  type: contractapi
  contractapi: {url: %q, tokenFile: %s}
contracts:
- {name: team-a, backend: main}
`, driverName, p.journal, url, p.token))
	return p
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// backend plays a contract service whose S3 server is beside it.
func backend(t *testing.T) (api, storage *httptest.Server) {
	t.Helper()
	storage = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(storage.Close)
	api = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/regions" || r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"items":[{"url":%q,"region":"north","pathStyle":true}]}`, storage.URL)
	}))
	t.Cleanup(api.Close)
	return api, storage
}

// ---- The command line.

func TestCommandLineFaults(t *testing.T) {
	t.Parallel()
	p := setUp(t, "http://127.0.0.1:1")
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"unknown command":     {[]string{"audti"}, []string{`unknown command "audti"; did you mean audit?`}},
		"no such command":     {[]string{"frobnicate"}, []string{`unknown command "frobnicate"; known are audit, buckets, check,`}},
		"empty command":       {[]string{""}, []string{`unknown command ""`}},
		"unknown flag":        {[]string{"serve", "--confg", p.config}, []string{"unknown flag --confg; did you mean --config?"}},
		"unknown check flag":  {[]string{"check", "--confg", p.config}, []string{"unknown flag --confg; did you mean --config?"}},
		"one dash":            {[]string{"-config", p.config}, []string{"unknown flag -config; did you mean --config?"}},
		"argument":            {[]string{"--config", p.config, "extra"}, []string{`unknown command "extra"`}},
		"check argument":      {[]string{"check", "extra"}, []string{`unexpected argument "extra"; check takes flags only`}},
		"no config":           {nil, []string{"/etc/contract-cosi-driver/config/config.yaml", "no such file", "say with --config"}},
		"no config to ask":    {[]string{"keys"}, []string{"/etc/contract-cosi-driver/config/config.yaml", "say with --config"}},
		"no unit":             {[]string{"serve", "--config", p.config, "--grace", "10"}, []string{`"10" for "--grace"`, "no unit; did you mean 10s?"}},
		"no time":             {[]string{"check", "--timeout", "soon"}, []string{`"soon" for "--timeout"`, "not a time such as 90d"}},
		"rotate every key":    {[]string{"rotate", "--config", p.config, "--older-than", "0s"}, []string{"more than 0s; 1s rotates every key"}},
		"rotate now what":     {[]string{"rotate", "--config", p.config, "--now"}, []string{"--now and --issued-before go with --contract NAME"}},
		"rotate now and then": {[]string{"rotate", "--config", p.config, "--contract", "x", "--now", "--issued-before", "2026-01-02T03:04:05Z"}, []string{"not with each other"}},
		"rotate before when":  {[]string{"rotate", "--config", p.config, "--contract", "x", "--issued-before", "noon"}, []string{"is not a time such as 2006-"}},
		"deliver where":       {[]string{"deliver", "--kubeconfig", "/none"}, []string{"the kubeconfig /none cannot be used"}},
		"rotate what":         {[]string{"rotate", "--config", p.config}, []string{"either --access ID", "--older-than AGE"}},
		"revoke what":         {[]string{"revoke", "--config", p.config}, []string{`"access" not set`}},
		"missing config":      {[]string{"--config", filepath.Join(p.dir, "none.yaml")}, []string{filepath.Join(p.dir, "none.yaml"), "no such file"}},
		"config is directory": {[]string{"--config", p.dir}, []string{p.dir, "is a directory"}},
		"mode is not octal":   {[]string{"--config", p.config, "--socket-mode", "0990"}, []string{"socket-mode", "octal"}},
		"mode with more bits": {[]string{"--config", p.config, "--socket-mode", "4660"}, []string{"socket-mode", "octal"}},
		"unknown version":     {[]string{"--config", p.config, "--cosi-versions", "v1alpha1,v1beta1"}, []string{`"v1beta1" is neither v1alpha1 nor v1alpha2`}},
		"version twice":       {[]string{"--config", p.config, "--cosi-versions", "v1alpha2,v1alpha2"}, []string{"v1alpha2 is named twice"}},
		"no version":          {[]string{"--config", p.config, "--cosi-versions", ""}, []string{`"" is neither`}},
		"journal":             {[]string{"journal"}, []string{"say journal export or journal import"}},
		"journal command":     {[]string{"journal", "exprot"}, []string{`unknown command "exprot"; did you mean export?`}},
		"export what":         {[]string{"journal", "export"}, []string{"say with --config"}},
		"import from where":   {[]string{"journal", "import", "--config", p.config}, []string{`"input" not set`}},
		"import from nothing": {[]string{"journal", "import", "--config", p.config, "--input", filepath.Join(p.dir, "none")}, []string{"--input:", "no such file"}},
		"check a TCP address": {[]string{"check", "--endpoint", "tcp://127.0.0.1:1"}, []string{"is not unix:///absolute/path.sock"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdout, _, err := command(t, c.args...)
			if err == nil {
				t.Fatal("was accepted")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if stdout != "" {
				t.Errorf("printed %q", stdout)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	all := []string{"--config", "--endpoint", "(default \"" + defaultConfig + "\")"}
	for name, does := range map[string]string{
		"serve": "Serve", "check": "Probe", "journal": "Save", "contracts": "List contracts", "buckets": "List buckets", "keys": "List keys",
		"audit": "Find", "rotate": "Issue", "revoke": "Revoke", "deliver": "Write renewed keys", "version": "Print", "completion": "Generate",
	} {
		all = append(all, fmt.Sprintf("\n  %-11s %s", name, does))
	}
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"serve":       {[]string{"serve", "--help"}, []string{"--config", "--endpoint", "--socket-mode", "--http-endpoint", "--validate", "-v,", "Examples:"}},
		"no command":  {[]string{"--help"}, all},
		"help":        {[]string{"help"}, all},
		"help of one": {[]string{"help", "rotate"}, []string{"Issue new keys", "--older-than", "(default 1d)", "rotate --older-than 90d"}},
		"of journal":  {[]string{"help", "journal"}, []string{"export  ", "import  "}},
		"check":       {[]string{"check", "-h"}, []string{"--endpoint", "--timeout", "check --config driver.yaml --trial"}},
		"with config": {[]string{"serve", "--config", "/none", "--help"}, []string{"--config"}},
		"bash":        {[]string{"completion", "bash"}, []string{"complete -o default"}},
		"zsh":         {[]string{"completion", "zsh"}, []string{"#compdef contract-cosi-driver"}},
		"fish":        {[]string{"completion", "fish"}, []string{"complete -c contract-cosi-driver"}},
		"completed":   {[]string{"__complete", "keys", "--output", ""}, []string{"table", "json", "yaml"}},
		"flag":        {[]string{"--version"}, []string{"contract-cosi-driver version ", "go1."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, err := command(t, c.args...)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("the help has no %s:\n%s", want, stdout+stderr)
				}
			}
		})
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	stdout, _, err := command(t, "version")
	if err != nil || !strings.Contains(stdout, "go1.") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("version printed %q, %v; want one line that names Go's version", stdout, err)
	}
}

// Anyone who has to mend a file wants to know of all that is wrong with it.
func TestFaultyConfigNamesAllFaults(t *testing.T) {
	t.Parallel()
	file := filepath.Join(shortDir(t), "config.yaml")
	write(t, file, `
driver: {name: Not_A_Name, callTimeout: 1ms, colour: red}
journal: {file: relative}
backends:
- {name: main, type: carrier-pigeon}
- {name: main, type: contractapi, contractapi: {url: "ftp://x", tokenFile: /no/such/token}}
contracts:
- {name: team-a, backend: other, onLastBucket: explode}
`)
	for _, args := range [][]string{{"serve", "--config", file}, {"--config", file, "--validate"}} {
		_, _, err := command(t, args...)
		if err == nil {
			t.Fatalf("%q accepted it", args)
		}
		for _, want := range []string{
			file, "driver.name", "driver.owner", "driver.callTimeout", "colour", "journal.file", "backends[0].type",
			"backends[1].name", "backends[1].contractapi.url", "backends[1].contractapi.tokenFile", "/no/such/token",
			"contracts[0].backend", "contracts[0].onLastBucket",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: the error does not name %s:\n%s", args, want, err)
			}
		}
	}
}

func TestValidatePrintsNoSecret(t *testing.T) {
	t.Parallel()
	p := setUp(t, "http://127.0.0.1:1")
	stdout, stderr, err := command(t, "serve", "--config", p.config, "--validate")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{driverName, "cluster-1", "callTimeout: 30s", "onLastBucket: keep", p.token, "[redacted]"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in what is in effect:\n%s", want, stdout)
		}
	}
	if strings.Contains(stdout+stderr, token) {
		t.Errorf("the token was printed:\n%s%s", stdout, stderr)
	}
	if _, err := os.Lstat(p.journal); err == nil {
		t.Error("--validate made a journal")
	}
}

// What is printed has to be a configuration that means the same.
func TestValidatePrintsWhatCanBeRead(t *testing.T) {
	t.Parallel()
	p := setUp(t, "http://127.0.0.1:1")
	first, _, err := command(t, "--config", p.config, "--validate")
	if err != nil {
		t.Fatal(err)
	}
	write(t, p.config, first)
	if second, _, err := command(t, "--config", p.config, "--validate"); err != nil || second != first {
		t.Errorf("read again: %v\n%s\nwas\n%s", err, second, first)
	}
}

// ---- A running driver. Its start sets the umask of the process for a moment,
// so these tests do not run beside others that make files.

// serving is a program that serves.
type serving struct {
	stdout, stderr harness.Buffer
	stop           context.CancelFunc
	ended          chan error
}

// start runs the program until it listens. args replace what tells it where.
func start(t *testing.T, p place, args ...string) *serving {
	t.Helper()
	d := &serving{ended: make(chan error, 1)}
	var ctx context.Context
	ctx, d.stop = context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.ended <- run(ctx, args, &d.stdout, &d.stderr)
	}()
	t.Cleanup(func() { // the journal and the socket are let go before their directory goes
		d.stop()
		<-done
	})
	poll.Until(t, "a socket at "+p.socket, func() bool {
		select {
		case err := <-d.ended:
			t.Fatalf("serve ended with %v\n%s", err, &d.stderr)
		default:
		}
		conn, err := net.Dial("unix", p.socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return d
}

// end stops the program and returns what it returned.
func (d *serving) end(t *testing.T) error {
	t.Helper()
	d.stop()
	select {
	case err := <-d.ended:
		return err
	case <-time.After(patience):
		t.Fatalf("serve does not end\n%s", &d.stderr)
		return nil
	}
}

func TestServeAndCheck(t *testing.T) {
	api, _ := backend(t)
	p := setUp(t, api.URL)
	d := start(t, p, "serve", "--config", p.config, "--endpoint", p.endpoint, "--socket-mode", "0600", "--grace", "1s", "-v", "5")
	if info, err := os.Lstat(p.socket); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket is %v, %v; want mode 0600", info, err)
	}
	stdout, _, err := command(t, "check", "--endpoint", p.endpoint)
	if want := "driver " + driverName + " is ready\n"; err != nil || stdout != want {
		t.Errorf("check printed %q, %v; want %q", stdout, err, want)
	}
	if err := d.end(t); err != nil {
		t.Errorf("a stop that was asked for returned %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(p.socket)); err != nil || len(left) > 0 {
		t.Errorf("the stop left %v behind (%v)", left, err)
	}
	if log := d.stderr.String(); strings.Contains(log, token) || !strings.Contains(log, driverName) {
		t.Errorf("the log does not name the driver, or has the token in it:\n%s", log)
	}
	if _, _, err := command(t, "check", "--endpoint", p.endpoint, "--timeout", "100ms"); err == nil {
		t.Error("check succeeds after the stop")
	}
}

// With --log-format=json each line is one object, in which all is text that reads
// as in the other format.
func TestLogFormat(t *testing.T) {
	api, _ := backend(t)
	p := setUp(t, api.URL)
	d := start(t, p, "--config", p.config, "--endpoint", p.endpoint, "--log-format", "json", "-v", "2")
	conn, err := harness.Dial(t.Context(), p.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := cosiproto.NewProvisionerClient(conn).DriverDeleteBucket(t.Context(), &cosiproto.DriverDeleteBucketRequest{BucketId: "no.such.backend"}); err == nil {
		t.Fatal("a bucket of no backend is deleted")
	}
	if _, err := cosiproto.NewIdentityClient(conn).DriverGetInfo(t.Context(), &cosiproto.DriverGetInfoRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := d.end(t); err != nil {
		t.Error(err)
	}
	lines := map[string]map[string]any{}
	for line := range strings.Lines(d.stderr.String()) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		lines[fmt.Sprint(l["msg"])] = l
	}
	failed, done := lines["Call failed"], lines["Call done"]
	if failed["level"] != "INFO" || failed["bucket"] != "no.such.backend" || failed["contract"] != "such" || failed["code"] != "InvalidArgument" || failed["method"] != "/cosi.v1alpha1.Provisioner/DriverDeleteBucket" {
		t.Errorf("the line of a failed call is %v", failed)
	}
	if took, err := time.ParseDuration(fmt.Sprint(done["took"])); err != nil || took <= 0 || done["level"] != "DEBUG" {
		t.Errorf("the line of a call is %v", done)
	}
	if _, err := time.Parse(time.RFC3339Nano, fmt.Sprint(failed["time"])); err != nil || failed["request"] == done["request"] {
		t.Errorf("lines of two calls are %v and %v", failed, done)
	}
	if _, _, err := command(t, "serve", "--config", p.config, "--log-format", "xml"); err == nil || !strings.Contains(err.Error(), "text or json") {
		t.Errorf("--log-format xml: %v", err)
	}
}

func TestVersionsThatAreServed(t *testing.T) {
	api, _ := backend(t)
	for versions, want := range map[string][2]codes.Code{
		"v1alpha1":          {codes.OK, codes.Unimplemented},
		"v1alpha2":          {codes.Unimplemented, codes.OK},
		"v1alpha2,v1alpha1": {codes.OK, codes.OK},
	} {
		t.Run(versions, func(t *testing.T) {
			p := setUp(t, api.URL)
			d := start(t, p, "--config", p.config, "--endpoint", p.endpoint, "--cosi-versions", versions)
			if out, _, err := command(t, "check", "--endpoint", p.endpoint); err != nil || out != "driver "+driverName+" is ready\n" {
				t.Errorf("check: %q, %v", out, err)
			}
			conn, err := harness.Dial(t.Context(), p.endpoint)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_, first := cosiproto.NewIdentityClient(conn).DriverGetInfo(t.Context(), &cosiproto.DriverGetInfoRequest{})
			_, second := cosipb.NewIdentityClient(conn).DriverGetInfo(t.Context(), &cosipb.DriverGetInfoRequest{})
			if got := [2]codes.Code{status.Code(first), status.Code(second)}; got != want {
				t.Errorf("v1alpha1 and v1alpha2 answer %v, want %v", got, want)
			}
			if err := d.end(t); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCheckFailsWithTheReason(t *testing.T) {
	for name, c := range map[string]struct {
		away func(api, storage *httptest.Server)
		want string
	}{
		"service away": {func(api, _ *httptest.Server) { api.Close() }, "the contract service does not answer"},
		"storage away": {func(_, storage *httptest.Server) { storage.Close() }, "storage of region north"},
	} {
		t.Run(name, func(t *testing.T) {
			api, storage := backend(t)
			p := setUp(t, api.URL)
			// The driver starts without its backend: it may come up later.
			c.away(api, storage)
			start(t, p, "--config", p.config, "--endpoint", p.endpoint)
			stdout, _, err := command(t, "check", "--endpoint", p.endpoint)
			if err == nil {
				t.Fatalf("check succeeded: %s", stdout)
			}
			for _, want := range []string{driverName, "is ready, but not all of its backends are: backend main", c.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), token) {
				t.Errorf("error %q has the token in it", err)
			}
		})
	}
}

func TestCheckWithoutADriver(t *testing.T) {
	endpoint := "unix://" + filepath.Join(shortDir(t), "cosi.sock")
	_, _, err := command(t, "check", "--endpoint", endpoint, "--timeout", "100ms")
	if err == nil || !strings.Contains(err.Error(), "no driver answers at "+endpoint) {
		t.Errorf("error %v, want that no driver answers there", err)
	}
}

// What is there and may not be used is not taken for one that is not there.
func TestCheckOfASocketOfOthers(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	path := filepath.Join(dir, "cosi.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	if err := errors.Join(os.Chmod(dir, 0o711), os.Chmod(path, 0)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // which ends with the goroutine, so that no other has its user
		if err := unix.Setfsuid(65534); err != nil {
			ended <- err
			return
		}
		ended <- run(t.Context(), []string{"check", "--endpoint", "unix://" + path}, io.Discard, io.Discard)
	}()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), path+": permission denied; run as the driver's user") {
		t.Errorf("got %v", err)
	}
}

// Something else may listen there.
func TestCheckOfWhatIsNoDriver(t *testing.T) {
	path := filepath.Join(shortDir(t), "cosi.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if _, _, err := command(t, "check", "--endpoint", "unix://"+path, "--timeout", "100ms"); err == nil {
		t.Error("check took a silent listener for a driver")
	}
}

func TestServeRefusesADamagedJournal(t *testing.T) {
	api, _ := backend(t)
	p := setUp(t, api.URL)
	d := start(t, p, "--config", p.config, "--endpoint", p.endpoint) // leaves a good journal
	if err := d.end(t); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(p.journal)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"garbage":       "this is no journal",
		"garbage ahead": "garbage" + string(good),
		"garbage in it": string(good[:4096]) + "garbage" + string(good[4103:]),
		"cut":           string(good[:len(good)/2]),
		"empty":         "",
	} {
		t.Run(name, func(t *testing.T) {
			write(t, p.journal, text)
			_, _, err := command(t, "--config", p.config, "--endpoint", p.endpoint)
			if err == nil || !strings.Contains(err.Error(), p.journal) || !strings.Contains(err.Error(), "damaged") {
				t.Errorf("serve returned %v, want that %s is damaged", err, p.journal)
			}
			if left, err := os.ReadFile(p.journal); err != nil || string(left) != text {
				t.Errorf("the damaged journal was changed (%v)", err)
			}
			if _, err := os.Lstat(p.socket); err == nil {
				t.Error("a driver without a journal made a socket")
			}
		})
	}
}

func TestServeRefusesASocketInUse(t *testing.T) {
	api, _ := backend(t)
	p := setUp(t, api.URL)
	listener, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, _, err = command(t, "--config", p.config, "--endpoint", p.endpoint, "--http-endpoint", "127.0.0.1:0")
	if err == nil || !strings.Contains(err.Error(), p.socket) || !strings.Contains(err.Error(), "another process is listening") {
		t.Errorf("serve returned %v, want that %s is in use", err, p.socket)
	}
	if _, err := os.Lstat(p.socket); err != nil {
		t.Errorf("the other's socket is gone: %v", err)
	}
	// Whatever was opened before the fault is let go of again.
	other := p
	other.socket = filepath.Join(p.dir, "s", "other.sock")
	start(t, other, "--config", p.config, "--endpoint", "unix://"+other.socket)
}

func TestServeRefusesAJournalInUse(t *testing.T) {
	api, _ := backend(t)
	p := setUp(t, api.URL)
	start(t, p, "--config", p.config, "--endpoint", p.endpoint)
	_, _, err := command(t, "--config", p.config, "--endpoint", "unix://"+filepath.Join(p.dir, "s", "other.sock"))
	if err == nil || !strings.Contains(err.Error(), p.journal) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("serve returned %v, want that %s is in use", err, p.journal)
	}
}

// The chart sets one variable for both the sidecar and the driver.
func TestEndpointIsTheSidecarsVariable(t *testing.T) {
	api, _ := backend(t)
	p := setUp(t, api.URL)
	t.Setenv("COSI_ENDPOINT", p.endpoint)
	d := start(t, p, "--config", p.config)
	if _, _, err := command(t, "check"); err != nil {
		t.Errorf("check does not take the endpoint from the variable: %v", err)
	}
	// What is said on the command line is meant.
	if _, _, err := command(t, "check", "--endpoint", "unix://"+filepath.Join(p.dir, "none.sock"), "--timeout", "100ms"); err == nil {
		t.Error("check takes the variable, although an endpoint was given")
	}
	if err := d.end(t); err != nil {
		t.Error(err)
	}
	t.Setenv("COSI_ENDPOINT", "tcp://127.0.0.1:1")
	if err := os.Remove(p.journal); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := os.Lstat(p.journal); err == nil {
			t.Error("a driver without a socket began a journal")
		}
	}()
	if _, _, err := command(t, "--config", p.config); err == nil || !strings.Contains(err.Error(), "tcp://127.0.0.1:1") {
		t.Errorf("serve returned %v, want that the variable names no socket", err)
	}
}

func TestServeAnswersProbes(t *testing.T) {
	api, _ := backend(t)
	p := setUp(t, api.URL)
	// A port that is free now; should another take it, serve says so.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if _, _, err := command(t, "--config", p.config, "--endpoint", p.endpoint, "--http-endpoint", address); err == nil || !strings.Contains(err.Error(), "http endpoint") {
		t.Errorf("serve returned %v on an address in use", err)
	}
	_ = listener.Close()
	d := start(t, p, "--config", p.config, "--endpoint", p.endpoint, "--http-endpoint", address)
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s", path, answer.Status)
		}
	}
	if err := d.end(t); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("the probes' listener is open after the stop")
	}
}
