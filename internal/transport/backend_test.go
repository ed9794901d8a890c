package transport

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"portico.dev/internal/httpengine/enginetest"
	"portico.dev/internal/pki"
)

const serviceName = "metrics.kube-system.svc"

// testEnv is an authority, a client certificate, and all components that are closed with the test.
type testEnv struct {
	t     *testing.T
	ca    *pki.Authority
	front *pki.KeyPair
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	ca, err := pki.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	w := &testEnv{t: t, ca: ca}
	w.front = w.pair(pki.Leaf{CommonName: "front-proxy-client", Client: true})
	return w
}

func (w *testEnv) pair(l pki.Leaf) *pki.KeyPair {
	w.t.Helper()
	cert, key, err := w.ca.Issue(l)
	if err != nil {
		w.t.Fatal(err)
	}
	pair, err := pki.StaticKeyPair(cert, key)
	if err != nil {
		w.t.Fatal(err)
	}
	return pair
}

func (w *testEnv) serving() *pki.KeyPair {
	return w.pair(pki.Leaf{CommonName: serviceName, DNSNames: []string{serviceName}, Server: true})
}

// set returns a Set that is closed when the test ends.
func (w *testEnv) set(change ...func(*Options)) *Set {
	o := Options{Engine: enginetest.Backend(w.t), Certificate: w.front, AllowLoopback: true}
	for _, c := range change {
		c(&o)
	}
	s := New(o)
	w.t.Cleanup(s.Close)
	return s
}

func (w *testEnv) spec(addresses ...string) Spec {
	s := Spec{Name: "kube-system/metrics:443", ServerName: serviceName, CABundle: w.ca.PEM()}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, Endpoint{Address: a})
	}
	return s
}

func (w *testEnv) backend(s *Set, addresses ...string) *Backend {
	w.t.Helper()
	b, err := s.Backend(w.spec(addresses...))
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// server is an HTTPS server that counts connections and can be killed like a process, with resets.
type server struct {
	address string
	conns   atomic.Int64 // accepted connections in total
	mu      sync.Mutex
	open    map[net.Conn]struct{}
	http    *http.Server
}

func (w *testEnv) serve(h http.Handler, protos ...string) *server {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	return w.serveOn(l, h, protos...)
}

func (w *testEnv) serveOn(l net.Listener, h http.Handler, protos ...string) *server {
	config := pki.ServerConfig(w.serving())
	config.ClientAuth = tls.RequestClientCert
	s := &server{address: l.Addr().String(), open: make(map[net.Conn]struct{})}
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(len(protos) == 0)
	if len(protos) > 0 {
		config.NextProtos = protos
	}
	s.http = &http.Server{
		Handler: h, TLSConfig: config, Protocols: p, ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(c net.Conn, state http.ConnState) {
			s.mu.Lock()
			defer s.mu.Unlock()
			switch state {
			case http.StateNew:
				s.conns.Add(1)
				s.open[c] = struct{}{}
			case http.StateClosed, http.StateHijacked:
				delete(s.open, c)
			}
		},
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.http.ServeTLS(l, "", "") })
	w.t.Cleanup(func() { _ = s.http.Close(); wg.Wait() })
	return s
}

func (s *server) openConns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// kill closes the listener and every connection at once.
func (s *server) kill() { _ = s.http.Close() }

// raw is a TLS server with a custom handler for connections.
func (w *testEnv) raw(proto string, handle func(*tls.Conn)) string {
	w.t.Helper()
	config := pki.ServerConfig(w.serving())
	config.NextProtos = []string{proto}
	return w.tcp(func(c net.Conn) {
		tc := tls.Server(c, config)
		if tc.Handshake() == nil {
			handle(tc)
		}
	})
}

