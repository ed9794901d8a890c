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
	// maxBuffered is the number of bytes that may be buffered before HEADERS and DATA wait for space.
	maxBuffered = 64 << 10
	// maxReplies is the maximum number of buffered replies to the peer's frames (acknowledgements, resets), which do not
	// wait for space. If it is exceeded, the connection ends, because the peer does not read them. Headers of any size may
	// be buffered with them.
	maxReplies = 16 << 10
	// maxPooledBuffer limits the buffers that are reused.
	maxPooledBuffer = 128 << 10
)

// ErrFlood ends a connection if the peer requests replies and does not read them.
var ErrFlood = ConnError{EnhanceYourCalm, "answers that were asked for are not read"}

// ErrClosed is returned by writes after Close.
var ErrClosed = errors.New("the connection is closed")

var bufferPool = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// Writer writes the frames of a connection. A goroutine appends its frames to a buffer and writes the buffer, unless
// another goroutine is already writing, which then writes it too. No goroutine exists only for writing.
//
// The methods that return without waiting for the peer (WritePingNoWait, WriteRSTStream, WriteWindowUpdate, ...) are for
// the goroutine that reads: if both ends waited for each other to read, the connection would deadlock.
type Writer struct {
	conn io.Writer
	// fail is called once, with the first error of a write.
	fail func(error)

	mu            sync.Mutex // guards the fields below
	spaceFreed    sync.Cond  // signaled when the buffer was written, or cannot be written
	buf           *[]byte    // frames to be written, or nil
	replies       int        // number of replies in buf
	writing       bool       // a goroutine is in drain
	err           error
	encoder       *Encoder
	window        int64 // the connection's send window
	maxSeenWindow int64 // the largest value of window so far
	initialWindow int64 // of streams
	maxFrame      int
	streamBlocked []*SendStream // streams that wait for their window
	connBlocked   []*SendStream // streams that wait for the connection's window, in order of arrival
	dataFrames    uint64        // DATA frames appended, except small ones caused by a tiny window (AllowedUpdates)
	dataBytes     uint64        // bytes of DATA appended
	nextID        uint32        // the next stream id of a client
	background    sync.WaitGroup

	activeStreams atomic.Int32 // see AddActive
}

// NewWriter returns a Writer to conn. first is the first stream id of a client, 0 on a server.
func NewWriter(conn io.Writer, first uint32, fail func(error)) *Writer {
	w := &Writer{
		conn: conn, fail: fail, encoder: NewEncoder(), maxFrame: MaxFrame, nextID: first,
		window: InitialWindow, maxSeenWindow: InitialWindow, initialWindow: InitialWindow,
	}
	w.spaceFreed.L = &w.mu
	return w
}

// AddActive adds n to the number of streams that are about to write. If there is more than one, a writer yields first, so
// that one system call carries the frames of several streams.
func (w *Writer) AddActive(n int) { w.activeStreams.Add(int32(n)) }

// Methods that require mu return with it held. Some release it while they wait, like sync.Cond.Wait.

// put appends bytes. The caller must hold mu.
func (w *Writer) put(p ...byte) { *w.buffer() = append(*w.buffer(), p...) }

func (w *Writer) buffer() *[]byte {
	if w.buf == nil {
		w.buf = bufferPool.Get().(*[]byte)
	}
	return w.buf
}

func (w *Writer) buffered() int {
	if w.buf == nil {
		return 0
	}
	return len(*w.buf)
}

// flush writes the buffered data, or leaves it to the goroutine that is writing. The caller must hold mu, which is released
// while it writes.
func (w *Writer) flush() error {
	if w.writing || w.buffered() == 0 || w.err != nil {
		return w.err
	}
	w.writing = true
	if w.activeStreams.Load() > 1 {
		w.mu.Unlock()
		runtime.Gosched()
		w.mu.Lock()
	}
	return w.drain()
}

// drain writes until the buffer is empty, and resets writing, which its caller has set. The caller must hold mu, which is
// released while it writes.
func (w *Writer) drain() error {
	failed := false
	for w.buffered() > 0 && w.err == nil {
		b := w.buf
		w.buf, w.replies = nil, 0
		w.mu.Unlock()
		_, err := w.conn.Write(*b)
		if cap(*b) <= maxPooledBuffer {
			*b = (*b)[:0]
			bufferPool.Put(b)
		}
		w.mu.Lock()
		if err != nil && w.err == nil {
			w.err, failed = err, true
			w.wakeAll()
		}
		w.spaceFreed.Broadcast()
	}
	w.writing = false
	w.spaceFreed.Broadcast()
	err := w.err
	if failed {
		w.mu.Unlock()
		w.fail(err)
		w.mu.Lock()
	}
	return err
}

