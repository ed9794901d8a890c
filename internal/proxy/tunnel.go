package proxy

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// tunnel is an upgraded connection: two connections that are closed together.
type tunnel struct {
	client, backend net.Conn
	idle            time.Duration
	once            sync.Once
	moved           atomic.Int64 // time of the last byte in either direction, in Unix nanoseconds
}

// run copies until either side ends, and returns when both directions have stopped.
func (t *tunnel) run() {
	t.moved.Store(time.Now().UnixNano())
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { t.copy(t.backend, t.client) })
	wg.Go(func() { t.copy(t.client, t.backend) })
	var watch sync.WaitGroup
	watch.Go(func() { t.watchIdle(over) })
	wg.Wait()
	close(over)
	watch.Wait()
}

// copy closes the whole tunnel when its direction ends. Neither websocket nor SPDY has half-open connections, and a
// direction that stays open is of no use.
func (t *tunnel) copy(to io.Writer, from io.Reader) {
	defer t.close()
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	for {
		n, err := from.Read(*b)
		if n > 0 {
			t.moved.Store(time.Now().UnixNano())
			if _, err := to.Write((*b)[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// watchIdle closes the tunnel when no byte was copied for long.
func (t *tunnel) watchIdle(over <-chan struct{}) {
	timer := time.NewTimer(t.idle)
	defer timer.Stop()
	for {
		select {
		case <-over:
			return
		case <-timer.C:
		}
		rest := t.idle - time.Since(time.Unix(0, t.moved.Load()))
		if rest <= 0 {
			t.close()
			return
		}
		timer.Reset(rest)
	}
}

func (t *tunnel) close() {
	t.once.Do(func() {
		_ = t.client.Close() // the peer may have closed either of them already
		_ = t.backend.Close()
	})
}

// closer is a connection that the end of a drain closes.
type closer interface{ close() }

// tunnels contains the open upgraded connections. net/http does not track hijacked connections, so its shutdown neither
// waits for them nor closes them.
type tunnels struct {
	mu     sync.Mutex // guards the fields below
	open   map[closer]struct{}
	drains bool
	empty  chan struct{} // closed when draining and no tunnel is open
}

func (s *tunnels) draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drains
}

func (s *tunnels) add(t closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drains {
		return false
	}
	s.open[t] = struct{}{}
	return true
}

func (s *tunnels) remove(t closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, t)
	if s.drains && len(s.open) == 0 {
		close(s.empty)
	}
}

// Drain refuses new upgrades, waits for the open ones until ctx ends, then closes the remaining ones and waits for them. It
// returns the number of connections that it had to close. It must be called only once.
func (p *Proxy) Drain(ctx context.Context) int {
	s := &p.tunnels
	s.mu.Lock()
	s.drains, s.empty = true, make(chan struct{})
	if len(s.open) == 0 {
		close(s.empty)
	}
	s.mu.Unlock()
	select {
	case <-s.empty:
		return 0
	case <-ctx.Done():
	}
	s.mu.Lock()
	closed := len(s.open)
	for t := range s.open {
		t.close()
	}
	s.mu.Unlock()
	<-s.empty // each tunnel removes itself when its copying has stopped, which closing guarantees
	return closed
}

// Tunnels returns the number of open upgraded connections.
func (p *Proxy) Tunnels() int {
	p.tunnels.mu.Lock()
	defer p.tunnels.mu.Unlock()
	return len(p.tunnels.open)
}
