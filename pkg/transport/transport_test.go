package transport_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
	"github.com/contract-cosi/contract-cosi-driver/test/poll"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// authority is a CA of a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

var serial atomic.Int64

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	return &authority{t, cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue is a certificate for this machine, with its key, as PEM.
func (a *authority) issue(name string) (cert, key []byte) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	must(a.t, err)
	bytes, err := x509.MarshalECPrivateKey(private)
	must(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: bytes})
}

// serve runs a TLS server with a certificate of the CA.
func (a *authority) serve(handler http.HandlerFunc, change func(*httptest.Server)) *httptest.Server {
	a.t.Helper()
	cert, key := a.issue("server")
	pair, err := tls.X509KeyPair(cert, key)
	must(a.t, err)
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.Config.ErrorLog = nil
	if change != nil {
		change(s)
	}
	s.StartTLS()
	a.t.Cleanup(s.Close)
	return s
}

func hello(w http.ResponseWriter, r *http.Request) {
	who := ""
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		who = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	_, _ = io.WriteString(w, "hello "+who)
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	must(t, os.WriteFile(path+".new", text, 0o600))
	must(t, os.Rename(path+".new", path))
}

func client(t *testing.T, c transport.Config) *http.Client {
	t.Helper()
	out, err := transport.New(c)
	must(t, err)
	t.Cleanup(out.CloseIdleConnections)
	return out
}

func get(c *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	poll.Until(t, what, done)
}

func TestCertificatesAreVerified(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	server := ca.serve(hello, nil)
	file := filepath.Join(t.TempDir(), "ca.pem")
	write(t, file, ca.pem)
	_, err := get(client(t, transport.Config{}), server.URL)
	if err == nil || fault.Silence(err) != "its TLS certificate cannot be verified" {
		t.Errorf("a certificate of an unknown CA: %v", err)
	}
	if _, err := get(client(t, transport.Config{CAFile: file}), server.URL); err != nil {
		t.Errorf("a certificate of the CA: %v", err)
	}
	if _, err := get(client(t, transport.Config{SkipVerify: true}), server.URL); err != nil {
		t.Errorf("verification is off: %v", err)
	}
}

// A new CA takes effect for new connections; a call under way ends undisturbed.
func TestANewCA(t *testing.T) {
	t.Parallel()
	before, after := newAuthority(t), newAuthority(t)
	begun, release := make(chan struct{}), make(chan struct{})
	old := before.serve(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			close(begun)
			<-release
		}
		hello(w, r)
	}, nil)
	renewed := after.serve(hello, nil)
	file := filepath.Join(t.TempDir(), "ca.pem")
	write(t, file, before.pem)
	var broken atomic.Int32
	c := client(t, transport.Config{CAFile: file, Changed: func(err error) {
		if err != nil {
			broken.Add(1)
		}
	}})
	type outcome struct {
		text string
		err  error
	}
	slow := make(chan outcome, 1)
	go func() {
		text, err := get(c, old.URL+"/slow")
		slow <- outcome{text, err}
	}()
	<-begun
	if _, err := get(c, renewed.URL); err == nil {
		t.Error("the new CA is trusted before it is there")
	}
	write(t, file, []byte("not a certificate"))
	until(t, "a broken file is not reported", func() bool { _, err := get(c, old.URL); must(t, err); return broken.Load() > 0 })
	write(t, file, after.pem)
	until(t, "the new CA is not trusted", func() bool { _, err := get(c, renewed.URL); return err == nil })
	if _, err := get(c, old.URL); err == nil {
		t.Error("the old CA is still trusted")
	}
	close(release)
	if ended := <-slow; ended.err != nil || !strings.HasPrefix(ended.text, "hello") {
		t.Errorf("the call under way ended with %q, %v", ended.text, ended.err)
	}
}

func TestClientCertificate(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	clients := x509.NewCertPool()
	clients.AddCert(ca.cert)
	server := ca.serve(hello, func(s *httptest.Server) {
		s.TLS.ClientCAs, s.TLS.ClientAuth = clients, tls.RequireAndVerifyClientCert
	})
	dir := t.TempDir()
	caFile, certFile, keyFile := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	write(t, caFile, ca.pem)
	renew := func(name string) {
		cert, key := ca.issue(name)
		write(t, certFile, cert)
		write(t, keyFile, key) // between the two writes they do not fit, which is no reason to stop
	}
	renew("first")
	if _, err := get(client(t, transport.Config{CAFile: caFile}), server.URL); err == nil {
		t.Error("a client without a certificate is served")
	}
	c := client(t, transport.Config{CAFile: caFile, ClientCertFile: certFile, ClientKeyFile: keyFile})
	if text, err := get(c, server.URL); err != nil || text != "hello first" {
		t.Errorf("got %q, %v", text, err)
	}
	renew("second")
	until(t, "the new certificate is not shown", func() bool {
		text, err := get(c, server.URL)
		must(t, err)
		return text == "hello second"
	})
}

func TestProxy(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, "through the proxy to "+r.URL.Host)
	}))
	t.Cleanup(proxy.Close)
	text, err := get(client(t, transport.Config{Proxy: proxy.URL}), "http://storage.example.com/")
	if err != nil || text != "through the proxy to storage.example.com" || asked.Load() != 1 {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	began := time.Now()
	_, err := get(client(t, transport.Config{AnswerTimeout: 50 * time.Millisecond}), server.URL)
	if err == nil || fault.Silence(err) != "timeout" || time.Since(began) > 5*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	server := newAuthority(t).serve(hello, func(s *httptest.Server) {
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened.Add(1)
			}
		}
	})
	c := client(t, transport.Config{SkipVerify: true})
	for range 20 {
		_, err := get(c, server.URL)
		must(t, err)
	}
	// net/http gives a connection up whose writer is not scheduled within 50 ms of the answer.
	if n := opened.Load(); n > 5 {
		t.Errorf("20 calls took %d connections", n)
	}
}

func TestBadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nonsense := filepath.Join(dir, "nonsense")
	write(t, nonsense, []byte("nonsense"))
	for name, c := range map[string]transport.Config{
		"no file":   {CAFile: filepath.Join(dir, "none")},
		"no CA":     {CAFile: nonsense},
		"no key":    {ClientCertFile: nonsense, ClientKeyFile: nonsense},
		"bad proxy": {Proxy: "://"},
	} {
		if _, err := transport.New(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
