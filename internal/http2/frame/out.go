package frame

import (
	"errors"
	"io"
	"runtime"
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
