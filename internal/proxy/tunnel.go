package proxy

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// tunnel is an upgraded connection: two halves, closed together.
type tunnel struct {
	client, backend net.Conn
	idle            time.Duration
	once            sync.Once
	moved           atomic.Int64 // when a byte last passed, Unix nanoseconds
}

// run copies until either side ends, and returns when both directions stopped.
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

// copy ends the whole tunnel when its direction ends. Neither websocket nor SPDY has half a connection, and a half that
// stays open is of no use.
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

// watchIdle closes the tunnel when nothing passed for long.
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
		_ = t.client.Close() // either may be closed by its other side already
		_ = t.backend.Close()
	})
}

// closer is what the end of a drain closes.
type closer interface{ close() }

// tunnels are the upgraded connections that are open. net/http forgets a connection that was hijacked, so that its own
// shutdown neither waits for them nor closes them.
type tunnels struct {
	mu     sync.Mutex // guards what follows
	open   map[closer]struct{}
	drains bool
	empty  chan struct{} // closed when draining and none is open
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

// Drain takes no new upgrades, waits for the open ones until ctx ends, then closes those that are left and waits for
// them. It returns how many it had to close. It is called once.
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
	<-s.empty // each tunnel removes itself when its copying stopped, which closing makes certain
	return closed
}

// Tunnels is how many upgraded connections are open.
func (p *Proxy) Tunnels() int {
	p.tunnels.mu.Lock()
	defer p.tunnels.mu.Unlock()
	return len(p.tunnels.open)
}
