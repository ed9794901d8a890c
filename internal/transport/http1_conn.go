package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/handler"
)

// plainConn is an HTTP/1.1 connection that the lane knows of until it is closed: by the library, or by us.
//
// The library reads and writes through it. It looks at answers as they come, and ends at the first that is none; and it
// lets no request begin while there is anything that could be taken for its answer. Unless scans is set it does neither, and
// only lets the lane know of the connection.
type plainConn struct {
	*tls.Conn
	lane  *lane
	scans bool
	since time.Time
	once  sync.Once
	below *intake // nil: not known what is there

	request  message // as it is written
	answer   message // as it is read
	answered bool    // there was a whole one before

	asked atomic.Uint32         // what the request in hand asked for, askedNothing when there is none
	end   atomic.Pointer[error] // what further reads return
}

// What a request asks for, as far as it matters for where its answer ends.
const (
	askedNothing uint32 = iota
	askedBody
	askedHead
	askedUpgrade
)

// errUnfinished and errGone keep a request from a connection before anything of it was written: the library takes another.
var (
	errUnfinished = errors.New("the answer before is not over")
	errGone       = errors.New("the connection is no longer used")
)

// Read implements net.Conn.
func (c *plainConn) Read(p []byte) (int, error) {
	if !c.scans {
		return c.Conn.Read(p)
	}
	if end := c.end.Load(); end != nil {
		return 0, *end
	}
	n, err := c.Conn.Read(p)
	good, wrong := c.look(p[:n])
	if wrong != nil {
		n, err = good, wrong
	}
	if err != nil {
		c.finish(err)
	}
	return n, err
}

// look looks at what came, and returns how much of it may be passed on when it is not all.
func (c *plainConn) look(p []byte) (good int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	first := c.answer.place == between
	if first {
		if err := c.expected(); err != nil {
			return 0, err
		}
	}
	n, good, done, err := c.answer.next(p)
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
	c.answer.place = between
	c.answered = true
	c.asked.Store(askedNothing)
	if n < len(p) {
		return n, io.EOF // what follows answers nothing, and nothing that follows it can be believed
	}
	return 0, nil
}

// expected begins an answer, if a request was made.
func (c *plainConn) expected() error {
	switch asked := c.asked.Load(); {
	case asked != askedNothing:
		c.answer.await(asked == askedHead, asked == askedUpgrade)
		return nil
	case c.answered:
		return io.EOF // as many servers say that they close an idle connection; whatever it was, it ends here
	}
	return errUnasked
}

// Write implements net.Conn.
func (c *plainConn) Write(p []byte) (int, error) {
	if !c.scans {
		return c.Conn.Write(p)
	}
	if c.request.place == between {
		if err := c.ready(); err != nil {
			return 0, err
		}
		c.request.write()
	}
	naming := c.request.place == methodName
	_, _, done, err := c.request.next(p)
	if err != nil {
		return 0, err // the library writes no such thing
	}
	switch asks := c.request.asks(); {
	case naming && c.request.place != methodName:
		c.asked.Store(asks)
	case asks == askedUpgrade:
		c.asked.CompareAndSwap(askedBody, asks)
	}
	if done {
		c.request.place = between
	}
	return c.Conn.Write(p)
}

// asks is what a request asks for.
func (m *message) asks() uint32 {
	switch {
	case m.bare:
		return askedHead
	case m.upgrade:
		return askedUpgrade
	}
	return askedBody
}

// unbelievable is why a response that the library returns is none.
func (l *lane) unbelievable(r *http.Request, resp *http.Response) error {
	if ctx := r.Context(); ctx.Err() != nil {
		return context.Cause(ctx) // the server may have taken a request for whole that was cut off, and answered in the last moment
	}
	if l.dialer.scans {
		return nil
	}
	return doubtful(r, resp)
}

// doubtful is what can be told to be wrong with a response that only the library has read.
func doubtful(r *http.Request, resp *http.Response) error {
	switch {
	case resp.ProtoMajor != 1 || resp.ProtoMinor > 1:
		return errStatusLine
	case resp.StatusCode == http.StatusSwitchingProtocols && len(r.Header["Upgrade"]) == 0:
		return errSwitched
	case resp.StatusCode < 100 || resp.StatusCode > 999:
		return errStatusLine
	case !handler.ValidFieldValue(resp.Status):
		return errControl
	}
	for name, values := range resp.Header {
		if !handler.IsToken(name) {
			return errName
		}
		for _, v := range values {
			if !handler.ValidFieldValue(v) {
				return errControl
			}
		}
	}
	return nil
}

// ready waits until a request may begin: until everything that was there before has been looked at. With an error nothing
// of the request was written, and the library takes another connection, whatever the method.
func (c *plainConn) ready() error {
	if end := c.end.Load(); end != nil {
		return c.gone(*end)
	}
	if c.asked.Load() != askedNothing {
		return errUnfinished
	}
	if c.below == nil || c.below.empty() {
		return nil
	}
	return c.settled()
}

// settled is ready when something may be there.
func (c *plainConn) settled() error {
	timer := time.NewTimer(c.lane.options.TLSTimeout)
	defer timer.Stop()
	c.below.awaited.Store(true)
	defer c.below.awaited.Store(false)
	for {
		if end := c.end.Load(); end != nil {
			return c.gone(*end)
		}
		if c.below.empty() {
			return nil
		}
		select {
		case <-c.below.turn:
		case <-timer.C:
			return errGone
		}
	}
}

// gone is why a connection that is at its end takes no request.
func (c *plainConn) gone(end error) error {
	var wrong answerError
	if errors.As(end, &wrong) {
		return wrong
	}
	return errGone
}

// finish ends the reads of the connection, unless they have ended.
func (c *plainConn) finish(err error) {
	c.end.CompareAndSwap(nil, &err)
	if c.below != nil {
		c.below.tell()
	}
}

// Close implements net.Conn.
func (c *plainConn) Close() error {
	c.finish(net.ErrClosed)
	c.once.Do(func() {
		c.lane.mu.Lock()
		delete(c.lane.plains, c)
		c.lane.mu.Unlock()
	})
	return c.Conn.Close()
}

// adopt makes tc a connection of the lane.
func (l *lane) adopt(tc *tls.Conn, raw net.Conn) (*plainConn, error) {
	if err := relaxUserTimeout(raw); err != nil {
		_ = tc.Close() // the first error is the one to tell
		return nil, &connectError{op: OpDial, err: err}
	}
	c := &plainConn{Conn: tc, lane: l, scans: l.dialer.scans, since: time.Now()}
	c.below, _ = tc.NetConn().(*intake)
	l.mu.Lock()
	closed := l.closed
	if !closed {
		if l.plains == nil {
			l.plains = make(map[*plainConn]struct{})
		}
		l.plains[c] = struct{}{}
	}
	l.mu.Unlock()
	if closed {
		_ = c.Close() // nobody will use it
		return nil, &connectError{op: OpDial, err: ErrClosed}
	}
	return c, nil
}
