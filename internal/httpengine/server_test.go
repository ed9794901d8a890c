package httpengine_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"portico.dev/internal/httpengine"
	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/enginetest"
)

// No handler, connection or timer of either implementation outlives its server.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// never is the timeout of every wait.
const never = time.Minute

// serving is a server of one of the implementations with TLS.
type serving struct {
	engine.Server
	name     httpengine.Name
	address  string
	connect  func(context.Context) (net.Conn, error)
	config   *tls.Config // of the client
	hijacked atomic.Int32
	ended    chan struct{} // one value for each connection whose Serve has returned
	said     record
}

// record contains the log of a server.
type record struct {
	mu   sync.Mutex // guards the fields below
	text strings.Builder
	more chan struct{} // closed when the log has grown
}

func (r *record) logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.text, format+"\n", args...)
	if r.more != nil {
		close(r.more)
		r.more = nil
	}
}

// until returns the log as soon as enough returns true.
func (r *record) until(t *testing.T, enough func(string) bool) string {
	t.Helper()
	for {
		r.mu.Lock()
		text := r.text.String()
		if r.more == nil {
			r.more = make(chan struct{})
		}
		more := r.more
		r.mu.Unlock()
		if enough(text) {
			return text
		}
		receive(t, more, "more is logged than "+text)
	}
}

// onBothServers runs a test with both implementations.
func onBothServers(t *testing.T, c engine.ServerConfig, h http.HandlerFunc, test func(t *testing.T, s *serving)) {
	t.Helper()
	for _, name := range httpengine.Names() {
		t.Run(string(name), func(t *testing.T) { test(t, serve(t, name, c, h)) })
	}
}

// inTime runs a test with both implementations, each in a separate synctest bubble. Connections must be in memory.
func inTime(t *testing.T, test func(t *testing.T, n httpengine.Name)) {
	t.Helper()
	for _, n := range httpengine.Names() {
		t.Run(string(n), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, n) }) })
	}
}

// serve starts a server on a socket.
func serve(t *testing.T, name httpengine.Name, c engine.ServerConfig, h http.Handler) *serving {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}, name, c, h)
}

// serveInMemory starts a server whose connections are in memory.
func serveInMemory(t *testing.T, name httpengine.Name, c engine.ServerConfig, h http.HandlerFunc) *serving {
	t.Helper()
	l := enginetest.Listen()
	return serveOn(t, l, l.Dial, name, c, h)
}

// credentials are a server's certificate, which is also valid at the time of a bubble, and the roots of its clients.
var credentials = sync.OnceValues(func() ([]tls.Certificate, *x509.CertPool) {
	issuer := httptest.NewUnstartedServer(nil)
	issuer.StartTLS()
	defer issuer.Close()
	roots := x509.NewCertPool()
	roots.AddCert(issuer.Certificate())
	return issuer.TLS.Certificates, roots
})

func serveOn(t *testing.T, l net.Listener, connect func(context.Context) (net.Conn, error), name httpengine.Name, c engine.ServerConfig, h http.Handler) *serving {
	t.Helper()
	certificates, roots := credentials()
	config := &tls.Config{Certificates: certificates, NextProtos: []string{"h2", "http/1.1"}}
	s := &serving{
		name: name, address: l.Addr().String(), connect: connect, ended: make(chan struct{}, 1000),
		config: &tls.Config{RootCAs: roots, ServerName: "example.com"},
	}
	c.Handler, c.Logf = h, s.said.logf
	orInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	orInt(&c.MaxConcurrentStreams, 100)
	orInt(&c.MaxHeaderBytes, 64<<10)
	for _, v := range []*time.Duration{&c.HeaderTimeout, &c.IdleTimeout, &c.PingAfter, &c.PingTimeout, &c.StallTimeout} {
		if *v == 0 {
			*v = time.Minute
		}
	}
	s.Server = httpengine.NewServer(name, c)
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
				s.Begin(conn, func() { s.hijacked.Add(1) })()
				s.ended <- struct{}{}
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

func (s *serving) dial(t *testing.T, proto string) *tls.Conn {
	t.Helper()
	config := s.config.Clone()
	config.NextProtos = []string{proto}
	raw, err := s.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	c := tls.Client(raw, config)
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(never))
	return c
}

