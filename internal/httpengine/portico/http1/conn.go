package http1

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpengine/httpmsg"
)

var errShuttingDown = errors.New("the server is leaving")

// States of a connection.
const (
	fresh       = iota // waits for its first request
	idle               // waits for another request
	readingHead        // has read the beginning of a header
	handling           // handles a request
	closingIdle        // will be closed, because it was idle
)

// conn is a client's connection. One goroutine serves it, in run.
type conn struct {
	server   *Server
	net      net.Conn
	raw      net.Conn // below TLS
	batch    httpmsg.BatchWriter
	tls      *tls.ConnectionState
	remote   string
	info     httpmsg.ConnInfo
	onHijack func() // called when the connection is hijacked
	stage    atomic.Int32
	memory   memoryUse

	// The reader is used by run. While a handler runs it is used by the body, and after the body by readForDisconnect.
	in       reader
	lineEnds []int32 // of the current header
	large    httpmsg.ConnHeaders

	mu           sync.Mutex // guards the fields below
	readDeadline time.Time  // zero if there is none
	readStopped  bool       // reads fail, and readDeadline has passed
	hijacked     bool
}

func newConn(s *Server, nc, raw net.Conn, state *tls.ConnectionState, hijacked func()) *conn {
	c := &conn{
		server: s, net: nc, raw: raw, tls: state, remote: nc.RemoteAddr().String(), onHijack: hijacked,
		info:  httpmsg.ConnInfo{LocalAddr: nc.LocalAddr(), Server: s.c.BaseServer},
		in:    reader{from: nc, buf: make([]byte, readBufferSize)},
		large: httpmsg.NewConnHeaders(s.c.LargeHeaders, state, nc.RemoteAddr()),
	}
	c.batch, _ = raw.(httpmsg.BatchWriter)
	c.memory.idleSince.Store(time.Now().UnixNano())
	return c
}

func (c *conn) logPanic(p any) {
	stack := make([]byte, 64<<10)
	stack = stack[:runtime.Stack(stack, false)]
	c.server.logf("http: panic serving %v: %v\n%s", c.remote, p, stack)
}

// closeNow closes the connection without TLS's closing message.
func (c *conn) closeNow() { _ = c.raw.Close() }

// closeIdle closes the connection soon if it is idle, waits for its first request, or its header is incomplete. It does not
// wait, because closing may take long if a client does not read.
func (c *conn) closeIdle() {
	if c.stage.CompareAndSwap(idle, closingIdle) {
		c.stopReading()
	} else if stage := c.stage.Load(); stage == readingHead || stage == fresh {
		c.setReadDeadline(time.Now().Add(lingerIdle))
	}
}

func (c *conn) run() {
	c.setReadDeadline(time.Now().Add(c.server.c.HeaderTimeout))
	for again := true; again; {
		again = c.serveRequest()
	}
}

// serveRequest serves a request, and reports whether another one may follow.
func (c *conn) serveRequest() bool {
	head, err := c.readHead()
	if err != nil {
		c.refuse(err)
		return false
	}
	if c.shouldRefuse() {
		c.refuse(errLowMemory)
		return false
	}
	c.memory.header.Store(int64(len(head)))
	c.memory.handler.Store(0)
	x := &exchange{conn: c}
	if err := x.parse(head, c.lineEnds); err != nil {
		c.refuse(err)
		return false
	}
	fields := len(c.lineEnds)
	c.releaseBuffers()
	if !c.large.Large() {
		return x.serve()
	}
	return c.serveLarge(x, httpmsg.HeaderMemory(len(head), fields))
}

// serveLarge serves a request with a large header, which uses n bytes.
func (c *conn) serveLarge(x *exchange, n int64) bool {
	c.memory.header.Store(n)
	c.memory.grant = c.large.Detach()
	again := x.serve()
	c.memory.grant.Release()
	c.memory.grant = nil
	return again
}

// releaseBuffers releases memory that only a large header needs.
func (c *conn) releaseBuffers() {
	c.in.shrink()
	if cap(c.lineEnds) > keptLineEnds {
		c.lineEnds = nil
	}
}

// close closes the connection, unless it was hijacked.
func (c *conn) close() {
	c.large.Detach().Release()
	c.memory.grant.Release()
	c.mu.Lock()
	hijacked := c.hijacked
	c.mu.Unlock()
	if !hijacked {
		_ = c.net.Close()
	}
	c.server.remove(c)
}

