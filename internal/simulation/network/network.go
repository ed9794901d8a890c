package network

import (
	"context"
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
	// unackedTimeout is how long sent data may stay unacknowledged before the kernel of the side that dialed ends the connection.
	// It is TCP_USER_TIMEOUT of the transport's connections.
	unackedTimeout = 3 * time.Second
	// acceptedUnackedTimeout is unackedTimeout of the other side, which has no TCP_USER_TIMEOUT.
	acceptedUnackedTimeout = 15 * time.Minute
	// keepAlive is how long an idle connection exists after one direction has been blocked: keep-alive probes of the side that
	// dialed begin after 15 s, and three of them at intervals of 5 s are lost.
	keepAlive = 30 * time.Second
	// acceptedKeepAlive is keepAlive of the other side, with the default of package net: nine probes at intervals of 15 s.
	acceptedKeepAlive = 150 * time.Second
	// retransmission is the delay of a lost segment. It doubles with each loss of the same segment.
	retransmission = 200 * time.Millisecond
	// synRetransmission is the time between two connection attempts without an answer. It doubles, up to the maximum.
	synRetransmission, maxSynRetransmission = time.Second, 16 * time.Second
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
	n.setLink(direction{from.addr, to.addr}, l)
}

// setLink is called with mu held.
func (n *Network) setLink(d direction, l Link) {
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
	n.mu.Lock()
	defer n.mu.Unlock()
	d := direction{from.addr, to.addr}
	l := n.link(d)
	l.Blocked = blocked
	n.setLink(d, l)
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
			c.peer.watchIdle()
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
	processes int           // number of processes that have ended
	down      bool          // without a process
	off       bool          // without power
	thawed    chan struct{} // closed when the process runs again; nil unless it is frozen
}

// frozen reports whether the process does not run. It is called with network.mu held.
func (h *Host) frozen() bool { return h.thawed != nil }

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
	l := &listener{host: h, port: port, changed: sync.NewCond(&n.mu)}
	h.listeners[port] = l
	return l, nil
}

