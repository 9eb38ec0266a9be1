// Package integration proves the driver from outside: calls over its socket,
// a real contract service with a real S3 server behind it, and requests signed
// with the keys it gives.
package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	cosiproto "sigs.k8s.io/container-object-storage-interface-spec"

	"github.com/contract-cosi/contract-cosi-driver/test/harness"
	"github.com/contract-cosi/contract-cosi-driver/test/inprocess"
	"github.com/contract-cosi/contract-cosi-driver/test/kubefake"
)

// What all tests share: the programs, and one contract service. Tests keep to
// contracts of their own.
var (
	binaries  harness.Binaries
	contractd *harness.Contractd
)

func TestMain(m *testing.M) {
	harness.Main(m, func(ctx context.Context, dir string, after func(func())) (err error) {
		if binaries, err = harness.Build(ctx, dir, raceEnabled); err != nil {
			return err
		}
		if contractd, err = harness.StartContractd(ctx, binaries, dir); err == nil {
			after(func() { contractd.Kill() })
		}
		return err
	})
}

var contractNumber atomic.Int32

// newContract returns a contract's name that no other test uses.
func newContract() string { return fmt.Sprintf("tenant-%d", contractNumber.Add(1)) }

// env is a driver of one test, in this process, with everything between it and
// the services on a line that can be cut.
type env struct {
	testing.TB
	dir, configFile string
	service         *harness.Contractd
	line            *harness.Line
	logs            *harness.Buffer
	conn            *grpc.ClientConn
	http            string
	stop            func()
	classes         sync.Map // by bucket, what it was asked for with
}

// onDemand are contracts that any class may name.
const onDemand = "onDemand:\n  backend: main\n"

// newEnv starts a driver at the shared contract service.
func newEnv(t testing.TB, contracts string) *env { return newEnvAt(t, contractd, contracts) }

func newEnvAt(t testing.TB, service *harness.Contractd, contracts string) *env {
	t.Helper()
	return newEnvWith(t, service, contracts, func(text string) string { return text })
}

// newEnvInSecrets is newEnv with the journal in Secrets of an API server.
func newEnvInSecrets(t testing.TB, kube *kubefake.Server, contracts string) *env {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	writeFile(t, kubeconfig, kube.Kubeconfig())
	return newEnvWith(t, contractd, contracts, func(text string) string { return harness.InSecrets(text, kubefake.Namespace, kubeconfig) })
}

// newEnvWith lets a test change the configuration.
func newEnvWith(t testing.TB, service *harness.Contractd, contracts string, change func(string) string) *env {
	t.Helper()
	dir, err := os.MkdirTemp("", "c") // a socket's path has to be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e := &env{TB: t, dir: dir, service: service, line: &harness.Line{}, logs: &harness.Buffer{}, configFile: filepath.Join(dir, "config.yaml")}
	s3Proxy := e.line.Proxy(t, service.S3, "", "")
	apiProxy := e.line.Proxy(t, service.API, service.S3, s3Proxy)
	must(t, os.WriteFile(e.configFile, []byte(change(harness.ConfigText(dir, apiProxy, service.TokenFile, contracts))), 0o600))
	e.start()
	t.Cleanup(func() { e.stop() })
	return e
}

func (e *env) endpoint() string { return "unix://" + filepath.Join(e.dir, "cosi.sock") }

