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
	// maxBuffered is how much may wait to be written before messages wait too.
	maxBuffered = 64 << 10
	// maxReplies is how many frames that the other side asks for (acknowledgements) may wait, since they do not wait for room,
	// before the connection ends: it does not read them. Headers of any size may wait with them.
	maxReplies = 16 << 10
	// maxPooledBuffer bounds the rooms that are used again.
	maxPooledBuffer = 128 << 10
)

// ErrFlood is a connection whose other side asks for answers and does not read them.
var ErrFlood = ConnError{EnhanceYourCalm, "answers that were asked for are not read"}

// ErrClosed is what writing meets after Close.
var ErrClosed = errors.New("the connection is closed")

var bufferPool = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// Writer writes the frames of a connection. Whoever has something to send appends it, and writes it together with what others
// append meanwhile, unless somebody is writing already, who then takes it along. Nobody hands anything to a goroutine whose
// only task is to write.
type Writer struct {
	conn io.Writer
	// fail is told, once, of the first error of a write.
	fail func(error)

	mu            sync.Mutex // guards what follows
	spaceFreed    sync.Cond  // there is room again, or there never will be
	buf           *[]byte    // what waits; nil: nothing
	replies       int        // frames in it that the other side asked for
	writing       bool
	err           error
	encoder       *Encoder
	window        int64 // the connection's
	maxSeenWindow int64 // it has been
	initialWindow int64 // of streams
	maxFrame      int
	streamBlocked []*SendStream // wait for a window of their own
	connBlocked   []*SendStream // wait for the connection's, in this order
	dataFrames    uint64        // DATA frames that were appended, but for those that a window made small
	// dataBytes is how many bytes of bodies were.
	dataBytes  uint64
	nextID     uint32 // the id of the client's next stream
	background sync.WaitGroup

	activeStreams atomic.Int32 // see Expect
}

// NewWriter writes to conn. first is the id of the first stream that Open makes, 0 on a server.
func NewWriter(conn io.Writer, first uint32, fail func(error)) *Writer {
	o := &Writer{
		conn: conn, fail: fail, encoder: NewEncoder(), window: InitialWindow, maxSeenWindow: InitialWindow, initialWindow: InitialWindow, maxFrame: MaxFrame, nextID: first,
	}
	o.spaceFreed.L = &o.mu
	return o
}

// AddActive adds n to the count of streams whose messages are being made. With more than one of them a writer lets the others
// go first, so that one system call carries what several have to say.
func (o *Writer) AddActive(n int) { o.activeStreams.Add(int32(n)) }

// put appends. Called with mu held.
func (o *Writer) put(p ...byte) { *o.buffer() = append(*o.buffer(), p...) }

func (o *Writer) buffer() *[]byte {
	if o.buf == nil {
		o.buf = bufferPool.Get().(*[]byte)
	}
	return o.buf
}

func (o *Writer) buffered() int {
	if o.buf == nil {
		return 0
	}
	return len(*o.buf)
}

// flush writes what waits, or leaves it to whoever is writing. Called with mu held, which it releases.
func (o *Writer) flush() error {
	if o.writing || o.buffered() == 0 || o.err != nil {
		err := o.err
		o.mu.Unlock()
		return err
	}
	o.writing = true
	if o.activeStreams.Load() > 1 {
		o.mu.Unlock()
		runtime.Gosched()
		o.mu.Lock()
	}
	return o.drain()
}

// drain writes until nothing waits. Called with mu held and writing set; it releases both.
func (o *Writer) drain() error {
	var failed error
	for o.buffered() > 0 && o.err == nil {
		b := o.buf
		o.buf, o.replies = nil, 0
		o.mu.Unlock()
		_, err := o.conn.Write(*b)
		if cap(*b) <= maxPooledBuffer {
			*b = (*b)[:0]
			bufferPool.Put(b)
		}
		o.mu.Lock()
		if err != nil && o.err == nil {
			o.err, failed = err, err
			o.wakeAll()
		}
		o.spaceFreed.Broadcast()
	}
	o.writing = false
	o.spaceFreed.Broadcast()
	err := o.err
	o.mu.Unlock()
	if failed != nil {
		o.fail(failed)
	}
	return err
}

