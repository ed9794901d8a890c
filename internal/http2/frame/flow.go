package frame

import (
	"slices"
)

// RecvWindow is a window of the receiving side: how much the other side may still send, and how much of what was consumed it
// has not been told of. It is guarded by its owner.
type RecvWindow struct {
	available int64
	consumed  int64
	threshold int64 // how much is owed before it is worth a frame
}

// NewRecvWindow is a window of size.
func NewRecvWindow(size int64) RecvWindow {
	return RecvWindow{available: size, threshold: max(1, size/4)}
}

// Take counts n bytes that arrived. False: the other side sent more than it may.
func (f *RecvWindow) Take(n int) bool {
	if int64(n) > f.available {
		return false
	}
	f.available -= int64(n)
	return true
}

// Return counts n bytes that were consumed. The result, unless 0, is for a WINDOW_UPDATE frame that must be sent now.
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

// SendStream is the sending half of a stream. Its fields are guarded by the Out.
type SendStream struct {
	// ID is the stream's; the client's Out gives it in Open.
	ID      uint32
	updates int64 // by WINDOW_UPDATE, beyond the initial window
	sent    int64
	waiting bool // it is in one of the Out's lists
	queued  bool // and that is the queue; or it was, and is to have its place again
	blocked bool // somebody has more to send than windows let them
	wake    chan struct{}
	err     error // why nothing more is sent
	ended   bool  // END_STREAM was sent
}

// HeaderBlock writes the fields of a header block, pseudo fields first.
type HeaderBlock interface {
	EncodeHeaders(*Encoder)
}

// NewStream is a stream that a client begins.
type NewStream interface {
	HeaderBlock
	// Opened is told the stream's id before anything of it is written, under the Out's lock: it must not wait, nor use the
	// Out. An error begins no stream.
	Opened(id uint32) error
}

// OpenStream begins a stream: HEADERS, and DATA as far as windows let it be; what is left of body is sent as windows open.
func (o *Writer) OpenStream(s *SendStream, h NewStream, body []byte, end bool) error {
	o.mu.Lock()
	if err := o.assignID(s, h); err != nil {
		o.mu.Unlock()
		return err
	}
	return o.message(s, h, body, end)
}

// assignID gives s its id, after there is room. Called with mu held.
func (o *Writer) assignID(s *SendStream, h NewStream) error {
	if err := o.waitSpace(s); err != nil {
		return err
	}
	id := o.nextID
	if id > MaxStreamID {
		return ErrNoMoreStreams
	}
	if err := h.Opened(id); err != nil {
		return err
	}
	o.nextID += 2
	s.ID = id
	return nil
}

// OpenStreamNoWait is Open that waits for no window: it reports how much of body they let be sent. The rest is for Data.
func (o *Writer) OpenStreamNoWait(s *SendStream, h NewStream, body []byte, end bool) (sent int, err error) {
	o.mu.Lock()
	if err := o.assignID(s, h); err != nil {
		o.mu.Unlock()
		return 0, err
	}
	o.encoder.begin()
	h.EncodeHeaders(o.encoder)
	o.headerBlock(s.ID, o.encoder.block, end && len(body) == 0)
	if len(body) > 0 {
		sent = len(body) - len(o.dataFramesOf(s, body, end))
	}
	s.ended = end && sent == len(body)
	return sent, o.flush()
}

// ErrNoMoreStreams is a connection that has used up its stream ids.
var ErrNoMoreStreams = ConnError{NoError, "the connection has used up its streams"}

// WriteHeaders sends HEADERS, for a message's head or its trailers, and DATA. end ends the stream.
func (o *Writer) WriteHeaders(s *SendStream, h HeaderBlock, body []byte, end bool) error {
	o.mu.Lock()
	if err := o.waitSpace(s); err != nil {
		o.mu.Unlock()
		return err
	}
	return o.message(s, h, body, end)
}

// message is called with mu held, which it releases.
func (o *Writer) message(s *SendStream, h HeaderBlock, body []byte, end bool) error {
	o.encoder.begin()
	h.EncodeHeaders(o.encoder)
	o.headerBlock(s.ID, o.encoder.block, end && len(body) == 0)
	if len(body) > 0 {
		return o.data(s, body, end)
	}
	s.ended = s.ended || end
	return o.flush()
}

// headerBlock appends a header block as HEADERS and as many CONTINUATIONs as it needs. Called with mu held.
func (o *Writer) headerBlock(stream uint32, b []byte, end bool) {
	t, flags := Headers, uint8(0)
	if end {
		flags = FlagEndStream
	}
	for {
		n := min(len(b), o.maxFrame)
		if n == len(b) {
			flags |= FlagEndHeaders
		}
		o.header(t, flags, stream, n)
		o.put(b[:n]...)
		if b = b[n:]; len(b) == 0 {
			o.encoder.blockWritten()
			return
		}
		t, flags = Continuation, 0
	}
}

