package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"time"

	"portico.dev/internal/httpengine"
	"portico.dev/internal/httpengine/engine"
)

// parkedFor is how long a connection whose handshake selected HTTP/1.1 may wait for its first request. After a longer
// wait, the server might have closed it.
const parkedFor = time.Second

// protocolTimeout is how long a server may take for protocol obligations: an acknowledgment, the rest of a header
// block.
const protocolTimeout = 10 * time.Second

// protoHTTP2 is the ALPN name of HTTP/2.
const protoHTTP2 = "h2"

// dial starts a dial or joins the current one. It is called with mu held.
func (p *connPool) dial() *pendingDial {
	if p.dialing != nil {
		return p.dialing
	}
	d := &pendingDial{done: make(chan struct{})}
	p.dialing = d
	scope := p.dialScope
	p.wg.Go(func() {
		d.conn, d.err = p.dialOnce(scope)
		if d.err == nil || !errors.Is(d.err, ErrUnresponsive) { // otherwise already known
			p.dialled(d.err)
		}
		p.mu.Lock()
		p.dialing = nil
		p.mu.Unlock()
		close(d.done)
	})
	return d
}

// warm opens a connection in the background unless one exists. It reports whether there is one.
func (p *connPool) warm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return false
	}
	if !p.http1Only && p.connected() {
		return true
	}
	p.dial()
	return false
}

// connected reports whether there is an HTTP/2 connection for further requests. It is called with mu held.
func (p *connPool) connected() bool {
	return slices.ContainsFunc(p.conns, func(c *http2Conn) bool { return !c.retired && !c.Closed() })
}

// hasConnections reports whether there is an idle or busy HTTP/2 connection for further requests. Such connections
// are pinged.
func (p *connPool) hasConnections() bool {
	if p.size.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.connected()
}

// dialOnce opens a connection and detects the endpoint's protocol. The dial belongs to the pool, not to the request
// that caused it, because other requests wait for it and the first may be canceled.
func (p *connPool) dialOnce(scope context.Context) (*http2Conn, error) {
	for {
		identity := p.identity()
		tc, raw, err := p.dialer.connect(scope, false)
		if err != nil {
			return nil, withCause(scope, err)
		}
		if now := p.identity(); now != identity && !now.Equal(identity) {
			_ = tc.Close() // made with a certificate that has been replaced
			continue
		}
		if tc.ConnectionState().NegotiatedProtocol == protoHTTP2 {
			return p.add(scope, tc)
		}
		return nil, p.park(tc, raw)
	}
}

// errNoSettings means that a server completed TLS but did not send HTTP/2 settings.
var errNoSettings = errors.New("no HTTP/2 settings after the TLS handshake")

// errClosedAtOnce means that the server closed a connection before its first request.
var errClosedAtOnce = errors.New("the server closed a new connection at once")

// errNoStreams means that the server allows no requests on its connections.
var errNoStreams = errors.New("the server allows no concurrent streams")

// add adds tc to the pool after the server has sent its settings.
func (p *connPool) add(scope context.Context, tc *tls.Conn) (*http2Conn, error) {
	c := &http2Conn{idleSince: time.Now()}
	if !p.beginDial() {
		_ = tc.Close() // not used
		return nil, &connectError{op: OpDial, err: ErrClosed}
	}
	ctx, cancel := context.WithTimeout(scope, p.options.TLSTimeout)
	defer cancel()
	var err error
	c.ClientConn, err = httpengine.NewClientConn(ctx, p.options.Engine, tc, engine.ClientConfig{
		MaxHeaderBytes: int(p.options.MaxHeaderBytes),
		CheckInterval:  p.checker.every, PingAfter: p.options.PingAfter, PingTimeout: p.options.PingTimeout,
		HeaderTimeout: p.options.HeaderTimeout, ProtocolTimeout: protocolTimeout,
		OnClose: func() {
			defer p.wg.Done()
			p.connEnded(c)
		},
	})
	if err != nil {
		return nil, withCause(scope, &connectError{op: OpTLS, err: p.handshakeError(err)})
	}
	if c.MaxStreams() == 0 {
		c.Close()
		return nil, &connectError{op: OpTLS, err: errNoStreams}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		c.Close() // not used
		return nil, &connectError{op: OpDial, err: ErrClosed}
	}
	c.joined = true
	p.http1Only = false
	p.unpark()
	p.conns = append(p.conns, c)
	p.size.Store(int32(len(p.conns)))
	if !p.checked {
		p.checked = true
		p.checker.add(p)
	}
	return c, nil
}

// beginDial makes close wait for a connection that is about to be opened. It returns false if the pool is closed.
func (p *connPool) beginDial() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.wg.Add(1)
	return true
}

