package frame

import (
	"errors"
	"io"
	"sync"
)

// ErrBodyClosed is returned by reads after Close.
var ErrBodyClosed = errors.New("the body is closed")

// Consumer is notified of the number of bytes taken out of a Body, so that it can let the peer send as many more.
type Consumer interface {
	Consumed(n int)
}

// Body holds the received bytes of a message that were not read yet. Flow control limits them. The zero value is ready for
// use.
type Body struct {
	// Consumer is called for bytes that were read or discarded, without locks, on the goroutine that did so.
	Consumer Consumer

	mu      sync.Mutex // guards the fields below
	changed sync.Cond
	chunks  []chunk
	inline  [2]chunk // initial backing array of chunks
	size    int
	err     error // returned after the bytes; nil if more will arrive
	closed  bool
}

type chunk struct {
	buf      *[]byte
	from, to int
}

var (
	smallChunks = sync.Pool{New: func() any { b := make([]byte, 2<<10); return &b }}
	largeChunks = sync.Pool{New: func() any { b := make([]byte, MaxFrame); return &b }}
)

func newChunk(n int) chunk {
	if n <= 2<<10 {
		return chunk{buf: smallChunks.Get().(*[]byte)}
	}
	return chunk{buf: largeChunks.Get().(*[]byte)}
}

func (c *chunk) free() {
	if len(*c.buf) == MaxFrame {
		largeChunks.Put(c.buf)
	} else {
		smallChunks.Put(c.buf)
	}
}

// Add copies p, and ends the body with err unless that is nil. It returns the number of bytes that will not be read.
func (b *Body) Add(p []byte, err error) (unwanted int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.err != nil {
		return len(p)
	}
	b.size += len(p)
	for len(p) > 0 {
		if last := len(b.chunks) - 1; last < 0 || b.chunks[last].to == len(*b.chunks[last].buf) {
			if b.chunks == nil {
				b.chunks = b.inline[:0]
			}
			b.chunks = append(b.chunks, newChunk(len(p)))
		}
		c := &b.chunks[len(b.chunks)-1]
		n := copy((*c.buf)[c.to:], p)
		c.to += n
		p = p[n:]
	}
	b.err = err
	b.notify()
	return 0
}

// End ends the body after the received data, with io.EOF or the reason why it is incomplete. Only the first end counts.
func (b *Body) End(err error) { b.Add(nil, err) }

func (b *Body) notify() {
	if b.changed.L != nil { // a reader has waited
		b.changed.Broadcast()
	}
}

// Fail ends the body and discards the received data.
func (b *Body) Fail(err error) {
	b.mu.Lock()
	n := b.discardLocked()
	if b.err == nil || b.err == io.EOF && n > 0 {
		b.err = err
	}
	b.notify()
	b.mu.Unlock()
	b.reportConsumed(n)
}

// Buffered returns the number of bytes that Read returns without waiting, and whether the body has ended.
func (b *Body) Buffered() (n int, ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.size, b.err != nil
}

// Read waits for bytes or the end of the body. The last bytes and the end may be returned together.
func (b *Body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b.mu.Lock()
	for b.size == 0 && b.err == nil && !b.closed {
		if b.changed.L == nil {
			b.changed.L = &b.mu
		}
		b.changed.Wait()
	}
	if b.closed {
		b.mu.Unlock()
		return 0, ErrBodyClosed
	}
	n := 0
	for n < len(p) && b.size > 0 {
		c := &b.chunks[0]
		m := copy(p[n:], (*c.buf)[c.from:c.to])
		c.from += m
		n += m
		b.size -= m
		if c.from == c.to {
			c.free()
			b.chunks[0] = chunk{}
			b.chunks = b.chunks[1:]
		}
	}
	var err error
	if b.size == 0 {
		b.chunks = nil
		err = b.err
	}
	b.mu.Unlock()
	b.reportConsumed(n)
	return n, err
}

// Close discards the unread data.
func (b *Body) Close() error {
	b.mu.Lock()
	b.closed = true
	n := b.discardLocked()
	b.notify()
	b.mu.Unlock()
	b.reportConsumed(n)
	return nil
}

func (b *Body) discardLocked() int {
	for i := range b.chunks {
		b.chunks[i].free()
	}
	n := b.size
	b.chunks, b.size = nil, 0
	return n
}

func (b *Body) reportConsumed(n int) {
	if n > 0 && b.Consumer != nil {
		b.Consumer.Consumed(n)
	}
}
