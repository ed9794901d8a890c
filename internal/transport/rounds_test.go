package transport

import (
	"crypto/tls"
	"net/http"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// pinged is a backend that counts the pings of each of its connections.
type pinged struct {
	mu    sync.Mutex
	pings []int // of the connections, in the order in which they were made
}

func (p *pinged) handle(c *tls.Conn) {
	f, ok := newFrames(c)
	if !ok {
		return
	}
	p.mu.Lock()
	me := len(p.pings)
	p.pings = append(p.pings, 0)
	p.mu.Unlock()
	_ = f.WriteSettings()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch fr := frame.(type) {
		case *http2.PingFrame:
			p.mu.Lock()
			p.pings[me]++
			p.mu.Unlock()
			_ = f.WritePing(true, fr.Data)
		case *http2.MetaHeadersFrame:
			f.header(fr.StreamID, true, ":status", "200")
		}
	}
}

func (p *pinged) count(conn int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pings[conn]
}

func TestOneIdleConnectionOfAnEndpointIsPinged(t *testing.T) {
	w := newWorld(t)
	var p pinged
	b := w.backend(w.set(func(o *Options) { o.PingAfter, o.PingTimeout = 20*time.Millisecond, 10*time.Second }), w.raw("h2", p.handle))
	b.set.rounds.every = 10 * time.Millisecond
	if _, err := get(t, b); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "pings of the only one", func() bool { return p.count(0) > 3 })
	if _, err := get(t, b.Probe()); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "pings of the probes'", func() bool { return p.count(1) > 0 })
	before := p.count(0)
	eventually(t, 30*time.Second, "more pings of the probes'", func() bool { return p.count(1) > 20 })
	if n := p.count(0) - before; n > 1 { // one may have been due
		t.Errorf("the other was pinged %d times more", n)
	}
}

func TestWhatSharesAnEndpointWithASilentConnectionIsDoubted(t *testing.T) {
	w := newWorld(t)
	s := w.serve(text("ok"))
	l := w.link(s.address)
	told := make(chan struct{}, 8)
	b := w.backend(w.set(func(o *Options) { o.OnFailure = func(*Backend, error) { told <- struct{}{} } }), l.address)
	for _, lane := range []http.RoundTripper{b, b.Probe()} {
		if _, err := get(t, lane); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.Report().Endpoints[0].Connections; n != 1 {
		t.Fatalf("%d connections for requests", n)
	}
	l.cut.Store(true)
	<-told
	if n := b.Report().Endpoints[0].Connections; n != 0 {
		t.Errorf("%d connections for requests are kept although the probes' fell silent", n)
	}
}

func TestNobodyIsLookedAtWithoutConnections(t *testing.T) {
	w := newWorld(t)
	s := w.serve(text("ok"))
	b := w.backend(w.set(func(o *Options) { o.IdleTimeout = 50 * time.Millisecond }), s.address)
	for range 2 {
		if _, err := get(t, b); err != nil {
			t.Fatal(err)
		}
		rounds := &b.set.rounds
		eventually(t, 10*time.Second, "nobody is looked at", func() bool {
			rounds.mu.Lock()
			defer rounds.mu.Unlock()
			return rounds.count == 0
		})
		if n := b.Report().Endpoints[0].Connections; n != 0 {
			t.Errorf("%d connections are left", n)
		}
	}
}