// handshakeError returns the reason for a failed HTTP/2 handshake.
func (p *connPool) handshakeError(err error) error {
	var e *engine.Error
	switch {
	case p.ctx.Err() != nil:
		return ErrClosed
	case errors.As(err, &e) && e.Kind == engine.ProtocolViolation:
		return err
	}
	return errNoSettings
}

// check checks every connection and reports whether there are any. Connections to an endpoint that no client uses are
// pinged once per unusedPings checks.
func (p *connPool) check(now time.Time, unusedPings int) bool {
	ping := p.pingDue(unusedPings) // before mu is locked, because it calls other pools
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeEnded()
	p.checked = len(p.conns) > 0
	if !p.checked {
		return false
	}
	for _, c := range p.conns {
		if c.active == 0 && !c.retired && now.Sub(c.idleSince) >= p.options.IdleTimeout {
			c.retired = true
			c.Close()
		}
		c.Check(ping)
	}
	return true
}

// removeEnded removes closed connections. It is called with mu held.
func (p *connPool) removeEnded() {
	p.conns = slices.DeleteFunc(p.conns, func(c *http2Conn) bool { return c.Closed() })
	p.size.Store(int32(len(p.conns)))
}

// closeIdle closes idle connections after another connection to the endpoint did not answer pings.
func (p *connPool) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		if c.active == 0 {
			c.retired = true
			c.Close()
		}
	}
}

// renew replaces the HTTP/2 connections, if there are any: each ends with its last request, and a new one is opened
// in the background.
func (p *connPool) renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining || !p.connected() {
		return
	}
	for _, c := range p.conns {
		c.retired = true
		if c.active == 0 {
			c.Close() // may already be closed
		}
	}
	p.dial()
}

// closeIdleHTTP1 closes idle HTTP/1.1 connections.
func (p *connPool) closeIdleHTTP1() {
	p.mu.Lock()
	http1 := p.http1
	p.unpark()
	p.mu.Unlock()
	if http1 != nil {
		http1.CloseIdleConnections() // without mu, because closing connections acquires it
	}
}

func (p *connPool) park(tc *tls.Conn, raw net.Conn) error {
	c, err := p.adopt(tc, raw)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.http1Only = true
	p.unpark()
	p.parked = c
	return nil
}

// unpark closes the parked connection, if any. It is called with mu held.
func (p *connPool) unpark() {
	if c := p.parked; c != nil {
		p.parked = nil
		p.spawn(func() { _ = c.Close() })
	}
}

// takeParked returns the parked connection if it is recent enough.
func (p *connPool) takeParked() *http1Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.parked
	if c == nil || time.Since(c.start) > parkedFor {
		p.unpark()
		return nil
	}
	p.parked = nil
	return c
}

// dialHTTP1 returns connections for the HTTP/1.1 transport, starting with the parked one.
func (p *connPool) dialHTTP1(ctx context.Context, _, _ string) (net.Conn, error) {
	if c := p.takeParked(); c != nil {
		return c, nil
	}
	scope, tc, raw, err := p.connect(ctx, false)
	if !errors.Is(err, ErrUnresponsive) {
		p.dialled(err)
	}
	if err != nil {
		return nil, err
	}
	if tc.ConnectionState().NegotiatedProtocol != protoHTTP2 {
		return p.adopt(tc, raw)
	}
	if _, err := p.add(scope, tc); err != nil {
		return nil, err
	}
	return nil, errProtocolChanged
}

// errConnectionLost means that the server closed an idle connection.
var errConnectionLost = errors.New("an idle connection was lost")

// idleLostInterval is the minimum interval between reports of lost idle connections of a pool. Some servers close
// every connection after a request or a few seconds. If each of them caused a probe, the probe would cause the next
// one.
const idleLostInterval = time.Minute

// connEnded is called when a connection is closed. If it was idle and not closed by this side, this is the first sign
// that the server is gone, and for an idle backend the only one.
func (p *connPool) connEnded(c *http2Conn) {
	now := time.Now()
	p.mu.Lock()
	silent := c.joined && c.PingTimedOut()
	var broke error
	if c.joined && p.onViolation != nil {
		broke = c.ProtocolError()
	}
	wanted := p.draining || c.retired
	// A server that became silent is always reported: detecting it takes longer than a probe.
	missed := c.joined && p.onIdleLost != nil && c.active == 0 && !wanted && (silent || p.idleLostAt.IsZero() || now.Sub(p.idleLostAt) >= idleLostInterval)
	if missed {
		p.idleLostAt = now
	}
	p.mu.Unlock()
	if broke != nil {
		p.onViolation(broke)
	}
	if silent && p.onSilent != nil {
		p.onSilent()
	}
	switch {
	case missed && silent:
		p.onIdleLost(errPingsUnanswered)
	case missed:
		p.onIdleLost(errConnectionLost)
	}
}
