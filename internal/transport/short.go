package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// short is the connections to one endpoint for requests that are over soon: GET and HEAD without a body. They speak
// HTTP/1.1, one request at a time, and are written to and read from by the goroutine of the request. A library's
// connection has goroutines of its own, and handing a request over to them and back costs as much as the rest of it.
//
// What else there is to send goes by the lanes of the library: writes, because GOAWAY says which of them a server that
// goes away has not looked at and a closed connection does not; streams, because each would need a connection; and
// whatever finds no idle connection here. So nobody waits for a dial of this lane, and none is made before the endpoint
// has answered by another.
type short struct {
	dialer    *dialer
	options   *Options
	identity  func() *x509.Certificate
	told      func(ok bool)               // the outcome of every dial, for the metrics; the endpoint's health is not concerned
	companion func() (present, none bool) // an HTTP/2 connection to the same endpoint, which is pinged; none: it speaks no HTTP/2

	ctx    context.Context // ends when the lane is closed
	cancel context.CancelFunc
	wg     sync.WaitGroup // dials

	silent atomic.Bool // the companion fell silent, and none has been made since
	proven atomic.Bool // a request was answered here

	mu       sync.Mutex // guards what follows
	idle     []*shortConn
	conns    map[*shortConn]struct{} // all of them, the idle ones too
	dialing  int
	pause    time.Duration // after a dial that failed
	resume   time.Time     // the end of that pause
	issued   *x509.Certificate
	refused  bool // the endpoint does not speak HTTP/1.1: for good, a new endpoint is another one
	closed   bool // takes no more requests
	ended    bool // everything is being closed: nothing may be started
	busy     int
	looking  *time.Timer // nil: nobody looks
	lookSoon bool
}

const (
	// shortDials bounds dials at one time: a crowd that arrives at once goes by the other lane meanwhile.
	shortDials = 4
	// lookEvery is the time between two looks at the connections while a request is on one of them.
	lookEvery = 250 * time.Millisecond
	// shortIdle is how long a connection may wait for a request. Servers give up theirs after a minute or more.
	shortIdle = 30 * time.Second
	// firstRefusal and lastRefusal bound the pause after a dial that failed.
	firstRefusal = time.Second
	lastRefusal  = time.Minute
)

// protoHTTP1 is how TLS names HTTP/1.1.
const protoHTTP1 = "http/1.1"

