package transport_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
	"github.com/contract-cosi/contract-cosi-driver/pkg/transport"
)

// What a service names is where signed requests go and what applications are
// told: it is looked at before either.
func TestAllowed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own     string
		list    []string
		allowed []string
		refused []string
	}{
		"the service's own host": {
			"https://contracts.example.com:7071/api", nil,
			[]string{"https://contracts.example.com", "https://contracts.example.com:9000/", "https://CONTRACTS.example.com."},
			[]string{
				"http://contracts.example.com", "https://s3.example.com", "https://x.contracts.example.com", "https://contracts.example.com.evil.example",
				"https://evil.example/contracts.example.com", "https://contracts.example.com@evil.example", "https://evil.example?contracts.example.com",
				"https://127.0.0.1", "https://169.254.169.254", "https://[::1]:443", "ftp://contracts.example.com", "https://", "://", "", "contracts.example.com",
				"https://contracts.example.com/#x", "https://contracts.example.com?x=y",
			},
		},
		"named hosts": {
			"https://contracts.example.com", []string{"https://s3.example.net", "https://10.1.2.3:9000", "https://[fd00::1]"},
			[]string{"https://s3.example.net", "https://s3.example.net:8443", "https://10.1.2.3:9000", "https://[fd00::1]:9000"},
			[]string{"http://s3.example.net", "https://a.s3.example.net", "https://10.1.2.3", "https://10.1.2.3:9001", "https://10.1.2.4:9000", "https://[fd00::2]"},
		},
		"all below a domain": {
			"https://contracts.example.com", []string{"https://*.s3.example.net"},
			[]string{"https://eu.s3.example.net", "https://a.b.s3.example.net"},
			[]string{"https://s3.example.net", "https://evils3.example.net", "https://eu.s3.example.net.evil.example"},
		},
		"a service without TLS": {
			"http://127.0.0.1:7071", []string{"http://*.lan.example", "https://s3.example.net"},
			[]string{"http://127.0.0.1:9000", "https://127.0.0.1", "http://s3.lan.example", "https://s3.example.net"},
			[]string{"http://127.0.0.2:9000", "http://localhost:9000", "https://s3.lan.example", "http://s3.example.net"},
		},
	} {
		a, err := transport.NewAllowed(c.own, c.list)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, address := range c.allowed {
			if err := a.Check(address); err != nil {
				t.Errorf("%s: %s: %v", name, address, err)
			}
		}
		for _, address := range c.refused {
			if err := a.Check(address); err == nil {
				t.Errorf("%s: %s is allowed", name, address)
			}
		}
	}
	for _, bad := range []string{
		"", "s3.example.com", "https://", "https://*", "https://*.", "https://*.com", "https://s3.*.example.com", "https://*s3.example.com", "ftp://s3.example.com",
		"https://s3.example.com/path", "https://u:p@s3.example.com", "https://s3.example.com?x", "http://s3.example.com", "10.0.0.0/33",
	} {
		if _, err := transport.NewAllowed("https://contracts.example.com", []string{"https://s3.example.com", bad}); err == nil || !strings.HasPrefix(err.Error(), "[1]: ") {
			t.Errorf("%q in the list: %v", bad, err)
		}
	}
	if err := (transport.Allowed{}).Check("http://anything.example"); err != nil {
		t.Errorf("without a list: %v", err)
	}
}

// A request that goes to another address than those that are allowed, because
// an old record says so, or because a name leads there, is not sent.
func TestRequestsToOtherAddresses(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	must(t, err)
	for name, c := range map[string]struct {
		own  string
		list []string
		sent bool
		says string
	}{
		"own":                      {server.URL, nil, true, ""},
		"named":                    {"http://contracts.example.com", []string{server.URL}, true, ""},
		"another port":             {"http://contracts.example.com", []string{"http://127.0.0.1:1"}, false, "allowedEndpoints do not have it"},
		"not named":                {"http://contracts.example.com", nil, false, "allowedEndpoints do not have it"},
		"not public":               {"http://contracts.example.com", []string{"http://*.0.0.1"}, false, "not public"},
		"not public, but listed":   {"http://contracts.example.com", []string{"http://*.0.0.1", "127.0.0.0/8"}, true, ""},
		"not public, others are":   {"http://contracts.example.com", []string{"http://*.0.0.1", "10.0.0.0/8", "::1/128"}, false, "not public"},
		"a bucket's name in front": {"http://0.0.1", nil, true, ""},
	} {
		allowed, err := transport.NewAllowed(c.own, c.list)
		must(t, err)
		asked = 0
		_, err = get(client(t, transport.Config{Allowed: allowed}), "http://127.0.0.1:"+at.Port())
		if (err == nil) != c.sent || (asked == 1) != c.sent {
			t.Errorf("%s: asked %d times: %v", name, asked, err)
		}
		if err != nil && (!fault.Is(err, fault.FailedPrecondition) || fault.Unanswered(err) || !strings.Contains(fault.NoAnswer(err, "", "the storage").Error(), c.says)) {
			t.Errorf("%s: %s: %v", name, fault.KindOf(err), err)
		}
	}
}

// The addresses of a name that a wildcard covers are looked at when it is
// connected, whatever it led to before.
func TestAddressesThatAreNotPublic(t *testing.T) {
	t.Parallel()
	allowed, err := transport.NewAllowed("https://contracts.example.com", []string{
		"https://*.0.0.1", "https://*.169.254", "https://*.1.1", "https://*.0.0.0",
	})
	must(t, err)
	c := client(t, transport.Config{Allowed: allowed})
	for _, host := range []string{
		"127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.1.1", "169.254.169.254", "100.64.1.1", "0.0.0.0", "240.0.0.1", "224.0.0.1", "198.18.1.1", "192.0.0.1",
	} {
		if _, err := get(c, "https://"+host+":9"); !fault.Is(err, fault.FailedPrecondition) {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// Without a list, no text names another host than the service's own.
func FuzzAllowed(f *testing.F) {
	for _, address := range []string{"https://contracts.example.com:1/", "https://contracts.example.com@evil.example", "https://evil.example#contracts.example.com", "https://[::1]"} {
		f.Add(address)
	}
	own, err := transport.NewAllowed("https://contracts.example.com", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, address string) {
		if own.Check(address) != nil {
			return
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			return
		}
		if host := strings.TrimSuffix(strings.ToLower(request.URL.Hostname()), "."); request.URL.Scheme != "https" || host != "contracts.example.com" {
			t.Errorf("%q leads to %s", address, request.URL)
		}
	})
}

// What is refused is told by its place in the list.
func FuzzNewAllowed(f *testing.F) {
	for _, entry := range []string{"https://*.example.com", "https://s3.example.com:9000", "10.0.0.0/8", "https://*"} {
		f.Add(entry)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		a, err := transport.NewAllowed("https://contracts.example.com", []string{entry})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "[0]: ") {
				t.Error(err)
			}
			return
		}
		if a.Check("http://contracts.example.com") == nil || a.Check("https://10.0.0.1") == nil && !strings.Contains(entry, "10.0.0.1") && !strings.Contains(entry, "*") {
			t.Errorf("%q allows too much", entry)
		}
	})
}