// later is flush for the goroutine that reads, which must not wait for the other side to read: both could wait for each
// other. Called with mu held, which it releases.
func (o *Writer) later() {
	if o.writing || o.buffered() == 0 || o.err != nil {
		o.mu.Unlock()
		return
	}
	o.writing = true
	o.background.Go(func() {
		o.mu.Lock()
		_ = o.drain() // fail was told
	})
	o.mu.Unlock()
}

// Close has everybody who waits return with why, and what is not written stay unwritten.
func (o *Writer) Close(why error) {
	o.mu.Lock()
	if o.err == nil {
		o.err = why
	}
	o.wakeAll()
	o.spaceFreed.Broadcast()
	o.mu.Unlock()
}

// WaitFlushed returns when everything is written, or nothing more can be.
func (o *Writer) WaitFlushed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && (o.writing || o.buffered() > 0) {
		o.spaceFreed.Wait()
	}
}

// Wait returns, after Close and when the connection is closed, when nothing is being written on the connection's own account.
func (o *Writer) Wait() { o.background.Wait() }

// wakeAll has all who wait for windows find that there is an error.
func (o *Writer) wakeAll() {
	for _, list := range []*[]*SendStream{&o.streamBlocked, &o.connBlocked} {
		for _, s := range *list {
			s.wakeUp()
		}
		clear(*list)
		*list = (*list)[:0]
	}
}

func (s *SendStream) wakeUp() {
	s.waiting = false
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// header appends a frame's header. Called with mu held.
func (o *Writer) header(t Type, flags uint8, stream uint32, length int) {
	o.put(byte(length>>16), byte(length>>8), byte(length), byte(t), flags,
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

func (o *Writer) put32(v uint32) { o.put(byte(v>>24), byte(v>>16), byte(v>>8), byte(v)) }

// Frames that are no message.

// WriteSettings sends ours. It is not flushed when more follows at once.
func (o *Writer) WriteSettings(more bool, list ...Setting) error {
	o.mu.Lock()
	o.header(Settings, 0, 0, 6*len(list))
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

// WritePreface sends the client's preface, unflushed.
func (o *Writer) WritePreface() {
	o.mu.Lock()
	o.put([]byte(Preface)...)
	o.mu.Unlock()
}

// WritePing sends a PING.
func (o *Writer) WritePing(data [8]byte) error {
	o.mu.Lock()
	o.header(Ping, 0, 0, 8)
	o.put(data[:]...)
	return o.flush()
}

// WritePingNoWait is Ping that does not wait.
func (o *Writer) WritePingNoWait(data [8]byte) error {
	o.mu.Lock()
	o.header(Ping, 0, 0, 8)
	o.put(data[:]...)
	return o.answered()
}

// AckSettings acknowledges settings and applies them. It is for the goroutine that reads. Streams that wait for a window are woken
// once, however often the list changes it, and only by one that has grown (CVE-2026-78669).
func (o *Writer) AckSettings(list []Setting) error {
	o.mu.Lock()
	before := o.initialWindow
	for _, s := range list {
		switch s.ID {
		case HeaderTableSize:
			o.encoder.SetTableSize(s.Value)
		case InitialWindowSize:
			o.initialWindow = int64(s.Value)
		case MaxFrameSize:
			o.maxFrame = min(int(s.Value), MaxFrame)
		}
	}
	if o.initialWindow > before {
		o.initialWindowGrew()
	}
	o.header(Settings, FlagAck, 0, 0)
	return o.answered()
}

// initialWindowGrew is told that the initial window is another one.
func (o *Writer) initialWindowGrew() {
	all := slices.Clone(o.streamBlocked)
	for _, s := range all {
		o.windowOpened(s)
	}
}

// WritePingAck answers a PING. It is for the goroutine that reads.
func (o *Writer) WritePingAck(data []byte) error {
	o.mu.Lock()
	o.header(Ping, FlagAck, 0, 8)
	o.put(data[:8]...)
	return o.answered()
}

// WriteRSTStream ends a stream. It does not wait.
func (o *Writer) WriteRSTStream(stream uint32, code Code) error {
	o.mu.Lock()
	o.header(RSTStream, 0, stream, 4)
	o.put32(uint32(code))
	return o.answered()
}

// WriteWindowUpdate allows the other side to send more, on the connection when stream is 0. It does not wait.
func (o *Writer) WriteWindowUpdate(stream, increment uint32) error {
	o.mu.Lock()
	o.windowUpdate(stream, increment)
	return o.answered()
}

// WriteWindowUpdates is Credit for a stream and its connection; 0 is none.
func (o *Writer) WriteWindowUpdates(stream, increment, connection uint32) error {
	o.mu.Lock()
	if increment > 0 {
		o.windowUpdate(stream, increment)
	}
	if connection > 0 {
		o.windowUpdate(0, connection)
	}
	return o.answered()
}

func (o *Writer) windowUpdate(stream, increment uint32) {
	o.header(WindowUpdate, 0, stream, 4)
	o.put32(increment)
}

// WriteGoAway says which stream was the last. It does not wait.
func (o *Writer) WriteGoAway(last uint32, code Code, why string) error {
	o.mu.Lock()
	o.header(GoAway, 0, 0, 8+len(why))
	o.put32(last)
	o.put32(uint32(code))
	o.put([]byte(why)...)
	return o.answered()
}

// answered flushes without waiting, and finds a flood. Called with mu held, which it releases.
func (o *Writer) answered() error {
	if err := o.err; err != nil {
		o.mu.Unlock()
		return err
	}
	if o.replies++; o.replies > maxReplies {
		o.mu.Unlock()
		return ErrFlood
	}
	o.later()
	return nil
}

// AddConnWindow counts a WINDOW_UPDATE of the connection.
func (o *Writer) AddConnWindow(increment uint32) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.window+int64(increment) > MaxWindow {
		return ConnError{FlowControlError, "the connection's window is too large"}
	}
	o.window += int64(increment)
	o.maxSeenWindow = max(o.maxSeenWindow, o.window)
	o.wakeNext()
	return nil
}

// ConnWindow is how much the connection's window lets be sent now, and did at the most.
func (o *Writer) ConnWindow() (now, widest int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.window, o.maxSeenWindow
}

// AddStreamWindow counts a WINDOW_UPDATE of a stream.
func (o *Writer) AddStreamWindow(s *SendStream, increment uint32) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.initialWindow+s.updates-s.sent+int64(increment) > MaxWindow {
		return StreamError{Stream: s.ID, Code: FlowControlError, Reason: "the stream's window is too large"}
	}
	s.updates += int64(increment)
	if s.waiting {
		o.windowOpened(s)
	}
	return nil
}

// WindowOverflows reports whether a change of the initial window has made the one of s too large.
func (o *Writer) WindowOverflows(s *SendStream) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.initialWindow+s.updates-s.sent > MaxWindow
}

// StreamErr is why s cannot send any more, or nil.
func (o *Writer) StreamErr(s *SendStream) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return o.err
}

