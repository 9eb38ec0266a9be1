package main

//go:generate go test . -run TestREADMEListsTheChecks -update

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/internal/fake"
	"github.com/contract-cosi/contract-cosi-driver/cmd/cosi-sanity/sanity"
)

var update = flag.Bool("update", false, "write the generated part of README.md")

func TestREADMEListsTheChecks(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const from, to = "<!-- checks -->\n", "<!-- /checks -->"
	head, rest, ok := strings.Cut(string(text), from)
	_, tail, closed := strings.Cut(rest, to)
	if !ok || !closed {
		t.Fatal("README.md has lost the marks around the checks")
	}
	var list bytes.Buffer
	if err := sanity.WriteMarkdown(&list); err != nil {
		t.Fatal(err)
	}
	want := head + from + list.String() + to + tail
	if *update {
		if err := os.WriteFile("README.md", []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Error("README.md is stale; run make generate")
	}
}

// The configuration that README.md shows is one that is read.
func TestREADMEShowsAConfiguration(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n```yaml\n")
	block, _, ok := strings.Cut(rest, "```")
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(block), 0o600); err != nil || !ok {
		t.Fatal(ok, err)
	}
	var c sanity.Config
	if err := c.Load(file); err != nil {
		t.Fatal(err)
	}
	c.S3.CAFile = "" // there is none
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

// serve runs a driver of v1alpha1; without a fault it needs a parameter.
func serve(t *testing.T, faults ...fake.Fault) (endpoint string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if len(faults) == 0 {
		faults = []fake.Fault{fake.NeedsParameters}
	}
	d, stop, err := fake.Start(dir, []string{"v1alpha1"}, faults...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return d.Endpoint
}

// A test may link the suite beside any other package of COSI's messages: none of
// its names is one of theirs, and upstream's v1alpha1 is linked here.
func TestMessagesHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	_ = cosiproto.DriverGetInfoRequest{}
	ours := 0
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(f.Path(), "cosi_sanity/") {
			ours++
			if !strings.HasPrefix(string(f.Package()), "cosi_sanity.") {
				t.Errorf("%s has package %s", f.Path(), f.Package())
			}
		}
		return true
	})
	if ours != 2 {
		t.Errorf("%d files of the suite's, want 2", ours)
	}
}

