// Package library adapts net/http, and golang.org/x/net/http2 in the version of go.mod, to the interfaces of package engine.
// README.md in the directory above lists what they cannot promise.
package library

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/httpmsg"
)

// httpServer serves HTTP/1.1 with net/http, and HTTP/2 with golang.org/x/net/http2 in the version of go.mod instead of
// the copy in net/http, which only changes with Go. It has two net/http servers, one for each version, because a server can
// only be shut down as a whole, and HTTP/2 clients are notified first (GoAway).
//
// net/http starts a goroutine for each connection and for each HTTP/2 request, and does not report when they have ended.
// serverConn therefore counts them, and serve returns when all goroutines of its connection have ended.
// internal/httpengine/README.md lists what net/http cannot do.
type httpServer struct {
	c            engine.ServerConfig
	small, large versionServers // large is for trusted clients

	mu           sync.Mutex // guards the fields below, and the serverConn of each connection
	conns        map[net.Conn]*serverConn
	shuttingDown bool          // Shutdown or Close was called
	noNewHTTP2   bool          // GoAway was called: no new HTTP/2 connections
	idle         chan struct{} // closed when shutting down and no connection is left
	wait         sync.WaitGroup
}

// maxFrame is the largest frame that clients may send. The default of golang.org/x/net/http2 is 1 MiB for each
// connection.
const maxFrame = 16 << 10

// closeGrace is how long a shutdown waits for connections that have not begun a request, or have ended their last
// one.
const closeGrace = time.Second

// Engine implements engine.Engine.
type Engine struct{}

// NewServer implements engine.Engine.
func (Engine) NewServer(c engine.ServerConfig) engine.Server {
	s := &httpServer{c: c, conns: map[net.Conn]*serverConn{}, idle: make(chan struct{})}
	s.small = s.newServers(c.MaxHeaderBytes)
	if c.LargeHeaders != nil {
		s.large = s.newServers(httpmsg.MaxLargeHeader)
	}
	return s
}

func (s *httpServer) server(maxHeaderBytes int) *http.Server {
	return &http.Server{
		Handler: http.HandlerFunc(s.serveRequest), DisableGeneralOptionsHandler: true,
		MaxHeaderBytes: maxHeaderBytes, IdleTimeout: s.c.IdleTimeout,
		ErrorLog:    log.New(logLines(s.c.Logf), "", 0),
		ConnContext: s.connContext, ConnState: s.connState,
	}
}

// logLines writes the lines of a log.Logger to a Logf.
type logLines func(format string, args ...any)

// Write implements io.Writer.
func (l logLines) Write(line []byte) (int, error) {
	if l != nil {
		l("%s", strings.TrimSuffix(string(line), "\n"))
	}
	return len(line), nil
}

// serverConn is a connection that net/http serves. The server's mu guards the mutable fields.
type serverConn struct {
	net      *tls.Conn
	served   net.Conn // the connection that net/http uses: net, or a http1Conn
	servers  versionServers
	tls      *tls.ConnectionState
	h2       bool
	hijacked func()
	class    atomic.Int32 // httpmsg.ClientClass
	// maxHeaderBytes limits the header of a request.
	maxHeaderBytes int

	state      http.ConnState
	handlers   int           // number of running handlers
	closing    bool          // no handler may start
	goAwaySent bool          // CloseIdle has sent GOAWAY
	ended      chan struct{} // closed when state is StateClosed or StateHijacked
	idle       chan struct{} // closed when closing and no handler runs
}

type connKey struct{}

// Begin implements Server.
func (s *httpServer) Begin(nc *tls.Conn, hijacked func()) (serve func()) {
	state := nc.ConnectionState()
	c := &serverConn{
		net: nc, tls: &state, h2: state.NegotiatedProtocol == "h2", hijacked: hijacked,
		ended: make(chan struct{}), idle: make(chan struct{}),
	}
	c.servers, c.maxHeaderBytes = s.serversFor(&state)
	if c.served = nc; !c.h2 {
		c.served = &http1Conn{Conn: nc}
	}
	if !s.add(c) {
		return func() { rejectConn(c) }
	}
	return func() { s.serve(c) }
}

