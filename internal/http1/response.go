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

	"portico.dev/internal/httpmsg"
)

// errHandlerReturned is what a handler meets that goes on after it has returned.
var errHandlerReturned = errors.New("the handler has returned")

// response is the http.ResponseWriter of a request.
type response struct {
	x         *exchange
	head      bool // the request is HEAD
	http10    bool // it is of HTTP/1.0
	keepAlive bool // and wants the connection to be kept
	header    http.Header
	// headerWritten is set when the answer has begun: whoever still waits for 100 (Continue) waits in vain.
	headerWritten atomic.Bool
	bytesWritten  atomic.Int64 // bytes that were written to the connection

	mu       sync.Mutex  // guards what follows: handlers may write on several goroutines, and even too late
	buffers  *outBuffers // what is not sent yet; nil: nothing
	status   int         // 0: WriteHeader was not called
	sent     bool        // the head is sent
	returned bool        // the handler has returned
	hijacked bool
	err      error // what went wrong with writing

	declared         int64 // Content-Length; -1: none
	noLength         bool  // the handler wants none
	wrote            int64
	headerNames      int      // in the header, when the head was made
	coding           string   // Transfer-Encoding, as the handler has it
	connectionHeader []string // Connection, as the handler has it
	hasDate          bool     // the handler said when
	hasType          bool     // and what, or encodes it
	hasTrailers      bool     // and that trailers follow
	chunked          bool     // so is the body
	closing          bool     // the connection ends with the answer
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
		panic(fmt.Sprintf("invalid WriteHeader code %v", code)) // as net/http
	}
	if code < 200 && code != http.StatusSwitchingProtocols {
		w.writeInformational(code)
		return
	}
	w.headerWritten.Store(true)
	w.status = code
	w.snapshot()
}

// writeInformational sends what comes before the answer. HTTP/1.0 has no such thing.
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
			continue // they are about the answer, or the connection
		}
		b = appendFields(b, name, values)
	}
	w.writeRecords(append(b, "\r\n"...), nil, nil) // the next write finds it
}

// sendContinue tells a client that it may send the body, unless it is being answered.
func (w *response) sendContinue() {
	if w.headerWritten.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.x.body.expects.Load() && w.status == 0 && !w.returned && !w.hijacked {
		w.x.body.expects.Store(false)
		w.writeRecords([]byte("HTTP/1.1 100 Continue\r\n\r\n"), nil, nil) // the next write finds it
	}
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError is for http.ResponseController.
func (w *response) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.ensureHeader(); err != nil {
		return err
	}
	return w.flush(nil, false)
}

// ensureHeader has the answer begin, unless it has, or is not the handler's any more.
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

// finish sends what is left of the answer. left is how much is left of the request's body. It reports whether the
// connection can have another request.
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
	w.closing = w.closing || left > maxDrain || left < 0 && !w.sent // how much it is nobody knows: say so while there is time
	_ = w.flush(nil, true)                                          // err has it
	short := w.declared >= 0 && w.wrote != w.declared && !w.head && httpmsg.BodyAllowed(w.status)
	return w.err == nil && !w.closing && !short && w.status != http.StatusSwitchingProtocols, false
}

// canClose reports whether the answer can still say that it is the last.
func (w *response) canClose() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.sent && !w.hijacked && !w.closing && !w.x.body.expects.Load()
}

// abandon drops what is not sent, after a panic. It reports whether the connection is somebody else's.
func (w *response) abandon() (hijacked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.returned = true
	w.releaseBuffers()
	return w.hijacked
}

// What a handler writes is kept while it is little: the whole of a small answer is sent with its head.
const bufferedBytes = 4 << 10

// outBuffers is for what is not sent yet. A response has one only while there is something in it: watches are many, and wait.
type outBuffers struct {
	out  []byte // the head, and what goes out next
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

// flush sends what is not sent yet, and p. end is whether the handler has returned.
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

// writeRecords sends three pieces as one, in records that are full. first may be written over: it is returned, with its room.
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
		n = min(n, 4*most) // so that Taken follows
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

// fail notes that the client cannot be written to any more.
func (w *response) fail(err error) {
	if err != nil && w.err == nil {
		w.err = err
		w.x.ctx.End()
	}
}

// SetReadDeadline is for http.ResponseController: from then on nothing of the body comes any more.
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

// SetWriteDeadline is for http.ResponseController: a write that waits then fails, and the connection is lost.
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

// BytesWritten is how many bytes the client, or the kernel on its behalf, has taken.
func (w *response) BytesWritten() int64 { return w.bytesWritten.Load() }

// EnableFullDuplex is for http.ResponseController: an answer may always be written while the body comes.
func (w *response) EnableFullDuplex() error { return nil }

// CloseNotify implements http.CloseNotifier.
func (w *response) CloseNotify() <-chan bool {
	told := make(chan bool, 1)
	w.x.ctx.AfterFunc(func() { told <- true })
	return told
}

// Hijack implements http.Hijacker. What was read and not used is in the reader.
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
		if _, err := in.Peek(len(rest)); err != nil { // so that it is seen to be there
			return nil, nil, err
		}
	}
	c.server.remove(c)
	if c.onHijack != nil {
		c.onHijack()
	}
	return c.net, bufio.NewReadWriter(in, bufio.NewWriter(c.net)), nil
}

// prefixConn reads what was read already, and then the connection.
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
