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

	"portico.dev/internal/httpmsg"
)

var errShuttingDown = errors.New("the server is leaving")

// The stages of a connection.
const (
	idle        = iota // it waits for a request
	readingHead        // the head of one has begun
	handling           // and is there
	closingIdle        // it is to be closed, since it was idle
)

// conn is a connection of a client. One goroutine has it, in run.
type conn struct {
	server   *Server
	net      net.Conn
	raw      net.Conn // below TLS
	batch    httpmsg.BatchWriter
	tls      *tls.ConnectionState
	remote   string
	info     httpmsg.ConnInfo
	onHijack func() // that the connection is hijacked
	stage    atomic.Int32
	memory   memoryUse

	// in and ends are run's, but for while a handler runs: then in is the body's, and when that is read, the listener's.
	in       reader
	lineEnds []int32 // of the lines of the head in hand

	mu           sync.Mutex // guards what follows
	readDeadline time.Time  // until when reading may take; zero: for ever
	readStopped  bool       // nothing may be read, and due is over
	hijacked     bool
}

func newConn(s *Server, nc, raw net.Conn, state *tls.ConnectionState, hijacked func()) *conn {
	c := &conn{
		server: s, net: nc, raw: raw, tls: state, remote: nc.RemoteAddr().String(), onHijack: hijacked,
		info: httpmsg.ConnInfo{LocalAddr: nc.LocalAddr(), Server: s.c.BaseServer},
		in:   reader{from: nc, buf: make([]byte, readBufferSize)},
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

// closeNow ends the connection at once.
func (c *conn) closeNow() { _ = c.raw.Close() }

// closeIdle has the connection close if it waits for a request, or soon if it waits for the rest of a head. It does not wait
// for that: a client that takes nothing makes closing last.
func (c *conn) closeIdle() {
	if c.stage.CompareAndSwap(idle, closingIdle) {
		c.stopReading()
	} else if c.stage.Load() == readingHead {
		c.setReadDeadline(time.Now().Add(lingerIdle))
	}
}

func (c *conn) run() {
	c.setReadDeadline(time.Now().Add(c.server.c.HeaderTimeout))
	for again := true; again; {
		again = c.serveRequest()
	}
}

// serveRequest serves a request, and reports whether there may be another one.
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
	c.releaseBuffers()
	return x.serve()
}

// releaseBuffers gives back what only a large head needs.
func (c *conn) releaseBuffers() {
	c.in.shrink()
	if cap(c.lineEnds) > keptLineEnds {
		c.lineEnds = nil
	}
}

// close ends the connection for good, unless somebody else has it now.
func (c *conn) close() {
	c.mu.Lock()
	hijacked := c.hijacked
	c.mu.Unlock()
	if !hijacked {
		_ = c.net.Close()
	}
	c.server.remove(c)
}

// waitForRequest waits until something is there to read: the beginning of a request.
func (c *conn) waitForRequest() error {
	if len(c.in.unused()) > 0 {
		return nil
	}
	c.stage.Store(idle)
	if c.server.shuttingDown.Load() { // closeIdle may have come too early
		return errShuttingDown
	}
	err := c.in.fill()
	if !c.stage.CompareAndSwap(idle, readingHead) {
		return errShuttingDown
	}
	return err
}

// setIdleDeadline sets the deadline of a connection that waits. The one in force is good enough while it is nearly as far away.
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

// setReadDeadline has reading fail from then on; zero is never. It reports false when nothing may be read at all.
func (c *conn) setReadDeadline(at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readStopped || c.hijacked {
		return false
	}
	c.setDeadlineLocked(at)
	return true
}

// pastDeadline is a deadline that has passed.
var pastDeadline = time.Unix(1, 0)

// stopReading has whoever reads stop, and nobody begin, until resumeReading. A connection that was hijacked is left alone.
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

// To close with something unread resets the connection: a client that sends all before it reads, as most do, would have an
// error in the middle of its upload instead of the answer that says why nobody wants it. So what still comes is read and
// dropped.
const (
	// lingerIdle is when a client is taken to have said all, or to have gone.
	lingerIdle = time.Second
	// lingerTimeout and partingBytes are what is spent on it: an upload of etcd's largest object over a slow line, and no
	// more than a few tens of milliseconds of decrypting.
	lingerTimeout = 10 * time.Second
	lingerBytes   = 64 << 20
)

// lingeringClose ends the connection so that the client can read the last answer. Shutdown leaves it one more silence's time, Close
// none.
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

// refusal is a request that no handler sees. The connection ends with it.
type refusal struct {
	code int
	why  string
}

func (r *refusal) Error() string { return r.why }

func malformed(why string) error { return &refusal{http.StatusBadRequest, why} }

// ruleRefusal is the refusal of what is against a rule for both versions of HTTP.
func ruleRefusal(err error) error {
	var rule *httpmsg.RequestError
	if errors.As(err, &rule) {
		return &refusal{rule.Status(), rule.Reason}
	}
	return malformed(err.Error())
}

// statusReasons are those of metav1.Status.
var statusReasons = map[int]string{http.StatusBadRequest: "BadRequest", http.StatusServiceUnavailable: "ServiceUnavailable"}

// refuse answers a request whose head is no good, and has the client read the answer. Of other errors it says nothing: the
// client is gone, or was too slow.
func (c *conn) refuse(err error) {
	var r *refusal
	if !errors.As(err, &r) {
		return
	}
	b := make([]byte, 0, 512)
	b = append(b, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":`...)
	b = strconv.AppendQuote(b, r.why)
	if reason := statusReasons[r.code]; reason != "" {
		b = append(append(append(b, `,"reason":"`...), reason...), '"')
	}
	if r.code == http.StatusServiceUnavailable {
		b = append(b, `,"details":{"retryAfterSeconds":1}`...)
	}
	b = append(strconv.AppendInt(append(b, `,"code":`...), int64(r.code), 10), '}')
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
