package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"time"

	"portico.dev/internal/engine"
)

// parkedFor is how long a connection that was made to learn the protocol may wait for its first request. A longer
// wait would risk a request on a connection that the other side has given up.
const parkedFor = time.Second

// protocolTimeout is how long a server may take for what the protocol asks of it: an acknowledgement, the rest of a header block.
const protocolTimeout = 10 * time.Second

// protoHTTP2 is how TLS names HTTP/2.
const protoHTTP2 = "h2"

// dial starts a dial, or joins the one under way. Called with mu held.
func (l *lane) dial() *dialing {
	if l.dialing != nil {
		return l.dialing
	}
	d := &dialing{done: make(chan struct{})}
	l.dialing = d
	l.wg.Go(func() {
		d.conn, d.err = l.dialOnce()
		l.dialled(d.err)
		l.mu.Lock()
		l.dialing = nil
		l.mu.Unlock()
		close(d.done)
	})
	return d
}

// warm makes a connection in the background unless there is one. It reports whether there is one.
func (l *lane) warm() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if !l.plain && l.connected() {
		return true
	}
	l.dial()
	return false
}

// connected reports whether there is an HTTP/2 connection for further requests. Called with mu held.
func (l *lane) connected() bool {
	return slices.ContainsFunc(l.conns, func(c *conn) bool { return !c.retired && !c.Ended() })
}

// awake reports whether there is an idle or busy connection here, which is pinged.
func (l *lane) awake() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.connected()
}

// dialOnce makes one connection and learns which protocol the endpoint speaks. It belongs to the lane and not to the
// request that caused it: other requests wait for it too, and the first may leave.
func (l *lane) dialOnce() (*conn, error) {
	for {
		identity := l.identity()
		tc, raw, err := l.dialer.connect(l.ctx, false)
		if err != nil {
			return nil, err
		}
		if now := l.identity(); now != identity && !now.Equal(identity) {
			_ = tc.Close() // made with a certificate that was replaced meanwhile
			continue
		}
		if tc.ConnectionState().NegotiatedProtocol == protoHTTP2 {
			return l.add(tc)
		}
		return nil, l.park(tc, raw)
	}
}

// errMute is a server that finished TLS and then did not speak HTTP/2.
var errMute = errors.New("no HTTP/2 settings after the TLS handshake")

// errStillborn is a connection that ended before its first request.
var errStillborn = errors.New("the server closed a new connection at once")

// errNoStreams is a server that allows no request on its connections.
var errNoStreams = errors.New("the server allows no concurrent streams")

// add makes tc a connection of the lane when the server spoke.
func (l *lane) add(tc *tls.Conn) (*conn, error) {
	c := &conn{idleSince: time.Now()}
	if !l.expect() {
		_ = tc.Close() // nobody will use it
		return nil, &connectError{op: OpDial, err: ErrClosed}
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.options.TLSTimeout)
	defer cancel()
	var err error
	c.ClientConn, err = engine.NewClientConn(ctx, l.options.Engine, tc, engine.ClientConfig{
		MaxHeaderBytes: int(l.options.MaxHeaderBytes),
		Every:          l.rounds.every, PingAfter: l.options.PingAfter, PingTimeout: l.options.PingTimeout,
		HeaderTimeout: l.options.HeaderTimeout, ProtocolTimeout: protocolTimeout,
		Ended: func() {
			defer l.wg.Done()
			l.over(c)
		},
	})
	if err != nil {
		return nil, &connectError{op: OpTLS, err: l.unsettled(err)}
	}
	if c.Streams() == 0 {
		c.Close()
		return nil, &connectError{op: OpTLS, err: errNoStreams}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Close() // nobody will use it
		return nil, &connectError{op: OpDial, err: ErrClosed}
	}
	c.joined = true
	l.plain = false
	l.unpark()
	l.conns = append(l.conns, c)
	if !l.watched {
		l.watched = true
		l.rounds.add(l)
	}
	return c, nil
}

// expect has close wait for a connection that is about to be made.
func (l *lane) expect() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.wg.Add(1)
	return true
}

// unsettled is why a connection did not come to speak HTTP/2.
func (l *lane) unsettled(err error) error {
	var e *engine.ClientError
	switch {
	case l.ctx.Err() != nil:
		return ErrClosed
	case errors.As(err, &e) && e.Fate == engine.Broken:
		return err
	}
	return errMute
}

// look looks at every connection, and reports whether there are any.
func (l *lane) look(now time.Time) bool {
	ping := l.pings() // before mu, for it asks other lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetEnded()
	l.watched = len(l.conns) > 0
	if !l.watched {
		return false
	}
	for _, c := range l.conns {
		if c.active == 0 && !c.retired && now.Sub(c.idleSince) >= l.options.IdleTimeout {
			c.retired = true
			c.Close()
		}
		c.Look(ping)
	}
	return true
}

// forgetEnded is called with mu held.
func (l *lane) forgetEnded() {
	l.conns = slices.DeleteFunc(l.conns, func(c *conn) bool { return c.Ended() })
}

// doubt closes what is idle: another connection to the endpoint fell silent.
func (l *lane) doubt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		if c.active == 0 {
			c.retired = true
			c.Close()
		}
	}
}

func (l *lane) park(tc *tls.Conn, raw net.Conn) error {
	c, err := l.adopt(tc, raw)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.plain = true
	l.unpark()
	l.parked = c
	return nil
}

// unpark closes the parked connection, if any. Called with mu held.
func (l *lane) unpark() {
	if c := l.parked; c != nil {
		l.parked = nil
		l.spawn(func() { _ = c.Close() })
	}
}

// takeParked returns the parked connection if it is fresh.
func (l *lane) takeParked() *plainConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.parked
	if c == nil || time.Since(c.since) > parkedFor {
		l.unpark()
		return nil
	}
	l.parked = nil
	return c
}

// dialPlain makes connections for the HTTP/1.1 transport: the parked one first.
func (l *lane) dialPlain(ctx context.Context, _, _ string) (net.Conn, error) {
	if c := l.takeParked(); c != nil {
		return c, nil
	}
	tc, raw, err := l.dialer.connect(ctx, false)
	l.dialled(err)
	if err != nil {
		return nil, err
	}
	if tc.ConnectionState().NegotiatedProtocol != protoHTTP2 {
		return l.adopt(tc, raw)
	}
	if _, err := l.add(tc); err != nil {
		return nil, err
	}
	return nil, errProtocolChanged
}