// client returns net/http's client for one version of HTTP.
func (s *serving) client(t *testing.T, h2 bool) *http.Client {
	t.Helper()
	tr := &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return s.connect(ctx) },
		TLSClientConfig: s.config.Clone(), ForceAttemptHTTP2: h2, DisableCompression: true, ExpectContinueTimeout: never,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: never}
}

// each runs a test over both versions of HTTP.
func (s *serving) each(t *testing.T, test func(t *testing.T, c *http.Client)) {
	t.Helper()
	for _, v := range []struct {
		name string
		h2   bool
	}{{"HTTP1", false}, {"HTTP2", true}} {
		t.Run(v.name, func(t *testing.T) { test(t, s.client(t, v.h2)) })
	}
}

func (s *serving) url(path string) string { return "https://" + s.address + path }

func receive[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(never):
		t.Fatalf("nothing arrived within %s for %q, want a value", never, what)
	}
	return v
}

func TestHandlersReceiveSentRequest(t *testing.T) {
	onBothServers(t, engine.ServerConfig{}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.TLS == nil || r.TLS.Version == 0 || r.Context().Value(http.LocalAddrContextKey) == nil || r.RemoteAddr == "" {
			t.Errorf("request in the handler: error %v, TLS %v, local address %v, remote address %q, want no error and all values", err, r.TLS, r.Context().Value(http.LocalAddrContextKey), r.RemoteAddr)
		}
		w.Header().Set("Trailer", "After")
		fmt.Fprintf(w, "%s %s %s %q %d %t", r.Method, r.RequestURI, r.URL, body, r.ContentLength, r.Body == http.NoBody)
		if _, ok := r.Trailer["Late"]; ok {
			fmt.Fprintf(w, " %s", r.Trailer.Get("Late"))
		}
		w.Header().Set("After", "all")
	}, func(t *testing.T, s *serving) {
		s.each(t, func(t *testing.T, c *http.Client) {
			for _, test := range []struct {
				method, path, body string
				unknown            bool
				want               string
			}{
				{"GET", "/a/b?c=d", "", false, `GET /a/b?c=d /a/b?c=d "" 0 true`},
				{"GET", "//a%2Fb", "", false, `GET //a%2Fb //a%2Fb "" 0 true`},
				{"POST", "/a", "hello", false, `POST /a /a "hello" 5 false`},
				{"POST", "/a", "hello", true, `POST /a /a "hello" -1 false later`},
			} {
				r, _ := http.NewRequest(test.method, s.url(test.path), strings.NewReader(test.body))
				if test.unknown {
					r.Body, r.ContentLength = io.NopCloser(strings.NewReader(test.body)), -1
					r.Trailer = http.Header{"Late": {"later"}}
				}
				res, err := c.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || string(got) != test.want || res.Trailer.Get("After") != "all" {
					t.Errorf("response = %s, error %v, trailers %v, want %s and the trailer After: all", got, err, res.Trailer, test.want)
				}
			}
		})
	})
}

func TestServerWideOPTIONSReachesHandler(t *testing.T) {
	onBothServers(t, engine.ServerConfig{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path)
	}, func(t *testing.T, s *serving) {
		c := s.dial(t, "http/1.1")
		_, _ = io.WriteString(c, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(res.Body); string(body) != "OPTIONS *" {
			t.Errorf("response to OPTIONS * = %s %q, want the handler's", res.Status, body)
		}
	})
}

func TestOversizedHeadersAreRejected(t *testing.T) {
	onBothServers(t, engine.ServerConfig{MaxHeaderBytes: 8 << 10}, func(http.ResponseWriter, *http.Request) {}, func(t *testing.T, s *serving) {
		for size, want := range map[int]int{4 << 10: 200, 10 << 10: 431, 15 << 10: 431} {
			r, _ := http.NewRequest("GET", s.url("/"), nil)
			var fields []string
			for range size / 1024 {
				r.Header.Add("Large", strings.Repeat("x", 1024))
				fields = append(fields, "large", strings.Repeat("x", 1024))
			}
			res, err := s.client(t, false).Do(r)
			if err != nil {
				t.Fatalf("request with a header of %d bytes failed: %v, want no error", size, err)
			}
			res.Body.Close()
			if res.StatusCode != want {
				t.Errorf("HTTP/1.1, header of %d bytes: status = %s, want %d", size, res.Status, want)
			}
			p := greet(t, s) // net/http's client refuses to send them.
			p.head(1, true, fields...)
			if got := p.status(1); got != fmt.Sprint(want) {
				t.Errorf("HTTP/2, header of %d bytes: status = %s, want %d", size, got, want)
			}
		}
	})
}

