package network

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// connectTimeout is how long a connection attempt waits for a host that does not answer, if its context does not end before.
	connectTimeout = 2 * time.Minute
	// unackedTimeout is how long sent data may stay unacknowledged before the sender's kernel ends the connection. It is
	// TCP_USER_TIMEOUT of the transport's connections.
	unackedTimeout = 3 * time.Second
	// keepAlive is how long an idle connection exists after one direction has been blocked: keep-alive probes of the side that
	// dialed begin after 15 s, and three of them at intervals of 5 s are lost.
	keepAlive = 30 * time.Second
	// retransmission is the delay of a lost segment. It doubles with each loss of the same segment.
	retransmission = 200 * time.Millisecond
	// backlog is the number of connections that a listener has not accepted.
	backlog = 128
)

// Link describes one direction between two hosts. The zero value delivers at once.
type Link struct {
	// Latency is the delay of each segment, and Jitter the maximum of an additional random delay.
	Latency, Jitter time.Duration
	// Loss is the probability that a segment is lost and must be sent again.
	Loss float64
	// Blocked means that nothing arrives.
	Blocked bool
}

// Network connects hosts. Its methods may be called concurrently.
type Network struct {
	seed uint64

	mu     sync.Mutex // guards the fields below, and the state of all connections
	normal Link
	hosts  map[netip.Addr]*Host
	links  map[direction]Link // links that differ from normal
	dialed map[direction]int  // number of connections so far
	open   map[*conn]struct{} // client sides of connections
}

type direction struct{ from, to netip.Addr }

func (d direction) reverse() direction { return direction{d.to, d.from} }

// New returns a network without hosts, in which every link is like normal.
func New(seed uint64, normal Link) *Network {
	return &Network{
		seed: seed, normal: normal, hosts: make(map[netip.Addr]*Host), links: make(map[direction]Link),
		dialed: make(map[direction]int), open: make(map[*conn]struct{}),
	}
}

// Host returns the host with an address, and adds it if it does not exist.
func (n *Network) Host(address string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := netip.MustParseAddr(address)
	if n.hosts[at] == nil {
		n.hosts[at] = &Host{network: n, addr: at, listeners: make(map[uint16]*listener), nextPort: 40_000}
	}
	return n.hosts[at]
}

// SetLink changes the link from one host to another. It applies to existing connections too.
func (n *Network) SetLink(from, to *Host, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := direction{from.addr, to.addr}
	n.links[d] = l
	n.relink(func(c *conn) bool { return c.sends(d) || c.sends(d.reverse()) })
}

// Link returns the link from one host to another.
func (n *Network) Link(from, to *Host) Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.link(direction{from.addr, to.addr})
}

// Block blocks or opens the link from one host to another.
func (n *Network) Block(from, to *Host, blocked bool) {
	l := n.Link(from, to)
	l.Blocked = blocked
	n.SetLink(from, to, l)
}

// Heal makes every link normal.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.links)
	n.relink(func(*conn) bool { return true })
}

// Reset resets the connections between two hosts.
func (n *Network) Reset(a, b *Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := direction{a.addr, b.addr}
	for c := range n.open {
		if c.sends(d) || c.sends(d.reverse()) {
			c.abort(syscall.ECONNRESET)
			c.peer.abort(syscall.ECONNRESET)
		}
	}
}

// Open returns the number of connections between two hosts of which at least one side is open.
func (n *Network) Open(a, b *Host) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	d, number := direction{a.addr, b.addr}, 0
	for c := range n.open {
		if c.sends(d) || c.sends(d.reverse()) {
			number++
		}
	}
	return number
}

// link is called with mu held.
func (n *Network) link(d direction) Link {
	if l, differs := n.links[d]; differs {
		return l
	}
	return n.normal
}

// blocked is called with mu held.
func (n *Network) blocked(d direction) bool {
	from, to := n.hosts[d.from], n.hosts[d.to]
	return n.link(d).Blocked || from.off || to.off
}

