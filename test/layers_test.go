// Package test holds what is tested across all packages.
package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/contract-cosi/contract-cosi-driver/"

// levels is the house: a package may import only what stands on a lower level.
// A new package has to be given its place here before anything is built on it.
var levels = map[string]int{
	"pkg/fault":                             0,
	"pkg/secret":                            0,
	"pkg/contract/contractapi/internal/api": 0, // generated; it knows nothing of the driver
	"pkg/cosipb/v1alpha2":                   0, // generated too
	"pkg/apis/v1alpha1":                     0,
	"pkg/apis/client":                       1,
	"pkg/reload":                            0,

	"pkg/cosi":        1,
	"pkg/transport":   1,
	"pkg/retry":       1,
	"pkg/lock":        1,
	"pkg/settings":    1,
	"pkg/server/code": 1,

	"pkg/kube":         2,
	"pkg/kube/objects": 3,

	"pkg/policy": 2, // policies say what the modes mean

	"pkg/params":          3,
	"pkg/contract":        3,
	"pkg/contract/signed": 3,

	"pkg/config":               4, // which holds what contracts let classes say, and the settings of providers
	"pkg/journal":              4, // a record keeps the parameters it was made with
	"pkg/lease":                4, // stands beside the journal in Secrets
	"pkg/bucket":               4,
	"pkg/contract/contractapi": 4,
	"pkg/contract/versitygw":   4,
	"pkg/contract/iam":         4,
	"pkg/contract/memory":      4,

	"pkg/journal/filestore":     5,
	"pkg/journal/secrets":       5,
	"pkg/journal/journaltest":   5,
	"pkg/keys":                  5,
	"pkg/contract/rgw":          5, // an account is pkg/contract/iam's
	"pkg/contract/contracttest": 5, // it makes buckets as the driver does

	"pkg/site":           6,
	"pkg/contract/trial": 6,

	"pkg/provisioner": 7,

	"pkg/server":          8,
	"pkg/server/v1alpha1": 8,
	"pkg/server/v1alpha2": 8,
	"pkg/metrics":         8,
	"pkg/tracing":         8,
	"pkg/events":          8,
	"pkg/delivery":        8,
	"pkg/contracts":       8,
	"pkg/drift":           8,
	"pkg/admin":           8,

	"pkg/driver": 9,

	"cmd/contract-cosi-driver": 10,
	"cmd/contract-conformance": 10,
}

// reserved are imports that only some packages may have. A prefix ends where a
// path element ends.
var reserved = []struct {
	why     string
	imports []string
	allowed func(path string) bool
}{
	{
		why:     "gRPC codes exist in the server and the commands only",
		imports: []string{"google.golang.org/grpc/codes", "google.golang.org/grpc/status"},
		allowed: func(path string) bool {
			return under(path, "pkg/server") || under(path, "pkg/cosipb") || under(path, "cmd")
		},
	},
	{
		why:     "SDK types exist in the bucket engine and the providers only",
		imports: []string{"github.com/aws"},
		// A provider is a package below pkg/contract; the seam itself is none.
		allowed: func(path string) bool {
			return under(path, "pkg/bucket") || strings.HasPrefix(path, "pkg/contract/")
		},
	},
	{
		why:     "Kubernetes is known to one journal, to the Lease beside it, to the Events of claims, to the Secrets of accesses and to the contracts that are ordered in it only",
		imports: []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
		allowed: func(path string) bool {
			return under(path, "pkg/kube") || under(path, "pkg/journal/secrets") || under(path, "pkg/lease") || under(path, "pkg/events") ||
				under(path, "pkg/apis") || under(path, "pkg/delivery") || under(path, "pkg/contracts")
		},
	},
}

// goPackage is what is needed of the go command's answer.
type goPackage struct {
	ImportPath string
	Imports    []string
}

func TestImportsPointDownwards(t *testing.T) {
	t.Parallel()
	packages := list(t)
	for _, fault := range violations(packages) {
		t.Error(fault)
	}
	// A name left behind in the table would hide that a package has moved.
	for path := range levels {
		if !slices.ContainsFunc(packages, func(p goPackage) bool { return p.ImportPath == module+path }) {
			t.Errorf("%s is in the table of levels and not in the module", path)
		}
	}
}

