package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"portico.dev/internal/transport"
)

const console = "/apis/metrics.example.com/v1/namespaces/ns1/nodes/a/console"

// echo is a backend that switches protocols and echoes bytes, with a greeting right behind the 101.
type echo struct {
	mu   sync.Mutex
	seen *http.Request
	over chan struct{} // receives when a connection ended
}

func (e *echo) handle(c *tls.Conn) {
	reader := bufio.NewReader(c)
	r, err := http.ReadRequest(reader)
	if err != nil {
		return
	}
	e.mu.Lock()
	e.seen = r
	e.mu.Unlock()
	_, _ = fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\nConnection: Upgrade\r\nX-Stream-Protocol-Version: v5\r\n"+
		"Sec-Websocket-Accept: abc\r\nKeep-Alive: 5\r\nAlt-Svc: h3=\":1\"\r\nStrict-Transport-Security: max-age=0\r\nClear-Site-Data: \"*\"\r\nX-Remote.User: root\r\nAccess-Control-Allow-Origin: *\r\n\r\nhello", r.Header.Get("Upgrade"))
	_, _ = io.Copy(c, reader)
	e.over <- struct{}{}
}

func newEcho() *echo { return &echo{over: make(chan struct{}, 16)} }

func (e *echo) header() http.Header {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen.Header
}

func expect(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("ReadFull() = %q, error %v, want %q", got, err, want)
	}
}

func TestUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, protocol := range []string{"websocket", "SPDY/3.1"} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newMemoryEnv(t, Config{IdentityHeaders: []string{"Front-Proxy-User"}}, transport.Options{})
				w.deadline = 1500 * time.Millisecond
				begun := time.Now()
				e := newEcho()
				b := w.backend(w.raw("http/1.1", e.handle))
				c, r := w.dial()
				// Bytes of the new protocol can arrive with the request.
				if _, err := io.WriteString(c, strings.Join([]string{"GET " + console + "?tty=1;x HTTP/1.1", "Host: front.example",
					"Connection: keep-alive, Upgrade, X-Remote-User, x-remote-group", "Upgrade: " + strings.ToUpper(protocol),
					"Origin: https://front.example", "Sec-WebSocket-Key: k", "Sec-WebSocket-Version: 13", "X_Remote_Group: system:masters", "X.Remote.Group: system:masters", "Impersonate.User: root",
					"front_proxy.user: root",
					"X-Remote-User: root", "Authorization: Bearer canary", "Cookie: canary",
					"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.Y2FuYXJ5, v4.channel.k8s.io", "", "early "}, "\r\n")); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodGet})
				if err != nil {
					t.Fatal(err)
				}
				if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != protocol ||
					!slices.Equal(resp.Header["Connection"], []string{"Upgrade"}) || resp.Header.Get("X-Stream-Protocol-Version") != "v5" ||
					resp.Header.Get("Sec-Websocket-Accept") != "abc" || resp.Header.Get("Audit-Id") != "audit-1" ||
					resp.Header.Get("Keep-Alive") != "" || resp.Header.Get("Access-Control-Allow-Origin") != "" {
					t.Errorf("response = %s %v, want 101 to %s with the stream headers only", resp.Status, resp.Header, protocol)
				}
				for _, name := range []string{"Alt-Svc", "Strict-Transport-Security", "Clear-Site-Data", "X-Remote.user"} {
					if resp.Header[name] != nil {
						t.Errorf("%s = %q, want none", name, resp.Header[name])
					}
				}
				expect(t, r, "hello"+"early ")
				if _, err := io.WriteString(c, "\x00\xff\r\n\r\nGET / HTTP/1.1"); err != nil {
					t.Fatal(err)
				}
				expect(t, r, "\x00\xff\r\n\r\nGET / HTTP/1.1")

				h := e.header()
				for name, values := range map[string][]string{
					"Connection": {"Upgrade"}, "Upgrade": {protocol}, "X-Remote-User": {"alice"}, "X-Remote-Group": alice.Groups,
					"Origin": {"https://front.example"}, "Sec-Websocket-Key": {"k"}, "Sec-Websocket-Protocol": {"v4.channel.k8s.io"},
					"Authorization": nil, "Cookie": nil, "X_remote_group": nil, "X.remote.group": nil, "Impersonate.user": nil, "Front_proxy.user": nil, "Audit-Id": {"audit-1"}, "Via": {"1.1 portico"},
				} {
					if !slices.Equal(h[name], values) {
						t.Errorf("%s at the backend = %q, want %q", name, h[name], values)
					}
				}
				if e.seen.RequestURI != console+"?tty=1;x" || e.seen.Host != serviceName {
					t.Errorf("request at the backend = %s for host %s, want %s for %s", e.seen.RequestURI, e.seen.Host, console+"?tty=1;x", serviceName)
				}
				// The deadline is over, the slot is released, and the connection is open.
				<-time.After(time.Until(begun.Add(w.deadline + 200*time.Millisecond)))
				if b.Report().InFlight != 0 || w.proxy.Tunnels() != 1 {
					t.Errorf("%d requests in flight, %d tunnels, want 0 and 1", b.Report().InFlight, w.proxy.Tunnels())
				}
				if _, err := io.WriteString(c, "still"); err != nil {
					t.Fatal(err)
				}
				expect(t, r, "still")
				_ = c.Close()
				select {
				case <-e.over:
				case <-time.After(30 * time.Second):
					t.Error("the backend's connection is open 30s after the client closed, want it closed")
				}
				eventually(t, time.Minute, "the tunnel is gone", func() bool { return w.proxy.Tunnels() == 0 })
			})
		})
	}
}