// waitForRequest waits for the first bytes of a request.
func (c *conn) waitForRequest() error {
	if len(c.in.unused()) > 0 {
		return nil
	}
	waits := c.stage.Load()
	if waits != fresh {
		waits = idle
		c.stage.Store(idle)
	}
	if c.server.shuttingDown.Load() { // closeIdle may have been called before
		if waits == idle {
			return errShuttingDown
		}
		c.setReadDeadline(time.Now().Add(lingerIdle))
	}
	err := c.in.fill()
	if !c.stage.CompareAndSwap(waits, readingHead) {
		return errShuttingDown
	}
	return err
}

// setIdleDeadline sets the deadline of an idle connection. It keeps a deadline that is nearly as far away, because setting
// one takes time.
func (c *conn) setIdleDeadline() {
	now := time.Now()
	limit := c.server.c.IdleTimeout
	c.memory.idleSince.Store(now.UnixNano())
	c.mu.Lock()
	left := c.readDeadline.Sub(now)
	good := !c.readDeadline.IsZero() && left <= limit && left >= limit-limit/8
	c.mu.Unlock()
	if !good {
		c.setReadDeadline(now.Add(limit))
	}
}

// setReadDeadline sets the read deadline; zero means none. It returns false if reads are stopped.
func (c *conn) setReadDeadline(at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readStopped || c.hijacked {
		return false
	}
	c.setDeadlineLocked(at)
	return true
}

// pastDeadline makes reads fail immediately.
var pastDeadline = time.Unix(1, 0)

// stopReading makes reads fail until resumeReading. It does not affect hijacked connections.
func (c *conn) stopReading() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hijacked {
		return
	}
	c.readStopped, c.readDeadline = true, pastDeadline
	_ = c.net.SetReadDeadline(pastDeadline)
}

func (c *conn) resumeReading() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readStopped = false
}

// A connection that is closed with unread bytes is reset. A client that sends its whole request before it reads, as most
// clients do, would then fail in the middle of its upload and miss the response with the reason. Data that still arrives is
// therefore read and dropped.
const (
	// lingerIdle is the time without bytes after which the client is assumed to have sent everything, or to have
	// disconnected.
	lingerIdle = time.Second
	// lingerTimeout and lingerBytes limit the total: enough for an upload of etcd's largest object over a slow line, and no
	// more than some tens of milliseconds of decryption.
	lingerTimeout = 10 * time.Second
	lingerBytes   = 64 << 20
)

// lingeringClose ends the connection so that the client can read the last response. During a Shutdown the client has only
// another lingerIdle; Close ends the wait.
func (c *conn) lingeringClose() {
	if half, ok := c.net.(interface{ CloseWrite() error }); ok && half.CloseWrite() != nil {
		return
	}
	hurried := false
	last := time.Now().Add(lingerTimeout)
	for heard := 0; heard < lingerBytes; {
		n := len(c.in.unused())
		heard += n
		c.in.consume(n)
		until := time.Now().Add(lingerIdle)
		if c.server.shuttingDown.Load() && !hurried {
			hurried, last = true, until
		}
		if until.After(last) {
			until = last
		}
		c.setReadDeadline(until)
		if c.in.fill() != nil {
			return
		}
	}
}

// refusal is the response to a request that does not reach the handler. It ends the connection.
type refusal struct {
	code   int
	reason string
}

func (r *refusal) Error() string { return r.reason }

func malformed(why string) error { return &refusal{http.StatusBadRequest, why} }

// ruleRefusal returns the refusal of a request that violates a rule of httpmsg.
func ruleRefusal(err error) error {
	var rule *httpmsg.RequestError
	if errors.As(err, &rule) {
		return &refusal{rule.Status(), rule.Reason}
	}
	return malformed(err.Error())
}

// refuse answers a request that was not accepted, and lets the client read the response. For errors other than refusals
// there is no response: the client is gone, or was too slow.
func (c *conn) refuse(err error) {
	var r *refusal
	if !errors.As(err, &r) {
		return
	}
	b := httpmsg.AppendStatus(make([]byte, 0, 512), r.code, r.reason)
	answer := appendStatusLine(make([]byte, 0, 1024), true, r.code)
	answer = append(append(answer, "Date: "...), c.server.clock.Date()...)
	if r.code == http.StatusServiceUnavailable {
		answer = append(answer, "\r\nRetry-After: 1"...)
	}
	answer = append(answer, "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "...)
	answer = append(strconv.AppendInt(answer, int64(len(b)), 10), "\r\n\r\n"...)
	if _, err := c.net.Write(append(answer, b...)); err == nil {
		c.lingeringClose()
	}
}
