package frame

import "slices"

// RecvWindow is a flow-control window of the receiving side. Its owner guards it.
type RecvWindow struct {
	available int64 // bytes that the peer may still send
	consumed  int64 // bytes that were read, but not yet returned with a WINDOW_UPDATE
	threshold int64 // value of consumed at which a WINDOW_UPDATE is sent
}

// NewRecvWindow returns a window of size.
func NewRecvWindow(size int64) RecvWindow {
	return RecvWindow{available: size, threshold: max(1, size/4)}
}

// Take counts n received bytes. It returns false if the peer exceeded its window.
func (f *RecvWindow) Take(n int) bool {
	if int64(n) > f.available {
		return false
	}
	f.available -= int64(n)
	return true
}

// Return counts n bytes that were consumed. A result other than 0 is the increment of a WINDOW_UPDATE that must be sent
// now.
func (f *RecvWindow) Return(n int) uint32 {
	f.consumed += int64(n)
	if f.consumed < f.threshold {
		return 0
	}
	increment := f.consumed
	f.consumed = 0
	f.available += increment
	return uint32(increment)
}

// SendStream is the sending half of a stream. The Writer guards its fields.
type SendStream struct {
	// ID is the stream id. The client's Writer sets it when it opens the stream.
	ID      uint32
	updates int64 // sum of WINDOW_UPDATEs
	sent    int64
	waiting bool          // in streamBlocked or connBlocked
	queued  bool          // in connBlocked, or removed from it with the right to return to the front
	blocked bool          // there is more to send than windows allow
	wake    chan struct{} // made at the first wait
	err     error         // why no more data is sent
	ended   bool          // END_STREAM was written
}

// HeaderBlock writes the fields of a header block, pseudo-header fields first.
type HeaderBlock interface {
	EncodeHeaders(*Encoder)
}

// NewStream is a stream that a client opens.
type NewStream interface {
	HeaderBlock
	// Opened is called with the stream id before any frame of the stream is written, with the Writer's lock held: it must
	// not wait, and must not use the Writer. If it returns an error, the stream is not opened.
	Opened(id uint32) error
}

// OpenStream opens a stream with HEADERS, and with DATA as far as windows allow. It returns the number of bytes of body
// that were sent. The caller must send the rest with WriteData.
func (w *Writer) OpenStream(s *SendStream, h NewStream, body []byte, end bool) (sent int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.assignID(s, h); err != nil {
		return 0, err
	}
	w.headers(s, h, end && len(body) == 0)
	if len(body) > 0 {
		sent = len(body) - len(w.data(s, body, end))
		s.ended = end && sent == len(body)
	}
	return sent, w.flush()
}

// assignID assigns an id to s, when there is space. The caller must hold mu.
func (w *Writer) assignID(s *SendStream, h NewStream) error {
	if err := w.waitSpace(s); err != nil {
		return err
	}
	id := w.nextID
	if id > MaxStreamID {
		return ErrNoMoreStreams
	}
	if err := h.Opened(id); err != nil {
		return err
	}
	w.nextID += 2
	s.ID = id
	return nil
}

// ErrNoMoreStreams is returned on a connection that has used up its stream ids.
var ErrNoMoreStreams = ConnError{NoError, "the connection has used up its streams"}

// WriteHeaders sends HEADERS, of a header or of trailers, and DATA. If end is set, it ends the stream. It waits for
// windows.
func (w *Writer) WriteHeaders(s *SendStream, h HeaderBlock, body []byte, end bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.waitSpace(s); err != nil {
		return err
	}
	w.headers(s, h, end && len(body) == 0)
	if len(body) > 0 {
		return w.writeData(s, body, end)
	}
	return w.flush()
}

// headers appends a header block as HEADERS and as many CONTINUATIONs as it needs. The caller must hold mu.
func (w *Writer) headers(s *SendStream, h HeaderBlock, end bool) {
	w.encoder.begin()
	h.EncodeHeaders(w.encoder)
	t, flags := Headers, uint8(0)
	if end {
		flags, s.ended = FlagEndStream, true
	}
	for b := w.encoder.block; ; {
		n := min(len(b), w.maxFrame)
		if n == len(b) {
			flags |= FlagEndHeaders
		}
		w.header(t, flags, s.ID, n)
		w.put(b[:n]...)
		if b = b[n:]; len(b) == 0 {
			w.encoder.blockWritten()
			return
		}
		t, flags = Continuation, 0
	}
}

// WriteData sends DATA, and waits for windows. If end is set, it ends the stream.
func (w *Writer) WriteData(s *SendStream, p []byte, end bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writeData(s, p, end)
}

