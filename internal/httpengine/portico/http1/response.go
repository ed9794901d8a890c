package http1

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpengine/httpmsg"
)

// errHandlerReturned is returned to handlers that write after they returned.
var errHandlerReturned = errors.New("the handler has returned")

// response is the http.ResponseWriter of a request.
type response struct {
	x         *exchange
	head      bool // the request is HEAD
	http10    bool // the request is HTTP/1.0
	keepAlive bool // the request is HTTP/1.0 with keep-alive
	header    http.Header
	// headerWritten is set when the response has begun. No 100 (Continue) can follow.
	headerWritten atomic.Bool
	bytesWritten  atomic.Int64 // to the connection

	mu       sync.Mutex  // guards the fields below: handlers may write from several goroutines, and even too late
	buffers  *outBuffers // nil if no data is buffered
	status   int         // 0 before WriteHeader
	sent     bool        // the header was sent
	returned bool        // the handler has returned
	hijacked bool
	err      error // the first error of a write

	declared         int64 // Content-Length, or -1
	noLength         bool  // the handler set an empty Content-Length
	wrote            int64
	headerNames      int      // number of names in the header when it was written
	coding           string   // Transfer-Encoding, as set by the handler
	connectionHeader []string // Connection, as set by the handler
	hasDate          bool     // the handler set Date
	hasType          bool     // the handler set Content-Type or Content-Encoding
	hasTrailers      bool     // the handler declared trailers
	chunked          bool     // the body is chunked
	closing          bool     // the connection ends after the response
	trailers         []string
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(code int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(code)
}

func (w *response) writeHeader(code int) {
	if w.status != 0 || w.returned || w.hijacked {
		return
	}
	if code < 100 || code > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", code)) // like net/http
	}
	if code < 200 && code != http.StatusSwitchingProtocols {
		w.writeInformational(code)
		return
	}
	w.headerWritten.Store(true)
	w.status = code
	w.snapshot()
}

// writeInformational sends a 1xx response. HTTP/1.0 does not support it.
func (w *response) writeInformational(code int) {
	if code == http.StatusContinue {
		w.x.body.expects.Store(false)
	}
	if w.http10 {
		return
	}
	b := appendStatusLine(make([]byte, 0, 512), true, code)
	for name, values := range w.header {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Proxy-Connection", "Upgrade", "Trailer":
			continue // they concern the final response, or the connection
		}
		b = appendFields(b, name, values)
	}
	w.writeRecords(append(b, "\r\n"...), nil, nil) // the next write returns the error
}

// sendContinue sends 100 (Continue), unless the response has begun.
func (w *response) sendContinue() {
	if w.headerWritten.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.x.body.expects.Load() && w.status == 0 && !w.returned && !w.hijacked {
		w.x.body.expects.Store(false)
		w.writeRecords([]byte("HTTP/1.1 100 Continue\r\n\r\n"), nil, nil) // the next write returns the error
	}
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError implements http.ResponseController's flush.
func (w *response) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.ensureHeader(); err != nil {
		return err
	}
	return w.flush(nil, false)
}

// ensureHeader writes the header with status 200 if the handler has not written one.
func (w *response) ensureHeader() error {
	switch {
	case w.hijacked:
		return http.ErrHijacked
	case w.returned:
		return errHandlerReturned
	case w.status == 0:
		w.writeHeader(http.StatusOK)
	}
	return nil
}

// finish sends the rest of the response. left is the remaining length of the request's body. It reports whether another
// request can follow.
func (w *response) finish(left int64) (again, hijacked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hijacked {
		w.returned = true
		return false, true
	}
	if w.status == 0 {
		w.writeHeader(http.StatusOK)
	}
	w.returned = true
	w.closing = w.closing || left > maxDrain || left < 0 && !w.sent // unknown length: announce the close in the header
	_ = w.flush(nil, true)                                          // the error is in w.err
	short := w.declared >= 0 && w.wrote != w.declared && !w.head && httpmsg.BodyAllowed(w.status)
	return w.err == nil && !w.closing && !short && w.status != http.StatusSwitchingProtocols, false
}