// flushInBackground is flush for the goroutine that reads, which must not wait for the peer to read. The caller must hold
// mu.
func (w *Writer) flushInBackground() {
	if w.writing || w.buffered() == 0 || w.err != nil {
		return
	}
	w.writing = true
	w.background.Go(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		_ = w.drain() // fail was called
	})
}

// Close makes every waiting call return with why. Buffered data is not written.
func (w *Writer) Close(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = why
	}
	w.wakeAll()
	w.spaceFreed.Broadcast()
}

// WaitFlushed returns when all data is written, or no more data can be written.
func (w *Writer) WaitFlushed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && (w.writing || w.buffered() > 0) {
		w.spaceFreed.Wait()
	}
}

// Wait returns when no background write is in progress. It must be called after Close and after the connection was closed.
func (w *Writer) Wait() { w.background.Wait() }

// wakeAll wakes all streams that wait for a window, because there is an error. The caller must hold mu.
func (w *Writer) wakeAll() {
	for _, list := range []*[]*SendStream{&w.streamBlocked, &w.connBlocked} {
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

// header appends a frame's header. The caller must hold mu.
func (w *Writer) header(t Type, flags uint8, stream uint32, length int) {
	w.put(byte(length>>16), byte(length>>8), byte(length), byte(t), flags,
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

func (w *Writer) put32(v uint32) { w.put(byte(v>>24), byte(v>>16), byte(v>>8), byte(v)) }

// WriteSettings sends SETTINGS. If more is set, it stays in the buffer, because another frame follows immediately.
func (w *Writer) WriteSettings(more bool, list ...Setting) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.header(Settings, 0, 0, 6*len(list))
	for _, s := range list {
		w.put(byte(s.ID>>8), byte(s.ID))
		w.put32(s.Value)
	}
	if more {
		return nil
	}
	return w.flush()
}

// WritePreface appends the client's preface, without a flush.
func (w *Writer) WritePreface() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put([]byte(Preface)...)
}

// WritePing sends a PING.
func (w *Writer) WritePing(data [8]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.header(Ping, 0, 0, 8)
	w.put(data[:]...)
	return w.flush()
}

// WritePingNoWait is like WritePing, but does not wait for the peer.
func (w *Writer) WritePingNoWait(data [8]byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.header(Ping, 0, 0, 8)
	w.put(data[:]...)
	return w.reply()
}

// AckSettings applies the peer's settings and acknowledges them. Streams that wait for a window are woken once, however
// often the list changes the initial window, and only if it has grown (CVE-2026-78669).
func (w *Writer) AckSettings(list []Setting) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.initialWindow
	for _, s := range list {
		switch s.ID {
		case HeaderTableSize:
			w.encoder.SetTableSize(s.Value)
		case InitialWindowSize:
			w.initialWindow = int64(s.Value)
		case MaxFrameSize:
			w.maxFrame = min(int(s.Value), MaxFrame)
		}
	}
	if w.initialWindow > before {
		w.initialWindowGrew()
	}
	w.header(Settings, FlagAck, 0, 0)
	return w.reply()
}

// initialWindowGrew wakes the streams that may send now. The caller must hold mu.
func (w *Writer) initialWindowGrew() {
	for _, s := range slices.Clone(w.streamBlocked) {
		w.windowOpened(s)
	}
}

// WritePingAck answers a PING.
func (w *Writer) WritePingAck(data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.header(Ping, FlagAck, 0, 8)
	w.put(data[:8]...)
	return w.reply()
}

// WriteRSTStream resets a stream.
func (w *Writer) WriteRSTStream(stream uint32, code Code) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.header(RSTStream, 0, stream, 4)
	w.put32(uint32(code))
	return w.reply()
}

// WriteWindowUpdate allows the peer to send more, on the connection if stream is 0.
func (w *Writer) WriteWindowUpdate(stream, increment uint32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.windowUpdate(stream, increment)
	return w.reply()
}

