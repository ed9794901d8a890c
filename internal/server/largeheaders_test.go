package server

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/overload"
)

// fillWithHeaders takes memory for headers from one address until the limit, and returns the grants.
func fillWithHeaders(m *HeaderMemory, address string) (grants []*httpmsg.HeaderGrant) {
	for {
		h := httpmsg.NewConnHeaders(m, &tls.ConnectionState{}, &net.TCPAddr{IP: net.ParseIP(address)})
		if !h.Grow() {
			return grants
		}
		grants = append(grants, h.Detach())
	}
}

func TestA39LargeHeadersAreBoundedBeforeAuthentication(t *testing.T) {
	m := NewHeaderMemory(overload.Limit{}, nil)
	first := fillWithHeaders(m, "192.0.2.1")
	held := m.unknown.Total()
	if held == 0 || held > m.unknownMax*4/5 {
		t.Errorf("header memory of one network = %d of %d bytes, want more than 0 and at most four fifths", held, m.unknownMax)
	}
	if got := m.Charged(); got != held {
		t.Errorf("reported header memory = %d bytes, want %d", got, held)
	}
	second := fillWithHeaders(m, "192.0.2.2")
	if len(second) == 0 {
		t.Error("header memory for a second network = 0 grants, want at least one")
	}
	if total := m.unknown.Total(); total > m.unknownMax {
		t.Errorf("header memory of all networks = %d bytes, want at most %d", total, m.unknownMax)
	}
	for _, g := range append(first, second...) {
		g.Release()
		g.Release()
	}
	if total := m.unknown.Total(); total != 0 {
		t.Errorf("header memory after all requests = %d bytes, want 0", total)
	}
}

func TestA39LargeHeadersAreBoundedForEachUser(t *testing.T) {
	m := NewHeaderMemory(overload.Limit{}, nil)
	alice, bob := &user.DefaultInfo{Name: "alice"}, &user.DefaultInfo{Name: "bob"}
	admin := &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}
	grant := func() *httpmsg.HeaderGrant {
		t.Helper()
		h := httpmsg.NewConnHeaders(m, &tls.ConnectionState{}, &net.TCPAddr{IP: net.ParseIP("192.0.2.1")})
		if !h.Grow() {
			t.Fatal("no header memory before authentication, want a grant")
		}
		return h.Detach()
	}
	const size = 4 << 20
	var all []*httpmsg.HeaderGrant
	for {
		g := grant()
		all = append(all, g)
		if !m.takeForUser(g, size, alice) {
			break
		}
	}
	if held := m.users.Total(); held == 0 || held > m.usersMax*4/5 {
		t.Errorf("header memory of one user = %d of %d bytes, want more than 0 and at most four fifths", held, m.usersMax)
	}
	before := m.unknown.Total() // includes the last header, which was rejected
	for _, u := range []*user.DefaultInfo{bob, admin} {
		g := grant()
		all = append(all, g)
		if !m.takeForUser(g, size, u) {
			t.Errorf("no header memory for %s after alice reached the limit, want a grant", u.Name)
		}
		if now := m.unknown.Total(); now != before {
			t.Errorf("header memory before authentication, after the grant for %s = %d bytes, want %d", u.Name, now, before)
		}
	}
	anonymous := grant()
	all = append(all, anonymous)
	if !m.takeForUser(anonymous, size, &user.DefaultInfo{Name: user.Anonymous}) || m.unknown.Total() == before {
		t.Errorf("header memory of the network with an anonymous request = %d bytes, want more than %d", m.unknown.Total(), before)
	}
	for _, g := range all {
		g.Release()
	}
	if users, unknown := m.users.Total(), m.unknown.Total(); users != 0 || unknown != 0 {
		t.Errorf("header memory after all requests = %d bytes of users and %d of networks, want 0", users, unknown)
	}
}

func TestLargeHeadersOfTrustedConnectionsAreNotCharged(t *testing.T) {
	m := NewHeaderMemory(overload.Limit{}, func(*tls.ConnectionState) bool { return true })
	fillWithHeaders(m, "192.0.2.1")
	for certificates, want := range map[int]bool{0: false, 1: true} {
		state := &tls.ConnectionState{PeerCertificates: make([]*x509.Certificate, certificates)}
		h := httpmsg.NewConnHeaders(m, state, &net.TCPAddr{IP: net.ParseIP("192.0.2.1")})
		for h.Grow() { // until the size limit
		}
		bytes, _ := h.Extra()
		if got := bytes+httpmsg.MaxHeader == httpmsg.MaxLargeHeader && h.Detach() == nil; got != want {
			t.Errorf("header memory with %d certificates = %d additional bytes, want all without memory = %t", certificates, bytes, want)
		}
	}
}

// The same holds without a memory limit.
func TestLargeHeadersOfUserDoNotCountAsFlood(t *testing.T) {
	t.Parallel()
	b := newBench("alice *")
	b.config.LargeHeaders = NewHeaderMemory(overload.Limit{}, nil)
	l := b.listen(t, time.Second, func(s *Server) { s.c.LargeHeaders = b.config.LargeHeaders })
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: l.roots}, ForceAttemptHTTP2: true, MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	header := http.Header{"Test-User": {"alice"}}
	for i := range 600 {
		header.Add("X-Many", strconv.Itoa(i))
	}
	for i := range 300 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.address+"/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatalf("request %d with large headers failed: %v, want no error", i, err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.ProtoMajor != 2 || response.StatusCode != http.StatusOK {
			t.Fatalf("request %d with large headers = %s %s, want HTTP/2 200", i, response.Proto, response.Status)
		}
	}
	if err := l.stop(); err != nil {
		t.Error(err)
	}
	if users, unknown := b.config.LargeHeaders.users.Total(), b.config.LargeHeaders.unknown.Total(); users != 0 || unknown != 0 {
		t.Errorf("header memory after all requests = %d bytes of users and %d of networks, want 0", users, unknown)
	}
}