// writeData implements WriteData. The caller must hold mu, which is released while it waits or writes.
func (w *Writer) writeData(s *SendStream, p []byte, end bool) error {
	for {
		if err := w.waitSpace(s); err != nil {
			w.wakeNext()
			return err
		}
		if p = w.data(s, p, end); len(p) == 0 {
			s.ended = s.ended || end
			return w.flush()
		}
		if err := w.waitForWindow(s); err != nil {
			return err
		}
	}
}

// data appends p as DATA frames as far as windows and space allow, and returns the rest. The caller must hold mu.
func (w *Writer) data(s *SendStream, p []byte, end bool) []byte {
	for {
		n := int(max(0, min(int64(len(p)), w.sendable(s), int64(w.maxFrame)))) // a window may be negative
		if n == 0 && len(p) > 0 {
			break
		}
		var flags uint8
		if end && n == len(p) {
			flags = FlagEndStream
		}
		if n > 0 || end {
			w.header(Data, flags, s.ID, n)
			w.put(p[:n]...)
			if n == len(p) || n >= minCountedData {
				w.dataFrames++
			}
			w.dataBytes += uint64(n)
		}
		s.sent += int64(n)
		w.window -= int64(n)
		if p = p[n:]; len(p) == 0 || w.buffered() >= maxBuffered {
			break
		}
	}
	w.wakeNext()
	return p
}

// minCountedData is the minimum size of a DATA frame limited by a window for which WINDOW_UPDATEs are expected. Otherwise
// updates of a few bytes each would justify each other (AllowedUpdates).
const minCountedData = 32

// sendable returns the number of bytes that s may send now. The caller must hold mu.
func (w *Writer) sendable(s *SendStream) int64 { return min(w.window, w.streamWindow(s)) }

// streamWindow returns the window of s. The caller must hold mu.
func (w *Writer) streamWindow(s *SendStream) int64 { return w.initialWindow + s.updates - s.sent }

// waitSpace waits until less than maxBuffered is buffered. The caller must hold mu, which is released while it waits.
func (w *Writer) waitSpace(s *SendStream) error {
	for w.err == nil && s.err == nil && w.buffered() >= maxBuffered && w.writing {
		w.spaceFreed.Wait()
	}
	if w.err != nil {
		return w.err
	}
	return s.err
}

// waitForWindow flushes, and then waits until s may send. The caller must hold mu, which is released while it waits or
// writes.
func (w *Writer) waitForWindow(s *SendStream) error {
	if err := w.flush(); err != nil {
		return err
	}
	s.blocked = true
	for first := true; w.err == nil && s.err == nil && w.sendable(s) <= 0; first = false {
		if s.wake == nil {
			s.wake = make(chan struct{}, 1)
		}
		w.enqueue(s, first)
		w.mu.Unlock()
		<-s.wake
		w.mu.Lock()
		w.dequeue(s)
	}
	s.blocked = false
	return nil // waitSpace returns the errors
}

// An update of the connection's window wakes one of the streams that wait for it. A stream that has sent all it can wakes
// the next one if some of the window is left. The cost of a frame therefore does not depend on the number of waiting
// streams, and they are served in order of arrival.

// enqueue makes s wait for the stream's window, if that is used up, and otherwise for the connection's window. A stream
// that was woken too late goes to the front. The caller must hold mu.
func (w *Writer) enqueue(s *SendStream, first bool) {
	s.waiting = true
	switch {
	case w.streamWindow(s) <= 0:
		s.queued = false
		w.streamBlocked = append(w.streamBlocked, s)
		w.wakeNext() // s may have been woken for the connection's window
	case first || !s.queued:
		s.queued = true
		w.connBlocked = append(w.connBlocked, s)
	default:
		w.connBlocked = slices.Insert(w.connBlocked, 0, s)
	}
}

// wakeNext wakes the first of the streams that wait for the connection's window, if some of it is left. The caller must
// hold mu.
func (w *Writer) wakeNext() {
	if len(w.connBlocked) == 0 || w.window <= 0 {
		return
	}
	s := w.connBlocked[0]
	w.connBlocked = slices.Delete(w.connBlocked, 0, 1)
	s.wakeUp()
}

// windowOpened is called when the window of s, which waits, has grown. The caller must hold mu.
func (w *Writer) windowOpened(s *SendStream) {
	if s.queued || w.streamWindow(s) <= 0 {
		return
	}
	w.streamBlocked = slices.DeleteFunc(w.streamBlocked, func(other *SendStream) bool { return other == s })
	if w.window > 0 {
		s.wakeUp()
		return
	}
	s.queued = true
	w.connBlocked = append(w.connBlocked, s)
}

// dequeue removes s from both lists. The caller must hold mu.
func (w *Writer) dequeue(s *SendStream) {
	if !s.waiting {
		return
	}
	s.waiting = false
	is := func(other *SendStream) bool { return other == s }
	w.streamBlocked, w.connBlocked = slices.DeleteFunc(w.streamBlocked, is), slices.DeleteFunc(w.connBlocked, is)
}
