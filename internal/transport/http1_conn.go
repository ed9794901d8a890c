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

	"portico.dev/internal/httpengine/httpmsg"
)

// http1Conn is an HTTP/1.1 connection that the pool tracks until it is closed by net/http or by the pool.
//
// net/http reads and writes through it. It validates received responses and ends at the first malformed one. It
// prevents a new request while there is unread data that could be mistaken for its response. If validates is not set,
// it only tracks the connection.
type http1Conn struct {
	*tls.Conn
	pool      *connPool
	validates bool
	start     time.Time
	once      sync.Once
	socket    *socketConn // nil if the raw socket is not available

	request   messageParser // fed with written data
	response  messageParser // fed with read data
	responded bool          // a complete response was received before

	inFlight atomic.Uint32         // kind of the request in flight
	waiting  atomic.Bool           // a GET or HEAD is in flight and no part of its response was received
	readErr  atomic.Pointer[error] // returned by further reads
}

// Kinds of requests that determine the end of the response.
const (
	inFlightNone uint32 = iota
	inFlightRequest
	inFlightHead
	inFlightUpgrade
)

// errPreviousResponse and errConnClosed refuse a request before any of it was written, so that net/http uses another
// connection.
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
		return 0, *why // being closed; received data may be a response to that
	}
	return n, err
}

// inspect validates received data. If not all of it may be passed on, it returns the usable length and an error.
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
		// net/http treats a connection without any received data as closed while idle, and repeats the request on
		// another connection. So it must receive at least one byte.
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
		return n, io.EOF // the remaining data is not the response of any request
	}
	return 0, nil
}

// beginResponse starts parsing a response, if a request was sent.
func (c *http1Conn) beginResponse() error {
	c.waiting.Store(false)
	switch asked := c.inFlight.Load(); {
	case asked != inFlightNone:
		c.response.expectResponse(asked == inFlightHead, asked == inFlightUpgrade)
		return nil
	case c.responded:
		return io.EOF // many servers announce the close of an idle connection this way; the connection ends in any case
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
		return 0, err // never written by net/http
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

// inFlight returns the kind of the written request.
func (m *messageParser) inFlight() uint32 {
	switch {
	case m.noBody:
		return inFlightHead
	case m.upgrade:
		return inFlightUpgrade
	}
	return inFlightRequest
}

// checkResponse returns an error if a response returned by net/http must be refused.
func (p *connPool) checkResponse(r *http.Request, resp *http.Response) error {
	if ctx := r.Context(); ctx.Err() != nil {
		return context.Cause(ctx) // the server may have mistaken a truncated request for a complete one and answered just now
	}
	if p.dialer.checksHTTP1 {
		return nil
	}
	return checkLibraryResponse(r, resp)
}

// checkLibraryResponse validates a response that only net/http has parsed, as far as possible.
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

// waitReady waits until all received data has been validated, so that a request may begin. On an error, nothing of
// the request was written and net/http uses another connection, regardless of the method.
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

// waitSocketIdle implements waitReady if there may be unread data.
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

// closedError returns why a connection cannot be used after its reads ended.
func (c *http1Conn) closedError(end error) error {
	var wrong malformedError
	if errors.As(end, &wrong) {
		return wrong
	}
	return errConnClosed
}

// endReads makes further reads return err, unless they have already ended.
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

// abandon closes the connection if a GET or HEAD waits for a response on it. It has no effect on connections that are
// not validated.
func (c *http1Conn) abandon(why error) {
	if c.waiting.Load() {
		c.endReads(why)
		_ = c.Close() // no longer read
	}
}

// adopt adds tc to the connections of the pool.
func (p *connPool) adopt(tc *tls.Conn, raw net.Conn) (*http1Conn, error) {
	if err := relaxUserTimeout(raw); err != nil {
		_ = tc.Close() // the first error is more relevant
		return nil, &connectError{op: OpDial, err: err}
	}
	c := &http1Conn{Conn: tc, pool: p, validates: p.dialer.checksHTTP1, start: time.Now()}
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
		_ = c.Close() // not used
		return nil, &connectError{op: OpDial, err: ErrClosed}
	}
	return c, nil
}
