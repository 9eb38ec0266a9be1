package backends

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
	"github.com/contract-cosi/contract-cosi-driver/test/inprocess"
	"github.com/contract-cosi/contract-cosi-driver/test/poll"
)

// eachStorage runs a test at a service of each type, side by side.
func eachStorage(t *testing.T, do func(t *testing.T, s *harness.Storage)) {
	for _, kind := range harness.StorageTypes {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			do(t, storages[kind])
		})
	}
}

// running is a driver of one test, with its administration calls on one line
// and its S3 calls on another.
type running struct {
	testing.TB
	storage  *harness.Storage
	api, s3  *harness.Line
	endpoint string
	http     string
	logs     *harness.Buffer
	cosi     cosiproto.ProvisionerClient
}

// onDemand are contracts that any class may name, and that go with their last
// bucket.
const onDemand = "onDemand:\n  backend: main\n  onLastBucket: cancel\n"

// run starts a driver at a service. change, which may be nil, edits the
// configuration.
func run(t testing.TB, s *harness.Storage, change func(string) string) *running {
	t.Helper()
	dir, err := os.MkdirTemp("", "c") // a socket's path has to be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &running{TB: t, storage: s, api: &harness.Line{}, s3: &harness.Line{}, logs: &harness.Buffer{}, endpoint: "unix://" + filepath.Join(dir, "cosi.sock")}
	storage := r.s3.Proxy(t, s.S3, "", "")
	text := s.Config(dir, r.api.Proxy(t, s.API, s.S3, storage), storage, onDemand)
	if change != nil {
		text = change(text)
	}
	file := filepath.Join(dir, "config.yaml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	d, err := inprocess.Start(file, r.endpoint, r.logs)
	must(t, err)
	r.http = d.HTTP
	r.cosi = cosiproto.NewProvisionerClient(d.Conn)
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Errorf("the driver ended with: %v", err)
		}
		for _, text := range s.Secrets {
			if strings.Contains(r.logs.String(), text) {
				t.Error("the log tells a secret")
			}
		}
	})
	// The driver's first look at its backends takes no call that a test counts.
	poll.Until(t, "a look at the backends", func() bool {
		return backendUp.MatchString(r.page("/metrics")) || strings.Contains(r.logs.String(), "Not available")
	})
	return r
}

var backendUp = regexp.MustCompile(`\ncontract_cosi_backend_up{.*} 1\n`)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// life is one bucket with one access.
type life struct {
	*running
	contract, bucket, access string
	id, account              string
	key                      map[string]string
	class                    map[string]string // beside the contract
}

func (r *running) life() *life {
	return &life{running: r, contract: label("t"), bucket: label("b"), access: label("ba")}
}

func (l *life) create() error {
	class := map[string]string{"contract": l.contract}
	maps.Copy(class, l.class)
	out, err := l.cosi.DriverCreateBucket(l.Context(), &cosiproto.DriverCreateBucketRequest{Name: l.bucket, Parameters: class})
	if err == nil {
		l.id = out.GetBucketId()
	}
	return err
}

func (l *life) grant() error {
	out, err := l.cosi.DriverGrantBucketAccess(l.Context(), &cosiproto.DriverGrantBucketAccessRequest{BucketId: l.id, Name: l.access, AuthenticationType: cosiproto.AuthenticationType_Key})
	if err != nil {
		return err
	}
	have := out.GetCredentials()["s3"].GetSecrets()
	if l.key != nil && l.key["accessKeyID"] != have["accessKeyID"] {
		l.Error("a repeated grant gives another key")
	}
	l.account, l.key = out.GetAccountId(), have
	return nil
}

func (l *life) revoke() error {
	_, err := l.cosi.DriverRevokeBucketAccess(l.Context(), &cosiproto.DriverRevokeBucketAccessRequest{BucketId: l.id, AccountId: l.account})
	return err
}

func (l *life) delete() error {
	_, err := l.cosi.DriverDeleteBucket(l.Context(), &cosiproto.DriverDeleteBucketRequest{BucketId: l.id})
	return err
}

func (l *life) client() *s3.Client {
	return harness.S3(l.storage.S3, l.key["region"], l.key["accessKeyID"], l.key["accessSecretKey"])
}