// relink delivers what the connections could not send before, or starts their timeouts. It is called with mu held.
func (n *Network) relink(concerned func(*conn) bool) {
	for c := range n.open {
		if concerned(c) {
			c.out.relinked()
			c.in.relinked()
			c.watchIdle()
		}
	}
}

// random returns numbers that depend only on the seed and on the arguments.
func (n *Network) random(d direction, connection, segment int) *rand.Rand {
	from, to := d.from.As16(), d.to.As16()
	h := uint64(14695981039346656037)
	for _, b := range [][16]byte{from, to} {
		for _, x := range b {
			h = (h ^ uint64(x)) * 1099511628211
		}
	}
	return rand.New(rand.NewPCG(n.seed^h, uint64(connection)<<32^uint64(segment)))
}

// delay returns when a segment arrives.
func (n *Network) delay(l Link, d direction, connection, segment int) time.Duration {
	if l.Jitter == 0 && l.Loss == 0 {
		return l.Latency
	}
	r := n.random(d, connection, segment)
	total := l.Latency
	if l.Jitter > 0 {
		total += time.Duration(r.Int64N(int64(l.Jitter)))
	}
	for again := retransmission; r.Float64() < l.Loss && again < time.Minute; again *= 2 {
		total += again
	}
	return total
}

// Host is a host with one process.
type Host struct {
	network *Network
	addr    netip.Addr

	// The following fields are guarded by network.mu.
	listeners map[uint16]*listener
	nextPort  uint16
	down      bool          // without a process
	off       bool          // without power
	frozen    bool          // the process does not run
	thawed    chan struct{} // closed when frozen ends; nil unless frozen
}

// Address returns the address of the host.
func (h *Host) Address() netip.Addr { return h.addr }

// String returns the address of the host.
func (h *Host) String() string { return h.addr.String() }

// Listen listens on a port. Port 0 selects one.
func (h *Host) Listen(port uint16) (net.Listener, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.down {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: h.tcp(port), Err: os.NewSyscallError("listen", syscall.ENETDOWN)}
	}
	if port == 0 {
		port = h.port()
	}
	if h.listeners[port] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: h.tcp(port), Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	l := &listener{host: h, port: port, waiting: make(chan *conn, backlog), closed: make(chan struct{})}
	h.listeners[port] = l
	return l, nil
}

// port is called with network.mu held.
func (h *Host) port() uint16 {
	h.nextPort++
	if h.nextPort == 60_000 {
		h.nextPort = 40_000
	}
	return h.nextPort
}

func (h *Host) tcp(port uint16) *net.TCPAddr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(h.addr, port))
}

// Dial connects to a port of a host, ADDRESS:PORT.
func (h *Host) Dial(ctx context.Context, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	conn, err := h.dial(ctx, at)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(at), Err: err}
	}
	return conn, nil
}

func (h *Host) dial(ctx context.Context, at netip.AddrPort) (*conn, error) {
	n := h.network
	deadline := time.NewTimer(connectTimeout)
	defer deadline.Stop()
	poll := retransmission
	for attempt := 0; ; attempt++ {
		wait, conn, err := h.attempt(at)
		if err == nil && conn == nil && wait == 0 {
			wait = poll // the SYN was lost
			poll = min(2*poll, 8*time.Second)
		}
		if wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				if conn != nil {
					_ = conn.Close()
				}
				return nil, dialError(ctx)
			case <-deadline.C:
				timer.Stop()
				if conn != nil {
					_ = conn.Close()
				}
				return nil, os.NewSyscallError("connect", syscall.ETIMEDOUT)
			}
		}
		switch {
		case err != nil:
			return nil, err
		case conn != nil:
			n.mu.Lock()
			broken := conn.err
			n.mu.Unlock()
			if broken != nil {
				return nil, os.NewSyscallError("connect", broken)
			}
			return conn, nil
		}
	}
}

func dialError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return os.ErrDeadlineExceeded
	}
	return ctx.Err()
}

