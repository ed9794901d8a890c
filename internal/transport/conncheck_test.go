package transport

import (
	"crypto/tls"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"portico.dev/internal/httpengine/engine"
)

// pinged is a backend that counts the pings on each connection.
type pinged struct {
	mu    sync.Mutex
	pings []int // per connection, in the order in which they were opened
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

func TestOneIdleConnectionPerEndpointIsPinged(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	var p pinged
	b := w.backend(w.set(func(o *Options) { o.PingAfter, o.PingTimeout = 20*time.Millisecond, 10*time.Second }), w.raw("h2", p.handle))
	b.set.checker.every = 10 * time.Millisecond
	if _, err := get(t, b); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "pings of the only one", func() bool { return p.count(0) > 3 })
	if _, err := get(t, b.Probe()); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "pings of the probes'", func() bool { return p.count(1) > 0 })
	before := p.count(0)
	eventually(t, time.Minute, "more pings of the probes'", func() bool { return p.count(1) > 20 })
	if n := p.count(0) - before; n > 1 { // one ping may have been due
		t.Errorf("%d further pings on the first connection, want at most 1", n)
	}
}

func TestUnusedEndpointIsPingedLessOften(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	var p pinged
	b := w.backend(w.set(func(o *Options) { o.PingAfter, o.PingTimeout = 20*time.Millisecond, time.Minute }), w.raw("h2", p.handle))
	b.set.checker.every = 10 * time.Millisecond
	if _, err := get(t, b.Probe()); err != nil {
		t.Fatal(err)
	}
	pool := (*b.candidates.Load())[0].probes
	allowed := func() int { // pings that could have been sent in the checks since the connection was opened
		b.set.checker.checking.Lock()
		defer b.set.checker.checking.Unlock()
		return pool.checks / unusedPingEvery
	}
	eventually(t, time.Minute, "pings", func() bool { return p.count(0) >= 10 })
	if pings, most := p.count(0), allowed(); pings > most {
		t.Errorf("%d pings of an unused connection, want at most %d", pings, most)
	}
	if _, err := get(t, b); err != nil {
		t.Fatal(err)
	}
	pings, most := p.count(0), allowed()
	eventually(t, time.Minute, "more pings while clients have a connection", func() bool {
		return p.count(0)-pings > allowed()-most+5
	})
}

