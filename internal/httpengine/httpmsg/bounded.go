package httpmsg

import (
	"crypto/tls"
	"net"
	"slices"
	"sync"
)

// NewBoundedListener returns a listener with at most limit connections. A further connection replaces the oldest one that
// is not trusted (TrustConn), so that a client without credentials cannot block other clients by leaving connections open.
// If all are trusted, the new connection is closed.
func NewBoundedListener(l net.Listener, limit int) net.Listener {
	return &boundedListener{Listener: l, limit: limit}
}

// TrustConn marks a connection of a bounded listener, or a TLS connection over it, after its client has been authenticated.
// It has no effect on other connections.
func TrustConn(c net.Conn) {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	if b, ok := c.(*boundedConn); ok {
		b.listener.trust(b)
	}
}

type boundedListener struct {
	net.Listener
	limit int

	mu    sync.Mutex
	conns []*boundedConn // oldest first
}

// boundedConn is a connection of a boundedListener. The listener's mu guards trusted.
type boundedConn struct {
	net.Conn
	listener *boundedListener
	trusted  bool
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		accepted := &boundedConn{Conn: c, listener: l}
		surplus := l.add(accepted)
		if surplus != nil {
			_ = surplus.Conn.Close() // its client gets no response
		}
		if surplus != accepted {
			return accepted, nil
		}
	}
}

// add returns the connection to close, or nil.
func (l *boundedListener) add(c *boundedConn) (surplus *boundedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns = append(l.conns, c); len(l.conns) <= l.limit {
		return nil
	}
	i := slices.IndexFunc(l.conns, func(c *boundedConn) bool { return !c.trusted }) // c at the latest
	surplus = l.conns[i]
	l.conns = slices.Delete(l.conns, i, i+1)
	return surplus
}

func (l *boundedListener) trust(c *boundedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.trusted = true
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	l := c.listener
	l.mu.Lock()
	if i := slices.Index(l.conns, c); i >= 0 {
		l.conns = slices.Delete(l.conns, i, i+1)
	}
	l.mu.Unlock()
	return c.Conn.Close()
}
