package frame

import (
	"errors"
	"io"
	"sync"
)

// Reader reads the frames of a connection. One goroutine uses it.
type Reader struct {
	// OnPartial is called for a frame whose payload has not arrived completely. Nil: nothing is called.
	OnPartial func(Type)

	conn   io.Reader
	inline [inlineSize]byte // the buffer while the connection is idle, as most are most of the time
	pooled *[]byte          // from smallBuffers or frameBuffers; nil: inline is used
	start  int              // buf()[start:end] was read from conn and not returned yet
	end    int
}

const (
	inlineSize = 256
	smallSize  = 4 << 10
)

var (
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallSize); return &b }}
	frameBuffers = sync.Pool{New: func() any { b := make([]byte, HeaderLen+MaxFrame); return &b }} // for any frame that we accept
)

// NewReader reads from conn.
func NewReader(conn io.Reader) *Reader { return &Reader{conn: conn} }

// ErrFrameTooLarge is a frame longer than we accept.
var ErrFrameTooLarge = ConnError{FrameSizeError, "the frame is longer than allowed"}

// Buffered is how many bytes were read that belong to frames that were not returned yet. The rest of those frames should
// arrive soon.
func (r *Reader) Buffered() int { return r.end - r.start }

// Skip reads n bytes that are no frame: the client's preface.
func (r *Reader) Skip(n int) ([]byte, error) {
	if err := r.fill(n); err != nil {
		return nil, err
	}
	b := r.buf()[r.start : r.start+n]
	r.start += n
	return b, nil
}

// Next returns the next frame. Between two frames the end of the connection is io.EOF.
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

// makeSpace moves the buffered bytes to the beginning of a buffer for n bytes. If nothing is buffered and n is small, that
// is the inline buffer.
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

// Close returns the buffer to its pool. Nothing may be read after it.
func (r *Reader) Close() {
	putBuffer(r.pooled)
	r.pooled, r.start, r.end = nil, 0, 0
}
