package transport

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/contract-cosi/contract-cosi-driver/pkg/fault"
)

// Allowed are the addresses to which a service may send the driver, with
// signed requests, by naming them: the service's own host, and what the
// configuration lists. The zero Allowed allows all.
type Allowed struct {
	secure bool // the service's own address is https, so all others are
	hosts  []host
	blocks []netip.Prefix
}

// host is one that is named, or all that are below it.
type host struct {
	scheme, name, port string // any port if it is ""
	below              bool
}

// NewAllowed reads a list, for the service that is at own. An entry is an
// address such as https://s3.example.com, with a port if only that one is meant;
// https://*.s3.example.com for all names below it, which must not lead to
// addresses that are not public; or a block of such addresses to which they may.
func NewAllowed(own string, list []string) (Allowed, error) {
	base, err := url.Parse(own)
	if err != nil || base.Hostname() == "" {
		return Allowed{}, errors.New("the service's own address is none")
	}
	a := Allowed{secure: base.Scheme == "https", hosts: []host{{name: base.Hostname()}}}
	for i, text := range list {
		if block, err := netip.ParsePrefix(text); err == nil {
			a.blocks = append(a.blocks, block.Masked())
			continue
		}
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return Allowed{}, fmt.Errorf("[%d]: it is neither an address such as https://s3.example.com or https://*.s3.example.com nor a block such as 10.0.0.0/8", i)
		}
		h := host{scheme: u.Scheme, port: u.Port()}
		h.name, h.below = strings.CutPrefix(u.Hostname(), "*.")
		if h.name == "" || strings.Contains(h.name, "*") || h.below && !strings.Contains(h.name, ".") {
			return Allowed{}, fmt.Errorf("[%d]: %q is no name of a host, nor *. and the name of a domain", i, u.Hostname())
		}
		if a.secure && u.Scheme == "http" {
			return Allowed{}, fmt.Errorf("[%d]: it is http, and the service's own address is https", i)
		}
		a.hosts = append(a.hosts, h)
	}
	return a, nil
}

// Check reports why a service may not name an address.
func (a Allowed) Check(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("it is no address of an S3 service")
	case len(a.hosts) == 0:
		return nil
	}
	if ok, _ := a.covers(u, false); !ok {
		return errors.New("the backend's allowedEndpoints do not have it; add it there if it is the service's")
	}
	return nil
}

// covers reports whether an address is allowed, and whether the name of its
// host is: then it may lead anywhere. buckets also allows the names below that,
// which are those of virtual hosts.
func (a Allowed) covers(u *url.URL, buckets bool) (ok, named bool) {
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	for _, h := range a.hosts {
		is := !h.below && name == strings.ToLower(h.name)
		below := (h.below || buckets) && strings.HasSuffix(name, "."+strings.ToLower(h.name))
		if (is || below) && (h.scheme == "" || h.scheme == u.Scheme) && (h.port == "" || h.port == u.Port()) && (!a.secure || u.Scheme == "https") {
			ok, named = true, named || !h.below
		}
	}
	return ok, named
}

type publicKey struct{}

// only lets only requests to allowed addresses through.
func (a Allowed) only(next http.RoundTripper, proxy func(*http.Request) (*url.URL, error)) http.RoundTripper {
	return over{next, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		ok, named := a.covers(r.URL, true)
		if !ok {
			return unsent(r, final(fault.FailedPrecondition, nil, "was not sent to %s: the backend's allowedEndpoints do not have it", r.URL.Host))
		}
		if through, err := proxy(r); !named && through == nil && err == nil { // a proxy resolves names by itself
			r = r.WithContext(context.WithValue(r.Context(), publicKey{}, a.blocks))
		}
		return next.RoundTrip(r)
	}}
}

// special are blocks whose addresses are not public, beside those that package
// netip tells (IANA's special-purpose registries), among them those that lead to
// others by translation.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"),
}

// control refuses, where gate asked for that, to connect a name that a service
// has chosen to an address that is not public.
func control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	but, asked := ctx.Value(publicKey{}).([]netip.Prefix)
	at, err := netip.ParseAddrPort(address)
	ip := at.Addr().Unmap()
	holds := func(b netip.Prefix) bool { return b.Contains(ip) }
	public := err == nil && ip.IsGlobalUnicast() && !ip.IsPrivate() && !slices.ContainsFunc(special, holds)
	if !asked || public || slices.ContainsFunc(but, holds) {
		return nil
	}
	return final(fault.FailedPrecondition, nil, "was not sent: a name that the service gave leads to an address that is not public; name the host in the backend's allowedEndpoints, or the block of the address, if that is right")
}
