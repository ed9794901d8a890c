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
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/pki"
	"portico.dev/internal/proxy"
	"portico.dev/internal/run"
)

type listening struct {
	address string
	connect func(context.Context) (net.Conn, error)
	roots   *x509.CertPool
	stop    func() error

	authority *pki.Authority
	pair      *pki.KeyPair // certificate of the server
}

// listen runs a real server with the complete chain in front of b's handler.
func (b *bench) listen(t testing.TB, grace time.Duration, change ...func(*Server)) *listening {
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
	var listener net.Listener
	address := "127.0.0.1:443"
	var connect func(context.Context) (net.Conn, error)
	if b.memory {
		l := enginetest.Listen()
		listener, connect = l, l.Dial
	} else {
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		address = listener.Addr().String()
		connect = func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }
	}
	s := New(Config{
		Listener: listener, TLS: pki.ServerConfig(pair), Engine: enginetest.HTTP(t), Handler: b.chain(t), Health: NewHealth(zap.NewNop()),
		Drainer: b.config.Drainer, Proxy: proxy.New(proxy.Config{}), Logger: zap.NewNop(), ShutdownGrace: grace,
	})
	for _, c := range change {
		c(s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	g := &run.Group{}
	g.Add(run.Member{Name: "port", Ready: s.Accepts(), Run: s.Accept})
	g.Add(run.Member{Name: "listener", Ready: s.Ready(), Run: s.Run})
	go func() { done <- g.Run(ctx) }()
	<-s.Ready()
	pool := x509.NewCertPool()
	pool.AddCert(authority.Certificate)
	l := &listening{address: address, connect: connect, roots: pool, authority: authority, pair: pair}
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

// dial opens a connection. secure opens one that speaks a protocol over TLS.
func (l *listening) dial(t testing.TB) net.Conn {
	t.Helper()
	c, err := l.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (l *listening) secure(t testing.TB, proto string) *tls.Conn {
	t.Helper()
	c := tls.Client(l.dial(t), &tls.Config{RootCAs: l.roots, ServerName: "127.0.0.1", NextProtos: []string{proto}})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (l *listening) client(t *testing.T, h2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return l.connect(ctx) },
		TLSClientConfig: &tls.Config{RootCAs: l.roots}, ForceAttemptHTTP2: h2,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
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
			t.Errorf("protocol of the request = HTTP/%s, want HTTP/%s", body, want)
		}
	}
}

// Attacks that require raw bytes. Each sends one request, and some a second one after it that
// must never be served as a separate request.
func TestMalformedRawRequestsAreRejected(t *testing.T) {
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
		"A18 two hosts in one":   {"GET /api HTTP/1.1\r\nHost: a, b\r\nTest-User: alice\r\n\r\n", "400"},
		"A18 odd method":         {"GET\t /api HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\n\r\n", "400"},
		"A18 long method":        {strings.Repeat("M", 4<<10) + " /api HTTP/1.1\r\nHost: a\r\nTest-User: mallory\r\n\r\n", "501"},
		"A19 h2c":                {"GET /api HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nTest-User: mallory\r\n\r\n", "403"},
		"A19 a blank in a name":  {"POST /api HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "400"},
		"A19 NUL in a header":    {"GET /api HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\nTest-User: alice\r\n\r\n", "400"},
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
			_, _ = io.WriteString(conn, c.raw) // the server may stop reading before the end
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if c.code != "" && !strings.HasPrefix(res.Status, c.code) {
				t.Errorf("response to the raw request %.60q = %s, want %s", c.raw, res.Status, c.code)
			}
			select {
			case what := <-reached:
				t.Errorf("%s reached the handler, want no request", what)
			default:
			}
		})
	}
}

