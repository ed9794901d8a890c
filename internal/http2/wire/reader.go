package wire

import (
	"errors"
	"io"
	"sync"
)

// Reader reads the frames of a connection. It belongs to one goroutine.
type Reader struct {
	// Await is told of a frame whose payload is not all there yet. Nil: nobody is.
	Await func(Type)

	conn  io.Reader
	small []byte  // the room that the connection keeps
	large *[]byte // room for frames that do not fit; nil most of the time
	from  int     // what was read and not yet given away is buf[from:to]
	to    int
}

const smallRoom = 4 << 10

// largeRooms are for frames of any size that we take.
var largeRooms = sync.Pool{New: func() any { b := make([]byte, HeaderLen+MaxFrame); return &b }}

// NewReader reads from conn, of which already was read before.
func NewReader(conn io.Reader, already []byte) *Reader {
	r := &Reader{conn: conn, small: make([]byte, max(smallRoom, len(already)))}
	r.to = copy(r.small, already)
	return r
}

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
	if r.large != nil {
		return *r.large
	}
	return r.small
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

// arrange makes room for n bytes in all: small room where that suffices.
func (r *Reader) arrange(n int) {
	old := r.room()
	switch rest := old[r.from:r.to]; {
	case r.large == nil && n > len(r.small):
		r.large = largeRooms.Get().(*[]byte)
		copy(*r.large, rest)
	case r.large != nil && len(rest) < n && n <= len(r.small) && len(rest) <= len(r.small):
		copy(r.small, rest)
		largeRooms.Put(r.large)
		r.large = nil
	default:
		copy(old, rest)
	}
	r.from, r.to = 0, r.to-r.from
}

// Close gives the room back. Nothing may be read after it.
func (r *Reader) Close() {
	if r.large != nil {
		largeRooms.Put(r.large)
		r.large = nil
		r.from, r.to = 0, 0
	}
}
