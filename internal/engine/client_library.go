package engine

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

	"portico.dev/internal/httpmsg"
)

const (
	// libraryStreamWindow is how much of a response may wait for its reader.
	libraryStreamWindow = 512 << 10
	// libraryConnWindow is what all responses of a connection may keep together: more than libraryStreamWindow for each of
	// libraryStreams, since the library gives it back only as bytes are read.
	libraryConnWindow = 1 << 30
	// libraryStreams is how many requests there are on a connection whose server sets no limit, or a higher one.
	libraryStreams = 1000
	// libraryCloseTimeout bounds the polite end of a connection whose other side may be gone.
	libraryCloseTimeout = 250 * time.Millisecond
	// openWindow is said of windows of which nothing is known.
	openWindow = 1 << 20
	// stalledAfter is how long a part of a request body may take to be sent before the window counts as closed.
	stalledAfter = 20 * time.Millisecond
)

// libraryConn is a connection of golang.org/x/net/http2. What the library does not tell is learnt from the calls that it makes
// of the connection below it, and of the bodies; no byte of the protocol is read here.
type libraryConn struct {
	config ClientConfig
	nc     *tls.Conn
	conn   *http2.ClientConn

	settled chan struct{} // closed when the server's SETTINGS are acknowledged
	gone    chan struct{} // closed when the library has closed the connection
	done    chan struct{} // closed when everything is over
	looked  chan struct{} // holds one: the state of the connection is to be asked for
	tasks   sync.WaitGroup
	ctx     context.Context // of pings; ends with the connection
	cancel  context.CancelFunc

	reads   atomic.Uint64 // those that brought something
	writes  atomic.Uint64
	streams atomic.Int64 // that the server allows
	active  atomic.Int64 // requests
	ended   atomic.Bool
	pinging atomic.Bool

	// Look's own.
	pingAfter, pingFor int    // looks
	seen               uint64 // reads at the look before
	still, asked       int    // looks without a read, and since a ping was sent

	mu       sync.Mutex // guards what follows
	err      *ClientError
	violated error // what a request was told of a server that broke the protocol
	unsent   bool  // a write failed
	held     map[*heldBody]struct{}
	uploads  map[*requestBody]struct{}
}

func newLibraryConn(ctx context.Context, tc *tls.Conn, config ClientConfig) (ClientConn, error) {
	c := &libraryConn{
		config: config, nc: tc,
		settled: make(chan struct{}), gone: make(chan struct{}), done: make(chan struct{}), looked: make(chan struct{}, 1),
		pingAfter: countLooks(config.PingAfter, config.CheckInterval), pingFor: countLooks(config.PingTimeout, config.CheckInterval),
		held: map[*heldBody]struct{}{}, uploads: map[*requestBody]struct{}{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	below := &observedConn{Conn: tc, owner: c}
	t, err := newLibraryTransport(config)
	if err == nil {
		c.conn, err = t.NewClientConn(below)
	}
	if err != nil {
		c.fail(&ClientError{Kind: Lost, Err: err})
		_ = below.Close() // the first error is the one to tell
	}
	go c.watch()
	select {
	case <-c.settled:
		c.refresh()
		return c, nil
	case <-c.done:
	case <-ctx.Done():
		c.fail(contextError(ctx))
		<-c.done
	}
	return nil, c.why()
}

func countLooks(d, every time.Duration) int { return max(1, int((d+every-1)/every)) }

// newLibraryTransport is the library's configuration. Silence is found by Look and not by its ReadIdleTimeout: the library counts
// time, and a process that did not get to run would give all its connections up at once.
func newLibraryTransport(config ClientConfig) (*http2.Transport, error) {
	t, err := http2.ConfigureTransports(&http.Transport{
		Proxy:                 nil, // the environment of this process has no say in where clients' requests go
		DisableCompression:    true,
		ResponseHeaderTimeout: config.HeaderTimeout,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: libraryStreamWindow, MaxReceiveBufferPerConnection: libraryConnWindow, MaxReadFrameSize: 16 << 10,
		},
	})
	if err != nil {
		return nil, err
	}
	t.MaxHeaderListSize = uint32(config.MaxHeaderBytes)
	t.StrictMaxConcurrentStreams = true // a request more than the server allows waits, where it would fail otherwise
	t.WriteByteTimeout = config.ProtocolTimeout
	t.PingTimeout = config.PingTimeout
	return t, nil
}

// observedConn is the connection as the library has it.
type observedConn struct {
	*tls.Conn
	owner  *libraryConn
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
		o.owner.fail(&ClientError{Kind: Lost, Err: why})
	}
	return n, err
}

// Write is called first with the connection preface, and for the second time with the acknowledgement of the server's SETTINGS:
// no request is sent before.
func (o *observedConn) Write(p []byte) (int, error) {
	if o.owner.writes.Add(1) == 2 {
		close(o.owner.settled)
	}
	n, err := o.Conn.Write(p)
	if err != nil {
		o.owner.mu.Lock()
		o.owner.unsent = true
		o.owner.mu.Unlock()
	}
	return n, err
}

