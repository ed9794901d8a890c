package http1

import (
	"errors"
	"io"
	"os"
)

// roomForReading is what a connection that waits keeps. A larger head has a larger buffer for as long as it is read.
const roomForReading = 4 << 10

// errFull is that there is no room for more.
var errFull = errors.New("the buffer is full")

// reader is what was read of a connection and not used yet.
type reader struct {
	from io.Reader
	buf  []byte
	r, w int   // what is not used yet is between them
	err  error // the end, for good
}

func (b *reader) unused() []byte { return b.buf[b.r:b.w] }

// use has n bytes used.
func (b *reader) use(n int) {
	b.r += n
	if b.r == b.w {
		b.r, b.w = 0, 0
	}
}

// fill reads once more. A deadline that has passed is no end: the next call may find more.
func (b *reader) fill() error {
	if b.err != nil {
		return b.err
	}
	if b.r > 0 {
		copy(b.buf, b.buf[b.r:b.w])
		b.r, b.w = 0, b.w-b.r
	}
	if b.w == len(b.buf) {
		return errFull
	}
	n, err := b.read(b.buf[b.w:])
	b.w += n
	return err
}

// read reads once more, past the buffer. What it returns is either something or an error.
func (b *reader) read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	for range 100 {
		n, err := b.from.Read(p)
		if err != nil && !isTimeout(err) {
			b.err = err
		}
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, io.ErrNoProgress
}

// grow makes room for more, and reports false when there is as much as there may be.
func (b *reader) grow(most int) bool {
	if len(b.buf) >= most {
		return false
	}
	larger := make([]byte, min(2*len(b.buf), most))
	b.w = copy(larger, b.buf[b.r:b.w])
	b.buf, b.r = larger, 0
	return true
}

// shrink undoes grow, if what is not used yet allows it.
func (b *reader) shrink() {
	if len(b.buf) <= roomForReading || b.w-b.r > roomForReading {
		return
	}
	smaller := make([]byte, roomForReading)
	b.w = copy(smaller, b.buf[b.r:b.w])
	b.buf, b.r = smaller, 0
}

// isTimeout is about deadlines of ours. A client that has died is a timeout too, of another kind (ETIMEDOUT): that is the end.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