// use reads and writes with the key.
func (l *life) use() error {
	c, key := l.client(), "o"
	_, err := c.PutObject(l.Context(), &s3.PutObjectInput{Bucket: &l.bucket, Key: &key, Body: strings.NewReader("x")})
	if err == nil {
		_, err = c.ListObjectsV2(l.Context(), &s3.ListObjectsV2Input{Bucket: &l.bucket})
	}
	if err == nil {
		_, err = c.DeleteObject(l.Context(), &s3.DeleteObjectInput{Bucket: &l.bucket, Key: &key})
	}
	return err
}

// isRefused goes by the status, since radosgw may close the connection of a write
// that it refuses before the body of its answer has arrived.
func isRefused(err error) bool {
	var answer *smithyhttp.ResponseError
	return errors.As(err, &answer) && answer.HTTPStatusCode() == http.StatusForbidden
}

func (l *life) refused() {
	l.Helper()
	if err := l.use(); !isRefused(err) {
		l.Errorf("a request with the revoked key: got %v, want a refusal", err)
	}
}

// again repeats a call as a sidecar does, for as long as it may heal.
func again(call func() error) error {
	var err error
	for range 8 {
		if err = call(); status.Code(err) != codes.Unavailable {
			return err
		}
	}
	return err
}

// The conformance suite for drivers, on both versions of COSI, with nothing
// left out.
func TestSanity(t *testing.T) {
	t.Parallel()
	eachStorage(t, func(t *testing.T, s *harness.Storage) {
		r := run(t, s, nil)
		contract := label("t")
		findings, err := harness.Sanity(t.Context(), t.TempDir(), r.endpoint, "--s3", "--strict",
			"--bucket-parameter", "contract="+contract,
			"--other-bucket-parameter", "contract="+contract, "--other-bucket-parameter", "versioning=Enabled",
			"--other-access-parameter", "prefix=other/",
			"--read-only-parameter", "access=ReadOnly", "--write-only-parameter", "access=WriteOnly")
		must(t, err)
		for _, f := range findings {
			if f.Number == "K10" && strings.Contains(f.Message, "does not give such a key") { // metadata modes are refused
				continue
			}
			t.Errorf("%+v", f)
		}
	})
}

// The answer to each call that the driver makes is lost in turn, of
// administration and of S3; the call that failed by it is repeated.
func TestEveryAnswerLost(t *testing.T) {
	t.Parallel()
	eachStorage(t, func(t *testing.T, s *harness.Storage) {
		r := run(t, s, nil)
		for name, line := range map[string]*harness.Line{"administration": r.api, "S3": r.s3} {
			for n := 1; ; n++ {
				l := r.life()
				if bounds[s.Type] {
					l.class = map[string]string{"maxBytes": "1Mi"}
				}
				line.Lose(n)
				for _, step := range []struct {
					what string
					do   func() error
				}{
					{"create", l.create}, {"create again", l.create}, {"grant", l.grant}, {"grant again", l.grant},
					{"use", l.use},
					{"revoke", l.revoke}, {"revoke again", l.revoke},
					{"a request with the revoked key", func() error { l.refused(); return nil }},
					{"delete", l.delete}, {"delete again", l.delete},
				} {
					if err := again(step.do); err != nil {
						t.Fatalf("answer %d of %s is lost: %s: %v", n, name, step.what, err)
					}
				}
				calls := len(line.Calls())
				line.Heal()
				if n > calls {
					break
				}
			}
		}
		if text := r.page("/metrics"); !strings.Contains(text, "\ncontract_cosi_buckets 0\n") || !strings.Contains(text, "\ncontract_cosi_keys 0\n") {
			t.Error("records are left in the journal")
		}
	})
}

func (r *running) page(path string) string {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+r.http+path, nil)
	must(r, err)
	answer, err := http.DefaultClient.Do(req)
	must(r, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	must(r, err)
	return string(text)
}

// What may pass is waited for within a call, for as long as the service asks.
func TestTroubleThatPasses(t *testing.T) {
	t.Parallel()
	eachStorage(t, func(t *testing.T, s *harness.Storage) {
		for name, c := range map[string]struct {
			fate    harness.Fate
			atLeast time.Duration
		}{
			"busy": {harness.Busy, time.Second}, "throttled": {harness.Throttled, time.Second}, "broken": {harness.Broken, 0}, "cut short": {harness.CutAnswer, 0},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := run(t, s, nil)
				l := r.life()
				r.api.Plan(func(call int) harness.Fate {
					if call == 1 {
						return c.fate
					}
					return harness.Deliver
				}, nil)
				began := time.Now()
				must(t, l.create())
				if took := time.Since(began); took < c.atLeast {
					t.Errorf("after %s, and the service asked for %s", took, c.atLeast)
				}
				must(t, again(l.grant))
				must(t, l.use())
				must(t, again(l.delete))
			})
		}
	})
}

