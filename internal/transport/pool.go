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

	"portico.dev/internal/engine"
	"portico.dev/internal/httpmsg"
)

// errProtocolChanged is met by requests that chose HTTP/1.1 in the moment when the endpoint began to speak HTTP/2.
var errProtocolChanged = errors.New("endpoint changed its protocol")

// connPool is the connections to one endpoint for one purpose. Probes and requests have pools of their own, so that
// neither waits behind the other, and a probe that fails never closes a connection that carries requests.
//
// HTTP/2 connections are kept here, whichever engine speaks on them, and not in a pool of the library's, for three
// reasons: one dial at a time (a GOAWAY under load would make the library's pool dial once for every waiting request),
// an exact account of what each failed attempt left behind (the library's pool repeats requests on its own), and
// connections that can be retired when the identity changes.
type connPool struct {
	dialer      *dialer
	options     *Options
	identity    func() *x509.Certificate // the client certificate to be used now, nil for none
	dialled     func(error)              // called with the result of every dial
	checker     *connChecker             // checks the connections periodically
	onViolation func(error)              // called when a server broke the protocol; may be nil
	onIdleLost  func(error)              // called when the server closed an idle connection; may be nil
	onSilent    func()                   // called when a connection did not answer pings; may be nil
	skipPings   func() bool              // whether another pool of the endpoint is pinged instead; may be nil
	unused      func() bool              // whether no client has used the endpoint lately, so that pings may be rare; may be nil

	checks       int  // checks so far; the connChecker alone uses this, and the next one
	rarelyPinged bool // what unused said when it was asked last

	size   atomic.Int32    // of conns; it lets others see without mu that there is none
	ctx    context.Context // ends when the pool is drained
	cancel context.CancelFunc
	wg     sync.WaitGroup // dials and connections

	mu         sync.Mutex      // guards what follows
	http1      *http.Transport // for endpoints that do not speak HTTP/2; nil until one is needed
	conns      []*http2Conn    // HTTP/2 connections, oldest first; their number is size
	dialing    *pendingDial    // nil when no dial is under way
	http1Only  bool            // the endpoint chose HTTP/1.1 in the last handshake
	http1Conns map[*http1Conn]struct{}
	parked     *http1Conn // the HTTP/1.1 connection of that handshake, until a request takes it
	issued     *x509.Certificate
	freed      chan struct{} // closed when a stream ended; nil without waiters
	draining   bool          // takes no more requests
	closed     bool          // everything is being closed: nothing may be started
	checked    bool          // the connChecker has this pool
	idleLostAt time.Time     // when onIdleLost was called last

	blocked      error // why no request is sent; nil: they are
	blockedUntil time.Time
	dialScope    context.Context // of dials; it ends when the pool is blocked
	cancelDials  context.CancelCauseFunc
}

// http2Conn is one HTTP/2 connection. Its fields are guarded by connPool.mu.
type http2Conn struct {
	engine.ClientConn
	joined    bool      // it is, or was, in the pool
	active    int       // requests on it
	uploads   int       // those of them with a long body
	used      bool      // had a request
	retired   bool      // takes no more, and closes with its last request
	idleSince time.Time // when the last request was over
}

// pendingDial is one dial and those who wait for it.
type pendingDial struct {
	done chan struct{}
	err  error      // valid when done is closed
	conn *http2Conn // as is this; nil for HTTP/1.1
}

func newConnPool(d *dialer, o *Options, r *connChecker, identity func() *x509.Certificate, dialled func(error)) *connPool {
	l := &connPool{dialer: d, options: o, checker: r, identity: identity, dialled: dialled}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.dialScope, l.cancelDials = context.WithCancelCause(l.ctx)
	return l
}