// start runs the driver in this process, where the race detector sees it.
func (e *env) start() {
	e.Helper()
	d, err := inprocess.Start(e.configFile, e.endpoint(), e.logs)
	must(e, err)
	e.http, e.conn = d.HTTP, d.Conn
	e.stop = func() {
		e.stop = func() {}
		if err := d.Stop(); err != nil {
			e.Errorf("the driver ended with: %v", err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rpc makes calls; the error is what a sidecar would see.
func (e *env) create(name string, parameters map[string]string) (string, error) {
	id, err := createVia(e, e.conn, name, parameters)
	if err == nil {
		e.classes.Store(name, parameters)
	}
	return id, err
}

func createVia(t testing.TB, conn *grpc.ClientConn, name string, parameters map[string]string) (string, error) {
	resp, err := cosiproto.NewProvisionerClient(conn).DriverCreateBucket(t.Context(), &cosiproto.DriverCreateBucketRequest{Name: name, Parameters: parameters})
	return resp.GetBucketId(), err
}

// granted is what the sidecar would write into a Secret.
type granted struct{ account, endpoint, region, key, secret string }

func (e *env) grant(bucketID, name string, parameters map[string]string) (granted, error) {
	return grantVia(e, e.conn, bucketID, name, parameters)
}

func grantVia(t testing.TB, conn *grpc.ClientConn, bucketID, name string, parameters map[string]string) (granted, error) {
	t.Helper()
	resp, err := cosiproto.NewProvisionerClient(conn).DriverGrantBucketAccess(t.Context(), &cosiproto.DriverGrantBucketAccessRequest{
		BucketId: bucketID, Name: name, AuthenticationType: cosiproto.AuthenticationType_Key, Parameters: parameters,
	})
	if err != nil {
		return granted{}, err
	}
	if len(resp.GetCredentials()) != 1 {
		t.Errorf("%d credentials; the sidecar wants one", len(resp.GetCredentials()))
	}
	s := resp.GetCredentials()["s3"].GetSecrets()
	g := granted{resp.GetAccountId(), s["endpoint"], s["region"], s["accessKeyID"], s["accessSecretKey"]}
	if len(s) != 4 || slices.Contains([]string{g.account, g.endpoint, g.region, g.key, g.secret}, "") {
		t.Errorf("an incomplete grant: %d entries", len(s))
	}
	return g, nil
}

func (e *env) revoke(bucketID, accountID string) error {
	return revokeVia(e, e.conn, bucketID, accountID)
}

func revokeVia(t testing.TB, conn *grpc.ClientConn, bucketID, accountID string) error {
	_, err := cosiproto.NewProvisionerClient(conn).DriverRevokeBucketAccess(t.Context(), &cosiproto.DriverRevokeBucketAccessRequest{BucketId: bucketID, AccountId: accountID})
	return err
}

// delete deletes a bucket as the sidecar does, with what it was made with.
func (e *env) delete(bucketID string) error {
	parameters, _ := e.classes.Load(bucketID[strings.LastIndex(bucketID, ".")+1:])
	class, _ := parameters.(map[string]string)
	return deleteVia(e, e.conn, bucketID, class)
}

// deleteVia deletes as the v0.2.2 sidecar does, with the Bucket's parameters in
// a field that the v0.1.0 messages do not have.
func deleteVia(t testing.TB, conn *grpc.ClientConn, bucketID string, parameters map[string]string) error {
	req := &cosiproto.DriverDeleteBucketRequest{BucketId: bucketID}
	var unknown []byte
	for k, v := range parameters {
		entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), k)
		entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), v)
		unknown = protowire.AppendBytes(protowire.AppendTag(unknown, 2, protowire.BytesType), entry)
	}
	req.ProtoReflect().SetUnknown(unknown)
	_, err := cosiproto.NewProvisionerClient(conn).DriverDeleteBucket(t.Context(), req)
	return err
}

func (e *env) mustCreate(name string, parameters map[string]string) string {
	e.Helper()
	id, err := e.create(name, parameters)
	must(e, err)
	return id
}

func (e *env) mustGrant(bucketID, name string, parameters map[string]string) granted {
	e.Helper()
	g, err := e.grant(bucketID, name, parameters)
	must(e, err)
	return g
}

// client is the application's.
func (g granted) client() *s3.Client { return harness.S3(g.endpoint, g.region, g.key, g.secret) }

func put(t testing.TB, c *s3.Client, bucket, key string) error {
	_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader("content of " + key)})
	return err
}

func get(t testing.TB, c *s3.Client, bucket, key string) error {
	out, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return err
	}
	defer func() { _ = out.Body.Close() }()
	text, err := io.ReadAll(out.Body)
	if err == nil && string(text) != "content of "+key {
		err = fmt.Errorf("object %s holds %q", key, text)
	}
	return err
}

func list(t testing.TB, c *s3.Client, bucket, prefix string) error {
	_, err := c.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &prefix})
	return err
}

