package frame

import (
	"slices"
)

// Inflow is a window of the receiving side: how much the other side may still send, and how much of what was consumed it
// has not been told of. It is guarded by its owner.
type Inflow struct {
	left   int64
	owed   int64
	notice int64 // how much is owed before it is worth a frame
}

// NewInflow is a window of size.
func NewInflow(size int64) Inflow { return Inflow{left: size, notice: max(1, size/4)} }

// Take counts n bytes that arrived. False: the other side sent more than it may.
func (f *Inflow) Take(n int) bool {
	if int64(n) > f.left {
		return false
	}
	f.left -= int64(n)
	return true
}

// Give counts n bytes that were consumed. The result, unless 0, is for a WINDOW_UPDATE frame that must be sent now.
func (f *Inflow) Give(n int) uint32 {
	f.owed += int64(n)
	if f.owed < f.notice {
		return 0
	}
	increment := f.owed
	f.owed = 0
	f.left += increment
	return uint32(increment)
}

// Sender is the sending half of a stream. Its fields are guarded by the Out.
type Sender struct {
	// ID is the stream's; the client's Out gives it in Open.
	ID      uint32
	credit  int64 // by WINDOW_UPDATE, beyond the initial window
	sent    int64
	waiting bool // it is in one of the Out's lists
	queued  bool // and that is the queue; or it was, and is to have its place again
	blocked bool // somebody has more to send than windows let them
	wake    chan struct{}
	err     error // why nothing more is sent
	ended   bool  // END_STREAM was sent
}

// Fields writes the fields of a header block, pseudo fields first.
type Fields interface {
	WriteFields(*Encoder)
}

// Opening is a stream that a client begins.
type Opening interface {
	Fields
	// Opened is told the stream's id before anything of it is written, under the Out's lock: it must not wait, nor use the
	// Out. An error begins no stream.
	Opened(id uint32) error
}

// Open begins a stream: HEADERS, and DATA as far as windows let it be; what is left of body is sent as windows open.
func (o *Out) Open(s *Sender, h Opening, body []byte, end bool) error {
	o.mu.Lock()
	if err := o.number(s, h); err != nil {
		o.mu.Unlock()
		return err
	}
	return o.message(s, h, body, end)
}

// number gives s its id, after there is room. Called with mu held.
func (o *Out) number(s *Sender, h Opening) error {
	if err := o.waitRoom(s); err != nil {
		return err
	}
	id := o.next
	if id > MaxStreamID {
		return ErrNoMoreStreams
	}
	if err := h.Opened(id); err != nil {
		return err
	}
	o.next += 2
	s.ID = id
	return nil
}

// Begin is Open that waits for no window: it reports how much of body they let be sent. The rest is for Data.
func (o *Out) Begin(s *Sender, h Opening, body []byte, end bool) (sent int, err error) {
	o.mu.Lock()
	if err := o.number(s, h); err != nil {
		o.mu.Unlock()
		return 0, err
	}
	o.encoder.begin()
	h.WriteFields(o.encoder)
	o.block(s.ID, o.encoder.block, end && len(body) == 0)
	if len(body) > 0 {
		sent = len(body) - len(o.frames(s, body, end))
	}
	s.ended = end && sent == len(body)
	return sent, o.flush()
}

// ErrNoMoreStreams is a connection that has used up its stream ids.
var ErrNoMoreStreams = ConnError{NoError, "the connection has used up its streams"}

// Message sends HEADERS, for a message's head or its trailers, and DATA. end ends the stream.
func (o *Out) Message(s *Sender, h Fields, body []byte, end bool) error {
	o.mu.Lock()
	if err := o.waitRoom(s); err != nil {
		o.mu.Unlock()
		return err
	}
	return o.message(s, h, body, end)
}

// message is called with mu held, which it releases.
func (o *Out) message(s *Sender, h Fields, body []byte, end bool) error {
	o.encoder.begin()
	h.WriteFields(o.encoder)
	o.block(s.ID, o.encoder.block, end && len(body) == 0)
	if len(body) > 0 {
		return o.data(s, body, end)
	}
	s.ended = s.ended || end
	return o.flush()
}

// block appends a header block as HEADERS and as many CONTINUATIONs as it needs. Called with mu held.
func (o *Out) block(stream uint32, b []byte, end bool) {
	t, flags := Headers, uint8(0)
	if end {
		flags = FlagEndStream
	}
	for {
		n := min(len(b), o.maxFrame)
		if n == len(b) {
			flags |= FlagEndHeaders
		}
		o.head(t, flags, stream, n)
		o.put(b[:n]...)
		if b = b[n:]; len(b) == 0 {
			o.encoder.wrote()
			return
		}
		t, flags = Continuation, 0
	}
}

