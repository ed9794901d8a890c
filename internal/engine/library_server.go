package engine

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

	"golang.org/x/net/http2"

	"portico.dev/internal/httpmsg"
)

// libraryServer is net/http for HTTP/1.1, and golang.org/x/net/http2 below it for HTTP/2: the version of go.mod, and not the copy
// within net/http, which changes only with Go. Two servers of net/http are behind it, one for each version, since a server can only
// begin to leave as a whole, and clients of HTTP/2 hear of it first (GoAway).
//
// net/http starts a goroutine for each connection and for each request of HTTP/2, and tells nobody when they have ended. So
// connections and requests are counted here (libraryServerConn), and Serve returns when nothing of its connection runs any more.
// docs/http-engines.md lists what net/http cannot be brought to do.
type libraryServer struct {
	c            ServerConfig
	http1, http2 *http.Server

	mu      sync.Mutex // guards what follows, and the libraryServerConn of each connection
	conns   map[net.Conn]*libraryServerConn
	leaving bool          // Shutdown or Close was called
	goneFor bool          // GoAway was: no connection of HTTP/2 begins any more
	empty   chan struct{} // closed when leaving and no connection is left
	wait    sync.WaitGroup
}

// libraryMaxFrame is the largest frame that clients may send. The library's own default is 1 MiB for each connection.
const libraryMaxFrame = 16 << 10

// libraryPatience is how long connections that have not begun a request, or have ended their last one, are given in a shutdown.
const libraryPatience = time.Second

func newLibrary(c ServerConfig) *libraryServer {
	s := &libraryServer{c: c, conns: map[net.Conn]*libraryServerConn{}, empty: make(chan struct{})}
	s.http1, s.http2 = s.server(), s.server()
	s.http1.Protocols = new(http.Protocols)
	s.http1.Protocols.SetHTTP1(true)
	s.http1.ReadHeaderTimeout = c.HeaderTimeout
	s.http2.Protocols = new(http.Protocols)
	s.http2.Protocols.SetHTTP2(true)
	s.http2.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: c.MaxConcurrentStreams, MaxReadFrameSize: libraryMaxFrame,
		MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: 1 << 20,
		SendPingTimeout: c.PingAfter, PingTimeout: c.PingTimeout, WriteByteTimeout: c.StallTimeout,
	}
	//lint:ignore SA1019 http.Server.Protocols chooses the copy within net/http
	if err := http2.ConfigureServer(s.http2, nil); err != nil {
		panic(err) // of TLS settings, of which there are none
	}
	return s
}

func (s *libraryServer) server() *http.Server {
	return &http.Server{
		Handler: http.HandlerFunc(s.serveRequest), DisableGeneralOptionsHandler: true,
		MaxHeaderBytes: s.c.MaxHeaderBytes, IdleTimeout: s.c.IdleTimeout,
		ErrorLog:    log.New(logLines(s.c.Logf), "", 0),
		ConnContext: s.connContext, ConnState: s.connState,
	}
}

// logLines gives the lines of a log.Logger to a Logf.
type logLines func(format string, args ...any)

// Write implements io.Writer.
func (l logLines) Write(line []byte) (int, error) {
	if l != nil {
		l("%s", strings.TrimSuffix(string(line), "\n"))
	}
	return len(line), nil
}

// libraryServerConn is a connection that net/http serves. The server's mu guards what can change.
type libraryServerConn struct {
	net      *tls.Conn
	tls      *tls.ConnectionState
	h2       bool
	hijacked func()
	identity atomic.Int32 // httpmsg.Identity

	state   http.ConnState
	running int           // handlers
	over    bool          // no handler may begin
	retires bool          // CloseIdle has told its client to go
	ended   chan struct{} // closed when state is StateClosed or StateHijacked
	idle    chan struct{} // closed when over and no handler runs
}

type libraryConnKey struct{}

