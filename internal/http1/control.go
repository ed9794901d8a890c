package http1

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// SetReadDeadline is for http.ResponseController: from then on nothing of the body comes any more.
func (w *response) SetReadDeadline(at time.Time) error {
	c := w.x.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.x.over {
		return errOver
	}
	c.bodyUntilLocked(w.x, at)
	return nil
}

// SetWriteDeadline is for http.ResponseController: a write that waits then fails, and the connection is lost.
func (w *response) SetWriteDeadline(at time.Time) error {
	c := w.x.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.x.over {
		return errOver
	}
	w.x.limited = true
	return c.net.SetWriteDeadline(at)
}

// Taken is how many bytes the client, or the kernel on its behalf, has taken.
func (w *response) Taken() int64 { return w.taken.Load() }

// EnableFullDuplex is for http.ResponseController: an answer may always be written while the body comes.
func (w *response) EnableFullDuplex() error { return nil }

// CloseNotify implements http.CloseNotifier.
func (w *response) CloseNotify() <-chan bool {
	told := make(chan bool, 1)
	w.x.life.AfterFunc(func() { told <- true })
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
	case w.over:
		return nil, nil, errOver
	}
	if w.status != 0 {
		if err := w.emit(nil, false); err != nil {
			return nil, nil, err
		}
	}
	w.hijacked = true
	x.body.leave()
	x.deafen()
	c.mu.Lock()
	c.hijacked, x.coming = true, false
	c.mu.Unlock()
	if err := c.net.SetDeadline(time.Time{}); err != nil {
		return nil, nil, err
	}
	rest := append([]byte(nil), c.in.unused()...)
	c.in = reader{}
	in := bufio.NewReaderSize(&following{c.net, rest}, max(roomForReading, len(rest)))
	if len(rest) > 0 {
		if _, err := in.Peek(len(rest)); err != nil { // so that it is seen to be there
			return nil, nil, err
		}
	}
	c.server.forget(c)
	if c.told != nil {
		c.told()
	}
	return c.net, bufio.NewReadWriter(in, bufio.NewWriter(c.net)), nil
}

// following reads what was read already, and then the connection.
type following struct {
	net.Conn
	first []byte
}

// Read implements io.Reader.
func (f *following) Read(p []byte) (int, error) {
	if len(f.first) == 0 {
		return f.Conn.Read(p)
	}
	n := copy(p, f.first)
	if f.first = f.first[n:]; len(f.first) == 0 {
		f.first = nil
	}
	return n, nil
}

var (
	_ http.Hijacker = (*response)(nil)
	_ http.Flusher  = (*response)(nil)
)
