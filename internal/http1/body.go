package http1

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"portico.dev/internal/httpmsg"
)

// errNoBody is what is left of the body of a request without one.
var errNoBody = errors.New("the request has no body")

// body is a request's, as it comes from the connection.
type body struct {
	x *exchange
	// expects is set until the client, which waits for 100 (Continue), is sent it: before, nobody knows what it sends next.
	expects atomic.Bool
	closed  atomic.Bool // by the handler

	mu       sync.Mutex    // guards what follows, and the connection's reader
	chunks   *chunkedState // nil: it has a length
	left     int64         // of it, or of the chunk in hand
	err      error         // what came of it; io.EOF: it is read
	detached bool          // the handler has returned
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.expects.Load() && !b.closed.Load() {
		b.x.res.sendContinue() // before mu is held: Hijack has the response's, and wants ours
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.detached || b.closed.Load() {
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
	} else if n, err = b.readRemaining(p); err == nil && b.left == 0 {
		err = io.EOF
	}
	if err == nil || isTimeout(err) { // there may be another deadline
		return n, err
	}
	if err != io.EOF && b.x.conn.in.err != nil {
		if err = b.x.conn.in.err; err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		b.x.ctx.End() // the client is gone
	}
	b.err = err
	if err == io.EOF {
		b.x.conn.endBodyRead(b.x)
		b.x.conn.server.disconnects.add(b.x)
	}
	return n, err
}

// readRemaining reads what is left of the body, or of a chunk.
func (b *body) readRemaining(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	c := b.x.conn
	if len(c.in.unused()) == 0 {
		if len(p) >= len(c.in.buf) {
			if !c.startBodyRead(b.x) {
				return 0, os.ErrDeadlineExceeded
			}
			n, err := c.in.readDirect(p)
			b.left -= int64(n)
			return n, unexpectedEOF(err)
		}
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.in.unused())
	c.in.consume(n)
	b.left -= int64(n)
	return n, nil
}

// fill waits for more of the body.
func (b *body) fill() error {
	c := b.x.conn
	if !c.startBodyRead(b.x) {
		return os.ErrDeadlineExceeded
	}
	return unexpectedEOF(c.in.fill())
}

func unexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// detach has nobody read the body any more. It reports how much of it is left: less than nothing is that it is not known.
func (b *body) detach() int64 {
	if b.x == nil {
		return 0
	}
	if !b.mu.TryLock() { // somebody may wait for what the client does not send
		b.x.conn.stopReading()
		b.mu.Lock()
		defer b.x.conn.resumeReading()
	}
	defer b.mu.Unlock()
	b.detached = true
	switch {
	case b.err == io.EOF:
		return 0
	case b.err != nil || b.chunks != nil:
		return -1
	}
	return b.left
}

// maxDrain is how much of a body that no handler wanted is read for the sake of the next request.
const maxDrain = 256 << 10

// chunkDrainTimeout is how long an answer waits for chunks that its handler did not want: how many there are decides what it says.
const chunkDrainTimeout = 500 * time.Millisecond

// drain reads what is left of the body, for so long, and reports whether that is all. It is called after leave, and so without mu: a
// goroutine that the handler left behind must not wait for mu as long as that takes, to learn that the body is nobody's any more.
func (b *body) drain(limit time.Duration) bool {
	c := b.x.conn
	c.setBodyDeadline(b.x, time.Now().Add(limit))
	room := make([]byte, readBufferSize)
	for n := 0; n <= maxDrain; {
		m, err := b.read(room)
		if err != nil {
			return err == io.EOF
		}
		n += m
	}
	return false
}

// startBodyRead has the deadline be the body's. It reports false when nothing may be read.
func (c *conn) startBodyRead(x *exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readStopped || c.hijacked {
		return false
	}
	x.bodyReading = true
	c.setDeadlineLocked(x.bodyDeadline)
	return true
}

// endBodyRead has the handler's deadline mean nothing to the connection any more.
func (c *conn) endBodyRead(x *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x.bodyReading = false
}

// setBodyDeadline has reading the body fail from then on.
func (c *conn) setBodyDeadline(x *exchange, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setBodyDeadlineLocked(x, at)
}

func (c *conn) setBodyDeadlineLocked(x *exchange, at time.Time) {
	x.bodyDeadline = at
	if x.bodyReading && !c.readStopped {
		c.setDeadlineLocked(at)
	}
}

func (c *conn) setDeadlineLocked(at time.Time) {
	if !c.readDeadline.Equal(at) {
		c.readDeadline = at
		_ = c.net.SetReadDeadline(at)
	}
}

// chunkedState is where a chunked body is (RFC 9112, 7.1).
type chunkedState struct {
	inChunk      bool // the end of a chunk is still to come
	lastSeen     bool // that was the last one: trailers come
	trailer      http.Header
	trailerBytes int // of the trailers
	trailerLines int // and how many they are
	// excess is how much came that was no data (CVE-2023-39326), less what is due to each chunk.
	excess int64
}

const maxExcess = 16 << 10

var (
	errChunkLine  = errors.New("a line between chunks ends without CR, or is too long")
	errChunkSize  = errors.New("a chunk has a size that is none")
	errChunkEnd   = errors.New("a chunk is not as long as its size says")
	errExcess     = errors.New("too much of the body is no data")
	errBadTrailer = errors.New("a trailer has a name or a value that is none")
)

func (b *body) readChunked(p []byte) (int, error) {
	if b.left == 0 {
		if err := b.nextChunk(); err != nil {
			return 0, err
		}
	}
	return b.readRemaining(p)
}

// nextChunk reads what is between two chunks. After the last one it returns io.EOF.
//
// A deadline may strike anywhere in it, and it goes on there when it is called again.
func (b *body) nextChunk() error {
	in := &b.x.conn.in
	if b.chunks.lastSeen {
		return b.readTrailers()
	}
	if b.chunks.inChunk {
		for len(in.unused()) < 2 {
			if err := b.fill(); err != nil {
				return err
			}
		}
		if end := in.unused(); end[0] != '\r' || end[1] != '\n' {
			return errChunkEnd
		}
		in.consume(2)
		b.chunks.inChunk = false
	}
	line, err := b.readLine()
	if err != nil {
		return err
	}
	size, err := parseChunkSize(line)
	if err != nil {
		return err
	}
	excess := b.chunks.excess + int64(len(line)) + 2
	in.consume(len(line) + 2)
	if size == 0 {
		b.chunks.lastSeen = true
		return b.readTrailers()
	}
	// One byte in a chunk may be fair; sixteen more for each, and twice the data, is what net/http bears.
	if b.chunks.excess = excess - 16 - 2*min(size, maxExcess); b.chunks.excess < 0 {
		b.chunks.excess = 0
	}
	if b.chunks.excess > maxExcess {
		return errExcess
	}
	b.left, b.chunks.inChunk = size, true
	return nil
}

// readLine waits for a line, and returns it without its end. It is to be used before anything else is read.
func (b *body) readLine() ([]byte, error) {
	in := &b.x.conn.in
	for from := 0; ; {
		have := in.unused()
		if n := bytes.IndexByte(have[from:], '\n'); n >= 0 {
			if end := from + n; end > 0 && have[end-1] == '\r' {
				return have[:end-1], nil
			}
			return nil, errChunkLine
		}
		if from = len(have); from >= readBufferSize {
			return nil, errChunkLine
		}
		if err := b.fill(); err != nil {
			return nil, err
		}
	}
}

// parseChunkSize is plain hexadecimal digits, and perhaps an extension, which means nothing here.
func parseChunkSize(line []byte) (size int64, err error) {
	digits, extension, _ := bytes.Cut(line, []byte(";"))
	if len(digits) == 0 || len(digits) > 16 || !httpmsg.ValidFieldValue(string(extension)) {
		return 0, errChunkSize
	}
	for _, c := range digits {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, errChunkSize
		}
		if size > (1<<63-1)>>4 {
			return 0, errChunkSize
		}
		size = size<<4 | int64(c)
	}
	return size, nil
}

