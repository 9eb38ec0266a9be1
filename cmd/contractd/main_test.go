package main

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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/contract-cosi/contract-cosi-driver/cmd/contractd/internal/api"
)

// asChild makes the test binary run as contractd: one gateway a process.
const asChild = "CONTRACTD_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const token = "planted-token"

// daemon is a contractd in a process of its own.
type daemon struct {
	t         *testing.T
	command   *exec.Cmd
	ended     chan struct{}
	output    *bytes.Buffer // to be read after ended
	Addresses struct{ API, S3 string }
	http      *http.Client
}

// launch starts a contractd and waits until it serves.
func launch(t *testing.T, dir string, args ...string) *daemon {
	t.Helper()
	tokens, addresses := filepath.Join(dir, "tokens"), filepath.Join(dir, "addresses")
	if err := os.WriteFile(tokens, []byte("other\n"+token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(addresses); err != nil { // its return is the sign of readiness
		t.Fatal(err)
	}
	d := &daemon{t: t, ended: make(chan struct{}), output: &bytes.Buffer{}, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	d.command = exec.Command(os.Args[0], append([]string{
		"--data-dir", filepath.Join(dir, "data"), "--token-file", tokens, "--addresses-file", addresses}, args...)...)
	d.command.Env = append(os.Environ(), asChild+"=1")
	d.command.Stdout, d.command.Stderr = d.output, d.output
	if err := d.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(d.ended)
		_ = d.command.Wait() // the state tells
	}()
	t.Cleanup(func() {
		d.kill()
		if t.Failed() {
			t.Logf("contractd wrote:\n%s", d.output)
		}
		for _, secret := range []string{token} {
			if strings.Contains(d.output.String(), secret) {
				t.Errorf("the output shows a secret")
			}
		}
	})
	for {
		data, err := os.ReadFile(addresses)
		if err == nil {
			if err := json.Unmarshal(data, &d.Addresses); err != nil {
				t.Fatalf("addresses %q: %v", data, err)
			}
			return d
		}
		select {
		case <-d.ended:
			t.Fatalf("contractd ended: %s", d.output)
		case <-time.After(5 * time.Millisecond): // the next look
		}
	}
}

func (d *daemon) kill() {
	_ = d.command.Process.Kill() // it may have ended
	<-d.ended
}

// put calls the API; the status is 0 when no answer came.
func (d *daemon) call(method, path, body string) (status int, answer []byte) {
	request, err := http.NewRequest(method, d.Addresses.API+path, strings.NewReader(body))
	if err != nil {
		return 0, nil
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := d.http.Do(request)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = response.Body.Close() }()
	if answer, err = io.ReadAll(response.Body); err != nil {
		return 0, nil
	}
	return response.StatusCode, answer
}

func (d *daemon) ok(status int, method, path, body string) []byte {
	d.t.Helper()
	got, answer := d.call(method, path, body)
	if got != status {
		d.t.Fatalf("%s %s: %d %s, want %d", method, path, got, answer, status)
	}
	return answer
}

func (d *daemon) issue(path, spec string) api.IssuedKey {
	d.t.Helper()
	var k api.IssuedKey
	if err := json.Unmarshal(d.ok(http.StatusCreated, "PUT", path, spec), &k); err != nil {
		d.t.Fatal(err)
	}
	return k
}

func (d *daemon) s3(k api.IssuedKey) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &d.Addresses.S3, UsePathStyle: true, Region: "us-east-1", RetryMaxAttempts: 1, HTTPClient: d.http,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: k.Key.AccessKeyId, SecretAccessKey: k.SecretAccessKey}, nil
		}),
	})
}