func TestTunnelEndsWhenBackendCloses(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	w.backend(w.raw("http/1.1", func(c *tls.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nbye")
		}
	}))
	_, r := w.upgrade(console)
	start := time.Now()
	if rest, _ := io.ReadAll(r); string(rest) != "bye" || time.Since(start) > time.Minute {
		t.Errorf("bytes of the tunnel = %q after %s, want %q and the end", rest, time.Since(start), "bye")
	}
}

// upgrade opens a websocket and reads the 101.
func (w *testEnv) upgrade(path string) (*tls.Conn, *bufio.Reader) {
	w.t.Helper()
	c, r := w.dial()
	send(w.t, c, "GET "+path+" HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: websocket")
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodGet})
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		w.t.Fatalf("response = %v, error %v, want 101", resp, err)
	}
	return c, r
}

func TestA2A3UnsafeUpgradesAreNotForwarded(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	var dialled atomic.Int64
	w.backend(w.raw("http/1.1", func(*tls.Conn) { dialled.Add(1) }))
	tests := []struct{ name, path, headers string }{
		{"h2c", console, "Upgrade: h2c"},
		{"TLS", console, "Upgrade: TLS/1.0"},
		{"something", console, "Upgrade: foo"},
		{"nothing", console, "X: y"},
		{"an older SPDY", console, "Upgrade: SPDY/3"},
		{"two in one line", console, "Upgrade: websocket, h2c"},
		{"two in two lines", console, "Upgrade: websocket\r\nUpgrade: foo"},
		{"discovery of a group-version", "/apis/metrics.example.com/v1", "Upgrade: websocket"},
		{"discovery, with a slash", "/apis/metrics.example.com/v1/", "Upgrade: websocket"},
		{"with a body", console, "Upgrade: websocket\r\nContent-Length: 3"},
		{"with a body of unknown length", console, "Upgrade: websocket\r\nTransfer-Encoding: chunked"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, r := w.dial()
			send(t, c, "GET "+test.path+" HTTP/1.1", "Host: x", "Connection: Upgrade", test.headers)
			resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodGet})
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			if s := (answer{resp, string(body), nil}).status(t); resp.StatusCode != http.StatusBadRequest || s.Reason != "BadRequest" {
				t.Errorf("response = %s %s, want 400 BadRequest", resp.Status, body)
			}
		})
	}
	if dialled.Load() != 0 {
		t.Errorf("%d connections to the backend, want 0", dialled.Load())
	}
}

// If a backend does not switch protocols, the proxy must not forward the client's next bytes as a request. This holds for
// every response.
func TestA1A4BytesAfterRefusedUpgradeAreNotForwarded(t *testing.T) {
	const pipelined = "GET /forged HTTP/1.1\r\nHost: x\r\nX-Remote-User: root\r\n\r\n"
	tests := []struct {
		name, answer string
		code         int
		body         string // contained in the body
	}{
		{"200", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 502, "neither switched"},
		{"200 without length", "HTTP/1.1 200 OK\r\n\r\nok", 502, "neither switched"},
		{"302 elsewhere", "HTTP/1.1 302 Found\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n", 502, "redirect"},
		{"307 to the same host", "HTTP/1.1 307 Temporary Redirect\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", 502, "redirect"},
		{"403", "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: 18\r\nConnection: keep-alive\r\n\r\n{\"kind\":\"Refused\"}", 403, "Refused"},
		{"500, without length", "HTTP/1.1 500 Oops\r\n\r\nall is lost", 500, "all is lost"},
		{"another protocol", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: foo\r\nConnection: Upgrade\r\n\r\n", 502, "another protocol"},
		{"101 without Connection", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n", 502, "another protocol"},
		{"not HTTP", "220 smtp.example ESMTP\r\n\r\n", 502, "HTTP"},
		{"endless header", "HTTP/1.1 101 Switching Protocols\r\nX: " + strings.Repeat("x", maxUpgradeHeader+1), 502, "HTTP"},
		{"good-bye", "", 502, "HTTP"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newTestEnv(t, Config{}, transport.Options{})
			second := make(chan bool, 4)
			w.backend(w.raw("http/1.1", func(c *tls.Conn) {
				reader := bufio.NewReader(c)
				if _, err := http.ReadRequest(reader); err != nil {
					return
				}
				_, _ = io.WriteString(c, test.answer)
				if !strings.Contains(test.answer, "Content-Length") {
					_ = c.CloseWrite()
				}
				_, err := http.ReadRequest(reader)
				second <- err == nil
			}))
			c, r := w.dial()
			send(t, c, "GET "+console+" HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: websocket")
			if _, err := io.WriteString(c, pipelined); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodGet})
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != test.code || !strings.Contains(string(body), test.body) || resp.Header.Get("Location") != "" {
				t.Errorf("response = %s %v %q, error %v, want %d with %q and no Location", resp.Status, resp.Header, body, err, test.code, test.body)
			}
			if rest, _ := io.ReadAll(r); len(rest) > 0 {
				t.Errorf("response to the pipelined request = %q, want none", rest)
			}
			select {
			case seen := <-second:
				if seen {
					t.Error("the backend received the pipelined request, want it not forwarded")
				}
			case <-time.After(30 * time.Second):
				t.Error("the backend's connection is open after 30s, want it closed")
			}
		})
	}
}