func (s *httpServer) serve(c *serverConn) {
	defer s.remove(c)
	server := c.servers.http1
	if c.h2 {
		server = c.servers.http2
	}
	l := &oneConn{conn: c.served, closed: make(chan struct{}), ended: c.ended}
	_ = server.Serve(l) // returns when l has no more connections
	if !l.accepted {    // GoAway was called before
		rejectConn(c)
		return
	}
	<-c.ended
	s.mu.Lock()
	c.closing = true
	if c.handlers == 0 {
		close(c.idle)
	}
	s.mu.Unlock()
	<-c.idle
}

func (s *httpServer) add(c *serverConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shuttingDown || c.h2 && s.noNewHTTP2 {
		return false
	}
	s.conns[c.served] = c
	return true
}

func (s *httpServer) remove(c *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeLocked(c)
}

func (s *httpServer) removeLocked(c *serverConn) {
	if _, ok := s.conns[c.served]; !ok {
		return
	}
	delete(s.conns, c.served)
	if s.shuttingDown && len(s.conns) == 0 {
		close(s.idle)
	}
}

// rejectConn informs a client that connected too late that none of its requests is processed. It may send all of them to
// another server.
func rejectConn(c *serverConn) {
	defer func() { _ = c.net.NetConn().Close() }()
	_ = c.net.SetDeadline(time.Now().Add(closeGrace))
	if !c.h2 {
		_ = c.net.Close()
		return
	}
	if _, err := c.net.Write(append([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}, goAwayFrame(0)...)); err != nil { // empty SETTINGS
		return
	}
	_, _ = io.CopyN(io.Discard, c.net, 1<<20) // unread bytes would reset the connection before the client reads the GOAWAY
}

// goAwayFrame returns a GOAWAY with NO_ERROR.
func goAwayFrame(last uint32) []byte {
	return []byte{0, 0, 8, 7, 0, 0, 0, 0, 0, byte(last >> 24), byte(last >> 16), byte(last >> 8), byte(last), 0, 0, 0, 0}
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn     net.Conn
	accepted bool
	once     sync.Once
	closed   chan struct{}
	ended    <-chan struct{} // closed when the connection has ended
}

// Accept implements net.Listener. net/http calls it from one goroutine.
func (l *oneConn) Accept() (net.Conn, error) {
	if !l.accepted {
		l.accepted = true
		return l.conn, nil
	}
	select {
	case <-l.ended:
	case <-l.closed:
	}
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

func (s *httpServer) connContext(ctx context.Context, nc net.Conn) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return context.WithValue(ctx, connKey{}, s.conns[nc])
}

// connState is called by net/http.
func (s *httpServer) connState(nc net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conns[nc]
	if c == nil {
		return
	}
	c.state = state
	switch state {
	case http.StateHijacked:
		if h, ok := nc.(*http1Conn); ok {
			h.hijacked.Store(true)
		}
		close(c.ended)
		s.removeLocked(c) // the handler's side closes it
		c.hijacked()
	case http.StateClosed:
		close(c.ended)
	}
}

// begin counts a handler. It returns false if the connection has ended: net/http may start a goroutine for a request
// without a waiting client.
func (s *httpServer) begin(c *serverConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.closing {
		return false
	}
	c.handlers++
	return true
}

func (s *httpServer) handlerReturned(c *serverConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.handlers--; c.closing && c.handlers == 0 {
		close(c.idle)
	}
}

// serveRequest calls the handler with a copy of the request: net/http continues to use the original, and depends on the
// type of its body.
func (s *httpServer) serveRequest(to http.ResponseWriter, came *http.Request) {
	c := came.Context().Value(connKey{}).(*serverConn)
	if !s.begin(c) {
		panic(http.ErrAbortHandler)
	}
	defer s.handlerReturned(c)
	ctx := came.Context()
	if s.c.Context != nil {
		ctx = s.c.Context(ctx, came.RemoteAddr)
	}
	r := came.WithContext(ctx)
	defer func() {
		if f := r.MultipartForm; f != nil {
			_ = f.RemoveAll()
		}
	}()
	r.TLS = c.tls // regardless of the client's :scheme
	w := &responseWriter{ResponseWriter: to, control: http.NewResponseController(to), h2: c.h2, stall: s.c.StallTimeout, class: &c.class}
	defer w.detach()
	if !c.h2 {
		_ = w.control.EnableFullDuplex() // the body may continue after the response has begun, as over HTTP/2
	}
	if s.c.Refuse != nil && c.class.Load() == httpmsg.Ordinary && s.c.Refuse() {
		w.Header().Set("Retry-After", "1")
		errLowMemory.answer(w, !c.h2)
		return
	}
	grant, extra := s.grantFields(c, r)
	defer grant.Release()
	if refused := s.checkRequest(c, r, came, extra); refused != nil {
		refused.answer(w, !c.h2)
		return
	}
	if grant != nil {
		w.grant, w.headerMemory = grant, httpmsg.HeaderMemory(headerBytes(r), httpmsg.MaxFields+extra)
	}
	s.c.Handler.ServeHTTP(w, r)
	w.handlerReturned()
}

