package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/test/guide"
	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// Each block of README.md and the pages below deploy is executed by a test, and the
// table names no block that is gone. What is executed in other modules is proved
// there: make node fails if it has left out a line that is its own.
func TestBlocks(t *testing.T) {
	t.Parallel()
	root, err := harness.Root()
	must(t, err)
	blocks, err := guide.Read(root)
	must(t, err)
	lines := ""
	for _, b := range blocks {
		if b.By() == "" {
			t.Errorf("no test executes %s; say in test/guide which does", b)
		}
		lines += "\n" + strings.Join(b.Commands(), "\n")
	}
	for _, e := range guide.Table {
		if !slices.ContainsFunc(blocks, e.Covers) {
			t.Errorf("no page has a block of %q", e)
		}
	}
	for line := range guide.Elsewhere {
		if !strings.Contains(lines, "\n"+line) {
			t.Errorf("no page has the line %q", line)
		}
	}
	steps, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	must(t, err)
	inCI, err := guide.Of(root, guide.CI)
	must(t, err)
	for _, b := range inCI {
		for _, line := range b.Commands() {
			if !strings.Contains(string(steps), " "+line+"\n") {
				t.Errorf("%s: .ci/run has no step %q", b, line)
			}
		}
	}
}

// The commands of the program are run, with files of this machine.
func TestProgram(t *testing.T) {
	t.Parallel()
	root, err := harness.Root()
	must(t, err)
	blocks, err := guide.Of(root, guide.Commands)
	must(t, err)
	dir, err := os.MkdirTemp("", "p") // a socket's path has to be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b, err := harness.Build(t.Context(), dir, false)
	must(t, err)
	service, err := harness.StartContractd(t.Context(), b, dir)
	must(t, err)
	t.Cleanup(service.Kill)
	// Two drivers of one owner, of which old has a bucket to export.
	for _, name := range []string{"old", "new", "config"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		text := harness.ConfigText(filepath.Join(dir, name), service.API, service.TokenFile, "contracts:\n  - {name: team-blue, backend: main}\n")
		must(t, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600))
	}
	program := filepath.Join(dir, "path")
	must(t, os.Mkdir(program, 0o700))
	must(t, os.Symlink(b.Driver, filepath.Join(program, "contract-cosi-driver")))
	for _, block := range blocks {
		run := exec.CommandContext(t.Context(), "bash", "-eux", "-o", "pipefail", "-c", strings.ReplaceAll(block.Text, "/etc/contract-cosi-driver/", dir+"/"))
		run.Dir = dir
		run.Env = append(os.Environ(), "PATH="+program+":"+os.Getenv("PATH"))
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", block, err, out)
		}
	}
	for _, file := range []string{"journal.key", "journal.export"} {
		if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
}