func TestExpectContinueIsAnswered(t *testing.T) {
	onBothServers(t, engine.ServerConfig{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.Copy(w, r.Body)
	}, func(t *testing.T, s *serving) {
		s.each(t, func(t *testing.T, c *http.Client) {
			for path, want := range map[string]string{"/": "200 hello", "/refused": "403 "} {
				r, _ := http.NewRequest("POST", s.url(path), strings.NewReader("hello"))
				r.Header.Set("Expect", "100-continue")
				res, err := c.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if got := fmt.Sprint(res.StatusCode, " ", string(body)); got != want {
					t.Errorf("%s: response = %q, want %q", path, got, want)
				}
			}
		})
	})
}

func TestHandlerPanicEndsOnlyItsRequest(t *testing.T) {
	onBothServers(t, engine.ServerConfig{}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/silent":
			panic(http.ErrAbortHandler)
		case "/loud":
			panic("the reason")
		}
	}, func(t *testing.T, s *serving) {
		s.each(t, func(t *testing.T, c *http.Client) {
			for _, path := range []string{"/silent", "/loud"} {
				if res, err := c.Post(s.url(path), "text/plain", nil); err == nil {
					res.Body.Close()
					t.Errorf("response of the panicking handler %s = %s, want an error", path, res.Status)
				}
			}
			res, err := c.Get(s.url("/"))
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
		})
		said := s.said.until(t, func(said string) bool { return strings.Count(said, "panic serving") == 2 }) // The log entry may follow the reset.
		if !strings.Contains(said, "the reason") || strings.Contains(said, "abort Handler") {
			t.Errorf("log = %q, want only the reason of the other panic", said)
		}
	})
}

// An event arrives when it is flushed. If a client disconnects, the context of its watch ends.
func TestWatchEventsArriveWhenFlushed(t *testing.T) {
	left := make(chan struct{}, 1)
	onBothServers(t, engine.ServerConfig{}, func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			fmt.Fprintf(w, "event %d\n", i)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
		<-r.Context().Done()
		left <- struct{}{}
	}, func(t *testing.T, s *serving) {
		s.each(t, func(t *testing.T, c *http.Client) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			r, _ := http.NewRequestWithContext(ctx, "GET", s.url("/"), nil)
			res, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			lines := bufio.NewScanner(res.Body)
			for i := range 3 {
				if !lines.Scan() || lines.Text() != fmt.Sprint("event ", i) {
					t.Fatalf("line = %q, error %v, want event %d", lines.Text(), lines.Err(), i)
				}
			}
			leave()
			receive(t, left, "the context ends with its client")
		})
	})
}

// A body may continue during the response.
func TestRequestBodyContinuesDuringResponse(t *testing.T) {
	onBothServers(t, engine.ServerConfig{}, func(w http.ResponseWriter, r *http.Request) {
		flush := http.NewResponseController(w).Flush
		_ = flush()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			fmt.Fprintf(w, "you said %s\n", lines.Text())
			_ = flush()
		}
	}, func(t *testing.T, s *serving) {
		s.each(t, func(t *testing.T, c *http.Client) {
			in, out := io.Pipe()
			r, _ := http.NewRequest("POST", s.url("/"), in)
			res, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			lines := bufio.NewScanner(res.Body)
			for _, word := range []string{"one", "two"} {
				_, _ = io.WriteString(out, word+"\n")
				if !lines.Scan() || lines.Text() != "you said "+word {
					t.Fatalf("line = %q, error %v, want \"you said %s\"", lines.Text(), lines.Err(), word)
				}
			}
			_ = out.Close()
			if lines.Scan() || lines.Err() != nil {
				t.Errorf("line after the end = %q, error %v, want the end of the body", lines.Text(), lines.Err())
			}
		})
	})
}

