package transport

import (
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"portico.dev/internal/engine"
	"portico.dev/internal/handler"
)

// errProtocolChanged is met by requests that chose HTTP/1.1 in the moment when the endpoint began to speak HTTP/2.
var errProtocolChanged = errors.New("endpoint changed its protocol")

// lane is the connections to one endpoint for one purpose. Probes and requests have lanes of their own, so that
// neither waits behind the other, and a probe that fails never closes a connection that carries requests.
//
// HTTP/2 connections are kept here, whichever engine speaks on them, and not in a pool of the library's, for three reasons: one dial at a time (a GOAWAY
// under load would make the pool dial once for every waiting request), an exact account of what each failed attempt
// left behind (the pool repeats requests on its own), and connections that can be retired when the identity changes.
type lane struct {
	dialer   *dialer
	options  *Options
	identity func() *x509.Certificate // the client certificate to be used now, nil for none
	dialled  func(error)              // told the outcome of every dial
	rounds   *rounds                  // look at the connections
	violated func(error)              // told of a connection whose server broke the protocol; nil: nobody is
	lost     func(error)              // told of an idle connection that went by itself; nil: nobody is
	silence  func()                   // told of a connection that did not answer pings; nil: nobody is
	asleep   func() bool              // whether idle connections need no pings, since another lane's are pinged; nil: never
	calm     func() bool              // whether no client has used the endpoint lately, so that pings may be rare; nil: never
	turn     int                      // looks so far; the rounds' own

	ctx    context.Context // ends when the lane is closed
	cancel context.CancelFunc
	wg     sync.WaitGroup // dials and connections

	mu      sync.Mutex      // guards what follows
	http1   *http.Transport // for endpoints that do not speak HTTP/2; nil until one is needed
	conns   []*conn         // HTTP/2 connections, oldest first
	dialing *dialing        // nil when no dial is under way
	plain   bool            // the endpoint chose HTTP/1.1 in the last handshake
	plains  map[*plainConn]struct{}
	parked  *plainConn // the HTTP/1.1 connection of that handshake, until somebody takes it
	issued  *x509.Certificate
	freed   chan struct{} // closed when a stream ended; nil when nobody waits
	closed  bool          // takes no more requests
	ended   bool          // everything is being closed: nothing may be started
	watched bool          // the rounds know of this lane
	missed  time.Time     // when lost was told last
}

// conn is one HTTP/2 connection. Its fields are guarded by lane.mu.
type conn struct {
	engine.ClientConn
	joined    bool      // it is, or was, the lane's
	active    int       // requests on it
	uploads   int       // those of them with a long body
	used      bool      // had a request
	retired   bool      // takes no more, and closes with its last request
	idleSince time.Time // when the last request was over
}

// dialing is one dial and those who wait for it.
type dialing struct {
	done chan struct{}
	err  error // valid when done is closed
	conn *conn // as is this; nil for HTTP/1.1
}

func newLane(d *dialer, o *Options, r *rounds, identity func() *x509.Certificate, dialled func(error)) *lane {
	l := &lane{dialer: d, options: o, rounds: r, identity: identity, dialled: dialled}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// newHTTP1 is the library's pool, for endpoints that do not speak HTTP/2.
func (l *lane) newHTTP1() *http.Transport {
	t := &http.Transport{
		Proxy:                  nil, // the environment of this process has no say in where clients' requests go
		Protocols:              new(http.Protocols),
		DialTLSContext:         l.dialPlain,
		DisableCompression:     true, // bytes pass through as the client asked for them
		ResponseHeaderTimeout:  l.options.HeaderTimeout,
		MaxResponseHeaderBytes: l.options.MaxHeaderBytes,
		IdleConnTimeout:        l.options.IdleTimeout,
		MaxIdleConnsPerHost:    l.options.MaxConns,
	}
	t.Protocols.SetHTTP1(true)
	return t
}

// place is where one request may be sent: a connection with room reserved on it, or the HTTP/1.1 transport.
type place struct {
	conn  *conn
	http1 *http.Transport
}

// pending is what to wait for when there is no place: a dial, or the end of another request.
type pending struct {
	dial *dialing
	room <-chan struct{}
	// better is whether there is a place, of which the dial may make a better one.
	better bool
}

// roundTrip sends one attempt. patience, unless 0, is how long a connection may take. A connection that comes with the
// response must be released when the response is over.
func (l *lane) roundTrip(r *http.Request, patience time.Duration) (*http.Response, *conn, error) {
	u := uploadOf(r)
	p, err := l.acquire(r.Context(), patience, u)
	if err != nil {
		return nil, nil, err
	}
	if p.http1 != nil {
		// HTTP/2 has looked at it (engine.Unsendable). The library writes a blank in a path as it is, and says of a bad
		// method what could as well be said of a connection.
		if err := handler.CheckRequest(r); err != nil {
			return nil, nil, err
		}
		resp, err := p.http1.RoundTrip(r)
		if err == nil {
			if err = l.unbelievable(r, resp); err != nil {
				_ = resp.Body.Close() // the response is none
				return nil, nil, err
			}
		}
		return resp, nil, err
	}
	resp, err := p.conn.RoundTrip(r)
	if err != nil {
		l.release(p.conn, u)
		return nil, nil, err
	}
	return resp, p.conn, nil
}

// acquire waits for a place, which the caller must then use.
func (l *lane) acquire(ctx context.Context, patience time.Duration, u upload) (place, error) {
	var w waiting
	defer w.stop()
	settle := false
	for {
		p, wait, err := l.take(u, settle)
		if err != nil || p != (place{}) {
			return p, err
		}
		if wait.better {
			// There is a connection that would do. A better one is worth the wait for a dial, and no failure.
			if w.on(ctx, wait.dial.done, patience, errSlow) != nil || wait.dial.err != nil {
				settle = true
			}
			continue
		}
		if wait.dial == nil {
			err = w.on(ctx, wait.room, l.options.DialTimeout, ErrSaturated)
		} else if err = w.on(ctx, wait.dial.done, patience, &connectError{op: OpDial, err: errSlow}); err == nil {
			err = l.outcome(wait.dial)
		}
		if err != nil {
			return place{}, err
		}
	}
}

// take returns a place, or what to wait for. settle is whether any place will do.
func (l *lane) take(u upload, settle bool) (place, pending, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return place{}, pending{}, &connectError{op: OpDial, err: ErrClosed}
	}
	l.followIdentity()
	if l.plain {
		if l.http1 == nil {
			l.http1 = l.newHTTP1()
		}
		return place{http1: l.http1}, pending{}, nil
	}
	c, full := l.best(u)
	if c != nil {
		if !settle && l.uploadNeedsAnother(c, u) {
			return place{}, pending{dial: l.dial(), better: true}, nil
		}
		c.reserve(u)
		return place{conn: c}, pending{}, nil
	}
	if l.dialing != nil || full < l.options.MaxConns && len(l.conns) < maxDraining*l.options.MaxConns {
		return place{}, pending{dial: l.dial()}, nil
	}
	if l.freed == nil {
		l.freed = make(chan struct{})
	}
	return place{}, pending{room: l.freed}, nil
}

