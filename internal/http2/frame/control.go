package frame

import "slices"

// Frames that are no message.

// Settings sends ours. It is not flushed when more follows at once.
func (o *Out) Settings(more bool, list ...Setting) error {
	o.mu.Lock()
	o.head(Settings, 0, 0, 6*len(list))
	for _, s := range list {
		o.put(byte(s.ID>>8), byte(s.ID))
		o.put32(s.Value)
	}
	if more {
		o.mu.Unlock()
		return nil
	}
	return o.flush()
}

// Greet sends the client's preface, unflushed.
func (o *Out) Greet() {
	o.mu.Lock()
	o.put([]byte(Preface)...)
	o.mu.Unlock()
}

// Ping sends a PING.
func (o *Out) Ping(data [8]byte) error {
	o.mu.Lock()
	o.head(Ping, 0, 0, 8)
	o.put(data[:]...)
	return o.flush()
}

// Probe is Ping that does not wait.
func (o *Out) Probe(data [8]byte) error {
	o.mu.Lock()
	o.head(Ping, 0, 0, 8)
	o.put(data[:]...)
	return o.answered()
}

// Settled acknowledges settings and applies them. It is for the goroutine that reads. Streams that wait for a window are woken
// once, however often the list changes it, and only by one that has grown (CVE-2026-78669).
func (o *Out) Settled(list []Setting) error {
	o.mu.Lock()
	before := o.initial
	for _, s := range list {
		switch s.ID {
		case HeaderTableSize:
			o.encoder.SetTableSize(s.Value)
		case InitialWindowSize:
			o.initial = int64(s.Value)
		case MaxFrameSize:
			o.maxFrame = min(int(s.Value), MaxFrame)
		}
	}
	if o.initial > before {
		o.reopened()
	}
	o.head(Settings, FlagAck, 0, 0)
	return o.answered()
}

// reopened is told that the initial window is another one.
func (o *Out) reopened() {
	all := slices.Clone(o.starved)
	for _, s := range all {
		o.opened(s)
	}
}

// Pong answers a PING. It is for the goroutine that reads.
func (o *Out) Pong(data []byte) error {
	o.mu.Lock()
	o.head(Ping, FlagAck, 0, 8)
	o.put(data[:8]...)
	return o.answered()
}

// Reset ends a stream. It does not wait.
func (o *Out) Reset(stream uint32, code Code) error {
	o.mu.Lock()
	o.head(RSTStream, 0, stream, 4)
	o.put32(uint32(code))
	return o.answered()
}

// Credit allows the other side to send more, on the connection when stream is 0. It does not wait.
func (o *Out) Credit(stream, increment uint32) error {
	o.mu.Lock()
	o.credit(stream, increment)
	return o.answered()
}

// Credits is Credit for a stream and its connection; 0 is none.
func (o *Out) Credits(stream, increment, connection uint32) error {
	o.mu.Lock()
	if increment > 0 {
		o.credit(stream, increment)
	}
	if connection > 0 {
		o.credit(0, connection)
	}
	return o.answered()
}

func (o *Out) credit(stream, increment uint32) {
	o.head(WindowUpdate, 0, stream, 4)
	o.put32(increment)
}

// GoAway says which stream was the last. It does not wait.
func (o *Out) GoAway(last uint32, code Code, why string) error {
	o.mu.Lock()
	o.head(GoAway, 0, 0, 8+len(why))
	o.put32(last)
	o.put32(uint32(code))
	o.put([]byte(why)...)
	return o.answered()
}

// answered flushes without waiting, and finds a flood. Called with mu held, which it releases.
func (o *Out) answered() error {
	if err := o.err; err != nil {
		o.mu.Unlock()
		return err
	}
	if o.asked++; o.asked > floodAt {
		o.mu.Unlock()
		return ErrFlood
	}
	o.later()
	return nil
}

// Window counts a WINDOW_UPDATE of the connection.
func (o *Out) Window(increment uint32) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.window+int64(increment) > MaxWindow {
		return ConnError{FlowControlError, "the connection's window is too large"}
	}
	o.window += int64(increment)
	o.widest = max(o.widest, o.window)
	o.passOn()
	return nil
}

// ConnWindow is how much the connection's window lets be sent now, and did at the most.
func (o *Out) ConnWindow() (now, widest int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.window, o.widest
}

// StreamWindow counts a WINDOW_UPDATE of a stream.
func (o *Out) StreamWindow(s *Sender, increment uint32) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.initial+s.credit-s.sent+int64(increment) > MaxWindow {
		return StreamError{Stream: s.ID, Code: FlowControlError, Why: "the stream's window is too large"}
	}
	s.credit += int64(increment)
	if s.waiting {
		o.opened(s)
	}
	return nil
}

// Exceeds reports whether a change of the initial window has made the one of s too large.
func (o *Out) Exceeds(s *Sender) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.initial+s.credit-s.sent > MaxWindow
}

// Failed is why s cannot send any more, or nil.
func (o *Out) Failed(s *Sender) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return o.err
}

// Ended reports whether the end of s is sent, or about to be.
func (o *Out) Ended(s *Sender) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return s.ended
}

// Progress is how many bytes of bodies s has sent, and whether it waits for a window to send more.
func (o *Out) Progress(s *Sender) (sent int64, blocked bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return s.sent, s.blocked
}

// Answerable is how many WINDOW_UPDATEs the other side may have sent for the DATA that was, or is about to be: two for each frame,
// and, for those who read frames piece by piece, one for each KiB. The Go library sends one for each 4 KiB, and for the connection.
// Frames that a window of less than 32 bytes made small do not count.
func (o *Out) Answerable() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return 2*o.datas + o.dataBytes>>10
}

// Updates counts the WINDOW_UPDATEs of the other side against what explains them.
type Updates struct{ came uint64 }

// mostSaved is how many of them may come late. Whoever downloads for hours saves up no more of them: so many explain that 256 MiB
// were sent and are read only now, a KiB at a time.
const mostSaved = 256 << 10

// Explained counts one, and reports whether the DATA that o sent explains it.
func (u *Updates) Explained(o *Out) bool {
	most := o.Answerable()
	if most > mostSaved {
		u.came = max(u.came, most-mostSaved)
	}
	u.came++
	return u.came <= most
}

// Abort has everything that s sends, or waits to send, end with why. It reports whether END_STREAM was sent before.
func (o *Out) Abort(s *Sender, why error) (ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.err == nil {
		s.err = why
	}
	if s.waiting {
		o.remove(s)
		s.rouse()
	}
	o.room.Broadcast() // it may wait for room
	return s.ended
}
