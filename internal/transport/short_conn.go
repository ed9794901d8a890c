package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// maxKeptHead is how much room for a head a connection keeps between requests.
const maxKeptHead = 16 << 10

// shortConn is a connection of the short lane. But for what is said to be the lane's, only the goroutine of the request
// that has taken it touches it.
type shortConn struct {
	lane *short
	tls  *tls.Conn
	raw  net.Conn
	wire *wire
	sys  syscall.RawConn
	in   *bufio.Reader // nil without a request
	peek socketPeek
	head []byte // of the request, and then of the response
	ends []int  // of the lines in head

	cutter func()      // is cut, made once
	ender  ender       // the request's context, if it is one
	stop   func() bool // otherwise: ends the watch on it

	heading atomic.Bool           // the response's head is awaited
	reads   atomic.Uint64         // counts those that brought something
	why     atomic.Pointer[error] // why the lane gave the request up

	// The lane's, guarded by its mu.
	busy, used, retired bool
	since               time.Time // when it became idle
	seen                uint64    // reads at the last look
	still               int       // looks in a row that found no more
}

func newShortConn(s *short, tc *tls.Conn, w *wire) (*shortConn, error) {
	c := &shortConn{lane: s, tls: tc, raw: w.Conn, wire: w, since: time.Now()}
	if with, ok := w.Conn.(syscall.Conn); ok {
		var err error
		if c.sys, err = with.SyscallConn(); err != nil {
			return nil, err
		}
	}
	c.cutter = c.cut
	return c, nil
}

// Read is how the buffer, and a body past it, reads.
func (c *shortConn) Read(p []byte) (int, error) {
	n, err := c.tls.Read(p)
	if n > 0 {
		c.reads.Add(1)
	}
	if err != nil {
		if why := c.why.Load(); why != nil {
			err = *why
		}
	}
	return n, err
}

// giveUp ends the request with a reason of the lane's.
func (c *shortConn) giveUp(why error) {
	c.why.CompareAndSwap(nil, &why)
	_ = c.raw.Close() // whoever reads or writes hears of it
}

// cut ends the request because its caller left.
func (c *shortConn) cut() { _ = c.raw.Close() }

// alive reports whether a request may be sent. On a connection that carried one before nothing may be there to be read:
// an end of the stream, an alert, or an answer that nobody asked for and that would be taken for the next one's. A new
// one may hold the tickets of TLS, and is not asked while it is fresh.
func (c *shortConn) alive(now time.Time) bool {
	if !c.used && now.Sub(c.since) < parkedFor {
		return true
	}
	some, known := c.pending()
	return known && !some
}

// ready reports whether there is something to be read without waiting for it.
func (c *shortConn) ready() bool {
	if c.in.Buffered() > 0 || c.wire.rest() {
		return true
	}
	some, known := c.pending()
	return known && some
}

// pending reports whether bytes, or the end of them, lie in the socket.
func (c *shortConn) pending() (some, known bool) {
	if c.sys == nil {
		return false, false
	}
	return c.peek.pending(c.sys)
}

// errStale is a connection that ended before anything of an answer came: the other side closed it while the request was on
// its way, more likely than not.
var errStale = errors.New("the connection ended before an answer began")

// roundTrip sends r and reads the head of the answer. The connection goes back to the lane with the end of the body.
func (c *shortConn) roundTrip(r *http.Request) (*http.Response, error) {
	if err := c.writeHead(r); err != nil {
		c.lane.drop(c)
		return nil, err
	}
	ctx := r.Context()
	c.watch(ctx)
	c.in = readers.Get().(*bufio.Reader)
	c.in.Reset(c)
	c.heading.Store(true)
	resp, reuse, err := c.exchange(r)
	c.heading.Store(false)
	if err != nil {
		c.unwatch()
		c.giveBack(false)
		if why := c.why.Load(); why != nil {
			err = *why
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return nil, err
	}
	c.lane.answered()
	resp.body = shortBody{conn: c, reuse: reuse, response: &resp.Response}
	resp.body.begin()
	return &resp.Response, nil
}

// giveBack ends the request of the connection.
func (c *shortConn) giveBack(again bool) {
	again = again && c.in.Buffered() == 0 && !c.wire.rest()
	c.in.Reset(nil)
	readers.Put(c.in)
	c.in = nil
	if again {
		c.lane.put(c)
	} else {
		c.lane.drop(c)
	}
}

// exchange writes the request and reads a head that is not an interim one.
func (c *shortConn) exchange(r *http.Request) (*shortResponse, bool, error) {
	if _, err := c.tls.Write(c.head); err != nil {
		return nil, false, fmt.Errorf("%w: %w", errStale, err)
	}
	if _, err := c.in.Peek(1); err != nil {
		return nil, false, fmt.Errorf("%w: %w", errStale, err)
	}
	budget := c.lane.options.MaxHeaderBytes
	for range maxInterim {
		resp, reuse, err := c.readResponse(r, &budget)
		if err != nil || resp.StatusCode >= 200 {
			return resp, reuse, err
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return nil, false, fmt.Errorf("%w: it switched protocols, unasked", errMalformed)
		}
	}
	return nil, false, fmt.Errorf("%w: more than %d interim responses", errMalformed, maxInterim)
}

// maxInterim bounds the interim responses before the real one.
const maxInterim = 10

// writeHead makes the head of the request in c.head. Errors are about the request: nothing was sent.
func (c *shortConn) writeHead(r *http.Request) error {
	b := c.head[:0]
	b = append(b, r.Method...)
	b = append(b, ' ')
	from := len(b)
	if u := r.URL; u.Opaque != "" && u.Opaque[0] == '/' && (len(u.Opaque) < 2 || u.Opaque[1] != '/') {
		b = append(b, u.Opaque...)
		if u.ForceQuery || u.RawQuery != "" {
			b = append(b, '?')
			b = append(b, u.RawQuery...)
		}
	} else {
		b = append(b, u.RequestURI()...)
	}
	if !visible(b[from:]) {
		return fmt.Errorf("send request: %w", errUnsendable)
	}
	b = append(b, " HTTP/1.1\r\nHost: "...)
	if r.Host == "" || !visible([]byte(r.Host)) {
		return fmt.Errorf("send request: %w", errUnsendable)
	}
	b = append(b, r.Host...)
	b = append(b, "\r\n"...)
	for name, values := range r.Header {
		if framing[name] || name == "User-Agent" && (len(values) == 0 || values[0] == "") {
			continue // an empty agent is how the library is told to name none
		}
		if !isToken(name) {
			return fmt.Errorf("send header %s: %w", strconv.Quote(name), errUnsendable)
		}
		for _, v := range values {
			if !sendable(v) {
				return fmt.Errorf("send header %s: %w", name, errUnsendable)
			}
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, v...)
			b = append(b, "\r\n"...)
		}
	}
	c.head = append(b, "\r\n"...)
	return nil
}

var errUnsendable = errors.New("it has bytes that HTTP/1.1 cannot carry")

// framing are the headers that say where a message ends, which are not a caller's to set.
var framing = map[string]bool{
	"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true, "Connection": true, "Te": true,
	"Upgrade": true, "Expect": true,
}