// GoAway implements Server. The GOAWAY of golang.org/x/net/http2 contains the last stream that it has received, so clients
// can immediately determine which requests are not processed, and no wait is needed.
func (s *httpServer) GoAway(context.Context) error {
	s.mu.Lock()
	s.noNewHTTP2 = true
	s.mu.Unlock()
	s.sendGoAway()
	return nil
}

// sendGoAway makes net/http send GOAWAY. It does not wait for clients; Shutdown does.
func (s *httpServer) sendGoAway() {
	past, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.small.http2.Shutdown(past) // it returns the context's error
	if s.large.http2 != nil {
		_ = s.large.http2.Shutdown(past)
	}
}

// Shutdown implements Server.
func (s *httpServer) Shutdown(ctx context.Context) error {
	s.beginShutdown()
	s.wait.Go(func() { // closing a connection may wait for its client
		s.sendGoAway()
		s.small.http1.SetKeepAlivesEnabled(false) // closes idle connections, and the others after their response
		if s.large.http1 != nil {
			s.large.http1.SetKeepAlivesEnabled(false)
		}
	})
	look := time.NewTicker(closeGrace)
	defer look.Stop()
	for looks := 1; ; looks++ {
		select {
		case <-s.idle:
			s.wait.Wait()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			s.closeIdleConns(looks > 1)
		}
	}
}

// beginShutdown refuses new connections.
func (s *httpServer) beginShutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.shuttingDown && len(s.conns) == 0 {
		close(s.idle)
	}
	s.shuttingDown, s.noNewHTTP2 = true, true
}

// closeIdleConns closes connections without requests that net/http has not closed: it waits 5 seconds for connections on
// which nothing has arrived. HTTP/2 connections are closed slightly later, because net/http closes them a second after the
// GOAWAY.
func (s *httpServer) closeIdleConns(h2 bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.idleLocked() && (h2 || !c.h2) {
			_ = c.net.NetConn().Close()
		}
	}
}

// idleLocked reports whether the connection has no request.
func (c *serverConn) idleLocked() bool {
	return c.handlers == 0 && (c.state == http.StateNew || c.state == http.StateIdle)
}

// Close implements Server.
func (s *httpServer) Close() {
	s.beginShutdown()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.net.NetConn().Close()
	}
}

// CloseIdle closes up to n connections without requests, and returns their number. net/http cannot close a single HTTP/2
// connection, so CloseIdle sends a GOAWAY itself. It does not name a stream: the client cannot determine whether requests
// that it has just sent are processed. The connection is closed a second later, or when it becomes idle after that.
func (s *httpServer) CloseIdle(n int) int {
	s.mu.Lock()
	var chosen []*serverConn
	for _, c := range s.conns {
		if len(chosen) == n {
			break
		}
		if c.idleLocked() && !c.goAwaySent && c.class.Load() != httpmsg.Privileged {
			c.goAwaySent = true
			chosen = append(chosen, c)
		}
	}
	s.mu.Unlock()
	for _, c := range chosen {
		s.wait.Go(func() { s.closeIdleHTTP2(c) })
	}
	return len(chosen)
}

// CutLargest does nothing, because net/http does not report the memory of connections.
func (s *httpServer) CutLargest(int64) int { return 0 }

func (s *httpServer) closeIdleHTTP2(c *serverConn) {
	if !c.h2 {
		_ = c.net.Close()
		return
	}
	_, _ = c.net.Write(goAwayFrame(1<<31 - 1)) // while there is no stream, net/http writes only complete small frames
	look := time.NewTicker(closeGrace)
	defer look.Stop()
	for {
		select {
		case <-c.ended:
			return
		case <-look.C:
		}
		s.mu.Lock()
		silent := c.idleLocked()
		s.mu.Unlock()
		if silent {
			_ = c.net.NetConn().Close()
		}
	}
}

var errOver = errors.New("the handler has returned")