// Serve implements Server.
func (s *libraryServer) Serve(nc *tls.Conn, hijacked func()) {
	state := nc.ConnectionState()
	c := &libraryServerConn{
		net: nc, tls: &state, h2: state.NegotiatedProtocol == "h2", hijacked: hijacked,
		ended: make(chan struct{}), idle: make(chan struct{}),
	}
	if !s.add(c) {
		turnAway(c)
		return
	}
	defer s.forget(c)
	server := s.http1
	if c.h2 {
		server = s.http2
	}
	l := &oneConn{conn: nc, closed: make(chan struct{}), ended: c.ended}
	_ = server.Serve(l) // its error is that l has no more connections
	if !l.taken {       // GoAway was sooner
		turnAway(c)
		return
	}
	<-c.ended
	s.mu.Lock()
	c.over = true
	if c.running == 0 {
		close(c.idle)
	}
	s.mu.Unlock()
	<-c.idle
}

func (s *libraryServer) add(c *libraryServerConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving || c.h2 && s.goneFor {
		return false
	}
	s.conns[c.net] = c
	return true
}

func (s *libraryServer) forget(c *libraryServerConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetLocked(c)
}

func (s *libraryServer) forgetLocked(c *libraryServerConn) {
	if _, ok := s.conns[c.net]; !ok {
		return
	}
	delete(s.conns, c.net)
	if s.leaving && len(s.conns) == 0 {
		close(s.empty)
	}
}

// turnAway tells a client that came too late that nothing of what it sends is served: it may send it elsewhere, writes too.
func turnAway(c *libraryServerConn) {
	defer func() { _ = c.net.NetConn().Close() }()
	_ = c.net.SetDeadline(time.Now().Add(libraryPatience))
	if !c.h2 {
		_ = c.net.Close()
		return
	}
	if _, err := c.net.Write(append([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}, goAwayFrame(0)...)); err != nil { // SETTINGS, empty
		return
	}
	_, _ = io.CopyN(io.Discard, c.net, 1<<20) // so that what it has sent does not reset the connection before it reads that
}

// goAwayFrame says that no stream after last is served, and that nothing is wrong.
func goAwayFrame(last uint32) []byte {
	return []byte{0, 0, 8, 7, 0, 0, 0, 0, 0, byte(last >> 24), byte(last >> 16), byte(last >> 8), byte(last), 0, 0, 0, 0}
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn   net.Conn
	taken  bool
	once   sync.Once
	closed chan struct{}
	ended  <-chan struct{} // when the connection has
}

// Accept implements net.Listener. net/http calls it from one goroutine.
func (l *oneConn) Accept() (net.Conn, error) {
	if !l.taken {
		l.taken = true
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

func (s *libraryServer) connContext(ctx context.Context, nc net.Conn) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return context.WithValue(ctx, libraryConnKey{}, s.conns[nc])
}

// connState is told by net/http what becomes of a connection.
func (s *libraryServer) connState(nc net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conns[nc]
	if c == nil {
		return
	}
	c.state = state
	switch state {
	case http.StateHijacked:
		close(c.ended)
		s.forgetLocked(c) // others' business
		c.hijacked()
	case http.StateClosed:
		close(c.ended)
	}
}

// begin counts a handler. It reports false when the connection has ended: net/http may start a goroutine for a request that
// nobody waits for any more.
func (s *libraryServer) begin(c *libraryServerConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.over {
		return false
	}
	c.running++
	return true
}

func (s *libraryServer) done(c *libraryServerConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.running--; c.over && c.running == 0 {
		close(c.idle)
	}
}

// serveRequest stands between net/http and the handler. net/http goes on with its own request, whose body has a type that means
// something to it: the handler gets a copy.
func (s *libraryServer) serveRequest(to http.ResponseWriter, came *http.Request) {
	c := came.Context().Value(libraryConnKey{}).(*libraryServerConn)
	if !s.begin(c) {
		panic(http.ErrAbortHandler)
	}
	defer s.done(c)
	r := came.WithContext(came.Context())
	defer func() {
		if f := r.MultipartForm; f != nil {
			_ = f.RemoveAll()
		}
	}()
	r.TLS = c.tls // whatever a client of HTTP/2 calls its scheme
	w := &libraryResponse{ResponseWriter: to, control: http.NewResponseController(to), h2: c.h2, stall: s.c.StallTimeout, identity: &c.identity}
	defer w.leave()
	if !c.h2 {
		_ = w.control.EnableFullDuplex() // the body may go on while it is answered, as over HTTP/2
	}
	if s.c.Refuse != nil && c.identity.Load() == httpmsg.Ordinary && s.c.Refuse() {
		w.Header().Set("Retry-After", "1")
		errShort.answer(w, !c.h2)
		return
	}
	if refused := s.admit(c, r, came); refused != nil {
		refused.answer(w, !c.h2)
		return
	}
	s.c.Handler.ServeHTTP(w, r)
	w.finishing()
}

// GoAway implements Server. The library's GOAWAY names the last stream that it has seen, so that its clients know at once
// which of their requests are not served: there is nothing to wait for.
func (s *libraryServer) GoAway(context.Context) error {
	s.mu.Lock()
	s.goneFor = true
	s.mu.Unlock()
	s.sayGoAway()
	return nil
}

// sayGoAway has net/http tell the clients of HTTP/2, and does not wait for them to go: Shutdown does.
func (s *libraryServer) sayGoAway() {
	past, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.http2.Shutdown(past) // its error is that past has ended
}

// Shutdown implements Server.
func (s *libraryServer) Shutdown(ctx context.Context) error {
	s.leave()
	s.wait.Go(func() { // to close a connection may wait for its client
		s.sayGoAway()
		s.http1.SetKeepAlivesEnabled(false) // closes those that are idle, and the others with the answer in hand
	})
	look := time.NewTicker(libraryPatience)
	defer look.Stop()
	for looks := 1; ; looks++ {
		select {
		case <-s.empty:
			s.wait.Wait()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			s.cutSilent(looks > 1)
		}
	}
}

// leave has no connection come in any more.
func (s *libraryServer) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leaving && len(s.conns) == 0 {
		close(s.empty)
	}
	s.leaving, s.goneFor = true, true
}

