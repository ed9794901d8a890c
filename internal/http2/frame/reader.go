package frame

import (
	"errors"
	"io"
	"sync"
)

// Reader reads the frames of a connection. It belongs to one goroutine.
type Reader struct {
	// Await is told of a frame whose payload is not all there yet. Nil: nobody is.
	Await func(Type)

	conn io.Reader
	idle [idleRoom]byte // where the first bytes are awaited: most connections wait most of the time
	lent *[]byte        // room of readRooms or frameRooms; nil: idle suffices
	from int            // what was read and not yet given away is room()[from:to]
	to   int
}

const (
	idleRoom = 256
	readRoom = 4 << 10
)

var (
	readRooms  = sync.Pool{New: func() any { b := make([]byte, readRoom); return &b }}
	frameRooms = sync.Pool{New: func() any { b := make([]byte, HeaderLen+MaxFrame); return &b }} // for any frame that we take
)

// NewReader reads from conn.
func NewReader(conn io.Reader) *Reader { return &Reader{conn: conn} }

// ErrFrameTooLarge is a frame longer than we said that we take.
var ErrFrameTooLarge = ConnError{FrameSizeError, "the frame is longer than allowed"}

// Buffered reports whether bytes were read that are no whole frame's yet, or a frame's that was not given away: what
// follows will not have to wait, or not for long.
func (r *Reader) Buffered() int { return r.to - r.from }

// Skip reads n bytes that are no frame, for the client's preface.
func (r *Reader) Skip(n int) ([]byte, error) {
	if err := r.need(n); err != nil {
		return nil, err
	}
	b := r.room()[r.from : r.from+n]
	r.from += n
	return b, nil
}

// Next is the next frame. An end between two frames is io.EOF.
func (r *Reader) Next() (Frame, error) {
	if err := r.need(HeaderLen); err != nil {
		return Frame{}, err
	}
	h := r.room()[r.from:]
	length := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
	f := Frame{Type: Type(h[3]), Flags: h[4], Stream: Uint31(h[5:])}
	if length > MaxFrame {
		return f, ErrFrameTooLarge
	}
	if r.Await != nil && r.to-r.from < HeaderLen+length {
		r.Await(f.Type)
	}
	if err := r.need(HeaderLen + length); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return f, err
	}
	f.Payload = r.room()[r.from+HeaderLen : r.from+HeaderLen+length]
	r.from += HeaderLen + length
	return f, nil
}

func (r *Reader) room() []byte {
	if r.lent != nil {
		return *r.lent
	}
	return r.idle[:]
}

// need reads until n bytes are there.
func (r *Reader) need(n int) error {
	if r.to-r.from >= n {
		return nil
	}
	r.arrange(n)
	for b := r.room(); r.to-r.from < n; {
		got, err := r.conn.Read(b[r.to:])
		r.to += got
		if err == nil || r.to-r.from >= n {
			continue
		}
		if errors.Is(err, io.EOF) && r.to > r.from {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// arrange makes room for n bytes in all, and what is there its beginning. With nothing there, and little wanted, it is the
// room that costs nothing.
func (r *Reader) arrange(n int) {
	rest := r.room()[r.from:r.to]
	switch old := r.lent; {
	case len(rest) == 0 && n <= idleRoom:
		r.lent = nil
		giveRoom(old)
	case n <= len(r.room()):
		copy(r.room(), rest)
	default:
		if r.lent = takeRoom(n); len(rest) > 0 {
			copy(*r.lent, rest)
		}
		giveRoom(old)
	}
	r.from, r.to = 0, len(rest)
}

func takeRoom(n int) *[]byte {
	if n <= readRoom {
		return readRooms.Get().(*[]byte)
	}
	return frameRooms.Get().(*[]byte)
}

func giveRoom(room *[]byte) {
	switch {
	case room == nil:
	case len(*room) == readRoom:
		readRooms.Put(room)
	default:
		frameRooms.Put(room)
	}
}

// Close gives the room back. Nothing may be read after it.
func (r *Reader) Close() {
	giveRoom(r.lent)
	r.lent, r.from, r.to = nil, 0, 0
}