// The module of the suite needs nothing of the driver's.
func TestModuleStandsAlone(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "contract-cosi-driver ") || strings.Contains(string(text), "replace") {
		t.Errorf("go.mod needs the driver:\n%s", text)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	endpoint := serve(t)
	broken, unsteady := serve(t, fake.NoBucketID), serve(t, fake.ChangingMessage)
	known := filepath.Join(t.TempDir(), "known.json")
	var report bytes.Buffer
	if status, err := run(t.Context(), []string{"--endpoint", broken, "--run", "B01", "-o", "json"}, &report, io.Discard); status != failed {
		t.Fatal(status, err)
	}
	if err := os.WriteFile(known, report.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("endpoint: "+broken+"\nrun: [B01]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(wrong, []byte("endpint: "+endpoint+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args   []string
		status int
		says   string // in what is printed, or in the error
	}{
		"a check passes":            {[]string{"--endpoint", endpoint, "--run", "i"}, passed, "I01  pass"},
		"a check fails":             {[]string{"--endpoint", broken, "--run", "I01,b01"}, failed, "FAIL B01 create answers a bucket_id"},
		"a check is skipped":        {[]string{"--endpoint", broken, "--run", "I,B01", "--skip", "create answers a bucket_id"}, passed, "B01: skipped by the user"},
		"by the file":               {[]string{"--config", file}, failed, "FAIL B01"},
		"a flag overrides the file": {[]string{"--config", file, "--run", "I01"}, passed, "I01  pass"},
		"set-up":                    {[]string{"--endpoint", endpoint, "--run", "B01"}, noVerdict, "SET-UP S01 a bucket can be made"},
		"set-up, with a hint":       {[]string{"--endpoint", endpoint}, noVerdict, "--bucket-parameter key=value"},
		"a SHOULD":                  {[]string{"--endpoint", unsteady, "--run", "G07,F01", "--strict"}, failed, "FAIL G07"},
		"a warning":                 {[]string{"--endpoint", unsteady, "--run", "G07,F01"}, passed, "WARN G07"},
		"a badge":                   {[]string{"--endpoint", endpoint, "--run", "I", "-o", "badge"}, passed, "**COSI v1alpha1**: conformant"},
		"a known finding":           {[]string{"--endpoint", broken, "--run", "B01", "--baseline", known}, passed, "FAIL, KNOWN B01"},
		"no baseline":               {[]string{"--endpoint", broken, "--baseline", wrong}, noVerdict, "not a report in JSON"},
		"the version":               {[]string{"--version"}, passed, "cosi-sanity "},
		"no callers":                {[]string{"--endpoint", endpoint, "--concurrency", "0"}, noVerdict, "not a whole number of 2 or more"},
		"not a number":              {[]string{"--endpoint", endpoint, "--repeat", "often"}, noVerdict, "not a whole number of 2 or more"},
		"no time":                   {[]string{"--endpoint", endpoint, "--settle", "0"}, noVerdict, "not a time of more than nothing"},
		"a generation unheard of":   {[]string{"--endpoint", endpoint, "--generation", "D"}, noVerdict, `generations: "D" is none of`},
		"the list":                  {[]string{"--list"}, passed, "K: keys: what an issued key can do"},
		"the sentences":             {[]string{"--spec"}, passed, "v1alpha2 sidecar-safety"},
		"help":                      {[]string{"--help"}, passed, "-other-bucket-parameter"},
		"no endpoint":               {nil, noVerdict, "is not unix:///absolute/path.sock"},
		"no driver":                 {[]string{"--endpoint", endpoint + "x"}, noVerdict, "no driver answers"},
		"a version not served":      {[]string{"--endpoint", endpoint, "--cosi-version", "v1alpha2"}, noVerdict, "v1alpha2 is not served"},
		"a version unheard of":      {[]string{"--endpoint", endpoint, "--cosi-version", "v2"}, noVerdict, `"v2" is none of`},
		"an unknown check":          {[]string{"--endpoint", endpoint, "--skip", "Z99"}, noVerdict, `no check is called "Z99"`},
		"an unknown key":            {[]string{"--config", wrong}, noVerdict, "endpint"},
		"no file":                   {[]string{"--config", wrong + "x"}, noVerdict, "no such file"},
		"an unknown flag":           {[]string{"--endpint", endpoint}, noVerdict, "-endpint"},
		"an argument":               {[]string{endpoint}, noVerdict, "unexpected argument"},
		"an unknown output":         {[]string{"--endpoint", endpoint, "-o", "html"}, noVerdict, "-o"},
		"not key=value":             {[]string{"--endpoint", endpoint, "--bucket-parameter", "x"}, noVerdict, "not key=value"},
		"no CA":                     {[]string{"--endpoint", endpoint, "--s3-ca", file}, noVerdict, "holds no PEM certificate"},
		"no URL":                    {[]string{"--endpoint", endpoint, "--s3-endpoint", "localhost:9000"}, noVerdict, "s3.endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			status, err := run(t.Context(), c.args, &stdout, &stderr)
			said := stdout.String() + stderr.String()
			if err != nil {
				said += err.Error()
			}
			if status != c.status || !strings.Contains(said, c.says) {
				t.Errorf("status %d, want %d; it has to say %q:\n%s", status, c.status, c.says, said)
			}
			if (err != nil) != (status == noVerdict) {
				t.Errorf("status %d with %v", status, err)
			}
		})
	}
}