func remove(t testing.TB, c *s3.Client, bucket, key string) error {
	_, err := c.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: &key})
	return err
}

// allowed and refused judge the outcome of an S3 request.
func allowed(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func refused(t testing.TB, what string, err error) {
	t.Helper()
	var answer smithy.APIError
	if !errors.As(err, &answer) || !slices.Contains([]string{"AccessDenied", "InvalidAccessKeyId", "Forbidden"}, answer.ErrorCode()) {
		t.Errorf("%s: got %v, want a refusal", what, err)
	}
}

// expectCode checks the code of a failed call, its text, and that it has no
// details (spec.md, "Error Scheme").
func expectCode(t testing.TB, err error, code codes.Code, texts ...string) {
	t.Helper()
	s := status.Convert(err)
	if err == nil || s.Code() != code {
		t.Errorf("got %s (%q), want %s", s.Code(), s.Message(), code)
		return
	}
	if len(s.Details()) != 0 {
		t.Errorf("%q has details", s.Message())
	}
	for _, text := range texts {
		if !strings.Contains(s.Message(), text) {
			t.Errorf("%q does not say %q", s.Message(), text)
		}
	}
}

// api calls the contract service directly, as its operator would.
func (e *env) api(method, path string, body, into any) int {
	e.Helper()
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		must(e, err)
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(e.Context(), method, e.service.API+path, content)
	must(e, err)
	req.Header.Set("Authorization", "Bearer "+e.service.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	must(e, err)
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	must(e, err)
	if into != nil && resp.StatusCode < 300 {
		must(e, json.Unmarshal(answer, into))
	}
	return resp.StatusCode
}

// key is what the contract service tells of one.
type key struct {
	Name, AccessKeyID string
	Acknowledged      bool
	Spec              struct {
		Slot    string
		Buckets []struct{ Bucket, Prefix, Access string }
	}
}

// keys are the contract's scoped keys at the service.
func (e *env) keys(contract string) []key {
	e.Helper()
	var page struct{ Items []key }
	if code := e.api(http.MethodGet, "/v1/contracts/"+contract+"/keys?pageSize=500", nil, &page); code == http.StatusNotFound {
		return nil
	}
	return slices.DeleteFunc(page.Items, func(k key) bool { return len(k.Spec.Buckets) == 0 })
}

// owner is an S3 client with a key of the contract itself, which the driver
// knows nothing of.
func (e *env) owner(contract string) *s3.Client {
	e.Helper()
	name := fmt.Sprintf("operator-%d", contractNumber.Add(1))
	var issued struct {
		Key             struct{ AccessKeyID string }
		SecretAccessKey string
	}
	if code := e.api(http.MethodPut, "/v1/contracts/"+contract+"/keys/"+name, map[string]any{"spec": map[string]any{"slot": name}}, &issued); code != http.StatusCreated {
		e.Fatalf("operator's key: HTTP %d", code)
	}
	return harness.S3(e.service.S3, "us-east-1", issued.Key.AccessKeyID, issued.SecretAccessKey)
}

// buckets are the contract's buckets at the service.
func (e *env) buckets(contract string) []string {
	e.Helper()
	out, err := e.owner(contract).ListBuckets(e.Context(), &s3.ListBucketsInput{})
	must(e, err)
	var names []string
	for _, b := range out.Buckets {
		names = append(names, aws.ToString(b.Name))
	}
	return names
}

// web reads one of the driver's HTTP pages.
func (e *env) web(path string) (int, string) {
	e.Helper()
	req, err := http.NewRequestWithContext(e.Context(), http.MethodGet, "http://"+e.http+path, nil)
	must(e, err)
	resp, err := http.DefaultClient.Do(req)
	must(e, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	must(e, err)
	return resp.StatusCode, string(text)
}

// metric is the sum of a metric's samples whose line has all the labels.
func (e *env) metric(name string, labels ...string) float64 {
	e.Helper()
	_, text := e.web("/metrics")
	sum := 0.0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		if slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(line, l) }) {
			continue
		}
		var v float64
		_, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &v)
		must(e, err)
		sum += v
	}
	return sum
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}
