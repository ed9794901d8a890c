package faulty

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// reopenWithin bounds how long the port may be held by somebody else when the gate opens again.
const reopenWithin = 5 * time.Second

// trickleEvery is the time from one byte to the next.
const trickleEvery = 200 * time.Millisecond

// faultListener is a listener that can be closed and opened again on the same port, and whose connections can be frozen. To the
// HTTP server it is one listener for life.
type faultListener struct {
	address string

	mu     sync.Mutex // guards all below
	inner  net.Listener
	conns  map[*conn]struct{}
	frozen bool
	slow   bool // bytes are sent one at a time
	// partitioned is the client whose connections are frozen, by the fingerprint of its certificate; empty is none.
	partitioned string
	done        bool
	turn        chan struct{} // closed, and replaced, when something about the gate changed
}

func newFaultListener(address string) (*faultListener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for the extension server: %w", err)
	}
	return newFaultListenerOf(l), nil
}

func newFaultListenerOf(l net.Listener) *faultListener {
	return &faultListener{address: l.Addr().String(), inner: l, conns: map[*conn]struct{}{}, turn: make(chan struct{})}
}

func (g *faultListener) changed() {
	close(g.turn)
	g.turn = make(chan struct{})
}

// Accept waits while the gate refuses.
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

// admit lists a connection; false when the listener that it came by was closed meanwhile.
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
	at, _ := net.ResolveTCPAddr("tcp", g.address) // it was a listener's own address
	return at
}

// Close ends the gate for good.
func (g *faultListener) Close() error {
	g.mu.Lock()
	g.done = true
	g.mu.Unlock()
	g.refuse()
	return nil
}

// refuse closes the port and cuts every connection.
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

// reopen listens on the same port again, which a neighbour may hold for a moment: ports are handed out to whoever asks.
func (g *faultListener) reopen() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inner != nil || g.done {
		return nil
	}
	deadline := time.Now().Add(reopenWithin)
	for {
		l, err := net.Listen("tcp", g.address)
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

// freeze stops every byte, in both directions, until thaw.
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

// setPartitioned freezes the connections of one client, and no other's.
func (g *faultListener) setPartitioned(client string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.partitioned != client {
		g.partitioned = client
		g.changed()
	}
}

// setTrickle has bytes sent one at a time.
func (g *faultListener) setTrickle(slow bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.slow != slow {
		g.slow = slow
		g.changed()
	}
}

// cut closes every connection without a word, as a peer that vanished would after its reset.
func (g *faultListener) cut() {
	g.mu.Lock()
	conns := g.conns
	g.conns = map[*conn]struct{}{}
	g.mu.Unlock()
	for c := range conns {
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

// conn is a connection that stops while its gate is frozen, or its client is partitioned.
type conn struct {
	net.Conn
	gate   *faultListener
	client string // guarded by gate.mu; empty until the client has shown its certificate
	once   sync.Once
	closed chan struct{}
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	// What arrived while the gate froze was lost, as far as anybody can tell, until it thaws.
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

// wait returns when the gate lets bytes through, or the connection is closed.
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

// identify says whose connection it is.
func (c *conn) identify(client string) {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	c.client = client
}

func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
