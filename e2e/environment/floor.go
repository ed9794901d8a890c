package environment

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"portico.dev/internal/httpengine"
	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/pki"
	"portico.dev/internal/run/memory"
	"portico.dev/internal/run/processors"
)

// The floors measure HTTP and TLS alone, with the same implementations as a front door or a gateway: without
// authentication, lookups, limits and logs. The difference to a front door is the cost of its functions. A front door
// cannot cost less than its floor with this HTTP and TLS implementation.

// Floor starts Portico's HTTP server with a handler that writes an object from memory.
func (y *Environment) Floor() (*Server, error) { return y.child("floor") }

// LibraryFloor is Floor with net/http.
func (y *Environment) LibraryFloor() (*Server, error) { return y.child("floor-library") }

// RelayFloor starts Portico's HTTP server with a handler that forwards each request to the backend with Portico's
// HTTP/2 client. env contains additional environment variables.
func (y *Environment) RelayFloor(env ...string) (*Server, error) {
	return y.childOf("floor-relay", y.orders, env...)
}

// fromMemory returns the handler of the floors without a backend.
func fromMemory() http.Handler {
	b := newBackend()
	contentType := []string{"application/json"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		processors.NoteWork()
		w.Header()["Content-Type"] = contentType
		body := b.large
		if strings.HasSuffix(r.URL.Path, "/small") {
			body = b.small
		}
		_, _ = w.Write(body) // fails only if the client has disconnected
	})
}

func serveFloor(o *commands, announce announcement) error {
	return serveOwnHTTP(o, announce, fromMemory())
}

func serveLibraryFloor(o *commands, announce announcement) error {
	return serveLibrary(o, announce, fromMemory())
}

func serveRelayFloor(o *commands, announce announcement) error {
	r, err := newRelay(o)
	if err != nil {
		return err
	}
	return serveOwnHTTP(o, announce, r)
}

// serveOwnHTTP serves with Portico's HTTP server and the front door's limits of streams and headers. It manages
// memory and processors like the front door.
func serveOwnHTTP(o *commands, announce announcement, h http.Handler) error {
	certificate, err := pki.StaticKeyPair(o.Serving.Certificate, o.Serving.Key)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := announce(l.Addr().String(), nil); err != nil {
		return err
	}
	ctx := context.Background() // the process ends with its standard input
	go memory.TuneGC(ctx, func() {})
	go processors.Adapt(ctx)
	s := httpengine.NewServer(httpengine.Portico, engine.ServerConfig{
		Handler: h, MaxConcurrentStreams: 100, MaxHeaderBytes: 64 << 10, HeaderTimeout: handshakeLimit, IdleTimeout: 90 * time.Second,
		PingAfter: 30 * time.Second, PingTimeout: 15 * time.Second, StallTimeout: 30 * time.Second,
	})
	config := pki.ServerConfig(certificate)
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			c := tls.Server(conn, config)
			ctx, cancel := context.WithTimeout(ctx, handshakeLimit)
			defer cancel()
			if c.HandshakeContext(ctx) != nil {
				_ = conn.Close() // the client sees the error
				return
			}
			go s.Begin(c, func() {})() // on a new stack, which no handshake has grown
		}()
	}
}

const handshakeLimit = 10 * time.Second

// relay forwards requests and responses unchanged.
type relay struct {
	address string
	config  *tls.Config

	mu    sync.Mutex // guards the fields below; held while a connection is made
	conns []*relayConn
}

// relayConn is a connection to the backend.
type relayConn struct {
	engine.ClientConn
	active int // requests in flight
}

const checkInterval = 250 * time.Millisecond

func newRelay(o *commands) (*relay, error) {
	certificate, err := pki.StaticKeyPair(o.Client.Certificate, o.Client.Key)
	if err != nil {
		return nil, err
	}
	config, err := pki.ClientConfig(pki.ClientOptions{ServerName: o.BackendServerName, Roots: o.CA, Certificate: certificate})
	if err != nil {
		return nil, err
	}
	r := &relay{address: o.Backend, config: config}
	go func() { // until the process exits
		for range time.Tick(checkInterval) {
			r.check()
		}
	}()
	return r, nil
}

// check performs the periodic checks that connections require.
func (l *relay) check() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Check(false)
	}
}

// acquire returns a connection with capacity for a request. The caller must call release.
func (l *relay) acquire(ctx context.Context) (*relayConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		if c.active < c.MaxStreams() && c.Available() {
			c.active++
			return c, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	conn, err := (&tls.Dialer{Config: l.config}).DialContext(ctx, "tcp", l.address)
	if err != nil {
		return nil, err
	}
	made, err := httpengine.NewClientConn(ctx, httpengine.Portico, conn.(*tls.Conn), engine.ClientConfig{
		MaxHeaderBytes: 256 << 10, CheckInterval: checkInterval, PingAfter: time.Minute, PingTimeout: time.Minute,
		HeaderTimeout: time.Minute, ProtocolTimeout: handshakeLimit,
	})
	if err != nil {
		return nil, err
	}
	c := &relayConn{ClientConn: made, active: 1}
	l.conns = append(l.conns, c)
	return c, nil
}

func (l *relay) release(c *relayConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.active--
}

var relayBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// ServeHTTP implements http.Handler.
func (l *relay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	processors.NoteWork()
	c, err := l.acquire(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer l.release(c)
	out := *r
	target := *r.URL
	target.Scheme, target.Host = "https", l.address
	out.URL, out.RequestURI = &target, ""
	resp, err := c.RoundTrip(&out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = resp.Body.Close() }() // errors were reported by Read
	h := w.Header()
	for name, values := range resp.Header {
		h[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	if copyAsItComes(w, resp) != nil {
		panic(http.ErrAbortHandler)
	}
}

// copyAsItComes copies a response. It flushes each part of a response without a length, unless more data is ready.
func copyAsItComes(w http.ResponseWriter, resp *http.Response) error {
	ready, _ := resp.Body.(engine.ResponseBody) // nil without a body
	flush := func() error {
		if resp.ContentLength >= 0 || ready == nil || ready.Ready() {
			return nil
		}
		return http.NewResponseController(w).Flush()
	}
	b := relayBuffers.Get().(*[]byte)
	defer relayBuffers.Put(b)
	for {
		if err := flush(); err != nil {
			return err
		}
		n, err := resp.Body.Read(*b)
		if n > 0 {
			processors.NoteWork()
			if _, err := w.Write((*b)[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}
