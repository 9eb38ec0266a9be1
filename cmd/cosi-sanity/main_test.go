package main

//go:generate go test . -run TestREADMEListsTheChecks -update

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/pkg/sanity"
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

// identity is a driver of v1alpha1 that tells its name and can do nothing.
type identity struct{}

func (identity) DriverGetInfo(context.Context, *cosiproto.DriverGetInfoRequest) (*cosiproto.DriverGetInfoResponse, error) {
	return &cosiproto.DriverGetInfoResponse{Name: "nothing.example.com"}, nil
}

func start(t *testing.T) (endpoint string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // a socket's path has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listener, err := net.Listen("unix", filepath.Join(dir, "cosi.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	cosiproto.RegisterIdentityServer(server, identity{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "unix://" + listener.Addr().String()
}

func TestRun(t *testing.T) {
	t.Parallel()
	endpoint := start(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("endpoint: "+endpoint+"\nrun: [B01]\n"), 0o600); err != nil {
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
		"a check fails":             {[]string{"--endpoint", endpoint, "--run", "I01,b01"}, failed, "FAIL B01 create answers a bucket_id"},
		"a check is skipped":        {[]string{"--endpoint", endpoint, "--run", "I,B01", "--skip", "create answers a bucket_id"}, passed, "B01: skipped by the user"},
		"by the file":               {[]string{"--config", file}, failed, "FAIL B01"},
		"a flag overrides the file": {[]string{"--config", file, "--run", "I01"}, passed, "I01  pass"},
		"a SHOULD":                  {[]string{"--endpoint", endpoint, "--run", "B07", "--strict"}, failed, "FAIL B07"},
		"a warning":                 {[]string{"--endpoint", endpoint, "--run", "B07"}, passed, "WARN B07"},
		"the list":                  {[]string{"--list"}, passed, "v1alpha2 sidecar-safety"},
		"help":                      {[]string{"--help"}, passed, "-other-bucket-parameter"},
		"no endpoint":               {nil, noVerdict, "is not unix:///absolute/path.sock"},
		"nobody there":              {[]string{"--endpoint", endpoint + "x"}, noVerdict, "no driver answers"},
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
	endpoint := start(t)
	printed := func(output string) []byte {
		var stdout bytes.Buffer
		if status, err := run(t.Context(), []string{"--endpoint", endpoint, "--run", "I01,B01,B07", "-o", output}, &stdout, io.Discard); status != failed {
			t.Fatal(status, err)
		}
		return stdout.Bytes()
	}

	var report struct {
		Versions []string
		Results  []struct{ Version, Number, Level, Sentence, Source, Verdict, Message string }
	}
	if err := json.Unmarshal(printed("json"), &report); err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]int{}
	for _, r := range report.Results {
		verdicts[r.Verdict]++
		if r.Version != "v1alpha1" || r.Level == "" || r.Sentence == "" || r.Source == "" || (r.Message == "") != (r.Verdict == "pass") {
			t.Errorf("%+v", r)
		}
	}
	if verdicts["pass"] != 1 || verdicts["fail"] != 1 || verdicts["warn"] != 1 || verdicts["not run"] != len(report.Results)-3 {
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
				Output  string    `xml:"system-out"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	text := printed("junit")
	if err := xml.Unmarshal(text, &junit); err != nil {
		t.Fatal(err)
	}
	if len(junit.Suites) != 1 || junit.Suites[0].Name != "cosi-sanity.v1alpha1" || len(junit.Suites[0].Cases) != len(report.Results) {
		t.Fatalf("%s", text)
	}
	for _, c := range junit.Suites[0].Cases {
		number, _, _ := strings.Cut(c.Name, " ")
		if (c.Failure != nil) != (number == "B01") || (c.Output != "") != (number == "B07") || (c.Skipped == nil) != (number == "I01" || number == "B01" || number == "B07") {
			t.Errorf("%+v", c)
		}
	}
	if !strings.Contains(string(text), `tests="`+strconv.Itoa(len(report.Results))+`" failures="1"`) {
		t.Errorf("the suite's counts are wrong:\n%.300s", text)
	}
}