// Ended reports whether the end of s is sent, or about to be.
func (o *Writer) Ended(s *SendStream) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return s.ended
}

// Progress is how many bytes of bodies s has sent, and whether it waits for a window to send more.
func (o *Writer) Progress(s *SendStream) (sent int64, blocked bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return s.sent, s.blocked
}

// AllowedUpdates is how many WINDOW_UPDATEs the other side may have sent for the DATA that was, or is about to be: two for each frame,
// and, for those who read frames piece by piece, one for each KiB. The Go library sends one for each 4 KiB, and for the connection.
// Frames that a window of less than 32 bytes made small do not count.
func (o *Writer) AllowedUpdates() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return 2*o.dataFrames + o.dataBytes>>10
}

// UpdateCounter counts the WINDOW_UPDATEs of the other side against what explains them.
type UpdateCounter struct{ received uint64 }

// maxSavedUpdates is how many of them may come late. Whoever downloads for hours saves up no more of them: so many explain that 256 MiB
// were sent and are read only now, a KiB at a time.
const maxSavedUpdates = 256 << 10

// Explained counts one, and reports whether the DATA that o sent explains it.
func (u *UpdateCounter) Explained(o *Writer) bool {
	most := o.AllowedUpdates()
	if most > maxSavedUpdates {
		u.received = max(u.received, most-maxSavedUpdates)
	}
	u.received++
	return u.received <= most
}

// Abort has everything that s sends, or waits to send, end with why. It reports whether END_STREAM was sent before.
func (o *Writer) Abort(s *SendStream, why error) (ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.err == nil {
		s.err = why
	}
	if s.waiting {
		o.dequeue(s)
		s.wakeUp()
	}
	o.spaceFreed.Broadcast() // it may wait for room
	return s.ended
}