// readTrailers reads what comes after the last chunk, and then returns io.EOF. Names that must not be there are dropped.
func (b *body) readTrailers() error {
	ch := b.chunks
	for {
		line, err := b.readLine()
		if err != nil {
			return err
		}
		text := string(line)
		b.x.conn.in.consume(len(line) + 2)
		if text == "" {
			break
		}
		ch.trailerLines++
		if ch.trailerBytes += len(text); ch.trailerBytes > b.x.conn.server.c.MaxHeaderBytes || ch.trailerLines > httpmsg.MaxTrailers {
			return errExcess
		}
		name, value, ok := strings.Cut(text, ":")
		value = httpmsg.TrimBlanks(value)
		if !ok || !httpmsg.IsToken(name) || !httpmsg.ValidFieldValue(value) || httpmsg.CheckLengths(name, value) != nil {
			return errBadTrailer
		}
		if name = textproto.CanonicalMIMEHeaderKey(name); httpmsg.ValidTrailer(name) {
			if ch.trailer == nil {
				ch.trailer = make(http.Header)
			}
			ch.trailer[name] = append(ch.trailer[name], value)
		}
	}
	if ch.trailer != nil && !b.detached {
		r := &b.x.req
		if r.Trailer == nil {
			r.Trailer = ch.trailer
		} else {
			for name, values := range ch.trailer {
				r.Trailer[name] = values
			}
		}
	}
	return io.EOF
}
