package transport

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"testing"
)

func TestA22GuardRejectsForbiddenAddresses(t *testing.T) {
	mine := func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.ParseIP("10.1.1.1"), Mask: net.CIDRMask(8, 32)}}, nil
	}
	own := func() []string { return []string{"0.0.0.0:6443", "192.168.5.5:2379", "[::1]:9443"} }
	strict := guard{own: own, local: mine}
	tests := []struct {
		name    string
		guard   guard
		address string
		refused bool
	}{
		{"a pod", strict, "10.2.3.4:8443", false},
		{"a pod over IPv6", strict, "[2001:db8::7]:8443", false},
		{"a public address", strict, "93.184.216.34:443", false},
		{"loopback", strict, "127.0.0.1:443", true},
		{"another loopback", strict, "127.8.8.8:443", true},
		{"loopback over IPv6", strict, "[::1]:443", true},
		{"loopback in IPv6 clothes", strict, "[::ffff:127.0.0.1]:443", true},
		{"loopback, allowed", guard{own: own, local: mine, loopback: true}, "127.0.0.1:443", false},
		{"unspecified", strict, "0.0.0.0:443", true},
		{"unspecified, loopback allowed", guard{own: own, local: mine, loopback: true}, "0.0.0.0:443", true},
		{"zero net", strict, "0.1.2.3:443", true},
		{"unspecified over IPv6", strict, "[::]:443", true},
		{"metadata", strict, "169.254.169.254:80", true},
		{"metadata in IPv6 clothes", strict, "[::ffff:169.254.169.254]:80", true},
		{"metadata behind NAT64", strict, "[64:ff9b::a9fe:a9fe]:80", true},
		{"metadata behind 6to4", strict, "[2002:a9fe:a9fe::1]:80", true},
		{"metadata of AWS over IPv6", strict, "[fd00:ec2::254]:80", true},
		{"A52: credentials of EKS Pod Identity", strict, "[fd00:ec2::23]:80", true},
		{"A52: another service of AWS for its machines", strict, "[fd00:ec2::253]:53", true},
		{"A52: metadata of Google Cloud", strict, "[fd20:ce::254]:80", true},
		{"A52: metadata of Oracle Cloud over IPv6", strict, "[fd00:c1::a9fe:a9fe]:80", true},
		{"A52: metadata of Scaleway over IPv6", strict, "[fd00:42::42]:80", true},
		{"A52: metadata of Linode over IPv6", strict, "[fd00:a9fe:a9fe::1]:80", true},
		{"A52: metadata of Alibaba over IPv6", strict, "[fd00:100::100:200]:80", true},
		{"A52: a pod with a unique local address", strict, "[fd00:1::7]:8443", false},
		{"A52: metadata behind NAT64 of local use", strict, "[64:ff9b:1::a9fe:a9fe]:80", true},
		{"A52: metadata behind NAT64 of local use with a prefix of 48 bits", strict, "[64:ff9b:1:a9fe:a9:fe00::]:80", true},
		{"A52: metadata behind NAT64 of local use with a prefix of 56 bits", strict, "[64:ff9b:1:a9:fe:a9fe::]:80", true},
		{"A52: metadata behind NAT64 of local use with a prefix of 64 bits", strict, "[64:ff9b:1:0:a9:fea9:fe00:0]:80", true},
		{"A52: a pod behind NAT64 of local use", strict, "[64:ff9b:1::a02:304]:443", false},
		{"A52: a pod behind NAT64 of local use with a prefix of 48 bits", strict, "[64:ff9b:1:a7f:fe:a900::]:443", false},
		{"A52: a pod behind NAT64 of local use with a prefix of 56 bits", strict, "[64:ff9b:1:a:7f:1fe::]:443", false},
		{"A52: a pod behind NAT64 of local use with a prefix of 64 bits", strict, "[64:ff9b:1:0:a:201:7f00:0]:443", false},
		{"A52: a pod behind NAT64", strict, "[64:ff9b::a02:304]:443", false},
		{"A52: metadata behind stateless translation", strict, "[::ffff:0:a9fe:a9fe]:80", true},
		{"A52: metadata as an IPv4-compatible address", strict, "[::a9fe:a9fe]:80", true},
		{"A52: metadata behind Teredo", strict, "[2001:0:5db8:d822:0:ffff:5601:5601]:80", true},
		{"A52: a Teredo server that is a metadata service", strict, "[2001:0:a9fe:a9fe:0:ffff:f5fd:fcfb]:80", true},
		{"A52: a pod behind Teredo", strict, "[2001:0:5db8:d822:0:ffff:f5fd:fcfb]:443", false},
		{"A52: metadata behind ISATAP", strict, "[2001:db8::5efe:a9fe:a9fe]:80", true},
		{"A52: our listener behind NAT64", strict, "[64:ff9b::a01:101]:6443", true},
		{"A52: our listener behind 6to4", strict, "[2002:c0a8:505::1]:2379", true},
		{"metadata of Alibaba", strict, "100.100.100.200:80", true},
		{"metadata of Azure", strict, "168.63.129.16:80", true},
		{"link-local with a zone", strict, "[fe80::1%eth0]:443", true},
		{"multicast", strict, "224.0.0.1:443", true},
		{"multicast over IPv6", strict, "[ff02::1]:443", true},
		{"broadcast", strict, "255.255.255.255:443", true},
		{"our listener by an address of this machine", strict, "10.1.1.1:6443", true},
		{"another port of this machine", strict, "10.1.1.1:6444", false},
		{"our listener's port elsewhere", strict, "10.1.1.2:6443", false},
		{"our listener on one address", strict, "192.168.5.5:2379", true},
		{"our listener though loopback is allowed", guard{own: own, local: mine, loopback: true}, "[::1]:9443", true},
		{"our listener though its network is allowed",
			guard{own: own, local: mine, allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, "10.1.1.1:6443", true},
		{"link-local, allowed by the operator",
			guard{own: own, local: mine, allow: []netip.Prefix{netip.MustParsePrefix("169.254.10.0/24")}}, "169.254.10.7:443", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := test.guard.check(netip.MustParseAddrPort(test.address))
			var forbidden *ForbiddenAddressError
			if refused := errors.As(err, &forbidden); refused != test.refused {
				t.Errorf("check(%s) refused = %t with the error %v, want %t", test.address, refused, err, test.refused)
			}
		})
	}
}