// Data sends p, and waits for windows. end ends the stream.
func (o *Out) Data(s *Sender, p []byte, end bool) error {
	o.mu.Lock()
	return o.data(s, p, end)
}

// data is called with mu held, which it releases.
func (o *Out) data(s *Sender, p []byte, end bool) error {
	for {
		if err := o.waitRoom(s); err != nil {
			o.passOn()
			o.mu.Unlock()
			return err
		}
		if p = o.frames(s, p, end); len(p) == 0 {
			s.ended = s.ended || end
			return o.flush()
		}
		if err := o.waitWindow(s); err != nil {
			return err
		}
	}
}

// frames appends p as far as windows and the room let it be, and returns what is left. Called with mu held.
func (o *Out) frames(s *Sender, p []byte, end bool) []byte {
	for {
		n := int(max(0, min(int64(len(p)), o.allowed(s), int64(o.maxFrame)))) // a window may be less than nothing
		if n == 0 && len(p) > 0 {
			break
		}
		var flags uint8
		if end && n == len(p) {
			flags = FlagEndStream
		}
		if n > 0 || end {
			o.head(Data, flags, s.ID, n)
			o.put(p[:n]...)
			if n == len(p) || n >= leastAnswered {
				o.datas++
			}
			o.dataBytes += uint64(n)
		}
		s.sent += int64(n)
		o.window -= int64(n)
		if p = p[n:]; len(p) == 0 || o.pending() >= fullAt {
			break
		}
	}
	o.passOn()
	return p
}

// leastAnswered is how small a window may make a frame of DATA for which updates are expected: those that let a few bytes be sent
// would otherwise pay for each other (Answerable).
const leastAnswered = 32

func (o *Out) allowed(s *Sender) int64 { return min(o.window, o.own(s)) }

// own is the window of s itself.
func (o *Out) own(s *Sender) int64 { return o.initial + s.credit - s.sent }

// waitRoom waits until what waits is little. Called with mu held.
func (o *Out) waitRoom(s *Sender) error {
	for o.err == nil && s.err == nil && o.pending() >= fullAt && o.writing {
		o.room.Wait()
	}
	if o.err != nil {
		return o.err
	}
	return s.err
}

// waitWindow writes what waits, and then waits until s may send. Called with mu held, which it holds when it returns nil.
func (o *Out) waitWindow(s *Sender) error {
	if err := o.flush(); err != nil {
		return err
	}
	o.mu.Lock()
	s.blocked = true
	for first := true; o.err == nil && s.err == nil && o.allowed(s) <= 0; first = false {
		if s.wake == nil {
			s.wake = make(chan struct{}, 1)
		}
		o.await(s, first)
		o.mu.Unlock()
		<-s.wake
		o.mu.Lock()
		o.remove(s)
	}
	s.blocked = false
	return nil // what happened is found by waitRoom
}

// An update of the connection's window wakes one of those who wait for it, and whoever has sent what it could wakes the next one if
// something is left: what a frame costs does not depend on how many wait, and they have their turns in the order in which they came.

// await has s wait: in the queue when the connection's window is what it lacks. Who was woken and came too late is the first again.
func (o *Out) await(s *Sender, first bool) {
	s.waiting = true
	switch {
	case o.own(s) <= 0:
		s.queued = false
		o.starved = append(o.starved, s)
		o.passOn() // it may have been woken for the connection's window
	case first || !s.queued:
		s.queued = true
		o.queue = append(o.queue, s)
	default:
		o.queue = slices.Insert(o.queue, 0, s)
	}
}

// passOn wakes the first of those who wait for the connection's window, if there is any left. Called with mu held.
func (o *Out) passOn() {
	if len(o.queue) == 0 || o.window <= 0 {
		return
	}
	s := o.queue[0]
	o.queue = slices.Delete(o.queue, 0, 1)
	s.rouse()
}

// opened is told that the window of s itself has become larger, of those that wait.
func (o *Out) opened(s *Sender) {
	if s.queued || o.own(s) <= 0 {
		return
	}
	o.starved = slices.DeleteFunc(o.starved, func(other *Sender) bool { return other == s })
	if o.window > 0 {
		s.rouse()
		return
	}
	s.queued = true
	o.queue = append(o.queue, s)
}

// remove has s wait for nothing.
func (o *Out) remove(s *Sender) {
	if !s.waiting {
		return
	}
	s.waiting = false
	is := func(other *Sender) bool { return other == s }
	o.starved, o.queue = slices.DeleteFunc(o.starved, is), slices.DeleteFunc(o.queue, is)
}
