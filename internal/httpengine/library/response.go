package library

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpengine/engine"
	"portico.dev/internal/httpengine/httpmsg"
)

// responseWriter is net/http's writer with the additional features of Portico's writers: the number of bytes that the
// client has read, and a timeout for responses that it does not read. net/http has no time limit for a response that waits
// for a client's HTTP/2 windows.
//
// net/http's writers must not be used after the handler has returned: those of HTTP/2 panic. Portico's timers may fire
// late, and get an error here.
type responseWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	h2      bool
	stall   time.Duration // 0 for no timeout
	// class is the httpmsg.ClientClass of the connection's last user.
	class *atomic.Int32
	// grant is the grant of the request's header, if it is large, and headerMemory the memory that the header uses.
	grant        *httpmsg.HeaderGrant
	headerMemory int64

	bytesWritten atomic.Int64
	longRunning  atomic.Bool

	mu          sync.Mutex // guards the fields below, and is held while deadlines are set
	over        bool
	deadlineSet bool        // by the handler
	writing     bool        // a write is waiting
	timer       *time.Timer // ends the write
}

// writeSize is the size of a single write to net/http. A client must read this amount within the stall timeout.
const writeSize = 16 << 10

// Write implements http.ResponseWriter.
func (w *responseWriter) Write(p []byte) (int, error) {
	written := 0
	for {
		piece := p[written:min(len(p), written+writeSize)]
		w.setWriting(true)
		n, err := w.ResponseWriter.Write(piece)
		w.setWriting(false)
		written += n
		w.bytesWritten.Add(int64(n))
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// FlushError is for http.ResponseController.
func (w *responseWriter) FlushError() error {
	if w.isDetached() {
		return errOver
	}
	w.setWriting(true)
	defer w.setWriting(false)
	return w.control.Flush()
}

// Flush implements http.Flusher.
func (w *responseWriter) Flush() { _ = w.FlushError() }

// setWriting is called when a write begins and ends.
func (w *responseWriter) setWriting(begun bool) {
	if !w.h2 || w.stall <= 0 || w.longRunning.Load() && begun {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = begun
	switch {
	case !begun:
		if w.timer != nil {
			w.timer.Stop()
		}
	case w.timer == nil:
		w.timer = time.AfterFunc(w.stall, w.stalled)
	default:
		w.timer.Reset(w.stall)
	}
}

// stalled resets the stream of a write that still waits.
func (w *responseWriter) stalled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writing && !w.over && !w.longRunning.Load() {
		_ = w.control.SetWriteDeadline(time.Unix(1, 0))
	}
}

// handlerReturned is called when the handler has returned, because the data that net/http has buffered may wait for the
// client too.
func (w *responseWriter) handlerReturned() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.h2 && w.stall > 0 && !w.deadlineSet && !w.longRunning.Load() && w.bytesWritten.Load() > 0 {
		_ = w.control.SetWriteDeadline(time.Now().Add(w.stall))
	}
}

// detach prevents all further use of net/http's writer.
func (w *responseWriter) detach() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *responseWriter) isDetached() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// SetReadDeadline is for http.ResponseController.
func (w *responseWriter) SetReadDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return errOver
	}
	return w.control.SetReadDeadline(at)
}

// SetWriteDeadline is for http.ResponseController.
func (w *responseWriter) SetWriteDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return errOver
	}
	w.deadlineSet = true
	return w.control.SetWriteDeadline(at)
}

// EnableFullDuplex is for http.ResponseController. Full duplex is always enabled.
func (w *responseWriter) EnableFullDuplex() error { return nil }

// BytesWritten returns the number of bytes that net/http has accepted, a few KiB more than the client.
func (w *responseWriter) BytesWritten() int64 { return w.bytesWritten.Load() }

// LongRunning exempts the response, for example a watch, from the stall timeout.
func (w *responseWriter) LongRunning() { w.longRunning.Store(true) }

// Authenticated is called by the handler that authenticated the request.
func (w *responseWriter) Authenticated(privileged bool) {
	w.class.Store(httpmsg.ClassOf(privileged))
}

// ChargeMemory does nothing: net/http cannot close connections by their memory.
func (w *responseWriter) ChargeMemory(int64) {}

// Continue is not supported.
func (w *responseWriter) Continue(func()) bool { return false }

// CloseNotify is called through an interface by k8s.io/apiserver/pkg/endpoints/responsewriter.
func (w *responseWriter) CloseNotify() <-chan bool {
	if n, ok := w.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return n.CloseNotify()
	}
	return make(chan bool)
}

// Hijack implements http.Hijacker, for HTTP/1.1.
func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.control.Hijack() }

// Unwrap is for http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

var (
	_ http.Hijacker         = (*responseWriter)(nil)
	_ engine.ResponseWriter = (*responseWriter)(nil)
)