func TestHijack(t *testing.T) {
	var s *serving
	onBothServers(t, engine.ServerConfig{}, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if r.ProtoMajor == 2 {
			if err == nil {
				t.Error("Hijack of an HTTP/2 stream: error = nil, want an error")
			}
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		if s.hijacked.Load() != 1 {
			t.Errorf("%d connections counted as hijacked when Hijack returned, want 1", s.hijacked.Load())
		}
		go func() { // outlives the handler
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			line, err := rw.ReadString('\n')
			if err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(conn, "you said "+line)
		}()
	}, func(t *testing.T, now *serving) {
		s = now
		c := s.dial(t, "http/1.1")
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nearly ")
		receive(t, s.ended, "Serve returns with the handler")
		if err := s.Shutdown(t.Context()); err != nil { // Shutdown does not wait for the hijacked connection.
			t.Error(err)
		}
		s.Close() // Close does not end it.
		_, _ = io.WriteString(c, "late\n")
		got, err := io.ReadAll(c)
		if err != nil || !strings.HasSuffix(string(got), "you said early late\n") {
			t.Errorf("read of the hijacked connection = %q, error %v, want it to end with \"you said early late\"", got, err)
		}
	})
	onBothServers(t, engine.ServerConfig{}, func(w http.ResponseWriter, r *http.Request) {
		if _, _, err := http.NewResponseController(w).Hijack(); err == nil {
			t.Error("Hijack of an HTTP/2 stream: error = nil, want an error")
		}
	}, func(t *testing.T, s *serving) {
		res, err := s.client(t, true).Get(s.url("/"))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	})
}

// Active requests finish, idle connections are closed, and new requests are not served.
func TestShutdown(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		inTime(t, func(t *testing.T, n httpengine.Name) {
			entered, finish := make(chan struct{}, 10), make(chan struct{})
			s := serveInMemory(t, n, engine.ServerConfig{}, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					entered <- struct{}{}
					<-finish
				}
				_, _ = io.WriteString(w, "done")
			})
			var once sync.Once
			defer once.Do(func() { close(finish) })
			idle, silent := s.dial(t, "http/1.1"), s.dial(t, "http/1.1")
			_, _ = io.WriteString(idle, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			kept := bufio.NewReader(idle)
			res, err := http.ReadResponse(kept, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			answers := make(chan string, 1)
			c := s.client(t, h2)
			go func() {
				res, err := c.Get(s.url("/slow"))
				if err != nil {
					answers <- err.Error()
					return
				}
				defer res.Body.Close()
				body, err := io.ReadAll(res.Body)
				answers <- fmt.Sprint(string(body), err)
			}()
			receive(t, entered, "the request is in hand")

			if err := s.GoAway(t.Context()); err != nil {
				t.Error(err)
			}
			soon, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			if err := s.Shutdown(soon); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown with an active request: error = %v, want context.DeadlineExceeded", err)
			}
			for name, c := range map[string]io.Reader{"idle": kept, "silent": silent} {
				if rest, err := io.ReadAll(c); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || len(rest) > 0 {
					t.Errorf("%s connection = %q, error %v, want its end", name, rest, err)
				}
			}
			ended := make(chan error, 1)
			go func() { ended <- s.Shutdown(t.Context()) }()
			once.Do(func() { close(finish) })
			if got := receive(t, answers, "the request in hand is answered"); got != "done<nil>" {
				t.Errorf("response to the active request = %q, want \"done<nil>\"", got)
			}
			if err := receive(t, ended, "Shutdown returns"); err != nil {
				t.Error(err)
			}
			late := s.dial(t, map[bool]string{false: "http/1.1", true: "h2"}[h2])
			if h2 { // It receives GOAWAY.
				f := http2.NewFramer(late, late)
				_, _ = io.WriteString(late, http2.ClientPreface)
				_ = f.WriteSettings()
				for {
					frame, err := f.ReadFrame()
					if err != nil {
						t.Fatal(err)
					}
					if g, ok := frame.(*http2.GoAwayFrame); ok {
						if g.LastStreamID != 0 || g.ErrCode != http2.ErrCodeNo {
							t.Errorf("GOAWAY = %v, want last stream 0 and NO_ERROR", g)
						}
						break
					}
				}
			} else if _, err := io.WriteString(late, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"); err == nil {
				if rest, _ := io.ReadAll(late); len(rest) > 0 {
					t.Errorf("response to a late request = %q, want none", rest)
				}
			}
		})
	}
}