// The bytes after each of these requests are never served as another request.
func TestBytesAfterRequestAreNotServedAsRequest(t *testing.T) {
	b := newBench("alice *")
	reached := make(chan string, 16)
	b.handler = func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) != 0 || r.TLS.Version == 0 {
			t.Errorf("TLS state of the request = version %d with %d peer certificates, want a version and 0", r.TLS.Version, len(r.TLS.PeerCertificates))
		}
		_, _ = io.Copy(w, io.LimitReader(r.Body, 1<<10))
		reached <- r.RequestURI
	}
	l := b.listen(t, time.Second)
	const head, second = " HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\n", "GET /second HTTP/1.1\r\nHost: a\r\nTest-User: alice\r\n\r\n"
	for name, c := range map[string]struct {
		raw     string
		reached []string
		bad     bool
		needs   enginetest.Promise
	}{
		"two ordinary requests":            {"GET /first" + head + "\r\n" + second, []string{"/first", "/second"}, false, enginetest.Promise{}},
		"a body and another request":       {"POST /first" + head + "Content-Length: 3\r\n\r\nabc" + second, []string{"/first", "/second"}, false, enginetest.Promise{}},
		"a body that looks like a head":    {"POST /first" + head + "Content-Length: 20\r\n\r\nA: b\n c\n\nGET / HTTP\n" + second, []string{"/first", "/second"}, false, enginetest.Promise{}},
		"a chunked body and another":       {"POST /first" + head + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + second, []string{"/first", "/second"}, false, enginetest.Promise{}},
		"A19 length and coding":            {"POST /first" + head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second, nil, true, enginetest.OneLength},
		"A19 coding and length":            {"POST /first" + head + "transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n" + second, nil, true, enginetest.OneLength},
		"A19 length and coding, pipelined": {"GET /zero" + head + "\r\nPOST /first" + head + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second, nil, true, enginetest.OneLength},
		"A19 a folded header":              {"GET /first" + head + "X-Remote-User: a\r\n b\r\n\r\n" + second, nil, true, enginetest.LineEnds},
		"A19 a header with a bare LF":      {"GET /first" + head + "A: b\nC: d\r\n\r\n" + second, nil, true, enginetest.LineEnds},
		"A19 a head that ends in bare LF":  {"GET /first" + head + "A: b\r\n\n" + second, nil, true, enginetest.LineEnds},
	} {
		t.Run(name, func(t *testing.T) {
			if c.bad {
				enginetest.Needs(t, c.needs)
			}
			conn, err := tls.Dial("tcp", l.address, &tls.Config{RootCAs: l.roots, NextProtos: []string{"http/1.1"}})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.WriteString(conn, c.raw); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(conn)
			for range c.reached {
				res, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<16))
				res.Body.Close()
				if res.StatusCode != http.StatusOK {
					t.Errorf("response to a request before the last = %s, want 200", res.Status)
				}
			}
			if c.bad {
				answer, _ := io.ReadAll(io.LimitReader(in, 1<<16)) // until the server closes the connection
				if !strings.Contains(string(answer), "HTTP/1.1 400") || strings.Contains(string(answer), "/second") {
					t.Errorf("response to the malformed request = %q, want 400 without the second request", answer)
				}
			}
			for len(reached) > 0 {
				got := <-reached
				if len(c.reached) > 0 && got == c.reached[0] {
					c.reached = c.reached[1:]
				} else if got != "/zero" {
					t.Errorf("%s reached the handler, want the next of %v", got, c.reached)
				}
			}
			if len(c.reached) > 0 {
				t.Errorf("requests that did not reach the handler = %v, want none", c.reached)
			}
		})
	}
}

func TestShutdownEndsWatchesAndCompletesOtherRequests(t *testing.T) {
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
		t.Errorf("body and error of the watch = %q, want one event and no error", got)
	}
	close(finish)
	if got := <-answers; got != "done<nil>" {
		t.Errorf("body and error of the running request = %q, want done and no error", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// A request without TLS gets net/http's response, and the connection is closed. For bytes that are neither HTTP nor TLS the server closes the connection without a
// response in plain text, because TLS reports the error with an alert.
func TestPlainHTTPOnTLSPortGetsNetHTTPResponse(t *testing.T) {
	b := newBench("alice *")
	b.handler = func(http.ResponseWriter, *http.Request) {
		t.Error("a request without TLS reached the handler, want none")
	}
	l := b.listen(t, time.Second)
	const answer = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
	for name, test := range map[string]struct{ sent, want string }{
		"GET":              {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", answer},
		"POST, no more":    {"POST ", answer},
		"PATCH":            {"PATCH /api/v1/nodes/a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", answer},
		"DELETE":           {"DELETE /api/v1/nodes/a HTTP/1.1\r\nHost: a\r\n\r\n", answer},
		"h2c":              {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""},
		"another protocol": {"SSH-2.0-OpenSSH_9.9\r\n", ""},
		"a small letter":   {"get / HTTP/1.1\r\nHost: a\r\n\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := net.Dial("tcp", l.address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.WriteString(c, test.sent); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(io.LimitReader(c, 1<<10)) // a reset connection, with unread bytes, returns an error
			if test.want == "" && strings.Contains(string(got), "HTTP/") {
				t.Errorf("response to %q = %q, want no HTTP response", test.sent, got)
			}
			if test.want != "" && string(got) != test.want {
				t.Errorf("response to %q = %q with the error %v, want %q", test.sent, got, err, test.want)
			}
			if os.IsTimeout(err) {
				t.Errorf("connection after %q is still open after 20 seconds, want it closed", test.sent)
			}
		})
	}
}

// A client that does not read the response blocks the handshake only until the write deadline.
func TestStalledPlainHTTPClientIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, peer := net.Pipe()
		defer peer.Close()
		start := time.Now()
		answerPlainHTTP(ours, tls.RecordHeaderError{RecordHeader: [5]byte([]byte("GET /")), Conn: ours})
		if took := time.Since(start); took > time.Second {
			t.Errorf("time to answer a client that does not read = %v, want at most a second", took)
		}
	})
}