func TestHangingUpgradeReturns504(t *testing.T) {
	w := newTestEnv(t, Config{UpgradeTimeout: 200 * time.Millisecond}, transport.Options{})
	w.backend(w.raw("http/1.1", func(c *tls.Conn) { _, _ = io.Copy(io.Discard, c) }))
	c, r := w.dial()
	send(t, c, "GET "+console+" HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: websocket")
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodGet})
	if err != nil || resp.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("response = %v, error %v, want 504", resp, err)
	}
}

func TestUpgradeToDeadBackendReturns503(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	w.backend(w.deadAddress())
	c, r := w.dial()
	send(t, c, "GET "+console+" HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: websocket")
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodGet})
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("response = %v, error %v, want 503 with Retry-After 1", resp, err)
	}
}

func TestIdleTunnelIsClosed(t *testing.T) {
	w := newTestEnv(t, Config{TunnelIdle: 300 * time.Millisecond}, transport.Options{})
	w.backend(w.raw("http/1.1", newEcho().handle))
	_, r := w.upgrade(console)
	start := time.Now()
	if rest, err := io.ReadAll(r); time.Since(start) > time.Minute {
		t.Errorf("bytes of an idle tunnel = %q, error %v after %s, want an end within a minute", rest, err, time.Since(start))
	}
}

// A tunnel is idle when no byte passes in either direction.
func TestTunnelWithTrafficStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		client, near := net.Pipe()
		far, backend := net.Pipe()
		began := time.Now()
		over := make(chan time.Duration, 1)
		go func() {
			(&tunnel{client: near, backend: far, idle: idle}).run()
			over <- time.Since(began)
		}()
		for n := range 6 {
			<-time.After(idle - time.Second)
			from, to := client, backend
			if n%2 == 0 {
				from, to = backend, client
			}
			go func() { _, _ = io.WriteString(from, "x") }()
			expect(t, to, "x")
		}
		if at, want := <-over, 6*(idle-time.Second)+idle; at != want {
			t.Errorf("the tunnel ended after %s, want %s", at, want)
		}
		for name, end := range map[string]net.Conn{"client": client, "backend": backend} {
			if _, err := end.Read(make([]byte, 1)); err == nil {
				t.Errorf("the %s's connection is open after the end of the tunnel, want it closed", name)
			}
		}
	})
}

func TestDrainRefusesUpgradesAndKeepsTunnels(t *testing.T) {
	w := newTestEnv(t, Config{}, transport.Options{})
	w.backend(w.raw("http/1.1", newEcho().handle))
	one, oneReader := w.upgrade(console)
	_, twoReader := w.upgrade(console)
	expect(t, oneReader, "hello")
	expect(t, twoReader, "hello")
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan int)
	go func() { closed <- w.proxy.Drain(ctx) }()
	eventually(t, time.Minute, "draining", w.proxy.tunnels.draining)

	// New upgrades are refused, and open tunnels continue.
	c, r := w.dial()
	send(t, c, "GET "+console+" HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: websocket")
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodGet})
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("response during the drain = %v, error %v, want 503", resp, err)
	}
	if _, err := io.WriteString(one, "on"); err != nil {
		t.Fatal(err)
	}
	expect(t, oneReader, "on")
	_ = one.Close()
	eventually(t, time.Minute, "one left", func() bool { return w.proxy.Tunnels() == 1 })
	cancel()
	if n := <-closed; n != 1 {
		t.Errorf("Drain() closed %d tunnels, want 1", n)
	}
	if _, err := twoReader.ReadByte(); err == nil {
		t.Error("the second tunnel is open after Drain(), want it closed")
	}
}