// port is called with network.mu held.
func (h *Host) port() uint16 {
	for {
		if h.nextPort++; h.nextPort == 60_000 {
			h.nextPort = 40_000
		}
		if h.listeners[h.nextPort] == nil {
			return h.nextPort
		}
	}
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
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	process := h.process()
	var wait time.Duration
	for again := synRetransmission; ; again = min(2*again, maxSynRetransmission) {
		if !h.pause(limited, wait) {
			break
		}
		number, answer, err := h.synchronize(process, at)
		if err != nil {
			return nil, err
		}
		if number > 0 {
			if !h.pause(limited, answer) {
				break
			}
			if c, err := h.establish(process, number, at); c != nil || err != nil {
				return c, err
			}
		}
		wait = max(0, again-answer)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, os.NewSyscallError("connect", syscall.ETIMEDOUT)
}

func (h *Host) process() int {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	return h.processes
}

// pause waits, and until the process runs. It returns false if the context has ended.
func (h *Host) pause(ctx context.Context, wait time.Duration) bool {
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	h.network.mu.Lock()
	thawed := h.thawed
	h.network.mu.Unlock()
	if thawed != nil {
		select {
		case <-thawed:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// synchronize sends a SYN of a process. It returns the number of the connection and the time until the answer, or 0 if the SYN or
// the answer is lost.
func (h *Host) synchronize(process int, at netip.AddrPort) (number int, answer time.Duration, err error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.down || h.processes != process || n.hosts[at.Addr()] == nil {
		return 0, 0, os.NewSyscallError("connect", syscall.EHOSTUNREACH)
	}
	d := direction{h.addr, at.Addr()}
	if n.blocked(d) || n.blocked(d.reverse()) {
		return 0, 0, nil
	}
	n.dialed[d]++
	number = n.dialed[d]
	return number, n.delay(n.link(d), d, number, 0) + n.delay(n.link(d.reverse()), d.reverse(), number, 0), nil
}

// establish makes the connection when the answer to the SYN arrives. It returns nil if the answer is lost.
func (h *Host) establish(process, number int, at netip.AddrPort) (*conn, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.down || h.processes != process {
		return nil, os.NewSyscallError("connect", syscall.EHOSTUNREACH)
	}
	d := direction{h.addr, at.Addr()}
	if n.blocked(d) || n.blocked(d.reverse()) {
		return nil, nil
	}
	to := n.hosts[at.Addr()]
	l := to.listeners[at.Port()]
	if l == nil {
		return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	}
	if len(l.waiting) == backlog {
		return nil, nil
	}
	near, far := newConnection(n, number, h, to, h.port(), at.Port())
	l.waiting = append(l.waiting, far)
	l.changed.Signal()
	n.open[near] = struct{}{}
	return near, nil
}

// Kill ends the process of the host: its listeners close, the other sides of its connections are reset, and it can neither
// dial nor listen until Boot.
func (h *Host) Kill() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.end()
	h.each(func(own *conn) {
		if own.err == nil { // otherwise the kernel completes it
			own.abort(net.ErrClosed)
			own.reset()
		}
	})
}

// PowerOff ends the process, and the host no longer answers: the other sides of its connections learn nothing.
func (h *Host) PowerOff() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.off = true
	h.relink()
	h.end()
	h.each(func(own *conn) {
		own.abort(net.ErrClosed)
		own.reset()
	})
}

// Boot ends the effect of Kill and PowerOff. Connections from before PowerOff are reset.
func (h *Host) Boot() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.down, h.off = false, false
	h.relink()
}

// Freeze stops the process from receiving and sending. Its kernel still accepts connections and acknowledges data. What its
// goroutines write, and that they close a connection, leaves the host after Thaw.
func (h *Host) Freeze() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	if !h.down && !h.frozen() {
		h.thawed = make(chan struct{})
	}
}

// Thaw ends Freeze. A process that has ended needs no Thaw.
func (h *Host) Thaw() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.thaw()
}

// thaw is called with network.mu held.
func (h *Host) thaw() {
	if !h.frozen() {
		return
	}
	close(h.thawed)
	h.thawed = nil
	h.relink()
	h.each(func(own *conn) { own.out.wake(); own.in.wake() })
	for _, l := range h.listeners {
		l.changed.Broadcast()
	}
}

// Frozen reports whether the process does not run, between Freeze and Thaw.
func (h *Host) Frozen() bool {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	return h.frozen()
}

// end ends the process. It is called with network.mu held.
func (h *Host) end() {
	h.thaw()
	h.down = true
	h.processes++
	for _, l := range h.listeners {
		l.close()
	}
}

// relink is called with network.mu held.
func (h *Host) relink() {
	h.network.relink(func(c *conn) bool { return c.host == h || c.peer.host == h })
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
	host *Host
	port uint16

	// The following fields are guarded by network.mu.
	changed *sync.Cond
	waiting []*conn
	ended   bool
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	l.host.network.mu.Lock()
	defer l.host.network.mu.Unlock()
	for {
		if l.ended {
			return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
		}
		if len(l.waiting) > 0 && !l.host.frozen() {
			c := l.waiting[0]
			l.waiting = l.waiting[1:]
			return c, nil
		}
		l.changed.Wait()
	}
}

// Close implements net.Listener. Connections that were not accepted are reset.
func (l *listener) Close() error {
	l.host.network.mu.Lock()
	defer l.host.network.mu.Unlock()
	if l.ended {
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
	l.close()
	return nil
}

// close is called with network.mu held.
func (l *listener) close() {
	l.ended = true
	delete(l.host.listeners, l.port)
	for _, c := range l.waiting {
		c.abort(net.ErrClosed)
		c.reset()
	}
	l.waiting = nil
	l.changed.Broadcast()
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.host.tcp(l.port) }