// canClose reports whether the response can still announce that it is the last one.
func (w *response) canClose() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.sent && !w.hijacked && !w.closing && !w.x.body.expects.Load()
}

// abandon drops the buffered data after a panic. It reports whether the connection was hijacked.
func (w *response) abandon() (hijacked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.returned = true
	w.releaseBuffers()
	return w.hijacked
}

// Writes of a handler are buffered up to bufferedBytes, so that a small response is sent together with its header.
const bufferedBytes = 4 << 10

// outBuffers are a response's buffers. A response only has them while they contain data, because there may be many waiting
// watches.
type outBuffers struct {
	out  []byte // the header, and the data that is sent next
	body []byte
}

var outBufferPool = sync.Pool{New: func() any { return &outBuffers{body: make([]byte, 0, bufferedBytes)} }}

func (w *response) getBuffers() *outBuffers {
	if w.buffers == nil {
		w.buffers = outBufferPool.Get().(*outBuffers)
	}
	return w.buffers
}

func (w *response) releaseBuffers() {
	r := w.buffers
	if r == nil {
		return
	}
	w.buffers = nil
	r.out, r.body = r.out[:0], r.body[:0]
	if cap(r.out) > 2*httpmsg.MaxTLSRecord {
		r.out = nil
	}
	outBufferPool.Put(r)
}

