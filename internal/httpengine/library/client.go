package library

//lint:file-ignore SA1019 net/http's ClientConn sends no pings, and takes no TLS connection that was made and verified elsewhere.

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/httpmsg"
)

const (
	// streamWindow is the maximum size of the unread part of a response.
	streamWindow = 512 << 10
	// connWindow limits the data that all responses of a connection hold. It exceeds streamWindow times
	// maxStreams, because golang.org/x/net/http2 returns it only as bytes are read.
	connWindow = 1 << 30
	// maxStreams is the maximum number of requests on a connection if the server sets no limit, or a higher one.
	maxStreams = 1000
	// closeTimeout limits the time for closing messages to a server that may be gone.
	closeTimeout = 250 * time.Millisecond
	// openWindow is reported for windows of unknown size.
	openWindow = 1 << 20
	// stalledAfter is how long sending a part of a request body may take before the window counts as closed.
	stalledAfter = 20 * time.Millisecond
)

// clientConn is a connection of golang.org/x/net/http2. State that it does not report is derived from its calls to the
// underlying connection, and to bodies. clientConn does not parse the protocol.
type clientConn struct {
	config engine.ClientConfig
	nc     *tls.Conn
	conn   *http2.ClientConn

	settingsAcknowledged chan struct{} // closed when the server's SETTINGS have been acknowledged
	transportClosed      chan struct{} // closed when golang.org/x/net/http2 has closed the connection
	done                 chan struct{} // closed when all goroutines of the connection have ended
	refreshNow           chan struct{} // capacity 1: the state of the connection must be queried
	tasks                sync.WaitGroup
	ctx                  context.Context // of pings; ends with the connection
	cancel               context.CancelFunc

	reads   atomic.Uint64 // reads that returned bytes
	writes  atomic.Uint64
	streams atomic.Int64 // allowed by the server
	active  atomic.Int64 // requests
	ended   atomic.Bool
	pinging atomic.Bool

	// Used by Check.
	pingAfter, pingTimeout int    // in checks
	lastReads              uint64 // reads at the last check
	idleChecks, pingChecks int    // checks without a read, and since a ping was sent

	mu          sync.Mutex // guards the fields below
	err         *engine.Error
	violation   error // the server's protocol violation, from a request's error
	writeFailed bool  // a write failed
	held        map[*heldBody]struct{}
	uploads     map[*requestBody]struct{}
	waiting     map[*exchange]context.CancelCauseFunc // requests that AbandonWaiting ends
}

