package deploy

import (
	"bytes"
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// dockerfile is the parsed Dockerfile; the builder's own linter has nothing to
// say of it.
func dockerfile(t *testing.T) ([]instructions.Stage, []instructions.ArgCommand) {
	t.Helper()
	text, err := os.ReadFile(root + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range parsed.Warnings {
		t.Errorf("Dockerfile: %s", w.Short)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, description, _, message string, at []parser.Range) {
		t.Errorf("Dockerfile line %v: %s: %s (%s)", at, rule, message, description)
	}})
	stages, arguments, err := instructions.Parse(parsed.AST, lint)
	if err != nil {
		t.Fatal(err)
	}
	return stages, arguments
}

func TestDockerfile(t *testing.T) {
	t.Parallel()
	stages, arguments := dockerfile(t)
	defaults := map[string]string{}
	for _, a := range arguments {
		for _, arg := range a.Args {
			if arg.Value == nil || !regexp.MustCompile(`^[a-z0-9.]+/.+:[a-z0-9.-]+$`).MatchString(*arg.Value) || strings.HasSuffix(*arg.Value, ":latest") {
				t.Errorf("ARG %s has no default with a registry and a version", arg.Key)
				continue
			}
			defaults[arg.Key] = *arg.Value
		}
	}
	if len(defaults) != 2 || defaults["BUILD_IMAGE"] == "" || defaults["BASE_IMAGE"] == "" {
		t.Errorf("the base images are %v, want BUILD_IMAGE and BASE_IMAGE", defaults)
	}
	gomod, err := os.ReadFile(root + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	wanted := regexp.MustCompile(`(?m)^go (1\.\d+)`).FindSubmatch(gomod)[1]
	if !strings.HasSuffix(defaults["BUILD_IMAGE"], ":"+string(wanted)) {
		t.Errorf("BUILD_IMAGE is %s, and go.mod wants Go %s", defaults["BUILD_IMAGE"], wanted)
	}
	named := map[string]bool{}
	var targets []string
	for _, s := range stages {
		if !named[s.BaseName] && s.BaseName != "${BUILD_IMAGE}" && s.BaseName != "${BASE_IMAGE}" {
			t.Errorf("stage %s builds on %s, which is no argument", s.Name, s.BaseName)
		}
		named[s.Name] = true
		for _, c := range s.Commands {
			checkCommand(t, s, c)
		}
		if s.BaseName == "${BASE_IMAGE}" {
			targets = append(targets, s.Name)
			checkTarget(t, s)
		}
	}
	if strings.Join(targets, " ") != "contractd driver" {
		t.Errorf("targets are %v, want contractd and, as the default, driver", targets)
	}
}

func checkCommand(t *testing.T, s instructions.Stage, c instructions.Command) {
	switch c := c.(type) {
	case *instructions.AddCommand:
		t.Errorf("stage %s: ADD fetches and unpacks; COPY does not", s.Name)
	case *instructions.CopyCommand:
		for _, path := range c.SourcePaths {
			if _, err := os.Stat(filepath.Join(root, path)); c.From == "" && err != nil {
				t.Errorf("stage %s copies %s: %v", s.Name, path, err)
			}
			if c.From == "" && path == "." {
				t.Errorf("stage %s copies everything", s.Name)
			}
		}
	case *instructions.RunCommand:
		if line := strings.Join(c.CmdLine, " "); strings.Contains(line, "go build") && !strings.Contains(line, "-buildid=") {
			t.Errorf("stage %s: %q is not reproducible", s.Name, line)
		}
	case *instructions.EnvCommand:
		env := c.String()
		for _, want := range []string{"CGO_ENABLED=0", "-trimpath", "-buildvcs=false"} {
			if !strings.Contains(env, want) {
				t.Errorf("stage %s: %s lacks %s", s.Name, env, want)
			}
		}
	}
}

// checkTarget: an image runs one program without rights, and is only copied into.
func checkTarget(t *testing.T, s instructions.Stage) {
	var user, entrypoint, license string
	for _, c := range s.Commands {
		switch c := c.(type) {
		case *instructions.RunCommand:
			t.Errorf("target %s runs %v; its base has no shell", s.Name, c.CmdLine)
		case *instructions.LabelCommand:
			license = strings.Trim(c.Labels[0].Value, `"`)
		case *instructions.UserCommand:
			user = c.User
		case *instructions.EntrypointCommand:
			if c.PrependShell || len(c.CmdLine) != 1 {
				t.Errorf("target %s starts %v", s.Name, c.CmdLine)
			}
			entrypoint = c.CmdLine[0]
		}
	}
	if user != "65532:65532" || entrypoint == "" {
		t.Errorf("target %s runs %q as %q", s.Name, entrypoint, user)
	}
	if license != "Apache-2.0" {
		t.Errorf("target %s is under license %q", s.Name, license)
	}
}

// What the Dockerfile copies is enough for what it runs: both programs compile
// with its own lines for the platforms that images are made for, are static,
// and come out the same in another directory.
func TestPlatforms(t *testing.T) {
	stages, _ := dockerfile(t)
	for _, s := range stages {
		if s.BaseName != "build" {
			continue
		}
		for _, arch := range []string{"amd64", "arm64"} {
			first, again := compileStage(t, s, arch), compileStage(t, s, arch)
			static(t, first, arch)
			one, err := os.ReadFile(first)
			if err != nil {
				t.Fatal(err)
			}
			two, err := os.ReadFile(again)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(one, two) {
				t.Errorf("%s for %s depends on the directory that it is compiled in", filepath.Base(first), arch)
			}
			if arch == runtime.GOARCH && s.Name == "build-driver" {
				out, err := exec.CommandContext(t.Context(), first, "version").Output()
				if err != nil || !strings.HasPrefix(string(out), "v1.2.3 ") {
					t.Errorf("version says %q, %v", out, err)
				}
			}
		}
	}
}

// compileStage does in a directory of its own what a stage does, and returns
// the program.
func compileStage(t *testing.T, s instructions.Stage, arch string) string {
	t.Helper()
	image := t.TempDir()
	workdir := filepath.Join(image, "src")
	expand := strings.NewReplacer("${TARGETOS}", "linux", "${TARGETARCH}", arch, "${VERSION}", "v1.2.3", "/out/", image+"/out/")
	for _, c := range s.Commands {
		switch c := c.(type) {
		case *instructions.WorkdirCommand:
			workdir = filepath.Join(image, c.Path)
		case *instructions.CopyCommand:
			for _, path := range c.SourcePaths {
				to := filepath.Join(workdir, c.DestPath)
				if strings.HasSuffix(c.DestPath, "./") && len(c.SourcePaths) > 1 {
					to = filepath.Join(to, filepath.Base(path))
				}
				copyTree(t, filepath.Join(root, path), to)
			}
		case *instructions.RunCommand:
			cmd := exec.CommandContext(t.Context(), "sh", "-c", expand.Replace(strings.Join(c.CmdLine, " ")))
			cmd.Dir = workdir
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -buildvcs=false", "GOWORK=off")
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("stage %s for %s: %v\n%s", s.Name, arch, err, text)
			}
		}
	}
	programs, err := filepath.Glob(image + "/out/*")
	if err != nil || len(programs) != 1 {
		t.Fatalf("stage %s makes %v, %v", s.Name, programs, err)
	}
	return programs[0]
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at := filepath.Join(to, strings.TrimPrefix(path, from))
		return errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, text, 0o644))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// make image takes the first builder that works, and says so if there is none.
