// Command contract-conformance puts a service that offers the contract API of
// proto-docs/contract-api.md through the suite that each of the driver's providers
// passes: calls that are repeated, made side by side and cut off, and S3 requests with
// every key.
//
//	contract-conformance --url https://contracts.example.com --token-file FILE [flags]
//
// It signs contracts of its own, whose names end in twelve random characters, and
// cancels them. It exits with 0 if the service passed, 1 if a test failed, and 2 if the
// flags are wrong.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/contract"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contractapi"
	"github.com/contract-cosi/contract-cosi-driver/pkg/contract/contracttest"
	"github.com/contract-cosi/contract-cosi-driver/pkg/secret"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

func main() {
	s, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "contract-conformance:", err)
		os.Exit(2)
	}
	testing.Init()
	_ = flag.CommandLine.Parse([]string{"-test.v=true", "-test.timeout=30m", "-test.run=" + s.run}) // flags that testing.Init has defined
	testing.Main(regexp.MatchString, []testing.InternalTest{{Name: "Conformance", F: func(t *testing.T) { contracttest.Run(t, s.harness()) }}}, nil, nil)
}

// service is the one to test.
type service struct {
	url, pendingURL string
	token           secret.String
	run             string
	lacks           contract.QuotaKinds
	unknown         []string
}

func parse(args []string, stderr io.Writer) (service, error) {
	var s service
	var tokenFile, quota, actions string
	f := flag.NewFlagSet("contract-conformance", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&s.url, "url", "", "the `address` of the contract API")
	f.StringVar(&tokenFile, "token-file", "", "the `file` that holds its bearer token")
	f.StringVar(&s.pendingURL, "pending-url", "", "the `address` of the same service where contracts are pending at first, if there is one")
	f.StringVar(&quota, "lacks-quota", "", "`bounds` of maxBuckets, maxKeys, maxBytes and maxObjects that the service refuses, with commas between")
	f.StringVar(&actions, "lacks-actions", "", "S3 `actions` that the service does not have, such as s3:GetObjectAcl, with commas between")
	f.StringVar(&s.run, "run", "", "only the tests whose names match the `expression`: Conformance/Provider/LostAnswers, for example")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 || s.url == "" || tokenFile == "" {
		return s, errors.New("--url and --token-file are needed, and there are no other arguments; see contract-conformance --help")
	}
	if _, err := regexp.Compile(s.run); err != nil {
		return s, fmt.Errorf("--run: %w", err)
	}
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return s, fmt.Errorf("--token-file: %w", err)
	}
	s.token = secret.New(strings.TrimSpace(string(token)))
	kinds := map[string]*bool{"maxBuckets": &s.lacks.Buckets, "maxKeys": &s.lacks.Keys, "maxBytes": &s.lacks.Bytes, "maxObjects": &s.lacks.Objects}
	for _, name := range list(quota) {
		kind, ok := kinds[name]
		if !ok {
			return s, fmt.Errorf("--lacks-quota: %q is none of maxBuckets, maxKeys, maxBytes and maxObjects", name)
		}
		*kind = true
	}
	s.unknown = list(actions)
	return s, nil
}

func list(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return s == "" })
}

func (s service) harness() contracttest.Harness {
	h := contracttest.Harness{
		Open:    func(t *testing.T) contracttest.Service { return open(t, s.url, s.token) },
		Refused: func(t *testing.T) contracttest.Service { return open(t, s.url, secret.New("not-the-token")) },
		Secrets: []string{s.token.Reveal()},
		Lacks:   s.lacks, Unknown: s.unknown,
	}
	if s.pendingURL != "" {
		h.Slow = func(t *testing.T) contracttest.Service { return open(t, s.pendingURL, s.token) }
	}
	return h
}

func open(t *testing.T, url string, token secret.String) contracttest.Service {
	t.Helper()
	client, err := transport.New(transport.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	l := &line{next: client.Transport}
	client.Transport = l
	p, err := contractapi.New(contractapi.Config{
		URL: url, Token: func() secret.String { return token }, HTTP: client, Observe: func(string, error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return contracttest.Service{Provider: p, Lose: l.lose, Calls: l.count}
}

// line is a way to the service that loses answers.
type line struct {
	next http.RoundTripper

	mu    sync.Mutex
	calls int
	lost  int // the call whose answer is lost; -1 for every request
}

func (l *line) lose(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls, l.lost = 0, n
}

func (l *line) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

var errLost = errors.New("the connection was lost")

// RoundTrip implements http.RoundTripper.
func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	l.calls++
	call, lost := l.calls, l.lost
	l.mu.Unlock()
	if lost < 0 {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, cmp.Or(r.Context().Err(), errLost) // a call that was given up is not lost
	}
	resp, err := l.next.RoundTrip(r)
	if err != nil || call != lost {
		return resp, err
	}
	_, err = io.Copy(io.Discard, resp.Body) // so that the service has done it
	_ = resp.Body.Close()
	return nil, cmp.Or(err, errLost)
}