func (o *observedConn) Close() (err error) {
	o.closed.Do(func() {
		o.owner.ended.Store(true)
		force := time.AfterFunc(libraryCloseTimeout, o.owner.cut)
		defer force.Stop()
		err = o.Conn.Close()
		close(o.owner.gone)
	})
	return err
}

// cut closes the connection without a word.
func (c *libraryConn) cut() { _ = c.nc.NetConn().Close() } // whoever reads or writes hears of it

// watch asks the library for the state of the connection, which may wait for a write, until the connection has ended.
func (c *libraryConn) watch() {
	defer close(c.done)
	for {
		select {
		case <-c.looked:
			c.refresh()
		case <-c.gone:
			c.bury()
			return
		}
	}
}

func (c *libraryConn) refresh() {
	if state := c.conn.State(); !state.Closed {
		c.streams.Store(int64(min(state.MaxConcurrentStreams, libraryStreams)))
	}
}

// bury says why the connection ended when the library has closed it by itself: after a GOAWAY and the last request, or since it
// cannot write, or since the server broke the protocol. Only those who wait for a response are told how.
func (c *libraryConn) bury() {
	c.mu.Lock()
	known, violated, unsent := c.err != nil, c.violated, c.unsent
	c.mu.Unlock()
	switch {
	case known:
	case violated == nil && (unsent || c.conn.State().Closing):
		c.fail(&ClientError{Kind: Lost, Err: errClientClosed})
	default:
		if violated == nil {
			violated = errProtocol
		}
		c.fail(&ClientError{Kind: ProtocolViolation, Err: violated})
	}
	c.cancel()
	c.tasks.Wait()
	if c.config.OnClose != nil {
		c.config.OnClose()
	}
}

// fail ends the connection and all that is under way on it, without waiting. Only the first reason counts.
func (c *libraryConn) fail(why *ClientError) {
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
	if why.Kind == PingTimeout {
		c.cut() // there is nobody to say good-bye to
		return
	}
	_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // the library's reader ends, and with it everything
	force := time.AfterFunc(libraryCloseTimeout, c.cut)
	context.AfterFunc(c.ctx, func() { force.Stop() })
}

func (c *libraryConn) why() *ClientError {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *libraryConn) MaxStreams() int { return int(c.streams.Load()) }
func (c *libraryConn) Available() bool { return !c.Closed() && c.conn.CanTakeNewRequest() }
func (c *libraryConn) Closed() bool    { return c.ended.Load() }
func (c *libraryConn) Close()          { c.fail(&ClientError{Kind: Lost, Err: errClientClosed}) }

func (c *libraryConn) PingTimedOut() bool {
	why := c.why()
	return why != nil && why.Kind == PingTimeout
}

func (c *libraryConn) ProtocolError() error {
	if why := c.why(); why != nil && why.Kind == ProtocolViolation {
		return why
	}
	return nil
}

// Window is an estimate: the library does not tell its windows. They count as closed while a part of a body that was taken to be
// sent is not.
func (c *libraryConn) Window() (now, most int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for b := range c.uploads {
		if b.stalled() {
			return 0, openWindow
		}
	}
	return openWindow, openWindow
}

func (c *libraryConn) Check(idle bool) {
	c.release()
	select {
	case c.looked <- struct{}{}:
	default: // asked, and not answered yet
	}
	if now := c.reads.Load(); now != c.seen {
		c.seen, c.still, c.asked = now, 0, 0
		return
	}
	c.still++
	if c.asked > 0 {
		if c.asked++; c.asked > c.pingFor {
			c.fail(&ClientError{Kind: PingTimeout, Err: errUnansweredPing})
		}
		return
	}
	if c.still >= c.pingAfter && (idle || c.active.Load() > 0) {
		c.asked = 1
		c.ping()
	}
}

// ping sends a ping, unless one is on its way. That anything is read is the answer.
func (c *libraryConn) ping() {
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
		_ = c.conn.Ping(c.ctx) // the connection's failure is told elsewhere
	})
}

// release has the heads of responses go on that wait for the rest: it is slow.
func (c *libraryConn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range c.held {
		close(h.released)
	}
	clear(c.held)
}

func (c *libraryConn) hold(h *heldBody) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[h] = struct{}{}
}

func (c *libraryConn) unhold(h *heldBody) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, h)
}

// RoundTrip implements ClientConn.
func (c *libraryConn) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := httpmsg.CheckRequest(r); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // the request's outcome is what is told
		}
		return nil, &ClientError{Kind: InvalidRequest, Err: err}
	}
	e := &exchange{conn: c, request: r}
	c.active.Add(1)
	resp, err := c.conn.RoundTrip(e.outgoing())
	if err != nil {
		e.finish()
		return nil, e.failure(err)
	}
	return e.response(resp)
}

// Why a connection ended, where that is known here.
var (
	errClientClosed   = errors.New("the connection is closed")
	errServerClosed   = errors.New("the server closed the connection")
	errUnansweredPing = errors.New("the connection fell silent: pings are not answered")
	errProtocol       = errors.New("the server broke the protocol of HTTP/2, and the library closed the connection")
)
