package peers

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico.dev/internal/pki"
	"portico.dev/internal/request"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// etcd holds the published descriptions of replicas.
type etcd struct {
	mu      sync.Mutex
	values  map[string][]byte
	changed chan struct{}
}

func newEtcd() *etcd { return &etcd{values: map[string][]byte{}, changed: make(chan struct{})} }

func (e *etcd) set(name string, value []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if value != nil && bytes.Equal(value, e.values[name]) {
		return
	}
	if value == nil {
		delete(e.values, name)
	} else {
		e.values[name] = value
	}
	close(e.changed)
	e.changed = make(chan struct{})
}

type section struct {
	*etcd
	name string
}

func (s section) Publish(value []byte) { s.set(s.name, value) }

func (s section) Received() (map[string][]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := maps.Clone(s.values)
	delete(others, s.name)
	return others, false
}

func (s section) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// join makes a replica that runs until the test is over.
func join(t *testing.T, e *etcd, name, address string, versions ...schema.GroupVersion) *Peers {
	t.Helper()
	p, err := New(Config{Section: section{e, name}, Name: name, Address: address, GroupVersions: versions, Logger: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

// knows waits until a replica is, or is not, reachable for another one.
func knows(t *testing.T, p *Peers, name string, want bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); p.Reachable(name) != want; {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("replica %s: Reachable(%s) = %t after a minute, want %t", p.config.Name, name, !want, want)
		}
	}
}

var ann = &user.DefaultInfo{Name: "ann", UID: "7", Groups: []string{"dev", "ops"}, Extra: map[string][]string{"scopes": {"a", "b"}}}

// handed is a request as another replica gets it: with a statement of from, over a connection of over.
func handed(t *testing.T, from, over *Peers, method, target string) *http.Request {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr, r.Host = "192.0.2.7:1234", "api.example.com"
	c := &request.Context{Context: r.Context(), AuditID: "audit-1"}
	text, err := from.State(r.WithContext(c), ann)
	if err != nil {
		t.Fatal(err)
	}
	got := httptest.NewRequest(method, target, nil)
	got.TLS = &tls.ConnectionState{}
	got.TLS.PeerCertificates = append(got.TLS.PeerCertificates, over.pair.Leaf())
	got.Header.Set(Header, text)
	return got
}

func TestVerifiedStatementContainsUserAndRequest(t *testing.T) {
	e := newEtcd()
	a, b := join(t, e, "a", "192.0.2.1:6443"), join(t, e, "b", "192.0.2.2:6443")
	knows(t, b, "a", true)
	s, err := b.Verify(handed(t, a, a, "GET", "/apis/x.example.com/v1/things?limit=5"))
	if err != nil {
		t.Fatal(err)
	}
	u := s.User()
	if u.GetName() != "ann" || u.GetUID() != "7" || strings.Join(u.GetGroups(), ",") != "dev,ops" || strings.Join(u.GetExtra()["scopes"], ",") != "a,b" {
		t.Errorf("user of the statement = %+v, want ann with uid, groups and scopes", u)
	}
	if s.AuditID != "audit-1" || s.Client != "192.0.2.7" || s.Host != "api.example.com" || s.Scheme != "http" {
		t.Errorf("statement = %+v, want the audit id, client, host and scheme of the request", s)
	}
}

// Only the statement of a live replica is valid, and only for the request that it describes.
func TestInvalidStatementsAreRejected(t *testing.T) {
	const target = "/apis/x.example.com/v1/things"
	e := newEtcd()
	a, b, c := join(t, e, "a", "192.0.2.1:6443"), join(t, e, "b", "192.0.2.2:6443"), join(t, e, "c", "192.0.2.3:6443")
	foreign := join(t, newEtcd(), "a", "192.0.2.1:6443") // of another etcd, with the name of a known replica
	knows(t, b, "a", true)
	knows(t, b, "c", true)
	forge := func(change func(*Statement)) func(*http.Request) {
		return func(r *http.Request) {
			s := Statement{
				RegisteredClaims: jwt.RegisteredClaims{
					Issuer: "a", Audience: jwt.ClaimStrings{audience}, ExpiresAt: jwt.NewNumericDate(time.Now().Add(statementLife)),
				},
				Method: "GET", Target: target, Name: "ann",
			}
			change(&s)
			text, err := jwt.NewWithClaims(jwt.SigningMethodES256, &s).SignedString(a.key)
			if err != nil {
				t.Error(err)
			}
			r.Header.Set(Header, text)
		}
	}
	for name, test := range map[string]struct {
		from, over *Peers
		change     func(*http.Request)
		good       bool
	}{
		"as it is":                              {a, a, func(*http.Request) {}, true},
		"without TLS":                           {a, a, func(r *http.Request) { r.TLS = nil }, false},
		"without a certificate":                 {a, a, func(r *http.Request) { r.TLS.PeerCertificates = nil }, false},
		"a certificate of nobody's":             {foreign, foreign, func(*http.Request) {}, false},
		"the certificate of another replica":    {a, c, func(*http.Request) {}, false},
		"a replica that speaks for another one": {c, a, func(*http.Request) {}, false},
		"without a statement":                   {a, a, func(r *http.Request) { r.Header.Del(Header) }, false},
		"two statements":                        {a, a, func(r *http.Request) { r.Header.Add(Header, r.Header.Get(Header)) }, false},
		"another method":                        {a, a, func(r *http.Request) { r.Method = "DELETE" }, false},
		"another target":                        {a, a, func(r *http.Request) { r.RequestURI = target + "?watch=true" }, false},
		"no signature": {a, a, func(r *http.Request) {
			parts := strings.Split(r.Header.Get(Header), ".")
			r.Header.Set(Header, parts[0]+"."+parts[1]+".")
		}, false},
		"the algorithm none": {a, a, func(r *http.Request) {
			text, err := jwt.NewWithClaims(jwt.SigningMethodNone, &Statement{Name: "root"}).SignedString(jwt.UnsafeAllowNoneSignatureType)
			if err != nil {
				t.Error(err)
			}
			r.Header.Set(Header, text)
		}, false},
		"forged as it should be": {a, a, forge(func(*Statement) {}), true},
		"in another's name":      {a, a, forge(func(s *Statement) { s.Issuer = "c" }), false},
		"for somebody else":      {a, a, forge(func(s *Statement) { s.Audience = jwt.ClaimStrings{"https://kubernetes.default.svc"} }), false},
		"without a user":         {a, a, forge(func(s *Statement) { s.Name = "" }), false},
		"without an end":         {a, a, forge(func(s *Statement) { s.ExpiresAt = nil }), false},
		"too old": {a, a, forge(func(s *Statement) {
			s.ExpiresAt = jwt.NewNumericDate(time.Now().Add(-clockSkew - 2*time.Second))
		}), false},
		"from the future": {a, a, forge(func(s *Statement) {
			s.IssuedAt = jwt.NewNumericDate(time.Now().Add(clockSkew + time.Minute))
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := handed(t, test.from, test.over, "GET", target)
			test.change(r)
			s, err := b.Verify(r)
			if (err == nil) != test.good || err != nil && s != nil {
				t.Errorf("Verify = %+v, %v; want a valid statement: %t", s, err, test.good)
			}
		})
	}
}

// serveAs starts a replica's server. It presents its certificate for clients unless the server name is the replicas' one.
func serveAs(t *testing.T, p func() *Peers, listener net.Listener, handler http.HandlerFunc) {
	t.Helper()
	clients, err := pki.NewAuthority("for clients")
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := clients.Issue(pki.Leaf{CommonName: "api", DNSNames: []string{"localhost"}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.Listener.Close()
	s.Listener, s.EnableHTTP2 = listener, true
	s.TLS = pki.ServerConfigFor(func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		return p().Certificate(pair.GetCertificate)(hello)
	})
	s.StartTLS()
	t.Cleanup(s.Close)
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A request with a body is forwarded to a live replica, and never to another server at its address.
func TestRequestIsForwardedToReplica(t *testing.T) {
	e, listener := newEtcd(), listen(t)
	a := join(t, e, "a", "192.0.2.1:6443")
	b := join(t, e, "b", listener.Addr().String())
	knows(t, a, "b", true)
	knows(t, b, "a", true)
	serving := b
	serveAs(t, func() *Peers { return serving }, listener, func(w http.ResponseWriter, r *http.Request) {
		s, err := b.Verify(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, s.Name+" ")
		_, _ = io.Copy(w, r.Body)
	})
	send := func(backend http.RoundTripper) (string, error) {
		r := httptest.NewRequest("POST", "/apis/x.example.com/v1/things", nil)
		text, err := a.State(r, ann)
		if err != nil {
			t.Fatal(err)
		}
		out, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+ServerName+r.URL.Path, bytes.NewReader([]byte("body")))
		if err != nil {
			t.Fatal(err)
		}
		out.Header.Set(Header, text)
		resp, err := backend.RoundTrip(out)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		return string(answer), err
	}
	backend, err := a.Backend([]string{"b"})
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := send(backend); err != nil || answer != "ann body" {
		t.Errorf("response of the replica = %q, %v; want \"ann body\"", answer, err)
	}
	if again, err := a.Backend([]string{"b"}); err != nil || again != backend {
		t.Errorf("second Backend differs from the first, error %v; want the same one", err)
	}

	// Another server has the address from here on.
	e.set("b", nil)
	knows(t, a, "b", false)
	if _, err := a.Backend([]string{"b"}); err == nil {
		t.Error("Backend of a replica that has ended returned no error, want one")
	}
	e.set("c", []byte(`{"address":"`+listener.Addr().String()+`","certificate":"other"}`))
	knows(t, a, "c", true)
	if backend, err = a.Backend([]string{"c"}); err != nil {
		t.Fatal(err)
	}
	if answer, err := send(backend); err == nil {
		t.Errorf("response of a server with another certificate = %q, want an error", answer)
	}
}

func TestServingListsReplicasOfGroupVersion(t *testing.T) {
	e := newEtcd()
	v1, v2 := schema.GroupVersion{Group: "apps", Version: "v1"}, schema.GroupVersion{Group: "apps", Version: "v2"}
	a := join(t, e, "a", "192.0.2.1:6443", v1)
	join(t, e, "b", "192.0.2.2:6443", v2, v1)
	join(t, e, "c", "", v2) // takes no requests
	knows(t, a, "b", true)
	if got := a.Serving(v2); len(got) != 1 || got[0] != "b" {
		t.Errorf("Serving(v2) = %q, want b", got)
	}
	if got := a.Serving(schema.GroupVersion{Group: "batch", Version: "v1"}); len(got) != 0 {
		t.Errorf("Serving(batch) = %q, want none", got)
	}
	e.set("d", []byte("not JSON"))
	e.set("b", nil)
	knows(t, a, "b", false)
	if got := a.Serving(v2); len(got) != 0 {
		t.Errorf("Serving(v2) after the replica ended = %q, want none", got)
	}
}

// The statements of a replica with an expired lease stay valid for a while: it may have lost only etcd, and forwards requests
// that need etcd. No requests are forwarded to it.
func TestExpiredReplicaStatementStaysValidTemporarily(t *testing.T) {
	const target = "/api/v1/namespaces/default/configmaps"
	e := newEtcd()
	a, b := join(t, e, "a", "192.0.2.1:6443"), join(t, e, "b", "192.0.2.2:6443")
	knows(t, b, "a", true)
	description := e.values["a"] // the key is not renewed any more
	var passed atomic.Int64      // nanoseconds
	later := func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	for _, p := range []*Peers{a, b} {
		p.mu.Lock()
		p.now = later
		p.mu.Unlock()
	}
	believed := func(want bool, when string) {
		t.Helper()
		if _, err := b.Verify(handed(t, a, a, "POST", target)); (err == nil) != want {
			t.Errorf("%s: Verify error = %v, want valid %t", when, err, want)
		}
	}
	e.set("a", nil)
	knows(t, b, "a", false)
	believed(true, "its lease has ended")
	if _, err := b.Backend([]string{"a"}); !errors.Is(err, errNoneLeft) {
		t.Errorf("Backend of a replica with an expired lease: error = %v, want errNoneLeft", err)
	}
	passed.Store(int64(departedLife) - int64(time.Second))
	believed(true, "just within the time")
	passed.Store(int64(departedLife) + int64(time.Minute))
	believed(false, "after that")
	e.set("a", description)
	knows(t, b, "a", true)
	believed(true, "it has joined again")
}

// The number of remembered replicas is bounded, for any number of departed ones.
func TestDepartedReplicasAreBounded(t *testing.T) {
	e := newEtcd()
	b := join(t, e, "b", "192.0.2.2:6443")
	for i := range 2 * maxDeparted {
		name := fmt.Sprintf("r%03d", i)
		e.set(name, fmt.Appendf(nil, `{"address":"192.0.2.9:6443","certificate":"%d"}`, i))
		knows(t, b, name, true)
		e.set(name, nil)
		knows(t, b, name, false)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.departed) != maxDeparted {
		t.Errorf("%d departed replicas are remembered, want %d", len(b.departed), maxDeparted)
	}
	if _, last := b.departed[fmt.Sprint(2*maxDeparted-1)]; !last {
		t.Error("the last departed replica is not remembered, want it kept")
	}
}

// A replica of a release that describes itself otherwise gets no requests. Fields that it adds are ignored.
func TestUnreadableReplicaDescriptionGetsNoRequests(t *testing.T) {
	e := newEtcd()
	e.set("newer", []byte(`{"address":["192.0.2.1:6443"],"certificate":"x"}`))
	e.set("added", []byte(`{"address":"192.0.2.2:6443","certificate":"y","zones":["a"]}`))
	p := join(t, e, "own", "127.0.0.1:1")
	knows(t, p, "added", true)
	if p.Reachable("newer") {
		t.Error("Reachable of a replica with an unreadable description = true, want false")
	}
}

func TestUnreadableValueIsReportedOnce(t *testing.T) {
	var u unreadable
	for i, c := range []struct {
		name, value string
		want        bool
	}{{"a", "1", true}, {"a", "1", false}, {"b", "1", true}, {"a", "2", true}, {"a", "2", false}} {
		if got := u.add(c.name, []byte(c.value)); got != c.want {
			t.Errorf("%d: add(%s=%s) = %t, want %t", i, c.name, c.value, got, c.want)
		}
	}
	for i := range 10 * maxUnreadable {
		u.add(fmt.Sprint(i), nil)
	}
	if len(u) > maxUnreadable {
		t.Errorf("%d unreadable replicas are remembered, want at most %d", len(u), maxUnreadable)
	}
}

// A statement costs one signature, only on forwarded requests.
func BenchmarkStatement(b *testing.B) {
	e := newEtcd()
	p, err := New(Config{Section: section{e, "a"}, Name: "a"})
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/apis/x.example.com/v1/things", nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.State(r, ann); err != nil {
			b.Fatal(err)
		}
	}
}
