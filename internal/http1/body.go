package http1

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// errNothing is what is left of the body of a request without one.
var errNothing = errors.New("the request has no body")

// body is a request's, as it comes from the connection.
type body struct {
	x *exchange
	// expects is set until the client, which waits for 100 (Continue), is sent it: before, nobody knows what it sends next.
	expects atomic.Bool
	closed  atomic.Bool // by the handler

	mu     sync.Mutex // guards what follows, and the connection's reader
	chunks *chunks    // nil: it has a length
	left   int64      // of it, or of the chunk in hand
	err    error      // what came of it; io.EOF: it is read
	over   bool       // the handler has returned
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.expects.Load() && !b.closed.Load() {
		b.x.res.goOn() // before mu is held: Hijack has the response's, and wants ours
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.read(p)
}

// Close implements io.Closer. What is left is read when the answer is sent.
func (b *body) Close() error {
	b.closed.Store(true)
	return nil
}

// read is called with mu held, or after leave, as what follows is.
func (b *body) read(p []byte) (n int, err error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	if b.chunks != nil {
		n, err = b.readChunked(p)
	} else if n, err = b.take(p); err == nil && b.left == 0 {
		err = io.EOF
	}
	if err == nil || isTimeout(err) { // there may be another deadline
		return n, err
	}
	if err != io.EOF && b.x.conn.in.err != nil {
		if err = b.x.conn.in.err; err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		b.x.life.End() // the client is gone
	}
	b.err = err
	if err == io.EOF {
		b.x.conn.bodyEnds(b.x)
		b.x.conn.server.ears.add(b.x)
	}
	return n, err
}

// take reads what is left of the body, or of a chunk.
func (b *body) take(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	c := b.x.conn
	if len(c.in.unused()) == 0 {
		if len(p) >= len(c.in.buf) {
			if !c.bodyComes(b.x) {
				return 0, os.ErrDeadlineExceeded
			}
			n, err := c.in.read(p)
			b.left -= int64(n)
			return n, gone(err)
		}
		if err := b.more(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.in.unused())
	c.in.use(n)
	b.left -= int64(n)
	return n, nil
}

// more waits for more of the body.
func (b *body) more() error {
	c := b.x.conn
	if !c.bodyComes(b.x) {
		return os.ErrDeadlineExceeded
	}
	return gone(c.in.fill())
}

func gone(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// leave has nobody read the body any more. It reports how much of it is left: less than nothing is that it is not known.
func (b *body) leave() int64 {
	if b.x == nil {
		return 0
	}
	if !b.mu.TryLock() { // somebody may wait for what the client does not send
		b.x.conn.stopReading()
		b.mu.Lock()
		defer b.x.conn.resumeReading()
	}
	defer b.mu.Unlock()
	b.over = true
	switch {
	case b.err == io.EOF:
		return 0
	case b.err != nil || b.chunks != nil:
		return -1
	}
	return b.left
}

// mostLeft is how much of a body that no handler wanted is read for the sake of the next request.
const mostLeft = 256 << 10

// chunkPatience is how long an answer waits for chunks that its handler did not want: how many there are decides what it says.
const chunkPatience = 500 * time.Millisecond

// finish reads what is left of the body, for so long, and reports whether that is all. It is called after leave, and so without mu: a
// goroutine that the handler left behind must not wait for mu as long as that takes, to learn that the body is nobody's any more.
func (b *body) finish(limit time.Duration) bool {
	c := b.x.conn
	c.bodyUntil(b.x, time.Now().Add(limit))
	room := make([]byte, roomForReading)
	for n := 0; n <= mostLeft; {
		m, err := b.read(room)
		if err != nil {
			return err == io.EOF
		}
		n += m
	}
	return false
}

// bodyComes has the deadline be the body's. It reports false when nothing may be read.
func (c *conn) bodyComes(x *exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped || c.hijacked {
		return false
	}
	x.coming = true
	c.applyLocked(x.readBy)
	return true
}

// bodyEnds has the handler's deadline mean nothing to the connection any more.
func (c *conn) bodyEnds(x *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x.coming = false
}

// bodyUntil has reading the body fail from then on.
func (c *conn) bodyUntil(x *exchange, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bodyUntilLocked(x, at)
}

func (c *conn) bodyUntilLocked(x *exchange, at time.Time) {
	x.readBy = at
	if x.coming && !c.stopped {
		c.applyLocked(at)
	}
}

func (c *conn) applyLocked(at time.Time) {
	if !c.due.Equal(at) {
		c.due = at
		_ = c.net.SetReadDeadline(at)
	}
}