// WriteData sends p, and waits for windows. end ends the stream.
func (o *Writer) WriteData(s *SendStream, p []byte, end bool) error {
	o.mu.Lock()
	return o.data(s, p, end)
}

// data is called with mu held, which it releases.
func (o *Writer) data(s *SendStream, p []byte, end bool) error {
	for {
		if err := o.waitSpace(s); err != nil {
			o.wakeNext()
			o.mu.Unlock()
			return err
		}
		if p = o.dataFramesOf(s, p, end); len(p) == 0 {
			s.ended = s.ended || end
			return o.flush()
		}
		if err := o.waitForWindow(s); err != nil {
			return err
		}
	}
}

// dataFramesOf appends p as far as windows and the room let it be, and returns what is left. Called with mu held.
func (o *Writer) dataFramesOf(s *SendStream, p []byte, end bool) []byte {
	for {
		n := int(max(0, min(int64(len(p)), o.sendable(s), int64(o.maxFrame)))) // a window may be less than nothing
		if n == 0 && len(p) > 0 {
			break
		}
		var flags uint8
		if end && n == len(p) {
			flags = FlagEndStream
		}
		if n > 0 || end {
			o.header(Data, flags, s.ID, n)
			o.put(p[:n]...)
			if n == len(p) || n >= minCountedData {
				o.dataFrames++
			}
			o.dataBytes += uint64(n)
		}
		s.sent += int64(n)
		o.window -= int64(n)
		if p = p[n:]; len(p) == 0 || o.buffered() >= maxBuffered {
			break
		}
	}
	o.wakeNext()
	return p
}

// minCountedData is how small a window may make a frame of DATA for which updates are expected: those that let a few bytes be sent
// would otherwise pay for each other (Answerable).
const minCountedData = 32

func (o *Writer) sendable(s *SendStream) int64 { return min(o.window, o.streamWindow(s)) }

// streamWindow is the window of s itself.
func (o *Writer) streamWindow(s *SendStream) int64 { return o.initialWindow + s.updates - s.sent }

// waitSpace waits until what waits is little. Called with mu held.
func (o *Writer) waitSpace(s *SendStream) error {
	for o.err == nil && s.err == nil && o.buffered() >= maxBuffered && o.writing {
		o.spaceFreed.Wait()
	}
	if o.err != nil {
		return o.err
	}
	return s.err
}

// waitForWindow writes what waits, and then waits until s may send. Called with mu held, which it holds when it returns nil.
func (o *Writer) waitForWindow(s *SendStream) error {
	if err := o.flush(); err != nil {
		return err
	}
	o.mu.Lock()
	s.blocked = true
	for first := true; o.err == nil && s.err == nil && o.sendable(s) <= 0; first = false {
		if s.wake == nil {
			s.wake = make(chan struct{}, 1)
		}
		o.enqueue(s, first)
		o.mu.Unlock()
		<-s.wake
		o.mu.Lock()
		o.dequeue(s)
	}
	s.blocked = false
	return nil // what happened is found by waitRoom
}

// An update of the connection's window wakes one of those who wait for it, and whoever has sent what it could wakes the next one if
// something is left: what a frame costs does not depend on how many wait, and they have their turns in the order in which they came.

// enqueue has s wait: in the queue when the connection's window is what it lacks. Who was woken and came too late is the first again.
func (o *Writer) enqueue(s *SendStream, first bool) {
	s.waiting = true
	switch {
	case o.streamWindow(s) <= 0:
		s.queued = false
		o.streamBlocked = append(o.streamBlocked, s)
		o.wakeNext() // it may have been woken for the connection's window
	case first || !s.queued:
		s.queued = true
		o.connBlocked = append(o.connBlocked, s)
	default:
		o.connBlocked = slices.Insert(o.connBlocked, 0, s)
	}
}

// wakeNext wakes the first of those who wait for the connection's window, if there is any left. Called with mu held.
func (o *Writer) wakeNext() {
	if len(o.connBlocked) == 0 || o.window <= 0 {
		return
	}
	s := o.connBlocked[0]
	o.connBlocked = slices.Delete(o.connBlocked, 0, 1)
	s.wakeUp()
}

// windowOpened is told that the window of s itself has become larger, of those that wait.
func (o *Writer) windowOpened(s *SendStream) {
	if s.queued || o.streamWindow(s) <= 0 {
		return
	}
	o.streamBlocked = slices.DeleteFunc(o.streamBlocked, func(other *SendStream) bool { return other == s })
	if o.window > 0 {
		s.wakeUp()
		return
	}
	s.queued = true
	o.connBlocked = append(o.connBlocked, s)
}

// dequeue has s wait for nothing.
func (o *Writer) dequeue(s *SendStream) {
	if !s.waiting {
		return
	}
	s.waiting = false
	is := func(other *SendStream) bool { return other == s }
	o.streamBlocked, o.connBlocked = slices.DeleteFunc(o.streamBlocked, is), slices.DeleteFunc(o.connBlocked, is)
}
