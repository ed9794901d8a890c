package http1

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"portico.dev/internal/httpmsg"
)

// errOver is what a handler meets that goes on after it has returned.
var errOver = errors.New("the handler has returned")

// response is the http.ResponseWriter of a request.
type response struct {
	x      *exchange
	head   bool // the request is HEAD
	old    bool // it is of HTTP/1.0
	keep   bool // and wants the connection to be kept
	header http.Header
	// answered is set when the answer has begun: whoever still waits for 100 (Continue) waits in vain.
	answered atomic.Bool
	taken    atomic.Int64 // bytes that were written to the connection

	mu       sync.Mutex // guards what follows: handlers may write on several goroutines, and even too late
	room     *room      // what is not sent yet; nil: nothing
	status   int        // 0: WriteHeader was not called
	sent     bool       // the head is sent
	over     bool       // the handler has returned
	hijacked bool
	err      error // what went wrong with writing

	declared int64 // Content-Length; -1: none
	unsized  bool  // the handler wants none
	wrote    int64
	names    int      // in the header, when the head was made
	coding   string   // Transfer-Encoding, as the handler has it
	options  []string // Connection, as the handler has it
	dated    bool     // the handler said when
	typed    bool     // and what, or encodes it
	trailing bool     // and that trailers follow
	chunked  bool     // so is the body
	closing  bool     // the connection ends with the answer
	trailers []string
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
	if w.status != 0 || w.over || w.hijacked {
		return
	}
	if code < 100 || code > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", code)) // as net/http
	}
	if code < 200 && code != http.StatusSwitchingProtocols {
		w.interim(code)
		return
	}
	w.answered.Store(true)
	w.status = code
	w.snapshot()
}

// interim sends what comes before the answer. HTTP/1.0 has no such thing.
func (w *response) interim(code int) {
	if code == http.StatusContinue {
		w.x.body.expects.Store(false)
	}
	if w.old {
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
	w.write(append(b, "\r\n"...), nil, nil) // the next write finds it
}

// goOn tells a client that it may send the body, unless it is being answered.
func (w *response) goOn() {
	if w.answered.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.x.body.expects.Load() && w.status == 0 && !w.over && !w.hijacked {
		w.x.body.expects.Store(false)
		w.write([]byte("HTTP/1.1 100 Continue\r\n\r\n"), nil, nil) // the next write finds it
	}
}

// Flush implements http.Flusher.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError is for http.ResponseController.
func (w *response) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.begin(); err != nil {
		return err
	}
	return w.emit(nil, false)
}

// begin has the answer begin, unless it has, or is not the handler's any more.
func (w *response) begin() error {
	switch {
	case w.hijacked:
		return http.ErrHijacked
	case w.over:
		return errOver
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
		w.over = true
		return false, true
	}
	if w.status == 0 {
		w.writeHeader(http.StatusOK)
	}
	w.over = true
	w.closing = w.closing || left > mostLeft || left < 0 && !w.sent // how much it is nobody knows: say so while there is time
	_ = w.emit(nil, true)                                           // err has it
	short := w.declared >= 0 && w.wrote != w.declared && !w.head && httpmsg.BodyAllowed(w.status)
	return w.err == nil && !w.closing && !short && w.status != http.StatusSwitchingProtocols, false
}

// undecided reports whether the answer can still say that it is the last.
func (w *response) undecided() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.sent && !w.hijacked && !w.closing && !w.x.body.expects.Load()
}

// leave drops what is not sent, after a panic. It reports whether the connection is somebody else's.
func (w *response) leave() (hijacked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.giveBack()
	return w.hijacked
}
