package server

import (
	linked "container/list"
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"sync"

	"portico.dev/internal/overload"
)

// handshakes bounds those of TLS that are in hand: each holds some 50 KiB, for as long as its client likes to take (limits.handshake).
// When there are too many the oldest ends. A client that means it is through in the time that it takes to answer once, so that those
// who wait are mostly those who do not. And only so many are at the part that costs time, from the ClientHello to the answer, so that
// a burst is worked off in its order and not all at once.
type handshakes struct {
	most    int
	level   func() overload.Level
	cut     func()        // counts one that ended
	working chan struct{} // has room for those that may be at the expensive part

	mu    sync.Mutex  // guards what follows
	inTLS linked.List // of net.Conn, the oldest first
}

const (
	// mostHandshakes may be in hand, or fewer when memory is limited: one for each handshakeShare bytes, and leastHandshakes.
	mostHandshakes, leastHandshakes = 1024, 64
	handshakeShare                  = 512 << 10
	// handshakesEach is how many may be at the expensive part for each processor.
	handshakesEach = 2
)

func newHandshakes(memory overload.Limit, level func() overload.Level, cut func()) *handshakes {
	return &handshakes{
		most: int(max(memory.Share(mostHandshakes*handshakeShare, 1)/handshakeShare, leastHandshakes)), level: level, cut: cut,
		working: make(chan struct{}, handshakesEach*runtime.GOMAXPROCS(0)),
	}
}

// enter counts a handshake that begins, and ends the oldest if there are too many. What it returns is called when it has ended.
func (h *handshakes) enter(c net.Conn) (leave func()) {
	most := h.most
	if h.level() >= overload.Critical {
		most = leastHandshakes
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.inTLS.Len() >= most {
		oldest := h.inTLS.Remove(h.inTLS.Front()).(net.Conn)
		_ = oldest.Close()
		h.cut()
	}
	at := h.inTLS.PushBack(c)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.inTLS.Remove(at) // does nothing when it was cut
	}
}

// config has the expensive part of each handshake wait for its turn. Connections are stallConns.
func (h *handshakes) config(c *tls.Config) *tls.Config {
	c = c.Clone()
	chosen := c.GetConfigForClient
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if err := hello.Conn.(*stallConn).work(hello.Context(), h.working); err != nil {
			return nil, err
		}
		if chosen != nil {
			return chosen(hello)
		}
		return nil, nil
	}
	return c
}

// work waits for room in working, which the next Read gives back: then it is the client's turn. rest gives it back as well.
func (c *stallConn) work(ctx context.Context, working chan struct{}) error {
	select {
	case working <- struct{}{}:
		c.working.Store(&working)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *stallConn) rest() {
	if working := c.working.Swap(nil); working != nil {
		<-*working
	}
}

// Read implements net.Conn.
func (c *stallConn) Read(p []byte) (int, error) {
	if c.working.Load() != nil {
		c.rest()
	}
	return c.Conn.Read(p)
}