// TestStory is what a tenant does, from the contract to its end.
func TestStory(t *testing.T) {
	t.Parallel()
	d := launch(t, t.TempDir())
	d.ok(http.StatusCreated, "PUT", "/v1/contracts/acme", `{"owner":"me"}`)
	admin := d.s3(d.issue("/v1/contracts/acme/keys/admin", `{"spec":{"slot":"admin"}}`))
	for _, name := range []string{"first-bucket", "second-bucket"} {
		if _, err := admin.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name}); err != nil {
			t.Fatal(err)
		}
	}
	issued := d.issue("/v1/contracts/acme/keys/app", `{"spec":{"slot":"app","buckets":[{"bucket":"first-bucket","access":"readWrite"}]}}`)
	app := d.s3(issued)
	write := func(bucket string) error {
		_, err := app.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: aws.String("k"), Body: strings.NewReader("data")})
		return err
	}
	if err := write("first-bucket"); err != nil {
		t.Errorf("granted: %v", err)
	}
	if err := write("second-bucket"); err == nil || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("not granted: %v", err)
	}
	d.ok(http.StatusConflict, "DELETE", "/v1/contracts/acme", "")
	d.ok(http.StatusNoContent, "DELETE", "/v1/contracts/acme/keys?slot=app", "")
	if err := write("first-bucket"); err == nil || !strings.Contains(err.Error(), "InvalidAccessKeyId") {
		t.Errorf("revoked: %v", err)
	}
	if _, err := admin.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String("first-bucket"), Key: aws.String("k")}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first-bucket", "second-bucket"} {
		if _, err := admin.DeleteBucket(t.Context(), &s3.DeleteBucketInput{Bucket: &name}); err != nil {
			t.Fatal(err)
		}
	}
	d.ok(http.StatusNoContent, "DELETE", "/v1/contracts/acme", "")

	d.http.CloseIdleConnections()
	if err := d.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-d.ended
	if code := d.command.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0", code)
	}
	if strings.Contains(d.output.String(), issued.SecretAccessKey) {
		t.Error("the output shows a secret key")
	}
}

// TestKill9 kills the service in the middle of many writes. What was answered
// must be there afterwards, the same secret included.
func TestKill9(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := launch(t, dir)
	d.ok(http.StatusCreated, "PUT", "/v1/contracts/acme", `{"owner":"me"}`)
	admin := d.issue("/v1/contracts/acme/keys/admin", `{"spec":{"slot":"admin"}}`)
	if _, err := d.s3(admin).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("survivor")}); err != nil {
		t.Fatal(err)
	}
	const quota = "/v1/contracts/acme/buckets/survivor"
	write := func(d *daemon, key string) error {
		_, err := d.s3(admin).PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("survivor"), Key: &key, Body: strings.NewReader("data")})
		return err
	}
	if err := write(d, "before/the/quota"); err != nil {
		t.Fatal(err)
	}
	d.ok(http.StatusOK, "PUT", quota+"/quota", `{"maxBytes":8,"maxObjects":5}`)
	const enough = 200
	path := func(worker, i int) (path, body string) {
		name := fmt.Sprintf("k-%d-%d", worker, i)
		return "/v1/contracts/acme/keys/" + name, fmt.Sprintf(`{"spec":{"slot":%q}}`, name)
	}
	var mu sync.Mutex
	answered := map[[2]int]string{}
	reached := make(chan struct{})
	var workers sync.WaitGroup
	for worker := range 16 {
		workers.Go(func() {
			for i := 0; ; i++ {
				path, body := path(worker, i)
				status, answer := d.call("PUT", path, body)
				if status != http.StatusCreated {
					return // killed
				}
				mu.Lock()
				answered[[2]int{worker, i}] = string(answer)
				if len(answered) == enough {
					close(reached)
				}
				mu.Unlock()
			}
		})
	}
	select {
	case <-reached:
	case <-d.ended:
		t.Fatal("contractd ended by itself")
	}
	d.kill()
	workers.Wait()

	d = launch(t, dir)
	for id, before := range answered {
		path, body := path(id[0], id[1])
		if after := d.ok(http.StatusOK, "PUT", path, body); string(after) != before {
			t.Errorf("%s: %s, was %s", path, after, before)
		}
	}
	// Ownership survives too: a repeat finds the bucket, and the contract is not empty.
	_, err := d.s3(admin).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("survivor")})
	if err == nil || !strings.Contains(err.Error(), "BucketAlreadyOwnedByYou") {
		t.Errorf("after the restart: %v", err)
	}
	d.ok(http.StatusConflict, "DELETE", "/v1/contracts/acme", "")
	// And so do a bucket's quota and what is in it, before anyone has asked.
	if err := write(d, "second"); err != nil {
		t.Errorf("within the quota: %v", err)
	}
	if err := write(d, "third"); err == nil || !strings.Contains(err.Error(), "QuotaExceeded") {
		t.Errorf("beyond the quota: %v", err)
	}
	if got := string(d.ok(http.StatusOK, "GET", quota, "")); !strings.Contains(got, `"bytes":8,`) || !strings.Contains(got, `"maxBytes":8`) || !strings.Contains(got, `"objects":2`) {
		t.Errorf("the bucket: %s", got)
	}
}

