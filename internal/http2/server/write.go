package server

import (
	"net/http"
	"sync"

	"portico.dev/internal/httpmsg"
)

// What a handler writes is kept while it is little: the whole of a small answer is sent with its header.

// Write implements http.ResponseWriter.
func (w *response) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.mayWrite(len(p)); err != nil {
		return 0, err
	}
	if w.buffered()+len(p) <= bufferSize {
		w.keep(p)
		return len(p), nil
	}
	if w.buffer != nil { // full frames are better than many
		n := bufferSize - len(*w.buffer)
		w.keep(p[:n])
		if err := w.flush(); err != nil {
			return 0, err
		}
		if rest := p[n:]; len(rest) <= bufferSize/2 {
			w.keep(rest)
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
	if err := w.mayWrite(len(s)); err != nil {
		return 0, err
	}
	b := w.room()
	*b = append(*b, s...)
	return len(s), nil
}

// buffers are for what is not sent yet. A response has one only while there is something in it: watches are many, and wait.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferSize); return &b }}

const bufferSize = 4 << 10

func (w *response) room() *[]byte {
	if w.buffer == nil {
		w.buffer = buffers.Get().(*[]byte)
	}
	return w.buffer
}

func (w *response) keep(p []byte) {
	if len(p) > 0 {
		b := w.room()
		*b = append(*b, p...)
	}
}

func (w *response) buffered() int {
	if w.buffer == nil {
		return 0
	}
	return len(*w.buffer)
}

// empty sends what is not sent yet.
func (w *response) empty(end bool) error {
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

func (w *response) mayWrite(n int) error {
	if w.worker == nil {
		return errOver
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
