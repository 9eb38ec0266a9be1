package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// sessions are the documents with a console block, and how many commands it
// has at least.
var sessions = map[string]int{
	"README.md":              6,
	"proto-docs/v1alpha1.md": 8,
	"proto-docs/v1alpha2.md": 10,
	"deploy/operations.md":   10,

	"proto-docs/contract-api.md": 1,
}

// changing are the values that differ from run to run.
var changing = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`"CK[A-Z0-9]{18}"`), `"access key"`},
	{regexp.MustCompile(`"[A-Za-z0-9+/]{40}"`), `"secret"`},
	{regexp.MustCompile(`\bCK[A-Z0-9]{18}\b`), "key"},
	{regexp.MustCompile(`"20\d\d-[0-9T:.-]+Z"`), `"time"`},
	{regexp.MustCompile(`\b\d+[sm]( +|\n)`), "age "},
	{regexp.MustCompile(`in [0-9.]+m?s; the names of this run have UIDs that begin with [0-9a-f]{8}`), "in time"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:port"},
}

func steady(s string) string {
	for _, c := range changing {
		s = c.pattern.ReplaceAllString(s, c.name)
	}
	return strings.TrimSpace(s)
}

// Every command of every session prints what the document shows.
func TestSessions(t *testing.T) {
	t.Parallel()
	root, err := harness.Root()
	must(t, err)
	dir := t.TempDir()
	b, err := harness.Build(t.Context(), filepath.Join(dir, "bin"), false)
	must(t, err)
	for name, arguments := range map[string][]string{
		"grpcurl": {"-modfile=test/tools/go.mod", "github.com/fullstorydev/grpcurl/cmd/grpcurl"},
	} {
		build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", filepath.Join(dir, "bin", name)}, arguments...)...)
		build.Dir = root
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	_, err = harness.BuildIn(t.Context(), filepath.Join(dir, "bin"), "cmd/cosi-sanity")
	must(t, err)
	must(t, os.Symlink(filepath.Join(root, "proto-docs"), filepath.Join(dir, "proto-docs")))
	for name, least := range sessions {
		t.Run(name, func(t *testing.T) { session(t, b, dir, filepath.Join(root, name), least) })
	}
}

// session runs the commands of one document, in programs, against a driver and
// a contract service of their own.
func session(t *testing.T, b harness.Binaries, programs, document string, least int) {
	dir, err := os.MkdirTemp("", "r") // a socket's path has to be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	service, err := harness.StartContractd(t.Context(), b, dir)
	must(t, err)
	t.Cleanup(service.Kill)
	file := filepath.Join(dir, "config.yaml")
	contracts := "contracts:\n  - {name: team-blue, backend: main}\n"
	must(t, os.WriteFile(file, []byte(harness.ConfigText(dir, service.API, service.TokenFile, contracts)), 0o600))
	d, err := harness.StartDriver(t.Context(), b, dir, file)
	must(t, err)
	t.Cleanup(d.Kill)

	content, err := os.ReadFile(document)
	must(t, err)
	text := string(content)
	commands := strings.Split("\n"+block(t, text, "console"), "\n$ ")[1:]
	if len(commands) < least {
		t.Fatalf("only %d commands in the session", len(commands))
	}
	for _, c := range commands {
		line, want, _ := strings.Cut(c, "\n")
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir = programs
		cmd.Env = append(os.Environ(), "SOCKET="+strings.TrimPrefix(d.Endpoint, "unix://"), "CONFIG="+file)
		out, _ := cmd.CombinedOutput()
		if got := steady(string(out)); got == steady(want) {
			continue
		} else if !*update {
			t.Errorf("$ %s\nprints\n%s\nthe document shows\n%s", line, got, steady(want))
		}
		text = strings.Replace(text, "$ "+c, "$ "+line+"\n"+strings.TrimSpace(string(out)), 1)
	}
	if *update {
		must(t, os.WriteFile(document, []byte(text), 0o644))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
