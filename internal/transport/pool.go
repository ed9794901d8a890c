package transport

import (
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/httpmsg"
)

// errProtocolChanged is returned for requests that selected HTTP/1.1 while the endpoint switched to HTTP/2.
var errProtocolChanged = errors.New("endpoint changed its protocol")

// connPool holds the connections to one endpoint for one purpose. Probes and requests have separate pools, so that
// they do not wait for each other and a failed probe never closes a connection with requests.
//
// HTTP/2 connections of all engines are kept here instead of in golang.org/x/net/http2's pool for three reasons.
// There is only one dial at a time, while http2's pool would dial once per waiting request after a GOAWAY under load.
// The result of each failed attempt is known exactly, while http2's pool repeats requests. And connections can be
// retired when the identity changes.
type connPool struct {
	dialer      *dialer
	options     *Options
	identity    func() *x509.Certificate // returns the current client certificate, nil for none
	dialled     func(error)              // called with the result of each dial
	checker     *connChecker             // checks the connections periodically
	onViolation func(error)              // called when a server violated the protocol; may be nil
	onIdleLost  func(error)              // called when the server closed an idle connection; may be nil
	onSilent    func()                   // called when a connection did not answer pings; may be nil
	skipPings   func() bool              // reports whether another pool of the endpoint is pinged instead; may be nil
	unused      func() bool              // reports whether no client has used the endpoint recently, so that pings may be rare; may be nil

	checks       int  // number of checks; this and rarelyPinged are used only by the connChecker
	rarelyPinged bool // last result of unused

	size   atomic.Int32    // length of conns, readable without mu
	ctx    context.Context // ends when the pool is drained
	cancel context.CancelFunc
	wg     sync.WaitGroup // dials and connections

	mu         sync.Mutex      // guards the fields below
	http1      *http.Transport // for endpoints without HTTP/2; created on first use
	conns      []*http2Conn    // oldest first; size is the length
	dialing    *pendingDial    // nil when no dial is under way
	http1Only  bool            // the endpoint selected HTTP/1.1 in the last handshake
	http1Conns map[*http1Conn]struct{}
	parked     *http1Conn // the HTTP/1.1 connection of that handshake, until a request uses it
	issued     *x509.Certificate
	freed      chan struct{} // closed when a stream ends; nil without waiters
	draining   bool          // accepts no more requests
	closed     bool          // closing: no goroutine may be started
	checked    bool          // added to the connChecker
	idleLostAt time.Time     // time of the last onIdleLost call

	blocked      error // the error for requests; nil if not blocked
	blockedUntil time.Time
	dialScope    context.Context // of dials; canceled when the pool is blocked
	cancelDials  context.CancelCauseFunc
}

// http2Conn is an HTTP/2 connection. Its fields are guarded by connPool.mu.
type http2Conn struct {
	engine.ClientConn
	joined    bool      // is or was in the pool
	active    int       // requests in flight
	uploads   int       // requests in flight with a long body
	used      bool      // had a request
	retired   bool      // accepts no more requests and closes after its last one
	idleSince time.Time // end of the last request
}

// pendingDial is a dial shared by all requests that wait for it.
type pendingDial struct {
	done chan struct{}
	err  error      // valid when done is closed
	conn *http2Conn // valid when done is closed; nil for HTTP/1.1
}

func newConnPool(d *dialer, o *Options, r *connChecker, identity func() *x509.Certificate, dialled func(error)) *connPool {
	l := &connPool{dialer: d, options: o, checker: r, identity: identity, dialled: dialled}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.dialScope, l.cancelDials = context.WithCancelCause(l.ctx)
	return l
}