// Close ends all connections. Serve returns after the handlers.
func TestClose(t *testing.T) {
	entered, ending := make(chan struct{}, 2), make(chan struct{}, 2)
	onBothServers(t, engine.ServerConfig{}, func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
		ending <- struct{}{}
	}, func(t *testing.T, s *serving) {
		for _, h2 := range []bool{false, true} {
			go func() {
				if res, err := s.client(t, h2).Get(s.url("/")); err == nil {
					res.Body.Close()
					t.Errorf("response after Close = %s, want an error", res.Status)
				}
			}()
			receive(t, entered, "the request is in hand")
		}
		s.Close()
		for range 2 {
			receive(t, s.ended, "Serve returns")
		}
		if len(ending) != 2 {
			t.Errorf("%d handlers ended before Serve returned, want 2", len(ending))
		}
		for range 2 {
			<-ending
		}
	})
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	inTime(t, func(t *testing.T, n httpengine.Name) {
		s := serveInMemory(t, n, engine.ServerConfig{IdleTimeout: time.Minute}, func(http.ResponseWriter, *http.Request) {})
		for range 2 {
			c := s.dial(t, "http/1.1")
			_ = c.SetDeadline(time.Now().Add(time.Hour))
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			began := time.Now()
			got, err := io.ReadAll(c)
			if took := time.Since(began); err != nil || !bytes.HasPrefix(got, []byte("HTTP/1.1 200")) || took != time.Minute {
				t.Errorf("HTTP/1.1: %q, %v after %v, want the end after a minute", got, err, took)
			}
		}
		p := greet(t, s)
		_ = p.conn.SetDeadline(time.Now().Add(time.Hour))
		began := time.Now()
		p.untilGoAway(http2.ErrCodeNo)
		if took := time.Since(began); took > time.Minute || took < 50*time.Second {
			t.Errorf("HTTP/2: GOAWAY after %v, want a minute", took)
		}
	})
}

// CloseIdle ends only connections without a request.
func TestCloseIdleKeepsActiveConnections(t *testing.T) {
	inTime(t, func(t *testing.T, n httpengine.Name) {
		entered, finish := make(chan struct{}, 2), make(chan struct{})
		s := serveInMemory(t, n, engine.ServerConfig{}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				entered <- struct{}{}
				<-finish
			}
			_, _ = io.WriteString(w, "done")
		})
		finishAll := sync.OnceFunc(func() { close(finish) })
		defer finishAll()
		busy := s.dial(t, "http/1.1")
		_, _ = io.WriteString(busy, "GET /slow HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		busyToo := greet(t, s)
		busyToo.get(1, "/slow")
		for range 2 {
			receive(t, entered, "the requests are in hand")
		}
		idle := s.dial(t, "http/1.1")
		_, _ = io.WriteString(idle, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		kept := bufio.NewReader(idle)
		res, err := http.ReadResponse(kept, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		idleToo := greet(t, s)
		idleToo.get(1, "/")
		if got := idleToo.status(1); got != "200" {
			t.Fatalf("status of the idle connection = %s, want 200", got)
		}
		time.Sleep(10 * time.Second) // A connection becomes idle some time after its response.
		for range 2 {
			if n := s.CloseIdle(1); n != 1 {
				t.Fatalf("CloseIdle(1) = %d, want 1", n)
			}
		}
		if n := s.CloseIdle(10); n != 0 {
			t.Errorf("CloseIdle(10) with only active connections = %d, want 0", n)
		}
		if rest, err := io.ReadAll(kept); len(rest) > 0 || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("idle connection = %q, error %v, want its end", rest, err)
		}
		idleToo.untilGoAway(http2.ErrCodeNo)
		for range 2 {
			receive(t, s.ended, "Serve returns for those")
		}
		finishAll()
		if got, err := io.ReadAll(busy); err != nil || !bytes.HasSuffix(got, []byte("done")) {
			t.Errorf("response to the active request = %q, error %v, want it to end with \"done\"", got, err)
		}
		if got := busyToo.status(1); got != "200" {
			t.Errorf("status of the active HTTP/2 request = %s, want 200", got)
		}
	})
}

