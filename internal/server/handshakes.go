package server

import (
	linked "container/list"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"portico.dev/internal/overload"
)

// handshakes limits concurrent TLS handshakes. Each holds some memory (handshakeBytes) while it waits for its client,
// up to limits.handshake. If there are too many, one of the network with the most handshakes is closed: the oldest
// that waits for its client, or the newest if all of them wait for the server. Clients of a network with few
// handshakes are therefore served regardless of other networks. The expensive part, from the ClientHello to the
// server's flight, requires a slot, so that a burst is processed in order and not all at once.
type handshakes struct {
	max         int
	level       func() overload.Level
	onClosed    func()        // counts closed handshakes
	slots       chan struct{} // capacity: handshakes in the expensive part
	readLimiter *overload.ReadLimiter

	mu         sync.Mutex  // guards the fields below
	active     linked.List // of *handshake, oldest first
	perNetwork map[netip.Addr]int
}

// handshake is a handshake in progress.
type handshake struct {
	conn net.Conn
	from netip.Addr
	// queued is set while the handshake waits for the server, not for its client.
	queued  atomic.Bool
	removed bool // guarded by handshakes.mu
}

const (
	// maxHandshakes is the limit. With a memory limit there is one handshake for each handshakeShare bytes, but at
	// least minHandshakes.
	maxHandshakes, minHandshakes = 1024, 64
	handshakeShare               = 512 << 10
	// handshakeBytes is the approximate memory that a handshake holds, and leaves as garbage.
	handshakeBytes = 48 << 10
	// handshakesPerCPU is the number of handshakes in the expensive part, per CPU.
	handshakesPerCPU = 2
)

func newHandshakes(memory overload.Limit, level func() overload.Level, cut func(), limiter *overload.ReadLimiter) *handshakes {
	return &handshakes{
		max: int(max(memory.Share(maxHandshakes*handshakeShare, 1)/handshakeShare, minHandshakes)), level: level, onClosed: cut,
		slots: make(chan struct{}, handshakesPerCPU*runtime.GOMAXPROCS(0)), perNetwork: map[netip.Addr]int{}, readLimiter: limiter,
	}
}

// begin adds a handshake. If there are too many, it closes another one, or this one. The caller calls leave when the
// handshake has ended.
func (h *handshakes) begin(c net.Conn) (begun *handshake, leave func()) {
	most := h.max
	if h.level() >= overload.Critical {
		most = minHandshakes
	}
	begun = &handshake{conn: c, from: network(c.RemoteAddr())}
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.active.PushBack(begun)
	h.perNetwork[begun.from]++
	for h.active.Len() > most {
		last := h.victim()
		h.remove(last)
		_ = last.Value.(*handshake).conn.Close()
		h.onClosed()
	}
	return begun, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.remove(at)
	}
}

// remove does nothing if e is already removed.
func (h *handshakes) remove(e *linked.Element) {
	one := e.Value.(*handshake)
	if one.removed {
		return
	}
	one.removed = true
	h.active.Remove(e)
	if h.perNetwork[one.from]--; h.perNetwork[one.from] == 0 {
		delete(h.perNetwork, one.from)
	}
}

// victim returns the handshake to close next.
func (h *handshakes) victim() *linked.Element {
	var from netip.Addr
	most := 0
	for e := h.active.Front(); e != nil; e = e.Next() {
		if one := e.Value.(*handshake); h.perNetwork[one.from] > most {
			from, most = one.from, h.perNetwork[one.from]
		}
	}
	var newest *linked.Element
	for e := h.active.Front(); e != nil; e = e.Next() {
		one := e.Value.(*handshake)
		if one.from != from {
			continue
		}
		if !one.queued.Load() {
			return e
		}
		newest = e
	}
	return newest
}

// network returns the network in which one client can choose addresses: an IPv4 address, or an IPv6 /64.
func network(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	if address.Is4() {
		return address
	}
	prefix, err := address.Prefix(64)
	if err != nil {
		return address
	}
	return prefix.Addr()
}

// config returns a copy of c with which the expensive part of each handshake waits for a slot. Connections must be
// stallConns.
func (h *handshakes) config(c *tls.Config) *tls.Config {
	c = c.Clone()
	chosen := c.GetConfigForClient
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if err := hello.Conn.(*stallConn).acquireSlot(hello.Context(), h.slots); err != nil {
			return nil, err
		}
		if chosen != nil {
			return chosen(hello)
		}
		return nil, nil
	}
	return c
}

// acquireSlot waits for a slot. The next Read releases it, because the handshake then waits for the client.
// releaseSlot releases it too.
func (c *stallConn) acquireSlot(ctx context.Context, working chan struct{}) error {
	c.handshake.queued.Store(true)
	c.readLimiter.Wait(handshakeBytes)
	select {
	case working <- struct{}{}:
		c.slot.Store(&working)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *stallConn) releaseSlot() {
	if working := c.slot.Swap(nil); working != nil {
		c.handshake.queued.Store(false)
		<-*working
	}
}

// Read implements net.Conn.
func (c *stallConn) Read(p []byte) (int, error) {
	if c.slot.Load() != nil {
		c.releaseSlot()
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.readLimiter.Wait(n)
	}
	return n, err
}
