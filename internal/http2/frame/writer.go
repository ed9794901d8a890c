package frame

import (
	"errors"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// fullAt is how much may wait to be written before messages wait too.
	fullAt = 64 << 10
	// floodAt is how many frames that the other side asks for (acknowledgements) may wait, since they do not wait for room,
	// before the connection ends: it does not read them. Headers of any size may wait with them.
	floodAt = 16 << 10
	// keptRoom bounds the rooms that are used again.
	keptRoom = 128 << 10
)

// ErrFlood is a connection whose other side asks for answers and does not read them.
var ErrFlood = ConnError{EnhanceYourCalm, "answers that were asked for are not read"}

// ErrClosed is what writing meets after Close.
var ErrClosed = errors.New("the connection is closed")

var rooms = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// Out writes the frames of a connection. Whoever has something to send appends it, and writes it together with what others
// append meanwhile, unless somebody is writing already, who then takes it along. Nobody hands anything to a goroutine whose
// only task is to write.
type Out struct {
	conn io.Writer
	// fail is told, once, of the first error of a write.
	fail func(error)

	mu       sync.Mutex // guards what follows
	room     sync.Cond  // there is room again, or there never will be
	buf      *[]byte    // what waits; nil: nothing
	asked    int        // frames in it that the other side asked for
	writing  bool
	err      error
	encoder  *Encoder
	window   int64 // the connection's
	widest   int64 // it has been
	initial  int64 // of streams
	maxFrame int
	starved  []*Sender // wait for a window of their own
	queue    []*Sender // wait for the connection's, in this order
	datas    uint64    // DATA frames that were appended, but for those that a window made small
	// dataBytes is how many bytes of bodies were.
	dataBytes uint64
	next      uint32 // the id of the client's next stream
	late      sync.WaitGroup

	crowd atomic.Int32 // see Expect
}

// NewOut writes to conn. first is the id of the first stream that Open makes, 0 on a server.
func NewOut(conn io.Writer, first uint32, fail func(error)) *Out {
	o := &Out{
		conn: conn, fail: fail, encoder: NewEncoder(), window: InitialWindow, widest: InitialWindow, initial: InitialWindow, maxFrame: MaxFrame, next: first,
	}
	o.room.L = &o.mu
	return o
}

// Expect adds n to the count of streams whose messages are being made. With more than one of them a writer lets the others
// go first, so that one system call carries what several have to say.
func (o *Out) Expect(n int) { o.crowd.Add(int32(n)) }

// put appends. Called with mu held.
func (o *Out) put(p ...byte) { *o.open() = append(*o.open(), p...) }

func (o *Out) open() *[]byte {
	if o.buf == nil {
		o.buf = rooms.Get().(*[]byte)
	}
	return o.buf
}

func (o *Out) pending() int {
	if o.buf == nil {
		return 0
	}
	return len(*o.buf)
}

// flush writes what waits, or leaves it to whoever is writing. Called with mu held, which it releases.
func (o *Out) flush() error {
	if o.writing || o.pending() == 0 || o.err != nil {
		err := o.err
		o.mu.Unlock()
		return err
	}
	o.writing = true
	if o.crowd.Load() > 1 {
		o.mu.Unlock()
		runtime.Gosched()
		o.mu.Lock()
	}
	return o.drain()
}

// drain writes until nothing waits. Called with mu held and writing set; it releases both.
func (o *Out) drain() error {
	var failed error
	for o.pending() > 0 && o.err == nil {
		b := o.buf
		o.buf, o.asked = nil, 0
		o.mu.Unlock()
		_, err := o.conn.Write(*b)
		if cap(*b) <= keptRoom {
			*b = (*b)[:0]
			rooms.Put(b)
		}
		o.mu.Lock()
		if err != nil && o.err == nil {
			o.err, failed = err, err
			o.wakeAll()
		}
		o.room.Broadcast()
	}
	o.writing = false
	o.room.Broadcast()
	err := o.err
	o.mu.Unlock()
	if failed != nil {
		o.fail(failed)
	}
	return err
}

// later is flush for the goroutine that reads, which must not wait for the other side to read: both could wait for each
// other. Called with mu held, which it releases.
func (o *Out) later() {
	if o.writing || o.pending() == 0 || o.err != nil {
		o.mu.Unlock()
		return
	}
	o.writing = true
	o.late.Go(func() {
		o.mu.Lock()
		_ = o.drain() // fail was told
	})
	o.mu.Unlock()
}

// Close has everybody who waits return with why, and what is not written stay unwritten.
func (o *Out) Close(why error) {
	o.mu.Lock()
	if o.err == nil {
		o.err = why
	}
	o.wakeAll()
	o.room.Broadcast()
	o.mu.Unlock()
}

// Flushed returns when everything is written, or nothing more can be.
func (o *Out) Flushed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && (o.writing || o.pending() > 0) {
		o.room.Wait()
	}
}

// Wait returns, after Close and when the connection is closed, when nothing is being written on the connection's own account.
func (o *Out) Wait() { o.late.Wait() }

// wakeAll has all who wait for windows find that there is an error.
func (o *Out) wakeAll() {
	for _, list := range []*[]*Sender{&o.starved, &o.queue} {
		for _, s := range *list {
			s.rouse()
		}
		clear(*list)
		*list = (*list)[:0]
	}
}

func (s *Sender) rouse() {
	s.waiting = false
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// head appends a frame's header. Called with mu held.
func (o *Out) head(t Type, flags uint8, stream uint32, length int) {
	o.put(byte(length>>16), byte(length>>8), byte(length), byte(t), flags,
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

func (o *Out) put32(v uint32) { o.put(byte(v>>24), byte(v>>16), byte(v>>8), byte(v)) }

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
