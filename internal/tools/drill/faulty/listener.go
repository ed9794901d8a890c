package faulty

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// reopenWithin bounds the wait for a port that another process holds when the listener reopens.
const reopenWithin = 5 * time.Second

// trickleEvery is the interval between two bytes.
const trickleEvery = 200 * time.Millisecond

// faultListener is a listener that can be closed and reopened on the same port, and whose connections can be frozen.
// The HTTP server sees one listener throughout.
type faultListener struct {
	address string
	listen  func(address string) (net.Listener, error)

	mu     sync.Mutex // guards the fields below
	inner  net.Listener
	conns  map[*conn]struct{}
	frozen bool
	slow   bool // bytes are sent one at a time
	// partitioned is the fingerprint of the client certificate with frozen connections, or empty.
	partitioned string
	done        bool
	turn        chan struct{} // closed and replaced on every state change
}

// newFaultListener opens a listener with listen, which is TCP if it is nil.
func newFaultListener(address string, listen func(string) (net.Listener, error)) (*faultListener, error) {
	if listen == nil {
		listen = listenTCP
	}
	l, err := listen(address)
	if err != nil {
		return nil, fmt.Errorf("listen for the extension server: %w", err)
	}
	return newFaultListenerOf(l, listen), nil
}

func listenTCP(address string) (net.Listener, error) { return net.Listen("tcp", address) }

func newFaultListenerOf(l net.Listener, listen func(string) (net.Listener, error)) *faultListener {
	return &faultListener{address: l.Addr().String(), listen: listen, inner: l, conns: map[*conn]struct{}{}, turn: make(chan struct{})}
}

func (g *faultListener) changed() {
	close(g.turn)
	g.turn = make(chan struct{})
}

// Accept blocks while the listener refuses connections.
func (g *faultListener) Accept() (net.Conn, error) {
	for {
		g.mu.Lock()
		inner, turn, done := g.inner, g.turn, g.done
		g.mu.Unlock()
		if done {
			return nil, net.ErrClosed
		}
		if inner == nil {
			<-turn
			continue
		}
		raw, err := inner.Accept()
		if errors.Is(err, net.ErrClosed) {
			continue
		}
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, gate: g, closed: make(chan struct{})}
		if g.admit(c, inner) {
			return c, nil
		}
		_ = raw.Close()
	}
}

// admit registers a connection. It returns false if the listener that accepted it has been closed.
func (g *faultListener) admit(c *conn, by net.Listener) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inner != by {
		return false
	}
	g.conns[c] = struct{}{}
	return true
}

func (g *faultListener) Addr() net.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inner != nil {
		return g.inner.Addr()
	}
	at, _ := net.ResolveTCPAddr("tcp", g.address) // cannot fail: it is the address of a listener
	return at
}

// Close closes the listener permanently.
func (g *faultListener) Close() error {
	g.mu.Lock()
	g.done = true
	g.mu.Unlock()
	g.refuse()
	return nil
}

// refuse closes the port and every connection.
func (g *faultListener) refuse() {
	g.mu.Lock()
	inner := g.inner
	g.inner = nil
	g.changed()
	g.mu.Unlock()
	if inner != nil {
		_ = inner.Close()
	}
	g.cut()
}

// reopen listens on the same port again. Another process may hold an ephemeral port for a moment, so it retries.
func (g *faultListener) reopen() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inner != nil || g.done {
		return nil
	}
	deadline := time.Now().Add(reopenWithin)
	for {
		l, err := g.listen(g.address)
		if err == nil {
			g.inner = l
			g.changed()
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("listen again for the extension server: %w", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// freeze stops all bytes in both directions until thaw.
func (g *faultListener) freeze() { g.setFrozen(true) }
func (g *faultListener) thaw()   { g.setFrozen(false) }

func (g *faultListener) setFrozen(frozen bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.frozen != frozen {
		g.frozen = frozen
		g.changed()
	}
}

// setPartitioned freezes the connections of one client.
func (g *faultListener) setPartitioned(client string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.partitioned != client {
		g.partitioned = client
		g.changed()
	}
}

// setTrickle controls whether bytes are sent one at a time.
func (g *faultListener) setTrickle(slow bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.slow != slow {
		g.slow = slow
		g.changed()
	}
}

// cut resets every connection.
func (g *faultListener) cut() {
	g.mu.Lock()
	conns := g.conns
	g.conns = map[*conn]struct{}{}
	g.mu.Unlock()
	for c := range conns {
		c.reset()
	}
}

// conn is a connection that stalls while its listener is frozen or its client is partitioned.
type conn struct {
	net.Conn
	gate   *faultListener
	client string // guarded by gate.mu; empty until the client has presented its certificate
	once   sync.Once
	closed chan struct{}
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	// Bytes that arrived while the listener froze stay invisible until it thaws.
	if waited := c.wait(); waited != nil {
		return 0, waited
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	if err := c.wait(); err != nil {
		return 0, err
	}
	for n := range p {
		c.gate.mu.Lock()
		slow, turn := c.gate.slow, c.gate.turn
		c.gate.mu.Unlock()
		if !slow {
			m, err := c.Conn.Write(p[n:])
			return n + m, err
		}
		if _, err := c.Conn.Write(p[n : n+1]); err != nil {
			return n, err
		}
		timer := time.NewTimer(trickleEvery)
		select {
		case <-timer.C:
		case <-turn:
		case <-c.closed:
		}
		timer.Stop()
	}
	return len(p), nil
}

// wait returns when bytes may pass or the connection is closed.
func (c *conn) wait() error {
	for {
		c.gate.mu.Lock()
		frozen, turn := c.gate.frozen || c.client != "" && c.client == c.gate.partitioned, c.gate.turn
		c.gate.mu.Unlock()
		if !frozen {
			return nil
		}
		select {
		case <-turn:
		case <-c.closed:
			return net.ErrClosed
		}
	}
}

// identify records the client of the connection.
func (c *conn) identify(client string) {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	c.client = client
}

// reset closes the connection with a reset.
func (c *conn) reset() {
	if tcp, ok := c.Conn.(interface{ SetLinger(seconds int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