// cutSilent ends the connections without a request in hand that net/http has not closed: it waits for 5 seconds for those on
// which nothing has come yet. Those of HTTP/2 have a little longer, since net/http closes them a second after the GOAWAY.
func (s *libraryServer) cutSilent(h2 bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.silentLocked() && (h2 || !c.h2) {
			_ = c.net.NetConn().Close()
		}
	}
}

// silentLocked reports whether there is no request in hand.
func (c *libraryServerConn) silentLocked() bool {
	return c.running == 0 && (c.state == http.StateNew || c.state == http.StateIdle)
}

// Close implements Server.
func (s *libraryServer) Close() {
	s.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.net.NetConn().Close()
	}
}

// CloseIdle ends up to n connections that have no request in hand, and returns how many. net/http offers no way to end one
// connection of HTTP/2, so that its client is told by a GOAWAY of ours, which names no stream: what the client has sent by then
// it cannot know to be served or not. The connection is closed a second later, or as soon after that as it is idle.
func (s *libraryServer) CloseIdle(n int) int {
	s.mu.Lock()
	var chosen []*libraryServerConn
	for _, c := range s.conns {
		if len(chosen) == n {
			break
		}
		if c.silentLocked() && !c.retires && c.identity.Load() != httpmsg.Privileged {
			c.retires = true
			chosen = append(chosen, c)
		}
	}
	s.mu.Unlock()
	for _, c := range chosen {
		s.wait.Go(func() { s.retire(c) })
	}
	return len(chosen)
}

// CutLargest does nothing: net/http does not tell what connections hold.
func (s *libraryServer) CutLargest(int64) int { return 0 }

func (s *libraryServer) retire(c *libraryServerConn) {
	if !c.h2 {
		_ = c.net.Close()
		return
	}
	_, _ = c.net.Write(goAwayFrame(1<<31 - 1)) // net/http writes nothing while there is no stream, but for whole small frames
	look := time.NewTicker(libraryPatience)
	defer look.Stop()
	for {
		select {
		case <-c.ended:
			return
		case <-look.C:
		}
		s.mu.Lock()
		silent := c.silentLocked()
		s.mu.Unlock()
		if silent {
			_ = c.net.NetConn().Close()
		}
	}
}

var errOver = errors.New("the handler has returned")