// Without client connections, only the probe connection can detect a silent backend.
func TestSilentUnusedConnectionIsDetected(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	w := newTestEnv(t)
	s := w.serve(text("ok"))
	l := w.link(s.address)
	told := make(chan error, 8)
	b := w.backend(w.set(func(o *Options) { o.OnFailure = func(_ *Backend, err error) { told <- err } }), l.address)
	if _, err := get(t, b.Probe()); err != nil {
		t.Fatal(err)
	}
	l.cut.Store(true)
	select {
	case err := <-told:
		if !errors.Is(err, errPingsUnanswered) {
			t.Errorf("reported failure = %v, want errPingsUnanswered", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the silent connection was not detected within 30 seconds, want a reported failure")
	}
	if said := b.Silence(); said.Since.IsZero() || !said.Broken {
		t.Errorf("silence of the backend = %+v, want a broken connection", said)
	}
}

func TestSilentConnectionClosesIdleConnectionsOfEndpoint(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	w := newTestEnv(t)
	s := w.serve(text("ok"))
	l := w.link(s.address)
	told := make(chan struct{}, 8)
	b := w.backend(w.set(func(o *Options) { o.OnFailure = func(*Backend, error) { told <- struct{}{} } }), l.address)
	for _, pool := range []http.RoundTripper{b, b.Probe()} {
		if _, err := get(t, pool); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.Report().Endpoints[0].Connections; n != 1 {
		t.Fatalf("%d connections for requests, want 1", n)
	}
	l.cut.Store(true)
	<-told
	if n := b.Report().Endpoints[0].Connections; n != 0 {
		t.Errorf("%d connections for requests after the probe connection fell silent, want 0", n)
	}
}

func TestCheckerStopsWithoutConnections(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s := w.serve(text("ok"))
	b := w.backend(w.set(func(o *Options) { o.IdleTimeout = 50 * time.Millisecond }), s.address)
	for range 2 {
		if _, err := get(t, b); err != nil {
			t.Fatal(err)
		}
		rounds := b.set.checker
		eventually(t, time.Minute, "nobody is looked at", func() bool {
			rounds.mu.Lock()
			defer rounds.mu.Unlock()
			return rounds.count == 0
		})
		if n := b.Report().Endpoints[0].Connections; n != 0 {
			t.Errorf("%d connections after the idle timeout, want 0", n)
		}
	}
}

// checkedConn records when it was checked, and when it could be pinged.
type checkedConn struct {
	engine.ClientConn
	at, pinged []time.Time // one goroutine checks
}

func (c *checkedConn) Check(ping bool) {
	c.at = append(c.at, time.Now())
	if ping {
		c.pinged = append(c.pinged, time.Now())
	}
}
func (c *checkedConn) Closed() bool { return false }

// Each connection is checked once per interval. For a few connections the process wakes up once per interval. Many connections are not
// all pinged at the same time.
func TestFewConnectionsAreCheckedTogether(t *testing.T) {
	const every, rounds = 250 * time.Millisecond, 40
	for _, n := range []int{1, fewPools, fewPools + 1, 1000} {
		synctest.Test(t, func(t *testing.T) {
			c := &connChecker{every: every}
			conns := make([]checkedConn, n)
			for i := range conns {
				p := &connPool{options: &Options{IdleTimeout: time.Hour}, conns: []*http2Conn{{ClientConn: &conns[i], idleSince: time.Now()}}}
				c.add(p)
			}
			time.Sleep(rounds*every + every/checkGroups/2)
			synctest.Wait()
			c.close()
			together := map[time.Time]int{}
			for i := range conns {
				at := conns[i].at
				if len(at) < rounds || len(at) > rounds+1 {
					t.Fatalf("one of %d connections was checked %d times in %d intervals, want once in each", n, len(at), rounds)
				}
				for j, now := range at {
					together[now]++
					if j > 0 && now.Sub(at[j-1]) != every {
						t.Fatalf("one of %d connections was checked after %s, want %s", n, now.Sub(at[j-1]), every)
					}
				}
			}
			groups := min(checkGroups, (n+fewPools-1)/fewPools)
			if len(together) > groups*(rounds+1) {
				t.Errorf("%d connections were checked at %d times in %d intervals, want %d in each", n, len(together), rounds, groups)
			}
			for _, some := range together {
				if some > max(fewPools, n/checkGroups) {
					t.Errorf("%d of %d connections were checked at the same time, want at most %d", some, n, max(fewPools, n/checkGroups))
				}
			}
		})
	}
}

// 170 pings per second are the limit for any number of endpoints without client connections.
func TestUnusedEndpointsSharePingLimit(t *testing.T) {
	const every = 250 * time.Millisecond
	for n, interval := range map[int]time.Duration{1: 1500 * time.Millisecond, manyPools: 1500 * time.Millisecond, manyPools + 1: 3 * time.Second, 1000: 6 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := &connChecker{every: every}
			conns := make([]checkedConn, n)
			for i := range conns {
				c.add(&connPool{
					options: &Options{IdleTimeout: time.Hour}, conns: []*http2Conn{{ClientConn: &conns[i], idleSince: time.Now()}},
					unused: func() bool { return true },
				})
			}
			time.Sleep(5*interval + every/2)
			synctest.Wait()
			c.close()
			for i := range conns {
				if times := conns[i].pinged; len(times) < 4 || len(times) > 5 || times[1].Sub(times[0]) != interval {
					t.Fatalf("one of %d connections was pinged at %v, want one ping every %s", n, times, interval)
				}
			}
		})
	}
}

func TestConnectionInEmptyGroupIsChecked(t *testing.T) {
	const every = 250 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		c := &connChecker{every: every}
		conns := make([]checkedConn, fewPools+1)
		for i := range conns {
			if i == fewPools { // the next group
				time.Sleep(10*every + every/2)
			}
			c.add(&connPool{options: &Options{IdleTimeout: time.Hour}, conns: []*http2Conn{{ClientConn: &conns[i], idleSince: time.Now()}}})
		}
		time.Sleep(10 * every)
		synctest.Wait()
		c.close()
		if n := len(conns[fewPools].at); n < 8 {
			t.Errorf("%d checks of the new connection in 10 intervals, want at least 8", n)
		}
	})
}