// TestBucketOrCancellation races making a bucket against cancelling its
// contract: never are both done, else a bucket would be left without a contract.
func TestBucketOrCancellation(t *testing.T) {
	t.Parallel()
	d := launch(t, t.TempDir())
	for round := range 20 {
		contract := fmt.Sprintf("/v1/contracts/race-%d", round)
		bucket := fmt.Sprintf("race-bucket-%d", round)
		d.ok(http.StatusCreated, "PUT", contract, `{"owner":"me"}`)
		client := d.s3(d.issue(contract+"/keys/admin", `{"spec":{"slot":"admin"}}`))
		var made error
		var cancelled int
		var group sync.WaitGroup
		group.Go(func() {
			_, made = client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket})
		})
		group.Go(func() { cancelled, _ = d.call("DELETE", contract, "") })
		group.Wait()
		if gone := cancelled == http.StatusNoContent; gone == (made == nil) {
			t.Errorf("round %d: bucket %v, cancellation %d", round, made, cancelled)
		}
	}
}

func TestPendingFor(t *testing.T) {
	t.Parallel()
	d := launch(t, t.TempDir(), "--pending-for", "1h", "--s3-url", "https://s3.example", "--region", "eu-1")
	answer := d.ok(http.StatusAccepted, "PUT", "/v1/contracts/acme", `{"owner":"me"}`)
	var c api.Contract
	if err := json.Unmarshal(answer, &c); err != nil {
		t.Fatal(err)
	}
	if c.State != api.ContractStatePending || c.Endpoints[0].Url != "https://s3.example" || c.Endpoints[0].Region != "eu-1" {
		t.Errorf("signed %s", answer)
	}
}

func TestStartUpFaults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tokens, empty := file("tokens", "t"), file("empty", "\n")
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "--data-dir"},
		{[]string{"--data-dir", dir}, "--token-file"},
		{[]string{"--data-dir", dir, "--token-file", empty}, "is empty"},
		{[]string{"--data-dir", dir, "--token-file", filepath.Join(dir, "none")}, "no such file"},
		{[]string{"--data-dir", dir, "--token-file", tokens, "--pending-for", "-1s"}, "negative"},
		{[]string{"--data-dir", dir, "--token-file", tokens, "more"}, "unexpected argument"},
		{[]string{"--bogus"}, "bogus"},
		{[]string{"--data-dir", tokens, "--token-file", tokens}, "not a directory"},
		{[]string{"--data-dir", filepath.Join(dir, "a"), "--token-file", tokens, "--s3-address", "nonsense"}, "S3 address"},
		{[]string{"--data-dir", filepath.Join(dir, "b"), "--token-file", tokens, "--api-address", "127.0.0.1:99999"}, "--api-address"},
	} {
		command := exec.Command(os.Args[0], test.args...)
		command.Env = append(os.Environ(), asChild+"=1")
		var stderr bytes.Buffer
		command.Stderr = &stderr
		_ = command.Run() // the state tells
		if code := command.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), test.want) {
			t.Errorf("%q: exit code %d, %q, want 1 and %q", test.args, code, stderr.String(), test.want)
		}
		if lines := strings.Count(stderr.String(), "\n"); lines != 1 {
			t.Errorf("%q: %d lines on stderr, want one: %s", test.args, lines, stderr.String())
		}
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, &out, io.Discard); err != nil || !strings.Contains(out.String(), "-data-dir") {
		t.Errorf("%v: %s", err, out.String())
	}
}