// outcome is what came of a dial that is over. A connection that broke before its first request counts as none: a
// server that does so with every connection would have us dial for ever.
func (l *lane) outcome(d *dialing) error {
	if d.err != nil || d.conn == nil {
		return d.err
	}
	l.mu.Lock()
	stillborn := !d.conn.used && d.conn.Ended()
	l.mu.Unlock()
	if !stillborn {
		return nil
	}
	err := &connectError{op: OpTLS, err: errStillborn}
	l.dialled(err)
	return err
}

// waiting is one patience for everything that a request waits for.
type waiting struct{ timer *time.Timer }

func (w *waiting) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

// on waits for event, and returns over when patience, unless 0, is at its end.
func (w *waiting) on(ctx context.Context, event <-chan struct{}, patience time.Duration, over error) error {
	var end <-chan time.Time
	if w.timer == nil && patience > 0 {
		w.timer = time.NewTimer(patience)
	}
	if w.timer != nil {
		end = w.timer.C
	}
	select {
	case <-event:
		return nil
	case <-end:
		return over
	case <-ctx.Done():
		return &connectError{op: OpDial, err: context.Cause(ctx)}
	}
}

// maxDraining is how many times MaxConns connections may exist when most of them only wait for their last requests.
const maxDraining = 4

// best is the connection with room on which a request has the least to wait for (before).
// Without room it says how many connections are full; others take no more because they said GOAWAY. Called with mu held.
func (l *lane) best(u upload) (best *conn, full int) {
	ended := false
	for _, c := range l.conns {
		switch {
		case c.Ended():
			ended = true
		case c.retired:
		case !c.Available():
			if c.active == 0 {
				c.retired = true
				c.Close()
			}
		case c.active >= c.Streams():
			full++
		case best == nil || c.before(best, u):
			best = c
		}
	}
	if ended {
		l.forgetEnded()
	}
	return best, full
}

// release is told that a request of c is over.
func (l *lane) release(c *conn, u upload) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.active--
	if u.long {
		c.uploads--
	}
	c.idleSince = time.Now()
	if c.retired && c.active == 0 {
		c.Close()
	}
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

// followIdentity retires connections that were made with another client certificate. Called with mu held.
func (l *lane) followIdentity() {
	now := l.identity()
	if now == l.issued {
		return
	}
	if l.issued != nil && !now.Equal(l.issued) {
		l.retire()
	}
	l.issued = now
}

// retire lets every connection end with its last request, and in any case after the grace. Called with mu held.
func (l *lane) retire() {
	var busy []func()
	for _, c := range l.conns {
		switch {
		case c.retired:
		case c.active == 0:
			c.Close()
		default:
			busy = append(busy, c.Close)
		}
		c.retired = true
	}
	// Busy HTTP/1.1 connections would go back to the pool of the transport that made them: leave it behind.
	l.unpark()
	for c := range l.plains {
		busy = append(busy, func() { _ = c.Close() })
	}
	if old := l.http1; old != nil {
		l.http1 = nil
		l.spawn(old.CloseIdleConnections) // it closes connections, which take mu
		busy = append(busy, old.CloseIdleConnections)
	}
	if len(busy) == 0 {
		return
	}
	time.AfterFunc(l.options.LeaveGrace, func() {
		for _, end := range busy {
			end() // harmless when it closed before
		}
	})
}

// spawn runs f, unless close does everything itself. Called with mu held.
func (l *lane) spawn(f func()) {
	if !l.ended {
		l.wg.Go(f)
	}
}

// leave takes no more requests; those in flight have the grace.
func (l *lane) leave() {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.retire()
	}
}

// idle reports, after leave, whether no request is left.
func (l *lane) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		if c.active > 0 && !c.Ended() {
			return false
		}
	}
	return l.dialing == nil && len(l.plains) == 0
}

// close ends everything now, and waits for it.
func (l *lane) close() {
	l.leave()
	l.mu.Lock()
	l.ended = true
	conns, plains := slices.Clone(l.conns), slices.Collect(maps.Keys(l.plains))
	l.mu.Unlock()
	for _, c := range conns {
		c.Close() // it may be closed already
	}
	for _, c := range plains {
		_ = c.Close() // as above
	}
	l.wg.Wait()
}
