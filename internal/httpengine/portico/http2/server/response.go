package server

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"portico.dev/internal/httpengine/httpmsg"
	"portico.dev/internal/httpengine/portico/http2/frame"
)

// errHandlerReturned is returned to handlers that write after they returned.
var errHandlerReturned = errors.New("the handler has returned")

// response is the http.ResponseWriter of a stream.
type response struct {
	st     *stream
	head   bool // the request is HEAD
	header http.Header
	rest   func() // passed to Continue, or nil

	mu     sync.Mutex      // guards the fields below: handlers may write from several goroutines, and even too late
	worker *worker         // owns fields; nil if the handler has returned
	buffer *[]byte         // nil if no data is buffered
	fields []responseField // the header at the time of WriteHeader
	status int             // 0 before WriteHeader
	sent   bool            // the header was sent
	ended  bool            // END_STREAM was sent

	declared     int64 // Content-Length, or -1
	wrote        int64
	length       string // Content-Length as sent
	detectedType string // Content-Type, detected from the body
	noLength     bool   // the handler set an empty Content-Length
	hasDate      bool   // the handler set Date
	hasType      bool   // the handler set Content-Type or Content-Encoding
	closeConn    bool   // the handler set Connection: close
	trailers     []string
}

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

func (w *response) stream() *stream { return w.st }

// WriteHeader implements http.ResponseWriter.
func (w *response) WriteHeader(code int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeHeader(code)
}

func (w *response) writeHeader(code int) {
	if w.status != 0 || w.worker == nil {
		return
	}
	if code < 100 || code > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", code)) // like net/http
	}
	switch {
	case code == http.StatusSwitchingProtocols: // HTTP/2 does not support it (RFC 9113, section 8.6)
	case code < 200:
		_ = w.frames().WriteHeaders(&w.st.send, &informational{code, w.header}, nil, false) // the next write returns the error
	default:
		w.status = code
		w.snapshot()
	}
}

func (w *response) frames() *frame.Writer { return w.st.conn.w }

// sendContinue sends 100 (Continue), unless the response has begun.
func (w *response) sendContinue() {
	if !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	if w.status == 0 {
		_ = w.frames().WriteHeaders(&w.st.send, &informational{code: http.StatusContinue}, nil, false) // the next write returns the error
	}
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError implements http.ResponseController's flush.
func (w *response) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.worker == nil {
		return errHandlerReturned
	}
	if w.status == 0 {
		w.writeHeader(http.StatusOK)
	}
	return w.flush()
}

func (w *response) flush() error { return w.flushBuffer(false) }

// write sends p, after the header if that was not sent yet. end is set when the handler has returned.
func (w *response) write(p []byte, end bool) error {
	trailing := end && w.collectTrailers()
	if !w.sent {
		w.sent = true
		w.finishHeader(p, end)
		if w.closeConn {
			w.st.conn.goAway()
		}
		if w.head {
			p = nil
		}
		w.ended = w.head || end && !trailing
		if w.ended && !end {
			w.st.conn.endSent(w.st)
		}
		if err := w.frames().WriteHeaders(&w.st.send, (*responseHeader)(w), p, w.ended); err != nil {
			return err
		}
	} else if !w.ended && (len(p) > 0 || end && !trailing) {
		w.ended = end && !trailing
		if err := w.frames().WriteData(&w.st.send, p, w.ended); err != nil {
			return err
		}
	} else if !end {
		return w.frames().StreamErr(&w.st.send)
	}
	if trailing && !w.ended {
		w.ended = true
		return w.frames().WriteHeaders(&w.st.send, (*responseTrailers)(w), nil, true)
	}
	return nil
}

// finish sends the rest of the response when the handler has returned.
func (w *response) finish() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == 0 {
		w.writeHeader(http.StatusOK)
	}
	return w.flushBuffer(true)
}

// Continue implements engine.ResponseWriter. Everything else is the same as while a handler runs.
func (w *response) Continue(rest func()) bool {
	w.rest = rest
	return true
}

// moveTo moves the response to another worker.
func (w *response) moveTo(next *worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == 0 || w.sent {
		w.returnFields()
	} else {
		w.worker.fields = nil // the response keeps them
	}
	w.worker = next
}

// returnFields returns the fields to the worker. The caller must hold mu.
func (w *response) returnFields() {
	clear(w.fields)
	w.worker.fields = w.fields[:0]
	if cap(w.fields) > keptFields {
		w.worker.fields = nil
	}
	w.fields = nil
}

// release returns the worker's fields and the buffer.
func (w *response) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.returnFields()
	if b := w.buffer; b != nil { // after a panic
		*b = (*b)[:0]
		buffers.Put(b)
	}
	w.worker, w.buffer = nil, nil
}

// CloseNotify implements http.CloseNotifier.
func (w *response) CloseNotify() <-chan bool {
	told := make(chan bool, 1)
	w.st.ctx.AfterFunc(func() { told <- true })
	return told
}

// Push implements http.Pusher. It is not supported, because clients no longer support it.
func (w *response) Push(string, *http.PushOptions) error { return http.ErrNotSupported }

var (
	_ http.ResponseWriter = (*response)(nil)
	_ http.Flusher        = (*response)(nil)
	_ http.Pusher         = (*response)(nil)
)

