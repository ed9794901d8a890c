package server

import (
	"os"
	"sync"
	"time"

	"portico.dev/internal/http2/frame"
)

// deadlines are those that a handler gives its request (http.ResponseController).
type deadlines struct {
	mu          sync.Mutex // guards what follows
	over        bool
	read, write *time.Timer
}

func (d *deadlines) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	for _, t := range []*time.Timer{d.read, d.write} {
		if t != nil {
			t.Stop()
		}
	}
}

// set has f called at a time, unless it is zero. A deadline that has passed stays.
func (d *deadlines) set(timer **time.Timer, at time.Time, f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over || *timer != nil && !(*timer).Stop() {
		return
	}
	*timer = nil
	if !at.IsZero() {
		*timer = time.AfterFunc(time.Until(at), f)
	}
}

// SetReadDeadline is for http.ResponseController: from then on nothing of the body is read.
func (w *response) SetReadDeadline(at time.Time) error {
	st := w.stream()
	if !at.IsZero() && !at.After(time.Now()) {
		st.readExpired()
		return nil
	}
	st.limits.set(&st.limits.read, at, st.readExpired)
	return nil
}

// SetWriteDeadline is for http.ResponseController: at that time the stream is reset.
func (w *response) SetWriteDeadline(at time.Time) error {
	st := w.stream()
	if !at.IsZero() && !at.After(time.Now()) {
		st.writeExpired()
		return nil
	}
	st.limits.set(&st.limits.write, at, st.writeExpired)
	return nil
}

// LongRunning says that the client may leave the answer untaken for as long as it likes: it is a watch, or the like.
func (w *response) LongRunning() {
	c := w.stream().conn
	c.mu.Lock()
	defer c.mu.Unlock()
	w.st.lasting = true
}

// Taken is how many bytes of the body the client has let be sent.
func (w *response) Taken() int64 {
	n, _ := w.out().Progress(&w.st.send)
	return n
}

// EnableFullDuplex is for http.ResponseController: HTTP/2 is.
func (w *response) EnableFullDuplex() error { return nil }

func (st *stream) readExpired() { st.body.Fail(os.ErrDeadlineExceeded) }

func (st *stream) writeExpired() { st.kill(frame.InternalError, os.ErrDeadlineExceeded) }
