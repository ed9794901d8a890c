package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// memoryNetwork has servers with connections in memory. In a synctest bubble time advances only while all goroutines wait, so
// a busy machine does not slow the test down.
type memoryNetwork struct {
	*testEnv
	listeners map[string]*memoryListener // by address; complete before the first connection
	passing   sync.WaitGroup             // sides of connections
}

func newMemoryNetwork(w *testEnv) *memoryNetwork {
	n := &memoryNetwork{testEnv: w, listeners: map[string]*memoryListener{}}
	w.t.Cleanup(n.passing.Wait)
	return n
}

// serveProto is testEnv's serveProto for the network, and returns the address.
func (n *memoryNetwork) serveProto(h http.Handler, proto string) string {
	l := &memoryListener{
		network: n, address: fmt.Sprintf("10.0.0.%d:443", len(n.listeners)+1), dialled: make(chan net.Conn), closed: make(chan struct{}),
	}
	n.listeners[l.address] = l
	if proto == "h2" {
		n.serveOn(l, h)
	} else {
		n.serveOn(l, h, proto)
	}
	return l.address
}

// backend returns a Backend whose endpoints are servers of the network.
func (n *memoryNetwork) backend(addresses ...string) *Backend {
	dial := func(ctx context.Context, address string) (net.Conn, error) { return n.listeners[address].dial(ctx) }
	s := n.set(func(o *Options) { o.Tunnel = &Tunnel{Network: "memory", Received: time.Now, Dial: dial} })
	return n.testEnv.backend(s, addresses...)
}

// memoryListener is a net.Listener.
type memoryListener struct {
	network *memoryNetwork
	address string
	dialled chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func (l *memoryListener) dial(ctx context.Context) (net.Conn, error) {
	near, side := net.Pipe()
	far := l.network.conn(side)
	select {
	case l.dialled <- far:
		return l.network.conn(near), nil
	case <-l.closed:
		return nil, errors.Join(errors.New("nobody listens"), far.Close())
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), far.Close())
	}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialled:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Addr() net.Addr  { return l }
func (l *memoryListener) Network() string { return "memory" }
func (l *memoryListener) String() string  { return l.address }

// memoryConn is one side of a net.Pipe that does not make writers wait for readers, as a socket does not.
type memoryConn struct {
	net.Conn
	mu      sync.Mutex
	changed *sync.Cond // signals changes of the fields below
	written []byte     // and not read yet
	closed  bool
}

func (n *memoryNetwork) conn(side net.Conn) *memoryConn {
	c := &memoryConn{Conn: side}
	c.changed = sync.NewCond(&c.mu)
	n.passing.Go(c.pass)
	return c
}

// pass returns when the connection is closed and the written bytes have been read, for which there is a second, or when the other side is closed.
func (c *memoryConn) pass() {
	defer func() { _ = c.Conn.Close() }()
	for {
		c.mu.Lock()
		for len(c.written) == 0 && !c.closed {
			c.changed.Wait()
		}
		p := c.written
		c.written = nil
		c.mu.Unlock()
		if len(p) == 0 {
			return
		}
		if _, err := c.Conn.Write(p); err != nil {
			return
		}
	}
}

func (c *memoryConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	c.written = append(c.written, p...)
	c.changed.Signal()
	return len(p), nil
}

// Close wakes a reader at once.
func (c *memoryConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.changed.Signal()
	return errors.Join(c.Conn.SetWriteDeadline(time.Now().Add(time.Second)), c.SetReadDeadline(time.Unix(1, 0)))
}

// SetDeadline is for reads: writes never wait.
func (c *memoryConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *memoryConn) SetWriteDeadline(time.Time) error { return nil }
