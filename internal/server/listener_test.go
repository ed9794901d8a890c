package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
)

type listening struct {
	address string
	roots   *x509.CertPool
	stop    func() error
}

// listen runs a real server with the whole chain in front of b's handler.
func (b *bench) listen(t *testing.T, grace time.Duration) *listening {
	t.Helper()
	authority, err := pki.NewAuthority("cluster")
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := authority.Issue(pki.Leaf{CommonName: "front", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{
		Listener: listener, TLS: pki.ServerConfig(pair), Handler: b.chain(t), Health: NewHealth(zap.NewNop()),
		Drainer: b.config.Drainer, Proxy: proxy.New(proxy.Config{}), Logger: zap.NewNop(), ShutdownGrace: grace,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	pool := x509.NewCertPool()
	pool.AddCert(authority.Certificate)
	l := &listening{address: listener.Addr().String(), roots: pool}
	var result error
	stopped := false
	l.stop = func() error {
		if !stopped {
			stopped = true
			cancel()
			result = <-done
		}
		return result
	}
	t.Cleanup(func() { _ = l.stop() })
	return l
}

func (l *listening) client(t *testing.T, h2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: l.roots}, ForceAttemptHTTP2: h2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func TestHTTP2AndHTTP1AreServed(t *testing.T) {
	b := newBench("alice *")
	b.handler = func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.ProtoMajor) }
	l := b.listen(t, time.Second)
	for _, h2 := range []bool{true, false} {
		r, _ := http.NewRequest(http.MethodGet, "https://"+l.address+"/api", nil)
		r.Header.Set("Test-User", "alice")
		res, err := l.client(t, h2).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(io.LimitReader(res.Body, 10))
		res.Body.Close()
		if want := map[bool]string{true: "2", false: "1"}[h2]; string(body) != want {
			t.Errorf("HTTP/%s, want HTTP/%s", body, want)
		}
	}
}

// Rows of the attack tables that only raw bytes can show. Each sends one request, and some a second one behind it that
// must never be served as a request of its own.
func TestRawRequests(t *testing.T) {
	b := newBench("alice *")
	reached := make(chan string, 16)
	b.handler = func(w http.ResponseWriter, r *http.Request) { reached <- r.Method + " " + r.RequestURI }
	l := b.listen(t, time.Second)
	for name, c := range map[string]struct {
		raw  string
		code string
	}{
		"A16 encoded traversal":  {"GET /apis/g/v1/namespaces/a/foos/x%2F..%2F..%2Fb HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\n\r\n", "400"},
		"A16 dot segments":       {"GET /api/v1/namespaces/../secrets HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\n\r\n", "400"},
		"A18 absolute form":      {"GET http://169.254.169.254/api HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\n\r\n", "400"},
		"A18 two hosts":          {"GET /api HTTP/1.1\r\nHost: a\r\nHost: b\r\nTest-User: alice\r\n\r\n", "400"},
		"A18 no host":            {"GET /api HTTP/1.1\r\nTest-User: alice\r\n\r\n", "400"},
		"A18 CONNECT":            {"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\nTest-User: alice\r\n\r\n", "405"},
		"A18 TRACE":              {"TRACE /api HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\n\r\n", "405"},
		"A18 asterisk":           {"OPTIONS * HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\n\r\n", ""},
		"A21 semicolon":          {"GET /api?a=1;b=2 HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\n\r\n", "400"},
		"A8 a blank in a header": {"GET /api HTTP/1.1\r\nHost: a\r\nX-Remote-User : root\r\nTest-User: alice\r\n\r\n", "400"},
		"A19 two lengths":        {"POST /api HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400"},
		"A19 odd coding":         {"POST /api HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "501"},
		"headers without end":    {"GET /api HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 128<<10) + "\r\n\r\n", "431"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := tls.Dial("tcp", l.address, &tls.Config{RootCAs: l.roots, NextProtos: []string{"http/1.1"}})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			_, _ = io.WriteString(conn, c.raw) // a server that has seen enough may stop reading
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if c.code != "" && !strings.HasPrefix(res.Status, c.code) {
				t.Errorf("answered %s, want %s", res.Status, c.code)
			}
			select {
			case what := <-reached:
				t.Errorf("%s was served", what)
			default:
			}
		})
	}
}

// net/http accepts a body with both framings; what matters is that the rest of the bytes is never another request.
func TestNothingIsSmuggledBehindAChunkedBody(t *testing.T) {
	b := newBench("alice *")
	reached := make(chan string, 16)
	b.handler = func(w http.ResponseWriter, r *http.Request) { reached <- r.RequestURI }
	l := b.listen(t, time.Second)
	conn, err := tls.Dial("tcp", l.address, &tls.Config{RootCAs: l.roots, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, err = io.WriteString(conn, "POST /api HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+
		"GET /smuggled HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(io.LimitReader(conn, 1<<16)) // until the server closes, which may be with a reset
	if n := strings.Count(string(answer), "HTTP/1.1 "); n != 1 {
		t.Errorf("%d answers on one connection:\n%s", n, answer)
	}
	if got := <-reached; got != "/api" || len(reached) != 0 {
		t.Errorf("%s was served, and %d more", got, len(reached))
	}
}

func TestShutdownEndsWatchesAndFinishesTheRest(t *testing.T) {
	b := newBench("alice *")
	entered, finish := make(chan struct{}), make(chan struct{})
	b.handler = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			_, _ = io.WriteString(w, "event\n")
			w.(http.Flusher).Flush()
			entered <- struct{}{}
			<-r.Context().Done()
			return
		}
		entered <- struct{}{}
		<-finish
		_, _ = io.WriteString(w, "done")
	}
	l := b.listen(t, 30*time.Second)
	client := l.client(t, true)
	answers := make(chan string, 2)
	for _, target := range []string{"/api/v1/pods?watch=1", "/api/v1/pods"} {
		r, _ := http.NewRequest(http.MethodGet, "https://"+l.address+target, nil)
		r.Header.Set("Test-User", "alice")
		go func() {
			res, err := client.Do(r)
			if err != nil {
				answers <- err.Error()
				return
			}
			defer res.Body.Close()
			body, err := io.ReadAll(io.LimitReader(res.Body, 100))
			answers <- fmt.Sprint(string(body), err)
		}()
		<-entered
	}
	stopped := make(chan error, 1)
	go func() { stopped <- l.stop() }()
	if got := <-answers; got != "event\n<nil>" {
		t.Errorf("the watch ended with %q, want a clean end", got)
	}
	close(finish)
	if got := <-answers; got != "done<nil>" {
		t.Errorf("the request in hand ended with %q", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
