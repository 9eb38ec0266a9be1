// Package readme runs the commands that README.md shows and compares what they
// print with what it says.
package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/config"
	"github.com/contract-cosi/contract-cosi-driver/pkg/params"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

func readme(t *testing.T) (root, text string) {
	t.Helper()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return root, string(content)
}

// block returns the first fenced block of a language.
func block(t *testing.T, text, language string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n```"+language+"\n")
	body, _, closed := strings.Cut(rest, "\n```\n")
	if !ok || !closed {
		t.Fatalf("README.md has no %s block", language)
	}
	return body
}

// changing are the values that differ from run to run.
var changing = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`"CK[A-Z0-9]{18}"`), `"access key"`},
	{regexp.MustCompile(`"[A-Za-z0-9+/]{40}"`), `"secret"`},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:port"},
}

func steady(s string) string {
	for _, c := range changing {
		s = c.pattern.ReplaceAllString(s, c.name)
	}
	return strings.TrimSpace(s)
}

func TestSession(t *testing.T) {
	t.Parallel()
	root, text := readme(t)
	dir, err := os.MkdirTemp("", "r")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b, err := harness.Build(t.Context(), filepath.Join(dir, "bin"), false)
	if err != nil {
		t.Fatal(err)
	}
	grpcurl := exec.CommandContext(t.Context(), "go", "build", "-modfile=test/tools/go.mod", "-o", filepath.Join(dir, "bin", "grpcurl"), "github.com/fullstorydev/grpcurl/cmd/grpcurl")
	grpcurl.Dir = root
	grpcurl.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := grpcurl.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	service, err := harness.StartContractd(t.Context(), b, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Kill)
	file := filepath.Join(dir, "config.yaml")
	contracts := "contracts:\n  - {name: team-blue, backend: main}\n"
	if err := os.WriteFile(file, []byte(harness.ConfigText(dir, service.API, service.TokenFile, contracts)), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := harness.StartDriver(t.Context(), b, dir, file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)

	commands := strings.Split("\n"+block(t, text, "console"), "\n$ ")[1:]
	if len(commands) < 8 {
		t.Fatalf("only %d commands in the session", len(commands))
	}
	for _, c := range commands {
		line, want, _ := strings.Cut(c, "\n")
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "SOCKET="+strings.TrimPrefix(d.Endpoint, "unix://"))
		out, _ := cmd.CombinedOutput()
		if got := steady(string(out)); got != steady(want) {
			t.Errorf("$ %s\nprints\n%s\nREADME.md shows\n%s", line, got, steady(want))
		}
	}
}

// The configuration that README.md shows is accepted, but for the files of
// another machine.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	_, text := readme(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := strings.Replace(block(t, text, "yaml"), "/etc/contract-cosi-driver/token", token, 1)
	if _, err := config.Parse([]byte(shown)); err != nil {
		t.Error(err)
	}
}

func TestParameterTable(t *testing.T) {
	t.Parallel()
	_, text := readme(t)
	for _, class := range []params.Class{params.BucketClass, params.BucketAccessClass} {
		var want []string
		for _, p := range params.Table() {
			if p.Class == class {
				want = append(want, "`"+p.Name+"`")
			}
		}
		if !strings.Contains(text, "| "+string(class)+" | "+strings.Join(want, ", ")+" |") {
			t.Errorf("README.md does not list the parameters of %s: %s", class, strings.Join(want, ", "))
		}
	}
}

// Every make target that README.md names is one that make help lists.
func TestTargets(t *testing.T) {
	t.Parallel()
	root, text := readme(t)
	cmd := exec.CommandContext(t.Context(), "make", "help")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, m := range regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)").FindAllStringSubmatch(text, -1) {
		named = append(named, m[1])
	}
	if !slices.Contains(named, "demo") || !slices.Contains(named, "test") {
		t.Errorf("README.md names only %v", named)
	}
	for _, target := range named {
		if !strings.Contains(string(out), "make "+target+" ") {
			t.Errorf("make %s is not in make help:\n%s", target, out)
		}
	}
}