// newHTTP1 returns a net/http transport for endpoints without HTTP/2.
func (p *connPool) newHTTP1() *http.Transport {
	t := &http.Transport{
		Proxy:                  nil, // proxies from the environment are not used for clients' requests
		Protocols:              new(http.Protocols),
		DialTLSContext:         p.dialHTTP1,
		DisableCompression:     true, // forward bodies in the encoding that the client requested
		ResponseHeaderTimeout:  p.options.HeaderTimeout,
		MaxResponseHeaderBytes: p.options.MaxHeaderBytes,
		IdleConnTimeout:        p.options.IdleTimeout,
		MaxIdleConnsPerHost:    p.options.MaxConns,
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// reservation is a reserved stream on a connection, or the HTTP/1.1 transport.
type reservation struct {
	conn  *http2Conn
	http1 *http.Transport
}

// mustWait is the event to wait for if all connections are full: a dial, or the end of another request.
type mustWait struct {
	dial *pendingDial
	room <-chan struct{}
	// better means that a connection is available, but the dial may result in a better one.
	better bool
}

// roundTrip sends one attempt. patience, unless 0, limits the wait for a connection. If it returns a connection, the
// caller must release it at the end of the response.
func (p *connPool) roundTrip(r *http.Request, patience time.Duration) (*http.Response, *http2Conn, error) {
	u := uploadOf(r)
	res, err := p.acquire(r.Context(), patience, u)
	if err != nil {
		return nil, nil, err
	}
	if res.http1 != nil {
		// HTTP/2 connections check the request themselves. net/http writes a space in a path unchanged, and its error
		// for an invalid method cannot be distinguished from a connection error.
		if err := httpmsg.CheckRequest(r); err != nil {
			return nil, nil, err
		}
		resp, err := res.http1.RoundTrip(r)
		if err == nil {
			if err = p.checkResponse(r, resp); err != nil {
				_ = resp.Body.Close() // the response is refused
				return nil, nil, err
			}
		}
		return resp, nil, err
	}
	resp, err := res.conn.RoundTrip(r)
	if err != nil {
		p.release(res.conn, u)
		return nil, nil, err
	}
	return resp, res.conn, nil
}

// acquire waits for a connection with a free stream and reserves the stream. The caller must use it.
func (p *connPool) acquire(ctx context.Context, patience time.Duration, u upload) (reservation, error) {
	var w waitTimer
	defer w.stop()
	settle := false
	for {
		res, wait, err := p.tryAcquire(u, settle)
		if err != nil || res != (reservation{}) {
			return res, err
		}
		if wait.better {
			// A connection is available. A better one is worth waiting for a dial, but not worth failing.
			if w.wait(ctx, wait.dial.done, patience, errSlow) != nil || wait.dial.err != nil {
				settle = true
			}
			continue
		}
		if wait.dial == nil {
			err = w.wait(ctx, wait.room, p.options.DialTimeout, ErrSaturated)
		} else if err = w.wait(ctx, wait.dial.done, patience, &connectError{op: OpDial, err: errSlow}); err == nil {
			err = p.dialResult(wait.dial)
		}
		if err != nil {
			return reservation{}, err
		}
	}
}

// tryAcquire returns a reservation or the event to wait for. With settle it accepts any connection.
func (p *connPool) tryAcquire(u upload, settle bool) (reservation, mustWait, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return reservation{}, mustWait{}, &connectError{op: OpDial, err: ErrClosed}
	}
	if err := p.blockedBy(); err != nil {
		return reservation{}, mustWait{}, err
	}
	p.retireOldIdentity()
	if p.http1Only {
		if p.http1 == nil {
			p.http1 = p.newHTTP1()
		}
		return reservation{http1: p.http1}, mustWait{}, nil
	}
	c, full := p.leastLoaded(u)
	if c != nil {
		if !settle && p.wantsAnotherConn(c, u) {
			return reservation{}, mustWait{dial: p.dial(), better: true}, nil
		}
		c.reserve(u)
		return reservation{conn: c}, mustWait{}, nil
	}
	if p.dialing != nil || full < p.options.MaxConns && len(p.conns) < maxDraining*p.options.MaxConns {
		return reservation{}, mustWait{dial: p.dial()}, nil
	}
	if p.freed == nil {
		p.freed = make(chan struct{})
	}
	return reservation{}, mustWait{room: p.freed}, nil
}

// dialResult returns the result of a completed dial. A connection that broke before its first request counts as a
// failure. Otherwise a server that closes every connection would cause endless dials.
func (p *connPool) dialResult(d *pendingDial) error {
	if d.err != nil || d.conn == nil {
		return d.err
	}
	p.mu.Lock()
	closedAtOnce := !d.conn.used && d.conn.Closed()
	p.mu.Unlock()
	if !closedAtOnce {
		return nil
	}
	err := &connectError{op: OpTLS, err: errClosedAtOnce}
	p.dialled(err)
	return err
}

// waitTimer is a timeout shared by all waits of a request.
type waitTimer struct{ timer *time.Timer }

func (w *waitTimer) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// wait waits for event. It returns over after patience, unless patience is 0.
func (w *waitTimer) wait(ctx context.Context, event <-chan struct{}, patience time.Duration, over error) error {
	var end <-chan time.Time
	if w.timer == nil && patience > 0 {
		w.timer = time.NewTimer(patience)
	}
	if w.timer != nil {
		end = w.timer.C
	}
	select {
	case <-event:
		return nil
	case <-end:
		return over
	case <-ctx.Done():
		return &connectError{op: OpDial, err: context.Cause(ctx)}
	}
}

// maxDraining times MaxConns is the maximum number of connections including ones that only wait for their last
// requests.
const maxDraining = 4

// leastLoaded returns the best connection with a free stream (betterThan), or nil. full is the number of full
// connections. The remaining connections accept no requests because of a GOAWAY. It is called with mu held.
func (p *connPool) leastLoaded(u upload) (best *http2Conn, full int) {
	ended := false
	for _, c := range p.conns {
		switch {
		case c.Closed():
			ended = true
		case c.retired:
		case !c.Available():
			if c.active == 0 {
				c.retired = true
				c.Close()
			}
		case c.active >= c.MaxStreams():
			full++
		case best == nil || c.betterThan(best, u):
			best = c
		}
	}
	if ended {
		p.removeEnded()
	}
	return best, full
}

// release is called at the end of a request on c.
func (p *connPool) release(c *http2Conn, u upload) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.active--
	if u.long {
		c.uploads--
	}
	c.idleSince = time.Now()
	if c.retired && c.active == 0 {
		c.Close()
	}
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// retireOldIdentity retires connections made with another client certificate. It is called with mu held.
func (p *connPool) retireOldIdentity() {
	now := p.identity()
	if now == p.issued {
		return
	}
	if p.issued != nil && !now.Equal(p.issued) {
		p.retire()
	}
	p.issued = now
}

// retire closes every connection after its last request, at the latest after the grace period. It is called with mu
// held.
func (p *connPool) retire() {
	var busy []func()
	for _, c := range p.conns {
		switch {
		case c.retired:
		case c.active == 0:
			c.Close()
		default:
			busy = append(busy, c.Close)
		}
		c.retired = true
	}
	// Busy HTTP/1.1 connections would return to the pool of their transport, so replace the transport.
	p.unpark()
	for c := range p.http1Conns {
		busy = append(busy, func() { _ = c.Close() })
	}
	if old := p.http1; old != nil {
		p.http1 = nil
		p.spawn(old.CloseIdleConnections) // asynchronous, because closing connections acquires mu
		busy = append(busy, old.CloseIdleConnections)
	}
	if len(busy) == 0 {
		return
	}
	time.AfterFunc(p.options.LeaveGrace, func() {
		for _, end := range busy {
			end() // no effect on a closed connection
		}
	})
}

// spawn runs f in a goroutine, unless the pool is closed. It is called with mu held.
func (p *connPool) spawn(f func()) {
	if !p.closed {
		p.wg.Go(f)
	}
}

// start is like spawn without mu held. It reports whether f will run.
func (p *connPool) start(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spawn(f)
	return !p.closed
}

// drain stops accepting requests. Requests in flight may finish within the grace period.
func (p *connPool) drain() {
	p.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.draining {
		p.draining = true
		p.retire()
	}
}

// drained reports, after drain, whether all requests have ended.
func (p *connPool) drained() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		if c.active > 0 && !c.Closed() {
			return false
		}
	}
	return p.dialing == nil && len(p.http1Conns) == 0
}

// close closes all connections immediately and waits for their goroutines.
func (p *connPool) close() {
	p.drain()
	p.mu.Lock()
	p.closed = true
	conns, plains := slices.Clone(p.conns), slices.Collect(maps.Keys(p.http1Conns))
	p.mu.Unlock()
	for _, c := range conns {
		c.Close() // may already be closed
	}
	for _, c := range plains {
		_ = c.Close() // may already be closed
	}
	p.wg.Wait()
}