func TestImage(t *testing.T) {
	t.Parallel()
	const refuses, works = "exit 1", `echo "$(basename "$0") $*"`
	for name, c := range map[string]struct {
		builders map[string]string
		says     []string
	}{
		"none":                  {nil, []string{"no builder works here"}},
		"docker is not started": {map[string]string{"docker": refuses}, []string{"no builder works here"}},
		"docker":                {map[string]string{"docker": works, "podman": works}, []string{"docker buildx build --load", "--target driver --tag contract-cosi-driver:v9 .", "--target contractd --tag contractd:v9 ."}},
		"podman":                {map[string]string{"docker": refuses, "podman": works}, []string{"podman build --build-arg VERSION=v9 --build-arg BASE_IMAGE=mirror/static:1 --target driver"}},
		"buildah":               {map[string]string{"buildah": works}, []string{"buildah build", "--target contractd"}},
	} {
		path := t.TempDir()
		for _, tool := range []string{"bash", "dirname", "basename", "sed"} {
			at, err := exec.LookPath(tool)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(at, filepath.Join(path, tool)); err != nil {
				t.Fatal(err)
			}
		}
		for builder, script := range c.builders {
			if err := os.WriteFile(filepath.Join(path, builder), []byte("#!"+path+"/bash\n"+script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(path, "bash"), root+"/deploy/image.sh")
		cmd.Env = []string{"PATH=" + path, "TAG=v9", "BASE_IMAGE=mirror/static:1"}
		out, err := cmd.CombinedOutput()
		if (err != nil) != (c.says[0] == "no builder works here") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		for _, want := range c.says {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: %q is not in\n%s", name, want, out)
			}
		}
	}
}

// static checks that a program is for a machine and needs no loader.
func static(t *testing.T, path, goarch string) {
	t.Helper()
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = program.Close() }()
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if program.Machine != machines[goarch] {
		t.Errorf("%s is for %s, want %s", path, program.Machine, goarch)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s is not static", path)
		}
	}
}