// attempt sends one SYN. It returns neither a connection nor an error if there was no answer, and the time until the answer
// otherwise.
func (h *Host) attempt(at netip.AddrPort) (wait time.Duration, c *conn, err error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	to := n.hosts[at.Addr()]
	if h.down || to == nil {
		return 0, nil, os.NewSyscallError("connect", syscall.EHOSTUNREACH)
	}
	d := direction{h.addr, at.Addr()}
	if n.blocked(d) || n.blocked(d.reverse()) {
		return 0, nil, nil
	}
	n.dialed[d]++
	number := n.dialed[d]
	wait = n.delay(n.link(d), d, number, 0) + n.delay(n.link(d.reverse()), d.reverse(), number, 0)
	l := to.listeners[at.Port()]
	if l == nil {
		return wait, nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	}
	near, far := newConnection(n, number, h, to, h.port(), at.Port())
	select {
	case l.waiting <- far:
	default:
		return 0, nil, nil // the backlog is full
	}
	n.open[near] = struct{}{}
	return wait, near, nil
}

// Kill ends the process of the host: its listeners close, the other sides of its connections are reset, and it can neither
// dial nor listen until Boot.
func (h *Host) Kill() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.down = true
	h.closeListeners()
	h.each(func(own *conn) {
		own.abort(net.ErrClosed)
		own.peer.abort(syscall.ECONNRESET)
	})
}

// PowerOff ends the process, and the host no longer answers: the other sides of its connections learn nothing.
func (h *Host) PowerOff() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.down, h.off = true, true
	h.closeListeners()
	h.each(func(own *conn) { own.abort(net.ErrClosed) })
	h.network.relink(func(c *conn) bool { return c.host == h || c.peer.host == h })
}

// Boot ends the effect of Kill and PowerOff. Connections from before are reset.
func (h *Host) Boot() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	if h.off {
		h.each(func(own *conn) { own.peer.abort(syscall.ECONNRESET) })
	}
	h.down, h.off = false, false
}

// Freeze stops the process from receiving and sending. Its kernel still accepts connections and acknowledges data.
func (h *Host) Freeze() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	if h.thawed == nil {
		h.frozen, h.thawed = true, make(chan struct{})
	}
}

// Thaw ends Freeze.
func (h *Host) Thaw() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	if h.thawed != nil {
		h.frozen = false
		close(h.thawed)
		h.thawed = nil
		h.each(func(own *conn) { own.out.changed.Broadcast(); own.in.changed.Broadcast() })
	}
}

// closeListeners is called with network.mu held.
func (h *Host) closeListeners() {
	for _, l := range h.listeners {
		l.close()
	}
}

// each calls f with the host's side of each connection. It is called with network.mu held.
func (h *Host) each(f func(own *conn)) {
	for c := range h.network.open {
		if c.host == h {
			f(c)
		}
		if c.peer.host == h {
			f(c.peer)
		}
	}
}

// listener implements net.Listener.
type listener struct {
	host    *Host
	port    uint16
	waiting chan *conn
	closed  chan struct{}
	ended   bool // guarded by network.mu
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		select {
		case c := <-l.waiting:
			l.host.network.mu.Lock()
			thawed := l.host.thawed
			l.host.network.mu.Unlock()
			if thawed != nil {
				select {
				case <-thawed:
				case <-l.closed:
				}
			}
			return c, nil
		case <-l.closed:
			return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
		}
	}
}

// Close implements net.Listener. Connections that were not accepted are reset.
func (l *listener) Close() error {
	l.host.network.mu.Lock()
	defer l.host.network.mu.Unlock()
	l.close()
	return nil
}

// close is called with network.mu held.
func (l *listener) close() {
	if l.ended {
		return
	}
	l.ended = true
	delete(l.host.listeners, l.port)
	close(l.closed)
	for {
		select {
		case c := <-l.waiting:
			c.abort(net.ErrClosed)
			if !l.host.off {
				c.peer.abort(syscall.ECONNRESET)
			}
		default:
			return
		}
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.host.tcp(l.port) }
