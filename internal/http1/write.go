package http1

import (
	"net/http"
	"strconv"
	"sync"

	"portico.dev/internal/httpmsg"
)

// What a handler writes is kept while it is little: the whole of a small answer is sent with its head.
const keptBytes = 4 << 10

// room is for what is not sent yet. A response has one only while there is something in it: watches are many, and wait.
type room struct {
	out  []byte // the head, and what goes out next
	body []byte
}

var idleRooms = sync.Pool{New: func() any { return &room{body: make([]byte, 0, keptBytes)} }}

func (w *response) rooms() *room {
	if w.room == nil {
		w.room = idleRooms.Get().(*room)
	}
	return w.room
}

func (w *response) giveBack() {
	r := w.room
	if r == nil {
		return
	}
	w.room = nil
	r.out, r.body = r.out[:0], r.body[:0]
	if cap(r.out) > 2*httpmsg.MaxRecord {
		r.out = nil
	}
	idleRooms.Put(r)
}

// Write implements http.ResponseWriter.
func (w *response) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.mayWrite(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	if r := w.rooms(); len(r.body)+len(p) <= keptBytes {
		r.body = append(r.body, p...)
		return len(p), nil
	}
	if err := w.emit(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteString implements io.StringWriter.
func (w *response) WriteString(s string) (int, error) {
	if len(s) > keptBytes {
		return w.Write([]byte(s))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.mayWrite(len(s)); err != nil || s == "" {
		return 0, err
	}
	if r := w.rooms(); len(r.body)+len(s) > keptBytes {
		if err := w.emit(nil, false); err != nil {
			return 0, err
		}
	}
	r := w.rooms()
	r.body = append(r.body, s...)
	return len(s), nil
}

func (w *response) mayWrite(n int) error {
	if err := w.begin(); err != nil || n == 0 {
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

// emit sends what is not sent yet, and p. end is whether the handler has returned.
func (w *response) emit(p []byte, end bool) error {
	defer w.giveBack()
	r := w.rooms()
	if !w.sent {
		w.sent = true
		all := r.body
		if len(all) == 0 {
			all = p
		}
		r.out = w.complete(r.out, all, end)
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
	r.out = w.write(r.out, p, after)
	return w.err
}

// write sends three pieces as one, in records that are full. first may be written over: it is returned, with its room.
func (w *response) write(first, p, last []byte) []byte {
	size := len(first) + len(p) + len(last)
	if w.err != nil || size == 0 {
		return first[:0]
	}
	const most = httpmsg.MaxRecord
	if size <= most {
		first = append(append(first, p...), last...)
		w.send(first)
		return first[:0]
	}
	below := w.x.conn.below
	if below != nil {
		below.Gather()
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
		w.fail(below.Release())
	}
	return first[:0]
}

func (w *response) send(p []byte) {
	if w.err == nil {
		n, err := w.x.conn.net.Write(p)
		w.taken.Add(int64(n))
		w.fail(err)
	}
}

// fail notes that the client cannot be written to any more.
func (w *response) fail(err error) {
	if err != nil && w.err == nil {
		w.err = err
		w.x.life.End()
	}
}
