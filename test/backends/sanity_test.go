package backends

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
)

// A run of cosi-sanity ends with the service as it was before: when it gets
// a SIGINT, and when the driver is killed and restarted under it. (harness.Sanity's
// callers show it for a whole run, by the driver's journal.)
func TestSanityLeavesTheServiceAsItWas(t *testing.T) {
	t.Parallel()
	eachStorage(t, func(t *testing.T, shared *harness.Storage) {
		dir, err := os.MkdirTemp("", "c") // a socket's path has to be short
		must(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		suite, err := harness.BuildIn(t.Context(), dir, "cmd/cosi-sanity")
		must(t, err)
		driver, err := harness.BuildIn(t.Context(), dir, "cmd/contract-cosi-driver")
		must(t, err)
		s := shared
		if s.Type != "rgw" { // one that no other test uses; a gateway's users are told apart by their tenant
			s, err = harness.StartStorage(t.Context(), s.Type, dir)
			must(t, err)
			t.Cleanup(s.Kill)
		}
		contract := label("t")
		before := inventory(t, s, dir, contract)
		const middle = 60 // of some hundreds of the driver's calls
		for _, at := range []int{7, middle, 200} {
			t.Run(fmt.Sprint("interrupted at call ", at), func(t *testing.T) {
				w := watched(t, s, driver)
				if status := w.judge(suite, contract, at, func(p *os.Process) { must(t, p.Signal(syscall.SIGINT)) }); status != 2 {
					t.Errorf("the exit status after a SIGINT is %d, want 2: no verdict", status)
				}
				w.end()
				same(t, before, inventory(t, s, dir, contract))
			})
		}
		t.Run("driver killed", func(t *testing.T) {
			w := watched(t, s, driver)
			w.judge(suite, contract, middle, func(*os.Process) { w.restart() })
			w.end()
			same(t, before, inventory(t, s, dir, contract))
		})
	})
}

// supervised is a driver of its own process, whose administration goes over a line.
type supervised struct {
	*testing.T
	program, dir, file string
	line               *harness.Line
	driver             *harness.Driver
}

func watched(t *testing.T, s *harness.Storage, program string) *supervised {
	t.Helper()
	dir, err := os.MkdirTemp("", "c")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &supervised{T: t, program: program, dir: dir, file: filepath.Join(dir, "config.yaml"), line: &harness.Line{}}
	storage := w.line.Proxy(t, s.S3, "", "")
	must(t, os.WriteFile(w.file, []byte(s.Config(dir, w.line.Proxy(t, s.API, s.S3, storage), storage, onDemand)), 0o600))
	w.start()
	return w
}

func (w *supervised) start() {
	w.Helper()
	d, err := harness.StartDriver(w.Context(), harness.Binaries{Driver: w.program}, w.dir, w.file)
	must(w, err)
	w.driver = d
	w.Cleanup(d.Kill)
}

func (w *supervised) restart() {
	w.Helper()
	w.driver.Kill()
	w.start()
}

// end stops the driver, which must have no record left.
func (w *supervised) end() {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "http://"+w.driver.HTTP+"/metrics", nil)
	must(w, err)
	resp, err := http.DefaultClient.Do(req)
	must(w, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	must(w, err)
	for _, line := range []string{"\ncontract_cosi_buckets 0\n", "\ncontract_cosi_keys 0\n"} {
		if !bytes.Contains(text, []byte(line)) {
			w.Errorf("the journal has records left: no line %q", line)
		}
	}
	must(w, w.driver.Stop())
}

// judge runs the suite, does something to it at one call of the driver, and
// returns its exit status.
func (w *supervised) judge(suite, contract string, at int, disturb func(*os.Process)) int {
	w.Helper()
	reached := make(chan struct{})
	var once sync.Once
	w.line.Plan(func(call int) harness.Fate {
		if call == at {
			once.Do(func() { close(reached) })
		}
		return harness.Deliver
	}, nil)
	cmd := exec.CommandContext(w.Context(), suite, "--endpoint", w.driver.Endpoint, "--s3", "-o", "json",
		"--bucket-parameter", "contract="+contract,
		"--other-bucket-parameter", "contract="+contract, "--other-bucket-parameter", "versioning=Enabled",
		"--read-only-parameter", "access=ReadOnly", "--write-only-parameter", "access=WriteOnly")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	must(w, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its status says the same
		close(ended)
	}()
	select {
	case <-reached:
		disturb(cmd.Process)
	case <-ended:
		w.Fatalf("the suite ended before call %d of the driver: %s", at, complaint.String())
	}
	<-ended
	var report struct {
		Results []struct{ Number, Name, Verdict, Message string }
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		w.Fatalf("%v: %s", err, complaint.String())
	}
	for _, r := range report.Results {
		if r.Verdict == "fail" && r.Number != "G11" { // which tells of a driver that died
			w.Errorf("%s %s: %s", r.Number, r.Name, r.Message)
		}
	}
	return cmd.ProcessState.ExitCode()
}

// inventory is what a service holds, asked of itself and not of a driver.
func inventory(t *testing.T, s *harness.Storage, dir, contract string) []string {
	t.Helper()
	var out []string
	switch s.Type {
	case "contractapi":
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.API+"/v1/contracts", nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+s.Secrets[0])
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		must(t, err)
		out = append(out, string(text))
	case "rgw":
		for _, list := range []string{"user", "bucket"} {
			text, err := ceph.Admin(t.Context(), list, "list")
			must(t, err)
			for line := range strings.Lines(text) {
				if strings.Contains(line, tenantOf(contract)) {
					out = append(out, list+" "+line)
				}
			}
		}
	default:
		buckets, err := harness.S3(s.S3, harness.VersityGWRegion, s.AccessKeyID, s.Secrets[0]).ListBuckets(t.Context(), &s3.ListBucketsInput{})
		must(t, err)
		for _, b := range buckets.Buckets {
			out = append(out, "bucket "+*b.Name)
		}
		out = append(out, accounts(t.Context(), t, s, dir)...)
	}
	slices.Sort(out)
	return out
}

// accounts are the gateway's, or the users of the IAM service beside it.
func accounts(ctx context.Context, t *testing.T, s *harness.Storage, dir string) []string {
	t.Helper()
	var out []string
	if s.Type == "iam" {
		users, err := iam.New(iam.Options{
			BaseEndpoint: &s.API, Region: harness.VersityGWRegion,
			Credentials: credentials.NewStaticCredentialsProvider(s.AccessKeyID, s.Secrets[0], ""),
		}).ListUsers(ctx, &iam.ListUsersInput{})
		must(t, err)
		for _, u := range users.Users {
			out = append(out, "user "+*u.UserName)
		}
		return out
	}
	text, err := os.ReadFile(filepath.Join(dir, "data", "iam", "users.json"))
	must(t, err)
	var file struct{ AccessAccounts map[string]any }
	must(t, json.Unmarshal(text, &file))
	if file.AccessAccounts == nil {
		t.Fatalf("%s does not name accounts", text)
	}
	for name := range file.AccessAccounts {
		out = append(out, "account "+name)
	}
	return out
}

func same(t *testing.T, before, after []string) {
	t.Helper()
	if !slices.Equal(before, after) {
		t.Errorf("the service held %q and holds %q", before, after)
	}
}
