package httpmsg

import (
	"net"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"
)

// An accepted authority is a host with an optional port for net/url, for net, and in a Host header.
func FuzzAuthority(f *testing.F) {
	for _, authority := range []string{
		"", "a", "a.b-c_d~", "a:1", "a:", "a:65535", "1.2.3.4:5", "[::1]", "[::1]:6443", "a:123456", "a:b", "a:1:2", "a:-1", ":1", "u@a", "a,b", "a b", "a/b",
		"a%62", "[::1", "::1", "[::1]x", "[a]", "[1.2.3.4]", "a[::1]", "[fe80::1%25eth0]", "a]", "\u00e4", "a\x00", "a\r\nb: c", "kubernetes.default.svc:443", "127.0.0.1:6443",
	} {
		f.Add(authority)
	}
	f.Fuzz(func(t *testing.T, authority string) {
		if CheckAuthority(authority) != nil || authority == "" {
			return
		}
		if !httpguts.ValidHostHeader(authority) || strings.ContainsAny(authority, "@/?#\\ ,") {
			t.Fatalf("accepted authority %q is not a valid Host header, want an error of CheckAuthority", authority)
		}
		u, err := url.Parse("https://" + authority + "/x")
		if err != nil || u.Host != authority || u.User != nil || u.Path != "/x" || u.Hostname() == "" {
			t.Fatalf("url.Parse with the authority %q = %+v, error %v, want only a host", authority, u, err)
		}
		if u.Port() == "" {
			return
		}
		host, port, err := net.SplitHostPort(authority)
		if err != nil || host != u.Hostname() || port != u.Port() {
			t.Fatalf("SplitHostPort(%q) = %q, %q, %v, want %q and %q", authority, host, port, err, u.Hostname(), u.Port())
		}
	})
}