func TestConnectionWithoutHeaderEndsAfterTimeout(t *testing.T) {
	inTime(t, func(t *testing.T, n httpengine.Name) {
		s := serveInMemory(t, n, engine.ServerConfig{HeaderTimeout: 30 * time.Second}, func(http.ResponseWriter, *http.Request) {})
		for _, begun := range []string{"", "GET / HTTP/1.1\r\nHost: a\r\n"} {
			c := s.dial(t, "http/1.1")
			_ = c.SetDeadline(time.Now().Add(time.Hour))
			_, _ = io.WriteString(c, begun)
			began := time.Now()
			got, err := io.ReadAll(c)
			if took := time.Since(began); len(got) > 0 || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || took != 30*time.Second {
				t.Errorf("after %q: %q, %v after %v, want the end after 30 s", begun, got, err, took)
			}
		}
	})
}

// A connection ends if its client does not answer PINGs.
func TestUnansweredPingEndsConnection(t *testing.T) {
	inTime(t, func(t *testing.T, n httpengine.Name) {
		entered := make(chan struct{}, 1)
		s := serveInMemory(t, n, engine.ServerConfig{PingAfter: 10 * time.Second, PingTimeout: 20 * time.Second}, func(_ http.ResponseWriter, r *http.Request) {
			entered <- struct{}{}
			<-r.Context().Done()
		})
		p := greet(t, s)
		p.request(1, true)
		receive(t, entered, "the request is in hand")
		receive(t, s.ended, "the connection ends")
	})
}

// If an HTTP/2 client does not open its window, its stream is reset and its connection stays open. Watches are exempt.
func TestUnreadResponseResetsItsStream(t *testing.T) {
	inTime(t, func(t *testing.T, n httpengine.Name) {
		ended := make(chan error, 2)
		s := serveInMemory(t, n, engine.ServerConfig{StallTimeout: 30 * time.Second}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/watch" {
				w.(engine.ResponseWriter).LongRunning()
			}
			_, err := w.Write(make([]byte, 1<<20))
			ended <- err
		})
		p := greet(t, s)
		p.get(1, "/watch")
		p.get(3, "/")
		if err := receive(t, ended, "the write ends"); err == nil {
			t.Error("write without a window: error = nil, want an error")
		}
		for {
			f := p.read()
			if r, ok := f.(*http2.RSTStreamFrame); ok {
				if r.StreamID != 3 {
					t.Errorf("stream %d was reset, want stream 3", r.StreamID)
				}
				break
			}
		}
		if len(ended) > 0 {
			t.Errorf("%d more writes ended, want none: the watch continues", len(ended))
		}
		p.tell(p.WritePing(false, [8]byte{}))
		for {
			if f, ok := p.read().(*http2.PingFrame); ok && f.IsAck() {
				break
			}
		}
		_ = p.conn.NetConn().Close()
		receive(t, ended, "the watch ends with its client")
	})
}

// A handler may leak its response writer. A late deadline or write must not affect another request or end the process.
func TestLateUseOfResponseWriterIsHarmless(t *testing.T) {
	kept := make(chan http.ResponseWriter, 1)
	onBothServers(t, engine.ServerConfig{}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "done")
		kept <- w
	}, func(t *testing.T, s *serving) {
		s.each(t, func(t *testing.T, c *http.Client) {
			for range 3 {
				res, err := c.Get(s.url("/"))
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				control := http.NewResponseController(<-kept)
				_ = control.SetWriteDeadline(time.Now()) // an error or no effect
				_ = control.SetReadDeadline(time.Now())
				_ = control.Flush()
			}
		})
	})
}