// NewClientConn implements engine.Engine.
func (Engine) NewClientConn(ctx context.Context, tc *tls.Conn, config engine.ClientConfig) (engine.ClientConn, error) {
	c := &clientConn{
		config: config, nc: tc,
		settingsAcknowledged: make(chan struct{}), transportClosed: make(chan struct{}), done: make(chan struct{}), refreshNow: make(chan struct{}, 1),
		pingAfter: checksIn(config.PingAfter, config.CheckInterval), pingTimeout: checksIn(config.PingTimeout, config.CheckInterval),
		held: map[*heldBody]struct{}{}, uploads: map[*requestBody]struct{}{}, waiting: map[*exchange]context.CancelCauseFunc{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	below := &observedConn{Conn: tc, owner: c}
	t, err := newTransport(config)
	if err == nil {
		c.conn, err = t.NewClientConn(below)
	}
	if err != nil {
		c.fail(&engine.Error{Kind: engine.Lost, Err: err})
		_ = below.Close() // the first error is returned
	}
	go c.watch()
	select {
	case <-c.settingsAcknowledged:
		c.refresh()
		return c, nil
	case <-c.done:
	case <-ctx.Done():
		c.fail(canceledError(ctx))
		<-c.done
	}
	return nil, c.closeError()
}

func checksIn(d, every time.Duration) int { return max(1, int((d+every-1)/every)) }

// newTransport configures golang.org/x/net/http2. Check detects dead connections instead of ReadIdleTimeout, which
// measures time: a process that did not run for a while would close all its connections at once.
func newTransport(config engine.ClientConfig) (*http2.Transport, error) {
	t, err := http2.ConfigureTransports(&http.Transport{
		Proxy:                 nil, // requests of clients must not depend on the environment of this process
		DisableCompression:    true,
		ResponseHeaderTimeout: config.HeaderTimeout,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: connWindow, MaxReadFrameSize: 16 << 10,
		},
	})
	if err != nil {
		return nil, err
	}
	t.MaxHeaderListSize = uint32(config.MaxHeaderBytes)
	t.StrictMaxConcurrentStreams = true // a request beyond the server's limit waits instead of failing
	t.WriteByteTimeout = config.ProtocolTimeout
	t.PingTimeout = config.PingTimeout
	return t, nil
}

// observedConn is the connection that golang.org/x/net/http2 uses.
type observedConn struct {
	*tls.Conn
	owner  *clientConn
	closed sync.Once
}

func (o *observedConn) Read(p []byte) (int, error) {
	n, err := o.Conn.Read(p)
	if n > 0 {
		o.owner.reads.Add(1)
	}
	if err != nil {
		why := err
		if err == io.EOF {
			why = errServerClosed
		}
		o.owner.fail(&engine.Error{Kind: engine.Lost, Err: why})
	}
	return n, err
}

// Write is first called with the preface, and then with the acknowledgement of the server's SETTINGS. Requests are sent
// only after that.
func (o *observedConn) Write(p []byte) (int, error) {
	if o.owner.writes.Add(1) == 2 {
		close(o.owner.settingsAcknowledged)
	}
	n, err := o.Conn.Write(p)
	if err != nil {
		o.owner.mu.Lock()
		o.owner.writeFailed = true
		o.owner.mu.Unlock()
	}
	return n, err
}

func (o *observedConn) Close() (err error) {
	o.closed.Do(func() {
		o.owner.ended.Store(true)
		force := time.AfterFunc(closeTimeout, o.owner.closeNow)
		defer force.Stop()
		err = o.Conn.Close()
		close(o.owner.transportClosed)
	})
	return err
}

// closeNow closes the connection without TLS's closing message.
func (c *clientConn) closeNow() { _ = c.nc.NetConn().Close() } // ends reads and writes too

// watch queries the state of the connection from golang.org/x/net/http2, which may wait for a write, until the connection
// has ended.
func (c *clientConn) watch() {
	defer close(c.done)
	for {
		select {
		case <-c.refreshNow:
			c.refresh()
		case <-c.transportClosed:
			c.findCloseReason()
			return
		}
	}
}

func (c *clientConn) refresh() {
	if state := c.conn.State(); !state.Closed {
		c.streams.Store(int64(min(state.MaxConcurrentStreams, maxStreams)))
	}
}

// findCloseReason determines why golang.org/x/net/http2 closed the connection: after a GOAWAY and the last request, because
// of a failed write, or because the server violated the protocol, which is reported only to waiting requests.
func (c *clientConn) findCloseReason() {
	c.mu.Lock()
	known, violated, unsent := c.err != nil, c.violation, c.writeFailed
	c.mu.Unlock()
	switch {
	case known:
	case violated == nil && (unsent || c.conn.State().Closing):
		c.fail(&engine.Error{Kind: engine.Lost, Err: errClientClosed})
	default:
		if violated == nil {
			violated = errProtocol
		}
		c.fail(&engine.Error{Kind: engine.ProtocolViolation, Err: violated})
	}
	c.cancel()
	c.tasks.Wait()
	if c.config.OnClose != nil {
		c.config.OnClose()
	}
}

// fail ends the connection and all its requests without waiting. Only the first reason is recorded.
func (c *clientConn) fail(why *engine.Error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = why
	}
	c.mu.Unlock()
	c.ended.Store(true)
	if !first {
		return
	}
	if why.Kind == engine.PingTimeout {
		c.closeNow() // the server would not read a closing message
		return
	}
	_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // ends the reader of golang.org/x/net/http2, and everything with it
	force := time.AfterFunc(closeTimeout, c.closeNow)
	context.AfterFunc(c.ctx, func() { force.Stop() })
}