// collectTrailers declares the trailers that the handler set with http.TrailerPrefix, and reports whether there are any
// trailers.
func (w *response) collectTrailers() bool {
	for name, values := range w.header {
		if late, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			w.declareTrailer(late)
			w.header[http.CanonicalHeaderKey(late)] = values
		}
	}
	for _, name := range w.trailers {
		if _, ok := w.header[name]; ok {
			return true
		}
	}
	return false
}

// Writes of a handler are buffered up to bufferSize, so that a small response is sent together with its header.

// Write implements http.ResponseWriter.
func (w *response) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.checkWrite(len(p)); err != nil {
		return 0, err
	}
	if w.buffered()+len(p) <= bufferSize {
		w.bufferBytes(p)
		return len(p), nil
	}
	if w.buffer != nil { // full frames are better than many small ones
		n := bufferSize - len(*w.buffer)
		w.bufferBytes(p[:n])
		if err := w.flush(); err != nil {
			return 0, err
		}
		if rest := p[n:]; len(rest) <= bufferSize/2 {
			w.bufferBytes(rest)
			return len(p), nil
		}
		if err := w.write(p[n:], false); err != nil {
			return n, err
		}
		return len(p), nil
	}
	if err := w.write(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteString implements io.StringWriter.
func (w *response) WriteString(s string) (int, error) {
	w.mu.Lock()
	if w.buffered()+len(s) > bufferSize {
		w.mu.Unlock()
		return w.Write([]byte(s))
	}
	defer w.mu.Unlock()
	if err := w.checkWrite(len(s)); err != nil {
		return 0, err
	}
	b := w.getBuffer()
	*b = append(*b, s...)
	return len(s), nil
}

// buffers are for responses with unsent data. Other responses have no buffer, because there may be many waiting watches.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferSize); return &b }}

const bufferSize = 4 << 10

func (w *response) getBuffer() *[]byte {
	if w.buffer == nil {
		w.buffer = buffers.Get().(*[]byte)
	}
	return w.buffer
}

func (w *response) bufferBytes(p []byte) {
	if len(p) > 0 {
		b := w.getBuffer()
		*b = append(*b, p...)
	}
}

func (w *response) buffered() int {
	if w.buffer == nil {
		return 0
	}
	return len(*w.buffer)
}

// flushBuffer sends the buffered data.
func (w *response) flushBuffer(end bool) error {
	if w.buffer == nil {
		return w.write(nil, end)
	}
	b := w.buffer
	w.buffer = nil
	err := w.write(*b, end)
	*b = (*b)[:0]
	buffers.Put(b)
	return err
}

func (w *response) checkWrite(n int) error {
	if w.worker == nil {
		return errHandlerReturned
	}
	if w.status == 0 {
		w.writeHeader(http.StatusOK)
	}
	if !httpmsg.BodyAllowed(w.status) {
		return http.ErrBodyNotAllowed
	}
	w.wrote += int64(n)
	if w.declared >= 0 && w.wrote > w.declared {
		return http.ErrContentLength
	}
	return nil
}

// deadlines are the deadlines that a handler sets (http.ResponseController).
type deadlines struct {
	mu          sync.Mutex // guards the fields below
	stopped     bool
	read, write *time.Timer
}

func (d *deadlines) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	for _, t := range []*time.Timer{d.read, d.write} {
		if t != nil {
			t.Stop()
		}
	}
}

// set calls f at the given time, unless it is zero. A deadline that has passed cannot be changed.
func (d *deadlines) set(timer **time.Timer, at time.Time, f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped || *timer != nil && !(*timer).Stop() {
		return
	}
	*timer = nil
	if !at.IsZero() {
		*timer = time.AfterFunc(time.Until(at), f)
	}
}

// SetReadDeadline is for http.ResponseController. Reads of the body fail after the deadline.
func (w *response) SetReadDeadline(at time.Time) error {
	st := w.stream()
	if !at.IsZero() && !at.After(time.Now()) {
		st.readExpired()
		return nil
	}
	st.deadlines.set(&st.deadlines.read, at, st.readExpired)
	return nil
}

// SetWriteDeadline is for http.ResponseController. The stream is reset after the deadline.
func (w *response) SetWriteDeadline(at time.Time) error {
	st := w.stream()
	if !at.IsZero() && !at.After(time.Now()) {
		st.writeExpired()
		return nil
	}
	st.deadlines.set(&st.deadlines.write, at, st.writeExpired)
	return nil
}

// LongRunning exempts the response, for example a watch, from StallTimeout.
func (w *response) LongRunning() {
	c := w.stream().conn
	c.mu.Lock()
	defer c.mu.Unlock()
	w.st.longRunning = true
}

// BytesWritten returns the number of bytes of the body that were sent.
func (w *response) BytesWritten() int64 {
	n, _ := w.frames().Progress(&w.st.send)
	return n
}

// EnableFullDuplex is for http.ResponseController. HTTP/2 is always full duplex.
func (w *response) EnableFullDuplex() error { return nil }

func (st *stream) readExpired() { st.body.Fail(os.ErrDeadlineExceeded) }

func (st *stream) writeExpired() { st.reset(frame.InternalError, os.ErrDeadlineExceeded) }
