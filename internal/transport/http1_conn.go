package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpmsg"
)

// http1Conn is an HTTP/1.1 connection that the pool tracks until it is closed, by the library or by the pool.
//
// The library reads and writes through it. It validates responses as they come, and ends at the first malformed one;
// and it lets no request begin while there is anything that could be taken for its response. Unless validates is set it
// does neither, and only tracks the connection.
type http1Conn struct {
	*tls.Conn
	pool      *connPool
	validates bool
	since     time.Time
	once      sync.Once
	socket    *socketConn // nil: not known what is there

	request   messageParser // as it is written
	response  messageParser // as it is read
	responded bool          // there was a whole one before

	inFlight atomic.Uint32         // what kind of request is in flight, inFlightNone when there is none
	waiting  atomic.Bool           // it is a GET or HEAD, and nothing of its response has come
	readErr  atomic.Pointer[error] // what further reads return
}

// What a request asks for, as far as it matters for where its answer ends.
const (
	inFlightNone uint32 = iota
	inFlightRequest
	inFlightHead
	inFlightUpgrade
)

// errPreviousResponse and errConnClosed keep a request from a connection before anything of it was written: the library takes another.
var (
	errPreviousResponse = errors.New("the answer before is not over")
	errConnClosed       = errors.New("the connection is no longer used")
)

// Read implements net.Conn.
func (c *http1Conn) Read(p []byte) (int, error) {
	if !c.validates {
		return c.Conn.Read(p)
	}
	if end := c.readErr.Load(); end != nil {
		return 0, *end
	}
	n, err := c.Conn.Read(p)
	good, wrong := c.inspect(p[:n])
	if wrong != nil {
		n, err = good, wrong
	}
	if err != nil {
		c.endReads(err)
	}
	if why := c.readErr.Load(); why != nil && errors.Is(*why, ErrUnresponsive) {
		return 0, *why // it is being closed; what comes in this moment may be the response to that
	}
	return n, err
}

// inspect validates bytes that were read, and returns how many of them may be passed on when that is not all.
func (c *http1Conn) inspect(p []byte) (good int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	first := c.response.state == betweenMessages
	if first {
		if err := c.beginResponse(); err != nil {
			return 0, err
		}
	}
	n, good, done, err := c.response.feed(p)
	switch {
	case err != nil && good == 0 && first:
		// The library takes a connection on which nothing came for one that was closed while it was idle, and asks
		// again on another one: it must see a byte.
		return max(n, 1), err
	case err != nil:
		return good, err
	case !done:
		return 0, nil
	}
	c.response.state = betweenMessages
	c.responded = true
	c.inFlight.Store(inFlightNone)
	if n < len(p) {
		return n, io.EOF // what follows answers no request
	}
	return 0, nil
}

// beginResponse begins a response, if a request was sent.
func (c *http1Conn) beginResponse() error {
	c.waiting.Store(false)
	switch asked := c.inFlight.Load(); {
	case asked != inFlightNone:
		c.response.expectResponse(asked == inFlightHead, asked == inFlightUpgrade)
		return nil
	case c.responded:
		return io.EOF // as many servers say that they close an idle connection; whatever it was, it ends here
	}
	return errUnrequested
}

// Write implements net.Conn.
func (c *http1Conn) Write(p []byte) (int, error) {
	if !c.validates {
		return c.Conn.Write(p)
	}
	if c.request.state == betweenMessages {
		if err := c.waitReady(); err != nil {
			return 0, err
		}
		c.request.expectRequest()
		c.waiting.Store(bytes.HasPrefix(p, []byte("GET ")) || bytes.HasPrefix(p, []byte("HEAD ")))
	}
	naming := c.request.state == methodName
	_, _, done, err := c.request.feed(p)
	if err != nil {
		return 0, err // the library writes no such thing
	}
	switch asks := c.request.inFlight(); {
	case naming && c.request.state != methodName:
		c.inFlight.Store(asks)
	case asks == inFlightUpgrade:
		c.inFlight.CompareAndSwap(inFlightRequest, asks)
	}
	if done {
		c.request.state = betweenMessages
	}
	return c.Conn.Write(p)
}

// inFlight is what kind of request was written.
func (m *messageParser) inFlight() uint32 {
	switch {
	case m.noBody:
		return inFlightHead
	case m.upgrade:
		return inFlightUpgrade
	}
	return inFlightRequest
}