// Write implements http.ResponseWriter.
func (w *response) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.checkWrite(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	if r := w.getBuffers(); len(r.body)+len(p) <= bufferedBytes {
		r.body = append(r.body, p...)
		return len(p), nil
	}
	if err := w.flush(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteString implements io.StringWriter.
func (w *response) WriteString(s string) (int, error) {
	if len(s) > bufferedBytes {
		return w.Write([]byte(s))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.checkWrite(len(s)); err != nil || s == "" {
		return 0, err
	}
	if r := w.getBuffers(); len(r.body)+len(s) > bufferedBytes {
		if err := w.flush(nil, false); err != nil {
			return 0, err
		}
	}
	r := w.getBuffers()
	r.body = append(r.body, s...)
	return len(s), nil
}

func (w *response) checkWrite(n int) error {
	if err := w.ensureHeader(); err != nil || n == 0 {
		return err
	}
	if !httpmsg.BodyAllowed(w.status) {
		return http.ErrBodyNotAllowed
	}
	w.wrote += int64(n)
	if w.declared >= 0 && w.wrote > w.declared {
		return http.ErrContentLength
	}
	return w.err
}

// flush sends the buffered data, and p. end is set when the handler has returned.
func (w *response) flush(p []byte, end bool) error {
	defer w.releaseBuffers()
	r := w.getBuffers()
	if !w.sent {
		w.sent = true
		all := r.body
		if len(all) == 0 {
			all = p
		}
		r.out = w.finishHeader(r.out, all, end)
	}
	kept := r.body
	if w.head {
		kept, p = nil, nil
	}
	var after []byte
	var few [8]byte
	if n := len(kept) + len(p); w.chunked && n > 0 {
		r.out = append(strconv.AppendInt(r.out, int64(n), 16), "\r\n"...)
		after = append(few[:0], "\r\n"...)
	}
	r.out = append(r.out, kept...)
	if end && w.chunked {
		after = w.appendTrailers(after)
	}
	r.out = w.writeRecords(r.out, p, after)
	return w.err
}

// writeRecords sends three pieces as one, in full TLS records. It may overwrite first, which it returns with its capacity.
func (w *response) writeRecords(first, p, last []byte) []byte {
	size := len(first) + len(p) + len(last)
	if w.err != nil || size == 0 {
		return first[:0]
	}
	const most = httpmsg.MaxTLSRecord
	if size <= most {
		first = append(append(first, p...), last...)
		w.send(first)
		return first[:0]
	}
	below := w.x.conn.batch
	if below != nil {
		below.BeginBatch()
	}
	if n := min(most-len(first), len(p)); n > 0 {
		first, p = append(first, p[:n]...), p[n:]
	}
	w.send(first)
	for n := len(p) - len(p)%most; n > 0; n = len(p) - len(p)%most {
		n = min(n, 4*most) // so that BytesWritten follows
		w.send(p[:n])
		p = p[n:]
	}
	if first = append(append(first[:0], p...), last...); len(first) > 0 {
		w.send(first)
	}
	if below != nil {
		w.fail(below.EndBatch())
	}
	return first[:0]
}

func (w *response) send(p []byte) {
	if w.err == nil {
		n, err := w.x.conn.net.Write(p)
		w.bytesWritten.Add(int64(n))
		w.fail(err)
	}
}

// fail records that writes to the client fail.
func (w *response) fail(err error) {
	if err != nil && w.err == nil {
		w.err = err
		w.x.ctx.End()
	}
}

// SetReadDeadline is for http.ResponseController. Reads of the body fail after the deadline.
func (w *response) SetReadDeadline(at time.Time) error {
	c := w.x.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.x.returned {
		return errHandlerReturned
	}
	c.setBodyDeadlineLocked(w.x, at)
	return nil
}

// SetWriteDeadline is for http.ResponseController. A write fails after the deadline, and the connection is closed.
func (w *response) SetWriteDeadline(at time.Time) error {
	c := w.x.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.x.returned {
		return errHandlerReturned
	}
	w.x.writeDeadlineSet = true
	return c.net.SetWriteDeadline(at)
}

// BytesWritten returns the number of bytes that the client, or the kernel, has accepted.
func (w *response) BytesWritten() int64 { return w.bytesWritten.Load() }

// LongRunning does nothing: responses over HTTP/1.1 have no stall timeout.
func (w *response) LongRunning() {}

// Continue is not supported: the goroutine of the connection runs the handler.
func (w *response) Continue(func()) bool { return false }

// EnableFullDuplex is for http.ResponseController. Responses may always be written before the body was read.
func (w *response) EnableFullDuplex() error { return nil }

// CloseNotify implements http.CloseNotifier.
func (w *response) CloseNotify() <-chan bool {
	told := make(chan bool, 1)
	w.x.ctx.AfterFunc(func() { told <- true })
	return told
}

// Hijack implements http.Hijacker. The returned reader contains the data that was read from the connection and not used.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x, c := w.x, w.x.conn
	switch {
	case w.hijacked:
		return nil, nil, http.ErrHijacked
	case w.returned:
		return nil, nil, errHandlerReturned
	}
	if w.status != 0 {
		if err := w.flush(nil, false); err != nil {
			return nil, nil, err
		}
	}
	w.hijacked = true
	x.body.detach()
	x.stopWatching()
	c.mu.Lock()
	c.hijacked, x.bodyReading = true, false
	c.mu.Unlock()
	if err := c.net.SetDeadline(time.Time{}); err != nil {
		return nil, nil, err
	}
	rest := append([]byte(nil), c.in.unused()...)
	c.in = reader{}
	in := bufio.NewReaderSize(&prefixConn{c.net, rest}, max(readBufferSize, len(rest)))
	if len(rest) > 0 {
		if _, err := in.Peek(len(rest)); err != nil { // so that Buffered reports it
			return nil, nil, err
		}
	}
	c.server.remove(c)
	if c.onHijack != nil {
		c.onHijack()
	}
	return c.net, bufio.NewReadWriter(in, bufio.NewWriter(c.net)), nil
}

// prefixConn reads the prefix, and then the connection.
type prefixConn struct {
	net.Conn
	prefix []byte
}

// Read implements io.Reader.
func (f *prefixConn) Read(p []byte) (int, error) {
	if len(f.prefix) == 0 {
		return f.Conn.Read(p)
	}
	n := copy(p, f.prefix)
	if f.prefix = f.prefix[n:]; len(f.prefix) == 0 {
		f.prefix = nil
	}
	return n, nil
}

var (
	_ http.Hijacker = (*response)(nil)
	_ http.Flusher  = (*response)(nil)
)