// newHTTP1 is the library's pool, for endpoints that do not speak HTTP/2.
func (p *connPool) newHTTP1() *http.Transport {
	t := &http.Transport{
		Proxy:                  nil, // the environment of this process has no say in where clients' requests go
		Protocols:              new(http.Protocols),
		DialTLSContext:         p.dialHTTP1,
		DisableCompression:     true, // bytes pass through as the client asked for them
		ResponseHeaderTimeout:  p.options.HeaderTimeout,
		MaxResponseHeaderBytes: p.options.MaxHeaderBytes,
		IdleConnTimeout:        p.options.IdleTimeout,
		MaxIdleConnsPerHost:    p.options.MaxConns,
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// reservation is where one request may be sent: a connection with a stream reserved on it, or the HTTP/1.1 transport.
type reservation struct {
	conn  *http2Conn
	http1 *http.Transport
}

// mustWait is what to wait for when every connection is full: a dial, or the end of another request.
type mustWait struct {
	dial *pendingDial
	room <-chan struct{}
	// better is whether there is a connection already, and the dial may make a better one.
	better bool
}

// roundTrip sends one attempt. patience, unless 0, bounds the wait for a connection. A connection that comes with the
// response must be released when the response is over.
func (p *connPool) roundTrip(r *http.Request, patience time.Duration) (*http.Response, *http2Conn, error) {
	u := uploadOf(r)
	res, err := p.acquire(r.Context(), patience, u)
	if err != nil {
		return nil, nil, err
	}
	if res.http1 != nil {
		// HTTP/2 connections check it themselves (engine.Unsendable). The library writes a blank in a path as it is, and says of a bad
		// method what could as well be said of a connection.
		if err := httpmsg.CheckRequest(r); err != nil {
			return nil, nil, err
		}
		resp, err := res.http1.RoundTrip(r)
		if err == nil {
			if err = p.checkResponse(r, resp); err != nil {
				_ = resp.Body.Close() // the response is none
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

// acquire waits for a connection with a free stream, and reserves that; the caller must use it.
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
			// There is a connection that would do. A better one is worth the wait for a dial, and no failure.
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

// tryAcquire returns a reservation, or what to wait for. settle accepts any connection.
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

// dialResult is the result of a dial that is over. A connection that broke before its first request counts as none: a
// server that does so with every connection would cause dials for ever.
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

// waitTimer is one timeout for everything that a request waits for.
type waitTimer struct{ timer *time.Timer }

func (w *waitTimer) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// wait waits for event, and returns over when patience, unless 0, has passed.
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

// maxDraining is how many times MaxConns connections may exist when most of them only wait for their last requests.
const maxDraining = 4

// leastLoaded is the connection with a free stream on which a request has the least to wait for (betterThan). Without
// one it says how many connections are full; others take no more because they said GOAWAY. Called with mu held.
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

// release is called when a request on c is over.
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

// retireOldIdentity retires connections that were made with another client certificate. Called with mu held.
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

// retire lets every connection end with its last request, and in any case after the grace. Called with mu held.
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
	// Busy HTTP/1.1 connections would go back to the pool of the transport that made them: leave it behind.
	p.unpark()
	for c := range p.http1Conns {
		busy = append(busy, func() { _ = c.Close() })
	}
	if old := p.http1; old != nil {
		p.http1 = nil
		p.spawn(old.CloseIdleConnections) // it closes connections, which take mu
		busy = append(busy, old.CloseIdleConnections)
	}
	if len(busy) == 0 {
		return
	}
	time.AfterFunc(p.options.LeaveGrace, func() {
		for _, end := range busy {
			end() // harmless when it closed before
		}
	})
}

// spawn runs f, unless close does everything itself. Called with mu held.
func (p *connPool) spawn(f func()) {
	if !p.closed {
		p.wg.Go(f)
	}
}

// start is spawn without mu held. It reports whether f will run.
func (p *connPool) start(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spawn(f)
	return !p.closed
}

// drain takes no more requests; those in flight have the grace.
func (p *connPool) drain() {
	p.cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.draining {
		p.draining = true
		p.retire()
	}
}

// drained reports, after drain, whether no request is left.
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

// close ends everything now, and waits for it.
func (p *connPool) close() {
	p.drain()
	p.mu.Lock()
	p.closed = true
	conns, plains := slices.Clone(p.conns), slices.Collect(maps.Keys(p.http1Conns))
	p.mu.Unlock()
	for _, c := range conns {
		c.Close() // it may be closed already
	}
	for _, c := range plains {
		_ = c.Close() // as above
	}
	p.wg.Wait()
}
