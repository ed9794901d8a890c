package http1

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// served is Portico's server with TLS.
type served struct {
	*Server
	address string
	roots   *x509.CertPool
	ended   chan struct{} // one value for each connection whose Serve has returned
}

func start(t testing.TB, c Config) *served {
	t.Helper()
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	config := certificate.TLS.Clone()
	config.NextProtos = []string{"http/1.1"}
	config.DynamicRecordSizingDisabled = true
	roots := x509.NewCertPool()
	roots.AddCert(certificate.Certificate())
	certificate.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if c.Logf == nil {
		c.Logf = t.Logf
	}
	s := &served{Server: New(c), address: l.Addr().String(), roots: roots, ended: make(chan struct{}, 1000)}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				conn := tls.Server(raw, config)
				if conn.Handshake() != nil {
					_ = raw.Close()
					return
				}
				defer func() { s.ended <- struct{}{} }()
				s.Begin(conn, func() {})()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.Close()
		all.Wait()
	})
	return s
}

// peer is a client that sends raw text.
type peer struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func (s *served) dial(t testing.TB) *peer {
	t.Helper()
	c, err := tls.Dial("tcp", s.address, &tls.Config{RootCAs: s.roots, ServerName: "example.com"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &peer{Conn: c, t: t, r: bufio.NewReader(c)}
}

func (p *peer) say(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p, text); err != nil {
		p.t.Fatal(err)
	}
}

// answer reads a response to its end.
func (p *peer) answer(method string) (*http.Response, string) {
	p.t.Helper()
	res, err := http.ReadResponse(p.r, &http.Request{Method: method})
	if err != nil {
		p.t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res, string(body)
}

// ends checks that no bytes are left on the connection.
func (p *peer) ends() {
	p.t.Helper()
	if rest, err := io.ReadAll(p.r); err != nil || len(rest) > 0 {
		p.t.Fatalf("read after the last response = %q, error %v, want the end", rest, err)
	}
}

const get = "GET /a HTTP/1.1\r\nHost: example.com\r\n\r\n"

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+string(body))
}

func TestResponsesFollowRequestOrder(t *testing.T) {
	s := start(t, Config{Handler: http.HandlerFunc(echo)})
	p := s.dial(t)
	for _, c := range []struct{ name, sent, want string }{
		{"a GET", get, "GET /a "},
		{"a body in the same record", "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", "POST /b hello"},
		{"a body in chunks", "POST /b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nA: b\r\n\r\n", "POST /b hello"},
		{"a large body", "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000), "POST /b " + strings.Repeat("x", 100_000)},
		{"a large head", "GET /c HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("x", 30_000) + "\r\nB: " + strings.Repeat("x", 30_000) + "\r\n\r\n", "GET /c "},
		{"an empty line before", "\r\n" + get, "GET /a "},
	} {
		p.say(c.sent)
		if res, got := p.answer("GET"); got != c.want || res.StatusCode != 200 {
			t.Errorf("%s: response = %s with %d bytes, want 200 with %d bytes", c.name, res.Status, len(got), len(c.want))
		}
	}
	p.say(get + get + get)
	for range 3 {
		if _, got := p.answer("GET"); got != "GET /a " {
			t.Errorf("response to a pipelined request = %q, want \"GET /a \"", got)
		}
	}
	p.say("GET / HTTP/1.1\r\n\r\n")
	if res, got := p.answer("GET"); res.StatusCode != 400 || !strings.Contains(got, "no Host") {
		t.Errorf("response without Host = %s %q, want 400 with \"no Host\"", res.Status, got)
	}
	p.ends()
}
