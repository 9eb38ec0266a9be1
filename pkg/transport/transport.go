// Package transport makes the HTTP client of a backend: one for all calls to a
// service, so that its connections are used again by the next call.
//
// Certificates are verified. The CA bundle and the client's certificate are
// read again when their files change: new connections then use the new ones,
// and calls under way end on the connections they have.
//
// Nothing that comes from a service is trusted to end, to be short or to be the
// service's: see [Bounded], [Pages] and [Speaking].
package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"sync"
	"time"

	"github.com/contract-cosi/contract-cosi-driver/pkg/reload"
)

// Config says how a backend is reached. The zero Config trusts the system's
// CAs and asks the environment for a proxy. It is the section connection of the
// driver's configuration.
type Config struct {
	// CAFile holds the CAs, as PEM, that are trusted instead of the system's.
	CAFile string `yaml:"caFile,omitempty"`
	// ClientCertFile and ClientKeyFile hold the certificate that the driver shows.
	ClientCertFile string `yaml:"clientCertFile,omitempty"`
	ClientKeyFile  string `yaml:"clientKeyFile,omitempty"`
	// Proxy is the address of an HTTP proxy; by default the environment says it.
	Proxy string `yaml:"proxy,omitempty"`
	// ConnectTimeout bounds the making of a connection, and its handshake; 5s by
	// default.
	ConnectTimeout time.Duration `yaml:"connectTimeout,omitempty"`
	// AnswerTimeout is how long a request may remain without an answer; 20s by
	// default, and at most.
	AnswerTimeout time.Duration `yaml:"answerTimeout,omitempty"`
	// Allowed are the addresses that requests may go to; zero is all.
	Allowed Allowed `yaml:"-"`
	// SkipVerify takes any certificate for the service's. For tests.
	SkipVerify bool `yaml:"insecureSkipVerify,omitempty"`
	// Changed is told of files that were read again, and once of one that cannot
	// be used; it may be nil.
	Changed func(error) `yaml:"-"`
}

// IsZero tells YAML's encoder that there is nothing to write.
func (c Config) IsZero() bool { return reflect.ValueOf(c).IsZero() }

// What holds where the configuration says nothing.
const (
	DefaultConnectTimeout = 5 * time.Second
	DefaultAnswerTimeout  = AttemptTimeout
)

// connections kept open are as many as a busy sidecar makes calls at once
// (v0.2.2: 40 workers for each kind of object).
const connections = 80

// New returns the client. The files are read, and no call is made.
func New(c Config) (*http.Client, error) {
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = DefaultConnectTimeout
	}
	if c.AnswerTimeout == 0 {
		c.AnswerTimeout = DefaultAnswerTimeout
	}
	proxy := http.ProxyFromEnvironment
	if c.Proxy != "" {
		address, err := url.Parse(c.Proxy)
		if err != nil {
			return nil, errors.New("the proxy's address is none")
		}
		proxy = http.ProxyURL(address)
	}
	var files []string
	if c.CAFile != "" {
		files = append(files, c.CAFile)
	}
	if c.ClientCertFile != "" {
		files = append(files, c.ClientCertFile, c.ClientKeyFile)
	}
	trust, err := reload.Open(c.Changed, c.tls, files...)
	if err != nil {
		return nil, err
	}
	var next http.RoundTripper = &current{trust: trust, build: func(trust *tls.Config) *http.Transport {
		return &http.Transport{
			Proxy:                  proxy,
			DialContext:            (&net.Dialer{Timeout: c.ConnectTimeout, KeepAlive: 30 * time.Second, ControlContext: control}).DialContext,
			TLSClientConfig:        trust,
			MaxIdleConnsPerHost:    connections,
			IdleConnTimeout:        90 * time.Second,
			TLSHandshakeTimeout:    c.ConnectTimeout,
			ResponseHeaderTimeout:  c.AnswerTimeout,
			MaxResponseHeaderBytes: maxHeader,
			DisableCompression:     true, // what is bounded is what was sent
			ForceAttemptHTTP2:      true,
		}
	}}
	if len(c.Allowed.hosts) > 0 {
		next = c.Allowed.only(next, proxy)
	}
	return Bounded(Traced(next)), nil
}

// tls is what the files say, in the order in which New names them.
func (c Config) tls(texts [][]byte) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.SkipVerify} //nolint:gosec // said in the configuration, and logged
	if c.CAFile != "" {
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(texts[0]) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", c.CAFile)
		}
		texts = texts[1:]
	}
	if c.ClientCertFile != "" {
		pair, err := tls.X509KeyPair(texts[0], texts[1])
		if err != nil {
			return nil, fmt.Errorf("%s and %s are no certificate with its key: %w", c.ClientCertFile, c.ClientKeyFile, err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// current is the transport that goes with what the files hold now.
type current struct {
	trust *reload.File[*tls.Config]
	build func(*tls.Config) *http.Transport

	mu        sync.Mutex
	of        *tls.Config
	transport *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (c *current) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.now().RoundTrip(r)
}

// CloseIdleConnections is what http.Client.CloseIdleConnections calls.
func (c *current) CloseIdleConnections() { c.now().CloseIdleConnections() }

func (c *current) now() *http.Transport {
	trust := c.trust.Get()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of != trust {
		if c.transport != nil {
			c.transport.CloseIdleConnections() // those in use close when they are done
		}
		c.of, c.transport = trust, c.build(trust)
	}
	return c.transport
}