// What does not pass ends each call in time, with few calls, and heals by itself.
func TestTroubleThatStays(t *testing.T) {
	t.Parallel()
	eachStorage(t, func(t *testing.T, s *harness.Storage) {
		for name, fate := range map[string]harness.Fate{
			"busy": harness.Busy, "throttled": harness.Throttled, "broken": harness.Broken, "cut short": harness.CutAnswer, "no answer": harness.LoseRequest,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := run(t, s, nil)
				l := r.life()
				r.api.Plan(func(int) harness.Fate { return fate }, nil)
				began := time.Now()
				err := l.create()
				if code := status.Code(err); code != codes.Unavailable && code != codes.ResourceExhausted {
					t.Errorf("got %v, want Unavailable", err)
				}
				if took, n := time.Since(began), len(r.api.Calls()); took > 15*time.Second || n > 10 {
					t.Errorf("it took %s and %d calls", took, n)
				}
				r.api.Heal()
				must(t, again(l.create))
				must(t, again(l.delete))
			})
		}
	})
}

// Wrong credentials are the operator's to mend: the text says what to check,
// and no one is asked over and over.
func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	eachStorage(t, func(t *testing.T, s *harness.Storage) {
		wrong := filepath.Join(t.TempDir(), "wrong")
		must(t, os.WriteFile(wrong, []byte("aws_access_key_id = AKIAWRONGWRONGWRONG0\naws_secret_access_key = wrong\n"), 0o600))
		right := ""
		r := run(t, s, func(text string) string {
			for _, key := range []string{"credentialsFile: \"", "tokenFile: \""} {
				if before, rest, ok := strings.Cut(text, key); ok {
					var after string
					right, after, _ = strings.Cut(rest, "\"")
					text = before + key + wrong + "\"" + after
				}
			}
			return strings.ReplaceAll(text, "tokenFile: \""+wrong, "tokenFile: \""+oneLine(t, wrong))
		})
		l := r.life()
		r.api.Heal()
		err := l.create()
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(status.Convert(err).Message(), "check") {
			t.Errorf("got %v, want PermissionDenied and what to check", err)
		}
		if n := len(r.api.Calls()); n > 3 {
			t.Errorf("%d calls, where each is refused", n)
		}
		// Mended in its place, it is found without a restart.
		text, err := os.ReadFile(right)
		must(t, err)
		for _, file := range []string{wrong, wrong + ".line"} {
			must(t, os.WriteFile(file+".new", text, 0o600))
			must(t, os.Rename(file+".new", file))
		}
		deadline := time.Now().Add(15 * time.Second)
		for err = l.create(); err != nil; err = l.create() {
			if time.Now().After(deadline) {
				t.Fatalf("the credentials were mended: %v", err)
			}
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // as a sidecar pauses
		}
		must(t, again(l.delete))
	})
}

// oneLine is a file beside another that holds a single line.
func oneLine(t *testing.T, file string) string {
	t.Helper()
	must(t, os.WriteFile(file+".line", []byte("wrong"), 0o600))
	return file + ".line"
}

// A service that is gone is said to be, and found again when it is back.
func TestStoppedAndStarted(t *testing.T) {
	t.Parallel()
	for _, kind := range harness.StorageTypes {
		if kind == "rgw" {
			continue // TestRGWRestart: its start takes too long for another cluster
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "s")
			must(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			ctx := context.WithoutCancel(t.Context())
			s, err := harness.StartStorage(ctx, kind, dir)
			must(t, err)
			t.Cleanup(func() { s.Kill() })
			r := run(t, s, nil)
			l := r.life()
			must(t, l.create())
			must(t, l.grant())
			s.Kill()
			began := time.Now()
			other := r.life()
			other.contract = l.contract
			if err := other.create(); status.Code(err) != codes.Unavailable {
				t.Errorf("a bucket at a service that is gone: %v", err)
			}
			if err := l.grant(); err != nil {
				t.Errorf("a repeated grant while the service is gone: %v", err)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			must(t, s.Restart(ctx))
			must(t, again(other.create))
			must(t, again(l.grant))
			must(t, l.use())
			for _, l := range []*life{l, other} {
				must(t, again(l.delete))
			}
		})
	}
}
