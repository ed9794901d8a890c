package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"portico.dev/internal/http2/frame"
)

// errOver is what a handler meets that goes on after it has returned.
var errOver = errors.New("the handler has returned")

// response is the http.ResponseWriter of a stream.
type response struct {
	st     *stream
	head   bool // the request is HEAD
	header http.Header

	mu     sync.Mutex // guards what follows: handlers may write on several goroutines, and even too late
	worker *worker    // lends fields; nil: the handler has returned
	buffer *[]byte    // what is not sent yet; nil: nothing
	fields []field    // the header as it was at WriteHeader
	status int        // 0: WriteHeader was not called
	sent   bool       // the header is sent
	ended  bool       // so is the end of the stream

	declared int64 // Content-Length; -1: none
	wrote    int64
	length   string // Content-Length, as it is sent
	media    string // Content-Type that was found by looking at the body
	unsized  bool   // the handler wants none
	dated    bool   // the handler said when
	typed    bool   // and what, or encodes it
	closing  bool   // this was meant to be the last request
	trailers []string
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
		panic(fmt.Sprintf("invalid WriteHeader code %v", code)) // as net/http
	}
	switch {
	case code == http.StatusSwitchingProtocols: // there is no such thing (RFC 9113, 8.6)
	case code < 200:
		_ = w.out().Message(&w.st.send, &interim{code, w.header}, nil, false) // the next write finds it
	default:
		w.status = code
		w.snapshot()
	}
}

func (w *response) out() *frame.Out { return w.st.conn.out }

// goOn tells a client that it may send the body, unless it is being answered.
func (w *response) goOn() {
	if !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	if w.status == 0 {
		_ = w.out().Message(&w.st.send, &interim{code: http.StatusContinue}, nil, false) // the next write finds it
	}
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError is for http.ResponseController.
func (w *response) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.worker == nil {
		return errOver
	}
	if w.status == 0 {
		w.writeHeader(http.StatusOK)
	}
	return w.flush()
}

func (w *response) flush() error { return w.empty(false) }

// write sends p, after the header when that is not sent yet. end is whether the handler has returned.
func (w *response) write(p []byte, end bool) error {
	trailing := end && w.promote()
	if !w.sent {
		w.sent = true
		w.complete(p, end)
		if w.closing {
			w.st.conn.goAway()
		}
		if w.head {
			p = nil
		}
		w.ended = w.head || end && !trailing
		if w.ended && !end {
			w.st.conn.sending(w.st)
		}
		if err := w.out().Message(&w.st.send, (*opening)(w), p, w.ended); err != nil {
			return err
		}
	} else if !w.ended && (len(p) > 0 || end && !trailing) {
		w.ended = end && !trailing
		if err := w.out().Data(&w.st.send, p, w.ended); err != nil {
			return err
		}
	} else if !end {
		return w.out().Failed(&w.st.send)
	}
	if trailing && !w.ended {
		w.ended = true
		return w.out().Message(&w.st.send, (*closing)(w), nil, true)
	}
	return nil
}

// finish sends what is left when the handler has returned.
func (w *response) finish() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == 0 {
		w.writeHeader(http.StatusOK)
	}
	return w.empty(true)
}

// leave gives back what the worker lends.
func (w *response) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.fields)
	w.worker.fields = w.fields[:0]
	if cap(w.fields) > keptFields {
		w.worker.fields = nil
	}
	if b := w.buffer; b != nil { // after a panic
		*b = (*b)[:0]
		buffers.Put(b)
	}
	w.worker, w.buffer, w.fields = nil, nil, nil
}

// CloseNotify implements http.CloseNotifier.
func (w *response) CloseNotify() <-chan bool {
	told := make(chan bool, 1)
	w.st.life.AfterFunc(func() { told <- true })
	return told
}

// Push implements http.Pusher: no client takes it any more.
func (w *response) Push(string, *http.PushOptions) error { return http.ErrNotSupported }

var (
	_ http.ResponseWriter = (*response)(nil)
	_ http.Flusher        = (*response)(nil)
	_ http.Pusher         = (*response)(nil)
)

// promote makes trailers of what the handler put into the header for them, and reports whether there are any.
func (w *response) promote() bool {
	for name, values := range w.header {
		if late, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			w.declare(late)
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
