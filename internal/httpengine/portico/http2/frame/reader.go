package frame

import (
	"errors"
	"io"
	"sync"
)

// Reader reads the frames of a connection. It is used by one goroutine.
type Reader struct {
	// OnPartial is called for a frame with a payload that has not arrived completely. May be nil.
	OnPartial func(Type)

	conn   io.Reader
	inline [inlineSize]byte // the buffer while the connection is idle, as most connections are most of the time
	pooled *[]byte          // from smallBuffers or frameBuffers; nil if inline is used
	start  int              // buf()[start:end] was read from conn and not returned yet
	end    int
}

const (
	inlineSize = 256
	smallSize  = 4 << 10
)

var (
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallSize); return &b }}
	frameBuffers = sync.Pool{New: func() any { b := make([]byte, HeaderLen+MaxFrame); return &b }} // for frames of the maximum size
)

// NewReader returns a Reader of conn.
func NewReader(conn io.Reader) *Reader { return &Reader{conn: conn} }

// ErrFrameTooLarge is the error for a frame that exceeds the accepted size.
var ErrFrameTooLarge = ConnError{FrameSizeError, "the frame is longer than allowed"}

// Buffered returns the number of bytes that were read of frames that were not returned yet. The rest of these frames should
// arrive soon.
func (r *Reader) Buffered() int { return r.end - r.start }

// Skip reads n bytes that are not a frame: the client's preface.
func (r *Reader) Skip(n int) ([]byte, error) {
	if err := r.fill(n); err != nil {
		return nil, err
	}
	b := r.buf()[r.start : r.start+n]
	r.start += n
	return b, nil
}

// Next returns the next frame. It returns io.EOF if the connection ends between two frames.
func (r *Reader) Next() (Frame, error) {
	if err := r.fill(HeaderLen); err != nil {
		return Frame{}, err
	}
	h := r.buf()[r.start:]
	length := int(h[0])<<16 | int(h[1])<<8 | int(h[2])
	f := Frame{Type: Type(h[3]), Flags: h[4], Stream: Uint31(h[5:])}
	if length > MaxFrame {
		return f, ErrFrameTooLarge
	}
	if r.OnPartial != nil && r.end-r.start < HeaderLen+length {
		r.OnPartial(f.Type)
	}
	if err := r.fill(HeaderLen + length); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return f, err
	}
	f.Payload = r.buf()[r.start+HeaderLen : r.start+HeaderLen+length]
	r.start += HeaderLen + length
	return f, nil
}

func (r *Reader) buf() []byte {
	if r.pooled != nil {
		return *r.pooled
	}
	return r.inline[:]
}

// fill reads until n bytes are buffered.
func (r *Reader) fill(n int) error {
	if r.end-r.start >= n {
		return nil
	}
	r.makeSpace(n)
	for b := r.buf(); r.end-r.start < n; {
		got, err := r.conn.Read(b[r.end:])
		r.end += got
		if err == nil || r.end-r.start >= n {
			continue
		}
		if errors.Is(err, io.EOF) && r.end > r.start {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// makeSpace moves the buffered bytes to the beginning of a buffer for n bytes. It uses the inline buffer if no bytes are
// buffered and n is small.
func (r *Reader) makeSpace(n int) {
	rest := r.buf()[r.start:r.end]
	switch old := r.pooled; {
	case len(rest) == 0 && n <= inlineSize:
		r.pooled = nil
		putBuffer(old)
	case n <= len(r.buf()):
		copy(r.buf(), rest)
	default:
		if r.pooled = getBuffer(n); len(rest) > 0 {
			copy(*r.pooled, rest)
		}
		putBuffer(old)
	}
	r.start, r.end = 0, len(rest)
}

func getBuffer(n int) *[]byte {
	if n <= smallSize {
		return smallBuffers.Get().(*[]byte)
	}
	return frameBuffers.Get().(*[]byte)
}

func putBuffer(room *[]byte) {
	switch {
	case room == nil:
	case len(*room) == smallSize:
		smallBuffers.Put(room)
	default:
		frameBuffers.Put(room)
	}
}

// Close returns the buffer to its pool. The Reader must not be used after it.
func (r *Reader) Close() {
	putBuffer(r.pooled)
	r.pooled, r.start, r.end = nil, 0, 0
}
