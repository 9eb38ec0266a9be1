package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/contract-cosi/contract-cosi-driver/pkg/journal/filestore"
	"github.com/contract-cosi/contract-cosi-driver/test/kubefake"
)

// otlp is a collector that keeps what it gets.
type otlp struct {
	url string

	mu    sync.Mutex
	raw   []byte
	spans []*trace.Span
}

func newCollector(t *testing.T) *otlp {
	t.Helper()
	o := &otlp{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			unpacked, err := gzip.NewReader(body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			body = unpacked
		}
		text, err := io.ReadAll(body)
		request := &collector.ExportTraceServiceRequest{}
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(text, request) != nil {
			http.Error(w, "not a delivery of spans", http.StatusBadRequest)
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.raw = append(o.raw, text...)
		for _, resource := range request.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				o.spans = append(o.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(s.Close)
	o.url = s.URL
	return o
}

func attributeOf(s *trace.Span, name string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == name {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// A trace has the RPC and each request that was made for it, at the service and at
// the API server, and no secret.
func TestTraces(t *testing.T) {
	t.Parallel()
	o, kube := newCollector(t), kubefake.Start(t)
	e := newEnvInSecrets(t, kube, cancelling+"tracing:\n  endpoint: "+o.url+"/v1/traces\n")
	contract := newContract()
	id := e.mustCreate(contract+"-b", map[string]string{"contract": contract})
	key := e.mustGrant(id, "ba-1", nil)
	must(t, e.revoke(id, key.account))
	must(t, e.delete(id))
	calls := e.line.Calls()
	e.stop() // which delivers what waits

	roots := map[string]*trace.Span{}
	requests := map[string][]string{} // by trace
	for _, s := range o.spans {
		if len(s.GetParentSpanId()) == 0 {
			roots[s.GetName()] = s
		} else {
			requests[string(s.GetTraceId())] = append(requests[string(s.GetTraceId())], attributeOf(s, "http.request.method")+" "+attributeOf(s, "url.path"))
		}
	}
	for method, want := range map[string]string{
		"DriverCreateBucket": contract + "-b", "DriverGrantBucketAccess": "ba-1", "DriverRevokeBucketAccess": key.account, "DriverDeleteBucket": id,
	} {
		root := roots["cosi.v1alpha1.Provisioner/"+method]
		if root == nil {
			t.Errorf("%s has no trace", method)
			continue
		}
		if attributeOf(root, "cosi.bucket") != want && attributeOf(root, "cosi.access") != want {
			t.Errorf("the trace of %s does not name %s: %v", method, want, root.GetAttributes())
		}
		var service, cluster int
		for _, r := range requests[string(root.GetTraceId())] {
			switch {
			case strings.Contains(r, "/secrets"):
				cluster++
			case slices.Contains(calls, r):
				service++
			default:
				t.Errorf("%s has a request that was not made: %s", method, r)
			}
		}
		if service == 0 || cluster == 0 {
			t.Errorf("the trace of %s has %d requests of the service and %d of the API server, want some of both", method, service, cluster)
		}
	}
	for _, secret := range []string{contractd.Token, key.secret} {
		if bytes.Contains(o.raw, []byte(secret)) {
			t.Error("a trace tells a secret")
		}
	}
	if id := hex.EncodeToString(roots["cosi.v1alpha1.Provisioner/DriverDeleteBucket"].GetTraceId()); !strings.Contains(e.logs.String(), id) {
		t.Errorf("the log does not name trace %s", id)
	}
}

// A collector that does not answer costs no call anything, and one line in the log.
func TestCollectorIsGone(t *testing.T) {
	t.Parallel()
	e := newEnv(t, cancelling+"tracing:\n  endpoint: http://127.0.0.1:1/v1/traces\n")
	contract := newContract()
	must(t, e.delete(e.mustCreate(contract+"-b", map[string]string{"contract": contract})))
	e.stop()
	if n := strings.Count(e.logs.String(), "The collector does not take traces"); n != 1 {
		t.Errorf("the log has %d lines of a collector that is gone, want 1:\n%s", n, e.logs.String())
	}
}

// A collector that hangs does not keep another driver from the journal: when the
// driver stops, the last spans go out after the journal is free.
func TestCollectorThatHangsAtTheStop(t *testing.T) {
	t.Parallel()
	var e *env
	opened := make(chan error, 16)
	ready := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-ready
		for {
			store, err := filestore.Open(r.Context(), filepath.Join(e.dir, "journal.log"), func(string, error) {})
			if err == nil {
				err = errors.Join(store.Close(), r.Context().Err())
			}
			if err == nil || r.Context().Err() != nil {
				opened <- err
				return
			}
			runtime.Gosched()
		}
	}))
	t.Cleanup(hanging.Close)
	e = newEnv(t, cancelling+"tracing:\n  endpoint: "+hanging.URL+"/v1/traces\n")
	close(ready)
	contract := newContract()
	must(t, e.delete(e.mustCreate(contract+"-b", map[string]string{"contract": contract})))
	e.stop()
	select {
	case err := <-opened:
		must(t, err)
	default:
		t.Error("the journal is not free until the last delivery is given up")
	}
}