// The guard checks resolved addresses: a host name does not reveal its address.
func TestA22NameResolvingToForbiddenAddressIsRejected(t *testing.T) {
	w := newTestEnv(t)
	s := w.serve(text("reached"))
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	set := w.set(func(o *Options) { o.AllowLoopback = false })
	spec := w.spec("localhost:" + port)
	b, err := set.Backend(spec)
	if err != nil {
		t.Fatal(err)
	}
	_, err = get(t, b)
	var forbidden *ForbiddenAddressError
	var failed *Error
	if !errors.As(err, &forbidden) || !errors.As(err, &failed) || failed.Op != OpDial || failed.Sent {
		t.Fatalf("GET from a loopback address error = %v, want ForbiddenAddressError of the dial, not sent", err)
	}
	if _, err = b.DialUpgrade(t.Context()); !errors.As(err, &forbidden) {
		t.Errorf("DialUpgrade to a loopback address error = %v, want ForbiddenAddressError", err)
	}
	if _, err = get(t, b.Probe()); !errors.As(err, &forbidden) {
		t.Errorf("probe of a loopback address error = %v, want ForbiddenAddressError", err)
	}

	spec.LoopbackOK = true
	if b, err = set.Backend(spec); err != nil {
		t.Fatal(err)
	}
	if body, err := get(t, b); err != nil || body != "reached" {
		t.Errorf("GET from an allowed loopback address = %q with the error %v, want reached", body, err)
	}

	itself := w.set(func(o *Options) { o.OwnAddresses = func() []string { return []string{":" + port} } })
	if b, err = itself.Backend(spec); err != nil {
		t.Fatal(err)
	}
	if _, err = get(t, b); !errors.As(err, &forbidden) {
		t.Errorf("GET from Portico's own listener error = %v, want ForbiddenAddressError", err)
	}
	if s.conns.Load() != 1 {
		t.Errorf("%d connections reached the server, want 1", s.conns.Load())
	}
}

func TestEnvironmentProxyIsNotUsed(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	w := newTestEnv(t)
	s := w.serve(http.RedirectHandler("https://elsewhere.example/", http.StatusFound))
	b := w.backend(w.set(), s.address)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://x/apis", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := b.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusFound {
		t.Errorf("status of a redirect = %d, want 302", resp.StatusCode)
	}
}