func newShort(d *dialer, o *Options, identity func() *x509.Certificate, told func(bool), companion func() (bool, bool)) *short {
	s := &short{dialer: d, options: o, identity: identity, told: told, companion: companion, conns: make(map[*shortConn]struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// suits reports whether a request may go by a short lane.
func suits(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && (r.Body == nil || r.Body == http.NoBody)
}

// take returns an idle connection, or nil. It is the caller's until put or drop.
func (s *short) take() *shortConn {
	for {
		c := s.pop()
		if c == nil || c.alive(time.Now()) {
			return c
		}
		s.drop(c) // the other side closed it, or sent what nobody had asked for
	}
}

func (s *short) pop() *shortConn {
	now := s.identity()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now != s.issued {
		s.follow(now)
	}
	n := len(s.idle)
	if s.closed || n == 0 {
		return nil
	}
	c := s.idle[n-1] // the one used last: what is not needed stays unused, and is closed
	s.idle[n-1] = nil
	s.idle = s.idle[:n-1]
	c.busy = true
	s.busy++
	s.look(true)
	return c
}

// follow retires the connections that were made with another client certificate. Called with mu held.
func (s *short) follow(now *x509.Certificate) {
	if s.issued != nil && !now.Equal(s.issued) {
		s.retire()
	}
	s.issued = now
}

// retire closes what is idle, and lets the others end with their requests or with the grace. Called with mu held.
func (s *short) retire() {
	for _, c := range s.idle {
		s.forget(c)
		_ = c.raw.Close()
	}
	s.idle = nil
	var busy []*shortConn
	for c := range s.conns {
		c.retired = true
		busy = append(busy, c)
	}
	if len(busy) > 0 {
		time.AfterFunc(s.options.LeaveGrace, func() {
			for _, c := range busy {
				_ = c.raw.Close() // harmless when it closed before
			}
		})
	}
}

// put takes a connection back whose request is over and left nothing on it.
func (s *short) put(c *shortConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(c)
	if c.retired || s.closed {
		s.forget(c)
		_ = c.raw.Close()
		return
	}
	c.used = true
	c.since = time.Now()
	s.idle = append(s.idle, c)
}

// drop closes a connection that is no longer of use.
func (s *short) drop(c *shortConn) {
	s.mu.Lock()
	s.release(c)
	s.forget(c)
	s.mu.Unlock()
	_ = c.raw.Close()
}

// release ends a connection's request. Called with mu held.
func (s *short) release(c *shortConn) {
	if c.busy {
		c.busy = false
		s.busy--
	}
}

// forget is called with mu held.
func (s *short) forget(c *shortConn) { delete(s.conns, c) }

// answered is told that headers arrived on a connection of this lane.
func (s *short) answered() {
	if !s.proven.Load() {
		s.proven.Store(true)
	}
}

// doubt is told of a connection on which no answer came, or none that is HTTP. An endpoint that never answered here is
// left to the other lane.
func (s *short) doubt() {
	if s.proven.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = true
}

// want asks for one more connection: a request that would have gone by this lane was just answered by another.
func (s *short) want() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.refused || s.dialing >= shortDials || len(s.idle) > 0 || len(s.conns)+s.dialing >= s.options.MaxShortConns ||
		s.pause > 0 && time.Now().Before(s.resume) {
		return
	}
	s.dialing++
	s.wg.Go(func() {
		c, err := s.dial()
		s.told(err == nil)
		s.came(c, err)
	})
}

func (s *short) dial() (*shortConn, error) {
	identity := s.identity()
	var records *wire
	tc, raw, err := s.dialer.secure(s.ctx, s.dialer.configOnly, func(raw net.Conn) net.Conn {
		records = &wire{Conn: raw}
		return records
	})
	if err != nil {
		return nil, err
	}
	if _, none := s.companion(); !none && tc.ConnectionState().NegotiatedProtocol != protoHTTP1 {
		_ = raw.Close()
		return nil, errNotSpoken // a server of HTTP/2 alone, which lets those in that offer no protocol that it knows
	}
	c, err := newShortConn(s, tc, records)
	if err == nil && s.identity() != identity {
		err = errors.New("made with a certificate that was replaced meanwhile")
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return c, nil
}

// alertNoProtocol is the TLS alert no_application_protocol (RFC 7301).
const alertNoProtocol tls.AlertError = 120

var errNotSpoken = errors.New("the endpoint does not agree to speak HTTP/1.1")

// came is told what came of a dial.
func (s *short) came(c *shortConn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialing--
	if err != nil {
		var alert tls.AlertError
		s.refused = s.refused || errors.Is(err, errNotSpoken) || errors.As(err, &alert) && alert == alertNoProtocol
		s.pause = min(max(2*s.pause, firstRefusal), lastRefusal)
		s.resume = time.Now().Add(s.pause)
		return
	}
	s.pause = 0
	if s.closed {
		_ = c.raw.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.idle = append(s.idle, c)
	s.look(false)
}

// leave takes no more requests; those in flight have the grace.
func (s *short) leave() {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.retire()
	}
}

// quiet reports, after leave, whether no request is left.
func (s *short) quiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dialing == 0 && len(s.conns) == 0
}

// close ends everything now, and waits for it.
func (s *short) close() {
	s.leave()
	s.mu.Lock()
	s.ended = true
	if s.looking != nil {
		s.looking.Stop()
	}
	for c := range s.conns {
		_ = c.raw.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// count is how many connections there are, for the report.
func (s *short) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}