// WriteWindowUpdates is WriteWindowUpdate for a stream and its connection. An increment of 0 sends nothing.
func (w *Writer) WriteWindowUpdates(stream, increment, connection uint32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if increment > 0 {
		w.windowUpdate(stream, increment)
	}
	if connection > 0 {
		w.windowUpdate(0, connection)
	}
	return w.reply()
}

func (w *Writer) windowUpdate(stream, increment uint32) {
	w.header(WindowUpdate, 0, stream, 4)
	w.put32(increment)
}

// WriteGoAway sends GOAWAY with the last stream that is processed.
func (w *Writer) WriteGoAway(last uint32, code Code, why string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.header(GoAway, 0, 0, 8+len(why))
	w.put32(last)
	w.put32(uint32(code))
	w.put([]byte(why)...)
	return w.reply()
}

// reply flushes in the background, and detects a peer that does not read replies. The caller must hold mu.
func (w *Writer) reply() error {
	if w.err != nil {
		return w.err
	}
	if w.replies++; w.replies > maxReplies {
		return ErrFlood
	}
	w.flushInBackground()
	return nil
}

// AddConnWindow applies a WINDOW_UPDATE for the connection.
func (w *Writer) AddConnWindow(increment uint32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.window+int64(increment) > MaxWindow {
		return ConnError{FlowControlError, "the connection's window is too large"}
	}
	w.window += int64(increment)
	w.maxSeenWindow = max(w.maxSeenWindow, w.window)
	w.wakeNext()
	return nil
}

// ConnWindow returns the connection's current send window, and the largest one so far.
func (w *Writer) ConnWindow() (now, widest int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.window, w.maxSeenWindow
}

// AddStreamWindow applies a WINDOW_UPDATE for a stream.
func (w *Writer) AddStreamWindow(s *SendStream, increment uint32) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.initialWindow+s.updates-s.sent+int64(increment) > MaxWindow {
		return StreamError{Stream: s.ID, Code: FlowControlError, Reason: "the stream's window is too large"}
	}
	s.updates += int64(increment)
	if s.waiting {
		w.windowOpened(s)
	}
	return nil
}

// WindowOverflows reports whether a new initial window made the window of s too large.
func (w *Writer) WindowOverflows(s *SendStream) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.initialWindow+s.updates-s.sent > MaxWindow
}

// StreamErr returns why s cannot send any more, or nil.
func (w *Writer) StreamErr(s *SendStream) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return w.err
}

// Ended reports whether END_STREAM of s is written or buffered.
func (w *Writer) Ended(s *SendStream) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.ended
}

// Progress returns the number of bytes of DATA that s has sent, and whether it waits for a window to send more.
func (w *Writer) Progress(s *SendStream) (sent int64, blocked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.sent, s.blocked
}

// AllowedUpdates returns the number of WINDOW_UPDATEs that the peer may have sent for the DATA that was sent or is
// buffered: two for each frame, and one for each KiB, for peers that read frames piece by piece (golang.org/x/net/http2
// sends one for each 4 KiB, and one for the connection). Frames that a window of less than 32 bytes made small do not
// count.
func (w *Writer) AllowedUpdates() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return 2*w.dataFrames + w.dataBytes>>10
}

// UpdateCounter detects a flood of WINDOW_UPDATEs: more than the sent DATA explains.
type UpdateCounter struct{ received uint64 }

// maxSavedUpdates is the maximum number of updates that may arrive late: enough for 256 MiB that were sent earlier and are
// read only now, a KiB at a time. A download of hours cannot accumulate more than that.
const maxSavedUpdates = 256 << 10

// Explained counts a WINDOW_UPDATE, and reports whether the DATA that w sent explains it.
func (u *UpdateCounter) Explained(w *Writer) bool {
	most := w.AllowedUpdates()
	if most > maxSavedUpdates {
		u.received = max(u.received, most-maxSavedUpdates)
	}
	u.received++
	return u.received <= most
}

// Abort makes writes of s, including waiting ones, fail with why. It reports whether END_STREAM was sent before.
func (w *Writer) Abort(s *SendStream, why error) (ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.err == nil {
		s.err = why
	}
	if s.waiting {
		w.dequeue(s)
		s.wakeUp()
	}
	w.spaceFreed.Broadcast() // s may wait for space
	return s.ended
}
