package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// parkedFor is how long a connection that was made to learn the protocol may wait for its first request. A longer
// wait would risk a request on a connection that the other side has given up.
const parkedFor = time.Second

// protoHTTP2 is how TLS names HTTP/2.
const protoHTTP2 = "h2"

type handedOverKey struct{}

// handedOver is how http2 gets connections: those that dialOnce made.
func handedOver(ctx context.Context, _, _ string) (net.Conn, error) {
	if s, ok := ctx.Value(handedOverKey{}).(*session); ok {
		return s, nil
	}
	return nil, errors.New("the HTTP/2 transport does not dial")
}

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
	if !l.plain && slices.ContainsFunc(l.conns, func(c *conn) bool { return !c.retired && !c.gone.Load() }) {
		return true
	}
	l.dial()
	return false
}

// companion reports whether there is an HTTP/2 connection, and has one made in the background when there is not. none is
// an endpoint that speaks HTTP/1.1 alone.
func (l *lane) companion() (present, none bool) {
	l.mu.Lock()
	none = l.plain
	l.mu.Unlock()
	return none || l.warm(), none
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
			return l.add(tc, raw)
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

// add hands a connection to the HTTP/2 library and waits until the server spoke.
func (l *lane) add(tc *tls.Conn, raw net.Conn) (*conn, error) {
	s := newSession(tc, raw)
	s.watch(l.options.PingAfter + l.options.PingTimeout)
	cc, err := l.http2.NewClientConn(context.WithValue(l.ctx, handedOverKey{}, s), "http", l.dialer.address)
	if err != nil {
		_ = s.Close() // the first error is the one to tell
		return nil, &connectError{op: OpTLS, err: err}
	}
	c := &conn{ClientConn: cc, session: s, idleSince: time.Now()}
	if err := l.settle(s); err != nil {
		_ = cc.Close() // as above
		return nil, &connectError{op: OpTLS, err: err}
	}
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.plain = false
		l.unpark()
		l.conns = append(l.conns, c)
		missed := func() { l.miss(c) }
		s.onEnd.Store(&missed)
	}
	l.mu.Unlock()
	if closed {
		_ = cc.Close() // nobody will use it
		return nil, &connectError{op: OpDial, err: ErrClosed}
	}
	return c, nil
}

func (l *lane) settle(s *session) error {
	timer := time.NewTimer(l.options.TLSTimeout)
	defer timer.Stop()
	select {
	case <-s.settled:
	case <-timer.C:
		return errMute
	case <-l.ctx.Done():
		return ErrClosed
	}
	switch {
	case !s.alive:
		return errMute
	case s.streams == 0:
		return errNoStreams
	}
	return nil
}

// plainConn is an HTTP/1.1 connection that the lane knows of until it is closed: by the library, or by us.
type plainConn struct {
	*tls.Conn
	lane  *lane
	since time.Time
	once  sync.Once
}

func (c *plainConn) Close() error {
	c.once.Do(func() {
		c.lane.mu.Lock()
		delete(c.lane.plains, c)
		c.lane.mu.Unlock()
	})
	return c.Conn.Close()
}

// adopt makes tc a connection of the lane.
func (l *lane) adopt(tc *tls.Conn, raw net.Conn) (*plainConn, error) {
	if err := relaxUserTimeout(raw); err != nil {
		_ = tc.Close() // the first error is the one to tell
		return nil, &connectError{op: OpDial, err: err}
	}
	c := &plainConn{Conn: tc, lane: l, since: time.Now()}
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.plains[c] = struct{}{}
	}
	l.mu.Unlock()
	if closed {
		_ = c.Close() // nobody will use it
		return nil, &connectError{op: OpDial, err: ErrClosed}
	}
	return c, nil
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
	if _, err := l.add(tc, raw); err != nil {
		return nil, err
	}
	return nil, errProtocolChanged
}