func (c *clientConn) closeError() *engine.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *clientConn) MaxStreams() int { return int(c.streams.Load()) }
func (c *clientConn) Available() bool { return !c.Closed() && c.conn.CanTakeNewRequest() }
func (c *clientConn) Closed() bool    { return c.ended.Load() }
func (c *clientConn) Close()          { c.fail(&engine.Error{Kind: engine.Lost, Err: errClientClosed}) }

func (c *clientConn) PingTimedOut() bool {
	why := c.closeError()
	return why != nil && why.Kind == engine.PingTimeout
}

func (c *clientConn) ProtocolError() error {
	if why := c.closeError(); why != nil && why.Kind == engine.ProtocolViolation {
		return why
	}
	return nil
}

// Window returns an estimate, because golang.org/x/net/http2 does not report its windows. They count as closed while a part
// of a body has not been sent for stalledAfter.
func (c *clientConn) Window() (now, most int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for b := range c.uploads {
		if b.stalled() {
			return 0, openWindow
		}
	}
	return openWindow, openWindow
}

func (c *clientConn) Check(idle bool) {
	c.release()
	select {
	case c.refreshNow <- struct{}{}:
	default: // a query is already pending
	}
	if now := c.reads.Load(); now != c.lastReads {
		c.lastReads, c.idleChecks, c.pingChecks = now, 0, 0
		return
	}
	c.idleChecks++
	if c.pingChecks > 0 {
		if c.pingChecks++; c.pingChecks > c.pingTimeout {
			c.fail(&engine.Error{Kind: engine.PingTimeout, Err: errUnansweredPing})
		}
		return
	}
	if c.idleChecks >= c.pingAfter && (idle || c.active.Load() > 0) {
		c.pingChecks = 1
		c.ping()
	}
}

// ping sends a ping, unless one is unanswered. Any read counts as the answer.
func (c *clientConn) ping() {
	if c.Closed() || !c.pinging.CompareAndSwap(false, true) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.tasks.Go(func() {
		defer c.pinging.Store(false)
		_ = c.conn.Ping(c.ctx) // if it fails, the connection ends
	})
}

// release releases held responses, because the rest of them is slow.
func (c *clientConn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range c.held {
		close(h.released)
	}
	clear(c.held)
}

func (c *clientConn) hold(h *heldBody) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[h] = struct{}{}
}

func (c *clientConn) unhold(h *heldBody) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, h)
}

// RoundTrip implements ClientConn.
func (c *clientConn) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := httpmsg.CheckRequest(r); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // the request's error is returned, not this one
		}
		return nil, &engine.Error{Kind: engine.InvalidRequest, Err: err}
	}
	e := &exchange{conn: c, request: r}
	c.active.Add(1)
	out := e.transportRequest()
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		e.ctx, e.cancel = context.WithCancelCause(out.Context())
		out = out.WithContext(e.ctx)
		c.await(e)
	}
	resp, err := c.conn.RoundTrip(out)
	c.answered(e)
	if err != nil {
		e.finish()
		return nil, e.failure(err)
	}
	return e.response(resp)
}

// await adds a request that waits for the header of its response; answered removes it.
func (c *clientConn) await(e *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[e] = e.cancel
}

func (c *clientConn) answered(e *exchange) {
	if e.cancel == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, e)
}

// AbandonWaiting implements ClientConn.
func (c *clientConn) AbandonWaiting(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cancel := range c.waiting {
		cancel(&engine.Error{Kind: engine.Abandoned, Err: why})
	}
	clear(c.waiting)
}

// Reasons for the end of a connection.
var (
	errClientClosed   = errors.New("the connection is closed")
	errServerClosed   = errors.New("the server closed the connection")
	errUnansweredPing = errors.New("the connection fell silent: pings are not answered")
	errProtocol       = errors.New("the server broke the protocol of HTTP/2, and the library closed the connection")
)