func TestOutputs(t *testing.T) {
	t.Parallel()
	endpoint := serve(t, fake.CreateAnything)
	parameters := []string{"--bucket-parameter", "class=one", "--other-bucket-parameter", "class=two"}
	printed := func(output string) []byte {
		var stdout bytes.Buffer
		args := append([]string{"--endpoint", endpoint, "--run", "I01,B05,K01", "-o", output}, parameters...)
		if status, err := run(t.Context(), args, &stdout, io.Discard); status != failed {
			t.Fatal(status, err)
		}
		return stdout.Bytes()
	}

	var report struct {
		Results []struct{ Version, Number, Level, Sentence, Source, Verdict, Message string }
	}
	text := printed("json")
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	matchesSchema(t, text)
	verdicts := map[string]int{}
	for _, r := range report.Results {
		verdicts[r.Verdict]++
		if r.Version != "v1alpha1" || r.Level == "" || r.Sentence == "" || r.Source == "" || (r.Message == "") != (r.Verdict == "pass") {
			t.Errorf("%+v", r)
		}
	}
	if verdicts["fail"] != 1 || verdicts["not run"] != 2 || verdicts["pass"] != len(report.Results)-3 {
		t.Errorf("verdicts %v", verdicts)
	}

	var junit struct {
		Suites []struct {
			Name  string `xml:"name,attr"`
			Cases []struct {
				Name    string `xml:"name,attr"`
				Failure *struct {
					Message string `xml:"message,attr"`
				} `xml:"failure"`
				Skipped *struct{} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	text = printed("junit")
	if err := xml.Unmarshal(text, &junit); err != nil {
		t.Fatal(err)
	}
	if len(junit.Suites) != 1 || junit.Suites[0].Name != "cosi-sanity.v1alpha1" || len(junit.Suites[0].Cases) != len(report.Results) {
		t.Fatalf("%s", text)
	}
	for _, c := range junit.Suites[0].Cases {
		number, _, _ := strings.Cut(c.Name, " ")
		if (c.Failure != nil) != (number == "B05") || (c.Skipped != nil) != (number == "K01" || number == "S03") {
			t.Errorf("%+v", c)
		}
	}
	if !strings.Contains(string(text), `tests="`+strconv.Itoa(len(report.Results))+`" failures="1"`) {
		t.Errorf("the suite's counts are wrong:\n%.300s", text)
	}
}

// matchesSchema holds a report to report.schema.json: no field that it does not
// have, every field that it demands, and its enums.
func matchesSchema(t *testing.T, text []byte) {
	t.Helper()
	type node struct {
		Type                 string
		Required             []string
		Properties           map[string]*node
		Items                *node
		Enum                 []string
		AdditionalProperties *bool
	}
	schema, err := os.ReadFile("report.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root node
	var value any
	if err := errors.Join(json.Unmarshal(schema, &root), json.Unmarshal(text, &value)); err != nil {
		t.Fatal(err)
	}
	var check func(path string, n *node, v any)
	check = func(path string, n *node, v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range n.Required {
				if _, ok := v[name]; !ok {
					t.Errorf("%s has no %s", path, name)
				}
			}
			for name, field := range v {
				if n.Properties[name] == nil {
					t.Errorf("%s.%s is not in the schema", path, name)
					continue
				}
				check(path+"."+name, n.Properties[name], field)
			}
		case []any:
			for _, item := range v {
				check(path+"[]", n.Items, item)
			}
		case string:
			if n.Type != "string" || len(n.Enum) > 0 && !slices.Contains(n.Enum, v) {
				t.Errorf("%s is %q, which the schema does not allow", path, v)
			}
		case float64:
			if n.Type != "integer" {
				t.Errorf("%s is a number, and the schema wants %s", path, n.Type)
			}
		case bool:
			if n.Type != "boolean" {
				t.Errorf("%s is a boolean, and the schema wants %s", path, n.Type)
			}
		}
	}
	check("report", &root, value)
}