func TestConcurrentStreamsAreBounded(t *testing.T) {
	entered, finish := make(chan struct{}, 100), make(chan struct{})
	var now, most atomic.Int32
	onBothServers(t, engine.ServerConfig{MaxConcurrentStreams: 5}, func(_ http.ResponseWriter, r *http.Request) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		entered <- struct{}{}
		<-finish
	}, func(t *testing.T, s *serving) {
		finish = make(chan struct{})
		p := greet(t, s)
		if p.settings[http2.SettingMaxConcurrentStreams] != 5 || p.settings[http2.SettingMaxHeaderListSize] != 64<<10+320 {
			t.Errorf("SETTINGS = %v, want 5 streams and a header list of 65856 bytes", p.settings)
		}
		for i := range uint32(8) {
			p.request(2*i+1, true)
		}
		for range 5 {
			receive(t, entered, "five handlers run")
		}
		for refused := 0; refused < 3; {
			if f, ok := p.read().(*http2.RSTStreamFrame); ok {
				if f.ErrCode != http2.ErrCodeRefusedStream && f.ErrCode != http2.ErrCodeProtocol {
					t.Errorf("code of the reset = %s, want REFUSED_STREAM", f.ErrCode)
				}
				refused++
			}
		}
		close(finish)
		if most.Load() > 5 {
			t.Errorf("%d handlers ran at the same time, want at most 5", most.Load())
		}
	})
}

// framer is a client that reads and writes HTTP/2 frames directly.
type framer struct {
	*http2.Framer
	t        *testing.T
	conn     *tls.Conn
	encoder  *hpack.Encoder
	block    bytes.Buffer
	settings map[http2.SettingID]uint32
}

func greet(t *testing.T, s *serving) *framer {
	t.Helper()
	p := &framer{t: t, conn: s.dial(t, "h2"), settings: map[http2.SettingID]uint32{}}
	p.Framer = http2.NewFramer(p.conn, p.conn)
	p.AllowIllegalWrites = true
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.encoder = hpack.NewEncoder(&p.block)
	_, err := io.WriteString(p.conn, http2.ClientPreface)
	p.tell(err)
	p.tell(p.WriteSettings())
	for len(p.settings) == 0 {
		if f, ok := p.read().(*http2.SettingsFrame); ok && !f.IsAck() {
			p.tell(f.ForeachSetting(func(s http2.Setting) error { p.settings[s.ID] = s.Val; return nil }))
			p.tell(p.WriteSettingsAck())
		}
	}
	return p
}

func (p *framer) tell(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *framer) read() http2.Frame {
	p.t.Helper()
	f, err := p.ReadFrame()
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

func (p *framer) get(id uint32, path string) { p.head(id, true, ":path", path) }

func (p *framer) request(id uint32, end bool) { p.head(id, end, ":path", "/") }

// head opens a stream. fields are added to the fields of a request.
func (p *framer) head(id uint32, end bool, fields ...string) {
	p.t.Helper()
	p.block.Reset()
	given := map[string]bool{}
	for i := 0; i < len(fields); i += 2 {
		given[fields[i]] = true
	}
	list := []string{}
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "example.com"}, {":path", "/"}} {
		if !given[f[0]] {
			list = append(list, f[0], f[1])
		}
	}
	for i := 0; i < len(fields); i += 2 { // pseudo header fields first
		if fields[i][0] == ':' {
			list = append([]string{fields[i], fields[i+1]}, list...)
		} else {
			list = append(list, fields[i], fields[i+1])
		}
	}
	for i := 0; i < len(list); i += 2 {
		p.tell(p.encoder.WriteField(hpack.HeaderField{Name: list[i], Value: list[i+1]}))
	}
	p.tell(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.block.Bytes(), EndHeaders: true, EndStream: end}))
}

// status returns the status of the response on a stream, "reset", or "closed".
func (p *framer) status(id uint32) string {
	p.t.Helper()
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return "closed"
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == id {
				return f.PseudoValue("status")
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return "reset"
			}
		}
	}
}

// contentType returns the content type of the response on a stream, "reset", or "closed".
func (p *framer) contentType(id uint32) string {
	p.t.Helper()
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return "closed"
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID != id {
				continue
			}
			for _, field := range f.RegularFields() {
				if field.Name == "content-type" {
					return field.Value
				}
			}
			return ""
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return "reset"
			}
		}
	}
}

func (p *framer) untilGoAway(code http2.ErrCode) (last uint32) {
	p.t.Helper()
	for {
		if f, ok := p.read().(*http2.GoAwayFrame); ok {
			if f.ErrCode != code {
				p.t.Errorf("code of GOAWAY = %s, want %s", f.ErrCode, code)
			}
			return f.LastStreamID
		}
	}
}