// tcp is a TCP server with a custom handler for connections. They are closed when handle returns or the test ends.
func (w *testEnv) tcp(handle func(net.Conn)) string {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	closed := false
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if closed {
				_ = c.Close()
			}
			open = append(open, c)
			mu.Unlock()
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				handle(c)
			})
		}
	})
	w.t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		closed = true
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// deadAddress returns an address that refuses connections.
func (w *testEnv) deadAddress() string {
	w.t.Helper()
	l := w.listenApart()
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// listenApart listens on an address that no other process on this machine uses: once closed, the port is not reused by another process.
func (w *testEnv) listenApart() net.Listener {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil { // some systems have a single loopback address
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// link is a TCP hop that can be cut so that no data passes and no connection is closed: a black hole.
type link struct {
	address string
	cut     atomic.Bool
}

func (w *testEnv) link(to string) *link {
	k := &link{}
	k.address = w.tcp(func(c net.Conn) {
		up, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer func() { _ = up.Close() }()
		var wg sync.WaitGroup
		pump := func(to, from net.Conn) {
			defer func() { _ = to.Close() }()
			b := make([]byte, 16<<10)
			for {
				n, err := from.Read(b)
				if err != nil {
					return
				}
				if k.cut.Load() {
					continue // dropped
				}
				if _, err := to.Write(b[:n]); err != nil {
					return
				}
			}
		}
		wg.Go(func() { pump(up, c) })
		wg.Go(func() { pump(c, up) })
		wg.Wait()
	})
	return k
}

// frames serves HTTP/2 on the frame level. answer is called for each complete request, in order, and returns whether to continue.
type frames struct {
	*http2.Framer
	conn    net.Conn
	encoder *hpack.Encoder
	buffer  bytes.Buffer
}

func newFrames(c net.Conn) (*frames, bool) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c, preface); err != nil || string(preface) != http2.ClientPreface {
		return nil, false
	}
	f := &frames{Framer: http2.NewFramer(c, c), conn: c}
	f.encoder = hpack.NewEncoder(&f.buffer)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return f, true
}

func (f *frames) header(stream uint32, end bool, fields ...string) {
	f.buffer.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		_ = f.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: f.buffer.Bytes(), EndHeaders: true, EndStream: end})
}

// each calls answer with the ID of every complete request, until it returns false or the connection ends.
func (f *frames) each(answer func(stream uint32) bool) {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		done := uint32(0)
		switch fr := frame.(type) {
		case *http2.SettingsFrame:
			if !fr.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !fr.IsAck() {
				_ = f.WritePing(true, fr.Data)
			}
		case *http2.MetaHeadersFrame:
			if fr.StreamEnded() {
				done = fr.StreamID
			}
		case *http2.DataFrame:
			if n := uint32(len(fr.Data())); n > 0 {
				_ = f.WriteWindowUpdate(0, n)
			}
			if fr.StreamEnded() {
				done = fr.StreamID
			}
		}
		if done != 0 && !answer(done) {
			return
		}
	}
}

func get(t *testing.T, b http.RoundTripper) (string, error) {
	t.Helper()
	return do(t, b, http.MethodGet, nil)
}

func do(t *testing.T, b http.RoundTripper, method string, body io.Reader) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "https://ignored/apis/metrics.k8s.io/v1/nodes", body)
	if err != nil {
		t.Fatal(err)
	}
	r.GetBody = nil // the pool must not require it
	resp, err := b.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return string(text), err
}

// eventually waits for a condition.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not reached within %s: %s, want it to be true", within, what)
		}
		<-tick.C
	}
}

// soon fails unless one of several calls of try, which returns its duration, takes at most the limit. On a busy machine a single call may be
// slow, while a call that waits for a timeout is always slow.
func soon(t *testing.T, most time.Duration, try func() time.Duration) {
	t.Helper()
	var took time.Duration
	for range 5 {
		if took = try(); took <= most {
			return
		}
	}
	t.Errorf("duration of the last of 5 tries = %s, want at most %s once", took, most)
}

func text(s string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, s)
	})
}

// serveProto serves over one protocol: h2 or http/1.1.
func (w *testEnv) serveProto(h http.Handler, proto string) *server {
	w.t.Helper()
	if proto == "h2" {
		return w.serve(h)
	}
	return w.serve(h, proto)
}
