package engine

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpmsg"
)

// libraryResponse is net/http's writer, with what the house asks of one besides: how much the client has taken, and an end to
// answers that it does not take. net/http lets an answer wait for a client's HTTP/2 windows for as long as the client likes.
//
// net/http's writers must not be touched when the handler has returned: those of HTTP/2 panic. Timers of the house may come
// late, and get an error here.
type libraryResponse struct {
	http.ResponseWriter
	control *http.ResponseController
	h2      bool
	stall   time.Duration // 0: none
	// identity is that of the connection's last user.
	identity *atomic.Int32

	taken   atomic.Int64
	lasting atomic.Bool

	mu      sync.Mutex // guards what follows, and is held while deadlines are set
	over    bool
	limited bool        // the handler has set a deadline for writing
	waits   bool        // a write is waiting
	timer   *time.Timer // ends it
}

// libraryPiece is how much is given to net/http at a time. A client must take as much within the stall timeout.
const libraryPiece = 16 << 10

// Write implements http.ResponseWriter.
func (w *libraryResponse) Write(p []byte) (int, error) {
	written := 0
	for {
		piece := p[written:min(len(p), written+libraryPiece)]
		w.waiting(true)
		n, err := w.ResponseWriter.Write(piece)
		w.waiting(false)
		written += n
		w.taken.Add(int64(n))
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// FlushError is for http.ResponseController.
func (w *libraryResponse) FlushError() error {
	if w.isOver() {
		return errOver
	}
	w.waiting(true)
	defer w.waiting(false)
	return w.control.Flush()
}

// Flush implements http.Flusher.
func (w *libraryResponse) Flush() { _ = w.FlushError() }

// waiting is told that a write begins, and that it has ended.
func (w *libraryResponse) waiting(begun bool) {
	if !w.h2 || w.stall <= 0 || w.lasting.Load() && begun {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waits = begun
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
func (w *libraryResponse) stalled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waits && !w.over && !w.lasting.Load() {
		_ = w.control.SetWriteDeadline(time.Unix(1, 0))
	}
}

// finishing is called when the handler has returned: what net/http still has of the answer may wait for the client too.
func (w *libraryResponse) finishing() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.h2 && w.stall > 0 && !w.limited && !w.lasting.Load() && w.taken.Load() > 0 {
		_ = w.control.SetWriteDeadline(time.Now().Add(w.stall))
	}
}

// leave has nobody touch net/http's writer any more.
func (w *libraryResponse) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *libraryResponse) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// SetReadDeadline is for http.ResponseController.
func (w *libraryResponse) SetReadDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return errOver
	}
	return w.control.SetReadDeadline(at)
}

// SetWriteDeadline is for http.ResponseController.
func (w *libraryResponse) SetWriteDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return errOver
	}
	w.limited = true
	return w.control.SetWriteDeadline(at)
}

// EnableFullDuplex is for http.ResponseController: it is enabled.
func (w *libraryResponse) EnableFullDuplex() error { return nil }

// Taken is how many bytes net/http has taken, which are a few KiB more than the client has.
func (w *libraryResponse) BytesWritten() int64 { return w.taken.Load() }

// LongRunning says that the client may leave the answer untaken for as long as it likes: it is a watch, or the like.
func (w *libraryResponse) LongRunning() { w.lasting.Store(true) }

// Identified is told by the handler whose request it is.
func (w *libraryResponse) Authenticated(privileged bool) {
	w.identity.Store(httpmsg.ClassOf(privileged))
}

// CloseNotify is asked for by name by k8s.io/apiserver/pkg/endpoints/responsewriter.
func (w *libraryResponse) CloseNotify() <-chan bool {
	if n, ok := w.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return n.CloseNotify()
	}
	return make(chan bool)
}

// Hijack implements http.Hijacker, for HTTP/1.1.
func (w *libraryResponse) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.control.Hijack() }

// Unwrap is for http.ResponseController.
func (w *libraryResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }

var (
	_ http.Hijacker = (*libraryResponse)(nil)
	_ http.Flusher  = (*libraryResponse)(nil)
)