// The path of a grant, as pkg/README.md draws it, is the imports' path: down, each
// step from one that is above it. A provider stands below what calls it by the
// interface that it implements.
func TestPathOfAGrant(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../pkg/README.md")
	if err != nil {
		t.Fatal(err)
	}
	imports := map[string][]string{}
	for _, p := range list(t) {
		imports[strings.TrimPrefix(p.ImportPath, module)] = p.Imports
	}
	_, section, _ := strings.Cut(string(text), "## The path of a grant")
	var above []string
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "pkg/") {
			continue
		}
		path, _, _ := strings.Cut(line, " ")
		calls := func(p string) bool { return slices.Contains(imports[p], module+path) }
		implements := strings.HasPrefix(path, "pkg/contract/") && slices.Contains(imports[path], module+above[len(above)-1])
		if len(above) > 0 && !implements && (!slices.ContainsFunc(above, calls) || levels[path] >= levels[above[len(above)-1]]) {
			t.Errorf("%s is drawn below %s, and is not imported from there", path, above[len(above)-1])
		}
		above = append(above, path)
	}
	if n := len(above); n < 6 || above[n-1] != "pkg/transport" {
		t.Errorf("the path is %v", above)
	}
}

// A check that finds nothing is worth something only if it can find something.
func TestViolationsAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path, imports string
		found         string // part of the text; "" is no fault
	}{
		"upwards":                   {"pkg/journal", module + "pkg/provisioner", "imports pkg/provisioner"},
		"sideways":                  {"pkg/fault", module + "pkg/secret", "imports pkg/secret"},
		"downwards":                 {"pkg/journal", module + "pkg/fault", ""},
		"not in the table":          {"pkg/new", "fmt", "no level"},
		"imports one without":       {"pkg/driver", module + "pkg/new", "no level"},
		"imports the tests":         {"pkg/driver", module + "test/harness", "no level"},
		"outside the house":         {"test/demo", module + "pkg/driver", ""},
		"another command":           {"cmd/other", module + "pkg/driver", ""},
		"codes in the server":       {"pkg/server/v1alpha1", "google.golang.org/grpc/codes", ""},
		"status in the command":     {"cmd/contract-cosi-driver", "google.golang.org/grpc/status", ""},
		"codes in the use cases":    {"pkg/provisioner", "google.golang.org/grpc/codes", "gRPC codes"},
		"status in the driver":      {"pkg/driver", "google.golang.org/grpc/status", "gRPC codes"},
		"SDK in the engine":         {"pkg/bucket", "github.com/aws/aws-sdk-go-v2/service/s3", ""},
		"SDK in a provider":         {"pkg/contract/contractapi", "github.com/aws/smithy-go", ""},
		"SDK at the seam":           {"pkg/contract", "github.com/aws/aws-sdk-go-v2/aws", "SDK types"},
		"SDK in the use cases":      {"pkg/provisioner", "github.com/aws/smithy-go", "SDK types"},
		"an import of like name":    {"pkg/provisioner", "google.golang.org/grpc/statuspage", ""},
		"a package of like name":    {"cmd/contract-cosi-driver", "fmt", ""},
		"level of like name only":   {"pkg/serverless", "fmt", "no level"},
		"Kubernetes in the journal": {"pkg/journal/secrets", "k8s.io/client-go/rest", ""},
		"Kubernetes in the Lease":   {"pkg/lease", "k8s.io/api/coordination/v1", ""},
		"Kubernetes elsewhere":      {"pkg/driver", "k8s.io/client-go/rest", "Kubernetes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := violations([]goPackage{{ImportPath: module + c.path, Imports: []string{c.imports}}})
			switch {
			case c.found == "" && len(got) > 0:
				t.Errorf("found %q, want nothing", got)
			case c.found != "" && (len(got) != 1 || !strings.Contains(got[0], c.found)):
				t.Errorf("found %q, want one that says %q", got, c.found)
			}
		})
	}
}

// violations names every import that the tables forbid.
func violations(packages []goPackage) []string {
	var found []string
	for _, p := range packages {
		path := strings.TrimPrefix(p.ImportPath, module)
		if !under(path, "pkg") && !under(path, "cmd/contract-cosi-driver") {
			continue
		}
		level, known := levels[path]
		if !known {
			found = append(found, path+" has no level; give it its place in the table of levels")
		}
		for _, imported := range p.Imports {
			for _, r := range reserved {
				if !r.allowed(path) && slices.ContainsFunc(r.imports, func(prefix string) bool { return under(imported, prefix) }) {
					found = append(found, fmt.Sprintf("%s imports %s: %s", path, imported, r.why))
				}
			}
			ours, ok := strings.CutPrefix(imported, module)
			if !ok || !known {
				continue
			}
			switch below, ok := levels[ours]; {
			case !ok:
				found = append(found, fmt.Sprintf("%s imports %s, which has no level", path, ours))
			case below >= level:
				found = append(found, fmt.Sprintf("%s (level %d) imports %s (level %d): imports point downwards only", path, level, ours, below))
			}
		}
	}
	return found
}

// under reports whether path is root or something below it.
func under(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// list asks the go command for the module's packages and their imports, those
// of test files left out.
func list(t *testing.T) []goPackage {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...")
	command.Dir = ".."
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}