// checkResponse is why a response that the library returned must be refused.
func (p *connPool) checkResponse(r *http.Request, resp *http.Response) error {
	if ctx := r.Context(); ctx.Err() != nil {
		return context.Cause(ctx) // the server may have taken a request for whole that was cut off, and answered in the last moment
	}
	if p.dialer.checksHTTP1 {
		return nil
	}
	return checkLibraryResponse(r, resp)
}

// checkLibraryResponse finds what can be found wrong with a response that only the library has read.
func checkLibraryResponse(r *http.Request, resp *http.Response) error {
	switch {
	case resp.ProtoMajor != 1 || resp.ProtoMinor > 1:
		return errStatusLine
	case resp.StatusCode == http.StatusSwitchingProtocols && len(r.Header["Upgrade"]) == 0:
		return errSwitched
	case resp.StatusCode < 100 || resp.StatusCode > 999:
		return errStatusLine
	case !httpmsg.ValidFieldValue(resp.Status):
		return errControl
	}
	for name, values := range resp.Header {
		if !httpmsg.IsToken(name) {
			return errName
		}
		for _, v := range values {
			if !httpmsg.ValidFieldValue(v) {
				return errControl
			}
		}
	}
	return nil
}

// waitReady waits until a request may begin: until everything that was received before has been validated. On an error
// nothing of the request was written, and the library takes another connection, whatever the method.
func (c *http1Conn) waitReady() error {
	if end := c.readErr.Load(); end != nil {
		return c.closedError(*end)
	}
	if c.inFlight.Load() != inFlightNone {
		return errPreviousResponse
	}
	if c.socket == nil || c.socket.empty() {
		return nil
	}
	return c.waitSocketIdle()
}

// waitSocketIdle is waitReady when there may be unread bytes.
func (c *http1Conn) waitSocketIdle() error {
	timer := time.NewTimer(c.pool.options.TLSTimeout)
	defer timer.Stop()
	c.socket.waited.Store(true)
	defer c.socket.waited.Store(false)
	for {
		if end := c.readErr.Load(); end != nil {
			return c.closedError(*end)
		}
		if c.socket.empty() {
			return nil
		}
		select {
		case <-c.socket.wake:
		case <-timer.C:
			return errConnClosed
		}
	}
}

// closedError is why a connection whose reads have ended takes no request.
func (c *http1Conn) closedError(end error) error {
	var wrong malformedError
	if errors.As(end, &wrong) {
		return wrong
	}
	return errConnClosed
}

// endReads ends the reads of the connection, unless they have ended.
func (c *http1Conn) endReads(err error) {
	c.readErr.CompareAndSwap(nil, &err)
	if c.socket != nil {
		c.socket.notify()
	}
}

// Close implements net.Conn.
func (c *http1Conn) Close() error {
	c.endReads(net.ErrClosed)
	c.once.Do(func() {
		c.pool.mu.Lock()
		delete(c.pool.http1Conns, c)
		c.pool.mu.Unlock()
	})
	return c.Conn.Close()
}

// abandon closes the connection if a GET or HEAD waits on it for a response. Connections that are not validated do not
// know.
func (c *http1Conn) abandon(why error) {
	if c.waiting.Load() {
		c.endReads(why)
		_ = c.Close() // nobody reads from it any more
	}
}

// adopt makes tc a connection of the pool.
func (p *connPool) adopt(tc *tls.Conn, raw net.Conn) (*http1Conn, error) {
	if err := relaxUserTimeout(raw); err != nil {
		_ = tc.Close() // the first error is the one to tell
		return nil, &connectError{op: OpDial, err: err}
	}
	c := &http1Conn{Conn: tc, pool: p, validates: p.dialer.checksHTTP1, since: time.Now()}
	c.socket, _ = tc.NetConn().(*socketConn)
	p.mu.Lock()
	closed := p.draining
	if !closed {
		if p.http1Conns == nil {
			p.http1Conns = make(map[*http1Conn]struct{})
		}
		p.http1Conns[c] = struct{}{}
	}
	p.mu.Unlock()
	if closed {
		_ = c.Close() // it will not be used
		return nil, &connectError{op: OpDial, err: ErrClosed}
	}
	return c, nil
}
